//! `tools/packetdrill.py`, with scripts of our own. Skipped, with a word, where there is no Python.

#[path = "../../tests/support/program.rs"]
#[expect(dead_code, reason = "nothing is compiled here")]
mod program;

use std::path::Path;
use std::process::{Command, Output};

/// Plays a script of `crates/lab/tests`.
fn play(arguments: &[&str], script: &str) -> Option<Output> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let runner = root.join("tools/packetdrill.py");
    let script = root.join("crates/lab/tests").join(script);
    let mut python = Command::new("python3");
    python.arg(runner).arg("--target").arg(program::libraries());
    python.args(arguments).arg(script);
    let output = python.output();
    if output.is_err() {
        println!("skipped: there is no python3");
    }
    output.ok()
}

fn assert_agrees(arguments: &[&str], script: &str) {
    let Some(output) = play(arguments, script) else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told, format!("{script}: agrees\n1 of 1 agree\n"));
}

#[test]
fn a_script_agrees() {
    assert_agrees(&["-D", "FIRST=2000"], "handshake.pkt");
}

#[test]
fn a_script_for_freebsd_agrees() {
    assert_agrees(&["--suite", "freebsd"], "freebsd.pkt");
}

#[test]
fn what_differs_is_told() {
    let Some(output) = play(&["-D", "FIRST=1999"], "handshake.pkt") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("handshake.pkt: differs: line 17: length: expected 2000, seen 1999"));
}
