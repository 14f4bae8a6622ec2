//! What carries bytes under [`Batch`](super::Batch): a socket of the kernel's, or a connection of
//! Clearway's TCP.

use super::clearway::PATIENCE;
use super::{Calls, closed, there_is};
use clearway_client::{Channel, TcpId};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// One end of a connection that carries bytes.
pub(crate) trait Stream {
    /// Whether `receive` waits until something comes.
    fn waits(&self) -> bool {
        false
    }

    /// Receives what has come, as far as there is room; nothing if nothing has.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sends what there is room for of `pieces`, one behind the other; returns how many bytes.
    fn send(&mut self, pieces: &[&[u8]]) -> io::Result<usize>;
}

const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// A gathering call has at most so many pieces.
const PIECES_MAX: usize = 3;

/// A socket that never sleeps.
impl Stream for OwnedFd {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(self, buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(closed()),
            Ok((count, _)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn send(&mut self, pieces: &[&[u8]]) -> io::Result<usize> {
        let sent = match pieces {
            [bytes] => send(self, bytes, SEND_FLAGS),
            _ => {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                let slices = &mut slices[..pieces.len()];
                slices
                    .iter_mut()
                    .zip(pieces)
                    .for_each(|(slice, piece)| *slice = IoSlice::new(piece));
                sendmsg(self, slices, &mut SendAncillaryBuffer::default(), SEND_FLAGS)
            }
        };
        match sent {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            sent => Ok(sent?),
        }
    }
}

/// A connection of Clearway's TCP.
pub(crate) struct ClearwayTcp {
    channel: Channel,
    connection: TcpId,
    calls: Calls,
}

/// What one send takes of the transmit pool at most: longer pieces have to wait for as much of it.
const SENT_BYTES_MAX: usize = 256 << 10;

impl ClearwayTcp {
    pub(crate) fn new(channel: Channel, connection: TcpId, calls: Calls) -> Self {
        Self { channel, connection, calls }
    }
}

impl Stream for ClearwayTcp {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let timeout = if self.waits() { PATIENCE } else { Duration::ZERO };
        match there_is(self.channel.tcp_recv(self.connection, buffer, Some(timeout)))? {
            Some(0) => Err(closed()),
            received => Ok(received),
        }
    }

    /// Written where the daemon reads it.
    fn send(&mut self, pieces: &[&[u8]]) -> io::Result<usize> {
        let all_bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let length = all_bytes.min(SENT_BYTES_MAX);
        let at_once = Some(Duration::ZERO);
        let Some(mut buffer) = there_is(self.channel.send_buffer(length, at_once))? else {
            return Ok(0);
        };
        let mut room = &mut buffer[..length];
        for piece in pieces {
            let (filled, rest) = room.split_at_mut(piece.len().min(room.len()));
            filled.copy_from_slice(&piece[..filled.len()]);
            room = rest;
        }
        let sent = self.channel.tcp_send_buffer(self.connection, buffer, false, at_once);
        Ok(there_is(sent.map_err(|(_, error)| error))?.map_or(0, |()| length))
    }
}
