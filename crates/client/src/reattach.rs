//! Staying attached: a channel whose daemon has gone begins anew with the next one, listens where
//! it listened, and connects to whom it was connected.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::channel::watch;
use crate::{
    Awaited, Channel, Code, ConnectionId, Error, ListenAddress, Listener, ListenerId, MemoryId,
    VifId,
};

/// First time between two attempts to attach; it doubles.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time between them.
const PAUSE_MAX: Duration = Duration::from_millis(200);
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
    /// again, and streams are opened again by those who need them.
    pub now: Result<ConnectionId, Error>,
    /// Messages that were sent and not acknowledged. Each of them may have arrived or not.
    pub messages_unacknowledged: usize,
}

impl Channel {
    /// Attaches again after an error whose [`Error::ended`] is the channel: waits up to `timeout`
    /// for a daemon, listens again on all ports, and connects again to all peers to whom the app
    /// had connected. Tells what was lost. The descriptor for event loops stays the same. Memory of
    /// the app's own ([`Channel::add_memory`]) is copied, since it is sealed for the daemon that
    /// had it; what other threads write to it meanwhile may be missing in the copy. Buffers that
    /// were posted have their ends, of the connections of before ([`Channel::next_posted`]).
    pub fn reattach(&mut self, timeout: Option<Duration>) -> Result<Reattached, Error> {
        if self.host.is_embedded() {
            let message = "an engine inside the app does not come back; open another".to_owned();
            return Err(Error::Declined { code: Code::Unsupported, message });
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut fresh = self.attach_again(timeout, deadline)?;
        fresh.share_flows(self.shares_flows);
        if self.takes_streams {
            fresh.take_streams(true)?;
        }
        if self.hears_of_skipped {
            fresh.tell_skipped(true)?;
        }
        let mut told =
            Reattached { memories: fresh.add_copies(&self.memories), ..Reattached::default() };
        for listener in &self.listeners {
            let again = fresh.listen(ListenAddress {
                address: listener.wanted.address,
                port: listener.is.address.port(),
            })?;
            told.listeners.push((listener.is.id, again));
        }
        for (was, peer, is_own, messages_unacknowledged) in self.connections.summary() {
            let gone = Err(Error::Connection { connection: was, code: Code::DaemonGone });
            let now = if is_own { fresh.connect_again(peer, deadline) } else { gone };
            told.connections.push(Reconnected { was, peer, now, messages_unacknowledged });
        }
        told.vifs = self.vifs.ids();
        told.messages_unread = self.unread();
        self.move_to(fresh)?;
        Ok(told)
    }

    fn attach_again(
        &self,
        timeout: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Result<Self, Error> {
        let mut pause = PAUSE;
        loop {
            match Self::attach(&self.options) {
                // It is about to end, or to begin.
                Err(Error::NoDaemon { .. } | Error::DaemonGone { .. }) => {}
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
        for old in [Some(self.end.doorbell()), self.host.descriptor()].into_iter().flatten() {
            epoll::delete(&self.descriptors, old)?;
        }
        watch(&self.descriptors, &fresh.end, &fresh.host)?;
        std::mem::swap(&mut self.descriptors, &mut fresh.descriptors);
        fresh.token_next = self.token_next;
        fresh.posts = self.ended_posts();
        *self = fresh;
        Ok(())
    }
}
