//! What a frame has to look like to be ours: bits of its digest.
//!
//! The digest is that of `clearway_wire`, which this crate does not know; the fields that it needs
//! itself, for UDP ports and own addresses, are written down here, and a test compares them.

use std::net::{IpAddr, Ipv6Addr};

use crate::{Error, MacAddress};

/// The words of a digest.
pub(crate) const WORDS: usize = 8;

/// The word that has no bits for others: the program in steer.c keeps there what a neighbour
/// solicitation or advertisement is about.
const NEIGHBOUR_TARGET: usize = 7;

/// Matches the frames whose digest has the bits of `value` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SteerPattern {
    mask: [u64; WORDS],
    value: [u64; WORDS],
}

impl SteerPattern {
    /// A pattern over the first seven words of a digest; of the eighth, the mask has to be zero. Bits
    /// of the value outside the mask are ignored.
    pub fn new(mask: [u64; WORDS], value: [u64; WORDS]) -> Result<SteerPattern, Error> {
        if mask[NEIGHBOUR_TARGET] != 0 {
            return Err(Error::Invalid(
                "the eighth word of a digest says where headers are and cannot be steered by; leave \
                 it out of the mask"
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
        self.value[field.word] = self.value[field.word] & !field.mask() | value << field.shift;
        self
    }

    /// The value of `field` if the pattern says all of it.
    pub(crate) fn says(&self, field: Field) -> Option<u64> {
        let all = self.mask[field.word] & field.mask() == field.mask();
        all.then(|| (self.value[field.word] & field.mask()) >> field.shift)
    }

    /// The bits of `field` that matter, and what they have to be.
    pub(crate) fn of(&self, field: Field) -> (u64, u64) {
        let of = |words: &[u64; WORDS]| (words[field.word] & field.mask()) >> field.shift;
        (of(&self.mask), of(&self.value))
    }

    /// The frames of this pattern that are to all or to a group: IEEE 802, "the I/G address bit", is set
    /// in their destination. `None` if it matches no such frame.
    pub(crate) fn to_groups(self) -> Option<SteerPattern> {
        let excludes = self.of(fields::GROUP) == (1, 0);
        (!excludes).then(|| self.with(fields::GROUP, 1))
    }

    /// The Ethernet address of the one group that the frames are to, if the pattern says it, by that
    /// or by the IP address (RFC 1112, section 6.4; RFC 2464, section 7).
    pub(crate) fn group(&self) -> Option<MacAddress> {
        let octets = |bits: u64| bits.to_be_bytes();
        if let Some(mac) = self.says(fields::MAC_DESTINATION) {
            let [_, _, mac @ ..] = octets(mac);
            return Some(mac);
        }
        match self.says(fields::NETWORK)? {
            network::IPV4 => match octets(self.says(fields::IPV4_DESTINATION)?) {
                [.., 224..=239, a, b, c] => Some([0x01, 0x00, 0x5e, a & 0x7f, b, c]),
                _ => None,
            },
            network::IPV6 if self.says(fields::IPV6_DESTINATION_HIGH)? >> 56 == 0xff => {
                let [.., a, b, c, d] = octets(self.says(fields::IPV6_DESTINATION_LOW)?);
                Some([0x33, 0x33, a, b, c, d])
            }
            _ => None,
        }
    }

    /// Whole UDP datagrams to `port` of one address, or of any.
    pub(crate) fn udp(address: Option<IpAddr>, port: u16) -> SteerPattern {
        let pattern = match address {
            None => ANY.with(fields::NETWORK_IP, network::IPV4 >> 1),
            Some(address) => to(address),
        };
        transport(pattern, 17, layer::PORTS).with(fields::DESTINATION_PORT, port.into())
    }

    /// What the owner of `address` has to answer: ARP or NDP about it, and ICMP to it. And ARP from
    /// others who say that they have it.
    pub(crate) fn of_own(address: IpAddr) -> Vec<SteerPattern> {
        let IpAddr::V6(address6) = address else {
            let (arp, icmp) = (ANY.with(fields::NETWORK, network::ARP), to(address));
            return vec![
                arp.with(fields::IPV4_DESTINATION, ipv4_bits(address)),
                arp.with(fields::ARP_SENDER, ipv4_bits(address)),
                transport(icmp, 1, layer::ICMP),
            ];
        };
        // Solicitations go to a multicast group and unsolicited advertisements to all nodes
        // (RFC 4861, 4.3 and 4.4).
        let about = |pattern, kind| {
            transport(pattern, 58, layer::ICMP)
                .with(fields::ICMP_TYPE, kind)
                .with(fields::NEIGHBOUR_TARGET, neighbour_target(address6))
        };
        vec![
            transport(to(address), 58, layer::ICMP),
            about(to(solicited_node(address6).into()), 135),
            about(ANY.with(fields::NETWORK, network::IPV6), 136),
        ]
    }
}

const ANY: SteerPattern = SteerPattern { mask: [0; WORDS], value: [0; WORDS] };

/// To `address`.
fn to(address: IpAddr) -> SteerPattern {
    match address {
        IpAddr::V4(_) => ANY
            .with(fields::NETWORK, network::IPV4)
            .with(fields::IPV4_DESTINATION, ipv4_bits(address)),
        IpAddr::V6(address) => {
            let [high, low] = halves(address);
            ANY.with(fields::NETWORK, network::IPV6)
                .with(fields::IPV6_DESTINATION_HIGH, high)
                .with(fields::IPV6_DESTINATION_LOW, low)
        }
    }
}

/// Whole packets of `protocol`: fragments belong to the kernel, which puts them together.
fn transport(pattern: SteerPattern, protocol: u64, layer: u64) -> SteerPattern {
    pattern
        .with(fields::PROTOCOL, protocol)
        .with(fields::LAYER, layer)
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

/// RFC 4291, 2.7.1: "a Solicited-Node multicast address is formed by taking the low-order 24 bits of an
/// address (unicast or anycast) and appending those bits to the prefix FF02:0:0:0:0:1:FF00::/104".
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let prefix = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).to_bits();
    Ipv6Addr::from_bits(prefix | address.to_bits() & 0xff_ffff)
}

/// A run of bits in one word of a digest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    word: usize,
    shift: u32,
    bits: u32,
}

impl Field {
    const fn new(word: usize, shift: u32, bits: u32) -> Field {
        Field { word, shift, bits }
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits) << self.shift
    }
}

/// Fields as `clearway_wire::digest::fields` has them.
pub(crate) mod fields {
    use super::Field;

    pub(crate) const PORTS: Field = Field::new(0, 32, 32);
    pub(crate) const DESTINATION_PORT: Field = Field::new(0, 32, 16);
    pub(crate) const ICMP_TYPE: Field = Field::new(0, 40, 8);
    pub(crate) const ICMP_TYPE_AND_CODE: Field = Field::new(0, 32, 16);
    pub(crate) const ARP_OPERATION: Field = Field::new(0, 32, 16);
    pub(crate) const PROTOCOL: Field = Field::new(0, 24, 8);
    pub(crate) const NETWORK: Field = Field::new(0, 20, 3);
    pub(crate) const NETWORK_IP: Field = Field::new(0, 21, 2);
    pub(crate) const FIRST_FRAGMENT: Field = Field::new(0, 19, 1);
    pub(crate) const LAYER: Field = Field::new(0, 16, 3);
    pub(crate) const ETHER_TYPE: Field = Field::new(0, 0, 16);
    pub(super) const MAC_DESTINATION: Field = Field::new(1, 16, 48);
    /// The bit of it that says that it is a group's.
    pub(super) const GROUP: Field = Field::new(1, 56, 1);
    pub(super) const ARP_SENDER: Field = Field::new(3, 32, 32);
    pub(crate) const IPV4_DESTINATION: Field = Field::new(3, 0, 32);
    pub(crate) const IPV6_DESTINATION_HIGH: Field = Field::new(5, 0, 64);
    pub(crate) const IPV6_DESTINATION_LOW: Field = Field::new(6, 0, 64);
    pub(super) const NEIGHBOUR_TARGET: Field = Field::new(super::NEIGHBOUR_TARGET, 0, 64);
}

/// Values of `NETWORK`.
pub(crate) mod network {
    pub(crate) const ARP: u64 = 2;
    pub(crate) const AOE: u64 = 3;
    pub(crate) const IPV4: u64 = 6;
    pub(crate) const IPV6: u64 = 7;
}

/// Values of `LAYER`.
pub(crate) mod layer {
    pub(crate) const PORTS: u64 = 1;
    pub(crate) const ICMP: u64 = 2;
}

#[cfg(test)]
mod tests;
