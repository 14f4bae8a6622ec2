//! The kernel runs the program on packets of our making (`BPF_PROG_TEST_RUN`). Needs root; says so
//! and passes otherwise.

use aya::programs::{TestRun, TestRunOptions};
use clearway_base::Random;
use clearway_wire::digest::{Digest, WORDS};

use super::*;
use crate::test_frames as frames;

const TCX_NEXT: u32 = u32::MAX;
const TCX_DROP: u32 = 2;

/// Matches the frames that look the same in all that a digest says.
fn alike(frame: &[u8]) -> SteerPattern {
    let mut mask = [u64::MAX; WORDS];
    mask[WORDS - 1] = 0;
    SteerPattern::new(mask, *Digest::of(frame).words()).expect("the eighth word is left out")
}

#[test]
fn what_is_hidden_is_what_the_engine_has() {
    let mut ebpf = match load() {
        Ok(loaded) => loaded,
        Err(Error::Permission(text)) => return println!("skipped: {text}"),
        Err(error) => panic!("{error}"),
    };
    let mut patterns = tables_of(&ebpf, &TABLES).and_then(patterns).expect("its tables");
    let mut random = Random::new(13);
    let frames: Vec<_> = (0..6000).map(|_| frames::random(&mut random)).collect();
    let mut known: Vec<_> = frames.iter().step_by(2).map(|frame| alike(frame)).collect();
    known.sort_unstable();
    known.dedup();
    known.iter().for_each(|pattern| patterns.insert(pattern).expect("there is room"));
    let mut counts = [0; 2];
    for frame in &frames {
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        // The kernel makes no packet of what has no IP header where its type says so.
        let Ok(result) = program(&mut ebpf).test_run(options) else { continue };
        let is_known = known.binary_search(&alike(frame)).is_ok();
        counts[usize::from(is_known)] += 1;
        let expected = if is_known { TCX_DROP } else { TCX_NEXT };
        assert_eq!(result.return_value, expected, "{:x?}: {frame:02x?}", Digest::of(frame));
    }
    assert!(counts.iter().all(|count| *count > 300), "{counts:?} unknown and known");
}
