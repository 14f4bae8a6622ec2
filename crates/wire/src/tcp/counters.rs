//! The option of accurate congestion feedback (RFC 9768, section 3.2.3): how many bytes have come
//! in packets with each of three marks.
//!
//! ```text
//! AccECN0   │ 172 │ length │ ECT(0) │ CE │ ECT(1) │      24 bits each; what is missing of them
//! AccECN1   │ 174 │ length │ ECT(1) │ CE │ ECT(0) │      is missing at the end
//! ```

use crate::Ecn;

/// How many counters there are, and the bytes of one.
const COUNTERS: usize = 3;
const COUNTER_LENGTH: usize = 3;

/// In which order the counters stand: RFC 9768, section 3.2.3, table 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnOrder {
    /// ECT(0), CE, ECT(1).
    #[default]
    Zero,
    /// ECT(1), CE, ECT(0).
    One,
}

/// The counters of the option, as many as it has. The order is the last byte, so that it can tell
/// what else may stand at its place ([`super::Extra`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EcnCounters {
    bytes: [[u8; COUNTER_LENGTH]; COUNTERS],
    count: u8,
    order: EcnOrder,
}

impl EcnOrder {
    /// The kind of the option.
    pub(super) const fn kind(self) -> u8 {
        match self {
            Self::Zero => 172,
            Self::One => 174,
        }
    }

    /// The order of an option of this kind.
    pub(super) const fn of_kind(kind: u8) -> Option<Self> {
        match kind {
            172 => Some(Self::Zero),
            174 => Some(Self::One),
            _ => None,
        }
    }

    const fn marks(self) -> [Ecn; COUNTERS] {
        match self {
            Self::Zero => [Ecn::Capable, Ecn::Marked, Ecn::CapableOne],
            Self::One => [Ecn::CapableOne, Ecn::Marked, Ecn::Capable],
        }
    }
}

impl EcnCounters {
    /// The longest option.
    pub(super) const LENGTH_MAX: usize = 2 + COUNTERS * COUNTER_LENGTH;

    /// The low 24 bits of each of `counters`, three at most, which stand in this order.
    #[must_use]
    pub fn new(order: EcnOrder, counters: &[u32]) -> Self {
        let mut bytes = [[0; COUNTER_LENGTH]; COUNTERS];
        for (place, counter) in bytes.iter_mut().zip(counters) {
            let [_, high @ ..] = counter.to_be_bytes();
            *place = high;
        }
        Self { bytes, count: counters.len().min(COUNTERS) as u8, order }
    }

    /// What stands behind the kind and the length. Section 3.2.3: whole counters count, however
    /// long the option is.
    pub(super) fn parse(order: EcnOrder, body: &[u8]) -> Self {
        let mut bytes = [[0; COUNTER_LENGTH]; COUNTERS];
        let (whole, _) = body.as_chunks::<COUNTER_LENGTH>();
        let count = whole.len().min(COUNTERS);
        bytes[..count].copy_from_slice(&whole[..count]);
        Self { bytes, count: count as u8, order }
    }

    /// Each with the mark that it is of, in the option's order.
    pub fn iter(&self) -> impl Iterator<Item = (Ecn, u32)> + '_ {
        let counters = self.bytes.iter().take(self.count.into());
        self.order
            .marks()
            .into_iter()
            .zip(counters)
            .map(|(mark, &[high, middle, low])| (mark, u32::from_be_bytes([0, high, middle, low])))
    }

    /// The order that they stand in.
    #[must_use]
    pub const fn order(&self) -> EcnOrder {
        self.order
    }

    /// The length of the option.
    pub(super) const fn length(&self) -> usize {
        2 + COUNTER_LENGTH * self.count as usize
    }

    /// The option, and its length.
    pub(super) fn emit(&self) -> ([u8; Self::LENGTH_MAX], usize) {
        let mut option = [0; Self::LENGTH_MAX];
        option[..2].copy_from_slice(&[self.order.kind(), self.length() as u8]);
        option[2..].copy_from_slice(self.bytes.as_flattened());
        (option, self.length())
    }
}
