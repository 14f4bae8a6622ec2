//! What apps ask for.

use clearway_base::{MILLISECOND, SECOND, Time};
use clearway_channel::{Command, OUTSTANDING_SENDS_MAX, SubmittedBytes, tcp_option};
use clearway_tcp::{Extent, KeepAlive, Settings};

use super::Tcp;
use super::books::PortPlace;
use crate::channels::{Channel, Channels};
use crate::common::Common;

/// Connections that may wait for the engine, at most, whatever an app says.
const BACKLOG_MAX: u32 = 4096;
/// What a peer may send at first, as a part of the app's receive pool, and when the app takes it
/// fast: as many connections can be unread at once before memory runs short.
const WINDOW_PARTS: u32 = 16;
const WINDOW_PARTS_MIN: u32 = 4;

impl Tcp {
    pub(super) fn take_command(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        command: Command,
    ) {
        match command {
            Command::TcpListen { port, backlog } => {
                self.listen(common, now, channel, port, backlog);
            }
            Command::TcpConnect { token, port, peer } => {
                let peer = clearway_channel::canonical(peer);
                self.connect(common, now, channel, token, port, peer);
            }
            Command::TcpShutdown { connection } => {
                if let Some(book) = self.books.find(channel, connection) {
                    self.stack.shutdown(book.key);
                }
            }
            Command::TcpClose { connection, abort } => {
                self.close(now, channel, connection, abort);
            }
            Command::TcpSet { connection, option, value } => {
                self.set(channel, connection, option, value);
            }
            Command::TcpSend { .. } => {} // see `take_bytes`
            _ => {}                       // of other components
        }
    }

    /// An app whose port was taken away meanwhile is told of that elsewhere.
    fn listen(&mut self, common: &mut Common, now: Time, channel: u32, number: u32, backlog: u32) {
        let app = common.channels.peek(channel).filter(|app| !app.has_left);
        let settings = app.map(|app| settings_of(channel, app));
        let (Some(settings), Some(port)) = (settings, self.ports.of(channel, number)) else {
            return;
        };
        let backlog = backlog.min(BACKLOG_MAX);
        match port.listener {
            _ if backlog == 0 => self.unlisten(common, now, number),
            Some(listener) => self.stack.set_listener(listener, backlog, settings),
            None => {
                let peers = port.spec.peers.clone();
                let (address, port) = (port.spec.address, port.spec.port);
                let mtu = common.host.own().mtu();
                let beside = self.stack.listeners_on(address, port).next();
                let listener = match beside {
                    Some(other) => self.stack.listen_beside(other, backlog, settings),
                    None => self.stack.listen(address, port, backlog, mtu, settings),
                };
                if let Ok(listener) = listener {
                    self.stack.set_listener_peers(listener, peers);
                    self.ports.set_listener(number, Some(listener));
                }
            }
        }
    }

    /// Takes bytes that an app sends.
    #[inline]
    pub(crate) fn take_bytes(
        &mut self,
        channels: &mut Channels,
        now: Time,
        channel: u32,
        bytes: SubmittedBytes,
    ) {
        let SubmittedBytes { connection, offset, length, has_more } = bytes;
        let extent = Extent { region: channel, offset, length };
        let Some(app) = channels.channel(channel) else { return };
        app.busy_at = now;
        let book = self.books.find(channel, connection);
        let Some(book) = book.filter(|book| self.stack.send(book.key, extent).is_ok()) else {
            // It has ended, which the app knows or is about to be told.
            return app.end.sends_finished(1);
        };
        book.submitted = book.submitted.wrapping_add(1);
        let key = book.key;
        if let Some(settings) = self.stack.settings(key).filter(|one| one.cork != has_more) {
            let settings = Settings { cork: has_more, ..*settings };
            self.stack.set_settings(key, settings);
        }
    }

    fn close(&mut self, now: Time, channel: u32, connection: u64, abort: bool) {
        let Some(book) = self.books.find(channel, connection) else { return };
        book.is_closing = true;
        let key = book.key;
        if abort { self.stack.abort(now, key) } else { self.stack.close(now, key) }
    }

    fn set(&mut self, channel: u32, connection: u64, option: u32, value: u32) {
        let Some(key) = self.books.find(channel, connection).map(|book| book.key) else { return };
        let Some(settings) = self.stack.settings(key) else { return };
        let mut settings = *settings;
        match option {
            tcp_option::NO_DELAY => settings.no_delay = value != 0,
            tcp_option::KEEP_ALIVE
            | tcp_option::KEEP_ALIVE_INTERVAL
            | tcp_option::KEEP_ALIVE_PROBES => {
                settings.keep_alive = keep_alive(settings.keep_alive, option, value);
            }
            tcp_option::USER_TIMEOUT => {
                let timeout_ns = u64::from(value) * MILLISECOND;
                settings.user_timeout_ns = (value != 0).then_some(timeout_ns);
            }
            tcp_option::TRAFFIC_CLASS => settings.ip.traffic_class = saturated(value),
            tcp_option::HOP_LIMIT => settings.ip.hop_limit = saturated(value.max(1)),
            tcp_option::MAXIMUM_SEGMENT => {
                settings.segment_bytes_max = Some(u16::try_from(value).unwrap_or(u16::MAX));
            }
            tcp_option::QUICK_ACKS => return self.stack.set_quick_acks(key, value != 0),
            _ => return,
        }
        self.stack.set_settings(key, settings);
    }

    /// The app has released buffers of connections.
    pub(crate) fn take_released(&mut self, common: &mut Common, now: Time) {
        while let Some(released) = common.channels.pop_released_bytes() {
            if let Some(key) = self.books.find_tag(released.channel, released.tag) {
                self.stack.release(key, released.bytes);
            }
        }
        self.tell(common, now);
    }

    /// What the app of a channel has not begun to open is not opened any more.
    pub(crate) fn forget_attempts(&mut self, channel: u32) {
        self.attempts.retain(|attempt| attempt.channel != channel);
    }

    /// Closes connections of a channel whose app has ended in good order, so many at most: those
    /// behind `closed`, which is then the last of them. Returns how many.
    pub(crate) fn close_connections(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        closed: &mut Option<PortPlace>,
        most: usize,
    ) -> usize {
        for count in 0..most {
            let Some((at, book)) = self.books.next_of(channel, *closed) else {
                self.tell(common, now);
                return count;
            };
            *closed = Some(at);
            book.is_closing = true;
            let key = book.key;
            // All is delivered once the FIN is acknowledged. The port would be kept from the app's
            // next run for as long as a peer leaves its own half open.
            if let Some(settings) = self.stack.settings(key) {
                self.stack.set_settings(key, Settings { fin_wait_ns: 0, ..*settings });
            }
            self.stack.close(now, key);
        }
        self.tell(common, now);
        most
    }

    /// Resets connections of a channel, so many at most. Returns how many.
    pub(crate) fn end_connections(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        most: usize,
    ) -> usize {
        let keys = self.books.of_channel(channel, most);
        for key in &keys {
            self.stack.abort(now, *key);
        }
        self.tell(common, now);
        keys.len()
    }

    /// How many connections a channel has.
    pub(crate) fn connections_of(&self, channel: u32) -> usize {
        self.books.count_of(channel) + self.attempts_of(channel)
    }

    /// Sends of a channel that are taken and not finished: for audits.
    pub(crate) fn sends_of(&self, channel: u32) -> u32 {
        self.books.outstanding_of(channel)
    }

    /// How many connections there are: for audits.
    pub(crate) fn count(&self) -> usize {
        self.books.count() + self.attempts.len()
    }
}

/// What becomes of a connection's keep-alive when one of its three options is set.
fn keep_alive(before: Option<KeepAlive>, option: u32, value: u32) -> Option<KeepAlive> {
    let set = before.unwrap_or_default();
    let value_ns = u64::from(value) * SECOND;
    match option {
        tcp_option::KEEP_ALIVE if value == 0 => None,
        tcp_option::KEEP_ALIVE => {
            // Who wants to know soon does not wait for a lost probe for long, either.
            let interval_ns = KeepAlive::default().interval_ns.min(value_ns);
            Some(KeepAlive { idle_ns: value_ns, interval_ns, ..set })
        }
        tcp_option::KEEP_ALIVE_INTERVAL => {
            Some(KeepAlive { interval_ns: value_ns.max(SECOND), ..set })
        }
        _ => Some(KeepAlive { probes: saturated(value.max(1)), ..set }),
    }
}

fn saturated(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// What is set for the connections of the app of a channel.
pub(super) fn settings_of(channel: u32, app: &Channel) -> Settings {
    let pool_bytes = app.end.sizes().receive_pool_bytes;
    let usual = Settings::default();
    Settings {
        account: channel,
        receive_buffer_bytes: usual.receive_buffer_bytes.min(pool_bytes / WINDOW_PARTS),
        receive_buffer_bytes_max: usual.receive_buffer_bytes_max.min(pool_bytes / WINDOW_PARTS_MIN),
        send_extents_max: OUTSTANDING_SENDS_MAX,
        ..usual
    }
}
