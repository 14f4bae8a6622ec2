//! The primitives of a filter.

use super::number::{Prefix, mac, number, parse, port_range};
use crate::filter::FilterError;
use crate::filter::lexer::Tokens;
use crate::filter::term::Term;
use crate::{Clause, Pattern, Ports};
use clearway_wire::digest::{Field, Layer, Network, PATTERN_WORDS, fields};
use clearway_wire::protocol;
use std::net::IpAddr;

type Terms = Result<Vec<Term>, FilterError>;

/// What may stand where a primitive should.
const PRIMITIVES: &str = "write one of any, ether, vlan, untagged, ip, ip6, arp, aoe, tcp, udp, \
                          udplite, sctp, dccp, icmp, icmp6, proto, src, dst, host, net, port, \
                          portrange, first-fragment, later-fragment, unintelligible, digest";

pub(super) fn primitive(tokens: &mut Tokens<'_>) -> Terms {
    let qualified = match tokens.peek() {
        Some("src" | "dst" | "host" | "net" | "port" | "portrange" | "proto") => {
            return qualified(tokens, Term::outside(Clause::ANY));
        }
        _ => tokens.take("what packets are wanted, or `any`")?,
    };
    let one = |clause: Pattern| Ok(vec![Term::inside(clause)]);
    match qualified.text {
        "any" => Ok(vec![Term::outside(Clause::ANY)]),
        "ether" => ether(tokens),
        "vlan" => vlan(tokens),
        "untagged" => Ok(vec![Term::tag(Pattern::ANY.with(fields::TAGGED, 0))]),
        "ip" => maybe_qualified(tokens, network(Network::Ipv4)),
        "ip6" => maybe_qualified(tokens, network(Network::Ipv6)),
        "tcp" => maybe_qualified(tokens, ip_protocol(protocol::TCP)),
        "udp" => maybe_qualified(tokens, ip_protocol(protocol::UDP)),
        "udplite" => maybe_qualified(tokens, ip_protocol(protocol::UDP_LITE)),
        "sctp" => maybe_qualified(tokens, ip_protocol(protocol::SCTP)),
        "dccp" => maybe_qualified(tokens, ip_protocol(protocol::DCCP)),
        "icmp" => icmp(tokens, network(Network::Ipv4).with(fields::PROTOCOL, 1)),
        "icmp6" => icmp(tokens, network(Network::Ipv6).with(fields::PROTOCOL, 58)),
        "arp" => arp(tokens),
        "aoe" => aoe(tokens),
        "first-fragment" => one(ip().with(fields::FIRST_FRAGMENT, 1)),
        "later-fragment" => one(layer(Layer::LaterFragment)),
        "unintelligible" => one(layer(Layer::Unintelligible)),
        "digest" => digest(tokens),
        "not" | "!" => Err(FilterError::new(
            qualified.column,
            "filters cannot say `not`",
            "give what is to be left out a rule of its own with a higher priority",
        )),
        word => Err(FilterError::new(
            qualified.column,
            format!("`{word}` begins no condition"),
            PRIMITIVES,
        )),
    }
}

fn network(network: Network) -> Pattern {
    Pattern::ANY.with(fields::NETWORK, network as u64)
}

/// IPv4 or IPv6.
fn ip() -> Pattern {
    Pattern::ANY.with(fields::NETWORK_IP, Network::Ipv4 as u64 >> 1)
}

fn layer(layer: Layer) -> Pattern {
    Pattern::ANY.with(fields::LAYER, layer as u64)
}

fn ip_protocol(protocol: u8) -> Pattern {
    ip().with(fields::PROTOCOL, u64::from(protocol))
}

/// A protocol, and what may be said of it in the same breath: `udp dst port 53`.
fn maybe_qualified(tokens: &mut Tokens<'_>, pattern: Pattern) -> Terms {
    let term = Term::inside(pattern);
    match tokens.peek() {
        Some("src" | "dst" | "host" | "net" | "port" | "portrange" | "proto") => {
            qualified(tokens, term)
        }
        _ => Ok(vec![term]),
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Source,
    Destination,
    Either,
}

impl Direction {
    fn take(tokens: &mut Tokens<'_>) -> Self {
        if tokens.accept("src") {
            Self::Source
        } else if tokens.accept("dst") {
            Self::Destination
        } else {
            Self::Either
        }
    }

    /// What `source` and `destination` say, as far as the direction wants it.
    fn terms(self, term: &Term, source: Option<Clause>, destination: Option<Clause>) -> Vec<Term> {
        let (source, destination) = match self {
            Self::Source => (source, None),
            Self::Destination => (None, destination),
            Self::Either => (source, destination),
        };
        let clauses = source.into_iter().chain(destination);
        clauses.filter_map(|clause| term.and(&Term::inside(clause))).collect()
    }
}

/// `src host 10.0.0.1`, `port 53`, `proto 89` and the like, of packets that are `term`'s.
fn qualified(tokens: &mut Tokens<'_>, term: Term) -> Terms {
    let column = tokens.column();
    let direction = Direction::take(tokens);
    let word = tokens.peek();
    let terms = match word {
        Some("proto") => {
            tokens.accept("proto");
            let number = number(tokens, "protocol", 255)?;
            term.and(&Term::inside(ip().with(fields::PROTOCOL, number))).into_iter().collect()
        }
        Some("port") => {
            tokens.accept("port");
            let port = number(tokens, "port", u64::from(u16::MAX))?;
            ports(direction, &term, Ports::one(port as u16))
        }
        Some("portrange") => {
            tokens.accept("portrange");
            ports(direction, &term, port_range(tokens)?)
        }
        Some("host") => {
            tokens.accept("host");
            addresses(direction, &term, Prefix::host(tokens.take("an IP address")?)?)
        }
        _ => {
            tokens.accept("net");
            addresses(direction, &term, Prefix::net(tokens.take("an IP address or prefix")?)?)
        }
    };
    if terms.is_empty() {
        let problem = "this cannot be said of the protocol before it";
        return Err(FilterError::new(column, problem, "remove one of them"));
    }
    Ok(terms)
}

fn ports(direction: Direction, term: &Term, ports: Ports) -> Vec<Term> {
    direction.terms(term, Clause::ANY.from_ports(ports), Clause::ANY.to_ports(ports))
}

fn addresses(direction: Direction, term: &Term, prefix: Prefix) -> Vec<Term> {
    let [source, destination] = match prefix.address {
        IpAddr::V4(address) => [fields::IPV4_SOURCE, fields::IPV4_DESTINATION].map(|field| {
            network(Network::Ipv4).with_prefix(field, u64::from(u32::from(address)), prefix.bits)
        }),
        IpAddr::V6(address) => [
            (fields::IPV6_SOURCE_HIGH, fields::IPV6_SOURCE_LOW),
            (fields::IPV6_DESTINATION_HIGH, fields::IPV6_DESTINATION_LOW),
        ]
        .map(|(high, low)| {
            let number = u128::from(address);
            network(Network::Ipv6)
                .with_prefix(high, (number >> 64) as u64, prefix.bits.min(64))
                .with_prefix(low, number as u64, prefix.bits.saturating_sub(64))
        }),
    };
    direction.terms(term, Some(source.into()), Some(destination.into()))
}

fn ether(tokens: &mut Tokens<'_>) -> Terms {
    let direction = Direction::take(tokens);
    if let Direction::Either = direction {
        match tokens.peek() {
            Some("proto") => {
                tokens.accept("proto");
                return Ok(vec![Term::inside(ether_proto(ether_type(tokens)?))]);
            }
            Some("multicast") => {
                tokens.accept("multicast");
                return Ok(vec![Term::outside(Pattern::ANY.with(fields::MAC_GROUP, 1))]);
            }
            Some("broadcast") => {
                tokens.accept("broadcast");
                let all = fields::MAC_DESTINATION.max();
                return Ok(vec![Term::outside(Pattern::ANY.with(fields::MAC_DESTINATION, all))]);
            }
            _ => {}
        }
    }
    tokens.accept("host");
    let address = mac(tokens.take("src, dst, host, proto, multicast or broadcast")?)?;
    let at = |field| Term::outside(Pattern::ANY.with(field, address));
    Ok(match direction {
        Direction::Source => vec![at(fields::MAC_SOURCE)],
        Direction::Destination => vec![at(fields::MAC_DESTINATION)],
        Direction::Either => vec![at(fields::MAC_SOURCE), at(fields::MAC_DESTINATION)],
    })
}

/// An ether type that is not looked into is followed by nothing that another filter could ask for:
/// said so, it overlaps with no filter about addresses or ports.
pub(in crate::filter) fn ether_proto(number: u64) -> Pattern {
    let pattern = Pattern::ANY.with(fields::ETHER_TYPE, number);
    match number {
        IPV4 | ARP | IPV6 | AOE | VLAN => pattern,
        _ => pattern.with(fields::NETWORK, Network::Other as u64),
    }
}

const IPV4: u64 = 0x0800;
const ARP: u64 = 0x0806;
const VLAN: u64 = 0x8100;
const IPV6: u64 = 0x86dd;
const AOE: u64 = 0x88a2;

fn ether_type(tokens: &mut Tokens<'_>) -> Result<u64, FilterError> {
    let named = match tokens.peek() {
        Some("ip") => IPV4,
        Some("arp") => ARP,
        Some("ip6") => IPV6,
        Some("aoe") => AOE,
        _ => return number(tokens, "ether type", 0xffff),
    };
    tokens.take("an ether type")?;
    Ok(named)
}

fn vlan(tokens: &mut Tokens<'_>) -> Terms {
    if tokens.accept("optional") {
        return Ok(vec![Term::tag(Clause::ANY)]);
    }
    let mut pattern = Pattern::ANY.with(fields::TAGGED, 1);
    if tokens.peek().is_some_and(|word| word.starts_with(|first: char| first.is_ascii_digit())) {
        pattern = pattern.with(fields::VLAN_ID, number(tokens, "VLAN id", 4095)?);
    }
    if tokens.accept("priority") {
        pattern = pattern.with(fields::VLAN_PRIORITY, number(tokens, "VLAN priority", 7)?);
    }
    Ok(vec![Term::tag(pattern)])
}

fn icmp(tokens: &mut Tokens<'_>, pattern: Pattern) -> Terms {
    let known = pattern.with(fields::LAYER, Layer::Icmp as u64);
    let mut said = pattern;
    if tokens.accept("type") {
        said = known.with(fields::ICMP_TYPE, number(tokens, "ICMP type", 255)?);
    }
    if tokens.accept("code") {
        let code = number(tokens, "ICMP code", 255)?;
        said = said.with(fields::LAYER, Layer::Icmp as u64).with(fields::ICMP_CODE, code);
    }
    if said == pattern { maybe_qualified(tokens, pattern) } else { Ok(vec![Term::inside(said)]) }
}

fn arp(tokens: &mut Tokens<'_>) -> Terms {
    let mut pattern = network(Network::Arp);
    if tokens.accept("op") {
        let operation = if tokens.accept("request") {
            1
        } else if tokens.accept("reply") {
            2
        } else {
            number(tokens, "ARP operation", u64::from(u16::MAX))?
        };
        pattern = pattern.with(fields::ARP_OPERATION, operation);
    }
    for (word, field) in [("sender", fields::ARP_SENDER), ("target", fields::ARP_TARGET)] {
        if tokens.accept(word) {
            pattern = arp_address(tokens, pattern, field)?;
        }
    }
    Ok(vec![Term::inside(pattern)])
}

fn arp_address(
    tokens: &mut Tokens<'_>,
    pattern: Pattern,
    field: Field,
) -> Result<Pattern, FilterError> {
    let column = tokens.column();
    match Prefix::net(tokens.take("an IPv4 address")?)? {
        Prefix { address: IpAddr::V4(address), bits } => {
            Ok(pattern.with_prefix(field, u64::from(u32::from(address)), bits))
        }
        _ => Err(FilterError::new(column, "ARP has IPv4 addresses only", "write 10.0.0.1")),
    }
}

fn aoe(tokens: &mut Tokens<'_>) -> Terms {
    let mut pattern = network(Network::Aoe);
    let parts = [
        ("major", fields::AOE_MAJOR),
        ("minor", fields::AOE_MINOR),
        ("command", fields::AOE_COMMAND),
        ("tag", fields::AOE_TAG),
    ];
    for (word, field) in parts {
        if tokens.accept(word) {
            pattern = pattern.with(field, number(tokens, word, field.max())?);
        }
    }
    Ok(vec![Term::inside(pattern)])
}

/// `digest[0] & 0xff = 0x12`: raw mask and value.
fn digest(tokens: &mut Tokens<'_>) -> Terms {
    tokens.expect("[")?;
    let word = number(tokens, "word of the digest", PATTERN_WORDS as u64 - 1)? as usize;
    tokens.expect("]")?;
    tokens.expect("&")?;
    let mask = number(tokens, "mask", u64::MAX)?;
    tokens.expect("=")?;
    let token = tokens.take("the value of the bits under the mask")?;
    let Some(value) = parse(token.text).filter(|value| value & !mask == 0) else {
        let problem = format!("`{}` is no value under this mask", token.text);
        return Err(FilterError::new(
            token.column,
            problem,
            "write a number within the mask's bits",
        ));
    };
    let (mut masks, mut values) = ([0; PATTERN_WORDS], [0; PATTERN_WORDS]);
    (masks[word], values[word]) = (mask, value);
    let clause = Clause::ANY.intersection(&Pattern::new(masks, values).into());
    Ok(clause.into_iter().map(Term::outside).collect())
}
