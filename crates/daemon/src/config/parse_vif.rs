//! The `[[policy.vif]]` sections.

use clearway_base::Prefix;
use clearway_control::filter::{Template, mirrored};

use super::reader::{Placed, Section};
use super::{Machine, Network, VifRule, parse_nic, parse_policy};

/// Keys of which a rule needs at least one.
const RIGHTS: [&str; 4] = ["receive", "send", "own_addresses", "captures"];
/// More interfaces than that do not fit into a table.
const VIFS_MAX: u64 = 1 << 20;
/// The highest ones are for the host's own services.
const PRIORITY_MAX: u64 = 60_000;

/// A rule; and what it has of interfaces for a user, where that stands.
pub(super) fn rule(
    mut section: Section<'_>,
    machine: &dyn Machine,
) -> (VifRule, Option<Placed<u64>>) {
    let people = parse_policy::people_of_rule(&mut section, machine);
    if !RIGHTS.iter().any(|right| section.has(right)) {
        section.report(
            section.span(),
            "this rule does not say what it allows",
            "add `receive`, for example `receive = [\"dst host own and udp dst port 5353\"]`, or \
             `own_addresses` or `captures`; `receive = []` allows nothing",
        );
    }
    let receive = filters(&mut section, "receive");
    let send = filters(&mut section, "send");
    if !section.has("send") {
        receive.iter().for_each(|filter| check_mirror(&section, filter));
    }
    let count = |given: Option<Placed<u64>>| given.map(|given| given.value);
    let vifs_max = section.integer("vifs_max", 0..=VIFS_MAX);
    let rule = VifRule {
        people,
        receive: templates(receive),
        send: section.has("send").then(|| templates(send)),
        own_addresses: addresses(&mut section),
        copies: section.boolean("copies").unwrap_or_default(),
        captures: section.boolean("captures").unwrap_or_default(),
        rate_frames_per_s: count(section.integer("rate_frames_per_s", 1..=u64::from(u32::MAX)))
            .map(|rate| rate as u32),
        vifs_max: vifs_max.as_ref().map(|given| given.value as usize),
        priority_max: count(section.integer("priority_max", 0..=PRIORITY_MAX))
            .map_or(0, |priority| priority as u16),
    };
    section.finish();
    (rule, vifs_max)
}

fn templates(filters: Vec<Placed<Template>>) -> Vec<Template> {
    filters.into_iter().map(|filter| filter.value).collect()
}

fn filters(section: &mut Section<'_>, key: &'static str) -> Vec<Placed<Template>> {
    let mut filters = Vec::new();
    for text in section.strings(key, false) {
        match Template::parse(&text.value) {
            Ok(value) => filters.push(Placed { value, span: text.span }),
            Err(error) => {
                let cause = format!("\"{}\" is not a filter: {}", text.value, error.problem);
                section.report_within(&text, error.column, cause, error.remedy);
            }
        }
    }
    filters
}

/// A filter without a mirror image would silently allow to send nothing.
fn check_mirror(section: &Section<'_>, filter: &Placed<Template>) {
    let own = [std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
    if filter.value.expand(&own).iter().any(|filter| mirrored(filter).is_none()) {
        section.report(
            &filter.span,
            format!("what answers to \"{}\" looks like cannot be said", filter.value.text()),
            "say what may be sent, for example `send = [\"src host own and udp src port 5353\"]`, \
             or `send = []` for nothing",
        );
    }
}

fn addresses(section: &mut Section<'_>) -> Vec<Network> {
    let mut networks = Vec::new();
    for text in section.strings("own_addresses", false) {
        match parse_nic::parse_network(&text.value) {
            Some(network) => {
                check_host_bits(section, &text, network);
                networks.push(network);
            }
            None => section.report(
                &text.span,
                format!("\"{}\" is not an address with its prefix", text.value),
                "write one address as \"10.0.0.50/32\", or all of a network as \"10.0.0.48/28\"",
            ),
        }
    }
    networks
}

/// Elsewhere "10.0.0.50/24" is one address with the prefix of its link. Here it would silently give
/// all of the network.
fn check_host_bits(section: &Section<'_>, text: &Placed<String>, network: Network) {
    let prefix = Prefix::new(network.address, network.prefix_bits);
    if prefix.address() == network.address {
        return;
    }
    let (address, bits) = (network.address, if network.address.is_ipv4() { 32 } else { 128 });
    section.report(
        &text.span,
        format!("\"{network}\" is no network: it has bits set after its prefix"),
        format!("write \"{address}/{bits}\" for this one, or \"{prefix}\" for all of the network"),
    );
}
