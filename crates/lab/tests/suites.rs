//! What third-party suites of packetdrill scripts ask, one script of our own for each kind: the
//! state crossed with the segment and its place in the window, what is held or refused while a
//! connection opens, errors of routers, options of sockets that are seen in IP headers, and what
//! TCP_INFO says of slow start and recovery. `docs/tcp.md` has the table.

#[path = "suites/accurate_ecn.rs"]
mod accurate_ecn;
#[path = "suites/fast_open.rs"]
mod fast_open;
#[path = "suites/notices.rs"]
mod notices;
#[path = "suites/pushes.rs"]
mod pushes;
mod script;

use script::{Script, blocking, cases, established, host, host_v6, listening};

/// A state in which the peer's sequence numbers are known: RCV.NXT, SND.UNA and SND.NXT, and the
/// number that TCP_INFO has for it.
struct State {
    name: &'static str,
    next: u32,
    una: u32,
    sent: u32,
    number: u8,
}

const STATES: [State; 7] = [
    State { name: "ESTABLISHED", next: 1, una: 1, sent: 1, number: 1 },
    State { name: "CLOSE-WAIT", next: 2, una: 1, sent: 1, number: 8 },
    State { name: "FIN-WAIT-1", next: 1, una: 1, sent: 2, number: 4 },
    State { name: "FIN-WAIT-2", next: 1, una: 2, sent: 2, number: 5 },
    State { name: "CLOSING", next: 2, una: 1, sent: 2, number: 11 },
    State { name: "LAST-ACK", next: 2, una: 1, sent: 2, number: 9 },
    State { name: "TIME-WAIT", next: 2, una: 2, sent: 2, number: 6 },
];

/// The way to a state.
fn way(state: &State) -> String {
    let open = "socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
                < S. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1";
    let shut = "shutdown 3 wr = 0; > F. 1:1(0) ack";
    let rest = match state.name {
        "ESTABLISHED" => String::new(),
        "CLOSE-WAIT" => "< F. 1:1(0) ack 1; > . 1:1(0) ack 2".to_owned(),
        "FIN-WAIT-1" => format!("{shut} 1"),
        "FIN-WAIT-2" => format!("{shut} 1; < . 1:1(0) ack 2"),
        "CLOSING" => format!("{shut} 1; < F. 1:1(0) ack 1; > . 2:2(0) ack 2"),
        "LAST-ACK" => format!("< F. 1:1(0) ack 1; > . 1:1(0) ack 2; {shut} 2"),
        "TIME-WAIT" => format!("{shut} 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2"),
        other => panic!("there is no state {other}"),
    };
    format!("{open}\n{rest}")
}

/// RCV.WND of the hosts of scripts.
const WINDOW: u32 = 10_000;

/// What a segment leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Nothing,
    /// "<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>", and the state stays.
    Acknowledged,
    /// The connection is gone, and SO_ERROR says it.
    Gone,
    /// The same, and "<SEQ=SND.NXT><ACK=RCV.NXT><CTL=RST,ACK>".
    Reset,
    /// The FIN counts: RCV.NXT is one more, and acknowledged.
    Finished,
}

/// RFC 9293, section 3.10.7.4, with RFC 5961, RFC 1337 and errata 4845: what a segment without data
/// at `place` of the window leads to, which begins with `next`. It acknowledges nothing new. To who
/// `is_lax` resets and SYNs are what they were before RFC 5961.
fn judge(state: &State, flags: &str, place: u32, is_lax: bool) -> Outcome {
    let is_left = place == state.next;
    let is_in = (state.next..state.next + WINDOW).contains(&place);
    let has = |flag| flags.contains(flag);
    let is_over = state.name == "TIME-WAIT";
    if has('R') {
        // "If the RST bit is set and the sequence number exactly matches the next expected sequence
        // number (RCV.NXT), then TCP MUST reset the connection." In TIME-WAIT it is ignored.
        return match (is_left, is_in) {
            _ if is_over => Outcome::Nothing,
            (true, _) => Outcome::Gone,
            (false, true) if is_lax => Outcome::Gone,
            (false, true) => Outcome::Acknowledged,
            (false, false) => Outcome::Nothing,
        };
    }
    if has('S') {
        // "irrespective of the sequence number, TCP MUST send an ACK".
        let is_error = is_lax && is_in && !is_over;
        return if is_error { Outcome::Reset } else { Outcome::Acknowledged };
    }
    let length = u32::from(has('F'));
    // What has no length is acceptable right behind the window, too: its peer has filled it.
    let is_acceptable = match length {
        0 if !is_over => is_in || place == state.next + WINDOW,
        _ => is_in,
    };
    if !is_acceptable {
        return Outcome::Acknowledged;
    }
    if !has('.') {
        return Outcome::Nothing; // "if the ACK bit is off, drop the segment and return"
    }
    let can_finish = matches!(state.name, "ESTABLISHED" | "FIN-WAIT-1" | "FIN-WAIT-2");
    match (has('F'), is_left) {
        (true, true) if can_finish => Outcome::Finished,
        (true, _) => Outcome::Acknowledged,
        (false, false) if is_over => Outcome::Acknowledged,
        (false, _) => Outcome::Nothing,
    }
}

/// Each state of a connection that is open, crossed with each segment, at RCV.NXT - 1, RCV.NXT,
/// RCV.NXT + 1, RCV.NXT + RCV.WND - 1 and RCV.NXT + RCV.WND, over both versions of IP.
#[test]
fn states_and_segments_and_places() {
    let mut count = 0;
    for begin in [host as fn() -> Script, host_v6] {
        for state in &STATES {
            for flags in ["S", "S.", "SF", ".", "F", "F.", "R", "R."] {
                for place in PLACES {
                    let place = state.next.wrapping_add_signed(place);
                    cross(begin(), state, flags, place, false);
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 2 * 7 * 8 * 5);
}

/// The settings `insecure_rst` and `insecure_syn`: RFC 793 instead of RFC 5961.
#[test]
fn resets_and_syns_as_rfc_793_had_them() {
    for begin in [host as fn() -> Script, host_v6] {
        for state in &STATES {
            for flags in ["S", "S.", "SF", "R", "R."] {
                for place in PLACES {
                    let begin = begin().play("set insecure_rst 1; set insecure_syn 1");
                    cross(begin, state, flags, state.next.wrapping_add_signed(place), true);
                }
            }
        }
    }
}

/// Where segments are put, from RCV.NXT on.
const PLACES: [i32; 5] = [-1, 0, 1, WINDOW as i32 - 1, WINDOW as i32];

fn cross(begin: Script, state: &State, flags: &str, place: u32, is_lax: bool) {
    let State { next, una, sent, number, .. } = *state;
    let ack = if flags.contains('.') { format!("ack {una}") } else { String::new() };
    let event = format!("< {flags} {place}:{place}(0) {ack} win 10000");
    let outcome = match judge(state, flags, place, is_lax) {
        Outcome::Nothing => format!("tcp_info 3 state = {number}"),
        Outcome::Acknowledged => {
            format!("> . {sent}:{sent}(0) ack {next}; tcp_info 3 state = {number}")
        }
        // Linux, tcp_reset(): in CLOSE-WAIT, EPIPE; else ECONNRESET.
        Outcome::Gone => {
            let error = if state.name == "CLOSE-WAIT" { libc::EPIPE } else { libc::ECONNRESET };
            format!("tcp_info 3 state = 7; get_option 3 error = {error}")
        }
        Outcome::Reset => {
            let error = if state.name == "CLOSE-WAIT" { libc::EPIPE } else { libc::ECONNRESET };
            format!(
                "> R. {sent}:{sent}(0) ack {next} win {WINDOW}
                tcp_info 3 state = 7; get_option 3 error = {error}"
            )
        }
        Outcome::Finished => format!("> . {sent}:{sent}(0) ack {}", next + 1),
    };
    begin.play(&format!("{}\n{event}; {outcome} // {} at {place}", way(state), state.name));
}

/// One that listens and takes selective acknowledgements.
fn with_sack() -> Script {
    host().play(
        "set tcp_sack 1
         socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0",
    )
}

/// One with six segments outstanding, of which nothing is known.
fn far_away() -> Script {
    with_sack().play(
        "< S 0:0(0) win 60000 <mss 1000,sackOK>; > S. 0:0(0) ack 1
         +0.1 < . 1:1(0) ack 1 win 60000; accept 3 = 4; nonblock 4 = 0; write 4 6000 = 6000
         > *; > *; > *; > *; > *; > P. 5001:6001(1000) ack 1",
    )
}

/// One with a window of 36 segments, all of which have arrived, and `after_idle` as
/// tcp_slow_start_after_idle.
fn with_a_window_of_36(after_idle: u8) -> Script {
    host().play(&format!(
        "set tcp_sack 1; set tcp_slow_start_after_idle {after_idle}
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 65535 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 65408; accept 3 = 4; nonblock 4 = 0; write 4 26000 = 26000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > . 9001:10001(1000) ack 1
        +0.1 < . 1:1(0) ack 10001 win 65408
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *
        > P. 25001:26001(1000) ack 1
        +0.1 < . 1:1(0) ack 26001 win 65408; tcp_info 4 snd_cwnd = 36"
    ))
}

/// One that does as FreeBSD does, and has sent a SYN.
fn freebsd() -> Script {
    host().play(
        "set freebsd 1; set receive_buffer 65536
         socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0) win 65535",
    )
}

cases! {
    // What nobody listens to: RFC 9293, section 3.10.7.1.

    /// "If the ACK bit is off, sequence number zero is used, <SEQ=0><ACK=SEG.SEQ+SEG.LEN>
    /// <CTL=RST,ACK>"; and "SEG.LEN" counts SYN, FIN and data.
    closed_without_an_ack: host() => "
        socket = 3; bind 3 80 = 0; local 80
        < S 17:20(3) <mss 1460>; > R. 0:0(0) ack 21 win 0
        < SF 17:20(3) <mss 1460>; > R. 0:0(0) ack 22 win 0
        < F 17:20(3); > R. 0:0(0) ack 21 win 0
        < R 17:20(3); < R. 17:17(0) ack 34";

    /// "If the ACK bit is on, <SEQ=SEG.ACK><CTL=RST>".
    closed_with_an_ack: host() => "
        socket = 3; bind 3 80 = 0; local 80
        < S. 17:20(3) ack 34; > R 34:34(0) win 0
        < . 17:17(0) ack 34; > R 34:34(0) win 0
        < F. 17:20(3) ack 34; > R 34:34(0) win 0";

    // LISTEN: section 3.10.7.2.

    /// "Any acknowledgment is bad if it arrives on a connection still in the LISTEN state."
    listening_with_an_ack: listening() => "
        < S. 17:17(0) ack 34; > R 34:34(0) win 0
        < . 17:20(3) ack 34; > R 34:34(0) win 0
        < F. 17:17(0) ack 34; > R 34:34(0) win 0
        < R. 17:17(0) ack 34; < R 17:17(0); < F 17:17(0)
        get half_open = 0";

    /// What else a SYN carries comes later, or again: it is not acknowledged.
    listening_with_more_than_a_syn: listening() => "
        < SF 17:20(3) <mss 1460>; > S. 0:0(0) ack 18";

    // SYN-SENT: section 3.10.7.3.

    /// "If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset (unless the RST bit is set [...])",
    /// and the attempt goes on.
    opening_with_a_wrong_ack: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S. 0:3(3) ack 0 <mss 1460>; > R 0:0(0) win 0
        < S. 0:3(3) ack 2 <mss 1460>; > R 2:2(0) win 0
        < . 0:3(3) ack 2; > R 2:2(0) win 0
        < F. 0:3(3) ack 0; > R 0:0(0) win 0
        < R. 0:0(0) ack 0; < R. 0:0(0) ack 2; < R 0:0(0); < F 0:3(3)
        get_option 3 error = 0
        +1 > S 0:0(0)
        < S. 0:0(0) ack 1; > . 1:1(0) ack 1";

    /// "if neither of the SYN or RST bits is set, then drop the segment and return".
    opening_without_a_syn: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < . 0:3(3) ack 1; < F. 0:3(3) ack 1
        get_option 3 error = 0; tcp_info 3 state = 2";

    /// Data with the SYN-ACK is taken with it.
    opened_with_data: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S. 0:3(3) ack 1 <mss 1460>; > . 1:1(0) ack 4
        get_option 3 error = 0";

    /// Both open, and one SYN has data: "queue them for processing after the ESTABLISHED state has
    /// been reached". They are acknowledged then, and not before.
    held_until_both_are_open: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S 0:3(3) <mss 1460>; > S. 0:0(0) ack 1 <mss 1460>
        tcp_info 3 state = 3; fionread 3 = 0
        < . 4:4(0) ack 1
        tcp_info 3 state = 1; fionread 3 = 3
        shutdown 3 wr = 0; > F. 1:1(0) ack 4";

    /// The same with a FIN.
    held_until_both_are_open_and_one_has_finished: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < SF 0:3(3) <mss 1460>; > S. 0:0(0) ack 1
        tcp_info 3 state = 3
        < . 5:5(0) ack 1; > . 1:1(0) ack 5
        tcp_info 3 state = 8; fionread 3 = 3";

    // SYN-RECEIVED.

    /// RFC 5961, section 3.2, and errata 4845, of a listener's half-open connection: the challenge
    /// is "<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>", no SYN.
    half_open_and_resets: listening() => "
        < S 0:0(0) <mss 1460>; > S. 0:0(0) ack 1
        < R 0:0(0); < R 10001:10001(0); get half_open = 1
        < R 10000:10000(0); > . 1:1(0) ack 1; get half_open = 1
        < . 1:1(0) ack 1; accept 3 = 4; close 4 = 0; > F. 1:1(0) ack 1; < R 1:1(0)
        peer 5001; < S 0:0(0) <mss 1460>; > S. 0:0(0) ack 1
        < R 1:1(0); get half_open = 0; accept 3 = EAGAIN";

    /// The setting `insecure_rst`: RFC 793's "valid if its sequence number is in the window".
    half_open_and_resets_as_rfc_793_had_them: listening() => "
        set insecure_rst 1; socket = 4; nonblock 4 = 0; bind 4 81 = 0; listen 4 5 = 0; local 81
        < S 0:0(0) <mss 1460>; > S. 0:0(0) ack 1
        < R 0:0(0); < R. 10001:10001(0) ack 1; get half_open = 1
        < R 10000:10000(0); get half_open = 0
        < S 0:0(0) <mss 1460>; > S. 0:0(0) ack 1
        < R. 2:2(0) ack 7; get half_open = 0";

    /// The setting `insecure_syn`: the window is all of the buffer, though it cannot be said.
    syn_in_a_window_that_cannot_be_said: host() => "
        set insecure_syn 1; set receive_buffer 70000; set receive_buffer_max 70000
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0) win 65535
        < S. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1
        < S 70001:70001(0); > . 1:1(0) ack 1
        < S 70000:70000(0); > R. 1:1(0) ack 1 win 65535; get_option 3 error = 104";

    /// The same, after both have opened.
    opened_by_both_and_reset: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S 0:0(0) <mss 1460>; > S. 0:0(0) ack 1
        < R 0:0(0); < R 10001:10001(0)
        < R 10000:10000(0); > . 1:1(0) ack 1; get_option 3 error = 0
        < R 1:1(0); get_option 3 error = 111";

    // Errors of routers: RFC 9293, section 3.9.2.2, RFC 5461 and 5927.

    /// Those that do not quote what is outstanding are nobody's.
    opening_and_a_firewall: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp prohibited seq 4294967295; get_option 3 error = 0
        icmp prohibited seq 1; get_option 3 error = 0
        icmp prohibited seq 0; get_option 3 error = 113";

    opening_and_a_firewall_over_ipv6: host_v6() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp prohibited seq 1; get_option 3 error = 0
        icmp prohibited seq 0; get_option 3 error = 113";

    opening_and_no_such_protocol: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp protocol seq 0; get_option 3 error = 111";

    /// What IPv6 has for it is a soft error: "Parameter Problem -- codes 0, 1, 2".
    opening_and_no_such_protocol_over_ipv6: host_v6() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp protocol seq 0; get_option 3 error = 0; tcp_info 3 state = 2; get packets_dropped = 0";

    /// "time exceeded" is a soft error: "a TCP implementation MUST NOT abort the connection".
    opening_and_a_loop: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp expired seq 0; get_option 3 error = 0
        +1 > S 0:0(0); < S. 0:0(0) ack 1; > . 1:1(0) ack 1";

    /// None ends what is open.
    open_and_all_errors: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1
        icmp refused seq 1; icmp prohibited seq 1; icmp protocol seq 1; icmp expired seq 1
        get_option 4 error = 0; < . 1:1(0) ack 101; write 4 1 = 1; > P. 101:102(1) ack 1";

    /// Nor a call that waits there.
    waiting_and_an_error: blocking() => "
        write 4 100 = 100; > P. 1:101(100) ack 1
        begin read 4 100; icmp refused seq 1; waits
        < . 1:11(10) ack 101; end = 10; +0.04 > . 101:101(0) ack 11";

    // ip(7), ipv6(7): IP_TTL, IP_TOS, IPV6_UNICAST_HOPS, IPV6_TCLASS.

    /// Of the SYN-ACK, too; an accepted socket has its listener's, and what is set later is in
    /// all that leaves from then on, up to TIME-WAIT.
    hop_limit_and_class_of_a_listener: host() => "
        socket = 3; nonblock 3 = 0
        option 3 ttl 4 = 0; option 3 tos 35 = 0; get_option 3 ttl = 4; get_option 3 tos = 32
        bind 3 80 = 0; listen 3 1 = 0
        < S 0:0(0) <mss 1460>; > S. 0:0(0) ack 1; ip 4 32
        < . 1:1(0) ack 1; accept 3 = 4; get_option 4 ttl = 4
        write 4 100 = 100; > P. 1:101(100) ack 1; ip 4 32; < . 1:1(0) ack 101
        option 4 ttl 6 = 0; option 4 tos 224 = 0
        write 4 100 = 100; > P. 101:201(100) ack 1; ip 6 224; < . 1:1(0) ack 201
        close 4 = 0; > F. 201:201(0) ack 1; ip 6 224
        < F. 1:1(0) ack 202; > . 202:202(0) ack 2; ip 6 224
        < F. 1:1(0) ack 202; > . 202:202(0) ack 2; ip 6 224";

    hop_limit_and_class_over_ipv6: host_v6() => "
        socket = 3; nonblock 3 = 0; get_option 3 hops = 64; get_option 3 tclass = 0
        option 3 hops 5 = 0; option 3 tclass 35 = 0; get_option 3 tclass = 32
        connect 3 5000 = EINPROGRESS; > S 0:0(0); ip 5 32
        < S. 0:0(0) ack 1; > . 1:1(0) ack 1; ip 5 32
        option 3 hops -1 = 0; option 3 tclass -1 = 0
        write 3 1 = 1; > P. 1:2(1) ack 1; ip 64 0";

    hop_limits_that_are_none: host() => "
        socket = 3; option 3 ttl 0 = EINVAL; option 3 ttl 256 = EINVAL; option 3 ttl -1 = 0
        get_option 3 ttl = 64; option 3 hops 256 = EINVAL; option 3 tclass 256 = EINVAL";

    /// Congestion notification keeps its two bits.
    class_and_congestion_notification: host() => "
        set tcp_ecn 1; socket = 3; nonblock 3 = 0; option 3 tos 255 = 0; get_option 3 tos = 252
        connect 3 5000 = EINPROGRESS; > SEW 0:0(0); ip 64 252
        < SE. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1; ip 64 252
        write 3 100 = 100; > P. 1:101(100) ack 1; ip 64 254";

    /// FreeBSD, `ecn.plusplus` of 1: RFC 5562, "ECN+": the SYN-ACK may be marked, once.
    syn_acks_that_may_be_marked: host() => "
        set freebsd 1; set tcp_ecn 1; set ecn_plusplus 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < SEW 0:0(0) <mss 1000>; > SE. 0:0(0) ack 1; ip 64 2; +1 > S. 0:0(0) ack 1; ip 64 0
        < . 1:1(0) ack 1 win 10000; accept 3 = 4; write 4 100 = 100
        > P. 1:101(100) ack 1; ip 64 2; +3 > PW. 1:101(100) ack 1; ip 64 0
        < F. 1:1(0) ack 101 win 10000; > . 101:101(0) ack 2; ip 64 0";

    /// Of 2: all that is sent.
    all_that_may_be_marked: host() => "
        set freebsd 1; set tcp_ecn 1; set ecn_plusplus 2; socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS; > SEW 0:0(0); ip 64 2
        < SE. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1; ip 64 2
        write 3 100 = 100; > P. 1:101(100) ack 1; ip 64 2; +0.2 > PW. 1:101(100) ack 1; ip 64 2
        < . 1:1(0) ack 101; close 3 = 0; > F. 101:101(0) ack 1; ip 64 2";

    /// FreeBSD agrees when both open, if it agrees with who asks.
    ecn_of_freebsd: host() => "
        set freebsd 1; set tcp_ecn 2; socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < SEW 0:0(0) win 10000 <mss 1000>; > SE. 0:0(0) ack 1; < . 1:1(0) ack 1
        write 3 10 = 10; > P. 1:11(10) ack 1; ip 64 2
        set tcp_ecn 0; socket = 4; nonblock 4 = 0; peer 5001
        connect 4 5001 = EINPROGRESS; > S 0:0(0)
        < SEW 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1";

    /// Linux: what is soft elsewhere ends an attempt to connect.
    opening_to_nobody: host() => "
        set unreachable_ends_opening 1; socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp unreachable seq 1; get_option 3 error = 0
        icmp unreachable seq 0; get_option 3 error = 113";

    /// FreeBSD, tcp(4), TCP_NOOPT: a SYN without options.
    no_options: host() => "
        set freebsd 1; set tcp_sack 1; set tcp_timestamps 1; set tcp_window_scaling 1
        socket = 3; nonblock 3 = 0; option 3 noopt 1 = 0
        connect 3 5000 = EINPROGRESS; > S 0:0(0) <>
        < S. 0:0(0) ack 1 win 10000 <mss 1000,sackOK>; > . 1:1(0) ack 1 <>
        socket = 4; nonblock 4 = 0; option 4 noopt 1 = 0; option 4 noopt 0 = 0; peer 5001
        connect 4 5001 = EINPROGRESS; > *
        socket = 5; nonblock 5 = 0; option 5 noopt 1 = 0; bind 5 80 = 0; listen 5 5 = 0; local 80
        peer 6000; < S 0:0(0) <mss 1000,sackOK>; > S. 0:0(0) ack 1 <>";

    /// FreeBSD's sysctls of keep-alive are in ms.
    keep_alive_in_ms: host() => "
        set keepidle 15000; set keepintvl 2000; set keepcnt 4; socket = 3
        get_option 3 keepidle = 15; get_option 3 keepintvl = 2; get_option 3 keepcnt = 4
        get tcp_keepalive_time = 15";

    // tcp(7): what is told again as it was set.

    unsent_bytes_as_they_were_set: host() => "
        socket = 3; get_option 3 notsent_lowat = 0
        option 3 notsent_lowat -1 = 0; get_option 3 notsent_lowat = -1
        option 3 notsent_lowat 1000 = 0; get_option 3 notsent_lowat = 1000";

    // Slow start and recovery, as TCP_INFO tells them.

    /// RFC 7661, section 4.1, and Linux: the window grows up to twice what was outstanding at once.
    window_of_which_half_is_used: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1; < . 1:1(0) ack 1 win 32896
        accept 3 = 4; nonblock 4 = 0
        write 4 6000 = 6000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1; > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1; > . 4001:5001(1000) ack 1; > P. 5001:6001(1000) ack 1
        tcp_info 4 snd_cwnd = 10; tcp_info 4 unacked = 6
        < . 1:1(0) ack 2001 win 32896; tcp_info 4 snd_cwnd = 12
        < . 1:1(0) ack 4001 win 32896; tcp_info 4 snd_cwnd = 12
        < . 1:1(0) ack 6001 win 32896; tcp_info 4 snd_cwnd = 12";

    window_of_which_less_is_used: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1; < . 1:1(0) ack 1 win 32896
        accept 3 = 4; nonblock 4 = 0
        write 4 2000 = 2000
        > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        < . 1:1(0) ack 2001 win 32896; tcp_info 4 snd_cwnd = 10";

    /// RFC 8985, section 6.2: three segments that have come later are enough, without a timer.
    lost_by_three_blocks: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4
        write 4 4000 = 4000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1; > P. 3001:4001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896 <sack 1001:2001>
        < . 1:1(0) ack 1 win 32896 <sack 1001:3001>
        < . 1:1(0) ack 1 win 32896 <sack 1001:4001>
        > . 1:1001(1000) ack 1; tcp_info 4 total_retrans = 1; tcp_info 4 sacked = 3
        tcp_info 4 lost = 1; tcp_info 4 retrans = 1; tcp_info 4 ca_state = 3
        +0.1 < . 1:1(0) ack 4001 win 32896; tcp_info 4 lost = 0; tcp_info 4 retrans = 0
        tcp_info 4 advmss = 1460; tcp_info 4 rcv_mss = 536
        < . 1:1001(1000) ack 4001; tcp_info 4 rcv_mss = 1000; +0.04 > . 4001:4001(0) ack 1001
        read 4 1000 = 1000
        +0.1 close 4 = 0; > F. 4001:4001(0) ack 1001";

    /// RFC 5681, section 3.2, of a peer without SACK.
    lost_by_three_duplicates: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4
        write 4 4000 = 4000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1; > P. 3001:4001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; < . 1:1(0) ack 1 win 32896; < . 1:1(0) ack 1 win 32896
        > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 4001 win 32896";

    /// RFC 8985, section 7.2: the probe comes before the timeout, and the timeout after it. RFC
    /// 5681, section 3.1: then there is one segment, and two when it is acknowledged.
    probe_and_timeout: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4; nonblock 4 = 0
        write 4 1000 = 1000; > P. 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 1001 win 32896; tcp_info 4 snd_cwnd = 10
        write 4 1000 = 1000; > P. 1001:2001(1000) ack 1
        +0.3 > P. 1001:2001(1000) ack 1
        +0.3 > P. 1001:2001(1000) ack 1
        +0.1 < . 1:1(0) ack 2001 win 32896
        tcp_info 4 snd_cwnd = 2; tcp_info 4 snd_ssthresh = 7";

    /// RFC 3042: each of the first two blocks lets a new segment out.
    limited_transmit: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4; nonblock 4 = 0; write 4 15000 = 15000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > . 9001:10001(1000) ack 1
        +0.11 < . 1:1(0) ack 1 win 32896 <sack 1001:2001>; > . 10001:11001(1000) ack 1
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 1001:3001>; > . 11001:12001(1000) ack 1
        +0.01 < . 1:1(0) ack 3001 win 32896
        > . 12001:13001(1000) ack 1; > . 13001:14001(1000) ack 1
        tcp_info 4 total_retrans = 0";

    window_of_which_most_is_used: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4; nonblock 4 = 0; write 4 9000 = 9000
        > *; > *; > *; > *; > *; > *; > *; > *; > P. 8001:9001(1000) ack 1
        +0.105 < . 1:1(0) ack 2001 win 32896; tcp_info 4 snd_cwnd = 12
        +0.005 < . 1:1(0) ack 4001 win 32896; tcp_info 4 snd_cwnd = 14
        +0.005 < . 1:1(0) ack 6001 win 32896; tcp_info 4 snd_cwnd = 16
        +0.005 < . 1:1(0) ack 8001 win 32896; tcp_info 4 snd_cwnd = 18
        +0.005 < . 1:1(0) ack 9001 win 32896; tcp_info 4 snd_cwnd = 18";

    /// RFC 6937: as much leaves as has arrived, and at the end there is the threshold.
    reduced_in_proportion: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4; nonblock 4 = 0; write 4 10000 = 10000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > P. 9001:10001(1000) ack 1
        +0.11 < . 1:1(0) ack 1 win 32896 <sack 1001:2001>
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 1001:3001>
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 1001:4001>; > . 1:1001(1000) ack 1
        tcp_info 4 ca_state = 3; tcp_info 4 snd_cwnd = 7; tcp_info 4 snd_ssthresh = 7
        +0.02 write 4 7000 = 7000
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 1001:5001>; > . 10001:11001(1000) ack 1
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 1001:6001>; > . 11001:12001(1000) ack 1
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 1001:10001>
        > . 12001:13001(1000) ack 1; > . 13001:14001(1000) ack 1
        > . 14001:15001(1000) ack 1; > . 15001:16001(1000) ack 1
        +0.02 < . 1:1(0) ack 10001 win 32896; > P. 16001:17001(1000) ack 1
        tcp_info 4 ca_state = 0; tcp_info 4 snd_cwnd = 7; tcp_info 4 snd_ssthresh = 7";

    /// RFC 9293, section 3.6: who has closed and is gone answers with a reset.
    closed_after_the_peer_and_gone: established() => "
        +0.01 < F. 1:1(0) ack 1; > . 1:1(0) ack 2
        +0.01 close 4 = 0; > F. 1:1(0) ack 2
        +0.01 < . 2:2(0) ack 2
        +0.01 < . 2:2(0) ack 2; > R 2:2(0)";

    /// RFC 8985: four at the beginning are lost, and each block that comes lets one of them leave.
    four_are_lost: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.01 < . 1:1(0) ack 1 win 32896; accept 3 = 4; nonblock 4 = 0; write 4 10000 = 10000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > P. 9001:10001(1000) ack 1
        +0.01 < . 1:1(0) ack 1 win 32896 <sack 4001:5001>
        +0.002 < . 1:1(0) ack 1 win 32896 <sack 4001:6001>
        < . 1:1(0) ack 1 win 32896 <sack 4001:7001>; > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1 win 32896 <sack 4001:8001>; > . 1001:2001(1000) ack 1
        < . 1:1(0) ack 1 win 32896 <sack 4001:9001>; > . 2001:3001(1000) ack 1
        < . 1:1(0) ack 1 win 32896 <sack 4001:10001>; > . 3001:4001(1000) ack 1
        +0.01 < . 1:1(0) ack 1001 win 32896 <sack 4001:10001>
        < . 1:1(0) ack 2001 win 32896 <sack 4001:10001>
        < . 1:1(0) ack 3001 win 32896 <sack 4001:10001>
        < . 1:1(0) ack 10001 win 32896
        +0.01 write 4 10000 = 10000
        > *; > *; > *; > *; > *; > *; > . 16001:17001(1000) ack 1";

    /// Parts of a segment do not count: the probe and the timeout come.
    a_byte_is_no_segment: with_sack() => "
        < S 0:0(0) win 32792 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896; accept 3 = 4; nonblock 4 = 0; write 4 4000 = 4000
        > *; > *; > *; > P. 3001:4001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 32896 <sack 4000:4001>
        +0.1 > P. 3001:4001(1000) ack 1
        +0.3 > . 1:1001(1000) ack 1
        +0.5 < . 1:1(0) ack 1001 win 32896 <sack 4000:4001>
        > . 1001:2001(1000) ack 1; > . 2001:3001(1000) ack 1";

    /// RFC 5681, section 4.1: the restart window.
    window_after_an_idle_time: with_sack() => "
        < S 0:0(0) win 65535 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 65408; accept 3 = 4; nonblock 4 = 0; write 4 26000 = 26000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > . 9001:10001(1000) ack 1
        +0.1 < . 1:1(0) ack 10001 win 65408
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *
        > P. 25001:26001(1000) ack 1
        tcp_info 4 snd_cwnd = 20
        +0.1 < . 1:1(0) ack 26001 win 65408; tcp_info 4 snd_cwnd = 36
        +2 write 4 20000 = 20000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > . 35001:36001(1000) ack 1
        tcp_info 4 snd_cwnd = 10";

    /// RFC 7661, sections 4.3 and 4.4.1: the window stays, and a loss leaves half of what was sent.
    window_kept_while_idle: with_a_window_of_36(2) => "
        +2 write 4 20000 = 20000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *
        > *
        > P. 45001:46001(1000) ack 1
        tcp_info 4 snd_cwnd = 36
        +0.1 < . 1:1(0) ack 26001 win 65408 <sack 27001:30001>
        > . 26001:27001(1000) ack 1
        tcp_info 4 snd_ssthresh = 10";

    /// RFC 7661, section 4.4.3: half of it is left after five minutes.
    window_kept_for_five_minutes: with_a_window_of_36(2) => "
        +301 write 4 20000 = 20000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *
        > . 43001:44001(1000) ack 1
        tcp_info 4 snd_cwnd = 18";

    /// With tcp_slow_start_after_idle of 0 Linux keeps the window, however long it is not used.
    window_kept_for_ever: with_a_window_of_36(0) => "
        +1000 write 4 36000 = 36000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *; > *
        > P. 61001:62001(1000) ack 1
        tcp_info 4 snd_cwnd = 36
        +0.1 < . 1:1(0) ack 26001 win 65408 <sack 27001:30001>
        > . 26001:27001(1000) ack 1
        tcp_info 4 snd_ssthresh = 26";

    // What RFCs leave open, and FreeBSD's scripts compare: the setting `freebsd`.

    /// A receive buffer of whole segments, which SO_RCVBUF tells as it is; what an unscaled window
    /// cannot say of it is a window for resets nevertheless.
    freebsd_receive_buffer: freebsd() => "
        get_option 3 rcvbuf = 65536
        < S. 0:0(0) ack 1 win 10000 <mss 1460>; > . 1:1(0) ack 1 win 65535
        get_option 3 rcvbuf = 65700
        < R 65700:65700(0); > . 1:1(0) ack 1
        < R 65701:65701(0)
        < F. 1:1(0) ack 1; > . 1:1(0) ack 2
        < R 65701:65701(0); > . 1:1(0) ack 2
        < R 65702:65702(0); get_option 3 error = 0";

    /// The first segment after the SYN tells all of the buffer, which is 66 of the peer's segments.
    freebsd_first_window: host() => "
        set freebsd 1; set tcp_window_scaling 1
        set receive_buffer 65536; set receive_buffer_max 2097152
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0) win 65535
        < S. 0:0(0) ack 1 win 10000 <mss 1000,wscale 10>; > . 1:1(0) ack 1 win 1031";

    /// A send buffer of 32,768 bytes has room for 33 segments.
    freebsd_send_buffer: host() => "
        set freebsd 1; set send_buffer 32768; socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S. 0:0(0) ack 1 win 0 <mss 1000>; > . 1:1(0) ack 1
        write 3 40000 = 33000";

    /// Both FINs cross: the acknowledgement of the peer's has this end's again.
    freebsd_fin_again: freebsd() => "
        < S. 0:0(0) ack 1 win 10000 <mss 1460>; > . 1:1(0) ack 1
        shutdown 3 wr = 0; > F. 1:1(0) ack 1
        +0.1 < F. 1:1(0) ack 1; > F. 1:1(0) ack 2
        < . 2:2(0) ack 2; tcp_info 3 state = 6";

    /// A reset in CLOSE-WAIT is told as one.
    freebsd_reset_in_close_wait: freebsd() => "
        < S. 0:0(0) ack 1 win 10000 <mss 1460>; > . 1:1(0) ack 1
        < F. 1:1(0) ack 1; > . 1:1(0) ack 2
        < R 2:2(0); get_option 3 error = 104";

    /// TIME-WAIT drops what has no ACK, unless it is a SYN that opens anew.
    freebsd_time_wait: established() => "
        set freebsd 1; close 4 = 0; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        < S 1:1(0); < S 2:2(0); < F 1:1(0); < F 2:2(0); < F 10002:10002(0); < SF 2:2(0)
        < S. 2:2(0) ack 0; > . 2:2(0) ack 2
        < F. 2:2(0) ack 2; > . 2:2(0) ack 2
        get time_wait = 1; < SF 3:3(0); > S. 3:3(0) ack 4; get time_wait = 0";

    /// The setting `drop_synfin`, in each kind of state.
    syn_and_fin_are_dropped: listening() => "
        set drop_synfin 1
        < SF 0:0(0); get half_open = 0; get packets_dropped = 1
        < S 0:0(0) <mss 1000>; > S. 0:0(0) ack 1; < SF 0:0(0); < . 1:1(0) ack 1; accept 3 = 4
        < SF 1:1(0); close 4 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        < SF 5:5(0); < SF. 5:5(0) ack 2; get time_wait = 1
        socket = 4; nonblock 4 = 0; connect 4 5001 = EINPROGRESS; > S 0:0(0)
        peer 5001; < SF 0:3(3) <mss 1000>; tcp_info 4 state = 2";

    /// A second, then twice as long and a little each time, up to a minute, until it is enough.
    freebsd_syns: host() => "
        set freebsd 1; socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        +1 > S 0:0(0); +2.2 > S 0:0(0); +4.2 > S 0:0(0); +8.2 > S 0:0(0); +16.2 > S 0:0(0)
        +32.2 > S 0:0(0)
        +10.9 get_option 3 error = 0; +0.2 get_option 3 error = 110
        option 3 keepinit 363 = 0; get keepcnt = 8
        set freebsd 0; get keepinit = 0; get rto_max_us = 120000000; get keepcnt = 9";

    /// TCP_KEEPINIT bounds how long a call waits, and no connection that is open.
    time_to_open: host() => "
        set tcp_early_retrans 0
        socket = 3; get_option 3 keepinit = 0; option 3 keepinit 0 = EINVAL
        option 3 keepinit 5 = 0; get_option 3 keepinit = 5
        begin connect 3 5000; > S 0:0(0); +1 > S 0:0(0); +2 > S 0:0(0); +1.9 waits
        +0.2 end = ETIMEDOUT
        peer 5001; socket = 4; nonblock 4 = 0; option 4 keepinit 5 = 0; connect 4 5001 = EINPROGRESS
        > S 0:0(0); < S. 0:0(0) ack 1 <mss 1000>; > . 1:1(0) ack 1
        write 4 1 = 1; > P. 1:2(1) ack 1; +0.2 > *; +0.4 > *; +0.8 > *; +1.6 > *; +3.2 > *
        tcp_info 4 state = 1";

    /// The setting `rexmit_drop_options`: something on the way may not bear them.
    syns_without_options: host() => "
        set rexmit_drop_options 1; set tcp_sack 1; set tcp_timestamps 1; set tcp_window_scaling 1
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS
        > S 0:0(0) win 10000 <mss 1460,sackOK,TS val 1000000 ecr 0,wscale 0>
        +1 > S 0:0(0); +2 > S 0:0(0) win 10000 <mss 1460,sackOK,TS val 1003000 ecr 0,wscale 0>
        +4 > S 0:0(0) win 10000 <mss 1460>; +8 > S 0:0(0) win 10000 <mss 1460>
        < S. 0:0(0) ack 1 <mss 1000,sackOK,TS val 7 ecr 1,wscale 2>
        > . 1:1(0) ack 1 win 10000 <>";

    /// RFC 7323, section 3.2: they are dropped without a word, on both sides of the handshake.
    without_the_timestamps_agreed_on: host() => "
        set tcp_timestamps 1; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000,TS val 7 ecr 0>
        > S. 0:0(0) ack 1 win 10000 <mss 1460,TS val 1000000 ecr 7>
        < . 1:1(0) ack 1; accept 3 = EAGAIN
        < . 1:1(0) ack 1 <TS val 7 ecr 1000000>; accept 3 = 4; nonblock 4 = 0
        < . 1:11(10) ack 1; fionread 4 = 0; +1 < . 1:1(0) ack 1
        < R 1:1(0); get_option 4 error = 104";

    /// The setting `tolerate_missing_ts`: they are taken, and what was agreed on stays.
    without_the_timestamps_and_taken: host() => "
        set tolerate_missing_ts 1; set tcp_timestamps 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000,TS val 7 ecr 0>
        > S. 0:0(0) ack 1 win 10000 <mss 1460,TS val 1000000 ecr 7>
        < . 1:1(0) ack 1; accept 3 = 4; nonblock 4 = 0
        < . 1:11(10) ack 1; +0.04 > . 1:1(0) ack 11 win 9990 <TS val 1000040 ecr 7>
        write 4 100 = 100; > P. 1:101(100) ack 11; +0.1 < . 11:11(0) ack 101
        get_option 4 error = 0; tcp_info 4 unacked = 0";

    /// The setting `ecn_maxretries`.
    syns_that_ask_twice: host() => "
        set tcp_ecn 1; set ecn_maxretries 1
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > SEW 0:0(0)
        +1 > SEW 0:0(0); +2 > S 0:0(0)";

    /// Something is unread: the FIN leaves nevertheless, and what comes then is reset.
    freebsd_closed_unread: host() => "
        set freebsd 1; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1; < . 1:1(0) ack 1; accept 3 = 4
        < . 1:1001(1000) ack 1; < . 1001:2001(1000) ack 1; > . 1:1(0) ack 2001
        close 4 = 0; > F. 1:1(0) ack 2001
        < . 2001:2002(1) ack 1; > R 1:1(0); get buffers = 0";

    /// The FIN of a SYN counts while both open, unless data comes with it: then it comes again.
    freebsd_syn_and_fin: freebsd() => "
        < SF 0:0(0) <mss 1460>; > S. 0:0(0) ack 2; tcp_info 3 state = 8
        < . 2:2(0) ack 1 win 10000; tcp_info 3 state = 8; read 3 100 = 0
        close 3 = 0; > F. 1:1(0) ack 2; < . 2:2(0) ack 2
        peer 5001; socket = 3; nonblock 3 = 0; connect 3 5001 = EINPROGRESS; > S 0:0(0)
        < SF 0:3(3) <mss 1460>; > S. 0:0(0) ack 1; tcp_info 3 state = 3; read 3 100 = EAGAIN
        < . 4:4(0) ack 1 win 10000; fionread 3 = 3; tcp_info 3 state = 1
        close 3 = 0; > F. 1:1(0) ack 4; < F. 4:4(0) ack 2; > . 2:2(0) ack 5";

    /// What is lost, and sent again, says that the window was reduced; nothing else does.
    freebsd_cwr: host() => "
        set freebsd 1; set tcp_sack 1; set tcp_ecn 1; set tcp_early_retrans 0
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < SEW 0:0(0) win 65535 <mss 1000,sackOK>; > SE. 0:0(0) ack 1; < . 1:1(0) ack 1 win 65535
        accept 3 = 4; nonblock 4 = 0; write 4 5000 = 5000; > *; > *; > *; > *; > *
        < . 1:1(0) ack 1 win 65535 <sack 1001:4001>; > W. 1:1001(1000) ack 1; ip 64 0
        < . 1:1(0) ack 5001 win 65535; write 4 1 = 1; > P. 5001:5002(1) ack 1; ip 64 2
        < . 1:1(0) ack 5002 win 65535; close 4 = 0; > F. 5002:5002(0) ack 1
        +0.2 > F. 5002:5002(0) ack 1";

    /// What a router forbids is a refusal.
    freebsd_prohibited: freebsd() => "
        icmp prohibited seq 1; get_option 3 error = 0
        icmp prohibited seq 0; get_option 3 error = 111";

    /// So is what a host says that does not know TCP.
    freebsd_no_such_protocol: host_v6() => "
        set freebsd 1; socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp incomplete seq 0; get_option 3 error = 0
        icmp protocol seq 1; get_option 3 error = 0
        icmp protocol seq 0; get_option 3 error = 111";

    /// With `icmp_may_rst` of 0 nothing of it counts, but what is about sizes.
    deaf_to_routers: host() => "
        set icmp_may_rst 0; socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        icmp refused seq 0; icmp prohibited seq 0; icmp protocol seq 0; icmp expired seq 0
        tcp_info 3 state = 2; get_option 3 error = 0
        < S. 0:0(0) ack 1 win 10000 <mss 1460>; > . 1:1(0) ack 1
        write 3 1460 = 1460; > P. 1:1461(1460) ack 1
        icmp too_big 1200 seq 1; > . 1:1161(1160) ack 1; > P. 1161:1461(300) ack 1";

    /// A packet that has run out of hops ends an attempt to connect, but not one that has come in
    /// part.
    freebsd_time_exceeded: freebsd() => "
        icmp expired seq 1; icmp incomplete seq 0; get_option 3 error = 0
        icmp expired seq 0; get_option 3 error = 113";

    /// RFC 9293, section 3.8.6.2.2: the largest window that can be said is not silly, and moves
    /// with each byte as long as there is room.
    largest_window: host() => "
        set receive_buffer 65700; set receive_buffer_max 65700; set tcp_window_scaling 0
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1460>; > S. 0:0(0) ack 1 win 65535
        < . 1:1(0) ack 1 win 10000
        < . 1:101(100) ack 1; +0.04 > . 1:1(0) ack 101 win 65535
        < . 101:201(100) ack 1; +0.04 > . 1:1(0) ack 201 win 65435";

    /// tcp_early_retrans: no probe of the end, and then the timeout.
    no_tail_loss_probe: with_sack() => "
        set tcp_early_retrans 0
        socket = 4; nonblock 4 = 0; connect 4 5000 = EINPROGRESS; > S 0:0(0)
        +0.01 < S. 0:0(0) ack 1 win 65535 <mss 1000,sackOK>; > . 1:1(0) ack 1
        write 4 2000 = 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.21 > . 1:1001(1000) ack 1";

    /// RFC 6675, section 5: "Upon the receipt of any ACK containing SACK information, the
    /// scoreboard MUST be updated", of one that is late, too. It acknowledges nothing else.
    late_acknowledgement: far_away() => "
        +0.1 < . 1:1(0) ack 3001
        < . 1:1(0) ack 2001 <sack 3001:4001>; tcp_info 4 sacked = 0
        < . 1:1(0) ack 2001 <sack 4001:5001>; tcp_info 4 sacked = 1; tcp_info 4 unacked = 3
        < . 1:1(0) ack 2001; tcp_info 4 sacked = 1; tcp_info 4 unacked = 3";

    /// The same of what has come twice: the window is what it was before (RFC 3708).
    late_report_of_a_duplicate: far_away() => "
        +0.1 < . 1:1(0) ack 1 <sack 1001:4001>; > . 1:1001(1000) ack 1
        +0.05 < . 1:1(0) ack 6001; tcp_info 4 snd_cwnd = 7
        < . 1:1(0) ack 5001 <sack 1:1001>; tcp_info 4 snd_cwnd = 10";

    /// RFC 5961, section 5.2, and Linux: who acknowledges what stands before the SYN says nothing,
    /// however large the window. It is answered, and its data is dropped.
    acknowledgement_of_what_never_was: established() => "
        < . 1:101(100) ack 4294967295; > . 1:1(0) ack 1
        < . 1:101(100) ack 1; +0.04 > . 1:1(0) ack 101";

    /// What gives up a connection says what its window is, as with Linux.
    window_of_a_reset: established() => "
        option 4 linger 1 0 = 0; close 4 = 0; > R. 1:1(0) ack 1 win 10000";

    /// The setting `freebsd`: it says none.
    freebsd_window_of_a_reset: established() => "
        set freebsd 1; option 4 linger 1 0 = 0; close 4 = 0; > R. 1:1(0) ack 1 win 0";

    /// RFC 791: a link may take 68 bytes and no more. Segments fit into it.
    a_narrow_link: host() => "
        set mtu 72; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1460>; > S. 0:0(0) ack 1 <mss 32>
        < . 1:1(0) ack 1 win 10000; accept 3 = 4; nonblock 4 = 0
        write 4 64 = 64; > . 1:33(32) ack 1; > P. 33:65(32) ack 1
        icmp too_big 68 seq 1; < . 1:1(0) ack 65; write 4 33 = 33
        > . 65:97(32) ack 1; > P. 97:98(1) ack 1";

    /// Less is not granted to a peer.
    a_peer_with_a_tiny_mss: listening() => "
        < S 0:0(0) win 10000 <mss 8>; > S. 0:0(0) ack 1 <mss 1460>
        < . 1:1(0) ack 1 win 10000; accept 3 = 4; nonblock 4 = 0
        write 4 65 = 65; > . 1:65(64) ack 1; > P. 65:66(1) ack 1";

    /// RFC 1191, section 5: what a router has said to one connection counts for those that open
    /// later, either way, for ten minutes. Section 6.3: then the link's MTU is tried again. What a
    /// SYN says is of the link (RFC 6691).
    a_narrow_path_is_remembered: listening() => "
        < S 0:0(0) win 10000 <mss 1460>; > S. 0:0(0) ack 1 <mss 1460>
        +0.01 < . 1:1(0) ack 1 win 10000; accept 3 = 4; nonblock 4 = 0
        write 4 1460 = 1460; > P. 1:1461(1460) ack 1
        icmp too_big 1200 seq 1
        > . 1:1161(1160) ack 1; > P. 1161:1461(300) ack 1
        < R 1:1(0); peer 5001
        < S 0:0(0) win 10000 <mss 1460>; > S. 0:0(0) ack 1 <mss 1460>
        +0.01 < . 1:1(0) ack 1 win 10000; accept 3 = 5; nonblock 5 = 0
        write 5 1460 = 1460; > . 1:1161(1160) ack 1; > P. 1161:1461(300) ack 1
        < . 1:1(0) ack 1461
        +599.95 < . 1:1(0) ack 1461 win 60000; write 5 13060 = 13060
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > . 11901:13061(1160) ack 1
        +0.05 > P. 13061:14521(1460) ack 1
        < R 1:1(0); peer 5002
        < S 0:0(0) win 10000 <mss 1460>; > S. 0:0(0) ack 1 <mss 1460>
        +0.01 < . 1:1(0) ack 1 win 10000; accept 3 = 6; nonblock 6 = 0
        write 6 1460 = 1460; > P. 1:1461(1460) ack 1";
}
