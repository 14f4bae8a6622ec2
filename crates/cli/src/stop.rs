//! Ctrl-C as something to look at now and then, so that what was begun is brought to an end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::output::Failure;

/// Holds back `SIGINT` and `SIGTERM`.
#[derive(Debug)]
pub(crate) struct Stop {
    signals: SignalFd,
}

impl Stop {
    /// To be called before other threads are started.
    pub(crate) fn hold_back() -> Result<Self, Failure> {
        let held = || {
            let set = signals();
            set.thread_block()?;
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        };
        let signals =
            held().map_err(|error| Failure::Failed(format!("cannot wait for Ctrl-C: {error}")))?;
        Ok(Self { signals })
    }

    /// From now on they end the process again.
    pub(crate) fn let_go(self) {
        // If it fails, they stay held back, and the process ends by itself.
        let _ = signals().thread_unblock();
    }

    /// True once one has come.
    pub(crate) fn has_come(&self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }

    /// Waits for it until then; true if it has come.
    pub(crate) fn comes_before(&self, then: Instant) -> Result<bool, Failure> {
        let timeout = then.saturating_duration_since(Instant::now());
        self.wait(&mut [PollFd::new(&self.signals, PollFlags::IN)], timeout)?;
        Ok(self.has_come())
    }

    /// Waits for it and for something to read, and at most so long; true if it has not come before.
    pub(crate) fn comes_after(
        &self,
        readable: impl AsFd,
        timeout: Duration,
    ) -> Result<bool, Failure> {
        let signals = PollFd::new(&self.signals, PollFlags::IN);
        self.wait(&mut [signals, PollFd::new(&readable, PollFlags::IN)], timeout)?;
        Ok(!self.has_come())
    }

    fn wait(&self, whatever: &mut [PollFd<'_>], timeout: Duration) -> Result<(), Failure> {
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match rustix::io::retry_on_intr(|| poll(whatever, Some(&timeout))) {
            Ok(_) => Ok(()),
            Err(errno) => Err(Failure::Failed(format!("cannot wait: {errno}"))),
        }
    }
}

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}
