//! What a call waited for in vain, in words that say where to look.

use std::fmt;
use std::net::SocketAddr;

use crate::{Channel, ConnectionId, VifId};

/// What a call waited for when its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// An answer to an attempt to connect.
    Connection(SocketAddr),
    /// The same, by TCP.
    TcpConnection(SocketAddr),
    /// Bytes of a TCP connection, or its end.
    Bytes,
    /// A peer that connects.
    Peer,
    /// A message of any connection, or its end.
    Message,
    /// A message of one connection, or its end.
    MessageOf {
        /// The connection.
        connection: ConnectionId,
        /// Its other end, if it is still open.
        peer: Option<SocketAddr>,
    },
    /// Anything that can happen on a channel.
    Event,
    /// The end of a one-sided operation, or the answer to a share.
    Operation,
    /// The answer to a call.
    AnswerOf {
        /// The connection by which it was asked.
        connection: ConnectionId,
        /// Its other end, if it is still open.
        peer: Option<SocketAddr>,
    },
    /// Frames of a virtual interface.
    Frames,
    /// Room for a message or a command.
    Room,
    /// Room for bytes of a TCP connection.
    RoomForBytes,
    /// Room for the frames of a virtual interface.
    RoomOf(VifId),
    /// Everything that was sent to be delivered.
    Delivery,
    /// The daemon's answer to a request.
    Answer,
    /// A daemon that takes the app.
    Daemon,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(peer) => write!(
                f,
                "no answer from {} port {}; is its daemon running, and can packets pass? \
                 Try `clearway ping {}`",
                peer.ip(),
                peer.port(),
                peer.ip()
            ),
            Self::TcpConnection(peer) => write!(
                f,
                "no answer from {} port {}; is it up, and can packets pass?",
                peer.ip(),
                peer.port()
            ),
            Self::Bytes => {
                f.write_str("no bytes have come by this connection; does the peer send?")
            }
            Self::Peer => f.write_str(
                "nobody has connected, or the channel has as many connections as it may \
                 (connections_per_channel); do clients use the address and port of this listener? \
                 See LISTENERS in `clearway status`, and connections_refused, which counts those \
                 that were over the limit",
            ),
            Self::Message => f.write_str(
                "no message has come by any connection; do the peers send? \
                 See FLOWS in `clearway status`",
            ),
            Self::MessageOf { connection, peer: Some(peer) } => write!(
                f,
                "no message has come from {} port {} by connection {connection}; \
                 does the peer send? See FLOWS in `clearway status`, and `clearway ping {}`",
                peer.ip(),
                peer.port(),
                peer.ip()
            ),
            Self::MessageOf { connection, peer: None } => {
                write!(f, "no message has come by connection {connection}, which has ended")
            }
            Self::Event => f.write_str(
                "nothing has happened on the channel; see FLOWS and LISTENERS in `clearway status`",
            ),
            Self::Operation => f.write_str(
                "no operation has ended; does the host of the region's owner answer? \
                 See FLOWS in `clearway status`",
            ),
            Self::AnswerOf { connection, peer } => {
                f.write_str("no answer to a call has come ")?;
                if let Some(peer) = peer {
                    write!(f, "from {} port {} ", peer.ip(), peer.port())?;
                }
                write!(
                    f,
                    "by connection {connection}; does its app serve calls, and is it not too busy? \
                     See FLOWS in `clearway status`"
                )
            }
            Self::Frames => f.write_str(
                "no frame has come to the virtual interfaces of the channel; \
                 see `clearway vif list`, and `clearway vif capture` for what passes",
            ),
            Self::Room => f.write_str(
                "there was no room for another message; do the peers read, and are their receive \
                 pools as large as the messages? See FLOWS in `clearway status`, or attach with a \
                 larger transmit pool",
            ),
            Self::RoomForBytes => f.write_str(
                "there was no room for more bytes; does the peer read? See `clearway flows`, or \
                 give the connection a larger send buffer, or the channel a larger transmit pool",
            ),
            Self::RoomOf(vif) => write!(
                f,
                "there was no room for another frame of virtual interface {vif}; \
                 does the NIC send? See `clearway status`"
            ),
            Self::Delivery => f.write_str(
                "not everything that was sent has been acknowledged; do the peers read, \
                 and do their hosts answer? See FLOWS in `clearway status`",
            ),
            Self::Answer => f.write_str(
                "the daemon did not answer a request; does it run? See its log, \
                 and `clearway status`",
            ),
            Self::Daemon => f.write_str(
                "no daemon took the app; start one with `clearway daemon`, or set CLEARWAY_SOCKET",
            ),
        }
    }
}

impl Channel {
    /// The same, as precise as the channel can say it.
    #[cold]
    pub(crate) fn name_peer(&mut self, awaited: Awaited) -> Awaited {
        match awaited {
            Awaited::MessageOf { connection, .. } => {
                Awaited::MessageOf { connection, peer: self.peer(connection) }
            }
            Awaited::Message => match self.connections.only_one() {
                Some((connection, peer)) => Awaited::MessageOf { connection, peer: Some(peer) },
                None => awaited,
            },
            _ => awaited,
        }
    }
}
