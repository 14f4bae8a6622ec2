//! Explicit congestion notification: two bits of every IP header (RFC 3168, section 5).

/// What the two bits of an IP packet say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Its sender would not understand a mark.
    #[default]
    NotCapable,
    /// ECT(1): its sender understands marks, and there is none. RFC 9331 has it mean that the
    /// sender wants to have many.
    CapableOne,
    /// ECT(0): its sender understands marks, and there is none.
    Capable,
    /// "Congestion experienced".
    Marked,
}

impl Ecn {
    /// ECT(0), as the bits of an IPv4 type of service or an IPv6 traffic class.
    pub const CAPABLE_BITS: u8 = 0b10;
    /// Where the two bits stand in the type of service, or traffic class.
    pub const BITS: u8 = 0b11;

    /// The two bits as they stand at the low end of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::CapableOne,
            0b10 => Self::Capable,
            _ => Self::Marked,
        }
    }
}
