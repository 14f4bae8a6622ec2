//! What goes through a socket.

use super::entry::Phase;
use super::{Fault, Socket, Sockets, is_opening, is_over};
use crate::extent::Extent;
use crate::stack::Error;

impl Sockets {
    /// How many bytes may be sent now.
    pub fn send_room(&mut self, socket: Socket) -> Result<u64, Fault> {
        let entry = self.entry_mut(socket)?;
        if let Some(error) = entry.error.take() {
            return Err(error);
        }
        let Phase::Connected(key) = entry.phase else {
            return Err(Fault::Closed);
        };
        let options = entry.options;
        let status = self.stack.status(key).ok_or(Fault::Unknown)?;
        if status.is_shut || is_over(&status) {
            return Err(Fault::Closed);
        }
        match options.room(&status) {
            _ if is_opening(&status) => Err(Fault::WouldBlock),
            0 => Err(Fault::WouldBlock),
            room => Ok(room),
        }
    }

    /// Sends what is in `extent`, which is the stack's until [`Owner::sent`]. If `has_more`, what
    /// does not fill a segment waits for it.
    ///
    /// [`Owner::sent`]: crate::Owner::sent
    pub fn send(&mut self, socket: Socket, extent: Extent, has_more: bool) -> Result<(), Fault> {
        let key = self.connection(socket)?;
        self.stack.send(key, extent).map_err(|error| match error {
            Error::Full => Fault::WouldBlock,
            _ => Fault::Closed,
        })?;
        let entry = self.entry_mut(socket)?;
        if core::mem::replace(&mut entry.has_more, has_more) != has_more {
            self.apply(socket)?;
        }
        Ok(())
    }

    /// The last that was sent has said that more will come, and that means nothing any more.
    pub fn end_more(&mut self, socket: Socket) {
        if let Ok(entry) = self.entry_mut(socket)
            && core::mem::take(&mut entry.has_more)
        {
            // It cannot fail: the socket is there.
            let _ = self.apply(socket);
        }
    }

    /// What has been sent ends a record: what is sent next shares no segment with it.
    pub fn end_record(&mut self, socket: Socket) {
        if let Ok(key) = self.connection(socket) {
            self.stack.end_record(key);
        }
    }

    /// The next bytes that have come, at most so many; `None` if there will be no more. The window
    /// stays smaller by them until [`Sockets::release`].
    pub fn recv(&mut self, socket: Socket, most: u32) -> Result<Option<Extent>, Fault> {
        if let Ok(key) = self.connection(socket)
            && let Some(extent) = self.stack.recv_at_most(key, most)
        {
            return Ok(Some(extent));
        }
        self.why_nothing(socket)
    }

    /// What [`Sockets::recv`] would give, which stays where it is; or what it would say.
    pub fn peek(&mut self, socket: Socket) -> Result<Vec<Extent>, Fault> {
        let waiting: Vec<Extent> = match self.connection(socket) {
            Ok(key) => self.stack.unread(key).collect(),
            Err(_) => Vec::new(),
        };
        if waiting.is_empty() { self.why_nothing(socket).map(|_| waiting) } else { Ok(waiting) }
    }

    /// There is nothing to read.
    fn why_nothing(&mut self, socket: Socket) -> Result<Option<Extent>, Fault> {
        let entry = self.entry_mut(socket)?;
        if let Some(error) = entry.error.take() {
            return Err(error);
        }
        match entry.phase {
            Phase::Connected(_) if entry.is_deaf => Ok(None),
            Phase::Connected(key) => match self.stack.status(key) {
                Some(status) if !status.is_finished && !is_over(&status) => Err(Fault::WouldBlock),
                _ => Ok(None),
            },
            Phase::Idle if entry.has_failed => Ok(None),
            Phase::Deferred(_) => Err(Fault::WouldBlock),
            _ => Err(Fault::NotConnected),
        }
    }

    /// The program is done with so many bytes of what it has received.
    pub fn release(&mut self, socket: Socket, bytes: u64) {
        if let Ok(key) = self.connection(socket) {
            self.stack.release(key, bytes);
        }
    }
}
