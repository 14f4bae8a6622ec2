//! Whole messages that come one behind the other, as most do that wait together.

use clearway_wire::clearway::Frames;

use super::{Incoming, MESSAGE_OVERHEAD, Refused};
use crate::app::{App, Owner};

/// The whole messages that stand next in a packet, as long as each is due and may come: see
/// [`App::receive_due`].
#[derive(Debug)]
pub struct DueMessages<'r, 'p> {
    incoming: &'r mut Incoming,
    frames: &'r mut Frames<'p>,
}

impl<'r, 'p> DueMessages<'r, 'p> {
    pub(crate) const fn new(incoming: &'r mut Incoming, frames: &'r mut Frames<'p>) -> Self {
        Self { incoming, frames }
    }

    /// Gives the next to `receive`, which takes it or leaves it by `None`. False if it was left, or
    /// if there is none.
    #[inline]
    pub fn take(&mut self, receive: impl FnOnce(&[u8]) -> Option<()>) -> bool {
        let mut frames = self.frames.clone();
        let Some(next) = frames.next_message() else { return false };
        let positions = MESSAGE_OVERHEAD + next.bytes.len() as u64;
        let may_come = self.incoming.is_plainly_due(next.sequence)
            && self.incoming.check_limit(positions).is_ok();
        if !may_come || receive(next.bytes).is_none() {
            return false;
        }
        self.incoming.pass(positions);
        *self.frames = frames;
        true
    }
}

impl Incoming {
    /// This one is next, and nothing has come of others.
    pub(super) fn is_plainly_due(&self, sequence: u32) -> bool {
        sequence == self.next as u32 && self.partial.is_empty() && self.ahead.is_none()
    }

    /// The next one is over, which had so many positions.
    pub(super) const fn pass(&mut self, positions: u64) {
        self.received += positions;
        self.next += 1;
    }

    /// Takes the whole messages that stand next in a packet. True if there was one.
    #[inline]
    pub(crate) fn messages(
        &mut self,
        app: &mut impl App,
        owner: Owner,
        frames: &mut Frames<'_>,
    ) -> Result<bool, Refused> {
        let Some(first) = frames.next_message() else { return Ok(false) };
        self.message(app, owner, first.sequence, first.bytes)?;
        app.receive_due(owner, &mut DueMessages::new(self, frames));
        while let Some(message) = frames.next_message() {
            self.message(app, owner, message.sequence, message.bytes)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use clearway_wire::clearway::{MESSAGE_FRAME_LENGTH, emit_message};

    use super::*;

    /// Frames of messages with these sequence numbers, of one byte each: that number.
    fn packet(sequences: &[u32]) -> Vec<u8> {
        let frames = sequences.iter().flat_map(|sequence| {
            let mut frame = vec![*sequence as u8; MESSAGE_FRAME_LENGTH + 1];
            emit_message(&mut frame, *sequence, 1);
            frame
        });
        frames.collect()
    }

    /// Offers those that are due: which were offered, and which still stand in the packet.
    fn offer(
        incoming: &mut Incoming,
        sequences: &[u32],
        mut receive: impl FnMut(u8) -> Option<()>,
    ) -> (Vec<u8>, Vec<u32>) {
        let packet = packet(sequences);
        let (mut frames, mut offered) = (Frames::new(&packet), Vec::new());
        let mut due = DueMessages::new(incoming, &mut frames);
        while due.take(|bytes| {
            offered.push(bytes[0]);
            receive(bytes[0])
        }) {}
        let left = core::iter::from_fn(|| Some(frames.next_message()?.sequence)).collect();
        (offered, left)
    }

    #[test]
    fn only_what_is_due_is_offered() {
        let mut incoming = Incoming::new(1000);
        let (offered, left) = offer(&mut incoming, &[0, 1, 1, 2], |_| Some(()));
        assert_eq!((offered, left, incoming.next), (vec![0, 1], vec![1, 2], 2));
        assert_eq!(incoming.received, 2 * (MESSAGE_OVERHEAD + 1));
    }

    #[test]
    fn what_is_left_stays_in_the_packet() {
        let mut incoming = Incoming::new(1000);
        let (offered, left) = offer(&mut incoming, &[0, 1], |first| (first == 0).then_some(()));
        assert_eq!((offered, left, incoming.next), (vec![0, 1], vec![1], 1));
    }

    #[test]
    fn what_may_not_come_is_not_offered() {
        let mut incoming = Incoming::new(MESSAGE_OVERHEAD + 1);
        let (offered, left) = offer(&mut incoming, &[0, 1], |_| Some(()));
        assert_eq!((offered, left, incoming.next), (vec![0], vec![1], 1));
    }
}
