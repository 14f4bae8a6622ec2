//! Regions and operations as plain data, and back.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{SlotState, Slots};
use clearway_channel::{
    DaemonEnd, Description, Group, OUTSTANDING_OPERATIONS_MAX, OperationStatus,
};
use clearway_transport::{Buffer, OPERATION_NAMES, Operation};
use clearway_wire::clearway::MESSAGE_BYTES_MAX;
use clearway_wire::clearway::operation::{ANSWER_LENGTH, REQUEST_LENGTH, Request};
use serde::{Deserialize, Serialize};

use super::Operations;
use super::copying::{Copying, Direction};
use super::exchange::{ANSWERS_LIMIT, Asked, Exchange, Expected, Sent, Source, Waiting};
use super::regions::{REGIONS_MAX, Region, Regions, Spot};
use super::trail::Trail;
use super::writing::Writing;
use crate::channels::Held;
use crate::control::Allowance;

/// A region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionState {
    /// The number of its memory, where it starts there, and how many bytes it has.
    pub memory: u64,
    /// See `memory`.
    pub start: u64,
    /// See `memory`.
    pub length: u64,
    /// Its description, as apps write it.
    pub description: Vec<u8>,
    /// How many operations were carried out on it.
    pub served: u64,
}

/// The operations of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeState {
    /// What the app has asked for, in order: what is on its way, or refused.
    pub asked: Vec<ExpectedState>,
    /// What is to go behind that.
    pub waiting: Vec<WaitingState>,
    /// The numbers of the next answer, and of the peer's next request.
    pub next_answer: u32,
    /// See `next_answer`.
    pub next_request: u32,
    /// That request, if it goes to its place as it comes.
    pub writing: Option<WritingState>,
    /// What has not arrived, in order.
    pub sent: Vec<SentState>,
    /// The name of the first of these, and how many the flow has.
    pub first_name: u32,
    /// See `first_name`.
    pub pushed: u32,
}

/// What an app has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedState {
    /// The app's name for it.
    pub token: u64,
    /// The head of the request.
    pub request: Vec<u8>,
    /// Offset and length of its payload in the transmit pool.
    pub payload: (u32, u32),
    /// The status that its app is to be told, if it is refused.
    pub refused: Option<u8>,
}

/// What is expected of the answer of one that is sent, or is refused and not told yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedState {
    /// The app's name for it.
    pub token: u64,
    /// The kind of the operation.
    pub kind: u8,
    /// The status that its app is to be told, if it is refused.
    pub refused: Option<u8>,
    /// Bytes that the answer may have behind its head.
    pub data_max: u32,
}

/// A long read or write that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyingState {
    /// The slot of its connection.
    pub slot: u32,
    /// The head of the request.
    pub request: Vec<u8>,
    /// What its completion says.
    pub value: u64,
    /// The region, in which memory and where in it, how many bytes, and how many are copied.
    pub region: u64,
    /// See `region`.
    pub memory: u64,
    /// See `region`.
    pub at: u64,
    /// See `region`.
    pub length: u32,
    /// See `region`.
    pub done: u32,
    /// The buffer that a read goes to.
    pub buffer: Option<Buffer>,
    /// Where in the transmit pool a write comes from.
    pub offset: u32,
}

/// A long write of a peer that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritingState {
    /// The head of the request.
    pub request: Vec<u8>,
    /// How many bytes it writes.
    pub length: u32,
    /// The status of its answer, if nothing more of it is written.
    pub refused: Option<u8>,
}

/// What waits for its turn to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitingState {
    /// An operation.
    Operation(AskedState),
    /// A message.
    Message(Held),
}

/// An operation that has not arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentState {
    /// Its head, and the data of a short answer.
    pub kept: Vec<u8>,
    /// It is an answer.
    pub is_answer: bool,
    /// Where what follows is.
    pub source: SourceState,
    /// How long that is.
    pub length: u32,
}

/// Where what follows the first bytes of an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceState {
    /// Nothing.
    Nothing,
    /// Bytes of the transmit pool.
    Pool(u32),
    /// Bytes of shared memory: of the region with this handle, in which memory, and where in it.
    Region(u64, u64, u64),
}

/// More than any connection has had; sums do not overflow.
const COUNT_MAX: u64 = 1 << 62;

impl Operations {
    pub(crate) fn save(&self) -> Vec<SlotState<RegionState>> {
        self.regions.slots.save(|region| RegionState {
            memory: region.start.memory,
            start: region.start.offset,
            length: region.length,
            description: region.description.to_bytes().unwrap_or_default(),
            served: region.served,
        })
    }

    /// Its groups, as apps write them.
    pub(crate) fn save_groups(&self) -> Vec<Vec<u8>> {
        self.regions.groups().map(|group| group.to_bytes().unwrap_or_default()).collect()
    }

    /// Regions of the memory of this channel, and its groups. What of the connections' operations
    /// is to be counted comes with [`Operations::count`].
    pub(crate) fn restore(
        allowance: Allowance,
        saved: Vec<SlotState<RegionState>>,
        groups: &[Vec<u8>],
        end: &DaemonEnd,
    ) -> Result<Self, Invalid> {
        let most = allowance.regions_max.min(REGIONS_MAX);
        let slots = Slots::restore(most, saved, |saved| restore_region(saved, end))?;
        let regions = Regions::of_slots(slots);
        let mut regions = regions.ok_or(Invalid("two regions of one name"))?;
        for group in groups {
            let group = Group::of(group).ok_or(Invalid("a group of no sense"))?;
            regions.set_group(group).map_err(|_| Invalid("more groups than there may be"))?;
        }
        let is_each = regions.groups().count() == groups.len();
        ensure(is_each, "two groups of one name, or one without members")?;
        Ok(Self { regions, ..Self::new(allowance) })
    }

    pub(crate) fn save_copying(&self) -> Option<CopyingState> {
        self.copying.as_ref().map(Copying::save)
    }

    /// The connections that stand in line.
    pub(crate) fn to_copy(&self) -> Vec<u32> {
        self.to_copy.slots().collect()
    }

    /// What was under way. What of it makes sense is seen when all channels are there.
    pub(crate) fn restore_copies(
        &mut self,
        copying: Option<CopyingState>,
        to_copy: Vec<u32>,
        slots: u32,
    ) -> Result<(), Invalid> {
        ensure(
            to_copy.iter().all(|slot| *slot < slots),
            "what is of no connection stands in line",
        )?;
        self.copying = copying.map(Copying::restore).transpose()?;
        to_copy.into_iter().for_each(|slot| self.to_copy.push(slot, ()));
        Ok(())
    }

    /// The memory that is being read into.
    pub(crate) fn read_buffer(&self) -> Option<Buffer> {
        match self.copying.as_ref()?.direction {
            Direction::Read(buffer) => Some(buffer),
            Direction::Write(_) => None,
        }
    }

    /// The connection in a slot has these operations.
    pub(crate) fn count(&mut self, slot: u32, exchange: &Exchange) -> Result<(), Invalid> {
        exchange.regions().for_each(|region| self.begin_reading(region, slot));
        self.outstanding = self.outstanding.saturating_add(exchange.outstanding());
        self.data_kept += exchange.data_kept;
        ensure(self.outstanding <= OUTSTANDING_OPERATIONS_MAX, "too many operations")
    }
}

fn restore_region(saved: RegionState, end: &DaemonEnd) -> Result<Region, Invalid> {
    let RegionState { memory, start, length, description, served } = saved;
    let start = Spot { memory, offset: start };
    ensure(start.has(end, length), "a region outside of the shared memory")?;
    let is_aligned = start.offset.is_multiple_of(8) && length.is_multiple_of(8);
    ensure(is_aligned, "a region of half a word")?;
    let description = Description::of(&description).ok_or(Invalid("a region of no sense"))?;
    ensure(served <= COUNT_MAX, "more operations than can be counted")?;
    Ok(Region::new(start, length, description, served))
}

impl Exchange {
    pub(crate) fn save(&self) -> ExchangeState {
        let waiting = self.waiting.iter().map(|waiting| match waiting {
            Waiting::Operation(asked) => WaitingState::Operation(asked.save()),
            Waiting::Message(message) => WaitingState::Message(*message),
        });
        let sent = self.sent.iter().map(|sent| SentState {
            kept: self.trail.at(sent.place, sent.kept).to_vec(),
            is_answer: sent.is_answer,
            source: match sent.source {
                Source::Nothing => SourceState::Nothing,
                Source::Pool(offset) => SourceState::Pool(offset),
                Source::Region(handle, Spot { memory, offset }) => {
                    SourceState::Region(handle, memory, offset)
                }
            },
            length: sent.length,
        });
        ExchangeState {
            asked: self.asked.iter().map(Expected::save).collect(),
            waiting: waiting.collect(),
            next_answer: self.next_answer,
            next_request: self.next_request,
            writing: self.writing.as_ref().map(Writing::save),
            sent: sent.collect(),
            first_name: self.first_name,
            pushed: self.pushed,
        }
    }

    pub(crate) fn restore(saved: ExchangeState) -> Result<Self, Invalid> {
        let asked = saved.asked.iter().map(Expected::restore).collect();
        let waiting = saved.waiting.into_iter().map(Waiting::restore).collect::<Result<_, _>>()?;
        let mut trail = Trail::default();
        let sent = saved.sent.into_iter().map(|sent| restore_sent(&sent, &mut trail));
        let sent = sent.collect::<Result<_, _>>()?;
        let mut exchange = Self {
            asked,
            on_way: 0,
            waiting,
            messages_waiting: 0,
            next_answer: saved.next_answer,
            next_request: saved.next_request,
            writing: saved.writing.as_ref().map(Writing::restore).transpose()?,
            sent,
            first_name: saved.first_name,
            pushed: saved.pushed,
            answers: 0,
            trail,
            data_kept: 0,
        };
        let is_on_way = |asked: &&Expected| asked.refused.is_none();
        let is_message = |waiting: &&Waiting| matches!(waiting, Waiting::Message(..));
        exchange.on_way = exchange.asked.iter().filter(is_on_way).count() as u32;
        exchange.messages_waiting = exchange.waiting.iter().filter(is_message).count() as u32;
        exchange.answers = exchange.sent.iter().filter(|sent| sent.is_answer).count() as u32;
        exchange.data_kept = exchange.sent.iter().map(|sent| sent.data_kept() as usize).sum();
        exchange.check()?;
        Ok(exchange)
    }

    fn check(&self) -> Result<(), Invalid> {
        ensure(self.answers <= ANSWERS_LIMIT, "too many answers")?;
        let is_told = self.asked.front().is_none_or(|first| first.refused.is_none());
        ensure(is_told, "a refusal that waits for nothing")?;
        // Of the requests in `sent` some may be answered: an answer may come before the
        // acknowledgement of its request.
        let are_named =
            self.first_name < OPERATION_NAMES && self.pushed as usize <= self.sent.len();
        ensure(are_named, "operations that have no name")?;
        let is_next = |writing: Writing| writing.is_number(self.next_request);
        ensure(self.writing.is_none_or(is_next), "a write that is not the next request")
    }

    /// Holds it against the app's memory.
    pub(crate) fn check_memory(&self, end: &DaemonEnd) -> Result<(), Invalid> {
        let is_there = |sent: &Sent| match sent.source {
            Source::Nothing => sent.length == 0,
            Source::Pool(offset) => end.is_extent(offset, sent.length),
            Source::Region(_, at) => at.has(end, sent.length.into()),
        };
        ensure(self.sent.iter().all(is_there), "an operation beyond the app's memory")?;
        let is_extent = |(offset, length)| end.is_extent(offset, length);
        let mut waiting = self.waiting.iter().map(|waiting| match waiting {
            Waiting::Operation(asked) => asked.payload,
            Waiting::Message(message) => (message.offset, message.length),
        });
        ensure(waiting.all(is_extent), "what is beyond the pool is to be sent")
    }

    /// Holds it against what its flow has.
    pub(crate) fn check_flow(&self, operations: &[Operation]) -> Result<(), Invalid> {
        let named = (0..self.pushed).zip(&self.sent).map(|(index, sent)| Operation {
            name: self.first_name.wrapping_add(index) % OPERATION_NAMES,
            length: sent.total(),
            is_answer: sent.is_answer,
        });
        ensure(named.eq(operations.iter().copied()), "operations that are not those of the flow")
    }
}

impl Copying {
    fn save(&self) -> CopyingState {
        let Self { slot, request, value, region, at, length, direction, done } = *self;
        let Spot { memory, offset: at } = at;
        let request = request.emit().to_vec();
        let (buffer, offset) = match direction {
            Direction::Read(buffer) => (Some(buffer), 0),
            Direction::Write(offset) => (None, offset),
        };
        CopyingState { slot, request, value, region, memory, at, length, done, buffer, offset }
    }

    fn restore(saved: CopyingState) -> Result<Self, Invalid> {
        let CopyingState { slot, value, region, memory, at, length, done, buffer, offset, .. } =
            saved;
        let at = Spot { memory, offset: at };
        let request =
            Request::parse(&saved.request).map_err(|_| Invalid("a copy without its request"))?;
        let direction = buffer.map_or(Direction::Write(offset), Direction::Read);
        Ok(Self { slot, request, value, region, at, length, direction, done })
    }
}

impl Asked {
    fn save(&self) -> AskedState {
        AskedState {
            token: self.token,
            request: self.request.emit().to_vec(),
            payload: self.payload,
            refused: self.refused.map(|status| status as u8),
        }
    }

    fn restore(saved: AskedState) -> Result<Self, Invalid> {
        let AskedState { token, request, payload, refused } = saved;
        let request =
            Request::parse(&request).map_err(|_| Invalid("a request without its head"))?;
        Ok(Self { token, request, payload, refused: refused.map(OperationStatus::of) })
    }
}

impl Expected {
    fn save(&self) -> ExpectedState {
        let Self { token, kind, refused, data_max } = *self;
        ExpectedState { token, kind, refused: refused.map(|status| status as u8), data_max }
    }

    fn restore(saved: &ExpectedState) -> Self {
        let ExpectedState { token, kind, refused, data_max } = *saved;
        Self { token, kind, refused: refused.map(OperationStatus::of), data_max }
    }
}

impl Waiting {
    fn restore(saved: WaitingState) -> Result<Self, Invalid> {
        Ok(match saved {
            WaitingState::Operation(asked) => Self::Operation(Asked::restore(asked)?),
            WaitingState::Message(message) => Self::Message(message),
        })
    }
}

fn restore_sent(saved: &SentState, trail: &mut Trail) -> Result<Sent, Invalid> {
    let SentState { kept, is_answer, source, length } = saved;
    let (is_answer, length) = (*is_answer, *length);
    let head = if is_answer { ANSWER_LENGTH } else { REQUEST_LENGTH };
    let is_possible = if is_answer { kept.len() >= head } else { kept.len() == head };
    ensure(is_possible, "an operation without its head")?;
    let total = kept.len().saturating_add(length as usize);
    ensure(total <= MESSAGE_BYTES_MAX as usize, "an operation that is too long")?;
    let source = match *source {
        SourceState::Nothing => Source::Nothing,
        SourceState::Pool(offset) => Source::Pool(offset),
        SourceState::Region(handle, memory, offset) => {
            Source::Region(handle, Spot { memory, offset })
        }
    };
    let place = trail.end();
    trail.append(kept.len()).copy_from_slice(kept);
    Ok(Sent { place, kept: kept.len() as u32, is_answer, source, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(token: u64) -> Asked {
        let request = Request {
            kind: 2,
            stride: 0,
            number: 0,
            region: 1,
            offset: 0,
            length: 8,
            count: 0,
            operand: 0,
            second: 0,
        };
        Asked { token, request, payload: (0, 0), refused: None }
    }

    /// The acknowledgement of a request may be lost, and its answer is not.
    #[test]
    fn an_answer_may_come_before_the_acknowledgement_of_its_request() {
        let mut exchange = Exchange::default();
        (0..3).for_each(|token| exchange.ask(asked(token)));
        exchange.take_outbound(false, |_| ());
        exchange.answered();
        exchange.answered();
        let saved = exchange.save();
        assert_eq!((saved.asked.len(), saved.sent.len()), (1, 3));
        let mut restored = Exchange::restore(saved.clone()).expect("sound");
        assert_eq!(restored.save(), saved);
        restored.arrived(3);
        assert!(restored.save().sent.is_empty());
        let told = ExpectedState { refused: Some(6), ..saved.asked[0].clone() };
        assert!(Exchange::restore(ExchangeState { asked: vec![told], ..saved }).is_err());
    }
}
