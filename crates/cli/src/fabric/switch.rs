//! The switch of a fabric: moves frames from port to port, by the addresses that it was told or has
//! learned.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use clearway_base::{Random, Time};
use clearway_nic::fabric::{Fate, Frame};
use clearway_nic::{MacAddress, Queue as _, memif};

use clearway_daemon::Error;
use rustix::rand::{GetRandomFlags, getrandom};

use super::config::Fabric;
use super::counters::PortCounters;
use super::orders::Change;
use super::port::Port;

/// Frames from one queue in one turn.
const BURST: usize = 64;
/// Addresses learned at most. Frames to those beyond go to all ports.
const ADDRESSES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Switch {
    core: Core,
    /// By port, as in `core`.
    queues: Vec<Vec<memif::Queue>>,
}

/// Everything but the queues.
#[derive(Debug)]
struct Core {
    ports: Vec<Port>,
    /// Which port a station is behind.
    stations: HashMap<MacAddress, usize>,
    /// Those that the configuration names; nothing is learned about them.
    fixed: Vec<MacAddress>,
    /// The last station that each port has heard from, which it most often hears from again.
    heard: Vec<MacAddress>,
    random: Random,
    now: Time,
    /// A frame that may be changed.
    scratch: Vec<u8>,
}

impl Switch {
    /// Opens all ports.
    pub(super) fn open(config: &Fabric) -> Result<Self, Error> {
        let seed = config.seed.map_or_else(drawn_seed, Ok)?;
        let mut random = Random::new(seed);
        let count = config.ports.len();
        let (mut ports, mut queues) = (Vec::new(), Vec::new());
        for port in &config.ports {
            let (port, of_port) = Port::open(port, count, &mut random)?;
            ports.push(port);
            queues.push(of_port);
        }
        let fixed = config.ports.iter().zip(0..).filter_map(|(port, at)| Some((port.mac?, at)));
        let stations: HashMap<MacAddress, usize> = fixed.collect();
        let core = Core {
            ports,
            fixed: stations.keys().copied().collect(),
            stations,
            heard: vec![[0; 6]; count],
            random,
            now: Time::ZERO,
            scratch: Vec::new(),
        };
        Ok(Self { core, queues })
    }

    /// Moves what has come and what has arrived; true if there was anything.
    pub(super) fn turn(&mut self, now: Time) -> bool {
        self.core.now = now;
        let mut frames = 0;
        for from in 0..self.queues.len() {
            // Nothing goes back to where it came from, so the others are all that is written to.
            let mut own = std::mem::take(&mut self.queues[from]);
            for (number, queue) in own.iter_mut().enumerate() {
                frames += queue.receive(BURST, &mut |burst, _| {
                    for frame in burst {
                        self.core.ports[from].count_received(number, frame);
                        self.core.forward(from, frame, &mut self.queues);
                    }
                });
            }
            self.queues[from] = own;
        }
        for (port, queues) in self.core.ports.iter_mut().zip(&mut self.queues) {
            port.follow_link(queues, &mut self.core.random);
            frames += port.deliver_arrived(queues, now);
            port.flush(queues);
        }
        frames > 0
    }

    /// Asks for a wake-up at the next frame. False if there is something to do already.
    pub(super) fn arm(&mut self, now: Time) -> bool {
        let quiet = self.core.ports.iter().all(|port| !port.transit().wants_polling(now));
        quiet && self.queues.iter_mut().flatten().all(memif::Queue::arm)
    }

    pub(super) fn disarm(&mut self) {
        self.queues.iter_mut().flatten().for_each(memif::Queue::disarm);
    }

    /// What becomes readable when frames come.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().flatten().filter_map(memif::Queue::wait_fd)
    }

    /// When the next frame that is under way arrives.
    pub(super) fn next_arrival(&self) -> Option<Time> {
        self.core.ports.iter().filter_map(|port| port.transit().next_arrival()).min()
    }

    pub(super) fn counters(&self) -> Vec<PortCounters> {
        let ports = self.core.ports.iter().zip(&self.queues);
        ports.map(|(port, queues)| port.counters(queues)).collect()
    }

    /// Does as it was told; an error names a port that does not exist.
    pub(super) fn change(&mut self, change: &Change) -> Result<(), String> {
        let Core { ports, random, .. } = &mut self.core;
        let find = |name: &str| {
            let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            let found = names.iter().position(|other| *other == name);
            found.ok_or_else(|| {
                format!("there is no port \"{name}\"; those there are: {}", names.join(", "))
            })
        };
        match change {
            Change::Rekey { port: None } => ports.iter_mut().for_each(|port| port.rekey(random)),
            Change::Rekey { port: Some(port) } => {
                let at = find(port)?;
                ports[at].rekey(random);
            }
            Change::Link { port, up } => {
                let at = find(port)?;
                ports[at].is_plugged = *up;
            }
            Change::Cut { from, to, cut } => {
                let (from, to) = (find(from)?, find(to)?);
                ports[to].cut_from[from] = *cut;
            }
        }
        Ok(())
    }
}

impl Core {
    /// A frame has come from port `from`, whose queues are not among `queues` at the moment.
    fn forward(&mut self, from: usize, frame: &[u8], queues: &mut [Vec<memif::Queue>]) {
        let Some((to, source)) = frame
            .split_first_chunk::<6>()
            .and_then(|(to, rest)| Some((*to, *rest.first_chunk::<6>()?)))
        else {
            return;
        };
        if !self.ports[from].is_plugged {
            self.ports[from].counters.dropped_down += 1;
            return;
        }
        self.learn(source, from);
        let mut fate = Fate { arrival: self.now, copies: 1, overtaken_by: 0 };
        let sends = &mut self.ports[from].sends;
        if sends.is_perfect() {
            return self.distribute(from, to, frame, fate, queues);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(frame);
        if let Some(decided) = sends.enter(self.now, &mut Frame(&mut scratch), &mut self.random) {
            fate = decided;
            self.distribute(from, to, &scratch, fate, queues);
        }
        self.scratch = scratch;
    }

    fn learn(&mut self, source: MacAddress, from: usize) {
        let is_group = source[0] & 1 != 0;
        if self.heard[from] == source || is_group || self.fixed.contains(&source) {
            return;
        }
        if self.stations.len() < ADDRESSES_MAX || self.stations.contains_key(&source) {
            self.stations.insert(source, from);
            // Whoever else has heard from it would not look again.
            self.heard
                .iter_mut()
                .filter(|heard| **heard == source)
                .for_each(|heard| *heard = [0; 6]);
            self.heard[from] = source;
        }
    }

    /// To the port that has the station; to all but its own if that is not known, or a group.
    fn distribute(
        &mut self,
        from: usize,
        to: MacAddress,
        frame: &[u8],
        fate: Fate,
        queues: &mut [Vec<memif::Queue>],
    ) {
        let known = self.stations.get(&to).copied();
        let targets = known.map_or(0..self.ports.len(), |at| at..at + 1);
        for target in targets.filter(|target| *target != from) {
            let port = &mut self.ports[target];
            if !port.is_plugged || port.cut_from[from] {
                port.counters.dropped_down += 1;
                continue;
            }
            port.take(&mut queues[target], frame, fate, self.now, &mut self.random);
        }
    }
}

fn drawn_seed() -> Result<u64, Error> {
    let mut seed = [0; 8];
    getrandom(&mut seed, GetRandomFlags::empty())
        .map_err(|error| Error::resources("draw random numbers", error))?;
    Ok(u64::from_ne_bytes(seed))
}
