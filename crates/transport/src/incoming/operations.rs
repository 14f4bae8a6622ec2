//! One-sided operations on their way in. The engine carries each out when its turn comes; what it
//! has to say is for [`App::take_outbound`].

use super::{Incoming, MESSAGE_OVERHEAD, Part, Refused};
use crate::app::{App, Arrived, Buffer, Operated, Owner};

impl Incoming {
    /// Takes a whole operation.
    pub(crate) fn operation(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let is_due = sequence == self.next as u32 && !self.partial.contains_key(&self.next);
        if !is_due {
            return self.part(app, owner, sequence, bytes.len() as u32, 0, bytes);
        }
        let positions = MESSAGE_OVERHEAD + bytes.len() as u64;
        self.check_limit(positions)?;
        self.operate(app, owner, Arrived::Packet(bytes))?;
        self.received += positions;
        self.next += 1;
        if !self.partial.is_empty() | self.ahead.is_some() {
            self.deliver_ready(app, owner)?;
        }
        Ok(())
    }

    /// Takes a part of an operation, or one that comes before its turn.
    pub(crate) fn part(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        sequence: u32,
        total: u32,
        at: u32,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        self.take_part(app, owner, sequence, &Part { is_operation: true, total, at, bytes })
    }

    /// An operation that has come in parts, or before its turn, is complete and due.
    pub(super) fn operate_ready(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        buffer: Buffer,
    ) -> Result<(), Refused> {
        match self.operate(app, owner, Arrived::Buffer(buffer)) {
            // It has arrived, and cannot be asked for again.
            Err(Refused::NoBuffer) => Err(Refused::Violation),
            done => done,
        }
    }

    fn operate(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        operation: Arrived<'_>,
    ) -> Result<(), Refused> {
        match app.operate(owner, operation) {
            Operated::Over => self.release(1, operation.length().into()),
            Operated::Kept => {}
            Operated::NoRoom => return Err(self.turn_away(self.next)),
            Operated::Violation => return Err(Refused::Violation),
        }
        self.operated = true;
        Ok(())
    }

    /// True if operations were carried out since this was last asked: there may be some to send.
    #[inline]
    pub(crate) const fn take_operated(&mut self) -> bool {
        core::mem::replace(&mut self.operated, false)
    }
}
