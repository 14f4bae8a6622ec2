//! Many seeds of networks whose apps share memory and ask for what others share: under every fault,
//! engines saved and made again all the time, what is answered has an order that is that of time,
//! and nothing is done twice, or to what is not shared, or not with who asks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clearway_base::SECOND;
use clearway_sim::{Options, Summary, run};

/// `seeds.rs` has more: a third of its seeds have operations.
const SEEDS: u64 = 8;
/// Of these, some have vaults: regions that are shared with some hosts, and one user of their own.
const SEEDS_WITH_VAULTS: [u64; 4] = [3, 4, 6, 7];

fn short(seed: u64) -> Options {
    Options { operations: Some(true), duration_ns: 3 * SECOND, ..Options::new(seed) }
}

fn sum(summaries: &[Summary], figure: &str) -> u64 {
    summaries.iter().map(|summary| summary.figure(figure)).sum()
}

/// What is seen in all of these, which two threads run.
fn run_all(options: &[Options]) -> Vec<Summary> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(options) = options.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(options, &mut |_| {});
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
    outcomes.into_iter().flatten().collect()
}

#[test]
fn histories_are_in_order_and_nothing_is_done_twice() {
    let summaries = run_all(&(0..SEEDS).map(short).collect::<Vec<_>>());
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
        "groups_set",
        "clubs_opened",
        "clubs_refused",
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
        "groups_set",
        "clubs_opened",
        "clubs_refused",
        "requests_forged",
    ] {
        println!("{figure} {}", sum(&summaries, figure));
    }
}

/// Hosts with several engines, where an app that asks is known by its user as well.
#[test]
fn who_may_do_what_is_granted_is_known_at_every_engine() {
    let crowded = |seed| Options { hosts: Some(2), engines: Some(3), ..short(seed) };
    let summaries = run_all(&SEEDS_WITH_VAULTS.map(crowded));
    for figure in ["vaults_opened", "vaults_refused", "requests_forged"] {
        assert!(sum(&summaries, figure) > 0, "no {figure}");
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
