//! A daemon is confined, all its threads are, it is nobody in particular, and `clearway status`
//! tells. What a confined process can and cannot do is tested beside the code, and here once more
//! in a daemon that has been taken over; that everything else works while confined is shown by all
//! other tests here, since confinement is the default.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;

use support::veth::{IPV4, Veth};
use support::{Daemon, Network, eventually};

/// A user that every Debian has, and its group.
const USER: &str = "daemon";
const USER_ID: u32 = 1;
/// The bits of CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW (linux/capability.h).
const CAPABILITIES_ON_INTERFACE: u64 = 1 << 10 | 1 << 12 | 1 << 13;
/// CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK and CAP_BPF.
const CAPABILITIES_OF_OPENER: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;

/// A field of every thread's `/proc/PID/task/TID/status`, with the thread's name.
fn of_all_threads(process: u32, field: &str) -> Vec<(String, String)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("threads");
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

fn all_threads_have(process: u32, field: &str, wanted: &str) {
    let threads = of_all_threads(process, field);
    let all = threads.iter().all(|(_, value)| value.split_whitespace().all(|v| v == wanted));
    assert!(all, "{field} is not {wanted} everywhere: {threads:?}");
}

fn is_on(daemon: &Daemon, part: &str) -> bool {
    let state = daemon.status()["confinement"][part].as_str().unwrap_or("").to_owned();
    println!("{part}: {state}");
    state.starts_with("on")
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root to become another user");
    }
    root
}

#[test]
fn all_threads_are_confined_and_without_capabilities() {
    let network = Network::start();
    // As every kernel since Linux 5.0 can.
    assert!(is_on(&network.server, "system_calls"));
    let threads = of_all_threads(network.server.process_id(), "Seccomp");
    assert!(threads.iter().any(|(name, _)| name.starts_with("engine")), "{threads:?}");
    for (field, wanted) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapEff", "0000000000000000")] {
        all_threads_have(network.server.process_id(), field, wanted);
    }
}

/// Daemon, broker and opener, for good.
#[test]
fn daemon_that_root_starts_becomes_its_user() {
    if !is_root() {
        return;
    }
    let network = Network::with_policies(&format!("user = \"{USER}\"\n"));
    // The client's connections are made by its broker.
    eventually("the link is up", || {
        network.client.status()["engines"][0]["queues"][0]["link_up"] == true
    });
    let [broker, opener] = network.client.children()[..] else { panic!("a broker and an opener") };
    for process in [network.client.process_id(), network.server.process_id(), broker, opener] {
        let id = USER_ID.to_string();
        for (field, wanted) in [("Uid", &*id), ("Gid", &id), ("Groups", &id), ("Seccomp", "2")] {
            all_threads_have(process, field, wanted);
        }
        for field in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            all_threads_have(process, field, "0000000000000000");
        }
    }
    assert!(is_on(&network.server, "user"));
    let socket = fs::metadata(&network.server.socket).expect("the control socket");
    assert_eq!((socket.uid(), socket.mode() & 0o777), (USER_ID, 0o600));
}

/// With a kernel interface it keeps what that needs while it runs, and no more; and can use it.
#[test]
fn daemon_on_an_interface_keeps_what_that_needs() {
    let Some(veth) = Veth::new() else { return };
    for driver in ["af_xdp", "af_packet"] {
        let nic = format!("driver = \"{driver}\"");
        let network = veth.hosts_as(USER, [&nic, &nic], IPV4.map(std::net::IpAddr::V4));
        support::traffic::Traffic::start(&network, 4000).goes_on();
        // A port below 1024 is taken from the kernel, and given back.
        let filter = ["vif", "open", "dst host own and udp dst port 53"];
        let vif = support::until_it_has_begun(&mut support::command(&filter, &network.server));
        assert!(vif.status.success(), "{}", String::from_utf8_lossy(&vif.stderr));
        let kept = format!("{CAPABILITIES_ON_INTERFACE:016x}");
        for field in ["CapEff", "CapPrm", "CapBnd"] {
            all_threads_have(network.server.process_id(), field, &kept);
        }
        all_threads_have(network.server.process_id(), "Uid", &USER_ID.to_string());
        let [broker, opener] = network.server.children()[..] else { panic!("two beside it") };
        all_threads_have(broker, "CapEff", "0000000000000000");
        all_threads_have(opener, "CapEff", &format!("{CAPABILITIES_OF_OPENER:016x}"));
        all_threads_have(opener, "CapBnd", &format!("{CAPABILITIES_OF_OPENER:016x}"));
        for (field, wanted) in
            [("Seccomp", "2"), ("NoNewPrivs", "1"), ("Uid", &USER_ID.to_string())]
        {
            all_threads_have(opener, field, wanted);
        }
    }
    veth.kernel_goes_on();
}

/// The programme of an attacker: each of these calls is made by the control plane's own thread.
#[cfg(target_arch = "x86_64")]
#[test]
fn daemon_that_was_taken_over_can_do_nothing_with_it() {
    use rustix::io::Errno;
    use syscalls::Sysno;
    if !is_root() {
        return;
    }
    let network = Network::with_policies(&format!("user = \"{USER}\"\n"));
    let mut captive = support::captive::Captive::take(network.client.process_id());
    let none = u64::MAX;
    let refused = [
        (Sysno::execve, [0, 0, 0, 0, 0, 0]),
        (Sysno::fork, [0; 6]),
        (Sysno::setuid, [0; 6]),
        (Sysno::kill, [1, 0, 0, 0, 0, 0]),
        (Sysno::ptrace, [0; 6]),
        (Sysno::bpf, [5, 0, 0, 0, 0, 0]),
        (Sysno::io_uring_setup, [1, 0, 0, 0, 0, 0]),
        (Sysno::socket, [1, 1, 0, 0, 0, 0]),
        (Sysno::socket, [2, 2, 0, 0, 0, 0]),
        (Sysno::connect, [none, 0, 0, 0, 0, 0]),
        // To an address; without one it fails for want of a socket.
        (Sysno::sendto, [none, 0, 0, 0, 1, 16]),
        (Sysno::sendmsg, [none, 0, 0x2000_0000, 0, 0, 0]),
    ];
    for (call, arguments) in refused {
        let outcome = captive.call(call as u64, arguments);
        assert_eq!(outcome, -i64::from(Errno::PERM.raw_os_error()), "{}", call.name());
    }
    let badf = -i64::from(Errno::BADF.raw_os_error());
    assert_eq!(captive.call(Sysno::sendto as u64, [none, 0, 0, 0, 0, 0]), badf);
    assert_eq!(captive.call(Sysno::getuid as u64, [0; 6]), i64::from(USER_ID));
    drop(captive);
    assert_eq!(network.client.apps(), 0, "it goes on as if nothing had been");
}

#[test]
fn configuration_can_switch_it_off() {
    let free = Network::with_server_policy("confine = false\n");
    assert!(!is_on(&free.server, "system_calls") && !is_on(&free.server, "files"));
    let threads = of_all_threads(free.server.process_id(), "Seccomp");
    // What the process was started with stays, as in a container.
    let own = fs::read_to_string("/proc/thread-self/status").expect("own status");
    let own = own.lines().find_map(|line| line.strip_prefix("Seccomp:\t")).unwrap_or("");
    assert!(threads.iter().all(|(_, value)| value == own), "{threads:?}");
}

/// Nothing is worse for whoever has no user for it, but everybody is told.
#[test]
fn daemon_that_stays_root_says_so() {
    if !is_root() || nix::unistd::User::from_name("clearway").is_ok_and(|user| user.is_some()) {
        return;
    }
    let network = Network::start();
    let state = network.server.status()["confinement"]["user"].to_string();
    assert!(state.contains("off: it runs as root") && state.contains("useradd"), "{state}");
}
