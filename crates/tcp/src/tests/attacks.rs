//! Hostile peers, and strangers: bounded memory, bounded work, and nobody else is hurt.

use std::net::{IpAddr, SocketAddr};

use clearway_base::{SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::tcp::{Flags, Options, Repr, Timestamps};

use super::script::begin::*;
use super::world::Host;
use crate::connection::Connection;
use crate::*;

fn host(config: Config, settings: Settings) -> (Host, Time) {
    let now = Time::from_ns(1000 * SECOND);
    let mut host = Host::new(config, "10.0.0.1:80".parse().expect("address"), now);
    host.stack.listen(None, 80, 64, 1500, settings).expect("free");
    (host, now)
}

fn segment(
    host: &mut Host,
    now: Time,
    stranger: u32,
    flags: Flags,
    numbers: (u32, u32),
    options: Options,
) {
    let from = SocketAddr::from(((0x0b00_0000 + stranger).to_be_bytes(), 999));
    let repr = Repr {
        source_port: 999,
        destination_port: 80,
        sequence: numbers.0,
        acknowledgement: numbers.1,
        flags,
        window: 1000,
        urgent: 0,
        options,
    };
    let arrival = Arrival { from, to: host.address, repr, payload_length: 0, ecn: Ecn::NotCapable };
    host.stack.handle_segment(now, &arrival, &mut host.store);
}

/// RFC 4987: a flood of SYNs takes no more memory than its bound, and who answers the cookie is
/// served, with the window scale and SACK that it has offered.
#[test]
fn a_syn_flood_is_answered_with_cookies() {
    let (mut host, now) = host(Config::default(), Settings::default());
    let options = Options {
        maximum_segment_size: Some(1400),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 5, echo: 0 }),
        ..Options::default()
    };
    let mut last = None;
    for stranger in 0..10_000 {
        segment(&mut host, now, stranger, Flags::SYN, (7, 0), options);
        last = host.stack.poll_transmit(now, 1).or(last);
    }
    assert_eq!(host.stack.waiting().0, 64);
    assert_eq!(host.stack.connections().count(), 0);
    let syn_ack = last.expect("an answer").repr;
    let clock = syn_ack.options.timestamps.expect("agreed").value;
    let options =
        Options { timestamps: Some(Timestamps { value: 6, echo: clock }), ..Options::default() };
    // One who guesses is reset, and one who has seen the answer is in.
    let ack = syn_ack.sequence.wrapping_add(1);
    segment(&mut host, now, 9_999, Flags::ACK, (8, ack ^ 0x100), options);
    assert!(host.stack.poll_transmit(now, 1).expect("a reset").repr.flags.contains(Flags::RST));
    segment(&mut host, now, 9_999, Flags::ACK, (8, ack), options);
    let key = host.stack.connections().next().expect("open");
    let info = host.stack.info(key).expect("open");
    assert_eq!((info.state, info.segment_bytes), (State::Established, 1300 - 12));
    assert_eq!((info.window_scales.0, info.sack, info.timestamps), (9, true, true));
    // A cookie is good for two minutes, and only for its own addresses and ports.
    let late = now + 200 * SECOND;
    segment(&mut host, late, 9_998, Flags::ACK, (8, ack), options);
    assert_eq!(host.stack.connections().count(), 1);
}

/// RFC 4987, 3.6: without timestamps a cookie has room for the segment size alone. RFC 7323, 2.2:
/// who is told of a window scale takes windows to be shifted, so its peer is told of none.
#[test]
fn a_cookie_without_timestamps_keeps_the_segment_size_alone() {
    let config = Config { half_open_max: 0, ..Config::default() };
    let (mut host, now) = host(config, Settings { ecn: true, ..Settings::default() });
    let options = Options {
        maximum_segment_size: Some(1460),
        window_scale: Some(9),
        sack_permitted: true,
        ..Options::default()
    };
    segment(&mut host, now, 1, Flags::SYN | Flags::ECE | Flags::CWR, (7, 0), options);
    let answer = host.stack.poll_transmit(now, 1).expect("an answer").repr;
    let told = (answer.options.window_scale, answer.options.sack_permitted);
    assert_eq!((told, answer.flags), ((None, false), Flags::SYN | Flags::ACK));
    assert!(answer.options.maximum_segment_size.is_some());
    let ack = answer.sequence.wrapping_add(1);
    segment(&mut host, now, 1, Flags::ACK, (8, ack), Options::default());
    let key = host.stack.connections().next().expect("open");
    let info = host.stack.info(key).expect("open");
    assert_eq!((info.segment_bytes, info.window_scales.0, info.sack), (1460, 0, false));
    assert_eq!(host.stack.counters().cookies_right, 1);
}

/// Who uses the ports of a connection in TIME-WAIT again is served during a flood, too.
#[test]
fn a_cookie_for_ports_in_time_wait_is_right() {
    let config = Config { cookies: Cookies::Always, ..Config::default() };
    let (mut host, now) = host(config, Settings::default());
    open_and_close(&mut host, now, 1);
    assert_eq!(host.stack.waiting(), (0, 1));
    segment(&mut host, now, 1, Flags::SYN, (1000, 0), Options::default());
    let ack = host.stack.poll_transmit(now, 1).expect("an answer").repr.sequence.wrapping_add(1);
    segment(&mut host, now, 1, Flags::ACK, (1001, ack), Options::default());
    assert_eq!(host.stack.poll_transmit(now, 1).map(|it| it.repr), None, "nobody is reset");
    assert_eq!((host.stack.connections().count(), host.stack.waiting()), (1, (0, 0)));
}

/// A SYN that the backlog has no room for does not take the guard of its ports away.
#[test]
fn a_listener_without_room_leaves_time_wait_alone() {
    let (mut host, now) = host(Config::default(), Settings::default());
    open_and_close(&mut host, now, 1);
    let listener = host.stack.listeners_on(None, 80).next().expect("it is there");
    host.stack.set_listener(listener, 1, Settings::default());
    segment(&mut host, now, 2, Flags::SYN, (7, 0), Options::default());
    let ack = host.stack.poll_transmit(now, 1).expect("an answer").repr.sequence.wrapping_add(1);
    segment(&mut host, now, 2, Flags::ACK, (8, ack), Options::default());
    segment(&mut host, now, 1, Flags::SYN, (1000, 0), Options::default());
    assert_eq!(host.stack.waiting(), (0, 1));
    host.stack.accept(listener).expect("it waits");
    segment(&mut host, now, 1, Flags::SYN, (1000, 0), Options::default());
    assert_eq!(host.stack.waiting(), (1, 0));
}

/// RFC 9293, 3.9.2.3: what is sent to many, or by nobody, is answered to nobody (MUST-57, MUST-63),
/// and nobody can connect to it (MUST-46).
#[test]
fn addresses_of_many_hosts_have_no_connections() {
    let (mut host, now) = host(Config::default(), Settings::default());
    let repr = Repr {
        source_port: 999,
        destination_port: 80,
        sequence: 7,
        acknowledgement: 0,
        flags: Flags::SYN,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    };
    let own = host.address;
    for other in ["224.0.0.1:999", "255.255.255.255:999", "0.0.0.0:999", "[ff02::1]:999"] {
        let other: SocketAddr = other.parse().expect("address");
        for (from, to) in [(own, other), (other, own)] {
            for (flags, ports) in [(Flags::SYN, (999, 80)), (Flags::ACK, (999, 81))] {
                let repr = Repr { flags, destination_port: ports.1, ..repr };
                let from = SocketAddr::new(from.ip(), ports.0);
                let to = SocketAddr::new(to.ip(), ports.1);
                let ecn = Ecn::NotCapable;
                let arrival = Arrival { from, to, repr, payload_length: 0, ecn };
                host.stack.handle_segment(now, &arrival, &mut host.store);
            }
        }
        assert_eq!(host.transmit(now).len(), 0, "{other}");
        assert_eq!(host.stack.waiting(), (0, 0), "{other}");
        if other.is_ipv4() {
            let refused = host.stack.connect(now, own, other, 1500, Settings::default());
            assert_eq!(refused, Err(Error::NoHost));
        }
    }
}

/// Resets to strangers are limited in rate, and what waits for the queue is limited.
#[test]
fn strangers_get_few_resets() {
    let (mut host, now) =
        host(Config { resets_per_s: 10, ..Config::default() }, Settings::default());
    for stranger in 0..1000 {
        segment(&mut host, now, stranger, Flags::ACK, (1, 1), Options::default());
    }
    assert_eq!(host.transmit(now).len(), 10);
    assert_eq!(host.stack.counters().resets_sent, 10);
}

/// What finds no room among the answers that wait for the queue is not counted as sent.
#[test]
fn what_is_counted_as_sent_is_sent() {
    let config = Config { cookies: Cookies::Always, ..Config::default() };
    let (mut host, now) = host(config, Settings::default());
    let count = |host: &Host| {
        let counters = host.stack.counters();
        (counters.cookies_sent, counters.resets_sent)
    };
    for (flags, expected) in [(Flags::SYN, (256, 0)), (Flags::ACK, (256, 256))] {
        for stranger in 0..900 {
            segment(&mut host, now, stranger, flags, (1, 1), Options::default());
        }
        assert_eq!((host.transmit(now).len(), count(&host)), (256, expected));
    }
}

/// A listener takes no more than its app accepts: what comes beyond that is dropped, and tries
/// again.
#[test]
fn a_full_backlog_drops_what_comes() {
    let now = Time::from_ns(1000 * SECOND);
    let mut host = Host::new(Config::default(), "10.0.0.1:80".parse().expect("address"), now);
    let listener = host.stack.listen(None, 80, 2, 1500, Settings::default()).expect("free");
    let open = |host: &mut Host, stranger| {
        segment(host, now, stranger, Flags::SYN, (7, 0), Options::default());
        let syn_ack = host.stack.poll_transmit(now, 1)?.repr;
        let ack = syn_ack.sequence.wrapping_add(1);
        segment(host, now, stranger, Flags::ACK, (8, ack), Options::default());
        Some(())
    };
    assert_eq!([1, 2, 3].map(|stranger| open(&mut host, stranger)), [Some(()), Some(()), None]);
    assert_eq!((host.stack.connections().count(), host.stack.counters().backlog_dropped), (2, 1));
    host.stack.accept(listener).expect("one");
    assert_eq!(open(&mut host, 3), Some(()));
    assert_eq!(host.stack.connections().count(), 3);
}

/// RFC 5927: who guesses a sequence number has the window sent again eight times, not a thousand.
#[test]
fn routers_are_believed_eight_times() {
    let mut script = established().play("send 1000; > P. 1:1001(1000) ack 1");
    let mut sent_again = 0;
    for mtu in (600..1040).rev().step_by(10) {
        let (local, peer) = (script.host.address, "10.0.0.2:5000".parse().expect("address"));
        let sequence = script.isn.expect("sent").wrapping_add(1);
        let error = IcmpError::TooBig(mtu);
        script.host.stack.handle_icmp(script.now, error, local, peer, sequence);
        sent_again += usize::from(!script.host.transmit(script.now).is_empty());
    }
    assert_eq!(sent_again, 8);
    // After ten minutes a path may be another one.
    let info = script.host.stack.info(script.key.expect("open")).expect("open");
    assert_eq!(info.path_mtu, 1039 - 70);
    let later = script.now + 600 * SECOND;
    let (local, peer) = (script.host.address, "10.0.0.2:5000".parse().expect("address"));
    let sequence = script.isn.expect("sent").wrapping_add(1);
    script.host.stack.handle_icmp(later, IcmpError::TooBig(700), local, peer, sequence);
    let info = script.host.stack.info(script.key.expect("open")).expect("open");
    assert_eq!(info.path_mtu, 700);
}

/// A peer that sends a byte at a time, and has each acknowledged, gets no more window than another
/// one: what a scaled window cannot say is not rounded in its favour.
#[test]
fn single_bytes_do_not_make_the_window_grow() {
    let mut script = established_with("window_scaling buffer=200000", "mss 1000,wscale 0");
    let key = script.key.expect("open");
    for next in 1..1000 {
        script = script.play(&format!("< . {next}:{}(1) ack 1", next + 1));
        script.now = script.now + SECOND;
        script.host.stack.handle_timeouts(script.now);
        assert_eq!(script.host.transmit(script.now).len(), 1);
        let info = script.host.stack.info(key).expect("open");
        assert!(info.unread_bytes + info.receive_window_bytes <= 200_000, "{info:?}");
    }
}

/// A stranger connects, and this end closes first.
fn open_and_close(host: &mut Host, now: Time, stranger: u32) {
    segment(host, now, stranger, Flags::SYN, (7, 0), Options::default());
    let syn_ack = host.stack.poll_transmit(now, 1).expect("an answer").repr;
    let ack = syn_ack.sequence.wrapping_add(1);
    segment(host, now, stranger, Flags::ACK, (8, ack), Options::default());
    let listener = host.stack.listeners_on(None, 80).next().expect("it is there");
    let key = host.stack.accept(listener).expect("open");
    host.stack.close(now, key);
    host.transmit(now);
    let fin = Flags::FIN | Flags::ACK;
    segment(host, now, stranger, fin, (8, ack.wrapping_add(1)), Options::default());
    host.transmit(now);
    assert_eq!(host.stack.info(key).expect("ours").state, State::TimeWait);
    host.stack.forget(now, key, &mut host.store);
    host.transmit(now);
}

/// From now on what comes goes on another account.
fn change_account(host: &mut Host, account: u32) {
    let listener = host.stack.listeners_on(None, 80).next().expect("it is there");
    host.stack.set_listener(listener, 4096, Settings { account, ..Settings::default() });
}

/// Connections in TIME-WAIT of each account, and the last four bytes of the peers' addresses.
fn in_time_wait(host: &Host, account: u32) -> Vec<u32> {
    let waiting = host.stack.save().time_waits.into_iter();
    let own = waiting.filter(|entry| entry.account == account);
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits() & 0xff,
        IpAddr::V6(_) => 0,
    };
    own.map(|entry| number(entry.ends.1.ip())).collect()
}

/// TIME-WAIT has a bound, beyond which the oldest go of who has more than are left for others.
#[test]
fn time_wait_is_bounded() {
    let config = Config { time_wait_max: 10, ..Config::default() };
    let (mut host, now) = host(config, Settings::default());
    for stranger in 0..20 {
        open_and_close(&mut host, now, stranger);
    }
    assert_eq!((host.stack.waiting().1, host.stack.connections().count()), (5, 0));
    assert_eq!(host.stack.counters().time_wait_dropped, 15);
    change_account(&mut host, 1);
    for stranger in 20..40 {
        open_and_close(&mut host, now, stranger);
    }
    let shares = |host: &Host| [0, 1].map(|account| in_time_wait(host, account));
    let expected = [vec![15, 16, 17, 18, 19], vec![37, 38, 39]];
    assert_eq!(shares(&host), expected, "nobody takes another's");
    host.stack = Stack::restore(host.stack.save(), config, 1500, now).expect("as it was");
    open_and_close(&mut host, now, 40);
    assert_eq!(shares(&host)[0], expected[0]);
    assert_eq!(shares(&host)[1], [38, 39, 40]);
    // What has waited long enough is nobody's.
    let late = now + 61 * SECOND;
    host.stack.handle_timeouts(late);
    assert_eq!(host.stack.waiting().1, 0);
    for stranger in 40..60 {
        open_and_close(&mut host, late, stranger);
    }
    assert_eq!(in_time_wait(&host, 1).len(), 5);
}

/// What is due far from now is kept once for each connection: not each time that something nearer
/// was due, as on a busy connection, and not each time that its app, or a stranger, asks.
#[test]
fn deadlines_are_bounded() {
    let mut script = established();
    for round in 0..500_u32 {
        let (idle_s, next) = (7200 - round, 1 + round);
        script = script.play(&format!(
            "set keep_alive_s={idle_s}
             < P. {next}:{}(1) ack 1
             +0.04 > . 1:1(0) ack {}",
            next + 1,
            next + 1
        ));
        let mut host = script.host;
        segment(&mut host, script.now, 1, Flags::SYN, (7, 0), Options::default());
        segment(&mut host, script.now, 1, Flags::RST, (8, 0), Options::default());
        host.transmit(script.now);
        script.host = host;
    }
    assert_eq!(script.host.stack.deadlines(), 1);
}

/// A call that serves deadlines takes bounded time, however many are due at the same moment.
#[test]
fn what_is_due_at_once_is_served_bit_by_bit() {
    let settings = Settings { keep_alive: Some(KeepAlive::default()), ..Settings::default() };
    let (mut host, now) = host(Config::default(), settings);
    for stranger in 0..1000 {
        open_and_close(&mut host, now, stranger);
        segment(&mut host, now, 1000 + stranger, Flags::SYN, (7, 0), Options::default());
        let ack = host.stack.poll_transmit(now, 1).expect("an answer").repr.sequence + 1;
        segment(&mut host, now, 1000 + stranger, Flags::ACK, (8, ack), Options::default());
        let listener = host.stack.listeners_on(None, 80).next().expect("it is there");
        host.stack.accept(listener).expect("open");
    }
    let mut late = now + 60 * SECOND;
    let mut left = host.stack.waiting().1;
    while left > 0 {
        assert!(host.stack.next_timeout() <= late, "there is more to do");
        host.stack.handle_timeouts(late);
        let before = core::mem::replace(&mut left, host.stack.waiting().1);
        assert!((1..=300).contains(&(before - left)), "{before} and then {left}");
    }
    late = now + 7200 * SECOND;
    let mut probes = 0;
    while host.stack.next_timeout() <= late {
        host.stack.handle_timeouts(late);
        let some = host.transmit(late).len();
        assert!((1..=300).contains(&some), "{some} at once");
        probes += some;
    }
    assert_eq!(probes, 1000);
}

/// Who finds no room for a connection does not take the guard of its ports away.
#[test]
fn a_connection_without_room_leaves_time_wait_alone() {
    let config = Config { connections_max: 1, ..Config::default() };
    let (mut host, now) = host(config, Settings::default());
    open_and_close(&mut host, now, 1);
    let (own, peer) = (host.address, SocketAddr::from(([11, 0, 0, 1], 999)));
    let other = SocketAddr::from(([11, 0, 0, 2], 999));
    let settings = Settings::default();
    let key = host.stack.connect(now, own, other, 1500, settings).expect("room for one");
    assert_eq!(host.stack.connect(now, own, peer, 1500, settings), Err(Error::InUse));
    assert_eq!(host.stack.waiting().1, 1);
    assert_eq!(host.stack.counters().connections_opened, 1);
    host.stack.abort(now, key);
    host.stack.forget(now, key, &mut host.store);
    host.transmit(now);
    host.stack.connect(now, own, peer, 1500, settings).expect("room, and timestamps");
    assert_eq!(host.stack.waiting().1, 0);
}

/// An app that listens and ends that, again and again, does not look at what has begun to connect
/// to others each time.
#[test]
fn a_listener_that_ends_looks_at_its_own_alone() {
    let (mut host, now) = host(Config::default(), Settings::default());
    let settings = Settings::default();
    let toggle_ns = |host: &mut Host| {
        let mut run = |_| {
            let begun = std::time::Instant::now();
            for _ in 0..1000 {
                let listener = host.stack.listen(None, 81, 1, 1500, settings).expect("free");
                host.stack.unlisten(now, listener, &mut host.store);
            }
            begun.elapsed().as_nanos()
        };
        (0..5).map(&mut run).min().expect("five")
    };
    let alone_ns = toggle_ns(&mut host);
    let listener = host.stack.listeners_on(None, 80).next().expect("it is there");
    host.stack.set_listener(listener, 4096, settings);
    for stranger in 0..4000 {
        segment(&mut host, now, stranger, Flags::SYN, (7, 0), Options::default());
        host.transmit(now);
    }
    assert_eq!(host.stack.waiting().0, 4000);
    let beside_ns = toggle_ns(&mut host);
    assert!(beside_ns < 5 * alone_ns.max(100_000), "{beside_ns} ns and not {alone_ns} ns");
}

/// A flood of one account's listener leaves room for those of others, which need no cookies.
#[test]
fn half_open_connections_are_shared() {
    let config = Config { half_open_max: 100, ..Config::default() };
    let (mut host, now) = host(config, Settings::default());
    change_account(&mut host, 1);
    let flood = |host: &mut Host, strangers: core::ops::Range<u32>| {
        for stranger in strangers {
            segment(host, now, stranger, Flags::SYN, (7, 0), Options::default());
            host.stack.poll_transmit(now, 1).expect("an answer");
        }
        (host.stack.waiting().0, host.stack.counters().cookies_sent)
    };
    assert_eq!(flood(&mut host, 0..1000), (50, 950));
    change_account(&mut host, 2);
    assert_eq!(flood(&mut host, 1000..1010), (60, 950));
    change_account(&mut host, 1);
    assert_eq!(flood(&mut host, 1010..1020), (60, 960));
    host.stack = Stack::restore(host.stack.save(), config, 1500, now).expect("as it was");
    assert_eq!(flood(&mut host, 1020..1030), (60, 10));
    // Resets of the peers leave room again.
    for stranger in 0..50 {
        segment(&mut host, now, stranger, Flags::RST, (8, 0), Options::default());
    }
    assert_eq!(flood(&mut host, 1030..1040), (20, 10));
}

/// An idle connection takes less than 2 KB.
#[test]
fn an_idle_connection_is_small() {
    let bytes = size_of::<Connection>();
    assert!(bytes <= 1552, "{bytes} bytes");
}

/// Zero-window hoarding: a peer that takes nothing costs the extents that the app has given it, and
/// no more.
#[test]
fn what_a_peer_does_not_take_is_bounded() {
    let mut script = established().play("< . 1:1(0) ack 1 win 0");
    let key = script.key.expect("open");
    let mut given = 0;
    loop {
        let extent = script.host.store.fill(&[0; 100]);
        if script.host.stack.send(key, extent).is_err() {
            break;
        }
        given += 1;
    }
    assert_eq!(given, script.settings.send_extents_max);
}

/// SACK walk: thousands of blocks that say the same take no time. As work, not as time: what has
/// arrived is skipped as a whole.
#[test]
fn blocks_that_say_what_is_known_change_nothing() {
    let mut script = established_with("sack", "mss 1000,sackOK").play(
        "send 3000
         > . 1:1001(1000) ack 1
         > . 1001:2001(1000) ack 1
         > P. 2001:3001(1000) ack 1
         +0.001 < . 1:1(0) ack 1 <sack 1001:3001>
         > . 1:1001(1000) ack 1",
    );
    for _ in 0..1000 {
        script = script.play("< . 1:1(0) ack 1 <sack 1001:3001>");
    }
}
