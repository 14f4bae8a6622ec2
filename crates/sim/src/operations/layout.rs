//! What an app shares, and where it lies in the memory that it may share.
//!
//! ```text
//!  0 ground: all may do all     moat   lease: all may read and write   quarry: all may read   moat
//!    who │ words │ records │ ...       comes and goes                   never changes
//!                                                                        vault: some may do some
//!                                                                         club: members may
//! ```
//!
//! Nobody may read or write the moat. The vault is behind the last (`vault.rs`), and then comes the
//! club (`club.rs`).

use std::ops::Range;

use clearway_channel::{Description, Grant, Grantee, Rights};

/// Who shares it: one word.
pub(crate) const WHO: u32 = 0;
/// Words that are exchanged.
const SWAPS: u32 = 64;
pub(crate) const SWAPS_COUNT: usize = 4;
/// Words that are added to.
const ADDS: u32 = 4096;
pub(crate) const ADDS_COUNT: usize = 256;
/// Records that are written and read as a whole, each at once.
const RECORDS: u32 = 8192;
pub(crate) const RECORD_BYTES: [u32; 4] = [8, 64, 1400, 4096];
/// What the owner alone writes, in two steps, between two versions.
pub(crate) const JOURNAL: u32 = 24_576;
pub(crate) const JOURNAL_BYTES: u32 = 1024;
/// Keys, each with an entry that points into the quarry.
pub(crate) const TABLE: u32 = 26_624;
pub(crate) const TABLE_STRIDE: u32 = 16;
pub(crate) const ENTRIES: usize = 32;
/// Longer pieces, one of which is not at a multiple of 8.
const BLOCKS: [u32; 2] = [28_675, 36_864];
const BLOCK_BYTES: u32 = 6001;

const MOAT_BYTES: u32 = 4096;
/// Behind the last moat, which is so much smaller.
pub(crate) const VAULT_BYTES: u32 = 1024;
pub(crate) const QUARRY_BYTES: u32 = 8192;
/// Words of the club that are added to.
pub(crate) const CLUB_WORDS: usize = 256;

/// The regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    Ground,
    Lease,
    Quarry,
    Vault,
    Club,
}

impl Region {
    /// Those that all may find.
    pub(crate) const OPEN: [Self; 3] = [Self::Ground, Self::Lease, Self::Quarry];
    pub(crate) const COUNT: usize = 2 + Self::OPEN.len();

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ground => "ground",
            Self::Lease => "lease",
            Self::Quarry => "quarry",
            Self::Vault => "vault",
            Self::Club => "club",
        }
    }

    /// What the owner's daemon is told of it, if these are the grants of its vault and its club.
    pub(crate) fn description(self, of_vault: &[Grant], of_club: &[Grant]) -> Vec<u8> {
        let to_all = |rights| vec![Grant { to: Grantee::Anybody, rights }];
        let grants = match self {
            Self::Ground => to_all(Rights::ALL),
            Self::Lease => to_all(Rights::READ | Rights::WRITE),
            Self::Quarry => to_all(Rights::READ),
            Self::Vault => of_vault.to_vec(),
            Self::Club => of_club.to_vec(),
        };
        let description = Description { name: self.name().into(), grants };
        description.to_bytes().expect("a short name, and few grants")
    }
}

/// How large the pieces are: apps with room for the largest messages have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) is_large: bool,
}

impl Layout {
    /// The whole of an app's shared memory, of which the end may be left over.
    pub(crate) const fn bytes(self) -> u32 {
        self.region(Region::Club).end.next_power_of_two()
    }

    /// Where a region lies.
    pub(crate) const fn region(self, region: Region) -> Range<u32> {
        let block_bytes = if self.is_large { 120 << 10 } else { 8 << 10 };
        let ground = BLOCKS[1] + block_bytes;
        let lease = ground + MOAT_BYTES;
        let quarry = lease + if self.is_large { 128 << 10 } else { 4 << 10 };
        match region {
            Region::Ground => 0..ground,
            Region::Lease => lease..quarry,
            Region::Quarry => quarry..quarry + QUARRY_BYTES,
            Region::Vault => {
                let end = quarry + QUARRY_BYTES + MOAT_BYTES;
                end - VAULT_BYTES..end
            }
            Region::Club => {
                let start = quarry + QUARRY_BYTES + MOAT_BYTES;
                start..start + 8 * CLUB_WORDS as u32 + 2 * self.club_part()
            }
        }
    }

    /// Bytes of the club's board, and of its yard.
    const fn club_part(self) -> u32 {
        if self.is_large { 64 << 10 } else { 8 << 10 }
    }

    /// What the owner of a club writes, and others read.
    pub(crate) const fn club_board(self) -> Range<u32> {
        let end = self.club_yard().start;
        end - self.club_part()..end
    }

    /// What others write.
    pub(crate) const fn club_yard(self) -> Range<u32> {
        let end = self.region(Region::Club).end;
        end - self.club_part()..end
    }

    /// What one of them adds to.
    pub(crate) const fn club_word(self, index: u8) -> u32 {
        self.region(Region::Club).start + 8 * index as u32
    }

    /// What nobody may touch.
    pub(crate) const fn moats(self) -> [Range<u32>; 2] {
        let (ground, quarry) = (self.region(Region::Ground), self.region(Region::Quarry));
        let vault = self.region(Region::Vault);
        [ground.end..ground.end + MOAT_BYTES, quarry.end..vault.start]
    }

    /// Bytes of a region.
    pub(crate) fn length(self, region: Region) -> u32 {
        self.region(region).len() as u32
    }

    /// How much of the lease may be written, from its beginning on; what is read of it lies behind.
    pub(crate) const fn lease_written(self) -> u32 {
        if self.is_large { 64 << 10 } else { 64 }
    }

    /// One of the two longer pieces of the ground.
    pub(crate) const fn block(self, index: usize) -> Range<u32> {
        let end =
            if index == 0 { BLOCKS[0] + BLOCK_BYTES } else { self.region(Region::Ground).end };
        BLOCKS[index]..end
    }
}

pub(crate) const fn swap_at(index: usize) -> u32 {
    SWAPS + 8 * index as u32
}

pub(crate) const fn add_at(index: usize) -> u32 {
    ADDS + 8 * index as u32
}

pub(crate) const fn record_at(index: usize) -> u32 {
    RECORDS + 4096 * index as u32
}

/// The entry of a table: behind its key.
pub(crate) const fn entry_at(index: usize) -> u32 {
    TABLE + TABLE_STRIDE * index as u32 + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart() {
        for is_large in [false, true] {
            let layout = Layout { is_large };
            let piece = |start: u32, bytes: usize| start..start + bytes as u32;
            let mut pieces = vec![
                piece(WHO, 8),
                piece(SWAPS, 8 * SWAPS_COUNT),
                piece(ADDS, 8 * ADDS_COUNT),
                piece(JOURNAL, JOURNAL_BYTES as usize),
                piece(TABLE, TABLE_STRIDE as usize * ENTRIES),
                layout.block(0),
                layout.block(1),
                layout.moats()[0].clone(),
                layout.region(Region::Lease),
                layout.region(Region::Quarry),
                layout.moats()[1].clone(),
                layout.region(Region::Vault),
                piece(layout.club_word(0), 8 * CLUB_WORDS),
                layout.club_board(),
                layout.club_yard(),
            ];
            let record = |(index, bytes): (usize, &u32)| piece(record_at(index), *bytes as usize);
            pieces.extend(RECORD_BYTES.iter().enumerate().map(record));
            pieces.sort_by_key(|piece| piece.start);
            assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start), "{pieces:?}");
            assert_eq!(layout.region(Region::Ground).end, layout.moats()[0].start);
            assert_eq!(layout.bytes(), if is_large { 512 << 10 } else { 128 << 10 });
        }
    }
}
