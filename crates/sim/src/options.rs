//! What a simulation is asked for, and what follows from its seed.

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND};

use clearway_engine::Congestion;
use clearway_nic::fabric::SlowPath;

use crate::faults::Kind;
use crate::host::{Nature, NicNature, any_rss};
use crate::network::{HOSTS_MAX, Link, PortNature, RouterNature, Subnet, Versions};

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything that is not given here.
    pub seed: u64,
    /// How many hosts, at least two; `None` lets the seed decide.
    pub hosts: Option<usize>,
    /// Engines of each host; `None` lets the seed decide.
    pub engines: Option<usize>,
    /// Apps speak TCP, and nothing else. Bits are not flipped then: its checksum does not find all
    /// of that.
    pub tcp: bool,
    /// Apps share memory, and ask for one-sided operations; `None` lets the seed decide.
    pub operations: Option<bool>,
    /// How much time the hosts see with faults, which is some; after it comes a calm time in which
    /// everything ends well.
    pub duration_ns: u64,
}

impl Options {
    /// Ten seconds of some hosts.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            hosts: None,
            engines: None,
            tcp: false,
            operations: None,
            duration_ns: 10 * SECOND,
        }
    }

    /// The command that runs this again.
    #[must_use]
    pub fn command(&self) -> String {
        let hosts = self.hosts.map_or(String::new(), |hosts| format!(" --hosts {hosts}"));
        let seconds = self.duration_ns as f64 / SECOND as f64;
        let engines = self.engines.map_or(String::new(), |engines| format!(" --engines {engines}"));
        let tcp = if self.tcp { " --tcp" } else { "" };
        let operations = self.operations.map_or(String::new(), |on| format!(" --operations {on}"));
        let seed = self.seed;
        format!("clearway sim --seed {seed}{hosts}{engines}{tcp}{operations} --seconds {seconds}")
    }
}

/// What a seed has decided about its network.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) natures: Vec<Nature>,
    pub(crate) ports: Vec<PortNature>,
    pub(crate) router: RouterNature,
    pub(crate) pause_ns: u64,
}

impl Profile {
    pub(crate) fn new(options: &Options, random: &mut Random) -> Self {
        let hosts = options.hosts.unwrap_or(2 + random.below(11) as usize);
        assert!((2..=HOSTS_MAX).contains(&hosts), "from 2 to {HOSTS_MAX} hosts");
        let kinds = Kind::ALL.into_iter().filter(|_| random.chance(1, 2));
        let kinds = kinds.filter(|kind| !options.tcp || *kind != Kind::BitFlips);
        let mut kinds: Vec<Kind> = kinds.collect();
        let homes = homes(random);
        let versions = versions(random);
        let slow_path = slow_path(random);
        let sleeps = random.chance(1, 4);
        let latency_ns =
            [MICROSECOND, 5 * MICROSECOND, 25 * MICROSECOND, MILLISECOND, 10 * MILLISECOND]
                [random.below(5) as usize];
        let engines = options.engines.unwrap_or([1, 1, 1, 2, 4][random.below(5) as usize]);
        let mut natures: Vec<Nature> = (0..hosts)
            .map(|host| nature(host, engines, &homes, &versions, sleeps, random))
            .collect();
        let links = (0..hosts).map(|_| link(latency_ns, slow_path, random));
        let mut ports: Vec<PortNature> = natures.iter().zip(links).map(first_port).collect();
        let router_mtu = [1280, 1400, 1500, 9000][random.below(4) as usize];
        let pause_ns = (1 + random.below(10)) * MILLISECOND * (1 + hosts as u64 / 32);
        let odd = &mut Random::new(!oddities(options.seed));
        if homes.len() > 1 && odd.chance(1, 2) {
            kinds.push(Kind::Router);
        }
        if odd.chance(1, 4) && 2 * hosts < HOSTS_MAX {
            add_second_nics(&mut natures, &mut ports, &homes, odd);
        }
        let router = RouterNature { mtu: router_mtu, says_too_large: odd.chance(1, 2) };
        Self { kinds, natures, ports, router, pause_ns }
    }
}

/// The seed for what the simulator did not have when it was young, so that the other draws of a
/// seed are still those that it once failed with.
pub(crate) const fn oddities(seed: u64) -> u64 {
    seed.rotate_left(16)
}

fn first_port((nature, link): (&Nature, Link)) -> PortNature {
    PortNature { host: nature.host as u32, subnet: nature.nics[0].subnet, link }
}

/// Half of the hosts have another NIC, with engines of its own, in the same subnet or another.
fn add_second_nics(
    natures: &mut [Nature],
    ports: &mut Vec<PortNature>,
    homes: &[Subnet],
    random: &mut Random,
) {
    for host in 0..natures.len() {
        if random.chance(1, 2) {
            let (subnet, engines) = (any(homes, random), 1 + random.below(2) as usize);
            let nic = NicNature { port: ports.len(), subnet, rss: any_rss(random), engines };
            natures[host].nics.push(nic);
            ports.push(PortNature { subnet, ..ports[host] });
        }
    }
}

/// The subnets that hosts may be in: mostly one, and mostly tagged if there are several.
fn homes(random: &mut Random) -> Vec<Subnet> {
    let count = [1, 1, 2, 3][random.below(4) as usize];
    let vlan = |number: u8, random: &mut Random| {
        let is_tagged = number > 0 || random.chance(1, 2);
        is_tagged.then_some(100 + u16::from(number))
    };
    (0..count).map(|number| Subnet { number, vlan: vlan(number, random) }).collect()
}

/// The versions of IP that hosts may speak: one for all, or each its own.
fn versions(random: &mut Random) -> Vec<Versions> {
    match random.below(6) {
        0 | 1 => vec![Versions::V4],
        2 => vec![Versions::V6],
        3 => vec![Versions::Both],
        _ => vec![Versions::V4, Versions::V6, Versions::Both, Versions::Both],
    }
}

/// What the first frames of connections go through, if anything. It keeps up with all that these
/// apps do.
fn slow_path(random: &mut Random) -> SlowPath {
    if !random.chance(1, 4) {
        return SlowPath::default();
    }
    SlowPath {
        frames_per_s: 50_000 + random.below(200_000),
        latency_ns: 20 * MICROSECOND + random.below(MILLISECOND),
        queue_frames: 1000,
        connections_max: 20_000,
    }
}

fn any<T: Copy>(of: &[T], random: &mut Random) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn nature(
    host: usize,
    engines: usize,
    homes: &[Subnet],
    versions: &[Versions],
    sleeps: bool,
    random: &mut Random,
) -> Nature {
    let (subnet, versions) = (any(homes, random), any(versions, random));
    let mtu = match random.below(8) {
        0 if versions == Versions::V4 => 576,
        0 | 1 => 1280,
        2 | 3 => 9000,
        _ => 1500,
    };
    let slow = if random.chance(1, 8) { 20 } else { 1 };
    Nature {
        host,
        versions,
        mtu,
        turn_ns: slow * (150 + random.below(200)),
        frame_ns: slow * (50 + random.below(200)),
        nics: vec![NicNature { port: host, subnet, rss: any_rss(random), engines }],
        sleeps,
        congestion: if random.chance(1, 3) { Congestion::Cubic } else { Congestion::Swift },
        clock_offset_ns: random.below(1 << 50),
        drift_ppm: random.below(400) as i32 - 200,
    }
}

fn link(latency_ns: u64, slow_path: SlowPath, random: &mut Random) -> Link {
    let bits_per_s =
        [200_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000][random.below(4) as usize];
    Link {
        bits_per_s,
        latency_ns: latency_ns + random.below(latency_ns),
        queue_bytes: (32 << 10) + random.below(1 << 20),
        marks: random.chance(1, 2),
        slow_path,
    }
}
