//! Where the client keeps the frame buffers of a ring, and what both ends share when they touch
//! peer-writable memory.

use super::ring::Descriptor;

/// The peer broke the rules of the shared memory; only a new link can mend that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    /// More descriptors in use than the ring has, or fewer than none.
    #[error("ring index out of range")]
    Index,
    /// A descriptor names memory outside the regions.
    #[error("descriptor outside its region")]
    Extent,
    /// A frame that spans the whole ring and still goes on.
    #[error("descriptor chain without end")]
    Chain,
    /// All buffers of the ring together do not hold one frame of the largest size.
    #[error("buffers too small for a frame")]
    Capacity,
    /// The interrupt descriptor cannot be waited for.
    #[error("interrupt descriptor is not an eventfd")]
    Doorbell,
}

/// The buffers of one ring: one per slot, at fixed places in region 0. The client never reads back
/// from shared memory what it put there itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// Offset of the first buffer.
    pub(super) first: u32,
    /// From one buffer to the next.
    pub(super) stride: u32,
    /// Usable bytes of each.
    pub(super) bytes: u32,
}

impl Buffers {
    /// The distance between buffers of `bytes` bytes: an odd number of cache lines. With a power of
    /// two the first lines of all frames, the only ones that small frames have, would fall into a
    /// few sets of the cache and push each other out.
    pub(super) const fn stride(bytes: u32) -> u32 {
        let lines = bytes.div_ceil(64);
        (lines | 1) * 64
    }

    /// The descriptor of the empty buffer in `slot`.
    #[inline]
    pub(super) const fn descriptor(&self, slot: u16) -> Descriptor {
        let offset = self.first + slot as u32 * self.stride;
        Descriptor { flags: 0, region: 0, length: self.bytes, offset }
    }
}

/// Asks the processor to fetch the cache line at `address` for reading. Any address will do: this
/// never faults.
#[inline]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it does not access memory as far as the program can see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks the processor to fetch the cache line at `address` for writing: the other core, which has
/// read it, gives it up while nobody waits. Any address will do, as for [`prefetch`].
#[inline]
pub(super) fn prefetch_to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, as above. Processors without the instruction take it for one that does
    // nothing. (The intrinsic would become a fetch for reading unless the whole program asked for
    // the feature.)
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
