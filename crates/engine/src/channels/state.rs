//! Channels as plain data, and back. Which of them are polled, what comes early and what is
//! unfinished follows from the rest.

use std::collections::{BTreeMap, HashSet};

use clearway_base::state::{Invalid, ensure};
use clearway_transport::{Buffer, FlowMemory, Owner};

use super::{AppCounters, Bearer, Channel, Channels, Connection, Held, Site, to_channel};
use crate::operations::OperationCounters;
use crate::state::ChannelState;

/// What lives on of channels, by their ids.
pub(crate) type Ends = BTreeMap<u32, clearway_channel::Remains>;

/// Ids of channels are below that: each costs a place in a table.
const CHANNELS_MAX: u32 = 1 << 20;

impl Channels {
    pub(crate) fn save(&self) -> Vec<ChannelState> {
        self.iter().map(|(id, channel)| channel.save(id)).collect()
    }

    /// By their names, which are of one list.
    pub(crate) fn save_counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.counters.save();
        counters.extend(self.operation_counters.save());
        counters
    }

    pub(crate) fn into_ends(self) -> Ends {
        let channels = (0..).zip(self.channels);
        let ends = channels.filter_map(|(id, channel)| Some((id, channel?.end.into_remains())));
        ends.collect()
    }

    pub(crate) fn restore(
        saved: Vec<ChannelState>,
        mut ends: Ends,
        counters: &[(String, u64)],
    ) -> Result<Self, Invalid> {
        let app_counters = AppCounters::restore(counters);
        let operation_counters = OperationCounters::restore(counters);
        let mut channels = Self { counters: app_counters, operation_counters, ..Self::default() };
        for saved in saved {
            let id = saved.channel;
            ensure(id < CHANNELS_MAX, "a channel of a number that there is not")?;
            let end = ends.remove(&id).ok_or(Invalid("a channel whose memory is not there"))?;
            let channel = Channel::restore(saved, end)?;
            let is_parked = channel.is_parked;
            if channel.operations.has_copies() {
                channels.copying.push(id, ());
            }
            channels.insert(id, channel);
            if is_parked {
                channels.attention.park_last();
            }
        }
        ensure(ends.is_empty(), "memory of a channel that is not there")?;
        Ok(channels)
    }

    /// Holds the channels against the flows, and enters what flows have of the apps' memory: every
    /// connection has its flow and every flow its connection, and no memory is anybody else's, but
    /// what is `claimed` already, by channel.
    pub(crate) fn match_flows(
        &mut self,
        flows: impl Iterator<Item = FlowMemory>,
        mut claimed: BTreeMap<u32, Vec<clearway_channel::Buffer>>,
    ) -> Result<(), Invalid> {
        let mut matched = HashSet::new();
        for flow in flows.filter(|flow| !flow.is_drained) {
            self.match_flow(&flow)?;
            matched.insert(flow.owner);
            let is_of_pool = |buffer: &Buffer| Site::of(*buffer) == Site::Pool;
            let of_pool = flow.buffers.iter().filter(|(buffer, _)| is_of_pool(buffer));
            let buffers = of_pool.map(|(buffer, _)| to_channel(*buffer));
            claimed.entry(flow.owner.channel).or_default().extend(buffers);
        }
        for (id, channel) in self.iter() {
            let connections = channel.connections.iter();
            for (slot, connection) in connections {
                let owner = Owner { channel: id, connection: slot };
                self.check_connection(owner, connection, matched.contains(&owner))?;
            }
            channel.check_held(claimed.remove(&id).unwrap_or_default())?;
            self.check_copies(id, channel).map_err(Invalid)?;
        }
        self.note_too_large();
        Ok(())
    }

    /// Which messages of this host wait because they are too large is not saved. Those of others
    /// come again, and are refused again.
    fn note_too_large(&mut self) {
        let connections = self.iter().flat_map(|(_, channel)| channel.connections.iter());
        let waiting = connections.filter_map(|(_, connection)| {
            let local = connection.bearer.local()?;
            Some((local.peer, local.waiting.front()?.length))
        });
        for (to, length) in waiting.collect::<Vec<_>>() {
            if let Some(Some(receiver)) = self.channels.get_mut(to.channel as usize) {
                receiver.may_hold_next(to.connection, length);
            }
        }
    }

    fn match_flow(&mut self, flow: &FlowMemory) -> Result<(), Invalid> {
        let nobody = Invalid("a flow that is nobody's");
        let slot = flow.owner.connection;
        let place = self.channels.get_mut(flow.owner.channel as usize);
        let channel = place.and_then(Option::as_mut).ok_or(nobody)?;
        let connection = channel.connections.peek(slot).ok_or(nobody)?;
        let is_it = matches!(&connection.bearer, Bearer::Flow(key) if *key == flow.key);
        ensure(is_it && connection.connecting().is_some() == flow.is_connecting, nobody.0)?;
        let under_way = flow.extents.len() + connection.messages_waiting();
        let is_outstanding = connection.outstanding() as usize == under_way;
        ensure(is_outstanding, "sends that are not under way, or were not taken")?;
        let is_extent = |(offset, length): &(u32, u32)| channel.end.is_extent(*offset, *length);
        ensure(flow.extents.iter().all(is_extent), "a message beyond the pool")?;
        match &connection.exchange {
            Some(exchange) => exchange.check_flow(&flow.operations)?,
            None => ensure(flow.operations.is_empty(), "operations of nobody")?,
        }
        let buffers = &flow.buffers;
        let writes = buffers.iter().filter(|(buffer, _)| Site::of(*buffer) == Site::Region).count();
        let is_writing = connection.exchange.as_ref().is_some_and(|it| it.has_writing());
        ensure(
            writes == usize::from(is_writing),
            "writes of which nothing comes, or two at a time",
        )?;
        buffers.iter().try_for_each(|(buffer, order)| channel.claim(slot, *buffer, *order))
    }

    fn check_connection(
        &self,
        owner: Owner,
        connection: &Connection,
        has_flow: bool,
    ) -> Result<(), Invalid> {
        match &connection.bearer {
            Bearer::Flow(_) => ensure(has_flow, "a connection without its flow"),
            Bearer::Resolving => {
                let is_new = connection.outstanding() == 0 && connection.connecting().is_some();
                ensure(is_new, "sends of a connection that is not open")
            }
            Bearer::Local(local) => {
                let waiting = local.waiting.len() + connection.messages_waiting();
                let is_waiting = connection.outstanding() as usize == waiting;
                ensure(is_waiting, "sends that do not wait, or were not taken")?;
                let end = self.peek(owner.channel).map(|channel| &channel.end);
                let is_extent =
                    |held: &Held| end.is_some_and(|end| end.is_extent(held.offset, held.length));
                ensure(local.waiting.iter().all(is_extent), "a message beyond the pool")?;
                let peer = self.peek(local.peer.channel);
                let peer = peer.and_then(|peer| peer.connections.peek(local.peer.connection));
                let is_mutual = peer.is_some_and(
                    |peer| matches!(&peer.bearer, Bearer::Local(back) if back.peer == owner),
                );
                ensure(is_mutual, "a connection without its other end")
            }
        }
    }
}
