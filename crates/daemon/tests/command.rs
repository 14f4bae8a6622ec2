//! The `clearway` command without a daemon: exit codes, remedies, readers that go away.

use std::process::{Command, Output, Stdio};

fn clearway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(arguments)
        .output()
        .expect("the command starts")
}

fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = clearway(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "{arguments:?}: {part} is missing in {text}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?} failed and printed something nevertheless");
}

#[test]
fn failures_have_exit_codes_and_remedies() {
    let nowhere = ["--socket", "/nonexistent/clearway.sock"];
    let no_daemon = ["no daemon is running", "clearway daemon --config"];
    refused(&[&["status"], &nowhere[..]].concat(), 1, &no_daemon);
    refused(&[&["ping", "10.0.0.1"], &nowhere[..]].concat(), 1, &no_daemon);
    refused(&["ping", "somewhere"], 2, &["invalid IP address"]);
    refused(&["ping", "10.0.0.1", "--size", "5"], 2, &["24..=1400"]);
    refused(&["ping", "10.0.0.1", "--count", "0"], 2, &["count"]);
    refused(&["daemon"], 2, &["--config"]);
    let missing = ["daemon", "--config", "/nonexistent/clearway.toml"];
    refused(&missing, 2, &["/nonexistent/clearway.toml: cannot read it", "--config"]);
    refused(&["nonsense"], 2, &["nonsense"]);
}

#[test]
fn version_and_help_are_there() {
    let version = clearway(&["--version"]);
    let text = String::from_utf8_lossy(&version.stdout);
    assert_eq!(text.trim(), format!("clearway {}", env!("CARGO_PKG_VERSION")));
    let help = clearway(&["--help"]);
    let text = String::from_utf8_lossy(&help.stdout);
    for command in ["daemon", "status", "ping", "doctor", "bench", "demo"] {
        assert!(text.contains(command), "{command} is missing in {text}");
    }
    assert!(!text.contains("bench-role"), "{text}");
}

#[test]
fn doctor_speaks_json_too() {
    let output = clearway(&["doctor", "--json"]);
    assert!(output.status.success());
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = findings.as_array().expect("a list");
    assert!(findings.iter().any(|finding| finding["subject"] == "kernel"));
    for finding in findings.iter().filter(|finding| finding["verdict"] != "good") {
        assert!(finding["advice"].is_string(), "{finding}");
    }
}

/// `clearway doctor | true`.
#[test]
fn reader_that_goes_away_is_no_failure() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("doctor")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(process.stdout.take());
    let output = process.wait_with_output().expect("the end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}

/// `--check` of the example that is shipped says what has to be put in: the own interface.
#[test]
fn shipped_example_is_checked() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clearway.toml");
    let output = clearway(&["daemon", "--config", example, "--check"]);
    let (told, said) = (output.stderr, output.stdout);
    let text = String::from_utf8_lossy(&told) + String::from_utf8_lossy(&said);
    let fine = output.status.success() && text.contains("is valid: 1 NIC(s) (eth0)");
    let no_eth0 = output.status.code() == Some(2) && text.contains("no interface \"eth0\"");
    assert!(fine || no_eth0, "{text}");
}
