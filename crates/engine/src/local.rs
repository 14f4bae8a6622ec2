//! Connections between two apps of this host: one copy from pool to pool, no packets. Flow
//! control is the same as on the wire: what the receiving app has not released is bounded by its
//! window, and what is beyond that waits in the sender's own pool.

use std::net::SocketAddr;

use clearway_base::{Time, give_back};
use clearway_channel::{Code, Completion};
use clearway_transport::{App, Buffer, MESSAGE_OVERHEAD, Order, Owner};

use crate::channels::{Bearer, Channels, Held, Local, Stage, to_channel};

/// Why a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The app that it is for has as much unread as it may, or is gone.
    Window,
    /// There is no room in that app's pool, or somebody else has a claim to it.
    Memory,
    /// It is larger than that pool, and no posted buffer fits it.
    Size,
    /// It is long, and is copied in other turns; or something else is, that it has to wait for.
    Copying,
}

/// What came of trying the next message of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// It was sent, and there is another.
    Sent,
    /// There is no room for it.
    Refused,
    /// There is none that is worth another try.
    Done,
}

impl Channels {
    /// Connects `channel` to the app that listens as `listener`. The answer goes to both apps. The
    /// client comes from the address that it has called, as over the kernel, but from no port.
    pub(crate) fn connect_local(
        &mut self,
        channel: u32,
        token: u64,
        listener: Owner,
        peer: SocketAddr,
    ) {
        let client = SocketAddr::new(peer.ip(), 0);
        let ends = if self.listens_at(listener, peer.ip()) {
            self.join((channel, peer, None), (listener.channel, client, None))
        } else {
            Err(Code::Refused)
        };
        let told = match ends {
            Ok([near, far]) => {
                if let Some(server) = self.channel(listener.channel) {
                    let (listener, connection) = (listener.connection, server.id(far));
                    server.tell(Completion::Accepted { listener, connection, peer: client });
                }
                let connection = self.peek(channel).map_or(0, |client| client.id(near));
                Completion::Connected { token, connection, peer }
            }
            Err(code) => Completion::ConnectFailed { token, code },
        };
        self.channel(channel).into_iter().for_each(|client| client.tell(told));
    }

    /// Opens a stream of a connection to an app of this host: another connection to it, which ends
    /// with this one. The answer goes to both apps.
    pub(crate) fn open_local_stream(
        &mut self,
        channel: u32,
        token: u64,
        parent: u32,
    ) -> Result<(), Code> {
        let near = Owner { channel, connection: parent };
        let far = self.local(near).ok_or(Code::Closed)?.peer;
        let open_to = |channels: &Self, owner: Owner| {
            let connection = channels.peek(owner.channel)?.peek_connection(owner.connection)?;
            (!connection.is_closing()).then_some(connection.peer)
        };
        let peers = open_to(self, near).zip(open_to(self, far)).ok_or(Code::Closed)?;
        self.peek(far.channel).filter(|it| it.takes_streams).ok_or(Code::Refused)?;
        let ends = self.join(
            (near.channel, peers.0, Some(near.connection)),
            (far.channel, peers.1, Some(far.connection)),
        );
        let [near_slot, far_slot] = ends?;
        if let Some(server) = self.channel(far.channel) {
            server.tell_of_stream(far_slot, far.connection);
        }
        if let Some(client) = self.channel(channel) {
            let connection = client.id(near_slot);
            client.tell(Completion::Connected { token, connection, peer: peers.0 });
        }
        Ok(())
    }

    /// Makes both ends of a connection, each of a channel, with its peer's address, and a stream of
    /// this slot's connection if one is given. Returns their slots.
    fn join(
        &mut self,
        near: (u32, SocketAddr, Option<u32>),
        far: (u32, SocketAddr, Option<u32>),
    ) -> Result<[u32; 2], Code> {
        let nobody = Owner { channel: u32::MAX, connection: 0 };
        let mut open = |(channel, peer, parent), other| {
            let bearer = Bearer::Local(Local::to(other, parent));
            let slot = self.channel(channel).and_then(|it| it.open(peer, bearer, None));
            self.counters.connections_refused += u64::from(slot.is_none());
            Some(Owner { channel, connection: slot? })
        };
        let near_owner = open(near, nobody).ok_or(Code::Limit)?;
        let Some(far_owner) = open(far, near_owner) else {
            if let Some(channel) = self.channel(near_owner.channel) {
                channel.remove(near_owner.connection);
            }
            return Err(Code::Refused);
        };
        self.local(near_owner).into_iter().for_each(|local| local.peer = far_owner);
        Ok([near_owner.connection, far_owner.connection])
    }

    pub(crate) fn local(&mut self, owner: Owner) -> Option<&mut Local> {
        self.channel(owner.channel)?.local(owner.connection)
    }

    /// Sends a message to an app of this host. One that has operations in front of it waits.
    pub(crate) fn send_or_hold(&mut self, owner: Owner, message: Held) {
        let Some(channel) = self.channel(owner.channel) else { return };
        let stage = channel.connection(owner.connection).map(|connection| connection.stage);
        if stage == Some(Stage::Behind) {
            return channel.hold(owner.connection, message);
        }
        self.send_local(owner, message);
    }

    /// Sends a message that had operations in front of it. One with a deadline may be late by now:
    /// that is seen when it is tried.
    pub(crate) fn send_late(&mut self, owner: Owner, message: Held) {
        if message.deadline.is_none() {
            return self.send_local(owner, message);
        }
        let Some(local) = self.local(owner) else { return };
        let peer = local.peer;
        local.waiting.push_back(message);
        self.try_waiting(peer);
    }

    /// Sends a message, or keeps it until the peer has room.
    fn send_local(&mut self, owner: Owner, message: Held) {
        let Some(local) = self.local(owner) else { return };
        let peer = local.peer;
        let must_wait = !local.waiting.is_empty() || self.copy(owner, peer, message).is_err();
        if must_wait && let Some(local) = self.local(owner) {
            local.waiting.push_back(message);
        }
    }

    /// The one copy.
    fn copy(&mut self, from: Owner, to: Owner, message: Held) -> Result<(), Blocked> {
        let Held { offset, length, .. } = message;
        let positions = MESSAGE_OVERHEAD + u64::from(length);
        let receiver = self.channel(to.channel).ok_or(Blocked::Window)?;
        if let Some(buffer) = receiver.begin_posted(to.connection, length, Order::Due) {
            self.copy_to_posted(from, to, message, buffer);
            return Ok(());
        }
        if !receiver.may_hold_next(to.connection, length) {
            return Err(Blocked::Size);
        }
        receiver.has_credit(to.connection, positions)?;
        let buffer = receiver.allocate(to.connection, length).ok_or(Blocked::Memory)?;
        if let Some(local) = receiver.local(to.connection) {
            local.held += positions;
        }
        self.counters.messages_local += 1;
        self.counters.messages_delivered += 1;
        if let Some((sender, receiver)) = self.pair(from.channel, to.channel) {
            sender.end.copy_to(offset, length, &mut receiver.end, to_channel(buffer), 0);
            receiver.deliver(to.connection, buffer);
            sender.finished(from.connection, 1);
        } else if let Some(channel) = self.channel(from.channel) {
            // It talks to itself.
            channel.end.copy_within(offset, length, to_channel(buffer), 0);
            channel.deliver(to.connection, buffer);
            channel.finished(from.connection, 1);
        }
        Ok(())
    }

    /// The one copy, into a buffer that the receiving app has posted.
    fn copy_to_posted(&mut self, from: Owner, to: Owner, message: Held, buffer: Buffer) {
        let receiver = self.peek(to.channel);
        let place = receiver.and_then(|receiver| receiver.posted_place(buffer));
        if let Some((sender, (memory, offset))) = self.peek(from.channel).zip(place) {
            let is_copied = sender.end.share_sent(message.offset, message.length, memory, offset);
            debug_assert!(is_copied, "it was bounded when it was posted");
        }
        self.counters.messages_local += 1;
        self.deliver(to, buffer);
        if let Some(sender) = self.channel(from.channel) {
            sender.finished(from.connection, 1);
        }
    }

    /// The app has released so many messages, of so many bytes in all: what waited for that may
    /// have room.
    pub(crate) fn release_local(&mut self, owner: Owner, messages: u32, bytes: u64) {
        let Some(local) = self.local(owner) else { return };
        let positions = u64::from(messages) * MESSAGE_OVERHEAD + bytes;
        local.held = local.held.saturating_sub(positions);
        self.try_waiting(owner);
    }

    /// What waits to be given to the app of this end, or to be carried out for it, may have room.
    pub(crate) fn try_waiting(&mut self, owner: Owner) {
        let Some(sender) = self.peer_of(owner) else { return };
        let asks = self.peek(owner.channel).is_some_and(|it| it.is_waiting(owner.connection));
        let is_ready = asks || self.local(sender).is_some_and(|local| !local.waiting.is_empty());
        if is_ready && let Some(receiver) = self.channel(owner.channel) {
            receiver.try_soon(owner.connection);
        }
    }

    /// Memory of this channel may have become free: senders of this host that wait for it are tried
    /// in turn, until one finds none, and `tries_max` at most. Returns how many were.
    pub(crate) fn retry_senders_to(&mut self, now: Time, channel: u32, tries_max: usize) -> usize {
        for tries in 0..tries_max {
            let slot = self.channel(channel).and_then(|receiver| receiver.next_to_try());
            let Some(slot) = slot else { return tries };
            let tried = self.retry(now, Owner { channel, connection: slot });
            let Some(receiver) = self.channel(channel) else { return tries + 1 };
            let all_are_tried = receiver.tried(slot, tried != Tried::Done);
            if tried == Tried::Refused && !all_are_tried {
                return tries + 1;
            }
        }
        tries_max
    }

    /// Tries the next message to `receiver` once more, or drops it if its time is over.
    fn retry(&mut self, now: Time, receiver: Owner) -> Tried {
        self.counters.messages_retried += 1;
        if let Some(tried @ (Tried::Sent | Tried::Refused)) = self.retry_operation(receiver) {
            return tried;
        }
        let Some(sender) = self.local(receiver).map(|local| local.peer) else { return Tried::Done };
        let next = self.local(sender).and_then(|local| local.waiting.front().copied());
        let Some(message) = next else { return Tried::Done };
        if let Some(late) = message.deadline.filter(|deadline| deadline.at < now) {
            if !self.reads_news(receiver) {
                return Tried::Refused; // it waits until it can be dropped
            }
            self.drop_local(sender, receiver, late.number);
            return self.go_on(sender);
        }
        match self.copy(sender, receiver, message) {
            Ok(()) => self.go_on(sender),
            Err(Blocked::Memory) => Tried::Refused,
            Err(Blocked::Window | Blocked::Size | Blocked::Copying) => Tried::Done,
        }
    }

    /// Both apps hear that a message was dropped.
    fn drop_local(&mut self, sender: Owner, receiver: Owner, number: u32) {
        self.counters.messages_dropped += 1;
        if let Some(channel) = self.channel(receiver.channel) {
            channel.leave_line(receiver.connection);
            channel.tell_skipped(receiver.connection, 1);
        }
        if let Some(channel) = self.channel(sender.channel) {
            channel.tell_dropped(sender.connection, number);
            channel.finished(sender.connection, 1);
        }
    }

    /// The memory is the app's own: what it has asked for itself goes before what others send.
    fn retry_operation(&mut self, asker: Owner) -> Option<Tried> {
        self.peek(asker.channel).filter(|asking| asking.is_waiting(asker.connection))?;
        match self.advance_local(asker) {
            Ok(()) => {
                self.give_back_waiting(asker);
                self.leave_line_for_nothing(asker);
                let is_over = self.end_closed(asker);
                Some(if is_over { Tried::Done } else { Tried::Sent })
            }
            Err(Blocked::Memory) => Some(Tried::Refused),
            Err(Blocked::Window | Blocked::Size | Blocked::Copying) => Some(Tried::Done),
        }
    }

    /// What waited with others is over: the memory of those may be too much now.
    fn give_back_waiting(&mut self, asker: Owner) {
        if let Some(connection) = self.connection(asker)
            && let Some(exchange) = &mut connection.exchange
        {
            exchange.give_back_waiting();
        }
    }

    /// What an app has asked for is over, and may have found no room before. If it has read nothing
    /// now, its connection stands in line for what is sent to it, or for nothing.
    fn leave_line_for_nothing(&mut self, asker: Owner) {
        let sender = self.peer_of(asker).and_then(|sender| self.peek_local(sender));
        if sender.is_none_or(|local| local.waiting.is_empty())
            && let Some(channel) = self.channel(asker.channel)
        {
            channel.leave_line(asker.connection);
        }
    }

    /// A connection goes on that has waited for a copy. So does who sends to it: what was to be
    /// read there may have had all of its window, and comes no more.
    pub(crate) fn go_on_local(&mut self, asker: Owner) {
        if !self.end_closed(asker)
            && let None | Some(Tried::Sent) = self.retry_operation(asker)
        {
            self.try_waiting(asker);
        }
    }

    /// The first message that waited has been sent, or dropped.
    fn go_on(&mut self, sender: Owner) -> Tried {
        let Some(local) = self.local(sender) else { return Tried::Done };
        local.waiting.pop_front();
        give_back(&mut local.waiting);
        if !local.waiting.is_empty() {
            return Tried::Sent;
        }
        self.end_closed(sender);
        Tried::Done
    }

    /// Ends both sides if the app of `owner` has closed, and nothing waits any more.
    fn end_closed(&mut self, owner: Owner) -> bool {
        let asks = self.peek(owner.channel).is_some_and(|it| it.is_waiting(owner.connection));
        let is_over =
            self.local(owner).is_some_and(|local| local.closing && local.waiting.is_empty())
                && self.streams_of(owner).next().is_none();
        if is_over && !asks {
            self.end_local(owner, Code::Closed);
        }
        is_over && !asks
    }

    /// Closes in order: what was sent before still arrives, also by its streams.
    pub(crate) fn close_local(&mut self, owner: Owner) {
        for stream in self.streams_of(owner).collect::<Vec<_>>() {
            if let Some(channel) = self.channel(stream.channel) {
                channel.begin_close(stream.connection);
            }
            self.close_local(stream);
        }
        let Some(local) = self.local(owner) else { return };
        local.closing = true;
        if !self.end_closed(owner)
            && let Some(channel) = self.channel(owner.channel)
            && channel.is_waiting(owner.connection)
        {
            channel.try_soon(owner.connection);
        }
    }

    /// Ends both sides with all streams, and what they read and write. The app of `owner` is told
    /// that it closed, its peer `code`.
    pub(crate) fn end_local(&mut self, owner: Owner, code: Code) {
        for stream in self.streams_of(owner).collect::<Vec<_>>() {
            self.end_pair(stream, Code::Reset, code);
        }
        self.end_pair(owner, Code::Closed, code);
    }

    fn streams_of(&self, parent: Owner) -> impl Iterator<Item = Owner> {
        let streams = self.peek(parent.channel).map(|it| it.streams_of(parent.connection));
        streams.into_iter().flatten().map(move |connection| Owner { connection, ..parent })
    }

    /// Ends both sides of a connection without streams. The app of `owner` is told one code, its
    /// peer's the other. A connection that has waited for the end of its streams ends with the
    /// last.
    fn end_pair(&mut self, owner: Owner, near: Code, far: Code) {
        let Some(local) = self.local(owner) else { return };
        let ends = [(owner, near), (local.peer, far)];
        let mut parents = [None; 2];
        for ((end, code), parent) in ends.into_iter().zip(&mut parents) {
            let Some(local) = self.local(end) else { continue };
            *parent = local.parent.map(|connection| Owner { connection, ..end });
            if let Some(channel) = self.channel(end.channel) {
                channel.close(end.connection, code);
            }
        }
        parents.into_iter().flatten().for_each(|parent| _ = self.end_closed(parent));
    }

    /// The other end of a connection within this host.
    pub(crate) fn peer_of(&self, owner: Owner) -> Option<Owner> {
        self.peek_local(owner).map(|local| local.peer)
    }

    fn peek_local(&self, owner: Owner) -> Option<&Local> {
        self.peek(owner.channel)?.peek_connection(owner.connection)?.bearer.local()
    }
}
