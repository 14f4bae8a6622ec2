//! The transport's limits and times, with the reasons for their defaults.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND};
use clearway_congestion::Congestion;

/// Positions of the sequence space that a message takes besides its bytes. It stands for the
/// memory of a message's bookkeeping at both ends, so that a limit on positions also limits the
/// number of messages, empty ones included.
pub const MESSAGE_OVERHEAD: u64 = 64;

/// Packets of one flow that may be in flight: 10 Gbit/s over 20 ms in packets of 1472 bytes are
/// 17,000, and twice that lets a new flow find the limit of such a path.
pub const PACKETS_IN_FLIGHT_MAX: usize = 32_768;

/// The silence after which a flow may be given up, in milliseconds: from some probe timeouts to two
/// days.
pub const SILENCE_MS: RangeInclusive<u32> = 1_000..=172_800_000;

/// Settings of an [`crate::Endpoint`]. All flows share them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine of its host this one is, from 0 on; below [`crate::ENGINES_MAX`].
    pub engine_index: u8,
    /// Engines of this host that share the queues of this one's NIC: 1 to [`crate::ENGINES_MAX`].
    pub engine_count: u8,
    /// Largest UDP payload to send, in bytes: the MTU less IP and UDP headers.
    pub packet_bytes_max: u16,
    /// Largest UDP payload that the NIC takes, if that is more. It is announced: once the own link
    /// carries it, peers may send it.
    pub packet_bytes_taken: u16,
    /// Flows at a time.
    pub flows_max: u32,
    /// How long a connection attempt may take.
    pub connect_timeout_ns: u64,
    /// First wait for an answer to a syn, where the round-trip time is not known; doubles with each
    /// further one.
    pub connect_retry_ns: u64,
    /// Longest wait for an answer to a syn.
    pub connect_retry_max_ns: u64,
    /// Silence after which a ping is sent, or a third of the silence after which the flow is given
    /// up if that is less. 0: no keep-alive.
    pub keep_alive_ns: u64,
    /// Silence, despite pings or unacknowledged data, after which a flow is given up, unless
    /// [`crate::Endpoint::set_silence`] says otherwise: within [`SILENCE_MS`].
    pub idle_timeout_ns: u64,
    /// How long an acknowledgement may wait for data to travel with.
    pub ack_delay_ns: u64,
    /// Granularity of the loss timers. RFC 9002, section 6.1.2: "The RECOMMENDED value of the
    /// timer granularity (kGranularity) is 1 millisecond." Round trips here are some
    /// microseconds, and a lost packet should not cost a hundred of them.
    pub timer_granularity_ns: u64,
    /// Longest probe timeout, so that a peer that was away is found again soon.
    pub probe_timeout_max_ns: u64,
    /// How a flow finds out how much it may send.
    pub congestion: Congestion,
    /// Queueing delay above the lowest round-trip time that the congestion control accepts.
    pub delay_target_ns: u64,
    /// How long a cookie is valid; longer than a connection attempt.
    pub cookie_lifetime_ns: u64,
    /// Stateless answers (challenge, reset, version, pong) per second.
    pub stateless_per_second: u32,
}

impl Config {
    /// What peers are told of how large packets may be.
    pub(crate) fn packet_bytes_announced(&self) -> u16 {
        self.packet_bytes_max.max(self.packet_bytes_taken)
    }

    /// How many engines the NIC spreads packets from `peer` to the own address `local` over. What
    /// stays on the host does not come by the NIC.
    pub(crate) fn engines_between(&self, local: IpAddr, peer: IpAddr) -> u8 {
        if local == peer { 1 } else { self.engine_count }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine_index: 0,
            engine_count: 1,
            packet_bytes_max: 1472, // 1500 less 20 (IPv4) and 8 (UDP)
            packet_bytes_taken: 0,
            flows_max: 100_000,
            connect_timeout_ns: 5 * SECOND,
            connect_retry_ns: 2 * MILLISECOND,
            connect_retry_max_ns: 250 * MILLISECOND,
            keep_alive_ns: 10 * SECOND,
            idle_timeout_ns: 30 * SECOND,
            ack_delay_ns: 50 * MICROSECOND,
            timer_granularity_ns: 200 * MICROSECOND,
            probe_timeout_max_ns: 100 * MILLISECOND,
            congestion: Congestion::default(),
            delay_target_ns: 100 * MICROSECOND,
            cookie_lifetime_ns: 10 * SECOND,
            stateless_per_second: 100_000,
        }
    }
}
