//! What is saved of a stack, so that another process, or another engine, goes on with its
//! connections.
//!
//! Plain data, with a version, without the layout of anything inside: what both ends have agreed
//! on, where they are, and whose memory the bytes are in. What the peer can be asked again is not
//! in it: what is known of segments that are outstanding (selective acknowledgements are advice,
//! RFC 2018, section 8) and what has been found about loss. After a restore all that is outstanding
//! counts as sent at that moment.
//!
//! [`Stack::restore`](crate::Stack::restore) trusts nothing of it. Times are of the clock of the
//! host.

use core::net::{IpAddr, SocketAddr};

pub use clearway_base::state::Invalid;
pub(crate) use clearway_base::state::ensure;
use clearway_base::{Prefix, SlotId, SlotState, Time};
use serde::{Deserialize, Serialize};

use crate::config::{IpFields, Settings};
use crate::event::End;
use crate::extent::Extent;
use crate::fast_open::{FastOpenKeys, SavedPeer};
use crate::state::State;

/// The version of [`Saved`] that this crate writes and reads.
pub const SAVED_VERSION: u32 = 14;

/// A whole stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// [`SAVED_VERSION`].
    pub version: u32,
    /// What initial sequence numbers, timestamps and cookies are made with.
    pub secret: [u8; 16],
    /// Where its random numbers go on.
    pub seed: u64,
    /// The listeners.
    pub listeners: Vec<SlotState<SavedListener>>,
    /// The connections.
    pub connections: Vec<SlotState<SavedConnection>>,
    /// What strangers have begun to open.
    pub half_open: Vec<SavedHalfOpen>,
    /// What guards its ports.
    pub time_waits: Vec<SavedTimeWait>,
    /// What is known of peers for Fast Open.
    pub peers: Vec<SavedPeer>,
    /// What cookies of Fast Open are made with.
    pub keys: FastOpenKeys,
    /// Connections that an app has, or that wait for it, although their handshake is not over, each
    /// with its listener.
    pub early: Vec<(SlotId, SlotId)>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedListener {
    /// The address, or all.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The MTU of the way to peers.
    pub mtu: u16,
    /// Of what it accepts.
    pub settings: Settings,
    /// Whose connections it takes; everybody's if there are none.
    pub peers: Vec<Prefix>,
    /// How many may wait.
    pub backlog: u32,
    /// Those that wait, the first one first.
    pub accepted: Vec<SlotId>,
    /// Until when cookies may come back.
    pub cookies_until: Time,
    /// What its cookies of Fast Open are made with, if not with the stack's keys.
    pub keys: Option<FastOpenKeys>,
    /// Those that were reset before their handshake was over, each until when it counts.
    pub reset_early: Vec<Time>,
}

/// A connection that a stranger has begun to open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedHalfOpen {
    /// The listener that it came to.
    pub listener: SlotId,
    /// This end and the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// The initial sequence numbers of this end and the peer.
    pub isns: (u32, u32),
    /// The peer's offer: segment size, window scale, clock.
    pub segment_bytes: Option<u16>,
    /// See `segment_bytes`.
    pub window_scale: Option<u8>,
    /// See `segment_bytes`.
    pub timestamp: Option<u32>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Congestion notification: 0 none, 1 classic, 2 to 4 accurate, of a SYN that was not capable,
    /// was, and was marked.
    pub ecn: u8,
    /// When it was last answered, and how often again.
    pub sent: Time,
    /// See `sent`.
    pub retries: u8,
}

/// A half-open connection on its way to another stack of the host, whose listener has gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Orphan {
    /// The connection; its listener is not there any more.
    pub half_open: SavedHalfOpen,
    /// What its peer has been told follows from these.
    pub mtu: u16,
    /// See `mtu`.
    pub settings: Settings,
}

/// Timestamps that are agreed on: RFC 7323.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTimestamps {
    /// What this end's are ahead of the clock.
    pub offset: u32,
    /// TS.Recent, and when it was set.
    pub recent: u32,
    /// See `recent`.
    pub recent_at: Time,
}

/// A connection that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedTimeWait {
    /// This end and the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// SND.NXT and RCV.NXT.
    pub snd_next: u32,
    /// See `snd_next`.
    pub rcv_next: u64,
    /// The window that was offered last, and by how much it is shifted.
    pub rcv_window: u64,
    /// See `rcv_window`.
    pub rcv_scale: u8,
    /// If they were agreed on.
    pub timestamps: Option<SavedTimestamps>,
    /// What its IP headers say.
    pub ip: IpFields,
    /// On whose account it goes.
    pub account: u32,
    /// When it ends.
    pub until: Time,
}

/// A connection. Positions are those of `seq`: 64 bits, the low 32 of which stand in segments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedConnection {
    /// No owner has it yet: it waits at a listener.
    pub is_offered: bool,
    /// No owner has it any more.
    pub is_forgotten: bool,
    /// This end and the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// Its state.
    pub state: State,
    /// Why it is over, and why it may be given up.
    pub end: Option<End>,
    /// See `end`.
    pub soft_error: Option<End>,
    /// What is set.
    pub settings: Settings,
    /// The app has let go of it; a reset is to be sent.
    pub is_closed: bool,
    /// See `is_closed`.
    pub reset_due: bool,
    /// Data goes both ways, though its handshake may not be over (RFC 7413).
    pub is_early: bool,
    /// Data has come with the first SYN, or has gone with it and was taken.
    pub syn_had_data: bool,
    /// What the owner has not been told: the bits of [`crate::Readiness`].
    pub readiness: u8,
    /// What is agreed on.
    pub agreed: SavedAgreement,
    /// The sending half.
    pub snd: SavedSend,
    /// The receiving half.
    pub rcv: SavedReceive,
    /// The smoothed round-trip time and its variation; 0 if nothing was measured.
    pub rtt_ns: (u64, u64),
    /// What congestion control allows.
    pub window_bytes: u64,
    /// Retransmissions of what is outstanding.
    pub retries: u8,
    /// How often its timeout has been doubled since something was acknowledged.
    pub doublings: u8,
    /// When the peer was last heard of.
    pub last_heard: Time,
    /// Since when nothing of what is outstanding has been acknowledged.
    pub stalled_since: Option<Time>,
    /// How many probes of a peer that has nothing to say went unanswered.
    pub keep_alive_probes: u8,
    /// When something is done about it that nothing is acknowledged, or that the window is closed.
    pub retransmit: Option<Time>,
    /// When keep-alive is due, and when FIN-WAIT-2 ends.
    pub keep_alive: Option<Time>,
    /// See `keep_alive`.
    pub fin_wait: Option<Time>,
}

/// How congestion is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedEcn {
    /// Not at all.
    None,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate(SavedCounts),
}

/// What accurate feedback counts (RFC 9768, section 3.2), of what came and as the peer told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCounts {
    /// Packets with a mark.
    pub marks: (u32, u32),
    /// Bytes of packets with ECT(1), CE and ECT(0).
    pub bytes: ([u32; 3], [u32; 3]),
    /// The peer gets nothing that can be marked.
    pub is_mute: bool,
    /// What is known of the peer's option, 0 nothing to 3, and whether this end's does not arrive.
    pub option: (u8, bool),
}

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAgreement {
    /// The MTU of the own interface, and of the path.
    pub mtus: (u16, u16),
    /// The peer's segments, at most.
    pub segment_bytes: u16,
    /// By how much the windows of the peer and of this end are shifted.
    pub scales: Option<(u8, u8)>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Congestion notification.
    pub ecn: SavedEcn,
    /// Timestamps.
    pub timestamps: Option<SavedTimestamps>,
    /// What this end's are ahead of the clock, agreed on or not yet.
    pub timestamp_offset: u32,
}

/// The send sequence space (RFC 9293, section 3.3.1), and the app's extents in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedSend {
    /// Where the stream begins: behind the SYN.
    pub first: u64,
    /// SND.UNA and SND.NXT.
    pub una: u64,
    /// See `una`.
    pub next: u64,
    /// There is a FIN behind the last byte.
    pub fin: bool,
    /// SND.WND, the largest there has been, SND.WL1 and SND.WL2.
    pub window: u64,
    /// See `window`.
    pub window_max: u64,
    /// See `window`.
    pub window_start: u64,
    /// See `window`.
    pub window_ack: u64,
    /// Where the first extent stands, or, if there is none, where the next one will.
    pub start: u64,
    /// What has not been given back, in order.
    pub extents: Vec<Extent>,
}

/// The receive sequence space (RFC 9293, section 3.3.1), and what has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedReceive {
    /// Where the stream begins: behind the SYN.
    pub first: u64,
    /// RCV.NXT, and behind the window.
    pub next: u64,
    /// See `next`.
    pub edge: u64,
    /// The app is done with all before this.
    pub released: u64,
    /// Where the FIN stands, if that is known.
    pub fin: Option<u64>,
    /// The size of the buffer.
    pub buffer_bytes: u32,
    /// Last.ACK.sent of RFC 7323.
    pub acknowledged: u64,
    /// What is in order and has not been taken.
    pub in_order: Vec<Extent>,
    /// What came out of order, and where it stands.
    pub ahead: Vec<(u64, Extent)>,
}

/// Positions are at least one turn of 32 bits above zero, and the largest is never reached.
pub(crate) fn is_position(position: u64) -> bool {
    (1 << 32..1 << 62).contains(&position)
}

/// The length of `extents`, if each is one.
pub(crate) fn length(extents: impl IntoIterator<Item = Extent>) -> Result<u64, Invalid> {
    extents.into_iter().try_fold(0_u64, |sum, extent| {
        let is_one = extent.length > 0 && extent.offset.checked_add(extent.length).is_some();
        ensure(is_one, "an extent of nothing, or beyond its region")?;
        Ok(sum + u64::from(extent.length))
    })
}
