//! What an endpoint says to hosts without a flow, and forgets: challenges, resets, version packets,
//! pings and pongs. Their number is bounded, and the rate of those that a stranger can provoke.

use std::net::SocketAddr;

use clearway_base::{SECOND, Time};
use clearway_wire::clearway::{HEADER_LENGTH, Header, Packet, PacketType, Reset, Versions};

use super::Endpoint;
use crate::app::{App, Reason};
use crate::control::{VERSIONS, emit_control};
use crate::flow::SOURCE_PORT_MIN;

/// Answers to strangers, and pings, that may wait for a free descriptor.
pub(super) const REPLIES_MAX: usize = 1024;
/// Pings of ours without an answer that are remembered.
pub(super) const PINGS_MAX: usize = 64;

/// Where a datagram came from and to which of our addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl Addresses {
    /// False if it is not of a daemon of this network, but of some program of the peer's: those
    /// are kept from the ports that daemons send from.
    pub(super) fn is_from_daemon(&self) -> bool {
        self.peer.port() >= SOURCE_PORT_MIN || self.peer.port() == self.local.port()
    }

    /// The peer's daemon, where all but pongs go: the port that the peer sends from says nothing,
    /// and all daemons of a network listen on the same.
    pub(super) fn daemon(&self) -> SocketAddr {
        SocketAddr::new(self.peer.ip(), self.local.port())
    }
}

/// A packet that belongs to no flow, ready to be sent.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) between: Addresses,
    pub(super) bytes: Vec<u8>,
}

/// A ping of ours that waits for its pong.
#[derive(Debug)]
pub(super) struct Ping {
    id: u64,
    token: u64,
    sent: Time,
}

impl Ping {
    /// Id, token, and when it was sent.
    pub(super) const fn save(&self) -> (u64, u64, Time) {
        (self.id, self.token, self.sent)
    }

    pub(super) const fn restore((id, token, sent): (u64, u64, Time)) -> Self {
        Self { id, token, sent }
    }
}

impl Endpoint {
    /// The largest packet that it sends, in bytes of UDP payload.
    pub fn packet_bytes_max(&self) -> u16 {
        self.config.packet_bytes_max
    }

    /// Sends a ping of `bytes` UDP payload; [`App::pong`] tells of the answer. If too much waits to
    /// be sent, the ping is lost.
    pub fn ping(&mut self, now: Time, id: u64, local: SocketAddr, peer: SocketAddr, bytes: u16) {
        if self.replies.len() >= REPLIES_MAX {
            return self.counters.dropped_rate_limited += 1;
        }
        let token = self.secret_id();
        if self.pings.len() == PINGS_MAX {
            self.pings.pop_front();
        }
        self.pings.push_back(Ping { id, token, sent: now });
        let length = bytes.clamp(HEADER_LENGTH as u16, self.config.packet_bytes_max);
        let mut packet = vec![0; usize::from(length)];
        emit_control(&mut packet, PacketType::Ping, 0, token, |body| body.len());
        self.replies.push_back(Reply { between: Addresses { local, peer }, bytes: packet });
    }

    /// Answers a ping: the same bytes, the same token.
    pub(super) fn reply_pong(
        &mut self,
        now: Time,
        between: Addresses,
        token: u64,
        ping: &Packet<'_>,
    ) {
        // There may be no room for the answer where packets are written.
        if ping.length() > usize::from(self.config.packet_bytes_max) {
            return self.counters.dropped_malformed += 1;
        }
        let mut bytes = vec![0; ping.length()];
        emit_control(&mut bytes, PacketType::Pong, 0, token, |body| {
            body.copy_from_slice(ping.body());
            body.len()
        });
        self.reply(now, between, bytes);
    }

    pub(super) fn handle_pong(&mut self, now: Time, header: &Header, app: &mut impl App) {
        let found = self.pings.iter().find(|ping| ping.token == header.number);
        let rtt_ns = found.map(|ping| now.since(ping.sent));
        match (self.take_ping(header.number), rtt_ns) {
            (Some(id), Some(rtt_ns)) => app.pong(id, Ok(rtt_ns)),
            _ => self.counters.dropped_unsolicited += 1,
        }
    }

    /// True while the answer to a ping is waited for.
    #[must_use]
    pub fn is_pinging(&self) -> bool {
        !self.pings.is_empty()
    }

    /// Nothing is expected any more in answer to the ping with this token: its id, if it is one of
    /// ours.
    pub(super) fn take_ping(&mut self, token: u64) -> Option<u64> {
        let index = self.pings.iter().position(|ping| ping.token == token)?;
        self.pings.remove(index).map(|ping| ping.id)
    }

    pub(super) fn reply_versions(&mut self, now: Time, between: Addresses, flow: u64, token: u64) {
        self.reply_control(now, between, PacketType::Version, flow, token, |body| {
            Versions { versions: VERSIONS }.emit(body)
        });
    }

    /// Answers a data packet to a flow that is not, or no longer, there.
    pub(super) fn reply_reset(&mut self, now: Time, between: Addresses, quoted_flow: u64) {
        let was_closed = self.closed.contains(quoted_flow);
        let reason = if was_closed { Reason::Closed } else { Reason::Reset };
        let reset = Reset { reason: reason.code(), quoted_flow };
        self.reply_control(now, between, PacketType::Reset, 0, 0, |body| reset.emit(body));
    }

    pub(super) fn reply_control(
        &mut self,
        now: Time,
        between: Addresses,
        packet_type: PacketType,
        flow: u64,
        token: u64,
        body: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let mut bytes = vec![0; 64];
        let length = emit_control(&mut bytes, packet_type, flow, token, body);
        bytes.truncate(length);
        let local = SocketAddr::new(between.local.ip(), self.random_port());
        self.reply(now, Addresses { local, peer: between.daemon() }, bytes);
    }

    /// Answers take another way each time: one that goes to the wrong engine of the peer, and is
    /// not passed on, is not repeated on the same way.
    fn random_port(&mut self) -> u16 {
        SOURCE_PORT_MIN | self.secrets.next() as u16
    }

    fn reply(&mut self, now: Time, between: Addresses, bytes: Vec<u8>) {
        if now >= self.reply_budget_until {
            self.reply_budget_until = now + SECOND / 100;
            self.reply_budget = (self.config.stateless_per_second / 100).max(1);
        }
        if self.reply_budget == 0 || self.replies.len() >= REPLIES_MAX {
            return self.counters.dropped_rate_limited += 1;
        }
        self.reply_budget -= 1;
        self.replies.push_back(Reply { between, bytes });
    }

    /// Queues the last packet of a flow, which is no answer to a stranger: there may be as many as
    /// flows.
    pub(super) fn say(&mut self, between: Addresses, bytes: Vec<u8>) {
        if self.farewells.len() < self.config.flows_max as usize {
            self.farewells.push_back(Reply { between, bytes });
        }
    }
}
