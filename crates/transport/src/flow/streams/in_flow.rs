//! What a flow does with its streams.

use clearway_wire::clearway::{Frame, Frames};

use super::shared::Door;
use super::{NoStream, Priority, StreamInfo, Streams};
use crate::app::{App, Deadline, Owner, Reason};
use crate::endpoint::{FlowKey, StreamKey};
use crate::flow::receive::Reception;
use crate::flow::{Flow, Outcome, State};
use crate::incoming::Refused;

/// The connection whose flow it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Parent<'a> {
    pub(super) flow: FlowKey,
    pub(super) owner: Owner,
    /// Its app takes streams.
    pub(super) is_open: bool,
    /// The number of the flow's next packet.
    pub(super) next_number: u64,
    /// Where its streams come in, if it is nobody's.
    pub(super) door: Option<Door<'a>>,
}

impl Parent<'_> {
    /// The peer opens a stream: it is named, and may use so many positions, or is refused.
    pub(super) fn accept(&self, stream: StreamKey, app: &mut impl App) -> Option<(Owner, u64)> {
        match &self.door {
            Some(door) => door.accept(stream, app),
            None => app.accept_stream(self.owner, stream),
        }
    }
}

/// What a peer says of its streams.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::flow) struct Heard {
    /// Something else than messages.
    pub(in crate::flow) is_unusual: bool,
    /// There is memory.
    pub(in crate::flow) has_credit: bool,
    /// There is none.
    pub(in crate::flow) has_to_wait: bool,
}

impl Flow {
    /// Does something with its streams, if there may be any.
    pub(in crate::flow) fn with_streams<T>(
        &mut self,
        act: impl FnOnce(&mut Streams) -> T,
    ) -> Option<T> {
        let streams = self.streams.as_deref_mut()?;
        let result = act(streams);
        let turns_away = self.main.incoming.has_turned_away();
        self.streams_due = streams.has_news() || streams.has_messages() || turns_away;
        if self.is_shared {
            self.end_if_unused();
        }
        Some(result)
    }

    /// What is known of those that an app has.
    pub(crate) fn streams_info(&self) -> impl Iterator<Item = StreamInfo> + '_ {
        self.streams.iter().flat_map(|all| all.iter()).map(|view| StreamInfo {
            owner: view.stream.owner,
            state: match (view.is_open, view.is_connecting) {
                (true, true) => "connecting",
                (true, false) => "open",
                (false, _) => "closing",
            },
            messages_sent: view.stream.messages_sent,
            messages_received: view.stream.incoming.messages_delivered(),
            held_by_peer: !view.is_connecting && view.stream.outgoing.is_limited(),
        })
    }

    /// An app has one of them.
    pub(in crate::flow) fn has_streams(&self) -> bool {
        self.streams.as_ref().is_some_and(|all| all.has_app())
    }

    /// Opens a stream, whose peer may use `window` positions; its number.
    pub(crate) fn open_stream(&mut self, owner: Owner, window: u64) -> Result<u32, NoStream> {
        let may_open = match self.state {
            State::Open => !(self.is_shared && self.was_accepted()),
            State::Connecting(_) => self.is_shared,
            State::Closing | State::Drained { .. } => false,
        };
        if !may_open {
            return Err(NoStream::NotOpen);
        }
        let awaits = self.is_shared;
        self.with_streams(|all| all.open(owner, window, awaits)).unwrap_or(Err(NoStream::Unknown))
    }

    #[inline(never)]
    pub(in crate::flow) fn send_on(
        &mut self,
        stream: u32,
        offset: u32,
        length: u32,
        deadline: Option<Deadline>,
    ) {
        self.with_streams(|all| all.send(stream, offset, length, deadline));
    }

    /// What a connection may send beside the others of the flow. Without streams there are none.
    /// Those of a shared flow that the peer has opened may be of different users, one after the
    /// other on the same port: none of them is preferred.
    pub(crate) fn set_priority(&mut self, stream: u32, priority: Priority) {
        if self.is_shared && self.was_accepted() {
            return;
        }
        self.with_streams(|all| all.set_priority(stream, priority));
    }

    /// Ends a stream in order, or at once if the peer has heard nothing of it yet.
    pub(in crate::flow) fn close_stream(&mut self, stream: u32, app: &mut impl App) -> Outcome {
        if !self.is_connecting() {
            self.with_streams(|all| all.close(stream, app));
            return Outcome::Continue;
        }
        let (owner, goes_on) = self.give_up_stream(stream, app);
        owner.into_iter().for_each(|owner| app.closed(owner, Reason::Closed));
        if goes_on { Outcome::Continue } else { Outcome::Ended(Reason::Closed) }
    }

    /// Ends a stream at once; its app is told nothing. True if the flow goes on.
    pub(crate) fn abort_stream(&mut self, stream: u32, reason: Reason, app: &mut impl App) -> bool {
        if self.is_connecting() {
            return self.give_up_stream(stream, app).1;
        }
        self.with_streams(|all| all.abort(stream, reason, app));
        true
    }

    /// Takes the frames of streams, which are the rest of a packet: the first are of `stream`.
    pub(in crate::flow) fn take_streams(
        &mut self,
        mut stream: u32,
        frames: &mut Frames<'_>,
        reception: Reception<'_>,
        app: &mut impl App,
    ) -> Result<Heard, Refused> {
        if self.is_over() {
            return Ok(Heard::default());
        }
        let (owner, is_open) = (self.main.owner, matches!(self.state, State::Open));
        let (flow, next_number) = (FlowKey::of_id(self.local_id), self.recovery.next_number());
        let door = self.door(reception.listeners);
        let parent = Parent { flow, owner, is_open, next_number, door };
        let mut heard = Heard::default();
        let taken = self.with_streams(|all| {
            loop {
                all.take_messages(stream, frames, app)?;
                if let Some(next) = frames.next_stream() {
                    stream = next;
                    continue;
                }
                let Some(Ok(frame)) = frames.next() else { return Ok(()) };
                if stream == 0 {
                    return Err(Refused::Violation);
                }
                all.take(stream, &frame, &parent, app)?;
                heard.is_unusual = true;
                heard.has_credit |= matches!(frame, Frame::Limit(_));
                heard.has_to_wait |= matches!(frame, Frame::Wait { .. });
            }
        });
        taken.unwrap_or(Err(Refused::Violation))?;
        Ok(heard)
    }

    /// All of them end, since the flow does.
    pub(crate) fn end_streams(&mut self, app: &mut impl App) {
        self.streams_due = false;
        let Some(mut all) = self.streams.take() else { return };
        all.discard(app);
        all.owners().for_each(|owner| app.closed(owner, Reason::Reset));
    }
}
