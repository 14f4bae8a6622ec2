//! Header traces, in the format of `aclbench`, and made as it makes them.

use super::rules::Line;
use crate::error::Error;
use clearway_base::Random;
use clearway_wire::digest::{Digest, fields};
use std::path::Path;

/// Headers per rule, and the seed, that `aclbench` takes if it is told nothing.
pub(super) const PER_RULE: usize = 10;
pub(super) const SEED: u64 = 1;

/// An untagged IPv4 packet with ports, and the rule that matches it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) digest: Digest,
    pub(super) first_match: Option<u32>,
}

/// Five-tuple as numbers.
type Tuple = (u32, u32, u16, u16, u8);

fn digest((source, destination, source_port, port, protocol): Tuple) -> Digest {
    let ports = fields::SOURCE_PORT.place(u64::from(source_port))
        | fields::DESTINATION_PORT.place(u64::from(port));
    let protocol = fields::PROTOCOL.place(u64::from(protocol));
    let kind = fields::NETWORK.place(6) | fields::LAYER.place(1) | 0x0800;
    let addresses = u64::from(source) << 32 | u64::from(destination);
    Digest::from_words([ports | protocol | kind, 0, 0, addresses, 0, 0, 0, 0])
}

pub(super) fn read(path: &Path) -> Result<Vec<Header>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| {
        Error::Options(format!("cannot read the trace in {}: {source}", path.display()))
    })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let headers: Result<Vec<_>, _> = lines
        .map(|(number, line)| {
            parse(line).ok_or_else(|| {
                Error::Options(format!(
                    "{}:{}: this is no header; one is written as source, destination, source port, \
                     destination port, protocol and first match, decimal, with tabs between",
                    path.display(),
                    number + 1
                ))
            })
        })
        .collect();
    let headers = headers?;
    if headers.is_empty() {
        return Err(Error::Options(format!("{}: no headers", path.display())));
    }
    Ok(headers)
}

pub(super) fn parse(line: &str) -> Option<Header> {
    let mut words = line.split_whitespace();
    let tuple = (
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
    );
    let first_match: i64 = words.next()?.parse().ok()?;
    let first_match = match first_match {
        -1 => None,
        number => Some(u32::try_from(number).ok()?),
    };
    words.next().is_none().then(|| Header { digest: digest(tuple), first_match })
}

/// "A point drawn evenly inside a rule that was drawn evenly among all rules": the very headers
/// that `aclbench gen` writes.
pub(super) fn generate(lines: &[Line], per_rule: usize, seed: u64) -> Vec<Header> {
    let mut random = Random::new(seed);
    let rules: Vec<_> = lines.iter().enumerate().map(|(at, line)| line.rule(at)).collect();
    (0..lines.len() * per_rule)
        .map(|_| {
            let digest = digest(point(lines, &mut random));
            let first = rules.iter().position(|rule| rule.clause.matches(&digest));
            Header { digest, first_match: first.map(|at| at as u32) }
        })
        .collect()
}

fn point(lines: &[Line], random: &mut Random) -> Tuple {
    let line = &lines[(random.next_u64() % lines.len() as u64) as usize];
    let mut address = |(address, bits): (u32, u32)| {
        let free = u32::MAX.checked_shr(bits).unwrap_or(0);
        address | (random.next_u64() as u32 & free)
    };
    let (source, destination) = (address(line.source), address(line.destination));
    let mut port =
        |(low, high): (u16, u16)| low + (random.next_u64() % (u64::from(high - low) + 1)) as u16;
    let (source_port, port) = (port(line.source_ports), port(line.destination_ports));
    let (value, mask) = line.protocol;
    let protocol = value | (random.next_u64() as u8 & !mask);
    (source, destination, source_port, port, protocol)
}
