//! Timestamps (RFC 7323): the clock that peers see, and which segments are too old.

use clearway_base::{MILLISECOND, SECOND, Time};
use clearway_wire::tcp;

use crate::saved::SavedTimestamps;

/// The timestamps of a connection that has agreed on them.
#[derive(Clone, Debug)]
pub(crate) struct Timestamps {
    /// RFC 7323, section 5.4: "a random offset may be added to the timestamp clock on a
    /// per-connection basis".
    offset: u32,
    /// TS.Recent, and when it was set.
    recent: u32,
    recent_at: Time,
}

/// RFC 7323, section 5.5: a connection idle for longer than 24 days has no valid TS.Recent.
const VALID_NS: u64 = 24 * 24 * 3600 * SECOND;

impl Timestamps {
    pub(crate) const fn new(offset: u32, recent: u32, now: Time) -> Self {
        Self { offset, recent, recent_at: now }
    }

    /// The clock: one tick per millisecond.
    #[inline]
    pub(crate) const fn clock(now: Time, offset: u32) -> u32 {
        ((now.as_ns() / MILLISECOND) as u32).wrapping_add(offset)
    }

    pub(crate) const fn save(&self) -> SavedTimestamps {
        let Self { offset, recent, recent_at } = *self;
        SavedTimestamps { offset, recent, recent_at }
    }

    pub(crate) const fn restore(saved: SavedTimestamps) -> Self {
        let SavedTimestamps { offset, recent, recent_at } = saved;
        Self { offset, recent, recent_at }
    }

    #[inline]
    pub(crate) const fn value(&self, now: Time) -> u32 {
        Self::clock(now, self.offset)
    }

    #[inline]
    pub(crate) const fn option(&self, now: Time) -> tcp::Timestamps {
        tcp::Timestamps { value: self.value(now), echo: self.recent }
    }

    /// RFC 7323, section 5.3, R1: "SEG.TSval < TS.Recent": the segment is old.
    #[inline]
    pub(crate) const fn is_old(&self, now: Time, value: u32) -> bool {
        is_before(value, self.recent) && now.since(self.recent_at) < VALID_NS
    }

    /// RFC 7323, section 4.3, (2): the caller has seen that "SEG.SEQ <= Last.ACK.sent".
    #[inline]
    pub(crate) const fn update(&mut self, now: Time, value: u32) {
        if !is_before(value, self.recent) || now.since(self.recent_at) >= VALID_NS {
            (self.recent, self.recent_at) = (value, now);
        }
    }

    /// True once a peer whose clock ticks at least once a millisecond, as those of Linux, FreeBSD
    /// and this stack do, has a later timestamp than TS.Recent for all that it sends from now on.
    pub(crate) const fn has_ticked(&self, now: Time) -> bool {
        now.since(self.recent_at) >= MILLISECOND
    }

    pub(crate) const fn recent(&self) -> u32 {
        self.recent
    }

    /// How long ago this end's clock was `echo`; `None` if never.
    pub(crate) const fn age_ns(&self, now: Time, echo: u32) -> Option<u64> {
        let age = self.value(now).wrapping_sub(echo);
        if echo == 0 || age as i32 <= 0 { None } else { Some(age as u64 * MILLISECOND) }
    }
}

/// "s < t" in the arithmetic of RFC 7323, section 5.2.
#[inline]
pub(crate) const fn is_before(value: u32, other: u32) -> bool {
    (value.wrapping_sub(other) as i32) < 0
}
