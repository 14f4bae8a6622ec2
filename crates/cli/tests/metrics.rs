//! Metrics: by HTTP, by the file of counters, and what the dashboard makes of them.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use support::{Daemon, Network, clearway, command, eventually, exchange_all_sizes, new_directory};

const DASHBOARD: &str = include_str!("../../../packaging/grafana/clearway.json");

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// What the parser of Prometheus's own Python client makes of a text: name and labels, with values.
fn parsed(text: &str) -> Vec<(String, Value, f64)> {
    let script = "import json, sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families\n\
        families = text_string_to_metric_families(sys.stdin.read())\n\
        print(json.dumps([[s.name, s.labels, s.value] for f in families for s in f.samples]))";
    // Debian's own, for which its packages are.
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    python.stdin.take().expect("piped").write_all(text.as_bytes()).expect("written");
    let output = python.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "python3-prometheus-client is missing, or cannot parse {text}"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn value(samples: &[(String, Value, f64)], name: &str) -> f64 {
    let of_name: Vec<f64> =
        samples.iter().filter(|(other, ..)| other == name).map(|(.., value)| *value).collect();
    assert!(!of_name.is_empty(), "no {name}");
    of_name.iter().sum()
}

fn scraped(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// Two hosts, of which the server's serves metrics at the socket, with traffic between them.
fn busy_network(socket: &Path) -> Network {
    let network = Network::with_server_policy(&format!("[metrics]\nsocket = {socket:?}"));
    exchange_all_sizes(&network.client, &network.server);
    network
}

#[test]
fn a_real_parser_reads_them_and_they_are_what_status_says() {
    let directory = new_directory();
    let socket = directory.join("metrics.sock");
    let network = busy_network(&socket);
    let submitted = || value(&parsed(&scraped(&socket)), "clearway_apps_messages_submitted_total");
    let status = network.server.status();
    let counters = &status["engines"][0]["counters"];
    let wanted = counters["messages_submitted"].as_u64().expect("a number") as f64;
    assert!(wanted >= 10.0, "{counters}");
    eventually("the numbers are published", || submitted() >= wanted);

    let from_http = parsed(&scraped(&socket));
    eventually("they are in the file", || {
        let from_file = parsed(&text(&clearway(&["metrics"], &network.server)));
        let names = |samples: &[(String, Value, f64)]| {
            samples.iter().map(|(name, labels, _)| format!("{name} {labels}")).collect::<Vec<_>>()
        };
        names(&from_http) == names(&from_file)
            && value(&from_file, "clearway_apps_messages_submitted_total") >= wanted
    });
    assert_eq!(value(&from_http, "clearway_queue_link_up"), 1.0);
    let (_, labels, _) =
        &from_http.iter().find(|(name, ..)| name.contains("rx_bytes")).expect("one");
    assert_eq!(labels["queue"], "0");
    // Every counter that status shows of engines and NICs is a metric.
    let names: BTreeSet<&str> = from_http.iter().map(|(name, ..)| name.as_str()).collect();
    let reasons: BTreeSet<&str> =
        from_http.iter().filter_map(|(_, labels, _)| labels["reason"].as_str()).collect();
    for (name, _) in counters.as_object().expect("an object") {
        let is_metric = names.iter().any(|metric| metric.ends_with(&format!("_{name}_total")));
        assert!(is_metric || reasons.contains(name.as_str()), "{name}");
    }
    let _ = fs::remove_dir_all(directory);
}

#[test]
fn no_app_is_named_to_whoever_scrapes() {
    let directory = new_directory();
    let socket = directory.join("metrics.sock");
    let network = busy_network(&socket);
    let _app = network.server.attach("secret-app");
    for text in [scraped(&socket), text(&clearway(&["metrics"], &network.server))] {
        assert!(
            text.contains("clearway_engine_channels_open") && !text.contains("secret"),
            "{text}"
        );
    }
    let _ = fs::remove_dir_all(directory);
}

/// The names of metrics in the dashboard's expressions.
fn named(expression: &str, names: &mut BTreeSet<String>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !is_word(c));
    names.extend(words.filter(|word| word.starts_with("clearway_")).map(str::to_owned));
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut names = BTreeSet::new();
    let panels = dashboard["panels"].as_array().expect("panels");
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        named(target["expr"].as_str().expect("an expression"), &mut names);
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        named(variable["definition"].as_str().unwrap_or_default(), &mut names);
    }
    assert!(names.len() > 20, "{names:?}");
    let network = Network::start();
    eventually("the counters are there", || {
        let samples = parsed(&text(&clearway(&["metrics"], &network.server)));
        let known: BTreeSet<&str> = samples.iter().map(|(name, ..)| name.as_str()).collect();
        // Before an engine has published anything, there are none of its own.
        let is_ready = known.contains("clearway_engine_turns_total");
        let missing: Vec<&String> =
            names.iter().filter(|name| !known.contains(name.as_str())).collect();
        assert!(!is_ready || missing.is_empty(), "there is no {missing:?}");
        is_ready
    });
}

fn counters_of(daemon: &Daemon) -> std::path::PathBuf {
    daemon.socket.with_extension("counters")
}

#[test]
fn counters_outlive_the_daemon_and_say_so() {
    let mut network = Network::start();
    let turns = |output: &Output| {
        let samples = parsed(&text(output));
        let turns = samples.iter().find(|(name, ..)| name == "clearway_engine_turns_total");
        turns.map_or(0.0, |(.., value)| *value)
    };
    let metrics = |daemon: &Daemon| clearway(&["metrics"], daemon);
    eventually("an engine has published", || turns(&metrics(&network.server)) > 0.0);
    assert!(metrics(&network.server).stderr.is_empty());

    // A daemon that does nothing at all is read all the same.
    network.server.signal("STOP");
    assert!(turns(&metrics(&network.server)) > 0.0);
    network.server.signal("CONT");

    network.server.kill();
    let dead = metrics(&network.server);
    let told = String::from_utf8_lossy(&dead.stderr).into_owned();
    assert!(turns(&dead) > 0.0 && told.contains("is dead"), "{told}");

    // Whoever does not read that has the numbers all the same.
    let (reader, unread) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command(&["metrics"], &network.server).stderr(unread).output();
    assert!(turns(&output.expect("the command starts")) > 0.0);

    // The next daemon begins anew, and takes them away when it ends in good order.
    network.server.restart();
    eventually("the new one counts", || metrics(&network.server).stderr.is_empty());
    assert!(counters_of(&network.server).exists());
    assert!(network.server.terminate());
    assert!(!counters_of(&network.server).exists());
    let gone = metrics(&network.server);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("cannot read the counters"));
}
