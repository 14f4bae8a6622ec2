//! Long reads and writes between apps of one engine are copied in slices, so that no turn is held
//! up by one of them. An app that asks has one copy under way at a time, what else it asks for
//! stands in line, and apps take turns:
//!
//! ```text
//!  Channels.copying ─▶ a channel ─▶ Operations.copying ─▶ a slice ─▶ behind the other channels
//!                                   Operations.to_copy ─▶ the next, once that is over
//! ```
//!
//! Whoever would end one that is under way waits for nobody: it is given up when its connection or
//! either app ends, and when who asks may not do it any more. What was written stays.

use clearway_channel::{Completion, NO_BUFFER, OperationStatus, Rights, Shared};
use clearway_transport::{Buffer, MESSAGE_OVERHEAD, Owner};
use clearway_wire::clearway::operation::{Request, Status};

use super::ask::read;
use super::exchange::{Asked, Exchange, Waiting};
use super::execute::{Outcome, rights_to_write};
use super::groups::Who;
use super::operated;
use super::regions::Spot;
use crate::channels::{Channel, Channels, Connection, to_channel};
use crate::local::Blocked;

/// What is longer is copied in slices.
pub(super) const AT_ONCE_BYTES_MAX: u32 = clearway_channel::WORDS_BYTES_MAX;
/// So many bytes of slices are copied in a turn.
const COPIED_PER_TURN: u32 = 64 << 10;
/// Of those that stand in line, so many go on at once, and a turn counts each as so many bytes:
/// what they wait for may not be there any more, and then they end without a copy.
const GO_ON_AT_ONCE: u32 = 16;
const GOING_ON_BYTES: u32 = 4 << 10;

/// A read or write that is under way: the first of what waits on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copying {
    /// The slot of its connection, of the app that asks.
    pub(super) slot: u32,
    pub(super) request: Request,
    /// What its completion says.
    pub(super) value: u64,
    /// The region that is read or written.
    pub(super) region: u64,
    /// Where in the shared memory of the other app, and how many bytes.
    pub(super) at: Spot,
    pub(super) length: u32,
    pub(super) direction: Direction,
    /// So many bytes have been copied.
    pub(super) done: u32,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Into this buffer of the app that asks.
    Read(Buffer),
    /// From this offset of its transmit pool.
    Write(u32),
}

impl Copying {
    /// What its asker may do, or may not go on.
    fn needs(&self) -> Rights {
        match self.direction {
            Direction::Read(_) => Rights::READ,
            Direction::Write(_) => rights_to_write(&self.request),
        }
    }

    /// It is over.
    fn outcome(&self) -> Outcome {
        Outcome::written(&self.request, self.value)
    }

    fn told(&self, token: u64) -> Completion {
        match self.direction {
            Direction::Read(buffer) => read(token, self.value, buffer, 0),
            Direction::Write(_) => operated(token, OperationStatus::Done, self.value, 0),
        }
    }
}

impl Asked {
    /// What is to be copied for it: so many bytes of, or into, a region, at a place of the shared
    /// memory.
    pub(super) fn copying(
        &self,
        asker: Owner,
        outcome: &Outcome,
        (region, at, length): (u64, Spot, u32),
        direction: Direction,
    ) -> Copying {
        let (slot, request, value) = (asker.connection, self.request, outcome.value);
        Copying { slot, request, value, region, at, length, direction, done: 0 }
    }
}

impl Channel {
    /// The connection that has the next turn to copy.
    fn next_to_copy(&mut self) -> Option<u32> {
        let (slot, ()) = self.operations.to_copy.first()?;
        let is_free = self.operations.copying.is_none();
        (is_free && self.operations.to_copy.remove(slot)).then_some(slot)
    }

    /// What is under way on a connection.
    pub(super) fn copying_of(&self, slot: u32) -> Option<&Copying> {
        self.operations.copying.as_ref().filter(|copying| copying.slot == slot)
    }

    /// The connection is over: what was read for it is given back.
    pub(crate) fn forget_copies(&mut self, slot: u32) {
        self.operations.to_copy.remove(slot);
        if let Some(copying) = self.operations.copying.take_if(|copying| copying.slot == slot)
            && let Direction::Read(buffer) = copying.direction
        {
            self.free_spare(buffer);
        }
    }

    /// What is under way on a connection is given up, and with a read its claim to room.
    fn give_up_copy(&mut self, slot: u32) -> Option<Copying> {
        let copying = *self.copying_of(slot)?;
        self.forget_copies(slot);
        let positions = MESSAGE_OVERHEAD + u64::from(copying.length);
        if let Direction::Read(_) = copying.direction
            && let Some(local) = self.local(slot)
        {
            local.held = local.held.saturating_sub(positions);
        }
        Some(copying)
    }

    fn first_token(&self, slot: u32) -> Option<u64> {
        match self.exchange(slot)?.waiting.front()? {
            Waiting::Operation(asked) => Some(asked.token),
            Waiting::Message(..) => None,
        }
    }

    /// Copies the next `length` bytes. Both ends were bounded when it began, and the memory does
    /// not shrink.
    fn copy(&mut self, copying: &Copying, shared: &Shared, length: u32) {
        let Copying { at, done, direction, .. } = *copying;
        let at = at.plus(done).offset;
        let _ = match direction {
            Direction::Read(buffer) => {
                let slice = Buffer { offset: buffer.offset + done, length, ..buffer };
                self.end.write_shared(to_channel(slice), shared, at, length)
            }
            Direction::Write(offset) => self.end.share_sent(offset + done, length, shared, at),
        };
    }
}

impl Channels {
    /// True if something is being copied.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        !self.copying.is_empty()
    }

    /// Copies a turn's worth. Returns how much was done.
    #[cold]
    pub(crate) fn copy_some(&mut self) -> usize {
        let (mut left, mut work) = (COPIED_PER_TURN, 0);
        while left > 0
            && let Some((id, ())) = self.copying.first()
        {
            self.copying.remove(id);
            left = left.saturating_sub(self.copy_for(id, left));
            self.note_copies(id);
            work += 1;
        }
        work
    }

    /// The channel has its turns as long as there is something to copy.
    fn note_copies(&mut self, id: u32) {
        if self.peek(id).is_some_and(|channel| channel.operations.has_copies()) {
            self.copying.push(id, ());
        }
    }

    /// Copies up to `most` bytes for the app of a channel. Returns how many, or what is counted for
    /// it.
    fn copy_for(&mut self, id: u32, most: u32) -> u32 {
        let Some(copying) = self.peek(id).and_then(|channel| channel.operations.copying) else {
            // Its connection has ended, or those in line have had their share of the last turn.
            return self.begin_next_copy(id) * GOING_ON_BYTES;
        };
        let asker = Owner { channel: id, connection: copying.slot };
        let owner = self.peer_of(asker);
        let shared = owner.and_then(|owner| self.memory_of(owner, copying.at));
        let length = most.min(copying.length - copying.done);
        let done = copying.done + length;
        if let (Some(channel), Some(shared)) = (self.channel(id), shared) {
            channel.copy(&copying, &shared, length);
            channel.operations.copying = Some(Copying { done, ..copying });
        }
        if done == copying.length {
            self.end_copy(asker);
        }
        length
    }

    /// The memory of an app that a place is in.
    fn memory_of(&self, owner: Owner, at: Spot) -> Option<Shared> {
        self.peek(owner.channel)?.end.memory(at.memory).cloned()
    }

    /// Whether so many bytes may be copied for a connection now. If not, it stands in line.
    pub(super) fn may_copy(&mut self, asker: Owner, length: u32) -> Result<(), Blocked> {
        let channel = self.channel(asker.channel).ok_or(Blocked::Copying)?;
        if length <= AT_ONCE_BYTES_MAX || channel.operations.copying.is_none() {
            return Ok(());
        }
        channel.operations.to_copy.push(asker.connection, ());
        Err(Blocked::Copying)
    }

    /// Copies what is short, and begins with what is not.
    pub(super) fn copy_shared(
        &mut self,
        asker: Owner,
        owner: Owner,
        copying: Copying,
    ) -> Result<(), Blocked> {
        let shared = self.memory_of(owner, copying.at).ok_or(Blocked::Copying)?;
        let channel = self.channel(asker.channel).ok_or(Blocked::Copying)?;
        if copying.length <= AT_ONCE_BYTES_MAX {
            channel.copy(&copying, &shared, copying.length);
            return Ok(());
        }
        channel.operations.copying = Some(copying);
        self.copying.push(asker.channel, ());
        Err(Blocked::Copying)
    }

    /// All is copied.
    fn end_copy(&mut self, asker: Owner) {
        let Some(channel) = self.channel(asker.channel) else { return };
        let token = channel.first_token(asker.connection);
        let Some((copying, token)) = channel.operations.copying.take().zip(token) else { return };
        if let Some(owner) = self.peer_of(asker) {
            self.settle(owner, &copying.request, &copying.outcome(), copying.length);
            self.end_waiting(asker, copying.told(token));
        }
        self.go_on_after_copy(asker);
    }

    /// Those who stand in line go on, and then the connection that had its turn.
    fn go_on_after_copy(&mut self, last: Owner) {
        self.begin_next_copy(last.channel);
        self.go_on_local(last);
        self.note_copies(last.channel);
    }

    /// Those who stand in line go on, until one copies. Returns how many did.
    fn begin_next_copy(&mut self, id: u32) -> u32 {
        for gone_on in 0..GO_ON_AT_ONCE {
            let next = self.channel(id).and_then(Channel::next_to_copy);
            let Some(slot) = next else { return gone_on };
            self.go_on_local(Owner { channel: id, connection: slot });
        }
        GO_ON_AT_ONCE
    }

    /// The first that waits has been carried out. An app that has closed is told with the others,
    /// when the connection ends.
    pub(super) fn end_waiting(&mut self, asker: Owner, told: Completion) {
        let Some(channel) = self.channel(asker.channel) else { return };
        let slot = asker.connection;
        if !channel.peek_connection(slot).is_some_and(Connection::is_closing) {
            return channel.operated_local(slot, told);
        }
        if let Completion::Operated { buffer, .. } = told
            && buffer != NO_BUFFER
        {
            channel.throw_away(buffer);
        }
        channel.pass_waiting(slot);
    }

    /// True if what comes next on a connection has to wait for a copy.
    pub(super) fn is_copying(&self, asker: Owner) -> bool {
        self.peek(asker.channel).is_some_and(|it| it.copying_of(asker.connection).is_some())
    }

    /// Who asks, to an app that the same engine serves.
    pub(super) fn asker_within(&self, asker: Owner) -> Option<Who> {
        let owner = self.peer_of(asker)?;
        let seen = self.peek(owner.channel)?.peer(owner.connection)?;
        Some((seen.ip(), Some(self.peek(asker.channel)?.user)))
    }

    /// Who copies out of, or into, regions of an app and would not begin with it any more, and why
    /// not.
    fn copies_cut_off(&self, owner: u32) -> impl Iterator<Item = (Owner, Status)> {
        self.copying.slots().filter_map(move |id| {
            let copying = self.peek(id)?.operations.copying?;
            let asker = Owner { channel: id, connection: copying.slot };
            self.peer_of(asker).filter(|peer| peer.channel == owner)?;
            let regions = &self.peek(owner)?.operations.regions;
            let who = self.asker_within(asker)?;
            let status = regions.find(copying.region, copying.needs(), who).err()?;
            Some((asker, status))
        })
    }

    /// Copies out of, or into, an app's memory that would not be begun any more are given up.
    pub(super) fn end_copies(&mut self, owner: u32) {
        let cut_off: Vec<(Owner, Status)> = self.copies_cut_off(owner).collect();
        for (asker, status) in cut_off {
            let Some(channel) = self.channel(asker.channel) else { continue };
            let token = channel.first_token(asker.connection);
            let given_up = channel.give_up_copy(asker.connection);
            let Some((copying, token)) = given_up.zip(token) else { continue };
            self.operation_counters.count(copying.request.kind, status);
            self.end_waiting(asker, operated(token, OperationStatus::of(status as u8), 0, 0));
            self.go_on_after_copy(asker);
        }
    }
}

impl Exchange {
    /// What waits first is what is being copied.
    fn is_first(&self, copying: &Copying) -> bool {
        let Some(Waiting::Operation(asked)) = self.waiting.front() else { return false };
        let is_same = match copying.direction {
            Direction::Read(_) => asked.data_max() >= copying.length,
            Direction::Write(offset) => asked.payload == (offset, copying.length),
        };
        is_same && asked.refused.is_none() && asked.request == copying.request
    }
}

impl Channels {
    /// Holds what is said of copies, and of what waits for them, against connections and memory.
    /// What is wrong, if anything.
    pub(crate) fn check_copies(&self, id: u32, channel: &Channel) -> Result<(), &'static str> {
        let operations = &channel.operations;
        let is_in_line = |slot: u32| self.is_local(id, slot) && channel.is_waiting(slot);
        let is_seen = self.copying.contains(id) || !operations.has_copies();
        let is_asked = |copying: &Copying| self.is_asked_for(id, channel, copying);
        let is_right = is_seen
            && operations.to_copy.slots().all(is_in_line)
            && operations.copying.as_ref().is_none_or(is_asked);
        let is_late = || {
            let reads = !channel.readers_cut_off(0..=u64::MAX).is_empty();
            reads || self.copies_cut_off(id).next().is_some()
        };
        if !is_right {
            Err("a copy that was not asked for, or some stand in line for none")
        } else if is_late() {
            Err("somebody reads or writes what they may not any more")
        } else {
            Ok(())
        }
    }

    fn is_local(&self, channel: u32, slot: u32) -> bool {
        let connection = self.peek(channel).and_then(|channel| channel.peek_connection(slot));
        connection.is_some_and(|connection| connection.bearer.local().is_some())
    }

    /// Whether the first that waits on the connection is what is being copied, and memory is there.
    fn is_asked_for(&self, id: u32, channel: &Channel, copying: &Copying) -> bool {
        let is_first = channel.exchange(copying.slot).is_some_and(|it| it.is_first(copying));
        let near = Owner { channel: id, connection: copying.slot };
        let peer = self.peer_of(near).and_then(|far| self.peek(far.channel));
        let is_inside = peer.is_some_and(|it| copying.at.has(&it.end, copying.length.into()));
        let fits = match copying.direction {
            Direction::Read(buffer) => buffer.length == copying.length,
            Direction::Write(_) => true,
        };
        is_first && fits && is_inside && copying.done < copying.length
    }
}
