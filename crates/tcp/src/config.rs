//! What can be set, of a stack and of a connection.

use core::num::NonZeroU32;

use clearway_base::{MILLISECOND, SECOND};

use clearway_congestion::Congestion;
use serde::{Deserialize, Serialize};

use crate::fast_open::PEERS_MAX;
use crate::variants::Variants;

/// What is set for a whole [`crate::Stack`]. Its memory is bounded by the sum of its tables.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Connections, of all states but the next two.
    pub connections_max: u32,
    /// Connections that strangers have begun to open; what comes beyond that gets a cookie.
    pub half_open_max: u32,
    /// Connections in TIME-WAIT; beyond that the oldest ones of an account are forgotten.
    pub time_wait_max: u32,
    /// How long TIME-WAIT lasts: twice the longest that a segment may be in the network.
    /// RFC 9293, section 3.4.2, has 4 minutes; all that are in use have one.
    pub time_wait_ns: u64,
    /// TIME-WAIT answers nothing that has no ACK, as with FreeBSD. RFC 9293, section 3.10.7.4, has
    /// what is not acceptable acknowledged, and RFC 5961, section 4.2, each SYN. For tests.
    pub is_time_wait_silent: bool,
    /// How often the SYN-ACK of a listener is sent again.
    pub syn_ack_retries: u8,
    /// When a SYN is answered with a cookie.
    pub cookies: Cookies,
    /// Peers whose cookies of Fast Open are kept, for connecting.
    pub fast_open_peers_max: u32,
    /// Answers per second to segments without a connection.
    pub resets_per_s: u32,
    /// The range of source ports that are chosen (RFC 6056, section 3.2).
    pub ports: (u16, u16),
    /// The first sequence number of all connections. For tests, which compare segments: in service
    /// it has to be one that nobody can guess (RFC 6528), and there is none here.
    pub isn: Option<u32>,
    /// What all timestamps are ahead of the clock. For tests, likewise.
    pub timestamp_offset: Option<u32>,
}

/// When a SYN is answered with a cookie, for which nothing has to be kept (RFC 4987, section 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cookies {
    /// Never: what there is no room for is dropped.
    Never,
    /// When there is no room to keep it.
    #[default]
    UnderFlood,
    /// Always. For tests.
    Always,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 1 << 17,
            half_open_max: 8192,
            time_wait_max: 1 << 16,
            time_wait_ns: 60 * SECOND,
            is_time_wait_silent: false,
            syn_ack_retries: 5,
            cookies: Cookies::UnderFlood,
            fast_open_peers_max: PEERS_MAX,
            resets_per_s: 1000,
            ports: (32768, 60999),
            isn: None,
            timestamp_offset: None,
        }
    }
}

/// What is set for a connection, or for those that a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// On whose account it goes, in the tables that all share: of those that are half open, and of
    /// those in TIME-WAIT, nobody has more than are left for others.
    pub account: u32,
    /// The window that the peer gets, at first: bytes received and not released.
    pub receive_buffer_bytes: u32,
    /// The same when the app takes so much in a round trip that it is worth it. Not more than at
    /// first if this is less.
    pub receive_buffer_bytes_max: u32,
    /// What is done as other stacks do it. For scripts that compare.
    pub variants: Variants,
    /// Extents that wait to be acknowledged, at most.
    pub send_extents_max: u32,
    /// Small segments are sent even while others are not acknowledged: no Nagle algorithm.
    pub no_delay: bool,
    /// Only full segments are sent.
    pub cork: bool,
    /// Window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// The same by the packet (RFC 9768), with `ecn`: who connects asks for it, who listens gives
    /// it to who asks.
    pub accurate_ecn: bool,
    /// When the option that counts bytes is sent with it.
    pub ecn_option: EcnOption,
    /// Data with a SYN (RFC 7413).
    pub fast_open: FastOpen,
    /// The largest segment, if it is to be less than what the path takes.
    pub segment_bytes_max: Option<u16>,
    /// What the IP headers of its packets say: IP_TTL and IP_TOS, IPV6_UNICAST_HOPS and
    /// IPV6_TCLASS.
    pub ip: IpFields,
    /// How long an acknowledgement may wait: RFC 9293, section 3.8.6.3, allows less than half a
    /// second.
    pub ack_delay_ns: u64,
    /// As many segments at the beginning are acknowledged at once, so that the peer's window grows.
    pub quick_acks: u8,
    /// The retransmission timeout before anything is measured: RFC 6298, rule 2.1. Of SYNs, too.
    pub rto_initial_ns: u64,
    /// How much longer than a round trip the retransmission timeout is, at least. RFC 6298, rule
    /// 2.4, has a second for all of it; what is in use has less, or the last segment of a request
    /// that is lost would cost a second everywhere. It has to be longer than peers delay
    /// acknowledgements.
    pub rto_min_ns: u64,
    /// RFC 6298, rule 2.5: the longest timeout.
    pub rto_max_ns: u64,
    /// How often a SYN is sent again.
    pub syn_retries: u8,
    /// How long an attempt to connect may take, however often its SYN is sent again.
    pub opening_ms: Option<NonZeroU32>,
    /// Retransmissions of the same data until the connection is given up (R2 of RFC 9293, 3.8.3).
    pub retries: u8,
    /// How long data may go unacknowledged until the connection is given up (RFC 5482).
    pub user_timeout_ns: Option<u64>,
    /// Probes of a connection that is idle.
    pub keep_alive: Option<KeepAlive>,
    /// How long a connection that its app has closed waits in FIN-WAIT-2 for the peer to close it,
    /// too.
    pub fin_wait_ns: u64,
    /// How often a listener sends a SYN-ACK again before it takes an acknowledgement without data
    /// for the end of the handshake. With 0 the first one is.
    pub defer_accept: u8,
    /// Segments that are sent before anything is acknowledged: RFC 6928.
    pub initial_window: u32,
    /// The end of what is sent is probed for when no acknowledgement comes (RFC 8985, section 7).
    pub tail_loss_probes: bool,
    /// A window is spread over its round trip. The delay-based control needs it.
    pub pacing: bool,
    /// What becomes of a congestion window that is not used.
    pub unused_window: UnusedWindow,
    /// Which congestion control.
    pub congestion: Congestion,
}

/// TCP Fast Open (RFC 7413), which is off unless it is asked for: data of a SYN comes to the app
/// twice if the SYN does, so an app has to bear that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastOpen {
    /// To connect: the SYN asks for a cookie, or has the one that is known; then it has data, too,
    /// as much as is given to be sent before it leaves.
    pub connects: bool,
    /// To listen: connections that may be open to the app before their handshake is over. None if
    /// it is 0; never more than the backlog.
    pub pending_max: u16,
    /// Cookies are neither asked for nor wanted from others. Anybody can then have a listener send
    /// to whom he likes (RFC 7413, section 5.2), so it is for networks where addresses are true.
    pub without_cookies: bool,
}

/// When the option of accurate congestion feedback is sent (RFC 9768, section 3.2.3), to peers of
/// which it is known that they have it. It is read in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EcnOption {
    /// Never.
    #[default]
    Never,
    /// When something has changed, and three times in a round trip.
    WhenChanged,
    /// With each segment, until it seems that it does not arrive.
    Always,
    /// With each segment.
    DespiteLoss,
}

/// What can be set of the IP header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpFields {
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Type of service, or traffic class: DSCP and two bits that are 0, which are of ECN.
    pub traffic_class: u8,
}

impl Default for IpFields {
    fn default() -> Self {
        Self { hop_limit: 64, traffic_class: 0 }
    }
}

/// What becomes of a congestion window that is not used. Without pacing one that is kept leaves as
/// one burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnusedWindow {
    /// It is halved with each retransmission timeout without anything to send (RFC 2861).
    #[default]
    Decays,
    /// It is kept for ever, which RFC 5681, section 4.1, advises against.
    Kept,
    /// It is kept for five minutes, and a loss makes it half of what was used (RFC 7661).
    Validated,
}

/// RFC 9293, section 3.8.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAlive {
    /// How long nothing comes until the first probe.
    pub idle_ns: u64,
    /// Between probes.
    pub interval_ns: u64,
    /// Probes without an answer until the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle_ns: 7200 * SECOND, interval_ns: 75 * SECOND, probes: 9 }
    }
}

impl Settings {
    /// The largest window, by which windows are scaled.
    pub(crate) fn window_bytes_max(&self) -> u32 {
        self.receive_buffer_bytes.max(self.receive_buffer_bytes_max)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            account: 0,
            receive_buffer_bytes: 1 << 17,
            receive_buffer_bytes_max: 6 << 20,
            variants: Variants::default(),
            send_extents_max: 1024,
            no_delay: false,
            cork: false,
            window_scaling: true,
            timestamps: true,
            sack: true,
            ecn: false,
            accurate_ecn: false,
            ecn_option: EcnOption::default(),
            fast_open: FastOpen::default(),
            segment_bytes_max: None,
            ip: IpFields::default(),
            ack_delay_ns: 40 * MILLISECOND,
            quick_acks: 16,
            rto_initial_ns: SECOND,
            rto_min_ns: 200 * MILLISECOND,
            rto_max_ns: 120 * SECOND,
            syn_retries: 6,
            opening_ms: None,
            retries: 15,
            user_timeout_ns: None,
            keep_alive: None,
            fin_wait_ns: 60 * SECOND,
            defer_accept: 0,
            initial_window: 10,
            tail_loss_probes: true,
            pacing: false,
            unused_window: UnusedWindow::Decays,
            congestion: Congestion::Cubic,
        }
    }
}
