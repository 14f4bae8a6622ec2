//! The flows of an endpoint: where each is kept and found, when it wants to send, when its timers
//! are due, and how it ends.

use core::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};

use clearway_base::{MILLISECOND, Time, TimerWheel};
use siphasher::sip::SipHasher13;

use super::strangers::Addresses;
use super::{ENGINE_BITS, Endpoint, FLOWS_MAX, FlowKey, SLOT_BITS};
use crate::app::{App, Owner, Reason};
use crate::config::Config;
use crate::flow::{Flow, Outcome};

/// Timers that are handled in one call, so that flows which all lose their peer at once take turns
/// with everything else.
const TIMEOUTS_BURST: usize = 256;

/// Timers of a slot that are remembered while the wheel holds them: one for each thing that a flow
/// may wait for at a time (silence, losses and probes, an acknowledgement to send, pacing, a search
/// for ports).
const ALARMS: usize = 5;

/// A place for a flow, a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) flow: Option<Box<Flow>>,
    /// The flow stands in `ready`.
    pub(super) is_ready: bool,
    /// What the flow has said of its timers, unless it stands in `ready`: when it waits for the
    /// next, or before that. Most alarms ring too early, since deadlines move away: with many flows
    /// they had better not fetch them from memory to find that out.
    deadline: Time,
    alarms: Alarms,
}

#[cfg(not(test))]
const _: () = assert!(size_of::<Slot>() == 64);

#[cfg(test)]
impl Slot {
    /// The wheel wakes it by `deadline`, or a tick later.
    pub(super) fn has_alarm(&self, deadline: Time) -> bool {
        self.alarms.earliest() < deadline + MILLISECOND
    }

    /// Its timers in the wheel: those that count, and a few that were left behind.
    pub(super) fn timers(&self) -> usize {
        assert!(self.alarms.timers <= 2 * ALARMS, "{:?}", self.alarms);
        assert!(self.alarms.times.is_sorted());
        self.alarms.timers
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self { flow: None, is_ready: false, deadline: Time::MAX, alarms: Alarms::default() }
    }
}

impl Slot {
    /// True if its flow waits for a time at which no alarm rings.
    pub(super) fn is_forgotten(&self, now: Time) -> bool {
        let waits = self.flow.is_some() && !self.is_ready && self.deadline != Time::MAX;
        // The wheel rounds up to its ticks.
        waits && self.alarms.earliest() > self.deadline.max(now) + MILLISECOND
    }

    /// True if its flow waits for a time before the one that it has said.
    pub(super) fn is_late(&self, config: &Config) -> bool {
        let flow = self.flow.as_ref().filter(|_| !self.is_ready);
        flow.is_some_and(|flow| flow.next_timeout(config) < self.deadline)
    }

    /// Timers that it has in the wheel, or that have come due, and that count.
    pub(super) fn alarms_set(&self) -> usize {
        self.alarms.times.iter().filter(|at| **at != Time::MAX).count()
    }
}

/// The timers of a slot that the wheel holds and that count, the next one first; `Time::MAX` if not
/// set. With fewer, each return from a near deadline (an acknowledgement) to a far one (keep-alive)
/// would leave a timer behind in the wheel until the far one is due, and a peer decides how often
/// that happens.
#[derive(Debug)]
struct Alarms {
    times: [Time; ALARMS],
    /// All that the wheel holds, those included that no longer count.
    #[cfg(test)]
    timers: usize,
}

impl Default for Alarms {
    fn default() -> Self {
        Self {
            times: [Time::MAX; ALARMS],
            #[cfg(test)]
            timers: 0,
        }
    }
}

impl Alarms {
    fn earliest(&self) -> Time {
        self.times[0]
    }

    /// Sees to it that the wheel fires by `deadline`, if there is one.
    fn set(&mut self, wheel: &mut TimerWheel, slot: u32, deadline: Time) {
        if self.earliest() <= TimerWheel::rounded(deadline) {
            return;
        }
        if self.times[ALARMS - 1] == Time::MAX {
            self.times.rotate_right(1);
        }
        self.times[0] = wheel.set(slot, deadline);
        #[cfg(test)]
        {
            self.timers += 1;
        }
    }

    /// True if the timer that has fired is one that counts.
    fn take(&mut self, fired: Time) -> bool {
        #[cfg(test)]
        {
            self.timers -= 1;
        }
        let Some(index) = self.times.iter().position(|time| *time == fired) else { return false };
        self.times[index] = Time::MAX;
        self.times[index..].rotate_left(1);
        true
    }
}

impl Endpoint {
    pub(super) fn flow(&mut self, key: FlowKey) -> Option<&mut Flow> {
        find(&mut self.slots, key)
    }

    /// A free slot and a fresh id for it: the slot, the engine, and random bits above. RFC 9000,
    /// section 21.5 (request forgery) and 10.3 (resets) rest on the same: whoever has not seen a
    /// packet of the flow cannot name it.
    pub(super) fn reserve(&mut self) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < FLOWS_MAX.min(self.config.flows_max as usize) => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        Some(self.secret_id() | u64::from(slot))
    }

    /// True if `peer` may open one more flow.
    pub(super) fn has_room_for(&self, peer: IpAddr) -> bool {
        let places = FLOWS_MAX.min(self.config.flows_max as usize);
        let free = places.saturating_sub(self.slots.len() - self.free.len());
        self.shares.allows(peer, free as u32, places as u32) // no more than fit into an id
    }

    /// Random bits with the engine's index where a flow id has it, and no slot. Never 0, which on
    /// the wire means "none yet".
    pub(super) fn secret_id(&mut self) -> u64 {
        let secret = (self.secrets.next() >> (SLOT_BITS + ENGINE_BITS)).max(1);
        (secret << ENGINE_BITS | u64::from(self.config.engine_index)) << SLOT_BITS
    }

    pub(super) fn insert(&mut self, now: Time, flow: Flow) -> FlowKey {
        let key = FlowKey(flow.local_id());
        self.slots[key.slot()].flow = Some(Box::new(flow));
        self.update(now, key.slot());
        key
    }

    /// After every change of a flow: puts it in line if it has something to send, and sees to it
    /// that the wheel wakes it in time.
    pub(super) fn update(&mut self, now: Time, index: usize) {
        let slot = &mut self.slots[index];
        let Some(flow) = &mut slot.flow else { return };
        if !slot.is_ready && flow.wants(now).is_some() {
            slot.is_ready = true;
            self.ready.push_back(index as u32);
        }
        // One in line is looked at when it has had its turn, or else when an earlier alarm rings.
        if !slot.is_ready || slot.alarms.earliest() == Time::MAX {
            self.set_alarm(now, index);
        }
    }

    /// The same after a flow has only received what is usual.
    #[inline]
    fn update_received(&mut self, now: Time, index: usize) {
        let slot = &mut self.slots[index];
        let Some(flow) = &mut slot.flow else { return };
        if slot.is_ready || flow.wants(now).is_some() {
            return self.update(now, index);
        }
        match flow.timeout_after(slot.deadline) {
            Some(deadline) => {
                slot.deadline = deadline;
                slot.alarms.set(&mut self.timers, index as u32, deadline);
            }
            None => self.set_alarm(now, index),
        }
    }

    /// Puts a flow in line that has a message to send. Whether it may is found out when it has its
    /// turn: until then its state can be fetched from memory.
    #[inline]
    pub(super) fn queue(&mut self, now: Time, index: usize) {
        let slot = &mut self.slots[index];
        if slot.is_ready {
            return;
        }
        slot.is_ready = true;
        self.ready.push_back(index as u32);
        if slot.alarms.earliest() == Time::MAX {
            self.set_alarm(now, index);
        }
    }

    /// Sees to it that the wheel wakes a flow in time.
    pub(super) fn set_alarm(&mut self, now: Time, index: usize) {
        let slot = &mut self.slots[index];
        let Some(flow) = &slot.flow else { return };
        slot.deadline = flow.next_timeout(&self.config);
        if slot.deadline <= now && slot.is_ready {
            return; // it comes here again when it has had its turn
        }
        slot.alarms.set(&mut self.timers, index as u32, slot.deadline);
    }

    // ---- time ----

    /// When [`Endpoint::handle_timeouts`] is to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let left = self.due.front().map(|(_, fired)| *fired);
        let timer = left.or_else(|| self.timers.next_deadline());
        if self.resting.is_empty() {
            return timer;
        }
        let rested = self.company.rest_until();
        Some(timer.map_or(rested, |timer| timer.min(rested)))
    }

    /// Does what is due at `now`, a few hundred timers at most: the rest, if
    /// [`Endpoint::next_timeout`] is not later than `now`, when it is called again.
    pub fn handle_timeouts(&mut self, now: Time, app: &mut impl App) {
        if !self.resting.is_empty() && self.company.rest_until() <= now {
            self.ready.append(&mut self.resting);
        }
        if self.due.is_empty() {
            let due = &mut self.due;
            self.timers.advance(now, |slot, fired| due.push_back((slot, fired)));
        }
        for _ in 0..TIMEOUTS_BURST {
            let Some((slot, fired)) = self.due.pop_front() else { return };
            if self.slots[slot as usize].alarms.take(fired) {
                self.handle_timer(now, slot as usize, app);
            }
        }
    }

    fn handle_timer(&mut self, now: Time, slot: usize, app: &mut impl App) {
        let place = &mut self.slots[slot];
        if !place.is_ready && place.deadline > now {
            return place.alarms.set(&mut self.timers, slot as u32, place.deadline);
        }
        let Some(flow) = &mut place.flow else { return };
        let outcome = if flow.next_timeout(&self.config) <= now {
            flow.handle_timeout(now, &self.config)
        } else {
            Outcome::Continue
        };
        self.conclude(now, slot, outcome, app);
    }

    // ---- the end ----

    pub(super) fn conclude(
        &mut self,
        now: Time,
        slot: usize,
        outcome: Outcome,
        app: &mut impl App,
    ) {
        match outcome {
            Outcome::Received => self.update_received(now, slot),
            Outcome::Continue => self.update(now, slot),
            Outcome::Gone => {
                if let Some(flow) = &self.slots[slot].flow {
                    self.closed.insert(flow.local_id());
                }
                self.remove(slot, app);
            }
            Outcome::Ended(reason) => {
                if matches!(reason, Reason::TimedOut | Reason::Protocol) {
                    self.tell_aborted(slot, reason);
                }
                if reason == Reason::TimedOut {
                    self.counters.flows_timed_out += 1;
                }
                self.end(slot, reason, app);
            }
        }
    }

    /// Removes a flow and tells its apps.
    fn end(&mut self, slot: usize, reason: Reason, app: &mut impl App) {
        let flow = self.slots[slot].flow.as_ref();
        let owners: Vec<Owner> = flow.map(|flow| flow.owners().collect()).unwrap_or_default();
        self.remove(slot, app);
        owners.into_iter().for_each(|owner| app.closed(owner, reason));
    }

    pub(super) fn tell_aborted(&mut self, slot: usize, reason: Reason) {
        let Some(flow) = &mut self.slots[slot].flow else { return };
        let mut bytes = vec![0; 64];
        let length = flow.emit_abort(reason, &mut bytes);
        let local = SocketAddr::new(flow.local().ip(), flow.source_port());
        let between = Addresses { local, peer: flow.remote() };
        if length > 0 {
            bytes.truncate(length);
            self.say(between, bytes);
        }
    }

    pub(super) fn remove(&mut self, slot: usize, app: &mut impl App) {
        if let Some(mut flow) = self.slots[slot].flow.take() {
            self.slots[slot].deadline = Time::MAX;
            flow.discard(app);
            if flow.was_accepted() {
                self.shares.give_back(flow.remote().ip());
            }
            if flow.is_unused() {
                self.unused.note(&flow, false);
            }
            self.by_peer.remove(&(flow.remote().ip(), flow.peer_id()));
            self.free.push(slot as u32);
        }
    }
}

/// The flow with this id, if there still is one.
pub(super) fn find(slots: &mut [Slot], key: FlowKey) -> Option<&mut Flow> {
    let flow = slots.get_mut(key.slot())?.flow.as_deref_mut()?;
    (flow.local_id() == key.0).then_some(flow)
}

/// A hash that strangers, who choose flow ids, cannot steer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed(pub(super) u64);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(self.0, !self.0);
        hasher.write_u64(0);
        hasher
    }
}

#[cfg(test)]
mod tests;
