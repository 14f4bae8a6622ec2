//! Messages with deadlines between apps of two hosts and of one, through real channels and engines.

mod world;

use clearway_channel::{
    Command, Completion, OperationKind as Kind, OperationStatus as Status, Sizes,
};
use clearway_nic::fabric::Faults;
use world::pair::{Pair, at, restore, some};
use world::{App, SIZES, World};

const PORT: u16 = 4000;
const LENGTH: u32 = 2000;
/// Messages that are more than the window, which is a sixteenth of the receive pool.
const FILL: u32 = SIZES.receive_pool_bytes / 16 / LENGTH;

/// More than are on their way at a time.
const ADDS: usize = 600;
/// More than an app with little memory has room for.
const READS: usize = 10;

/// Sends a message that is to leave within so many microseconds.
fn send_within(app: &mut App, connection: u64, within_us: u32) -> bool {
    app.send_by(connection, &[7; LENGTH as usize], |offset, length| Command::SendWithin {
        connection,
        offset,
        length,
        within_us,
    })
}

/// An app does not read, and so what another sends waits; what waits too long is dropped, its
/// memory is its app's again, both hear of it, and the rest arrives. Engines are saved and restored
/// meanwhile.
#[test]
fn both_apps_hear_of_what_was_dropped() {
    for (server_host, server_hears) in [(1, true), (1, false), (0, true), (0, false)] {
        let mut world = World::new(1, Faults::default());
        let mut client = world.attach(0, SIZES);
        let mut server = world.attach(server_host, SIZES);
        world.listen(&server, PORT).expect("a free port");
        let (near, far) = world.connect(&mut client, &mut server, PORT);
        if server_hears {
            server.submit(&Command::TellSkipped { is_told: true });
            world.turn();
        }
        for _ in 0..FILL {
            assert!(client.send(near, &[7; LENGTH as usize]), "room for all");
            world.turn();
        }
        (0..5).for_each(|_| assert!(send_within(&mut client, near, 20)));
        assert!(send_within(&mut client, near, 1_000_000), "that is time enough");
        (0..100).for_each(|_| world.turn());
        server.poll();
        let unread = server.received.len();
        assert!(unread < FILL as usize, "a window is less");
        (0..2).for_each(|host| restore(&mut world, host));
        assert!(client.told.is_empty() && server.told.is_empty());
        let mut received = 0;
        world.turn_until(|_| {
            client.poll();
            server.poll();
            while let Some(message) = server.received.pop_front() {
                assert_eq!(message.connection, far);
                server.release(message);
                received += 1;
            }
            // Who sends may hear first that all is over.
            client.unfinished() == 0 && received > FILL
        });
        assert_eq!(received, FILL + 1, "server on host {server_host}");
        let dropped = (FILL..FILL + 5).map(|send| Completion::Dropped { connection: near, send });
        assert!(client.told.iter().copied().eq(dropped), "{:?}", client.told);
        let skipped = server.told.iter().map(|told| match told {
            Completion::Skipped { connection, messages } if *connection == far => *messages,
            other => panic!("{other:?}"),
        });
        assert_eq!(skipped.sum::<u32>(), if server_hears { 5 } else { 0 });
        assert_eq!(world.counter(0, "messages_dropped"), 5);
    }
}

/// It had a claim to the whole pool, of which nothing is left once it is dropped.
#[test]
fn a_message_that_was_dropped_keeps_out_nobody() {
    let sizes = Sizes { receive_pool_bytes: 256 << 10, ..SIZES };
    let mut world = World::new(1, Faults::default());
    let mut receiver = world.attach(0, sizes);
    world.listen(&receiver, PORT).expect("a free port");
    let (mut large, mut small) = (world.attach(0, SIZES), world.attach(0, SIZES));
    let (from_large, _) = world.connect(&mut large, &mut receiver, PORT);
    let (from_small, _) = world.connect(&mut small, &mut receiver, PORT);
    assert!(small.send(from_small, &[1; 100]) && small.send(from_small, &[2; 8000]));
    world.turn();
    let all = vec![3; sizes.receive_pool_bytes as usize];
    assert!(large.send_by(from_large, &all, |offset, length| Command::SendWithin {
        connection: from_large,
        offset,
        length,
        within_us: 20,
    }));
    (0..100).for_each(|_| world.turn());
    receiver.poll();
    let read = receiver.received.pop_back().expect("both came");
    receiver.release(read);
    (0..4).for_each(|_| world.turn());
    large.poll();
    let dropped = Completion::Dropped { connection: from_large, send: 0 };
    assert_eq!(Vec::from_iter(large.told.drain(..)), [dropped]);
    assert!(small.send(from_small, &[4; 100]));
    (0..4).for_each(|_| world.turn());
    receiver.poll();
    assert_eq!(receiver.received.len(), 2, "one that is kept, and one that has just come");
}

/// What is asked for before it keeps the message waiting: more adds than are on their way at a
/// time, while nothing comes through, or reads for which their asker has no room.
#[test]
fn a_message_behind_operations_is_dropped_in_time() {
    for (owner_host, within_us, is_dropped) in
        [(1, 500, true), (0, 500, true), (1, 3_000_000, false), (0, 3_000_000, false)]
    {
        let sizes = Sizes { receive_pool_bytes: 1 << 18, ..SIZES };
        let mut pair = Pair::of_sizes(owner_host, sizes);
        let region = pair.share_all();
        pair.owner.submit(&Command::TellSkipped { is_told: true });
        pair.world.turn();
        pair.world.fabric.set_cut(0, 1, true);
        let asked = if owner_host == 1 { ADDS } else { READS };
        for _ in 0..asked {
            while !pair.asker.end.has_room() {
                pair.world.turn_alone(0);
            }
            match owner_host {
                1 => pair.start(Kind::FetchAdd, region, at(0)),
                _ => pair.start(Kind::Read, region, some(0, 60_000)),
            };
        }
        assert!(pair.asker.send(pair.near, b"before"));
        assert!(send_within(&mut pair.asker, pair.near, within_us));
        assert!(pair.asker.send(pair.near, b"behind"));
        (0..1000).for_each(|_| pair.world.turn());
        (0..2).for_each(|host| restore(&mut pair.world, host));
        pair.world.audit();
        assert!(pair.asker.told.is_empty() && pair.owner.received.is_empty());
        pair.world.fabric.set_cut(0, 1, false);
        let mut done = 0;
        pair.world.turn_until(|_| {
            pair.asker.poll();
            pair.owner.poll();
            done += pair.asker.operated.drain(..).filter(|it| it.status == Status::Done).count();
            done == asked && pair.asker.unfinished() == 0
        });
        let lengths = pair.owner.received.iter().map(|message| pair.owner.bytes(message).len());
        let expected = if is_dropped { vec![6, 6] } else { vec![6, LENGTH as usize, 6] };
        assert_eq!(lengths.collect::<Vec<_>>(), expected, "owner on host {owner_host}");
        let told = [&pair.asker.told, &pair.owner.told].map(|told| Vec::from_iter(told.clone()));
        let dropped = Completion::Dropped { connection: pair.near, send: 1 };
        let skipped = Completion::Skipped { connection: pair.far, messages: 1 };
        let expected = [dropped, skipped].map(|told| if is_dropped { vec![told] } else { vec![] });
        assert_eq!(told, expected, "owner on host {owner_host}");
    }
}

/// Who reads nothing is not told of more and more that was dropped: what is late waits until it
/// reads. It is not sent meanwhile, though there is room for it.
#[test]
fn what_is_late_is_not_sent_to_who_reads_nothing() {
    // Some more than wait in the ring and behind it.
    const MESSAGES: usize = 6000;
    let sizes = Sizes { receive_pool_bytes: 1 << 18, ..SIZES };
    let mut pair = Pair::of_sizes(0, sizes);
    let region = pair.share_all();
    pair.owner.submit(&Command::TellSkipped { is_told: true });
    pair.world.turn();
    (0..READS).for_each(|_| _ = pair.start(Kind::Read, region, some(0, 60_000)));
    for _ in 0..MESSAGES {
        while !pair.asker.end.has_room() {
            pair.world.turn_alone(0);
        }
        assert!(send_within(&mut pair.asker, pair.near, 20), "room for all");
    }
    (0..1000).for_each(|_| pair.world.turn());
    let mut done = 0;
    for _ in 0..5000 {
        pair.world.turn();
        pair.asker.poll();
        done += pair.asker.operated.drain(..).count();
    }
    let dropped = pair.asker.told.len();
    assert!(done == READS && (4096..MESSAGES).contains(&dropped), "{done}, {dropped}");
    assert_eq!(pair.world.counter(0, "messages_local"), 0);
    pair.world.turn_until(|_| {
        pair.asker.poll();
        pair.owner.poll();
        pair.asker.unfinished() == 0 && pair.owner.told.len() == MESSAGES
    });
    assert!(pair.owner.received.is_empty() && pair.asker.told.len() == MESSAGES);
}
