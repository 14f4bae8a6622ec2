//! A byte stream (TCP, Unix) used the plain way: one call to send a message, one to receive it.
//!
//! The receiver knows how long the next message is, so that it asks for exactly one; a program
//! that does not know would need a second call.

use super::{Endpoint, HEADER_BYTES, closed, header};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

/// Up to this size, copying a message behind its header is cheaper than a gathering call.
const COPY_BYTES_MAX: usize = 2048;

/// A stream socket; `BLOCKING` says whether `receive` sleeps or spins.
pub(crate) struct PerMessage<const BLOCKING: bool> {
    socket: OwnedFd,
    /// One frame: header and message.
    incoming: Vec<u8>,
    filled: usize,
    /// What the socket did not take of the last message.
    unsent: Vec<u8>,
    unsent_from: usize,
    frame: Vec<u8>,
}

impl<const BLOCKING: bool> PerMessage<BLOCKING> {
    /// A connected socket from which messages of `receive_bytes` are expected.
    pub(crate) fn new(socket: OwnedFd, receive_bytes: usize) -> Self {
        Self {
            socket,
            incoming: vec![0; HEADER_BYTES + receive_bytes],
            filled: 0,
            unsent: Vec::new(),
            unsent_from: 0,
            frame: Vec::with_capacity(HEADER_BYTES + COPY_BYTES_MAX),
        }
    }

    /// Fills `incoming`; true when the whole frame is there.
    fn fill(&mut self) -> io::Result<bool> {
        while self.filled < self.incoming.len() {
            let flags =
                if BLOCKING && self.drained()? { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match recv(&self.socket, &mut self.incoming[self.filled..], flags) {
                Ok((0, _)) => return Err(closed()),
                Ok((count, _)) => self.filled += count,
                Err(Errno::AGAIN) if BLOCKING => self.wait()?,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    /// Tries to send what is unsent; true when nothing is.
    fn drained(&mut self) -> io::Result<bool> {
        while self.unsent_from < self.unsent.len() {
            match send(&self.socket, &self.unsent[self.unsent_from..], SEND_FLAGS) {
                Ok(count) => self.unsent_from += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    /// Sleeps until there is something to receive or room to send.
    fn wait(&self) -> io::Result<()> {
        let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::OUT)];
        match poll(&mut descriptors, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn send_frame(&mut self, header: [u8; HEADER_BYTES], message: &[u8]) -> io::Result<bool> {
        let sent = if message.len() <= COPY_BYTES_MAX {
            self.frame.clear();
            self.frame.extend_from_slice(&header);
            self.frame.extend_from_slice(message);
            send(&self.socket, &self.frame, SEND_FLAGS)
        } else {
            let slices = [IoSlice::new(&header), IoSlice::new(message)];
            sendmsg(&self.socket, &slices, &mut SendAncillaryBuffer::default(), SEND_FLAGS)
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        if sent < HEADER_BYTES + message.len() {
            self.keep_unsent(&header, message, sent);
        }
        Ok(true)
    }

    fn keep_unsent(&mut self, header: &[u8], message: &[u8], sent: usize) {
        self.unsent.clear();
        self.unsent_from = 0;
        self.unsent.extend(header.iter().skip(sent));
        self.unsent.extend_from_slice(&message[sent.saturating_sub(header.len())..]);
    }
}

const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

impl<const BLOCKING: bool> Endpoint for PerMessage<BLOCKING> {
    fn waits(&self) -> bool {
        BLOCKING
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        Ok(self.drained()? && self.send_frame(header(message.len()), message)?)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        if !self.fill()? {
            self.drained()?;
            return Ok(None);
        }
        self.filled = 0;
        let (head, message) = self.incoming.split_at(HEADER_BYTES);
        if head != header(message.len()) {
            return Err(io::Error::other("a message has the wrong length"));
        }
        Ok(Some(message))
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        if !self.drained()? {
            return Ok(false);
        }
        let incoming = std::mem::take(&mut self.incoming);
        let sent = self.send_frame(header(length), &incoming[HEADER_BYTES..][..length]);
        self.incoming = incoming;
        sent
    }
}
