//! Blocks of selective acknowledgements: RFC 2018, section 3.

use core::ops::Deref;

pub(super) const BLOCK_LENGTH: usize = 8;
const BLOCKS_MAX: usize = 4;

/// Up to four blocks.
pub type SackBlocks = Blocks<BLOCKS_MAX>;

/// Blocks of sequence numbers, each its first and the one behind its last: as they come, nothing
/// about them is certain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Blocks<const MAX: usize> {
    blocks: [(u32, u32); MAX],
    count: Count,
}

/// How many blocks there are. Not a plain number, so that [`super::Extra`] has a value to
/// spare.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
enum Count {
    #[default]
    None,
    One,
    Two,
    Three,
    Four,
}

const COUNTS: [Count; BLOCKS_MAX + 1] =
    [Count::None, Count::One, Count::Two, Count::Three, Count::Four];

impl<const MAX: usize> Blocks<MAX> {
    /// No block.
    pub const NONE: Self = Self { blocks: [(0, 0); MAX], count: Count::None };

    /// Appends a block if there is room.
    #[inline]
    pub fn push(&mut self, left: u32, right: u32) {
        let count = self.count as usize;
        if let Some(block) = self.blocks.get_mut(count) {
            *block = (left, right);
            self.count = COUNTS[count + 1];
        }
    }

    /// Forgets those from the `count`th on.
    pub fn truncate(&mut self, count: usize) {
        let count = count.min(self.count as usize);
        self.count = COUNTS[count];
        self.blocks[count..].fill((0, 0));
    }

    /// As many of `blocks` as there is room for.
    #[must_use]
    pub fn of(blocks: &[(u32, u32)]) -> Self {
        let mut of = Self::NONE;
        blocks.iter().for_each(|(left, right)| of.push(*left, *right));
        of
    }

    /// What they and the kind and length of their option take; nothing if there are none.
    pub(super) const fn length(&self) -> usize {
        match self.count {
            Count::None => 0,
            count => 2 + BLOCK_LENGTH * count as usize,
        }
    }
}

impl<const MAX: usize> Default for Blocks<MAX> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<const MAX: usize> Deref for Blocks<MAX> {
    type Target = [(u32, u32)];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.blocks[..self.count as usize]
    }
}

impl<const MAX: usize> core::fmt::Debug for Blocks<MAX> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
