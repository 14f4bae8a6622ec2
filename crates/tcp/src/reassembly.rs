//! What has come and not been taken: in order, and out of order.
//!
//! ```text
//! taken by the app │ in_order          │ next   hole   ▒▒▒▒ ahead ▒▒▒▒   hole   ▒▒▒▒
//! ```
//!
//! Every byte has one owner: of bytes that come twice, the first are kept, so that nobody can
//! change what has been received by sending it again.

use core::ops::Range;
use std::collections::VecDeque;

use clearway_base::{RangeSet, ShortQueue};

use crate::extent::Extent;

/// Bytes that came before others that are to stand in front of them.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    extent: Extent,
}

impl Piece {
    const fn end(&self) -> u64 {
        self.start + self.extent.length as u64
    }
}

/// The queue of received extents.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    in_order: ShortQueue<Extent>,
    in_order_bytes: u64,
    /// Sorted, disjoint.
    ahead: VecDeque<Piece>,
    ahead_bytes: u64,
    /// The same as ranges: neighbours are joined.
    ranges: RangeSet,
    /// Positions in the ranges that changed last, newest first: RFC 2018, section 4.
    recent: [u64; RECENT],
}

/// Blocks that fit into a segment.
const RECENT: usize = 4;

/// RFC 9293 sets no bound to what comes out of order; memory does. Each piece costs its owner a
/// buffer, however few bytes it has: holes made by an attacker are many and its pieces tiny.
const PIECES_MIN: usize = 64;
const BYTES_PER_PIECE: usize = 512;

impl Reassembly {
    /// Appends what comes next. The caller knows that it does.
    #[inline]
    pub(crate) fn append(&mut self, extent: Extent) {
        self.in_order_bytes += u64::from(extent.length);
        if let Some(last) = self.in_order.back_mut()
            && last.touches(extent)
            && let Some(length) = last.length.checked_add(extent.length)
        {
            last.length = length;
            return;
        }
        self.in_order.push_back(extent);
    }

    /// What is in order, and what is not and where it stands.
    pub(crate) fn save(&self) -> (Vec<Extent>, Vec<(u64, Extent)>) {
        let ahead = self.ahead.iter().map(|piece| (piece.start, piece.extent));
        (self.in_order.iter().copied().collect(), ahead.collect())
    }

    /// True if nothing is out of order.
    #[inline]
    pub(crate) fn is_contiguous(&self) -> bool {
        self.ahead.is_empty()
    }

    /// What of `range`, which is not before what comes next, has not come yet: the first such part.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let start = self.ranges.range_of(range.start).map_or(range.start, |known| known.end);
        if start >= range.end {
            return None;
        }
        let index = self.ahead.partition_point(|piece| piece.start <= start);
        let end = self.ahead.get(index).map_or(range.end, |piece| piece.start.min(range.end));
        Some(start..end)
    }

    /// What of `range` has come out of order: the first such part.
    pub(crate) fn known(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let known = self.ranges.overlapping(range.clone()).next()?;
        Some(known.start.max(range.start)..known.end.min(range.end))
    }

    /// True if one more piece may be kept, of a connection that has a buffer of `buffer_bytes`.
    pub(crate) fn has_room(&self, buffer_bytes: u32) -> bool {
        self.ahead.len() < PIECES_MIN + buffer_bytes as usize / BYTES_PER_PIECE
    }

    /// Keeps what is missing and out of order.
    pub(crate) fn insert(&mut self, start: u64, extent: Extent) {
        let index = self.ahead.partition_point(|piece| piece.start < start);
        self.ahead_bytes += u64::from(extent.length);
        self.ranges.insert(start..start + u64::from(extent.length));
        if let Some(before) = index.checked_sub(1).and_then(|index| self.ahead.get_mut(index))
            && before.end() == start
            && before.extent.touches(extent)
            && let Some(length) = before.extent.length.checked_add(extent.length)
        {
            before.extent.length = length;
            return;
        }
        self.ahead.insert(index, Piece { start, extent });
    }

    /// Notes that what stands at `position` has just come, perhaps again.
    pub(crate) fn touch(&mut self, position: u64) {
        let range = self.ranges.range_of(position);
        let is_other = |known: &u64| range.as_ref().is_none_or(|range| !range.contains(known));
        let mut recent = [0; RECENT];
        recent[0] = position;
        let others = self.recent.iter().copied().filter(is_other);
        for (slot, other) in recent[1..].iter_mut().zip(others) {
            *slot = other;
        }
        self.recent = recent;
    }

    /// The ranges that came out of order, that which changed last first.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.recent.iter().filter_map(|position| self.ranges.range_of(*position))
    }

    /// Moves what is in order now, since all before `next` has come. Returns what comes next.
    pub(crate) fn advance(&mut self, mut next: u64) -> u64 {
        while let Some(piece) = self.ahead.front().copied().filter(|piece| piece.start <= next) {
            self.ahead.pop_front();
            self.ahead_bytes -= u64::from(piece.extent.length);
            self.append(piece.extent);
            next = piece.end();
        }
        self.ranges.forget_below(next);
        next
    }

    /// Hands over the next extent in order.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Extent> {
        let extent = self.in_order.pop_front()?;
        self.in_order_bytes -= u64::from(extent.length);
        Some(extent)
    }

    /// The same, but of one that is longer than `most` bytes only so many.
    pub(crate) fn take_at_most(&mut self, most: u32) -> Option<Extent> {
        let extent = *self.in_order.front()?;
        if extent.length <= most {
            return self.take();
        }
        if most == 0 {
            return None;
        }
        if let Some(first) = self.in_order.front_mut() {
            *first = extent.without_first(most);
        }
        self.in_order_bytes -= u64::from(most);
        Some(extent.first(most))
    }

    /// What is in order and not taken.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = Extent> + '_ {
        self.in_order.iter().copied()
    }

    /// Bytes in order that nobody has taken.
    #[inline]
    pub(crate) const fn in_order_bytes(&self) -> u64 {
        self.in_order_bytes
    }

    /// What is out of order.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = Extent> + '_ {
        self.ahead.iter().map(|piece| piece.extent)
    }

    /// Bytes out of order.
    #[inline]
    pub(crate) const fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    /// Gives up half of what is out of order, that which stands farthest behind: RFC 2018, section
    /// 8, "the data receiver is permitted to discard data in its queue that has not been
    /// acknowledged to the data sender, even if the data has already been reported in a SACK
    /// option".
    pub(crate) fn renege(&mut self, mut discard: impl FnMut(Extent)) {
        let half = self.ahead_bytes / 2;
        while self.ahead_bytes > half
            && let Some(piece) = self.ahead.pop_back()
        {
            self.ahead_bytes -= u64::from(piece.extent.length);
            self.ranges.remove(piece.start..piece.end());
            discard(piece.extent);
        }
    }

    /// Gives up everything.
    pub(crate) fn drain(&mut self, mut discard: impl FnMut(Extent)) {
        while let Some(extent) = self.take() {
            discard(extent);
        }
        self.ahead.drain(..).for_each(|piece| discard(piece.extent));
        self.ahead_bytes = 0;
        self.ranges = RangeSet::new();
    }
}
