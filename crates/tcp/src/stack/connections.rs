//! The connections of a stack by their keys, and which of them have something to do: to send, to
//! tell, to be looked at by some time.

use std::collections::VecDeque;

use clearway_base::{SlotId, SlotState, Slots, Time};

use crate::connection::{Arrival, Connection, Refused, Reply, Transmit};
use crate::deadlines::Deadlines;
use crate::event::Readiness;
use crate::extent::{Extent, Memory};
use crate::saved::{Invalid, SavedConnection};
use crate::ways::Ways;

/// A connection and what the stack notes of it.
#[derive(Debug)]
struct Slot {
    connection: Connection,
    /// By when it is looked at: no later than its next deadline.
    armed: Time,
    /// It waits in `ready`, in `changed`.
    is_ready: bool,
    is_changed: bool,
    /// A listener has not given it to anybody yet: its events wait.
    is_offered: bool,
    /// Its owner has let go of it.
    is_forgotten: bool,
}

impl Slot {
    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            armed: Time::MAX,
            is_ready: false,
            is_changed: false,
            is_offered: false,
            is_forgotten: false,
        }
    }

    /// Has it polled if it may have something to send.
    #[inline]
    fn mark_ready(&mut self, key: SlotId, ready: &mut VecDeque<SlotId>) {
        if self.is_to_be_polled() && !core::mem::replace(&mut self.is_ready, true) {
            ready.push_back(key);
        }
    }

    /// Has its owner told if there is something to tell.
    #[inline]
    fn mark_changed(&mut self, key: SlotId, changed: &mut VecDeque<SlotId>) {
        let is_changed = !self.connection.readiness().is_empty();
        if is_changed && !core::mem::replace(&mut self.is_changed, true) {
            changed.push_back(key);
        }
    }

    /// Has it looked at by its next deadline. One that has moved away, as most do, costs nothing
    /// until the one before it is due.
    #[inline]
    fn arm(&mut self, key: SlotId, deadlines: &mut Deadlines) {
        let deadline = self.connection.next_timeout();
        if deadline < self.armed {
            self.armed = deadline;
            deadlines.set(key.slot, deadline);
        }
    }

    /// False if it has surely nothing to send, and is not to be taken away after that.
    #[inline]
    const fn is_to_be_polled(&self) -> bool {
        self.connection.has_output() || self.is_forgotten
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Slots<Slot>,
    deadlines: Deadlines,
    /// Those that may have something to send, and that have something to tell.
    ready: VecDeque<SlotId>,
    changed: VecDeque<SlotId>,
}

impl Connections {
    /// None, and room for so many.
    pub(super) fn new(max: u32) -> Self {
        Self::of(Slots::new(max))
    }

    fn of(slots: Slots<Slot>) -> Self {
        let (ready, changed) = (VecDeque::new(), VecDeque::new());
        Self { slots, deadlines: Deadlines::default(), ready, changed }
    }

    pub(super) fn save(&self) -> Vec<SlotState<SavedConnection>> {
        self.slots.save(|slot| SavedConnection {
            is_offered: slot.is_offered,
            is_forgotten: slot.is_forgotten,
            ..slot.connection.save()
        })
    }

    /// Those that were saved.
    pub(super) fn restore(
        now: Time,
        max: u32,
        saved: Vec<SlotState<SavedConnection>>,
    ) -> Result<Self, Invalid> {
        let restore = |saved: SavedConnection| {
            let (is_offered, is_forgotten) = (saved.is_offered, saved.is_forgotten);
            let connection = Connection::restore(now, saved)?;
            Ok(Slot { is_offered, is_forgotten, ..Slot::new(connection) })
        };
        Ok(Self::of(Slots::restore(max, saved, restore)?))
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.room() == 0
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.slots.iter().map(|(key, _)| key)
    }

    #[inline]
    pub(super) fn get(&self, key: SlotId) -> Option<&Connection> {
        self.slots.get(key).map(|slot| &slot.connection)
    }

    /// To be asked for what it has. What may give it something to do is a
    /// [`Connections::change`].
    #[inline]
    pub(super) fn get_mut(&mut self, key: SlotId) -> Option<&mut Connection> {
        self.slots.get_mut(key).map(|slot| &mut slot.connection)
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Option<SlotId> {
        let key = self.slots.insert(Slot::new(connection))?;
        self.mark_ready(key);
        Some(key)
    }

    /// It waits at a listener: its events wait, too.
    pub(super) fn offer(&mut self, key: SlotId) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.is_offered = true;
        }
    }

    pub(super) fn is_offered(&self, key: SlotId) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.is_offered)
    }

    /// How many wait at listeners.
    pub(super) fn offered(&self) -> usize {
        self.slots.iter().filter(|(_, slot)| slot.is_offered).count()
    }

    /// It waits no more.
    pub(super) fn accept(&mut self, key: SlotId) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.is_offered = false;
            slot.mark_changed(key, &mut self.changed);
        }
    }

    /// True if somebody has it.
    pub(super) fn is_owned(&self, key: SlotId) -> bool {
        self.slots.get(key).is_some_and(|slot| !slot.is_offered && !slot.is_forgotten)
    }

    /// Takes it away as soon as it has sent the last that it has to.
    pub(super) fn forget(&mut self, key: SlotId) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.is_forgotten = true;
            slot.mark_ready(key, &mut self.ready);
        }
    }

    /// Has something happen to a connection.
    pub(super) fn change(&mut self, key: SlotId, change: impl FnOnce(&mut Connection)) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        change(&mut slot.connection);
        slot.mark_ready(key, &mut self.ready);
        slot.mark_changed(key, &mut self.changed);
        slot.arm(key, &mut self.deadlines);
    }

    /// Gives a connection bytes to be sent.
    pub(super) fn send(&mut self, key: SlotId, extent: Extent) -> Option<Result<(), Refused>> {
        let slot = self.slots.get_mut(key)?;
        let sent = slot.connection.send(extent);
        if sent.is_ok() {
            slot.mark_ready(key, &mut self.ready);
        }
        Some(sent)
    }

    fn mark_ready(&mut self, key: SlotId) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.mark_ready(key, &mut self.ready);
        }
    }

    /// After something has happened to a connection: true if it is over.
    pub(super) fn settle(&mut self, key: SlotId) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        slot.mark_changed(key, &mut self.changed);
        let is_over = slot.connection.state().is_over();
        if !is_over {
            slot.arm(key, &mut self.deadlines);
        }
        is_over
    }

    /// A segment has come for one of them. What is to be answered, and whether it is over.
    #[inline]
    pub(super) fn handle_segment(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) -> (Reply, bool) {
        let Some(slot) = self.slots.get_mut(key) else { return (Reply::Nothing, false) };
        let reply = slot.connection.handle_segment(now, key, arrival, memory);
        slot.mark_ready(key, &mut self.ready);
        slot.mark_changed(key, &mut self.changed);
        let is_over = slot.connection.state().is_over();
        if !is_over {
            slot.arm(key, &mut self.deadlines);
        }
        (reply, is_over)
    }

    /// Does what is due of one of them, which is to be settled then. `None` if nothing is.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<SlotId> {
        let index = self.deadlines.pop_due(now)?;
        let key = self.slots.id_at(index);
        let slot = self.slots.get_mut(key)?;
        slot.armed = Time::MAX;
        if slot.connection.handle_timeouts(now) {
            slot.mark_ready(key, &mut self.ready);
        }
        Some(key)
    }

    /// By when [`Connections::handle_timeout`] is to be called.
    #[inline]
    pub(super) fn next_timeout(&self) -> Time {
        self.deadlines.earliest()
    }

    /// False if [`Connections::poll_transmit`] has surely nothing.
    #[inline]
    pub(super) fn has_output(&self) -> bool {
        !self.ready.is_empty()
    }

    #[inline]
    pub(super) fn poll_transmit(&mut self, now: Time, ways: &mut impl Ways) -> Option<Transmit> {
        while let Some(key) = self.ready.front().copied() {
            let Some(slot) = self.slots.get_mut(key) else {
                self.ready.pop_front();
                continue;
            };
            let most = ways.most(key);
            let transmit = slot.connection.poll_transmit(now, key, most, ways);
            if transmit.is_none() || !slot.is_to_be_polled() {
                self.ready.pop_front();
                slot.is_ready = false;
                if slot.is_forgotten {
                    self.slots.remove(key);
                    self.deadlines.remove(key.slot);
                } else {
                    slot.arm(key, &mut self.deadlines);
                }
            } else if transmit.as_ref().is_some_and(|transmit| most > transmit.segment_bytes) {
                self.ready.rotate_left(1);
            }
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// True if [`Connections::poll_changed`] may have something.
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// One that has something to tell its owner.
    pub(super) fn poll_changed(&mut self) -> Option<(SlotId, Readiness)> {
        while let Some(key) = self.changed.pop_front() {
            let Some(slot) = self.slots.get_mut(key) else {
                continue;
            };
            slot.is_changed = false;
            if slot.is_offered {
                continue;
            }
            let readiness = slot.connection.take_readiness();
            if !readiness.is_empty() && !slot.is_forgotten {
                return Some((key, readiness));
            }
        }
        None
    }

    /// How many deadlines are kept.
    #[cfg(test)]
    pub(super) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// True if there is none.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.count() == 0 && self.ready.is_empty()
    }
}
