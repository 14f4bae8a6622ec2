//! Long operations within an engine: a slice in each turn, and nobody who ends one waits for it.

mod world;

use clearway_channel::{
    Command, Completion, OperationKind as Kind, OperationStatus as Status, Sizes,
};
use clearway_engine::{Allowance, Event, Request};
use clearway_nic::fabric::Faults;
use world::pair::{PORT, Pair, SHARED_BYTES, at, pattern, restore, some};
use world::{App, Operated, SIZES, World};

/// What an engine copies in a turn.
const SLICE: usize = 64 << 10;
const LONG: usize = SHARED_BYTES as usize;
/// Turns that a copy takes, and some.
const TURNS: usize = LONG / SLICE + 4;

fn pair() -> (Pair, u64) {
    let mut pair = Pair::new(0);
    let region = pair.share_all();
    (pair, region)
}

impl Pair {
    /// Begins with a long write, some slices of which are there.
    fn begin_to_write(&mut self, kind: Kind, region: u64) -> u64 {
        let token = self.start_with(kind, region, at(0), &pattern(LONG));
        (0..3).for_each(|_| self.world.turn());
        assert!(self.written() > 0 && self.written() < LONG);
        token
    }

    /// The same with a long read.
    fn begin_to_read(&mut self, region: u64) -> u64 {
        let token = self.start(Kind::Read, region, some(0, SHARED_BYTES));
        (0..3).for_each(|_| self.world.turn());
        self.asker.poll();
        assert!(self.asker.operated.is_empty());
        token
    }

    /// How many bytes of the pattern are in the owner's memory, from the start on.
    fn written(&self) -> usize {
        let (owned, pattern) = (self.owned(0, LONG), pattern(LONG));
        owned.iter().zip(&pattern).take_while(|(a, b)| a == b).count()
    }

    /// From now on nothing is written; a part is there.
    fn a_part_is_left(&mut self) {
        let written = self.written();
        (0..TURNS).for_each(|_| self.world.turn());
        assert!(written > 0 && written < LONG, "{written}");
        assert!(self.written() == written && self.owned(written as u32, 64) == [0; 64]);
    }

    fn is_whole(&self) -> bool {
        self.written() == LONG
    }

    fn ended(&mut self) -> Vec<Operated> {
        self.asker.poll();
        self.asker.operated.drain(..).collect()
    }

    /// What the engine has of the apps' memory is somebody's.
    fn audit(&mut self) {
        self.world.audit();
        restore(&mut self.world, 0);
        self.world.audit();
    }

    /// Whether the engine has given a channel up.
    fn has_left(&self, app: &App) -> bool {
        self.world.hosts[0].members[0].events.iter().any(|event| match event {
            Event::ChannelRemoved { channel, .. } => *channel == app.channel,
            _ => false,
        })
    }
}

/// Others that ask meanwhile get their answers in the same turn.
#[test]
fn a_turn_copies_a_slice_whatever_is_asked() {
    let (mut pair, region) = pair();
    let mut other = pair.world.attach(0, SIZES);
    let (near, _) = pair.world.connect(&mut other, &mut pair.owner, PORT);
    for kind in [Kind::Write, Kind::Read] {
        let bytes = pattern(LONG);
        let token = match kind {
            Kind::Write => pair.start_with(kind, region, at(0), &bytes),
            _ => pair.start(kind, region, some(0, SHARED_BYTES)),
        };
        for turn in 1..LONG / SLICE {
            other.submit(&read(near, region, 8));
            pair.world.turn();
            other.poll();
            assert_eq!(other.operated.drain(..).count(), 1, "turn {turn}");
            assert!(pair.ended().is_empty());
            if kind == Kind::Write {
                assert!(pair.owned(0, turn * SLICE) == bytes[..turn * SLICE]);
                assert!(pair.owned((turn * SLICE) as u32, 64) == [0; 64], "turn {turn}");
            }
        }
        pair.world.turn();
        let ended = pair.ended();
        assert_eq!((ended.len(), ended[0].token, ended[0].status), (1, token, Status::Done));
        assert!(kind == Kind::Write || ended[0].read == bytes);
    }
    assert!(pair.is_whole());
    pair.audit();
}

fn read(connection: u64, region: u64, bytes: u32) -> Command {
    let (kind, stride, token, place, count) = (Kind::Read as u8, 0, 1, 0, 0);
    let (operand, second) = (0, 0);
    Command::Ask { kind, stride, connection, token, region, place, bytes, count, operand, second }
}

/// However many an app begins at once, another's is done as if there were one of its.
#[test]
fn apps_have_their_turns() {
    let (mut pair, region) = pair();
    let mut other = pair.world.attach(0, SIZES);
    let (near, _) = pair.world.connect(&mut other, &mut pair.owner, PORT);
    let mut connections = vec![pair.near];
    for _ in 0..2 {
        connections.push(pair.world.connect(&mut pair.asker, &mut pair.owner, PORT).0);
    }
    for connection in &connections {
        pair.asker.submit(&read(*connection, region, SHARED_BYTES));
    }
    other.submit(&read(near, region, SHARED_BYTES));
    let (mut ended, mut other_ended) = (vec![], 0);
    for turn in 1.. {
        pair.world.turn();
        ended.extend(pair.ended().iter().map(|_| turn));
        other.poll();
        if other.operated.pop_front().is_some() {
            other_ended = turn;
        }
        if ended.len() == 3 && other_ended > 0 {
            break;
        }
        assert!(turn < 100 * TURNS, "stuck: {ended:?}");
    }
    assert!(other_ended <= 2 * TURNS, "ended in turn {other_ended}, the others in {ended:?}");
    assert!(ended[2] <= 4 * TURNS, "ended in {ended:?}");
    pair.audit();
}

/// In each turn a new engine goes on with it.
#[test]
fn order_is_kept_whichever_engine_is_made_again() {
    for restores in [false, true] {
        let (mut pair, region) = pair();
        let bytes = pattern(LONG);
        let write = pair.start_with(Kind::WriteNotify, region, at(0), &bytes);
        let first = pair.start(Kind::Read, region, some(SHARED_BYTES as u64 - 8, 8));
        let all = pair.start(Kind::Read, region, some(0, SHARED_BYTES));
        assert!(pair.asker.send(pair.near, b"behind"));
        let (mut ended, mut told, mut heard) = (vec![], 0, 0);
        for _ in 0..2 * TURNS {
            pair.world.turn();
            pair.owner.poll();
            told += pair.owner.told.drain(..).count();
            heard += pair.owner.received.len();
            pair.owner.received.clear();
            assert!((told == 0 && heard == 0) || pair.is_whole());
            ended.extend(pair.ended());
            assert!(heard == 0 || ended.len() == 3, "a message came first");
            if restores {
                restore(&mut pair.world, 0);
                pair.world.audit();
            }
        }
        let tokens: Vec<u64> = ended.iter().map(|operated| operated.token).collect();
        assert_eq!((tokens, told, heard), (vec![write, first, all], 1, 1), "{restores}");
        assert!(ended.iter().all(|operated| operated.status == Status::Done));
        assert!(ended[1].read == bytes[LONG - 8..] && ended[2].read == bytes);
    }
}

/// The owner is told in the same turn.
#[test]
fn what_is_revoked_is_written_and_read_no_further() {
    for restores in [false, true] {
        let (mut pair, region) = pair();
        let write = pair.begin_to_write(Kind::WriteNotify, region);
        pair.owner.submit(&Command::Unshare { token: 6, region });
        let late = pair.start(Kind::FetchAdd, region, at(0));
        pair.world.turn();
        pair.owner.poll();
        let told: Vec<Completion> = pair.owner.told.drain(..).collect();
        assert_eq!(told, [Completion::Unshared { status: Status::Done as u8, token: 6 }]);
        if restores {
            pair.audit();
        }
        pair.a_part_is_left();
        assert_eq!(pair.end(write).status, Status::NoRegion);
        assert_eq!(pair.end(late).status, Status::NoRegion);
        pair.owner.poll();
        assert!(pair.owner.told.is_empty(), "of what was not written");

        let again = pair.share_all();
        assert_eq!(pair.ask_with(Kind::Write, again, at(0), &pattern(LONG)).status, Status::Done);
        let read = pair.begin_to_read(again);
        let late = pair.start(Kind::Read, again, some(0, 8));
        if restores {
            pair.audit();
        }
        assert_eq!(pair.unshare(again), Status::Done);
        let read = pair.end(read);
        assert_eq!((read.status, read.read.len()), (Status::NoRegion, 0));
        assert_eq!(pair.end(late).status, Status::NoRegion);
        pair.audit();
        let third = pair.share_all();
        assert!(pair.ask(Kind::Read, third, some(0, SHARED_BYTES)).read == pattern(LONG));
        pair.audit();
    }
}

/// What is read has all of the window, and is given up: nothing of it will be released.
#[test]
fn a_message_goes_on_when_what_is_read_beside_it_is_revoked() {
    for behind in [false, true] {
        let (mut pair, region) = pair();
        let read = pair.begin_to_read(region);
        let late = behind.then(|| pair.start(Kind::FetchAdd, region, at(0)));
        assert!(pair.owner.send(pair.far, b"to be revoked"));
        pair.world.turn();
        pair.asker.poll();
        assert!(pair.asker.received.is_empty(), "there is no window for it");
        assert_eq!(pair.unshare(region), Status::Done);
        assert_eq!(pair.end(read).status, Status::NoRegion);
        late.into_iter().for_each(|late| assert_eq!(pair.end(late).status, Status::NoRegion));
        (0..TURNS).for_each(|_| pair.world.turn());
        pair.asker.poll();
        assert_eq!(pair.asker.received.len(), 1);
        pair.audit();
    }
}

/// The read had a claim to the whole pool, of which nothing is left.
#[test]
fn a_read_that_waits_for_memory_and_is_revoked_keeps_out_nobody() {
    let mut pair = Pair::of_sizes(0, Sizes { receive_pool_bytes: 256 << 10, ..SIZES });
    let region = pair.share_all();
    let (_, other) = pair.world.connect(&mut pair.asker, &mut pair.owner, PORT);
    assert!(pair.owner.send(other, &[1; 100]) && pair.owner.send(other, &[2; 8000]));
    pair.world.turn();
    let read = pair.start(Kind::Read, region, some(0, 200_000));
    pair.world.turn();
    assert!(pair.ended().is_empty());
    assert_eq!(pair.unshare(region), Status::Done);
    let released = pair.asker.received.pop_back().expect("both came");
    pair.asker.release(released);
    assert_eq!(pair.end(read).status, Status::NoRegion);
    assert!(pair.owner.send(other, &[3; 100]));
    (0..4).for_each(|_| pair.world.turn());
    pair.asker.poll();
    assert_eq!(pair.asker.received.len(), 2, "one that is kept, and one that has just come");
    pair.audit();
}

/// By either side, aborted or in order: only what its own app has closed in order becomes whole.
#[test]
fn a_connection_that_ends_leaves_a_part_of_what_is_written() {
    for (by_owner, abort) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut pair, region) = pair();
        let write = pair.begin_to_write(Kind::Write, region);
        let behind = pair.start_with(Kind::Write, region, at(0), &[1; 8]);
        pair.world.turn();
        let (app, connection) = match by_owner {
            true => (&mut pair.owner, pair.far),
            false => (&mut pair.asker, pair.near),
        };
        app.submit(&Command::Close { connection, abort });
        pair.world.turn();
        pair.audit();
        let is_in_order = !by_owner && !abort;
        if is_in_order {
            assert!(pair.ended().is_empty() && !pair.is_whole());
        } else {
            pair.a_part_is_left();
        }
        let first = pair.end(write).status;
        let second = pair.end(behind).status;
        let second_is = if is_in_order { Status::Unknown } else { Status::Failed };
        assert_eq!((first, second), (Status::Unknown, second_is), "{by_owner} {abort}");
        assert!(!is_in_order || pair.owned(0, LONG)[8..] == pattern(LONG)[8..]);
        pair.world.turn_until(|_| {
            pair.asker.poll();
            pair.owner.poll();
            !pair.asker.closed.is_empty() && !pair.owner.closed.is_empty()
        });
        pair.audit();
    }
}

/// Nobody keeps its memory until something is whole.
#[test]
fn an_app_that_ends_leaves_a_part_of_what_is_written() {
    for owner_ends in [false, true] {
        let (mut pair, region) = pair();
        let write = pair.begin_to_write(Kind::Write, region);
        let channel = if owner_ends { pair.owner.channel } else { pair.asker.channel };
        pair.world.post(0, Request::RemoveChannel { channel });
        (0..2).for_each(|_| pair.world.turn());
        assert!(pair.has_left(if owner_ends { &pair.owner } else { &pair.asker }));
        pair.audit();
        pair.a_part_is_left();
        if owner_ends {
            assert_eq!(pair.end(write).status, Status::Unknown);
        }
    }
}

#[test]
fn a_read_ends_with_its_connection_or_either_app() {
    for case in 0..4 {
        let (mut pair, region) = pair();
        let read = pair.begin_to_read(region);
        let (asker, owner) = (pair.asker.channel, pair.owner.channel);
        match case {
            0 => pair.asker.submit(&Command::Close { connection: pair.near, abort: true }),
            1 => pair.owner.submit(&Command::Close { connection: pair.far, abort: false }),
            2 => pair.world.post(0, Request::RemoveChannel { channel: owner }),
            _ => pair.world.post(0, Request::RemoveChannel { channel: asker }),
        }
        pair.world.turn();
        if case < 3 {
            let ended = pair.end(read);
            assert_eq!((ended.status, ended.read.len()), (Status::Failed, 0), "{case}");
        }
        pair.audit();
    }
}

/// The first connection's app aborts while it copies, and others stand in line.
#[test]
fn those_in_line_go_on_when_the_first_has_ended() {
    let (mut pair, region) = pair();
    let second = pair.world.connect(&mut pair.asker, &mut pair.owner, PORT).0;
    pair.begin_to_read(region);
    pair.asker.submit(&read(second, region, SHARED_BYTES));
    pair.world.turn();
    pair.asker.submit(&Command::Close { connection: pair.near, abort: true });
    pair.world.turn();
    pair.audit();
    (0..TURNS).for_each(|_| pair.world.turn());
    let statuses: Vec<Status> = pair.ended().iter().map(|operated| operated.status).collect();
    assert_eq!(statuses, [Status::Failed, Status::Done]);
}

/// What hundreds of connections wait for is not shared any more.
#[test]
fn those_in_line_are_tried_bit_by_bit() {
    const IN_LINE: usize = 250;
    let allowance = Allowance::of_connections(IN_LINE as u32 + 1);
    let mut pair = Pair::allowed(0, World::new(1, Faults::default()), allowance);
    let region = pair.share_all();
    let waiting: Vec<u64> = (0..IN_LINE)
        .map(|_| pair.world.connect(&mut pair.asker, &mut pair.owner, PORT).0)
        .collect();
    pair.begin_to_read(region);
    let mut ended = 0;
    for connections in waiting.chunks(64) {
        connections.iter().for_each(|near| pair.asker.submit(&read(*near, region, SHARED_BYTES)));
        pair.world.turn();
        ended += pair.ended().len();
    }
    assert!(ended < IN_LINE / 2, "{ended} were copied meanwhile");
    pair.owner.submit(&Command::Unshare { token: 6, region });
    while ended < IN_LINE + 1 {
        pair.world.turn();
        let now = pair.ended().len();
        assert!(now <= 48, "{now} in one turn, after {ended}");
        ended += now;
        pair.audit();
    }
    let done = Completion::Unshared { status: Status::Done as u8, token: 6 };
    assert_eq!(pair.owner_is_told(), done);
}

/// Memory comes free while the connection that it is for copies.
#[test]
fn a_message_that_waits_for_memory_comes_though_its_receiver_writes() {
    let sizes = Sizes { receive_pool_bytes: 1 << 20, ..SIZES };
    let mut pair = Pair::of_sizes(0, sizes);
    let region = pair.share_all();
    let (_, other) = pair.world.connect(&mut pair.asker, &mut pair.owner, PORT);
    assert!(pair.owner.send(other, &pattern(512 << 10)));
    pair.world.turn();
    assert!(pair.owner.send(pair.far, &pattern(768 << 10)));
    let write = pair.begin_to_write(Kind::Write, region);
    pair.asker.poll();
    let filler = pair.asker.received.pop_front().expect("it came");
    assert!(pair.asker.received.is_empty(), "there is room for one");
    pair.asker.release(filler);
    pair.world.turn();
    assert!(!pair.is_whole());
    assert_eq!(pair.end(write).status, Status::Done);
    (0..TURNS).for_each(|_| pair.world.turn());
    pair.asker.poll();
    assert_eq!(pair.asker.received.len(), 1);
    pair.audit();
}
