//! What other users may do: apps of `nobody` at a daemon of root. Needs root; says so and passes
//! otherwise.

mod support;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use support::{Daemon, Network};

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// Runs `clearway status` as nobody.
fn status_as_nobody(daemon: &Daemon) -> Output {
    as_nobody(daemon, &["status"])
}

/// Runs a command as nobody.
fn as_nobody(daemon: &Daemon, arguments: &[&str]) -> Output {
    // The program itself lies where nobody may not look, so it is opened before.
    Command::new("/proc/self/fd/0")
        .arg0("clearway")
        .args(arguments)
        .arg("--socket")
        .arg(&daemon.socket)
        .stdin(std::fs::File::open(env!("CARGO_BIN_EXE_clearway")).expect("the program"))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("the command starts")
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root to become another user");
    }
    root
}

#[test]
fn by_default_others_do_not_even_reach_the_socket() {
    if !root() {
        return;
    }
    let output = status_as_nobody(&Network::start().server);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("may not connect") && text.contains("[policy]"), "{text}");
}

#[test]
fn users_that_the_policy_names_are_served() {
    if !root() {
        return;
    }
    let policy = format!("[policy]\nusers = [{NOBODY}]\n");
    let output = status_as_nobody(&Network::with_server_policy(&policy).server);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// Where the policy names somebody, everybody can connect; who is not named is told so.
#[test]
fn users_that_the_policy_does_not_name_are_told() {
    if !root() {
        return;
    }
    let output =
        status_as_nobody(&Network::with_server_policy("[policy]\nusers = [12345]\n").server);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("user 65534 may not attach"), "{text}");
}

#[test]
fn members_of_a_group_that_the_policy_names_are_served() {
    if !root() {
        return;
    }
    let policy = format!("[policy]\ngroups = [{NOBODY}]\n");
    let output = status_as_nobody(&Network::with_server_policy(&policy).server);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// What nobody is told when it wants this interface; it does not wait for a packet.
fn refused_to_nobody(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = as_nobody(daemon, &[&["vif"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

#[test]
fn without_a_rule_users_have_unprivileged_ports_and_are_told_what_is_missing() {
    if !root() {
        return;
    }
    let network = Network::with_server_policy(&format!("[policy]\nusers = [{NOBODY}]\n"));
    let refused = |arguments: &[&str]| refused_to_nobody(&network.server, arguments);
    let own = ["open", "--count", "0"];
    let port =
        |port| [&own[..], &["dst", "host", "own", "and", "udp", "dst", "port", port]].concat();
    let output = as_nobody(&network.server, &[&["vif"], &port("5353")[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = refused(&port("53"));
    for part in ["user 65534 may not", "[[policy.vif]]", "users = [65534]", "dst port 53"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(refused(&["capture", "--count", "0"]).contains("captures = true"));
    let machine = ["open", "--count", "0", "--mac", "own", "--address", "10.8.0.50/24"];
    assert!(refused(&machine).contains("own_addresses = [\"10.8.0.50/32\"]"));
}

#[test]
fn a_rule_gives_users_what_it_says() {
    if !root() {
        return;
    }
    let policy = format!(
        "[policy]\nusers = [{NOBODY}]\n[[policy.vif]]\nusers = [{NOBODY}]\n\
         receive = [\"dst host own and udp dst port 53\"]\nown_addresses = [\"10.8.0.48/28\"]\n\
         captures = true\n"
    );
    let network = Network::with_server_policy(&policy);
    for arguments in [
        &["vif", "open", "--count", "0", "dst host own and udp dst port 53"][..],
        &["vif", "open", "--count", "0", "--mac", "own", "--address", "10.8.0.50/24"],
        &["vif", "capture", "--count", "0"],
    ] {
        let output = as_nobody(&network.server, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = refused_to_nobody(&network.server, &["open", "dst host own and udp dst port 5353"]);
    assert!(text.contains("rule of the daemon's configuration that names the user"), "{text}");
}
