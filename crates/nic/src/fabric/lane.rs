//! What is under way to one receive queue: a sorted list of frames, and a bell.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use clearway_base::Time;
use rustix::event::{EventfdFlags, eventfd};

use super::lock;

#[derive(Debug)]
pub(super) struct Lane {
    state: Mutex<State>,
    descriptors: usize,
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    /// By arrival, and among frames that arrive at once by the order in which they came.
    arriving: BTreeMap<(Time, u64), Vec<u8>>,
    frames_so_far: u64,
    held: Vec<Held>,
    /// The receiver sleeps, or is about to.
    armed: bool,
    dropped: u64,
}

/// A frame that others shall overtake.
#[derive(Debug)]
struct Held {
    frame: Vec<u8>,
    arrival: Time,
    frames_left: u16,
    empty_polls_left: u16,
}

impl Lane {
    pub(super) fn new(descriptors: usize) -> Self {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = eventfd(0, flags).expect("a test may open an eventfd; raise ulimit -n");
        Self { state: Mutex::default(), descriptors, bell }
    }

    /// Frames under way, of which a queue has room for so many.
    pub(super) fn frames(&self) -> usize {
        let state = lock(&self.state);
        state.arriving.len() + state.held.len()
    }

    /// Puts a frame on its way; without room, and if `bounded`, it is dropped.
    pub(super) fn push(&self, frame: Vec<u8>, arrival: Time, overtaken_by: u16, bounded: bool) {
        let mut state = lock(&self.state);
        if bounded && state.arriving.len() + state.held.len() >= self.descriptors {
            state.dropped += 1;
            return;
        }
        if overtaken_by > 0 {
            let (frames_left, empty_polls_left) = (overtaken_by, overtaken_by);
            state.held.push(Held { frame, arrival, frames_left, empty_polls_left });
        } else {
            state.insert(frame, arrival);
            state.age_held(|held| &mut held.frames_left);
        }
    }

    /// Wakes the receiver if it sleeps.
    pub(super) fn wake(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.armed) {
            drop(state);
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes up to `budget` frames that have arrived by `now`.
    pub(super) fn pop(&self, budget: usize, now: Time, into: &mut Vec<Vec<u8>>) {
        let mut state = lock(&self.state);
        while into.len() < budget
            && let Some(first) = state.arriving.first_entry()
            && first.key().0 <= now
        {
            into.push(first.remove());
        }
        if into.is_empty() && budget > 0 {
            state.age_held(|held| &mut held.empty_polls_left);
        }
    }

    /// Rings the bell at the next frame. False if the receiver should look again now.
    pub(super) fn arm(&self, now: Time) -> bool {
        let mut state = lock(&self.state);
        let waiting = !state.held.is_empty() || state.has_arrived(now);
        state.armed = !waiting;
        !waiting
    }

    pub(super) fn disarm(&self) {
        lock(&self.state).armed = false;
        // Nothing to read means that the bell has not rung.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Wakes the receiver if frames have arrived by `now`.
    pub(super) fn time_has_come(&self, now: Time) {
        if lock(&self.state).has_arrived(now) {
            self.wake();
        }
    }

    /// When the first frame after `now` arrives.
    pub(super) fn next_arrival(&self, now: Time) -> Option<Time> {
        let state = lock(&self.state);
        let held = state.held.iter().map(|held| held.arrival);
        let arriving = state.arriving.keys().map(|(arrival, _)| *arrival);
        arriving.chain(held).map(|arrival| arrival.max(now)).min()
    }

    pub(super) fn dropped(&self) -> u64 {
        lock(&self.state).dropped
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl State {
    fn insert(&mut self, frame: Vec<u8>, arrival: Time) {
        self.arriving.insert((arrival, self.frames_so_far), frame);
        self.frames_so_far += 1;
    }

    fn has_arrived(&self, now: Time) -> bool {
        self.arriving.first_key_value().is_some_and(|((arrival, _), _)| *arrival <= now)
    }

    /// Counts `counter` of all held frames down; those at zero come forward.
    fn age_held(&mut self, counter: impl Fn(&mut Held) -> &mut u16) {
        for held in &mut self.held {
            *counter(held) -= 1;
        }
        let due = self.held.extract_if(.., |held| *counter(held) == 0).collect::<Vec<_>>();
        for held in due {
            self.insert(held.frame, held.arrival);
        }
    }
}
