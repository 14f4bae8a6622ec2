//! From clauses to text that reads back as the same clauses. Each step takes the bits that it can
//! name out of the mask; what is left at the end is printed as `digest`.

use super::Filter;
use super::parse::ether_proto;
use crate::{Clause, Pattern, Ports};
use clearway_wire::digest::{Field, Layer, Network, fields};
use clearway_wire::protocol;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

impl fmt::Display for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, clause) in self.clauses.iter().enumerate() {
            let or = if index > 0 { " or " } else { "" };
            write!(formatter, "{or}{}", Printer::new(clause).print())?;
        }
        Ok(())
    }
}

struct Printer {
    rest: Pattern,
    source_ports: Ports,
    destination_ports: Ports,
    /// What is printed with "and" between.
    parts: Vec<String>,
    /// True if a part says something about the inside of a frame.
    inside: bool,
}

impl Printer {
    fn new(clause: &Clause) -> Self {
        Self {
            rest: *clause.pattern(),
            source_ports: clause.source_ports(),
            destination_ports: clause.destination_ports(),
            parts: Vec::new(),
            inside: false,
        }
    }

    fn print(mut self) -> String {
        self.ether();
        let network = self.network();
        self.protocol(network);
        self.ports();
        if self.take_if(fields::FIRST_FRAGMENT, 1, Self::is_ip(network)) {
            self.say("first-fragment".into());
        }
        self.tag();
        self.raw();
        if self.parts.is_empty() { "any".into() } else { self.parts.join(" and ") }
    }

    fn say(&mut self, part: String) {
        self.inside = true;
        self.parts.push(part);
    }

    /// The value of `field` if the clause says all of it; then it counts as printed.
    fn take(&mut self, field: Field) -> Option<u64> {
        let (mask, value) = self.rest.field(field);
        (mask == field.max()).then(|| {
            self.rest = self.rest.without(field);
            value
        })
    }

    fn take_if(&mut self, field: Field, value: u64, condition: bool) -> bool {
        let said = condition && self.rest.field(field) == (field.max(), value);
        if said {
            self.rest = self.rest.without(field);
        }
        said
    }

    fn ether(&mut self) {
        for (word, field) in [("src", fields::MAC_SOURCE), ("dst", fields::MAC_DESTINATION)] {
            if let Some(address) = self.take(field) {
                self.parts.push(format!("ether {word} {}", mac(address)));
            }
        }
        if self.rest.field(fields::MAC_DESTINATION) == (1 << 40, 1 << 40) {
            self.rest = self.rest.without(fields::MAC_GROUP);
            self.parts.push("ether multicast".into());
        }
        self.ether_proto();
    }

    /// `ether proto` says all that it says in a filter, or is not printed.
    fn ether_proto(&mut self) {
        let (mask, number) = self.rest.field(fields::ETHER_TYPE);
        let meant = ether_proto(number);
        let network = self.rest.field(fields::NETWORK);
        let is_network_meant =
            meant.field(fields::NETWORK).0 == 0 || meant.field(fields::NETWORK) == network;
        if mask == fields::ETHER_TYPE.max() && is_network_meant {
            self.rest = self.rest.without(fields::ETHER_TYPE);
            if meant.field(fields::NETWORK).0 != 0 {
                self.rest = self.rest.without(fields::NETWORK);
            }
            self.say(format!("ether proto {number:#06x}"));
        }
    }

    fn network(&mut self) -> Option<Network> {
        let network = match self.rest.field(fields::NETWORK) {
            (7, 2) => Network::Arp,
            (7, 3) => Network::Aoe,
            (7, 6) => Network::Ipv4,
            (7, 7) => Network::Ipv6,
            _ => return None,
        };
        self.rest = self.rest.without(fields::NETWORK);
        match network {
            Network::Arp => self.arp(),
            Network::Aoe => self.aoe(),
            Network::Ipv4 => self.ipv4(),
            _ => self.ipv6(),
        }
        Some(network)
    }

    fn is_ip(network: Option<Network>) -> bool {
        matches!(network, Some(Network::Ipv4 | Network::Ipv6))
    }

    fn arp(&mut self) {
        let mut text = String::from("arp");
        if let Some(operation) = self.take(fields::ARP_OPERATION) {
            text += &match operation {
                1 => " op request".into(),
                2 => " op reply".into(),
                other => format!(" op {other}"),
            };
        }
        for (word, field) in [("sender", fields::ARP_SENDER), ("target", fields::ARP_TARGET)] {
            if let Some((address, bits)) = self.take_prefix(field).filter(|&(_, bits)| bits > 0) {
                text += &format!(" {word} {}/{bits}", Ipv4Addr::from(address as u32));
            }
        }
        self.say(text);
    }

    fn aoe(&mut self) {
        let mut text = String::from("aoe");
        for (word, field) in [
            ("major", fields::AOE_MAJOR),
            ("minor", fields::AOE_MINOR),
            ("command", fields::AOE_COMMAND),
            ("tag", fields::AOE_TAG),
        ] {
            if let Some(value) = self.take(field) {
                text += &format!(" {word} {value}");
            }
        }
        self.say(text);
    }

    fn ipv4(&mut self) {
        let before = self.parts.len();
        for (word, field) in [("src", fields::IPV4_SOURCE), ("dst", fields::IPV4_DESTINATION)] {
            match self.take_prefix(field) {
                None | Some((_, 0)) => {}
                Some((address, 32)) => {
                    self.say(format!("{word} host {}", Ipv4Addr::from(address as u32)));
                }
                Some((address, bits)) => {
                    self.say(format!("{word} net {}/{bits}", Ipv4Addr::from(address as u32)));
                }
            }
        }
        if self.parts.len() == before {
            self.say("ip".into());
        }
    }

    fn ipv6(&mut self) {
        let before = self.parts.len();
        let source = (fields::IPV6_SOURCE_HIGH, fields::IPV6_SOURCE_LOW);
        let destination = (fields::IPV6_DESTINATION_HIGH, fields::IPV6_DESTINATION_LOW);
        for (word, (high, low)) in [("src", source), ("dst", destination)] {
            let halves = (self.prefix_of(high), self.prefix_of(low));
            let (Some((high_value, high_bits)), Some((low_value, low_bits))) = halves else {
                continue;
            };
            if high_bits == 0 || high_bits < 64 && low_bits > 0 {
                continue;
            }
            self.rest = self.rest.without(high).without(low);
            let address = Ipv6Addr::from(u128::from(high_value) << 64 | u128::from(low_value));
            match high_bits + low_bits {
                128 => self.say(format!("{word} host {address}")),
                bits => self.say(format!("{word} net {address}/{bits}")),
            }
        }
        if self.parts.len() == before {
            self.say("ip6".into());
        }
    }

    /// The value and the number of bits of `field`, if what the clause says of it is a prefix.
    fn prefix_of(&self, field: Field) -> Option<(u64, u32)> {
        let (mask, value) = self.rest.field(field);
        let bits = mask.count_ones();
        let prefix = Pattern::ANY.with_prefix(field, u64::MAX, bits).field(field).0;
        (mask == prefix).then_some((value, bits))
    }

    fn take_prefix(&mut self, field: Field) -> Option<(u64, u32)> {
        let prefix = self.prefix_of(field)?;
        self.rest = self.rest.without(field);
        Some(prefix)
    }

    fn protocol(&mut self, network: Option<Network>) {
        let is_ip = Self::is_ip(network);
        if !is_ip && self.rest.field(fields::NETWORK_IP) != (3, 3) {
            return;
        }
        let Some(number) = self.take(fields::PROTOCOL) else { return };
        self.rest = self.rest.without(fields::NETWORK_IP);
        match (number as u8, network) {
            (protocol::TCP, _) => self.say("tcp".into()),
            (protocol::UDP, _) => self.say("udp".into()),
            (protocol::UDP_LITE, _) => self.say("udplite".into()),
            (protocol::SCTP, _) => self.say("sctp".into()),
            (protocol::DCCP, _) => self.say("dccp".into()),
            (protocol::ICMPV4, Some(Network::Ipv4)) => self.icmp("icmp"),
            (protocol::ICMPV6, Some(Network::Ipv6)) => self.icmp("icmp6"),
            (number, _) => self.say(format!("proto {number}")),
        }
    }

    fn icmp(&mut self, name: &str) {
        let mut text = String::from(name);
        let is_icmp = self.rest.field(fields::LAYER) == (7, Layer::Icmp as u64);
        for (word, field) in [("type", fields::ICMP_TYPE), ("code", fields::ICMP_CODE)] {
            if let Some(value) = is_icmp.then(|| self.take(field)).flatten() {
                text += &format!(" {word} {value}");
            }
        }
        if text != name {
            self.rest = self.rest.without(fields::LAYER);
        }
        self.say(text);
    }

    fn ports(&mut self) {
        if self.take_if(fields::LAYER, Layer::LaterFragment as u64, true) {
            return self.say("later-fragment".into());
        }
        if self.take_if(fields::LAYER, Layer::Unintelligible as u64, true) {
            return self.say("unintelligible".into());
        }
        if self.rest.field(fields::LAYER) != (7, Layer::Ports as u64) {
            return;
        }
        let ranges = [
            ("src", fields::SOURCE_PORT, self.source_ports),
            ("dst", fields::DESTINATION_PORT, self.destination_ports),
        ];
        let before = self.parts.len();
        for (word, field, range) in ranges {
            let (mask, value) = self.rest.field(field);
            let prefix = Ports::of_prefix(mask as u16, value as u16);
            if prefix.is_some() {
                self.rest = self.rest.without(field);
            }
            let both = prefix.map_or(Some(range), |prefix| prefix.intersection(range));
            match both.unwrap_or(range) {
                Ports::ANY => {}
                ports if ports.first() == ports.last() => {
                    self.say(format!("{word} port {}", ports.first()));
                }
                ports => self.say(format!("{word} portrange {ports}")),
            }
        }
        if self.parts.len() == before {
            self.say("dst portrange 0-65535".into());
        }
        self.rest = self.rest.without(fields::LAYER);
    }

    fn tag(&mut self) {
        match self.take(fields::TAGGED) {
            Some(0) if self.inside => {}
            Some(0) => self.parts.push("untagged".into()),
            Some(_) => {
                let mut text = String::from("vlan");
                if let Some(id) = self.take(fields::VLAN_ID) {
                    text += &format!(" {id}");
                }
                if let Some(priority) = self.take(fields::VLAN_PRIORITY) {
                    text += &format!(" priority {priority}");
                }
                self.parts.insert(0, text);
            }
            None if self.inside => self.parts.insert(0, "vlan optional".into()),
            None => {}
        }
    }

    fn raw(&mut self) {
        let (masks, values) = (*self.rest.mask(), *self.rest.value());
        for (word, (mask, value)) in masks.into_iter().zip(values).enumerate() {
            if mask != 0 {
                self.parts.push(format!("digest[{word}]&{mask:#x}={value:#x}"));
            }
        }
    }
}

/// `02:00:00:00:00:0a`.
pub(super) fn mac(address: u64) -> String {
    let octets: Vec<_> =
        address.to_be_bytes()[2..].iter().map(|octet| format!("{octet:02x}")).collect();
    octets.join(":")
}
