//! `tools/packetdrill.py`, with a script of our own. Skipped, with a word, where there is no
//! Python.

#[path = "../../tests/support/program.rs"]
#[expect(dead_code, reason = "nothing is compiled here")]
mod program;

use std::path::Path;
use std::process::{Command, Output};

/// Plays the script, in which `FIRST` stands for so many bytes.
fn play(first: &str) -> Option<Output> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let runner = root.join("tools/packetdrill.py");
    let script = root.join("crates/lab/tests/handshake.pkt");
    let mut python = Command::new("python3");
    python.arg(runner).arg("--target").arg(program::libraries());
    python.arg("-D").arg(format!("FIRST={first}")).arg(script);
    let output = python.output();
    if output.is_err() {
        println!("skipped: there is no python3");
    }
    output.ok()
}

#[test]
fn a_script_agrees() {
    let Some(output) = play("2000") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told, "handshake.pkt: agrees\n1 of 1 agree\n");
}

#[test]
fn what_differs_is_told() {
    let Some(output) = play("1999") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("handshake.pkt: differs: line 17: length: expected 2000, seen 1999"));
}
