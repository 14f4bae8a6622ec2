//! One direction of a link in virtual time: a rate, a queue in front of it, a propagation delay,
//! and what goes wrong on it. It knows sizes and times; packets themselves are not its business.

use clearway_base::{Random, SECOND, Time};

/// What a link is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkShape {
    pub(super) bits_per_s: u64,
    /// One way.
    pub(super) delay_ns: u64,
    /// What the queue holds; packets that do not fit are dropped.
    pub(super) queue_bytes: u64,
    /// Packets that find more than this in the queue are marked, if they may be (RFC 3168).
    pub(super) mark_bytes: Option<u64>,
    pub(super) faults: Faults,
}

/// What goes wrong, beyond a full queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Packets of a million that are lost, each by itself.
    pub(super) loss_ppm: u64,
    /// Packets of a million at which a burst of losses begins, and how long it lasts.
    pub(super) burst_ppm: u64,
    pub(super) burst_ns: u64,
    /// Packets of a million that are held back, and for how long at most.
    pub(super) reorder_ppm: u64,
    pub(super) reorder_ns: u64,
    /// Nothing passes between these times.
    pub(super) outage: Option<(Time, Time)>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    /// It is at the other end at `at`; `is_marked`: with "congestion experienced".
    Arrives {
        at: Time,
        is_marked: bool,
    },
}

/// A link and its queue.
#[derive(Clone, Debug)]
pub(super) struct Link {
    shape: LinkShape,
    /// When the last packet of the queue will have left.
    busy_until: Time,
    burst_until: Time,
    /// Packets that the full queue dropped.
    pub(super) overflows: u64,
}

impl Link {
    pub(super) const fn new(shape: LinkShape) -> Self {
        Self { shape, busy_until: Time::ZERO, burst_until: Time::ZERO, overflows: 0 }
    }

    /// Sends a packet of `bytes` on its way.
    pub(super) fn carry(
        &mut self,
        now: Time,
        bytes: usize,
        may_be_marked: bool,
        random: &mut Random,
    ) -> Fate {
        let queued_bytes = self.queued_bytes(now);
        if queued_bytes + bytes as u64 > self.shape.queue_bytes {
            self.overflows += 1;
            return Fate::Lost;
        }
        let is_marked = may_be_marked
            && self.shape.mark_bytes.is_some_and(|threshold| queued_bytes > threshold);
        self.busy_until = self.busy_until.max(now) + self.serialisation_ns(bytes as u64);
        if self.is_faulty(now, random) {
            return Fate::Lost; // on the way: it has taken its time of the link
        }
        let mut at = self.busy_until + self.shape.delay_ns;
        if random.chance(self.shape.faults.reorder_ppm, 1_000_000) {
            at = at + random.below(self.shape.faults.reorder_ns);
        }
        Fate::Arrives { at, is_marked }
    }

    /// How long a packet that came now would wait.
    pub(super) const fn wait_ns(&self, now: Time) -> u64 {
        self.busy_until.since(now)
    }

    fn is_faulty(&mut self, now: Time, random: &mut Random) -> bool {
        let faults = self.shape.faults;
        if faults.outage.is_some_and(|(from, to)| from <= now && now < to) {
            return true;
        }
        if self.burst_until <= now && random.chance(faults.burst_ppm, 1_000_000) {
            self.burst_until = now + faults.burst_ns;
        }
        now < self.burst_until || random.chance(faults.loss_ppm, 1_000_000)
    }

    fn queued_bytes(&self, now: Time) -> u64 {
        (u128::from(self.wait_ns(now)) * u128::from(self.shape.bits_per_s) / u128::from(8 * SECOND))
            as u64
    }

    pub(super) fn serialisation_ns(&self, bytes: u64) -> u64 {
        (bytes * 8 * SECOND).div_ceil(self.shape.bits_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, Faults, Link, LinkShape};
    use clearway_base::{Random, Time};

    fn gigabit(faults: Faults) -> Link {
        Link::new(LinkShape {
            bits_per_s: 1_000_000_000,
            delay_ns: 10_000,
            queue_bytes: 3000,
            mark_bytes: Some(500),
            faults,
        })
    }

    #[test]
    fn packets_queue_are_marked_and_at_last_dropped() {
        let mut link = gigabit(Faults::default());
        let mut carry = || link.carry(Time::ZERO, 1000, true, &mut Random::new(1));
        let arrives = |at, is_marked| Fate::Arrives { at: Time::from_ns(at), is_marked };
        assert_eq!(carry(), arrives(18_000, false));
        assert_eq!(carry(), arrives(26_000, true));
        assert_eq!(carry(), arrives(34_000, true));
        assert_eq!(carry(), Fate::Lost);
        assert_eq!(link.overflows, 1);
    }

    #[test]
    fn an_outage_takes_everything_and_bursts_take_neighbours() {
        let outage = Some((Time::from_ns(5), Time::from_ns(10)));
        let mut link = gigabit(Faults { outage, ..Faults::default() });
        let mut random = Random::new(1);
        assert_eq!(link.carry(Time::from_ns(5), 100, false, &mut random), Fate::Lost);
        assert_ne!(link.carry(Time::from_ns(10), 100, false, &mut random), Fate::Lost);
        let mut link =
            gigabit(Faults { burst_ppm: 10_000, burst_ns: 5_000_000, ..Faults::default() });
        let lost: Vec<bool> = (0..2000u64)
            .map(|at| {
                link.carry(Time::from_ns(at * 1_000_000), 100, false, &mut random) == Fate::Lost
            })
            .collect();
        let runs = lost.split(|lost| !lost).filter(|run| !run.is_empty());
        let lengths: Vec<usize> = runs.map(<[bool]>::len).collect();
        assert!(lengths.len() > 5 && lengths.iter().all(|length| *length >= 5), "{lengths:?}");
    }
}
