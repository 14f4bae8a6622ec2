//! Many seeds of networks whose apps share memory and ask for what others share: under every fault,
//! engines saved and made again all the time, what is answered has an order that is that of time,
//! and nothing is done twice, or to what is not shared, or not with who asks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_base::SECOND;
use clearway_sim::{Options, Summary, run};

/// `seeds.rs` has more: a third of its seeds have operations.
const SEEDS: u64 = 8;

fn short(seed: u64) -> Options {
    Options { operations: Some(true), duration_ns: 3 * SECOND, ..Options::new(seed) }
}

fn sum(summaries: &[Summary], figure: &str) -> u64 {
    summaries.iter().map(|summary| summary.figure(figure)).sum()
}

#[test]
fn histories_are_in_order_and_nothing_is_done_twice() {
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
        "engines restored",
        "operations_asked",
        "operations_done",
        "operations_refused",
        "operations_ended",
        "operations_rushed",
        "operations_long",
        "operations_notified",
        "operations_before_messages",
        "leases_revoked",
        "vaults_opened",
        "vaults_refused",
        "requests_forged",
    ] {
        assert!(sum(&summaries, figure) > 0, "no {figure}");
    }
    for figure in [
        "operations_asked",
        "operations_done",
        "operations_refused",
        "operations_ended",
        "vaults_opened",
        "vaults_refused",
        "requests_forged",
    ] {
        println!("{figure} {}", sum(&summaries, figure));
    }
}

/// Seeds that have failed once, and why.
#[test]
fn what_has_failed_once() {
    let seeds = [(82, "an engine was saved between an answer and the request's acknowledgement")];
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
