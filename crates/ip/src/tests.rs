//! Two hosts on one link, in virtual time: frames are carried from one interface to the other by
//! hand.

use super::*;
use clearway_base::Random;
use clearway_wire::digest::{Digest, Layer, Network, PATTERN_WORDS, fields};
use clearway_wire::ethernet::ether_type;
use clearway_wire::{Ecn, Malformed, ethernet, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp, udp};
use core::net::{Ipv4Addr, Ipv6Addr};

const NOW: Time = Time::from_ns(1000 * SECOND);
const FRAME_BYTES_MAX: usize = 2048;
/// The port of messages.
const PORT: u16 = 1000;

fn config(host: u8) -> Config {
    Config {
        mac: [2, 0, 0, 0, 0, host],
        addresses: vec![
            (IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 24),
            (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())), 64),
        ],
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    }
}

fn hosts(change: impl Fn(&mut Config)) -> (Interface, Interface) {
    let [a, b] = [1, 2].map(|host| {
        let mut config = config(host);
        change(&mut config);
        Interface::new(&config)
    });
    (a, b)
}

fn v4(host: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), PORT)
}

fn v6(host: u8) -> SocketAddr {
    let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into());
    SocketAddr::new(ip.into(), PORT)
}

/// The interface's own frames.
fn frames_of(interface: &mut Interface) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut frame = [0; FRAME_BYTES_MAX];
    loop {
        match interface.poll_transmit(&mut frame) {
            0 => return frames,
            length => frames.push(frame[..length].to_vec()),
        }
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received<'a> {
    Datagram(Datagram<'a>),
    NetworkError(NetworkError<'a>),
    Consumed,
    Dropped(DropReason),
}

/// What `host` makes of a frame; `None` if it is for none of its protocols, as the engine's switch
/// finds out: UDP to one port, ICMP and ARP for it, and UDP to other ports, which is refused.
fn receive<'a>(host: &mut Interface, now: Time, frame: &'a [u8]) -> Option<Received<'a>> {
    let digest = Digest::of(frame);
    let vlan = (digest.field(fields::TAGGED), digest.field(fields::VLAN_ID));
    match host.vlan {
        None if vlan.1 != 0 => return None,
        Some(id) if vlan != (1, id.into()) => return None,
        _ => {}
    }
    let number = |mac: MacAddress| mac.iter().fold(0, |bits, octet| bits << 8 | u64::from(*octet));
    let mac = digest.field(fields::MAC_DESTINATION);
    let (is_own_mac, is_broadcast) = (mac == number(host.mac), mac == number(ethernet::BROADCAST));
    let to: IpAddr = match digest.network() {
        Network::Arp if host.kernel_shares || !(is_own_mac || is_broadcast) => return None,
        Network::Arp => return Some(consumed(host, |host| host.handle_arp(now, frame))),
        Network::Ipv4 => Ipv4Addr::from(digest.field(fields::IPV4_DESTINATION) as u32).into(),
        Network::Ipv6 => {
            let high = digest.field(fields::IPV6_DESTINATION_HIGH);
            let low = digest.field(fields::IPV6_DESTINATION_LOW);
            Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)).into()
        }
        _ => return None,
    };
    let is_group = host.own_addresses().any(|own| match (own, to) {
        (IpAddr::V6(own), IpAddr::V6(to)) => to == ipv6::solicited_node(own) || to == ALL_NODES,
        _ => false,
    });
    let is_for_us = is_own_mac && host.is_own(to);
    let (protocol, port) =
        (digest.field(fields::PROTOCOL) as u8, digest.field(fields::DESTINATION_PORT));
    match (protocol, digest.layer()) {
        (protocol::UDP, Layer::Ports) if is_for_us && port == u64::from(PORT) => {
            Some(match host.datagram(frame, false) {
                Ok(datagram) => Received::Datagram(datagram),
                Err(reason) => count(host, reason),
            })
        }
        _ if host.kernel_shares => None,
        (protocol::UDP, Layer::Ports) if is_for_us => {
            Some(consumed(host, |host| host.refuse_datagram(now, frame)))
        }
        (protocol::ICMPV4 | protocol::ICMPV6, _) if is_for_us || is_group => {
            Some(match host.handle_icmp(now, frame) {
                Ok(error) => error.map_or(Received::Consumed, Received::NetworkError),
                Err(reason) => count(host, reason),
            })
        }
        _ => None,
    }
}

fn consumed(
    host: &mut Interface,
    take: impl FnOnce(&mut Interface) -> Result<(), DropReason>,
) -> Received<'static> {
    match take(host) {
        Ok(()) => Received::Consumed,
        Err(reason) => count(host, reason),
    }
}

fn count(host: &mut Interface, reason: DropReason) -> Received<'static> {
    host.count_drop(reason);
    Received::Dropped(reason)
}

fn dropped(reason: impl Into<DropReason>) -> Option<Received<'static>> {
    Some(Received::Dropped(reason.into()))
}

/// Carries the own frames of both to the other until there are none; returns how many.
fn settle(now: Time, a: &mut Interface, b: &mut Interface) -> usize {
    let mut count = 0;
    loop {
        let (from_a, from_b) = (frames_of(a), frames_of(b));
        if from_a.is_empty() && from_b.is_empty() {
            return count;
        }
        count += from_a.len() + from_b.len();
        from_a.iter().for_each(|frame| _ = receive(b, now, frame));
        from_b.iter().for_each(|frame| _ = receive(a, now, frame));
    }
}

fn known<T>(resolution: Resolution<T>) -> T {
    match resolution {
        Resolution::Known(known) => known,
        Resolution::Pending => panic!("pending"),
        Resolution::Unreachable => panic!("unreachable"),
    }
}

/// The path from a to b, once they have got to know each other.
fn path(a: &mut Interface, b: &mut Interface, from: SocketAddr, to: SocketAddr) -> UdpPath {
    assert_eq!(a.udp_path(NOW, from, to).map(drop), Resolution::Pending);
    assert_eq!(settle(NOW, a, b), 2);
    known(a.udp_path(NOW, from, to))
}

fn datagram(path: &UdpPath, payload: &[u8]) -> Vec<u8> {
    datagram_with(path, payload, false)
}

fn datagram_with(path: &UdpPath, payload: &[u8], is_ecn_capable: bool) -> Vec<u8> {
    let mut frame = vec![0xaa; FRAME_BYTES_MAX];
    frame[path.payload_offset()..][..payload.len()].copy_from_slice(payload);
    let length = path.emit_headers(&mut frame, payload.len(), is_ecn_capable);
    frame.truncate(length);
    path.finish(&mut frame);
    frame
}

#[test]
fn datagrams_go_both_ways() {
    for vlan in [None, Some(7)] {
        for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            let (mut a, mut b) = hosts(|config| config.vlan = vlan);
            let there = path(&mut a, &mut b, from, to);
            for payload in [&b""[..], b"x", b"hello", &[0xff; 1400]] {
                let frame = datagram(&there, payload);
                let Some(Received::Datagram(received)) = receive(&mut b, NOW, &frame) else {
                    panic!("{:?}", receive(&mut b, NOW, &frame));
                };
                assert_eq!((received.source, received.destination), (from, to));
                assert_eq!((received.payload, received.source_mac), (payload, a.mac()));
                let back = datagram(&b.udp_path_back(&received), b"back");
                assert!(matches!(
                    receive(&mut a, NOW, &back),
                    Some(Received::Datagram(Datagram { payload: b"back", .. }))
                ));
            }
            // b has learnt a from its request, and uses that while it verifies it.
            let back = known(b.udp_path(NOW, to, from));
            assert!(matches!(
                receive(&mut a, NOW, &datagram(&back, b"x")),
                Some(Received::Datagram(_))
            ));
            assert_eq!(settle(NOW, &mut a, &mut b), 2);
            assert_eq!((a.drops().total(), b.drops().total()), (0, 0));
        }
    }
}

#[test]
fn headers_are_those_of_the_reprs() {
    let (mut a, mut b) = hosts(|_| ());
    let there = path(&mut a, &mut b, v4(1), v4(2));
    assert_eq!(there.payload_offset(), 42);
    let frame = datagram(&there, b"payload");
    let view = ipv4::View::new(&frame[14..]).unwrap();
    let ip = ipv4::Repr::parse(&view, true).unwrap();
    let mut again = [0; 20];
    ip.emit(&mut again);
    assert_eq!(again, frame[14..34]);
    assert_eq!(udp::View::new(view.payload()).unwrap().checksum(), 0);

    let there = path(&mut a, &mut b, v6(1), v6(2));
    assert_eq!(there.payload_offset(), 62);
    let frame = datagram(&there, b"payload");
    let view = ipv6::View::new(&frame[14..]).unwrap();
    let mut again = [0; 40];
    ipv6::Repr::parse(&view).unwrap().emit(&mut again);
    assert_eq!(again, frame[14..54]);
    assert_ne!(udp::View::new(view.payload()).unwrap().checksum(), 0);
    assert_eq!(a.udp_payload_bytes_max(v4(2).ip()), 1472);
    assert_eq!(a.udp_payload_bytes_max(v6(2).ip()), 1452);
}

#[test]
fn packets_may_be_marked_if_their_sender_understands() {
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let (mut a, mut b) = hosts(|_| ());
        let there = path(&mut a, &mut b, from, to);
        for (is_capable, expected) in [(false, Ecn::NotCapable), (true, Ecn::Capable)] {
            // The headers, checksums included, are still right.
            let frame = datagram_with(&there, b"payload", is_capable);
            let Some(Received::Datagram(received)) = receive(&mut b, NOW, &frame) else {
                panic!("{frame:x?}");
            };
            assert_eq!((received.payload, received.ecn), (&b"payload"[..], expected));
        }
    }
}

/// What a head takes for a datagram, of either kind.
fn found<'a>(head: &Head, frame: &'a [u8], is_verified: bool) -> Option<Datagram<'a>> {
    head.datagram_v4(frame).or_else(|| head.datagram_v6(frame, is_verified))
}

/// What differs from datagram to datagram may differ, and whatever a head takes for a datagram is
/// the one that is found without it.
#[test]
fn a_head_knows_the_datagrams_that_look_like_the_first() {
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let (mut a, mut b) = hosts(|_| ());
        let there = path(&mut a, &mut b, from, to);
        let head = Head::of(&datagram(&there, b"first")).expect("nothing more in it");
        for is_ecn_capable in [false, true] {
            for payload in [&b""[..], b"second", &[7; 1400]] {
                let mut frame = datagram_with(&there, payload, is_ecn_capable);
                frame.extend([0; 18]); // as Ethernet pads what is short
                let taken = found(&head, &frame, false).expect("it looks like the first");
                assert_eq!(taken, b.datagram(&frame, false).unwrap());
            }
        }
        let frame = datagram(&there, b"damaged");
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let mut frame = frame.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] = random.next_u32() as u8;
            }
            frame.truncate(random.below(2 * frame.len() as u64) as usize);
            for is_verified in [false, true] {
                if let Some(datagram) = found(&head, &frame, is_verified) {
                    let judged = b.datagram(&frame, is_verified);
                    assert_eq!(Ok(datagram), judged, "seed {seed}, {is_verified}");
                }
            }
        }
        let other_port = |address: SocketAddr| SocketAddr::new(address.ip(), PORT + 1);
        let of_ports = [(other_port(from), to), (from, other_port(to))]
            .map(|(from, to)| known(a.udp_path(NOW, from, to)));
        let (from, to) = if from.is_ipv4() { (v6(1), v6(2)) } else { (v4(1), v4(2)) };
        let of_other_family = path(&mut a, &mut b, from, to);
        for there in of_ports.iter().chain([&of_other_family]) {
            assert_eq!(found(&head, &datagram(there, b"another's"), false), None);
        }
    }
}

/// A segment from one port to another, as far as its headers go that IP knows.
fn segment(path: &Path, ports: [u16; 2], rest: &[u8], is_ecn_capable: bool) -> Vec<u8> {
    let mut frame = vec![0xaa; FRAME_BYTES_MAX];
    let behind: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    let behind = [&behind[..], rest].concat();
    frame[path.payload_offset()..][..behind.len()].copy_from_slice(&behind);
    let length = path.emit_headers(&mut frame, behind.len(), is_ecn_capable);
    frame.truncate(length);
    frame
}

/// The same of segments: what a head takes for one is the packet that is found without it, and its
/// digest has the same to say of whose it is, if it has a whole header.
#[test]
fn a_head_knows_the_segments_that_look_like_the_first() {
    let (mut a, mut b) = hosts(|_| ());
    let (from, to) = (v4(1), v4(2));
    path(&mut a, &mut b, from, to);
    let there = known(a.path(NOW, from.ip(), to.ip(), protocol::TCP));
    let ports = [from.port(), to.port()];
    let first = segment(&there, ports, &[0; 16], false);
    let head = SegmentHead::of(&first).expect("nothing more in it");
    let words = |frame: &[u8]| Digest::of(frame).words()[..PATTERN_WORDS].to_vec();
    let judge = |frame: &[u8], b: &Interface| {
        let Some(packet) = head.packet(frame) else { return false };
        assert_eq!(Ok(packet), b.packet(frame));
        let ends = SegmentHead::ends(frame).expect("it looks like the first");
        assert_eq!((SocketAddr::from(ends.0), SocketAddr::from(ends.1)), (to, from));
        if tcp::View::new(packet.payload).is_ok() {
            assert_eq!(words(frame), words(&first));
        }
        true
    };
    for is_ecn_capable in [false, true] {
        for rest in [&[1; 16][..], &[2; 80], &[3; 1456], &[4; 3]] {
            let mut frame = segment(&there, ports, rest, is_ecn_capable);
            frame.extend([0; 18]); // as Ethernet pads what is short
            assert!(judge(&frame, &b));
        }
    }
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut frame = segment(&there, ports, &[5; 40], false);
        for _ in 0..=random.below(3) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.next_u32() as u8;
        }
        frame.truncate(random.below(2 * frame.len() as u64) as usize);
        judge(&frame, &b);
    }
    for ports in [[PORT + 1, PORT], [PORT, PORT + 1]] {
        assert_eq!(head.packet(&segment(&there, ports, &[0; 16], false)), None);
    }
}

#[test]
fn there_is_no_head_for_other_segments_and_datagrams() {
    for (vlan, from, to) in [(Some(7), v4(1), v4(2)), (None, v6(1), v6(2))] {
        let (mut a, mut b) = hosts(|config| config.vlan = vlan);
        path(&mut a, &mut b, from, to);
        let there = known(a.path(NOW, from.ip(), to.ip(), protocol::TCP));
        let frame = segment(&there, [PORT; 2], &[0; 16], false);
        assert!(SegmentHead::of(&frame).is_none() && SegmentHead::ends(&frame).is_none());
    }
    let (mut a, mut b) = hosts(|_| ());
    let frame = datagram(&path(&mut a, &mut b, v4(1), v4(2)), b"payload");
    assert!(SegmentHead::of(&frame).is_none() && SegmentHead::ends(&frame).is_none());
}

/// In IPv6 a datagram has a checksum, which counts unless it is known to be right.
#[test]
fn a_head_sums_what_is_not_verified() {
    let (mut a, mut b) = hosts(|_| ());
    let there = path(&mut a, &mut b, v6(1), v6(2));
    let frame = datagram(&there, b"payload");
    let head = Head::of(&frame).expect("nothing more in it");
    let mut damaged = frame.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut without = frame;
    without[60..62].fill(0);
    for frame in [damaged, without] {
        assert_eq!(found(&head, &frame, false), None);
        assert_eq!(b.datagram(&frame, false), Err(Malformed::Checksum.into()));
        let taken = found(&head, &frame, true).expect("it is said to be right");
        assert_eq!(Ok(taken), b.datagram(&frame, true));
    }
}

#[test]
fn more_than_a_plain_head_is_none() {
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let (mut a, mut b) = hosts(|config| config.vlan = Some(7));
        let there = path(&mut a, &mut b, from, to);
        assert!(Head::of(&datagram(&there, b"payload")).is_none());
    }
    let (mut a, mut b) = hosts(|_| ());
    let mut frame = datagram(&path(&mut a, &mut b, v4(1), v4(2)), b"payload");
    frame[41] = 1; // UDP checksum
    assert!(Head::of(&frame).is_none());
    let mut frame = datagram(&path(&mut a, &mut b, v6(1), v6(2)), b"payload");
    frame[20] = 60; // destination options, RFC 8200, section 4.6
    assert!(Head::of(&frame).is_none());
}

#[test]
fn paths_are_asked_for_again() {
    let (mut a, mut b) = hosts(|_| ());
    let there = path(&mut a, &mut b, v4(1), v4(2));
    assert!(a.is_current(NOW, there.path()));
    assert!(!a.is_current(NOW + SECOND, there.path()));
    // After half a minute of use without confirmation, the neighbour is asked, and answers.
    let mut now = NOW;
    let mut frames = 0;
    for _ in 0..45 {
        now = now + SECOND;
        known(a.udp_path(now, v4(1), v4(2)));
        frames += settle(now, &mut a, &mut b);
    }
    assert_eq!(frames, 2);
    // With confirmation it is not.
    for _ in 0..90 {
        now = now + SECOND;
        let there = known(a.udp_path(now, v4(1), v4(2)));
        a.confirm(now, there.path());
        assert_eq!(settle(now, &mut a, &mut b), 0);
    }
}

#[test]
fn a_restarted_peer_with_another_mac_is_found_by_its_announcement() {
    let (mut a, mut b) = hosts(|_| ());
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let there = path(&mut a, &mut b, from, to);
        let mut moved = config(2);
        moved.mac = [2, 0, 0, 0, 0, 99];
        let mut moved = Interface::new(&moved);
        moved.handle_link_up(NOW);
        settle(NOW, &mut a, &mut moved);
        assert!(!a.is_current(NOW, there.path()));
        let there = known(a.udp_path(NOW, from, to));
        assert!(matches!(
            receive(&mut moved, NOW, &datagram(&there, b"x")),
            Some(Received::Datagram(_))
        ));
    }
}

#[test]
fn questions_that_were_lost_while_the_link_was_down_are_asked_again_when_it_is_up() {
    let (mut a, mut b) = hosts(|_| ());
    assert_eq!(a.udp_path(NOW, v4(1), v4(2)).map(drop), Resolution::Pending);
    assert_eq!(frames_of(&mut a).len(), 1, "and it is lost");
    a.handle_link_up(NOW);
    settle(NOW, &mut a, &mut b);
    known(a.udp_path(NOW, v4(1), v4(2)));
}

#[test]
fn nobody_answers() {
    let (mut a, _) = hosts(|_| ());
    assert_eq!(a.udp_path(NOW, v6(1), v6(9)).map(drop), Resolution::Pending);
    let mut frames = 0;
    let mut now = NOW;
    while a.udp_path(now, v6(1), v6(9)).map(drop) == Resolution::Pending {
        frames += frames_of(&mut a).len();
        now = a.poll_timeout().unwrap();
        a.handle_timeout(now);
    }
    assert_eq!(frames, 3);
    assert_eq!(now, NOW + 3 * SECOND);
    assert_eq!(a.udp_path(now, v6(1), v6(9)).map(drop), Resolution::Unreachable);
    let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
    assert_eq!(a.udp_path(now, v4(1), elsewhere).map(drop), Resolution::Unreachable);
}

#[test]
fn a_gateway_takes_what_is_not_on_the_link() {
    let (mut a, mut b) = hosts(|config| config.routes = vec![Route::default_via(v4(2).ip())]);
    let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
    let there = path(&mut a, &mut b, v4(1), elsewhere);
    let frame = datagram(&there, b"x");
    assert_eq!(frame[..6], b.mac());
    assert_eq!(receive(&mut b, NOW, &frame), None);
}

#[test]
fn a_silent_gateway_is_passed_over_for_the_next_best() {
    let gateways = [v4(8).ip(), v4(2).ip()].map(Route::default_via);
    let (mut a, mut b) = hosts(|config| config.routes = gateways.to_vec());
    let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
    let mut now = NOW;
    while a.route(elsewhere.ip()) == Some(v4(8).ip()) {
        assert_eq!(a.udp_path(now, v4(1), elsewhere).map(drop), Resolution::Pending);
        settle(now, &mut a, &mut b);
        now = a.poll_timeout().unwrap();
        a.handle_timeout(now);
    }
    assert_eq!(a.udp_path(now, v4(1), elsewhere).map(drop), Resolution::Pending);
    settle(now, &mut a, &mut b);
    let there = known(a.udp_path(now, v4(1), elsewhere));
    assert_eq!(datagram(&there, b"x")[..6], b.mac());
}

#[test]
fn routes_have_an_mtu_of_their_own() {
    let mut config = config(1);
    let to = Ipv4Addr::new(192, 0, 2, 0).into();
    let route = Route { mtu: Some(1400), ..Route::default_via(v4(2).ip()) };
    config.routes =
        vec![Route { to, prefix_bits: 24, ..route }, Route { mtu: Some(9000), ..route }];
    let a = Interface::new(&config);
    let bytes = |to: [u8; 4]| a.udp_payload_bytes_max(Ipv4Addr::from(to).into());
    assert_eq!(
        [bytes([192, 0, 2, 9]), bytes([198, 51, 100, 1]), bytes([10, 0, 0, 2])],
        [1372, 1472, 1472]
    );
}

#[test]
fn a_changed_network_is_taken_over() {
    let (mut a, mut b) = hosts(|_| ());
    let there = path(&mut a, &mut b, v4(1), v4(2));
    let added = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
    let mut changed = Config { mtu: 1300, ..config(1) };
    changed.addresses.push((added, 24));
    changed.routes.push(Route::default_via(v4(2).ip()));
    a.reconfigure(&changed);
    assert!(a.is_own(added) && !a.is_current(NOW, there.path()));
    // The new address is probed and announced, the others are known.
    let told = frames_of(&mut a);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|frame| frame.ends_with(&[10, 9, 0, 1])));
    // The neighbour is still known, and there is a route now.
    known(a.udp_path(NOW, v4(1), v4(2)));
    let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), PORT);
    known(a.udp_path(NOW, v4(1), elsewhere));
    assert_eq!(a.udp_payload_bytes_max(v4(2).ip()), 1272);

    // What is not its own any more it neither receives at nor sends from.
    changed.addresses.remove(0);
    a.reconfigure(&changed);
    assert_eq!(a.udp_path(NOW, v4(1), elsewhere).map(drop), Resolution::Unreachable);
    let back = datagram(&known(b.udp_path(NOW, v4(2), v4(1))), b"x");
    assert_eq!(receive(&mut a, NOW, &back), None);
}

#[test]
fn what_a_host_tells_a_group_is_no_news_to_itself() {
    let (mut a, mut b) = hosts(|_| ());
    a.handle_link_up(NOW);
    let told = frames_of(&mut a);
    assert_eq!(told.len(), 4, "a probe and an announcement for each address");
    for frame in &told {
        assert!(matches!(receive(&mut a, NOW, frame), None | Some(Received::Consumed)));
    }
    assert!(!a.has_output() && a.poll_conflict().is_none());
    // Others hear of it, and have nothing to say.
    told.iter().for_each(|frame| _ = receive(&mut b, NOW, frame));
    assert!(!b.has_output() && b.poll_conflict().is_none());
}

#[test]
fn only_one_engine_of_a_nic_speaks_for_the_host() {
    let (_, mut b) = hosts(|_| ());
    let mut silent = Interface::silent(&config(1));
    silent.handle_link_up(NOW);
    assert!(!silent.has_output(), "another engine announces the addresses");
    let mut other = config(1);
    other.mac = [2, 0, 0, 0, 0, 77];
    let mut other = Interface::new(&other);
    other.handle_link_up(NOW);
    for frame in frames_of(&mut other) {
        receive(&mut silent, NOW, &frame);
    }
    assert_eq!(silent.poll_conflict(), None, "another engine tells of it");
    // But it answers, and asks.
    frames_of(&mut silent);
    assert!(matches!(b.udp_path(NOW, v4(2), v4(1)), Resolution::Pending));
    for question in frames_of(&mut b) {
        receive(&mut silent, NOW, &question);
    }
    assert_eq!(frames_of(&mut silent).len(), 1, "an answer");
}

#[test]
fn who_uses_an_own_address_too_is_found_out_and_told() {
    for own in [v4(1).ip(), v6(1).ip()] {
        let (mut a, _) = hosts(|config| {
            config.addresses.retain(|(address, _)| address.is_ipv4() == own.is_ipv4())
        });
        // Another host with the same address comes up.
        let mut other = config(1);
        other.mac = [2, 0, 0, 0, 0, 77];
        other.addresses.retain(|(address, _)| address.is_ipv4() == own.is_ipv4());
        let mut other = Interface::new(&other);
        other.handle_link_up(NOW);
        settle(NOW, &mut a, &mut other);
        assert_eq!(a.poll_conflict(), Some(Conflict { address: own, mac: other.mac() }));
        assert_eq!(other.poll_conflict(), Some(Conflict { address: own, mac: a.mac() }));
        assert!(a.drops().of(DropReason::Conflict) > 0);
        // They do not go on about it.
        other.handle_link_up(NOW + SECOND);
        assert!(settle(NOW + SECOND, &mut a, &mut other) <= 3);
        assert_eq!(a.poll_conflict(), None);
    }
}

/// A ping of `to`, written by hand: the interface sends none.
fn echo_request(from: &Interface, to: &Interface, source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let echo = icmpv4::Echo { identifier: 5, sequence: 6, data: b"data" };
    let is_v4 = source.is_ipv4();
    let ether_type = if is_v4 { ether_type::IPV4 } else { ether_type::IPV6 };
    let link = ethernet::Repr { destination: to.mac(), source: from.mac(), ether_type };
    let mut length = link.emit(&mut frame);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let message = icmpv4::Repr::EchoRequest(echo);
            let (protocol, payload_length) = (protocol::ICMPV4, message.length() as u16);
            let ip = ipv4::Repr { source, destination, protocol, hop_limit: 64, payload_length };
            length += ip.emit(&mut frame[length..]);
            length += message.emit(&mut frame[length..]);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let message = icmpv6::Repr::EchoRequest(echo);
            let (protocol, payload_length) = (protocol::ICMPV6, message.length() as u16);
            let ip = ipv6::Repr { source, destination, protocol, hop_limit: 64, payload_length };
            length += ip.emit(&mut frame[length..]);
            length += message.emit(&mut frame[length..], source, destination);
        }
        _ => panic!("of two families"),
    }
    frame.truncate(length);
    frame
}

#[test]
fn pings_are_answered() {
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let (mut a, mut b) = hosts(|_| ());
        path(&mut a, &mut b, from, to);
        let request = echo_request(&a, &b, from.ip(), to.ip());
        assert_eq!(receive(&mut b, NOW, &request), Some(Received::Consumed));
        let reply = frames_of(&mut b).remove(0);
        assert!(reply.ends_with(b"data"));
        // This host has not asked, and says so.
        assert_eq!(receive(&mut a, NOW, &reply), dropped(DropReason::Unsolicited));

        // A flood is answered up to a point; then the outbox is full, then the rate too high.
        for _ in 0..500 {
            receive(&mut b, NOW, &request);
            if b.drops().of(DropReason::OutboxFull) == 1 {
                frames_of(&mut b);
            }
        }
        assert!(b.drops().of(DropReason::OutboxFull) > 0);
        assert!(b.drops().of(DropReason::RateLimit) > 300);
        frames_of(&mut b);
        // Who floods with pings does not keep others from finding this host.
        let (mut c, _) = hosts(|config| config.mac = [2, 0, 0, 0, 0, 3]);
        assert_eq!(c.udp_path(NOW, from, to).map(drop), Resolution::Pending);
        assert_eq!(settle(NOW, &mut c, &mut b), 2);
    }
}

#[test]
fn refusals_reach_the_sender() {
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        let (mut a, mut b) = hosts(|_| ());
        let nobody = SocketAddr::new(to.ip(), PORT + 1);
        let there = path(&mut a, &mut b, from, nobody);
        for payload in [&b"hello"[..], &[7; 1400]] {
            let frame = datagram(&there, payload);
            assert_eq!(receive(&mut b, NOW, &frame), Some(Received::Consumed));
            let refusal = frames_of(&mut b).remove(0);
            let Some(Received::NetworkError(error)) = receive(&mut a, NOW, &refusal) else {
                panic!()
            };
            assert_eq!(error.kind, NetworkErrorKind::PortUnreachable);
            assert_eq!(error.reporter, to.ip());
            let quoted = error.datagram().expect("it was a datagram");
            assert_eq!((quoted.source, quoted.destination), (from, nobody));
            assert!(!quoted.payload.is_empty() && payload.starts_with(quoted.payload));
            // The same about somebody else's packet is nothing to us.
            let (_, mut c) = hosts(|config| config.mac = [2, 0, 0, 0, 0, 1]);
            c.addresses = Addresses::new(&config(3));
            assert!(!matches!(receive(&mut c, NOW, &refusal), Some(Received::NetworkError(_))));
        }
    }
}

/// Of what the kernel has as well, so much is looked at in a time and the rest is counted.
#[test]
fn errors_that_the_kernel_has_too_are_heard_at_a_bounded_rate() {
    let (mut shared, mut b) = hosts(|_| ());
    let there = path(&mut shared, &mut b, v4(1), SocketAddr::new(v4(2).ip(), PORT + 1));
    assert_eq!(receive(&mut b, NOW, &datagram(&there, b"x")), Some(Received::Consumed));
    let refusal = frames_of(&mut b).remove(0);
    let mut config = config(1);
    config.kernel_shares = true;
    shared.reconfigure(&config);
    let mut heard = |now: Time, count: usize| {
        (0..count).filter(|_| shared.handle_undelivered(now, &refusal).is_ok()).count()
    };
    // A tenth of a second's at once, and the rest in time.
    assert_eq!(heard(NOW, 5000), UNDELIVERED_PER_SECOND as usize / 10);
    assert_eq!(heard(NOW + SECOND / 100, 5000), UNDELIVERED_PER_SECOND as usize / 100);
    let outcome = shared.handle_undelivered(NOW + SECOND / 100, &refusal);
    assert_eq!(outcome, Err(DropReason::RateLimit));
}

#[test]
fn the_kernel_answers_where_it_shares() {
    let (mut a, mut b) = hosts(|_| ());
    let there = path(&mut a, &mut b, v4(1), v4(2));
    let (_, mut shared) = hosts(|config| config.kernel_shares = true);
    // Messages are ours; ARP, ping, and unknown ports are none of our business.
    let (mut other, _) = hosts(|_| ());
    other.udp_path(NOW, v4(1), v4(2)).map(drop);
    let mut frames = frames_of(&mut other);
    frames.push(echo_request(&a, &shared, v4(1).ip(), v4(2).ip()));
    let nobody = SocketAddr::new(v4(2).ip(), PORT + 1);
    frames.push(datagram(&known(a.udp_path(NOW, v4(1), nobody)), b"x"));
    for frame in &frames {
        assert_eq!(receive(&mut shared, NOW, frame), None);
    }
    let frame = datagram(&there, b"x");
    assert!(matches!(receive(&mut shared, NOW, &frame), Some(Received::Datagram(_))));
    shared.handle_link_up(NOW);
    assert!(!shared.has_output());

    // Its neighbours are asked for once per attempt, and through the kernel.
    assert_eq!(shared.resolve(NOW, v4(1).ip()), Resolution::Pending);
    assert_eq!(shared.resolve(NOW, v4(1).ip()), Resolution::Pending);
    assert!(shared.has_output());
    assert!(frames_of(&mut shared).is_empty());
    assert_eq!(shared.poll_wanted(), Some(v4(1).ip()));
    assert_eq!(shared.poll_wanted(), None);
    shared.handle_timeout(NOW + SECOND);
    assert_eq!(shared.poll_wanted(), Some(v4(1).ip()));
    shared.learn(NOW + SECOND, v4(1).ip(), a.mac());
    assert_eq!(shared.resolve(NOW + SECOND, v4(1).ip()), Resolution::Known(a.mac()));
}

/// What a kernel routes itself goes to the kernel at once, whoever the next hop would be.
#[test]
fn a_kernel_that_routes_is_asked_nothing() {
    const ROUTER: MacAddress = [2, 0, 0, 0, 0, 77];
    let (mut routed, _) = hosts(|config| {
        (config.kernel_shares, config.router) = (true, Some(ROUTER));
        config.routes = vec![Route::default_via(v4(254).ip())];
    });
    for peer in [v4(2), SocketAddr::new([192, 0, 2, 1].into(), PORT)] {
        let path = known(routed.udp_path(NOW, v4(1), peer));
        assert_eq!(datagram(&path, b"x")[..6], ROUTER);
        routed.confirm(NOW, path.path());
        assert!(routed.is_current(NOW, path.path()));
    }
    routed.handle_timeout(NOW + SECOND);
    assert!(!routed.has_output());
    assert_eq!(routed.poll_wanted(), None);
    // It would have to be told the interface.
    let of_a_link: IpAddr = "fe80::2".parse().unwrap();
    assert_eq!((routed.rank(of_a_link), routed.route(of_a_link)), (None, None));
}

#[derive(Debug, PartialEq)]
enum Fate {
    Taken,
    Dropped(DropReason),
    /// No entry of the table is about it.
    Nobodys,
}

#[test]
fn what_is_not_for_us_is_dropped_and_counted() {
    let (mut a, mut b) = hosts(|_| ());
    let there = path(&mut a, &mut b, v4(1), v4(2));
    let good = datagram(&there, b"hello");
    let mut judge = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        // The header checksum is made right again, so that the change is seen.
        frame[24..26].fill(0);
        let sum = clearway_wire::checksum::Sum::new().with(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        match receive(&mut b, NOW, &frame) {
            Some(Received::Dropped(reason)) => {
                assert!(b.drops().of(reason) > 0);
                Fate::Dropped(reason)
            }
            Some(_) => Fate::Taken,
            None => Fate::Nobodys,
        }
    };
    let malformed = |reason: Malformed| Fate::Dropped(reason.into());
    assert_eq!(judge(&|_| ()), Fate::Taken);
    assert_eq!(judge(&|frame| frame[5] = 9), Fate::Nobodys);
    // RFC 1122, section 3.3.6: "A host SHOULD silently discard a datagram that is received via a
    // link-layer broadcast [...] but does not specify an IP multicast or broadcast destination".
    assert_eq!(judge(&|frame| frame[..6].fill(0xff)), Fate::Nobodys);
    assert_eq!(judge(&|frame| frame[6] = 1), malformed(Malformed::Address));
    assert_eq!(judge(&|frame| frame[12] = 9), Fate::Nobodys);
    assert_eq!(judge(&|frame| frame[20] = 0x20), malformed(Malformed::Fragment));
    assert_eq!(judge(&|frame| frame[23] = protocol::TCP), Fate::Nobodys);
    assert_eq!(judge(&|frame| frame[33] = 9), Fate::Nobodys);
    for source in [[10, 0, 0, 2], [10, 0, 0, 255], [255; 4], [127, 0, 0, 1], [0; 4], [224, 0, 0, 1]]
    {
        let spoofed = judge(&|frame| frame[26..30].copy_from_slice(&source));
        assert_eq!(spoofed, Fate::Dropped(DropReason::SourceAddress), "{source:?}");
    }
    assert_eq!(judge(&|frame| frame[40] = 1), malformed(Malformed::Checksum));
    assert_eq!(judge(&|frame| frame.truncate(44)), Fate::Nobodys);
    let tagged = |tag: u16| {
        move |frame: &mut Vec<u8>| {
            let mut bytes = ether_type::VLAN.to_be_bytes().to_vec();
            bytes.extend_from_slice(&tag.to_be_bytes());
            frame.splice(12..12, bytes);
        }
    };
    // The helper mends the checksum at the wrong place here, which these do not reach.
    assert_eq!(judge(&tagged(5)), Fate::Nobodys);
    assert_eq!(judge(&tagged(0xfff)), Fate::Nobodys);

    let mut frame = good.clone();
    frame[24] ^= 1;
    assert_eq!(receive(&mut b, NOW, &frame), dropped(Malformed::Checksum));
    let (_, mut trusting) = hosts(|config| config.receive_checksum = true);
    assert!(matches!(receive(&mut trusting, NOW, &frame), Some(Received::Datagram(_))));
}

#[test]
fn priority_tags_are_ignored() {
    let (mut a, mut b) = hosts(|_| ());
    let mut frame = datagram(&path(&mut a, &mut b, v4(1), v4(2)), b"hello");
    frame.splice(12..12, [0x81, 0x00, 0xa0, 0x00]);
    assert!(matches!(receive(&mut b, NOW, &frame), Some(Received::Datagram(_))));
}

#[test]
fn neighbour_discovery_from_afar_is_dropped() {
    let (mut a, mut b) = hosts(|_| ());
    a.udp_path(NOW, v6(1), v6(2)).map(drop);
    let mut frame = frames_of(&mut a).remove(0);
    frame[21] = 254;
    assert_eq!(receive(&mut b, NOW, &frame), dropped(DropReason::HopLimit));
    assert!(!b.has_output());
}

#[test]
fn unasked_answers_change_nothing() {
    let (mut a, mut b) = hosts(|_| ());
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        a.udp_path(NOW, from, to).map(drop);
        let question = frames_of(&mut a).remove(0);
        receive(&mut b, NOW, &question);
        let answer = frames_of(&mut b).remove(0);
        let (mut unasking, _) = hosts(|_| ());
        let taken = receive(&mut unasking, NOW, &answer);
        assert_eq!(taken, dropped(DropReason::Unsolicited));
        assert_eq!(receive(&mut a, NOW, &answer), Some(Received::Consumed));
        let taken = receive(&mut a, NOW, &answer);
        assert_eq!(taken, dropped(DropReason::Unsolicited));
    }
}

/// Every kind of frame, with a few bytes changed or cut: nothing panics, and what is dropped is
/// counted. A failure names the seed.
#[test]
fn damaged_frames_never_panic() {
    let (mut a, mut b) = hosts(|_| ());
    let mut frames = Vec::new();
    for (from, to) in [(v4(1), v4(2)), (v6(1), v6(2))] {
        a.udp_path(NOW, from, to).map(drop);
        frames.append(&mut frames_of(&mut a));
        receive(&mut b, NOW, frames.last().unwrap());
        let answers = frames_of(&mut b);
        receive(&mut a, NOW, &answers[0]);
        frames.extend(answers);
        let frame = datagram(&known(a.udp_path(NOW, from, to)), b"payload");
        let nobody = SocketAddr::new(to.ip(), PORT + 1);
        let refused = datagram(&known(a.udp_path(NOW, from, nobody)), b"payload");
        receive(&mut b, NOW, &refused);
        frames.push(echo_request(&a, &b, from.ip(), to.ip()));
        frames.append(&mut frames_of(&mut b));
        frames.push(frame);
    }
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut frame = frames[random.below(frames.len() as u64) as usize].clone();
        for _ in 0..random.below(4) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.next_u32() as u8;
        }
        if random.chance(1, 4) {
            frame.truncate(random.below(frame.len() as u64 + 1) as usize);
        }
        let mut receiver =
            Interface::new(&Config { receive_checksum: random.chance(3, 4), ..config(2) });
        let taken = receive(&mut receiver, NOW, &frame);
        let dropped = u64::from(matches!(taken, Some(Received::Dropped(_))));
        assert_eq!(receiver.drops().total(), dropped, "seed {seed}");
        frames_of(&mut receiver);
    }
}

/// Neither ARP, neighbour discovery nor a datagram is taken from an address of the host's other
/// NIC.
#[test]
fn nobody_on_the_link_has_an_address_of_another_nic() {
    let (mut host, mut stranger) = (Interface::new(&config(1)), Interface::new(&config(7)));
    let datagrams = [(v4(7), v4(1)), (v6(7), v6(1))].map(|(from, to)| {
        let mac = host.mac();
        let source = Datagram {
            source: to,
            destination: from,
            payload: &[],
            ecn: Ecn::NotCapable,
            source_mac: mac,
            packet: &[],
        };
        datagram(&stranger.udp_path_back(&source), b"")
    });
    host.set_elsewhere(&[v4(7).ip(), v6(7).ip()]);
    for (from, to) in [(v4(7), v4(1)), (v6(7), v6(1))] {
        assert_eq!(stranger.udp_path(NOW, from, to).map(drop), Resolution::Pending);
        for question in frames_of(&mut stranger) {
            assert_eq!(receive(&mut host, NOW, &question), dropped(DropReason::SourceAddress));
        }
    }
    for datagram in datagrams {
        assert_eq!(receive(&mut host, NOW, &datagram), dropped(DropReason::SourceAddress));
    }
    host.set_elsewhere(&[]);
    stranger.handle_timeout(NOW + SECOND);
    assert_eq!(settle(NOW + SECOND, &mut stranger, &mut host), 4, "two questions, two answers");
}

/// Packets of a protocol that this crate knows nothing of, both ways, and errors about them.
#[test]
fn paths_are_for_any_protocol() {
    const PROTOCOL: u8 = 253; // RFC 3692: for experiments
    for vlan in [None, Some(7)] {
        for (from, to) in [(v4(1).ip(), v4(2).ip()), (v6(1).ip(), v6(2).ip())] {
            let (mut a, mut b) = hosts(|config| config.vlan = vlan);
            assert_eq!(a.path(NOW, from, to, PROTOCOL).map(drop), Resolution::Pending);
            settle(NOW, &mut a, &mut b);
            let there = known(a.path(NOW, from, to, PROTOCOL));
            for (payload, is_ecn_capable) in [(&b""[..], true), (b"odd", false), (&[7; 1400], true)]
            {
                let frame = packet(&there, payload, is_ecn_capable);
                let received = b.packet(&frame).expect("valid");
                assert_eq!((received.source, received.destination), (from, to));
                assert_eq!((received.protocol, received.payload), (PROTOCOL, payload));
                assert_eq!(received.ecn == Ecn::Capable, is_ecn_capable);
                let back = packet(&b.path_back(&received), b"back", false);
                let answer = a.packet(&back).expect("valid");
                assert_eq!((answer.payload, answer.source), (&b"back"[..], to));
            }
        }
    }
}

fn packet(path: &Path, payload: &[u8], is_ecn_capable: bool) -> Vec<u8> {
    let mut frame = vec![0xaa; FRAME_BYTES_MAX];
    frame[path.payload_offset()..][..payload.len()].copy_from_slice(payload);
    let length = path.emit_headers(&mut frame, payload.len(), is_ecn_capable);
    frame.truncate(length);
    frame
}

#[test]
fn an_interface_that_is_made_again_goes_on() {
    let (mut a, mut b) = hosts(|_| ());
    let again = |host: &mut Interface, number| {
        let saved = host.save();
        let made = Interface::new(&config(number)).restore(saved.clone(), NOW);
        *host = made.expect("just saved");
        assert_eq!(host.save(), saved);
    };
    assert_eq!(a.udp_path(NOW, v4(1), v4(2)).map(drop), Resolution::Pending);
    again(&mut a, 1); // with its question
    for frame in frames_of(&mut a) {
        assert_eq!(receive(&mut b, NOW, &frame), Some(Received::Consumed));
    }
    again(&mut b, 2); // with its answer
    for frame in frames_of(&mut b) {
        assert_eq!(receive(&mut a, NOW, &frame), Some(Received::Consumed));
    }
    again(&mut a, 1); // with what it has learnt
    assert_eq!(a.poll_settled(), Some((v4(2).ip(), true)));
    let there = known(a.udp_path(NOW, v4(1), v4(2)));
    assert_eq!(datagram(&there, b"x")[..6], b.mac());
    let conflict = echo_request(&a, &b, v4(2).ip(), v4(2).ip());
    let reason = DropReason::SourceAddress;
    assert_eq!(receive(&mut b, NOW, &conflict), dropped(reason));
    again(&mut b, 2);
    assert_eq!(b.drops().of(reason), 1);
    let spent = (0..1000).filter(|_| b.echo_answers.take(NOW)).count();
    again(&mut b, 2);
    assert!(spent > 0 && !b.echo_answers.take(NOW), "what is spent stays so");
    let mut saved = b.save();
    saved.outbox.push(vec![0; OWN_FRAME_BYTES_MAX + 1]);
    assert!(Interface::new(&config(2)).restore(saved, NOW).is_err());
}
