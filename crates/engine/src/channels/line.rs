//! Who waits for room in the receive pool: connections of which the next message was turned away, in
//! the order in which that happened.
//!
//! A message lies in one piece. Those of other connections that are smaller, and so find room, could keep
//! it out for ever. So the first in line has a claim: others get what leaves room for its message, and
//! no more. Once what lies in the pool has been released, it has its turn.
//!
//! A claim that nothing comes of is not worth that: a peer may have begun a message that it never ends,
//! or the app may keep what it has. When nothing has become free for a while the pool is everybody's,
//! for as long, and then there is the claim again.

use std::collections::VecDeque;

use clearway_base::{MILLISECOND, Time};

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
    waiting: VecDeque<Claim>,
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
        self.waiting.front().copied().filter(|_| !self.is_suspended)
    }

    /// The last in line. The caller sees to it that nobody stands there twice.
    pub(super) fn join(&mut self, claim: Claim) {
        self.waiting.push_back(claim);
        if self.waiting.len() == 1 {
            self.begin_claim();
        }
    }

    /// The connection has got what it waited for, or has ended.
    pub(super) fn leave(&mut self, slot: u32) {
        let Some(place) = self.waiting.iter().position(|claim| claim.slot == slot) else { return };
        self.waiting.remove(place);
        if place == 0 {
            self.begin_claim();
        }
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
        self.is_suspended
    }

    fn begin_claim(&mut self) {
        self.is_suspended = false;
        self.since = None;
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
        assert!(!line.turn(start) && line.claim() == Some(A));
        assert!(line.turn(start + PATIENCE_NS) && line.claim().is_none());
        assert!(!line.turn(start + 2 * PATIENCE_NS) && line.claim() == Some(A));
        assert!(line.turn(start + 3 * PATIENCE_NS));
        line.leave(A.slot);
        line.join(B);
        assert_eq!(line.claim(), Some(B));
    }
}
