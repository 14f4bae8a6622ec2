//! What an engine says of itself for `clearway status`.

use clearway_nic::Queue;
use clearway_transport::{FlowBooks, FlowInfo};

use super::{Core, Engine};
use crate::channels::Channel;
use crate::snapshot::{FlowSnapshot, ListenerSnapshot, QueueSnapshot, Snapshot};

impl Engine {
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let core = &self.core;
        let counters = (core.endpoint.counters().iter())
            .chain(core.channels.counters.iter())
            .chain(core.counters.iter())
            .chain(core.lanes.counters.iter())
            .chain(core.interface.drops().iter());
        Snapshot {
            engine: core.config.name.clone(),
            idle: core.config.idle.name().to_owned(),
            congestion: core.config.congestion.name(),
            turns: self.turns,
            turns_busy: self.turns_busy,
            channels_parked: core.channels.parked_count() as u64,
            queues: self.queues.iter().map(|queue| snapshot_queue(queue.as_ref())).collect(),
            channels: core.channels.iter().map(|(id, channel)| channel.snapshot(id)).collect(),
            listeners: core.listeners(),
            vifs: core.switch.snapshot(),
            captures: core.switch.snapshot_captures(),
            counters: counters.collect(),
            flows: self.core.flows(),
        }
    }
}

impl Engine {
    /// What every flow over the wire says of its positions and credit, with the app's own number for the
    /// connection: for whoever checks them.
    pub fn flow_books(&self) -> impl Iterator<Item = (u64, FlowBooks)> + '_ {
        let channels = &self.core.channels;
        self.core.endpoint.books().map(|books| {
            let channel = channels.peek(books.owner.channel).filter(|_| books.is_open);
            (channel.map_or(0, |channel| channel.id(books.owner.connection)), books)
        })
    }
}

impl Core {
    fn listeners(&self) -> Vec<ListenerSnapshot> {
        let ports = |(channel, served): (u32, &Channel)| {
            let ports: Vec<u16> = served.ports.iter().map(|(port, _, _)| *port).collect();
            ports.into_iter().map(move |port| ListenerSnapshot { channel, port })
        };
        self.channels.iter().flat_map(ports).collect()
    }

    fn flows(&mut self) -> Vec<FlowSnapshot> {
        let wire: Vec<_> = self.endpoint.flows().collect();
        let wire = wire.into_iter().map(|info| {
            let channel = self.channels.peek(info.owner.channel);
            let peer = channel.and_then(|channel| channel.peer(info.owner.connection));
            FlowSnapshot {
                channel: info.owner.channel,
                connection: channel.map_or(0, |channel| channel.id(info.owner.connection)),
                path: self.path_of(&info),
                peer: peer.unwrap_or(info.remote),
                state: info.state,
                rtt_ns: info.rtt_ns,
                congestion_window_bytes: info.congestion_window_bytes,
                packet_bytes: info.packet_bytes,
                ecn: info.ecn,
                in_flight_bytes: info.in_flight_bytes,
                messages_sent: info.messages_sent,
                messages_received: info.messages_received,
                packets_lost: info.packets_lost,
                detour: info.detour,
                setup_packets: info.setup_packets,
                setup_retries: info.setup_retries,
            }
        });
        let mut flows: Vec<FlowSnapshot> = wire.collect();
        for (channel, served) in self.channels.iter() {
            flows.extend(served.local_flows(channel));
        }
        flows
    }

    /// How the packets of a flow travel.
    fn path_of(&self, flow: &FlowInfo) -> &'static str {
        if self.is_here(flow.remote.ip()) {
            "lane"
        } else if self.elsewhere_of(flow.local.ip()).is_some() {
            "other NIC"
        } else {
            "wire"
        }
    }
}

fn snapshot_queue(queue: &dyn Queue) -> QueueSnapshot {
    let (info, counters) = (queue.info(), queue.counters());
    let mac: Vec<String> = info.mac.iter().map(|octet| format!("{octet:02x}")).collect();
    QueueSnapshot {
        driver: info.driver.to_owned(),
        mode: info.mode,
        mac: mac.join(":"),
        link_up: queue.link_up(),
        rx_frames: counters.rx_frames,
        rx_bytes: counters.rx_bytes,
        rx_frames_dropped: counters.rx_frames_dropped,
        tx_frames: counters.tx_frames,
        tx_bytes: counters.tx_bytes,
        tx_frames_dropped: counters.tx_frames_dropped,
    }
}
