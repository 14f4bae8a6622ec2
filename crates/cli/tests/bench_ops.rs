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

/// What is compared, each in a group of its own, without what needs UCX.
const GROUPS: [&str; 10] = [
    "asleep", "calls", "indirect", "large", "read", "reads", "regions", "scan", "streams", "swaps",
];

/// The rows that lack a figure.
fn missing(report: &Value) -> Vec<String> {
    let groups = report["groups"].as_object().expect("groups");
    let has_ucx = Command::new("ucx_perftest").arg("-h").output().is_ok();
    assert_eq!(report["notes"].as_array().map(Vec::len), Some(usize::from(!has_ucx)));
    let names: BTreeSet<_> = groups.keys().map(String::as_str).collect();
    assert_eq!(names, GROUPS.into_iter().chain(has_ucx.then_some("ucx")).collect());
    let rows_of = |name: &str| groups[name]["rows"].as_array().expect("rows");
    assert!(names.iter().all(|name| !rows_of(name).is_empty()), "{report:#}");
    let rows = names.iter().flat_map(|name| rows_of(name));
    let is_whole = |row: &&Value| {
        let has_other = row["other"].is_null() || row["ratio"].as_f64() > Some(0.0);
        row["ours"].as_f64() > Some(0.0) && row["aim"].as_f64() > Some(0.0) && has_other
    };
    rows.filter(|row| !is_whole(row)).map(ToString::to_string).collect()
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
