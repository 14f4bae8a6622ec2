//! More and more engines of two hosts, each with as much to do: what they carry together, in
//! simulated time. A turn costs an engine a fixed time, and a frame a fixed time more, whatever the
//! engine does: what this shows is whether engines stand in each other's way (frames that come to
//! the wrong one, lanes, flows that search for their ports), and not what a message costs.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND};
use clearway_channel::Completion;
use clearway_engine::Congestion;
use serde::Serialize;

use super::stage::{SMALL, Stage};
use crate::network::Link;

/// Apps of each engine of the first host. The second has one per engine, which answers them.
const APPS: usize = 2;
/// Messages that each keeps under way, one by each of as many connections: so that a message is a
/// packet, for which its engines pay.
const WINDOW: usize = 32;
const MESSAGE_BYTES: u32 = 64;
/// Wide enough for what 64 engines send.
const LINK: Link = Link::plain(1_600_000_000_000, 2 * MICROSECOND, 64 << 20);
/// What passes before the measured time, and how long that is.
const WARM_UP_NS: u64 = 2 * MILLISECOND;
const MEASURED_NS: u64 = 5 * MILLISECOND;

/// What so many engines carry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EnginesRate {
    /// Engines of each host.
    pub engines: usize,
    /// Messages that were answered in a second of simulated time.
    pub rate_per_s: f64,
    /// Frames of both hosts per message with its answer, acknowledgements included.
    pub frames_per_message: f64,
}

/// Measures hosts of so many engines.
///
/// # Panics
/// If an app cannot connect.
#[must_use]
pub fn engines(engines: usize) -> EnginesRate {
    let mut pair = Pair::new(engines);
    pair.begin();
    pair.pass(WARM_UP_NS);
    let frames = pair.stage.network.frames();
    let answered = pair.pass(MEASURED_NS) as f64;
    EnginesRate {
        engines,
        rate_per_s: answered * SECOND as f64 / MEASURED_NS as f64,
        frames_per_message: (pair.stage.network.frames() - frames) as f64 / answered,
    }
}

/// Two hosts: the apps of one ask, those of the other answer.
struct Pair {
    stage: Stage,
    /// The connections of each app of the first host, by its number.
    clients: Vec<Vec<u64>>,
    answered: u64,
}

impl Pair {
    /// Each app is connected to the engines of the second host in turn.
    fn new(engines: usize) -> Self {
        let mut stage = Stage::new(&[LINK; 2], engines, Congestion::Swift, 1);
        let count = APPS * engines;
        for client in 0..count {
            stage.seat(0, (client % engines) as u32, false, SMALL);
        }
        let server = |engine| stage.seat(1, engine as u32, true, SMALL);
        let servers: Vec<usize> = (0..engines).map(server).collect();
        let mut pair = Self { stage, clients: vec![Vec::new(); count], answered: 0 };
        pair.pass(WARM_UP_NS);
        for number in 0..count * WINDOW {
            let (client, server) = (number % count, servers[(number + number / count) % engines]);
            pair.connect(client, server);
        }
        pair
    }

    fn connect(&mut self, client: usize, server: usize) {
        let before = self.clients[client].len();
        assert!(self.stage.connect(client, server, 0, false), "room for one command");
        self.stage.ring(client);
        while self.clients[client].len() == before {
            self.step();
        }
    }

    /// All send what they may.
    fn begin(&mut self) {
        for (client, connections) in self.clients.iter().enumerate() {
            for connection in connections {
                assert!(self.stage.send(client, *connection, MESSAGE_BYTES), "room to begin");
            }
            self.stage.ring(client);
        }
    }

    /// Lets so much time pass. Returns how many messages were answered meanwhile.
    fn pass(&mut self, span_ns: u64) -> u64 {
        let (end, before) = (self.stage.now + span_ns, self.answered);
        while self.stage.now < end {
            self.step();
        }
        self.answered - before
    }

    /// Each message is answered at once, and each answer with the next message.
    fn step(&mut self) {
        let Self { stage, clients, answered } = self;
        let mut come = Vec::new();
        stage.step(&mut |seat, completion| match *completion {
            Completion::Connected { connection, .. } => clients[seat].push(connection),
            Completion::Received { connection, .. } => come.push((seat, connection)),
            _ => {}
        });
        *answered += come.iter().filter(|(seat, _)| *seat < clients.len()).count() as u64;
        for (seat, connection) in &come {
            assert!(stage.send(*seat, *connection, MESSAGE_BYTES), "room for an answer");
        }
        come.dedup_by_key(|(seat, _)| *seat);
        come.iter().for_each(|(seat, _)| stage.ring(*seat));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_engines_carry_twice_as_much_as_one() {
        let (one, two) = (super::engines(1), super::engines(2));
        assert!(one.rate_per_s > 1e6 && one.frames_per_message > 0.0, "{one:?}");
        let ratio = two.rate_per_s / one.rate_per_s;
        assert!((1.8..2.2).contains(&ratio), "{one:?} {two:?}");
    }
}
