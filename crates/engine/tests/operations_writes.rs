//! Long writes of other hosts go to their place as they come: they need no room in the pool of the
//! owner, who may cut them off at any time, and what comes behind them finds them whole.

mod world;

use clearway_base::Prefix;
use clearway_channel::{
    Command, Completion, Member, OperationKind as Kind, OperationStatus as Status, Rights, Sizes,
};
use clearway_engine::{ExchangeState, State, StateError};
use clearway_nic::fabric::Faults;
use world::address;
use world::pair::{
    OWNERS, Pair, SHARED_BYTES, Words, at, pattern, restore, some, to_all, to_group,
};

const LONG: usize = SHARED_BYTES as usize;
/// What can be written at once, in the turn in which all of it is there.
const SHORT: usize = 4096;

fn pair() -> (Pair, u64) {
    let mut pair = Pair::new(1);
    let region = pair.share_all();
    (pair, region)
}

impl Pair {
    /// How many bytes of the pattern are in the owner's memory, from the start on.
    fn written(&self) -> usize {
        let (owned, pattern) = (self.owned(0, LONG), pattern(LONG));
        owned.iter().zip(&pattern).take_while(|(a, b)| a == b).count()
    }

    /// Begins with a long write, and goes on until a part of it is there.
    fn begin_to_write(&mut self, kind: Kind, region: u64) -> u64 {
        let token = self.start_with(kind, region, at(0), &pattern(LONG));
        self.go_on_until(SHORT);
        token
    }

    /// Goes on until so many bytes are there, and not all.
    fn go_on_until(&mut self, bytes: usize) {
        while self.written() < bytes {
            self.world.turn();
        }
        assert!(self.written() < LONG);
    }

    /// Some turns, in which nothing more of a write comes to its place.
    fn nothing_is_written(&mut self) {
        let written = self.written();
        (0..200).for_each(|_| self.world.turn());
        assert!(written >= SHORT && self.written() == written);
    }
}

/// A write of four times the owner's pool, in which messages lie meanwhile.
#[test]
fn a_long_write_needs_no_room_in_the_pool() {
    let sizes = Sizes { receive_pool_bytes: 1 << 18, ..OWNERS };
    for loss_ppm in [0, 5000] {
        let faults = Faults { loss_ppm, ..Faults::default() };
        let mut pair = Pair::of_owner(1, sizes, faults);
        let region = pair.share_all();
        assert!(pair.asker.send(pair.near, &[1; 10_000]), "room for one");
        let written = pair.ask_with(Kind::Write, region, at(0), &pattern(LONG));
        assert_eq!((written.status, pair.written()), (Status::Done, LONG));
        pair.owner.poll();
        assert_eq!(pair.owner.received.len(), 1);
        pair.world.audit();
    }
}

/// It is there as far as it has come; what is short comes as a whole.
#[test]
fn a_long_write_is_there_as_it_comes() {
    let (mut pair, region) = pair();
    let token = pair.start_with(Kind::Write, region, at(0), &pattern(SHORT));
    // The pattern begins with a zero, as the memory does.
    while pair.written() < 2 {
        pair.world.turn();
    }
    assert_eq!(pair.written(), SHORT);
    assert_eq!(pair.end(token).status, Status::Done);
    let token = pair.start_with(Kind::WriteNotify, region, at(0), &pattern(LONG));
    let mut seen = Vec::new();
    while pair.written() < LONG {
        seen.push(pair.written());
        pair.owner.poll();
        assert!(pair.owner.told.is_empty(), "it is told of what is whole");
        pair.world.turn();
    }
    seen.dedup();
    assert!(seen.len() > 10, "{seen:?}");
    let told = Completion::Notified {
        connection: pair.far,
        region,
        place: 0,
        bytes: SHARED_BYTES,
        value: 0,
    };
    assert_eq!((pair.owner_is_told(), pair.end(token).status), (told, Status::Done));
}

/// It begins in the pool, behind a message that is lost, and does not stay there until it is whole.
#[test]
fn what_came_before_its_turn_is_taken_out_of_the_pool() {
    let (mut pair, region) = pair();
    pair.world.fabric.set_cut(0, 1, true);
    assert!(pair.asker.send(pair.near, b"lost"));
    (0..5).for_each(|_| pair.world.turn());
    pair.world.fabric.set_cut(0, 1, false);
    let token = pair.begin_to_write(Kind::Write, region);
    assert_eq!((pair.end(token).status, pair.written()), (Status::Done, LONG));
    pair.world.audit();
}

/// The owner is told at once, and nothing is written from then on; the connection goes on.
#[test]
fn what_is_revoked_is_not_written_on() {
    for kind in [Kind::Write, Kind::WriteNotify] {
        let (mut pair, region) = pair();
        let (status, other) = pair.share("other", (0, 64), &[to_all(Rights::ALL)]);
        assert_eq!(status, Status::Done);
        let token = pair.begin_to_write(kind, region);
        restore(&mut pair.world, 1);
        pair.go_on_until(pair.written() + 1);
        assert_eq!(pair.unshare(region), Status::Done);
        pair.nothing_is_written();
        restore(&mut pair.world, 1);
        assert_eq!(pair.end(token).status, Status::NoRegion);
        assert!(pair.owner.told.is_empty(), "nobody is told of half a write");
        assert_eq!(pair.ask(Kind::Read, other, some(0, 8)).read, pattern(8));
        pair.world.audit();
    }
}

/// The same, also if the asker comes back before the write is over.
#[test]
fn who_leaves_a_group_does_not_write_on() {
    let mut pair = Pair::new(1);
    let everybody = [Member::Prefix(Prefix::new(address(0), 32))];
    assert_eq!(pair.set_group("peers", &everybody), Status::Done);
    let grants = [to_group("peers", Rights::WRITE), to_all(Rights::READ)];
    let (_, region) = pair.share("all", (0, SHARED_BYTES), &grants);
    let token = pair.begin_to_write(Kind::Write, region);
    assert_eq!(pair.set_group("peers", &[]), Status::Done);
    (0..20).for_each(|_| pair.world.turn());
    let written = pair.written();
    assert_eq!(pair.set_group("peers", &everybody), Status::Done);
    assert_eq!((pair.end(token).status, pair.written()), (Status::NotAllowed, written));
    assert_eq!(pair.ask_with(Kind::Write, region, at(0), &[0; 8]).status, Status::Done);
}

/// What is refused at the beginning writes nothing, and holds nobody up.
#[test]
fn a_long_write_that_is_refused_writes_nothing() {
    let (mut pair, all) = pair();
    let (_, readable) = pair.share("", (0, SHARED_BYTES), &[to_all(Rights::READ)]);
    let (_, small) = pair.share("", (0, 8192), &[to_all(Rights::ALL)]);
    let (_, silent) = pair.share("", (0, SHARED_BYTES), &[to_all(Rights::WRITE)]);
    let cases = [
        (Kind::Write, all, 8, Status::OutOfBounds),
        (Kind::Write, small, 0, Status::OutOfBounds),
        (Kind::Write, readable, 0, Status::NotAllowed),
        (Kind::WriteNotify, silent, 0, Status::NotAllowed),
        (Kind::Write, !all, 0, Status::NoRegion),
    ];
    for (kind, region, place, status) in cases {
        let token = pair.start_with(kind, region, at(place), &pattern(LONG));
        let add = pair.start(Kind::FetchAdd, all, Words { operand: 0, ..at(0) });
        assert_eq!((pair.end(token).status, pair.end(add).value), (status, 0));
    }
    assert_eq!(pair.owned(0, LONG), [0; LONG]);
    pair.world.audit();
}

/// Whichever side ends the connection, a part is there, and the asker does not know; nothing is
/// kept of it.
#[test]
fn a_part_is_left_of_a_write_whose_connection_ends() {
    for (owner_ends, abort) in [(false, true), (true, true), (true, false)] {
        let (mut pair, region) = pair();
        let token = pair.begin_to_write(Kind::Write, region);
        let (app, connection) = match owner_ends {
            true => (&mut pair.owner, pair.far),
            false => (&mut pair.asker, pair.near),
        };
        app.submit(&Command::Close { connection, abort });
        assert_eq!(pair.end(token).status, Status::Unknown);
        pair.world.turn_until(|_| {
            pair.owner.poll();
            !pair.owner.closed.is_empty()
        });
        pair.nothing_is_written();
        assert!(pair.written() < LONG);
        restore(&mut pair.world, 1);
        pair.world.audit();
    }
}

/// Long writes, each with an add and a message behind it, over a bad wire and from one engine to
/// the next: what comes behind a write finds it whole.
#[test]
fn what_comes_behind_a_long_write_finds_it_whole() {
    const WRITES: usize = 16;
    const BYTES: usize = 48 << 10;
    const ADDS: u64 = (WRITES * BYTES) as u64;
    let bad = Faults { loss_ppm: 20_000, reordering_ppm: 50_000, ..Faults::default() };
    for (faults, period) in [(Faults::default(), 7), (bad, 50), (bad, 3)] {
        let mut pair = Pair::with(1, 3, faults);
        let region = pair.share_all();
        let content = |index: usize| [index as u8 + 1; BYTES];
        for index in 0..WRITES {
            let place = at((index * BYTES) as u64);
            pair.start_with(Kind::Write, region, place, &content(index));
            pair.start(Kind::FetchAdd, region, Words { operand: 1, ..at(ADDS) });
            assert!(pair.asker.send(pair.near, &[index as u8; 20]), "there is room");
        }
        let (mut heard, mut rounds) = (0, 0);
        while heard < WRITES {
            pair.world.turn();
            rounds += 1;
            if rounds % period == 0 {
                restore(&mut pair.world, rounds % 2);
                pair.world.audit();
            }
            let added = pair.owner.end.shared().load(ADDS).expect("in the memory") as usize;
            let is_there = |index| pair.owned((index * BYTES) as u32, BYTES) == content(index);
            assert!((0..added).all(is_there), "{added} adds are done");
            pair.owner.poll();
            while let Some(message) = pair.owner.received.pop_front() {
                heard += 1;
                assert!(added >= heard, "a message came before an add");
                pair.owner.release(message);
            }
            assert!(rounds < 1_000_000, "stuck");
        }
        pair.world.turn_until(|_| {
            pair.asker.poll();
            pair.asker.operated.len() == 2 * WRITES
        });
        assert!(pair.asker.operated.iter().all(|it| it.status == Status::Done));
    }
}

/// An engine in the middle of a long write, whose state says something else.
#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let cases: [fn(&mut ExchangeState); 5] = [
        |state| state.writing = None,
        |state| state.writing.as_mut().expect("under way").length += 1,
        |state| state.writing.as_mut().expect("under way").length = 8,
        |state| state.writing.as_mut().expect("under way").request[0] = Kind::Read as u8,
        |state| state.next_request += 1,
    ];
    for change in cases {
        let (mut pair, region) = pair();
        pair.begin_to_write(Kind::Write, region);
        let changed = |mut state: State| {
            let mut slots = state.channels.iter_mut().flat_map(|channel| &mut channel.slots);
            let exchange = slots.find_map(|slot| slot.value.as_mut()?.exchange.as_mut());
            change(exchange.expect("there is one"));
            state
        };
        let restored = pair.world.restore(1, changed);
        assert!(matches!(restored, Err(StateError::Invalid(_))));
    }
}
