//! A clause: a pattern, and ranges of ports that are no prefix. What a filter without "or" says.

use crate::{Pattern, Ports};
use clearway_wire::digest::{Digest, Field, Layer, fields};

/// A pattern and two ranges of ports. A range that is a prefix (one port is, all ports are) is in
/// the pattern, so that equal clauses are equal; the range is [`Ports::ANY`] then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Clause {
    pattern: Pattern,
    source_ports: Ports,
    destination_ports: Ports,
}

impl Clause {
    /// Matches everything.
    pub const ANY: Self =
        Self { pattern: Pattern::ANY, source_ports: Ports::ANY, destination_ports: Ports::ANY };

    /// What `pattern` matches.
    #[must_use]
    pub const fn new(pattern: Pattern) -> Self {
        Self { pattern, source_ports: Ports::ANY, destination_ports: Ports::ANY }
    }

    /// The part of the clause that is a mask and a value.
    #[inline]
    #[must_use]
    pub const fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The range that the source port has to be in besides.
    #[inline]
    #[must_use]
    pub const fn source_ports(&self) -> Ports {
        self.source_ports
    }

    /// The range that the destination port has to be in besides.
    #[inline]
    #[must_use]
    pub const fn destination_ports(&self) -> Ports {
        self.destination_ports
    }

    /// This clause, for packets with ports whose source port is one of `ports`. `None` if no port
    /// is left.
    #[must_use]
    pub fn from_ports(self, ports: Ports) -> Option<Self> {
        self.with_ports(fields::SOURCE_PORT, ports)
    }

    /// This clause, for packets with ports whose destination port is one of `ports`. `None` if no
    /// port is left.
    #[must_use]
    pub fn to_ports(self, ports: Ports) -> Option<Self> {
        self.with_ports(fields::DESTINATION_PORT, ports)
    }

    /// This clause, with nothing said about `field`, which is not one of ports.
    #[must_use]
    pub fn without(self, field: Field) -> Self {
        Self { pattern: self.pattern.without(field), ..self }
    }

    fn with_ports(self, field: Field, ports: Ports) -> Option<Self> {
        let layer = Pattern::ANY.with(fields::LAYER, Layer::Ports as u64);
        let mut clause = Self { pattern: self.pattern.intersection(&layer)?, ..self };
        let range = clause.range_mut(field);
        *range = range.intersection(ports)?;
        clause.canonical()
    }

    fn range_mut(&mut self, field: Field) -> &mut Ports {
        if field == fields::SOURCE_PORT {
            &mut self.source_ports
        } else {
            &mut self.destination_ports
        }
    }

    /// Puts each port where it belongs: into the pattern if it is a prefix, else into the range.
    fn canonical(mut self) -> Option<Self> {
        for field in [fields::SOURCE_PORT, fields::DESTINATION_PORT] {
            self = self.with_prefix_of_range(field)?;
            let (mask, value) = self.pattern.field(field);
            let range = *self.range_mut(field);
            if !range.meet(mask as u16, value as u16) {
                return None;
            }
            if let Some(prefix) = Ports::of_prefix(mask as u16, value as u16) {
                *self.range_mut(field) = range.intersection(prefix)?;
                self.pattern = self.pattern.without(field);
                self = self.with_prefix_of_range(field)?;
            }
        }
        Some(self)
    }

    /// Moves the range into the pattern if it is a prefix.
    fn with_prefix_of_range(mut self, field: Field) -> Option<Self> {
        if let Some(prefix) = self.range_mut(field).as_prefix() {
            self.pattern = self.pattern.intersection(&prefix_of(field, prefix))?;
            *self.range_mut(field) = Ports::ANY;
        }
        Some(self)
    }

    /// True if the digest's packet is one of those that the clause is about.
    #[inline]
    #[must_use]
    pub fn matches(&self, digest: &Digest) -> bool {
        self.pattern.matches(digest)
            && self.source_ports.contain(digest.field(fields::SOURCE_PORT) as u16)
            && self.destination_ports.contain(digest.field(fields::DESTINATION_PORT) as u16)
    }

    /// What both are about, if there is anything.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let both = Self {
            pattern: self.pattern.intersection(&other.pattern)?,
            source_ports: self.source_ports.intersection(other.source_ports)?,
            destination_ports: self.destination_ports.intersection(other.destination_ports)?,
        };
        both.canonical()
    }

    /// True if some packet is one of both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.pattern.overlaps(&other.pattern) && self.intersection(other).is_some()
    }

    /// True if every packet of `other` is one of this clause. May be false where only a union of
    /// cases shows it, for raw masks of ports.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.intersection(other).as_ref() == Some(other)
    }

    /// This clause with what follows from it: what has no tag has no VLAN id.
    #[must_use]
    pub fn in_full(&self) -> Self {
        let no_vlan = Self::new(Pattern::ANY.with(fields::VLAN_ID, 0));
        match self.pattern.field(fields::TAGGED) {
            (1, 0) => self.intersection(&no_vlan).unwrap_or(*self),
            _ => *self,
        }
    }

    /// The clause as patterns alone: the product of the prefixes of both ranges.
    pub fn patterns(&self) -> impl Iterator<Item = Pattern> {
        let (pattern, destinations) = (self.pattern, self.destination_ports);
        self.source_ports
            .prefixes()
            .filter_map(move |prefix| pattern.intersection(&prefix_of(fields::SOURCE_PORT, prefix)))
            .flat_map(move |pattern| {
                destinations.prefixes().filter_map(move |prefix| {
                    pattern.intersection(&prefix_of(fields::DESTINATION_PORT, prefix))
                })
            })
    }
}

/// The pattern of ports that begin with a prefix.
fn prefix_of(field: Field, (mask, value): (u16, u16)) -> Pattern {
    Pattern::ANY.with_prefix(field, u64::from(value), mask.count_ones())
}

impl From<Pattern> for Clause {
    fn from(pattern: Pattern) -> Self {
        Self::new(pattern)
    }
}

#[cfg(test)]
mod tests;
