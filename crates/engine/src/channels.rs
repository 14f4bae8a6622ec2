//! The apps of an engine: their channels and connections. Implements the transport's view of an
//! app over the shared memory of its channel.

mod audit;
mod channel;
mod connection;
mod early;
mod line;
mod parking;
mod posts;
mod sites;
mod slots;
mod state;

use std::net::{IpAddr, SocketAddr};

use clearway_base::{MICROSECOND, RangeSet, Time, counters};
use clearway_channel::{Code, Completion, SMALL_MESSAGE_BYTES_MAX, Violation};
use clearway_transport::{
    App, Arrived, Buffer, Delivered, DueMessages, DueOperations, FlowKey, Operated, Order,
    Outbound, Owner, Reason, Room, StreamKey, Undelivered,
};

use crate::control::PingFailure;
use crate::operations::{Exchange, OperationCounters, long_write};
pub(crate) use channel::Channel;
pub use connection::Held;
pub(crate) use connection::{Bearer, Connection, Local, Stage};
use parking::Attention;
pub use posts::PostState;
pub(crate) use sites::Site;
pub(crate) use slots::SlotQueue;
pub(crate) use state::Ends;

/// How long an app waits, while its engine has other work in each turn, to be told of sends that no
/// message has told of. A turn without other work tells of them at once.
const SENT_UNTOLD_NS: u64 = 50 * MICROSECOND;

counters! {
    /// What the engine counts about its apps.
    pub struct AppCounters {
        /// Messages that apps submitted.
        messages_submitted: Messages, "when an app sends", "nothing: this is traffic";
        /// Messages given to apps.
        messages_delivered: Messages,
            "when a message is whole and it is its turn", "nothing: this is traffic";
        /// Of these, messages between two apps of this host.
        messages_local: Messages,
            "when apps of one host talk to each other", "nothing: this is traffic";
        /// Of these, messages in buffers that apps had posted.
        messages_placed: Messages,
            "when a large message comes on a connection behind which its app has posted buffers",
            "nothing: this is traffic";
        /// Messages of apps of this host that could not leave before their deadline.
        messages_dropped: Messages,
            "when an app sends messages with deadlines, and the peer's app, or the network, does \
             not take them in time",
            "nothing: the app is told of each; give them more time, or send less";
        /// Tries to go on with messages and operations that had to wait, between apps of an engine.
        messages_retried: Attempts,
            "while an app's receive pool or completion ring is full",
            "have the app read and release faster, or attach it with a larger pool";
        /// Messages that were submitted to a connection that had already ended.
        messages_to_closed: Messages,
            "when an app sends before it has read that its peer closed",
            "nothing: the app is told with the connection's end";
        /// Connections that were refused because the app has as many as it may.
        connections_refused: Connections,
            "when an app has connections_per_channel connections and more want in",
            "raise connections_per_channel in [policy.limits], or have the app attach more \
             channels";
        /// Sessions that were ended because the app broke the contract.
        violations: Apps,
            "when what an app wrote into its shared memory makes no sense",
            "see the daemon's log for the app and what it did; it crashed, or is hostile, or its \
             library is faulty";
    }
}

/// All channels of an engine.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: Vec<Option<Channel>>,
    /// Which of them are looked at in each turn.
    attention: Attention,
    /// Those for whose apps something is being copied, the next first.
    pub(crate) copying: SlotQueue,
    pub(crate) counters: AppCounters,
    pub(crate) operation_counters: OperationCounters,
    /// Apps that broke the contract since the control plane was last told.
    pub(crate) violations: Vec<(u32, Violation)>,
    /// Buffers with bytes of TCP that apps have released.
    released_bytes: Vec<ReleasedBytes>,
    /// Connections that were to share a flow, and whose peers share none: to be begun anew before
    /// the turn ends.
    pub(crate) unshared: Vec<Owner>,
    /// Pings that were answered: id and round-trip time.
    pub(crate) pongs: Vec<(u64, Result<u64, PingFailure>)>,
    /// When apps are told of sends that no message has told of, whatever else there is to do.
    sent_told_at: Time,
}

/// Buffers of one connection of TCP that its app has released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleasedBytes {
    pub(crate) channel: u32,
    /// What the buffers remember of the connection.
    pub(crate) tag: u32,
    pub(crate) bytes: u64,
}

impl Channels {
    pub(crate) fn insert(&mut self, id: u32, channel: Channel) {
        let index = id as usize;
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        self.channels[index] = Some(channel);
        self.attention.polled.push(id);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Channel> {
        self.channel(id)?; // a parked one is polled again
        self.attention.polled.retain(|other| *other != id);
        self.copying.remove(id);
        self.channels[id as usize].take()
    }

    /// A channel that is about to be told something, or has said something: if it is parked, it
    /// is so no more.
    #[inline]
    pub(crate) fn channel(&mut self, id: u32) -> Option<&mut Channel> {
        let channel = self.channels.get_mut(id as usize)?.as_mut()?;
        if channel.is_parked {
            self.attention.unpark(id, channel);
        }
        Some(channel)
    }

    /// A channel that is only looked at, for status.
    pub(crate) fn peek(&self, id: u32) -> Option<&Channel> {
        self.channels.get(id as usize)?.as_ref()
    }

    /// The app broke the contract: nothing more is taken from it.
    #[cold]
    pub(crate) fn condemn(&mut self, id: u32, violation: Violation) {
        if let Some(channel) = self.channel(id).filter(|channel| !channel.is_condemned) {
            channel.is_condemned = true;
            self.counters.violations += 1;
            self.violations.push((id, violation));
        }
    }

    /// True if a listener takes connections to this address of the host.
    pub(crate) fn listens_at(&self, listener: Owner, address: IpAddr) -> bool {
        let channel = self.peek(listener.channel);
        let mut ports =
            channel.into_iter().flat_map(|channel| channel.ports_of(listener.connection));
        ports.any(|(_, only)| only.is_none_or(|only| only == address))
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// How many ids there may be channels of: all below.
    pub(crate) fn places(&self) -> usize {
        self.channels.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Channel)> {
        self.channels
            .iter()
            .enumerate()
            .filter_map(|(id, channel)| Some((id as u32, channel.as_ref()?)))
    }

    /// The same for two different channels at once.
    #[inline]
    pub(crate) fn pair(&mut self, a: u32, b: u32) -> Option<(&mut Channel, &mut Channel)> {
        let both = self.channels.get_disjoint_mut([a as usize, b as usize]).ok()?;
        let [Some(first), Some(second)] = both else { return None };
        for (id, channel) in [(a, &mut *first), (b, &mut *second)] {
            if channel.is_parked {
                self.attention.unpark(id, channel);
            }
        }
        Some((first, second))
    }

    /// Copies bytes of what the app of a channel sends.
    #[inline]
    pub(crate) fn read_sent(&self, channel: u32, offset: u32, into: &mut [u8]) {
        if let Some(channel) = self.peek(channel) {
            channel.end.read(offset, into);
        }
    }

    /// Copies bytes of what the app of a channel sends into a buffer of another app, or of its own.
    #[inline]
    pub(crate) fn copy_sent(
        &mut self,
        from: u32,
        (offset, length): (u32, u32),
        to: u32,
        buffer: clearway_channel::Buffer,
        at: u32,
    ) {
        if from == to {
            let channel = self.channel(from);
            channel.into_iter().for_each(|it| it.end.copy_within(offset, length, buffer, at));
        } else if let Some((sender, receiver)) = self.pair(from, to) {
            sender.end.copy_to(offset, length, &mut receiver.end, buffer, at);
        }
    }

    /// An app has released buffers that are of none of its messages.
    pub(crate) fn note_released(&mut self, released: ReleasedBytes) {
        self.released_bytes.push(released);
    }

    #[inline]
    pub(crate) fn has_released_bytes(&self) -> bool {
        !self.released_bytes.is_empty()
    }

    pub(crate) fn pop_released_bytes(&mut self) -> Option<ReleasedBytes> {
        self.released_bytes.pop()
    }

    /// The flow and stream of a connection that an app names, if it has one over the network.
    pub(crate) fn flow_of(&mut self, channel: u32, connection: u64) -> Option<StreamKey> {
        let channel = self.channel(channel)?;
        let slot = channel.find(connection)?;
        match &channel.connection(slot)?.bearer {
            Bearer::Flow(key) => Some(*key),
            Bearer::Local(_) | Bearer::Resolving => None,
        }
    }

    pub(crate) fn connection(&mut self, owner: Owner) -> Option<&mut Connection> {
        self.channel(owner.channel)?.connection(owner.connection)
    }
}

/// Which apps a turn has told something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Any.
    pub(crate) apps: bool,
    /// There is more to tell, in the next turn.
    pub(crate) more: bool,
    /// One that waits for this core.
    pub(crate) neighbour: bool,
}

impl Channels {
    /// Ends a turn: wakes apps that have something new. The engine runs on `processor`, if it has a
    /// thread of its own.
    pub(crate) fn end_turn(&mut self, now: Time, is_idle: bool, processor: Option<u32>) -> Told {
        let mut told = Told::default();
        let tells_sent = is_idle | (now >= self.sent_told_at);
        let Self { channels, attention, .. } = self;
        for id in &attention.polled {
            let Some(channel) = &mut channels[*id as usize] else { continue };
            if channel.has_pending() {
                channel.tell_pending();
            }
            if tells_sent && channel.has_untold() {
                channel.tell_sent();
                told.more |= channel.has_untold();
            }
            if channel.end.flush() {
                channel.busy_at = now;
                told.apps = true;
                told.neighbour |= processor.is_some_and(|processor| channel.end.meet(processor));
            }
        }
        if tells_sent {
            self.sent_told_at = if told.more { now } else { now + SENT_UNTOLD_NS };
        }
        self.park_silent(now);
        told
    }
}

impl Channels {
    /// A whole message has come, in a packet, that may go into a posted buffer.
    #[cold]
    fn receive_large(&mut self, owner: Owner, bytes: &[u8]) -> Option<Delivered> {
        let channel = self.channel(owner.channel)?;
        let (slot, length) = (owner.connection, bytes.len() as u32);
        let posted = channel.begin_posted(slot, length, Order::Due);
        let buffer = posted.or_else(|| channel.allocate(slot, length))?;
        self.write(owner, buffer, 0, bytes);
        Some(self.deliver(owner, buffer))
    }
}

impl App for Channels {
    #[inline]
    fn read(&self, owner: Owner, offset: u32, into: &mut [u8]) {
        if let Some(Some(channel)) = self.channels.get(owner.channel as usize) {
            channel.end.read(offset, into);
        }
    }

    #[inline]
    fn allocate(&mut self, owner: Owner, length: u32) -> Option<Buffer> {
        self.channel(owner.channel)?.allocate(owner.connection, length)
    }

    #[inline]
    fn write(&mut self, owner: Owner, buffer: Buffer, at: u32, bytes: &[u8]) {
        let Some(channel) = self.channel(owner.channel) else { return };
        match Site::of(buffer) {
            Site::Pool => channel.end.write(to_channel(buffer), at, bytes),
            Site::Posted(number) => channel.write_posted(number, at, bytes),
            Site::Region => channel.write_part(owner.connection, at, bytes),
        }
    }

    fn begin(&mut self, owner: Owner, length: u32, order: Order, room: Room) -> Option<Buffer> {
        let channel = self.channel(owner.channel)?;
        let posted = match room {
            Room::Posted => channel.begin_posted(owner.connection, length, order),
            Room::Pool => None,
        };
        posted.or_else(|| channel.begin(owner.connection, length, order))
    }

    fn begin_operation(
        &mut self,
        owner: Owner,
        length: u32,
        order: Order,
        first: Option<&[u8]>,
    ) -> Option<Buffer> {
        if let Some(request) = first.and_then(|first| long_write(first, length)) {
            return self.begin_write(owner, &request, length);
        }
        self.channel(owner.channel)?.begin(owner.connection, length, order)
    }

    fn turn_of_operation(
        &mut self,
        owner: Owner,
        buffer: Buffer,
        order: Order,
        parts: &RangeSet,
    ) -> Buffer {
        self.take_out_write(owner, buffer, order, parts).unwrap_or(buffer)
    }

    fn finish(&mut self, owner: Owner, buffer: Buffer, order: Order) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.finish(owner.connection, buffer, order);
        }
    }

    fn discard(&mut self, owner: Owner, buffer: Buffer, order: Order) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.discard(owner.connection, buffer, order);
        }
    }

    #[inline]
    fn receive(&mut self, owner: Owner, bytes: &[u8]) -> Option<Delivered> {
        if bytes.len() > SMALL_MESSAGE_BYTES_MAX as usize {
            return self.receive_large(owner, bytes);
        }
        let is_received = self.channel(owner.channel)?.receive(owner.connection, bytes);
        self.counters.messages_delivered += u64::from(is_received);
        is_received.then_some(Delivered::Held)
    }

    #[inline]
    fn receive_due(&mut self, owner: Owner, due: &mut DueMessages<'_, '_>) {
        let channel = self.channel(owner.channel);
        let received = channel.map_or(0, |channel| channel.receive_due(owner.connection, due));
        self.counters.messages_delivered += received;
    }

    #[inline]
    fn deliver(&mut self, owner: Owner, buffer: Buffer) -> Delivered {
        self.counters.messages_delivered += 1;
        let Site::Posted(number) = Site::of(buffer) else {
            let channel = self.channel(owner.channel);
            channel.into_iter().for_each(|it| it.deliver(owner.connection, buffer));
            return Delivered::Held;
        };
        self.counters.messages_placed += 1;
        if let Some(channel) = self.channel(owner.channel) {
            channel.place(number, buffer.length);
        }
        Delivered::Released
    }

    #[inline]
    fn sent(&mut self, owner: Owner, messages: u32) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.finished(owner.connection, messages);
        }
    }

    fn dropped(&mut self, owner: Owner, number: u32) {
        self.counters.messages_dropped += 1;
        if let Some(channel) = self.channel(owner.channel) {
            channel.tell_dropped(owner.connection, number);
        }
    }

    fn reads_news(&self, owner: Owner) -> bool {
        self.peek(owner.channel).is_none_or(|channel| !channel.has_too_much_pending())
    }

    fn skipped(&mut self, owner: Owner, messages: u32) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.tell_skipped(owner.connection, messages);
        }
    }

    fn operate(&mut self, owner: Owner, operation: Arrived<'_>) -> Operated {
        Self::operate(self, owner, operation)
    }

    fn operate_due(&mut self, owner: Owner, due: &mut DueOperations<'_, '_>) {
        Self::operate_due(self, owner, due);
    }

    fn take_outbound(&mut self, owner: Owner, take: impl FnMut(Outbound)) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.take_outbound(owner.connection, take);
        }
    }

    fn has_outbound(&self, owner: Owner) -> bool {
        let exchange = self.peek(owner.channel).and_then(|it| it.exchange(owner.connection));
        exchange.is_some_and(Exchange::is_waiting)
    }

    fn read_operation(&self, owner: Owner, name: u32, at: u32, into: &mut [u8]) {
        if let Some(channel) = self.peek(owner.channel)
            && let Some(exchange) = channel.exchange(owner.connection)
        {
            exchange.read(channel, name, at, into);
        }
    }

    fn operations_sent(&mut self, owner: Owner, count: u32) -> bool {
        let channel = self.channel(owner.channel);
        channel.is_some_and(|channel| channel.operations_arrived(owner.connection, count))
    }

    fn accept(
        &mut self,
        listener: Owner,
        key: StreamKey,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<(Owner, u64)> {
        if !self.listens_at(listener, local.ip()) {
            return None;
        }
        let channel = self.channel(listener.channel)?;
        let Some(slot) = channel.accept(peer, Bearer::Flow(key)) else {
            self.counters.connections_refused += 1;
            return None;
        };
        let window = channel.window();
        let connection = channel.id(slot);
        channel.tell(Completion::Accepted { listener: listener.connection, connection, peer });
        Some((Owner { channel: listener.channel, connection: slot }, window))
    }

    fn accept_stream(&mut self, parent: Owner, stream: StreamKey) -> Option<(Owner, u64)> {
        let channel = self.channel(parent.channel).filter(|channel| channel.takes_streams)?;
        let peer = channel.peer(parent.connection)?;
        let Some(slot) = channel.accept(peer, Bearer::Flow(stream)) else {
            self.counters.connections_refused += 1;
            return None;
        };
        let window = channel.window();
        channel.tell_of_stream(slot, parent.connection);
        Some((Owner { channel: parent.channel, connection: slot }, window))
    }

    fn connected(&mut self, owner: Owner) {
        let Some(channel) = self.channel(owner.channel) else { return };
        let id = channel.id(owner.connection);
        let Some(connection) = channel.connection(owner.connection) else { return };
        let peer = connection.peer;
        if let Some(token) = connection.connected() {
            channel.tell(Completion::Connected { token, connection: id, peer });
        }
    }

    fn unshared(&mut self, owner: Owner, flow: Option<FlowKey>) {
        let Some(connection) = self.connection(owner) else { return };
        match flow {
            Some(flow) => connection.bearer = Bearer::Flow(flow.into()),
            None => {
                (connection.bearer, connection.shares) = (Bearer::Resolving, false);
                self.unshared.push(owner);
            }
        }
    }

    fn closed(&mut self, owner: Owner, reason: Reason) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.close(owner.connection, code_of(reason));
        }
    }

    fn pong(&mut self, id: u64, result: Result<u64, Undelivered>) {
        self.pongs.push((id, result.map_err(PingFailure::from)));
    }
}

pub(crate) const fn to_channel(buffer: Buffer) -> clearway_channel::Buffer {
    clearway_channel::Buffer { id: buffer.id, offset: buffer.offset, length: buffer.length }
}

/// The transport's reason as the app's code.
pub(crate) const fn code_of(reason: Reason) -> Code {
    match reason {
        Reason::Closed => Code::Closed,
        Reason::Reset => Code::Reset,
        Reason::TimedOut => Code::Lost,
        Reason::Refused => Code::Refused,
        Reason::Version => Code::VersionUnknown,
        Reason::Protocol => Code::ProtocolError,
        Reason::Unreachable => Code::Unreachable,
    }
}
