//! "Congestion experienced" on frames, as a router with a full queue marks them instead of dropping
//! them.

use clearway_wire::digest::{Digest, Network};

/// The two bits of the traffic class (RFC 3168, section 5): 0 for a transport that knows no ECN.
const ECN: u8 = 0b11;

/// Marks an IP packet of an ECN-capable transport; true if it was one.
pub(super) fn mark(frame: &mut [u8]) -> bool {
    let digest = Digest::of(frame);
    let packet = &mut frame[digest.network_at()..];
    match digest.network() {
        Network::Ipv4 => mark_ipv4(packet),
        Network::Ipv6 => mark_ipv6(packet),
        _ => false,
    }
}

fn mark_ipv4(packet: &mut [u8]) -> bool {
    let [_, class, .., high, low] = &mut packet[..12] else { return false };
    if *class & ECN == 0 {
        return false;
    }
    let added = u16::from(ECN - (*class & ECN));
    *class |= ECN;
    // RFC 1624, section 3: HC' = ~(~HC + ~m + m'), where m' - m is what was added to one 16-bit
    // word.
    let (sum, carry) = (!u16::from_be_bytes([*high, *low])).overflowing_add(added);
    [*high, *low] = (!(sum + u16::from(carry))).to_be_bytes();
    true
}

/// The class stands across two octets: its ECN bits are bits 4 and 5 of the second.
fn mark_ipv6(packet: &mut [u8]) -> bool {
    if packet[1] >> 4 & ECN == 0 {
        return false;
    }
    packet[1] |= ECN << 4;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frames::{ethernet, ipv4, ipv6, udp};
    use clearway_wire::checksum::Sum;

    #[test]
    fn only_capable_transports_are_marked_and_the_header_checksum_stays_right() {
        for (class, capable) in [(0, false), (1, true), (2, true), (3, true), (0xb8, false)] {
            let mut packet = ipv4([10, 0, 0, 2], 17, &[], 0, &udp(7));
            packet[1] = class;
            let sum = Sum::new().with(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut frame = ethernet(&[], 0x0800, &packet);
            assert_eq!(mark(&mut frame), capable);
            assert_eq!(frame[15], if capable { class | 3 } else { class });
            assert_eq!(Sum::new().with(&frame[14..34]).checksum(), 0);
        }
    }

    #[test]
    fn ipv6_is_marked_behind_a_tag_too() {
        let packet = ipv6([1; 16], 17, &udp(7));
        let mut frame = ethernet(&[(0x8100, 5)], 0x86dd, &packet);
        assert!(!mark(&mut frame));
        frame[19] |= 0x20;
        assert!(mark(&mut frame));
        assert_eq!(frame[19] & 0x30, 0x30);
    }
}
