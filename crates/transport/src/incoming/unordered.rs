//! Messages that need not wait for their turn: each is delivered as soon as it is whole.

use clearway_base::RangeSet;

use super::{GAPS_MAX, Incoming};
use crate::app::{App, Owner};

/// Ranges of messages that were delivered before others, at most: each has a packet before it that
/// is under way, or was lost. One that would make one more waits for its turn.
pub(super) const AHEAD_MAX: usize = GAPS_MAX as usize;

impl Incoming {
    /// From now on messages are delivered as they become whole. One-sided operations keep their
    /// order.
    pub(crate) fn set_unordered(&mut self, app: &mut impl App, owner: Owner) {
        self.ahead.get_or_insert_default();
        let whole = self.partial.iter().filter(|(_, partial)| partial.is_complete());
        let whole: Vec<u64> = whole.map(|(sequence, _)| *sequence).collect();
        whole.into_iter().for_each(|sequence| self.deliver_ahead(app, owner, sequence));
    }

    pub(super) fn was_delivered_ahead(&self, sequence: u64) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.contains(sequence))
    }

    /// Delivers a message that is whole and not due, if it may be.
    #[cold]
    pub(super) fn deliver_ahead(&mut self, app: &mut impl App, owner: Owner, sequence: u64) {
        let Some(ahead) = &mut self.ahead else { return };
        let is_operation = self.partial.get(&sequence).is_none_or(|partial| partial.is_operation);
        if is_operation || !may_insert(ahead, sequence) {
            return;
        }
        ahead.insert(sequence..sequence + 1);
        if let Some(partial) = self.partial.remove(&sequence) {
            self.take_out(app, owner, sequence, &partial);
            app.deliver(owner, partial.buffer);
        }
    }

    /// What is due was delivered already.
    pub(super) fn pass_delivered(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        if let Some(first) = ahead.first().filter(|first| first.start == self.next) {
            self.next = first.end;
            ahead.pop_first();
        }
    }
}

fn may_insert(ahead: &RangeSet, sequence: u64) -> bool {
    ahead.len() < AHEAD_MAX
        || ahead.contains(sequence - 1)
        || ahead.contains(sequence.saturating_add(1))
}
