//! How sockets end, and what of them goes on until all is sent.

use clearway_base::{SlotId, Time};

use super::entry::Phase;
use super::{Fault, Owner, Socket, Sockets, is_over};
use crate::state::State;

impl Sockets {
    /// Nothing will be received, or sent, any more.
    pub fn shutdown(
        &mut self,
        now: Time,
        socket: Socket,
        receive: bool,
        send: bool,
        owner: &mut impl Owner,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        let key = match entry.phase {
            Phase::Idle | Phase::Deferred(_) => return Err(Fault::NotConnected),
            Phase::Listening(..) if receive => return self.disconnect(now, socket, owner),
            Phase::Listening(..) => return Ok(()),
            Phase::Connected(_) if !entry.was_open => return self.disconnect(now, socket, owner),
            Phase::Connected(key) => key,
        };
        entry.is_deaf |= receive;
        if self.stack.status(key).is_none_or(|status| is_over(&status)) {
            return Err(Fault::NotConnected);
        }
        if send {
            self.stack.shutdown(key);
        }
        owner.changed(socket);
        Ok(())
    }

    /// The program lets go of a socket. What it has sent is sent, unless it wants it otherwise
    /// ([`SocketOptions::linger_ns`]); whether that is done [`Sockets::is_lingering`] says.
    ///
    /// [`SocketOptions::linger_ns`]: crate::SocketOptions::linger_ns
    pub fn close(
        &mut self,
        now: Time,
        socket: Socket,
        owner: &mut impl Owner,
    ) -> Result<(), Fault> {
        let entry = self.entry_mut(socket)?;
        entry.is_closed = true;
        match entry.phase {
            Phase::Idle | Phase::Deferred(_) => self.remove(socket),
            Phase::Listening(listener, _) => {
                self.unlisten(now, listener, owner);
                self.remove(socket);
            }
            Phase::Connected(key) => {
                if entry.options.linger_ns == Some(0) {
                    self.stack.abort(now, key);
                } else {
                    self.stack.close(now, key);
                }
                self.remove_if_over(now, socket, key, owner);
            }
        }
        Ok(())
    }

    /// True if a socket that was closed has something to send, or to hear that it has arrived.
    #[must_use]
    pub fn is_lingering(&self, socket: Socket) -> bool {
        let status = self.connection(socket).ok().and_then(|key| self.stack.status(key));
        status.is_some_and(|status| {
            matches!(status.state, State::FinWait1 | State::Closing | State::LastAck)
        })
    }

    fn remove(&mut self, socket: Socket) {
        if let Some(entry) = self.table.remove(socket.0) {
            self.holders.remove(entry.local.port(), socket);
        }
    }

    pub(super) fn remove_if_over(
        &mut self,
        now: Time,
        socket: Socket,
        key: SlotId,
        owner: &mut impl Owner,
    ) {
        if self.stack.status(key).is_none_or(|status| is_over(&status)) {
            self.forget(now, key, owner);
            self.remove(socket);
        }
    }

    /// A connection is nobody's any more.
    pub(super) fn forget(&mut self, now: Time, key: SlotId, owner: &mut impl Owner) {
        while let Some(extent) = self.stack.pop_sent(key) {
            owner.sent(extent);
        }
        self.stack.forget(now, key, owner);
        self.names.set_connection(key, None);
    }
}
