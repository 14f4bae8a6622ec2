//! A slow path for the first frames of a connection, and the flow table that it writes.

use std::collections::HashMap;

use clearway_base::{SECOND, Time};

use crate::{Connection, SlowPath};

/// How a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Its connection is known.
    Fast,
    /// Through the slow path, until then.
    Slow(Time),
    /// Too many wait.
    Overflow,
}

/// The flow table is kept in two generations: what was used since the last change, and what was
/// used before that. So it forgets what was idle longest, in bounded memory and without a search.
#[derive(Debug, Default)]
pub(crate) struct SlowPathState {
    /// When each connection is, or was, in the flow table.
    young: HashMap<Connection, Time>,
    old: HashMap<Connection, Time>,
    /// When the slow path will have served all that wait.
    busy_until: Time,
}

impl SlowPathState {
    pub(crate) fn pass(&mut self, limits: &SlowPath, of: Connection, now: Time) -> Passage {
        let known = self.young.get(&of).or_else(|| self.old.get(&of)).copied();
        if let Some(since) = known
            && since <= now
        {
            self.remember(limits, of, since);
            return Passage::Fast;
        }
        let takes_ns = SECOND / limits.frames_per_s;
        if self.busy_until.since(now) / takes_ns.max(1) > limits.queue_frames {
            return Passage::Overflow;
        }
        self.busy_until = self.busy_until.max(now) + takes_ns;
        let until = self.busy_until + limits.latency_ns;
        self.remember(limits, of, known.unwrap_or(until));
        Passage::Slow(until)
    }

    fn remember(&mut self, limits: &SlowPath, connection: Connection, since: Time) {
        if self.young.len() >= limits.connections_max.max(1) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(connection, since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SlowPath =
        SlowPath { frames_per_s: 1000, latency_ns: 5_000_000, queue_frames: 2, connections_max: 4 };

    fn numbered(number: u16) -> Connection {
        let [high, low] = number.to_be_bytes();
        Connection { addresses: [1; 32], ports: [high, low, 0, 1], protocol: 17 }
    }

    fn at_ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    #[test]
    fn only_frames_before_the_entry_is_written_are_slow() {
        let mut state = SlowPathState::default();
        let mut pass = |number, ms| state.pass(&LIMITS, numbered(number), at_ms(ms));
        assert_eq!(pass(1, 10), Passage::Slow(at_ms(16)));
        assert_eq!(pass(1, 10), Passage::Slow(at_ms(17)), "it waits for the first");
        assert_eq!(pass(1, 15), Passage::Slow(at_ms(21)), "not written yet");
        assert_eq!(pass(1, 16), Passage::Fast);
        assert_eq!(pass(2, 16), Passage::Slow(at_ms(22)), "another connection");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut state = SlowPathState::default();
        let mut pass = |number, ms| state.pass(&LIMITS, numbered(number), at_ms(ms));
        let first: Vec<_> = (0..5).map(|number| pass(number, 0)).collect();
        let slow = [6, 7, 8].map(|ms| Passage::Slow(at_ms(ms)));
        assert_eq!(first, [&slow[..], &[Passage::Overflow; 2]].concat());
        assert_eq!(pass(9, 1), Passage::Slow(at_ms(9)), "one has been served");
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_idle() {
        let mut state = SlowPathState::default();
        let mut pass = |number: u16, ms| state.pass(&LIMITS, numbered(number), at_ms(ms));
        pass(0, 0);
        pass(1, 0);
        for number in 2..100 {
            let ms = u64::from(number) * 10;
            assert!(matches!(pass(number, ms), Passage::Slow(_)));
            assert_eq!(pass(0, ms), Passage::Fast, "used all the time");
        }
        assert!(matches!(pass(1, 5000), Passage::Slow(_)));
        assert!(state.young.len() + state.old.len() <= 8);
    }
}
