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
//!     ▲      └─connect─▶ (Deferred ─▶) Connected ──close──▶ on its own until all is sent, then gone
//!     └── refused, or disconnected ──┘
//! ```
//!
//! Call order: what happens to the stack below ([`Sockets::stack_mut`]), and all calls here, are
//! followed by [`Sockets::handle_events`], which tells the owner of what has changed.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clearway_base::{SlotId, Slots, Time};

use crate::connection::{Info, Status};
use crate::event::{End, Readiness};
use crate::extent::{Extent, Memory};
use crate::stack::{Event, Stack};
use crate::state::State;

mod closing;
mod entry;
mod fault;
mod holders;
mod names;
mod opening;
mod options;
mod ports;
mod ready;
mod transfer;

use entry::{Entry, Phase};
pub use fault::Fault;
use holders::Holders;
use names::Names;
pub use options::SocketOptions;
pub use ready::Ready;

/// Names a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Socket(SlotId);

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

/// All sockets of a stack.
#[derive(Debug)]
pub struct Sockets {
    stack: Stack,
    table: Slots<Entry>,
    names: Names,
    holders: Holders,
}

impl Sockets {
    /// The sockets of a stack, which has none so far; `sockets_max` at most.
    #[must_use]
    pub fn new(stack: Stack, sockets_max: u32) -> Self {
        let (names, holders) = (Names::default(), Holders::default());
        Self { stack, table: Slots::new(sockets_max), names, holders }
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
        self.table.count() as usize
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A new one.
    pub fn socket(&mut self, family: Family, options: SocketOptions) -> Result<Socket, Fault> {
        self.table.insert(Entry::new(family, options)).map(Socket).ok_or(Fault::Full)
    }

    /// What can be done with a socket.
    pub fn ready(&self, socket: Socket) -> Result<Ready, Fault> {
        let entry = self.entry(socket)?;
        let mut ready = match entry.phase {
            Phase::Idle => Ready::of_idle(entry.has_failed),
            Phase::Deferred(_) => Ready { is_writable: true, ..Ready::default() },
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

    /// What waits to be sent does not wait for more any longer, not even if it is corked.
    pub fn hurry(&mut self, socket: Socket) {
        if let Ok(key) = self.connection(socket) {
            self.stack.hurry(key);
        }
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
                    self.names.of_listener(listener).into_iter().for_each(|it| owner.changed(it));
                }
                Event::Connection(key, readiness) => {
                    if let Some(socket) = self.names.of_connection(key) {
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
        key: SlotId,
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
            entry.error = fault::of_end(&status, &entry.options.settings).or(entry.error);
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

    fn connection(&self, socket: Socket) -> Result<SlotId, Fault> {
        match self.entry(socket)?.phase {
            Phase::Connected(key) => Ok(key),
            _ => Err(Fault::NotConnected),
        }
    }

    /// Hands what is set to the stack.
    fn apply(&mut self, socket: Socket) -> Result<(), Fault> {
        let entry = self.entry(socket)?;
        match entry.phase {
            Phase::Idle | Phase::Deferred(_) => {}
            Phase::Listening(listener, backlog) => {
                let (settings, keys) = (entry.options.of_listener(), entry.options.fast_open_keys);
                self.stack.set_listener(listener, backlog, settings);
                self.stack.set_listener_keys(listener, keys);
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
            self.holders.add(local.port(), socket);
        }
    }

    /// A port that no program has asked for is free again.
    fn release_port(&mut self, socket: Socket) {
        if let Some(entry) = self.table.get_mut(socket.0).filter(|entry| !entry.is_bound) {
            self.holders.remove(entry.local.port(), socket);
            entry.local = entry.family.any();
        }
    }
}

fn is_over(status: &Status) -> bool {
    matches!(status.state, State::TimeWait | State::Closed)
}

fn is_opening(status: &Status) -> bool {
    matches!(status.state, State::SynSent | State::SynReceived) && !status.is_early
}

/// True if a connection has ended as both ends wanted it to.
fn is_orderly(end: Option<End>) -> bool {
    matches!(end, None | Some(End::Orderly | End::Aborted))
}
