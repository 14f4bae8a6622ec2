//! NICs in memory, for tests: a wire between two queues, or a switch between NICs of several
//! queues. Faults come from a seed, so that a failure can be replayed; there is no clock but the
//! one that the test sets ([`Handle::set_time`]).
//!
//! Each NIC is no more than the LCD NIC that the stack takes for granted: 256 descriptors per queue
//! and RSS whose key nobody can read ([`switch`]). A wire never loses a frame by itself: like a
//! memif, it says [`crate::Transmit::Full`] while the receiver has not made room. A switch does as
//! real ones do: a frame that finds its receive queue full is dropped and counted there.
//!
//! Used by one thread, the same calls give the same frames. With a thread for each queue, the
//! faults of each queue are still the same, but not how its frames interleave with those of other
//! queues.

//! What can happen to frames, and to which queue they go, is decided by cores that need no fabric:
//! [`Way`] and [`Transit`] of `clearway_world`, and [`Rss`]. The command `clearway fabric` uses
//! them too.

mod ecn;
mod frame;
mod lane;
mod queue;
mod rss;
mod tuple;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_base::{Random, Time};

pub use clearway_world::{Bursts, Fate, FaultCounts, Faults, Rate, SlowPath, Transit, Way};
pub use frame::Frame;
pub use queue::Queue;
pub use rss::{Hash, Rss, RssOptions};

use crate::{LCD_DESCRIPTORS, MacAddress};
use lane::Lane;

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
    /// How frames are spread over them.
    pub rss: RssOptions,
    /// What happens to frames that it sends, before the switch.
    pub sends: Faults,
    /// What happens to frames that it receives, after the switch; the place for a rate limit at
    /// which many senders meet.
    pub receives: Faults,
}

impl Port {
    /// A NIC with a perfect wire to the switch and a Toeplitz hash.
    #[must_use]
    pub fn new(mac: MacAddress, queues: usize) -> Self {
        let perfect = Faults::default();
        Self { mac, queues, rss: RssOptions::default(), sends: perfect, receives: perfect }
    }
}

/// Two queues at the ends of a wire. `faults` are for frames from the first to the second, and
/// back. Their addresses are 02:00:00:00:00:01 and :02.
#[must_use]
pub fn pair(options: Options, faults: [Faults; 2]) -> (Queue, Queue, Handle) {
    let port = |number, sends| Port { sends, ..Port::new([2, 0, 0, 0, 0, number], 1) };
    let ports = [port(1, faults[0]), port(2, faults[1])];
    let (queues, handle) = build(options, &ports, Kind::Wire);
    let mut queues = queues.into_iter().flatten();
    let (Some(first), Some(second)) = (queues.next(), queues.next()) else {
        unreachable!("two ports of one queue each")
    };
    (first, second, handle)
}

/// A switch with these NICs, and the queues of each. It forwards by destination address; frames to
/// a group address go to all others.
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
        lock(&self.0.ports[port].sends).set_faults(faults);
    }

    /// Cuts the way from one port to another, or mends it; the way back stays as it is.
    pub fn set_cut(&self, from: usize, to: usize, cut: bool) {
        self.0.ports[from].cut[to].store(cut, Ordering::Release);
    }

    /// Gives port `port` another RSS key and table, as a cloud does when it moves a machine.
    pub fn rekey(&self, port: usize) {
        let Fabric { ports, random, .. } = &*self.0;
        let mut rss = lock(&ports[port].rss);
        *rss = Rss::new(rss.options(), ports[port].lanes.len(), &mut lock(random));
    }

    /// The queue of port `port` to which a frame goes: what nobody outside knows.
    #[must_use]
    pub fn queue_of(&self, port: usize, frame: &[u8]) -> usize {
        lock(&self.0.ports[port].rss).queue(frame)
    }

    /// Plugs port `port` in or out. A wire is up while both its ends are.
    pub fn set_link(&self, port: usize, up: bool) {
        self.0.ports[port].up.store(up, Ordering::Release);
        self.0.lanes().for_each(Lane::wake);
    }

    /// How many frames all ports together have sent so far.
    #[must_use]
    pub fn frames_sent(&self) -> u64 {
        self.0.ports.iter().map(|port| lock(&port.sends).frames()).sum()
    }

    /// How many frames had which fault so far.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        let mut sum = FaultCounts::default();
        for port in &self.0.ports {
            sum += lock(&port.sends).counts();
            sum += lock(&port.receives).counts();
        }
        sum
    }
}

/// What all queues of a fabric share.
#[derive(Debug)]
struct Fabric {
    options: Options,
    kind: Kind,
    ports: Vec<PortState>,
    now_ns: AtomicU64,
    /// Draws new RSS keys.
    random: Mutex<Random>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Wire,
    Switch,
}

#[derive(Debug)]
struct PortState {
    mac: MacAddress,
    sends: Mutex<Way>,
    receives: Mutex<Way>,
    up: AtomicBool,
    /// To which other ports nothing gets through.
    cut: Vec<AtomicBool>,
    rss: Mutex<Rss>,
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

    /// The ports that a frame from port `from` goes to.
    fn targets(&self, from: usize, frame: &[u8]) -> impl Iterator<Item = usize> + use<'_> {
        let mut destination = [0; 6];
        let length = frame.len().min(destination.len());
        destination[..length].copy_from_slice(&frame[..length]);
        let group = destination[0] & 1 != 0;
        let meant =
            move |to: usize| self.kind == Kind::Wire || group || self.ports[to].mac == destination;
        let cut = move |to: usize| self.ports[from].cut[to].load(Ordering::Acquire);
        (0..self.ports.len())
            .filter(move |to| *to != from && meant(*to) && self.link_up(*to) && !cut(*to))
    }
}

fn build(options: Options, ports: &[Port], kind: Kind) -> (Vec<Vec<Queue>>, Handle) {
    let mut random = Random::new(options.seed);
    let states = ports.iter().map(|port| PortState {
        mac: port.mac,
        sends: Mutex::new(Way::new(port.sends)),
        receives: Mutex::new(Way::new(port.receives)),
        up: AtomicBool::new(true),
        cut: ports.iter().map(|_| AtomicBool::new(false)).collect(),
        rss: Mutex::new(Rss::new(port.rss, port.queues, &mut random)),
        lanes: (0..port.queues).map(|_| Lane::new(options.descriptors)).collect(),
    });
    let fabric = Arc::new(Fabric {
        options,
        kind,
        ports: states.collect(),
        now_ns: AtomicU64::new(0),
        random: Mutex::new(Random::new(random.next_u64())),
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
