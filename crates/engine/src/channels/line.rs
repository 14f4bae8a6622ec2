//! Who waits for room in the receive pool: connections of which the next message was turned away,
//! in the order in which that happened.
//!
//! A message lies in one piece. Those of other connections that are smaller, and so find room,
//! could keep it out for ever. So the first in line has a claim: others get what leaves room for
//! its message, and no more. Once what lies in the pool has been released, it has its turn.
//!
//! A claim that nothing comes of is not worth that: a peer may have begun a message that it never
//! ends, or the app may keep what it has. When nothing has become free for a while the pool is
//! everybody's, for as long, and then there is the claim again.
//!
//! When there is room again, peers are told, each once for each time that it was turned away, and
//! senders of this host are tried, the next one first: one that finds no room ends that until
//! something else has become free. So what a release costs does not depend on how many wait.

mod state;

use clearway_base::{MILLISECOND, Time};

use super::slots::SlotQueue;

/// How long a claim holds while nothing becomes free. Longer than a sender takes to try again
/// (`probe_timeout_max_ns` and a round trip).
const PATIENCE_NS: u64 = 250 * MILLISECOND;

/// What the first in line is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The connection's slot.
    pub(super) slot: u32,
    /// Bytes of its message.
    pub(super) length: u32,
}

/// The connections of a channel that wait for room.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// With the length of the message that was turned away.
    waiting: SlotQueue<u32>,
    /// Those over the wire that were turned away since they were last told that there is room.
    to_tell: SlotQueue,
    /// Those of this host whose sender has a message ready.
    to_try: SlotQueue,
    /// So many of these are tried even if others before them find no room.
    sweep_left: usize,
    /// With the length of the message that is next, and that the pool never holds. It waits for a
    /// buffer that is posted, and has no claim, which would keep out all others.
    too_large: SlotQueue<u32>,
    /// The claim is suspended.
    is_suspended: bool,
    /// Since when nothing has changed; set when somebody looks.
    since: Option<Time>,
}

impl Line {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The claim that others have to respect now.
    #[inline]
    pub(super) fn claim(&self) -> Option<Claim> {
        let (slot, length) = self.waiting.first().filter(|_| !self.is_suspended)?;
        Some(Claim { slot, length })
    }

    /// The last in line, unless it stands there already.
    pub(super) fn join(&mut self, claim: Claim) {
        self.waiting.push(claim.slot, claim.length);
        if self.waiting.count() == 1 {
            self.begin_claim();
        }
    }

    /// The connection has got what it waited for, or wants it no more. False if it did not stand
    /// there.
    pub(super) fn leave(&mut self, slot: u32) -> bool {
        let has_claim = self.waiting.first().is_some_and(|(first, _)| first == slot);
        let was_there = self.waiting.remove(slot);
        if has_claim {
            self.begin_claim();
        }
        was_there
    }

    /// The next message of a connection is larger than the pool.
    pub(super) fn note_too_large(&mut self, message: Claim) {
        self.too_large.push(message.slot, message.length);
    }

    /// The next message of a connection has a buffer that is posted, or comes no more.
    pub(super) fn leave_too_large(&mut self, slot: u32) {
        self.too_large.remove(slot);
    }

    /// Of the messages that the pool never holds, the one that has waited longest.
    pub(super) fn first_too_large(&self) -> Option<Claim> {
        let (slot, length) = self.too_large.first()?;
        Some(Claim { slot, length })
    }

    /// The connection is over. True if it stood in line.
    pub(super) fn forget(&mut self, slot: u32) -> bool {
        self.too_large.remove(slot);
        self.to_tell.remove(slot);
        self.to_try.remove(slot);
        self.leave(slot)
    }

    /// Something has become free.
    pub(super) fn freed(&mut self) {
        self.since = None;
    }

    /// Lets time pass. True if those who were turned away may try again, because a claim has been
    /// suspended.
    pub(super) fn turn(&mut self, now: Time) -> bool {
        let since = *self.since.get_or_insert(now);
        if self.is_empty() || now.since(since) < PATIENCE_NS {
            return false;
        }
        self.is_suspended = !self.is_suspended;
        self.since = Some(now);
        if self.is_suspended {
            self.sweep_left = self.to_try.count();
        }
        self.is_suspended
    }

    /// When [`Line::turn`] is to be asked, if nothing becomes free before.
    pub(super) fn turns_at(&self) -> Option<Time> {
        let since = self.since.filter(|_| !self.is_empty())?;
        Some(since + PATIENCE_NS)
    }

    fn begin_claim(&mut self) {
        self.is_suspended = false;
        self.since = None;
    }

    /// The peer of this connection is to be told when there is room.
    pub(super) fn tell_later(&mut self, slot: u32) {
        self.to_tell.push(slot, ());
    }

    /// The next peer to be told that there is room.
    pub(super) fn take_to_tell(&mut self) -> Option<u32> {
        let (slot, ()) = self.to_tell.first()?;
        self.to_tell.remove(slot);
        Some(slot)
    }

    /// True if the peer of this connection was turned away: it is to be told at once.
    pub(super) fn take_turned_away(&mut self, slot: u32) -> bool {
        self.to_tell.remove(slot)
    }

    /// The sender to this connection, which is of this host, is to be tried when there is room.
    pub(super) fn try_later(&mut self, slot: u32) {
        self.to_try.push(slot, ());
    }

    /// The connection whose sender is tried next: who has the claim goes first.
    pub(super) fn next_to_try(&self) -> Option<u32> {
        let claim = self.claim().map(|claim| claim.slot);
        let claim = claim.filter(|slot| self.to_try.contains(*slot));
        claim.or_else(|| Some(self.to_try.first()?.0))
    }

    /// Its sender has been tried: `is_ready` if there is a message left. It stands behind all
    /// others then. True if those are to be tried too, even if this one found no room.
    pub(super) fn tried(&mut self, slot: u32, is_ready: bool) -> bool {
        self.to_try.remove(slot);
        if is_ready {
            self.to_try.push(slot, ());
        }
        let is_sweep = self.sweep_left > 0;
        self.sweep_left = self.sweep_left.saturating_sub(1);
        is_sweep
    }

    /// The slots of all who wait, for whatever.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        let queues = self.waiting.slots().chain(self.to_tell.slots()).chain(self.to_try.slots());
        queues.chain(self.too_large.slots())
    }

    /// True if somebody is to be told or tried.
    pub(super) fn has_starved(&self) -> bool {
        !self.to_tell.is_empty() || !self.to_try.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Claim = Claim { slot: 1, length: 5000 };
    const B: Claim = Claim { slot: 2, length: 10 };

    #[test]
    fn who_came_first_has_the_claim() {
        let mut line = Line::default();
        assert_eq!(line.claim(), None);
        line.join(A);
        line.join(B);
        assert_eq!(line.claim(), Some(A));
        line.leave(B.slot);
        assert_eq!(line.claim(), Some(A));
        line.join(B);
        line.leave(A.slot);
        assert_eq!(line.claim(), Some(B));
        line.leave(B.slot);
        assert!(line.is_empty() && line.claim().is_none());
    }

    #[test]
    fn a_claim_is_suspended_for_a_while_when_nothing_becomes_free() {
        let mut line = Line::default();
        line.join(A);
        let start = Time::from_ns(1);
        assert!(!line.turn(start) && !line.turn(start + (PATIENCE_NS - 1)));
        line.freed();
        let start = start + PATIENCE_NS;
        assert_eq!(line.turns_at(), None, "nobody has looked");
        assert!(!line.turn(start) && line.claim() == Some(A));
        assert_eq!(line.turns_at(), Some(start + PATIENCE_NS));
        assert!(line.turn(start + PATIENCE_NS) && line.claim().is_none());
        assert!(!line.turn(start + 2 * PATIENCE_NS) && line.claim() == Some(A));
        assert!(line.turn(start + 3 * PATIENCE_NS));
        line.leave(A.slot);
        assert!(!line.turn(start) && line.turns_at().is_none(), "nobody waits");
        line.join(B);
        assert_eq!(line.claim(), Some(B));
    }

    #[test]
    fn who_has_the_claim_is_tried_first_and_the_others_in_turn() {
        let mut line = Line::default();
        [7, 8, 9].into_iter().for_each(|slot| line.try_later(slot));
        line.join(Claim { slot: 8, length: 1 });
        assert_eq!(line.next_to_try(), Some(8));
        assert!(!line.tried(8, true));
        line.leave(8);
        for slot in [7, 9, 8, 7] {
            assert_eq!(line.next_to_try(), Some(slot));
            line.tried(slot, true);
        }
        line.tried(9, false);
        line.forget(8);
        assert_eq!(line.next_to_try(), Some(7));
        line.forget(7);
        assert!(line.next_to_try().is_none() && !line.has_starved());
    }

    #[test]
    fn all_are_tried_when_a_claim_is_suspended() {
        let mut line = Line::default();
        line.join(A);
        [7, 8].into_iter().for_each(|slot| line.try_later(slot));
        let start = Time::from_ns(1);
        assert!(!line.turn(start) && line.turn(start + PATIENCE_NS));
        assert!(line.tried(7, true) && line.tried(8, true));
        assert!(!line.tried(7, true), "each once");
    }
}
