//! Threads that use queues are made known to DPDK, whose pools then keep a cache of free buffers
//! for each. Without one every buffer is an exchange with the pool that all threads share.

use super::sys;

/// That the calling thread is known. Forgotten when the thread ends, since DPDK has room for 128.
struct Known {
    by_us: bool,
}

impl Known {
    fn new() -> Self {
        // SAFETY: the environment runs, since there is a queue; registering is allowed to any
        // thread. If it fails, because there is no room, the thread works without a cache.
        Self { by_us: unsafe { sys::clearway_dpdk_enter() } == 0 }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if self.by_us {
            // SAFETY: this thread was registered, and ends. For a thread of DPDK's own it does
            // nothing.
            unsafe { sys::clearway_dpdk_leave() };
        }
    }
}

thread_local! {
    static KNOWN: Known = Known::new();
}

/// Makes the calling thread known, if it is not.
#[inline]
pub(super) fn enter() {
    KNOWN.with(|_| ());
}
