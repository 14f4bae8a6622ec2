//! One-sided operations: what peers do with memory that an app shares, without the app. The
//! contract is `docs/operations.md`, the format `wire::clearway::operation`.
//!
//! ```text
//!  asker's app ─Ask─▶ ask ─▶ Exchange.waiting ─take_outbound─▶ flow ···▶ flow ─operate─▶ execute
//!             ◀─Operated── answered ◀─operate─ flow ◀··· flow ◀─take_outbound─ Exchange.sent ◀┘
//! ```
//!
//! | part | what is in it |
//! |---|---|
//! | this file | what a channel has of operations, and its regions' coming and going |
//! | `regions` | what an app shares, and with whom |
//! | `groups` | who is in the groups that it shares with |
//! | `exchange` | the operations of one connection, in both directions |
//! | `trail` | bytes that are kept until they have arrived |
//! | `execute` | what an operation does to shared memory |
//! | `copying` | long reads and writes within the engine, a slice in each turn |
//! | `ask` | what apps ask for, and connections within the engine |
//! | `arrived` | requests and answers of peers |
//! | `writing` | long writes of peers, which go to their place as they come |
//! | `counters` | what was done, and what was refused |
//!
//! A request and its answer are messages of their flow: delivered once, in order. So an operation
//! has one effect at most, and answers come in the order of the requests.

mod arrived;
mod ask;
mod copying;
mod counters;
mod exchange;
mod execute;
mod groups;
mod regions;
mod state;
#[cfg(test)]
mod tests;
mod trail;
mod writing;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use clearway_channel::{
    Code, Completion, DESCRIPTION_BYTES_MAX, Description, Group, GroupName, NO_BUFFER,
    OperationStatus, Rights, Shared, Violation,
};
use clearway_transport::{Outbound, Owner, Reason, StreamKey};

use crate::channels::{Channel, Channels, Connection, Held, SlotQueue};
use crate::common::Common;
use crate::control::Allowance;
use crate::messages::Messages;
use copying::Copying;
pub(crate) use counters::OperationCounters;
pub(crate) use exchange::Exchange;
use groups::Who;
pub use regions::REGIONS_MAX;
pub(crate) use regions::Regions;
pub(crate) use regions::Spot;
pub use state::{
    AskedState, CopyingState, ExchangeState, ExpectedState, RegionState, SentState, SourceState,
    WaitingState, WritingState,
};
pub(crate) use writing::long_write;

/// Bytes of short answers that are kept for the peers of one app, until they have arrived.
const DATA_KEPT_MAX: usize = 16 << 20;
/// A connection may have this part of what the others leave: peers that take no answers leave some
/// to all others, however many they are.
const DATA_KEPT_PARTS: usize = 4;
/// Events that wait for an app beyond which it is not told of what peers write.
const NOTIFICATIONS_MAX: usize = 1024;

/// What a channel has of operations.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) regions: Regions,
    /// The policy lets its app ask.
    pub(crate) may_ask: bool,
    /// Asked for, and not over.
    outstanding: u32,
    /// Data that is kept for its connections, see [`DATA_KEPT_MAX`].
    data_kept: usize,
    /// Connections that answers are being sent on, out of regions: how many, by region and slot.
    readers: BTreeMap<(u64, u32), u32>,
    /// What a batch reads; kept for its memory.
    gathered: Vec<u8>,
    /// A long read or write of an app of this engine that it has asked for.
    copying: Option<Copying>,
    /// Connections of which the next is such a one, while that is under way.
    to_copy: SlotQueue,
}

impl Operations {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self {
            regions: Regions::new(allowance.regions_max),
            may_ask: allowance.may_ask,
            outstanding: 0,
            data_kept: 0,
            readers: BTreeMap::new(),
            gathered: Vec::new(),
            copying: None,
            to_copy: SlotQueue::default(),
        }
    }

    pub(crate) const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Whether those that answers are sent to out of regions are just the ones of `exchanges`.
    pub(crate) fn audit_readers<'a>(
        &self,
        exchanges: impl Iterator<Item = (u32, &'a Exchange)>,
    ) -> Result<(), String> {
        let mut found = BTreeMap::new();
        for (slot, exchange) in exchanges {
            exchange.regions().for_each(|region| *found.entry((region, slot)).or_default() += 1);
        }
        if found == self.readers {
            return Ok(());
        }
        Err(format!("answers are sent out of regions: {found:?}, noted {:?}", self.readers))
    }

    /// An answer is to be sent on the connection in a slot, out of a region.
    fn begin_reading(&mut self, region: u64, slot: u32) {
        *self.readers.entry((region, slot)).or_default() += 1;
    }

    /// It has arrived, or never will.
    fn end_reading(&mut self, region: u64, slot: u32) {
        let Some(count) = self.readers.get_mut(&(region, slot)) else { return };
        *count -= 1;
        if *count == 0 {
            self.readers.remove(&(region, slot));
        }
    }

    /// True if something is to be copied.
    pub(crate) const fn has_copies(&self) -> bool {
        self.copying.is_some() || !self.to_copy.is_empty()
    }
}

/// An operation that is over, of which nothing was read.
fn operated(token: u64, status: OperationStatus, value: u64, extra: u64) -> Completion {
    let (status, buffer) = (status as u8, NO_BUFFER);
    Completion::Operated { status, token, value, extra, offset: 0, length: 0, buffer }
}

/// Who is at the other end of a connection over a flow.
fn who_asks(connection: &Connection) -> Who {
    (connection.peer.ip(), connection.peer_user)
}

impl Channel {
    /// The connection ends: the app is told of what it has asked for. Whether something has come of
    /// it nobody knows.
    pub(crate) fn end_operations(&mut self, slot: u32) {
        let is_copying = self.copying_of(slot).is_some();
        let Some(connection) = self.connection(slot) else { return };
        let Some(exchange) = connection.exchange.take() else { return };
        self.forget_exchange(slot, &exchange);
        for (token, status) in exchange.into_ends(is_copying) {
            self.tell(operated(token, status, 0, 0));
        }
    }

    /// What the flow of a connection is to send, besides what it has.
    pub(crate) fn take_outbound(&mut self, slot: u32, take: impl FnMut(Outbound)) {
        let Some(connection) = self.connection(slot) else { return };
        let has_closed = connection.is_closing();
        let Some(exchange) = &mut connection.exchange else { return };
        if !exchange.has_unpushed() {
            return;
        }
        exchange.take_outbound(has_closed, take);
        let is_refused = exchange.is_refused();
        connection.note_waiting();
        if is_refused {
            self.tell_refused(slot);
        }
    }

    /// Tells of what is refused and has nothing in front of it any more.
    #[cold]
    fn tell_refused(&mut self, slot: u32) {
        while let Some(exchange) = self.exchange_of(slot)
            && let Some((token, status)) = exchange.take_refused()
        {
            self.operations.outstanding -= 1;
            self.tell(operated(token, status, 0, 0));
        }
    }

    /// A message has operations in front of it, and waits among them.
    pub(crate) fn hold(&mut self, slot: u32, message: Held) {
        if let Some(exchange) = self.exchange_of(slot) {
            exchange.hold(message);
        }
    }

    /// What was sent on a connection has arrived. True if there is more that may be sent.
    pub(crate) fn operations_arrived(&mut self, slot: u32, count: u32) -> bool {
        let Some(exchange) = self.exchange_of(slot) else { return false };
        let ((bytes, regions), has_more) = (exchange.arrived(count), exchange.has_unpushed());
        self.operations.data_kept -= bytes;
        regions.into_iter().for_each(|region| self.operations.end_reading(region, slot));
        has_more
    }

    /// The operations of a connection.
    pub(crate) fn exchange(&self, slot: u32) -> Option<&Exchange> {
        self.peek_connection(slot)?.exchange.as_deref()
    }

    /// The same with nobody to tell.
    pub(crate) fn forget_exchange(&mut self, slot: u32, exchange: &Exchange) {
        exchange.regions().for_each(|region| self.operations.end_reading(region, slot));
        self.operations.outstanding -= exchange.outstanding();
        self.operations.data_kept -= exchange.data_kept;
    }
}

impl Messages {
    /// The app shares a piece of its memory.
    pub(crate) fn share(
        &mut self,
        channels: &mut Channels,
        id: u32,
        token: u64,
        description: (u32, u32),
        memory: u64,
        (offset, length): (u64, u64),
    ) {
        let Some(channel) = channels.channel(id) else { return };
        let mut bytes = [0; DESCRIPTION_BYTES_MAX];
        let bytes = &mut bytes[..description.1 as usize];
        channel.end.read(description.0, bytes);
        let Some(description) = Description::of(bytes) else {
            return channels.condemn(id, Violation::Description(description.1));
        };
        let regions = &mut channel.operations.regions;
        let start = Spot { memory, offset };
        let shared = match channel.end.memory(memory) {
            Some(shared) => regions.share(shared.length(), (start, length), description),
            None => Err(OperationStatus::NoMemory),
        };
        let (status, region) = match shared {
            Ok(handle) => (OperationStatus::Done, handle),
            Err(status) => (status, 0),
        };
        channel.tell(Completion::Shared { status: status as u8, token, region });
    }

    /// The app shares a region no longer. Nothing more of it is read or written; who waits for a
    /// long answer out of it loses the connection.
    pub(crate) fn unshare(&mut self, common: &mut Common, id: u32, token: u64, region: u64) {
        let Some(channel) = common.channels.channel(id) else { return };
        let status = match channel.operations.regions.unshare(region) {
            true => OperationStatus::Done,
            false => OperationStatus::NoRegion,
        };
        let cut_off = channel.readers_cut_off(region..=region);
        self.cut_off(common, id, cut_off);
        let Some(channel) = common.channels.channel(id) else { return };
        channel.tell(Completion::Unshared { status: status as u8, token });
    }

    /// The app says who is in a group. Whoever has no right any more does nothing more, as when a
    /// region is revoked.
    pub(crate) fn set_group(
        &mut self,
        common: &mut Common,
        id: u32,
        token: u64,
        (offset, length): (u32, u32),
    ) {
        let Some(channel) = common.channels.channel(id) else { return };
        let mut bytes = vec![0; length as usize];
        channel.end.read(offset, &mut bytes);
        let Some(group) = Group::of(&bytes) else {
            return common.channels.condemn(id, Violation::Description(length));
        };
        let name = group.name;
        let status = match channel.operations.regions.set_group(group) {
            Ok(()) => OperationStatus::Done,
            Err(status) => status,
        };
        let cut_off = channel.members_cut_off(name);
        self.cut_off(common, id, cut_off);
        let Some(channel) = common.channels.channel(id) else { return };
        channel.tell(Completion::GroupSet { status: status as u8, token });
    }

    /// Those who may read of an app no longer, and wait for long answers over flows, lose their
    /// connections. Copies within the engine that would not be begun any more end.
    fn cut_off(&mut self, common: &mut Common, id: u32, readers: BTreeMap<u32, StreamKey>) {
        for (slot, key) in readers {
            self.endpoint.abort(key, Reason::Reset, &mut common.channels);
            if let Some(channel) = common.channels.channel(id) {
                channel.close(slot, Code::Reset);
            }
        }
        common.channels.end_copies(id);
    }
}

impl Channel {
    /// See [`who_asks`].
    fn asker(&self, slot: u32) -> Option<Who> {
        self.peek_connection(slot).map(who_asks)
    }

    /// Connections that an answer is being sent on out of one of these regions, which their peers
    /// may not read, or which is revoked.
    fn readers_cut_off(&self, regions: RangeInclusive<u64>) -> BTreeMap<u32, StreamKey> {
        let Operations { readers, regions: shared, .. } = &self.operations;
        let readers = readers.range((*regions.start(), 0)..=(*regions.end(), u32::MAX));
        let cut_off = readers.filter_map(|(&(region, slot), _)| {
            let who = self.asker(slot)?;
            let key = self.peek_connection(slot)?.bearer.flow()?;
            shared.find(region, Rights::READ, who).is_err().then_some((slot, key))
        });
        cut_off.collect()
    }

    /// The same of all regions that members of this group, and not just anybody, may read. Of each
    /// other that is being read there is one look, however many read it.
    fn members_cut_off(&self, group: GroupName) -> BTreeMap<u32, StreamKey> {
        let Operations { readers, regions, .. } = &self.operations;
        let (mut cut_off, mut start) = (BTreeMap::new(), 0);
        while let Some((&(region, _), _)) = readers.range((start, 0)..).next() {
            if regions.are_read_by(region, group) {
                cut_off.extend(self.readers_cut_off(region..=region));
            }
            let Some(behind) = region.checked_add(1) else { break };
            start = behind;
        }
        cut_off
    }
}

impl Channels {
    /// An app has more memory that it can share. What cannot be added is given back.
    pub(crate) fn add_memory(&mut self, id: u32, number: u64, shared: Shared) -> Option<Shared> {
        let Some(channel) = self.channel(id) else { return Some(shared) };
        channel.end.add_memory(number, shared).err()
    }

    /// It takes memory back, if no region is in it any more, and no buffer is posted there.
    pub(crate) fn remove_memory(&mut self, id: u32, number: u64) -> Option<Shared> {
        let channel = self.channel(id)?;
        if channel.operations.regions.use_memory(number) || channel.uses_posted(number) {
            return None;
        }
        channel.end.remove_memory(number)
    }

    /// The operations of a connection, which has none until the first.
    #[inline]
    fn exchange(&mut self, owner: Owner) -> Option<&mut Exchange> {
        Some(self.connection(owner)?.exchange.get_or_insert_default())
    }
}
