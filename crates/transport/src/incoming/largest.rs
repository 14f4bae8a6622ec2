//! The largest of the messages that are on their way in. Small ones are many (a peer can begin a
//! quarter of a million), and that one of them has been the largest matters little: of those within
//! a window only the largest is remembered, until none is left. Of those beyond it, each is: the
//! credit that one of them is given has to end with it.

use std::collections::BTreeSet;

/// An upper bound of the positions of all messages that have begun and were not delivered.
///
/// It is more than a window only if one of them is, and then exact. A message costs the logarithm
/// of how many are beyond the window, which is nothing for nearly all.
#[derive(Debug, Default)]
pub(super) struct Largest {
    positions: u64,
    /// Stays once it is there. A flow without large messages has none: it is to be small.
    beyond: Option<Box<Beyond>>,
}

/// Messages beyond the window, by their positions and sequence numbers.
#[derive(Debug, Default)]
struct Beyond {
    messages: BTreeSet<(u64, u64)>,
    /// What [`Largest::positions`] would be without them.
    others: u64,
}

impl Largest {
    /// The positions of the largest message.
    #[inline]
    pub(super) const fn positions(&self) -> u64 {
        self.positions
    }

    /// A message has begun.
    pub(super) fn begin(&mut self, sequence: u64, positions: u64, window: u64) {
        if positions > window {
            let beyond = self.beyond.get_or_insert_default();
            if beyond.messages.is_empty() {
                beyond.others = self.positions;
            }
            beyond.messages.insert((positions, sequence));
        } else if let Some(beyond) = &mut self.beyond {
            beyond.others = beyond.others.max(positions);
        }
        self.positions = self.positions.max(positions);
    }

    /// It has been delivered; `is_last`: no other is there.
    pub(super) fn end(&mut self, sequence: u64, positions: u64, window: u64, is_last: bool) {
        if positions > window
            && let Some(beyond) = &mut self.beyond
        {
            beyond.messages.remove(&(positions, sequence));
            self.positions = beyond.messages.last().map_or(beyond.others, |(largest, _)| *largest);
        }
        if is_last {
            self.positions = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::Random;
    use std::collections::BTreeMap;

    const WINDOW: u64 = 1000;

    #[test]
    fn is_exact_beyond_the_window_and_a_bound_within() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut largest, mut open) = (Largest::default(), BTreeMap::new());
            for sequence in 0..300 {
                if random.chance(1, 2) {
                    let bytes_max = if random.chance(1, 8) { 9000 } else { 900 };
                    let positions = 64 + random.below(bytes_max);
                    largest.begin(sequence, positions, WINDOW);
                    open.insert(sequence, positions);
                } else if let Some((sequence, positions)) = open.pop_first() {
                    largest.end(sequence, positions, WINDOW, open.is_empty());
                }
                let exact = open.values().copied().max().unwrap_or(0);
                if exact > WINDOW || open.is_empty() {
                    assert_eq!(largest.positions(), exact, "seed {seed}, {sequence}");
                } else {
                    assert!((exact..=WINDOW).contains(&largest.positions()), "seed {seed}");
                }
            }
        }
    }
}
