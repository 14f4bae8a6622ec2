//! The way to an engine: its mailbox, and what waits for room in it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use clearway_engine::{Control, Event, Request};

/// One engine's. Requests beyond the mailbox's depth of one wait here; there are never more than a
/// few per session, because a session has one request in work at a time.
#[derive(Debug)]
pub(crate) struct Mailbox {
    control: Control,
    waiting: VecDeque<Request>,
    /// Since when the first of those has waited.
    waits_since: Option<Instant>,
    /// Nobody takes anything out.
    is_closed: bool,
}

impl Mailbox {
    pub(crate) fn new(control: Control) -> Self {
        Self { control, waiting: VecDeque::new(), waits_since: None, is_closed: false }
    }

    /// The engine's, for those that come to its host.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Hands over a request, now or when the mailbox is free.
    pub(super) fn post(&mut self, request: Request) {
        if !self.is_closed {
            self.waiting.push_back(request);
            self.pump();
        }
    }

    /// There is no engine: what it is asked is forgotten.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.waiting.clear();
    }

    /// Fills the mailbox from what waits.
    pub(super) fn pump(&mut self) {
        while let Some(request) = self.waiting.pop_front() {
            if let Err(request) = self.control.post(request) {
                self.waiting.push_front(request);
                self.waits_since.get_or_insert_with(Instant::now);
                return;
            }
            self.waits_since = None;
        }
    }

    /// For how long a request has waited for room in the mailbox.
    pub(super) fn has_waited(&self, now: Instant) -> Duration {
        self.waits_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    pub(super) fn acknowledge(&self) {
        self.control.acknowledge();
    }

    pub(super) fn next_event(&self) -> Option<Event> {
        self.control.next_event()
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
