//! What goes wrong, and when: a schedule that follows from the seed.
//!
//! Each seed allows some kinds of faults and not others ("swarm testing", Groce et al., ISSTA 2012:
//! a random part of all features finds more than all of them at once).

use clearway_base::{MILLISECOND, Random, SECOND, Time};
use clearway_nic::fabric::{Bursts, Faults, SlowPath};

use crate::network::OVERTAKEN_NS;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Frames of a host are lost, up to 30 %.
    Loss,
    /// They are lost in bursts.
    Bursts,
    /// Some are overtaken by others.
    Reordering,
    /// Some arrive twice.
    Duplication,
    /// Bits are flipped.
    BitFlips,
    /// They take much longer than before.
    Delay,
    /// The first ones of each connection go through a slow path that does not keep up.
    SlowPath,
    /// Nothing gets from one host to another, or both ways.
    Partition,
    /// A cable is pulled.
    Link,
    /// A clock steps, forward or back.
    ClockStep,
    /// A host does not run for a while, and its NIC overflows.
    Stall,
    /// An app does not run for a while.
    Stop,
    /// An app dies.
    AppCrash,
    /// A daemon dies, and comes back.
    HostCrash,
    /// A listener or an interface goes and comes back.
    Listener,
    /// An app lies to its daemon.
    Hostile,
    /// Many connect to one server at once.
    FanIn,
    /// A NIC chooses its queues in another way than before.
    Rekey,
    /// The router between subnets passes nothing on, and says so.
    Router,
}

impl Kind {
    /// Those of any network.
    pub(crate) const ALL: [Self; 18] = [
        Self::Loss,
        Self::Bursts,
        Self::Reordering,
        Self::Duplication,
        Self::BitFlips,
        Self::Delay,
        Self::SlowPath,
        Self::Partition,
        Self::Link,
        Self::ClockStep,
        Self::Stall,
        Self::Stop,
        Self::AppCrash,
        Self::HostCrash,
        Self::Listener,
        Self::Hostile,
        Self::FanIn,
        Self::Rekey,
    ];

    /// The name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Bursts => "bursts of loss",
            Self::Reordering => "reordering",
            Self::Duplication => "duplication",
            Self::BitFlips => "bit flips",
            Self::Delay => "delay jumps",
            Self::SlowPath => "slow paths",
            Self::Partition => "partitions",
            Self::Link => "links down",
            Self::ClockStep => "clock steps",
            Self::Stall => "stalls",
            Self::Stop => "stopped apps",
            Self::AppCrash => "app crashes",
            Self::HostCrash => "host crashes",
            Self::Listener => "listeners gone",
            Self::Hostile => "hostile apps",
            Self::FanIn => "fan-ins",
            Self::Rekey => "re-keyed RSS",
            Self::Router => "routes lost",
        }
    }

    /// What it does to the frames that a host sends, if that is what it does.
    pub(crate) fn harm(self, random: &mut Random, faults: &mut Faults) {
        let ppm = |random: &mut Random, percent: u64| random.below(percent * 10_000) as u32;
        match self {
            Self::Loss => faults.loss_ppm = ppm(random, 30),
            Self::Bursts => {
                faults.bursts = Bursts {
                    start_ppm: 500 + ppm(random, 2),
                    end_ppm: 20_000 + ppm(random, 30),
                    loss_ppm: 500_000 + ppm(random, 50),
                };
            }
            Self::Reordering => {
                faults.delay_ppm = ppm(random, 30);
                faults.delay_ns_max = random.below(20 * OVERTAKEN_NS) + OVERTAKEN_NS;
            }
            Self::Duplication => faults.duplication_ppm = ppm(random, 20),
            Self::BitFlips => faults.corruption_ppm = ppm(random, 10),
            Self::Delay => {
                faults.latency_ns += random.below(50 * MILLISECOND);
                faults.jitter_ns = random.below(MILLISECOND);
            }
            Self::SlowPath => {
                faults.slow_path = SlowPath {
                    frames_per_s: 100 + random.below(20_000),
                    latency_ns: random.below(10 * MILLISECOND),
                    queue_frames: 1 + random.below(200),
                    connections_max: 1 + random.below(1000) as usize,
                };
            }
            _ => {}
        }
    }

    /// True if it changes frames on their way only.
    pub(crate) const fn is_harm(self) -> bool {
        matches!(
            self,
            Self::Loss
                | Self::Bursts
                | Self::Reordering
                | Self::Duplication
                | Self::BitFlips
                | Self::Delay
                | Self::SlowPath
        )
    }
}

/// A moment of the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// One begins; the world draws where, and for how long.
    Begin(Kind),
    /// The frames of a host are harmed no more.
    Unharm { host: u32 },
    /// What was cut is joined.
    Join { from: u32, to: u32 },
    /// The cable of a port is in again.
    Plug { port: u32 },
    /// The router has its routes again.
    Route,
    /// An app that has been away listens again, or has its interface again.
    Listen { app: u32 },
    /// An app begins to ask for what is in a vault, with or without a right.
    Forge,
    /// An app that lies is removed.
    Banish { app: u32 },
    /// An engine is saved, dropped, and made again.
    Restore,
    /// Everything is repaired.
    Calm,
    /// Apps begin nothing new.
    Ending,
}

/// The moments of one round that ends with calm at `calm`.
pub(crate) fn schedule(
    random: &mut Random,
    kinds: &[Kind],
    hosts: usize,
    start: Time,
    calm: Time,
) -> Vec<(Time, Fault)> {
    let span_ns = calm.since(start);
    let per_second = 1 + random.below(2 + hosts as u64 / 4);
    let count = if kinds.is_empty() { 0 } else { per_second * span_ns / SECOND };
    let one = |random: &mut Random| {
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        (start + random.below(span_ns), Fault::Begin(kind))
    };
    let mut moments: Vec<_> = (0..count).map(|_| one(random)).collect();
    moments.push((calm, Fault::Calm));
    moments
}
