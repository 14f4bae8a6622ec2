//! Slots in the order in which they came, each at most once, from whose middle any can leave. All
//! of it in constant time: a list linked by slot numbers. It allocates only when a slot comes of a
//! number that no other had.

/// No slot.
const NONE: u32 = u32::MAX;

/// A queue of slots, with something to remember for each.
#[derive(Debug)]
pub(crate) struct SlotQueue<T = ()> {
    /// By slot.
    nodes: Vec<Option<Node<T>>>,
    first: u32,
    last: u32,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    previous: u32,
    next: u32,
    content: T,
}

impl<T> Default for SlotQueue<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), first: NONE, last: NONE, count: 0 }
    }
}

impl<T: Copy> SlotQueue<T> {
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.node(slot).is_some()
    }

    /// Who came first.
    pub(crate) fn first(&self) -> Option<(u32, T)> {
        Some((self.first, self.node(self.first)?.content))
    }

    /// The last from now on, unless it is there already.
    pub(crate) fn push(&mut self, slot: u32, content: T) {
        if self.contains(slot) {
            return;
        }
        let index = slot as usize;
        if self.nodes.len() <= index {
            self.nodes.resize_with(index + 1, || None);
        }
        self.nodes[index] = Some(Node { previous: self.last, next: NONE, content });
        match self.node_mut(self.last) {
            Some(last) => last.next = slot,
            None => self.first = slot,
        }
        self.last = slot;
        self.count += 1;
    }

    /// Changes what is remembered of who came first.
    pub(crate) fn change_first(&mut self, change: impl FnOnce(T) -> T) {
        if let Some(first) = self.node_mut(self.first) {
            first.content = change(first.content);
        }
    }

    /// Who came first is the last from now on.
    pub(crate) fn rotate(&mut self) {
        if let Some((slot, content)) = self.first() {
            self.remove(slot);
            self.push(slot, content);
        }
    }

    /// Takes it out, wherever it stands. False if it was not there.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let Some(node) = self.nodes.get_mut(slot as usize).and_then(Option::take) else {
            return false;
        };
        match self.node_mut(node.previous) {
            Some(previous) => previous.next = node.next,
            None => self.first = node.next,
        }
        match self.node_mut(node.next) {
            Some(next) => next.previous = node.previous,
            None => self.last = node.previous,
        }
        self.count -= 1;
        true
    }

    /// All with what is remembered of each, the first first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.slots().filter_map(|slot| Some((slot, self.node(slot)?.content)))
    }

    /// All, the first first.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        let next = |slot: &u32| self.node(*slot).map(|node| node.next);
        std::iter::successors(Some(self.first), next).filter(|slot| *slot != NONE)
    }

    fn node(&self, slot: u32) -> Option<&Node<T>> {
        self.nodes.get(slot as usize)?.as_ref()
    }

    fn node_mut(&mut self, slot: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(slot as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::Random;
    use std::collections::VecDeque;

    #[test]
    fn agrees_with_a_list() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let (mut queue, mut oracle) = (SlotQueue::default(), VecDeque::new());
            for content in 0..200 {
                let slot = random.below(16) as u32;
                let place = oracle.iter().position(|(other, _)| *other == slot);
                assert_eq!(queue.contains(slot), place.is_some(), "seed {seed}");
                if random.chance(1, 2) {
                    queue.push(slot, content);
                    if place.is_none() {
                        oracle.push_back((slot, content));
                    }
                } else {
                    let gone = place.and_then(|place| oracle.remove(place));
                    assert_eq!(queue.remove(slot), gone.is_some(), "seed {seed}");
                }
                if random.chance(1, 4) {
                    queue.rotate();
                    oracle.rotate_left(1.min(oracle.len()));
                    queue.change_first(|content| content + 1000);
                    oracle.front_mut().into_iter().for_each(|(_, content)| *content += 1000);
                }
                assert_eq!(queue.first(), oracle.front().copied(), "seed {seed}");
                assert_eq!(queue.count(), oracle.len(), "seed {seed}");
                assert_eq!(queue.is_empty(), oracle.is_empty());
            }
            while let Some((slot, content)) = queue.first() {
                assert_eq!(oracle.pop_front(), Some((slot, content)), "seed {seed}");
                queue.remove(slot);
            }
            assert!(oracle.is_empty());
        }
    }
}
