//! Accurate ECN: RFC 9768. AE, CWR and ECE are a number of three bits: 5 is `EA`, 6 `WA`, 7 `EWA`,
//! 0 nothing, 1 `E`, 2 `W`, 3 `EW`, 4 `A`. The option is `ECN1`, with bytes of ECT(1), CE and
//! ECT(0), or `ECN0`, the other way round.

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

/// The same with its option, and SACK.
fn counting() -> Script {
    closed().play(
        "set ecn; set accurate_ecn; set ecn_option=2; set sack; set quick=0; listen
         < SEWA 0:0(0) win 60000 <mss 1012,sackOK>; > SW. 0:0(0) ack 1 <mss 1460,sackOK,ECN1 1 0 1>
         < W. 1:1(0) ack 1 win 60000 <ECN0 1 0 1>; accept",
    )
}

/// The same, with two segments outstanding, of which the second has no timestamps or blocks.
fn counted() -> Script {
    counting().play(
        "send 2000; > [ect] EA. 1:1001(1000) ack 1 <ECN1 1 0 1>
         > [ect] PEA. 1001:2001(1000) ack 1 <ECN1 1 0 1>",
    )
}

/// The same, once so many segments have left that begin at `first`.
fn sent(script: Script, first: u32, segments: u32) -> Script {
    let mut lines = vec![format!("send {}", 1000 * segments)];
    lines.extend((0..segments).map(|at| {
        let (start, end) = (first + 1000 * at, first + 1000 * (at + 1));
        let push = if at + 1 == segments { "P" } else { "" };
        format!("> [ect] {push}EA. {start}:{end}(1000) ack 1")
    }));
    script.play(&lines.join("\n"))
}

/// One to which a segment has been acknowledged with this option, and that has sent so many more.
fn counted_on(option: &str, segments: u32) -> Script {
    let first = sent(counting(), 1, 1).play(&format!("< EA. 1:1(0) ack 1001 <{option}>"));
    sent(first, 1001, segments)
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
    /// 3: the acknowledgement says what the SYN-ACK's IP header did. Then all have the number.
    asked_and_answered: asking() => "
        < SW. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";
    /// The same, of a packet with ECT.
    answered_by_a_packet_that_is_capable: asking() => "
        < [ect] SW. 0:0(0) ack 1 win 10000 <mss 1000>; > A. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";
    /// The same, of a packet with a mark, which counts.
    answered_by_a_packet_that_is_marked: asking() => "
        < [ce] SW. 0:0(0) ack 1 win 10000 <mss 1000>; > WA. 1:1(0) ack 1
        send 10; > [ect] PWA. 1:11(10) ack 1";
    /// The same, of a packet with ECT(1).
    answered_by_a_packet_of_the_other_kind: asking() => "
        < [ect1] SW. 0:0(0) ack 1 win 10000 <mss 1000>; > EW. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";
    /// Section 3.2.2.1: only what has no data says how the SYN-ACK came.
    answered_while_data_waits: asking() => "
        send 10; < [ect] SW. 0:0(0) ack 1 win 10000 <mss 1000>
        > [ect] PEA. 1:11(10) ack 1";

    /// Section 3.1.3: what is not used yet counts as if the SYN had come as it was sent.
    answered_by_a_peer_of_the_future: asking() => "
        < SEA. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";
    /// Section 3.2.2.3: the SYN could not be marked, and something has marked it, or has made it
    /// seem that it could be. Nothing is sent that could be marked, and what comes counts.
    the_syn_was_changed_on_the_way: asking() => "
        < SWA. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1
        send 10; > PEA. 1:11(10) ack 1
        < [ce] EA. 1:11(10) ack 11; > WA. 11:11(0) ack 11";
    /// The same, with `Variants::untested_ecn`.
    nobody_minds_that_the_syn_was_changed: closed() => "
        set ecn; set accurate_ecn; set untested_ecn; connect; > SEWA 0:0(0)
        < SA. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1
        send 10; > [ect] PEA. 1:11(10) ack 1";

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

    /// Section 3.1.1: the SYN-ACK says what the SYN's IP header did.
    asked: listening() => "
        < SEWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        +1 > SW. 0:0(0) ack 1; +2 > S. 0:0(0) ack 1";
    /// The same, of a packet with ECT.
    asked_by_a_packet_that_is_capable: listening() => "
        < [ect] SEWA 0:0(0) win 10000 <mss 1000>; > SA. 0:0(0) ack 1";
    /// The same, of a packet with ECT(1).
    asked_by_a_packet_of_the_other_kind: listening() => "
        < [ect1] SEWA 0:0(0) win 10000 <mss 1000>; > SEW. 0:0(0) ack 1";
    /// The same, of a packet with a mark, which does not count (section 3.2.2.2).
    asked_by_a_packet_that_is_marked: listening() => "
        < [ce] SEWA 0:0(0) win 10000 <mss 1000>; > SWA. 0:0(0) ack 1
        < W. 1:1(0) ack 1; accept; send 10; > [ect] PEA. 1:11(10) ack 1";

    /// The same, with `Variants::draft_accurate_ecn`: it counts.
    asked_by_a_packet_that_is_marked_in_drafts: closed() => "
        set ecn; set accurate_ecn; set draft_accurate_ecn; listen
        < [ce] SEWA 0:0(0) win 10000 <mss 1000>; > SWA. 0:0(0) ack 1
        < W. 1:1(0) ack 1; accept; send 10; > [ect] PWA. 1:11(10) ack 1";
    /// The same: who answers as if it knew of no feedback gets what can be marked.
    answered_without_feedback_in_drafts: closed() => "
        set ecn; set accurate_ecn; set draft_accurate_ecn; listen
        < SEWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        < . 1:1(0) ack 1; accept; send 10; > [ect] PEA. 1:11(10) ack 1";

    /// Section 3.1.5: the newest SYN is told, and after one that does not ask nothing is sent that
    /// could be marked.
    asked_and_then_not: listening() => "
        < [ect] SEWA 0:0(0) win 10000 <mss 1000>; > SA. 0:0(0) ack 1
        < S 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        < W. 1:1(0) ack 1; accept; send 10; > PEA. 1:11(10) ack 1
        < [ce] EA. 1:11(10) ack 11; > WA. 11:11(0) ack 11";
    /// The other way round: what was agreed on first stays.
    not_asked_and_then_asked: listening() => "
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1
        < [ect] SEWA 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1; accept; send 10; > P. 1:11(10) ack 1";
    /// The same section: what asks for both kinds is reset, since nobody knows which it takes for
    /// agreed on. The number of the reset is 0, which is that far from this end's.
    asked_for_both_kinds: listening() => "
        < SEWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        < SEW 0:0(0) win 10000 <mss 1000>; > R. 2472683683:2472683683(0) ack 1
        half_open 0; < SEW 0:0(0) win 10000 <mss 1000>; > SE. 0:0(0) ack 1
        < SEWA 0:0(0) win 10000 <mss 1000>; > R. 2472683683:2472683683(0) ack 1
        half_open 0";
    /// The same section: an answer without it has left.
    answered_without_it: listening() => "
        < SEWA 0:0(0) win 10000 <mss 1000>; > SW. 0:0(0) ack 1
        +1 > SW. 0:0(0) ack 1; +2 > S. 0:0(0) ack 1
        < W. 1:1(0) ack 1; accept; send 10; > PEA. 1:11(10) ack 1";

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

    /// Section 3.2.2.1: the SYN-ACK was marked, which counts, though it could not be (3.2.2.3).
    the_syn_ack_was_marked: listening() => "
        < SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1
        < WA. 1:1(0) ack 1 win 60000; accept; send 10; > PEA. 1:11(10) ack 1
        marks_told 1; window 10000; < WA. 1:1(0) ack 11; marks_told 1; window 10000";
    /// The same section: what has data has the number.
    the_acknowledgement_of_the_syn_ack_was_lost: listening() => "
        < SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1
        < WA. 1:11(10) ack 1 win 60000; accept; marks_told 0; +0.04 > EA. 1:1(0) ack 11
        send 10; > [ect] PEA. 1:11(10) ack 11";

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

    /// Section 3.2.2.5.1: three marks of what has no data are answered, though nothing is to be
    /// acknowledged.
    marks_of_acknowledgements_are_told: accepted() => "
        < [ce] EA. 1:1(0) ack 1; < [ce] EA. 1:1(0) ack 1
        < [ce] EA. 1:1(0) ack 1; > . 1:1(0) ack 1
        < [ce] EA. 1:1(0) ack 1; send 10; > [ect] PE. 1:11(10) ack 1";

    /// Section 3.2.2.5.2: ten packets are acknowledged at once. If that is what the path makes of
    /// acknowledgements, the number has not gone round; if not, it has, for all that is known.
    much_is_acknowledged_at_once: sent(accepted(), 1, 10) => "
        < EWA. 1:1(0) ack 10001; marks_told 2";
    /// The other case.
    much_is_acknowledged_at_once_and_not_always: sent(accepted(), 1, 10) => "
        < EA. 1:1(0) ack 1001; marks_told 0; < EA. 1:1(0) ack 10001; marks_told 8";

    /// Section 3.2.2.2: what is old, for all that is known, says nothing; a newer timestamp says
    /// that it is not.
    what_makes_no_progress_says_nothing: accepted() => "
        send 10; > [ect] PEA. 1:11(10) ack 1; < WA. 1:1(0) ack 1; marks_told 0
        < WA. 1:1(0) ack 11; marks_told 1";
    /// The same with timestamps.
    a_timestamp_is_progress: closed() => "
        set ecn; set accurate_ecn; set timestamps; set quick=0; listen
        < SEWA 0:0(0) win 60000 <mss 1012,TS val 1 ecr 0>; > SW. 0:0(0) ack 1
        < W. 1:1(0) ack 1 win 60000 <TS val 2 ecr 1000>; accept
        send 10; > [ect] PEA. 1:11(10) ack 1
        < WA. 1:1(0) ack 1 <TS val 2 ecr 1000>; marks_told 0
        < WA. 1:1(0) ack 1 <TS val 3 ecr 1000>; marks_told 1
        < EWA. 1:1(0) ack 11 <TS val 4 ecr 1000>; marks_told 2
        < . 1:1(0) ack 11 <TS val 5 ecr 1000>; marks_told 3";

    /// Section 3.2.3: bytes are counted by the mark of their packets; and told, as marks are.
    bytes_are_counted: counting() => "
        < [ce] EA. 1:11(10) ack 1; > WA. 1:1(0) ack 11 <ECN1 1 10 1>
        < [ect] EA. 11:31(20) ack 1; +0.04 > WA. 1:1(0) ack 31 <ECN1 1 10 21>
        < [ect1] EA. 31:61(30) ack 1; +0.04 > WA. 1:1(0) ack 61 <ECN1 31 10 21>
        < EA. 61:71(10) ack 1; +0.04 > WA. 1:1(0) ack 71 <ECN1 31 10 21>
        < [ect] EA. 71:71(0) ack 1; send 5; > [ect] PWA. 1:6(5) ack 71 <ECN1 31 10 21>";

    /// Section 3.2.3.1: what the peer tells, in either order, and as much as it has room for.
    bytes_that_are_told: counted() => "
        < EA. 1:1(0) ack 1001 <ECN0 1001 0 1>; bytes_told 0,0,1000
        < WA. 1:1(0) ack 2001 <ECN1 1 1000>; bytes_told 0,1000,1000; marks_told 1
        send 1000; > [ect] PEA. 2001:3001(1000) ack 1 <ECN1 1 0 1>
        < EWA. 1:1(0) ack 3001; bytes_told 0,2000,1000; marks_told 2
        send 1000; > [ect] PEA. 3001:4001(1000) ack 1 <ECN1 1 0 1>
        < EWA. 1:1(0) ack 4001 <ECN0 2001 1000 1>; bytes_told 0,1000,2000; marks_told 2
        send 1000; > [ect] PEA. 4001:5001(1000) ack 1 <ECN1 1 0 1>
        < EWA. 1:1(0) ack 5001 <ECN1 1001>; bytes_told 1000,1000,2000";

    /// Section 3.2.2.5.2: bytes say whether the number has gone round.
    bytes_say_that_nothing_was_marked: counted_on("ECN0 1001 0 1", 10) => "
        < EA. 1:1(0) ack 11001 <ECN0 11001 0 1>; marks_told 0";
    /// And that all was.
    bytes_say_that_much_was_marked: counted_on("ECN0 1001 0 1", 10) => "
        < EA. 1:1(0) ack 11001 <ECN0 1001 10000 1>; marks_told 8";
    /// And that a few were, though the number could have gone round.
    bytes_say_that_little_was_marked: counted_on("ECN0 1 1000 1", 9) => "
        < WA. 1:1(0) ack 10001 <ECN0 1 2000 1>; marks_told 1";

    /// Section 3.2.3.3: it leaves room for blocks. Four and a counter would be too much; with
    /// nothing to say it takes no block's place.
    blocks_and_bytes: counting() => "
        < [ect1] EA. 101:111(10) ack 1; > EA. 1:1(0) ack 1 <ECN1 11 0 1,sack 101:111>
        < [ce] EA. 201:211(10) ack 1; > WA. 1:1(0) ack 1 <ECN1 11 10 1,sack 201:211 101:111>
        < [ect] EA. 301:311(10) ack 1
        > WA. 1:1(0) ack 1 <ECN1 11 10 11,sack 301:311 201:211 101:111>
        < [ect] EA. 401:411(10) ack 1
        > WA. 1:1(0) ack 1 <ECN1 11 10 21,sack 401:411 301:311 201:211>
        < EA. 501:511(10) ack 1
        > WA. 1:1(0) ack 1 <sack 501:511 401:411 301:311 201:211>";
    /// Next to timestamps two blocks leave room for two counters, and three for none.
    blocks_and_bytes_and_timestamps: closed() => "
        set ecn; set accurate_ecn; set ecn_option=2; set sack; set timestamps; set quick=0; listen
        < SEWA 0:0(0) win 60000 <mss 1012,sackOK,TS val 1 ecr 0>
        > SW. 0:0(0) ack 1 <mss 1460,sackOK,TS val 1000 ecr 1,ECN1 1 0 1>
        < W. 1:1(0) ack 1 win 60000 <TS val 2 ecr 1000,ECN0 1 0 1>; accept
        < [ect1] EA. 101:111(10) ack 1 <TS val 3 ecr 1000>
        > EA. 1:1(0) ack 1 <TS val 1000 ecr 2,ECN1 11 0 1,sack 101:111>
        < [ce] EA. 201:211(10) ack 1 <TS val 3 ecr 1000>
        > WA. 1:1(0) ack 1 <TS val 1000 ecr 2,ECN1 11 10,sack 201:211 101:111>
        < [ce] EA. 301:311(10) ack 1 <TS val 3 ecr 1000>
        > EWA. 1:1(0) ack 1 <TS val 1000 ecr 2,ECN1 11 20,sack 301:311 201:211>
        < [ect] EA. 401:411(10) ack 1 <TS val 3 ecr 1000>
        > EWA. 1:1(0) ack 1 <TS val 1000 ecr 2,sack 401:411 301:311 201:211>";

    /// Section 3.2.3.2.1: not with a SYN-ACK that is sent again, on its own or because the peer
    /// asks again; and the peer may have it nevertheless.
    the_option_is_not_sent_again: closed() => "
        set ecn; set accurate_ecn; set ecn_option=2; listen
        < SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>
        < SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1 <mss 1460>
        +1 > SW. 0:0(0) ack 1 <mss 1460>
        < W. 1:1(0) ack 1 win 60000 <ECN0 1 0 1>; accept
        send 10; > [ect] PEA. 1:11(10) ack 1 <ECN1 1 0 1>";
    /// A SYN that has it, which none should, says nothing by it.
    the_option_of_a_syn_is_none: closed() => "
        set ecn; set accurate_ecn; set ecn_option=2; listen
        < SEWA 0:0(0) win 60000 <mss 1000,ECN0 1 0 1>; > SW. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>
        < W. 1:1(0) ack 1 win 60000; accept; send 10; > [ect] PEA. 1:11(10) ack 1 <>
        < EA. 1:1(0) ack 11 <ECN0>; send 10; > [ect] PEA. 11:21(10) ack 1 <ECN1 1 0 1>";
    /// Section 3.2.3.2.3: who asks has it in the first acknowledgement if the SYN-ACK has it, and
    /// else when something has.
    the_option_is_answered: closed() => "
        set ecn; set accurate_ecn; set ecn_option=2; connect; > SEWA 0:0(0) <mss 1460>
        < SW. 0:0(0) ack 1 win 10000 <mss 1012,ECN0 1 0 1>; > W. 1:1(0) ack 1 <ECN1 1 0 1>
        send 1000; > [ect] PEA. 1:1001(1000) ack 1 <ECN1 1 0 1>";
    /// The other case.
    the_option_comes_late: closed() => "
        set ecn; set accurate_ecn; set ecn_option=2; connect; > SEWA 0:0(0) <mss 1460>
        < SW. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1 <>
        send 1000; > [ect] PEA. 1:1001(1000) ack 1 <>
        < EA. 1:1(0) ack 1001 <ECN0 1001 0 1>; bytes_told 0,0,1000
        send 1000; > [ect] EA. 1001:1989(988) ack 1 <ECN1 1 0 1>
        > [ect] PEA. 1989:2001(12) ack 1 <ECN1 1 0 1>";

    /// Section 3.2.3.2.2: what was acknowledged with the option comes again, and once more though
    /// its acknowledgement says so.
    the_option_does_not_arrive: counting() => "
        < [ect] EA. 1:11(10) ack 1; +0.04 > EA. 1:1(0) ack 11 <ECN1 1 0 11>
        < [ect] EA. 1:11(10) ack 1; > EA. 1:1(0) ack 11 <ECN1 1 0 21,sack 1:11>
        < [ect] EA. 1:11(10) ack 1; > EA. 1:1(0) ack 11 <sack 1:11>
        < [ect] EA. 11:21(10) ack 1; +0.04 > EA. 1:1(0) ack 21 <>";
    /// `EcnOption::DespiteLoss`.
    the_option_is_sent_nevertheless: counting() => "
        set ecn_option=3
        < [ect] EA. 1:11(10) ack 1; +0.04 > EA. 1:1(0) ack 11 <ECN1 1 0 11>
        < [ect] EA. 1:11(10) ack 1; > EA. 1:1(0) ack 11 <ECN1 1 0 21,sack 1:11>
        < [ect] EA. 1:11(10) ack 1; > EA. 1:1(0) ack 11 <ECN1 1 0 31,sack 1:11>";
    /// The same section: nor does the first data that has it, and the probe for it.
    the_first_data_does_not_arrive: counting() => "
        send 10; > [ect] PEA. 1:11(10) ack 1 <ECN1 1 0 1>
        +0.2 > PEA. 1:11(10) ack 1 <ECN1 1 0 1>; +0.2 > PEA. 1:11(10) ack 1 <>
        < EA. 1:1(0) ack 11 <ECN0 11 0 1>; bytes_told 0,0,10
        send 10; > [ect] PEA. 11:21(10) ack 1 <>";

    /// Section 3.2.3.2.4: something on the way clears it, so it is not believed.
    the_option_is_zeroed: closed() => "
        set ecn; set accurate_ecn; set ecn_option=2; connect; > SEWA 0:0(0)
        < SW. 0:0(0) ack 1 win 10000 <mss 1012,ECN0 0 0 0>; > W. 1:1(0) ack 1 <ECN1 1 0 1>
        send 10; > [ect] PEA. 1:11(10) ack 1 <ECN1 1 0 1>
        < EA. 1:1(0) ack 11 <ECN0 11 0 1>; bytes_told 0,0,0";

    /// `EcnOption::WhenChanged`: section 3.2.3.3 has a change told twice, and then every third of a
    /// round trip.
    only_changes_are_told: closed() => "
        set ecn; set accurate_ecn; set ecn_option=1; set quick=0; listen
        < SEWA 0:0(0) win 60000 <mss 1000>; > SW. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>
        +0.3 < W. 1:1(0) ack 1 win 60000 <ECN0 1 0 1>; accept
        < [ect] EA. 1:11(10) ack 1; +0.04 > EA. 1:1(0) ack 11 <ECN1 1 0 11>
        < [ect] EA. 11:21(10) ack 1; +0.04 > EA. 1:1(0) ack 21 <ECN1 1 0 21>
        < [ect] EA. 21:31(10) ack 1; +0.04 > EA. 1:1(0) ack 31 <>
        < [ect] EA. 31:41(10) ack 1; +0.04 > EA. 1:1(0) ack 41 <>
        < [ect] EA. 41:51(10) ack 1; +0.04 > EA. 1:1(0) ack 51 <ECN1 1 0 51>
        < [ce] EA. 51:61(10) ack 1; > WA. 1:1(0) ack 61 <ECN1 1 10 51>
        < [ce] EA. 61:71(10) ack 1; +0.04 > EWA. 1:1(0) ack 71 <ECN1 1 20 51>
        < [ce] EA. 71:81(10) ack 1; +0.04 > . 1:1(0) ack 81 <ECN1 1 30 51>
        < EA. 81:91(10) ack 1; +0.04 > . 1:1(0) ack 91 <ECN1 1 30 51>";
}
