//! Steering of packet sockets: their filter, written anew at each change.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::sock_filter;
use rustix::io::Errno;

use super::filter;
use crate::Error;
use crate::interface::{PatternTable, SteerPattern, Steered, attach_filter};

/// The patterns that are in the filters of packet sockets: those of all copies of this.
#[derive(Clone)]
pub(super) struct PacketPatterns {
    filter: Arc<Mutex<Filter>>,
}

struct Filter {
    sockets: Vec<Arc<OwnedFd>>,
    /// How many copies have each of them.
    patterns: BTreeMap<SteerPattern, usize>,
    /// Set while the filter lets everything through, for `Info::mode`.
    is_open: Arc<AtomicBool>,
}

impl PacketPatterns {
    /// No patterns yet, and filters that drop everything.
    pub(super) fn new(sockets: Vec<Arc<OwnedFd>>, is_open: Arc<AtomicBool>) -> PacketPatterns {
        let filter = Filter { sockets, patterns: BTreeMap::new(), is_open };
        PacketPatterns { filter: Arc::new(Mutex::new(filter)) }
    }

    /// A panic leaves patterns that the kernel may not have, which is as bad as any.
    fn filter(&self) -> MutexGuard<'_, Filter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filter {
    fn add(&mut self, pattern: &SteerPattern) {
        *self.patterns.entry(*pattern).or_default() += 1;
    }

    fn take_off(&mut self, pattern: &SteerPattern) {
        match self.patterns.get_mut(pattern) {
            Some(1) => _ = self.patterns.remove(pattern),
            Some(count) => *count -= 1,
            None => {}
        }
    }

    /// Makes the filters those for `patterns`; where the kernel takes nothing that long, they let
    /// everything through.
    fn apply(&self) -> Result<(), Error> {
        let attach = |program: &[sock_filter]| {
            self.sockets.iter().try_for_each(|socket| attach_filter(&**socket, program))
        };
        let outcome = filter::compile(self.patterns.keys()).map(|program| attach(&program));
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
        let mut filter = self.filter();
        filter.add(pattern);
        filter.apply().inspect_err(|_| filter.take_off(pattern))
    }

    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        let mut filter = self.filter();
        filter.take_off(pattern);
        filter.apply().inspect_err(|_| filter.add(pattern))
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
