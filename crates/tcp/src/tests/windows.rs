//! What is sent when: windows that are small or closed, Nagle, acknowledgements, keep-alive and
//! timeouts that an app sets. RFC 9293, sections 3.7.4 and 3.8, RFC 5482 and RFC 7323, section 2.

use super::script::begin::*;
use super::script::{Script, cases};

/// Open, with a peer that never had room for more than 600 bytes.
fn small_window() -> Script {
    listening().play(
        "< S 0:0(0) win 600 <mss 1000>
         > S. 0:0(0) ack 1
         < . 1:1(0) ack 1 win 600
         accept",
    )
}

cases! {
    /// 3.8.6.2.1: (3): "if at least a fraction Fs of the maximum window can be sent", where Fs is
    /// "a fraction whose recommended value is 1/2".
    half_of_the_largest_window_is_enough: small_window() => "
        send 5000
        > . 1:601(600) ack 1
        < . 1:1(0) ack 601 win 299
        < . 1:1(0) ack 601 win 300
        > . 601:901(300) ack 1";

    /// 3.8.6.2.1: (4): "or if the override timeout occurs".
    less_than_half_is_sent_after_the_override_timeout: small_window() => "
        send 5000
        > . 1:601(600) ack 1
        < . 1:1(0) ack 601 win 200
        +0.2 > . 601:801(200) ack 1";

    /// 3.8.6.2.1: (2): all that there is may go into a window that is small.
    the_end_of_the_data_may_be_small: small_window() => "
        send 700
        > . 1:601(600) ack 1
        < . 1:1(0) ack 601 win 150
        > P. 601:701(100) ack 1";

    /// 3.10.7.4: "If (SND.WL1 < SEG.SEQ or (SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK))": windows of
    /// old segments say nothing.
    an_old_window_is_not_taken: established() => "
        send 1000; > P. 1:1001(1000) ack 1
        < . 1:1(0) ack 1001 win 3000; peer_window 3000
        < . 1:1(0) ack 1 win 9000; peer_window 3000
        < . 1:11(10) ack 1001 win 2000; peer_window 2000
        +0.04 > . 1001:1001(0) ack 11
        < . 1:11(10) ack 1001 win 8000; > . 1001:1001(0) ack 11; peer_window 2000";

    /// 3.10.7.4: with a receive window of zero a segment without data is acceptable if "SEG.SEQ =
    /// RCV.NXT", which is before what a probe has sent. Else two ends that both have closed their
    /// windows never hear that the other has opened its own.
    an_acknowledgement_after_a_probe_is_acceptable: established() => "
        < . 1:1(0) ack 1 win 0
        send 10
        +0.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        < P. 1:101(100) ack 1 win 0
        +0.04 > . 1:1(0) ack 101
        +0.36 > . 1:2(1) ack 101";

    /// RFC 7323, 2.4: a window that is shifted may seem to be retracted, by rounding. A peer that
    /// has all that was sent would drop what stands before that; what is retracted by more than a
    /// step is another matter.
    an_acknowledgement_is_acceptable_despite_rounding:
        established_with("window_scaling", "mss 1000,wscale 4") => "
        < . 1:1(0) ack 1 win 63
        send 3000
        > . 1:1001(1000) ack 1
        < P. 1:101(100) ack 501 win 31
        +0.04 > . 1001:1001(0) ack 101
        < P. 101:201(100) ack 501 win 20
        +0.04 > . 821:821(0) ack 201";

    /// 3.10.7.4: "special allowance should be made to accept valid ACKs, URGs, and RSTs" with a
    /// window of zero, but RFC 5961, 3.2, has the reset "exactly match the next expected sequence
    /// number": a peer that has not taken the probe expects its byte.
    a_reset_after_a_probe_is_acceptable: established() => "
        < . 1:1(0) ack 1 win 0
        send 10
        +0.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        abort; > R. 1:1(0) ack 1
        state CLOSED; end Aborted";

    /// 3.8.6.1: a probe says nothing of the path, and its answer is no sign of congestion.
    a_closed_window_is_no_congestion: established() => "
        < . 1:1(0) ack 1 win 0
        send 5000
        +0.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +0.4 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 10000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > P. 4001:5001(1000) ack 1
        window 10000; recovery open; rto_ms 200";

    /// 3.8.6.1: a peer that does not answer probes is gone.
    probes_that_are_not_answered: established() => "
        set retries=3
        < . 1:1(0) ack 1 win 0
        send 10
        +0.2 > . 1:2(1) ack 1
        +0.4 > . 1:2(1) ack 1
        +0.8 > . 1:2(1) ack 1
        +1.61
        state CLOSED; end TimedOut";

    /// RFC 5482, 3: "USER TIMEOUT [...] the maximum amount of time that transmitted data may remain
    /// unacknowledged", counted from when that data was sent: what went before a window opened does
    /// not count.
    the_user_timeout_begins_anew_with_the_window: established() => "
        set user_timeout_ms=3000
        < . 1:1(0) ack 1 win 0
        send 10
        +0.2 > . 1:2(1) ack 1
        +0.4 > . 1:2(1) ack 1
        +0.8 > . 1:2(1) ack 1
        +1.2 < . 1:1(0) ack 1 win 1000
        > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.4 > P. 1:11(10) ack 1
        +0.8 > P. 1:11(10) ack 1
        state ESTAB
        +1.61
        state CLOSED; end TimedOut";

    /// RFC 5482, 3.1: each acknowledgement of something begins it anew.
    the_user_timeout_begins_anew_with_progress: established() => "
        set user_timeout_ms=1000
        send 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        +0.4 > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 1001
        > P. 1001:2001(1000) ack 1
        +0.2 > P. 1001:2001(1000) ack 1
        +0.4 > P. 1001:2001(1000) ack 1
        state ESTAB";

    /// 3.8.4: an app may turn it on at any time (SO_KEEPALIVE), and what counts is when something
    /// came last.
    keep_alive_of_a_connection_that_is_open: established() => "
        +20 set keep_alive_s=60
        +40 > . 0:0(0) ack 1
        < . 1:1(0) ack 1
        +60 > . 0:0(0) ack 1
        unset keep_alive_s=60
        +3600; state ESTAB";

    /// 3.8.4: "Keep-alive packets MUST only be sent when no sent data is outstanding, and no data
    /// or acknowledgment packets have been received for the connection within an interval"
    /// (MUST-26).
    keep_alive_waits_for_silence: established_with("keep_alive_s=60", "mss 1000") => "
        +30 < . 1:11(10) ack 1
        +0.04 > . 1:1(0) ack 11
        +29.95 recv 10
        +30.01 > . 0:0(0) ack 11";

    /// The same while data waits to be acknowledged.
    keep_alive_is_not_for_data: established_with("keep_alive_s=1", "mss 1000") => "
        send 10
        > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.4 > P. 1:11(10) ack 1
        +0.8 > P. 1:11(10) ack 1
        +1.6 > P. 1:11(10) ack 1
        < . 1:1(0) ack 11; state ESTAB";

    /// What else an app sets does not hurry the probes.
    keep_alive_goes_on_as_it_was_set: established_with("keep_alive_s=60", "mss 1000") => "
        +60 > . 0:0(0) ack 1
        set no_delay
        +10 > . 0:0(0) ack 1
        unset no_delay
        +10 > . 0:0(0) ack 1
        set no_delay
        +10 > R. 1:1(0) ack 1
        state CLOSED; end TimedOut";

    /// 3.8.4: half-closed connections are kept alive, too.
    keep_alive_in_fin_wait_2: established_with("keep_alive_s=60", "mss 1000") => "
        shutdown; > F. 1:1(0) ack 1
        < . 1:1(0) ack 2
        +60 > . 1:1(0) ack 1
        < . 1:1(0) ack 2
        state FIN-WAIT-2";

    /// What is corked leaves after a while all the same: an app that forgets it does no harm.
    a_cork_does_not_last_for_ever: established() => "
        set cork
        send 10
        +0.2 > P. 1:11(10) ack 1";

    /// The end of the stream takes the cork away.
    a_cork_ends_with_the_stream: established() => "
        set cork
        send 10
        shutdown
        > FP. 1:11(10) ack 1";

    /// 3.7.4: what is behind full segments waits as what stands alone does, for the acknowledgement
    /// of what was not full.
    nagle_holds_the_end_of_what_is_long: established() => "
        send 10; > P. 1:11(10) ack 1
        send 2500
        > . 11:1011(1000) ack 1
        > . 1011:2011(1000) ack 1
        < . 1:1(0) ack 1011
        > P. 2011:2511(500) ack 1";

    /// 3.8.6.3: the first segments are acknowledged at once, so that the peer's window grows, until
    /// this end answers.
    the_first_acknowledgements_are_not_delayed: established_with("quick=3", "mss 1000") => "
        < . 1:11(10) ack 1; > . 1:1(0) ack 11
        < . 11:21(10) ack 1; > . 1:1(0) ack 21
        < . 21:31(10) ack 1; > . 1:1(0) ack 31
        < . 31:41(10) ack 1
        +0.04 > . 1:1(0) ack 41";

    /// RFC 5681, 4.2: "an out-of-order data segment SHOULD be acknowledged immediately", and what
    /// fills a gap.
    what_fills_a_gap_is_acknowledged_at_once: established() => "
        < . 11:21(10) ack 1; > . 1:1(0) ack 1
        < . 31:41(10) ack 1; > . 1:1(0) ack 1
        < . 1:11(10) ack 1; > . 1:1(0) ack 21
        < . 21:31(10) ack 1; > . 1:1(0) ack 41";

    /// RFC 7323, 2.2 and 2.4: a window that cannot be said exactly is rounded down, and what fits
    /// into what was said before is taken.
    scaled_windows_are_rounded_down: closed() => "
        set window_scaling; set buffer=1000000; connect
        > S 0:0(0) win 65535 <mss 1460,wscale 4>
        < S. 0:0(0) ack 1 win 1000 <mss 1000,wscale 0>
        > . 1:1(0) ack 1 win 62500
        < . 1:1002(1001) ack 1
        +0.04 > . 1:1(0) ack 1002 win 62437";
}

// Where those who take segments have no room (`Ways`).
cases! {
    /// What finds no room has not left: no timer runs for it, and it is not given up.
    what_finds_no_room_waits_without_a_timer: established() => "
        room 0; send 1500
        +1000
        in_flight 0
        room 500
        room 1000; > . 1:1001(1000) ack 1
        > P. 1001:1501(500) ack 1
        < . 1:1(0) ack 1501
        in_flight 0; rto_ms 200";

    /// What has no bytes needs no room.
    acknowledgements_and_ends_go_nevertheless: established() => "
        room 0; send 1000
        < P. 1:101(100) ack 1
        +0.04 > . 1:1(0) ack 101
        room 1000; > P. 1:1001(1000) ack 101
        room 0; shutdown; > F. 1001:1001(0) ack 101";

    /// A window that is closed is probed for when there is room again, at the time that was set.
    a_closed_window_is_not_probed_for_without_room: established() => "
        < . 1:1(0) ack 1 win 0
        send 10
        room 0
        +0.3
        room 1000
        +0.3 > . 1:2(1) ack 1";

    /// What counts as lost waits as well.
    what_is_lost_waits_for_room: established() => "
        send 1000; > P. 1:1001(1000) ack 1
        room 0
        +0.5
        room 1000; > P. 1:1001(1000) ack 1";

    /// RFC 8985, 7.3: without new data that could be sent, \"retransmit the last segment\".
    a_tail_probe_has_nothing_that_finds_no_room: far_away() => "
        send 1000; > P. 1:1001(1000) ack 1
        send 1000; > P. 1001:2001(1000) ack 1
        room 0; send 1000
        +0.2 > . 1001:2001(1000) ack 1";
}

/// RFC 5482, 4.2: a user timeout takes the place of a number of probes, and may be longer than all
/// that can be counted.
#[test]
fn a_user_timeout_outlasts_any_number_of_probes() {
    let mut script = established_with("keep_alive_s=10 user_timeout_ms=3000000", "mss 1000");
    for _ in 1..300 {
        script = script.play("+10 > . 0:0(0) ack 1");
    }
    script.play("+10 > R. 1:1(0) ack 1; state CLOSED; end TimedOut");
}
