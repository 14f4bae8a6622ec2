//! Loss and what looks like it, in the cases that are seldom: RFC 2018, 2883, 3168, 5961, 6298,
//! 6675, 6937, 7323 and 8985.

use super::script::begin::*;
use super::script::cases;

cases! {
    /// RFC 6298, 2.5: "A maximum value MAY be placed on RTO": two minutes.
    rto_is_bounded: established() => "
        send 10; > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.4 > P. 1:11(10) ack 1
        +0.8 > P. 1:11(10) ack 1
        +1.6 > P. 1:11(10) ack 1
        +3.2 > P. 1:11(10) ack 1
        +6.4 > P. 1:11(10) ack 1
        +12.8 > P. 1:11(10) ack 1
        +25.6 > P. 1:11(10) ack 1
        +51.2 > P. 1:11(10) ack 1
        +102.4 > P. 1:11(10) ack 1
        +120 > P. 1:11(10) ack 1
        +120 > P. 1:11(10) ack 1
        state ESTAB";

    /// RFC 8985, 7.3: after a probe the retransmission timeout is counted anew.
    a_timeout_follows_a_tail_loss_probe: far_away() => "
        send 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.2 > P. 1001:2001(1000) ack 1
        +0.3 > . 1:1001(1000) ack 1
        recovery loss; window 1000";

    /// RFC 8985, 7.2: of a single segment the acknowledgement may be delayed: the probe waits for
    /// that, too.
    a_tail_loss_probe_of_a_single_segment: far_away() => "
        +1 send 100; > P. 1:101(100) ack 1
        +0.05 < . 1:1(0) ack 101 win 60000
        send 100; > P. 101:201(100) ack 1
        +0.2938 > P. 101:201(100) ack 1
        recovery open; window 10000
        +0.2938 > P. 101:201(100) ack 1
        recovery loss";

    /// RFC 8985, 7: "The connection supports SACK": without there is none.
    no_tail_loss_probe_without_sack: established() => "
        send 1000; > P. 1:1001(1000) ack 1
        +0.05 < . 1:1(0) ack 1001
        send 2000; > . 1001:2001(1000) ack 1; > P. 2001:3001(1000) ack 1
        +0.206 > . 1001:2001(1000) ack 1";

    /// RFC 8985, 6.2, step 4: once reordering has been seen, three segments are waited for, too.
    rack_waits_once_reordering_was_seen: far_away() => "
        send 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:2001>
        +0.01 < . 1:1(0) ack 2001 win 60000
        send 5000
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > P. 6001:7001(1000) ack 1
        +0.1 < . 1:1(0) ack 2001 win 60000 <sack 3001:7001>
        recovery open
        +0.01 < . 1:1(0) ack 7001 win 60000
        recovery open; in_flight 0";

    /// RFC 8985, 6.2, step 5: what is sent during a recovery and lost is found by the
    /// acknowledgement that ends the recovery, too: it may be the last to come before a timeout.
    rack_looks_behind_a_recovery_that_ends: far_away() => "
        send 4000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1; > . 2001:3001(1000) ack 1
        > P. 3001:4001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:4001>
        > . 1:1001(1000) ack 1
        send 2000; > . 4001:5001(1000) ack 1; > P. 5001:6001(1000) ack 1
        +0.1 < . 1:1(0) ack 4001 win 60000 <sack 5001:6001>
        recovery open
        +0.025 > . 4001:5001(1000) ack 1
        recovery recovery
        +0.1 < . 1:1(0) ack 6001 win 60000
        recovery open; in_flight 0";

    /// RFC 6937, 3.1: a segment leaves for each that arrives, when what is in flight is what it
    /// should be.
    prr_sends_as_much_as_arrives: far_away() => "
        send 14000
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
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:4001>
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1 win 60000 <sack 1001:5001>
        > . 10001:11001(1000) ack 1
        < . 1:1(0) ack 1 win 60000 <sack 1001:6001>
        > . 11001:12001(1000) ack 1
        in_flight 7000
        < . 1:1(0) ack 1 win 60000 <sack 1001:10001>
        > . 12001:13001(1000) ack 1
        > P. 13001:14001(1000) ack 1
        +0.1 < . 1:1(0) ack 14001 win 60000
        recovery open; window 7000";

    /// RFC 2018, 3: beside timestamps there is room for three blocks.
    three_blocks_beside_timestamps: established_with(
        "sack timestamps",
        "mss 1000,sackOK,TS val 100 ecr 0",
    ) => "
        < . 101:201(100) ack 1 <TS val 100 ecr 1000>; > . 1:1(0) ack 1
        < . 301:401(100) ack 1 <TS val 100 ecr 1000>; > . 1:1(0) ack 1
        < . 501:601(100) ack 1 <TS val 100 ecr 1000>; > . 1:1(0) ack 1
        < . 701:801(100) ack 1 <TS val 100 ecr 1000>
        > . 1:1(0) ack 1 <TS val 1000 ecr 100,sack 701:801 501:601 301:401>";

    /// RFC 2018, 3: without, four; data that leaves then has less room.
    four_blocks_go_with_data: established_with("sack", "mss 1000,sackOK") => "
        < . 101:201(100) ack 1; > . 1:1(0) ack 1
        < . 301:401(100) ack 1; > . 1:1(0) ack 1
        < . 501:601(100) ack 1; > . 1:1(0) ack 1
        < . 701:801(100) ack 1; > . 1:1(0) ack 1
        send 1000
        > . 1:965(964) ack 1 <sack 701:801 501:601 301:401 101:201>
        > P. 965:1001(36) ack 1";

    /// RFC 2883, 4: what was acknowledged long ago is reported, too.
    what_is_old_is_reported: established_with("sack", "mss 1000,sackOK") => "
        < . 1:1001(1000) ack 1
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 2001
        < . 1:1001(1000) ack 1
        > . 1:1(0) ack 2001 <sack 1:1001>
        < . 1501:2501(1000) ack 1
        > . 1:1(0) ack 2501 <sack 1501:2001>";

    /// RFC 7323, 5.2: timestamps are compared modulo 2^32.
    timestamps_wrap: closed() => "
        set timestamps; listen
        < S 0:0(0) win 10000 <mss 1000,TS val 4294967290 ecr 0>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 <TS val 4294967290 ecr 1000>; accept
        < . 1:11(10) ack 1 <TS val 5 ecr 0>
        +0.04 > . 1:1(0) ack 11 <TS val 1040 ecr 5>
        < . 11:21(10) ack 1 <TS val 4294967295 ecr 0>
        > . 1:1(0) ack 11 <TS val 1040 ecr 5>
        unread 10";

    /// RFC 7323, 5.3: the check comes before that of the window, and before that of
    /// acknowledgements: an old segment changes nothing.
    paws_is_for_acknowledgements: established_with("timestamps", "mss 1000,TS val 100 ecr 0") => "
        send 900; > P. 1:901(900) ack 1
        < . 1:1(0) ack 901 win 500 <TS val 50 ecr 1000>
        > . 901:901(0) ack 1
        in_flight 900; peer_window 10000";

    /// RFC 3168, 6.1: what is not agreed on is not looked at.
    marks_without_ecn: established() => "
        < [ce] . 1:11(10) ack 1
        +0.04 > . 1:1(0) ack 11
        send 10; > P. 1:11(10) ack 11
        < E. 11:11(0) ack 11
        window 10000";

    /// RFC 3168, 6.1.4: a pure acknowledgement is not ECN-capable: a mark of one says nothing.
    a_mark_of_an_acknowledgement: listening() => "
        unlisten; set ecn; listen
        < SEW 0:0(0) win 10000 <mss 1000>
        > SE. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept
        < [ce] . 1:1(0) ack 1
        send 10; > [ect] P. 1:11(10) ack 1";

    /// RFC 3168, 6.1.3: an echo goes on "until it receives a CWR packet", which may have no data.
    cwr_of_an_acknowledgement: listening() => "
        unlisten; set ecn; listen
        < SEW 0:0(0) win 10000 <mss 1000>
        > SE. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept
        < [ce] . 1:11(10) ack 1
        > E. 1:1(0) ack 11
        send 10; > [ect] PE. 1:11(10) ack 11
        < W. 11:11(0) ack 11
        send 10; > [ect] P. 11:21(10) ack 11";

    /// `Variants::lax_ecn`: it does.
    a_mark_of_an_acknowledgement_counts: listening() => "
        unlisten; set ecn; set lax_ecn; listen
        < SEW 0:0(0) win 10000 <mss 1000>
        > SE. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept
        < [ce] . 1:1(0) ack 1
        send 10; > [ect] PE. 1:11(10) ack 1
        < W. 1:1(0) ack 11
        send 10; > [ect] P. 11:21(10) ack 1";

    /// RFC 3168, 6.1.1: after a simultaneous open both have asked.
    ecn_of_a_simultaneous_open: closed() => "
        set ecn; connect
        > SEW 0:0(0)
        < SEW 0:0(0) win 10000 <mss 1000>
        > SE. 0:0(0) ack 1
        < . 1:1(0) ack 1
        send 10; > [ect] P. 1:11(10) ack 1";

    /// RFC 3168, 6.1.2: a loss is answered with CWR, too.
    a_loss_is_answered_with_cwr: closed() => "
        set ecn; set sack; connect
        > SEW 0:0(0)
        < SE. 0:0(0) ack 1 win 10000 <mss 1000,sackOK>
        > . 1:1(0) ack 1
        send 4000
        > [ect] . 1:1001(1000) ack 1
        > [ect] . 1001:2001(1000) ack 1
        > [ect] . 2001:3001(1000) ack 1
        > [ect] P. 3001:4001(1000) ack 1
        < . 1:1(0) ack 1 <sack 1001:4001>
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 4001
        send 10; > [ect] PW. 4001:4011(10) ack 1";

    /// RFC 8201, 4: what a router says is never more than what is known.
    a_path_does_not_grow_by_icmp: established() => "
        send 1000; > P. 1:1001(1000) ack 1
        icmp too_big 1400 seq 1
        segment 1000
        icmp too_big 9000 seq 1
        segment 1000; in_flight 1000";

    /// RFC 9293, 3.9.2.2: a soft error says why a connection is given up.
    a_soft_error_is_the_reason: established() => "
        set retries=1
        send 10; > P. 1:11(10) ack 1
        icmp unreachable seq 1
        +0.2 > P. 1:11(10) ack 1
        +0.41
        state CLOSED; end Unreachable";

    /// The same that has gone since is not.
    a_soft_error_that_is_over: established() => "
        set retries=1
        send 10; > P. 1:11(10) ack 1
        icmp unreachable seq 1
        < . 1:1(0) ack 11
        send 10; > P. 11:21(10) ack 1
        +0.2 > P. 11:21(10) ack 1
        +0.41
        state CLOSED; end TimedOut";

    /// RFC 6675, 5: more holes than one are sent again in order, as far as the window goes.
    several_holes: established_with("sack", "mss 1000,sackOK") => "
        send 8000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1
        > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1
        > P. 7001:8001(1000) ack 1
        < . 1:1(0) ack 1 <sack 7001:8001 5001:6001 3001:4001>
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1
        < . 1:1(0) ack 3001 <sack 7001:8001 5001:6001 3001:4001>
        > . 4001:5001(1000) ack 1
        > . 6001:7001(1000) ack 1
        < . 1:1(0) ack 8001
        recovery open";

    /// RFC 3708: a timeout is undone once what was sent again has come twice, which is known only
    /// when all is acknowledged. What a tail loss probe has sent again does not count.
    a_timeout_whose_segment_came_twice_is_undone: far_away() => "
        send 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.2 > P. 1001:2001(1000) ack 1
        +0.3 > . 1:1001(1000) ack 1
        +0.01 < . 1:1(0) ack 2001 win 60000
        recovery open; window 3000
        +0.05 < . 1:1(0) ack 2001 win 60000 <sack 1001:2001>
        window 3000
        +0.05 < . 1:1(0) ack 2001 win 60000 <sack 1:1001>
        window 10000";

    /// The same of fast recovery, while it goes on, for all that has been sent again.
    a_recovery_whose_segments_came_twice_is_undone: far_away() => "
        send 6000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1; > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1; > . 4001:5001(1000) ack 1; > P. 5001:6001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 2001:5001>
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1
        +0.05 < . 1:1(0) ack 5001 win 60000 <sack 1:1001>
        recovery recovery
        < . 1:1(0) ack 5001 win 60000 <sack 1001:2001>
        recovery open; window 10000";

    /// The same: not by what came twice and was sent once, as a network may have it.
    what_came_twice_by_itself_undoes_nothing: far_away() => "
        send 5000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1; > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1; > P. 4001:5001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:5001>
        > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 5001 win 60000
        < . 1:1(0) ack 5001 win 60000 <sack 2001:3001>
        window 7000";

    /// The same: nor if it was sent three times, of which one was lost.
    what_came_twice_of_three_times_undoes_nothing: far_away() => "
        send 100; > P. 1:101(100) ack 1
        +0.3 > P. 1:101(100) ack 1
        +0.3 > P. 1:101(100) ack 1
        +0.6 > P. 1:101(100) ack 1
        +0.1 < . 1:1(0) ack 101 win 60000 <sack 1:101>
        recovery open; window 1100";

    /// The same: nor what a mark has done since. RFC 3168, section 6.1.2, has the window reduced.
    a_mark_is_not_undone: closed() => "
        set ecn; set sack; connect
        > SEW 0:0(0)
        +0.1 < SE. 0:0(0) ack 1 win 60000 <mss 1000,sackOK>
        > . 1:1(0) ack 1
        send 5000
        > [ect] . 1:1001(1000) ack 1; > [ect] . 1001:2001(1000) ack 1
        > [ect] . 2001:3001(1000) ack 1; > [ect] . 3001:4001(1000) ack 1
        > [ect] P. 4001:5001(1000) ack 1
        +0.1 < . 1:1(0) ack 1 win 60000 <sack 1001:5001>
        > . 1:1001(1000) ack 1
        +0.1 < . 1:1(0) ack 5001 win 60000
        send 1000; > [ect] PW. 5001:6001(1000) ack 1
        +0.1 < E. 1:1(0) ack 6001 win 60000
        window 5950
        < . 1:1(0) ack 6001 win 60000 <sack 1:1001>
        window 5950";
}
