//! Segments from one connection of this engine to another. No frame is built of them: the stack gets
//! back what it has given, and the bytes are copied once, from where the one app has them to the
//! other's receive pool. So they may be longer than any packet.
//!
//! ```text
//!  app ── TcpSend: an extent ──▶ Stack ── segment: header and place ──┐
//!  app ◀─ TcpReceived: a buffer ─ Stack ◀── one copy, pool to pool ───┘
//! ```
//!
//! All else is TCP as over the wire: windows, acknowledgements, ends, and what is saved of it. That
//! two connections are joined is found out by a frame, which the switch says to be TCP's, as it
//! would of all others; and again when the switch's table has changed, or a path is to be renewed.
//! While somebody watches, all segments are frames again, for there to be something to see.

use clearway_base::{SlotId, Time};
use clearway_tcp::{Arrival, Transmit};
use clearway_wire::digest::Digest;
use clearway_wire::tcp::Flags;
use clearway_wire::{Ecn, protocol};

use super::Tcp;
use super::departures::SEGMENT;
use super::memory::Payload;
use super::paths::TcpPath;
use crate::common::{Common, Via};
use crate::services::Service;
use crate::switch::{FrameOwner, Reach};

/// What a joined connection sends at once, at most: a piece of the receiver's pool.
const JOINED_BYTES: u32 = 32 << 10;

impl Tcp {
    /// The next segment, and whether it is one of a joined connection.
    #[inline]
    pub(super) fn next_segment(&mut self, common: &Common, now: Time) -> (Option<Transmit>, bool) {
        let (paths, interface) = (&self.paths, common.host.own());
        let (version, is_watched) = (common.switch.version(), common.has_onlookers());
        let mut is_joined = false;
        let transmit = self.stack.poll_transmit_by(now, |key| {
            is_joined = !is_watched && paths.is_joined(now, interface, version, key);
            if is_joined { JOINED_BYTES } else { SEGMENT }
        });
        (transmit, is_joined)
    }

    /// The connection that has sent the segment in a frame, if it goes to another of this engine,
    /// and nobody watches.
    pub(super) fn joins(
        &self,
        common: &mut Common,
        transmit: &Transmit,
        digest: &Digest,
    ) -> Option<SlotId> {
        let key = transmit.connection?;
        let is_here = !common.has_onlookers()
            && self.stack.has(transmit.to, transmit.from)
            && common.switch.reach(digest) == Reach::Here
            && common.switch.owner(digest) == Some(FrameOwner::Service(Service::Tcp));
        is_here.then_some(key)
    }

    /// Gives a segment to the connection of this engine whose it is. If there is no room for all of
    /// it, there may be for its first parts.
    pub(super) fn deliver(&mut self, common: &mut Common, now: Time, transmit: &Transmit) {
        if self.deliver_whole(common, now, transmit) {
            return;
        }
        let _ = parts(transmit).all(|part| self.deliver_whole(common, now, &part));
    }

    /// False if there was no room for what it carries.
    fn deliver_whole(&mut self, common: &mut Common, now: Time, transmit: &Transmit) -> bool {
        let mut extents = core::mem::take(&mut self.extents);
        if let Some(key) = transmit.connection {
            extents.extend(self.stack.extents(key, transmit.payload.clone()));
        }
        let answers = self.stack.answers_waiting();
        let arrival = arrival(transmit);
        let has_room = self.receive_segment(common, now, &arrival, Payload::Sent(&extents));
        extents.clear();
        self.extents = extents;
        common.counters.segments_local += 1;
        if self.stack.answers_waiting() > answers {
            self.prepare_answer_here(common, now, &arrival);
        }
        self.tell_after(common, now, Via::Host);
        has_room
    }

    /// What was delivered is answered, though it is of no connection any more.
    #[cold]
    fn prepare_answer_here(&mut self, common: &Common, now: Time, arrival: &Arrival) {
        let (from, to) = (arrival.to.ip(), arrival.from.ip());
        if let Some(path) = common.host.own().path_here(now, from, to, protocol::TCP) {
            self.paths.prepare(TcpPath { path, is_here: true });
        }
    }
}

/// A segment as its receiver sees it.
#[inline]
fn arrival(transmit: &Transmit) -> Arrival {
    Arrival {
        from: transmit.from,
        to: transmit.to,
        repr: transmit.repr,
        payload_length: (transmit.payload.end - transmit.payload.start) as u32, // `JOINED_BYTES`
        ecn: if transmit.ecn_capable { Ecn::Capable } else { Ecn::NotCapable },
    }
}

/// The segments of which one that is longer is made; none if it is none.
fn parts(transmit: &Transmit) -> impl Iterator<Item = Transmit> {
    let payload = transmit.payload.clone();
    let is_longer = payload.end - payload.start > u64::from(transmit.segment_bytes);
    let starts = payload.clone().step_by(transmit.segment_bytes.max(1) as usize);
    starts.take_while(move |_| is_longer).map(move |start| {
        let end = payload.end.min(start + u64::from(transmit.segment_bytes));
        let mut part = Transmit { payload: start..end, ..transmit.clone() };
        part.repr.sequence = part.repr.sequence.wrapping_add((start - payload.start) as u32);
        if end < payload.end {
            part.repr.flags = part.repr.flags.without(Flags::FIN | Flags::PSH);
        }
        part
    })
}
