//! The layout of a channel's shared memory. Every offset and limit that both sides must agree on
//! stands here, and what the entries of the rings say in `entry.rs`, once each. [`LAYOUT`]
//! condenses both, and `docs/channel.md` lists both; a test compares them.
//!
//! ```text
//! offset 0        header page      daemon writes, once, before the app sees it
//!        4096     sync page        one word per 128 bytes (two lines: the adjacent-line prefetcher
//!                                  would otherwise make neighbours share); writers named below
//!        8192     submission ring  app writes entries        64 bytes each
//!                 completion ring  daemon writes entries     64 bytes each
//!                 regions          what extents name; the header says which, and where:
//!                   transmit pool    app writes bytes          the daemon only reads
//!                   receive pool     daemon writes bytes       the app only reads
//!                   shared memory    both write, if there is any
//! ```
//!
//! Areas start on page boundaries. All integers are in the byte order of the machine: both sides
//! run on it. `layout/versions.rs` says how the two agree on a version of all this, and
//! `layout/regions.rs` what may stand behind the rings.

use serde::{Deserialize, Serialize};

use crate::entry::{Command, Completion, Kind, Place};

mod regions;
mod versions;
pub(crate) use regions::{KINDS, REGION_BYTES, REGIONS_MAX, Region};
pub use versions::{Understood, VersionMismatch, Versions};
#[cfg(not(loom))]
pub(crate) use versions::{layout_of, version_of};

/// A number that both sides agree on.
pub(crate) struct Number {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
    /// For `docs/channel.md`.
    #[cfg_attr(any(not(test), miri), expect(dead_code))]
    pub(crate) doc: &'static str,
}

/// Declares numbers that both sides agree on, and the list of them.
macro_rules! agreed {
    ($($(#[doc = $doc:literal])* $vis:vis const $name:ident: $kind:ty = $value:expr;)*) => {
        $($(#[doc = $doc])* $vis const $name: $kind = $value;)*

        /// All of them.
        pub(crate) const NUMBERS: &[Number] = &[$(
            Number { name: stringify!($name), value: $name as u64, doc: concat!($($doc),*) },
        )*];
    };
}

agreed! {
    /// The steps by which an app gets a channel: `attach`; and, since the app seals the memory,
    /// `mapped`.
    const ATTACH_STEPS: usize = 2;
    /// Areas start at multiples of this.
    pub(crate) const PAGE_BYTES: usize = 4096;

    /// Header page, daemon writes: `CLEARWAY` in ASCII.
    pub(crate) const HEADER_MAGIC: usize = 0;
    /// Header page, daemon writes: the hash of the layout, which says its version.
    pub(crate) const HEADER_LAYOUT: usize = 8;
    /// Header page, daemon writes: bytes of the whole memory.
    pub(crate) const HEADER_TOTAL_BYTES: usize = 16;
    /// Header page, daemon writes: entries of the submission ring, of the completion ring, bytes of
    /// the transmit pool, of the receive pool; `u64` each.
    pub(crate) const HEADER_SIZES: usize = 24;
    /// Header page, daemon writes: 1 if it runs `barrier::everywhere` before it sleeps (`u64`).
    pub(crate) const HEADER_DAEMON_BARRIERS: usize = 56;
    /// Header page, daemon writes: how many regions there are (`u64`).
    pub(crate) const HEADER_REGION_COUNT: usize = 64;
    /// Header page, daemon writes: the table of regions, 32 bytes each: kind, offset, length, 0;
    /// `u64` each.
    pub(crate) const HEADER_REGIONS: usize = 128;

    /// Sync page, daemon writes, app reads: how many commands were taken (`u32`, wrapping).
    pub(crate) const SYNC_SUBMISSION_HEAD: usize = PAGE_BYTES;
    /// Sync page, app writes, daemon reads: how many completions were taken (`u32`, wrapping).
    pub(crate) const SYNC_COMPLETION_HEAD: usize = PAGE_BYTES + 128;
    /// Sync page: 1 while the daemon sleeps. The daemon sets it; whoever ends the sleep clears it.
    pub(crate) const SYNC_DAEMON_SLEEPING: usize = PAGE_BYTES + 256;
    /// Sync page, daemon writes, app reads: the processor that the engine runs on, plus one; 0 if
    /// unknown (`u32`). In the line that the app looks at before it rings.
    pub(crate) const SYNC_DAEMON_PROCESSOR: usize = SYNC_DAEMON_SLEEPING + 4;
    /// Sync page: 1 while the app sleeps. The app sets it; whoever ends the sleep clears it.
    pub(crate) const SYNC_APP_SLEEPING: usize = PAGE_BYTES + 384;
    /// Sync page, app writes, daemon reads: the processor that the app last waited on, plus one; 0
    /// if unknown (`u32`). In the line that the engine looks at before it rings.
    pub(crate) const SYNC_APP_PROCESSOR: usize = SYNC_APP_SLEEPING + 4;
    /// Sync page, daemon writes, app reads: 1 when the daemon has closed the channel in good order.
    pub(crate) const SYNC_CLOSED: usize = PAGE_BYTES + 512;

    /// Where the submission ring starts.
    pub(crate) const SUBMISSION_RING: usize = 2 * PAGE_BYTES;
    /// Words of a ring entry, `u64` each. Word 0 holds, from the lowest bit: turn (32), opcode (8),
    /// flags (8), stream (16). The words after it depend on the opcode.
    pub(crate) const ENTRY_WORDS: usize = 8;

    /// The largest message, in bytes.
    pub const MESSAGE_BYTES_MAX: u32 = 8 << 20;
    /// The shortest frame, in bytes: an Ethernet header.
    pub const FRAME_BYTES_MIN: u32 = 14;
    /// The largest frame, in bytes: what its header in a burst can say.
    pub const FRAME_BYTES_MAX: u32 = u16::MAX as u32;
    /// The most frames in one burst.
    pub const BURST_FRAMES_MAX: u16 = 32;
    /// Bytes of the header of each frame of a burst: length (16 bits), flags (16), information
    /// (32), time in nanoseconds (64).
    pub(crate) const FRAME_HEADER_BYTES: u32 = 16;
    /// Frames of a burst start at multiples of this, so that their headers are two aligned words.
    pub(crate) const FRAME_ALIGNMENT: u32 = 8;
    /// How many sends of one channel may be unfinished at a time, messages and bursts of frames
    /// together. Bounds what the daemon has to remember of them (about 32 bytes each).
    pub const OUTSTANDING_SENDS_MAX: u32 = 16 * 1024;
    /// A message of up to so many bytes goes to the receive pool, where it takes a cell; a larger
    /// one goes to a buffer that its receiver has posted, if there is one.
    pub const SMALL_MESSAGE_BYTES_MAX: u32 = 8 * 1024;
    /// How many buffers may be posted on a connection at a time, those included into which a
    /// message is coming.
    pub const POSTS_PER_CONNECTION_MAX: u32 = 64;
    /// How many on all connections of a channel. Bounds what the daemon has to remember of them
    /// (about 150 bytes each).
    pub const POSTS_MAX: u32 = 16 * 1024;
    /// How many receive buffers one release command gives back: what fits beside word 0.
    pub const RELEASES_PER_ENTRY: usize = 2 * (ENTRY_WORDS - 1);
}

/// The value at [`HEADER_MAGIC`].
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"CLEARWAY");
/// Bytes of a ring entry: one cache line.
pub(crate) const ENTRY_BYTES: usize = 64;
/// The smallest and the largest number of entries of a ring.
pub(crate) const RING_ENTRIES: (u32, u32) = (16, 1 << 16);
/// The smallest and the largest pool. The smallest is one slab of `pool.rs`.
pub(crate) const POOL_BYTES: (u32, u32) = (1 << 16, 1 << 30);
/// The smallest and the largest shared memory, if there is any.
pub(crate) const SHARED_BYTES: (u32, u32) = (PAGE_BYTES as u32, 1 << 30);

/// Identifies this layout: two builds with the same value understand each other's memory, and how
/// it is handed over.
pub const LAYOUT: u64 = {
    let mut hash = FNV_BASIS;
    let mut index = 0;
    while index < NUMBERS.len() {
        hash = fnv1a(hash, NUMBERS[index].name.as_bytes());
        hash = fnv1a(hash, &NUMBERS[index].value.to_le_bytes());
        index += 1;
    }
    hash = hash_kinds(hash, Command::KINDS);
    hash = hash_kinds(hash, Completion::KINDS);
    index = 0;
    while index < KINDS.len() {
        hash = fnv1a(hash, KINDS[index].name.as_bytes());
        hash = fnv1a(hash, &KINDS[index].number.to_le_bytes());
        index += 1;
    }
    hash
};

const fn hash_kinds(mut hash: u64, kinds: &[Kind]) -> u64 {
    let mut index = 0;
    while index < kinds.len() {
        let kind = &kinds[index];
        hash = fnv1a(fnv1a(hash, kind.name.as_bytes()), &[kind.opcode]);
        let mut place = 0;
        while place < kind.places.len() {
            hash = hash_place(hash, &kind.places[place]);
            place += 1;
        }
        index += 1;
    }
    hash
}

const fn hash_place(hash: u64, place: &Place) -> u64 {
    let mut hash = fnv1a(hash, place.name.as_bytes());
    let mut index = 0;
    while index < place.fields.len() {
        hash = fnv1a(fnv1a(hash, place.fields[index].name.as_bytes()), b":");
        hash = fnv1a(fnv1a(hash, place.fields[index].kind.as_bytes()), b",");
        index += 1;
    }
    hash
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

const _: () = {
    assert!(ENTRY_BYTES == ENTRY_WORDS * size_of::<u64>());
    assert!(HEADER_SIZES + 4 * size_of::<u64>() <= HEADER_DAEMON_BARRIERS);
    assert!(HEADER_REGIONS + REGIONS_MAX * REGION_BYTES <= PAGE_BYTES);
    assert!(SYNC_CLOSED + 128 <= SUBMISSION_RING);
    assert!(SUBMISSION_RING.is_multiple_of(PAGE_BYTES));
    // Every later area is a power of two of at least a page or is rounded up to one; offsets in
    // a pool fit in 32 bits.
    assert!(POOL_BYTES.0 as usize >= PAGE_BYTES && POOL_BYTES.1 <= 1 << 31);
    assert!(MESSAGE_BYTES_MAX <= POOL_BYTES.1);
    assert!(FRAME_BYTES_MAX <= u16::MAX as u32);
    assert!(FRAME_HEADER_BYTES == 2 * size_of::<u64>() as u32);
    assert!(FRAME_HEADER_BYTES.is_multiple_of(FRAME_ALIGNMENT));
};

/// How large the parts of a channel are. All are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Entries of the ring from app to daemon: 16 to 65536.
    pub submission_entries: u32,
    /// Entries of the ring from daemon to app: 16 to 65536.
    pub completion_entries: u32,
    /// Bytes for messages on their way out: 64 KiB to 1 GiB.
    pub transmit_pool_bytes: u32,
    /// Bytes for messages that have come in: 64 KiB to 1 GiB. Twice the size of the largest
    /// message, at least: one that is larger than half comes only when the app has released all
    /// others.
    pub receive_pool_bytes: u32,
    /// Bytes that the app can share with its peers by one-sided operations: none, or 4 KiB to 1
    /// GiB.
    #[serde(default)]
    pub shared_bytes: u32,
}

impl Default for Sizes {
    /// 1024 entries and 16 MiB each way: two of the largest messages, or 262,144 small ones.
    fn default() -> Self {
        Self {
            submission_entries: 1024,
            completion_entries: 1024,
            transmit_pool_bytes: 16 << 20,
            receive_pool_bytes: 16 << 20,
            shared_bytes: 0,
        }
    }
}

impl Sizes {
    /// Whether a channel of these sizes can be made, and if not, which field is wrong.
    pub fn check(&self) -> Result<(), BadSizes> {
        let fields = [
            ("submission_entries", self.submission_entries, RING_ENTRIES),
            ("completion_entries", self.completion_entries, RING_ENTRIES),
            ("transmit_pool_bytes", self.transmit_pool_bytes, POOL_BYTES),
            ("receive_pool_bytes", self.receive_pool_bytes, POOL_BYTES),
            ("shared_bytes", self.shared_bytes, SHARED_BYTES),
        ];
        for (field, value, (min, max)) in fields {
            if field == "shared_bytes" && value == 0 {
                continue;
            }
            if !value.is_power_of_two() || value < min || value > max {
                return Err(BadSizes { field, value, min, max });
            }
        }
        Ok(())
    }

    /// Bytes of shared memory that a channel of these sizes takes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        Areas::new(self).total_bytes
    }
}

/// A field of [`Sizes`] is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be a power of two from {min} to {max}")]
pub struct BadSizes {
    /// The field's name.
    pub field: &'static str,
    /// The refused value.
    pub value: u32,
    /// The smallest allowed value.
    pub min: u32,
    /// The largest allowed value.
    pub max: u32,
}

/// Where the areas of a channel start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) submission_ring: usize,
    pub(crate) completion_ring: usize,
    pub(crate) transmit_pool: usize,
    pub(crate) receive_pool: usize,
    /// At the end if there is none.
    pub(crate) shared_memory: usize,
    pub(crate) total_bytes: usize,
}

impl Areas {
    /// As the daemon lays them out: the regions one after the other behind the rings.
    pub(crate) fn new(sizes: &Sizes) -> Self {
        let transmit_pool = end_of_rings(sizes);
        let receive_pool = transmit_pool + sizes.transmit_pool_bytes as usize;
        let shared_memory = receive_pool + sizes.receive_pool_bytes as usize;
        Self {
            submission_ring: SUBMISSION_RING,
            completion_ring: completion_ring(sizes),
            transmit_pool,
            receive_pool,
            shared_memory,
            total_bytes: shared_memory + sizes.shared_bytes as usize,
        }
    }

    /// What the daemon writes into the table of regions.
    pub(crate) fn regions(&self, sizes: &Sizes) -> impl ExactSizeIterator<Item = Region> {
        let regions = [
            Region::transmit_pool(self.transmit_pool, sizes.transmit_pool_bytes),
            Region::receive_pool(self.receive_pool, sizes.receive_pool_bytes),
            Region::shared_memory(self.shared_memory, sizes.shared_bytes),
        ];
        regions.into_iter().take(if sizes.shared_bytes > 0 { 3 } else { 2 })
    }

    /// As the app finds them in memory of `total_bytes` whose table says `regions`. `None` if they
    /// cannot be there.
    pub(crate) fn find(sizes: &Sizes, regions: &[Region], total_bytes: usize) -> Option<Self> {
        let first = end_of_rings(sizes);
        let find = |wanted: Region| regions::find(regions, wanted, first..total_bytes);
        let transmit_pool = find(Region::transmit_pool(0, sizes.transmit_pool_bytes))?;
        let receive_pool = find(Region::receive_pool(0, sizes.receive_pool_bytes))?;
        let shared_memory = if sizes.shared_bytes > 0 {
            find(Region::shared_memory(0, sizes.shared_bytes))?
        } else {
            total_bytes
        };
        let mut found = [
            (transmit_pool, sizes.transmit_pool_bytes),
            (receive_pool, sizes.receive_pool_bytes),
            (shared_memory, sizes.shared_bytes),
        ];
        found.sort_unstable();
        let are_apart = found.windows(2).all(|two| two[0].0 + two[0].1 as usize <= two[1].0);
        are_apart.then_some(Self {
            submission_ring: SUBMISSION_RING,
            completion_ring: completion_ring(sizes),
            transmit_pool,
            receive_pool,
            shared_memory,
            total_bytes,
        })
    }
}

fn completion_ring(sizes: &Sizes) -> usize {
    SUBMISSION_RING + ring_bytes(sizes.submission_entries)
}

fn end_of_rings(sizes: &Sizes) -> usize {
    completion_ring(sizes) + ring_bytes(sizes.completion_entries)
}

fn ring_bytes(entries: u32) -> usize {
    (entries as usize * ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
}

#[cfg(all(test, not(loom)))]
mod tests;
