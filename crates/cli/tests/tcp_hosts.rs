//! TCP between apps of real daemons that are joined by memif, and between two apps of one; apps
//! that are killed.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::thread::JoinHandle;

use clearway_client::{Channel, Code, Sizes, Tcp, TcpListener, TcpStream};
use support::app::App;
use support::{Daemon, Network, PATIENCE, SMALL, eventually};

const PORT: u16 = 8080;
const PARTS: usize = 300;
const PART_BYTES: usize = 64 << 10;

/// Not a test: the process of an app, see `support::app`.
#[test]
fn app_process() {
    support::app::play();
}

fn bytes(part: usize, seed: usize) -> Vec<u8> {
    (0..PART_BYTES).map(|at| (at * 31 + part * 7 + seed) as u8).collect()
}

/// Sends and receives, both at once.
fn exchange(mut stream: TcpStream, seeds: [usize; 2]) {
    stream.set_timeout(Some(PATIENCE));
    let mut received = vec![0; PART_BYTES];
    for part in 0..PARTS {
        stream.write_all(&bytes(part, seeds[0])).expect("written");
        stream.read_exact(&mut received).expect("read");
        assert!(received == bytes(part, seeds[1]), "part {part}");
    }
    stream.shutdown(Shutdown::Write).expect("its half");
    assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
}

fn listen(channel: Channel) -> (Tcp, TcpListener) {
    let tcp = Tcp::new(channel);
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    (tcp, listener)
}

/// An app that connects, in a thread of its own.
fn connecting(socket: PathBuf, engine: Option<&str>, to: SocketAddr) -> JoinHandle<()> {
    let engine = engine.map(str::to_owned);
    std::thread::spawn(move || {
        let options =
            clearway_client::Options { socket, engine, ..clearway_client::Options::new("client") };
        let tcp = Tcp::attach(&options).expect("attached");
        exchange(tcp.connect(to, Some(PATIENCE)).expect("connected"), [1, 2]);
    })
}

fn two_apps_exchange(near: &Daemon, far: &Daemon) {
    let large = Sizes { receive_pool_bytes: 4 << 20, transmit_pool_bytes: 4 << 20, ..SMALL };
    let (_tcp, listener) = listen(far.try_attach("server", large).expect("attached"));
    let client = connecting(near.socket.clone(), None, far.at(PORT));
    exchange(listener.accept().expect("accepted").0, [2, 1]);
    client.join().expect("no panic");
}

#[test]
fn much_goes_both_ways_between_two_daemons() {
    let network = Network::start();
    two_apps_exchange(&network.client, &network.server);
}

#[test]
fn two_apps_of_one_daemon_talk() {
    let network = Network::start();
    two_apps_exchange(&network.client, &network.client);
}

/// Who attaches to an engine of a NIC by its name has that NIC's connections.
#[test]
fn each_nic_has_connections_of_its_own() {
    let network = Network::on_two_memifs();
    for (nic, third) in [("a", 8), ("b", 9)] {
        let (_tcp, listener) = listen(network.server.attach_at(nic, "server"));
        let to = SocketAddr::from(([10, third, 0, 2], PORT));
        let client = connecting(network.client.socket.clone(), Some(nic), to);
        exchange(listener.accept().expect("accepted").0, [2, 1]);
        client.join().expect("no panic");
    }
}

/// Its peers are told, and what it had is anybody's again.
#[test]
fn an_app_that_is_killed_gives_everything_back() {
    let network = Network::start();
    let mut app = App::start("tcp", &network.server, PORT);
    let tcp = Tcp::new(network.client.attach("client"));
    let connect = || {
        let mut stream = tcp.connect(network.server.at(PORT), Some(PATIENCE)).expect("connected");
        stream.set_timeout(Some(PATIENCE));
        stream.write_all(b"nobody reads this").expect("written");
        stream
    };
    let streams: Vec<TcpStream> = (0..3).map(|_| connect()).collect();
    eventually("the app has its connections", || network.server.flows() == 3);
    app.kill();
    for mut stream in streams {
        let error = stream.read(&mut [0; 1]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    eventually("nothing is left", || (network.server.apps(), network.server.flows()) == (0, 0));
    let refused = tcp.connect(network.server.at(PORT), Some(PATIENCE)).expect_err("nobody");
    assert_eq!(refused.code(), Code::Refused);
    listen(network.server.attach("another"));
}
