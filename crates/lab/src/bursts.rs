//! Which segments have PSH, as Linux sets it: the end of what was written, and the end of what it
//! hands at once to a NIC that cuts segments. RFC 9293, section 3.9.1.2, leaves it to the sender;
//! scripts for Linux compare it.

use clearway_base::{MICROSECOND, SECOND};
use clearway_tcp::{Info, Transmit};
use clearway_wire::tcp::Flags;

/// The most that Linux hands over at once.
const BURST_BYTES_MAX: u64 = 1 << 16;

/// Sets PSH in the last of each burst of segments that leave at once, if it has several. `limit`
/// says how many it may have that begins with a segment.
pub(crate) fn push(transmits: &mut [Transmit], limit: impl Fn(&Transmit) -> usize) {
    let mut at = 0;
    while at < transmits.len() {
        let count = burst(&transmits[at..], limit(&transmits[at]));
        at += count;
        if count > 1 {
            transmits[at - 1].repr.flags |= Flags::PSH;
        }
    }
}

/// How many of these, `most` at most, follow each other as parts of one: each but the last is full.
fn burst(transmits: &[Transmit], most: usize) -> usize {
    let follows = |pair: &&[Transmit]| {
        let [one, next] = pair else { return false };
        let bytes = one.payload.end - one.payload.start;
        one.connection.is_some()
            && one.connection == next.connection
            && bytes > 0
            && bytes == u64::from(one.segment_bytes)
            && one.payload.end == next.payload.start
            && !next.payload.is_empty()
    };
    transmits.windows(2).take(most.saturating_sub(1)).take_while(follows).count() + 1
}

/// Linux's `tcp_tso_autosize`, and what `tcp_cwnd_test` makes of it: what a millisecond of the
/// window is worth, more over short round trips, at least `segments_min`, and half a window at
/// most.
pub(crate) fn limit(info: &Info, segments_min: u32) -> usize {
    let segment_bytes = u64::from(info.segment_bytes.max(1));
    let half = info.window_bytes / segment_bytes / 2;
    if segments_min <= 1 {
        return 1;
    }
    if info.rtt_ns == 0 {
        return half.max(1) as usize;
    }
    let is_starting = info.slow_start_threshold_bytes.is_none_or(|at| info.window_bytes < at / 2);
    let percent = if is_starting { 200 } else { 120 };
    let bytes_per_s = info.window_bytes * percent / 100 * SECOND / info.rtt_ns;
    let short = BURST_BYTES_MAX.checked_shr(((info.min_rtt_ns / MICROSECOND) >> 9) as u32);
    let bytes = (bytes_per_s >> 10) + short.unwrap_or(0);
    let segments = bytes.min(BURST_BYTES_MAX) / segment_bytes;
    segments.max(segments_min.into()).min(half).max(1) as usize
}
