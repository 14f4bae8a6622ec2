//! Words that several askers change: is there one order of all that explains what each was told,
//! and the order in time? Both ways are exact, and need no search.
//!
//! Each fetch-and-add adds one to two bits of its own, so that a word says which have been done,
//! and which twice. Each compare-and-swap puts a number there that nobody else does, so that what
//! was done is a chain.

use std::collections::BTreeMap;

use clearway_base::Time;

/// How many fetch-and-adds a word takes.
pub(crate) const ADDS_PER_WORD: usize = 32;
/// The lower bit of each pair.
const ONCE: u64 = u64::MAX / 3;

/// What is known of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It may have been done, or will be.
    Open,
    /// It was done, and has found this.
    Done(u64),
    /// It was not done, and never will be.
    Undone,
}

#[derive(Clone, Copy, Debug)]
struct Add {
    /// What the word had in it at least when this was asked.
    floor: u64,
    fate: Fate,
}

/// A word to which askers add.
#[derive(Debug, Default)]
pub(crate) struct AddWord {
    adds: Vec<Add>,
    /// What is in it at least.
    known: u64,
}

/// What the operation of this slot adds.
const fn addend(slot: usize) -> u64 {
    1 << (2 * slot)
}

/// True if `value` says that the operation has been done.
pub(crate) const fn has(value: u64, slot: usize) -> bool {
    value >> (2 * slot) & 3 != 0
}

impl AddWord {
    /// Somebody asks: the operation's slot, and what it adds; `None` if the word is full.
    pub(crate) fn begin(&mut self) -> Option<(usize, u64)> {
        let slot = self.adds.len();
        (slot < ADDS_PER_WORD).then(|| {
            self.adds.push(Add { floor: self.known, fate: Fate::Open });
            (slot, addend(slot))
        })
    }

    /// It has been done, and has found this.
    pub(crate) fn done(&mut self, slot: usize, found: u64) -> Result<(), String> {
        self.check(found)?;
        let floor = self.adds[slot].floor;
        if has(found, slot) {
            return Err(format!("slot {slot} finds itself in {found:x}"));
        }
        if found & floor != floor {
            return Err(format!("slot {slot} finds {found:x}, where {floor:x} had been before"));
        }
        for (other, add) in self.adds.iter().enumerate() {
            let Fate::Done(theirs) = add.fate else { continue };
            let (after, after_theirs) = (found | addend(slot), theirs | addend(other));
            if theirs & after != after && found & after_theirs != after_theirs {
                return Err(format!(
                    "slot {slot} finds {found:x}, slot {other} {theirs:x}: in no order"
                ));
            }
        }
        self.adds[slot].fate = Fate::Done(found);
        self.known |= found | addend(slot);
        Ok(())
    }

    /// It is said not to have been done.
    pub(crate) fn undone(&mut self, slot: usize) -> Result<(), String> {
        self.adds[slot].fate = Fate::Undone;
        self.check(self.known)
    }

    /// What the owner sees.
    pub(crate) fn look(&mut self, value: u64) -> Result<(), String> {
        self.check(value)?;
        if value & self.known != self.known {
            return Err(format!("there is {value:x}, and {:x} had been done", self.known));
        }
        self.known = value;
        Ok(())
    }

    fn check(&self, value: u64) -> Result<(), String> {
        let of = |may: fn(&Add) -> bool| {
            let slots = self.adds.iter().enumerate().filter(|(_, add)| may(add));
            slots.fold(0, |all, (slot, _)| all | addend(slot))
        };
        if value & !ONCE != 0 {
            return Err(format!("an add has been done more than once: {value:x}"));
        }
        if value & !of(|add| add.fate != Fate::Undone) != 0 {
            return Err(format!("an add has been done that nobody asked for or failed: {value:x}"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Swap {
    /// `None` for somebody who only looked.
    wants: Option<(u64, u64)>,
    asked: Time,
    told: Time,
    fate: Fate,
}

/// A word that askers exchange. It begins as 0.
#[derive(Debug, Default)]
pub(crate) struct SwapWord {
    swaps: Vec<Swap>,
    /// What was found last: a good thing to expect.
    pub(crate) last: u64,
}

impl SwapWord {
    /// Somebody asks for `replacement`, which nobody else does.
    pub(crate) fn begin(&mut self, now: Time, expected: u64, replacement: u64) -> usize {
        let wants = Some((expected, replacement));
        self.swaps.push(Swap { wants, asked: now, told: Time::MAX, fate: Fate::Open });
        self.swaps.len() - 1
    }

    /// It has been carried out, and has found this.
    pub(crate) fn done(&mut self, index: usize, now: Time, found: u64) {
        let swap = &mut self.swaps[index];
        (swap.told, swap.fate) = (now, Fate::Done(found));
        self.last = match swap.wants {
            Some((expected, replacement)) if expected == found => replacement,
            _ => found,
        };
    }

    pub(crate) fn undone(&mut self, index: usize) {
        self.swaps[index].fate = Fate::Undone;
    }

    /// What the owner sees.
    pub(crate) fn look(&mut self, now: Time, value: u64) {
        self.swaps.push(Swap { wants: None, asked: now, told: now, fate: Fate::Done(value) });
        self.last = value;
    }

    /// All that can be said of the word is said.
    pub(crate) fn check(&self) -> Result<(), String> {
        let places = self.chain()?;
        let place = |value: u64| {
            let place = places.get(&value).copied();
            place.ok_or_else(|| format!("{value:x} was found, which nobody put there"))
        };
        let mut told = Vec::new();
        for swap in &self.swaps {
            let Fate::Done(found) = swap.fate else { continue };
            let before = place(found)?;
            let is_done = swap.wants.is_some_and(|(expected, _)| expected == found);
            told.push((swap.told, before + usize::from(is_done), swap.asked, before));
        }
        let mut asked = told.clone();
        told.sort_unstable();
        asked.sort_unstable_by_key(|(_, _, asked, _)| *asked);
        let (mut floor, mut earlier) = (0, told.iter().peekable());
        for (_, _, asked, before) in asked {
            while let Some((_, after, ..)) = earlier.next_if(|(told, ..)| *told < asked) {
                floor = floor.max(*after);
            }
            if before < floor {
                return Err(format!("what was exchanged before {asked:?} was found after that"));
            }
        }
        Ok(())
    }

    /// Each value that was there, and at which place in their order.
    fn chain(&self) -> Result<BTreeMap<u64, usize>, String> {
        let by_replacement: BTreeMap<u64, &Swap> = (self.swaps.iter())
            .filter_map(|swap| swap.wants.map(|(_, replacement)| (replacement, swap)))
            .collect();
        let mut after: BTreeMap<u64, u64> = BTreeMap::new();
        let seen = self.swaps.iter().filter_map(|swap| match (swap.fate, swap.wants) {
            (Fate::Done(found), Some((expected, own))) if found == expected => Some(own),
            (Fate::Done(found), _) => Some(found),
            _ => None,
        });
        let mut seen: Vec<u64> = seen.collect();
        while let Some(value) = seen.pop() {
            let Some(swap) = by_replacement.get(&value) else { continue };
            let (expected, _) = swap.wants.unwrap_or_default();
            let may_be = match swap.fate {
                Fate::Done(found) => found == expected,
                Fate::Open => true,
                Fate::Undone => false,
            };
            match after.insert(expected, value) {
                _ if !may_be => return Err(format!("{value:x} is there, and was not exchanged")),
                Some(other) if other != value => {
                    return Err(format!("{expected:x} was exchanged for {value:x} and {other:x}"));
                }
                Some(_) => {}
                None => seen.push(expected),
            }
        }
        let mut places = BTreeMap::new();
        let mut value = Some(0);
        while let Some(at) = value {
            places.insert(at, places.len());
            value = after.get(&at).copied();
        }
        if places.len() != after.len() + 1 {
            return Err(format!("exchanges in no order: {after:x?}"));
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn adds_have_one_order_and_are_done_once() {
        let word = || {
            let mut word = AddWord::default();
            (0..3).for_each(|slot| assert_eq!(word.begin(), Some((slot, 1 << (2 * slot)))));
            word
        };
        let mut sound = word();
        sound.done(1, 0).unwrap();
        sound.done(0, 0b100).unwrap();
        sound.look(0b1_0101).unwrap();
        sound.done(2, 0b101).unwrap();
        assert!(sound.look(0b101).is_err(), "what was done is gone");
        let mut twice = word();
        assert!(twice.done(0, 0b1000).is_err(), "twice");
        assert!(twice.look(0b1_0000_0000).is_err(), "nobody's");
        let mut same = word();
        same.done(0, 0).unwrap();
        assert!(same.done(1, 0).is_err(), "both first");
        let mut late = word();
        late.done(0, 0).unwrap();
        let (slot, _) = late.begin().unwrap();
        assert!(late.done(slot, 0b100).is_err(), "before what had been done before it was asked");
        let mut failed = word();
        failed.undone(2).unwrap();
        assert!(failed.look(0b1_0000).is_err(), "failed, and done");
        let mut full = AddWord::default();
        assert_eq!((0..40).filter_map(|_| full.begin()).count(), ADDS_PER_WORD);
    }

    #[test]
    fn swaps_are_a_chain_in_the_order_of_time() {
        // Asked, told, expected, replacement, found.
        let check = |swaps: &[(u64, u64, u64, u64, Option<u64>)]| {
            let mut word = SwapWord::default();
            for (asked, told, expected, replacement, found) in swaps {
                let index = word.begin(at(*asked), *expected, *replacement);
                if let Some(found) = found {
                    word.done(index, at(*told), *found);
                }
            }
            word.check()
        };
        check(&[(1, 2, 0, 7, Some(0)), (3, 4, 7, 8, Some(7)), (5, 6, 7, 9, Some(8))]).unwrap();
        // Nobody was told of 7, but it was found.
        check(&[(1, 0, 0, 7, None), (3, 4, 7, 8, Some(7))]).unwrap();
        check(&[(1, 9, 0, 7, Some(0)), (2, 9, 0, 8, Some(7))]).unwrap();
        assert!(check(&[(1, 9, 0, 7, Some(0)), (2, 9, 0, 8, Some(0))]).is_err(), "both");
        assert!(check(&[(1, 2, 0, 7, Some(0)), (3, 4, 1, 8, Some(0))]).is_err(), "old");
        assert!(check(&[(1, 2, 0, 7, Some(5))]).is_err(), "nobody's");
        assert!(check(&[(1, 9, 5, 7, Some(0)), (2, 9, 1, 8, Some(7))]).is_err(), "not exchanged");
        let mut undone = SwapWord::default();
        let index = undone.begin(at(1), 0, 7);
        undone.undone(index);
        undone.check().unwrap();
        undone.look(at(3), 7);
        assert!(undone.check().is_err(), "failed, and done");
    }
}
