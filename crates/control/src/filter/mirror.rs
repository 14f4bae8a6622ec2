//! The mirror image of a filter: what answers to the packets that it is about look like.

use clearway_classify::{Clause, Filter, Pattern, Ports};
use clearway_wire::digest::{Field, Layer, Network, fields};

/// Fields that an answer has exchanged, whatever it is.
const ALWAYS: [(Field, Field); 1] = [(fields::MAC_SOURCE, fields::MAC_DESTINATION)];
const IPV4: &[(Field, Field)] = &[(fields::IPV4_SOURCE, fields::IPV4_DESTINATION)];
const IPV6: &[(Field, Field)] = &[
    (fields::IPV6_SOURCE_HIGH, fields::IPV6_DESTINATION_HIGH),
    (fields::IPV6_SOURCE_LOW, fields::IPV6_DESTINATION_LOW),
];
const ARP: &[(Field, Field)] =
    &[(fields::ARP_SENDER, fields::ARP_TARGET), (fields::ARP_SENDER_MAC, fields::ARP_TARGET_MAC)];
/// Words of the digest whose meaning depends on the network.
const NETWORK_WORDS: std::ops::Range<usize> = 3..7;
/// Questions and their answers: ARP operations (RFC 826), ICMP echo (RFC 792, RFC 4443), neighbour
/// discovery (RFC 4861).
const ARP_OPERATIONS: &[(u64, u64)] = &[(1, 2)];
const ICMP_TYPES: &[(u64, u64)] = &[(8, 0), (128, 129), (135, 136)];

/// Addresses of groups: nothing comes from there (RFC 1122, section 3.2.1.3; RFC 4291, section
/// 2.7).
const GROUPS: [&str; 3] = [
    "vlan optional and src net 224.0.0.0/4",
    "vlan optional and src host 255.255.255.255",
    "vlan optional and src net ff00::/8",
];
/// IEEE 802.3, clause 3.2.3: the first bit on the wire says that an address is that of a group.
const MAC_GROUP: u64 = 1 << 40;

/// Source and destination exchanged, in all alternatives, and a question where an answer stood and
/// the other way round. `None` if it cannot be said, because bits of the digest are asked for whose
/// meaning is open, or because nobody has the address that an answer would come from.
pub fn mirrored(filter: &Filter) -> Option<Filter> {
    let clauses: Option<Vec<Clause>> = filter.clauses().iter().map(clause).collect();
    Filter::of(clauses?)
}

fn clause(clause: &Clause) -> Option<Clause> {
    let mut pattern = *clause.pattern();
    for &(one, other) in ALWAYS.iter().chain(network_fields(&pattern)?) {
        pattern = exchanged(&pattern, one, other);
    }
    if has_ports(&pattern) {
        pattern = exchanged(&pattern, fields::SOURCE_PORT, fields::DESTINATION_PORT);
    }
    pattern = answered(&pattern)?;
    if is_from_group(&pattern) {
        return None;
    }
    let mut mirror = Clause::new(pattern);
    if clause.destination_ports() != Ports::ANY {
        mirror = mirror.from_ports(clause.destination_ports())?;
    }
    if clause.source_ports() != Ports::ANY {
        mirror = mirror.to_ports(clause.source_ports())?;
    }
    Some(mirror)
}

fn is_from_group(pattern: &Pattern) -> bool {
    let (mask, value) = pattern.field(fields::MAC_SOURCE);
    let is_from = |group: &str| {
        let group: Option<Filter> = group.parse().ok();
        group.is_some_and(|group| group.patterns().any(|group| group.contains(pattern)))
    };
    mask & value & MAC_GROUP != 0 || GROUPS.into_iter().any(is_from)
}

/// The fields to exchange in those words whose meaning depends on the network.
fn network_fields(pattern: &Pattern) -> Option<&'static [(Field, Field)]> {
    let (mask, value) = pattern.field(fields::NETWORK);
    if mask == fields::NETWORK.max() {
        return Some(match value {
            value if value == Network::Ipv4 as u64 => IPV4,
            value if value == Network::Ipv6 as u64 => IPV6,
            value if value == Network::Arp as u64 => ARP,
            _ => &[],
        });
    }
    let is_open = pattern.mask()[NETWORK_WORDS].iter().all(|mask| *mask == 0);
    is_open.then_some(&[])
}

/// The pattern with two fields exchanged, whatever bits of them it asks for.
fn exchanged(pattern: &Pattern, one: Field, other: Field) -> Pattern {
    let (mut mask, mut value) = (*pattern.mask(), *pattern.value());
    for (field, (new_mask, new_value)) in [(one, pattern.field(other)), (other, pattern.field(one))]
    {
        mask[field.word] = mask[field.word] & !field.mask() | field.place(new_mask);
        value[field.word] = value[field.word] & !field.mask() | field.place(new_value);
    }
    Pattern::new(mask, value)
}

fn has_ports(pattern: &Pattern) -> bool {
    pattern.field(fields::LAYER) == (fields::LAYER.max(), Layer::Ports as u64)
}

/// The pattern with the answer for the question, or the question for the answer. `None` if it asks
/// for bits of the first word that are neither.
fn answered(pattern: &Pattern) -> Option<Pattern> {
    let is = |field: Field, value: u64| pattern.field(field) == (field.max(), value);
    let (field, pairs) = if is(fields::LAYER, Layer::Icmp as u64) {
        (fields::ICMP_TYPE, ICMP_TYPES)
    } else if is(fields::NETWORK, Network::Arp as u64) {
        (fields::ARP_OPERATION, ARP_OPERATIONS)
    } else {
        let (source, destination) = (fields::SOURCE_PORT, fields::DESTINATION_PORT);
        let asked = pattern.field(source).0 | pattern.field(destination).0;
        return (asked == 0 || has_ports(pattern)).then_some(*pattern);
    };
    let (mask, value) = pattern.field(field);
    let pair = pairs.iter().find(|(one, other)| [*one, *other].contains(&value));
    Some(match pair {
        Some((one, other)) if mask == field.max() => {
            pattern.without(field).with(field, if value == *one { *other } else { *one })
        }
        _ => *pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(text: &str) -> Option<String> {
        let filter: Filter = text.parse().expect(text);
        mirrored(&filter).map(|mirror| mirror.to_string())
    }

    #[test]
    fn mirror_is_what_answers_look_like() {
        for (one, other) in [
            ("any", "any"),
            ("udp dst port 53", "udp src port 53"),
            ("dst host 10.0.0.2 and udp dst port 5353", "src host 10.0.0.2 and udp src port 5353"),
            (
                "src net 10.0.0.0/8 and tcp dst portrange 1000-2000",
                "dst net 10.0.0.0/8 and tcp src portrange 1000-2000",
            ),
            (
                "src host 10.0.0.1 and dst host 10.0.0.2 and tcp src port 80 and tcp dst \
                 portrange 5-9",
                "dst host 10.0.0.1 and src host 10.0.0.2 and tcp dst port 80 and tcp src \
                 portrange 5-9",
            ),
            ("dst host fd00::2 and udp", "src host fd00::2 and udp"),
            ("dst net fd00::/16 or tcp dst port 7", "src net fd00::/16 or tcp src port 7"),
            ("ether dst 02:00:00:00:00:01", "ether src 02:00:00:00:00:01"),
            ("vlan 7 and udp dst port 9", "vlan 7 and udp src port 9"),
            ("arp op request target 10.0.0.2", "arp op reply sender 10.0.0.2"),
            ("dst host 10.0.0.2 and icmp type 8", "src host 10.0.0.2 and icmp type 0"),
            ("dst host fd00::2 and icmp6 type 135", "src host fd00::2 and icmp6 type 136"),
            ("icmp type 3 code 4", "icmp type 3 code 4"),
            ("aoe major 1 minor 2 tag 77", "aoe major 1 minor 2 tag 77"),
            ("ether proto 0x88b5", "ether proto 0x88b5"),
            ("proto 47", "proto 47"),
        ] {
            let canonical = |text: &str| text.parse::<Filter>().expect(text).to_string();
            assert_eq!(mirror(one).as_deref(), Some(&*canonical(other)), "{one}");
            assert_eq!(mirror(other).as_deref(), Some(&*canonical(one)), "{other}");
        }
    }

    #[test]
    fn groups_do_not_answer_and_open_bits_cannot_be_said() {
        for text in [
            "ether multicast",
            "ether dst 01:00:5e:00:00:fb",
            "dst host 224.0.0.251 and udp dst port 5353",
            "dst host ff02::fb",
            "dst host 255.255.255.255",
            "digest[3] & 0xff = 0x01",
            "digest[0] & 0xff00000000 = 0x100000000",
        ] {
            assert_eq!(mirror(text), None, "{text}");
        }
    }
}
