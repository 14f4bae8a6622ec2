//! Regions: what extents name. The two pools are the first; what registered memory and streams of
//! bytes need comes behind them.
//!
//! The daemon writes the table before it hands the memory over, and never reads it: it has its own.
//! The app reads it once, when it opens the channel, and refuses one in which a region that it
//! knows is not where it can be. A kind that it does not know it leaves alone: nothing is told of
//! such a region to an app that did not ask for it. An entry names a region by its place in the
//! table, or its opcode says which it means: `send` the transmit pool, `received` the receive pool.

use core::ops::Range;

use super::PAGE_BYTES;

/// The most regions of a channel.
pub(crate) const REGIONS_MAX: usize = 16;
/// Bytes of a region in the table.
pub(crate) const REGION_BYTES: usize = 32;

/// A kind of region.
pub(crate) struct RegionKind {
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    /// For `docs/channel.md`.
    #[cfg_attr(any(not(test), miri), expect(dead_code))]
    pub(crate) doc: &'static str,
}

const TRANSMIT_POOL: u64 = 1;
const RECEIVE_POOL: u64 = 2;
const SHARED_MEMORY: u64 = 3;

/// All kinds.
pub(crate) const KINDS: &[RegionKind] = &[
    RegionKind {
        number: TRANSMIT_POOL,
        name: "transmit pool",
        doc: "what the app sends; it writes, and the daemon only reads",
    },
    RegionKind {
        number: RECEIVE_POOL,
        name: "receive pool",
        doc: "what the app receives; the daemon writes, and the app only reads",
    },
    RegionKind {
        number: SHARED_MEMORY,
        name: "shared memory",
        doc: "what the app shares with its peers by one-sided operations; both write",
    },
];

/// A piece of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) kind: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Region {
    pub(crate) fn transmit_pool(offset: usize, length: u32) -> Self {
        Self { kind: TRANSMIT_POOL, offset: offset as u64, length: length.into() }
    }

    pub(crate) fn receive_pool(offset: usize, length: u32) -> Self {
        Self { kind: RECEIVE_POOL, offset: offset as u64, length: length.into() }
    }

    pub(crate) fn shared_memory(offset: usize, length: u32) -> Self {
        Self { kind: SHARED_MEMORY, offset: offset as u64, length: length.into() }
    }
}

/// Where the one region of `wanted`'s kind and length starts, if it is on a page boundary and
/// `within` that part of the memory.
pub(super) fn find(regions: &[Region], wanted: Region, within: Range<usize>) -> Option<usize> {
    let mut found = regions.iter().filter(|region| region.kind == wanted.kind);
    let region = found.next().filter(|region| region.length == wanted.length)?;
    let start = usize::try_from(region.offset).ok()?;
    let end = start.checked_add(usize::try_from(region.length).ok()?)?;
    let is_there = start >= within.start && end <= within.end && start.is_multiple_of(PAGE_BYTES);
    (is_there && found.next().is_none()).then_some(start)
}
