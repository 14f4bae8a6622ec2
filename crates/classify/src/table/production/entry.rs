//! A rule as the production table keeps it.

use crate::{Clause, Pattern, Ports, Rule};
use clearway_wire::digest::{Digest, PATTERN_WORDS, fields};

/// A mask over all words that patterns can ask for.
pub(super) type Mask = [u64; PATTERN_WORDS];

/// Words other than 0 and 3, in which the IPv4 five-tuple is.
pub(super) const WIDE_WORDS: [usize; 5] = [1, 2, 4, 5, 6];

/// What a rule asks of words 0 and 3, which for most rules is all. 56 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) rank: u64,
    mask_0: u64,
    value_0: u64,
    mask_3: u64,
    value_3: u64,
    source_first: u16,
    /// The last port less the first.
    source_span: u16,
    destination_first: u16,
    destination_span: u16,
    pub(super) id: u32,
    /// Where in the list of wide parts the rest is; [`Entry::NARROW`] if there is none.
    pub(super) wide: u32,
}

impl Entry {
    pub(super) const NARROW: u32 = u32::MAX;
    /// What stands where nothing is.
    pub(super) const NONE: Self = Self {
        rank: u64::MAX,
        mask_0: 0,
        value_0: 0,
        mask_3: 0,
        value_3: 0,
        source_first: 0,
        source_span: 0,
        destination_first: 0,
        destination_span: 0,
        id: 0,
        wide: Self::NARROW,
    };
    /// What stands where a rule was: it has a bit in its value that it does not ask for. Its rank
    /// ends no search through a list.
    pub(super) const NEVER: Self = Self { rank: 0, value_0: 1, ..Self::NONE };

    /// A rule, whose wide part, if it has one, is at `wide`.
    pub(super) fn new(rule: &Rule, wide: u32) -> Self {
        let (source, destination) = (rule.clause.source_ports(), rule.clause.destination_ports());
        let pattern = with_common_port_bits(&rule.clause);
        Self {
            rank: rule.rank.number(),
            mask_0: pattern.mask()[0],
            value_0: pattern.value()[0],
            mask_3: pattern.mask()[3],
            value_3: pattern.value()[3],
            source_first: source.first(),
            source_span: source.last() - source.first(),
            destination_first: destination.first(),
            destination_span: destination.last() - destination.first(),
            id: rule.id.0,
            wide,
        }
    }

    /// True if words 0 and 3 are as the rule wants them. Without a branch.
    #[inline]
    pub(super) fn matches(&self, word_0: u64, word_3: u64) -> bool {
        let differ = (word_0 & self.mask_0 ^ self.value_0) | (word_3 & self.mask_3 ^ self.value_3);
        let source = ((word_0 >> 48) as u16).wrapping_sub(self.source_first) <= self.source_span;
        let destination =
            ((word_0 >> 32) as u16).wrapping_sub(self.destination_first) <= self.destination_span;
        (differ == 0) & source & destination
    }

    /// True if the rule is about one five-tuple.
    pub(super) fn is_exact(&self) -> bool {
        const TUPLE: u64 =
            fields::SOURCE_PORT.mask() | fields::DESTINATION_PORT.mask() | fields::PROTOCOL.mask();
        self.mask_0 & TUPLE == TUPLE && self.mask_3 == u64::MAX
    }

    /// How many leading bits of the IPv4 addresses the rule asks for, of the source's and of the
    /// destination's.
    pub(super) fn prefixes(&self) -> (u32, u32) {
        let word = self.mask_3;
        (((word >> 32) as u32).leading_ones(), (word as u32).leading_ones())
    }

    #[inline]
    pub(super) fn is_wide(&self) -> bool {
        self.wide != Self::NARROW
    }

    /// True of [`Entry::NEVER`] only.
    pub(super) fn is_never(&self) -> bool {
        self.value_0 & !self.mask_0 != 0
    }

    /// The first and the last port from the source, and to the destination.
    pub(super) fn ports(&self) -> [(u16, u16); 2] {
        [
            (self.source_first, self.source_first + self.source_span),
            (self.destination_first, self.destination_first + self.destination_span),
        ]
    }

    /// What the rule asks for, where the rest of it is `wide`.
    pub(super) fn pattern(&self, wide: &[Wide]) -> Pattern {
        let (mut mask, mut value) = ([0; PATTERN_WORDS], [0; PATTERN_WORDS]);
        (mask[0], mask[3], value[0], value[3]) =
            (self.mask_0, self.mask_3, self.value_0, self.value_3);
        if self.is_wide() {
            let wide = &wide[self.wide as usize];
            for (index, word) in WIDE_WORDS.into_iter().enumerate() {
                (mask[word], value[word]) = (wide.mask[index], wide.value[index]);
            }
        }
        Pattern::new(mask, value)
    }
}

impl Entry {
    /// The bits of a digest on which it depends whether the rule matches: those of the pattern, and
    /// whole ports where there is a range.
    pub(super) fn looks_at(&self, wide: &[Wide]) -> Mask {
        let mut mask = *self.pattern(wide).mask();
        for (field, span) in [
            (fields::SOURCE_PORT, self.source_span),
            (fields::DESTINATION_PORT, self.destination_span),
        ] {
            if span != u16::MAX {
                mask[0] |= field.mask();
            }
        }
        mask
    }
}

/// The pattern, with the bits that all ports of a range have in common: redundant for matching, and
/// something to hash by.
fn with_common_port_bits(clause: &Clause) -> Pattern {
    let mut pattern = *clause.pattern();
    for (field, ports) in [
        (fields::SOURCE_PORT, clause.source_ports()),
        (fields::DESTINATION_PORT, clause.destination_ports()),
    ] {
        if ports == Ports::ANY {
            continue;
        }
        let bits = (ports.first() ^ ports.last()).leading_zeros();
        let common = Pattern::ANY.with_prefix(field, u64::from(ports.first()), bits);
        pattern = pattern.intersection(&common).unwrap_or(pattern);
    }
    pattern
}

/// What a rule asks of the words other than 0 and 3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide {
    mask: [u64; 5],
    value: [u64; 5],
}

impl Wide {
    /// The wide part of a rule, if it has one.
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let pattern = rule.clause.pattern();
        let mask = WIDE_WORDS.map(|word| pattern.mask()[word]);
        let value = WIDE_WORDS.map(|word| pattern.value()[word]);
        (mask != [0; 5]).then_some(Self { mask, value })
    }

    pub(super) fn matches(&self, digest: &Digest) -> bool {
        let words = digest.words();
        let differ =
            |(index, &word): (usize, &usize)| (words[word] ^ self.value[index]) & self.mask[index];
        WIDE_WORDS.iter().enumerate().map(differ).fold(0, |all, word| all | word) == 0
    }
}

/// The hash of two words. A product of 128 bits folded onto itself: every bit of the result depends
/// on all bits of both words, and one multiplication is all it costs.
#[inline]
pub(super) fn hash(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of all words under a mask that says something of words other than 0 and 3.
#[inline]
pub(super) fn hash_wide(words: &[u64], mask: &Mask) -> u64 {
    let first = hash(words[0] & mask[0], words[3] & mask[3]);
    let second = hash(first ^ words[1] & mask[1], words[2] & mask[2]);
    let third = hash(second ^ words[4] & mask[4], words[5] & mask[5]);
    hash(third, words[6] & mask[6])
}

const _: () = assert!(size_of::<Entry>() == 56);
