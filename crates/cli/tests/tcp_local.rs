//! TCP between apps of one engine of a real daemon, each a process, of which one is killed.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use clearway_client::{Sizes, Tcp, TcpStream};
use support::app::App;
use support::{Daemon, Network, PATIENCE, SMALL, eventually};

const PORT: u16 = 8080;
/// What goes by one connection: more than the receiver has memory for in all.
const BYTES: usize = 128 << 10;
const CONNECTIONS: usize = 24;

/// Not a test: the process of an app, see `support::app`.
#[test]
fn app_process() {
    support::app::play();
}

fn attach(daemon: &Daemon) -> Tcp {
    let sizes = Sizes { receive_pool_bytes: 8 << 20, transmit_pool_bytes: 8 << 20, ..SMALL };
    Tcp::new(daemon.try_attach("client", sizes).expect("attached"))
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|at| ((at * 31 + seed) ^ (at >> 8)) as u8).collect()
}

/// Connections to an app that reads none of them, which send more than it has memory for; those
/// that find no room wait.
fn crowd(tcp: &Tcp, daemon: &Daemon) -> Vec<TcpStream> {
    let connect = |_| tcp.connect(daemon.at(PORT), Some(PATIENCE)).expect("connected");
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    for (seed, stream) in streams.iter_mut().enumerate() {
        stream.set_timeout(Some(PATIENCE));
        stream.write_all(&bytes(seed)).expect("there is room in the own pool");
        stream.shutdown(Shutdown::Write).expect("its half");
    }
    eventually("some wait", || {
        daemon.status()["engines"][0]["counters"]["segments_held_up"].as_u64() > Some(0)
    });
    streams
}

#[test]
fn who_waits_for_an_app_that_is_killed_hears_of_it() {
    let network = Network::start();
    let daemon = &network.server;
    let mut app = App::start("tcp", daemon, PORT);
    let tcp = attach(daemon);
    let streams = crowd(&tcp, daemon);
    app.kill();
    for mut stream in streams {
        let error = stream.read(&mut [0; 1]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    eventually("nothing is left of them", || daemon.flows() == 0);
}

#[test]
fn who_reads_hears_that_the_sender_was_killed() {
    let network = Network::start();
    let daemon = &network.server;
    let tcp = attach(daemon);
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let mut app = App::start("tcp-endless", daemon, PORT);
    let (mut stream, _) = listener.accept().expect("accepted");
    stream.set_timeout(Some(PATIENCE));
    let mut part = vec![0; 1 << 20];
    stream.read_exact(&mut part).expect("read");
    assert!(part.iter().all(|byte| *byte == 7));
    app.kill();
    let error = loop {
        match stream.read(&mut part) {
            Ok(count) => assert!(count > 0, "it has not closed"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
