//! The network: each NIC has a way up to one switch and a way down from it, its port. What happens
//! to frames on a way (rate, delay, loss, damage) decides `world`'s `Way`; here is who is cut off
//! from whom.
//!
//! ```text
//!  NIC ── Way up: rate, delay, faults ──▶ switch ── Way down: rate, queue ──▶ NIC
//!                                           │ partitions, by pair and direction
//!                                         router, between subnets
//! ```

mod router;
mod subnet;

use std::collections::BTreeSet;

use clearway_base::{MICROSECOND, Random, SECOND, Time};
use clearway_nic::MacAddress;
use clearway_nic::fabric::Frame;
use clearway_world::{FaultCounts, Faults, Rate, SlowPath, Way};

use crate::agenda::{Agenda, Happening};
pub(crate) use router::RouterNature;
use router::{Routed, Router, tag_of};
pub(crate) use subnet::{Subnet, Versions, port_of};

/// Hosts of one network: what two bytes number.
pub(crate) const HOSTS_MAX: usize = 60_000;
/// How much longer a frame takes that others overtake.
pub(crate) const OVERTAKEN_NS: u64 = 40 * MICROSECOND;

/// The Ethernet address of the NIC at a port.
pub(crate) fn mac_of(port: usize) -> MacAddress {
    let [high, low] = (port as u16).to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// The Ethernet address of a virtual interface of a host, at its first port.
pub(crate) fn vif_mac_of(host: usize) -> MacAddress {
    let [high, low] = (host as u16).to_be_bytes();
    [2, 1, 0, 0, high, low]
}

/// What a link is like when nothing is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Each way.
    pub(crate) bits_per_s: u64,
    /// To the switch, and from there.
    pub(crate) latency_ns: u64,
    /// What the switch keeps for the host at most.
    pub(crate) queue_bytes: u64,
    /// It marks frames when that is a quarter full (RFC 3168).
    pub(crate) marks: bool,
    /// What the first frames of each connection that the host sends go through.
    pub(crate) slow_path: SlowPath,
}

impl Link {
    /// A link without a slow path that marks nothing.
    pub(crate) const fn plain(bits_per_s: u64, latency_ns: u64, queue_bytes: u64) -> Self {
        let slow_path =
            SlowPath { frames_per_s: 0, latency_ns: 0, queue_frames: 0, connections_max: 0 };
        Self { bits_per_s, latency_ns, queue_bytes, marks: false, slow_path }
    }

    fn rate(&self, queue_bytes: u64) -> Rate {
        Rate { bits_per_s: self.bits_per_s, queue_bytes, mark_bytes: 0 }
    }

    fn up(&self) -> Faults {
        // The host's own queue is its NIC's descriptors, which bound it before this does.
        Faults {
            rate: self.rate(u64::MAX),
            latency_ns: self.latency_ns,
            slow_path: self.slow_path,
            ..Faults::default()
        }
    }

    fn down(&self) -> Faults {
        let mark_bytes = if self.marks { self.queue_bytes / 4 } else { 0 };
        let rate = Rate { mark_bytes, ..self.rate(self.queue_bytes) };
        Faults { rate, latency_ns: self.latency_ns, ..Faults::default() }
    }
}

/// Where a NIC is: a port's number is that of the host for its first NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortNature {
    pub(crate) host: u32,
    pub(crate) subnet: Subnet,
    pub(crate) link: Link,
}

#[derive(Debug)]
struct Port {
    host: u32,
    link: Link,
    is_up: bool,
    /// When the NIC has put everything on the wire that it was given.
    busy_until: Time,
    up: Way,
    down: Way,
}

/// All links, and what is wrong with them.
#[derive(Debug)]
pub(crate) struct Network {
    ports: Vec<Port>,
    router: Router,
    /// Pairs of hosts, from and to, between which nothing gets through.
    cuts: BTreeSet<(u32, u32)>,
    random: Random,
    frames: u64,
    frames_cut: u64,
    frames_routed: u64,
}

impl Network {
    /// One with these ports, and a router between their subnets.
    pub(crate) fn new(ports: &[PortNature], router: RouterNature, seed: u64) -> Self {
        let port = |&PortNature { host, link, .. }: &PortNature| Port {
            host,
            link,
            is_up: true,
            busy_until: Time::ZERO,
            up: Way::new(link.up()),
            down: Way::new(link.down()),
        };
        let homes = ports.iter().map(|port| port.subnet).collect();
        Self {
            ports: ports.iter().map(port).collect(),
            router: Router::new(homes, router),
            cuts: BTreeSet::new(),
            random: Random::new(seed),
            frames: 0,
            frames_cut: 0,
            frames_routed: 0,
        }
    }

    /// Sends a frame from a port on its way. Returns when it has left the NIC.
    pub(crate) fn send(
        &mut self,
        now: Time,
        from: u32,
        mut frame: Vec<u8>,
        agenda: &mut Agenda,
    ) -> Time {
        self.frames += 1;
        let port = &mut self.ports[from as usize];
        if !port.is_up {
            return now;
        }
        let takes_ns = frame.len() as u64 * 8 * SECOND / port.link.bits_per_s;
        port.busy_until = port.busy_until.max(now) + takes_ns;
        let left = port.busy_until;
        let Some(fate) = port.up.enter(now, &mut Frame(&mut frame), &mut self.random) else {
            return left;
        };
        for _ in 1..fate.copies {
            agenda.note(fate.arrival, Happening::AtSwitch { from, frame: frame.clone() });
        }
        agenda.note(fate.arrival, Happening::AtSwitch { from, frame });
        left
    }

    /// The switch passes a frame on.
    pub(crate) fn forward(&mut self, now: Time, from: u32, frame: Vec<u8>, agenda: &mut Agenda) {
        let Some(first) = frame.first() else { return };
        match self.router.handle(&frame) {
            Some(Routed::Answer(answer)) => self.deliver(now, from, from, answer, agenda),
            Some(Routed::Forward { to, frame }) => {
                self.frames_routed += 1;
                self.deliver(now, from, to as u32, frame, agenda);
            }
            None => {}
        }
        let (tag, _) = tag_of(&frame);
        if first & 1 == 1 {
            for to in (0..self.ports.len() as u32).filter(|to| *to != from) {
                if self.router.reaches(to as usize, tag) {
                    self.deliver(now, from, to, frame.clone(), agenda);
                }
            }
        } else if let Some(to) = self.port_at(&frame).filter(|to| *to != from)
            && self.router.reaches(to as usize, tag)
        {
            self.deliver(now, from, to, frame, agenda);
        }
    }

    fn port_at(&self, frame: &[u8]) -> Option<u32> {
        let port = u16::from_be_bytes([*frame.get(4)?, *frame.get(5)?]);
        let is_here = usize::from(port) < self.ports.len();
        let macs = [mac_of(port.into()), vif_mac_of(port.into())];
        (is_here && macs.iter().any(|mac| frame[..6] == *mac)).then_some(port.into())
    }

    fn deliver(&mut self, now: Time, from: u32, to: u32, mut frame: Vec<u8>, agenda: &mut Agenda) {
        let from = self.ports[from as usize].host;
        let port = &mut self.ports[to as usize];
        if !port.is_up || self.cuts.contains(&(from, port.host)) {
            self.frames_cut += 1;
            return;
        }
        if let Some(fate) = port.down.enter(now, &mut Frame(&mut frame), &mut self.random) {
            agenda.note(fate.arrival, Happening::AtNic { to, frame });
        }
    }

    /// Pulls or plugs a cable.
    pub(crate) fn set_link(&mut self, port: u32, is_up: bool) {
        self.ports[port as usize].is_up = is_up;
    }

    /// The host at a port.
    pub(crate) fn host_at(&self, port: u32) -> u32 {
        self.ports[port as usize].host
    }

    /// The router loses its routes, or has them again.
    pub(crate) fn set_routes(&mut self, is_lost: bool) {
        self.router.is_lost = is_lost;
    }

    /// From now on nothing gets from one host to another, or something does again.
    pub(crate) fn cut(&mut self, from: u32, to: u32, is_cut: bool) {
        if is_cut {
            self.cuts.insert((from, to));
        } else {
            self.cuts.remove(&(from, to));
        }
    }

    /// Changes what happens to the frames that a host sends, given what its link is like.
    pub(crate) fn impair(&mut self, host: u32, change: impl FnOnce(&mut Faults)) {
        // All links of a host are alike, and the first port's number is the host's.
        let mut faults = self.ports[host as usize].link.up();
        change(&mut faults);
        let ports = self.ports.iter_mut().filter(|port| port.host == host);
        ports.for_each(|port| port.up.set_faults(faults));
    }

    /// Repairs everything.
    pub(crate) fn repair(&mut self) {
        self.cuts.clear();
        self.router.is_lost = false;
        for port in &mut self.ports {
            port.is_up = true;
            port.up.set_faults(port.link.up());
        }
    }

    /// How long a frame that came now would wait for the link from the switch to a port.
    pub(crate) fn wait_ns(&self, now: Time, port: u32) -> u64 {
        self.ports[port as usize].down.wait_ns(now)
    }

    /// Frames that hosts have sent so far.
    pub(crate) const fn frames(&self) -> u64 {
        self.frames
    }

    /// The fault counts of all ways, by name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut sum = FaultCounts::default();
        for port in &self.ports {
            sum += port.up.counts();
            sum += port.down.counts();
        }
        vec![
            ("frames", self.frames),
            ("frames_lost", sum.lost),
            ("frames_duplicated", sum.duplicated),
            ("frames_corrupted", sum.corrupted),
            ("frames_delayed", sum.delayed),
            ("frames_overflowed", sum.overflowed),
            ("frames_marked", sum.marked),
            ("frames_slow", sum.slow),
            ("frames_cut", self.frames_cut),
            ("frames_routed", self.frames_routed),
            ("frames_without_route", self.router.without_route),
            ("frames_said_too_large", self.router.said_too_large),
        ]
    }
}
