//! Ctrl-C as something that can be waited for together with the processes of a benchmark.

use crate::error::{Error, While};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Catches SIGINT, SIGTERM and SIGHUP as long as it lives, so that guards run and nothing is left.
#[derive(Debug)]
pub struct Interrupt {
    raised: UnixStream,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Starts catching.
    pub fn catch() -> Result<Self, Error> {
        let (raised, write) = UnixStream::pair().while_("making a socket pair for signals")?;
        let mut registered = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let write = write.try_clone().while_("copying a descriptor")?;
            let id = signal_hook::low_level::pipe::register(signal, write);
            registered.push(id.while_("registering a signal handler")?);
        }
        Ok(Self { raised, registered })
    }

    /// Waits until `readable` can be read; false at the deadline.
    pub(crate) fn wait(&self, readable: impl AsFd, deadline: Instant) -> Result<bool, Error> {
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: remaining.as_secs() as i64,
                tv_nsec: i64::from(remaining.subsec_nanos()),
            };
            let mut descriptors =
                [PollFd::new(&self.raised, PollFlags::IN), PollFd::new(&readable, PollFlags::IN)];
            match poll(&mut descriptors, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).while_("waiting for a process"),
            }
            if !descriptors[0].revents().is_empty() {
                return Err(Error::Interrupted);
            }
            if !descriptors[1].revents().is_empty() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// Fails if a signal has come.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.wait(&self.raised, Instant::now()).map(drop)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
