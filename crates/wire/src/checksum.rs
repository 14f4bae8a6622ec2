//! The Internet checksum: RFC 1071, and the pseudo headers that UDP and ICMPv6 add to it.

use core::net::{Ipv4Addr, Ipv6Addr};

/// A sum of 16-bit words, not yet folded. Kept in native byte order: RFC 1071, section 2 (B): "The
/// sum of 16-bit integers can be computed in either byte order."
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    #[inline]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`. Every piece but the last has to have an even length; a last odd byte counts
    /// as if a zero followed.
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Self {
        // Two 32-bit halves, each summed into 64 bits: no carry to catch for any slice that fits
        // into memory, and a loop that the compiler turns into vector instructions. What the low
        // halves add up to is what is left of the whole words without the high ones: to take it out
        // of each word would be one instruction more. A chain of additions with carry would have
        // half as many, and take twice as long.
        let (eights, rest) = bytes.as_chunks::<8>();
        let (mut whole, mut high) = (0u64, 0u64);
        for eight in eights {
            let word = u64::from_ne_bytes(*eight);
            whole = whole.wrapping_add(word);
            high += word >> 32;
        }
        let low = whole.wrapping_sub(high << 32);
        Self(self.0 + low + high).add_fewer_than_eight(rest)
    }

    #[inline]
    fn add_fewer_than_eight(self, mut bytes: &[u8]) -> Self {
        let mut sum = self.0;
        if let Some((four, rest)) = bytes.split_first_chunk() {
            sum += u64::from(u32::from_ne_bytes(*four));
            bytes = rest;
        }
        if let Some((two, rest)) = bytes.split_first_chunk() {
            sum += u64::from(u16::from_ne_bytes(*two));
            bytes = rest;
        }
        if let [last] = bytes {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        Self(sum)
    }

    /// Adds one word.
    #[inline]
    pub const fn with_u16(self, word: u16) -> Self {
        Self(self.0 + word.to_be() as u64)
    }

    /// The checksum: what belongs into the checksum field if that was summed as zero.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !u16::from_be(self.folded())
    }

    /// The checksum as UDP sends it. RFC 768: "If the computed checksum is zero, it is transmitted
    /// as all ones".
    #[inline]
    #[must_use]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// True if what was summed, its checksum field included, is intact.
    #[inline]
    #[must_use]
    pub const fn is_right(self) -> bool {
        self.folded() == 0xffff
    }

    #[inline]
    const fn folded(self) -> u16 {
        let mut sum = (self.0 & 0xffff_ffff) + (self.0 >> 32); // 33 bits
        sum = (sum & 0xffff) + (sum >> 16); // 18 bits
        sum = (sum & 0xffff) + (sum >> 16); // 17 bits
        sum = (sum & 0xffff) + (sum >> 16);
        sum as u16
    }
}

/// The checksum of a packet one of whose words changed from `old` to `new`. RFC 1624, section 3:
/// "HC' = ~(~HC + ~m + m')".
#[inline]
#[must_use]
pub const fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::new().with_u16(!checksum).with_u16(!old).with_u16(new).checksum()
}

/// The pseudo header of RFC 768. `length` is that of the UDP header and payload.
#[inline]
pub fn pseudo_header_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Sum {
    Sum::new()
        .with(&source.octets())
        .with(&destination.octets())
        .with_u16(u16::from(protocol))
        .with_u16(length)
}

/// The pseudo header of RFC 8200, section 8.1. `length` is that of the upper layer's packet.
#[inline]
pub fn pseudo_header_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: u32) -> Sum {
    Sum::new()
        .with(&source.octets())
        .with(&destination.octets())
        .with_u16(u16::from(protocol))
        .with(&length.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{Sum, updated};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// RFC 1071, section 4.1, word by word.
    fn oracle(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// The example of RFC 1071, section 3: the sum of these is ddf2.
    #[test]
    fn agrees_with_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().with(&bytes).checksum(), !0xddf2);
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_way(bytes in vec(any::<u8>(), 0..200), cut in 0..100usize) {
            prop_assert_eq!(Sum::new().with(&bytes).checksum(), oracle(&bytes));
            let cut = (cut * 2).min(bytes.len() & !1);
            let pieces = Sum::new().with(&bytes[..cut]).with(&bytes[cut..]);
            prop_assert_eq!(pieces.checksum(), oracle(&bytes));
        }

        #[test]
        fn updates_like_a_new_sum(mut bytes in vec(any::<u8>(), 4..40), new in any::<u16>()) {
            // All bytes zero before and after is the one case where the two zeros of one's
            // complement differ; packets are never all zero.
            bytes[0] = 1;
            let before = oracle(&bytes);
            let old = u16::from_be_bytes([bytes[2], bytes[3]]);
            bytes[2..4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(updated(before, old, new), oracle(&bytes));
        }

        #[test]
        fn its_own_checksum_makes_it_right(mut bytes in vec(any::<u8>(), 2..40)) {
            bytes[0] = 0;
            bytes[1] = 0;
            let checksum = Sum::new().with(&bytes).checksum();
            bytes[..2].copy_from_slice(&checksum.to_be_bytes());
            // All zeros is the only input whose sum is zero and not minus zero.
            prop_assert!(Sum::new().with(&bytes).is_right());
        }
    }
}
