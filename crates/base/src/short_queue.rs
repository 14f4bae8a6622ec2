//! A queue that is short most of the time.

use core::ops::Range;
use std::collections::VecDeque;

use crate::give_back;

/// A queue that has its first element in itself: one of no more than that touches no other memory.
/// What stands behind it is a [`VecDeque`], of whose memory no more than a little stays when the
/// queue has been empty.
#[derive(Clone, Debug)]
pub struct ShortQueue<T> {
    /// There is one if there are any.
    first: Option<T>,
    #[expect(clippy::box_collection, reason = "few have one: a pointer, not four words")]
    rest: Option<Box<VecDeque<T>>>,
}

impl<T> Default for ShortQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ShortQueue<T> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: None, rest: None }
    }

    /// The number of elements.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match &self.first {
            Some(_) => 1 + self.rest.as_ref().map_or(0, |rest| rest.len()),
            None => 0,
        }
    }

    /// True if there is none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first one.
    #[must_use]
    #[inline]
    pub const fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// The first one, to be changed.
    #[inline]
    pub const fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    /// The last one.
    #[must_use]
    #[inline]
    pub fn back(&self) -> Option<&T> {
        match self.rest.as_ref().and_then(|rest| rest.back()) {
            Some(last) => Some(last),
            None => self.first.as_ref(),
        }
    }

    /// The last one, to be changed.
    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        match self.rest.as_mut().and_then(|rest| rest.back_mut()) {
            Some(last) => Some(last),
            None => self.first.as_mut(),
        }
    }

    /// The one with so many before it.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match index {
            0 => self.first.as_ref(),
            _ => self.rest.as_ref()?.get(index - 1),
        }
    }

    /// The one with so many before it, to be changed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match index {
            0 => self.first.as_mut(),
            _ => self.rest.as_mut()?.get_mut(index - 1),
        }
    }

    /// Appends one.
    #[inline]
    pub fn push_back(&mut self, element: T) {
        if self.first.is_none() {
            self.first = Some(element);
        } else {
            self.rest.get_or_insert_default().push_back(element);
        }
    }

    /// Removes the first one.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let next = self.rest.as_mut().and_then(|rest| next_of(rest));
        core::mem::replace(&mut self.first, next)
    }

    /// Removes the first one where nobody wants it, which is less work.
    #[inline]
    pub fn remove_front(&mut self) {
        self.first = match &mut self.rest {
            Some(rest) => next_of(rest),
            None => None,
        };
    }

    /// Removes the one with so many before it.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        match index {
            0 => self.pop_front(),
            _ => self.rest.as_mut()?.remove(index - 1),
        }
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }

    /// All, in order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.range_mut(0..self.len())
    }

    /// Those with indexes in `range`, in order, to be changed.
    ///
    /// # Panics
    /// If `range` begins before an end beyond that of the queue.
    #[inline]
    pub fn range_mut(&mut self, range: Range<usize>) -> impl Iterator<Item = &mut T> {
        let behind = range.start.saturating_sub(1)..range.end.saturating_sub(1);
        let first = self.first.as_mut().filter(|_| range.contains(&0)).into_iter();
        let rest = self.rest.as_mut().filter(|_| !behind.is_empty());
        first.chain(rest.into_iter().flat_map(move |rest| rest.range_mut(behind.clone())))
    }

    /// How many at the beginning fulfil `is_before`, which no later one does.
    pub fn partition_point(&self, mut is_before: impl FnMut(&T) -> bool) -> usize {
        match &self.first {
            Some(first) if is_before(first) => {
                1 + self.rest.as_ref().map_or(0, |rest| rest.partition_point(is_before))
            }
            _ => 0,
        }
    }
}

/// Takes what stands first behind the one that goes. Memory is looked at only when there is none.
#[inline]
fn next_of<T>(rest: &mut VecDeque<T>) -> Option<T> {
    let next = rest.pop_front();
    if next.is_none() {
        give_back(rest);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::ShortQueue;
    use crate::Random;
    use std::collections::VecDeque;

    #[test]
    fn agrees_with_a_queue() {
        let mut random = Random::new(1);
        let (mut queue, mut oracle) = (ShortQueue::new(), VecDeque::new());
        for number in 0..10_000_u64 {
            if random.chance(1, 2) {
                queue.push_back(number);
                oracle.push_back(number);
            } else if random.chance(1, 2) {
                queue.remove_front();
                oracle.pop_front();
            } else if random.chance(1, 2) {
                assert_eq!(queue.pop_front(), oracle.pop_front());
            } else {
                let index = random.below(oracle.len() as u64 + 1) as usize;
                assert_eq!(queue.remove(index), oracle.remove(index));
            }
            let length = oracle.len();
            assert_eq!((queue.len(), queue.is_empty()), (length, oracle.is_empty()));
            assert_eq!(queue.front(), oracle.front());
            assert_eq!(queue.back(), oracle.back());
            assert_eq!(queue.back_mut(), oracle.back_mut());
            assert!(queue.iter().eq(&oracle));
            assert!(queue.iter_mut().eq(&mut oracle));
            let start = random.below(length as u64 + 1) as usize;
            let end = start + random.below((length - start) as u64 + 1) as usize;
            assert!(queue.range_mut(start..end).eq(oracle.range_mut(start..end)));
            assert_eq!(queue.get(start), oracle.get(start));
            assert_eq!(queue.get_mut(start), oracle.get_mut(start));
            let least = number.saturating_sub(random.below(20));
            let is_before = |element: &u64| *element < least;
            assert_eq!(queue.partition_point(is_before), oracle.partition_point(is_before));
        }
    }

    #[test]
    fn an_empty_queue_has_given_back_what_many_have_needed() {
        let takes: [fn(&mut ShortQueue<u64>); 2] =
            [|queue| queue.remove_front(), |queue| _ = queue.pop_front()];
        for take in takes {
            let mut queue = ShortQueue::new();
            (0..10_000).for_each(|number| queue.push_back(number));
            while !queue.is_empty() {
                take(&mut queue);
            }
            assert!(queue.rest.is_some_and(|rest| rest.capacity() < 1000));
        }
    }
}
