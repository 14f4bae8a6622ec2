//! The kernel itself is asked what the program lets through: a filter works on a Unix datagram
//! socket as it does on a packet socket, and that takes no privilege.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixDatagram;

use clearway_base::Random;
use clearway_wire::digest::{Digest, fields as digest_fields};

use super::*;
use crate::interface::attach_filter;
use crate::test_frames::{about, arp, ethernet, ipv4, ipv6, random, udp};

const OURS4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 8);

struct Socket(UnixDatagram, UnixDatagram);

impl Socket {
    fn with(patterns: &[SteerPattern]) -> Socket {
        let (sender, receiver) = UnixDatagram::pair().expect("sockets can be had");
        let program = compile(patterns.iter()).expect("it is short enough");
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

fn over4(to: Ipv4Addr, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(to.octets(), protocol, &[1; 8], fragment, payload))
}

fn over6(to: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], 0x86dd, &ipv6(to.octets(), next_header, payload))
}

fn arp_for(target: Ipv4Addr) -> Vec<u8> {
    arp_between(OTHER4, target)
}

fn arp_between(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    ethernet(&[], 0x0806, &arp(sender.octets(), target.octets()))
}

fn own(addresses: &[IpAddr]) -> Vec<SteerPattern> {
    addresses.iter().flat_map(|address| SteerPattern::of_own(*address)).collect()
}

#[test]
fn nothing_passes_an_empty_filter() {
    let socket = Socket::with(&[]);
    for frame in [
        over4(OURS4, 17, 0, &udp(7)),
        over6(OURS6, 17, &udp(7)),
        over6(OURS6, 58, &about(135, OURS6.octets())),
        arp_for(OURS4),
        vec![0; 60],
        vec![1],
    ] {
        assert!(!socket.accepts(&frame), "{frame:x?}");
    }
}

#[test]
fn ports_pass_by_address_or_for_any() {
    let ports = [(Some(OURS4.into()), 7), (Some(OURS6.into()), 8), (None, 9)];
    let socket = Socket::with(&ports.map(|(address, port)| SteerPattern::udp(address, port)));
    assert!(socket.accepts(&over4(OURS4, 17, 0x4000, &udp(7))));
    assert!(socket.accepts(&over4(OTHER4, 17, 0, &udp(9))));
    assert!(!socket.accepts(&over4(OTHER4, 17, 0, &udp(7))));
    assert!(!socket.accepts(&over4(OURS4, 17, 0, &udp(8))));
    assert!(socket.accepts(&over6(OURS6, 17, &udp(8))));
    assert!(socket.accepts(&over6(OTHER6, 17, &udp(9))));
    assert!(!socket.accepts(&over6(OTHER6, 17, &udp(8))));
    assert!(!socket.accepts(&over6(OURS6, 17, &udp(7))));
    assert!(!socket.accepts(&over4(OURS4, 6, 0, &udp(7))), "TCP");
    assert!(!socket.accepts(&over4(OURS4, 17, 0x2000, &udp(7))), "a first fragment");
    assert!(!socket.accepts(&over4(OURS4, 17, 0x0001, &udp(7))), "a later fragment");
    assert!(!socket.accepts(&over4(OURS4, 17, 0, &[])), "cut off");
    assert!(!socket.accepts(&arp_for(OURS4)), "the kernel's to answer");
}

#[test]
fn own_addresses_pass_arp_and_icmp() {
    let socket = Socket::with(&own(&[OURS4.into(), OURS6.into()]));
    assert!(socket.accepts(&arp_for(OURS4)));
    assert!(!socket.accepts(&arp_for(OTHER4)));
    assert!(socket.accepts(&arp_between(OURS4, OTHER4)), "somebody says that he has our address");
    assert!(socket.accepts(&over4(OURS4, 1, 0, &[8, 0, 0, 0])));
    assert!(!socket.accepts(&over4(OTHER4, 1, 0, &[8, 0, 0, 0])));
    assert!(socket.accepts(&over6(OURS6, 58, &[128, 0, 0, 0])));
    assert!(!socket.accepts(&over6(OTHER6, 58, &[128, 0, 0, 0])));
    let group = clearway_wire::ipv6::solicited_node(OURS6);
    assert!(socket.accepts(&over6(group, 58, &about(135, OURS6.octets()))));
    assert!(!socket.accepts(&over6(OTHER6, 58, &about(135, OTHER6.octets()))));
    assert!(socket.accepts(&over6(OTHER6, 58, &about(136, OURS6.octets()))));
    assert!(!socket.accepts(&over4(OURS4, 17, 0, &udp(7))), "no port is registered");
    assert!(socket.accepts(&over4(OURS4, 17, 0x2000, &udp(7))), "a first fragment");
    assert!(socket.accepts(&over4(OURS4, 17, 0x2001, &udp(7))), "a later fragment");
    assert!(socket.accepts(&over4(OURS4, 17, 1, &udp(7))), "the last fragment");
    assert!(!socket.accepts(&over4(OTHER4, 17, 1, &udp(7))));
    assert!(socket.accepts(&over6(OURS6, 44, &[17, 0, 0, 1, 0, 0, 0, 1])));
    assert!(!socket.accepts(&over6(OURS6, 17, &udp(7))), "a whole packet");
}

#[test]
fn long_programs_reach_their_ends() {
    let mut patterns = own(&[OURS4.into(), OURS6.into()]);
    for port in 1..=40 {
        patterns.push(SteerPattern::udp(Some(OURS4.into()), port));
        patterns.push(SteerPattern::udp(Some(OURS6.into()), port));
        patterns.push(SteerPattern::udp(None, 1000 + port));
    }
    let socket = Socket::with(&patterns);
    for port in [1, 20, 40] {
        assert!(socket.accepts(&over4(OURS4, 17, 0, &udp(port))));
        assert!(socket.accepts(&over6(OURS6, 17, &udp(port))));
        assert!(socket.accepts(&over6(OTHER6, 17, &udp(1000 + port))));
        assert!(!socket.accepts(&over6(OTHER6, 17, &udp(port))));
    }
    assert!(socket.accepts(&arp_for(OURS4)));
    assert!(!socket.accepts(&over4(OURS4, 17, 0, &udp(41))));
    let many: Vec<_> = (1..1000).map(|port| SteerPattern::udp(None, port)).collect();
    assert!(compile(many.iter()).is_none(), "no kernel takes a program that long");
}

/// Whatever fields of a frame's digest a pattern asks for, the filter lets the frame through.
#[test]
fn what_a_pattern_matches_passes() {
    use digest_fields as f;
    let all = [
        f::SOURCE_PORT,
        f::DESTINATION_PORT,
        f::PROTOCOL,
        f::NETWORK,
        f::NETWORK_IP,
        f::LAYER,
        f::FIRST_FRAGMENT,
        f::ETHER_TYPE,
        f::TAGGED,
        f::VLAN_ID,
        f::MAC_DESTINATION,
        f::MAC_SOURCE,
        f::IPV4_SOURCE,
        f::IPV4_DESTINATION,
        f::IPV6_SOURCE_LOW,
        f::IPV6_DESTINATION_HIGH,
        f::IPV6_DESTINATION_LOW,
        f::ARP_SENDER_MAC,
        f::ARP_TARGET_MAC,
    ];
    let mut dice = Random::new(5);
    let mut dropped = 0;
    for _ in 0..20_000 {
        let frame = random(&mut dice);
        let mut mask = [0; 8];
        for _ in 0..dice.below(8) {
            let field = all[dice.below(all.len() as u64) as usize];
            mask[field.word] |= field.mask();
        }
        let pattern = SteerPattern::new(mask, *Digest::of(&frame).words()).expect("a pattern");
        // As the kernel shows it: without the outer tag.
        let is_tagged = matches!(frame[12..], [0x81, 0, _, _, ..] | [0x88, 0xa8, _, _, ..]);
        let shown = if is_tagged && frame.len() >= 18 {
            [&frame[..12], &frame[16..]].concat()
        } else {
            frame.clone()
        };
        let socket = Socket::with(&[pattern]);
        assert!(socket.accepts(&shown), "{frame:02x?} and {pattern:x?}");
        dropped += u32::from(!socket.accepts(&over6(OTHER6, 99, &[9; 60])));
    }
    assert!(dropped > 2000, "the filter drops {dropped}");
}
