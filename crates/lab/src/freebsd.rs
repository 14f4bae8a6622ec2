//! What is done as FreeBSD does it, for scripts that compare; and the options of a SYN as it lays
//! them out, byte by byte: MSS, window scale, SACK permitted, timestamps, each behind the NOPs that
//! align it, Fast Open, and the end.

use core::ops::Range;
use std::num::NonZeroU32;

use clearway_base::SECOND;
use clearway_tcp::{Capable, EcnOption, KeepAlive, Settings};
use clearway_wire::tcp::{Flags, HEADER_LENGTH, Options, Repr};

use crate::network::Habits;
use crate::settings::Defaults;

/// RFC 9293, section 3.1: the kinds without a length.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
/// The same: where the window stands in the header.
const WINDOW: Range<usize> = 14..16;

/// TCPTV_KEEP_INIT and TCPTV_REXMTMAX: how long an attempt to connect may take, and the longest
/// retransmission timeout.
const OPENING_MS: u32 = 75_000;
const RTO_MAX_NS: u64 = 64 * SECOND;
/// TCPTV_KEEPCNT: probes of a peer that is silent.
const PROBES: u8 = 8;
/// `net.inet.tcp.ecn.maxretries`.
const ECN_RETRIES: u8 = 1;

/// Chooses what FreeBSD does, or what is done otherwise.
pub(crate) fn choose(defaults: &mut Defaults, is_freebsd: bool) {
    defaults.habits.is_freebsd = is_freebsd;
    defaults.habits.burst_segments = if is_freebsd { 1 } else { Habits::default().burst_segments };
    defaults.config.is_time_wait_silent = is_freebsd;
    let probes = &mut defaults.options.keep_alive.probes;
    *probes = if is_freebsd { PROBES } else { KeepAlive::default().probes };
    let settings = &mut defaults.options.settings;
    settings.opening_ms = NonZeroU32::new(if is_freebsd { OPENING_MS } else { 0 });
    settings.rto_max_ns = if is_freebsd { RTO_MAX_NS } else { Settings::default().rto_max_ns };
    settings.ecn_option = if is_freebsd { EcnOption::Never } else { EcnOption::Always };
    let variants = &mut settings.variants;
    variants.untested_ecn = is_freebsd;
    variants.draft_accurate_ecn = is_freebsd;
    variants.ecn_retries = if is_freebsd { ECN_RETRIES } else { 0 };
    variants.whole_segments = is_freebsd;
    variants.fin_again = is_freebsd;
    variants.reset_after_fin = is_freebsd;
    variants.syn_slop = is_freebsd;
    variants.cwr_when_resent = is_freebsd;
    variants.fin_despite_unread = is_freebsd;
    variants.fin_with_syn = is_freebsd;
    variants.experimental_fast_open = !is_freebsd;
    variants.capable = capable(is_freebsd);
    variants.lax_ecn = is_freebsd;
    variants.plain_time_wait = is_freebsd;
    variants.cookie_of_peer = is_freebsd;
    variants.late_syn_ack = is_freebsd;
    variants.wary_of_fast_open = is_freebsd;
}

/// What may be marked, if nothing else is set.
pub(crate) fn capable(is_freebsd: bool) -> Capable {
    if is_freebsd { Capable::NewData } else { Capable::IfAccurate }
}

/// Writes over what stands in `header` as it has it: the options of a SYN, and the window of a
/// reset, which is none.
pub(crate) fn rewrite(repr: &Repr, header: &mut [u8]) {
    if repr.flags.contains(Flags::SYN) {
        lay_out(&repr.options, &mut header[HEADER_LENGTH..]);
    }
    if repr.flags.contains(Flags::RST) {
        header[WINDOW].fill(0);
    }
}

/// Fills `place`, which is as long as `options` are with Linux's layout: both need as much.
fn lay_out(options: &Options, place: &mut [u8]) {
    let mut bytes = Vec::with_capacity(place.len());
    if let Some(size) = options.maximum_segment_size {
        let [high, low] = size.to_be_bytes();
        bytes.extend([2, 4, high, low]);
    }
    if let Some(scale) = options.window_scale {
        align(&mut bytes, 3);
        bytes.extend([3, 3, scale]);
    }
    if options.sack_permitted {
        bytes.extend([4, 2]);
    }
    if let Some(timestamps) = options.timestamps {
        align(&mut bytes, 10);
        bytes.extend([8, 10]);
        bytes.extend(timestamps.value.to_be_bytes());
        bytes.extend(timestamps.echo.to_be_bytes());
    }
    if let Some(option) = options.fast_open() {
        let cookie = option.cookie.as_deref().unwrap_or_default();
        bytes.extend([34, 2 + cookie.len() as u8]);
        bytes.extend(cookie);
    }
    bytes.resize(place.len(), END);
    place.copy_from_slice(&bytes);
}

/// Puts NOPs in front of an option of `length` bytes until it ends with a word.
fn align(bytes: &mut Vec<u8>, length: usize) {
    let end = (bytes.len() + length).next_multiple_of(4);
    bytes.resize(end - length, NO_OPERATION);
}

#[cfg(test)]
mod tests {
    use clearway_wire::tcp::{Options, Timestamps};

    /// The layout of a SYN with these besides the MSS.
    fn layout(window_scale: Option<u8>, sack_permitted: bool, has_timestamps: bool) -> Vec<u8> {
        let timestamps = has_timestamps.then_some(Timestamps { value: 0x0a0b_0c0d, echo: 7 });
        let maximum_segment_size = Some(1460);
        let options = Options {
            maximum_segment_size,
            window_scale,
            sack_permitted,
            timestamps,
            ..Options::default()
        };
        let mut place = vec![0xff; options.length()];
        super::lay_out(&options, &mut place);
        place
    }

    #[test]
    fn options_stand_as_freebsd_has_them() {
        let mss = [2, 4, 5, 180];
        let time = [8, 10, 10, 11, 12, 13, 0, 0, 0, 7];
        let all = [&mss[..], &[1, 3, 3, 6], &[4, 2], &time].concat();
        assert_eq!(layout(Some(6), true, true), all);
        assert_eq!(layout(None, true, false), [&mss[..], &[4, 2, 0, 0]].concat());
        assert_eq!(layout(Some(6), true, false), [&mss[..], &[1, 3, 3, 6, 4, 2, 0, 0]].concat());
        assert_eq!(layout(Some(6), false, false), [&mss[..], &[1, 3, 3, 6]].concat());
        assert_eq!(layout(None, true, true), [&mss[..], &[4, 2], &time].concat());
        assert_eq!(layout(None, false, true), [&mss[..], &[1, 1], &time].concat());
        assert_eq!(layout(None, false, false), mss);
    }
}
