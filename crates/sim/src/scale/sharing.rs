//! Hosts that send to one: how much of its link they use together, how fairly they share it, and what of
//! their frames it loses.

use std::collections::BTreeMap;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND};
use clearway_channel::Completion;
use clearway_engine::Congestion;
use serde::Serialize;

use super::stage::{LARGE, SMALL, Stage};
use crate::network::Link;

const LINK: Link = Link {
    bits_per_s: 10_000_000_000,
    latency_ns: 5 * MICROSECOND,
    queue_bytes: 512 << 10,
    marks: false,
};
const MESSAGE_BYTES: u32 = 32 << 10;
/// Messages of a sender that are unfinished.
const WINDOW: u32 = 8;
/// What passes before the measured time, so that flows find their rates, and how long that is.
const WARM_UP_NS: u64 = 100 * MILLISECOND;
const MEASURED_NS: u64 = 200 * MILLISECOND;

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sharing {
    /// Hosts that send all they can to another one, all over links of 10 Gbit/s.
    pub senders: usize,
    /// The congestion control of all of them.
    pub congestion: &'static str,
    /// Bytes of messages that arrived, as part of what the link can carry.
    pub goodput: f64,
    /// Jain's index of fairness over the senders: 1 if all got the same, 1/n if one got everything.
    pub jain: f64,
    /// What the least lucky of them got, as part of an equal share.
    pub least_share: f64,
    /// Frames that the queue before the receiver had no room for, as part of all that were sent, from the
    /// beginning: all begin at once.
    pub lost: f64,
}

/// Measures so many senders.
///
/// # Panics
/// If a sender cannot connect.
#[must_use]
pub fn sharing(senders: usize, congestion: Congestion) -> Sharing {
    let mut crowd = Crowd::new(senders, congestion);
    crowd.connect();
    crowd.send_for(WARM_UP_NS);
    crowd.received.values_mut().for_each(|bytes| *bytes = 0);
    crowd.send_for(MEASURED_NS);
    let bytes: Vec<f64> = crowd.received.values().map(|bytes| *bytes as f64).collect();
    let total: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|bytes| bytes * bytes).sum();
    let least = bytes.iter().copied().fold(f64::INFINITY, f64::min);
    let capacity_bytes = (LINK.bits_per_s / 8 * MEASURED_NS / SECOND) as f64;
    let count = |wanted| {
        let counts = crowd.stage.network.counts().into_iter();
        counts.filter(|(name, _)| *name == wanted).map(|(_, count)| count).sum::<u64>() as f64
    };
    Sharing {
        senders,
        congestion: congestion.name(),
        goodput: total / capacity_bytes,
        jain: total * total / (senders as f64 * squares),
        least_share: least * senders as f64 / total,
        lost: count("frames_overflowed") / count("frames"),
    }
}

/// A sender's connection, and its sends.
#[derive(Clone, Copy, Default)]
struct Sender {
    connection: Option<u64>,
    sent: u32,
    finished: u32,
}

/// Host 0, to which all others send.
struct Crowd {
    stage: Stage,
    receiver: usize,
    /// The app of each sender, which is its number here plus one.
    senders: Vec<Sender>,
    /// Bytes by connection of the receiver.
    received: BTreeMap<u64, u64>,
}

impl Crowd {
    fn new(senders: usize, congestion: Congestion) -> Self {
        let mut stage = Stage::new([senders + 1, 1], congestion, LINK, 1);
        let receiver = stage.seat(0, 0, true, LARGE);
        for host in 1..=senders as u32 {
            stage.seat(host, 0, false, SMALL);
        }
        let senders = vec![Sender::default(); senders];
        Self { stage, receiver, senders, received: BTreeMap::new() }
    }

    fn connect(&mut self) {
        for seat in 1..=self.senders.len() {
            assert!(self.stage.connect(seat, self.receiver, 0), "room for one command");
            self.stage.ring(seat);
        }
        let is_open = |sender: &Sender| sender.connection.is_some();
        while !self.senders.iter().all(is_open) || self.received.len() < self.senders.len() {
            self.step();
        }
    }

    /// Everybody sends all it can.
    fn send_for(&mut self, span_ns: u64) {
        let end = self.stage.now + span_ns;
        (0..self.senders.len()).for_each(|sender| self.send(sender));
        while self.stage.now < end {
            if let Some(sender) = self.step() {
                self.send(sender);
            }
        }
    }

    fn send(&mut self, number: usize) {
        let sender = &mut self.senders[number];
        let Some(connection) = sender.connection else { return };
        while sender.sent.wrapping_sub(sender.finished) < WINDOW
            && self.stage.send(number + 1, connection, MESSAGE_BYTES)
        {
            sender.sent = sender.sent.wrapping_add(1);
        }
        self.stage.ring(number + 1);
    }

    /// Returns the sender that has finished a message, if one has: a step runs one engine at most.
    fn step(&mut self) -> Option<usize> {
        let mut finished = None;
        self.stage.step(&mut |seat, completion| match *completion {
            Completion::Connected { connection, .. } => {
                self.senders[seat - 1].connection = Some(connection);
            }
            Completion::Accepted { connection, .. } => {
                self.received.insert(connection, 0);
            }
            Completion::Received { connection, length, .. } => {
                *self.received.entry(connection).or_default() += u64::from(length);
            }
            Completion::Sent { sent, .. } => {
                self.senders[seat - 1].finished = sent;
                finished = Some(seat - 1);
            }
            _ => {}
        });
        finished
    }
}

#[cfg(test)]
mod tests {
    use clearway_engine::Congestion;

    #[test]
    fn four_senders_fill_a_link_and_share_it() {
        let sharing = super::sharing(4, Congestion::Swift);
        assert!(sharing.goodput > 0.5 && sharing.goodput <= 1.0, "{sharing:?}");
        assert!(sharing.jain > 0.5 && sharing.jain <= 1.0 + 1e-9, "{sharing:?}");
        assert!(sharing.least_share > 0.0 && sharing.least_share <= 1.0, "{sharing:?}");
    }
}
