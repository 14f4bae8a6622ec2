//! Rule sets that nobody has seen: made at random, in the shapes of ClassBench's twelve seeds and
//! in shapes meant to hurt.
//!
//! A shape says how long prefixes are, of which classes the two ports are, and how closely
//! addresses lie together: the properties by which Taylor and Turner ("ClassBench: A Packet
//! Classification Benchmark", 2007, sections III and IV) describe real filter sets. The figures
//! here are round ones, those of `acl1`, `fw1` and `ipc1` after the rule files of these names. It
//! is no generator of ClassBench's sets: shapes are what counts.

use super::rules::Line;
use crate::error::Error;
use clearway_base::Random;
use std::collections::HashSet;
use std::fmt::Write as _;

mod shapes;

/// What the ports of a rule are: ClassBench's five classes.
#[derive(Clone, Copy, Debug)]
enum Class {
    Any,
    /// From 1024.
    High,
    /// Up to 1023.
    Low,
    Range,
    Exact,
}

/// What the rules of a set have in common. Weights are relative to each other.
#[derive(Debug)]
struct Shape {
    name: &'static str,
    /// The least and the greatest length of a prefix, of the source and of the destination; a
    /// weight.
    prefixes: &'static [([u8; 2], [u8; 2], u32)],
    ports: &'static [(Class, Class, u32)],
    /// 0 is any.
    protocols: &'static [(u8, u32)],
    /// How many different ports are asked for, low ones most.
    exact: u64,
    /// How many different ranges; 0 if every rule has its own.
    ranges: u64,
    /// Of 100 addresses with the same bits so far, how many go on with the same bit: in the upper
    /// half, and in the lower.
    skew: [u64; 2],
}

/// What is wanted may be more than there can be of a shape: so many are tried for each.
const TRIES: usize = 20;

/// As many different rules of a shape as wanted, or as there are, roughly from the narrow to the
/// wide.
pub(super) fn rules(name: &str, count: usize, seed: u64) -> Result<Vec<Line>, Error> {
    let shape = shapes::ALL.iter().find(|shape| shape.name == name).ok_or_else(|| {
        let names = shapes::ALL.map(|shape| shape.name);
        Error::Options(format!("there is no shape {name}; there are {}", names.join(", ")))
    })?;
    let mut generator = Generator { shape, random: Random::new(seed), seed };
    let (mut known, mut lines) = (HashSet::new(), Vec::new());
    for _ in 0..count * TRIES {
        if lines.len() == count {
            break;
        }
        let line = generator.line();
        if known.insert(line) {
            lines.push(line);
        }
    }
    lines.sort_by_cached_key(breadth);
    Ok(lines)
}

/// A rule file.
pub(super) fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// How much a rule leaves open, in bits.
fn breadth(line: &Line) -> u32 {
    let ports = |(low, high): (u16, u16)| (u32::from(high - low) + 1).ilog2();
    64 - line.source.1 - line.destination.1
        + ports(line.source_ports)
        + ports(line.destination_ports)
        + line.protocol.1.count_zeros()
}

struct Generator {
    shape: &'static Shape,
    random: Random,
    seed: u64,
}

impl Generator {
    fn line(&mut self) -> Line {
        let (source, destination, _) = *self.drawn(self.shape.prefixes, |of| of.2);
        let (from, to, _) = *self.drawn(self.shape.ports, |of| of.2);
        let (protocol, _) = *self.drawn(self.shape.protocols, |of| of.1);
        Line {
            source: self.prefix(source, 1),
            destination: self.prefix(destination, 2),
            source_ports: self.ports(from),
            destination_ports: self.ports(to),
            protocol: (protocol, if protocol == 0 { 0 } else { u8::MAX }),
        }
    }

    fn drawn<T>(&mut self, from: &'static [T], weight: impl Fn(&T) -> u32) -> &'static T {
        let all = from.iter().map(|of| u64::from(weight(of))).sum();
        let mut at = self.random.below(all);
        let drawn = from.iter().find(|of| {
            let is_here = at < u64::from(weight(of));
            at = at.wrapping_sub(u64::from(weight(of)));
            is_here
        });
        drawn.expect("a number below the sum of all weights is of one of them")
    }

    /// A walk from the root of a tree of addresses, in which one branch of each fork is the
    /// greater.
    fn prefix(&mut self, [least, greatest]: [u8; 2], tree: u64) -> (u32, u32) {
        let bits = u64::from(least) + self.random.below(u64::from(greatest - least) + 1);
        let mut address = 1;
        for depth in 0..bits {
            let greater = hash(self.seed, tree << 33 | address) & 1;
            let skew = self.shape.skew[usize::from(depth >= 16)];
            address = address << 1 | (greater ^ u64::from(!self.random.chance(skew, 100)));
        }
        ((address << (32 - bits)) as u32, bits as u32)
    }

    fn ports(&mut self, class: Class) -> (u16, u16) {
        match class {
            Class::Any => (0, u16::MAX),
            Class::High => (1024, u16::MAX),
            Class::Low => (0, 1023),
            Class::Exact => {
                let port = hash(self.seed, 7 + self.few(self.shape.exact)) as u16;
                let port = if port.is_multiple_of(2) { port % 2048 } else { port };
                (port, port)
            }
            Class::Range => {
                let drawn = match self.shape.ranges {
                    0 => self.random.next_u64(),
                    ranges => hash(self.seed, self.few(ranges) << 32),
                };
                range(drawn)
            }
        }
    }

    /// A number below `bound`, of which one half are in the first tenth.
    fn few(&mut self, bound: u64) -> u64 {
        let bound = if self.random.chance(1, 2) { bound.div_ceil(10) } else { bound };
        self.random.below(bound)
    }
}

/// A range of ports, of any breadth between two and all.
fn range(drawn: u64) -> (u16, u16) {
    let span = ((drawn as u16) >> (drawn >> 16 & 15)).max(1);
    let first = (drawn >> 32) as u16 % (u16::MAX - span).max(1);
    (first, first + span)
}

fn hash(seed: u64, of: u64) -> u64 {
    Random::new(Random::new(seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64()).next_u64()
}
