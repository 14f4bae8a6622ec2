//! What apps are told: connections that have come, bytes, sends that are finished, ends.

use std::net::{IpAddr, Ipv6Addr};

use clearway_base::{SlotId, Time};
use clearway_channel::{Code, Completion};
use clearway_tcp::{End, Event, Info, Listener, Readiness, Stack};

use super::Tcp;
use super::books::{self, Book};
use super::{joined, memory};
use crate::channels::{Channel, Channels};
use crate::common::{Common, Via};

impl Tcp {
    /// Tells of all that has happened to the stack.
    #[inline]
    pub(super) fn tell(&mut self, common: &mut Common, now: Time) {
        self.tell_after(common, now, Via::Host);
    }

    /// The same, after segments that came in this way.
    #[inline]
    pub(super) fn tell_after(&mut self, common: &mut Common, now: Time, via: Via) {
        if self.stack.has_events() {
            self.tell_events(common, now, via == Via::QueueAndLane);
        }
    }

    #[inline(never)] // Most often there is nothing, and that costs a test.
    fn tell_events(&mut self, common: &mut Common, now: Time, is_detour: bool) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Acceptable(listener) => self.accept(&mut common.channels, now, listener),
                Event::Connection(key, readiness) => {
                    if readiness.contains(Readiness::OPEN) {
                        let is_detour = is_detour && !self.is_elsewhere(&common.host, key);
                        self.tell_connected(&mut common.channels, key, is_detour);
                    }
                    self.tell_of(&mut common.channels, now, key, readiness);
                }
            }
        }
    }

    /// Gives what a listener has to its app; what that has no room for is reset.
    fn accept(&mut self, channels: &mut Channels, now: Time, listener: Listener) {
        while let Some(key) = self.stack.accept(listener) {
            let found = self.ports.of_listener(listener);
            let info = self.stack.info(key);
            let (Some((channel, port)), Some(Info { local, remote, .. })) = (found, info) else {
                self.drop_connection(channels, now, key, None);
                continue;
            };
            let connections = self.books.count_of(channel);
            let app = channels.channel(channel).filter(|app| {
                !app.has_too_much_pending() && connections < app.connections_max() as usize
            });
            let Some(app) = app else {
                channels.counters.connections_refused += 1;
                self.drop_connection(channels, now, key, Some(channel));
                continue;
            };
            self.books.open(key, channel, port, None);
            joined::meet(&mut self.books, &self.stack, key);
            app.tell(Completion::TcpAccepted {
                connection: books::id(key),
                port,
                peer: remote,
                local: as_ipv6(local.ip()),
            });
        }
    }

    fn drop_connection(
        &mut self,
        channels: &mut Channels,
        now: Time,
        key: SlotId,
        channel: Option<u32>,
    ) {
        self.stack.abort(now, key);
        self.stack.forget(
            now,
            key,
            &mut memory::idle(channels, &mut self.books, &self.ports, channel),
        );
    }

    #[inline]
    fn tell_of(&mut self, channels: &mut Channels, now: Time, key: SlotId, readiness: Readiness) {
        self.tell_moved(channels, key, readiness.contains(Readiness::READABLE));
        if readiness.contains(Readiness::FINISHED) {
            self.tell_finished(channels, key);
        }
        if readiness.contains(Readiness::CLOSED) {
            self.end(channels, now, key);
        }
    }

    fn tell_connected(&mut self, channels: &mut Channels, key: SlotId, is_detour: bool) {
        joined::meet(&mut self.books, &self.stack, key);
        let Some(book) = self.books.get_mut(key) else { return };
        let Some(local) = self.stack.info(key).map(|info| info.local) else { return };
        if let Some(token) = book.connecting.take()
            && let Some(app) = channels.channel(book.channel)
        {
            let connection = books::id(key);
            app.tell(Completion::TcpConnected { is_detour, token, connection, local });
        }
    }

    /// Tells of bytes that have come, if there are some, and of sends that are finished.
    fn tell_moved(&mut self, channels: &mut Channels, key: SlotId, has_received: bool) {
        let Some(book) = self.books.get_mut(key) else { return };
        let Some(app) = channels.channel(book.channel) else { return };
        let mut finished = 0;
        // The rest of one that is over is given back with its end: who lingers, and looks at any
        // moment, would take it for acknowledged.
        while self.stack.pop_acknowledged(key).is_some() {
            finished += 1;
        }
        if finished > 0 {
            self.paths.confirm(key);
            app.end.sends_finished(finished);
            book.sent = book.sent.wrapping_add(finished);
        }
        if has_received {
            tell_received(&mut self.stack, book, app);
        }
        // What was received has said so, too.
        if book.sent != book.sent_told && !book.is_closing {
            book.sent_told = book.sent;
            app.tell(Completion::TcpSent { connection: books::id(key), sent: book.sent });
        }
        if has_received && self.books.ahead_bytes(key) > 0 {
            self.books.set_ahead(key, self.stack.ahead_bytes(key));
        }
    }

    fn tell_finished(&mut self, channels: &mut Channels, key: SlotId) {
        let Some(book) = self.books.get_mut(key) else { return };
        let Some(app) = channels.channel(book.channel) else { return };
        if !core::mem::replace(&mut book.is_finished, true) && !book.is_closing {
            app.tell(Completion::TcpFinished { connection: books::id(key) });
        }
    }

    /// A connection is over: its sends are, too.
    fn end(&mut self, channels: &mut Channels, now: Time, key: SlotId) {
        let end = self.stack.status(key).and_then(|status| status.end);
        let is_finished = self.stack.status(key).is_some_and(|status| status.is_finished);
        let Some(&Book { channel, port, .. }) = self.books.get(key) else { return };
        let code = match end {
            // By its app, or with its port, of which the app may not know.
            Some(End::Aborted) => self.ports.told(channel, port).unwrap_or(Code::Closed),
            end => code_of(end),
        };
        if is_finished {
            self.tell_finished(channels, key);
        }
        while self.stack.pop_sent(key).is_some() {} // what was never acknowledged, too
        let memory = &mut memory::idle(channels, &mut self.books, &self.ports, Some(channel));
        self.stack.forget(now, key, memory);
        let Some(book) = self.books.remove(key) else { return };
        self.part(channels, &book);
        let Book { connecting, submitted, sent, .. } = book;
        let Some(app) = channels.channel(channel) else { return };
        app.end.sends_finished(submitted.wrapping_sub(sent));
        app.tell(match connecting {
            Some(token) => Completion::TcpConnectFailed { token, code },
            None => Completion::TcpClosed { connection: books::id(key), code, sent },
        });
    }
}

/// As completions have an address alone.
fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[inline]
fn tell_received(stack: &mut Stack, book: &mut Book, app: &mut Channel) {
    while let Some(extent) = stack.recv(book.key) {
        book.received += u64::from(extent.length);
        if book.is_closing {
            app.throw_away(extent.region);
            stack.release(book.key, extent.length.into());
            continue;
        }
        book.sent_told = book.sent;
        app.tell(Completion::TcpReceived {
            connection: books::id(book.key),
            offset: extent.offset,
            length: extent.length,
            buffer: extent.region,
            sent: book.sent,
        });
    }
}

/// Why a connection is no more, as the app's code.
const fn code_of(end: Option<End>) -> Code {
    match end {
        None | Some(End::Orderly | End::Aborted) => Code::Closed,
        Some(End::Refused) => Code::Refused,
        Some(End::Reset) => Code::Reset,
        Some(End::TimedOut) => Code::Lost,
        Some(End::Unreachable) => Code::Unreachable,
    }
}
