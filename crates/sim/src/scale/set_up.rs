//! What it takes to open a connection between engines whose NICs spread packets as nobody knows:
//! packets and simulated time of RSS--.

use clearway_base::{MICROSECOND, MILLISECOND, Random};
use clearway_channel::Completion;
use clearway_engine::Congestion;
use serde::Serialize;

use super::stage::{SMALL, Stage};
use crate::network::Link;

/// Pairs of hosts, whose NICs have other keys each time, and connections of each pair.
const PAIRS: u64 = 50;
const CONNECTIONS: u64 = 10;
const LINK: Link = Link::plain(100_000_000_000, 2 * MICROSECOND, 1 << 20);
/// After this time nothing of a set-up is under way any more.
const SETTLE_NS: u64 = 20 * MILLISECOND;

/// What connections took between two hosts of so many engines, one connection after the other, from
/// random engines to random engines; each ten of them meet other NICs' keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SetUp {
    /// Engines of each host.
    pub engines: usize,
    /// Connections opened.
    pub connections: u64,
    /// Simulated time until the client has its connection: half of them took no longer.
    pub ns_p50: u64,
    /// 99 % of them took no longer.
    pub ns_p99: u64,
    /// Packets that both sides sent to open one.
    pub packets_p50: u64,
    /// 95 % took no more.
    pub packets_p95: u64,
    /// Batches after the first of a search, of all connections.
    pub later_batches: u64,
}

/// Measures hosts of so many engines.
///
/// # Panics
/// If a connection cannot be opened.
#[must_use]
pub fn set_up(engines: usize) -> SetUp {
    let (mut times, mut packets, mut later_batches) = (Vec::new(), Vec::new(), 0);
    for seed in 0..PAIRS {
        let mut pair = Pair::new(engines, seed);
        let start = pair.spent();
        let mut before = start;
        for _ in 0..CONNECTIONS {
            times.push(pair.connect_any());
            let after = pair.spent();
            packets.push(after.packets - before.packets);
            before = after;
        }
        later_batches += before.later_batches - start.later_batches;
    }
    times.sort_unstable();
    packets.sort_unstable();
    let at = |sorted: &[u64], percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
    SetUp {
        engines,
        connections: PAIRS * CONNECTIONS,
        ns_p50: at(&times, 50),
        ns_p99: at(&times, 99),
        packets_p50: at(&packets, 50),
        packets_p95: at(&packets, 95),
        later_batches,
    }
}

/// What all set-ups have taken so far.
#[derive(Clone, Copy, Default)]
struct Spent {
    packets: u64,
    later_batches: u64,
}

/// Two hosts, with an app on each engine.
struct Pair {
    stage: Stage,
    clients: Vec<usize>,
    servers: Vec<usize>,
    random: Random,
}

impl Pair {
    fn new(engines: usize, seed: u64) -> Self {
        let mut stage = Stage::new(&[LINK; 2], engines, Congestion::Swift, seed);
        let all = 0..engines as u32;
        let clients = all.clone().map(|engine| stage.seat(0, engine, false, SMALL)).collect();
        let servers = all.map(|engine| stage.seat(1, engine, true, SMALL)).collect();
        let mut pair = Self { stage, clients, servers, random: Random::new(seed) };
        pair.settle();
        // The first connections also find the neighbour.
        for client in pair.clients.clone() {
            pair.connect(client, pair.servers[0]);
        }
        pair
    }

    fn connect_any(&mut self) -> u64 {
        let random = &mut self.random;
        let mut any = |seats: &[usize]| seats[random.below(seats.len() as u64) as usize];
        let (client, server) = (any(&self.clients), any(&self.servers));
        self.connect(client, server)
    }

    /// Opens one connection, and waits for all that it has stirred up. Returns how long it took.
    fn connect(&mut self, client: usize, server: usize) -> u64 {
        let stage = &mut self.stage;
        let (started, mut is_open) = (stage.now, false);
        assert!(stage.connect(client, server, 0, false), "room for one command");
        stage.ring(client);
        while !is_open {
            stage.step(&mut |_, completion| {
                is_open |= matches!(completion, Completion::Connected { .. });
            });
        }
        let took_ns = stage.now.since(started);
        self.settle();
        took_ns
    }

    fn settle(&mut self) {
        let end = self.stage.now + SETTLE_NS;
        while self.stage.now < end {
            self.stage.step(&mut |_, _| {});
        }
    }

    fn spent(&mut self) -> Spent {
        let snapshots = self.stage.snapshots(&mut |_, _| {});
        let flows = snapshots.iter().flat_map(|snapshot| &snapshot.flows);
        flows.fold(Spent::default(), |spent, flow| Spent {
            packets: spent.packets + u64::from(flow.setup_packets),
            later_batches: spent.later_batches + u64::from(flow.setup_retries),
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_engine_needs_no_spray_and_two_do() {
        let (one, two) = (super::set_up(1), super::set_up(2));
        assert!(one.packets_p95 < two.packets_p50, "{one:?} {two:?}");
        assert!(one.ns_p50 > 8_000, "two ways of 4 us each: {one:?}");
    }
}
