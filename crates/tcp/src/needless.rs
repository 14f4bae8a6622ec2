//! Whether what was sent again had not been lost, so that the window was made smaller for nothing.
//! An acknowledgement of the original says so by its timestamp (the Eifel detection of RFC 3522).
//! If neither that nor F-RTO could tell, reports of duplicates (RFC 2883) do once all has come
//! twice (RFC 3708); most come when all is acknowledged, and recovery is over.

use core::ops::Range;

use crate::timestamps::is_before;

/// What was sent again since the window was made smaller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needless {
    /// The timestamp of the first of it.
    first_stamp: Option<u32>,
    /// Where it stands, from the first to the last of it,
    hull: Range<u64>,
    /// and how many bytes of it nobody has reported as duplicates.
    missing_bytes: u64,
}

impl Needless {
    /// What stands in `range` is sent again, at `stamp` of the own clock.
    pub(crate) fn on_resent(&mut self, stamp: u32, range: &Range<u64>) {
        self.first_stamp.get_or_insert(stamp);
        let start = if self.hull.is_empty() { range.start } else { self.hull.start };
        self.hull = start.min(range.start)..self.hull.end.max(range.end);
        self.missing_bytes += range.end - range.start;
    }

    /// RFC 3522, section 3.2: "If the value of the Timestamp Echo Reply field [...] is smaller than
    /// [...] RetransmitTS", the original has arrived.
    pub(crate) fn is_of_the_original(&self, echo: u32) -> bool {
        self.first_stamp.is_some_and(|stamp| echo != 0 && is_before(echo, stamp))
    }

    /// Something has come twice. True if now all that was sent again has.
    pub(crate) fn on_duplicate(&mut self, range: &Range<u64>) -> bool {
        let (start, end) = (range.start.max(self.hull.start), range.end.min(self.hull.end));
        let bytes = end.saturating_sub(start);
        self.missing_bytes = self.missing_bytes.saturating_sub(bytes);
        bytes > 0 && self.missing_bytes == 0
    }
}
