//! `clearway bench` in every layout and over every wire, small: so that it cannot rot. What it
//! measures here says nothing, and is only checked for being there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Seconds of a run. Where others have the cores, no message may come back in a short one.
const SECONDS: [&str; 4] = ["0.05", "0.2", "1", "4"];

/// Runs a benchmark of Clearway beside a Unix socket and returns its report.
fn bench(arguments: &[&str], seconds: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("bench")
        .args(arguments)
        .args(["--compare", "unix", "--seconds", seconds, "--runs", "1", "--json"])
        .output()
        .expect("clearway can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    assert!(!messages.contains("refused the system call"), "{arguments:?}: {messages}");
    serde_json::from_slice(&output.stdout).expect("a report in JSON")
}

fn check(arguments: &[&str]) {
    let reports = SECONDS.iter().map(|seconds| bench(arguments, seconds));
    let missing: Vec<String> = reports
        .map(|report| missing_figures(&report))
        .take_while(|missing| !missing.is_empty())
        .collect();
    assert!(missing.len() < SECONDS.len(), "{arguments:?}: there is no {missing:?}");
}

/// The figures that a report lacks.
fn missing_figures(report: &Value) -> String {
    let contenders = &report["contenders"];
    let ours = ["clearway", "clearway_tcp"].into_iter().find(|name| contenders[name].is_object());
    let ours = &contenders[ours.unwrap_or_default()];
    let figures = ["p50_ns", "p99_ns", "p999_ns", "rate_per_s", "gbit_per_s", "cpu_s"]
        .map(|figure| (figure, &ours[figure]));
    let ratios = ["p50", "rate", "gbit"].map(|ratio| (ratio, &report["ratio"]["unix_spin"][ratio]));
    let in_place = &report["ratio"]["clearway_tcp_in_place"];
    let in_place = in_place.is_object().then_some(("in place", &in_place["rate"]));
    let all = figures.into_iter().chain(ratios).chain(in_place);
    let missing = all.filter(|(_, value)| value.as_f64() <= Some(0.0)).map(|(name, _)| name);
    missing.collect::<Vec<_>>().join(", ")
}

/// Every workload and layout over `wire`; small messages, and large ones that need many packets.
fn check_all(wire: &str) {
    for layout in ["paired", "hosts", "unpinned"] {
        check(&["rtt", "--wire", wire, "--layout", layout]);
        check(&["rate", "--wire", wire, "--layout", layout, "--size", "1000"]);
        check(&["stream", "--wire", wire, "--layout", layout, "--size", "32768"]);
    }
    check(&["rtt", "--wire", wire, "--layout", "hosts", "--idle", "block"]);
}

#[test]
fn over_memif() {
    check_all("memif");
    check(&["rtt", "--layout", "embedded"]);
    check(&["stream", "--layout", "embedded", "--size", "32768"]);
}

#[test]
fn between_apps_of_one_host() {
    check_all("local");
}

#[test]
fn over_veth() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to make network namespaces");
        return;
    }
    check_all("veth");
    check(&["rate", "--wire", "af-xdp", "--layout", "hosts"]);
}

#[test]
fn over_udp_sockets() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    check_all("udp");
    check(&["rtt", "--wire", "udp", "--layout", "embedded"]);
    check(&["stream", "--wire", "udp", "--layout", "embedded", "--size", "32768"]);
}

/// TCP at both ends; and at one, with the kernel's at the other.
#[test]
fn by_tcp() {
    for layout in ["paired", "hosts", "unpinned", "embedded"] {
        check(&["rtt", "--tcp", "--layout", layout]);
        check(&["stream", "--tcp", "--layout", layout, "--size", "32768", "--in-place"]);
    }
    check(&["rate", "--tcp", "--wire", "local", "--size", "1000"]);
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to make network namespaces");
    }
    for end in ["client", "server"] {
        let veth = ["--tcp", "--wire", "veth", "--kernel-end", end];
        check(&[&["rtt", "--layout", "hosts"], &veth[..]].concat());
        check(&[&["stream", "--size", "300000"], &veth[..]].concat());
    }
}

/// TCP connections opened and closed, and kept.
#[test]
fn connections_are_counted() {
    let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["bench", "connections", "--in-flight", "1,8", "--held", "300"])
        .args(["--seconds", "0.3", "--runs", "2", "--json"])
        .output()
        .expect("it starts");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    for (at, in_flight) in [1, 8].into_iter().enumerate() {
        let opened = &report["opened"][at];
        assert_eq!(opened["in_flight"], in_flight);
        for figure in ["clearway_per_s", "kernel_per_s", "ratio"] {
            assert!(opened[figure].as_f64() > Some(0.0), "no {figure} in {opened}");
        }
    }
    let held = &report["held"];
    assert_eq!(held["count"], 300);
    for figure in ["alone_ns", "beside_ns"] {
        assert!(held[figure].as_f64() > Some(0.0), "no {figure} in {held}");
    }
}

/// Many connections of each app, to both sides' processor time per Gbit.
#[test]
fn by_many_connections() {
    let words = ["bench", "stream", "--connections", "20", "--size", "32768", "--window", "2"];
    for layout in ["unpinned", "hosts"] {
        let report = SECONDS.iter().map(|seconds| {
            let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
                .args(words)
                .args(["--layout", layout, "--seconds", seconds, "--runs", "1", "--json"])
                .output()
                .expect("clearway can be started");
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{layout}: {messages}");
            serde_json::from_slice::<Value>(&output.stdout).expect("a report in JSON")
        });
        let is_whole = |report: &Value| {
            assert_eq!(report["connections"], 20);
            assert_eq!(
                report["contenders"].as_object().map(|all| all.len()),
                Some(4),
                "{report:#}"
            );
            ["clearway", "tcp_spin", "tcp_block", "tcp_batch"].iter().all(|contender| {
                ["gbit_per_s", "cpu_s_per_gbit"]
                    .iter()
                    .all(|figure| report["contenders"][contender][figure].as_f64() > Some(0.0))
            })
        };
        assert!(
            report.into_iter().any(|report| is_whole(&report)),
            "{layout}: a figure is missing"
        );
    }
}

/// What is in flight is seen, and what the path takes.
#[test]
fn what_is_in_flight_is_seen() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to make network namespaces");
    }
    let mut reports = SECONDS.iter().map(|seconds| {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["bench", "flight", "--seconds", seconds, "--runs", "1", "--json"])
            .output()
            .expect("clearway can be started");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        serde_json::from_slice::<Value>(&output.stdout).expect("a report in JSON")
    });
    let figures = ["gbit_per_s", "round_trip_ns", "in_flight_bytes", "path_bytes", "looks"];
    let is_whole = |report: &Value| {
        let wires = report["wires"].as_array().expect("wires");
        let names: Vec<_> = wires.iter().map(|row| &row["wire"]).collect();
        assert_eq!(names, ["memif", "veth"]);
        wires.iter().all(|row| figures.iter().all(|figure| row[figure].as_f64() > Some(0.0)))
    };
    assert!(reports.any(|report| is_whole(&report)), "a figure is missing");
}

const NOBODY: u32 = 65534;

/// The demo as an ordinary user sees it: in namespaces of its own where the kernel lets everybody
/// have them, and else without any.
#[test]
fn the_demo_without_root() {
    let place = Place::new("demo");
    let mut demo = place.as_nobody("./clearway");
    let output = demo.args(["demo", "--seconds", "0.05"]).output().expect("the demo starts");
    let (text, messages) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{messages}");
    let mut unshare = place.as_nobody("unshare");
    let has_namespaces = unshare.args(["--user", "--map-root-user", "--net", "true"]).status();
    let wire = match has_namespaces.is_ok_and(|status| status.success()) {
        true => "Clearway over Udp",
        false => "Clearway over Memif",
    };
    assert!(text.contains(wire), "no {wire:?} in:\n{text}\n{messages}");
    let rows = text.lines().filter(|line| line.contains("Clearway") && line.contains('┆'));
    assert_eq!(rows.count(), 2, "{text}");
}

/// The demo of TCP, small: curl finds what both servers serve right, and wrk measures both.
#[test]
fn the_demo_of_tcp() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to make network namespaces");
    }
    if Command::new("wrk").output().is_err() {
        return println!("skipped: wrk is not installed (Debian package wrk)");
    }
    for wire in ["veth", "af-packet"] {
        let cells = ["--body", "0,8192", "--connections", "1,16", "--runs", "1", "--json"];
        let output = demo_of_tcp(&["--wire", wire]).args(cells).output().expect("it starts");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{wire}: {messages}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
        let cells = report["cells"].as_array().expect("cells");
        let places = cells.iter().map(|cell| (&cell["body_bytes"], &cell["connections"]));
        let places = places.filter_map(|(body, count)| Some((body.as_u64()?, count.as_u64()?)));
        assert_eq!(places.collect::<Vec<_>>(), [(0, 1), (0, 16), (8192, 1), (8192, 16)]);
        for (cell, server) in cells.iter().flat_map(|cell| [(cell, "clearway"), (cell, "kernel")]) {
            for figure in ["requests_per_s", "p50_ns", "p99_ns"] {
                assert!(cell[server][figure].as_f64() > Some(0.0), "{wire} {server}: {cell}");
            }
            assert!(cell["ratio"]["requests"].as_f64() > Some(0.0), "{cell}");
        }
    }
}

fn demo_of_tcp(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(["demo", "--tcp"]).args(arguments);
    command
}

/// Who cannot have it is told what it needs.
#[test]
fn the_demo_of_tcp_says_what_it_needs() {
    let says = |command: &mut Command, words: &str| {
        let output = command.output().expect("it starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(words), "no {words:?} in {message}");
    };
    let place = Place::new("needs");
    says(place.as_nobody("./clearway").args(["demo", "--tcp"]), "run it as root");
    if rustix::process::geteuid().is_root() {
        says(demo_of_tcp(&[]).env("PATH", &place.0), "apt-get install curl wrk");
        says(&mut demo_of_tcp(&["--wire", "memif"]), "use --wire veth, af-xdp or af-packet");
    }
}

/// A directory of nobody's, with the programs in it.
struct Place(PathBuf);

impl Place {
    fn new(what: &str) -> Self {
        let name = format!("clearway-{what}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        for program in [env!("CARGO_BIN_EXE_clearway"), env!("CARGO_BIN_EXE_clearwayd")] {
            let program = Path::new(program);
            let place = path.join(program.file_name().expect("a program"));
            fs::hard_link(program, &place)
                .or_else(|_| fs::copy(program, &place).map(drop))
                .expect("the program");
        }
        Self(path)
    }

    /// A command of nobody's, if this is root, and else of this user.
    fn as_nobody(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.0);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
