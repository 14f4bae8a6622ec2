//! Lets the app look at the daemon's `sleeping` word without a fence of its own.
//!
//! A fence right after an entry was written waits until the entry's cache line has come over from
//! the daemon's core: about 100 ns for each message, in which nothing else happens. The daemon
//! sleeps rarely; so it pays for both: `membarrier` makes every core that runs an app execute a
//! fence, some microseconds before a sleep whose end costs tens of them. The app must have
//! registered for that; one that lies about it only misses its own wake-ups.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Whether the kernel can do it (Linux 4.16 and later, unless a sandbox forbids it).
pub(crate) fn is_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let found = membarrier_query();
        let needed =
            [MembarrierCommand::GlobalExpedited, MembarrierCommand::RegisterGlobalExpedited];
        needed.into_iter().all(|command| found.contains_command(command))
    })
}

/// In the app: from now on the daemon's barriers reach this process. False if they cannot.
pub(crate) fn register() -> bool {
    is_supported() && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// In the daemon: every running thread of every registered process has executed a full fence
/// between the beginning and the end of this call. Those that do not run have done so when they
/// were switched away.
pub(crate) fn everywhere() {
    if is_supported() {
        let _ = membarrier(MembarrierCommand::GlobalExpedited);
    }
}
