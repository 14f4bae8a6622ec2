//! TCP end to end: an app at a real daemon on one end of a veth pair, the Linux kernel on the other.
//! The kernel of the daemon's own namespace neither answers for the app's ports nor resets them.
//! Needs root for the namespaces.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use clearway_client::{self as client, Options, Sizes, Tcp};
use clearway_nic::interface::Namespace;
use support::veth::{IPV4, IPV6, Veth};
use support::{Daemon, Network, PATIENCE, eventually};

const AF_PACKET: &str = "driver = \"af_packet\"";
const AF_XDP: &str = "driver = \"af_xdp\"";
const PORT: u16 = 8080;
const BULK_BYTES: usize = 20 << 20;

const SIZES: Sizes = Sizes {
    submission_entries: 1024,
    completion_entries: 1024,
    transmit_pool_bytes: 4 << 20,
    receive_pool_bytes: 16 << 20,
    shared_bytes: 0,
};

/// A daemon with an app on one end of a veth pair; the other end is the kernel's.
struct World {
    network: Network,
    veth: Veth,
}

impl World {
    /// `None` where there are no namespaces to be made.
    fn start(driver: &str) -> Option<Self> {
        let veth = Veth::new()?;
        let network = veth.hosts([driver, driver], IPV4.map(IpAddr::V4));
        Some(Self { network, veth })
    }

    fn daemon(&self) -> &Daemon {
        &self.network.server
    }

    fn tcp(&self) -> Tcp {
        let socket = self.daemon().socket.clone();
        Tcp::attach(&Options { socket, sizes: SIZES, ..Options::new("tcp") }).expect("attached")
    }

    /// The kernel's namespace.
    fn kernel(&self) -> &Namespace {
        &self.veth.spaces[0]
    }

    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let connected = self.kernel().within(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = connected.expect("the namespace can be entered")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn listen(&self) -> (TcpListener, SocketAddr) {
        let listener = self.kernel().within(|| TcpListener::bind((IPV4[0], 0)));
        let listener = listener.expect("the namespace can be entered").expect("a listener");
        let address = listener.local_addr().expect("its address");
        (listener, address)
    }
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31 + seed) ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// The kernel's end writes all of it and then closes its half.
fn write_all(stream: &TcpStream, bytes: Vec<u8>) -> JoinHandle<()> {
    let mut stream = stream.try_clone().expect("another handle");
    std::thread::spawn(move || {
        stream.write_all(&bytes).expect("written");
        stream.shutdown(Shutdown::Write).expect("its half is closed");
    })
}

/// The kernel's end reads until the other end closes its half.
fn read_all(stream: &TcpStream) -> JoinHandle<Vec<u8>> {
    let mut stream = stream.try_clone().expect("another handle");
    std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        all
    })
}

/// Writes and reads at once, both to the end.
fn exchange(kernel: &TcpStream, mut app: client::TcpStream, seed: usize) {
    app.set_timeout(Some(PATIENCE));
    let (there, back) = (bytes(BULK_BYTES, seed), bytes(BULK_BYTES, seed + 1));
    let writing = write_all(kernel, there.clone());
    let mut received = Vec::with_capacity(there.len());
    app.read_to_end(&mut received).expect("all comes");
    assert!(received == there, "what the kernel has sent");
    writing.join().expect("no panic");
    let reading = read_all(kernel);
    app.write_all(&back).expect("all goes");
    app.shutdown(Shutdown::Write).expect("its half is closed");
    assert!(reading.join().expect("no panic") == back, "what the kernel has received");
}

fn an_app_serves_the_kernel(driver: &str) {
    let Some(world) = World::start(driver) else { return };
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    for (round, address) in [IpAddr::V4(IPV4[1]), IpAddr::V6(IPV6[1])].into_iter().enumerate() {
        let kernel = world.connect(SocketAddr::new(address, PORT)).expect("connected");
        let (app, peer) = listener.accept().expect("accepted");
        assert_eq!(peer, kernel.local_addr().expect("an address"));
        exchange(&kernel, app, round);
    }
    // The kernel's own TCP goes on beside it.
    world.veth.kernel_goes_on();
}

#[test]
fn an_app_serves_the_kernel_on_af_packet() {
    an_app_serves_the_kernel(AF_PACKET);
}

#[test]
fn an_app_serves_the_kernel_on_af_xdp() {
    an_app_serves_the_kernel(AF_XDP);
}

fn an_app_connects_to_the_kernel(driver: &str) {
    let Some(world) = World::start(driver) else { return };
    let tcp = world.tcp();
    let (listener, address) = world.listen();
    let app = tcp.connect(address, Some(PATIENCE)).expect("connected");
    let (kernel, peer) = listener.accept().expect("accepted");
    assert_eq!(peer, app.local_addr());
    kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    exchange(&kernel, app, 7);
    // Nobody listens any more.
    drop(listener);
    let refused = tcp.connect(address, Some(PATIENCE)).expect_err("nobody listens");
    assert_eq!(refused.code(), client::Code::Refused);
}

#[test]
fn an_app_connects_to_the_kernel_on_af_packet() {
    an_app_connects_to_the_kernel(AF_PACKET);
}

#[test]
fn an_app_connects_to_the_kernel_on_af_xdp() {
    an_app_connects_to_the_kernel(AF_XDP);
}

fn connections_end_in_all_ways(driver: &str) {
    let Some(world) = World::start(driver) else { return };
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let pair = || {
        let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
        let mut app = listener.accept().expect("accepted").0;
        app.set_timeout(Some(PATIENCE));
        (kernel, app)
    };

    // The kernel closes its half first; the app still sends.
    let (mut kernel, mut app) = pair();
    kernel.write_all(b"question").expect("written");
    kernel.shutdown(Shutdown::Write).expect("its half");
    let mut question = String::new();
    app.read_to_string(&mut question).expect("read");
    app.write_all(b"answer").expect("written");
    drop(app);
    let mut answer = String::new();
    kernel.read_to_string(&mut answer).expect("read");
    assert_eq!((&question[..], &answer[..]), ("question", "answer"));

    // The app gives it up: the kernel sees a reset.
    let (mut kernel, app) = pair();
    app.abort().expect("given up");
    let error = kernel.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    // The kernel gives it up.
    let (kernel, mut app) = pair();
    let linger = rustix::net::sockopt::set_socket_linger;
    linger(&kernel, Some(std::time::Duration::ZERO)).expect("no lingering");
    drop(kernel);
    let error = app.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    // Without a listener the engine refuses, and the kernel does not answer for it.
    drop(listener);
    let refused = world.connect((IPV4[1], PORT).into()).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn connections_end_in_all_ways_on_af_packet() {
    connections_end_in_all_ways(AF_PACKET);
}

#[test]
fn connections_end_in_all_ways_on_af_xdp() {
    connections_end_in_all_ways(AF_XDP);
}

/// What is sent lies in the app's memory until it is acknowledged, and what comes is read where it
/// is.
#[test]
fn nothing_need_be_copied() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
    let (mut app, _) = listener.accept().expect("accepted");
    app.set_timeout(Some(PATIENCE));
    let sent = bytes(300_000, 3);
    let reading = read_all(&kernel);
    for part in sent.chunks(50_000) {
        let mut buffer = app.send_buffer(part.len()).expect("room");
        buffer.copy_from_slice(part);
        app.send(buffer).expect("sent");
    }
    app.shutdown(Shutdown::Write).expect("its half");
    assert!(reading.join().expect("no panic") == sent);
    eventually("all is acknowledged, and the memory the app's again", || {
        let mut channel = tcp.channel();
        channel.tcp_ready(app.id()).expect("open");
        while channel.tcp_next_ready().expect("a daemon").is_some() {}
        channel.tcp_unacknowledged(app.id()) == (0, 0)
    });
    let writing = write_all(&kernel, sent.clone());
    let mut received = Vec::new();
    while let Some(bytes) = app.recv_buffer().expect("received") {
        received.extend_from_slice(&bytes);
    }
    assert!(received == sent);
    writing.join().expect("no panic");
}

/// A port is one app's, and none of the kernel's programs'.
#[test]
fn ports_are_taken_from_everybody_else() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let (first, second) = (world.tcp(), world.tcp());
    let listener = first.listen(SocketAddr::from((IPV4[1], PORT))).expect("a listener");
    let refused = second.listen(SocketAddr::from((IPV4[1], PORT))).expect_err("it is taken");
    assert_eq!(refused.code(), client::Code::AddressInUse);
    let bind = |port| {
        let bound = world.veth.spaces[1].within(|| TcpListener::bind((IPV4[1], port)));
        bound.expect("the namespace can be entered")
    };
    assert!(bind(PORT).is_err(), "the kernel's programs cannot have it either");
    let theirs = bind(PORT + 1).expect("this one is free");
    let refused =
        first.listen(SocketAddr::from((IPV4[1], PORT + 1))).expect_err("a program has it");
    assert_eq!(refused.code(), client::Code::Refused);
    drop((listener, theirs));
    bind(PORT).expect("it is given back");
    let elsewhere = first.listen(SocketAddr::from(([10, 99, 0, 1], 80)));
    assert_eq!(elsewhere.expect_err("no address").code(), client::Code::AddressUnavailable);
}

/// What an app has sent before it ends in good order arrives, and then its port is free.
#[test]
fn who_leaves_is_heard_to_the_end() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let mut kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
    let (mut app, _) = listener.accept().expect("accepted");
    app.write_all(b"last words").expect("written");
    drop((app, listener, tcp));
    let mut words = String::new();
    kernel.read_to_string(&mut words).expect("read");
    assert_eq!(words, "last words");
    drop(kernel);
    eventually("the port is free", || {
        let bound = world.veth.spaces[1].within(|| TcpListener::bind((IPV4[1], PORT)));
        bound.expect("the namespace can be entered").is_ok()
    });
}
