//! Memory that a channel can share by one-sided operations: a part of its own, and memfds of the
//! app's that it adds.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use clearway_channel::control::{RemoveMemory, Reply, Request};
use clearway_channel::{CHANNEL_MEMORY, Shared};

use crate::session::unexpected;
use crate::{Channel, Error};

/// Names memory of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(u64);

impl MemoryId {
    /// The part of the channel's own memory: `sizes.shared_bytes` of its options.
    pub const CHANNEL: Self = Self(CHANNEL_MEMORY);

    /// The memory with this number.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// The number, as `clearway regions` shows it.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Those that were added.
pub(crate) type Memories = BTreeMap<MemoryId, Shared>;

impl Channel {
    /// Memory that this channel can share. Others read and write the shared parts of it at any
    /// time. `None` if it was never added, or is removed; [`MemoryId::CHANNEL`] is always there, if
    /// without bytes.
    #[must_use]
    pub fn memory(&self, memory: MemoryId) -> Option<Shared> {
        match memory {
            MemoryId::CHANNEL => Some(self.shared()),
            _ => self.memories.get(&memory).cloned(),
        }
    }

    /// Adds memory of the app's own, all of a memfd, of which pieces can be shared then
    /// ([`Channel::share_in`]). What it holds stays. It counts as this user's, as the channel's
    /// does, and lasts until it is removed or the channel ends.
    ///
    /// The memfd is one that takes seals (`MFD_ALLOW_SEALING`), and has a size in whole pages. From
    /// now on its size and its pages are fixed: it is written by mappings that there are already,
    /// [`Channel::memory`] among them, and in no other way. So it is for one channel, once; the
    /// daemon after this one is given a copy ([`Channel::reattach`]).
    ///
    /// # Errors
    /// If it is no such memfd; the policy lets this user share nothing, or no more; or the daemon
    /// has no memory.
    pub fn add_memory(&mut self, memfd: impl AsFd) -> Result<MemoryId, Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        let shared = Shared::offer(&memfd)?;
        let memory = MemoryId(self.host.add_memory(memfd.as_fd(), &shared)?);
        self.memories.insert(memory, shared);
        Ok(memory)
    }

    /// Adds copies of the memories of a channel whose daemon has gone. What each was called there,
    /// and is called here.
    pub(crate) fn add_copies(
        &mut self,
        memories: &Memories,
    ) -> Vec<(MemoryId, Result<MemoryId, Error>)> {
        let mut again = |shared: &Shared| self.add_memory(shared.copy()?);
        memories.iter().map(|(was, shared)| (*was, again(shared))).collect()
    }

    /// Takes memory back, when no region is shared in it any more ([`Channel::unshare`]) and all
    /// buffers that were posted there have had their ends ([`Channel::unpost`]). The app
    /// keeps it; clones of what [`Channel::memory`] gave stay as they are.
    ///
    /// # Errors
    /// If there is no such memory, or regions are still shared in it, or buffers posted.
    pub fn remove_memory(&mut self, memory: MemoryId) -> Result<(), Error> {
        match self.request(&Request::RemoveMemory(RemoveMemory { memory: memory.0 }))? {
            Reply::MemoryRemoved(_) => {
                self.memories.remove(&memory);
                Ok(())
            }
            reply => Err(unexpected(&reply)),
        }
    }
}
