//! ClassBench rule files.

use crate::error::Error;
use clearway_classify::{Clause, Pattern, Ports, Rank, Rule, RuleId};
use clearway_wire::digest::{Network, PATTERN_WORDS, fields};
use std::net::Ipv4Addr;
use std::path::Path;

/// A line of a rule file; the flags at its end are ignored, as `aclbench` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) source: (u32, u32),
    pub(super) destination: (u32, u32),
    pub(super) source_ports: (u16, u16),
    pub(super) destination_ports: (u16, u16),
    /// Value and mask.
    pub(super) protocol: (u8, u8),
}

pub(super) fn read(path: &Path) -> Result<Vec<Line>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| {
        Error::Options(format!("cannot read the rules in {}: {source}", path.display()))
    })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines: Result<Vec<_>, _> = lines
        .map(|(number, line)| {
            Line::parse(line).map_err(|problem| {
                let (path, number) = (path.display(), number + 1);
                Error::Options(format!("{path}:{number}: {problem}; a rule is written {FORM}"))
            })
        })
        .collect();
    let lines = lines?;
    if lines.is_empty() {
        return Err(Error::Options(format!(
            "{}: no rules; a rule is written {FORM}",
            path.display()
        )));
    }
    Ok(lines)
}

const FORM: &str = "@10.0.0.0/8 192.168.0.0/16 0 : 65535 80 : 80 0x06/0xFF 0x0000/0x0000";

impl Line {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().strip_prefix('@').ok_or("it does not begin with @")?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[
            source,
            destination,
            from_low,
            ":",
            from_high,
            to_low,
            ":",
            to_high,
            protocol,
            ref rest @ ..,
        ] = &words[..]
        else {
            return Err("it has not two prefixes, two ranges of ports and a protocol".into());
        };
        if let [_, more, ..] = rest {
            return Err(format!("`{more}` is too much"));
        }
        Ok(Self {
            source: prefix(source)?,
            destination: prefix(destination)?,
            source_ports: range(from_low, from_high)?,
            destination_ports: range(to_low, to_high)?,
            protocol: masked(protocol)?,
        })
    }

    /// The rule that is the `at`th in its file.
    pub(super) fn rule(&self, at: usize) -> Rule {
        let rank = Rank::new(0, at as u64);
        Rule { id: RuleId(at as u32), rank, clause: self.clause() }
    }

    fn clause(&self) -> Clause {
        let (protocol, mask) = self.protocol;
        let (mut masks, mut values) = ([0; PATTERN_WORDS], [0; PATTERN_WORDS]);
        masks[0] = fields::PROTOCOL.place(u64::from(mask));
        values[0] = fields::PROTOCOL.place(u64::from(protocol));
        let pattern = Pattern::new(masks, values)
            .with(fields::NETWORK, Network::Ipv4 as u64)
            .with_prefix(fields::IPV4_SOURCE, u64::from(self.source.0), self.source.1)
            .with_prefix(
                fields::IPV4_DESTINATION,
                u64::from(self.destination.0),
                self.destination.1,
            );
        let ports = |(low, high)| Ports::new(low, high).filter(|ports| *ports != Ports::ANY);
        let mut clause = Clause::new(pattern);
        if let Some(ports) = ports(self.source_ports) {
            clause = clause.from_ports(ports).expect("nothing is said of ports yet");
        }
        if let Some(ports) = ports(self.destination_ports) {
            clause = clause.to_ports(ports).expect("nothing is said of this port yet");
        }
        clause
    }
}

/// As in a rule file.
impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = |(address, bits)| format!("{}/{bits}", Ipv4Addr::from_bits(address));
        let (from, to) = (self.source_ports, self.destination_ports);
        write!(f, "@{}\t{}\t", prefix(self.source), prefix(self.destination))?;
        write!(f, "{} : {}\t{} : {}\t", from.0, from.1, to.0, to.1)?;
        write!(f, "{:#04x}/{:#04X}\t0x0000/0x0000", self.protocol.0, self.protocol.1)
    }
}

fn prefix(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/').and_then(|(address, bits)| {
        Some((
            address.parse::<Ipv4Addr>().ok()?,
            bits.parse::<u32>().ok().filter(|&bits| bits <= 32)?,
        ))
    });
    let (address, bits) = parts.ok_or_else(|| format!("`{text}` is no prefix"))?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Ok((u32::from(address) & mask, bits))
}

fn range(low: &str, high: &str) -> Result<(u16, u16), String> {
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(format!("`{low} : {high}` is no range of ports")),
    }
}

fn masked(text: &str) -> Result<(u8, u8), String> {
    let byte = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let parts = text.split_once('/').and_then(|(value, mask)| Some((byte(value)?, byte(mask)?)));
    let (value, mask) = parts.ok_or_else(|| format!("`{text}` is no protocol with its mask"))?;
    Ok((value & mask, mask))
}
