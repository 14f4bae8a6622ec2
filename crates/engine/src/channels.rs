//! The apps of an engine: their channels and connections. Implements the transport's view of an
//! app over the shared memory of its channel.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use clearway_base::counters;
use clearway_channel::{Code, Completion, DaemonEnd};
use clearway_transport::{App, Buffer, FlowKey, MESSAGE_OVERHEAD, Owner, Reason};

use crate::snapshot::{ChannelSnapshot, FlowSnapshot};

/// What a peer may send beyond what the app has released, as a part of the app's receive pool: so
/// many connections can be unread at once before memory runs short, rounding to powers of two
/// included.
const WINDOW_PARTS: u64 = 16;
/// A window of more than this only adds memory: it is ten times the bandwidth-delay product of
/// 10 Gbit/s over 80 µs.
const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// Finished sends of a connection that are told in a completion of their own, rather than with
/// the next message that it receives.
const SENT_UNTOLD_MAX: u32 = 32;
/// Completions that wait for an app that does not read, beyond which it gets no new connections:
/// peers could otherwise connect and reset without end. Messages are bounded by their windows.
const PENDING_ACCEPT_MAX: usize = 4096;
/// Bits of a connection's slot number in the owner tag of a buffer; the rest tells one
/// connection in a slot from the next.
const SLOT_BITS: u32 = 20;
/// Connections of one channel that can be named, whatever the policy says.
pub(crate) const CONNECTIONS_MAX: u32 = 1 << SLOT_BITS;

counters! {
    /// What the engine counts about its apps.
    pub struct AppCounters {
        /// Messages that apps submitted.
        messages_submitted,
        /// Messages given to apps.
        messages_delivered,
        /// Of these, messages between two apps of this host.
        messages_local,
        /// Messages that were submitted to a connection that had already ended.
        messages_to_closed,
        /// Connections that were refused because the app has as many as it may.
        connections_refused,
        /// Sessions that were ended because the app broke the contract.
        violations,
    }
}

/// Where the messages of a connection go.
#[derive(Debug)]
pub(crate) enum Link {
    /// The peer's Ethernet address is being looked up; nothing has been sent yet.
    Resolving,
    /// Over the wire.
    Flow(FlowKey),
    /// To another connection on this host.
    Local(Local),
}

/// One end of a connection between two apps of this host.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) peer: Owner,
    /// Messages submitted that the peer's app has no room for yet: offset and length.
    pub(crate) waiting: VecDeque<(u32, u32)>,
    /// Positions that this end's app has been given and has not released.
    pub(crate) held: u64,
    /// This end has closed and ends when `waiting` is empty.
    pub(crate) closing: bool,
}

/// A connection as the engine knows it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) link: Link,
    /// The app's name for its connection attempt, while that goes on.
    pub(crate) connecting: Option<u64>,
    /// The app has closed; it hears no more but the end.
    pub(crate) closing: bool,
    /// Sends taken from the app, and those of them that are finished.
    submitted: u32,
    sent: u32,
    /// Messages given to the app.
    received: u64,
    /// `sent` as the app knows it.
    sent_told: u32,
    is_untold: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// An attached app.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) app: String,
    pub(crate) end: Box<DaemonEnd>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    connections: u32,
    connections_max: u32,
    /// Completions that the ring has no room for. Bounded by the windows of the connections.
    pending: VecDeque<Completion>,
    /// Connections with finished sends that the app has not been told of.
    untold: Vec<u32>,
    /// Service ports, with the listener's id and the address it is limited to.
    pub(crate) ports: Vec<(u16, u32, Option<IpAddr>)>,
    /// The app broke the contract; it is served no more.
    pub(crate) is_condemned: bool,
    /// A message was turned away because the receive pool was full.
    is_starved: bool,
    messages_sent: u64,
    messages_received: u64,
}

impl Channel {
    pub(crate) fn new(app: String, end: Box<DaemonEnd>, connections_max: u32) -> Self {
        Self {
            app,
            end,
            slots: Vec::new(),
            free: Vec::new(),
            connections: 0,
            connections_max: connections_max.min(CONNECTIONS_MAX),
            pending: VecDeque::new(),
            untold: Vec::new(),
            ports: Vec::new(),
            is_condemned: false,
            is_starved: false,
            messages_sent: 0,
            messages_received: 0,
        }
    }

    /// What a peer may send beyond what the app has released.
    pub(crate) fn window(&self) -> u64 {
        let part = u64::from(self.end.sizes().receive_pool_bytes) / WINDOW_PARTS;
        part.clamp(2 * MESSAGE_OVERHEAD, WINDOW_BYTES_MAX)
    }

    /// A new connection; its slot, or `None` if the app has as many as it may.
    pub(crate) fn open(
        &mut self,
        peer: SocketAddr,
        link: Link,
        connecting: Option<u64>,
    ) -> Option<u32> {
        if self.connections >= self.connections_max || self.pending.len() >= PENDING_ACCEPT_MAX {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.connections += 1;
        self.slots[slot as usize].connection = Some(Connection {
            peer,
            link,
            connecting,
            closing: false,
            submitted: 0,
            sent: 0,
            received: 0,
            sent_told: 0,
            is_untold: false,
        });
        Some(slot)
    }

    /// The id by which the app names the connection in this slot.
    pub(crate) fn id(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// The slot of the connection that the app means, if it still has it.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        let slot = id as u32;
        let found = self.slots.get(slot as usize)?;
        (u64::from(found.generation) == id >> 32 && found.connection.is_some()).then_some(slot)
    }

    pub(crate) fn connection(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_mut()
    }

    /// The slots of all connections.
    pub(crate) fn open_slots(&self) -> Vec<u32> {
        (0..self.slots.len() as u32)
            .filter(|&slot| self.slots[slot as usize].connection.is_some())
            .collect()
    }

    /// Ends a connection: its sends are over. The app has been, or will be, told.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let place = self.slots.get_mut(slot as usize)?;
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        self.connections -= 1;
        self.end.sends_finished(connection.submitted.wrapping_sub(connection.sent));
        Some(connection)
    }

    /// Counts a message in that the app submitted.
    pub(crate) fn submitted(&mut self, slot: u32) {
        if let Some(connection) = self.connection(slot) {
            connection.submitted = connection.submitted.wrapping_add(1);
        }
        self.messages_sent += 1;
    }

    /// Counts messages out that are finished. The app is told with the next message that it
    /// receives, or by [`Channel::tell_sent`].
    pub(crate) fn finished(&mut self, slot: u32, messages: u32) {
        self.end.sends_finished(messages);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        connection.sent = connection.sent.wrapping_add(messages);
        if !connection.is_untold {
            connection.is_untold = true;
            self.untold.push(slot);
        }
        if connection.sent.wrapping_sub(connection.sent_told) >= SENT_UNTOLD_MAX {
            self.tell_sent_of(slot);
        }
    }

    fn tell_sent_of(&mut self, slot: u32) {
        let id = self.id(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else { return };
        if connection.sent_told != connection.sent {
            connection.sent_told = connection.sent;
            let sent = connection.sent;
            self.tell(Completion::Sent { connection: id, sent });
        }
    }

    /// Tells of all finished sends that no message has told of. For turns with nothing else to do.
    pub(crate) fn tell_sent(&mut self) {
        while let Some(slot) = self.untold.pop() {
            if let Some(connection) = self.slots[slot as usize].connection.as_mut() {
                connection.is_untold = false;
            }
            self.tell_sent_of(slot);
        }
    }

    /// Gives the app a message in `buffer`.
    pub(crate) fn deliver(&mut self, slot: u32, buffer: Buffer) {
        let id = self.id(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return self.end.discard(buffer.id);
        };
        connection.sent_told = connection.sent;
        connection.received += 1;
        let sent = connection.sent;
        self.messages_received += 1;
        self.tell(Completion::Received {
            connection: id,
            stream: 0,
            offset: buffer.offset,
            length: buffer.length,
            buffer: buffer.id,
            sent,
        });
    }

    /// Ends a connection and tells the app why.
    pub(crate) fn close(&mut self, slot: u32, code: Code) -> Option<Connection> {
        let id = self.id(slot);
        let connection = self.remove(slot)?;
        self.tell(match connection.connecting {
            Some(token) => Completion::ConnectFailed { token, code },
            None => Completion::Closed { connection: id, code, sent: connection.sent },
        });
        Some(connection)
    }

    /// Tells the app something, now or as soon as its ring has room.
    pub(crate) fn tell(&mut self, completion: Completion) {
        if self.pending.is_empty() && self.end.completion_room() > 0 {
            self.put(&completion);
        } else {
            self.pending.push_back(completion);
        }
    }

    fn put(&mut self, completion: &Completion) {
        if let Completion::Received { buffer, .. } = completion {
            self.end.grant(*buffer);
        }
        self.end.complete(completion);
    }

    /// Moves waiting completions to the ring, as many as it has room for.
    pub(crate) fn tell_pending(&mut self) {
        while !self.pending.is_empty() && self.end.completion_room() > 0 {
            let Some(completion) = self.pending.pop_front() else { return };
            self.put(&completion);
        }
    }

    /// True if something waits for room in the ring.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// True if [`Channel::tell_sent`] has something to tell.
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// What a buffer of this connection remembers: slot, and a part of its generation.
    pub(crate) fn tag(&self, slot: u32) -> u32 {
        slot | self.slots[slot as usize].generation << SLOT_BITS
    }

    /// The slot of the connection that a released buffer belonged to, if it lives on.
    pub(crate) fn find_tag(&self, tag: u32) -> Option<u32> {
        let slot = tag & (CONNECTIONS_MAX - 1);
        let found = self.slots.get(slot as usize)?;
        (found.connection.is_some() && self.tag(slot) == tag).then_some(slot)
    }

    pub(crate) fn allocate(&mut self, slot: u32, length: u32) -> Option<Buffer> {
        let tag = self.tag(slot);
        let buffer = self.end.allocate(length, tag);
        self.is_starved |= buffer.is_none();
        buffer.map(|b| Buffer { id: b.id, offset: b.offset, length: b.length })
    }

    /// True once after messages were turned away: memory has become free for them.
    pub(crate) fn take_starved(&mut self) -> bool {
        core::mem::take(&mut self.is_starved)
    }

    /// Its connections to apps of this host.
    pub(crate) fn local_flows(&self, channel: u32) -> impl Iterator<Item = FlowSnapshot> + '_ {
        self.slots.iter().enumerate().filter_map(move |(slot, place)| {
            let connection = place.connection.as_ref()?;
            let Link::Local(local) = &connection.link else { return None };
            Some(FlowSnapshot {
                channel,
                connection: slot as u32,
                path: "local",
                peer: connection.peer,
                state: if local.closing { "closing" } else { "open" },
                rtt_ns: 0,
                congestion_window_bytes: 0,
                in_flight_bytes: 0,
                messages_sent: u64::from(connection.sent),
                messages_received: connection.received,
                packets_lost: 0,
            })
        })
    }

    pub(crate) fn snapshot(&self, channel: u32) -> ChannelSnapshot {
        ChannelSnapshot {
            channel,
            app: self.app.clone(),
            connections: self.connections,
            messages_sent: self.messages_sent,
            messages_received: self.messages_received,
            receive_pool_bytes_used: u64::from(self.end.counters().receive_pool_used_bytes),
            messages_waiting: self.pending.len() as u64,
        }
    }
}

/// All channels of an engine.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: Vec<Option<Channel>>,
    /// The ids of those that exist, in the order in which they are served.
    ids: Vec<u32>,
    pub(crate) counters: AppCounters,
    /// The address of this host to which the packet came that is being handled.
    pub(crate) destination: Option<IpAddr>,
    /// Pings that were answered: id and round-trip time.
    pub(crate) pongs: Vec<(u64, u64)>,
}

impl Channels {
    pub(crate) fn insert(&mut self, id: u32, channel: Channel) {
        let index = id as usize;
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        self.channels[index] = Some(channel);
        self.ids.push(id);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Channel> {
        let channel = self.channels.get_mut(id as usize)?.take()?;
        self.ids.retain(|other| *other != id);
        Some(channel)
    }

    #[inline]
    pub(crate) fn channel(&mut self, id: u32) -> Option<&mut Channel> {
        self.channels.get_mut(id as usize)?.as_mut()
    }

    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Channel)> {
        self.channels
            .iter_mut()
            .enumerate()
            .filter_map(|(id, channel)| Some((id as u32, channel.as_mut()?)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Channel)> {
        self.channels
            .iter()
            .enumerate()
            .filter_map(|(id, channel)| Some((id as u32, channel.as_ref()?)))
    }

    /// Two different channels at once.
    pub(crate) fn pair(&mut self, a: u32, b: u32) -> Option<(&mut Channel, &mut Channel)> {
        let [a, b] = self.channels.get_disjoint_mut([a as usize, b as usize]).ok()?;
        a.as_mut().zip(b.as_mut())
    }

    pub(crate) fn connection(&mut self, owner: Owner) -> Option<&mut Connection> {
        self.channel(owner.channel)?.connection(owner.connection)
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
        if let Some(channel) = self.channel(owner.channel) {
            channel.end.write(to_channel(buffer), at, bytes);
        }
    }

    fn discard(&mut self, owner: Owner, buffer: Buffer) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.end.discard(buffer.id);
        }
    }

    #[inline]
    fn deliver(&mut self, owner: Owner, buffer: Buffer) {
        self.counters.messages_delivered += 1;
        if let Some(channel) = self.channel(owner.channel) {
            channel.deliver(owner.connection, buffer);
        }
    }

    #[inline]
    fn sent(&mut self, owner: Owner, messages: u32) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.finished(owner.connection, messages);
        }
    }

    fn accept(&mut self, listener: Owner, flow: FlowKey, peer: SocketAddr) -> Option<(Owner, u64)> {
        let destination = self.destination;
        let channel = self.channel(listener.channel)?;
        let (_, _, address) = channel.ports.iter().find(|(_, id, _)| *id == listener.connection)?;
        if address.is_some_and(|address| Some(address) != destination) {
            return None;
        }
        let Some(slot) = channel.open(peer, Link::Flow(flow), None) else {
            self.counters.connections_refused += 1;
            return None;
        };
        let window = channel.window();
        let connection = channel.id(slot);
        channel.tell(Completion::Accepted { listener: listener.connection, connection, peer });
        Some((Owner { channel: listener.channel, connection: slot }, window))
    }

    fn connected(&mut self, owner: Owner) {
        let Some(channel) = self.channel(owner.channel) else { return };
        let id = channel.id(owner.connection);
        let Some(connection) = channel.connection(owner.connection) else { return };
        let peer = connection.peer;
        if let Some(token) = connection.connecting.take() {
            channel.tell(Completion::Connected { token, connection: id, peer });
        }
    }

    fn closed(&mut self, owner: Owner, reason: Reason) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.close(owner.connection, code_of(reason));
        }
    }

    fn pong(&mut self, id: u64, rtt_ns: u64) {
        self.pongs.push((id, rtt_ns));
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
        Reason::TimedOut => Code::TimedOut,
        Reason::Refused => Code::Refused,
        Reason::Version => Code::VersionUnknown,
        Reason::Protocol => Code::ProtocolError,
        Reason::Unreachable => Code::Unreachable,
    }
}
