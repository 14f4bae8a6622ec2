//! What a frame has to look like to be ours: bits of its digest.

use std::net::{IpAddr, Ipv6Addr};

use clearway_wire::digest::{Field, Layer, Network, PATTERN_WORDS, WORDS, fields};
use clearway_wire::ipv6::solicited_node;
use clearway_wire::{MacAddress, ethernet, icmpv4, icmpv6, protocol};

use crate::Error;

/// The word that has no bits for others: the program in steer.c keeps there what a neighbour
/// solicitation or advertisement is about.
const NEIGHBOUR_TARGET: Field = Field { word: PATTERN_WORDS, shift: 0, bits: 64 };

/// Matches the frames whose digest has the bits of `value` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SteerPattern {
    mask: [u64; WORDS],
    value: [u64; WORDS],
}

impl SteerPattern {
    /// A pattern over the first seven words of a digest; of the eighth, the mask has to be zero.
    /// Bits of the value outside the mask are ignored.
    pub fn new(mask: [u64; WORDS], value: [u64; WORDS]) -> Result<SteerPattern, Error> {
        if mask[NEIGHBOUR_TARGET.word] != 0 {
            return Err(Error::Invalid(
                "the eighth word of a digest says where headers are and cannot be steered by; \
                 leave it out of the mask"
                    .into(),
            ));
        }
        let value = std::array::from_fn(|word| value[word] & mask[word]);
        Ok(SteerPattern { mask, value })
    }

    /// The bits that matter.
    #[must_use]
    pub const fn mask(&self) -> &[u64; WORDS] {
        &self.mask
    }

    /// What they have to be.
    #[must_use]
    pub const fn value(&self) -> &[u64; WORDS] {
        &self.value
    }

    /// This pattern, with `field` being `value`.
    pub(crate) fn with(mut self, field: Field, value: u64) -> SteerPattern {
        self.mask[field.word] |= field.mask();
        self.value[field.word] = self.value[field.word] & !field.mask() | field.place(value);
        self
    }

    /// This pattern, with `network` behind the Ethernet header.
    pub(crate) fn of_network(self, network: Network) -> SteerPattern {
        self.with(fields::NETWORK, network as u64)
    }

    /// The value of `field` if the pattern says all of it.
    pub(crate) fn says(&self, field: Field) -> Option<u64> {
        let all = self.mask[field.word] & field.mask() == field.mask();
        all.then(|| field.of(&self.value))
    }

    /// The bits of `field` that matter, and what they have to be.
    pub(crate) fn of(&self, field: Field) -> (u64, u64) {
        (field.of(&self.mask), field.of(&self.value))
    }

    /// The frames of this pattern that are to all or to a group: IEEE 802, "the I/G address bit",
    /// is set in their destination. `None` if it matches no such frame.
    pub(crate) fn to_groups(self) -> Option<SteerPattern> {
        let excludes = self.of(fields::MAC_GROUP) == (1, 0);
        (!excludes).then(|| self.with(fields::MAC_GROUP, 1))
    }

    /// The Ethernet address of the one group that the frames are to, if the pattern says it, by
    /// that or by the IP address (RFC 1112, section 6.4; RFC 2464, section 7).
    pub(crate) fn group(&self) -> Option<MacAddress> {
        let octets = |bits: u64| bits.to_be_bytes();
        if let Some(mac) = self.says(fields::MAC_DESTINATION) {
            let [_, _, mac @ ..] = octets(mac);
            return Some(mac);
        }
        match self.network()? {
            Network::Ipv4 => match octets(self.says(fields::IPV4_DESTINATION)?) {
                [.., 224..=239, a, b, c] => Some([0x01, 0x00, 0x5e, a & 0x7f, b, c]),
                _ => None,
            },
            Network::Ipv6 if self.says(fields::IPV6_DESTINATION_HIGH)? >> 56 == 0xff => {
                let low = self.says(fields::IPV6_DESTINATION_LOW)?;
                Some(ethernet::multicast_v6(Ipv6Addr::from_bits(low.into())))
            }
            _ => None,
        }
    }

    /// What follows the Ethernet header, if the pattern says it.
    pub(crate) fn network(&self) -> Option<Network> {
        self.says(fields::NETWORK).map(Network::from_bits)
    }

    /// Whole UDP datagrams to `port` of one address, or of any.
    pub(crate) fn udp(address: Option<IpAddr>, port: u16) -> SteerPattern {
        let pattern = match address {
            None => ANY.with(fields::NETWORK_IP, ANY_IP),
            Some(address) => to(address),
        };
        transport(pattern, protocol::UDP, Layer::Ports).with(fields::DESTINATION_PORT, port.into())
    }

    /// What the owner of `address` has to answer: ARP or NDP about it, and ICMP to it. And ARP from
    /// others who say that they have it. And all fragments to it, of which only the first says what
    /// it carries.
    pub(crate) fn of_own(address: IpAddr) -> Vec<SteerPattern> {
        let first_fragment = to(address).with(fields::FIRST_FRAGMENT, 1);
        let later_fragment = to(address).with(fields::LAYER, Layer::LaterFragment as u64);
        let IpAddr::V6(address6) = address else {
            let (arp, icmp) = (ANY.of_network(Network::Arp), to(address));
            return vec![
                first_fragment,
                later_fragment,
                arp.with(fields::IPV4_DESTINATION, ipv4_bits(address)),
                arp.with(fields::ARP_SENDER, ipv4_bits(address)),
                transport(icmp, protocol::ICMPV4, Layer::Icmp),
            ];
        };
        // Solicitations go to a multicast group and unsolicited advertisements to all nodes
        // (RFC 4861, 4.3 and 4.4).
        let about = |pattern, kind| {
            transport(pattern, protocol::ICMPV6, Layer::Icmp)
                .with(fields::ICMP_TYPE, kind)
                .with(NEIGHBOUR_TARGET, neighbour_target(address6))
        };
        vec![
            first_fragment,
            later_fragment,
            transport(to(address), protocol::ICMPV6, Layer::Icmp),
            about(to(solicited_node(address6).into()), 135),
            about(ANY.of_network(Network::Ipv6), 136),
        ]
    }

    /// The ICMP errors that tell `address` that a packet did not arrive.
    pub(crate) fn undelivered(address: IpAddr) -> Vec<SteerPattern> {
        let (protocol, kinds) = match address {
            IpAddr::V4(_) => (protocol::ICMPV4, &icmpv4::UNDELIVERED[..]),
            IpAddr::V6(_) => (protocol::ICMPV6, &icmpv6::UNDELIVERED[..]),
        };
        let message = transport(to(address), protocol, Layer::Icmp);
        kinds.iter().map(|kind| message.with(fields::ICMP_TYPE, (*kind).into())).collect()
    }
}

/// The value of `NETWORK_IP` where there is IP of either version.
pub(crate) const ANY_IP: u64 = Network::Ipv4 as u64 >> 1;

const ANY: SteerPattern = SteerPattern { mask: [0; WORDS], value: [0; WORDS] };

/// To `address`.
fn to(address: IpAddr) -> SteerPattern {
    match address {
        IpAddr::V4(_) => {
            ANY.of_network(Network::Ipv4).with(fields::IPV4_DESTINATION, ipv4_bits(address))
        }
        IpAddr::V6(address) => {
            let [high, low] = halves(address);
            ANY.of_network(Network::Ipv6)
                .with(fields::IPV6_DESTINATION_HIGH, high)
                .with(fields::IPV6_DESTINATION_LOW, low)
        }
    }
}

/// Whole packets of `protocol`. Fragments are put together by whoever has the address.
fn transport(pattern: SteerPattern, protocol: u8, layer: Layer) -> SteerPattern {
    pattern
        .with(fields::PROTOCOL, protocol.into())
        .with(fields::LAYER, layer as u64)
        .with(fields::FIRST_FRAGMENT, 0)
}

fn ipv4_bits(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(_) => unreachable!("asked for IPv4 addresses only"),
    }
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// `neighbour_target` of digest.h.
fn neighbour_target(address: Ipv6Addr) -> u64 {
    let [high, low] = halves(address);
    high ^ low
}

#[cfg(test)]
mod tests;
