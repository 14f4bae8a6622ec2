//! Messages that are passed over when their turn comes: those that were delivered before it, since
//! they need not wait for it, and those that their sender has dropped.

use std::collections::BTreeMap;

use clearway_base::RangeSet;

use super::{GAPS_MAX, Incoming, Partial, Refused};
use crate::app::{App, Owner};
use crate::config::MESSAGE_OVERHEAD;
use crate::state::POSITIONS_MAX;

/// Ranges of messages that were delivered, or dropped, before others are here, at most: each has a
/// packet before it that is under way, or was lost.
pub(super) const RANGES_MAX: usize = GAPS_MAX as usize;

/// What is known of messages whose turn has not come.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Messages are delivered as they become whole.
    pub(super) is_unordered: bool,
    /// Those that the app has, or has heard of. Only if `is_unordered`, or some were before it was
    /// saved.
    pub(super) delivered: RangeSet,
    /// Those that were dropped, of which the app is to hear in their turn.
    pub(super) skipped: RangeSet,
}

impl Ahead {
    /// Messages are delivered as they become whole, and one more will be, whatever becomes whole
    /// of `others` before it: each makes one range more at most.
    pub(super) fn has_room(&self, others: &BTreeMap<u64, Partial>) -> bool {
        self.is_unordered && self.delivered.len() + others.len() < RANGES_MAX
    }
}

impl Incoming {
    /// From now on messages are delivered as they become whole. One-sided operations keep their
    /// order.
    pub(crate) fn set_unordered(&mut self, app: &mut impl App, owner: Owner) {
        self.ahead.get_or_insert_default().is_unordered = true;
        let whole = self.partial.iter().filter(|(_, partial)| partial.is_complete());
        let whole: Vec<u64> = whole.map(|(sequence, _)| *sequence).collect();
        whole.into_iter().for_each(|sequence| self.deliver_ahead(app, owner, sequence));
    }

    /// True if nothing more is to come of a message whose turn has not come.
    pub(super) fn is_over(&self, sequence: u64) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| {
            ahead.delivered.contains(sequence) || ahead.skipped.contains(sequence)
        })
    }

    /// Delivers a message that is whole and not due, if it may be.
    #[cold]
    pub(super) fn deliver_ahead(&mut self, app: &mut impl App, owner: Owner, sequence: u64) {
        let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.is_unordered) else { return };
        let is_operation = self.partial.get(&sequence).is_none_or(|partial| partial.is_operation);
        if is_operation || !may_insert(&ahead.delivered, sequence) {
            return;
        }
        ahead.delivered.insert(sequence..sequence + 1);
        if let Some(partial) = self.partial.remove(&sequence) {
            self.take_out(app, owner, sequence, &partial);
            self.deliver(app, owner, partial.buffer);
        }
    }

    /// The sender has dropped a message, of so many bytes. False if that was known.
    #[cold]
    pub(crate) fn skip(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        length: u32,
    ) -> Result<bool, Refused> {
        let sequence = self.unwrap_sequence(sequence).ok_or(Refused::Violation)?;
        if sequence < self.next || self.is_over(sequence) {
            return Ok(false);
        }
        self.check_limit(MESSAGE_OVERHEAD)?;
        let positions = MESSAGE_OVERHEAD + u64::from(length);
        let is_possible = !self.is_beyond(sequence)
            && !self.partial.contains_key(&sequence)
            && self.announced + positions < POSITIONS_MAX;
        if !is_possible {
            return Err(Refused::Violation);
        }
        if !app.reads_news(owner) {
            return Err(Refused::NoBuffer);
        }
        let is_due = sequence == self.next;
        let is_told = is_due || self.note_skipped(sequence)?;
        // It was sent and released at once, and the limit rises by as much.
        self.received += positions;
        self.announced += positions;
        self.release(1, length.into());
        if is_told {
            app.skipped(owner, 1);
        }
        if is_due {
            self.next += 1;
            self.deliver_ready(app, owner)?;
        }
        Ok(true)
    }

    /// A message was dropped whose turn has not come. True if the app is told at once.
    fn note_skipped(&mut self, sequence: u64) -> Result<bool, Refused> {
        let ahead = self.ahead.get_or_insert_default();
        let kept = if ahead.is_unordered { &mut ahead.delivered } else { &mut ahead.skipped };
        if !may_insert(kept, sequence) {
            return Err(Refused::NoBuffer);
        }
        kept.insert(sequence..sequence + 1);
        Ok(ahead.is_unordered)
    }

    /// What is due is passed over if it is over already.
    pub(super) fn pass_over(&mut self, app: &mut impl App, owner: Owner) {
        let Some(ahead) = &mut self.ahead else { return };
        loop {
            if let Some(end) = pop_from(&mut ahead.delivered, self.next) {
                self.next = end;
            } else if let Some(end) = pop_from(&mut ahead.skipped, self.next) {
                app.skipped(owner, (end - self.next) as u32);
                self.next = end;
            } else {
                break;
            }
        }
        if !ahead.is_unordered && ahead.delivered.is_empty() && ahead.skipped.is_empty() {
            self.ahead = None;
        }
    }
}

/// Removes the first range if it begins there, and says where it ends.
fn pop_from(ranges: &mut RangeSet, start: u64) -> Option<u64> {
    let first = ranges.first().filter(|first| first.start == start)?;
    ranges.pop_first();
    Some(first.end)
}

fn may_insert(ranges: &RangeSet, sequence: u64) -> bool {
    ranges.len() < RANGES_MAX
        || ranges.contains(sequence - 1)
        || ranges.contains(sequence.saturating_add(1))
}
