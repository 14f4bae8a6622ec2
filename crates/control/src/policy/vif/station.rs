//! Interfaces with an Ethernet address of their own, and what the host itself sends.

use std::net::IpAddr;

use clearway_channel::control::Refusal;
use clearway_classify::Filter;
use clearway_engine::SOURCE_PORT_MIN;

use super::{Place, denied};
use crate::filter::Template;

/// What a machine with this address sends.
pub(super) fn of_address(address: IpAddr, vlan: Option<u16>) -> Filter {
    let tag = vlan.map_or(String::new(), |vlan| format!("vlan {vlan} and "));
    known(&match address {
        IpAddr::V4(address) => format!("{tag}(src host {address} or arp sender {address})"),
        IpAddr::V6(address) => format!("{tag}src host {address}"),
    })
}

/// Frames to everybody, and to groups.
pub(super) fn groups() -> Filter {
    known("ether multicast")
}

/// A service of the host: what it sends, and what it receives.
struct Service {
    name: &'static str,
    sends: &'static str,
    receives: &'static str,
}

/// The host's own services. Whatever the VLAN tag, since a peer may not look at it. With ether
/// types, so that a filter for another one has nothing in common with them.
const SERVICES: [Service; 6] = [
    Service {
        name: "message service",
        sends: "vlan optional and ether proto ip and ip src host own and udp src port {port}",
        receives: "vlan optional and ip dst host own and udp dst port {port}",
    },
    Service {
        name: "message service",
        sends: "vlan optional and ether proto ip and ip src host own and \
                udp src portrange {source_port_min}-65535 and udp dst port {port}",
        receives: "vlan optional and ip dst host own and udp dst port {port}",
    },
    Service {
        name: "message service",
        sends: "vlan optional and ether proto ip6 and ip6 src host own and udp src port {port}",
        receives: "vlan optional and ip6 dst host own and udp dst port {port}",
    },
    Service {
        name: "message service",
        sends: "vlan optional and ether proto ip6 and ip6 src host own and \
                udp src portrange {source_port_min}-65535 and udp dst port {port}",
        receives: "vlan optional and ip6 dst host own and udp dst port {port}",
    },
    Service {
        name: "ARP",
        sends: "vlan optional and ether proto arp and arp sender own",
        receives: "vlan optional and arp target own",
    },
    Service {
        name: "neighbour discovery",
        sends: "vlan optional and ether proto ip6 and ip6 src host own and icmp6 type 136",
        receives: "vlan optional and ip6 dst host own and icmp6 type 135",
    },
];

/// Refuses what would let an app speak for the host, and what the host would never leave to it.
pub(super) fn check_reserved(
    receive: &[Filter],
    transmit: &[Filter],
    place: &Place,
) -> Result<(), Refusal> {
    for Service { name, sends, receives } in SERVICES {
        for reserved in filters_of_host(sends, place) {
            if let Some(wanted) = transmit.iter().find(|wanted| wanted.overlaps(&reserved)) {
                return Err(denied(format!(
                    "`{wanted}` overlaps with `{reserved}`, which only the host's own {name} may \
                     send; ask for less, such as the ports that are needed"
                )));
            }
        }
        for reserved in filters_of_host(receives, place) {
            let is_within = |wanted: &&Filter| {
                wanted.clauses().iter().any(|wanted| reserved.clauses()[0].contains(wanted))
            };
            if let Some(wanted) = receive.iter().find(is_within) {
                return Err(denied(format!(
                    "`{wanted}` is received by the host's own {name}; ask for something else"
                )));
            }
        }
    }
    Ok(())
}

fn filters_of_host(text: &str, place: &Place) -> Vec<Filter> {
    let text = text.replace("{port}", &place.udp_port.to_string());
    let text = text.replace("{source_port_min}", &SOURCE_PORT_MIN.to_string());
    let template = Template::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    template.expand(&place.addresses)
}

/// A filter that is known to be one.
fn known(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}
