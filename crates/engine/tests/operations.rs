//! One-sided operations between apps of two hosts and of one, through real channels and engines.

mod world;

use std::net::IpAddr;

use clearway_base::Prefix;
use clearway_channel::{
    Command, Completion, Grant, Grantee, OperationKind as Kind, OperationStatus as Status, Rights,
    Violation,
};
use clearway_engine::{Allowance, Event, Request};
use clearway_nic::fabric::Faults;
use world::pair::{Pair, SHARED_BYTES, Words, at, pattern, pointer, restore, some, to_all};
use world::{Place, SIZES, World, address};

#[test]
fn bytes_are_read_and_written_without_the_owner() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        for (offset, length) in [(0, 8), (8, 64), (3, 1), (16, 1400), (0, 4096), (5, 100_000)] {
            let bytes = pattern(length);
            let written = pair.ask_with(Kind::Write, region, at(offset), &bytes);
            assert_eq!((written.status, written.read), (Status::Done, vec![]));
            assert_eq!(pair.owned(offset as u32, length), bytes);
            let read = pair.ask(Kind::Read, region, some(offset, length as u32));
            assert_eq!(read.status, Status::Done);
            assert!(read.read == bytes, "{length} at {offset}");
        }
        let all = pair.ask(Kind::Read, region, some(0, SHARED_BYTES));
        assert!(all.read == pair.owned(0, SHARED_BYTES as usize));
        assert_eq!(pair.ask(Kind::Read, region, some(8, 0)).status, Status::Done);
    }
}

#[test]
fn words_are_added_to_and_exchanged() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        let add = Words { operand: 5, ..at(8) };
        assert_eq!(pair.ask(Kind::FetchAdd, region, add).value, 0);
        assert_eq!(pair.ask(Kind::FetchAdd, region, add).value, 5);
        assert_eq!(pair.owner.end.shared().fetch_add(8, 1), Some(10));
        let swap = |expected, new| Words { operand: expected, second: new, ..at(8) };
        assert_eq!(pair.ask(Kind::CompareSwap, region, swap(10, 1)).value, 11);
        assert_eq!(pair.ask(Kind::CompareSwap, region, swap(11, u64::MAX)).value, 11);
        assert_eq!(pair.ask(Kind::FetchAdd, region, add).value, u64::MAX);
        assert_eq!(pair.owner.end.shared().load(8), Some(4));
        for place in [4, 1, SHARED_BYTES.into(), u64::MAX - 7] {
            let status = pair.ask(Kind::FetchAdd, region, Words { operand: 1, ..at(place) }).status;
            assert!(matches!(status, Status::Misaligned | Status::OutOfBounds), "{place}");
        }
    }
}

#[test]
fn a_region_is_found_by_name_and_its_owner_is_told_of_writes() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        let found = pair.ask_with(Kind::Find, 0, Words::default(), b"all");
        assert_eq!((found.value, found.extra), (region, SHARED_BYTES.into()));
        let none = pair.ask_with(Kind::Find, 0, Words::default(), b"al");
        assert_eq!(none.status, Status::NotFound);
        let words = Words { operand: 77, ..at(16) };
        assert_eq!(pair.ask_with(Kind::WriteNotify, region, words, b"news").status, Status::Done);
        let (connection, bytes, value) = (pair.far, 4, 77);
        let told = Completion::Notified { connection, region, place: 16, bytes, value };
        assert_eq!(pair.owner_is_told(), told);
        assert_eq!(pair.owned(16, 4), b"news");
    }
}

/// A table of pointers at 0, keys with pointers at 1024, values from 4096 on.
fn fill_tables(pair: &mut Pair) {
    for index in 0..64 {
        let value = pattern(64 + index as usize);
        pair.own(4096 + 256 * index, &value);
        let entry = pointer(u64::from(4096 + 256 * index), value.len() as u32);
        pair.own(8 * index, &entry.to_ne_bytes());
        pair.own(1024 + 16 * index, &(1000 + u64::from(index)).to_ne_bytes());
        pair.own(1024 + 16 * index + 8, &entry.to_ne_bytes());
    }
}

#[test]
fn pointers_are_followed_one_by_one_in_batches_and_by_keys() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        fill_tables(&mut pair);
        let follow = |place, bytes| Words { second: region, ..some(place, bytes) };
        let third = pair.ask(Kind::IndirectRead, region, follow(24, 100));
        assert_eq!((third.value, third.read), (pointer(4096 + 768, 67), pattern(67)));
        assert_eq!(pair.ask(Kind::IndirectRead, region, follow(24, 66)).status, Status::TooLarge);
        let scan =
            |operand| Words { stride: 16, count: 64, operand, second: region, ..some(1024, 200) };
        let found = pair.ask(Kind::ScanRead, region, scan(1063));
        assert_eq!((found.status, found.value), (Status::Done, 63));
        assert_eq!(found.read, pattern(127));
        assert_eq!(pair.ask(Kind::ScanRead, region, scan(1064)).status, Status::NotFound);
        let offsets = [0_u64, 8, 12, 1 << 40, 16].map(u64::to_be_bytes).concat();
        let words = Words { operand: 65, second: region, ..Words::default() };
        let batch = pair.ask_with(Kind::BatchRead, region, words, &offsets);
        assert_eq!((batch.status, batch.value), (Status::Done, 2));
        let heads: Vec<(u32, u32)> = batch.read[..40]
            .chunks(8)
            .map(|head| {
                let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
                (word(0), word(4))
            })
            .collect();
        let status = |status: Status| status as u32;
        assert_eq!(heads[..2], [(0, 64), (0, 65)]);
        assert_eq!(
            heads[2..],
            [
                (status(Status::Misaligned), 0),
                (status(Status::OutOfBounds), 0),
                (status(Status::TooLarge), 0)
            ]
        );
        assert_eq!(batch.read[40..], [pattern(64), pattern(65)].concat());
    }
}

/// Whatever the owner's table says, nothing outside of the region is read.
#[test]
fn an_owner_that_lies_in_its_table_shows_nothing_else() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let (_, table) = pair.share("table", (0, 4096), &[to_all(Rights::READ)]);
        let (_, target) = pair.share("target", (4096, 4096), &[to_all(Rights::READ)]);
        pair.own(8192, &[0xee; 4096]);
        let lies = [
            (4096, 1),
            (4089, 8),
            (1 << 32, 8),
            ((1 << 40) - 1, (1 << 24) - 1),
            (0, 4097),
            (u64::from(SHARED_BYTES), 0),
        ];
        let reads_nothing = [Status::OutOfBounds, Status::TooLarge];
        for (offset, length) in lies {
            pair.own(0, &pointer(offset, length).to_ne_bytes());
            let words = Words { second: target, ..some(0, 5000) };
            let read = pair.ask(Kind::IndirectRead, table, words);
            assert!(reads_nothing.contains(&read.status), "{offset} {length}: {read:?}");
            assert!(read.read.is_empty());
        }
        let scan = |stride, count| Words { stride, count, second: target, ..some(8, 100) };
        for (stride, count) in [(8, 1), (20, 1), (u16::MAX, u32::MAX), (16, 4097), (16, 256)] {
            let read = pair.ask(Kind::ScanRead, table, scan(stride, count));
            assert!(read.status != Status::Done && read.read.is_empty(), "{stride} {count}");
        }
    }
}

#[test]
fn who_may_do_what_the_grants_say() {
    let prefix = |ip: IpAddr, bits| Grantee::Prefix(Prefix::new(ip, bits));
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        // The asker is seen by its address; on the own host, by the one that it has called.
        let seen = address(0);
        let other: IpAddr = "10.8.0.0".parse().expect("an address");
        let user_is_known = owner_host == 0;
        let cases = [
            (to_all(Rights::READ), [true, false, false, false]),
            (to_all(Rights::WRITE), [false, true, false, false]),
            (to_all(Rights::WRITE | Rights::NOTIFY), [false, true, true, false]),
            (to_all(Rights::ATOMIC), [false, false, false, true]),
            (Grant { to: prefix(seen, 32), rights: Rights::ALL }, [true; 4]),
            (Grant { to: prefix(other, 16), rights: Rights::ALL }, [false; 4]),
            (Grant { to: Grantee::User(8), rights: Rights::ALL }, [user_is_known; 4]),
            (Grant { to: Grantee::User(7), rights: Rights::ALL }, [false; 4]),
        ];
        for (grant, expected) in cases {
            let (_, region) = pair.share("", (0, 64), &[grant]);
            let statuses = [
                pair.ask(Kind::Read, region, some(0, 8)).status,
                pair.ask_with(Kind::Write, region, at(0), &[1; 8]).status,
                pair.ask_with(Kind::WriteNotify, region, at(0), &[1; 8]).status,
                pair.ask(Kind::FetchAdd, region, at(0)).status,
            ];
            let status = |is_allowed| if is_allowed { Status::Done } else { Status::NotAllowed };
            assert_eq!(statuses, expected.map(status), "{grant:?}");
            pair.owner.poll();
            let told = if expected[2] { 1 } else { 0 };
            assert_eq!(pair.owner.told.drain(..).count(), told);
        }
    }
}

/// An app of a host is known by its user wherever it is served there, whichever side has connected,
/// also by an engine that was made again. One of another host is not, though it says the same.
#[test]
fn a_user_is_known_at_all_engines_of_the_host() {
    const ASKERS_PORT: u16 = 7001;
    let place = |host, engine| Place { host, engine };
    let owner = place(0, 0);
    for (asker, is_known) in [(place(0, 1), true), (owner, true), (place(1, 0), false)] {
        let world = World::at_switch(5, &[2, 1]);
        let allowance = Allowance::of_connections(64);
        let mut pair = Pair::between(world, [owner, asker], allowance, SIZES);
        let grants = [7, 8].map(|user| Grant { to: Grantee::User(user), rights: Rights::READ });
        let [(_, others), (_, own)] = grants.map(|grant| pair.share("", (0, 64), &[grant]));
        let expected = if is_known { Status::Done } else { Status::NotAllowed };
        // The first thing that is asked on a connection, and the first after a restore.
        for restores in [false, true] {
            if restores {
                restore(&mut pair.world, owner);
                pair.world.audit();
            }
            assert_eq!(pair.ask(Kind::Read, own, some(0, 8)).status, expected, "{asker:?}");
            assert_eq!(pair.ask(Kind::Read, others, some(0, 8)).status, Status::NotAllowed);
        }
        // By a connection that the owner has opened.
        pair.world.listen(&pair.asker, ASKERS_PORT).expect("free");
        let before = pair.near;
        pair.near = pair.world.connect(&mut pair.owner, &mut pair.asker, ASKERS_PORT).1;
        assert_ne!(pair.near, before);
        assert_eq!(pair.ask(Kind::Read, own, some(0, 8)).status, expected, "{asker:?}");
        assert_eq!(pair.ask(Kind::Read, others, some(0, 8)).status, Status::NotAllowed);
    }
}

/// What only its user may read it goes on to read when the owner's engine is made again in the
/// midst of that, before another packet has said whose it is.
#[test]
fn a_user_of_the_host_reads_on_after_a_restore() {
    const BYTES: u32 = 64 << 10;
    let place = |engine| Place { host: 0, engine };
    let (owner, asker) = (place(0), place(1));
    let world = World::at_switch(5, &[2, 1]);
    let mut pair = Pair::between(world, [owner, asker], Allowance::of_connections(64), SIZES);
    let grant = Grant { to: Grantee::User(8), rights: Rights::READ };
    let (_, region) = pair.share("", (0, BYTES), &[grant]);
    pair.own(0, &pattern(BYTES as usize));
    let read = pair.start(Kind::Read, region, some(0, BYTES));
    // The request leaves, and what is answered is not acknowledged.
    pair.world.turn();
    pair.world.member(asker).is_stopped = true;
    (0..10).for_each(|_| pair.world.turn());
    restore(&mut pair.world, owner);
    pair.world.audit();
    pair.world.member(asker).is_stopped = false;
    let read = pair.end(read);
    assert_eq!(read.status, Status::Done);
    assert!(read.read == pattern(BYTES as usize));
}

#[test]
fn what_is_revoked_is_never_read_again() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        assert_eq!(pair.ask(Kind::Read, region, some(0, 8)).status, Status::Done);
        assert_eq!(pair.unshare(region), Status::Done);
        assert_eq!(pair.unshare(region), Status::NoRegion);
        let again = pair.share_all();
        for kind in [Kind::Read, Kind::FetchAdd, Kind::CompareSwap] {
            assert_eq!(pair.ask(kind, region, some(0, 8)).status, Status::NoRegion);
            assert_eq!(pair.ask(kind, again, some(0, 8)).status, Status::Done);
        }
        for unknown in [0, 1, u64::MAX, again + 1, again ^ 1 << 32] {
            assert_eq!(pair.ask(Kind::Read, unknown, some(0, 8)).status, Status::NoRegion);
        }
    }
}

/// The bytes of a long answer are read as they are sent: whoever revokes them ends the connection.
#[test]
fn a_long_read_of_what_is_revoked_meanwhile_fails() {
    let mut pair = Pair::new(1);
    let region = pair.share_all();
    let token = pair.start(Kind::Read, region, some(0, SHARED_BYTES));
    (0..20).for_each(|_| pair.world.turn());
    assert_eq!(pair.unshare(region), Status::Done);
    let read = pair.end(token);
    assert_eq!((read.status, read.read.len()), (Status::Failed, 0));
    pair.world.turn_until(|_| {
        pair.asker.poll();
        pair.owner.poll();
        !pair.asker.closed.is_empty() && !pair.owner.closed.is_empty()
    });
}

#[test]
fn only_whole_words_of_the_own_memory_are_shared() {
    let mut pair = Pair::new(1);
    let cases = [
        ((0, SHARED_BYTES + 8), Status::OutOfBounds),
        ((SHARED_BYTES, 8), Status::OutOfBounds),
        ((u32::MAX - 7, 8), Status::OutOfBounds),
        ((4, 8), Status::Misaligned),
    ];
    for (extent, status) in cases {
        assert_eq!(pair.share("", extent, &[]).0, status, "{extent:?}");
    }
    assert_eq!(pair.share("a", (0, 8), &[]).0, Status::Done);
    assert_eq!(pair.share("a", (0, 8), &[]).0, Status::NameTaken);
}

/// Reads, writes and atomic operations one after the other, many at once, and over a wire that
/// loses, doubles and reorders: each has its effect once, and all end in their order.
#[test]
fn many_at_once_have_one_effect_each_whatever_the_wire_does() {
    let bad = Faults {
        loss_ppm: 50_000,
        duplication_ppm: 50_000,
        reordering_ppm: 50_000,
        ..Faults::default()
    };
    for (seed, owner_host, faults) in
        [(1, 1, Faults::default()), (2, 1, bad), (3, 1, bad), (4, 0, Faults::default())]
    {
        let mut pair = Pair::with(owner_host, seed, faults);
        let region = pair.share_all();
        const ROUNDS: u64 = 3000;
        let (mut started, mut ended) = (0, 0);
        let first = pair.token + 1;
        while ended < ROUNDS {
            while started < ROUNDS && started - ended < 1200 && pair.asker.end.has_room() {
                let words = Words { operand: 1, ..some(0, 2000) };
                let kind = if started % 7 == 3 { Kind::Read } else { Kind::FetchAdd };
                pair.start(kind, region, words);
                started += 1;
            }
            pair.world.turn();
            pair.asker.poll();
            while let Some(operated) = pair.asker.operated.pop_front() {
                assert_eq!((operated.token, operated.status), (first + ended, Status::Done));
                // Of the seven before, one only read.
                let before = ended - (ended + 3) / 7;
                let seen = match operated.read.first_chunk() {
                    Some(word) => u64::from_ne_bytes(*word),
                    None => operated.value,
                };
                assert_eq!(seen, before, "operation {ended}");
                ended += 1;
            }
        }
        let added = ROUNDS - (ROUNDS + 3) / 7;
        assert_eq!(pair.owner.end.shared().load(0), Some(added));
    }
}

/// Regions, what is outstanding and answers on their way go over with the engine, of either side:
/// nothing is lost, and nothing done twice.
#[test]
fn operations_go_on_whichever_engine_is_made_again() {
    let faults = Faults { loss_ppm: 20_000, reordering_ppm: 50_000, ..Faults::default() };
    let mut pair = Pair::with(1, 5, faults);
    let region = pair.share_all();
    let long = pattern(20_000);
    pair.own(4096, &long);
    let (first, mut started, mut ended, mut added) = (pair.token + 1, 0, 0, 0);
    while ended < 400 {
        while started < 400 && started - ended < 30 {
            match started % 5 {
                0 => pair.start(Kind::Read, region, some(4096, 20_000)),
                1 => pair.start(Kind::Read, region, some(4096, 2000)),
                _ => pair.start(Kind::FetchAdd, region, Words { operand: 1, ..at(0) }),
            };
            started += 1;
        }
        (0..20).for_each(|_| pair.world.turn());
        restore(&mut pair.world, started as usize % 2);
        pair.asker.poll();
        while let Some(operated) = pair.asker.operated.pop_front() {
            assert_eq!((operated.token, operated.status), (first + ended, Status::Done));
            match ended % 5 {
                0 => assert!(operated.read == long),
                1 => assert!(operated.read == long[..2000]),
                _ => {
                    assert_eq!(operated.value, added);
                    added += 1;
                }
            }
            ended += 1;
        }
        pair.world.audit();
    }
    assert_eq!(pair.owner.end.shared().load(0), Some(added));
}

/// Also by an engine that was made again.
#[test]
fn an_app_may_share_and_ask_as_much_as_the_policy_says() {
    for owner_host in [1, 0] {
        let world = World::new(1, Faults::default());
        let allowance = Allowance { connections_max: 64, regions_max: 2, may_ask: false };
        let mut pair = Pair::allowed(owner_host, world, allowance);
        let region = pair.share_all();
        let (status, second) = pair.share("second", (0, 8), &[to_all(Rights::ALL)]);
        assert_eq!(status, Status::Done);
        for _ in 0..2 {
            assert_eq!(pair.share("third", (0, 8), &[]).0, Status::TooMany);
            let denied = [
                pair.ask(Kind::Read, region, some(0, 8)),
                pair.ask_with(Kind::Write, region, at(0), &[1; 8]),
                pair.ask_with(Kind::Find, 0, Words::default(), b"all"),
            ];
            assert!(denied.iter().all(|operated| operated.status == Status::Denied));
            assert_eq!(pair.owner.end.shared().load(0), Some(0));
            restore(&mut pair.world, owner_host);
            restore(&mut pair.world, 0);
        }
        assert_eq!(pair.unshare(second), Status::Done);
        assert_eq!(pair.share("third", (0, 8), &[]).0, Status::Done);
    }
}

/// What an engine has counted.
fn counted(world: &mut World, host: usize, names: &[&str]) -> Vec<u64> {
    let snapshot = world.snapshot(host);
    let counter = |name: &&str| {
        let found = snapshot.counters.iter().find(|(other, _)| other == name);
        found.unwrap_or_else(|| panic!("{name}")).1
    };
    names.iter().map(counter).collect()
}

#[test]
fn what_is_done_is_counted_by_kind_and_what_is_refused_by_reason() {
    const KINDS: [&str; 9] = [
        "operations_find",
        "operations_read",
        "operations_write",
        "operations_write_notify",
        "operations_compare_swap",
        "operations_fetch_add",
        "operations_indirect_read",
        "operations_batch_read",
        "operations_scan_read",
    ];
    const REASONS: [&str; 6] = [
        "operations_refused_no_region",
        "operations_refused_not_allowed",
        "operations_refused_out_of_bounds",
        "operations_refused_misaligned",
        "operations_refused_not_found",
        "operations_refused_too_large",
    ];
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        fill_tables(&mut pair);
        let (_, secret) = pair.share("secret", (0, 8), &[]);
        let follow = Words { second: region, ..some(0, 100) };
        let scan = Words { stride: 16, count: 64, operand: 1000, ..follow };
        let scan = Words { place: 1024, bytes: 200, ..scan };
        // Each kind once more often than the one before.
        for kind in 1..=9_u64 {
            for _ in 0..kind {
                let operated = match kind {
                    1 => pair.ask_with(Kind::Find, 0, Words::default(), b"all"),
                    2 => pair.ask(Kind::Read, region, some(0, 8)),
                    3 => pair.ask_with(Kind::Write, region, at(90_000), b"x"),
                    4 => pair.ask_with(Kind::WriteNotify, region, at(90_000), b"x"),
                    5 => pair.ask(Kind::CompareSwap, region, at(90_000)),
                    6 => pair.ask(Kind::FetchAdd, region, at(90_000)),
                    7 => pair.ask(Kind::IndirectRead, region, follow),
                    8 => {
                        let words = Words { operand: 100, second: region, ..Words::default() };
                        pair.ask_with(Kind::BatchRead, region, words, &[0; 8])
                    }
                    _ => pair.ask(Kind::ScanRead, region, scan),
                };
                assert_eq!(operated.status, Status::Done, "{kind}");
            }
        }
        let refused = [
            pair.ask(Kind::Read, region + 1000, some(0, 8)),
            pair.ask(Kind::Read, secret, some(0, 8)),
            pair.ask(Kind::Read, region, some(SHARED_BYTES.into(), 8)),
            pair.ask(Kind::FetchAdd, region, at(4)),
            pair.ask_with(Kind::Find, 0, Words::default(), b"nothing"),
            pair.ask(Kind::IndirectRead, region, Words { bytes: 1, ..follow }),
        ];
        assert!(refused.iter().all(|operated| operated.status != Status::Done));
        let expected: Vec<u64> = (1..=9).collect();
        for _ in 0..2 {
            assert_eq!(counted(&mut pair.world, owner_host, &KINDS), expected);
            assert_eq!(counted(&mut pair.world, owner_host, &REASONS), [1; 6]);
            assert_eq!(counted(&mut pair.world, 0, &["operations_asked"]), [45 + 6]);
            restore(&mut pair.world, owner_host);
        }
    }
}

#[test]
fn operations_of_a_connection_that_ends_are_unknown_or_failed() {
    let mut pair = Pair::new(1);
    let region = pair.share_all();
    pair.world.fabric.set_cut(0, 1, true);
    let add = pair.start(Kind::FetchAdd, region, at(0));
    let read = pair.start(Kind::Read, region, some(0, 8));
    let write = pair.start_with(Kind::Write, region, at(8), &[1; 8]);
    pair.world.turn();
    pair.asker.submit(&Command::Close { connection: pair.near, abort: true });
    let ends = [add, read, write].map(|token| pair.end(token).status);
    assert_eq!(ends, [Status::Unknown, Status::Failed, Status::Unknown]);
    assert_eq!(pair.ask(Kind::Read, region, some(0, 8)).status, Status::NoConnection);
    assert_eq!(pair.owner.end.shared().load(0), Some(0));
}

/// All in one burst, of which the engine takes together what belongs together.
#[test]
fn what_is_asked_on_several_connections_goes_by_each() {
    let mut pair = Pair::new(1);
    let region = pair.share_all();
    let (near, nowhere) = (pair.near, pair.near + 1000);
    let mut tokens = [Vec::new(), Vec::new()];
    for on in [near, near, nowhere, near, nowhere, nowhere, near] {
        pair.near = on;
        let token = pair.start(Kind::FetchAdd, region, Words { operand: 1, ..at(0) });
        tokens[usize::from(on == near)].push(token);
    }
    let [refused, done] = tokens;
    for token in refused {
        assert_eq!(pair.end(token).status, Status::NoConnection);
    }
    for (value, token) in (0..).zip(done) {
        let end = pair.end(token);
        assert_eq!((end.status, end.value), (Status::Done, value));
    }
    assert_eq!(pair.owner.end.shared().load(0), Some(4));
}

#[test]
fn an_app_that_asks_for_nonsense_ends_its_own_session() {
    let nonsense = [
        (Kind::Find as u8, false, Violation::Operation(1)),
        (0, false, Violation::Operation(0)),
        (10, false, Violation::Operation(10)),
        (Kind::Find as u8, true, Violation::Operation(1)),
        (Kind::Read as u8, true, Violation::Operation(2)),
        (Kind::BatchRead as u8, true, Violation::Operation(8)),
    ];
    let cases = nonsense.into_iter().flat_map(|case| [(case, 0), (case, 1), (case, 2)]);
    for ((kind, takes_along, violation), before) in cases {
        let mut pair = Pair::new(1);
        let good = pair.share_all();
        for _ in 0..before {
            pair.start(Kind::Read, good, some(0, 8));
        }
        let (connection, token, region, place) = (pair.near, 1, 1, 0);
        let (operand, second, offset) = (0, 0, 0);
        // No name has 65 bytes, and no batch as many.
        let length = 65;
        let (stride, bytes, count) = (0, 0, 0);
        let asking = Command::Ask {
            kind,
            stride,
            connection,
            token,
            region,
            place,
            bytes,
            count,
            operand,
            second,
        };
        let asking_with = Command::AskWith {
            kind,
            connection,
            token,
            region,
            place,
            offset,
            length,
            operand,
            second,
        };
        pair.asker.submit(if takes_along { &asking_with } else { &asking });
        pair.world.turn_until(|world| {
            let mut events = world.hosts[0].members[0].events.iter();
            events.any(
                |event| matches!(event, Event::Violation { violation: v, .. } if *v == violation),
            )
        });
        let channel = pair.asker.channel;
        pair.world.post(0, Request::RemoveChannel { channel });
    }
}
