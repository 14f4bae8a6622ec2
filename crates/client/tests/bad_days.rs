//! The app library when peers, the daemon, or the app itself misbehave.

mod common;

use std::time::{Duration, Instant};

use clearway_channel::{Command, Completion};
use clearway_client::{
    Calls, Channel, Code, ConnectionId, Description, Error, Event, Group, GroupName,
    OperationStatus, Options, RegionId, Waiting,
};
use common::engine::Engine;
use common::{Daemon, ECHO, LATE, NOW, Order, PATIENCE, REFUSED, RESET, address, eventually};

const WAYS: [Waiting; 4] = [Waiting::Spin, Waiting::Yield, Waiting::Block, Waiting::Adaptive];

#[test]
fn without_a_daemon_the_error_names_the_socket_and_the_remedy() {
    let options = Options { socket: "/nowhere/clearway.sock".into(), ..Options::new("test") };
    let error = Channel::attach(&options).unwrap_err();
    assert_eq!(error.code(), Code::NoDaemon);
    let text = error.to_string();
    assert!(text.contains("/nowhere/clearway.sock") && text.contains("clearway daemon"), "{text}");
}

#[test]
fn a_refused_connection_says_so() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let error = channel.connect(address(REFUSED), PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Connect { code: Code::Refused, .. }), "{error}");
}

#[test]
fn nobody_is_asked_for_port_0() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let nowhere = (address(REFUSED).ip(), 0);
    let errors = [
        channel.connect(nowhere, PATIENCE).unwrap_err(),
        channel.tcp_connect(None, nowhere, PATIENCE).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), Code::Invalid);
        assert!(error.to_string().contains("port 0"), "{error}");
    }
    assert_eq!(daemon.counters().commands, 0);
}

/// It would be given up as soon as it is begun, each time that somebody tries.
#[test]
fn what_takes_a_while_is_not_begun_without_time() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let nobody = Group { name: GroupName::new(b"nobody").unwrap(), members: Vec::new() };
    let before = daemon.counters().commands;
    let errors = [
        (channel.connect(address(ECHO), NOW).unwrap_err(), "start_connect"),
        (channel.tcp_connect(None, address(ECHO), NOW).unwrap_err(), "tcp_start_connect"),
        (channel.open_stream(connection, NOW).unwrap_err(), "start_open_stream"),
        (
            Calls::new().call(&mut channel, connection, 1, b"", NOW).unwrap_err(),
            "start (clearway_start_call)",
        ),
        (channel.share(0..0, &Description::default(), NOW).unwrap_err(), "give it time"),
        (channel.unshare(RegionId::from_u64(1), NOW).unwrap_err(), "give it time"),
        (channel.set_group(&nobody, NOW).unwrap_err(), "give it time"),
    ];
    for (error, remedy) in errors {
        assert_eq!(error.code(), Code::WouldBlock);
        assert!(error.to_string().contains(remedy), "{error}");
    }
    assert_eq!(daemon.counters().commands, before);
}

/// Nobody knows its number, and nobody else would ever take it back.
#[test]
fn what_is_shared_too_late_is_shared_no_longer() {
    let (mut channel, engine) = Engine::start();
    let short = Some(Duration::from_millis(5));
    let error = channel.share(0..0, &Description::default(), short).unwrap_err();
    assert_eq!(error.code(), Code::TimedOut, "{error}");
    let asked = engine.commands();
    let [Command::ShareMemory { token, .. }] = asked[..] else { panic!("{asked:?}") };
    let status = OperationStatus::Done as u8;
    engine.tell(&Completion::Shared { status, token, region: 77 });
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
    let asked = engine.commands();
    let [Command::Unshare { token, region: 77 }] = asked[..] else { panic!("{asked:?}") };
    engine.tell(&Completion::Unshared { status, token });
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
    assert_eq!((engine.commands(), channel.operations_outstanding()), (vec![], 0));
}

/// It stays behind what has happened before it.
#[test]
fn a_message_that_does_not_fit_keeps_its_place() {
    let daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    for tag in 0..2 {
        channel.unpost(echo, tag).unwrap();
        daemon.takes_all();
        daemon.order(Order::Deliver { connection: echo.as_u64(), bytes: b"hello".to_vec() });
        let error = match tag {
            0 => channel.recv_from(echo, &mut [0; 2], PATIENCE).unwrap_err(),
            _ => channel.recv(&mut [0; 2], PATIENCE).unwrap_err(),
        };
        assert!(matches!(error, Error::BufferTooSmall { length: 5, room: 2 }), "{error}");
        let Event::PostEnded(end) = channel.next_event(PATIENCE).unwrap() else { panic!() };
        assert_eq!(end.tag, tag);
        let Event::Message(message) = channel.next_event(PATIENCE).unwrap() else { panic!() };
        assert_eq!(*message, b"hello"[..]);
    }
}

#[test]
fn a_refused_listen_carries_the_daemons_words() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let error = channel.listen(REFUSED).unwrap_err();
    assert_eq!(error.code(), Code::Denied);
    assert!(error.to_string().contains("policy"), "{error}");
}

#[test]
fn a_connection_that_comes_too_late_is_closed_and_never_seen() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let error = channel.connect(address(LATE), Some(Duration::from_millis(5))).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }));
    daemon.order(Order::AnswerLate);
    eventually(|| {
        assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
        daemon.counters().commands == 2
    });
}

/// The daemon takes nothing, the ring is full, and a connection comes too late.
fn too_late_for_a_full_ring(daemon: &Daemon, waiting: Waiting) -> Channel {
    let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
    let echo = channel.connect(address(ECHO), PATIENCE).unwrap();
    channel.connect(address(LATE), Some(Duration::from_millis(10))).unwrap_err();
    channel.send(echo, b"x").unwrap();
    channel.recv(&mut [0; 1], PATIENCE).unwrap();
    channel.flush();
    daemon.takes_all();
    daemon.order(Order::Pause);
    daemon.counters();
    for _ in 0..channel.sizes().submission_entries {
        channel.set_silence(echo, Duration::from_secs(3)).unwrap();
    }
    daemon.order(Order::AnswerLate);
    daemon.counters();
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
    channel
}

/// The daemon does not ring when it has taken something out of the ring.
#[test]
fn nobody_sleeps_while_the_ring_has_no_room_to_close_a_connection() {
    let daemon = Daemon::start();
    let mut channel = too_late_for_a_full_ring(&daemon, Waiting::Adaptive);
    assert!(!channel.arm());
    channel.disarm();
    daemon.order(Order::Resume);
    eventually(|| {
        assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
        let is_armed = channel.arm();
        channel.disarm();
        is_armed
    });
}

#[test]
fn a_killed_daemon_is_noticed_while_the_ring_has_no_room() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = too_late_for_a_full_ring(&daemon, waiting);
        daemon.order(Order::Die);
        let error = channel.recv(&mut [0; 1], PATIENCE).unwrap_err();
        assert_eq!(error.code(), Code::DaemonGone, "{waiting:?}: {error}");
    }
}

/// However short a time ago it was there.
#[test]
fn a_killed_daemon_is_noticed_by_the_event_loop_that_its_end_wakes() {
    let mut daemon = Daemon::start();
    let mut channel = daemon.attach();
    assert!(channel.arm());
    daemon.order(Order::Die);
    daemon.join();
    channel.disarm();
    let error = channel.next_event(NOW).unwrap_err();
    assert_eq!(error.code(), Code::DaemonGone, "{error}");
}

/// A port has to be asked for before there is anything to wait for.
#[test]
fn who_connects_by_tcp_waits_for_a_daemon_that_stands_still_no_longer_than_for_the_peer() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    daemon.order(Order::Ignore);
    daemon.counters();
    let begun = Instant::now();
    let error = channel.tcp_connect(None, address(80), Some(Duration::from_millis(20)));
    assert_eq!(error.unwrap_err().code(), Code::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// A call that does not wait may be the one that learns that nothing is left at a port.
#[test]
fn a_port_is_given_back_without_waiting_for_the_daemon() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let port = channel.tcp_bind(8080).unwrap().id;
    channel.tcp_listen(port, 1).unwrap();
    let token = channel.tcp_start_connect(Some(port), address(80)).unwrap();
    channel.tcp_unlisten(port).unwrap();
    daemon.takes_all();
    daemon.order(Order::Ignore);
    daemon.order(Order::FailTcp);
    daemon.counters();
    let begun = Instant::now();
    let event = channel.next_event(NOW).unwrap();
    assert!(matches!(event, Event::TcpConnectFailed { token: of, .. } if of == token), "{event:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let error = channel.tcp_listen(port, 1).and_then(|()| channel.tcp_accept(port, NOW));
    assert_eq!(error.unwrap_err().code(), Code::Closed, "it is the daemon's again");
}

/// Who only sends is told by that why nothing goes any more.
#[test]
fn a_reset_that_was_not_told_yet_is_told_to_who_sends() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let connection = channel.connect(address(RESET), PATIENCE).unwrap();
    let mut error = None;
    eventually(|| {
        error = channel.send(connection, b"into the void").err();
        error.is_some()
    });
    assert_eq!(error.map(|error| error.code()), Some(Code::Reset));
    let told = channel.recv(&mut [0; 8], PATIENCE).unwrap_err();
    assert_eq!(told.code(), Code::Reset, "it is still told by receiving");
}

#[test]
fn a_reset_is_told_once_and_then_the_connection_is_unknown() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let connection = channel.connect(address(RESET), PATIENCE).unwrap();
    let error = channel.recv(&mut [0; 8], PATIENCE).unwrap_err();
    assert!(
        matches!(error, Error::Connection { connection: c, code: Code::Reset } if c == connection)
    );
    assert!(matches!(channel.recv(&mut [0; 8], NOW), Err(Error::WouldBlock)));
    let error = channel.send(connection, b"too late").unwrap_err();
    assert_eq!(error.code(), Code::Closed);
    assert_eq!(channel.close(connection).unwrap_err().code(), Code::Closed);
    let error = channel.recv_from(connection, &mut [0; 8], PATIENCE).unwrap_err();
    assert_eq!(error.code(), Code::Closed);
}

#[test]
fn an_unknown_connection_is_an_error() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let unknown = ConnectionId::from_u64(12_345);
    assert_eq!(channel.send(unknown, b"x").unwrap_err().code(), Code::Closed);
    assert_eq!(channel.abort(unknown).unwrap_err().code(), Code::Closed);
}

#[test]
fn what_was_on_its_way_when_a_connection_ends_goes_back_to_the_pool() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Pause);
    daemon.counters();
    for _ in 0..3 {
        channel.try_send(connection, &[0; 1 << 16]).unwrap();
    }
    // The ends of these sends are told by `Closed` only.
    daemon.order(Order::Close { connection: connection.as_u64(), code: Code::Reset });
    daemon.order(Order::Resume);
    let error = channel.recv(&mut [], PATIENCE).unwrap_err();
    assert_eq!(error.code(), Code::Reset);
    let again = channel.connect(address(common::ECHO), PATIENCE).unwrap();
    for _ in 0..4 {
        channel.try_send(again, &[0; 1 << 16]).unwrap();
    }
}

#[test]
fn a_closed_connection_is_not_heard_of_again() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    for _ in 0..10 {
        channel.send(connection, b"unread").unwrap();
    }
    channel.close(connection).unwrap();
    assert_eq!(channel.send(connection, b"x").unwrap_err().code(), Code::Closed);
    eventually(|| {
        assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
        channel.flush();
        daemon.counters().receive_pool_used_bytes == 0
    });
}

#[test]
fn an_end_that_is_queued_can_be_closed_away() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Close { connection: connection.as_u64(), code: Code::Closed });
    // Waiting for something else takes the end into the queue.
    channel.connect(address(common::ECHO), PATIENCE).unwrap();
    channel.close(connection).unwrap();
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
}

#[test]
fn a_killed_daemon_is_noticed_in_every_way_of_waiting() {
    for waiting in WAYS {
        let mut daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let connection = channel.connect(address(common::ECHO), PATIENCE).unwrap();
        channel.send(connection, b"the last").unwrap();
        eventually(|| daemon.counters().completions == 2);
        daemon.order(Order::Die);
        daemon.join();
        let mut buffer = [0; 8];
        channel.recv(&mut buffer, PATIENCE).unwrap();
        assert_eq!(&buffer, b"the last", "what had come is not lost");
        let begun = Instant::now();
        let error = channel.recv(&mut buffer, PATIENCE).unwrap_err();
        assert_eq!(error.code(), Code::DaemonGone);
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(channel.send(connection, b"x").unwrap_err().code(), Code::DaemonGone);
        assert_eq!(channel.listen(1).unwrap_err().code(), Code::DaemonGone);
        assert_eq!(channel.connect(address(7), None).unwrap_err().code(), Code::DaemonGone);
    }
}

#[test]
fn a_killed_daemon_is_noticed_by_who_never_waits() {
    let mut daemon = Daemon::start();
    let (mut channel, _) = daemon.echo();
    daemon.order(Order::Die);
    daemon.join();
    eventually(|| match channel.next_event(NOW) {
        Err(error) => error.code() == Code::DaemonGone,
        Ok(event) => panic!("{event:?}"),
    });
}

#[test]
fn an_orderly_shutdown_is_noticed_asleep() {
    let daemon = Daemon::start();
    let mut channel = Channel::attach(&daemon.options(Waiting::Block)).unwrap();
    let waiter = std::thread::spawn(move || channel.next_event(PATIENCE).map(drop));
    daemon.order(Order::Shutdown);
    assert_eq!(waiter.join().unwrap().unwrap_err().code(), Code::DaemonGone);
}

#[test]
fn the_reason_for_the_end_of_a_session_reaches_the_app() {
    let daemon = Daemon::start();
    let mut channel = Channel::attach(&daemon.options(Waiting::Block)).unwrap();
    daemon.order(Order::Condemn);
    assert_eq!(channel.next_event(PATIENCE).unwrap_err().code(), Code::Violation);
}

#[test]
fn the_reason_for_the_end_is_found_by_who_asks_later() {
    let mut daemon = Daemon::start();
    let mut channel = daemon.attach();
    daemon.order(Order::Condemn);
    daemon.join();
    assert_eq!(channel.listen(1).unwrap_err().code(), Code::Violation);
}

/// A daemon that has no room left answers and closes without reading what it was asked, so that the
/// kernel reports a broken connection before the answer, or after.
#[test]
fn a_refusal_is_found_behind_a_broken_connection() {
    for _ in 0..50 {
        let (path, daemon) = common::unwilling(Code::Limit);
        let options = Options { socket: path.clone(), ..Options::new("test") };
        let error = Channel::attach(&options).unwrap_err();
        assert!(matches!(error, Error::Refused { code: Code::Limit, .. }), "{error}");
        daemon.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn an_app_that_never_reads_stops_only_its_own_senders() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    // The echoes fill the receive pool; then the sends are not taken any more, and then there is
    // no room left.
    let error = loop {
        let short = Some(Duration::from_millis(20));
        match channel.send_timeout(connection, &[9; 1000], short) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TimedOut { .. }));
    // Reading makes everything flow again.
    for _ in 0..1000 {
        channel.recv_zero_copy(PATIENCE).unwrap();
        channel.try_send(connection, &[9; 1000]).ok();
    }
}

#[test]
fn a_timeout_in_the_middle_of_waiting_is_kept() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let begun = Instant::now();
        let error = channel.next_event(Some(Duration::from_millis(20))).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }));
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}

#[test]
fn many_connections_come_and_go() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    for round in 0..300u32 {
        let connection = channel.connect(address(common::ECHO), PATIENCE).unwrap();
        channel.send(connection, &round.to_ne_bytes()).unwrap();
        let Event::Message(message) = channel.next_event(PATIENCE).unwrap() else { panic!() };
        assert_eq!(*message, round.to_ne_bytes());
        drop(message);
        match round % 2 {
            0 => channel.close(connection).unwrap(),
            _ => channel.abort(connection).unwrap(),
        }
    }
}
