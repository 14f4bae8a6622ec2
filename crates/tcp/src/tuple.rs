//! The addresses and ports of a connection, and a hash of them that nobody can foresee.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher24;

/// Addresses and ports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tuple {
    local: u128,
    remote: u128,
    ports: u32,
}

/// The words of a [`Tuple`] that is hashed.
const WORDS: usize = 5;

impl Hash for Tuple {
    /// In one piece: see [`TupleHasher`].
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut bytes = [0; 8 * WORDS];
        bytes[..16].copy_from_slice(&self.local.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.remote.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.ports.to_le_bytes());
        state.write(&bytes);
    }
}

impl Tuple {
    #[inline]
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        let ports = u32::from(local.port()) << 16 | u32::from(remote.port());
        Self { local: bits(local.ip()), remote: bits(remote.ip()), ports }
    }

    /// This end and the peer.
    pub(crate) const fn ends(&self) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(address(self.local), (self.ports >> 16) as u16);
        (local, SocketAddr::new(address(self.remote), self.ports as u16))
    }
}

/// The address of [`bits`].
const fn address(bits: u128) -> IpAddr {
    let address = Ipv6Addr::from_bits(bits);
    match address.to_ipv4_mapped() {
        Some(address) => IpAddr::V4(address),
        None => IpAddr::V6(address),
    }
}

/// IPv4 addresses as IPv4-mapped ones, which no packet has (RFC 4038, section 4.2).
#[inline]
pub(crate) const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// True if an address may be one end of a connection. Which addresses are the broadcast ones of a
/// subnet only the IP layer knows.
pub(crate) const fn is_of_one_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !is_broadcast && !address.is_multicast() && !address.is_unspecified()
}

/// Makes hashers of [`Tuple`]s.
#[derive(Clone)]
pub(crate) struct Hashing {
    factors: [u128; WORDS],
    summand: u128,
}

impl Hashing {
    /// One whose numbers follow from `key`.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let half = |number: usize| {
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write_usize(number);
            u128::from(hasher.finish())
        };
        let number = |at: usize| half(2 * at) << 64 | half(2 * at + 1);
        Self { factors: core::array::from_fn(number), summand: number(WORDS) }
    }
}

impl core::fmt::Debug for Hashing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Hashing") // its numbers are secrets
    }
}

impl BuildHasher for Hashing {
    type Hasher = TupleHasher;

    #[inline]
    fn build_hasher(&self) -> TupleHasher {
        TupleHasher { factors: self.factors, sum: self.summand }
    }
}

/// Hashes one [`Tuple`], to the upper half of a sum of its words, each times a secret number of
/// twice their width. Two tuples have the same hash with a probability of 2^-64, whichever they are
/// (D. Lemire, O. Kaser, "Strongly universal string hashing is fast", MULTILINEAR): nobody can
/// choose ports that all fall into one place. Consecutive ports have sums that are equally far
/// apart; the mixing, which is one to one, makes that no pattern of places.
pub(crate) struct TupleHasher {
    factors: [u128; WORDS],
    sum: u128,
}

/// Odd: 2^64 divided by the golden ratio.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for TupleHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        debug_assert!(words.len() == WORDS && rest.is_empty(), "a tuple is one piece");
        for (word, factor) in words.iter().zip(self.factors) {
            let word = u128::from(u64::from_le_bytes(*word));
            self.sum = self.sum.wrapping_add(word.wrapping_mul(factor));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        let sum = (self.sum >> 64) as u64;
        let mixed = (sum ^ sum >> 32).wrapping_mul(MIXER);
        mixed ^ mixed >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::{Hashing, Tuple};
    use core::hash::BuildHasher;
    use std::collections::HashSet;

    /// Each part of a tuple counts, in all bits that a table looks at: the lowest say where, the
    /// highest which of those.
    #[test]
    fn neighbours_have_different_hashes_and_so_has_another_host() {
        let at = |host: u16, port: u16| {
            std::net::SocketAddr::from(([10, 0, (host >> 8) as u8, host as u8], port))
        };
        let tuples = (0..1000).flat_map(|number| {
            let (one, other) = (at(1, 80), at(2, 80));
            [
                Tuple::new(at(number, 81), other),
                Tuple::new(one, at(number, 82)),
                Tuple::new(at(1, 1000 + number), other),
                Tuple::new(one, at(2, 1000 + number)),
            ]
        });
        let tuples: Vec<_> = tuples.collect();
        let [one, other] = [1, 2].map(|key| Hashing::new([key; 16]));
        let distinct = |bits: &dyn Fn(u64) -> u64| {
            let hashes = tuples.iter().map(|tuple| bits(one.hash_one(tuple)));
            hashes.collect::<HashSet<_>>().len()
        };
        // Of 4000 balls in 65,536 bins 3,880 bins have one, give or take 11.
        let is_spread = |count: usize| (3_800..=3_960).contains(&count);
        assert!(is_spread(distinct(&|hash| hash & 0xffff)));
        assert!(is_spread(distinct(&|hash| hash >> 48)));
        assert!(tuples.iter().all(|tuple| one.hash_one(tuple) != other.hash_one(tuple)));
    }
}
