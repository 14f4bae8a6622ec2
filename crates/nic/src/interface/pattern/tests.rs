use clearway_wire::digest::Digest;

use super::*;
use crate::test_frames as frames;

fn matches(pattern: &SteerPattern, frame: &[u8]) -> bool {
    let digest = Digest::of(frame);
    let words = pattern.mask().iter().zip(pattern.value()).zip(digest.words());
    words.take(7).all(|((mask, value), word)| word & mask == *value)
}

#[test]
fn udp_to_a_port_is_that_and_nothing_else() {
    let (to, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let frame = |to, protocol, fragment, port| {
        let packet = frames::ipv4(to, protocol, &[], fragment, &frames::udp(port));
        frames::ethernet(&[], 0x0800, &packet)
    };
    let one = SteerPattern::udp(Some(to.into()), 7);
    let any = SteerPattern::udp(None, 7);
    assert!(matches(&one, &frame(to, 17, 0x4000, 7)));
    assert!(matches(&any, &frame(other, 17, 0, 7)));
    assert!(!matches(&one, &frame(other, 17, 0, 7)));
    for pattern in [one, any] {
        assert!(!matches(&pattern, &frame(to, 17, 0, 8)));
        assert!(!matches(&pattern, &frame(to, 136, 0, 7)), "UDP-Lite");
        assert!(
            !matches(&pattern, &frame(to, 17, 0x2000, 7)),
            "the kernel puts fragments together"
        );
        assert!(!matches(&pattern, &frame(to, 17, 7, 7)));
    }
    let octets = [0xfd; 16];
    let packet = frames::ipv6(octets, 17, &frames::udp(7));
    let frame = frames::ethernet(&[(0x8100, 5)], 0x86dd, &packet);
    assert!(matches(&any, &frame));
    assert!(matches(&SteerPattern::udp(Some(octets.into()), 7), &frame));
    assert!(!matches(&SteerPattern::udp(Some([0xfe; 16].into()), 7), &frame));
}

#[test]
fn the_eighth_word_is_not_for_patterns() {
    let mut mask = [0; WORDS];
    mask[7] = 1;
    assert!(matches!(SteerPattern::new(mask, [0; WORDS]), Err(Error::Invalid(_))));
    let pattern =
        SteerPattern::new([1; WORDS].map(|_| 0), [u64::MAX; WORDS]).expect("no bits at all");
    assert_eq!(pattern.value(), &[0; WORDS], "bits outside the mask are ignored");
}

#[test]
fn copies_are_of_what_is_to_groups() {
    let any = ANY.to_groups().expect("some are");
    assert!(any.mask()[1] == 1 << 56 && any.value()[1] == 1 << 56 && any.group().is_none());
    let to_mac = |mac: u64| ANY.with(fields::MAC_DESTINATION, mac);
    assert_eq!(to_mac(0x0200_0000_0001).to_groups(), None, "to one machine");
    let group = to_mac(0x0180_c200_000e);
    assert_eq!(group.to_groups(), Some(group), "it says so itself");
    assert_eq!(group.group(), Some([0x01, 0x80, 0xc2, 0, 0, 0x0e]));
    for (address, mac) in [
        ("224.0.0.251", Some([0x01, 0x00, 0x5e, 0, 0, 251])),
        // RFC 1112, section 6.4: of 28 bits, 23 are in the Ethernet address.
        ("239.255.1.2", Some([0x01, 0x00, 0x5e, 0x7f, 1, 2])),
        ("10.0.0.1", None),
        ("ff02::1:ff00:1", Some([0x33, 0x33, 0xff, 0, 0, 1])),
        ("fd00::1", None),
    ] {
        let pattern = to(address.parse().expect("an address"));
        assert_eq!(pattern.group(), mac, "{address}");
        assert_eq!(pattern.to_groups().expect("it may be").group(), mac, "{address}");
    }
}

#[test]
fn errors_to_an_address_are_those_and_nothing_else() {
    let (to, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let to6 = [0xfd; 16];
    let frame4 = |to, fragment, kind| {
        let packet = frames::ipv4(to, 1, &[], fragment, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        frames::ethernet(&[], 0x0800, &packet)
    };
    let frame6 = |to, kind| {
        let packet = frames::ipv6(to, 58, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        frames::ethernet(&[], 0x86dd, &packet)
    };
    let is_one = |address: IpAddr, frame: &[u8]| {
        SteerPattern::undelivered(address).iter().any(|pattern| matches(pattern, frame))
    };
    for kind in 0..=255 {
        assert_eq!(is_one(to.into(), &frame4(to, 0, kind)), [3, 11].contains(&kind), "{kind}");
        assert_eq!(is_one(to6.into(), &frame6(to6, kind)), (1..=3).contains(&kind), "{kind}");
        assert!(!is_one(to.into(), &frame4(other, 0, kind)));
        assert!(!is_one(to.into(), &frame4(to, 0x2000, kind)), "a fragment");
        assert!(!is_one(to6.into(), &frame6([0xfe; 16], kind)));
    }
}
