//! In threads of their own, so that the other tests keep what they have.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Command;

use super::*;
use crate::config::{Memif, MemifRole, Network, Nic, Policy};
use crate::privileges;

/// Runs `work` confined by this configuration, if this kernel can do all of it.
fn confined<T: Send + 'static>(
    config: Config,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let confined = move || {
        privileges::drop_unneeded(&config).expect("dropping needs no privilege");
        let state = confine(&config);
        if state.system_calls != ON || state.files != ON {
            println!("skipped: {state:?}");
            return None;
        }
        Some(work())
    };
    std::thread::spawn(confined).join().expect("no panic")
}

fn refused<T>(outcome: std::io::Result<T>) {
    let error = outcome.err().expect("it was allowed");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn confined_daemon_starts_no_program_and_opens_no_file() {
    confined(Config::default(), || {
        refused(Command::new("true").status());
        refused(File::open("/etc/hostname"));
        refused(File::create(std::env::temp_dir().join("clearway-confined")));
        refused(fs::read_dir("/"));
        refused(UnixListener::bind(std::env::temp_dir().join("clearway-confined.sock")));
        refused(TcpListener::bind(("127.0.0.1", 0)));
    });
}

#[test]
fn confined_daemon_cannot_get_at_other_processes_or_the_kernel() {
    confined(Config::default(), || {
        let parent = rustix::process::getppid().expect("a parent");
        let signal = rustix::process::Signal::WINCH;
        assert!(rustix::process::kill_process(parent, signal).is_err());
        refused(File::options().write(true).open("/proc/self/mem"));
        let flags = rustix::process::PidfdFlags::empty();
        let process = rustix::process::pidfd_open(parent, flags);
        assert_eq!(process.map(drop), Err(rustix::io::Errno::PERM));
    });
}

/// What a daemon does all the time.
#[test]
fn confined_daemon_does_its_work() {
    let directory = std::env::temp_dir().join(format!("clearway-confine-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let socket = directory.join("control.sock");
    fs::write(&socket, "").expect("a file in the place of a socket");
    let mut config = Config::default();
    config.control.socket = socket.clone();
    confined(config, move || {
        let threads = (0..3).map(|n| {
            std::thread::Builder::new().name(format!("t{n}")).spawn(|| vec![7u8; 8 << 20].len())
        });
        for thread in threads {
            assert_eq!(thread.expect("threads may be started").join().expect("no panic"), 8 << 20);
        }
        UdpSocket::bind(("127.0.0.1", 0)).expect("ports may be claimed");
        fs::remove_file(&socket).expect("its own sockets are removed");
        File::open("/proc/thread-self/ns/net").expect("its network namespace can be told");
    });
    fs::remove_dir_all(&directory).expect("removed");
}

/// Or nobody could say where a daemon has crashed.
#[test]
fn backtrace_of_a_confined_daemon_has_names() {
    confined(Config::default(), || {
        let backtrace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(backtrace.contains("backtrace_of_a_confined_daemon_has_names"), "{backtrace}");
    });
}

/// Groups are looked up in the user database, which the policy makes necessary.
#[test]
fn user_database_is_open_to_who_needs_it() {
    let policy = Policy { groups: vec![1], ..Policy::default() };
    let link = Memif::new("@clearway-confined", MemifRole::Server);
    let address = Network { address: [10, 9, 0, 1].into(), prefix_bits: 24 };
    let nics = vec![Nic::memif("link", link, address)];
    confined(Config { policy, nics, ..Config::default() }, || {
        File::open("/etc/passwd").expect("it may be read");
        refused(File::open("/proc/self/environ"));
    });
}
