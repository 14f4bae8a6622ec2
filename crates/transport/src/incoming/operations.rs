//! One-sided operations on their way in. The engine carries each out when its turn comes; what it
//! has to say is for [`App::take_outbound`].

use clearway_wire::clearway::Frames;

use super::{Incoming, MESSAGE_OVERHEAD, Part, Refused};
use crate::app::{App, Arrived, Buffer, Operated, Owner};

/// The whole operations that stand next in a packet, as long as each is due: see
/// [`App::operate_due`].
#[derive(Debug)]
pub struct DueOperations<'r, 'p> {
    incoming: &'r mut Incoming,
    frames: &'r mut Frames<'p>,
    /// Why the packet is not taken, nor what else is in it.
    refused: Option<Refused>,
}

impl<'r, 'p> DueOperations<'r, 'p> {
    pub(crate) const fn new(incoming: &'r mut Incoming, frames: &'r mut Frames<'p>) -> Self {
        Self { incoming, frames, refused: None }
    }

    /// Gives the next to `operate`, which says what became of it, or leaves it. False if it was
    /// left, or if there is none.
    #[inline]
    pub fn take(&mut self, operate: impl FnOnce(&[u8]) -> Option<Operated>) -> bool {
        let mut frames = self.frames.clone();
        let Some(next) = frames.next_operation() else { return false };
        if self.refused.is_some() || !self.incoming.is_plainly_due(next.sequence) {
            return false;
        }
        let positions = MESSAGE_OVERHEAD + next.bytes.len() as u64;
        let taken = self.incoming.check_limit(positions).and_then(|()| {
            let Some(operated) = operate(next.bytes) else { return Ok(false) };
            self.incoming.settle(operated, next.bytes.len() as u32)?;
            self.incoming.pass(positions);
            *self.frames = frames;
            Ok(true)
        });
        taken.unwrap_or_else(|refused| {
            self.refused = Some(refused);
            false
        })
    }

    /// Shows all that stand next, due or not, and takes none: for who wants to fetch something
    /// ahead.
    #[inline]
    pub fn look_ahead(&self, mut look: impl FnMut(&[u8])) {
        let mut frames = self.frames.clone();
        while let Some(next) = frames.next_operation() {
            look(next.bytes);
        }
    }

    /// Whether the packet can be taken as far as this goes.
    pub(crate) fn end(self) -> Result<(), Refused> {
        self.refused.map_or(Ok(()), Err)
    }
}

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
        self.pass(positions);
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
        let length = operation.length();
        self.settle(app.operate(owner, operation), length)
    }

    /// One of so many bytes was given to the engine, and this has become of it.
    #[inline]
    fn settle(&mut self, operated: Operated, length: u32) -> Result<(), Refused> {
        match operated {
            Operated::Over => self.release(1, length.into()),
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

#[cfg(test)]
mod tests {
    use clearway_wire::clearway::{MESSAGE_FRAME_LENGTH, carry_operation, emit_message};

    use super::*;

    /// Frames of operations with these sequence numbers, of four bytes each.
    fn packet(sequences: &[u32]) -> Vec<u8> {
        let frames = sequences.iter().flat_map(|sequence| {
            let mut frame = vec![*sequence as u8; MESSAGE_FRAME_LENGTH + 4];
            emit_message(&mut frame, *sequence, 4);
            carry_operation(&mut frame);
            frame
        });
        frames.collect()
    }

    /// Gives those that are due to `operate`: the first bytes of all that it was offered, and how
    /// the packet ended.
    fn offer(
        incoming: &mut Incoming,
        packet: &[u8],
        mut operate: impl FnMut(u8) -> Option<Operated>,
    ) -> (Vec<u8>, Result<(), Refused>) {
        let (mut frames, mut offered) = (Frames::new(packet), Vec::new());
        let mut due = DueOperations::new(incoming, &mut frames);
        let mut offer = |bytes: &[u8]| {
            offered.push(bytes[0]);
            operate(bytes[0])
        };
        // Who leaves one is offered it again, and who refuses one nothing more.
        while due.take(&mut offer) {}
        due.take(&mut offer);
        let end = due.end();
        (offered, end)
    }

    #[test]
    fn who_looks_ahead_takes_nothing() {
        let (mut incoming, packet) = (Incoming::new(1000), packet(&[0, 3]));
        let (mut frames, mut seen) = (Frames::new(&packet), Vec::new());
        let mut due = DueOperations::new(&mut incoming, &mut frames);
        due.look_ahead(|bytes| seen.push(bytes[0]));
        assert_eq!(seen, [0, 3]);
        assert!(due.take(|_| Some(Operated::Over)) && !due.take(|_| Some(Operated::Over)));
    }

    #[test]
    fn only_what_is_due_is_offered() {
        let mut incoming = Incoming::new(1000);
        let (offered, end) = offer(&mut incoming, &packet(&[0, 1, 1]), |_| Some(Operated::Over));
        assert_eq!((offered, end, incoming.next), (vec![0, 1], Ok(()), 2));
        let (offered, end) = offer(&mut incoming, &packet(&[3]), |_| Some(Operated::Over));
        assert_eq!((offered, end, incoming.next), (vec![], Ok(()), 2));
        assert_eq!(incoming.received, incoming.released);
    }

    #[test]
    fn what_is_left_is_offered_again() {
        let mut incoming = Incoming::new(1000);
        let kept = |first| (first == 0).then_some(Operated::Kept);
        let (offered, end) = offer(&mut incoming, &packet(&[0, 1]), kept);
        assert_eq!((offered, end, incoming.next), (vec![0, 1, 1], Ok(()), 1));
        assert_eq!((incoming.received, incoming.released), (MESSAGE_OVERHEAD + 4, 0));
    }

    #[test]
    fn behind_one_that_is_refused_nothing_is_offered() {
        for (operated, refused) in
            [(Operated::NoRoom, Refused::NoBuffer), (Operated::Violation, Refused::Violation)]
        {
            let mut incoming = Incoming::new(1000);
            let one = |first| Some(if first == 0 { Operated::Over } else { operated });
            let (offered, end) = offer(&mut incoming, &packet(&[0, 1, 2]), one);
            assert_eq!((offered, end, incoming.next), (vec![0, 1], Err(refused), 1));
        }
        let mut incoming = Incoming::new(2 * MESSAGE_OVERHEAD);
        let beyond = offer(&mut incoming, &packet(&[0, 1]), |_| Some(Operated::Over));
        assert_eq!(beyond, (vec![0], Err(Refused::Violation)));
    }
}
