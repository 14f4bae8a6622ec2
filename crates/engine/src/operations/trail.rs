//! Bytes that are kept until they have arrived.

/// So much memory stays, however little of it is in use: a few dozen answers of 4 KiB, which come
/// and go together. Of more than that it has no more than four times what it keeps, or each
/// connection would have what it has ever needed, of what all are to share.
const SPARE_BYTES_MAX: usize = 256 << 10;

/// Bytes that are appended one behind the other, and go in the same order. They stand together:
/// what has gone is cut off when it is half of all, so that each byte is moved once at most.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// Those that are kept, and behind them whatever was there before: to write zeros over that for
    /// each that is appended takes longer than the rest.
    memory: Vec<u8>,
    /// Of `memory`, so many have been appended.
    filled: usize,
    /// Of these, so many have gone.
    gone: usize,
    /// The place of the first of `memory`, as [`Trail::end`] counts.
    start: u64,
}

impl Trail {
    /// The place of what is appended next.
    #[inline]
    pub(super) const fn end(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Appends so many bytes, all of which are to be written.
    #[inline]
    pub(super) fn append(&mut self, count: usize) -> &mut [u8] {
        let (start, end) = (self.filled, self.filled + count);
        if end > self.memory.len() {
            self.memory.resize(end, 0);
        }
        self.filled = end;
        &mut self.memory[start..end]
    }

    /// So many bytes that begin at a place. None if they are not all there.
    #[inline]
    pub(super) fn at(&self, place: u64, count: u32) -> &[u8] {
        let from = place.wrapping_sub(self.start) as usize;
        let kept = &self.memory[..self.filled];
        kept.get(from..).and_then(|bytes| bytes.get(..count as usize)).unwrap_or(&[])
    }

    /// The first so many go.
    #[inline]
    pub(super) fn forget(&mut self, count: usize) {
        self.gone += count;
        if self.gone > self.filled / 2 {
            self.memory.copy_within(self.gone..self.filled, 0);
            self.filled -= self.gone;
            self.start += self.gone as u64;
            self.gone = 0;
            if self.memory.len() > SPARE_BYTES_MAX.max(4 * self.filled) {
                self.give_back();
            }
        }
    }

    /// Gives memory back that it has needed before.
    #[cold]
    fn give_back(&mut self) {
        self.memory.truncate(SPARE_BYTES_MAX.max(2 * self.filled));
        self.memory.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::{SPARE_BYTES_MAX, Trail};

    /// Against what was appended, however much of it has gone.
    #[test]
    fn what_is_kept_stays_where_it_was() {
        let mut trail = Trail::default();
        let (mut kept, mut next) = (std::collections::VecDeque::new(), 0_u8);
        for round in 0..200_usize {
            let (count, place) = (round % 7 + 1, trail.end());
            trail.append(count).iter_mut().for_each(|byte| {
                next = next.wrapping_add(1);
                *byte = next;
            });
            kept.push_back((place, count, next));
            if round % 3 > 0 {
                let (_, count, _) = kept.pop_front().expect("one was appended");
                trail.forget(count);
            }
            for &(place, count, last) in &kept {
                let bytes = trail.at(place, count as u32);
                assert_eq!((bytes.len(), bytes.last()), (count, Some(&last)));
            }
        }
        assert!(trail.memory.len() < 1000 && trail.at(trail.end(), 1).is_empty());
    }

    #[test]
    fn memory_that_was_needed_once_is_given_back() {
        const BYTES: usize = 4096;
        let mut trail = Trail::default();
        let places: Vec<u64> = (0..1024_u32)
            .map(|index| {
                let place = trail.end();
                trail.append(BYTES).fill(index as u8);
                place
            })
            .collect();
        for (index, place) in places.iter().enumerate() {
            assert_eq!(trail.at(*place, BYTES as u32), [index as u8; BYTES]);
            assert_eq!(trail.at(places[1023], BYTES as u32), [255; BYTES]);
            if index < 1023 {
                trail.forget(BYTES);
            }
        }
        assert!(trail.memory.capacity() <= SPARE_BYTES_MAX, "for one that is left");
        trail.forget(BYTES);
        trail.append(BYTES);
        assert!(trail.memory.capacity() <= SPARE_BYTES_MAX);
    }
}
