//! Hosts with many engines over NICs with hashes of all kinds: whatever they do, apps on any two
//! engines find each other, and what they send comes straight to their engines wherever that is
//! possible.

mod world;

use clearway_base::SECOND;
use clearway_nic::fabric::{Hash, RssOptions};
use world::{App, Place, SIZES, World};

const PORT: u16 = 7000;
/// Of the first host and of the second.
const ENGINES: [usize; 2] = [3, 4];

/// Two apps that are connected, and what each has sent and received.
struct Pair {
    apps: [App; 2],
    places: [Place; 2],
    connections: [u64; 2],
    sent: [u32; 2],
    received: [u32; 2],
}

impl Pair {
    /// A client at engine `client` of the first host, a server at engine `server` of the second.
    fn connected(world: &mut World, client: usize, server: usize) -> Self {
        let places = [Place { host: 0, engine: client }, Place { host: 1, engine: server }];
        let mut apps = places.map(|place| world.attach(place, SIZES));
        world.listen(&apps[1], PORT).expect("free port");
        let [client, server] = &mut apps;
        let (at_client, at_server) = world.connect(client, server, PORT);
        Self { apps, places, connections: [at_client, at_server], sent: [0; 2], received: [0; 2] }
    }

    /// Each side sends `count` messages, which arrive once and in order.
    fn talk(&mut self, world: &mut World, count: u32) {
        let end = self.sent.map(|sent| sent + count);
        while self.received != end {
            world.turn();
            for (side, &end) in end.iter().enumerate() {
                let (app, connection) = (&mut self.apps[side], self.connections[side]);
                if self.sent[side] < end
                    && self.sent[side] - self.received[1 - side] < 4
                    && app.send(connection, &self.sent[side].to_be_bytes())
                {
                    self.sent[side] += 1;
                }
                app.poll();
                while let Some(message) = app.received.pop_front() {
                    assert_eq!(app.bytes(&message), self.received[side].to_be_bytes());
                    app.release(message);
                    self.received[side] += 1;
                }
                assert!(app.closed.is_empty(), "{:?}", app.closed);
            }
        }
    }

    /// Talks until neither side's packets take a detour, and sees that then none does.
    fn settle(&mut self, world: &mut World, what: &str) {
        let patience = world.now + SECOND;
        while self.detours(world) != [false, false] {
            assert!(world.now < patience, "{what}: still on a detour");
            self.talk(world, 500);
        }
        let before = by_lane(world);
        self.talk(world, 500);
        assert_eq!(by_lane(world), before, "{what}");
    }

    fn detours(&self, world: &mut World) -> Vec<bool> {
        let flows = self.places.iter().map(|place| world.snapshot(*place).flows);
        flows.map(|flows| flows.iter().any(|flow| flow.detour)).collect()
    }
}

/// Packets that any engine has got by a lane.
fn by_lane(world: &mut World) -> u64 {
    let engines = |host| (0..ENGINES[host]).map(move |engine| Place { host, engine });
    let places: Vec<Place> = (0..2).flat_map(engines).collect();
    places.into_iter().map(|place| world.counter(place, "received_by_lane")).sum()
}

#[test]
fn whatever_the_hash_is_apps_on_any_engines_meet_and_packets_come_straight() {
    for (name, hash) in Hash::ALL {
        let is_hopeless = matches!(hash, Hash::NoSourcePort | Hash::Destination);
        for (client, server) in [(0, 0), (1, 2), (2, 3)] {
            let rss = RssOptions { hash, ..RssOptions::default() };
            let mut world = World::with_rss(client as u64 + 1, &ENGINES, rss);
            let mut pair = Pair::connected(&mut world, client, server);
            pair.talk(&mut world, 500);
            if !is_hopeless {
                pair.settle(&mut world, &format!("{name}, {client} to {server}"));
            }
        }
    }
}

#[test]
fn a_new_key_in_the_middle_of_a_conversation_loses_nothing() {
    let mut world = World::at_switch(9, &ENGINES);
    let mut pair = Pair::connected(&mut world, 1, 2);
    for round in 0..8 {
        world.fabric.rekey(round % 2);
        pair.talk(&mut world, 100);
        pair.settle(&mut world, &format!("round {round}"));
    }
}

/// All packets to a host come to one of its engines: the others get theirs from it, and say so.
#[test]
fn a_hash_of_addresses_alone_leaves_flows_on_a_detour_that_status_shows() {
    let rss = RssOptions { hash: Hash::Destination, ..RssOptions::default() };
    let mut direct = 0;
    for client in 0..ENGINES[0] {
        for server in 0..ENGINES[1] {
            let mut world = World::with_rss(5, &ENGINES, rss);
            let mut pair = Pair::connected(&mut world, client, server);
            pair.talk(&mut world, 500);
            let detours = pair.detours(&mut world);
            assert_eq!(detours[0], detours[1], "{client} to {server}: both ends know");
            direct += usize::from(!detours[0]);
        }
    }
    assert_eq!(direct, 1, "only between the engines whose queues are where all packets come");
}
