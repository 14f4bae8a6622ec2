//! Where in a digest a field stands, and the values of the two fields that say what the others
//! mean.

use super::WORDS;

/// A run of bits in one word of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Which word.
    pub word: usize,
    /// The lowest bit.
    pub shift: u32,
    /// How many bits.
    pub bits: u32,
}

impl Field {
    const fn new(word: usize, shift: u32, bits: u32) -> Self {
        Self { word, shift, bits }
    }

    /// The largest value.
    #[inline]
    #[must_use]
    pub const fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The bits of the field in its word.
    #[inline]
    #[must_use]
    pub const fn mask(self) -> u64 {
        self.max() << self.shift
    }

    /// What the field says.
    #[inline]
    #[must_use]
    pub const fn of(self, words: &[u64; WORDS]) -> u64 {
        words[self.word] >> self.shift & self.max()
    }

    /// The bits of `value` where the field is. Bits that do not fit are cut.
    #[inline]
    #[must_use]
    pub const fn place(self, value: u64) -> u64 {
        (value & self.max()) << self.shift
    }
}

/// The fields of a digest.
pub mod fields {
    use super::Field;

    /// The source port; where `layer` is `Ports`.
    pub const SOURCE_PORT: Field = Field::new(0, 48, 16);
    /// The destination port; where `layer` is `Ports`.
    pub const DESTINATION_PORT: Field = Field::new(0, 32, 16);
    /// Both ports.
    pub const PORTS: Field = Field::new(0, 32, 32);
    /// The ICMP type; where `layer` is `Icmp`.
    pub const ICMP_TYPE: Field = Field::new(0, 40, 8);
    /// The ICMP code; where `layer` is `Icmp`.
    pub const ICMP_CODE: Field = Field::new(0, 32, 8);
    /// Both.
    pub const ICMP_TYPE_AND_CODE: Field = Field::new(0, 32, 16);
    /// The ARP operation; where `network` is `Arp`.
    pub const ARP_OPERATION: Field = Field::new(0, 32, 16);
    /// The protocol behind all IP headers.
    pub const PROTOCOL: Field = Field::new(0, 24, 8);
    /// What follows the Ethernet header: see [`Network`](super::Network).
    pub const NETWORK: Field = Field::new(0, 20, 3);
    /// The bits of `NETWORK` that IPv4 and IPv6 have in common.
    pub const NETWORK_IP: Field = Field::new(0, 21, 2);
    /// Set on the first fragment of several.
    pub const FIRST_FRAGMENT: Field = Field::new(0, 19, 1);
    /// What is known beyond the IP header: see [`Layer`](super::Layer).
    pub const LAYER: Field = Field::new(0, 16, 3);
    /// The ether type, behind the VLAN tag if there is one.
    pub const ETHER_TYPE: Field = Field::new(0, 0, 16);
    /// Where the frame goes.
    pub const MAC_DESTINATION: Field = Field::new(1, 16, 48);
    /// The first bit on the wire of the destination: multicast, broadcast included.
    pub const MAC_GROUP: Field = Field::new(1, 56, 1);
    /// Set if there is an 802.1Q tag.
    pub const TAGGED: Field = Field::new(0, 23, 1);
    /// The priority code point of the tag.
    pub const VLAN_PRIORITY: Field = Field::new(1, 12, 3);
    /// The VLAN id of the tag.
    pub const VLAN_ID: Field = Field::new(1, 0, 12);
    /// Where the frame comes from.
    pub const MAC_SOURCE: Field = Field::new(2, 16, 48);
    /// Set on a neighbour advertisement that is not, or not evidently, about its own source.
    pub const ADVERTISES_ANOTHER: Field = Field::new(2, 0, 1);
    /// The IPv4 source.
    pub const IPV4_SOURCE: Field = Field::new(3, 32, 32);
    /// The IPv4 destination.
    pub const IPV4_DESTINATION: Field = Field::new(3, 0, 32);
    /// The IPv6 source, first half.
    pub const IPV6_SOURCE_HIGH: Field = Field::new(3, 0, 64);
    /// The IPv6 source, second half.
    pub const IPV6_SOURCE_LOW: Field = Field::new(4, 0, 64);
    /// The IPv6 destination, first half.
    pub const IPV6_DESTINATION_HIGH: Field = Field::new(5, 0, 64);
    /// The IPv6 destination, second half.
    pub const IPV6_DESTINATION_LOW: Field = Field::new(6, 0, 64);
    /// The IPv4 address of the sender of an ARP message.
    pub const ARP_SENDER: Field = Field::new(3, 32, 32);
    /// The IPv4 address that an ARP message is about.
    pub const ARP_TARGET: Field = Field::new(3, 0, 32);
    /// The Ethernet address that the sender of an ARP message claims.
    pub const ARP_SENDER_MAC: Field = Field::new(4, 0, 48);
    /// The Ethernet address of the target.
    pub const ARP_TARGET_MAC: Field = Field::new(5, 0, 48);
    /// The major address (shelf) of ATA over Ethernet.
    pub const AOE_MAJOR: Field = Field::new(3, 48, 16);
    /// The minor address (slot) of ATA over Ethernet.
    pub const AOE_MINOR: Field = Field::new(3, 40, 8);
    /// The command of ATA over Ethernet.
    pub const AOE_COMMAND: Field = Field::new(3, 32, 8);
    /// The tag of ATA over Ethernet, by which an answer finds its question.
    pub const AOE_TAG: Field = Field::new(3, 0, 32);
}

/// What follows the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Network {
    /// Nothing: the frame is shorter than an Ethernet header, and its digest is all zeros.
    Runt = 0,
    /// Something that is not looked into; the ether type says what.
    Other = 1,
    /// ARP for IPv4 on Ethernet.
    Arp = 2,
    /// ATA over Ethernet.
    Aoe = 3,
    /// The ether type says IPv4, IPv6, ARP, AoE or VLAN, and the bytes are none.
    Broken = 4,
    /// IPv4. It and IPv6 differ in the lowest bit only.
    Ipv4 = 6,
    /// IPv6.
    Ipv6 = 7,
}

impl Network {
    /// What a value of [`fields::NETWORK`] stands for.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::Runt,
            2 => Self::Arp,
            3 => Self::Aoe,
            4 => Self::Broken,
            6 => Self::Ipv4,
            7 => Self::Ipv6,
            _ => Self::Other,
        }
    }
}

/// What is known beyond the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Nothing: it is not IP, or a protocol without ports.
    None = 0,
    /// The ports of TCP, UDP, UDP-Lite, SCTP or DCCP.
    Ports = 1,
    /// Type and code of ICMP or ICMPv6.
    Icmp = 2,
    /// It is not the first fragment of a packet.
    LaterFragment = 3,
    /// A header that breaks off or makes no sense, or a packet with a way of its own.
    Unintelligible = 4,
}

impl Layer {
    /// What a value of [`fields::LAYER`] stands for.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::None,
            1 => Self::Ports,
            2 => Self::Icmp,
            3 => Self::LaterFragment,
            _ => Self::Unintelligible,
        }
    }
}
