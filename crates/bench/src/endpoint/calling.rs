//! Calls as an exchange of the workload. An answer, as the workload sees it, is the number of the
//! exchange.

use super::clearway::PATIENCE;
use super::table::{self, RECORD_BYTES, RECORDS, index_of, key_of};
use super::{Calls, Endpoint, closed, there_is};
use clearway_client::{
    CallEvent, CallId, Calls as Library, Channel, ConnectionId, Event, Outcome, Request,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// The only method of the server.
const METHOD: u16 = 1;
/// Within so long a call is to be answered.
const DEADLINE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// As many bytes as the load says, back.
    Echo,
    /// The record that a key has.
    Scan,
}

/// An app that calls.
pub(crate) struct Caller {
    channel: Channel,
    connection: ConnectionId,
    library: Library,
    question: Question,
    /// Bytes of an echo.
    length: usize,
    calls: Calls,
    burst: usize,
    /// Something has come in this turn.
    has_received: bool,
    asked: VecDeque<(CallId, u64)>,
    /// The answer last given.
    answer: [u8; 8],
}

impl Caller {
    pub(crate) fn new(
        channel: Channel,
        connection: ConnectionId,
        calls: Calls,
        question: Question,
        (length, window): (usize, usize),
    ) -> Self {
        Self {
            channel,
            connection,
            library: Library::new(),
            question,
            length,
            calls,
            burst: window,
            has_received: false,
            asked: VecDeque::with_capacity(window),
            answer: [0; 8],
        }
    }

    /// The next call that is over: the oldest, since one server answers in turn.
    fn next(&mut self) -> io::Result<Option<(CallId, Outcome)>> {
        let timeout = if self.waits() && !self.has_received { PATIENCE } else { Duration::ZERO };
        loop {
            match there_is(self.library.next(&mut self.channel, Some(timeout)))? {
                None => return Ok(None),
                Some(CallEvent::Ended { call, outcome }) => return Ok(Some((call, outcome))),
                Some(CallEvent::Channel(Event::Closed { .. })) => return Err(closed()),
                Some(_) => {}
            }
        }
    }

    fn check(&self, outcome: &Outcome, sequence: u64) -> io::Result<()> {
        match (outcome, self.question) {
            (Outcome::Answered(answer), Question::Echo) => {
                table::check(answer, self.length, sequence)
            }
            (Outcome::Answered(answer), Question::Scan) => {
                table::check(answer, RECORD_BYTES as usize, index_of(sequence))
            }
            (other, _) => Err(io::Error::other(format!("a call ended so: {other:?}"))),
        }
    }
}

impl Endpoint for Caller {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn burst(&self) -> usize {
        self.burst
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let number = message.first_chunk().copied().map(u64::from_le_bytes);
        let sequence = number.ok_or(io::ErrorKind::InvalidInput)?;
        let key = key_of(index_of(sequence)).to_ne_bytes();
        let body = if self.question == Question::Echo { message } else { &key };
        let (channel, connection) = (&mut self.channel, self.connection);
        let call = self.library.start(channel, connection, METHOD, body, Some(DEADLINE));
        let Some(call) = there_is(call)? else { return Ok(false) };
        self.asked.push_back((call, sequence));
        Ok(true)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let Some((call, outcome)) = self.next()? else { return Ok(None) };
        let asked = self.asked.pop_front().filter(|(asked, _)| *asked == call);
        let Some((_, sequence)) = asked else {
            return Err(io::Error::other("calls were answered in another order"));
        };
        self.check(&outcome, sequence)?;
        if let Outcome::Answered(answer) = outcome {
            answer.release(&mut self.channel);
        }
        self.has_received = true;
        self.answer = sequence.to_le_bytes();
        Ok(Some(&self.answer))
    }

    fn reply(&mut self, _length: usize) -> io::Result<bool> {
        unreachable!("who asks is not asked")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        Ok(())
    }
}

/// The app that answers.
pub(crate) struct Answerer {
    channel: Channel,
    library: Library,
    question: Question,
    calls: Calls,
    /// Something has come in this turn.
    has_received: bool,
    /// What is to be answered.
    request: Option<Request>,
    /// Key and record.
    entries: Vec<(u64, [u8; RECORD_BYTES as usize])>,
}

impl Answerer {
    pub(crate) fn new(channel: Channel, calls: Calls, question: Question) -> Self {
        let record = |index: u64| {
            let mut record = [0; RECORD_BYTES as usize];
            record[..8].copy_from_slice(&index.to_ne_bytes());
            record
        };
        Self {
            channel,
            library: Library::new(),
            question,
            calls,
            has_received: false,
            request: None,
            entries: (0..RECORDS).map(|index| (key_of(index), record(index))).collect(),
        }
    }
}

impl Endpoint for Answerer {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    /// All that wait.
    fn burst(&self) -> usize {
        usize::MAX
    }

    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        unreachable!("a server only replies")
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let timeout = if self.waits() && !self.has_received { PATIENCE } else { Duration::ZERO };
        self.request = loop {
            match there_is(self.library.next(&mut self.channel, Some(timeout)))? {
                None => break None,
                Some(CallEvent::Asked(request)) => break Some(request),
                Some(_) => {}
            }
        };
        self.has_received = self.request.is_some();
        Ok(self.request.as_deref())
    }

    /// What the question asks for, however much the workload wants.
    fn reply(&mut self, _length: usize) -> io::Result<bool> {
        let Some(request) = self.request.take() else { return Ok(true) };
        let answer = match self.question {
            Question::Echo => &request[..],
            Question::Scan => {
                let key = request[..].try_into().map_or(0, u64::from_ne_bytes);
                let found = self.entries.iter().find(|entry| entry.0 == key);
                found.map_or(&[][..], |entry| &entry.1)
            }
        };
        let answered = self.library.answer(&mut self.channel, request.id(), answer);
        request.release(&mut self.channel);
        there_is(answered).map(|_| true)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        Ok(())
    }
}
