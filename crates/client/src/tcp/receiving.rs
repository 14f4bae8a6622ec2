//! Receiving from TCP connections: by copy or in place.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use clearway_base::copy;
use clearway_channel::ReceiveBuffer;

use super::{TcpId, is_not_open};
use crate::{Awaited, Channel, Error};

/// Bytes that have come, to be read where the daemon put them. The peer can send as many more when
/// they are dropped.
pub struct TcpBytes {
    buffer: ReceiveBuffer,
    /// Those before it have been read.
    first: usize,
}

impl Deref for TcpBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.first..]
    }
}

impl fmt::Debug for TcpBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpBytes({} bytes)", self.len())
    }
}

impl Channel {
    /// Receives up to as many bytes as `buffer` has; waits until there are some. Returns how many;
    /// 0 if there will be no more.
    pub fn tcp_recv(
        &mut self,
        id: TcpId,
        buffer: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.wait_for(timeout, Awaited::Bytes, |channel| {
            match channel.tcp_take(|channel| channel.tcp_copy(id, buffer))? {
                None => channel.tcp_nothing(id, 0),
                copied => Ok(copied),
            }
        })
    }

    /// Receives bytes in place; waits until there are some. `None` if there will be no more.
    pub fn tcp_recv_buffer(
        &mut self,
        id: TcpId,
        timeout: Option<Duration>,
    ) -> Result<Option<TcpBytes>, Error> {
        self.wait_for(timeout, Awaited::Bytes, |channel| {
            match channel.tcp_take(|channel| channel.tcp_in_place(id))? {
                None => channel.tcp_nothing(id, None),
                bytes => Ok(Some(bytes)),
            }
        })
    }

    /// Gives the memory of bytes back; the same as dropping them, but faster.
    #[inline]
    pub fn tcp_release(&mut self, bytes: TcpBytes) {
        self.end.release_buffer(bytes.buffer);
    }

    /// What `take` gives of a connection. What waits in the ring is only looked at if it gives
    /// nothing.
    fn tcp_take<T>(
        &mut self,
        mut take: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        loop {
            let taken = take(self)?;
            if taken.is_some() || !self.take_ring()? {
                return Ok(taken);
            }
        }
    }

    /// Copies what has come, and releases it; `None` if nothing has.
    fn tcp_copy(&mut self, id: TcpId, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let connection = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?;
        let mut copied = 0;
        while copied < buffer.len()
            && let Some(granted) = connection.received.front()
        {
            let bytes = &self.end.receive_bytes(granted)[connection.read_bytes as usize..];
            let count = bytes.len().min(buffer.len() - copied);
            copy(&mut buffer[copied..copied + count], &bytes[..count]);
            copied += count;
            if count < bytes.len() {
                connection.read_bytes += count as u32; // of a buffer of the pool
                break;
            }
            connection.read_bytes = 0;
            if let Some(granted) = connection.received.pop_front() {
                self.end.release(granted);
            }
        }
        Ok((copied > 0).then_some(copied))
    }

    /// The first of what has come, where it is; `None` if nothing has.
    fn tcp_in_place(&mut self, id: TcpId) -> Result<Option<TcpBytes>, Error> {
        let connection = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?;
        let Some(granted) = connection.received.pop_front() else { return Ok(None) };
        let first = std::mem::take(&mut connection.read_bytes) as usize;
        Ok(Some(TcpBytes { buffer: self.end.receive_buffer(granted), first }))
    }

    /// Nothing has come: will there be more? `finished` if the peer has closed its half.
    fn tcp_nothing<T>(&mut self, id: TcpId, finished: T) -> Result<Option<T>, Error> {
        let connection = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?;
        match connection.end {
            _ if connection.is_finished || connection.is_orderly() => Ok(Some(finished)),
            Some(code) => Err(connection.ended(id, code)),
            None => Ok(None),
        }
    }
}
