//! Receiving: messages, and everything else that the daemon tells.

use std::collections::VecDeque;
use std::time::Duration;

use clearway_base::copy;
use clearway_channel::{Completion, FrameRefusal, Received, Told, Unposted};

use crate::channel::Unwanted;
use crate::event::{Arrival, RawFrames, RawMessage};
use crate::{
    Accepted, AcceptedStream, Awaited, Channel, Code, ConnectionId, Error, Event, FramesSent,
    ListenerId, Message, Notified, RegionId, Token, VifId,
};

impl Channel {
    /// Receives the next message of any connection into `buffer`; which connection, and how many
    /// bytes. The end of a connection is an [`Error::Connection`], once, after its last message. A
    /// message that does not fit stays the next one.
    pub fn recv(
        &mut self,
        buffer: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<(ConnectionId, usize), Error> {
        let message = self.wait_for_message(timeout)?;
        let length = message.bytes.length() as usize;
        let Some(place) = buffer.get_mut(..length) else {
            self.inbox.push_front(Arrival::Message(message));
            return Err(Error::BufferTooSmall { length, room: buffer.len() });
        };
        copy(place, self.end.receive_bytes(&message.bytes));
        self.end.release(message.bytes);
        Ok((message.connection, length))
    }

    /// Receives the next message of any connection in place.
    pub fn recv_zero_copy(&mut self, timeout: Option<Duration>) -> Result<Message, Error> {
        let message = self.wait_for_message(timeout)?;
        Ok(self.in_place(message))
    }

    /// Receives the next message of one connection into `buffer`. Meant for a few connections: what
    /// comes by others meanwhile is kept, and looked through each time.
    pub fn recv_from(
        &mut self,
        connection: ConnectionId,
        buffer: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        let awaited = Awaited::MessageOf { connection, peer: None };
        let (at, message) =
            self.wait_for(timeout, awaited, |channel| channel.next_message_of(connection))?;
        let length = message.bytes.length() as usize;
        let Some(place) = buffer.get_mut(..length) else {
            self.inbox.insert(at, Arrival::Message(message));
            return Err(Error::BufferTooSmall { length, room: buffer.len() });
        };
        copy(place, self.end.receive_bytes(&message.bytes));
        self.end.release(message.bytes);
        Ok(length)
    }

    /// Gives a message's memory back; the same as dropping it, but faster.
    #[inline]
    pub fn release(&mut self, message: Message) {
        self.end.release_buffer(message.buffer);
    }

    /// Whatever happens next. Connections are told of before their messages.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Event, Error> {
        if let Some(message) = self.next_message_in_turn() {
            return Ok(Event::Message(message));
        }
        self.wait_for(timeout, Awaited::Event, |channel| match channel.next_new() {
            Ok(None) => Ok(channel.tcp_next_again()),
            event => event,
        })
    }

    /// Waits until something happens, as [`next_event`](Self::next_event) does, and appends all
    /// that has happened by then to `events`: `most` at most, at least one. Each connection of TCP
    /// that is watched ([`tcp_watch`](Self::tcp_watch)) is told of again once at most. Returns how
    /// many there are. Nothing is waited for, and nothing taken, if `most` is 0.
    pub fn next_events(
        &mut self,
        events: &mut Vec<Event>,
        most: usize,
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        let before = events.len();
        let full = before.saturating_add(most);
        if most == 0 {
            return Ok(0);
        }
        self.wait_for(timeout, Awaited::Event, |channel| {
            channel.take_events(events, full)?;
            let count = events.len() - before;
            Ok((count > 0).then_some(count))
        })
    }

    /// Appends what there is, until there are `full`. What ends the channel is told only if there
    /// is nothing else, and at each look from then on.
    fn take_events(&mut self, events: &mut Vec<Event>, full: usize) -> Result<(), Error> {
        let before = events.len();
        while events.len() < full {
            match self.next_new() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) if events.len() == before => return Err(error),
                Err(error) => {
                    self.gone.get_or_insert_with(|| (error.code(), error.to_string()));
                    break;
                }
            }
        }
        self.tcp_take_again(events, full);
        Ok(())
    }

    /// What has happened and was not told.
    fn next_new(&mut self) -> Result<Option<Event>, Error> {
        self.look_for_ring_room();
        if std::mem::take(&mut self.has_room_again) {
            return Ok(Some(Event::Writable));
        }
        if let Some(event) = self.tcp_next_event() {
            return Ok(Some(event));
        }
        match self.next_of_all() {
            Ok(Some(arrival)) => self.event_of(arrival).map(Some),
            // What was in the ring has been told of, and some of it may have been of TCP.
            nothing => match self.tcp_next_event() {
                None => nothing.map(|_| None),
                event => Ok(event),
            },
        }
    }

    /// What happens next, if it is a message, and in the ring.
    #[inline(always)] // As `next_received`.
    pub(crate) fn next_message_in_turn(&mut self) -> Option<Message> {
        let is_next = self.ring_room_wanted == 0 && self.has_told_all();
        let message = if is_next { self.next_received() } else { None }?;
        Some(self.in_place(message))
    }

    /// The app knows of all that was in the ring.
    #[inline]
    pub(crate) fn has_told_all(&self) -> bool {
        let queues = [&self.connected, &self.inbox, &self.frames];
        !self.has_room_again
            && queues.into_iter().all(VecDeque::is_empty)
            && self.accepted.is_empty()
            && self.accepted_streams.is_empty()
            && self.operations.is_quiet()
            && self.posts.is_quiet()
            && self.tcp.is_quiet()
    }

    fn event_of(&mut self, arrival: Arrival) -> Result<Event, Error> {
        Ok(match arrival {
            Arrival::Accepted(accepted) => Event::Accepted(accepted),
            Arrival::StreamAccepted(accepted) => Event::StreamAccepted(accepted),
            Arrival::Connected { token, connection, peer } => {
                Event::Connected { token, connection, peer }
            }
            Arrival::ConnectFailed { token, code } => Event::ConnectFailed { token, code },
            Arrival::Message(message) => Event::Message(self.in_place(message)),
            Arrival::Dropped { connection, message } => Event::Dropped { connection, message },
            Arrival::Skipped { connection, messages } => Event::Skipped { connection, messages },
            Arrival::PostEnded(end) => Event::PostEnded(end),
            Arrival::Closed { connection, code, .. } => Event::Closed { connection, code },
            Arrival::Frames(frames) => Event::Frames(self.frames_in_place(frames)?),
            Arrival::VifClosed { vif, code } => Event::VifClosed { vif, code },
            Arrival::Operated(over) => Event::Operated(self.operated_in_place(over)),
            Arrival::Notified(notified) => Event::Notified(notified),
        })
    }

    #[inline]
    fn in_place(&self, message: RawMessage) -> Message {
        let RawMessage { connection, bytes } = message;
        Message { connection, buffer: self.end.receive_buffer(bytes) }
    }

    fn next_of_all(&mut self) -> Result<Option<Arrival>, Error> {
        if let Some(accepted) = self.accepted.pop_front() {
            return Ok(Some(Arrival::Accepted(accepted)));
        }
        if let Some(accepted) = self.accepted_streams.pop_front() {
            return Ok(Some(Arrival::StreamAccepted(accepted)));
        }
        if let Some(passed) = self.posts.next_passed() {
            return Ok(Some(Arrival::PostEnded(passed)));
        }
        let queues = [&mut self.connected, &mut self.inbox, &mut self.frames];
        let kept = queues.into_iter().find_map(VecDeque::pop_front);
        let kept = kept.or_else(|| self.next_queued_operation());
        if kept.is_some() { Ok(kept) } else { self.next_arrival() }
    }

    /// The next message. Mostly it stands in the ring, and there is nothing to wait for.
    #[inline]
    fn wait_for_message(&mut self, timeout: Option<Duration>) -> Result<RawMessage, Error> {
        if self.inbox.is_empty()
            && let Some(message) = self.next_received()
        {
            return Ok(message);
        }
        self.wait_for(timeout, Awaited::Message, Self::next_message)
    }

    /// The next message, or the end of a connection as an error.
    #[inline]
    fn next_message(&mut self) -> Result<Option<RawMessage>, Error> {
        while let Some(arrival) = self.inbox.pop_front() {
            if let Arrival::PostEnded(end) = arrival {
                self.posts.pass(end);
            } else if let found @ (Ok(Some(_)) | Err(_)) = message_of(arrival) {
                return found;
            }
        }
        loop {
            match self.next_in_ring()? {
                Some(arrival @ (Arrival::Message(_) | Arrival::Closed { .. })) => {
                    return message_of(arrival);
                }
                Some(Arrival::PostEnded(end)) => self.posts.pass(end),
                Some(other) => self.queue(other),
                None if !self.host.turn() => return self.nothing_new(),
                None => {}
            }
            if let Some(message) = self.next_received() {
                return Ok(Some(message));
            }
        }
    }

    /// The next message in the ring, if nothing else comes before it.
    #[inline(always)] // To call it costs a quarter of what it does.
    fn next_received(&mut self) -> Option<RawMessage> {
        while let Some(received) = self.end.next_received() {
            if let Some(message) = self.message(received) {
                return Some(message);
            }
        }
        None
    }

    /// What was received, unless the app is done with its connection.
    #[inline]
    fn message(&mut self, received: Received) -> Option<RawMessage> {
        let Received { connection, sent, bytes, .. } = received;
        let connection = ConnectionId::from_u64(connection);
        if self.finish_sends(connection, sent) {
            return Some(RawMessage { connection, bytes });
        }
        self.end.release(bytes);
        None
    }

    /// The next message of a connection, and where in the inbox it was.
    fn next_message_of(
        &mut self,
        wanted: ConnectionId,
    ) -> Result<Option<(usize, RawMessage)>, Error> {
        let found = self.gather_until(|channel| {
            let at = channel.inbox.iter().position(|arrival| match arrival {
                Arrival::Message(RawMessage { connection, .. })
                | Arrival::Closed { connection, .. } => *connection == wanted,
                _ => false,
            })?;
            Some((at, channel.inbox.remove(at)?))
        })?;
        match found {
            Some((at, arrival)) => Ok(message_of(arrival)?.map(|message| (at, message))),
            None if self.connections.find_open(wanted).is_none() => {
                Err(Error::Connection { connection: wanted, code: Code::Closed })
            }
            None => Ok(None),
        }
    }

    /// Takes everything that waits in the ring into the queues.
    pub(crate) fn gather(&mut self) -> Result<(), Error> {
        while let Some(arrival) = self.next_arrival()? {
            self.queue(arrival);
        }
        Ok(())
    }

    /// Takes what waits in the ring into the queues; if nothing does, has an embedded engine work.
    /// False if nothing has come of either.
    pub(crate) fn take_ring(&mut self) -> Result<bool, Error> {
        let mut has_come = false;
        while let Some(told) = self.end.next_told()? {
            has_come = true;
            if let Some(arrival) = self.handle(told) {
                self.queue(arrival);
            }
        }
        Ok(has_come || self.host.turn() || self.nothing_new::<()>()?.is_some())
    }

    /// Takes what waits in the ring into the queues, until `take` finds something there.
    pub(crate) fn gather_until<T>(
        &mut self,
        take: impl Fn(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        loop {
            if let Some(found) = take(self) {
                return Ok(Some(found));
            }
            match self.next_arrival()? {
                Some(arrival) => self.queue(arrival),
                None => return Ok(None),
            }
        }
    }

    pub(crate) fn queue(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Accepted(accepted) => self.accepted.push_back(accepted),
            Arrival::StreamAccepted(accepted) => self.accepted_streams.push_back(accepted),
            Arrival::Connected { .. } | Arrival::ConnectFailed { .. } => {
                self.connected.push_back(arrival);
            }
            Arrival::Message(_)
            | Arrival::Dropped { .. }
            | Arrival::Skipped { .. }
            | Arrival::PostEnded(_)
            | Arrival::Closed { .. } => self.inbox.push_back(arrival),
            Arrival::Frames(_) | Arrival::VifClosed { .. } => self.frames.push_back(arrival),
            Arrival::Operated(over) => self.queue_operated(over),
            Arrival::Notified(notified) => self.queue_notified(notified),
        }
    }

    /// The next thing in the ring that concerns the app. An error when the ring is empty and will
    /// stay so, for the daemon is gone.
    #[inline]
    pub(crate) fn next_arrival(&mut self) -> Result<Option<Arrival>, Error> {
        loop {
            if let Some(arrival) = self.next_in_ring()? {
                return Ok(Some(arrival));
            }
            if !self.host.turn() {
                return self.nothing_new();
            }
        }
    }

    /// The same without a turn of an embedded engine.
    fn next_in_ring(&mut self) -> Result<Option<Arrival>, Error> {
        while let Some(told) = self.end.next_told()? {
            if let Some(arrival) = self.handle(told) {
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    /// The ring is empty: an error if it will stay so.
    #[inline]
    fn nothing_new<T>(&mut self) -> Result<Option<T>, Error> {
        if self.gone.is_some() || self.end.is_closed() {
            return Err(self.gone_error());
        }
        if self.has_unwanted() {
            self.close_unwanted();
        }
        Ok(None)
    }

    /// Something is to be given back, as soon as the ring has room.
    #[inline]
    pub(crate) fn has_unwanted(&self) -> bool {
        !self.unwanted.is_empty() || self.tcp.has_unwanted()
    }

    /// Gives back what nobody waits for any more, as far as there is room.
    #[cold]
    pub(crate) fn close_unwanted(&mut self) {
        self.tcp_close_unwanted();
        while !self.unwanted.is_empty() && self.end.has_room() {
            let Some(unwanted) = self.unwanted.pop() else { break };
            self.submit(&unwanted.command());
        }
    }

    #[inline]
    fn handle(&mut self, told: Told) -> Option<Arrival> {
        match told {
            Told::Message(received) => self.message(received).map(Arrival::Message),
            Told::Other(Completion::Sent { connection, sent }) => {
                self.finish_sends(ConnectionId::from_u64(connection), sent);
                None
            }
            Told::Frames { vif, count, bytes } => {
                let vif = VifId(vif);
                if self.vifs.find(vif).is_some() {
                    return Some(Arrival::Frames(RawFrames { vif, count, bytes }));
                }
                self.end.release(bytes);
                None
            }
            Told::Other(Completion::FramesSent { vif, bursts, sent, rejected, reason }) => {
                let reason = FrameRefusal::from_u8(reason);
                self.finish_bursts(VifId(vif), bursts, FramesSent { sent, rejected, reason });
                None
            }
            Told::Bytes(received) => {
                self.tcp_received(received);
                None
            }
            Told::Operated(over) => Some(Arrival::Operated(self.take_operated(over))),
            Told::Other(other) => self.handle_rare(other),
        }
    }

    #[cold]
    fn handle_rare(&mut self, completion: Completion) -> Option<Arrival> {
        match completion {
            Completion::Connected { token, connection, peer } => {
                self.connected(Token::from_u64(token), ConnectionId::from_u64(connection), peer)
            }
            Completion::ConnectFailed { token, code } => {
                let token = Token::from_u64(token);
                let attempt = self.connecting.remove(&token)?;
                (!attempt.is_abandoned).then_some(Arrival::ConnectFailed { token, code })
            }
            Completion::Accepted { listener, connection, peer } => {
                let (listener, connection) =
                    (ListenerId(listener), ConnectionId::from_u64(connection));
                self.connections.insert(connection, peer, false);
                Some(Arrival::Accepted(Accepted { listener, connection, peer }))
            }
            Completion::StreamAccepted { connection, parent } => {
                let (connection, parent) =
                    (ConnectionId::from_u64(connection), ConnectionId::from_u64(parent));
                let peer = self.connections.find(parent)?.peer;
                self.connections.insert(connection, peer, false);
                Some(Arrival::StreamAccepted(AcceptedStream { connection, parent }))
            }
            Completion::Dropped { connection, send: message } => {
                let connection = ConnectionId::from_u64(connection);
                self.connections.find_open(connection)?;
                Some(Arrival::Dropped { connection, message })
            }
            Completion::Skipped { connection, messages } => {
                let connection = ConnectionId::from_u64(connection);
                self.connections.find_open(connection)?;
                Some(Arrival::Skipped { connection, messages })
            }
            Completion::Placed { connection, tag, length, sent } => {
                let connection = ConnectionId::from_u64(connection);
                self.finish_sends(connection, sent);
                Some(Arrival::PostEnded(self.post_ended(connection, tag, Ok(length))))
            }
            Completion::Unposted { why, connection, tag } => {
                let connection = ConnectionId::from_u64(connection);
                let outcome = Err(Unposted::of(why));
                Some(Arrival::PostEnded(self.post_ended(connection, tag, outcome)))
            }
            Completion::Closed { connection, code, .. } => {
                self.closed(ConnectionId::from_u64(connection), code)
            }
            Completion::VifClosed { vif, code } => {
                self.tcp_drop_port(vif, code);
                let vif = VifId(vif);
                self.drop_vif(vif).then_some(Arrival::VifClosed { vif, code })
            }
            Completion::Notified { connection, region, place: offset, bytes: length, value } => {
                let connection = ConnectionId::from_u64(connection);
                let region = RegionId::from_u64(region);
                Some(Arrival::Notified(Notified { connection, region, offset, length, value }))
            }
            answer @ (Completion::Shared { .. }
            | Completion::Unshared { .. }
            | Completion::GroupSet { .. }) => {
                self.take_shared_answer(&answer);
                None
            }
            Completion::Received { .. }
            | Completion::Operated { .. }
            | Completion::Sent { .. }
            | Completion::Frames { .. }
            | Completion::FramesSent { .. } => None,
            of_tcp => {
                self.tcp_told(of_tcp);
                None
            }
        }
    }

    fn connected(
        &mut self,
        token: Token,
        connection: ConnectionId,
        peer: std::net::SocketAddr,
    ) -> Option<Arrival> {
        let attempt = self.connecting.remove(&token);
        let dialled = attempt.map_or(peer, |attempt| attempt.peer);
        let is_own = attempt.is_some_and(|attempt| !attempt.is_stream);
        self.connections.insert(connection, dialled, is_own);
        if attempt.is_some_and(|attempt| !attempt.is_abandoned) {
            return Some(Arrival::Connected { token, connection, peer });
        }
        self.connections.close(connection);
        self.unwanted.push(Unwanted::Connection(connection));
        None
    }

    fn closed(&mut self, connection: ConnectionId, code: Code) -> Option<Arrival> {
        let mut ended = self.connections.remove(connection)?;
        let (peer, sends_outstanding) = (ended.peer, ended.outstanding.len() as u32);
        ended.outstanding.drain(..).for_each(|extent| self.end.free(extent));
        self.sends_are_over(sends_outstanding);
        let is_open = !ended.is_closing;
        is_open.then_some(Arrival::Closed { connection, code, peer, sends_outstanding })
    }

    /// Frees what was sent and is finished. False if the app is done with the connection.
    #[inline]
    fn finish_sends(&mut self, connection: ConnectionId, sent: u32) -> bool {
        let Some(found) = self.connections.find(connection) else { return false };
        let mut finished = 0;
        while let Some(extent) = found.next_finished(sent) {
            self.end.free(extent);
            finished += 1;
        }
        let is_open = !found.is_closing;
        self.sends_are_over(finished);
        is_open
    }

    #[inline]
    pub(crate) fn sends_are_over(&mut self, sends: u32) {
        self.sends_outstanding -= sends;
        if sends > 0 {
            self.room_is_made();
        }
    }

    /// Whoever found no room is to try again.
    #[inline]
    pub(crate) fn room_is_made(&mut self) {
        if self.wants_room {
            self.wants_room = false;
            self.has_room_again = true;
        }
    }
}

/// A message, or the end of a connection as an error. Nothing of what was dropped.
fn message_of(arrival: Arrival) -> Result<Option<RawMessage>, Error> {
    match arrival {
        Arrival::Message(message) => Ok(Some(message)),
        Arrival::Closed { connection, code, .. } => Err(Error::Connection { connection, code }),
        _ => Ok(None),
    }
}
