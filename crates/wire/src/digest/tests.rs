use super::{Digest, Layer, Network, fields};
use proptest::prelude::*;

const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 0xaa];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 0xbb];
const UDP_HEADER: [u8; 8] = [0x14, 0xe9, 0x00, 0x35, 0, 8, 0, 0];

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&MAC_B[..], &MAC_A, &ether_type.to_be_bytes(), payload].concat()
}

fn ipv4(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_length = 20 + options.len();
    let mut packet = vec![0x40 | (header_length / 4) as u8, 0];
    packet.extend(((header_length + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(options);
    packet.extend(payload);
    ethernet(0x0800, &packet)
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend([0x20; 16]);
    packet.extend([0x30; 16]);
    packet.extend(payload);
    ethernet(0x86dd, &packet)
}

fn ports(digest: &Digest) -> (u64, u64) {
    (digest.field(fields::SOURCE_PORT), digest.field(fields::DESTINATION_PORT))
}

#[test]
fn udp_over_ipv4() {
    let digest = Digest::of(&ipv4(17, 0x4000, &[], &UDP_HEADER));
    assert_eq!(digest.network(), Network::Ipv4);
    assert_eq!(digest.layer(), Layer::Ports);
    assert!(super::parse::plain(&ipv4(17, 0x4000, &[], &UDP_HEADER)).is_some());
    assert_eq!(ports(&digest), (5353, 53));
    assert_eq!(digest.field(fields::PROTOCOL), 17);
    assert_eq!(digest.field(fields::ETHER_TYPE), 0x0800);
    assert_eq!(digest.field(fields::IPV4_SOURCE), 0x0a00_0001);
    assert_eq!(digest.field(fields::IPV4_DESTINATION), 0x0a00_0002);
    assert_eq!(digest.field(fields::MAC_DESTINATION), 0x0200_0000_00bb);
    assert_eq!(digest.field(fields::MAC_SOURCE), 0x0200_0000_00aa);
    assert_eq!(digest.field(fields::TAGGED), 0);
    assert_eq!(digest.field(fields::FIRST_FRAGMENT), 0);
    assert_eq!((digest.network_at(), digest.transport_at(), digest.packet_end()), (14, 34, 42));
}

#[test]
fn advertisements_of_other_addresses_are_marked() {
    let message = |kind: u8, target: [u8; 16]| [&[kind, 0, 0, 0, 0, 0, 0, 0], &target[..]].concat();
    let mark = |next_header, payload: &[u8]| {
        Digest::of(&ipv6(next_header, payload)).field(fields::ADVERTISES_ANOTHER)
    };
    let (own, other) = ([0x20; 16], [0x21; 16]); // packets come from the former
    assert_eq!(mark(58, &message(136, own)), 0);
    assert_eq!(mark(58, &message(136, other)), 1);
    // Cut off, or where not everybody looks for it.
    assert_eq!(mark(58, &message(136, own)[..23]), 1);
    let behind_options = [&[58, 0, 1, 4, 0, 0, 0, 0], &message(136, own)[..]].concat();
    assert_eq!(mark(60, &behind_options), 1);
    // Questions may be about anybody, and what is no ICMPv6 is about nobody.
    assert_eq!(mark(58, &message(135, other)), 0);
    assert_eq!(mark(17, &message(136, other)), 0);
}

#[test]
fn options_move_the_ports_and_source_routes_hide_them() {
    let digest = Digest::of(&ipv4(17, 0, &[1, 1, 7, 5, 4, 0, 0, 0], &UDP_HEADER));
    assert_eq!((digest.layer(), ports(&digest)), (Layer::Ports, (5353, 53)));
    assert_eq!(digest.transport_at(), 42);
    for options in
        [[131, 7, 4, 9, 9, 9, 9, 0], [1, 137, 3, 4, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0]]
    {
        let digest = Digest::of(&ipv4(17, 0, &options, &UDP_HEADER));
        assert_eq!((digest.layer(), ports(&digest)), (Layer::Unintelligible, (0, 0)));
        assert_eq!(digest.field(fields::IPV4_DESTINATION), 0x0a00_0002);
    }
}

#[test]
fn fragments_smuggle_no_ports() {
    let first = Digest::of(&ipv4(17, 0x2000, &[], &UDP_HEADER));
    assert_eq!((first.layer(), ports(&first)), (Layer::Ports, (5353, 53)));
    assert_eq!(first.field(fields::FIRST_FRAGMENT), 1);
    for fragment in [0x0001, 0x2001, 0x1fff, 0x3fff] {
        let later = Digest::of(&ipv4(17, fragment, &[], &UDP_HEADER));
        assert_eq!((later.layer(), ports(&later)), (Layer::LaterFragment, (0, 0)));
        assert_eq!(later.field(fields::PROTOCOL), 17);
        assert_eq!(later.field(fields::FIRST_FRAGMENT), 0);
        assert_eq!(later.transport_at(), 0);
    }
    let short = Digest::of(&ipv4(17, 0x2000, &[], &UDP_HEADER[..7]));
    assert_eq!((short.layer(), ports(&short)), (Layer::Unintelligible, (0, 0)));
}

#[test]
fn padding_is_not_part_of_the_packet() {
    let mut frame = ipv4(17, 0, &[], &[]);
    frame.extend(UDP_HEADER);
    let digest = Digest::of(&frame);
    assert_eq!((digest.layer(), ports(&digest)), (Layer::Unintelligible, (0, 0)));
}

#[test]
fn icmp_has_type_and_code() {
    let digest = Digest::of(&ipv4(1, 0, &[], &[8, 3, 0, 0]));
    assert_eq!(digest.layer(), Layer::Icmp);
    assert_eq!((digest.field(fields::ICMP_TYPE), digest.field(fields::ICMP_CODE)), (8, 3));
    let digest = Digest::of(&ipv6(58, &[135, 0, 0, 0]));
    assert_eq!((digest.layer(), digest.field(fields::ICMP_TYPE)), (Layer::Icmp, 135));
    // ICMPv6 in IPv4 is a protocol like any other.
    assert_eq!(Digest::of(&ipv4(58, 0, &[], &[135, 0, 0, 0])).layer(), Layer::None);
}

#[test]
fn ipv6_through_extension_headers() {
    let hop_by_hop = [60, 0, 1, 4, 0, 0, 0, 0];
    let options = [43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let routing = [17, 0, 0, 0, 0, 0, 0, 0];
    let digest = Digest::of(&ipv6(0, &[&hop_by_hop[..], &options, &routing, &UDP_HEADER].concat()));
    assert_eq!((digest.layer(), ports(&digest)), (Layer::Ports, (5353, 53)));
    assert_eq!((digest.network(), digest.field(fields::PROTOCOL)), (Network::Ipv6, 17));
    assert_eq!(digest.field(fields::IPV6_DESTINATION_LOW), 0x3030_3030_3030_3030);
    assert_eq!((digest.network_at(), digest.transport_at(), digest.packet_end()), (14, 86, 94));
}

#[test]
fn ipv6_fragments() {
    let fragment = |offset_and_more: u16, rest: &[u8]| {
        let header = [17, 0, (offset_and_more >> 8) as u8, offset_and_more as u8, 0, 0, 0, 1];
        Digest::of(&ipv6(44, &[&header[..], rest].concat()))
    };
    let atomic = fragment(0, &UDP_HEADER);
    assert_eq!((ports(&atomic), atomic.field(fields::FIRST_FRAGMENT)), ((5353, 53), 0));
    let first = fragment(1, &UDP_HEADER);
    assert_eq!((ports(&first), first.field(fields::FIRST_FRAGMENT)), ((5353, 53), 1));
    for later in [fragment(8, &UDP_HEADER), fragment(9, &UDP_HEADER)] {
        assert_eq!((later.layer(), ports(&later)), (Layer::LaterFragment, (0, 0)));
        assert_eq!(later.field(fields::PROTOCOL), 44);
    }
}

#[test]
fn ipv6_chains_that_end_badly() {
    let chains: [(u8, &[u8], u64); 5] = [
        (43, &[17, 0, 0, 1, 0, 0, 0, 0, 0x14, 0xe9, 0, 53, 0, 8, 0, 0], 43),
        (60, &[0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0], 0),
        (60, &[17, 9, 1, 4, 0, 0, 0, 0], 60),
        (0, &[17, 0, 1], 0),
        (44, &[44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 8, 0, 0], 44),
    ];
    for (next_header, payload, protocol) in chains {
        let digest = Digest::of(&ipv6(next_header, payload));
        assert_eq!((digest.layer(), ports(&digest)), (Layer::Unintelligible, (0, 0)));
        assert_eq!(digest.field(fields::PROTOCOL), protocol);
    }
    let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(20);
    assert_eq!(Digest::of(&ipv6(60, &endless)).layer(), Layer::Unintelligible);
}

#[test]
fn vlan_arp_aoe_and_others() {
    let tagged = |control: u16, inner: &[u8]| {
        ethernet(0x8100, &[&control.to_be_bytes()[..], inner].concat())
    };
    let udp = ipv4(17, 0, &[], &UDP_HEADER);
    let digest = Digest::of(&tagged(0xa005, &udp[12..]));
    assert_eq!((digest.field(fields::TAGGED), digest.field(fields::VLAN_ID)), (1, 5));
    assert_eq!((digest.field(fields::VLAN_PRIORITY), ports(&digest)), (5, (5353, 53)));
    assert_eq!(digest.network_at(), 18);
    let twice = Digest::of(&tagged(7, &tagged(5, &udp[12..])[12..]));
    assert_eq!((twice.network(), twice.field(fields::ETHER_TYPE)), (Network::Other, 0x8100));
    assert_eq!(Digest::of(&ethernet(0x8100, &[0, 5, 8])).network(), Network::Broken);

    let arp =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0xaa, 10, 0, 0, 1, 0, 0, 0, 0, 0, 7, 10, 0, 0, 2];
    let digest = Digest::of(&ethernet(0x0806, &arp));
    assert_eq!((digest.network(), digest.field(fields::ARP_OPERATION)), (Network::Arp, 1));
    assert_eq!(digest.field(fields::ARP_SENDER), 0x0a00_0001);
    assert_eq!(digest.field(fields::ARP_TARGET), 0x0a00_0002);
    assert_eq!(digest.field(fields::ARP_SENDER_MAC), 0x0200_0000_00aa);
    assert_eq!(digest.field(fields::ARP_TARGET_MAC), 7);

    let aoe = [0x10, 0, 0x12, 0x34, 5, 1, 0xde, 0xad, 0xbe, 0xef];
    let digest = Digest::of(&ethernet(0x88a2, &aoe));
    assert_eq!((digest.network(), digest.field(fields::AOE_MAJOR)), (Network::Aoe, 0x1234));
    assert_eq!(digest.field(fields::AOE_MINOR), 5);
    assert_eq!(digest.field(fields::AOE_COMMAND), 1);
    assert_eq!(digest.field(fields::AOE_TAG), 0xdead_beef);

    assert_eq!(Digest::of(&ethernet(0x88cc, &[])).network(), Network::Other);
    assert_eq!(Digest::of(&[0; 13]), Digest::default());
}

#[test]
fn headers_that_contradict_themselves_are_broken() {
    let good = ipv4(17, 0, &[], &UDP_HEADER);
    for (at, byte) in [(14, 0x55), (14, 0x44), (14, 0x4f), (16, 0xff), (17, 19)] {
        let mut bad = good.clone();
        bad[at] = byte;
        let digest = Digest::of(&bad);
        assert_eq!(digest.network(), Network::Broken, "byte {at}");
        assert_eq!((digest.words()[3], ports(&digest)), (0, (0, 0)));
        assert_eq!(digest.field(fields::ETHER_TYPE), 0x0800);
    }
    let mut bad = ipv6(17, &UDP_HEADER);
    bad[19] = 9;
    assert_eq!(Digest::of(&bad).network(), Network::Broken);
}

/// Frames that are mostly right, so that all branches are reached.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(vec![0x0800, 0x86dd, 0x0806, 0x88a2, 0x8100, 0x1234]);
    let first = prop::sample::select(vec![0x45, 0x46, 0x4f, 0x60, 0x00, 0xff]);
    (kinds, first, prop::collection::vec(any::<u8>(), 0..120)).prop_map(
        |(kind, first, mut rest)| {
            let length = rest.len() as u16;
            if length > 7 {
                rest[0] = first;
                let (at, length) =
                    if first == 0x60 { (4, length.max(40) - 40) } else { (2, length) };
                rest[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            ethernet(kind, &rest)
        },
    )
}

proptest! {
    #[test]
    fn fields_are_there_only_where_the_kind_says_so(frame in frame()) {
        let digest = Digest::of(&frame);
        let is_ip = matches!(digest.network(), Network::Ipv4 | Network::Ipv6);
        if !is_ip {
            prop_assert_eq!(digest.layer(), Layer::None);
            prop_assert_eq!(digest.field(fields::PROTOCOL), 0);
        }
        if digest.network() != Network::Arp && matches!(
            digest.layer(), Layer::None | Layer::LaterFragment | Layer::Unintelligible)
        {
            prop_assert_eq!(ports(&digest), (0, 0));
        }
        if digest.layer() == Layer::Ports {
            let at = digest.transport_at();
            prop_assert_eq!(&frame[at..at + 2], &digest.words()[0].to_be_bytes()[..2]);
            prop_assert!(digest.packet_end() <= frame.len());
        }
        // What follows the packet changes nothing.
        if is_ip {
            prop_assert_eq!(Digest::of(&[&frame[..], &[1; 9]].concat()), digest);
        }
    }

    #[test]
    fn the_short_way_of_plain_frames_leads_to_the_same_place(
        protocol in prop::sample::select(vec![6, 17, 17, 33]),
        payload in 0..30usize,
        changes in prop::collection::vec((0..80usize, any::<u8>()), 0..3),
    ) {
        let mut frame = ipv4(protocol, 0x4000, &[], &vec![7; payload]);
        for (at, octet) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = octet;
            }
        }
        if let Some(words) = super::parse::plain(&frame) {
            prop_assert_eq!(Digest::from_words(words), super::parse::any(&frame));
        }
        let mut used = Digest::from_words([u64::MAX; 8]);
        used.become_of(&frame);
        prop_assert_eq!(used, super::parse::any(&frame));
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let digest = Digest::of(&bytes);
        prop_assert!(digest.packet_end() <= bytes.len());
    }
}
