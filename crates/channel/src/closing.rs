//! How the daemon says that it is done with a channel, and the app finds out, awake or asleep.
//!
//! Who goes to sleep looks at the word after it has announced its sleep, and who closes looks for
//! sleepers after it has set the word (`sleep.rs`): so nobody sleeps through the end.

use crate::sync::{AtomicU32, Ordering};

/// In the daemon: all that it had to say is in the ring.
pub(crate) fn close(closed: &AtomicU32) {
    // Release pairs with the Acquire in `is_closed`: completions written before are seen before.
    closed.store(1, Ordering::Release);
}

/// In the app.
pub(crate) fn is_closed(closed: &AtomicU32) -> bool {
    // Acquire pairs with the Release in `close`.
    closed.load(Ordering::Acquire) != 0
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;
    use crate::ring::tests::{push, ring, take};
    use crate::sleep::{Fence, arm, disarm, must_ring};

    #[test]
    fn loom_who_sees_the_end_sees_all_that_was_said_before() {
        loom::model(|| {
            let closed = Arc::new(AtomicU32::new(0));
            let (mut producer, mut consumer) = ring(4);
            let word = Arc::clone(&closed);
            let daemon = thread::spawn(move || {
                (0..2).for_each(|value| assert!(push(&mut producer, value)));
                close(&word);
            });
            if is_closed(&closed) {
                assert_eq!([take(&mut consumer), take(&mut consumer)], [Some(0), Some(1)]);
            }
            daemon.join().unwrap();
            assert!(is_closed(&closed));
        });
    }

    /// Loom reports a deadlock if the app waits for a ring that never comes.
    #[test]
    fn loom_nobody_sleeps_through_the_end() {
        loom::model(|| {
            let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), Notify::new()));
            let (_, mut consumer) = ring(4);
            let at_daemon = Arc::clone(&shared);
            let daemon = thread::spawn(move || {
                let (closed, sleeping, doorbell) = &*at_daemon;
                close(closed);
                if must_ring(sleeping, Fence::Own) {
                    doorbell.notify();
                }
            });
            let (closed, sleeping, doorbell) = &*shared;
            while !is_closed(closed) {
                let is_quiet = || matches!(consumer.peek(), Ok(None)) && !is_closed(closed);
                if arm(sleeping, || {}, is_quiet) {
                    doorbell.wait();
                }
                disarm(sleeping);
            }
            assert_eq!(take(&mut consumer), None);
            daemon.join().unwrap();
        });
    }
}
