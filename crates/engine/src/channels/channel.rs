//! One attached app: its end of the shared memory, its connections, and what it is to be told.

mod opening;
mod posted;
mod snapshot;
mod state;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use clearway_channel::{Completion, DaemonEnd, NO_BUFFER, SMALL_MESSAGE_BYTES_MAX};
use clearway_transport::{Buffer, DueMessages, MESSAGE_OVERHEAD, Order, StreamKey, Unfinished};

use super::connection::{Bearer, Connection, Connections, Local, Stage};
use super::early::Early;
use super::line::{Claim, Line};
use super::posts::Posts;
use super::sites::Site;
use super::slots::SlotQueue;
use crate::control::Allowance;
use crate::local::Blocked;
use crate::operations::Operations;

/// What a peer may send beyond what the app has released, as a part of the app's receive pool: so
/// many connections can be unread at once before memory runs short, rounding to powers of two
/// included. Apps hold back the news of what they have released until it is a quarter of that.
const WINDOW_PARTS: u64 = 16;
/// More than this no path needs: it is the bandwidth-delay product of 10 Gbit/s over 20 ms, and
/// some. An app with a smaller pool, and so a smaller window, gets no more than that per round
/// trip.
const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Finished sends of a connection that are told in a completion of their own, rather than with
/// the next message that it receives.
const SENT_UNTOLD_MAX: u32 = 32;
/// Connections of an app that it is told of finished sends of in one turn, if no messages tell of
/// them: as many as commands are taken of it. So none keeps the others from being told.
const SENT_TOLD_PER_TURN: usize = 64;
/// Completions that wait for an app that does not read, beyond which it gets no new connections,
/// and nothing that it asks for is looked at: either could otherwise lead to more of them without
/// end.
const PENDING_MAX: usize = 4096;

/// An attached app.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) app: String,
    pub(crate) user: u32,
    pub(crate) end: Box<DaemonEnd>,
    pub(super) connections: Connections,
    /// Completions that the ring has no room for. Bounded by [`PENDING_MAX`], and beyond that by
    /// what connections and interfaces may still have to tell: messages by their windows, finished
    /// sends, and operations, of which a channel has so many outstanding at most.
    pending: VecDeque<Completion>,
    /// Connections with finished sends that the app has not been told of, the first first.
    untold: Vec<u32>,
    /// Service ports by the listener's id, with the address that each is limited to.
    pub(crate) ports: BTreeMap<(u32, u16), Option<IpAddr>>,
    /// The app broke the contract; it is served no more.
    pub(crate) is_condemned: bool,
    /// The app has ended; what it sent is still to be delivered, and nobody reads what it is told.
    pub(crate) has_left: bool,
    /// It takes streams that peers open.
    pub(crate) takes_streams: bool,
    /// It is told of messages that peers have dropped.
    pub(crate) hears_of_skipped: bool,
    /// It is not looked at until its app rings or it is told something.
    pub(super) is_parked: bool,
    /// The engine hears its doorbell.
    pub(crate) can_park: bool,
    /// When its app last said or was told something.
    pub(crate) busy_at: Time,
    /// Somebody in `line` is to be told or tried when there is memory, or, if there is some, in
    /// `held_up`.
    pub(super) is_starved: bool,
    /// There may be some since they were last tried.
    has_freed: bool,
    pub(super) line: Line,
    /// Connections of TCP whose peers here wait for memory, by their places, and for how much.
    pub(crate) held_up: SlotQueue<u32>,
    pub(super) unfinished: Unfinished,
    pub(super) early: Early,
    pub(super) posts: Posts,
    messages_sent: u64,
    messages_received: u64,
    pub(crate) operations: Operations,
}

impl Channel {
    pub(crate) fn new(app: String, user: u32, end: Box<DaemonEnd>, allowance: Allowance) -> Self {
        let unfinished = Unfinished::new(end.sizes().receive_pool_bytes);
        let early = Early::new(end.sizes().receive_pool_bytes);
        Self {
            app,
            user,
            end,
            connections: Connections::new(allowance.connections_max),
            pending: VecDeque::new(),
            untold: Vec::new(),
            ports: BTreeMap::new(),
            is_condemned: false,
            has_left: false,
            takes_streams: false,
            hears_of_skipped: false,
            is_parked: false,
            can_park: true,
            busy_at: Time::ZERO,
            is_starved: false,
            has_freed: false,
            line: Line::default(),
            held_up: SlotQueue::default(),
            unfinished,
            early,
            posts: Posts::default(),
            operations: Operations::new(allowance),
            messages_sent: 0,
            messages_received: 0,
        }
    }

    /// What a peer may send beyond what the app has released.
    pub(crate) fn window(&self) -> u64 {
        let part = u64::from(self.end.sizes().receive_pool_bytes) / WINDOW_PARTS;
        part.clamp(2 * MESSAGE_OVERHEAD, WINDOW_BYTES_MAX)
    }

    /// Its service ports with this listener's id, and the address that each is limited to.
    pub(crate) fn ports_of(&self, listener: u32) -> impl Iterator<Item = (u16, Option<IpAddr>)> {
        let ports = self.ports.range((listener, 0)..=(listener, u16::MAX));
        ports.map(|((_, port), only)| (*port, *only))
    }

    /// The id by which the app names the connection in this slot.
    #[inline]
    pub(crate) fn id(&self, slot: u32) -> u64 {
        self.connections.id(slot)
    }

    /// The slot of the connection that the app means, if it still has it.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        self.connections.find(id)
    }

    pub(crate) fn connection(&mut self, slot: u32) -> Option<&mut Connection> {
        self.connections.at(slot)
    }

    /// The connection in a slot, what all have of operations, and their memory.
    #[inline]
    pub(crate) fn parts(
        &mut self,
        slot: u32,
    ) -> Option<(&mut Connection, &mut Operations, &DaemonEnd)> {
        Some((self.connections.at(slot)?, &mut self.operations, &self.end))
    }

    /// What is kept of the connection in this slot, for fetching it from memory ahead.
    #[inline]
    pub(crate) fn state(&self, slot: u32) -> Option<&(impl Sized + use<>)> {
        self.connections.state(slot)
    }

    pub(crate) const fn has_connections(&self) -> bool {
        self.connections.count() > 0
    }

    /// The connection in a slot, to be looked at.
    pub(crate) fn peek_connection(&self, slot: u32) -> Option<&Connection> {
        self.connections.peek(slot)
    }

    /// The other end of the connection in this slot.
    pub(crate) fn peer(&self, slot: u32) -> Option<SocketAddr> {
        self.connections.peek(slot).map(|connection| connection.peer)
    }

    /// The connection in a slot, if it is one to an app of this host.
    #[inline]
    pub(crate) fn local(&mut self, slot: u32) -> Option<&mut Local> {
        match &mut self.connections.at(slot)?.bearer {
            Bearer::Local(local) => Some(local),
            Bearer::Flow(_) | Bearer::Resolving => None,
        }
    }

    /// Whether operations of a connection wait may have changed.
    pub(crate) fn note_waiting(&mut self, slot: u32) {
        self.connections.at(slot).into_iter().for_each(Connection::note_waiting);
    }

    /// Whether so many positions more may be given to the app on a connection to this host. One
    /// message always may, however large.
    pub(crate) fn has_credit(&mut self, slot: u32, positions: u64) -> Result<(), Blocked> {
        let window = self.window();
        match self.local(slot) {
            Some(local) if local.held == 0 || local.held + positions <= window => Ok(()),
            Some(_) | None => Err(Blocked::Window),
        }
    }

    /// Counts a message in that the app submitted: the slot of its connection, and its flow if it
    /// goes there at once. `None` if the connection is not open.
    #[inline]
    pub(crate) fn take_submitted(&mut self, connection: u64) -> Option<(u32, Option<StreamKey>)> {
        let slot = self.connections.find(connection)?;
        let found = self.connections.at(slot)?;
        let flow = match found.stage {
            Stage::Open => found.bearer.flow(),
            Stage::Behind => None,
            Stage::Connecting(_) | Stage::Closing(_) => return None,
        };
        found.submitted = found.submitted.wrapping_add(1);
        self.messages_sent += 1;
        Some((slot, flow))
    }

    /// Counts those in that the app has submitted behind it.
    #[inline]
    pub(crate) fn submitted_behind(&mut self, slot: u32, messages: u32) {
        if let Some(found) = self.connections.at(slot) {
            found.submitted = found.submitted.wrapping_add(messages);
            self.messages_sent += u64::from(messages);
        }
    }

    /// The same, with its number among those that were submitted to its connection, wrapping.
    pub(crate) fn take_numbered(
        &mut self,
        connection: u64,
    ) -> Option<(u32, Option<StreamKey>, u32)> {
        let (slot, flow) = self.take_submitted(connection)?;
        let submitted = self.connections.at(slot)?.submitted;
        Some((slot, flow, submitted.wrapping_sub(1)))
    }

    /// A message of the app's could not leave in time. It is still to be counted as finished.
    pub(crate) fn tell_dropped(&mut self, slot: u32, number: u32) {
        let connection = self.id(slot);
        self.tell(Completion::Dropped { connection, send: number });
    }

    /// A peer has dropped the next messages of a connection.
    pub(crate) fn tell_skipped(&mut self, slot: u32, messages: u32) {
        self.line.leave_too_large(slot);
        if self.hears_of_skipped {
            let connection = self.id(slot);
            self.tell(Completion::Skipped { connection, messages });
        }
    }

    /// Gives the app a whole message that is due. False if there is no room for it now.
    #[inline]
    pub(crate) fn receive(&mut self, slot: u32, bytes: &[u8]) -> bool {
        let Some(buffer) = self.allocate(slot, bytes.len() as u32) else { return false };
        self.end.write(super::to_channel(buffer), 0, bytes);
        self.deliver(slot, buffer);
        true
    }

    /// Gives the app the small messages that are due, as long as there is room for them and nobody
    /// waits for some. Returns how many.
    pub(crate) fn receive_due(&mut self, slot: u32, due: &mut DueMessages<'_, '_>) -> u64 {
        if !self.line.is_empty() || !self.pending.is_empty() {
            return 0;
        }
        let (id, tag) = (self.id(slot), self.connections.tag(slot));
        let Some(connection) = self.connections.at(slot) else { return 0 };
        let (end, sent, mut received) = (&mut self.end, connection.sent as u32, 0);
        while due.take(|bytes| receive_small(end, tag, id, sent, bytes)) {
            received += 1;
        }
        if received > 0 {
            connection.sent_told = sent;
            connection.received += received;
            self.messages_received += received;
        }
        received
    }

    /// Counts messages out that are finished. The app is told with the next message that it
    /// receives, or by [`Channel::tell_sent`].
    pub(crate) fn finished(&mut self, slot: u32, messages: u32) {
        self.end.sends_finished(messages);
        let Some(connection) = self.connections.at(slot) else { return };
        connection.sent += u64::from(messages);
        if !connection.is_untold {
            connection.is_untold = true;
            self.untold.push(slot);
        }
        if (connection.sent as u32).wrapping_sub(connection.sent_told) >= SENT_UNTOLD_MAX {
            self.tell_sent_of(slot);
        }
    }

    fn tell_sent_of(&mut self, slot: u32) {
        let id = self.id(slot);
        let Some(connection) = self.connections.at(slot) else { return };
        let sent = connection.sent as u32;
        if connection.sent_told != sent {
            connection.sent_told = sent;
            self.tell(Completion::Sent { connection: id, sent });
        }
    }

    /// Tells of finished sends that no message has told of, of some connections.
    pub(crate) fn tell_sent(&mut self) {
        let count = self.untold.len().min(SENT_TOLD_PER_TURN);
        for index in 0..count {
            let slot = self.untold[index];
            if let Some(connection) = self.connections.at(slot) {
                connection.is_untold = false;
            }
            self.tell_sent_of(slot);
        }
        self.untold.drain(..count);
    }

    /// Counts a message in that the app is given, and is told with of finished sends: how many
    /// there are. `None` if the connection is not there.
    #[inline]
    fn count_received(&mut self, slot: u32) -> Option<u32> {
        let connection = self.connections.at(slot)?;
        connection.sent_told = connection.sent as u32;
        connection.received += 1;
        self.messages_received += 1;
        Some(connection.sent_told)
    }

    /// Gives the app a message in `buffer`, which is one of the receive pool.
    #[inline]
    pub(crate) fn deliver(&mut self, slot: u32, buffer: Buffer) {
        let id = self.id(slot);
        let Some(sent) = self.count_received(slot) else {
            return self.end.discard(buffer.id);
        };
        self.tell(Completion::Received {
            connection: id,
            stream: 0,
            offset: buffer.offset,
            length: buffer.length,
            buffer: buffer.id,
            sent,
        });
    }

    /// Tells the app something, now or as soon as its ring has room.
    #[inline]
    pub(crate) fn tell(&mut self, completion: Completion) {
        if self.pending.is_empty() && self.end.completion_room() > 0 {
            self.put(&completion);
        } else {
            self.tell_later(completion);
        }
    }

    #[cold]
    fn tell_later(&mut self, completion: Completion) {
        if self.has_left {
            self.forget(&completion);
        } else {
            self.pending.push_back(completion);
        }
    }

    /// Nobody will read a completion.
    #[cold]
    fn forget(&mut self, completion: &Completion) {
        if let Some(buffer) = buffer_of(completion) {
            self.end.discard(buffer);
        }
    }

    /// The app has ended in good order: it is told nothing more that its ring has no room for, and
    /// always looked at.
    pub(crate) fn leave(&mut self) {
        (self.has_left, self.can_park) = (true, false);
        for completion in core::mem::take(&mut self.pending) {
            self.forget(&completion);
        }
    }

    #[inline]
    fn put(&mut self, completion: &Completion) {
        if let Some(buffer) = buffer_of(completion) {
            self.end.grant(buffer);
        }
        self.end.complete(completion);
    }

    /// Moves waiting completions to the ring, as many as it has room for.
    pub(crate) fn tell_pending(&mut self) {
        let had_too_much = self.has_too_much_pending();
        while !self.pending.is_empty() && self.end.completion_room() > 0 {
            let Some(completion) = self.pending.pop_front() else { return };
            self.put(&completion);
        }
        if had_too_much && !self.has_too_much_pending() {
            self.freed(); // what is late can be dropped
        }
    }

    /// True if the ring has room for what need not be told.
    pub(crate) fn may_tell(&mut self) -> bool {
        self.pending.is_empty() && self.end.completion_room() > 0
    }

    /// True if less than half of the receive pool is in use, and no message waits for room: frames,
    /// which nobody asked for, leave the rest to messages.
    pub(crate) fn has_half_its_memory(&self) -> bool {
        let used_bytes = self.end.counters().receive_pool_used_bytes;
        self.line.is_empty() && used_bytes < self.end.sizes().receive_pool_bytes / 2
    }

    /// True if so much waits for room in the ring that the app is to read first.
    #[inline]
    pub(crate) fn has_too_much_pending(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// True if the app may have asked for something, or is to be given memory.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        self.end.has_asked() | self.is_starved
    }

    /// True if what it asks for is looked at.
    #[inline]
    pub(crate) fn is_served(&self) -> bool {
        !self.is_condemned && !self.has_too_much_pending()
    }

    /// True if something waits for room in the ring.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Completions that wait for room in the ring.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// True if [`Channel::tell_sent`] has something to tell.
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// The slot of the connection that a released buffer belonged to, if it lives on, and its flow
    /// if it goes over the wire.
    #[inline]
    pub(crate) fn released_of(&self, tag: u32) -> Option<(u32, Option<StreamKey>)> {
        let (slot, connection) = self.connections.find_tag(tag)?;
        Some((slot, connection.bearer.flow()))
    }

    /// A buffer for a whole message that is next.
    #[inline]
    pub(crate) fn allocate(&mut self, slot: u32, length: u32) -> Option<Buffer> {
        let buffer = self.take(slot, length, Order::Due);
        self.note_turn(slot, length, buffer.is_some());
        buffer
    }

    /// A buffer for a message that comes in parts, if its sender has not too many of those.
    pub(crate) fn begin(&mut self, slot: u32, length: u32, order: Order) -> Option<Buffer> {
        let peer = self.connection(slot)?.peer.ip();
        let is_allowed = self.unfinished.allows(peer, length, order);
        let buffer = is_allowed.then(|| self.take(slot, length, order)).flatten();
        let buffer = buffer.filter(|buffer| order == Order::Due || self.take_early(*buffer));
        match order {
            Order::Due => self.note_turn(slot, length, buffer.is_some()),
            Order::Ahead if buffer.is_none() => self.wait_for_memory(slot),
            Order::Ahead => {}
        }
        let connection = self.connections.at(slot).filter(|_| buffer.is_some())?;
        connection.unfinished += 1;
        connection.early += u32::from(order == Order::Ahead);
        self.unfinished.begin(peer, length, order);
        buffer
    }

    /// A message that came in parts is complete, or never will be.
    pub(crate) fn finish(&mut self, slot: u32, buffer: Buffer, order: Order) {
        if Site::of(buffer) != Site::Pool {
            return;
        }
        if order == Order::Ahead {
            self.early.end(buffer);
        }
        if let Some(connection) = self.connections.at(slot) {
            connection.unfinished -= 1;
            connection.early -= u32::from(order == Order::Ahead);
            self.unfinished.end(connection.peer.ip(), buffer.length, order);
        }
    }

    /// Takes back a buffer that was not given to the app.
    pub(crate) fn free_spare(&mut self, buffer: Buffer) {
        self.end.discard(buffer.id);
        self.freed();
    }

    /// Takes back the buffer of a message that will never be complete.
    pub(crate) fn discard(&mut self, slot: u32, buffer: Buffer, order: Order) {
        match Site::of(buffer) {
            Site::Pool => {
                self.finish(slot, buffer, order);
                self.free_spare(buffer);
            }
            Site::Posted(number) => self.end_posted(number),
            Site::Region => self.forget_write(slot),
        }
    }

    /// A buffer with this tag, for `length` bytes that are of no message. `None` if there is no
    /// room, or who waits in line has a claim to it.
    #[inline]
    pub(crate) fn keep(&mut self, tag: u32, length: u32) -> Option<clearway_channel::Buffer> {
        let buffer = self.end.allocate(length, tag)?;
        if !self.line.is_empty()
            && self.line.claim().is_some_and(|claim| !self.end.has_room(claim.length))
        {
            self.end.discard(buffer.id);
            return None;
        }
        Some(buffer)
    }

    /// Takes back a buffer that the app was never told of.
    pub(crate) fn throw_away(&mut self, buffer: u32) {
        self.end.discard(buffer);
        self.freed();
    }

    /// True if [`Channel::keep`] has room for so many bytes.
    #[inline]
    pub(crate) fn has_room_for(&mut self, length: u32) -> bool {
        match self.line.claim() {
            None => self.end.has_room(length),
            Some(claim) => self.has_room_beside(claim, length),
        }
    }

    #[cold]
    fn has_room_beside(&mut self, claim: Claim, length: u32) -> bool {
        let Some(buffer) = self.end.allocate(length, 0) else { return false };
        let has_room = self.end.has_room(claim.length);
        self.end.discard(buffer.id);
        has_room
    }

    /// There may be room for who waits.
    pub(crate) fn freed(&mut self) {
        self.has_freed = true;
        self.is_starved |= !self.held_up.is_empty();
    }

    /// Memory, if there is some that is not claimed by who is first in line.
    #[inline]
    fn take(&mut self, slot: u32, length: u32, order: Order) -> Option<Buffer> {
        let buffer = self.end.allocate(length, self.connections.tag(slot))?;
        if !self.line.is_empty() && self.is_claimed(slot, order) {
            self.end.discard(buffer.id);
            return None;
        }
        Some(Buffer { id: buffer.id, offset: buffer.offset, length: buffer.length })
    }

    /// True if who is first in line could not get its piece now, and goes before the connection in
    /// `slot`. What messages that came early wait for does not wait for anybody: they lie in the
    /// pool meanwhile.
    #[cold]
    fn is_claimed(&mut self, slot: u32, order: Order) -> bool {
        let Some(claim) = self.line.claim().filter(|claim| claim.slot != slot) else {
            return false;
        };
        let has_early = self.connections.peek(slot).is_some_and(|connection| connection.early > 0);
        let is_exempt = order == Order::Due && has_early;
        !is_exempt && !self.end.has_room(claim.length)
    }

    fn take_early(&mut self, buffer: Buffer) -> bool {
        let is_taken = self.early.begin(buffer);
        if !is_taken {
            self.end.discard(buffer.id);
        }
        is_taken
    }

    /// The next message of a connection has its buffer, or was turned away and waits in line.
    #[inline]
    pub(crate) fn note_turn(&mut self, slot: u32, length: u32, is_served: bool) {
        if !is_served || !self.line.is_empty() {
            self.move_in_line(slot, length, is_served);
        }
    }

    #[cold]
    fn move_in_line(&mut self, slot: u32, length: u32, is_served: bool) {
        if is_served {
            self.leave_line(slot);
        } else {
            if self.may_hold_next(slot, length) {
                self.line.join(Claim { slot, length });
            }
            self.wait_for_memory(slot);
        }
    }

    /// A connection waits for room no more: others have what it had a claim to.
    pub(crate) fn leave_line(&mut self, slot: u32) {
        if self.line.leave(slot) {
            self.freed();
        }
    }

    /// True if the pool holds the next message of a connection when it is empty. A larger one waits
    /// for a buffer that is posted, which is noted.
    pub(crate) fn may_hold_next(&mut self, slot: u32, length: u32) -> bool {
        let may_hold = length <= self.end.sizes().receive_pool_bytes;
        if !may_hold {
            self.line.note_too_large(Claim { slot, length });
        }
        may_hold
    }

    /// A message of this connection was turned away: its sender goes on when there is memory.
    fn wait_for_memory(&mut self, slot: u32) {
        match self.connections.peek(slot).map(|connection| &connection.bearer) {
            Some(Bearer::Local(_)) => self.line.try_later(slot),
            Some(Bearer::Flow(_)) => self.line.tell_later(slot),
            Some(Bearer::Resolving) | None => return,
        }
        self.is_starved = true;
    }

    /// The app has released buffers.
    #[inline]
    pub(crate) fn released(&mut self) {
        if self.is_starved || !self.held_up.is_empty() {
            self.released_at_last();
        }
    }

    #[cold]
    fn released_at_last(&mut self) {
        self.line.freed();
        self.freed();
    }

    /// The sender to this connection has a message that may have room now.
    pub(crate) fn try_soon(&mut self, slot: u32) {
        self.line.try_later(slot);
        (self.is_starved, self.has_freed) = (true, true);
    }

    /// True if those who were turned away may try again: there is memory, or nobody has a claim to
    /// it.
    #[inline]
    pub(crate) fn may_try_again(&mut self, now: Time) -> bool {
        self.is_starved && (self.has_freed || self.line.turn(now))
    }

    /// When that is to be asked, if nothing becomes free before.
    pub(crate) fn tries_again_at(&self) -> Option<Time> {
        if self.is_starved && !self.has_freed { self.line.turns_at() } else { None }
    }

    /// The next connection over the wire whose peer is to be told that there is memory.
    pub(crate) fn take_to_tell(&mut self) -> Option<u32> {
        self.line.take_to_tell()
    }

    /// The next connection of this host whose sender is to be tried.
    pub(crate) fn next_to_try(&self) -> Option<u32> {
        self.line.next_to_try()
    }

    /// Its sender has been tried, and is ready for the next try or not. True if others are to be
    /// tried even if this one was refused.
    pub(crate) fn tried(&mut self, slot: u32, is_ready: bool) -> bool {
        self.line.tried(slot, is_ready)
    }

    /// All were told and tried for whom there was time; `is_over`: for the others there is no
    /// memory.
    pub(crate) fn have_tried(&mut self, is_over: bool) {
        self.is_starved = self.line.has_starved();
        self.has_freed = !is_over;
    }

    /// True if it is to be looked at until messages that were turned away have had their turn.
    pub(crate) const fn is_starved(&self) -> bool {
        self.is_starved
    }
}

/// Gives an app one of its small messages, if there is room. The connection has this tag and this
/// id, and so many sends of it are finished.
#[inline]
fn receive_small(
    end: &mut DaemonEnd,
    tag: u32,
    connection: u64,
    sent: u32,
    bytes: &[u8],
) -> Option<()> {
    if bytes.len() > SMALL_MESSAGE_BYTES_MAX as usize || end.completion_room() == 0 {
        return None;
    }
    let buffer = end.allocate(bytes.len() as u32, tag)?;
    end.write(buffer, 0, bytes);
    end.grant(buffer.id);
    let (offset, length, buffer) = (buffer.offset, buffer.length, buffer.id);
    end.complete(&Completion::Received { connection, stream: 0, offset, length, buffer, sent });
    Some(())
}

/// The buffer that a completion gives to the app.
#[inline]
fn buffer_of(completion: &Completion) -> Option<u32> {
    match *completion {
        Completion::Received { buffer, .. }
        | Completion::Frames { buffer, .. }
        | Completion::TcpReceived { buffer, .. } => Some(buffer),
        Completion::Operated { buffer, .. } => (buffer != NO_BUFFER).then_some(buffer),
        _ => None,
    }
}
