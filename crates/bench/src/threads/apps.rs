//! The threads that wait, and the one that sends to them.

use super::report::Outcome;
use crate::apps::patiently;
use crate::cpu::{pin, seconds_used_by_thread};
use clearway_client::{Channel, ConnectionId, Error, Options, Sizes, Waiting};
use hdrhistogram::Histogram;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first of the threads' service ports.
const FIRST_PORT: u16 = 5000;
const ADDRESS: [u8; 4] = [10, 0, 0, 1];
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that is told apart, ns; longer ones count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Bytes of a message: when it was sent, in ns. The last one is empty.
const MESSAGE_BYTES: usize = 8;

/// All channels are small: there are many.
const SIZES: Sizes = Sizes {
    submission_entries: 256,
    completion_entries: 256,
    transmit_pool_bytes: 1 << 16,
    receive_pool_bytes: 1 << 16,
    shared_bytes: 0,
};

/// The threads that wait.
pub(super) struct Crowd {
    threads: Vec<JoinHandle<Result<(), Error>>>,
    /// As the kernel numbers them.
    ids: Vec<i32>,
    shared: Arc<Shared>,
    waiting: Waiting,
}

struct Shared {
    epoch: Instant,
    /// When the load began, in ns since then.
    began_ns: AtomicU64,
    /// One per thread.
    histograms: Vec<Mutex<Histogram<u64>>>,
}

impl Crowd {
    pub(super) fn start(
        socket: &Path,
        count: usize,
        waiting: Waiting,
        core: usize,
    ) -> io::Result<Self> {
        let histogram =
            || Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are valid");
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            began_ns: AtomicU64::new(0),
            histograms: (0..count).map(|_| Mutex::new(histogram())).collect(),
        });
        let mut crowd = Self { threads: Vec::new(), ids: Vec::new(), shared, waiting };
        for index in 0..count {
            let options = Options { waiting, ..options(socket) };
            let (shared, (ready, is_ready)) = (Arc::clone(&crowd.shared), mpsc::channel());
            let thread = std::thread::Builder::new().stack_size(1 << 18).spawn(move || {
                pin(core).map_err(io::Error::from)?;
                let mut channel = patiently(|| Channel::attach(&options))?;
                channel.listen(FIRST_PORT + index as u16)?;
                let _ = ready.send(rustix::thread::gettid().as_raw_nonzero().get());
                shared.receive(&mut channel, index)
            })?;
            match is_ready.recv() {
                Ok(id) => crowd.ids.push(id),
                Err(_) => return Err(join(thread).err().unwrap_or(io::ErrorKind::Other.into())),
            }
            crowd.threads.push(thread);
        }
        Ok(crowd)
    }

    /// Where each can be reached.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let ports = FIRST_PORT..FIRST_PORT + self.threads.len() as u16;
        ports.map(|port| SocketAddr::from((ADDRESS, port)))
    }

    /// What messages say when they were sent is since then.
    pub(super) fn epoch(&self) -> Instant {
        self.shared.epoch
    }

    /// CPU time of all threads so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.ids.iter().map(|id| seconds_used_by_thread(*id)).sum()
    }

    /// What was received so far is forgotten, and what was sent so far does not count any more.
    pub(super) fn begin(&self) {
        let now_ns = self.shared.epoch.elapsed().as_nanos() as u64;
        // For `record`, which the lock that is taken next makes see it.
        self.shared.began_ns.store(now_ns, Ordering::Relaxed);
        for histogram in &self.shared.histograms {
            histogram.lock().unwrap_or_else(PoisonError::into_inner).reset();
        }
    }

    pub(super) fn outcome(
        &self,
        load: u32,
        sent: u64,
        cpu_percent: f64,
        daemon_cpu_percent: f64,
    ) -> Outcome {
        let mut all = Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are valid");
        let mut threads_served = 0;
        for histogram in &self.shared.histograms {
            let histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
            threads_served += usize::from(!histogram.is_empty());
            all.add(&*histogram).expect("both have the same bounds");
        }
        Outcome {
            waiting: if self.waiting == Waiting::Block { "blocking" } else { "polling" },
            load_per_s: load,
            sent,
            received: all.len(),
            threads_served,
            p50_ns: all.value_at_quantile(0.5),
            p99_ns: all.value_at_quantile(0.99),
            cpu_percent,
            daemon_cpu_percent,
        }
    }

    /// Waits for the threads, which the sender tells that it is over: one that looked itself from
    /// time to time would not be idle.
    pub(super) fn join(self) -> io::Result<()> {
        self.threads.into_iter().try_for_each(join)
    }
}

fn join(thread: JoinHandle<Result<(), Error>>) -> io::Result<()> {
    let ended = thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
    ended.map_err(io::Error::other)
}

impl Shared {
    fn receive(&self, channel: &mut Channel, index: usize) -> Result<(), Error> {
        loop {
            let message = channel.recv_zero_copy(None)?;
            if message.is_empty() {
                return Ok(());
            }
            let now_ns = self.epoch.elapsed().as_nanos() as u64;
            let sent_ns = message[..].try_into().map_or(now_ns, u64::from_le_bytes);
            self.record(index, sent_ns, now_ns);
        }
    }

    /// Enters a message, unless it is of a load before, whose threads have not kept up.
    fn record(&self, index: usize, sent_ns: u64, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(sent_ns).min(LATENCY_NS_MAX);
        let mut histogram = self.histograms[index].lock().unwrap_or_else(PoisonError::into_inner);
        // Stored by `begin`, before it took the lock.
        if sent_ns >= self.began_ns.load(Ordering::Relaxed) {
            histogram.saturating_record(latency_ns);
        }
    }
}

/// Sends to each thread in turn.
pub(super) struct Sender {
    channel: Channel,
    connections: Vec<ConnectionId>,
    next: usize,
}

impl Sender {
    pub(super) fn connect(
        socket: &Path,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> io::Result<Self> {
        let options = options(socket);
        let mut channel = patiently(|| Channel::attach(&options))?;
        let connect = |address| channel.connect(address, Some(PATIENCE)).map_err(io::Error::other);
        let connections = addresses.map(connect).collect::<io::Result<_>>()?;
        Ok(Self { channel, connections, next: 0 })
    }

    /// Sends `per_s` messages per second, which may be none, for so long. Returns how many were
    /// taken: who does not read gets no more.
    pub(super) fn send_for(
        &mut self,
        per_s: u32,
        duration: Duration,
        epoch: Instant,
    ) -> io::Result<u64> {
        let began = Instant::now();
        let (mut sent, mut due_count) = (0, 0);
        while began.elapsed() < duration {
            let due = (began.elapsed().as_secs_f64() * f64::from(per_s)) as u64;
            while due_count < due {
                due_count += 1;
                let now_ns = epoch.elapsed().as_nanos() as u64;
                let message: [u8; MESSAGE_BYTES] = now_ns.to_le_bytes();
                let connection = self.connections[self.next];
                self.next = (self.next + 1) % self.connections.len();
                match self.channel.send_timeout(connection, &message, Some(Duration::ZERO)) {
                    Ok(()) => sent += 1,
                    Err(Error::TimedOut { .. } | Error::WouldBlock) => {}
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
            // Not to hurry, but to be no burden on the engine's core.
            let pause = Duration::from_secs_f64(0.2 / f64::from(per_s.max(1)));
            std::thread::sleep(pause.min(duration.saturating_sub(began.elapsed())));
        }
        Ok(sent)
    }

    /// Tells each thread that it is over: with an empty message.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let mut tell = |connection: &ConnectionId| {
            self.channel.send_timeout(*connection, &[], Some(PATIENCE)).map_err(io::Error::other)
        };
        self.connections.iter().try_for_each(&mut tell)
    }
}

fn options(socket: &Path) -> Options {
    Options { socket: socket.to_owned(), sizes: SIZES, ..Options::new("bench-thread") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_for_the_load_that_it_is_of() {
        let histogram = Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are valid");
        let shared = Shared {
            epoch: Instant::now(),
            began_ns: AtomicU64::new(100),
            histograms: vec![Mutex::new(histogram)],
        };
        for (sent_ns, counted) in [(99, 0), (100, 1), (150, 2)] {
            shared.record(0, sent_ns, 200);
            let histogram = shared.histograms[0].lock().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(histogram.len(), counted, "sent at {sent_ns}");
        }
    }
}
