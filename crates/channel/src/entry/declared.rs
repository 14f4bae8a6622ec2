//! From the declaration of an enum of entries: the enum, how it is written and read, and a
//! description of it, for the hash of the layout and for `docs/channel.md`.
//!
//! ```text
//! /// What it says.
//! OPCODE = number => Variant {
//!     place { field: type, ... } ...
//! } [check(fields)]
//! ```
//!
//! Places: `flags` (8 bits) and `stream` (16 bits) of word 0; a number, which is the first word
//! behind it that the fields take, `u64` a word, two `u32` a word, a socket's address three, an IP
//! address two; `list`, which is flags and all words. `check` bounds what was read, given the
//! fields and the pool's bytes.
//!
//! `encode` stores each word once; `decode` loads each word once, bounds it, and returns a copy.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::ReleaseList;
use crate::layout::RELEASES_PER_ENTRY;
use crate::ring::Entry;
use crate::sync::Ordering::Relaxed;
use crate::{Code, Violation};

/// An opcode, described.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) opcode: u8,
    /// For `docs/channel.md`.
    #[cfg_attr(any(not(test), miri), expect(dead_code))]
    pub(crate) doc: &'static str,
    pub(crate) places: &'static [Place],
}

/// What stands in one place of an entry, described.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    /// The words that it takes: the first, and the one behind the last.
    pub(super) words: (usize, usize),
    pub(crate) fields: &'static [Field],
}

/// A field, described.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
}

/// Whether all opcodes differ, and the places of each are in order, apart and inside of an entry.
pub(super) const fn is_sound(kinds: &[Kind]) -> bool {
    let mut index = 0;
    while index < kinds.len() {
        let is_next = kinds[index].opcode as usize == index + 1;
        if !is_next || !are_apart(kinds[index].places) {
            return false;
        }
        index += 1;
    }
    true
}

const fn are_apart(places: &[Place]) -> bool {
    let (mut index, mut end) = (0, 0);
    while index < places.len() {
        let (first, behind) = places[index].words;
        if first < end || behind > crate::layout::ENTRY_WORDS {
            return false;
        }
        (index, end) = (index + 1, behind);
    }
    true
}

/// Declares an enum of entries.
macro_rules! entries {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $code:ident = $opcode:literal => $variant:ident {
                    $($place:tt { $($(#[doc = $fdoc:literal])* $field:ident: $kind:ty),+ })+
                } $([$check:ident($($checked:ident),+)])?
            )+
        }
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $(
                $(#[doc = $doc])*
                $variant { $($($(#[doc = $fdoc])* $field: $kind,)+)+ },
            )+
        }

        impl $name {
            $(pub(crate) const $code: u8 = $opcode;)+

            /// All opcodes.
            pub(crate) const KINDS: &[Kind] = &[$(Kind {
                name: stringify!($variant),
                opcode: $opcode,
                doc: concat!($($doc),*),
                places: &[$($crate::entry::declared::Place {
                    name: stringify!($place),
                    words: $crate::entry::declared::place!(words $place ($($kind,)+)),
                    fields: &[$($crate::entry::declared::Field {
                        name: stringify!($field),
                        kind: stringify!($kind),
                    }),+],
                }),+],
            }),+];

            /// Stores words 1.. and returns the upper half of word 0.
            #[inline(always)]
            pub(crate) fn encode(&self, entry: &Entry) -> u32 {
                match *self {
                    $(Self::$variant { $($($field),+),+ } => {
                        u32::from(Self::$code)
                            $(| $crate::entry::declared::place!(
                                store $place entry ($($field,)+)
                            ))+
                    })+
                }
            }

            /// Reads an entry that the other side wrote: any bits at all. Extents are bounded to
            /// the pool.
            #[inline]
            pub(crate) fn decode(
                upper: u32,
                entry: &Entry,
                pool_bytes: u32,
            ) -> Result<Self, Violation> {
                match upper as u8 {
                    $($opcode => Self::decode_as::<$opcode>(upper, entry, pool_bytes),)+
                    unknown => Err(Violation::Opcode(unknown)),
                }
            }

            /// Reads an entry if it is a valid one of this opcode. Whatever else it is, `decode`
            /// finds out.
            #[inline]
            pub(crate) fn decode_if<const OPCODE: u8>(
                upper: u32,
                entry: &Entry,
                pool_bytes: u32,
            ) -> Option<Self> {
                if upper as u8 != OPCODE {
                    return None;
                }
                Self::decode_as::<OPCODE>(upper, entry, pool_bytes).ok()
            }

            /// As `decode`, for an entry of this opcode.
            #[inline]
            pub(crate) fn decode_as<const OPCODE: u8>(
                upper: u32,
                entry: &Entry,
                pool_bytes: u32,
            ) -> Result<Self, Violation> {
                match OPCODE {
                    $($opcode => {
                        $(let ($($field,)+): ($($kind,)+) =
                            $crate::entry::declared::place!(load $place upper entry);)+
                        $($check($($checked,)+ pool_bytes)?;)?
                        Ok(Self::$variant { $($($field),+),+ })
                    })+
                    unknown => Err(Violation::Opcode(unknown)),
                }
            }
        }

        const _: () = assert!($crate::entry::declared::is_sound($name::KINDS));
    };
}
pub(super) use entries;

/// A place of an entry: its words, and how the fields in it are stored (the value is what they are
/// in the upper half of word 0) and loaded.
macro_rules! place {
    (words flags $kinds:ty) => {
        (0, 0)
    };
    (words stream $kinds:ty) => {
        (0, 0)
    };
    (words list $kinds:ty) => {
        (1, $crate::layout::ENTRY_WORDS)
    };
    (words $word:literal $kinds:ty) => {
        ($word, $word + <$kinds as $crate::entry::declared::Words>::COUNT)
    };
    (store flags $entry:ident $fields:expr) => {
        u32::from(u8::from($fields.0)) << 8
    };
    (store stream $entry:ident $fields:expr) => {
        u32::from($fields.0) << 16
    };
    (store list $entry:ident $fields:expr) => {
        u32::from($fields.0.store($entry)) << 8
    };
    (store $word:literal $entry:ident $fields:expr) => {{
        $crate::entry::declared::Words::store($fields, $entry, $word);
        0
    }};
    (load flags $upper:ident $entry:ident) => {
        ($crate::entry::declared::Flags::of(($upper >> 8) as u8),)
    };
    (load stream $upper:ident $entry:ident) => {
        (($upper >> 16) as u16,)
    };
    (load list $upper:ident $entry:ident) => {
        (ReleaseList::load(($upper >> 8) as u8, $entry)?,)
    };
    (load $word:literal $upper:ident $entry:ident) => {
        $crate::entry::declared::Words::load($entry, $word)?
    };
}
pub(super) use place;

/// What stands in the flags.
pub(super) trait Flags {
    fn of(bits: u8) -> Self;
}

impl Flags for bool {
    #[inline]
    fn of(bits: u8) -> Self {
        bits & 1 != 0
    }
}

impl Flags for u8 {
    #[inline]
    fn of(bits: u8) -> Self {
        bits
    }
}

/// What takes whole words.
pub(super) trait Words: Sized {
    /// How many.
    const COUNT: usize;
    /// Stores it in the words from `at` on.
    fn store(self, entry: &Entry, at: usize);
    /// Loads each of its words once.
    fn load(entry: &Entry, at: usize) -> Result<Self, Violation>;
}

impl Words for (u64,) {
    const COUNT: usize = 1;

    #[inline]
    fn store(self, entry: &Entry, at: usize) {
        entry[at].store(self.0, Relaxed);
    }

    #[inline]
    fn load(entry: &Entry, at: usize) -> Result<Self, Violation> {
        Ok((entry[at].load(Relaxed),))
    }
}

/// Half a word.
pub(super) trait Half {
    fn of(bits: u32) -> Self;
    fn bits(self) -> u32;
}

impl Half for u32 {
    #[inline]
    fn of(bits: u32) -> Self {
        bits
    }

    #[inline]
    fn bits(self) -> u32 {
        self
    }
}

/// One that this build does not know is a newer daemon's.
impl Half for Code {
    fn of(bits: u32) -> Self {
        Self::from_i32(bits as i32).unwrap_or(Self::Mismatch)
    }

    fn bits(self) -> u32 {
        self.as_i32() as u32
    }
}

impl<A: Half> Words for (A,) {
    const COUNT: usize = 1;

    #[inline]
    fn store(self, entry: &Entry, at: usize) {
        (self.0, 0u32).store(entry, at);
    }

    #[inline]
    fn load(entry: &Entry, at: usize) -> Result<Self, Violation> {
        let (low, _): (A, u32) = Words::load(entry, at)?;
        Ok((low,))
    }
}

impl<A: Half, B: Half> Words for (A, B) {
    const COUNT: usize = 1;

    #[inline]
    fn store(self, entry: &Entry, at: usize) {
        entry[at].store(pair(self.0.bits(), self.1.bits()), Relaxed);
    }

    #[inline]
    fn load(entry: &Entry, at: usize) -> Result<Self, Violation> {
        let (low, high) = split(entry[at].load(Relaxed));
        Ok((A::of(low), B::of(high)))
    }
}

/// Port, family and scope; then the octets.
impl Words for (SocketAddr,) {
    const COUNT: usize = 3;

    fn store(self, entry: &Entry, at: usize) {
        let (family, scope, octets) = match self.0 {
            SocketAddr::V4(v4) => (4u16, 0, u128::from(v4.ip().to_bits())),
            SocketAddr::V6(v6) => (6, v6.scope_id(), v6.ip().to_bits()),
        };
        let word = u64::from(self.0.port()) | u64::from(family) << 16 | u64::from(scope) << 32;
        entry[at].store(word, Relaxed);
        (Ipv6Addr::from_bits(octets),).store(entry, at + 1);
    }

    fn load(entry: &Entry, at: usize) -> Result<Self, Violation> {
        let word = entry[at].load(Relaxed);
        let (port, family, scope) = (word as u16, (word >> 16) as u16, (word >> 32) as u32);
        let (ip,): (Ipv6Addr,) = Words::load(entry, at + 1)?;
        match family {
            4 => Ok((SocketAddrV4::new(Ipv4Addr::from_bits(ip.to_bits() as u32), port).into(),)),
            6 => Ok((SocketAddrV6::new(ip, port, 0, scope).into(),)),
            _ => Err(Violation::AddressFamily(family)),
        }
    }
}

/// The octets, the lowest first.
impl Words for (Ipv6Addr,) {
    const COUNT: usize = 2;

    fn store(self, entry: &Entry, at: usize) {
        let octets = self.0.to_bits();
        entry[at].store(octets as u64, Relaxed);
        entry[at + 1].store((octets >> 64) as u64, Relaxed);
    }

    fn load(entry: &Entry, at: usize) -> Result<Self, Violation> {
        let (low, high) = (entry[at].load(Relaxed), entry[at + 1].load(Relaxed));
        Ok((Ipv6Addr::from_bits(u128::from(low) | u128::from(high) << 64),))
    }
}

impl ReleaseList {
    /// Stores the ids, and says how many there are.
    #[inline]
    pub(super) fn store(&self, entry: &Entry) -> u8 {
        for (word, &[low, high]) in entry[1..].iter().zip(self.ids.as_chunks().0) {
            word.store(pair(low, high), Relaxed);
        }
        self.count
    }

    #[inline]
    pub(super) fn load(count: u8, entry: &Entry) -> Result<Self, Violation> {
        if usize::from(count) > RELEASES_PER_ENTRY {
            return Err(Violation::ReleaseCount(count));
        }
        let mut list = Self { count, ..Self::default() };
        let words = usize::from(count).div_ceil(2);
        for (word, [low, high]) in entry[1..=words].iter().zip(list.ids.as_chunks_mut().0) {
            (*low, *high) = split(word.load(Relaxed));
        }
        Ok(list)
    }
}

#[inline]
pub(super) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
pub(super) fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}
