//! `clearway-tokio` end to end: an app at a real daemon on one end of a veth pair, the Linux kernel
//! on the other. hyper, which knows nothing of Clearway, serves curl
//! (`crates/tokio/examples/http.rs`). Needs root for the namespaces.

mod support;

// Its `main` is not called here.
#[allow(dead_code)]
#[path = "../../tokio/examples/http.rs"]
mod http;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;

use clearway_client::{Options, TcpOption};
use clearway_tokio::Tcp;
use support::veth::{IPV4, Veth};
use support::{Network, PATIENCE, SMALL};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const PORT: u16 = 8080;
const BULK_BYTES: usize = 5 << 20;

/// A daemon with an app on one end of a veth pair; the other end is the kernel's.
struct World {
    network: Network,
    veth: Veth,
}

impl World {
    /// `None` where there are no namespaces to be made.
    fn start() -> Option<Self> {
        let veth = Veth::new()?;
        let driver = "driver = \"auto\"";
        let network = veth.hosts([driver, driver], IPV4.map(IpAddr::V4));
        Some(Self { network, veth })
    }

    fn options(&self) -> Options {
        let socket = self.network.server.socket.clone();
        Options { socket, sizes: SMALL, ..Options::new("tokio") }
    }

    /// In the kernel's namespace.
    fn there<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.veth.spaces[0].within(work).expect("the namespace can be entered")
    }

    fn connect(&self, port: u16) -> TcpStream {
        let to = (IPV4[1], port).into();
        let stream = self.there(|| TcpStream::connect_timeout(&to, PATIENCE)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

/// What is sent here must be over in time.
fn run<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(async { timeout(PATIENCE, work).await }).expect("it ends in time")
}

fn runtimes() -> [Runtime; 2] {
    let mut builders = [
        tokio::runtime::Builder::new_current_thread(),
        tokio::runtime::Builder::new_multi_thread(),
    ];
    builders.each_mut().map(|builder| builder.enable_all().build().expect("a runtime"))
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31) ^ (at >> 8)) as u8).collect()
}

/// Both directions at once, more than fits anywhere, for several connections.
#[test]
fn tasks_read_and_write_at_once() {
    let Some(world) = World::start() else { return };
    for (port, runtime) in (PORT..).zip(runtimes()) {
        let tcp = runtime.block_on(async { Tcp::attach(&world.options()) }).expect("attached");
        let listener = tcp.listen(port).expect("a listener");
        let echoing = runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accepted");
                assert_eq!(stream.local_addr(), (IPV4[1], port).into());
                tokio::spawn(async move {
                    let (mut reader, mut writer) = split(stream);
                    tokio::io::copy(&mut reader, &mut writer).await.expect("echoed");
                    writer.shutdown().await.expect("its half is closed");
                });
            }
        });
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let mut stream = world.connect(port);
                let mut writer = stream.try_clone().expect("another handle");
                runtime.spawn_blocking(move || {
                    let writing = std::thread::spawn(move || {
                        writer.write_all(&bytes(BULK_BYTES)).expect("written");
                        writer.shutdown(std::net::Shutdown::Write).expect("its half");
                    });
                    let mut received = Vec::new();
                    stream.read_to_end(&mut received).expect("read");
                    writing.join().expect("no panic");
                    assert!(received == bytes(BULK_BYTES));
                })
            })
            .collect();
        run(&runtime, async {
            for client in clients {
                client.await.expect("no panic");
            }
        });
        echoing.abort();
    }
}

#[test]
fn tasks_connect_and_time_out() {
    let Some(world) = World::start() else { return };
    let listener = world.there(|| TcpListener::bind((IPV4[0], 0))).expect("a listener");
    let there = listener.local_addr().expect("its address");
    for runtime in runtimes() {
        let tcp = runtime.block_on(async { Tcp::attach(&world.options()) }).expect("attached");
        let mut stream = run(&runtime, tcp.connect(there)).expect("connected");
        let (mut kernel, peer) = listener.accept().expect("accepted");
        assert_eq!((peer, stream.peer_addr()), (stream.local_addr(), there));
        stream.set(TcpOption::NoDelay(true)).expect("set");

        // Nothing comes: whoever waits can stop to, and loses nothing by it.
        let mut answer = [0; 6];
        let soon = std::time::Duration::from_millis(20);
        let waited = async { timeout(soon, stream.read_exact(&mut answer)).await };
        assert!(runtime.block_on(waited).is_err());
        kernel.write_all(b"answer").expect("written");
        run(&runtime, stream.read_exact(&mut answer)).expect("read");
        assert_eq!(&answer, b"answer");
        kernel.write_all(b"in place").expect("written");
        let received = run(&runtime, stream.recv_buffer()).expect("received");
        assert_eq!(received.as_deref().map(|bytes| &**bytes), Some(&b"in place"[..]));

        // The kernel reads to the end, and then the app does.
        run(&runtime, stream.write_all(b"the end")).expect("written");
        run(&runtime, stream.shutdown()).expect("its half is closed");
        let mut text = String::new();
        kernel.read_to_string(&mut text).expect("read");
        assert_eq!(text, "the end");
        drop(kernel);
        assert_eq!(run(&runtime, stream.read(&mut answer)).expect("the end"), 0);
        // Both have closed it, which is known by then.
        let once_more = async {
            tokio::time::sleep(soon).await;
            stream.shutdown().await
        };
        run(&runtime, once_more).expect("it is closed");

        // An attempt that nobody waits for any more leaves nothing behind.
        let nobody = (Ipv4Addr::new(10, 78, 0, 99), PORT).into();
        let given_up = async { timeout(soon, tcp.connect(nobody)).await };
        assert!(runtime.block_on(given_up).is_err());
    }
    drop(listener);
    let [runtime, _] = runtimes();
    let tcp = runtime.block_on(async { Tcp::attach(&world.options()) }).expect("attached");
    let refused = run(&runtime, tcp.connect(there)).expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// When the daemon goes, everybody who waits is told, in whatever it is that he waits for.
#[test]
fn the_end_of_the_daemon_wakes_all() {
    let Some(mut world) = World::start() else { return };
    let [runtime, _] = runtimes();
    let tcp = runtime.block_on(async { Tcp::attach(&world.options()) }).expect("attached");
    let listener = tcp.listen(PORT).expect("a listener");
    let kernel = world.connect(PORT);
    let (mut stream, _) = run(&runtime, listener.accept()).expect("accepted");
    let reading = runtime.spawn(async move { stream.read(&mut [0; 1]).await });
    let accepting = runtime.spawn(async move { listener.accept().await.map(drop) });
    world.network.server.kill();
    let ends = run(&runtime, async { (reading.await, accepting.await) });
    let (read, accepted) = (ends.0.expect("no panic"), ends.1.expect("no panic"));
    for error in [read.expect_err("no daemon"), accepted.expect_err("no daemon")] {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
    }
    drop(kernel);
}

#[test]
fn hyper_serves_curl() {
    let Some(world) = World::start() else { return };
    let [runtime, _] = runtimes();
    let options = world.options();
    let serving = async move { http::serve(&options, PORT).await.map(|_| ()) };
    let asking = std::thread::scope(|scope| {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let asking = scope.spawn(|| {
            let url = |path: &str| format!("http://{}:{PORT}/{path}", IPV4[1]);
            let output = world.there(|| {
                let mut curl = Command::new("curl");
                // It may begin before hyper listens.
                curl.args(["--retry", "20", "--retry-connrefused", "--retry-delay", "1"]);
                curl.args(["-s", "-m", "30", "-w", "[%{http_code} %{num_connects}]"]);
                curl.args([url(""), url("100000"), url("nothing")]).output()
            });
            let _ = stop.send(());
            output.expect("curl is installed")
        });
        runtime.block_on(async {
            tokio::select! {
                served = serving => served.expect("it serves"),
                _ = stopped => {}
            }
        });
        asking.join().expect("no panic")
    });
    let text = String::from_utf8_lossy(&asking.stdout);
    let wanted = format!("hello from Clearway\n[200 1]{}[200 0][404 0]", "x".repeat(100_000));
    assert_eq!(text, wanted, "{}", String::from_utf8_lossy(&asking.stderr));
}
