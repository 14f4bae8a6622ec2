//! The order of one-sided operations: among each other, and with messages of their connection.

mod world;

use clearway_base::{SECOND, Time};
use clearway_channel::{Command, OperationKind as Kind, OperationStatus as Status, Sizes};
use clearway_nic::fabric::Faults;
use world::pair::{Pair, SHARED_BYTES, Words, at, pattern, restore, some};
use world::{Operated, SIZES};

/// More than are on their way at a time, and than the owner has answers of.
const MANY: u64 = 3000;
/// As many as a channel may have; their answers are more than its window.
const VERY_MANY: u64 = 16_000;

fn add() -> Words {
    Words { operand: 1, ..at(0) }
}

impl Pair {
    /// Adds one, `count` times, while the owner's engine stands still.
    fn add_alone(&mut self, region: u64, count: u64) {
        for _ in 0..count {
            self.wait_alone();
            self.start(Kind::FetchAdd, region, add());
        }
    }

    /// Sends a message that says how many adds were asked for before it.
    fn say(&mut self, adds: u64) {
        self.wait_alone();
        assert!(self.asker.send(self.near, &adds.to_le_bytes()), "there is room");
    }

    fn wait_alone(&mut self) {
        while !self.asker.end.has_room() {
            self.world.turn_alone(0);
        }
    }

    /// Takes messages for the owner: what each says was asked for before is done. How many came.
    fn hear(&mut self) -> u64 {
        self.owner.poll();
        let mut heard = 0;
        while let Some(message) = self.owner.received.pop_front() {
            let said = *self.owner.bytes(&message).first_chunk().expect("eight bytes");
            let done = self.owner.end.shared().load(0).expect("in the memory");
            assert!(done >= u64::from_le_bytes(said), "a message came after {done} of {said:?}");
            self.owner.release(message);
            heard += 1;
        }
        heard
    }

    /// Some turns, in each of which the owner hears what has come. Returns how many messages that
    /// were.
    fn turns(&mut self, count: u32) -> u64 {
        assert!(self.world.now < Time::from_ns(4 * SECOND), "stuck");
        let turn = |_| {
            self.world.turn();
            self.hear()
        };
        (0..count).map(turn).sum()
    }

    fn operated(&mut self) -> Vec<Operated> {
        self.asker.poll();
        self.asker.operated.drain(..).collect()
    }
}

/// However many wait, and whichever engine is made again meanwhile.
#[test]
fn a_message_comes_when_all_operations_before_it_are_done() {
    let bad = Faults { loss_ppm: 20_000, reordering_ppm: 50_000, ..Faults::default() };
    for (owner_host, faults, restores) in
        [(1, Faults::default(), false), (1, bad, false), (1, bad, true), (0, bad, false)]
    {
        let mut pair = Pair::with(owner_host, 3, faults);
        let region = pair.share_all();
        let (mut asked, mut said, mut ended, mut heard) = (0, 0, 0, 0);
        for adds in [0, 100, MANY, 1, 0, 700] {
            pair.add_alone(region, adds);
            asked += adds;
            pair.say(asked);
            said += 1;
        }
        let first = pair.token + 1 - asked;
        while ended < asked || heard < said {
            heard += pair.turns(50);
            if restores {
                restore(&mut pair.world, ended as usize % 2);
                pair.world.audit();
            }
            for operated in pair.operated() {
                let expected = (first + ended, Status::Done, ended);
                assert_eq!((operated.token, operated.status, operated.value), expected);
                ended += 1;
            }
        }
        assert_eq!((ended, heard), (asked, said));
        pair.world.turn_until(|_| {
            pair.asker.poll();
            pair.asker.unfinished() == 0
        });
    }
}

/// What was asked for and sent before is done and delivered; nobody is told of the former.
#[test]
fn a_close_comes_behind_all_operations_and_messages() {
    for restores in [false, true] {
        let mut pair = Pair::new(1);
        let region = pair.share_all();
        pair.add_alone(region, VERY_MANY);
        pair.wait_alone();
        pair.start(Kind::Read, region, some(0, 8));
        pair.say(VERY_MANY);
        pair.add_alone(region, 10);
        pair.wait_alone();
        pair.asker.submit(&Command::Close { connection: pair.near, abort: false });
        let (mut heard, mut rounds) = (0, 0);
        while pair.owner.closed.is_empty() || pair.asker.closed.is_empty() {
            heard += pair.turns(20);
            if restores {
                rounds += 1;
                restore(&mut pair.world, rounds % 2);
                pair.world.audit();
            }
            pair.asker.poll();
        }
        assert_eq!(heard, 1);
        assert_eq!(pair.owner.end.shared().load(0), Some(VERY_MANY + 10));
        let ends = pair.operated();
        let first = pair.token - (VERY_MANY + 10);
        assert!(ends.iter().map(|end| end.token).eq(first..=pair.token));
        let done = ends.partition_point(|operated| operated.status == Status::Done);
        let read = first + VERY_MANY;
        for end in &ends[done..] {
            let is_read = end.token == read;
            let expected = if is_read { Status::Failed } else { Status::Unknown };
            assert_eq!(end.status, expected);
        }
    }
}

/// What no daemon would carry out, and the asker's own does not ask for.
fn refused_here(pair: &mut Pair, region: u64) -> u64 {
    pair.start(Kind::Read, region, some(0, u32::MAX))
}

#[test]
fn what_the_own_daemon_refuses_completes_in_its_turn() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = pair.share_all();
        let first = pair.token + 1;
        refused_here(&mut pair, region);
        pair.add_alone(region, 600);
        (0..3).for_each(|_| _ = refused_here(&mut pair, region));
        pair.start(Kind::Read, region, some(0, 8));
        refused_here(&mut pair, region);
        let refused = [0, 601, 602, 603, 605].map(|index| first + index);
        let mut ends = Vec::new();
        while ends.len() < 606 {
            pair.turns(1);
            restore(&mut pair.world, ends.len() % 2);
            ends.extend(pair.operated());
        }
        for (operated, token) in ends.iter().zip(first..) {
            let status = if refused.contains(&token) { Status::TooLarge } else { Status::Done };
            assert_eq!((operated.token, operated.status), (token, status));
        }
        assert_eq!(pair.owner.end.shared().load(0), Some(600));
    }
}

/// Also once the connection is closed, or has ended.
#[test]
fn what_comes_after_a_close_is_refused_behind_what_came_before() {
    let mut pair = Pair::new(1);
    let region = pair.share_all();
    pair.world.fabric.set_cut(0, 1, true);
    let read = pair.start(Kind::Read, region, some(0, SHARED_BYTES));
    let large = refused_here(&mut pair, region);
    pair.asker.submit(&Command::Close { connection: pair.near, abort: false });
    let late = pair.start(Kind::Read, region, some(0, 8));
    pair.turns(1000);
    assert_eq!(pair.operated(), []);
    pair.asker.submit(&Command::Close { connection: pair.near, abort: true });
    let ends = [read, large, late].map(|token| pair.end(token).status);
    assert_eq!(ends, [Status::Failed, Status::TooLarge, Status::NoConnection]);
}

/// Little memory for what is read: some reads fill it.
const SMALL: Sizes = Sizes { receive_pool_bytes: 1 << 18, ..SIZES };

/// Backpressure, as for messages: whoever does not take what it has read is given no more of it,
/// and nothing fails.
#[test]
fn reads_wait_for_room_in_the_pool_of_who_asks() {
    const READS: usize = 20;
    const BYTES: u32 = 60_000;
    for owner_host in [1, 0] {
        let mut pair = Pair::of_sizes(owner_host, SMALL);
        let region = pair.share_all();
        pair.own(0, &pattern(BYTES as usize));
        let first = pair.token + 1;
        (0..READS).for_each(|_| _ = pair.start(Kind::Read, region, some(0, BYTES)));
        // It comes behind them, and a message behind that.
        let add = pair.start(Kind::FetchAdd, region, Words { operand: 1, ..at(100_000) });
        assert!(pair.asker.send(pair.near, b"behind"));
        for round in 0..2000 {
            pair.world.turn();
            if round % 500 == 0 {
                restore(&mut pair.world, 0);
            }
        }
        if owner_host == 0 {
            pair.owner.poll();
            assert_eq!(pair.owner.end.shared().load(100_000), Some(0), "it is behind the reads");
            assert!(pair.owner.received.is_empty());
        }
        let ends: Vec<_> = (first..=add).map(|token| pair.end(token)).collect();
        assert!(ends.iter().all(|end| end.status == Status::Done));
        assert!(ends[..READS].iter().all(|end| end.read == pattern(BYTES as usize)));
        assert_eq!(pair.owner.end.shared().load(100_000), Some(1));
        pair.world.turn_until(|_| {
            pair.owner.poll();
            !pair.owner.received.is_empty()
        });
    }
}

/// What can never have room is refused, in its turn.
#[test]
fn a_read_of_more_than_the_pool_of_who_asks_is_refused() {
    for owner_host in [1, 0] {
        let mut pair = Pair::of_sizes(owner_host, SMALL);
        let region = pair.share_all();
        let most = SMALL.receive_pool_bytes - 24;
        for (bytes, status) in [(most, Status::Done), (most + 1, Status::NoRoom)] {
            let add = pair.start(Kind::FetchAdd, region, at(0));
            let read = pair.start(Kind::Read, region, some(0, bytes));
            assert_eq!(pair.end(add).status, Status::Done);
            let read = pair.end(read);
            let length = if status == Status::Done { bytes as usize } else { 0 };
            assert_eq!((read.status, read.read.len()), (status, length), "from host {owner_host}");
        }
    }
}

/// Within one engine as between two: what waits and has an effect is carried out, and the message
/// behind it comes.
#[test]
fn a_close_comes_behind_operations_that_wait_for_room() {
    for owner_host in [1, 0] {
        let mut pair = Pair::of_sizes(owner_host, SMALL);
        let region = pair.share_all();
        let reads: Vec<u64> =
            (0..20).map(|_| pair.start(Kind::Read, region, some(0, 60_000))).collect();
        let add = pair.start(Kind::FetchAdd, region, Words { operand: 1, ..at(0) });
        assert!(pair.asker.send(pair.near, b"behind"));
        (0..100).for_each(|_| pair.world.turn());
        pair.asker.submit(&Command::Close { connection: pair.near, abort: false });
        pair.world.turn_until(|_| {
            pair.owner.poll();
            !pair.owner.closed.is_empty()
        });
        assert_eq!(pair.owner.received.len(), 1);
        assert_eq!(pair.owner.end.shared().load(0), Some(1));
        let reads: Vec<Status> = reads.iter().map(|token| pair.end(*token).status).collect();
        let ends = (reads[19], pair.end(add).status);
        assert_eq!(ends, (Status::Failed, Status::Unknown), "from host {owner_host}");
    }
}
