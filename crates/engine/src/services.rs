//! The services of the host itself on one NIC: each is an owner of entries in the switch's table,
//! as apps' virtual interfaces are.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use clearway_classify::{Clause, Filter};
use clearway_transport::SOURCE_PORT_MIN;
use clearway_wire::digest::fields;
use clearway_wire::{MacAddress, ethernet, icmpv4, icmpv6, ipv6};

use crate::ip::{ALL_NODES, Config};

/// A service of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Messages: UDP to the port of all Clearway daemons.
    Messages,
    /// UDP to other ports of the host's addresses, which nobody has: refused.
    Datagrams,
    /// ARP.
    Arp,
    /// ICMP and ICMPv6, neighbour discovery included.
    Icmp,
    /// The ICMP errors of an address that the kernel shares: it has them as well, since they may be
    /// about packets of its programs.
    Undelivered,
    /// TCP to ports that apps have.
    Tcp,
    /// TCP to other ports of the host's addresses, which nobody has: refused.
    Segments,
    /// Fragments to the host's addresses that do not say of what: put together.
    Fragments,
    /// What the engine's extra component receives.
    Extra,
}

impl Service {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Datagrams => "refused datagrams",
            Self::Arp => "ARP",
            Self::Icmp => "ICMP",
            Self::Undelivered => "ICMP errors",
            Self::Tcp => "TCP",
            Self::Segments => "refused segments",
            Self::Fragments => "fragments",
            Self::Extra => "extra",
        }
    }

    /// True for what nobody has, and is the host's only to be refused or put together, and for what
    /// is the kernel's: whoever wants it may have it.
    #[must_use]
    pub const fn is_last_resort(self) -> bool {
        matches!(self, Self::Datagrams | Self::Segments | Self::Fragments | Self::Undelivered)
    }
}

/// What a service receives, and what only it may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub service: Service,
    /// Which packets it receives.
    pub receive: Clause,
    /// Which packets no app may send, since they would pass for this service's.
    pub send: Option<Filter>,
}

/// What each service receives and sends. Where the kernel shares the NIC, all but messages is
/// the kernel's, and what became of these is heard with it; where it routes as well, it is who
/// tells this host.
#[must_use]
pub fn entries(config: &Config, udp_port: u16) -> Vec<Entry> {
    let own: Vec<IpAddr> = config.addresses.iter().map(|(address, _)| *address).collect();
    let mac = mac_text(config.mac);
    let mut entries = Vec::new();
    let mut add = |service, receive: String, send: Option<String>| {
        let send = send.map(|send| filter(config, &send));
        entries.push(Entry { service, receive: filter(config, &receive).clauses()[0], send });
    };
    for address in &own {
        let receive = format!("ether dst {mac} and dst host {address} and udp dst port {udp_port}");
        // What a daemon takes for messages comes from one of these ports: see docs/wire.md.
        let send = format!(
            "ether src {mac} and src host {address} and (udp src port {udp_port} or \
             udp src portrange {SOURCE_PORT_MIN}-65535 and udp dst port {udp_port})"
        );
        add(Service::Messages, receive, Some(send));
    }
    let to_host = |address: &IpAddr| format!("ether dst {mac} and dst host {address}");
    let icmp = |address: &IpAddr| if address.is_ipv4() { "icmp" } else { "icmp6" };
    if config.kernel_shares {
        for address in &own {
            let message = format!("{} and {}", to_host(address), icmp(address));
            if config.router.is_some() {
                // A kernel that routes says what is too large for the way, as any router does.
                add(Service::Icmp, message, None);
                continue;
            }
            for kind in undelivered(address) {
                add(Service::Undelivered, format!("{message} type {kind}"), None);
            }
        }
        return entries;
    }
    for address in &own {
        let (here, icmp) = (to_host(address), icmp(address));
        let send = format!("ether src {mac} and src host {address} and {icmp}");
        add(Service::Datagrams, format!("{here} and udp"), None);
        add(Service::Segments, format!("{here} and tcp"), None);
        if address.is_ipv6() {
            // Those of IPv4 say what they carry.
            add(Service::Fragments, format!("{here} and later-fragment"), None);
        }
        add(Service::Icmp, format!("{here} and {icmp}"), Some(send));
    }
    if own.iter().any(IpAddr::is_ipv4) {
        let send = format!("ether src {mac} and arp");
        add(Service::Arp, format!("ether dst {mac} and arp"), Some(send));
        add(Service::Arp, format!("ether dst {} and arp", mac_text(ethernet::BROADCAST)), None);
    }
    for group in groups(&own) {
        let mac = mac_text(ethernet::multicast_v6(group));
        add(Service::Icmp, format!("ether dst {mac} and dst host {group} and icmp6"), None);
    }
    entries
}

/// The types of the ICMP errors to `address` that say that a packet did not arrive.
const fn undelivered(address: &IpAddr) -> &'static [u8] {
    match address {
        IpAddr::V4(_) => &icmpv4::UNDELIVERED,
        IpAddr::V6(_) => &icmpv6::UNDELIVERED,
    }
}

/// The entries of an engine's extra component, which receives these packets to the host's
/// addresses.
pub(crate) fn extra_entries(config: &Config, receives: &[&str]) -> Vec<Entry> {
    let mac = mac_text(config.mac);
    let of_address = |(address, _): &(IpAddr, u8)| {
        let here = format!("ether dst {mac} and dst host {address}");
        let filters = receives.iter().map(|wanted| format!("{here} and ({wanted})"));
        filters.collect::<Vec<_>>()
    };
    let filters = config.addresses.iter().flat_map(of_address);
    let clauses = filters.flat_map(|text| filter(config, &text).clauses().to_vec());
    clauses.map(|receive| Entry { service: Service::Extra, receive, send: None }).collect()
}

/// A filter of our own making, on the NIC's VLAN. A tag with the id 0 is of no VLAN: IEEE
/// 802.1Q, section 9.6, "The null VLAN ID. Indicates that the tag header contains only priority
/// information".
fn filter(config: &Config, filter: &str) -> Filter {
    let filter: Filter = filter.parse().expect("the interface knows the language of filters");
    let clauses = filter.patterns().map(|pattern| {
        Clause::new(match config.vlan {
            None => pattern.without(fields::TAGGED).with(fields::VLAN_ID, 0),
            Some(id) => pattern.with(fields::TAGGED, 1).with(fields::VLAN_ID, id.into()),
        })
    });
    Filter::of(clauses.collect()).expect("as many clauses as before")
}

/// The groups that neighbour discovery is sent to: all nodes, and the solicited-node groups of
/// the own addresses (RFC 4291, section 2.8), each once.
fn groups(own: &[IpAddr]) -> Vec<Ipv6Addr> {
    let own = own.iter().filter_map(|address| match address {
        IpAddr::V6(address) => Some(ipv6::solicited_node(*address)),
        IpAddr::V4(_) => None,
    });
    let mut groups: Vec<Ipv6Addr> = own.collect();
    if !groups.is_empty() {
        groups.push(ALL_NODES);
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn mac_text(mac: MacAddress) -> String {
    let mut text = String::with_capacity(17);
    for (index, octet) in mac.iter().enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        let _ = write!(text, "{separator}{octet:02x}"); // writing to a string cannot fail
    }
    text
}
