//! One stream at this end: what it has to say, what it takes, and when it has ended.

use clearway_base::state::{Invalid, ensure};
use clearway_wire::clearway::{Frame, Frames};

use super::turns::Place;
use crate::app::{App, Reason};
use crate::flow::receive::check_reserved;
use crate::incoming::Refused;
use crate::recovery::Content;
use crate::stream::Stream;

/// What becomes of a stream at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Messages go both ways.
    Open,
    /// This side's app has closed; what it sent before is still on its way.
    Closing,
    /// No app has it (any more); the peer is to be told why.
    Aborted(Reason),
}

/// A stream at this end.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) stream: Stream,
    pub(super) stage: Stage,
    /// The peer is to be told that there is one.
    pub(super) open_due: bool,
    pub(super) is_known: bool,
    /// Its app waits to hear that the peer has accepted it.
    pub(super) awaits: bool,
    /// It stands in line to tell the peer something.
    pub(super) tells: bool,
    /// Where it stands among those that have messages to send.
    pub(super) place: Place,
}

impl Side {
    pub(super) fn new(stream: Stream, stage: Stage) -> Self {
        Self {
            stream,
            stage,
            open_due: false,
            is_known: true,
            awaits: false,
            tells: false,
            place: Place::default(),
        }
    }

    pub(super) const fn has_app(&self) -> bool {
        !matches!(self.stage, Stage::Aborted(_))
    }

    /// The close frame may leave.
    pub(super) fn may_close(&self) -> bool {
        self.stream.close_due && self.is_known && self.stream.outgoing.is_sent()
    }

    /// A limit or wait frame may leave.
    pub(super) const fn may_tell_credit(&self) -> bool {
        (self.stream.limit_due | self.stream.incoming.has_turned_away()) && self.is_known
    }

    pub(super) fn has_news(&self) -> bool {
        self.open_due || self.may_tell_credit() || self.may_close()
    }

    pub(super) fn has_messages(&self) -> bool {
        self.stream.outgoing.has_data()
    }

    /// Whether that is the close frame which is to be told now: one that was in order says nothing
    /// any more once the stream is aborted.
    pub(super) const fn is_its_close(&self, content: &Content) -> bool {
        if self.has_app() { content.told.close } else { content.told.abort }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self.stage {
            Stage::Open => false,
            Stage::Closing => self.stream.close_acknowledged && self.stream.outgoing.is_done(),
            Stage::Aborted(_) => self.stream.close_acknowledged,
        }
    }

    /// The peer has closed, and its messages are delivered, or nobody takes them any more.
    pub(super) fn was_closed_by_peer(&self) -> bool {
        self.stream.peer_close.is_some_and(|messages| match self.stage {
            Stage::Open => self.stream.incoming.messages_delivered() as u32 == messages,
            Stage::Closing => true,
            Stage::Aborted(_) => false,
        })
    }

    /// It takes messages, and whatever comes changes nothing else.
    pub(super) fn only_receives(&self) -> bool {
        let is_settled = self.is_known && !self.awaits && self.stream.peer_close.is_none();
        self.stage == Stage::Open && is_settled
    }

    /// What is not asked for in each stage must not be there.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let (incoming, outgoing) = (&self.stream.incoming, &self.stream.outgoing);
        let holds_memory = incoming.buffers().next().is_some();
        ensure(
            self.stage == Stage::Open || !holds_memory,
            "a stream that is over and takes messages",
        )?;
        ensure(self.has_app() || outgoing.is_done(), "a stream that nobody has and sends")?;
        ensure(self.has_app() || !self.awaits, "a stream that nobody has and waits for")?;
        let is_in_order = self.stage == Stage::Aborted(Reason::Closed);
        ensure(!is_in_order, "a stream that is aborted in order")?;
        ensure(!self.awaits || outgoing.is_done(), "a stream that sends before it is accepted")?;
        let has_operations = incoming.has_operations() || outgoing.has_operations();
        ensure(!has_operations, "operations in a stream")
    }

    pub(super) fn abort(&mut self, reason: Reason, app: &mut impl App) {
        let owner = self.stream.owner;
        self.stream.incoming.discard(app, owner);
        self.stream = Stream { close_due: true, ..Stream::new(owner, 0) };
        (self.stage, self.awaits) = (Stage::Aborted(reason), false);
    }

    /// Takes the whole messages that stand next in a packet.
    pub(super) fn take_messages(
        &mut self,
        frames: &mut Frames<'_>,
        app: &mut impl App,
    ) -> Result<(), Refused> {
        let stream = &mut self.stream;
        stream.incoming.messages(app, stream.owner, frames)?;
        stream.limit_due |= stream.incoming.limit_is_worth_telling();
        Ok(())
    }

    /// Takes a frame of the peer's; returns why the stream is over, if it is. `next_number`: that
    /// of the flow's next packet.
    pub(super) fn take(
        &mut self,
        frame: &Frame<'_>,
        next_number: u64,
        app: &mut impl App,
    ) -> Result<Option<Reason>, Refused> {
        let (has_app, receives) = (self.has_app(), self.stage == Stage::Open);
        let stream = &mut self.stream;
        match frame {
            Frame::Message(message) => {
                check_reserved(message.reserved)?;
                if receives {
                    stream.incoming.message(app, stream.owner, message.sequence, message.bytes)?;
                }
            }
            Frame::Fragment(part) => {
                check_reserved(part.reserved)?;
                if receives {
                    let (sequence, total, at) = (part.sequence, part.total, part.offset);
                    stream.incoming.fragment(app, stream.owner, sequence, total, at, part.bytes)?;
                }
            }
            Frame::Skip { sequence, length } => {
                if receives {
                    stream.skip(*sequence, *length, app)?;
                }
            }
            Frame::Limit(limit) if has_app => stream.outgoing.take_limit(*limit, next_number),
            Frame::Wait { number, .. } if *number >= next_number => {
                return Err(Refused::Violation);
            }
            Frame::Wait { sequence, number } if has_app => {
                stream.outgoing.wait(*sequence, *number);
            }
            Frame::Close { reason: 0, messages } if has_app => {
                stream.take_close(*messages, receives)?;
            }
            Frame::Close { reason, .. } if has_app => return Ok(Some(Reason::from_code(*reason))),
            Frame::Limit(_) | Frame::Wait { .. } | Frame::Close { .. } => {}
            _ => return Err(Refused::Violation),
        }
        if receives {
            stream.limit_due |= stream.incoming.limit_is_worth_telling();
        }
        Ok(None)
    }
}
