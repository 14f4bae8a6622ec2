//! More and more hosts, each of which talks to some others: what the same messages cost, and what
//! memory a host takes.

use clearway_base::{MICROSECOND, MILLISECOND};
use clearway_channel::Completion;
use clearway_engine::Congestion;
use serde::Serialize;

use super::stage::{SMALLEST, Stage};
use super::{PART_MESSAGES, median};
use crate::network::Link;

const LINK: Link = Link::plain(100_000_000_000, 5 * MICROSECOND, 1 << 20);
/// Connections that each host opens; on average as many are opened to it. With few hosts, several
/// go to the same one, so that each host has as much to do as among many.
const CONNECTIONS: usize = 8;
/// Messages of all hosts together that are measured, after some to warm up.
const MESSAGES: u64 = 400_000;
const MESSAGE_BYTES: u32 = 64;
/// Hosts that begin at the same time: all at once, each of which asks all others for Ethernet
/// addresses, would be a storm of their own.
const HOSTS_AT_ONCE: usize = 16;
/// After this time nothing of a beginning is under way any more.
const SETTLE_NS: u64 = 20 * MILLISECOND;

/// What messages cost among so many hosts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HostsCost {
    /// Hosts of one engine each, with 16 connections each, on all of which one message is under
    /// way.
    pub hosts: usize,
    /// Time in the turns of the engines of both hosts per message.
    pub cpu_ns_per_message: f64,
    /// Frames that the hosts sent per message, acknowledgements included.
    pub frames_per_message: f64,
    /// Simulated time per message of a connection.
    pub latency_ns: f64,
}

/// What a host takes of memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HostMemory {
    /// Hosts, with 16 connections each.
    pub hosts: usize,
    /// The channel of its one app: rings and pools of the smallest size, all of which is there from
    /// the beginning.
    pub channel_bytes: u64,
    /// Engine and NIC.
    pub engine_bytes: u64,
    /// What engine and app keep of who has which part of the pools.
    pub books_bytes: u64,
    /// Its 16 connections once messages went both ways, and what it knows of its neighbours.
    pub connections_bytes: u64,
}

/// Measures the cost among so many hosts.
///
/// # Panics
/// If a host cannot connect.
#[must_use]
pub fn hosts(hosts: usize) -> HostsCost {
    let mut mesh = Mesh::new(hosts);
    mesh.seat();
    mesh.connect();
    mesh.exchange(MESSAGES / 4);
    mesh.settle();
    let (frames, began) = (mesh.frames(), mesh.stage.now);
    let cpu_ns_per_message = mesh.exchange(MESSAGES);
    let took_ns = mesh.stage.now.since(began);
    let under_way = (hosts * CONNECTIONS) as f64;
    HostsCost {
        hosts,
        cpu_ns_per_message,
        frames_per_message: (mesh.frames() - frames) as f64 / MESSAGES as f64,
        latency_ns: took_ns as f64 * under_way / MESSAGES as f64,
    }
}

/// Measures the memory of so many hosts, by what `heap_bytes` says that is allocated.
///
/// # Panics
/// If a host cannot connect.
#[must_use]
pub fn host_memory(hosts: usize, heap_bytes: &dyn Fn() -> u64) -> HostMemory {
    let part = |from: u64, to: u64| to.saturating_sub(from) / hosts as u64;
    let nothing = heap_bytes();
    let mut mesh = Mesh::new(hosts);
    let with_engines = heap_bytes();
    mesh.seat();
    let with_apps = heap_bytes();
    mesh.connect();
    mesh.exchange(PART_MESSAGES.max(4 * (hosts * CONNECTIONS) as u64));
    mesh.settle();
    let with_connections = heap_bytes();
    HostMemory {
        hosts,
        channel_bytes: SMALLEST.total_bytes() as u64,
        engine_bytes: part(nothing, with_engines),
        books_bytes: part(with_engines, with_apps),
        connections_bytes: part(with_apps, with_connections),
    }
}

/// Hosts with an app each, that sends to some others what comes back at once.
struct Mesh {
    stage: Stage,
    hosts: usize,
    /// Connections that were opened here, by host.
    opened: Vec<Vec<u64>>,
    received: u64,
    /// Messages are answered.
    is_going: bool,
}

impl Mesh {
    fn new(hosts: usize) -> Self {
        let stage = Stage::new(&vec![LINK; hosts], 1, Congestion::Swift, 1);
        Self { stage, hosts, opened: vec![Vec::new(); hosts], received: 0, is_going: false }
    }

    /// Gives each host its app.
    fn seat(&mut self) {
        for host in 0..self.hosts as u32 {
            self.stage.seat(host, 0, true, SMALLEST);
        }
        self.settle();
    }

    fn connect(&mut self) {
        for first in (0..self.hosts).step_by(HOSTS_AT_ONCE) {
            let beginners = first..self.hosts.min(first + HOSTS_AT_ONCE);
            for seat in beginners.clone() {
                for number in 0..CONNECTIONS {
                    let peer = (seat + 1 + number % (self.hosts - 1)) % self.hosts;
                    assert!(
                        self.stage.connect(seat, peer, 0, false),
                        "room for {CONNECTIONS} commands"
                    );
                }
                self.stage.ring(seat);
            }
            while beginners.clone().any(|seat| self.opened[seat].len() < CONNECTIONS) {
                self.step();
            }
        }
        self.settle();
    }

    /// One message goes back and forth on each connection, until so many have come. Returns what
    /// one costs. What is under way then is not answered any more.
    fn exchange(&mut self, messages: u64) -> f64 {
        self.is_going = true;
        for seat in 0..self.hosts {
            for index in 0..CONNECTIONS {
                let connection = self.opened[seat][index];
                assert!(self.stage.send(seat, connection, MESSAGE_BYTES), "room to begin");
            }
            self.stage.ring(seat);
        }
        let costs = (0..messages / PART_MESSAGES).map(|_| self.part_ns()).collect();
        self.is_going = false;
        median(costs)
    }

    /// Lets some more messages come. Returns what one costs.
    fn part_ns(&mut self) -> f64 {
        let (end, before_ns) = (self.received + PART_MESSAGES, self.stage.cpu_ns);
        while self.received < end {
            self.step();
        }
        (self.stage.cpu_ns - before_ns) as f64 / PART_MESSAGES as f64
    }

    fn settle(&mut self) {
        let end = self.stage.now + SETTLE_NS;
        while self.stage.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        let Self { stage, opened, received, is_going, .. } = self;
        let mut answers = Vec::new();
        stage.step(&mut |seat, completion| match *completion {
            Completion::Connected { connection, .. } => opened[seat].push(connection),
            Completion::Received { connection, .. } => {
                *received += 1;
                answers.push((seat, connection));
            }
            _ => {}
        });
        if !*is_going {
            return;
        }
        for (seat, connection) in &answers {
            assert!(stage.send(*seat, *connection, MESSAGE_BYTES), "room for an answer");
        }
        answers.first().into_iter().for_each(|(seat, _)| stage.ring(*seat));
    }

    fn frames(&self) -> u64 {
        self.stage.network.frames()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_costs_much_the_same_frames_among_two_hosts_and_twenty() {
        let (two, twenty) = (super::hosts(2), super::hosts(20));
        assert!(two.cpu_ns_per_message > 0.0 && two.latency_ns > 10_000.0, "{two:?}");
        let ratio = twenty.frames_per_message / two.frames_per_message;
        assert!((0.5..2.0).contains(&ratio), "{two:?} {twenty:?}");
    }
}
