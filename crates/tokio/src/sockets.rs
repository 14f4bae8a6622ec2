//! TCP: the channel, and who waits for what of its sockets.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

use clearway_client::{Channel, Code, Error, Event, TcpId, TcpPortId, TcpReady, Token};

use crate::attempts::Attempts;
use crate::shared::{AT_ONCE, Users};

/// See the module.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) channel: Channel,
    readers: HashMap<TcpId, Waker>,
    writers: HashMap<TcpId, Waker>,
    ports: HashMap<TcpPortId, Listening>,
    attempts: Attempts<TcpId>,
}

/// A port that listens.
#[derive(Debug, Default)]
struct Listening {
    accepted: VecDeque<(TcpId, SocketAddr)>,
    wakers: Vec<Waker>,
    /// The daemon has taken it away.
    end: Option<Code>,
}

impl Users for Sockets {
    fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    fn take_events(&mut self) -> Result<(), Error> {
        loop {
            match self.channel.next_event(AT_ONCE) {
                Ok(event) => self.take(event),
                Err(Error::WouldBlock) => return Ok(()),
                Err(error) => {
                    self.wake_all();
                    return Err(error);
                }
            }
        }
    }
}

impl Sockets {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            readers: HashMap::new(),
            writers: HashMap::new(),
            ports: HashMap::new(),
            attempts: Attempts::default(),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::TcpReady { connection, ready } => self.wake(connection, ready),
            Event::TcpAccepted { port, connection, peer } => match self.ports.get_mut(&port) {
                Some(port) => {
                    port.accepted.push_back((connection, peer));
                    port.wakers.drain(..).for_each(Waker::wake);
                }
                None => self.refuse(connection),
            },
            Event::TcpConnected { token, connection } => self.decide(token, Ok(connection)),
            Event::TcpConnectFailed { token, code } => self.decide(token, Err(code)),
            Event::TcpPortClosed { port, code } => {
                if let Some(port) = self.ports.get_mut(&port) {
                    port.end = Some(code);
                    port.wakers.drain(..).for_each(Waker::wake);
                }
            }
            Event::Writable => self.writers.drain().for_each(|(_, waker)| waker.wake()),
            _ => {} // nothing else was asked for
        }
    }

    fn wake(&mut self, connection: TcpId, ready: TcpReady) {
        if ready.is_readable
            && let Some(waker) = self.readers.remove(&connection)
        {
            waker.wake();
        }
        if ready.is_writable
            && let Some(waker) = self.writers.remove(&connection)
        {
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        let Self { readers, writers, ports, attempts, .. } = self;
        readers.drain().chain(writers.drain()).for_each(|(_, waker)| waker.wake());
        ports.values_mut().flat_map(|port| port.wakers.drain(..)).for_each(Waker::wake);
        attempts.wake_all();
    }

    /// Nobody waits for this connection.
    fn refuse(&mut self, connection: TcpId) {
        let _ = self.channel.tcp_abort(connection); // it may have ended
    }

    /// What comes of a call on a connection; if it has to wait, its task is woken when it is worth
    /// another try.
    pub(crate) fn poll<T>(
        &mut self,
        id: TcpId,
        is_reader: bool,
        context: &Context<'_>,
        call: impl FnOnce(&mut Channel) -> Result<T, Error>,
    ) -> Poll<io::Result<T>> {
        match call(&mut self.channel) {
            Err(Error::WouldBlock) => {
                let waiting = if is_reader { &mut self.readers } else { &mut self.writers };
                waiting.insert(id, context.waker().clone());
                Poll::Pending
            }
            result => Poll::Ready(result.map_err(io::Error::from)),
        }
    }

    /// Lets go of a connection.
    pub(crate) fn close(&mut self, id: TcpId) {
        self.readers.remove(&id);
        self.writers.remove(&id);
        let _ = self.channel.tcp_close(id); // it may have ended
    }

    pub(crate) fn add_port(&mut self, port: TcpPortId) {
        self.ports.insert(port, Listening::default());
    }

    pub(crate) fn poll_accept(
        &mut self,
        port: TcpPortId,
        context: &Context<'_>,
    ) -> Poll<io::Result<(TcpId, SocketAddr)>> {
        // The driver has not taken what another call has come upon.
        let ended = self.take_events();
        let Some(port) = self.ports.get_mut(&port) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if let Some(found) = port.accepted.pop_front() {
            return Poll::Ready(Ok(found));
        }
        if let Err(error) = ended {
            return Poll::Ready(Err(error.into()));
        }
        if let Some(code) = port.end {
            return Poll::Ready(Err(io::Error::other(code)));
        }
        // A task may ask again and again before anybody comes.
        if !port.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            port.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Stops accepting: who has connected and was not accepted is refused.
    pub(crate) fn remove_port(&mut self, port: TcpPortId) {
        let accepted = self.ports.remove(&port).map(|port| port.accepted).unwrap_or_default();
        accepted.into_iter().for_each(|(id, _)| self.refuse(id));
        let _ = self.channel.tcp_unlisten(port); // the daemon may have gone
    }

    pub(crate) fn start_connect(&mut self, peer: SocketAddr) -> io::Result<Token> {
        let token = self.channel.tcp_start_connect(None, peer)?;
        self.attempts.begin(token);
        Ok(token)
    }

    pub(crate) fn poll_outcome(
        &mut self,
        token: Token,
        peer: SocketAddr,
        context: &Context<'_>,
    ) -> Poll<io::Result<TcpId>> {
        let ended = self.take_events();
        let failed = |waited, code| Error::TcpConnect { peer, waited, code };
        self.attempts.poll(token, ended, context, failed).map_err(io::Error::from)
    }

    fn decide(&mut self, token: Token, outcome: Result<TcpId, Code>) {
        if let Some(connection) = self.attempts.decide(token, outcome) {
            self.refuse(connection);
        }
    }

    /// Nobody waits for it any more: if it succeeds, or has, the connection is given up.
    pub(crate) fn forget_attempt(&mut self, token: Token) {
        if let Some(connection) = self.attempts.forget(token) {
            self.refuse(connection);
        }
    }
}
