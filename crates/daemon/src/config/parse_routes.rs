//! The routes of a `[[nic]]` section: `gateway`, `gateways` and `routes`.

use std::net::IpAddr;
use std::ops::Range;

use clearway_base::Prefix;
use clearway_engine::ip::Route;

use super::Network;
use super::parse_nic;
use super::reader::{Placed, Section};

/// The largest metric that the kernel knows.
const METRIC_MAX: u64 = u32::MAX as u64;
/// RFC 791, section 3.1, every host takes packets of that size; the largest packet there is.
const MTU_BYTES: std::ops::RangeInclusive<u64> = 576..=65_535;

/// All of them. `addresses` are those of the section, which tell what is on the link.
pub(super) fn routes(section: &mut Section<'_>, addresses: &[Placed<Network>]) -> Vec<Route> {
    let mut routes: Vec<Route> = section
        .sections("routes", "{ to = \"...\", via = \"...\" }")
        .into_iter()
        .filter_map(|route| self::route(route, addresses))
        .collect();
    routes.extend(gateways(section, addresses));
    routes
}

/// `gateway` takes one address; `gateways` several, of which those of one family are tried in their
/// order.
fn gateways(section: &mut Section<'_>, addresses: &[Placed<Network>]) -> Vec<Route> {
    let one = section.string("gateway");
    if let Some(one) = one.as_ref().filter(|_| section.has("gateways")) {
        let cause = "`gateway` and `gateways` both say where the default route leads";
        section.report(&one.span, cause, "name all in `gateways`, in the order of preference");
    }
    let mut texts: Vec<Placed<String>> = one.into_iter().collect();
    texts.extend(section.strings("gateways", false));
    report_twice(section, &texts);
    let gateways = texts.into_iter().filter_map(|text| gateway(section, &text, addresses));
    gateways.map(Route::default_via).collect()
}

fn report_twice(section: &Section<'_>, texts: &[Placed<String>]) {
    for (index, text) in texts.iter().enumerate() {
        if texts[..index].iter().any(|before| before.value == text.value) {
            let cause = format!("the gateway {} stands twice", text.value);
            section.report(&text.span, cause, "remove one");
        }
    }
}

fn route(mut section: Section<'_>, addresses: &[Placed<Network>]) -> Option<Route> {
    let to = section.string("to").and_then(|text| network(&section, &text));
    let via = section.string("via");
    let metric = section.integer("metric", 0..=METRIC_MAX).map(|metric| metric.value as u32);
    let mtu = section.integer("mtu_bytes", MTU_BYTES);
    for key in ["to", "via"] {
        if !section.has(key) {
            let cause = format!("this route has no `{key}`");
            let remedy = "write it as in { to = \"10.1.0.0/16\", via = \"10.0.0.2\" }";
            section.report(section.span(), cause, remedy);
        }
    }
    let gateway = via.and_then(|text| {
        let gateway = gateway(&section, &text, addresses)?;
        is_of_family(&section, &text.span, gateway, to?.address).then_some(gateway)
    });
    if let Some(mtu) = mtu.as_ref().filter(|mtu| mtu.value < parse_nic::MTU_BYTES_MIN_IPV6)
        && to.is_some_and(|to| to.address.is_ipv6())
    {
        let least = parse_nic::MTU_BYTES_MIN_IPV6;
        let cause = format!("`mtu_bytes = {}` is too little: IPv6 needs {least}", mtu.value);
        section.report(&mtu.span, cause, "raise it");
    }
    section.finish();
    let mtu = mtu.map(|mtu| mtu.value as u16);
    let Network { address, prefix_bits } = to?;
    let route = Route::on_link(address, prefix_bits);
    Some(Route { via: Some(gateway?), metric: metric.unwrap_or(0), mtu, ..route })
}

fn is_of_family(section: &Section<'_>, span: &Range<usize>, via: IpAddr, to: IpAddr) -> bool {
    if via.is_ipv4() == to.is_ipv4() {
        return true;
    }
    let cause = format!("{via} is not of the address family of {to}");
    section.report(span, cause, "name a gateway of the same family");
    false
}

fn network(section: &Section<'_>, text: &Placed<String>) -> Option<Network> {
    let parsed = text.value.split_once('/').and_then(|(address, prefix)| {
        let (address, prefix_bits) = (address.parse::<IpAddr>().ok()?, prefix.parse().ok()?);
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        (prefix_bits <= bits_max).then_some(Network { address, prefix_bits })
    });
    let Some(network) = parsed else {
        let cause = format!("\"{}\" is not a network with its prefix", text.value);
        section.report(&text.span, cause, "write it as in \"10.1.0.0/16\" or \"::/0\"");
        return None;
    };
    let prefix = Prefix::new(network.address, network.prefix_bits);
    if prefix.address() != network.address {
        let cause = format!("\"{network}\" is no network: it has bits set after its prefix");
        section.report(&text.span, cause, format!("write \"{prefix}\", or a longer prefix"));
    }
    parsed
}

fn gateway(
    section: &Section<'_>,
    text: &Placed<String>,
    addresses: &[Placed<Network>],
) -> Option<IpAddr> {
    let Ok(gateway) = text.value.parse::<IpAddr>() else {
        let cause = format!("\"{}\" is not an IP address", text.value);
        let remedy = "write the gateway as in \"10.0.0.254\", without a prefix";
        section.report(&text.span, cause, remedy);
        return None;
    };
    if addresses.iter().any(|own| own.value.address == gateway) {
        let cause = format!("the gateway {gateway} is one of this host's own `addresses`");
        section.report(&text.span, cause, "name the router's address on this link");
    }
    let link = addresses.iter().map(|network| network.value).find(|link| link.on_link(gateway));
    let is_of_a_host =
        link.is_none_or(|link| parse_nic::is_of_a_host(&Network { address: gateway, ..link }));
    if !parse_nic::names_a_host(gateway) || !is_of_a_host {
        let cause = format!("{gateway} is not the address of a router, or of any host");
        section.report(&text.span, cause, "name the router's address on this link");
        return None;
    }
    if !addresses.is_empty() && link.is_none() && !is_link_local(gateway) {
        section.report(
            &text.span,
            format!("the gateway {gateway} is not on the link of any of the `addresses`"),
            "give an address or a prefix that covers it",
        );
    }
    let is_alike = |own: &Placed<Network>| own.value.address.is_ipv4() == gateway.is_ipv4();
    if is_link_local(gateway) && !addresses.is_empty() && !addresses.iter().any(is_alike) {
        let cause = format!("the gateway {gateway} is of no use without an address of IPv6");
        section.report(&text.span, cause, "add one to `addresses`, or remove the gateway");
    }
    Some(gateway)
}

/// RFC 4291, section 2.5.6: fe80::/10. Routers announce themselves by such an address.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
