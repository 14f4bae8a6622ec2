//! The operations of one connection: what this side has asked for, and what it has to send.
//!
//! ```text
//!  asked  ◀─┤ waiting │    on their way, at most REQUESTS_MAX; popped by answers, in order
//!  sent   ├─ the flow has them ─┼─ it has not yet ─┤          popped as they arrive
//! ```
//!
//! Requests wait in `waiting` and not in `sent`: when they are sent, their bytes are made. Messages
//! that are submitted meanwhile wait among them, and so none comes before an operation that was
//! asked for before. What this daemon refuses takes its place in line too, and is told in its turn.

use std::collections::VecDeque;

use clearway_base::give_back;
use clearway_channel::OperationStatus;
use clearway_transport::{OPERATION_NAMES, Operation, Outbound};
use clearway_wire::clearway::operation::{ANSWER_LENGTH, BATCH_HEAD_LENGTH, Kind, Request};

use super::execute::GATHERED_BYTES_MAX;
use super::regions::Spot;
use super::trail::Trail;
use super::writing::Writing;
use crate::channels::{Channel, Held};

/// Requests of one connection that are on their way. Who asks has room for the answers of so many
/// at least.
const REQUESTS_MAX: u32 = 512;
/// Answers that have not arrived beyond which no request is taken.
pub(super) const ANSWERS_MAX: u32 = 1024;
/// Answers that have not arrived, with those to requests that had come before their turn: who keeps
/// to the rules has not more than `REQUESTS_MAX` of these.
pub(super) const ANSWERS_LIMIT: u32 = 2048;

const _: () = assert!(ANSWERS_MAX + REQUESTS_MAX <= ANSWERS_LIMIT);

/// What has not arrived, answers included, beyond which no request is sent. A peer acknowledges a
/// request with its answer at the latest, and so lets it be far less; one that answers only would
/// have all kept that it is ever asked.
const SENT_MAX: usize = 4096;

const _: () = assert!((ANSWERS_LIMIT + REQUESTS_MAX) as usize <= SENT_MAX);

/// What the app has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The app's name for it.
    pub(super) token: u64,
    /// Its number is filled in when it is sent.
    pub(super) request: Request,
    /// In the transmit pool.
    pub(super) payload: (u32, u32),
    /// It is not sent, and this is what its app is told when all before it are over.
    pub(super) refused: Option<OperationStatus>,
}

/// What is kept of that once it is sent, or refused: what is expected of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) token: u64,
    /// See [`Request::kind`].
    pub(super) kind: u8,
    /// See [`Asked::refused`].
    pub(super) refused: Option<OperationStatus>,
    /// Bytes that the answer may have behind its head.
    pub(super) data_max: u32,
}

/// What waits for its turn to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Operation(Asked),
    Message(Held),
}

impl Asked {
    /// Bytes that the answer may have, with its head.
    pub(super) fn answer_bytes_max(&self) -> u32 {
        self.data_max().saturating_add(ANSWER_LENGTH as u32)
    }

    /// The same behind its head.
    #[inline]
    pub(super) fn data_max(&self) -> u32 {
        match Kind::of(self.request.kind) {
            Some(Kind::Read | Kind::IndirectRead | Kind::ScanRead) => self.request.length,
            Some(Kind::BatchRead) => {
                let Request { count, length, .. } = self.request;
                let gathered = count.saturating_mul(length).min(GATHERED_BYTES_MAX as u32);
                BATCH_HEAD_LENGTH as u32 * count + gathered
            }
            _ => 0,
        }
    }

    pub(super) fn has_effect(&self) -> bool {
        has_effect(self.request.kind)
    }

    #[inline]
    fn expected(&self) -> Expected {
        let Self { token, refused, request, .. } = *self;
        Expected { token, kind: request.kind, refused, data_max: self.data_max() }
    }
}

fn has_effect(kind: u8) -> bool {
    Kind::of(kind).is_some_and(Kind::has_effect)
}

impl Expected {
    /// What its app is told when the connection ends.
    fn end(&self, was_sent: bool) -> OperationStatus {
        if let Some(status) = self.refused {
            return status;
        }
        if has_effect(self.kind) && was_sent {
            OperationStatus::Unknown
        } else {
            OperationStatus::Failed
        }
    }
}

/// Where bytes of an operation are that are not kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// There are none.
    Nothing,
    /// At this offset of the app's transmit pool.
    Pool(u32),
    /// At this place of the app's shared memory, of the region with this handle.
    Region(u64, Spot),
}

/// An operation that is sent and has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The place and the number of its first bytes, which are kept: its head, and the data of a
    /// short answer.
    pub(super) place: u64,
    pub(super) kept: u32,
    pub(super) is_answer: bool,
    /// The bytes behind these.
    pub(super) source: Source,
    pub(super) length: u32,
}

impl Sent {
    pub(super) const fn total(&self) -> u32 {
        self.kept + self.length
    }

    /// Bytes of a short answer that are kept.
    pub(super) const fn data_kept(&self) -> u32 {
        if self.is_answer { self.kept - ANSWER_LENGTH as u32 } else { 0 }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// What is on its way, and what is refused and not told yet.
    pub(super) asked: VecDeque<Expected>,
    /// Of these, how many are on their way.
    pub(super) on_way: u32,
    /// What is to go behind these.
    pub(super) waiting: VecDeque<Waiting>,
    /// Of these, how many are messages.
    pub(super) messages_waiting: u32,
    /// The number of the first of these: of the next answer.
    pub(super) next_answer: u32,
    /// The number of the peer's next request.
    pub(super) next_request: u32,
    /// The peer's next request, if it is a write that goes to its place as it comes.
    pub(super) writing: Option<Writing>,
    pub(super) sent: VecDeque<Sent>,
    /// The name of the first.
    pub(super) first_name: u32,
    /// Of `sent`, how many the flow has.
    pub(super) pushed: u32,
    /// Of `sent`, how many are answers.
    pub(super) answers: u32,
    /// What is kept of `sent`, one behind the other.
    pub(super) trail: Trail,
    /// Of that, how many bytes are data of answers.
    pub(super) data_kept: usize,
}

impl Exchange {
    pub(crate) fn outstanding(&self) -> u32 {
        self.asked.len() as u32 + self.waiting.len() as u32 - self.messages_waiting
    }

    /// True if what comes next has to wait for its turn.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) const fn messages_waiting(&self) -> u32 {
        self.messages_waiting
    }

    /// What the app asks for need not wait.
    #[inline]
    pub(super) fn may_send(&self, asked: &Asked) -> bool {
        asked.refused.is_none()
            && self.on_way < REQUESTS_MAX
            && self.sent.len() < SENT_MAX
            && !self.is_waiting()
    }

    /// Appends what the app asks for to what waits.
    pub(super) fn ask(&mut self, asked: Asked) {
        self.waiting.push_back(Waiting::Operation(asked));
    }

    /// Appends a message, which is to wait as well.
    pub(super) fn hold(&mut self, message: Held) {
        self.waiting.push_back(Waiting::Message(message));
        self.messages_waiting += 1;
    }

    /// What the peer answers next, if it has been asked.
    #[inline]
    pub(super) fn due(&self) -> Option<&Expected> {
        self.asked.front().filter(|asked| asked.refused.is_none())
    }

    /// It has answered.
    pub(super) fn answered(&mut self) {
        self.asked.pop_front();
        self.on_way -= 1;
        self.next_answer = self.next_answer.wrapping_add(1);
    }

    /// True if what is refused has nothing in front of it any more.
    #[inline]
    pub(super) fn is_refused(&self) -> bool {
        self.asked.front().is_some_and(|asked| asked.refused.is_some())
    }

    /// What is refused and has nothing in front of it any more, and how.
    pub(super) fn take_refused(&mut self) -> Option<(u64, OperationStatus)> {
        let Expected { token, refused, .. } = *self.asked.front()?;
        let status = refused?;
        self.asked.pop_front();
        give_back(&mut self.asked);
        Some((token, status))
    }

    /// A long write of the peer's is under way.
    pub(crate) const fn has_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The same, of so many bytes with its head.
    pub(crate) fn is_writing(&self, bytes: u32) -> bool {
        self.writing.is_some_and(|writing| writing.total() == bytes)
    }

    /// Appends the answer to the peer's next request, with so many bytes of data that are to be
    /// written, and some that are elsewhere.
    #[inline]
    pub(super) fn answer(
        &mut self,
        head: &[u8; ANSWER_LENGTH],
        data_bytes: u32,
        elsewhere: (Source, u32),
    ) -> &mut [u8] {
        self.next_request = self.next_request.wrapping_add(1);
        self.answers += 1;
        self.data_kept += data_bytes as usize;
        self.send(head, data_bytes, true, elsewhere)
    }

    /// Appends what is to be sent.
    #[inline(always)] // A head of known length costs less than to call this.
    fn send<const HEAD: usize>(
        &mut self,
        head: &[u8; HEAD],
        data_bytes: u32,
        is_answer: bool,
        (source, length): (Source, u32),
    ) -> &mut [u8] {
        let (place, kept) = (self.trail.end(), HEAD as u32 + data_bytes);
        self.sent.push_back(Sent { place, kept, is_answer, source, length });
        let (first, data) = self.trail.append(kept as usize).split_at_mut(HEAD);
        first.copy_from_slice(head);
        data
    }

    /// True if there is something that the flow has not, and may have now.
    #[inline]
    pub(crate) fn has_unpushed(&self) -> bool {
        self.pushed as usize != self.sent.len() || self.is_waiting()
    }

    /// What the flow is to send. Once the app `has_closed` nothing is answered any more, and what
    /// would have no effect is not sent.
    pub(crate) fn take_outbound(&mut self, has_closed: bool, mut take: impl FnMut(Outbound)) {
        loop {
            self.push_sent(&mut take);
            match self.take_waiting(has_closed) {
                Some(Waiting::Message(Held { offset, length, deadline })) => {
                    take(Outbound::Message { offset, length, deadline });
                }
                Some(Waiting::Operation(asked)) => self.send_request(&asked),
                None => return,
            }
        }
    }

    /// Gives the flow those of `sent` that it has not.
    fn push_sent(&mut self, take: &mut impl FnMut(Outbound)) {
        while let Some(next) = self.sent.get(self.pushed as usize) {
            let name = self.first_name.wrapping_add(self.pushed) % OPERATION_NAMES;
            self.pushed += 1;
            let (length, is_answer) = (next.total(), next.is_answer);
            take(Outbound::Operation(Operation { name, length, is_answer }));
        }
    }

    /// The next of those that wait, if it may go.
    fn take_waiting(&mut self, has_closed: bool) -> Option<Waiting> {
        // What has arrived in its turn has been carried out, if nobody tells.
        let requests_sent = self.sent.len() as u32 - self.answers;
        let unsettled = if has_closed { requests_sent } else { self.on_way };
        let may_go = match self.waiting.front()? {
            Waiting::Operation(Asked { refused: None, .. }) => {
                unsettled < REQUESTS_MAX && self.sent.len() < SENT_MAX
            }
            Waiting::Operation(_) | Waiting::Message(..) => true,
        };
        let mut next = if may_go { self.waiting.pop_front()? } else { return None };
        self.give_back_waiting();
        match &mut next {
            Waiting::Operation(asked) if has_closed && !asked.has_effect() => {
                asked.refused.get_or_insert(OperationStatus::Failed);
            }
            Waiting::Operation(_) => {}
            Waiting::Message(..) => self.messages_waiting -= 1,
        }
        Some(next)
    }

    /// Gives memory back that it has needed for more that waited.
    pub(crate) fn give_back_waiting(&mut self) {
        give_back(&mut self.waiting);
    }

    /// The same within the engine: it is refused, or was carried out and nobody hears of it, or it
    /// is a message, which is returned.
    pub(super) fn pass_waiting(&mut self) -> Option<Held> {
        match self.waiting.pop_front()? {
            Waiting::Operation(asked) => {
                self.on_way += u32::from(asked.refused.is_none());
                self.asked.push_back(asked.expected());
                None
            }
            Waiting::Message(message) => {
                self.messages_waiting -= 1;
                Some(message)
            }
        }
    }

    /// Sends a request, unless it is refused.
    #[inline]
    pub(super) fn send_request(&mut self, asked: &Asked) {
        if asked.refused.is_none() {
            let number = self.next_answer.wrapping_add(self.on_way);
            let head = Request { number, ..asked.request }.emit();
            let (offset, length) = asked.payload;
            let source = if length > 0 { Source::Pool(offset) } else { Source::Nothing };
            self.send(&head, 0, false, (source, length));
            self.on_way += 1;
        }
        self.asked.push_back(asked.expected());
    }

    /// The first `count` that the flow has have arrived. Returns how many bytes of data were kept
    /// for them, and which regions others were read out of.
    pub(crate) fn arrived(&mut self, count: u32) -> (usize, Vec<u64>) {
        let (mut kept, mut data, mut answers, mut regions) = (0, 0, 0, Vec::new());
        for sent in self.sent.drain(..count as usize) {
            kept += sent.kept as usize;
            data += sent.data_kept() as usize;
            answers += u32::from(sent.is_answer);
            if let Source::Region(region, _) = sent.source {
                regions.push(region);
            }
        }
        self.first_name = self.first_name.wrapping_add(count) % OPERATION_NAMES;
        self.pushed -= count;
        self.answers -= answers;
        self.data_kept -= data;
        self.trail.forget(kept);
        (data, regions)
    }

    /// Copies bytes of the operation of this name, from `at` on.
    #[inline]
    pub(crate) fn read(&self, channel: &Channel, name: u32, at: u32, into: &mut [u8]) {
        let index = name.wrapping_sub(self.first_name) % OPERATION_NAMES;
        let Some(sent) = self.sent.get(index as usize) else { return };
        let kept = self.trail.at(sent.place, sent.kept);
        if at == 0 && into.len() == kept.len() {
            return into.copy_from_slice(kept); // all of what is short
        }
        let rest = kept.get(at as usize..).unwrap_or(&[]);
        let (first, others) = into.split_at_mut(rest.len().min(into.len()));
        first.copy_from_slice(&rest[..first.len()]);
        if !others.is_empty() {
            let from = (at as usize + first.len()) as u32;
            let from = from.saturating_sub(sent.kept);
            read_elsewhere(channel, sent.source, from, others);
        }
    }

    /// The regions that answers on their way are read out of, once for each answer.
    pub(super) fn regions(&self) -> impl Iterator<Item = u64> {
        self.sent.iter().filter_map(|sent| match sent.source {
            Source::Region(region, _) => Some(region),
            Source::Nothing | Source::Pool(_) => None,
        })
    }

    /// The connection has ended: what is to be said of what was asked for. Of what waits the first
    /// has been begun, or not.
    pub(super) fn into_ends(self, is_begun: bool) -> impl Iterator<Item = (u64, OperationStatus)> {
        let asked = self.asked.into_iter().map(|asked| (asked.token, asked.end(true)));
        let waiting = self.waiting.into_iter().enumerate();
        let waiting = waiting.filter_map(move |(place, waiting)| match waiting {
            Waiting::Operation(asked) => {
                Some((asked.token, asked.expected().end(is_begun && place == 0)))
            }
            Waiting::Message(..) => None,
        });
        asked.chain(waiting)
    }
}

/// Copies bytes that are not kept, from `from` on.
fn read_elsewhere(channel: &Channel, source: Source, from: u32, into: &mut [u8]) {
    match source {
        Source::Nothing => into.fill(0),
        Source::Pool(offset) => channel.end.read(offset + from, into),
        // A revoked region has no readers.
        Source::Region(_, place) => channel.read_shared(place.plus(from), into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(token: u64) -> Asked {
        let kind = Kind::Read as u8;
        let (stride, number, region, offset, length) = (0, 0, 1, 0, 8);
        let (count, operand, second) = (0, 0, 0);
        let request =
            Request { kind, stride, number, region, offset, length, count, operand, second };
        Asked { token, request, payload: (0, 0), refused: None }
    }

    /// And goes on with it when the peer does.
    #[test]
    fn what_is_kept_for_a_peer_that_answers_and_acknowledges_nothing_is_bounded() {
        let mut exchange = Exchange::default();
        let asks = SENT_MAX as u64 + 10;
        for token in 0..asks {
            let asked = asked(token);
            match exchange.may_send(&asked) {
                true => exchange.send_request(&asked),
                false => exchange.ask(asked),
            }
            exchange.take_outbound(false, |_| ());
            if exchange.due().is_some() {
                exchange.answered();
            }
        }
        assert_eq!((exchange.sent.len(), exchange.outstanding()), (SENT_MAX, 10));
        exchange.arrived(SENT_MAX as u32);
        assert!(exchange.has_unpushed());
        exchange.take_outbound(false, |_| ());
        assert_eq!((exchange.sent.len(), exchange.outstanding()), (10, 10));
        assert!(!exchange.is_waiting());
    }

    #[test]
    fn memory_that_much_has_waited_in_is_given_back() {
        const MANY: u64 = 10_000;
        let mut exchange = Exchange::default();
        let refused = Some(OperationStatus::Denied);
        (0..MANY).for_each(|token| exchange.ask(Asked { refused, ..asked(token) }));
        assert!(exchange.waiting.capacity() >= MANY as usize);
        exchange.take_outbound(false, |_| ());
        assert!(exchange.waiting.capacity() < 1000 && exchange.asked.len() == MANY as usize);
        let told: Vec<_> = std::iter::from_fn(|| exchange.take_refused()).collect();
        assert!((0..MANY).eq(told.iter().map(|(token, _)| *token)));
        assert!(exchange.asked.capacity() < 1000);
    }
}
