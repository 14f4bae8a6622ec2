//! Where connections are: by key, and by addresses and ports.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher24;

/// Names an entry of a table. One that is gone is never taken for another one that has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) const fn saved(self) -> (u32, u32) {
        (self.index, self.generation)
    }

    pub(crate) const fn restored((index, generation): (u32, u32)) -> Self {
        Self { index, generation }
    }

    /// Place and generation as one number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key of [`Key::bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// How often the place has been used before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The number of the place in the table: small, and reused.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

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

/// Entries at fixed places; those that are free are used again, the last freed first.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    max: u32,
    /// The generation of a place that has never been used.
    first: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new(max: u32) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), max, first: 0 }
    }

    /// One with these entries at their places. `None` if there are two at one, or too many. Keys
    /// of places that are free then have `first`, or what is higher, as their generation: what was
    /// gone stays gone.
    pub(crate) fn restore(max: u32, first: u32, saved: Vec<(Key, T)>) -> Option<Self> {
        let last = saved.iter().map(|(key, _)| key.index).max();
        let next = saved.iter().map(|(key, _)| key.generation.wrapping_add(1)).max();
        let first = next.map_or(first, |next| next.max(first));
        if last.is_some_and(|last| last >= max) {
            return None;
        }
        let places = last.map_or(0, |last| last + 1);
        let mut slab = Self::new(max);
        slab.first = first;
        slab.entries.resize_with(places as usize, || (first, None));
        for (key, entry) in saved {
            let place = &mut slab.entries[key.index as usize];
            if place.1.is_some() {
                return None;
            }
            *place = (key.generation, Some(entry));
        }
        let is_free = |index: &u32| slab.entries[*index as usize].1.is_none();
        slab.free = (0..places).filter(is_free).collect();
        Some(slab)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The lowest generation that no key has had, or will have before this has been asked again.
    pub(crate) fn next_generation(&self) -> u32 {
        let used = |(generation, place): &(u32, Option<T>)| {
            generation.wrapping_add(u32::from(place.is_some()))
        };
        self.entries.iter().map(used).max().unwrap_or(0).max(self.first)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// How many more there may be.
    pub(crate) fn room(&self) -> usize {
        (self.max as usize).saturating_sub(self.len())
    }

    /// Puts `entry` where there is room.
    pub(crate) fn insert(&mut self, entry: T) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((self.first, None));
            self.entries.len() as u32 - 1
        });
        let (generation, place) = &mut self.entries[index as usize];
        *place = Some(entry);
        Some(Key { index, generation: *generation })
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, place) = self.entries.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let entry = place.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, place) = self.entries.get(key.index as usize)?;
        place.as_ref().filter(|_| *generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, place) = self.entries.get_mut(key.index as usize)?;
        place.as_mut().filter(|_| *generation == key.generation)
    }

    /// The key of what is at `index` now.
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let (generation, place) = self.entries.get(index as usize)?;
        place.is_some().then_some(Key { index, generation: *generation })
    }

    /// All that there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, (generation, place))| {
            let key = Key { index: index as u32, generation: *generation };
            Some((key, place.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Hashing, Slab, Tuple};
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

    #[test]
    fn entries_come_back_to_their_places() {
        let mut slab = Slab::new(4);
        let keys = [1, 2, 3].map(|entry| slab.insert(entry).unwrap());
        slab.remove(keys[1]);
        let saved: Vec<_> = slab.iter().map(|(key, entry)| (key, *entry)).collect();
        let mut restored = Slab::restore(4, 0, saved.clone()).unwrap();
        assert_eq!(keys.map(|key| restored.get(key).copied()), [Some(1), None, Some(3)]);
        let again = restored.insert(4).unwrap();
        assert_eq!((again.index(), restored.get(keys[1])), (keys[1].index(), None));
        assert!(Slab::restore(2, 0, saved.clone()).is_none(), "there is no third place");
        assert!(Slab::restore(4, 0, [saved.clone(), saved].concat()).is_none(), "two at one");
    }

    #[test]
    fn the_key_of_what_was_gone_before_is_nobodys_afterwards() {
        let mut slab = Slab::new(4);
        let gone = slab.insert(1).unwrap();
        slab.remove(gone);
        let mut restored = Slab::restore(4, slab.next_generation(), Vec::new()).unwrap();
        assert_eq!(restored.next_generation(), slab.next_generation());
        let new = restored.insert(2).unwrap();
        assert_eq!((new.index(), restored.get(gone)), (gone.index(), None));
    }

    #[test]
    fn what_is_gone_is_not_taken_for_what_has_its_place() {
        let mut slab = Slab::new(2);
        let (one, two) = (slab.insert(1).unwrap(), slab.insert(2).unwrap());
        assert_eq!(slab.insert(3), None);
        assert_eq!(slab.remove(one), Some(1));
        let three = slab.insert(3).unwrap();
        assert_eq!(three.index(), one.index());
        assert_eq!((slab.get(one), slab.get(three), slab.get(two)), (None, Some(&3), Some(&2)));
        assert_eq!(slab.remove(one), None);
        assert_eq!(slab.iter().count(), 2);
    }
}
