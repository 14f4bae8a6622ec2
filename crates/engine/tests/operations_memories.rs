//! Regions in memory of the owner's own, a memfd, beside that of its channel.

mod world;

use std::os::fd::OwnedFd;

use clearway_channel::{
    Command, Completion, MEMORIES_MAX, OperationKind as Kind, OperationStatus as Status, Shared,
};
use clearway_engine::{Event, Request};
use rustix::fs::MemfdFlags;
use world::pair::{Pair, Words, at, pattern, pointer, restore, some};

const MEMORY: u64 = 3;
const BYTES: u64 = 1 << 20;
const LONG: usize = BYTES as usize;

/// A memfd as the app sees it, and as the daemon does.
fn memory() -> (Shared, Shared) {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd: OwnedFd = rustix::fs::memfd_create("of-the-app", flags).expect("a memfd");
    rustix::fs::ftruncate(&fd, BYTES).expect("its size");
    let app = Shared::offer(&fd).expect("mapped");
    (app, Shared::adopt(&fd, BYTES).expect("secured"))
}

impl Pair {
    fn owner_host(&self) -> usize {
        self.owner.host
    }

    /// Gives the owner another memory; what it sees of it, unless it is refused.
    fn add_memory(&mut self, memory: u64) -> Option<Shared> {
        let (app, shared) = self::memory();
        let channel = self.owner.channel;
        let host = self.owner_host();
        self.world.post(host, Request::AddMemory { channel, memory, shared });
        match self.last_event() {
            Event::MemoryAdded { channel: of, memory: added, refused } => {
                assert_eq!((of, added), (channel, memory));
                refused.is_none().then_some(app)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Takes memory back, if the engine lets go of it.
    fn remove_memory(&mut self, memory: u64) -> Option<Shared> {
        let (channel, host) = (self.owner.channel, self.owner_host());
        self.world.post(host, Request::RemoveMemory { channel, memory });
        match self.last_event() {
            Event::MemoryRemoved { memory: of, removed, .. } if of == memory => removed,
            other => panic!("{other:?}"),
        }
    }

    fn last_event(&mut self) -> Event {
        let host = self.owner_host();
        self.world.member(host).events.pop().expect("an answer")
    }

    fn share_memory(&mut self) -> u64 {
        let (status, region) = self.share_in(MEMORY, (0, BYTES));
        assert_eq!(status, Status::Done);
        region
    }
}

fn bytes_of(memory: &Shared) -> Vec<u8> {
    let mut bytes = vec![0; LONG];
    assert!(memory.read(0, &mut bytes));
    bytes
}

#[test]
fn regions_of_own_memory_are_read_and_changed_like_others() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let memory = pair.add_memory(MEMORY).expect("added");
        let (own, all) = (pair.share_memory(), pair.share_all());
        for (offset, length) in [(0, 8), (3, 1), (16, 4096), (5, 100_000)] {
            let bytes = pattern(length);
            let written = pair.ask_with(Kind::Write, own, at(offset), &bytes);
            assert_eq!(written.status, Status::Done);
            let mut found = vec![0; length];
            assert!(memory.read(offset, &mut found) && found == bytes);
            let read = pair.ask(Kind::Read, own, some(offset, length as u32));
            assert!(read.read == bytes, "{length} at {offset}");
        }
        assert!(pair.owned(0, 200_000).iter().all(|byte| *byte == 0), "the other memory");
        let last = BYTES - 8;
        let add = pair.ask(Kind::FetchAdd, own, Words { operand: 5, ..at(last) });
        assert_eq!((add.value, memory.load(last)), (0, Some(5)));
        let swap = Words { operand: 5, second: 9, ..at(last) };
        assert_eq!(pair.ask(Kind::CompareSwap, own, swap).value, 5);
        assert_eq!((memory.load(last), pair.owner.end.shared().load(last)), (Some(9), Some(0)));
        let beyond = pair.ask(Kind::Read, own, some(last, 9));
        assert_eq!(beyond.status, Status::OutOfBounds);
        // A table in one memory points into the other.
        assert!(memory.store(8, pointer(64, 3)));
        pair.own(64, b"far");
        let follow = Words { second: all, ..some(8, 8) };
        assert_eq!(pair.ask(Kind::IndirectRead, own, follow).read, b"far");
        let scan = Words { second: all, stride: 16, count: 1, operand: 77, ..some(0, 8) };
        assert!(memory.store(0, 77));
        assert_eq!(pair.ask(Kind::ScanRead, own, scan).read, b"far");
        let words = Words { operand: 8, second: all, ..Words::default() };
        let batch = pair.ask_with(Kind::BatchRead, own, words, &8_u64.to_be_bytes());
        assert_eq!(&batch.read[8..], b"far");
    }
}

#[test]
fn only_pieces_of_memory_that_is_there_are_shared() {
    let mut pair = Pair::new(1);
    assert_eq!(pair.share_in(MEMORY, (0, 8)).0, Status::NoMemory);
    let _memory = pair.add_memory(MEMORY).expect("added");
    for (piece, status) in [
        ((0, BYTES + 8), Status::OutOfBounds),
        ((BYTES, 8), Status::OutOfBounds),
        ((u64::MAX - 7, 8), Status::OutOfBounds),
        ((8, u64::MAX - 7), Status::OutOfBounds),
        ((4, 8), Status::Misaligned),
        ((8, 4), Status::Misaligned),
        ((BYTES - 8, 8), Status::Done),
        ((BYTES, 0), Status::Done),
    ] {
        assert_eq!(pair.share_in(MEMORY, piece).0, status, "{piece:?}");
    }
    assert_eq!(pair.share_in(MEMORY + 1, (0, 8)).0, Status::NoMemory);
    assert_eq!(pair.share_in(0, (0, 8)).0, Status::Done, "the channel's own");
}

#[test]
fn a_channel_has_so_many_memories_of_each_number_one() {
    let mut pair = Pair::new(1);
    for memory in 1..=MEMORIES_MAX as u64 {
        assert!(pair.add_memory(memory).is_some());
        assert!(pair.add_memory(memory).is_none(), "there is one of this number");
    }
    assert!(pair.add_memory(1000).is_none());
    assert!(pair.remove_memory(5).is_some() && pair.add_memory(1000).is_some());
    assert!(pair.add_memory(5).is_none(), "what is gone does not come again");
}

/// The owner is told that it shares no longer before its memory can be taken back.
#[test]
fn memory_is_taken_back_when_nobody_can_reach_it_any_more() {
    let mut pair = Pair::new(0);
    let memory = pair.add_memory(MEMORY).expect("added");
    let region = pair.share_memory();
    assert!(pair.remove_memory(MEMORY).is_none(), "a region is in it");
    let token = pair.start_with(Kind::Write, region, at(0), &pattern(LONG));
    (0..3).for_each(|_| pair.world.turn());
    let written = bytes_of(&memory);
    assert!(written[0..64] == pattern(64) && written != pattern(LONG), "it is under way");
    pair.owner.submit(&Command::Unshare { token: 6, region });
    pair.world.turn();
    assert!(pair.remove_memory(MEMORY).is_some(), "nobody writes to it any more");
    assert_eq!(pair.end(token).status, Status::NoRegion);
    assert!(bytes_of(&memory) != pattern(LONG));
    pair.owner_is_told();
    assert!(pair.remove_memory(MEMORY).is_none(), "there is none");
    assert!(pair.remove_memory(0).is_none(), "the channel's own stays");
    assert_eq!(pair.share_in(MEMORY, (0, 8)).0, Status::NoMemory);
    pair.world.audit();
}

/// Buffers that are posted are pieces of any memory, which stays until they have their ends.
#[test]
fn memory_with_posted_buffers_is_not_taken_back() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let memory = pair.add_memory(MEMORY).expect("added");
        let (connection, start, bytes) = (pair.far, 5, BYTES / 2);
        for tag in [1, 2] {
            let start = start + (tag - 1) * bytes;
            let post = Command::Post { connection, tag, memory: MEMORY, start, bytes: bytes - 5 };
            pair.owner.submit(&post);
        }
        pair.world.turn();
        assert!(pair.remove_memory(MEMORY).is_none(), "two are posted there");
        assert!(pair.asker.send(pair.near, &pattern(100_000)));
        pair.world.turn();
        assert!(pair.remove_memory(MEMORY).is_none(), "a message is coming there");
        restore(&mut pair.world, owner_host);
        assert!(pair.remove_memory(MEMORY).is_none(), "and so after a restore");
        let placed = pair.owner_is_told();
        let is_it = matches!(placed, Completion::Placed { tag: 1, length: 100_000, .. });
        assert!(is_it, "{placed:?}");
        assert!(bytes_of(&memory)[5..100_005] == pattern(100_000));
        assert!(pair.remove_memory(MEMORY).is_none(), "one is still posted");
        pair.owner.submit(&Command::Unpost { connection, tag: 2 });
        pair.owner_is_told();
        assert!(pair.remove_memory(MEMORY).is_some());
    }
}

#[test]
fn memory_goes_over_with_the_engine() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let memory = pair.add_memory(MEMORY).expect("added");
        assert!(pair.add_memory(MEMORY + 1).is_some());
        let region = pair.share_memory();
        assert!(memory.write(0, &pattern(LONG)));
        for turns in [0, 3, 20] {
            let read = pair.start(Kind::Read, region, some(0, BYTES as u32));
            (0..turns).for_each(|_| pair.world.turn());
            restore(&mut pair.world, owner_host);
            assert!(pair.end(read).read == pattern(LONG), "after {turns} turns");
        }
        let bytes: Vec<u8> = pattern(LONG).iter().rev().copied().collect();
        let write = pair.start_with(Kind::Write, region, at(0), &bytes);
        (0..3).for_each(|_| pair.world.turn());
        restore(&mut pair.world, owner_host);
        assert_eq!(pair.end(write).status, Status::Done);
        assert!(bytes_of(&memory) == bytes);
        pair.unshare(region);
        assert!(pair.remove_memory(MEMORY).is_some());
        restore(&mut pair.world, owner_host);
        pair.world.audit();
    }
}

/// Each change makes a state that an engine could not go on with.
#[test]
fn a_state_with_other_memories_is_refused() {
    type Change = fn(&mut clearway_engine::ChannelState);
    let changes: [Change; 5] = [
        |owner| owner.end.memories.clear(),
        |owner| owner.end.memories[0].0 += 1,
        |owner| owner.end.memories[0].1 *= 2,
        |owner| owner.regions[0].value.as_mut().expect("shared").memory += 1,
        |owner| owner.regions[0].value.as_mut().expect("shared").start = BYTES,
    ];
    for change in changes {
        let mut pair = Pair::new(1);
        let _memory = pair.add_memory(MEMORY).expect("added");
        pair.share_memory();
        let restored = pair.world.restore(1, |mut state| {
            change(&mut state.channels[0]);
            state
        });
        assert!(restored.is_err());
        std::mem::forget(pair.world);
    }
}
