//! The apps: one that asks and times the answers, with the one that answers; and one that floods,
//! with the one that takes the flood.

use super::pair::Pair;
use super::report::Outcome;
use clearway_channel::{AppEnd, Command, Completion, Extent, Received, Told};
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// Bytes of a message that is timed.
const QUESTION_BYTES: u32 = 64;
/// Bytes of a message of the flood.
const FLOOD_BYTES: u32 = 8192;
/// Messages of the flood that are under way.
const FLOOD_WINDOW: usize = 64;
/// The longest time that is told apart, ns; longer ones count as this.
const LATENCY_NS_MAX: u64 = 10_000_000_000;

/// One end of a connection.
struct End {
    app: AppEnd,
    connection: u64,
    /// Sent and not finished.
    sent: VecDeque<Extent>,
    finished: u32,
    messages: u64,
    bytes: u64,
}

impl End {
    fn new((app, connection): (AppEnd, u64)) -> Self {
        Self { app, connection, sent: VecDeque::new(), finished: 0, messages: 0, bytes: 0 }
    }

    /// Sends so many bytes, if there is room.
    fn send(&mut self, length: u32) {
        if !self.app.has_room() {
            return;
        }
        let Some(extent) = self.app.allocate(length) else { return };
        let (connection, offset) = (self.connection, extent.offset());
        let send = Command::Send { connection, stream: 0, offset, length };
        self.app.submit(&send).expect("there is room");
        self.sent.push_back(extent);
    }

    /// Takes what has come; returns how many messages that were.
    fn poll(&mut self) -> usize {
        let before = self.messages;
        while let Some(told) = self.app.next_told().expect("the engine is our own") {
            match told {
                Told::Message(Received { bytes, sent, .. }) => {
                    self.free_up_to(sent);
                    self.messages += 1;
                    self.bytes += u64::from(bytes.length());
                    self.app.release(bytes);
                }
                Told::Other(Completion::Sent { sent, .. }) => self.free_up_to(sent),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        (self.messages - before) as usize
    }

    fn free_up_to(&mut self, finished: u32) {
        while self.finished != finished {
            self.finished = self.finished.wrapping_add(1);
            let extent = self.sent.pop_front().expect("no more finished than were sent");
            self.app.free(extent);
        }
    }
}

/// Sends a small message, waits for the answer, and so on.
pub(super) struct Asker {
    asker: End,
    answerer: End,
    asked_at: Option<Instant>,
    histogram: Histogram<u64>,
}

impl Asker {
    pub(super) fn open(pair: &mut Pair) -> io::Result<Self> {
        let [asker, answerer] = pair.connect(0)?.map(End::new);
        let histogram = Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are valid");
        Ok(Self { asker, answerer, asked_at: None, histogram })
    }

    pub(super) fn turn(&mut self) {
        for _ in 0..self.answerer.poll() {
            self.answerer.send(QUESTION_BYTES);
        }
        self.answerer.app.flush();
        if self.asker.poll() > 0
            && let Some(asked_at) = self.asked_at.take()
        {
            let latency_ns = asked_at.elapsed().as_nanos() as u64;
            self.histogram.saturating_record(latency_ns.min(LATENCY_NS_MAX));
        }
        if self.asked_at.is_none() {
            self.asked_at = Some(Instant::now());
            self.asker.send(QUESTION_BYTES);
        }
        self.asker.app.flush();
    }

    /// What happened before is forgotten.
    pub(super) fn begin(&mut self) {
        self.histogram.reset();
    }

    pub(super) fn outcome(&self, seconds: f64, flood_bytes: u64) -> Outcome {
        Outcome {
            p50_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            p999_ns: self.histogram.value_at_quantile(0.999),
            per_s: self.histogram.len() as f64 / seconds,
            flood_gbit_per_s: flood_bytes as f64 * 8.0 / 1e9 / seconds,
        }
    }
}

/// Sends as much as it may.
pub(super) struct Flooder {
    source: End,
    sink: End,
}

impl Flooder {
    /// A flood over the engines of this number.
    pub(super) fn open(pair: &mut Pair, engine: usize) -> io::Result<Self> {
        let [source, sink] = pair.connect(engine)?.map(End::new);
        Ok(Self { source, sink })
    }

    pub(super) fn turn(&mut self) {
        self.source.poll();
        for _ in self.source.sent.len()..FLOOD_WINDOW {
            self.source.send(FLOOD_BYTES);
        }
        self.source.app.flush();
        self.sink.poll();
        self.sink.app.flush();
    }

    /// Since it was opened.
    pub(super) fn bytes_arrived(&self) -> u64 {
        self.sink.bytes
    }
}
