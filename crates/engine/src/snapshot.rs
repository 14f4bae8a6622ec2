//! What an engine says about itself: the data behind `clearway status`.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::frames::VifTexts;

/// Connections of which an engine tells.
pub(crate) const FLOWS_TOLD_MAX: usize = 16_384;

/// The state of one engine. With many connections it is gathered over several turns, and so not of
/// one moment; counters are of the last.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The engine's name in the configuration.
    pub engine: String,
    /// The idle strategy in use.
    pub idle: String,
    /// The congestion control of its flows.
    pub congestion: &'static str,
    /// Turns so far, and those that did something.
    pub turns: u64,
    /// Turns that did something.
    pub turns_busy: u64,
    /// Channels that are silent and not looked at until their apps ring.
    pub channels_parked: u64,
    /// The queues it owns.
    pub queues: Vec<QueueSnapshot>,
    /// The attached apps.
    pub channels: Vec<ChannelSnapshot>,
    /// Listening service ports.
    pub listeners: Vec<ListenerSnapshot>,
    /// Virtual interfaces, in the order of their channels.
    pub vifs: Vec<VifSnapshot>,
    /// Captures, in the order in which they were opened.
    pub captures: Vec<CaptureSnapshot>,
    /// Connections, local ones included; 16,384 at most.
    pub flows: Vec<FlowSnapshot>,
    /// Connections that there are besides.
    #[serde(skip)]
    pub flows_omitted: usize,
    /// Counters by name, in the order of their declaration; drops are counted by reason.
    pub counters: Vec<(&'static str, u64)>,
}

/// One NIC queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueSnapshot {
    /// The driver.
    pub driver: String,
    /// The path that frames take, and why none better.
    pub mode: String,
    /// The Ethernet address.
    pub mac: String,
    /// Whether frames can leave.
    pub link_up: bool,
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames dropped by the driver on receive.
    pub rx_frames_dropped: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames dropped by the driver on transmit.
    pub tx_frames_dropped: u64,
}

/// One attached app.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChannelSnapshot {
    /// The channel's id in this engine.
    pub channel: u32,
    /// The app's name.
    pub app: String,
    /// Its connections.
    pub connections: u32,
    /// Messages it has sent.
    pub messages_sent: u64,
    /// Messages it has received.
    pub messages_received: u64,
    /// Bytes of its receive pool in use.
    pub receive_pool_bytes_used: u64,
    /// Messages that wait because its completion ring is full.
    pub messages_waiting: u64,
}

/// One listening service port.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerSnapshot {
    /// The channel.
    pub channel: u32,
    /// The service port.
    pub port: u16,
}

/// One connection and its flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowSnapshot {
    /// The channel.
    pub channel: u32,
    /// The connection, by the app's own number for it.
    pub connection: u64,
    /// `wire`; `other NIC` if packets leave and come by a lane, over a NIC that other engines
    /// serve; between two apps of this host `local` on one engine, and `lane` from one to another.
    pub path: &'static str,
    /// The peer's address and service port.
    pub peer: SocketAddr,
    /// The state: `connecting`, `open`, `closing`.
    pub state: &'static str,
    /// Smoothed round-trip time in ns.
    pub rtt_ns: u64,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Largest UDP payload that is sent on its path now, in bytes; 0 if there are no packets.
    pub packet_bytes: u16,
    /// Whether its packets may be marked by routers: `testing`, `capable`, or why not.
    pub ecn: &'static str,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Messages sent and acknowledged.
    pub messages_sent: u64,
    /// Messages delivered to the app.
    pub messages_received: u64,
    /// Packets sent again after a loss.
    pub packets_lost: u64,
    /// Packets take a detour over another engine of one of the two hosts.
    pub detour: bool,
    /// Packets that this side sent to open the flow.
    pub setup_packets: u32,
    /// How often this side had to send more than its first batch of them.
    pub setup_retries: u32,
}

/// One virtual interface.
#[derive(Clone, Debug, Serialize)]
pub struct VifSnapshot {
    /// Its id in its channel.
    pub vif: u32,
    /// The channel that owns it.
    pub channel: u32,
    /// Its declared priority.
    pub priority: u16,
    /// What it receives, gets copies of, and may send.
    #[serde(flatten)]
    pub texts: Arc<VifTexts>,
    /// Frames and bytes it has moved and lost, by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Frames that it was not allowed to send, by reason.
    pub refused: Vec<(&'static str, u64)>,
}

/// One capture.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureSnapshot {
    /// Its id in its channel.
    pub vif: u32,
    /// The channel that owns it.
    pub channel: u32,
    /// Frames that were shown.
    pub frames: u64,
    /// Frames that there was no room for.
    pub frames_dropped: u64,
}
