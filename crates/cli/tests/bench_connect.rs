//! `clearway bench connect`, small: so that it cannot rot. How long a set-up takes says nothing on
//! a machine that does other things besides; how many packets it takes does.

use std::process::Command;

use serde_json::Value;

fn connect(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["bench", "connect", "--json"])
        .args(arguments)
        .output()
        .expect("clearway can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    for key in ["p50_ns", "p99_ns", "max_ns", "packets_p50", "packets_p95", "retries"] {
        assert!(report[key].is_u64(), "no {key}: {report}");
    }
    report
}

#[test]
fn a_set_up_between_single_engines_takes_few_packets() {
    let report = connect(&["--count", "20"]);
    assert!((3..=6).contains(&report["packets_p50"].as_u64().unwrap()), "{report}");
}

#[test]
fn many_engines_stay_within_the_papers_bound() {
    let report = connect(&[
        "--client-engines",
        "4",
        "--server-engines",
        "4",
        "--count",
        "40",
        "--seed",
        "2",
    ]);
    // Machnet, section 4.2: 25 packets for four engines, at 95 %. A machine that does other things
    // besides lets the second wave go out before the answer to the first is seen.
    assert!(report["packets_p50"].as_u64() <= Some(25), "{report}");
    assert_eq!(report["detours"], 0, "{report}");
}

#[test]
fn a_hash_that_ignores_source_ports_costs_a_detour_and_no_connection() {
    let report = connect(&[
        "--client-engines",
        "2",
        "--server-engines",
        "2",
        "--count",
        "4",
        "--rss",
        "destination",
    ]);
    assert!(report["detours"].as_u64() > Some(0), "{report}");
}

#[test]
fn daemons_set_up_connections_through_a_fabric_process() {
    let report = connect(&["--count", "3", "--processes"]);
    assert!((3..=6).contains(&report["packets_p50"].as_u64().unwrap()), "{report}");
}
