//! Swift: additive increase while the queueing delay is below a target, decrease in proportion to
//! the excess, at most once per round trip (Kumar et al., "Swift: Delay is Simple and Effective for
//! Congestion Control in the Datacenter", SIGCOMM 2020, section 3). A window may be less than a
//! packet; pacing makes it so. Before the first congestion signal the window doubles each round
//! trip.
//!
//! Where this differs from the paper, because the paths here may be long, and lossy of themselves:
//!
//! - The delay is counted above the lowest round trip seen, not above a figure from the topology.
//!   Full packets have one of their own, since each link takes longer to send them on: two links of
//!   200 Mbit/s add 0.1 ms to what the handshake took, which is no queue.
//! - The target falls with the *rate* of the flow, not with its window: see below.
//! - Far below the target the window grows by a part of itself. One packet per round trip would
//!   take minutes to fill 10 Gbit/s over 20 ms. (Timely's hyperactive increase has the same
//!   purpose.)
//! - What counts is the lowest delay of the last half to whole round trip, or less of a long one: a
//!   queue that stands, not one packet that was late. (Copa, Arun and Balakrishnan, NSDI 2018,
//!   section 2.1, has the same.)
//! - Now and then a decrease is a drain: it empties the queue, so that all flows see how long the
//!   path is. Else those that began later would take the others' queue for a part of it, and starve
//!   them. (BBR's ProbeRTT, Cardwell et al., ACM Queue 14(5), 2016, has the same purpose.)
//! - Loss that comes without delay is no sign of congestion until it is a tenth of all; then
//!   the window shrinks by the part that was lost.
//!
//! # Why near and far flows get equal rates
//!
//! All that share a link see one queue. Each gives way while the queue is above its target and
//! grows while it is below, so they all stay only where the queue is everybody's target. A target
//! that falls with the window, as the paper's (section 3.5), makes windows equal, and so rates
//! inverse to round-trip times. This one falls with the rate, and so makes rates equal. Vegas, FAST
//! and Copa are the same with another function: there the target is a constant divided by the rate
//! (FAST: Wei, Jin, Low and Hegde, IEEE/ACM ToN 14(6), 2006; Copa, section 2: "1 / (delta * d_q)").
//! That any function that falls will do, however fast flows grow and decrease, is in Poseidon (Wang
//! et al., NSDI 2023). The root is the paper's: with it, `n` flows have a queue of `sqrt(n)` times
//! that of one, not `n` times.
//!
//! What is left is that a flow must not see another queue than the others do, or live at another
//! distance from its target. A packet more per round trip and `BETA * excess / rtt` of the window
//! less are in balance at an excess of `packet / (BETA * rate)`, for near and far flows alike. Each
//! takes the lowest delay over about the same time, and knows how long its path is because the
//! queue is emptied now and then; what a drain takes from a flow it gets back.

use clearway_base::{SECOND, Time};

use super::{
    AckSample, COLLAPSED_PACKETS, CongestionControl, INITIAL_PACKETS, LossSample, MAX_BYTES,
    after_idle,
};

/// The delay-based controller. What each acknowledgement touches stands first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Swift {
    window_bytes: f64,
    packet_bytes: f64,
    delay_target_ns: u64,
    /// The lowest round-trip time of the path: what it takes without any queue.
    base_rtt_ns: u64,
    /// The same of full packets.
    full_rtt_ns: u64,
    standing: Standing,
    /// The queue is being emptied.
    drains: bool,
    slow_start: bool,
    loss: LossRate,
    /// Since when the window has been as small as it can be, and the lowest round trip since.
    starving: Option<(Time, u64)>,
    /// The window that filled the path when there was last a queue, a mark, or too much was lost.
    full_bytes: f64,
    /// The whole window when a queue was last given way to.
    undrained_bytes: f64,
    /// How fast the window grows beyond `full_bytes`, as a part of itself per round trip, or 0: it
    /// has not begun to; and when that was set.
    growth: f64,
    growth_since: Time,
    /// No second decrease for what was in flight at the first.
    decreased: Time,
    /// When the queue was last seen empty, or this flow last began to empty it.
    emptied: Time,
}

/// The lowest delay above the base of two stretches of half a round trip each, or less.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// The last moment of the current stretch.
    end: Time,
    current_ns: u64,
    previous_ns: u64,
}

/// What was lost of what was sent, over some packets.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct LossRate {
    lost_bytes: f64,
    acked_bytes: f64,
}

/// The paper's algorithm 1: the multiplicative decrease factor and its bound per round trip.
const BETA: f64 = 0.8;
const DECREASE_MAX: f64 = 0.5;
/// A stretch over which the lowest delay is taken has so many delay targets at most. The queue of
/// near flows comes and goes: over half of a long round trip its lowest is far below what they see.
const STANDING_TARGETS: u64 = 2;
/// A decrease is a drain if the queue has not been empty for so many delay targets, and so many
/// round trips.
const DRAIN_EACH_TARGETS: f64 = 100.0;
const DRAIN_EACH_ROUND_TRIPS: f64 = 8.0;
/// A drain that has not emptied the queue ends after so many delay targets and a round trip.
const DRAIN_TARGETS: f64 = 20.0;
/// What is left, at least, of the window that just fills the path when the queue is to be emptied.
const DRAIN_FACTOR_MIN: f64 = 0.8;
/// No drain leaves less; and flows with as few packets as this, many of which share a link, do
/// not drain: together they would leave it empty.
const DRAIN_PACKETS_MIN: f64 = 0.5;
const DRAIN_PACKETS_FEW: f64 = 2.0;
/// A queue of this part of the delay target is none.
const EMPTY_PART: f64 = 1.0 / 8.0;
/// RFC 8511, section 3.1, for marks, which come from shorter queues than losses do.
const MARK_FACTOR: f64 = 0.8;
/// Of the window, per round trip, up to what filled the path when there was last a queue, or nearly
/// so.
const GROWTH_MAX: f64 = 1.0 / 8.0;
const NEARLY_FULL: f64 = 0.95;
/// By how much growth beyond that speeds up per round trip without a queue.
const GROWTH_FACTOR: f64 = 1.25;
/// A flow that sends so many packets in the time of the delay target accepts just that delay; one
/// of a quarter of this rate twice as much, as in the paper's flow-based scaling (section 3.5).
const PACKETS_PER_TARGET: f64 = 4.0;
/// The least and the most that is accepted, in delay targets.
const TARGET_MIN: f64 = 0.25;
const TARGET_MAX: f64 = 2.0;
/// A window below this means waiting for a long time between packets, and learning nothing.
const MIN_PACKETS: f64 = 1.0 / 16.0;
/// The round trip of full packets may be longer than that of others by this part of it, and so many
/// delay targets. What is more is a queue. On a short path all of it is: there the few packets in
/// flight are enough.
const FULL_EXCESS_PART: u64 = 8;
const FULL_EXCESS_TARGETS: u64 = 10;
/// After so long with the smallest window the path is taken for a longer one than before.
const STARVING_NS: u64 = SECOND;
/// Loss up to this part of all may be the path's own.
const LOSS_TOLERATED: f64 = 0.1;
/// Packets, acknowledged or lost, over which the loss rate is taken; and losses that suffice.
const LOSS_RATE_PACKETS: f64 = 512.0;
const LOSSES_ENOUGH: f64 = 128.0;

impl Swift {
    /// A controller for a path that carries packets of up to `packet_bytes`.
    #[must_use]
    pub fn new(packet_bytes: u16, delay_target_ns: u64) -> Self {
        let packet_bytes = f64::from(packet_bytes);
        Self {
            window_bytes: INITIAL_PACKETS * packet_bytes,
            packet_bytes,
            delay_target_ns,
            base_rtt_ns: u64::MAX,
            full_rtt_ns: u64::MAX,
            standing: Standing { end: Time::ZERO, current_ns: u64::MAX, previous_ns: u64::MAX },
            slow_start: true,
            full_bytes: 0.0,
            undrained_bytes: 0.0,
            growth: 0.0,
            growth_since: Time::ZERO,
            drains: false,
            decreased: Time::ZERO,
            emptied: Time::ZERO,
            starving: None,
            loss: LossRate::default(),
        }
    }

    /// The queueing delay that this flow accepts at its rate.
    fn target_ns(&self, rtt_ns: f64) -> f64 {
        let delay_target_ns = self.delay_target_ns as f64;
        let packets = self.window_bytes / self.packet_bytes * delay_target_ns / rtt_ns;
        delay_target_ns * (PACKETS_PER_TARGET / packets).sqrt().clamp(TARGET_MIN, TARGET_MAX)
    }

    /// Grows or decreases, as the queue is.
    #[inline(never)]
    fn respond(&mut self, sample: &AckSample, queue_ns: f64) {
        let rtt_ns = self.base_rtt_ns as f64 + queue_ns;
        let target_ns = self.target_ns(rtt_ns);
        let is_empty = self.is_empty(queue_ns);
        if is_empty {
            self.emptied = sample.now;
        }
        if self.drains {
            self.go_on_draining(sample, rtt_ns, target_ns, is_empty);
        } else if queue_ns > target_ns {
            self.give_way(sample, rtt_ns, target_ns);
        } else if sample.marked {
            self.heed_mark(sample, rtt_ns);
        } else if sample.window_limited {
            self.grow(sample, queue_ns, target_ns);
        }
    }

    /// How much longer this round trip took than one of such packets without a queue.
    fn queue_ns(&mut self, sample: &AckSample) -> u64 {
        self.learn_base(sample.now, sample.rtt_ns);
        if 2.0 * f64::from(sample.packet_bytes) <= self.packet_bytes {
            return sample.rtt_ns - self.base_rtt_ns;
        }
        let part_ns = self.base_rtt_ns / FULL_EXCESS_PART;
        let longest_ns = self.base_rtt_ns + part_ns.min(FULL_EXCESS_TARGETS * self.delay_target_ns);
        self.full_rtt_ns = self.full_rtt_ns.min(sample.rtt_ns).min(longest_ns);
        sample.rtt_ns - self.full_rtt_ns
    }

    /// Learns how long the path is: the least that was seen, unless even the smallest window has
    /// not brought that back for a second.
    fn learn_base(&mut self, now: Time, rtt_ns: u64) {
        self.base_rtt_ns = self.base_rtt_ns.min(rtt_ns);
        if self.window_bytes > MIN_PACKETS * self.packet_bytes {
            if self.starving.is_some() {
                self.starving = None;
            }
            return;
        }
        let (since, least_ns) = self.starving.unwrap_or((now, rtt_ns));
        let least_ns = least_ns.min(rtt_ns);
        self.starving = Some((since, least_ns));
        if now.since(since) >= STARVING_NS {
            (self.base_rtt_ns, self.full_rtt_ns) = (least_ns, u64::MAX);
            self.starving = None;
        }
    }

    /// Grows by a packet per round trip; and by a part of the window if less than half of the
    /// accepted delay is there.
    fn grow(&mut self, sample: &AckSample, queue_ns: f64, target_ns: f64) {
        let acked_bytes = sample.acked_bytes as f64;
        if self.slow_start {
            self.window_bytes += acked_bytes;
        } else {
            let step = self.packet_bytes / self.window_bytes.max(self.packet_bytes);
            let spare = (1.0 - 2.0 * queue_ns / target_ns).max(0.0);
            let part = if spare > 0.0 { spare * self.growth_now(sample) } else { 0.0 };
            self.window_bytes += acked_bytes * (step + part);
        }
        self.window_bytes = self.window_bytes.min(MAX_BYTES);
    }

    /// Fast up to the window that was enough the last time; beyond it carefully at first, since a
    /// part of the window of a long path is more than the queue that is wanted.
    fn growth_now(&mut self, sample: &AckSample) -> f64 {
        if self.window_bytes < NEARLY_FULL * self.full_bytes {
            return GROWTH_MAX;
        }
        if self.growth == 0.0 {
            self.growth = self.growth_least();
        }
        if sample.sent >= self.growth_since {
            self.growth_since = sample.now;
            self.growth = (self.growth * GROWTH_FACTOR).min(GROWTH_MAX);
        }
        self.growth
    }

    /// How fast the window grows at first, beyond what filled the path.
    fn growth_least(&self) -> f64 {
        (self.delay_target_ns as f64 / (4.0 * self.base_rtt_ns as f64)).min(GROWTH_MAX)
    }

    /// The path has been full with this window.
    fn note_full(&mut self, bytes: f64) {
        (self.full_bytes, self.growth) = (bytes, 0.0);
    }

    /// The window when that was sent which is acknowledged now: in slow start it has doubled since.
    fn window_before(&self) -> f64 {
        self.window_bytes / if self.slow_start { 2.0 } else { 1.0 }
    }

    /// A queue of less than half a packet, at the rate that this flow had when it last gave way, is
    /// none: over slow links full packets take longer than `full_rtt_ns` says.
    fn is_empty(&self, queue_ns: f64) -> bool {
        let half_packet_bytes_ns = 0.5 * self.packet_bytes * self.base_rtt_ns as f64;
        queue_ns < EMPTY_PART * self.delay_target_ns as f64
            || queue_ns * self.full_bytes < half_packet_bytes_ns
    }

    /// Decreases because the queue is too long: as in the paper, or to empty it.
    fn give_way(&mut self, sample: &AckSample, rtt_ns: f64, target_ns: f64) {
        if sample.sent <= self.decreased {
            return;
        }
        let (base_ns, delay_target_ns) = (self.base_rtt_ns as f64, self.delay_target_ns as f64);
        self.undrained_bytes = self.window_before();
        self.note_full(self.undrained_bytes * base_ns / rtt_ns);
        let each_ns = (DRAIN_EACH_TARGETS * delay_target_ns).max(DRAIN_EACH_ROUND_TRIPS * rtt_ns);
        let is_due = self.slow_start || sample.now.since(self.emptied) as f64 > each_ns;
        if is_due && self.window_bytes > DRAIN_PACKETS_FEW * self.packet_bytes {
            self.drains = true;
            self.emptied = sample.now;
            self.drain(sample, rtt_ns, target_ns);
        } else {
            let excess = (rtt_ns - base_ns - target_ns) / rtt_ns;
            self.decrease(sample.now, sample.sent, 1.0 - BETA * excess);
        }
    }

    /// Decreases because a router has marked a packet: in its queue, which is short.
    fn heed_mark(&mut self, sample: &AckSample, rtt_ns: f64) {
        if sample.sent > self.decreased {
            self.note_full(self.window_before() * self.base_rtt_ns as f64 / rtt_ns);
            self.decrease(sample.now, sample.sent, MARK_FACTOR);
        }
    }

    /// Decreases until the queue is empty. Then the flow has the rate again that it had, so that
    /// who drains more often than others gets no less; but no larger window, if the queue has grown
    /// meanwhile.
    fn go_on_draining(&mut self, sample: &AckSample, rtt_ns: f64, target_ns: f64, is_empty: bool) {
        let longest_ns = rtt_ns + DRAIN_TARGETS * self.delay_target_ns as f64;
        if !is_empty && (sample.now.since(self.emptied) as f64) < longest_ns {
            return self.drain(sample, rtt_ns, target_ns);
        }
        self.drains = false;
        self.decreased = sample.now;
        let full_bytes = self.full_bytes * rtt_ns / self.base_rtt_ns as f64;
        let before = full_bytes.min(self.undrained_bytes);
        self.window_bytes = self.window_bytes.max(before);
    }

    /// Decreases to less than what fills the path without a queue, by no more than half in a round
    /// trip: one long round trip may also be the host's.
    fn drain(&mut self, sample: &AckSample, rtt_ns: f64, target_ns: f64) {
        let base_ns = self.base_rtt_ns as f64;
        let left = (1.0 - target_ns / base_ns).max(DRAIN_FACTOR_MIN) * base_ns / rtt_ns;
        let least = DRAIN_PACKETS_MIN * self.packet_bytes / self.window_bytes;
        self.decrease(sample.now, sample.sent, left.max(least).min(1.0));
    }

    /// Decreases if too much has been lost to be the path's own loss.
    fn judge_loss(&mut self, now: Time, sent: Time) {
        if !self.loss.is_known(self.packet_bytes) {
            return;
        }
        let part = self.loss.part();
        self.loss = LossRate::default();
        if part > LOSS_TOLERATED && sent > self.decreased {
            self.lose_part(now, sent, part);
        }
    }

    /// Decreases by the part that was lost. What the end of a drain gives back is less by as much.
    fn lose_part(&mut self, now: Time, sent: Time, part: f64) {
        let factor = (1.0 - part).max(1.0 - DECREASE_MAX);
        if self.drains {
            self.full_bytes *= factor;
            self.undrained_bytes *= factor;
        } else {
            self.note_full(self.window_before());
        }
        self.decrease(now, sent, factor);
    }

    /// Decreases, unless what was sent at `sent` knows nothing of the last decrease yet.
    fn decrease(&mut self, now: Time, sent: Time, factor: f64) {
        if sent <= self.decreased {
            return;
        }
        self.decreased = now;
        self.slow_start = false;
        let factor = factor.max(1.0 - DECREASE_MAX);
        self.window_bytes = (self.window_bytes * factor).max(MIN_PACKETS * self.packet_bytes);
    }

    /// Goes on with another window, which no drain has made.
    fn set_window(&mut self, bytes: f64) {
        self.window_bytes = bytes;
        self.drains = false;
    }
}

impl CongestionControl for Swift {
    #[inline]
    fn on_ack(&mut self, sample: &AckSample) {
        if self.base_rtt_ns == u64::MAX {
            self.base_rtt_ns = sample.min_rtt_ns; // the handshake's
        }
        let queue_ns = self.queue_ns(sample);
        if self.loss.lost_bytes > 0.0 {
            self.loss.acked_bytes += sample.acked_bytes as f64;
            self.judge_loss(sample.now, sample.sent);
        }
        let queue_ns = self.standing.add(sample, queue_ns, STANDING_TARGETS * self.delay_target_ns);
        // Most acknowledgements of a flow with little to send end here: it gives way only to a
        // queue that is longer than it would accept if it sent much.
        let is_calm = queue_ns <= self.delay_target_ns;
        if !is_calm || self.drains | sample.marked | sample.window_limited {
            self.respond(sample, queue_ns as f64);
        }
    }

    fn on_loss(&mut self, sample: &LossSample) {
        self.loss.lost_bytes += sample.bytes as f64;
        self.judge_loss(sample.now, sample.sent);
    }

    fn on_spurious_loss(&mut self) {
        // One loss alone has decreased nothing.
    }

    fn on_persistent_congestion(&mut self) {
        self.set_window(COLLAPSED_PACKETS * self.packet_bytes);
        self.slow_start = true;
    }

    fn on_timeout(&mut self) {
        self.set_window(self.packet_bytes);
        self.slow_start = true;
    }

    fn on_idle(&mut self, timeouts: u32) {
        let initial_bytes = INITIAL_PACKETS * self.packet_bytes;
        self.set_window(after_idle(self.window_bytes, timeouts, initial_bytes));
    }

    fn shrink_to(&mut self, bytes: u64) {
        let bytes = (bytes as f64).max(COLLAPSED_PACKETS * self.packet_bytes);
        self.set_window(self.window_bytes.min(bytes));
    }

    fn resume(&mut self, window_bytes: u64) {
        // It may be less than is allowed with packets of this size: they have grown since.
        self.set_window((window_bytes as f64).clamp(1.0, MAX_BYTES));
        self.slow_start = self.window_bytes <= INITIAL_PACKETS * self.packet_bytes;
        if !self.slow_start {
            self.note_full(self.window_bytes);
        }
    }

    fn set_packet_bytes(&mut self, packet_bytes: u16) {
        self.packet_bytes = f64::from(packet_bytes);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    fn slow_start_threshold_bytes(&self) -> Option<u64> {
        None // it ends by the delay
    }
}

impl Standing {
    fn add(&mut self, sample: &AckSample, queue_ns: u64, longest_ns: u64) -> u64 {
        if sample.now > self.end {
            let length_ns = (sample.smoothed_rtt_ns / 2).min(longest_ns);
            self.end = Time::from_ns(sample.now.as_ns() + length_ns);
            self.previous_ns = self.current_ns;
            self.current_ns = queue_ns;
        } else {
            self.current_ns = self.current_ns.min(queue_ns);
        }
        self.current_ns.min(self.previous_ns)
    }
}

impl LossRate {
    fn is_known(self, packet_bytes: f64) -> bool {
        self.acked_bytes + self.lost_bytes >= LOSS_RATE_PACKETS * packet_bytes
            || self.lost_bytes >= LOSSES_ENOUGH * packet_bytes
    }

    fn part(self) -> f64 {
        self.lost_bytes / (self.lost_bytes + self.acked_bytes)
    }
}

#[cfg(test)]
mod tests;
