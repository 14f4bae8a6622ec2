//! DPDK's `dpdk-testpmd`, of Debian's package `dpdk-dev`, at the other end. Needs no privilege, no
//! hugepages and no devices.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = "dpdk-testpmd";
/// Includes the time that testpmd takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// False if it is not installed, which is said.
pub(crate) fn is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|directory| directory.join(PROGRAM).exists());
    if !is_there {
        println!("skipped: {PROGRAM} is not installed (Debian package dpdk-dev)");
    }
    is_there
}

/// Waits for something that takes no longer than testpmd does.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// A running testpmd. It ends when its standard input does.
pub(crate) struct Testpmd {
    child: Child,
    log: PathBuf,
}

impl Testpmd {
    /// With these devices, so much memory, and its own arguments. What it says goes to the
    /// directory.
    pub(crate) fn start(
        directory: &Directory,
        mebibytes: u32,
        devices: &[String],
        arguments: &[&str],
    ) -> Self {
        let log = directory.0.join("log");
        let output = File::create(&log).expect("the directory is ours");
        let errors = output.try_clone().expect("there are descriptors");
        let mut command = Command::new(PROGRAM);
        // Two threads on whatever cores there are; no hugepages, no shared files, no devices.
        command.args(["--lcores", "0@0,1@0", "--no-huge", "-m", &mebibytes.to_string()]);
        command.args(["--no-shconf", "--no-pci", "--no-telemetry"]);
        devices.iter().for_each(|device| _ = command.args(["--vdev", device]));
        command.args(["--", "--no-mlockall"]).args(arguments);
        let child = command.stdin(Stdio::piped()).stdout(output).stderr(errors);
        Self { child: child.spawn().expect("testpmd starts"), log }
    }

    /// As [`until`], but ends at once if testpmd does.
    pub(crate) fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        until(what, || {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                let text = fs::read_to_string(&self.log).unwrap_or_default();
                panic!("testpmd ended with {status} before {what}:\n{text}");
            }
            done()
        });
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if let Some(mut input) = self.child.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
            }
            std::thread::yield_now();
        }
    }
}

/// A directory of our own, removed afterwards.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-testpmd-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the temporary directory can be written to");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
