//! Calls on tokio: `calls server`, and on another host `calls client ADDRESS WORDS...`, which asks
//! for all words at a time and prints the answers as they come. It understands the examples of
//! this name of C and of `clearway-client`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clearway_client::{Error, Options, Refusal, Request};
use clearway_tokio::Calls;
use tokio::task::JoinSet;

const PORT: u16 = 4000;
/// What the server can do: the app's own numbers.
const UPPER_CASE: u16 = 1;
/// For one answer.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.as_slice() {
        [role] if role == "server" => serve(&Options::new("calls")).await,
        [role, address, words @ ..] if role == "client" => match address.parse::<IpAddr>() {
            Ok(address) => ask(&Options::new("calls"), (address, PORT).into(), words).await,
            Err(error) => return eprintln!("calls: {address}: {error}"),
        },
        _ => return eprintln!("usage: calls server | calls client ADDRESS WORDS..."),
    };
    if let Err(error) = result {
        eprintln!("calls: {error}");
        std::process::exit(1);
    }
}

/// Answers each request by a task of its own.
pub(crate) async fn serve(options: &Options) -> Result<(), Error> {
    let calls = Calls::attach(options)?;
    println!("listening on {}", calls.listen(PORT)?.address);
    loop {
        let request = calls.request().await?;
        let calls = calls.clone();
        tokio::spawn(async move { answer(&calls, &request) });
    }
}

fn answer(calls: &Calls, request: &Request) {
    let answered = match request.method() {
        UPPER_CASE => calls.answer(request.id(), &request.to_ascii_uppercase()),
        _ => calls.refuse(request.id(), Refusal::NO_METHOD, ""),
    };
    if let Err(error) = answered {
        eprintln!("calls: {error}");
    }
}

pub(crate) async fn ask(
    options: &Options,
    server: SocketAddr,
    words: &[String],
) -> Result<(), Error> {
    let calls = Calls::attach(options)?;
    let connection = calls.connect(server).await?;
    let mut asked = JoinSet::new();
    for word in words {
        let (calls, word) = (calls.clone(), word.clone());
        asked.spawn(async move {
            let answer = calls.call(connection, UPPER_CASE, word.as_bytes(), PATIENCE).await?;
            println!("{word}: {}", String::from_utf8_lossy(&answer));
            Ok::<_, Error>(())
        });
    }
    while let Some(ended) = asked.join_next().await {
        ended.expect("no panic")?;
    }
    calls.close(connection)
}
