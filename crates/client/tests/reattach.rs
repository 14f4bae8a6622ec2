//! A daemon that goes and comes back.

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use clearway_client::{Awaited, Code, Ended, Error, Event, Unposted};
use common::{Daemon, ECHO, NOW, Order, PATIENCE, address, eventually};
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
