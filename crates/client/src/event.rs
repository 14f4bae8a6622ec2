//! What a channel tells its app.

use std::fmt;
use std::net::SocketAddr;

use clearway_channel::{Code, Granted};

use crate::operations::RawOperated;
use crate::streams::AcceptedStream;
use crate::{Frames, Message, Notified, Operated, PostEnd, TcpId, TcpPortId, TcpReady, VifId};

/// Names a connection of a channel. Never used again for another one while the channel lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
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

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a listener of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) u32);

impl ListenerId {
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

/// Names an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// The token with this number, for bindings.
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

/// A connection that a peer opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The listener that it came to.
    pub listener: ListenerId,
    /// The connection.
    pub connection: ConnectionId,
    /// Its other end: the address of its host, and the port that its daemon sends from; 0 if it is
    /// an app of the same engine.
    pub peer: SocketAddr,
}

/// Something that happened on a channel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer has connected.
    Accepted(Accepted),
    /// A peer has opened a stream.
    StreamAccepted(AcceptedStream),
    /// An attempt to connect, or to open a stream, has succeeded.
    Connected {
        /// The attempt.
        token: Token,
        /// The connection.
        connection: ConnectionId,
        /// Its other end.
        peer: SocketAddr,
    },
    /// An attempt to connect, or to open a stream, has failed.
    ConnectFailed {
        /// The attempt.
        token: Token,
        /// Why.
        code: Code,
    },
    /// A message has come.
    Message(Message),
    /// A message with a deadline ([`send_within`](crate::Channel::send_within),
    /// [`send_zero_copy_within`](crate::Channel::send_zero_copy_within)) could not leave in time,
    /// and was dropped. The peer knows. Calls that only receive messages pass over it.
    Dropped {
        /// The connection.
        connection: ConnectionId,
        /// Its number among the messages that were sent on it.
        message: u32,
    },
    /// The peer has dropped messages that would have come here, since their time was over.
    Skipped {
        /// The connection.
        connection: ConnectionId,
        /// How many.
        messages: u32,
    },
    /// A buffer that was posted is the app's again: a message has come into it, or none will. Told
    /// of each, also of those whose connection the app itself has closed.
    PostEnded(PostEnd),
    /// A connection has ended: the last event of it. Not told of those that the app itself closed.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// `Code::Closed` if the peer closed it in good order, else why.
        code: Code,
    },
    /// Frames have come.
    Frames(Frames),
    /// The daemon has taken a virtual interface away: the last event of it.
    VifClosed {
        /// The interface.
        vif: VifId,
        /// Why.
        code: Code,
    },
    /// A one-sided operation that nobody waits for is over.
    Operated(Operated),
    /// A peer has written into a region, and says so.
    Notified(Notified),
    /// A peer has opened a TCP connection.
    TcpAccepted {
        /// The port that it came to.
        port: TcpPortId,
        /// The connection.
        connection: TcpId,
        /// Its other end.
        peer: SocketAddr,
    },
    /// An attempt to open a TCP connection has succeeded.
    TcpConnected {
        /// The attempt.
        token: Token,
        /// The connection.
        connection: TcpId,
    },
    /// An attempt to open a TCP connection has failed.
    TcpConnectFailed {
        /// The attempt.
        token: Token,
        /// Why.
        code: Code,
    },
    /// Something has happened to a TCP connection since it was last named. Whoever does not do all
    /// that can be done has to remember that: it is not told again.
    TcpReady {
        /// The connection.
        connection: TcpId,
        /// What can be done with it.
        ready: TcpReady,
    },
    /// The daemon has taken a TCP port away: nobody can connect there any more.
    TcpPortClosed {
        /// The port.
        port: TcpPortId,
        /// Why.
        code: Code,
    },
    /// There is room to send again, after a send had found none.
    Writable,
}

/// An event as it is queued: a message is still an extent.
#[derive(Debug)]
pub(crate) enum Arrival {
    Accepted(Accepted),
    StreamAccepted(AcceptedStream),
    Connected { token: Token, connection: ConnectionId, peer: SocketAddr },
    ConnectFailed { token: Token, code: Code },
    Message(RawMessage),
    Dropped { connection: ConnectionId, message: u32 },
    Skipped { connection: ConnectionId, messages: u32 },
    PostEnded(PostEnd),
    Closed { connection: ConnectionId, code: Code, peer: SocketAddr, sends_outstanding: u32 },
    Frames(RawFrames),
    VifClosed { vif: VifId, code: Code },
    Operated(RawOperated),
    Notified(Notified),
}

/// A message in the receive pool.
#[derive(Debug)]
pub(crate) struct RawMessage {
    pub(crate) connection: ConnectionId,
    pub(crate) bytes: Granted,
}

/// Frames in the receive pool.
#[derive(Debug)]
pub(crate) struct RawFrames {
    pub(crate) vif: VifId,
    pub(crate) count: u16,
    pub(crate) bytes: Granted,
}
