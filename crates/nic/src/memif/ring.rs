//! One memif ring in shared memory: where its words are, and the only code that touches them.
//!
//! ```text
//! offset  0: cookie u32   written once by the client
//!         4: flags u16    written by the receiver; bit 0 = do not interrupt me
//!         6: head u16     written by the client
//!        64: tail u16     written by the server
//!       128: descriptors, 16 bytes each: flags u16, region u16, length u32, offset u32,
//!            metadata u32
//! ```
//!
//! The client owns the memory, so it is always the client that puts descriptors into the ring
//! (head) and the server that hands them back (tail). In an S2M ring a descriptor goes out with a
//! frame and comes back empty; in an M2S ring it goes out empty and comes back with a frame. Seen
//! from the frames, both are the same queue: [`Ring::produced`] counts descriptors that the sender
//! has filled, [`Ring::consumed`] those that the receiver has emptied. In an M2S ring the latter is
//! `head` less the ring's size.
//!
//! Indexes are 16 bits and run freely; the slot is the index modulo the size.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::message::Direction;
use super::region::Region;

/// Bytes in front of the descriptors.
pub(super) const HEADER_BYTES: usize = 128;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// Largest ring, as a power of two. With 16-bit indexes 2^15 would be the limit; other
/// implementations stop at 2^14.
pub(super) const SIZE_LOG2_MAX: u8 = 14;

const COOKIE: u32 = 0x3E3_1F20;
const HEAD: usize = 6;
const FLAGS: usize = 4;
const TAIL: usize = 64;

/// Ring flag: the receiver polls and wants no interrupts.
const MASK_INTERRUPT: u16 = 1;
/// Descriptor flag: the frame goes on in the next descriptor.
const NEXT: u16 = 1;

/// A descriptor, copied out of shared memory or about to be written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) flags: u16,
    pub(super) region: u16,
    pub(super) length: u32,
    pub(super) offset: u32,
}

impl Descriptor {
    pub(super) const fn continues(&self) -> bool {
        self.flags & NEXT != 0
    }

    /// The same place with `length` bytes of a frame in it.
    pub(super) const fn holding(self, length: u32, continues: bool) -> Self {
        Self { flags: if continues { NEXT } else { 0 }, length, ..self }
    }

    fn from_words(first: u64, second: u64) -> Self {
        let (a, b) = (first.to_ne_bytes(), second.to_ne_bytes());
        Self {
            flags: u16::from_ne_bytes([a[0], a[1]]),
            region: u16::from_ne_bytes([a[2], a[3]]),
            length: u32::from_ne_bytes([a[4], a[5], a[6], a[7]]),
            offset: u32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
        }
    }

    fn to_words(self) -> (u64, u64) {
        let (flags, region) = (self.flags.to_ne_bytes(), self.region.to_ne_bytes());
        let (length, offset) = (self.length.to_ne_bytes(), self.offset.to_ne_bytes());
        let first =
            [flags[0], flags[1], region[0], region[1], length[0], length[1], length[2], length[3]];
        let second = [offset[0], offset[1], offset[2], offset[3], 0, 0, 0, 0];
        (u64::from_ne_bytes(first), u64::from_ne_bytes(second))
    }
}

/// A ring whose every word is known to lie inside its region.
#[derive(Debug)]
pub(super) struct Ring {
    header: NonNull<u8>,
    size: u16,
    /// Where the produced index stands, and the consumed one.
    produced_at: usize,
    consumed_at: usize,
    /// What is added to the consumed index in memory: an M2S ring's head runs a ring's size ahead.
    consumed_bias: u16,
    /// Keeps the memory mapped.
    _memory: Arc<[Region]>,
}

// SAFETY: `header` points into memory that `_memory` keeps mapped, and is only used for atomic
// access.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring at `offset` of region `region`, if all of it lies there and it is aligned for
    /// atomic access. Its cookie is not looked at.
    pub(super) fn new(
        memory: Arc<[Region]>,
        region: u16,
        offset: u32,
        size_log2: u8,
        direction: Direction,
    ) -> Option<Self> {
        if size_log2 > SIZE_LOG2_MAX || !offset.is_multiple_of(DESCRIPTOR_BYTES as u32) {
            return None;
        }
        let bytes = ring_bytes(size_log2);
        let header = memory.get(usize::from(region))?.at(offset, bytes)?;
        let size = 1 << size_log2;
        let (produced_at, consumed_at, consumed_bias) = match direction {
            Direction::S2m => (HEAD, TAIL, 0),
            Direction::M2s => (TAIL, HEAD, size),
        };
        Some(Self { header, size, produced_at, consumed_at, consumed_bias, _memory: memory })
    }

    /// Descriptors in the ring.
    pub(super) const fn size(&self) -> u16 {
        self.size
    }

    /// True if the client has written the cookie.
    pub(super) fn cookie_is_right(&self) -> bool {
        self.cookie().load(Ordering::Relaxed) == COOKIE
    }

    /// Writes cookie, flags and both indexes of a new ring. The peer sees them after the control
    /// socket has carried its next message, which orders them.
    pub(super) fn initialize(&self) {
        self.cookie().store(COOKIE, Ordering::Relaxed);
        self.word(FLAGS).store(MASK_INTERRUPT, Ordering::Relaxed);
        self.word(HEAD).store(0, Ordering::Relaxed);
        self.word(TAIL).store(0, Ordering::Relaxed);
    }

    /// Descriptors that the sender has filled so far. Acquire: pairs with the sender's release in
    /// [`Ring::publish_produced`], so that descriptors and frames below it can be read.
    #[inline]
    pub(super) fn produced(&self) -> u16 {
        self.word(self.produced_at).load(Ordering::Acquire)
    }

    /// Release: pairs with the receiver's acquire in [`Ring::produced`].
    #[inline]
    pub(super) fn publish_produced(&self, index: u16) {
        self.word(self.produced_at).store(index, Ordering::Release);
    }

    /// Descriptors that the receiver has emptied so far. Acquire: pairs with the receiver's release
    /// in [`Ring::publish_consumed`], so that the sender's writes come after the receiver's reads.
    #[inline]
    pub(super) fn consumed(&self) -> u16 {
        self.word(self.consumed_at).load(Ordering::Acquire).wrapping_sub(self.consumed_bias)
    }

    /// Release: pairs with the sender's acquire in [`Ring::consumed`].
    #[inline]
    pub(super) fn publish_consumed(&self, index: u16) {
        self.word(self.consumed_at)
            .store(index.wrapping_add(self.consumed_bias), Ordering::Release);
    }

    /// True if the receiver wants an interrupt. The caller has put a `SeqCst` fence between
    /// publishing and this; it pairs with the one that the receiver puts between
    /// [`Ring::mask_interrupt`] and looking at [`Ring::produced`] once more: one of the two sees
    /// the other's store.
    #[inline]
    pub(super) fn interrupt_is_wanted(&self) -> bool {
        self.word(FLAGS).load(Ordering::Relaxed) & MASK_INTERRUPT == 0
    }

    /// Says whether the sender should leave us in peace. See [`Ring::interrupt_is_wanted`].
    pub(super) fn mask_interrupt(&self, masked: bool) {
        let flags = if masked { MASK_INTERRUPT } else { 0 };
        self.word(FLAGS).store(flags, Ordering::Relaxed);
    }

    /// The descriptor at `index`, loaded once. Its content is whatever the peer wrote.
    #[inline]
    pub(super) fn descriptor(&self, index: u16) -> Descriptor {
        let [first, second] = self.descriptor_words(index);
        Descriptor::from_words(first.load(Ordering::Relaxed), second.load(Ordering::Relaxed))
    }

    /// Writes the descriptor at `index`.
    #[inline]
    pub(super) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        let [first, second] = self.descriptor_words(index);
        let words = descriptor.to_words();
        first.store(words.0, Ordering::Relaxed);
        second.store(words.1, Ordering::Relaxed);
    }

    /// Where the descriptor at `index` is, for prefetching.
    #[inline]
    pub(super) fn descriptor_address(&self, index: u16) -> *const u8 {
        self.descriptor_words(index)[0].as_ptr().cast_const().cast()
    }

    /// The slot of `index`: below [`Ring::size`].
    #[inline]
    pub(super) const fn slot(&self, index: u16) -> u16 {
        index & (self.size - 1)
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU16 {
        // SAFETY: `at` is one of the constants above, all even and below HEADER_BYTES; `new`
        // checked that the header lies in the mapping and is aligned to 16. The mapping lives as
        // long as self.
        unsafe { AtomicU16::from_ptr(self.header.add(at).cast().as_ptr()) }
    }

    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: as in `word`; the cookie is the header's first word.
        unsafe { AtomicU32::from_ptr(self.header.cast().as_ptr()) }
    }

    #[inline]
    fn descriptor_words(&self, index: u16) -> [&AtomicU64; 2] {
        let at = HEADER_BYTES + usize::from(self.slot(index)) * DESCRIPTOR_BYTES;
        // SAFETY: the slot is below size, and `new` checked that `size` descriptors lie in the
        // mapping at an address aligned to 16.
        unsafe {
            let first = self.header.add(at).cast::<u64>();
            [AtomicU64::from_ptr(first.as_ptr()), AtomicU64::from_ptr(first.add(1).as_ptr())]
        }
    }
}

/// Bytes that a ring takes.
pub(super) const fn ring_bytes(size_log2: u8) -> usize {
    HEADER_BYTES + (DESCRIPTOR_BYTES << size_log2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strangers::{Account, SpareThreads};

    fn region(bytes: usize) -> Region {
        Region::create(bytes, &Account::new(7, SpareThreads::new("test"))).unwrap().0
    }

    fn ring(direction: Direction) -> Ring {
        let memory: Arc<[Region]> = Arc::new([region(8192)]);
        let ring = Ring::new(memory, 0, 64, 3, direction).unwrap();
        ring.initialize();
        ring
    }

    #[test]
    fn words_are_where_other_implementations_have_them() {
        let ring = ring(Direction::S2m);
        ring.publish_produced(0x0102);
        ring.publish_consumed(0x0304);
        ring.set_descriptor(9, Descriptor { flags: 1, region: 2, length: 3, offset: 4 });
        // SAFETY: all inside the mapping; nobody else has it.
        let bytes = unsafe { std::slice::from_raw_parts(ring.header.as_ptr(), 256) };
        assert_eq!(bytes[..4], COOKIE.to_ne_bytes());
        assert_eq!(bytes[4..6], 1u16.to_ne_bytes());
        assert_eq!(bytes[6..8], 0x0102u16.to_ne_bytes());
        assert_eq!(bytes[64..66], 0x0304u16.to_ne_bytes());
        assert_eq!(bytes[144..146], 1u16.to_ne_bytes());
        assert_eq!(bytes[146..148], 2u16.to_ne_bytes());
        assert_eq!(bytes[148..152], 3u32.to_ne_bytes());
        assert_eq!(bytes[152..156], 4u32.to_ne_bytes());
    }

    #[test]
    fn an_empty_m2s_ring_has_given_out_nothing() {
        let ring = ring(Direction::M2s);
        assert_eq!(ring.consumed(), 0u16.wrapping_sub(8));
        ring.publish_consumed(0);
        assert_eq!((ring.consumed(), ring.produced()), (0, 0));
        assert_eq!(ring.word(HEAD).load(Ordering::Relaxed), 8);
    }

    #[test]
    fn descriptors_come_back_as_written() {
        let ring = ring(Direction::S2m);
        let descriptor = Descriptor { flags: 0, region: 9, length: u32::MAX, offset: 1 << 31 };
        ring.set_descriptor(u16::MAX, descriptor);
        assert_eq!(ring.descriptor(7), descriptor);
        assert!(descriptor.holding(3, true).continues());
    }

    #[test]
    fn rings_outside_their_region_are_refused() {
        let memory: Arc<[Region]> = Arc::new([region(4096)]);
        let make = |region, offset, log2| {
            Ring::new(memory.clone(), region, offset, log2, Direction::S2m).is_some()
        };
        assert!(make(0, 0, 7) && make(0, 4096 - 144, 0));
        assert!(!make(0, 0, 8) && !make(0, 4096 - 128, 0) && !make(1, 0, 0));
        assert!(
            !make(0, 8, 0) && !make(0, u32::MAX - 15, 0) && !make(0, 0, 15) && !make(0, 0, 255)
        );
    }
}
