//! What tests look at, and count again when they end.

use super::Flow;
use super::streams::View;
use crate::recovery::Recovery;
use crate::stream::Stream;
use clearway_base::RangeSet;
use clearway_congestion::CongestionControl;

impl Flow {
    /// Counts again what a flow counts.
    pub(crate) fn audit(&self) {
        self.recovery.audit();
        let mut in_flight = self.recovery.positions();
        Self::audit_stream(&self.main, in_flight.remove(&0).unwrap_or_default());
        self.streams.iter().for_each(|all| all.audit());
        for View { id, stream, .. } in self.streams.iter().flat_map(|all| all.iter()) {
            Self::audit_stream(stream, in_flight.remove(&id).unwrap_or_default());
        }
        self.acks.audit();
        assert!(self.is_connecting() || self.window_bytes == self.congestion.window_bytes());
    }

    fn audit_stream(stream: &Stream, in_flight: RangeSet) {
        stream.outgoing.audit(in_flight);
        let books = stream.incoming.books();
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
