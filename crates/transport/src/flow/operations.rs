//! One-sided operations in a flow: they are messages but for who reads them, and the engine has
//! those that are to be sent.

use clearway_wire::clearway::{Fragment, Frames, Message};

use super::receive::check_reserved;
use super::{Flow, Outcome, State};
use crate::app::{App, Operation, Outbound};
use crate::incoming::{DueOperations, Refused};

impl Flow {
    /// True if the peer knows operations.
    pub(crate) const fn takes_operations(&self) -> bool {
        self.takes_operations
    }

    /// Those that are to be sent and have not arrived.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> + '_ {
        self.main.outgoing.operations()
    }

    /// Appends what the engine has to send. If that was all, a flow that its app has closed ends.
    pub(crate) fn push_operations(&mut self, app: &mut impl App) {
        if !matches!(self.state, State::Open | State::Closing) || !self.takes_operations {
            return;
        }
        app.take_outbound(self.main.owner, |next| match next {
            Outbound::Operation(operation) => self.main.outgoing.push_operation(operation),
            Outbound::Message { offset, length, deadline: None } => {
                self.main.outgoing.push(offset, length);
            }
            Outbound::Message { offset, length, deadline: Some(deadline) } => {
                self.send_until(0, offset, length, deadline);
            }
        });
        self.settle_close(app);
    }

    /// A flow that its app has closed ends when nothing else is to be sent.
    pub(super) fn settle_close(&mut self, app: &mut impl App) {
        if self.close_waits && !self.has_streams() && !app.has_outbound(self.main.owner) {
            (self.close_waits, self.main.close_due) = (false, true);
        }
    }

    /// Takes the whole operations that stand next in a packet. True if there was one.
    #[inline]
    pub(super) fn take_operations(
        &mut self,
        frames: &mut Frames<'_>,
        app: &mut impl App,
    ) -> Result<bool, Refused> {
        if frames.clone().next_operation().is_none() {
            return Ok(false);
        }
        self.check_operation(0)?;
        let mut due = DueOperations::new(&mut self.main.incoming, frames);
        app.operate_due(self.main.owner, &mut due);
        due.end()?;
        while let Some(operation) = frames.next_operation() {
            self.take_operation(&operation, app)?;
        }
        self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
        Ok(true)
    }

    /// Takes a whole operation.
    #[inline]
    pub(super) fn take_operation(
        &mut self,
        operation: &Message<'_>,
        app: &mut impl App,
    ) -> Result<(), Refused> {
        self.check_operation(operation.reserved)?;
        self.main.incoming.operation(app, self.main.owner, operation.sequence, operation.bytes)
    }

    /// Takes a part of an operation.
    pub(super) fn take_operation_part(
        &mut self,
        part: &Fragment<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Refused> {
        self.check_operation(part.reserved)?;
        self.main.incoming.part(
            app,
            self.main.owner,
            part.sequence,
            part.total,
            part.offset,
            part.bytes,
        )?;
        self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
        Ok(Outcome::Continue)
    }

    fn check_operation(&self, reserved: u16) -> Result<(), Refused> {
        check_reserved(reserved)?;
        if self.takes_operations { Ok(()) } else { Err(Refused::Violation) }
    }

    /// Operations of this side have arrived: the engine may have more, and room for requests that
    /// it refused.
    #[cold]
    pub(super) fn operations_arrived(&mut self, count: u32, app: &mut impl App) {
        let has_more = app.operations_sent(self.main.owner, count);
        self.main.memory_freed();
        if has_more | self.close_waits {
            self.push_operations(app);
        }
    }
}
