//! One-sided operations: sharing memory, and reading and changing what others share, without their
//! programs. What each operation does, and what it promises, is in `docs/operations.md`.

mod outstanding;
mod vector;

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::time::Duration;

use clearway_base::copy;
use clearway_channel::{
    BATCH_MAX, Command, Completion, Description, Extent, GRANTS_MAX, Granted, Group, OperationKind,
    OperationStatus, REGION_NAME_BYTES_MAX, ReceiveBuffer, Shared,
};

use crate::channel::Unwanted;
use crate::wait::check_may_wait;
use crate::{Awaited, Channel, ConnectionId, Error, MemoryId};
pub(crate) use outstanding::NOBODYS;
use outstanding::Outstanding;

/// Names a region of the app at the other end of a connection, or of this one. It can be sent to
/// others, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u64);

impl RegionId {
    /// The handle with this number.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Names an operation that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(u64);

impl OperationId {
    /// The number, for bindings.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// What is to be done with a region of the app at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Looks a region up by its name: `value` is its number, and `extra` its length.
    Find {
        /// Its name, up to 64 bytes.
        name: &'a [u8],
    },
    /// Reads bytes.
    Read {
        /// Of this region.
        region: RegionId,
        /// From here on.
        offset: u64,
        /// So many.
        length: u32,
    },
    /// Writes bytes.
    Write {
        /// Into this region.
        region: RegionId,
        /// From here on.
        offset: u64,
        /// These.
        bytes: &'a [u8],
    },
    /// Writes bytes, and tells the region's owner: [`Event::Notified`](crate::Event::Notified).
    WriteNotify {
        /// Into this region.
        region: RegionId,
        /// From here on.
        offset: u64,
        /// These.
        bytes: &'a [u8],
        /// What the owner is told.
        value: u64,
    },
    /// Puts `replacement` into the word at `offset` if it is `expected`. `value` is what it was.
    CompareSwap {
        /// Of this region.
        region: RegionId,
        /// A multiple of 8.
        offset: u64,
        /// What the word is to be.
        expected: u64,
        /// What it becomes then.
        replacement: u64,
    },
    /// Adds to the word at `offset`, wrapping. `value` is what it was.
    FetchAdd {
        /// Of this region.
        region: RegionId,
        /// A multiple of 8.
        offset: u64,
        /// What is added.
        addend: u64,
    },
    /// Reads what the entry at `offset` of a table points to, at most `length` bytes. `value` is
    /// the entry.
    IndirectRead {
        /// The region with the table.
        table: RegionId,
        /// Where the entry is: a multiple of 8.
        offset: u64,
        /// The region that is pointed to.
        target: RegionId,
        /// Bytes at most.
        length: u32,
    },
    /// The same for up to 64 entries: see [`Operated::batch`].
    BatchRead {
        /// The region with the table.
        table: RegionId,
        /// Where the entries are.
        offsets: &'a [u64],
        /// The region that is pointed to.
        target: RegionId,
        /// Bytes of each at most.
        length: u32,
    },
    /// Looks for `key` among `count` entries, `stride` bytes apart, and reads what the first that
    /// has it points to. `value` is its index.
    ScanRead {
        /// The region with the entries: first the key, then the entry, a word each.
        table: RegionId,
        /// Where the first is: a multiple of 8.
        offset: u64,
        /// Bytes from one to the next: a multiple of 8, at least 16.
        stride: u16,
        /// How many there are.
        count: u32,
        /// What is looked for.
        key: u64,
        /// The region that is pointed to.
        target: RegionId,
        /// Bytes at most.
        length: u32,
    },
}

/// An operation that is over.
#[derive(Debug)]
pub struct Operated {
    /// Which.
    pub id: OperationId,
    /// What came of it.
    pub status: OperationStatus,
    /// What was there before, the entry, the index of the match, or the number of the region.
    pub value: u64,
    /// The length of the region that was found.
    pub extra: u64,
    buffer: Option<ReceiveBuffer>,
}

impl Operated {
    /// What was read, where the daemon put it. Its memory goes back when this is dropped.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], Deref::deref)
    }

    /// What a batch of `count` reads has read: each with what came of it.
    pub fn batch(&self, count: usize) -> impl Iterator<Item = (OperationStatus, &[u8])> {
        let head_bytes = count.saturating_mul(8);
        let (heads, mut rest) = self.bytes().split_at_checked(head_bytes).unwrap_or((&[], &[]));
        heads.as_chunks::<8>().0.iter().map(move |head| {
            let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let (bytes, behind) = rest.split_at_checked(length).unwrap_or((&[], &[]));
            rest = behind;
            (OperationStatus::of(head[3]), bytes)
        })
    }

    /// This, or an error if it was not done.
    pub fn done(self) -> Result<Self, Error> {
        match self.status {
            OperationStatus::Done => Ok(self),
            status => Err(Error::Operation { status }),
        }
    }
}

/// A peer has written into a region, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notified {
    /// The connection that it came by.
    pub connection: ConnectionId,
    /// The region.
    pub region: RegionId,
    /// Where in it.
    pub offset: u64,
    /// How many bytes were written.
    pub length: u32,
    /// What the peer says.
    pub value: u64,
}

/// An operation in the receive pool.
#[derive(Debug)]
pub(crate) struct RawOperated {
    id: OperationId,
    status: OperationStatus,
    value: u64,
    extra: u64,
    bytes: Option<Granted>,
}

/// What a channel has of operations.
#[derive(Default)]
pub(crate) struct Operations {
    outstanding: Outstanding,
    /// Those that are over and were not taken.
    over: VecDeque<RawOperated>,
    notified: VecDeque<Notified>,
    /// The share, unshare or word of a group that a call waits for.
    asked: Option<Asked>,
}

/// What the daemon was asked for: its token, and the answer when it is here, with a region if it
/// is one.
struct Asked {
    token: u64,
    answer: Option<(OperationStatus, Option<u64>)>,
}

impl Operations {
    pub(crate) fn is_quiet(&self) -> bool {
        self.over.is_empty() && self.notified.is_empty()
    }
}

impl Channel {
    /// The part of the channel's own memory that it can share: `sizes.shared_bytes` of its options.
    /// Others read and write the shared parts of it at any time.
    #[must_use]
    pub fn shared(&self) -> Shared {
        self.end.shared().clone()
    }

    /// Shares a piece of [`Channel::shared`] with those whom the description names, by the
    /// connections of this channel. Waits for the daemon; without time to wait nothing is shared
    /// ([`Code::WouldBlock`](crate::Code::WouldBlock)). What the daemon shares after a timeout, a
    /// later call of the channel takes back.
    pub fn share(
        &mut self,
        piece: Range<u64>,
        description: &Description,
        timeout: Option<Duration>,
    ) -> Result<RegionId, Error> {
        self.share_in(MemoryId::CHANNEL, piece, description, timeout)
    }

    /// The same with a piece of any memory of the channel: see [`Channel::add_memory`].
    pub fn share_in(
        &mut self,
        memory: MemoryId,
        piece: Range<u64>,
        description: &Description,
        timeout: Option<Duration>,
    ) -> Result<RegionId, Error> {
        check_may_wait(timeout, None)?;
        let bytes = description.to_bytes().ok_or_else(|| too_long(description))?;
        let (token, offset, length) = self.start_described(&bytes, timeout)?;
        let (start, bytes) = (piece.start, piece.end.saturating_sub(piece.start));
        let memory = memory.as_u64();
        self.submit(&Command::ShareMemory { token, offset, length, memory, start, bytes });
        let region = self.take_shared(token, timeout)?;
        Ok(RegionId(region.unwrap_or_default()))
    }

    /// Shares a region no longer. When this returns, nobody reads or changes it any more. Waits for
    /// the daemon, as [`share`](Self::share) does.
    pub fn unshare(&mut self, region: RegionId, timeout: Option<Duration>) -> Result<(), Error> {
        check_may_wait(timeout, None)?;
        self.operation_slot(timeout)?;
        let token = self.start_operation(None);
        self.submit(&Command::Unshare { token, region: region.0 });
        self.take_shared(token, timeout).map(drop)
    }

    /// Says who is in a group of peers, to which regions of this channel may be granted
    /// ([`Grantee::Group`](crate::Grantee::Group)): these, and nobody else. When this returns,
    /// whoever was in it and is no longer can do nothing more by it. A group of which nothing was
    /// said has no members. Waits for the daemon, as [`share`](Self::share) does.
    pub fn set_group(&mut self, group: &Group, timeout: Option<Duration>) -> Result<(), Error> {
        check_may_wait(timeout, None)?;
        let too_large = Error::GroupTooLarge { members: group.members.len() };
        let bytes = group.to_bytes().ok_or(too_large)?;
        let (token, offset, length) = self.start_described(&bytes, timeout)?;
        self.submit(&Command::SetGroup { token, offset, length });
        self.take_shared(token, timeout).map(drop)
    }

    /// Begins something that takes a description along; its token, and where that is.
    fn start_described(
        &mut self,
        description: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(u64, u32, u32), Error> {
        let extent = self.operation_room(description.len() as u32, timeout)?;
        self.end.transmit_bytes(&extent).copy_from_slice(description);
        let (offset, length) = (extent.offset(), extent.length());
        Ok((self.start_operation(Some(extent)), offset, length))
    }

    /// The answer to what was asked; the region, if it is a share.
    fn take_shared(&mut self, token: u64, timeout: Option<Duration>) -> Result<Option<u64>, Error> {
        self.operations.asked = Some(Asked { token, answer: None });
        let answer = self.wait_for(timeout, Awaited::Operation, |channel| {
            channel.gather()?;
            Ok(channel.operations.asked.as_ref().and_then(|asked| asked.answer))
        });
        self.operations.asked = None;
        let (status, region) = answer?;
        match status {
            OperationStatus::Done => Ok(region),
            status => Err(Error::Operation { status }),
        }
    }

    /// Begins an operation; waits while there is no room.
    /// [`next_operated`](Self::next_operated) or [`next_event`](Self::next_event) tells of its end.
    pub fn start(
        &mut self,
        connection: ConnectionId,
        operation: &Operation<'_>,
    ) -> Result<OperationId, Error> {
        self.start_timeout(connection, operation, None)
    }

    /// The same; waits as long as `timeout` says. If that is not long enough,
    /// [`Event::Writable`](crate::Event::Writable) tells when there is room.
    pub fn start_timeout(
        &mut self,
        connection: ConnectionId,
        operation: &Operation<'_>,
        timeout: Option<Duration>,
    ) -> Result<OperationId, Error> {
        let id = self.put_operation(connection, operation, timeout)?;
        self.tell();
        Ok(id)
    }

    /// The same without waiting, for one that others follow at once: it need not leave before the
    /// next call that sends, waits or flushes. As [`Channel::send_later`] for messages.
    pub fn start_later(
        &mut self,
        connection: ConnectionId,
        operation: &Operation<'_>,
    ) -> Result<OperationId, Error> {
        self.put_operation(connection, operation, Some(Duration::ZERO))
    }

    fn put_operation(
        &mut self,
        connection: ConnectionId,
        operation: &Operation<'_>,
        timeout: Option<Duration>,
    ) -> Result<OperationId, Error> {
        self.check_open(connection)?;
        operation.check()?;
        let extent = match operation.payload().length() {
            None => {
                self.operation_slot(timeout)?;
                None
            }
            Some(length) => {
                let length = self.check_length(length)?;
                Some(self.operation_room(length, timeout)?)
            }
        };
        Ok(self.submit_operation(connection, operation, extent))
    }

    /// Gives the daemon an operation that there is room for, with `extent` for what it takes along.
    fn submit_operation(
        &mut self,
        connection: ConnectionId,
        operation: &Operation<'_>,
        extent: Option<Extent>,
    ) -> OperationId {
        if let Some(extent) = &extent {
            operation.payload().write(self.end.transmit_bytes(extent));
        }
        let place = extent.as_ref().map(|extent| (extent.offset(), extent.length()));
        let token = self.start_operation(extent);
        let command = operation.command(connection.as_u64(), token, place);
        self.end.submit(&command).expect("room was made");
        OperationId(token)
    }

    /// The next operation that is over, of those that nobody waits for.
    pub fn next_operated(&mut self, timeout: Option<Duration>) -> Result<Operated, Error> {
        if self.operations.over.is_empty()
            && let Some(over) = self.end.next_operated()
        {
            let over = self.take_operated(over);
            return Ok(self.operated_in_place(over));
        }
        let over = self.wait_for(timeout, Awaited::Operation, |channel| {
            channel.gather_until(|channel| channel.operations.over.pop_front())
        })?;
        Ok(self.operated_in_place(over))
    }

    /// Does an operation, and waits for its end: up to `timeout` until there is room for it, and as
    /// long for its end. An error if it was not done. After a timeout it goes on:
    /// [`next_operated`](Self::next_operated) will tell of it.
    pub fn operate(
        &mut self,
        connection: ConnectionId,
        operation: &Operation<'_>,
        timeout: Option<Duration>,
    ) -> Result<Operated, Error> {
        let id = self.start_timeout(connection, operation, timeout)?;
        self.wait_operated(id, timeout)?.done()
    }

    /// Waits for the end of an operation that was started.
    pub fn wait_operated(
        &mut self,
        id: OperationId,
        timeout: Option<Duration>,
    ) -> Result<Operated, Error> {
        let over = self.wait_for(timeout, Awaited::Operation, |channel| {
            channel.gather_until(|channel| {
                let over = &mut channel.operations.over;
                let at = over.iter().position(|over| over.id == id)?;
                over.remove(at)
            })
        })?;
        Ok(self.operated_in_place(over))
    }

    /// What the next peer says of what it has written.
    pub fn next_notified(&mut self, timeout: Option<Duration>) -> Result<Notified, Error> {
        self.wait_for(timeout, Awaited::Event, |channel| {
            channel.gather_until(|channel| channel.operations.notified.pop_front())
        })
    }

    /// Operations that were started and are not over.
    #[must_use]
    pub fn operations_outstanding(&self) -> usize {
        self.operations.outstanding.len()
    }

    pub(crate) fn operated_in_place(&self, over: RawOperated) -> Operated {
        let RawOperated { id, status, value, extra, bytes } = over;
        let buffer = bytes.map(|bytes| self.end.receive_buffer(bytes));
        Operated { id, status, value, extra, buffer }
    }

    /// Room for a command and its payload, and for one more operation.
    fn operation_room(&mut self, length: u32, timeout: Option<Duration>) -> Result<Extent, Error> {
        self.operation_slot(timeout)?;
        self.wait_for(timeout, Awaited::Room, |channel| {
            channel.with_room(|channel| {
                if channel.end.has_room() { channel.end.allocate(length) } else { None }
            })
        })
    }

    fn operation_slot(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.wait_for(timeout, Awaited::Room, |channel| {
            channel.with_room(|channel| {
                let has_room = channel.operations.outstanding.has_room_for(1);
                (has_room && channel.end.has_room()).then_some(())
            })
        })
    }

    fn start_operation(&mut self, extent: Option<Extent>) -> u64 {
        self.operations.outstanding.begin(extent)
    }

    fn end_operation(&mut self, token: u64) {
        if let Some(extent) = self.operations.outstanding.end(token) {
            self.end.free(extent);
        }
        self.room_is_made();
    }

    /// An operation is over.
    pub(crate) fn take_operated(&mut self, over: clearway_channel::Operated) -> RawOperated {
        let clearway_channel::Operated { status, token, value, extra, bytes } = over;
        self.end_operation(token);
        let status = OperationStatus::of(status);
        RawOperated { id: OperationId(token), status, value, extra, bytes }
    }

    pub(crate) fn take_shared_answer(&mut self, completion: &Completion) {
        let (token, status, region) = match *completion {
            Completion::Shared { status, token, region } => (token, status, Some(region)),
            Completion::Unshared { status, token } | Completion::GroupSet { status, token } => {
                (token, status, None)
            }
            _ => return,
        };
        self.end_operation(token);
        let status = OperationStatus::of(status);
        match (&mut self.operations.asked, region) {
            (Some(asked), _) if asked.token == token => asked.answer = Some((status, region)),
            // It comes too late: nobody knows the region.
            (_, Some(region)) if status == OperationStatus::Done => {
                self.unwanted.push(Unwanted::Region(region));
            }
            _ => {}
        }
    }

    pub(crate) fn queue_operated(&mut self, over: RawOperated) {
        self.operations.over.push_back(over);
    }

    pub(crate) fn queue_notified(&mut self, notified: Notified) {
        self.operations.notified.push_back(notified);
    }

    pub(crate) fn next_queued_operation(&mut self) -> Option<crate::event::Arrival> {
        use crate::event::Arrival;
        let over = self.operations.over.pop_front().map(Arrival::Operated);
        over.or_else(|| self.operations.notified.pop_front().map(Arrival::Notified))
    }
}

/// What an operation takes along.
enum Payload<'a> {
    Nothing,
    Bytes(&'a [u8]),
    Offsets(&'a [u64]),
}

impl Payload<'_> {
    fn length(&self) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::Offsets(offsets) => Some(8 * offsets.len()),
        }
    }

    fn write(&self, into: &mut [u8]) {
        match self {
            Self::Nothing => {}
            Self::Bytes(bytes) => copy(into, bytes),
            Self::Offsets(offsets) => {
                for (place, offset) in into.as_chunks_mut::<8>().0.iter_mut().zip(*offsets) {
                    *place = offset.to_be_bytes();
                }
            }
        }
    }
}

/// A region whose description is none.
fn too_long(description: &Description) -> Error {
    let (name, grants) = (description.name.len(), description.grants.len());
    Error::argument(format!(
        "a region with a name of {name} bytes and {grants} grants; it may have \
         {REGION_NAME_BYTES_MAX} bytes and {GRANTS_MAX} grants at most"
    ))
}

impl<'a> Operation<'a> {
    /// An error if it is one that the daemon takes no app to ask for.
    fn check(&self) -> Result<(), Error> {
        let (what, number, most) = match self {
            Self::Find { name } => ("bytes in a region's name", name.len(), REGION_NAME_BYTES_MAX),
            Self::BatchRead { offsets, .. } => ("entries of a batch", offsets.len(), BATCH_MAX),
            _ => return Ok(()),
        };
        if (1..=most).contains(&number) {
            return Ok(());
        }
        Err(Error::argument(format!("{number} {what}; there may be 1 to {most}")))
    }

    const fn payload(&self) -> Payload<'a> {
        match *self {
            Self::Find { name: bytes }
            | Self::Write { bytes, .. }
            | Self::WriteNotify { bytes, .. } => Payload::Bytes(bytes),
            Self::BatchRead { offsets, .. } => Payload::Offsets(offsets),
            _ => Payload::Nothing,
        }
    }

    /// The command, with its payload where `extent` says.
    fn command(&self, connection: u64, token: u64, extent: Option<(u32, u32)>) -> Command {
        let ask = |kind: OperationKind, region: RegionId, place, bytes, operand, second| {
            let (kind, region, stride, count) = (kind as u8, region.0, 0, 0);
            Command::Ask {
                kind,
                stride,
                connection,
                token,
                region,
                place,
                bytes,
                count,
                operand,
                second,
            }
        };
        let (offset, length) = extent.unwrap_or_default();
        let with = |kind: OperationKind, region: RegionId, place, operand, second| {
            let (kind, region) = (kind as u8, region.0);
            Command::AskWith {
                kind,
                connection,
                token,
                region,
                place,
                offset,
                length,
                operand,
                second,
            }
        };
        match *self {
            Self::Find { .. } => with(OperationKind::Find, RegionId(0), 0, 0, 0),
            Self::Read { region, offset, length } => {
                ask(OperationKind::Read, region, offset, length, 0, 0)
            }
            Self::Write { region, offset, .. } => with(OperationKind::Write, region, offset, 0, 0),
            Self::WriteNotify { region, offset, value, .. } => {
                with(OperationKind::WriteNotify, region, offset, value, 0)
            }
            Self::CompareSwap { region, offset, expected, replacement } => {
                ask(OperationKind::CompareSwap, region, offset, 0, expected, replacement)
            }
            Self::FetchAdd { region, offset, addend } => {
                ask(OperationKind::FetchAdd, region, offset, 0, addend, 0)
            }
            Self::IndirectRead { table, offset, target, length } => {
                ask(OperationKind::IndirectRead, table, offset, length, 0, target.0)
            }
            Self::BatchRead { table, target, length, .. } => {
                with(OperationKind::BatchRead, table, 0, length.into(), target.0)
            }
            Self::ScanRead { table, offset, stride, count, key, target, length } => Command::Ask {
                kind: OperationKind::ScanRead as u8,
                stride,
                connection,
                token,
                region: table.0,
                place: offset,
                bytes: length,
                count,
                operand: key,
                second: target.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_absurdly_many_has_none() {
        let (id, status) = (OperationId(1), OperationStatus::Done);
        let operated = Operated { id, status, value: 0, extra: 0, buffer: None };
        for count in [1, usize::MAX / 8 + 1, usize::MAX] {
            assert_eq!(operated.batch(count).count(), 0);
        }
    }
}
