//! Packets from random UDP ports, in waves, until one of them comes to the right engine ("RSS--",
//! Machnet, section 4.2): how many, and when. Which packets they are, `Ports` and `Flow` decide.
//!
//! With n engines, ln(1 - √0.95) / ln(1 - 1/n) packets reach a given one of them with a probability
//! of √0.95; the paper sends so many at once. That is at most 3.68 n, and here four waves of n, a
//! little more than a round trip apart, so that most searches end after the first one or two. What
//! is not found then is looked for in larger waves, at longer intervals.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{MICROSECOND, Random, Time};

use crate::config::Config;
use crate::state::{DURATION_NS_MAX, SprayState};

/// The lowest UDP port that flows send from; the highest is the last there is. Nothing else is
/// known by them: RFC 6335, section 6: "the Dynamic Ports, also known as the Private or Ephemeral
/// Ports, from 49152-65535 (never assigned)".
pub const SOURCE_PORT_MIN: u16 = 49152;

/// Waves of n packets before they grow.
const STEADY_WAVES: u32 = 4;
/// Waves of a search that may fail: the last two grow, to 10 n in all, and all of them fail with a
/// probability of e^-10 where no packets are lost and the hash does not ignore ports.
pub(super) const WAVES_MAX: u32 = STEADY_WAVES + 2;
/// The largest wave, if the peer's engines are not known: the first guess may be far too low.
const UNKNOWN_WAVE_MAX: u32 = 64;
/// The largest wave: what the queue of an LCD NIC holds.
const WAVE_MAX: u32 = 256;
/// The shortest time between two waves: a few turns of an engine that is busy.
const INTERVAL_NS_MIN: u64 = 100 * MICROSECOND;

/// A random port to send from.
pub(super) fn random_port(random: &mut Random) -> u16 {
    SOURCE_PORT_MIN | random.next_u32() as u16 // the lowest port has only high bits
}

/// What is known of a peer before there is a flow to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its engines.
    pub(crate) engines: u8,
    /// The round-trip time to it.
    pub(crate) rtt_ns: u64,
}

/// One search.
#[derive(Debug)]
pub(super) struct Spray {
    random: Random,
    /// What the next packet is sent from.
    port: u16,
    /// A port that has worked once: the first of each wave is sent from it.
    pinned: Option<u16>,
    /// Packets of a wave, and those of this one that are still to be sent.
    wave: u32,
    left: u32,
    wave_max: u32,
    /// Waves begun.
    waves: u32,
    steady_waves: u32,
    waves_max: u32,
    /// Waves that have to be fruitless before it is desperate.
    hopeful_waves: u32,
    interval_ns: u64,
    interval_max_ns: u64,
    /// When the next wave begins, if this one has been sent.
    next_at: Time,
    /// When this wave began.
    began: Time,
}

impl Spray {
    /// Looks for one of a peer's engines; `engines` is a guess.
    pub(super) fn to_unknown(now: Time, config: &Config, random: Random, engines: u8) -> Self {
        let n = u32::from(engines);
        Self {
            wave_max: (8 * n).clamp(UNKNOWN_WAVE_MAX, WAVE_MAX),
            ..Self::new(now, config, random, n)
        }
    }

    /// Looks for one of a peer's engines.
    pub(super) fn to_known(now: Time, config: &Config, random: Random, known: Known) -> Self {
        let unknown = Self::new(now, config, random, known.engines.into());
        if known.engines == 1 {
            // Nothing to look for: who repeats the packet fears that it is lost.
            let interval_ns =
                unknown.interval_ns.max(4 * known.rtt_ns).min(unknown.interval_max_ns);
            return Self { interval_ns, ..unknown };
        }
        let interval_ns = (2 * known.rtt_ns).max(INTERVAL_NS_MIN).min(unknown.interval_max_ns);
        Self { interval_ns, steady_waves: STEADY_WAVES, ..unknown }
    }

    /// Repeats one packet from `port`; as it gets no answer, others as well.
    pub(super) fn pinned(
        now: Time,
        config: &Config,
        random: Random,
        known: Known,
        port: u16,
    ) -> Self {
        let one = Known { engines: 1, ..known };
        Self {
            pinned: Some(port),
            port,
            wave_max: (8 * u32::from(known.engines)).min(WAVE_MAX),
            ..Self::to_known(now, config, random, one)
        }
    }

    fn new(now: Time, config: &Config, mut random: Random, wave: u32) -> Self {
        Self {
            port: random_port(&mut random),
            random,
            pinned: None,
            wave,
            left: wave,
            wave_max: (8 * wave).min(WAVE_MAX),
            waves: 1,
            steady_waves: 1,
            waves_max: u32::MAX,
            hopeful_waves: STEADY_WAVES,
            interval_ns: config.connect_retry_ns,
            interval_max_ns: config.connect_retry_max_ns,
            next_at: Time::MAX,
            began: now,
        }
    }

    pub(super) const fn save(&self) -> SprayState {
        SprayState {
            random: self.random.state(),
            port: self.port,
            pinned: self.pinned,
            wave: self.wave,
            left: self.left,
            wave_max: self.wave_max,
            waves: self.waves,
            steady_waves: self.steady_waves,
            waves_max: self.waves_max,
            hopeful_waves: self.hopeful_waves,
            interval_ns: self.interval_ns,
            interval_max_ns: self.interval_max_ns,
            next_at: self.next_at,
            began: self.began,
        }
    }

    pub(super) fn restore(state: &SprayState) -> Result<Self, Invalid> {
        let SprayState { wave, left, wave_max, waves, port, pinned, .. } = *state;
        let is_wave = left <= wave && wave <= wave_max && wave_max <= WAVE_MAX && wave > 0;
        ensure(is_wave && waves < 1 << 31, "a search of too many packets")?;
        let is_port = port >= SOURCE_PORT_MIN && pinned.is_none_or(|port| port >= SOURCE_PORT_MIN);
        ensure(is_port, "a search over ports that no flow sends from")?;
        let longest_ns = state.interval_ns.max(state.interval_max_ns);
        ensure(longest_ns <= DURATION_NS_MAX, "a search that goes on for ever")?;
        Ok(Self {
            random: Random::new(state.random),
            port,
            pinned,
            wave,
            left,
            wave_max,
            waves,
            steady_waves: state.steady_waves,
            waves_max: state.waves_max,
            hopeful_waves: state.hopeful_waves,
            interval_ns: state.interval_ns,
            interval_max_ns: state.interval_max_ns,
            next_at: state.next_at,
            began: state.began,
        })
    }

    /// The same, but it ends after so many waves.
    pub(super) const fn bounded(self, waves_max: u32) -> Self {
        Self { waves_max, ..self }
    }

    /// The same, but whoever it looks for may have been reached by a detour only.
    pub(super) const fn desperate(self) -> Self {
        Self { hopeful_waves: 0, ..self }
    }

    pub(super) const fn is_due(&self) -> bool {
        self.left > 0
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// The packet that is due is the first of one more batch: a wave that is larger than the first
    /// ones.
    pub(super) const fn begins_retry(&self) -> bool {
        self.is_retry() && self.left == self.wave
    }

    const fn is_retry(&self) -> bool {
        self.waves > self.steady_waves
    }

    /// The packets of so many waves have not reached the engine that they should: it may be that
    /// none can.
    pub(super) const fn is_desperate(&self) -> bool {
        self.waves > self.hopeful_waves
    }

    /// The packet that was due is on its way.
    pub(super) fn on_sent(&mut self, now: Time) {
        self.left -= 1;
        self.port = random_port(&mut self.random);
        if self.left == 0 {
            self.next_at = now + self.interval_ns;
        }
    }

    /// When [`Spray::handle_timeout`] is to be called.
    pub(super) const fn next_timeout(&self) -> Time {
        self.next_at
    }

    /// Begins the next wave if it is time. False if there is none any more.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        if self.left > 0 || self.next_at > now {
            return true;
        }
        if self.waves >= self.waves_max {
            return false;
        }
        self.waves += 1;
        if self.is_retry() {
            self.wave = (2 * self.wave).min(self.wave_max);
            self.interval_ns = (2 * self.interval_ns).min(self.interval_max_ns);
        }
        self.left = self.wave;
        self.began = now;
        self.next_at = Time::MAX;
        self.port = self.pinned.unwrap_or(self.port);
        true
    }

    /// How long the answer has taken that has come now, if it is to the newest wave.
    pub(super) fn round_trip_ns(&self, now: Time) -> u64 {
        now.since(self.began)
    }

    /// It can be to no other wave.
    pub(super) const fn is_first_wave(&self) -> bool {
        self.waves == 1
    }
}

#[cfg(test)]
mod tests;
