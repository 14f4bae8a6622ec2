//! Many connections: each with a rule for its four-tuple, and patterns besides.

use super::measure::{Effort, Packet, timed};
use super::row;
use clearway_base::Random;
use clearway_classify::table::Production;
use clearway_classify::{Clause, Pattern, Ports, Rank, Rule, RuleId, Table};
use clearway_wire::digest::{Digest, PATTERN_WORDS, fields};
use serde::Serialize;

/// Packets in a round. Drawn at random, so that the cache has as much to do as it can have.
const PACKETS: usize = 1 << 20;
const TCP: u64 = 6;
const UDP: u64 = 17;
/// A round figure to compare with: a table that is all in the first cache.
const FEW: usize = 100;

#[derive(Debug, Serialize)]
struct Row {
    connections: usize,
    patterns: usize,
    ns_per_packet: f64,
    ns_per_packet_without_cache: f64,
    ns_per_packet_single: f64,
    memory_bytes: usize,
}

pub(super) fn run(connections: usize, patterns: usize, json: bool, effort: Effort) -> String {
    let rows = [
        measure(FEW.min(connections), 0, effort),
        measure(FEW.min(connections), patterns, effort),
        measure(connections, patterns, effort),
    ];
    if json {
        return serde_json::to_string(&rows).expect("numbers are JSON") + "\n";
    }
    let mut text = String::new();
    let widths = [12, 10, 12, 16, 12, 10];
    let head = ["connections", "patterns", "ns/packet", "without cache", "one by one", "KiB"];
    row(&mut text, &head.map(String::from), &widths);
    for of in rows {
        let cells = [
            of.connections.to_string(),
            of.patterns.to_string(),
            format!("{:.1}", of.ns_per_packet),
            format!("{:.1}", of.ns_per_packet_without_cache),
            format!("{:.1}", of.ns_per_packet_single),
            (of.memory_bytes / 1024).to_string(),
        ];
        row(&mut text, &cells, &widths);
    }
    text
}

fn measure(connections: usize, patterns: usize, effort: Effort) -> Row {
    let packets = packets(connections, patterns);
    let (mut table, mut without) = (Production::new(), Production::without_cache());
    for rule in rules(connections, patterns) {
        table.insert(rule);
        without.insert(rule);
    }
    Row {
        connections,
        patterns,
        ns_per_packet: timed(&mut table, &packets, 32, effort),
        ns_per_packet_without_cache: timed(&mut without, &packets, 32, effort),
        ns_per_packet_single: timed(&mut table, &packets, 1, effort),
        memory_bytes: table.memory_bytes(),
    }
}

/// Connections first, as the more exact; they and the patterns do not overlap.
fn rules(connections: usize, patterns: usize) -> impl Iterator<Item = Rule> {
    let all = (0..connections).map(connection).chain((0..patterns).map(listener));
    all.enumerate().map(|(at, clause)| Rule {
        id: RuleId(at as u32),
        rank: Rank::new(0, at as u64),
        clause,
    })
}

fn ip(protocol: u64) -> Pattern {
    Pattern::ANY
        .with(fields::TAGGED, 0)
        .with(fields::NETWORK, 6)
        .with(fields::LAYER, 1)
        .with(fields::PROTOCOL, protocol)
}

/// A TCP connection to one of a hundred local ports.
fn connection(number: usize) -> Clause {
    let number = number as u64;
    ip(TCP)
        .with(fields::IPV4_SOURCE, 0x0b00_0000 + number / 50)
        .with(fields::SOURCE_PORT, 30_000 + number % 50 * 7)
        .with(fields::IPV4_DESTINATION, 0x0a00_0001)
        .with(fields::DESTINATION_PORT, 8000 + number % 100)
        .into()
}

/// What may listen for UDP: a port, a range, a port for one network.
fn listener(number: usize) -> Clause {
    let (port, address) = (1024 + number as u64 * 4, number as u64);
    match number % 3 {
        0 => ip(UDP).with(fields::DESTINATION_PORT, port % 65536).into(),
        1 => {
            let first = (port % 65536) as u16;
            let ports = Ports::new(first, first.saturating_add(2)).expect("a range");
            Clause::new(ip(UDP).with(fields::IPV4_DESTINATION, 0x0a00_0001))
                .to_ports(ports)
                .expect("nothing is said of ports yet")
        }
        _ => {
            let network = 0x0c00_0000 + (address << 8);
            ip(UDP).with_prefix(fields::IPV4_SOURCE, network, 24).into()
        }
    }
}

/// Nine of ten packets are of connections.
fn packets(connections: usize, patterns: usize) -> Vec<Packet> {
    let mut random = Random::new(3);
    (0..PACKETS)
        .map(|_| {
            let is_connection = patterns == 0 || !random.chance(1, 10);
            let (clause, mask) = if is_connection {
                (connection(random.below(connections as u64) as usize), [0; PATTERN_WORDS])
            } else {
                let clause = listener(random.below(patterns as u64) as usize);
                let free = [0x0f00_0000_0000_0000, 0, 0, 0x0000_00ff_0000_0000, 0, 0, 0];
                (clause, free)
            };
            point(&clause, &mask, &mut random).into()
        })
        .collect()
}

/// A packet of `clause`, whose bits that it does not care for are random under `free`.
fn point(clause: &Clause, free: &[u64; PATTERN_WORDS], random: &mut Random) -> Digest {
    let pattern = clause.pattern();
    let mut words: [u64; 8] = std::array::from_fn(|word| match pattern.value().get(word) {
        Some(value) => value | random.next_u64() & free[word] & !pattern.mask()[word],
        None => 0,
    });
    words[0] |= 0x0800;
    if clause.destination_ports() != Ports::ANY {
        words[0] &= !fields::DESTINATION_PORT.mask();
        words[0] |= fields::DESTINATION_PORT.place(u64::from(clause.destination_ports().first()));
    }
    Digest::from_words(words)
}
