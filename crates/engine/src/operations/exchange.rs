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

use clearway_channel::OperationStatus;
use clearway_transport::{OPERATION_NAMES, Operation, Outbound};
use clearway_wire::clearway::operation::{
    ANSWER_LENGTH, BATCH_HEAD_LENGTH, Kind, REQUEST_LENGTH, Request,
};

use super::execute::GATHERED_BYTES_MAX;
use super::regions::Spot;
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
        Kind::of(self.request.kind).is_some_and(Kind::has_effect)
    }

    /// What its app is told when the connection ends.
    fn end(&self, was_sent: bool) -> OperationStatus {
        if let Some(status) = self.refused {
            return status;
        }
        if self.has_effect() && was_sent {
            OperationStatus::Unknown
        } else {
            OperationStatus::Failed
        }
    }
}

/// What follows the head of an operation that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Nothing.
    Nothing,
    /// Bytes at this offset of the app's transmit pool.
    Pool(u32),
    /// The next bytes of `snapshots`, of which so many have gone before.
    Snapshot(u64),
    /// Bytes at this place of the app's shared memory, of the region with this handle.
    Region(u64, Spot),
}

/// An operation that is sent and has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The head of a request or, in fewer bytes, of an answer.
    pub(super) head: [u8; REQUEST_LENGTH],
    pub(super) is_answer: bool,
    pub(super) source: Source,
    /// Bytes behind the head.
    pub(super) length: u32,
}

impl Sent {
    pub(super) fn answer(answer: [u8; ANSWER_LENGTH], source: Source, length: u32) -> Self {
        let mut head = [0; REQUEST_LENGTH];
        head[..ANSWER_LENGTH].copy_from_slice(&answer);
        Self { head, is_answer: true, source, length }
    }

    const fn head_length(&self) -> usize {
        if self.is_answer { ANSWER_LENGTH } else { REQUEST_LENGTH }
    }

    pub(super) const fn total(&self) -> u32 {
        self.head_length() as u32 + self.length
    }
}

/// Copies what is there from `start` on.
fn copy(bytes: &VecDeque<u8>, start: usize, into: &mut [u8]) {
    let (front, back) = bytes.as_slices();
    let first = front.get(start..).unwrap_or(&[]);
    let (before, behind) = into.split_at_mut(first.len().min(into.len()));
    before.copy_from_slice(&first[..before.len()]);
    if !behind.is_empty() {
        let from = start.saturating_sub(front.len());
        behind.copy_from_slice(&back[from..from + behind.len()]);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// What is on its way, and what is refused and not told yet.
    pub(super) asked: VecDeque<Asked>,
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
    /// Data of short answers, one behind the other.
    pub(super) snapshots: VecDeque<u8>,
    /// Bytes that were in `snapshots` before its first.
    pub(super) snapshots_gone: u64,
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

    pub(super) fn snapshot_bytes(&self) -> usize {
        self.snapshots.len()
    }

    /// Appends what the app asks for.
    pub(super) fn ask(&mut self, asked: Asked) {
        self.waiting.push_back(Waiting::Operation(asked));
    }

    /// Appends a message, which is to wait as well.
    pub(super) fn hold(&mut self, message: Held) {
        self.waiting.push_back(Waiting::Message(message));
        self.messages_waiting += 1;
    }

    /// What the peer answers next, if it has been asked.
    pub(super) fn due(&self) -> Option<&Asked> {
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
        let Asked { token, refused, .. } = *self.asked.front()?;
        let status = refused?;
        self.asked.pop_front();
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

    /// Appends the answer to the peer's next request.
    pub(super) fn answer(&mut self, answer: Sent) {
        self.next_request = self.next_request.wrapping_add(1);
        self.answers += 1;
        self.sent.push_back(answer);
    }

    /// Appends data of a short answer.
    pub(super) fn snapshot(&mut self, bytes: &[u8]) -> Source {
        let at = self.snapshots_gone + self.snapshots.len() as u64;
        self.snapshots.extend(bytes);
        Source::Snapshot(at)
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
                Some(Waiting::Operation(asked)) => self.send_request(asked),
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
            Waiting::Operation(Asked { refused: None, .. }) => unsettled < REQUESTS_MAX,
            Waiting::Operation(_) | Waiting::Message(..) => true,
        };
        let mut next = if may_go { self.waiting.pop_front()? } else { return None };
        match &mut next {
            Waiting::Operation(asked) if has_closed && !asked.has_effect() => {
                asked.refused.get_or_insert(OperationStatus::Failed);
            }
            Waiting::Operation(_) => {}
            Waiting::Message(..) => self.messages_waiting -= 1,
        }
        Some(next)
    }

    /// The same within the engine: it is refused, or was carried out and nobody hears of it, or it
    /// is a message, which is returned.
    pub(super) fn pass_waiting(&mut self) -> Option<Held> {
        match self.waiting.pop_front()? {
            Waiting::Operation(asked) => {
                self.on_way += u32::from(asked.refused.is_none());
                self.asked.push_back(asked);
                None
            }
            Waiting::Message(message) => {
                self.messages_waiting -= 1;
                Some(message)
            }
        }
    }

    /// Sends a request, unless it is refused.
    fn send_request(&mut self, asked: Asked) {
        let Asked { request, payload, .. } = asked;
        if asked.refused.is_none() {
            let number = self.next_answer.wrapping_add(self.on_way);
            let head = Request { number, ..request }.emit();
            let source = if payload.1 > 0 { Source::Pool(payload.0) } else { Source::Nothing };
            self.sent.push_back(Sent { head, is_answer: false, source, length: payload.1 });
            self.on_way += 1;
        }
        self.asked.push_back(asked);
    }

    /// The first `count` that the flow has have arrived. Returns how many bytes of snapshots were
    /// among them, and which regions others were read out of.
    pub(crate) fn arrived(&mut self, count: u32) -> (usize, Vec<u64>) {
        let (before, mut regions) = (self.snapshots.len(), Vec::new());
        for _ in 0..count {
            let Some(sent) = self.sent.pop_front() else { break };
            self.first_name = self.first_name.wrapping_add(1) % OPERATION_NAMES;
            self.pushed -= 1;
            self.answers -= u32::from(sent.is_answer);
            match sent.source {
                Source::Snapshot(_) => {
                    self.snapshots.drain(..sent.length as usize);
                    self.snapshots_gone += u64::from(sent.length);
                }
                Source::Region(region, _) => regions.push(region),
                Source::Nothing | Source::Pool(_) => {}
            }
        }
        (before - self.snapshots.len(), regions)
    }

    /// Copies bytes of the operation of this name, from `at` on.
    pub(crate) fn read(&self, channel: &Channel, name: u32, at: u32, into: &mut [u8]) {
        let index = name.wrapping_sub(self.first_name) % OPERATION_NAMES;
        let Some(sent) = self.sent.get(index as usize) else { return };
        let head = &sent.head[..sent.head_length()];
        let rest = head.get(at as usize..).unwrap_or(&[]);
        let (heading, data) = into.split_at_mut(rest.len().min(into.len()));
        heading.copy_from_slice(&rest[..heading.len()]);
        let from = (at as usize + heading.len()).saturating_sub(head.len()) as u32;
        if !data.is_empty() {
            self.read_data(channel, sent, from, data);
        }
    }

    fn read_data(&self, channel: &Channel, sent: &Sent, from: u32, into: &mut [u8]) {
        match sent.source {
            Source::Nothing => into.fill(0),
            Source::Pool(offset) => channel.end.read(offset + from, into),
            Source::Snapshot(at) => {
                let start = (at - self.snapshots_gone) as usize + from as usize;
                copy(&self.snapshots, start, into);
            }
            // A revoked region has no readers.
            Source::Region(_, place) => channel.read_shared(place.plus(from), into),
        }
    }

    /// The regions that answers on their way are read out of, once for each answer.
    pub(super) fn regions(&self) -> impl Iterator<Item = u64> {
        self.sent.iter().filter_map(|sent| match sent.source {
            Source::Region(region, _) => Some(region),
            Source::Nothing | Source::Pool(_) | Source::Snapshot(_) => None,
        })
    }

    /// The connection has ended: what is to be said of what was asked for. Of what waits the first
    /// has been begun, or not.
    pub(super) fn into_ends(self, is_begun: bool) -> impl Iterator<Item = (u64, OperationStatus)> {
        let asked = self.asked.into_iter().map(|asked| (asked.token, asked.end(true)));
        let waiting = self.waiting.into_iter().enumerate();
        let waiting = waiting.filter_map(move |(place, waiting)| match waiting {
            Waiting::Operation(asked) => Some((asked.token, asked.end(is_begun && place == 0))),
            Waiting::Message(..) => None,
        });
        asked.chain(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_may_lie_over_the_end_of_the_ring() {
        let mut bytes = VecDeque::with_capacity(16);
        let capacity = bytes.capacity();
        bytes.extend((0..capacity).map(|at| at as u8));
        bytes.drain(..capacity / 2);
        bytes.extend((0..capacity / 4).map(|at| (capacity + at) as u8));
        assert!(!bytes.as_slices().1.is_empty());
        for (start, length) in (0..bytes.len()).flat_map(|at| [(at, 1), (at, bytes.len() - at)]) {
            let mut into = vec![0; length];
            copy(&bytes, start, &mut into);
            assert!(into.iter().eq(bytes.range(start..start + length)), "{length} at {start}");
        }
    }
}
