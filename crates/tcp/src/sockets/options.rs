//! What can be set of a socket.

use crate::config::{FastOpen, KeepAlive, Settings};
use crate::connection::Status;
use crate::fast_open::FastOpenKeys;

/// What is set for a socket. Those that a listener accepts have the same at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// What is set for its connection, but for what stands below.
    pub settings: Settings,
    /// SO_KEEPALIVE, and what it means.
    pub keeps_alive: bool,
    /// See `keeps_alive`.
    pub keep_alive: KeepAlive,
    /// A listener takes congestion notification from peers, even if connections do not ask for it.
    pub accepts_ecn: bool,
    /// The same of accurate feedback (RFC 9768).
    pub accepts_accurate_ecn: bool,
    /// The port may be had by others, too, that say so and do not listen, and by connections that
    /// are over: SO_REUSEADDR.
    pub reuse_address: bool,
    /// The port may be had by others, too, that say so, listeners among them, which then share what
    /// comes to it: SO_REUSEPORT.
    pub reuse_port: bool,
    /// IPv4 is for others: IPV6_V6ONLY.
    pub v6_only: bool,
    /// Where the first bytes can go with the SYN, connecting waits for them: TCP_FASTOPEN_CONNECT.
    pub defers_connect: bool,
    /// What a listener's cookies of Fast Open are made with: TCP_FASTOPEN_KEY.
    pub fast_open_keys: Option<FastOpenKeys>,
    /// How long closing waits until all is acknowledged: SO_LINGER. With 0, what is not sent is
    /// given up, and the peer gets a reset.
    pub linger_ns: Option<u64>,
    /// It is readable with so many bytes: SO_RCVLOWAT.
    pub receive_bytes_min: u32,
    /// Bytes that are sent and not acknowledged, or wait to be sent: SO_SNDBUF.
    pub send_buffer_bytes: u32,
    /// Of those, bytes that wait to be sent: TCP_NOTSENT_LOWAT.
    pub unsent_bytes_max: u32,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            keeps_alive: false,
            keep_alive: KeepAlive::default(),
            accepts_ecn: true,
            accepts_accurate_ecn: false,
            reuse_address: false,
            reuse_port: false,
            v6_only: false,
            defers_connect: false,
            fast_open_keys: None,
            linger_ns: None,
            receive_bytes_min: 1,
            send_buffer_bytes: 4 << 20,
            unsent_bytes_max: u32::MAX,
        }
    }
}

impl SocketOptions {
    /// What is set for its connection, to which more will be sent if `has_more`.
    pub(super) fn of_connection(&self, has_more: bool) -> Settings {
        let mut variants = self.settings.variants;
        variants.lax_ecn &= self.accepts_ecn;
        Settings {
            variants,
            cork: self.settings.cork || has_more,
            keep_alive: self.keeps_alive.then_some(self.keep_alive),
            ..self.settings
        }
    }

    /// What is set for a connection that is opened with Fast Open.
    pub(super) fn of_early(&self) -> Settings {
        let fast_open = FastOpen { connects: true, ..self.settings.fast_open };
        Settings { fast_open, ..self.settings }
    }

    /// What is set for those that a listener accepts.
    pub(super) fn of_listener(&self) -> Settings {
        let settings = self.of_connection(false);
        let ecn = settings.ecn || self.accepts_ecn;
        Settings { ecn, accurate_ecn: self.accepts_accurate_ecn, ..settings }
    }

    /// Bytes that may be sent now.
    pub(super) fn room(&self, status: &Status) -> u64 {
        if status.unsent_bytes >= self.unsent_bytes_max.into() {
            return 0;
        }
        let buffer_bytes = match self.settings.variants.whole_segments {
            true => self.send_buffer_bytes.next_multiple_of(status.mss),
            false => self.send_buffer_bytes,
        };
        u64::from(buffer_bytes).saturating_sub(status.queued_bytes)
    }

    /// True if it is worth waking somebody who wants to send: a third of the buffer is free.
    pub(super) fn is_roomy(&self, status: &Status) -> bool {
        let room = self.room(status);
        room > 0 && room >= status.queued_bytes / 2
    }
}
