//! What an endpoint counts.

use clearway_base::counters;

counters! {
    /// What an endpoint counts. Packets that were dropped are counted by reason.
    pub struct Counters {
        /// Data packets taken.
        data_packets_received: Packets,
            "with each packet of messages from a peer", "nothing: this is traffic";
        /// Packets that came to another engine of this host first.
        received_by_lane: Packets,
            "when a NIC's RSS brings a packet to a queue whose engine does not have its flow",
            "few are normal while flows are opened; if it keeps up with data_packets_received, the \
             NIC was given another RSS key, or a middlebox rewrites ports";
        /// Packets made to be sent, of all types; those included that had no way then.
        packets_sent: Packets, "with each packet to a peer", "nothing: this is traffic";
        /// Challenges: answers to the first syns of a flow, which is not there yet.
        challenges_sent: Packets,
            "with each batch of syns from a peer that wants to connect",
            "if it rises much faster than flows_accepted, somebody floods this host with syns from \
             addresses that are not his; nothing is kept for him";
        /// Flows that a peer opened.
        flows_accepted: Flows,
            "when a peer's app connects to one of this host", "nothing: this is traffic";
        /// Flows opened here.
        flows_connected: Flows,
            "when an app of this host connects to a peer's", "nothing: this is traffic";
        /// Flows ended by a reset from the peer.
        flows_reset_by_peer: Flows,
            "when a peer's app ends without closing, or its daemon is started again",
            "see the log of the peer's daemon, and whether its app crashed";
        /// Flows given up because the peer was silent.
        flows_timed_out: Flows,
            "when nothing has come from a peer for as long as silence_s says",
            "see whether the peer's host is up and reached: clearway ping ADDRESS";
        /// Packets that are no valid Clearway packet, but for their CRC.
        dropped_malformed: Packets,
            "when something else sends to the daemon's UDP port, or a middlebox changes packets",
            "clearway vif capture shows who sends them; choose another udp_port if another service \
             uses this one";
        /// Packets whose CRC did not match.
        dropped_checksum: Packets,
            "when a packet was changed on its way past the checksums of Ethernet and UDP",
            "look for faulty memory, a faulty NIC or switch: its own error counters (ethtool -S)";
        /// Packets of a version that we do not speak.
        dropped_version: Packets,
            "when a peer's daemon is of a release too old or too new for this one",
            "upgrade the older of the two";
        /// Data packets to a flow that does not exist.
        dropped_unknown_flow: Packets,
            "when a peer sends on a connection that this daemon does not have, mostly because it \
             was started again; the peer is sent a reset",
            "nothing, unless it goes on for long after a restart";
        /// Packets to a flow from an address that is not its peer's.
        dropped_spoofed: Packets,
            "when a packet names a flow of this host and comes from a stranger, or the peer's \
             address was changed in mid-flow by NAT",
            "clearway vif capture shows the addresses; put no NAT between peers";
        /// Packets from a port that no daemon sends from.
        dropped_source_port: Packets,
            "when something that is no daemon sends to the daemon's UDP port, or NAT changes ports",
            "put no NAT that changes ports between peers";
        /// Packets that had arrived before.
        dropped_duplicate: Packets,
            "when the network duplicates packets, or a peer takes late ones for lost and sends \
             them again",
            "few are normal; many mean that acknowledgements are lost or late: compare \
             packets_lost of the peer's flows";
        /// Data that came before the syn-ack.
        dropped_early: Packets,
            "when the network reorders a new flow's first packets", "nothing: they are sent again";
        /// Data for an app whose receive pool was full; not acknowledged.
        dropped_no_buffer: Packets,
            "when an app does not release messages as fast as they come, and its senders have used \
             up what they were allowed",
            "release messages sooner, or attach with a larger receive pool; status shows whose \
             pool is full";
        /// Packets that broke the protocol; their flow was reset.
        dropped_violation: Packets,
            "when a peer's daemon is faulty, or somebody forges its packets",
            "see the log of both daemons; please report it if both are of this release";
        /// Syns with a cookie that is not ours or too old.
        dropped_cookie: Packets,
            "when a peer answers a challenge after seconds, or one of a daemon that was started \
             again, or a stranger guesses",
            "nothing: a peer tries again with a new one";
        /// Syns to a port that nobody listens on, or that the listener refused.
        dropped_refused: Packets,
            "when a peer's app connects to a port on which no app of this host listens, or whose \
             app has as many connections as it may",
            "start the app, or correct the port; connections_refused tells the latter";
        /// Syns to a port that another engine of this host listens on.
        dropped_elsewhere: Packets,
            "when syns of a peer come to another queue than the listener's",
            "nothing: a peer sprays several, so that one comes to the right queue";
        /// Handshake packets, resets and pongs that answer nothing of ours.
        dropped_unsolicited: Packets,
            "with answers that come late or twice, and with forged ones",
            "nothing, unless it rises all the time: then clearway vif capture shows who sends them";
        /// Answers to strangers, and pings, that were not sent, since there were too many.
        dropped_rate_limited: Answers,
            "when more syns, pings and packets of unknown flows come than are answered per second",
            "see who floods this host: clearway vif capture";
    }
}
