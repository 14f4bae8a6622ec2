//! Streams both ways over links of all kinds: every byte arrives, once, in its place, and all
//! memory comes back.

use clearway_base::{MILLISECOND, Random, SECOND, SlotId};
use clearway_world::{FaultCounts, Faults, Steps};

use super::world::{Host, World, ecn_option, rate, short_link};
use crate::*;

/// One direction of a transfer, as the app at its beginning sees it, who reads the other one, too.
pub(super) struct Flow {
    pub(super) key: SlotId,
    pub(super) content: Vec<u8>,
    given: usize,
    pub(super) received: Vec<u8>,
    is_shut: bool,
    pub(super) is_finished: bool,
}

impl Flow {
    pub(super) fn new(key: SlotId, length: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let content = (0..length).map(|_| random.next_u32() as u8).collect();
        Self { key, content, given: 0, received: Vec::new(), is_shut: false, is_finished: false }
    }

    /// Gives what there is room for, in pieces of all sizes, and closes behind the last; takes what
    /// has come, or, if `slow`, does so now and then.
    pub(super) fn serve(&mut self, host: &mut Host, random: &mut Random, slow: bool) {
        let key = self.key;
        while let Some(extent) = host.stack.pop_sent(key) {
            host.store.take(extent);
        }
        while self.given < self.content.len() {
            let rest = &self.content[self.given..];
            let length = rest.len().min(1 + random.below(9000) as usize);
            let extent = host.store.fill(&rest[..length]);
            if host.stack.send(key, extent).is_err() {
                host.store.take(extent);
                break;
            }
            self.given += length;
        }
        if self.given == self.content.len() && !self.is_shut {
            self.is_shut = true;
            host.stack.shutdown(key);
        }
        // A slow app has other things to do, as long as something will wake it again.
        let is_over = host.stack.status(key).expect("ours").end.is_some();
        if slow && random.chance(2, 3) && !is_over {
            return;
        }
        while let Some(extent) = host.stack.recv(key) {
            let bytes = host.store.take(extent);
            host.stack.release(key, bytes.len() as u64);
            self.received.extend(bytes);
        }
        while let Some(event) = host.stack.poll_event() {
            if let Event::Connection(_, readiness) = event {
                self.is_finished |= readiness.contains(Readiness::FINISHED);
            }
        }
    }
}

fn serve(world: &mut World, flows: &mut [Flow; 2], random: &mut Random, slow: bool) {
    for (host, flow) in world.hosts.iter_mut().zip(flows) {
        flow.serve(host, random, slow);
    }
}

struct Plan {
    seed: u64,
    length: usize,
    faults: Faults,
    settings: [Settings; 2],
    v6: bool,
    slow: bool,
    most: u32,
    refuse_each: Option<u32>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            length: 300_000,
            faults: short_link(),
            settings: [Settings::default(); 2],
            v6: false,
            slow: false,
            most: 1,
            refuse_each: None,
        }
    }
}

fn transfer(plan: &Plan) -> World {
    let mut world = World::new(plan.seed, Config::default(), plan.faults, plan.v6);
    for host in &mut world.hosts {
        host.most = plan.most;
        host.store.refuse_each = plan.refuse_each;
    }
    let (client, server, _) = world.open(plan.settings[0], plan.settings[1]);
    let mut flows = [Flow::new(client, plan.length, 1), Flow::new(server, plan.length / 2, 2)];
    let mut random = Random::new(plan.seed);
    world.run(4000 * SECOND, |world| {
        serve(world, &mut flows, &mut random, plan.slow);
        flows.iter().all(|flow| flow.is_finished)
            && (0..2).all(|side| flows[side].received.len() == flows[1 - side].content.len())
    });
    for side in 0..2 {
        assert!(flows[side].received == flows[1 - side].content, "seed {}", plan.seed);
    }
    // All goes back: connections end, TIME-WAIT too, and no memory is in use.
    world.run(4000 * SECOND, |world| {
        serve(world, &mut flows, &mut random, false);
        (0..2).all(|side| {
            let state = world.hosts[side].stack.info(flows[side].key).expect("ours").state;
            matches!(state, State::Closed | State::TimeWait)
        })
    });
    for (host, flow) in world.hosts.iter_mut().zip(&flows) {
        // A peer that had all and has forgotten it resets who asks again whether its FIN came.
        let end = host.stack.info(flow.key).expect("ours").end;
        assert!(matches!(end, Some(End::Orderly | End::Reset)), "{end:?}");
        while let Some(extent) = host.stack.pop_sent(flow.key) {
            host.store.take(extent);
        }
        host.stack.forget(world.now, flow.key, &mut host.store);
        assert!(host.store.is_empty(), "seed {}", plan.seed);
    }
    world.run(400 * SECOND, |world| {
        world
            .hosts
            .iter()
            .all(|host| host.stack.connections().count() == 0 && host.stack.waiting() == (0, 0))
    });
    world
}

#[test]
fn over_a_perfect_link_nothing_is_sent_twice() {
    for v6 in [false, true] {
        let world = transfer(&Plan { v6, ..Plan::default() });
        assert_eq!(world.counts(), FaultCounts::default());
        let sent: u64 = world.hosts.iter().map(|host| host.stack.counters().segments_sent).sum();
        assert!(sent < 600, "{sent} segments");
    }
}

#[test]
fn in_large_pieces_for_a_nic_that_cuts_them() {
    transfer(&Plan { most: 65_000, length: 3_000_000, ..Plan::default() });
}

#[test]
fn over_links_with_faults() {
    let mut counts = FaultCounts::default();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let latency_ns = 50_000 + random.below(20 * MILLISECOND);
        let faults = Faults {
            loss_ppm: random.below(100_000) as u32,
            duplication_ppm: random.below(50_000) as u32,
            latency_ns,
            delay_ppm: random.below(200_000) as u32,
            delay_ns_max: 2 * latency_ns,
            rate: rate(if random.chance(1, 2) { 1000 + random.below(100_000) } else { 0 }),
            ..Faults::default()
        };
        let settings = || Settings {
            sack: random.chance(3, 4),
            timestamps: random.chance(3, 4),
            window_scaling: random.chance(3, 4),
            ecn: random.chance(1, 2),
            accurate_ecn: seed % 2 == 1,
            ecn_option: ecn_option(seed),
            no_delay: random.chance(1, 2),
            pacing: random.chance(1, 2),
            receive_buffer_bytes: 1000 + random.below(1 << 20) as u32,
            receive_buffer_bytes_max: random.below(1 << 21) as u32,
            congestion: if random.chance(1, 2) { Congestion::Swift } else { Congestion::Cubic },
            segment_bytes_max: random.chance(1, 4).then_some(536),
            ..Settings::default()
        };
        let settings = std::array::from_fn({
            let mut settings = settings;
            move |_| settings()
        });
        let mut random = Random::new(seed + 1000);
        let world = transfer(&Plan {
            seed,
            faults,
            settings,
            length: 1 + random.below(400_000) as usize,
            v6: random.chance(1, 2),
            slow: random.chance(1, 3),
            most: if random.chance(1, 3) { 20_000 } else { 1 },
            refuse_each: random.chance(1, 4).then_some(7),
        });
        counts += world.counts();
    }
    // What nobody met, nobody has withstood.
    let FaultCounts { lost, duplicated, delayed, marked, .. } = counts;
    assert!([lost, duplicated, delayed, marked].iter().all(|count| *count > 50), "{counts:?}");
}

/// A path of 40 ms there and back that carries 12.5 MB/s has half a megabyte under way. The buffer
/// grows to what that takes, and no further.
#[test]
fn the_receive_buffer_grows_with_the_path() {
    let faults = Faults { latency_ns: 20 * MILLISECOND, rate: rate(12_500), ..Faults::default() };
    let took_ns = [0, 6 << 20].map(|receive_buffer_bytes_max| {
        let settings = Settings { receive_buffer_bytes_max, ..Settings::default() };
        let mut world = World::new(1, Config::default(), faults, false);
        let (client, server, _) = world.open(settings, settings);
        let mut flows = [Flow::new(client, 16_000_000, 1), Flow::new(server, 0, 2)];
        let mut random = Random::new(1);
        let start = world.now;
        world.run(400 * SECOND, |world| {
            serve(world, &mut flows, &mut random, false);
            flows[1].received.len() == 16_000_000
        });
        let buffer_bytes = world.hosts[1].stack.info(server).expect("ours").receive_buffer_bytes;
        assert_eq!(receive_buffer_bytes_max > 0, buffer_bytes > 1_000_000, "{buffer_bytes}");
        assert!(buffer_bytes < 4_000_000, "{buffer_bytes}");
        world.now.since(start)
    });
    assert!(took_ns[1] < took_ns[0] / 2, "{took_ns:?}");
}

/// An app that takes nothing has no more than at first, however much the peer would send.
#[test]
fn the_receive_buffer_of_a_slow_app_stays_small() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let (client, server, _) = world.open(Settings::default(), Settings::default());
    let mut flow = Flow::new(client, 1_000_000, 1);
    let mut random = Random::new(1);
    let end = world.now + 5 * SECOND;
    while world.now < end {
        flow.serve(&mut world.hosts[0], &mut random, false);
        assert!(world.step(), "it probes without end");
    }
    let info = world.hosts[1].stack.info(server).expect("ours");
    assert_eq!(info.receive_buffer_bytes, 1 << 17);
    assert!(info.receive_window_bytes < 1 << 7, "less than can be said");
    assert!(info.unread_bytes <= 1 << 17);
}

/// Nobody knows of a connection that is not accepted: what happens to it is announced when it is.
#[test]
fn what_came_before_a_connection_was_accepted_is_announced_then() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let [client, server] = &mut world.hosts;
    let (from, to) = (client.address, server.address);
    let settings = Settings::default();
    let listener = server.stack.listen(None, to.port(), 4, 1500, settings).expect("free");
    let key = client.stack.connect(world.now, from, to, 1500, settings).expect("room");
    let extent = client.store.fill(b"early");
    client.stack.send(key, extent).expect("room");
    let mut events = Vec::new();
    world.run(SECOND, |world| {
        let stack = &mut world.hosts[1].stack;
        events.extend(std::iter::from_fn(|| stack.poll_event()));
        stack.connections().any(|key| stack.info(key).is_some_and(|info| info.unread_bytes == 5))
    });
    assert_eq!(events, [Event::Acceptable(listener)]);
    let stack = &mut world.hosts[1].stack;
    let key = stack.accept(listener).expect("open");
    let readiness = Readiness::OPEN | Readiness::READABLE | Readiness::WRITABLE;
    assert_eq!(stack.poll_event(), Some(Event::Connection(key, readiness)));
}
