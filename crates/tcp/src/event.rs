//! What an owner is told of a connection.

use core::ops::{BitOr, BitOrAssign};

/// What has changed for a connection since it was last asked; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness(u8);

impl Readiness {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// It is open: what was a connection attempt has succeeded, or a listener has a new one.
    pub const OPEN: Self = Self(1);
    /// There is something to receive.
    pub const READABLE: Self = Self(2);
    /// Extents that were sent are acknowledged, so there is room for others.
    pub const WRITABLE: Self = Self(4);
    /// The peer has sent all that it will send.
    pub const FINISHED: Self = Self(8);
    /// There is no connection any more; `Info::end` says why.
    pub const CLOSED: Self = Self(16);

    /// As a number.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The set of a number; bits that mean nothing are left out.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 31)
    }

    /// True if all of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if there is nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Readiness {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Why a connection is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum End {
    /// Both ends closed it.
    Orderly,
    /// This end gave it up.
    Aborted,
    /// The peer refused it.
    Refused,
    /// The peer reset it.
    Reset,
    /// The peer did not answer for too long.
    TimedOut,
    /// A router, or the peer's host, says that the peer cannot be reached.
    Unreachable,
}
