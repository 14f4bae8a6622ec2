//! Apps that want more than their share: everybody else goes on, and what they can make the engine
//! keep has bounds.

mod world;

use std::net::{IpAddr, SocketAddr};

use clearway_base::SECOND;
use clearway_channel::{Code, Command};
use clearway_engine::{Event, Request, Snapshot};
use clearway_nic::fabric::Faults;
use world::{App, SIZES, World, address};

/// Two apps on two hosts connect and exchange a message.
#[track_caller]
fn assert_others_go_on(world: &mut World, port: u16) {
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, port).expect("free");
    let (near, _) = world.connect(&mut client, &mut server, port);
    assert!(client.send(near, b"undisturbed"));
    world.turn_until(|_| {
        server.poll();
        !server.received.is_empty()
    });
}

fn messages_waiting(snapshot: &Snapshot, app: &App) -> u64 {
    let mut channels = snapshot.channels.iter();
    channels.find(|channel| channel.channel == app.channel).expect("attached").messages_waiting
}

/// Each attempt fails at once and wants to be told, and the app reads nothing.
#[test]
fn an_app_that_asks_and_never_reads_finds_its_ring_full() {
    let mut world = World::new(1, Faults::default());
    let mut hostile = world.attach(0, SIZES);
    let peer = SocketAddr::new(address(0), 7000); // nobody listens there
    let mut asked = 0;
    for _ in 0..1000 {
        while hostile.end.has_room() {
            hostile.submit(&Command::Connect { token: asked, peer });
            asked += 1;
        }
        world.turn();
    }
    let waiting = messages_waiting(&world.snapshot(0), &hostile);
    assert!((4096..4096 + 64).contains(&waiting), "{waiting}");
    assert_others_go_on(&mut world, 7000);
    // It reads at last, and has an answer to everything.
    world.turn_until(|_| {
        hostile.poll();
        hostile.failed.len() as u64 == asked
    });
}

/// More connections than packets leave in one turn, and than answers to strangers may wait.
#[test]
fn the_end_of_an_app_or_of_a_host_resets_every_connection() {
    const CONNECTIONS: u32 = 1100;
    for is_host in [false, true] {
        let mut world = World::new(2, Faults::default());
        // Of its places one host gets seven eighths.
        let mut server = world.attach_with(1, SIZES, CONNECTIONS * 8 / 7 + 1);
        let mut client = world.attach_with(0, SIZES, CONNECTIONS);
        world.listen(&server, 7000).expect("free");
        let peer = SocketAddr::new(address(1), 7000);
        let mut asked = 0;
        world.turn_until(|_| {
            if asked < CONNECTIONS && client.end.has_room() {
                client.submit(&Command::Connect { token: 1, peer });
                asked += 1;
            }
            client.poll();
            server.poll();
            client.connected.len() == CONNECTIONS as usize
        });
        let end = match is_host {
            true => Request::Shutdown,
            false => Request::RemoveChannel { channel: client.channel },
        };
        world.post(0, end);
        let began = world.now;
        world.turn_until(|_| {
            server.poll();
            server.closed.len() == CONNECTIONS as usize
        });
        assert!(world.now.since(began) < SECOND, "some were told nothing");
        assert!(server.closed.iter().all(|(_, code)| *code == Code::Reset));
        assert_eq!(world.hosts[0].members[0].engine.has_ended(), is_host);
    }
}

/// An address on the link that nobody has.
fn silent(number: u16) -> SocketAddr {
    let address = [10, 7, 1 + (number / 200) as u8, 10 + (number % 200) as u8];
    SocketAddr::from((address, 7000))
}

/// Each neighbour is asked for, and remembered, for seconds.
#[test]
fn an_app_that_connects_to_silent_neighbours_is_told_when_there_are_too_many() {
    let mut world = World::new(3, Faults::default());
    let mut hostile = world.attach_as(0, 66, SIZES, 4096);
    world.set_prefix_bits(0, 16);
    for number in 0..1000 {
        hostile.submit(&Command::Connect { token: number.into(), peer: silent(number) });
        world.turn();
        hostile.poll();
    }
    let refused = hostile.failed.iter().filter(|code| **code == Code::Limit).count();
    assert_eq!(refused, 1000 - 1024 / 2, "half of the places, as nobody else wants one");
    assert_others_go_on(&mut world, 7000);
    let waiting = 1000 - refused;
    world.turn_until(|_| {
        hostile.poll();
        hostile.failed.len() == 1000
    });
    let given_up = hostile.failed.iter().filter(|code| **code == Code::Unreachable).count();
    assert_eq!(given_up, waiting);
    // And then it may ask again.
    hostile.submit(&Command::Connect { token: 0, peer: silent(900) });
    world.turn();
    hostile.poll();
    assert_eq!(hostile.failed.len(), 1000, "{:?}", hostile.failed.last());
}

/// One user with many channels goes on asking for silent neighbours. Others connect to neighbours
/// that they have not met before, at once.
#[test]
fn a_user_that_asks_for_silent_neighbours_leaves_places_for_others() {
    const CHANNELS: usize = 6;
    const OTHERS: u8 = 20;
    let mut world = World::new(6, Faults::default());
    world.set_prefix_bits(0, 16);
    let fresh = |number: u8| IpAddr::from([10, 7, 200, number]);
    let addresses = (0..OTHERS).map(|number| (fresh(number), 16)).chain([(address(1), 16)]);
    world.set_addresses(1, addresses.collect());
    let mut hostile: Vec<App> =
        (0..CHANNELS).map(|_| world.attach_as(0, 66, SIZES, 4096)).collect();
    let (mut next, mut refused) = (0, 0);
    let mut attack = |world: &mut World| {
        for app in &mut hostile {
            for _ in 0..8 {
                next = (next + 1) % 30_000;
                app.submit(&Command::Connect { token: 1, peer: silent(next) });
            }
            app.poll();
            refused += app.failed.drain(..).filter(|code| *code == Code::Limit).count();
        }
        world.turn();
    };
    for number in 0..OTHERS {
        (0..200).for_each(|_| attack(&mut world));
        let user = 1000 + u32::from(number);
        let mut client = world.attach_as(0, user, SIZES, 64);
        let mut server = world.attach(1, SIZES);
        let port = 7000 + u16::from(number);
        world.listen(&server, port).expect("free");
        let peer = SocketAddr::new(fresh(number), port);
        client.submit(&Command::Connect { token: 1, peer });
        let start = world.now;
        while client.connected.is_empty() {
            attack(&mut world);
            client.poll();
            server.poll();
            assert!(client.failed.is_empty(), "{number}: {:?}", client.failed);
            assert!(world.now.since(start) < SECOND / 100, "{number} waits");
        }
        world.now = world.now + SECOND; // the silent are asked again, and given up
    }
    assert!(refused > 10_000, "it asked for no more than it may have");
}

/// Its status takes more than one turn.
#[test]
fn status_of_many_connections_is_told_over_turns() {
    const CONNECTIONS: u32 = 1000;
    let mut world = World::new(5, Faults::default());
    let mut app = world.attach_with(0, SIZES, 2 * CONNECTIONS);
    world.listen(&app, 7000).expect("free");
    for _ in 0..CONNECTIONS {
        app.submit(&Command::Connect { token: 1, peer: SocketAddr::new(address(0), 7000) });
        world.turn();
        app.poll();
    }
    world.post(0, Request::Snapshot { id: 1 });
    let is_answer = |event: &Event| matches!(event, Event::Snapshot { .. });
    let answered = |world: &World| world.hosts[0].members[0].events.iter().any(is_answer);
    assert!(!answered(&world), "all in one turn");
    (0..20).for_each(|_| world.turn());
    assert!(answered(&world));
    let snapshot = world.snapshot(0);
    assert_eq!(snapshot.flows.len() as u32, 2 * CONNECTIONS);
    assert!(snapshot.flows.iter().all(|flow| flow.path == "local"));
}

/// The place of an attempt that was closed is another's when its neighbour answers.
#[test]
fn an_attempt_that_was_closed_is_not_continued_in_the_place_of_another() {
    let mut world = World::new(4, Faults::default());
    let (mut client, server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let peer = |host| SocketAddr::new(address(host), 7000);
    client.submit(&Command::Connect { token: 1, peer: peer(1) });
    // The id of the first connection, which it has not been told.
    client.submit(&Command::Close { connection: 1 << 32, abort: true });
    client.submit(&Command::Connect { token: 2, peer: peer(9) });
    world.turn_until(|_| {
        client.poll();
        client.failed.len() == 2
    });
    assert_eq!(client.failed, [Code::Closed, Code::Unreachable]);
    assert!(client.connected.is_empty());
}
