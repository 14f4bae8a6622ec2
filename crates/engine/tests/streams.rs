//! Streams of connections between apps of two hosts and of one, through real channels and engines.

mod world;

use clearway_base::Random;
use clearway_channel::{Code, Command, OperationKind, OperationStatus};
use clearway_engine::Request;
use clearway_nic::fabric::Faults;
use world::pair::restore;
use world::{App, SIZES, World};

const PORT: u16 = 4000;

/// A connection between two apps, the server on another host or on the same.
struct Pair {
    world: World,
    client: App,
    server: App,
    /// What the connection is called at both.
    parent: (u64, u64),
}

impl Pair {
    fn new(server_host: usize, seed: u64, faults: Faults) -> Self {
        let mut pair = Self::shy(server_host, seed, faults);
        for app in [&mut pair.client, &mut pair.server] {
            app.submit(&Command::TakeStreams { are_taken: true });
        }
        pair.world.turn();
        pair
    }

    /// One whose apps take no streams.
    fn shy(server_host: usize, seed: u64, faults: Faults) -> Self {
        let mut world = World::new(seed, faults);
        let mut client = world.attach(0, SIZES);
        let mut server = world.attach(server_host, SIZES);
        world.listen(&server, PORT).expect("a free port");
        let parent = world.connect(&mut client, &mut server, PORT);
        Self { world, client, server, parent }
    }

    #[track_caller]
    fn turn_until(&mut self, mut done: impl FnMut(&mut App, &mut App) -> bool) {
        let Self { world, client, server, .. } = self;
        world.turn_until(|_| {
            client.poll();
            server.poll();
            done(client, server)
        });
    }

    fn ask_for_stream(&mut self) {
        self.client.submit(&Command::OpenStream { token: 7, connection: self.parent.0 });
    }

    /// What a new stream of the client's is called at both.
    #[track_caller]
    fn open(&mut self) -> (u64, u64) {
        self.ask_for_stream();
        self.turn_until(|client, server| {
            !client.connected.is_empty() && !server.streams.is_empty()
        });
        let (stream, parent) = self.server.streams.pop_front().expect("just seen");
        assert_eq!(parent, self.parent.1);
        (self.client.connected.pop_front().expect("just seen"), stream)
    }

    /// The code of the attempt of a stream that comes to nothing.
    #[track_caller]
    fn fail_to_open(&mut self) -> Code {
        self.ask_for_stream();
        self.turn_until(|client, _| !client.failed.is_empty());
        self.client.failed.pop().expect("just seen")
    }

    fn close(&mut self, connection: u64, abort: bool) {
        self.client.submit(&Command::Close { connection, abort });
    }

    #[track_caller]
    fn both_are_closed(&mut self, expected: [(u64, Code); 2]) {
        self.turn_until(|client, server| !client.closed.is_empty() && !server.closed.is_empty());
        assert_eq!(self.client.closed, [expected[0]]);
        assert_eq!(self.server.closed, [expected[1]]);
    }
}

fn of(host: u8) -> [u8; 3000] {
    [host; 3000]
}

#[test]
fn messages_go_both_ways() {
    for server_host in [1, 0] {
        let mut pair = Pair::new(server_host, 1, Faults::default());
        let streams = [pair.open(), pair.open()];
        for (near, far) in streams.into_iter().chain([pair.parent]) {
            assert!(pair.client.send(near, &of(1)) && pair.server.send(far, &of(2)));
            pair.turn_until(|client, server| {
                !client.received.is_empty() && !server.received.is_empty()
            });
            for (app, id, bytes) in
                [(&mut pair.client, near, of(2)), (&mut pair.server, far, of(1))]
            {
                let message = app.received.pop_front().expect("just seen");
                assert_eq!((message.connection, app.bytes(&message)), (id, &bytes[..]));
                app.release(message);
            }
        }
        pair.turn_until(|client, server| client.unfinished() + server.unfinished() == 0);
    }
}

/// Who has never heard of streams is not bothered with any.
#[test]
fn who_takes_no_streams_gets_none() {
    let mut pair = Pair::shy(1, 2, Faults::default());
    pair.ask_for_stream();
    pair.turn_until(|client, _| !client.closed.is_empty());
    let stream = pair.client.connected.pop_front().expect("it was opened here");
    assert_eq!(pair.client.closed, [(stream, Code::Refused)]);
    let mut pair = Pair::shy(0, 3, Faults::default());
    assert_eq!(pair.fail_to_open(), Code::Refused);
    for pair in [&mut Pair::shy(1, 4, Faults::default()), &mut Pair::shy(0, 5, Faults::default())] {
        pair.server.submit(&Command::TakeStreams { are_taken: true });
        pair.world.turn();
        pair.open();
        pair.server.submit(&Command::TakeStreams { are_taken: false });
        pair.world.turn();
        pair.ask_for_stream();
        pair.turn_until(|client, _| !client.closed.is_empty() || !client.failed.is_empty());
        assert!(pair.server.streams.is_empty());
    }
}

#[test]
fn only_connections_have_streams_and_streams_only_messages() {
    for server_host in [1, 0] {
        let mut pair = Pair::new(server_host, 6, Faults::default());
        let parent = pair.parent;
        let (stream, _) = pair.open();
        let ask = Command::Ask {
            kind: OperationKind::Read as u8,
            stride: 0,
            connection: stream,
            token: 1,
            region: 1,
            place: 0,
            bytes: 8,
            count: 0,
            operand: 0,
            second: 0,
        };
        pair.client.submit(&ask);
        pair.turn_until(|client, _| !client.operated.is_empty());
        let status = pair.client.operated.pop_front().expect("just seen").status;
        assert_eq!(status, OperationStatus::Unsupported);
        for (connection, code) in [(stream, Code::Invalid), (77 << 32, Code::Closed)] {
            pair.parent.0 = connection;
            assert_eq!(pair.fail_to_open(), code);
        }
        pair.parent = parent;
        pair.close(parent.0, false);
        assert_eq!(pair.fail_to_open(), Code::Closed);
    }
}

#[test]
fn a_stream_ends_alone() {
    for server_host in [1, 0] {
        for (abort, code) in [(false, Code::Closed), (true, Code::Reset)] {
            let mut pair = Pair::new(server_host, 7, Faults::default());
            let stream = pair.open();
            assert!(pair.client.send(stream.0, &of(1)));
            pair.close(stream.0, abort);
            pair.both_are_closed([(stream.0, Code::Closed), (stream.1, code)]);
            if !abort {
                assert_eq!(pair.server.received.len(), 1, "what was sent before");
            }
            pair.server.received.drain(..).for_each(drop);
            let again = pair.open();
            assert_ne!(again, stream);
            assert!(pair.client.send(pair.parent.0, &of(1)));
            pair.turn_until(|_, server| !server.received.is_empty());
        }
    }
}

#[test]
fn a_connection_takes_its_streams_along() {
    for server_host in [1, 0] {
        for abort in [false, true] {
            let mut pair = Pair::new(server_host, 8, Faults::default());
            let streams = [pair.open(), pair.open(), pair.parent];
            for _ in 0..10 {
                assert!(streams.iter().all(|(near, _)| pair.client.send(*near, &of(1))));
            }
            pair.close(pair.parent.0, abort);
            pair.turn_until(|client, server| client.closed.len() + server.closed.len() == 6);
            let ended = |app: &App, id: u64| {
                let all = app.closed.iter().filter(|(closed, _)| *closed == id);
                all.map(|(_, code)| *code).collect::<Vec<_>>()
            };
            for (near, far) in streams {
                let is_parent = near == pair.parent.0;
                let near_code = if abort && !is_parent { Code::Reset } else { Code::Closed };
                let far_code = if abort { Code::Reset } else { Code::Closed };
                assert_eq!(ended(&pair.client, near), [near_code]);
                assert_eq!(ended(&pair.server, far), [far_code]);
            }
            if !abort {
                assert_eq!(pair.server.received.len(), 30, "what was sent before");
                assert_eq!(pair.client.closed[2].0, pair.parent.0, "the connection is the last");
            }
        }
    }
}

/// Streams of an app that is gone end with it, and of its peer's nothing is left.
#[test]
fn streams_end_with_their_apps() {
    for server_host in [1, 0] {
        let mut pair = Pair::new(server_host, 9, Faults::default());
        let streams = [pair.open(), pair.open()];
        streams.iter().for_each(|(near, _)| assert!(pair.client.send(*near, &of(1))));
        let channel = pair.client.channel;
        pair.world.post(0, Request::RemoveChannel { channel });
        let Pair { world, server, .. } = &mut pair;
        world.turn_until(|_| {
            server.poll();
            server.closed.len() == 3
        });
        assert!(pair.server.closed.iter().all(|(_, code)| *code == Code::Reset));
    }
}

/// While a message of eight megabytes is under way, those of other streams come and go.
#[test]
fn a_large_message_holds_up_no_other_stream() {
    let mut pair = Pair::new(1, 10, Faults::default());
    let (large, small) = (pair.open(), pair.open());
    assert!(pair.client.send(large.0, &vec![1; 8 << 20]));
    assert!(pair.client.send(small.0, &[2; 1000]));
    pair.turn_until(|_, server| !server.received.is_empty());
    let first = pair.server.received.pop_front().expect("just seen");
    assert_eq!(first.connection, small.1);
    pair.server.release(first);
    pair.turn_until(|_, server| !server.received.is_empty());
    let second = pair.server.received.pop_front().expect("just seen");
    assert_eq!((second.connection, pair.server.bytes(&second).len()), (large.1, 8 << 20));
}

/// What is urgent overtakes what was sent before it, and the rest goes by weight.
#[test]
fn streams_have_priorities() {
    let mut pair = Pair::new(1, 12, Faults::default());
    let (calm, urgent) = (pair.open(), pair.open());
    for (connection, urgency, weight) in
        [(calm.0, 3, 48), (urgent.0, 0, 1), (calm.0, 8, 1), (urgent.0, 7, 0), (77 << 32, 0, 1)]
    {
        pair.client.submit(&Command::SetPriority { connection, urgency, weight });
    }
    for (connection, messages) in [(pair.parent.0, 30), (calm.0, 30), (urgent.0, 20)] {
        assert!((0..messages).all(|_| pair.client.send(connection, &of(1))));
    }
    pair.turn_until(|_, server| server.received.len() == 80);
    let came: Vec<u64> = pair.server.received.iter().map(|message| message.connection).collect();
    let last = |id: u64| came.iter().rposition(|other| *other == id).expect("it came");
    assert!(last(urgent.1) < 30, "but for what left before it was submitted");
    let of_parent = came[..last(calm.1)].iter().filter(|id| **id == pair.parent.1).count();
    assert!((8..16).contains(&of_parent), "{of_parent}: a third of 30");
}

/// Messages of an app that takes them as they come, over a bad wire and through engines that are
/// saved and restored: each once, and some before others. Within a host they come in order.
#[test]
fn messages_may_come_in_any_order() {
    let mut overtakings = 0;
    for (seed, server_host) in (0..20).flat_map(|seed| [(seed, 1), (seed, 0)]) {
        let faults = Faults { loss_ppm: 50_000, ..Faults::default() };
        let mut pair = Pair::new(server_host, seed, faults);
        for connection in [pair.parent.1, 77 << 32] {
            pair.server.submit(&Command::SetUnordered { connection });
        }
        pair.world.turn();
        for nth in 0..60_u32 {
            let bytes = nth.to_be_bytes().repeat(1 + 500 * (nth as usize % 2));
            assert!(pair.client.send(pair.parent.0, &bytes));
            if nth % 20 == 0 {
                restore(&mut pair.world, nth as usize / 20 % 2);
            }
            pair.world.turn();
        }
        let mut came = Vec::new();
        pair.turn_until(|_, server| {
            while let Some(message) = server.received.pop_front() {
                let bytes = server.bytes(&message);
                came.push(u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")));
                assert!(bytes.chunks(4).all(|part| part == &bytes[..4]));
                server.release(message);
            }
            came.len() == 60
        });
        overtakings += usize::from(!came.is_sorted());
        assert!(server_host == 1 || came.is_sorted());
        came.sort_unstable();
        assert!(came.into_iter().eq(0..60), "seed {seed}");
    }
    assert!(overtakings > 5, "{overtakings}");
}

/// Engines are saved and restored while streams are opened, used and closed, on bad wires.
/// Each is told of with its own messages and the connection whose stream it is, and packets once.
#[test]
fn status_tells_of_streams() {
    for server_host in [0, 1] {
        let mut pair = Pair::new(server_host, 31, Faults::default());
        let streams = [pair.open(), pair.open()];
        assert!((0..3).all(|_| pair.client.send(streams[0].0, b"to one")));
        assert!(pair.client.send(streams[1].0, b"to the other"));
        pair.turn_until(|client, server| server.received.len() == 4 && client.unfinished() == 0);
        let (client, server) = (pair.client.channel, pair.server.channel);
        let ends = [(0, client, 0), (server_host, server, 1)];
        for (host, channel, end) in ends {
            let of = |(near, far): (u64, u64)| if end == 0 { near } else { far };
            let flows = pair.world.snapshot(host).flows;
            let flow = |id: u64| {
                let mut found = flows.iter().filter(|flow| flow.channel == channel);
                found.find(|flow| flow.connection == id).expect("told of")
            };
            let parent = flow(of(pair.parent));
            assert_eq!((parent.parent, parent.messages_sent + parent.messages_received), (None, 0));
            for (stream, messages) in streams.into_iter().zip([3, 1]) {
                let stream = flow(of(stream));
                let counts = if end == 0 { (messages, 0) } else { (0, messages) };
                assert_eq!((stream.messages_sent, stream.messages_received), counts);
                assert_eq!(stream.parent, Some(parent.connection));
                assert_eq!((stream.path, stream.peer), (parent.path, parent.peer));
                assert_eq!(stream.setup_packets, 0);
            }
        }
    }
}

#[test]
fn streams_live_on_in_other_engines() {
    for (seed, server_host) in (0..40).flat_map(|seed| [(seed, 1), (seed, 0)]) {
        let faults = Faults {
            loss_ppm: 30_000,
            duplication_ppm: 30_000,
            reordering_ppm: 60_000,
            ..Faults::default()
        };
        let mut pair = Pair::new(server_host, seed, faults);
        let mut random = Random::new(seed);
        let mut open = vec![pair.parent];
        let (mut sent, mut closed) = (0, 0);
        for _ in 0..60 {
            let at = random.below(open.len() as u64) as usize;
            match random.below(10) {
                0 => open.push(pair.open()),
                1 if at > 0 => {
                    pair.close(open.swap_remove(at).0, false);
                    closed += 1;
                }
                2..=3 => restore(&mut pair.world, random.below(2) as usize),
                _ => {
                    let bytes = vec![sent as u8; random.below(20_000) as usize];
                    sent += usize::from(pair.client.send(open[at].0, &bytes));
                    pair.world.turn();
                }
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
