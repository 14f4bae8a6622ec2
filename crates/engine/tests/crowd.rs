//! Many apps on one engine, most of them silent.

mod world;

use clearway_base::MILLISECOND;
use clearway_channel::Sizes;
use clearway_engine::{Event, Request};
use clearway_nic::fabric::Faults;
use world::{App, SIZES, World};

const APPS: usize = 100;
const SMALL: Sizes = Sizes {
    submission_entries: 16,
    completion_entries: 16,
    transmit_pool_bytes: 1 << 16,
    receive_pool_bytes: 1 << 16,
    shared_bytes: 0,
};

#[test]
fn silent_apps_are_parked_and_heard_when_they_ring() {
    let mut crowd = Crowd::new();
    crowd.rest();
    assert!(crowd.world.snapshot(0).channels_parked >= 80);
    for index in 0..APPS {
        let (near, far) = crowd.connections[index];
        assert!(crowd.apps[index].send(near, &[index as u8; 100]));
        let server = &mut crowd.server;
        crowd.world.turn_until(|_| {
            server.poll();
            !server.received.is_empty()
        });
        let received = server.received.pop_front().expect("just seen");
        assert_eq!((received.connection, server.bytes(&received)[0]), (far, index as u8));
        server.release(received);
    }
}

#[test]
fn a_parked_app_hears_what_comes_for_it() {
    let mut crowd = Crowd::new();
    crowd.rest();
    for index in 0..APPS {
        let far = crowd.connections[index].1;
        assert!(crowd.server.send(far, &[7; 10]));
        let app = &mut crowd.apps[index];
        crowd.world.turn_until(|_| {
            app.poll();
            !app.received.is_empty()
        });
    }
    crowd.rest();
    assert!(crowd.world.snapshot(0).channels_parked >= 80, "they are parked again");
}

#[test]
fn a_parked_app_that_dies_is_gone() {
    let mut crowd = Crowd::new();
    crowd.rest();
    let channels: Vec<u32> = crowd.apps.iter().map(|app| app.channel).collect();
    for channel in channels {
        crowd.world.post(0, Request::RemoveChannel { channel });
    }
    assert_eq!(crowd.world.snapshot(0).channels_parked, 0);
    let server = &mut crowd.server;
    crowd.world.turn_until(|_| {
        server.poll();
        server.closed.len() == APPS
    });
}

#[test]
fn an_engine_ends_only_when_it_has_told_of_all_its_apps() {
    let mut crowd = Crowd::new();
    let host = &mut crowd.world.hosts[0].members[0];
    host.control.post(Request::Shutdown).expect("the mailbox is free");
    let mut removed = 0;
    for turn in 0..APPS {
        host.engine.turn(crowd.world.now);
        // The control plane is slow, and more has happened than it has room for.
        if turn > 10 {
            while let Some(event) = host.control.next_event() {
                removed += usize::from(matches!(event, Event::ChannelRemoved { .. }));
                assert!(!matches!(event, Event::Ended) || removed == APPS);
            }
        }
        if host.engine.has_ended() {
            break;
        }
    }
    assert!(host.engine.has_ended());
    while let Some(event) = host.control.next_event() {
        removed += usize::from(matches!(event, Event::ChannelRemoved { .. }));
    }
    assert_eq!(removed, APPS);
}

/// Apps on host 0, each connected to one server on host 1.
struct Crowd {
    world: World,
    apps: Vec<App>,
    server: App,
    connections: Vec<(u64, u64)>,
}

impl Crowd {
    fn new() -> Self {
        let mut world = World::new(9, Faults::default());
        // All of them come from one host, which never gets all places.
        let mut server = world.attach_with(1, SIZES, 2 * APPS as u32);
        world.listen(&server, 7000).expect("free");
        let mut apps: Vec<App> = (0..APPS).map(|_| world.attach(0, SMALL)).collect();
        let connections =
            apps.iter_mut().map(|app| world.connect(app, &mut server, 7000)).collect();
        Self { world, apps, server, connections }
    }

    /// Nobody says anything for some milliseconds.
    fn rest(&mut self) {
        let end = self.world.now + 5 * MILLISECOND;
        self.world.turn_until(|world| world.now >= end);
    }
}
