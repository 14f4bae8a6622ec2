//! The apps: one that asks and times the answers, with the one that answers; and one that floods,
//! with the one that takes the flood, or whose memory is read.

use super::pair::Pair;
use super::report::Outcome;
use clearway_channel::{
    AppEnd, Command, Completion, Description, Extent, Grant, Grantee, Operated, OperationKind,
    Received, Rights, Told,
};
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
/// Bytes that a read of the flood has.
const READ_BYTES: u32 = 64;
/// Reads of the flood that are under way.
const READS_WINDOW: u64 = 256;
/// The longest time that is told apart, ns; longer ones count as this.
const LATENCY_NS_MAX: u64 = 10_000_000_000;

/// One end of a connection.
pub(super) struct End {
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

    /// Begins a read; false if there is no room.
    fn read(&mut self, region: u64, token: u64) -> bool {
        let ask = Command::Ask {
            kind: OperationKind::Read as u8,
            stride: 0,
            connection: self.connection,
            token,
            region,
            place: 0,
            bytes: READ_BYTES,
            count: 0,
            operand: 0,
            second: 0,
        };
        self.app.has_room() && self.app.submit(&ask).is_ok()
    }

    /// Takes what reads have brought; returns how many are over.
    fn take_reads(&mut self) -> u64 {
        let mut over = 0;
        while let Some(told) = self.app.next_told().expect("the engine is our own") {
            match told {
                Told::Operated(Operated { status: 0, bytes: Some(bytes), .. }) => {
                    self.app.release(bytes)
                }
                other => panic!("a read brings {other:?}"),
            }
            over += 1;
        }
        over
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

    pub(super) fn outcome(&self, seconds: f64, flood: Flooded) -> Outcome {
        Outcome {
            p50_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            p999_ns: self.histogram.value_at_quantile(0.999),
            per_s: self.histogram.len() as f64 / seconds,
            flood_per_s: flood.per_s,
            flood_gbit_per_s: flood.gbit_per_s,
        }
    }
}

/// What a flood has moved while it could.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flooded {
    /// Messages, or reads.
    per_s: f64,
    gbit_per_s: f64,
}

/// Asks for as much as it may.
pub(super) enum Flooder {
    Messages { source: End, sink: End },
    Reads { asker: End, region: u64, begun: u64, done: u64, _owner: End },
}

impl Flooder {
    /// A flood of messages over the engines of this number.
    pub(super) fn of_messages(pair: &mut Pair, engine: usize) -> io::Result<Self> {
        let [source, sink] = pair.connect(engine)?.map(End::new);
        Ok(Self::Messages { source, sink })
    }

    /// A flood of reads by the first host of the second's memory, likewise.
    pub(super) fn of_reads(pair: &mut Pair, engine: usize) -> io::Result<Self> {
        let [asker, mut owner] = pair.connect(engine)?.map(End::new);
        let region = share(pair, &mut owner)?;
        Ok(Self::Reads { asker, region, begun: 0, done: 0, _owner: owner })
    }

    pub(super) fn turn(&mut self) {
        match self {
            Self::Messages { source, sink } => {
                source.poll();
                for _ in source.sent.len()..FLOOD_WINDOW {
                    source.send(FLOOD_BYTES);
                }
                source.app.flush();
                sink.poll();
                sink.app.flush();
            }
            Self::Reads { asker, region, begun, done, .. } => {
                *done += asker.take_reads();
                while *begun - *done < READS_WINDOW && asker.read(*region, *begun) {
                    *begun += 1;
                }
                asker.app.flush();
            }
        }
    }

    /// What it has moved in so many seconds, which are all in which it has had turns.
    pub(super) fn flooded(&self, seconds: f64) -> Flooded {
        let (count, bytes) = match self {
            Self::Messages { sink, .. } => (sink.messages, sink.bytes),
            Self::Reads { done, .. } => (*done, *done * u64::from(READ_BYTES)),
        };
        Flooded { per_s: count as f64 / seconds, gbit_per_s: bytes as f64 * 8.0 / 1e9 / seconds }
    }
}

/// Shares the first bytes of an app's memory with everybody; the handle.
fn share(pair: &mut Pair, owner: &mut End) -> io::Result<u64> {
    let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::READ }];
    let description = Description { name: Vec::new(), grants }.to_bytes();
    let description = description.ok_or(io::ErrorKind::InvalidInput)?;
    let app = &mut owner.app;
    let extent = app.allocate(description.len() as u32).ok_or(io::ErrorKind::OutOfMemory)?;
    app.transmit_bytes(&extent).copy_from_slice(&description);
    let (offset, length) = (extent.offset(), extent.length());
    let share = Command::Share { token: 1, offset, length, start: 0, bytes: READ_BYTES };
    app.submit(&share).map_err(|_| io::ErrorKind::OutOfMemory)?;
    app.flush();
    let told = pair.await_told(app)?;
    app.free(extent);
    match told {
        Completion::Shared { status: 0, region, .. } => Ok(region),
        other => Err(io::Error::other(format!("memory is not shared: {other:?}"))),
    }
}
