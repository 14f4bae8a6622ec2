//! `clearway bench isolation`, `engines` and `threads`, short, so that they cannot rot.

use std::process::Command;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn isolation_is_measured() {
    let report = bench(&["isolation", "--seconds", "0.1", "--runs", "1", "--json"]);
    for setting in ["alone", "isolated", "shared", "reads"] {
        assert!(report["settings"][setting]["p99_ns"].as_u64() > Some(0), "{report:#}");
        let flood = report["settings"][setting]["flood_per_s"].as_f64();
        assert_eq!(flood > Some(0.0), setting != "alone", "{report:#}");
    }
    assert_eq!(report["p99_ratio"]["alone"], 1.0);
}

#[test]
fn two_engines_are_beside_one() {
    let report = bench(&["engines", "--seconds", "0.1", "--runs", "1", "--json"]);
    for hosts in ["one", "other", "two", "apart"] {
        assert!(report["rate_per_s"][hosts].as_f64() > Some(0.0), "{report:#}");
    }
    for ratio in ["two_to_ones", "apart_to_ones"] {
        assert!(report[ratio].as_f64() > Some(0.0), "{report:#}");
    }
}

#[test]
fn every_thread_gets_its_messages() {
    let options = ["--threads", "8", "--loads", "400,0", "--seconds", "0.5", "--json"];
    let report = bench(&[&["threads"], &options[..]].concat());
    let outcomes = report["outcomes"].as_array().expect("outcomes");
    let waiting: Vec<_> = outcomes.iter().map(|outcome| &outcome["waiting"]).collect();
    assert_eq!(waiting, ["blocking", "blocking", "polling", "polling"]);
    let [busy, idle] = [&outcomes[0], &outcomes[1]];
    assert_eq!(busy["threads_served"], 8, "{report:#}");
    assert!(busy["sent"].as_u64() > Some(0), "{report:#}");
    assert_eq!(idle["sent"], 0, "{report:#}");
    assert!(
        idle["daemon_cpu_percent"].as_f64() < busy["daemon_cpu_percent"].as_f64(),
        "{report:#}"
    );
}
