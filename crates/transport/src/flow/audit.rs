//! What tests look at, and count again when they end.

use super::Flow;
use crate::recovery::Recovery;
use clearway_congestion::CongestionControl;

impl Flow {
    /// Counts again what a flow counts.
    pub(crate) fn audit(&self) {
        self.main.outgoing.audit(self.recovery.audit());
        self.acks.audit();
        assert!(self.is_connecting() || self.window_bytes == self.congestion.window_bytes());
        let books = self.main.incoming.books();
        assert!(books.unfinished + books.released <= books.received);
        assert!(books.received <= books.announced);
    }

    /// Both sides of a flow that rests go on counting just before their counters wrap.
    pub(crate) fn begin_before_wraps(&mut self) {
        assert_eq!(self.recovery.in_flight_bytes(), 0);
        let messages = u32::MAX - 100;
        self.main.outgoing.count_from(messages);
        self.main.incoming.count_from(messages);
        self.recovery = Recovery::at((1 << 32) - 100);
        self.marking.count_from(u16::MAX - 10);
    }

    /// Sent packets that are kept.
    pub(crate) fn packets_kept(&self) -> usize {
        self.recovery.kept()
    }
}
