//! NICs in memory, for tests: a wire between two queues, or a switch between NICs of several queues.
//! Faults come from a seed, so that a failure can be replayed; there is no clock but the one that the
//! test sets ([`Handle::set_time`]).
//!
//! Each NIC is no more than the LCD NIC that the stack takes for granted: 256 descriptors per queue and
//! RSS whose key nobody can read ([`switch`]). A wire never loses a frame by itself: like a memif, it
//! says [`crate::Transmit::Full`] while the receiver has not made room. A switch does as real ones do:
//! a frame that finds its receive queue full is dropped and counted there.
//!
//! Used by one thread, the same calls give the same frames. With a thread for each queue, the faults of
//! each queue are still the same, but not how its frames interleave with those of other queues.

mod faults;
mod lane;
mod queue;
mod rss;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_base::{Random, Time};

pub use faults::{FaultCounts, Faults};
pub use queue::Queue;

use crate::{LCD_DESCRIPTORS, MacAddress};
use faults::FaultTally;
use lane::Lane;
use rss::Rss;

/// What all NICs of a fabric have in common.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides all faults and RSS keys.
    pub seed: u64,
    /// Largest frame, Ethernet header included.
    pub frame_bytes_max: usize,
    /// Descriptors of each queue, per direction.
    pub descriptors: usize,
}

impl Options {
    /// LCD queues for frames of up to 1518 bytes.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, frame_bytes_max: 1518, descriptors: LCD_DESCRIPTORS }
    }
}

/// One NIC at a switch.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its Ethernet address, to which the switch delivers.
    pub mac: MacAddress,
    /// How many queues it has.
    pub queues: usize,
    /// What happens to frames that it sends.
    pub faults: Faults,
}

/// Two queues at the ends of a wire. `faults` are for frames from the first to the second, and back.
/// Their addresses are 02:00:00:00:00:01 and :02.
#[must_use]
pub fn pair(options: Options, faults: [Faults; 2]) -> (Queue, Queue, Handle) {
    let port = |number, faults| Port { mac: [2, 0, 0, 0, 0, number], queues: 1, faults };
    let ports = [port(1, faults[0]), port(2, faults[1])];
    let (queues, handle) = build(options, &ports, Kind::Wire);
    let mut queues = queues.into_iter().flatten();
    let (Some(first), Some(second)) = (queues.next(), queues.next()) else {
        unreachable!("two ports of one queue each")
    };
    (first, second, handle)
}

/// A switch with these NICs, and the queues of each. It forwards by destination address; frames to a
/// group address go to all others. Among the queues of a NIC, a Toeplitz hash with a random key chooses
/// by addresses and ports, or by addresses alone where there are no ports.
#[must_use]
pub fn switch(options: Options, ports: &[Port]) -> (Vec<Vec<Queue>>, Handle) {
    build(options, ports, Kind::Switch)
}

/// Changes a fabric while it is in use. Can be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Fabric>);

impl Handle {
    /// Sets the time. Frames whose delay is over arrive. Time that goes back is ignored.
    pub fn set_time(&self, now: Time) {
        self.0.now_ns.fetch_max(now.as_ns(), Ordering::AcqRel);
        self.0.lanes().for_each(|lane| lane.time_has_come(self.0.now()));
    }

    /// When the next frame under way arrives, now if it is there already; `None` if there is none.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Time> {
        let now = self.0.now();
        self.0.lanes().filter_map(|lane| lane.next_arrival(now)).min()
    }

    /// Replaces the faults of frames that port `port` sends.
    pub fn set_faults(&self, port: usize, faults: Faults) {
        *lock(&self.0.ports[port].faults) = faults;
    }

    /// Plugs port `port` in or out. A wire is up while both its ends are.
    pub fn set_link(&self, port: usize, up: bool) {
        self.0.ports[port].up.store(up, Ordering::Release);
        self.0.lanes().for_each(Lane::wake);
    }

    /// How many frames had which fault so far.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.0.tally.counts()
    }
}

/// What all queues of a fabric share.
#[derive(Debug)]
struct Fabric {
    options: Options,
    kind: Kind,
    ports: Vec<PortState>,
    now_ns: AtomicU64,
    tally: FaultTally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Wire,
    Switch,
}

#[derive(Debug)]
struct PortState {
    mac: MacAddress,
    faults: Mutex<Faults>,
    up: AtomicBool,
    rss: Rss,
    lanes: Vec<Lane>,
}

impl Fabric {
    fn now(&self) -> Time {
        Time::from_ns(self.now_ns.load(Ordering::Acquire))
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.ports.iter().flat_map(|port| &port.lanes)
    }

    /// True while frames can leave through `port`.
    fn link_up(&self, port: usize) -> bool {
        let up = |port: &PortState| port.up.load(Ordering::Acquire);
        match self.kind {
            Kind::Wire => self.ports.iter().all(up),
            Kind::Switch => up(&self.ports[port]),
        }
    }

    /// The lanes that a frame from port `from` goes to.
    fn targets<'a>(&'a self, from: usize, frame: &'a [u8]) -> impl Iterator<Item = &'a Lane> {
        let destination = frame.get(..6).unwrap_or_default();
        let group = destination.first().is_some_and(|byte| byte & 1 != 0);
        let meant = move |port: &PortState| {
            self.kind == Kind::Wire || group || port.mac.as_slice() == destination
        };
        self.ports
            .iter()
            .enumerate()
            .filter(move |(number, port)| *number != from && meant(port) && self.link_up(*number))
            .map(move |(_, port)| &port.lanes[port.rss.queue(frame)])
    }
}

fn build(options: Options, ports: &[Port], kind: Kind) -> (Vec<Vec<Queue>>, Handle) {
    let mut random = Random::new(options.seed);
    let states = ports.iter().map(|port| PortState {
        mac: port.mac,
        faults: Mutex::new(port.faults),
        up: AtomicBool::new(true),
        rss: Rss::new(&mut random, port.queues),
        lanes: (0..port.queues).map(|_| Lane::new(options.descriptors)).collect(),
    });
    let fabric = Arc::new(Fabric {
        options,
        kind,
        ports: states.collect(),
        now_ns: AtomicU64::new(0),
        tally: FaultTally::default(),
    });
    let mut queue =
        |port, index| Queue::new(fabric.clone(), port, index, Random::new(random.next_u64()));
    let queues = ports.iter().enumerate();
    let queues = queues
        .map(|(number, port)| (0..port.queues).map(|index| queue(number, index)).collect())
        .collect();
    (queues, Handle(fabric))
}

/// No lock of a fabric is held while code of others runs, so what a poisoned one guards is sound.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
