//! The CPU time of running processes, and which cores there are to pin them to.

use crate::arguments::Layout;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::path::Path;

/// CPU time that `process` has used so far, in seconds, over all its threads.
///
/// From `/proc/PID/task/*/schedstat` (nanoseconds) where the kernel keeps it, else from
/// `/proc/PID/stat` (ticks of 10 ms). Zero for a process that is gone.
pub(crate) fn seconds_used(process: u32) -> f64 {
    precise(process).or_else(|| coarse(process)).unwrap_or(0.0)
}

/// CPU time that a thread of this process has used so far, in seconds. Zero for one that is gone,
/// or where the kernel keeps no `schedstat`.
pub(crate) fn seconds_used_by_thread(thread: i32) -> f64 {
    let used_ns = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse::<f64>().ok());
    used_ns.unwrap_or(0.0) / 1e9
}

fn precise(process: u32) -> Option<f64> {
    let mut used_ns = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let schedstat = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        used_ns += schedstat.split_ascii_whitespace().next()?.parse::<f64>().ok()?;
    }
    Some(used_ns / 1e9)
}

/// `proc(5)`: fields 14 and 15 are `utime` and `stime` in clock ticks; the command's name, field
/// 2, is in parentheses and may hold blanks.
fn coarse(process: u32) -> Option<f64> {
    let stat =
        fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    let ticks: f64 = after_name
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// The cores of the client's and of the server's side: the first two that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) client: usize,
    pub(crate) server: usize,
}

impl Cores {
    /// None of a machine's two sides is better: the first two allowed cores, or one core twice.
    pub(crate) fn choose() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let client = cores.next().unwrap_or(0);
        Self { client, server: cores.next().unwrap_or(client) }
    }

    /// What each side's processes are kept on in this layout.
    pub(crate) fn pins(self, layout: Layout) -> Pins {
        let pin = |core| layout.is_pinned().then_some(core);
        Pins { client: pin(self.client), server: pin(self.server) }
    }

    pub(crate) fn shared(self) -> bool {
        self.client == self.server
    }
}

/// The core that the processes of each side are kept on. `None`: whichever the kernel chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pins {
    pub(crate) client: Option<usize>,
    pub(crate) server: Option<usize>,
}

/// Keeps the calling thread, and all that it starts from now on, on one core.
pub(crate) fn pin(core: usize) -> rustix::io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None::<Pid>, &cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_grows_while_spinning() {
        let process = std::process::id();
        let before = seconds_used(process);
        let mut deadline = 0_u64;
        while seconds_used(process) <= before {
            deadline += 1;
            assert!(deadline < 1_000_000, "no CPU time was counted");
        }
        assert!(coarse(process).is_some());
    }

    #[test]
    fn nobody_uses_nothing() {
        assert_eq!(seconds_used(u32::MAX), 0.0);
    }
}
