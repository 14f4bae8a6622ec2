//! How sockets get their places and their connections: bound, listening, accepted, connected, and
//! back.

use core::net::{IpAddr, SocketAddr};

use clearway_base::Time;

use super::entry::Phase;
use super::ports::{Claim, Place};
use super::{Fault, Network, Owner, Socket, Sockets};
use crate::stack::{Error, Listener};

/// More connections than these never wait at a listener.
const BACKLOG_MAX: u32 = 4096;

impl Sockets {
    /// Says what this end is. A port of 0 stands for any that is free.
    pub fn bind(
        &mut self,
        socket: Socket,
        local: SocketAddr,
        network: &impl Network,
    ) -> Result<(), Fault> {
        let entry = self.entry(socket)?;
        if entry.is_bound || entry.phase != Phase::Idle {
            return Err(Fault::Invalid);
        }
        let local = canonical(local);
        entry.check_family(local)?;
        if !local.ip().is_unspecified() && !network.is_own(local.ip()) {
            return Err(Fault::NotAvailable);
        }
        let claim = Claim { place: Place::new(local.ip(), entry.options.v6_only), ..entry.claim() };
        let port = match local.port() {
            0 => self.free_port(local.ip(), local, &claim)?,
            port => port,
        };
        let is_guarded = !claim.is_shared() && self.stack.is_guarded(local.ip(), port);
        if is_guarded || self.is_taken(socket, port, &claim) {
            return Err(Fault::InUse);
        }
        self.set_local(socket, SocketAddr::new(local.ip(), port));
        self.entry_mut(socket)?.is_bound = true;
        Ok(())
    }

    /// Lets others connect; so many connections, and one, may wait to be accepted.
    pub fn listen(
        &mut self,
        socket: Socket,
        backlog: u32,
        network: &impl Network,
    ) -> Result<(), Fault> {
        let backlog = backlog.min(BACKLOG_MAX) + 1;
        match self.entry(socket)?.phase {
            Phase::Connected(_) | Phase::Deferred(_) => return Err(Fault::Invalid),
            Phase::Listening(listener, _) => {
                self.entry_mut(socket)?.phase = Phase::Listening(listener, backlog);
                return self.apply(socket);
            }
            Phase::Idle => {}
        }
        if self.entry(socket)?.local.port() == 0 {
            let any = self.entry(socket)?.family.any();
            self.bind(socket, any, network)?;
        }
        let entry = self.entry(socket)?;
        let (claim, port) = (Claim { listens: true, ..entry.claim() }, entry.local.port());
        if self.is_taken(socket, port, &claim) {
            return Err(Fault::InUse);
        }
        let options = self.entry(socket)?.options;
        let settings = options.of_listener();
        let address = claim.place.address();
        let beside = self.stack.listeners_on(address, port).next();
        let listener = match beside {
            Some(other) => self.stack.listen_beside(other, backlog, settings),
            None => self.stack.listen(address, port, backlog, network.mtu(), settings),
        };
        let listener = listener.map_err(|_| Fault::InUse)?;
        self.stack.set_listener_keys(listener, options.fast_open_keys);
        self.names.set_listener(listener, Some(socket));
        self.entry_mut(socket)?.phase = Phase::Listening(listener, backlog);
        Ok(())
    }

    /// A connection that has come to a listener, and its peer.
    pub fn accept(&mut self, socket: Socket) -> Result<(Socket, SocketAddr), Fault> {
        let entry = self.entry(socket)?;
        let Phase::Listening(listener, _) = entry.phase else {
            return Err(Fault::Invalid);
        };
        if self.table.room() == 0 {
            return Err(Fault::Full);
        }
        let (family, options) = (entry.family, entry.options);
        let key = self.stack.accept(listener).ok_or(Fault::WouldBlock)?;
        let info = self.stack.info(key).ok_or(Fault::Unknown)?;
        let accepted = self.socket(family, options)?;
        self.set_local(accepted, info.local);
        self.names.set_connection(key, Some(accepted));
        let entry = self.entry_mut(accepted)?;
        entry.remote = Some(info.remote);
        entry.phase = Phase::Connected(key);
        entry.was_open = true;
        entry.is_told = true;
        Ok((accepted, info.remote))
    }

    /// Begins to connect: [`Fault::InProgress`] where all is well. [`Sockets::outcome`] says what
    /// becomes of it; and so does the next call of this, once. If it waits for the first bytes
    /// ([`SocketOptions::defers_connect`]) it is as if it were done.
    ///
    /// [`SocketOptions::defers_connect`]: crate::SocketOptions::defers_connect
    pub fn connect(
        &mut self,
        now: Time,
        socket: Socket,
        remote: SocketAddr,
        network: &impl Network,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        let options = entry.options;
        if entry.phase != Phase::Idle || entry.has_failed || !options.defers_connect {
            return self.open(now, socket, remote, network);
        }
        let remote = canonical(remote);
        entry.check_family(remote)?;
        let settings = options.of_early();
        if !self.stack.may_send_early(now, remote.ip(), &settings) {
            return self.connect_early(now, socket, remote, network);
        }
        let entry = self.entry_mut(socket)?;
        (entry.phase, entry.remote) = (Phase::Deferred(remote), Some(remote));
        Ok(())
    }

    /// Begins to connect with Fast Open: what is sent before the SYN has left goes with it, as far
    /// as there is [`Sockets::syn_room`].
    pub fn connect_early(
        &mut self,
        now: Time,
        socket: Socket,
        remote: SocketAddr,
        network: &impl Network,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        if matches!(entry.phase, Phase::Deferred(_)) {
            entry.phase = Phase::Idle;
        }
        if entry.phase == Phase::Idle {
            entry.options.settings = entry.options.of_early();
        }
        self.open(now, socket, remote, network)
    }

    /// Whom a socket connects to as soon as something is sent.
    #[must_use]
    pub fn deferred(&self, socket: Socket) -> Option<SocketAddr> {
        match self.entry(socket).ok()?.phase {
            Phase::Deferred(remote) => Some(remote),
            _ => None,
        }
    }

    /// How many bytes more go with the SYN.
    #[must_use]
    pub fn syn_room(&self, socket: Socket) -> u64 {
        self.connection(socket).map_or(0, |key| self.stack.syn_room(key))
    }

    /// Whether a socket is about to be connected, if it is connected or about to be.
    #[must_use]
    pub fn is_connecting(&self, socket: Socket) -> Option<bool> {
        let entry = self.entry(socket).ok()?;
        matches!(entry.phase, Phase::Connected(_)).then_some(!entry.was_open)
    }

    fn open(
        &mut self,
        now: Time,
        socket: Socket,
        remote: SocketAddr,
        network: &impl Network,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        match entry.phase {
            Phase::Listening(..) | Phase::Deferred(_) => return Err(Fault::Connected),
            Phase::Connected(_) if entry.is_told => return Err(Fault::Connected),
            Phase::Connected(_) if entry.was_open => return self.outcome(socket),
            Phase::Connected(_) => return Err(Fault::Already),
            Phase::Idle if entry.has_failed => return Err(entry.take_failure()),
            Phase::Idle => {}
        }
        let remote = canonical(remote);
        entry.check_family(remote)?;
        let (source, mtu) = network.route(remote.ip()).ok_or(Fault::NoRoute)?;
        let (bound, settings, claim) =
            (entry.local, entry.options.of_connection(false), entry.claim());
        let address = if bound.ip().is_unspecified() { source } else { bound.ip() };
        let port = match bound.port() {
            0 => self.free_port(address, remote, &claim)?,
            port => port,
        };
        let local = SocketAddr::new(address, port);
        let key = self.stack.connect(now, local, remote, mtu, settings);
        let key = key.map_err(|error| match error {
            Error::Family => Fault::Family,
            Error::NoHost => Fault::NoRoute,
            _ => Fault::NotAvailable,
        })?;
        self.set_local(socket, local);
        self.names.set_connection(key, Some(socket));
        let entry = self.entry_mut(socket)?;
        entry.remote = Some(remote);
        entry.phase = Phase::Connected(key);
        entry.was_open = false;
        entry.is_told = false;
        entry.is_deaf = false;
        Err(Fault::InProgress)
    }

    /// What has become of an attempt to connect: [`Fault::InProgress`] as long as nobody knows.
    pub fn outcome(&mut self, socket: Socket) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        match entry.phase {
            Phase::Connected(_) if entry.was_open => {
                entry.is_told = true;
                Ok(())
            }
            Phase::Connected(_) => Err(Fault::InProgress),
            _ => Err(entry.take_failure()),
        }
    }

    /// Ends the connection, or the listener, at once. The socket can be used again, with the port
    /// that a program has given it.
    pub fn disconnect(
        &mut self,
        now: Time,
        socket: Socket,
        owner: &mut impl Owner,
    ) -> Result<(), Fault> {
        match self.entry(socket)?.phase {
            Phase::Idle | Phase::Deferred(_) => {}
            Phase::Listening(listener, _) => self.unlisten(now, listener, owner),
            Phase::Connected(key) => {
                self.stack.abort(now, key);
                self.forget(now, key, owner);
            }
        }
        let entry = self.entry_mut(socket)?;
        entry.phase = Phase::Idle;
        entry.remote = None;
        entry.error = None;
        entry.has_failed = false;
        self.release_port(socket);
        Ok(())
    }

    pub(super) fn unlisten(&mut self, now: Time, listener: Listener, owner: &mut impl Owner) {
        self.stack.unlisten(now, listener, owner);
        self.names.set_listener(listener, None);
    }

    /// True if a socket may not have `port` because another one has it.
    fn is_taken(&self, socket: Socket, port: u16, claim: &Claim) -> bool {
        let others = self.holders.of(port).filter(|other| *other != socket);
        others
            .filter_map(|other| self.table.get(other.0))
            .any(|other| claim.excludes(&other.claim()))
    }

    fn free_port(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        claim: &Claim,
    ) -> Result<u16, Fault> {
        let Self { stack, holders, table, .. } = self;
        // Those that no program has asked for may be shared by connections to different peers.
        let is_free = |port| {
            !holders.of(port).any(|other| {
                let other = table.get(other.0).filter(|other| other.is_bound);
                other.is_some_and(|other| other.place().overlaps(&claim.place))
            })
        };
        stack.choose_port(local, remote, is_free).map_err(|_| Fault::NotAvailable)
    }
}

/// IPv4 addresses as such.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
