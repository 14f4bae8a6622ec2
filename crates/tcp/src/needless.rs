//! RFC 3708: what was sent again and all came twice had not been lost, so that the window was made
//! smaller for nothing. Reports of duplicates (RFC 2883) say so, if neither timestamps (RFC 3522)
//! nor F-RTO could tell before; most come when all is acknowledged, and recovery is over.

use core::ops::Range;

/// What was sent again since the window was made smaller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needless {
    /// Where it stands, from the first to the last of it,
    hull: Range<u64>,
    /// and how many bytes of it nobody has reported as duplicates.
    missing_bytes: u64,
}

impl Needless {
    pub(crate) fn on_resent(&mut self, range: &Range<u64>) {
        let start = if self.hull.is_empty() { range.start } else { self.hull.start };
        self.hull = start.min(range.start)..self.hull.end.max(range.end);
        self.missing_bytes += range.end - range.start;
    }

    /// Something has come twice. True if now all that was sent again has.
    pub(crate) fn on_duplicate(&mut self, range: &Range<u64>) -> bool {
        let (start, end) = (range.start.max(self.hull.start), range.end.min(self.hull.end));
        let bytes = end.saturating_sub(start);
        self.missing_bytes = self.missing_bytes.saturating_sub(bytes);
        bytes > 0 && self.missing_bytes == 0
    }
}
