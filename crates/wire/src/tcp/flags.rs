//! The flags of a TCP header.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// A set of flags.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The sender has no more to send.
    pub const FIN: Self = Self(0x01);
    /// The sequence number is the first of a connection.
    pub const SYN: Self = Self(0x02);
    /// There is no such connection any more.
    pub const RST: Self = Self(0x04);
    /// What has come is to be given to the app now.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number means something.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer means something.
    pub const URG: Self = Self(0x20);
    /// "ECN-Echo" (RFC 3168, section 6.1).
    pub const ECE: Self = Self(0x40);
    /// "Congestion Window Reduced" (RFC 3168, section 6.1).
    pub const CWR: Self = Self(0x80);
    /// The ninth flag, once NS, of "Accurate ECN" (RFC 9768).
    pub const AE: Self = Self(0x100);

    const NAMES: [(Self, char); 9] = [
        (Self::FIN, 'F'),
        (Self::SYN, 'S'),
        (Self::RST, 'R'),
        (Self::PSH, 'P'),
        (Self::ACK, '.'),
        (Self::URG, 'U'),
        (Self::ECE, 'E'),
        (Self::CWR, 'W'),
        (Self::AE, 'A'),
    ];

    /// The flags among the low nine of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x1ff)
    }

    /// The flags as they stand in the header.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// True if all of `flags` are in this set.
    #[inline]
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// True if one of `flags` is in this set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// This set without `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn union(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// The flag that tcpdump and packetdrill write as `letter`.
    #[must_use]
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::NAMES.iter().find(|(_, name)| *name == letter).map(|(flag, _)| *flag)
    }
}

impl BitOr for Flags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

/// As tcpdump writes them: `S.` for SYN and ACK.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flag, name) in Self::NAMES {
            // ACK comes last.
            if flag != Self::ACK && self.contains(flag) {
                write!(f, "{name}")?;
            }
        }
        if self.contains(Self::ACK) { f.write_str(".") } else { Ok(()) }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}
