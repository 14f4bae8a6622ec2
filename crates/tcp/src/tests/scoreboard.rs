//! The books of what is outstanding, against a list of segments: whatever is acknowledged, lost and
//! sent again in whatever order, each byte is in one of them.

use clearway_base::{MILLISECOND, Time};
use proptest::prelude::*;

use crate::rack::{Rack, Window};
use crate::scoreboard::{Delivered, Scoreboard};

/// What happens to a scoreboard. Places are in hundredths of what is outstanding.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    Acknowledge(u64),
    Sack(u64, u64),
    DetectLost,
    FirstLost,
    LostBefore(u64),
    LongerLost(u32),
    ForgetLost,
    ResendLost(u32),
    ResendLast(u64, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..1000u32).prop_map(Step::Send),
        2 => (0..=100u64).prop_map(Step::Acknowledge),
        4 => (0..100u64, 0..60u64).prop_map(|(start, length)| Step::Sack(start, length)),
        2 => Just(Step::DetectLost),
        1 => Just(Step::FirstLost),
        1 => (0..=100u64).prop_map(Step::LostBefore),
        1 => (100..900u32).prop_map(Step::LongerLost),
        1 => Just(Step::ForgetLost),
        3 => (50..1500u32).prop_map(Step::ResendLost),
        1 => (0..=100u64, 50..1500u32).prop_map(|(limit, most)| Step::ResendLast(limit, most)),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A scoreboard, and how far the stream is.
struct Books {
    board: Scoreboard,
    rack: Rack,
    now: Time,
    una: u64,
    next: u64,
}

const WINDOW: Window = Window {
    is_recovering: true,
    sacked_bytes: 0,
    segment_bytes: 1000,
    smoothed_ns: MILLISECOND,
    min_rtt_ns: MILLISECOND,
};

impl Books {
    /// The edge of a segment, or a place inside of one, so far into what is outstanding.
    fn place(&self, hundredths: u64) -> u64 {
        let place = self.una + (self.next - self.una) * hundredths / 100;
        self.board.edge_at(place).filter(|_| !hundredths.is_multiple_of(3)).unwrap_or(place)
    }

    fn play(&mut self, step: Step) {
        self.now = self.now + MILLISECOND;
        let mut delivered = Delivered::new(self.now, MILLISECOND);
        match step {
            Step::Send(bytes) => {
                self.board.push(self.now, self.next..self.next + u64::from(bytes));
                self.next += u64::from(bytes);
            }
            Step::Acknowledge(hundredths) => {
                self.una = self.place(hundredths);
                self.board.acknowledge(self.una, &mut delivered, &mut self.rack);
            }
            Step::Sack(start, length) => {
                let range = self.place(start)..self.place((start + length).min(100));
                if !range.is_empty() {
                    self.board.sack(&range, &mut delivered, &mut self.rack);
                }
            }
            Step::DetectLost => drop(self.board.detect_lost(self.now, &self.rack, &WINDOW)),
            Step::FirstLost => drop(self.board.mark_first_lost()),
            Step::LostBefore(hundredths) => {
                let place = self.una + (self.next - self.una) * hundredths / 100;
                self.board.mark_lost_before(self.board.edge_at(place).unwrap_or(self.next));
            }
            Step::LongerLost(most) => self.board.mark_longer_lost(most),
            Step::ForgetLost => self.board.forget_lost(),
            Step::ResendLost(most) => drop(self.board.resend_lost(self.now, most)),
            Step::ResendLast(limit, most) => {
                let limit = self.place(limit);
                self.board.resend_last(self.now, limit, most);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn every_byte_is_in_one_book(steps in steps()) {
        let (una, now) = (1000, Time::from_ns(MILLISECOND));
        let mut books =
            Books { board: Scoreboard::default(), rack: Rack::default(), now, una, next: una };
        for step in steps {
            books.play(step);
            books.board.check(books.una..books.next);
        }
    }
}

/// A peer without selective acknowledgements, which acknowledges a byte at a time and has the first
/// segment sent again for each, does not make the books grow.
#[test]
fn what_was_sent_again_has_bounded_books() {
    let (mut board, mut rack) = (Scoreboard::default(), Rack::default());
    for una in 0..10_000 {
        let now = Time::from_ns(una);
        board.push(now, 1000 * una..1000 * (una + 1));
        board.mark_first_lost();
        assert!(board.resend_lost(now, 1000).is_some());
        board.acknowledge(una, &mut Delivered::new(now, MILLISECOND), &mut rack);
        assert!(board.resent() <= 2, "{} at {una}", board.resent());
    }
}

/// RFC 8985, section 6.2, step 5: what has counted as lost, and does no more since that was found
/// to be an error, may be lost nevertheless. It was found by a timeout only.
#[test]
fn what_counts_as_lost_no_more_is_judged_again() {
    let (mut board, mut rack) = (Scoreboard::default(), Rack::default());
    let at = |ms: u64| Time::from_ns(ms * MILLISECOND);
    for number in 0..4 {
        board.push(at(1), 1000 * number..1000 * (number + 1));
    }
    board.sack(&(3000..4000), &mut Delivered::new(at(2), MILLISECOND), &mut rack);
    assert_eq!(board.detect_lost(at(2), &rack, &WINDOW).bytes, 3000);
    assert_eq!(board.resend_lost(at(2), 1000), Some(0..1000));
    board.forget_lost();
    // Of the first, which was sent again, something later has to arrive.
    assert_eq!(board.detect_lost(at(3), &rack, &WINDOW).bytes, 2000);
    assert_eq!(board.resend_lost(at(4), 1000), Some(1000..2000));
    board.sack(&(1000..2000), &mut Delivered::new(at(6), MILLISECOND), &mut rack);
    assert_eq!(board.detect_lost(at(6), &rack, &WINDOW).bytes, 1000);
    board.forget_lost();
    assert_eq!(board.detect_lost(at(7), &rack, &WINDOW).bytes, 2000);
}

/// RFC 2018, section 8: the same for what a receiver has taken back.
#[test]
fn what_was_taken_back_is_judged_again() {
    let (mut board, mut rack) = (Scoreboard::default(), Rack::default());
    let at = |ms: u64| Time::from_ns(ms * MILLISECOND);
    for number in 0..3 {
        board.push(at(1), 1000 * number..1000 * (number + 1));
    }
    board.mark_lost_before(3000);
    (0..3).for_each(|_| assert!(board.resend_lost(at(2), 1000).is_some()));
    let mut sack = |board: &mut Scoreboard, now, range| {
        board.sack(&range, &mut Delivered::new(at(now), MILLISECOND), &mut rack);
        board.detect_lost(at(now), &rack, &WINDOW).bytes
    };
    assert_eq!(sack(&mut board, 3, 0..2000), 0);
    board.mark_first_lost();
    assert_eq!(board.resend_lost(at(4), 1000), Some(0..1000));
    assert_eq!(sack(&mut board, 6, 0..1000), 2000);
}
