//! What a filter is about, in words.

use super::Filter;
use super::print::mac;
use crate::{Clause, Ports};
use clearway_wire::digest::{Field, Network, fields};

pub(super) fn explain(clauses: &[Clause]) -> String {
    let mut lines = Vec::new();
    for (index, clause) in clauses.iter().enumerate() {
        let text = Filter::from(*clause).to_string();
        lines.push(format!("{} of {}: {text}", index + 1, clauses.len()));
        lines.extend(fields_of(clause).into_iter().map(|line| format!("  {line}")));
        lines.push(format!("  as mask and value: {} pattern(s)", clause.patterns().count()));
    }
    lines.join("\n") + "\n"
}

fn fields_of(clause: &Clause) -> Vec<String> {
    let known = names(clause);
    let mut lines: Vec<_> =
        known.iter().filter_map(|&(name, field)| line(clause, name, field)).collect();
    for (name, ports) in
        [("source port", clause.source_ports()), ("destination port", clause.destination_ports())]
    {
        if ports != Ports::ANY {
            lines.push(format!("{name}: from {} to {}", ports.first(), ports.last()));
        }
    }
    if lines.is_empty() {
        lines.push("every packet".into());
    }
    lines
}

/// The fields that the digests have which the clause is about, and their names there.
fn names(clause: &Clause) -> Vec<(&'static str, Field)> {
    let mut names = vec![
        ("Ethernet destination", fields::MAC_DESTINATION),
        ("Ethernet source", fields::MAC_SOURCE),
        ("VLAN tag", fields::TAGGED),
        ("VLAN id", fields::VLAN_ID),
        ("VLAN priority", fields::VLAN_PRIORITY),
        ("ether type", fields::ETHER_TYPE),
        ("network", fields::NETWORK),
        ("protocol", fields::PROTOCOL),
        ("first fragment", fields::FIRST_FRAGMENT),
        ("beyond IP", fields::LAYER),
    ];
    let network = clause.pattern().field(fields::NETWORK);
    let is = |wanted: Network| network == (fields::NETWORK.max(), wanted as u64);
    if is(Network::Arp) {
        names.extend([
            ("operation", fields::ARP_OPERATION),
            ("sender", fields::ARP_SENDER),
            ("target", fields::ARP_TARGET),
            ("sender's MAC", fields::ARP_SENDER_MAC),
            ("target's MAC", fields::ARP_TARGET_MAC),
        ]);
    } else if is(Network::Aoe) {
        names.extend([
            ("major", fields::AOE_MAJOR),
            ("minor", fields::AOE_MINOR),
            ("command", fields::AOE_COMMAND),
            ("tag", fields::AOE_TAG),
        ]);
    } else if is(Network::Ipv4) {
        names.extend([("source", fields::IPV4_SOURCE), ("destination", fields::IPV4_DESTINATION)]);
    } else {
        names.extend([
            ("word 3 (IPv6: source, first half)", fields::IPV6_SOURCE_HIGH),
            ("word 4 (IPv6: source, second half)", fields::IPV6_SOURCE_LOW),
            ("word 5 (IPv6: destination, first half)", fields::IPV6_DESTINATION_HIGH),
            ("word 6 (IPv6: destination, second half)", fields::IPV6_DESTINATION_LOW),
        ]);
    }
    if !is(Network::Arp) {
        names.extend([
            ("source port", fields::SOURCE_PORT),
            ("destination port (ICMP: type and code)", fields::DESTINATION_PORT),
        ]);
    }
    names
}

fn line(clause: &Clause, name: &str, field: Field) -> Option<String> {
    let (mask, value) = clause.pattern().field(field);
    match mask {
        0 => None,
        _ if mask == field.max() => Some(format!("{name}: {}", exact(field, value))),
        _ => Some(format!("{name}: {value:#x} under the mask {mask:#x}")),
    }
}

fn exact(field: Field, value: u64) -> String {
    if field == fields::MAC_SOURCE || field == fields::MAC_DESTINATION {
        return mac(value);
    }
    if field == fields::IPV4_SOURCE || field == fields::IPV4_DESTINATION {
        return std::net::Ipv4Addr::from(value as u32).to_string();
    }
    if field == fields::NETWORK {
        return ["runt", "other", "ARP", "AoE", "broken", "-", "IPv4", "IPv6"]
            .get(value as usize)
            .map_or_else(|| value.to_string(), |name| (*name).into());
    }
    if field == fields::LAYER {
        return ["nothing", "ports", "ICMP", "later fragment", "unintelligible"]
            .get(value as usize)
            .map_or_else(|| value.to_string(), |name| (*name).into());
    }
    format!("{value} ({value:#x})")
}
