//! The memory that an app shares with its peers: both ends of the channel read and write it, and
//! for the engine, peers do. So nobody has a reference to it: words are atomics, and bytes are
//! copied.

#[cfg(not(miri))]
use std::os::fd::{AsFd, OwnedFd};

#[cfg(not(miri))]
use crate::NotShareable;
use crate::memory::Bytes;

/// The number of the shared memory that is a part of the channel's own.
pub const CHANNEL_MEMORY: u64 = 0;
/// How many memories of its own an app may add to a channel.
pub const MEMORIES_MAX: usize = 64;

/// Up to so many bytes, at a multiple of 8, are copied word by word, each at once. Longer ones are
/// copied as the processor does it best.
pub const WORDS_BYTES_MAX: u32 = 4096;

/// Bytes that [`Shared::copy`] has in hand.
#[cfg(not(miri))]
const COPIED_AT_ONCE_BYTES: usize = 1 << 20;

/// Shared memory of a channel: a part of the channel's own, or a memfd of the app's. Cheap to
/// clone; each clone keeps the memory mapped, so that it can be used wherever the channel is, and
/// after it has ended.
///
/// What is outside of it, or a word that is not at a multiple of 8, is `None` or false.
#[derive(Clone)]
pub struct Shared {
    bytes: Bytes,
}

impl Shared {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// A memfd of the app's own, as the app sees it: all of it is mapped, its size is sealed, and
    /// pages that are missing are made. It may hold something already.
    ///
    /// # Errors
    /// If it is not such as a daemon can secure.
    #[cfg(not(miri))]
    pub fn offer(memfd: impl AsFd) -> Result<Self, NotShareable> {
        crate::memory::offer(memfd.as_fd()).map(Self::new)
    }

    /// A memfd with what is there now, which can be offered to another daemon: that of this memory
    /// is sealed for the one which has it. What others write meanwhile may be missing in the copy.
    ///
    /// # Errors
    /// If there is no memory or descriptor for it.
    #[cfg(not(miri))]
    pub fn copy(&self) -> Result<OwnedFd, NotShareable> {
        let memfd = crate::memory::blank(self.length())?;
        let copy = Self::offer(&memfd)?;
        let mut piece = vec![0; COPIED_AT_ONCE_BYTES];
        for at in (0..self.length()).step_by(COPIED_AT_ONCE_BYTES) {
            let left = usize::try_from(self.length() - at).unwrap_or(usize::MAX);
            let piece = &mut piece[..left.min(COPIED_AT_ONCE_BYTES)];
            let is_copied = self.read(at, piece) && copy.write(at, piece);
            debug_assert!(is_copied, "both have so many bytes");
        }
        Ok(memfd)
    }

    /// The same as the daemon sees it, which is told how many bytes it has: mapped, sealed against
    /// what could take a page away, and filled. For a thread on which nobody depends: the app can
    /// make it wait for as long as it likes.
    ///
    /// # Errors
    /// If it cannot be secured, or is something else than was said.
    #[cfg(not(miri))]
    pub fn adopt(memfd: impl AsFd, bytes: u64) -> Result<Self, NotShareable> {
        crate::memory::adopt(memfd.as_fd(), bytes).map(Self::new)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.length() as u64
    }

    /// True if there are none: the channel was attached without shared memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length() == 0
    }

    /// Where it is, for programs in other languages. It is there for as long as this or a clone of
    /// it is; whoever reads or writes it does so by atomics, or copies what may change meanwhile.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes.as_ptr()
    }

    /// Where `length` bytes at `offset` are, if all are there.
    fn place(&self, offset: u64, length: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        (offset.checked_add(length)? <= self.bytes.length()).then_some(offset)
    }

    /// The same for a word.
    fn word(&self, offset: u64) -> Option<usize> {
        self.place(offset, 8).filter(|offset| offset.is_multiple_of(8))
    }

    /// Asks the processor to load the bytes at `offset` soon, if they are there.
    #[inline]
    pub fn fetch(&self, offset: u64) {
        if let Some(offset) = self.place(offset, 1) {
            self.bytes.prefetch(offset);
        }
    }

    /// Copies bytes out. False, and nothing is copied, if they are not all there.
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(offset) = self.place(offset, into.len()) else { return false };
        if !is_in_words(offset, into.len()) {
            self.bytes.read(offset, into);
            return true;
        }
        let (words, rest) = into.as_chunks_mut::<8>();
        self.bytes.load_words(offset, words);
        if !rest.is_empty() {
            self.bytes.read(offset + 8 * words.len(), rest);
        }
        true
    }

    /// Copies bytes in. False, and nothing is copied, if there is not room for all.
    #[must_use]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(offset) = self.place(offset, bytes.len()) else { return false };
        if !is_in_words(offset, bytes.len()) {
            self.bytes.write(offset, bytes);
            return true;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        self.bytes.store_words(offset, words);
        if !rest.is_empty() {
            self.bytes.write(offset + 8 * words.len(), rest);
        }
        true
    }

    /// Loads a word, once; what is read after that is at least as new (acquire).
    #[must_use]
    pub fn load(&self, offset: u64) -> Option<u64> {
        self.word(offset).map(|offset| self.bytes.load_acquire(offset))
    }

    /// Which of `count` entries of `stride` bytes each, from `offset` on, begins with the word
    /// `key`: the first that does. Each such word is loaded once, as [`Shared::load`] does. `None`
    /// also if the entries are not all there, or `offset` or `stride` is no multiple of 8, or
    /// `stride` is 0.
    #[must_use]
    pub fn find_entry(&self, offset: u64, stride: u32, count: u32, key: u64) -> Option<u32> {
        if stride == 0 || !stride.is_multiple_of(8) || !offset.is_multiple_of(8) {
            return None;
        }
        let bytes = usize::try_from(u64::from(stride) * u64::from(count)).ok()?;
        let offset = self.place(offset, bytes)?;
        let (stride, count) = (stride as usize / 8, count as usize);
        self.bytes.find_entry(offset, stride, count, key).map(|index| index as u32) // below `count`
    }

    /// Stores a word; who loads it sees what was written before it (release).
    #[must_use]
    pub fn store(&self, offset: u64, value: u64) -> bool {
        let Some(offset) = self.word(offset) else { return false };
        self.bytes.store_release(offset, value);
        true
    }

    /// Adds to a word, wrapping. Returns what it was.
    #[must_use]
    pub fn fetch_add(&self, offset: u64, addend: u64) -> Option<u64> {
        self.word(offset).map(|offset| self.bytes.fetch_add(offset, addend))
    }

    /// Puts `replacement` into a word that is `expected`. Returns what it was.
    #[must_use]
    pub fn compare_swap(&self, offset: u64, expected: u64, replacement: u64) -> Option<u64> {
        self.word(offset).map(|offset| self.bytes.compare_swap(offset, expected, replacement))
    }

    /// Copies bytes of a pool in. Panics if they are not in the pool.
    pub(crate) fn write_from(&self, offset: u64, from: &Bytes, at: usize, length: usize) -> bool {
        let Some(place) = self.place(offset, length) else { return false };
        if !is_in_words(place, length) {
            from.copy_to(at, length, &self.bytes, place);
            return true;
        }
        let mut words = [0; WORDS_BYTES_MAX as usize];
        let words = &mut words[..length];
        from.read(at, words);
        self.write(offset, words)
    }

    /// Copies bytes out into a pool. Panics if there is no room for them there.
    pub(crate) fn read_into(&self, offset: u64, length: usize, into: &Bytes, at: usize) -> bool {
        let Some(place) = self.place(offset, length) else { return false };
        if !is_in_words(place, length) {
            self.bytes.copy_to(place, length, into, at);
            return true;
        }
        let mut words = [0; WORDS_BYTES_MAX as usize];
        let words = &mut words[..length];
        let is_read = self.read(offset, words);
        into.write(at, words);
        is_read
    }
}

/// Whether so many bytes are copied word by word.
const fn is_in_words(offset: usize, length: usize) -> bool {
    offset.is_multiple_of(8) && length <= WORDS_BYTES_MAX as usize
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Shared({} bytes)", self.length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;
    use crate::memory::Memory;

    const BYTES: u32 = 1 << 14;

    fn memory() -> (Shared, Bytes) {
        let sizes = Sizes { shared_bytes: BYTES, ..Sizes::default() };
        let memory = Memory::heap(&sizes);
        let (shared, pool) = (memory.areas().shared_memory, memory.areas().receive_pool);
        (Shared::new(Bytes::new(&memory, shared, BYTES)), Bytes::new(&memory, pool, BYTES))
    }

    #[test]
    fn what_is_not_all_inside_is_left_alone() {
        let (shared, pool) = memory();
        assert_eq!(shared.length(), u64::from(BYTES));
        let end = shared.length();
        for (offset, length) in [(end, 1), (end - 7, 8), (u64::MAX, 8), (0, BYTES as usize + 1)] {
            let mut bytes = vec![1; length];
            assert!(!shared.read(offset, &mut bytes) && !shared.write(offset, &bytes));
            assert!(!shared.write_from(offset, &pool, 0, length));
            assert!(!shared.read_into(offset, length, &pool, 0));
            assert!(bytes.iter().all(|byte| *byte == 1));
        }
        for offset in [4, end - 4, end, u64::MAX - 7, u64::MAX] {
            assert_eq!((shared.load(offset), shared.fetch_add(offset, 1)), (None, None));
            assert_eq!((shared.compare_swap(offset, 0, 1), shared.store(offset, 1)), (None, false));
        }
        let mut all = vec![1; BYTES as usize];
        assert!(shared.read(0, &mut all) && all.iter().all(|byte| *byte == 0), "nothing changed");
    }

    #[test]
    fn an_entry_is_found_by_its_first_word() {
        let (shared, _) = memory();
        for (index, key) in [7, 9, 9].into_iter().enumerate() {
            assert!(shared.store(64 + 24 * index as u64, key) && shared.store(72, 8));
        }
        for (key, found) in [(7, Some(0)), (9, Some(1)), (8, None)] {
            assert_eq!(shared.find_entry(64, 24, 3, key), found);
        }
        assert_eq!(shared.find_entry(64, 24, 1, 9), None);
        assert_eq!(shared.find_entry(64, 24, 0, 7), None);
        let end = shared.length();
        assert_eq!(shared.find_entry(end - 24, 24, 1, 0), Some(0));
        for (offset, stride, count) in
            [(end - 24, 24, 2), (u64::MAX - 7, 8, 2), (0, u32::MAX - 7, u32::MAX)]
        {
            assert_eq!(shared.find_entry(offset, stride, count, 0), None, "{offset} {stride}");
        }
        for (offset, stride) in [(4, 8), (0, 12), (0, 0)] {
            assert_eq!(shared.find_entry(offset, stride, 1, 0), None, "{offset} {stride}");
        }
    }

    #[test]
    fn words_and_bytes_are_the_same_memory() {
        let (shared, _) = memory();
        assert_eq!(shared.fetch_add(8, 5), Some(0));
        assert_eq!(shared.compare_swap(8, 4, 9), Some(5));
        assert_eq!(shared.compare_swap(8, 5, u64::MAX), Some(5));
        assert_eq!(shared.fetch_add(8, 2), Some(u64::MAX));
        assert_eq!(shared.load(8), Some(1));
        // Memory of its own for each length: Miri of 2026-05-19 panics at an atomic store to a word
        // of which a part was written by an atomic store and the rest by a plain copy after it.
        for (offset, length) in
            [(0, 24), (8, 13), (3, 8), (0, WORDS_BYTES_MAX as usize), (16, 5000)]
        {
            let (shared, pool) = memory();
            let bytes: Vec<u8> = (0..length).map(|index| (index * 7 + length) as u8).collect();
            assert!(shared.write(offset, &bytes));
            let mut found = vec![0; length];
            assert!(shared.read(offset, &mut found) && found == bytes, "{length} at {offset}");
            assert!(shared.read_into(offset, length, &pool, 64));
            found.fill(0);
            pool.read(64, &mut found);
            assert!(found == bytes, "{length} at {offset}, to the pool");
            assert!(shared.write(offset, &vec![0; length]));
            assert!(shared.write_from(offset, &pool, 64, length));
            assert!(shared.read(offset, &mut found) && found == bytes, "and back");
        }
    }
}
