//! The `clearway` command without a daemon: exit codes, remedies, readers that go away.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

use clearway_channel::control::{self, Reply, StatusPart};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};

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
    let no_daemon = ["no daemon is running", "start one with `clearway daemon`"];
    refused(&[&["status"], &nowhere[..]].concat(), 1, &no_daemon);
    refused(&[&["ping", "10.0.0.1"], &nowhere[..]].concat(), 2, &no_daemon);
    refused(&["ping", "somewhere.invalid"], 2, &["cannot find \"somewhere.invalid\""]);
    refused(&["ping", "10.0.0.1", "--size", "5"], 2, &["24..=8388608"]);
    refused(&["ping", "10.0.0.1", "--count", "-1"], 2, &["-1"]);
    for message in [&["10.0.0.1:5001"][..], &["10.0.0.1", "--size", "100000"]] {
        let arguments = [&["ping", "--udp-port", "7"][..], message].concat();
        refused(&arguments, 2, &["--udp-port is for packets"]);
    }
    refused(&["daemon", "--check"], 2, &["--config"]);
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
fn doctor_fails_for_an_interface_that_is_not_there() {
    for json in [&[][..], &["--json"]] {
        let output = clearway(&[&["doctor", "nosuch0"], json].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("there is no interface \"nosuch0\""), "{text}");
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(found.contains("interface nosuch0"), "all the same, it says what it has found");
        assert!(!found.contains("driver on nosuch0"), "once is enough: {found}");
    }
}

/// Why no driver takes it, and what would help, its line says: for `lo` not that it should exist.
#[test]
fn doctor_does_not_doubt_an_interface_that_is_there() {
    let output = clearway(&["doctor", "lo"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (found, help) = text.split_once("\nWHAT WOULD HELP\n").expect("something would");
    assert!(found.contains(" no  driver on lo "), "{text}");
    let remedy = help.lines().find(|line| line.contains("driver on lo: ")).expect("a remedy");
    assert!(!remedy.contains("that there is"), "{text}");
    assert!(remedy.contains("see its line above"), "{text}");
}

/// In a mount namespace of its own, with another `/etc`.
#[test]
fn root_need_not_name_the_configuration_of_the_host() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to have an /etc of its own");
    }
    let check = |prepare: &str| {
        let daemon = env!("CARGO_BIN_EXE_clearwayd");
        let script = format!("mount -t tmpfs none /etc && {prepare} exec {daemon} --check");
        let mut unshare = Command::new("unshare");
        let output = unshare.args(["--mount", "sh", "-c", &script]).output().expect("util-linux");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let socket = std::env::temp_dir().join("clearway-etc-check.sock");
    let config = format!("control.socket = {socket:?}\n[[nic]]\ndriver = \"udp\"\n");
    let (code, text) = check(&format!("echo '{config}' > /etc/clearway.toml;"));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("/etc/clearway.toml is valid"), "{text}");
    let (code, text) = check("");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("there is no /etc/clearway.toml; name one with --config"), "{text}");
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

/// A daemon that is asked for its state so many times, and says this.
fn daemon(path: &Path, questions: usize, state: &serde_json::Value) -> JoinHandle<()> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("bound");
    listen(&socket, 1).expect("listening");
    let part = Reply::Status(StatusPart { text: state.to_string(), more: false });
    std::thread::spawn(move || {
        for _ in 0..questions {
            let command = accept(&socket).expect("a command");
            control::receive(&command).expect("a question");
            control::send(&command, &part, &[]).expect("told");
        }
    })
}

#[test]
fn json_that_is_not_all_says_so_beside_it() {
    let path = std::env::temp_dir().join(format!("clearway-omitted-{}", std::process::id()));
    let state = serde_json::json!({ "regions_omitted": 7, "vifs_omitted": 7 });
    let daemon = daemon(&path, 2, &state);
    let at = ["--json", "--socket", path.to_str().expect("a path")];
    for words in [&["regions"][..], &["vif", "list"]] {
        let output = clearway(&[words, &at[..]].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        assert_eq!(output.stdout, b"[]\n", "{words:?}");
        assert_eq!(told, "and 7 more that did not fit in the answer\n", "{words:?}");
    }
    daemon.join().expect("no panic");
    std::fs::remove_file(&path).expect("its own");
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

/// `--check` of the example that is shipped says what has to be put in: the own interface. It may
/// come.
#[test]
fn shipped_example_is_checked() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clearway.toml");
    let output = clearway(&["daemon", "--config", example, "--check"]);
    let (told, said) = (output.stderr, output.stdout);
    let text = String::from_utf8_lossy(&told) + String::from_utf8_lossy(&said);
    let in_the_way = text.contains("eth0") || text.contains("control socket");
    assert!(output.status.success() || in_the_way, "{text}");
    let has_eth0 = std::path::Path::new("/sys/class/net/eth0").exists();
    assert_eq!(text.contains("note: there is no interface \"eth0\""), !has_eth0, "{text}");
}

/// What `daemon --check` says of this configuration.
fn checked(name: &str, text: &str, mode: u32) -> (Option<i32>, String) {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("clearway-check-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("the configuration");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
    let output = clearway(&["daemon", "--check", "--config", path.to_str().expect("a path")]);
    std::fs::remove_file(&path).expect("removed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

const MEMIF: &str =
    "[[nic]]\ndriver = \"memif\"\nrole = \"server\"\naddresses = [\"10.0.0.1/24\"]\n";

#[test]
fn check_finds_what_is_in_the_way_of_metrics() {
    let directory = std::env::temp_dir().join(format!("clearway-metrics-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let (shown, file) = (directory.display(), directory.join("file"));
    std::fs::write(&file, "no socket").expect("written");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = (taken.local_addr().expect("it listens"), taken);
    let checked = |name: &str, keys: &str| {
        let control = format!("control.socket = \"{shown}/control.sock\"\n");
        let memif = format!("{MEMIF}socket = \"{shown}/memif.sock\"\n");
        checked(name, &format!("{control}metrics.{keys}\n{memif}"), 0o644)
    };
    let fine = checked("metrics-fine", &format!("socket = \"{shown}/metrics.sock\""));
    assert_eq!(fine.0, Some(0), "{}", fine.1);
    for (name, keys, code, part) in [
        ("metrics-far", "listen = [\"192.0.2.1:9464\"]".to_owned(), 2, "served at 192.0.2.1:9464"),
        ("metrics-taken", format!("listen = [\"{}\"]", taken.0), 0, "somebody listens at 127."),
        ("metrics-file", format!("socket = {file:?}"), 2, "is there already, and is no socket"),
        ("metrics-gone", format!("socket = \"{shown}/x/y\""), 2, "there is no directory"),
    ] {
        let (found, text) = checked(name, &keys);
        assert_eq!(found, Some(code), "{keys}: {text}");
        assert!(text.contains(part), "{keys}: {part} is missing in {text}");
    }
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn check_finds_what_is_in_the_way_of_sockets_and_secrets() {
    let control = "control.socket = \"/tmp/clearway-check.sock\"\n";
    let memif = |socket: &str| format!("{control}{MEMIF}socket = \"{socket}\"\n");
    let (code, text) = checked("fine", &memif("/tmp/clearway-check-memif"), 0o644);
    assert_eq!(code, Some(0), "{text}");
    let wrong = [
        (memif("/nonexistent/a/memif"), "there is no directory /nonexistent/a"),
        (memif("/etc/hostname"), "is no socket"),
        (memif("/etc/hostname/memif"), "is no directory"),
        (
            format!("{}secret = \"x\"\n", memif("/tmp/clearway-check-memif")),
            "can read the `secret`",
        ),
        (
            format!("control.socket = \"/nonexistent/a/b\"\n{MEMIF}socket = \"/tmp/clearway-x\"\n"),
            "mkdir -p /nonexistent/a",
        ),
    ];
    for (number, (config, part)) in wrong.iter().enumerate() {
        let (code, text) = checked(&number.to_string(), config, 0o644);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(part) && text.contains("remedy"), "{part} is missing in {text}");
    }
    let secret = format!("{}secret = \"x\"\n", memif("/tmp/clearway-check-memif"));
    assert_eq!(checked("own", &secret, 0o640).0, Some(0), "who may not read it does not");
}

/// The names of the functions in a program, a line each. What it only has strings of, as a linker
/// may leave them behind, is no code.
fn functions(program: &str) -> String {
    let output = Command::new("nm").args(["--demangle", program]).output().expect("nm starts");
    assert!(output.status.success());
    let symbols = String::from_utf8(output.stdout).expect("names");
    let is_function = |line: &&str| line.split(' ').nth(1).is_some_and(|kind| "tT".contains(kind));
    symbols.lines().filter(is_function).collect::<Vec<_>>().join("\n")
}

#[test]
fn clearwayd_has_nothing_that_it_does_not_need() {
    let tool = functions(env!("CARGO_BIN_EXE_clearway"));
    let daemon = functions(env!("CARGO_BIN_EXE_clearwayd"));
    for needless in ["bench", "sim", "client", "nic::fabric", "classify::table::tuple"] {
        let name = format!("clearway_{needless}::");
        assert!(tool.contains(&name), "{name}");
        assert!(!daemon.contains(&name), "{name}");
    }
    assert!(daemon.contains("clearway_daemon::"));
}
