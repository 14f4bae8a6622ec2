//! The calls that this app has made and that have no outcome yet. Without channel and clock.
//!
//! A call has a place: its number modulo how many places there are. Numbers go up, and one whose
//! place is taken is passed over, so a call is found without a search, and never moved but when
//! there are more places.
//!
//! Nothing is done about the deadline of a call that ends in time. Places stand in rows, and each
//! row has a time before which none of its calls expires; it is looked through when that has come.
//!
//! ```text
//!             row 0: not before 12:00:07         row 1: not before 12:00:05
//!  places  | 128 |  1  |  2  | ... | 63  |  | 64  |     |     | ... | 127 |
//!             the oldest is 1, the next is 129 or, if 1 is not over by then, 130
//! ```

use std::time::Instant;

use super::CallId;
use crate::ConnectionId;

/// Places of a row, and how many there are at first.
const ROW: usize = 64;

/// A place, and the call that had it last.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    /// By which it was made; `None` once it is over.
    connection: Option<ConnectionId>,
    deadline: Option<Instant>,
}

const FREE: Place = Place { number: 0, connection: None, deadline: None };

#[derive(Debug)]
pub(super) struct Outstanding {
    /// A power of two, of which at least half are free.
    places: Vec<Place>,
    /// For each row of places: none of its calls expires before this.
    rows: Vec<Option<Instant>>,
    /// None at all expires before this.
    first_deadline: Option<Instant>,
    /// The number of the next call, whose place is free.
    next_number: u64,
    calls: usize,
}

impl Default for Outstanding {
    fn default() -> Self {
        let (places, rows) = (vec![FREE; ROW], vec![None; 1]);
        Self { places, rows, first_deadline: None, next_number: 1, calls: 0 }
    }
}

impl Outstanding {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.calls
    }

    /// The name of the next call. It is used up when the call is begun.
    #[inline]
    pub(super) fn next_call(&self) -> CallId {
        CallId(self.next_number)
    }

    /// The next call has been sent.
    #[inline]
    pub(super) fn begin(&mut self, connection: ConnectionId, deadline: Option<Instant>) -> CallId {
        let call = self.next_call();
        self.put(Place { number: call.0, connection: Some(connection), deadline });
        self.calls += 1;
        if 2 * self.calls > self.places.len() {
            self.add_places();
        }
        self.next_number += 1;
        while self.places[self.place_of(self.next_call())].connection.is_some() {
            self.next_number += 1;
        }
        call
    }

    #[inline]
    fn put(&mut self, made: Place) {
        let at = self.place_of(CallId(made.number));
        self.places[at] = made;
        self.bound(at, made.deadline);
    }

    /// There is such a deadline at this place.
    #[inline]
    fn bound(&mut self, at: usize, deadline: Option<Instant>) {
        for first in [&mut self.rows[at / ROW], &mut self.first_deadline] {
            if let Some(deadline) = deadline
                && first.is_none_or(|first| deadline < first)
            {
                *first = Some(deadline);
            }
        }
    }

    #[inline]
    fn place_of(&self, call: CallId) -> usize {
        call.0 as usize & (self.places.len() - 1)
    }

    /// Twice as many. Calls that had places of their own have them among more, too.
    #[cold]
    fn add_places(&mut self) {
        let more = vec![FREE; 2 * self.places.len()];
        self.rows = vec![None; more.len() / ROW];
        for place in std::mem::replace(&mut self.places, more) {
            if place.connection.is_some() {
                self.put(place);
            }
        }
    }

    /// A call is over: its connection. `None` if it was over before.
    pub(super) fn end(&mut self, call: CallId) -> Option<ConnectionId> {
        let at = self.place_of(call);
        let connection = self.places[at].connection.filter(|_| self.places[at].number == call.0)?;
        self.free(at);
        Some(connection)
    }

    /// The same, by an answer that has come by this connection. False if nobody waits for it.
    #[inline]
    pub(super) fn end_by(&mut self, call: CallId, connection: ConnectionId) -> bool {
        let at = self.place_of(call);
        let Place { number, connection: made_by, .. } = self.places[at];
        let is_its = number == call.0 && made_by == Some(connection);
        if is_its {
            self.free(at);
        }
        is_its
    }

    #[inline]
    fn free(&mut self, at: usize) {
        self.places[at].connection = None;
        self.calls -= 1;
        if self.calls == 0 {
            self.first_deadline = None;
        }
    }

    /// When the first call expires: not later than this, and `None` if there is no call.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.first_deadline
    }

    /// Ends the calls whose time is up at `now`, and returns them with their connections, the first
    /// deadline first. Afterwards none expires before [`Outstanding::first_deadline`], which is
    /// later.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(CallId, ConnectionId)> {
        let mut expired = Vec::new();
        if self.first_deadline.is_some_and(|first| first <= now) {
            self.first_deadline = None;
            for row in 0..self.rows.len() {
                self.expire_in(row, now, &mut expired);
            }
        }
        if self.calls == 0 {
            self.first_deadline = None; // what rows say is of calls that are over
        }
        expired.sort_unstable();
        expired.into_iter().map(|(_, call, connection)| (call, connection)).collect()
    }

    fn expire_in(
        &mut self,
        row: usize,
        now: Instant,
        expired: &mut Vec<(Instant, CallId, ConnectionId)>,
    ) {
        let first = self.rows[row].take();
        if first.is_some_and(|first| first > now) {
            return self.bound(row * ROW, first);
        }
        for at in row * ROW..(row + 1) * ROW {
            let Place { number, connection: Some(connection), deadline } = self.places[at] else {
                continue;
            };
            match deadline {
                Some(deadline) if deadline <= now => {
                    expired.push((deadline, CallId(number), connection));
                    self.free(at);
                }
                deadline => self.bound(at, deadline),
            }
        }
    }

    /// A connection has ended. Returns the calls that are thereby over, the oldest first.
    pub(super) fn end_connection(&mut self, connection: ConnectionId) -> Vec<CallId> {
        let made = self.places.iter().filter(|place| place.connection == Some(connection));
        let mut calls: Vec<_> = made.map(|place| CallId(place.number)).collect();
        calls.sort_unstable();
        calls.iter().for_each(|call| _ = self.end(*call));
        calls
    }

    /// The connections by which they were made; one may come more than once.
    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.places.iter().filter_map(|place| place.connection)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ONE: ConnectionId = ConnectionId(0);
    const TWO: ConnectionId = ConnectionId(2);

    #[test]
    fn calls_end_once_and_by_their_own_connection_only() {
        let mut calls = Outstanding::default();
        let call = calls.begin(ONE, None);
        assert!(!calls.end_by(call, TWO), "somebody else's peer answers");
        assert!(calls.end_by(call, ONE) && !calls.end_by(call, ONE));
        assert_eq!((calls.end(call), calls.len()), (None, 0));
        assert_ne!(calls.begin(ONE, None), call);
    }

    #[test]
    fn numbers_that_name_no_call_end_none() {
        let mut calls = Outstanding::default();
        let made = [calls.begin(ONE, None), calls.begin(TWO, None)];
        for number in [0, 3, ROW as u64, ROW as u64 + 1, u64::MAX - 62, u64::MAX] {
            assert!(!calls.end_by(CallId(number), ONE), "{number}");
            assert_eq!(calls.end(CallId(number)), None, "{number}");
        }
        assert_eq!(made.map(|call| calls.end(call)), [Some(ONE), Some(TWO)]);
    }

    /// Some stay for long, among any number of others.
    #[test]
    fn no_number_is_used_twice_and_places_are_used_again() {
        let mut calls = Outstanding::default();
        let mut last = CallId(0);
        let mut stay = Vec::new();
        for round in 0..10_000 {
            let call = calls.begin(ONE, None);
            assert!(call > last, "{call:?} after {last:?}");
            last = call;
            if round % 500 < 3 {
                stay.push(call);
            } else {
                assert!(calls.end_by(call, ONE));
            }
        }
        assert_eq!((calls.len(), calls.places.len()), (stay.len(), 2 * ROW));
        assert_eq!(calls.end_connection(ONE), stay);
    }

    #[test]
    fn as_many_as_are_made_are_outstanding() {
        let mut calls = Outstanding::default();
        let start = Instant::now();
        let made: Vec<_> =
            (0..1000).map(|ms| calls.begin(ONE, Some(start + Duration::from_millis(ms)))).collect();
        assert_eq!((calls.len(), calls.places.len()), (1000, 32 * ROW));
        let half = calls.expire(start + Duration::from_millis(499));
        assert_eq!(half, made[..500].iter().map(|call| (*call, ONE)).collect::<Vec<_>>());
        assert!(made[500..].iter().all(|call| calls.end_by(*call, ONE)));
        assert_eq!((calls.len(), calls.first_deadline()), (0, None));
    }

    #[test]
    fn deadlines_pass_in_their_order() {
        let mut calls = Outstanding::default();
        let start = Instant::now();
        let at = |ms| Some(start + Duration::from_millis(ms));
        let [late, early, answered] = [30, 10, 20].map(|ms| calls.begin(ONE, at(ms)));
        let never = calls.begin(ONE, None);
        assert!(calls.end_by(answered, ONE));
        assert_eq!((calls.expire(start), calls.first_deadline()), (vec![], at(10)));
        let now = start + Duration::from_millis(30);
        assert_eq!(calls.expire(now), [(early, ONE), (late, ONE)]);
        assert_eq!((calls.expire(now), calls.first_deadline()), (vec![], None));
        assert_eq!(calls.end_connection(ONE), [never]);
    }

    #[test]
    fn a_call_that_is_over_wakes_at_most_once_and_nobody_if_there_is_no_other() {
        let mut calls = Outstanding::default();
        let start = Instant::now();
        let at = |ms| Some(start + Duration::from_millis(ms));
        let stays = calls.begin(ONE, at(50));
        for ms in 10..40 {
            let call = calls.begin(ONE, at(ms));
            assert!(calls.end_by(call, ONE));
        }
        assert_eq!(calls.first_deadline(), at(10));
        assert!(calls.expire(start + Duration::from_millis(10)).is_empty());
        assert_eq!(calls.first_deadline(), at(50), "of a call that waits");
        assert!(calls.end_by(stays, ONE));
        assert_eq!(calls.first_deadline(), None);
        calls.begin(ONE, at(90));
        assert_eq!(calls.first_deadline(), at(90));
    }

    /// Deadlines of other rows, and of calls that have moved to one, are as they were.
    #[test]
    fn each_row_has_its_deadlines() {
        let mut calls = Outstanding::default();
        let start = Instant::now();
        let at = |s| Some(start + Duration::from_secs(s));
        let made: Vec<_> = (0..200).map(|n| calls.begin(ONE, at(1 + 7 * n % 200))).collect();
        for s in 1..=200 {
            assert_eq!(calls.first_deadline(), at(s));
            let expired = calls.expire(start + Duration::from_secs(s));
            let [(call, ONE)] = expired[..] else { panic!("{expired:?}") };
            let n = made.iter().position(|made| *made == call).expect("it was made") as u64;
            assert_eq!(1 + 7 * n % 200, s);
        }
        assert_eq!(calls.first_deadline(), None);
    }
}
