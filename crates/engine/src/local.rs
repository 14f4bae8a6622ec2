//! Connections between two apps of this host: one copy from pool to pool, no packets. Flow
//! control is the same as on the wire: what the receiving app has not released is bounded by its
//! window, and what is beyond that waits in the sender's own pool.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clearway_channel::{Code, Completion};
use clearway_transport::{MESSAGE_OVERHEAD, Owner};

use crate::channels::{Channels, Link, Local, Stage, to_channel};

/// Why a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// The app that it is for has as much unread as it may, or is gone.
    Window,
    /// There is no room in that app's pool, or somebody else has a claim to it.
    Memory,
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

fn link(peer: Owner) -> Link {
    Link::Local(Local { peer, waiting: VecDeque::new(), held: 0, closing: false, ending: None })
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
        let refuse = |channels: &mut Self, code| {
            if let Some(channel) = channels.channel(channel) {
                channel.tell(Completion::ConnectFailed { token, code });
            }
        };
        if !self.listens_at(listener, peer.ip()) {
            return refuse(self, Code::Refused);
        }
        let client = SocketAddr::new(peer.ip(), 0);
        let nobody = Owner { channel: u32::MAX, connection: 0 };
        let Some(near) = self.channel(channel).and_then(|c| c.open(peer, link(nobody), None))
        else {
            self.counters.connections_refused += 1;
            return refuse(self, Code::Limit);
        };
        let near_owner = Owner { channel, connection: near };
        let far =
            self.channel(listener.channel).and_then(|c| c.open(client, link(near_owner), None));
        let Some(far) = far else {
            self.counters.connections_refused += 1;
            if let Some(channel) = self.channel(channel) {
                channel.remove(near);
            }
            return refuse(self, Code::Refused);
        };
        if let Some(local) = self.local(near_owner) {
            local.peer = Owner { channel: listener.channel, connection: far };
        }
        if let Some(server) = self.channel(listener.channel) {
            let connection = server.id(far);
            let listener = listener.connection;
            server.tell(Completion::Accepted { listener, connection, peer: client });
        }
        if let Some(client) = self.channel(channel) {
            let connection = client.id(near);
            client.tell(Completion::Connected { token, connection, peer });
        }
    }

    pub(crate) fn local(&mut self, owner: Owner) -> Option<&mut Local> {
        self.channel(owner.channel)?.local(owner.connection)
    }

    /// Sends a message to an app of this host. One that has operations in front of it waits.
    pub(crate) fn send_or_hold(&mut self, owner: Owner, offset: u32, length: u32) {
        let Some(channel) = self.channel(owner.channel) else { return };
        let stage = channel.connection(owner.connection).map(|connection| connection.stage);
        if stage == Some(Stage::Behind) {
            return channel.hold(owner.connection, offset, length);
        }
        self.send_local(owner, offset, length);
    }

    /// Sends a message, or keeps it until the peer has room.
    pub(crate) fn send_local(&mut self, owner: Owner, offset: u32, length: u32) {
        let Some(local) = self.local(owner) else { return };
        let peer = local.peer;
        let must_wait =
            !local.waiting.is_empty() || self.copy(owner, peer, offset, length).is_err();
        if must_wait && let Some(local) = self.local(owner) {
            local.waiting.push_back((offset, length));
        }
    }

    /// The one copy.
    fn copy(&mut self, from: Owner, to: Owner, offset: u32, length: u32) -> Result<(), Blocked> {
        let positions = MESSAGE_OVERHEAD + u64::from(length);
        let receiver = self.channel(to.channel).ok_or(Blocked::Window)?;
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

    /// The app has released so many messages, of so many bytes in all: what waited for that may
    /// have room.
    pub(crate) fn release_local(&mut self, owner: Owner, messages: u32, bytes: u64) {
        let Some(local) = self.local(owner) else { return };
        let positions = u64::from(messages) * MESSAGE_OVERHEAD + bytes;
        local.held = local.held.saturating_sub(positions);
        let sender = local.peer;
        let asks = self.peek(owner.channel).is_some_and(|it| it.is_waiting(owner.connection));
        let is_ready = asks || self.local(sender).is_some_and(|local| !local.waiting.is_empty());
        if is_ready && let Some(receiver) = self.channel(owner.channel) {
            receiver.try_soon(owner.connection);
        }
    }

    /// Memory of this channel may have become free: senders of this host that wait for it are tried
    /// in turn, until one finds none, and `tries_max` at most. Returns how many were.
    pub(crate) fn retry_senders_to(&mut self, channel: u32, tries_max: usize) -> usize {
        for tries in 0..tries_max {
            let slot = self.channel(channel).and_then(|receiver| receiver.next_to_try());
            let Some(slot) = slot else { return tries };
            let tried = self.retry(Owner { channel, connection: slot });
            let Some(receiver) = self.channel(channel) else { return tries + 1 };
            let all_are_tried = receiver.tried(slot, tried != Tried::Done);
            if tried == Tried::Refused && !all_are_tried {
                return tries + 1;
            }
        }
        tries_max
    }

    /// Tries the next message to `receiver` once more.
    fn retry(&mut self, receiver: Owner) -> Tried {
        self.counters.messages_retried += 1;
        if let Some(tried) = self.retry_operation(receiver) {
            return tried;
        }
        let Some(sender) = self.local(receiver).map(|local| local.peer) else { return Tried::Done };
        let next = self.local(sender).and_then(|local| local.waiting.front().copied());
        let Some((offset, length)) = next else { return Tried::Done };
        match self.copy(sender, receiver, offset, length) {
            Ok(()) => self.go_on(sender),
            Err(Blocked::Memory) => Tried::Refused,
            Err(Blocked::Window | Blocked::Copying) => Tried::Done,
        }
    }

    /// The memory is the app's own: what it has asked for itself goes before what others send.
    fn retry_operation(&mut self, asker: Owner) -> Option<Tried> {
        self.peek(asker.channel).filter(|asking| asking.is_waiting(asker.connection))?;
        match self.advance_local(asker) {
            Ok(()) => {
                let is_over = self.end_closed(asker);
                Some(if is_over { Tried::Done } else { Tried::Sent })
            }
            Err(Blocked::Memory) => Some(Tried::Refused),
            Err(Blocked::Window | Blocked::Copying) => Some(Tried::Done),
        }
    }

    /// A connection goes on that has waited for a copy.
    pub(crate) fn go_on_local(&mut self, asker: Owner) {
        if !self.end_closed(asker)
            && self.retry_operation(asker) == Some(Tried::Sent)
            && let Some(channel) = self.channel(asker.channel)
            && channel.is_waiting(asker.connection)
        {
            channel.try_soon(asker.connection);
        }
    }

    /// The first message that waited has been sent.
    fn go_on(&mut self, sender: Owner) -> Tried {
        let Some(local) = self.local(sender) else { return Tried::Done };
        local.waiting.pop_front();
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
            self.local(owner).is_some_and(|local| local.closing && local.waiting.is_empty());
        if is_over && !asks {
            self.end_local(owner, Code::Closed);
        }
        is_over && !asks
    }

    /// Closes in order: what was sent before still arrives.
    pub(crate) fn close_local(&mut self, owner: Owner) {
        let Some(local) = self.local(owner) else { return };
        local.closing = true;
        if !self.end_closed(owner)
            && let Some(channel) = self.channel(owner.channel)
            && channel.is_waiting(owner.connection)
        {
            channel.try_soon(owner.connection);
        }
    }

    /// Ends both sides now, or as soon as what they are writing is written. The app of `owner` is
    /// told that it closed, its peer `code`.
    pub(crate) fn end_local(&mut self, owner: Owner, code: Code) {
        let Some(peer) = self.peer_of(owner) else { return };
        if self.is_writing(owner) || self.is_writing(peer) {
            if let Some(local) = self.local(owner) {
                local.ending.get_or_insert(code);
            }
            return;
        }
        if let Some(channel) = self.channel(owner.channel) {
            channel.close(owner.connection, Code::Closed);
        }
        if let Some(channel) = self.channel(peer.channel) {
            channel.close(peer.connection, code);
        }
    }

    /// True if a connection has been ended, and waits for what is being written.
    pub(crate) fn is_ending(&self, owner: Owner) -> bool {
        let near = self.peek_local(owner);
        let far = near.and_then(|near| self.peek_local(near.peer));
        [near, far].into_iter().flatten().any(|local| local.ending.is_some())
    }

    /// The other end of a connection within this host.
    pub(crate) fn peer_of(&self, owner: Owner) -> Option<Owner> {
        self.peek_local(owner).map(|local| local.peer)
    }

    fn peek_local(&self, owner: Owner) -> Option<&Local> {
        self.peek(owner.channel)?.peek_connection(owner.connection)?.link.local()
    }

    /// A write is over: its connection ends now if it has been ended meanwhile.
    pub(crate) fn end_late(&mut self, asker: Owner) {
        let Some(peer) = self.peer_of(asker) else { return };
        for owner in [asker, peer] {
            if let Some(code) = self.local(owner).and_then(|local| local.ending) {
                self.end_local(owner, code);
            }
        }
    }
}
