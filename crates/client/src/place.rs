//! On which core a thread of the app runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Moves the calling thread to `processor`, if it may run there. The kernel may move it away again
/// at any time: where the thread may run is the same afterwards.
pub(crate) fn move_to(processor: u32) {
    let processor = processor as usize;
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    if processor >= CpuSet::MAX_CPU || !allowed.is_set(processor) {
        return;
    }
    let mut there = CpuSet::new();
    there.set(processor);
    if sched_setaffinity(None, &there).is_ok() && sched_setaffinity(None, &allowed).is_err() {
        // None of them is there any more, or allowed by the control group: then any that is.
        let mut every = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|processor| every.set(processor));
        let _ = sched_setaffinity(None, &every);
    }
}

#[cfg(test)]
mod tests {
    use clearway_channel::current_processor;

    use super::*;

    #[test]
    fn a_thread_moves_and_may_run_where_it_might_before() {
        let mut allowed = sched_getaffinity(None).expect("a thread may ask");
        let every: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)).collect();
        for &to in &every {
            move_to(to as u32);
            assert_eq!(sched_getaffinity(None).expect("a thread may ask"), allowed);
        }
        let (last, others) = every.split_last().expect("it runs somewhere");
        if others.is_empty() {
            return;
        }
        allowed.unset(*last);
        sched_setaffinity(None, &allowed).expect("fewer processors");
        let before = current_processor();
        move_to(*last as u32);
        move_to(u32::MAX);
        assert_eq!(sched_getaffinity(None).expect("a thread may ask"), allowed);
        assert!(others.contains(&(before as usize)));
        assert!(others.contains(&(current_processor() as usize)));
    }
}
