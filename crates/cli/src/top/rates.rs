//! Rates: how fast counters rise, from two looks at them.

use std::collections::HashMap;
use std::hash::Hash;

/// By what has the counters.
#[derive(Debug)]
pub(super) struct Rates<K> {
    known: HashMap<K, Known>,
    round: u64,
}

#[derive(Debug)]
struct Known {
    at_ns: u64,
    values: Vec<u64>,
    per_second: Vec<f64>,
    /// The last round that it was in.
    round: u64,
}

impl<K> Default for Rates<K> {
    fn default() -> Self {
        Self { known: HashMap::new(), round: 0 }
    }
}

impl<K: Eq + Hash> Rates<K> {
    /// The counters of `key` have these values at this time: how fast they rise, since the last
    /// look. Zero at the first, and the same as before if time has not gone on.
    pub(super) fn update(&mut self, key: K, at_ns: u64, values: Vec<u64>) -> Vec<f64> {
        let round = self.round;
        let new = |values: Vec<u64>| {
            let per_second = vec![0.0; values.len()];
            Known { at_ns, values, per_second, round }
        };
        let Some(known) = self.known.get_mut(&key) else {
            let known = new(values);
            let rates = known.per_second.clone();
            self.known.insert(key, known);
            return rates;
        };
        let has_begun_again = at_ns < known.at_ns
            || known.values.len() != values.len()
            || known.values.iter().zip(&values).any(|(before, now)| now < before);
        if has_begun_again {
            *known = new(values);
        } else if at_ns > known.at_ns {
            let seconds = (at_ns - known.at_ns) as f64 / 1e9;
            let pairs = known.values.iter().zip(&values);
            known.per_second = pairs.map(|(before, now)| (now - before) as f64 / seconds).collect();
            (known.at_ns, known.values) = (at_ns, values);
        }
        known.round = round;
        known.per_second.clone()
    }

    /// Forgets what was not updated since the last call.
    pub(super) fn end_round(&mut self) {
        let round = self.round;
        self.known.retain(|_, known| known.round == round);
        self.round += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn rates_are_of_the_time_that_has_passed() {
        let mut rates = Rates::default();
        assert_eq!(rates.update("a", SECOND, vec![100, 7]), [0.0, 0.0]);
        assert_eq!(rates.update("a", 3 * SECOND, vec![300, 7]), [100.0, 0.0]);
        // An engine that sleeps shows the same numbers again.
        assert_eq!(rates.update("a", 3 * SECOND, vec![300, 7]), [100.0, 0.0]);
        assert_eq!(rates.update("b", 3 * SECOND, vec![1]), [0.0]);
        // A daemon was started again.
        assert_eq!(rates.update("a", SECOND, vec![9, 9]), [0.0, 0.0]);
        assert_eq!(rates.update("a", 2 * SECOND, vec![10, 8]), [0.0, 0.0]);
        assert_eq!(rates.update("a", 3 * SECOND, vec![11, 9]), [1.0, 1.0]);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut rates = Rates::default();
        rates.update("a", SECOND, vec![1]);
        rates.update("b", SECOND, vec![1]);
        rates.end_round();
        rates.update("b", 2 * SECOND, vec![2]);
        rates.end_round();
        assert_eq!(rates.known.len(), 1);
    }
}
