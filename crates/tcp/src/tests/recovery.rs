//! Loss, windows and options: RFC 2018, 2883, 3042, 3168, 5681, 5682, 6298, 6582, 6937, 7323, 8201
//! and 8985.

use super::script::begin::*;
use super::script::{Script, cases};
use crate::{Config, Cookies};

cases! {
    /// RFC 6298, 2.1: "Until a round-trip time (RTT) measurement has been made for a segment sent
    /// between the sender and receiver, the sender SHOULD set RTO <- 1 second".
    rto_of_a_syn: syn_sent() => "rto_ms 1000";

    /// RFC 6298, 2.2: "SRTT <- R, RTTVAR <- R/2, RTO <- SRTT + max (G, K*RTTVAR)".
    rto_after_the_first_sample: syn_sent() => "
        +0.1 < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        rtt_ms 100; rto_ms 300";

    /// RFC 6298, 2.4: "Whenever RTO is computed, if it is less than 1 second, then the RTO SHOULD
    /// be rounded up to 1 second": for who wants it.
    rto_of_a_second: closed() => "
        set rto_min_ms=1000
        connect; > S 0:0(0)
        +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        send 10
        > P. 1:11(10) ack 1
        +1.01 > P. 1:11(10) ack 1";

    /// RFC 5681, 3.1: "upon a timeout [...] cwnd MUST be set to no more than the loss window, LW,
    /// which equals 1 full-sized segment", and slow start from there.
    the_loss_window: established() => "
        send 4000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > P. 3001:4001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        window 1000
        < . 1:1(0) ack 1001
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        window 2000
        < . 1:1(0) ack 3001
        > P. 3001:4001(1000) ack 1
        < . 1:1(0) ack 4001
        recovery open";

    /// RFC 6298, 5.7: "If the timer expires awaiting the ACK of a SYN segment and the TCP
    /// implementation is using an RTO less than 3 seconds, the RTO MUST be re-initialized to 3
    /// seconds when data transmission begins".
    rto_after_a_lost_syn: syn_sent() => "
        +1 > S 0:0(0)
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        rto_ms 3000";

    /// The same: no timer has expired for who comes with a cookie.
    rto_after_a_cookie: Script::with(Config { cookies: Cookies::Always, ..Config::default() }) => "
        listen
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 10000
        accept; rto_ms 1000";

    /// Nor for who has answered, and whose data the listener waits for.
    rto_after_a_wait_for_data: closed() => "
        set defer=3; listen
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 10000
        +4 < P. 1:11(10) ack 1 win 10000
        accept; rto_ms 1000; window 10000";

    /// RFC 6298, 5.5: "The host MUST set RTO <- RTO * 2 ("back off the timer")".
    rto_backs_off: established() => "
        send 10
        > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.4 > P. 1:11(10) ack 1
        +0.8 > P. 1:11(10) ack 1
        < . 1:1(0) ack 11
        rto_ms 200; recovery open";

    /// RFC 6298, 5.3: "When an ACK is received that acknowledges new data, restart the
    /// retransmission timer so that it will expire after RTO seconds".
    rto_restarts_with_progress: established() => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        +0.15 < . 1:1(0) ack 1001
        +0.1
        in_flight 1000";

    /// RFC 6298, 5: "a segment is never retransmitted too early, i.e., less than one RTO after the
    /// previous transmission of that segment", though that was no timeout.
    nothing_is_sent_again_too_early: established() => "
        send 5000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > P. 4001:5001(1000) ack 1
        +0.1 < . 1:1(0) ack 1; < . 1:1(0) ack 1; < . 1:1(0) ack 1
        > . 1:1001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1";

    /// RFC 6298, 3: Karn: "RTT samples MUST NOT be made using segments that were retransmitted".
    no_sample_of_what_was_sent_twice: established() => "
        send 10
        > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.1 < . 1:1(0) ack 11
        rtt_ms 0";

    /// What came behind it has waited for it: the time since that was sent is no round trip.
    no_sample_of_what_waited_for_that: established() => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 2001
        rtt_ms 0";

    /// RFC 5681, 3.2: "The TCP sender SHOULD use the "fast retransmit" algorithm [...] based on
    /// incoming duplicate ACKs [...] three duplicate ACKs".
    fast_retransmit_without_sack: established() => "
        send 5000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > P. 4001:5001(1000) ack 1
        < . 1:1(0) ack 1; < . 1:1(0) ack 1; recovery open
        < . 1:1(0) ack 1
        > . 1:1001(1000) ack 1
        recovery recovery
        < . 1:1(0) ack 5001
        recovery open; in_flight 0";

    /// RFC 6582, 3.2: "Partial acknowledgments: [...] retransmit the first unacknowledged segment".
    a_partial_acknowledgement_without_sack: established() => "
        send 5000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > P. 4001:5001(1000) ack 1
        < . 1:1(0) ack 1; < . 1:1(0) ack 1; < . 1:1(0) ack 1
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 2001
        > . 2001:3001(1000) ack 1
        < . 1:1(0) ack 5001
        recovery open";

    /// RFC 5681, 2: a duplicate acknowledgement has "no data", and "the advertised window [...]
    /// equals the advertised window in the last incoming acknowledgment".
    what_is_no_duplicate: established() => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        < . 1:1(0) ack 1 win 9000; < . 1:1(0) ack 1 win 8000; < . 1:1(0) ack 1 win 7000
        recovery open; in_flight 3000";

    /// RFC 8985, 6.2: with three segments selectively acknowledged there is no reordering to wait
    /// for.
    rack_with_three_segments_sacked: established_with("sack", "mss 1000,sackOK") => "
        send 5000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > P. 4001:5001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1001:4001>
        > . 1:1001(1000) ack 1
        recovery recovery
        +0.1 < . 1:1(0) ack 5001
        recovery open; in_flight 0";

    /// RFC 8985, 6.2, step 5: what was sent again and is lost again is found, too, by what was sent
    /// after it.
    rack_finds_a_lost_retransmission: established_with("sack", "mss 1000,sackOK") => "
        send 8000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > P. 7001:8001(1000) ack 1
        < . 1:1(0) ack 1 <sack 2001:8001>
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 <sack 1001:8001>
        > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 8001
        recovery open";

    /// RFC 8985, 7.3: "the sender sends a new [...] segment [or] the last segment again".
    a_tail_loss_probe: established_with("sack", "mss 1000,sackOK") => "
        send 1000; > P. 1:1001(1000) ack 1
        +0.05 < . 1:1(0) ack 1001
        send 3000
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > P. 3001:4001(1000) ack 1
        +0.0125 > P. 3001:4001(1000) ack 1
        +0.05 < . 1:1(0) ack 1001 <sack 3001:4001>
        > . 1001:2001(1000) ack 1
        +0.05 < . 1:1(0) ack 2001 <sack 3001:4001>
        > . 2001:3001(1000) ack 1
        < . 1:1(0) ack 4001
        recovery open";

    /// RFC 8985, 6.2, step 4: one segment selectively acknowledged is waited for by a quarter of
    /// the lowest round trip, since it may have overtaken the others.
    rack_waits_for_what_may_be_reordered: far_away() => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:2001>
        recovery open
        +0.025 > . 1:1001(1000) ack 1
        recovery recovery
        +0.1 < . 1:1(0) ack 3001 win 60000
        recovery open";

    /// The same: what comes in that time was reordered, and nothing is sent again.
    rack_has_waited_for_good_reason: far_away() => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:2001>
        +0.02 < . 1:1(0) ack 2001 win 60000
        recovery open; in_flight 1000
        +0.01 < . 1:1(0) ack 3001 win 60000
        in_flight 0; window 10000";

    /// RFC 8985, 7.3: "If an unsent segment exists AND the receive window allows new data to be
    /// sent: Transmit the lowest-sequence unsent segment of up to SMSS".
    a_tail_loss_probe_of_new_data: far_away() => "
        send 12000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > . 7001:8001(1000) ack 1
        > . 8001:9001(1000) ack 1
        > . 9001:10001(1000) ack 1
        +0.2 > . 10001:11001(1000) ack 1";

    /// RFC 9293, 3.8.6: where the window has shrunk, what is inside of it is sent again.
    a_tail_loss_probe_in_a_window_that_has_shrunk: far_away() => "
        send 6000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > P. 5001:6001(1000) ack 1
        +0.05 < . 1:1(0) ack 3001 win 1001
        +0.1875 > . 3001:4001(1000) ack 1";

    /// RFC 8985, 6.2, step 5: what is sent again is not lost by what was sent before it, even if
    /// all of it is of one moment.
    what_is_sent_again_is_later: established_with("sack", "mss 1000,sackOK") => "
        send 5000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > P. 4001:5001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1001:2001>
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1001:3001>
        < . 1:1(0) ack 1 <sack 1001:5001>
        < . 1:1(0) ack 5001
        recovery open";

    /// RFC 8985, 6.2, step 2: of what leaves in one moment, new data behind what is sent again is
    /// later, and not lost because that has arrived.
    new_data_is_later_than_what_is_sent_again_before_it: far_away() => "
        send 11000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > . 7001:8001(1000) ack 1
        > . 8001:9001(1000) ack 1
        > . 9001:10001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:5001 6001:10001>
        > . 1:1001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > P. 10001:11001(1000) ack 1
        +0.1 < . 1:1(0) ack 5001 win 60000 <sack 6001:10001>
        recovery recovery; in_flight 2000
        < . 1:1(0) ack 11001 win 60000
        recovery open; in_flight 0";

    /// RFC 8985, 7.4.2: a duplicate says that the original has arrived, too: nothing was lost.
    a_tail_loss_probe_for_nothing: far_away() => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        +0.2 > P. 1001:2001(1000) ack 1
        +0.05 < . 1:1(0) ack 2001 win 60000
        < . 1:1(0) ack 2001 win 60000 <sack 1001:2001>
        send 1000; > P. 2001:3001(1000) ack 1
        +0.1 < . 1:1(0) ack 3001 win 60000
        window 10000";

    /// The same: without one the probe has repaired a loss, of which congestion control has to
    /// hear.
    a_tail_loss_probe_that_repairs: far_away() => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        +0.2 > P. 1001:2001(1000) ack 1
        +0.1 < . 1:1(0) ack 2001 win 60000
        window 10000
        send 1000; > P. 2001:3001(1000) ack 1
        +0.1 < . 1:1(0) ack 3001 win 60000
        window 7000";

    /// RFC 2018, 4: "The first SACK block MUST specify the contiguous block of data containing the
    /// segment which triggered this ACK", then others, newest first.
    sack_blocks_newest_first: established_with("sack", "mss 1000,sackOK") => "
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 1 <sack 1001:2001>
        < . 5001:6001(1000) ack 1
        > . 1:1(0) ack 1 <sack 5001:6001 1001:2001>
        < . 3001:4001(1000) ack 1
        > . 1:1(0) ack 1 <sack 3001:4001 5001:6001 1001:2001>
        < . 2001:3001(1000) ack 1
        > . 1:1(0) ack 1 <sack 1001:4001 5001:6001>
        < . 1:1001(1000) ack 1
        > . 1:1(0) ack 4001 <sack 5001:6001>
        < . 4001:5001(1000) ack 1
        > . 1:1(0) ack 6001 <>";

    /// RFC 2018, 2: only "if it has received the SACK-Permitted option".
    no_sack_without_permission: established_with("sack", "mss 1000") => "
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 1 <>";

    /// RFC 2883, 4.1: "the first block of the SACK option contains the left edge and right edge of
    /// the duplicate".
    a_duplicate_is_reported: established_with("sack", "mss 1000,sackOK") => "
        < . 1:1001(1000) ack 1
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 2001 <>
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 2001 <sack 1001:2001>
        < . 2001:3001(1000) ack 1
        +0.04 > . 1:1(0) ack 3001 <>";

    /// RFC 2883, 4.2.1: a duplicate above the acknowledgement, and the block that it is in.
    a_duplicate_out_of_order_is_reported: established_with("sack", "mss 1000,sackOK") => "
        < . 1001:3001(2000) ack 1
        > . 1:1(0) ack 1 <sack 1001:3001>
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 1 <sack 1001:2001 1001:3001>";

    /// RFC 2883, 4: "Each duplicate contiguous sequence of data received is reported in at most one
    /// D-SACK block", the first one of a segment that fills several holes here.
    a_duplicate_within_a_segment_is_reported: established_with("sack", "mss 1000,sackOK") => "
        < . 1001:3001(2000) ack 1
        > . 1:1(0) ack 1 <sack 1001:3001>
        < . 4001:5001(1000) ack 1
        > . 1:1(0) ack 1 <sack 4001:5001 1001:3001>
        < . 7001:8001(1000) ack 1
        > . 1:1(0) ack 1 <sack 7001:8001 4001:5001 1001:3001>
        < . 1:6001(6000) ack 1
        > . 1:1(0) ack 6001 <sack 1001:3001 7001:8001>
        < . 6001:8001(2000) ack 1
        > . 1:1(0) ack 8001 <sack 7001:8001>";

    /// RFC 2883 is about data: the challenge to a SYN (RFC 5961, 4.2) reports none.
    a_challenge_reports_no_duplicate: established_with("sack", "mss 1000,sackOK") => "
        < S 0:0(0) <mss 1000,sackOK>
        > . 1:1(0) ack 1 <>";

    /// RFC 5681, 3.2 with RFC 6675: what is a lie about what was sent counts for nothing.
    blocks_of_what_was_not_sent: established_with("sack", "mss 1000,sackOK") => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        < . 1:1(0) ack 1 <sack 2001:9001>
        < . 1:1(0) ack 1 <sack 1001:3001>
        < . 1:1(0) ack 1 <sack 1501:1001>
        in_flight 2000; recovery open";

    /// A block of a part of a segment (CVE-2019-11477) is as if there were none.
    blocks_of_parts_of_segments: established_with("sack", "mss 1000,sackOK") => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1002:2000 2500:2501>
        in_flight 3000";

    /// RFC 2018, 8: "the data receiver is permitted to discard data in its queue that has not been
    /// acknowledged". What is next to the hole stays, and what is gone counts as never received.
    what_is_given_up_is_taken_again: established_with("sack", "mss 1000,sackOK") => "
        < . 1001:2001(1000) ack 1; > . 1:1(0) ack 1 <sack 1001:2001>
        < . 3001:4001(1000) ack 1; > . 1:1(0) ack 1 <sack 3001:4001 1001:2001>
        < . 4001:5001(1000) ack 1; > . 1:1(0) ack 1 <sack 3001:5001 1001:2001>
        renege
        < . 6001:7001(1000) ack 1; > . 1:1(0) ack 1 <sack 6001:7001 1001:2001>
        < . 1:1001(1000) ack 1; > . 1:1(0) ack 2001 <sack 6001:7001>
        renege
        < . 2001:3001(1000) ack 1
        < . 3001:5001(2000) ack 1; > . 1:1(0) ack 5001
        < . 5001:7001(2000) ack 1; +0.04 > . 1:1(0) ack 7001
        recv 7000; +0 > . 1:1(0) ack 7001";

    /// RFC 2018, 8: a receiver may take back what it has acknowledged selectively. It has if the
    /// first segment that is not acknowledged is such: after a timeout nothing that it has said of
    /// others counts.
    what_is_taken_back_is_sent_again: established_with("sack", "mss 1000,sackOK") => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1001:3001>
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1001
        in_flight 0
        +0.2 > . 1001:2001(1000) ack 1
        < . 1:1(0) ack 2001
        > P. 2001:3001(1000) ack 1";

    /// The same with a window that has been closed since. Found by fuzzing.
    what_is_taken_back_is_probed_for: established_with("sack", "mss 1000,sackOK") => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1001:3001>
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1001 win 0
        +0.2 > . 1001:2001(1000) ack 1
        in_flight 2000";

    /// RFC 2018, 3: "the bytes just below the block, (Left Edge of Block - 1), [...] have not been
    /// received": a block that begins where the acknowledgement ends says nothing. Found by
    /// fuzzing.
    a_block_at_the_acknowledgement: established_with("sack", "mss 1000,sackOK") => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        < . 1:1(0) ack 1 win 0 <sack 1:1001>
        in_flight 2000
        +0.2 > . 1:1001(1000) ack 1
        in_flight 2000";

    /// RFC 7323, 2.2: "The window field in a segment where the SYN bit is set [...] MUST NOT be
    /// scaled".
    windows_are_scaled: closed() => "
        set window_scaling; set buffer=1000000
        connect
        > S 0:0(0) win 65535 <mss 1460,wscale 4>
        < S. 0:0(0) ack 1 win 1000 <mss 1000,wscale 7>
        > . 1:1(0) ack 1 win 62500
        peer_window 1000
        < . 1:1(0) ack 1 win 1000
        peer_window 128000";

    /// RFC 7323, 2.2: without the peer's option there is none.
    windows_are_not_scaled_one_way: closed() => "
        set window_scaling; set buffer=1000000
        connect
        > S 0:0(0) win 65535 <mss 1460,wscale 4>
        < S. 0:0(0) ack 1 win 1000 <mss 1000>
        > . 1:1(0) ack 1 win 65535";

    /// RFC 7323, 2.3: "If a Window Scale option is received with a shift.cnt value larger than 14,
    /// the TCP SHOULD log the error but MUST use 14".
    a_scale_beyond_14: closed() => "
        set window_scaling
        connect
        > S 0:0(0)
        < S. 0:0(0) ack 1 win 1000 <mss 1000,wscale 200>
        > . 1:1(0) ack 1
        < . 1:1(0) ack 1 win 2
        peer_window 32768";

    /// RFC 7323, 3.2: both ends have to send the option; then it is in every segment.
    timestamps_are_agreed_on: closed() => "
        set timestamps
        connect
        > S 0:0(0) win 10000 <mss 1460,TS val 1000 ecr 0>
        +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000,TS val 700 ecr 1000>
        > . 1:1(0) ack 1 <TS val 1010 ecr 700>
        segment 988
        send 10
        > P. 1:11(10) ack 1 <TS val 1010 ecr 700>";

    /// RFC 7323, 5.3, R1: "SEG.TSval < TS.Recent [...] then treat the arriving segment as not
    /// acceptable: Send an acknowledgment in reply [...] and drop the segment".
    paws: with_timestamps() => "
        < . 1:11(10) ack 1 <TS val 200 ecr 0>
        +0.04 > . 1:1(0) ack 11 <TS val 1040 ecr 200>
        < . 11:21(10) ack 1 <TS val 150 ecr 0>
        > . 1:1(0) ack 11 <TS val 1040 ecr 200>
        unread 10";

    /// RFC 7323, 5.3: "and if the RST bit is not set".
    paws_is_not_for_resets: with_timestamps() => "
        < R. 1:1(0) ack 1 <TS val 50 ecr 0>
        state CLOSED";

    /// RFC 7323, 3.2: "If a non-<RST> segment is received without a TSopt, a TCP SHOULD silently
    /// drop the segment."
    a_segment_without_its_timestamp: with_timestamps() => "
        < . 1:11(10) ack 1
        unread 0";

    /// RFC 7323, 4.3: only "SEG.SEQ <= Last.ACK.sent": a later segment does not set what is echoed.
    timestamps_of_what_is_out_of_order: with_timestamps() => "
        < . 11:21(10) ack 1 <TS val 300 ecr 0>
        > . 1:1(0) ack 1 <TS val 1000 ecr 100>
        < . 1:11(10) ack 1 <TS val 290 ecr 0>
        > . 1:1(0) ack 21 <TS val 1000 ecr 290>";

    /// RFC 7323, 4.3: a delayed acknowledgement echoes the first of the segments that it is for.
    timestamps_of_a_delayed_acknowledgement: with_timestamps() => "
        < . 1:11(10) ack 1 <TS val 200 ecr 0>
        < . 11:21(10) ack 1 <TS val 210 ecr 0>
        +0.04 > . 1:1(0) ack 21 <TS val 1040 ecr 200>";

    /// RFC 7323, 4: with timestamps what was sent again is measured, too: SRTT is an eighth of 48
    /// ms after this.
    timestamps_measure_retransmissions: with_timestamps() => "
        send 10
        > P. 1:11(10) ack 1 <TS val 1000 ecr 100>
        +0.2 > P. 1:11(10) ack 1 <TS val 1200 ecr 100>
        +0.048 < . 1:1(0) ack 11 <TS val 300 ecr 1200>
        rtt_ms 6";

    /// RFC 7323, 5.5: after 24 days without a segment TS.Recent is not valid.
    paws_after_24_days: with_timestamps() => "
        +2160000 < . 1:11(10) ack 1 <TS val 50 ecr 0>
        unread 10
        +0.04 > . 1:1(0) ack 11";

    /// RFC 3168, 6.1.1: the ECN-setup SYN, and the SYN-ACK that agrees.
    ecn_is_agreed_on: closed() => "
        set ecn
        connect
        > SEW 0:0(0)
        < SE. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        send 10
        > [ect] P. 1:11(10) ack 1";

    /// RFC 3168, 6.1.1: a SYN-ACK with both flags is no ECN-setup SYN-ACK.
    ecn_is_refused: closed() => "
        set ecn
        connect
        > SEW 0:0(0)
        < SEW. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        send 10
        > P. 1:11(10) ack 1";

    /// RFC 3168, 6.1.1.1: a SYN that is sent again does not ask.
    ecn_is_not_asked_for_twice: closed() => "
        set ecn
        connect
        > SEW 0:0(0)
        +1 > S 0:0(0)";

    /// RFC 3168, 6.1.3: ECE "in the ACKs [...] until it receives a CWR packet".
    a_mark_is_echoed_until_it_is_answered: listening() => "
        unlisten; set ecn; listen
        < SEW 0:0(0) win 10000 <mss 1000>
        > SE. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept
        < [ce] . 1:11(10) ack 1
        > E. 1:1(0) ack 11
        < [ect] . 11:21(10) ack 1
        +0.04 > E. 1:1(0) ack 21
        < [ect] W. 21:31(10) ack 1
        > . 1:1(0) ack 31       // the peer's window may be this segment
        < [ect] . 31:41(10) ack 1
        +0.04 > . 1:1(0) ack 41";

    /// RFC 3168, 6.1.2: ECE halves the window, "at most once per window of data", and CWR says so.
    an_echo_reduces_the_window_once: closed() => "
        set ecn
        connect
        > SEW 0:0(0)
        < SE. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        send 2000
        > [ect] . 1:1001(1000) ack 1
        > [ect] P. 1001:2001(1000) ack 1
        window 10000
        < E. 1:1(0) ack 1001
        window 8500
        < E. 1:1(0) ack 2001
        window 8500
        send 10
        > [ect] PW. 2001:2011(10) ack 1";

    /// RFC 3168, 6.1.5: "TCP packets carrying retransmitted data" are not ECN-capable; 6.1.4: nor
    /// is a pure acknowledgement.
    what_is_sent_again_is_not_ecn_capable: closed() => "
        set ecn
        connect
        > SEW 0:0(0)
        < SE. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        send 10
        > [ect] P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        < . 1:11(10) ack 11
        +0.04 > . 11:11(0) ack 11
        send 10
        > [ect] PW. 11:21(10) ack 11";

    /// RFC 3168, 6.1.1: a listener that does not want it answers as if it had not been asked.
    ecn_is_not_wanted: listening() => "
        < SEW 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1";

    /// RFC 1191, 6.4, and RFC 5927: an MTU that a router says, of a segment that is outstanding.
    a_packet_was_too_big: established() => "
        send 2000
        > . 1:1001(1000) ack 1
        > P. 1001:2001(1000) ack 1
        icmp too_big 640 seq 1
        > . 1:601(600) ack 1
        > . 601:1001(400) ack 1
        > . 1001:1601(600) ack 1
        > P. 1601:2001(400) ack 1
        recovery open; segment 600";

    /// RFC 5927, 4.1: of what is not outstanding it is an attacker's.
    blind_icmp_is_ignored: established() => "
        send 1000
        > P. 1:1001(1000) ack 1
        icmp too_big 640 seq 1001
        icmp too_big 640 seq -5
        segment 1000
        icmp refused seq 1
        state ESTAB";

    /// RFC 1191, 3: less than any path has is not believed.
    a_path_mtu_of_nothing: established() => "
        send 1000
        > P. 1:1001(1000) ack 1
        icmp too_big 68 seq 1
        > . 1:513(512) ack 1
        > P. 513:1001(488) ack 1
        segment 512";

    /// RFC 5482: the user timeout ends the connection, whatever the count of retransmissions.
    the_user_timeout: established() => "
        set user_timeout_ms=1000
        send 10
        > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.4 > P. 1:11(10) ack 1
        +0.81
        state CLOSED; end TimedOut";

    /// RFC 6928: "The upper bound for the initial window will be min (10*MSS, max (2*MSS, 14600))".
    the_initial_window: established() => "
        window 10000
        < . 1:1(0) ack 1 win 60000
        send 12000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > . 7001:8001(1000) ack 1
        > . 8001:9001(1000) ack 1
        > . 9001:10001(1000) ack 1
        < . 1:1(0) ack 2001 win 60000
        > . 10001:11001(1000) ack 1
        > P. 11001:12001(1000) ack 1
        window 12000";

    /// RFC 5681, 3.1: "if the SYN or SYN/ACK is lost, the initial window used by a sender after a
    /// correctly transmitted SYN MUST be one segment"; RFC 6928, 2: not before "there have been
    /// more than one SYN or SYN/ACK retransmissions".
    the_initial_window_after_lost_syns: syn_sent() => "
        +1 > S 0:0(0)
        +2 > S 0:0(0)
        < S. 0:0(0) ack 1 win 60000 <mss 1000>
        > . 1:1(0) ack 1
        window 1000
        send 20000
        > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 1001 win 60000
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1";

    /// The same of a listener.
    the_initial_window_after_lost_syn_acks: half_open() => "
        +1 > S. 0:0(0) ack 1
        +2 > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 60000
        accept; window 1000
        send 20000
        > . 1:1001(1000) ack 1";

    /// The same: a timer may have been too fast.
    the_initial_window_after_one_lost_syn: syn_sent() => "
        +1 > S 0:0(0)
        < S. 0:0(0) ack 1 win 60000 <mss 1000>
        > . 1:1(0) ack 1
        window 10000";

    /// RFC 5681, 4.1: "a TCP SHOULD set cwnd to no more than RW before beginning transmission if
    /// the TCP has not sent data in an interval exceeding the retransmission timeout".
    the_restart_window: established() => "
        < . 1:1(0) ack 1 win 60000
        send 10000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > . 7001:8001(1000) ack 1
        > . 8001:9001(1000) ack 1
        > P. 9001:10001(1000) ack 1
        +0.1 < . 1:1(0) ack 10001 win 60000
        window 20000
        +0.1 send 1000; > P. 10001:11001(1000) ack 1    // not so long as the timeout
        window 20000
        +0.1 < . 1:1(0) ack 11001 win 60000
        +2 send 1000; > P. 11001:12001(1000) ack 1
        window 10000";

    /// RFC 3042: "the sender [...] transmit a segment of new data upon the arrival of the first two
    /// duplicate ACKs".
    limited_transmit: established() => "
        < . 1:1(0) ack 1 win 60000
        send 10000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > . 7001:8001(1000) ack 1
        > . 8001:9001(1000) ack 1
        > P. 9001:10001(1000) ack 1
        send 2000
        < . 1:1(0) ack 1 win 60000
        > . 10001:11001(1000) ack 1
        < . 1:1(0) ack 1 win 60000
        > P. 11001:12001(1000) ack 1
        window 10000";

    /// RFC 5961, 7: "in any 5 second window, no more than 10 challenge ACKs should be sent".
    challenges_are_few: established() => "
        < S 1:1(0); > . 1:1(0) ack 1; < S 1:1(0); > . 1:1(0) ack 1
        < S 1:1(0); > . 1:1(0) ack 1; < S 1:1(0); > . 1:1(0) ack 1
        < S 1:1(0); > . 1:1(0) ack 1; < S 1:1(0); > . 1:1(0) ack 1
        < S 1:1(0); > . 1:1(0) ack 1; < S 1:1(0); > . 1:1(0) ack 1
        < S 1:1(0); > . 1:1(0) ack 1; < S 1:1(0); > . 1:1(0) ack 1
        < S 1:1(0); < S 1:1(0)
        +5 < S 1:1(0)
        > . 1:1(0) ack 1";

    /// The same outside of the window, and of those that are old by their timestamps: the answer to
    /// a SYN is a challenge "irrespective of the sequence number".
    challenges_from_outside_are_few: with_timestamps() => "
        < S 20001:20001(0) <TS val 101 ecr 0>; > . 1:1(0) ack 1
        < S 1:1(0) <TS val 1 ecr 0>; > . 1:1(0) ack 1
        < S 20001:20001(0) <TS val 101 ecr 0>; > . 1:1(0) ack 1
        < S 1:1(0) <TS val 1 ecr 0>; > . 1:1(0) ack 1
        < S 20001:20001(0) <TS val 101 ecr 0>; > . 1:1(0) ack 1
        < S 1:1(0) <TS val 1 ecr 0>; > . 1:1(0) ack 1
        < S 20001:20001(0) <TS val 101 ecr 0>; > . 1:1(0) ack 1
        < S 1:1(0) <TS val 1 ecr 0>; > . 1:1(0) ack 1
        < S 20001:20001(0) <TS val 101 ecr 0>; > . 1:1(0) ack 1
        < S 1:1(0) <TS val 1 ecr 0>; > . 1:1(0) ack 1
        < S 20001:20001(0) <TS val 101 ecr 0>; < S 1:1(0) <TS val 1 ecr 0>
        +5 < S 20001:20001(0) <TS val 101 ecr 0>
        > . 1:1(0) ack 1";

    /// RFC 5961, 5.2: an acknowledgement far below is an attacker's; one that is merely old is not.
    old_acknowledgements: established() => "
        send 1000; > P. 1:1001(1000) ack 1; < . 1:1(0) ack 1001
        < P. 1:11(10) ack 1
        +0.04 > . 1001:1001(0) ack 11
        < P. 11:21(10) ack -9500
        > . 1001:1001(0) ack 11
        unread 10";

    /// Savage et al., "TCP congestion control with a misbehaving receiver": acknowledgements of
    /// what was not sent.
    optimistic_acknowledgements: established() => "
        send 1000; > P. 1:1001(1000) ack 1
        < . 1:1(0) ack 2001
        > . 1001:1001(0) ack 1
        in_flight 1000; window 10000";

    /// The same: the window grows by bytes, however many acknowledgements they are split into (RFC
    /// 3465).
    split_acknowledgements: established() => "
        send 1000; > P. 1:1001(1000) ack 1
        < . 1:1(0) ack 101; < . 1:1(0) ack 201; < . 1:1(0) ack 301; < . 1:1(0) ack 401
        < . 1:1(0) ack 501; < . 1:1(0) ack 601; < . 1:1(0) ack 701; < . 1:1(0) ack 801
        < . 1:1(0) ack 901; < . 1:1(0) ack 1001
        window 10000";

    /// RFC 5682, 3.1: after a timeout and one acknowledgement "transmit up to two new [...]
    /// segments"; when the next acknowledges what was sent once, "the timeout was spurious".
    f_rto_finds_a_timeout_that_was_for_nothing: established_with("sack", "mss 1000,sackOK") => "
        +0 send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.002 > P. 2001:3001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        recovery loss
        send 3000
        < . 1:1(0) ack 1001
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        < . 1:1(0) ack 2001
        > P. 5001:6001(1000) ack 1
        recovery open; window 11000";

    /// The same: "revert to conventional recovery" when it is not.
    f_rto_goes_on_after_a_real_loss: established_with("sack", "mss 1000,sackOK") => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.002 > P. 2001:3001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1001
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        recovery loss
        < . 1:1(0) ack 3001
        recovery open";

    /// RFC 5682, section 3: of what is selectively acknowledged, only what was sent before the
    /// timeout says that it was for nothing. What was sent behind it is not lost with it.
    f_rto_goes_on_if_only_new_data_arrives: established_with("sack", "mss 1000,sackOK") => "
        +0.02 send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.002 > P. 2001:3001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        send 3000
        < . 1:1(0) ack 1001
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        < . 1:1(0) ack 1001 <sack 3001:4001>
        > . 1001:2001(1000) ack 1
        recovery loss
        < . 1:1(0) ack 2001 <sack 3001:5001>
        > . 2001:3001(1000) ack 1
        > P. 5001:6001(1000) ack 1
        recovery loss";

    /// The same: what comes with data, or tells that a tail loss probe has come twice (RFC 2883),
    /// is no duplicate acknowledgement, and says nothing of a loss.
    f_rto_waits_for_what_says_something: established_with("sack", "mss 1000,sackOK") => "
        +0.02 send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.002 > P. 2001:3001(1000) ack 1
        +0.001 send 3000
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > P. 5001:6001(1000) ack 1
        +0.199 > . 1:1001(1000) ack 1
        send 3000
        < . 1:101(100) ack 1
        < . 101:101(0) ack 3001
        > . 6001:7001(1000) ack 101
        > . 7001:8001(1000) ack 101
        < . 101:101(0) ack 3001 <sack 2001:3001>
        recovery loss
        < . 101:101(0) ack 4001
        > P. 8001:9001(1000) ack 101
        recovery open";

    /// RFC 5682, section 2, without SACK: two acknowledgements in a row acknowledge more.
    f_rto_without_sack: established() => "
        +0.02 send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        send 3000
        < . 1:1(0) ack 1001
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        < . 1:1(0) ack 2001
        > P. 5001:6001(1000) ack 1
        recovery open";

    /// The same: a duplicate says that the loss was real.
    f_rto_without_sack_goes_on_after_a_real_loss: established() => "
        +0.02 send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        send 3000
        < . 1:1(0) ack 1001
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        < . 1:1(0) ack 1001
        > . 1001:2001(1000) ack 1
        recovery loss
        < . 1:1(0) ack 1001
        > . 2001:3001(1000) ack 1
        < . 1:1(0) ack 5001
        > P. 5001:6001(1000) ack 1
        recovery open";

    /// The same: new segments cannot be sent if the receiver's window is full, and nothing is
    /// waited for that will not come.
    f_rto_goes_on_if_the_window_is_full: established_with("sack", "mss 1000,sackOK") => "
        < . 1:1(0) ack 1 win 3000
        send 9000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        +0.002 > . 2001:3001(1000) ack 1
        +0.2 > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1001 win 2000
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        recovery loss";

    /// RFC 3522, 3.2: an acknowledgement of a retransmission that echoes an older timestamp is of
    /// the original.
    timestamps_undo_a_retransmission_for_nothing: with_timestamps() => "
        send 900
        > P. 1:901(900) ack 1
        +0.2 > P. 1:901(900) ack 1
        recovery loss
        +0.01 < . 1:1(0) ack 901 <TS val 300 ecr 1000>
        recovery open; in_flight 0";
}
