//! `clearway explain`: every counter that status shows says what it is, and the docs are in step.

mod support;

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use support::Network;

fn explain(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.arg("explain").args(arguments).output().expect("the command starts")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_docs_list_is_what_the_code_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/counters.md");
    let generated = text(&explain(&["--markdown"]));
    if std::env::var_os("CLEARWAY_WRITE_DOCS").is_some() {
        std::fs::write(path, &generated).expect("the page");
    }
    assert!(
        std::fs::read_to_string(path).unwrap_or_default() == generated,
        "docs/counters.md is out of date; run this test with CLEARWAY_WRITE_DOCS=1 and commit it"
    );
}

#[test]
fn a_counter_is_explained_and_a_wrong_name_is_not() {
    let output = explain(&["dropped_checksum", "rx_frames_dropped"]);
    assert!(output.status.success());
    let text = text(&output);
    for part in ["Packets whose CRC did not match.", "It rises when", "What to do:", "of a NIC"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let wrong = explain(&["rx_frame_dropped"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("rx_frames_dropped?"));
}

/// Numbers that are no counters: names of things, and what they are configured with.
const NO_COUNTERS: [&str; 10] = [
    "index",
    "core",
    "channel",
    "connection",
    "port",
    "packet_bytes",
    "vif",
    "priority",
    "region",
    "start",
];

/// The names of all numbers in what an engine says.
fn numbers(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if value.is_number() {
                    names.insert(name.clone());
                }
                numbers(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| numbers(value, names)),
        _ => {}
    }
}

#[test]
fn every_counter_that_status_shows_is_explained() {
    let network = Network::start();
    let (mut client, mut server) =
        (network.client.attach("client"), network.server.attach("server"));
    server.listen(4000).expect("listening");
    client.connect(network.server.at(4000), Some(support::PATIENCE)).expect("connected");
    let status = network.client.status();
    let mut names = BTreeSet::new();
    numbers(&status["engines"], &mut names);
    assert!(names.contains("rtt_ns") && names.contains("dropped_checksum"), "{names:?}");
    assert!(names.contains("receive_pool_bytes_used") && names.contains("rx_frames"), "{names:?}");
    let counters: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !NO_COUNTERS.contains(name)).collect();
    let output = explain(&counters);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
