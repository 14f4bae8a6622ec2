//! `mutants PART...`: plants all bugs of cargo-mutants' list for a part of Clearway in one program,
//! finds out which tests reach each, runs those with it, and lists what they do not see.
//!
//! A bug that hangs a test is found; one that does not compile does not count. What the compiler
//! computes (constants) and hidden types cannot be chosen at run time: with `CONSTANTS=1` each of
//! these is built by itself. `SAMPLE=150` tries so many of the others, at random by `SEED`; with
//! `SKIP=150` the next so many, which nobody has written a test for.

mod list;
mod plant;
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use list::Mutant;
use tests::{Test, Verdict};

struct Part {
    name: &'static str,
    package: &'static str,
    /// What cargo-mutants is told to choose from.
    files: &'static [&'static str],
    /// What cargo is told to test.
    tests: &'static [&'static str],
}

const fn whole(name: &'static str, package: &'static str) -> Part {
    Part { name, package, files: &[], tests: &["--lib"] }
}

const PARTS: [Part; 8] = [
    whole("base", "clearway-base"),
    whole("wire", "clearway-wire"),
    whole("channel", "clearway-channel"),
    whole("classify", "clearway-classify"),
    whole("transport", "clearway-transport"),
    Part {
        tests: &["-p", "clearway-transport", "--lib"],
        ..whole("congestion", "clearway-congestion")
    },
    Part {
        files: &["captures.rs", "frames.rs", "frames/**", "switch/**"],
        tests: &["--lib", "--tests"],
        ..whole("switch", "clearway-engine")
    },
    whole("control", "clearway-control"),
];

/// How many are tried at once.
const AT_ONCE: usize = 2;

fn main() {
    let mut missed = false;
    for name in std::env::args().skip(1) {
        let part = PARTS.iter().find(|part| part.name == name);
        missed |= try_part(part.unwrap_or_else(|| panic!("no part is called {name}")));
    }
    std::process::exit(i32::from(missed));
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// True if something was missed.
fn try_part(part: &Part) -> bool {
    let tree = Path::new("target/mutants").join(part.name);
    list::copy_tree(&tree);
    let mutants = list::mutants(part);
    let left_out = tests::build_all(part, &tree, &mutants);
    let constant: Vec<&Mutant> =
        mutants.iter().filter(|m| left_out.constant.contains(&m.id)).collect();
    let mut chosen: Vec<&Mutant> =
        mutants.iter().filter(|mutant| !left_out.has(mutant.id)).collect();
    println!(
        "{}: {} bugs; {} do not compile, {} are in constants",
        part.name,
        mutants.len(),
        left_out.invalid.len(),
        constant.len(),
    );
    if let Some(sample) = number("SAMPLE") {
        chosen.sort_by_key(|mutant| scramble(mutant.id + 10_007 * number("SEED").unwrap_or(0)));
        chosen.drain(..number("SKIP").unwrap_or(0).min(chosen.len()));
        chosen.truncate(sample);
    }
    let programs = tests::programs(part, &tree).expect("it was built before");
    let tests = tests::find(&programs);
    let mut missed = try_each(&chosen, &tests);
    let mut tried = chosen.len();
    if number("CONSTANTS").is_some() {
        let (viable, unseen) = tests::try_constants(part, &tree, &constant);
        tried += viable;
        missed.extend(unseen);
    }
    for name in &missed {
        println!("missed: {name}");
    }
    println!("{}: {} of {tried} found", part.name, tried - missed.len());
    !missed.is_empty()
}

/// The names of those that no test saw.
fn try_each(mutants: &[&Mutant], tests: &[Test]) -> BTreeSet<String> {
    let (next, hung) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let missed = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Relaxed)) {
                    let reaching = tests.iter().filter(|test| test.reached.contains(&mutant.id));
                    let reaching: Vec<&Test> = reaching.collect();
                    match tests::verdict(mutant.id, &reaching) {
                        Verdict::Found => {}
                        Verdict::Hung => _ = hung.fetch_add(1, Relaxed),
                        Verdict::Missed => {
                            eprintln!("missed, by {} tests: {}", reaching.len(), mutant.name);
                            missed.lock().expect("no panic").insert(mutant.name.clone());
                        }
                    }
                }
            });
        }
    });
    println!("found by tests that did not end: {}", hung.into_inner());
    missed.into_inner().expect("no panic")
}

/// A number that looks as if it were drawn (SplitMix64).
fn scramble(id: usize) -> u64 {
    let mut bits = (id as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
