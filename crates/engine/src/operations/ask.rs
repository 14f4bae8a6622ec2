//! What apps ask for. Over a flow it is sent; within the engine it is carried out at once.

use clearway_base::Time;
use clearway_channel::{Command, Completion, NO_BUFFER, OUTSTANDING_OPERATIONS_MAX};
use clearway_channel::{OperationStatus, Violation};
use clearway_transport::{Buffer, FlowKey, MESSAGE_OVERHEAD, Owner, StreamKey};
use clearway_wire::clearway::MESSAGE_BYTES_MAX;
use clearway_wire::clearway::operation::{
    BATCH_MAX, Kind, NAME_BYTES_MAX, REQUEST_LENGTH, Request, Status,
};

use super::copying::Direction;
use super::exchange::{Asked, Exchange, Waiting};
use super::execute::{Data, Outcome, Place, READ_BYTES_MAX};
use super::operated;
use crate::channels::{Bearer, Channel, Channels, Connection, Held, Local, Stage, to_channel};
use crate::common::Common;
use crate::local::Blocked;
use crate::messages::Messages;

/// The most that a request writes.
const WRITE_BYTES_MAX: u32 = MESSAGE_BYTES_MAX - REQUEST_LENGTH as u32;

impl Asked {
    /// What a command asks for.
    fn of(command: Command) -> Result<Self, Violation> {
        match command {
            Command::Ask {
                kind,
                stride,
                token,
                region,
                place: offset,
                bytes: length,
                count,
                operand,
                second,
                ..
            } => {
                let takes_nothing = matches!(
                    Kind::of(kind),
                    Some(
                        Kind::Read
                            | Kind::CompareSwap
                            | Kind::FetchAdd
                            | Kind::IndirectRead
                            | Kind::ScanRead
                    )
                );
                let number = 0;
                let request = Request {
                    kind,
                    stride,
                    number,
                    region,
                    offset,
                    length,
                    count,
                    operand,
                    second,
                };
                let asked = Self { token, request, payload: (0, 0), refused: None };
                if takes_nothing { Ok(asked) } else { Err(Violation::Operation(kind)) }
            }
            Command::AskWith {
                kind,
                token,
                region,
                place,
                offset,
                length,
                operand,
                second,
                ..
            } => {
                let bytes = length as usize;
                let (wanted, count) = match Kind::of(kind) {
                    Some(Kind::Find) if (1..=NAME_BYTES_MAX).contains(&bytes) => (0, 0),
                    Some(Kind::Write | Kind::WriteNotify) => (0, 0),
                    Some(Kind::BatchRead)
                        if bytes.is_multiple_of(8) && (1..=BATCH_MAX).contains(&(bytes / 8)) =>
                    {
                        (u32::try_from(operand).unwrap_or(u32::MAX), (bytes / 8) as u32)
                    }
                    _ => return Err(Violation::Operation(kind)),
                };
                let request = Request {
                    kind,
                    stride: 0,
                    number: 0,
                    region,
                    offset: place,
                    length: wanted,
                    count,
                    operand,
                    second,
                };
                Ok(Self { token, request, payload: (offset, length), refused: None })
            }
            _ => Err(Violation::Operation(0)),
        }
    }

    fn is_too_large(&self) -> bool {
        let is_batch = self.request.kind == Kind::BatchRead as u8;
        self.payload.1 > WRITE_BYTES_MAX || (self.request.length > READ_BYTES_MAX && !is_batch)
    }
}

impl Messages {
    /// Has operations carried out that an app asks for on a connection, here or by the peer: this
    /// one, and those that stand behind it, `most` in all. Returns how many.
    pub(crate) fn ask(
        &mut self,
        common: &mut Common,
        now: Time,
        (id, connection): (u32, u64),
        first: Command,
        most: usize,
    ) -> usize {
        let channels = &mut common.channels;
        let Some(channel) = channels.channel(id) else { return 1 };
        let way = self.way(channel, connection);
        let (taken, outcome) = match (way.route, way.line) {
            (Route::Flow { key, .. }, Some(slot)) => {
                let asked = channel.take_asked(&way, first, most);
                if channel.exchange(slot).is_some_and(Exchange::has_unpushed) {
                    self.endpoint.push_operations(now, key, channels);
                }
                asked
            }
            (Route::Local, Some(slot)) => {
                let is_next = !channel.is_waiting(slot);
                let asked = channel.take_asked(&way, first, 1);
                if is_next {
                    // What is blocked is tried again.
                    let _ = channels.advance_local(Owner { channel: id, connection: slot });
                }
                asked
            }
            _ => channel.take_asked(&way, first, most),
        };
        channels.operation_counters.operations_asked += taken as u64;
        if let Err(violation) = outcome {
            channels.condemn(id, violation);
        }
        taken
    }

    /// The way of what is asked on this connection.
    fn way(&mut self, channel: &Channel, connection: u64) -> Way {
        let slot = channel.find(connection);
        let route = slot.and_then(|slot| Some(Route::of(channel.peek_connection(slot)?)));
        let route = route.unwrap_or(Route::None);
        let refused = match route {
            _ if !channel.operations.may_ask => Some(OperationStatus::Denied),
            Route::None | Route::Flow { is_open: false, .. } => Some(OperationStatus::NoConnection),
            Route::Stream => Some(OperationStatus::Unsupported),
            Route::Flow { key, .. } if !self.endpoint.takes_operations(key) => {
                Some(OperationStatus::Unsupported)
            }
            Route::Flow { .. } | Route::Local => None,
        };
        let line = slot.filter(|_| matches!(route, Route::Flow { .. } | Route::Local));
        Way { connection, line, route, refused }
    }
}

/// The way of what an app asks for on a connection.
#[derive(Clone, Copy, Debug)]
struct Way {
    connection: u64,
    /// The slot in whose line it stands, if it leads anywhere.
    line: Option<u32>,
    route: Route,
    /// Why it is not to be gone.
    refused: Option<OperationStatus>,
}

/// Where the operations of a connection go.
#[derive(Clone, Copy, Debug)]
enum Route {
    Flow {
        key: FlowKey,
        is_open: bool,
    },
    /// To an app that this engine serves.
    Local,
    /// Nowhere: a stream has messages only.
    Stream,
    /// Nowhere.
    None,
}

impl Route {
    fn of(connection: &Connection) -> Self {
        let is_open = matches!(connection.stage, Stage::Open | Stage::Behind);
        match &connection.bearer {
            Bearer::Flow(StreamKey { flow, stream: 0 }) => Self::Flow { key: *flow, is_open },
            Bearer::Local(Local { parent: None, .. }) if is_open => Self::Local,
            Bearer::Flow(_) | Bearer::Local(_) if is_open => Self::Stream,
            Bearer::Flow(_) => Self::None,
            Bearer::Local(_) | Bearer::Resolving => Self::None,
        }
    }
}

impl Channel {
    /// True if some of what was asked on this connection is not over.
    fn has_asked(&self, slot: u32) -> bool {
        self.exchange(slot).is_some_and(|exchange| exchange.outstanding() > 0)
    }

    /// True if what is asked next has to wait for its turn.
    pub(crate) fn is_waiting(&self, slot: u32) -> bool {
        self.exchange(slot).is_some_and(Exchange::is_waiting)
    }

    /// What is next on a connection within the engine, and whether its app has closed.
    fn next_waiting(&self, slot: u32) -> Option<(Waiting, bool)> {
        let connection = self.peek_connection(slot)?;
        let next = *connection.exchange.as_ref()?.waiting.front()?;
        Some((next, connection.is_closing()))
    }

    /// It has been carried out.
    pub(super) fn operated_local(&mut self, slot: u32, told: Completion) {
        if let Some(exchange) = self.exchange_of(slot) {
            exchange.waiting.pop_front();
            self.operations.outstanding -= 1;
        }
        self.tell(told);
        self.note_waiting(slot);
    }

    /// It is refused, or nobody hears what came of it, or it is a message, which is returned.
    pub(super) fn pass_waiting(&mut self, slot: u32) -> Option<Held> {
        let message = self.exchange_of(slot).and_then(Exchange::pass_waiting);
        self.tell_refused(slot);
        self.note_waiting(slot);
        message
    }

    /// Takes what the app asks for on a connection, until there is something else or an offence:
    /// how many, and that.
    fn take_asked(
        &mut self,
        way: &Way,
        first: Command,
        most: usize,
    ) -> (usize, Result<(), Violation>) {
        let (mut taken, mut next) = (0, Some(first));
        while let Some(command) = next {
            taken += 1;
            if let Err(violation) = self.take_one_asked(way, command) {
                return (taken, Err(violation));
            }
            next = if taken < most { self.end.next_asked(way.connection) } else { None };
        }
        (taken, Ok(()))
    }

    #[inline]
    fn take_one_asked(&mut self, way: &Way, command: Command) -> Result<(), Violation> {
        let mut asked = Asked::of(command)?;
        if self.operations.outstanding >= OUTSTANDING_OPERATIONS_MAX {
            return Err(Violation::TooManyOperations);
        }
        asked.refused = way.refused.or_else(|| self.refusal(&asked));
        match way.line {
            // With something in front of it, also what is refused comes in its turn.
            Some(slot) if asked.refused.is_none() || self.has_asked(slot) => {
                self.line_up(slot, &asked);
            }
            _ => {
                let status = asked.refused.unwrap_or(OperationStatus::NoConnection);
                self.tell(operated(asked.token, status, 0, 0));
            }
        }
        Ok(())
    }

    /// Why an operation is not carried out, wherever that would be.
    fn refusal(&self, asked: &Asked) -> Option<OperationStatus> {
        if asked.is_too_large() {
            return Some(OperationStatus::TooLarge);
        }
        let has_room = asked.answer_bytes_max() <= self.end.sizes().receive_pool_bytes;
        (!has_room).then_some(OperationStatus::NoRoom)
    }

    /// Appends what the app asks on a connection.
    #[inline]
    fn line_up(&mut self, slot: u32, asked: &Asked) {
        let Some(connection) = self.connection(slot) else { return };
        let exchange = connection.exchange.get_or_insert_default();
        let is_sent = matches!(connection.bearer, Bearer::Flow(_)) && exchange.may_send(asked);
        if is_sent {
            exchange.send_request(asked);
        } else {
            exchange.ask(*asked);
            connection.note_waiting();
        }
        self.operations.outstanding += 1;
    }
}

impl Channels {
    /// Does the next thing that waits on a connection within the engine.
    pub(crate) fn advance_local(&mut self, asker: Owner) -> Result<(), Blocked> {
        if self.is_copying(asker) {
            return Err(Blocked::Copying);
        }
        let Some(channel) = self.channel(asker.channel) else { return Ok(()) };
        let Some((next, has_closed)) = channel.next_waiting(asker.connection) else {
            return Ok(());
        };
        if let Waiting::Operation(asked @ Asked { refused: None, .. }) = next
            && (!has_closed || asked.has_effect())
        {
            let told = self.operate_local(asker, &asked)?;
            self.end_waiting(asker, told);
            return Ok(());
        }
        if let Some(channel) = self.channel(asker.channel)
            && let Some(message) = channel.pass_waiting(asker.connection)
        {
            self.send_late(asker, message);
        }
        Ok(())
    }

    /// Carries out what the app of `asker` asks of the other end of its connection, which the same
    /// engine serves; what it is told. Nothing is done if there is no room for what is read.
    fn operate_local(&mut self, asker: Owner, asked: &Asked) -> Result<Completion, Blocked> {
        let none = operated(asked.token, OperationStatus::NoConnection, 0, 0);
        let Some(owner) = self.local(asker).map(|local| local.peer) else { return Ok(none) };
        let Some(channel) = self.channel(owner.channel) else { return Ok(none) };
        let mut gathered = core::mem::take(&mut channel.operations.gathered);
        let outcome = self.execute_local(asker, owner, asked, &mut gathered);
        let told = match &outcome {
            Some(outcome) => self.local_answer(asker, owner, asked, outcome, &gathered),
            None => Ok(none),
        };
        if let Some(channel) = self.channel(owner.channel) {
            channel.operations.gathered = gathered;
        }
        if let (Some(outcome), Ok(_)) = (&outcome, &told) {
            self.settle(owner, &asked.request, outcome, asked.payload.1);
        }
        told
    }

    fn execute_local(
        &mut self,
        asker: Owner,
        owner: Owner,
        asked: &Asked,
        gathered: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let (offset, length) = asked.payload;
        let (near, far) = (self.peek(asker.channel)?, self.peek(owner.channel)?);
        let place = Place {
            regions: &far.operations.regions,
            end: &far.end,
            asker: self.asker_within(asker)?,
            may_notify: far.may_be_notified(),
        };
        let read = |short: &mut [u8]| near.end.read(offset, short);
        Some(place.execute_reading(&asked.request, length, read, gathered))
    }

    /// What the asker is told, once what is read or written is copied. What is long is copied in
    /// other turns.
    fn local_answer(
        &mut self,
        asker: Owner,
        owner: Owner,
        asked: &Asked,
        outcome: &Outcome,
        gathered: &[u8],
    ) -> Result<Completion, Blocked> {
        let status = OperationStatus::of(outcome.status as u8);
        let without = operated(asked.token, status, outcome.value, outcome.extra);
        match outcome.data {
            Data::Nothing | Data::Extent(_, _, 0) => Ok(without),
            Data::Gathered => {
                let buffer = self.room_for(asker, gathered.len() as u32)?;
                if let Some(channel) = self.channel(asker.channel) {
                    channel.end.write(to_channel(buffer), 0, gathered);
                }
                Ok(read(asked.token, outcome.value, buffer, 0))
            }
            Data::Extent(region, at, length) => {
                self.may_copy(asker, length)?;
                let buffer = self.room_for(asker, length)?;
                let (direction, extent) = (Direction::Read(buffer), (region, at, length));
                self.copy_shared(asker, owner, asked.copying(asker, outcome, extent, direction))?;
                Ok(read(asked.token, outcome.value, buffer, 0))
            }
            Data::Place(region, at) => {
                let (offset, length) = asked.payload;
                self.may_copy(asker, length)?;
                let (direction, extent) = (Direction::Write(offset), (region, at, length));
                self.copy_shared(asker, owner, asked.copying(asker, outcome, extent, direction))?;
                Ok(without)
            }
        }
    }

    /// Room for what is read.
    fn room_for(&mut self, asker: Owner, length: u32) -> Result<Buffer, Blocked> {
        let channel = self.channel(asker.channel).ok_or(Blocked::Window)?;
        // As between hosts: what may begin may also end, however large.
        channel.has_credit(asker.connection, MESSAGE_OVERHEAD)?;
        let buffer = channel.allocate(asker.connection, length).ok_or(Blocked::Memory)?;
        if let Some(local) = channel.local(asker.connection) {
            local.held += MESSAGE_OVERHEAD + u64::from(length); // until it is released
        }
        Ok(buffer)
    }
}

/// An operation that is over, of which something was read: what is in a buffer from `head` on.
pub(super) fn read(token: u64, value: u64, buffer: Buffer, head: u32) -> Completion {
    debug_assert!(buffer.id != NO_BUFFER);
    Completion::Operated {
        status: Status::Done as u8,
        token,
        value,
        extra: 0,
        offset: buffer.offset + head,
        length: buffer.length - head,
        buffer: buffer.id,
    }
}
