//! What can go wrong in an app's calls.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clearway_channel::{Code, Corrupt, MEMBERS_MAX, NotShareable, OpenError};

use crate::streams::{URGENCY_MAX, WEIGHT_MAX};
use crate::{Awaited, ConnectionId, Ended, OperationStatus, Refusal, TcpId, Unposted, VifId};

/// Why a call did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to receive, or no room to send, and the call was not to wait.
    #[error("{}", Code::WouldBlock)]
    WouldBlock,
    /// The timeout passed first. Nothing has ended by it.
    #[error("timed out after {waited:?}: {awaited}")]
    TimedOut {
        /// What was waited for.
        awaited: Awaited,
        /// For how long.
        waited: Duration,
    },
    /// A connection could not be opened.
    #[error(
        "cannot connect to {} port {} (tried for {waited:.1?}): {}",
        peer.ip(), peer.port(), why_not(peer, *code)
    )]
    Connect {
        /// Where to.
        peer: SocketAddr,
        /// How long it took until that was known.
        waited: Duration,
        /// Why not.
        code: Code,
    },
    /// A stream could not be opened.
    #[error("cannot open a stream of connection {connection}: {}", why_no_stream(*code))]
    Stream {
        /// Of which connection.
        connection: ConnectionId,
        /// Why not.
        code: Code,
    },
    /// A TCP connection could not be opened.
    #[error(
        "cannot connect to {} port {} by TCP (tried for {waited:.1?}): {}",
        peer.ip(), peer.port(), why_not_tcp(peer, *code)
    )]
    TcpConnect {
        /// Where to.
        peer: SocketAddr,
        /// How long it took until that was known.
        waited: Duration,
        /// Why not.
        code: Code,
    },
    /// A host has several addresses, and no connection to any of them was opened.
    #[error("{}", none_of(failed, untried))]
    ConnectToNone {
        /// Why not, of each address that was tried.
        failed: Vec<Error>,
        /// Those for which no time was left.
        untried: Vec<SocketAddr>,
    },
    /// A descriptor cannot be shared memory.
    #[error("the memory cannot be shared: {0}")]
    Memory(#[from] NotShareable),
    /// There is no such host, or this is not how one is written.
    #[error("cannot find \"{name}\": {cause}; check its spelling, and try `getent hosts`")]
    UnknownHost {
        /// What was looked up.
        name: String,
        /// Why it was not found.
        #[source]
        cause: io::Error,
    },
    /// A connection has ended, or was never open.
    #[error("connection {connection}: {}", why_over(*code))]
    Connection {
        /// Which.
        connection: ConnectionId,
        /// Why.
        code: Code,
    },
    /// A TCP connection is not there: the app has closed it, or never had it on this channel.
    #[error(
        "TCP connection {connection} is not open on this channel: the app has closed it, or it is \
         another channel's, or there never was one; name one that is open"
    )]
    TcpNotOpen {
        /// Which.
        connection: TcpId,
    },
    /// A TCP connection has ended.
    #[error(
        "TCP connection {connection} to {} port {}: {}",
        peer.ip(), peer.port(), why_over_tcp(peer, *code)
    )]
    TcpEnded {
        /// Which.
        connection: TcpId,
        /// The peer.
        peer: SocketAddr,
        /// Why.
        code: Code,
    },
    /// The app has closed the port of a TCP connection, which ends by that.
    #[error(
        "TCP connection {connection} was reset because the app has closed its port; close a port \
         when its connections have ended, or only stop accepting there (unlisten)"
    )]
    TcpPortClosed {
        /// Which.
        connection: TcpId,
    },
    /// The app has closed its half of a TCP connection.
    #[error(
        "TCP connection {connection} takes no more bytes: the app has closed its half (shutdown); \
         close that later, or open another connection"
    )]
    TcpShut {
        /// Which.
        connection: TcpId,
    },
    /// A virtual interface has ended, or was never open.
    #[error("virtual interface {vif} {}", fate(*code))]
    Vif {
        /// Which.
        vif: VifId,
        /// Why.
        code: Code,
    },
    /// A one-sided operation was not done, or a region is not shared.
    #[error("{}", status.text())]
    Operation {
        /// Why.
        status: OperationStatus,
    },
    /// A group of peers has more members than it may have.
    #[error(
        "a group of {members} members, and {MEMBERS_MAX} may be in one; name prefixes instead of \
         addresses, or make several groups"
    )]
    GroupTooLarge {
        /// Its members.
        members: usize,
    },
    /// A buffer is not posted.
    #[error("{}", why.text())]
    Post {
        /// Why.
        why: Unposted,
    },
    /// An operation of a vector is wrong, and none of them was submitted.
    #[error("operation {index} of the vector, of which none was submitted: {cause}")]
    Vector {
        /// The first that is wrong, counted from 0.
        index: usize,
        /// What is wrong with it.
        #[source]
        cause: Box<Error>,
    },
    /// A vector of operations is longer than the channel takes at once.
    #[error(
        "up to here the vector has more than the channel takes at once: {operations_max} \
         operations, and what its transmit pool holds; split it, or attach with more \
         submission_entries and a larger transmit pool"
    )]
    VectorTooLong {
        /// The most operations.
        operations_max: usize,
    },
    /// The peer has not done what it was asked for in a call.
    #[error("the call was refused ({reason}){}{text}", if text.is_empty() { "" } else { ": " })]
    CallRefused {
        /// Why not.
        reason: Refusal,
        /// The same in the peer's words, if it has any.
        text: String,
    },
    /// A frame is shorter than its header, or larger than can be sent.
    #[error("a frame of {length} bytes; 14 to {limit} bytes can be sent")]
    FrameLength {
        /// Its bytes.
        length: usize,
        /// The most that can be sent.
        limit: usize,
    },
    /// A message is larger than can be sent.
    #[error(
        "a message of {length} bytes is over the limit of {limit}; split it, or attach with a \
         larger transmit pool if that is the limit"
    )]
    TooLarge {
        /// Its bytes.
        length: usize,
        /// The most this channel can send.
        limit: usize,
    },
    /// A message is larger than the buffer given. It can still be received.
    #[error(
        "the message has {length} bytes and the buffer {room}; give a larger one, or receive in \
         place"
    )]
    BufferTooSmall {
        /// The message's bytes.
        length: usize,
        /// The buffer's bytes.
        room: usize,
    },
    /// The daemon refused.
    #[error("the daemon refused: {message}")]
    Refused {
        /// Why.
        code: Code,
        /// Why, in the daemon's words.
        message: String,
    },
    /// The call asks for something that is wrong or cannot be had, as the library sees by itself:
    /// nobody was asked.
    #[error("{message}")]
    Declined {
        /// Why.
        code: Code,
        /// Why, in words.
        message: String,
    },
    /// A connection's priority is out of its ranges.
    #[error(
        "a priority has an urgency of 0 to {URGENCY_MAX} and a weight of 1 to {WEIGHT_MAX}, \
         not {urgency} and {weight}"
    )]
    Priority {
        /// Its urgency.
        urgency: u8,
        /// Its weight.
        weight: u16,
    },
    /// There is no daemon.
    #[error(
        "no daemon answers at {} ({cause}); start one with `clearway daemon`, or set \
         CLEARWAY_SOCKET",
        path.display()
    )]
    NoDaemon {
        /// Where it was looked for.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// Somebody else answers in the daemon's place.
    #[error(
        "user {answered} answers at {}, where the daemon should be of {whom}; set CLEARWAY_SOCKET \
         to the right daemon's socket, or expect that user (`daemon_user` of the options)",
        path.display()
    )]
    WrongDaemon {
        /// Where.
        path: PathBuf,
        /// Who listens there.
        answered: u32,
        /// Who should.
        whom: String,
    },
    /// The daemon has gone away, or has ended the session.
    #[error("{message}")]
    DaemonGone {
        /// `DaemonGone`, or why the daemon ended the session.
        code: Code,
        /// The same in words.
        message: String,
    },
    /// The daemon's answer makes no sense.
    #[error("the daemon's answer makes no sense ({0}); install the same version of both")]
    Answer(String),
    /// The channel cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The channel is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The kernel refused something.
    #[error("the kernel refused: {0}; see `ulimit -n` and `dmesg`")]
    Io(#[from] io::Error),
}

impl Error {
    /// An argument is wrong.
    pub(crate) fn argument(message: String) -> Self {
        Self::Declined { code: Code::Invalid, message }
    }

    /// What is over: nothing, the connection that the call was about, or the channel.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match self {
            Self::Connect { .. } | Self::TcpConnect { .. } | Self::Refused { .. } => Ended::Nothing,
            Self::ConnectToNone { .. } => Ended::Nothing,
            Self::Vif { .. } | Self::Operation { .. } | Self::CallRefused { .. } => Ended::Nothing,
            Self::Post { .. } | Self::Declined { .. } => Ended::Nothing,
            Self::Vector { cause, .. } => cause.ended(),
            Self::Corrupt(_) => Ended::Channel,
            // Whatever the code: a stream that the peer does not take ends as refused.
            Self::Connection { code, .. } | Self::TcpEnded { code, .. }
                if code.ended() == Ended::Nothing =>
            {
                Ended::Connection
            }
            other => other.code().ended(),
        }
    }

    /// The code of the error: the same list in every language.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::WouldBlock => Code::WouldBlock,
            Self::TimedOut { .. } => Code::TimedOut,
            Self::ConnectToNone { failed, untried } if untried.is_empty() => {
                failed.last().map_or(Code::TimedOut, Self::code)
            }
            Self::ConnectToNone { .. } => Code::TimedOut,
            Self::Connect { code, .. }
            | Self::Stream { code, .. }
            | Self::TcpConnect { code, .. }
            | Self::Connection { code, .. }
            | Self::TcpEnded { code, .. }
            | Self::Vif { code, .. }
            | Self::Refused { code, .. }
            | Self::Declined { code, .. }
            | Self::DaemonGone { code, .. } => *code,
            Self::TcpNotOpen { .. } | Self::TcpPortClosed { .. } | Self::TcpShut { .. } => {
                Code::Closed
            }
            Self::Operation { status } => code_of(*status),
            Self::Vector { cause, .. } => cause.code(),
            Self::CallRefused { .. } => Code::CallRefused,
            Self::TooLarge { .. }
            | Self::BufferTooSmall { .. }
            | Self::VectorTooLong { .. }
            | Self::GroupTooLarge { .. } => Code::TooLarge,
            Self::FrameLength { length, limit } if length > limit => Code::TooLarge,
            Self::FrameLength { .. }
            | Self::UnknownHost { .. }
            | Self::Priority { .. }
            | Self::Post { .. } => Code::Invalid,
            Self::NoDaemon { .. } | Self::WrongDaemon { .. } => Code::NoDaemon,
            Self::Answer(_) | Self::Open(OpenError::Mismatch) => Code::Mismatch,
            Self::Open(OpenError::Io(_) | OpenError::Descriptor(_))
            | Self::Memory(NotShareable::Io(_) | NotShareable::NoRoom { .. }) => Code::OutOfMemory,
            Self::Memory(_) => Code::Invalid,
            Self::Corrupt(_) | Self::Io(_) => Code::Internal,
        }
    }
}

/// The nearest that there is in the list of all languages.
const fn code_of(status: OperationStatus) -> Code {
    use OperationStatus as Status;
    match status {
        Status::NotAllowed | Status::Denied => Code::Denied,
        Status::TooLarge | Status::NoRoom => Code::TooLarge,
        Status::Busy => Code::WouldBlock,
        Status::TooMany | Status::TooManyGroups => Code::Limit,
        Status::NameTaken => Code::AddressInUse,
        Status::Unknown | Status::Failed => Code::Reset,
        Status::NoConnection => Code::Closed,
        Status::Unsupported => Code::Unsupported,
        _ => Code::Invalid,
    }
}

/// Why a connection could not be opened, and what to look at.
fn why_not(peer: &SocketAddr, code: Code) -> String {
    match code {
        Code::Unreachable => format!(
            "no daemon answers there; is there a route, is one running with the same udp_port, \
             and do firewalls let that through? Try `clearway ping {}`",
            peer.ip()
        ),
        Code::Refused => {
            "nobody listens on that port of the peer, or the app that does has as many connections \
             as it may; start the server, check the port, or see connections_refused in the \
             `clearway status` of that host"
                .to_owned()
        }
        code => code.to_string(),
    }
}

/// What was tried, why each attempt failed, and what was not tried.
fn none_of(failed: &[Error], untried: &[SocketAddr]) -> String {
    let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
    let text = failed.join("; ");
    if untried.is_empty() {
        return text;
    }
    let untried: Vec<String> = untried.iter().map(|peer| peer.ip().to_string()).collect();
    format!("{text}; no time was left for {}: give it more, or one address", untried.join(", "))
}

/// Why a stream could not be opened, and what to do instead.
const fn why_no_stream(code: Code) -> &'static str {
    match code {
        Code::Invalid => {
            "it is a stream itself, or shares a flow with others; open it of a connection that \
             does neither"
        }
        Code::Limit => {
            "it has 1024 of them, or the channel as many connections as it may; close some, or \
             raise connections_per_channel in clearway.toml"
        }
        Code::Refused => "the peer's app takes none; have it call take_streams before it listens",
        code => code.text(),
    }
}

/// Why a connection is over.
const fn why_over(code: Code) -> &'static str {
    match code {
        Code::Refused => {
            "it was a stream, and the peer's app takes none; have that call take_streams before \
             it listens or connects"
        }
        code => code.text(),
    }
}

/// Why a TCP connection is over, whose peer need not know of Clearway.
fn why_over_tcp(peer: &SocketAddr, code: Code) -> String {
    match code {
        Code::Closed => "both ends have closed it; connect again".to_owned(),
        Code::Lost => format!(
            "its host has not answered for so long that the connection was given up; check whether \
             it is up (`ping {}`), what firewalls drop, and the route (`ip route`); `clearway \
             flows` shows how others fare",
            peer.ip()
        ),
        Code::Unreachable => format!(
            "its host cannot be reached; check its address, the wire and the route (`ip route`, \
             `ping {}`)",
            peer.ip()
        ),
        code => code.to_string(),
    }
}

/// The same for what was never open.
fn why_not_tcp(peer: &SocketAddr, code: Code) -> &'static str {
    match code {
        Code::Unreachable if peer.ip().is_loopback() || peer.ip().is_unspecified() => {
            "that address stands for the kernel's own loopback, where Clearway is not; for this \
             host, take one of its addresses in `clearway status`"
        }
        Code::Unreachable if peer.ip().is_multicast() => {
            "that address is a group's, and TCP connects to one host; take its own address"
        }
        Code::Unreachable => {
            "its host cannot be reached; check its address, the wire and the route"
        }
        Code::Lost => "its host does not answer; check whether it is up, and what firewalls drop",
        Code::AddressInUse => {
            "there is such a connection already, or was a minute ago; use another port"
        }
        Code::Limit => {
            "the channel has as many connections as it may (connections_per_channel in \
             [policy.limits] of the daemon's configuration), or too many attempts wait for their \
             hosts' Ethernet addresses; close some, raise that, or attach another channel"
        }
        code => code.text(),
    }
}

/// What has become of a virtual interface.
fn fate(code: Code) -> String {
    match code {
        Code::Closed => "is not open: it was closed, or never opened; open it again".to_owned(),
        Code::AddressUnavailable => {
            "was taken away: its NIC has another Ethernet address now; open it again to have that"
                .to_owned()
        }
        code => format!("was taken away: {code}"),
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}
