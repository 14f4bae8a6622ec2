//! Ctrl-C as something that can be waited for together with the processes of a benchmark.

use crate::error::{Error, While};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Catches SIGINT, SIGTERM and SIGHUP as long as it lives, so that guards run and nothing is left.
#[derive(Debug)]
pub struct Interrupt {
    raised: UnixStream,
    /// The number of the last one that came.
    signal: Arc<AtomicUsize>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Starts catching.
    pub fn catch() -> Result<Self, Error> {
        let (raised, write) = UnixStream::pair().while_("making a socket pair for signals")?;
        let signal = Arc::new(AtomicUsize::new(0));
        let mut registered = Vec::new();
        for number in [SIGINT, SIGTERM, SIGHUP] {
            // Before the pipe: handlers run in this order, and who reads the pipe wants the number.
            let noted = Arc::clone(&signal);
            let id = signal_hook::flag::register_usize(number, noted, number as usize);
            registered.push(id.while_("registering a signal handler")?);
            let write = write.try_clone().while_("copying a descriptor")?;
            let id = signal_hook::low_level::pipe::register(number, write);
            registered.push(id.while_("registering a signal handler")?);
        }
        Ok(Self { raised, signal, registered })
    }

    /// One to which a signal comes when its other end is dropped, and no other: for tests beside
    /// those that raise signals.
    #[cfg(test)]
    pub(crate) fn without_signals() -> (Self, UnixStream) {
        let (raised, write) = UnixStream::pair().expect("a socket pair");
        (Self { raised, signal: Arc::default(), registered: Vec::new() }, write)
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
                // Signals are small numbers.
                return Err(Error::Interrupted(self.signal.load(Ordering::Relaxed) as u8));
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
        self.pause(Duration::ZERO)
    }

    /// Waits for so long; fails as soon as a signal comes.
    pub(crate) fn pause(&self, duration: Duration) -> Result<(), Error> {
        self.wait(&self.raised, Instant::now() + duration).map(drop)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_with_a_signal() {
        let interrupt = Interrupt::catch().expect("signals can be caught");
        interrupt.pause(Duration::from_millis(1)).expect("nothing has come");
        signal_hook::low_level::raise(SIGHUP).expect("a signal to this process");
        let began = Instant::now();
        let ended = interrupt.pause(Duration::from_secs(60));
        assert!(matches!(ended, Err(Error::Interrupted(number)) if i32::from(number) == SIGHUP));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
