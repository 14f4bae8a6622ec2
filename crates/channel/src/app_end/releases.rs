//! Receive buffers that the app is done with, waiting to be told to the daemon together.

use crate::ReleaseList;

pub(super) struct Releases {
    list: ReleaseList,
    /// What no longer fits in the list, while the ring is full.
    more: Vec<u32>,
    bytes: u32,
    bytes_max: u32,
}

impl Releases {
    /// Due once `bytes_max` bytes, or a full list, have come together.
    pub(super) fn new(bytes_max: u32) -> Self {
        Self { list: ReleaseList::default(), more: Vec::new(), bytes: 0, bytes_max }
    }

    #[inline]
    pub(super) fn push(&mut self, id: u32, length: u32) {
        if !self.list.push(id) {
            self.more.push(id);
        }
        self.bytes = self.bytes.saturating_add(length);
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.list.is_full() || self.bytes >= self.bytes_max
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The next entry's worth.
    #[inline]
    pub(super) fn take(&mut self) -> ReleaseList {
        let taken = std::mem::take(&mut self.list);
        while !self.list.is_full() {
            let Some(id) = self.more.pop() else { break };
            self.list.push(id);
        }
        self.bytes = 0;
        taken
    }
}
