//! Accurate ECN (RFC 9768) with settings of Linux's names, as its scripts have it; what the core
//! does by itself is in its own tests. `ECN1` is the option with bytes of ECT(1), CE and ECT(0).

use crate::script::{Script, cases, host};

/// One that listens with descriptor 3, as Linux does with `tcp_ecn` of 3.
fn listening() -> Script {
    host().play(
        "set tcp_ecn 3; set tcp_sack 1
         socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0",
    )
}

/// One with a connection, descriptor 4, whose peer has the option, too.
fn accepted() -> Script {
    listening().play(
        "< SEWA 0:0(0) win 60000 <mss 1012,sackOK>
         > SW. 0:0(0) ack 1 <mss 1460,sackOK,ECN1 1 0 1>; ip 64 0
         < [ect0] W. 1:1(0) ack 1 win 60000 <ECN0 1 0 1>; accept 3 = 4; nonblock 4 = 0",
    )
}

cases! {
    /// RFC 9768: with accurate feedback all that leaves may be marked, as with Linux.
    accurate_feedback: host() => "
        set tcp_ecn 3; socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS; > SEWA 0:0(0); ip 64 0
        < SW. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1; ip 64 2
        write 3 100 = 100; > PEA. 1:101(100) ack 1; ip 64 2; < WA. 1:1(0) ack 101
        tcp_info 3 delivered_ce = 1";

    /// Or only data, as with FreeBSD, which says nothing of marks in TIME-WAIT.
    accurate_feedback_of_freebsd: host() => "
        set freebsd 1; set tcp_ecn 3; socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS; > SEWA 0:0(0)
        < SW. 0:0(0) ack 1 win 10000 <mss 1000>; > W. 1:1(0) ack 1; ip 64 0
        write 3 100 = 100; > PEA. 1:101(100) ack 1; ip 64 2; < EA. 1:1(0) ack 101
        close 3 = 0; > FEA. 101:101(0) ack 1; < FEA. 1:1(0) ack 102; > . 102:102(0) ack 2";

    /// FreeBSD counts the mark of a SYN, and marks what it sends to who answers without a flag.
    accurate_feedback_of_freebsd_as_server: host() => "
        set freebsd 1; set tcp_ecn 3; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < [ce] SEWA 0:0(0) win 10000 <mss 1000>; > SWA. 0:0(0) ack 1
        < . 1:1(0) ack 1; accept 3 = 4; nonblock 4 = 0
        write 4 100 = 100; > PWA. 1:101(100) ack 1; ip 64 2";

    /// Linux, `tcp_ecn` of 4 and 5: it is given to who asks, and not asked for.
    accurate_feedback_for_others: host() => "
        set tcp_ecn 4; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < SEWA 0:0(0) <mss 1000>; > SW. 0:0(0) ack 1
        socket = 4; nonblock 4 = 0; peer 6000; connect 4 6000 = EINPROGRESS; > SEW 0:0(0)
        set tcp_ecn 5; socket = 5; nonblock 5 = 0; peer 6001
        connect 5 6001 = EINPROGRESS; > S 0:0(0)";
    /// What a SYN's IP header said, with the option: of each kind.
    what_came_with_a_syn: listening() => "
        < SEWA 0:0(0) <mss 1000>; > SW. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>
        peer 5001; < [ect1] SEWA 0:0(0) <mss 1000>; > SEW. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>
        peer 5002; < [ect0] SEWA 0:0(0) <mss 1000>; > SA. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>
        peer 5003; < [ce] SEWA 0:0(0) <mss 1000>; > SWA. 0:0(0) ack 1 <mss 1460,ECN1 1 0 1>";

    /// `tcp_ecn_option` of 0: none is sent, and what comes is read.
    no_option: host() => "
        set tcp_ecn 3; set tcp_ecn_option 0
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < SEWA 0:0(0) <mss 1000>; > SW. 0:0(0) ack 1 <mss 1460>
        < W. 1:1(0) ack 1 <ECN0 1 0 1>; accept 3 = 4; nonblock 4 = 0
        write 4 100 = 100; > PEA. 1:101(100) ack 1 <>
        < WA. 1:1(0) ack 101 <ECN0 1 100 1>; tcp_info 4 delivered_ce = 1
        tcp_info 4 delivered_ce_bytes = 100";
    /// It is of sockets that there are, too.
    no_option_any_more: accepted() => "
        write 4 100 = 100; > PEA. 1:101(100) ack 1 <ECN1 1 0 1>; ip 64 2
        < EA. 1:1(0) ack 101 <ECN0 101 0 1>; tcp_info 4 delivered_e0_bytes = 100
        set tcp_ecn_option 0; write 4 100 = 100; > PEA. 101:201(100) ack 1 <>";

    /// What has come and what is told, in `tcp_info`.
    bytes_both_ways: accepted() => "
        < [ce] EA. 1:11(10) ack 1; > WA. 1:1(0) ack 11 <ECN1 1 10 1>; ip 64 2
        < [ect0] EA. 11:31(20) ack 1; +0.04 > WA. 1:1(0) ack 31 <ECN1 1 10 21>
        < [ect1] EA. 31:61(30) ack 1; +0.04 > WA. 1:1(0) ack 61 <ECN1 31 10 21>
        tcp_info 4 received_ce = 1; tcp_info 4 received_ce_bytes = 10
        tcp_info 4 received_e0_bytes = 20; tcp_info 4 received_e1_bytes = 30
        write 4 100 = 100; > PWA. 1:101(100) ack 61 <ECN1 31 10 21>
        < EA. 61:61(0) ack 101 <ECN0 1 0 101>; tcp_info 4 delivered_e1_bytes = 100
        write 4 100 = 100; > PWA. 101:201(100) ack 61 <ECN1 31 10 21>
        < WA. 61:61(0) ack 201 <ECN0 1 100 101>; tcp_info 4 delivered_ce_bytes = 100
        tcp_info 4 delivered_ce = 1; tcp_info 4 delivered_e0_bytes = 0";

    /// `tcp_ecn_fallback`: the SYN-ACK could not be marked, so what says that it was is not to be
    /// trusted. With 0 it is, and a SYN that is lost is sent again as it was.
    what_was_changed_on_the_way: listening() => "
        < SEWA 0:0(0) <mss 1000>; > SW. 0:0(0) ack 1
        < WA. 1:1(0) ack 1; accept 3 = 4; nonblock 4 = 0; tcp_info 4 delivered_ce = 1
        write 4 100 = 100; > PEA. 1:101(100) ack 1; ip 64 0";
    /// The other setting.
    nobody_minds_what_was_changed: host() => "
        set tcp_ecn 3; set tcp_ecn_fallback 0
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < SEWA 0:0(0) <mss 1000>; > SW. 0:0(0) ack 1
        < WA. 1:1(0) ack 1; accept 3 = 4; nonblock 4 = 0; tcp_info 4 delivered_ce = 1
        write 4 100 = 100; > PEA. 1:101(100) ack 1; ip 64 2; < EA. 1:1(0) ack 101
        socket = 5; nonblock 5 = 0; peer 6000; connect 5 6000 = EINPROGRESS; > SEWA 0:0(0)
        +1 > SEWA 0:0(0); +2 > SEWA 0:0(0)";
}
