//! Steering of a packet socket: its filter, written anew at each change.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::sock_filter;
use rustix::io::Errno;

use super::filter;
use crate::Error;
use crate::interface::{PatternTable, SteerPattern, Steered, attach_filter};

/// The patterns that are in the filter of a packet socket.
pub(super) struct PacketPatterns {
    socket: Arc<OwnedFd>,
    patterns: BTreeSet<SteerPattern>,
    /// Set while the filter lets everything through, for `Info::mode`.
    is_open: Arc<AtomicBool>,
}

impl PacketPatterns {
    /// No patterns yet, and a filter that drops everything.
    pub(super) fn new(socket: Arc<OwnedFd>, is_open: Arc<AtomicBool>) -> PacketPatterns {
        PacketPatterns { socket, patterns: BTreeSet::new(), is_open }
    }

    /// Makes the filter the one for `patterns`; one that the kernel takes nothing that long for
    /// lets everything through.
    fn apply(&self) -> Result<(), Error> {
        let attach = |program: &[sock_filter]| attach_filter(&*self.socket, program);
        let outcome = filter::compile(self.patterns.iter()).map(|program| attach(&program));
        let is_open = match outcome {
            Some(Ok(())) => false,
            // The limit of the option memory of a socket (net.core.optmem_max) may be lower.
            None | Some(Err(Errno::NOMEM | Errno::NOBUFS)) => {
                attach(&filter::everything()).map_err(failed)?;
                true
            }
            Some(Err(errno)) => return Err(failed(errno)),
        };
        // It says something and guards nothing.
        self.is_open.store(is_open, Ordering::Relaxed);
        Ok(())
    }
}

impl PatternTable for PacketPatterns {
    fn insert(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.insert(*pattern);
        self.apply().inspect_err(|_| _ = self.patterns.remove(pattern))
    }

    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.remove(pattern);
        self.apply().inspect_err(|_| _ = self.patterns.insert(*pattern))
    }

    fn steered(&self) -> Option<Steered> {
        None
    }
}

fn failed(errno: Errno) -> Error {
    Error::System {
        action: "cannot change the filter of a packet socket".into(),
        remedy: "The kernel may be out of memory".into(),
        source: errno.into(),
    }
}
