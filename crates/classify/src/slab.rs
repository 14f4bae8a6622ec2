//! Numbered places that are used again.

use std::collections::BTreeSet;

/// Memory is given back when fewer than one place in so many is used.
const SPARSE: usize = 4;

/// Values with small numbers; the number of one that is gone is given to another, the lowest first.
#[derive(Debug)]
pub(crate) struct Slab<V> {
    places: Vec<Option<V>>,
    free: BTreeSet<u32>,
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self { places: Vec::new(), free: BTreeSet::new() }
    }
}

impl<V> Slab<V> {
    pub(crate) fn insert(&mut self, value: V) -> u32 {
        let index = self.free.pop_first().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("limits are far below 2^32")
        });
        self.places[index as usize] = Some(value);
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<V> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.free.insert(index);
        self.places.truncate(without_free_end(&mut self.free, self.places.len()));
        if self.places.len() < self.places.capacity() / SPARSE {
            self.places.shrink_to(self.places.len() * 2);
        }
        Some(value)
    }

    #[inline]
    pub(crate) fn find(&self, index: u32) -> Option<&V> {
        self.places.get(index as usize)?.as_ref()
    }

    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut V> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(index, value)| Some((index as u32, value.as_ref()?)))
    }
}

/// How many of `len` places are left when the `free` ones at the end go. They go all at once: there
/// may be many, and an engine waits.
pub(crate) fn without_free_end(free: &mut BTreeSet<u32>, len: usize) -> usize {
    let pairs = free.iter().rev().zip((0..len as u32).rev());
    let left = len - pairs.take_while(|(free, last)| *free == last).count();
    if left < len {
        drop(free.split_off(&(left as u32)));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn low_places_are_used_first_and_memory_is_given_back() {
        let mut slab = Slab::default();
        for number in 0..1000 {
            assert_eq!(slab.insert(number), number);
        }
        assert_eq!((slab.remove(7), slab.remove(7), slab.remove(3)), (Some(7), None, Some(3)));
        assert_eq!((slab.insert(0), slab.insert(0), slab.insert(0)), (3, 7, 1000));
        (1..=1000).for_each(|index| _ = slab.remove(index));
        assert_eq!((slab.len(), slab.iter().count(), slab.find(1000)), (1, 1, None));
        assert!(slab.places.capacity() < 16 && slab.free.is_empty());
        assert_eq!((slab.insert(5), slab.len()), (1, 2));
    }
}
