//! Sending: by copy or in place; with waiting or without.

use std::time::Duration;

use clearway_base::copy;
use clearway_channel::{Code, Command, Extent, MESSAGE_BYTES_MAX, OUTSTANDING_SENDS_MAX};

use crate::event::Arrival;
use crate::{Awaited, Channel, ConnectionId, Error, SendBuffer};

impl Channel {
    /// Sends a message; waits while there is no room. It is on its way when this returns; that it
    /// has arrived is not known.
    pub fn send(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), Error> {
        self.send_timeout(connection, message, None)
    }

    /// Sends a message; waits no longer than `timeout` for room.
    pub fn send_timeout(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let fill = |bytes: &mut [u8]| copy(bytes, message);
        if self.put_at_once(connection, message.len(), fill) {
            self.tell();
            return Ok(());
        }
        self.wait_for(timeout, Awaited::Room, |channel| channel.try_put(connection, message))
    }

    /// Sends a message, or says [`Error::WouldBlock`]; then [`Event::Writable`] follows when there
    /// is room again.
    ///
    /// [`Event::Writable`]: crate::Event::Writable
    #[inline]
    pub fn try_send(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), Error> {
        self.send_timeout(connection, message, Some(Duration::ZERO))
    }

    /// The same as [`Channel::try_send`] for a message that others follow at once: it need not
    /// leave before the next call that sends, waits or flushes. What is sent so together shares
    /// packets, and an embedded engine is asked only once.
    #[inline]
    pub fn send_later(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), Error> {
        let fill = |bytes: &mut [u8]| copy(bytes, message);
        self.send_filled_later(connection, message.len(), fill)
    }

    /// The same for a message of `length` bytes that `fill` writes, which may be called again.
    #[inline]
    pub(crate) fn send_filled_later(
        &mut self,
        connection: ConnectionId,
        length: usize,
        fill: impl Fn(&mut [u8]),
    ) -> Result<(), Error> {
        if self.put_at_once(connection, length, &fill) {
            return Ok(());
        }
        self.wait_for(Some(Duration::ZERO), Awaited::Room, |channel| {
            channel.put(connection, length, &fill)
        })
    }

    /// A buffer for a message of `length` bytes, to be filled in place; waits for room.
    pub fn send_buffer(
        &mut self,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<SendBuffer, Error> {
        let length = self.check_length(length)?;
        self.wait_for(timeout, Awaited::Room, |channel| {
            let extent = channel.with_room(|channel| channel.end.allocate(length))?;
            Ok(extent.map(|extent| SendBuffer::new(channel.end.into_buffer(extent))))
        })
    }

    /// Whether this channel can send a buffer: it has made it, since it was attached last.
    #[inline]
    #[must_use]
    pub fn has_made(&self, buffer: &SendBuffer) -> bool {
        buffer.is_of(&self.end)
    }

    #[inline]
    pub(crate) fn check_own(&self, buffer: &SendBuffer) -> Result<(), Error> {
        if self.has_made(buffer) { Ok(()) } else { Err(not_own()) }
    }

    /// Sends a buffer that was filled in place; waits while there is no room in the ring. On an
    /// error the buffer is given up. It is an error to send one that another channel has made, or
    /// this one before it was attached again.
    pub fn send_zero_copy(
        &mut self,
        connection: ConnectionId,
        buffer: SendBuffer,
    ) -> Result<(), Error> {
        self.check_own(&buffer)?;
        self.wait_for(None, Awaited::Room, |channel| channel.room_for_buffer(connection))?;
        self.put_buffer(connection, buffer);
        Ok(())
    }

    /// Sends a buffer that was filled in place, or gives it back with the reason, which is
    /// [`Error::WouldBlock`] if there is no room in the ring.
    pub fn try_send_zero_copy(
        &mut self,
        connection: ConnectionId,
        buffer: SendBuffer,
    ) -> Result<(), (SendBuffer, Error)> {
        let room = self.check_own(&buffer).and_then(|()| {
            self.wait_for(Some(Duration::ZERO), Awaited::Room, |channel| {
                channel.room_for_buffer(connection)
            })
        });
        match room {
            Ok(()) => {
                self.put_buffer(connection, buffer);
                Ok(())
            }
            Err(error) => Err((buffer, error)),
        }
    }

    /// Makes sure that the daemon takes notice of everything that was sent and released, also if
    /// it sleeps. Only needed for messages that were received in place and then dropped, and for
    /// those of [`Channel::send_later`] and [`Channel::start_later`], before doing something else
    /// for long: other sends need no flush.
    pub fn flush(&mut self) {
        self.end.flush_releases();
        self.host.turn();
    }

    fn try_put(&mut self, connection: ConnectionId, message: &[u8]) -> Result<Option<()>, Error> {
        let fill = |bytes: &mut [u8]| copy(bytes, message);
        let put = self.put(connection, message.len(), fill)?;
        if put.is_some() {
            self.tell();
        }
        Ok(put)
    }

    /// True if a connection may send more without hurting others: while half of the channel's
    /// memory for sending is in use, none has more than an eighth of it. Else an event says when
    /// there is room again.
    pub(crate) fn has_share(&mut self, connection: ConnectionId) -> bool {
        let pool_bytes = self.end.sizes().transmit_pool_bytes;
        let is_plenty = self.end.transmit_pool_used_bytes() <= pool_bytes / 2
            && self.sends_outstanding <= OUTSTANDING_SENDS_MAX / 2;
        if is_plenty {
            return true;
        }
        let Some(found) = self.connections.find_open(connection) else { return true };
        let bytes: u64 = found.outstanding.iter().map(|extent| u64::from(extent.length())).sum();
        let is_within = bytes < u64::from(pool_bytes / 8)
            && found.outstanding.len() < OUTSTANDING_SENDS_MAX as usize / 8;
        self.wants_room |= !is_within;
        is_within
    }

    /// Gives the daemon a message, and does not wake it. False if something is in the way, which
    /// [`Channel::put`] finds out. The connection is looked up once, after there is memory for the
    /// message.
    #[inline]
    fn put_at_once(
        &mut self,
        connection: ConnectionId,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(length) = self.fits(length) else { return false };
        if self.gone.is_some() {
            return false;
        }
        let Some(extent) = self.allocate(length) else { return false };
        fill(self.end.transmit_bytes(&extent));
        self.put_extent(connection, extent, length)
    }

    /// The same, making room if there is none.
    #[cold]
    fn put(
        &mut self,
        connection: ConnectionId,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Option<()>, Error> {
        let length = self.check_length(length)?;
        let Some(extent) = self.room_in(connection, length)? else { return Ok(None) };
        fill(self.end.transmit_bytes(&extent));
        self.put_extent(connection, extent, length);
        Ok(Some(()))
    }

    /// Memory for a message of an open connection, if there is some now.
    pub(crate) fn room_in(
        &mut self,
        connection: ConnectionId,
        length: u32,
    ) -> Result<Option<Extent>, Error> {
        self.check_open(connection)?;
        self.with_room(|channel| channel.allocate(length))
    }

    /// Whether a buffer that was filled may be sent by an open connection now.
    pub(crate) fn room_for_buffer(
        &mut self,
        connection: ConnectionId,
    ) -> Result<Option<()>, Error> {
        self.check_open(connection)?;
        self.with_room(|channel| channel.may_send().then_some(()))
    }

    /// Memory for a message that may be sent now.
    #[inline(always)] // To call it costs a third of what it does.
    pub(crate) fn allocate(&mut self, length: u32) -> Option<Extent> {
        if self.may_send() { self.end.allocate(length) } else { None }
    }

    fn put_buffer(&mut self, connection: ConnectionId, buffer: SendBuffer) {
        let (extent, length) = buffer.into_extent();
        self.put_extent(connection, extent, length);
        self.tell();
    }

    /// There is room. False if the connection is not open: it may have been when last looked at,
    /// and making room has brought the news that it has ended; then the message is lost like any
    /// other that was on its way.
    #[inline]
    fn put_extent(&mut self, connection: ConnectionId, extent: Extent, length: u32) -> bool {
        self.put_as(connection, extent, |connection, offset| Command::Send {
            connection,
            stream: 0,
            offset,
            length,
        })
    }

    /// The same by the command that is made of the connection's number and the message's offset.
    #[inline(always)]
    pub(crate) fn put_as(
        &mut self,
        connection: ConnectionId,
        extent: Extent,
        command: impl FnOnce(u64, u32) -> Command,
    ) -> bool {
        let Some(found) = self.connections.find_open(connection) else {
            self.end.free(extent);
            return false;
        };
        let (connection, offset) = (connection.as_u64(), extent.offset());
        found.outstanding.push_back(extent);
        self.sends_outstanding += 1;
        self.end.submit(&command(connection, offset)).expect("the caller has made room");
        true
    }

    /// Tries something; if there is no room for it, takes what the daemon has to say, which may
    /// make room, and tries once more.
    #[inline]
    pub(crate) fn with_room<T>(
        &mut self,
        attempt: impl Fn(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.with_room_for(1, attempt)
    }

    /// The same for so many commands.
    #[inline]
    pub(crate) fn with_room_for<T>(
        &mut self,
        commands: u32,
        attempt: impl Fn(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        if let Some(done) = attempt(self) {
            return Ok(Some(done));
        }
        self.gather()?;
        // Room that comes after this is not what the attempt lacked, and is to be looked for.
        let has_room = self.end.has_room_for(commands);
        let done = attempt(self);
        if done.is_none() {
            self.wants_room = true;
            if !has_room {
                self.ring_room_wanted = commands;
            }
        }
        Ok(done)
    }

    /// The daemon does not say when it takes a command out of the ring. If somebody wants room
    /// there, looks whether there is some by now, and has it told (`Event::Writable`).
    pub(crate) fn look_for_ring_room(&mut self) {
        if self.ring_room_wanted > 0 && self.end.has_room_for(self.ring_room_wanted) {
            (self.ring_room_wanted, self.wants_room) = (0, false);
            self.has_room_again = true;
        }
    }

    /// Waits until a command fits into the ring. The daemon empties it all the time.
    pub(crate) fn make_room_for_command(&mut self) -> Result<(), Error> {
        self.wait_for(None, Awaited::Room, |channel| {
            channel.with_room(|channel| channel.end.has_room().then_some(()))
        })
    }

    /// Gives the daemon a command that there is room for, and wakes it if it sleeps. An embedded
    /// engine takes it at once.
    #[inline]
    pub(crate) fn submit(&mut self, command: &Command) {
        self.end.submit(command).expect("the caller has made room");
        self.tell();
    }

    /// Wakes the daemon if it sleeps; an embedded engine takes what was submitted at once.
    #[inline]
    pub(crate) fn tell(&mut self) {
        self.end.flush();
        self.host.send();
    }

    #[inline]
    pub(crate) fn may_send(&mut self) -> bool {
        self.sends_outstanding < OUTSTANDING_SENDS_MAX && self.end.has_room()
    }

    #[inline]
    pub(crate) fn check_open(&mut self, connection: ConnectionId) -> Result<(), Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        match self.connections.find_open(connection) {
            Some(_) => Ok(()),
            None => {
                let code = self.untold_end(connection).unwrap_or(Code::Closed);
                Err(Error::Connection { connection, code })
            }
        }
    }

    /// Why a connection has ended, if the app has not been told yet: who only sends hears of it so.
    #[cold]
    fn untold_end(&self, connection: ConnectionId) -> Option<Code> {
        self.inbox.iter().find_map(|arrival| match arrival {
            Arrival::Closed { connection: ended, code, .. } if *ended == connection => Some(*code),
            _ => None,
        })
    }

    #[inline]
    pub(crate) fn check_length(&self, length: usize) -> Result<u32, Error> {
        let limit = self.length_max() as usize;
        self.fits(length).ok_or(Error::TooLarge { length, limit })
    }

    /// The length of a message, if one may be so long.
    #[inline]
    fn fits(&self, length: usize) -> Option<u32> {
        u32::try_from(length).ok().filter(|length| *length <= self.length_max())
    }

    #[inline]
    fn length_max(&self) -> u32 {
        MESSAGE_BYTES_MAX.min(self.end.sizes().transmit_pool_bytes)
    }
}

#[cold]
fn not_own() -> Error {
    let message = "the buffer is of another channel, or of before this one was attached again; get \
                   one by `send_buffer`";
    Error::argument(message.to_owned())
}
