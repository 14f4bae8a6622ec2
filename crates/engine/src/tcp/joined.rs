//! Connections between two apps of this engine: no frames, and one copy, from the memory of the app
//! that sends to that of the app that receives.
//!
//! Both ends are connections of the same stack. What one has to send is given to the other as it
//! is, several segments' worth at a time. Nothing else differs: numbers, windows, acknowledgements,
//! timers and resets are those of the wire. Only the first segment is built as a frame, which the
//! switch says to be TCP's, as it would of all others; and again when the switch's table has
//! changed, or a path is to be renewed. While somebody watches, all segments are frames again, for
//! there to be something to see.
//!
//! Windows promise more than a pool may have: those of all connections of an app together, or of
//! pieces that are small, each of which takes 64 bytes. So nothing leaves that its receiver has no
//! memory for:
//!
//! ```text
//!  Stack ── how much? ──▶ Here ── is there a piece? ──▶ Channel of the receiver
//!                                   no: its sender joins `Channel::held_up`
//!    ▲                                                        │ the app releases something
//!    └── ask_again ──────────── Tcp::let_go_on ◀── has_freed ─┘
//! ```
//!
//! Who waits has been refused a segment, and others that want less could take all that becomes
//! free. So each time that one is passed over it is content with half as much, down to what the
//! smallest piece has: bytes of a stream can be cut anywhere.

use std::ops::RangeInclusive;

use clearway_base::{SlotId, Time};
use clearway_tcp::{Arrival, Stack, Transmit, Ways};
use clearway_wire::digest::Digest;
use clearway_wire::{Ecn, protocol};

use super::Tcp;
use super::books::{Book, Books};
use super::departures::{Room, SEGMENT};
use super::elsewhere;
use super::memory::Payload;
use super::paths::{Paths, TcpPath};
use crate::channels::{Channel, Channels, SlotQueue};
use crate::common::{Common, Via};
use crate::host::Nic;
use crate::services::Service;
use crate::switch::{FrameOwner, Reach};

/// What a joined connection sends at once, at most: a piece of the receiver's pool.
const JOINED_BYTES: u32 = 32 << 10;

/// Senders that are held up which are looked at in a turn, of each receiver. Those behind them have
/// the next turn.
const LOOKS: usize = 16;

/// Pieces of a pool have powers of two: what a segment may take is 64 KiB, and what a sender that
/// is held up is content with in the end, 64 bytes.
const PIECE_BYTES_LOG2: RangeInclusive<u32> = 6..=16;

/// Where the segment of the connection at hand goes.
pub(super) struct Here<'a> {
    common: &'a mut Common,
    books: &'a mut Books,
    paths: &'a Paths,
    /// Those that wait for a lane.
    held: &'a mut SlotQueue,
    now: Time,
    /// It is to leave by a lane that is full.
    finds_lane_full: Option<SlotId>,
    /// Both ends of the connection, if both are of this engine.
    pair: Option<Pair>,
    /// What may leave for another host in one frame.
    wire: Room,
}

#[derive(Clone, Copy)]
struct Pair {
    from: SlotId,
    to: SlotId,
    /// It needs no frames.
    is_joined: bool,
}

impl Ways for Here<'_> {
    #[inline]
    fn most(&mut self, connection: SlotId) -> u32 {
        let is_full = !elsewhere::has_room(self.common, self.paths, connection);
        self.finds_lane_full = is_full.then_some(connection);
        let peer = self.books.get(connection).and_then(|book| book.peer);
        self.pair =
            peer.map(|to| Pair { from: connection, to, is_joined: self.is_joined(connection) });
        match self.pair {
            Some(Pair { is_joined: true, .. }) => JOINED_BYTES,
            None if self.wire.segments > 1 && self.paths.leaves_here(connection) => self.wire.bytes,
            _ => SEGMENT,
        }
    }

    #[inline(always)] // On a wire it is two comparisons, and a call would be more.
    fn room(&mut self, bytes: u32, segment_bytes: u32) -> u32 {
        if let Some(connection) = self.finds_lane_full {
            self.held.push(connection.slot, ());
            return 0;
        }
        match self.pair {
            Some(pair) => self.room_at(pair, bytes, segment_bytes),
            None if self.wire.segments == 1 => bytes,
            None => bytes.min(self.wire.segments * segment_bytes), // of a packet each
        }
    }
}

impl<'a> Here<'a> {
    #[inline]
    pub(super) fn new(
        common: &'a mut Common,
        books: &'a mut Books,
        (paths, held): (&'a Paths, &'a mut SlotQueue),
        now: Time,
        wire: Room,
    ) -> Self {
        Self { common, books, paths, held, now, finds_lane_full: None, pair: None, wire }
    }

    /// True if the segment is of a joined connection.
    #[inline]
    pub(super) fn is_of_joined(&self) -> bool {
        self.pair.is_some_and(|pair| pair.is_joined)
    }

    #[inline]
    fn is_joined(&self, connection: SlotId) -> bool {
        let (interface, version) = (self.common.host.own(), self.common.switch.version());
        !self.common.has_onlookers()
            && self.paths.is_joined(self.now, interface, version, connection)
    }

    /// Room in the pool of who receives. A sender for whom there is none waits there.
    #[inline(never)]
    fn room_at(&mut self, pair: Pair, bytes: u32, segment_bytes: u32) -> u32 {
        let Some(receiver) = receiver(self.books, &mut self.common.channels, pair.to) else {
            return bytes; // it is answered with a reset
        };
        let least = segment_bytes.min(bytes);
        let book = self.books.get_mut(pair.from);
        let offered = book.map_or(0, |book| core::mem::take(&mut book.offered));
        let sizes = [bytes, least, offered.min(least)];
        let granted = sizes.into_iter().find(|&size| size > 0 && receiver.has_room_for(size));
        if let Some(granted) = granted {
            let is_first = receiver.held_up.first().is_some_and(|(slot, _)| slot == pair.from.slot);
            receiver.held_up.remove(pair.from.slot);
            if offered == 0 && !is_first {
                pass_over(receiver);
            }
            return granted;
        }
        receiver.held_up.push(pair.from.slot, least);
        self.common.counters.segments_held_up += 1;
        0
    }
}

/// The channel that keeps what comes for a connection, if its app has not let go of that.
#[inline]
fn receiver<'a>(
    books: &Books,
    channels: &'a mut Channels,
    connection: SlotId,
) -> Option<&'a mut Channel> {
    let book = books.get(connection).filter(|book| !book.is_closing)?;
    channels.channel(book.channel)
}

impl Tcp {
    /// An app has memory again, or nobody has a claim to it any more: one of those that were held
    /// up goes on that there is room for, and the next in the next turn. Returns how many went on,
    /// or 1 if there are others to be looked at.
    #[cold]
    pub(crate) fn let_go_on(&mut self, channels: &mut Channels, receiver: u32) -> usize {
        let Some(receiver) = channels.channel(receiver) else { return 0 };
        let count = receiver.held_up.count();
        if count == 0 {
            return 0;
        }
        let Some(room) = largest_piece(receiver) else { return 0 };
        let fits = |(_, bytes): (u32, u32)| bytes <= room;
        let found = receiver.held_up.iter().take(LOOKS).position(fits);
        if found.is_none() && count <= LOOKS {
            return 0; // nobody is passed over
        }
        for _ in 0..found.unwrap_or(LOOKS) {
            pass_over(receiver);
            receiver.held_up.rotate();
        }
        if found.is_some()
            && let Some((place, bytes)) = receiver.held_up.first()
        {
            receiver.held_up.remove(place);
            self.offer(place, bytes);
        }
        receiver.freed();
        1
    }

    /// A connection that was held up is to send, so much if there is no room for more.
    fn offer(&mut self, place: u32, bytes: u32) {
        let key = self.books.at(place as usize).map(|book| book.key);
        if let Some(book) = key.and_then(|key| self.books.get_mut(key)) {
            book.offered = bytes;
            self.stack.ask_again(book.key);
        }
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

    /// Gives a segment to the connection of this engine whose it is.
    pub(super) fn deliver(&mut self, common: &mut Common, now: Time, transmit: &Transmit) {
        let mut extents = core::mem::take(&mut self.extents);
        if let Some(key) = transmit.connection {
            extents.extend(self.stack.extents(key, transmit.payload.clone()));
        }
        let answers = self.stack.answers_waiting();
        let arrival = arrival(transmit);
        self.receive_segment(common, now, None, &arrival, Payload::Sent(&extents));
        extents.clear();
        self.extents = extents;
        common.counters.segments_local += 1;
        if self.stack.answers_waiting() > answers {
            self.prepare_answer_here(common, now, &arrival);
        }
        self.tell_after(common, now, Via::Host);
    }

    /// What was delivered is answered, though it is of no connection any more.
    #[cold]
    fn prepare_answer_here(&mut self, common: &Common, now: Time, arrival: &Arrival) {
        let (from, to) = (arrival.to.ip(), arrival.from.ip());
        if let Some(path) = common.host.own().path_here(now, from, to, protocol::TCP) {
            self.paths.prepare(TcpPath { path, nic: Nic::Own, is_here: true });
        }
    }

    /// Who is held up has something to send to the app where it waits: for audits.
    pub(crate) fn audit_held_up(&self, channels: &Channels) -> Result<(), String> {
        for (id, receiver) in channels.iter() {
            let sends_there = |place: u32| {
                let peer = self.books.at(place as usize)?.peer?;
                (self.books.channel_of(peer)? == id).then_some(())
            };
            let gone = receiver.held_up.slots().find(|place| sends_there(*place).is_none());
            if let Some(place) = gone {
                return Err(format!("channel {id}: {place} is held up and sends nothing there"));
            }
        }
        Ok(())
    }

    /// A connection is over: it waits nowhere, and nobody waits for its app. What its other end has
    /// to send is answered.
    pub(super) fn part(&mut self, channels: &mut Channels, gone: &Book) {
        let Some(peer) = gone.peer else { return };
        let no_more = [(Some(gone.channel), peer), (self.books.channel_of(peer), gone.key)];
        for (receiver, sender) in no_more {
            let receiver = receiver.and_then(|receiver| channels.channel(receiver));
            receiver.into_iter().for_each(|it| _ = it.held_up.remove(sender.slot));
        }
        self.stack.ask_again(peer);
    }
}

/// The largest piece that there is room for, of those that may be wanted.
fn largest_piece(receiver: &mut Channel) -> Option<u32> {
    let mut sizes = PIECE_BYTES_LOG2.rev().map(|log2| 1 << log2);
    sizes.find(|&size| receiver.has_room_for(size))
}

/// Another goes on before the first that is held up, which is content with half as much then.
fn pass_over(receiver: &mut Channel) {
    let least = |bytes: u32| bytes.min(1 << PIECE_BYTES_LOG2.start());
    receiver.held_up.change_first(|bytes| (bytes / 2).max(least(bytes)));
}

/// Notes of an open connection which one of this engine is its other end, if one is.
pub(super) fn meet(books: &mut Books, stack: &Stack, key: SlotId) {
    let Some(peer) = stack.other_end(key) else { return };
    for (one, other) in [(key, peer), (peer, key)] {
        books.get_mut(one).into_iter().for_each(|book| book.peer = Some(other));
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
