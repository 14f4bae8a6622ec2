//! What a simulation is asked for, and what follows from its seed.

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND};

use clearway_engine::Congestion;

use crate::faults::Kind;
use crate::host::{Nature, any_rss};
use crate::network::{HOSTS_MAX, Link};

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything that is not given here.
    pub seed: u64,
    /// How many hosts, at least two; `None` lets the seed decide.
    pub hosts: Option<usize>,
    /// Engines of each host; `None` lets the seed decide.
    pub engines: Option<usize>,
    /// How much time the hosts see with faults, at least a second; after it comes a calm time in which
    /// everything ends well.
    pub duration_ns: u64,
}

impl Options {
    /// Ten seconds of some hosts.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, hosts: None, engines: None, duration_ns: 10 * SECOND }
    }

    /// The command that runs this again.
    #[must_use]
    pub fn command(&self) -> String {
        let hosts = self.hosts.map_or(String::new(), |hosts| format!(" --hosts {hosts}"));
        let seconds = self.duration_ns as f64 / SECOND as f64;
        let engines = self.engines.map_or(String::new(), |engines| format!(" --engines {engines}"));
        format!("clearway sim --seed {}{hosts}{engines} --seconds {seconds}", self.seed)
    }
}

/// What a seed has decided about its network.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) natures: Vec<Nature>,
    pub(crate) links: Vec<Link>,
    pub(crate) pause_ns: u64,
}

impl Profile {
    pub(crate) fn new(options: &Options, random: &mut Random) -> Self {
        let hosts = options.hosts.unwrap_or(2 + random.below(11) as usize);
        assert!((2..=HOSTS_MAX).contains(&hosts), "from 2 to {HOSTS_MAX} hosts");
        let kinds = Kind::ALL.into_iter().filter(|_| random.chance(1, 2)).collect();
        let is_v6 = random.chance(1, 3);
        let latency_ns =
            [MICROSECOND, 5 * MICROSECOND, 25 * MICROSECOND, MILLISECOND, 10 * MILLISECOND]
                [random.below(5) as usize];
        let engines = options.engines.unwrap_or([1, 1, 1, 2, 4][random.below(5) as usize]);
        let natures = (0..hosts).map(|host| nature(host, engines, is_v6, random)).collect();
        let links = (0..hosts).map(|_| link(latency_ns, random)).collect();
        let pause_ns = (1 + random.below(10)) * MILLISECOND * (1 + hosts as u64 / 32);
        Self { kinds, natures, links, pause_ns }
    }
}

fn nature(host: usize, engines: usize, is_v6: bool, random: &mut Random) -> Nature {
    let mtu = match random.below(8) {
        0 if !is_v6 => 576,
        0 | 1 => 1280,
        2 | 3 => 9000,
        _ => 1500,
    };
    let slow = if random.chance(1, 8) { 20 } else { 1 };
    Nature {
        host,
        is_v6,
        mtu,
        turn_ns: slow * (150 + random.below(200)),
        frame_ns: slow * (50 + random.below(200)),
        rss: any_rss(random),
        engines,
        congestion: if random.chance(1, 3) { Congestion::Cubic } else { Congestion::Swift },
        clock_offset_ns: random.below(1 << 50),
        drift_ppm: random.below(400) as i32 - 200,
    }
}

fn link(latency_ns: u64, random: &mut Random) -> Link {
    let bits_per_s =
        [200_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000][random.below(4) as usize];
    Link {
        bits_per_s,
        latency_ns: latency_ns + random.below(latency_ns),
        queue_bytes: (32 << 10) + random.below(1 << 20),
        marks: random.chance(1, 2),
    }
}
