//! The driver over the kernel's UDP sockets: conformance over a veth pair, and what is its own over
//! loopback, which needs no privilege.

mod conformance;
mod veth;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use clearway_nic::interface::Namespace;
use clearway_nic::udp::{self, Config, OWN_MAC, ROUTER_MAC};
use clearway_nic::{Error, Queue, Transmit, af_packet};
use conformance::Pair;
use veth::{INTERFACE, IPV4, IPV6, Veth, ip};

/// A port from which packets leave.
const SOURCE_PORT: u16 = 50_000;

fn open_one(config: &Config) -> Box<dyn Queue> {
    let mut queues = udp::open(config).expect("sockets can be had");
    assert_eq!(queues.len(), 1);
    queues.remove(0)
}

fn within(space: &Namespace, config: &Config) -> Box<dyn Queue> {
    space.within(|| open_one(config)).expect("entered")
}

#[test]
fn conforms() {
    let pair = |veth: Veth| {
        let config = Config::new(conformance::UDP_PORT);
        let (a, b) = (within(&veth.near, &config), within(&veth.far, &config));
        Pair { a, b, cut: None, keep: Box::new(veth) }
    };
    if Veth::new().is_some() {
        conformance::run(|| pair(Veth::new().expect("root")));
    }
}

/// Two queues over loopback, each at an address of its own, and the port of both. Tests of other
/// programs may have any port.
fn pair_on_loopback() -> ([Box<dyn Queue>; 2], [Ipv4Addr; 2], u16) {
    let addresses = [Ipv4Addr::new(127, 77, 0, 1), Ipv4Addr::new(127, 77, 0, 2)];
    for port in 20_000.. {
        let at = |address: Ipv4Addr| {
            let config = Config { address: Some(address.into()), ..Config::new(port) };
            udp::open(&config).map(|mut queues| queues.remove(0))
        };
        if let (Ok(a), Ok(b)) = (at(addresses[0]), at(addresses[1])) {
            return ([a, b], addresses, port);
        }
    }
    panic!("all ports are taken")
}

/// A datagram in a frame with this byte for "type of service".
fn frame(way: [IpAddr; 2], ports: [u16; 2], class: u8, payload: &[u8]) -> Vec<u8> {
    let datagram_bytes = (8 + payload.len()) as u16;
    let mut frame = [OWN_MAC, ROUTER_MAC].concat();
    match way {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            frame.extend([0x08, 0, 0x45, class]);
            frame.extend((20 + datagram_bytes).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            let checksum = veth::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        [IpAddr::V6(from), IpAddr::V6(to)] => {
            frame.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0]);
            frame.extend(datagram_bytes.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => panic!("two families"),
    }
    ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
    frame.extend(datagram_bytes.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn queue(queue: &mut dyn Queue, frame: &[u8]) {
    let outcome = queue.transmit(&mut |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert_eq!(outcome, Transmit::Queued);
}

/// The next `count` frames.
fn receive(queue: &mut dyn Queue, count: usize) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    veth::until("all frames have arrived", || {
        queue.receive(64, &mut |burst, _| frames.extend(burst.iter().map(|frame| frame.to_vec())));
        frames.len() >= count
    });
    frames
}

fn source_port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

/// Takes the port out, which is another on the wire.
fn without_port(mut frame: Vec<u8>) -> Vec<u8> {
    let at = if frame[12] == 0x08 { 34 } else { 54 };
    frame[at..at + 2].fill(0);
    frame
}

#[test]
fn packets_of_several_sizes_flows_and_marks_arrive_as_they_were() {
    let ([mut a, mut b], [from, to], port) = pair_on_loopback();
    let way = [from.into(), to.into()];
    let mut frames = Vec::new();
    // Runs of one size that end with a shorter one, or with a longer one, or with another mark.
    for (size, class, count) in
        [(1000, 0, 5), (400, 0, 1), (900, 0, 3), (901, 2, 70), (901, 1, 2), (1, 3, 3), (0, 0, 2)]
    {
        for number in 0..count {
            frames.push(frame(way, [SOURCE_PORT, port], class, &vec![number; size]));
        }
    }
    frames.iter().for_each(|frame| queue(&mut *a, frame));
    a.flush();
    let arrived = receive(&mut *b, frames.len());
    let port = source_port(&arrived[0]);
    assert!(port >= 49_152, "{port}");
    assert!(arrived.iter().all(|frame| source_port(frame) == port), "one flow, one port");
    let expected: Vec<_> = frames.into_iter().map(without_port).collect();
    assert_eq!(arrived.into_iter().map(without_port).collect::<Vec<_>>(), expected);
}

/// How many frames each look brings. Those that ask for nothing come from plain sockets, whose
/// packets nobody puts together.
#[test]
fn a_look_takes_one_packet_until_there_are_more() {
    let ([_, mut b], [_, address], port) = pair_on_loopback();
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut look = |count: usize| {
        (0..count).for_each(|number| {
            stranger.send_to(&[number as u8; 10], (address, port)).expect("sent");
        });
        let mut numbers = Vec::new();
        let mut show = |burst: &[&[u8]], _| numbers.extend(burst.iter().map(|frame| frame[42]));
        let looks: Vec<usize> = (0..6).map(|_| b.receive(32, &mut show)).collect();
        assert_eq!(numbers, Vec::from_iter(0..count as u8), "in order, each once");
        looks
    };
    assert_eq!(look(1), [1, 0, 0, 0, 0, 0]);
    assert_eq!(look(60), [1, 4, 32, 23, 0, 0]);
    assert_eq!(look(1), [1, 0, 0, 0, 0, 0], "as before");
}

#[test]
fn the_port_that_a_peer_has_seen_is_found_again() {
    let ([mut a, mut b], [from, to], port) = pair_on_loopback();
    let way = [from.into(), to.into()];
    let mut seen = Vec::new();
    for asked in (SOURCE_PORT..SOURCE_PORT + 500).chain([port]) {
        queue(&mut *a, &frame(way, [asked, port], 0, b"who am I?"));
        a.flush();
        seen.push(source_port(&receive(&mut *b, 1)[0]));
    }
    assert_eq!(seen.pop(), Some(port), "the own port is itself");
    let (first, mut distinct) = (seen[0], seen.clone());
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 48, "{} ports of 64 are in use", distinct.len());
    for known in distinct {
        queue(&mut *a, &frame(way, [known, port], 0, b"you know me"));
        a.flush();
        assert_eq!(source_port(&receive(&mut *b, 1)[0]), known);
    }
    queue(&mut *a, &frame(way, [SOURCE_PORT, port], 0, b"again"));
    a.flush();
    assert_eq!(source_port(&receive(&mut *b, 1)[0]), first, "always the same");
}

#[test]
fn what_is_no_datagram_is_dropped_and_counted() {
    let ([mut a, mut b], [from, to], port) = pair_on_loopback();
    let way = [from.into(), to.into()];
    let good = frame(way, [SOURCE_PORT, port], 0, b"good");
    let changed = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    // ARP, TCP, a length that is wrong, and a frame that is cut off.
    for bad in [changed(13, 6), changed(23, 6), changed(39, 200), good[..30].to_vec()] {
        queue(&mut *a, &bad);
    }
    queue(&mut *a, &good);
    a.flush();
    assert_eq!(receive(&mut *b, 1).into_iter().map(without_port).next(), Some(without_port(good)));
    let counters = a.counters();
    assert_eq!((counters.tx_frames, counters.tx_frames_dropped), (1, 4));
}

#[test]
fn refusals_of_the_peers_kernel_stop_nobody() {
    let ([mut a, mut b], [from, to], port) = pair_on_loopback();
    let nobody = frame([from.into(), to.into()], [SOURCE_PORT, 9], 0, b"is there anybody?");
    let way = [from.into(), to.into()];
    for number in 0..100 {
        queue(&mut *a, &nobody);
        a.flush();
        let good = frame(way, [SOURCE_PORT, port], 0, &[number; 100]);
        queue(&mut *a, &good);
        a.flush();
        let arrived = receive(&mut *b, 1).remove(0);
        assert_eq!(without_port(arrived), without_port(good));
    }
    assert_eq!(a.counters().tx_frames_dropped, 0);
}

#[test]
fn a_stranger_may_send_anything_from_anywhere() {
    let ([_, mut b], [_, to], port) = pair_on_loopback();
    let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
    // Longer than a frame, whole IP packets, and nothing at all.
    for length in [60_000, 0, 1473, 1472, 1] {
        stranger.send_to(&vec![7; length], (to, port)).expect("sent");
    }
    let lengths: Vec<_> = receive(&mut *b, 3).iter().map(|frame| frame.len() - 42).collect();
    assert_eq!(lengths, [0, 1472, 1]);
    assert_eq!(b.counters().rx_frames_dropped, 2);
}

/// Of what cannot be shown a look takes no more than about as much as it may show.
#[test]
fn a_look_ends_whatever_a_stranger_sends() {
    let ([_, mut b], [_, to], port) = pair_on_loopback();
    let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
    let sent = 100;
    for _ in 0..sent {
        stranger.send_to(&[7; 1473], (to, port)).expect("loopback takes all");
    }
    let mut before = 0;
    veth::until("all have been taken", || {
        assert_eq!(b.receive(4, &mut |frames, _| panic!("{frames:x?} are too long")), 0);
        let dropped = b.counters().rx_frames_dropped;
        assert!(dropped - before < 32, "{} at once", dropped - before);
        before = dropped;
        dropped == sent
    });
}

#[test]
fn what_the_kernel_has_no_room_for_is_counted() {
    let ([_, mut b], [_, to], port) = pair_on_loopback();
    let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
    let sent = 20_000;
    for _ in 0..sent {
        stranger.send_to(&[7; 1000], (to, port)).expect("loopback takes all");
    }
    let mut arrived = 0;
    while b.receive(64, &mut |frames, _| arrived += frames.len() as u64) > 0 {}
    assert!(arrived < sent, "the socket has no end");
    let counters = b.counters();
    assert_eq!((counters.rx_frames, counters.rx_frames_dropped), (arrived, sent - arrived));
}

#[test]
fn several_queues_share_a_port_and_nobody_else_has_it() {
    let address = IpAddr::from([127, 77, 0, 3]);
    let (config, mut queues) = (20_000..)
        .find_map(|port| {
            let config = Config { address: Some(address), queues: 4, ..Config::new(port) };
            udp::open(&config).ok().map(|queues| (config, queues))
        })
        .expect("a port is free");
    let second = udp::open(&config).map(|_| ()).expect_err("it is taken");
    assert!(second.to_string().contains("perhaps another clearwayd"), "{second}");
    let (mut sent, mut arrived) = (0, [0; 4]);
    while arrived.contains(&0) {
        let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
        stranger.send_to(b"to somebody", (address, config.port)).expect("sent");
        sent += 1;
        assert!(sent < 1000, "some queues have nothing: {arrived:?}");
        for (queue, arrived) in queues.iter_mut().zip(&mut arrived) {
            *arrived += queue.receive(64, &mut |_, _| ());
        }
    }
    assert_eq!(arrived.iter().sum::<usize>(), sent);
}

#[test]
fn what_is_too_large_for_the_path_is_told_like_a_router_would() {
    let Some(veth) = Veth::new() else { return };
    let port = conformance::UDP_PORT;
    let config = Config { mtu_bytes: 9000, ..Config::new(port) };
    let (mut a, mut b) = (within(&veth.near, &config), within(&veth.far, &config));
    let ways: [[IpAddr; 2]; 2] =
        [[[10, 77, 0, 1].into(), [10, 77, 0, 2].into()], [IPV6[0].into(), IPV6[1].into()]];
    for way in ways {
        let headers = if way[0].is_ipv4() { 28 } else { 48 };
        // Alone, and as one message of several.
        for count in [1, 3] {
            let large = frame(way, [SOURCE_PORT, port], 0, &[1; 2000]);
            (0..count).for_each(|_| queue(&mut *a, &large));
            a.flush();
            for told in receive(&mut *a, count) {
                let (icmp, mtu) = if way[0].is_ipv4() {
                    (&told[34..], u16::from_be_bytes([told[40], told[41]]))
                } else {
                    (&told[54..], u16::from_be_bytes([told[60], told[61]]))
                };
                assert_eq!(icmp[..2], if way[0].is_ipv4() { [3, 4] } else { [2, 0] });
                assert_eq!(mtu, 1500);
                let quote = &icmp[8..];
                assert_eq!(quote, &large[14..14 + quote.len()]);
            }
        }
        // Its mark too arrives as it was, be it of IPv4 or IPv6.
        let fits = frame(way, [SOURCE_PORT, port], 2, &vec![2; 1500 - headers]);
        queue(&mut *a, &fits);
        a.flush();
        let arrived = receive(&mut *b, 1).remove(0);
        assert_eq!(without_port(arrived), without_port(fits));
    }
    assert_eq!(a.counters().tx_frames_dropped, 8);
    ip(&veth.near, &format!("link set {INTERFACE} mtu 9000"));
    ip(&veth.far, &format!("link set {INTERFACE} mtu 9000"));
    let large = frame(ways[0], [SOURCE_PORT, port], 0, &[1; 8972]);
    queue(&mut *a, &large);
    a.flush();
    assert_eq!(without_port(receive(&mut *b, 1).remove(0)), without_port(large));
}

/// A router's news of a packet that has left come by the next one, be it as small as it likes.
#[test]
fn what_was_too_large_before_takes_nothing_else_with_it() {
    let Some(veth) = Veth::new() else { return };
    let port = conformance::UDP_PORT;
    let (mut a, mut b) =
        (within(&veth.near, &Config::new(port)), within(&veth.far, &Config::new(port)));
    let way = [IpAddr::from(IPV4[0]), IpAddr::from(IPV4[1])];
    let large = frame(way, [SOURCE_PORT, port], 0, &[1; 1472]);
    queue(&mut *a, &large);
    a.flush();
    let arrived = receive(&mut *b, 1).remove(0);

    let mut error = [&[3, 4, 0, 0, 0, 0, 5, 120][..], &arrived[14..42]].concat();
    let checksum = veth::checksum(&error);
    error[2..4].copy_from_slice(&checksum.to_be_bytes());
    let packet = veth::ipv4(IPV4[0], 1, &[], 0, &error);
    let macs = [&veth.far, &veth.near].map(veth::mac_at);
    let router = veth.far.within(|| af_packet::open(&af_packet::Config::new(INTERFACE)));
    let (mut router, _steering) = router.expect("entered").expect("veth can be opened");
    veth::wait_for_link(&mut *router[0]);
    veth::send(&mut *router[0], &veth::ethernet(macs, &[], 0x0800, &packet));
    veth::until("the kernel knows what passes", || {
        ip(&veth.near, &format!("route get {}", IPV4[1])).contains("mtu 1400")
    });

    let small = frame(way, [SOURCE_PORT, port], 0, b"small");
    queue(&mut *a, &small);
    a.flush();
    assert_eq!(without_port(receive(&mut *b, 1).remove(0)), without_port(small));
    assert_eq!((a.counters().tx_frames, a.counters().tx_frames_dropped), (2, 0));
}

#[test]
fn what_cannot_be_opened_says_why() {
    let elsewhere = Config { address: Some([192, 0, 2, 1].into()), ..Config::new(20_001) };
    let error = udp::open(&elsewhere).map(|_| ()).expect_err("not this host's").to_string();
    assert!(error.contains("no such address"), "{error}");
    let none = udp::open(&Config { queues: 0, ..Config::new(20_001) }).map(|_| ());
    assert!(matches!(none, Err(Error::Invalid(_))));
}
