//! What sockets tell beside their bytes, as Linux has it: MSG_ZEROCOPY, SO_TIMESTAMPING, TCP_INQ,
//! and the times and counts of TCP_INFO.

use crate::script::{Script, blocking, cases, established, host};
use lab::{Control, Errno, Message};

const SO_TIMESTAMPING: i32 = 37;
const TCP_INQ: i32 = 36;
const MS: u64 = 1_000_000;

/// A connection, descriptor 4, with an option of it.
fn with_option(level: i32, name: i32, value: i32) -> Script {
    let script = established();
    script.host.setsockopt(4, level, name, &value.to_ne_bytes()).unwrap();
    script
}

fn told(script: &Script) -> Result<Message, Errno> {
    script.host.recv_message(4, &mut [], libc::MSG_ERRQUEUE)
}

/// Words of a `struct sock_extended_err`: `ee_errno`, the next four bytes, `ee_info`, `ee_data`.
fn words(control: &Control) -> [u32; 4] {
    assert_eq!((control.level, control.kind), (libc::IPPROTO_IP, libc::IP_RECVERR));
    assert_eq!(control.data.len(), 16 + size_of::<libc::sockaddr_in>());
    [0, 4, 8, 12].map(|at| u32::from_ne_bytes(control.data[at..at + 4].try_into().unwrap()))
}

/// The numbers of sends that are over, first and last: SO_EE_ORIGIN_ZEROCOPY, and
/// SO_EE_CODE_ZEROCOPY_COPIED.
fn sends_over(script: &Script) -> (u32, u32) {
    let message = told(script).unwrap();
    assert_eq!((message.length, message.flags), (0, libc::MSG_ERRQUEUE));
    let [errno, kind, first, last] = words(&message.control[0]);
    assert_eq!((errno, kind.to_ne_bytes()), (0, [5, 0, 1, 0]));
    (first, last)
}

fn send_without_copying(script: &Script, bytes: usize) {
    let sent = script.host.send(4, &vec![0; bytes], libc::MSG_ZEROCOPY);
    assert_eq!(sent, Ok(bytes));
}

/// Each send with MSG_ZEROCOPY has a number; those that are acknowledged are told together.
#[test]
fn zero_copy() {
    let script = with_option(libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
    let script = script.play("option 4 nodelay 1 = 0");
    assert_eq!(told(&script), Err(Errno::EAGAIN));
    (0..3).for_each(|_| send_without_copying(&script, 10));
    let events = |script: &Script| {
        let mut polled = [lab::Polled { fd: 4, events: 0, revents: 0 }];
        script.host.poll(&mut polled, 0).unwrap();
        polled[0].revents
    };
    let mut place = [0; 2000];
    while script.host.take_packet(&mut place).unwrap().is_some() {}
    assert_eq!(events(&script), 0);
    let script = script.play("< . 1:1(0) ack 21 win 10000");
    assert_eq!(events(&script), libc::POLLERR);
    assert_eq!(sends_over(&script), (0, 1));
    assert_eq!(told(&script), Err(Errno::EAGAIN));
    let script = script.play("< R 1:1(0)");
    assert_eq!(sends_over(&script), (2, 2));
}

/// Who has not asked for it with SO_ZEROCOPY is told nothing.
#[test]
fn zero_copy_that_was_not_asked_for() {
    let script = established();
    send_without_copying(&script, 10);
    let mut place = [0; 2000];
    script.host.take_packet(&mut place).unwrap().unwrap();
    let script = script.play("< . 1:1(0) ack 11 win 10000");
    assert_eq!(told(&script), Err(Errno::EAGAIN));
}

/// SOF_TIMESTAMPING_TX_SOFTWARE, SOFTWARE, OPT_ID, TX_SCHED and TX_ACK: of the last byte of each
/// write.
#[test]
fn times_of_bytes() {
    let script = with_option(libc::SOL_SOCKET, SO_TIMESTAMPING, 2 | 16 | 128 | 256 | 512);
    let begin = script.host.now_ns();
    let script = script.play(
        "write 4 2000 = 2000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
         +0.01 < . 1:1(0) ack 2001 win 10000",
    );
    // SCM_TSTAMP_SCHED, SCM_TSTAMP_SND, SCM_TSTAMP_ACK.
    for (stage, ns) in [(1, 0), (0, 0), (2, 10 * MS)] {
        let message = told(&script).unwrap();
        assert_eq!(message.flags, libc::MSG_ERRQUEUE | libc::MSG_TRUNC);
        let [time, what] = &message.control[..] else { panic!("a time, and what it is of") };
        assert_eq!((time.level, time.kind), (libc::SOL_SOCKET, SO_TIMESTAMPING));
        let word = |at: usize| u64::from_ne_bytes(time.data[at..at + 8].try_into().unwrap());
        assert_eq!(word(0) * 1_000_000_000 + word(8), begin + ns);
        let [errno, kind, info, data] = words(what);
        assert_eq!((errno, kind.to_ne_bytes()), (libc::ENOMSG as u32, [4, 0, 0, 0]));
        assert_eq!((info, data), (stage, 1999));
    }
    assert_eq!(told(&script), Err(Errno::EAGAIN));
}

/// The stages of bytes, and which these are: see `times_of_bytes`.
fn stages(script: &Script) -> Vec<(u32, u32)> {
    let stage = |message: Message| {
        let [_, _, info, data] = words(&message.control[1]);
        (info, data)
    };
    std::iter::from_fn(|| told(script).ok()).map(stage).collect()
}

/// A write that waits for room is taken in pieces: what is told is told of its last byte, or of the
/// last that was taken.
#[test]
fn times_of_a_write_that_waits_for_room() {
    let script = || {
        let script = blocking().play("option 4 sndbuf 2000 = 0; timeout 4 snd 100 = 0");
        let value: i32 = 2 | 16 | 128 | 256 | 512;
        let host = &script.host;
        host.setsockopt(4, libc::SOL_SOCKET, SO_TIMESTAMPING, &value.to_ne_bytes()).unwrap();
        script.play("begin write 4 3000; > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1")
    };
    let whole = script().play(
        "+0.05 < . 1:1(0) ack 2001 win 10000; > P. 2001:3001(1000) ack 1
         end = 3000",
    );
    assert_eq!(stages(&whole), [(1, 2999), (0, 2999)]);
    let whole = whole.play("+0.05 < . 1:1(0) ack 3001 win 10000");
    assert_eq!(stages(&whole), [(2, 2999)]);
    let part = script().play("+0.1 end = 2000");
    assert_eq!(stages(&part), [(1, 1999), (0, 1999)]);
    let part = part.play("< . 1:1(0) ack 2001 win 10000");
    assert_eq!(stages(&part), [(2, 1999)]);
}

/// Linux: how many bytes there are after those that were read; the end counts as one.
#[test]
fn what_is_left_to_read() {
    let script = with_option(libc::IPPROTO_TCP, TCP_INQ, 1).play(
        "< . 1:101(100) ack 1 win 10000; < F. 101:101(0) ack 1 win 10000; > . 1:1(0) ack 102",
    );
    for (bytes, left) in [(60, 40_i32), (40, 1)] {
        let message = script.host.recv_message(4, &mut [0; 60], 0).unwrap();
        assert_eq!((message.length, message.flags), (bytes, 0));
        let data = left.to_ne_bytes().to_vec();
        let inq = Control { level: libc::IPPROTO_TCP, kind: TCP_INQ, data };
        assert_eq!(message.control, [inq]);
    }
}

cases! {
    /// Times since something has come or left, in ms.
    times_since: established() => "
        +1 tcp_info 4 last_data_recv = 1000; < . 1:11(10) ack 1; +0.04 > . 1:1(0) ack 11
        +0.5 tcp_info 4 last_data_recv = 540; write 4 10 = 10; > P. 1:11(10) ack 11
        +0.1 tcp_info 4 last_data_sent = 100; < . 11:11(0) ack 11
        tcp_info 4 last_ack_recv = 0; tcp_info 4 last_data_recv = 640
        tcp_info 4 data_segs_in = 1; tcp_info 4 data_segs_out = 1; tcp_info 4 bytes_sent = 10";

    /// How long there was something to send, and the peer had no room for it, in us.
    held_by_the_peer: established() => "
        < . 1:1(0) ack 1 win 0; tcp_info 4 rwnd_limited = 0; write 4 100 = 100
        +0.1 tcp_info 4 rwnd_limited = 100000; tcp_info 4 busy_time = 100000
        < . 1:1(0) ack 1 win 10000; > P. 1:101(100) ack 1
        +0.05 tcp_info 4 rwnd_limited = 100000; tcp_info 4 busy_time = 150000
        < . 1:1(0) ack 101 win 10000; +1 tcp_info 4 busy_time = 150000";

    /// The same of a writer whom its own buffer has no room for.
    held_by_the_buffer: blocking() => "
        option 4 sndbuf 2000 = 0; begin write 4 3000
        > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        +0.1 tcp_info 4 sndbuf_limited = 100000; < . 1:1(0) ack 2001 win 10000
        > P. 2001:3001(1000) ack 1; end = 3000; +0.05 tcp_info 4 sndbuf_limited = 100000
        tcp_info 4 rwnd_limited = 0; tcp_info 4 busy_time = 150000; < . 1:1(0) ack 3001 win 10000";

    /// Linux, `tcp_reordering`: 3 segments, or what has been seen.
    reordering: host() => "
        set tcp_sack 1; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 65535 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 65535; accept 3 = 4; nonblock 4 = 0; write 4 10000 = 10000
        > *; > *; > *; > *; > *; > *; > *; > *; > *; > P. 9001:10001(1000) ack 1
        tcp_info 4 reordering = 3
        +0.1 < . 1:1(0) ack 1 win 65535 <sack 8001:9001>; tcp_info 4 reordering = 3
        < . 1:1(0) ack 1 win 65535 <sack 3001:4001 8001:9001>; tcp_info 4 reordering = 6";

    /// What Linux calls TCP_CA_Open, TCP_CA_Disorder and TCP_CA_Recovery, which is over when what
    /// was sent again has come twice (RFC 3708).
    states_of_recovery: host() => "
        set tcp_sack 1; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 65535 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 65535; accept 3 = 4; nonblock 4 = 0; write 4 5000 = 5000
        > *; > *; > *; > *; > *; tcp_info 4 ca_state = 0
        +0.1 < . 1:1(0) ack 1 win 65535 <sack 1001:2001>; tcp_info 4 ca_state = 1
        < . 1:1(0) ack 1 win 65535 <sack 1001:4001>; > . 1:1001(1000) ack 1
        tcp_info 4 ca_state = 3
        +0.05 < . 1:1(0) ack 4001 win 65535 <sack 1:1001>; tcp_info 4 ca_state = 0";

    /// Segments that have arrived, in order or not, the SYN and the FIN among them.
    delivered: host() => "
        set tcp_sack 1; socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 65535 <mss 1000,sackOK>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 65535; accept 3 = 4; nonblock 4 = 0; tcp_info 4 delivered = 1
        write 4 3500 = 3500; > *; > *; > *; > *; tcp_info 4 delivered = 1
        +0.1 < . 1:1(0) ack 1001 win 65535 <sack 2001:3001>; tcp_info 4 delivered = 3
        < . 1:1(0) ack 3501 win 65535; tcp_info 4 delivered = 5
        shutdown 4 wr = 0; > F. 3501:3501(0) ack 1; < . 1:1(0) ack 3502 win 65535
        tcp_info 4 delivered = 6";

    /// MSG_MORE is of the moment: what it has held back leaves when something comes.
    more_until_something_comes: established() => "
        option 4 nodelay 1 = 0; send 4 1050 more = 1050; > . 1:1001(1000) ack 1
        +0.01 < . 1:1(0) ack 1001 win 10000; > P. 1001:1051(50) ack 1";

    /// Linux, `tcp_xmit_probe_skb`: "use a previous sequence".
    empty_probes: host() => "
        set empty_window_probes 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 0; accept 3 = 4; nonblock 4 = 0; write 4 100 = 100
        +0.2 > . 0:0(0) ack 1; +0.4 > . 0:0(0) ack 1; < . 1:1(0) ack 1 win 0
        +0.8 > . 0:0(0) ack 1; +0.1 < . 1:1(0) ack 1 win 10000; > P. 1:101(100) ack 1";

    /// Linux, `tcp_ack_probe`: the interval to the next begins with the answer.
    answered_empty_probes: host() => "
        set empty_window_probes 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 0; accept 3 = 4; nonblock 4 = 0; write 4 100 = 100
        +0.2 > . 0:0(0) ack 1; +0.1 < . 1:1(0) ack 1 win 0
        +0.4 > . 0:0(0) ack 1; +0.1 < . 1:1(0) ack 1 win 0
        +0.8 > . 0:0(0) ack 1; +0.1 < . 1:1(0) ack 1 win 10000; > P. 1:101(100) ack 1";

    /// Linux, `tcp_mtu_probing`: by default a path is not suspected of having become narrower.
    timeouts_of_a_full_segment: established() => "
        write 4 1000 = 1000; > P. 1:1001(1000) ack 1
        +0.2 > P. 1:1001(1000) ack 1; +0.4 > P. 1:1001(1000) ack 1
        +0.8 > P. 1:1001(1000) ack 1; +1.6 > P. 1:1001(1000) ack 1";

    /// The same as it is if it is set: RFC 8899, section 4.3.
    timeouts_of_a_segment_that_is_too_long: host() => "
        set tcp_mtu_probing 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 10000; accept 3 = 4; nonblock 4 = 0
        write 4 1000 = 1000; > P. 1:1001(1000) ack 1
        +0.2 > P. 1:1001(1000) ack 1; +0.4 > P. 1:1001(1000) ack 1
        +0.8 > . 1:513(512) ack 1";

    /// tcp(7), TCP_USER_TIMEOUT: "or buffered data may remain untransmitted (due to zero window
    /// size)", from the first probe on, whether it is answered or not.
    empty_probes_and_a_user_timeout: host() => "
        set empty_window_probes 1
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 0; accept 3 = 4; nonblock 4 = 0
        option 4 user_timeout 1000 = 0; write 4 100 = 100
        +0.2 > . 0:0(0) ack 1; +0.4 > . 0:0(0) ack 1; < . 1:1(0) ack 1 win 0
        +0.599; poll 4 = 4
        +0.002; write 4 1 = ETIMEDOUT; < . 1:1(0) ack 1 win 0; > R 1:1(0) win 0";
}
