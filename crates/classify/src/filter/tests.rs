use super::{ALTERNATIVES_MAX, Filter};
use crate::{Clause, Pattern, Ports};
use clearway_wire::digest::{Digest, PATTERN_WORDS};
use proptest::prelude::*;

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Texts, each with what it is printed as.
const CANONICAL: &[(&str, &str)] = &[
    ("any", "any"),
    ("dst host 10.0.0.2 and udp dst port 7000", "dst host 10.0.0.2 and udp and dst port 7000"),
    ("net 10/8", "dst net 10.0.0.0/8 or src net 10.0.0.0/8"),
    ("src net 10.1/16 tcp", "src net 10.1.0.0/16 and tcp"),
    ("src 0.0.0.0/0", "ip"),
    ("portrange 1000-2000", "dst portrange 1000-2000 or src portrange 1000-2000"),
    ("tcp dst portrange 1024-2047", "tcp and dst portrange 1024-2047"),
    ("ether proto 0x88a2", "ether proto 0x88a2"),
    ("ether proto 0x88b5", "ether proto 0x88b5"),
    ("digest[0]&0xffff=0x88b5", "digest[0]&0xffff=0x88b5"),
    (
        "ether src 2:0:0:0:0:a and ether dst 02-00-00-00-00-0b",
        "ether src 02:00:00:00:00:0a and ether dst 02:00:00:00:00:0b",
    ),
    ("ether broadcast", "ether dst ff:ff:ff:ff:ff:ff"),
    ("ether multicast and ip6", "ether multicast and ip6"),
    ("vlan 5 and udp", "vlan 5 and udp"),
    ("udp and vlan 5 priority 3", "vlan 5 priority 3 and udp"),
    ("vlan optional and icmp type 8 code 0", "vlan optional and ip and icmp type 8 code 0"),
    ("vlan", "vlan"),
    ("untagged", "untagged"),
    ("icmp6 type 135", "ip6 and icmp6 type 135"),
    ("arp op reply sender 10.0.0.1", "arp op reply sender 10.0.0.1/32"),
    ("aoe major 1 minor 2 tag 0xff", "aoe major 1 minor 2 tag 255"),
    ("sctp", "sctp"),
    ("ip proto 89", "ip and proto 89"),
    ("ip6 dst net 2001:db8::/32", "dst net 2001:db8::/32"),
    ("src host 2001:db8::1", "src host 2001:db8::1"),
    ("later-fragment and dst host 10.0.0.1", "dst host 10.0.0.1 and later-fragment"),
    ("unintelligible", "unintelligible"),
    ("udp and dst portrange 0-65535", "udp and dst portrange 0-65535"),
    ("digest[0]&0xff=0x12", "digest[0]&0xff=0x12"),
    (
        "tcp and (dst port 80 or dst port 443) and dst host 10.0.0.1",
        "dst host 10.0.0.1 and tcp and dst port 80 or dst host 10.0.0.1 and tcp and dst port 443",
    ),
];

/// What people are shown who ask why a packet is theirs.
#[test]
fn filters_are_explained_field_by_field() {
    let text = "ether dst 02:00:00:00:00:01 and src host 10.0.0.1 and tcp and dst portrange 5-9";
    let explained = filter(text).explain();
    for line in [
        "Ethernet destination: 02:00:00:00:00:01",
        "network: IPv4",
        "protocol: 6 (0x6)",
        "beyond IP: ports",
        "source: 10.0.0.1",
        "destination port: from 5 to 9",
    ] {
        assert!(explained.lines().any(|other| other.trim() == line), "{line}: {explained}");
    }
    for name in ["source port:", "destination:", "Ethernet source:"] {
        let is_about = |line: &str| line.trim().starts_with(name);
        assert!(!explained.lines().any(is_about), "{name} {explained}");
    }
    let explained = filter("ether src 02:00:00:00:00:01 and dst net 10.0.0.0/8").explain();
    assert!(explained.contains("Ethernet source: 02:00:00:00:00:01"), "{explained}");
    assert!(explained.contains("destination: 0xa000000 under the mask 0xff000000"), "{explained}");
    assert!(filter("arp").explain().contains("network: ARP"));
    assert!(filter("any").explain().contains("every packet"));
}

#[test]
fn ether_types_have_names() {
    for (name, number) in [("ip", "0x800"), ("arp", "0x806"), ("ip6", "0x86dd"), ("aoe", "0x88a2")]
    {
        let [by_name, by_number] =
            [name, number].map(|what| filter(&format!("ether proto {what}")));
        assert_eq!(by_name, by_number);
    }
}

#[test]
fn canonical_texts() {
    for (text, canonical) in CANONICAL {
        let parsed = filter(text);
        assert_eq!(&parsed.to_string(), canonical, "{text}");
        assert_eq!(filter(canonical), parsed, "{canonical}");
        assert!(!parsed.explain().is_empty());
    }
}

#[test]
fn an_ether_type_that_is_not_looked_into_overlaps_with_nothing_that_is() {
    let other = filter("ether proto 0x88b5");
    for text in ["udp dst port 53", "src host 2001:db8::1", "arp", "ether proto ip", "aoe"] {
        assert!(!other.overlaps(&filter(text)), "{text}");
    }
    assert!(filter("ether proto ip").overlaps(&filter("udp")));
    let frame = [&[2; 12][..], &[0x88, 0xb5, 1, 2, 3]].concat();
    assert!(other.matches(&Digest::of(&frame)));
}

#[test]
fn what_is_wrong_has_a_column_and_a_remedy() {
    for (text, column, problem) in [
        ("", 1, "the filter ends here"),
        ("udp dst port 70000", 14, "`70000` is no port"),
        ("udp port", 9, "the filter ends here"),
        ("dst host 10.0.0.0/8", 10, "is no IP address"),
        ("net 10.1/8", 5, "has bits behind its prefix"),
        ("net 10.1.2.3.4/8", 5, "is no prefix"),
        ("tcp and udp", 9, "never be true together"),
        ("tcp dst port 5 dst port 6", 16, "never be true together"),
        ("ip src host ::1", 4, "cannot be said of the protocol"),
        ("not udp", 1, "cannot say `not`"),
        ("(udp", 5, "`)` is missing"),
        ("udp)", 4, "has no partner"),
        ("smtp", 1, "begins no condition"),
        ("portrange 5-4", 11, "is no range"),
        ("ether src 02:00:00:00:00", 11, "is no Ethernet address"),
        ("vlan 4096", 6, "is no VLAN id"),
        ("digest[7]&1=1", 8, "is no word of the digest"),
        ("digest[0]&1=2", 13, "is no value under this mask"),
        ("arp sender ::1", 12, "ARP has IPv4 addresses only"),
    ] {
        let error = text.parse::<Filter>().expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.problem.contains(problem), "{text}: {error}");
        assert!(!error.remedy.is_empty());
    }
}

#[test]
fn alternatives_parentheses_and_text_are_bounded() {
    let many: Vec<_> = (0..=ALTERNATIVES_MAX).map(|port| format!("dst port {port}")).collect();
    assert!(many[1..].join(" or ").parse::<Filter>().is_ok());
    assert!(many.join(" or ").parse::<Filter>().is_err());
    let product = "(host 10.0.0.1 or host 10.0.0.2) (port 1 or port 2 or port 3 or port 4 or port \
                   5 or port 6 or port 7 or port 8 or port 9)";
    assert!(product.parse::<Filter>().is_err());
    assert!(format!("{}udp{}", "(".repeat(16), ")".repeat(16)).parse::<Filter>().is_ok());
    assert!("(".repeat(3000).parse::<Filter>().is_err());
    assert!("udp ".repeat(2000).parse::<Filter>().is_err());
}

#[test]
fn tags_are_not_seen_through_unless_said() {
    let tagged = Digest::from_words([0x0000_0035_11e1_0800, 0x0005, 0, 0, 0, 0, 0, 0]);
    let untagged = Digest::from_words([0x0000_0035_1161_0800, 0, 0, 0, 0, 0, 0, 0]);
    for (text, matches_tagged, matches_untagged) in [
        ("udp port 53", false, true),
        ("vlan and udp port 53", true, false),
        ("vlan 5 and udp port 53", true, false),
        ("vlan 6 and udp port 53", false, false),
        ("vlan optional and udp port 53", true, true),
        ("any", true, true),
        ("untagged", false, true),
    ] {
        let filter = filter(text);
        assert_eq!(filter.matches(&tagged), matches_tagged, "{text}");
        assert_eq!(filter.matches(&untagged), matches_untagged, "{text}");
    }
}

#[test]
fn ranges_become_prefixes() {
    assert_eq!(filter("dst portrange 1000-2000").patterns().count(), 8);
    assert_eq!(filter("dst port 1000").patterns().count(), 1);
}

fn words() -> impl Strategy<Value = [u64; PATTERN_WORDS]> {
    any::<[u64; PATTERN_WORDS]>()
}

/// Clauses of which some parts are as filters make them and some are not.
fn clause() -> impl Strategy<Value = Clause> {
    let bases = prop::sample::select(CANONICAL).prop_map(|(text, _)| filter(text).clauses()[0]);
    let raw = (words(), words(), words(), words());
    let raw = raw.prop_map(|(a, b, c, value)| {
        // The conjunction of several leaves few bits.
        Pattern::new(std::array::from_fn(|word| a[word] & b[word] & c[word]), value)
    });
    (bases, raw, any::<(u16, u16)>(), any::<[bool; 2]>()).prop_map(|(base, raw, (a, b), with)| {
        let ports = Ports::new(a.min(b), a.max(b)).unwrap();
        let mut clause = base;
        if with[0] {
            clause = clause.intersection(&raw.into()).unwrap_or(clause);
        }
        if with[1] {
            clause = clause.to_ports(ports).unwrap_or(clause);
        }
        clause
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(clauses in prop::collection::vec(clause(), 1..4)) {
        let filter = Filter::of(clauses).unwrap();
        let text = filter.to_string();
        prop_assert_eq!(text.parse::<Filter>(), Ok(filter), "{}", text);
    }

    #[test]
    fn any_text(text in "[a-z0-9 ()\\[\\]&=/.:-]{0,80}") {
        let _ = text.parse::<Filter>();
    }

    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(vec![
        "udp", "tcp", "ip", "ip6", "src", "dst", "host", "net", "port", "10.0.0.1", "::1", "10/8",
        "or", "and", "(", ")", "vlan", "5", "icmp", "type", "arp", "ether", "proto", "portrange",
        "1-5", "digest", "[", "]", "0", "&", "=", "0xff", "optional", "aoe", "major",
    ]), 0..12)) {
        if let Ok(filter) = words.join(" ").parse::<Filter>() {
            prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter.clone()), "{}", filter);
        }
    }
}

/// A packet of UDP with these addresses.
fn packet(source: &[u8], destination: &[u8]) -> Digest {
    let head: &[u8] = match source.len() {
        4 => &[8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0],
        _ => &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64],
    };
    let ports = [0, 7, 0, 9, 0, 8, 0, 0];
    Digest::of(&[&[2; 12][..], head, source, destination, &ports].concat())
}

fn flipped(address: &[u8], bit: usize) -> Vec<u8> {
    let mut address = address.to_vec();
    address[bit / 8] ^= 0x80 >> (bit % 8);
    address
}

/// Each bit of an address matters in a filter about it, as far as the prefix goes and no further,
/// and none of the other address.
#[test]
fn filters_about_addresses_look_at_each_bit_of_the_right_one() {
    let of = |text: &str| match text.parse().unwrap() {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    for (one, other) in [("10.20.30.40", "192.168.7.5"), ("fd00:1:2:3:4:5:6:7", "fe80::9:8:7:6")] {
        let (here, there) = (of(one), of(other));
        let bits = here.len() * 8;
        for prefix in [1, 7, 8, bits / 2 - 1, bits / 2, bits / 2 + 1, bits - 1, bits] {
            // The same bits, but for those behind the prefix.
            let mut network = here.clone();
            for bit in prefix..bits {
                network[bit / 8] &= !(0x80 >> (bit % 8));
            }
            let text = match <[u8; 4]>::try_from(&*network) {
                Ok(octets) => std::net::IpAddr::from(octets).to_string(),
                Err(_) => {
                    std::net::IpAddr::from(<[u8; 16]>::try_from(&*network).unwrap()).to_string()
                }
            };
            let source = filter(&format!("src net {text}/{prefix}"));
            let destination = filter(&format!("dst net {text}/{prefix}"));
            for bit in 0..bits {
                let changed = flipped(&here, bit);
                let expected = bit >= prefix;
                assert_eq!(source.matches(&packet(&changed, &there)), expected, "{text}/{prefix}");
                assert_eq!(destination.matches(&packet(&there, &changed)), expected);
                assert!(source.matches(&packet(&here, &flipped(&there, bit))));
                assert!(destination.matches(&packet(&flipped(&there, bit), &here)));
            }
        }
    }
}
