//! What status tells of a channel.

use super::Channel;
use crate::channels::Bearer;
use crate::snapshot::{ChannelSnapshot, FlowSnapshot};

impl Channel {
    /// The connection in a slot, if it is one to an app of this host.
    pub(crate) fn local_flow(&self, channel: u32, slot: u32) -> Option<FlowSnapshot> {
        let connection = self.connections.peek(slot)?;
        let Bearer::Local(local) = &connection.bearer else { return None };
        Some(FlowSnapshot {
            channel,
            connection: self.id(slot),
            parent: local.parent.map(|parent| self.id(parent)),
            path: "local",
            peer: connection.peer,
            state: if local.closing { "closing" } else { "open" },
            rtt_ns: 0,
            congestion_window_bytes: 0,
            packet_bytes: 0,
            ecn: "",
            in_flight_bytes: 0,
            messages_sent: connection.sent,
            messages_received: connection.received,
            messages_outstanding: u64::from(connection.outstanding()),
            held_by_peer: !local.waiting.is_empty(),
            packets_lost: 0,
            detour: false,
            setup_packets: 0,
            setup_retries: 0,
            tcp: None,
        })
    }

    /// Messages of a connection that its app has sent and that are not finished.
    pub(crate) fn messages_outstanding(&self, slot: u32) -> u64 {
        self.connections.peek(slot).map_or(0, |connection| connection.outstanding().into())
    }

    pub(crate) fn snapshot(&self, channel: u32) -> ChannelSnapshot {
        ChannelSnapshot {
            channel,
            app: self.app.clone(),
            core: self.end.app_processor(),
            connections: self.connections.count(),
            messages_sent: self.messages_sent,
            messages_received: self.messages_received,
            receive_pool_bytes_used: u64::from(self.end.counters().receive_pool_used_bytes),
            messages_waiting: self.pending.len() as u64,
            message_too_large_bytes: self.line.first_too_large().map_or(0, |it| it.length.into()),
        }
    }
}
