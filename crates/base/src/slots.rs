//! Values at numbered places, which are used again.

use serde::{Deserialize, Serialize};

use crate::state::{Invalid, ensure};

/// Names a value: its place, and the how manieth of that place it is. No value has the id of one
/// that is gone, and none has zeroes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotId {
    /// The place.
    pub slot: u32,
    /// From 1 on.
    pub generation: u32,
}

impl SlotId {
    /// As one number: the place in its lower half.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The id of [`SlotId::to_bits`].
    #[must_use]
    pub const fn of_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A place as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotState<S> {
    /// Of the value that is here, or comes next.
    pub generation: u32,
    /// What is here.
    pub value: Option<S>,
}

/// The generation of the first value of a place.
const FIRST: u32 = 1;
/// The generation of no value.
const WORN: u32 = u32::MAX;

#[derive(Debug)]
struct Place<T> {
    /// Of the value that is here, or comes next; [`WORN`] if none does.
    generation: u32,
    value: Option<T>,
}

impl<T> Place<T> {
    /// It is used no more: its ids are used up.
    const fn is_worn(&self) -> bool {
        self.generation == WORN
    }
}

/// A bounded table. A value goes to the place that has become free last. Everything but what names
/// all values takes the same time however many there are.
#[derive(Debug)]
pub struct Slots<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    count: u32,
    count_max: u32,
}

impl<T> Slots<T> {
    /// An empty one, for so many values at most.
    #[must_use]
    pub const fn new(count_max: u32) -> Self {
        Self { places: Vec::new(), free: Vec::new(), count: 0, count_max }
    }

    /// How many values there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// How many there may be.
    #[must_use]
    pub const fn count_max(&self) -> u32 {
        self.count_max
    }

    /// How many more there may be.
    #[must_use]
    pub const fn room(&self) -> u32 {
        self.free.len() as u32 + (self.count_max - self.places.len() as u32)
    }

    /// How many places there are, free ones included. Each value is at one below that.
    #[must_use]
    pub const fn places(&self) -> usize {
        self.places.len()
    }

    /// Puts a value where there is room. `None` if there is none.
    pub fn insert(&mut self, value: T) -> Option<SlotId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.places.len() < self.count_max as usize => {
                self.places.push(Place { generation: FIRST, value: None });
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        self.count += 1;
        let place = &mut self.places[slot as usize];
        place.value = Some(value);
        Some(SlotId { slot, generation: place.generation })
    }

    /// Takes out what is in a place.
    pub fn remove_at(&mut self, slot: u32) -> Option<T> {
        let place = self.places.get_mut(slot as usize)?;
        let value = place.value.take()?;
        self.count -= 1;
        place.generation += 1;
        if !place.is_worn() {
            self.free.push(slot);
        }
        Some(value)
    }

    /// Takes out the value of this id, if it is there.
    pub fn remove(&mut self, id: SlotId) -> Option<T> {
        self.get(id)?;
        self.remove_at(id.slot)
    }

    /// The value of this id, if it is there.
    #[inline]
    #[must_use]
    pub fn get(&self, id: SlotId) -> Option<&T> {
        let place = self.places.get(id.slot as usize)?;
        place.value.as_ref().filter(|_| place.generation == id.generation)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let place = self.places.get_mut(id.slot as usize)?;
        place.value.as_mut().filter(|_| place.generation == id.generation)
    }

    /// What is in a place.
    #[inline]
    #[must_use]
    pub fn at(&self, slot: u32) -> Option<&T> {
        self.places.get(slot as usize)?.value.as_ref()
    }

    /// The same, to be changed.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.places.get_mut(slot as usize)?.value.as_mut()
    }

    /// The memory of a place, for fetching it ahead of use.
    #[inline]
    #[must_use]
    pub fn place(&self, slot: u32) -> Option<&(impl Sized + use<T>)> {
        self.places.get(slot as usize)
    }

    /// The id of what is in a place, or of what comes there next.
    #[inline]
    #[must_use]
    pub fn id_at(&self, slot: u32) -> SlotId {
        let place = self.places.get(slot as usize);
        SlotId { slot, generation: place.map_or(FIRST, |place| place.generation) }
    }

    /// All values, by place.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        (0..).zip(&self.places).filter_map(|(slot, place)| {
            Some((SlotId { slot, generation: place.generation }, place.value.as_ref()?))
        })
    }

    /// Whether values, free places and those that are used no more make up all places. What is
    /// wrong, if anything.
    pub fn audit(&self) -> Result<(), String> {
        let (made, free, used) = (self.places.len(), self.free.len(), self.iter().count());
        let worn = self.places.iter().filter(|place| place.is_worn()).count();
        if used + free + worn == made && used == self.count as usize {
            return Ok(());
        }
        let counted = self.count;
        Err(format!("{made} places: {used} used, {counted} counted, {free} free, {worn} worn"))
    }

    /// All places, with each value as `save` writes it: what is needed to go on in another process.
    pub fn save<S>(&self, save: impl Fn(&T) -> S) -> Vec<SlotState<S>> {
        let state = |place: &Place<T>| SlotState {
            generation: place.generation,
            value: place.value.as_ref().map(&save),
        };
        self.places.iter().map(state).collect()
    }

    /// Goes on with what was saved, with each value as `restore` reads it.
    pub fn restore<S>(
        count_max: u32,
        saved: Vec<SlotState<S>>,
        restore: impl Fn(S) -> Result<T, Invalid>,
    ) -> Result<Self, Invalid> {
        ensure(saved.len() <= count_max as usize, "more places than there may be")?;
        let mut slots = Self::new(count_max);
        for (slot, SlotState { generation, value }) in (0..).zip(saved) {
            let place = Place { generation, value: value.map(&restore).transpose()? };
            match &place.value {
                Some(_) => slots.count += 1,
                None if place.is_worn() => {}
                None => slots.free.push(slot),
            }
            let is_used_up = place.is_worn() && place.value.is_some();
            ensure(generation >= FIRST && !is_used_up, "an id that there is not")?;
            slots.places.push(place);
        }
        Ok(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn restored(slots: &Slots<u64>) -> Slots<u64> {
        Slots::restore(slots.count_max(), slots.save(|value| *value), Ok).expect("just saved")
    }

    /// Saved and restored now and then.
    #[test]
    fn no_id_comes_twice_and_each_finds_its_value() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut slots, mut held, mut gone) = (Slots::new(8), Vec::new(), Vec::new());
            for value in 0..500 {
                if random.chance(1, 2) {
                    let id = slots.insert(value);
                    assert_eq!(id.is_some(), held.len() < 8, "seed {seed}");
                    held.extend(id.map(|id| (id, value)));
                } else if !held.is_empty() {
                    let (id, value) = held.swap_remove(random.below(held.len() as u64) as usize);
                    assert_eq!(slots.remove(id), Some(value));
                    gone.push(id);
                }
                if random.chance(1, 20) {
                    slots = restored(&slots);
                }
                assert_eq!(slots.audit(), Ok(()));
                assert_eq!(slots.count() as usize, held.len());
                for (id, value) in &held {
                    assert_eq!((slots.get(*id), slots.at(id.slot)), (Some(value), Some(value)));
                    assert_eq!((slots.id_at(id.slot), SlotId::of_bits(id.to_bits())), (*id, *id));
                    assert!(!gone.contains(id) && id.to_bits() != 0, "seed {seed}");
                }
                assert!(gone.iter().all(|id| slots.get(*id).is_none()));
            }
        }
    }

    #[test]
    fn a_place_whose_ids_are_used_up_is_used_no_more() {
        let state = |generation, value| SlotState { generation, value };
        let saved = vec![state(5, None), state(WORN - 1, Some(7))];
        let mut slots = Slots::restore(3, saved, Ok).expect("sound");
        let last = SlotId { slot: 1, generation: WORN - 1 };
        assert_eq!(slots.remove(last), Some(7));
        for mut slots in [restored(&slots), slots] {
            assert_eq!(slots.audit(), Ok(()));
            let [first, second] = [slots.insert(8), slots.insert(9)].map(Option::unwrap);
            assert_eq!((first.slot, first.generation, second.slot), (0, 5, 2));
            assert_eq!((slots.insert(10), slots.get(last)), (None, None));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let state = |generation, value| SlotState { generation, value };
        for saved in [vec![state(0, None)], vec![state(WORN, Some(1))], vec![state(1, None); 4]] {
            assert!(Slots::<u64>::restore(3, saved.clone(), Ok).is_err(), "{saved:?}");
        }
    }
}
