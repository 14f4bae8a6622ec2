//! Many seeds of networks whose apps speak TCP: under every fault, engines saved and made again all
//! the time, streams arrive byte for byte, all connections end, and nothing is left.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_base::SECOND;
use clearway_sim::{Options, Summary, run};

const SEEDS: u64 = 60;

fn short(seed: u64) -> Options {
    Options { tcp: true, duration_ns: 3 * SECOND, ..Options::new(seed) }
}

fn sum(summaries: &[Summary], figure: &str) -> u64 {
    summaries.iter().map(|summary| summary.figure(figure)).sum()
}

#[test]
fn streams_are_whole_and_nothing_is_left() {
    let next = AtomicU64::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        break;
                    }
                    let outcome = run(&short(seed), &mut |_| {});
                    if let Err(failure) = &outcome {
                        eprintln!("{failure}");
                    }
                    outcomes.lock().expect("no panic with it").push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no panic with it");
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(failed, 0, "seeds failed, see above");
    let summaries: Vec<Summary> = outcomes.into_iter().flatten().collect();
    // What nobody met, nobody has withstood.
    for figure in [
        "loss",
        "bursts of loss",
        "reordering",
        "duplication",
        "partitions",
        "links down",
        "clock steps",
        "stalls",
        "stopped apps",
        "app crashes",
        "host crashes",
        "hostile apps",
        "re-keyed RSS",
        "engines restored",
        "streams_whole",
        "streams_broken",
        "streams_refused",
        "segments_local",
        "segments_held_up",
    ] {
        assert!(sum(&summaries, figure) > 0, "no {figure}");
    }
    println!(
        "{} connections, {} ends closed in order, {} broken, {} bytes",
        sum(&summaries, "streams_opened"),
        sum(&summaries, "streams_whole"),
        sum(&summaries, "streams_broken"),
        sum(&summaries, "stream_bytes_received"),
    );
}

/// Seeds that have failed once, and why.
#[test]
fn what_has_failed_once() {
    let seeds = [
        (38, "who connected to an app that had left in good order was accepted by nobody"),
        (26, "the same, though there was room for a whole segment: of another size than was due"),
        (1001, "the same"),
        (
            42,
            "what came out of order, in pieces of different sizes, had a part of every slab of the \
             receive pool, and what was to be read next found none",
        ),
        (93, "an attempt to connect lost its timeout by a restore"),
        (59, "a listener was closed, and who had begun to connect to it was saved without it"),
    ];
    for (seed, what) in seeds {
        let result = run(&short(seed), &mut |_| {});
        result.unwrap_or_else(|failure| panic!("{what}, once: {failure}"));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| run(&short(seed), &mut |_| {}).unwrap_or_else(|it| panic!("{it}")).trace;
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}
