//! Ctrl-C as something to look at now and then, so that what was begun is brought to an end.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::output::Failure;

/// Holds back `SIGINT` and `SIGTERM`.
#[derive(Debug)]
pub(super) struct Stop {
    signals: SignalFd,
}

impl Stop {
    /// To be called before other threads are started.
    pub(super) fn hold_back() -> Result<Self, Failure> {
        let held = || {
            let mut set = SigSet::empty();
            set.add(Signal::SIGINT);
            set.add(Signal::SIGTERM);
            set.thread_block()?;
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        };
        let signals =
            held().map_err(|error| Failure::Failed(format!("cannot wait for Ctrl-C: {error}")))?;
        Ok(Self { signals })
    }

    /// True once one has come.
    pub(super) fn has_come(&self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }
}
