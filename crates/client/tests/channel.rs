//! The app library against a daemon in a thread (`common`): what works on good days.

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use clearway_client::{
    Channel, Code, ConnectionId, Ended, Error, Event, Operation, RegionId, Sizes, Waiting,
};
use common::{Daemon, ECHO, LATE, NOW, Order, PATIENCE, REFUSED, SINK, address, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const WAYS: [Waiting; 4] = [Waiting::Spin, Waiting::Yield, Waiting::Block, Waiting::Adaptive];

#[test]
fn echoes_by_copy_in_every_way_of_waiting() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
        assert_eq!(channel.peer(connection), Some(address(ECHO)));
        let mut buffer = vec![0; 100_000];
        for (round, length) in [0, 1, 64, 1500, 70_000].into_iter().cycle().take(100).enumerate() {
            let message = vec![round as u8; length];
            channel.send(connection, &message).unwrap();
            let (from, received) = channel.recv(&mut buffer, PATIENCE).unwrap();
            assert_eq!((from, &buffer[..received]), (connection, &message[..]));
        }
        channel.detach(PATIENCE).unwrap();
    }
}

#[test]
fn echoes_in_place() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    for round in 0..200u8 {
        let mut buffer = channel.send_buffer(1000, PATIENCE).unwrap();
        buffer.fill(round);
        buffer.truncate(600);
        channel.send_zero_copy(connection, buffer).unwrap();
        let message = channel.recv_zero_copy(PATIENCE).unwrap();
        assert_eq!((message.connection(), &*message), (connection, &[round; 600][..]));
        // Every other message goes back from another thread.
        if round % 2 == 0 {
            channel.release(message);
        } else {
            std::thread::spawn(move || drop(message)).join().unwrap();
        }
    }
    channel.flush();
    eventually(|| daemon.counters().receive_pool_used_bytes == 0);
}

/// Its bytes are not in the memory that the daemon has of this channel.
#[test]
fn a_buffer_of_another_channel_is_not_sent() {
    let daemons = [Daemon::start(), Daemon::start()];
    let (mut channel, connection) = daemons[0].echo();
    let mut other = daemons[1].attach();
    let invalid = |error: Error| {
        let is_invalid = matches!(error, Error::Declined { code: Code::Invalid, .. });
        assert!(is_invalid && error.to_string().contains("another channel"), "{error}");
    };
    let buffer = |other: &mut Channel| other.send_buffer(10, NOW).unwrap();
    invalid(channel.send_zero_copy(connection, buffer(&mut other)).unwrap_err());
    let within = Duration::from_secs(1);
    invalid(channel.send_zero_copy_within(connection, buffer(&mut other), within).unwrap_err());
    let (back, error) = channel.try_send_zero_copy(connection, buffer(&mut other)).unwrap_err();
    invalid(error);
    assert_eq!(back.len(), 10);
}

#[test]
fn many_messages_at_a_time_arrive_in_order() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let (mut sent, mut received) = (0u32, 0u32);
    let mut buffer = [0; 4];
    while received < 20_000 {
        while sent < 20_000 && channel.try_send(connection, &sent.to_ne_bytes()).is_ok() {
            sent += 1;
        }
        if sent == received {
            // Nothing is under way: the ring is full of releases that the daemon has yet to take.
            channel.send_timeout(connection, &sent.to_ne_bytes(), PATIENCE).unwrap();
            sent += 1;
        }
        let (_, length) = channel.recv(&mut buffer, PATIENCE).unwrap();
        assert_eq!((length, u32::from_ne_bytes(buffer)), (4, received));
        received += 1;
    }
}

#[test]
fn a_listener_accepts_and_its_first_messages_wait() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let listener = channel.listen(4000).unwrap();
    assert_eq!(listener.address, address(4000));
    assert!(matches!(channel.accept(NOW), Err(Error::WouldBlock)));
    daemon.order(Order::Accept { listener: listener.id.as_u32(), connection: 1 });
    daemon.order(Order::Deliver { connection: 1, bytes: b"first".to_vec() });
    daemon.order(Order::Accept { listener: listener.id.as_u32(), connection: 2 });
    let mut buffer = [0; 10];
    let (connection, length) = channel.recv(&mut buffer, PATIENCE).unwrap();
    assert_eq!(&buffer[..length], b"first");
    let accepted = channel.accept(PATIENCE).unwrap();
    assert_eq!((accepted.connection, accepted.listener), (connection, listener.id));
    assert_eq!(accepted.peer, address(40_000));
    assert_eq!(channel.accept(PATIENCE).unwrap().connection.as_u64(), 2);
    channel.unlisten(listener.id).unwrap();
}

#[test]
fn what_comes_while_connecting_is_kept() {
    let daemon = Daemon::start();
    let (mut channel, first) = daemon.echo();
    for text in [b"one", b"two"] {
        channel.send(first, text).unwrap();
    }
    let second = channel.connect(address(ECHO), PATIENCE).unwrap();
    channel.send(second, b"three").unwrap();
    let mut buffer = [0; 10];
    assert_eq!(channel.recv_from(second, &mut buffer, PATIENCE).unwrap(), 5);
    assert_eq!(channel.recv(&mut buffer, NOW).unwrap(), (first, 3));
    assert_eq!(&buffer[..3], b"one");
    assert_eq!(channel.recv_from(first, &mut buffer, NOW).unwrap(), 3);
    assert_eq!(&buffer[..3], b"two");
    assert!(matches!(channel.recv_from(first, &mut buffer, NOW), Err(Error::WouldBlock)));
}

#[test]
fn events_tell_everything_in_a_useful_order() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let good = channel.start_connect(address(ECHO)).unwrap();
    let Event::Connected { token, connection, peer } = channel.next_event(PATIENCE).unwrap() else {
        panic!();
    };
    assert_eq!((token, peer), (good, address(ECHO)));
    let bad = channel.start_connect(address(REFUSED)).unwrap();
    let event = channel.next_event(PATIENCE).unwrap();
    assert!(matches!(event, Event::ConnectFailed { token, code: Code::Refused } if token == bad));
    channel.send(connection, b"hello").unwrap();
    let Event::Message(message) = channel.next_event(PATIENCE).unwrap() else { panic!() };
    assert_eq!(&*message, b"hello");
    daemon.order(Order::Close { connection: connection.as_u64(), code: Code::Closed });
    let event = channel.next_event(PATIENCE).unwrap();
    assert!(
        matches!(event, Event::Closed { connection: c, code: Code::Closed } if c == connection)
    );
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
}

#[test]
fn an_event_loop_waits_on_the_descriptor() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    for round in 0..50u8 {
        assert!(channel.arm());
        assert!(!is_readable(&channel, 0));
        channel.disarm();
        channel.send(connection, &[round]).unwrap();
        let mut buffer = [0; 1];
        loop {
            if channel.arm() {
                assert!(is_readable(&channel, 10), "no wake-up");
            }
            channel.disarm();
            match channel.recv(&mut buffer, NOW) {
                Ok(_) => break,
                Err(error) => assert_eq!(error.code(), Code::WouldBlock),
            }
        }
        assert_eq!(buffer, [round]);
    }
}

#[test]
fn a_descriptor_is_not_waited_on_while_something_is_queued() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    channel.send(connection, b"x").unwrap();
    channel.connect(address(ECHO), PATIENCE).unwrap();
    assert!(!channel.arm());
    channel.disarm();
}

#[test]
fn a_message_larger_than_the_buffer_is_not_lost() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    channel.send(connection, &[7; 100]).unwrap();
    let error = channel.recv(&mut [0; 99], PATIENCE).unwrap_err();
    assert!(matches!(error, Error::BufferTooSmall { length: 100, room: 99 }));
    assert_eq!(channel.recv(&mut [0; 100], NOW).unwrap(), (connection, 100));
}

#[test]
fn a_message_over_the_limit_is_refused_with_both_numbers() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let error = channel.send(connection, &vec![0; (1 << 18) + 1]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { length: 262_145, limit: 262_144 }), "{error}");
    assert_eq!(error.code(), Code::TooLarge);
    assert!(matches!(channel.send_buffer(9 << 20, NOW), Err(Error::TooLarge { .. })));
}

#[test]
fn the_default_sizes_carry_the_largest_message() {
    let daemon = Daemon::start();
    let mut options = daemon.options(Waiting::Adaptive);
    options.sizes = Sizes::default();
    let mut channel = Channel::attach(&options).unwrap();
    let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
    let message: Vec<u8> =
        (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..3 {
        channel.send(connection, &message).unwrap();
        assert!(*channel.recv_zero_copy(PATIENCE).unwrap() == message);
    }
}

#[test]
fn a_full_pool_blocks_waits_and_tells_when_there_is_room() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Pause);
    // A round trip through the orders: from here on the daemon takes nothing.
    daemon.counters();
    let large = vec![1; 1 << 16];
    for _ in 0..4 {
        channel.try_send(connection, &large).unwrap();
    }
    assert!(matches!(channel.try_send(connection, &large), Err(Error::WouldBlock)));
    let short = Some(Duration::from_millis(5));
    let error = channel.send_timeout(connection, &large, short).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }));
    daemon.order(Order::Resume);
    let mut writable = false;
    let mut messages = 0;
    while messages < 4 || !writable {
        match channel.next_event(PATIENCE).unwrap() {
            Event::Writable => writable = true,
            Event::Message(message) => {
                messages += 1;
                channel.release(message);
            }
            other => panic!("{other:?}"),
        }
    }
    channel.send(connection, &large).unwrap();
}

/// Commands that the daemon has no answer to fill it: nothing finishes, and there is room
/// nevertheless.
#[test]
fn a_full_ring_tells_when_there_is_room() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Pause);
    daemon.counters();
    for _ in 0..channel.sizes().submission_entries {
        channel.start_connect(address(LATE)).unwrap();
    }
    assert!(matches!(channel.try_send(connection, b"x"), Err(Error::WouldBlock)));
    assert!(!channel.arm(), "nobody will ring");
    channel.disarm();
    daemon.order(Order::Resume);
    assert!(matches!(channel.next_event(PATIENCE).unwrap(), Event::Writable));
    channel.send(connection, b"x").unwrap();
}

/// The same for who needs more room than there is, in a ring that is not full.
#[test]
fn a_ring_without_room_for_a_vector_tells_when_there_is() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Pause);
    daemon.counters();
    for _ in 1..channel.sizes().submission_entries {
        channel.start_connect(address(LATE)).unwrap();
    }
    let add = Operation::FetchAdd { region: RegionId::from_u64(1), offset: 0, addend: 1 };
    let vector = [(connection, add); 2];
    assert!(matches!(channel.start_vector(&vector, NOW), Err(Error::WouldBlock)));
    assert!(!channel.arm(), "nobody will ring");
    channel.disarm();
    daemon.order(Order::Resume);
    assert!(matches!(channel.next_event(PATIENCE).unwrap(), Event::Writable));
}

/// The one that wanted room in the ring can go on, whatever the other lacks.
#[test]
fn room_in_the_ring_is_told_of_though_another_send_lacks_memory() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let _half = channel.send_buffer(1 << 17, PATIENCE).unwrap();
    daemon.takes_all();
    daemon.order(Order::Pause);
    daemon.counters();
    for _ in 0..channel.sizes().submission_entries {
        channel.set_silence(connection, Duration::from_secs(3)).unwrap();
    }
    assert!(matches!(channel.try_send(connection, b"x"), Err(Error::WouldBlock)));
    daemon.order(Order::Resume);
    daemon.takes_all();
    let large = vec![0; (1 << 17) + 1];
    assert!(matches!(channel.try_send(connection, &large), Err(Error::WouldBlock)));
    assert!(matches!(channel.next_event(NOW), Ok(Event::Writable)));
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)), "once");
}

#[test]
fn a_full_ring_gives_a_filled_buffer_back() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Pause);
    daemon.counters();
    while channel.try_send(connection, b"x").is_ok() {}
    let mut buffer = channel.send_buffer(3, PATIENCE).unwrap();
    buffer.copy_from_slice(b"abc");
    let (buffer, error) = channel.try_send_zero_copy(connection, buffer).unwrap_err();
    assert_eq!((error.code(), &*buffer), (Code::WouldBlock, &b"abc"[..]));
    daemon.order(Order::Resume);
    channel.send_zero_copy(connection, buffer).unwrap();
    let mut last = [0; 3];
    while channel.recv(&mut last, PATIENCE).unwrap().1 != 3 {}
    assert_eq!(&last, b"abc");
}

#[test]
fn a_channel_moves_to_another_thread() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let worker = std::thread::spawn(move || {
        channel.send(connection, b"from there").unwrap();
        channel.recv_zero_copy(PATIENCE).unwrap().to_vec()
    });
    assert_eq!(worker.join().unwrap(), b"from there");
}

/// What it says about, whom and for how long, and that nothing has ended.
#[test]
fn a_timeout_says_what_was_waited_for() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let short = Some(Duration::from_millis(5));
    let error = channel.connect("10.0.0.2:11", short).unwrap_err(); // LATE
    let text = error.to_string();
    assert!(text.contains("10.0.0.2 port 11") && text.contains("5ms"), "{text}");
    assert!(text.contains("clearway ping 10.0.0.2"), "{text}");
    assert_eq!((error.code(), error.ended()), (Code::TimedOut, Ended::Nothing));
    let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
    let mut buffer = [0; 10];
    for error in [
        channel.recv(&mut buffer, short).unwrap_err(),
        channel.recv_from(connection, &mut buffer, short).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("10.0.0.2 port 7") && text.contains("5ms"), "{text}");
    }
    channel.connect(address(ECHO), PATIENCE).unwrap();
    let text = channel.recv(&mut buffer, short).unwrap_err().to_string();
    assert!(text.contains("any connection"), "{text}");
    for error in [
        channel.accept(short).unwrap_err(),
        channel.next_event(short).unwrap_err(),
        channel.recv_frames(short).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("clearway ") && text.contains("5ms"), "{text}");
    }
}

#[test]
fn a_refused_connection_names_the_peer() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let error = channel.connect(("10.0.0.2", REFUSED), PATIENCE).unwrap_err();
    assert!(error.to_string().contains("10.0.0.2 port 9"), "{error}");
    assert_eq!((error.code(), error.ended()), (Code::Refused, Ended::Nothing));
}

#[test]
fn a_lost_peer_is_not_a_timeout() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Close { connection: connection.as_u64(), code: Code::Lost });
    let error = channel.recv(&mut [0; 10], PATIENCE).unwrap_err();
    assert_eq!((error.code(), error.ended()), (Code::Lost, Ended::Connection));
}

#[test]
fn priorities_and_order_may_be_set_for_a_connection() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    for (urgency, weight) in [(8, 16), (3, 0), (3, 257)] {
        let error = channel.set_priority(connection, urgency, weight).unwrap_err();
        assert_eq!((error.code(), error.ended()), (Code::Invalid, Ended::Nothing));
        let wanted = format!(
            "a priority has an urgency of 0 to 7 and a weight of 1 to 256, \
             not {urgency} and {weight}"
        );
        assert_eq!(error.to_string(), wanted);
    }
    channel.set_priority(connection, 7, 256).unwrap();
    let wanted = format!("priority {} 7 256", connection.as_u64());
    eventually(|| daemon.heard_next() == wanted.as_bytes());
    channel.set_unordered(connection).unwrap();
    let wanted = format!("unordered {}", connection.as_u64());
    eventually(|| daemon.heard_next() == wanted.as_bytes());
    channel.close(connection).unwrap();
    assert_eq!(channel.set_priority(connection, 0, 1).unwrap_err().code(), Code::Closed);
    assert_eq!(channel.set_unordered(connection).unwrap_err().code(), Code::Closed);
}

/// Sends `words` that are worth nothing after `within`, copied or filled in place.
fn send_within(
    channel: &mut Channel,
    connection: ConnectionId,
    words: &[u8],
    in_place: bool,
    within: Duration,
) -> Result<u32, Error> {
    if !in_place {
        return channel.send_within(connection, words, within);
    }
    let mut buffer = channel.send_buffer(words.len() + 3, PATIENCE).unwrap();
    buffer[..words.len()].copy_from_slice(words);
    buffer.truncate(words.len());
    channel.send_zero_copy_within(connection, buffer, within)
}

#[test]
fn a_message_has_a_deadline_whether_it_was_copied_or_filled_in_place() {
    for in_place in [false, true] {
        let daemon = Daemon::start();
        let (mut channel, connection) = daemon.echo();
        channel.send(connection, b"before").unwrap();
        for (number, within, within_us) in [
            (1, Duration::from_nanos(2_999), 2),
            (2, Duration::ZERO, 1),
            (3, Duration::MAX, u32::MAX),
        ] {
            let sent = send_within(&mut channel, connection, b"soon", in_place, within).unwrap();
            assert_eq!(sent, number);
            let wanted = format!("within {within_us} {} soon", connection.as_u64());
            eventually(|| daemon.heard_next() == wanted.as_bytes());
        }

        daemon.order(Order::Pause);
        daemon.counters();
        while send_within(&mut channel, connection, b"x", in_place, Duration::ZERO).is_ok() {}
        let short = Duration::from_millis(1);
        let error = send_within(&mut channel, connection, b"x", in_place, short).unwrap_err();
        assert_eq!(error.code(), Code::TimedOut, "{error}");
        daemon.order(Order::Resume);

        channel.close(connection).unwrap();
        let error = send_within(&mut channel, connection, b"x", in_place, short).unwrap_err();
        assert_eq!(error.code(), Code::Closed);
    }
}

/// The daemon does not say that it has made room: it may do so just before the app sleeps.
#[test]
fn nobody_sleeps_for_want_of_room_in_the_ring_once_there_is_some() {
    for waiting in [Waiting::Block, Waiting::Adaptive] {
        let rounds = std::thread::spawn(move || {
            let daemon = Daemon::start();
            let options = daemon.options(waiting);
            let mut channel = Channel::attach(&options).unwrap();
            let connection = channel.connect(address(SINK), PATIENCE).unwrap();
            for _ in 0..1000 {
                daemon.order(Order::Pause);
                let taken = daemon.counters().commands;
                // Commands of which nothing is told.
                for _ in 0..options.sizes.submission_entries {
                    channel.set_silence(connection, Duration::from_secs(3)).unwrap();
                }
                daemon.order(Order::Resume);
                channel.set_silence(connection, Duration::from_secs(3)).unwrap();
                let submitted = taken + u64::from(options.sizes.submission_entries) + 1;
                eventually(|| daemon.counters().commands == submitted);
            }
        });
        eventually(|| rounds.is_finished());
        rounds.join().unwrap();
    }
}

#[test]
fn silence_may_be_set_for_a_connection() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    channel.set_silence(connection, Duration::from_secs(3)).unwrap();
    channel.close(connection).unwrap();
    let error = channel.set_silence(connection, Duration::from_secs(3)).unwrap_err();
    assert_eq!(error.code(), Code::Closed);
    drop(channel);
    let expected = format!("silence {} 3000", connection.as_u64());
    assert_eq!(String::from_utf8_lossy(&daemon.heard()), expected);
}

#[test]
fn dropping_a_channel_delivers_what_was_sent() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    daemon.order(Order::Pause);
    daemon.counters();
    channel.send(connection, b"last words").unwrap();
    channel.close(connection).unwrap();
    // Nobody waits for a daemon that takes nothing.
    drop(channel);
    assert!(daemon.heard().ends_with(b"last words"));
}

fn is_readable(channel: &Channel, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let fd = channel.as_fd();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}
