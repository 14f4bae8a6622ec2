//! The books of calls: who has been asked what, who asks, and which answers have found no room.
//! Without channel and clock.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Instant;

use super::{CallId, RequestId};
use crate::ConnectionId;

/// What has become of a request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Taken,
    /// As many of this connection are under way as may be.
    TooMany,
    /// One of this number is under way.
    Twice,
}

/// A call that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    connection: ConnectionId,
    deadline: Option<Instant>,
}

/// A connection, as far as its peer asks.
#[derive(Debug, Default)]
struct Asker {
    under_way: HashSet<u64>,
    /// Answers to some of these, the first one first.
    unsent: VecDeque<(u64, Vec<u8>)>,
    /// It has a place in the line, also if its answers were cancelled since.
    is_in_line: bool,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    next_number: u64,
    outstanding: HashMap<CallId, Outstanding>,
    deadlines: BTreeSet<(Instant, CallId)>,
    askers: HashMap<ConnectionId, Asker>,
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
        self.outstanding.insert(call, Outstanding { connection, deadline });
        self.deadlines.extend(deadline.map(|deadline| (deadline, call)));
        call
    }

    /// A call is over: its connection. `None` if it was over before.
    pub(super) fn end(&mut self, call: CallId) -> Option<ConnectionId> {
        let Outstanding { connection, deadline } = self.outstanding.remove(&call)?;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, call));
        }
        Some(connection)
    }

    /// The same, by an answer that has come by this connection. False if nobody waits for it.
    pub(super) fn end_by(&mut self, call: CallId, connection: ConnectionId) -> bool {
        let is_its = self.outstanding.get(&call).is_some_and(|made| made.connection == connection);
        is_its && self.end(call).is_some()
    }

    pub(super) fn calls(&self) -> usize {
        self.outstanding.len()
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A call whose time was up at `now`, with its connection. It is over.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<(CallId, ConnectionId)> {
        let (_, call) = *self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.end(call).map(|connection| (call, connection))
    }

    // ---- requests ----

    /// A peer asks. No more than `requests_max` of a connection are under way.
    pub(super) fn enter(&mut self, request: RequestId, requests_max: usize) -> Entry {
        let asker = self.askers.entry(request.connection).or_default();
        if asker.under_way.contains(&request.number) {
            return Entry::Twice;
        }
        if asker.under_way.len() >= requests_max {
            return Entry::TooMany;
        }
        asker.under_way.insert(request.number);
        Entry::Taken
    }

    pub(super) fn is_under_way(&self, request: RequestId) -> bool {
        let asker = self.askers.get(&request.connection);
        asker.is_some_and(|asker| asker.under_way.contains(&request.number))
    }

    /// A request is over, answered or not. False if it was over before.
    pub(super) fn leave(&mut self, request: RequestId) -> bool {
        let Some(asker) = self.askers.get_mut(&request.connection) else { return false };
        match asker.unsent.front() {
            Some((number, _)) if *number == request.number => _ = asker.unsent.pop_front(),
            Some(_) => asker.unsent.retain(|(number, _)| *number != request.number),
            None => {}
        }
        asker.under_way.remove(&request.number)
    }

    /// True if answers of this connection wait for room: others come behind them.
    pub(super) fn has_unsent(&self, connection: ConnectionId) -> bool {
        self.askers.get(&connection).is_some_and(|asker| !asker.unsent.is_empty())
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
    pub(super) fn next_unsent(&mut self) -> Option<(RequestId, &[u8])> {
        loop {
            let connection = self.in_line.pop_front()?;
            if let Some(asker) = self.askers.get_mut(&connection) {
                asker.is_in_line = false;
            }
            // All of them may have been cancelled.
            if self.has_unsent(connection) {
                let (number, answer) = self.askers.get(&connection)?.unsent.front()?;
                return Some((RequestId { connection, number: *number }, answer));
            }
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
        let made = self.outstanding.iter().filter(|(_, made)| made.connection == connection);
        let mut calls: Vec<_> = made.map(|(call, _)| *call).collect();
        calls.sort_unstable();
        calls.iter().for_each(|call| _ = self.end(*call));
        calls
    }

    /// Connections by which something is asked, either way.
    pub(super) fn connections(&self) -> HashSet<ConnectionId> {
        let made = self.outstanding.values().map(|made| made.connection);
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
            assert_eq!(books.enter(request(connection, number), 8), Entry::Taken);
            books.keep(request(connection, number), vec![number as u8]);
        }
        let mut sent = Vec::new();
        while let Some((request, _)) = books.next_unsent() {
            sent.push(request.number);
            assert!(books.leave(request));
            books.stay_in_line(request.connection);
        }
        assert_eq!((sent, books.line()), (vec![1, 3, 2], 0));
    }

    /// A peer that asks and cancels without end, and takes no answers.
    #[test]
    fn a_connection_stands_in_line_once() {
        let mut books = Books::default();
        for number in 0..100 {
            assert_eq!(books.enter(request(ONE, number), 8), Entry::Taken);
            books.keep(request(ONE, number), vec![]);
            assert!(books.leave(request(ONE, number)));
        }
        assert_eq!(books.line(), 1);
        assert!(books.next_unsent().is_none());
        assert_eq!(books.line(), 0);
    }

    #[test]
    fn what_is_cancelled_waits_no_more() {
        let mut books = Books::default();
        assert_eq!(books.enter(request(ONE, 1), 8), Entry::Taken);
        books.keep(request(ONE, 1), vec![]);
        assert!(books.leave(request(ONE, 1)));
        assert!(books.next_unsent().is_none() && !books.has_unsent(ONE));
        assert_eq!(books.enter(request(ONE, 1), 8), Entry::Taken);
        books.keep(request(ONE, 1), vec![]);
        assert!(books.end_connection(ONE).is_empty());
        assert!(books.next_unsent().is_none() && books.connections().is_empty());
    }
}
