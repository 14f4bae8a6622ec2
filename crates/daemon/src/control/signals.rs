//! Signals as something to wait for.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that mean something to a daemon, or that it is not to die of.
const SIGNALS: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals of a daemon.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: SignalFd,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The end, by the signal of this name.
    End(&'static str),
    /// To read the configuration again.
    Reload,
    /// Nothing, by the signal of this name.
    Nothing(&'static str),
}

/// Blocks the signals for this thread and for all that it starts from now on: they wait until there
/// is a daemon that takes them. One is taken by nobody: what a file may not have, be it memory or a
/// line of the log, is refused by the call that wants it.
pub fn hold_signals() -> std::io::Result<()> {
    Ok(SigSet::from_iter(SIGNALS.into_iter().chain([Signal::SIGXFSZ])).thread_block()?)
}

impl Signals {
    /// Takes the signals from a descriptor instead.
    pub(crate) fn block() -> std::io::Result<Self> {
        hold_signals()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { descriptor: SignalFd::with_flags(&SigSet::from_iter(SIGNALS), flags)? })
    }

    /// True if one has come that ends the daemon. Others that have come are forgotten.
    pub(crate) fn want_the_end(&self) -> bool {
        std::iter::from_fn(|| self.take()).any(|wish| matches!(wish, Wish::End(_)))
    }

    /// What the next signal wants, if one has come.
    pub(super) fn take(&self) -> Option<Wish> {
        let info = self.descriptor.read_signal().ok().flatten()?;
        let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
        Some(match signal {
            Signal::SIGTERM | Signal::SIGINT => Wish::End(signal.as_str()),
            Signal::SIGHUP => Wish::Reload,
            other => Wish::Nothing(other.as_str()),
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
