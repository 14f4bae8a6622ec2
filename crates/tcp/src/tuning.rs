//! How large the receive buffer has to be: twice what its app takes in a round trip, since the peer
//! has to be able to double what it sends, and hears of the room a round trip later.

use clearway_base::Time;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// When the round trip at hand began, and what the app had taken until then.
    since: Time,
    taken: u64,
    /// The buffer does not grow beyond this.
    bytes_max: u32,
}

impl Tuning {
    pub(crate) const fn new(taken: u64, bytes_max: u32) -> Self {
        Self { since: Time::ZERO, taken, bytes_max }
    }

    /// Data has come, and the app has taken all before `taken`. What the buffer should be that has
    /// `buffer_bytes`: it never shrinks.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        round_trip_ns: u64,
        taken: u64,
        buffer_bytes: u32,
    ) -> u32 {
        if now.since(self.since) < round_trip_ns {
            return buffer_bytes;
        }
        let bytes = taken - self.taken;
        (self.since, self.taken) = (now, taken);
        if 2 * bytes <= u64::from(buffer_bytes) {
            return buffer_bytes;
        }
        let wanted = u32::try_from(4 * bytes).unwrap_or(u32::MAX);
        wanted.min(self.bytes_max).max(buffer_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Tuning;
    use clearway_base::Time;

    #[test]
    fn grows_with_what_is_taken_in_a_round_trip_up_to_its_bound() {
        let mut tuning = Tuning::new(1000, 50_000);
        let at = Time::from_ns;
        assert_eq!(tuning.on_data(at(1000), 100, 1000, 10_000), 10_000);
        assert_eq!(tuning.on_data(at(1099), 100, 9000, 10_000), 10_000, "not yet a round trip");
        assert_eq!(tuning.on_data(at(1100), 100, 9000, 10_000), 32_000);
        assert_eq!(tuning.on_data(at(1200), 100, 20_000, 32_000), 32_000, "less than half");
        assert_eq!(tuning.on_data(at(1300), 100, 50_000, 32_000), 50_000);
        assert_eq!(tuning.on_data(at(1400), 100, 60_000, 50_000), 50_000);
    }

    #[test]
    fn does_not_grow_for_an_app_that_takes_nothing() {
        let mut tuning = Tuning::new(0, 50_000);
        for round in 1..100 {
            assert_eq!(tuning.on_data(Time::from_ns(round * 100), 100, 0, 10_000), 10_000);
        }
    }
}
