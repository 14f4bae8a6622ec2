//! `clearway top` on a real terminal, with real daemons.

mod support;

use std::path::Path;

use support::terminal::Pty;
use support::{Daemon, Network, exchange_all_sizes};

fn top(daemon: &Daemon) -> Pty {
    let socket = daemon.socket.to_str().expect("a path");
    Pty::run(Path::new(env!("CARGO_BIN_EXE_clearway")), &["top", "--socket", socket])
}

fn signal(process: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process as i32), signal).expect("sent");
}

#[test]
fn it_shows_all_views_and_gives_the_terminal_back() {
    let network = Network::start();
    exchange_all_sizes(&network.client, &network.server);
    let mut top = top(&network.server);
    let process = format!("process {}", network.server.process_id());
    top.wait_for("NICs", |text| text.contains(&process) && text.contains("1 of 1"));
    top.press("e");
    top.wait_for("engines", |text| text.contains("TURNS/S"));
    let _app = network.server.attach("somebody");
    top.press("a");
    top.wait_for("apps", |text| text.contains("somebody"));
    top.press("f");
    top.wait_for("flows", |text| text.contains("PEER"));
    top.press("q");
    assert_eq!(top.end(), Some(0));
    assert!(top.was_taken() && top.is_as_before(), "{}", top.text());
}

#[test]
fn it_shows_all_at_a_console_that_does_not_say_its_size() {
    let network = Network::start();
    let socket = network.server.socket.to_str().expect("a path");
    let program = Path::new(env!("CARGO_BIN_EXE_clearway"));
    let mut top = Pty::run_at_console(program, &["top", "--socket", socket]);
    top.wait_for("NICs", |text| text.contains("1 of 1"));
    top.press("q");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn a_signal_gives_the_terminal_back() {
    use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let network = Network::start();
    for wanted in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        let mut top = top(&network.server);
        top.wait_for("NICs", |text| text.contains("1 of 1"));
        signal(top.process_id(), wanted);
        assert_eq!(top.end(), Some(0), "{wanted}");
        assert!(top.was_taken() && top.is_as_before(), "{wanted}: {}", top.text());
    }
}

#[test]
fn it_survives_a_daemon_that_is_killed_and_started_again() {
    let mut network = Network::start();
    let mut top = top(&network.server);
    top.wait_for("NICs", |text| text.contains("1 of 1"));
    top.press("a");
    network.server.kill();
    top.wait_for("that it is dead", |text| text.contains("has ended"));
    top.wait_for("why there are no apps", |text| text.contains("no daemon is running"));
    network.server.restart();
    let process = format!("process {}, up", network.server.process_id());
    top.wait_for("the new one", |text| text.contains(&process));
    let _app = network.server.attach("somebody");
    top.wait_for("its apps", |text| text.contains("somebody"));
    top.press("\x03");
    assert_eq!(top.end(), Some(0));
    assert!(top.is_as_before(), "{}", top.text());
}

#[test]
fn without_a_terminal_it_says_so() {
    let network = Network::start();
    let output = support::clearway(&["top"], &network.server);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs a terminal"));
}
