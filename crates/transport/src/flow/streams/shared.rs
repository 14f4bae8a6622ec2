//! Flows that connections share, and that are nobody's: they are opened for the first connection to
//! a service port, and closed when the last has ended.
//!
//! What is *not* here: which connections share a flow. That is for whoever calls
//! [`crate::Endpoint::connect_shared`].

use std::collections::HashMap;
use std::net::SocketAddr;

use clearway_base::Time;
use clearway_wire::clearway::VERSION_SHARED;

use super::{Flow, State, Streams};
use crate::app::{App, Owner, Reason};
use crate::endpoint::{FlowKey, Keyed, StreamKey};
use crate::stream::Stream;

/// Who listens on which service port.
pub(crate) type Listeners = HashMap<u16, Owner, Keyed>;

/// Where the connections of a shared flow come in.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Door<'a> {
    listeners: &'a Listeners,
    /// `None` if only this side opens connections.
    port: Option<u16>,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Door<'_> {
    /// The listener, if there still is one, accepts as it does for a syn.
    pub(super) fn accept(&self, key: StreamKey, app: &mut impl App) -> Option<(Owner, u64)> {
        let listener = *self.listeners.get(&self.port?)?;
        app.accept(listener, key, self.local, self.remote)
    }
}

impl Streams {
    /// There were some, and nothing is left of them.
    fn are_over(&self) -> bool {
        self.opened > 0 && self.sides.is_empty()
    }
}

impl Flow {
    pub(super) fn door<'a>(&self, listeners: &'a Listeners) -> Option<Door<'a>> {
        self.is_shared.then(|| Door {
            listeners,
            port: self.was_accepted().then_some(self.service_port),
            local: self.local,
            remote: self.remote,
        })
    }

    /// It is to be shared, if the peer knows how to. Streams can be opened at once.
    pub(crate) fn share(mut self) -> Self {
        self.is_shared = true;
        self.main.owner = Owner::NOBODY;
        self.streams = Some(Box::new(Streams::new(!self.was_accepted())));
        self
    }

    /// The peer agrees to share the flow if it has chosen that version. If not, the first
    /// connection that has waited has it for itself, and the others are told that it is not
    /// theirs. False if there is none any more.
    pub(crate) fn settle_sharing(&mut self, version: u8, app: &mut impl App) -> bool {
        if version == VERSION_SHARED {
            self.main = Stream::new(Owner::NOBODY, 0);
            return true;
        }
        self.is_shared = false;
        let waiting: Vec<Owner> = self.streams.take().iter().flat_map(|all| all.owners()).collect();
        let Some((first, others)) = waiting.split_first() else { return false };
        self.main.owner = *first;
        app.unshared(*first, Some(FlowKey::of_id(self.local_id)));
        others.iter().for_each(|owner| app.unshared(*owner, None));
        true
    }

    /// Who has opened a shared flow closes it when all its connections have ended.
    #[inline(never)]
    pub(super) fn end_if_unused(&mut self) {
        let is_over = self.streams.as_ref().is_some_and(|all| all.are_over());
        if is_over && !self.was_accepted() && matches!(self.state, State::Open) {
            self.state = State::Closing;
            self.main.close_due = true;
        }
    }

    /// Nobody's flow is to have connections: without any it is given up as if the peer were silent,
    /// whatever the peer says. Else it could keep all places for flows, and take no app's. Returns
    /// whether it has none, if that is news.
    #[inline]
    pub(crate) fn note_use(&mut self, now: Time) -> Option<bool> {
        if !self.is_shared {
            return None;
        }
        let was_unused = self.is_unused();
        self.unused_until = match self.has_streams() {
            true => Time::MAX,
            false => self.unused_until.min(now + self.silence_ns),
        };
        (self.is_unused() != was_unused).then_some(!was_unused)
    }

    /// It is nobody's, and has no connections.
    pub(crate) fn is_unused(&self) -> bool {
        self.unused_until != Time::MAX
    }

    /// Gives up a stream of a flow that is being opened; whose it was. Without any left the flow is
    /// of no use. If it is opened, the peer hears of this one as of one that was aborted: a number
    /// that it never heard of would be a gap in its books for ever, and those are few.
    pub(crate) fn give_up_stream(
        &mut self,
        stream: u32,
        app: &mut impl App,
    ) -> (Option<Owner>, bool) {
        let Some(all) = self.streams.as_deref_mut() else { return (None, true) };
        let side = all.sides.get(&stream).filter(|side| side.has_app());
        let owner = side.map(|side| side.stream.owner);
        all.abort(stream, Reason::Reset, app);
        (owner, all.has_app())
    }
}
