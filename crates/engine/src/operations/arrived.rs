//! Operations that have come from a peer: its requests, which are carried out, and its answers.

use clearway_channel::{Completion, DaemonEnd, OperationStatus};
use clearway_transport::{Arrived, Buffer, DueOperations, Operated, Owner};
use clearway_wire::clearway::operation::{
    ANSWER_LENGTH, Answer, Kind, REQUEST_LENGTH, Request, Status, is_answer,
};

use super::ask::read;
use super::exchange::{ANSWERS_LIMIT, ANSWERS_MAX, Exchange, Source};
use super::execute::{Data, Outcome, Payload, Place};
use super::groups::Who;
use super::regions::Spot;
use super::{DATA_KEPT_MAX, DATA_KEPT_PARTS, NOTIFICATIONS_MAX, Operations, operated, who_asks};
use crate::channels::{Channel, Channels, Site, to_channel};

/// Up to so many bytes are read in the turn of the request; more than that when they are sent.
const DATA_AT_ONCE_MAX: u32 = super::copying::AT_ONCE_BYTES_MAX;

impl Channels {
    /// An operation whose turn it is.
    pub(crate) fn operate(&mut self, owner: Owner, operation: Arrived<'_>) -> Operated {
        match operation {
            Arrived::Packet(bytes) => self.operate_on(owner, bytes, operation),
            Arrived::Buffer(buffer) if Site::of(buffer) == Site::Region => self.end_write(owner),
            Arrived::Buffer(buffer) => self.operate_buffer(owner, buffer),
        }
    }

    /// The same for those that stand next in a packet. What all have in common is looked up once.
    #[inline]
    pub(crate) fn operate_due(&mut self, owner: Owner, due: &mut DueOperations<'_, '_>) {
        let slot = owner.connection;
        if let Some(channel) = self.channel(owner.channel) {
            let reads = channel.answer_reads(slot, due);
            channel.take_answers(slot, due);
            self.operation_counters.operations_read += u64::from(reads);
        }
        while due.take(|bytes| Some(self.operate_on(owner, bytes, Arrived::Packet(bytes)))) {}
    }

    /// The same for one that has come in parts, or before its turn.
    #[cold]
    fn operate_buffer(&mut self, owner: Owner, buffer: Buffer) -> Operated {
        let Some(channel) = self.channel(owner.channel) else { return Operated::Violation };
        let mut head = [0; REQUEST_LENGTH];
        let head = &mut head[..REQUEST_LENGTH.min(buffer.length as usize)];
        channel.end.read_received(to_channel(buffer), 0, head);
        let operated = self.operate_on(owner, head, Arrived::Buffer(buffer));
        if let Operated::Over | Operated::Violation = operated
            && let Some(channel) = self.channel(owner.channel)
        {
            channel.free_spare(buffer);
        }
        operated
    }

    /// The same for one that begins with `head`, of which there may be more.
    #[inline]
    fn operate_on(&mut self, owner: Owner, head: &[u8], operation: Arrived<'_>) -> Operated {
        let operated = match head.first() {
            Some(&first) if is_answer(first) => {
                Answer::parse(head).map(|answer| self.take_answer(owner, &answer, operation))
            }
            _ => Request::parse(head).map(|request| self.take_request(owner, &request, operation)),
        };
        operated.unwrap_or(Operated::Violation)
    }

    fn take_answer(&mut self, owner: Owner, answer: &Answer, operation: Arrived<'_>) -> Operated {
        match self.channel(owner.channel) {
            Some(channel) => channel.take_answer(owner.connection, answer, operation),
            None => Operated::Violation,
        }
    }

    fn take_request(
        &mut self,
        owner: Owner,
        request: &Request,
        operation: Arrived<'_>,
    ) -> Operated {
        let Some(channel) = self.channel(owner.channel) else { return Operated::Violation };
        match channel.take_request(owner.connection, request, operation) {
            Ok(outcome) => {
                let bytes = operation.length() - REQUEST_LENGTH as u32;
                self.tell_of(owner, request, &outcome, bytes);
                Operated::Over
            }
            Err(operated) => operated,
        }
    }

    /// An operation within the engine was carried out, or refused: it is counted, and its owner
    /// told.
    pub(super) fn settle(
        &mut self,
        owner: Owner,
        request: &Request,
        outcome: &Outcome,
        bytes: u32,
    ) {
        if let Some(channel) = self.channel(owner.channel) {
            channel.operations.regions.count(request, outcome);
        }
        self.tell_of(owner, request, outcome, bytes);
    }

    /// An operation is over that its region has counted: the engine counts it, and its owner is
    /// told, of so many bytes, if that was asked for.
    #[inline]
    pub(super) fn tell_of(
        &mut self,
        owner: Owner,
        request: &Request,
        outcome: &Outcome,
        bytes: u32,
    ) {
        self.operation_counters.count(request.kind, outcome.status);
        if outcome.notifies {
            self.notify(owner, request, bytes);
        }
    }

    /// The owner is told of what was written.
    fn notify(&mut self, owner: Owner, request: &Request, bytes: u32) {
        let Some(channel) = self.channel(owner.channel) else { return };
        let connection = channel.id(owner.connection);
        let Request { region, offset: place, operand: value, .. } = *request;
        channel.tell(Completion::Notified { connection, region, place, bytes, value });
    }
}

impl Operations {
    /// One more request may be taken on a connection: there is room for its answer.
    pub(super) fn have_room_to_answer(&self, exchange: &Exchange) -> bool {
        let bytes_left = DATA_KEPT_MAX.saturating_sub(self.data_kept);
        exchange.answers < ANSWERS_MAX && exchange.data_kept < bytes_left / DATA_KEPT_PARTS
    }

    /// Fetches what requests will need that is in no cache, as a guess: first all regions, then
    /// what is at the beginning of each read.
    #[inline(never)]
    fn fetch_for(&self, end: &DaemonEnd, due: &DueOperations<'_, '_>) {
        let request = |bytes: &[u8]| Request::parse(bytes).ok().filter(|_| !is_answer(bytes[0]));
        due.look_ahead(|bytes| {
            request(bytes).into_iter().for_each(|request| self.regions.fetch(request.region));
        });
        due.look_ahead(|bytes| {
            if let Some(request) = request(bytes)
                && let Some(at) = self.regions.start_of(request.region)
                && let Some(shared) = end.memory(at.memory)
            {
                shared.fetch(at.offset.wrapping_add(request.offset));
            }
        });
    }

    /// Answers a request that is a short read, and that may be carried out. `None` if it is not.
    #[inline]
    fn answer_read(
        &mut self,
        exchange: &mut Exchange,
        end: &DaemonEnd,
        asker: Who,
        request: &[u8],
    ) -> Option<Operated> {
        const KIND: u8 = Kind::Read as u8;
        let Ok(Request { kind: KIND, number, region, offset, length, .. }) =
            Request::parse(request)
        else {
            return None;
        };
        let is_plain = number == exchange.next_request && length <= DATA_AT_ONCE_MAX;
        if !is_plain || !self.have_room_to_answer(exchange) {
            return None;
        }
        let at = self.regions.serve_read(region, (offset, length), asker)?;
        let head = Answer { kind: KIND, status: Status::Done, number, value: 0, extra: 0 }.emit();
        let into = exchange.answer(&head, length, (Source::Nothing, 0));
        read_out(end, at, into);
        self.data_kept += length as usize;
        Some(Operated::Over)
    }

    /// Puts an answer into the line of what the flow of the connection in a slot is to send. What
    /// is short is read now.
    #[inline]
    fn answer(
        &mut self,
        (slot, exchange): (u32, &mut Exchange),
        end: &DaemonEnd,
        request: &Request,
        outcome: &Outcome,
    ) {
        let Outcome { status, value, extra, data, .. } = *outcome;
        let Request { kind, number, .. } = *request;
        let head = Answer { kind, status, number, value, extra }.emit();
        let nothing = (Source::Nothing, 0);
        let (data_bytes, elsewhere) = match data {
            Data::Nothing | Data::Place(..) => (0, nothing),
            Data::Gathered => (self.gathered.len() as u32, nothing),
            Data::Extent(_, _, length) if length <= DATA_AT_ONCE_MAX => (length, nothing),
            Data::Extent(region, at, length) => {
                self.begin_reading(region, slot);
                (0, (Source::Region(region, at), length))
            }
        };
        let into = exchange.answer(&head, data_bytes, elsewhere);
        match data {
            Data::Gathered => into.copy_from_slice(&self.gathered),
            Data::Extent(_, at, _) if !into.is_empty() => read_out(end, at, into),
            Data::Nothing | Data::Place(..) | Data::Extent(..) => {}
        }
        self.data_kept += into.len();
        self.regions.count(request, outcome);
    }
}

impl Channel {
    pub(super) fn may_be_notified(&self) -> bool {
        !self.has_left && self.pending_count() < NOTIFICATIONS_MAX
    }

    pub(super) fn exchange_of(&mut self, slot: u32) -> Option<&mut Exchange> {
        self.connection(slot)?.exchange.as_deref_mut()
    }

    /// Answers those that stand next and are short reads with nothing against them, which is most
    /// of what peers ask: how many. The first that is not stays, to be carried out as any other.
    #[inline]
    fn answer_reads(&mut self, slot: u32, due: &mut DueOperations<'_, '_>) -> u32 {
        let mut count = 0;
        let Some((connection, operations, end)) = self.parts(slot) else { return count };
        let asker = who_asks(connection);
        let Some(exchange) = connection.exchange.as_deref_mut() else { return count };
        if operations.regions.are_many() {
            operations.fetch_for(end, due);
        }
        while due.take(|bytes| operations.answer_read(exchange, end, asker, bytes)) {
            count += 1;
        }
        count
    }

    /// Takes the answers that stand next.
    #[inline]
    fn take_answers(&mut self, slot: u32, due: &mut DueOperations<'_, '_>) {
        while due.take(|bytes| {
            let answer = Answer::parse(bytes).ok().filter(|_| is_answer(bytes[0]))?;
            Some(self.take_answer(slot, &answer, Arrived::Packet(bytes)))
        }) {}
    }

    /// Carries out a request, if that can be done now, and puts its answer in line.
    #[inline]
    fn take_request(
        &mut self,
        slot: u32,
        request: &Request,
        operation: Arrived<'_>,
    ) -> Result<Outcome, Operated> {
        let may_notify = self.may_be_notified();
        let (connection, operations, end) = self.parts(slot).ok_or(Operated::Violation)?;
        let asker = who_asks(connection);
        let exchange = connection.exchange.get_or_insert_default();
        match operation {
            _ if request.number != exchange.next_request => return Err(Operated::Violation),
            Arrived::Packet(_) if !operations.have_room_to_answer(exchange) => {
                return Err(Operated::NoRoom);
            }
            Arrived::Buffer(_) if exchange.answers >= ANSWERS_LIMIT => {
                return Err(Operated::Violation);
            }
            Arrived::Packet(_) | Arrived::Buffer(_) => {}
        }
        let Operations { regions, gathered, .. } = operations;
        let place = Place { regions, end, asker, may_notify };
        let outcome = match operation {
            Arrived::Packet(bytes) => {
                let payload = Payload::of(&bytes[REQUEST_LENGTH..]);
                place.execute(request, &payload, gathered)
            }
            Arrived::Buffer(buffer) => {
                let (length, from) = (buffer.length - REQUEST_LENGTH as u32, REQUEST_LENGTH as u32);
                let read = |short: &mut [u8]| end.read_received(to_channel(buffer), from, short);
                place.execute_reading(request, length, read, gathered)
            }
        };
        if let Data::Place(_, at) = outcome.data {
            write_arrived(end, operation, at);
        }
        operations.answer((slot, exchange), end, request, &outcome);
        Ok(outcome)
    }

    /// A long write is over: puts its answer in line.
    pub(super) fn answer_write(&mut self, slot: u32, request: &Request, outcome: &Outcome) {
        let Some((connection, operations, end)) = self.parts(slot) else { return };
        if let Some(exchange) = connection.exchange.as_deref_mut() {
            operations.answer((slot, exchange), end, request, outcome);
        }
    }

    /// What the peer of a connection asks for is here.
    pub(super) fn place_of(&self, slot: u32) -> Option<Place<'_>> {
        Some(Place {
            regions: &self.operations.regions,
            end: &self.end,
            asker: self.asker(slot)?,
            may_notify: self.may_be_notified(),
        })
    }

    /// Copies bytes of a place that was bounded when the operation was carried out.
    pub(super) fn read_shared(&self, spot: Spot, into: &mut [u8]) {
        let shared = self.end.memory(spot.memory);
        let _ = shared.is_some_and(|shared| shared.read(spot.offset, into));
    }

    #[inline]
    fn take_answer(&mut self, slot: u32, answer: &Answer, operation: Arrived<'_>) -> Operated {
        let data_length = operation.length() - ANSWER_LENGTH as u32;
        let Some(exchange) = self.exchange_of(slot) else { return Operated::Violation };
        let due = exchange.due().filter(|due| {
            answer.number == exchange.next_answer
                && answer.kind == due.kind
                && data_length <= due.data_max
        });
        let Some(token) = due.map(|due| due.token) else { return Operated::Violation };
        let buffer = match operation {
            _ if data_length == 0 => None,
            Arrived::Buffer(buffer) => Some(buffer),
            Arrived::Packet(bytes) => match self.allocate(slot, bytes.len() as u32) {
                Some(buffer) => {
                    self.end.write(to_channel(buffer), 0, bytes);
                    Some(buffer)
                }
                None => return Operated::NoRoom,
            },
        };
        self.tell_answer(slot, token, answer, buffer)
    }

    fn tell_answer(
        &mut self,
        slot: u32,
        token: u64,
        answer: &Answer,
        buffer: Option<Buffer>,
    ) -> Operated {
        let mut is_refused = false;
        if let Some(exchange) = self.exchange_of(slot) {
            exchange.answered();
            is_refused = exchange.is_refused();
            self.operations.outstanding -= 1;
        }
        let operated = match buffer {
            Some(buffer) => {
                self.tell(read(token, answer.value, buffer, ANSWER_LENGTH as u32));
                Operated::Kept
            }
            None => {
                let status = OperationStatus::of(answer.status as u8);
                self.tell(operated(token, status, answer.value, answer.extra));
                Operated::Over
            }
        };
        if is_refused {
            self.tell_refused(slot);
        }
        operated
    }
}

/// Copies what an answer is to carry, which was bounded, to where answers before it may have been.
#[inline]
fn read_out(end: &DaemonEnd, at: Spot, into: &mut [u8]) {
    let is_read = end.memory(at.memory).is_some_and(|shared| shared.read(at.offset, into));
    if !is_read {
        into.fill(0);
    }
}

/// Writes what came with a request to its place, which was bounded.
fn write_arrived(end: &DaemonEnd, operation: Arrived<'_>, spot: Spot) {
    let Some(shared) = end.memory(spot.memory) else { return };
    let at = spot.offset;
    let _ = match operation {
        Arrived::Packet(bytes) => shared.write(at, &bytes[REQUEST_LENGTH..]),
        Arrived::Buffer(buffer) => {
            let (buffer, from) = (to_channel(buffer), REQUEST_LENGTH as u32);
            end.share_received(buffer, from, buffer.length - from, shared, at)
        }
    };
}
