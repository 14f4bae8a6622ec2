//! What is said of connections in `clearway status`.

use clearway_tcp::{Counters, State};

use super::Tcp;
use super::books;
use crate::snapshot::FlowSnapshot;

impl Tcp {
    /// What is counted.
    pub(crate) const fn counters(&self) -> &Counters {
        self.stack.counters()
    }

    /// How many places there are for connections, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.books.places()
    }

    /// The connection at a place, if there is one.
    pub(crate) fn flow_at(&self, place: usize) -> Option<FlowSnapshot> {
        let book = self.books.at(place)?;
        let info = self.stack.info(book.key)?;
        Some(FlowSnapshot {
            channel: book.channel,
            connection: books::id(book.key),
            parent: None,
            path: match self.paths.other_nic(book.key) {
                Some(_) => "tcp-other-nic",
                None if self.paths.was_joined(book.key) => "tcp-local",
                None => "tcp",
            },
            peer: info.remote,
            state: name_of(info.state),
            rtt_ns: info.rtt_ns,
            congestion_window_bytes: info.window_bytes,
            packet_bytes: info.segment_bytes as u16, // of an IP packet
            ecn: if info.ecn { "capable" } else { "" },
            in_flight_bytes: info.in_flight_bytes,
            messages_sent: 0,
            messages_received: 0,
            messages_outstanding: 0,
            held_by_peer: false,
            packets_lost: info.segments_retransmitted,
            detour: false,
            setup_packets: 0,
            setup_retries: 0,
            tcp: Some(Box::new(info)),
        })
    }
}

/// In the words of other flows.
const fn name_of(state: State) -> &'static str {
    match state {
        State::SynSent | State::SynReceived => "connecting",
        State::Established => "open",
        _ => "closing",
    }
}
