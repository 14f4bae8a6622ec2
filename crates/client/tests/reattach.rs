//! A daemon that goes and comes back.

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use clearway_client::{
    Awaited, CallEvent, Calls, Channel, Code, Ended, Error, Event, Outcome, Reattached, Unposted,
};
use common::{Daemon, ECHO, LATE, NOW, Order, PATIENCE, REFUSED, address, eventually};
use rustix::fs::MemfdFlags;

#[test]
fn a_channel_begins_anew_with_the_next_daemon() {
    let mut daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    let closed = channel.listen(4001).unwrap();
    channel.unlisten(closed.id).unwrap();
    let listener = channel.listen(4000).unwrap();
    daemon.order(Order::Accept { listener: listener.id.as_u32(), connection: 1 });
    let accepted = channel.accept(PATIENCE).unwrap().connection;
    daemon.order(Order::Pause);
    daemon.counters();
    channel.send(echo, b"lost").unwrap();
    daemon.order(Order::Die);
    let error = channel.recv(&mut [0; 10], PATIENCE).unwrap_err();
    assert_eq!((error.code(), error.ended()), (Code::DaemonGone, Ended::Channel));

    let short = Some(Duration::from_millis(20));
    let error = channel.reattach(short).unwrap_err();
    assert!(matches!(error, Error::TimedOut { awaited: Awaited::Daemon, .. }), "{error}");
    let descriptor = channel.as_fd().as_raw_fd();
    let waiting = std::thread::spawn(move || (channel.reattach(PATIENCE).unwrap(), channel));
    daemon.restart();
    let (told, mut channel) = waiting.join().unwrap();

    assert_eq!(told.listeners.len(), 1, "{told:?}");
    assert_eq!((told.listeners[0].0, told.listeners[0].1.address), (listener.id, address(4000)));
    assert_eq!(told.connections.len(), 2, "{told:?}");
    let [of_peer, own] = &told.connections[..] else { panic!() };
    assert_eq!((of_peer.was, own.was), (accepted, echo));
    assert_eq!(of_peer.now.as_ref().unwrap_err().code(), Code::DaemonGone);
    assert_eq!((own.peer, own.messages_unacknowledged), (address(ECHO), 1));
    let again = *own.now.as_ref().unwrap();
    assert_eq!(channel.as_fd().as_raw_fd(), descriptor);
    assert!(channel.arm());
    channel.disarm();
    channel.send(again, b"hello").unwrap();
    let Event::Message(message) = channel.next_event(PATIENCE).unwrap() else { panic!() };
    assert_eq!((message.connection(), &*message), (again, &b"hello"[..]));
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
}

/// The next daemon has to be told, too.
#[test]
fn a_channel_that_takes_streams_goes_on_to_take_them() {
    let mut daemon = Daemon::start();
    let mut channel = daemon.attach();
    channel.take_streams(true).unwrap();
    assert_eq!(daemon.heard_next(), b"streams true");
    daemon.order(Order::Die);
    channel.next_event(PATIENCE).unwrap_err();
    let waiting = std::thread::spawn(move || (channel.reattach(PATIENCE).unwrap(), channel));
    daemon.restart();
    let (_, mut channel) = waiting.join().unwrap();
    assert_eq!(daemon.heard_next(), b"streams true");
    channel.take_streams(false).unwrap();
    eventually(|| daemon.heard_next() == b"streams false");
}

/// The next daemon is given a copy of the app's own memory: the memfd is sealed for the one before.
#[test]
fn memory_of_the_apps_own_is_copied_for_the_next_daemon() {
    const BYTES: u64 = 3 << 20;
    let mut daemon = Daemon::start();
    let mut channel = daemon.attach();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let added = [0, 1].map(|number: u64| {
        let memfd = rustix::fs::memfd_create("of-the-app", flags).unwrap();
        rustix::fs::ftruncate(&memfd, BYTES).unwrap();
        let memory = channel.add_memory(&memfd).unwrap();
        let shared = channel.memory(memory).unwrap();
        assert!(shared.store(0, number) && shared.store(BYTES - 8, 70 + number));
        (memory, shared)
    });
    daemon.order(Order::Die);
    channel.next_event(PATIENCE).unwrap_err();
    let waiting = std::thread::spawn(move || (channel.reattach(PATIENCE).unwrap(), channel));
    daemon.restart();
    let (told, channel) = waiting.join().unwrap();
    assert_eq!(told.memories.len(), added.len(), "{told:?}");
    for (number, ((was, shared), (again, now))) in (0..).zip(added.iter().zip(&told.memories)) {
        let copy = channel.memory(*now.as_ref().unwrap()).unwrap();
        assert_eq!((again, copy.length()), (was, BYTES));
        assert_eq!((copy.load(0), copy.load(BYTES - 8)), (Some(number), Some(70 + number)));
        assert!(shared.store(0, 9));
        assert_eq!(copy.load(0), Some(number), "it is another memory");
    }
}

/// Each has one: some came before, and were passed by; the others come now.
#[test]
fn posted_buffers_have_their_ends_when_the_daemon_is_gone() {
    let mut daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("of-the-app", flags).unwrap();
    rustix::fs::ftruncate(&memfd, 1 << 20).unwrap();
    let memory = channel.add_memory(&memfd).unwrap();
    for (nth, tag) in (0..).zip([1, 2, 2, 3]) {
        channel.post(echo, memory, nth * 100_000..(nth + 1) * 100_000, tag).unwrap();
    }
    let last = format!("post {} 3 {} 300000 100000", echo.as_u64(), memory.as_u64());
    eventually(|| daemon.heard_next() == last.as_bytes());
    for tag in [3, 2] {
        channel.unpost(echo, tag).unwrap();
        channel.send(echo, b"hello").unwrap();
        channel.recv(&mut [0; 10], PATIENCE).unwrap();
    }
    assert_eq!(channel.posts_outstanding(), 2);
    daemon.order(Order::Die);
    assert_eq!(channel.recv(&mut [0; 10], PATIENCE).unwrap_err().code(), Code::DaemonGone);
    let waiting = std::thread::spawn(move || (channel.reattach(PATIENCE).unwrap(), channel));
    daemon.restart();
    let (_, mut channel) = waiting.join().unwrap();
    let ends = [(); 4].map(|()| channel.next_posted(PATIENCE).unwrap());
    assert!(ends.iter().all(|end| end.connection == echo));
    let told = ends.map(|end| (end.tag, end.outcome));
    let (cancelled, ended) = (Err(Unposted::Cancelled), Err(Unposted::Ended));
    assert_eq!(told, [(3, cancelled), (2, cancelled), (1, ended), (2, ended)]);
    assert_eq!(channel.posts_outstanding(), 0);
    assert!(matches!(channel.next_posted(NOW), Err(Error::WouldBlock)));
}

/// It stands in the ring, and nobody has looked: a message is lost, and a connection that had ended
/// is not opened again.
#[test]
fn what_came_before_the_end_counts_though_nobody_has_looked() {
    let mut daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    let ended = channel.connect(address(ECHO), PATIENCE).unwrap();
    daemon.order(Order::Deliver { connection: echo.as_u64(), bytes: b"unread".to_vec() });
    daemon.order(Order::Close { connection: ended.as_u64(), code: Code::Reset });
    daemon.counters();
    daemon.order(Order::Die);
    daemon.join();
    let waiting = std::thread::spawn(move || channel.reattach(PATIENCE).unwrap());
    daemon.restart();
    let told = waiting.join().unwrap();
    assert_eq!(told.messages_unread, 1, "{told:?}");
    let [own, closed] = &told.connections[..] else { panic!("{told:?}") };
    assert!(own.was == echo && own.now.is_ok(), "{own:?}");
    assert_eq!((closed.was, closed.peer), (ended, address(ECHO)));
    assert_eq!(closed.now.as_ref().unwrap_err().code(), Code::Reset);
}

/// One has succeeded, one has failed, and one is open: the app was told of none. It knows no
/// connection of them.
#[test]
fn attempts_without_an_outcome_have_failed() {
    let mut daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    let [open, succeeded, refused] =
        [LATE, ECHO, REFUSED].map(|port| channel.start_connect(address(port)).unwrap());
    daemon.takes_all();
    daemon.order(Order::Die);
    daemon.join();
    let waiting = std::thread::spawn(move || (channel.reattach(PATIENCE).unwrap(), channel));
    daemon.restart();
    let (told, mut channel) = waiting.join().unwrap();
    let [own] = &told.connections[..] else { panic!("{told:?}") };
    assert!(own.was == echo && own.now.is_ok(), "{own:?}");
    let failed = [(); 3].map(|()| match channel.next_event(NOW).unwrap() {
        Event::ConnectFailed { token, code } => (token, code),
        other => panic!("{other:?}"),
    });
    let gone = Code::DaemonGone;
    assert_eq!(failed, [(succeeded, gone), (refused, Code::Refused), (open, gone)]);
    assert!(matches!(channel.next_event(NOW), Err(Error::WouldBlock)));
}

/// Channel and calls at the next daemon, after this one has died.
fn reattached(
    daemon: &mut Daemon,
    mut channel: Channel,
    mut calls: Calls,
) -> (Reattached, Channel, Calls) {
    daemon.order(Order::Die);
    daemon.join();
    while channel.next_event(PATIENCE).is_ok() {}
    let waiting = std::thread::spawn(move || {
        let told = calls.reattach(&mut channel, PATIENCE).unwrap();
        (told, channel, calls)
    });
    daemon.restart();
    waiting.join().unwrap()
}

/// The same of one that succeeds while a call waits, which keeps that for later.
#[test]
fn an_attempt_whose_success_a_call_has_kept_has_failed() {
    let mut daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    let mut calls = Calls::new();
    let attempt = channel.start_connect(address(ECHO)).unwrap();
    daemon.takes_all();
    let short = Some(Duration::from_millis(20));
    let error = calls.call(&mut channel, echo, 1, b"what?", short).unwrap_err();
    assert_eq!(error.code(), Code::TimedOut);
    let (told, mut channel, mut calls) = reattached(&mut daemon, channel, calls);
    let [own] = &told.connections[..] else { panic!("{told:?}") };
    assert!(own.was == echo && own.now.is_ok(), "{own:?}");
    let event = calls.next(&mut channel, NOW).unwrap();
    let CallEvent::Channel(Event::ConnectFailed { token, code: Code::DaemonGone }) = event else {
        panic!("{event:?}");
    };
    assert_eq!(token, attempt);
    assert!(matches!(calls.next(&mut channel, NOW), Err(Error::WouldBlock)));
}

/// What a call has kept for later names connections of before, which may be others now.
#[test]
fn calls_that_begin_anew_tell_nothing_of_before_but_their_ends() {
    let mut daemon = Daemon::start();
    let (mut channel, echo) = daemon.echo();
    let listener = channel.listen(4000).unwrap().id.as_u32();
    let mut calls = Calls::new();
    let lost = calls.start(&mut channel, echo, 1, b"who?", None).unwrap();
    daemon.order(Order::Accept { listener, connection: 1 });
    daemon.takes_all();
    // Both it and the connection that comes are kept while this waits in vain.
    let short = Some(Duration::from_millis(20));
    let error = calls.call(&mut channel, echo, 1, b"what?", short).unwrap_err();
    assert_eq!(error.code(), Code::TimedOut);
    let (_, mut channel, mut calls) = reattached(&mut daemon, channel, calls);
    let event = calls.next(&mut channel, NOW).unwrap();
    let CallEvent::Ended { call, outcome: Outcome::Lost(Code::DaemonGone) } = event else {
        panic!("{event:?}");
    };
    assert_eq!(call, lost);
    assert!(matches!(calls.next(&mut channel, NOW), Err(Error::WouldBlock)));
}

/// A daemon that refuses is not waited for.
#[test]
fn who_is_refused_is_told_at_once() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    daemon.order(Order::Die);
    channel.next_event(PATIENCE).unwrap_err();
    let (path, thread) = common::unwilling(Code::Denied);
    std::fs::rename(&path, &daemon.path).unwrap();
    let error = channel.reattach(PATIENCE).unwrap_err();
    assert_eq!(error.code(), Code::Denied, "{error}");
    thread.join().unwrap();
}

/// For longer than a daemon that is there has in any case, and far shorter than for an answer.
const SHORT: Duration = Duration::from_millis(200);

/// Neither one that does not answer nor one that takes nobody.
#[test]
fn a_daemon_that_stands_still_is_waited_for_as_long_as_was_said() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    daemon.order(Order::Die);
    channel.next_event(PATIENCE).unwrap_err();
    let mut waits_at = |path: &Path| {
        std::fs::rename(path, &daemon.path).unwrap();
        let begun = Instant::now();
        let error = channel.reattach(Some(SHORT)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { awaited: Awaited::Daemon, .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    };
    let (path, thread) = common::mute();
    waits_at(&path);
    thread.join().unwrap();
    let (path, _held) = common::unreachable();
    waits_at(&path);
}

/// The daemon may be one that was stopped, and comes back to life; or, as here, another one takes
/// its place. That takes as long as an answer may.
#[test]
fn who_waits_for_ever_outlives_a_daemon_that_stands_still() {
    let mut daemon = Daemon::start();
    let (mut channel, _) = daemon.echo();
    daemon.order(Order::Die);
    channel.next_event(PATIENCE).unwrap_err();
    let (path, thread) = common::mute();
    std::fs::rename(&path, &daemon.path).unwrap();
    let waiting = std::thread::spawn(move || channel.reattach(None).map(|_| ()));
    thread.join().unwrap();
    daemon.restart();
    waiting.join().unwrap().unwrap();
}
