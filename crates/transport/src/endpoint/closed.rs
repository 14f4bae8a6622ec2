//! Flows that have ended in good order and are forgotten but for that. A peer whose last
//! acknowledgement was lost for longer than its flow was kept here is told so when it asks again;
//! it would take a plain reset for the loss of what it sent. The oldest are dropped when there are
//! too many.

use std::collections::{HashSet, VecDeque};

use super::table::Keyed;

/// So many flows are remembered, at 18 bytes or so: for 30 s, which is as long as a peer asks
/// (`idle_timeout_ns`), if no more than 2,000 end per second.
pub(super) const CLOSED_MAX: usize = 1 << 16;

/// The ids that we gave to such flows.
#[derive(Debug)]
pub(super) struct Closed {
    ids: HashSet<u64, Keyed>,
    oldest_first: VecDeque<u64>,
}

impl Closed {
    pub(super) fn new(keyed: Keyed) -> Self {
        Self { ids: HashSet::with_hasher(keyed), oldest_first: VecDeque::new() }
    }

    pub(super) fn insert(&mut self, id: u64) {
        if !self.ids.insert(id) {
            return;
        }
        self.oldest_first.push_back(id);
        if self.oldest_first.len() > CLOSED_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.oldest_first.iter().copied()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_dropped_when_there_are_too_many() {
        let mut closed = Closed::new(Keyed(1));
        for id in 0..CLOSED_MAX as u64 + 2 {
            closed.insert(id);
            closed.insert(id);
        }
        assert!(!closed.contains(0) && !closed.contains(1) && closed.contains(2));
        assert!(closed.ids.len() == CLOSED_MAX && closed.oldest_first.len() == CLOSED_MAX);
    }
}
