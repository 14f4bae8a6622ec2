//! `struct tcp_info` of Linux (`linux/tcp.h`), as TCP_INFO gives it. Fields that mean nothing here
//! are 0.

use clearway_base::{MICROSECOND, MILLISECOND, Time};
use clearway_tcp::{Info, State};

use crate::observed::Observed;

/// The length of the structure, up to `tcpi_received_ce_bytes`.
const BYTES: usize = 276;

/// TCP_INFINITE_SSTHRESH: slow start ends by loss only.
const SLOW_START: u64 = 0x7fff_ffff;

/// The state of a listener, and that of a socket without a connection.
pub(crate) const LISTEN: u8 = 10;
pub(crate) const CLOSE: u8 = 7;

/// Linux' number of a state: `TCP_ESTABLISHED` and so on.
#[must_use]
pub const fn number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => CLOSE,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// The structure of a socket without a connection.
pub(crate) fn of_state(state: u8) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[0] = state;
    bytes
}

/// The structure of a connection.
pub(crate) fn emit(info: &Info, now: Time, observed: Option<Observed>) -> Vec<u8> {
    let mut bytes = of_state(number(info.state));
    bytes[1] = match info.recovery {
        "recovery" => 3,
        "loss" => 4,
        _ if info.sacked_bytes > 0 => 1, // TCP_CA_Disorder
        _ => 0,
    };
    bytes[2] = info.retries;
    bytes[4] = info.rto_doublings;
    // TCPI_OPT_TIMESTAMPS, _SACK, _WSCALE, _ECN, and _SYN_DATA.
    let scales = info.window_scales != (0, 0);
    bytes[5] = u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(scales) << 2
        | u8::from(info.ecn) << 3
        | u8::from(info.syn_had_data) << 5;
    bytes[6] = info.window_scales.0 & 0xf | info.window_scales.1 << 4;
    let segment_bytes = u64::from(info.segment_bytes.max(1));
    let segments = |of: u64| of.div_ceil(segment_bytes);
    let us = |ns: u64| ns / MICROSECOND;
    let threshold = info.slow_start_threshold_bytes.map_or(SLOW_START, segments);
    // What was lost and has been sent again counts as both, as with Linux.
    let is_open = info.recovery == "open";
    let lost_bytes = info.lost_bytes + if is_open { 0 } else { info.resent_bytes };
    let outstanding = info.queued_bytes.saturating_sub(info.unsent_bytes);
    let words = [
        (8, us(info.rto_ns)),
        (16, segment_bytes),
        (20, info.peer_segment_bytes.into()),
        (24, segments(outstanding)),
        (28, segments(info.sacked_bytes)),
        (32, segments(lost_bytes)),
        (36, segments(info.resent_bytes)),
        (60, info.path_mtu.into()),
        (68, us(info.rtt_ns)),
        (72, us(info.rtt_variation_ns)),
        (76, threshold.min(SLOW_START)),
        (80, info.window_bytes / segment_bytes),
        (84, info.offered_segment_bytes.into()),
        (96, info.receive_buffer_bytes.into()),
        (100, info.segments_retransmitted),
        (136, info.segments_sent),
        (140, info.segments_received),
        (144, info.unsent_bytes),
        (148, us(info.min_rtt_ns)),
        (228, info.send_window_bytes),
        (232, info.receive_window_bytes),
    ];
    let seen = observed.unwrap_or_default();
    let ms_since = |at| now.since(at) / MILLISECOND;
    let more = [
        (44, ms_since(seen.data_left)),
        (52, ms_since(seen.data_came)),
        (56, ms_since(seen.ack_came)),
        (88, reordering_segments(info)),
        (152, seen.data_segments_came.into()),
        (156, seen.data_segments_left.into()),
        (192, seen.delivered_segments(info)),
        (196, info.marks.1.into()),
        (248, info.marks.0.into()),
        (252, info.marked_bytes.1[0].into()),
        (256, info.marked_bytes.1[2].into()),
        (260, info.marked_bytes.1[1].into()),
        (264, info.marked_bytes.0[0].into()),
        (268, info.marked_bytes.0[2].into()),
        (272, info.marked_bytes.0[1].into()),
    ];
    for (at, word) in words.into_iter().chain(more) {
        let word = u32::try_from(word).unwrap_or(u32::MAX);
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let long = [
        (120, info.acknowledged_bytes),
        (128, info.received_bytes),
        (168, us(seen.busy_ns)),
        (176, us(seen.held_by_peer_ns)),
        (184, us(seen.held_by_buffer_ns)),
        (200, seen.bytes_left),
        (208, seen.bytes_resent),
    ];
    for (at, word) in long {
        bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// By how many segments packets may be out of order: 3, as Linux has it (`tcp_reordering`), or what
/// has been seen.
fn reordering_segments(info: &Info) -> u64 {
    let segment_bytes = info.segment_bytes.max(1);
    let seen = if info.reordering { info.reordered_bytes.div_ceil(segment_bytes) + 1 } else { 0 };
    seen.max(3).into()
}
