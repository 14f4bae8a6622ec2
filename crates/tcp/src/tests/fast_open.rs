//! RFC 7413: what its sections 4 and 5 say, as it is here. Cookies are given out by the stack's key
//! for `right`.

use clearway_base::{SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::tcp::{self, Flags, Options, Repr};

use super::saved::restore;
use super::script::begin::*;
use super::script::{Script, cases};
use super::world::Host;
use crate::*;

/// One that connects and has the cookie 01020304 of its peer, whose segments have 1000 bytes.
fn with_cookie() -> Script {
    closed().play(
        "set fast_open; connect
         > S 0:0(0) <mss 1460,FO>
         +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000,FO 01020304>
         > . 1:1(0) ack 1
         abort; > R. 1:1(0) ack 1",
    )
}

/// A listener that takes up to two connections early.
fn listening_early() -> Script {
    closed().play("set pending=2; listen")
}

/// One whose peer has shown its cookie, with 10 bytes.
fn early() -> Script {
    listening_early().play(
        "< S 0:10(10) win 10000 <mss 1000,FO right>
         > S. 0:0(0) ack 11 <mss 1460>
         accept; state SYN-RECV",
    )
}

cases! {
    /// RFC 7413, section 4.2.1: a client asks for a cookie with an empty option, and has it for the
    /// next connection.
    a_client_asks_for_a_cookie: with_cookie() => "
        connect
        > S 0:0(0) <mss 1460,FO 01020304>
        +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1; syn_data false";

    /// Section 4.2.2: the SYN has the cookie and data; the SYN-ACK acknowledges both, and nothing
    /// is sent again.
    data_goes_with_the_syn: with_cookie() => "
        connect 100
        > S 0:100(100) <mss 1460,FO 01020304>
        +0.02 < S. 0:0(0) ack 101 win 10000 <mss 1000>
        > . 101:101(0) ack 1; state ESTAB; syn_data true; rtt_ms 20
        send 10; > P. 101:111(10) ack 1";

    /// What does not fit follows with the acknowledgement of the SYN-ACK: a SYN has room for a
    /// segment as the peer has said it, without 40 bytes for options.
    what_does_not_fit_into_the_syn_follows: with_cookie() => "
        connect 1500
        > S 0:960(960) <mss 1460,FO 01020304>
        +0.01 < S. 0:0(0) ack 961 win 10000 <mss 1000>
        > P. 961:1501(540) ack 1";

    /// Section 4.2.2: "ack 1" says that the data was not taken: it is sent at once as usual, and
    /// its congestion window is that of others.
    data_that_is_not_acknowledged_is_sent_again: with_cookie() => "
        connect 100
        > S 0:100(100) <mss 1460,FO 01020304>
        +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000,FO 0a0b0c0d>
        > P. 1:101(100) ack 1; syn_data false; recovery open
        +0.01 < . 1:1(0) ack 101 win 10000
        abort; > R. 101:101(0) ack 1
        connect 10; > S 0:10(10) <mss 1460,FO 0a0b0c0d>";

    /// A part is acknowledged: the rest is sent.
    a_part_of_the_data_is_acknowledged: with_cookie() => "
        connect 100
        > S 0:100(100)
        +0.01 < S. 0:0(0) ack 31 win 10000 <mss 1000>
        > P. 31:101(70) ack 1; syn_data false";

    /// RFC 9293, section 3.10.7.3: more than was sent is answered by a reset; the attempt goes on.
    more_than_was_sent_is_acknowledged: with_cookie() => "
        connect 100
        > S 0:100(100)
        < S. 0:0(0) ack 102 win 10000 <mss 1000,FO 0a0b0c0d>
        > R 102:102(0); state SYN-SENT
        < S. 0:0(0) ack 101 win 10000 <mss 1000>
        > . 101:101(0) ack 1; state ESTAB
        abort; > R. 101:101(0) ack 1
        connect 10; > S 0:10(10) <mss 1460,FO 01020304>";

    /// Section 4.2.1: a SYN that is lost is sent again without data and without the option, in case
    /// that it was lost because of them.
    a_lost_syn_is_sent_again_without_data: with_cookie() => "
        connect 100
        > S 0:100(100) <mss 1460,FO 01020304>
        +1 > S 0:0(0) <mss 1460>
        +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > P. 1:101(100) ack 1; syn_data false";

    /// It was not lost: the answer to the first one comes late, and acknowledges all.
    a_late_answer_acknowledges_the_data: with_cookie() => "
        connect 100
        > S 0:100(100)
        +1 > S 0:0(0)
        +0.01 < S. 0:0(0) ack 101 win 10000 <mss 1000>
        > . 101:101(0) ack 1; syn_data true";

    /// RFC 1191: a router says that the SYN with its data is too long. It leaves without at once.
    a_syn_that_is_too_long: with_cookie() => "
        connect 900
        > S 0:900(900)
        icmp too_big 700 seq 0
        > S 0:0(0) <mss 1460>
        +0.01 < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:661(660) ack 1; > P. 661:901(240) ack 1";

    /// A SYN without data is short enough for every path; it is sent again in time all the same.
    a_syn_without_data_is_not_too_long: closed() => "
        connect; > S 0:0(0)
        icmp too_big 700 seq 0
        +1 > S 0:0(0)";

    /// Data and the end of the stream may come with the SYN-ACK, too.
    the_syn_ack_has_data: with_cookie() => "
        connect 100
        > S 0:100(100)
        +0.01 < SF. 0:50(50) ack 101 win 10000 <mss 1000>
        > . 101:101(0) ack 52; state CLOSE-WAIT; unread 50";

    /// Both connect at the same time: data of both is taken when the handshake is over.
    both_connect_with_data: with_cookie() => "
        connect 100
        > S 0:100(100)
        < S 0:50(50) win 10000 <mss 1000,FO 01020304>
        > S. 0:0(0) ack 1 <mss 1460>; state SYN-RECV
        +0.01 < S. 0:0(0) ack 101 win 10000 <mss 1000>
        state ESTAB; recv 50
        +0.04 > . 101:101(0) ack 51";

    /// A reset of the SYN refuses the connection, as usual.
    a_syn_with_data_is_refused: with_cookie() => "
        connect 100
        > S 0:100(100)
        < R. 0:0(0) ack 1 win 0
        state CLOSED; end Refused";

    /// Without cookies there is no option, and there may be data at once.
    data_without_a_cookie: closed() => "
        set fast_open; set without_cookies; connect 100
        > S 0:100(100) <mss 1460>
        < S. 0:0(0) ack 101 win 10000 <mss 1000,FO 01020304>
        > . 101:101(0) ack 1
        abort; > R. 101:101(0) ack 1
        unset without_cookies; connect; > S 0:0(0) <mss 1460,FO>";

    /// Nobody who has not asked for it sends the option, or data, though a cookie is known.
    fast_open_is_off_unless_asked_for: with_cookie() => "
        unset fast_open; connect 100
        > S 0:0(0) <mss 1460>
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > P. 1:101(100) ack 1";

    /// Section 4.1.2: a listener gives a cookie to who asks for one, and takes no data from it.
    a_listener_gives_a_cookie: listening_early() => "
        < S 0:10(10) win 10000 <mss 1000,FO>
        > S. 0:0(0) ack 1 <mss 1460,FO right>
        < P. 1:11(10) ack 1 win 10000
        accept; state ESTAB; recv 10; syn_data false
        +0.04 > . 1:1(0) ack 11";

    /// Section 4.2.2: with a cookie that is right data is the app's at once, and what the app
    /// answers leaves before the handshake is over.
    data_is_taken_and_answered_before_the_handshake_is_over: early() => "
        recv 10; syn_data true
        send 1500; > . 1:1001(1000) ack 11; > P. 1001:1501(500) ack 11
        +0.02 < . 11:11(0) ack 1501 win 10000
        state ESTAB; in_flight 0
        < P. 11:21(10) ack 1501 win 10000; recv 10
        +0.04 > . 1501:1501(0) ack 21";

    /// The same when the peer acknowledges only the SYN-ACK at first.
    the_syn_ack_is_acknowledged_before_the_answer: early() => "
        recv 10; send 100; > P. 1:101(100) ack 11
        +0.01 < . 11:11(0) ack 1 win 10000; state ESTAB; in_flight 100
        +0.01 < . 11:11(0) ack 101 win 10000; in_flight 0";

    /// The SYN-ACK was lost: it is sent again, and nothing else (section 5.2: nobody is sent more
    /// than an initial window who has not answered). What was sent is as lost as any.
    only_the_syn_ack_is_sent_again: early() => "
        recv 10; send 100; > P. 1:101(100) ack 11
        +1 > S. 0:0(0) ack 11 <mss 1460>
        +2 > S. 0:0(0) ack 11 <mss 1460>
        < . 11:11(0) ack 1 win 10000; state ESTAB
        +3 > P. 1:101(100) ack 11";

    /// No more than the initial window, and the peer's.
    an_early_answer_has_an_initial_window_at_most: early() => "
        recv 10; send 20000
        > . 1:1001(1000) ack 11; > . 1001:2001(1000) ack 11; > . 2001:3001(1000) ack 11
        > . 3001:4001(1000) ack 11; > . 4001:5001(1000) ack 11; > . 5001:6001(1000) ack 11
        > . 6001:7001(1000) ack 11; > . 7001:8001(1000) ack 11; > . 8001:9001(1000) ack 11
        > . 9001:10001(1000) ack 11";

    /// The peer sends its SYN again, in vain: it gets the SYN-ACK, and no data twice.
    a_syn_with_data_comes_again: early() => "
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 11; unread 10";

    /// A SYN with another number is challenged (RFC 5961, section 4.2).
    another_syn_is_challenged: early() => "
        < S 5000:5010(10) win 10000 <mss 1000,FO right>
        > . 1:1(0) ack 11; state SYN-RECV";

    /// The app closes before the handshake is over.
    an_app_closes_early: early() => "
        recv 10; send 10; > P. 1:11(10) ack 11; shutdown; > F. 11:11(0) ack 11
        +0.01 < . 11:11(0) ack 12 win 10000; state FIN-WAIT-2";

    /// RFC 9293, section 3.6.1: with something unread it is a reset.
    an_app_closes_early_with_something_unread: early() => "close; > R. 1:1(0) ack 11";

    /// A reset before the handshake is over is told after what has come.
    reset_early: early() => "
        < R. 11:11(0) ack 1 win 10000
        state CLOSED; end Reset; recv 10";

    /// The same before the app has it: it is still there to be accepted.
    reset_before_it_is_accepted: listening_early() => "
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        < R 11:11(0) win 10000
        accept; state CLOSED; end Reset; recv 10";

    /// An ICMP error before the app has it, of something that was sent.
    an_error_before_it_is_accepted: listening_early() => "
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        icmp prohibited seq 5000
        icmp prohibited seq 0
        accept; state CLOSED; end Unreachable; recv 10
        < . 11:11(0) ack 1 win 10000; > R 1:1(0)";

    /// A listener that ends resets what has not been accepted.
    a_listener_ends: listening_early() => "
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        unlisten; > R. 1:1(0) ack 11";

    /// The FIN of a SYN that has one counts when it comes again.
    a_syn_with_data_and_fin: listening_early() => "
        < SF 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        accept; state SYN-RECV
        < F. 11:11(0) ack 1 win 10000
        > . 1:1(0) ack 12; state CLOSE-WAIT; recv 10";

    /// A cookie without data: the connection is early all the same, and the app may speak first.
    a_cookie_without_data: listening_early() => "
        < S 0:0(0) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 1
        accept; syn_data false; send 100; > P. 1:101(100) ack 1
        < P. 1:11(10) ack 101 win 10000; state ESTAB; recv 10
        +0.04 > . 101:101(0) ack 11";

    /// Section 4.1.2: a cookie that is wrong is answered with the right one, and data is not taken.
    a_wrong_cookie: listening_early() => "
        < S 0:10(10) win 10000 <mss 1000,FO 0102030405060708>
        > S. 0:0(0) ack 1 <mss 1460,FO right>
        half_open 1; < P. 1:11(10) ack 1 win 10000; accept; state ESTAB
        +0.04 > . 1:1(0) ack 11";

    /// A listener that has not asked for it says nothing of it and takes no data.
    a_listener_without_fast_open: listening() => "
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 1 <mss 1460>
        half_open 1";

    /// Nor does the option of drafts mean anything, unless it is wanted.
    the_option_of_drafts_is_ignored: listening_early() => "
        < S 0:10(10) win 10000 <mss 1000,FOEXP right>
        > S. 0:0(0) ack 1 <mss 1460>";

    /// Section 5.1: there is a limit of connections whose handshake is not over; others are opened
    /// as usual.
    early_connections_are_limited: closed() => "
        set pending=1; listen
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        peer 5001; < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 1 <mss 1460>
        peer 5000; < . 11:11(0) ack 1 win 10000
        peer 5002; < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11 <mss 1460>";

    /// Section 5.1: one that was reset counts for a minute, as if it were still there: whoever
    /// sends SYNs for others can reset them, too.
    one_that_was_reset_counts: closed() => "
        set pending=1; listen
        < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11
        < R 11:11(0) win 10000; accept; recv 10
        peer 5001; < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 1 <mss 1460>
        < R 1:1(0); half_open 0
        +60
        peer 5002; < S 0:10(10) win 10000 <mss 1000,FO right>
        > S. 0:0(0) ack 11 <mss 1460>";

    /// A handshake that never ends is given up as others are, and told.
    a_handshake_that_never_ends: early() => "
        +1 > S. 0:0(0) ack 11; +2 > S. 0:0(0) ack 11; +4 > S. 0:0(0) ack 11
        +8 > S. 0:0(0) ack 11; +16 > S. 0:0(0) ack 11
        +32; state CLOSED; end TimedOut; recv 10";
}

/// What comes to port 80 from a peer, with `option`.
fn segment(option: Option<tcp::FastOpen>, port: u16, flags: Flags, numbers: (u32, u32)) -> Arrival {
    let repr = Repr {
        source_port: port,
        destination_port: 80,
        sequence: numbers.0,
        acknowledgement: numbers.1,
        flags,
        window: 1000,
        urgent: 0,
        options: Options {
            maximum_segment_size: Some(1000),
            extra: option.map(tcp::Extra::FastOpen).unwrap_or_default(),
            ..Options::default()
        },
    };
    let (from, to) = (([10, 0, 0, 2], port).into(), ([10, 0, 0, 1], 80).into());
    Arrival { from, to, repr, payload_length: 10, ecn: Ecn::NotCapable }
}

/// A host that takes `pending` connections early, and the cookie that it gives to the peer.
fn server(pending: u16, now: Time) -> (Host, Option<tcp::FastOpen>) {
    let mut host = Host::new(Config::default(), ([10, 0, 0, 1], 80).into(), now);
    let fast_open = FastOpen { pending_max: pending, ..FastOpen::default() };
    let settings = Settings { fast_open, ..Settings::default() };
    host.stack.listen(None, 80, 1000, 1500, settings).expect("free");
    host.store.set_payload(&[1; 10]);
    let request = segment(Some(tcp::FastOpen::default()), 1, Flags::SYN, (7, 0));
    host.stack.handle_segment(now, &request, &mut host.store);
    let answer = host.stack.poll_transmit(now, 1).expect("a SYN-ACK");
    (host, answer.repr.options.fast_open())
}

/// RFC 7413, section 5.1: one peer with a right cookie, and a thousand SYNs with data, has no more
/// than the limit; nothing is sent to it but a SYN-ACK each, and all memory comes back.
#[test]
fn a_flood_with_a_right_cookie_is_bounded() {
    let now = Time::from_ns(1000 * SECOND);
    let (mut host, cookie) = server(20, now);
    for port in 1000..1600 {
        let syn = segment(cookie, port, Flags::SYN, (7, 0));
        host.stack.handle_segment(now, &syn, &mut host.store);
        let answer = host.stack.poll_transmit(now, 1).expect("a SYN-ACK");
        assert_eq!(answer.repr.flags, Flags::SYN | Flags::ACK);
        assert!(host.stack.poll_transmit(now, 1).is_none(), "one each");
    }
    let counters = *host.stack.counters();
    assert_eq!((counters.fast_opens_accepted, counters.fast_opens_limited), (20, 580));
    assert_eq!(host.stack.connections().count(), 20);
    let listener = host.stack.listeners_on(None, 80).next().expect("it listens");
    host.stack.unlisten(now, listener, &mut host.store);
    while host.stack.poll_transmit(now, 1).is_some() {}
    while host.stack.poll_event().is_some() {}
    assert!(host.store.is_empty() && host.stack.is_empty());
}

/// RFC 7413's abstract: "the data in the SYN could be replayed to an application in some rare
/// circumstances". A SYN that comes again when its connection is over is another connection.
#[test]
fn a_syn_that_is_replayed_later_brings_its_data_again() {
    let now = Time::from_ns(1000 * SECOND);
    let (mut host, cookie) = server(20, now);
    let listener = host.stack.listeners_on(None, 80).next().expect("it listens");
    for _ in 0..2 {
        let syn = segment(cookie, 1000, Flags::SYN, (7, 0));
        host.stack.handle_segment(now, &syn, &mut host.store);
        let key = host.stack.accept(listener).expect("it is there at once");
        let data = host.stack.recv(key).expect("with its data");
        assert_eq!(host.store.take(data), [1; 10]);
        host.stack.abort(now, key);
        host.stack.forget(now, key, &mut host.store);
        while host.stack.poll_transmit(now, 1).is_some() {}
    }
}

/// What is open early goes on after a restore, counts at its listener as before, and its answer is
/// sent again if it was not acknowledged. Cookies stay right, those of peers are still known.
#[test]
fn what_is_open_early_is_restored() {
    let now = Time::from_ns(1000 * SECOND);
    let (mut host, cookie) = server(1, now);
    let listener = host.stack.listeners_on(None, 80).next().expect("it listens");
    host.stack.handle_segment(now, &segment(cookie, 5, Flags::SYN, (7, 0)), &mut host.store);
    let isn = host.stack.poll_transmit(now, 1).expect("a SYN-ACK").repr.sequence;
    let key = host.stack.accept(listener).expect("it is there at once");
    let answer = host.store.fill(&[2; 100]);
    host.stack.send(key, answer).expect("it may be sent");
    assert_eq!(host.stack.poll_transmit(now, 1).expect("it leaves").payload.end & 0xff, {
        u64::from(isn.wrapping_add(101) & 0xff)
    });
    restore(&mut host, now);
    host.stack.handle_segment(now, &segment(cookie, 6, Flags::SYN, (7, 0)), &mut host.store);
    assert_eq!(host.stack.counters().fast_opens_limited, 1, "it still counts");
    while host.stack.poll_transmit(now, 1).is_some() {}
    let ack = segment(None, 5, Flags::ACK, (18, isn.wrapping_add(101)));
    host.stack.handle_segment(now, &ack, &mut host.store);
    let info = host.stack.info(key).expect("ours");
    assert_eq!((info.state, info.received_bytes, info.queued_bytes), (State::Established, 20, 0));
    host.stack.handle_segment(now, &segment(cookie, 7, Flags::SYN, (7, 0)), &mut host.store);
    assert_eq!(host.stack.counters().fast_opens_accepted, 1, "since it was restored");
    let mut saved = host.stack.save();
    saved.early.push((key, saved.early[0].1));
    let refused = Stack::restore(saved, Config::default(), 1500, now);
    assert!(refused.is_err(), "its handshake is over");
}

/// A SYN with data whose host is restored: what has arrived of it is not sent again, and the rest
/// is.
#[test]
fn a_syn_with_data_is_restored() {
    for (acknowledged, again) in [(31, "> P. 31:101(70) ack 1"), (101, "> . 101:101(0) ack 1")] {
        let mut script = with_cookie().play("connect 100; > S 0:100(100)");
        restore(&mut script.host, script.now);
        script.play(&format!(
            "< S. 0:0(0) ack {acknowledged} win 10000 <mss 1000>
             {again}"
        ));
    }
}
