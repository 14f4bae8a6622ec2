//! Under loom: a sleeper never sleeps through what was written.

use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;
use crate::ring::tests::{push, ring, take};

struct Shared {
    sleeping: AtomicU32,
    doorbell: Notify,
}

/// Loom reports a deadlock if the consumer waits for a ring that never comes.
#[test]
fn loom_no_wake_is_lost() {
    loom::model(|| {
        let shared = Arc::new(Shared { sleeping: AtomicU32::new(0), doorbell: Notify::new() });
        let (mut producer, mut consumer) = ring(4);
        let waker = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            for value in 0..2 {
                assert!(push(&mut producer, value));
                if must_ring(&waker.sleeping, Fence::Own) {
                    waker.doorbell.notify();
                }
            }
        });
        for expected in 0..2 {
            let value = loop {
                if let Some(value) = take(&mut consumer) {
                    break value;
                }
                if arm(&shared.sleeping, || {}, || matches!(consumer.peek(), Ok(None))) {
                    shared.doorbell.wait();
                }
                // The doorbell of the model clears itself when waited on; a ring that is still on
                // its way wakes the next wait for nothing, as it does in reality.
                disarm(&shared.sleeping);
            };
            assert_eq!(value, expected);
        }
        writer.join().unwrap();
    });
}
