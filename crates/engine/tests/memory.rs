//! Receive pools that are too small for all that comes: nothing is lost, and nobody waits for ever.

mod world;

use std::collections::VecDeque;

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND, Time};
use clearway_channel::{Code, Command, Sizes};
use clearway_engine::Request;
use clearway_nic::fabric::Faults;
use world::{App, Received, SIZES, World};

/// A pool in which a large message fits if there is nothing else.
const SMALL_POOL: Sizes = Sizes { receive_pool_bytes: 256 << 10, ..SIZES };
const LARGE_BYTES: usize = 200_000;

/// An app that keeps each message for a while before it releases it.
struct Reader {
    app: App,
    unread: VecDeque<(u64, Received)>,
    /// Lengths of those that it has released.
    lengths: Vec<usize>,
}

impl Reader {
    const KEEPS_NS: u64 = 100 * MICROSECOND;

    fn new(app: App) -> Self {
        Self { app, unread: VecDeque::new(), lengths: Vec::new() }
    }

    fn read(&mut self, now_ns: u64) {
        self.app.poll();
        while let Some(message) = self.app.received.pop_front() {
            self.unread.push_back((now_ns, message));
        }
        let is_due = |(came_ns, _): &(u64, Received)| came_ns + Self::KEEPS_NS <= now_ns;
        while self.unread.front().is_some_and(is_due) {
            let Some((_, message)) = self.unread.pop_front() else { break };
            self.lengths.push(message.bytes.length() as usize);
            self.app.release(message);
        }
    }

    fn large(&self) -> usize {
        self.lengths.iter().filter(|length| **length == LARGE_BYTES).count()
    }
}

/// Sees to it that so many messages of `length` bytes are on their way.
fn keep_sending(app: &mut App, connection: u64, count: usize, length: usize) {
    app.poll();
    while app.unfinished() < count && app.send(connection, &vec![7; length]) {}
}

#[test]
fn small_messages_do_not_keep_out_one_that_needs_the_whole_pool() {
    for host_of_small in [0, 1] {
        let mut world = World::new(21, Faults::default());
        let (mut large, mut small) = (world.attach(0, SIZES), world.attach(host_of_small, SIZES));
        let mut receiver = world.attach(1, SMALL_POOL);
        world.listen(&receiver, 7000).expect("free");
        let (from_large, _) = world.connect(&mut large, &mut receiver, 7000);
        let (from_small, _) = world.connect(&mut small, &mut receiver, 7000);
        let mut reader = Reader::new(receiver);
        let start = world.now;
        world.turn_until(|world| {
            keep_sending(&mut small, from_small, 8, 1000);
            if reader.lengths.len() > 100 {
                keep_sending(&mut large, from_large, 1, LARGE_BYTES);
            }
            reader.read(world.now.as_ns());
            assert!(world.now.since(start) < SECOND, "kept out, small ones from {host_of_small}");
            reader.large() >= 3
        });
        let small_before = reader.lengths.len();
        world.turn_until(|world| {
            keep_sending(&mut small, from_small, 8, 1000);
            reader.read(world.now.as_ns());
            reader.lengths.len() > small_before + 100
        });
    }
}

/// It waits for a buffer that the app may post, and its connection does: nobody else.
#[test]
fn a_message_that_the_pool_never_holds_keeps_out_nobody() {
    const COUNT: usize = 100;
    for host_of_large in [0, 1] {
        let mut world = World::new(27, Faults::default());
        let mut receiver = world.attach(1, SMALL_POOL);
        world.listen(&receiver, 7000).expect("free");
        let mut large = world.attach(host_of_large, SIZES);
        let (from_large, _) = world.connect(&mut large, &mut receiver, 7000);
        let mut small = [0, 1].map(|host| {
            let mut app = world.attach(host, SIZES);
            let (connection, _) = world.connect(&mut app, &mut receiver, 7000);
            (app, connection)
        });
        assert!(large.send(from_large, &vec![7; SMALL_POOL.receive_pool_bytes as usize + 1]));
        settle(&mut world);
        let mut reader = Reader::new(receiver);
        let start = world.now;
        world.turn_until(|world| {
            small.iter_mut().for_each(|(app, connection)| keep_sending(app, *connection, 1, 1000));
            reader.read(world.now.as_ns());
            let waited_ns = world.now.since(start);
            let came = reader.lengths.len();
            assert!(waited_ns < SECOND / 10, "{came} came, large from {host_of_large}");
            reader.lengths.len() >= COUNT
        });
    }
}

#[test]
fn senders_of_large_messages_have_their_turns() {
    let mut world = World::new(22, Faults::default());
    let mut receiver = world.attach(1, SMALL_POOL);
    world.listen(&receiver, 7000).expect("free");
    let mut senders = [0, 0, 1].map(|host| {
        let mut app = world.attach(host, SIZES);
        let (connection, _) = world.connect(&mut app, &mut receiver, 7000);
        (app, connection, 0)
    });
    let mut reader = Reader::new(receiver);
    let start = world.now;
    world.turn_until(|world| {
        for (app, connection, finished) in &mut senders {
            let before = app.unfinished();
            app.poll();
            *finished += before - app.unfinished();
            keep_sending(app, *connection, 1, LARGE_BYTES);
        }
        reader.read(world.now.as_ns());
        assert!(world.now.since(start) < SECOND, "some wait for ever");
        senders.iter().all(|(_, _, finished)| *finished >= 5)
    });
    let counts = senders.map(|(_, _, finished)| finished);
    assert!(
        counts.iter().max() <= counts.iter().min().map(|least| least + 3).as_ref(),
        "{counts:?}"
    );
}

#[test]
fn messages_of_all_sizes_arrive_over_a_bad_wire() {
    for seed in 0..5 {
        let mut world = World::new(seed, Faults::default());
        let mut sender = world.attach(0, SIZES);
        let mut receiver = world.attach(1, SMALL_POOL);
        world.listen(&receiver, 7000).expect("free");
        let (connection, _) = world.connect(&mut sender, &mut receiver, 7000);
        for port in [0, 1] {
            let faults = Faults { loss_ppm: 50_000, reordering_ppm: 50_000, ..Faults::all(0) };
            world.fabric.set_faults(port, faults);
        }
        let mut random = Random::new(seed);
        let lengths: Vec<usize> = (0..200)
            .map(|_| match random.below(8) {
                0 => LARGE_BYTES,
                1 => random.below(20_000) as usize,
                _ => 1500 + random.below(1500) as usize,
            })
            .collect();
        let (mut reader, mut sent) = (Reader::new(receiver), 0);
        let start = world.now;
        world.turn_until(|world| {
            sender.poll();
            while sent < lengths.len()
                && sender.unfinished() < 32
                && sender.send(connection, &vec![1; lengths[sent]])
            {
                sent += 1;
            }
            reader.read(world.now.as_ns());
            assert!(
                world.now.since(start) < 60 * SECOND,
                "seed {seed}: {:?}",
                reader.lengths.len()
            );
            reader.lengths.len() == lengths.len()
        });
        assert_eq!(reader.lengths, lengths, "seed {seed}");
    }
}

/// Of messages that were begun and never ended nothing is left, or one that needs the whole pool
/// would not be taken.
#[test]
fn connections_that_end_in_the_midst_of_a_message_leave_nothing() {
    for (way, abort, by_receiver) in
        [("abort", true, false), ("abort", true, true), ("close", false, true)]
    {
        let mut world = World::new(23, Faults::default());
        let (mut first, mut second) = (world.attach(0, SIZES), world.attach(0, SIZES));
        let mut receiver = world.attach(1, SMALL_POOL);
        world.listen(&receiver, 7000).expect("free");
        let (near, far) = world.connect(&mut first, &mut receiver, 7000);
        let (from_second, _) = world.connect(&mut second, &mut receiver, 7000);
        assert!(first.send(near, &vec![1; LARGE_BYTES]));
        while world.snapshot(1).channels[0].receive_pool_bytes_used == 0 {
            world.turn();
        }
        receiver.poll();
        assert!(receiver.received.is_empty(), "only begun");
        let (app, connection) = if by_receiver { (&mut receiver, far) } else { (&mut first, near) };
        app.submit(&Command::Close { connection, abort });
        let start = world.now;
        let mut reader = Reader::new(receiver);
        world.turn_until(|world| {
            first.poll();
            keep_sending(&mut second, from_second, 1, LARGE_BYTES);
            reader.read(world.now.as_ns());
            assert!(world.now.since(start) < SECOND, "{way}, by receiver: {by_receiver}");
            reader.large() > 0
        });
    }
}

/// Sends that are not finished, messages that came before their turn, a place in line: all of it is
/// given back while the apps live on. What is not goes with its channel, and would be seen by
/// nobody then.
#[test]
fn connections_that_end_leave_nothing_in_the_books_of_apps_that_live_on() {
    for seed in 0..8 {
        // With one, messages come before their turn; with six, they find no room.
        let count = if seed % 2 == 0 { 1 } else { 6 };
        let mut world = World::new(seed, Faults::default());
        let mut receiver = world.attach(1, SMALL_POOL);
        world.listen(&receiver, 7000).expect("free");
        let mut senders = [0, 0, 1].map(|host| {
            let mut app = world.attach(host, SIZES);
            let connections: Vec<u64> =
                (0..count).map(|_| world.connect(&mut app, &mut receiver, 7000).0).collect();
            (app, connections)
        });
        world.fabric.set_faults(0, Faults { loss_ppm: 300_000, ..Faults::all(0) });
        for (app, connections) in &mut senders {
            // More than there is room for, of which nothing is read.
            for connection in connections.iter() {
                (0..4).for_each(|_| assert!(app.send(*connection, &[1; 20_000])));
            }
        }
        let end = world.now + 20_000 * MICROSECOND;
        world.turn_until(|world| world.now > end);
        world.audit();
        world.fabric.set_faults(0, Faults::all(0));
        let [(first, from_first), (second, _), (third, from_third)] = &mut senders;
        for (app, connections) in [(first, from_first), (third, from_third)] {
            assert!(app.unfinished() > 0);
            for connection in connections.iter().copied() {
                app.submit(&Command::Close { connection, abort: true });
            }
        }
        world.post(0, Request::RemoveChannel { channel: second.channel });
        world.turn_until(|_| {
            receiver.poll();
            receiver.closed.len() == 3 * count
        });
        settle(&mut world);
        world.audit();
    }
}

/// Its message lies in the pool as far as it has come, and the app has nothing that it could
/// release.
#[test]
fn a_sender_of_the_same_host_goes_on_when_a_peer_has_died_in_the_midst_of_its_message() {
    let mut world = World::new(25, Faults::default());
    let mut server = world.attach(0, SMALL_POOL);
    let (mut peer, mut neighbour) = (world.attach(1, SIZES), world.attach(0, SIZES));
    world.listen(&server, 7000).expect("free");
    let (far, _) = world.connect(&mut peer, &mut server, 7000);
    let (near, _) = world.connect(&mut neighbour, &mut server, 7000);
    assert!(peer.send(far, &[1; LARGE_BYTES]));
    world.turn_until(|world| world.snapshot(0).channels[0].receive_pool_bytes_used > 0);
    world.fabric.set_cut(1, 0, true);
    assert!(neighbour.send(near, &[2; LARGE_BYTES]));
    (0..100).for_each(|_| world.turn());
    server.poll();
    assert!(server.received.is_empty(), "there was room for both");
    world.fabric.set_cut(1, 0, false);
    world.post(1, Request::RemoveChannel { channel: peer.channel });
    world.turn_until(|_| {
        server.poll();
        !server.received.is_empty()
    });
    let message = server.received.pop_front().expect("just seen");
    assert!(server.bytes(&message).iter().all(|byte| *byte == 2));
}

/// It keeps what it has until a message comes that a claim keeps out: for a quarter of a second,
/// also while its engine sleeps.
#[test]
fn a_claim_ends_in_time_though_the_engine_sleeps() {
    const POOL_BYTES: usize = SMALL_POOL.receive_pool_bytes as usize;
    let mut world = World::new(30, Faults::default());
    let mut receiver = world.attach(0, SMALL_POOL);
    world.listen(&receiver, 7000).expect("free");
    let (mut large, mut small) = (world.attach(0, SIZES), world.attach(0, SIZES));
    let (from_large, _) = world.connect(&mut large, &mut receiver, 7000);
    let (from_small, _) = world.connect(&mut small, &mut receiver, 7000);
    assert!(small.send(from_small, &[1; 100]));
    settle(&mut world);
    assert!(large.send(from_large, &vec![2; POOL_BYTES]));
    settle(&mut world);
    assert!(small.send(from_small, &[3; 100]));
    settle(&mut world);
    receiver.poll();
    assert_eq!(receiver.received.len(), 1, "the other is kept out");
    let begin = world.now;
    while receiver.received.len() < 2 {
        let timeout = world.member(0).engine.next_timeout().unwrap_or(Time::MAX);
        // As a group sleeps.
        world.now = timeout.clamp(world.now, world.now + SECOND);
        world.turn();
        receiver.poll();
        assert!(world.now.since(begin) < 260 * MILLISECOND, "it comes too late");
    }
}

/// Turns until all that the apps have said is taken, and nothing more comes of it.
fn settle(world: &mut World) {
    (0..1000).for_each(|_| world.turn());
}

/// What a release costs does not depend on how many wait, and each of them has its turn.
#[test]
fn a_release_tries_the_next_in_line_and_no_more() {
    const SENDERS: usize = 4096;
    const BYTES: usize = 4096;
    const POOL: Sizes = Sizes { receive_pool_bytes: 64 << 10, ..SIZES };
    let mut world = World::new(26, Faults::default());
    let mut sender = world.attach_with(0, SIZES, SENDERS as u32);
    let mut receiver = world.attach_with(0, POOL, SENDERS as u32);
    world.listen(&receiver, 7000).expect("free");
    let connections: Vec<u64> =
        (0..SENDERS).map(|_| world.connect(&mut sender, &mut receiver, 7000).0).collect();
    for (index, connection) in connections.iter().enumerate() {
        assert!(sender.send(*connection, &[index as u8; BYTES]));
        world.turn();
    }
    settle(&mut world);
    let retried = |world: &mut World| {
        let counters = world.snapshot(0).counters;
        counters.iter().find(|(name, _)| *name == "messages_retried").expect("counted").1
    };
    let fits = POOL.receive_pool_bytes as usize / BYTES;
    receiver.poll();
    assert_eq!(receiver.received.len(), fits, "the rest waits");
    let (mut senders, before) = (Vec::new(), retried(&mut world));
    while let Some(message) = receiver.received.pop_front() {
        senders.push(message.connection);
        receiver.release(message);
        (0..4).for_each(|_| world.turn());
        receiver.poll();
        if senders.len() % 256 == 0 {
            let (tries, releases) = (retried(&mut world) - before, senders.len() as u64);
            assert!(tries <= 2 * releases, "{tries} tries for {releases} releases");
        }
    }
    senders.sort_unstable();
    senders.dedup();
    assert_eq!(senders.len(), SENDERS, "each had its turn");
}

/// An idle turn tells of so many finished sends, and leaves the others to the next ones.
#[test]
fn an_idle_turn_tells_of_so_many_sends_and_no_more() {
    const CONNECTIONS: usize = 2000;
    const LONG: Sizes = Sizes { submission_entries: 4096, completion_entries: 4096, ..SIZES };
    let mut world = World::new(28, Faults::default());
    let mut sender = world.attach_with(0, LONG, CONNECTIONS as u32);
    let mut receiver = world.attach_with(0, LONG, CONNECTIONS as u32);
    world.listen(&receiver, 7000).expect("free");
    let connections: Vec<u64> =
        (0..CONNECTIONS).map(|_| world.connect(&mut sender, &mut receiver, 7000).0).collect();
    settle(&mut world);
    sender.poll();
    for connection in connections {
        assert!(sender.send(connection, &[7; 10]));
    }
    let mut turns = 0;
    while sender.unfinished() > 0 {
        let before = sender.unfinished();
        world.turn_alone(0);
        sender.poll();
        let told = before - sender.unfinished();
        assert!(told <= 64, "{told} in one turn");
        turns += 1;
        assert!(turns < 1000, "{} are never told", sender.unfinished());
    }
}

/// An app that goes with thousands of connections makes no turn long.
#[test]
fn thousands_of_connections_of_an_app_that_goes_are_ended_bit_by_bit() {
    const CONNECTIONS: usize = 2000;
    const LONG: Sizes = Sizes { completion_entries: 4096, ..SIZES };
    let mut world = World::new(29, Faults::default());
    let mut client = world.attach_with(0, SIZES, CONNECTIONS as u32);
    let mut server = world.attach_with(0, LONG, CONNECTIONS as u32);
    world.listen(&server, 7000).expect("free");
    (0..CONNECTIONS).for_each(|_| _ = world.connect(&mut client, &mut server, 7000));
    settle(&mut world);
    // That takes the request, in a turn.
    world.post(0, Request::RemoveChannel { channel: client.channel });
    server.poll();
    assert!(server.closed.len() <= 64, "{} in one turn", server.closed.len());
    let mut turns = 0;
    while server.closed.len() < CONNECTIONS {
        let before = server.closed.len();
        world.turn_alone(0);
        server.poll();
        let ended = server.closed.len() - before;
        assert!(ended <= 64, "{ended} in one turn");
        turns += 1;
        assert!(turns < 1000, "{} connections are left", CONNECTIONS - before);
    }
    assert!(server.closed.iter().all(|(_, code)| *code == Code::Reset));
}

/// Nor do many releases in one turn have all that wait tried in that turn.
#[test]
fn a_turn_tries_so_many_and_no_more() {
    const SENDERS: usize = 1000;
    const POOL: Sizes = Sizes { receive_pool_bytes: 64 << 10, ..SIZES };
    let mut world = World::new(27, Faults::default());
    let mut large = world.attach_with(0, SIZES, 1);
    let mut small = world.attach_with(0, SIZES, SENDERS as u32);
    let mut receiver = world.attach_with(0, POOL, 1 + SENDERS as u32);
    world.listen(&receiver, 7000).expect("free");
    let (first, _) = world.connect(&mut large, &mut receiver, 7000);
    assert!(large.send(first, &[0; 64 << 10]));
    for index in 0..SENDERS {
        let (connection, _) = world.connect(&mut small, &mut receiver, 7000);
        assert!(small.send(connection, &[index as u8; 10]));
    }
    settle(&mut world);
    receiver.poll();
    assert_eq!(receiver.received.len(), 1, "it takes the whole pool");
    let message = receiver.received.pop_front().expect("just seen");
    receiver.release(message);
    while receiver.received.len() < SENDERS {
        let before = receiver.received.len();
        world.turn_alone(0);
        receiver.poll();
        let given = receiver.received.len() - before;
        assert!((1..=32).contains(&given), "{given} in one turn");
    }
}
