//! Connections that wait until it is known of which groups their user is a member.
//!
//! The user database may be slow, and anybody may connect. So nobody waits for it here: the broker
//! is asked about a few users at a time, about each once, in turn, and what it says is good for a
//! while. No I/O: the control plane asks, and brings the answers.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use clearway_control::policy::Peer;
use clearway_nic::strangers::Socket;

use crate::broker::{GroupsOf, LOOKUPS_AT_ONCE};

/// Connections of one user that wait.
const WAITING_PER_USER_MAX: usize = 32;
/// Connections that wait.
const WAITING_MAX: usize = 512;
/// How long an answer is good for; a change in the user database takes as long to be seen.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Answers that are kept.
const ANSWERS_MAX: usize = 1024;

/// Who waits, and what is known.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    waiting: HashMap<u32, Vec<(Socket, Peer)>>,
    waiting_count: usize,
    /// Users who wait and about whom nobody has been asked yet, in the order of their turns.
    next: VecDeque<u32>,
    /// Users about whom the broker has been asked.
    asked: Vec<u32>,
    answers: HashMap<GroupsOf, (Instant, Vec<u32>)>,
}

/// What becomes of a connection.
#[derive(Debug)]
pub(super) enum Admission {
    /// The groups are known.
    Now(Socket, Peer),
    /// It waits for them.
    Waits,
    /// Too many wait already.
    Full(Socket, Peer),
}

impl Admissions {
    /// A connection whose peer has only the group that it came with.
    pub(super) fn admit(&mut self, socket: Socket, mut peer: Peer, now: Instant) -> Admission {
        if let Some((until, groups)) = self.answers.get(&question(&peer))
            && now < *until
        {
            peer.groups.clone_from(groups);
            return Admission::Now(socket, peer);
        }
        let user = peer.user;
        let of_user = self.waiting.get(&user).map_or(0, Vec::len);
        if of_user >= WAITING_PER_USER_MAX || self.waiting_count >= WAITING_MAX {
            return Admission::Full(socket, peer);
        }
        if of_user == 0 && !self.asked.contains(&user) {
            self.next.push_back(user);
        }
        self.waiting.entry(user).or_default().push((socket, peer));
        self.waiting_count += 1;
        Admission::Waits
    }

    /// Nobody will answer any more. Gives back who waits.
    pub(super) fn give_up(&mut self) -> Vec<(Socket, Peer)> {
        std::mem::take(self).waiting.into_values().flatten().collect()
    }

    /// Connections that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting_count
    }

    /// What to ask the broker now: about each user once at a time.
    pub(super) fn next_question(&mut self) -> Option<GroupsOf> {
        if self.asked.len() >= LOOKUPS_AT_ONCE {
            return None;
        }
        while let Some(user) = self.next.pop_front() {
            if let Some((_, peer)) = self.waiting.get(&user).and_then(|waiting| waiting.first()) {
                self.asked.push(user);
                return Some(question(peer));
            }
        }
        None
    }

    /// Takes an answer, and gives back who waited for it.
    pub(super) fn answer(
        &mut self,
        of: GroupsOf,
        groups: Vec<u32>,
        now: Instant,
    ) -> Vec<(Socket, Peer)> {
        self.asked.retain(|user| *user != of.user);
        let waited = self.waiting.remove(&of.user).unwrap_or_default();
        let (mut admitted, others): (Vec<_>, Vec<_>) =
            waited.into_iter().partition(|(_, peer)| question(peer) == of);
        self.waiting_count -= admitted.len();
        if !others.is_empty() {
            self.waiting.insert(of.user, others);
            self.next.push_back(of.user);
        }
        for (_, peer) in &mut admitted {
            peer.groups.clone_from(&groups);
        }
        self.remember(of, groups, now);
        admitted
    }

    fn remember(&mut self, of: GroupsOf, groups: Vec<u32>, now: Instant) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.retain(|_, (until, _)| now < *until);
        }
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(of, (now + ANSWER_TIME, groups));
    }
}

fn question(peer: &Peer) -> GroupsOf {
    // The kernel says it of every peer.
    let group = peer.groups.first().copied().unwrap_or(u32::MAX);
    GroupsOf { user: peer.user, group }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn peer(user: u32, group: u32) -> Peer {
        Peer { user, process: 1, groups: vec![group] }
    }

    fn admit(admissions: &mut Admissions, peer: Peer, now: Instant) -> Admission {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).expect("any descriptor");
        admissions.admit(Socket::clean(descriptor), peer, now)
    }

    /// Whoever connects a thousand times is asked about once, and keeps nobody from being asked
    /// about.
    #[test]
    fn users_take_turns_and_nobody_waits_in_numbers() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        let outcomes = (0..1000).map(|_| admit(&mut admissions, peer(1, 1), now));
        let waiting = outcomes.filter(|outcome| matches!(outcome, Admission::Waits)).count();
        assert_eq!(waiting, WAITING_PER_USER_MAX);
        assert!(matches!(admit(&mut admissions, peer(2, 2), now), Admission::Waits));
        assert_eq!(admissions.next_question(), Some(GroupsOf { user: 1, group: 1 }));
        assert_eq!(admissions.next_question(), Some(GroupsOf { user: 2, group: 2 }));
        assert_eq!(admissions.next_question(), None);
        let two = admissions.answer(GroupsOf { user: 2, group: 2 }, vec![2, 7], now);
        assert_eq!(two.len(), 1);
        assert_eq!(two[0].1.groups, [2, 7]);
        let one = admissions.answer(GroupsOf { user: 1, group: 1 }, vec![1], now);
        assert_eq!(one.len(), WAITING_PER_USER_MAX);
        assert_eq!(admissions.waiting_count, 0);
        assert!(admissions.waiting.is_empty() && admissions.asked.is_empty());
    }

    #[test]
    fn whoever_waits_is_given_back_when_nobody_will_answer() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        for user in [1, 1, 2] {
            assert!(matches!(admit(&mut admissions, peer(user, 0), now), Admission::Waits));
        }
        assert!(admissions.next_question().is_some());
        assert_eq!(admissions.give_up().len(), 3);
        assert_eq!((admissions.waiting(), admissions.next_question()), (0, None));
    }

    #[test]
    fn answers_are_good_for_a_while() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        admissions.answer(GroupsOf { user: 1, group: 1 }, vec![1, 5], now);
        let Admission::Now(_, known) = admit(&mut admissions, peer(1, 1), now) else {
            panic!("it is known");
        };
        assert_eq!(known.groups, [1, 5]);
        // Another group may have other rights.
        assert!(matches!(admit(&mut admissions, peer(1, 9), now), Admission::Waits));
        let later = now + ANSWER_TIME;
        assert!(matches!(admit(&mut admissions, peer(1, 1), later), Admission::Waits));
        // Of the two that wait, one is answered, and then it is the other's turn.
        let first = admissions.next_question().expect("a question");
        assert_eq!(admissions.answer(first, vec![], later).len(), 1);
        assert_ne!(admissions.next_question().expect("a question"), first);
    }

    /// As many users as there may be: no more are asked about at a time than the broker works on,
    /// and no more wait than there is room for.
    #[test]
    fn many_users_do_not_take_all() {
        let (mut admissions, now) = (Admissions::default(), Instant::now());
        let outcomes = (0..10_000).map(|user| admit(&mut admissions, peer(user, 0), now));
        let waiting = outcomes.filter(|outcome| matches!(outcome, Admission::Waits)).count();
        assert_eq!(waiting, WAITING_MAX);
        let asked = std::iter::from_fn(|| admissions.next_question()).count();
        assert_eq!(asked, LOOKUPS_AT_ONCE);
        for user in 0..10_000 {
            admissions.answer(GroupsOf { user, group: 0 }, vec![], now);
        }
        assert!(admissions.answers.len() <= ANSWERS_MAX);
        assert_eq!(admissions.waiting_count, 0);
    }
}
