//! What streams, listeners and the driver share: the channel, and who waits for what.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use clearway_client::{Channel, Code, Error, Event, TcpId, TcpPortId, TcpReady, Token};

/// A call that does not wait.
pub(crate) const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<State>);

/// The same, locked.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) channel: Channel,
    /// The driver sleeps: the channel rings for it.
    is_armed: bool,
    driver: Option<Waker>,
    readers: HashMap<TcpId, Waker>,
    writers: HashMap<TcpId, Waker>,
    ports: HashMap<TcpPortId, Port>,
    attempts: HashMap<Token, Attempt>,
}

/// A port that listens.
#[derive(Debug, Default)]
struct Port {
    accepted: VecDeque<(TcpId, SocketAddr)>,
    wakers: Vec<Waker>,
    /// The daemon has taken it away.
    end: Option<Code>,
}

#[derive(Debug)]
struct Attempt {
    begun: Instant,
    outcome: Option<Result<TcpId, Code>>,
    waker: Option<Waker>,
}

impl Shared {
    pub(crate) fn new(channel: Channel) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            channel,
            is_armed: false,
            driver: None,
            readers: HashMap::new(),
            writers: HashMap::new(),
            ports: HashMap::new(),
            attempts: HashMap::new(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For calls of the channel by anybody but the driver, which has to look at it again then:
    /// calls take in news of others than they are about.
    pub(crate) fn enter(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.disarm()
            && let Some(driver) = &state.driver
        {
            driver.wake_by_ref();
        }
        state
    }
}

impl Drop for State {
    /// The driver ends, since there is nothing to drive any more.
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

impl State {
    /// Before any call of the channel. True if it was armed.
    pub(crate) fn disarm(&mut self) -> bool {
        let was_armed = std::mem::take(&mut self.is_armed);
        if was_armed {
            self.channel.disarm();
        }
        was_armed
    }

    /// The channel rings from now on, unless there is something already.
    pub(crate) fn arm(&mut self) -> bool {
        self.is_armed = self.channel.arm();
        if !self.is_armed {
            self.channel.disarm();
        }
        self.is_armed
    }

    pub(crate) fn set_driver(&mut self, waker: &Waker) {
        match &mut self.driver {
            Some(driver) => driver.clone_from(waker),
            None => self.driver = Some(waker.clone()),
        }
    }

    /// Takes all that has happened, and wakes whom it concerns. An error is the end of the channel,
    /// which all are told by their next call.
    pub(crate) fn take_events(&mut self) -> Result<(), Error> {
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
        attempts.values_mut().filter_map(|attempt| attempt.waker.take()).for_each(Waker::wake);
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
        self.ports.insert(port, Port::default());
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
        let attempt = Attempt { begun: Instant::now(), outcome: None, waker: None };
        self.attempts.insert(token, attempt);
        Ok(token)
    }

    pub(crate) fn poll_outcome(
        &mut self,
        token: Token,
        peer: SocketAddr,
        context: &Context<'_>,
    ) -> Poll<io::Result<TcpId>> {
        let ended = self.take_events();
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        match (attempt.outcome.take(), ended) {
            (Some(outcome), _) => Poll::Ready(outcome.map_err(|code| {
                let waited = attempt.begun.elapsed();
                Error::TcpConnect { peer, waited, code }.into()
            })),
            (None, Err(error)) => Poll::Ready(Err(error.into())),
            (None, Ok(())) => {
                attempt.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn decide(&mut self, token: Token, outcome: Result<TcpId, Code>) {
        match (self.attempts.get_mut(&token), outcome) {
            (Some(attempt), outcome) => {
                attempt.outcome = Some(outcome);
                attempt.waker.take().into_iter().for_each(Waker::wake);
            }
            (None, Ok(connection)) => self.refuse(connection),
            (None, Err(_)) => {}
        }
    }

    /// Nobody waits for it any more: if it succeeds, or has, the connection is given up.
    pub(crate) fn forget_attempt(&mut self, token: Token) {
        if let Some(Attempt { outcome: Some(Ok(id)), .. }) = self.attempts.remove(&token) {
            self.refuse(id);
        }
    }
}
