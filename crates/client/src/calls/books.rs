//! The books of requests: who asks, and which answers have found no room. Without channel and
//! clock.

use std::collections::VecDeque;

use super::RequestId;
use super::numbers::Numbers;
use super::runs::Runs;
use crate::ConnectionId;
use crate::connections::place_of;

/// What has become of a request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Taken,
    /// As many of this connection are under way as may be.
    TooMany,
    /// One of this number is under way.
    Twice,
}

/// Who is before an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Empty,
    /// Answers of the same connection that have found no room.
    Others,
}

/// A connection, as far as its peer asks.
#[derive(Debug)]
struct Asker {
    connection: ConnectionId,
    /// What it asks, without an answer.
    under_way: Numbers,
    /// Answers that have found no room, the first one first.
    unsent: VecDeque<(u64, Vec<u8>)>,
    /// What it has asked beyond what it may, and has not been told of for want of room. No request
    /// is under way for it.
    turned_away: Runs,
    /// It has a place in the line, also if its answers were cancelled since.
    is_in_line: bool,
}

impl Asker {
    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || !self.turned_away.is_empty()
    }
}

/// What waits for room to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent<'a> {
    /// The message of an answer.
    Answer(&'a [u8]),
    /// The refusal of the request with this number, of which there are too many.
    Busy(u64),
}

#[derive(Debug, Default)]
pub(super) struct Books {
    /// Each at the place of its connection, of which the channel has made sure that it is small.
    askers: Vec<Option<Box<Asker>>>,
    /// Connections with unsent answers or refusals, in the order in which they are to have their
    /// turn.
    in_line: VecDeque<ConnectionId>,
}

impl Books {
    /// A peer asks. No more than `requests_max` of a connection are under way or wait with their
    /// answers.
    #[inline]
    pub(super) fn enter(&mut self, request: RequestId, requests_max: usize) -> Entry {
        let asker = self.asker_or_new(request.connection);
        if !asker.under_way.insert(request.number) {
            return Entry::Twice;
        }
        if asker.under_way.len() + asker.unsent.len() > requests_max {
            asker.under_way.remove(request.number);
            return Entry::TooMany;
        }
        Entry::Taken
    }

    #[inline]
    fn asker_or_new(&mut self, connection: ConnectionId) -> &mut Asker {
        let place = place_of(connection);
        let known = self.askers.get(place).and_then(Option::as_ref);
        if known.is_none_or(|asker| asker.connection != connection) {
            self.add_asker(connection);
        }
        self.askers[place].as_mut().expect("it is known now")
    }

    /// Whoever had its place before has ended.
    #[cold]
    fn add_asker(&mut self, connection: ConnectionId) {
        let place = place_of(connection);
        if self.askers.len() <= place {
            self.askers.resize_with(place + 1, || None);
        }
        self.askers[place] = Some(Box::new(Asker {
            connection,
            under_way: Numbers::default(),
            unsent: VecDeque::new(),
            turned_away: Runs::default(),
            is_in_line: false,
        }));
    }

    #[inline]
    fn asker(&mut self, connection: ConnectionId) -> Option<&mut Asker> {
        let asker = self.askers.get_mut(place_of(connection))?.as_mut()?;
        (asker.connection == connection).then_some(asker)
    }

    /// A request is over, with its answer, if that has found no room. False if it was over before
    /// or is answered.
    pub(super) fn leave(&mut self, request: RequestId) -> bool {
        let Some(asker) = self.asker(request.connection) else { return false };
        let is_left = asker.under_way.remove(request.number);
        if !is_left {
            asker.unsent.retain(|(number, _)| *number != request.number);
        }
        is_left
    }

    /// A request is answered: what is before its answer. `None` if it was over before.
    #[inline]
    pub(super) fn leave_to_answer(&mut self, request: RequestId) -> Option<Line> {
        let asker = self.asker(request.connection)?;
        let line = if asker.has_unsent() { Line::Others } else { Line::Empty };
        asker.under_way.remove(request.number).then_some(line)
    }

    /// The answer to a request has found no room.
    pub(super) fn keep(&mut self, request: RequestId, answer: Vec<u8>) {
        let Some(asker) = self.asker(request.connection) else { return };
        asker.unsent.push_back((request.number, answer));
        self.stay_in_line(request.connection);
    }

    /// Who is before the refusal of a request that was too many.
    pub(super) fn line_of(&mut self, connection: ConnectionId) -> Line {
        match self.asker(connection) {
            Some(asker) if asker.has_unsent() => Line::Others,
            _ => Line::Empty,
        }
    }

    /// The refusal of a request that was too many has found no room. False if its peer has asked
    /// too much without taking any.
    pub(super) fn turn_away(&mut self, request: RequestId) -> bool {
        let asker = self.asker_or_new(request.connection);
        let is_kept = asker.turned_away.push(request.number);
        if is_kept {
            self.stay_in_line(request.connection);
        }
        is_kept
    }

    /// How many connections wait with answers.
    pub(super) fn line(&self) -> usize {
        self.in_line.len()
    }

    /// The connection whose turn it is, and what is sent next: its answers, then refusals. It has
    /// lost its place in the line, which [`Books::stay_in_line`] gives it again.
    pub(super) fn next_unsent(&mut self) -> Option<(ConnectionId, Unsent<'_>)> {
        loop {
            let connection = self.in_line.pop_front()?;
            let Some(asker) = self.asker(connection) else { continue };
            asker.is_in_line = false;
            // All of them may have been cancelled.
            if asker.has_unsent() {
                let asker = self.asker(connection)?;
                let answer = asker.unsent.front().map(|(_, answer)| Unsent::Answer(answer));
                let busy = || asker.turned_away.first().map(Unsent::Busy);
                return Some((connection, answer.or_else(busy)?));
            }
        }
    }

    /// What was next of a connection has been sent.
    pub(super) fn next_is_sent(&mut self, connection: ConnectionId) {
        if let Some(asker) = self.asker(connection)
            && asker.unsent.pop_front().is_none()
        {
            asker.turned_away.pop();
        }
    }

    /// Behind all others, if it has something left, and no place yet.
    pub(super) fn stay_in_line(&mut self, connection: ConnectionId) {
        let asker = self.asker(connection);
        let asker = asker.filter(|asker| !asker.is_in_line && asker.has_unsent());
        if let Some(asker) = asker {
            asker.is_in_line = true;
            self.in_line.push_back(connection);
        }
    }

    /// A connection has ended.
    pub(super) fn end_connection(&mut self, connection: ConnectionId) {
        if self.asker(connection).is_some() {
            self.askers[place_of(connection)] = None;
        }
        self.in_line.retain(|other| *other != connection);
    }

    /// Connections whose peers have asked.
    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.askers.iter().flatten().map(|asker| asker.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::super::runs::RUNS_MAX;
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);

    fn request(connection: ConnectionId, number: u64) -> RequestId {
        RequestId { connection, number }
    }

    /// A request is taken and answered, without room for the answer: it is the request's number.
    fn answer_late(books: &mut Books, request: RequestId) {
        assert_eq!(books.enter(request, 8), Entry::Taken);
        assert!(books.leave_to_answer(request).is_some());
        books.keep(request, vec![request.number as u8]);
    }

    #[test]
    fn an_answer_stands_behind_those_of_its_connection_and_each_is_given_once() {
        let mut books = Books::default();
        for number in 1..=3 {
            assert_eq!(books.enter(request(ONE, number), 3), Entry::Taken);
        }
        assert_eq!(books.leave_to_answer(request(ONE, 1)), Some(Line::Empty));
        books.keep(request(ONE, 1), vec![]);
        assert_eq!(books.leave_to_answer(request(ONE, 1)), None, "it is answered");
        assert_eq!(books.enter(request(ONE, 4), 3), Entry::TooMany, "its answer waits");
        assert_eq!(books.leave_to_answer(request(ONE, 2)), Some(Line::Others));
        books.next_is_sent(ONE);
        assert_eq!(books.leave_to_answer(request(ONE, 3)), Some(Line::Empty));
        assert_eq!(books.enter(request(ONE, 4), 3), Entry::Taken);
    }

    #[test]
    fn a_connection_has_so_many_requests_and_each_once() {
        let mut books = Books::default();
        assert_eq!(books.enter(request(ONE, 1), 2), Entry::Taken);
        assert_eq!(books.enter(request(ONE, 1), 2), Entry::Twice);
        assert_eq!(books.enter(request(ONE, 2), 2), Entry::Taken);
        assert_eq!(books.enter(request(ONE, 3), 2), Entry::TooMany);
        assert_eq!(books.enter(request(TWO, 3), 2), Entry::Taken, "each has its own bound");
        assert!(books.leave(request(ONE, 1)) && !books.leave(request(ONE, 1)));
        assert_eq!(books.enter(request(ONE, 3), 2), Entry::Taken);
    }

    #[test]
    fn connections_that_wait_take_turns() {
        let mut books = Books::default();
        for (connection, number) in [(ONE, 1), (ONE, 2), (TWO, 3)] {
            answer_late(&mut books, request(connection, number));
        }
        let mut sent = Vec::new();
        while let Some((connection, Unsent::Answer(answer))) = books.next_unsent() {
            sent.extend_from_slice(answer);
            books.next_is_sent(connection);
            books.stay_in_line(connection);
        }
        assert_eq!((sent, books.line()), (vec![1, 3, 2], 0));
    }

    #[test]
    fn refusals_that_wait_stand_behind_answers_and_are_bounded() {
        let mut books = Books::default();
        assert!(books.turn_away(request(ONE, 2)) && books.turn_away(request(ONE, 3)));
        assert_eq!(books.enter(request(ONE, 1), 1), Entry::Taken, "they are not under way");
        assert_eq!(books.leave_to_answer(request(ONE, 1)), Some(Line::Others));
        books.keep(request(ONE, 1), vec![1]);
        for next in [Unsent::Answer(&[1]), Unsent::Busy(2), Unsent::Busy(3)] {
            assert_eq!(books.line_of(ONE), Line::Others);
            assert_eq!(books.next_unsent(), Some((ONE, next)));
            books.next_is_sent(ONE);
            books.stay_in_line(ONE);
        }
        assert_eq!((books.line_of(ONE), books.line()), (Line::Empty, 0));
        let in_no_order = (0..).map(|nth| request(ONE, nth * nth));
        let kept = in_no_order.take_while(|request| books.turn_away(*request)).count();
        assert_eq!(kept, 2 * RUNS_MAX);
        assert!(!books.turn_away(request(ONE, 7)) && books.turn_away(request(TWO, 7)));
    }

    /// A peer that asks and cancels without end, and takes no answers.
    #[test]
    fn a_connection_stands_in_line_once() {
        let mut books = Books::default();
        for number in 0..100 {
            answer_late(&mut books, request(ONE, number));
            assert!(!books.leave(request(ONE, number)), "it is answered");
        }
        assert_eq!(books.line(), 1);
        assert!(books.next_unsent().is_none());
        assert_eq!(books.line(), 0);
    }

    #[test]
    fn what_is_cancelled_waits_no_more() {
        let mut books = Books::default();
        answer_late(&mut books, request(ONE, 1));
        assert!(!books.leave(request(ONE, 1)) && books.next_unsent().is_none());
        answer_late(&mut books, request(ONE, 1));
        books.end_connection(ONE);
        assert!(books.next_unsent().is_none() && books.connections().next().is_none());
    }

    /// As it is after a connection that was closed without a word to the books.
    #[test]
    fn whoever_has_a_place_next_has_nothing_of_who_had_it() {
        let mut books = Books::default();
        let next = ConnectionId(1 << 32 | ONE.0);
        answer_late(&mut books, request(ONE, 1));
        assert_eq!(books.enter(request(next, 1), 1), Entry::Taken);
        assert!(books.leave_to_answer(request(ONE, 1)).is_none());
        books.end_connection(ONE);
        assert_eq!(books.leave_to_answer(request(next, 1)), Some(Line::Empty));
        assert!(books.next_unsent().is_none() && books.connections().eq([next]));
    }
}
