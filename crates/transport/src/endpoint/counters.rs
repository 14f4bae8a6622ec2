//! What an endpoint counts.

use clearway_base::counters;

counters! {
    /// What an endpoint counts. Packets that were dropped are counted by reason.
    pub struct Counters {
        /// Data packets taken.
        data_packets_received,
        /// Packets that came to another engine of this host first.
        received_by_lane,
        /// Packets sent, of all types.
        packets_sent,
        /// Challenges: answers to the first syns of a flow, which is not there yet.
        challenges_sent,
        /// Flows that a peer opened.
        flows_accepted,
        /// Flows opened here.
        flows_connected,
        /// Flows ended by a reset from the peer.
        flows_reset_by_peer,
        /// Flows given up because the peer was silent.
        flows_timed_out,
        /// Packets that are no valid Clearway packet, but for their CRC.
        dropped_malformed,
        /// Packets whose CRC did not match.
        dropped_checksum,
        /// Packets of a version that we do not speak.
        dropped_version,
        /// Data packets to a flow that does not exist.
        dropped_unknown_flow,
        /// Packets to a flow from an address that is not its peer's.
        dropped_spoofed,
        /// Packets from a port that no daemon sends from.
        dropped_source_port,
        /// Packets that had arrived before.
        dropped_duplicate,
        /// Data that came before the syn-ack.
        dropped_early,
        /// Data for an app whose receive pool was full; not acknowledged.
        dropped_no_buffer,
        /// Packets that broke the protocol; their flow was reset.
        dropped_violation,
        /// Syns with a cookie that is not ours or too old.
        dropped_cookie,
        /// Syns to a port that nobody listens on, or that the listener refused.
        dropped_refused,
        /// Syns to a port that another engine of this host listens on.
        dropped_elsewhere,
        /// Handshake packets, resets and pongs that answer nothing of ours.
        dropped_unsolicited,
        /// Answers to strangers that were not sent, to keep within their rate.
        dropped_rate_limited,
    }
}
