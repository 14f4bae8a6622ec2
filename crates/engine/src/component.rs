//! What an engine is composed of: components, each of which owns its state, and what they have in
//! common.
//!
//! ```text
//!            commands     ┌───────────────── Engine::turn ─────────────────┐   frames
//!  apps ── (channels) ──▶ │  Messages     Frames      Extra     ← Component │ ◀────────▶ queue
//!       ◀── completions ─ │     └────────────┴───────────┘                  │
//!                         │  Common: channels, host, lanes, switch, captures │ ◀────────▶ other engines
//!                         └─────────────────────────────────────────────────┘
//! ```
//!
//! A component is a value with the four parts of a turn: [`Component::command`],
//! [`Component::receive`], [`Component::handle_timeouts`], [`Component::transmit`]. It knows no
//! other component: what it needs beside its own state it is lent ([`Common`]), and what it sends
//! for this host comes back to whose it is as what comes from the wire does (`loopback.rs`). Which
//! frames are whose the switch says, and nobody else.
//!
//! To add a protocol: a component, a [`Service`](crate::Service) with its entries (`services.rs`),
//! and a line in each part of the turn (`engine.rs`). `tests/echo.rs` has the smallest that there
//! can be; it comes as the extra component that an engine may have, so that it needs neither.

use clearway_base::Time;
use clearway_channel::Command;
use clearway_nic::Queue;

use crate::common::{Common, Via};

/// A part of an engine with a protocol of its own. Calls come in the order of a turn: commands,
/// frames, timeouts, and then what there is to send.
pub trait Component {
    /// Which of its owners in the switch's table a frame is for; `()` if there is one only.
    type Owner: Copy;

    /// Of the packets to the host's own addresses, those that are for this component, in the words
    /// of [`clearway_classify::Filter`]: for the extra component of an engine, which no service
    /// names.
    fn receives(&self) -> &[&'static str] {
        &[]
    }

    /// Takes a command of the app that has this channel.
    fn command(&mut self, _common: &mut Common, _now: Time, _channel: u32, _command: Command) {}

    /// Takes frames that are for `owner`, in the order in which they came.
    fn receive(
        &mut self,
        common: &mut Common,
        now: Time,
        owner: Self::Owner,
        frames: &[&[u8]],
        via: Via,
    );

    /// When [`Component::handle_timeouts`] is due.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Does what was to be done by now. Returns how much that was, as the turn counts work.
    fn handle_timeouts(&mut self, _common: &mut Common, _now: Time) -> usize {
        0
    }

    /// False if there is surely nothing to send.
    fn has_output(&self) -> bool;

    /// Writes what is to be sent into the queue, by [`Common::send`].
    fn transmit(&mut self, common: &mut Common, now: Time, outlet: Outlet<'_>) -> Sending;
}

/// Where a component's frames go, and how many in a turn.
pub struct Outlet<'a> {
    /// The engine's queue.
    pub queue: &'a mut dyn Queue,
    /// About so many frames at most.
    pub budget: usize,
    /// About so many bytes at most, of packets that are built here.
    pub bytes: usize,
    /// No other component has something to send in this turn: what is queued may be flushed at
    /// once.
    pub is_last: bool,
}

/// What sending did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Frames that were taken from apps, or packets that were built.
    pub taken: usize,
    /// Frames that were given to the queue, which is to be flushed.
    pub queued: usize,
}

impl std::ops::AddAssign for Sending {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.queued += other.queued;
    }
}

/// No extra component.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExtra;

impl std::fmt::Debug for Outlet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Component for NoExtra {
    type Owner = ();

    fn receive(&mut self, _: &mut Common, _: Time, (): (), _: &[&[u8]], _: Via) {}

    #[inline]
    fn has_output(&self) -> bool {
        false
    }

    #[inline]
    fn transmit(&mut self, _: &mut Common, _: Time, _: Outlet<'_>) -> Sending {
        Sending::default()
    }
}
