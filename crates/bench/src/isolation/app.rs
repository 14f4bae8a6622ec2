//! The apps: one that asks and times the answers, with the one that answers; and one that floods,
//! with the one that takes the flood, or whose memory is read.

use super::report::Outcome;
use crate::pair::{End, Pair};
use clearway_channel::{Command, Completion, Description, Grant, Grantee, Rights};
use hdrhistogram::Histogram;
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
                for _ in source.under_way()..FLOOD_WINDOW {
                    source.send(FLOOD_BYTES);
                }
                source.app.flush();
                sink.poll();
                sink.app.flush();
            }
            Self::Reads { asker, region, begun, done, .. } => {
                *done += asker.take_reads();
                while *begun - *done < READS_WINDOW && asker.read(*region, *begun, READ_BYTES) {
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
