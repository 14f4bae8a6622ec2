//! Sequence numbers in 64 bits, called *positions*: the low 32 are what stands in a segment. They
//! do not wrap, so they are compared as numbers are.

/// The position of a connection's first sequence number. One turn of 32 bits above zero, so that no
/// position near it is negative.
pub(crate) const fn first(sequence: u32) -> u64 {
    (1 << 32) + sequence as u64
}

/// The position of `sequence` that is nearest to `near`.
#[inline]
pub(crate) const fn position(near: u64, sequence: u32) -> u64 {
    let distance = sequence.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(distance as i64)
}

#[cfg(test)]
mod tests {
    use super::{first, position};

    #[test]
    fn a_position_is_the_nearest_with_these_32_bits() {
        let near = first(u32::MAX);
        assert_eq!(position(near, 0), near + 1);
        assert_eq!(position(near + 1, u32::MAX), near);
        assert_eq!(position(near, 0x7fff_fffe), near + 0x7fff_ffff);
        assert_eq!(position(near, 0x7fff_ffff), near - (1 << 31));
        // Nothing that a peer may say is below zero.
        assert_eq!(position(first(0), 1 << 31), 1 << 31);
    }
}
