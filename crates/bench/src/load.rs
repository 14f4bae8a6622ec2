//! The workload: a client that keeps a window of messages in flight and times each of them, and a
//! server that answers each. Neither knows what is under its [`Endpoint`].
//!
//! Every message starts with its sequence number (as much of it as fits), and every answer repeats
//! it; an ordered transport that answers out of order, twice or not at all fails the run.
//!
//! Latency is from just before the call that sends a message to just after the call that delivers
//! its answer. Where one call carries many messages, the clock is read once before and once after
//! it, so that no message looks faster than it was.

use crate::endpoint::Endpoint;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};

/// The kinds of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// One message in flight, echoed.
    Rtt,
    /// A window of messages in flight, echoed.
    Rate,
    /// A window of messages in flight one way, each acknowledged by its first 8 bytes.
    Stream,
}

impl Workload {
    pub(crate) const fn window_default(self) -> usize {
        match self {
            Self::Rtt => 1,
            Self::Rate => 32,
            Self::Stream => 8,
        }
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtt => "rtt",
            Self::Rate => "rate",
            Self::Stream => "stream",
        }
    }
}

/// What every contender has to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The kind of exchange.
    pub workload: Workload,
    /// Bytes per message.
    pub size: usize,
    /// Messages in flight, of each connection.
    pub window: usize,
    /// Connections of the client's app to the server's.
    pub connections: usize,
    /// How long to measure.
    pub seconds: f64,
}

/// What one run of one contender measured at the client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Median time of a message.
    pub p50_ns: u64,
    /// 99 of 100 were at most this slow.
    pub p99_ns: u64,
    /// 999 of 1000 were at most this slow.
    pub p999_ns: u64,
    /// Messages (answered) per second.
    pub rate_per_s: f64,
    /// Payload in one direction.
    pub gbit_per_s: f64,
    /// Messages that never were answered (datagrams only).
    pub lost: u64,
}

/// Bytes of the sequence number at the start of a message.
const SEQUENCE_BYTES: usize = 8;
/// The longest latency that is told apart, ns; longer ones count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Stands for the time at which a message was sent that will not be answered.
const LOST: u64 = u64::MAX;
/// Turns without an answer between two looks at the clock.
const EMPTY_TURNS_PER_LOOK: u32 = 256;
/// After this long without an answer a datagram counts as lost.
const DATAGRAM_PATIENCE_NS: u64 = 20_000_000;
/// After this long without an answer an ordered transport has failed.
const PATIENCE_NS: u64 = 5_000_000_000;

impl Load {
    /// Bytes of the answer to a message.
    pub(crate) fn answer_bytes(&self) -> usize {
        match self.workload {
            Workload::Rtt | Workload::Rate => self.size,
            Workload::Stream => self.size.min(SEQUENCE_BYTES),
        }
    }

    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64((self.seconds / 4.0).clamp(0.05, 0.5))
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// The server's app.
pub(crate) struct Server {
    answer_bytes: usize,
    /// The last message received is still unanswered, because there was no room to send.
    owes: bool,
}

impl Server {
    /// That answers with so many of a message's bytes.
    pub(crate) fn new(answer_bytes: usize) -> Self {
        Self { answer_bytes, owes: false }
    }

    /// Answers what has come; returns how many.
    pub(crate) fn turn<E: Endpoint>(&mut self, endpoint: &mut E) -> io::Result<usize> {
        let burst = endpoint.burst();
        let mut answered = 0;
        while answered < burst {
            if !self.owes && endpoint.receive()?.is_none() {
                break;
            }
            self.owes = !endpoint.reply(self.answer_bytes)?;
            if self.owes {
                break;
            }
            answered += 1;
        }
        endpoint.flush()?;
        Ok(answered)
    }
}

/// The client's app.
pub(crate) struct Client {
    load: Load,
    epoch: Instant,
    message: Vec<u8>,
    /// When each message in flight was sent, at its sequence number modulo the length.
    sent_at_ns: Vec<u64>,
    /// Sequence number of the next message to be sent.
    next: u64,
    /// Sequence number of the oldest message without an answer.
    oldest: u64,
    lost: u64,
    answered: u64,
    heard_at_ns: u64,
    now_ns: u64,
    empty_turns: u32,
    histogram: Histogram<u64>,
    began_ns: u64,
}

impl Client {
    pub(crate) fn new(load: Load) -> Self {
        let message = (0..load.size).map(|at| at as u8).collect();
        let slots = load.window.next_power_of_two();
        let histogram = Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are valid");
        Self {
            load,
            epoch: Instant::now(),
            message,
            sent_at_ns: vec![0; slots],
            next: 0,
            oldest: 0,
            lost: 0,
            answered: 0,
            heard_at_ns: 0,
            now_ns: 0,
            empty_turns: 0,
            histogram,
            began_ns: 0,
        }
    }

    /// Takes the answers that have come and fills the window again; returns how many answers.
    pub(crate) fn turn<E: Endpoint>(&mut self, endpoint: &mut E) -> io::Result<usize> {
        let received = if self.next == self.oldest { 0 } else { self.receive(endpoint)? };
        let fresh = received > 0;
        if fresh {
            self.empty_turns = 0;
        } else {
            self.look_at_clock_sometimes(endpoint)?;
        }
        self.send(endpoint, fresh)?;
        endpoint.flush()?;
        Ok(received)
    }

    fn receive<E: Endpoint>(&mut self, endpoint: &mut E) -> io::Result<usize> {
        let first = self.oldest;
        let burst = endpoint.burst();
        let mut received = 0;
        while received < burst {
            let Some(answer) = endpoint.receive()? else { break };
            let sequence = sequence_of(answer, self.oldest);
            let length_is_right = answer.len() == self.load.answer_bytes();
            self.accept::<E>(sequence, length_is_right)?;
            received += 1;
        }
        if received > 0 {
            self.now_ns = self.clock_ns();
            self.heard_at_ns = self.now_ns;
            self.record(first);
        }
        Ok(received)
    }

    fn accept<E: Endpoint>(&mut self, sequence: u64, length_is_right: bool) -> io::Result<()> {
        if sequence == self.oldest && sequence < self.next && length_is_right {
            self.oldest += 1;
            return Ok(());
        }
        if E::LOSSY && sequence < self.oldest {
            return Ok(());
        }
        if E::LOSSY && sequence < self.next {
            self.lost += sequence - self.oldest;
            for skipped in self.oldest..sequence {
                *self.slot(skipped) = LOST;
            }
            self.oldest = sequence + 1;
            return Ok(());
        }
        let (oldest, next) = (self.oldest, self.next);
        let right = if length_is_right { "right" } else { "wrong" };
        Err(io::Error::other(format!(
            "got the answer to message {sequence} (length {right}) while {oldest}..{next} were in \
             flight"
        )))
    }

    /// Enters the latencies of the messages from `first` up to the oldest unanswered one. Those
    /// that were sent together have the same latency and are entered together.
    fn record(&mut self, first: u64) {
        let mut sequence = first;
        while sequence < self.oldest {
            let sent_ns = *self.slot(sequence);
            let mut count = 1;
            while sequence + count < self.oldest && *self.slot(sequence + count) == sent_ns {
                count += 1;
            }
            if sent_ns != LOST {
                let latency_ns = (self.now_ns - sent_ns).min(LATENCY_NS_MAX);
                self.histogram.saturating_record_n(latency_ns, count);
                self.answered += count;
            }
            sequence += count;
        }
    }

    fn send<E: Endpoint>(&mut self, endpoint: &mut E, clock_is_fresh: bool) -> io::Result<()> {
        let mut clock_is_fresh = clock_is_fresh;
        while self.next - self.oldest < self.load.window as u64 {
            if !clock_is_fresh {
                self.now_ns = self.clock_ns();
                clock_is_fresh = true;
            }
            let sequence_bytes = self.next.to_le_bytes();
            let prefix = self.message.len().min(SEQUENCE_BYTES);
            self.message[..prefix].copy_from_slice(&sequence_bytes[..prefix]);
            if !endpoint.send(&self.message)? {
                break;
            }
            *self.slot(self.next) = self.now_ns;
            self.next += 1;
        }
        Ok(())
    }

    fn look_at_clock_sometimes<E: Endpoint>(&mut self, endpoint: &E) -> io::Result<()> {
        self.empty_turns += 1;
        if self.empty_turns < EMPTY_TURNS_PER_LOOK && !endpoint.waits() {
            return Ok(());
        }
        self.empty_turns = 0;
        self.now_ns = self.clock_ns();
        let quiet_ns = self.now_ns.saturating_sub(self.heard_at_ns);
        if E::LOSSY && quiet_ns > DATAGRAM_PATIENCE_NS {
            self.lost += self.next - self.oldest;
            self.oldest = self.next;
            self.heard_at_ns = self.now_ns;
        } else if quiet_ns > PATIENCE_NS {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer for {} s", PATIENCE_NS / 1_000_000_000),
            ));
        }
        Ok(())
    }

    /// Starts the measurement: what happened before is forgotten.
    pub(crate) fn begin(&mut self) {
        self.histogram.reset();
        self.answered = 0;
        self.lost = 0;
        self.now_ns = self.clock_ns();
        self.began_ns = self.now_ns;
    }

    /// What clients with the same load have measured together, at least one, since each began.
    pub(crate) fn sample_of(clients: &mut [Self]) -> Sample {
        let (first, others) = clients.split_first_mut().expect("at least one");
        let elapsed_s = (first.clock_ns() - first.began_ns) as f64 / 1e9;
        for other in others {
            first.histogram.add(&other.histogram).expect("the bounds are the same");
            first.answered += other.answered;
            first.lost += other.lost;
        }
        let rate_per_s = first.answered as f64 / elapsed_s;
        Sample {
            p50_ns: first.histogram.value_at_quantile(0.5),
            p99_ns: first.histogram.value_at_quantile(0.99),
            p999_ns: first.histogram.value_at_quantile(0.999),
            rate_per_s,
            gbit_per_s: rate_per_s * first.load.size as f64 * 8.0 / 1e9,
            lost: first.lost,
        }
    }

    /// Messages that have been answered since it began.
    #[cfg(test)]
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// The last reading of the clock.
    pub(crate) fn now(&self) -> Instant {
        self.epoch + Duration::from_nanos(self.now_ns)
    }

    fn clock_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn slot(&mut self, sequence: u64) -> &mut u64 {
        let mask = self.sent_at_ns.len() - 1;
        &mut self.sent_at_ns[sequence as usize & mask]
    }
}

/// The sequence number that an answer carries. Short messages carry only its low bytes; the rest
/// is taken from the one that is expected.
fn sequence_of(answer: &[u8], expected: u64) -> u64 {
    let mut bytes = expected.to_le_bytes();
    let prefix = answer.len().min(SEQUENCE_BYTES);
    bytes[..prefix].copy_from_slice(&answer[..prefix]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
