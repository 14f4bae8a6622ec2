//! What other users may do: apps of `nobody` at a daemon of root. Needs root; says so and passes
//! otherwise.

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use clearway_channel::control::{Attach, Request};
use clearway_client::{Description, Sizes};
use support::{
    Daemon, NOBODY, Network, SMALL, as_nobody, command_of_nobody, eventually, until_it_has_begun,
};

/// Runs `clearway status` as nobody.
fn status_as_nobody(daemon: &Daemon) -> Output {
    as_nobody(daemon, &["status"])
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

/// `clearway daemon` becomes `clearwayd`: that is the program which needs capabilities.
#[test]
fn doctor_says_which_program_needs_which_privileges() {
    if !root() {
        return;
    }
    let output = as_nobody(&Network::start().server, &["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let program = env!("CARGO_BIN_EXE_clearwayd");
    let remedy = format!("setcap cap_net_admin,cap_net_raw,cap_bpf+ep {program}\n");
    assert!(text.contains(&remedy), "{text}");
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
    let port = |port| ["open", "dst", "host", "own", "and", "udp", "dst", "port", port];
    let unprivileged = [&["vif"], &port("5353")[..]].concat();
    let output = until_it_has_begun(&mut command_of_nobody(&network.server, &unprivileged));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = refused(&port("53"));
    for part in ["user 65534 may not", "[[policy.vif]]", "users = [65534]", "dst port 53"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(refused(&["capture"]).contains("captures = true"));
    let machine = ["open", "--mac", "own", "--address", "10.8.0.50/24"];
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
        &["vif", "open", "dst host own and udp dst port 53"][..],
        &["vif", "open", "--mac", "own", "--address", "10.8.0.50/24"],
        &["vif", "capture"],
    ] {
        let output = until_it_has_begun(&mut command_of_nobody(&network.server, arguments));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = refused_to_nobody(&network.server, &["open", "dst host own and udp dst port 5353"]);
    assert!(text.contains("rule of the daemon's configuration that names the user"), "{text}");
}

fn for_nobody() -> Network {
    Network::with_server_policy(&format!("[policy]\nusers = [{NOBODY}]\n"))
}

/// A user sees what is its own, an administrator everything.
#[test]
fn status_shows_a_user_what_is_its_own() {
    if !root() {
        return;
    }
    let network = for_nobody();
    let sizes = Sizes { shared_bytes: 4096, ..SMALL };
    let mut app = network.server.try_attach("of-root", sizes).expect("attached");
    app.listen(4000).expect("listening");
    app.share(0..8, &Description::default(), Some(support::PATIENCE)).expect("shared");
    let mut client = network.client.attach("client");
    client.connect(network.server.at(4000), Some(support::PATIENCE)).expect("connected");
    let lengths = |status: &serde_json::Value| {
        let engine = &status["engines"][0];
        let of_engine = ["channels", "listeners", "flows", "regions"].map(|key| &engine[key]);
        let [channels, listeners, flows, regions] = of_engine;
        let lists = [&status["apps"], channels, listeners, flows, regions];
        lists.map(|list| list.as_array().map_or(usize::MAX, Vec::len))
    };
    assert_eq!(lengths(&network.server.status()), [1, 1, 1, 1, 1]);
    let output = as_nobody(&network.server, &["status", "--json"]);
    let status = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(lengths(&status), [0; 5], "{status:#}");
    assert_eq!(status["sessions"], 1, "its own");
}

/// Making and unmaking gigabytes holds up nobody else: it is no work of the thread that serves all.
#[test]
fn memory_of_one_user_holds_up_nobody_else() {
    let network = for_nobody();
    let daemon = network.server.process_id();
    let sizes = Sizes { transmit_pool_bytes: 1 << 28, receive_pool_bytes: 1 << 28, ..SMALL };
    let before = ticks(daemon);
    for _ in 0..8 {
        drop(network.server.try_attach("hog", sizes).expect("there is memory"));
        eventually("it is given back", || network.server.apps() == 0);
    }
    let after = ticks(daemon);
    let [control, workers] = [after[0] - before[0], after[1] - before[1]];
    assert!(control < workers / 8, "control thread: {control} ticks, workers: {workers}");
}

/// The processor time of a daemon's first thread, which is the control plane, and of its workers.
fn ticks(daemon: u32) -> [u64; 2] {
    let of_thread = |thread: &Path| {
        let stat = std::fs::read_to_string(thread.join("stat")).expect("a thread");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let times = fields.split(' ').skip(11).take(2); // utime and stime, fields 14 and 15
        times.map(|time| time.parse::<u64>().expect("a number")).sum::<u64>()
    };
    let threads = PathBuf::from(format!("/proc/{daemon}/task"));
    let is_worker = |thread: &PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("worker"))
    };
    let all = std::fs::read_dir(&threads).expect("threads").map(|thread| thread.unwrap().path());
    let workers = all.filter(is_worker).map(|worker| of_thread(&worker)).sum();
    [of_thread(&threads.join(daemon.to_string())), workers]
}

/// A user database that does not answer holds up who is looked up there, and nobody else.
#[test]
fn slow_user_database_holds_up_only_who_is_looked_up() {
    if !root() {
        return;
    }
    let policy = format!("[policy]\ngroups = [{NOBODY}]\n");
    let network = Network::with_server_policy(&policy);
    let broker = network.server.children()[0];
    let to_broker = |name: &str| {
        let signal: nix::sys::signal::Signal = name.parse().expect("a signal");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(broker as i32), signal).expect("sent");
    };
    to_broker("SIGSTOP");
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| status_as_nobody(&network.server));
        eventually("a user waits to be let in", || network.server.status()["waiting"] == 1);
        drop(network.server.attach("of-root"));
        assert!(!waiting.is_finished());
        to_broker("SIGCONT");
        let output = waiting.join().expect("no panic");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// Whatever a stranger sends, a line of the log is one that the daemon has written.
#[test]
fn log_lines_cannot_be_forged() {
    let network = Network::start();
    let quiet = "log.level = \"warn\"";
    network.server.rewrite_config(|text| text.replace(quiet, "log.level = \"info\""));
    assert!(support::clearway(&["reload"], &network.server).status.success());
    let forged = "2026-01-01T00:00:00Z  WARN clearway_daemon: all is lost";
    for ending in ["\n", "\r\n", "\u{2028}", "\u{1b}[2K\u{1b}[1G", "\u{202e}"] {
        let engine = format!("x{ending}{forged}");
        let request = Request::Attach(Attach::new("app", Some(engine), SMALL));
        let refused = network.server.ask(&request);
        assert!(refused.contains("there is no engine"), "{refused}");
    }
    network.server.ask(&Request::Attach(Attach::new("a\u{202e}b", Some("x".into()), SMALL)));
    let log = network.server.log();
    assert_eq!(log.matches("all is lost").count(), 5, "{log}");
    assert!(!log.lines().any(|line| line.starts_with(forged)), "{log}");
    let harmless =
        |c: char| c == '\n' || !c.is_control() && !('\u{2028}'..='\u{202e}').contains(&c);
    assert!(log.chars().all(harmless), "{log:?}");
}
