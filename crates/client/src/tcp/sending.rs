//! Sending on TCP connections: by copy or in place.

use std::time::Duration;

use clearway_channel::{Command, Extent};

use super::{TcpId, ended};
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
        self.tcp_send_part(id, bytes, false, timeout)
    }

    /// The same, and more will follow: what does not fill a segment waits for that (MSG_MORE).
    pub fn tcp_send_more(
        &mut self,
        id: TcpId,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        self.tcp_send_part(id, bytes, true, timeout)
    }

    fn tcp_send_part(
        &mut self,
        id: TcpId,
        bytes: &[u8],
        more_follows: bool,
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        if bytes.is_empty() {
            return self.tcp_check_sending(id).map(|()| 0);
        }
        let piece_max = COPIED_BYTES_MAX.min(self.end.sizes().transmit_pool_bytes as usize / 8);
        let piece = &bytes[..bytes.len().min(piece_max)];
        let has_more = more_follows || piece.len() < bytes.len();
        self.wait_for(timeout, Awaited::Room, |channel| {
            if !channel.tcp_may_send(id)? {
                return Ok(None);
            }
            let extent = channel.with_room(|channel| channel.tcp_allocate(piece.len() as u32))?;
            let Some(extent) = extent else { return Ok(None) };
            // It may have ended while room was made.
            if let Err(error) = channel.tcp_check_sending(id) {
                channel.end.free(extent);
                return Err(error);
            }
            channel.end.transmit_bytes(&extent).copy_from_slice(piece);
            channel.tcp_put(id, extent, piece.len() as u32, has_more);
            Ok(Some(piece.len()))
        })
    }

    /// Sends a buffer that was filled in place ([`Channel::send_buffer`]): its memory is the
    /// daemon's until the peer has acknowledged it. Waits for room. Or gives it back with the
    /// reason.
    pub fn tcp_send_buffer(
        &mut self,
        id: TcpId,
        buffer: SendBuffer,
        has_more: bool,
        timeout: Option<Duration>,
    ) -> Result<(), (SendBuffer, Error)> {
        let room = self.wait_for(timeout, Awaited::Room, |channel| {
            if !channel.tcp_may_send(id)? {
                return Ok(None);
            }
            let room = channel.with_room(|channel| channel.may_send().then_some(()))?;
            channel.tcp_check_sending(id).map(|()| room)
        });
        if let Err(error) = room {
            return Err((buffer, error));
        }
        if !buffer.is_empty() {
            let (extent, length) = buffer.into_extent();
            self.tcp_put(id, extent, length, has_more);
        }
        Ok(())
    }

    /// Bytes of a connection that were sent and that the peer has not acknowledged, in how many
    /// sends.
    pub fn tcp_unacknowledged(&mut self, id: TcpId) -> (u64, usize) {
        let Some(connection) = self.tcp.find(id) else { return (0, 0) };
        (connection.unacknowledged, connection.outstanding.len())
    }

    /// Lets go of a connection when the peer has acknowledged all that was sent (SO_LINGER with a
    /// time). An error says that it has not: in time, and then the daemon goes on with it, as after
    /// [`Channel::tcp_close`]; or ever, because the connection has ended.
    pub fn tcp_linger(&mut self, id: TcpId, timeout: Option<Duration>) -> Result<(), Error> {
        let lingered = self.tcp_shutdown(id).and_then(|()| {
            self.wait_for(timeout, Awaited::Delivery, |channel| {
                channel.gather()?;
                match channel.tcp_check(id) {
                    Ok(()) => Ok((channel.tcp_unacknowledged(id).1 == 0).then_some(())),
                    Err(error) if error.code() == Code::Closed => Ok(Some(())), // by both ends
                    Err(error) => Err(error),
                }
            })
        });
        self.tcp_close(id)?;
        lingered
    }

    /// Whether a connection that is open has sent less than it may, after what the daemon has to
    /// say of that.
    fn tcp_may_send(&mut self, id: TcpId) -> Result<bool, Error> {
        self.tcp_check_sending(id)?;
        if self.tcp_takes_bytes(id) {
            return Ok(true);
        }
        self.gather()?;
        self.tcp_check_sending(id)?;
        Ok(self.tcp_takes_bytes(id))
    }

    fn tcp_takes_bytes(&mut self, id: TcpId) -> bool {
        self.tcp.find_open(id).is_some_and(|connection| connection.takes_bytes())
    }

    fn tcp_allocate(&mut self, length: u32) -> Option<Extent> {
        if self.may_send() { self.end.allocate(length) } else { None }
    }

    /// There is room, and the connection is open.
    fn tcp_put(&mut self, id: TcpId, extent: Extent, length: u32, has_more: bool) {
        let Some(connection) = self.tcp.find_open(id) else { return self.end.free(extent) };
        let offset = extent.offset();
        connection.unacknowledged += u64::from(extent.length());
        connection.outstanding.push_back(extent);
        self.sends_outstanding += 1;
        self.submit(&Command::TcpSend { connection: id.0, offset, length, has_more });
    }

    fn tcp_check_sending(&mut self, id: TcpId) -> Result<(), Error> {
        self.tcp_check(id)?;
        match self.tcp.find_open(id) {
            Some(connection) if connection.is_shut => Err(ended(id, Code::Closed)),
            _ => Ok(()),
        }
    }
}
