//! Room that queues have needed once, and give back.

use std::collections::VecDeque;

/// Room for so many elements stays, however few there are.
const SPARE_MAX: usize = 256;

/// Something was taken out of a queue. Of more room than a little it has no more than four times
/// what is in it: else each of many would have what it has ever needed, of what all are to share.
#[inline]
pub fn give_back<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > SPARE_MAX && queue.len() <= queue.capacity() / 4 {
        shrink(queue);
    }
}

/// As much room is left as what is in it needs twice, so that this is seldom.
#[cold]
fn shrink<T>(queue: &mut VecDeque<T>) {
    queue.shrink_to(SPARE_MAX.max(2 * queue.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_was_needed_once_is_given_back() {
        let mut queue: VecDeque<usize> = (0..10_000).collect();
        for number in 0..10_000 {
            assert_eq!(queue.pop_front(), Some(number));
            give_back(&mut queue);
            assert!(queue.capacity() <= SPARE_MAX.max(4 * queue.len()));
        }
        assert!(queue.capacity() > 0, "a little stays");
    }
}
