//! The memories that an app can share, by their numbers: the part of the channel's own, and those
//! that it has added.

use crate::{CHANNEL_MEMORY, MEMORIES_MAX, Shared};

/// See the module. In ascending order of numbers, since no number is used again.
#[derive(Clone, Debug)]
pub(super) struct Memories(Vec<(u64, Shared)>);

impl Memories {
    /// With the channel's own.
    pub(super) fn new(own: Shared) -> Self {
        Self(vec![(CHANNEL_MEMORY, own)])
    }

    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<&Shared> {
        let (_, shared) = self.0.iter().find(|(found, _)| *found == number)?;
        Some(shared)
    }

    pub(super) fn add(&mut self, number: u64, shared: Shared) -> Result<(), Shared> {
        let is_next = self.0.last().is_some_and(|(last, _)| *last < number);
        if !is_next || self.0.len() > MEMORIES_MAX {
            return Err(shared);
        }
        self.0.push((number, shared));
        Ok(())
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Shared> {
        let is_it = |(found, _): &(u64, Shared)| *found == number && number != CHANNEL_MEMORY;
        let at = self.0.iter().position(is_it)?;
        Some(self.0.remove(at).1)
    }

    /// Number and bytes of each that was added.
    pub(super) fn added(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().skip(1).map(|(number, shared)| (*number, shared.length()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Bytes, Mapping};

    fn shared(bytes: usize) -> Shared {
        Shared::new(Bytes::of(&Mapping::heap(bytes), 0, bytes))
    }

    #[test]
    fn no_number_comes_twice_and_the_channels_own_stays() {
        let mut memories = Memories::new(shared(8));
        assert!(memories.add(CHANNEL_MEMORY, shared(16)).is_err());
        assert!(memories.add(7, shared(16)).is_ok() && memories.add(9, shared(24)).is_ok());
        assert!(memories.add(7, shared(16)).is_err() && memories.add(9, shared(16)).is_err());
        assert_eq!(memories.added().collect::<Vec<_>>(), [(7, 16), (9, 24)]);
        let length = |memories: &Memories, number| memories.find(number).map(Shared::length);
        assert_eq!(
            [0, 7, 8, 9].map(|number| length(&memories, number)),
            [Some(8), Some(16), None, Some(24)]
        );
        assert_eq!(memories.remove(7).map(|removed| removed.length()), Some(16));
        assert!(memories.remove(7).is_none() && memories.remove(CHANNEL_MEMORY).is_none());
        assert_eq!([0, 7, 9].map(|number| length(&memories, number)), [Some(8), None, Some(24)]);
        assert!(memories.add(7, shared(16)).is_err(), "a number is not used again");
    }

    #[test]
    fn an_app_has_so_many() {
        let mut memories = Memories::new(shared(8));
        for number in 1..=MEMORIES_MAX as u64 {
            assert!(memories.add(number, shared(8)).is_ok());
        }
        assert!(memories.add(1000, shared(8)).is_err());
        assert!(memories.remove(3).is_some() && memories.add(1000, shared(8)).is_ok());
    }
}
