//! A region that its owner shares with two named groups, whose members it changes all the time: who
//! is in none of them does nothing once the owner was told, and who is in one is not refused
//! (`docs/operations.md`, "Groups of peers").
//!
//! ```text
//!  0 words that others add to │ board: all of one byte, the owner's │ yard: what others write
//! ```
//!
//! The owner writes another byte on the board whenever a group is another one, so that each byte
//! that somebody reads says when it was read. In the yard each writes bytes of its own. What may be
//! so follows from the order of what the owner has said, was told and has written, see [`Tick`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;

use clearway_base::{Prefix, Random};
use clearway_channel::{Grant, Grantee, Group, GroupName, MEMBERS_MAX, Member, Rights, Shared};

use super::layout::{CLUB_WORDS, Layout};
use super::vault::{Neighbourhood, Who};

/// A grant to the addresses of one host: a region has 16 grants at most.
const FOUNDER_GRANTS_MAX: usize = 12;

/// What the owner has said, was told and has written is counted, and each of it has a number.
pub(super) type Tick = u64;

/// What stands for somebody who asks: hosts have theirs, and so do the users of the owner's own.
pub(crate) type Mark = u8;
/// That of the first host, and how many have one.
const HOSTS: Mark = 1;
const HOSTS_MAX: u32 = 100;
/// That of the first user of the owner's host.
const USERS: Mark = 128;
const USERS_MAX: usize = 100;

/// The groups that have members; a third one never has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circle {
    /// They may read.
    Readers,
    /// They may do all else.
    Crew,
}

impl Circle {
    const ALL: [Self; 2] = [Self::Readers, Self::Crew];

    fn name(self) -> GroupName {
        let name = match self {
            Self::Readers => "readers",
            Self::Crew => "crew",
        };
        GroupName::new(name.as_bytes()).expect("short")
    }

    fn rights(self) -> Rights {
        match self {
            Self::Readers => Rights::READ,
            Self::Crew => Rights::WRITE | Rights::NOTIFY | Rights::ATOMIC,
        }
    }
}

/// What the owner has said of a group.
#[derive(Debug)]
struct Saying {
    members: BTreeSet<Mark>,
    said: Tick,
    /// From then on it does not count any more: the owner was told of the next.
    over: Tick,
}

/// All that it has said of one.
#[derive(Debug)]
struct History(Vec<Saying>);

impl Default for History {
    /// Nobody is in it.
    fn default() -> Self {
        Self(vec![Saying { members: BTreeSet::new(), said: 0, over: Tick::MAX }])
    }
}

impl History {
    /// What may have counted at some time from `span.start` to `span.end`.
    fn within(&self, span: Range<Tick>) -> impl Iterator<Item = &BTreeSet<Mark>> {
        let latest = self.0.iter().rev().skip_while(move |it| it.said > span.end);
        latest.take_while(move |it| it.over > span.start).map(|it| &it.members)
    }

    fn newest(&self) -> &BTreeSet<Mark> {
        &self.0.last().expect("there is one").members
    }

    fn say(&mut self, members: BTreeSet<Mark>, now: Tick) {
        self.0.push(Saying { members, said: now, over: Tick::MAX });
    }

    /// What was said last counts, and nothing else.
    fn told(&mut self, now: Tick) {
        if let [.., before, _] = &mut self.0[..] {
            before.over = now;
        }
    }
}

/// A word that somebody adds to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Adds that may have been done.
    asked: u64,
    /// What was there when the owner looked last.
    seen: u64,
}

/// The club of one app, as it should be.
#[derive(Debug)]
pub(super) struct Club {
    host: u32,
    layout: Layout,
    /// Addresses of hosts.
    hosts: Vec<Vec<IpAddr>>,
    /// Users of the own host.
    users: Vec<u32>,
    /// A host that may read by a grant of its own.
    founder: Option<Mark>,
    pub(super) grants: Vec<Grant>,
    groups: [History; 2],
    /// The group of which something was said that the owner is not told of.
    changing: Option<Circle>,
    ticks: Tick,
    /// When each version of the board was written.
    board: Vec<Tick>,
    /// The yard was emptied, and the words were looked at, then.
    looked: Tick,
    sums: Vec<Sum>,
    /// Connections with long reads, and whose these are: when one is over for who has asked, the
    /// owner's engine may not have heard of that yet.
    reading: BTreeSet<(u64, Mark)>,
    random: Random,
}

impl Club {
    /// Of an app on a host, among all hosts.
    pub(super) fn new(app: u32, host: u32, layout: Layout, hosts: &[Neighbourhood]) -> Self {
        let mut random = Random::new(!u64::from(app) ^ 0xc1b);
        let mut users = hosts.get(host as usize).map_or(Vec::new(), |at| at.users.clone());
        users.sort_unstable();
        users.dedup();
        let hosts: Vec<Vec<IpAddr>> = hosts.iter().map(|at| at.addresses.clone()).collect();
        let founder = random.below(hosts.len().max(1) as u64) as u32;
        let addresses = hosts.get(founder as usize).map_or(&[][..], |at| at);
        let has_grants = founder != host && addresses.len() <= FOUNDER_GRANTS_MAX;
        let founder = mark_of_host(founder).filter(|_| has_grants);
        let mut grants = Circle::ALL.map(|circle| grant(circle.name(), circle.rights())).to_vec();
        grants.push(grant(GroupName::new(b"nobody").expect("short"), Rights::ALL));
        let of_founder = founder.iter().flat_map(|_| addresses);
        grants.extend(of_founder.map(|address| {
            let to = Grantee::Prefix(Prefix::new(*address, 128));
            Grant { to, rights: Rights::READ }
        }));
        Self {
            host,
            layout,
            hosts,
            users,
            founder,
            grants,
            groups: Default::default(),
            changing: None,
            ticks: 0,
            board: Vec::new(),
            looked: 0,
            sums: vec![Sum::default(); CLUB_WORDS],
            reading: BTreeSet::new(),
            random,
        }
    }

    /// How an app is known.
    pub(super) fn mark(&self, who: Who) -> Option<Mark> {
        if who.host != self.host {
            return mark_of_host(who.host);
        }
        let place = self.users.iter().position(|user| *user == who.user)?;
        (place < USERS_MAX).then_some(USERS + place as Mark)
    }

    /// What has happened so far.
    pub(super) const fn now(&self) -> Tick {
        self.ticks
    }

    /// What was said of its groups, for who reads of a failure.
    pub(super) const fn groups(&self) -> &impl std::fmt::Debug {
        &self.groups
    }

    fn tick(&mut self) -> Tick {
        self.ticks += 1;
        self.ticks
    }

    // ---- who may do what ----

    fn has(&self, circle: Circle, members: &BTreeSet<Mark>, mark: Mark) -> bool {
        let own_host = mark_of_host(self.host).filter(|_| mark >= USERS);
        let has_host = || own_host.is_some_and(|host| members.contains(&host));
        let is_founder = circle == Circle::Readers && self.founder == Some(mark);
        is_founder || members.contains(&mark) || has_host()
    }

    /// True if somebody may have been in a group at some time of a span.
    pub(super) fn may(&self, circle: Circle, mark: Mark, span: Range<Tick>) -> bool {
        self.groups[circle as usize].within(span).any(|members| self.has(circle, members, mark))
    }

    /// True if it was all the time.
    pub(super) fn must(&self, circle: Circle, mark: Mark, span: Range<Tick>) -> bool {
        self.groups[circle as usize].within(span).all(|members| self.has(circle, members, mark))
    }

    /// True if these bytes of the board may have been read by somebody in a span.
    pub(super) fn may_have_read(&self, mark: Mark, span: Range<Tick>, bytes: &[u8]) -> bool {
        let found: BTreeSet<u8> = bytes.iter().copied().collect();
        let is_there = |byte: &u8| {
            self.board.iter().enumerate().any(|(version, written)| {
                let replaced = self.board.get(version + 1).copied().unwrap_or(Tick::MAX);
                let seen = span.start.max(*written)..span.end.min(replaced - 1);
                version as u8 == *byte
                    && seen.start <= seen.end
                    && self.may(Circle::Readers, mark, seen)
            })
        };
        found.iter().all(is_there)
    }

    /// Somebody is about to add to its word.
    pub(super) fn begin_add(&mut self, mark: Mark) {
        self.sums[usize::from(mark)].asked += 1;
    }

    /// It was not done.
    pub(super) fn undo_add(&mut self, mark: Mark) {
        self.sums[usize::from(mark)].asked -= 1;
    }

    /// True if somebody who has added may have found this.
    pub(super) fn may_have_found(&self, mark: Mark, value: u64) -> bool {
        value < self.sums[usize::from(mark)].asked
    }

    // ---- long reads ----

    /// Somebody begins with one on a connection. True if that may be reset for it already.
    pub(super) fn begin_reading(&mut self, connection: u64, mark: Mark) -> bool {
        self.reading.insert((connection, mark));
        let now = self.ticks..self.ticks;
        self.may(Circle::Readers, mark, now.clone()) && !self.must(Circle::Readers, mark, now)
    }

    // ---- what the owner does ----

    /// Before it is shared.
    pub(super) fn furnish(&mut self, shared: &Shared) {
        self.write_board(shared);
    }

    fn write_board(&mut self, shared: &Shared) {
        let board = self.layout.club_board();
        let bytes = vec![self.board.len() as u8; board.len()];
        assert!(shared.write(board.start.into(), &bytes), "in the memory");
        let now = self.tick();
        self.board.push(now);
    }

    /// The owner says who is in one of the groups. Returns that, and the connections that may be
    /// reset for it. `None` if the last one is not done.
    pub(super) fn begin_change(&mut self) -> Option<(Group, Vec<u64>)> {
        if self.changing.is_some() {
            return None;
        }
        let circle = Circle::ALL[self.random.below(2) as usize];
        let marks = match self.random.below(8) {
            0 => BTreeSet::new(),
            1 => self.groups[circle as usize].newest().clone(),
            _ => self.draw(),
        };
        let members = marks.iter().flat_map(|mark| self.members(*mark)).collect();
        let ends = |(_, mark): &&(u64, Mark)| !self.has(circle, &marks, *mark);
        let cut_off = match circle {
            Circle::Readers => self.reading.iter().filter(ends).map(|(it, _)| *it).collect(),
            Circle::Crew => Vec::new(),
        };
        self.changing = Some(circle);
        let now = self.tick();
        self.groups[circle as usize].say(marks, now);
        Some((Group { name: circle.name(), members }, cut_off))
    }

    /// Some hosts, and some users of the own one.
    fn draw(&mut self) -> BTreeSet<Mark> {
        let (mut marks, mut members) = (BTreeSet::new(), 0);
        let others = (0..self.hosts.len() as u32).filter_map(mark_of_host);
        let users = (0..self.users.len().min(USERS_MAX)).map(|place| USERS + place as Mark);
        for mark in others.chain(users) {
            // Of the own host mostly users alone are in it.
            let of = if Some(mark) == mark_of_host(self.host) { 8 } else { 2 };
            let count = self.members(mark).count();
            if self.random.chance(1, of) && members + count <= MEMBERS_MAX {
                members += count;
                marks.insert(mark);
            }
        }
        marks
    }

    fn members(&self, mark: Mark) -> impl Iterator<Item = Member> {
        let user = mark.checked_sub(USERS).and_then(|place| self.users.get(usize::from(place)));
        let addresses = match user {
            None => self.hosts.get(usize::from(mark - HOSTS)).map_or(&[][..], |at| at),
            Some(_) => &[],
        };
        let prefixes = addresses.iter().map(|address| Prefix::new(*address, 128));
        prefixes.map(Member::Prefix).chain(user.copied().map(Member::User))
    }

    /// The owner is told that the group is as it has said.
    pub(super) fn has_changed(&mut self, shared: &Shared) -> Result<(), String> {
        let Some(circle) = self.changing.take() else {
            return Err("a group is set that it did not set".into());
        };
        let found = self.look(shared);
        self.looked = self.tick();
        self.groups[circle as usize].told(self.looked);
        self.write_board(shared);
        found
    }

    /// Have only those added and written who might since the owner has looked last? It clears the
    /// yard.
    pub(super) fn look(&mut self, shared: &Shared) -> Result<(), String> {
        let span = self.looked..self.ticks;
        let yard = self.layout.club_yard();
        let mut bytes = vec![0; yard.len()];
        assert!(shared.read(yard.start.into(), &mut bytes), "in the memory");
        let found: BTreeSet<Mark> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
        let stranger = |mark: &&Mark| !self.may(Circle::Crew, **mark, span.clone());
        if let Some(mark) = found.iter().find(stranger) {
            return Err(format!("{mark} has written, and is in no crew: {:?}", self.groups));
        }
        for mark in 0..CLUB_WORDS {
            let value = shared.load(self.layout.club_word(mark as Mark).into()).unwrap_or_default();
            let Sum { asked, seen } = self.sums[mark];
            let may_change = value >= seen
                && value <= asked
                && (value == seen || self.may(Circle::Crew, mark as Mark, span.clone()));
            if !may_change {
                let what = format!("{seen} became {value}, of {asked} that were asked for");
                return Err(format!("{mark} has added: {what}: {:?}", self.groups));
            }
            self.sums[mark].seen = value;
        }
        bytes.fill(0);
        assert!(shared.write(yard.start.into(), &bytes), "in the memory");
        self.looked = self.ticks;
        Ok(())
    }
}

fn grant(group: GroupName, rights: Rights) -> Grant {
    Grant { to: Grantee::Group(group), rights }
}

fn mark_of_host(host: u32) -> Option<Mark> {
    (host < HOSTS_MAX).then_some(HOSTS + host as Mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::vault::tests::{neighbourhoods, shared};

    const OTHER: Mark = HOSTS + 1;

    fn club() -> (Club, Shared) {
        let (mut club, shared) =
            (Club::new(3, 0, Layout { is_large: false }, &neighbourhoods(3)), shared());
        club.founder = None;
        club.furnish(&shared);
        (club, shared)
    }

    /// These are in a group from now on.
    fn set(club: &mut Club, circle: Circle, members: &[Mark], shared: &Shared) {
        let now = club.tick();
        club.changing = Some(circle);
        club.groups[circle as usize].say(members.iter().copied().collect(), now);
        club.has_changed(shared).unwrap();
    }

    /// Until the owner is told, both what it has said and what it said before may count.
    #[test]
    fn who_may_and_who_must_follow_from_what_was_said_and_told() {
        let (mut club, shared) = club();
        let who = |club: &Club, since| {
            let span = since..club.now();
            let may = club.may(Circle::Crew, OTHER, span.clone());
            (may, club.must(Circle::Crew, OTHER, span))
        };
        let start = club.now();
        assert_eq!(who(&club, start), (false, false));
        set(&mut club, Circle::Crew, &[OTHER], &shared);
        assert_eq!((who(&club, start), who(&club, club.now())), ((true, false), (true, true)));
        let before = club.now();
        let now = club.tick();
        club.groups[Circle::Crew as usize].say(BTreeSet::new(), now);
        assert_eq!(who(&club, club.now()), (true, false), "it is said, and perhaps not so");
        club.changing = Some(Circle::Crew);
        club.has_changed(&shared).unwrap();
        assert_eq!((who(&club, before), who(&club, club.now())), ((true, false), (false, false)));
        set(&mut club, Circle::Crew, &[HOSTS], &shared);
        assert!(club.must(Circle::Crew, USERS, club.now()..club.now()), "of the own host");
        assert!(!club.may(Circle::Readers, OTHER, 0..club.now()), "another group");
    }

    #[test]
    fn who_has_left_has_read_nothing_that_is_newer() {
        let (mut club, shared) = club();
        set(&mut club, Circle::Readers, &[OTHER], &shared);
        let start = club.now();
        let (version, byte) = (club.board.len() - 1, club.board.len() as u8 - 1);
        let reads =
            |club: &Club, since, bytes: &[u8]| club.may_have_read(OTHER, since..club.now(), bytes);
        assert!(reads(&club, start, &[byte; 3]) && !reads(&club, start, &[byte - 1]));
        set(&mut club, Circle::Readers, &[], &shared);
        assert!(club.board.len() > version + 1);
        assert!(reads(&club, start, &[byte]), "before it had left");
        assert!(!reads(&club, start, &[byte, byte + 1]), "a part after that");
        assert!(!reads(&club, club.now(), &[byte]), "of before it has asked");
    }

    #[test]
    fn who_has_left_has_changed_nothing() {
        let (mut club, shared) = club();
        let layout = club.layout;
        let write = || assert!(shared.write(layout.club_yard().start.into(), &[OTHER]));
        let add = |value| assert!(shared.store(layout.club_word(OTHER).into(), value));
        set(&mut club, Circle::Crew, &[OTHER], &shared);
        club.begin_add(OTHER);
        club.begin_add(OTHER);
        write();
        add(1);
        club.look(&shared).unwrap();
        add(3);
        assert!(club.look(&shared).is_err(), "nobody has asked for so many");
        add(1);
        set(&mut club, Circle::Crew, &[], &shared);
        club.look(&shared).unwrap();
        write();
        assert!(club.look(&shared).is_err());
        assert!(shared.write(layout.club_yard().start.into(), &[0]));
        set(&mut club, Circle::Readers, &[OTHER], &shared);
        add(2);
        assert!(club.look(&shared).is_err());
    }
}
