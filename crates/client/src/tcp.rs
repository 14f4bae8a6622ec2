//! TCP: connections to any peer, through the ports that the daemon has taken from the kernel for
//! this app. Calls of a [`Channel`] name connections by [`TcpId`]; [`Tcp`] has objects for them, as
//! the standard library does (`stream.rs`).
//!
//! What is sent is copied once, into the channel's memory, or filled in there
//! ([`Channel::tcp_send_buffer`]); the daemon reads it there until the peer has acknowledged it.
//! What comes is read where the daemon put it ([`Channel::tcp_recv_buffer`]), or copied from there.

mod opening;
mod own_ports;
mod receiving;
mod sending;
mod stream;
mod watching;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use clearway_base::Prefix;
use clearway_channel::control::OpenTcpPort;
use clearway_channel::{
    Code, Command, Completion, Extent, Granted, OUTSTANDING_SENDS_MAX, ReceivedBytes, tcp_option,
};

use crate::ids::IdMap;
use crate::{Channel, Error, Event, Token};
use own_ports::OwnPorts;
pub use receiving::TcpBytes;
pub use stream::{Tcp, TcpListener, TcpStream};

/// Names a TCP connection of a channel. Never used again for another one while the channel lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TcpId(u64);

impl TcpId {
    /// The id with this number, for bindings.
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// The number, for bindings.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TcpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A TCP port of the app's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPort {
    /// Names it in calls.
    pub id: TcpPortId,
    /// Its address and port; the address is `0.0.0.0` if it is all of the host's.
    pub address: SocketAddr,
}

/// Names a TCP port of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TcpPortId(pub(crate) u32);

impl TcpPortId {
    /// The id with this number, for bindings.
    #[must_use]
    pub fn from_u32(number: u32) -> Self {
        Self(number)
    }

    /// The number, for bindings.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        self.0
    }
}

/// How a TCP port is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpPortOptions {
    /// Other channels of this user may have the port besides, if they say so, too (SO_REUSEPORT),
    /// at any engines of the NIC ([`Options::engine`](crate::Options::engine)). Those that listen
    /// share the connections that come: a connection is for one at the engine to whose queue it
    /// comes, if there is one, and of several by a hash of its addresses and ports. Nobody connects
    /// from a port that channels at other engines have, too
    /// ([`Code::AddressInUse`](crate::Code::AddressInUse)).
    pub shared: bool,
    /// Where the port's peers are; anywhere if empty, and at most 32 prefixes. To all others it is
    /// as if nobody listened there, and it connects to none of them
    /// ([`Code::Denied`](crate::Code::Denied)). Nobody else has the port for them.
    pub peers: Vec<Prefix>,
}

/// What can be set for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption {
    /// Small segments are sent even while others are not acknowledged (`TCP_NODELAY`).
    NoDelay(bool),
    /// A connection that has been idle for so many seconds is probed (`SO_KEEPALIVE` with
    /// `TCP_KEEPIDLE`).
    KeepAlive(Option<u32>),
    /// So many seconds pass between its probes (`TCP_KEEPINTVL`), 0 being taken as 1.
    /// [`KeepAlive`](Self::KeepAlive) sets 75, or as many as it has to be idle if that is less: set
    /// this after it. A connection without it is probed after two hours from then on.
    KeepAliveInterval(u32),
    /// After so many probes in a row without an answer it is given up (`TCP_KEEPCNT`), 0 being
    /// taken as 1: 9. A connection without [`KeepAlive`](Self::KeepAlive) is probed after two hours
    /// from then on.
    KeepAliveProbes(u8),
    /// After so many milliseconds without an acknowledgement it is given up (`TCP_USER_TIMEOUT`).
    UserTimeout(Option<u32>),
    /// Sending waits while so many bytes are not acknowledged (`SO_SNDBUF`): a quarter of the
    /// channel's transmit pool unless another number is set, so that a peer that does not read
    /// cannot keep all of it. A buffer that was filled in place counts whole, however much of it is
    /// sent.
    SendBuffer(u32),
    /// What its packets say of their kind (`IP_TOS`, `IPV6_TCLASS`): the upper six bits are a DSCP
    /// (RFC 2474), the lower two are of ECN and stay as they are. 0 unless another is set.
    TrafficClass(u8),
    /// Routers that its packets may pass (`IP_TTL`, `IPV6_UNICAST_HOPS`): 64 unless another number
    /// is set. 0 is taken as 1.
    HopLimit(u8),
    /// What is sent from now on is in segments of so many bytes at most, payload and TCP's options
    /// (`TCP_MAXSEG`), 64 or more. It is for good: a later one can only be less.
    MaximumSegment(u16),
    /// True: what comes is acknowledged at once for a while. False: as late as may be
    /// (`TCP_QUICKACK`). As there, what comes later may change it again.
    QuickAcks(bool),
}

/// Connections that have changed and are no more are forgotten when there are so many.
const CHANGED_SPARE: usize = 64;

/// The part of a channel's transmit pool, and of the sends that may be outstanding, that one
/// connection may have.
const SEND_PARTS: u32 = 4;

impl TcpOption {
    /// As the daemon is told; nothing if it need not know.
    const fn numbers(self) -> Option<(u32, u32)> {
        const fn or_none(value: Option<u32>) -> u32 {
            match value {
                Some(value) => value,
                None => 0,
            }
        }
        match self {
            Self::NoDelay(is_on) => Some((tcp_option::NO_DELAY, is_on as u32)),
            Self::KeepAlive(seconds) => Some((tcp_option::KEEP_ALIVE, or_none(seconds))),
            Self::UserTimeout(milliseconds) => {
                Some((tcp_option::USER_TIMEOUT, or_none(milliseconds)))
            }
            Self::SendBuffer(_) => None,
            Self::KeepAliveInterval(seconds) => Some((tcp_option::KEEP_ALIVE_INTERVAL, seconds)),
            Self::KeepAliveProbes(probes) => Some((tcp_option::KEEP_ALIVE_PROBES, probes as u32)),
            Self::TrafficClass(class) => Some((tcp_option::TRAFFIC_CLASS, class as u32)),
            Self::HopLimit(hops) => Some((tcp_option::HOP_LIMIT, hops as u32)),
            Self::MaximumSegment(bytes) => Some((tcp_option::MAXIMUM_SEGMENT, bytes as u32)),
            Self::QuickAcks(are_quick) => Some((tcp_option::QUICK_ACKS, are_quick as u32)),
        }
    }
}

/// What an app can do with a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpReady {
    /// There are bytes to receive, or there will be no more.
    pub is_readable: bool,
    /// It takes bytes to be sent, if the channel has room ([`Event::Writable`]).
    pub is_writable: bool,
    /// It has ended.
    pub is_over: bool,
}

/// A connection as the app library knows it.
#[derive(Debug)]
struct Connection {
    local: SocketAddr,
    peer: SocketAddr,
    port: TcpPortId,
    /// The port was chosen for it among the channel's own.
    is_own_port: bool,
    /// What the peer sends takes a detour by another engine.
    is_detour: bool,
    /// Sends that are not finished, oldest first, and how many are, as the daemon counts.
    outstanding: VecDeque<Sent>,
    sent: u32,
    /// Their bytes.
    unacknowledged: u64,
    /// The memory that they have, and how much that may be before sending waits.
    occupied: u64,
    send_buffer: u64,
    /// What has come, and how much of the first of it has been read.
    received: VecDeque<Granted>,
    read_bytes: u32,
    /// The peer has sent all that it will send.
    is_finished: bool,
    is_shut: bool,
    /// The app has let go of it.
    is_closing: bool,
    /// The app has closed its port, which ends it.
    has_lost_port: bool,
    end: Option<Code>,
    /// It is among those that something has happened to.
    is_changed: bool,
    /// It is told of again while something of this can be done.
    watched: TcpReady,
    /// It is among those that are watched, and were ready when that was last looked at.
    is_told_again: bool,
}

/// A send that is not finished.
#[derive(Debug)]
struct Sent {
    extent: Extent,
    /// So many of its bytes were sent, from its start.
    bytes: u32,
}

/// What a channel has of TCP.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    connections: IdMap<u64, Connection>,
    ports: HashMap<TcpPortId, Port>,
    /// Those of them that were taken for connecting, to whomever.
    own_ports: OwnPorts,
    /// Opened by peers, and not accepted.
    accepted: VecDeque<(TcpPortId, TcpId)>,
    /// Attempts to connect: where from and where to, and what came of it.
    attempts: HashMap<Token, Attempt>,
    /// Those of which something has come that nobody was told.
    decided: VecDeque<Token>,
    /// Connections that nobody wants, or not any more, and of which the daemon does not know that.
    unwanted: Vec<Unwanted>,
    /// Ports that the daemon has taken away, which nobody was told.
    lost_ports: VecDeque<(TcpPortId, Code)>,
    /// Those that something has happened to.
    changed: VecDeque<TcpId>,
    /// Those that are told of again: see `watching.rs`.
    again: VecDeque<TcpId>,
}

/// A port of the channel's.
#[derive(Debug)]
struct Port {
    port: TcpPort,
    /// As what it was asked for.
    asked: OpenTcpPort,
    /// It accepts connections.
    is_listening: bool,
    /// It has stopped accepting, and stays until the connections that were left have ended.
    is_left: bool,
}

/// An attempt to connect.
#[derive(Debug)]
struct Attempt {
    port: TcpPortId,
    /// The port was chosen for it among the channel's own.
    is_own_port: bool,
    peer: SocketAddr,
    outcome: Option<Result<TcpId, Code>>,
    is_abandoned: bool,
}

/// A connection that is to be given up.
#[derive(Debug)]
struct Unwanted {
    id: TcpId,
    /// What it came of, if the app has opened it: it has the port until it is given up.
    attempt: Option<Attempt>,
}

impl Connection {
    fn new(local: SocketAddr, peer: SocketAddr, port: TcpPortId, send_buffer: u64) -> Self {
        Self {
            local,
            peer,
            port,
            is_own_port: false,
            is_detour: false,
            outstanding: VecDeque::new(),
            sent: 0,
            unacknowledged: 0,
            occupied: 0,
            send_buffer,
            received: VecDeque::new(),
            read_bytes: 0,
            is_finished: false,
            is_shut: false,
            is_closing: false,
            has_lost_port: false,
            end: None,
            is_changed: false,
            watched: TcpReady::default(),
            is_told_again: false,
        }
    }

    fn ready(&self) -> TcpReady {
        let is_over = self.end.is_some();
        TcpReady {
            is_readable: !self.received.is_empty() || self.is_finished || is_over,
            is_writable: (!self.is_shut && self.takes_bytes()) || is_over,
            is_over,
        }
    }

    /// Has what was sent and is finished freed, while fewer are than `sent`. Returns how many.
    fn finish_sends(&mut self, sent: u32, mut free: impl FnMut(Extent)) -> u32 {
        let mut finished = 0;
        while self.sent != sent
            && let Some(Sent { extent, bytes }) = self.outstanding.pop_front()
        {
            self.sent = self.sent.wrapping_add(1);
            self.unacknowledged -= u64::from(bytes);
            self.occupied -= u64::from(extent.length());
            free(extent);
            finished += 1;
        }
        finished
    }

    /// It is of this port, and has not ended.
    fn is_open_at(&self, port: TcpPortId) -> bool {
        self.port == port && self.end.is_none()
    }

    /// Both ends have closed it.
    fn is_orderly(&self) -> bool {
        self.end == Some(Code::Closed) && !self.has_lost_port
    }

    /// Why nothing can be done with it any more: it has ended with this code.
    fn ended(&self, id: TcpId, code: Code) -> Error {
        match code {
            Code::Closed if self.has_lost_port => Error::TcpPortClosed { connection: id },
            code => Error::TcpEnded { connection: id, peer: self.peer, code },
        }
    }

    /// Something has happened to it: true if nobody knew that yet.
    fn mark_changed(&mut self) -> bool {
        !std::mem::replace(&mut self.is_changed, true)
    }

    /// It has not sent more than it may.
    fn takes_bytes(&self) -> bool {
        self.occupied < self.send_buffer
            && self.outstanding.len() < (OUTSTANDING_SENDS_MAX / SEND_PARTS) as usize
    }
}

impl Sockets {
    fn find(&mut self, id: TcpId) -> Option<&mut Connection> {
        self.connections.get_mut(&id.0)
    }

    /// The connection, unless the app has let go of it.
    fn find_open(&mut self, id: TcpId) -> Option<&mut Connection> {
        self.find(id).filter(|connection| !connection.is_closing)
    }

    /// A connection is over, and the app has let go of it.
    fn remove(&mut self, id: TcpId) {
        let removed = self.connections.remove(&id.0);
        if let Some(over) = removed.filter(|connection| connection.is_own_port) {
            self.own_ports.give_back(over.port, over.peer, over.is_detour, Instant::now());
        }
    }

    /// An attempt is over that has led to no connection.
    fn has_failed(&mut self, attempt: &Attempt) {
        if attempt.is_own_port {
            self.own_ports.give_back(attempt.port, attempt.peer, false, Instant::now());
        }
    }

    fn note_change(&mut self, id: TcpId) {
        if self.find(id).is_some_and(Connection::mark_changed) {
            self.told_of_change(id);
        }
    }

    /// Something has happened to a connection that is not among those yet.
    fn told_of_change(&mut self, id: TcpId) {
        let Self { connections, changed, .. } = self;
        changed.push_back(id);
        // Nobody may ever ask, and connections come and go.
        if changed.len() > 2 * connections.len() + CHANGED_SPARE {
            changed.retain(|id| connections.contains_key(&id.0));
        }
    }

    /// Connections are to be given up, as soon as the ring has room.
    #[inline]
    pub(crate) fn has_unwanted(&self) -> bool {
        !self.unwanted.is_empty()
    }

    /// There is nothing to be told.
    pub(crate) fn is_quiet(&self) -> bool {
        self.changed.is_empty()
            && self.accepted.is_empty()
            && self.decided.is_empty()
            && self.lost_ports.is_empty()
    }
}

impl Channel {
    /// The next connection that something has happened to since it was named last, and what can be
    /// done with it: for loops that serve many. Whoever does not do all that can be done has to
    /// remember that. Does not wait: [`Channel::arm`] says how to.
    pub fn tcp_next_ready(&mut self) -> Result<Option<(TcpId, TcpReady)>, Error> {
        self.gather()?;
        Ok(self.tcp_next_changed())
    }

    fn tcp_next_changed(&mut self) -> Option<(TcpId, TcpReady)> {
        while let Some(id) = self.tcp.changed.pop_front() {
            if let Some(connection) = self.tcp.find_open(id) {
                connection.is_changed = false;
                let ready = connection.ready();
                self.tcp.tell_again(id);
                return Some((id, ready));
            }
        }
        None
    }

    /// The next of what has happened to TCP that is known already.
    #[inline]
    pub(crate) fn tcp_next_event(&mut self) -> Option<Event> {
        if self.tcp.is_quiet() { None } else { self.tcp_event() }
    }

    fn tcp_event(&mut self) -> Option<Event> {
        if let Some((port, code)) = self.tcp.lost_ports.pop_front() {
            return Some(Event::TcpPortClosed { port, code });
        }
        while let Some((port, connection)) = self.tcp.accepted.pop_front() {
            if let Some(peer) = self.tcp.find(connection).map(|found| found.peer) {
                return Some(Event::TcpAccepted { port, connection, peer });
            }
        }
        if let Some(token) = self.tcp.decided.front().copied() {
            return Some(match self.tcp_take_outcome(token)? {
                Ok(connection) => Event::TcpConnected { token, connection },
                Err(code) => Event::TcpConnectFailed { token, code },
            });
        }
        let (connection, ready) = self.tcp_next_changed()?;
        Some(Event::TcpReady { connection, ready })
    }

    /// What can be done with a connection.
    pub fn tcp_ready(&mut self, id: TcpId) -> Option<TcpReady> {
        self.tcp.find_open(id).map(|connection| connection.ready())
    }

    /// This end of a connection, and the peer.
    pub fn tcp_addresses(&mut self, id: TcpId) -> Option<(SocketAddr, SocketAddr)> {
        self.tcp.find_open(id).map(|connection| (connection.local, connection.peer))
    }

    /// Sets an option of a connection.
    pub fn tcp_set(&mut self, id: TcpId, option: TcpOption) -> Result<(), Error> {
        if let TcpOption::SendBuffer(bytes) = option {
            let connection = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?;
            connection.send_buffer = u64::from(bytes.max(1));
            self.tcp.note_change(id);
        }
        match option.numbers() {
            Some((option, value)) => {
                self.tcp_command(id, Command::TcpSet { connection: id.0, option, value })
            }
            None => Ok(()),
        }
    }

    /// Sends no more on a connection; what the peer sends is still received.
    pub fn tcp_shutdown(&mut self, id: TcpId) -> Result<(), Error> {
        self.tcp_command(id, Command::TcpShutdown { connection: id.0 })?;
        if let Some(connection) = self.tcp.find(id) {
            connection.is_shut = true;
        }
        Ok(())
    }

    /// Lets go of a connection: what was sent still arrives. If something has come that was not
    /// received, the peer gets a reset (RFC 9293, section 3.6.1).
    pub fn tcp_close(&mut self, id: TcpId) -> Result<(), Error> {
        // What has come may still be in the ring. If the daemon is gone, there is nobody to tell.
        let _ = self.gather();
        let has_unread =
            self.tcp.find_open(id).is_some_and(|connection| !connection.received.is_empty());
        self.tcp_end(id, has_unread)
    }

    /// Gives a connection up: the peer gets a reset, and what was sent may be lost.
    pub fn tcp_abort(&mut self, id: TcpId) -> Result<(), Error> {
        self.tcp_end(id, true)
    }

    fn tcp_end(&mut self, id: TcpId, abort: bool) -> Result<(), Error> {
        let ended = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?.end;
        if ended.is_none() {
            self.make_room_for_command()?;
            self.submit(&Command::TcpClose { connection: id.0, abort });
        }
        // While room was made, more may have come.
        let Some(connection) = self.tcp.find(id) else { return Ok(()) };
        connection.is_closing = true;
        let received = std::mem::take(&mut connection.received);
        let is_over = connection.end.is_some();
        received.into_iter().for_each(|bytes| self.end.release(bytes));
        if is_over {
            self.tcp.remove(id);
        }
        Ok(())
    }

    /// Gives the daemon a command about a connection that is open.
    fn tcp_command(&mut self, id: TcpId, command: Command) -> Result<(), Error> {
        self.make_room_for_command()?;
        self.tcp_check(id)?;
        self.submit(&command);
        Ok(())
    }

    /// An error if a connection is not open any more.
    fn tcp_check(&mut self, id: TcpId) -> Result<(), Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        let connection = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?;
        match connection.end {
            None => Ok(()),
            Some(code) => Err(connection.ended(id, code)),
        }
    }

    /// Takes bytes of a connection.
    pub(crate) fn tcp_received(&mut self, received: ReceivedBytes) {
        let ReceivedBytes { connection: id, sent, bytes } = received;
        let Some(connection) = self.tcp.connections.get_mut(&id) else {
            return self.end.release(bytes);
        };
        let finished = connection.finish_sends(sent, |extent| self.end.free(extent));
        match connection.is_closing {
            false => connection.received.push_back(bytes),
            true => self.end.release(bytes),
        }
        if connection.mark_changed() {
            self.tcp.told_of_change(TcpId(id));
        }
        self.sends_are_over(finished);
    }

    /// Takes what else is told of TCP.
    pub(crate) fn tcp_told(&mut self, completion: Completion) {
        match completion {
            Completion::TcpAccepted { connection, port, peer, local } => {
                let local = local.to_canonical();
                self.tcp_accepted(TcpPortId(port), TcpId(connection), local, peer);
            }
            Completion::TcpConnected { is_detour, token, connection, local } => {
                let (token, id) = (Token::from_u64(token), TcpId(connection));
                self.tcp_connected(token, id, local, is_detour);
            }
            Completion::TcpConnectFailed { token, code } => {
                self.tcp_failed(Token::from_u64(token), code);
            }
            Completion::TcpSent { connection, sent } => self.tcp_sent(TcpId(connection), sent),
            Completion::TcpFinished { connection } => {
                if let Some(connection) = self.tcp.find(TcpId(connection)) {
                    connection.is_finished = true;
                }
                self.tcp.note_change(TcpId(connection));
            }
            Completion::TcpClosed { connection, code, .. } => {
                self.tcp_closed(TcpId(connection), code);
            }
            _ => {} // not of TCP
        }
    }

    fn tcp_closed(&mut self, id: TcpId, code: Code) {
        let Some(connection) = self.tcp.find(id) else { return };
        connection.end = Some(code);
        let port = connection.port;
        let outstanding = std::mem::take(&mut connection.outstanding);
        (connection.unacknowledged, connection.occupied) = (0, 0);
        if connection.is_closing {
            self.tcp.remove(id);
        }
        let sends = outstanding.len() as u32;
        outstanding.into_iter().for_each(|sent| self.end.free(sent.extent));
        self.sends_are_over(sends);
        self.tcp.note_change(id);
        self.tcp_give_back(port);
    }

    /// So many sends are finished.
    fn tcp_sent(&mut self, id: TcpId, sent: u32) {
        let Some(connection) = self.tcp.find(id) else { return };
        let finished = connection.finish_sends(sent, |extent| self.end.free(extent));
        self.sends_are_over(finished);
        self.tcp.note_change(id);
    }
}

/// A connection is not there, or not any more.
fn is_not_open(connection: TcpId) -> Error {
    Error::TcpNotOpen { connection }
}
