//! Many seeds, each of which is another network with other bad luck. Which seed failed, and how to
//! see it again, says the failure; `clearway sim --seed N` shows it alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clearway_base::SECOND;
use clearway_sim::{Options, Summary, run};

const SEEDS: u64 = 200;

fn pass(options: &Options) -> Summary {
    run(options, &mut |_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Some seconds of chaos, and the calm after it.
fn short(seed: u64) -> Options {
    Options { duration_ns: 3 * SECOND, ..Options::new(seed) }
}

/// Runs seeds on two threads until `next` has no more. Returns what they came to; which of them
/// failed, it says all at once.
fn pass_all(next: impl Fn() -> Option<Options> + Sync) -> Vec<Summary> {
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(options) = next() {
                    let outcome = run(&options, &mut |_| {});
                    if let Err(failure) = &outcome {
                        eprintln!("{failure}");
                    }
                    outcomes.lock().expect("no panic with it").push(outcome);
                }
            });
        }
    });
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    for outcome in outcomes.into_inner().expect("no panic with it") {
        match outcome {
            Ok(summary) => passed.push(summary),
            Err(failure) => failed.push(failure.to_string()),
        }
    }
    assert!(failed.is_empty(), "{} seeds failed:\n{}", failed.len(), failed.join("\n\n"));
    passed
}

fn sum(summaries: &[Summary], figure: &str) -> u64 {
    summaries.iter().map(|summary| summary.figure(figure)).sum()
}

#[test]
fn two_hundred_seeds_and_an_hour_pass() {
    let seed = AtomicU64::new(0);
    let next = || {
        let seed = seed.fetch_add(1, Ordering::Relaxed);
        (seed < SEEDS).then(|| short(seed))
    };
    let summaries = pass_all(next);
    let simulated_ns: u64 = summaries.iter().map(|summary| summary.simulated_ns).sum();
    assert!(simulated_ns >= 3600 * SECOND, "{} s", simulated_ns / SECOND);
    for summary in &summaries {
        assert!(summary.figure("engines restored") > 100, "{summary}");
    }
    // The faults are there: what nobody met, nobody has withstood.
    for figure in [
        "loss",
        "bursts of loss",
        "reordering",
        "duplication",
        "bit flips",
        "delay jumps",
        "slow paths",
        "partitions",
        "links down",
        "clock steps",
        "clock steps back",
        "routes lost",
        "second NICs",
        "stalls",
        "stopped apps",
        "app crashes",
        "host crashes",
        "listeners gone",
        "interfaces opened",
        "interfaces refused",
        "requests denied",
        "apps without a channel",
        "hostile apps",
        "fan-ins",
        "re-keyed RSS",
        "frames_lost",
        "frames_duplicated",
        "frames_corrupted",
        "frames_delayed",
        "frames_slow",
        "frames_routed",
        "frames_without_route",
        "frames_said_too_large",
        "frames_overflowed",
        "frames_cut",
        "connections_left",
        "ended_reset",
        "ended_lost",
        "ended_refused",
        "messages_overtaking",
        "messages_dropped",
        "raw_frames_received",
        "buffers_posted",
        "messages_placed",
        "buffers_cancelled",
        "buffers_ended",
        "buffers_refused",
        "priorities_set",
        "flows_in_order",
        "shares_compared",
        "operations_done",
        "operations_refused",
        "operations_ended",
        "operations_long",
        "operations_notified",
        "operations_before_messages",
        "leases_revoked",
    ] {
        assert!(sum(&summaries, figure) > 0, "no {figure}");
    }
    println!(
        "{} s, {} messages, {} bytes",
        simulated_ns / SECOND,
        sum(&summaries, "messages_received"),
        sum(&summaries, "bytes_received")
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 20, 51] {
        let traces = [pass(&short(seed)).trace, pass(&short(seed)).trace];
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], pass(&short(seed + 1)).trace);
    }
}

#[test]
fn two_hundred_hosts_in_one_network() {
    let options = Options { hosts: Some(200), duration_ns: SECOND, ..Options::new(11) };
    let summary = pass(&options);
    assert!(summary.figure("messages_received") > 5_000, "{summary}");
}

/// Seeds that have failed once, and why.
#[test]
fn what_has_failed_once() {
    let seeds = [
        (
            20,
            "each probe repeated what the receiver had no room for, and what was due was never \
             sent",
        ),
        (
            7,
            "early messages of different sizes had taken every slab of the receive pool; later, a \
             peer that called for probes often enough hid a black hole",
        ),
        (
            912_000_129,
            "a syn that was repeated for seconds gave a round trip of seconds, and probes waited \
             for it",
        ),
        (2_026_114_443, "a syn-ack told a limit that the client, connected, did not read"),
        (166, "what a flow told of itself moved streams' places, and weights meant nothing"),
        (
            2_026_141_184,
            "keep-alive put off all probes, so that a path that had become narrow was never \
             found out",
        ),
    ];
    for (seed, what) in seeds {
        let result = run(&Options::new(seed), &mut |_| {});
        result.unwrap_or_else(|failure| panic!("{what}, once: {failure}"));
    }
}

/// `make soak`: ever new seeds for as long as the environment says. Some have more engines than a
/// seed gives them by itself.
#[test]
#[ignore = "takes as long as one likes: `make soak SOAK_MINUTES=60`"]
fn soak() {
    let minutes = std::env::var("CLEARWAY_SOAK_MINUTES").expect("minutes, from `make`");
    let minutes: u64 = minutes.parse().expect("a number");
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let start = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let first = start.as_secs() << 20;
    let seed = AtomicU64::new(first);
    pass_all(|| {
        let seed = seed.fetch_add(1, Ordering::Relaxed);
        let engines = seed.is_multiple_of(5).then_some(8);
        (Instant::now() < end).then(|| Options { engines, ..Options::new(seed) })
    });
    println!("{} seeds passed", seed.into_inner() - first);
}
