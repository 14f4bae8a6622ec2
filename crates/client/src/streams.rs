//! Streams: connections that share what another connection has, its flow over the network. What
//! they promise is in `docs/streams.md`.

use std::time::{Duration, Instant};

use clearway_channel::Command;

use crate::channel::Attempt;
use crate::wait::check_may_wait;
use crate::{Awaited, Channel, ConnectionId, Error, Token};

/// The last to have a turn.
pub(crate) const URGENCY_MAX: u8 = 7;
/// The largest part of what those of an urgency may send.
pub(crate) const WEIGHT_MAX: u16 = 256;

/// A stream that a peer opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedStream {
    /// The stream: a connection like any other.
    pub connection: ConnectionId,
    /// The connection of which it is a stream.
    pub parent: ConnectionId,
}

impl Channel {
    /// Opens a stream of a connection: another connection to the same app, with messages, order,
    /// credit and an end of its own. It is opened without a packet being waited for, up to 1024 of
    /// a connection, and ends with it at the latest. The peer has to
    /// [take streams](Self::take_streams): else it is closed as refused. Waits for the daemon;
    /// without time to wait nothing is begun
    /// ([`Code::WouldBlock`](crate::Code::WouldBlock)): that is what
    /// [`start_open_stream`](Self::start_open_stream) is for.
    pub fn open_stream(
        &mut self,
        connection: ConnectionId,
        timeout: Option<Duration>,
    ) -> Result<ConnectionId, Error> {
        check_may_wait(timeout, Some(("start_open_stream", "next_event")))?;
        let begun = Instant::now();
        let token = self.start_open_stream(connection)?;
        let peer = self.peer_of(connection)?;
        self.wait_connected(token, peer, begun, timeout).map_err(|error| match error {
            Error::Connect { code, .. } => Error::Stream { connection, code },
            error => error,
        })
    }

    /// Begins to open a stream; [`next_event`](Self::next_event) tells of the outcome, as of
    /// [`start_connect`](Self::start_connect).
    pub fn start_open_stream(&mut self, connection: ConnectionId) -> Result<Token, Error> {
        self.check_open(connection)?;
        self.make_room_for_command()?;
        // It may have ended meanwhile.
        let peer = self.peer_of(connection)?;
        let token = self.next_token();
        let connection = connection.as_u64();
        self.submit(&Command::OpenStream { token: token.as_u64(), connection });
        self.connecting.insert(token, Attempt { peer, is_abandoned: false, is_stream: true });
        Ok(token)
    }

    /// Whether peers may open streams of this channel's connections. They may not before this is
    /// called: call it before `listen` and `connect`.
    pub fn take_streams(&mut self, are_taken: bool) -> Result<(), Error> {
        self.make_room_for_command()?;
        self.submit(&Command::TakeStreams { are_taken });
        self.takes_streams = are_taken;
        Ok(())
    }

    /// Whether connections that are opened from now on share their way through the network: all of
    /// this user's to one port of a host have one, as streams of a connection do, and each has
    /// messages, order, credit and an end of its own. Many of them cost less so, and are opened
    /// without a handshake each; they share what is lost, and how much may be sent at a time. A
    /// peer of an older release shares none: they then have one each. Such a connection has no
    /// streams and no one-sided operations, and [`set_silence`](Self::set_silence) means nothing
    /// to it. At first they have a way each.
    pub fn share_flows(&mut self, are_shared: bool) {
        self.shares_flows = are_shared;
    }

    /// What a connection may send beside its streams, and each stream beside the others: of those
    /// that have something to send, the ones of the lowest `urgency` (0 to 7, at first 3) share
    /// what the network takes, each by its `weight` (1 to 256, at first 16); others wait. Holds for
    /// this side only, and for the network: between apps of one host nobody waits for another.
    pub fn set_priority(
        &mut self,
        connection: ConnectionId,
        urgency: u8,
        weight: u16,
    ) -> Result<(), Error> {
        if urgency > URGENCY_MAX || weight == 0 || weight > WEIGHT_MAX {
            return Err(Error::Priority { urgency, weight });
        }
        self.check_open(connection)?;
        self.make_room_for_command()?;
        let connection = connection.as_u64();
        self.submit(&Command::SetPriority { connection, urgency, weight });
        Ok(())
    }

    /// From now on messages that come by a connection are delivered as they become whole: one that
    /// is lost on its way, or large, holds up none behind it. What was sent in order may then come
    /// in any. For the rest of the connection, and for this direction only.
    pub fn set_unordered(&mut self, connection: ConnectionId) -> Result<(), Error> {
        self.check_open(connection)?;
        self.make_room_for_command()?;
        self.submit(&Command::SetUnordered { connection: connection.as_u64() });
        Ok(())
    }

    /// The next stream that a peer opened.
    pub fn accept_stream(&mut self, timeout: Option<Duration>) -> Result<AcceptedStream, Error> {
        self.wait_for(timeout, Awaited::Peer, |channel| {
            channel.gather_until(|channel| channel.accepted_streams.pop_front())
        })
    }
}
