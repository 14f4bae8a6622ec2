//! Congestion control: how many bytes of a flow may be in flight. Here are the trait and the
//! choice; `swift` goes by delay, `cubic` by loss. `docs/transport.md` compares them. How a window
//! is spread over time is in `pacer`. For whoever has acknowledgements: `transport` and `tcp`.
#![forbid(unsafe_code)]

use clearway_base::Time;

mod cubic;
mod pacer;
mod swift;
#[cfg(test)]
mod tests;

pub use cubic::Cubic;
pub use pacer::{Pacer, Speed};
pub use swift::Swift;

/// One acknowledgement as congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When it arrived.
    pub now: Time,
    /// When the newest of the packets that it acknowledges for the first time was sent.
    pub sent: Time,
    /// Bytes newly acknowledged.
    pub acked_bytes: u64,
    /// Of the packets newly acknowledged, the size of the largest, in bytes.
    pub packet_bytes: u32,
    /// The newest round-trip time, without what both hosts say that they held it up.
    pub rtt_ns: u64,
    /// The smoothed round-trip time.
    pub smoothed_rtt_ns: u64,
    /// The lowest round-trip time seen on this path.
    pub min_rtt_ns: u64,
    /// The sender filled the window: had it been larger, more would have been sent.
    pub window_limited: bool,
    /// The peer has seen new "congestion experienced" marks.
    pub marked: bool,
}

/// Packets that were lost, as congestion control sees them.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// When they were found to be lost.
    pub now: Time,
    /// When the last of them was sent.
    pub sent: Time,
    /// What they held.
    pub bytes: u64,
}

/// Decides how many bytes may be in flight. Called by one flow; knows nothing of packets.
pub trait CongestionControl: Send + core::fmt::Debug {
    /// Data was acknowledged.
    fn on_ack(&mut self, sample: &AckSample);

    /// Packets were lost.
    fn on_loss(&mut self, sample: &LossSample);

    /// A packet that counted as lost has arrived after all: the last decrease was for nothing.
    fn on_spurious_loss(&mut self);

    /// Nothing got through for a long time (RFC 9002, section 7.6).
    fn on_persistent_congestion(&mut self);

    /// TCP's retransmission timer has expired. RFC 5681, section 3.1: "cwnd MUST be set to no more
    /// than the loss window, LW, which equals 1 full-sized segment".
    fn on_timeout(&mut self);

    /// Nothing was sent for so many retransmission timeouts, and what is known of the path is old.
    /// Half of the window goes with each (RFC 2861, section 3), down to the initial one, which is
    /// RFC 5681's "restart window" (section 4.1).
    fn on_idle(&mut self, timeouts: u32);

    /// The window was that of a sender that did not use it, and so was what a loss has left of it:
    /// now it is at most this.
    fn shrink_to(&mut self, bytes: u64);

    /// A new controller goes on with the window of another one. What is larger than the initial
    /// window has been found by slow start, which is over.
    fn resume(&mut self, window_bytes: u64);

    /// The path carries packets of this size from now on.
    fn set_packet_bytes(&mut self, packet_bytes: u16);

    /// Bytes that may be in flight. Less than a packet: one packet, and that not all the time.
    fn window_bytes(&self) -> u64;

    /// The window at which slow start ends, for people. `None` if nothing says so.
    fn slow_start_threshold_bytes(&self) -> Option<u64>;
}

/// Which congestion control an endpoint's flows have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Congestion {
    /// By delay.
    #[default]
    Swift,
    /// By loss.
    Cubic,
}

impl Congestion {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Swift, Self::Cubic];

    /// Its name in configuration and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swift => "swift",
            Self::Cubic => "cubic",
        }
    }

    /// One that starts on a path that carries packets of `packet_bytes`.
    #[must_use]
    pub fn control(self, packet_bytes: u16, delay_target_ns: u64) -> Control {
        match self {
            Self::Swift => Control::Swift(Swift::new(packet_bytes, delay_target_ns)),
            Self::Cubic => Control::Cubic(Box::new(Cubic::new(packet_bytes))),
        }
    }
}

/// The congestion control of a flow; the default one is kept in the flow itself, where it is at
/// hand.
#[derive(Clone, Debug)]
pub enum Control {
    /// By delay.
    Swift(Swift),
    /// By loss.
    Cubic(Box<Cubic>),
}

impl CongestionControl for Control {
    #[inline]
    fn on_ack(&mut self, sample: &AckSample) {
        match self {
            Self::Swift(swift) => swift.on_ack(sample),
            Self::Cubic(cubic) => cubic.on_ack(sample),
        }
    }

    fn on_loss(&mut self, sample: &LossSample) {
        match self {
            Self::Swift(swift) => swift.on_loss(sample),
            Self::Cubic(cubic) => cubic.on_loss(sample),
        }
    }

    fn on_spurious_loss(&mut self) {
        match self {
            Self::Swift(swift) => swift.on_spurious_loss(),
            Self::Cubic(cubic) => cubic.on_spurious_loss(),
        }
    }

    fn on_persistent_congestion(&mut self) {
        match self {
            Self::Swift(swift) => swift.on_persistent_congestion(),
            Self::Cubic(cubic) => cubic.on_persistent_congestion(),
        }
    }

    fn on_timeout(&mut self) {
        match self {
            Self::Swift(swift) => swift.on_timeout(),
            Self::Cubic(cubic) => cubic.on_timeout(),
        }
    }

    fn on_idle(&mut self, timeouts: u32) {
        match self {
            Self::Swift(swift) => swift.on_idle(timeouts),
            Self::Cubic(cubic) => cubic.on_idle(timeouts),
        }
    }

    fn shrink_to(&mut self, bytes: u64) {
        match self {
            Self::Swift(swift) => swift.shrink_to(bytes),
            Self::Cubic(cubic) => cubic.shrink_to(bytes),
        }
    }

    fn resume(&mut self, window_bytes: u64) {
        match self {
            Self::Swift(swift) => swift.resume(window_bytes),
            Self::Cubic(cubic) => cubic.resume(window_bytes),
        }
    }

    fn set_packet_bytes(&mut self, packet_bytes: u16) {
        match self {
            Self::Swift(swift) => swift.set_packet_bytes(packet_bytes),
            Self::Cubic(cubic) => cubic.set_packet_bytes(packet_bytes),
        }
    }

    #[inline]
    fn window_bytes(&self) -> u64 {
        match self {
            Self::Swift(swift) => swift.window_bytes(),
            Self::Cubic(cubic) => cubic.window_bytes(),
        }
    }

    fn slow_start_threshold_bytes(&self) -> Option<u64> {
        match self {
            Self::Swift(swift) => swift.slow_start_threshold_bytes(),
            Self::Cubic(cubic) => cubic.slow_start_threshold_bytes(),
        }
    }
}

/// RFC 6928 gives TCP an initial window of ten segments; so does RFC 9002, section 7.2.
const INITIAL_PACKETS: f64 = 10.0;
/// RFC 9002, 7.2: "The RECOMMENDED value is 2 * max_datagram_size." It keeps acknowledgements
/// coming.
const COLLAPSED_PACKETS: f64 = 2.0;
/// What is left of `window` after so many timeouts without anything to send.
fn after_idle(window: f64, timeouts: u32, initial: f64) -> f64 {
    let halves = i32::try_from(timeouts).unwrap_or(i32::MAX).min(64);
    window.min(initial.max(window * 0.5_f64.powi(halves)))
}

/// Beyond the bandwidth-delay product of 25 Gbit/s over 20 ms, or 100 Gbit/s over 5 ms.
const MAX_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
