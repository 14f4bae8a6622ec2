//! Accurate ECN: RFC 9768, as far as the header goes. AE, CWR and ECE are a number of three bits:
//! 5 is `EA`, 6 `WA`, 7 `EWA`, 0 nothing, 1 `E`, 2 `W`, 3 `EW`, 4 `A`.

use super::script::begin::closed;
use super::script::{Script, cases};

/// One that has asked for accurate feedback, and whose SYN has left.
fn asking() -> Script {
    closed().play("set ecn; set accurate_ecn; connect; > SEWA 0:0(0)")
}

/// One that listens, and gives accurate feedback.
fn listening() -> Script {
    closed().play("set ecn; set accurate_ecn; set quick=0; listen")
}

/// A connection whose peer has asked for it, and gets none of its own packets back marked.
fn accepted() -> Script {
    listening().play(
        "< SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1
         < W. 1:1(0) ack 1 win 60000; accept",
    )
}

cases! {
    /// Section 3.1.1, table 2: what the peer's SYN-ACK says of this end's SYN; and 3.2.2.1, table
    /// 3: the acknowledgement says what the SYN-ACK's IP header did. After that all have the number.
    asked_and_answered: asking() => "
        < SW. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";
    /// The same, of a packet with ECT.
    answered_by_a_packet_that_is_capable: asking() => "
        < [ect] SWA. 0:0(0) ack 1 win 10000 <mss 1000>; > A. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";
    /// The same, of a packet with a mark, which counts.
    answered_by_a_packet_that_is_marked: asking() => "
        < [ce] SA. 0:0(0) ack 1 win 10000 <mss 1000>; > WA. 1:1(0) ack 1
        send 10; > [ect] PWA. 1:11(10) ack 1";

    /// Table 2: "ECN" and "Not ECN" of older peers, and "Broken".
    answered_by_a_peer_of_rfc_3168: asking() => "
        < SE. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1
        < [ce] . 1:11(10) ack 1; > E. 1:1(0) ack 11";
    /// "Not ECN".
    answered_by_a_peer_without_it: asking() => "
        < S. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1
        send 10; > P. 1:11(10) ack 1";
    /// "Broken": whoever sends the flags of a SYN back.
    answered_by_a_mirror: asking() => "
        < SEWA. 0:0(0) ack 1 win 10000 <mss 1000>; > . 1:1(0) ack 1
        send 10; > P. 1:11(10) ack 1";

    /// Section 3.1.4.1: it is asked for once more when nothing comes back, and then no longer.
    asked_twice: asking() => "
        +1 > SEWA 0:0(0); +2 > S 0:0(0)";

    /// Linux, `tcp_syn_linear_timeouts`: without it each is waited for twice as long.
    linear_timeouts: asking() => "
        +1 > SEWA 0:0(0); +2 > S 0:0(0); close
        set linear_syns=2; connect; > SEWA 0:0(0)
        +1 > SEWA 0:0(0); +1 > S 0:0(0); +1 > S 0:0(0); +2 > S 0:0(0)";

    /// A SYN-ACK that comes again is acknowledged as it came: section 3.2.2.1.
    acknowledged_again: asking() => "
        < SW. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1
        < [ect] SW. 0:0(0) ack 1 win 10000 <mss 1000>; > A. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";

    /// Section 3.1.1: the SYN-ACK says what the SYN's IP header did; what is marked counts.
    asked: listening() => "
        < SEWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        +1 > SW. 0:0(0) ack 1; +2 > S. 0:0(0) ack 1";
    /// The same, of a packet with ECT.
    asked_by_a_packet_that_is_capable: listening() => "
        < [ect] SEWA 0:0(0) win 10000 <mss 1000>; > SA. 0:0(0) ack 1";
    /// The same, of a packet with a mark.
    asked_by_a_packet_that_is_marked: listening() => "
        < [ce] SEWA 0:0(0) win 10000 <mss 1000>; > SWA. 0:0(0) ack 1
        < W. 1:1(0) ack 1; accept; send 10; > [ect] PWA. 1:11(10) ack 1";

    /// RFC 3168's SYN gets its SYN-ACK; and section 3.1.3, "forward compatibility": what is not
    /// used yet is taken for accurate.
    asked_by_a_peer_of_rfc_3168: listening() => "
        < SEW 0:0(0) win 10000 <mss 1000>; > SE. 0:0(0) ack 1";
    /// The same, of flags that are not used yet.
    asked_by_a_peer_of_the_future: listening() => "
        < SWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1";

    /// Who does not know it takes its SYN for RFC 3168's.
    asked_in_vain: closed() => "
        set ecn; listen; < SEWA 0:0(0) win 10000 <mss 1000>; > SE. 0:0(0) ack 1";

    /// Section 3.2.2.1: the SYN-ACK was marked.
    the_syn_ack_was_marked: listening() => "
        < SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1
        < WA. 1:1(0) ack 1 win 60000; accept; send 10; > [ect] PEA. 1:11(10) ack 1
        window 10000; < WA. 1:1(0) ack 11; window 10000";

    /// Section 3.2.2.4: something clears the flags on the way, so nothing is sent that could be
    /// marked; what comes is told all the same.
    cleared_on_the_way: listening() => "
        < SEWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        < . 1:1(0) ack 1; accept; send 10; > PEA. 1:11(10) ack 1
        < [ce] EA. 1:11(10) ack 11; > WA. 11:11(0) ack 11";

    /// Section 3.2.2.5: the first mark is told at once, and others two at a time; the number goes
    /// round, and marks of packets without data count.
    marks_are_counted: accepted() => "
        < [ect] EA. 1:11(10) ack 1; +0.04 > EA. 1:1(0) ack 11
        < [ce] EA. 11:21(10) ack 1; > WA. 1:1(0) ack 21
        < [ce] EA. 21:31(10) ack 1; < [ce] EA. 31:41(10) ack 1; > . 1:1(0) ack 41
        < [ce] EA. 41:41(0) ack 1; < [ce] EA. 41:51(10) ack 1; > W. 1:1(0) ack 51
        < [ect] EA. 51:61(10) ack 1; +0.04 > W. 1:1(0) ack 61";

    /// Section 3.2.2.5.2, and 3.3: the peer tells of marks, which reduce the window once in a round
    /// trip.
    marks_that_are_told: accepted() => "
        send 5000
        > [ect] EA. 1:1001(1000) ack 1; > [ect] EA. 1001:2001(1000) ack 1
        > [ect] EA. 2001:3001(1000) ack 1; > [ect] EA. 3001:4001(1000) ack 1
        > [ect] PEA. 4001:5001(1000) ack 1
        window 10000; < EA. 1:1(0) ack 1001; window 10000
        < WA. 1:1(0) ack 2001; window 8500; < EWA. 1:1(0) ack 3001; window 8500
        < EWA. 1:1(0) ack 5001; window 8500
        +0.1; send 1000; > [ect] PEA. 5001:6001(1000) ack 1
        +0.1 < . 1:1(0) ack 6001; window 7225";
}
