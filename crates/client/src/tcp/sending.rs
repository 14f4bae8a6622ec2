//! Sending on TCP connections: by copy or in place.

use std::time::Duration;

use clearway_channel::{Command, Extent};

use super::{TcpId, ended, is_not_open};
use crate::{Awaited, Channel, Code, Error, SendBuffer};

/// The most bytes that are copied into one piece: more would have to wait for one as large to be
/// free.
const COPIED_BYTES_MAX: usize = 64 << 10;

impl Channel {
    /// Sends some of `bytes`, at least one if there are any; waits for room. Returns how many.
    pub fn tcp_send(
        &mut self,
        id: TcpId,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        if bytes.is_empty() {
            return self.tcp_check_sending(id).map(|()| 0);
        }
        let piece_max = COPIED_BYTES_MAX.min(self.end.sizes().transmit_pool_bytes as usize / 8);
        let piece = &bytes[..bytes.len().min(piece_max)];
        let has_more = piece.len() < bytes.len();
        self.wait_for(timeout, Awaited::Room, |channel| {
            channel.tcp_check_sending(id)?;
            let extent = channel.with_room(|channel| channel.tcp_allocate(piece.len() as u32))?;
            let Some(extent) = extent else { return Ok(None) };
            channel.end.transmit_bytes(&extent).copy_from_slice(piece);
            channel.tcp_put(id, extent, piece.len() as u32, has_more)?;
            Ok(Some(piece.len()))
        })
    }

    /// Sends a buffer that was filled in place ([`Channel::send_buffer`]), at least one byte: its
    /// memory is the daemon's until the peer has acknowledged it. On an error the buffer is given
    /// up.
    pub fn tcp_send_buffer(
        &mut self,
        id: TcpId,
        buffer: SendBuffer,
        has_more: bool,
    ) -> Result<(), Error> {
        if buffer.is_empty() {
            return self.tcp_check_sending(id);
        }
        self.wait_for(None, Awaited::Room, |channel| {
            channel.tcp_check_sending(id)?;
            channel.with_room(|channel| channel.may_send().then_some(()))
        })?;
        let (extent, length) = buffer.into_extent();
        self.tcp_put(id, extent, length, has_more)
    }

    /// Bytes of a connection that were sent and that the peer has not acknowledged, in how many
    /// sends.
    pub fn tcp_unacknowledged(&mut self, id: TcpId) -> (u64, usize) {
        let Some(connection) = self.tcp.find(id) else { return (0, 0) };
        let outstanding = &connection.outstanding;
        (outstanding.iter().map(|extent| u64::from(extent.length())).sum(), outstanding.len())
    }

    fn tcp_allocate(&mut self, length: u32) -> Option<Extent> {
        if self.may_send() { self.end.allocate(length) } else { None }
    }

    /// There is room. The connection may have ended while it was made.
    fn tcp_put(
        &mut self,
        id: TcpId,
        extent: Extent,
        length: u32,
        has_more: bool,
    ) -> Result<(), Error> {
        if let Err(error) = self.tcp_check_sending(id) {
            self.end.free(extent);
            return Err(error);
        }
        let Some(connection) = self.tcp.find_open(id) else {
            self.end.free(extent);
            return Err(is_not_open(id));
        };
        let offset = extent.offset();
        connection.outstanding.push_back(extent);
        self.sends_outstanding += 1;
        self.submit(&Command::TcpSend { connection: id.0, offset, length, has_more });
        Ok(())
    }

    fn tcp_check_sending(&mut self, id: TcpId) -> Result<(), Error> {
        self.tcp_check(id)?;
        match self.tcp.find_open(id) {
            Some(connection) if connection.is_shut => Err(ended(id, Code::Closed)),
            _ => Ok(()),
        }
    }
}
