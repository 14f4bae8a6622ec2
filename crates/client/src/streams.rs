//! Streams: connections that share what another connection has, its flow over the network. What
//! they promise is in `docs/streams.md`.

use std::time::{Duration, Instant};

use clearway_channel::Command;

use crate::channel::Attempt;
use crate::{Awaited, Channel, ConnectionId, Error, Token};

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
    /// [take streams](Self::take_streams): else it is closed as refused.
    pub fn open_stream(
        &mut self,
        connection: ConnectionId,
        timeout: Option<Duration>,
    ) -> Result<ConnectionId, Error> {
        let begun = Instant::now();
        let token = self.start_open_stream(connection)?;
        let peer = self.peer_of(connection)?;
        self.wait_connected(token, peer, begun, timeout)
    }

    /// Begins to open a stream; [`next_event`](Self::next_event) tells of the outcome, as of
    /// [`start_connect`](Self::start_connect).
    pub fn start_open_stream(&mut self, connection: ConnectionId) -> Result<Token, Error> {
        let peer = self.peer_of(connection)?;
        self.make_room_for_command()?;
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

    /// The next stream that a peer opened.
    pub fn accept_stream(&mut self, timeout: Option<Duration>) -> Result<AcceptedStream, Error> {
        self.wait_for(timeout, Awaited::Peer, |channel| {
            channel.gather_until(|channel| channel.accepted_streams.pop_front())
        })
    }
}
