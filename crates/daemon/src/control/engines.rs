//! The control plane's view of an engine: its mailbox, and what waits for room in it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use clearway_engine::{Control, Event, Request};

/// One engine. Requests beyond the mailbox's depth of one wait here; there are never more than a
/// few per session, because a session has one request in work at a time.
pub(crate) struct EngineSlot {
    pub(crate) name: String,
    /// Index of the NIC that it serves.
    pub(super) nic: usize,
    control: Control,
    waiting: VecDeque<Request>,
    /// Since when the first of those has waited.
    waits_since: Option<Instant>,
    /// Channels that are in the engine, or on their way in or out.
    channels: HashMap<u32, Channel>,
    /// True once the engine has said so, or cannot any more.
    pub(crate) ended: bool,
}

/// What the control plane has to remember of a channel until the engine has given it back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    /// The session, by its token; it may have ended already.
    pub(super) session: u64,
    pub(super) user: u32,
    pub(super) memory_bytes: u64,
    /// Its app shares the engine with no other.
    pub(super) is_exclusive: bool,
}

/// The numbers of channels: no two of a host have the same. Low ones come first, because engines
/// keep tables by them.
#[derive(Debug, Default)]
pub(super) struct ChannelNumbers {
    free: BTreeSet<u32>,
    /// So many have been in use at a time.
    count: u32,
}

impl ChannelNumbers {
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count
        })
    }

    /// The channel is out of its engine.
    pub(super) fn give_back(&mut self, number: u32) {
        self.free.insert(number);
    }
}

impl EngineSlot {
    pub(crate) fn new(name: &str, nic: usize, control: Control) -> Self {
        Self {
            name: name.to_owned(),
            nic,
            control,
            waiting: VecDeque::new(),
            waits_since: None,
            channels: HashMap::new(),
            ended: false,
        }
    }

    /// Hands over a request, now or when the mailbox is free.
    pub(super) fn post(&mut self, request: Request) {
        self.waiting.push_back(request);
        self.pump();
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
        let since = self.waits_since.filter(|_| !self.ended);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    pub(super) fn acknowledge(&self) {
        self.control.acknowledge();
    }

    pub(super) fn next_event(&self) -> Option<Event> {
        self.control.next_event()
    }

    pub(super) fn add_channel(&mut self, number: u32, channel: Channel) {
        self.channels.insert(number, channel);
    }

    pub(super) fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// True if an app has the engine to itself.
    pub(super) fn is_exclusive(&self) -> bool {
        self.channels.values().any(|channel| channel.is_exclusive)
    }

    pub(super) fn remove_channel(&mut self, channel: u32) {
        self.post(Request::RemoveChannel { channel });
    }

    /// The app has ended in good order: what it has sent is delivered first.
    pub(super) fn let_linger(&mut self, channel: u32, linger: Duration) {
        let linger_ns = linger.as_nanos() as u64; // bounded by the configuration
        self.post(Request::LetLinger { channel, linger_ns });
    }

    pub(super) fn channel(&self, id: u32) -> Option<Channel> {
        self.channels.get(&id).copied()
    }

    pub(super) fn forget_channel(&mut self, id: u32) -> Option<Channel> {
        self.channels.remove(&id)
    }
}

impl std::fmt::Debug for EngineSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineSlot").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AsFd for EngineSlot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
