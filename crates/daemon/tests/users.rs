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
    // The program itself lies where nobody may not look, so it is opened before.
    Command::new("/proc/self/fd/0")
        .arg0("clearway")
        .args(["status", "--socket"])
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
