//! What can be told of a connection, as `ss -ti` does.

use core::net::SocketAddr;

use clearway_congestion::CongestionControl;

use super::Connection;
use crate::event::End;
use crate::recovery::Phase;
use crate::state::State;

/// What the owner of a connection has to know to do something with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// Why there is no connection any more.
    pub end: Option<End>,
    /// Bytes that have come and that nobody has taken.
    pub unread_bytes: u64,
    /// The peer has sent all that it will send, and it has come.
    pub is_finished: bool,
    /// This end has said that it will send no more.
    pub is_shut: bool,
    /// Data goes both ways although the handshake is not over (RFC 7413).
    pub is_early: bool,
    /// Bytes that are not acknowledged, and those of them that have never been sent.
    pub queued_bytes: u64,
    /// See `queued_bytes`.
    pub unsent_bytes: u64,
    /// Payload and options of a full segment.
    pub mss: u32,
}

/// The state of a connection, for people and tests.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// Why there is no connection any more.
    pub end: Option<End>,
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// The largest segment that this end has said it takes, and those that come.
    pub offered_segment_bytes: u16,
    /// See `offered_segment_bytes`.
    pub peer_segment_bytes: u32,
    /// The path's MTU as it is known.
    pub path_mtu: u16,
    /// What congestion control allows to be in flight, and what is.
    pub window_bytes: u64,
    /// See `window_bytes`.
    pub in_flight_bytes: u64,
    /// The window at which slow start ends, if there is one.
    pub slow_start_threshold_bytes: Option<u64>,
    /// What the peer has room for.
    pub send_window_bytes: u64,
    /// What this end has room for.
    pub receive_window_bytes: u64,
    /// What it has room for when all is taken: it grows with what the app takes.
    pub receive_buffer_bytes: u32,
    /// By how much windows are shifted: those of the peer, and of this end.
    pub window_scales: (u8, u8),
    /// The smoothed round-trip time, its variation, and the lowest, in ns.
    pub rtt_ns: u64,
    /// See `rtt_ns`.
    pub rtt_variation_ns: u64,
    /// See `rtt_ns`.
    pub min_rtt_ns: u64,
    /// The retransmission timeout as it is now, and how often it has been doubled.
    pub rto_ns: u64,
    /// See `rto_ns`.
    pub rto_doublings: u8,
    /// How often what is outstanding has been sent again, or probed for, for nothing.
    pub retries: u8,
    /// Segments sent again, of all that were sent.
    pub segments_retransmitted: u64,
    /// Segments sent.
    pub segments_sent: u64,
    /// Segments that came.
    pub segments_received: u64,
    /// What is done about loss: "open", "recovery" or "loss".
    pub recovery: &'static str,
    /// Of what is outstanding, bytes that have arrived, that are lost, and that have been sent
    /// again and are neither.
    pub sacked_bytes: u64,
    /// See `sacked_bytes`.
    pub lost_bytes: u64,
    /// See `sacked_bytes`.
    pub resent_bytes: u64,
    /// Segments of what is outstanding that have not arrived.
    pub undelivered_segments: usize,
    /// Packets have been seen to overtake each other, and how far behind the highest byte they
    /// have ended, at most.
    pub reordering: bool,
    /// See `reordering`.
    pub reordered_bytes: u32,
    /// Bytes of the stream that are acknowledged, and that wait.
    pub acknowledged_bytes: u64,
    /// See `acknowledged_bytes`.
    pub queued_bytes: u64,
    /// Of those that wait, bytes that have never been sent.
    pub unsent_bytes: u64,
    /// Bytes of the stream that have come, and those of them that nobody has taken.
    pub received_bytes: u64,
    /// See `received_bytes`.
    pub unread_bytes: u64,
    /// Bytes that have come out of order.
    pub out_of_order_bytes: u64,
    /// Agreed upon: timestamps, selective acknowledgements, congestion notification.
    pub timestamps: bool,
    /// See `timestamps`.
    pub sack: bool,
    /// See `timestamps`.
    pub ecn: bool,
    /// Packets that came with a mark (RFC 9768), and of which the peer has told that they did.
    pub marks: (u32, u32),
    /// Bytes that have come in packets with ECT(1), CE and ECT(0), and as the peer has told.
    pub marked_bytes: ([u32; 3], [u32; 3]),
    /// Data has come with the first SYN, or has gone with it and was taken (RFC 7413).
    pub syn_had_data: bool,
}

impl Connection {
    pub(crate) fn status(&self) -> Status {
        Status {
            state: self.state,
            end: self.end,
            unread_bytes: self.rcv.unread_bytes(),
            is_finished: self.rcv.is_finished(),
            is_shut: self.snd.is_finished(),
            is_early: self.is_early,
            queued_bytes: self.snd.queued_bytes(),
            unsent_bytes: self.snd.unsent_bytes(),
            mss: self.size.mss(),
        }
    }

    pub(crate) fn info(&self) -> Info {
        let state = match self.state {
            // `Variants::fin_with_syn`
            State::SynReceived if self.rcv.is_finished() => State::CloseWait,
            state => state,
        };
        Info {
            state,
            end: self.end,
            local: self.local,
            remote: self.remote,
            segment_bytes: self.size.bytes(),
            offered_segment_bytes: self.size.offer(self.settings.segment_bytes_max),
            peer_segment_bytes: self.ack.segment_bytes(),
            path_mtu: self.size.path_mtu(),
            window_bytes: self.window_bytes(),
            slow_start_threshold_bytes: self.control.slow_start_threshold_bytes(),
            in_flight_bytes: self.board.in_flight_bytes(),
            send_window_bytes: self.snd.window(),
            receive_window_bytes: self.rcv.window(),
            receive_buffer_bytes: self.rcv.buffer_bytes(),
            window_scales: (self.snd.scale(), self.rcv.scale()),
            rtt_ns: self.rto.smoothed_ns().unwrap_or(0),
            rtt_variation_ns: self.rto.variation_ns(),
            min_rtt_ns: self.rto.min_ns(),
            rto_ns: self.rto.timeout_ns(&self.settings),
            rto_doublings: self.rto.doublings(),
            retries: self.retries,
            segments_retransmitted: self.counters.retransmitted,
            segments_sent: self.counters.segments_sent,
            segments_received: self.counters.segments_received,
            recovery: match self.recovery.phase() {
                Phase::Open => "open",
                Phase::Fast => "recovery",
                Phase::Timeout => "loss",
            },
            sacked_bytes: self.board.sacked_bytes(),
            lost_bytes: self.board.lost_bytes(),
            resent_bytes: self.board.resent_bytes(),
            undelivered_segments: self.board.undelivered_segments(),
            reordering: self.rack.reordering_seen(),
            reordered_bytes: self.rack.behind_bytes_max(),
            acknowledged_bytes: self.snd.acknowledged_bytes(),
            queued_bytes: self.snd.queued_bytes(),
            unsent_bytes: self.snd.unsent_bytes(),
            received_bytes: self.rcv.received_bytes(),
            unread_bytes: self.rcv.unread_bytes(),
            out_of_order_bytes: self.rcv.ahead_bytes(),
            timestamps: self.timestamps.is_some(),
            sack: self.sack,
            ecn: self.ecn.is_agreed(),
            marks: self.ecn.marks(),
            marked_bytes: self.ecn.bytes(),
            syn_had_data: self.syn_had_data,
        }
    }
}
