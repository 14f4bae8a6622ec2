//! The books of calls: who has been asked what, who asks, and which answers have found no room.
//! Without channel and clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque, hash_map};
use std::time::Instant;

use foldhash::HashSet;

use super::{CallId, RequestId};
use crate::ConnectionId;
use crate::ids::IdMap;

/// So many deadlines of calls that are over are not worth looking for.
const STALE_DEADLINES: usize = 64;

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
#[derive(Debug, Default)]
struct Asker {
    /// What it asks, without an answer: numbers that the peer has chosen.
    under_way: HashSet<u64>,
    /// Answers that have found no room, the first one first.
    unsent: VecDeque<(u64, Vec<u8>)>,
    /// It has a place in the line, also if its answers were cancelled since.
    is_in_line: bool,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    next_number: u64,
    /// Calls without an outcome, and by which connection each was made.
    outstanding: IdMap<CallId, ConnectionId>,
    /// Those of calls that are over are left there until they come first, or are half of all.
    deadlines: BinaryHeap<Reverse<(Instant, CallId)>>,
    askers: IdMap<ConnectionId, Asker>,
    /// Connections with unsent answers, in the order in which they are to have their turn.
    in_line: VecDeque<ConnectionId>,
}

impl Books {
    // ---- calls ----

    /// The name of the next call. It is used up when the call is begun.
    pub(super) fn next_call(&self) -> CallId {
        CallId(self.next_number + 1)
    }

    /// The next call has been sent.
    pub(super) fn begin(&mut self, connection: ConnectionId, deadline: Option<Instant>) -> CallId {
        let call = self.next_call();
        self.next_number += 1;
        self.outstanding.insert(call, connection);
        if let Some(deadline) = deadline {
            self.add_deadline(deadline, call);
        }
        call
    }

    #[inline]
    fn add_deadline(&mut self, deadline: Instant, call: CallId) {
        if self.deadlines.len() > 2 * self.outstanding.len() + STALE_DEADLINES {
            self.drop_stale_deadlines();
        }
        self.deadlines.push(Reverse((deadline, call)));
    }

    fn drop_stale_deadlines(&mut self) {
        let outstanding = &self.outstanding;
        self.deadlines.retain(|Reverse((_, call))| outstanding.contains_key(call));
    }

    /// A call is over: its connection. `None` if it was over before.
    pub(super) fn end(&mut self, call: CallId) -> Option<ConnectionId> {
        self.outstanding.remove(&call)
    }

    /// The same, by an answer that has come by this connection. False if nobody waits for it.
    #[inline]
    pub(super) fn end_by(&mut self, call: CallId, connection: ConnectionId) -> bool {
        let hash_map::Entry::Occupied(made) = self.outstanding.entry(call) else { return false };
        let is_its = *made.get() == connection;
        if is_its {
            made.remove();
        }
        is_its
    }

    pub(super) fn calls(&self) -> usize {
        self.outstanding.len()
    }

    /// When the first call expires: not later than this.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// A call whose time was up at `now`, with its connection. It is over. If there is none, the
    /// first deadline is that of a call afterwards.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<(CallId, ConnectionId)> {
        loop {
            let Reverse((deadline, call)) = *self.deadlines.peek()?;
            match self.outstanding.get(&call).copied() {
                Some(_) if deadline > now => return None,
                Some(connection) => {
                    self.deadlines.pop();
                    self.end(call);
                    return Some((call, connection));
                }
                // One by one they take longer.
                None if self.deadlines.len() > 2 * self.outstanding.len() => {
                    self.drop_stale_deadlines();
                }
                None => _ = self.deadlines.pop(),
            }
        }
    }

    // ---- requests ----

    /// A peer asks. No more than `requests_max` of a connection are under way or wait with their
    /// answers.
    #[inline]
    pub(super) fn enter(&mut self, request: RequestId, requests_max: usize) -> Entry {
        let asker = self.askers.entry(request.connection).or_default();
        if !asker.under_way.insert(request.number) {
            return Entry::Twice;
        }
        if asker.under_way.len() + asker.unsent.len() > requests_max {
            asker.under_way.remove(&request.number);
            return Entry::TooMany;
        }
        Entry::Taken
    }

    pub(super) fn is_under_way(&self, request: RequestId) -> bool {
        let asker = self.askers.get(&request.connection);
        asker.is_some_and(|asker| asker.under_way.contains(&request.number))
    }

    /// A request is over, with its answer, if that has found no room. False if it was over before
    /// or is answered.
    pub(super) fn leave(&mut self, request: RequestId) -> bool {
        let Some(asker) = self.askers.get_mut(&request.connection) else { return false };
        let is_left = asker.under_way.remove(&request.number);
        if !is_left {
            asker.unsent.retain(|(number, _)| *number != request.number);
        }
        is_left
    }

    /// A request is answered: what is before its answer. `None` if it was over before.
    #[inline]
    pub(super) fn leave_to_answer(&mut self, request: RequestId) -> Option<Line> {
        let asker = self.askers.get_mut(&request.connection)?;
        let line = if asker.unsent.is_empty() { Line::Empty } else { Line::Others };
        asker.under_way.remove(&request.number).then_some(line)
    }

    /// The answer to a request has found no room.
    pub(super) fn keep(&mut self, request: RequestId, answer: Vec<u8>) {
        let Some(asker) = self.askers.get_mut(&request.connection) else { return };
        asker.unsent.push_back((request.number, answer));
        self.stay_in_line(request.connection);
    }

    /// How many connections wait with answers.
    pub(super) fn line(&self) -> usize {
        self.in_line.len()
    }

    /// The connection whose turn it is, and its next answer. It has lost its place in the line,
    /// which [`Books::stay_in_line`] gives it again.
    pub(super) fn next_unsent(&mut self) -> Option<(ConnectionId, &[u8])> {
        loop {
            let connection = self.in_line.pop_front()?;
            let Some(asker) = self.askers.get_mut(&connection) else { continue };
            asker.is_in_line = false;
            // All of them may have been cancelled.
            if !asker.unsent.is_empty() {
                let (_, answer) = self.askers.get(&connection)?.unsent.front()?;
                return Some((connection, answer));
            }
        }
    }

    /// The next answer of a connection has been sent.
    pub(super) fn next_is_sent(&mut self, connection: ConnectionId) {
        if let Some(asker) = self.askers.get_mut(&connection) {
            asker.unsent.pop_front();
        }
    }

    /// Behind all others, if it has answers left, and no place yet.
    pub(super) fn stay_in_line(&mut self, connection: ConnectionId) {
        let asker = self.askers.get_mut(&connection);
        let asker = asker.filter(|asker| !asker.is_in_line && !asker.unsent.is_empty());
        if let Some(asker) = asker {
            asker.is_in_line = true;
            self.in_line.push_back(connection);
        }
    }

    // ---- ends ----

    /// A connection has ended. Returns the calls that are thereby over, the oldest first.
    pub(super) fn end_connection(&mut self, connection: ConnectionId) -> Vec<CallId> {
        self.askers.remove(&connection);
        self.in_line.retain(|other| *other != connection);
        let made = self.outstanding.iter().filter(|(_, made)| **made == connection);
        let mut calls: Vec<_> = made.map(|(call, _)| *call).collect();
        calls.sort_unstable();
        calls.iter().for_each(|call| _ = self.end(*call));
        calls
    }

    /// Connections by which something is asked, either way.
    pub(super) fn connections(&self) -> HashSet<ConnectionId> {
        let made = self.outstanding.values().copied();
        made.chain(self.askers.keys().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn calls_end_once_and_by_their_own_connection_only() {
        let mut books = Books::default();
        let call = books.begin(ONE, None);
        assert!(!books.end_by(call, TWO), "somebody else's peer answers");
        assert!(books.end_by(call, ONE) && !books.end_by(call, ONE));
        assert_eq!((books.end(call), books.calls()), (None, 0));
        assert_ne!(books.begin(ONE, None), call);
    }

    #[test]
    fn deadlines_pass_in_their_order_and_go_with_their_calls() {
        let mut books = Books::default();
        let start = Instant::now();
        let at = |ms| Some(start + Duration::from_millis(ms));
        let [late, early, answered] = [30, 10, 20].map(|ms| books.begin(ONE, at(ms)));
        let never = books.begin(ONE, None);
        assert!(books.end_by(answered, ONE));
        assert_eq!((books.first_deadline(), books.pop_expired(start)), (at(10), None));
        let now = start + Duration::from_millis(30);
        assert_eq!(books.pop_expired(now), Some((early, ONE)));
        assert_eq!(books.pop_expired(now), Some((late, ONE)));
        assert_eq!((books.pop_expired(now), books.first_deadline()), (None, None));
        assert_eq!(books.end_connection(ONE), [never]);
    }

    #[test]
    fn deadlines_of_calls_that_are_over_do_not_pile_up() {
        let mut books = Books::default();
        let start = Instant::now();
        let first = books.begin(ONE, Some(start + Duration::from_secs(1)));
        for ms in 0..10_000 {
            let call = books.begin(ONE, Some(start + Duration::from_millis(2_000 + ms)));
            assert!(books.end_by(call, ONE));
        }
        assert!(books.deadlines.len() <= STALE_DEADLINES + 4, "{}", books.deadlines.len());
        assert!(books.end_by(first, ONE) && books.pop_expired(start).is_none());
        assert_eq!(books.first_deadline(), None, "nobody is woken for a call that is over");
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
        while let Some((connection, answer)) = books.next_unsent() {
            sent.extend_from_slice(answer);
            books.next_is_sent(connection);
            books.stay_in_line(connection);
        }
        assert_eq!((sent, books.line()), (vec![1, 3, 2], 0));
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
        assert!(books.end_connection(ONE).is_empty());
        assert!(books.next_unsent().is_none() && books.connections().is_empty());
    }
}
