//! Numbered places that are used again.

/// Values with small numbers; the number of one that is gone is given to another.
#[derive(Debug)]
pub(super) struct Slab<V> {
    places: Vec<Option<V>>,
    free: Vec<u32>,
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<V> Slab<V> {
    pub(super) fn insert(&mut self, value: V) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("limits are far below 2^32")
        });
        self.places[index as usize] = Some(value);
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<V> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    #[inline]
    pub(super) fn find(&self, index: u32) -> Option<&V> {
        self.places.get(index as usize)?.as_ref()
    }

    pub(super) fn find_mut(&mut self, index: u32) -> Option<&mut V> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(index, value)| Some((index as u32, value.as_ref()?)))
    }
}
