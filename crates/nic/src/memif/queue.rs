//! A memif queue pair behind the crate's queue trait.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffers::Violation;
use super::control::Control;
use super::handshake::Peer;
use super::link::Ends;
use super::poller::{Poller, Source};
use super::receiver::{self, Receiver};
use super::sender::Sender;
use super::shared::Shared;
use super::{Config, Watch};
use crate::{Capabilities, Counters, Error, Info, Sink, Transmit};

/// Calls of `receive` between two looks at the control sockets, which cost a system call (0.2 µs)
/// each: while the link is up, and while it is down.
const CALLS_UP: u32 = 16 * 1024;
const CALLS_DOWN: u32 = 8;
/// Bursts that are still taken from a link that has gone: more than are in a ring of the usual
/// size. A peer that has gone writes no more, but one that pretends to could go on for ever.
const LAST_BURSTS: u32 = 64;

/// One queue pair of a memif. Opened by [`super::open`].
#[derive(Debug)]
pub struct Queue {
    ends: Ends,
    generation: u32,
    /// Calls of `receive` until the control sockets are looked at.
    calls_left: u32,
    /// Bursts that are taken from this link once it has gone.
    last_bursts_left: u32,
    counters: Counters,
    /// The private copies of received frames.
    area: Box<[u8]>,
    shared: Arc<Shared>,
    index: u16,
    config: Arc<Config>,
    poller: Arc<Poller>,
    /// Only the first queue has it.
    control: Option<Control>,
    /// Where frames go that are sent while the link is down.
    nowhere: Box<[u8]>,
}

/// What happened to the link of a memif since it was opened, summed over its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Links established.
    pub established: u64,
    /// Links that ended.
    pub lost: u64,
    /// Peers sent away: wrong secret, wrong message, or a link that broke the rules.
    pub refused: u64,
    /// Broken rules found in shared memory; each ends a link.
    pub violations: u64,
}

impl Queue {
    pub(super) fn open_all(config: Config) -> Result<Vec<Self>, Error> {
        let config = Arc::new(config);
        let shared = Arc::new(Shared::new(config.queue_pairs).map_err(system_error)?);
        (0..config.queue_pairs).map(|index| Self::open(&config, &shared, index)).collect()
    }

    fn open(config: &Arc<Config>, shared: &Arc<Shared>, index: u16) -> Result<Self, Error> {
        let poller = Arc::new(Poller::new().map_err(system_error)?);
        poller.add_eventfd(shared.bell(index), Source::News).map_err(system_error)?;
        let control = match index {
            0 => Some(Control::open(config.clone(), shared.clone(), poller.clone())?),
            _ => None,
        };
        Ok(Self {
            ends: Ends::default(),
            generation: 0,
            calls_left: 0,
            last_bursts_left: LAST_BURSTS,
            counters: Counters::default(),
            area: vec![0; receiver::area_bytes(config.frame_bytes_max)].into(),
            shared: shared.clone(),
            index,
            config: config.clone(),
            poller,
            control,
            nowhere: vec![0; config.frame_bytes_max].into(),
        })
    }

    /// What happened to the link so far.
    #[must_use]
    pub fn link_counters(&self) -> LinkCounters {
        LinkCounters {
            established: self.shared.links_established.load(Ordering::Relaxed),
            lost: self.shared.links_lost.load(Ordering::Relaxed),
            refused: self.shared.peers_refused.load(Ordering::Relaxed),
            violations: self.shared.violations.load(Ordering::Relaxed),
        }
    }

    /// What tells of the link's changes, for one who watches all queues of the memif.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::new(self.shared.clone())
    }

    /// The largest frame that the peer is sent; 0 while there is none. A larger one is lost.
    #[must_use]
    pub fn sent_bytes_max(&self) -> usize {
        self.ends.sender.as_ref().map_or(0, Sender::sent_bytes_max)
    }

    /// Looks at everything that may have become ready, and at whether the link has changed.
    #[cold]
    fn housekeep(&mut self) {
        if let Some(control) = &mut self.control {
            self.poller.ready().for_each(|source| control.handle(source));
        }
        self.follow_link();
        self.calls_left = self.calls_to_next_look();
    }

    const fn calls_to_next_look(&self) -> u32 {
        if self.has_link() { CALLS_UP } else { CALLS_DOWN }
    }

    /// Takes our ends of the current link if that has changed, and if what the peer sent last has
    /// been taken: often it has said goodbye.
    fn follow_link(&mut self) {
        if self.generation != self.shared.generation() {
            self.ends.sender = None;
            let has_frames = self.ends.receiver.as_ref().is_some_and(Receiver::has_frames);
            if has_frames && self.last_bursts_left > 0 {
                self.last_bursts_left -= 1;
                return;
            }
            self.last_bursts_left = LAST_BURSTS;
            self.drop_ends();
            (self.ends, self.generation) = self.shared.fetch(self.index);
            if let Some(receiver) = &self.ends.receiver
                && self.poller.add_eventfd(receiver.doorbell(), Source::Doorbell).is_err()
            {
                // What the peer sent is no descriptor that can be waited for.
                self.violated(Violation::Doorbell);
            }
        }
    }

    fn drop_ends(&mut self) {
        if let Some(receiver) = &self.ends.receiver {
            self.poller.remove(receiver.doorbell());
        }
        self.ends = Ends::default();
    }

    #[cold]
    pub(super) fn violated(&mut self, violation: Violation) {
        self.drop_ends();
        self.shared.report(self.generation, violation);
        if let Some(control) = &mut self.control {
            control.handle(Source::News);
        }
        self.calls_left = CALLS_DOWN;
    }

    const fn has_link(&self) -> bool {
        self.ends.receiver.is_some() || self.ends.sender.is_some()
    }

    /// The link is down: the frame is made, and lost.
    #[cold]
    fn transmit_nowhere(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        if fill(&mut self.nowhere) == 0 {
            return Transmit::Nothing;
        }
        self.counters.tx_frames_dropped += 1;
        Transmit::Queued
    }
}

impl crate::Queue for Queue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.config.frame_bytes_max,
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: false,
            reaches_kernel: false,
            receive_is_call: false,
            flush_is_call: false,
            receive_together: false,
        }
    }

    fn info(&self) -> Info {
        let Config { role, socket, mac, .. } = &*self.config;
        let mode = match self.shared.peer() {
            Ok(Peer { name, limit }) => {
                format!("{role} on {socket}, connected to {name}: {limit}")
            }
            Err(reason) => format!("{role} on {socket}, not connected: {reason}"),
        };
        Info { driver: "memif", mode, mac: *mac }
    }

    fn link_up(&self) -> bool {
        self.ends.sender.is_some() && self.generation == self.shared.generation()
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        if self.calls_left == 0 || self.generation != self.shared.generation() {
            self.housekeep();
        }
        self.calls_left = self.calls_left.saturating_sub(1);
        let Some(receiver) = &mut self.ends.receiver else { return 0 };
        let (frames, result) = receiver.burst(budget, &mut self.area, sink, &mut self.counters);
        if let Err(violation) = result {
            self.violated(violation);
        }
        frames
    }

    #[inline]
    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let Some(sender) = &mut self.ends.sender else { return self.transmit_nowhere(fill) };
        match sender.transmit(fill, &mut self.counters) {
            Ok(transmit) => transmit,
            Err(violation) => {
                self.violated(violation);
                Transmit::Full
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        if let Some(sender) = &mut self.ends.sender {
            sender.flush();
        }
        if let Some(receiver) = &mut self.ends.receiver {
            receiver.give_back();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn arm(&mut self) -> bool {
        if self.generation != self.shared.generation() {
            return false;
        }
        self.ends.receiver.as_mut().is_none_or(Receiver::arm)
    }

    fn disarm(&mut self) {
        if let Some(receiver) = &self.ends.receiver {
            receiver.disarm();
        }
        for source in self.poller.ready() {
            if let Some(control) = &mut self.control {
                control.handle(source);
            }
        }
        self.follow_link();
        self.calls_left = self.calls_to_next_look();
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

fn system_error(source: std::io::Error) -> Error {
    Error::System {
        action: "memif: open a queue".into(),
        remedy: "Raise the limit of open files (ulimit -n)".into(),
        source,
    }
}
