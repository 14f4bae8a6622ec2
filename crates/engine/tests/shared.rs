//! Connections of two hosts that share a flow, through real channels and engines.

mod world;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clearway_base::Random;
use clearway_channel::{Code, Command, OperationKind, OperationStatus};
use clearway_engine::Request;
use clearway_nic::fabric::Faults;
use clearway_wire::clearway::VERSION_STREAMS;
use world::hostile::{HOSTILE, HostilePeer};
use world::pair::restore;
use world::{App, Place, SIZES, World, address};

const PORT: u16 = 4000;

struct Pair {
    world: World,
    client: App,
    server: App,
}

impl Pair {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut world = World::new(seed, faults);
        let client = world.attach(0, SIZES);
        let server = world.attach(1, SIZES);
        world.listen(&server, PORT).expect("a free port");
        Self { world, client, server }
    }

    #[track_caller]
    fn turn_until(&mut self, mut done: impl FnMut(&mut App, &mut App) -> bool) {
        let Self { world, client, server } = self;
        world.turn_until(|_| {
            client.poll();
            server.poll();
            done(client, server)
        });
    }

    fn ask(&mut self, port: u16) {
        let peer = SocketAddr::new(address(1), port);
        self.client.submit(&Command::ConnectShared { token: 7, peer });
    }

    /// What a new connection is called at both.
    #[track_caller]
    fn connect(&mut self) -> (u64, u64) {
        self.ask(PORT);
        self.turn_until(|client, server| {
            !client.connected.is_empty() && !server.accepted.is_empty()
        });
        let near = self.client.connected.pop_front().expect("just seen");
        (near, self.server.accepted.pop_front().expect("just seen"))
    }

    /// Flows of a host that are nobody's.
    fn flows(&mut self, host: usize) -> usize {
        let flows = self.world.snapshot(host).flows;
        flows.iter().filter(|flow| flow.connection == 0).count()
    }

    #[track_caller]
    fn exchange(&mut self, (near, far): (u64, u64)) {
        assert!(self.client.send(near, b"there") && self.server.send(far, b"back"));
        self.turn_until(|client, server| {
            !client.received.is_empty() && !server.received.is_empty()
        });
        for (app, id, bytes) in
            [(&mut self.client, near, &b"back"[..]), (&mut self.server, far, b"there")]
        {
            let message = app.received.pop_front().expect("just seen");
            assert_eq!((message.connection, app.bytes(&message)), (id, bytes));
            app.release(message);
        }
    }
}

#[test]
fn connections_of_a_user_share_a_flow_and_others_have_their_own() {
    let mut pair = Pair::new(1, Faults::default());
    let all = [(); 3].map(|()| pair.connect());
    all.into_iter().for_each(|connection| pair.exchange(connection));
    assert_eq!([0, 1].map(|host| pair.flows(host)), [1, 1]);
    for host in [0, 1] {
        let flows = pair.world.snapshot(host).flows;
        let of_apps: Vec<_> = flows.iter().filter(|flow| flow.connection != 0).collect();
        assert_eq!(of_apps.len(), 3);
        assert!(of_apps.iter().all(|flow| flow.parent.is_none() && flow.path == "wire"));
        let to_port = of_apps.iter().filter(|flow| flow.peer.port() == PORT).count();
        assert_eq!(to_port, if host == 0 { 3 } else { 0 });
    }
    // Another app of the same user, one of another user, and a connection of its own.
    let other = pair.world.attach(0, SIZES);
    let alone = pair.world.attach_as(0, 4711, SIZES, 10);
    for (app, flows) in [(other, 1), (alone, 2)] {
        let first = std::mem::replace(&mut pair.client, app);
        let met = pair.connect();
        pair.exchange(met);
        assert_eq!(pair.flows(0), flows);
        pair.client = first;
    }
    let peer = SocketAddr::new(address(1), PORT);
    pair.client.submit(&Command::Connect { token: 1, peer });
    pair.turn_until(|client, server| !client.connected.is_empty() && !server.accepted.is_empty());
    assert_eq!(pair.flows(0), 2);
}

#[test]
fn the_flow_ends_with_the_last_connection_and_the_next_begins_another() {
    let mut pair = Pair::new(2, Faults::default());
    for abort in [false, true, false] {
        let all = [pair.connect(), pair.connect()];
        for (near, _) in all {
            assert_eq!(pair.flows(0), 1);
            pair.client.submit(&Command::Close { connection: near, abort });
            pair.turn_until(|client, server| {
                !client.closed.is_empty() && !server.closed.is_empty()
            });
            let far = if abort { Code::Reset } else { Code::Closed };
            assert_eq!(pair.client.closed.pop().expect("just seen"), (near, Code::Closed));
            assert_eq!(pair.server.closed.pop().expect("just seen").1, far);
        }
        while pair.flows(0) > 0 {} // each look takes turns
    }
}

#[test]
fn who_is_refused_hears_it() {
    let mut pair = Pair::new(3, Faults::default());
    pair.ask(PORT + 1);
    pair.turn_until(|client, _| !client.failed.is_empty());
    let kept = pair.connect();
    pair.world.post(1, Request::Unlisten { channel: pair.server.channel, listener: 1 });
    pair.world.turn();
    pair.ask(PORT);
    pair.turn_until(|client, _| client.failed.len() == 2);
    assert_eq!(pair.client.failed, [Code::Refused; 2]);
    pair.exchange(kept);
}

/// They have messages, and nothing else.
#[test]
fn shared_connections_have_no_streams_and_no_operations() {
    let mut pair = Pair::new(4, Faults::default());
    let (near, far) = pair.connect();
    pair.client.submit(&Command::OpenStream { token: 3, connection: near });
    pair.server.submit(&Command::OpenStream { token: 3, connection: far });
    pair.turn_until(|client, server| !client.failed.is_empty() && !server.failed.is_empty());
    assert_eq!((pair.client.failed[0], pair.server.failed[0]), (Code::Invalid, Code::Invalid));
    pair.client.submit(&Command::Ask {
        kind: OperationKind::Read as u8,
        stride: 0,
        connection: near,
        token: 1,
        region: 1,
        place: 0,
        bytes: 8,
        count: 0,
        operand: 0,
        second: 0,
    });
    pair.turn_until(|client, _| !client.operated.is_empty());
    let status = pair.client.operated.pop_front().expect("just seen").status;
    assert_eq!(status, OperationStatus::Unsupported);
    pair.client.submit(&Command::SetSilence { connection: near, silence_ms: 1000 });
    pair.exchange((near, far));
}

/// A peer that shares none has each of hundreds begun anew: some in each turn, since others wait.
#[test]
fn connections_that_cannot_share_are_begun_bit_by_bit() {
    const APPS: usize = 5;
    const OF_EACH: usize = 60;
    let mut world = World::at_switch(8, &[1]);
    let at = Place { host: 0, engine: 0 };
    let mut apps: Vec<App> = (0..APPS).map(|_| world.attach(at, SIZES)).collect();
    let mut peer = HostilePeer::serving(&mut world);
    let to = SocketAddr::new(HOSTILE, PORT);
    for token in 0..OF_EACH as u64 {
        apps.iter_mut().for_each(|app| app.submit(&Command::ConnectShared { token, peer: to }));
    }
    let mut first = Vec::new();
    while first.is_empty() {
        (0..10).for_each(|_| world.turn());
        first = peer.syns(&mut world);
    }
    peer.accept(&mut world, first[0], VERSION_STREAMS);
    let mut begun = BTreeSet::from([first[0].0]);
    while begun.len() < APPS * OF_EACH {
        let before = begun.len();
        world.turn();
        let syns = peer.syns(&mut world);
        begun.extend(syns.iter().map(|(flow, _)| *flow));
        assert!(begun.len() - before <= 32, "{} in a turn", begun.len() - before);
    }
    let connected = apps.iter_mut().map(|app| {
        app.poll();
        app.connected.len()
    });
    assert_eq!(connected.sum::<usize>(), 1, "the first has the flow");
    assert!(apps.iter().all(|app| app.failed.is_empty()));
}

/// An app that is gone takes its connections along, and leaves the other's.
#[test]
fn an_app_that_is_gone_leaves_the_others_connections() {
    let mut pair = Pair::new(5, Faults::default());
    let mut other = pair.world.attach(0, SIZES);
    std::mem::swap(&mut pair.client, &mut other);
    let gone = pair.connect();
    std::mem::swap(&mut pair.client, &mut other);
    let kept = pair.connect();
    assert_eq!(pair.flows(0), 1);
    pair.world.post(0, Request::RemoveChannel { channel: other.channel });
    pair.turn_until(|_, server| !server.closed.is_empty());
    assert_eq!(pair.server.closed, [(gone.1, Code::Reset)]);
    pair.exchange(kept);
}

/// Engines are saved and restored while connections are opened, used and closed, on bad wires.
#[test]
fn shared_flows_live_on_in_other_engines() {
    for seed in 0..40 {
        let faults = Faults {
            loss_ppm: 30_000,
            duplication_ppm: 30_000,
            reordering_ppm: 60_000,
            ..Faults::default()
        };
        let mut pair = Pair::new(seed, faults);
        let mut random = Random::new(seed);
        let mut open = vec![pair.connect()];
        let (mut sent, mut closed, mut asked) = (0, 0, 0);
        for _ in 0..60 {
            let at = random.below(open.len() as u64) as usize;
            match random.below(10) {
                0 if asked == 0 => {
                    pair.ask(PORT);
                    asked = 1;
                }
                1 if open.len() > 1 => {
                    let connection = open.swap_remove(at).0;
                    pair.client.submit(&Command::Close { connection, abort: false });
                    closed += 1;
                }
                2..=4 => restore(&mut pair.world, random.below(2) as usize),
                _ => {
                    let bytes = vec![sent as u8; random.below(20_000) as usize];
                    sent += usize::from(pair.client.send(open[at].0, &bytes));
                    pair.world.turn();
                }
            }
            pair.client.poll();
            pair.server.poll();
            if let (Some(near), Some(far)) =
                (pair.client.connected.front(), pair.server.accepted.front())
            {
                open.push((*near, *far));
                pair.client.connected.clear();
                pair.server.accepted.clear();
                asked = 0;
            }
        }
        let mut got = 0;
        pair.turn_until(|_, server| {
            while let Some(message) = server.received.pop_front() {
                server.release(message);
                got += 1;
            }
            got == sent
        });
        pair.turn_until(|client, server| {
            (client.closed.len(), server.closed.len()) == (closed, closed)
        });
        assert!(pair.client.closed.iter().all(|(_, code)| *code == Code::Closed), "seed {seed}");
    }
}
