//! Listeners that share a port, and those that take connections of some peers only.

use std::collections::HashMap;
use std::net::SocketAddr;

use clearway_base::{Prefix, SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::tcp::{Flags, Options, Repr};

use super::world::Host;
use crate::*;

const NOW: Time = Time::from_ns(1000 * SECOND);

/// A host at whose port 80 there are so many listeners, each of which has room for a thousand.
fn host(count: usize) -> (Host, Vec<Listener>) {
    let mut host = Host::new(Config::default(), "10.0.0.1:80".parse().expect("address"), NOW);
    let settings = Settings::default();
    let first = host.stack.listen(None, 80, 1000, 1500, settings).expect("free");
    let beside = |_| host.stack.listen_beside(first, 1000, settings).expect("there");
    let others: Vec<Listener> = (1..count).map(beside).collect();
    (host, [vec![first], others].concat())
}

fn arrival(host: &Host, from: u16, flags: Flags, numbers: (u32, u32)) -> Arrival {
    let repr = Repr {
        source_port: from,
        destination_port: 80,
        sequence: numbers.0,
        acknowledgement: numbers.1,
        flags,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    };
    let from = SocketAddr::from(([10, 0, 0, 2], from));
    Arrival { from, to: host.address, repr, payload_length: 0, ecn: Ecn::NotCapable }
}

/// The first two segments of a handshake, and the number of the third.
fn begin(host: &mut Host, from: u16) -> u32 {
    let syn = arrival(host, from, Flags::SYN, (0, 0));
    host.stack.handle_segment(NOW, &syn, &mut host.store);
    let answer = host.stack.poll_transmit(NOW, 1).expect("an answer");
    answer.repr.sequence.wrapping_add(1)
}

fn finish(host: &mut Host, from: u16, number: u32) {
    let ack = arrival(host, from, Flags::ACK, (1, number));
    host.stack.handle_segment(NOW, &ack, &mut host.store);
}

/// A SYN of a peer at this address is answered in this way, and never changes what is kept.
fn ask(host: &mut Host, at: SocketAddr, peer: &str) -> Flags {
    let syn = arrival(host, 1000, Flags::SYN, (0, 0));
    let from = SocketAddr::new(peer.parse().expect("an address"), 1000);
    host.stack.handle_segment(NOW, &Arrival { from, to: at, ..syn }, &mut host.store);
    let flags = host.stack.poll_transmit(NOW, 1).expect("an answer").repr.flags;
    if flags.contains(Flags::SYN) {
        let reset = arrival(host, 1000, Flags::RST, (1, 0));
        host.stack.handle_segment(NOW, &Arrival { from, to: at, ..reset }, &mut host.store);
    }
    assert_eq!(host.stack.waiting().0, 0, "nobody is half-open");
    flags
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().expect("a prefix")).collect()
}

/// Who has accepted which ports.
fn accept(host: &mut Host, listeners: &[Listener]) -> HashMap<u16, Listener> {
    let mut had = HashMap::new();
    for listener in listeners {
        while let Some(key) = host.stack.accept(*listener) {
            let port = host.stack.info(key).expect("open").remote.port();
            assert_eq!(had.insert(port, *listener), None);
            host.stack.abort(NOW, key);
            host.stack.forget(NOW, key, &mut host.store);
        }
    }
    while host.stack.poll_transmit(NOW, 1).is_some() {}
    had
}

/// Each has about its share; and the same connection comes to the same one, after a restore, too.
#[test]
fn connections_are_shared_by_a_hash() {
    let (mut host, listeners) = host(3);
    let connect = |host: &mut Host| {
        for port in 1000..1600 {
            let number = begin(host, port);
            finish(host, port, number);
        }
        accept(host, &listeners)
    };
    let had = connect(&mut host);
    assert_eq!(had.len(), 600);
    for listener in &listeners {
        let share = had.values().filter(|it| *it == listener).count();
        assert!((140..260).contains(&share), "{share} of 600");
    }
    host.stack =
        Stack::restore(host.stack.save(), Config::default(), 1500, NOW).expect("as it was");
    assert!(connect(&mut host) == had, "all came where they had come before");
    assert_eq!(host.stack.listeners_on(None, 80).count(), 3);
}

/// Nobody who has begun to connect, or whom nobody has accepted, is turned away because one of
/// several listeners has ended; those who wait at others stay there.
#[test]
fn what_waits_at_one_that_ends_is_the_others() {
    let (mut host, listeners) = host(3);
    for port in 1000..1200 {
        let number = begin(&mut host, port);
        finish(&mut host, port, number);
    }
    let begun: Vec<_> = (1200..1400).map(|port| (port, begin(&mut host, port))).collect();
    host.stack.unlisten(NOW, listeners[1], &mut host.store);
    for (port, number) in begun {
        finish(&mut host, port, number);
    }
    assert_eq!(host.stack.poll_transmit(NOW, 1).map(|it| it.repr), None, "nobody is reset");
    let had = accept(&mut host, &listeners);
    assert_eq!(had.len(), 400);
    assert_eq!(host.stack.waiting().0, 0);
    // The last one takes its place with it.
    host.stack.unlisten(NOW, listeners[0], &mut host.store);
    host.stack.unlisten(NOW, listeners[2], &mut host.store);
    assert_eq!(host.stack.listeners_on(None, 80).count(), 0);
    assert_eq!(host.stack.listeners(), 0);
}

/// A cookie of one that has ended is as good at another, also after a restore.
#[test]
fn a_cookie_may_come_back_to_another() {
    let config = Config { cookies: Cookies::Always, ..Config::default() };
    for gone in 0..2 {
        let (mut host, listeners) = host(2);
        host.stack.set_config(config);
        let number = begin(&mut host, 1000);
        host.stack.unlisten(NOW, listeners[gone], &mut host.store);
        host.stack = Stack::restore(host.stack.save(), config, 1500, NOW).expect("as it was");
        finish(&mut host, 1000, number);
        assert_eq!(host.stack.poll_transmit(NOW, 1).map(|it| it.repr), None, "nobody is reset");
        assert_eq!(accept(&mut host, &listeners).len(), 1);
    }
}

/// What one that ends has for another is no more than that has room for.
#[test]
fn what_another_has_no_room_for_is_reset() {
    let (mut host, listeners) = host(2);
    for port in 1000..1400 {
        let number = begin(&mut host, port);
        finish(&mut host, port, number);
    }
    let at_first = host.stack.acceptable(listeners[0]);
    let room = 10;
    let backlog = u32::try_from(at_first + room).expect("few");
    host.stack.set_listener(listeners[0], backlog, Settings::default());
    host.stack.unlisten(NOW, listeners[1], &mut host.store);
    assert_eq!(host.stack.acceptable(listeners[0]), at_first + room);
    let resets = core::iter::from_fn(|| host.stack.poll_transmit(NOW, 1)).count();
    assert_eq!(resets, 400 - at_first - room);
}

const ANSWER: Flags = Flags::SYN.union(Flags::ACK);
const REFUSAL: Flags = Flags::RST.union(Flags::ACK);

/// To all others it is as if nobody listened: they cost neither memory nor a cookie.
#[test]
fn a_listener_takes_peers_of_some_prefixes_only() {
    for cookies in [Cookies::UnderFlood, Cookies::Always] {
        let (mut host, listeners) = host(1);
        host.stack.set_config(Config { cookies, ..Config::default() });
        host.stack.set_listener_peers(listeners[0], prefixes(&["10.0.0.0/30", "fd00::/64"]));
        let v4 = host.address;
        let v6: SocketAddr = "[fd00::1]:80".parse().expect("an address");
        for restored in [false, true] {
            if restored {
                let config = Config { cookies, ..Config::default() };
                host.stack = Stack::restore(host.stack.save(), config, 1500, NOW).expect("sound");
            }
            let cookies_before = host.stack.counters().cookies_sent;
            assert_eq!(ask(&mut host, v4, "10.0.0.4"), REFUSAL);
            assert_eq!(ask(&mut host, v6, "fd00:0:0:1::2"), REFUSAL);
            assert_eq!(host.stack.counters().cookies_sent, cookies_before);
            assert_eq!(ask(&mut host, v4, "10.0.0.2"), ANSWER);
            assert_eq!(ask(&mut host, v6, "fd00::2"), ANSWER);
        }
        host.stack.set_listener_peers(listeners[0], Vec::new());
        assert_eq!(ask(&mut host, v4, "10.0.0.4"), ANSWER, "everybody again");
    }
}

/// One of all addresses has those whom the one of this address does not take.
#[test]
fn whom_one_does_not_take_another_may() {
    let (mut host, listeners) = host(1);
    let settings = Settings::default();
    let at = host.address;
    let narrow = host.stack.listen(Some(at.ip()), 80, 1000, 1500, settings).expect("free");
    host.stack.set_listener_peers(narrow, prefixes(&["10.0.0.2"]));
    host.stack.set_listener_peers(listeners[0], prefixes(&["10.0.0.0/24"]));
    let both = [narrow, listeners[0]];
    for (peer, listener) in [(2, narrow), (3, listeners[0])] {
        let from = SocketAddr::from(([10, 0, 0, peer], 1000));
        let syn = Arrival { from, ..arrival(&host, 1000, Flags::SYN, (0, 0)) };
        host.stack.handle_segment(NOW, &syn, &mut host.store);
        let answer = host.stack.poll_transmit(NOW, 1).expect("an answer").repr.sequence;
        let ack = arrival(&host, 1000, Flags::ACK, (1, answer.wrapping_add(1)));
        host.stack.handle_segment(NOW, &Arrival { from, ..ack }, &mut host.store);
        assert_eq!(accept(&mut host, &both).into_values().collect::<Vec<_>>(), [listener]);
    }
    assert_eq!(ask(&mut host, at, "10.0.1.2"), REFUSAL);
}

/// Those who share a port may take different peers; each peer comes to one that takes it, and stays
/// with such ones when another ends.
#[test]
fn who_shares_a_port_need_not_take_the_same_peers() {
    let (mut host, listeners) = host(3);
    host.stack.set_listener_peers(listeners[0], prefixes(&["10.9.0.0/16"]));
    let numbers: Vec<_> = (1000..1200).map(|port| (port, begin(&mut host, port))).collect();
    host.stack.unlisten(NOW, listeners[2], &mut host.store);
    for (port, number) in numbers {
        finish(&mut host, port, number);
    }
    let had = accept(&mut host, &listeners);
    assert_eq!(had.len(), 200, "nobody is reset");
    assert!(had.values().all(|it| *it == listeners[1]));
    host.stack.unlisten(NOW, listeners[1], &mut host.store);
    let at = host.address;
    assert_eq!(ask(&mut host, at, "10.0.0.2"), REFUSAL);
}

// ---- what several stacks ask each other ----

/// What is whose, from the SYN until it is over. A segment that comes where it is not known is
/// nobody's but a listener's.
#[test]
fn a_stack_knows_what_it_keeps() {
    let (mut host, listeners) = host(1);
    let syn = arrival(&host, 1000, Flags::SYN, (0, 0));
    let ack = |number| arrival(&host, 1000, Flags::ACK, (1, number));
    let (nobodys, reset) = (ack(7), arrival(&host, 1000, Flags::RST, (1, 0)));
    for (segment, is_welcome) in [(&syn, true), (&nobodys, false), (&reset, false)] {
        assert!(!host.stack.knows(segment));
        assert_eq!(host.stack.welcomes(NOW, segment), is_welcome, "{:?}", segment.repr.flags);
    }
    let number = begin(&mut host, 1000);
    assert!(host.stack.knows(&syn) && host.stack.knows(&nobodys), "half-open");
    finish(&mut host, 1000, number);
    let key = host.stack.accept(listeners[0]).expect("open");
    assert!(host.stack.knows(&syn) && host.stack.knows(&nobodys) && host.stack.knows(&reset));
    host.stack.close(NOW, key);
    let fin = arrival(&host, 1000, Flags::FIN | Flags::ACK, (1, number.wrapping_add(1)));
    while host.stack.poll_transmit(NOW, 1).is_some() {}
    host.stack.handle_segment(NOW, &fin, &mut host.store);
    host.stack.forget(NOW, key, &mut host.store);
    assert_eq!(host.stack.waiting(), (0, 1), "over");
    let later = arrival(&host, 1000, Flags::SYN, (9000, 0));
    assert!(host.stack.knows(&syn) && host.stack.knows(&later));
    // Without a listener here, a SYN that may begin anew does so elsewhere.
    host.stack.unlisten(NOW, listeners[0], &mut host.store);
    assert!(host.stack.knows(&syn) && host.stack.remembers(&fin) && !host.stack.knows(&later));
    assert!(!host.stack.remembers(&fin) && host.stack.waiting() == (0, 0));
    assert!(!host.stack.welcomes(NOW, &later));
}

/// Ports that are over here may be those of a connection elsewhere: what is no SYN is that one's,
/// if there is one.
#[test]
fn what_is_over_may_be_anothers_by_now() {
    let (mut host, listeners) = host(1);
    let number = begin(&mut host, 1000);
    finish(&mut host, 1000, number);
    let key = host.stack.accept(listeners[0]).expect("open");
    let ends = (host.address, SocketAddr::from(([10, 0, 0, 2], 1000)));
    assert!(host.stack.has(ends.0, ends.1));
    host.stack.close(NOW, key);
    while host.stack.poll_transmit(NOW, 1).is_some() {}
    let ack = Flags::ACK;
    let fin = arrival(&host, 1000, Flags::FIN | ack, (1, number.wrapping_add(1)));
    host.stack.handle_segment(NOW, &fin, &mut host.store);
    host.stack.forget(NOW, key, &mut host.store);
    assert_eq!(host.stack.waiting(), (0, 1), "over");
    assert!(!host.stack.has(ends.0, ends.1));
    for flags in [Flags::SYN | ack, Flags::RST | ack, Flags::RST, ack, Flags::FIN | ack] {
        let segment = arrival(&host, 1000, flags, (1, number.wrapping_add(1)));
        assert!(!host.stack.knows(&segment) && host.stack.remembers(&segment), "{flags:?}");
    }
}

/// A cookie is taken where cookies were given out, by all whose key is the same.
#[test]
fn who_has_given_out_cookies_welcomes_those_that_come_back() {
    let config = Config { cookies: Cookies::Always, ..Config::default() };
    let [(mut one, _), (mut other, _)] = [host(1), host(1)];
    one.stack.set_config(config);
    let number = begin(&mut one, 1000);
    let [right, wrong] =
        [number, number.wrapping_add(1)].map(|it| arrival(&one, 1000, Flags::ACK, (1, it)));
    assert!(!one.stack.knows(&right) && one.stack.welcomes(NOW, &right));
    assert!(!one.stack.welcomes(NOW, &wrong));
    assert!(!other.stack.welcomes(NOW, &right), "it has given out none");
    other.stack.set_config(config);
    begin(&mut other, 2000);
    assert!(other.stack.welcomes(NOW, &right));
    let too_late = NOW + 1000 * SECOND;
    assert!(!one.stack.welcomes(too_late, &right));
}

/// Each of so many stacks has about its share, and so has each listener of what is one's.
#[test]
fn stacks_and_listeners_share_independently() {
    let (mut host, listeners) = host(2);
    let mut shares = HashMap::<_, usize>::new();
    for port in 1000..1600 {
        let number = begin(&mut host, port);
        finish(&mut host, port, number);
    }
    for (port, listener) in accept(&mut host, &listeners) {
        let share = host.stack.share_of(host.address, ([10, 0, 0, 2], port).into(), 3);
        *shares.entry((share, listener.to_bits())).or_default() += 1;
    }
    assert_eq!(shares.len(), 6, "{shares:?}");
    assert!(shares.values().all(|share| (70..130).contains(share)), "{shares:?}");
}

/// What has begun at one stack is finished at another, whose listener is set the same.
#[test]
fn what_is_half_open_goes_to_another_stack() {
    let [(mut gone, listeners), (mut heir, heirs)] = [host(1), host(1)];
    let number = begin(&mut gone, 1000);
    let orphans = gone.stack.take_orphans(listeners[0]);
    assert_eq!((orphans.len(), gone.stack.waiting().0), (1, 0));
    let other = Settings { receive_buffer_bytes: 5000, ..Settings::default() };
    heir.stack.set_listener(heirs[0], 1000, other);
    assert!(!heir.stack.adopt(NOW, &orphans[0]), "its peer was told of another window");
    heir.stack.set_listener(heirs[0], 1000, Settings { account: 7, ..Settings::default() });
    assert!(heir.stack.adopt(NOW, &orphans[0]));
    assert!(!heir.stack.adopt(NOW, &orphans[0]), "it is there");
    finish(&mut heir, 1000, number);
    assert_eq!(heir.stack.poll_transmit(NOW, 1).map(|it| it.repr), None, "nobody is reset");
    assert_eq!(accept(&mut heir, &heirs).len(), 1);
    heir.stack.unlisten(NOW, heirs[0], &mut heir.store);
    assert!(!heir.stack.adopt(NOW, &orphans[0]), "nobody listens");
    // Where another one listens at the same stack, it has it.
    let (mut both, listeners) = host(2);
    for port in 1000..1010 {
        begin(&mut both, port);
    }
    assert!(listeners.iter().all(|listener| both.stack.take_orphans(*listener).is_empty()));
    assert_eq!(both.stack.waiting().0, 10);
}
