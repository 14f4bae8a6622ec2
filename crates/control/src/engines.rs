//! The engines of a host as its control plane knows them, and the channels that each serves.

use std::collections::{BTreeMap, BTreeSet};

/// The engine of a channel, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelPlace {
    /// The index of the engine among the host's.
    pub engine: usize,
    /// No two channels of a host have the same.
    pub channel: u32,
}

/// A channel, from when its place is taken until nothing is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Its session, which may have ended already.
    pub session: u64,
    /// On whose account it goes.
    pub user: u32,
    /// What its memory comes to.
    pub memory_bytes: u64,
    /// Its app shares the engine with no other.
    pub is_exclusive: bool,
}

/// An engine.
#[derive(Debug)]
pub struct Engine {
    /// Its name, for people.
    pub name: String,
    /// The index of its NIC.
    pub nic: usize,
    /// It answers nothing any more.
    pub has_ended: bool,
    pub(crate) channels: BTreeMap<u32, Channel>,
}

/// The numbers of channels. Low ones come first, because engines keep tables by them.
#[derive(Debug, Default)]
pub(crate) struct ChannelNumbers {
    free: BTreeSet<u32>,
    /// So many have been in use at a time.
    count: u32,
}

impl Engine {
    pub(crate) fn new(name: String, nic: usize) -> Self {
        Self { name, nic, has_ended: false, channels: BTreeMap::new() }
    }

    /// True if an app has it to itself.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.channels.values().any(|channel| channel.is_exclusive)
    }

    /// How many channels have a place here.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }
}

impl ChannelNumbers {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count
        })
    }

    /// Nothing is left of the channel.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.free.insert(number);
    }
}
