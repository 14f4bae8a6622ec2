//! Apps of other releases: one of the last, which knows version 1 of the channel only
//! (`last_release.c`), is served by today's daemon; one that has no version in common with it is
//! told which of the two to update.

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clearway_channel::control::{Attach, Reply, Request};
use clearway_client::{Code, Sizes};
use serde_json::json;
use support::{Daemon, Network, PATIENCE};

/// The linker of every Rust program is a C compiler, so there is one.
fn last_release() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("last_release");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/last_release.c");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"];
    let output = Command::new("cc").args(flags).arg(&program).arg(source).output();
    let output = output.expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Messages of all sizes that fit, over many laps of its rings, to and from another host.
#[test]
fn an_app_of_the_last_release_is_served() {
    let network = Network::start();
    let mut app = Command::new(last_release())
        .arg(&network.server.socket)
        .arg("7000")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(app.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(7000), Some(PATIENCE)).expect("connected");
    for number in 0..200_usize {
        let message = vec![number as u8; number * 80];
        client.send(connection, &message).expect("sent");
        let back = client.recv_zero_copy(Some(PATIENCE)).expect("an echo");
        assert!(*back == *message, "message {number}");
    }
    client.close(connection).expect("closed");
    assert!(app.wait().expect("its end").success());
}

#[test]
fn an_app_of_no_common_version_is_told_what_to_update() {
    let network = Network::start();
    let told = |layout| refusal(&network.server, layout);
    let (code, message) = told(json!({"min": 10, "max": 11}));
    assert_eq!(code, Code::Mismatch);
    assert!(message.contains("understands versions 10 to 11 of the channel"), "{message}");
    assert!(message.contains("this daemon versions 1 to 9; update the daemon"), "{message}");
    let (code, message) = told(json!("0123456789abcdef"));
    assert_eq!(code, Code::Mismatch);
    assert!(message.contains("a layout without a version (0123456789abcdef)"), "{message}");
    assert!(message.contains("build the app with the library"), "{message}");
}

/// What the daemon says to an app that understands only this.
fn refusal(daemon: &Daemon, layout: serde_json::Value) -> (Code, String) {
    let layout = serde_json::from_value(layout).expect("what an app can say");
    let attach = Attach { layout, ..Attach::new("other", None, Sizes::default()) };
    let answer = daemon.ask(&Request::Attach(attach));
    match Reply::parse(answer.as_bytes()) {
        Ok(Reply::Error(refusal)) => (refusal.code, refusal.message),
        other => panic!("{other:?}"),
    }
}
