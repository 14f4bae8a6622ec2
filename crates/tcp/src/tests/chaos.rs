//! Many connections between two hosts over a link that loses, repeats, swaps, delays, corrupts and
//! swallows what it carries, with apps that do what they like and are told of it by events alone,
//! and hosts that are saved and restored at any moment, and short of memory now and then. Each
//! stream is compared byte for byte; a hang, or a wake-up that is lost, runs into the bound of
//! steps; and at the end nothing is left.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use clearway_base::{MILLISECOND, Random, SECOND, SlotId, Time};
use clearway_world::{FaultCounts, Faults, Steps};

use super::saved::restore;
use super::world::{Host, World, ecn_option, rate};
use crate::*;

const CONNECTIONS: usize = 12;
const STEPS_MAX: usize = 400_000;

/// Who opened a connection: the host, and the port there.
type Id = (usize, u16);

/// What an app does when it has sent all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Shutdown,
    /// Without waiting for the peer: the peer's data may be reset.
    Close,
    Abort,
}

/// One end of a connection, and its app.
#[derive(Debug)]
struct End {
    id: Id,
    key: SlotId,
    length: usize,
    given: usize,
    received: usize,
    ending: Ending,
    has_ended: bool,
    /// What events have said and the app has not used up.
    readable: bool,
    writable: bool,
    closed: bool,
    /// The app does something one time of so many.
    laziness: u64,
}

/// The byte at a place of the stream from the end that opened a connection, or to it.
fn byte((host, port): Id, from_opener: bool, at: usize) -> u8 {
    let number = (at as u64) << 20 ^ u64::from(port) << 2 ^ (host as u64) << 1;
    let number = (number ^ u64::from(from_opener)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number >> 56) as u8
}

impl End {
    fn new(id: Id, key: SlotId, random: &mut Random) -> Self {
        let ending = match random.below(8) {
            0 => Ending::Abort,
            1 => Ending::Close,
            _ => Ending::Shutdown,
        };
        Self {
            id,
            key,
            length: random.below(60_000) as usize,
            given: 0,
            received: 0,
            ending,
            has_ended: false,
            readable: false,
            writable: true,
            closed: false,
            laziness: 1 + random.below(6),
        }
    }

    /// True if there is something that the app would do, if it were not lazy.
    fn is_awake(&self) -> bool {
        let has_more = self.given < self.length && self.writable;
        has_more || (self.given == self.length && !self.has_ended) || self.readable || self.closed
    }

    fn serve(&mut self, side: usize, world: &mut World, random: &mut Random) {
        let host = &mut world.hosts[side];
        while let Some(extent) = host.stack.pop_sent(self.key) {
            host.store.take(extent);
        }
        if self.given < self.length && self.writable {
            self.give(side, host, random);
        }
        if self.readable {
            self.take(side, host, random);
        }
        if self.given == self.length && !self.has_ended {
            self.has_ended = true;
            match self.ending {
                Ending::Shutdown => host.stack.shutdown(self.key),
                Ending::Close => host.stack.close(world.now, self.key),
                Ending::Abort => host.stack.abort(world.now, self.key),
            }
        }
    }

    fn give(&mut self, side: usize, host: &mut Host, random: &mut Random) {
        let most = (self.length - self.given).min(1 + random.below(9000) as usize);
        let is_opener = side == self.id.0;
        let bytes: Vec<u8> =
            (self.given..self.given + most).map(|at| byte(self.id, is_opener, at)).collect();
        let extent = host.store.fill(&bytes);
        match host.stack.send(self.key, extent) {
            Ok(()) => self.given += most,
            Err(error) => {
                host.store.take(extent);
                self.writable = false;
                if error != Error::Full {
                    (self.length, self.has_ended) = (self.given, true); // the peer is gone
                }
            }
        }
    }

    /// Takes some, or all, and releases it.
    fn take(&mut self, side: usize, host: &mut Host, random: &mut Random) {
        for _ in 0..=random.below(20) {
            let Some(extent) = host.stack.recv(self.key) else {
                self.readable = false;
                return;
            };
            let bytes = host.store.take(extent);
            for (at, has) in (self.received..).zip(&bytes) {
                assert_eq!(*has, byte(self.id, side != self.id.0, at), "{:?} at {at}", self.id);
            }
            self.received += bytes.len();
            host.stack.release(self.key, bytes.len() as u64);
        }
    }
}

/// What is known of a connection when an end of it is over: how much it gave and took, and why.
#[derive(Debug)]
struct Outcome {
    given: usize,
    received: usize,
    end: Option<crate::End>,
    ending: Ending,
}

struct Chaos {
    world: World,
    random: Random,
    ends: [HashMap<SlotId, End>; 2],
    listeners: [Listener; 2],
    settings: [Settings; 2],
    outcomes: HashMap<Id, Vec<Outcome>>,
    opened: usize,
    restore_at: [Time; 2],
    /// Pieces that had come out of order.
    given_up: u64,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let latency_ns = 10_000 + random.below(30 * MILLISECOND);
        let faults = Faults {
            loss_ppm: random.below(80_000) as u32,
            duplication_ppm: random.below(50_000) as u32,
            corruption_ppm: random.below(30_000) as u32,
            latency_ns,
            delay_ppm: random.below(200_000) as u32,
            delay_ns_max: 2 * latency_ns,
            rate: rate(if random.chance(1, 2) { 1000 + random.below(50_000) } else { 0 }),
            ..Faults::default()
        };
        let mtu = if random.chance(1, 4) { 700 + random.below(800) as usize } else { 1500 };
        let mut world = World::new(seed, Config::default(), faults, random.chance(1, 2));
        world.mtu = if world.hosts[0].address.is_ipv6() { mtu.max(1280) } else { mtu };
        let settings: [Settings; 2] = std::array::from_fn(|_| Settings {
            sack: random.chance(3, 4),
            timestamps: random.chance(3, 4),
            window_scaling: random.chance(3, 4),
            ecn: random.chance(1, 2),
            accurate_ecn: seed % 2 == 1,
            ecn_option: ecn_option(seed),
            fast_open: FastOpen {
                connects: random.chance(1, 2),
                pending_max: random.below(8) as u16,
                without_cookies: random.chance(1, 8),
            },
            no_delay: random.chance(1, 2),
            pacing: random.chance(1, 2),
            receive_buffer_bytes: 500 + random.below(1 << 17) as u32,
            receive_buffer_bytes_max: random.below(1 << 18) as u32,
            send_extents_max: 1 + random.below(20) as u32,
            // Who waits for a peer whose reset was lost would wait for ever.
            keep_alive: Some(KeepAlive { idle_ns: 30 * SECOND, ..KeepAlive::default() }),
            congestion: if random.chance(1, 2) { Congestion::Swift } else { Congestion::Cubic },
            ..Settings::default()
        });
        let listeners = std::array::from_fn(|side| {
            let host = &mut world.hosts[side];
            host.most = if random.chance(1, 3) { 20_000 } else { 1 };
            host.store.refuse_each = random.chance(1, 4).then_some(7);
            let backlog = 1 + random.below(8) as u32;
            let port = host.address.port();
            host.stack.listen(None, port, backlog, 1500, settings[side]).expect("free")
        });
        let ends = [HashMap::new(), HashMap::new()];
        Self {
            world,
            random,
            ends,
            listeners,
            settings,
            outcomes: HashMap::new(),
            opened: 0,
            restore_at: [Time::ZERO; 2],
            given_up: 0,
        }
    }

    fn connect(&mut self) {
        let side = self.random.below(2) as usize;
        let (from, to) = (self.world.hosts[side].address, self.world.hosts[1 - side].address);
        let from = SocketAddr::new(from.ip(), 0);
        let stack = &mut self.world.hosts[side].stack;
        let key = stack.connect(self.world.now, from, to, 1500, self.settings[side]);
        let key = key.expect("room");
        let id = (side, stack.info(key).expect("ours").local.port());
        self.ends[side].insert(key, End::new(id, key, &mut self.random));
        self.opened += 1;
    }

    /// Both connect to each other at the same time.
    fn connect_simultaneously(&mut self) {
        let ports = [20_000 + self.opened as u16, 21_000 + self.opened as u16];
        let ip = |side: usize| self.world.hosts[side].address.ip();
        let places = [0, 1].map(|side| SocketAddr::new(ip(side), ports[side]));
        for side in 0..2 {
            let (from, to) = (places[side], places[1 - side]);
            let stack = &mut self.world.hosts[side].stack;
            let key = stack.connect(self.world.now, from, to, 1500, self.settings[side]);
            let (id, key) = ((0, ports[0]), key.expect("room"));
            self.ends[side].insert(key, End::new(id, key, &mut self.random));
        }
        self.opened += 1;
    }

    fn poll_events(&mut self, side: usize) {
        while let Some(event) = self.world.hosts[side].stack.poll_event() {
            match event {
                Event::Acceptable(listener) => self.accept(side, listener),
                Event::Connection(key, readiness) => {
                    let Some(end) = self.ends[side].get_mut(&key) else { continue };
                    end.readable |= readiness.contains(Readiness::READABLE);
                    end.writable |= readiness.contains(Readiness::WRITABLE);
                    end.closed |= readiness.contains(Readiness::CLOSED);
                }
            }
        }
    }

    fn accept(&mut self, side: usize, listener: Listener) {
        assert_eq!(listener, self.listeners[side]);
        let stack = &mut self.world.hosts[side].stack;
        while let Some(key) = stack.accept(listener) {
            let id = (1 - side, stack.info(key).expect("ours").remote.port());
            self.ends[side].insert(key, End::new(id, key, &mut self.random));
        }
    }

    fn serve(&mut self, side: usize) {
        let mut keys: Vec<SlotId> = self.ends[side].keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            // RFC 2018, section 8: now and then memory is short.
            if self.random.chance(1, 100) {
                let Host { stack, store, .. } = &mut self.world.hosts[side];
                let before = stack.counters().pieces_given_up;
                stack.renege(key, store);
                self.given_up += stack.counters().pieces_given_up - before;
            }
            let end = self.ends[side].get_mut(&key).expect("there");
            if self.random.chance(1, end.laziness) && end.is_awake() {
                end.serve(side, &mut self.world, &mut self.random);
                if end.closed && !end.readable {
                    self.forget(side, key);
                }
            }
        }
    }

    fn forget(&mut self, side: usize, key: SlotId) {
        let end = self.ends[side].remove(&key).expect("there");
        let host = &mut self.world.hosts[side];
        let info = host.stack.info(key).expect("ours");
        assert!(matches!(info.state, State::Closed | State::TimeWait), "{info:?}");
        while let Some(extent) = host.stack.pop_sent(key) {
            host.store.take(extent);
        }
        host.stack.forget(self.world.now, key, &mut host.store);
        let End { given, received, ending, .. } = end;
        let outcome = Outcome { given, received, end: info.end, ending };
        self.outcomes.entry(end.id).or_default().push(outcome);
    }

    fn step(&mut self) -> bool {
        if self.opened < CONNECTIONS && self.random.chance(1, 20) {
            match self.random.chance(1, 6) {
                true => self.connect_simultaneously(),
                false => self.connect(),
            }
        }
        for side in 0..2 {
            // Between a millisecond and half a minute: what is outstanding counts as sent again at
            // each, so now and then there has to be time for a timeout.
            if self.restore_at[side] <= self.world.now {
                restore(&mut self.world.hosts[side], self.world.now);
                self.restore_at[side] = self.world.now + (MILLISECOND << self.random.below(16));
            }
            self.poll_events(side);
            self.serve(side);
            self.poll_events(side);
        }
        let is_awake = self.ends.iter().flat_map(HashMap::values).any(End::is_awake);
        self.world.step() || is_awake || self.opened < CONNECTIONS
    }

    fn run(&mut self, seed: u64) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                break;
            }
            if self.opened == CONNECTIONS && self.ends.iter().all(HashMap::is_empty) {
                break;
            }
        }
        let stuck: Vec<_> = self.ends.iter().flat_map(HashMap::values).collect();
        let infos: Vec<_> = self.ends.iter().zip(&self.world.hosts).collect();
        let infos: Vec<_> = infos
            .iter()
            .flat_map(|(ends, host)| ends.keys().map(|key| host.stack.info(*key)))
            .collect();
        assert!(stuck.is_empty(), "seed {seed}: {stuck:#?} {infos:#?}");
    }

    /// Nothing waits any more, and nothing is kept.
    fn finish(&mut self, seed: u64) {
        for side in 0..2 {
            let (now, Host { stack, store, .. }) = (self.world.now, &mut self.world.hosts[side]);
            stack.unlisten(now, self.listeners[side], store);
        }
        self.world.run(1000 * SECOND, |world| world.hosts.iter().all(|host| host.stack.is_empty()));
        while self.world.step() {}
        for host in &self.world.hosts {
            assert!(host.store.is_empty(), "seed {seed}");
        }
    }

    /// How many connections were disturbed by nobody: all of these have carried all, both ways.
    fn whole(&self, seed: u64) -> usize {
        let is_whole = |id: &Id, outcomes: &[Outcome]| {
            let [one, other] = outcomes else { return false };
            if [one, other].iter().any(|outcome| outcome.ending != Ending::Shutdown) {
                return false;
            }
            for (from, to) in [(one, other), (other, one)] {
                assert_eq!(from.end, Some(crate::End::Orderly), "seed {seed}: {id:?} {outcomes:?}");
                assert_eq!(from.given, to.received, "seed {seed}: {id:?} {outcomes:?}");
            }
            true
        };
        self.outcomes.iter().filter(|(id, outcomes)| is_whole(id, outcomes)).count()
    }
}

fn chaos(seed: u64) -> (usize, HashSet<String>, u64, FaultCounts) {
    let mut chaos = Chaos::new(seed);
    chaos.run(seed);
    chaos.finish(seed);
    let outcomes = chaos.outcomes.values().flatten();
    let ends = outcomes.map(|outcome| format!("{:?}", outcome.end)).collect();
    (chaos.whole(seed), ends, chaos.given_up, chaos.world.counts())
}

#[test]
fn whatever_happens_streams_are_whole_and_nothing_is_left() {
    let (mut whole, mut ends, mut given_up) = (0, HashSet::new(), 0);
    let mut counts = FaultCounts::default();
    for seed in 0..200 {
        let (count, kinds, pieces, faults) = chaos(seed);
        counts += faults;
        whole += count;
        ends.extend(kinds);
        given_up += pieces;
    }
    assert!(whole > 200 * CONNECTIONS / 3, "{whole}");
    assert!(ends.len() >= 3, "{ends:?}");
    assert!(given_up > 200, "{given_up}");
    let FaultCounts { lost, duplicated, delayed, corrupted, marked, .. } = counts;
    let met = [lost, duplicated, delayed, corrupted, marked];
    assert!(met.iter().all(|count| *count > 50), "{counts:?}");
}
