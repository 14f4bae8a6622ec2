//! Sending on TCP connections: by copy or in place.

use std::time::Duration;

use clearway_base::copy;
use clearway_channel::{Command, Extent};

use super::{Connection, Sent, TcpId, is_not_open};
use crate::{Awaited, Channel, Code, Error, SendBuffer};

/// The most bytes that are copied into one piece: more would have to wait for one as large to be
/// free.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Who only sends looks at what the daemon has to say once in so many sends, while none of them is
/// known to be finished: else it would hear of the connection's end only when it may send no more.
const SENDS_BEFORE_LOOKING: usize = 16;

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
            return self.tcp_sending(id).map(|_| 0);
        }
        let piece_max = COPIED_BYTES_MAX.min(self.end.sizes().transmit_pool_bytes as usize / 8);
        let piece = &bytes[..bytes.len().min(piece_max)];
        let has_more = more_follows || piece.len() < bytes.len();
        self.wait_for(timeout, Awaited::RoomForBytes, |channel| {
            if !channel.tcp_may_send(id)? {
                return Ok(None);
            }
            let extent = channel.with_room(|channel| channel.tcp_allocate(piece.len() as u32))?;
            let Some(extent) = extent else { return Ok(None) };
            copy(channel.end.transmit_bytes(&extent), piece);
            match channel.tcp_put(id, extent, piece.len() as u32, has_more) {
                Ok(()) => Ok(Some(piece.len())),
                Err((extent, error)) => {
                    channel.end.free(extent);
                    Err(error)
                }
            }
        })
    }

    /// Sends a buffer that was filled in place ([`Channel::send_buffer`]): its memory is the
    /// daemon's until the peer has acknowledged it. Waits for room. Or gives it back, as it was,
    /// with the reason.
    pub fn tcp_send_buffer(
        &mut self,
        id: TcpId,
        buffer: SendBuffer,
        has_more: bool,
        timeout: Option<Duration>,
    ) -> Result<(), (SendBuffer, Error)> {
        let room = self.check_own(&buffer).and_then(|()| {
            self.wait_for(timeout, Awaited::RoomForBytes, |channel| {
                if !channel.tcp_may_send(id)? {
                    return Ok(None);
                }
                channel.with_room(|channel| channel.may_send().then_some(()))
            })
        });
        if let Err(error) = room {
            return Err((buffer, error));
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let (extent, length) = buffer.into_extent();
        self.tcp_put(id, extent, length, has_more).map_err(|(extent, error)| {
            let mut buffer = SendBuffer::new(self.end.into_buffer(extent));
            buffer.truncate(length as usize);
            (buffer, error)
        })
    }

    /// Bytes of a connection that were sent and that the peer has not acknowledged, in how many
    /// sends; 0 of one that has ended, and `None` if it is not open on this channel.
    pub fn tcp_unacknowledged(&mut self, id: TcpId) -> Option<(u64, usize)> {
        let connection = self.tcp.find_open(id)?;
        Some((connection.unacknowledged, connection.outstanding.len()))
    }

    /// Lets go of a connection when the peer has acknowledged all that was sent (SO_LINGER with a
    /// time). An error says that it has not: in time, and then the daemon goes on with it, as after
    /// [`Channel::tcp_close`]; or ever, because the connection has ended.
    pub fn tcp_linger(&mut self, id: TcpId, timeout: Option<Duration>) -> Result<(), Error> {
        let shut = match self.tcp_shutdown(id) {
            Err(error) if is_orderly(&error) => Ok(()), // all has arrived
            shut => shut,
        };
        let lingered = shut.and_then(|()| {
            self.wait_for(timeout, Awaited::Delivery, |channel| {
                channel.gather()?;
                match channel.tcp_check(id) {
                    Ok(()) => Ok(channel.tcp_has_delivered(id).then_some(())),
                    Err(error) if is_orderly(&error) => Ok(Some(())),
                    Err(error) => Err(error),
                }
            })
        });
        self.tcp_close(id)?;
        lingered
    }

    /// The peer has acknowledged all that was sent on a connection.
    fn tcp_has_delivered(&mut self, id: TcpId) -> bool {
        self.tcp.find(id).is_none_or(|connection| connection.outstanding.is_empty())
    }

    /// Whether a connection that is open has sent less than it may, after what the daemon has to
    /// say of that.
    fn tcp_may_send(&mut self, id: TcpId) -> Result<bool, Error> {
        let connection = self.tcp_sending(id)?;
        let is_to_look =
            connection.outstanding.len() % SENDS_BEFORE_LOOKING == SENDS_BEFORE_LOOKING - 1;
        if connection.takes_bytes() && !is_to_look {
            return Ok(true);
        }
        self.gather()?;
        Ok(self.tcp_sending(id)?.takes_bytes())
    }

    fn tcp_allocate(&mut self, length: u32) -> Option<Extent> {
        if self.may_send() { self.end.allocate(length) } else { None }
    }

    /// There is room. The connection may have ended while that was made: then the extent comes
    /// back.
    fn tcp_put(
        &mut self,
        id: TcpId,
        extent: Extent,
        length: u32,
        has_more: bool,
    ) -> Result<(), (Extent, Error)> {
        let connection = match self.tcp_sending(id) {
            Ok(connection) => connection,
            Err(error) => return Err((extent, error)),
        };
        let offset = extent.offset();
        connection.unacknowledged += u64::from(length);
        connection.occupied += u64::from(extent.length());
        connection.outstanding.push_back(Sent { extent, bytes: length });
        self.sends_outstanding += 1;
        self.submit(&Command::TcpSend { connection: id.0, offset, length, has_more });
        Ok(())
    }

    /// A connection on which bytes can be sent.
    fn tcp_sending(&mut self, id: TcpId) -> Result<&mut Connection, Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        let connection = self.tcp.find_open(id).ok_or_else(|| is_not_open(id))?;
        match connection.end {
            Some(end) => Err(connection.ended(id, end)),
            None if connection.is_shut => Err(Error::TcpShut { connection: id }),
            None => Ok(connection),
        }
    }
}

/// A connection has ended because both ends have closed it.
fn is_orderly(error: &Error) -> bool {
    matches!(error, Error::TcpEnded { code: Code::Closed, .. })
}
