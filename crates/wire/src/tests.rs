//! Ethernet down to UDP: what is emitted is parsed back, and no bytes panic.

use crate::ethernet::{MacAddress, ether_type};
use crate::fragment::{Fragment, Place};
use crate::udp::Check;
use crate::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_mac() -> impl Strategy<Value = MacAddress> {
    any::<MacAddress>().prop_map(|mut mac| {
        mac[0] &= !1;
        mac
    })
}

fn unicast_v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<Ipv6Addr>().prop_filter("unicast", |address| !address.is_multicast())
}

proptest! {
    #[test]
    fn ethernet_and_vlan_round_trip(
        destination in any::<MacAddress>(),
        source in any_mac(),
        priority in 0..8u8,
        drop_eligible in any::<bool>(),
        id in 0..=vlan::ID_MAX,
        ether_type in any::<u16>(),
    ) {
        let mut bytes = [0xaa; 18];
        let outer = ethernet::Repr { destination, source, ether_type: ether_type::VLAN };
        let tag = vlan::Repr { priority, drop_eligible, id, ether_type };
        let at = outer.emit(&mut bytes);
        prop_assert_eq!(at + tag.emit(&mut bytes[at..]), outer.length() + tag.length());
        let view = ethernet::View::new(&bytes).unwrap();
        prop_assert_eq!(ethernet::Repr::parse(&view), Ok(outer));
        let view = vlan::View::new(view.payload()).unwrap();
        prop_assert_eq!(vlan::Repr::parse(&view), Ok(tag));
        prop_assert_eq!(view.payload(), b"");
    }

    #[test]
    fn arp_round_trip(
        asks in any::<bool>(),
        source_mac in any_mac(),
        source in any::<Ipv4Addr>(),
        target_mac in any::<MacAddress>(),
        target in any::<Ipv4Addr>(),
    ) {
        prop_assume!(!source.is_multicast());
        let operation = if asks { arp::Operation::Request } else { arp::Operation::Reply };
        let repr = arp::Repr { operation, source_mac, source, target_mac, target };
        let mut bytes = [0xaa; arp::LENGTH];
        prop_assert_eq!(repr.emit(&mut bytes), repr.length());
        prop_assert_eq!(arp::Repr::parse(&arp::View::new(&bytes).unwrap()), Ok(repr));
    }

    #[test]
    fn udp_over_ipv4_round_trip(
        source in any::<Ipv4Addr>(),
        destination in any::<Ipv4Addr>(),
        hop_limit in any::<u8>(),
        source_port in any::<u16>(),
        destination_port in 1..=u16::MAX,
        payload in vec(any::<u8>(), 0..100),
        padding in 0..20usize,
        flip in any::<prop::sample::Index>(),
    ) {
        let payload_length = payload.len() as u16;
        let udp = udp::Repr { source_port, destination_port, payload_length };
        let payload_length = payload_length + udp::HEADER_LENGTH as u16;
        let protocol = protocol::UDP;
        let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
        let mut bytes = vec![0xaa; ip.length() + udp.length()];
        ip.emit(&mut bytes);
        udp.emit(&mut bytes[ip.length()..]);
        bytes.extend_from_slice(&payload);
        let addresses = checksum::Sum::new().with(&bytes[12..20]);
        udp::fill_checksum(&mut bytes[ip.length()..], addresses);
        let length = bytes.len();
        bytes.resize(length + padding, 0xaa);

        let view = ipv4::View::new(&bytes).unwrap();
        prop_assert_eq!(ipv4::Repr::parse(&view, true), Ok(ip));
        let check = Check::V4(source, destination);
        let view = udp::View::new(view.payload()).unwrap();
        prop_assert_eq!(udp::Repr::parse(&view, check), Ok(udp));
        prop_assert_eq!(view.payload(), &payload[..]);

        // One flipped bit is found by one of the checksums. Exceptions: a flip that zeroes the UDP
        // checksum, as RFC 768 has it, one that makes it unfinished (below), and one in the UDP
        // length, which changes what is summed.
        let bit = flip.index(length * 8);
        prop_assume!(!(24 * 8..26 * 8).contains(&bit));
        let unfinished = !addresses.with_u16(protocol.into()).with_u16(payload_length).checksum();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let judged = ipv4::View::new(&bytes).and_then(|view| {
            ipv4::Repr::parse(&view, true)?;
            let view = udp::View::new(view.payload())?;
            match view.checksum() {
                0 => Err(Malformed::Checksum),
                sum if sum == unfinished => Err(Malformed::Checksum),
                _ => udp::Repr::parse(&view, check),
            }
        });
        prop_assert!(judged.is_err(), "bit {bit}: {judged:?}");
    }

    #[test]
    fn udp_over_ipv6_round_trip(
        source in unicast_v6(),
        destination in any::<Ipv6Addr>(),
        hop_limit in any::<u8>(),
        source_port in any::<u16>(),
        destination_port in 1..=u16::MAX,
        payload in vec(any::<u8>(), 0..100),
    ) {
        let payload_length = payload.len() as u16;
        let udp = udp::Repr { source_port, destination_port, payload_length };
        let payload_length = payload_length + udp::HEADER_LENGTH as u16;
        let protocol = protocol::UDP;
        let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
        let mut bytes = vec![0xaa; ip.length() + udp.length()];
        ip.emit(&mut bytes);
        udp.emit(&mut bytes[ip.length()..]);
        bytes.extend_from_slice(&payload);

        let view = ipv6::View::new(&bytes).unwrap();
        prop_assert_eq!(ipv6::Repr::parse(&view), Ok(ip));
        let check = Check::V6(source, destination);
        let without = udp::Repr::parse(&udp::View::new(view.payload()).unwrap(), check);
        prop_assert_eq!(without, Err(Malformed::Checksum));
        let addresses = checksum::Sum::new().with(&bytes[8..40]);
        udp::fill_checksum(&mut bytes[ip.length()..], addresses);
        let view = udp::View::new(&bytes[ip.length()..]).unwrap();
        prop_assert_eq!(udp::Repr::parse(&view, check), Ok(udp));
    }

    #[test]
    fn icmpv4_round_trip(
        kind in 0..5u8,
        code in any::<u8>(),
        identifier in any::<u16>(),
        sequence in any::<u16>(),
        data in vec(any::<u8>(), 0..80),
    ) {
        prop_assume!(code != icmpv4::unreachable::FRAGMENTATION_NEEDED);
        let echo = icmpv4::Echo { identifier, sequence, data: &data };
        let repr = match kind {
            0 => icmpv4::Repr::EchoRequest(echo),
            1 => icmpv4::Repr::EchoReply(echo),
            2 => icmpv4::Repr::Unreachable { code, quote: &data },
            3 => icmpv4::Repr::FragmentationNeeded { mtu: sequence, quote: &data },
            _ => icmpv4::Repr::TimeExceeded { code, quote: &data },
        };
        let mut bytes = vec![0xaa; 100];
        let length = repr.emit(&mut bytes);
        prop_assert_eq!(length, repr.length());
        let view = icmpv4::View::new(&bytes[..length]).unwrap();
        prop_assert_eq!(icmpv4::Repr::parse(&view), Ok(repr));
    }

    #[test]
    fn icmpv6_round_trip(
        kind in 0..8u8,
        (source, destination, target) in (any::<Ipv6Addr>(), any::<Ipv6Addr>(), unicast_v6()),
        (is_router, is_solicited, overrides) in any::<(bool, bool, bool)>(),
        code in any::<u8>(),
        mtu in any::<u32>(),
        mac in prop::option::of(any_mac()),
        data in vec(any::<u8>(), 0..80),
    ) {
        let echo = icmpv6::Echo { identifier: mtu as u16, sequence: 7, data: &data };
        let repr = match kind {
            0 => icmpv6::Repr::EchoRequest(echo),
            1 => icmpv6::Repr::EchoReply(echo),
            2 => icmpv6::Repr::Unreachable { code, quote: &data },
            3 => icmpv6::Repr::PacketTooBig { mtu, quote: &data },
            4 => icmpv6::Repr::TimeExceeded { code, quote: &data },
            5 => icmpv6::Repr::ParameterProblem { code, pointer: mtu, quote: &data },
            6 => {
                let solicitation = icmpv6::Solicitation { target, source_mac: mac };
                icmpv6::Repr::NeighbourSolicitation(solicitation)
            }
            _ => icmpv6::Repr::NeighbourAdvertisement(icmpv6::Advertisement {
                target, is_router, is_solicited, overrides, target_mac: mac,
            }),
        };
        let mut bytes = vec![0xaa; 100];
        let length = repr.emit(&mut bytes, source, destination);
        prop_assert_eq!(length, repr.length());
        let view = icmpv6::View::new(&bytes[..length]).unwrap();
        prop_assert_eq!(icmpv6::Repr::parse(&view, source, destination), Ok(repr));
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..120)) {
        parse_everything(&bytes);
    }

    /// Random bytes seldom have a plausible version and header length; these do.
    #[test]
    fn no_plausible_bytes_panic(
        first in prop_oneof![Just(0x45u8), Just(0x60u8), any::<u8>()],
        next in prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(58), Just(135)],
        mut bytes in vec(prop_oneof![Just(0u8), Just(1), Just(60), any::<u8>()], 8..120),
    ) {
        let length = bytes.len() as u8;
        bytes[0] = first;
        bytes[3] = length;
        bytes[5] = length.saturating_sub(40);
        bytes[6] = next;
        parse_everything(&bytes);
    }
}

/// Every view and parse on the same bytes.
fn parse_everything(bytes: &[u8]) {
    let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let _ = ethernet::View::new(bytes).map(|view| ethernet::Repr::parse(&view));
    let _ = vlan::View::new(bytes).map(|view| vlan::Repr::parse(&view));
    let _ = arp::View::new(bytes).map(|view| arp::Repr::parse(&view));
    let _ = icmpv4::View::new(bytes).map(|view| icmpv4::Repr::parse(&view));
    let _ = icmpv6::View::new(bytes).map(|view| icmpv6::Repr::parse(&view, v6, v6));
    if let Ok(view) = ipv4::View::new(bytes) {
        let parsed = ipv4::Repr::parse(&view, false);
        let _ = (ipv4::Repr::parse(&view, true), view.payload(), view.payload_of_quote());
        assert!(
            parsed.is_err() || view.payload().len() == usize::from(parsed.unwrap().payload_length)
        );
    }
    if let Ok(view) = ipv6::View::new(bytes) {
        let parsed = ipv6::Repr::parse(&view);
        let _ = (view.payload(), view.payload_of_quote());
        assert!(
            parsed.is_err() || view.payload().len() == usize::from(parsed.unwrap().payload_length)
        );
    }
    if let Ok(view) = udp::View::new(bytes) {
        let _ = (udp::Repr::parse(&view, Check::Skip), view.payload());
        let _ = udp::Repr::parse(&view, Check::V4(v4, v4));
        let _ = udp::Repr::parse(&view, Check::V6(v6, v6));
    }
}

/// An IPv6 packet with these extension headers, each of eight bytes with the first filled in here,
/// and no payload.
fn extended(headers: &[(u8, [u8; 7])]) -> Result<ipv6::Repr, Malformed> {
    let kinds = headers.iter().map(|(kind, _)| *kind).chain([protocol::UDP]);
    let mut kinds = kinds.collect::<Vec<_>>().into_iter();
    let ip = ipv6::Repr {
        source: Ipv6Addr::LOCALHOST,
        destination: Ipv6Addr::LOCALHOST,
        protocol: kinds.next().unwrap(),
        hop_limit: 1,
        payload_length: headers.len() as u16 * 8,
    };
    let mut bytes = vec![0; ip.length()];
    ip.emit(&mut bytes);
    for ((_, content), next) in headers.iter().zip(kinds) {
        bytes.push(next);
        bytes.extend_from_slice(content);
    }
    ipv6::Repr::parse(&ipv6::View::new(&bytes).unwrap())
}

#[test]
fn extension_headers_are_walked() {
    const PADDED: [u8; 7] = [0, 1, 4, 0, 0, 0, 0];
    let (hop_by_hop, routing, fragment, options) = (0, 43, 44, 60);
    let all = [(hop_by_hop, PADDED), (options, PADDED), (routing, [0; 7]), (fragment, [0; 7])];
    assert_eq!(extended(&all).map(|ip| (ip.protocol, ip.payload_length)), Ok((protocol::UDP, 0)));
    assert!(extended(&[(options, PADDED); ipv6::EXTENSION_HEADERS_MAX]).is_ok());
    let refused = Err(Malformed::ExtensionHeaders);
    assert_eq!(extended(&[(options, PADDED); ipv6::EXTENSION_HEADERS_MAX + 1]), refused);
    assert_eq!(extended(&[(options, PADDED), (hop_by_hop, PADDED)]), refused);
    // A routing header that has segments left; an unknown option that says "discard".
    assert_eq!(extended(&[(routing, [0, 0, 1, 0, 0, 0, 0])]), refused);
    assert_eq!(extended(&[(options, [0, 0x45, 4, 0, 0, 0, 0])]), refused);
    // An option that is longer than its header.
    assert_eq!(extended(&[(options, [0, 1, 5, 0, 0, 0, 0])]), refused);
    // First of several fragments, and a later one.
    assert_eq!(extended(&[(fragment, [0, 0, 1, 0, 0, 0, 0])]), Err(Malformed::Fragment));
    assert_eq!(extended(&[(fragment, [0, 1, 0, 0, 0, 0, 0])]), Err(Malformed::Fragment));
    // A header that is longer than the packet.
    assert_eq!(extended(&[(options, [1, 1, 4, 0, 0, 0, 0])]), Err(Malformed::Truncated));
}

#[test]
fn wrong_ipv4_headers_are_malformed() {
    let ip = ipv4::Repr {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        protocol: protocol::UDP,
        hop_limit: 64,
        payload_length: 4,
    };
    let judge = |at: usize, octet: u8| {
        let mut bytes = [0; 24];
        ip.emit(&mut bytes);
        bytes[at] = octet;
        ipv4::Repr::parse(&ipv4::View::new(&bytes).unwrap(), false).err()
    };
    assert_eq!(judge(0, 0x45), None);
    assert_eq!(judge(0, 0x46), None); // one word of options, no payload
    assert_eq!(judge(0, 0x47), Some(Malformed::Length));
    assert_eq!(judge(0, 0x44), Some(Malformed::Length));
    assert_eq!(judge(0, 0x65), Some(Malformed::Version));
    assert_eq!(judge(3, 25), Some(Malformed::Truncated));
    assert_eq!(judge(3, 19), Some(Malformed::Length));
    assert_eq!(judge(6, 0x20), Some(Malformed::Fragment));
    assert_eq!(judge(7, 1), Some(Malformed::Fragment));
    // The evil bit (RFC 3514) harms nobody.
    assert_eq!(judge(6, 0x80), None);
}

/// What is emitted as parts of a packet is parsed as those, and their heads become that of the
/// whole.
#[test]
fn heads_of_fragments_become_that_of_the_packet() {
    let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let (protocol, hop_limit, payload_length) = (protocol::UDP, 64, 16);
    let place = Place { identification: 0x1234_5678, offset: 0, is_last: false };
    let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
    let mut bytes = [0; 64];
    assert_eq!(place.emit_v6(&ip, &mut bytes), 48);
    // The same behind a header of options that begins with two of padding.
    let options = [44, 0, 1, 4, 0, 0, 0, 0];
    let mut extended = [&bytes[..40], &options, &bytes[40..]].concat();
    (extended[5], extended[6]) = (32, 60);
    for (bytes, head_length) in [(&bytes[..], 48), (&extended, 56)] {
        let part = Fragment::of_ipv6(&ipv6::View::new(bytes).unwrap()).unwrap();
        assert_eq!((part.name.identification, part.offset, part.is_last), (0x1234_5678, 0, false));
        assert_eq!((part.head.len(), part.payload.len()), (head_length, 16));
        let mut whole = part.head.to_vec();
        fragment::complete(&mut whole, 100, true).unwrap();
        whole.extend([0; 100]);
        let view = ipv6::View::new(&whole).unwrap();
        let expected = ipv6::Repr { payload_length: 100, ..ip };
        assert_eq!((ipv6::Repr::parse(&view), view.ecn()), (Ok(expected), Ecn::Marked));
        assert!(fragment::complete(&mut part.head.to_vec(), 65_536, false).is_err());
    }
    let (source, destination) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
    let place = Place { offset: 64, is_last: true, ..place };
    let mut bytes = [0; 36];
    assert_eq!(place.emit_v4(&ip, &mut bytes), 20);
    let part = Fragment::of_ipv4(&ipv4::View::new(&bytes).unwrap(), true).unwrap();
    assert_eq!((part.name.identification, part.offset, part.is_last), (0x5678, 64, true));
    let mut whole = part.head.to_vec();
    fragment::complete(&mut whole, 100, false).unwrap();
    whole.extend([0; 100]);
    let view = ipv4::View::new(&whole).unwrap();
    assert_eq!(ipv4::Repr::parse(&view, true), Ok(ipv4::Repr { payload_length: 100, ..ip }));
}

#[test]
fn neighbour_discovery_with_wrong_options_is_malformed() {
    let address = Ipv6Addr::LOCALHOST;
    let judge = |option: &[u8]| {
        let repr = icmpv6::Repr::NeighbourSolicitation(icmpv6::Solicitation {
            target: address,
            source_mac: None,
        });
        let mut bytes = vec![0; 24];
        repr.emit(&mut bytes, address, address);
        bytes.extend_from_slice(option);
        bytes[2..4].copy_from_slice(&[0, 0]);
        let length = bytes.len() as u32;
        let sum = checksum::pseudo_header_v6(address, address, protocol::ICMPV6, length);
        let sum = sum.with(&bytes).checksum().to_be_bytes();
        bytes[2..4].copy_from_slice(&sum);
        icmpv6::Repr::parse(&icmpv6::View::new(&bytes).unwrap(), address, address).map(|_| ())
    };
    assert_eq!(judge(&[1, 1, 2, 2, 2, 2, 2, 2]), Ok(()));
    assert_eq!(judge(&[14, 1, 2, 2, 2, 2, 2, 2]), Ok(()));
    assert_eq!(judge(&[14, 0, 2, 2, 2, 2, 2, 2]), Err(Malformed::Length));
    assert_eq!(judge(&[1, 2, 2, 2, 2, 2, 2, 2]), Err(Malformed::Length));
    assert_eq!(judge(&[1, 1, 3, 2, 2, 2, 2, 2]), Err(Malformed::Address));
}

/// As Linux leaves them to a NIC, and as they come where there is none.
#[test]
fn unfinished_checksums_of_udp_are_none() {
    let packet = |checksum: u16| {
        let mut bytes = *b"\x4e\x20\x50\xe3\x00\x0d\x00\x00hello";
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
        bytes
    };
    let (v4, v6) = (Ipv4Addr::new(10, 78, 0, 1), Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1));
    let sums = [
        (Check::V4(v4, v4), !checksum::pseudo_header_v4(v4, v4, protocol::UDP, 13).checksum()),
        (Check::V6(v6, v6), !checksum::pseudo_header_v6(v6, v6, protocol::UDP, 13).checksum()),
    ];
    for (check, unfinished) in sums {
        let parse = |sum| udp::Repr::parse(&udp::View::new(&packet(sum)).unwrap(), check);
        assert!(parse(unfinished).is_ok());
        assert_eq!(parse(unfinished.wrapping_add(1)), Err(Malformed::Checksum));
        assert_eq!(parse(!unfinished), Err(Malformed::Checksum));
    }
}
