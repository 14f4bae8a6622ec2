//! Explicit congestion notification of one flow: whether its packets are sent as capable of being
//! marked, and what the peer says about marks. Paths that clear the bits, set them all, or drop
//! such packets are found out by the first packets, as RFC 9000, section 13.4.2, wants it.

use clearway_wire::Ecn;
use clearway_wire::clearway::EcnReport;

use crate::state::{EcnPath, EcnState};

/// Packets by which a path is judged. RFC 9000, 13.4.2: "ten sent packets or three PTOs", for
/// example.
const TESTED_PACKETS: u32 = 10;
/// Probe timeouts in a row, before anything was acknowledged, after which the bits may be to blame.
const PROBE_TIMEOUTS: u32 = 2;

/// What is known of the path to the peer, and of marks in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking {
    state: State,
    /// The peer's count, as it was last heard.
    reported: u16,
    /// What came from the peer, for our own reports.
    received: EcnReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many packets were acknowledged, and so many marks reported.
    Testing {
        acknowledged: u32,
        marked: u32,
    },
    Capable,
    Off(Cause),
}

/// Why no packets are sent that could be marked: the path does this to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Clears,
    MarksAll,
    Drops,
}

impl Marking {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Testing { acknowledged: 0, marked: 0 },
            reported: 0,
            received: EcnReport { is_capable: false, marked_packets: 0 },
        }
    }

    pub(crate) const fn save(&self) -> EcnState {
        let path = match self.state {
            State::Testing { acknowledged, marked } => EcnPath::Testing(acknowledged, marked),
            State::Capable => EcnPath::Capable,
            State::Off(Cause::Clears) => EcnPath::Clears,
            State::Off(Cause::MarksAll) => EcnPath::MarksAll,
            State::Off(Cause::Drops) => EcnPath::Drops,
        };
        let EcnReport { is_capable, marked_packets } = self.received;
        EcnState { path, reported: self.reported, marked: marked_packets, is_capable }
    }

    pub(crate) fn restore(state: EcnState) -> Self {
        let EcnState { path, reported, marked: marked_packets, is_capable } = state;
        let state = match path {
            EcnPath::Testing(acknowledged, marked) => State::Testing {
                acknowledged: acknowledged.min(TESTED_PACKETS),
                marked: marked.min(u32::from(u16::MAX)),
            },
            EcnPath::Capable => State::Capable,
            EcnPath::Clears => State::Off(Cause::Clears),
            EcnPath::MarksAll => State::Off(Cause::MarksAll),
            EcnPath::Drops => State::Off(Cause::Drops),
        };
        Self { state, reported, received: EcnReport { is_capable, marked_packets } }
    }

    /// True if packets are to be sent as capable of being marked.
    pub(crate) const fn is_on(&self) -> bool {
        !matches!(self.state, State::Off(_))
    }

    /// `testing`, `capable`, or why no packets are sent that could be marked.
    pub(crate) const fn name(&self) -> &'static str {
        match self.state {
            State::Testing { .. } => "testing",
            State::Capable => "capable",
            State::Off(Cause::Clears) => "cleared on the path",
            State::Off(Cause::MarksAll) => "all marked on the path",
            State::Off(Cause::Drops) => "dropped on the path",
        }
    }

    /// A packet has come, and is no duplicate. True if it has to be acknowledged at once: RFC 9000,
    /// 13.2.1, on marked packets.
    pub(crate) fn on_received(&mut self, ecn: Ecn) -> bool {
        self.received.is_capable = ecn != Ecn::NotCapable;
        let is_marked = ecn == Ecn::Marked;
        self.received.marked_packets =
            self.received.marked_packets.wrapping_add(u16::from(is_marked));
        is_marked
    }

    /// What our acknowledgements say.
    pub(crate) const fn report(&self) -> EcnReport {
        self.received
    }

    /// An acknowledgement of `packets` that had not been acknowledged says this; older ones are not
    /// to be shown. True if there are new marks, and they can be believed.
    pub(crate) fn on_ack(&mut self, report: EcnReport, packets: u32) -> bool {
        let marked = report.marked_packets.wrapping_sub(self.reported);
        if (marked == 0 && matches!(self.state, State::Capable)) || !self.is_on() {
            return false;
        }
        self.reported = report.marked_packets;
        if let State::Testing { acknowledged, marked: before } = self.state {
            let acknowledged = acknowledged + packets;
            let marked = before + u32::from(marked);
            self.state = if !report.is_capable {
                State::Off(Cause::Clears)
            } else if acknowledged < TESTED_PACKETS {
                State::Testing { acknowledged, marked }
            } else if marked >= acknowledged {
                State::Off(Cause::MarksAll)
            } else {
                State::Capable
            };
        }
        marked > 0 && self.is_on()
    }

    /// Nothing has been heard for `count` probe timeouts.
    pub(crate) fn on_probe_timeouts(&mut self, count: u32) {
        if count >= PROBE_TIMEOUTS && matches!(self.state, State::Testing { acknowledged: 0, .. }) {
            self.state = State::Off(Cause::Drops);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Marking;
    use clearway_wire::Ecn;
    use clearway_wire::clearway::EcnReport;

    impl Marking {
        /// So many marks have been seen, and reported, in both directions.
        pub(crate) fn count_from(&mut self, marked_packets: u16) {
            self.reported = marked_packets;
            self.received.marked_packets = marked_packets;
        }
    }

    fn report(is_capable: bool, marked_packets: u16) -> EcnReport {
        EcnReport { is_capable, marked_packets }
    }

    #[test]
    fn marks_are_believed_when_the_path_leaves_the_bits_alone() {
        let mut marking = Marking::new();
        assert!(!marking.on_ack(report(true, 0), 6));
        assert!(marking.on_ack(report(true, 2), 6));
        assert_eq!(marking.name(), "capable");
        assert!(!marking.on_ack(report(true, 2), 6), "nothing new");
        assert!(marking.on_ack(report(true, 3), 6));
    }

    #[test]
    fn marks_are_counted_on_where_their_number_wraps() {
        let mut marking = Marking::new();
        marking.on_ack(report(true, 0), 10);
        marking.count_from(u16::MAX - 1);
        assert!(marking.on_ack(report(true, u16::MAX), 1));
        assert!(marking.on_ack(report(true, 1), 2), "past the wrap");
        assert!(!marking.on_ack(report(true, 1), 1));
        marking.count_from(u16::MAX);
        marking.on_received(Ecn::Marked);
        assert_eq!(marking.report(), report(true, 0));
    }

    #[test]
    fn paths_that_clear_mark_or_drop_everything_are_found_out() {
        let mut cleared = Marking::new();
        cleared.on_ack(report(false, 0), 1);
        assert_eq!((cleared.is_on(), cleared.name()), (false, "cleared on the path"));
        let mut marked = Marking::new();
        for count in 1..=10 {
            marked.on_ack(report(true, count), 1);
        }
        assert_eq!((marked.is_on(), marked.name()), (false, "all marked on the path"));
        assert!(!marked.on_ack(report(true, 20), 10), "not believed any more");
        let mut dropped = Marking::new();
        dropped.on_probe_timeouts(2);
        assert!(!dropped.is_on());
        let mut capable = Marking::new();
        capable.on_ack(report(true, 0), 1);
        capable.on_probe_timeouts(9);
        assert!(capable.is_on(), "something was acknowledged before");
    }

    #[test]
    fn marks_that_come_are_counted_and_hurried() {
        let mut marking = Marking::new();
        assert!(!marking.on_received(Ecn::Capable));
        assert!(marking.on_received(Ecn::Marked));
        assert_eq!(marking.report(), report(true, 1));
        assert!(!marking.on_received(Ecn::NotCapable));
        assert_eq!(marking.report(), report(false, 1));
    }

    #[test]
    fn a_path_is_judged_after_ten_packets() {
        for (marks, name) in [(10, "all marked on the path"), (9, "capable")] {
            let mut marking = Marking::new();
            for count in 1..=9 {
                assert!(marking.on_ack(report(true, count), 1));
                assert_eq!(marking.name(), "testing");
            }
            marking.on_ack(report(true, marks), 1);
            assert_eq!(marking.name(), name);
        }
    }
}
