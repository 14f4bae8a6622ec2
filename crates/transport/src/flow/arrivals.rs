//! How the peer's packets come to this engine, and what the peer is told about it: a path that is
//! good, if it looks for one, and that its packets stray, if another engine has to pass them on.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};

use crate::endpoint::Arrival;
use crate::state::ArrivalsState;

/// How long a new flow's packets may stray before that is worth saying: its peer is looking for a
/// path anyway.
const STRAY_FIRST_NS: u64 = 10 * MILLISECOND;
/// Between two stray frames: a round trip, but within these, and twice as long each time.
const STRAY_NS_MIN: u64 = 100 * MICROSECOND;
const STRAY_NS_MAX: u64 = SECOND;

/// A port of the peer's whose packets come straight here, and the round that it was tried in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) port: u16,
    pub(super) round: u16,
}

/// The other direction of `Ports`.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// How the packet came that is being handled, and from which port.
    arrival: Arrival,
    port: u16,
    /// It carries a probe: its sender knows that it may have strayed.
    is_probe: bool,
    /// What the peer sends takes a detour.
    is_detour: bool,
    /// The newest path that was found.
    found: Option<Path>,
    path_due: bool,
    stray_due: Option<u16>,
    stray_at: Time,
    stray_ns: u64,
}

impl Arrivals {
    pub(super) fn new(now: Time) -> Self {
        Self {
            arrival: Arrival::Queue,
            port: 0,
            is_probe: false,
            is_detour: false,
            found: None,
            path_due: false,
            stray_due: None,
            stray_at: now + STRAY_FIRST_NS,
            stray_ns: STRAY_NS_MIN,
        }
    }

    pub(super) fn save(&self) -> ArrivalsState {
        ArrivalsState {
            is_detour: self.is_detour,
            found: self.found.map(|found| (found.port, found.round)),
            path_due: self.path_due,
            stray_due: self.stray_due,
            stray_at: self.stray_at,
            stray_ns: self.stray_ns,
        }
    }

    pub(super) fn restore(now: Time, state: &ArrivalsState) -> Self {
        Self {
            is_detour: state.is_detour,
            found: state.found.map(|(port, round)| Path { port, round }),
            path_due: state.path_due,
            stray_due: state.stray_due,
            stray_at: state.stray_at,
            stray_ns: state.stray_ns.min(STRAY_NS_MAX),
            ..Self::new(now)
        }
    }

    /// The peer believes that its packets come straight, and they do not: that is worth saying at
    /// once.
    pub(super) const fn complain_soon(&mut self) {
        self.stray_at = Time::ZERO;
    }

    pub(super) const fn is_detour(&self) -> bool {
        self.is_detour
    }

    /// A packet of the peer's is about to be handled.
    pub(super) const fn begin(&mut self, arrival: Arrival, port: u16) {
        (self.arrival, self.port, self.is_probe) = (arrival, port, false);
    }

    /// It is one of a search: the first of its round that came straight is worth telling.
    pub(super) fn on_probe(&mut self, round: u16) {
        self.is_probe = true;
        let is_new = self.found.is_none_or(|found| found.round != round);
        if self.arrival == Arrival::Queue && is_new {
            self.found = Some(Path { port: self.port, round });
            self.path_due = true;
        }
    }

    /// It has been handled.
    pub(super) fn end(&mut self, now: Time, rtt_ns: u64) {
        if self.is_probe {
            return;
        }
        self.is_detour = self.arrival == Arrival::Lane;
        if !self.is_detour {
            self.stray_ns = STRAY_NS_MIN;
        } else if self.stray_at <= now {
            self.stray_due = Some(self.port);
            self.stray_at = now + self.stray_ns.max(rtt_ns);
            self.stray_ns = (2 * self.stray_ns.max(rtt_ns)).min(STRAY_NS_MAX);
        }
    }

    /// There is something to tell.
    pub(super) const fn has_news(&self) -> bool {
        self.path_due || self.stray_due.is_some()
    }

    /// The path to tell, once.
    pub(super) fn take_path(&mut self) -> Option<Path> {
        core::mem::take(&mut self.path_due).then_some(self.found).flatten()
    }

    /// A packet that told the path has been lost.
    pub(super) const fn tell_path_again(&mut self) {
        self.path_due = self.found.is_some();
    }

    /// The port that strays, to be told once.
    pub(super) const fn take_stray(&mut self) -> Option<u16> {
        self.stray_due.take()
    }

    /// Nothing needs to be told any more.
    pub(super) const fn stop(&mut self) {
        (self.path_due, self.stray_due) = (false, None);
    }
}

#[cfg(test)]
mod tests;
