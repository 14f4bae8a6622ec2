//! `clearway bench` in every layout and over every wire, small: so that it cannot rot. What it
//! measures here says nothing, and is only checked for being there.

use std::process::Command;

use serde_json::Value;

/// Runs a benchmark of Clearway beside a Unix socket and returns its report.
fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("bench")
        .args(arguments)
        .args(["--compare", "unix", "--seconds", "0.05", "--runs", "1", "--json"])
        .output()
        .expect("clearway can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    serde_json::from_slice(&output.stdout).expect("a report in JSON")
}

fn check(arguments: &[&str]) {
    let report = bench(arguments);
    for figure in ["p50_ns", "p99_ns", "p999_ns", "rate_per_s", "gbit_per_s", "cpu_s"] {
        let value = report["contenders"]["clearway"][figure].as_f64();
        assert!(value > Some(0.0), "{arguments:?}: {figure} is {value:?}");
    }
    for figure in ["p50", "rate", "gbit"] {
        let value = report["ratio"]["unix_spin"][figure].as_f64();
        assert!(value > Some(0.0), "{arguments:?}: ratio {figure} is {value:?}");
    }
}

/// Every workload and layout over `wire`; small messages, and large ones that need many packets.
fn check_all(wire: &str) {
    for layout in ["paired", "hosts"] {
        check(&["rtt", "--wire", wire, "--layout", layout]);
        check(&["rate", "--wire", wire, "--layout", layout, "--size", "1000"]);
        check(&["stream", "--wire", wire, "--layout", layout, "--size", "32768"]);
    }
    check(&["rtt", "--wire", wire, "--layout", "hosts", "--idle", "block"]);
}

#[test]
fn over_memif() {
    check_all("memif");
}

#[test]
fn between_apps_of_one_host() {
    check_all("local");
}

#[test]
fn over_veth() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    check_all("veth");
}
