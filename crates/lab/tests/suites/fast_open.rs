//! TCP Fast Open through the calls of sockets, as scripts of others ask it: a script of our own for
//! each kind. What the core does is in its own `tests/fast_open.rs`.

use crate::script::{Script, cases, host, host_of};

/// A client, without a cookie, whose calls do not wait.
fn client() -> Script {
    host().play("socket = 3; nonblock 3 = 0")
}

/// One that has the cookie abcd1234, and descriptor 3 to connect with.
fn with_cookie() -> Script {
    client().play(
        "sendto 3 0 5000 fastopen = EINPROGRESS
         > S 0:0(0) <mss 1460,FO>
         +0.01 < S. 0:0(0) ack 1 win 14600 <mss 1460,FO abcd1234>
         > . 1:1(0) ack 1
         tcp_info 3 options = 0; close 3 = 0; > F. 1:1(0) ack 1
         < F. 1:1(0) ack 2; > . 2:2(0) ack 2
         socket = 3; nonblock 3 = 0; peer 5001",
    )
}

/// The same, whose calls wait.
fn patient() -> Script {
    with_cookie().play("block 3 = 0")
}

/// The key of Linux's scripts, and the address that they have for the peer.
const KEY: &str = "
    set tcp_fastopen 0x403
    set tcp_fastopen_key_0 0xa1a1a1a1; set tcp_fastopen_key_1 0xb2b2b2b2
    set tcp_fastopen_key_2 0xc3c3c3c3; set tcp_fastopen_key_3 0xd4d4d4d4";

/// A listener as in Linux's scripts, descriptor 3: its peer's cookie is `3021b9d889017eeb`.
fn server() -> Script {
    host_of("192.168.0.1", "192.0.2.1")
        .play(KEY)
        .play("socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 1 = 0")
}

/// One that has a connection with ten bytes, descriptor 4, whose handshake is not over.
fn accepted() -> Script {
    server().play(
        "< S 0:10(10) win 32792 <mss 1460,FO 3021b9d889017eeb>
         > S. 0:0(0) ack 11 <mss 1460>
         accept 3 = 4; nonblock 4 = 0; tcp_info 4 options = 32",
    )
}

/// With FreeBSD's ways, and a cookie of eight bytes.
fn freebsd() -> Script {
    host().play(
        "set freebsd 1; set fastopen_client_enable 0; set fastopen_client_enable 1
         socket = 3; option 3 fastopen 1 = 0; get_option 3 fastopen = -2147483648
         sendto 3 100 5000 = 100
         > S 0:0(0) <mss 1460,FO>
         +0.05 < S. 0:0(0) ack 1 win 65535 <mss 1460,FO 0102030405060708>
         > P. 1:101(100) ack 1
         < . 1:1(0) ack 101 win 65535
         < F. 1:1(0) ack 101; > . 101:101(0) ack 2
         close 3 = 0; > F. 101:101(0) ack 2; < . 2:2(0) ack 102
         socket = 3; option 3 fastopen 1 = 0; peer 5001",
    )
}

/// A listener with FreeBSD's ways and a key of zeros: the peer's cookie is `2069a359c930dba9`.
fn freebsd_server() -> Script {
    host_of("192.168.0.1", "192.0.2.1").play(
        "set freebsd 1; set fastopen_server_enable 1; set tcp_syncookies 0
         socket = 3; bind 3 80 = 0; option 3 fastopen 1 = 0; listen 3 4 = 0; nonblock 3 = 0",
    )
}

cases! {
    data_goes_with_the_syn: with_cookie() => "
        sendto 3 1000 5001 fastopen = 1000
        > S 0:1000(1000) <mss 1460,FO abcd1234>
        poll 3 = 0; write 3 1000 = EAGAIN; sendto 3 1000 5001 fastopen = EALREADY
        connect 3 5001 = EALREADY
        +0.05 < S. 0:0(0) ack 1001 win 14600 <mss 940,FO 12345678>
        > . 1001:1001(0) ack 1; tcp_info 3 options = 32; poll 3 = 4
        sendto 3 10 5001 fastopen = 10; > P. 1001:1011(10) ack 1
        close 3 = 0; > F. 1011:1011(0) ack 1
        // The segment size and the cookie are for the next one.
        peer 5002; socket = 3; nonblock 3 = 0; sendto 3 2000 5002 fastopen = 900
        > S 0:900(900) <mss 1460,FO 12345678>";

    data_that_is_not_taken_is_sent_again: with_cookie() => "
        sendto 3 5000 5001 fastopen = 1420
        > S 0:1420(1420) <mss 1460,FO abcd1234>
        +0.05 < S. 0:0(0) ack 1 win 14600 <mss 1460,FO aaaabbbbccccdddd>
        > P. 1:1421(1420) ack 1; tcp_info 3 options = 0; tcp_info 3 delivered = 1
        < . 1:1(0) ack 1421; tcp_info 3 delivered = 2
        write 3 80 = 80; > P. 1421:1501(80) ack 1";

    without_a_cookie_it_connects: client() => "
        sendto 3 1000 5000 fastopen = EINPROGRESS
        > S 0:0(0) <mss 1460,FO>
        write 3 1000 = EAGAIN
        +0.01 < S. 0:0(0) ack 1 win 5840 <mss 1460,FO 112233445566>
        > . 1:1(0) ack 1; write 3 10 = 10; > P. 1:11(10) ack 1";

    nothing_to_send_is_only_an_attempt: with_cookie() => "
        sendto 3 0 5001 fastopen = EINPROGRESS
        > S 0:0(0) <mss 1460,FO abcd1234>
        < S. 0:0(0) ack 1 win 14600 <mss 1460>; > . 1:1(0) ack 1; tcp_info 3 options = 0";

    waits_until_it_is_open: patient() => "
        begin sendto 3 1900 5001 fastopen
        > S 0:1420(1420) <mss 1460,FO abcd1234>
        waits
        +0.02 < S. 0:0(0) ack 1421 win 5840 <mss 1460>
        > P. 1421:1901(480) ack 1
        end = 1900";

    waits_for_a_refusal: patient() => "
        begin sendto 3 2000 5001 fastopen
        > S 0:1420(1420)
        +0.05 < R. 0:0(0) ack 1 win 0
        end = ECONNREFUSED; tcp_info 3 options = 0";

    waits_in_vain: patient() => "
        option 3 syncnt 1 = 0
        begin sendto 3 2000 5001 fastopen
        > S 0:1420(1420) <mss 1460,FO abcd1234>
        +1 > S 0:0(0) <mss 1460>
        +2; end = ETIMEDOUT";

    refused_and_told_by_the_next_call: with_cookie() => "
        sendto 3 2000 5001 fastopen = 1420
        > S 0:1420(1420)
        < R. 0:0(0) ack 1 win 0; poll 3 = 8221
        write 3 2000 = ECONNREFUSED";

    reset_after_the_syn_ack: with_cookie() => "
        sendto 3 1420 5001 fastopen = 1420
        > S 0:1420(1420)
        < S. 0:0(0) ack 1421 win 5840 <mss 1460>; > . 1421:1421(0) ack 1
        < R. 1:1(0) ack 1421 win 0
        write 3 2000 = ECONNRESET; tcp_info 3 options = 32";

    it_has_to_be_allowed: client() => "
        set tcp_fastopen 0; sendto 3 10 5000 fastopen = EOPNOTSUPP
        option 3 fastopen_connect 1 = EOPNOTSUPP
        set tcp_fastopen 1; sendto 3 0 nowhere fastopen = EOPNOTSUPP
        send 3 10 fastopen = EDESTADDRREQ
        option 3 fastopen_connect 2 = EINVAL; option 3 fastopen_no_cookie 2 = EINVAL
        option_bytes 3 fastopen_key = EINVAL; option_bytes 3 fastopen_key 010203 = EINVAL";

    connect_waits_for_the_first_bytes: with_cookie() => "
        option 3 fastopen_connect 1 = 0; get_option 3 fastopen_connect = 1
        connect 3 5001 = 0; connect 3 5001 = EISCONN
        poll 3 = 4; read 3 10 = EAGAIN
        +1; write 3 1000 = 1000
        > S 0:1000(1000) <mss 1460,FO abcd1234>
        < S. 0:0(0) ack 1001 win 14600 <mss 1460>; > . 1001:1001(0) ack 1
        tcp_info 3 options = 32; connect 3 5001 = 0; connect 3 5001 = EISCONN";

    connect_without_a_cookie_does_not_wait: client() => "
        option 3 fastopen_connect 1 = 0; connect 3 5000 = EINPROGRESS
        > S 0:0(0) <mss 1460,FO>
        sendto 3 10 5000 fastopen = EALREADY";

    connect_and_nothing_to_send: with_cookie() => "
        option 3 fastopen_connect 1 = 0; connect 3 5001 = 0
        sendto 3 0 5001 = EINPROGRESS
        > S 0:0(0) <mss 1460,FO abcd1234>";

    connect_and_close: with_cookie() => "
        option 3 fastopen_connect 1 = 0; connect 3 5001 = 0; close 3 = 0; +100";

    data_without_a_cookie: client() => "
        set tcp_fastopen 5; sendto 3 1000 5000 fastopen = 1000
        > S 0:1000(1000) <mss 1460>
        < S. 0:0(0) ack 1001 win 5840 <mss 940,FO abcd1234>; > . 1001:1001(0) ack 1
        tcp_info 3 options = 32; close 3 = 0; > F. 1001:1001(0) ack 1
        // Nobody has asked for this cookie.
        peer 5001; set tcp_fastopen 1; socket = 3; nonblock 3 = 0
        sendto 3 1000 5001 fastopen = EINPROGRESS
        > S 0:0(0) <mss 1460,FO>";

    one_socket_without_a_cookie: client() => "
        option 3 fastopen_no_cookie 1 = 0; get_option 3 fastopen_no_cookie = 1
        sendto 3 100 5000 fastopen = 100
        > S 0:100(100) <mss 1460>";

    the_option_of_drafts_is_tried_once: client() => "
        sendto 3 10 5000 fastopen = EINPROGRESS; > S 0:0(0) <mss 1460,FO>
        < S. 0:0(0) ack 1 win 5840 <mss 1460>; > . 1:1(0) ack 1; close 3 = 0; > F. 1:1(0) ack 1
        peer 5001; socket = 3; nonblock 3 = 0
        sendto 3 10 5001 fastopen = EINPROGRESS; > S 0:0(0) <mss 1460,FOEXP>
        < S. 0:0(0) ack 1 win 5840 <mss 1460,FOEXP 1234abcd>; > . 1:1(0) ack 1
        close 3 = 0; > F. 1:1(0) ack 1
        peer 5002; socket = 3; nonblock 3 = 0
        sendto 3 10 5002 fastopen = 10; > S 0:10(10) <mss 1460,FOEXP 1234abcd>
        < S. 0:0(0) ack 11 win 5840 <mss 1460,FO abcd5678>; > . 11:11(0) ack 1
        close 3 = 0; > F. 11:11(0) ack 1
        peer 5003; socket = 3; nonblock 3 = 0
        sendto 3 10 5003 fastopen = 10; > S 0:10(10) <mss 1460,FO abcd5678>";

    all_cookies_are_forgotten: with_cookie() => "
        set tcp_fastopen_cookies 0; set tcp_fastopen_cookies 10
        sendto 3 10 5001 fastopen = EINPROGRESS; > S 0:0(0) <mss 1460,FO>";

    /// TCP_MAXSEG bounds the data of a SYN, too.
    a_small_segment: with_cookie() => "
        option 3 maxseg 1040 = 0; sendto 3 2000 5001 fastopen = 1000
        > S 0:1000(1000) <mss 1040,FO abcd1234>";

    accepted_with_its_data: accepted() => "
        poll 4 = 5; read 4 512 = 10; write 4 100 = 100
        > P. 1:101(100) ack 11
        +0.1 < . 11:11(0) ack 101 win 5840; state 4 ESTAB = 1";

    another_cookie_or_none: server() => "
        < S 0:10(10) win 32792 <mss 1460,FO aaaaaaaaaaaaaaaa>
        > S. 0:0(0) ack 1 <mss 1460,FO 3021b9d889017eeb>
        < R 1:1(0)
        peer 5001; < S 0:0(0) win 32792 <mss 1460,FO>
        > S. 0:0(0) ack 1 <mss 1460,FO 3021b9d889017eeb>
        < R 1:1(0)
        peer 5002; < S 0:10(10) win 32792 <mss 1460,FOEXP aaaaaaaaaaaaaaaa>
        > S. 0:0(0) ack 1 <mss 1460,FOEXP 3021b9d889017eeb>
        < R 1:1(0)
        peer 5003; < S 0:10(10) win 32792 <mss 1460>
        > S. 0:0(0) ack 1 <mss 1460>; accept 3 = EAGAIN";

    a_listener_without_it: server() => "
        close 3 = 0; set tcp_fastopen 3
        socket = 3; bind 3 80 = 0; listen 3 1 = 0; nonblock 3 = 0; get_option 3 fastopen = 0
        < S 0:10(10) win 32792 <mss 1460,FO 3021b9d889017eeb>
        > S. 0:0(0) ack 1 <mss 1460>; < R 1:1(0)
        option 3 fastopen 2 = 0; get_option 3 fastopen = 2
        peer 5001; < S 0:10(10) win 32792 <mss 1460,FO 3021b9d889017eeb>
        > S. 0:0(0) ack 11 <mss 1460>";

    cookies_are_not_required: server() => "
        close 3 = 0; set tcp_fastopen 0x202
        socket = 3; bind 3 80 = 0; listen 3 1 = 0; nonblock 3 = 0; option 3 fastopen 2 = 0
        < S 0:1000(1000) win 32792 <mss 1460>
        > S. 0:0(0) ack 1001 <mss 1460>
        accept 3 = 4; read 4 1024 = 1000
        < . 1001:2001(1000) ack 1 win 5840; read 4 1024 = 1000
        +0.04 > . 1:1(0) ack 2001";

    /// TCP_FASTOPEN_KEY: of a0bf63f7-ed803d81-cd641d30-cebc4a90, whose cookie for these addresses
    /// Linux's scripts have; and of a key before it.
    a_listener_has_keys_of_its_own: host_of("192.168.0.2", "10.248.0.2") => "
        set tcp_fastopen 0x403
        socket = 3; bind 3 80 = 0; nonblock 3 = 0
        option_bytes 3 fastopen_key f763bfa0813d80ed301d64cd904abcce = 0; listen 3 5 = 0
        < S 0:10(10) win 10000 <mss 1012,FO>
        > S. 0:0(0) ack 1 <mss 1460,FO 00abaaabe8e954c2>; < R 1:1(0)
        option_bytes 3 fastopen_key \
            0102030405060708090a0b0c0d0e0f10f763bfa0813d80ed301d64cd904abcce = 0
        peer 5001; < S 0:10(10) win 10000 <mss 1012,FO 00abaaabe8e954c2>
        > S. 0:0(0) ack 11 <mss 1460,FO aabec24c7920275e>; accept 3 = 4; read 4 10 = 10
        option_bytes 3 fastopen_key 0102030405060708090a0b0c0d0e0f10 = 0
        peer 5002; < S 0:10(10) win 10000 <mss 1012,FO 00abaaabe8e954c2>
        > S. 0:0(0) ack 1 <mss 1460,FO aabec24c7920275e>";

    reset_before_it_is_accepted: server() => "
        < S 0:10(10) win 32792 <mss 1460,FO 3021b9d889017eeb>
        > S. 0:0(0) ack 11; < R. 11:11(0) win 257
        accept 3 = 4; nonblock 4 = 0; tcp_info 4 options = 32
        read 4 512 = 10; read 4 512 = ECONNRESET";

    reset_after_it_is_accepted: accepted() => "
        < R. 11:11(0) win 32792; write 4 100 = ECONNRESET; close 4 = 0";

    an_error_before_it_is_accepted: server() => "
        < S 0:10(10) win 32792 <mss 1460,FO 3021b9d889017eeb>
        > S. 0:0(0) ack 11
        icmp prohibited seq 5000; icmp prohibited seq 0
        accept 3 = 4; nonblock 4 = 0
        read 4 512 = 10; read 4 512 = EHOSTUNREACH; write 4 100 = EPIPE
        < . 1:1(0) ack 1; > R 1:1(0)";

    closed_with_something_unread: accepted() => "close 4 = 0; > R. 1:1(0) ack 11";

    a_listener_closes: server() => "
        < S 0:10(10) win 32792 <mss 1460,FO 3021b9d889017eeb>
        > S. 0:0(0) ack 11; close 3 = 0; > R. 1:1(0) ack 11";

    /// FreeBSD: whoever gives no cookie that is right is not asked again, for 15 minutes.
    freebsd_asks_once: host() => "
        set freebsd 1; socket = 3; option 3 fastopen 1 = 0; sendto 3 100 5000 = 100
        > S 0:0(0) <mss 1460,FO>
        < S. 0:0(0) ack 1 win 65535 <mss 1460>; > P. 1:101(100) ack 1
        < . 1:1(0) ack 101 win 65535
        peer 5001; socket = 4; option 4 fastopen 1 = 0; sendto 4 100 5001 = 100
        > S 0:0(0) <mss 1460>
        < S. 0:0(0) ack 1 win 65535 <mss 1460>; > P. 1:101(100) ack 1
        < . 1:1(0) ack 101 win 65535
        set fastopen_client_enable 0; set fastopen_client_enable 1
        peer 5002; socket = 5; option 5 fastopen 1 = 0; sendto 5 100 5002 = 100
        > S 0:0(0) <mss 1460,FO>";

    freebsd_has_a_cookie: freebsd() => "
        sendto 3 100 5001 = 100
        > S 0:100(100) <mss 1460,FO 0102030405060708>
        < S. 0:0(0) ack 101 win 65535 <mss 1460,FO 02030405>; > . 101:101(0) ack 1
        peer 5002; socket = 4; option 4 fastopen 1 = 0; sendto 4 100 5002 = 100
        > S 0:100(100) <mss 1460,FO 02030405>
        // Not taken, and no other cookie: not again.
        < S. 0:0(0) ack 1 win 65535 <mss 1460>; > P. 1:101(100) ack 1
        < . 1:1(0) ack 101 win 65535
        peer 5003; socket = 5; option 5 fastopen 1 = 0; sendto 5 100 5003 = 100
        > S 0:0(0) <mss 1460>";

    freebsd_gives_a_cookie: freebsd_server() => "
        < S 0:100(100) win 65535 <mss 1460,FO>
        > S. 0:0(0) ack 1 <mss 1460,FO 2069a359c930dba9>
        < P. 1:101(100) ack 1 win 65535
        +0.04 > . 1:1(0) ack 101; accept 3 = 4; read 4 100 = 100";

    /// FreeBSD: the SYN-ACK waits for 40 ms.
    freebsd_takes_data: freebsd_server() => "
        < SP 0:100(100) win 65535 <mss 1460,FO 2069a359c930dba9>
        +0.04 > S. 0:0(0) ack 101 <mss 1460,FO 2069a359c930dba9>
        < . 101:101(0) ack 1 win 65535
        accept 3 = 4; read 4 100 = 100
        < F. 101:101(0) ack 1; > . 1:1(0) ack 102; close 4 = 0; > F. 1:1(0) ack 102";

    /// FreeBSD: the answer goes with the SYN-ACK.
    freebsd_answers_with_the_syn_ack: freebsd_server() => "
        < SP 0:100(100) win 65535 <mss 1460,FO 2069a359c930dba9>
        accept 3 = 4
        +0.02; write 4 200 = 200
        > S. 0:200(200) ack 101 <mss 1460,FO 2069a359c930dba9>
        < . 101:101(0) ack 201 win 65535; read 4 100 = 100
        < F. 101:101(0) ack 201; > . 201:201(0) ack 102; close 4 = 0; > F. 201:201(0) ack 102";
}
