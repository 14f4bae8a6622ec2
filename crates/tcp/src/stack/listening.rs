//! Listeners, as apps have them.

use core::net::IpAddr;

use clearway_base::{Prefix, SlotId, Time};

use super::{Error, Listener, Stack};
use crate::config::Settings;
use crate::extent::Memory;
use crate::listen::ListenSocket;
use crate::tuple::{Tuple, bits};

impl Stack {
    /// Listens at `port` of `address`, of every address of its family if it is the unspecified one,
    /// or of every address. `backlog` connections may wait to be accepted.
    pub fn listen(
        &mut self,
        address: Option<IpAddr>,
        port: u16,
        backlog: u32,
        mtu: u16,
        settings: Settings,
    ) -> Result<Listener, Error> {
        if !self.listeners.at(&(address.map(bits), port)).is_empty() {
            return Err(Error::InUse);
        }
        let socket = ListenSocket::new(address, port, backlog, mtu, settings);
        self.listeners.insert(socket).ok_or(Error::InUse)
    }

    /// Listens beside another listener, at its place: each connection comes to one of those that
    /// are there, by a hash of its addresses and ports (SO_REUSEPORT).
    pub fn listen_beside(
        &mut self,
        listener: Listener,
        backlog: u32,
        settings: Settings,
    ) -> Result<Listener, Error> {
        let other = self.listeners.get(listener.0).ok_or(Error::Unknown)?;
        let socket = ListenSocket::new(other.address, other.port, backlog, other.mtu, settings);
        self.listeners.insert(socket).ok_or(Error::InUse)
    }

    /// Ends a listener. What waits there, half-open or not accepted, is another's of the same
    /// place, if one there is set the same and has room; else it is reset.
    pub fn unlisten(&mut self, now: Time, listener: Listener, memory: &mut impl Memory) {
        let Some(socket) = self.listeners.remove(listener) else {
            return;
        };
        self.bequeath_half_open(&socket);
        for key in socket.accepted.iter().copied() {
            if !self.bequeath(key, &socket) {
                self.abort(now, key);
                self.forget(now, key, memory);
            }
        }
    }

    /// Gives a connection that waits at a listener that has ended to another one. False if none can
    /// have it.
    fn bequeath(&mut self, key: SlotId, socket: &ListenSocket) -> bool {
        let Some(connection) = self.connections.get(key) else { return false };
        let tuple = Tuple::new(connection.local(), connection.remote());
        let heir = self.listeners.heir(socket, &tuple, self.table.hasher());
        let heir = heir.filter(|heir| self.listeners.offer(*heir, key));
        if let Some(heir) = heir
            && self.early.contains_key(&key)
        {
            self.begin_early(key, heir);
        }
        heir.is_some()
    }

    /// What is set for a listener: for the connections that it accepts from now on.
    #[must_use]
    pub fn listener_settings(&self, listener: Listener) -> Option<&Settings> {
        self.listeners.get(listener.0).map(|socket| &socket.settings)
    }

    /// Sets it anew, and how many connections may wait.
    pub fn set_listener(&mut self, listener: Listener, backlog: u32, settings: Settings) {
        if let Some(socket) = self.listeners.get_mut(listener.0) {
            (socket.backlog, socket.settings) = (backlog.max(1), settings);
        }
    }

    /// The interface has another MTU: for what comes to any listener from now on. Connections that
    /// are there find out themselves what does not pass any more.
    pub fn set_listeners_mtu(&mut self, mtu: u16) {
        self.listeners.set_mtu(mtu);
    }

    /// From now on only peers of these prefixes may connect to a listener, or all if there are
    /// none: to others it is as if it were not there, and costs no memory and no cookie. All are
    /// looked at for each SYN. What has begun before goes on.
    pub fn set_listener_peers(&mut self, listener: Listener, peers: Vec<Prefix>) {
        if let Some(socket) = self.listeners.get_mut(listener.0) {
            socket.peers = peers;
        }
    }

    /// How many connections a listener has that wait to be accepted.
    #[must_use]
    pub fn acceptable(&self, listener: Listener) -> usize {
        self.listeners.get(listener.0).map_or(0, |socket| socket.accepted.len())
    }

    /// A connection that a listener has for its owner, whose key it is from now on.
    pub fn accept(&mut self, listener: Listener) -> Option<SlotId> {
        let key = self.listeners.accept(listener)?;
        self.connections.accept(key);
        Some(key)
    }

    /// The listeners at a port of exactly these addresses, as [`Stack::listen`] has them.
    pub fn listeners_on(
        &self,
        address: Option<IpAddr>,
        port: u16,
    ) -> impl Iterator<Item = Listener> + '_ {
        self.listeners.at(&(address.map(bits), port)).iter().copied().map(Listener)
    }

    /// How many listeners there are.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.len()
    }
}
