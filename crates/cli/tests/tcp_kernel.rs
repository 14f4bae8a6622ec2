//! What takes long between an app at a real daemon and the Linux kernel: much over a bad wire, and
//! many connections. Needs root for the namespaces.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use clearway_client::{Channel, Event};
use clearway_nic::fabric::Faults;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::kernel_peer::{World, exchange};
use support::veth::{IPV4, Veth};
use support::{Capture, PATIENCE, eventually};

const PORT: u16 = 8080;
const DRIVER: &str = "driver = \"auto\"";
const BULK_BYTES: usize = 100_000_000;
const CONNECTIONS: usize = 10_000;

/// One frame of a hundred is lost, and one is overtaken by up to eight others, each way.
fn bad() -> Faults {
    let faults = Faults::default();
    Faults { loss_ppm: 10_000, reordering_ppm: 10_000, reordering_frames_max: 8, ..faults }
}

#[test]
fn much_goes_both_ways_over_a_bad_wire() {
    let Some((veth, _wire)) = Veth::with_bad_wire(bad()) else { return };
    let world = World::at(veth, DRIVER);
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
    let (app, _) = listener.accept().expect("accepted");
    exchange(&kernel, app, BULK_BYTES, 1);
}

/// Answers each connection with what it says, until so many are over.
fn answer(channel: &mut Channel, count: usize) {
    let (mut over, mut bytes) = (0, [0; 64]);
    while over < count {
        let event = channel.next_event(Some(PATIENCE)).expect("an event");
        let Event::TcpReady { connection, ready } = event else { continue };
        if !ready.is_readable {
            continue;
        }
        let length = channel.tcp_recv(connection, &mut bytes, Some(PATIENCE)).expect("bytes");
        if length > 0 {
            let sent = channel.tcp_send(connection, &bytes[..length], Some(PATIENCE));
            assert_eq!(sent.expect("room"), length);
        } else {
            channel.tcp_close(connection).expect("open");
            over += 1;
        }
    }
}

/// The kernel's end of all of them: opens them, and each has its own answer while all are there.
fn ask_all(world: &World, connections: usize) {
    let connect = |_| world.connect((IPV4[1], PORT).into()).expect("connected");
    let mut streams: Vec<TcpStream> = (0..connections).map(connect).collect();
    for (number, stream) in (0u64..).zip(&mut streams) {
        stream.write_all(&number.to_le_bytes()).expect("written");
    }
    for (number, stream) in (0u64..).zip(&mut streams) {
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(u64::from_le_bytes(answer), number);
    }
    assert_eq!(world.daemon().flows(), connections);
}

#[test]
fn ten_thousand_connections_are_open_at_once() {
    let Some(veth) = Veth::new() else { return };
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("within the limit");
    let limits = format!("{DRIVER}\n[policy.limits]\nconnections_per_channel = {}", CONNECTIONS);
    let world = World::at(veth, &limits);
    let tcp = world.tcp();
    let mut channel = tcp.channel();
    let port = channel.tcp_bind(PORT).expect("a port");
    channel.tcp_listen(port.id, 1024).expect("listening");
    std::thread::scope(|scope| {
        scope.spawn(|| ask_all(&world, CONNECTIONS));
        answer(&mut channel, CONNECTIONS);
    });
    eventually("nothing is left of them", || world.daemon().flows() == 0);
}

/// What a third party finds wrong in the frames of a connection.
#[test]
fn tshark_finds_nothing_wrong() {
    let Some((veth, wire)) = Veth::with_bad_wire(bad()) else { return };
    let world = World::at(veth, DRIVER);
    let name = format!("clearway-tcp-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    let capture = Capture::begin(world.daemon(), &path);
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
    let (app, _) = listener.accept().expect("accepted");
    exchange(&kernel, app, 1_000_000, 2);
    drop((kernel, wire));
    capture.end();
    let count = |filter: &str| {
        let read = Command::new("tshark")
            .args(["-n", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
            .args(["-Y", filter, "-r"])
            .arg(&path)
            .output()
            .expect("tshark starts; `tools/setup.sh test` installs it");
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        String::from_utf8_lossy(&read.stdout).lines().count()
    };
    let ours = format!("tcp.srcport == {PORT}");
    assert!(count(&ours) > 500, "its segments are there");
    assert!(count("tcp.analysis.retransmission") > 0, "some were sent again");
    let wrong = "_ws.malformed or _ws.expert.severity == error";
    let bad_sums = "tcp.checksum.status == 0 or ip.checksum.status == 0";
    assert_eq!(count(&format!("{ours} and ({wrong} or {bad_sums})")), 0);
    std::fs::remove_file(&path).expect("it is there");
}
