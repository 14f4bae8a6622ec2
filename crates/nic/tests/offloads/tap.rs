//! The kernel at the other end of a tap interface: its TCP takes a stream whose checksums and
//! segments were left to the device, and what it sends is known to be right.

use std::io::Read;
use std::net::{IpAddr, TcpListener};
use std::path::Path;

use clearway_nic::interface::Namespace;
use clearway_nic::{Checksums, Queue};

use super::take;
use crate::veth::{
    ACK, INTERFACE, IPV4, IPV6, SYN, Stream, ip, mac_at, segment, segments, send_all,
    send_unsummed, until,
};
use crate::{fresh, open_with};

pub(super) fn run() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to make network namespaces");
    }
    if !Path::new("/dev/net/tun").exists() {
        return println!("skipped: net_tap needs /dev/net/tun (modprobe tun)");
    }
    for offloads in [true, false] {
        let space = Namespace::create().expect("root may make namespaces");
        let device = format!("net_tap{},iface={INTERFACE}", fresh());
        let mut queue = space.within(|| open_with(&device, offloads)).expect("entered");
        ip(&space, &format!("addr add {}/24 dev {INTERFACE}", IPV4[0]));
        ip(&space, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[0]));
        // The kernel is not to ask who we are.
        let mac = queue.info().mac.map(|octet| format!("{octet:02x}")).join(":");
        for there in [IpAddr::V4(IPV4[1]), IpAddr::V6(IPV6[1])] {
            ip(&space, &format!("neigh add {there} lladdr {mac} dev {INTERFACE}"));
        }
        ip(&space, &format!("link set {INTERFACE} up"));
        for is_left in [true, false] {
            the_kernel_takes_a_stream(&space, &mut queue, IPV4[0].into(), offloads, is_left);
            the_kernel_takes_a_stream(&space, &mut queue, IPV6[0].into(), offloads, is_left);
        }
        let counters = queue.counters();
        assert_eq!(counters.tx_super_frames > 0, offloads, "{counters:?}");
        assert_eq!((counters.tx_frames_dropped, counters.rx_frames_dropped), (0, 0));
    }
}

fn the_kernel_takes_a_stream(
    space: &Namespace,
    queue: &mut dyn Queue,
    here: IpAddr,
    offloads: bool,
    is_left: bool,
) {
    let is_v4 = here.is_ipv4();
    let at = if is_v4 { 34 } else { 54 };
    let listener = space.within(|| TcpListener::bind((here, 0))).unwrap().expect("it is free");
    let to = listener.local_addr().expect("it is bound").port();
    let macs = [queue.info().mac, mac_at(space)];

    let asking = Stream { to, sequence: u32::MAX - 20_000, acknowledgement: 0 };
    send_all(queue, &[segment(macs, &[], is_v4, asking, SYN, &[])]);
    let mut answer = None;
    until("the kernel accepts", || {
        let is_answer = |frame: &[u8]| frame.get(at + 13) == Some(&(SYN | ACK));
        answer = take(queue).into_iter().find(|(frame, _)| is_answer(frame));
        answer.is_some()
    });
    let (answer, checksums) = answer.expect("until it is there");
    assert_eq!(checksums, if offloads { Checksums::Right } else { Checksums::Unknown });
    let theirs = u32::from_be_bytes(answer[at + 4..at + 8].try_into().expect("of four bytes"));

    let sequence = asking.sequence + 1;
    let stream = Stream { to, sequence, acknowledgement: theirs.wrapping_add(1) };
    let frames = segments(macs, &[], is_v4, stream, &[&[1400; 40][..], &[333]].concat());
    if is_left {
        send_unsummed(queue, &frames, &[], is_v4);
    } else {
        send_all(queue, &frames);
    }
    let (mut reader, _) = listener.accept().expect("it is connected");
    let mut received = Vec::new();
    reader.read_to_end(&mut received).expect("the stream has an end");
    assert!(received.iter().eq(frames.iter().flat_map(|frame| &frame[at + 20..])));
}
