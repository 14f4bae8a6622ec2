//! The streams of a flow besides its own connection: connections that share its packets, and have
//! messages, credit and an end of their own. Either side opens them, without waiting for the other.
//! A *shared* flow has no connection of its own: who has opened it opens all streams, each of which
//! is a connection to the service port that the flow was opened to (see `shared`).
//!
//! ```text
//!   opened here                       opened by the peer
//!   open ──▶ known ──▶ ended          accepted ──▶ ended        closed by an app, in order
//!              └─▶ aborted ──▶ ended     └─▶ aborted ──▶ ended  at once, or refused
//! ```
//! *Known*: the peer is known to have seen the open frame, without which it makes nothing of the
//! others. What comes of a stream that has ended is ignored.

mod in_flow;
mod shared;
mod side;
mod turns;

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};
use clearway_wire::clearway::{
    self, CLOSE_FRAME_LENGTH, Frame, Frames, LIMIT_FRAME_LENGTH, OPEN_FRAME_LENGTH,
    STREAM_FRAME_LENGTH, WAIT_FRAME_LENGTH,
};

use super::{Flow, State};
use crate::app::{App, Deadline, Owner, Reason};
use crate::company::Sending;
use crate::endpoint::StreamKey;
use crate::incoming::Refused;
use crate::outgoing::Outgoing;
use crate::recovery::Content;
use crate::state::{SideState, StreamStage, StreamsState};
use crate::stream::Stream;
use in_flow::Parent;
pub(crate) use shared::Listeners;
use side::{Side, Stage};
pub use turns::Priority;
use turns::{Place, Turns};

/// Streams of a flow that have not ended, of either side, at most.
pub(crate) const STREAMS_MAX: usize = 1024;
/// The same with those that no app has, and of whose end the peer has yet to be told.
const SIDES_MAX: usize = STREAMS_MAX + 64;
/// Gaps in the numbers of the peer's streams: each is a packet that is under way, or was lost.
const GAPS_MAX: usize = 64;
/// Streams besides the one with the oldest packet that a probe looks at. The peer may call for many
/// probes.
const PROBED_MAX: usize = 64;
/// What is told of a stream in one packet, at most.
const TOLD_BYTES_MAX: usize =
    STREAM_FRAME_LENGTH + OPEN_FRAME_LENGTH + CREDIT_FRAME_LENGTH + CLOSE_FRAME_LENGTH;
/// A limit or wait frame.
const CREDIT_FRAME_LENGTH: usize = LIMIT_FRAME_LENGTH;
const _: () = assert!(WAIT_FRAME_LENGTH == CREDIT_FRAME_LENGTH);

#[cfg(test)]
std::thread_local! {
    /// Streams that were looked at for probes.
    pub(crate) static PROBED: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// Why no stream can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStream {
    /// The peer's daemon is too old to know streams.
    Unknown,
    /// There are as many as there may be.
    TooMany,
    /// The connection has ended, or is not open yet.
    NotOpen,
}

/// What is known of a stream. All else is its flow's.
#[derive(Clone, Copy, Debug)]
pub struct StreamInfo {
    /// The connection that it is.
    pub owner: Owner,
    /// The state: `connecting`, `open`, `closing`.
    pub state: &'static str,
    /// Messages sent and acknowledged.
    pub messages_sent: u64,
    /// Messages delivered to the app.
    pub messages_received: u64,
    /// The peer has given no room for what is to be sent next.
    pub held_by_peer: bool,
}

/// Streams that wait for the same, and have their turns.
#[derive(Debug, Default)]
struct Line {
    ids: BTreeSet<u32>,
    /// The one that had its turn last.
    last: u32,
}

impl Line {
    /// `id` has something to say, or nothing any more; `waits` is what is known of that.
    #[inline]
    fn set(&mut self, id: u32, waits: &mut bool, has_news: bool) {
        if core::mem::replace(waits, has_news) != has_news {
            self.change(id, has_news);
        }
    }

    #[inline(never)]
    fn change(&mut self, id: u32, has_news: bool) {
        if has_news {
            self.ids.insert(id);
        } else {
            self.ids.remove(&id);
        }
    }

    fn next(&mut self) -> Option<u32> {
        let behind = self.ids.range((Bound::Excluded(self.last), Bound::Unbounded)).next();
        self.last = *behind.or(self.ids.first())?;
        Some(self.last)
    }
}

/// Puts a stream in line for what it has to say.
#[inline]
fn stand_in_line(telling: &mut Line, sending: &mut Turns, id: u32, side: &mut Side) {
    let (has_news, has_messages) = (side.has_news(), side.has_messages());
    telling.set(id, &mut side.tells, has_news);
    sending.set(id, &mut side.place, has_messages);
}

/// All streams of a flow but its own connection.
#[derive(Debug)]
pub(super) struct Streams {
    sides: BTreeMap<u32, Side>,
    /// How many of them an app has.
    with_app: usize,
    /// 1 if those that are opened here have odd numbers, else 0.
    own_parity: u32,
    /// How many were opened here, ever.
    opened: u32,
    /// Which of the peer's were, counted from 0 on.
    seen: RangeSet,
    /// Those of which something is to be told, in turn, and those with messages to send.
    telling: Line,
    sending: Turns,
    /// The last that a probe has looked at.
    probed: u32,
    /// The place of the flow's own messages among these.
    own: Place,
}

impl Streams {
    /// None yet, of the side that has opened the flow or of the other.
    pub(super) fn new(is_client: bool) -> Self {
        Self {
            sides: BTreeMap::new(),
            with_app: 0,
            own_parity: is_client.into(),
            opened: 0,
            seen: RangeSet::new(),
            telling: Line::default(),
            sending: Turns::default(),
            probed: 0,
            own: Place::default(),
        }
    }

    /// Which one of its side's a stream is, from 0 on.
    const fn place(id: u32) -> u64 {
        ((id - 1) / 2) as u64
    }

    const fn is_own(&self, id: u32) -> bool {
        id % 2 == self.own_parity
    }

    /// An app has one still.
    pub(super) const fn has_app(&self) -> bool {
        self.with_app > 0
    }

    /// Room for one more of the peer's, that an app has, and for what is left of others until the
    /// peer knows.
    fn has_room(&self) -> bool {
        self.with_app < STREAMS_MAX && self.sides.len() < SIDES_MAX
    }

    // ---- from apps ----

    /// Opens one, whose peer may use `window` positions. The app may wait until it is accepted.
    pub(super) fn open(
        &mut self,
        owner: Owner,
        window: u64,
        awaits: bool,
    ) -> Result<u32, NoStream> {
        // What the peer may not know to have ended still takes a place there.
        if self.sides.len() >= STREAMS_MAX || self.opened >= u32::MAX / 2 {
            return Err(NoStream::TooMany);
        }
        let id = 2 * self.opened + 2 - self.own_parity;
        self.opened += 1;
        let side = Side::new(Stream::new(owner, window), Stage::Open);
        self.insert(id, Side { open_due: true, is_known: false, awaits, ..side });
        Ok(id)
    }

    pub(super) fn send(&mut self, id: u32, offset: u32, length: u32, deadline: Option<Deadline>) {
        let Some(side) = self.sides.get_mut(&id).filter(|side| side.stage == Stage::Open) else {
            return;
        };
        match deadline {
            Some(deadline) => side.stream.outgoing.push_until(offset, length, deadline),
            None => side.stream.outgoing.push(offset, length),
        }
        stand_in_line(&mut self.telling, &mut self.sending, id, side);
    }

    pub(super) fn outgoing(&self, id: u32) -> Option<&Outgoing> {
        self.sides.get(&id).map(|side| &side.stream.outgoing)
    }

    pub(super) fn release(&mut self, id: u32, messages: u32, bytes: u64) -> bool {
        let Some(side) = self.sides.get_mut(&id).filter(|side| side.has_app()) else {
            return false;
        };
        let is_due = side.stream.release(messages, bytes);
        stand_in_line(&mut self.telling, &mut self.sending, id, side);
        is_due
    }

    pub(super) fn memory_freed(&mut self, id: u32) {
        if let Some(side) = self.sides.get_mut(&id) {
            side.stream.memory_freed();
            self.note(id);
        }
    }

    /// Its messages are delivered as they become whole.
    pub(super) fn set_unordered(&mut self, id: u32, app: &mut impl App) {
        if let Some(side) = self.sides.get_mut(&id).filter(|side| side.stage == Stage::Open) {
            side.stream.incoming.set_unordered(app, side.stream.owner);
        }
    }

    /// What it may send beside the others; 0 for the flow's own connection.
    pub(super) fn set_priority(&mut self, id: u32, priority: Priority) {
        if id == 0 {
            self.sending.set_priority(id, &mut self.own, priority);
        } else if let Some(side) = self.sides.get_mut(&id).filter(|side| side.has_app()) {
            self.sending.set_priority(id, &mut side.place, priority);
        }
    }

    /// The app has closed: what it has sent arrives first.
    pub(super) fn close(&mut self, id: u32, app: &mut impl App) {
        let Some(side) = self.sides.get_mut(&id).filter(|side| side.stage == Stage::Open) else {
            return;
        };
        side.stream.incoming.discard(app, side.stream.owner);
        side.stream.let_peer_end();
        (side.stage, side.stream.close_due) = (Stage::Closing, true);
        self.note(id);
    }

    pub(super) fn close_all(&mut self, app: &mut impl App) {
        let ids: Vec<u32> = self.sides.keys().copied().collect();
        ids.into_iter().for_each(|id| self.close(id, app));
    }

    /// The app wants it no more; it is told nothing.
    pub(super) fn abort(&mut self, id: u32, reason: Reason, app: &mut impl App) {
        if let Some(side) = self.sides.get_mut(&id).filter(|side| side.has_app()) {
            side.abort(reason, app);
            self.with_app -= 1;
            self.note(id);
        }
    }

    // ---- from the peer ----

    /// Takes the whole messages that stand next in a packet, of a stream of which nothing has to be
    /// found out first.
    #[inline]
    pub(super) fn take_messages(
        &mut self,
        id: u32,
        frames: &mut Frames<'_>,
        app: &mut impl App,
    ) -> Result<(), Refused> {
        let Some(side) = self.sides.get_mut(&id).filter(|side| side.only_receives()) else {
            return Ok(());
        };
        let taken = side.take_messages(frames, app);
        let has_news = side.has_news(); // all the more if one was refused
        self.telling.set(id, &mut side.tells, has_news);
        taken
    }

    /// Takes a frame of a stream.
    pub(super) fn take(
        &mut self,
        id: u32,
        frame: &Frame<'_>,
        parent: &Parent<'_>,
        app: &mut impl App,
    ) -> Result<(), Refused> {
        if let Frame::Open { limit } = frame {
            return self.accept(id, *limit, parent, app);
        }
        let Some(side) = self.sides.get_mut(&id) else {
            return if self.was_opened(id) { Ok(()) } else { Err(Refused::Violation) };
        };
        side.is_known = true;
        let owner = side.stream.owner;
        // What comes of it now may be a message already, of which its app has to know whose it is.
        if side.awaits && !matches!(frame, Frame::Close { reason: 1.., .. }) {
            side.awaits = false;
            app.connected(owner);
        }
        let is_over = match side.take(frame, parent.next_number, app) {
            Ok(is_over) => is_over,
            Err(refused) => {
                self.note(id); // it may have to tell that
                return Err(refused);
            }
        };
        if let Some(reason) = is_over.or(side.was_closed_by_peer().then_some(Reason::Closed)) {
            side.stream.incoming.discard(app, owner);
            self.remove(id);
            app.closed(owner, reason);
        } else {
            stand_in_line(&mut self.telling, &mut self.sending, id, side);
        }
        Ok(())
    }

    /// The peer has opened one.
    fn accept(
        &mut self,
        id: u32,
        limit: u64,
        parent: &Parent<'_>,
        app: &mut impl App,
    ) -> Result<(), Refused> {
        if self.is_own(id) {
            return Err(Refused::Violation);
        }
        let place = Self::place(id)..Self::place(id) + 1;
        if self.seen.insert(place.clone()) == 0 {
            return Ok(()); // told again by a peer that did not know
        }
        if self.seen.len() > GAPS_MAX || self.sides.len() >= SIDES_MAX {
            self.seen.remove(place);
            return Err(Refused::NoBuffer);
        }
        let stream = StreamKey { flow: parent.flow, stream: id };
        let is_welcome = parent.is_open && self.has_room();
        let accepted = if is_welcome { parent.accept(stream, app) } else { None };
        let side = if let Some((owner, window)) = accepted {
            let mut stream = Stream::new(owner, window);
            stream.outgoing.raise_limit(limit);
            stream.limit_due = true;
            Side::new(stream, Stage::Open)
        } else {
            let stream = Stream { close_due: true, ..Stream::new(parent.owner, 0) };
            Side::new(stream, Stage::Aborted(Reason::Refused))
        };
        self.insert(id, side);
        Ok(())
    }

    /// What a packet of a stream carried has arrived.
    pub(super) fn acknowledge(&mut self, content: &Content, app: &mut impl App) {
        let id = content.stream;
        let Some(side) = self.sides.get_mut(&id) else { return };
        side.is_known |= content.told.open;
        side.stream.close_acknowledged |= side.is_its_close(content);
        let owner = side.stream.owner;
        if side.has_app() {
            let done = side.stream.outgoing.acknowledge(content.range.clone());
            side.stream.messages_sent += u64::from(done.messages);
            side.stream.tell_dropped(app);
            if done.messages > 0 {
                app.sent(owner, done.messages);
            }
        }
        if !side.has_ended() {
            return stand_in_line(&mut self.telling, &mut self.sending, id, side);
        }
        let had_app = side.has_app();
        self.remove(id);
        if had_app {
            app.closed(owner, Reason::Closed);
        }
    }

    /// What a packet of a stream carried is to be sent again.
    pub(super) fn send_again(&mut self, content: &Content) {
        let Some(side) = self.sides.get_mut(&content.stream) else { return };
        side.stream.close_due |= side.is_its_close(content);
        if side.has_app() {
            side.stream.outgoing.send_again(content.range.clone());
            side.stream.limit_due |= content.told.limit;
        }
        side.open_due |= content.told.open && !side.is_known;
        self.note(content.stream);
    }

    /// What their receivers had no memory for is sent again, whatever they say.
    pub(super) fn try_again(&mut self) {
        let ids: Vec<u32> = self.sides.keys().copied().collect();
        for id in ids {
            if let Some(side) = self.sides.get_mut(&id) {
                side.stream.outgoing.try_again();
                self.note(id);
            }
        }
    }

    /// True if the receiver had no memory for what this packet of a stream has carried.
    pub(super) fn was_turned_away(&self, content: &Content, number: u64) -> bool {
        let side = self.sides.get(&content.stream);
        side.is_some_and(|side| side.stream.outgoing.was_turned_away(&content.range, number))
    }

    /// A probe is to carry the first bytes of one of them: see [`super::Flow::probe_with`]. Those
    /// of `oldest` may be it, and then some of the others, in turn.
    pub(super) fn send_first_again(&mut self, oldest: u32, bytes: u64) {
        let behind = self.sides.range((Bound::Excluded(self.probed), Bound::Unbounded));
        let others = behind.chain(self.sides.range(..=self.probed)).map(|(id, _)| *id);
        let ids: Vec<u32> = core::iter::once(oldest).chain(others.take(PROBED_MAX)).collect();
        self.probed = ids.last().copied().unwrap_or(0);
        for id in ids {
            #[cfg(test)]
            PROBED.set(PROBED.get() + 1);
            if let Some(side) = self.sides.get_mut(&id).filter(|side| side.has_app()) {
                side.stream.outgoing.send_first_again(bytes);
                self.note(id);
            }
        }
    }

    // ---- to the peer ----

    /// The same of the one with this number.
    fn note(&mut self, id: u32) {
        if let Some(side) = self.sides.get_mut(&id) {
            stand_in_line(&mut self.telling, &mut self.sending, id, side);
        }
    }

    fn insert(&mut self, id: u32, side: Side) {
        self.with_app += usize::from(side.has_app());
        self.sides.insert(id, side);
        self.note(id);
    }

    fn remove(&mut self, id: u32) {
        let Some(mut side) = self.sides.remove(&id) else { return };
        self.with_app -= usize::from(side.has_app());
        self.telling.set(id, &mut side.tells, false);
        self.sending.set(id, &mut side.place, false);
    }

    /// Something is to be told.
    pub(super) fn has_news(&self) -> bool {
        !self.telling.ids.is_empty()
    }

    /// Messages are to be sent.
    pub(super) fn has_messages(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Writes what is to be told of the next stream from `at` on; returns where it ends. `refused`:
    /// see [`Stream::emit_credit`].
    pub(super) fn emit_news(
        &mut self,
        bytes: &mut [u8],
        mut at: usize,
        refused: u64,
        content: &mut Content,
    ) -> usize {
        if bytes.len() - at < TOLD_BYTES_MAX {
            return at;
        }
        let Some(id) = self.telling.next() else { return at };
        let Some(side) = self.sides.get_mut(&id) else { return at };
        content.stream = id;
        at += clearway::emit_stream(&mut bytes[at..], id);
        if core::mem::take(&mut side.open_due) {
            content.told.open = true;
            at += clearway::emit_open(&mut bytes[at..], side.stream.incoming.announced_limit());
        }
        if side.may_tell_credit() {
            at = side.stream.emit_credit(bytes, at, refused, &mut content.told);
        }
        if side.may_close() {
            side.stream.close_due = false;
            let reason = match side.stage {
                Stage::Aborted(reason) => reason,
                Stage::Open | Stage::Closing => Reason::Closed,
            };
            (content.told.close, content.told.abort) = (side.has_app(), !side.has_app());
            let messages = side.stream.outgoing.messages_pushed();
            at += clearway::emit_close(&mut bytes[at..], reason.code(), messages);
        }
        self.note(id);
        at
    }

    /// The stream whose messages are next; `None` if it is the flow's own turn, which `has_own` to
    /// send.
    pub(super) fn next_sender(&mut self, has_own: bool) -> Option<u32> {
        self.sending.next(has_own.then_some(&mut self.own))
    }

    /// Writes messages of a stream from `at` on; returns where they end, and whether only the
    /// peer's limit keeps it from sending more.
    pub(super) fn emit_messages(
        &mut self,
        sending: &mut Sending<'_>,
        id: u32,
        bytes: &mut [u8],
        at: usize,
        content: &mut Content,
        app: &impl App,
    ) -> (usize, bool) {
        let Some(side) = self.sides.get_mut(&id) else { return (at, false) };
        content.stream = id;
        let start = at + clearway::emit_stream(&mut bytes[at..], id);
        let end = side.stream.emit_messages(sending, bytes, start, &mut content.range, app);
        let is_limited = side.stream.outgoing.is_limited();
        let (has_news, has_messages) = (side.has_news(), side.has_messages());
        self.sending.sent(id, &mut side.place, end - at, has_messages);
        self.telling.set(id, &mut side.tells, has_news);
        (if end == start { at } else { end }, is_limited)
    }

    /// The flow's own messages have had their turn.
    pub(super) fn own_sent(&mut self, bytes: usize) {
        self.sending.sent_beside(&mut self.own, bytes);
    }

    // ---- the end ----

    /// Those whose apps have them still.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        let with_app = self.sides.values().filter(|side| side.has_app());
        with_app.map(|side| side.stream.owner)
    }

    /// Gives back the apps' memory.
    pub(super) fn discard(&mut self, app: &mut impl App) {
        for side in self.sides.values_mut().filter(|side| side.has_app()) {
            side.stream.incoming.discard(app, side.stream.owner);
        }
    }

    // ---- as plain data ----

    /// Those that an app has.
    pub(super) fn iter(&self) -> impl Iterator<Item = View<'_>> {
        let with_app = self.sides.iter().filter(|(_, side)| side.has_app());
        with_app.map(|(id, side)| View {
            id: *id,
            stream: &side.stream,
            is_open: side.stage == Stage::Open,
            is_connecting: side.awaits,
            was_accepted: !self.is_own(*id),
            priority: side.place.priority,
        })
    }

    /// That of the flow's own connection.
    pub(super) const fn own_priority(&self) -> Priority {
        self.own.priority
    }

    pub(super) fn save(&self) -> StreamsState {
        let sides = self.sides.iter().map(|(id, side)| SideState {
            id: *id,
            stream: side.stream.save(),
            stage: match side.stage {
                Stage::Open => StreamStage::Open,
                Stage::Closing => StreamStage::Closing,
                Stage::Aborted(reason) => StreamStage::Aborted(reason.code()),
            },
            open_due: side.open_due,
            is_known: side.is_known,
            awaits: side.awaits,
            priority: side.place.priority,
        });
        StreamsState {
            sides: sides.collect(),
            is_client: self.own_parity == 1,
            opened: self.opened,
            seen: self.seen.save(),
            priority: self.own.priority,
        }
    }

    /// `in_flight`: the positions of a stream that packets in flight have carried.
    pub(super) fn restore(
        saved: StreamsState,
        mut in_flight: impl FnMut(u32) -> RangeSet,
    ) -> Result<Self, Invalid> {
        let mut streams = Self::new(saved.is_client);
        ensure(saved.opened <= u32::MAX / 2, "more streams than there are numbers")?;
        ensure(saved.sides.len() <= SIDES_MAX, "too many streams")?;
        streams.opened = saved.opened;
        streams.own = Place::restore(saved.priority)?;
        streams.seen = RangeSet::restore(saved.seen, GAPS_MAX)?;
        for SideState { id, stream, stage, open_due, is_known, awaits, priority } in saved.sides {
            ensure(id > 0 && streams.was_opened(id), "a stream that nobody has opened")?;
            let stage = match stage {
                StreamStage::Open => Stage::Open,
                StreamStage::Closing => Stage::Closing,
                StreamStage::Aborted(code) => Stage::Aborted(Reason::from_code(code)),
            };
            let positions = match stage {
                Stage::Open | Stage::Closing => in_flight(id),
                Stage::Aborted(_) => RangeSet::new(),
            };
            let side = Side {
                open_due,
                is_known,
                awaits,
                place: Place::restore(priority)?,
                ..Side::new(Stream::restore(stream, positions)?, stage)
            };
            side.check()?;
            ensure(!streams.sides.contains_key(&id), "two streams of one number")?;
            streams.insert(id, side);
        }
        ensure(streams.with_app <= STREAMS_MAX, "too many streams of apps")?;
        Ok(streams)
    }

    fn was_opened(&self, id: u32) -> bool {
        if self.is_own(id) {
            Self::place(id) < u64::from(self.opened)
        } else {
            self.seen.contains(Self::place(id))
        }
    }
}

/// A stream that an app has.
pub(super) struct View<'a> {
    pub(super) id: u32,
    pub(super) stream: &'a Stream,
    /// This side's app has not closed it.
    pub(super) is_open: bool,
    /// The app waits until it is accepted.
    pub(super) is_connecting: bool,
    /// The peer has opened it.
    pub(super) was_accepted: bool,
    pub(super) priority: Priority,
}

#[cfg(test)]
impl Streams {
    /// Who has something to say stands in line for it, once; and those that apps have are counted.
    pub(super) fn audit(&self) {
        let ids = |is_it: fn(&Side) -> bool| -> Vec<u32> {
            self.sides.iter().filter(|(_, side)| is_it(side)).map(|(id, _)| *id).collect()
        };
        assert!(self.telling.ids.iter().copied().eq(ids(Side::has_news)));
        assert_eq!(self.sending.ids(), ids(Side::has_messages));
        assert_eq!(self.with_app, ids(Side::has_app).len());
        assert!(self.with_app <= STREAMS_MAX && self.sides.len() <= SIDES_MAX);
        assert!(self.seen.len() <= GAPS_MAX);
    }
}
