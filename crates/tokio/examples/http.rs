//! hyper on Clearway: `http PORT` answers GET / with a greeting and GET /N with N bytes, to any
//! client on the network: the same as `examples/http.c`, by a library that knows nothing of
//! Clearway.

use std::convert::Infallible;

use bytes::Bytes;
use clearway_client::{Options, TcpOption};
use clearway_tokio::Tcp;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// The largest body.
const BODY_BYTES_MAX: usize = 1 << 20;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, path) => page(path),
        _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

fn page(path: &str) -> (StatusCode, Bytes) {
    match (path, path[1..].parse()) {
        ("/", _) => (StatusCode::OK, Bytes::from_static(b"hello from Clearway\n")),
        (_, Ok(bytes @ 0..=BODY_BYTES_MAX)) => (StatusCode::OK, vec![b'x'; bytes].into()),
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    }
}

/// Serves for ever.
pub(crate) async fn serve(options: &Options, port: u16) -> std::io::Result<Infallible> {
    let tcp = Tcp::attach(options)?;
    let listener = tcp.listen(port)?;
    println!("listening on port {port}");
    loop {
        let (stream, peer) = listener.accept().await?;
        // It may have been reset by now, which is nothing to the others.
        if let Err(error) = stream.set(TcpOption::NoDelay(true)) {
            eprintln!("{peer}: {error}");
            continue;
        }
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            if let Err(error) = served.await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(port) = port else {
        eprintln!("usage: http PORT");
        std::process::exit(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    match runtime.block_on(serve(&Options::new("http"), port))? {}
}
