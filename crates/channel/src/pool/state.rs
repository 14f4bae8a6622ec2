//! A pool from what is in use of it: all that has to be saved of one.

use clearway_base::state::{Invalid, ensure};

use super::{
    CELL_BYTES_LOG2_MAX, CELL_BYTES_LOG2_MIN, END, IN_USE, NO_SLAB, NOT_A_CELL, Pool,
    SLAB_BYTES_LOG2, SLAB_ORDER, UNITS_PER_SLAB, buddy, cell_bytes_log2, class_of, is_in_use,
};

impl Pool {
    /// A pool of which these pieces, by offset and length, are in use: such as one of this kind
    /// could have given out, and no two of them overlap.
    pub(crate) fn restore(
        bytes: u32,
        pieces: impl Iterator<Item = (u32, u32)>,
    ) -> Result<Self, Invalid> {
        let mut pool = Self::new(bytes);
        for (offset, length) in pieces {
            let is_free = if length > 1 << CELL_BYTES_LOG2_MAX {
                pool.claim_pages(offset, length)
            } else {
                pool.claim_cell(offset, cell_bytes_log2(length))
            };
            ensure(is_free, "memory of the pool that is used twice, or that there is not")?;
        }
        for index in 0..pool.slabs.len() as u32 {
            pool.collect_free_cells(index);
        }
        Ok(pool)
    }

    fn claim_pages(&mut self, offset: u32, length: u32) -> bool {
        let Some(order) = buddy::order_of(length) else { return false };
        let is_free = self.buddies.claim(offset, order);
        if is_free {
            self.taken_bytes += 1 << (u32::from(order) + buddy::PAGE_BYTES_LOG2);
        }
        is_free
    }

    fn claim_cell(&mut self, offset: u32, cell_bytes_log2: u32) -> bool {
        let index = offset >> SLAB_BYTES_LOG2;
        let Some(slab) = self.slabs.get_mut(index as usize) else { return false };
        if slab.cell_bytes_log2 == 0 {
            if !self.buddies.claim(index << SLAB_BYTES_LOG2, SLAB_ORDER) {
                return false;
            }
            let first = (index * UNITS_PER_SLAB) as usize;
            self.links[first..first + UNITS_PER_SLAB as usize].fill(NOT_A_CELL);
            *slab = NO_SLAB;
            slab.cell_bytes_log2 = cell_bytes_log2 as u8;
            slab.fresh = UNITS_PER_SLAB as u16;
        }
        let link = &mut self.links[(offset >> CELL_BYTES_LOG2_MIN) as usize];
        let is_cell = u32::from(slab.cell_bytes_log2) == cell_bytes_log2
            && offset.is_multiple_of(1 << cell_bytes_log2);
        if !is_cell || is_in_use(*link) {
            return false;
        }
        *link = IN_USE + class_of(cell_bytes_log2) as u16;
        slab.cells_used += 1;
        self.taken_bytes += 1 << cell_bytes_log2;
        true
    }

    /// The cells of a slab that are not in use can be had again, the first one first.
    fn collect_free_cells(&mut self, index: u32) {
        let slab = &mut self.slabs[index as usize];
        if slab.cell_bytes_log2 == 0 {
            return;
        }
        let cell_units = 1 << (u32::from(slab.cell_bytes_log2) - CELL_BYTES_LOG2_MIN);
        slab.free = END;
        for unit in (0..UNITS_PER_SLAB).step_by(cell_units).rev() {
            let link = &mut self.links[(index * UNITS_PER_SLAB + unit) as usize];
            if !is_in_use(*link) {
                *link = core::mem::replace(&mut slab.free, unit as u16);
            }
        }
        if !slab.is_full() {
            let class = class_of(slab.cell_bytes_log2.into());
            self.link(class, index);
        }
    }
}
