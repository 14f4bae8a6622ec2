//! Two network namespaces joined by a veth pair, and frames to send over it.
//!
//! The namespaces have no names and vanish with the process, whatever becomes of it.
#![allow(dead_code, reason = "each test file that includes this uses a part of it")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use clearway_nic::interface::Namespace;
use clearway_nic::{Queue, Segments, Transmit};

/// The interface, in both namespaces.
pub(crate) const INTERFACE: &str = "cw0";
/// The kernel's addresses, near and far.
pub(crate) const IPV4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// The kernel's addresses, near and far.
pub(crate) const IPV6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)];
/// Where [`datagrams`] go.
pub(crate) const PORT: u16 = 7117;
/// Flags of segments.
const FIN: u8 = 0x1;
pub(crate) const SYN: u8 = 0x2;
const PSH: u8 = 0x8;
pub(crate) const ACK: u8 = 0x10;
/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both ends.
pub(crate) struct Veth {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
}

impl Veth {
    /// A pair whose kernels can talk to each other, or nothing if this is not root.
    pub(crate) fn new() -> Option<Veth> {
        Veth::with_queues(1)
    }

    /// The same with so many queues at each end.
    pub(crate) fn with_queues(count: u32) -> Option<Veth> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make network namespaces");
            return None;
        }
        let veth = Veth {
            near: Namespace::create().expect("root may make namespaces"),
            far: Namespace::create().expect("root may make namespaces"),
        };
        let there = veth.far.path();
        let queues = format!("numrxqueues {count} numtxqueues {count}");
        ip(
            &veth.near,
            &format!(
                "link add {INTERFACE} {queues} type veth peer name {INTERFACE} {queues} netns {}",
                there.display()
            ),
        );
        for (index, space) in [&veth.near, &veth.far].into_iter().enumerate() {
            ip(space, "link set lo up");
            ip(space, &format!("addr add {}/24 dev {INTERFACE}", IPV4[index]));
            ip(space, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[index]));
            ip(space, &format!("link set {INTERFACE} up"));
        }
        Some(veth)
    }
}

pub(crate) fn ip(space: &Namespace, words: &str) -> String {
    space.ip(words).expect("iproute2 is installed and the command is right")
}

/// Waits until `done`, and fails the test if it never is.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// A socket on a port that was given back. Until a process that another test starts runs its own
/// program, it has a copy of what held the port.
pub(crate) fn bind_again(space: &Namespace, address: (IpAddr, u16)) -> UdpSocket {
    let mut socket = None;
    until("the port is free again", || {
        socket = space.within(|| UdpSocket::bind(address)).unwrap().ok();
        socket.is_some()
    });
    socket.expect("until it is bound")
}

/// The next frame that `wanted` accepts; others are passed over.
pub(crate) fn next_frame(
    what: &str,
    queue: &mut dyn Queue,
    wanted: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut found = None;
    until(what, || {
        queue.receive(1, &mut |frames, _| found = wanted(frames[0]).then(|| frames[0].to_vec()));
        found.is_some()
    });
    found.expect("until it is found")
}

/// What has arrived so far is nothing `unwanted`. Neighbours may ask for each other at any time.
pub(crate) fn no_frame(queue: &mut dyn Queue, unwanted: impl Fn(&[u8]) -> bool) {
    queue.receive(64, &mut |frames, _| {
        assert!(!frames.iter().any(|frame| unwanted(frame)), "{frames:x?} are not ours");
    });
}

pub(crate) fn wait_for_link(queue: &mut dyn Queue) {
    until("the link is up", || {
        queue.receive(0, &mut |_, _| ());
        queue.link_up()
    });
}

pub(crate) fn send(queue: &mut dyn Queue, frame: &[u8]) {
    let outcome = queue.transmit(&mut |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert_eq!(outcome, Transmit::Queued);
    queue.flush();
}

/// An Ethernet frame with this payload; `tags` are VLAN ids, outermost first.
pub(crate) fn ethernet(
    macs: [[u8; 6]; 2],
    tags: &[u16],
    ethertype: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [macs[1], macs[0]].concat();
    for (depth, tag) in tags.iter().enumerate() {
        let service = depth + 1 < tags.len();
        frame.extend(if service { [0x88, 0xa8] } else { [0x81, 0x00] });
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// An IPv4 header with `options` (whole words) and the fragment word, and then the payload.
pub(crate) fn ipv4(
    to: Ipv4Addr,
    protocol: u8,
    options: &[u8],
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, 0];
    packet.extend(((header_bytes + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(IPV4[1].octets());
    packet.extend(to.octets());
    packet.extend(options);
    let checksum = checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(payload);
    packet
}

pub(crate) fn ipv6(to: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 255]);
    packet.extend(IPV6[1].octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

/// A UDP datagram to `port` without a checksum.
pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = [4000_u16.to_be_bytes(), port.to_be_bytes()].concat();
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// RFC 1071: "the 16-bit 1's complement of the 1's complement sum".
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

/// True if the frame ends with these bytes: test payloads are chosen to be unmistakable.
pub(crate) fn ends_with(payload: &'static [u8]) -> impl Fn(&[u8]) -> bool {
    move |frame| frame.ends_with(payload)
}

/// One ping from the calling thread's namespace; true if the answer comes.
pub(crate) fn ping(to: IpAddr) -> bool {
    let output = Command::new("ping")
        .args(["-c", "1", "-W", "5", &to.to_string()])
        .output()
        .expect("ping is installed (apt-get install iputils-ping)");
    output.status.success()
}

/// Queues all of `frames`, and lets them leave together.
pub(crate) fn send_all(queue: &mut dyn Queue, frames: &[Vec<u8>]) {
    for frame in frames {
        let outcome = queue.transmit(&mut |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        assert_eq!(outcome, Transmit::Queued);
    }
    queue.flush();
}

/// Which of `queues` a frame of `sender` comes to.
pub(crate) fn queue_of(
    sender: &mut dyn Queue,
    queues: &mut [Box<dyn Queue>],
    frame: &[u8],
) -> usize {
    send(sender, frame);
    let mut found = None;
    until("it comes to one of them", || {
        for (index, queue) in queues.iter_mut().enumerate() {
            let is_it = |frames: &[&[u8]]| frames.iter().any(|received| **received == *frame);
            queue.receive(64, &mut |frames, _| found = found.or(is_it(frames).then_some(index)));
        }
        found.is_some()
    });
    found.expect("until it is found")
}

/// A datagram has come as it was sent, with a checksum that is right.
#[track_caller]
pub(crate) fn assert_as_sent(received: &[u8], sent: &[u8], is_v4: bool) {
    assert_eq!(received.len(), sent.len());
    let udp_at = if is_v4 { 34 } else { 54 };
    let (received_udp, sent_udp) = (&received[udp_at..], &sent[udp_at..]);
    assert_eq!(received_udp[2..6], sent_udp[2..6], "port and length");
    assert_eq!(received_udp[8..], sent_udp[8..]);
    if is_v4 {
        assert_eq!(checksum(&received[14..34]), 0);
    } else {
        let length = &received_udp[4..6];
        let pseudo = [&received[22..54], length, &[0, 17], received_udp].concat();
        assert_eq!(checksum(&pseudo), 0);
    }
}

/// As many of the frames to [`PORT`] that come as there are to come.
pub(crate) fn receive_all(queue: &mut dyn Queue, count: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    until("all of them have come", || {
        queue.receive(10, &mut |frames, _| {
            let ours = frames.iter().filter(|frame| is_ours(frame));
            received.extend(ours.map(|frame| frame.to_vec()));
        });
        received.len() >= count
    });
    received
}

/// A frame to [`PORT`], in a VLAN or not.
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    let to = PORT.to_be_bytes();
    [34, 38, 54, 58].iter().any(|at| frame.get(at + 2..at + 4) == Some(&to[..]))
}

/// The Ethernet address of the interface there.
pub(crate) fn mac_at(space: &Namespace) -> [u8; 6] {
    let text = ip(space, &format!("-o link show {INTERFACE}"));
    let mut words = text.split_whitespace().skip_while(|word| *word != "link/ether");
    let octets = words.nth(1).expect("it has an address").split(':');
    let octets: Vec<u8> = octets.map(|octet| u8::from_str_radix(octet, 16).expect("hex")).collect();
    octets.try_into().expect("of six octets")
}

/// How many packets the interface has taken from the other end, by its own count.
pub(crate) fn packets_at(space: &Namespace) -> u64 {
    let packets = space.within(|| {
        let link = Command::new("ip").args(["-s", "link", "show", INTERFACE]).output();
        let text = String::from_utf8(link.expect("iproute2 is installed").stdout).expect("text");
        let line = text.lines().skip_while(|line| !line.contains("RX:")).nth(1);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
    });
    packets.expect("entered").expect("it counts packets")
}

/// Datagrams to [`PORT`] from the far end, which differ, over IPv4 without a checksum and over IPv6
/// with one.
pub(crate) fn datagrams(
    macs: [[u8; 6]; 2],
    tags: &[u16],
    is_v4: bool,
    sizes: &[usize],
) -> Vec<Vec<u8>> {
    let datagram = |(index, size): (usize, &usize)| {
        let mut udp = udp(PORT, &vec![index as u8; *size]);
        if is_v4 {
            let mut packet = ipv4(IPV4[0], 17, &[], 0x4000, &udp);
            packet[16..20].copy_from_slice(&IPV4[0].octets());
            return ethernet(macs, tags, 0x0800, &packet);
        }
        let pseudo =
            [&IPV6[1].octets()[..], &IPV6[0].octets(), &udp[4..6], &[0, 17], &udp].concat();
        udp[6..8].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        ethernet(macs, tags, 0x86dd, &ipv6(IPV6[0], 17, &udp))
    };
    sizes.iter().enumerate().map(datagram).collect()
}

/// Where a stream is, at the far end: to which port it goes, what comes next, what was received.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) to: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
}

/// A segment from [`PORT`] of the far end, with a right checksum.
pub(crate) fn segment(
    macs: [[u8; 6]; 2],
    tags: &[u16],
    is_v4: bool,
    stream: Stream,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut tcp = [PORT.to_be_bytes(), stream.to.to_be_bytes()].concat();
    tcp.extend(stream.sequence.to_be_bytes());
    tcp.extend(stream.acknowledgement.to_be_bytes());
    tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(payload);
    let addresses = if is_v4 {
        [IPV4[1].octets(), IPV4[0].octets()].concat()
    } else {
        [IPV6[1].octets(), IPV6[0].octets()].concat()
    };
    let length = (tcp.len() as u16).to_be_bytes();
    let pseudo = [&addresses[..], &length, &[0, 6], &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    if is_v4 {
        let packet = ipv4(IPV4[0], 6, &[], 0x4000, &tcp);
        return ethernet(macs, tags, 0x0800, &packet);
    }
    ethernet(macs, tags, 0x86dd, &ipv6(IPV6[0], 6, &tcp))
}

/// A stream from the far end, in segments of these sizes, of which the last ends it.
pub(crate) fn segments(
    macs: [[u8; 6]; 2],
    tags: &[u16],
    is_v4: bool,
    mut stream: Stream,
    sizes: &[usize],
) -> Vec<Vec<u8>> {
    let last = sizes.len() - 1;
    let next = |(index, size): (usize, &usize)| {
        let flags = if index == last { ACK | PSH | FIN } else { ACK };
        let payload: Vec<u8> = (0..*size).map(|at| (index * 31 + at / 7) as u8).collect();
        let frame = segment(macs, tags, is_v4, stream, flags, &payload);
        stream.sequence = stream.sequence.wrapping_add(*size as u32);
        frame
    };
    sizes.iter().enumerate().map(next).collect()
}

/// Sends segments of one stream, all but the last of one size, as many in a frame as the queue
/// takes, without checksums. How many frames that were.
pub(crate) fn send_together(queue: &mut dyn Queue, frames: &[Vec<u8>], is_v4: bool) -> usize {
    let at = if is_v4 { 34 } else { 54 };
    let (header_bytes, mut left, mut count) = (at + 20, frames, 0);
    let segment_bytes = frames[0].len() - header_bytes;
    while !left.is_empty() {
        let outcome = queue.transmit_segments(&mut |buffer, most| {
            let fits = ((buffer.len() - header_bytes) / segment_bytes).min(most).min(left.len());
            let (now, rest) = left.split_at(fits);
            left = rest;
            let payload: Vec<u8> =
                now.iter().flat_map(|frame| &frame[header_bytes..]).copied().collect();
            let bytes = header_bytes + payload.len();
            buffer[..header_bytes].copy_from_slice(&now[0][..header_bytes]);
            buffer[at + 13] |= now[fits - 1][at + 13];
            buffer[at + 16] ^= 0x5a;
            buffer[header_bytes..bytes].copy_from_slice(&payload);
            Segments { bytes, segment_bytes: if fits == 1 { 0 } else { segment_bytes } }
        });
        match outcome {
            Transmit::Queued => count += 1,
            Transmit::Full => queue.flush(),
            Transmit::Nothing => unreachable!("something is written each time"),
        }
    }
    queue.flush();
    count
}

/// Sends segments whose checksums are left to the queue, in whose place something else is.
pub(crate) fn send_unsummed(queue: &mut dyn Queue, frames: &[Vec<u8>], tags: &[u16], is_v4: bool) {
    let checksum_at = 14 + 4 * tags.len() + if is_v4 { 20 } else { 40 } + 16;
    for frame in frames {
        let mut fill = |buffer: &mut [u8], _| {
            buffer[..frame.len()].copy_from_slice(frame);
            buffer[checksum_at] ^= 0x5a;
            Segments { bytes: frame.len(), segment_bytes: 0 }
        };
        while queue.transmit_segments(&mut fill) == Transmit::Full {
            queue.flush();
        }
    }
    queue.flush();
}
