//! Messages that are worth nothing after some time.

use std::time::{Duration, Instant};

use clearway_base::copy;
use clearway_channel::{Code, Command, Extent};

use crate::{Awaited, Channel, ConnectionId, Error, SendBuffer};

impl Channel {
    /// Sends a message that is worth nothing after `within` (counted in microseconds, at most 71
    /// minutes): if nothing of it has left for the peer by then, because the network, the peer or
    /// what was sent before holds it up, it may be dropped. Then [`Event::Dropped`] tells this app,
    /// and [`Event::Skipped`] the peer's if that has asked for it; else it arrives as any other.
    /// Returns its number among the messages that this app has sent on the connection, from 0 on,
    /// wrapping. Waits for room no longer than `within`; if there is none it is not sent at all.
    ///
    /// A peer of an older release gets it, however late, and so does one whose message waits behind
    /// one-sided operations.
    ///
    /// [`Event::Dropped`]: crate::Event::Dropped
    /// [`Event::Skipped`]: crate::Event::Skipped
    pub fn send_within(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
        within: Duration,
    ) -> Result<u32, Error> {
        let length = self.check_length(message.len())?;
        let (extent, left) =
            self.room_within(within, |channel| channel.room_in(connection, length))?;
        copy(self.end.transmit_bytes(&extent), message);
        self.put_within(connection, extent, length, left)
    }

    /// The same for a buffer that was filled in place: its time counts from this call. On an error
    /// the buffer is given up.
    pub fn send_zero_copy_within(
        &mut self,
        connection: ConnectionId,
        buffer: SendBuffer,
        within: Duration,
    ) -> Result<u32, Error> {
        self.check_own(&buffer)?;
        let ((), left) = self.room_within(within, |channel| channel.room_for_buffer(connection))?;
        let (extent, length) = buffer.into_extent();
        self.put_within(connection, extent, length, left)
    }

    /// Waits for room no longer than `within`. Returns also what is left of that.
    fn room_within<T>(
        &mut self,
        within: Duration,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<(T, Duration), Error> {
        if let Some(room) = attempt(self)? {
            return Ok((room, within));
        }
        let begun = Instant::now();
        let room = self.wait_for(Some(within), Awaited::Room, attempt)?;
        Ok((room, within.saturating_sub(begun.elapsed())))
    }

    /// There is room. Returns the message's number among those of its connection.
    fn put_within(
        &mut self,
        connection: ConnectionId,
        extent: Extent,
        length: u32,
        within: Duration,
    ) -> Result<u32, Error> {
        let number = self.connections.find_open(connection).map(|found| found.number_of_next());
        let within_us = u32::try_from(within.as_micros()).unwrap_or(u32::MAX).max(1);
        self.put_as(connection, extent, |connection, offset| Command::SendWithin {
            connection,
            offset,
            length,
            within_us,
        });
        self.tell();
        number.ok_or(Error::Connection { connection, code: Code::Closed })
    }

    /// Whether [`next_event`](Self::next_event) tells of messages that peers have dropped, where
    /// they would have come. At first it does not. What only receives passes over them.
    pub fn tell_skipped(&mut self, is_told: bool) -> Result<(), Error> {
        self.make_room_for_command()?;
        self.submit(&Command::TellSkipped { is_told });
        self.hears_of_skipped = is_told;
        Ok(())
    }
}
