//! Calls: requests and answers between apps of Clearway, as futures.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use clearway_client::{
    self as client, Answer, Awaited, CallEvent, CallId, Channel, Code, ConnectionId, Error, Event,
    ListenAddress, Listener, Options, Outcome, Refusal, Request, RequestId, Token,
};
use tokio::time::timeout_at;

use crate::attempts::Attempts;
use crate::driver;
use crate::lent::Lent;
use crate::shared::{AT_ONCE, Shared, Users};

/// Calls over the connections of a channel of its own, in both directions, by any number of tasks.
/// Clones share the channel. What both sides may rely on is in `docs/calls.md`.
///
/// ```no_run
/// use std::time::Duration;
///
/// use clearway_client::{Error, Options};
/// use clearway_tokio::Calls;
///
/// # async fn run() -> Result<(), Error> {
/// let calls = Calls::attach(&Options::new("client"))?;
/// let server = calls.connect("10.0.0.2:4000".parse().expect("an address")).await?;
/// let answer = calls.call(server, 1, b"question", Some(Duration::from_secs(1))).await?;
/// println!("{} bytes", answer.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Calls {
    shared: Arc<Shared<Callers>>,
}

/// The channel, and who waits for what of its calls.
#[derive(Debug)]
struct Callers {
    channel: Channel,
    calls: client::Calls,
    waiting: HashMap<CallId, Waiting>,
    /// They wait for room to send, in the order in which they came.
    senders: BTreeMap<u64, Waker>,
    sender_last: u64,
    requests: VecDeque<Request>,
    servers: Vec<Waker>,
    attempts: Attempts<ConnectionId>,
}

/// A call that a task waits for.
#[derive(Debug, Default)]
struct Waiting {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Calls {
    /// Attaches a channel, and spawns the task that drives it.
    ///
    /// # Errors
    /// If the daemon does not take it.
    ///
    /// # Panics
    /// Outside of a runtime of tokio's, or if that has no I/O or no time.
    pub fn attach(options: &Options) -> Result<Self, Error> {
        let shared = Shared::new(Callers {
            channel: Channel::attach(options)?,
            calls: client::Calls::new(),
            waiting: HashMap::new(),
            senders: BTreeMap::new(),
            sender_last: 0,
            requests: VecDeque::new(),
            servers: Vec::new(),
            attempts: Attempts::default(),
        });
        driver::spawn(&shared)?;
        Ok(Self { shared })
    }

    /// Accepts connections from now on, whose requests come by [`Calls::request`]. Waits for the
    /// daemon, without giving way to other tasks.
    ///
    /// # Errors
    /// If somebody else has the port, or the daemon's policy does not allow it.
    pub fn listen(&self, address: impl Into<ListenAddress>) -> Result<Listener, Error> {
        self.shared.enter().channel.listen(address)
    }

    /// Opens a connection. If the future is dropped, there is none.
    ///
    /// # Errors
    /// If nobody listens there, or the peer does not answer.
    pub async fn connect(&self, peer: SocketAddr) -> Result<ConnectionId, Error> {
        let token = self.shared.enter().start_connect(peer)?;
        let attempt = Attempt { shared: &self.shared, token };
        poll_fn(|context| attempt.shared.enter().poll_outcome(token, peer, context)).await
    }

    /// Asks the app at the other end of a connection, and waits for the answer, with any number of
    /// others at the same time. If the future is dropped the call is cancelled. Without time to
    /// wait nothing is asked ([`Code::WouldBlock`]).
    ///
    /// # Errors
    /// As those of [`clearway_client::Calls::call`].
    pub async fn call(
        &self,
        connection: ConnectionId,
        method: u16,
        body: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Lent<Answer>, Error> {
        check_time(timeout)?;
        let begun = Instant::now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        let mut sender = Sender { shared: &self.shared, number: None };
        let sending = poll_fn(|context| {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let request = (connection, method, body, left);
            self.shared.enter().poll_start(request, &mut sender.number, context)
        });
        let call = match deadline {
            None => sending.await?,
            Some(deadline) => timeout_at(deadline.into(), sending).await.map_err(|_| {
                Error::TimedOut { awaited: Awaited::Room, waited: begun.elapsed() }
            })??,
        };
        drop(sender);
        let asked = Asked { shared: &self.shared, call };
        let outcome = poll_fn(|context| asked.shared.enter().poll_call(call, context)).await?;
        let answer = outcome.into_answer(&mut self.shared.enter().channel, connection, begun)?;
        Ok(Lent::new(answer, &self.shared))
    }

    /// The next request of a peer, to be answered by any task. Nothing is lost if the future is
    /// dropped.
    ///
    /// # Errors
    /// If the daemon has gone.
    pub async fn request(&self) -> Result<Lent<Request>, Error> {
        let request = poll_fn(|context| self.shared.enter().poll_request(context)).await?;
        Ok(Lent::new(request, &self.shared))
    }

    /// Answers a request, without waiting. False if nobody waits for it any more.
    ///
    /// # Errors
    /// If the answer is too large, or its connection has ended.
    pub fn answer(&self, request: RequestId, body: &[u8]) -> Result<bool, Error> {
        let Callers { channel, calls, .. } = &mut **self.shared.enter();
        calls.answer(channel, request, body)
    }

    /// The same for a request that is not carried out, with words for a person (or none).
    ///
    /// # Errors
    /// If the text is too large, or its connection has ended.
    pub fn refuse(&self, request: RequestId, reason: Refusal, text: &str) -> Result<bool, Error> {
        let Callers { channel, calls, .. } = &mut **self.shared.enter();
        calls.refuse(channel, request, reason, text)
    }

    /// Closes a connection. Its calls end as lost.
    ///
    /// # Errors
    /// If it has ended.
    pub fn close(&self, connection: ConnectionId) -> Result<(), Error> {
        let mut callers = self.shared.enter();
        let Callers { channel, calls, .. } = &mut **callers;
        calls.close(channel, connection)?;
        callers.end(connection); // the channel tells of no end that its app has made
        Ok(())
    }
}

impl Users for Callers {
    fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    fn take_events(&mut self) -> Result<(), Error> {
        loop {
            match self.calls.next(&mut self.channel, AT_ONCE) {
                Ok(event) => self.take(event),
                Err(Error::WouldBlock) => return Ok(()),
                Err(error) => {
                    self.wake_all();
                    return Err(error);
                }
            }
        }
    }

    fn arm(&mut self) -> bool {
        self.calls.arm(&mut self.channel)
    }

    fn deadline(&self) -> Option<Instant> {
        self.calls.first_deadline()
    }
}

impl Callers {
    fn take(&mut self, event: CallEvent) {
        match event {
            CallEvent::Ended { call, outcome } => {
                if let Some(waiting) = self.waiting.get_mut(&call) {
                    waiting.outcome = Some(outcome);
                    waiting.waker.take().into_iter().for_each(Waker::wake);
                }
            }
            CallEvent::Asked(request) => {
                self.requests.push_back(request);
                self.servers.drain(..).for_each(Waker::wake);
            }
            CallEvent::Cancelled(id) => self.requests.retain(|request| request.id() != id),
            CallEvent::Channel(event) => self.take_other(event),
            _ => {} // nothing else was asked for
        }
    }

    fn take_other(&mut self, event: Event) {
        match event {
            Event::Connected { token, connection, .. } => {
                if let Some(unwanted) = self.attempts.decide(token, Ok(connection)) {
                    self.give_up(unwanted);
                }
            }
            Event::ConnectFailed { token, code } => _ = self.attempts.decide(token, Err(code)),
            Event::Writable => self.wake_senders(),
            Event::Closed { connection, .. } => self.end(connection),
            _ => {} // nothing else was asked for
        }
    }

    /// A connection has ended: whoever waits to send by it is told so.
    fn end(&mut self, connection: ConnectionId) {
        self.requests.retain(|request| request.id().connection != connection);
        self.wake_senders();
    }

    fn wake_senders(&mut self) {
        std::mem::take(&mut self.senders).into_values().for_each(Waker::wake);
    }

    fn wake_all(&mut self) {
        let waiting = self.waiting.values_mut().filter_map(|waiting| waiting.waker.take());
        waiting.for_each(Waker::wake);
        self.wake_senders();
        self.servers.drain(..).for_each(Waker::wake);
        self.attempts.wake_all();
    }

    fn start_connect(&mut self, peer: SocketAddr) -> Result<Token, Error> {
        let token = self.channel.start_connect(peer)?;
        self.attempts.begin(token);
        Ok(token)
    }

    fn poll_outcome(
        &mut self,
        token: Token,
        peer: SocketAddr,
        context: &Context<'_>,
    ) -> Poll<Result<ConnectionId, Error>> {
        let ended = self.take_events();
        let failed = |waited, code| Error::Connect { peer, waited, code };
        self.attempts.poll(token, ended, context, failed)
    }

    /// Nobody waits for this connection.
    fn give_up(&mut self, connection: ConnectionId) {
        let _ = self.calls.abort(&mut self.channel, connection); // it may have ended
    }

    /// `sender` is the number of who waits to send, once it does.
    fn poll_start(
        &mut self,
        (connection, method, body, timeout): (ConnectionId, u16, &[u8], Option<Duration>),
        sender: &mut Option<u64>,
        context: &Context<'_>,
    ) -> Poll<Result<CallId, Error>> {
        match self.calls.start(&mut self.channel, connection, method, body, timeout) {
            Err(Error::WouldBlock) => {
                let number = *sender.get_or_insert_with(|| {
                    self.sender_last += 1;
                    self.sender_last
                });
                self.senders.insert(number, context.waker().clone());
                Poll::Pending
            }
            started => Poll::Ready(started.inspect(|call| {
                self.waiting.insert(*call, Waiting::default());
            })),
        }
    }

    fn poll_call(&mut self, call: CallId, context: &Context<'_>) -> Poll<Result<Outcome, Error>> {
        let ended = self.take_events();
        let waiting = self.waiting.entry(call).or_default();
        if let Some(outcome) = waiting.outcome.take() {
            return Poll::Ready(Ok(outcome));
        }
        waiting.waker = Some(context.waker().clone());
        ended.map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending)
    }

    fn poll_request(&mut self, context: &Context<'_>) -> Poll<Result<Request, Error>> {
        let ended = self.take_events();
        while let Some(request) = self.requests.pop_front() {
            if !request.is_expired() {
                return Poll::Ready(Ok(request));
            }
            self.calls.drop_request(request.id());
        }
        add(&mut self.servers, context);
        ended.map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending)
    }
}

/// An error if a call is not to wait: it would be given up as soon as it is asked.
fn check_time(timeout: Option<Duration>) -> Result<(), Error> {
    if timeout != Some(Duration::ZERO) {
        return Ok(());
    }
    let message = "a call takes a while, and nothing was asked since it is not to wait; give it \
                   time";
    Err(Error::Declined { code: Code::WouldBlock, message: message.into() })
}

/// A task may ask again and again before it is woken.
fn add(wakers: &mut Vec<Waker>, context: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
        wakers.push(context.waker().clone());
    }
}

/// An attempt to connect, which is given up when it is dropped.
struct Attempt<'a> {
    shared: &'a Shared<Callers>,
    token: Token,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut callers = self.shared.enter();
        if let Some(unwanted) = callers.attempts.forget(self.token) {
            callers.give_up(unwanted);
        }
    }
}

/// Who sends a call. If it had to wait for room, it is forgotten when this is dropped.
struct Sender<'a> {
    shared: &'a Shared<Callers>,
    number: Option<u64>,
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.lock().senders.remove(&number);
        }
    }
}

/// A call under way, which is cancelled when it is dropped.
struct Asked<'a> {
    shared: &'a Shared<Callers>,
    call: CallId,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Callers { channel, calls, waiting, .. } = &mut **self.shared.enter();
        waiting.remove(&self.call);
        calls.cancel(channel, self.call);
    }
}
