//! Points in time as nanoseconds. Durations are plain `u64` nanoseconds, named `..._ns`.

use core::fmt;
use core::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// One microsecond, in nanoseconds.
pub const MICROSECOND: u64 = 1_000;
/// One millisecond, in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
/// One second, in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// A point in time: nanoseconds since an epoch that the caller chose (the monotonic clock of a
/// host, or the start of a simulation). Times of different hosts are never compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(u64);

impl Time {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// Later than every other time: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The time `ns` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Self;

    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Time {
    type Output = Self;

    fn sub(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX { f.write_str("never") } else { write!(f, "{}ns", self.0) }
    }
}
