//! What can happen to a frame under way, as plain values. What does happen is decided in
//! [`crate::Way`].

use clearway_base::SECOND;

/// What happens to the frames that go one way: how likely each fault is, in millionths, and how
/// bad; how long the way is, and how narrow. All zero, the default, is a perfect wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The frame is lost.
    pub loss_ppm: u32,
    /// Times when more frames are lost than that.
    pub bursts: Bursts,
    /// The frame arrives twice.
    pub duplication_ppm: u32,
    /// One to three bits of the frame are flipped.
    pub corruption_ppm: u32,
    /// The frame is held back until later ones have overtaken it.
    pub reordering_ppm: u32,
    /// How many frames overtake at most. A held frame also comes forward when the receiver has
    /// found nothing that many times, so that the last frame of all is never stuck.
    pub reordering_frames_max: u16,
    /// Every frame takes this long; by whatever time its world has.
    pub latency_ns: u64,
    /// Every frame takes up to so much longer, evenly spread, but overtakes none before it.
    pub jitter_ns: u64,
    /// The frame takes longer than that, and later ones overtake it.
    pub delay_ppm: u32,
    /// How much longer at most.
    pub delay_ns_max: u64,
    /// How much fits through, and how much may wait for that.
    pub rate: Rate,
    /// What the first frames of a connection go through.
    pub slow_path: SlowPath,
}

/// Bursts of loss: the model of Gilbert and Elliott, a good and a bad state between which each
/// frame may switch ("Capacity of a burst-noise channel", 1960; "Estimates of error rates for codes
/// on burst-noise channels", 1963).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    /// How likely a frame begins a burst, in millionths; 0 for no bursts.
    pub start_ppm: u32,
    /// How likely a frame ends the burst, in millionths: a burst has a million times the reciprocal
    /// frames on average.
    pub end_ppm: u32,
    /// How likely a frame within a burst is lost, in millionths.
    pub loss_ppm: u32,
}

/// A rate limit with a queue in front of it that drops what does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bits of frames per second; 0 for no limit.
    pub bits_per_s: u64,
    /// How many bytes may wait. A frame beyond that is dropped.
    pub queue_bytes: u64,
    /// A frame that finds more bytes than this waiting is marked "congestion experienced" if it is
    /// of an ECN-capable transport (RFC 3168, section 5); 0 to mark none.
    pub mark_bytes: u64,
}

/// The policy pipeline of a cloud's network. The first frames of a connection, which is five fields
/// of IP and UDP or TCP, go through it until it has written the connection into a flow table
/// (Machnet, section 4.1: "packets-per-second to drop by 100x or more when initiating new
/// connections").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowPath {
    /// How many frames it takes per second; 0 for no slow path.
    pub frames_per_s: u64,
    /// How long one takes, besides waiting for others.
    pub latency_ns: u64,
    /// How many frames may wait for it. One beyond that is dropped.
    pub queue_frames: u64,
    /// How many connections the flow table holds at least; it forgets those that were idle longest.
    pub connections_max: usize,
}

impl Rate {
    /// How long so many bytes take; no time without a limit.
    #[must_use]
    pub fn takes_ns(&self, bytes: u64) -> u64 {
        if self.bits_per_s == 0 { 0 } else { mul_div(bytes * 8, SECOND, self.bits_per_s) }
    }

    /// How many bytes that is which takes so long.
    pub(crate) fn bytes_in(&self, ns: u64) -> u64 {
        mul_div(ns, self.bits_per_s, 8 * SECOND)
    }
}

/// `a * b / c`, without overflow on the way.
fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

impl Faults {
    /// Some of everything but delay: `ppm` of each, with up to 8 frames overtaking.
    #[must_use]
    pub fn all(ppm: u32) -> Self {
        Self {
            loss_ppm: ppm,
            duplication_ppm: ppm,
            corruption_ppm: ppm,
            reordering_ppm: ppm,
            reordering_frames_max: 8,
            ..Self::default()
        }
    }

    /// True if frames go through as on a perfect wire, whatever is said about what cannot happen.
    pub(crate) const fn are_none(&self) -> bool {
        let ppm = self.loss_ppm
            | self.bursts.start_ppm
            | self.duplication_ppm
            | self.corruption_ppm
            | self.reordering_ppm
            | self.delay_ppm;
        let limits =
            self.latency_ns | self.jitter_ns | self.rate.bits_per_s | self.slow_path.frames_per_s;
        ppm == 0 && limits == 0
    }

    /// A cut wire that does not know it: everything is lost.
    #[must_use]
    pub fn partition() -> Self {
        Self { loss_ppm: crate::way::PPM as u32, ..Self::default() }
    }
}

/// How many frames met what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames lost, in bursts or alone.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames with flipped bits.
    pub corrupted: u64,
    /// Frames held back for others to overtake.
    pub reordered: u64,
    /// Frames delayed beyond the latency of all.
    pub delayed: u64,
    /// Frames dropped because too much waited at the rate limit.
    pub overflowed: u64,
    /// Frames marked "congestion experienced".
    pub marked: u64,
    /// Frames that took the slow path.
    pub slow: u64,
    /// Frames dropped because too many waited for the slow path.
    pub slow_overflowed: u64,
}

impl std::ops::AddAssign for FaultCounts {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.reordered += other.reordered;
        self.delayed += other.delayed;
        self.overflowed += other.overflowed;
        self.marked += other.marked;
        self.slow += other.slow;
        self.slow_overflowed += other.slow_overflowed;
    }
}
