//! What is saved of an endpoint and its flows, so that another process goes on with them.
//!
//! Plain data, without the layout of anything inside: what both ends of a flow have agreed on,
//! where they are, what is on its way, and whose memory the bytes are in. What can be found out
//! again is not in it: how fast congestion control was growing (it goes on with its window), what
//! larger packets the path may carry, which timers are set and who stands in line to send.
//!
//! [`crate::Endpoint::restore`] trusts nothing of it.

use core::ops::Range;
use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use serde::{Deserialize, Serialize};

use crate::app::{Buffer, Deadline, Order, Owner};
use crate::flow::Priority;

/// All flows of an engine, and what it remembers of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointState {
    /// What flow ids, tokens and cookies are made with: key, seed, and how many were made.
    pub secret: [u8; 16],
    /// See `secret`.
    pub seed: u64,
    /// See `secret`.
    pub secrets_made: u64,
    /// The flows, by their slots.
    pub flows: Vec<FlowState>,
    /// Ids of flows that have ended in good order, the oldest first.
    pub closed: Vec<u64>,
    /// Who listens on which service port.
    pub listeners: Vec<(u16, Owner)>,
    /// Service ports that another engine of the host listens on.
    pub elsewhere: Vec<u16>,
    /// Packets that belong to no flow, ready to be sent: answers, and the last words of flows that
    /// were aborted.
    pub replies: Vec<ReplyState>,
    /// See `replies`.
    pub farewells: Vec<ReplyState>,
    /// Pings that wait for an answer: id, token, and when each was sent.
    pub pings: Vec<(u64, u64, Time)>,
    /// Hosts that have answered a syn, the oldest first: their engines, and the round-trip time.
    pub peers: Vec<(IpAddr, u8, u64)>,
    /// When the engine last looked at its packets, and when it came back from being away.
    pub turn: (Time, Time),
    /// What was counted.
    pub counters: Vec<(String, u64)>,
}

/// A packet that belongs to no flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyState {
    /// From here to there.
    pub local: SocketAddr,
    /// See `local`.
    pub peer: SocketAddr,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowState {
    /// The ids that packets to us, and to the peer, carry; the latter is 0 while connecting.
    pub local_id: u64,
    /// See `local_id`.
    pub peer_id: u64,
    /// The messages of its connection.
    pub main: StreamState,
    /// This end and the peer's daemon.
    pub local: SocketAddr,
    /// See `local`.
    pub remote: SocketAddr,
    /// The service port at the peer, if it was begun here.
    pub service_port: u16,
    /// Where it is in its life.
    pub phase: Phase,
    /// The syn that opened it, if it is the peer's.
    pub request: Option<RequestState>,
    /// Both ends know one-sided operations.
    pub takes_operations: bool,
    /// It is nobody's: its connections are streams.
    pub is_shared: bool,
    /// Both ends know streams: these are the others.
    pub streams: Option<StreamsState>,
    /// What the next packets are to carry.
    pub due: DueState,
    /// When the peer was last heard, and when keep-alive is due.
    pub last_received: Time,
    /// See `last_received`.
    pub keep_alive_at: Time,
    /// The silence of its peer after which it is given up, in milliseconds.
    pub silence_ms: u32,
    /// What has been received and is to be acknowledged.
    pub acks: AcksState,
    /// Packets in flight.
    pub recovery: RecoveryState,
    /// Round-trip times.
    pub rtt: RttState,
    /// Congestion notification.
    pub ecn: EcnState,
    /// How large packets are, and what both hosts take.
    pub packet_bytes: (u16, u16),
    /// The congestion window.
    pub window_bytes: u64,
    /// Packets with numbers below this were sent when the window, not the app, set the pace.
    pub limited_until: u64,
    /// Bytes sent since an acknowledgement was last asked for, and since when none has come.
    pub unasked_bytes: u64,
    /// See `unasked_bytes`.
    pub asked: Time,
    /// How the peer's packets come, and where the own ones are sent from.
    pub arrivals: ArrivalsState,
    /// See `arrivals`.
    pub ports: PortsState,
    /// For `status`: packets lost, packets of the set-up and its retries.
    pub packets_lost: u64,
    /// See `packets_lost`.
    pub setup_packets: u32,
    /// See `packets_lost`.
    pub setup_retries: u32,
}

/// The messages of one connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamState {
    /// The connection.
    pub owner: Owner,
    /// The next packet is to carry a limit frame, or the close frame.
    pub limit_due: bool,
    /// See `limit_due`.
    pub close_due: bool,
    /// The close frame has been acknowledged.
    pub close_acknowledged: bool,
    /// The peer ends after this many messages.
    pub peer_close: Option<u32>,
    /// Messages on their way in, and out.
    pub incoming: IncomingState,
    /// See `incoming`.
    pub outgoing: OutgoingState,
    /// For `status`: messages sent.
    pub messages_sent: u64,
}

/// The streams of a flow besides its own connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamsState {
    /// Those that have not ended.
    pub sides: Vec<SideState>,
    /// This side has opened the flow.
    pub is_client: bool,
    /// How many streams were opened here.
    pub opened: u32,
    /// Which of the peer's were.
    pub seen: Vec<Range<u64>>,
    /// What the flow's own connection may send beside them.
    pub priority: Priority,
}

/// This end of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideState {
    /// Its number.
    pub id: u32,
    /// Its messages.
    pub stream: StreamState,
    /// Where it is in its life.
    pub stage: StreamStage,
    /// An open frame is to be sent.
    pub open_due: bool,
    /// The peer is known to have seen one.
    pub is_known: bool,
    /// Its app waits to hear that the peer has accepted it.
    pub awaits: bool,
    /// What it may send beside the others.
    pub priority: Priority,
}

/// Where a stream is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamStage {
    /// Messages go both ways.
    Open,
    /// This side's app has closed.
    Closing,
    /// It has ended here, for the reason of this code.
    Aborted(u16),
}

/// Where a flow is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// A syn has been, or is to be, sent.
    Connecting {
        /// The syn's token, and the cookie that came back.
        token: u64,
        /// See `token`.
        cookie: Vec<u8>,
        /// Engines of the peer.
        peer_engines: u8,
        /// When the first and the last syn left.
        sent: Option<Time>,
        /// See `sent`.
        sent_last: Time,
        /// What the challenge says of the round-trip time.
        known_rtt_ns: u64,
        /// When the attempt is given up.
        give_up: Time,
    },
    /// Messages go both ways.
    Open,
    /// This side's app has closed.
    Closing,
    /// Both have; only acknowledgements are sent, until then.
    Drained {
        /// See `Drained`.
        until: Time,
    },
}

/// The syn of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestState {
    /// Its token.
    pub token: u64,
    /// The UDP port that it came from.
    pub port: u16,
    /// How long the client took to send the cookie back.
    pub rtt_ns: u64,
    /// It came by a lane.
    pub by_lane: bool,
    /// The version of the protocol that was agreed on.
    pub version: u8,
}

/// What the next packets of a flow are to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueState {
    /// The close frame, when all operations have been sent.
    pub close_waits: bool,
    /// Something that has to be acknowledged, whatever the window says.
    pub probe: bool,
}

/// Packets that have been received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcksState {
    /// Their numbers.
    pub received: Vec<Range<u64>>,
    /// Numbers below count as received.
    pub floor: u64,
    /// When the highest came.
    pub largest_at: Time,
    /// Those that are not acknowledged yet.
    pub unacknowledged_packets: u32,
    /// See `unacknowledged_packets`.
    pub unacknowledged_bytes: u32,
    /// When they are to be.
    pub due: Time,
}

/// The receiving half.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncomingState {
    /// Sequence number of the next message to deliver, not wrapped.
    pub next: u64,
    /// Messages that are not complete, or not next, by sequence number.
    pub partial: Vec<PartialState>,
    /// Positions received, and those of messages that the app has released.
    pub received: u64,
    /// See `received`.
    pub released: u64,
    /// Positions that the sender may use beyond those released, and the limit it was told last.
    pub window: u64,
    /// See `window`.
    pub announced: u64,
    /// A message was refused for want of memory since then.
    pub starved: bool,
    /// What is known of messages whose turn has not come.
    pub ahead: Option<AheadState>,
}

/// Messages that are passed over when their turn comes, by sequence number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AheadState {
    /// Messages are delivered as they become whole.
    pub is_unordered: bool,
    /// Those that the app has, or has heard of.
    pub delivered: Vec<Range<u64>>,
    /// Those that their sender has dropped, of which the app is to hear in their turn.
    pub skipped: Vec<Range<u64>>,
}

/// A message of which not all has come, or whose turn has not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartialState {
    /// Its sequence number, not wrapped.
    pub sequence: u64,
    /// Where in the app's memory it goes.
    pub buffer: Buffer,
    /// Whether it came before its turn.
    pub order: Order,
    /// It is a one-sided operation.
    pub is_operation: bool,
    /// The bytes that are there.
    pub received: Vec<Range<u64>>,
}

/// The sending half.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutgoingState {
    /// Sequence number of the first message.
    pub first_sequence: u32,
    /// Where it begins; where the next one will, if there is none.
    pub start: u64,
    /// Messages that have not arrived: offset in the transmit pool, and length. One-sided
    /// operations have their names there instead, and above those bits that tell.
    pub messages: Vec<(u32, u32)>,
    /// The first position never sent, and the first that has not arrived.
    pub next: u64,
    /// See `next`.
    pub acknowledged: u64,
    /// What has arrived beyond, and what is to be sent again.
    pub acknowledged_above: Vec<Range<u64>>,
    /// See `acknowledged_above`.
    pub lost: Vec<Range<u64>>,
    /// Positions from here on may not be used yet.
    pub limit: u64,
    /// Messages with deadlines: where each begins, and whether it was dropped.
    pub deadlines: Vec<(u64, Deadline, bool)>,
}

/// Packets in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryState {
    /// Those that ask for an acknowledgement and have none, by number.
    pub packets: Vec<PacketState>,
    /// The number of the next one.
    pub next_number: u64,
    /// One more than the largest number that was acknowledged; 0 if none was.
    pub acked_end: u64,
    /// Probe timeouts since the last acknowledgement, and probes that the peer has called for.
    pub probes: u32,
    /// See `probes`.
    pub expedited: u32,
    /// The numbers of probes: of all that have no answer, and of some others.
    pub probe_numbers: Vec<u64>,
    /// When a packet that was overtaken counts as lost.
    pub loss_time: Time,
    /// When the last packet was sent that asks for an acknowledgement.
    pub last_eliciting: Time,
    /// When the first of those was sent that nothing was heard after.
    pub waiting_since: Time,
    /// The number of the last one that does not, and when it was sent.
    pub last_silent: (u64, Time),
    /// By how many packets, and eighths of a round trip, others may overtake one.
    pub patience: (u64, u64),
}

/// A packet in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketState {
    /// Its number.
    pub number: u64,
    /// When it was sent.
    pub sent: Time,
    /// Its size.
    pub bytes: u32,
    /// The stream that all else is of.
    pub stream: u32,
    /// The positions that it carried.
    pub range: Range<u64>,
    /// It carried an open frame.
    pub open: bool,
    /// It carried a limit frame.
    pub limit: bool,
    /// It carried the close frame.
    pub close: bool,
    /// It carried the close frame of a stream that was aborted.
    pub abort: bool,
    /// It carried a path frame.
    pub path: bool,
    /// It carried nothing but its own size.
    pub is_size_probe: bool,
    /// One between this and the packet before is acknowledged.
    pub follows_acknowledged: bool,
}

/// Round-trip times, RFC 9002, section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RttState {
    /// The newest sample, and what of it the network took.
    pub latest_ns: u64,
    /// See `latest_ns`.
    pub network_ns: u64,
    /// The least.
    pub min_ns: u64,
    /// The smoothed one and its variation.
    pub smoothed_ns: u64,
    /// See `smoothed_ns`.
    pub variation_ns: u64,
    /// When the first was measured.
    pub sampled: Time,
}

/// Congestion notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EcnState {
    /// What is known of the path.
    pub path: EcnPath,
    /// The peer's count of marks as last heard, and our own.
    pub reported: u16,
    /// See `reported`.
    pub marked: u16,
    /// The newest packet came as capable of being marked.
    pub is_capable: bool,
}

/// What a path does to the bits of congestion notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EcnPath {
    /// So many packets were acknowledged so far, and so many marks reported.
    Testing(u32, u32),
    /// Leaves them alone.
    Capable,
    /// Clears them.
    Clears,
    /// Marks all packets.
    MarksAll,
    /// Drops packets that have them.
    Drops,
}

/// How the peer's packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalsState {
    /// By another engine.
    pub is_detour: bool,
    /// The newest path that was found, its port and round; and whether it is to be told.
    pub found: Option<(u16, u16)>,
    /// See `found`.
    pub path_due: bool,
    /// The port that strays, to be told; when the next one may be, and how long after that.
    pub stray_due: Option<u16>,
    /// See `stray_due`.
    pub stray_at: Time,
    /// See `stray_due`.
    pub stray_ns: u64,
}

/// Where a flow's packets are sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsState {
    /// The port, and whether its packets come straight to the peer's engine.
    pub current: u16,
    /// See `current`.
    pub is_direct: bool,
    /// Engines of the peer.
    pub peer_engines: u8,
    /// The search: its round, whether it has been answered, and whether the peer asked for it.
    pub round: u16,
    /// See `round`.
    pub is_answered: bool,
    /// See `round`.
    pub is_wanted: bool,
    /// What random ports are made of.
    pub random: u64,
    /// When the last search began, before when there is no next one, and how long one waits after a
    /// search that came to nothing.
    pub searched: Time,
    /// See `searched`.
    pub rest_until: Time,
    /// See `searched`.
    pub rest_fruitless_ns: u64,
    /// The search that goes on.
    pub spray: Option<SprayState>,
}

/// A search for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SprayState {
    /// What random ports are made of.
    pub random: u64,
    /// The next port.
    pub port: u16,
    /// A port that has worked once.
    pub pinned: Option<u16>,
    /// Packets of a wave, those still to be sent, and the most of a wave.
    pub wave: u32,
    /// See `wave`.
    pub left: u32,
    /// See `wave`.
    pub wave_max: u32,
    /// Waves begun, waves before they grow, waves in all, and waves before it is desperate.
    pub waves: u32,
    /// See `waves`.
    pub steady_waves: u32,
    /// See `waves`.
    pub waves_max: u32,
    /// See `waves`.
    pub hopeful_waves: u32,
    /// Between two waves, at first and at most.
    pub interval_ns: u64,
    /// See `interval_ns`.
    pub interval_max_ns: u64,
    /// When the next wave begins, and when this one did.
    pub next_at: Time,
    /// See `next_at`.
    pub began: Time,
}

/// Durations are not longer than that, some days, so that sums and small multiples do not overflow.
pub(crate) const DURATION_NS_MAX: u64 = 1 << 50;
/// Positions and numbers of packets stay below this, so that sums of two do not overflow.
pub(crate) const POSITIONS_MAX: u64 = 1 << 62;
