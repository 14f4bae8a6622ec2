//! Which bytes of a pool are in use: an allocator whose books are private to the side that keeps
//! them, so that nothing the other side writes can confuse it. It hands out offsets and never
//! touches the bytes.
//!
//! ```text
//!   pool = pages of 16 KiB, joined into power-of-two blocks by a buddy allocator
//!          ├─ blocks over 8 KiB: given out as they are
//!          └─ slabs of 64 KiB: cut into cells of one size, 64 B to 8 KiB, last freed first used
//! ```
//!
//! Small cells are the common path: a few loads and stores, no search. What was freed last is kept
//! in front of the slabs ("magazines", Bonwick and Adams, 2001), which do not hear of it. Buddies
//! join as soon as they are free, and a slab goes back when its last cell does (but for one per
//! size), so no operation takes longer than a walk over the thirty or so sizes.

use core::fmt;

mod buddy;
mod state;

use buddy::{Buddies, PAGE_BYTES_LOG2};

/// The smallest cell.
const CELL_BYTES_LOG2_MIN: u32 = 6;
/// The largest cell; anything larger is whole pages.
const CELL_BYTES_LOG2_MAX: u32 = 13;
const _: () = assert!(crate::SMALL_MESSAGE_BYTES_MAX == 1 << CELL_BYTES_LOG2_MAX);
const CLASSES: usize = (CELL_BYTES_LOG2_MAX - CELL_BYTES_LOG2_MIN + 1) as usize;
/// A slab is four pages: 1024 of the smallest cells, 8 of the largest.
const SLAB_BYTES_LOG2: u32 = 16;
const SLAB_ORDER: u8 = (SLAB_BYTES_LOG2 - PAGE_BYTES_LOG2) as u8;
const UNITS_PER_SLAB: u32 = 1 << (SLAB_BYTES_LOG2 - CELL_BYTES_LOG2_MIN);

/// `links`: the end of a list of free cells.
const END: u16 = u16::MAX;
/// `links`: a cell that was never used, or no cell.
const NOT_A_CELL: u16 = u16::MAX - 1;
/// `links`: a cell that is kept in front of its slab, where it counts as used.
const KEPT: u16 = u16::MAX - 2;
/// `links`: a cell of the first class that is in use; those of the others are the next numbers.
const IN_USE: u16 = 1 << 15;
/// No slab.
const NONE: u32 = u32::MAX;

/// An allocator over the offsets `0..bytes`.
pub struct Pool {
    /// Per class, cells that were freed last.
    kept: [Kept; CLASSES],
    /// Per class, the slab to allocate from: the first of a list of slabs with free cells.
    partial: [u32; CLASSES],
    slabs: Box<[Slab]>,
    /// Per unit of 64 bytes: one of the marks above, or where the next free cell of the slab is.
    links: Box<[u16]>,
    buddies: Buddies,
    /// In use, or kept.
    taken_bytes: u32,
    bytes: u32,
}

/// Free cells of one size, by their units: as many as an app has in flight that sends for a while
/// before it reads.
#[derive(Clone, Copy)]
struct Kept {
    count: u32,
    units: [u32; KEPT_MAX],
}

const KEPT_MAX: usize = 32;

/// The books of 64 KiB while they are cut into cells.
#[derive(Clone, Copy)]
struct Slab {
    /// Neighbours in the list of slabs of this class that have free cells.
    previous: u32,
    next: u32,
    /// The first free cell, in units from the start of the slab, or `END`.
    free: u16,
    /// Cells that were never used start here, in units.
    fresh: u16,
    cells_used: u16,
    /// Log2 of the bytes of a cell; 0 while this is no slab.
    cell_bytes_log2: u8,
}

const NO_SLAB: Slab =
    Slab { previous: NONE, next: NONE, free: END, fresh: 0, cells_used: 0, cell_bytes_log2: 0 };

/// An offset was freed that is not allocated: never was, or was freed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {0} of the pool is not allocated")]
pub struct NotAllocated(pub u32);

impl Pool {
    /// A pool with nothing allocated. `bytes` is a power of two from 64 KiB to 2 GiB.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        assert!(bytes.is_power_of_two() && bytes >= 1 << SLAB_BYTES_LOG2, "pool of {bytes} bytes");
        Self {
            kept: [Kept { count: 0, units: [0; KEPT_MAX] }; CLASSES],
            partial: [NONE; CLASSES],
            slabs: vec![NO_SLAB; (bytes >> SLAB_BYTES_LOG2) as usize].into(),
            links: vec![0; (bytes >> CELL_BYTES_LOG2_MIN) as usize].into(),
            buddies: Buddies::new(bytes),
            taken_bytes: 0,
            bytes,
        }
    }

    /// Room for `length` bytes, aligned to `length` rounded up to a power of two. `None` if there
    /// is no piece of that size left.
    #[inline]
    pub fn allocate(&mut self, length: u32) -> Option<u32> {
        if length > 1 << CELL_BYTES_LOG2_MAX {
            return self.allocate_pages(length);
        }
        let class = class_of(cell_bytes_log2(length));
        let unit = match self.kept[class].pop() {
            Some(unit) => unit,
            None => self.allocate_cell(class)?,
        };
        self.links[unit as usize] = IN_USE + class as u16;
        Some(unit << CELL_BYTES_LOG2_MIN)
    }

    /// Takes back what `allocate` gave.
    #[inline]
    pub fn free(&mut self, offset: u32) -> Result<(), NotAllocated> {
        let unit = offset >> CELL_BYTES_LOG2_MIN;
        let Some(link) = self.links.get_mut(unit as usize) else {
            return Err(NotAllocated(offset));
        };
        let is_aligned = offset.is_multiple_of(1 << CELL_BYTES_LOG2_MIN);
        match self.kept.get_mut(usize::from(link.wrapping_sub(IN_USE))) {
            Some(kept) if is_aligned => {
                *link = KEPT;
                if !kept.push(unit) {
                    self.free_cell(unit);
                }
                Ok(())
            }
            _ => self.free_pages(offset),
        }
    }

    /// Bytes in use, rounding included.
    #[must_use]
    pub fn used_bytes(&self) -> u32 {
        let kept = (CELL_BYTES_LOG2_MIN..).zip(&self.kept);
        self.taken_bytes - kept.map(|(log2, kept)| kept.count << log2).sum::<u32>()
    }

    /// Bytes managed.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The unit of a free cell of a slab.
    #[inline(never)]
    fn allocate_cell(&mut self, class: usize) -> Option<u32> {
        let mut index = self.partial[class];
        if index == NONE {
            index = self.add_slab(class)?;
        }
        let (slab, first) = (&mut self.slabs[index as usize], index * UNITS_PER_SLAB);
        let unit = if slab.free != END {
            let unit = first + u32::from(slab.free);
            slab.free = self.links[unit as usize];
            unit
        } else {
            let unit = first + u32::from(slab.fresh);
            slab.fresh += 1 << class;
            unit
        };
        slab.cells_used += 1;
        if slab.is_full() {
            self.unlink(class, index);
        }
        self.taken_bytes += 1 << (class as u32 + CELL_BYTES_LOG2_MIN);
        Some(unit)
    }

    /// Gives a cell back to its slab.
    #[inline(never)]
    fn free_cell(&mut self, unit: u32) {
        let index = unit / UNITS_PER_SLAB;
        let slab = &mut self.slabs[index as usize];
        let was_full = slab.is_full();
        self.links[unit as usize] = slab.free;
        slab.free = (unit % UNITS_PER_SLAB) as u16;
        slab.cells_used -= 1;
        self.taken_bytes -= 1 << slab.cell_bytes_log2;
        let (class, empty) = (class_of(u32::from(slab.cell_bytes_log2)), slab.cells_used == 0);
        if was_full {
            self.link(class, index);
        }
        if empty && self.has_another(class, index) {
            self.remove_slab(class, index);
        }
    }

    #[cold]
    fn allocate_pages(&mut self, length: u32) -> Option<u32> {
        let order = buddy::order_of(length)?;
        let offset = self.buddies.allocate(order).or_else(|| {
            self.remove_empty_slabs();
            self.buddies.allocate(order)
        })?;
        self.taken_bytes += 1 << (u32::from(order) + PAGE_BYTES_LOG2);
        Some(offset)
    }

    /// Takes back what is no cell that is in use.
    #[cold]
    fn free_pages(&mut self, offset: u32) -> Result<(), NotAllocated> {
        if self.slabs[(offset >> SLAB_BYTES_LOG2) as usize].cell_bytes_log2 != 0 {
            return Err(NotAllocated(offset));
        }
        let order = self.buddies.free(offset).ok_or(NotAllocated(offset))?;
        self.taken_bytes -= 1 << (u32::from(order) + PAGE_BYTES_LOG2);
        Ok(())
    }

    /// Cuts a new slab into cells of `class` and makes it the one to allocate from.
    #[cold]
    fn add_slab(&mut self, class: usize) -> Option<u32> {
        let offset = self.buddies.allocate(SLAB_ORDER).or_else(|| {
            self.remove_empty_slabs();
            self.buddies.allocate(SLAB_ORDER)
        })?;
        let index = offset >> SLAB_BYTES_LOG2;
        let first = (index * UNITS_PER_SLAB) as usize;
        self.links[first..first + UNITS_PER_SLAB as usize].fill(NOT_A_CELL);
        self.slabs[index as usize] =
            Slab { cell_bytes_log2: class as u8 + CELL_BYTES_LOG2_MIN as u8, ..NO_SLAB };
        self.link(class, index);
        Some(index)
    }

    #[cold]
    fn remove_slab(&mut self, class: usize, index: u32) {
        self.unlink(class, index);
        self.slabs[index as usize] = NO_SLAB;
        let freed = self.buddies.free(index << SLAB_BYTES_LOG2);
        debug_assert_eq!(freed, Some(SLAB_ORDER));
    }

    /// The cells and slabs that were kept for the next message of their size go back: others need
    /// the room.
    fn remove_empty_slabs(&mut self) {
        for class in 0..CLASSES {
            while let Some(unit) = self.kept[class].pop() {
                self.free_cell(unit);
            }
        }
        for class in 0..CLASSES {
            let index = self.partial[class];
            if index != NONE && self.slabs[index as usize].cells_used == 0 {
                self.remove_slab(class, index);
            }
        }
    }

    /// Whether the class could go on without the slab at `index`.
    fn has_another(&self, class: usize, index: u32) -> bool {
        self.partial[class] != index || self.slabs[index as usize].next != NONE
    }

    /// Puts a slab into its class's list: first, but behind an empty one, so that an empty slab
    /// is always the first of its class and found by `remove_empty_slabs`. Rare, as all that
    /// follows: a slab has many cells.
    #[cold]
    fn link(&mut self, class: usize, index: u32) {
        let first = self.partial[class];
        let (previous, next) = match self.slabs.get(first as usize) {
            Some(slab) if slab.cells_used == 0 => (first, slab.next),
            _ => (NONE, first),
        };
        (self.slabs[index as usize].previous, self.slabs[index as usize].next) = (previous, next);
        match previous {
            NONE => self.partial[class] = index,
            _ => self.slabs[previous as usize].next = index,
        }
        if next != NONE {
            self.slabs[next as usize].previous = index;
        }
    }

    #[cold]
    fn unlink(&mut self, class: usize, index: u32) {
        let Slab { previous, next, .. } = self.slabs[index as usize];
        match previous {
            NONE => self.partial[class] = next,
            _ => self.slabs[previous as usize].next = next,
        }
        if next != NONE {
            self.slabs[next as usize].previous = previous;
        }
    }
}

impl Kept {
    /// Keeps a cell. False if there is no room.
    #[inline]
    fn push(&mut self, unit: u32) -> bool {
        let Some(place) = self.units.get_mut(self.count as usize) else { return false };
        *place = unit;
        self.count += 1;
        true
    }

    /// The last one that was kept.
    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        self.units.get(self.count as usize).copied()
    }
}

impl Slab {
    #[inline]
    fn is_full(&self) -> bool {
        self.free == END && u32::from(self.fresh) == UNITS_PER_SLAB
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} bytes used)", self.used_bytes(), self.bytes)
    }
}

/// Log2 of the smallest cell that `length` bytes fit in.
#[inline]
fn cell_bytes_log2(length: u32) -> u32 {
    let bits = u32::BITS - length.saturating_sub(1).leading_zeros();
    bits.max(CELL_BYTES_LOG2_MIN)
}

/// What a piece of `length` bytes takes of a pool.
pub(crate) fn piece_bytes(length: u32) -> u32 {
    1 << cell_bytes_log2(length)
}

/// Whether it is the mark of a cell that is in use.
fn is_in_use(link: u16) -> bool {
    usize::from(link.wrapping_sub(IN_USE)) < CLASSES
}

#[inline]
fn class_of(cell_bytes_log2: u32) -> usize {
    (cell_bytes_log2 - CELL_BYTES_LOG2_MIN) as usize
}

#[cfg(all(test, not(loom)))]
mod tests;
