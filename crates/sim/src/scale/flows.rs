//! More and more connections between two engines: what the same messages cost, if each has a flow
//! of its own and if they share flows.

use clearway_base::MICROSECOND;
use clearway_channel::Completion;
use clearway_engine::Congestion;
use serde::Serialize;

use super::stage::{LARGE, Stage};
use super::{PART_MESSAGES, median};
use crate::network::Link;

/// Messages that are measured, after as many to warm up; one for each flow if there are more of
/// those.
const MESSAGES_MIN: u64 = 40_000;
/// No two fit into a packet, and each is answered, so that acknowledgements travel with answers: a
/// message is a packet there and one back, over however many flows.
const MESSAGE_BYTES: u32 = 800;
/// Messages under way at a time.
const WINDOW: u64 = 64;
/// Connection attempts under way at a time.
const ATTEMPTS: u64 = 256;

/// What so many flows between two engines cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FlowCost {
    /// Connections of each engine.
    pub flows: u64,
    /// They share flows, as many as may.
    pub are_shared: bool,
    /// Time in the turns of both engines per message with its answer.
    pub cpu_ns_per_message: f64,
    /// Frames of both, acknowledgements that found no message to travel with included.
    pub frames_per_message: f64,
    /// Time in them per connection that was opened.
    pub cpu_ns_per_connection: f64,
}

/// Measures with so many connections, which have a flow each or share flows.
///
/// # Panics
/// If one cannot be opened.
#[must_use]
pub fn flows(flows: u64, are_shared: bool) -> FlowCost {
    let mut pair = Pair::new(are_shared);
    pair.connect(flows);
    let connecting_ns = pair.stage.cpu_ns;
    let messages = flows.max(MESSAGES_MIN);
    pair.exchange(messages);
    let frames = pair.stage.network.frames();
    let cpu_ns_per_message = pair.exchange(messages);
    FlowCost {
        flows,
        are_shared,
        cpu_ns_per_message,
        frames_per_message: (pair.stage.network.frames() - frames) as f64 / messages as f64,
        cpu_ns_per_connection: connecting_ns as f64 / flows as f64,
    }
}

/// What so many connections take of memory, in bytes each, both ends together: as `heap_bytes` says
/// before they are opened, and when each has carried messages.
///
/// # Panics
/// If one cannot be opened.
#[must_use]
pub fn flow_memory_bytes(flows: u64, are_shared: bool, heap_bytes: &dyn Fn() -> u64) -> u64 {
    let mut pair = Pair::new(are_shared);
    let before = heap_bytes();
    pair.connect(flows);
    pair.exchange(PART_MESSAGES.max(2 * flows));
    heap_bytes().saturating_sub(before) / flows
}

/// Two hosts, of which the first sends to the second.
struct Pair {
    stage: Stage,
    client: usize,
    server: usize,
    are_shared: bool,
    connections: Vec<u64>,
    /// The connection that sends next.
    turn: usize,
    sent: u64,
    received: u64,
}

impl Pair {
    fn new(are_shared: bool) -> Self {
        let link = Link::plain(100_000_000_000, 2 * MICROSECOND, 1 << 20);
        let mut stage = Stage::new(&[link; 2], 1, Congestion::Swift, 1);
        let (client, server) = (stage.seat(0, 0, false, LARGE), stage.seat(1, 0, true, LARGE));
        let connections = Vec::new();
        Self { stage, client, server, are_shared, connections, turn: 0, sent: 0, received: 0 }
    }

    /// Opens so many connections.
    fn connect(&mut self, flows: u64) {
        let mut attempted = 0;
        while (self.connections.len() as u64) < flows {
            while attempted < flows
                && attempted - (self.connections.len() as u64) < ATTEMPTS
                && self.stage.connect(self.client, self.server, attempted, self.are_shared)
            {
                attempted += 1;
            }
            self.step();
        }
    }

    /// Sends so many messages over all connections in turn, until all have come. Returns what one
    /// costs.
    fn exchange(&mut self, messages: u64) -> f64 {
        let end = self.sent + messages;
        let mut costs = Vec::new();
        while self.received < end {
            costs.push(self.part_ns(end));
        }
        median(costs)
    }

    /// Lets some more messages come, of those before `end`. Returns what one costs.
    fn part_ns(&mut self, end: u64) -> f64 {
        let (before, before_ns) = (self.received, self.stage.cpu_ns);
        // A step may bring more than are missing: parts drift, and the last may be smaller.
        let part_end = (before + PART_MESSAGES).min(end);
        while self.received < part_end {
            while self.sent < end
                && self.sent - self.received < WINDOW
                && self.stage.send(self.client, self.connections[self.turn], MESSAGE_BYTES)
            {
                self.sent += 1;
                self.turn = (self.turn + 1) % self.connections.len();
            }
            self.step();
        }
        (self.stage.cpu_ns - before_ns) as f64 / (self.received - before) as f64
    }

    fn step(&mut self) {
        self.stage.ring(self.client);
        let mut to_answer = Vec::new();
        self.stage.step(&mut |seat, completion| match *completion {
            Completion::Connected { connection, .. } => self.connections.push(connection),
            Completion::Received { connection, .. } if seat == self.server => {
                to_answer.push(connection);
            }
            Completion::Received { .. } => self.received += 1,
            _ => {}
        });
        if to_answer.is_empty() {
            return;
        }
        for connection in to_answer {
            assert!(self.stage.send(self.server, connection, MESSAGE_BYTES), "few are under way");
        }
        self.stage.ring(self.server);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hundred_flows_can_be_measured() {
        for are_shared in [false, true] {
            let cost = super::flows(100, are_shared);
            assert!(cost.cpu_ns_per_message > 0.0 && cost.cpu_ns_per_connection > 0.0, "{cost:?}");
        }
    }
}
