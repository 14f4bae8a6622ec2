//! What is kept of a socket.

use core::net::SocketAddr;

use super::ports::{Claim, Place};
use super::{Family, Fault, SocketOptions};
use clearway_base::SlotId;

use crate::stack::Listener;

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// With its backlog.
    Listening(Listener, u32),
    /// It looks connected, and connects with the first bytes that are sent (TCP_FASTOPEN_CONNECT).
    Deferred(SocketAddr),
    /// Or about to be, or no longer.
    Connected(SlotId),
}

/// A socket.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) family: Family,
    pub(super) options: SocketOptions,
    pub(super) phase: Phase,
    /// This end; unspecified, and 0, where it is not known yet.
    pub(super) local: SocketAddr,
    /// A program has said what this end is.
    pub(super) is_bound: bool,
    pub(super) remote: Option<SocketAddr>,
    pub(super) error: Option<Fault>,
    /// The connection has been open.
    pub(super) was_open: bool,
    /// The program knows it.
    pub(super) is_told: bool,
    /// An attempt to connect has failed, and nobody has been told by `connect`.
    pub(super) has_failed: bool,
    /// Nobody wants to read any more.
    pub(super) is_deaf: bool,
    /// The last send has said that more will come.
    pub(super) has_more: bool,
    /// The program has let go of it.
    pub(super) is_closed: bool,
}

impl Entry {
    /// One that is not bound.
    pub(super) const fn new(family: Family, options: SocketOptions) -> Self {
        Self {
            family,
            options,
            phase: Phase::Idle,
            local: family.any(),
            is_bound: false,
            remote: None,
            error: None,
            was_open: false,
            is_told: false,
            has_failed: false,
            is_deaf: false,
            has_more: false,
            is_closed: false,
        }
    }

    pub(super) fn place(&self) -> Place {
        Place::new(self.local.ip(), self.options.v6_only)
    }

    pub(super) fn claim(&self) -> Claim {
        Claim {
            place: self.place(),
            shares: self.options.reuse_address,
            shares_with_listeners: self.options.reuse_port,
            listens: matches!(self.phase, Phase::Listening(..)),
        }
    }

    /// Whether it can have to do with `address`.
    pub(super) fn check_family(&self, address: SocketAddr) -> Result<(), Fault> {
        match (self.family, address) {
            (Family::V4, SocketAddr::V6(_)) => Err(Fault::Family),
            (Family::V6, SocketAddr::V4(_)) if self.options.v6_only => Err(Fault::NoRoute),
            _ => Ok(()),
        }
    }

    /// An attempt to connect has failed, and whoever tried is told.
    pub(super) fn take_failure(&mut self) -> Fault {
        self.has_failed = false;
        self.error.take().unwrap_or(Fault::Aborted)
    }
}
