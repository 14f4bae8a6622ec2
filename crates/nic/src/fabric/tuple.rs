//! The fields of a frame that NICs and clouds tell connections apart by: addresses, protocol,
//! ports.

use clearway_wire::digest::{Digest, Layer, Network, fields};
use clearway_wire::protocol;
use clearway_world::Connection;

/// Addresses and ports as they stand in an IP packet; no ports where there are none, as in
/// fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuple<'a> {
    /// Source and destination address, 4 or 16 bytes each.
    pub(super) addresses: &'a [u8],
    pub(super) protocol: u8,
    /// Source and destination port.
    pub(super) ports: &'a [u8],
}

impl<'a> Tuple<'a> {
    pub(super) fn of(frame: &'a [u8]) -> Option<Self> {
        let digest = Digest::of(frame);
        let packet = &frame[digest.network_at()..];
        let addresses = match digest.network() {
            Network::Ipv4 => &packet[12..20],
            Network::Ipv6 => &packet[8..40],
            _ => return None,
        };
        let protocol = digest.field(fields::PROTOCOL) as u8;
        let is_whole = digest.layer() == Layer::Ports && digest.field(fields::FIRST_FRAGMENT) == 0;
        let has_ports = is_whole && matches!(protocol, protocol::TCP | protocol::UDP);
        let ports = if has_ports { frame[digest.transport_at()..].get(..4)? } else { &[] };
        Some(Self { addresses, protocol, ports })
    }

    /// The connection; `None` if the packet has no ports.
    pub(super) fn connection(&self) -> Option<Connection> {
        let mut addresses = [0; 32];
        addresses[..self.addresses.len()].copy_from_slice(self.addresses);
        let ports = self.ports.try_into().ok()?;
        Some(Connection { addresses, ports, protocol: self.protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frames::{ethernet, ipv4, ipv6, random, udp};
    use clearway_base::Random;

    #[test]
    fn ports_are_found_behind_options_and_tags_and_not_in_fragments() {
        let of = |frame: &[u8]| Tuple::of(frame).map(|tuple| tuple.ports.to_vec());
        let packet = |options: &[u8], fragment| ipv4([10, 0, 0, 2], 17, options, fragment, &udp(7));
        assert_eq!(of(&ethernet(&[], 0x0800, &packet(&[], 0x4000))), Some(vec![0, 9, 0, 7]));
        let tagged = ethernet(&[(0x8100, 3)], 0x0800, &packet(&[1; 8], 0));
        assert_eq!(of(&tagged), Some(vec![0, 9, 0, 7]));
        assert_eq!(of(&ethernet(&[], 0x0800, &packet(&[], 0x2000))), Some(vec![]));
        let six = ethernet(&[], 0x86dd, &ipv6([3; 16], 17, &udp(7)));
        assert_eq!(of(&six), Some(vec![0, 9, 0, 7]));
        assert_eq!(of(&ethernet(&[], 0x0806, &[0; 40])), None);
    }

    #[test]
    fn any_frame_will_do() {
        let mut dice = Random::new(3);
        let frames = (0..20_000).map(|_| random(&mut dice));
        let with_ports =
            frames.filter(|frame| Tuple::of(frame).and_then(|tuple| tuple.connection()).is_some());
        assert!(with_ports.count() > 1000);
    }
}
