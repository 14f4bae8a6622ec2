//! Which packets pass a link, by what a router says of one that did not: ICMP "fragmentation
//! needed" and ICMPv6 "packet too big".
//!
//! Whether the packet was ours, and what follows for its flow, is the transport's business.

use super::DropReason;
use clearway_wire::{Malformed, ipv4, ipv6};

/// RFC 791, section 3.2: "Every internet module must be able to forward a datagram of 68 octets
/// without further fragmentation."
const MTU_MIN_V4: u16 = 68;
/// RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets
/// or greater."
const MTU_MIN_V6: u32 = 1280;
/// RFC 1191, section 7.1, table 7-1: sizes that links have, for routers that do not say theirs.
const PLATEAUS: [u16; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, MTU_MIN_V4];

/// The MTU that a router which quotes `quote` means. RFC 1191, section 5: an old one says 0, and
/// then "the host [...] can use the Total Length field of the returned IP header" to choose the
/// next lower plateau.
pub(super) fn mtu_v4(said: u16, quote: &[u8]) -> Result<u32, DropReason> {
    let length = ipv4::View::new(quote)?.total_length() as u32;
    let mtu = match said {
        0 => PLATEAUS.into_iter().find(|plateau| u32::from(*plateau) < length),
        1..MTU_MIN_V4 => return Err(Malformed::Field.into()),
        said => Some(said),
    };
    smaller(mtu.unwrap_or(MTU_MIN_V4).into(), length)
}

/// The same over IPv6. RFC 8201, section 4: "A node MUST NOT reduce its estimate of the Path MTU
/// below the IPv6 minimum link MTU in response to such a message."
pub(super) fn mtu_v6(said: u32, quote: &[u8]) -> Result<u32, DropReason> {
    let length = ipv6::HEADER_LENGTH + ipv6::View::new(quote)?.payload_length();
    smaller(said.max(MTU_MIN_V6), length as u32)
}

/// RFC 5927, section 7.2: a message whose MTU is not smaller than the packet that it quotes is a
/// lie.
fn smaller(mtu: u32, length: u32) -> Result<u32, DropReason> {
    if mtu < length { Ok(mtu) } else { Err(DropReason::Unsolicited) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(length: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet
    }

    fn v6(length: u16) -> Vec<u8> {
        let mut packet = vec![0; 48];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
        packet
    }

    #[test]
    fn what_routers_say_is_taken_if_it_makes_sense() {
        assert_eq!(mtu_v4(1400, &v4(1500)), Ok(1400));
        assert_eq!(mtu_v4(68, &v4(1500)), Ok(68));
        for lie in [67, 1, 1500, 9000] {
            assert!(mtu_v4(lie, &v4(1500)).is_err(), "{lie}");
        }
        assert!(mtu_v4(1400, &v4(1500)[..19]).is_err(), "cut off");
        assert_eq!(mtu_v6(1400, &v6(1500)), Ok(1400));
        assert_eq!(mtu_v6(68, &v6(1500)), Ok(1280));
        for (lie, length) in [(1500, 1500), (u32::MAX, 9000), (68, 1280)] {
            assert!(mtu_v6(lie, &v6(length)).is_err(), "{lie}");
        }
    }

    #[test]
    fn old_routers_say_nothing_and_plateaus_are_tried() {
        let mut length = 9000;
        let mut tried = Vec::new();
        while let Ok(mtu) = mtu_v4(0, &v4(length)) {
            tried.push(mtu);
            length = mtu as u16;
        }
        assert_eq!(tried, [8166, 4352, 2002, 1492, 1006, 508, 296, 68]);
    }
}
