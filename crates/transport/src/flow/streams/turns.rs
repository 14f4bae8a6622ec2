//! Whose messages go into a flow's next packet: of the most urgent, and among these by weight.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996, section 2): each packet has a tag,
//! the amount of service at which it may begin, and the lowest is next. A packet moves its sender's
//! tag by its bytes, divided by the weight; who comes back begins where the others are, and neither
//! makes up for its rest nor pays for what it took when nobody else wanted it.

use std::collections::BTreeSet;

use clearway_base::state::{Invalid, ensure};
use serde::{Deserialize, Serialize};

/// What a tag counts for each byte at a weight of one.
const SCALE: u64 = 16;

/// What a connection may send beside others of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority {
    /// From 0, which goes first, to 7: while it has something to send, no higher one has a turn.
    pub urgency: u8,
    /// Its part among those of the same urgency, from 1 to 256.
    pub weight: u16,
}

impl Priority {
    /// Urgencies are below that.
    pub const URGENCIES: u8 = 8;
    /// The largest weight.
    pub const WEIGHT_MAX: u16 = 256;

    /// Whether both are in their ranges.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.urgency < Self::URGENCIES && 0 < self.weight && self.weight <= Self::WEIGHT_MAX
    }
}

impl Default for Priority {
    /// The urgency as in RFC 9218, section 4.1; the weight as in RFC 7540, section 5.3.5.
    fn default() -> Self {
        Self { urgency: 3, weight: 16 }
    }
}

/// Where one stands in line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) priority: Priority,
    /// Its next packet's tag. After 2^60 bytes in a row it stays, and turns are no longer fair.
    tag: u64,
    waits: bool,
}

impl Place {
    pub(super) fn restore(priority: Priority) -> Result<Self, Invalid> {
        ensure(priority.is_valid(), "a priority that there is not")?;
        Ok(Self { priority, ..Self::default() })
    }

    fn pay(&mut self, bytes: usize) {
        let service = bytes as u64 * SCALE / u64::from(self.priority.weight);
        self.tag = self.tag.saturating_add(service);
    }
}

/// Who waits: urgency, tag and number.
type Turn = (u8, u64, u32);

/// Those who have messages to send.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The lowest of all, who is often the only one: then the set is not touched.
    first: Option<Turn>,
    others: BTreeSet<Turn>,
    /// The tag of who had the last turn, by urgency.
    reached: [u64; Priority::URGENCIES as usize],
}

impl Turns {
    /// `id` has something to send, or nothing any more.
    #[inline]
    pub(super) fn set(&mut self, id: u32, place: &mut Place, waits: bool) {
        if place.waits == waits {
            return;
        }
        place.waits = waits;
        if waits {
            self.catch_up(place);
            self.insert((place.priority.urgency, place.tag, id));
        } else {
            self.remove((place.priority.urgency, place.tag, id));
        }
    }

    #[inline]
    fn insert(&mut self, turn: Turn) {
        match self.first {
            None => self.first = Some(turn),
            Some(first) if turn < first => {
                self.others.insert(first);
                self.first = Some(turn);
            }
            Some(_) => _ = self.others.insert(turn),
        }
    }

    #[inline]
    fn remove(&mut self, turn: Turn) {
        if self.first == Some(turn) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(&turn);
        }
    }

    fn catch_up(&self, place: &mut Place) {
        let reached = self.reached[usize::from(place.priority.urgency)];
        place.tag = place.tag.max(reached);
    }

    /// From now on it has this priority, and begins where those of it are.
    pub(super) fn set_priority(&mut self, id: u32, place: &mut Place, priority: Priority) {
        let waits = place.waits;
        self.set(id, place, false);
        *place = Place { priority, ..Place::default() };
        self.set(id, place, waits);
    }

    /// Whose turn it is, if not that of `other`, who has something to send but does not stand in
    /// line. What that has sent while nobody stood there it has not paid for: whoever is in line at
    /// the same tag goes first.
    pub(super) fn next(&self, other: Option<&mut Place>) -> Option<u32> {
        let (urgency, tag, id) = self.first?;
        let goes_first = |other: &mut Place| {
            self.catch_up(other);
            (other.priority.urgency, other.tag) < (urgency, tag)
        };
        if other.is_some_and(goes_first) { None } else { Some(id) }
    }

    /// It has had its turn, and sent so many bytes; `waits` if it has more in line.
    pub(super) fn sent(&mut self, id: u32, place: &mut Place, bytes: usize, waits: bool) {
        self.set(id, place, false);
        self.reach(place.priority.urgency, place.tag);
        place.pay(bytes);
        self.set(id, place, waits);
    }

    /// One that does not stand in line has sent so many bytes, be it its turn or not. Those who
    /// wait keep their places: where it stands itself may be far behind them, or far ahead.
    pub(super) fn sent_beside(&mut self, place: &mut Place, bytes: usize) {
        let urgency = place.priority.urgency;
        let first = self
            .first
            .filter(|first| first.0 == urgency)
            .or_else(|| self.others.range((urgency, 0, 0)..(urgency + 1, 0, 0)).next().copied());
        let tag = first.map_or(place.tag, |(_, tag, _)| place.tag.min(tag));
        self.reach(urgency, tag);
        place.pay(bytes);
    }

    fn reach(&mut self, urgency: u8, tag: u64) {
        let reached = &mut self.reached[usize::from(urgency)];
        *reached = tag.max(*reached);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<u32> {
        let all = self.first.iter().chain(&self.others);
        let mut ids: Vec<u32> = all.map(|(_, _, id)| *id).collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who always have something to send: priority, and bytes of a packet.
    struct Line {
        turns: Turns,
        all: Vec<(Place, usize)>,
        /// Bytes that each has sent.
        sent: Vec<usize>,
    }

    impl Line {
        fn new(all: &[(u8, u16, usize)]) -> Self {
            let place = |&(urgency, weight, bytes): &(u8, u16, usize)| {
                (Place::restore(Priority { urgency, weight }).expect("valid"), bytes)
            };
            let all: Vec<_> = all.iter().map(place).collect();
            let mut line = Self { turns: Turns::default(), sent: vec![0; all.len()], all };
            (0..line.all.len()).for_each(|id| line.set(id, true));
            line
        }

        fn set(&mut self, id: usize, waits: bool) {
            self.turns.set(id as u32, &mut self.all[id].0, waits);
        }

        fn send(&mut self) -> Option<usize> {
            let id = self.turns.next(None)?;
            let (place, bytes) = &mut self.all[id as usize];
            self.turns.sent(id, place, *bytes, true);
            self.sent[id as usize] += *bytes;
            Some(id as usize)
        }

        fn send_all(&mut self, bytes: usize) {
            self.sent.fill(0);
            while self.sent.iter().sum::<usize>() < bytes {
                self.send().expect("all have something");
            }
        }
    }

    fn assert_near(is: usize, wanted: usize) {
        assert!(is.abs_diff(wanted) <= 3000, "{is} instead of {wanted}");
    }

    #[test]
    fn those_of_an_urgency_share_by_bytes_and_weight() {
        let mut line = Line::new(&[(3, 16, 1400), (3, 48, 1400), (3, 16, 64), (3, 256, 100)]);
        line.send_all(336_000);
        for (id, wanted) in [16_000, 48_000, 16_000, 256_000].into_iter().enumerate() {
            assert_near(line.sent[id], wanted);
        }
    }

    #[test]
    fn the_more_urgent_go_first() {
        let mut line = Line::new(&[(3, 256, 1000), (0, 1, 1000), (0, 1, 1000), (7, 256, 1000)]);
        line.send_all(100_000);
        assert_eq!(line.sent, [0, 50_000, 50_000, 0]);
        (1..3).for_each(|id| line.set(id, false));
        line.send_all(100_000);
        assert_eq!(line.sent, [100_000, 0, 0, 0]);
        line.set(0, false);
        assert_eq!(line.send(), Some(3));
        line.set(3, false);
        assert!(line.turns.is_empty() && line.send().is_none());
    }

    /// Neither of what it might have had, nor of what it had.
    #[test]
    fn who_comes_back_has_no_debts_and_no_claims() {
        let mut line = Line::new(&[(3, 16, 1000), (3, 16, 1000), (3, 16, 1000)]);
        line.set(1, false);
        line.send_all(100_000);
        line.set(1, true);
        line.send_all(90_000);
        line.sent.iter().for_each(|sent| assert_near(*sent, 30_000));
        // It had all, and now others want theirs.
        [0, 2].into_iter().for_each(|id| line.set(id, false));
        line.send_all(100_000);
        [0, 2].into_iter().for_each(|id| line.set(id, true));
        line.send_all(90_000);
        line.sent.iter().for_each(|sent| assert_near(*sent, 30_000));
    }

    #[test]
    fn one_who_does_not_stand_in_line_has_its_part() {
        let mut line = Line::new(&[(3, 16, 1000), (3, 32, 1000)]);
        let mut other = Place::restore(Priority { urgency: 3, weight: 16 }).expect("valid");
        let mut turns = 0;
        for _ in 0..400 {
            match line.turns.next(Some(&mut other)) {
                Some(id) => line.turns.sent(id, &mut line.all[id as usize].0, 1000, true),
                None => {
                    line.turns.sent_beside(&mut other, 1000);
                    turns += 1;
                }
            }
        }
        assert!((99..=101).contains(&turns), "{turns}");
        let mut urgent = Place::restore(Priority { urgency: 2, weight: 1 }).expect("valid");
        assert_eq!(line.turns.next(Some(&mut urgent)), None);
        let mut calm = Place::restore(Priority { urgency: 4, weight: 256 }).expect("valid");
        assert!(line.turns.next(Some(&mut calm)).is_some());
        assert!(Turns::default().next(None).is_none());
    }

    /// One that does not stand in line, and has had turns of its own without much to send.
    #[test]
    fn who_was_behind_takes_nothing_from_those_who_come_later() {
        let mut line = Line::new(&[(3, 16, 1000), (3, 16, 1000)]);
        line.set(1, false);
        line.send_all(100_000);
        line.set(0, false);
        line.turns.sent_beside(&mut Place::default(), 0);
        (0..2).for_each(|id| line.set(id, true));
        line.send_all(20_000);
        line.sent.iter().for_each(|sent| assert_near(*sent, 10_000));
    }

    /// One that does not stand in line, and says something while it is not its turn.
    #[test]
    fn who_goes_ahead_moves_nobody() {
        let mut line = Line::new(&[(3, 16, 1000), (3, 48, 1000)]);
        let mut other = Place::default();
        line.turns.sent_beside(&mut other, 1_000_000);
        for _ in 0..200 {
            line.send();
            line.turns.sent_beside(&mut other, 1000);
        }
        assert_near(line.sent[0], 50_000);
    }

    #[test]
    fn a_new_priority_holds_at_once() {
        let mut line = Line::new(&[(3, 16, 1000), (3, 16, 1000)]);
        line.send_all(50_000);
        line.turns.set_priority(1, &mut line.all[1].0, Priority { urgency: 2, weight: 16 });
        line.send_all(10_000);
        assert_eq!(line.sent, [0, 10_000]);
        line.turns.set_priority(1, &mut line.all[1].0, Priority { urgency: 3, weight: 48 });
        line.send_all(80_000);
        assert_near(line.sent[1], 60_000);
        for (urgency, weight) in [(8, 1), (0, 0), (0, 257)] {
            assert!(Place::restore(Priority { urgency, weight }).is_err());
        }
        assert!(Priority { urgency: 7, weight: 256 }.is_valid() && Priority::default().is_valid());
    }
}
