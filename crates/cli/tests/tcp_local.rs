//! TCP between apps of one engine of a real daemon, each a process, of which one is killed, or
//! reads late.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

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

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31 + seed) ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Connections to an app that reads none of them, which send more than it has memory for; those
/// that find no room wait.
fn crowd(tcp: &Tcp, daemon: &Daemon) -> Vec<TcpStream> {
    let connect = |_| tcp.connect(daemon.at(PORT), Some(PATIENCE)).expect("connected");
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    for (seed, stream) in streams.iter_mut().enumerate() {
        stream.set_timeout(Some(PATIENCE));
        stream.write_all(&bytes(seed, BYTES)).expect("there is room in the own pool");
        stream.shutdown(Shutdown::Write).expect("its half");
    }
    eventually("some wait", || held_up(daemon) > 0);
    streams
}

/// How often what was to be sent found no room at its receiver.
fn held_up(daemon: &Daemon) -> u64 {
    let count = &daemon.status()["engines"][0]["counters"]["segments_held_up"];
    count.as_u64().expect("a counter")
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

/// A sender waits while its receiver's memory is full of what nobody reads, and goes on when that
/// reads at last.
#[test]
fn who_reads_late_has_all_that_waited_for_its_memory() {
    let network = Network::start();
    let daemon = &network.server;
    let mut app = App::start("tcp-late", daemon, PORT);
    let tcp = attach(daemon);
    let streams = crowd(&tcp, daemon);
    app.wake();
    for (seed, mut stream) in streams.into_iter().enumerate() {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer == bytes(seed, BYTES), "{} bytes of connection {seed}", answer.len());
    }
}

/// The same of one connection, which its window stops before the memory is full.
#[test]
fn who_reads_late_has_all_of_a_long_stream() {
    let network = Network::start();
    let daemon = &network.server;
    let mut app = App::start("tcp-late", daemon, PORT);
    let tcp = attach(daemon);
    let mut stream = tcp.connect(daemon.at(PORT), Some(PATIENCE)).expect("connected");
    let (bytes, mut sent) = (bytes(1, 6 << 20), 0);
    stream.set_timeout(Some(Duration::from_millis(200)));
    while let Ok(count) = stream.write(&bytes[sent..]) {
        sent += count;
    }
    let (held, _) = tcp.channel().tcp_unacknowledged(stream.id()).expect("open");
    assert!(held > 1 << 20 && sent < bytes.len(), "{sent} bytes were taken, {held} wait");
    app.wake();
    stream.set_timeout(Some(PATIENCE));
    stream.write_all(&bytes[sent..]).expect("it goes on");
    stream.shutdown(Shutdown::Write).expect("its half");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer == bytes, "{} of {} bytes", answer.len(), bytes.len());
}
