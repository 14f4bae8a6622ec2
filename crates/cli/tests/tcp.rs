//! TCP end to end: an app at a real daemon on one end of a veth pair, the Linux kernel on the
//! other. The kernel of the daemon's own namespace neither answers for the app's ports nor resets
//! them. Needs root for the namespaces.

mod support;

#[path = "../../capi/tests/support/program.rs"]
mod program;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use clearway_client::{self as client, Code, Event, Prefix, TcpId, TcpOption, TcpPortOptions};
use support::kernel_peer::{SIZES, World, bytes, exchange, read_all, write_all};
use support::veth::{INTERFACE, IPV4, IPV6, Veth};
use support::{PATIENCE, eventually};

const AF_PACKET: &str = "driver = \"af_packet\"";
const AF_XDP: &str = "driver = \"af_xdp\"";
const PORT: u16 = 8080;
const BULK_BYTES: usize = 20 << 20;

/// An app listens.
fn listens(tcp: &client::Tcp) -> client::TcpListener {
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    listener
}

/// The kernel connects to it: both ends.
fn pair(world: &World, listener: &client::TcpListener) -> (TcpStream, client::TcpStream) {
    let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
    let (mut app, _) = listener.accept().expect("accepted");
    app.set_timeout(Some(PATIENCE));
    (kernel, app)
}

fn an_app_serves_the_kernel(driver: &str) {
    let Some(world) = World::start(driver) else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    for (round, address) in [IpAddr::V4(IPV4[1]), IpAddr::V6(IPV6[1])].into_iter().enumerate() {
        let kernel = world.connect(SocketAddr::new(address, PORT)).expect("connected");
        let (app, peer) = listener.accept().expect("accepted");
        assert_eq!(peer, kernel.local_addr().expect("an address"));
        assert_eq!(app.local_addr(), kernel.peer_addr().expect("an address"));
        exchange(&kernel, app, BULK_BYTES, round);
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
    exchange(&kernel, app, BULK_BYTES, 7);
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
    let listener = listens(&tcp);
    let pair = || pair(&world, &listener);

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
    linger(&kernel, Some(Duration::ZERO)).expect("no lingering");
    drop(kernel);
    let error = app.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    // Without a listener the engine refuses, while a connection keeps the port from the kernel; and
    // then the kernel does.
    let last = pair();
    drop(listener);
    let refused = || world.connect((IPV4[1], PORT).into()).expect_err("nobody listens").kind();
    assert_eq!(refused(), ErrorKind::ConnectionRefused);
    drop(last);
    assert_eq!(refused(), ErrorKind::ConnectionRefused);
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
    let listener = listens(&tcp);
    let (kernel, app) = pair(&world, &listener);
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
        channel.tcp_unacknowledged(app.id()) == Some((0, 0))
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

/// Connections of the kernel's are shared by the listeners of a port that all want that; when one
/// goes, the others have all that come.
#[test]
fn listeners_share_a_port() {
    const CONNECTIONS: usize = 24;
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let apps = [world.tcp(), world.tcp(), world.tcp()];
    let shared = || TcpPortOptions { shared: true, ..TcpPortOptions::default() };
    let mut listeners: Vec<_> =
        apps[..2].iter().map(|app| app.listen_with(PORT, shared()).expect("a listener")).collect();
    let refused = apps[2].listen(PORT).expect_err("it does not share");
    assert_eq!(refused.code(), client::Code::AddressInUse);
    listeners.iter_mut().for_each(|listener| listener.set_timeout(Some(Duration::ZERO)));
    let accept = |listeners: &[client::TcpListener], number: usize| {
        let mut kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
        let at = |which: usize| Some((which, listeners[which].accept().ok()?.0));
        let mut accepted = None;
        eventually("one of them accepts", || {
            accepted = (0..listeners.len()).find_map(at);
            accepted.is_some()
        });
        let (which, mut app) = accepted.expect("it has");
        app.set_timeout(Some(PATIENCE));
        kernel.write_all(&[number as u8]).expect("written");
        let mut place = [0];
        app.read_exact(&mut place).expect("read");
        assert_eq!(place, [number as u8]);
        which
    };
    let which: Vec<usize> = (0..CONNECTIONS).map(|number| accept(&listeners, number)).collect();
    assert!(which.contains(&0) && which.contains(&1), "{which:?}");
    listeners.remove(0);
    assert!((0..CONNECTIONS).all(|number| accept(&listeners, number) == 0), "there is one");
}

/// Whoever else knocks is refused, as where nobody listens; and the port connects to them no more.
#[test]
fn a_port_is_for_peers_of_some_prefixes() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let kernels = [IpAddr::V4(IPV4[0]), IpAddr::V6(IPV6[0])];
    let addresses = [IpAddr::V4(IPV4[1]), IpAddr::V6(IPV6[1])];
    for (number, named) in kernels.into_iter().enumerate() {
        let elsewhere = ["10.98.0.0/16", "fd98::/16"].map(|text| text.parse().expect("a prefix"));
        let peers = [&elsewhere[..], &[Prefix::new(named, 120)]].concat();
        let options = TcpPortOptions { peers, ..TcpPortOptions::default() };
        let port = PORT + number as u16;
        let mut listener = tcp.listen_with(port, options.clone()).expect("a listener");
        listener.set_timeout(Some(PATIENCE));
        for (kernel, address) in kernels.into_iter().zip(addresses) {
            let connected = world.connect(SocketAddr::new(address, port));
            if kernel == named {
                let connected = connected.expect("it is welcome");
                let (app, _) = listener.accept().expect("accepted");
                exchange(&connected, app, 100_000, number);
            } else {
                let refused = connected.expect_err("it is not");
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            }
        }
        let bound = tcp.channel().tcp_bind_with(0, options).expect("another port");
        let other = SocketAddr::new(kernels[1 - number], 9);
        let denied = tcp.channel().tcp_connect(Some(bound.id), other, Some(PATIENCE));
        assert_eq!(denied.expect_err("not there").code(), Code::Denied);
    }
    let options = TcpPortOptions { peers: vec!["::".parse().expect("one"); 33], shared: false };
    let refused = tcp.listen_with(PORT, options).expect_err("too many");
    assert_eq!(refused.code(), Code::Invalid);
}

/// A few bytes wait for what will follow, and leave with it at once. Those of another connection
/// overtake them.
#[test]
fn what_more_will_follow_is_held_back() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let [(mut held, mut app), (mut other, mut beside)] = [(), ()].map(|()| pair(&world, &listener));
    // It is held for a retransmission timeout, 200 ms, at most: a machine that is busy tries again.
    let is_held = (0..100).any(|_| {
        let begun = std::time::Instant::now();
        let is_in_time = || begun.elapsed() < Duration::from_millis(100);
        assert_eq!(app.write_more(b"to be ").expect("written"), 6);
        beside.write_all(b"!").expect("written");
        other.read_exact(&mut [0]).expect("read");
        held.set_nonblocking(true).expect("an option");
        let nothing = held.peek(&mut [0; 16]).is_err();
        held.set_nonblocking(false).expect("an option");
        let was_looked_at_in_time = is_in_time();
        app.write_all(b"continued").expect("written");
        let mut words = [0; 15];
        held.read_exact(&mut words).expect("read");
        assert_eq!(&words, b"to be continued");
        assert!(nothing || !was_looked_at_in_time, "the first part came alone");
        nothing && is_in_time()
    });
    assert!(is_held);
}

/// Who lingers knows what has arrived, or that it has not.
#[test]
fn who_lingers_knows_what_has_arrived() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let pair = || pair(&world, &listener);
    let (mut kernel, mut app) = pair();
    app.write_all(b"all of it").expect("written");
    app.linger().expect("the kernel has it, though its program has not");
    let mut words = String::new();
    kernel.read_to_string(&mut words).expect("read");
    assert_eq!(words, "all of it");

    // The kernel's buffer is full, and nobody reads.
    let (mut kernel, mut app) = pair();
    app.set_timeout(Some(Duration::from_millis(300)));
    let part = bytes(1 << 16, 3);
    let mut sent = 0;
    while let Ok(count) = app.write(&part) {
        sent += count;
    }
    app.set_timeout(Some(Duration::from_millis(1)));
    assert_eq!(app.linger().expect_err("not all").code(), client::Code::TimedOut);
    let mut received = Vec::new();
    kernel.read_to_end(&mut received).expect("the daemon goes on with it");
    assert_eq!(received.len(), sent);

    let (kernel, mut app) = pair();
    // At once, also if another test has just forked, whose child still has the socket.
    rustix::net::connect_unspec(&kernel).expect("the connection is reset");
    let _ = app.write(b"too late");
    assert_eq!(app.linger().expect_err("a reset").code(), client::Code::Reset);
}

/// What an app has sent before it ends in good order arrives, and then its port is free.
#[test]
fn who_leaves_is_heard_to_the_end() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let port = tcp.channel().tcp_bind(PORT).expect("a port").id;
    tcp.channel().tcp_listen(port, 16).expect("listening");
    let mut kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
    let (app, _) = tcp.channel().tcp_accept(port, Some(PATIENCE)).expect("accepted");
    let sent = tcp.channel().tcp_send(app, b"last words", Some(PATIENCE));
    assert_eq!(sent.expect("written"), 10);
    drop(tcp); // which closes nothing
    let mut words = String::new();
    kernel.read_to_string(&mut words).expect("read");
    assert_eq!(words, "last words");
    drop(kernel);
    eventually("the port is free", || {
        let bound = world.veth.spaces[1].within(|| TcpListener::bind((IPV4[1], PORT)));
        bound.expect("the namespace can be entered").is_ok()
    });
}

/// A server's next run has the port at once, though a client of the last has its half open still.
#[test]
fn who_has_left_leaves_the_port_behind() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let (mut kernel, app) = pair(&world, &listener);
    drop((app, listener, tcp));
    assert_eq!(kernel.read(&mut [0]).expect("the end"), 0);
    let (next, begun) = (world.tcp(), Instant::now());
    eventually("the port is free", || next.listen(PORT).is_ok());
    // The channel of before might linger for ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(8));
}

/// Waits until the daemon has told something that the library has not taken yet.
fn told(channel: &mut client::Channel) {
    eventually("something is told", || {
        let is_quiet = channel.arm();
        channel.disarm();
        !is_quiet
    });
}

/// Bytes that no call has looked at are unread like others (RFC 9293, section 3.6.1).
#[test]
fn who_closes_without_looking_resets() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let (mut kernel, app) = pair(&world, &listener);
    kernel.write_all(b"unread").expect("written");
    told(&mut tcp.channel());
    drop(app);
    let error = kernel.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Who only sends hears of the end soon, and not when no more is taken.
#[test]
fn who_only_sends_hears_of_a_reset() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let (kernel, mut app) = pair(&world, &listener);
    rustix::net::sockopt::set_socket_linger(&kernel, Some(Duration::ZERO)).expect("no lingering");
    drop(kernel);
    told(&mut tcp.channel());
    let error = (0..16).find_map(|_| app.write(b"a line").err()).expect("it has ended");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// What was said and acknowledged before both ends closed is no reason to complain.
#[test]
fn who_lingers_after_the_end_is_content() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let (mut kernel, mut app) = pair(&world, &listener);
    app.write_all(b"goodbye").expect("written");
    app.shutdown(Shutdown::Write).expect("its half");
    let shut = app.write(b"more").expect_err("it has shut its half");
    assert_eq!(shut.kind(), ErrorKind::BrokenPipe);
    assert!(shut.to_string().contains("shutdown"), "{shut}");
    kernel.read_to_end(&mut Vec::new()).expect("read");
    drop(kernel);
    eventually("both ends are closed", || {
        let mut channel = tcp.channel();
        while channel.tcp_next_ready().expect("a daemon").is_some() {}
        channel.tcp_ready(app.id()).expect("the app has it").is_over
    });
    let id = app.id();
    app.linger().expect("all has arrived");
    let error = tcp.channel().tcp_close(id).expect_err("it is closed").to_string();
    assert!(error.contains("the app has closed it"), "{error}");
}

/// Connections outlive their listener, and the port is there for the next one. Nobody waits for
/// connections that never come.
#[test]
fn a_port_is_listened_at_again() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let (old, app) = pair(&world, &listener);
    drop(listener);
    let refused = world.connect((IPV4[1], PORT).into()).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let other = TcpPortOptions { shared: true, ..TcpPortOptions::default() };
    let refused = tcp.listen_with(PORT, other).expect_err("it was taken otherwise");
    assert_eq!(refused.code(), Code::AddressInUse);

    let port = tcp.channel().tcp_bind(PORT).expect("it is the app's").id;
    let nobody = tcp.channel().tcp_accept(port, None).expect_err("it does not listen");
    assert_eq!(nobody.code(), Code::Closed);
    tcp.channel().tcp_listen(port, 16).expect("listening");
    let new = world.connect((IPV4[1], PORT).into()).expect("connected");
    tcp.channel().tcp_accept(port, Some(PATIENCE)).expect("accepted");
    exchange(&old, app, 1000, 3);
    drop(new);
}

/// A port that was left is free for others when its last connection has ended. Nobody would accept
/// who comes just before it is left.
#[test]
fn a_port_that_was_left_is_free_in_the_end() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let (tcp, other) = (world.tcp(), world.tcp());
    let listener = listens(&tcp);
    let (old, app) = pair(&world, &listener);
    let mut late = world.connect((IPV4[1], PORT).into()).expect("connected");
    told(&mut tcp.channel());
    drop(listener);
    while tcp.channel().tcp_next_ready().expect("a daemon").is_some() {}
    let reset = late.read(&mut [0]).expect_err("nobody accepts it");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    let taken = other.listen(PORT).expect_err("a connection has it still");
    assert_eq!(taken.code(), Code::AddressInUse);
    drop((old, app));
    eventually("the port is free", || {
        while tcp.channel().tcp_next_ready().expect("a daemon").is_some() {}
        other.listen(PORT).is_ok()
    });
}

/// Connections at a port that the app closes end by that, and not by what their peers do; nor is it
/// the end of what these send.
#[test]
fn who_closes_a_port_ends_its_connections() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let mut channel = tcp.channel();
    let port = channel.tcp_bind(PORT).expect("a port").id;
    channel.tcp_listen(port, 16).expect("listening");
    let mut pair = || {
        let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
        (kernel, channel.tcp_accept(port, Some(PATIENCE)).expect("accepted").0)
    };
    let ((ended, finished), (mut kernel, open)) = (pair(), pair());
    drop(ended);
    told(&mut channel);
    channel.tcp_close_port(port).expect("closed");
    let reset = kernel.read(&mut [0]).expect_err("a reset");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    let end = channel.tcp_recv(finished, &mut [0], Some(PATIENCE));
    assert_eq!(end.expect("its peer had finished before"), 0);
    let ends = [
        channel.tcp_recv(open, &mut [0], Some(PATIENCE)).map(drop),
        channel.tcp_send(open, b"late", Some(PATIENCE)).map(drop),
        channel.tcp_linger(open, Some(PATIENCE)),
    ];
    for end in ends {
        let error = end.expect_err("it has ended");
        assert_eq!(error.code(), Code::Closed);
        assert!(error.to_string().contains("the app has closed its port"), "{error}");
    }
}

/// Who waits for peers that are refused, since there are as many connections as there may be, is
/// told where to look.
#[test]
fn who_accepts_at_its_limit_is_told_of_it() {
    let limits = "[policy.limits]\nconnections_per_channel = 1";
    let Some(veth) = Veth::new() else { return };
    let world = World::at(veth, &format!("driver = \"auto\"\n{limits}"));
    let tcp = world.tcp();
    let mut listener = listens(&tcp);
    let _only = pair(&world, &listener);
    let more = world.connect((IPV4[1], PORT).into()).and_then(|mut more| more.read(&mut [0]));
    assert_eq!(more.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    listener.set_timeout(Some(Duration::from_millis(1)));
    let nobody = listener.accept().expect_err("it was refused").to_string();
    for words in ["connections_per_channel", "connections_refused", "`clearway status`"] {
        assert!(nobody.contains(words), "{words} is missing in: {nobody}");
    }
    eventually("the status says so, too", || {
        let output = support::clearway(&["status"], world.daemon());
        String::from_utf8_lossy(&output.stdout).contains("connections_refused")
    });
}

/// A peer need not know of Clearway, so what is told of one that is silent is not of that.
#[test]
fn who_loses_its_peer_is_told_where_to_look() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let listener = listens(&tcp);
    let (_kernel, mut app) = pair(&world, &listener);
    app.set(TcpOption::UserTimeout(Some(100))).expect("set");
    world.veth.ip(0, &format!("addr del {}/24 dev {INTERFACE}", IPV4[0]));
    app.write_all(b"is anybody there?").expect("written");
    let error = tcp.channel().tcp_recv(app.id(), &mut [0], Some(PATIENCE)).expect_err("silence");
    assert_eq!(error.code(), Code::Lost);
    let text = error.to_string();
    let peer = format!("`ping {}`", IPV4[0]);
    assert!(text.contains(&peer) && !text.contains("clearway ping"), "{text}");
    assert!(text.contains("`clearway flows`"), "{text}");
}

/// Why there is no connection, in words that lead on.
#[test]
fn who_cannot_connect_is_told_what_to_do() {
    let limits = "[policy.limits]\nconnections_per_channel = 1";
    let Some(veth) = Veth::new() else { return };
    let world = World::at(veth, &format!("driver = \"auto\"\n{limits}"));
    let tcp = world.tcp();
    let why = |peer: SocketAddr| {
        let error = tcp.connect(peer, Some(PATIENCE)).expect_err("not there");
        (error.code(), error.to_string())
    };
    for (peer, words) in [
        ("127.0.0.1:80", "`clearway status`"),
        ("[::1]:80", "`clearway status`"),
        ("224.0.0.1:80", "a group's"),
    ] {
        let (code, text) = why(peer.parse().expect("an address"));
        assert_eq!(code, Code::Unreachable);
        assert!(text.contains(words), "{text}");
    }
    let (listener, address) = world.listen();
    let _only = tcp.connect(address, Some(PATIENCE)).expect("connected");
    let (code, text) = why(address);
    assert_eq!(code, Code::Limit);
    assert!(text.contains("connections_per_channel"), "{text}");
    drop(listener);
    let number = client::TcpPortId::from_u32(77);
    let unknown = tcp.channel().tcp_connect(Some(number), address, None).expect_err("no such port");
    assert!(unknown.to_string().contains("port number 77 is not open"), "{unknown}");
}

/// What has happened, until it is what is looked for.
fn until<T>(channel: &mut client::Channel, found: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        let event = channel.next_event(Some(PATIENCE)).expect("an event");
        if let Some(found) = found(&event) {
            return found;
        }
    }
}

fn readable(event: &Event, wanted: TcpId) -> Option<()> {
    let is_it = |ready: client::TcpReady| ready.is_readable;
    matches!(event, Event::TcpReady { connection, ready } if *connection == wanted && is_it(*ready))
        .then_some(())
}

/// An app listens, and the kernel connects so often and says "hello" each time: both ends. The app
/// has been told of each.
fn who_say_hello<const COUNT: usize>(
    world: &World,
    channel: &mut client::Channel,
) -> ([TcpStream; COUNT], [TcpId; COUNT]) {
    let port = channel.tcp_bind(PORT).expect("a port");
    channel.tcp_listen(port.id, 16).expect("listening");
    let mut kernels =
        [(); COUNT].map(|()| world.connect((IPV4[1], PORT).into()).expect("connected"));
    let accepted = [(); COUNT].map(|()| {
        until(channel, |event| match event {
            Event::TcpAccepted { port: at, connection, .. } if *at == port.id => Some(*connection),
            _ => None,
        })
    });
    for (kernel, connection) in kernels.iter_mut().zip(accepted) {
        kernel.write_all(b"hello").expect("written");
        until(channel, |event| readable(event, connection));
    }
    (kernels, accepted)
}

/// What is left to read is told of again, all of it in one call, and nobody sleeps over it.
#[test]
fn what_is_watched_is_told_of_again() {
    const BOTH: client::TcpReady =
        client::TcpReady { is_readable: true, is_writable: false, is_over: true };
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let mut channel = tcp.channel();
    let (mut kernels, accepted) = who_say_hello::<3>(&world, &mut channel);
    let told = |channel: &mut client::Channel, most| {
        let mut events = vec![Event::Writable]; // what is there already stays
        let count = channel.next_events(&mut events, most, Some(Duration::ZERO)).unwrap_or(0);
        assert_eq!(events.len(), 1 + count);
        let of = |event: &Event| match event {
            Event::TcpReady { connection, ready } if ready.is_readable => *connection,
            event => panic!("{event:?}"),
        };
        events[1..].iter().map(of).collect::<Vec<_>>()
    };
    // Each was told of once, as nobody watches them.
    assert_eq!(told(&mut channel, 10), []);
    for connection in &accepted[..2] {
        channel.tcp_watch(*connection, BOTH).expect("open");
    }
    for _ in 0..3 {
        assert_eq!(told(&mut channel, 10), accepted[..2]);
    }
    // Those that found no room are the first in the next call; one after the other they come, too.
    assert_eq!(
        (told(&mut channel, 1), told(&mut channel, 1)),
        (vec![accepted[0]], vec![accepted[1]])
    );
    for connection in accepted[..2].iter().chain(&accepted[..2]) {
        let event = channel.next_event(Some(Duration::ZERO)).expect("an event");
        assert!(readable(&event, *connection).is_some(), "{event:?}");
    }
    assert!(!channel.arm(), "there is something to read");
    channel.disarm();
    assert_eq!(told(&mut channel, 10), accepted[..2], "in turn, whoever looked");
    // A part of it is not all of it; who has read all is told of no more until there is more.
    let mut bytes = [0; 10];
    assert_eq!(channel.tcp_recv(accepted[0], &mut bytes[..3], Some(Duration::ZERO)).unwrap(), 3);
    assert_eq!(told(&mut channel, 10), accepted[..2]);
    assert_eq!(channel.tcp_recv(accepted[0], &mut bytes, Some(Duration::ZERO)).unwrap(), 2);
    assert_eq!(told(&mut channel, 10), [accepted[1]]);
    channel.tcp_watch(accepted[1], client::TcpReady::default()).expect("open");
    assert_eq!(told(&mut channel, 10), []);
    assert!(channel.arm(), "nothing is to be told");
    channel.disarm();
    // That it takes bytes is told again as soon as the channel has room, too.
    let writable = client::TcpReady { is_writable: true, ..client::TcpReady::default() };
    channel.tcp_watch(accepted[2], writable).expect("open");
    assert_eq!(told(&mut channel, 10), [accepted[2]]);
    let at_once = Some(Duration::ZERO);
    let mut room: Vec<_> =
        std::iter::from_fn(|| channel.send_buffer(1 << 10, at_once).ok()).collect();
    assert_eq!(told(&mut channel, 10), []);
    let piece = room.pop().expect("there was room");
    channel.tcp_send_buffer(accepted[0], piece, false, at_once).expect("sent");
    until(&mut channel, |event| matches!(event, Event::Writable).then_some(()));
    until(&mut channel, |event| readable(event, accepted[2]));
    channel.tcp_watch(accepted[2], client::TcpReady::default()).expect("open");
    kernels[0].write_all(b"again").expect("written");
    until(&mut channel, |event| readable(event, accepted[0]));
    assert_eq!(told(&mut channel, 10), [accepted[0]]);
    channel.tcp_close(accepted[0]).expect("open");
    assert_eq!(told(&mut channel, 10), []);
    assert!(channel.tcp_watch(accepted[0], BOTH).is_err());
}

/// A program with a loop of its own hears of everything from one call, and never sleeps over news
/// that another call has come upon.
#[test]
fn one_loop_hears_of_everything() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let mut channel = tcp.channel();
    let (mut kernels, accepted) = who_say_hello::<2>(&world, &mut channel);
    // The news of the second come while the first is asked: the channel does not sleep over them.
    kernels[1].write_all(b"again").expect("written");
    let mut bytes = [0; 10];
    assert_eq!(channel.tcp_recv(accepted[0], &mut bytes, Some(PATIENCE)).expect("bytes"), 5);
    eventually("the second has more to read", || {
        let _ = channel.tcp_recv(accepted[0], &mut bytes, Some(Duration::ZERO));
        channel.tcp_ready(accepted[1]).is_some_and(|ready| ready.is_readable) && !channel.arm() && {
            channel.disarm();
            true
        }
    });
    until(&mut channel, |event| readable(event, accepted[1]));
    // Attempts to connect, one that succeeds and one that does not.
    let (listener, there) = world.listen();
    let good = channel.tcp_start_connect(None, there).expect("begun");
    let id = until(&mut channel, |event| match event {
        Event::TcpConnected { token, connection } if *token == good => Some(*connection),
        _ => None,
    });
    assert_eq!(channel.tcp_addresses(id).expect("open").1, there);
    drop(listener);
    let bad = channel.tcp_start_connect(None, there).expect("begun");
    let code = until(&mut channel, |event| match event {
        Event::TcpConnectFailed { token, code } if *token == bad => Some(*code),
        _ => None,
    });
    assert_eq!(code, Code::Refused);
}

/// Of the memory for what is sent, one connection has its part only, whether its peer reads or not.
#[test]
fn a_peer_that_does_not_read_stops_nobody_else() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp();
    let (listener, address) = world.listen();
    let mut deaf = tcp.connect(address, Some(PATIENCE)).expect("connected");
    let (unread, _) = listener.accept().expect("accepted");
    let mut other = tcp.connect(address, Some(PATIENCE)).expect("connected");
    let (mut read, _) = listener.accept().expect("accepted");
    deaf.set_timeout(Some(Duration::ZERO));
    other.set_timeout(Some(PATIENCE));
    let piece = bytes(64 << 10, 1);
    // More than the kernel takes for a program that does not read.
    eventually("no more is taken", || {
        while deaf.write(&piece).is_ok() {}
        let (held, _) = tcp.channel().tcp_unacknowledged(deaf.id()).expect("open");
        held >= u64::from(SIZES.transmit_pool_bytes / 4)
    });
    let (held, _) = tcp.channel().tcp_unacknowledged(deaf.id()).expect("open");
    assert!(held < u64::from(SIZES.transmit_pool_bytes / 2), "{held}");
    other.write_all(b"heard").expect("there is room");
    read.read_exact(&mut [0; 5]).expect("it comes");
    // Who wants more for it may have more, and who reads at last lets it go on.
    deaf.set(TcpOption::SendBuffer(SIZES.transmit_pool_bytes)).expect("set");
    assert!(deaf.write(&piece).expect("more is taken") > 0);
    drop(read_all(&unread));
    let sent = until(&mut tcp.channel(), |event| match event {
        Event::TcpReady { connection, ready } if *connection == deaf.id() => Some(*ready),
        _ => None,
    });
    assert!(sent.is_writable && !sent.is_over);
}

/// A program in C, compiled with the committed header and linked with the library.
fn c_program(name: &str, source: &str) -> Option<program::Program> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let include: PathBuf = root.join("crates/capi/include");
    let flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic", "-I"].map(OsStr::new);
    let soname = concat!("libclearway.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    let (source, link) = (root.join(source), program::shared("clearway", soname));
    let arguments = flags.into_iter().chain([include.as_os_str(), source.as_os_str()]);
    program::compile("cc", name, arguments.chain(link.iter().map(|word| word.as_os_str())))
}

/// An echo in C at the daemon, until somebody says "quit".
fn c_server(world: &World, program: &program::Program) -> Server {
    let mut command = program.command();
    command.arg(&world.daemon().socket).args(["serve", &PORT.to_string()]);
    let mut server = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "listening\n");
    Server(server)
}

/// Both are at one engine, and nothing is a frame. The app reads nothing until nobody can send any
/// more.
#[test]
fn a_c_program_serves_an_app_of_its_daemon() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let Some(program) = c_program("tcp-serve-local", "crates/capi/tests/tcp.c") else { return };
    let mut server = c_server(&world, &program);
    let tcp = world.tcp();
    let connect = || {
        let stream = tcp.connect(SocketAddr::from((IPV4[1], PORT)), Some(PATIENCE));
        stream.expect("connected")
    };
    let mut app = connect();
    app.set_timeout(Some(Duration::from_millis(300)));
    let (sent, mut count) = (bytes(BULK_BYTES, 6), 0);
    while let Ok(more) = app.write(&sent[count..]) {
        count += more;
    }
    assert!(count > 1 << 20 && count < sent.len(), "{count}");
    let output = support::clearway(&["flows"], world.daemon());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("tcp-local").count(), 2, "{text}");

    app.set_timeout(Some(PATIENCE));
    let (mut received, mut part) = (Vec::new(), vec![0; 1 << 16]);
    while received.len() < sent.len() {
        let has_read = app.read(&mut part).expect("read");
        received.extend_from_slice(&part[..has_read]);
        app.set_timeout(Some(Duration::ZERO));
        if count < sent.len() {
            count += app.write(&sent[count..]).unwrap_or(0);
        }
        app.set_timeout(Some(PATIENCE));
    }
    app.shutdown(Shutdown::Write).expect("its half");
    assert_eq!(app.read(&mut part).expect("the end"), 0);
    assert!(received == sent);
    let mut last = connect();
    last.write_all(b"quit").expect("written");
    assert!(server.0.wait().expect("its end").success());
}

#[test]
fn a_c_program_serves_the_kernel() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let Some(program) = c_program("tcp-serve", "crates/capi/tests/tcp.c") else { return };
    let mut server = c_server(&world, &program);
    let connect = || world.connect((IPV4[1], PORT).into()).expect("connected");
    let sent = bytes(BULK_BYTES / 4, 5);
    let (first, second) = (connect(), connect());
    let echoes = [&first, &second].map(read_all);
    let writers = [&first, &second].map(|stream| write_all(stream, sent.clone()));
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    for echo in echoes {
        assert!(echo.join().expect("no panic") == sent);
    }
    let mut last = connect();
    last.write_all(b"quit").expect("written");
    last.shutdown(Shutdown::Write).expect("its half");
    let mut answer = String::new();
    last.read_to_string(&mut answer).expect("read");
    assert_eq!(answer, "quit");
    assert!(server.0.wait().expect("its end").success());
}

#[test]
fn a_c_program_connects_to_the_kernel() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let Some(program) = c_program("tcp-connect", "crates/capi/tests/tcp.c") else { return };
    let (listener, address) = world.listen();
    let closed = world.listen().1.port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accepted");
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let mut command = program.command();
    command.arg(&world.daemon().socket).args(["connect", &address.ip().to_string()]);
    command.args([address.port(), closed].map(|port| port.to_string()));
    program::succeed(&command.output().expect("it runs"));
}

/// A program that serves until it is dropped.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What comes until the other end closes, which has the last of these requests close.
fn ask(stream: &mut TcpStream, requests: &str) -> String {
    stream.write_all(requests.as_bytes()).expect("written");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("read");
    answers
}

const CLOSE: &str = "Connection: close\r\n";

/// What `examples/http.c` answers.
fn answer(status: &str, length: usize, close: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         {close}\r\n{body}"
    )
}

/// `examples/http.c`, which listens.
fn http_server(world: &World, name: &str) -> Option<Server> {
    let program = c_program(name, "examples/http.c")?;
    let mut command = program.command();
    command.arg(PORT.to_string()).env("CLEARWAY_SOCKET", &world.daemon().socket);
    let mut server = Server(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, format!("listening on port {PORT}\n"));
    Some(server)
}

/// Clients of the kernel's, at `examples/http.c`.
#[test]
fn the_http_example_answers_curl_and_others() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let Some(_server) = http_server(&world, "http") else { return };

    // curl, for three things by one connection.
    let url = |path: &str| format!("http://{}:{PORT}/{path}", IPV4[1]);
    let curl = world.kernel().within(|| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "-m", "30", "-w", "[%{http_code} %{size_download} %{num_connects}]"]);
        curl.args([url(""), url("100000"), url("nothing")]).output()
    });
    let output = curl.expect("the namespace can be entered").expect("curl is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let body = "x".repeat(100_000);
    assert_eq!(
        text,
        format!("hello from Clearway\n[200 20 1]{body}[200 100000 0][404 0 0]"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // Requests one behind the other, some of them in pieces, and one with a body.
    let connect = || world.connect((IPV4[1], PORT).into()).expect("connected");
    let mut stream = connect();
    stream.write_all(b"GET /3 HTT").expect("written");
    let answers = ask(
        &mut stream,
        "P/1.1\r\nHost: a\r\n\r\nHEAD /5 HTTP/1.1\r\n\r\n\
         POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody\
         GET /7 HTTP/1.1\r\nConnection: close\r\n\r\n",
    );
    let wanted = [
        answer("200 OK", 3, "", "xxx"),
        answer("200 OK", 5, "", ""),
        answer("405 Method Not Allowed", 0, "", ""),
        answer("200 OK", 7, CLOSE, "xxxxxxx"),
    ];
    assert_eq!(answers, wanted.concat());

    // Who asks for much and reads late gets all of it, and holds up nobody.
    let mut late = connect();
    let requests = "GET /1000000 HTTP/1.1\r\n\r\n".repeat(30) + "GET /1 HTTP/1.0\r\n\r\n";
    late.write_all(requests.as_bytes()).expect("written");
    let answers = ask(&mut connect(), "GET /1 HTTP/1.0\r\n\r\n");
    assert_eq!(answers, answer("200 OK", 1, CLOSE, "x"));
    let answers = ask(&mut late, "");
    let whole = answer("200 OK", 1_000_000, "", &"x".repeat(1_000_000));
    assert!(answers == whole.repeat(30) + &answer("200 OK", 1, CLOSE, "x"), "{}", answers.len());

    // What is no request is refused, and ends the connection.
    for bad in ["nonsense\r\n\r\n", "GET /1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"] {
        let answers = ask(&mut connect(), bad);
        assert!(answers.starts_with("HTTP/1.1 400") || answers.starts_with("HTTP/1.1 501"));
    }
}

/// Twenty-four clients want more than its pool has room for, and read late: each gets all of it,
/// when there is room again.
#[test]
fn the_http_example_answers_when_there_is_room_again() {
    const ANSWERS: usize = 3;
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let Some(_server) = http_server(&world, "http-full") else { return };
    let requests = "GET /1000000 HTTP/1.1\r\n\r\n".repeat(ANSWERS) + "GET /1 HTTP/1.0\r\n\r\n";
    let whole = answer("200 OK", 1_000_000, "", &"x".repeat(1_000_000)).repeat(ANSWERS)
        + &answer("200 OK", 1, CLOSE, "x");
    let clients = [(); 24].map(|()| {
        let mut client = world.connect((IPV4[1], PORT).into()).expect("connected");
        client.write_all(requests.as_bytes()).expect("written");
        client
    });
    // Those whose turn comes first have all the room, until they read.
    eventually("somebody is answered", || {
        clients.iter().any(|client| {
            client.set_nonblocking(true).expect("a socket");
            let has_come = client.peek(&mut [0]).is_ok();
            client.set_nonblocking(false).expect("a socket");
            has_come
        })
    });
    std::thread::scope(|threads| {
        for mut client in clients {
            let whole = &whole;
            threads.spawn(move || {
                let answers = ask(&mut client, "");
                assert!(answers == *whole, "{} bytes", answers.len());
            });
        }
    });
}
