//! `SIGTERM` and `SIGINT` as something to wait for.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that end a daemon.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks the signals for this thread and for all that it starts from now on, and takes them
    /// from a descriptor instead.
    pub(crate) fn block() -> std::io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { descriptor: SignalFd::with_flags(&set, flags)? })
    }

    /// The name of the signal that has come, if one has.
    pub(super) fn take(&self) -> Option<&'static str> {
        let info = self.descriptor.read_signal().ok().flatten()?;
        let signal = i32::try_from(info.ssi_signo).ok()?;
        Signal::try_from(signal).ok().map(Signal::as_str)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
