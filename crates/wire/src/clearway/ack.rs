//! The ack frame: which packets were received, as ranges of packet numbers, newest first.
//!
//! ```text
//!  0       1       2       3       4       5       6       7
//! +-------+-------+---------------+-------------------------------+
//! | 0x02  |C count| marked packets|           delay, ns           |
//! +-------+-------+---------------+-------------------------------+
//! |                            largest                            |
//! +-------------------------------+-------------------------------+
//! |          first range          |  then `count` times:
//! +-------------------------------+-------------------------------+
//! |              gap              |            length             |
//! +-------------------------------+-------------------------------+
//! ```

use super::{ACK_FRAME_LENGTH, ACK_RANGE_LENGTH, ACK_RANGES_MAX, frame_type};
use crate::Malformed;
use crate::bytes::{put, u16_at, u32_at, u64_at};
use core::ops::Range;

/// What an ack frame says about explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnReport {
    /// The newest packet came as capable of being marked, or marked: the path leaves that alone.
    pub is_capable: bool,
    /// How many packets of the flow came marked so far, wrapping.
    pub marked_packets: u16,
}

/// The bit beside the number of ranges that says so.
const CAPABLE: u8 = 0x80;

/// A valid ack frame. Its ranges are checked: none is empty, each lies below the one before with a
/// gap between, and none reaches below packet number zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// How long ago the largest number was received when this was sent, in ns.
    pub delay_ns: u32,
    /// What the receiver has seen of marks.
    pub ecn: EcnReport,
    /// The largest number that is acknowledged.
    pub largest: u64,
    /// The first range: this and everything up to `largest`.
    smallest_of_first: u64,
    /// The pairs of gap and length.
    further: &'a [[u8; ACK_RANGE_LENGTH]],
}

impl<'a> Ack<'a> {
    /// Reads the frame that `bytes` starts with; returns it and the bytes behind it.
    #[inline]
    pub(super) fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (head, rest) =
            bytes.split_first_chunk::<ACK_FRAME_LENGTH>().ok_or(Malformed::Truncated)?;
        let count = usize::from(head[1] & !CAPABLE);
        if count > ACK_RANGES_MAX {
            return Err(Malformed::Length);
        }
        let further = count * ACK_RANGE_LENGTH;
        let (further, rest) = rest.split_at_checked(further).ok_or(Malformed::Truncated)?;
        let largest = u64_at(head, 8);
        // The range's end, one above the largest, has to be a number too.
        if largest == u64::MAX {
            return Err(Malformed::AckRange);
        }
        let first = u64::from(u32_at(head, 16));
        let ack = Self {
            delay_ns: u32_at(head, 4),
            ecn: EcnReport { is_capable: head[1] & CAPABLE != 0, marked_packets: u16_at(head, 2) },
            largest,
            smallest_of_first: largest.checked_sub(first).ok_or(Malformed::AckRange)?,
            further: further.as_chunks().0,
        };
        ack.check_further_ranges()?;
        Ok((ack, rest))
    }

    fn check_further_ranges(&self) -> Result<(), Malformed> {
        let mut smallest = self.smallest_of_first;
        for pair in self.further {
            let (gap, length) = gap_and_length(pair);
            if gap == 0 || length == 0 {
                return Err(Malformed::AckRange);
            }
            smallest = smallest.checked_sub(gap + length).ok_or(Malformed::AckRange)?;
        }
        Ok(())
    }

    /// The first of [`Ack::ranges`]: the newest numbers.
    #[inline]
    #[must_use]
    pub fn newest_range(&self) -> Range<u64> {
        self.smallest_of_first..self.largest + 1
    }

    /// The acknowledged numbers as half-open ranges, descending.
    #[inline]
    #[must_use]
    pub fn ranges(&self) -> AckRanges<'a> {
        AckRanges { next: Some(self.newest_range()), further: self.further.iter() }
    }

    /// The length of the frame.
    #[must_use]
    pub const fn length(&self) -> usize {
        ACK_FRAME_LENGTH + self.further.len() * ACK_RANGE_LENGTH
    }
}

/// The ranges of an [`Ack`], descending.
#[derive(Clone, Debug)]
pub struct AckRanges<'a> {
    next: Option<Range<u64>>,
    further: core::slice::Iter<'a, [u8; ACK_RANGE_LENGTH]>,
}

impl Iterator for AckRanges<'_> {
    type Item = Range<u64>;

    #[inline]
    fn next(&mut self) -> Option<Range<u64>> {
        let range = self.next.take()?;
        self.next = self.further.next().map(|pair| {
            // `Ack::split` has checked that this does not underflow.
            let (gap, length) = gap_and_length(pair);
            let end = range.start - gap;
            end - length..end
        });
        Some(range)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.next.is_some()) + self.further.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for AckRanges<'_> {}

#[inline]
fn gap_and_length(pair: &[u8; ACK_RANGE_LENGTH]) -> (u64, u64) {
    (u64::from(u32_at(pair, 0)), u64::from(u32_at(pair, 4)))
}

/// Writes an ack frame of `ranges`, which are descending, disjoint and not adjacent: those of a
/// `base::RangeSet` in reverse. Writes the newest ranges only, as many as fit into `bytes`, the
/// frame and its 32-bit fields; older ones wait for a later ack or were acknowledged before.
///
/// Returns the length of the frame; 0, and nothing is written, if there is no range or no room for
/// one.
#[inline]
pub fn emit_ack(
    bytes: &mut [u8],
    delay_ns: u32,
    ecn: EcnReport,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> usize {
    let mut ranges = ranges.into_iter();
    let Some((head, further)) = bytes.split_first_chunk_mut::<ACK_FRAME_LENGTH>() else { return 0 };
    let Some(newest) = ranges.next() else { return 0 };
    debug_assert!(!newest.is_empty());
    let largest = newest.end - 1;
    let first = u32::try_from(largest - newest.start).unwrap_or(u32::MAX);
    // A first range that had to be cut short is the last one: the gap below it would be a lie.
    let was_cut = largest - u64::from(first) != newest.start;
    let count = if was_cut { 0 } else { emit_further_ranges(further, newest.start, ranges) };
    head[0] = frame_type::ACK;
    head[1] = count as u8 | if ecn.is_capable { CAPABLE } else { 0 }; // at most ACK_RANGES_MAX
    put(head, 2, ecn.marked_packets.to_be_bytes());
    put(head, 4, delay_ns.to_be_bytes());
    put(head, 8, largest.to_be_bytes());
    put(head, 16, first.to_be_bytes());
    ACK_FRAME_LENGTH + count * ACK_RANGE_LENGTH
}

/// Returns how many ranges were written.
#[inline]
fn emit_further_ranges(
    bytes: &mut [u8],
    mut smallest: u64,
    ranges: impl Iterator<Item = Range<u64>>,
) -> usize {
    let mut count = 0;
    let pairs = bytes.as_chunks_mut::<ACK_RANGE_LENGTH>().0;
    for (range, pair) in ranges.zip(pairs.iter_mut().take(ACK_RANGES_MAX)) {
        debug_assert!(range.end < smallest && !range.is_empty());
        let (Ok(gap), Ok(length)) =
            (u32::try_from(smallest - range.end), u32::try_from(range.end - range.start))
        else {
            break;
        };
        put(pair, 0, gap.to_be_bytes());
        put(pair, 4, length.to_be_bytes());
        smallest = range.start;
        count += 1;
    }
    count
}
