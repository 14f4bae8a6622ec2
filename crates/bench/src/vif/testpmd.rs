//! A running `dpdk-testpmd`, told what to do by its own command line and asked for its counters.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::process::RoleProcess;
use crate::role::{Part, Role};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PROGRAM: &str = "dpdk-testpmd";
/// How long it may take to answer: on a busy machine it waits for a core of its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the program is, if it is installed.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(PROGRAM)).find(|it| it.exists())
}

/// What one process of it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    /// `txonly`, `rxonly`, `flowgen` or `io`.
    pub(super) mode: &'static str,
    /// `server` or `client`.
    pub(super) memif_role: &'static str,
    pub(super) ports: usize,
    pub(super) core: usize,
    pub(super) socket: &'a Path,
    /// More arguments of the application.
    pub(super) more: &'a [&'a str],
}

/// A running process of it. Ends when it is dropped.
pub(super) struct Testpmd {
    process: RoleProcess,
    ports: usize,
}

/// Frames that all ports have received and sent so far, and when that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) at: Instant,
}

impl Testpmd {
    pub(super) fn start(program: &Path, setup: Setup<'_>) -> Result<Self, Error> {
        // To a pipe it would say nothing before it has said 4 KiB.
        let mut words = vec!["-oL".to_owned(), program.display().to_string()];
        words.extend(arguments(setup));
        let role = Role::new(Part::Become { program: "stdbuf".into(), arguments: words });
        let who = format!("testpmd ({})", setup.mode);
        let process = RoleProcess::start(&who, &role.on_core(setup.core))?;
        Ok(Self { process, ports: setup.ports })
    }

    /// Waits until the other side can connect to it.
    pub(super) fn listening(&mut self, socket: &Path, interrupt: &Interrupt) -> Result<(), Error> {
        self.process.await_condition(PATIENCE, interrupt, || socket.exists())
    }

    /// Its counters, in which nothing is lost between two calls.
    pub(super) fn count(&mut self, interrupt: &Interrupt) -> Result<Counted, Error> {
        self.process.tell("show port stats all\n")?;
        let mut counted = Counted { received: 0, sent: 0, at: Instant::now() };
        for _ in 0..self.ports {
            let mut number = |name: &str| {
                let found = |text: &str| value(text, name).is_some();
                let line = self.process.await_line(PATIENCE, interrupt, found)?;
                Ok::<u64, Error>(value(&line, name).unwrap_or(0))
            };
            counted.received += number("RX-packets:")?;
            counted.at = Instant::now();
            counted.sent += number("TX-packets:")?;
        }
        Ok(counted)
    }
}

/// The number behind `name`.
fn value(line: &str, name: &str) -> Option<u64> {
    line.split_once(name)?.1.split_ascii_whitespace().next()?.parse().ok()
}

fn arguments(setup: Setup<'_>) -> Vec<String> {
    // A thread for its command line and one that forwards, both on the core that it is given. No
    // hugepages, no shared files, no devices.
    let lcores = format!("0@{0},1@{0}", setup.core);
    let environment = ["--lcores", &lcores, "--no-huge", "-m", "256", "--no-pci", "--no-shconf"];
    let mut arguments: Vec<String> = environment.map(str::to_owned).into();
    arguments.extend(["--no-telemetry", "--log-level=error"].map(str::to_owned));
    let ring_size = match setup.memif_role {
        "client" => format!(",rsize={}", super::RING_LOG2), // the client's counts
        _ => String::new(),
    };
    for port in 0..setup.ports {
        arguments.push("--vdev".into());
        arguments.push(format!(
            "net_memif{port},role={},id={port},socket={},socket-abstract=no{ring_size}",
            setup.memif_role,
            setup.socket.display()
        ));
    }
    let descriptors = 1 << super::RING_LOG2;
    let application = [
        "--".into(),
        "-i".into(),
        "--auto-start".into(),
        format!("--forward-mode={}", setup.mode),
        format!("--burst={}", super::BURST_FRAMES),
        format!("--txpkts={}", super::FRAME_BYTES),
        format!("--rxd={descriptors}"),
        format!("--txd={descriptors}"),
        "--total-num-mbufs=16384".into(),
        "--no-mlockall".into(),
    ];
    arguments.extend(application);
    if setup.ports == 1 {
        arguments.push("--port-topology=loop".into());
    }
    arguments.extend(setup.more.iter().map(|&argument| argument.to_owned()));
    arguments
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn counters_are_found_in_its_words() {
        let line = "  RX-packets: 30373952       RX-missed: 0          RX-bytes:  1943932928";
        assert_eq!(value(line, "RX-packets:"), Some(30_373_952));
        assert_eq!(value(line, "TX-packets:"), None);
        assert_eq!(value("testpmd> show port stats all", "RX-packets:"), None);
    }
}
