//! Hosts that send all they can to one, and what of it arrives.

use std::collections::BTreeMap;

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_channel::Completion;
use clearway_engine::Congestion;

use super::stage::{LARGE, SMALL, Stage};
use crate::network::Link;

/// What all their links are like, but for latency.
pub(super) const LINK: Link = Link::plain(10_000_000_000, 5 * MICROSECOND, 512 << 10);
const MESSAGE_BYTES: u32 = 32 << 10;
/// How often the queue before the receiver is looked at.
const LOOK_NS: u64 = 10 * MICROSECOND;

/// A sender's connection, its sends, and what has arrived of them.
#[derive(Clone, Copy, Default)]
struct Sender {
    connection: Option<u64>,
    is_sending: bool,
    sent: u32,
    finished: u32,
    received_bytes: u64,
}

/// Host 0, to which all others send.
pub(super) struct Crowd {
    pub(super) stage: Stage,
    receiver: usize,
    /// Messages of a sender that are unfinished.
    window: u32,
    /// The app of each sender is its number here plus one.
    senders: Vec<Sender>,
    /// Whose a connection of the receiver is.
    accepted: BTreeMap<u64, usize>,
    /// How long a frame would have waited for the receiver's link, every so often.
    waits_ns: Vec<u64>,
    looks: Time,
}

impl Crowd {
    /// A sender for each link, of which each has up to `window` messages under way, all of them
    /// connected.
    ///
    /// # Panics
    /// If a sender cannot connect.
    pub(super) fn new(links: &[Link], window: u32, congestion: Congestion) -> Self {
        let all: Vec<Link> = std::iter::once(&LINK).chain(links).copied().collect();
        let mut stage = Stage::new(&all, 1, congestion, 1);
        let receiver = stage.seat(0, 0, true, LARGE);
        for host in 1..=links.len() as u32 {
            stage.seat(host, 0, false, SMALL);
        }
        let senders = vec![Sender::default(); links.len()];
        let (accepted, waits_ns, looks) = (BTreeMap::new(), Vec::new(), Time::ZERO);
        let mut crowd = Self { stage, receiver, window, senders, accepted, waits_ns, looks };
        crowd.connect();
        crowd
    }

    fn connect(&mut self) {
        for seat in 1..=self.senders.len() {
            assert!(self.stage.connect(seat, self.receiver, 0, false), "room for one command");
            self.stage.ring(seat);
        }
        let is_open = |sender: &Sender| sender.connection.is_some();
        while !self.senders.iter().all(is_open) || self.accepted.len() < self.senders.len() {
            self.step();
        }
    }

    /// From now on these senders send all they can.
    pub(super) fn begin(&mut self, senders: std::ops::Range<usize>) {
        for number in senders {
            self.senders[number].is_sending = true;
            self.send(number);
        }
    }

    /// Lets so much time pass. Returns the bytes that have come from each sender meanwhile.
    pub(super) fn pass(&mut self, span_ns: u64) -> Vec<f64> {
        self.senders.iter_mut().for_each(|sender| sender.received_bytes = 0);
        let end = self.stage.now + span_ns;
        while self.stage.now < end {
            if let Some(sender) = self.step() {
                self.send(sender);
            }
            self.look();
        }
        self.senders.iter().map(|sender| sender.received_bytes as f64).collect()
    }

    /// How long frames would have waited for the receiver's link since this was asked last.
    pub(super) fn take_waits_ns(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waits_ns)
    }

    fn look(&mut self) {
        let now = self.stage.now;
        if now >= self.looks {
            self.looks = now + LOOK_NS;
            self.waits_ns.push(self.stage.network.wait_ns(now, 0));
        }
    }

    fn send(&mut self, number: usize) {
        let sender = &mut self.senders[number];
        let Some(connection) = sender.connection.filter(|_| sender.is_sending) else { return };
        while sender.sent.wrapping_sub(sender.finished) < self.window
            && self.stage.send(number + 1, connection, MESSAGE_BYTES)
        {
            sender.sent = sender.sent.wrapping_add(1);
        }
        self.stage.ring(number + 1);
    }

    /// Returns the sender that has finished a message, if one has: a step runs one engine at most.
    fn step(&mut self) -> Option<usize> {
        let Self { stage, senders, accepted, .. } = self;
        let mut finished = None;
        stage.step(&mut |seat, completion| match *completion {
            Completion::Connected { connection, .. } => {
                senders[seat - 1].connection = Some(connection);
            }
            Completion::Accepted { connection, peer, .. } => {
                accepted.insert(connection, Stage::host_at(peer.ip()) - 1);
            }
            Completion::Received { connection, length, .. } => {
                senders[accepted[&connection]].received_bytes += u64::from(length);
            }
            Completion::Sent { sent, .. } => {
                senders[seat - 1].finished = sent;
                finished = Some(seat - 1);
            }
            _ => {}
        });
        finished
    }
}

/// What a link can carry in this time, in bytes.
pub(super) fn capacity_bytes(span_ns: u64) -> f64 {
    (LINK.bits_per_s / 8 * span_ns / SECOND) as f64
}

/// Jain's index of fairness: 1 if all got the same, 1/n if one got everything.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let total: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    total * total / (shares.len() as f64 * squares)
}
