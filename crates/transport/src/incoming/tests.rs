//! What a frame costs while much is outstanding, in looks at messages that wait.

use core::cell::Cell;

use super::ahead::RANGES_MAX;
use super::{Incoming, MESSAGE_OVERHEAD, Refused};
use crate::app::Owner;
use crate::state::{AheadState, IncomingState};
use crate::tests::TestApp;

thread_local! {
    /// How often a message that waits has been looked at.
    pub(super) static LOOKS: Cell<u64> = const { Cell::new(0) };
}

const OWNER: Owner = Owner { channel: 0, connection: 0 };
const POOL_BYTES: u64 = 64 << 20;
const WINDOW: u64 = 1 << 20;

/// A packet's worth of messages that are due, while a large one and `early` empty ones wait for
/// those behind them. Returns how many looks each has cost.
fn looks_per_message(early: u32) -> u64 {
    const DUE: u32 = 120;
    let (mut app, mut incoming) = (TestApp::new(POOL_BYTES), Incoming::new(WINDOW));
    let large = 2 * WINDOW as u32;
    assert_eq!(incoming.fragment(&mut app, OWNER, DUE + 1, large, 0, &[0; 1000]), Ok(()));
    incoming.announce_limit();
    for sequence in DUE + 2..DUE + 2 + early {
        assert_eq!(incoming.message(&mut app, OWNER, sequence, &[]), Ok(()));
    }
    let before = LOOKS.get();
    for sequence in 0..DUE {
        assert_eq!(incoming.message(&mut app, OWNER, sequence, &[]), Ok(()));
    }
    assert_eq!(incoming.messages_delivered(), DUE.into());
    (LOOKS.get() - before) / u64::from(DUE)
}

impl Incoming {
    /// The next message has this number, and a place behind as many.
    pub(crate) fn count_from(&mut self, sequence: u32) {
        assert!(self.partial.is_empty());
        self.next = sequence.into();
        let places = self.next * MESSAGE_OVERHEAD;
        for position in [&mut self.received, &mut self.released, &mut self.announced] {
            *position += places;
        }
    }
}

#[test]
fn a_message_that_is_due_looks_at_none_that_waits() {
    for early in [10, 100, 10_000] {
        assert_eq!(looks_per_message(early), 0, "with {early} early ones");
    }
}

#[test]
fn want_of_memory_is_remembered_until_a_limit_is_told() {
    let (mut app, mut incoming) = (TestApp::new(100), Incoming::new(WINDOW));
    assert_eq!(incoming.message(&mut app, OWNER, 0, &[0; 100]), Ok(()));
    assert!(!incoming.is_starved());
    assert_eq!(incoming.message(&mut app, OWNER, 1, &[0]), Err(Refused::NoBuffer));
    assert!(incoming.is_starved());
    incoming.announce_limit();
    assert!(!incoming.is_starved());
}

/// Whole or in parts, and whatever is taken meanwhile.
#[test]
fn want_of_memory_for_a_part_is_remembered_too() {
    let (mut app, mut incoming) = (TestApp::new(100), Incoming::new(WINDOW));
    let refused = incoming.fragment(&mut app, OWNER, 0, 101, 0, &[0; 10]);
    assert_eq!(refused, Err(Refused::NoBuffer));
    assert_eq!(incoming.fragment(&mut app, OWNER, 0, 100, 0, &[0; 10]), Ok(()));
    assert!(incoming.is_starved());
    incoming.announce_limit();
    assert_eq!(incoming.fragment(&mut app, OWNER, 0, 100, 10, &[0; 90]), Ok(()));
    assert!(!incoming.is_starved());
}

/// A quarter of the window, and what is beyond the window of a large message.
#[test]
fn a_limit_is_worth_telling_when_it_has_grown_by_a_quarter() {
    let (mut app, mut incoming) = (TestApp::new(POOL_BYTES), Incoming::new(1000));
    assert_eq!(incoming.message(&mut app, OWNER, 0, &[0; 300]), Ok(()));
    incoming.release(0, 249);
    assert!(!incoming.limit_is_worth_telling());
    incoming.release(0, 1);
    assert!(incoming.limit_is_worth_telling());
    assert_eq!(incoming.announce_limit(), 1250);
    assert!(!incoming.limit_is_worth_telling());
    incoming.release(1, 50);
    assert_eq!(incoming.announce_limit(), 1364);
    assert_eq!((incoming.announced_limit(), incoming.messages_delivered()), (1364, 1));
}

/// Delivered one by one as they become whole, each once; what is due goes on behind them.
#[test]
fn unordered_messages_are_delivered_as_they_are_whole() {
    let (mut app, mut incoming) = (TestApp::new(POOL_BYTES), Incoming::new(WINDOW));
    assert_eq!(incoming.message(&mut app, OWNER, 2, &[0; 2]), Ok(()));
    assert_eq!(incoming.fragment(&mut app, OWNER, 1, 10, 0, &[0; 5]), Ok(()));
    assert!(app.lengths().is_empty());
    incoming.set_unordered(&mut app, OWNER);
    assert_eq!(app.lengths(), [2], "it was whole before");
    for sequence in [4, 2, 4] {
        assert_eq!(
            incoming.message(&mut app, OWNER, sequence, &[0; 4][..sequence as usize]),
            Ok(())
        );
    }
    assert_eq!(app.lengths(), [2, 4], "once");
    let saved = incoming.save();
    let mut incoming = Incoming::restore(saved.clone()).expect("just saved");
    assert_eq!(incoming.save(), saved);
    assert_eq!(incoming.fragment(&mut app, OWNER, 1, 10, 5, &[0; 5]), Ok(()));
    assert_eq!((app.lengths(), incoming.messages_delivered()), (vec![2, 4, 10], 0));
    assert_eq!(incoming.message(&mut app, OWNER, 0, &[]), Ok(()));
    assert_eq!((app.lengths(), incoming.messages_delivered()), (vec![2, 4, 10, 0], 3));
    assert_eq!(incoming.message(&mut app, OWNER, 3, &[0; 3]), Ok(()));
    assert_eq!((app.lengths(), incoming.messages_delivered()), (vec![2, 4, 10, 0, 3], 5));
    assert!(app.is_all_finished());
}

/// A peer that leaves out every other message has bounded books, and gets nothing delivered twice.
#[test]
fn what_is_delivered_ahead_is_bounded() {
    let (mut app, mut incoming) = (TestApp::new(POOL_BYTES), Incoming::new(POOL_BYTES));
    incoming.set_unordered(&mut app, OWNER);
    let places = 2 * RANGES_MAX as u32;
    for sequence in (1..places + 40).step_by(2) {
        assert_eq!(incoming.message(&mut app, OWNER, sequence, &[1]), Ok(()));
    }
    assert_eq!(app.lengths().len(), RANGES_MAX, "the others wait for their turn");
    assert_eq!(incoming.save().ahead.map(|ahead| ahead.delivered.len()), Some(RANGES_MAX));
    assert_eq!(incoming.message(&mut app, OWNER, 2, &[1]), Ok(()));
    assert_eq!(app.lengths().len(), RANGES_MAX + 1, "it fills a gap");
    for sequence in (0..places + 40).step_by(2) {
        assert_eq!(incoming.message(&mut app, OWNER, sequence, &[1]), Ok(()));
    }
    assert_eq!(app.lengths().len() as u32, places + 40);
    assert_eq!(incoming.messages_delivered(), u64::from(places) + 40);
}

#[test]
fn what_is_delivered_ahead_is_checked_when_restored() {
    let (mut app, mut incoming) = (TestApp::new(POOL_BYTES), Incoming::new(WINDOW));
    incoming.set_unordered(&mut app, OWNER);
    assert_eq!(incoming.fragment(&mut app, OWNER, 2, 10, 0, &[0; 5]), Ok(()));
    assert_eq!(incoming.message(&mut app, OWNER, 4, &[]), Ok(()));
    let saved = incoming.save();
    assert!(saved.ahead.iter().flat_map(|ahead| &ahead.delivered).eq([&(4..5)]));
    for ahead in [[0..1, 4..5], [2..3, 4..5], [4..4, 5..6], [4..5, 6..WINDOW], [6..7, 4..5]] {
        for [delivered, skipped] in [[ahead.to_vec(), vec![]], [vec![], ahead.to_vec()]] {
            let ahead = Some(AheadState { is_unordered: true, delivered, skipped });
            let state = IncomingState { ahead: ahead.clone(), ..saved.clone() };
            assert!(Incoming::restore(state).is_err(), "{ahead:?}");
        }
    }
}

/// Messages that were dropped are passed over in their turn, once; a peer that drops every other
/// one has bounded books.
#[test]
fn what_was_dropped_is_passed_over() {
    let (mut app, mut incoming) = (TestApp::new(POOL_BYTES), Incoming::new(POOL_BYTES));
    let places = 2 * RANGES_MAX as u32;
    let before = incoming.books();
    for sequence in (1..places).step_by(2) {
        assert_eq!(incoming.skip(&mut app, OWNER, sequence, 1000), Ok(true));
        assert_eq!(incoming.skip(&mut app, OWNER, sequence, 1000), Ok(false), "known");
        assert_eq!(incoming.message(&mut app, OWNER, sequence, &[1]), Ok(()), "ignored");
    }
    let refused = incoming.skip(&mut app, OWNER, places + 1, 0);
    assert_eq!(refused, Err(Refused::NoBuffer), "that is one too many");
    let saved = incoming.save();
    let mut incoming = Incoming::restore(saved.clone()).expect("just saved");
    assert_eq!(incoming.save(), saved);
    for sequence in (0..places).step_by(2) {
        assert_eq!(incoming.message(&mut app, OWNER, sequence, &[1]), Ok(()));
        assert_eq!(incoming.messages_delivered(), u64::from(sequence) + 2);
    }
    assert_eq!(app.lengths().len(), RANGES_MAX);
    assert!(incoming.save().ahead.is_none(), "nothing is kept of what is over");
    let (books, positions) = (incoming.books(), u64::from(places / 2) * (MESSAGE_OVERHEAD + 1000));
    assert_eq!(books.released, positions);
    assert_eq!(books.announced - before.announced, positions, "as if it had been sent and read");
}

/// Whatever the state of the pool, and with the credit back when it is delivered.
#[test]
fn a_message_goes_into_a_posted_buffer() {
    let (mut app, mut incoming) = (TestApp::new(0), Incoming::new(1000));
    app.posted = vec![99, 300, 200];
    for at in [0, 100] {
        assert_eq!(incoming.fragment(&mut app, OWNER, 0, 200, at, &[at as u8; 100]), Ok(()));
    }
    assert_eq!(app.placed, [[[0; 100], [100; 100]].concat()]);
    assert_eq!(app.posted, [99, 200], "the first that it fits");
    assert_eq!(incoming.announce_limit(), 1000 + MESSAGE_OVERHEAD + 200);
    assert!(app.lengths().is_empty() && incoming.part(&mut app, OWNER, 1, 9, 0, &[0; 8]).is_err());
    assert_eq!(app.posted, [99, 200], "operations go to the pool");
}

#[test]
fn a_message_in_one_packet_goes_into_a_posted_buffer() {
    let (mut app, mut incoming) = (TestApp::new(0), Incoming::new(1000));
    app.posted = vec![200];
    assert_eq!(incoming.message(&mut app, OWNER, 0, &[7; 200]), Ok(()));
    assert_eq!(app.placed, [[7; 200]]);
    assert_eq!(incoming.announce_limit(), 1000 + MESSAGE_OVERHEAD + 200);
    assert_eq!(incoming.message(&mut app, OWNER, 1, &[7; 200]), Err(Refused::NoBuffer));
}

/// One that comes early takes a buffer only if those before it have memory: else it could take the
/// last, and wait for one that needs it.
#[test]
fn an_early_message_leaves_posted_buffers_to_those_before_it() {
    let (mut app, mut incoming) = (TestApp::new(0), Incoming::new(WINDOW));
    let part = |app: &mut TestApp, incoming: &mut Incoming, sequence, at| {
        incoming.fragment(app, OWNER, sequence, 200, at, &[0; 100])
    };
    app.posted = vec![200; 2];
    assert_eq!(part(&mut app, &mut incoming, 1, 0), Err(Refused::NoBuffer), "nothing of 0 came");
    assert_eq!(part(&mut app, &mut incoming, 0, 100), Ok(()));
    assert_eq!(part(&mut app, &mut incoming, 1, 0), Ok(()), "all before it have begun");
    assert!(app.posted.is_empty());
    app.posted = vec![200];
    assert_eq!(part(&mut app, &mut incoming, 3, 0), Err(Refused::NoBuffer));
    assert_eq!(incoming.skip(&mut app, OWNER, 2, 0), Ok(true));
    assert_eq!(part(&mut app, &mut incoming, 3, 0), Ok(()), "one was skipped");
    let mut incoming = Incoming::restore(incoming.save()).expect("just saved");
    app.posted = vec![200];
    assert_eq!(part(&mut app, &mut incoming, 5, 0), Err(Refused::NoBuffer));
    assert_eq!(part(&mut app, &mut incoming, 4, 0), Ok(()));
}

/// Without order none waits, as long as it need not wait for its turn after all.
#[test]
fn an_unordered_message_takes_a_posted_buffer_before_others() {
    let (mut app, mut incoming) = (TestApp::new(0), Incoming::new(WINDOW));
    incoming.set_unordered(&mut app, OWNER);
    for sequence in (1..2 * RANGES_MAX as u32).step_by(2) {
        app.posted = vec![2];
        assert_eq!(incoming.fragment(&mut app, OWNER, sequence, 2, 0, &[0]), Ok(()));
        assert_eq!(incoming.fragment(&mut app, OWNER, sequence, 2, 1, &[0]), Ok(()));
    }
    assert_eq!(app.placed.len(), RANGES_MAX);
    app.posted = vec![2];
    let beyond = 2 * RANGES_MAX as u32 + 1;
    let refused = incoming.fragment(&mut app, OWNER, beyond, 2, 0, &[0]);
    assert_eq!(refused, Err(Refused::NoBuffer), "the books are full");
    assert_eq!(incoming.fragment(&mut app, OWNER, 0, 2, 0, &[0]), Ok(()));
}

/// Bytes of the pool that an app has which takes operations as they come.
const OPERATOR_BYTES: u64 = 2048;

fn operator() -> (TestApp, Incoming) {
    let mut app = TestApp::new(OPERATOR_BYTES);
    app.operated = Some(Vec::new());
    (app, Incoming::new(WINDOW))
}

/// Whatever of it comes first after its beginning, and however much it is.
#[test]
fn an_operation_in_its_turn_needs_no_pool() {
    let (mut app, mut incoming) = operator();
    let bytes = vec![7; 2 * OPERATOR_BYTES as usize];
    for at in [0, 3, 1, 2].map(|part| part * bytes.len() / 4) {
        let part = &bytes[at..at + bytes.len() / 4];
        let taken = incoming.part(&mut app, OWNER, 0, bytes.len() as u32, at as u32, part);
        assert_eq!(taken, Ok(()));
    }
    assert_eq!((app.operated, incoming.messages_delivered()), (Some(vec![bytes]), 1));
}

/// It begins in the pool, and leaves that when all before it is over and its beginning is there,
/// whichever comes last.
#[test]
fn an_operation_leaves_the_pool_when_its_turn_comes() {
    let bytes: Vec<u8> = (0..100).collect();
    for is_first_last in [false, true] {
        let (mut app, mut incoming) = operator();
        let part = |app: &mut TestApp, incoming: &mut Incoming, at: usize| {
            let part = &bytes[at..at + 20];
            assert_eq!(incoming.part(app, OWNER, 1, 100, at as u32, part), Ok(()));
        };
        part(&mut app, &mut incoming, 60);
        if !is_first_last {
            part(&mut app, &mut incoming, 0);
        }
        assert!(!app.is_all_finished());
        assert_eq!(incoming.operation(&mut app, OWNER, 0, &[1]), Ok(()));
        if is_first_last {
            assert!(!app.is_all_finished());
            part(&mut app, &mut incoming, 0);
        }
        assert!(app.is_all_finished(), "it is not in the pool");
        [20, 40, 80].into_iter().for_each(|at| part(&mut app, &mut incoming, at));
        assert_eq!(app.operated, Some(vec![vec![1], bytes.clone()]));
    }
}
