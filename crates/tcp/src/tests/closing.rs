//! How connections end: RFC 9293, sections 3.5.3, 3.6 and 3.10, RFC 1337 and RFC 6191.

use super::script::begin::*;
use super::script::cases;

cases! {
    /// 3.8.1: the data before a FIN and the FIN are sent again together.
    the_last_data_is_sent_again_with_the_fin: established() => "
        send 500; > P. 1:501(500) ack 1
        send 500; shutdown
        > FP. 501:1001(500) ack 1
        +0.2 > . 1:501(500) ack 1
        < . 1:1(0) ack 501
        > FP. 501:1001(500) ack 1
        < . 1:1(0) ack 1002
        state FIN-WAIT-2";

    /// RFC 5681, section 2: the congestion window "limits the amount of data a TCP can send", and a
    /// FIN is none. It is not sent before data that has to wait.
    a_fin_does_not_wait_for_the_congestion_window: far_away() => "
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
        +0.01 shutdown; > F. 10001:10001(0) ack 1
        window 10000; state FIN-WAIT-1";

    /// The same.
    a_fin_waits_with_the_data_before_it: far_away() => "
        send 10010
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
        shutdown
        +0.1 < . 1:1(0) ack 1001 win 60000
        > FP. 10001:10011(10) ack 1";

    /// 3.8.1: LAST-ACK and CLOSING send their FIN again, too.
    the_fin_is_sent_again_in_last_ack: last_ack() => "
        +0.2 > F. 1:1(0) ack 2
        +0.4 > F. 1:1(0) ack 2
        < . 2:2(0) ack 2
        state CLOSED; end Orderly";

    /// The same in CLOSING.
    the_fin_is_sent_again_in_closing: closing() => "
        +0.2 > F. 1:1(0) ack 2
        < . 2:2(0) ack 2
        state TIME-WAIT";

    /// 3.6: CLOSE-WAIT sends for as long as its app wants to.
    close_wait_goes_on_sending: close_wait() => "
        send 2000
        > . 1:1001(1000) ack 2
        > P. 1001:2001(1000) ack 2
        +0.1 < . 2:2(0) ack 2001
        +3600 send 10
        > P. 2001:2011(10) ack 2
        < . 2:2(0) ack 2011
        shutdown
        > F. 2011:2011(0) ack 2
        state LAST-ACK";

    /// 3.10.7.4: FIN-WAIT-1, an acknowledgement of a part of what is before the FIN is none of it.
    a_part_is_acknowledged_in_fin_wait_1: established() => "
        send 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        shutdown; > F. 2001:2001(0) ack 1
        < . 1:1(0) ack 1001; state FIN-WAIT-1
        < . 1:1(0) ack 2001; state FIN-WAIT-1
        < F. 1:1(0) ack 2001; > . 2002:2002(0) ack 2
        state CLOSING
        < . 2:2(0) ack 2002
        state TIME-WAIT";

    /// 3.6.1 and 3.10.4: a FIN behind a window that is closed waits for it, and probes.
    the_fin_behind_a_closed_window: established() => "
        < . 1:1(0) ack 1 win 0
        shutdown
        +0.2 > F. 1:1(0) ack 1
        < . 1:1(0) ack 2 win 0
        state FIN-WAIT-2";

    /// RFC 6429, 4: who has closed waits for a window as long as for an acknowledgement. A peer
    /// that never opens it, and answers all probes, does not keep what nobody wants any more.
    a_window_that_stays_closed_when_its_app_has_closed: established() => "
        set retries=3
        < . 1:1(0) ack 1 win 0
        send 10
        +0.2 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        +0.4 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        +0.8 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        +1.6 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        +3.2 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        state ESTAB; close
        +6.4 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        +12.8 > . 1:2(1) ack 1; < . 1:1(0) ack 1 win 0
        state FIN-WAIT-1
        +25.61
        state CLOSED; end TimedOut";

    /// 3.10.7.4: a window of zero takes a FIN that stands where it should, since it needs no room.
    a_fin_into_a_closed_window: established() => "
        < . 1:10001(10000) ack 1
        > . 1:1(0) ack 10001 win 0
        < F. 10001:10001(0) ack 1
        > . 1:1(0) ack 10002 win 0
        state CLOSE-WAIT; recv 10000";

    /// The same of a FIN with data: there is no room for what is before it.
    a_fin_behind_data_into_a_closed_window: established() => "
        < . 1:10001(10000) ack 1
        > . 1:1(0) ack 10001 win 0
        < F. 10001:10011(10) ack 1
        > . 1:1(0) ack 10001 win 0
        state ESTAB";

    /// 3.8.6.1: "special allowance should be made to accept valid ACKs, URGs, and RSTs".
    a_reset_into_a_closed_window: established() => "
        < . 1:10001(10000) ack 1
        > . 1:1(0) ack 10001 win 0
        < R. 10001:10001(0) ack 1
        state CLOSED; end Reset; recv 10000";

    /// 3.5.3: "TCP implementations SHOULD allow a received RST segment to include data" (SHLD-2).
    a_reset_with_data: established() => "
        < R 1:21(20)
        state CLOSED; end Reset; unread 0";

    /// 3.10.7.4: a reset where a hole is: what is expected next is what is before it.
    a_reset_behind_a_hole: established() => "
        < . 101:201(100) ack 1; > . 1:1(0) ack 1
        < R 201:201(0); > . 1:1(0) ack 1
        state ESTAB
        < R 1:1(0)
        state CLOSED";

    /// 3.10.7.4: what came before a reset is the app's.
    data_before_a_reset_can_be_read: established() => "
        < . 1:11(10) ack 1; < R 11:11(0)
        state CLOSED; end Reset; recv 10";

    /// 3.6.1: data for FIN-WAIT-2 that nobody will read.
    data_after_close_in_fin_wait_2: established() => "
        close; > F. 1:1(0) ack 1
        < . 1:1(0) ack 2; state FIN-WAIT-2
        < . 1:11(10) ack 2
        > R 2:2(0)
        state CLOSED";

    /// 3.6: close is the end of both halves; the peer's FIN is still waited for.
    close_and_the_fin_of_the_peer: established() => "
        close; > F. 1:1(0) ack 1
        < . 1:1(0) ack 2
        +30 < F. 1:1(0) ack 2
        > . 2:2(0) ack 2
        state TIME-WAIT; end Orderly";

    /// 3.10.4: CLOSE in CLOSE-WAIT: "then send a FIN segment, enter LAST-ACK state".
    close_in_close_wait: close_wait() => "
        close; > F. 1:1(0) ack 2; state LAST-ACK
        < . 2:2(0) ack 2
        state CLOSED; end Orderly";

    /// 3.8.3: a peer that has gone without a word: the connection ends in LAST-ACK, too.
    last_ack_gives_up: last_ack() => "
        set retries=2
        +0.2 > F. 1:1(0) ack 2
        +0.4 > F. 1:1(0) ack 2
        +0.81
        state CLOSED; end TimedOut";

    /// RFC 6191, 2: with the same timestamp the number decides, as without any.
    the_same_timestamp_and_a_later_number_reopen: listening() => "
        unlisten; set timestamps; listen
        < S 0:0(0) win 10000 <mss 1000,TS val 100 ecr 0>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 <TS val 100 ecr 1000>; accept
        shutdown; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 2 <TS val 110 ecr 1000>; > . 2:2(0) ack 2
        < S 1:1(0) win 10000 <mss 1000,TS val 110 ecr 0>; > . 2:2(0) ack 2
        < S 500:500(0) win 10000 <mss 1000,TS val 110 ecr 0>
        > S. 3:3(0) ack 501
        waiting 0";

    /// RFC 6191, 2: the last connection had timestamps and the SYN has none: the number decides.
    a_syn_without_a_timestamp_and_a_later_number_reopens: listening() => "
        unlisten; set timestamps; listen
        < S 0:0(0) win 10000 <mss 1000,TS val 100 ecr 0>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 <TS val 100 ecr 1000>; accept
        shutdown; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 2 <TS val 110 ecr 1000>; > . 2:2(0) ack 2
        < S 1:1(0) win 10000 <mss 1000>; > . 2:2(0) ack 2
        < S 500:500(0) win 10000 <mss 1000>
        > S. 3:3(0) ack 501";

    /// 3.6.1: only who listens may reopen: without a listener a new SYN ends no TIME-WAIT.
    a_new_syn_after_time_wait_without_a_listener: time_wait() => "
        unlisten
        < S 1000:1000(0) win 10000
        > . 2:2(0) ack 2
        waiting 1";

    /// RFC 7323, 5.3, and RFC 6191: a port is not used for its peer again before the peer's clock
    /// has ticked. Then what is left of the old connection is old for the new one, whose peer has
    /// begun with numbers that were used before.
    a_port_is_used_again_once_the_peers_clock_has_ticked: closed() => "
        set timestamps
        connect; > S 0:0(0)
        < S. 0:0(0) ack 1 win 10000 <mss 1000,TS val 100 ecr 1000>; > . 1:1(0) ack 1
        shutdown; > F. 1:1(0) ack 1
        < . 1:1001(1000) ack 2 <TS val 100 ecr 1000>; recv 1000
        < F. 1001:1001(0) ack 2 <TS val 100 ecr 1000>; > . 2:2(0) ack 1002; state TIME-WAIT
        in_use; +0.0009 in_use
        +0.0001 connect; > S 0:0(0)
        < S. 0:0(0) ack 1 win 10000 <mss 1000,TS val 101 ecr 1001>; > . 1:1(0) ack 1
        < . 501:1001(500) ack 1 <TS val 100 ecr 1001>; > . 1:1(0) ack 1";

    /// RFC 7323, 5.3: what is old by its timestamp does not prolong TIME-WAIT.
    an_old_fin_does_not_prolong_time_wait: listening() => "
        unlisten; set timestamps; listen
        < S 0:0(0) win 10000 <mss 1000,TS val 100 ecr 0>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 <TS val 100 ecr 1000>; accept
        shutdown; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 2 <TS val 110 ecr 1000>; > . 2:2(0) ack 2
        +50 < F. 1:1(0) ack 2 <TS val 90 ecr 1000>; > . 2:2(0) ack 2
        +11; waiting 0";
}
