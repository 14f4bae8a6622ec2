//! How connections begin: RFC 9293, sections 3.5, 3.9.2.3 and 3.10, and what is agreed on with
//! SYNs.

use super::script::begin::*;
use super::script::cases;

cases! {
    /// 3.8.1: after a simultaneous open the answer is sent again, too.
    the_answer_of_a_simultaneous_open_is_sent_again: syn_received() => "
        +1 > S. 0:0(0) ack 1
        +2 > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        state ESTAB";

    /// 3.10.7.4: the peer has not seen it: its SYN comes again, and is answered again.
    the_syn_of_a_simultaneous_open_comes_again: syn_received() => "
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        state SYN-RECV";

    /// RFC 7323, 1.3 and 2.2: after a SYN with an option the answer has it, too, and only then.
    options_of_a_simultaneous_open: closed() => "
        set sack; set timestamps; set window_scaling; connect
        > S 0:0(0) <mss 1460,sackOK,TS val 1000 ecr 0,wscale 0>
        < S 0:0(0) win 10000 <mss 1000,sackOK,TS val 700 ecr 0,wscale 3>
        > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 1000 ecr 700,wscale 0>
        < . 1:1(0) ack 1 win 10000 <TS val 701 ecr 1000>
        state ESTAB; segment 988; peer_window 80000";

    /// RFC 7323, 3.2 and 5.3, R1: who has agreed on timestamps opens no connection without one, nor
    /// with one from before its SYN. Else the connection would wait for ever for an acknowledgement
    /// that it takes, with nothing that sends the SYN-ACK again.
    who_answers_without_its_timestamp_is_still_half_open: closed() => "
        set timestamps; listen
        < S 0:0(0) win 10000 <mss 1000,TS val 100 ecr 0>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        fails accept; half_open 1
        < . 1:1(0) ack 1 <TS val 99 ecr 1000>
        > . 1:1(0) ack 1
        fails accept; half_open 1
        +1 > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 <TS val 101 ecr 2000>
        accept; state ESTAB; half_open 0";

    /// The same of a peer that has none of them.
    no_options_of_a_simultaneous_open: closed() => "
        set sack; set timestamps; set window_scaling; connect
        > S 0:0(0)
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1 <mss 1460>
        < . 1:1(0) ack 1
        state ESTAB; segment 1000; peer_window 10000";

    /// 3.10.7.4: data and a FIN may come with what ends a simultaneous open.
    a_simultaneous_open_ends_with_data: syn_received() => "
        < F. 1:11(10) ack 1
        > . 1:1(0) ack 12
        state CLOSE-WAIT; recv 10";

    /// 3.10.2: SEND in SYN-SENT: "Queue the data for transmission after entering ESTABLISHED
    /// state"; it may become that by a simultaneous open.
    data_given_before_a_simultaneous_open: closed() => "
        connect; > S 0:0(0); send 10
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        > P. 1:11(10) ack 1";

    /// 3.10.4: CLOSE in SYN-RECEIVED: "queue for processing after entering ESTABLISHED state".
    a_half_is_closed_before_the_handshake_is_over: syn_received() => "
        shutdown; state SYN-RECV
        < . 1:1(0) ack 1
        > F. 1:1(0) ack 1
        state FIN-WAIT-1";

    /// The same in SYN-SENT, with data before it.
    data_and_the_fin_wait_for_the_handshake: syn_sent() => "
        send 10; shutdown
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > FP. 1:11(10) ack 1
        < . 1:1(0) ack 12
        state FIN-WAIT-2";

    /// 3.10.5: ABORT in SYN-SENT: there is nobody to be reset.
    abort_in_syn_sent: syn_sent() => "abort; state CLOSED; end Aborted";

    /// 3.10.7.3: with a SYN-ACK its window is that of the handshake, which is not scaled (RFC 7323,
    /// 2.2), though the option was not asked for.
    options_that_nobody_has_asked_for: syn_sent() => "
        < S. 0:0(0) ack 1 win 1000 <mss 1000,sackOK,TS val 7 ecr 0,wscale 7>
        > . 1:1(0) ack 1 <>
        < . 1001:2001(1000) ack 1 win 1000
        > . 1:1(0) ack 1 <>
        peer_window 1000; segment 1000";

    /// 3.7.1: "MUST" the smaller one: a peer's MSS of 0 is as good as one of 64.
    an_mss_of_nothing: syn_sent() => "
        < S. 0:0(0) ack 1 win 1000 <mss 0>
        > . 1:1(0) ack 1
        segment 64";

    /// 3.10.7.3: the handshake goes on after a SYN-ACK of something old was reset.
    data_before_the_handshake_is_over_is_dropped: syn_sent() => "
        < P. 1:11(10) ack 1
        < . 1:1(0) ack 1
        state SYN-SENT
        < S. 0:0(0) ack 1 win 1000 <mss 1000>
        > . 1:1(0) ack 1";

    /// 3.9.2.2: a soft error does not end an attempt: it says why, when it is given up.
    an_unreachable_host_may_become_reachable: syn_sent() => "
        icmp unreachable seq 0
        +1 > S 0:0(0)
        +2 > S 0:0(0)
        +4 > S 0:0(0)
        +8 > S 0:0(0)
        +16 > S 0:0(0)
        +32 > S 0:0(0)
        +65
        state CLOSED; end Unreachable";

    /// 3.10.7.4: what comes for a half-open connection from outside of the window is acknowledged:
    /// "<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>".
    half_open_answers_what_is_outside_of_its_window: half_open() => "
        < . 20000:20000(0) ack 1
        > . 1:1(0) ack 1
        half_open 1";

    /// RFC 5961, 3.2, for a half-open connection.
    half_open_challenges_a_reset_inside_of_its_window: half_open() => "
        < R 5:5(0)
        > . 1:1(0) ack 1
        < R 20000:20000(0)
        half_open 1";

    /// RFC 5961, 7, for a half-open connection: resets, and what is outside of its window.
    half_open_challenges_are_few: half_open() => "
        < R 5:5(0); > . 1:1(0) ack 1; < . 20000:20000(0) ack 1; > . 1:1(0) ack 1
        < R 5:5(0); > . 1:1(0) ack 1; < . 20000:20000(0) ack 1; > . 1:1(0) ack 1
        < R 5:5(0); > . 1:1(0) ack 1; < . 20000:20000(0) ack 1; > . 1:1(0) ack 1
        < R 5:5(0); > . 1:1(0) ack 1; < . 20000:20000(0) ack 1; > . 1:1(0) ack 1
        < R 5:5(0); > . 1:1(0) ack 1; < . 20000:20000(0) ack 1; > . 1:1(0) ack 1
        < R 5:5(0); < . 20000:20000(0) ack 1
        +1 > S. 0:0(0) ack 1
        +2 > S. 0:0(0) ack 1
        +2.1 < R 5:5(0)
        > . 1:1(0) ack 1
        half_open 1";

    /// 3.10.7.4: data that comes before the acknowledgement has got lost says it, too.
    half_open_is_opened_by_data_out_of_order: half_open() => "
        < . 11:21(10) ack 1
        > . 1:1(0) ack 1
        accept
        < . 1:11(10) ack 1
        > . 1:1(0) ack 21
        recv 20";

    /// RFC 7323, 2.2: without the option of the peer's SYN the SYN-ACK has none.
    a_listener_answers_without_scaling: listening() => "
        unlisten; set window_scaling; listen
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1 <mss 1460>
        < . 1:1(0) ack 1 win 2000
        accept; peer_window 2000";

    /// RFC 7323, 2.2: what the peer's handshake ends with is scaled.
    a_listener_scales_from_the_third_segment_on: listening() => "
        unlisten; set window_scaling; listen
        < S 0:0(0) win 10000 <mss 1000,wscale 2>
        > S. 0:0(0) ack 1 <mss 1460,wscale 0>
        < . 1:1(0) ack 1 win 2000
        accept; peer_window 8000";
}
