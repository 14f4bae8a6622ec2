//! A daemon is confined, all its threads are, and `clearway status` tells. What a confined process can
//! and cannot do is tested beside the code; that everything else works while confined is shown by
//! all other tests here, since confinement is the default.

mod support;

use std::fs;

use support::{Daemon, Network};

/// A field of every thread's `/proc/PID/task/TID/status`, with the thread's name.
fn of_all_threads(daemon: &Daemon, field: &str) -> Vec<(String, String)> {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.process_id())).expect("threads");
    let status = threads.map(|thread| {
        let path = thread.expect("a thread").path().join("status");
        let text = fs::read_to_string(path).expect("its status");
        let find = |name: &str| {
            let prefix = format!("{name}:\t");
            text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or("").to_owned()
        };
        (find("Name"), find(field))
    });
    status.collect()
}

fn is_on(daemon: &Daemon, part: &str) -> bool {
    let state = daemon.status()["confinement"][part].as_str().unwrap_or("").to_owned();
    println!("{part}: {state}");
    state.starts_with("on")
}

#[test]
fn all_threads_are_confined_and_without_capabilities() {
    let network = Network::start();
    if !is_on(&network.server, "system_calls") {
        println!("skipped: this kernel cannot");
        return;
    }
    let threads = of_all_threads(&network.server, "Seccomp");
    assert!(threads.iter().any(|(name, _)| name.starts_with("engine")), "{threads:?}");
    for (field, wanted) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapEff", "0000000000000000")] {
        let threads = of_all_threads(&network.server, field);
        let all = threads.iter().all(|(_, value)| value == wanted);
        assert!(all, "{field} is not {wanted} everywhere: {threads:?}");
    }
}

#[test]
fn configuration_can_switch_it_off() {
    let free = Network::with_server_policy("confine = false\n");
    assert!(!is_on(&free.server, "system_calls") && !is_on(&free.server, "files"));
    let threads = of_all_threads(&free.server, "Seccomp");
    // What the process was started with stays, as in a container.
    let own = fs::read_to_string("/proc/thread-self/status").expect("own status");
    let own = own.lines().find_map(|line| line.strip_prefix("Seccomp:\t")).unwrap_or("");
    assert!(threads.iter().all(|(_, value)| value == own), "{threads:?}");
}
