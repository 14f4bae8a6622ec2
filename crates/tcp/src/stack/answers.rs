//! Answers that belong to no connection, and how many resets are among them.

use std::collections::VecDeque;

use clearway_base::{SECOND, Time};
use clearway_wire::tcp::{Flags, Options, Repr};

use crate::config::IpFields;
use crate::connection::{Arrival, Transmit};

/// Answers to strangers that wait for the queue: what does not fit is as if lost on the way.
const WAITING_MAX: usize = 256;

/// Answers that wait, and since when how many resets were made.
#[derive(Debug)]
pub(super) struct Answers {
    waiting: VecDeque<Transmit>,
    since: Time,
    resets: u32,
}

impl Answers {
    pub(super) const fn new(now: Time) -> Self {
        Self { waiting: VecDeque::new(), since: now, resets: 0 }
    }

    /// How many wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// False if too many wait: it is lost.
    pub(super) fn push(&mut self, answer: Transmit) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push_back(answer);
        }
        has_room
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Transmit> {
        self.waiting.pop_front()
    }

    /// RFC 9293, section 3.5.2: a reset for what no connection is meant by. False if there were
    /// `most` in this second, or too many answers wait.
    pub(super) fn reset(&mut self, now: Time, arrival: &Arrival, most: u32) -> bool {
        if now.since(self.since) >= SECOND {
            (self.since, self.resets) = (now, 0);
        }
        self.resets += 1;
        self.resets <= most && self.push(reset_for(arrival))
    }
}

/// RFC 9293, section 3.10.7.1: "If the ACK bit is off, sequence number zero is used,
/// <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. If the ACK bit is on, <SEQ=SEG.ACK><CTL=RST>".
fn reset_for(arrival: &Arrival) -> Transmit {
    let repr = &arrival.repr;
    let (sequence, acknowledgement, flags) = match repr.flags.contains(Flags::ACK) {
        true => (repr.acknowledgement, 0, Flags::RST),
        false => {
            let end = repr.sequence.wrapping_add(arrival.length() as u32);
            (0, end, Flags::RST | Flags::ACK)
        }
    };
    let repr = Repr {
        source_port: arrival.to.port(),
        destination_port: arrival.from.port(),
        sequence,
        acknowledgement,
        flags,
        window: 0,
        urgent: 0,
        options: Options::default(),
    };
    Transmit::bare(arrival.to, arrival.from, repr, IpFields::default())
}
