//! The benchmark as a whole, kernel contenders only: real processes, real signals.
//!
//! This program has no test harness, because a benchmark starts its own program again for its
//! roles: `main` is a small `clearway` that runs the tests when it is given nothing else to do.

use clap::{Parser, Subcommand};
use clearway_bench::{Command, DemoCommand, RoleCommand};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    top: Option<Top>,
}

#[derive(Subcommand)]
enum Top {
    Bench(Command),
    Demo(DemoCommand),
    BenchRole(RoleCommand),
}

/// What [`Top`] names. Anything else is from `cargo test`.
const COMMANDS: [&str; 3] = ["bench", "demo", "bench-role"];

fn main() -> ExitCode {
    // `cargo test` hands its own options and filters to every test program.
    let is_command = std::env::args().nth(1).is_some_and(|first| COMMANDS.contains(&&*first));
    let result = match is_command.then(Program::parse).and_then(|program| program.top) {
        Some(Top::Bench(command)) => command.execute(),
        Some(Top::Demo(command)) => command.execute(),
        Some(Top::BenchRole(role)) => role.run(|_| Err("this program has no engines".into())),
        None => {
            run_tests();
            return ExitCode::SUCCESS;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn run_tests() {
    let tests: [(&str, fn()); 8] = [
        ("every workload reports every contender", every_workload_reports_every_contender),
        ("the kernel does without offloads", the_kernel_does_without_offloads),
        ("the demo ends with a table", demo_ends_with_a_table),
        ("contradictions are refused", contradictions_are_refused),
        ("an interrupt leaves nothing behind", || nothing_is_left_after(Signal::INT)),
        ("a request to end leaves nothing behind", || nothing_is_left_after(Signal::TERM)),
        ("a kill leaves nothing behind", || nothing_is_left_after(Signal::KILL)),
        ("roles are not for people", roles_are_not_for_people),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

fn command(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("own path"));
    command.args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    command(arguments).output().expect("this program can be started")
}

fn every_workload_reports_every_contender() {
    for (workload, batches) in [("rtt", false), ("rate", true), ("stream", true)] {
        let output = output(&[
            "bench",
            workload,
            "--kernel-only",
            "--seconds",
            "0.05",
            "--runs",
            "1",
            "--json",
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for name in ["tcp_spin", "tcp_block", "udp_spin", "unix_spin"] {
            let figures = &report["contenders"][name];
            assert!(figures["p50_ns"].as_u64() > Some(0), "{workload} {name}: {figures}");
            assert!(figures["rate_per_s"].as_f64() > Some(0.0), "{workload} {name}: {figures}");
        }
        assert_eq!(report["contenders"]["tcp_batch"].is_object(), batches);
        let wire = if rustix::process::geteuid().is_root() { "veth" } else { "loopback" };
        assert_eq!(report["tcp_wire"], wire);
    }
}

fn the_kernel_does_without_offloads() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root makes veth pairs");
        return;
    }
    let timing = ["--seconds", "0.05", "--runs", "1", "--json", "--compare", "tcp"];
    let plain = ["bench", "stream", "--kernel-only", "--kernel-plain", "--mtu", "1400"];
    let output = output(&[&plain[..], &timing].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["tcp_mtu"], 1400);
    assert!(report["notes"].to_string().contains("offloads are off"), "{}", report["notes"]);
    assert!(report["contenders"]["tcp_spin"]["rate_per_s"].as_f64() > Some(0.0));
}

fn demo_ends_with_a_table() {
    let output = output(&["demo", "--kernel-only", "--seconds", "0.05"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["64 B", "32 KB", "kernel TCP, blocking", "messages/s"] {
        assert!(text.contains(word), "{word} is missing from\n{text}");
    }
    assert!(String::from_utf8_lossy(&output.stderr).contains("1/"), "progress was not shown");
}

fn contradictions_are_refused() {
    for arguments in [
        &["rtt", "--window", "2"][..],
        &["rate", "--window", "0"],
        &["rate", "--size", "9000000"],
        &["rate", "--layout", "paired", "--idle", "block"],
        &["rtt", "--layout", "embedded", "--wire", "local"],
        &["rate", "--seconds", "0"],
        &["rtt", "--tcp", "--wire", "udp"],
        &["rtt", "--tcp", "--in-place"],
        &["stream", "--in-place"],
        &["stream", "--kernel-plain", "--wire", "veth"],
        &["stream", "--connections", "2,3"],
        &["stream", "--connections", "2", "--tcp"],
        &["stream", "--connections", "2", "--layout", "paired"],
        &["stream", "--connections", "2", "--app", "c"],
        &["rtt", "--kernel-end", "client"],
        &["rtt", "--tcp", "--kernel-end", "client"],
        &["rtt", "--tcp", "--kernel-end", "client", "--wire", "veth", "--layout", "paired"],
        &["rtt", "--socket", "a"],
        &["rtt", "--kernel-only", "--idle", "spin"],
        &["rtt", "--kernel-only", "--app", "rust"],
        &["rtt", "--kernel-only", "--tcp"],
        &["rtt", "--kernel-only", "--mtu", "1400"],
        &["rtt", "--kernel-only", "--compare", "udp", "--size", "100000"],
        &["rtt", "--wire", "local", "--mtu", "1400"],
        &["rtt", "--to", "10.0.0.2", "--kernel-end", "client"],
        &["--serve", "5001", "--in-place"],
    ] {
        let output = output(&[&["bench"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?} was accepted");
        assert!(!output.stderr.is_empty(), "{arguments:?} was refused without a word");
    }
}

fn roles_are_not_for_people() {
    let output = output(&["bench-role", "{}"]);
    assert!(!output.status.success());
}

/// Starts a long benchmark, waits until its processes are there, signals it, and waits until they
/// are gone. Processes that the kernel ends after their parent's death take a moment.
fn nothing_is_left_after(signal: Signal) {
    let mut parent = command(&["bench", "rtt", "--kernel-only", "--seconds", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program can be started");
    let expected = if rustix::process::geteuid().is_root() { 4 } else { 2 };
    let children = poll_until(&mut parent, |parent| {
        let children = children_of(parent.id());
        (children.len() >= expected).then_some(children)
    });
    let process = Pid::from_child(&parent);
    kill_process(process, signal).expect("the parent can be signalled");
    let status = parent.wait().expect("the parent can be waited for");
    let code = (signal != Signal::KILL).then_some(128 + signal.as_raw());
    assert_eq!(status.code(), code, "{status}");
    for child in children {
        poll_until(&mut parent, |_| (!is_alive(child)).then_some(()));
    }
}

fn poll_until<T>(parent: &mut Child, condition: impl Fn(&mut Child) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = condition(parent) {
            return value;
        }
        assert!(Instant::now() < deadline, "the condition did not come true in 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn children_of(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// A process that has ended but has not been waited for is not alive (`proc(5)`: state Z).
fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
