//! Connections of TCP, with an engine that does what the test does.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_channel::control::{CloseVif, Request};
use clearway_channel::{Command, Completion};
use clearway_client::{Channel, Code, TcpId, TcpPortId};
use common::engine::Engine;
use common::{NOW, eventually};

fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

fn local() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 50_000))
}

/// The engine says that an attempt has succeeded, by connection 1.
fn succeed(engine: &Engine, token: u64) {
    let (is_detour, connection, local) = (false, 1, local());
    engine.tell(&Completion::TcpConnected { is_detour, token, connection, local });
}

/// The attempt that was begun, and nothing else: its token, and from which port.
fn attempt(engine: &Engine) -> (u64, u32) {
    match engine.commands()[..] {
        [Command::TcpConnect { token, port, .. }] => (token, port),
        ref other => panic!("{other:?}"),
    }
}

/// Opens a connection, as number 1.
fn connect(channel: &mut Channel, engine: &Engine) -> TcpId {
    let token = channel.tcp_start_connect(None, peer()).unwrap();
    succeed(engine, attempt(engine).0);
    channel.tcp_next_ready().unwrap();
    channel.tcp_take_outcome(token).expect("it is decided").expect("it is open")
}

/// Begins to connect, and waits no longer for what comes of it.
fn give_up(channel: &mut Channel, engine: &Engine, from: Option<TcpPortId>) -> (u64, u32) {
    channel.tcp_connect(from, peer(), Some(Duration::from_millis(5))).unwrap_err();
    attempt(engine)
}

/// Has the ring filled with commands that nobody takes: the attempt that was given up succeeds
/// while there is no room to say that nobody wants it. Its port serves nobody else until then.
#[test]
fn what_nobody_waits_for_is_given_up_as_soon_as_there_is_room_to_say_so() {
    let (mut channel, engine) = Engine::start();
    let (token, first) = give_up(&mut channel, &engine, None);
    for _ in 0..channel.sizes().submission_entries {
        channel.tcp_listen(TcpPortId::from_u32(99), 1).unwrap();
    }
    succeed(&engine, token);
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    let commands = engine.commands();
    assert!(commands.iter().all(|command| matches!(command, Command::TcpListen { .. })));

    std::thread::sleep(Duration::from_millis(5)); // longer than a port rests
    channel.tcp_start_connect(None, peer()).unwrap();
    assert_ne!(attempt(&engine).1, first, "there is a connection to this peer still");
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    assert_eq!(engine.commands(), [Command::TcpClose { connection: 1, abort: true }]);
    std::thread::sleep(Duration::from_millis(5));
    channel.tcp_start_connect(None, peer()).unwrap();
    assert_eq!(attempt(&engine).1, first);
}

/// Also if what was left there in the end is an attempt that succeeds when nobody waits for it.
#[test]
fn a_port_that_is_left_is_given_back_when_nothing_is_left_there() {
    let (mut channel, engine) = Engine::start();
    let port = channel.tcp_bind(8080).unwrap().id;
    channel.tcp_listen(port, 1).unwrap();
    engine.commands();
    let (token, _) = give_up(&mut channel, &engine, Some(port));
    channel.tcp_unlisten(port).unwrap();
    engine.commands();
    engine.asked();
    succeed(&engine, token);
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    assert_eq!(engine.commands(), [Command::TcpClose { connection: 1, abort: true }]);
    assert_eq!(engine.asked(), [Request::CloseVif(CloseVif { vif: port.as_u32() })]);
}

/// A peer has opened a connection to a port, as number `connection`.
fn come(engine: &Engine, port: TcpPortId, connection: u64) {
    let (port, peer) = (port.as_u32(), peer());
    let local = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
    engine.tell(&Completion::TcpAccepted { connection, port, peer, local });
}

/// Takes what was submitted when the channel waits.
fn take_when_waiting(engine: &Engine) -> JoinHandle<Vec<Command>> {
    let engine = engine.clone();
    std::thread::spawn(move || {
        eventually(|| !engine.naps().is_empty());
        engine.commands()
    })
}

/// Has the ring filled with commands that nobody takes: the second comes while there is no room to
/// refuse the first.
#[test]
fn who_comes_while_a_port_is_left_is_refused_too() {
    let (mut channel, engine) = Engine::start();
    let port = channel.tcp_bind(8080).unwrap().id;
    for _ in 0..channel.sizes().submission_entries {
        channel.tcp_listen(port, 2).unwrap();
    }
    come(&engine, port, 1);
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    come(&engine, port, 2);
    engine.asked();
    let taking = take_when_waiting(&engine);
    channel.tcp_unlisten(port).unwrap();
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    let commands = [taking.join().unwrap(), engine.commands()].concat();
    for connection in [1, 2] {
        let refused = Command::TcpClose { connection, abort: true };
        assert!(commands.contains(&refused), "{commands:?}");
    }
    engine.tell(&Completion::TcpClosed { connection: 1, code: Code::Reset, sent: 0 });
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    assert_eq!(engine.asked(), [Request::CloseVif(CloseVif { vif: port.as_u32() })]);
}

/// It ends while there is no room to refuse it: the port is given back once.
#[test]
fn who_ends_while_a_port_is_left_ends_with_it() {
    let (mut channel, engine) = Engine::start();
    let port = channel.tcp_bind(8080).unwrap().id;
    for _ in 0..channel.sizes().submission_entries {
        channel.tcp_listen(port, 1).unwrap();
    }
    come(&engine, port, 1);
    assert_eq!(channel.tcp_next_ready().unwrap(), None);
    engine.tell(&Completion::TcpClosed { connection: 1, code: Code::Reset, sent: 0 });
    engine.asked();
    let taking = take_when_waiting(&engine);
    channel.tcp_unlisten(port).unwrap();
    taking.join().unwrap();
    assert_eq!(engine.asked(), [Request::CloseVif(CloseVif { vif: port.as_u32() })]);
}

/// What counts is what was sent; what it takes of the channel's memory bounds how much may be.
#[test]
fn of_a_buffer_those_bytes_are_unacknowledged_that_were_sent() {
    let (mut channel, engine) = Engine::start();
    let connection = connect(&mut channel, &engine);
    for count in 1..=4 {
        assert!(channel.tcp_ready(connection).unwrap().is_writable);
        let mut buffer = channel.send_buffer(1 << 16, NOW).unwrap();
        buffer.truncate(100);
        channel.tcp_send_buffer(connection, buffer, false, NOW).unwrap();
        assert_eq!(channel.tcp_unacknowledged(connection), Some((count * 100, count as usize)));
    }
    assert!(!channel.tcp_ready(connection).unwrap().is_writable, "a quarter of the pool");
    engine.tell(&Completion::TcpSent { connection: 1, sent: 3 });
    channel.tcp_next_ready().unwrap();
    assert_eq!(channel.tcp_unacknowledged(connection), Some((100, 1)));
    assert!(channel.tcp_ready(connection).unwrap().is_writable);
}
