//! The kernel itself is asked what the program lets through: a filter works on a Unix datagram
//! socket as it does on a packet socket, and that takes no privilege.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::interface::attach_filter;

const OURS4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 8);

struct Socket(UnixDatagram, UnixDatagram);

impl Socket {
    fn with(filter: &Filter) -> Socket {
        let (sender, receiver) = UnixDatagram::pair().expect("sockets can be had");
        let program = filter.compile();
        assert!(program.len() <= INSTRUCTIONS_MAX);
        attach_filter(&receiver, &program).expect("the kernel takes the program");
        receiver.set_nonblocking(true).expect("sockets can be that");
        Socket(sender, receiver)
    }

    fn accepts(&self, frame: &[u8]) -> bool {
        // A filter that drops the datagram makes the sending of it fail.
        let _ = self.0.send(frame);
        self.1.recv(&mut [0; 2048]).is_ok_and(|length| length == frame.len())
    }
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12], &kind.to_be_bytes()[..], payload].concat()
}

fn ipv4(to: Ipv4Addr, protocol: u8, options: usize, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45 + options as u8, 0, 0, 0, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 9]);
    packet.extend(to.octets());
    packet.extend(vec![1; 4 * options]);
    packet.extend(payload);
    ethernet(0x0800, &packet)
}

fn ipv6(to: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next_header, 255];
    packet.extend([0xfe; 16]);
    packet.extend(to.octets());
    packet.extend(payload);
    ethernet(0x86dd, &packet)
}

fn udp(port: u16) -> Vec<u8> {
    [&[0, 9], &port.to_be_bytes()[..], &[0, 8, 0, 0]].concat()
}

fn arp(target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend([0; 16]);
    packet.extend(target.octets());
    ethernet(0x0806, &packet)
}

fn about(kind: u8, target: Ipv6Addr) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], &target.octets()[..]].concat()
}

fn filter(ports: &[(Option<IpAddr>, u16)], own: &[IpAddr]) -> Filter {
    Filter {
        udp_ports: ports.iter().copied().collect(),
        own_addresses: own.iter().copied().collect(),
    }
}

#[test]
fn nothing_passes_an_empty_filter() {
    let socket = Socket::with(&Filter::default());
    for frame in [
        ipv4(OURS4, 17, 0, 0, &udp(7)),
        ipv6(OURS6, 17, &udp(7)),
        ipv6(OURS6, 58, &about(135, OURS6)),
        arp(OURS4),
        vec![0; 60],
        vec![1],
    ] {
        assert!(!socket.accepts(&frame), "{frame:x?}");
    }
}

#[test]
fn ports_pass_by_address_or_for_any() {
    let ports = [(Some(OURS4.into()), 7), (Some(OURS6.into()), 8), (None, 9)];
    let socket = Socket::with(&filter(&ports, &[]));
    for options in [0, 1, 10] {
        assert!(socket.accepts(&ipv4(OURS4, 17, options, 0x4000, &udp(7))));
        assert!(socket.accepts(&ipv4(OTHER4, 17, options, 0, &udp(9))));
        assert!(!socket.accepts(&ipv4(OTHER4, 17, options, 0, &udp(7))));
        assert!(!socket.accepts(&ipv4(OURS4, 17, options, 0, &udp(8))));
    }
    assert!(socket.accepts(&ipv6(OURS6, 17, &udp(8))));
    assert!(socket.accepts(&ipv6(OTHER6, 17, &udp(9))));
    assert!(!socket.accepts(&ipv6(OTHER6, 17, &udp(8))));
    assert!(!socket.accepts(&ipv6(OURS6, 17, &udp(7))));
    assert!(!socket.accepts(&ipv4(OURS4, 6, 0, 0, &udp(7))), "TCP");
    assert!(!socket.accepts(&ipv4(OURS4, 17, 0, 0x2000, &udp(7))), "a first fragment");
    assert!(!socket.accepts(&ipv4(OURS4, 17, 0, 0x0001, &udp(7))), "a later fragment");
    assert!(!socket.accepts(&ipv4(OURS4, 17, 0, 0, &[])), "cut off");
    assert!(!socket.accepts(&arp(OURS4)), "the kernel's to answer");
}

#[test]
fn own_addresses_pass_arp_and_icmp() {
    let socket = Socket::with(&filter(&[], &[OURS4.into(), OURS6.into()]));
    assert!(socket.accepts(&arp(OURS4)));
    assert!(!socket.accepts(&arp(OTHER4)));
    assert!(socket.accepts(&ipv4(OURS4, 1, 0, 0, &[8, 0, 0, 0])));
    assert!(!socket.accepts(&ipv4(OTHER4, 1, 0, 0, &[8, 0, 0, 0])));
    assert!(socket.accepts(&ipv6(OURS6, 58, &[128, 0, 0, 0])));
    assert!(!socket.accepts(&ipv6(OTHER6, 58, &[128, 0, 0, 0])));
    for kind in [135, 136] {
        assert!(socket.accepts(&ipv6(OTHER6, 58, &about(kind, OURS6))));
        assert!(!socket.accepts(&ipv6(OTHER6, 58, &about(kind, OTHER6))));
    }
    assert!(!socket.accepts(&ipv6(OTHER6, 58, &about(134, OURS6))));
    assert!(!socket.accepts(&ipv4(OURS4, 17, 0, 0, &udp(7))), "no port is registered");
}

#[test]
fn long_programs_reach_their_ends() {
    let ports: Vec<_> = (1..=150)
        .flat_map(|port| {
            [(Some(OURS4.into()), port), (Some(OURS6.into()), port), (None, 1000 + port)]
        })
        .collect();
    let socket = Socket::with(&filter(&ports, &[OURS4.into(), OURS6.into()]));
    for port in [1, 75, 150] {
        assert!(socket.accepts(&ipv4(OURS4, 17, 0, 0, &udp(port))));
        assert!(socket.accepts(&ipv6(OURS6, 17, &udp(port))));
        assert!(socket.accepts(&ipv6(OTHER6, 17, &udp(1000 + port))));
        assert!(!socket.accepts(&ipv6(OTHER6, 17, &udp(port))));
    }
    assert!(socket.accepts(&arp(OURS4)));
    assert!(socket.accepts(&ipv6(OTHER6, 58, &about(136, OURS6))));
    assert!(!socket.accepts(&ipv4(OURS4, 17, 0, 0, &udp(151))));
}
