//! What strangers have begun to open: how many of whom, and when each is answered again.

use clearway_base::{SlotId, Slots, Time};

use crate::deadlines::Deadlines;
use crate::listen::HalfOpen;
use crate::shares::Shares;

/// All of them.
#[derive(Debug)]
pub(super) struct HalfOpens {
    slots: Slots<HalfOpen>,
    shares: Shares,
    deadlines: Deadlines,
}

impl HalfOpens {
    /// None, and room for so many.
    pub(super) fn new(max: u32) -> Self {
        Self { slots: Slots::new(max), shares: Shares::default(), deadlines: Deadlines::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.count() as usize
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HalfOpen> {
        self.slots.iter().map(|(_, half_open)| half_open)
    }

    pub(super) fn get(&self, key: SlotId) -> Option<&HalfOpen> {
        self.slots.get(key)
    }

    pub(super) fn get_mut(&mut self, key: SlotId) -> Option<&mut HalfOpen> {
        self.slots.get_mut(key)
    }

    /// True if an account may have one more.
    pub(super) fn may_enter(&self, account: u32) -> bool {
        self.shares.may_enter(account, self.slots.room() as usize)
    }

    /// One that is answered again at `deadline`. `None` if there is no room.
    pub(super) fn insert(&mut self, half_open: HalfOpen, deadline: Time) -> Option<SlotId> {
        let key = self.slots.insert(half_open)?;
        self.shares.enter(half_open.account);
        self.deadlines.set(key.slot, deadline);
        Some(key)
    }

    pub(super) fn remove(&mut self, key: SlotId) -> Option<HalfOpen> {
        let half_open = self.slots.remove(key)?;
        self.shares.leave(half_open.account);
        self.deadlines.remove(key.slot);
        Some(half_open)
    }

    /// It is another listener's, and goes on another account.
    pub(super) fn give(&mut self, key: SlotId, listener: SlotId, account: u32) {
        let Some(half_open) = self.slots.get_mut(key) else { return };
        self.shares.leave(half_open.account);
        (half_open.listener, half_open.account) = (listener, account);
        self.shares.enter(account);
    }

    /// It is looked at again at `deadline`.
    pub(super) fn wait(&mut self, key: SlotId, deadline: Time) {
        self.deadlines.set(key.slot, deadline);
    }

    /// One that is to be looked at by `now`.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<SlotId> {
        Some(self.slots.id_at(self.deadlines.pop_due(now)?))
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.deadlines.earliest()
    }

    /// How many deadlines are kept.
    #[cfg(test)]
    pub(super) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }
}
