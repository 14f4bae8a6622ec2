//! A pattern: a mask and a value over a digest. "Bitmask-value expressions are sufficiently
//! flexible to represent common pattern types such as exact values for fields and subfields,
//! wildcards (i.e., zeroes in the bitmask) and prefixes" (the paper, section 3.1).

use clearway_wire::digest::{Digest, Field, PATTERN_WORDS};

/// A mask, and the value of the bits under it. Bits of the value outside the mask are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    mask: [u64; PATTERN_WORDS],
    value: [u64; PATTERN_WORDS],
}

impl Pattern {
    /// Matches everything.
    pub const ANY: Self = Self { mask: [0; PATTERN_WORDS], value: [0; PATTERN_WORDS] };

    /// Matches digests whose bits under `mask` are those of `value`; its other bits are ignored.
    #[must_use]
    pub fn new(mask: [u64; PATTERN_WORDS], value: [u64; PATTERN_WORDS]) -> Self {
        Self { mask, value: std::array::from_fn(|word| value[word] & mask[word]) }
    }

    /// The bits that matter.
    #[inline]
    #[must_use]
    pub const fn mask(&self) -> &[u64; PATTERN_WORDS] {
        &self.mask
    }

    /// What they have to be.
    #[inline]
    #[must_use]
    pub const fn value(&self) -> &[u64; PATTERN_WORDS] {
        &self.value
    }

    /// The paper's `D & B = V`.
    #[inline]
    #[must_use]
    pub fn matches(&self, digest: &Digest) -> bool {
        let words = digest.words();
        (0..PATTERN_WORDS).all(|word| words[word] & self.mask[word] == self.value[word])
    }

    /// True if some digest matches both.
    #[inline]
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        (0..PATTERN_WORDS).all(|word| {
            (self.value[word] ^ other.value[word]) & self.mask[word] & other.mask[word] == 0
        })
    }

    /// What both match, if there is anything.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            mask: std::array::from_fn(|word| self.mask[word] | other.mask[word]),
            value: std::array::from_fn(|word| self.value[word] | other.value[word]),
        })
    }

    /// True if whatever matches `other` matches this, too.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        (0..PATTERN_WORDS).all(|word| {
            self.mask[word] & !other.mask[word] == 0
                && other.value[word] & self.mask[word] == self.value[word]
        })
    }

    /// This pattern, with the highest `bits` bits of `field` being those of `value`.
    ///
    /// # Panics
    /// If the field has fewer bits.
    #[must_use]
    pub fn with_prefix(mut self, field: Field, value: u64, bits: u32) -> Self {
        assert!(bits <= field.bits, "{bits} bits of a field of {}", field.bits);
        let ignored = field.max().checked_shr(bits).unwrap_or(0);
        let mask = field.place(field.max() & !ignored);
        self.mask[field.word] |= mask;
        self.value[field.word] &= !mask;
        self.value[field.word] |= field.place(value) & mask;
        self
    }

    /// This pattern, with `field` being `value`.
    #[must_use]
    pub fn with(self, field: Field, value: u64) -> Self {
        self.with_prefix(field, value, field.bits)
    }

    /// This pattern, with nothing said about `field`.
    #[must_use]
    pub fn without(mut self, field: Field) -> Self {
        self.mask[field.word] &= !field.mask();
        self.value[field.word] &= !field.mask();
        self
    }

    /// The bits of `field` that matter, and what they have to be.
    #[must_use]
    pub const fn field(&self, field: Field) -> (u64, u64) {
        (
            self.mask[field.word] >> field.shift & field.max(),
            self.value[field.word] >> field.shift & field.max(),
        )
    }
}
