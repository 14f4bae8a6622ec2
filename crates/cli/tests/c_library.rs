//! Programs in C, linked with the shared library, between daemons that are real processes.

mod support;

#[path = "../../capi/tests/support/program.rs"]
mod program;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use clearway_client::{Calls, Code};
use program::{Program, succeed};
use serde_json::Value;
use support::{Daemon, Network, PATIENCE};

/// What `crates/capi/build.rs` calls the shared library.
const SONAME: &str = concat!("libclearway.so.", env!("CARGO_PKG_VERSION_MAJOR"));

/// A program from this file of the repository. Nothing, with a word, where there is no compiler.
fn build(name: &str, source: &str) -> Option<Program> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (include, source) = (root.join("crates/capi/include"), root.join(source));
    let flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic", "-I"].map(OsStr::new);
    let link = program::shared("clearway", SONAME);
    let arguments = flags.into_iter().chain([include.as_os_str(), source.as_os_str()]);
    program::compile("cc", name, arguments.chain(link.iter().map(|word| word.as_os_str())))
}

/// A program that runs until this is dropped.
struct Running(Child);

impl Running {
    /// Waits until it says that it listens.
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let output = process.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let running = Self(process);
        assert_eq!(line, "listening\n");
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(command: &mut Command) {
    succeed(&command.output().expect("it starts"));
}

/// The C program of the benchmarks measures what this program's own apps do.
#[test]
fn benchmarks_have_apps_in_c() {
    let Some(program) = build("bench-app", "bench/app.c") else { return };
    let path = program.0.to_str().expect("a path in UTF-8");
    for words in ["rtt", "rate --layout hosts --size 3", "stream --size 32768", "rtt --wire local"]
    {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_clearway"));
        bench.arg("bench").args(words.split(' ')).args(["--app", "c", "--c-app", path]);
        let output = bench.args(["--compare", "unix", "--runs", "1", "--json"]).output();
        let output = output.expect("it starts");
        succeed(&output);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
        assert_eq!(report["app"], "c");
        let ours = &report["contenders"]["clearway"];
        for figure in ["p50_ns", "p99_ns", "p999_ns", "rate_per_s", "gbit_per_s"] {
            assert!(ours[figure].as_f64() > Some(0.0), "{words}: no {figure} in {report}");
        }
        let (p50, p999) = (ours["p50_ns"].as_u64(), ours["p999_ns"].as_u64());
        assert!(p50 <= ours["p99_ns"].as_u64() && ours["p99_ns"].as_u64() <= p999, "{report}");
    }
}

/// Who asks for apps in C where there are none is told what to do.
#[test]
fn apps_in_c_are_refused_where_there_are_none() {
    let says = |arguments: &[&str], words: &str| {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_clearway"));
        let output = bench.args(["bench", "rtt", "--app", "c"]).args(arguments).output();
        let output = output.expect("it starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(words), "no {words:?} in {message}");
    };
    says(&["--layout", "paired"], "use --layout unpinned or hosts");
    says(&["--tcp"], "without --tcp");
    says(&["--c-app", "/nowhere/app"], "/nowhere/app");
}

/// By an app of another host, and by one of the same engine.
#[test]
fn every_operation_can_be_had_in_c() {
    let Some(program) = build("operations", "crates/capi/tests/operations.c") else { return };
    let network = Network::start();
    let owners = &network.server;
    for askers in [&network.client, owners] {
        let sockets = [&owners.socket, &askers.socket];
        run(program.command().args(sockets).arg(owners.address.to_string()));
    }
}

/// Between two hosts, and within one.
#[test]
fn streams_can_be_had_in_c() {
    let Some(program) = build("streams", "crates/capi/tests/streams.c") else { return };
    let network = Network::start();
    let server = &network.server;
    for client in [&network.client, server] {
        let sockets = [&server.socket, &client.socket];
        run(program.command().args(sockets).arg(server.address.to_string()));
    }
}

/// Clients of both hosts read and change a table whose server sleeps, many at once.
#[test]
fn a_table_is_read_and_changed_while_its_server_sleeps() {
    let Some(program) = build("kv", "examples/kv.c") else { return };
    let network = Network::start();
    let at = |daemon: &Daemon, words: &[&str]| {
        let mut command = program.command();
        command.env("CLEARWAY_SOCKET", &daemon.socket).args(words);
        command
    };
    let (near, far) = (&network.client, &network.server);
    let _server = Running::start(&mut at(far, &["server", "first=one", "second=two", "third="]));
    let address = far.address.to_string();
    let told = |daemon, words: [&str; 2], value: &[&str]| {
        let words = [&[words[0], &address, words[1]], value].concat();
        let output = at(daemon, &words).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
    };
    for daemon in [near, far] {
        assert_eq!(told(daemon, ["get", "second"], &[]), (Some(0), "second=two\n".into()));
        assert_eq!(told(daemon, ["get", "third"], &[]), (Some(0), "third=\n".into()));
        let (code, text) = told(daemon, ["get", "fourth"], &[]);
        assert!(code == Some(1) && text.contains("no entry has that key"), "{text}");
    }
    assert_eq!(told(near, ["set", "second"], &["zwei"]), (Some(0), "second=zwei\n".into()));
    assert_eq!(told(far, ["get", "second"], &[]), (Some(0), "second=zwei\n".into()));
    let values: Vec<String> = (b'a'..=b'j').map(|letter| (letter as char).to_string()).collect();
    std::thread::scope(|scope| {
        for (index, value) in values.iter().enumerate() {
            let daemon = [near, far][index % 2];
            let long = value.repeat(47);
            scope.spawn(move || {
                let (code, text) = told(daemon, ["set", "first"], &[&long]);
                assert_eq!((code, text.len()), (Some(0), "first=\n".len() + 47), "{text}");
            });
        }
    });
    let (_, text) = told(near, ["get", "first"], &[]);
    let value = text.trim_end().strip_prefix("first=").expect("a value");
    assert!(values.iter().any(|letter| letter.repeat(47) == value), "{text}");
    assert_eq!(told(far, ["get", "first"], &[]).1, text);
}

/// A server in C has clients in both languages, many calls at a time.
#[test]
fn both_languages_make_the_same_calls() {
    let Some(program) = build("calls", "examples/calls.c") else { return };
    let network = Network::start();
    let at = |socket, words: &[&str]| {
        let mut command = program.command();
        command.env("CLEARWAY_SOCKET", socket).args(words);
        command
    };
    let _server = Running::start(&mut at(&network.server.socket, &["server"]));
    let address = network.server.address.to_string();
    let words: Vec<String> = (0..100).map(|number| format!("word{number}")).collect();
    let all = ["client", &address].into_iter().chain(words.iter().map(String::as_str));
    let output = at(&network.client.socket, &all.collect::<Vec<_>>()).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for word in &words {
        assert!(text.contains(&format!("{word}: {}\n", word.to_uppercase())), "{text}");
    }
    let mut client = network.client.attach("client");
    let peer = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    let mut calls = Calls::new();
    let answer = calls.call(&mut client, peer, 1, b"rust", Some(PATIENCE)).expect("answered");
    assert_eq!(&*answer, b"RUST");
    let refused = calls.call(&mut client, peer, 2, b"", Some(PATIENCE)).unwrap_err();
    assert_eq!(refused.code(), Code::CallRefused);
}
