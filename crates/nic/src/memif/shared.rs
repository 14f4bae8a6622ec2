//! What the queues of one memif share: the current link, and news about it.
//!
//! The first queue, which owns the control sockets, publishes a link or takes it back; each queue
//! compares one number per receive and only when that has changed takes a lock and its own ends of
//! the new link. An old link's memory stays mapped until the last queue has noticed, so there is
//! nothing to wait for.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::buffers::Violation;
use super::handshake::{Established, Peer};
use super::link::Ends;
use crate::Bell;

#[derive(Debug)]
pub(super) struct Shared {
    /// Counts changes of the link. Written under the lock.
    generation: AtomicU32,
    state: Mutex<State>,
    /// One for each queue, rung when there is news for it.
    bells: Vec<Bell>,
    /// Rung when the link has changed, for who watches.
    watcher: Bell,
    pub(super) links_established: AtomicU64,
    pub(super) links_lost: AtomicU64,
    pub(super) peers_refused: AtomicU64,
    pub(super) violations: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Ends of the current link that their queues have not fetched yet.
    ends: Vec<Ends>,
    /// The peer if the link is up; else why it is down.
    peer: Result<Peer, String>,
    /// What a queue found wrong with the current link.
    violation: Option<Violation>,
}

impl Shared {
    pub(super) fn new(queues: u16) -> std::io::Result<Self> {
        let bells = (0..queues).map(|_| Bell::new());
        let peer = Err("the peer has not been there yet".into());
        Ok(Self {
            generation: AtomicU32::new(0),
            state: Mutex::new(State { ends: Vec::new(), peer, violation: None }),
            bells: bells.collect::<Result<_, _>>()?,
            watcher: Bell::new()?,
            links_established: AtomicU64::new(0),
            links_lost: AtomicU64::new(0),
            peers_refused: AtomicU64::new(0),
            violations: AtomicU64::new(0),
        })
    }

    /// The bell of who watches.
    pub(super) fn watcher(&self) -> &Bell {
        &self.watcher
    }

    /// The bell of queue `index`.
    pub(super) fn bell(&self, index: u16) -> BorrowedFd<'_> {
        self.bells[usize::from(index)].as_fd()
    }

    /// Changes when there is a new link, or none. Acquire pairs with the release in `change`.
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The ends of queue `index` and the generation that they belong to.
    pub(super) fn fetch(&self, index: u16) -> (Ends, u32) {
        let mut state = self.lock();
        let ends = state.ends.get_mut(usize::from(index)).map(std::mem::take).unwrap_or_default();
        (ends, self.generation.load(Ordering::Relaxed))
    }

    /// A new link is there.
    pub(super) fn publish(&self, established: Established) {
        self.links_established.fetch_add(1, Ordering::Relaxed);
        self.change(established.ends, Ok(established.peer));
    }

    /// The link is gone.
    pub(super) fn retract(&self, reason: String) {
        self.links_lost.fetch_add(1, Ordering::Relaxed);
        self.change(Vec::new(), Err(reason));
    }

    /// Why there is no link so far, for the user to see.
    pub(super) fn explain(&self, reason: String) {
        let mut state = self.lock();
        if state.peer.is_err() {
            state.peer = Err(reason);
        }
    }

    /// The peer, or why there is none.
    pub(super) fn peer(&self) -> Result<Peer, String> {
        self.lock().peer.clone()
    }

    /// A queue has found the link of `generation` broken; the first queue shall end it.
    pub(super) fn report(&self, generation: u32, violation: Violation) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        if self.generation.load(Ordering::Relaxed) == generation {
            state.violation = Some(violation);
            drop(state);
            self.ring(0);
        }
    }

    /// What a queue has reported about the current link.
    pub(super) fn take_violation(&self) -> Option<Violation> {
        self.lock().violation.take()
    }

    fn change(&self, ends: Vec<Ends>, peer: Result<Peer, String>) {
        let mut state = self.lock();
        *state = State { ends, peer, violation: None };
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        // Release pairs with the acquire in `generation`.
        self.generation.store(next, Ordering::Release);
        drop(state);
        (0..self.bells.len()).for_each(|index| self.ring(index));
        self.watcher.ring();
    }

    /// Wakes a queue.
    pub(super) fn ring(&self, index: usize) {
        self.bells[index].ring();
    }

    /// Nothing that holds the lock can panic half-way, so a poisoned lock protects sound data.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
