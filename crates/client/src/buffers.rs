//! Messages in place: received ones to be read, and buffers to be filled and sent.

use std::fmt;
use std::ops::{Deref, DerefMut};

use clearway_channel::{AppEnd, Extent, ReceiveBuffer, TransmitBuffer};

use crate::ConnectionId;

/// A received message, to be read where the daemon put it. Its memory goes back to the daemon when
/// it is dropped, or faster by [`Channel::release`](crate::Channel::release). Senders are slowed
/// down while many messages are held.
pub struct Message {
    pub(crate) connection: ConnectionId,
    pub(crate) buffer: ReceiveBuffer,
}

impl Message {
    /// The connection it came by.
    #[must_use]
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes by connection {})", self.len(), self.connection)
    }
}

/// A buffer to be filled in place and sent without a copy. Its bytes are left over from earlier
/// messages of this app until they are written.
pub struct SendBuffer {
    buffer: TransmitBuffer,
    length: usize,
}

impl SendBuffer {
    pub(crate) fn new(buffer: TransmitBuffer) -> Self {
        let length = buffer.len();
        Self { buffer, length }
    }

    /// Shortens the message to `length` bytes; nothing if it is shorter already.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Makes it as long again as it was asked for.
    pub fn restore(&mut self) {
        self.length = self.buffer.len();
    }

    /// Whether it is of this end's memory.
    #[inline]
    pub(crate) fn is_of(&self, end: &AppEnd) -> bool {
        end.has_made(&self.buffer)
    }

    /// Where it is, and how many bytes of it are to be sent.
    pub(crate) fn into_extent(self) -> (Extent, u32) {
        (self.buffer.into_extent(), self.length as u32)
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.length]
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBuffer({} bytes)", self.length)
    }
}
