//! What other threads drop while the channel's own thread waits, for just this: memory that they
//! have.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_client::{Channel, ConnectionId, Error, Event, Message, SendBuffer, Waiting};
use common::engine::Engine;
use common::{Daemon, ECHO, NOW, Order, PATIENCE, address, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const WAYS: [Waiting; 4] = [Waiting::Spin, Waiting::Yield, Waiting::Block, Waiting::Adaptive];

/// Half of what the channel has in each direction.
const LARGE: usize = 1 << 17;

/// Drops it in another thread, when the own one waits.
fn drop_elsewhere<T: Send + 'static>(held: T) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
    });
}

/// So many messages that there is no room for the next one, which is on its way.
fn fill(channel: &mut Channel, connection: ConnectionId) -> [Message; 2] {
    let messages = [(); 2].map(|()| {
        channel.send(connection, &[7; LARGE]).unwrap();
        channel.recv_zero_copy(PATIENCE).unwrap()
    });
    channel.send(connection, &[8; LARGE]).unwrap();
    messages
}

/// All of the memory for sending.
fn take_room(channel: &mut Channel) -> [SendBuffer; 2] {
    let buffers = [(); 2].map(|()| channel.send_buffer(LARGE, PATIENCE).unwrap());
    assert!(matches!(channel.send_buffer(LARGE, NOW), Err(Error::WouldBlock)));
    buffers
}

/// Waits on the channel's descriptor until there is an event.
fn event_by_descriptor(channel: &mut Channel) -> Event {
    for _ in 0..1000 {
        if channel.arm() {
            let timeout = Timespec { tv_sec: PATIENCE.unwrap().as_secs() as i64, tv_nsec: 0 };
            let mut waiting = [PollFd::new(channel, PollFlags::IN)];
            assert_eq!(poll(&mut waiting, Some(&timeout)), Ok(1), "nothing wakes it");
        }
        channel.disarm();
        match channel.next_event(NOW) {
            Err(Error::WouldBlock) => {}
            event => return event.unwrap(),
        }
    }
    panic!("the descriptor does not become quiet again");
}

#[test]
fn who_waits_for_a_message_gives_back_what_is_dropped_elsewhere() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
        for _ in 0..2 {
            drop_elsewhere(fill(&mut channel, connection));
            let message = channel.recv_zero_copy(PATIENCE).unwrap();
            assert_eq!((message.len(), message[0]), (LARGE, 8), "{waiting:?}");
        }
    }
}

#[test]
fn who_waits_for_room_has_that_of_buffers_that_are_dropped_elsewhere() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        drop_elsewhere(take_room(&mut channel));
        assert_eq!(channel.send_buffer(LARGE, PATIENCE).unwrap().len(), LARGE, "{waiting:?}");
    }
}

/// Also if it never sleeps.
#[test]
fn who_waits_for_events_is_told_of_room_that_is_made_elsewhere() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        drop_elsewhere(take_room(&mut channel));
        let event = channel.next_event(PATIENCE).unwrap();
        assert!(matches!(event, Event::Writable), "{waiting:?}: {event:?}");
        drop(take_room(&mut channel));
        eventually(|| matches!(channel.next_event(NOW), Ok(Event::Writable)));
    }
    let (mut channel, _engine) = Engine::start();
    let all = channel.send_buffer(channel.sizes().transmit_pool_bytes as usize, NOW).unwrap();
    assert!(matches!(channel.send_buffer(1, NOW), Err(Error::WouldBlock)));
    drop_elsewhere(all);
    assert!(matches!(channel.next_event(PATIENCE), Ok(Event::Writable)));
}

#[test]
fn who_waits_for_the_descriptor_is_woken_by_what_is_dropped_elsewhere() {
    let mut daemon = Daemon::start();
    let mut channel = daemon.attach();
    is_woken_by_descriptor(&mut channel);
    // The next daemon's channel is another one, under the same descriptor.
    daemon.order(Order::Die);
    channel.next_event(PATIENCE).unwrap_err();
    let waiting = std::thread::spawn(move || (channel.reattach(PATIENCE).unwrap(), channel));
    daemon.restart();
    is_woken_by_descriptor(&mut waiting.join().unwrap().1);
}

fn is_woken_by_descriptor(channel: &mut Channel) {
    let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
    drop_elsewhere(fill(channel, connection));
    let event = event_by_descriptor(channel);
    assert!(matches!(event, Event::Message(_)), "{event:?}");
    drop(event);
    drop_elsewhere(take_room(channel));
    let event = event_by_descriptor(channel);
    assert!(matches!(event, Event::Writable), "{event:?}");
}

/// Who keeps things for others goes by a hint while it is sure to be asked again.
#[test]
fn only_the_last_look_before_a_sleep_is_said_to_be_one() {
    for waiting in WAYS {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let looks = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&looks);
        channel.collect_by(move |_, sleeps| noted.lock().unwrap().push(sleeps));
        channel.next_event(Some(Duration::from_millis(100))).unwrap_err();
        let looks = std::mem::take(&mut *looks.lock().unwrap());
        let sleeps = matches!(waiting, Waiting::Block | Waiting::Adaptive);
        assert!(!looks.is_empty() && looks.contains(&true) == sleeps, "{waiting:?}: {looks:?}");
        assert!(channel.arm());
        channel.disarm();
    }
}

/// It sleeps on its own descriptors, so nobody can wake it.
#[test]
fn an_engine_of_the_own_thread_looks_often_while_somebody_has_a_buffer() {
    let (mut channel, engine) = Engine::start();
    let longest = |channel: &mut Channel| {
        channel.recv(&mut [0; 8], Some(Duration::from_millis(50))).unwrap_err();
        engine.naps().into_iter().max().flatten().expect("it sleeps")
    };
    let buffer = channel.send_buffer(8, NOW).unwrap();
    assert!(longest(&mut channel) <= Duration::from_millis(1));
    drop(buffer);
    assert!(longest(&mut channel) > Duration::from_millis(1));
}
