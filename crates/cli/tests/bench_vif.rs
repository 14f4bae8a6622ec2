//! `clearway bench vif`, small: so that it cannot rot. What it measures here says nothing, and is
//! only checked for being there. Where `dpdk-testpmd` is not installed (Debian package `dpdk-dev`),
//! the test says so and passes.

use std::process::Command;

use serde_json::Value;

const CONTENDERS: [&str; 3] = ["io_forward", "wire_to_vif", "vif_to_wire"];
/// What there is no way to do in what ships.
const UNCHECKED: [&str; 2] = ["wire_to_vif_unchecked", "vif_to_wire_unchecked"];

#[test]
fn every_contender_moves_frames() {
    every_contender_moves_frames_of("1");
}

#[test]
fn every_contender_moves_frames_of_many_flows() {
    every_contender_moves_frames_of("64");
}

fn every_contender_moves_frames_of(flows: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join("dpdk-testpmd").exists()) {
        return println!("skipped: dpdk-testpmd is not installed (Debian package dpdk-dev)");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["bench", "vif", "--seconds", "0.05", "--runs", "1", "--flows", flows, "--json"])
        .output()
        .expect("clearway can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    for contender in CONTENDERS {
        let rate = &report["contenders"][contender]["frames_per_s"];
        assert!(rate.as_f64().is_some_and(f64::is_finite), "no rate of {contender}: {report}");
    }
    let has_unchecked = UNCHECKED.map(|contender| report["contenders"][contender].is_object());
    assert_eq!(has_unchecked, [cfg!(feature = "unchecked"); 2], "{report}");
    assert_eq!(report["checking_costs"].is_object(), cfg!(feature = "unchecked"));
}
