//! From a request to filters: texts read, what was left out filled in, and everything tied to the
//! interface's Ethernet address.

use clearway_channel::control::{OpenVif, Refusal};
use clearway_classify::filter::ALTERNATIVES_MAX;
use clearway_classify::{Clause, Filter, Pattern};
use clearway_nic::MacAddress;
use clearway_wire::digest::{Field, Layer, Network, fields};
use clearway_wire::{icmpv6, protocol};

use super::{Place, Station, invalid, station};
use crate::filter::{Template, mirrored};

/// What an app asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) receive: Vec<Filter>,
    pub(super) copies: Vec<Filter>,
    pub(super) transmit: Vec<Filter>,
    /// They stand for what was said of `own`, the host's addresses.
    pub(super) is_of_own: bool,
}

impl Wanted {
    /// `own` is the Ethernet address of its own that the interface has.
    pub(super) fn read(
        open: &OpenVif,
        place: &Place,
        own: Option<&Station>,
    ) -> Result<Self, Refusal> {
        let is_machine = own.is_some_and(|own| own.address.is_some());
        let mut receive = filters("receive", &open.receive, place)?;
        if receive.is_empty() && is_machine {
            receive.push(Filter::any());
        }
        let mut copies = filters("copies", &open.copies, place)?;
        if copies.is_empty() && is_machine {
            copies.push(station::groups());
        }
        let mut transmit = match (&open.transmit, own.and_then(|own| own.address)) {
            (Some(given), _) => filters("transmit", given, place)?,
            (None, Some(address)) => vec![station::of_address(address, place.vlan)],
            (None, None) => receive.iter().map(mirror).collect::<Result<_, _>>()?,
        };
        if let Some(own) = own {
            receive = tied("receive", &receive, fields::MAC_DESTINATION, own.mac)?;
        }
        let mac = own.map_or(place.mac, |own| own.mac);
        transmit = tied("transmit", &transmit, fields::MAC_SOURCE, mac)?;
        let texts = [&open.receive, &open.copies].into_iter().chain(&open.transmit).flatten();
        let is_of_own =
            texts.filter_map(|text| Template::parse(text).ok()).any(|it| it.names_own());
        Ok(Self { receive, copies, transmit, is_of_own })
    }
}

/// The filters of a list of texts, for the host's addresses where they say `own`.
fn filters(list: &str, texts: &[String], place: &Place) -> Result<Vec<Filter>, Refusal> {
    let mut filters = Vec::new();
    for text in texts {
        let template = Template::parse(text)
            .map_err(|error| invalid(format!("`{text}` in {list} is not a filter: {error}")))?;
        let expanded = template.expand(&place.addresses);
        if expanded.is_empty() {
            return Err(invalid(format!(
                "`{text}` in {list} is about addresses that this host does not have on this NIC; \
                 `clearway status` shows those that it has"
            )));
        }
        filters.extend(expanded);
        let alternatives: usize = filters.iter().map(|filter| filter.clauses().len()).sum();
        if alternatives > ALTERNATIVES_MAX {
            return Err(invalid(format!(
                "there are more than {ALTERNATIVES_MAX} alternatives in {list}; open several \
                 virtual interfaces"
            )));
        }
    }
    Ok(filters)
}

fn mirror(filter: &Filter) -> Result<Filter, Refusal> {
    mirrored(filter).ok_or_else(|| {
        invalid(format!(
            "what answers to `{filter}` looks like cannot be said; give `transmit`: filters of \
             what the interface is to send, or an empty list if it only receives"
        ))
    })
}

/// Only those frames that come from, or go to, this Ethernet address. An ARP message that comes
/// from it says so inside, too, and a neighbour advertisement is about the address that it comes
/// from.
fn tied(
    list: &str,
    filters: &[Filter],
    field: Field,
    mac: MacAddress,
) -> Result<Vec<Filter>, Refusal> {
    let number = mac.iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
    let of_mac = Pattern::ANY.with(field, number);
    let tie = |clause: &Clause| {
        let inside =
            if field == fields::MAC_SOURCE { inside(clause, number) } else { Pattern::ANY };
        clause.intersection(&of_mac.into())?.intersection(&inside.into())
    };
    let tied = |filter: &Filter| {
        let clauses = filter.clauses().iter().filter_map(tie).collect();
        Filter::of(clauses).ok_or_else(|| {
            let mac: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
            invalid(format!(
                "`{filter}` in {list} is about another Ethernet address than the interface's, \
                 which is {}; leave the address out",
                mac.join(":")
            ))
        })
    };
    filters.iter().map(tied).collect()
}

/// What a frame that the station with this Ethernet address sends has to say inside, if it is of
/// the kind that `clause` is about.
fn inside(clause: &Clause, mac: u64) -> Pattern {
    let network = |network: Network| Pattern::ANY.with(fields::NETWORK, network as u64);
    let is_arp =
        clause.pattern().field(fields::NETWORK) == (fields::NETWORK.max(), Network::Arp as u64);
    let advertisement = network(Network::Ipv6)
        .with(fields::PROTOCOL, protocol::ICMPV6.into())
        .with(fields::LAYER, Layer::Icmp as u64)
        .with(fields::ICMP_TYPE, icmpv6::NEIGHBOUR_ADVERTISEMENT.into());
    if is_arp {
        Pattern::ANY.with(fields::ARP_SENDER_MAC, mac)
    } else if clause.intersection(&advertisement.into()).is_some() {
        Pattern::ANY.with(fields::ADVERTISES_ANOTHER, 0)
    } else {
        Pattern::ANY
    }
}
