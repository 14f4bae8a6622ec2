//! What is claimed against what the filters match, packet by packet.

use super::*;
use clearway_wire::digest::Digest;
use proptest::prelude::*;

/// All addresses in the world of these tests; the host has some of them.
const UNIVERSE: [&str; 6] = ["10.0.0.2", "10.0.0.3", "10.1.0.2", "fd00::2", "fd00::1:2", "fe80::7"];

fn universe() -> Vec<IpAddr> {
    UNIVERSE.iter().map(|text| text.parse().expect("an address")).collect()
}

fn place(host: Vec<IpAddr>) -> Place {
    Place {
        addresses: host.clone(),
        host,
        mac: [2, 0, 0, 0, 0, 1],
        vlan: None,
        udp_port: 20707,
        stations: Vec::new(),
    }
}

/// A frame whose one end is a port of an address, and whose other end is some other.
fn frame(side: Side, (protocol, address, port): HostPort) -> Vec<u8> {
    let number = match protocol {
        Protocol::Udp => protocol::UDP,
        Protocol::Tcp => protocol::TCP,
    };
    let macs = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
    let mut ports = [7_u16.to_be_bytes(), port.to_be_bytes()];
    let ordered = |here: &[u8], there: &[u8]| match side {
        Side::Source => [here, there].concat(),
        Side::Destination => [there, here].concat(),
    };
    let header = match address {
        IpAddr::V4(address) => {
            let head = [8, 0, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, number, 0, 0];
            [&head[..], &ordered(&address.octets(), &[10, 9, 9, 9])].concat()
        }
        IpAddr::V6(address) => {
            let other: Ipv6Addr = "fd00::99".parse().expect("an address");
            let head = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, number, 64];
            [&head[..], &ordered(&address.octets(), &other.octets())].concat()
        }
    };
    if matches!(side, Side::Source) {
        ports.reverse();
    }
    [&macs[..], &header, &ports.concat(), &[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]]
        .concat()
}

/// What the filters match, found by making a packet for every port of every address.
fn matched(filters: &[Filter], side: Side, addresses: &[IpAddr]) -> HashSet<HostPort> {
    let mut matched = HashSet::new();
    for &address in addresses {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let mut words = *Digest::of(&frame(side, (protocol, address, 0))).words();
            for port in 0..=u16::MAX {
                let field = side.port();
                words[field.word] = words[field.word] & !field.mask() | field.place(port.into());
                let digest = Digest::from_words(words);
                let names = filters.iter().flat_map(Filter::clauses);
                let mut names = names.filter(|clause| names_ports(clause, side));
                if names.any(|clause| clause.matches(&digest)) {
                    matched.insert((protocol, address, port));
                }
            }
        }
    }
    matched
}

fn claimed(filters: &[Filter], side: Side, place: &Place) -> Result<HashSet<HostPort>, Refusal> {
    let mut found = HashSet::new();
    find(filters, side, place, 1 << 20, &mut found).map(|()| found)
}

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn port(protocol: Protocol, address: &str, port: u16) -> HostPort {
    (protocol, address.parse().expect("an address"), port)
}

/// A digest that is put together for a port says the same as the digest of a packet with that port.
#[test]
fn packets_of_these_tests_are_packets() {
    for address in universe() {
        for side in [Side::Source, Side::Destination] {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let digest = Digest::of(&frame(side, (protocol, address, 0x1234)));
                assert_eq!(digest.layer(), Layer::Ports);
                assert_eq!(digest.field(side.port()), 0x1234);
                assert!(packets(side, protocol, address).matches(&digest));
            }
        }
    }
}

/// The range of a rule is a prefix, and a raw mask that is none narrows it: the ports that match
/// are one here and one there.
#[test]
fn a_mask_that_is_no_prefix_is_what_it_matches() {
    let range = "dst host 10.0.0.2 and udp dst portrange 4096-8191";
    // With the range's bits the first mask is a prefix after all, and the second is none.
    for (mask, ports) in [("0x0ffe00000000", [5000, 5001]), ("0x0fef00000000", [5000, 5016])] {
        let narrowed = filter(&format!("{range} and digest[0] & {mask} = 0x038800000000"));
        assert!(filter(range).clauses()[0].contains(&narrowed.clauses()[0]), "it is allowed");
        let found = claimed(&[narrowed], Side::Destination, &place(universe())).expect("two ports");
        let expected = ports.map(|number| port(Protocol::Udp, "10.0.0.2", number));
        assert_eq!(found, expected.into());
    }
}

/// Filters that name no protocol, no address, or a network, are about ports of the host all the
/// same.
#[test]
fn what_is_left_open_is_claimed_as_a_whole() {
    let host = place(universe());
    let found = claimed(&[filter("dst port 53")], Side::Destination, &host).expect("few");
    assert_eq!(found.len(), 2 * UNIVERSE.len());
    let found = claimed(&[filter("src net 10.0.0.0/8 and udp src port 53")], Side::Source, &host);
    let expected = UNIVERSE[..3].iter().map(|address| port(Protocol::Udp, address, 53));
    assert_eq!(found.expect("few"), expected.collect());
}

#[test]
fn an_address_that_only_the_filter_names_is_claimed_too() {
    let found = claimed(
        &[filter("src host 127.0.0.1 and tcp src port 80")],
        Side::Source,
        &place(universe()),
    );
    assert_eq!(found.expect("one"), [port(Protocol::Tcp, "127.0.0.1", 80)].into());
    for address in ["::1", "2001:db8:1:2:3:4:5:6", "fd00::3"] {
        let filter = filter(&format!("dst host {address} and udp dst port 53"));
        let found = claimed(&[filter], Side::Destination, &place(universe()));
        assert_eq!(found.expect("one"), [port(Protocol::Udp, address, 53)].into());
    }
    let network = filter("dst net fd77::/64 and udp dst port 53");
    let found = claimed(&[network], Side::Destination, &place(universe()));
    assert!(found.expect("none").is_empty(), "a network is no address");
}

#[test]
fn more_than_the_bound_is_refused_with_the_key_to_raise_it() {
    let place = place(vec!["10.0.0.2".parse().expect("an address")]);
    let range = |text: &str| [filter(&format!("src host 10.0.0.2 and udp src portrange {text}"))];
    let mut found = HashSet::new();
    find(&range("1000-1255"), Side::Source, &place, 256, &mut found).expect("as many as allowed");
    assert_eq!(found.len(), 256);
    find(&range("1000-1255"), Side::Source, &place, 256, &mut found).expect("the same again");
    let refused = find(&range("1256-1256"), Side::Source, &place, 256, &mut found);
    let refused = refused.expect_err("one more");
    assert!(refused.message.contains("ports_per_vif"), "{}", refused.message);
    let all = find(&range("1024-65535"), Side::Source, &place, 256, &mut HashSet::new());
    assert_eq!(all.expect_err("far more").code, Code::Limit);
}

#[test]
fn who_says_nothing_of_ports_is_allowed_so_by_a_rule() {
    let all = [filter("src host 10.0.0.2 and udp"), filter("any"), filter("dst port 80")];
    assert!(claimed(&all, Side::Source, &place(universe())).expect("none").is_empty());
}

/// Filters of parts that say something about the addresses, the protocol and the ports of one end,
/// in all ways there are; what they say of the other end is true of the packets of these tests.
fn filters(side: Side) -> impl Strategy<Value = Filter> {
    let (here, there, address_word, shift) = match side {
        Side::Source => ("src", "dst", 3, 48),
        Side::Destination => ("dst", "src", 5, 32),
    };
    let network = prop::sample::select(vec!["any", "ip", "ip6"]);
    let protocol =
        prop::sample::select(vec!["any", "udp", "tcp", "digest[0] & 0x10000000 = 0x10000000"]);
    let address = prop::sample::select(vec![
        "any".to_owned(),
        format!("{here} host 10.0.0.2"),
        format!("{here} net 10.0.0.0/31"),
        format!("{here} net 10.0.0.0/8"),
        format!("{here} host fd00::2"),
        format!("{here} net fd00::/16"),
        format!("{here} net fd00::/112"),
        format!("digest[3] & {:#x} = 0", 0xff00_u64 << if shift == 48 { 32 } else { 0 }),
        format!("digest[{}] & 0xf0000 = 0x10000", address_word + 1),
        format!("digest[{}] & 0xf = 0x2", address_word + 1),
        format!("digest[{address_word}] & 0xff00000000 = 0"),
    ]);
    let other = prop::sample::select(vec![
        "any".to_owned(),
        format!("{there} port 7"),
        format!("{there} portrange 5-9"),
        format!("{there} net 10.0.0.0/8"),
        format!("{there} net fd00::/16"),
    ]);
    let range =
        (any::<u16>(), any::<u16>(), 0..4).prop_map(move |(one, another, kind)| match kind {
            0 => "any".to_owned(),
            1 => format!("{here} port {one}"),
            _ => format!("{here} portrange {}-{}", one.min(another), one.max(another)),
        });
    let raw =
        (any::<u16>(), any::<u16>(), any::<bool>()).prop_map(move |(mask, value, is_there)| {
            let (mask, value) = (u64::from(mask) << shift, u64::from(mask & value) << shift);
            if is_there { format!("digest[0] & {mask:#x} = {value:#x}") } else { "any".to_owned() }
        });
    (network, protocol, address, other, range, raw).prop_filter_map(
        "parts that go together",
        |(network, protocol, address, other, range, raw)| {
            format!("{network} and {protocol} and {address} and {other} and {range} and {raw}")
                .parse()
                .ok()
        },
    )
}

fn filters_of_a_side() -> impl Strategy<Value = (Side, Vec<Filter>)> {
    prop::sample::select(vec![Side::Source, Side::Destination])
        .prop_flat_map(|side| (Just(side), prop::collection::vec(filters(side), 1..4)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Over all 65,536 ports of each address, for receiving and for sending.
    #[test]
    fn claimed_is_what_is_matched(
        (side, filters) in filters_of_a_side(),
        host in prop::sample::subsequence(universe(), 1..=UNIVERSE.len()),
    ) {
        let mut expected = HashSet::new();
        for clause in filters.iter().flat_map(Filter::clauses) {
            let named = address_of(clause, side).filter(|named| !host.contains(named));
            let addresses: Vec<IpAddr> = host.iter().copied().chain(named).collect();
            expected.extend(matched(&[(*clause).into()], side, &addresses));
        }
        let found = claimed(&filters, side, &place(host)).expect("the bound is large");
        prop_assert_eq!(found, expected);
    }
}
