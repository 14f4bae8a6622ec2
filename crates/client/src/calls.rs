//! Calls: requests and answers over connections of messages, with deadlines and cancellation, in
//! any number at a time. What each side may rely on, and the format, is in `docs/calls.md`.

mod books;
mod header;
mod numbers;
mod outcome;
mod outstanding;
mod reattach;
mod request;
mod runs;

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use clearway_base::copy;

use crate::wait::check_may_wait;
use crate::{Awaited, Channel, Code, ConnectionId, Ended, Error, Event, Message};
use books::{Books, Entry, Line, Unsent};
use header::{HEADER_BYTES, Header, Kind};
pub use outcome::{Answer, Outcome, Refusal};
use outstanding::Outstanding;
pub use request::{Request, RequestId};

/// Names a call. Never used again by the same [`Calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

impl CallId {
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

/// What has happened, as [`Calls::next`] tells it.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent {
    /// A call is over: the only event of it.
    Ended {
        /// The call.
        call: CallId,
        /// What came of it.
        outcome: Outcome,
    },
    /// A peer asks for something.
    Asked(Request),
    /// A peer does not wait any more for the answer to a request that was told of and is not
    /// answered yet. To answer it does nothing.
    Cancelled(RequestId),
    /// Anything else that happens on the channel. Never a message.
    Channel(Event),
}

/// How many requests of one connection are under way at most, unless
/// [`Calls::set_requests_max`] says otherwise.
pub const REQUESTS_MAX: usize = 1024;

/// Events between two looks at the clock, while there are always more: so many are told before a
/// call whose time is up is.
const EVENTS_PER_CLOCK: u32 = 64;

/// Calls over the connections of a channel, in both directions. Every message of such a channel is
/// one of a call: whoever sends another kind of message there is cut off.
///
/// Its methods take the channel that it is for, always the same one. A connection is closed by
/// [`Calls::close`] rather than by the channel alone, so that its calls end.
#[derive(Debug)]
pub struct Calls {
    outstanding: Outstanding,
    books: Books,
    requests_max: usize,
    /// Has happened, and nobody has looked at it. No requests.
    new: VecDeque<CallEvent>,
    /// Has happened while something else was waited for.
    kept: VecDeque<CallEvent>,
    /// Events since it was last asked what the time is.
    since_clock: u32,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            outstanding: Outstanding::default(),
            books: Books::default(),
            requests_max: REQUESTS_MAX,
            new: VecDeque::new(),
            kept: VecDeque::new(),
            since_clock: 0,
        }
    }
}

impl Calls {
    /// None, so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many requests of one connection may be under way at a time. What comes beyond is refused
    /// as [`Refusal::BUSY`], without a word to the app.
    pub fn set_requests_max(&mut self, requests: usize) {
        self.requests_max = requests;
    }

    /// How many calls have no outcome yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    // ---- asking ----

    /// Asks the app at the other end of a connection, and waits for the answer. A refusal is
    /// [`Error::CallRefused`]; no answer within `timeout` is [`Error::TimedOut`], and the peer is
    /// told that nobody waits any more. The end of the connection is [`Error::Connection`]: whether
    /// the request was carried out is not known then. What else happens meanwhile stays for
    /// [`Calls::next`]. Without time to wait nothing is asked ([`Code::WouldBlock`]): that is what
    /// [`Calls::start`] is for.
    pub fn call(
        &mut self,
        channel: &mut Channel,
        connection: ConnectionId,
        method: u16,
        body: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Answer, Error> {
        check_may_wait(timeout, Some(("start (clearway_start_call)", "next")))?;
        let begun = Instant::now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        let mut left = timeout;
        let call = loop {
            match self.start(channel, connection, method, body, left) {
                Err(Error::WouldBlock) => {}
                started => break started?,
            }
            let event = self.advance(channel, deadline).map_err(no_room)?;
            self.kept.push_back(event);
            left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        };
        loop {
            match self.advance(channel, None)? {
                CallEvent::Ended { call: ended, outcome } if ended == call => {
                    return outcome.into_answer(channel, connection, begun);
                }
                other => self.kept.push_back(other),
            }
        }
    }

    /// Asks, and does not wait: [`Calls::next`] tells of the outcome, once and always. After
    /// `timeout` that is [`Outcome::Expired`]. [`Error::WouldBlock`] if there is no room to send;
    /// an event of the channel ([`Event::Writable`]) follows when there is again.
    ///
    /// `method` is the app's own number for what is asked.
    pub fn start(
        &mut self,
        channel: &mut Channel,
        connection: ConnectionId,
        method: u16,
        body: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CallId, Error> {
        let call = self.start_later(channel, connection, method, body, timeout)?;
        channel.tell();
        Ok(call)
    }

    /// The same for a call that others follow at once: it need not leave before the next one that
    /// is started, answered or waited for, or [`Channel::flush`]. What is sent so together shares
    /// packets, and an embedded engine is asked only once.
    #[inline]
    pub fn start_later(
        &mut self,
        channel: &mut Channel,
        connection: ConnectionId,
        method: u16,
        body: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CallId, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let kind = Kind::Request { method, time_left_us: timeout.map_or(0, time_left_us) };
        let header = Header { number: self.outstanding.next_call().0, kind };
        put_later(channel, connection, header, body)?;
        Ok(self.outstanding.begin(connection, deadline))
    }

    /// Waits no more for a call, and tells the peer. No outcome follows. False if it is over
    /// already: then its outcome has been told, or will be.
    pub fn cancel(&mut self, channel: &mut Channel, call: CallId) -> bool {
        let Some(connection) = self.outstanding.end(call) else { return false };
        tell_cancelled(channel, call, connection);
        true
    }

    // ---- answering ----

    /// Answers a request, without waiting: an answer for which there is no room is kept, and sent
    /// while [`Calls::next`] or [`Calls::call`] waits. False if nobody waits for it any more.
    ///
    /// A peer that takes none of its answers has an eighth of the channel's memory for them, and
    /// stops nobody else.
    pub fn answer(
        &mut self,
        channel: &mut Channel,
        request: RequestId,
        body: &[u8],
    ) -> Result<bool, Error> {
        let is_awaited = self.answer_later(channel, request, body)?;
        channel.tell();
        Ok(is_awaited)
    }

    /// The same for an answer that others may follow at once, as [`Calls::start_later`] has it:
    /// what a server does that looks for the next request now.
    #[inline]
    pub fn answer_later(
        &mut self,
        channel: &mut Channel,
        request: RequestId,
        body: &[u8],
    ) -> Result<bool, Error> {
        self.reply(channel, request, Kind::Answer, body)
    }

    /// The same for a request that is not carried out, with words for a person (or none).
    pub fn refuse(
        &mut self,
        channel: &mut Channel,
        request: RequestId,
        reason: Refusal,
        text: &str,
    ) -> Result<bool, Error> {
        let kind = Kind::Refusal { reason: reason.0 };
        let is_awaited = self.reply(channel, request, kind, text.as_bytes())?;
        channel.tell();
        Ok(is_awaited)
    }

    /// Leaves a request without an answer: its caller hears nothing. False if it was over before.
    pub fn drop_request(&mut self, request: RequestId) -> bool {
        self.books.leave(request)
    }

    /// Answers all requests, one after the other, by what `handler` makes of them, until the
    /// channel ends. What else happens on the channel is dropped. An answer that is larger than can
    /// be sent becomes [`Refusal::FAILED`].
    pub fn serve(
        &mut self,
        channel: &mut Channel,
        mut handler: impl FnMut(&Request) -> Result<Vec<u8>, Refusal>,
    ) -> Result<Infallible, Error> {
        loop {
            let CallEvent::Asked(request) = self.next(channel, None)? else { continue };
            let (id, outcome) = (request.id(), handler(&request));
            request.release(channel);
            let done = match outcome {
                Ok(answer) => self.answer_later(channel, id, &answer),
                Err(reason) => self.refuse(channel, id, reason, ""),
            };
            if let Err(error) = done {
                match error {
                    Error::TooLarge { .. } => {
                        let text = error.to_string();
                        self.refuse(channel, id, Refusal::FAILED, &text)?;
                    }
                    error if error.ended() == Ended::Channel => return Err(error),
                    _ => {} // its connection has ended
                }
            }
        }
    }

    // ---- what happens ----

    /// Whatever happens next: the end of a call, a request, or an event of the channel.
    ///
    /// When the channel has ended, all calls that are outstanding are told of as lost before the
    /// error of the channel is.
    pub fn next(
        &mut self,
        channel: &mut Channel,
        timeout: Option<Duration>,
    ) -> Result<CallEvent, Error> {
        if self.kept.is_empty()
            && let Some(event) = self.next_in_ring(channel)
        {
            return Ok(event);
        }
        self.next_of_all(channel, timeout)
    }

    #[inline(never)]
    fn next_of_all(
        &mut self,
        channel: &mut Channel,
        timeout: Option<Duration>,
    ) -> Result<CallEvent, Error> {
        while let Some(kept) = self.kept.pop_front() {
            if self.is_worth_telling(&kept) {
                return Ok(kept);
            }
        }
        if timeout == Some(Duration::ZERO) {
            return self.next_at_once(channel);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.advance(channel, deadline)
    }

    /// As [`Channel::arm`], to be ended by [`Channel::disarm`]. An event loop that sleeps wakes for
    /// [`Calls::first_deadline`], too.
    pub fn arm(&mut self, channel: &mut Channel) -> bool {
        let is_quiet = self.kept.is_empty() && self.new.is_empty();
        channel.arm() && is_quiet
    }

    /// Before this none of the outstanding calls expires; `None` if none of them has a time to be
    /// answered in. It may be the time of a call that is over, until [`Calls::next`] finds nothing
    /// after it.
    #[must_use]
    pub fn first_deadline(&self) -> Option<Instant> {
        self.outstanding.first_deadline()
    }

    /// Closes a connection. Its calls end as lost ([`Code::Closed`]).
    pub fn close(&mut self, channel: &mut Channel, connection: ConnectionId) -> Result<(), Error> {
        channel.close(connection)?;
        self.end_connection(connection, Code::Closed);
        Ok(())
    }

    /// The same by [`Channel::abort`].
    pub fn abort(&mut self, channel: &mut Channel, connection: ConnectionId) -> Result<(), Error> {
        channel.abort(connection)?;
        self.end_connection(connection, Code::Closed);
        Ok(())
    }

    /// What a message of the ring is, if nothing else comes before it.
    #[inline(always)] // An event is made where it is wanted: to move it costs as much.
    fn next_in_ring(&mut self, channel: &mut Channel) -> Option<CallEvent> {
        let is_next =
            self.new.is_empty() && self.books.line() == 0 && self.since_clock < EVENTS_PER_CLOCK;
        let message = if is_next { channel.next_message_in_turn() } else { None }?;
        self.since_clock += 1;
        self.take_message(channel, message)
    }

    /// The next event that nobody has looked at.
    fn advance(
        &mut self,
        channel: &mut Channel,
        deadline: Option<Instant>,
    ) -> Result<CallEvent, Error> {
        let mut begun = None;
        loop {
            match self.next_at_once(channel) {
                Err(Error::WouldBlock) => {}
                result => return result,
            }
            let now = Instant::now();
            let begun = *begun.get_or_insert(now);
            if deadline.is_some_and(|deadline| deadline <= now) {
                let waited = now.saturating_duration_since(begun);
                return Err(Error::TimedOut { awaited: Awaited::Event, waited });
            }
            let wake = deadline.into_iter().chain(self.outstanding.first_deadline()).min();
            let patience = wake.map(|wake| wake.saturating_duration_since(now));
            match channel.next_event(patience) {
                Ok(event) => {
                    if let Some(event) = self.take(channel, event) {
                        return Ok(event);
                    }
                }
                Err(Error::WouldBlock | Error::TimedOut { .. }) => {}
                Err(error) => self.fail(error)?,
            }
        }
    }

    /// The same, if there is one without waiting.
    fn next_at_once(&mut self, channel: &mut Channel) -> Result<CallEvent, Error> {
        loop {
            if let Some(event) = self.next_in_ring(channel) {
                return Ok(event);
            }
            self.send_unsent(channel);
            if let Some(event) = self.new.pop_front() {
                return Ok(event);
            }
            if self.since_clock >= EVENTS_PER_CLOCK {
                self.expire(channel);
                continue;
            }
            match channel.next_event(Some(Duration::ZERO)) {
                Ok(event) => {
                    self.since_clock += 1;
                    if let Some(event) = self.take(channel, event) {
                        return Ok(event);
                    }
                }
                Err(Error::WouldBlock) => {
                    if !self.expire(channel) {
                        channel.end.flush();
                        return Err(Error::WouldBlock);
                    }
                }
                Err(error) => self.fail(error)?,
            }
        }
    }

    /// What an event of the channel is, for whoever makes calls. `None` if there is nothing to be
    /// told, or more than one thing, which is in `new` then.
    #[inline]
    fn take(&mut self, channel: &mut Channel, event: Event) -> Option<CallEvent> {
        match event {
            Event::Message(message) => self.take_message(channel, message),
            Event::Closed { connection, code } => {
                self.end_connection(connection, code);
                self.new.push_back(CallEvent::Channel(event));
                None
            }
            Event::Writable => {
                self.send_unsent(channel);
                Some(CallEvent::Channel(event))
            }
            event => Some(CallEvent::Channel(event)),
        }
    }

    #[inline(always)] // As `next_in_ring`.
    fn take_message(&mut self, channel: &mut Channel, message: Message) -> Option<CallEvent> {
        let connection = message.connection();
        let Some(Header { number, kind }) = Header::of(&message) else {
            self.cut_off(channel, connection);
            return None;
        };
        let call = CallId(number);
        match kind {
            Kind::Request { method, time_left_us } => {
                self.take_request(channel, Request::new(number, method, time_left_us, message))
            }
            // Else it was cancelled, or has expired, or was never made.
            Kind::Answer if self.outstanding.end_by(call, connection) => {
                let outcome = Outcome::Answered(Answer::new(message));
                Some(CallEvent::Ended { call, outcome })
            }
            Kind::Refusal { reason } if self.outstanding.end_by(call, connection) => {
                let text = Answer::new(message);
                let outcome = Outcome::Refused { reason: Refusal(reason), text };
                Some(CallEvent::Ended { call, outcome })
            }
            Kind::Answer | Kind::Refusal { .. } => {
                channel.release(message);
                None
            }
            Kind::Cancel => {
                channel.release(message);
                self.take_cancel(RequestId { connection, number })
            }
        }
    }

    #[inline(always)] // As `next_in_ring`.
    fn take_request(&mut self, channel: &mut Channel, request: Request) -> Option<CallEvent> {
        let id = request.id();
        match self.books.enter(id, self.requests_max) {
            Entry::Taken => return Some(CallEvent::Asked(request)),
            Entry::TooMany => self.turn_away(channel, id),
            Entry::Twice => self.cut_off(channel, id.connection),
        }
        None
    }

    /// Refuses a request that is one too many. A refusal that finds no room is kept, as answers
    /// are: else its caller would wait for ever.
    #[cold]
    fn turn_away(&mut self, channel: &mut Channel, request: RequestId) {
        let connection = request.connection;
        let is_next = self.books.line_of(connection) == Line::Empty;
        let sent = match is_next && channel.has_share(connection) {
            true => put_busy(channel, request),
            false => Err(Error::WouldBlock),
        };
        // By any other error its connection has ended, and all its requests with it.
        if matches!(sent, Err(Error::WouldBlock)) && !self.books.turn_away(request) {
            self.cut_off(channel, connection);
        }
    }

    /// The app hears of it only if it has heard of the request.
    fn take_cancel(&mut self, request: RequestId) -> Option<CallEvent> {
        if !self.books.leave(request) {
            return None;
        }
        let is_its = |event: &CallEvent| matches!(event, CallEvent::Asked(r) if r.id() == request);
        if let Some(at) = self.kept.iter().position(is_its) {
            self.kept.remove(at);
            return None;
        }
        Some(CallEvent::Cancelled(request))
    }

    /// Not a request for which nobody waits any more.
    fn is_worth_telling(&mut self, event: &CallEvent) -> bool {
        match event {
            CallEvent::Asked(request) if request.is_expired() => {
                self.books.leave(request.id());
                false
            }
            _ => true,
        }
    }

    /// Ends calls whose time is up. True if there are such.
    fn expire(&mut self, channel: &mut Channel) -> bool {
        self.since_clock = 0;
        if self.outstanding.first_deadline().is_none() {
            return false;
        }
        let now = Instant::now();
        for (call, connection) in self.outstanding.expire(now) {
            tell_cancelled(channel, call, connection);
            self.new.push_back(CallEvent::Ended { call, outcome: Outcome::Expired });
        }
        !self.new.is_empty()
    }

    fn reply(
        &mut self,
        channel: &mut Channel,
        request: RequestId,
        kind: Kind,
        body: &[u8],
    ) -> Result<bool, Error> {
        let RequestId { connection, number } = request;
        channel.check_length(HEADER_BYTES + body.len())?; // it may have another answer
        let Some(line) = self.books.leave_to_answer(request) else { return Ok(false) };
        let header = Header { number, kind };
        let sent = match line {
            Line::Empty if channel.has_share(connection) => {
                put_later(channel, connection, header, body)
            }
            _ => Err(Error::WouldBlock),
        };
        match sent {
            Err(Error::WouldBlock) => {
                self.books.keep(request, [&header.to_bytes(), body].concat());
            }
            // If not, its connection has ended, and all its requests with it.
            sent => sent?,
        }
        Ok(true)
    }

    /// Sends answers and refusals that have found no room, one of each connection in turn, until
    /// none finds any. The channel says when it is worth another try.
    fn send_unsent(&mut self, channel: &mut Channel) {
        let mut without_room = 0;
        while without_room < self.books.line() {
            let Some((connection, unsent)) = self.books.next_unsent() else { return };
            let sent = match unsent {
                _ if !channel.has_share(connection) => Err(Error::WouldBlock),
                Unsent::Answer(answer) => channel.try_send(connection, answer),
                Unsent::Busy(number) => put_busy(channel, RequestId { connection, number }),
            };
            if sent.is_ok() {
                self.books.next_is_sent(connection);
                without_room = 0;
            } else {
                without_room += 1;
            }
            self.books.stay_in_line(connection);
        }
    }

    /// The peer does not make calls as they are made.
    fn cut_off(&mut self, channel: &mut Channel, connection: ConnectionId) {
        if channel.abort(connection).is_ok() {
            let code = Code::ProtocolError;
            self.end_connection(connection, code);
            self.new.push_back(CallEvent::Channel(Event::Closed { connection, code }));
        }
    }

    fn end_connection(&mut self, connection: ConnectionId, code: Code) {
        let is_of = |event: &CallEvent| match event {
            CallEvent::Asked(request) => request.id().connection == connection,
            _ => false,
        };
        self.kept.retain(|event| !is_of(event));
        self.books.end_connection(connection);
        for call in self.outstanding.end_connection(connection) {
            self.new.push_back(CallEvent::Ended { call, outcome: Outcome::Lost(code) });
        }
    }

    fn end_all(&mut self, code: Code) {
        let connections = self.books.connections().chain(self.outstanding.connections());
        for connection in connections.collect::<BTreeSet<_>>() {
            self.end_connection(connection, code);
        }
    }

    /// An error of the channel: the calls that it ends are told of before.
    fn fail(&mut self, error: Error) -> Result<(), Error> {
        if error.ended() == Ended::Channel {
            self.end_all(error.code());
        }
        if self.new.is_empty() { Err(error) } else { Ok(()) }
    }
}

/// Sends a message of a call, which others may follow at once.
#[inline(always)] // Each kind of message has a head that is known before.
fn put_later(
    channel: &mut Channel,
    connection: ConnectionId,
    header: Header,
    body: &[u8],
) -> Result<(), Error> {
    channel.send_filled_later(connection, HEADER_BYTES + body.len(), |bytes| {
        let (head, rest) = bytes.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.to_bytes());
        copy(rest, body);
    })
}

/// Refuses a request because too many are under way, as the library does by itself.
fn put_busy(channel: &mut Channel, request: RequestId) -> Result<(), Error> {
    let kind = Kind::Refusal { reason: Refusal::BUSY.0 };
    let header = Header { number: request.number, kind };
    let text = b"too many requests of this connection are under way";
    put_later(channel, request.connection, header, text)
}

/// Tells the peer that nobody waits for an answer any more. It is a kindness: if there is no room
/// for it, the answer comes and is dropped.
fn tell_cancelled(channel: &mut Channel, call: CallId, connection: ConnectionId) {
    let header = Header { number: call.0, kind: Kind::Cancel };
    let _ = channel.try_send(connection, &header.to_bytes());
}

/// What a call waited for before it was sent.
fn no_room(error: Error) -> Error {
    match error {
        Error::TimedOut { waited, .. } => Error::TimedOut { awaited: Awaited::Room, waited },
        error => error,
    }
}

/// As the header has it: at least a microsecond, and nothing if it is over 71 minutes.
fn time_left_us(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_micros().max(1)).unwrap_or(0)
}
