//! Which Ethernet address a neighbour has: the cache of RFC 4861, section 7.3, for ARP and the
//! kernel's answers too.
//!
//! ```text
//!            resolve            answer             30 s              used
//! (nothing) ───────▶ Incomplete ──────▶ Reachable ──────▶ (stale) ───────▶ Probing
//!                  │  ▲ 3 times          ▲    ▲ │     doubt                 ▲ │  │ 3 times
//!                  ▼  │ unanswered       │    │ └───────────────────────────┘ │  ▼ unanswered
//!                 Failed                 │    └──────────── answer ───────────┘  │
//!                 3, 6, 12, 24 s         └─────────────── Incomplete ◀───────────┘
//! ```
//!
//! A stranger has little influence: an entry comes into being only when this host wants to send,
//! or from a request that was addressed to it. That makes one only in the free half of the cache,
//! and so does what is sent to strangers. An answer counts only while it is asked for. Entries in
//! use are never pushed out.

use super::{IN_USE_NS, Resolution};
use clearway_base::{SECOND, Time};
use clearway_wire::MacAddress;
use core::net::IpAddr;
use core::ops::Bound;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod state;
#[cfg(test)]
mod tests;

pub(super) use state::NeighboursState;

/// Entries in all: with 256 hosts per rack, those of sixteen racks on one link.
const ENTRIES_MAX: usize = 4096;
/// Requests of others fill the cache up to here only.
const ENTRIES_BY_REQUEST_MAX: usize = ENTRIES_MAX / 2;
/// Entries without an answer, at most; beyond that the oldest gives way.
const UNANSWERED_MAX: usize = 1024;
/// So many of them, and nobody is asked for because of a stranger: the rest is for apps.
const UNANSWERED_BY_STRANGERS_MAX: usize = UNANSWERED_MAX / 4;
/// Questions that wait to be sent: all that can be asked at a time. What does not fit is asked a
/// second later.
const QUESTIONS_MAX: usize = ENTRIES_MAX;
/// How many entries are looked at to find one that may go.
const EVICTION_TRIES: usize = 16;

/// RFC 4861, section 10: MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT, "3 transmissions".
const TRIES_MAX: u8 = 3;
/// RFC 4861, section 10: RETRANS_TIMER, "1,000 milliseconds".
const RETRY_NS: u64 = SECOND;
/// RFC 4861, section 10: REACHABLE_TIME, "30,000 milliseconds".
const REACHABLE_NS: u64 = 30 * SECOND;
/// How long a neighbour that did not answer is not asked again; twice as long each time that it
/// does not. (RFC 1122, section 2.3.2.1: "The recommended maximum rate is 1 per second per
/// destination.")
const FAILED_NS: u64 = 3 * SECOND;
/// How often that is doubled.
const FAILED_DOUBLINGS_MAX: u8 = 3;
/// How long after that it is remembered that nobody answered.
const FORGET_NS: u64 = 30 * SECOND;
/// How long an entry that was in doubt is not doubted again.
const DOUBT_NS: u64 = SECOND;

/// A question to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    /// "Who has this address?"
    pub(super) target: IpAddr,
    /// Asks only this host; everybody if there is none.
    pub(super) mac: Option<MacAddress>,
}

#[derive(Debug)]
pub(super) struct Neighbours {
    /// Whoever is asked for is there, if it is given.
    router: Option<MacAddress>,
    entries: BTreeMap<IpAddr, Entry>,
    /// Entries that wait for an answer or for their end: those whose state has a deadline, by that.
    deadlines: BTreeSet<(Time, IpAddr)>,
    /// Entries without an answer, by the time since when they have none.
    unanswered: BTreeSet<(Time, IpAddr)>,
    questions: VecDeque<Question>,
    /// Entries that were asked for, and whether their address is known now.
    settled: VecDeque<(IpAddr, bool)>,
    /// Where the search for an entry that may go goes on.
    hand: Option<IpAddr>,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    state: State,
    /// When it was last resolved; never, if it was learnt from a request.
    used: Option<Time>,
    /// When everybody was last asked because it was in doubt.
    doubted: Option<Time>,
    /// How often in a row nobody has answered.
    failures: u8,
    /// Since when its address has not been known, if it is not.
    unanswered: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Incomplete { tries: u8, deadline: Time },
    Reachable { mac: MacAddress, until: Time },
    Probing { mac: MacAddress, tries: u8, deadline: Time, everybody: bool },
    Failed { until: Time },
}

impl State {
    fn mac(self) -> Option<MacAddress> {
        match self {
            Self::Reachable { mac, .. } | Self::Probing { mac, .. } => Some(mac),
            Self::Incomplete { .. } | Self::Failed { .. } => None,
        }
    }

    fn deadline(self) -> Option<Time> {
        match self {
            Self::Incomplete { deadline, .. } | Self::Probing { deadline, .. } => Some(deadline),
            Self::Failed { until } => Some(until + FORGET_NS),
            Self::Reachable { .. } => None,
        }
    }
}

impl Entry {
    fn new(state: State, used: Option<Time>) -> Self {
        Self { state, used, doubted: None, failures: 0, unanswered: None }
    }
}

impl Neighbours {
    pub(super) fn new(router: Option<MacAddress>) -> Self {
        Self {
            router,
            entries: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            questions: VecDeque::new(),
            settled: VecDeque::new(),
            hand: None,
            generation: 0,
        }
    }

    /// Changes whenever a known address does.
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Makes everybody ask again who keeps an address.
    pub(super) fn forget_paths(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// True if nobody has answered for `next_hop` lately.
    pub(super) fn is_silent(&self, next_hop: IpAddr) -> bool {
        let entry = self.entries.get(&next_hop);
        entry.is_some_and(|entry| matches!(entry.state, State::Failed { .. }))
    }

    /// The address of `next_hop`, if there is one. Nobody is asked.
    pub(super) fn known(&self, next_hop: IpAddr) -> Option<MacAddress> {
        self.router.or_else(|| self.entries.get(&next_hop)?.state.mac())
    }

    pub(super) fn resolve(&mut self, now: Time, next_hop: IpAddr) -> Resolution<MacAddress> {
        if let Some(router) = self.router {
            return Resolution::Known(router);
        }
        let Some(entry) = self.entries.get_mut(&next_hop) else {
            self.begin(now, next_hop);
            return Resolution::Pending;
        };
        entry.used = Some(now);
        match entry.state {
            State::Incomplete { .. } => Resolution::Pending,
            State::Failed { until } if now < until => Resolution::Unreachable,
            State::Failed { .. } => {
                self.ask_everybody(now, next_hop, 1);
                Resolution::Pending
            }
            State::Probing { mac, .. } => Resolution::Known(mac),
            State::Reachable { mac, until } => {
                if now >= until {
                    self.probe(now, next_hop, mac, 1, false);
                }
                Resolution::Known(mac)
            }
        }
    }

    /// The address of `next_hop`, if there is one. It is asked for if not, but not for so many that
    /// strangers, who may come from anywhere, would keep out those whom apps ask for.
    pub(super) fn resolve_for_stranger(
        &mut self,
        now: Time,
        next_hop: IpAddr,
    ) -> Option<MacAddress> {
        let known = self.known(next_hop);
        let is_free = self.entries.len() < ENTRIES_BY_REQUEST_MAX
            && self.unanswered.len() < UNANSWERED_BY_STRANGERS_MAX;
        if known.is_none() && (is_free || self.entries.contains_key(&next_hop)) {
            self.resolve(now, next_hop);
        }
        known
    }

    /// The neighbour has been heard to receive what was sent to it.
    pub(super) fn confirm(&mut self, now: Time, next_hop: IpAddr) {
        let known = self.entries.get(&next_hop).and_then(|entry| entry.state.mac());
        if let Some(mac) = known {
            self.set_state(next_hop, State::Reachable { mac, until: now + REACHABLE_NS });
        }
    }

    /// What was sent to the neighbour is not answered. Who has its address is asked for at once, of
    /// everybody: the one that is known may be wrong.
    pub(super) fn doubt(&mut self, now: Time, next_hop: IpAddr) {
        let Some(entry) = self.entries.get_mut(&next_hop) else { return };
        if entry.doubted.is_some_and(|doubted| now.since(doubted) < DOUBT_NS) {
            return;
        }
        match entry.state {
            State::Reachable { mac, .. } | State::Probing { mac, everybody: false, .. } => {
                entry.doubted = Some(now);
                self.probe(now, next_hop, mac, 1, true);
            }
            State::Failed { .. } => {
                entry.doubted = Some(now);
                self.ask_everybody(now, next_hop, 1);
            }
            State::Probing { .. } | State::Incomplete { .. } => {}
        }
    }

    /// An answer has arrived. False if nothing was asked. `overrides` is false for an answer that
    /// is not to replace another address that is known (RFC 4861, section 7.2.5).
    pub(super) fn handle_answer(
        &mut self,
        now: Time,
        who: IpAddr,
        mac: Option<MacAddress>,
        overrides: bool,
    ) -> bool {
        let Some(entry) = self.entries.get(&who) else { return false };
        let mac = match entry.state {
            State::Incomplete { .. } => mac,
            State::Probing { mac: known, .. } => match mac {
                Some(new) if new != known && !overrides => None,
                answered => Some(answered.unwrap_or(known)),
            },
            State::Reachable { .. } | State::Failed { .. } => None,
        };
        if let Some(mac) = mac {
            self.set_mac(who, mac, now + REACHABLE_NS);
        }
        mac.is_some()
    }

    /// A request that was addressed to us came from this neighbour. What it says is used but has
    /// yet to be verified: RFC 4861, section 7.2.3, "its reachability state MUST be set to STALE".
    pub(super) fn handle_request(&mut self, now: Time, who: IpAddr, mac: MacAddress) {
        match self.entries.get(&who).map(|entry| entry.state.mac()) {
            Some(known) if known == Some(mac) => {}
            Some(_) => self.set_mac(who, mac, now),
            None if self.entries.len() < ENTRIES_BY_REQUEST_MAX => {
                self.entries.insert(who, Entry::new(State::Reachable { mac, until: now }, None));
            }
            None => {}
        }
    }

    /// Somebody announces that `who` is at `mac` now. Nothing is learnt from that, but if it
    /// contradicts what is known, or nobody was there before, everybody is asked.
    pub(super) fn handle_announcement(&mut self, now: Time, who: IpAddr, mac: MacAddress) {
        let known = self.entries.get(&who).and_then(|entry| entry.state.mac());
        if known != Some(mac) {
            self.doubt(now, who);
        }
    }

    /// The kernel knows: its word counts whenever it comes, for entries that somebody asked for.
    pub(super) fn learn_from_kernel(&mut self, now: Time, who: IpAddr, mac: MacAddress) {
        if self.entries.contains_key(&who) {
            self.set_mac(who, mac, now + REACHABLE_NS);
        }
    }

    /// The link has just come up: whatever was asked before was lost, and who is there may be
    /// somebody else. Nobody is left to his wait, and what is known is verified when it is used.
    pub(super) fn handle_link_up(&mut self, now: Time) {
        let all: Vec<(IpAddr, State)> =
            self.entries.iter().map(|(who, entry)| (*who, entry.state)).collect();
        for (who, state) in all {
            match state {
                State::Reachable { mac, .. } => {
                    self.set_state(who, State::Reachable { mac, until: now });
                }
                State::Failed { .. } => self.set_state(who, State::Failed { until: now }),
                State::Incomplete { .. } => {
                    self.push_question(Question { target: who, mac: None });
                }
                State::Probing { .. } => {}
            }
        }
        self.forget_paths();
    }

    pub(super) fn poll_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    #[inline]
    pub(super) fn poll_settled(&mut self) -> Option<(IpAddr, bool)> {
        self.settled.pop_front()
    }

    #[inline]
    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(deadline, who)) = self.deadlines.first() {
            if now < deadline {
                return;
            }
            self.deadlines.remove(&(deadline, who));
            self.handle_deadline(now, who);
        }
    }

    fn handle_deadline(&mut self, now: Time, who: IpAddr) {
        let Some(state) = self.entries.get(&who).map(|entry| entry.state) else { return };
        match state {
            State::Incomplete { tries, .. } if tries < TRIES_MAX => {
                self.ask_everybody(now, who, tries + 1);
            }
            State::Incomplete { .. } => self.give_up(now, who),
            State::Probing { mac, tries, everybody, .. } if tries < TRIES_MAX => {
                self.probe(now, who, mac, tries + 1, everybody);
            }
            State::Probing { .. } => {
                self.forget_paths();
                self.push_unanswered(now, who);
                self.ask_everybody(now, who, 1);
            }
            State::Failed { .. } | State::Reachable { .. } => self.remove(who),
        }
    }

    /// Whether each entry stands where it is looked for, and nowhere else.
    pub(super) fn audit(&self) -> Result<(), String> {
        let due = |(who, entry): (&IpAddr, &Entry)| Some((entry.state.deadline()?, *who));
        let unanswered = |(who, entry): (&IpAddr, &Entry)| Some((entry.unanswered?, *who));
        if !self.entries.iter().filter_map(due).collect::<BTreeSet<_>>().eq(&self.deadlines) {
            return Err("a neighbour waits for a time at which nobody looks".to_owned());
        }
        let without: BTreeSet<_> = self.entries.iter().filter_map(unanswered).collect();
        if without != self.unanswered || without.len() > UNANSWERED_MAX {
            return Err(format!("{} neighbours have no address", without.len()));
        }
        if self.entries.len() > ENTRIES_MAX {
            return Err(format!("{} neighbours", self.entries.len()));
        }
        Ok(())
    }

    /// Enters `who`, if there is room, and asks for it.
    fn begin(&mut self, now: Time, who: IpAddr) {
        if self.entries.len() >= ENTRIES_MAX && !self.make_room(now) {
            return self.settle(who, false);
        }
        let state = State::Failed { until: now };
        self.entries.insert(who, Entry::new(state, Some(now)));
        self.push_unanswered(now, who);
        self.ask_everybody(now, who, 1);
    }

    /// Nobody has answered. Whoever was sent that way may know another one.
    fn give_up(&mut self, now: Time, who: IpAddr) {
        let Some(entry) = self.entries.get_mut(&who) else { return };
        let wait_ns = FAILED_NS << entry.failures.min(FAILED_DOUBLINGS_MAX);
        entry.failures = entry.failures.saturating_add(1);
        self.set_state(who, State::Failed { until: now + wait_ns });
        self.forget_paths();
        self.settle(who, false);
    }

    /// There is an answer to what was asked, or none is expected any more.
    fn settle(&mut self, who: IpAddr, is_known: bool) {
        if self.settled.len() == ENTRIES_MAX {
            self.settled.pop_front();
        }
        self.settled.push_back((who, is_known));
    }

    /// The address of `who` is not known from now on. The one of which that has been so for longest
    /// gives way if there are too many.
    fn push_unanswered(&mut self, now: Time, who: IpAddr) {
        if let Some(entry) = self.entries.get_mut(&who) {
            entry.unanswered = Some(now);
            self.unanswered.insert((now, who));
        }
        if self.unanswered.len() <= UNANSWERED_MAX {
            return;
        }
        if let Some((_, oldest)) = self.unanswered.pop_first() {
            self.remove(oldest);
            self.settle(oldest, false);
        }
    }

    fn remove(&mut self, who: IpAddr) {
        let Some(entry) = self.entries.remove(&who) else { return };
        if let Some(deadline) = entry.state.deadline() {
            self.deadlines.remove(&(deadline, who));
        }
        if let Some(since) = entry.unanswered {
            self.unanswered.remove(&(since, who));
        }
    }

    /// Removes one entry that has not been used lately. The search goes round the cache, so that
    /// each call costs little.
    fn make_room(&mut self, now: Time) -> bool {
        for _ in 0..EVICTION_TRIES {
            let after = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.entries.range((after, Bound::Unbounded)).next();
            self.hand = next.map(|(who, _)| *who);
            let Some((&who, entry)) = next else { continue };
            if entry.used.is_none_or(|used| now.since(used) >= IN_USE_NS) {
                self.remove(who);
                return true;
            }
        }
        false
    }

    fn ask_everybody(&mut self, now: Time, who: IpAddr, tries: u8) {
        self.push_question(Question { target: who, mac: None });
        self.set_state(who, State::Incomplete { tries, deadline: now + RETRY_NS });
    }

    fn probe(&mut self, now: Time, who: IpAddr, mac: MacAddress, tries: u8, everybody: bool) {
        let asked = if everybody { None } else { Some(mac) };
        self.push_question(Question { target: who, mac: asked });
        let deadline = now + RETRY_NS;
        self.set_state(who, State::Probing { mac, tries, deadline, everybody });
    }

    fn push_question(&mut self, question: Question) {
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push_back(question);
        }
    }

    /// `who`, which has an entry, is at `mac`.
    fn set_mac(&mut self, who: IpAddr, mac: MacAddress, until: Time) {
        let Some(entry) = self.entries.get_mut(&who) else { return };
        entry.failures = 0;
        if let Some(since) = entry.unanswered.take() {
            self.unanswered.remove(&(since, who));
        }
        match entry.state.mac() {
            Some(known) if known != mac => self.forget_paths(),
            Some(_) => {}
            None => self.settle(who, true),
        }
        self.set_state(who, State::Reachable { mac, until });
    }

    fn set_state(&mut self, who: IpAddr, state: State) {
        let Some(entry) = self.entries.get_mut(&who) else { return };
        let before = core::mem::replace(&mut entry.state, state);
        if let Some(deadline) = before.deadline() {
            self.deadlines.remove(&(deadline, who));
        }
        if let Some(deadline) = state.deadline() {
            self.deadlines.insert((deadline, who));
        }
    }
}
