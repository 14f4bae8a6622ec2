//! Where connections are: by key, and by addresses and ports.

use core::hash::{BuildHasher, Hash};
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;

/// Names an entry of a table. One that is gone is never taken for another one that has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// The number of the place in the table: small, and reused.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// Addresses and ports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Tuple {
    local: u128,
    remote: u128,
    ports: u32,
}

impl Tuple {
    #[inline]
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        let ports = u32::from(local.port()) << 16 | u32::from(remote.port());
        Self { local: bits(local.ip()), remote: bits(remote.ip()), ports }
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

/// Keyed, so that nobody can choose ports that all fall into one place.
#[derive(Clone)]
pub(crate) struct Hashing {
    pub(crate) key: [u8; 16],
}

impl core::fmt::Debug for Hashing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Hashing") // the key is a secret
    }
}

impl BuildHasher for Hashing {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.key)
    }
}

/// Entries at fixed places; those that are free are used again, the last freed first.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    max: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new(max: u32) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), max }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max as usize
    }

    /// Puts `entry` where there is room.
    pub(crate) fn insert(&mut self, entry: T) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
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
    use super::Slab;

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
