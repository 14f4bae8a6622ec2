//! Sockets: a stack as programs know it, without I/O, and without waiting.
//!
//! A [`Socket`] is a listener, or one end of a connection, or will become one of the two. Here is
//! what POSIX and Linux say of them: which calls are allowed when, and what they report; who has
//! which port; when there is something to read or to write. Errors are a [`Fault`] each. Not here:
//! numbers of descriptors, calls that wait, and copying, all of which are the caller's affair, as
//! is where bytes are kept ([`crate::Memory`]).
//!
//! ```text
//!            ┌─listen──▶ Listening ──accept──▶ (another one) Connected
//!   Idle ────┤
//!     ▲      └─connect─▶ Connected ──close──▶ on its own until all is sent, then gone
//!     └── refused, or disconnected ──┘
//! ```
//!
//! Call order: what happens to the stack below ([`Sockets::stack_mut`]), and all calls here, are
//! followed by [`Sockets::handle_events`], which tells the owner of what has changed.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::BTreeSet;

use clearway_base::Time;

use crate::connection::{Info, Status};
use crate::event::{End, Readiness};
use crate::extent::{Extent, Memory};
use crate::stack::{Error, Event, Listener, Stack};
use crate::state::State;
use crate::table::{Key, Slab};

mod fault;
mod options;
mod ports;
mod ready;

pub use fault::Fault;
pub use options::SocketOptions;
pub use ready::Ready;

use ports::{Claim, Place};

/// Names a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket(Key);

/// Which addresses a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, and IPv4 unless [`SocketOptions::v6_only`].
    V6,
}

impl Family {
    /// Any address and port of it.
    const fn any(self) -> SocketAddr {
        let address = match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(address, 0)
    }
}

/// What the sockets have to know of the network below.
pub trait Network {
    /// True if `address` is one of this host.
    fn is_own(&self, address: IpAddr) -> bool;

    /// The own address to reach `remote` from, and the MTU of the way there.
    fn route(&self, remote: IpAddr) -> Option<(IpAddr, u16)>;

    /// The MTU for those who come by themselves.
    fn mtu(&self) -> u16;
}

/// Who has the memory, and the programs.
pub trait Owner: Memory {
    /// What a program has sent is acknowledged, or will never be: the memory is the owner's again.
    fn sent(&mut self, extent: Extent);

    /// Something has changed for the program that has `socket`.
    fn changed(&mut self, socket: Socket);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// With its backlog.
    Listening(Listener, u32),
    /// Or about to be, or no longer.
    Connected(Key),
}

#[derive(Debug)]
struct Entry {
    family: Family,
    options: SocketOptions,
    phase: Phase,
    /// This end; unspecified, and 0, where it is not known yet.
    local: SocketAddr,
    /// A program has said what this end is.
    is_bound: bool,
    remote: Option<SocketAddr>,
    error: Option<Fault>,
    /// The connection has been open.
    was_open: bool,
    /// The program knows it.
    is_told: bool,
    /// An attempt to connect has failed, and nobody has been told by `connect`.
    has_failed: bool,
    /// Nobody wants to read any more.
    is_deaf: bool,
    /// The last send has said that more will come.
    has_more: bool,
    /// The program has let go of it.
    is_closed: bool,
}

impl Entry {
    fn place(&self) -> Place {
        Place::new(self.local.ip(), self.options.v6_only)
    }

    fn claim(&self) -> Claim {
        Claim {
            place: self.place(),
            shares: self.options.reuse_address,
            shares_with_listeners: self.options.reuse_port,
            listens: matches!(self.phase, Phase::Listening(..)),
        }
    }
}

/// All sockets of a stack.
#[derive(Debug)]
pub struct Sockets {
    stack: Stack,
    table: Slab<Entry>,
    /// By the indexes of connections, and of listeners.
    of_connection: Vec<Option<Socket>>,
    of_listener: Vec<Option<Socket>>,
    /// Those that have a port.
    ports: BTreeSet<(u16, Socket)>,
}

/// More connections than these never wait at a listener.
const BACKLOG_MAX: u32 = 4096;

impl Sockets {
    /// The sockets of a stack, which has none so far; `sockets_max` at most.
    #[must_use]
    pub fn new(stack: Stack, sockets_max: u32) -> Self {
        Self {
            stack,
            table: Slab::new(sockets_max),
            of_connection: Vec::new(),
            of_listener: Vec::new(),
            ports: BTreeSet::new(),
        }
    }

    /// The stack below, for what comes and what leaves.
    #[must_use]
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// See [`Sockets::stack`].
    pub const fn stack_mut(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// How many there are, those that nobody has any more included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A new one.
    pub fn socket(&mut self, family: Family, options: SocketOptions) -> Result<Socket, Fault> {
        let entry = Entry {
            family,
            options,
            phase: Phase::Idle,
            local: family.any(),
            is_bound: false,
            remote: None,
            error: None,
            was_open: false,
            is_told: false,
            has_failed: false,
            is_deaf: false,
            has_more: false,
            is_closed: false,
        };
        self.table.insert(entry).map(Socket).ok_or(Fault::Full)
    }

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
        check_family(entry, local)?;
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
            Phase::Connected(_) => return Err(Fault::Invalid),
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
        let settings = self.entry(socket)?.options.of_listener();
        let address = claim.place.address();
        let beside = self.stack.listeners_on(address, port).next();
        let listener = match beside {
            Some(other) => self.stack.listen_beside(other, backlog, settings),
            None => self.stack.listen(address, port, backlog, network.mtu(), settings),
        };
        let listener = listener.map_err(|_| Fault::InUse)?;
        note(&mut self.of_listener, listener.0, Some(socket));
        self.entry_mut(socket)?.phase = Phase::Listening(listener, backlog);
        Ok(())
    }

    /// A connection that has come to a listener, and its peer.
    pub fn accept(&mut self, socket: Socket) -> Result<(Socket, SocketAddr), Fault> {
        let entry = self.entry(socket)?;
        let Phase::Listening(listener, _) = entry.phase else {
            return Err(Fault::Invalid);
        };
        if self.table.is_full() {
            return Err(Fault::Full);
        }
        let (family, options) = (entry.family, entry.options);
        let key = self.stack.accept(listener).ok_or(Fault::WouldBlock)?;
        let info = self.stack.info(key).ok_or(Fault::Unknown)?;
        let accepted = self.socket(family, options)?;
        self.set_local(accepted, info.local);
        note(&mut self.of_connection, key, Some(accepted));
        let entry = self.entry_mut(accepted)?;
        entry.remote = Some(info.remote);
        entry.phase = Phase::Connected(key);
        entry.was_open = true;
        entry.is_told = true;
        Ok((accepted, info.remote))
    }

    /// Begins to connect: [`Fault::InProgress`] where all is well. [`Sockets::outcome`] says what
    /// becomes of it; and so does the next call of this, once.
    pub fn connect(
        &mut self,
        now: Time,
        socket: Socket,
        remote: SocketAddr,
        network: &impl Network,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        match entry.phase {
            Phase::Listening(..) => return Err(Fault::Connected),
            Phase::Connected(_) if entry.is_told => return Err(Fault::Connected),
            Phase::Connected(_) if entry.was_open => return self.outcome(socket),
            Phase::Connected(_) => return Err(Fault::Already),
            Phase::Idle if entry.has_failed => return Err(take_failure(entry)),
            Phase::Idle => {}
        }
        let remote = canonical(remote);
        check_family(entry, remote)?;
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
        note(&mut self.of_connection, key, Some(socket));
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
            _ => Err(take_failure(entry)),
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
            Phase::Idle => {}
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

    /// How many bytes may be sent now.
    pub fn send_room(&mut self, socket: Socket) -> Result<u64, Fault> {
        let entry = self.entry_mut(socket)?;
        if let Some(error) = entry.error.take() {
            return Err(error);
        }
        let Phase::Connected(key) = entry.phase else {
            return Err(Fault::Closed);
        };
        let options = entry.options;
        let status = self.stack.status(key).ok_or(Fault::Unknown)?;
        if status.is_shut || is_over(&status) {
            return Err(Fault::Closed);
        }
        match options.room(&status) {
            _ if is_opening(&status) => Err(Fault::WouldBlock),
            0 => Err(Fault::WouldBlock),
            room => Ok(room),
        }
    }

    /// Sends what is in `extent`, which is the stack's until [`Owner::sent`]. If `has_more`, what
    /// does not fill a segment waits for it.
    pub fn send(&mut self, socket: Socket, extent: Extent, has_more: bool) -> Result<(), Fault> {
        let key = self.connection(socket)?;
        self.stack.send(key, extent).map_err(|error| match error {
            Error::Full => Fault::WouldBlock,
            _ => Fault::Closed,
        })?;
        let entry = self.entry_mut(socket)?;
        if core::mem::replace(&mut entry.has_more, has_more) != has_more {
            self.apply(socket)?;
        }
        Ok(())
    }

    /// The next bytes that have come, at most so many; `None` if there will be no more. The window
    /// stays smaller by them until [`Sockets::release`].
    pub fn recv(&mut self, socket: Socket, most: u32) -> Result<Option<Extent>, Fault> {
        if let Ok(key) = self.connection(socket)
            && let Some(extent) = self.stack.recv_at_most(key, most)
        {
            return Ok(Some(extent));
        }
        self.why_nothing(socket)
    }

    /// What [`Sockets::recv`] would give, which stays where it is; or what it would say.
    pub fn peek(&mut self, socket: Socket) -> Result<Vec<Extent>, Fault> {
        let waiting: Vec<Extent> = match self.connection(socket) {
            Ok(key) => self.stack.unread(key).collect(),
            Err(_) => Vec::new(),
        };
        if waiting.is_empty() { self.why_nothing(socket).map(|_| waiting) } else { Ok(waiting) }
    }

    /// There is nothing to read.
    fn why_nothing(&mut self, socket: Socket) -> Result<Option<Extent>, Fault> {
        let entry = self.entry_mut(socket)?;
        if let Some(error) = entry.error.take() {
            return Err(error);
        }
        match entry.phase {
            Phase::Connected(_) if entry.is_deaf => Ok(None),
            Phase::Connected(key) => match self.stack.status(key) {
                Some(status) if !status.is_finished && !is_over(&status) => Err(Fault::WouldBlock),
                _ => Ok(None),
            },
            Phase::Idle if entry.has_failed => Ok(None),
            _ => Err(Fault::NotConnected),
        }
    }

    /// The program is done with so many bytes of what it has received.
    pub fn release(&mut self, socket: Socket, bytes: u64) {
        if let Ok(key) = self.connection(socket) {
            self.stack.release(key, bytes);
        }
    }

    /// Nothing will be received, or sent, any more.
    pub fn shutdown(
        &mut self,
        now: Time,
        socket: Socket,
        receive: bool,
        send: bool,
        owner: &mut impl Owner,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        let key = match entry.phase {
            Phase::Idle => return Err(Fault::NotConnected),
            Phase::Listening(..) if receive => return self.disconnect(now, socket, owner),
            Phase::Listening(..) => return Ok(()),
            Phase::Connected(_) if !entry.was_open => return self.disconnect(now, socket, owner),
            Phase::Connected(key) => key,
        };
        entry.is_deaf |= receive;
        if self.stack.status(key).is_none_or(|status| is_over(&status)) {
            return Err(Fault::NotConnected);
        }
        if send {
            self.stack.shutdown(key);
        }
        owner.changed(socket);
        Ok(())
    }

    /// The program lets go of a socket. What it has sent is sent, unless it wants it otherwise
    /// ([`SocketOptions::linger_ns`]); whether that is done [`Sockets::is_lingering`] says.
    pub fn close(
        &mut self,
        now: Time,
        socket: Socket,
        owner: &mut impl Owner,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        entry.is_closed = true;
        match entry.phase {
            Phase::Idle => self.remove(socket),
            Phase::Listening(listener, _) => {
                self.unlisten(now, listener, owner);
                self.remove(socket);
            }
            Phase::Connected(key) => {
                if entry.options.linger_ns == Some(0) {
                    self.stack.abort(now, key);
                } else {
                    self.stack.close(now, key);
                }
                self.remove_if_over(now, socket, key, owner);
            }
        }
        Ok(())
    }

    /// True if a socket that was closed has something to send, or to hear that it has arrived.
    #[must_use]
    pub fn is_lingering(&self, socket: Socket) -> bool {
        let status = self.connection(socket).ok().and_then(|key| self.stack.status(key));
        status.is_some_and(|status| {
            matches!(status.state, State::FinWait1 | State::Closing | State::LastAck)
        })
    }

    /// What can be done with a socket.
    pub fn ready(&self, socket: Socket) -> Result<Ready, Fault> {
        let entry = self.entry(socket)?;
        let mut ready = match entry.phase {
            Phase::Idle => Ready::of_idle(entry.has_failed),
            Phase::Listening(listener, _) => Ready::of_listener(self.stack.acceptable(listener)),
            Phase::Connected(key) => {
                let status = self.stack.status(key).ok_or(Fault::Unknown)?;
                Ready::of_connection(&status, &entry.options, entry.is_deaf)
            }
        };
        ready.has_error = entry.error.is_some();
        Ok(ready)
    }

    /// Bytes that can be read.
    #[must_use]
    pub fn unread_bytes(&self, socket: Socket) -> u64 {
        self.status(socket).map_or(0, |status| status.unread_bytes)
    }

    /// What is known of its connection, if it has one.
    #[must_use]
    pub fn status(&self, socket: Socket) -> Option<Status> {
        self.stack.status(self.connection(socket).ok()?)
    }

    /// All that can be told of its connection, if it has one.
    #[must_use]
    pub fn info(&self, socket: Socket) -> Option<Info> {
        self.stack.info(self.connection(socket).ok()?)
    }

    /// True if it is a listener.
    #[must_use]
    pub fn is_listening(&self, socket: Socket) -> bool {
        self.entry(socket).is_ok_and(|entry| matches!(entry.phase, Phase::Listening(..)))
    }

    /// Its family.
    pub fn family(&self, socket: Socket) -> Result<Family, Fault> {
        Ok(self.entry(socket)?.family)
    }

    /// This end.
    pub fn local(&self, socket: Socket) -> Result<SocketAddr, Fault> {
        Ok(self.entry(socket)?.local)
    }

    /// The peer, once there is a connection, until it is over.
    pub fn peer(&self, socket: Socket) -> Result<SocketAddr, Fault> {
        let entry = self.entry(socket)?;
        let status = self.status(socket).ok_or(Fault::NotConnected)?;
        let is_there = entry.was_open && status.state != State::Closed;
        entry.remote.filter(|_| is_there).ok_or(Fault::NotConnected)
    }

    /// The error that waits to be told, which is told with that.
    pub fn take_error(&mut self, socket: Socket) -> Result<Option<Fault>, Fault> {
        Ok(self.entry_mut(socket)?.error.take())
    }

    /// What is set.
    pub fn options(&self, socket: Socket) -> Result<&SocketOptions, Fault> {
        Ok(&self.entry(socket)?.options)
    }

    /// Sets it anew. What has been agreed on with a peer stays as it is.
    pub fn set_options(&mut self, socket: Socket, options: SocketOptions) -> Result<(), Fault> {
        self.entry_mut(socket)?.options = options;
        self.apply(socket)
    }

    /// Acknowledges what comes at once, for a while, and what has come; or as late as may be.
    pub fn set_quick_acks(&mut self, socket: Socket, are_quick: bool) {
        if let Ok(key) = self.connection(socket) {
            self.stack.set_quick_acks(key, are_quick);
        }
    }

    /// Tells of what has happened to the stack.
    pub fn handle_events(&mut self, now: Time, owner: &mut impl Owner) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Acceptable(listener) => {
                    let socket = self.of_listener.get(listener.0.index() as usize);
                    socket.copied().flatten().into_iter().for_each(|it| owner.changed(it));
                }
                Event::Connection(key, readiness) => {
                    let socket = self.of_connection.get(key.index() as usize).copied().flatten();
                    if let Some(socket) = socket {
                        self.handle_readiness(now, socket, key, readiness, owner);
                        owner.changed(socket);
                    }
                }
            }
        }
    }

    fn handle_readiness(
        &mut self,
        now: Time,
        socket: Socket,
        key: Key,
        readiness: Readiness,
        owner: &mut impl Owner,
    ) {
        while let Some(extent) = self.stack.pop_sent(key) {
            owner.sent(extent);
        }
        let Some(entry) = self.table.get_mut(socket.0) else {
            return;
        };
        entry.was_open |= readiness.contains(Readiness::OPEN);
        if !readiness.contains(Readiness::CLOSED) {
            return;
        }
        if let Some(status) = self.stack.status(key) {
            entry.error = fault::of_end(&status).or(entry.error);
        }
        if entry.is_closed {
            return self.remove_if_over(now, socket, key, owner);
        }
        if !entry.was_open {
            entry.has_failed = true;
            entry.phase = Phase::Idle;
            self.forget(now, key, owner);
            self.release_port(socket);
        }
    }

    // Books.

    fn entry(&self, socket: Socket) -> Result<&Entry, Fault> {
        self.table.get(socket.0).ok_or(Fault::Unknown)
    }

    fn entry_mut(&mut self, socket: Socket) -> Result<&mut Entry, Fault> {
        self.table.get_mut(socket.0).ok_or(Fault::Unknown)
    }

    fn connection(&self, socket: Socket) -> Result<Key, Fault> {
        match self.entry(socket)?.phase {
            Phase::Connected(key) => Ok(key),
            _ => Err(Fault::NotConnected),
        }
    }

    /// Hands what is set to the stack.
    fn apply(&mut self, socket: Socket) -> Result<(), Fault> {
        let entry = self.entry(socket)?;
        match entry.phase {
            Phase::Idle => {}
            Phase::Listening(listener, backlog) => {
                let settings = entry.options.of_listener();
                self.stack.set_listener(listener, backlog, settings);
            }
            Phase::Connected(key) => {
                let settings = entry.options.of_connection(entry.has_more);
                self.stack.set_settings(key, settings);
            }
        }
        Ok(())
    }

    fn set_local(&mut self, socket: Socket, local: SocketAddr) {
        if let Some(entry) = self.table.get_mut(socket.0) {
            entry.local = local;
            self.ports.insert((local.port(), socket));
        }
    }

    /// A port that no program has asked for is free again.
    fn release_port(&mut self, socket: Socket) {
        if let Some(entry) = self.table.get_mut(socket.0).filter(|entry| !entry.is_bound) {
            self.ports.remove(&(entry.local.port(), socket));
            entry.local = entry.family.any();
        }
    }

    fn remove(&mut self, socket: Socket) {
        if let Some(entry) = self.table.remove(socket.0) {
            self.ports.remove(&(entry.local.port(), socket));
        }
    }

    fn remove_if_over(&mut self, now: Time, socket: Socket, key: Key, owner: &mut impl Owner) {
        if self.stack.status(key).is_none_or(|status| is_over(&status)) {
            self.forget(now, key, owner);
            self.remove(socket);
        }
    }

    /// A connection is nobody's any more.
    fn forget(&mut self, now: Time, key: Key, owner: &mut impl Owner) {
        while let Some(extent) = self.stack.pop_sent(key) {
            owner.sent(extent);
        }
        self.stack.forget(now, key, owner);
        note(&mut self.of_connection, key, None);
    }

    fn unlisten(&mut self, now: Time, listener: Listener, owner: &mut impl Owner) {
        self.stack.unlisten(now, listener, owner);
        note(&mut self.of_listener, listener.0, None);
    }

    /// True if a socket may not have `port` because another one has it.
    fn is_taken(&self, socket: Socket, port: u16, claim: &Claim) -> bool {
        let others = self.ports.range((port, FIRST)..).take_while(|(other, _)| *other == port);
        others
            .filter(|(_, other)| *other != socket)
            .filter_map(|(_, other)| self.table.get(other.0))
            .any(|other| claim.excludes(&other.claim()))
    }

    fn free_port(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        claim: &Claim,
    ) -> Result<u16, Fault> {
        let Self { stack, ports, table, .. } = self;
        let is_free = |port| {
            let mut others = ports.range((port, FIRST)..).take_while(|(other, _)| *other == port);
            // Those that no program has asked for may be shared by connections to different peers.
            !others.any(|(_, other)| {
                let other = table.get(other.0).filter(|other| other.is_bound);
                other.is_some_and(|other| other.place().overlaps(&claim.place))
            })
        };
        stack.choose_port(local, remote, is_free).map_err(|_| Fault::NotAvailable)
    }
}

/// Before all others.
const FIRST: Socket = Socket(Key { index: 0, generation: 0 });

fn note(sockets: &mut Vec<Option<Socket>>, key: Key, socket: Option<Socket>) {
    let index = key.index() as usize;
    if sockets.len() <= index {
        sockets.resize(index + 1, None);
    }
    sockets[index] = socket;
}

/// An attempt to connect has failed, and whoever tried is told.
fn take_failure(entry: &mut Entry) -> Fault {
    entry.has_failed = false;
    entry.error.take().unwrap_or(Fault::Aborted)
}

/// IPv4 addresses as such.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn check_family(entry: &Entry, address: SocketAddr) -> Result<(), Fault> {
    match (entry.family, address) {
        (Family::V4, SocketAddr::V6(_)) => Err(Fault::Family),
        (Family::V6, SocketAddr::V4(_)) if entry.options.v6_only => Err(Fault::NoRoute),
        _ => Ok(()),
    }
}

fn is_over(status: &Status) -> bool {
    matches!(status.state, State::TimeWait | State::Closed)
}

fn is_opening(status: &Status) -> bool {
    matches!(status.state, State::SynSent | State::SynReceived)
}

/// True if a connection has ended as both ends wanted it to.
fn is_orderly(end: Option<End>) -> bool {
    matches!(end, None | Some(End::Orderly | End::Aborted))
}
