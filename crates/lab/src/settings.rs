//! What can be set of a host, by name. Names of Linux's `net.ipv4` mean what they mean there.

use std::num::NonZeroU32;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND};
use clearway_tcp::{Capable, Config, Cookies, EcnOption, SocketOptions, UnusedWindow};

use crate::fast_open::{CLIENT, FastOpen, SERVER};
use crate::network::Habits;
use crate::state::State;
use crate::{Errno, freebsd};

/// What new sockets begin with, and what is of the whole host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) options: SocketOptions,
    pub(crate) config: Config,
    pub(crate) mtu: u16,
    pub(crate) habits: Habits,
    pub(crate) fast_open: FastOpen,
    /// Linux's number of what is one choice here.
    early_retrans: i64,
}

impl Default for Defaults {
    fn default() -> Self {
        let mut options = SocketOptions::default();
        // A write is one extent: programs may write byte by byte.
        options.settings.send_extents_max = 1 << 20;
        // As Linux has it.
        options.settings.variants.experimental_fast_open = true;
        options.settings.variants.capable = Capable::IfAccurate;
        options.settings.variants.trusts_path = true;
        options.settings.ecn_option = EcnOption::Always;
        Self {
            options,
            config: Config::default(),
            mtu: 1500,
            habits: Habits::default(),
            fast_open: FastOpen::default(),
            early_retrans: 3,
        }
    }
}

/// One of [`SETTINGS`].
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The least and the largest value.
    pub range: (i64, i64),
    /// What it is.
    pub what: &'static str,
    get: fn(&Defaults) -> i64,
    set: fn(&mut Defaults, i64),
}

impl Setting {
    /// The one of that name.
    pub(crate) fn find(name: &str) -> Result<&'static Self, Errno> {
        SETTINGS.iter().find(|setting| setting.name == name).ok_or(Errno::ENOENT)
    }
}

macro_rules! settings {
    ($($name:ident $range:expr, $what:literal, $get:expr, $set:expr;)+) => {
        /// All that can be set of a host.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            range: $range,
            what: $what,
            get: $get,
            set: $set,
        },)+];
    };
}

const SWITCH: (i64, i64) = (0, 1);
const BYTES: (i64, i64) = (256, 1 << 30);
const TIMES: (i64, i64) = (1, u8::MAX as i64);
/// Up to a day.
const US: (i64, i64) = (1, 86_400_000_000);
const MS: (i64, i64) = (1, US.1 / 1000);
const SECONDS: (i64, i64) = (1, 86_400);
const PORT: (i64, i64) = (1, 65_535);
const WORD: (i64, i64) = (0, u32::MAX as i64);
const NUMBER: (i64, i64) = (-1, u32::MAX as i64);

settings! {
    mtu (68, 65_535), "the link's MTU, in bytes; 1280 at least for IPv6",
        |it| it.mtu.into(), |it, value| it.mtu = value as u16;
    tcp_sack SWITCH, "selective acknowledgements",
        |it| it.options.settings.sack.into(), |it, value| it.options.settings.sack = value != 0;
    tcp_timestamps SWITCH, "timestamps",
        |it| it.options.settings.timestamps.into(),
        |it, value| it.options.settings.timestamps = value != 0;
    tcp_window_scaling SWITCH, "window scaling",
        |it| it.options.settings.window_scaling.into(),
        |it, value| it.options.settings.window_scaling = value != 0;
    tcp_ecn (0, 5), "congestion notification, as Linux has it: see below",
        |it| {
            let settings = &it.options.settings;
            match (settings.ecn, it.options.accepts_ecn, it.options.accepts_accurate_ecn) {
                (true, _, true) => if settings.accurate_ecn { 3 } else { 4 },
                (false, true, true) => 5,
                (true, ..) => 1,
                (false, true, false) => 2,
                (false, false, _) => 0,
            }
        },
        |it, value| {
            it.options.settings.ecn = matches!(value, 1 | 3 | 4);
            it.options.settings.accurate_ecn = value == 3;
            it.options.accepts_ecn = value != 0;
            it.options.accepts_accurate_ecn = value >= 3;
        };
    tcp_ecn_option (0, 3), "the option of accurate feedback, as Linux has it: see below",
        |it| it.options.settings.ecn_option as i64,
        |it, value| it.options.settings.ecn_option = match value {
            0 => EcnOption::Never,
            1 => EcnOption::WhenChanged,
            2 => EcnOption::Always,
            _ => EcnOption::DespiteLoss,
        };
    tcp_ecn_fallback SWITCH,
        "a SYN that is lost is sent without it, and what is changed on the way ends marks",
        |it| (!it.options.settings.variants.untested_ecn).into(),
        |it, value| {
            let variants = &mut it.options.settings.variants;
            variants.untested_ecn = value == 0;
            variants.ecn_retries = match variants.ecn_retries {
                _ if value == 0 => u8::MAX,
                u8::MAX => 0,
                retries => retries,
            };
        };
    tcp_syncookies (0, 2), "SYN cookies: 0 never, 1 under flood, 2 always",
        |it| it.config.cookies as i64,
        |it, value| it.config.cookies = match value {
            0 => Cookies::Never,
            1 => Cookies::UnderFlood,
            _ => Cookies::Always,
        };
    tcp_fastopen WORD, "TCP Fast Open, bits of Linux's: see below",
        |it| it.fast_open.bits.into(), |it, value| it.fast_open.bits = value as u32;
    tcp_fastopen_cookies (0, 65_536), "peers whose cookies are kept; with 0 all are forgotten",
        |it| it.config.fast_open_peers_max.into(),
        |it, value| it.config.fast_open_peers_max = value as u32;
    tcp_fastopen_key_0 WORD, "tcp_fastopen_key: the first of its four words",
        |it| it.fast_open.key[0].into(), |it, value| it.fast_open.key[0] = value as u32;
    tcp_fastopen_key_1 WORD, "the second",
        |it| it.fast_open.key[1].into(), |it, value| it.fast_open.key[1] = value as u32;
    tcp_fastopen_key_2 WORD, "the third",
        |it| it.fast_open.key[2].into(), |it, value| it.fast_open.key[2] = value as u32;
    tcp_fastopen_key_3 WORD, "the last",
        |it| it.fast_open.key[3].into(), |it, value| it.fast_open.key[3] = value as u32;
    tcp_syn_retries TIMES, "how often a SYN is sent again",
        |it| it.options.settings.syn_retries.into(),
        |it, value| it.options.settings.syn_retries = value as u8;
    tcp_syn_linear_timeouts (0, u8::MAX as i64),
        "how often a SYN is sent again before it is waited for longer each time",
        |it| it.options.settings.variants.linear_syns.into(),
        |it, value| it.options.settings.variants.linear_syns = value as u8;
    tcp_synack_retries TIMES, "how often a SYN-ACK is sent again",
        |it| it.config.syn_ack_retries.into(), |it, value| it.config.syn_ack_retries = value as u8;
    tcp_mtu_probing SWITCH, "what is lost again and again is sent in shorter segments",
        |it| (!it.options.settings.variants.trusts_path).into(),
        |it, value| it.options.settings.variants.trusts_path = value == 0;
    tcp_retries2 TIMES, "how often data is sent again until the connection is given up",
        |it| it.options.settings.retries.into(),
        |it, value| it.options.settings.retries = value as u8;
    tcp_fin_timeout SECONDS, "how long FIN-WAIT-2 lasts without a program, in seconds",
        |it| (it.options.settings.fin_wait_ns / SECOND) as i64,
        |it, value| it.options.settings.fin_wait_ns = value as u64 * SECOND;
    tcp_keepalive_time SECONDS, "TCP_KEEPIDLE of new sockets",
        |it| (it.options.keep_alive.idle_ns / SECOND) as i64,
        |it, value| it.options.keep_alive.idle_ns = value as u64 * SECOND;
    tcp_keepalive_intvl SECONDS, "TCP_KEEPINTVL of new sockets",
        |it| (it.options.keep_alive.interval_ns / SECOND) as i64,
        |it, value| it.options.keep_alive.interval_ns = value as u64 * SECOND;
    tcp_keepalive_probes TIMES, "TCP_KEEPCNT of new sockets",
        |it| it.options.keep_alive.probes.into(),
        |it, value| it.options.keep_alive.probes = value as u8;
    tcp_notsent_lowat (1, u32::MAX as i64), "TCP_NOTSENT_LOWAT of new sockets",
        |it| it.options.unsent_bytes_max.into(),
        |it, value| it.options.unsent_bytes_max = value as u32;
    receive_buffer BYTES, "the first window, in bytes: it grows up to `receive_buffer_max`",
        |it| it.options.settings.receive_buffer_bytes.into(),
        |it, value| it.options.settings.receive_buffer_bytes = value as u32;
    receive_buffer_max BYTES, "the largest window; what is less than the first one counts as that",
        |it| it.options.settings.receive_buffer_bytes_max.into(),
        |it, value| it.options.settings.receive_buffer_bytes_max = value as u32;
    send_buffer BYTES, "bytes that are written and not acknowledged, at most",
        |it| it.options.send_buffer_bytes.into(),
        |it, value| it.options.send_buffer_bytes = value as u32;
    initial_window (1, 1000), "segments that are sent before anything is acknowledged",
        |it| it.options.settings.initial_window.into(),
        |it, value| it.options.settings.initial_window = value as u32;
    tcp_early_retrans (0, 4), "tail loss probes: 3 and 4; else none",
        |it| it.early_retrans,
        |it, value| {
            it.early_retrans = value;
            it.options.settings.tail_loss_probes = value >= 3;
        };
    tcp_min_tso_segs (1, 64), "segments that leave at once, of which the last has PSH",
        |it| it.habits.burst_segments.into(),
        |it, value| it.habits.burst_segments = value as u32;
    pacing SWITCH, "a window is spread over its round trip",
        |it| it.options.settings.pacing.into(), |it, value| it.options.settings.pacing = value != 0;
    tcp_slow_start_after_idle (0, 2),
        "a window that is not used: 0 is kept for ever, 1 decays, 2 is kept as RFC 7661 has it",
        |it| match it.options.settings.unused_window {
            UnusedWindow::Kept => 0,
            UnusedWindow::Decays => 1,
            UnusedWindow::Validated => 2,
        },
        |it, value| it.options.settings.unused_window = match value {
            0 => UnusedWindow::Kept,
            1 => UnusedWindow::Decays,
            _ => UnusedWindow::Validated,
        };
    rto_initial_us US, "the retransmission timeout before a round trip is measured",
        |it| us(it.options.settings.rto_initial_ns),
        |it, value| it.options.settings.rto_initial_ns = ns(value);
    rto_min_us US, "how much longer than a round trip the retransmission timeout is, at least",
        |it| us(it.options.settings.rto_min_ns),
        |it, value| it.options.settings.rto_min_ns = ns(value);
    rto_max_us US, "the longest retransmission timeout",
        |it| us(it.options.settings.rto_max_ns),
        |it, value| it.options.settings.rto_max_ns = ns(value);
    delayed_ack_us US, "how long an acknowledgement may wait",
        |it| us(it.options.settings.ack_delay_ns),
        |it, value| it.options.settings.ack_delay_ns = ns(value);
    quick_acks (0, u8::MAX as i64), "segments at the beginning that are acknowledged at once",
        |it| it.options.settings.quick_acks.into(),
        |it, value| it.options.settings.quick_acks = value as u8;
    time_wait_us US, "how long TIME-WAIT lasts",
        |it| us(it.config.time_wait_ns), |it, value| it.config.time_wait_ns = ns(value);
    resets_per_s (0, u32::MAX as i64), "resets to segments without a connection, per second",
        |it| it.config.resets_per_s.into(), |it, value| it.config.resets_per_s = value as u32;
    local_port_first PORT, "the ports that are chosen: the first",
        |it| it.config.ports.0.into(), |it, value| it.config.ports.0 = value as u16;
    local_port_last PORT, "the ports that are chosen: the last",
        |it| it.config.ports.1.into(), |it, value| it.config.ports.1 = value as u16;
    freebsd SWITCH, "what RFCs leave open is as with FreeBSD, see below",
        |it| it.habits.is_freebsd.into(), |it, value| freebsd::choose(it, value != 0);
    fastopen_client_enable SWITCH, "the same as bit 1 of tcp_fastopen",
        |it| it.fast_open.has(CLIENT).into(), |it, value| it.fast_open.set(CLIENT, value != 0);
    fastopen_server_enable SWITCH, "the same as bit 2 of tcp_fastopen",
        |it| it.fast_open.has(SERVER).into(), |it, value| it.fast_open.set(SERVER, value != 0);
    insecure_rst SWITCH, "a reset anywhere in the window counts, as RFC 793 had it",
        |it| it.options.settings.variants.reset_in_window.into(),
        |it, value| it.options.settings.variants.reset_in_window = value != 0;
    insecure_syn SWITCH, "a SYN in the window is answered with a reset, as RFC 793 had it",
        |it| it.options.settings.variants.syn_in_window.into(),
        |it, value| it.options.settings.variants.syn_in_window = value != 0;
    drop_synfin SWITCH, "segments with both SYN and FIN are dropped",
        |it| it.habits.drops_syn_fin.into(), |it, value| it.habits.drops_syn_fin = value != 0;
    icmp_may_rst SWITCH, "ICMP errors may end an attempt to connect; 0: they are not heard",
        |it| (!it.habits.is_deaf).into(), |it, value| it.habits.is_deaf = value == 0;
    tolerate_missing_ts SWITCH, "segments without the timestamps that were agreed on are taken",
        |it| it.options.settings.variants.missing_timestamps.into(),
        |it, value| it.options.settings.variants.missing_timestamps = value != 0;
    rexmit_drop_options SWITCH,
        "a SYN has no option but the MSS when it is sent the third time again",
        |it| it.options.settings.variants.plain_syns.into(),
        |it, value| it.options.settings.variants.plain_syns = value != 0;
    empty_window_probes SWITCH, "a closed window is probed with an old number, as by Linux",
        |it| it.options.settings.variants.empty_window_probes.into(),
        |it, value| it.options.settings.variants.empty_window_probes = value != 0;
    ecn_maxretries (0, u8::MAX as i64),
        "how often a SYN that is sent again asks for congestion notification nevertheless",
        |it| it.options.settings.variants.ecn_retries.into(),
        |it, value| it.options.settings.variants.ecn_retries = value as u8;
    unreachable_ends_opening SWITCH,
        "ICMP's \"host unreachable\" ends an attempt to connect, as by Linux",
        |it| it.options.settings.variants.unreachable_ends_opening.into(),
        |it, value| it.options.settings.variants.unreachable_ends_opening = value != 0;
    ecn_plusplus (0, 2),
        "what else than data may be marked: 1 SYN-ACKs, 2 all; 0 what is said below",
        |it| match it.options.settings.variants.capable {
            Capable::NewData | Capable::IfAccurate => 0,
            Capable::SynAcks => 1,
            Capable::All => 2,
        },
        |it, value| it.options.settings.variants.capable = match value {
            0 => freebsd::capable(it.habits.is_freebsd),
            1 => Capable::SynAcks,
            _ => Capable::All,
        };
    keepinit (0, US.1 / 1000), "how long an attempt to connect may take, in ms; 0: tcp_syn_retries",
        |it| it.options.settings.opening_ms.map_or(0, |ms| ms.get().into()),
        |it, value| it.options.settings.opening_ms = NonZeroU32::new(value as u32);
    keepidle MS, "the same as tcp_keepalive_time, in ms",
        |it| ms(it.options.keep_alive.idle_ns),
        |it, value| it.options.keep_alive.idle_ns = value as u64 * MILLISECOND;
    keepintvl MS, "the same as tcp_keepalive_intvl, in ms",
        |it| ms(it.options.keep_alive.interval_ns),
        |it, value| it.options.keep_alive.interval_ns = value as u64 * MILLISECOND;
    keepcnt TIMES, "the same as tcp_keepalive_probes",
        |it| it.options.keep_alive.probes.into(),
        |it, value| it.options.keep_alive.probes = value as u8;
    isn NUMBER, "the first sequence number of every connection; -1: as RFC 6528 has it",
        |it| optional(it.config.isn), |it, value| it.config.isn = u32::try_from(value).ok();
    timestamp_offset NUMBER, "what timestamps are ahead of the clock, in ms; -1: by connection",
        |it| optional(it.config.timestamp_offset),
        |it, value| it.config.timestamp_offset = u32::try_from(value).ok();
}

fn us(ns: u64) -> i64 {
    (ns / MICROSECOND) as i64
}

fn ms(ns: u64) -> i64 {
    (ns / MILLISECOND) as i64
}

fn ns(us: i64) -> u64 {
    us as u64 * MICROSECOND
}

fn optional(number: Option<u32>) -> i64 {
    number.map_or(-1, i64::from)
}

/// Sets one: for new sockets, and for what is of the whole host.
pub(crate) fn set(state: &mut State, setting: &Setting, value: i64) -> Result<(), Errno> {
    if value < setting.range.0 || value > setting.range.1 {
        return Err(Errno::EINVAL);
    }
    let before = state.defaults.options.settings.ecn_option;
    (setting.set)(&mut state.defaults, value);
    let ecn_option = state.defaults.options.settings.ecn_option;
    if ecn_option != before {
        set_ecn_option(state, ecn_option);
    }
    state.link.set_mtu(state.defaults.mtu);
    state.link.set_habits(state.defaults.habits);
    let stack = state.sockets.stack_mut();
    stack.set_config(state.defaults.config);
    stack.set_fast_open_keys(state.defaults.fast_open.keys());
    if !state.defaults.fast_open.has(CLIENT) {
        stack.forget_fast_open_peers();
    }
    Ok(())
}

/// Linux looks at it with each segment, so it is of sockets that there are, too.
fn set_ecn_option(state: &mut State, ecn_option: EcnOption) {
    for socket in state.descriptors.sockets() {
        let Ok(mut options) = state.sockets.options(socket).copied() else { continue };
        options.settings.ecn_option = ecn_option;
        if state.sockets.set_options(socket, options).is_err() {
            continue; // it is gone
        }
    }
}

/// What is set; or what is counted, under the names of `tcp::Counters` and these.
pub(crate) fn get(state: &State, name: &str) -> Result<i64, Errno> {
    if let Ok(setting) = Setting::find(name) {
        return Ok((setting.get)(&state.defaults));
    }
    let stack = state.sockets.stack();
    let (half_open, time_wait) = stack.waiting();
    let own = [
        ("packets_received", state.counters.received),
        ("packets_dropped", state.counters.dropped),
        ("packets_sent", state.counters.sent),
        ("sockets", state.sockets.len() as u64),
        ("half_open", half_open as u64),
        ("time_wait", time_wait as u64),
        ("buffers", state.store.len() as u64),
    ];
    let mut all = own.into_iter().chain(stack.counters().iter());
    let value = all.find(|(counted, _)| *counted == name).ok_or(Errno::ENOENT)?.1;
    Ok(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{Defaults, SETTINGS};

    /// The table of `docs/lab.md` is this one. After a change:
    /// `CLEARWAY_WRITE_DOCS=1 cargo test -p clearway-lab --lib`.
    #[test]
    fn the_document_has_all_settings() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab.md");
        let text = std::fs::read_to_string(path).unwrap();
        let head = "| name | values | at first | what it is |\n|---|---|---|---|\n";
        let (before, rest) = text.split_once(head).expect("the table");
        let after = rest.split_once("\n\n").expect("something behind it").1;
        let rows: Vec<String> = SETTINGS
            .iter()
            .map(|setting| {
                let (least, most) = setting.range;
                let first = (setting.get)(&Defaults::default());
                format!("| {} | {least} to {most} | {first} | {} |", setting.name, setting.what)
            })
            .collect();
        let whole = format!("{before}{head}{}\n\n{after}", rows.join("\n"));
        if std::env::var_os("CLEARWAY_WRITE_DOCS").is_some() {
            std::fs::write(path, &whole).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == whole,
            "run it with CLEARWAY_WRITE_DOCS=1"
        );
    }

    #[test]
    fn what_is_set_is_what_it_is_set_to() {
        for setting in SETTINGS {
            let mut defaults = Defaults::default();
            for value in [setting.range.0, setting.range.1] {
                (setting.set)(&mut defaults, value);
                assert_eq!((setting.get)(&defaults), value, "{}", setting.name);
            }
        }
    }
}
