//! What an engine says of itself for `clearway status`. Anybody may ask, and there may be a hundred
//! thousand flows: so each turn gathers a part.

use clearway_base::Time;
use clearway_nic::Queue;
use clearway_transport::{FlowBooks, FlowInfo, Owner, StreamInfo};

use super::{Core, Engine};
use crate::board::Board;
use crate::catalogue::labels;
use crate::common::Common;
use crate::component::Component;
use crate::control::Event;
use crate::snapshot::{
    FLOWS_TOLD_MAX, FlowSnapshot, ListenerSnapshot, QueueSnapshot, REGIONS_TOLD_MAX,
    RegionSnapshot, Snapshot,
};

/// Places that are looked at in one turn: each may have a flow, or a channel.
const PLACES_PER_TURN: usize = 256;
/// A virtual interface is as much work as so many of them, since its filters become text.
const PLACES_PER_VIF: usize = 16;

/// A snapshot that is being gathered.
#[derive(Debug)]
pub(super) struct Gathering {
    id: u64,
    snapshot: Snapshot,
    next: Next,
}

/// What is looked at next: the place in its table.
#[derive(Clone, Copy, Debug)]
enum Next {
    Channel(usize),
    Region { channel: usize, place: usize },
    Vif(usize),
    Flow(usize),
    Tcp(usize),
    Local { channel: usize, slot: usize },
    Nothing,
}

impl Gathering {
    pub(super) fn new(id: u64) -> Self {
        Self { id, snapshot: Snapshot::default(), next: Next::Channel(0) }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn add_region(&mut self, region: RegionSnapshot) {
        if self.snapshot.regions.len() < REGIONS_TOLD_MAX {
            self.snapshot.regions.push(region);
        } else {
            self.snapshot.regions_omitted += 1;
        }
    }

    fn add_flow(&mut self, flow: FlowSnapshot) {
        if self.snapshot.flows.len() < FLOWS_TOLD_MAX {
            self.snapshot.flows.push(flow);
        } else {
            self.snapshot.flows_omitted += 1;
        }
    }
}

impl<X: Component<Owner = ()>> Engine<X> {
    /// Goes on with the snapshot that was asked for first, and tells it when it is whole.
    pub(super) fn gather(&mut self) -> usize {
        let Some(mut gathering) = self.gatherings.pop_front() else { return 0 };
        let mut left = PLACES_PER_TURN;
        while left > 0 && !matches!(gathering.next, Next::Nothing) {
            left = left.saturating_sub(self.core.gather(&mut gathering));
        }
        if let Next::Nothing = gathering.next {
            let snapshot = Box::new(self.complete(gathering.snapshot));
            self.mailbox.tell(Event::Snapshot { id: gathering.id, snapshot });
        } else {
            self.gatherings.push_front(gathering);
        }
        1
    }

    /// Adds what there is little of, and what changes all the time.
    fn complete(&self, gathered: Snapshot) -> Snapshot {
        let core = &self.core;
        let Common { channels, captures, .. } = &core.common;
        Snapshot {
            engine: core.config.name.clone(),
            idle: core.config.idle.name().to_owned(),
            congestion: core.config.congestion.name(),
            core: core.processor,
            turns: self.turns,
            turns_busy: self.turns_busy,
            channels_parked: channels.parked_count() as u64,
            channels_open: channels.open_count() as u64,
            flows_open: core.messages.endpoint.flows_open() as u64,
            queues: self.queues.iter().map(|queue| snapshot_queue(queue.as_ref())).collect(),
            captures: captures.snapshot(),
            counters: self.counters().collect(),
            ..gathered
        }
    }

    /// Names and values, in the order of the catalogue.
    fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let core = &self.core;
        let Common { channels, lanes, host, counters, .. } = &core.common;
        (core.messages.endpoint.counters().iter())
            .chain(core.tcp.counters().iter())
            .chain(channels.counters.iter())
            .chain(channels.operation_counters.iter())
            .chain(counters.iter())
            .chain(lanes.counters.iter())
            .chain(host.own().drops().iter())
    }

    /// A board that the engine writes to from now on, when it is run by a group.
    pub fn board(&mut self) -> Board {
        let (board, writer) = Board::new(labels(self.queues.len()));
        self.board = Some(writer);
        board
    }

    /// Writes what has been counted to the board, if there is one. A [`crate::Group`] that runs
    /// does that all the time.
    pub fn publish(&self, now: Time) {
        let Some(board) = &self.board else { return };
        let (channels, endpoint) = (&self.core.common.channels, &self.core.messages.endpoint);
        let own = [
            self.turns,
            self.turns_busy,
            channels.parked_count() as u64,
            channels.open_count() as u64,
            endpoint.flows_open() as u64,
        ];
        let of_queues = self.queues.iter().flat_map(|queue| {
            let counters = queue.counters();
            let values = counters.iter().map(|(_, value)| value);
            [u64::from(queue.link_up())].into_iter().chain(values)
        });
        let values = self.counters().map(|(_, value)| value);
        // The board has room for the queues of the start; there may be fewer now.
        let values = own.into_iter().chain(values).chain(of_queues).chain(core::iter::repeat(0));
        board.write(now.as_ns(), values);
    }
}

impl<X: Component<Owner = ()>> Engine<X> {
    /// What every flow over the wire says of its positions and credit, with the app's own number
    /// for the connection: for whoever checks them.
    pub fn flow_books(&self) -> impl Iterator<Item = (u64, FlowBooks)> + '_ {
        let channels = &self.core.common.channels;
        self.core.messages.endpoint.books().map(|books| {
            let channel = channels.peek(books.owner.channel).filter(|_| books.is_open);
            (channel.map_or(0, |channel| channel.id(books.owner.connection)), books)
        })
    }
}

impl<X> Core<X> {
    /// Looks at the next place. Returns how many it counts for.
    fn gather(&self, gathering: &mut Gathering) -> usize {
        let mut places = 1;
        gathering.next = match gathering.next {
            Next::Channel(index) if index < self.common.channels.places() => {
                self.gather_channel(&mut gathering.snapshot, index as u32);
                Next::Channel(index + 1)
            }
            Next::Channel(_) => Next::Region { channel: 0, place: 0 },
            Next::Region { channel, place } if channel < self.common.channels.places() => {
                let regions = self.common.channels.peek(channel as u32);
                let regions = regions.map(|served| &served.operations.regions);
                match regions.filter(|regions| place < regions.places()) {
                    Some(regions) => {
                        let region = regions.snapshot(channel as u32, place);
                        region.into_iter().for_each(|region| gathering.add_region(region));
                        Next::Region { channel, place: place + 1 }
                    }
                    None => Next::Region { channel: channel + 1, place: 0 },
                }
            }
            Next::Region { .. } => Next::Vif(0),
            Next::Vif(index) if index < self.frames.places() => {
                if let Some(vif) = self.frames.snapshot(index) {
                    gathering.snapshot.vifs.push(vif);
                    places = PLACES_PER_VIF;
                }
                Next::Vif(index + 1)
            }
            Next::Vif(_) => Next::Flow(0),
            Next::Flow(index) if index < self.messages.endpoint.places() => {
                if let Some(info) = self.messages.endpoint.flow_at(index) {
                    let flow = self.flow(&info);
                    for stream in self.messages.endpoint.streams_at(index) {
                        gathering.add_flow(self.stream(&flow, &stream));
                        places += 1;
                    }
                    gathering.add_flow(flow);
                }
                Next::Flow(index + 1)
            }
            Next::Flow(_) => Next::Tcp(0),
            Next::Tcp(index) if index < self.tcp.places() => {
                self.tcp.flow_at(index).into_iter().for_each(|flow| gathering.add_flow(flow));
                Next::Tcp(index + 1)
            }
            Next::Tcp(_) => Next::Local { channel: 0, slot: 0 },
            Next::Local { channel, slot } if channel < self.common.channels.places() => {
                match self
                    .common
                    .channels
                    .peek(channel as u32)
                    .filter(|served| slot < served.places())
                {
                    Some(served) => {
                        let flow = served.local_flow(channel as u32, slot as u32);
                        flow.into_iter().for_each(|flow| gathering.add_flow(flow));
                        Next::Local { channel, slot: slot + 1 }
                    }
                    None => Next::Local { channel: channel + 1, slot: 0 },
                }
            }
            Next::Local { .. } | Next::Nothing => Next::Nothing,
        };
        places
    }

    fn gather_channel(&self, snapshot: &mut Snapshot, channel: u32) {
        let Some(served) = self.common.channels.peek(channel) else { return };
        snapshot.channels.push(served.snapshot(channel));
        let ports = served.ports.keys();
        snapshot.listeners.extend(ports.map(|(_, port)| ListenerSnapshot { channel, port: *port }));
    }

    fn flow(&self, info: &FlowInfo) -> FlowSnapshot {
        let channel = info.has_app.then_some(info.owner.channel);
        let served = channel.and_then(|channel| self.common.channels.peek(channel));
        let peer = served.and_then(|channel| channel.peer(info.owner.connection));
        FlowSnapshot {
            channel: channel.unwrap_or(0),
            connection: served.map_or(0, |channel| channel.id(info.owner.connection)),
            parent: None,
            path: path_of(&self.common, info),
            peer: peer.unwrap_or(info.remote),
            state: info.state,
            rtt_ns: info.rtt_ns,
            congestion_window_bytes: info.congestion_window_bytes,
            packet_bytes: info.packet_bytes,
            ecn: info.ecn,
            in_flight_bytes: info.in_flight_bytes,
            messages_sent: info.messages_sent,
            messages_received: info.messages_received,
            messages_outstanding: served
                .map_or(0, |channel| channel.messages_outstanding(info.owner.connection)),
            held_by_peer: info.held_by_peer,
            packets_lost: info.packets_lost,
            detour: info.detour,
            setup_packets: info.setup_packets,
            setup_retries: info.setup_retries,
            tcp: None,
        }
    }

    /// A stream of `flow`, by whose packets it travels.
    fn stream(&self, flow: &FlowSnapshot, info: &StreamInfo) -> FlowSnapshot {
        let Owner { channel, connection } = info.owner;
        let served = self.common.channels.peek(channel);
        FlowSnapshot {
            channel,
            connection: served.map_or(0, |channel| channel.id(connection)),
            parent: Some(flow.connection).filter(|parent| *parent != 0), // 0: a flow of nobody
            peer: served.and_then(|channel| channel.peer(connection)).unwrap_or(flow.peer),
            state: info.state,
            in_flight_bytes: 0,
            messages_sent: info.messages_sent,
            messages_received: info.messages_received,
            messages_outstanding: served
                .map_or(0, |channel| channel.messages_outstanding(connection)),
            held_by_peer: info.held_by_peer,
            packets_lost: 0,
            setup_packets: 0,
            setup_retries: 0,
            ..flow.clone()
        }
    }
}

/// How the packets of a flow travel.
fn path_of(common: &Common, flow: &FlowInfo) -> &'static str {
    if common.host.is_here(flow.remote.ip()) {
        "lane"
    } else if common.host.other_with(flow.local.ip()).is_some() {
        "other NIC"
    } else {
        "wire"
    }
}

fn snapshot_queue(queue: &dyn Queue) -> QueueSnapshot {
    let info = queue.info();
    let mac: Vec<String> = info.mac.iter().map(|octet| format!("{octet:02x}")).collect();
    QueueSnapshot {
        driver: info.driver.to_owned(),
        mode: info.mode,
        mac: mac.join(":"),
        link_up: queue.link_up(),
        counters: queue.counters(),
    }
}
