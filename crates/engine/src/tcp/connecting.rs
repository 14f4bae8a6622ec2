//! Attempts to connect. The first SYN leaves when the neighbour is known: lost for want of it, it
//! would be sent again a second later.

use std::net::{IpAddr, SocketAddr};

use clearway_base::{Prefix, SECOND, Time};
use clearway_channel::{Code, Completion};
use clearway_wire::protocol;

use super::Tcp;
use super::commands::settings_of;
use crate::common::Common;
use crate::ip::Resolution;

/// Attempts of an engine that wait for a neighbour. No app has more of them than are left.
pub(super) const ATTEMPTS_MAX: usize = 256;
/// How long; the IP layer gives up before.
pub(super) const PATIENCE_NS: u64 = 10 * SECOND;

/// An attempt that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) channel: u32,
    /// The number of its port.
    pub(super) port: u32,
    pub(super) until: Time,
    pub(super) token: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl Tcp {
    pub(super) fn connect(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        token: u64,
        port: u32,
        remote: SocketAddr,
    ) {
        let until = now + PATIENCE_NS;
        let begun = self.local(common, channel, port, remote).and_then(|local| {
            let attempt = Attempt { channel, port, until, token, local, remote };
            self.try_connect(common, now, attempt)
        });
        if let Err(code) = begun {
            fail(common, channel, token, code);
        }
    }

    /// From where an app connects.
    fn local(
        &mut self,
        common: &Common,
        channel: u32,
        number: u32,
        remote: SocketAddr,
    ) -> Result<SocketAddr, Code> {
        let app = common.channels.peek(channel).ok_or(Code::DaemonGone)?;
        if self.connections_of(channel) >= app.connections_max() as usize {
            return Err(Code::Limit);
        }
        let refusal = self.ports.refusal(channel, number);
        let port = self.ports.of(channel, number).ok_or(refusal)?;
        if !Prefix::admit(&port.spec.peers, remote.ip()) {
            return Err(Code::Denied);
        }
        let host = &common.host;
        // A connection is on the NIC of its own address.
        let has_way = |address: &IpAddr| {
            let interface = host.view(host.nic_with(*address));
            let is_of_family = address.is_ipv4() == remote.is_ipv4();
            is_of_family && (interface.is_own(remote.ip()) || !host.is_here(remote.ip()))
        };
        let address = match port.spec.address {
            Some(address) => Some(address).filter(has_way),
            None => host.source_among(remote.ip(), &port.spec.nics),
        };
        let address = address.ok_or(Code::Unreachable)?;
        let local = SocketAddr::new(address, port.spec.port);
        self.check_unshared(local)?;
        if local == remote { Err(Code::Invalid) } else { Ok(local) }
    }

    /// Sends the SYN, if the neighbour is known; else the attempt waits.
    fn try_connect(
        &mut self,
        common: &mut Common,
        now: Time,
        attempt: Attempt,
    ) -> Result<(), Code> {
        let Attempt { channel, port, token, local, remote, .. } = attempt;
        let nic = common.host.nic_with(local.ip());
        let mtu = common.host.own().mtu().min(common.host.view(nic).mtu());
        let interface = common.host.interface(nic);
        let here = interface.path_here(now, local.ip(), remote.ip(), protocol::TCP);
        let there = || interface.path(now, local.ip(), remote.ip(), protocol::TCP);
        match here.map_or_else(there, Resolution::Known) {
            Resolution::Unreachable => return Err(Code::Unreachable),
            Resolution::Pending if now >= attempt.until => return Err(Code::Unreachable),
            Resolution::Pending if !self.may_wait(channel) => return Err(Code::Limit),
            Resolution::Pending => {
                self.attempts.push(attempt);
                return Ok(());
            }
            Resolution::Known(_) => {}
        }
        let app = common.channels.peek(channel).ok_or(Code::DaemonGone)?;
        let settings = settings_of(channel, app);
        let connected = self.stack.connect(now, local, remote, mtu, settings);
        let key = connected.map_err(|error| match error {
            clearway_tcp::Error::InUse => Code::AddressInUse,
            _ => Code::Invalid,
        })?;
        self.books.open(key, channel, port, Some(token));
        Ok(())
    }

    /// Tries those again that wait. Returns how many wait no more.
    #[cold]
    pub(super) fn go_on_connecting(&mut self, common: &mut Common, now: Time) -> usize {
        let attempts = core::mem::take(&mut self.attempts);
        let before = attempts.len();
        for attempt in attempts {
            if let Err(code) = self.try_connect(common, now, attempt) {
                fail(common, attempt.channel, attempt.token, code);
            }
        }
        before - self.attempts.len()
    }

    /// A port is taken away, and with it the attempts that wait there: their app is told why.
    pub(super) fn give_up_attempts(&mut self, common: &mut Common, port: u32, code: Code) {
        for attempt in self.attempts.extract_if(.., |attempt| attempt.port == port) {
            fail(common, attempt.channel, attempt.token, code);
        }
    }

    fn may_wait(&self, channel: u32) -> bool {
        self.attempts_of(channel) < ATTEMPTS_MAX.saturating_sub(self.attempts.len())
    }

    pub(super) fn attempts_of(&self, channel: u32) -> usize {
        self.attempts.iter().filter(|attempt| attempt.channel == channel).count()
    }
}

fn fail(common: &mut Common, channel: u32, token: u64, code: Code) {
    if let Some(app) = common.channels.channel(channel) {
        app.tell(Completion::TcpConnectFailed { token, code });
    }
}
