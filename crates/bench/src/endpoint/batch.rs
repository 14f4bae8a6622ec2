//! A byte stream used the fast way: all that waits is received in one call, and all answers leave
//! in one call. What a well-written pipelining server does over TCP.

use super::{Endpoint, HEADER_BYTES, Stream, header};
use std::io;
use std::ops::Range;

/// Room to receive in one call, beyond which a longer call saves nothing more.
const INCOMING_BYTES: usize = 256 << 10;
/// What waits for the end of the turn at most: more does not save calls worth counting, but leaves
/// the cache.
const OUTGOING_BYTES_MAX: usize = 64 << 10;
/// From this size on a message is sent from where it lies, without a copy behind the others.
const GATHER_BYTES_MIN: usize = 16 << 10;

/// One end of a byte stream.
pub(crate) struct Batch<S> {
    stream: S,
    incoming: Vec<u8>,
    /// Received, not yet handed out.
    unread: Range<usize>,
    /// The message last handed out.
    current: Range<usize>,
    /// The one call of this turn is done.
    has_received: bool,
    outgoing: Vec<u8>,
    outgoing_from: usize,
    burst: usize,
}

impl<S: Stream> Batch<S> {
    /// A connection for messages of at most `message_bytes_max`, `window` of them in flight.
    pub(crate) fn new(stream: S, message_bytes_max: usize, window: usize) -> Self {
        let room = INCOMING_BYTES.max(2 * (HEADER_BYTES + message_bytes_max));
        Self {
            stream,
            incoming: vec![0; room],
            unread: 0..0,
            current: 0..0,
            has_received: false,
            outgoing: Vec::with_capacity(2 * OUTGOING_BYTES_MAX),
            outgoing_from: 0,
            burst: window,
        }
    }

    /// The bounds of the next whole message in the buffer.
    fn next_message(&self) -> io::Result<Option<Range<usize>>> {
        let unread = &self.incoming[self.unread.clone()];
        let Some((head, rest)) = unread.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.incoming.len() - HEADER_BYTES {
            return Err(io::Error::other("a message is longer than was agreed"));
        }
        let start = self.unread.start + HEADER_BYTES;
        Ok((rest.len() >= length).then_some(start..start + length))
    }

    /// Receives all that waits; false if nothing does.
    fn fill(&mut self) -> io::Result<bool> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.start > self.incoming.len() / 2 {
            self.incoming.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let received = self.stream.receive(&mut self.incoming[self.unread.end..])?;
        self.unread.end += received.unwrap_or(0);
        Ok(received.is_some())
    }

    /// Sends what waits; true when nothing does any more.
    fn drain(&mut self) -> io::Result<bool> {
        while self.outgoing_from < self.outgoing.len() {
            match self.stream.send(&[&self.outgoing[self.outgoing_from..]])? {
                0 => return Ok(false),
                count => self.outgoing_from += count,
            }
        }
        self.outgoing.clear();
        self.outgoing_from = 0;
        Ok(true)
    }

    /// Sends what waits, and `message` behind it, in one call; keeps a copy of what was not taken.
    fn gather(&mut self, message: &[u8]) -> io::Result<()> {
        let head = header(message.len());
        let sent = self.stream.send(&[&self.outgoing[self.outgoing_from..], &head, message])?;
        self.outgoing.extend_from_slice(&head);
        let old = self.outgoing.len() - self.outgoing_from;
        self.outgoing.extend_from_slice(&message[sent.saturating_sub(old)..]);
        if sent >= old {
            self.outgoing.drain(..self.outgoing_from + old);
            self.outgoing_from = 0;
        } else {
            self.outgoing_from += sent;
        }
        Ok(())
    }

    fn put(&mut self, message: &[u8]) -> io::Result<bool> {
        if self.outgoing.len() - self.outgoing_from > OUTGOING_BYTES_MAX && !self.drain()? {
            return Ok(false);
        }
        if message.len() >= GATHER_BYTES_MIN {
            self.gather(message)?;
        } else {
            self.outgoing.extend_from_slice(&header(message.len()));
            self.outgoing.extend_from_slice(message);
        }
        Ok(true)
    }
}

impl<S: Stream> Endpoint for Batch<S> {
    fn waits(&self) -> bool {
        self.stream.waits()
    }

    fn burst(&self) -> usize {
        self.burst
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.put(message)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let mut next = self.next_message()?;
        if next.is_none() && !self.has_received {
            self.has_received = true;
            if self.fill()? {
                next = self.next_message()?;
            }
        }
        let Some(message) = next else { return Ok(None) };
        self.unread.start = message.end;
        self.current = message.clone();
        Ok(Some(&self.incoming[message]))
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let incoming = std::mem::take(&mut self.incoming);
        let sent = self.put(&incoming[self.current.clone()][..length]);
        self.incoming = incoming;
        sent
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        self.drain().map(drop)
    }
}
