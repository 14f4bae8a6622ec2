//! One control connection: what its app has, and what it waits for.

use std::net::SocketAddr;
use std::time::Duration;

use clearway_channel::control::{Attach, Refusal};

use crate::engines::ChannelPlace;
use crate::policy::Peer;
use crate::refusal::not_attached;

/// A control connection, without its socket.
#[derive(Debug)]
pub struct Session {
    pub(crate) peer: Peer,
    pub(crate) stage: Stage,
    pub(crate) waiting: Waiting,
}

/// How far it has come with its channel.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// There is none.
    #[default]
    Bare,
    /// Its memory is being made.
    Making { place: ChannelPlace, attach: Box<Attach> },
    /// The app has been given it, and is to map it.
    Offered { place: ChannelPlace, app: String },
    /// The app has mapped it, and that is being made sure of.
    Securing { place: ChannelPlace, app: String },
    /// An engine serves it.
    Attached(Attached),
}

/// A channel that an engine serves.
#[derive(Debug)]
pub struct Attached {
    /// Its engine, and its number there.
    pub place: ChannelPlace,
    /// The app's name.
    pub app: String,
    /// The numbers of its listeners.
    pub listeners: Vec<u32>,
    pub(crate) listener_next: u32,
    /// The app has said that it is about to end: for how long it wants what it has sent delivered.
    pub leave: Option<Duration>,
}

/// What an answer waits for, besides the channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waiting {
    #[default]
    Nothing,
    /// Engines are to know who listens there.
    Listening(SocketAddr),
    /// Engines and the NIC are to take this virtual interface or capture in.
    OpeningVif(u32),
    /// They are to forget it.
    ClosingVif(u32),
    /// Memory of the app's own of this number is to be there, or to be gone.
    Memory(u64),
}

impl Session {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, stage: Stage::Bare, waiting: Waiting::Nothing }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The channel that an engine serves for it.
    #[must_use]
    pub fn attached(&self) -> Option<&Attached> {
        match &self.stage {
            Stage::Attached(attached) => Some(attached),
            _ => None,
        }
    }

    pub(crate) fn attached_mut(&mut self) -> Option<&mut Attached> {
        match &mut self.stage {
            Stage::Attached(attached) => Some(attached),
            _ => None,
        }
    }

    /// The same, of an app that asks for something.
    pub(crate) fn attached_or_refused(&self) -> Result<&Attached, Refusal> {
        self.attached().ok_or_else(not_attached)
    }

    /// Leaves its stage, if that is the one that `as_expected` takes.
    pub(crate) fn leave_stage<T>(
        &mut self,
        as_expected: impl FnOnce(Stage) -> Result<T, Stage>,
    ) -> Option<T> {
        as_expected(std::mem::take(&mut self.stage)).map_err(|other| self.stage = other).ok()
    }

    /// True while its last request is worked on: the next has to wait.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting != Waiting::Nothing
            || matches!(self.stage, Stage::Making { .. } | Stage::Securing { .. })
    }
}

impl Attached {
    pub(crate) fn new(place: ChannelPlace, app: String) -> Self {
        Self { place, app, listeners: Vec::new(), listener_next: 1, leave: None }
    }
}
