//! `clearway bench ops`, small, so that it cannot rot. What it measures here says nothing, and is
//! only checked for being there.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Seconds of a run. Where others have the cores, nothing may come back in a short one.
const SECONDS: [&str; 4] = ["0.05", "0.2", "1", "4"];

fn ops(seconds: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["bench", "ops", "--seconds", seconds, "--runs", "1", "--json"])
        .output()
        .expect("clearway can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    serde_json::from_slice(&output.stdout).expect("a report in JSON")
}

/// What is compared, each in a group of its own, without what needs programs of others.
const GROUPS: [&str; 11] = [
    "asleep", "calls", "credit", "indirect", "large", "read", "reads", "regions", "scan",
    "streams", "swaps",
];

/// Those programs, and what is compared with each.
const OTHERS: [(&str, &[&str]); 2] =
    [("ucx_perftest", &["ucx", "local"]), ("fi_pingpong", &["libfabric"])];
/// What has no aim.
const WITHOUT_AIM: [&str; 2] = ["local", "libfabric"];

/// The rows that lack a figure.
fn missing(report: &Value) -> Vec<String> {
    let groups = report["groups"].as_object().expect("groups");
    let is_there = |program: &&str| Command::new(program).arg("-h").output().is_ok();
    let (there, others): (Vec<_>, Vec<_>) =
        OTHERS.into_iter().partition(|(program, _)| is_there(program));
    assert_eq!(report["notes"].as_array().map(Vec::len), Some(others.len()));
    let names: BTreeSet<_> = groups.keys().map(String::as_str).collect();
    let with_others = there.iter().flat_map(|(_, groups)| groups.iter().copied());
    assert_eq!(names, GROUPS.into_iter().chain(with_others).collect());
    let rows_of = |name: &str| groups[name]["rows"].as_array().expect("rows");
    assert!(names.iter().all(|name| !rows_of(name).is_empty()), "{report:#}");
    let rows = names.iter().flat_map(|name| rows_of(name).iter().map(move |row| (name, row)));
    let is_whole = |name: &str, row: &Value| {
        let has_other = row["other"].is_null() || row["ratio"].as_f64() > Some(0.0);
        let has_aim = row["aim"].as_f64() > Some(0.0);
        assert_eq!(has_aim, !WITHOUT_AIM.contains(&name), "{row}");
        row["ours"].as_f64() > Some(0.0) && has_other
    };
    rows.filter(|(name, row)| !is_whole(name, row)).map(|(_, row)| row.to_string()).collect()
}

#[test]
fn every_comparison_is_made() {
    let mut all = SECONDS.iter().map(|seconds| missing(&ops(seconds)));
    assert!(all.any(|missing| missing.is_empty()), "figures are missing");
}

#[test]
fn one_comparison_can_be_chosen() {
    let words = ["bench", "ops", "--only", "calls", "--seconds", "0.05", "--runs", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_clearway")).args(words).output();
    let output = output.expect("clearway can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("64 B call : message") && !text.contains("indirect"), "{text}");
}
