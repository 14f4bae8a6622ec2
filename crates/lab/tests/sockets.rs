//! What sockets do: calls, options and errors, as Linux has them (`man 2 connect` and so on, and
//! `man 7 tcp`), and what of them is seen on the wire.

mod script;

use script::{Script, blocking, cases, established, host, host_v6, listening};

/// One with two listeners that share port 80, descriptors 3 and 4; calls do not wait.
fn sharing() -> Script {
    host().play(
        "socket = 3; nonblock 3 = 0; option 3 reuseport 1 = 0; bind 3 80 = 0; listen 3 5 = 0
         socket = 4; nonblock 4 = 0; option 4 reuseport 1 = 0; bind 4 80 = 0; listen 4 5 = 0",
    )
}

cases! {
    // Opening.

    /// connect(2), EINPROGRESS: "The socket is nonblocking and the connection cannot be completed
    /// immediately." The call that finds it complete succeeds, and the one after it says EISCONN.
    connect_without_waiting: host() => "
        socket = 3; nonblock 3 = 0
        connect 3 5000 = EINPROGRESS
        > S 0:0(0)
        connect 3 5000 = EALREADY
        poll 3 = 0
        peerport 3 = ENOTCONN
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        poll 3 = 4                       // POLLOUT
        connect 3 5000 = 0
        connect 3 5000 = EISCONN
        peerport 3 = 5000; state 3 ESTAB = 1";

    /// "[...] the call blocks until the connection is established."
    connect_waits: host() => "
        socket = 3
        begin connect 3 5000
        > S 0:0(0)
        waits
        +0.5 < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        end = 0";

    connect_over_ipv6: host_v6() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS
        > S 0:0(0) <mss 1440>
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1; write 3 100 = 100; > P. 1:101(100) ack 1";

    /// ECONNREFUSED: "A connect() on a stream socket found no one listening on the remote address."
    connect_is_refused: host() => "
        socket = 3
        begin connect 3 5000; > S 0:0(0)
        < R. 0:0(0) ack 1
        end = ECONNREFUSED
        // It can be used again.
        begin connect 3 5000; > S 0:0(0)
        < S. 0:0(0) ack 1 win 10000; > . 1:1(0) ack 1
        end = 0";

    /// Without waiting, POLLERR and SO_ERROR tell, and the error is told once.
    a_refusal_is_told_by_so_error: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < R. 0:0(0) ack 1
        poll 3 = 8221                    // POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP
        get_option 3 error = 111         // ECONNREFUSED
        get_option 3 error = 0
        connect 3 5000 = ECONNABORTED
        connect 3 5000 = EINPROGRESS; > S 0:0(0)";

    a_refusal_is_told_by_the_next_connect: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < R. 0:0(0) ack 1
        connect 3 5000 = ECONNREFUSED
        connect 3 5000 = EINPROGRESS; > S 0:0(0)";

    a_refusal_is_told_by_read: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < R. 0:0(0) ack 1
        read 3 10 = ECONNREFUSED; read 3 10 = 0; write 3 10 = EPIPE";

    /// RFC 1122, section 4.2.3.9: a port that cannot be reached is a hard error.
    icmp_refuses_a_connection: host() => "
        socket = 3; begin connect 3 5000; > S 0:0(0)
        icmp refused seq 0
        end = ECONNREFUSED";

    /// The same section: a host that cannot be reached is a soft one, told in the end.
    icmp_unreachable_is_told_when_all_was_in_vain: host() => "
        set tcp_syn_retries 1
        socket = 3; begin connect 3 5000; > S 0:0(0)
        icmp unreachable seq 0
        +1 > S 0:0(0)
        +1.999; waits
        +0.002 end = EHOSTUNREACH";

    /// ETIMEDOUT: "Timeout while attempting connection."
    connect_times_out: host() => "
        socket = 3; option 3 syncnt 2 = 0
        begin connect 3 5000; > S 0:0(0)
        +1 > S 0:0(0)
        +2 > S 0:0(0)
        +3.999; waits
        +0.002 end = ETIMEDOUT";

    /// tcp(7), TCP_USER_TIMEOUT, of an attempt to connect.
    connect_times_out_by_user_timeout: host() => "
        socket = 3; option 3 user_timeout 1500 = 0
        begin connect 3 5000; > S 0:0(0)
        +1 > S 0:0(0)
        +0.499; waits
        +0.001 end = ETIMEDOUT";

    /// socket(7), SO_SNDTIMEO: the call gives up, the attempt goes on.
    connect_gives_up_waiting: host() => "
        socket = 3; timeout 3 snd 500 = 0
        begin connect 3 5000; > S 0:0(0)
        +0.499; waits
        +0.001 end = EINPROGRESS
        < S. 0:0(0) ack 1 win 10000; > . 1:1(0) ack 1
        connect 3 5000 = 0";

    the_first_timeout_can_be_set: host() => "
        set rto_initial_us 300000
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS
        > S 0:0(0)
        +0.3 > S 0:0(0)
        +0.6 > S 0:0(0)";

    /// connect(2): "by connecting to an address with the sa_family member of sockaddr set to
    /// AF_UNSPEC" a connection is ended.
    disconnected: established() => "
        connect 4 nowhere = 0; > R. 1:1(0) ack 1
        read 4 10 = ENOTCONN; peerport 4 = ENOTCONN";

    /// EISCONN; EINVAL of accept(2): "Socket is not listening for connections."
    a_listener_is_no_connection: listening() => "
        connect 3 5000 = EISCONN; read 3 10 = ENOTCONN; write 3 10 = EPIPE
        fionread 3 = EINVAL; get_option 3 acceptconn = 1
        socket = 4; accept 4 = EINVAL; get_option 4 acceptconn = 0";

    a_new_socket: host() => "
        socket = 3
        read 3 10 = ENOTCONN; write 3 10 = EPIPE; peerport 3 = ENOTCONN; sockport 3 = 0
        shutdown 3 wr = ENOTCONN; poll 3 = 20; get_option 3 type = 1";

    a_closed_descriptor: host() => "
        socket = 3; close 3 = 0
        close 3 = EBADF; read 3 1 = EBADF; poll 3 = 32; listen 3 1 = EBADF; socket = 3";

    // Listening and accepting.

    accept_waits: listening() => "
        block 3 = 0; begin accept 3
        +1 < S 0:0(0) win 10000; > S. 0:0(0) ack 1
        waits
        < . 1:1(0) ack 1
        end = 4
        sockport 4 = 80; peerport 4 = 5000; state 4 ESTAB = 1";

    accept_does_not_wait: listening() => "
        accept 3 = EAGAIN; poll 3 = 0
        < S 0:0(0) win 10000; > S. 0:0(0) ack 1
        accept 3 = EAGAIN
        < . 1:1(0) ack 1
        poll 3 = 1; accept 3 = 4; poll 3 = 0";

    accept_gives_up: listening() => "
        block 3 = 0; timeout 3 rcv 250 = 0
        begin accept 3; +0.249; waits; +0.001 end = EAGAIN";

    accept_takes_turns: listening() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        peer 5001; < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        accept 3 = 4; accept 3 = 5; peerport 4 = 5000; peerport 5 = 5001";

    /// listen(2): "The backlog argument defines the maximum length to which the queue of pending
    /// connections for sockfd may grow." For Linux it is full with one more.
    the_backlog_is_full: listening() => "
        listen 3 1 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        peer 5001; < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        peer 5002; < S 0:0(0) win 1000
        accept 3 = 4
        +1 < S 0:0(0) win 1000; > S. 0:0(0) ack 1";

    /// A connection that was reset before it was accepted is accepted all the same, and says so.
    accepted_after_a_reset: listening() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        < R. 1:1(0) ack 1
        accept 3 = 4; poll 4 = 8221; read 4 10 = ECONNRESET; read 4 10 = 0";

    accepted_with_data_and_fin: listening() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1
        < P. 1:11(10) ack 1; < F. 11:11(0) ack 1; > . 1:1(0) ack 12
        accept 3 = 4; poll 4 = 8197; read 4 100 = 10; read 4 100 = 0";

    /// tcp(7), TCP_DEFER_ACCEPT: "Allow a listener to be awakened only when data arrives on the
    /// socket."
    accept_is_deferred_until_there_is_data: listening() => "
        option 3 defer_accept 3 = 0; get_option 3 defer_accept = 3
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept 3 = EAGAIN
        +0.5 < P. 1:11(10) ack 1
        accept 3 = 4; read 4 100 = 10
        +0.04 > . 1:1(0) ack 11";

    accept_is_deferred_not_for_ever: listening() => "
        option 3 defer_accept 1 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept 3 = EAGAIN
        +1 > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept 3 = 4";

    /// What nobody has accepted is reset with its listener.
    a_listener_is_closed: listening() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < P. 1:101(100) ack 1
        close 3 = 0
        > R. 1:1(0) ack 101
        get buffers = 0; get sockets = 0
        peer 5001; < S 0:0(0) win 1000; > R. 0:0(0) ack 1";

    /// shutdown(2) with SHUT_RD of a listener ends it, on Linux; it can listen again.
    a_listener_is_shut_down: listening() => "
        shutdown 3 rd = 0
        < S 0:0(0) win 1000; > R. 0:0(0) ack 1
        accept 3 = EINVAL
        listen 3 1 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1";

    /// Options of a listener are those of what it accepts.
    options_are_inherited: listening() => "
        option 3 nodelay 1 = 0; option 3 keepidle 77 = 0; option 3 keepalive 1 = 0
        timeout 3 rcv 500 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        accept 3 = 4
        get_option 4 nodelay = 1; get_option 4 keepidle = 77; get_option 4 keepalive = 1
        begin read 4 10; +0.5 end = EAGAIN";

    /// RFC 4987, section 3.6: with cookies only, nothing is kept of a SYN.
    always_cookies: listening() => "
        set tcp_syncookies 2
        < S 0:0(0) win 1000 <mss 1000>; > *
        get half_open = 0; get cookies_sent = 1";

    // Addresses and ports.

    /// bind(2), EADDRINUSE and EINVAL ("The socket is already bound to an address.").
    a_port_is_had_by_one: host() => "
        socket = 3; bind 3 80 = 0; bind 3 81 = EINVAL
        socket = 4; bind 4 80 = EADDRINUSE; bind 4 any 80 = EADDRINUSE; bind 4 81 = 0
        close 3 = 0
        socket = 3; bind 3 any 80 = 0; listen 3 1 = 0";

    /// socket(7), SO_REUSEADDR: "a socket may bind, except when there is an active listening socket
    /// bound to the address."
    a_port_is_shared_by_those_who_want_it: host() => "
        socket = 3; option 3 reuseaddr 1 = 0; bind 3 80 = 0
        socket = 4; bind 4 80 = EADDRINUSE
        option 4 reuseaddr 1 = 0; bind 4 80 = 0
        listen 3 1 = 0; listen 4 1 = EADDRINUSE
        socket = 5; option 5 reuseaddr 1 = 0; bind 5 80 = EADDRINUSE";

    /// socket(7), SO_REUSEPORT: "Permits multiple AF_INET or AF_INET6 sockets to be bound to an
    /// identical socket address. This option must be set on each socket (including the first
    /// socket) prior to calling bind(2) on the socket."
    a_port_is_shared_by_listeners_that_want_it: host() => "
        socket = 3; option 3 reuseport 1 = 0; get_option 3 reuseport = 1
        bind 3 80 = 0; listen 3 1 = 0
        socket = 4; bind 4 80 = EADDRINUSE
        option 4 reuseport 1 = 0; bind 4 80 = 0; listen 4 1 = 0
        socket = 5; option 5 reuseaddr 1 = 0; bind 5 80 = EADDRINUSE
        close 3 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1";

    /// tcp_migrate_req of Linux, which is off there: a connection that is half-open at a listener
    /// that closes, or not accepted, is another's of its port. Whichever of the two had it.
    a_listener_leaves_what_waits_to_another: sharing() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1
        close 3 = 0
        < . 1:1(0) ack 1; accept 4 = 3";
    another_listener_leaves_what_waits: sharing() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1
        close 4 = 0
        < . 1:1(0) ack 1; accept 3 = 4";
    a_listener_leaves_what_nobody_accepted_to_another: sharing() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        close 3 = 0; accept 4 = 3";
    another_listener_leaves_what_nobody_accepted: sharing() => "
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        close 4 = 0; accept 3 = 4";

    /// What a SYN-ACK has said of the window would not hold at a listener with another buffer.
    what_waits_is_not_left_to_one_that_is_set_otherwise: sharing() => "
        option 3 rcvbuf 5000 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        peer 5001
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        peer 5002
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        accept 4 = 5; accept 4 = 6; accept 4 = EAGAIN
        close 3 = 0; > R. 1:1(0) ack 1";

    /// bind(2), 0: "the port number is chosen".
    a_port_is_chosen: host() => "
        set local_port_first 4000; set local_port_last 4001
        socket = 3; bind 3 0 = 0
        socket = 4; bind 4 0 = 0
        socket = 5; bind 5 0 = EADDRNOTAVAIL; close 3 = 0; bind 5 0 = 0
        close 4 = 0; socket = 3; nonblock 3 = 0";

    a_listener_without_a_port_gets_one: host() => "
        set local_port_first 4000; set local_port_last 4000
        socket = 3; listen 3 1 = 0; sockport 3 = 4000";

    /// EADDRNOTAVAIL: "all port numbers in the ephemeral port range are currently in use".
    no_port_is_left_to_connect_from: host() => "
        set local_port_first 4000; set local_port_last 4000
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0); sockport 3 = 4000
        socket = 4; nonblock 4 = 0; connect 4 5000 = EADDRNOTAVAIL
        peer 5001; connect 4 5001 = EINPROGRESS; > S 0:0(0)";

    a_bound_socket_connects_from_there: host() => "
        socket = 3; nonblock 3 = 0; bind 3 1234 = 0; connect 3 5000 = EINPROGRESS
        > S 0:0(0); sockport 3 = 1234; local 1234
        < S. 0:0(0) ack 1; > . 1:1(0) ack 1";

    /// ipv6(7): a socket of IPv6 at any address has IPv4, too, but for IPV6_V6ONLY.
    a_port_of_both_families: host_v6() => "
        socket = 3; bind 3 any 80 = 0; listen 3 1 = 0
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1";

    // Reading.

    read_waits: blocking() => "
        begin read 4 100
        +1; waits
        < P. 1:51(50) ack 1
        end = 50
        +0.04 > . 1:1(0) ack 51";

    read_does_not_wait: established() => "
        read 4 100 = EAGAIN
        < P. 1:51(50) ack 1
        fionread 4 = 50; read 4 20 = 20; fionread 4 = 30; read 4 100 = 30; read 4 100 = EAGAIN
        +0.04 > . 1:1(0) ack 51";

    read_gives_up: blocking() => "
        timeout 4 rcv 1500 = 0; begin read 4 100
        +1.499; waits; +0.001 end = EAGAIN";

    /// recv(2), MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_OOB.
    flags_of_recv: blocking() => "
        recv 4 100 dontwait = EAGAIN
        < P. 1:51(50) ack 1
        recv 4 30 peek = 30; recv 4 100 peek = 50; fionread 4 = 50
        recv 4 100 oob = EINVAL
        recv 4 10 trunc = 10; recv 4 100 = 40
        +0.04 > . 1:1(0) ack 51";

    /// recv(2), MSG_WAITALL: "block until the full request is satisfied".
    recv_waits_for_all: blocking() => "
        begin recv 4 100 waitall
        < P. 1:51(50) ack 1; waits
        < P. 51:91(40) ack 1; waits
        < P. 91:111(20) ack 1
        end = 100
        +0.04 > . 1:1(0) ack 111";

    /// "However, the call may still return less data [...] if [...] an error or disconnect occurs".
    recv_of_all_ends_with_the_stream: blocking() => "
        begin recv 4 100 waitall
        < P. 1:51(50) ack 1; waits
        < F. 51:51(0) ack 1; > . 1:1(0) ack 52
        end = 50; read 4 100 = 0; read 4 100 = 0";

    /// socket(7), SO_RCVLOWAT.
    readable_with_enough: blocking() => "
        option 4 rcvlowat 50 = 0; get_option 4 rcvlowat = 50
        begin read 4 100
        < P. 1:31(30) ack 1; waits
        < P. 31:61(30) ack 1
        end = 60
        +0.04 > . 1:1(0) ack 61";

    /// What came before a reset can be read; then the reset is told, once.
    read_before_a_reset: established() => "
        < P. 1:51(50) ack 1; < R. 51:51(0) ack 1
        poll 4 = 8221; read 4 100 = 50; read 4 100 = ECONNRESET; read 4 100 = 0
        write 4 10 = EPIPE";

    a_reset_ends_waiting: blocking() => "
        begin read 4 100
        < R. 1:1(0) ack 1
        end = ECONNRESET";

    closing_ends_waiting: blocking() => "
        begin read 4 100
        close 4 = 0; > F. 1:1(0) ack 1
        end = EBADF";

    /// The window is what fits, and opens when it is read.
    a_full_buffer_closes_the_window: listening() => "
        option 3 rcvbuf 2000 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1 win 2000
        < . 1:1(0) ack 1; accept 3 = 4; nonblock 4 = 0; get_option 4 rcvbuf = 4000
        < . 1:1001(1000) ack 1; < P. 1001:2001(1000) ack 1
        > . 1:1(0) ack 2001 win 0
        read 4 2000 = 2000
        > . 1:1(0) ack 2001 win 2000";

    /// RFC 9293, section 3.8.6.2.2: there is nothing to tell of a window that cannot become larger,
    /// however large the buffer.
    no_update_of_a_window_that_cannot_grow: host() => "
        set receive_buffer 131072; set receive_buffer_max 131072; set quick_acks 16
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 1 = 0
        < S 0:0(0) win 10000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1; accept 3 = 4
        < P. 1:11(10) ack 1; > . 1:1(0) ack 11 win 65535
        read 4 10 = 10";

    // Writing.

    write_is_sent_at_once: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1; outq 4 = 100
        +0.1 < . 1:1(0) ack 101; outq 4 = 0; get buffers = 0";

    /// socket(7), SO_SNDBUF; write(2), EAGAIN.
    write_is_bounded: established() => "
        option 4 sndbuf 2000 = 0; get_option 4 sndbuf = 4000
        write 4 3000 = 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        write 4 1 = EAGAIN; poll 4 = 0
        +0.1 < . 1:1(0) ack 1001; write 4 500 = 500; > P. 2001:2501(500) ack 1
        < . 1:1(0) ack 2001; poll 4 = 4";

    write_waits_for_room: blocking() => "
        option 4 sndbuf 2000 = 0
        begin write 4 2500
        > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        waits
        +0.1 < . 1:1(0) ack 2001
        > P. 2001:2501(500) ack 1
        end = 2500";

    write_gives_up: blocking() => "
        option 4 sndbuf 2000 = 0; timeout 4 snd 100 = 0; set rto_min_us 1000000
        begin write 4 2500
        > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.1 end = 2000";

    write_waits_for_the_connection: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        write 3 100 = EAGAIN; read 3 100 = EAGAIN
        block 3 = 0; begin write 3 100; waits
        < S. 0:0(0) ack 1; > . 1:1(0) ack 1; > P. 1:101(100) ack 1
        end = 100";

    /// tcp(7), TCP_NODELAY; RFC 9293, section 3.7.4.
    nagle_and_no_delay: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1
        write 4 100 = 100
        option 4 nodelay 1 = 0; > P. 101:201(100) ack 1
        write 4 100 = 100; > P. 201:301(100) ack 1";

    /// tcp(7), TCP_CORK: "don't send out partial frames"; cleared, "all queued partial frames are
    /// sent".
    corked: established() => "
        option 4 cork 1 = 0; get_option 4 cork = 1
        write 4 1500 = 1500; > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1001
        option 4 cork 0 = 0; > P. 1001:1501(500) ack 1";

    /// tcp(7), TCP_NODELAY: "setting this option forces an explicit flush of pending output, even
    /// if TCP_CORK is currently set", and of what is pending only.
    corked_and_flushed: established() => "
        option 4 cork 1 = 0; write 4 40 = 40; write 4 40 = 40
        option 4 nodelay 1 = 0; > P. 1:81(80) ack 1
        < . 1:1(0) ack 81
        write 4 40 = 40; option 4 cork 0 = 0; > P. 81:121(40) ack 1
        < . 1:1(0) ack 121
        send 4 40 more = 40; option 4 nodelay 1 = 0; > P. 121:161(40) ack 1";

    /// send(2), MSG_MORE: the same for one call.
    more_will_come: established() => "
        option 4 nodelay 1 = 0
        send 4 100 more = 100
        send 4 100 more = 100
        send 4 100 = 100; > P. 1:301(300) ack 1";

    /// send(2), MSG_EOR: "terminates a record": what comes behind it shares no segment with it, and
    /// it waits for nothing then.
    records_share_no_segment: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1
        send 4 50 eor = 50
        send 4 1200 eor = 1200; > . 101:151(50) ack 1; > . 151:1151(1000) ack 1
        write 4 500 = 500; > . 1151:1351(200) ack 1
        < . 1:1(0) ack 1151
        < . 1:1(0) ack 1351; > P. 1351:1851(500) ack 1
        < . 1:1(0) ack 1851
        option 4 cork 1 = 0; send 4 50 eor = 50; write 4 50 = 50; > . 1851:1901(50) ack 1
        option 4 cork 0 = 0
        < . 1:1(0) ack 1901; > P. 1901:1951(50) ack 1";

    /// tcp(7), TCP_MAXSEG.
    small_segments: listening() => "
        option 3 maxseg 500 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1 <mss 500>
        < . 1:1(0) ack 1 win 10000; accept 3 = 4; get_option 4 maxseg = 500
        write 4 1000 = 1000; > . 1:501(500) ack 1; > P. 501:1001(500) ack 1
        option 4 maxseg 20 = EINVAL";

    /// TCP_NOTSENT_LOWAT: what has not been sent is bounded, what is on its way is not.
    little_is_left_unsent: established() => "
        option 4 notsent_lowat 1000 = 0
        write 4 12000 = 12000
        > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1; > . 2001:3001(1000) ack 1
        > . 3001:4001(1000) ack 1; > . 4001:5001(1000) ack 1; > . 5001:6001(1000) ack 1
        > . 6001:7001(1000) ack 1; > . 7001:8001(1000) ack 1; > . 8001:9001(1000) ack 1
        > . 9001:10001(1000) ack 1
        write 4 1 = EAGAIN; poll 4 = 0
        +0.01 < . 1:1(0) ack 10001 win 10000
        > . 10001:11001(1000) ack 1; > P. 11001:12001(1000) ack 1
        poll 4 = 4";

    /// The error of a peer that has gone: EPIPE when it had said that it sends no more.
    write_after_a_reset: established() => "
        < F. 1:1(0) ack 1; > . 1:1(0) ack 2
        write 4 100 = 100; > P. 1:101(100) ack 2
        < R 2:2(0)
        write 4 100 = EPIPE; get_option 4 error = 0";

    urgent_data_is_refused: established() => "send 4 1 oob = EOPNOTSUPP";

    /// The size of the first flight: RFC 6928.
    the_initial_window_can_be_set: listening() => "
        set initial_window 2
        close 3 = 0; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 1 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1; < . 1:1(0) ack 1 win 10000
        accept 3 = 4
        write 4 5000 = 5000; > . 1:1001(1000) ack 1; > . 1001:2001(1000) ack 1
        +0.1 < . 1:1(0) ack 2001 win 10000
        > . 2001:3001(1000) ack 1; > . 3001:4001(1000) ack 1; > P. 4001:5001(1000) ack 1";

    // Acknowledging.

    /// tcp(7), TCP_QUICKACK: "acks are sent immediately, rather than delayed".
    quick_acks: established() => "
        < P. 1:51(50) ack 1
        option 4 quickack 1 = 0; > . 1:1(0) ack 51
        < P. 51:101(50) ack 1; > . 1:1(0) ack 101
        option 4 quickack 0 = 0
        < P. 101:151(50) ack 1
        +0.04 > . 1:1(0) ack 151
        read 4 200 = 150";

    the_delay_can_be_set: host() => "
        set delayed_ack_us 100000
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 1 = 0
        < S 0:0(0) win 10000; > S. 0:0(0) ack 1; < P. 1:51(50) ack 1
        +0.1 > . 1:1(0) ack 51";

    // Closing.

    /// shutdown(2), SHUT_WR: what was written is sent, then the FIN; reading goes on.
    half_closed: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1; shutdown 4 wr = 0; > F. 101:101(0) ack 1
        write 4 1 = EPIPE; poll 4 = 4
        < . 1:1(0) ack 102; state 4 FIN-WAIT-2 = 1
        < P. 1:51(50) ack 102; read 4 100 = 50
        +0.04 > . 102:102(0) ack 51
        < F. 51:51(0) ack 102; > . 102:102(0) ack 52
        read 4 10 = 0; poll 4 = 8213; state 4 TIME-WAIT = 1; shutdown 4 wr = ENOTCONN";

    /// SHUT_RD is not seen on the wire; what comes is not waited for.
    deaf: blocking() => "
        begin read 4 100
        shutdown 4 rd = 0
        end = 0
        < P. 1:51(50) ack 1; read 4 100 = 50; read 4 100 = 0
        +0.04 > . 1:1(0) ack 51
        write 4 10 = 10; > P. 1:11(10) ack 51";

    shut_down_both_ways: established() => "
        shutdown 4 rdwr = 0; > F. 1:1(0) ack 1
        read 4 10 = 0; write 4 10 = EPIPE; poll 4 = 8213
        < . 1:1(0) ack 2; state 4 FIN-WAIT-2 = 1";

    the_peer_closes_first: established() => "
        < F. 1:1(0) ack 1; > . 1:1(0) ack 2
        poll 4 = 8197; read 4 10 = 0; state 4 CLOSE-WAIT = 1
        write 4 10 = 10; > P. 1:11(10) ack 2
        close 4 = 0; > F. 11:11(0) ack 2
        < . 2:2(0) ack 12; get sockets = 1; get time_wait = 0";

    /// close(2): what was written is sent all the same.
    closed_with_data_to_send: established() => "
        write 4 2000 = 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        close 4 = 0; > F. 2001:2001(0) ack 1
        get sockets = 2
        +0.1 < . 1:1(0) ack 2002
        +0.1 < F. 1:1(0) ack 2002; > . 2002:2002(0) ack 2
        get sockets = 1; get time_wait = 1; get buffers = 0
        +60; get time_wait = 0";

    /// RFC 9293, section 3.6.1 (MAY-1, SHLD-3), and RFC 2525, section 2.17: a program that closes
    /// without having read all has the connection reset.
    closed_with_data_unread: established() => "
        < P. 1:51(50) ack 1; read 4 10 = 10
        close 4 = 0; > R. 1:1(0) ack 51
        get sockets = 1; get buffers = 0";

    /// And so does data that comes later.
    data_after_close: established() => "
        close 4 = 0; > F. 1:1(0) ack 1; < . 1:1(0) ack 2
        < P. 1:51(50) ack 2; > R 2:2(0)
        get sockets = 1";

    /// tcp(7), TCP_LINGER2: FIN-WAIT-2 without a program ends by itself.
    fin_wait_2_ends: established() => "
        option 4 linger2 5 = 0; get_option 4 linger2 = 5
        close 4 = 0; > F. 1:1(0) ack 1; < . 1:1(0) ack 2
        +4.999; get sockets = 2; +0.002; get sockets = 1";

    /// socket(7), SO_LINGER with 0: the connection is reset.
    closed_at_once: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1
        option 4 linger 1 0 = 0; close 4 = 0; > R. 101:101(0) ack 1
        get sockets = 1; get buffers = 0; get time_wait = 0";

    /// "[...] close(2) or shutdown(2) will not return until all queued messages for the socket have
    /// been successfully sent or the linger timeout has been reached."
    close_waits_until_all_is_acknowledged: established() => "
        write 4 100 = 100; > P. 1:101(100) ack 1
        option 4 linger 1 5 = 0; begin close 4; > F. 101:101(0) ack 1
        waits
        +0.1 < . 1:1(0) ack 101; waits
        < . 1:1(0) ack 102
        end = 0";

    close_does_not_wait_for_ever: established() => "
        option 4 linger 1 1 = 0
        begin close 4; > F. 1:1(0) ack 1
        +0.2 > F. 1:1(0) ack 1
        +0.4 > F. 1:1(0) ack 1
        +0.398; waits; +0.002 end = 0
        get sockets = 2";

    closed_before_it_is_open: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        close 3 = 0; get sockets = 0
        < S. 0:0(0) ack 1; > R 1:1(0)";

    /// Both at once.
    closed_at_the_same_time: established() => "
        close 4 = 0; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 1; > . 2:2(0) ack 2
        < . 2:2(0) ack 2; get time_wait = 1; get sockets = 1";

    // TIME-WAIT.

    /// A port that guards what is over is had again by SO_REUSEADDR only.
    time_wait_keeps_its_port: established() => "
        close 4 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        close 3 = 0; get time_wait = 1
        socket = 3; bind 3 80 = EADDRINUSE
        option 3 reuseaddr 1 = 0; bind 3 80 = 0; listen 3 1 = 0";

    time_wait_gives_its_port_back: established() => "
        set time_wait_us 2000000
        close 4 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        close 3 = 0; +2
        socket = 3; bind 3 80 = 0";

    /// RFC 9293, section 3.6.1 (MAY-2): a new SYN reopens it, behind all that was.
    time_wait_is_reopened: established() => "
        close 4 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        < S 5000:5000(0) win 1000; > S. 3:3(0) ack 5001
        get time_wait = 0
        < . 5001:5001(0) ack 4; accept 3 = 4";

    /// RFC 1337: not by a reset.
    time_wait_is_not_assassinated: established() => "
        close 4 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        < R 2:2(0); get time_wait = 1
        < F. 1:1(0) ack 2; > . 2:2(0) ack 2";

    /// RFC 6191: the same ports are not had again without timestamps.
    connect_does_not_reuse_time_wait: host() => "
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S. 0:0(0) ack 1; > . 1:1(0) ack 1
        close 3 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        socket = 3; nonblock 3 = 0; option 3 reuseaddr 1 = 0; bind 3 80 = 0
        connect 3 5000 = EADDRNOTAVAIL";

    /// With them they are.
    connect_reuses_time_wait: host() => "
        set tcp_timestamps 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        < S. 0:0(0) ack 1 <TS val 1 ecr 1000000>; > . 1:1(0) ack 1
        close 3 = 0; > F. 1:1(0) ack 1; < F. 1:1(0) ack 2 <TS val 2 ecr 1000000>; > . 2:2(0) ack 2
        +1; socket = 3; nonblock 3 = 0; option 3 reuseaddr 1 = 0; bind 3 80 = 0
        connect 3 5000 = EINPROGRESS
        > S 3:3(0) <mss 1460,TS val 1001000 ecr 0>";

    // Silence.

    /// tcp(7), TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT.
    kept_alive: established() => "
        option 4 keepidle 10 = 0; option 4 keepintvl 2 = 0; option 4 keepcnt 2 = 0
        option 4 keepalive 1 = 0
        +10 > . 0:0(0) ack 1; < . 1:1(0) ack 1
        +10 > . 0:0(0) ack 1
        +2 > . 0:0(0) ack 1
        +2 > R. 1:1(0) ack 1
        poll 4 = 8221; read 4 10 = ETIMEDOUT; read 4 10 = 0";

    /// RFC 5482, section 4.2.
    a_user_timeout_ends_keep_alive: established() => "
        option 4 keepidle 10 = 0; option 4 keepintvl 2 = 0; option 4 keepcnt 100 = 0
        option 4 user_timeout 13000 = 0; option 4 keepalive 1 = 0
        +10 > . 0:0(0) ack 1
        +2 > . 0:0(0) ack 1
        +2 > R. 1:1(0) ack 1
        get_option 4 error = 110         // ETIMEDOUT";

    /// tcp(7), TCP_USER_TIMEOUT: "the maximum amount of time in milliseconds that transmitted data
    /// may remain unacknowledged [...] before TCP will forcibly close the corresponding connection
    /// and return ETIMEDOUT".
    a_user_timeout_is_exact: established() => "
        option 4 user_timeout 1000 = 0; get_option 4 user_timeout = 1000
        write 4 100 = 100; > P. 1:101(100) ack 1
        +0.2 > P. 1:101(100) ack 1
        +0.4 > P. 1:101(100) ack 1
        +0.399; poll 4 = 4
        +0.001; write 4 1 = ETIMEDOUT; write 4 1 = EPIPE";

    retransmissions_are_counted: established() => "
        set tcp_retries2 2
        close 3 = 0; socket = 3; nonblock 3 = 0; bind 3 81 = 0; listen 3 1 = 0
        local 81; < S 0:0(0) win 1000; > S. 0:0(0) ack 1; < . 1:1(0) ack 1 win 1000
        accept 3 = 5; nonblock 5 = 0
        write 5 100 = 100; > P. 1:101(100) ack 1
        +0.2 > P. 1:101(100) ack 1
        +0.4 > P. 1:101(100) ack 1
        +0.801; read 5 1 = ETIMEDOUT";

    /// RFC 1191: what is too big is sent again in smaller segments.
    a_smaller_path: host() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0) <mss 1460>
        < S. 0:0(0) ack 1 win 10000 <mss 1460>; > . 1:1(0) ack 1
        write 3 1460 = 1460; > P. 1:1461(1460) ack 1
        icmp too_big 1000 seq 1
        > . 1:961(960) ack 1; > P. 961:1461(500) ack 1";

    a_smaller_path_over_ipv6: host_v6() => "
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0) <mss 1440>
        < S. 0:0(0) ack 1 win 10000 <mss 1440>; > . 1:1(0) ack 1
        write 3 1440 = 1440; > P. 1:1441(1440) ack 1
        icmp too_big 1300 seq 1
        > . 1:1241(1240) ack 1; > P. 1241:1441(200) ack 1";

    a_smaller_link: host() => "
        set mtu 1000
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0) <mss 960>";

    /// RFC 9293, section 3.10.7.1.
    nobody_is_there: host() => "
        < S 0:0(0) win 1000; > R. 0:0(0) ack 1
        < . 1:1(0) ack 77; > R 77:77(0)
        < R 1:1(0)";

    options_of_tcp_are_offered: host() => "
        set tcp_sack 1; set tcp_timestamps 1; set tcp_window_scaling 1
        set receive_buffer 65535; set receive_buffer_max 6291456
        socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS
        > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1000000 ecr 0,wscale 7>";

    /// RFC 3168, section 6.1.1, and `tcp_ecn` of 1: asked for; of 2: only taken; of 0: neither.
    congestion_notification: host() => "
        set tcp_ecn 1; socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > SEW 0:0(0)
        close 3 = 0
        set tcp_ecn 2; socket = 3; nonblock 3 = 0; connect 3 5000 = EINPROGRESS; > S 0:0(0)
        close 3 = 0
        socket = 3; bind 3 80 = 0; listen 3 1 = 0; local 80
        peer 6000; < SEW 0:0(0) win 1000; > SE. 0:0(0) ack 1
        close 3 = 0; set tcp_ecn 0; socket = 3; bind 3 80 = 0; listen 3 1 = 0
        peer 6001; < SEW 0:0(0) win 1000; > S. 0:0(0) ack 1";

    what_is_not_there: established() => "
        option 4 nodelayed 1 = ENOPROTOOPT; get_option 4 nodelayed = ENOPROTOOPT";

    // Many at once.

    poll_waits: blocking() => "
        begin wait_in 4 2000
        +1; waits
        < P. 1:51(50) ack 1
        end = 1
        +0.04 > . 1:1(0) ack 51";

    poll_waits_in_vain: blocking() => "
        begin wait_in 4 2000; +1.999; waits; +0.001 end = 0
        wait_in 4 0 = 0";

    epoll_tells_as_long_as_it_is_so: established() => "
        epoll_create = 5; epoll_add 5 4 in = 0; epoll_add 5 4 in = EEXIST
        epoll_wait 5 0 = 0
        < P. 1:51(50) ack 1
        epoll_wait 5 0 = 1; epoll_wait 5 0 = 1; poll 5 = 1
        read 4 50 = 50; epoll_wait 5 0 = 0
        epoll_del 5 4 = 0; epoll_del 5 4 = ENOENT; epoll_mod 5 4 in = ENOENT
        +0.04 > . 1:1(0) ack 51";

    /// epoll(7): edges are told once each.
    epoll_tells_edges: established() => "
        epoll_create = 5; epoll_add 5 4 in edge = 0
        < P. 1:51(50) ack 1
        epoll_wait 5 0 = 1; epoll_wait 5 0 = 0
        < P. 51:101(50) ack 1
        epoll_wait 5 0 = 1; epoll_wait 5 0 = 0
        read 4 100 = 100
        +0.04 > . 1:1(0) ack 101";

    /// Also those of what another one waits for.
    epoll_tells_edges_of_another: established() => "
        epoll_create = 5; epoll_add 5 4 in = 0
        epoll_create = 6; epoll_add 6 5 in edge = 0
        < P. 1:51(50) ack 1
        epoll_wait 6 0 = 1; epoll_wait 6 0 = 0; epoll_wait 5 0 = 1
        < P. 51:101(50) ack 1
        epoll_wait 6 0 = 1; epoll_wait 6 0 = 0
        epoll_mod 5 4 in = 0; epoll_wait 6 0 = 1; epoll_wait 6 0 = 0
        read 4 100 = 100; epoll_wait 6 0 = 0
        +0.04 > . 1:1(0) ack 101";

    epoll_tells_once: established() => "
        epoll_create = 5; epoll_add 5 4 in once = 0
        < P. 1:51(50) ack 1
        epoll_wait 5 0 = 1; epoll_wait 5 0 = 0
        epoll_mod 5 4 in once = 0; epoll_wait 5 0 = 1
        read 4 100 = 50
        +0.04 > . 1:1(0) ack 51";

    epoll_waits: listening() => "
        epoll_create = 4; epoll_add 4 3 in = 0
        begin epoll_wait 4 -1
        < S 0:0(0) win 1000; > S. 0:0(0) ack 1; waits
        < . 1:1(0) ack 1
        end = 1";

    epoll_tells_of_a_reset: established() => "
        epoll_create = 5; epoll_add 5 4 in out = 0
        epoll_wait 5 0 = 4
        < R. 1:1(0) ack 1
        epoll_wait 5 0 = 29              // EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP
        close 4 = 0; epoll_wait 5 0 = 0; epoll_wait 3 0 = EINVAL";
}
