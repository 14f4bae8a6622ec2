//! Whether this is still the process that had a channel. A child has the same memory and
//! descriptors, but using both at once would mix up what each of them says.

#![allow(unsafe_code)] // registering with the C library

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process and those before it have forked, from the child's side.
static FORKS: AtomicU32 = AtomicU32::new(0);

type Handler = extern "C" fn();

unsafe extern "C" {
    /// POSIX.1-2017.
    fn pthread_atfork(
        prepare: Option<Handler>,
        parent: Option<Handler>,
        child: Option<Handler>,
    ) -> c_int;
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A process, as far as it is another one after `fork`. One that was made by the system call alone,
/// without the C library, is taken for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    forks: u32,
}

impl Process {
    /// The calling process.
    #[must_use]
    pub fn this() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler does what a signal handler may do, which is all that a child of a
            // process with threads may. Without memory for it, children are not told apart.
            let _ = unsafe { pthread_atfork(None, None, Some(count)) };
        });
        Self { forks: FORKS.load(Ordering::Relaxed) }
    }

    /// False in its children.
    #[inline]
    #[must_use]
    pub fn is_this(self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }
}
