//! The four rings of an AF_XDP socket: single producer, single consumer, shared with the kernel.
//!
//! ```text
//! fill        we produce   chunk addresses the kernel may receive into
//! receive     we consume   descriptors of received frames
//! transmit    we produce   descriptors of frames to send
//! completion  we consume   chunk addresses whose frames have left
//! ```
//!
//! Indexes run freely and are masked on use. The kernel's half is `net/xdp/xsk_queue.h`.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use super::mapping::Mapping;

/// What both kinds of ring share. `mine` is the index this side writes, `theirs` the kernel's.
#[derive(Debug)]
struct Ring<T> {
    mine: NonNull<AtomicU32>,
    theirs: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    /// Our own index, ahead of the published one while a batch is in the making.
    mine_cached: u32,
    /// The kernel's index when it was last looked at.
    theirs_cached: u32,
    _mapping: Mapping,
    _entry: PhantomData<T>,
}

// SAFETY: the pointers go into the mapping that moves along with them.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Goes on from the indexes in memory, which the kernel starts at 0.
    fn new(mapping: Mapping, offsets: &XdpRingOffset, count: u32, role: Role) -> Ring<T> {
        assert!(count.is_power_of_two());
        let word = |offset: u64| mapping.at(offset as usize, size_of::<u32>()).cast::<AtomicU32>();
        let (producer, consumer) = (word(offsets.producer), word(offsets.consumer));
        let (mine, theirs) = match role {
            Role::Producer => (producer, consumer),
            Role::Consumer => (consumer, producer),
        };
        // SAFETY: both words lie in the mapping that the ring is about to own.
        let load = |word: NonNull<AtomicU32>| unsafe { word.as_ref() }.load(Ordering::Acquire);
        let entries_bytes = count as usize * size_of::<T>();
        Ring {
            mine,
            theirs,
            flags: word(offsets.flags.unwrap_or(offsets.producer)),
            entries: mapping.at(offsets.desc as usize, entries_bytes).cast(),
            mask: count - 1,
            mine_cached: load(mine),
            theirs_cached: load(theirs),
            _mapping: mapping,
            _entry: PhantomData,
        }
    }

    fn publish(&self) {
        // Pairs with the kernel's smp_load_acquire of this index: it sees the entries written (or
        // knows that the entries read are free) once it sees the index.
        // SAFETY: the word lies in the mapping that this ring owns.
        unsafe { self.mine.as_ref() }.store(self.mine_cached, Ordering::Release);
    }

    fn look(&mut self) {
        // Pairs with the kernel's smp_store_release of its index.
        // SAFETY: as in `publish`.
        self.theirs_cached = unsafe { self.theirs.as_ref() }.load(Ordering::Acquire);
    }

    fn needs_wakeup(&self) -> bool {
        // A hint, ordered by nothing: the kernel sets it before it looks at the ring for the last
        // time, and we read it after having published.
        // SAFETY: as in `publish`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed)
            & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits()
            != 0
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked, so inside the `mask + 1` entries whose extent was checked in `new`.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }
}

enum Role {
    Producer,
    Consumer,
}

/// A ring that we fill and the kernel empties.
#[derive(Debug)]
pub(super) struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    pub(super) fn new(mapping: Mapping, offsets: &XdpRingOffset, count: u32) -> Producer<T> {
        Producer(Ring::new(mapping, offsets, count, Role::Producer))
    }

    /// Writes one entry. The caller never has more chunks in circulation than the ring has
    /// entries, so there is always room.
    pub(super) fn write(&mut self, entry: T) {
        let slot = self.0.entry(self.0.mine_cached);
        // SAFETY: the slot is inside the ring, and the kernel does not read it before `publish`.
        unsafe { slot.write(entry) };
        self.0.mine_cached = self.0.mine_cached.wrapping_add(1);
    }

    /// Shows all written entries to the kernel.
    pub(super) fn publish(&self) {
        self.0.publish();
    }

    /// How many entries, modulo 2³², the kernel has taken since the ring was made.
    pub(super) fn taken(&mut self) -> u32 {
        self.0.look();
        self.0.theirs_cached
    }

    /// True if the kernel looks at this ring only after a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// A ring that the kernel fills and we empty.
#[derive(Debug)]
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    pub(super) fn new(mapping: Mapping, offsets: &XdpRingOffset, count: u32) -> Consumer<T> {
        Consumer(Ring::new(mapping, offsets, count, Role::Consumer))
    }

    /// How many entries wait, up to `limit`. Looks at the shared index only when the cached one
    /// does not suffice.
    pub(super) fn waiting(&mut self, limit: u32) -> u32 {
        let ring = &mut self.0;
        if ring.theirs_cached.wrapping_sub(ring.mine_cached) < limit {
            ring.look();
        }
        ring.theirs_cached.wrapping_sub(ring.mine_cached).min(limit)
    }

    /// Takes the oldest entry, which [`Consumer::waiting`] has promised.
    pub(super) fn read(&mut self) -> T {
        debug_assert_ne!(self.0.mine_cached, self.0.theirs_cached);
        let slot = self.0.entry(self.0.mine_cached);
        self.0.mine_cached = self.0.mine_cached.wrapping_add(1);
        // SAFETY: the slot is inside the ring, the kernel wrote it before it moved its index, and
        // it does not write it again before `release`.
        unsafe { slot.read() }
    }

    /// Gives the slots of all entries read back to the kernel.
    pub(super) fn release(&self) {
        self.0.publish();
    }
}
