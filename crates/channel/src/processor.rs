//! On which processor each side runs, so that whoever waits knows whether the other side can run
//! meanwhile, or waits for this very core.
//!
//! Each side writes its own word when that has changed, and reads the other's. Both are hints: a
//! thread may be moved at any time, and a side that lies makes only itself wait for a core.

use crate::sync::{AtomicU32, Ordering};

/// The processor that the calling thread runs on at this moment. The first call in a process finds
/// out how to ask, which takes system calls; later ones take none.
#[allow(clippy::must_use_candidate, reason = "a first call may be made for its effect")]
pub fn current_processor() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

/// One side's view of where the two run.
#[derive(Debug, Default)]
pub(crate) struct Whereabouts {
    /// What the own word says.
    told: u32,
}

impl Whereabouts {
    /// Says in `own` that this side runs on `processor`. Whether `other` says that the other side
    /// does, too; `None` if it has never said anything.
    #[inline]
    pub(crate) fn meet(
        &mut self,
        own: &AtomicU32,
        other: &AtomicU32,
        processor: u32,
    ) -> Option<bool> {
        let word = processor.wrapping_add(1);
        if self.told != word {
            self.told = word;
            // Relaxed, as the load below: nothing else is ordered by these words.
            own.store(word, Ordering::Relaxed);
        }
        there(other).map(|there| there == processor)
    }
}

/// Where `other` says that its side waits; `None` if it has never said anything.
pub(crate) fn there(other: &AtomicU32) -> Option<u32> {
    other.load(Ordering::Relaxed).checked_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    #[test]
    fn a_thread_that_is_bound_to_a_processor_runs_there() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let allowed = sched_getaffinity(None).unwrap();
        let bound = std::thread::spawn(move || {
            for at in (0..CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)) {
                let mut only = CpuSet::new();
                only.set(at);
                sched_setaffinity(None, &only).unwrap();
                assert_eq!(current_processor(), at as u32);
            }
        });
        bound.join().unwrap();
    }

    #[test]
    fn who_shares_a_processor_knows_it_and_who_is_unknown_shares_none() {
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let (mut daemon, mut app) = (Whereabouts::default(), Whereabouts::default());
        assert_eq!(daemon.meet(&words[0], &words[1], 0), None, "nothing is known of the app");
        assert_eq!(app.meet(&words[1], &words[0], 0), Some(true));
        assert_eq!(daemon.meet(&words[0], &words[1], 0), Some(true));
        assert_eq!(daemon.meet(&words[0], &words[1], 1), Some(false), "it was moved");
        assert_eq!(app.meet(&words[1], &words[0], 0), Some(false));
    }
}
