//! A NIC that is asked by a system call what has come, and what it is not asked.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clearway_engine::Turn;
use clearway_nic::fabric::Faults;
use clearway_nic::{Capabilities, Info, Queue, Sink, Transmit};
use world::{App, SIZES, World, as_inner};

const PORT: u16 = 7000;

/// A queue that counts how often it is asked.
struct Asked {
    queue: Box<dyn Queue>,
    looks: Arc<AtomicUsize>,
    receive_is_call: bool,
}

impl Queue for Asked {
    fn capabilities(&self) -> Capabilities {
        let receive_is_call = self.receive_is_call;
        Capabilities { receive_is_call, ..self.queue.capabilities() }
    }

    fn info(&self) -> Info {
        self.queue.info()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.queue.receive(budget, sink)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.queue.transmit(fill)
    }

    as_inner!();
}

/// A world with such queues, whose two apps have met, the connection of the first, and how often
/// the queues have been asked.
fn met(receive_is_call: bool) -> (World, [App; 2], u64, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let wrap = |queue| -> Box<dyn Queue> {
        Box::new(Asked { queue, looks: looks.clone(), receive_is_call })
    };
    let mut world = World::with_queues(7, Faults::default(), wrap);
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, PORT).expect("free");
    let (connection, _) = world.connect(&mut client, &mut server, PORT);
    (world, [client, server], connection, looks)
}

/// Turns of the first host, in each of which its app has something to send: in which of them its
/// queue was asked.
fn looks_while_sending(receive_is_call: bool) -> Vec<usize> {
    let (mut world, [mut client, _server], connection, looks) = met(receive_is_call);
    world.turn_alone(0);
    let mut asked = || {
        let before = looks.load(Ordering::Relaxed);
        assert!(client.send(connection, b"hello"));
        world.turn_alone(0);
        looks.load(Ordering::Relaxed) - before
    };
    (0..4).map(|_| asked()).collect()
}

#[test]
fn what_an_app_sends_leaves_before_the_kernel_is_asked() {
    assert_eq!(looks_while_sending(true), [0, 1, 0, 1]);
    assert_eq!(looks_while_sending(false), [1, 1, 1, 1], "to look at memory costs nothing");
}

/// The turn in which an app is told of a message.
fn turn_that_tells(receive_is_call: bool) -> Turn {
    let (mut world, [mut client, _server], connection, _) = met(receive_is_call);
    assert!(client.send(connection, b"hello"));
    for _ in 0..100 {
        world.turn_alone(0);
        let now = world.now;
        let turn = world.hosts[1].members[0].engine.turn(now);
        if turn.told_apps {
            return turn;
        }
    }
    panic!("the message has not arrived");
}

#[test]
fn an_engine_says_that_another_look_would_be_a_call_for_nothing() {
    assert!(turn_that_tells(true).is_empty);
    assert!(!turn_that_tells(false).is_empty);
}
