//! What an engine says about itself: the data behind `clearway status`.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::frames::VifTexts;

/// Connections of which an engine tells.
pub(crate) const FLOWS_TOLD_MAX: usize = 16_384;
/// Regions of which an engine tells.
pub(crate) const REGIONS_TOLD_MAX: usize = 1024;

clearway_base::counted! {
    /// The state of one engine. With many connections it is gathered over several turns, and so
    /// not of
    /// one moment; counters are of the last.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct Snapshot {
        /// The engine's name in the configuration.
        engine: String,
        /// The idle strategy in use.
        idle: String,
        /// The congestion control of its flows.
        congestion: &'static str,
        /// The core that it runs on now; not known of one that is embedded in its app.
        core: Option<u32>,
        /// Turns so far.
        turns: u64 => Total Turns,
            "all the time while the engine is awake", "nothing: one that sleeps makes none";
        /// Turns that did something.
        turns_busy: u64 => Total Turns,
            "when there is something to do",
            "nothing; where nearly all turns are busy, the engine has no time left: give the NIC \
             more engines";
        /// Channels that are silent and not looked at until their apps ring.
        channels_parked: u64 => Level Channels,
            "when apps are silent", "nothing: parked channels cost their engine nothing";
        /// Apps' channels that it serves.
        channels_open: u64 => Level Channels,
            "when apps attach", "nothing; channels_total in [policy.limits] is the most";
        /// Flows to peers, those that are being opened or closed included.
        flows_open: u64 => Level Flows,
            "when apps connect to other hosts", "nothing: this is traffic";
        /// The queues it owns.
        queues: Vec<QueueSnapshot>,
        /// The attached apps.
        channels: Vec<ChannelSnapshot>,
        /// Listening service ports.
        listeners: Vec<ListenerSnapshot>,
        /// What apps share, in the order of their channels; 1024 at most.
        regions: Vec<RegionSnapshot>,
        /// Regions that there are besides.
        #[serde(skip)]
        regions_omitted: usize,
        /// Virtual interfaces, in the order of their channels.
        vifs: Vec<VifSnapshot>,
        /// Captures, in the order in which they were opened.
        captures: Vec<CaptureSnapshot>,
        /// Connections, local ones included; 16,384 at most.
        flows: Vec<FlowSnapshot>,
        /// Connections that there are besides.
        #[serde(skip)]
        flows_omitted: usize,
        /// Counters by name, in the order of their declaration; drops are counted by reason.
        #[serde(serialize_with = "as_object")]
        counters: Vec<(&'static str, u64)>,
    }
}

clearway_base::counted! {
    /// One NIC queue.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct QueueSnapshot {
        /// The driver.
        driver: String,
        /// The path that frames take, and why none better.
        mode: String,
        /// The Ethernet address.
        mac: String,
        /// Whether frames can leave.
        link_up: bool => Level Links,
            "when the link comes up",
            "where it is down: see the cable, the interface (ip link), or memif's other side";
        /// What it has moved and lost.
        #[serde(flatten)]
        counters: clearway_nic::Counters,
    }
}

clearway_base::counted! {
    /// One attached app.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct ChannelSnapshot {
        /// The channel's id in this engine.
        channel: u32,
        /// The app's name.
        app: String,
        /// The core that it waited on last, as it says; not known of one that never did.
        core: Option<u32>,
        /// Its connections.
        connections: u32 => Level Connections,
            "when the app connects and accepts",
            "nothing; connections_per_channel in [policy.limits] is the most";
        /// Messages it has sent.
        messages_sent: u64 => Total Messages,
            "when the app sends", "nothing: this is traffic";
        /// Messages it has received.
        messages_received: u64 => Total Messages,
            "when messages come for the app", "nothing: this is traffic";
        /// Bytes of its receive pool in use.
        receive_pool_bytes_used: u64 => Level Bytes,
            "while the app does not release messages",
            "release them sooner, or attach with a larger pool";
        /// Messages that wait because its completion ring is full.
        messages_waiting: u64 => Level Messages,
            "while the app does not read",
            "have it read faster, or attach it with more completion entries";
        /// Bytes of the message that has waited longest of those that are larger than its whole
        /// receive pool; 0 if there is none.
        message_too_large_bytes: u64 => Level Bytes,
            "while a peer sends what the pool never holds, and no posted buffer fits it",
            "attach the app with a larger receive pool, or have it post a buffer for the message";
    }
}

clearway_base::counted! {
    /// One region that an app shares.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct RegionSnapshot {
        /// The channel that shares it.
        channel: u32,
        /// Its handle.
        region: u64,
        /// Its name; empty if it has none.
        name: String,
        /// The number of the memory that it is a piece of; 0 is the channel's own.
        memory: u64,
        /// Where it begins in that.
        start: u64,
        /// Its bytes.
        region_bytes: u64 => Level Bytes,
            "when the app shares more in one piece", "nothing: its memory is charged to its user";
        /// Who may do what.
        grants: Vec<String>,
        /// Operations that peers had carried out on it.
        operations_served: u64 => Total Operations,
            "when a peer reads or changes it, or finds it by its name",
            "nothing: this is traffic";
    }
}

/// One listening service port.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerSnapshot {
    /// The channel.
    pub channel: u32,
    /// The service port.
    pub port: u16,
}

clearway_base::counted! {
    /// One connection and its flow.
    #[derive(Clone, Debug, Serialize)]
    pub struct FlowSnapshot {
        /// The channel; 0 if the app has closed the connection, or is gone.
        channel: u32,
        /// The connection, by the app's own number for it.
        connection: u64,
        /// The connection of the same app whose stream it is. Packets, and with them what is in
        /// flight, lost, and was sent to open the flow, are told of that one.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<u64>,
        /// `wire`; `other NIC` if packets leave and come by a lane, over a NIC that other engines
        /// serve; between two apps of this host `local` on one engine, and `lane` from one to
        /// another. `tcp` for a connection of TCP, which has no messages.
        path: &'static str,
        /// The peer's address and service port.
        peer: SocketAddr,
        /// The state: `connecting`, `open`, `closing`.
        state: &'static str,
        /// Smoothed round-trip time in ns.
        rtt_ns: u64 => Level Nanoseconds,
            "when the network or the peer is slow", "compare clearway ping, which waits for no app";
        /// Congestion window in bytes.
        congestion_window_bytes: u64 => Level Bytes,
            "while packets come back in time", "nothing: congestion control sets it";
        /// Largest UDP payload that is sent on its path now, in bytes; 0 if there are no packets.
        packet_bytes: u16,
        /// Whether its packets may be marked by routers: `testing`, `capable`, or why not.
        ecn: &'static str,
        /// Bytes in flight.
        in_flight_bytes: u64 => Level Bytes,
            "with what is sent and not acknowledged yet",
            "nothing; as much as the window: the network is the limit";
        /// Messages sent and acknowledged.
        messages_sent: u64 => Total Messages,
            "when the peer has acknowledged one", "nothing: this is traffic";
        /// Messages delivered to the app.
        messages_received: u64 => Total Messages,
            "when one is given to the app", "nothing: this is traffic";
        /// Messages that the app has sent and the peer has not acknowledged.
        messages_outstanding: u64 => Level Messages,
            "while the network, or the peer's app, takes fewer than the app sends",
            "nothing if it falls again; if held_by_peer is true, have the peer's app read faster";
        /// The peer's app leaves no room for what is to be sent next: it does not release what it
        /// has received.
        held_by_peer: bool,
        /// Packets sent again after a loss.
        packets_lost: u64 => Total Packets,
            "when the network drops or delays packets",
            "see the drops of NICs and switches on the way, and rx_frames_dropped of the peer";
        /// Packets take a detour over another engine of one of the two hosts.
        detour: bool,
        /// Packets that this side sent to open the flow.
        setup_packets: u32 => Total Packets,
            "while the flow is opened",
            "nothing: several are sent so that one comes to the right queue";
        /// How often this side had to send more than its first batch of them.
        setup_retries: u32 => Total Attempts,
            "when the first batch found no way to the right queue",
            "few are normal; many mean loss, or a NIC that spreads badly";
        /// All that is known of a connection of TCP.
        #[serde(skip_serializing_if = "Option::is_none")]
        tcp: Option<Box<clearway_tcp::Info>>,
    }
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
    #[serde(serialize_with = "as_object")]
    pub counters: Vec<(&'static str, u64)>,
    /// Frames that it was not allowed to send, by reason.
    #[serde(serialize_with = "as_object")]
    pub refused: Vec<(&'static str, u64)>,
}

clearway_base::counted! {
    /// One capture.
    #[derive(Clone, Debug, Serialize)]
    pub struct CaptureSnapshot {
        /// Its id in its channel.
        vif: u32,
        /// The channel that owns it.
        channel: u32,
        /// Frames that were shown.
        frames: u64 => Total Frames,
            "with each frame that the capture is about", "nothing: this is traffic";
        /// Frames that there was no room for.
        frames_dropped: u64 => Total Frames,
            "when the program that captures does not keep up",
            "narrow its filter, or write to a faster disk";
    }
}

/// Numbers by name.
fn as_object<S: Serializer>(
    pairs: &[(&'static str, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}
