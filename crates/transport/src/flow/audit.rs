//! What tests look at, and count again when they end.

use super::Flow;
use clearway_congestion::CongestionControl;

impl Flow {
    /// Counts again what a flow counts.
    pub(crate) fn audit(&self) {
        self.outgoing.audit(self.recovery.audit());
        self.acks.audit();
        assert!(self.is_connecting() || self.window_bytes == self.congestion.window_bytes());
        let books = self.incoming.books();
        assert!(books.unfinished + books.released <= books.received);
        assert!(books.received <= books.announced);
    }

    /// Sent packets that are kept.
    pub(crate) fn packets_kept(&self) -> usize {
        self.recovery.kept()
    }
}
