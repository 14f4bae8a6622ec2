//! How bytes are named, and who has them.

use core::ops::Range;

use clearway_base::SlotId;

use crate::Listener;

/// Bytes of somebody else's memory. The core never looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Extent {
    /// Which memory; only the owner knows what it means.
    pub region: u32,
    /// Where the bytes begin in it.
    pub offset: u32,
    /// How many they are.
    pub length: u32,
}

impl Extent {
    /// These bytes without the first `count`.
    #[must_use]
    pub(crate) const fn without_first(self, count: u32) -> Self {
        Self { offset: self.offset.wrapping_add(count), length: self.length - count, ..self }
    }

    /// The first `count` of these bytes.
    #[must_use]
    pub(crate) const fn first(self, count: u32) -> Self {
        Self { length: count, ..self }
    }

    /// True if `next` begins where this one ends.
    pub(crate) const fn touches(self, next: Self) -> bool {
        self.region == next.region
            && matches!(self.offset.checked_add(self.length), Some(end) if end == next.offset)
    }
}

/// The owner of the memory that received bytes are kept in.
///
/// The core calls it while it handles a segment, for the parts of its payload that are new: most
/// often once, for all of it.
pub trait Memory {
    /// Keeps the bytes `part` of the payload of the segment at hand, which stand at `position` of
    /// what `connection`'s peer sends (its first byte is at 0), and says where they are now: left
    /// in the NIC's buffer, or copied to where the app wants them. The extent has as many bytes as
    /// `part`. `None` if there is no room: then they count as never received.
    fn keep(&mut self, connection: SlotId, position: u64, part: Range<u32>) -> Option<Extent>;

    /// A connection has come to `listener`, and no owner has its key yet: what is kept for it
    /// meanwhile is for whoever accepts there.
    fn offered(&mut self, connection: SlotId, listener: Listener) {
        let _ = (connection, listener);
    }

    /// Takes back what nobody will read.
    fn discard(&mut self, connection: SlotId, extent: Extent);
}
