//! Staying attached: a channel whose daemon has gone begins anew with the next one, listens where
//! it listened, and connects to whom it was connected.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::channel::{unwatch, watch};
use crate::event::Arrival;
use crate::{
    Awaited, Channel, Code, ConnectionId, Error, ListenAddress, Listener, ListenerId, MemoryId,
    Token, VifId,
};

/// First time between two attempts to attach; it doubles.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time between them.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// For so long a daemon that is there may take, also if there is less time to wait for one.
const TAKEN_WITHIN: Duration = Duration::from_millis(100);
/// How long a peer is looked for: the links of a daemon that has just begun take a while.
const RECONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// What a channel has and has not kept when it was attached again. Ids of before mean nothing any
/// more.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Reattached {
    /// Where it listens again: the id of before, and the listener of now.
    pub listeners: Vec<(ListenerId, Listener)>,
    /// All connections of before.
    pub connections: Vec<Reconnected>,
    /// Virtual interfaces of before, which the app opens again.
    pub vifs: Vec<VifId>,
    /// Memory of before that was added, and what it is called now; or why there is none. It is a
    /// copy, elsewhere ([`Channel::memory`]), and nothing of it is shared yet.
    pub memories: Vec<(MemoryId, Result<MemoryId, Error>)>,
    /// Messages that had come and were not taken: they are lost.
    pub messages_unread: usize,
}

/// What has become of a connection of before.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reconnected {
    /// Its id of before.
    pub was: ConnectionId,
    /// Its other end.
    pub peer: SocketAddr,
    /// Its id of now; or why there is none. One that a peer had opened is that peer's to open
    /// again, streams are opened again by those who need them, and one that had ended before the
    /// daemon has ended.
    pub now: Result<ConnectionId, Error>,
    /// Messages that were sent and not acknowledged. Each of them may have arrived or not.
    pub messages_unacknowledged: usize,
}

impl Channel {
    /// Attaches again after an error whose [`Error::ended`] is the channel: waits up to `timeout`
    /// for a daemon (one that is there has a tenth of a second to take the app in any case),
    /// listens again on all ports, and connects again to all peers to whom the app had connected.
    /// Tells what was lost. The descriptor for event loops stays the same. Memory of the app's own
    /// ([`Channel::add_memory`]) is copied, since it is sealed for the daemon that had it; what
    /// other threads write to it meanwhile may be missing in the copy. Buffers that were posted
    /// have their ends, of the connections of before ([`Channel::next_posted`]). Attempts to
    /// connect whose outcome was not told have failed
    /// ([`Event::ConnectFailed`](crate::Event::ConnectFailed)). A
    /// [`SendBuffer`](crate::SendBuffer) of before cannot be sent any more, only dropped.
    pub fn reattach(&mut self, timeout: Option<Duration>) -> Result<Reattached, Error> {
        self.reattach_without(&[], timeout)
    }

    /// The same without connections of which the app was not told.
    pub(crate) fn reattach_without(
        &mut self,
        untold: &[ConnectionId],
        timeout: Option<Duration>,
    ) -> Result<Reattached, Error> {
        if self.host.is_embedded() {
            let message = "an engine inside the app does not come back; open another".to_owned();
            return Err(Error::Declined { code: Code::Unsupported, message });
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut fresh = self.attach_again(timeout, deadline)?;
        fresh.token_next = self.token_next;
        fresh.share_flows(self.shares_flows);
        if self.takes_streams {
            fresh.take_streams(true)?;
        }
        if self.hears_of_skipped {
            fresh.tell_skipped(true)?;
        }
        // What the daemon has left in the ring. That there will be no more is known.
        let _ = self.gather();
        self.fail_attempts();
        let mut told =
            Reattached { memories: fresh.add_copies(&self.memories), ..Reattached::default() };
        for listener in &self.listeners {
            let again = fresh.listen(ListenAddress {
                address: listener.wanted.address,
                port: listener.is.address.port(),
            })?;
            told.listeners.push((listener.is.id, again));
        }
        untold.iter().for_each(|connection| self.forget(*connection));
        for (was, peer, is_own, messages_unacknowledged) in self.connections.summary() {
            let gone = Err(Error::Connection { connection: was, code: Code::DaemonGone });
            let now = if is_own { fresh.connect_again(peer, deadline) } else { gone };
            told.connections.push(Reconnected { was, peer, now, messages_unacknowledged });
        }
        told.connections.extend(self.ended_untold());
        told.connections.sort_unstable_by_key(|told| told.was);
        told.vifs = self.vifs.ids();
        told.vifs.extend(self.frames.iter().filter_map(|arrival| match *arrival {
            Arrival::VifClosed { vif, .. } => Some(vif),
            _ => None,
        }));
        told.messages_unread = self.unread();
        self.move_to(fresh)?;
        Ok(told)
    }

    /// Attempts whose outcome the app was not told have failed: those that had succeeded, too, of
    /// whose connections it knows nothing.
    fn fail_attempts(&mut self) {
        for at in 0..self.connected.len() {
            if let Arrival::Connected { token, connection, .. } = self.connected[at] {
                self.forget(connection);
                self.connected[at] = failed(token);
            }
        }
        let open = self.connecting.drain().filter(|(_, attempt)| !attempt.is_abandoned);
        let mut open = open.map(|(token, _)| token).collect::<Vec<_>>();
        open.sort_unstable_by_key(|token| token.as_u64());
        self.connected.extend(open.into_iter().map(failed));
    }

    /// Nothing is told of a connection.
    fn forget(&mut self, connection: ConnectionId) {
        self.connections.remove(connection);
        self.forget_inbox_of(connection);
    }

    /// Connections of whose end the app has not been told.
    fn ended_untold(&self) -> impl Iterator<Item = Reconnected> {
        self.inbox.iter().filter_map(|arrival| match *arrival {
            Arrival::Closed { connection: was, code, peer, sends_outstanding } => {
                let now = Err(Error::Connection { connection: was, code });
                let messages_unacknowledged = sends_outstanding as usize;
                Some(Reconnected { was, peer, now, messages_unacknowledged })
            }
            _ => None,
        })
    }

    fn attach_again(
        &self,
        timeout: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Result<Self, Error> {
        let mut pause = PAUSE;
        let taken_by = deadline.map(|end| end.max(Instant::now() + TAKEN_WITHIN));
        loop {
            match Self::attach_by(&self.options, taken_by) {
                // It is about to end, or to begin, or stands still.
                Err(Error::NoDaemon { .. } | Error::DaemonGone { .. }) => {}
                Err(Error::TimedOut { awaited: Awaited::Answer, .. }) => {}
                result => return result,
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let waited = timeout.unwrap_or_default();
                return Err(Error::TimedOut { awaited: Awaited::Daemon, waited });
            }
            std::thread::sleep(pause.min(left.unwrap_or(pause)));
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn connect_again(
        &mut self,
        peer: SocketAddr,
        deadline: Option<Instant>,
    ) -> Result<ConnectionId, Error> {
        let patience = Instant::now() + RECONNECT_PATIENCE;
        let end = deadline.map_or(patience, |deadline| deadline.min(patience));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.connect_to(peer, Some(left)) {
                Err(Error::Connect { code: Code::Unreachable, .. }) if !left.is_zero() => {
                    std::thread::sleep(PAUSE.min(left));
                }
                result => return result,
            }
        }
    }

    /// Becomes `fresh`, under the descriptor that the app may be waiting on.
    fn move_to(&mut self, mut fresh: Self) -> Result<(), Error> {
        unwatch(&self.descriptors, &self.end, &self.host)?;
        watch(&self.descriptors, &fresh.end, &fresh.host)?;
        std::mem::swap(&mut self.descriptors, &mut fresh.descriptors);
        fresh.connected = std::mem::take(&mut self.connected);
        fresh.posts = self.ended_posts();
        fresh.collector = self.collector.take();
        *self = fresh;
        Ok(())
    }
}

/// The daemon went before the app was told what came of an attempt.
fn failed(token: Token) -> Arrival {
    Arrival::ConnectFailed { token, code: Code::DaemonGone }
}
