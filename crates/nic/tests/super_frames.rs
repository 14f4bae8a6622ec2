//! Super-frames between the kernel, packet sockets and AF_XDP in generic mode, over veth pairs:
//! what goes together arrives as it was, once, and the kernel does not answer for it. Needs root;
//! says so and passes otherwise.

mod conformance;
mod veth;

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use clearway_nic::interface::{KernelSteering, Namespace, Protocol, SteerPattern, Steering};
use clearway_nic::{
    Checksums, Queue, Receiver, Together, Transmit, af_packet, af_xdp, open_interface, open_xdp,
    udp,
};
use conformance::Pair;
use veth::{
    ACK, INTERFACE, IPV4, IPV6, PORT, SYN, Stream, Veth, datagrams, ends_with, ip, is_ours, mac_at,
    next_frame, packets_at, receive_all, segment, segments, send_all, send_together, send_unsummed,
    wait_for_link,
};

/// An end of the pair.
type End = (Box<dyn Queue>, Box<dyn Steering>);

fn open_packet(space: &Namespace) -> (Box<dyn Queue>, KernelSteering) {
    let config = af_packet::Config::new(INTERFACE);
    let opened = space.within(|| af_packet::open(&config)).expect("entered");
    let (mut queues, steering) = opened.expect("veth can be opened");
    wait_for_link(&mut *queues[0]);
    (queues.remove(0), steering)
}

/// AF_XDP in generic mode, as daemons have it.
fn open_generic(space: &Namespace) -> End {
    let config = af_xdp::Config { mode: af_xdp::Mode::Generic, ..af_xdp::Config::new(INTERFACE) };
    let opened = space.within(|| open_xdp(&config)).expect("entered").expect("it can be opened");
    let [mut queue] = <[_; 1]>::try_from(opened.queues).ok().expect("a veth has one queue");
    wait_for_link(&mut *queue);
    (queue, opened.steering)
}

fn open_as(driver: &str, space: &Namespace) -> End {
    if driver == "af_xdp" {
        return open_generic(space);
    }
    let (queue, steering) = open_packet(space);
    (queue, Box::new(steering))
}

#[test]
fn generic_mode_with_a_socket_for_super_frames_conforms() {
    let pair = || {
        let veth = Veth::new().expect("root");
        let (a, mut steering_a) = open_generic(&veth.near);
        let (b, mut steering_b) = open_generic(&veth.far);
        for steering in [&mut steering_a, &mut steering_b] {
            steering.register_udp_port(None, conformance::UDP_PORT).expect("the port is free");
        }
        let far = Namespace::open(&veth.far.path().to_string_lossy()).expect("it is open");
        let cut = move |b| {
            ip(&far, &format!("link set {INTERFACE} down"));
            drop(b);
        };
        Pair { a, b, cut: Some(Box::new(cut)), keep: Box::new((steering_a, steering_b, veth)) }
    };
    if Veth::new().is_some() {
        conformance::run(pair);
    }
}

#[test]
fn packets_of_a_flow_go_together_and_come_as_they_were() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    let (mut far, _) = open_packet(&veth.far);
    steering.register_udp_port(None, PORT).expect("the port is free");
    let mode = far.info().mode;
    assert!(mode.contains("64 packets of a flow leave and come as one"), "{mode}");
    let macs = [far.info().mac, near.info().mac];
    for is_v4 in [true, false] {
        for tags in [&[][..], &[5]] {
            let mut sizes = vec![1400; 150];
            sizes.extend([33, 1400, 77, 77, 77, 1, 1200]);
            let frames = datagrams(macs, tags, is_v4, &sizes);
            let before = packets_at(&veth.near);
            send_all(&mut *far, &frames);
            assert_eq!(receive_all(&mut *near, frames.len()), frames);
            let packets = packets_at(&veth.near) - before;
            assert!(packets < 20, "{} frames were {packets} packets", frames.len());
        }
    }
    assert_eq!(near.counters().rx_frames_dropped, 0);
    assert_eq!(far.counters().tx_frames, 4 * 157);
}

#[test]
fn segments_of_a_stream_go_together_and_come_as_they_were() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    let (mut far, _) = open_packet(&veth.far);
    let macs = [far.info().mac, near.info().mac];
    let mut sizes = vec![1400; 150];
    sizes.extend([33, 1400, 77, 77, 77, 1, 1200]);
    let stream = Stream { to: PORT, sequence: u32::MAX - 9000, acknowledgement: 5 };
    for (is_v4, here) in [(true, IPV4[0].into()), (false, IPV6[0].into())] {
        steering.add_pattern(&pattern(6, here, PORT)).expect("there is room");
        for (tags, is_summed) in [(&[][..], true), (&[5], true), (&[], false), (&[5], false)] {
            let frames = segments(macs, tags, is_v4, stream, &sizes);
            let before = packets_at(&veth.near);
            assert!(far.capabilities().transmit_checksum);
            if is_summed {
                send_all(&mut *far, &frames);
            } else {
                send_unsummed(&mut *far, &frames, tags, is_v4);
            }
            assert_eq!(receive_all(&mut *near, frames.len()), frames);
            let packets = packets_at(&veth.near) - before;
            assert!(packets < 20, "{} frames were {packets} packets", frames.len());
        }
    }
    assert_eq!(near.counters().rx_frames_dropped, 0);
    assert_eq!(far.counters().tx_frames, 8 * 157);
}

/// A wrong one stays wrong, and the others go together all the same.
#[test]
fn what_an_app_made_comes_with_the_checksum_that_it_had() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    let (mut far, _) = open_packet(&veth.far);
    steering.register_udp_port(None, PORT).expect("the port is free");
    steering.add_pattern(&pattern(6, IPV4[0].into(), PORT)).expect("there is room");
    let macs = [far.info().mac, near.info().mac];
    let stream = Stream { to: PORT, sequence: 7, acknowledgement: 5 };
    for mut frames in
        [datagrams(macs, &[], false, &[1400; 60]), segments(macs, &[], true, stream, &[1400; 60])]
    {
        let changed = frames.iter_mut().skip(7).step_by(20);
        changed.for_each(|frame| *frame.last_mut().expect("it has a payload") ^= 1);
        let before = packets_at(&veth.near);
        for frame in &frames {
            let outcome = far.transmit_as_is(&mut |buffer| {
                buffer[..frame.len()].copy_from_slice(frame);
                frame.len()
            });
            assert_eq!(outcome, Transmit::Queued);
        }
        far.flush();
        assert_eq!(receive_all(&mut *near, frames.len()), frames);
        let packets = packets_at(&veth.near) - before;
        assert!(packets < 20, "{} frames were {packets} packets", frames.len());
    }
}

/// Takes segments together, or refuses to.
#[derive(Default)]
struct Taking {
    refuses: bool,
    /// The payloads of each super-frame that was offered.
    offered: Vec<Vec<Vec<u8>>>,
    /// The first frame of each.
    firsts: Vec<Vec<u8>>,
    /// What came by frames.
    frames: Vec<Vec<u8>>,
}

impl Receiver for Taking {
    fn frames(&mut self, frames: &[&[u8]], _: Checksums) {
        self.frames.extend(frames.iter().filter(|frame| is_ours(frame)).map(|it| it.to_vec()));
    }

    fn together(&mut self, segments: Together<'_>) -> bool {
        self.firsts.push(segments.first.to_vec());
        self.offered.push(segments.others.iter().map(|payload| payload.to_vec()).collect());
        !self.refuses
    }
}

#[test]
fn segments_of_a_stream_can_be_taken_together() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    let (mut far, _) = open_packet(&veth.far);
    assert!(near.capabilities().receive_together);
    let macs = [far.info().mac, near.info().mac];
    let stream = Stream { to: PORT, sequence: u32::MAX - 9000, acknowledgement: 5 };
    let sizes = [&[1400; 40][..], &[3]].concat();
    for (is_v4, here) in [(true, IPV4[0].into()), (false, IPV6[0].into())] {
        steering.add_pattern(&pattern(6, here, PORT)).expect("there is room");
        let headers = if is_v4 { 54 } else { 74 };
        let mut frames = segments(macs, &[], is_v4, stream, &sizes);
        let last = frames.pop().expect("it has FIN, and so leaves with nobody");
        for refuses in [false, true] {
            let mut taking = Taking { refuses, ..Taking::default() };
            let mut take = |count: usize| {
                let begun_at = Instant::now();
                let so_many = |it: &Taking| {
                    let together = it.offered.iter().map(|others| 1 + others.len()).sum::<usize>();
                    it.frames.len() + if refuses { 0 } else { together }
                };
                while so_many(&taking) < count {
                    assert!(begun_at.elapsed() < Duration::from_secs(10), "{count} did not come");
                    near.receive_together(7, &mut taking);
                }
            };
            send_all(&mut *far, &frames);
            take(frames.len());
            send_all(&mut *far, std::slice::from_ref(&last));
            take(frames.len() + 1);
            let whole = frames.iter().chain([&last]).cloned().collect::<Vec<_>>();
            if refuses {
                assert_eq!(taking.frames, whole);
                assert!(!taking.offered.is_empty());
                continue;
            }
            let (mut at, mut alone) = (0, taking.frames.iter());
            for (first, others) in taking.firsts.iter().zip(&taking.offered) {
                assert_eq!(first, &whole[at]);
                let payloads = whole[at + 1..][..others.len()].iter().map(|it| &it[headers..]);
                assert!(others.iter().eq(payloads));
                at += 1 + others.len();
            }
            assert!(at >= 30 && alone.by_ref().eq(&whole[at..]), "{at} came together");
        }
    }
    assert_eq!(near.counters().rx_frames_dropped, 0);
    assert_eq!(near.counters().rx_frames, 4 * 41);
}

/// Flags that a sender which has slowed down says once.
const CWR: u8 = 0x80;

#[test]
fn segments_that_are_written_as_one_come_as_they_were() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    let (mut far, _) = open_packet(&veth.far);
    let macs = [far.info().mac, near.info().mac];
    let stream = Stream { to: PORT, sequence: u32::MAX - 9000, acknowledgement: 5 };
    let sizes = [&[1400; 150][..], &[3]].concat();
    for (is_v4, here) in [(true, IPV4[0].into()), (false, IPV6[0].into())] {
        steering.add_pattern(&pattern(6, here, PORT)).expect("there is room");
        let frames = segments(macs, &[], is_v4, stream, &sizes);
        for _ in 0..3 {
            let before = (packets_at(&veth.near), far.counters());
            let writes = send_together(&mut *far, &frames, is_v4);
            assert_eq!(receive_all(&mut *near, frames.len()), frames);
            assert!(writes < 10, "{} frames took {writes} writes", frames.len());
            let packets = packets_at(&veth.near) - before.0;
            assert!(packets < 20, "{} frames were {packets} packets", frames.len());
            let (old, new) = (before.1, far.counters());
            assert_eq!(new.tx_frames - old.tx_frames, 151);
            let bytes = frames.iter().map(Vec::len).sum::<usize>() as u64;
            assert_eq!(new.tx_bytes - old.tx_bytes, bytes, "as if each had left by itself");
            // Then frames that need nothing, from where payload was.
            send_all(&mut *far, &frames[..40]);
            assert_eq!(receive_all(&mut *near, 40), frames[..40]);
        }
        // Who cuts need not know that this is of the first only.
        let at = if is_v4 { 34 } else { 54 };
        let slowed = segment(macs, &[], is_v4, stream, ACK | CWR, &frames[0][at + 20..]);
        let frames = [&[slowed][..], &frames[1..30]].concat();
        let before = packets_at(&veth.near);
        send_together(&mut *far, &frames, is_v4);
        assert_eq!(receive_all(&mut *near, frames.len()), frames);
        assert_eq!(packets_at(&veth.near) - before, 2, "the first leaves alone");
    }
    assert_eq!((near.counters().rx_frames_dropped, far.counters().tx_frames_dropped), (0, 0));
}

#[test]
fn checksums_of_what_came_as_a_super_frame_are_known_to_be_right() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    let (mut far, _) = open_packet(&veth.far);
    steering.add_pattern(&pattern(6, IPV4[0].into(), PORT)).expect("there is room");
    let macs = [far.info().mac, near.info().mac];
    let stream = Stream { to: PORT, sequence: 1, acknowledgement: 5 };
    for (count, expected) in [(1, Checksums::Unknown), (20, Checksums::Right)] {
        send_all(&mut *far, &segments(macs, &[], true, stream, &vec![1400; count]));
        let (mut taken, sent_at) = (0, Instant::now());
        while taken < count {
            assert!(sent_at.elapsed() < Duration::from_secs(10), "{taken} of {count} came");
            near.receive(32, &mut |frames, checksums| {
                let ours = frames.iter().filter(|frame| is_ours(frame)).count();
                assert!(ours == 0 || checksums == expected, "{checksums:?} of {count}");
                taken += ours;
            });
        }
    }
}

/// A stream of the far end's packet socket, read by a program at the near end.
#[test]
fn the_kernel_takes_a_stream_in_super_frames() {
    let Some(veth) = Veth::new() else { return };
    let (mut far, mut steering) = open_packet(&veth.far);
    for index in [4, 6] {
        let is_v4 = index == 4;
        let [here, there]: [IpAddr; 2] =
            if is_v4 { IPV4.map(IpAddr::V4) } else { IPV6.map(IpAddr::V6) };
        steering.claim_port(Protocol::Tcp, there, PORT).expect("the port is free");
        steering.add_pattern(&pattern(6, there, PORT)).expect("there is room");
        let listener = veth.near.within(|| TcpListener::bind((here, 0))).unwrap().expect("free");
        let to = listener.local_addr().expect("it is bound").port();
        let macs = [far.info().mac, mac_at(&veth.near)];

        let asking = Stream { to, sequence: u32::MAX - 20_000, acknowledgement: 0 };
        send_all(&mut *far, &[segment(macs, &[], is_v4, asking, SYN, &[])]);
        let at = if is_v4 { 34 } else { 54 };
        let is_answer = |frame: &[u8]| is_ours(frame) && frame.get(at + 13) == Some(&(SYN | ACK));
        let answer = next_frame("the kernel accepts", &mut *far, is_answer);
        let theirs = u32::from_be_bytes(answer[at + 4..at + 8].try_into().expect("of four bytes"));

        let sequence = asking.sequence + 1;
        let stream = Stream { to, sequence, acknowledgement: theirs.wrapping_add(1) };
        let sizes = [&[1400; 40][..], &[333]].concat();
        let frames = segments(macs, &[], is_v4, stream, &sizes);
        let before = packets_at(&veth.near);
        send_all(&mut *far, &frames);
        let (mut reader, _) = listener.accept().expect("it is connected");
        let mut received = Vec::new();
        reader.read_to_end(&mut received).expect("the stream has an end");
        assert!(received.iter().eq(frames.iter().flat_map(|frame| &frame[at + 20..])));
        let packets = packets_at(&veth.near) - before;
        assert!(packets < 10, "{} segments were {packets} packets", frames.len());
        steering.remove_pattern(&pattern(6, there, PORT)).expect("it was added");
    }
}

#[test]
fn super_frames_of_the_kernel_are_cut() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open_packet(&veth.near);
    steering.register_udp_port(None, PORT).expect("the port is free");
    let config = udp::Config::new(PORT);
    let opened = veth.far.within(|| udp::open(&config)).expect("entered");
    let sockets = &mut *opened.expect("sockets can be opened")[0];
    for is_v4 in [true, false] {
        // Parts of ring slots, and more than those; the last segment shorter.
        for (segment, last, count) in [(1400, 5, 40), (100, 99, 9), (1, 1, 64), (1000, 1000, 64)] {
            let mut sizes = vec![segment; count];
            sizes[count - 1] = last;
            let frames = datagrams([near.info().mac; 2], &[], is_v4, &sizes);
            let before = packets_at(&veth.near);
            send_all(sockets, &frames);
            let received = receive_all(&mut *near, count);
            assert!(packets_at(&veth.near) - before < 10, "the kernel has parted them itself");
            for (received, sent) in received.iter().zip(&frames) {
                veth::assert_as_sent(received, sent, is_v4);
                if is_v4 {
                    assert_eq!(received[40..42], [0, 0], "from this machine, and so intact");
                }
            }
        }
    }
    assert_eq!(near.counters().rx_frames_dropped, 0);
}

#[test]
fn packets_go_one_by_one_where_they_cannot_go_together() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, _steering) = open_packet(&veth.near);
    let macs = |far: &dyn Queue, near: &dyn Queue| [near.info().mac, far.info().mac];
    // A program of the veth's own at its other end has the kernel take no super-frames.
    let config = af_xdp::Config { mode: af_xdp::Mode::Copy, ..af_xdp::Config::new(INTERFACE) };
    let opened = veth.far.within(|| af_xdp::open(&config)).expect("entered");
    let (mut queues, mut steering) = opened.expect("veth can be opened");
    wait_for_link(&mut *queues[0]);
    steering.register_udp_port(None, PORT).expect("the port is free");
    let frames = datagrams(macs(&*queues[0], &*near), &[], true, &[1000; 100]);
    send_all(&mut *near, &frames);
    assert_eq!(receive_all(&mut *queues[0], 100), frames);
    steering.add_pattern(&pattern(6, IPV4[0].into(), PORT)).expect("there is room");
    let stream = Stream { to: PORT, sequence: 1, acknowledgement: 5 };
    let frames = segments(macs(&*queues[0], &*near), &[], true, stream, &[1000; 400]);
    for (index, frames) in frames.chunks(100).enumerate() {
        match index % 2 {
            0 => _ = send_together(&mut *near, frames, true),
            _ => send_all(&mut *near, frames),
        }
        assert_eq!(receive_all(&mut *queues[0], 100), frames);
    }
    let mode = near.info().mode;
    for kind in ["UDP", "TCP"] {
        let words = format!("those of {kind} leave one by one, because the way out cannot part");
        assert!(mode.contains(&words), "{mode}");
    }
    assert_eq!(near.counters().tx_frames_dropped, 0);
    drop((queues, steering));

    // Nor if its owner says so.
    ip(&veth.near, &format!("link set {INTERFACE} gso_max_segs 1"));
    let (mut near, _steering) = open_packet(&veth.near);
    let (mut far, mut steering) = open_packet(&veth.far);
    steering.register_udp_port(None, PORT).expect("the port is free");
    assert!(near.info().mode.contains("gso_max_segs 1"), "{}", near.info().mode);
    let before = packets_at(&veth.far);
    let frames = datagrams(macs(&*far, &*near), &[], true, &[1000; 100]);
    send_all(&mut *near, &frames);
    assert_eq!(receive_all(&mut *far, 100), frames);
    assert!(packets_at(&veth.far) - before >= 100);
}

/// Between each two of the drivers, both ways: nothing is missing, nothing comes twice, and nothing
/// is damaged. What the two ways into AF_XDP do to the order is the only difference.
#[test]
fn packets_come_as_they_were_between_any_two_drivers() {
    for drivers in [["af_packet", "af_xdp"], ["af_xdp", "af_packet"], ["af_packet", "af_packet"]] {
        let Some(veth) = Veth::new() else { return };
        let (mut near, mut steering) = open_as(drivers[0], &veth.near);
        let (mut far, _steering) = open_as(drivers[1], &veth.far);
        steering.register_udp_port(None, PORT).expect("the port is free");
        let macs = [far.info().mac, near.info().mac];
        for is_v4 in [true, false] {
            for tags in [&[][..], &[5]] {
                // Super-frames that are longer than a frame, that are shorter, and frames.
                let mut sizes = vec![1400; 150];
                sizes.extend([33, 1400, 77, 77, 77, 1, 1200, 2, 2, 3, 1472 - 20 * 2]);
                let frames = datagrams(macs, tags, is_v4, &sizes);
                send_all(&mut *far, &frames);
                let mut received = receive_all(&mut *near, frames.len());
                received.sort_unstable();
                let mut sent = frames;
                sent.sort_unstable();
                assert!(received == sent, "{drivers:?} {is_v4} {tags:?}: frames differ");
            }
        }
        near.receive(64, &mut |frames, _| assert!(!frames.iter().any(|frame| is_ours(frame))));
        let (here, there) = (near.counters(), far.counters());
        assert_eq!((here.rx_frames_dropped, there.tx_frames_dropped), (0, 0));
        assert_eq!(here.rx_super_frames, there.tx_super_frames, "{drivers:?}");
        assert_eq!(there.tx_super_frames > 10, drivers[1] == "af_packet");
    }
}

/// The kernel neither refuses datagrams nor resets connections that are ours, before and after it
/// does so with all others.
#[test]
fn the_kernel_does_not_answer_for_what_is_ours() {
    for driver in ["af_packet", "af_xdp"] {
        for index in [4, 6] {
            let Some(veth) = Veth::new() else { return };
            let [here, there]: [IpAddr; 2] =
                if index == 4 { IPV4.map(IpAddr::V4) } else { IPV6.map(IpAddr::V6) };
            let (mut queue, mut steering) = open_as(driver, &veth.near);
            no_refusal_of_datagrams(&veth, &mut *queue, &mut *steering, [here, there]);
            no_reset(&veth, &mut *queue, &mut *steering, here);
        }
    }
}

/// To `port` of `address`, whatever protocol that has.
fn pattern(protocol: u8, address: IpAddr, port: u16) -> SteerPattern {
    let (mut mask, mut value) = ([0; 8], [0; 8]);
    // Destination port, protocol, kind of IP, transport header: as the digest has them.
    mask[0] = 0xffff_fff7_0000;
    value[0] = u64::from(port) << 32 | u64::from(protocol) << 24 | 1 << 16;
    match address {
        IpAddr::V4(address) => {
            value[0] |= 6 << 20;
            (mask[3], value[3]) = (u64::from(u32::MAX), u64::from(address.to_bits()));
        }
        IpAddr::V6(address) => {
            value[0] |= 7 << 20;
            (mask[6], value[6]) = (u64::MAX, address.to_bits() as u64);
        }
    }
    SteerPattern::new(mask, value).expect("the eighth word is left out")
}

fn no_refusal_of_datagrams(
    veth: &Veth,
    queue: &mut dyn Queue,
    steering: &mut dyn Steering,
    [here, there]: [IpAddr; 2],
) {
    let sender = |port: u16| {
        let socket: UdpSocket =
            veth.far.within(|| UdpSocket::bind((there, 0))).unwrap().expect("a port is free");
        socket.connect((here, port)).expect("there is a route");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
        socket
    };
    let is_refused = |socket: &UdpSocket| {
        socket.send(b"to nobody").expect("sent");
        let error = socket.recv(&mut [0; 8]).expect_err("nobody answers");
        error.kind() == ErrorKind::ConnectionRefused
    };
    // Not claimed: no socket of the kernel's takes it.
    let ours = pattern(17, here, PORT);
    assert!(is_refused(&sender(PORT)), "nobody has it");
    steering.add_pattern(&ours).expect("there is room");
    let socket = sender(PORT);
    for payload in [b"the first", b"and again"] {
        // A refusal of the first would be told here.
        socket.send(payload).expect("not refused");
        next_frame("ours arrives", queue, ends_with(payload));
    }
    assert!(is_refused(&sender(PORT + 1)), "the kernel answers for its ports");
    socket.set_nonblocking(true).expect("sockets can be that");
    let silence = socket.recv(&mut [0; 8]).expect_err("nobody answers");
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);
    steering.remove_pattern(&ours).expect("it was added");
    assert!(is_refused(&sender(PORT)), "nobody has it any more");
}

fn no_reset(veth: &Veth, queue: &mut dyn Queue, steering: &mut dyn Steering, here: IpAddr) {
    let connect = |port, patience| {
        let to = SocketAddr::new(here, port);
        veth.far.within(|| TcpStream::connect_timeout(&to, patience).map(|_| ())).expect("entered")
    };
    let kind = |outcome: std::io::Result<()>| outcome.expect_err("nobody accepts").kind();
    let patience = Duration::from_secs(10);
    steering.claim_port(Protocol::Tcp, here, PORT).expect("the port is free");
    assert_eq!(kind(connect(PORT, patience)), ErrorKind::ConnectionRefused, "nobody listens");
    let ours = pattern(6, here, PORT);
    steering.add_pattern(&ours).expect("there is room");
    // Until it would ask a second time.
    assert_eq!(kind(connect(PORT, Duration::from_millis(900))), ErrorKind::TimedOut);
    let is_syn = |frame: &[u8]| {
        let at = if here.is_ipv4() { 34 } else { 54 };
        is_ours(frame) && frame[at + 13] == 2
    };
    next_frame("the request arrives", queue, is_syn);
    assert_eq!(kind(connect(PORT + 1, patience)), ErrorKind::ConnectionRefused);
    steering.remove_pattern(&ours).expect("it was added");
    assert_eq!(kind(connect(PORT, patience)), ErrorKind::ConnectionRefused, "it is the kernel's");
}

#[test]
fn the_automatic_choice_is_super_frames_where_af_xdp_would_be_generic() {
    let Some(veth) = Veth::new() else { return };
    ip(&veth.near, "link add cw1 type bridge");
    let open = |config: &af_xdp::Config, queues| {
        let opened = veth.near.within(|| open_interface(config, None, queues)).expect("entered");
        opened.expect("it can be opened").queues[0].info()
    };
    for (interface, why) in [(INTERFACE, "chosen for veth"), ("cw1", "runs no XDP programs")] {
        let config = af_xdp::Config::new(interface);
        let info = open(&config, 1);
        assert_eq!(info.driver, "af_packet");
        for part in [why, "hidden from the kernel", "leave and come as one"] {
            assert!(info.mode.contains(part), "{}", info.mode);
        }
        let forced = af_xdp::Config { mode: af_xdp::Mode::Generic, ..config };
        assert_eq!(open(&forced, 1).driver, "af_xdp");
    }
    let config = af_xdp::Config::new(INTERFACE);
    let opened = veth.near.within(|| open_interface(&config, None, 3)).expect("entered");
    let queues = opened.expect("it can be opened").queues;
    assert!(queues.len() == 3 && queues.iter().all(|queue| queue.info().driver == "af_packet"));
}
