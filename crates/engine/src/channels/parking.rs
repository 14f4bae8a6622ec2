//! Which channels are looked at in each turn. With a few, all are. With many, those whose apps have
//! been silent for a while are parked: the app is told to ring, and nothing is looked at until it
//! does. So a thousand idle apps cost an engine nothing, and those that talk no latency.
//!
//! ```text
//!            silent for PARK_NS, and more than POLLED_FREELY are polled
//!   polled ─────────────────────────────────────────────────────────▶ parked
//!          ◀───────────────────────────────────────────────────────── (doorbell armed)
//!            its app rings, or `Channels::channel` is asked for it
//! ```
//!
//! An app can lie about its doorbell, to its own loss: rung for nothing, it costs the engine one
//! event per look; not rung, its commands wait until something comes for it.

use clearway_base::{MICROSECOND, MILLISECOND, Time};
use clearway_channel::DaemonEnd;

use super::{Channel, Channels};

/// So many channels are polled, however silent: that costs a turn less than a look at the
/// doorbells.
const POLLED_FREELY: usize = 16;
/// How long an app is silent before it is parked.
const PARK_NS: u64 = MILLISECOND;
/// How often an engine that is awake looks at the doorbells of parked channels. What an app says
/// first after it was silent may be this late; a look costs a system call.
const DOORBELLS_NS: u64 = 20 * MICROSECOND;

/// What [`Channels`] remembers about this.
#[derive(Debug, Default)]
pub(super) struct Attention {
    /// The channels that are looked at in each turn, in this order.
    pub(super) polled: Vec<u32>,
    parked: usize,
    /// Empty; kept for its memory.
    leaving: Vec<u32>,
    sweep_at: Time,
    doorbells_at: Time,
}

impl Attention {
    /// The last of those that are polled is parked, and its app has been told so before.
    pub(super) fn park_last(&mut self) {
        self.parked += usize::from(self.polled.pop().is_some());
    }

    #[cold]
    pub(super) fn unpark(&mut self, id: u32, channel: &mut Channel) {
        channel.is_parked = false;
        channel.end.disarm();
        self.polled.push(id);
        self.parked -= 1;
    }
}

impl Channels {
    /// How many channels are looked at in each turn.
    pub(crate) fn polled_count(&self) -> usize {
        self.attention.polled.len()
    }

    /// How many are not.
    pub(crate) fn parked_count(&self) -> usize {
        self.attention.parked
    }

    /// How many channels there are.
    pub(crate) fn open_count(&self) -> usize {
        self.attention.polled.len() + self.attention.parked
    }

    /// The id of one of those that are polled.
    #[inline]
    pub(crate) fn polled_id(&self, index: usize) -> u32 {
        self.attention.polled[index]
    }

    /// True if one of those may have asked for something: a look at each, and no more.
    #[inline]
    pub(crate) fn any_asks(&self) -> bool {
        let channel = |id: &u32| self.channels[*id as usize].as_ref();
        self.attention.polled.iter().filter_map(channel).any(Channel::asks)
    }

    /// True if a completion ring is full. A channel with such a ring is polled.
    pub(crate) fn waits_for_room(&self) -> bool {
        let channel = |id: &u32| self.channels[*id as usize].as_ref();
        self.attention.polled.iter().filter_map(channel).any(Channel::has_pending)
    }

    /// When those may try again whose messages an app had no room for, though it has released
    /// nothing. A channel with such messages is polled.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let channel = |id: &u32| self.channels[*id as usize].as_ref();
        let channels = self.attention.polled.iter().filter_map(channel);
        channels.filter_map(Channel::tries_again_at).min()
    }

    /// True if it is time to look whether an app rang whose channel is parked.
    #[inline]
    pub(crate) fn wants_doorbells(&mut self, now: Time) -> bool {
        let is_due = self.attention.parked > 0 && now >= self.attention.doorbells_at;
        if is_due {
            self.attention.doorbells_at = now + DOORBELLS_NS;
        }
        is_due
    }

    /// Before the engine sleeps: all apps ring from now on. False if one has said something
    /// already.
    pub(crate) fn arm(&mut self) -> bool {
        if self.attention.polled.is_empty() {
            return true;
        }
        for &id in &self.attention.polled {
            if let Some(channel) = &mut self.channels[id as usize] {
                channel.end.announce_sleep();
            }
        }
        DaemonEnd::order_announcements();
        self.attention.polled.iter().all(|&id| self.is_quiet(id))
    }

    /// Ends what [`Channels::arm`] began.
    pub(crate) fn disarm(&mut self) {
        for &id in &self.attention.polled {
            if let Some(channel) = &mut self.channels[id as usize] {
                channel.end.disarm();
            }
        }
    }

    /// Parks channels that have been silent, if many are polled.
    #[inline]
    pub(crate) fn park_silent(&mut self, now: Time) {
        if self.attention.polled.len() > POLLED_FREELY && now >= self.attention.sweep_at {
            self.attention.sweep_at = now + PARK_NS;
            self.sweep(now);
        }
    }

    #[cold]
    fn sweep(&mut self, now: Time) {
        let excess = self.attention.polled.len() - POLLED_FREELY;
        let mut leaving = core::mem::take(&mut self.attention.leaving);
        let silent = self.attention.polled.iter().filter(|id| self.is_silent(**id, now));
        leaving.extend(silent.take(excess));
        for &id in &leaving {
            if let Some(channel) = &mut self.channels[id as usize] {
                channel.end.announce_sleep();
            }
        }
        if !leaving.is_empty() {
            DaemonEnd::order_announcements();
        }
        for id in leaving.drain(..) {
            self.park(id);
        }
        self.attention.leaving = leaving;
        let channels = &self.channels;
        let is_polled = |id: &u32| channels[*id as usize].as_ref().is_some_and(|c| !c.is_parked);
        self.attention.polled.retain(is_polled);
    }

    /// Parks a channel that sleep has been announced to, unless its app was quicker.
    fn park(&mut self, id: u32) {
        let is_quiet = self.is_quiet(id);
        let Some(channel) = &mut self.channels[id as usize] else { return };
        if is_quiet {
            channel.is_parked = true;
            self.attention.parked += 1;
        } else {
            channel.end.disarm();
        }
    }

    /// True if nothing that its app has said waits to be looked at now.
    fn is_quiet(&self, id: u32) -> bool {
        let channel = self.channels[id as usize].as_ref();
        channel.is_none_or(|channel| !channel.is_served() || channel.end.is_quiet())
    }

    fn is_silent(&self, id: u32, now: Time) -> bool {
        self.channels[id as usize].as_ref().is_some_and(|channel| {
            let owes_nothing =
                !channel.has_pending() && !channel.has_untold() && !channel.is_starved();
            channel.can_park && owes_nothing && now.since(channel.busy_at) >= PARK_NS
        })
    }
}

#[cfg(test)]
mod tests {
    use clearway_channel::{Command, Violation};

    use crate::testing::World;

    /// As one that lingers: it may go on writing for as long as it does.
    #[test]
    fn an_app_that_is_served_no_more_keeps_no_engine_awake() {
        let mut world = World::new();
        assert!(world.common.channels.arm());
        world.common.channels.disarm();
        world.app(0).submit(&Command::TakeStreams { are_taken: true }).expect("there is room");
        assert!(!world.common.channels.arm());
        world.common.channels.disarm();
        world.common.channels.condemn(0, Violation::Opcode(77));
        assert!(world.common.channels.arm());
        world.common.channels.disarm();
    }
}
