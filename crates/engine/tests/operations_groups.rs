//! Groups of peers, to which regions are granted: who is in one may change at any time, and who is
//! no longer can do nothing more, as if the region were revoked.

mod world;

use clearway_base::Prefix;
use clearway_channel::{
    Command, Completion, Member, OperationKind as Kind, OperationStatus as Status, Rights,
    Violation,
};
use clearway_engine::{Allowance, Event, State, StateError};
use world::pair::{PORT, Pair, SHARED_BYTES, Words, at, pattern, restore, some, to_all, to_group};
use world::{Place, SIZES, World, address};

const ALL: (u32, u32) = (0, SHARED_BYTES);
/// Turns that a copy of all takes, and some.
const TURNS: usize = SHARED_BYTES as usize / (64 << 10) + 4;

/// The hosts of these apps.
fn hosts<const N: usize>(hosts: [usize; N]) -> [Member; N] {
    hosts.map(|host| Member::Prefix(Prefix::new(address(host), 32)))
}

/// A region that is shared with a group.
fn share(pair: &mut Pair, rights: Rights) -> u64 {
    let (status, region) = pair.share("all", ALL, &[to_group("peers", rights)]);
    assert_eq!(status, Status::Done);
    region
}

/// Also by an engine that was made again, and whether the region was shared before or after.
#[test]
fn who_may_do_what_the_last_members_say() {
    for owner_host in [1, 0] {
        let mut pair = Pair::new(owner_host);
        let region = share(&mut pair, Rights::ALL);
        let user_is_known = owner_host == 0;
        let [own] = hosts([0]);
        let other = Member::Prefix("10.8.0.0/16".parse().expect("a prefix"));
        let cases: [(&[Member], bool); 8] = [
            (&[other, own], true),
            (&[other, Member::User(7)], false),
            (&[own, Member::User(7)], true),
            (&[], false),
            (&[Member::User(8)], user_is_known),
            (&[other], false),
            (&[Member::Prefix("0.0.0.0/0".parse().expect("a prefix"))], true),
            (&[], false),
        ];
        assert_eq!(pair.ask(Kind::Read, region, some(0, 8)).status, Status::NotAllowed);
        for (members, is_allowed) in cases {
            assert_eq!(pair.set_group("peers", members), Status::Done);
            assert_eq!(pair.set_group("others", &[own]), Status::Done);
            for _ in 0..2 {
                let statuses = [
                    pair.ask(Kind::Read, region, some(0, 8)).status,
                    pair.ask_with(Kind::Write, region, at(0), &[1; 8]).status,
                    pair.ask(Kind::FetchAdd, region, at(0)).status,
                ];
                let status = if is_allowed { Status::Done } else { Status::NotAllowed };
                assert_eq!(statuses, [status; 3], "{members:?}");
                let found = pair.ask_with(Kind::Find, 0, Words::default(), b"all").status;
                assert_eq!(found, if is_allowed { Status::Done } else { Status::NotFound });
                restore(&mut pair.world, owner_host);
                pair.world.audit();
            }
        }
    }
}

/// Of three hosts, two read for long when one of them is taken from the group: its connection is
/// reset, and the other's read goes on.
#[test]
fn a_host_that_is_removed_reads_no_further_and_others_do() {
    for has_other_grant in [false, true] {
        let world = World::at_switch(5, &[1, 1, 1]);
        let places = [0, 1].map(Place::from);
        let mut pair = Pair::between(world, places, Allowance::of_connections(64), SIZES);
        let mut other = pair.world.attach(2, SIZES);
        let (near, _) = pair.world.connect(&mut other, &mut pair.owner, PORT);
        let mut grants = vec![to_group("peers", Rights::READ)];
        grants.extend(has_other_grant.then_some(to_all(Rights::READ)));
        let (_, region) = pair.share("all", ALL, &grants);
        let bytes = pattern(SHARED_BYTES as usize);
        pair.own(0, &bytes);
        assert_eq!(pair.set_group("peers", &hosts([1, 2])), Status::Done);

        let token = pair.start(Kind::Read, region, some(0, SHARED_BYTES));
        other.submit(&read(near, region, SHARED_BYTES));
        (0..20).for_each(|_| pair.world.turn());
        pair.asker.poll();
        other.poll();
        assert!(pair.asker.operated.is_empty() && other.operated.is_empty(), "both under way");
        assert_eq!(pair.set_group("peers", &hosts([2])), Status::Done);
        // From now on its app may write what it likes: nobody reads it.
        pair.world.audit();
        restore(&mut pair.world, 0);
        let over = pair.end(token);
        if has_other_grant {
            assert!(over.status == Status::Done && over.read == bytes);
        } else {
            assert_eq!((over.status, over.read.len()), (Status::Failed, 0));
            pair.world.turn_until(|_| {
                pair.asker.poll();
                !pair.asker.closed.is_empty()
            });
        }
        pair.world.turn_until(|_| {
            other.poll();
            !other.operated.is_empty()
        });
        let over = other.operated.pop_front().expect("just seen");
        assert!(over.status == Status::Done && over.read == bytes);
        pair.world.audit();
        if !has_other_grant {
            // It may connect again, and is refused.
            (pair.near, _) = pair.world.connect(&mut pair.asker, &mut pair.owner, PORT);
            assert_eq!(pair.ask(Kind::Read, region, some(0, 8)).status, Status::NotAllowed);
        }
    }
}

fn read(connection: u64, region: u64, bytes: u32) -> Command {
    let (kind, stride, token, place, count) = (Kind::Read as u8, 0, 1, 0, 0);
    let (operand, second) = (0, 0);
    Command::Ask { kind, stride, connection, token, region, place, bytes, count, operand, second }
}

/// Within an engine a long read or write that is under way ends at once, and its owner is told of
/// the group in the same turn.
#[test]
fn within_an_engine_a_write_and_a_read_end() {
    let long = SHARED_BYTES as usize;
    for restores in [false, true] {
        let mut pair = Pair::new(0);
        let region = share(&mut pair, Rights::ALL);
        let [own] = hosts([0]);
        assert_eq!(pair.set_group("peers", &[own]), Status::Done);
        let write = pair.start_with(Kind::Write, region, at(0), &pattern(long));
        let late = pair.start(Kind::FetchAdd, region, at(0));
        (0..3).for_each(|_| pair.world.turn());
        pair.begin_to_set_group("peers", &[], 21);
        pair.begin_to_set_group("others", &[own], 22);
        for token in [21, 22] {
            pair.world.turn();
            assert_eq!(told(&mut pair), [Completion::GroupSet { status: 0, token }]);
        }
        let left = pair.owned(0, long);
        assert!(left[..64] == pattern(64) && left != pattern(long), "a part is there");
        if restores {
            audit(&mut pair);
        }
        assert_eq!(pair.end(write).status, Status::NotAllowed);
        assert_eq!(pair.end(late).status, Status::NotAllowed);
        (0..TURNS).for_each(|_| pair.world.turn());
        assert!(pair.owned(0, long) == left);

        assert_eq!(pair.set_group("peers", &[own]), Status::Done);
        let again = pair.ask_with(Kind::Write, region, at(0), &pattern(long));
        assert_eq!(again.status, Status::Done);
        let read = pair.start(Kind::Read, region, some(0, SHARED_BYTES));
        let late = pair.start(Kind::Read, region, some(0, 8));
        (0..3).for_each(|_| pair.world.turn());
        assert_eq!(pair.set_group("peers", &[Member::User(7)]), Status::Done);
        if restores {
            audit(&mut pair);
        }
        let read = pair.end(read);
        assert_eq!((read.status, read.read.len()), (Status::NotAllowed, 0));
        assert_eq!(pair.end(late).status, Status::NotAllowed);
        assert_eq!(pair.set_group("peers", &[own]), Status::Done);
        assert!(pair.ask(Kind::Read, region, some(0, SHARED_BYTES)).read == pattern(long));
        audit(&mut pair);
    }
}

fn told(pair: &mut Pair) -> Vec<Completion> {
    pair.owner.poll();
    pair.owner.told.drain(..).collect()
}

/// Each goes through what is being read: a turn takes one, however many an app has for it.
#[test]
fn a_turn_takes_one_group_of_an_app() {
    let mut pair = Pair::new(0);
    (0..5).for_each(|token| pair.begin_to_set_group("peers", &hosts([0]), token));
    for token in 0..5 {
        pair.world.turn_alone(0);
        assert_eq!(told(&mut pair), [Completion::GroupSet { status: 0, token }]);
    }
}

/// Who is taken from the group and comes back while it writes has to write again.
#[test]
fn a_member_that_is_back_does_not_write_on() {
    let mut pair = Pair::new(0);
    let region = share(&mut pair, Rights::WRITE);
    let [own] = hosts([0]);
    assert_eq!(pair.set_group("peers", &[own]), Status::Done);
    let bytes = pattern(SHARED_BYTES as usize);
    let write = pair.start_with(Kind::Write, region, at(0), &bytes);
    (0..3).for_each(|_| pair.world.turn());
    pair.begin_to_set_group("peers", &[], 21);
    pair.begin_to_set_group("peers", &[own], 22);
    for token in [21, 22] {
        assert_eq!(pair.owner_is_told(), Completion::GroupSet { status: 0, token });
    }
    assert_eq!(pair.end(write).status, Status::NotAllowed);
    audit(&mut pair);
    assert!(pair.owned(0, bytes.len()) != bytes);
    assert_eq!(pair.ask_with(Kind::Write, region, at(0), &bytes).status, Status::Done);
    assert!(pair.owned(0, bytes.len()) == bytes);
}

fn audit(pair: &mut Pair) {
    pair.world.audit();
    restore(&mut pair.world, 0);
    pair.world.audit();
}

#[test]
fn there_are_so_many_groups_and_regions_tell_who_is_in_theirs() {
    let mut pair = Pair::new(1);
    let region = share(&mut pair, Rights::READ);
    let grants = |pair: &mut Pair| {
        let snapshot = pair.world.snapshot(1);
        snapshot.regions.iter().find(|it| it.region == region).expect("shared").grants.clone()
    };
    assert_eq!(grants(&mut pair), ["group peers (nobody): read"]);
    assert_eq!(pair.set_group("peers", &[Member::User(5)]), Status::Done);
    assert_eq!(grants(&mut pair), ["group peers (user 5): read"]);
    for number in 1..64 {
        assert_eq!(pair.set_group(&format!("{number}"), &hosts([0])), Status::Done);
    }
    restore(&mut pair.world, 1);
    assert_eq!(pair.set_group("more", &hosts([0])), Status::TooManyGroups);
    assert_eq!(pair.set_group("peers", &hosts([0])), Status::Done);
    assert_eq!(pair.set_group("1", &[]), Status::Done);
    assert_eq!(pair.set_group("more", &hosts([0])), Status::Done);
    assert_eq!(pair.ask(Kind::Read, region, some(0, 8)).status, Status::Done);
}

/// What makes no sense is no group: the app that writes it loses its channel.
#[test]
fn a_group_of_no_sense_ends_its_channel() {
    for bytes in [&[0; 24][..], &[1; 23], &[0xff; 48]] {
        let mut pair = Pair::new(1);
        let _ =
            pair.describe(bytes, |offset, length| Command::SetGroup { token: 1, offset, length });
        let expected = Violation::Description(bytes.len() as u32);
        pair.world.turn_until(|world| {
            let mut events = world.hosts[1].members[0].events.iter();
            events.any(
                |event| matches!(event, Event::Violation { violation: it, .. } if *it == expected),
            )
        });
    }
}

/// No engine is made of groups that there cannot be.
#[test]
fn a_state_of_wrong_groups_is_refused() {
    type Change = fn(&mut Vec<Vec<u8>>);
    let changes: [Change; 4] = [
        |groups| groups.push(groups[0].clone()),
        |groups| groups[0][2] = 0,
        |groups| groups[0].truncate(24),
        |groups| groups[0][0] = 17,
    ];
    for change in changes {
        let mut pair = Pair::new(1);
        assert_eq!(pair.set_group("peers", &hosts([0])), Status::Done);
        let refused = pair.world.restore(1, |mut state: State| {
            let owner = state.channels.iter_mut().find(|it| !it.groups.is_empty());
            change(&mut owner.expect("it has groups").groups);
            state
        });
        assert!(matches!(refused, Err(StateError::Invalid(_))), "{refused:?}");
    }
}
