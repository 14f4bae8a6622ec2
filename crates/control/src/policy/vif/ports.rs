//! Which ports of the host's addresses an interface is about: those it receives at, and those it
//! sends from. On a NIC that the kernel shares, each is taken from the kernel's programs before the
//! interface is opened; on any NIC, they are bounded, so that there are some for others.
//!
//! What counts is what the filters can match, however they say it: a prefix, a range, a raw mask,
//! no protocol, a network that the address is in. Only a filter that says nothing at all about
//! ports is left out: a rule of the policy allows it in so many words.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::{Clause, Filter, Pattern, Ports};
use clearway_nic::interface::Protocol;
use clearway_wire::digest::{Field, Layer, Network, fields};
use clearway_wire::{ethernet, protocol};

use super::Place;

/// A port of an address, which a program of the kernel's might have as well.
pub type HostPort = (Protocol, IpAddr, u16);

/// One end of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Source,
    Destination,
}

impl Side {
    const fn port(self) -> Field {
        match self {
            Self::Source => fields::SOURCE_PORT,
            Self::Destination => fields::DESTINATION_PORT,
        }
    }

    const fn ipv4(self) -> Field {
        match self {
            Self::Source => fields::IPV4_SOURCE,
            Self::Destination => fields::IPV4_DESTINATION,
        }
    }

    const fn ipv6(self) -> [Field; 2] {
        match self {
            Self::Source => [fields::IPV6_SOURCE_HIGH, fields::IPV6_SOURCE_LOW],
            Self::Destination => [fields::IPV6_DESTINATION_HIGH, fields::IPV6_DESTINATION_LOW],
        }
    }

    const fn range(self, clause: &Clause) -> Ports {
        match self {
            Self::Source => clause.source_ports(),
            Self::Destination => clause.destination_ports(),
        }
    }
}

/// The ports at which one of `filters` can match a packet of the host's, each once; a refusal if
/// there are more than `most` with those of `found`.
pub(super) fn find(
    filters: &[Filter],
    side: Side,
    place: &Place,
    most: usize,
    found: &mut HashSet<HostPort>,
) -> Result<(), Refusal> {
    for clause in
        filters.iter().flat_map(Filter::clauses).filter(|clause| names_ports(clause, side))
    {
        let named = address_of(clause, side).filter(|named| !place.host.contains(named));
        for &address in place.host.iter().chain(&named) {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                for port in ports_of(clause, side, protocol, address) {
                    found.insert((protocol, address, port));
                    if found.len() > most {
                        return Err(too_many(clause, most));
                    }
                }
            }
        }
    }
    Ok(())
}

fn too_many(clause: &Clause, most: usize) -> Refusal {
    let message = format!(
        "with `{}`, the interface would be about more than {most} ports of the host's addresses, \
         and others need some, too; ask for fewer or for an address of its own, or raise \
         `ports_per_vif` in [policy.limits] of the daemon's configuration",
        Filter::from(*clause)
    );
    Refusal { code: Code::Limit, message }
}

fn names_ports(clause: &Clause, side: Side) -> bool {
    clause.pattern().field(side.port()).0 != 0 || side.range(clause) != Ports::ANY
}

/// The ports of `address` at which the clause matches some packet.
fn ports_of(
    clause: &Clause,
    side: Side,
    protocol: Protocol,
    address: IpAddr,
) -> impl Iterator<Item = u16> {
    let packets = packets(side, protocol, address);
    clause.intersection(&packets.into()).into_iter().flat_map(move |matched| {
        let (mask, value) = matched.pattern().field(side.port());
        side.range(&matched).under(mask as u16, value as u16)
    })
}

/// All packets with ports that have `address` at one end.
fn packets(side: Side, protocol: Protocol, address: IpAddr) -> Pattern {
    let number = match protocol {
        Protocol::Udp => protocol::UDP,
        Protocol::Tcp => protocol::TCP,
    };
    let with_ports =
        Pattern::ANY.with(fields::LAYER, Layer::Ports as u64).with(fields::PROTOCOL, number.into());
    let of_network = |network: Network, ether_type: u16| {
        with_ports.with(fields::NETWORK, network as u64).with(fields::ETHER_TYPE, ether_type.into())
    };
    match address {
        // Words that only an IPv6 packet fills are zero.
        IpAddr::V4(address) => of_network(Network::Ipv4, ethernet::ether_type::IPV4)
            .with(side.ipv4(), address.to_bits().into())
            .with(fields::IPV6_SOURCE_LOW, 0)
            .with(fields::IPV6_DESTINATION_HIGH, 0)
            .with(fields::IPV6_DESTINATION_LOW, 0),
        IpAddr::V6(address) => {
            let [high, low] = side.ipv6();
            of_network(Network::Ipv6, ethernet::ether_type::IPV6)
                .with(high, (address.to_bits() >> 64) as u64)
                .with(low, address.to_bits() as u64)
        }
    }
}

/// The address at one end, if the clause names it: it may be one that the kernel has elsewhere.
fn address_of(clause: &Clause, side: Side) -> Option<IpAddr> {
    let pattern = clause.pattern();
    let whole = |field: Field| {
        let (mask, value) = pattern.field(field);
        (mask == field.max()).then_some(value)
    };
    match whole(fields::NETWORK)? {
        network if network == Network::Ipv4 as u64 => {
            Some(Ipv4Addr::from_bits(whole(side.ipv4())? as u32).into())
        }
        network if network == Network::Ipv6 as u64 => {
            let [high, low] = side.ipv6().map(whole);
            Some(Ipv6Addr::from_bits(u128::from(high?) << 64 | u128::from(low?)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
