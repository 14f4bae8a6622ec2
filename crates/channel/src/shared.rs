//! The memory that an app shares with its peers: both ends of the channel read and write it, and
//! for the engine, peers do. So nobody has a reference to it: words are atomics, and bytes are
//! copied.

use crate::memory::Bytes;

/// Up to so many bytes, at a multiple of 8, are copied word by word, each at once. Longer ones are
/// copied as the processor does it best.
pub const WORDS_BYTES_MAX: u32 = 4096;

/// The shared memory of a channel. Cheap to clone; each clone keeps the memory mapped, so that it
/// can be used wherever the channel is, and after it has ended.
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

    /// How many bytes there are.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.bytes.length()
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

    fn holds(&self, offset: u32, length: usize) -> bool {
        u64::from(offset) + length as u64 <= u64::from(self.length())
    }

    fn has_word(&self, offset: u32) -> bool {
        offset.is_multiple_of(8) && self.holds(offset, 8)
    }

    /// Copies bytes out. False, and nothing is copied, if they are not all there.
    #[must_use]
    pub fn read(&self, offset: u32, into: &mut [u8]) -> bool {
        if !self.holds(offset, into.len()) {
            return false;
        }
        if !is_in_words(offset, into.len()) {
            self.bytes.read(offset, into);
            return true;
        }
        let (words, rest) = into.as_chunks_mut::<8>();
        self.bytes.load_words(offset, words);
        if !rest.is_empty() {
            self.bytes.read(offset + 8 * words.len() as u32, rest);
        }
        true
    }

    /// Copies bytes in. False, and nothing is copied, if there is not room for all.
    #[must_use]
    pub fn write(&self, offset: u32, bytes: &[u8]) -> bool {
        if !self.holds(offset, bytes.len()) {
            return false;
        }
        if !is_in_words(offset, bytes.len()) {
            self.bytes.write(offset, bytes);
            return true;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        self.bytes.store_words(offset, words);
        if !rest.is_empty() {
            self.bytes.write(offset + 8 * words.len() as u32, rest);
        }
        true
    }

    /// Loads a word, once; what is read after that is at least as new (acquire).
    #[must_use]
    pub fn load(&self, offset: u32) -> Option<u64> {
        self.has_word(offset).then(|| self.bytes.load_acquire(offset))
    }

    /// Stores a word; who loads it sees what was written before it (release).
    #[must_use]
    pub fn store(&self, offset: u32, value: u64) -> bool {
        let is_there = self.has_word(offset);
        if is_there {
            self.bytes.store_release(offset, value);
        }
        is_there
    }

    /// Adds to a word, wrapping. Returns what it was.
    #[must_use]
    pub fn fetch_add(&self, offset: u32, addend: u64) -> Option<u64> {
        self.has_word(offset).then(|| self.bytes.fetch_add(offset, addend))
    }

    /// Puts `replacement` into a word that is `expected`. Returns what it was.
    #[must_use]
    pub fn compare_swap(&self, offset: u32, expected: u64, replacement: u64) -> Option<u64> {
        self.has_word(offset).then(|| self.bytes.compare_swap(offset, expected, replacement))
    }

    /// Copies bytes of a pool in. Panics if they are not in the pool.
    pub(crate) fn write_from(&self, offset: u32, from: &Bytes, at: u32, length: u32) -> bool {
        if !self.holds(offset, length as usize) {
            return false;
        }
        if !is_in_words(offset, length as usize) {
            from.copy_to(at, length, &self.bytes, offset);
            return true;
        }
        let mut words = [0; WORDS_BYTES_MAX as usize];
        let words = &mut words[..length as usize];
        from.read(at, words);
        self.write(offset, words)
    }

    /// Copies bytes out into a pool. Panics if there is no room for them there.
    pub(crate) fn read_into(&self, offset: u32, length: u32, into: &Bytes, at: u32) -> bool {
        if !self.holds(offset, length as usize) {
            return false;
        }
        if !is_in_words(offset, length as usize) {
            self.bytes.copy_to(offset, length, into, at);
            return true;
        }
        let mut words = [0; WORDS_BYTES_MAX as usize];
        let words = &mut words[..length as usize];
        let is_read = self.read(offset, words);
        into.write(at, words);
        is_read
    }
}

/// Whether so many bytes are copied word by word.
const fn is_in_words(offset: u32, length: usize) -> bool {
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
        assert_eq!(shared.length(), BYTES);
        for (offset, length) in [(BYTES, 1), (BYTES - 7, 8), (u32::MAX, 8), (0, BYTES + 1)] {
            let mut bytes = vec![1; length as usize];
            assert!(!shared.read(offset, &mut bytes) && !shared.write(offset, &bytes));
            assert!(!shared.write_from(offset, &pool, 0, length));
            assert!(!shared.read_into(offset, length, &pool, 0));
            assert!(bytes.iter().all(|byte| *byte == 1));
        }
        for offset in [4, BYTES - 4, BYTES, u32::MAX - 7, u32::MAX] {
            assert_eq!((shared.load(offset), shared.fetch_add(offset, 1)), (None, None));
            assert_eq!((shared.compare_swap(offset, 0, 1), shared.store(offset, 1)), (None, false));
        }
        let mut all = vec![1; BYTES as usize];
        assert!(shared.read(0, &mut all) && all.iter().all(|byte| *byte == 0), "nothing changed");
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
        for (offset, length) in [(0, 24), (8, 13), (3, 8), (0, WORDS_BYTES_MAX), (16, 5000)] {
            let (shared, pool) = memory();
            let bytes: Vec<u8> = (0..length).map(|index| (index * 7 + length) as u8).collect();
            assert!(shared.write(offset, &bytes));
            let mut found = vec![0; length as usize];
            assert!(shared.read(offset, &mut found) && found == bytes, "{length} at {offset}");
            assert!(shared.read_into(offset, length, &pool, 64));
            found.fill(0);
            pool.read(64, &mut found);
            assert!(found == bytes, "{length} at {offset}, to the pool");
            assert!(shared.write(offset, &vec![0; length as usize]));
            assert!(shared.write_from(offset, &pool, 64, length));
            assert!(shared.read(offset, &mut found) && found == bytes, "and back");
        }
    }
}
