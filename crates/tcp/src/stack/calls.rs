//! Connections, as apps have them.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use clearway_base::{SlotId, Time};

use super::{Entry, Error, Stack};
use crate::config::Settings;
use crate::connection::{Connecting, Connection, Info, Refused, Status};
use crate::extent::{Extent, Memory};
use crate::tuple::{Tuple, is_of_one_host};

impl Stack {
    /// Opens a connection to `remote`, from `local`; its port is chosen if it is 0. `mtu` is that
    /// of the way there. [`Readiness::OPEN`] says that it is open. What is given to it before its
    /// SYN has left goes with that, as far as there is [`Stack::syn_room`] for it.
    ///
    /// [`Readiness::OPEN`]: crate::Readiness::OPEN
    pub fn connect(
        &mut self,
        now: Time,
        local: SocketAddr,
        remote: SocketAddr,
        mtu: u16,
        settings: Settings,
    ) -> Result<SlotId, Error> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Family);
        }
        // RFC 9293, section 3.9.2.3: "MUST reject as an error a local OPEN call for an invalid
        // remote IP address (e.g., a broadcast or multicast address)" (MUST-46).
        if !is_of_one_host(local.ip()) || !is_of_one_host(remote.ip()) {
            return Err(Error::NoHost);
        }
        if self.connections.is_full() {
            return Err(Error::InUse);
        }
        let local = match local.port() {
            0 => SocketAddr::new(local.ip(), self.free_port(local.ip(), remote)?),
            _ => local,
        };
        let tuple = Tuple::new(local, remote);
        let isn = match self.table.get(&tuple) {
            None => self.isn(now, &tuple),
            // RFC 6191: the timestamps of the new connection will be later, at both ends.
            Some(&Entry::TimeWait(key))
                if settings.timestamps && self.time_waits.has_rested(now, key) =>
            {
                self.end_time_wait(now, key, &tuple)
            }
            Some(_) => return Err(Error::InUse),
        };
        let timestamp_offset = self.timestamp_offset(&tuple);
        let connecting = Connecting { local, remote, settings, mtu, isn, timestamp_offset };
        let mut connection = Connection::connect(now, &connecting);
        connection.expect_path(self.paths.mtu(now, remote.ip()));
        if settings.fast_open.connects {
            connection.plan(&self.peers.plan(now, remote.ip(), &settings));
        }
        self.counters.connections_opened += 1;
        self.insert(tuple, connection).ok_or(Error::InUse)
    }

    fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Result<u16, Error> {
        self.choose_port(local, remote, |_| true)
    }

    /// A port from which `remote` can be reached, that nothing here uses for that, and that
    /// `may_be` used (RFC 6056).
    pub fn choose_port(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        may_be: impl Fn(u16) -> bool,
    ) -> Result<u16, Error> {
        let table = &self.table;
        let is_free = |port| {
            let tuple = Tuple::new(SocketAddr::new(local, port), remote);
            !table.contains_key(&tuple) && may_be(port)
        };
        self.ports.choose(&self.secret, local, remote, is_free).ok_or(Error::InUse)
    }

    /// Appends bytes to what a connection sends. They are the stack's until [`Stack::pop_sent`]
    /// gives them back.
    pub fn send(&mut self, key: SlotId, extent: Extent) -> Result<(), Error> {
        let sent = self.connections.send(key, extent).ok_or(Error::Unknown)?;
        sent.map_err(|refused| match refused {
            Refused::Closed => Error::Closed,
            Refused::Full => Error::Full,
        })
    }

    /// Extents that need not be kept any longer, in the order of [`Stack::send`]: acknowledged, or,
    /// if the connection is over, of no use.
    pub fn pop_sent(&mut self, key: SlotId) -> Option<Extent> {
        self.connections.get_mut(key)?.pop_sent()
    }

    /// The same, but only what the peer has acknowledged, however the connection has ended.
    pub fn pop_acknowledged(&mut self, key: SlotId) -> Option<Extent> {
        self.connections.get_mut(key)?.pop_acknowledged()
    }

    /// The next bytes that have come. They are the caller's; the window stays smaller by them until
    /// [`Stack::release`].
    pub fn recv(&mut self, key: SlotId) -> Option<Extent> {
        self.connections.get_mut(key)?.recv()
    }

    /// The same, but of a piece that is longer than `most` bytes only so many.
    pub fn recv_at_most(&mut self, key: SlotId, most: u32) -> Option<Extent> {
        self.connections.get_mut(key)?.recv_at_most(most)
    }

    /// What [`Stack::recv`] would give, which stays where it is.
    pub fn unread(&self, key: SlotId) -> impl Iterator<Item = Extent> + '_ {
        self.connections.get(key).into_iter().flat_map(Connection::unread)
    }

    /// All that has come and nobody has taken: what [`Stack::recv`] would give, and what is out of
    /// order.
    pub fn received(&self, key: SlotId) -> impl Iterator<Item = Extent> + '_ {
        self.connections.get(key).into_iter().flat_map(Connection::received)
    }

    /// Bytes that have come out of order.
    #[must_use]
    pub fn ahead_bytes(&self, key: SlotId) -> u64 {
        self.connections.get(key).map_or(0, Connection::ahead_bytes)
    }

    /// Gives half of what a connection has out of order back to `memory`, for others: its peer
    /// sends that again.
    pub fn renege(&mut self, key: SlotId, memory: &mut impl Memory) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let counters = &mut self.counters;
        connection.renege(|extent| {
            counters.pieces_given_up += 1;
            memory.discard(key, extent);
        });
    }

    /// The caller is done with so many bytes of what it got from [`Stack::recv`].
    pub fn release(&mut self, key: SlotId, bytes: u64) {
        self.connections.change(key, |connection| connection.release(bytes));
    }

    /// There will be nothing more to send; what the peer sends is still received.
    pub fn shutdown(&mut self, key: SlotId) {
        self.connections.change(key, Connection::shutdown);
    }

    /// Lets go of a connection: what was given to be sent is sent, and nothing more is received.
    pub fn close(&mut self, now: Time, key: SlotId) {
        self.connections.change(key, |connection| connection.close(now));
        self.settle(now, key);
    }

    /// Gives up a connection: the peer gets a reset.
    pub fn abort(&mut self, now: Time, key: SlotId) {
        self.connections.change(key, Connection::abort);
        self.settle(now, key);
    }

    /// The key will not be used again. What has been received and not taken goes back to `memory`;
    /// what was to be sent, to whoever calls [`Stack::pop_sent`] before.
    pub fn forget(&mut self, now: Time, key: SlotId, memory: &mut impl Memory) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.drain(|extent| memory.discard(key, extent));
        if !connection.state().is_over() {
            self.abort(now, key);
        }
        self.connections.forget(key);
    }

    /// What is set for a connection.
    #[must_use]
    pub fn settings(&self, key: SlotId) -> Option<&Settings> {
        self.connections.get(key).map(Connection::settings)
    }

    /// Sets it anew. What is agreed on at the beginning stays as it is.
    pub fn set_settings(&mut self, key: SlotId, settings: Settings) {
        self.connections.change(key, |connection| connection.set_settings(settings));
    }

    /// What has been given to a connection ends a record: what is given next shares no segment with
    /// it when it leaves for the first time. Not saved.
    pub fn end_record(&mut self, key: SlotId) {
        self.connections.change(key, Connection::end_record);
    }

    /// What waits to be sent does not wait for more any longer, not even if it is corked.
    pub fn hurry(&mut self, key: SlotId) {
        self.connections.change(key, Connection::hurry);
    }

    /// Acknowledges what comes at once, for a while, and what has come; or as late as may be.
    pub fn set_quick_acks(&mut self, key: SlotId, are_quick: bool) {
        self.connections.change(key, |connection| connection.set_quick_acks(are_quick));
    }

    /// What its owner has to know of a connection to do something with it.
    #[must_use]
    pub fn status(&self, key: SlotId) -> Option<Status> {
        self.connections.get(key).map(Connection::status)
    }

    /// True if what a connection has sent was sent again, and still not acknowledged.
    #[must_use]
    pub fn is_silent(&self, key: SlotId) -> bool {
        self.connections.get(key).is_some_and(Connection::is_silent)
    }

    /// What can be told of a connection.
    #[must_use]
    pub fn info(&self, key: SlotId) -> Option<Info> {
        self.connections.get(key).map(Connection::info)
    }

    /// True if a segment from `remote` to `local` is of a connection that is kept here, or of what
    /// is to become one. Where one is over, the ports may be another stack's by now.
    #[must_use]
    pub fn has(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let entry = self.table.get(&Tuple::new(local, remote));
        entry.is_some_and(|entry| !matches!(entry, Entry::TimeWait(_)))
    }

    /// The other end of a connection, if that is one of this stack, too.
    #[must_use]
    pub fn other_end(&self, key: SlotId) -> Option<SlotId> {
        let connection = self.connections.get(key)?;
        self.table.get(&Tuple::new(connection.remote(), connection.local()))?.connection()
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.connections.keys()
    }

    /// True if a connection is its owner's: it waits at no listener, and its owner has not let go
    /// of it.
    #[must_use]
    pub fn is_owned(&self, key: SlotId) -> bool {
        self.connections.is_owned(key)
    }

    /// What a connection was given to be sent and has not given back, in order.
    pub fn outstanding(&self, key: SlotId) -> impl Iterator<Item = Extent> + '_ {
        self.connections.get(key).into_iter().flat_map(Connection::outstanding)
    }

    /// Where the bytes `range` of a connection's [`crate::Transmit`] are, in order.
    pub fn extents(&self, key: SlotId, range: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
        let mut extents = self.connections.get(key).map(|connection| connection.extents(range));
        core::iter::from_fn(move || extents.as_mut()?.next())
    }

    /// True if a connection that is over guards `port` of `address`, or of any address if it is the
    /// unspecified one. Looks at all of them.
    #[must_use]
    pub fn is_guarded(&self, address: IpAddr, port: u16) -> bool {
        self.time_waits.iter().any(|entry| {
            let local = entry.tuple.ends().0;
            local.port() == port && (local.ip() == address || address.is_unspecified())
        })
    }
}
