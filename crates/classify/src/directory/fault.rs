//! Why a packet is not sent.

use crate::Clause;
use clearway_wire::digest::{Digest, Field, Layer, Network, fields};

/// What is wrong with a packet that a VIF may not send, in the order in which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendFault {
    /// The VIF may send nothing.
    Nothing,
    /// The Ethernet source is another's.
    MacSource,
    /// The VLAN tag, its absence, or its id.
    Vlan,
    /// It is ARP, IPv4, IPv6 or something else, and may not be, or its ether type.
    Network,
    /// The protocol.
    Protocol,
    /// It cannot be understood up to its ports, or is a later fragment.
    Unclear,
    /// The IP source, or the sender of an ARP message.
    Source,
    /// The source port.
    SourcePort,
    /// Where it goes: an address or a port, or type and code of ICMP.
    Destination,
    /// Something else that the pattern asks for.
    Other,
}

impl SendFault {
    /// The fault that comes last: of the alternative that fits best. `None` if one matches.
    pub(super) fn of(clauses: &[Clause], digest: &Digest) -> Option<Self> {
        if clauses.iter().any(|clause| clause.matches(digest)) {
            return None;
        }
        let faults = clauses.iter().map(|clause| Self::first(clause, digest));
        Some(faults.max().unwrap_or(Self::Nothing))
    }

    fn first(clause: &Clause, digest: &Digest) -> Self {
        let differs = |field: Field| {
            let (mask, value) = clause.pattern().field(field);
            digest.field(field) & mask != value
        };
        let source_port = digest.field(fields::SOURCE_PORT) as u16;
        let source = [fields::IPV6_SOURCE_HIGH, fields::IPV6_SOURCE_LOW, fields::IPV4_SOURCE];
        let is_ipv6 = clause.pattern().field(fields::NETWORK) == (7, Network::Ipv6 as u64);
        let source = if is_ipv6 { &source[..2] } else { &source[2..] };
        let checks = [
            (Self::MacSource, differs(fields::MAC_SOURCE)),
            (Self::Vlan, differs(fields::TAGGED) || differs(fields::VLAN_ID)),
            (Self::Network, differs(fields::NETWORK) || differs(fields::ETHER_TYPE)),
            (Self::Protocol, differs(fields::PROTOCOL)),
            (Self::Unclear, differs(fields::LAYER) || differs(fields::FIRST_FRAGMENT)),
            (Self::Source, source.iter().any(|&field| differs(field))),
            (
                Self::SourcePort,
                digest.layer() == Layer::Ports
                    && (differs(fields::SOURCE_PORT)
                        || !clause.source_ports().contain(source_port)),
            ),
            (
                Self::Destination,
                differs(fields::DESTINATION_PORT)
                    || differs(fields::IPV4_DESTINATION)
                    || differs(fields::IPV6_DESTINATION_HIGH)
                    || differs(fields::IPV6_DESTINATION_LOW)
                    || differs(fields::MAC_DESTINATION),
            ),
        ];
        checks.iter().find(|(_, is_it)| *is_it).map_or(Self::Other, |(fault, _)| *fault)
    }
}
