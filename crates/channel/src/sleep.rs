//! How a side goes to sleep without missing what the other side writes at that moment.
//!
//! ```text
//!   sleeper: sleeping = 1; fence; look at the ring ─ not empty ─▶ stay awake
//!                                    └ empty ─▶ wait on the doorbell
//!   waker:   write entries; fence; look at `sleeping` ─ set ─▶ clear it, ring the doorbell
//! ```
//!
//! Each side writes, fences, and then reads what the other wrote: at least one of them sees the
//! other (Dekker). Clearing before ringing keeps it to one ring per sleep.

use crate::sync::{AtomicU32, Ordering, fence};

/// How a waker keeps its look at `sleeping` behind its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// By itself.
    Own,
    /// The sleeper does it for both, with `barrier::everywhere`; here only the compiler must not
    /// reorder.
    Sleepers,
    /// Nobody: both ends are used by one thread, which sees what it wrote itself.
    None,
}

/// The first half of [`arm`]: the other side is told to ring. `barrier`, and a look at the ring,
/// are to follow.
pub(crate) fn announce(sleeping: &AtomicU32) {
    // A swap where a store would do: loom knows the order of two swaps of a word, but not that of a
    // swap and a store.
    sleeping.swap(1, Ordering::Relaxed);
    // Pairs with the fence in `must_ring`: the swap above is before the look at the ring.
    fence(Ordering::SeqCst);
}

/// Announces sleep. True: nothing was waiting, and from now on the other side will ring. False:
/// something is there. Either way `disarm` follows. `barrier` is run between the announcement and
/// the look.
pub(crate) fn arm(
    sleeping: &AtomicU32,
    barrier: impl FnOnce(),
    is_empty: impl FnOnce() -> bool,
) -> bool {
    announce(sleeping);
    barrier();
    is_empty()
}

/// Ends what `arm` began. True if the other side has rung, or is about to, so that the doorbell
/// wants clearing.
pub(crate) fn disarm(sleeping: &AtomicU32) -> bool {
    sleeping.swap(0, Ordering::Relaxed) == 0
}

/// After writing to the ring: whether the other side sleeps and must be rung now.
#[inline]
pub(crate) fn must_ring(sleeping: &AtomicU32, kind: Fence) -> bool {
    match kind {
        // Pairs with the fence in `arm`: the entries are before the look at the word.
        Fence::Own => fence(Ordering::SeqCst),
        Fence::Sleepers | Fence::None => core::sync::atomic::compiler_fence(Ordering::SeqCst),
    }
    sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::Relaxed) != 0
}

#[cfg(all(test, loom))]
mod tests;

#[cfg(all(test, not(loom)))]
mod plain_tests {
    use super::*;

    #[test]
    fn who_sleeps_is_rung_once_and_who_was_rung_has_something_to_clear() {
        for kind in [Fence::Own, Fence::Sleepers, Fence::None] {
            let sleeping = AtomicU32::new(0);
            assert!(!must_ring(&sleeping, kind));
            assert!(arm(&sleeping, || {}, || true));
            assert!(!disarm(&sleeping), "nobody has rung");
            assert!(!must_ring(&sleeping, kind), "it is awake again");
            assert!(!arm(&sleeping, || {}, || false));
            assert!(must_ring(&sleeping, kind) && !must_ring(&sleeping, kind));
            assert!(disarm(&sleeping));
        }
    }
}
