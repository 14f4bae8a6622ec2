//! The messages of one direction of a connection: those that are under way, and what both ends have
//! heard of those that were dropped.
//!
//! A receiver that has given up the order takes any of them. It hears then how many were dropped,
//! and its sender alone which.

use std::collections::{BTreeSet, VecDeque};

use clearway_base::Time;

use crate::content::Name;

/// A message that has not been received.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) sequence: u32,
    pub(super) length: u32,
    pub(super) sent: Time,
    /// Its sender may drop it.
    is_timed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// In the order in which they were sent.
    waiting: VecDeque<Waiting>,
    /// How many were sent.
    sent: u32,
    /// Of those that may be dropped, how many have not been received.
    timed: u32,
    /// How many the receiver knows to have been dropped, and which these are, of those that it has
    /// heard of in their order.
    skips: u32,
    skipped: BTreeSet<u32>,
    /// Which of them the sender knows.
    dropped: BTreeSet<u32>,
    is_unordered: bool,
    /// Its sender has given it a priority.
    pub(super) has_priority: bool,
    /// When something has come of it last.
    pub(super) progress: Time,
}

impl Direction {
    /// How many were sent: the number of the next.
    pub(super) const fn sent(&self) -> u32 {
        self.sent
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Another one is sent.
    pub(super) fn send(&mut self, now: Time, length: u32, is_timed: bool) {
        self.waiting.push_back(Waiting { sequence: self.sent, length, sent: now, is_timed });
        self.sent += 1;
        self.timed += u32::from(is_timed);
    }

    /// One has come: which it is, and whether others that were sent before have not. In order it is
    /// the first, whatever it says.
    pub(super) fn receive(
        &mut self,
        now: Time,
        name: impl Fn(u32) -> Name,
        bytes: &[u8],
    ) -> Option<(Waiting, bool)> {
        let is_it = |waiting: &Waiting| {
            waiting.length as usize == bytes.len() && name(waiting.sequence).is(bytes)
        };
        let place = if self.is_unordered { self.waiting.iter().position(is_it)? } else { 0 };
        let waiting = self.waiting.remove(place)?;
        self.timed -= u32::from(waiting.is_timed);
        self.progress = now;
        Some((waiting, place > 0))
    }

    /// The receiver hears that one was dropped: the next, if it has not given up the order. False
    /// if it cannot have been.
    pub(super) fn skip(&mut self, now: Time) -> bool {
        if self.is_unordered {
            if self.skips >= self.timed {
                return false;
            }
        } else {
            let next = self.waiting.front().filter(|next| next.is_timed);
            let Some(sequence) = next.map(|next| next.sequence) else { return false };
            self.waiting.pop_front();
            self.skipped.insert(sequence);
        }
        self.skips += 1;
        self.progress = now;
        true
    }

    /// The sender hears that this one was dropped. False if it has come, or that was heard before.
    pub(super) fn drop(&mut self, sequence: u32) -> bool {
        let place = self.waiting.binary_search_by_key(&sequence, |waiting| waiting.sequence).ok();
        let may_be = match place {
            Some(place) => self.waiting[place].is_timed,
            None => self.skipped.contains(&sequence),
        };
        if self.is_unordered && may_be {
            place.and_then(|place| self.waiting.remove(place));
        }
        may_be && self.dropped.insert(sequence)
    }

    pub(super) fn was_dropped(&self, sequence: u32) -> bool {
        self.dropped.contains(&sequence)
    }

    /// The receiver takes them as they come from now on.
    pub(super) fn give_up_order(&mut self) {
        self.is_unordered = true;
        let dropped = &self.dropped;
        self.waiting.retain(|waiting| !dropped.contains(&waiting.sequence));
    }

    /// How many are still to come, of an end that has heard of all that were dropped.
    pub(super) fn missing(&self) -> usize {
        let known = self.skipped.union(&self.dropped).count();
        self.waiting.len() - (self.skips as usize).saturating_sub(known).min(self.waiting.len())
    }

    /// The first that has to come: not one that may have been dropped without its being known.
    pub(super) fn first_due(&self) -> Option<&Waiting> {
        self.waiting.iter().find(|waiting| !(self.is_unordered && waiting.is_timed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(sequence: u32) -> Name {
        Name { connection: 5, direction: 1, sequence }
    }

    /// Ten messages of 20 bytes, of which those with even numbers may be dropped.
    fn ten() -> Direction {
        let mut direction = Direction::default();
        (0..10).for_each(|number| direction.send(Time::ZERO, 20, number % 2 == 0));
        direction
    }

    /// Which one is taken for the message with this number, and whether it overtakes others.
    fn come(direction: &mut Direction, sequence: u32) -> Option<(u32, bool)> {
        let mut bytes = [0; 20];
        name(sequence).fill(&mut bytes);
        let (waiting, overtakes) = direction.receive(Time::ZERO, name, &bytes)?;
        Some((waiting.sequence, overtakes))
    }

    #[test]
    fn in_order_the_next_is_expected_whatever_comes() {
        let mut direction = ten();
        assert_eq!(come(&mut direction, 7), Some((0, false)));
        assert!(!direction.skip(Time::ZERO), "1 may not be dropped");
        assert_eq!(come(&mut direction, 1), Some((1, false)));
        assert!(direction.skip(Time::ZERO) && direction.drop(2), "both hear of it");
        assert!(!direction.drop(2) && !direction.drop(0) && !direction.drop(3));
        assert!(!direction.drop(10), "never sent");
        assert!(direction.drop(4) && direction.was_dropped(4));
        assert_eq!((direction.waiting(), direction.missing()), (7, 7));
    }

    #[test]
    fn without_order_each_comes_once() {
        let mut direction = ten();
        direction.give_up_order();
        assert_eq!(come(&mut direction, 7), Some((7, true)));
        assert_eq!(come(&mut direction, 0), Some((0, false)));
        assert_eq!(come(&mut direction, 6), Some((6, true)));
        for gone in [7, 0, 6, 10] {
            assert_eq!(come(&mut direction, gone), None, "{gone}");
        }
        assert!(!direction.drop(6), "it has come");
        assert_eq!(direction.first_due().map(|waiting| waiting.sequence), Some(1));
    }

    #[test]
    fn without_order_no_more_are_dropped_than_may_be_and_none_of_them_comes() {
        let mut direction = ten();
        assert!(direction.skip(Time::ZERO), "in order still: it is the first");
        assert!(direction.drop(2), "in order still: its receiver has not heard of it");
        direction.give_up_order();
        assert!(direction.drop(0), "its sender hears of the first");
        assert_eq!(come(&mut direction, 2), None, "it was dropped");
        assert!(direction.drop(8));
        assert_eq!(come(&mut direction, 4), Some((4, true)));
        // Those are 0, 2 and 8, and 6 may be one of them.
        assert!((0..3).all(|_| direction.skip(Time::ZERO)));
        assert!(!direction.skip(Time::ZERO));
        assert_eq!((direction.waiting(), direction.missing()), (6, 5), "6 is not to come");
        assert!(direction.drop(6));
        assert_eq!((direction.waiting(), direction.missing()), (5, 5));
    }
}
