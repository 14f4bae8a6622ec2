//! One way of frames through a network: decides what happens to each. No I/O and no clock; the dice
//! come from the caller, so that a run can be replayed.

use clearway_base::{Random, Time};

use crate::faults::{Bursts, FaultCounts, Faults, Rate};
use crate::packet::Packet;
use crate::slow_path::{Passage, SlowPathState};

pub(crate) const PPM: u64 = 1_000_000;
/// Most bits that corruption flips in one frame.
const BITS_FLIPPED_MAX: u64 = 3;
/// What Ethernet puts around each frame: preamble, check sequence and gap (IEEE 802.3, section
/// 4.2).
const ETHERNET_OVERHEAD_BYTES: u64 = 24;

/// One way, such as from a NIC to the network or back, with what it remembers of earlier frames.
#[derive(Debug)]
pub struct Way {
    faults: Faults,
    is_perfect: bool,
    in_burst: bool,
    /// When everything that waits at the rate limit will have left.
    busy_until: Time,
    /// No frame with jitter arrives before this.
    last_arrival: Time,
    slow_path: SlowPathState,
    frames: u64,
    counts: FaultCounts,
}

/// What happens to a frame that is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When it arrives.
    pub arrival: Time,
    /// How often: once or twice.
    pub copies: u8,
    /// How many later frames shall overtake it; 0 for none. See [`crate::Transit::push`].
    pub overtaken_by: u16,
}

impl Way {
    /// A way with these faults that no frame has gone yet.
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        Self {
            faults,
            is_perfect: faults.are_none(),
            in_burst: false,
            busy_until: Time::ZERO,
            last_arrival: Time::ZERO,
            slow_path: SlowPathState::default(),
            frames: 0,
            counts: FaultCounts::default(),
        }
    }

    /// What can happen now.
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Replaces what can happen. What waits stays where it is, and connections stay known.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.is_perfect = faults.are_none();
    }

    /// Frames that have set out so far.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// How long a frame that came now would wait at the rate limit.
    #[must_use]
    pub const fn wait_ns(&self, now: Time) -> u64 {
        self.busy_until.since(now)
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// True if nothing can happen: [`Way::enter`] would change no frame and draw no number.
    #[must_use]
    pub const fn is_perfect(&self) -> bool {
        self.is_perfect
    }

    /// Decides about a packet that sets out at `now`, and may flip bits of it or mark it. `None` if
    /// it never arrives. For the same calls on ways that began alike, the outcome is the same.
    pub fn enter(
        &mut self,
        now: Time,
        frame: &mut impl Packet,
        random: &mut Random,
    ) -> Option<Fate> {
        self.frames += 1;
        let mut fate = Fate { arrival: now, copies: 1, overtaken_by: 0 };
        if self.is_perfect {
            return Some(fate);
        }
        let faults = self.faults;
        if self.is_lost(random) {
            self.counts.lost += 1;
            return None;
        }
        let forwarded = self.take_slow_path(now, frame)?;
        let is_slow = forwarded > now;
        fate.arrival = if is_slow {
            // It holds up nobody who comes to the rate limit before it. Few are slow: it is taken
            // to find the wire free, and is not counted.
            forwarded + self.transmission_ns(frame)
        } else {
            self.wait_for_rate(now, frame)?
        };
        if roll(random, faults.corruption_ppm, &mut self.counts.corrupted) {
            flip_bits(random, frame.bytes());
        }
        if roll(random, faults.duplication_ppm, &mut self.counts.duplicated) {
            fate.copies = 2;
        }
        if roll(random, faults.reordering_ppm, &mut self.counts.reordered) {
            fate.overtaken_by = 1 + random.below(faults.reordering_frames_max.into()) as u16;
        }
        fate.arrival = self.travel(fate.arrival, is_slow, random);
        Some(fate)
    }

    fn is_lost(&mut self, random: &mut Random) -> bool {
        let Bursts { start_ppm, end_ppm, loss_ppm } = self.faults.bursts;
        if start_ppm > 0 {
            let switch_ppm = if self.in_burst { end_ppm } else { start_ppm };
            self.in_burst ^= random.chance(switch_ppm.into(), PPM);
        }
        let ppm = if start_ppm > 0 && self.in_burst { loss_ppm } else { self.faults.loss_ppm };
        ppm > 0 && random.chance(ppm.into(), PPM)
    }

    /// When a frame leaves the slow path, which is at once if it need not take it.
    fn take_slow_path(&mut self, now: Time, frame: &impl Packet) -> Option<Time> {
        let slow_path = &self.faults.slow_path;
        if slow_path.frames_per_s == 0 {
            return Some(now);
        }
        let Some(connection) = frame.connection() else {
            return Some(now);
        };
        match self.slow_path.pass(slow_path, connection, now) {
            Passage::Fast => Some(now),
            Passage::Slow(until) => {
                self.counts.slow += 1;
                Some(until)
            }
            Passage::Overflow => {
                self.counts.slow_overflowed += 1;
                None
            }
        }
    }

    /// When a frame has gone through the rate limit.
    fn wait_for_rate(&mut self, now: Time, frame: &mut impl Packet) -> Option<Time> {
        let rate @ Rate { bits_per_s, queue_bytes, mark_bytes } = self.faults.rate;
        if bits_per_s == 0 {
            return Some(now);
        }
        let waiting_bytes = rate.bytes_in(self.wait_ns(now));
        if waiting_bytes.saturating_add(frame.frame_bytes() as u64) > queue_bytes {
            self.counts.overflowed += 1;
            return None;
        }
        if mark_bytes > 0 && waiting_bytes > mark_bytes && frame.mark() {
            self.counts.marked += 1;
        }
        self.busy_until = self.busy_until.max(now) + self.transmission_ns(frame);
        Some(self.busy_until)
    }

    /// What a frame takes at the rate limit.
    fn transmission_ns(&self, frame: &impl Packet) -> u64 {
        self.faults.rate.takes_ns(frame.frame_bytes() as u64 + ETHERNET_OVERHEAD_BYTES)
    }

    /// When a frame that sets out at `now` is there.
    fn travel(&mut self, now: Time, is_slow: bool, random: &mut Random) -> Time {
        let Faults { latency_ns, jitter_ns, delay_ppm, delay_ns_max, .. } = self.faults;
        let mut arrival = now + latency_ns;
        if jitter_ns > 0 {
            arrival = arrival + random.below(jitter_ns + 1);
            if !is_slow {
                arrival = arrival.max(self.last_arrival);
                self.last_arrival = arrival;
            }
        }
        if roll(random, delay_ppm, &mut self.counts.delayed) {
            arrival = arrival + random.below(delay_ns_max) + 1;
        }
        arrival
    }
}

fn roll(random: &mut Random, ppm: u32, count: &mut u64) -> bool {
    let hit = ppm > 0 && random.chance(ppm.into(), PPM);
    *count += u64::from(hit);
    hit
}

fn flip_bits(random: &mut Random, frame: &mut [u8]) {
    let first = random.below(frame.len() as u64 * 8) as usize;
    for flip in 0..=random.below(BITS_FLIPPED_MAX) as usize {
        // Different bits each time, so that no two flips cancel out.
        let bit = (first + flip * 13) % (frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests;
