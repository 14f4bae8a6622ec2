//! What an engine counts of one-sided operations: those that it carries out on its apps' memory,
//! by kind, those that it refuses, by reason, and those that its apps ask for.

use clearway_base::counters;
use clearway_wire::clearway::operation::{Kind, Status};

counters! {
    /// What the engine counts of one-sided operations.
    pub struct OperationCounters {
        /// Operations that apps asked for, of whomever.
        operations_asked: Operations,
            "when an app begins an operation", "nothing: this is traffic";
        /// Regions of apps that were found by their names.
        operations_find: Operations,
            "when a peer looks a region up", "nothing: this is traffic";
        /// Reads of apps' memory.
        operations_read: Operations,
            "when a peer reads", "nothing: this is traffic";
        /// Writes into apps' memory.
        operations_write: Operations,
            "when a peer writes", "nothing: this is traffic";
        /// Writes into apps' memory of which the app is told.
        operations_write_notify: Operations,
            "when a peer writes with a notification", "nothing: this is traffic";
        /// Words of apps' memory that were compared, and replaced if they were as expected.
        operations_compare_swap: Operations,
            "with each compare-and-swap of a peer",
            "nothing; where most of them find another value, many want the same word: share more \
             words";
        /// Words of apps' memory that were added to.
        operations_fetch_add: Operations,
            "with each fetch-and-add of a peer", "nothing: this is traffic";
        /// Reads of what an entry points to.
        operations_indirect_read: Operations,
            "when a peer reads by an entry", "nothing: this is traffic";
        /// Batches of such reads.
        operations_batch_read: Operations,
            "when a peer reads by many entries at once", "nothing: this is traffic";
        /// Scans of a table that found their key.
        operations_scan_read: Operations,
            "when a peer looks for a key", "nothing: this is traffic";
        /// Operations that were refused: the region was never there, or is revoked.
        operations_refused_no_region: Operations,
            "when a peer asks for a region that its app shares no longer",
            "have the app that asks look the region up again";
        /// Operations that were refused: no grant of the region, or of the policy, allows them.
        operations_refused_not_allowed: Operations,
            "when a peer does what it may not do",
            "have the app that shares grant the right, if that host or user is to have it";
        /// Operations that were refused: they reach beyond the region.
        operations_refused_out_of_bounds: Operations,
            "when offsets, lengths or entries are larger than the region",
            "see whether the app that asks knows the region's length, and what its tables hold";
        /// Operations that were refused: a word is not at a multiple of 8.
        operations_refused_misaligned: Operations,
            "when the offset of a word or entry is no multiple of 8, or a stride is none",
            "mend the app that asks";
        /// Looks at names and keys that found nothing.
        operations_refused_not_found: Operations,
            "when nothing has the name or the key",
            "nothing where that is to be expected; else see whether the owner shares already";
        /// Operations that were refused: they are larger than may be.
        operations_refused_too_large: Operations,
            "when an entry has more bytes than were asked for, or a scan or a batch has too many",
            "have the app ask for more bytes, or for less at once";
        /// Operations that were refused: the app takes no notifications.
        operations_refused_busy: Operations,
            "when an app has 1024 events that it has not taken",
            "have the app that shares take its events faster, or peers write without telling it";
        /// Operations that were refused: this engine does not know them.
        operations_refused_invalid: Operations,
            "when the peer's daemon is newer, or arguments make no sense",
            "update this daemon";
    }
}

impl OperationCounters {
    /// An operation of this kind was carried out, or not.
    pub(super) fn count(&mut self, kind: u8, status: Status) {
        *match status {
            Status::Done => match Kind::of(kind) {
                Some(Kind::Find) => &mut self.operations_find,
                Some(Kind::Read) => &mut self.operations_read,
                Some(Kind::Write) => &mut self.operations_write,
                Some(Kind::WriteNotify) => &mut self.operations_write_notify,
                Some(Kind::CompareSwap) => &mut self.operations_compare_swap,
                Some(Kind::FetchAdd) => &mut self.operations_fetch_add,
                Some(Kind::IndirectRead) => &mut self.operations_indirect_read,
                Some(Kind::BatchRead) => &mut self.operations_batch_read,
                Some(Kind::ScanRead) => &mut self.operations_scan_read,
                None => &mut self.operations_refused_invalid,
            },
            Status::NoRegion => &mut self.operations_refused_no_region,
            Status::NotAllowed => &mut self.operations_refused_not_allowed,
            Status::OutOfBounds => &mut self.operations_refused_out_of_bounds,
            Status::Misaligned => &mut self.operations_refused_misaligned,
            Status::NotFound => &mut self.operations_refused_not_found,
            Status::TooLarge => &mut self.operations_refused_too_large,
            Status::Busy => &mut self.operations_refused_busy,
            Status::Invalid => &mut self.operations_refused_invalid,
        } += 1;
    }
}
