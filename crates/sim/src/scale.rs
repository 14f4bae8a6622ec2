//! What it costs to have many: the same messages over more and more flows between two engines, and flows
//! that share one link. The hosts, links and time are those of the simulator; what is measured is the time
//! that this machine's processor spends in the engines' turns.

use std::net::SocketAddr;
use std::time::Instant;

use clearway_base::{MICROSECOND, Random, SECOND, Time};
use clearway_channel::{AppEnd, Code, Command, Completion, DaemonEnd, Extent, Sizes};
use clearway_engine::{Congestion, Event, Request};
use clearway_nic::fabric::RssOptions;
use serde::Serialize;

use crate::agenda::{Agenda, Happening};
use crate::host::{Host, Nature};
use crate::network::{Link, Network};

/// Messages that are measured, after as many to warm up.
const MESSAGES: u64 = 40_000;
const MESSAGE_BYTES: u32 = 64;
/// Messages under way at a time.
const WINDOW: u64 = 64;
/// Connection attempts under way at a time.
const ATTEMPTS: u64 = 256;
const PORT: u16 = 7000;
const SIZES: Sizes = Sizes {
    submission_entries: 1024,
    completion_entries: 4096,
    transmit_pool_bytes: 16 << 20,
    receive_pool_bytes: 64 << 20,
};

/// What so many flows between two engines cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FlowCost {
    /// Flows of each engine.
    pub flows: u64,
    /// Time in the turns of both engines per message.
    pub cpu_ns_per_message: f64,
    /// Time in them per connection that was opened.
    pub cpu_ns_per_connection: f64,
    /// Memory that the process took per flow, both ends together.
    pub memory_bytes_per_flow: u64,
}

/// Measures with so many flows.
///
/// # Panics
/// If a flow cannot be opened.
#[must_use]
pub fn flows(flows: u64) -> FlowCost {
    let mut pair = Pair::new();
    let memory_before = resident_bytes();
    pair.connect(flows);
    let memory_bytes = resident_bytes().saturating_sub(memory_before);
    let connecting_ns = pair.cpu_ns;
    pair.exchange(MESSAGES);
    let before_ns = pair.cpu_ns;
    pair.exchange(MESSAGES);
    FlowCost {
        flows,
        cpu_ns_per_message: (pair.cpu_ns - before_ns) as f64 / MESSAGES as f64,
        cpu_ns_per_connection: connecting_ns as f64 / flows as f64,
        memory_bytes_per_flow: memory_bytes / flows,
    }
}

/// Memory of this process that is there, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Two hosts, of which the first sends to the second.
struct Pair {
    now: Time,
    agenda: Agenda,
    network: Network,
    hosts: Vec<Host>,
    apps: Vec<AppEnd>,
    connections: Vec<u64>,
    attempted: u64,
    /// The connection that sends next.
    turn: usize,
    extents: Vec<Extent>,
    received: u64,
    cpu_ns: u64,
}

impl Pair {
    fn new() -> Self {
        let mut random = Random::new(1);
        let now = Time::from_ns(SECOND);
        let link = Link {
            bits_per_s: 100_000_000_000,
            latency_ns: 2 * MICROSECOND,
            queue_bytes: 1 << 20,
            marks: false,
        };
        let mut hosts: Vec<Host> =
            (0..2).map(|host| Host::new(nature(host), now, &mut random)).collect();
        let apps = hosts.iter_mut().map(attach).collect();
        hosts[1].listen(0, 0, 1, PORT);
        let mut pair = Self {
            now,
            agenda: Agenda::default(),
            network: Network::new(&[link; 2], 1),
            hosts,
            apps,
            connections: Vec::new(),
            attempted: 0,
            turn: 0,
            extents: Vec::new(),
            received: 0,
            cpu_ns: 0,
        };
        (0..2).for_each(|host| pair.wake(host, now));
        pair
    }

    /// Opens so many connections.
    fn connect(&mut self, flows: u64) {
        let peer = SocketAddr::new(self.hosts[1].address(), PORT);
        while (self.connections.len() as u64) < flows {
            while self.attempted < flows
                && self.attempted - (self.connections.len() as u64) < ATTEMPTS
                && self.apps[0].submit(&Command::Connect { token: self.attempted, peer }).is_ok()
            {
                self.attempted += 1;
            }
            self.ring(0);
            self.step();
        }
    }

    /// Sends so many messages over all connections in turn, until all have come.
    fn exchange(&mut self, messages: u64) {
        let (start, mut sent) = (self.received, 0);
        while self.received - start < messages {
            while sent < messages && sent - (self.received - start) < WINDOW && self.send() {
                sent += 1;
            }
            self.ring(0);
            self.step();
        }
    }

    /// One message. All stand in the same bytes, which nobody writes.
    fn send(&mut self) -> bool {
        let app = &mut self.apps[0];
        if self.extents.is_empty() {
            self.extents.extend(app.allocate(MESSAGE_BYTES));
        }
        let offset = self.extents[0].offset();
        let connection = self.connections[self.turn];
        let send = Command::Send { connection, stream: 0, offset, length: MESSAGE_BYTES };
        if app.submit(&send).is_err() {
            return false;
        }
        self.turn = (self.turn + 1) % self.connections.len();
        true
    }

    fn ring(&mut self, host: u32) {
        self.apps[host as usize].flush();
        self.wake(host, self.now);
    }

    fn wake(&mut self, host: u32, at: Time) {
        let place = &mut self.hosts[host as usize];
        let Some(at) = place.earliest(0, at) else { return };
        if let Some(at) = place.runners[0].alarm.set(at) {
            self.agenda.note(at, Happening::Turn { host, engine: 0 });
        }
    }

    fn step(&mut self) {
        let Some((at, what)) = self.agenda.next() else { return };
        self.now = at;
        match what {
            Happening::Turn { host, .. } => self.run(host),
            Happening::AtSwitch { from, frame } => {
                self.network.forward(at, from, frame, &mut self.agenda);
            }
            Happening::AtNic { to, frame } => {
                let has_come = self.hosts[to as usize].arrive(frame).is_some();
                if has_come {
                    self.wake(to, at);
                }
            }
            _ => {}
        }
    }

    fn run(&mut self, host: u32) {
        let place = &mut self.hosts[host as usize];
        if !place.runners[0].alarm.ring(self.now) {
            if let Some(at) = place.runners[0].alarm.due() {
                self.wake(host, at);
            }
            return;
        }
        let started = Instant::now();
        let turned = place.turn(0, self.now);
        self.cpu_ns += started.elapsed().as_nanos() as u64;
        let mut times = Vec::new();
        for frame in turned.frames {
            times.push(self.network.send(self.now, host, frame, &mut self.agenda));
        }
        self.hosts[host as usize].will_leave(0, &times);
        for event in turned.events {
            assert!(!matches!(event, Event::Violation { .. }), "{event:?}");
        }
        self.read(host);
        let next = self.hosts[host as usize].next_turn(0, self.now, turned.turn);
        self.wake(host, next);
    }

    /// The app of a host takes what it is told.
    fn read(&mut self, host: u32) {
        let app = &mut self.apps[host as usize];
        while let Some(completion) = app.next_completion().expect("valid") {
            match completion {
                Completion::Connected { connection, .. } => self.connections.push(connection),
                Completion::Received { buffer, length, .. } => {
                    self.received += 1;
                    app.release(buffer, length);
                }
                Completion::ConnectFailed { code, .. } => panic!("{}", Code::name(code)),
                _ => {}
            }
        }
        app.flush_releases();
    }
}

fn attach(host: &mut Host) -> AppEnd {
    let channel = host.channel_id();
    let (end, handover) = DaemonEnd::create(SIZES).expect("memory for a channel");
    let request = Request::AddChannel {
        channel,
        app: "scale".to_owned(),
        end: Box::new(end),
        connections_max: 200_000,
    };
    host.post(0, request);
    AppEnd::open(handover, SIZES).expect("its own memory")
}

fn nature(host: usize) -> Nature {
    Nature {
        host,
        is_v6: false,
        mtu: 1500,
        turn_ns: 200,
        frame_ns: 100,
        rss: RssOptions::default(),
        engines: 1,
        congestion: Congestion::Swift,
        clock_offset_ns: 0,
        drift_ppm: 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hundred_flows_can_be_measured() {
        let cost = super::flows(100);
        assert!(cost.cpu_ns_per_message > 0.0 && cost.cpu_ns_per_connection > 0.0, "{cost:?}");
    }
}
