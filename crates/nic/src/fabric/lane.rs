//! What is under way to one receive queue: the frames under way, and a bell.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use clearway_base::Time;

use super::{Transit, lock};
use crate::Bell;

#[derive(Debug)]
pub(super) struct Lane {
    state: Mutex<State>,
    descriptors: usize,
    bell: Bell,
}

#[derive(Debug, Default)]
struct State {
    transit: Transit<Vec<u8>>,
    /// The receiver sleeps, or is about to.
    armed: bool,
    dropped: u64,
}

impl Lane {
    pub(super) fn new(descriptors: usize) -> Self {
        let bell = Bell::new().expect("a test may open an eventfd; raise ulimit -n");
        Self { state: Mutex::default(), descriptors, bell }
    }

    /// Frames under way, of which a queue has room for so many.
    pub(super) fn frames(&self) -> usize {
        lock(&self.state).transit.len()
    }

    /// Puts a frame on its way; without room, and if `bounded`, it is dropped.
    pub(super) fn push(&self, frame: Vec<u8>, arrival: Time, overtaken_by: u16, bounded: bool) {
        let mut state = lock(&self.state);
        if bounded && state.transit.len() >= self.descriptors {
            state.dropped += 1;
        } else {
            state.transit.push(frame, arrival, overtaken_by);
        }
    }

    /// Wakes the receiver if it sleeps.
    pub(super) fn wake(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.armed) {
            drop(state);
            self.bell.ring();
        }
    }

    /// Takes up to `budget` frames that have arrived by `now`.
    pub(super) fn pop(&self, budget: usize, now: Time, into: &mut Vec<Vec<u8>>) {
        let mut state = lock(&self.state);
        while into.len() < budget
            && let Some(frame) = state.transit.pop(now)
        {
            into.push(frame);
        }
        if into.is_empty() && budget > 0 {
            state.transit.polled_in_vain();
        }
    }

    /// Rings the bell at the next frame. False if the receiver should look again now.
    pub(super) fn arm(&self, now: Time) -> bool {
        let mut state = lock(&self.state);
        let waiting = state.transit.wants_polling(now);
        state.armed = !waiting;
        !waiting
    }

    pub(super) fn disarm(&self) {
        lock(&self.state).armed = false;
        self.bell.silence();
    }

    /// Wakes the receiver if frames have arrived by `now`.
    pub(super) fn time_has_come(&self, now: Time) {
        if lock(&self.state).transit.has_arrived(now) {
            self.wake();
        }
    }

    /// When the first frame after `now` arrives.
    pub(super) fn next_arrival(&self, now: Time) -> Option<Time> {
        lock(&self.state).transit.next_arrival().map(|arrival| arrival.max(now))
    }

    pub(super) fn dropped(&self) -> u64 {
        lock(&self.state).dropped
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
