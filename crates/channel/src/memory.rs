//! The shared memory itself: making it, mapping it, checking it, and copying bytes in and out.
//!
//! Three kinds of access exist. Ring entries and sync words are atomics. Payload is copied between
//! shared and private memory as raw bytes, never inspected in place, with [`settle`] behind what is
//! copied out. And the app reads received payload in place as `&[u8]`, and writes its transmit
//! buffers in place as `&mut [u8]`: the other side of such bytes is the daemon, which writes a
//! receive buffer only before it grants it and after it was released, and never writes the transmit
//! pool. (The daemon itself never forms a reference to payload: an app may write there at any
//! time.)

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::Arc;

use clearway_base::COPY_BYTES;

use crate::barrier;
use crate::layout::{
    Areas, ENTRY_BYTES, HEADER_DAEMON_BARRIERS, HEADER_LAYOUT, HEADER_MAGIC, HEADER_REGION_COUNT,
    HEADER_REGIONS, HEADER_SIZES, HEADER_TOTAL_BYTES, MAGIC, REGION_BYTES, REGIONS_MAX, Region,
    Sizes, Versions, layout_of, version_of,
};
use crate::ring::{Entry, RingMemory};

#[cfg(not(miri))]
mod adopted;
#[cfg(not(miri))]
mod mapped;
#[cfg(not(miri))]
pub use adopted::NotShareable;
#[cfg(not(miri))]
pub(crate) use adopted::{adopt, blank, offer};
#[cfg(not(miri))]
pub(crate) use mapped::{create, open};

/// The whole channel.
pub(crate) struct Memory {
    mapping: Arc<Mapping>,
    areas: Areas,
    /// Of the layout: what the app understands.
    version: u32,
}

/// Bytes that others may read and write, unmapped when the last user is gone.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

/// Where the bytes came from, hence how they go.
enum Origin {
    #[cfg(not(miri))]
    Mapped,
    /// Ordinary memory, zeroed: both ends in one process, for tests (and Miri, which has no memfd).
    #[cfg(test)]
    Heap,
}

// SAFETY: `Mapping` is a base address and constants. What it points to is mapped for as long as it
// lives, in every thread; access goes through atomics, or through raw copies whose exclusion the
// ends (one thread each) and the contract between the two processes provide.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of `Mapping` hands out a reference to bytes that can change.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed ordinary memory.
    #[cfg(test)]
    pub(crate) fn heap(bytes: usize) -> Arc<Self> {
        // SAFETY: the layout has a size above zero.
        let base = unsafe { std::alloc::alloc_zeroed(heap_layout(bytes)) };
        let base = NonNull::new(base).expect("memory for a test");
        Arc::new(Self { base, bytes, origin: Origin::Heap })
    }

    /// The `u64` at `offset`.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + size_of::<u64>() <= self.bytes && offset.is_multiple_of(8));
        // SAFETY: inside the mapping (asserted), aligned (the base is page-aligned), valid for the
        // life of `self`; an `AtomicU64` may be shared with another process.
        unsafe { self.base.add(offset).cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.origin {
            #[cfg(not(miri))]
            Origin::Mapped => mapped::unmap(self.base, self.bytes),
            #[cfg(test)]
            // SAFETY: allocated in `heap` with the same layout; nobody else has it any more.
            Origin::Heap => unsafe {
                std::alloc::dealloc(self.base.as_ptr(), heap_layout(self.bytes));
            },
        }
    }
}

impl Memory {
    /// Zeroed ordinary memory laid out as a channel.
    #[cfg(test)]
    pub(crate) fn heap(sizes: &Sizes) -> Arc<Self> {
        let (areas, version) = (Areas::new(sizes), Versions::DAEMON.max);
        let memory = Self { mapping: Mapping::heap(areas.total_bytes), areas, version };
        memory.write_header(sizes);
        Arc::new(memory)
    }

    /// Marks fresh memory as a channel of these sizes.
    fn write_header(&self, sizes: &Sizes) {
        use core::sync::atomic::Ordering::Relaxed;
        self.word(HEADER_MAGIC).store(MAGIC, Relaxed);
        self.word(HEADER_LAYOUT).store(layout_of(self.version), Relaxed);
        self.word(HEADER_TOTAL_BYTES).store(self.mapping.bytes as u64, Relaxed);
        for (index, value) in header_sizes(sizes).into_iter().enumerate() {
            self.word(HEADER_SIZES + 8 * index).store(value, Relaxed);
        }
        self.word(HEADER_DAEMON_BARRIERS).store(barrier::is_supported().into(), Relaxed);
        let regions = self.areas.regions(sizes);
        self.word(HEADER_REGION_COUNT).store(regions.len() as u64, Relaxed);
        for (index, Region { kind, offset, length }) in regions.into_iter().enumerate() {
            for (word, value) in [kind, offset, length].into_iter().enumerate() {
                self.word(region_at(index) + 8 * word).store(value, Relaxed);
            }
        }
    }

    /// Whether the daemon runs `barrier::everywhere` before it sleeps.
    pub(crate) fn has_barriers(&self) -> bool {
        self.word(HEADER_DAEMON_BARRIERS).load(core::sync::atomic::Ordering::Relaxed) != 0
    }

    /// What the app finds: the version, which it has to understand, and where the areas are. `None`
    /// if the header does not say what the attach reply said.
    pub(crate) fn read_header(&self, sizes: &Sizes) -> Option<(u32, Areas)> {
        use core::sync::atomic::Ordering::Relaxed;
        let word = |at| self.word(at).load(Relaxed);
        let version = version_of(word(HEADER_LAYOUT))?;
        let is_as_told = word(HEADER_MAGIC) == MAGIC
            && Versions::APP.contains(version)
            && word(HEADER_TOTAL_BYTES) == self.mapping.bytes as u64
            && header_sizes(sizes)
                .into_iter()
                .enumerate()
                .all(|(index, value)| word(HEADER_SIZES + 8 * index) == value);
        let count = usize::try_from(word(HEADER_REGION_COUNT)).ok()?;
        let mut regions = [Region::default(); REGIONS_MAX];
        for (index, region) in regions.get_mut(..count)?.iter_mut().enumerate() {
            let at = region_at(index);
            *region = Region { kind: word(at), offset: word(at + 8), length: word(at + 16) };
        }
        let areas = Areas::find(sizes, &regions[..count], self.mapping.bytes);
        areas.filter(|_| is_as_told).map(|areas| (version, areas))
    }

    /// The `u64` at `offset`, for tests that play a hostile app as well.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.mapping.word(offset)
    }

    /// The sync word at `offset`.
    pub(crate) fn sync_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + size_of::<u32>() <= self.mapping.bytes && offset.is_multiple_of(4));
        // SAFETY: as in `Mapping::word`.
        unsafe { self.mapping.base.add(offset).cast().as_ref() }
    }

    pub(crate) fn areas(&self) -> &Areas {
        &self.areas
    }

    /// Of the layout.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }
}

/// Where a region stands in the table.
fn region_at(index: usize) -> usize {
    HEADER_REGIONS + index * REGION_BYTES
}

fn header_sizes(sizes: &Sizes) -> [u64; 4] {
    [
        sizes.submission_entries.into(),
        sizes.completion_entries.into(),
        sizes.transmit_pool_bytes.into(),
        sizes.receive_pool_bytes.into(),
    ]
}

#[cfg(test)]
fn heap_layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, crate::layout::PAGE_BYTES).expect("a valid layout")
}

/// A ring in shared memory.
pub(crate) struct SharedRing {
    entries: NonNull<Entry>,
    /// One less than the entries, whose number is a power of two.
    mask: u32,
    head: NonNull<AtomicU32>,
    _memory: Arc<Memory>,
}

// SAFETY: two pointers into a `Memory`, which is `Send` and kept alive; used for atomics only.
unsafe impl Send for SharedRing {}

impl SharedRing {
    /// The ring of `entry_count` entries at `offset`, whose head is the sync word at `head`.
    pub(crate) fn new(memory: &Arc<Memory>, offset: usize, entry_count: u32, head: usize) -> Self {
        let bytes = entry_count as usize * ENTRY_BYTES;
        assert!(entry_count.is_power_of_two() && offset + bytes <= memory.mapping.bytes);
        assert!(offset.is_multiple_of(ENTRY_BYTES));
        Self {
            // SAFETY: inside the mapping (asserted).
            entries: unsafe { memory.mapping.base.add(offset) }.cast(),
            mask: entry_count - 1,
            head: NonNull::from(memory.sync_word(head)),
            _memory: Arc::clone(memory),
        }
    }
}

impl RingMemory for SharedRing {
    #[inline]
    fn entry(&self, position: u32) -> &Entry {
        let index = position & self.mask;
        // SAFETY: `new` asserted that the entries up to the mask are inside the mapping and
        // aligned, and `_memory` keeps it mapped. Words are atomics: the other process may write
        // them at any time.
        unsafe { self.entries.add(index as usize).as_ref() }
    }

    #[inline]
    fn head(&self) -> &AtomicU32 {
        // SAFETY: made from a reference into the mapping, which `_memory` keeps.
        unsafe { self.head.as_ref() }
    }
}

/// Bytes of a mapping: a pool's, or those of shared memory.
#[derive(Clone)]
pub(crate) struct Bytes {
    base: NonNull<u8>,
    length: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: a pointer into a `Mapping`, which is `Send` and kept alive.
unsafe impl Send for Bytes {}
// SAFETY: shared access is reading, whose exclusion is the contract in the module's comment.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// The `length` bytes at `offset`.
    pub(crate) fn new(memory: &Memory, offset: usize, length: u32) -> Self {
        Self::of(&memory.mapping, offset, length as usize)
    }

    /// The `length` bytes at `offset` of a mapping.
    pub(crate) fn of(mapping: &Arc<Mapping>, offset: usize, length: usize) -> Self {
        assert!(length <= mapping.bytes && offset <= mapping.bytes - length);
        // SAFETY: inside the mapping (asserted).
        let base = unsafe { mapping.base.add(offset) };
        Self { base, length, _mapping: Arc::clone(mapping) }
    }

    /// Where they begin.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Copies bytes out. The other process may be writing them: what arrives is then a mixture,
    /// which is that process's own loss; the bytes are checked nowhere before they are copied.
    #[inline]
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let (from, length) = (self.at(offset, into.len()), into.len());
        // SAFETY: `at` asserted the range. The ranges do not overlap: `into` is private memory.
        // A concurrent writer is another process, outside of what the compiler can see; any byte
        // value is a valid `u8`.
        unsafe { copy_bytes(from, NonNull::from(into).cast(), length) }
        settle();
    }

    /// The word at `offset`, a multiple of 8, loaded once: what the other process writes later
    /// changes nothing any more.
    #[inline]
    pub(crate) fn load_word(&self, offset: usize) -> u64 {
        self.word(offset).load(core::sync::atomic::Ordering::Relaxed)
    }

    /// The word at `offset`, a multiple of 8.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words(offset, 1)[0]
    }

    /// So many words from `offset` on, a multiple of 8.
    #[inline]
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let first = self.at(offset, count * size_of::<u64>()).cast::<AtomicU64>();
        assert!(first.is_aligned(), "a word at {offset}");
        // SAFETY: `at` asserted the range, and alignment was asserted just above; `_mapping` keeps
        // the mapping for as long as `self` is borrowed. An `AtomicU64` may be shared with another
        // process.
        unsafe { NonNull::slice_from_raw_parts(first, count).as_ref() }
    }

    /// Loads a word of shared memory, where anybody may write: pairs with what stores it, the app's
    /// code or [`Bytes::store_release`].
    #[inline]
    pub(crate) fn load_acquire(&self, offset: usize) -> u64 {
        self.word(offset).load(core::sync::atomic::Ordering::Acquire)
    }

    /// The same for the first words of `count` entries of `stride` words each, until one is `key`.
    /// Which entry that is.
    pub(crate) fn find_entry(
        &self,
        offset: usize,
        stride: usize,
        count: usize,
        key: u64,
    ) -> Option<usize> {
        let mut entries = self.words(offset, stride * count).iter().step_by(stride);
        entries.position(|word| word.load(core::sync::atomic::Ordering::Acquire) == key)
    }

    /// The same for each of several words, in ascending order.
    pub(crate) fn load_words(&self, offset: usize, into: &mut [[u8; 8]]) {
        let words = self.words(offset, into.len());
        for (into, word) in into.iter_mut().zip(words) {
            *into = word.load(core::sync::atomic::Ordering::Acquire).to_ne_bytes();
        }
    }

    /// Stores a word: pairs with [`Bytes::load_acquire`], and with loads of the app's code.
    #[inline]
    pub(crate) fn store_release(&self, offset: usize, value: u64) {
        self.word(offset).store(value, core::sync::atomic::Ordering::Release);
    }

    /// The same for each of several words, in ascending order.
    pub(crate) fn store_words(&self, offset: usize, words: &[[u8; 8]]) {
        let places = self.words(offset, words.len());
        for (word, place) in words.iter().zip(places) {
            place.store(u64::from_ne_bytes(*word), core::sync::atomic::Ordering::Release);
        }
    }

    /// Adds to a word. Returns what it was.
    #[inline]
    pub(crate) fn fetch_add(&self, offset: usize, addend: u64) -> u64 {
        self.word(offset).fetch_add(addend, core::sync::atomic::Ordering::AcqRel)
    }

    /// Puts `replacement` into a word that is `expected`. Returns what it was.
    #[inline]
    pub(crate) fn compare_swap(&self, offset: usize, expected: u64, replacement: u64) -> u64 {
        use core::sync::atomic::Ordering::{AcqRel, Acquire};
        let swapped = self.word(offset).compare_exchange(expected, replacement, AcqRel, Acquire);
        swapped.unwrap_or_else(|found| found)
    }

    /// Copies bytes in.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: as in `read`, the other way round.
        unsafe { copy_bytes(NonNull::from(bytes).cast(), to, bytes.len()) }
    }

    /// Copies bytes from this memory into that of another channel.
    #[inline]
    pub(crate) fn copy_to(&self, offset: usize, length: usize, to: &Self, to_offset: usize) {
        let from = self.at(offset, length);
        let to = to.at(to_offset, length);
        // SAFETY: both ranges were asserted. They may be in one mapping (an app that talks to
        // itself), and `copy_to` allows for overlap. Concurrent writers as in `read`.
        unsafe {
            if from.addr().get().abs_diff(to.addr().get()) < length {
                from.copy_to(to, length);
            } else {
                copy_bytes(from, to, length);
            }
        }
    }

    /// Asks the processor to load the line at `offset`, which need not be in range.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch(self.base.as_ptr().wrapping_add(offset));
    }

    /// The bytes in place.
    ///
    /// # Safety
    /// They are inside of the pool, and nobody writes them for as long as the slice lives (see the
    /// module's comment).
    #[inline]
    pub(crate) unsafe fn slice(&self, offset: usize, length: usize) -> &[u8] {
        debug_assert!(offset + length <= self.length);
        // SAFETY: the caller upholds both.
        unsafe {
            let start = self.base.add(offset);
            core::slice::from_raw_parts(start.as_ptr(), length)
        }
    }

    /// The bytes in place, for writing.
    ///
    /// # Safety
    /// They are inside of the pool, and nobody else has a reference to any of them, or writes them,
    /// for as long as the slice lives.
    #[inline]
    #[allow(clippy::mut_from_ref)] // The pool hands out each byte once; the caller says so.
    pub(crate) unsafe fn slice_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        debug_assert!(offset + length <= self.length);
        // SAFETY: the caller upholds both.
        unsafe {
            let start = self.base.add(offset);
            core::slice::from_raw_parts_mut(start.as_ptr(), length)
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The address of `length` bytes at `offset`, which must be in range.
    #[inline]
    fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} are outside of the {} bytes",
            self.length
        );
        // SAFETY: in range, asserted just above.
        unsafe { self.base.add(offset) }
    }
}

/// Copies bytes, no more at once than [`COPY_BYTES`].
///
/// # Safety
/// As for [`NonNull::copy_to_nonoverlapping`].
#[inline]
unsafe fn copy_bytes(from: NonNull<u8>, to: NonNull<u8>, length: usize) {
    // SAFETY: the caller's promise, for both.
    unsafe {
        if length <= COPY_BYTES {
            from.copy_to_nonoverlapping(to, length);
        } else {
            copy_in_pieces(from, to, length);
        }
    }
}

/// # Safety
/// As for [`copy_bytes`].
#[inline(never)]
unsafe fn copy_in_pieces(from: NonNull<u8>, to: NonNull<u8>, length: usize) {
    let mut done = 0;
    while length - done > COPY_BYTES {
        // SAFETY: these are among the bytes of which the caller has promised all.
        unsafe { from.add(done).copy_to_nonoverlapping(to.add(done), COPY_BYTES) };
        done += COPY_BYTES;
    }
    // SAFETY: likewise, the others.
    unsafe { from.add(done).copy_to_nonoverlapping(to.add(done), length - done) };
}

/// Between a copy out of shared memory and whoever looks at it. To the compiler any memory that
/// others can reach may have changed here, as by a signal handler: so the copy is what is read, and
/// never once more, or in its place, what the other process can have changed since. It costs no
/// instruction, and copies stay `memcpy`: volatile or atomic words take half as long again or more.
#[inline]
fn settle() {
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

const CACHE_LINE_BYTES: usize = 64;

/// Asks the processor to load all of `value`, most of which will be read soon: later each cache
/// line would be waited for, one after the other.
#[inline]
pub fn fetch<T>(value: &T) {
    let address: *const u8 = core::ptr::from_ref(value).cast();
    for at in (0..size_of::<T>()).step_by(CACHE_LINE_BYTES) {
        prefetch(address.wrapping_add(at));
    }
}

/// Asks the processor to load the entry behind this one soon, which is the next but once per lap.
#[inline]
pub(crate) fn prefetch_behind(entry: &Entry) {
    prefetch(core::ptr::from_ref(entry).wrapping_add(1));
}

/// Asks the processor to load a cache line soon. Any address is allowed.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching has no effect but on caches and faults on no address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
