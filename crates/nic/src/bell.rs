//! How one thread wakes another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A bell between threads of one process: whoever waits for its descriptor to become readable wakes
/// when it is rung. Rings before it is silenced count once.
///
/// It never leaves the process: what another can reach it can fill, and then ringing would wait.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Wakes who waits. Never waits itself.
    pub fn ring(&self) {
        // An eventfd only refuses a one when it is full, and then it is readable as it should be.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it silent, if it has rung. Then look at what it is rung for.
    pub fn silence(&self) {
        // There is nothing to read if it has not been rung.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn has_rung(bell: &Bell) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&at_once)) == Ok(1)
    }

    #[test]
    fn is_heard_once_however_often_it_is_rung() {
        let bell = Bell::new().expect("an eventfd");
        assert!(!has_rung(&bell));
        bell.silence(); // does not wait
        (0..3).for_each(|_| bell.ring());
        assert!(has_rung(&bell));
        bell.silence();
        assert!(!has_rung(&bell));
    }
}
