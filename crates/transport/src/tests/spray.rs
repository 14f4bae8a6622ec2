//! RSS--: hosts with many engines, whose NICs spread packets by a hash that the endpoints neither
//! see nor set. A packet that comes to another engine's queue is passed on, if there are lanes.

use std::net::SocketAddr;

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::clearway::PacketType;
use clearway_world::{Agenda, Datagram, Faults, Steps, Way};

use super::{LISTENER, PORT, TestApp, WINDOW, audit, content};
use crate::{Arrival, Config, Destination, Endpoint, FlowInfo, FlowKey, Owner};

/// How a NIC spreads what it receives.
#[derive(Clone, Copy, Debug)]
enum Hash {
    /// As Toeplitz with a hidden random key does.
    Keyed(u64),
    /// Both ports, in either order.
    Symmetric,
    /// A byte of the source port.
    Byte(u32),
    /// Addresses only.
    NoPorts,
}

impl Hash {
    fn queue(self, source: SocketAddr, destination: SocketAddr, queues: usize) -> usize {
        let (from, to) = (u64::from(source.port()), u64::from(destination.port()));
        let hash = match self {
            Self::Keyed(key) => Random::new(key ^ from << 16 ^ to).next_u64() >> 32,
            Self::Symmetric => from ^ to,
            Self::Byte(index) => from >> (8 * index) & 0xff,
            Self::NoPorts => 1,
        };
        (hash % queues as u64) as usize
    }
}

struct Engine {
    endpoint: Endpoint,
    app: TestApp,
}

struct Machine {
    address: SocketAddr,
    engines: Vec<Engine>,
    hash: Hash,
}

impl Drop for Engine {
    fn drop(&mut self) {
        audit(&self.endpoint, &self.app);
    }
}

/// To which host a packet goes and, if it comes by a lane, to which engine of it.
type Place = (usize, Option<usize>);

/// A packet takes so long from one engine to another.
const LANE_NS: u64 = 2 * MICROSECOND;

struct Spread {
    hosts: [Machine; 2],
    link: Agenda<(Place, Datagram)>,
    now: Time,
    random: Random,
    /// Between the NICs, either way.
    way: Way,
    has_lanes: bool,
    /// The server's engine that listens.
    listener: usize,
    /// Packets that a NIC has sent.
    sent: u64,
}

impl Spread {
    fn new(seed: u64, engines: [u8; 2], hashes: [Hash; 2]) -> Self {
        let now = Time::from_ns(SECOND);
        let host = |index: usize| Machine {
            address: SocketAddr::from(([10, 0, 0, index as u8 + 1], 20707)),
            engines: (0..engines[index]).map(|e| engine(now, seed, e, engines[index])).collect(),
            hash: hashes[index],
        };
        Self {
            hosts: [host(0), host(1)],
            link: Agenda::default(),
            now,
            random: Random::new(seed),
            way: Way::new(Faults { latency_ns: 5 * MICROSECOND, ..Faults::default() }),
            has_lanes: true,
            listener: 0,
            sent: 0,
        }
    }

    fn keyed(seed: u64, engines: [u8; 2]) -> Self {
        Self::new(seed, engines, [Hash::Keyed(seed * 2), Hash::Keyed(seed * 2 + 1)])
    }

    /// The engine `engine` of the server listens, and the others know it.
    fn listen(&mut self, engine: usize) {
        self.listener = engine;
        for (index, other) in self.hosts[1].engines.iter_mut().enumerate() {
            other.endpoint.set_elsewhere(PORT, index != engine);
            other.endpoint.unlisten(PORT);
        }
        self.hosts[1].engines[engine].endpoint.listen(PORT, LISTENER).expect("free port");
    }

    fn connect(&mut self, engine: usize) -> FlowKey {
        let (from, to) = (self.hosts[0].address, self.hosts[1].address);
        let client = &mut self.hosts[0].engines[engine];
        let owner = Owner { channel: 1, connection: 1 };
        client.app.connected = 0;
        client.endpoint.connect(self.now, owner, from, to, PORT, WINDOW).expect("room")
    }

    /// Opens a flow between two engines; when this returns, neither direction takes a detour.
    /// Returns the packets that it took, and the time until the client's app knew.
    fn open(&mut self, engines: [usize; 2]) -> ([FlowKey; 2], u64, u64) {
        self.listen(engines[1]);
        let (begin, sent) = (self.now, self.sent);
        let accepted = self.hosts[1].engines[engines[1]].app.accepted.len();
        let client = self.connect(engines[0]);
        self.run_until(|world| world.hosts[0].engines[engines[0]].app.connected > 0);
        let took_ns = self.now.since(begin);
        self.run_until(|world| {
            (0..2).all(|host| world.flow(host, engines[host]).is_some_and(|flow| !flow.detour))
        });
        let server = self.hosts[1].engines[engines[1]].app.accepted[accepted];
        ([client, server], self.sent - sent, took_ns)
    }

    fn end(&mut self, engine: usize, key: FlowKey) {
        let Engine { endpoint, app } = &mut self.hosts[0].engines[engine];
        endpoint.abort(key, crate::Reason::Reset, app);
        self.run_until(|world| {
            let hosts = &mut world.hosts.iter();
            hosts.all(|host| host.engines.iter().all(|e| e.endpoint.flows().count() == 0))
        });
        self.link.clear();
    }

    fn flow(&self, host: usize, engine: usize) -> Option<FlowInfo> {
        self.hosts[host].engines[engine].endpoint.flows().next()
    }

    fn transmit(&mut self) {
        let mut bytes = [0; 2048];
        for index in 0..2 {
            for engine in 0..self.hosts[index].engines.len() {
                loop {
                    let Engine { endpoint, app } = &mut self.hosts[index].engines[engine];
                    let Some(destination) = endpoint.next_transmit(self.now) else { break };
                    let length = endpoint.poll_transmit(self.now, destination, &mut bytes, app);
                    let Destination { from, to, .. } = destination;
                    assert_eq!(to.port(), 20707);
                    if length > 0 {
                        let (ecn, bytes) = (Ecn::NotCapable, bytes[..length].to_vec());
                        self.carry(1 - index, Datagram { from, to, ecn, bytes });
                    }
                }
            }
        }
    }

    fn carry(&mut self, to: usize, mut packet: Datagram) {
        self.sent += 1;
        if let Some(fate) = self.way.enter(self.now, &mut packet, &mut self.random) {
            self.link.note(fate.arrival, ((to, None), packet));
        }
    }

    fn arrive(&mut self, (to, lane): Place, packet: Datagram) {
        let (host, bytes) = (&mut self.hosts[to], &packet.bytes);
        let queue = host.hash.queue(packet.from, host.address, host.engines.len());
        let is_passed_on = |(_, pass_on): (u16, bool)| pass_on.then_some(self.listener);
        let listener = || Endpoint::port_of_syn(bytes).and_then(is_passed_on);
        let owner = Endpoint::engine_of(bytes).map(usize::from).or_else(listener).unwrap_or(queue);
        let (engine, arrival) = match lane {
            Some(engine) => (engine, Arrival::Lane),
            None if owner == queue => (queue, Arrival::Queue),
            None if self.has_lanes => {
                return self.link.note(self.now + LANE_NS, ((to, Some(owner)), packet));
            }
            None => return,
        };
        let Engine { endpoint, app } = &mut host.engines[engine];
        let Datagram { from, ecn, .. } = packet;
        endpoint.handle_datagram(self.now, from, host.address, bytes, arrival, ecn, app);
    }

    fn strayed(&self) -> u64 {
        let engines = self.hosts.iter().flat_map(|host| &host.engines);
        engines.map(|engine| engine.endpoint.counters().received_by_lane).sum()
    }
}

impl Steps for Spread {
    const PATIENCE_NS: u64 = 100 * SECOND;

    fn now(&self) -> Time {
        self.now
    }

    fn step(&mut self) -> bool {
        self.transmit();
        let engines = || self.hosts.iter().flat_map(|host| host.engines.iter());
        let timeouts = engines().filter_map(|engine| engine.endpoint.next_timeout());
        let Some(next) = timeouts.chain(self.link.next_at()).min() else { return false };
        self.now = self.now.max(next);
        while let Some((place, packet)) = self.link.take_due(self.now) {
            self.arrive(place, packet);
        }
        for Engine { endpoint, app } in self.hosts.iter_mut().flat_map(|host| &mut host.engines) {
            endpoint.handle_timeouts(self.now, app);
        }
        true
    }

    fn describe(&self) -> String {
        let engines = self.hosts.iter().flat_map(|host| &host.engines);
        format!("{:?}", engines.flat_map(|engine| engine.endpoint.flows()).collect::<Vec<_>>())
    }
}

fn engine(now: Time, seed: u64, index: u8, count: u8) -> Engine {
    let config = Config { engine_index: index, engine_count: count, ..Config::default() };
    let endpoint = Endpoint::new(config, now, seed << 8 | u64::from(index), [count; 16]);
    Engine { endpoint, app: TestApp::new(64 << 20) }
}

/// The value that `per_cent` of `values` do not exceed.
fn percentile(values: &mut [u64], per_cent: usize) -> u64 {
    values.sort_unstable();
    values[values.len() * per_cent / 100]
}

/// Opens `count` flows, one after the other, and returns how many packets and ns each took.
fn set_ups(world: &mut Spread, count: usize) -> (Vec<u64>, Vec<u64>) {
    let mut figures = (Vec::new(), Vec::new());
    for _ in 0..count {
        let engines = [0, 1].map(|host: usize| {
            let count = world.hosts[host].engines.len() as u64;
            world.random.below(count) as usize
        });
        let (keys, packets, took_ns) = world.open(engines);
        figures.0.push(packets);
        figures.1.push(took_ns);
        world.end(engines[0], keys[0]);
    }
    figures
}

/// Machnet, section 4.2: 2 ln(1 - √0.95) / ln(1 - 1/n) packets for n = 4 and n = 8: "25 and 55".
#[test]
fn a_set_up_takes_no_more_packets_than_the_paper_says() {
    let bounds = [([1, 1], 4), ([2, 2], 13), ([4, 4], 25), ([8, 8], 55), ([64, 64], 467)];
    for (engines, bound) in bounds {
        for rtt_ns in [10 * MICROSECOND, 400 * MICROSECOND] {
            let mut world = Spread::keyed(u64::from(engines[0]), engines);
            world.way.set_faults(Faults { latency_ns: rtt_ns / 2, ..Faults::default() });
            let count = if engines[0] == 64 { 150 } else { 1000 };
            set_ups(&mut world, 4 * usize::from(engines[0])); // the engines get to know each other
            let (mut packets, mut took_ns) = set_ups(&mut world, count);
            let [p50, p95, p99] = [50, 95, 99].map(|p| percentile(&mut packets, p));
            let times = [50, 99].map(|p| percentile(&mut took_ns, p) / 1000);
            println!("{engines:?}, {rtt_ns} ns: {p50}, {p95}, {p99} packets; {times:?} µs");
            assert!(p95 <= bound, "{engines:?}, {rtt_ns} ns: {p95} packets at 95 %");
        }
    }
}

#[test]
fn any_number_of_engines_meets_any_other() {
    for engines in [[1, 8], [8, 1], [1, 64], [64, 1], [3, 5], [2, 64]] {
        let mut world = Spread::keyed(7, engines);
        let (_, mut took_ns) = set_ups(&mut world, 100);
        let [most_ns, all_ns] = [95, 99].map(|p| percentile(&mut took_ns, p));
        // The first one, when the client does not know yet how many to look for, takes longer.
        assert!(most_ns < 2 * MILLISECOND, "{engines:?}: {most_ns} ns");
        assert!(all_ns < SECOND, "{engines:?}: {all_ns} ns");
    }
}

#[test]
fn a_flow_opens_whatever_the_hash_is_and_whatever_is_lost() {
    for hash in [Hash::Symmetric, Hash::Byte(0), Hash::Byte(1), Hash::Keyed(77)] {
        let mut world = Spread::new(3, [4, 8], [hash, hash]);
        world.way.set_faults(Faults { loss_ppm: 100_000, ..*world.way.faults() });
        let (_, mut took_ns) = set_ups(&mut world, 200);
        let p95_ns = percentile(&mut took_ns, 95);
        assert!(p95_ns < 10 * MILLISECOND, "{hash:?}: {p95_ns} ns");
    }
}

/// Without lanes, what does not come straight does not come at all.
#[test]
fn a_flow_opens_without_lanes() {
    let mut world = Spread::keyed(5, [8, 8]);
    world.has_lanes = false;
    let (mut packets, mut took_ns) = set_ups(&mut world, 500);
    let (packets, took_ns) = (percentile(&mut packets, 50), percentile(&mut took_ns, 90));
    assert!(took_ns < 50 * MILLISECOND, "{packets} packets, {took_ns} ns");
}

#[test]
fn syns_to_other_engines_are_dropped_and_nobody_is_told() {
    let mut world = Spread::keyed(9, [1, 8]);
    let (keys, ..) = world.open([0, 3]);
    let dropped = |engine: &Engine| engine.endpoint.counters().dropped_elsewhere;
    let others = world.hosts[1].engines.iter().map(dropped).sum::<u64>();
    assert!(others > 0 && dropped(&world.hosts[1].engines[3]) == 0);
    assert!(world.hosts[0].engines[0].app.closed.is_empty());
    world.end(0, keys[0]);
    // Nobody listens anywhere: refused at once, whichever engine says so.
    for engine in &mut world.hosts[1].engines {
        engine.endpoint.set_elsewhere(PORT, false);
        engine.endpoint.unlisten(PORT);
    }
    let begin = world.now;
    world.connect(0);
    world.run_until(|world| !world.hosts[0].engines[0].app.closed.is_empty());
    assert_eq!(world.hosts[0].engines[0].app.closed, [crate::Reason::Refused]);
    assert!(world.now.since(begin) < MILLISECOND);
}

/// Sends messages both ways for a while, and checks that each arrives once, in order and intact.
struct Conversation {
    engines: [usize; 2],
    keys: [FlowKey; 2],
    sent: [u32; 2],
    received: [u32; 2],
}

impl Conversation {
    const LENGTH: u32 = 700;

    fn new(world: &mut Spread, engines: [usize; 2], keys: [FlowKey; 2]) -> Self {
        for (host, engine) in engines.into_iter().enumerate() {
            let app = &mut world.hosts[host].engines[engine].app;
            app.transmit_pool =
                (0..1 << 10).flat_map(|index| content(index, Self::LENGTH)).collect();
        }
        Self { engines, keys, sent: [0; 2], received: [0; 2] }
    }

    fn go_on(&mut self, world: &mut Spread, ns: u64) {
        let end = world.now + ns;
        while world.now < end {
            for host in 0..2 {
                let Engine { endpoint, app } = &mut world.hosts[host].engines[self.engines[host]];
                while self.sent[host] - self.received[1 - host] < 8 {
                    let offset = self.sent[host] % (1 << 10) * Self::LENGTH;
                    endpoint.send(world.now, self.keys[host], offset, Self::LENGTH);
                    self.sent[host] += 1;
                }
                while let Some((_, buffer)) = app.delivered.pop_front() {
                    let expected = content(self.received[host] % (1 << 10), Self::LENGTH);
                    assert_eq!(app.release(buffer), expected);
                    endpoint.release(world.now, self.keys[host], 1, u64::from(Self::LENGTH));
                    self.received[host] += 1;
                }
                assert!(app.closed.is_empty());
            }
            world.go_on();
        }
    }
}

#[test]
fn a_flow_finds_its_way_again_when_the_nic_has_a_new_key() {
    for has_lanes in [true, false] {
        let mut world = Spread::keyed(11, [4, 4]);
        let engines = [1, 2];
        let (keys, ..) = world.open(engines);
        let mut conversation = Conversation::new(&mut world, engines, keys);
        world.has_lanes = has_lanes;
        for round in 0..12 {
            world.hosts[round % 2].hash = Hash::Keyed(1000 + round as u64);
            let before = conversation.received;
            conversation.go_on(&mut world, 30 * MILLISECOND);
            let strayed = world.strayed();
            conversation.go_on(&mut world, 5 * MILLISECOND);
            assert_eq!(world.strayed(), strayed, "round {round}: still on a detour");
            for (host, engine) in engines.into_iter().enumerate() {
                let flow = world.flow(host, engine).expect("open");
                assert!(!flow.detour, "round {round}: {flow:?}");
                let received = conversation.received[host] - before[host];
                assert!(received > 100, "round {round}, lanes {has_lanes}: {received} {flow:?}");
            }
        }
        if has_lanes {
            for (host, engine) in engines.into_iter().enumerate() {
                let flow = world.flow(host, engine).expect("open");
                assert!(flow.packets_lost < 500, "{flow:?}");
            }
        }
    }
}

#[test]
fn a_hash_without_ports_leaves_the_flow_on_a_detour_and_at_peace() {
    for hashes in [[Hash::NoPorts, Hash::Keyed(13)], [Hash::NoPorts, Hash::NoPorts]] {
        stay_on_a_detour(hashes);
    }
}

fn stay_on_a_detour(hashes: [Hash; 2]) {
    let mut world = Spread::new(13, [4, 4], hashes);
    world.listen(2);
    let client = world.connect(0);
    world.run_until(|world| world.hosts[0].engines[0].app.connected == 1);
    let server = world.hosts[1].engines[2].app.accepted[0];
    let mut conversation = Conversation::new(&mut world, [0, 2], [client, server]);
    conversation.go_on(&mut world, 100 * MILLISECOND);
    assert!(conversation.received.iter().all(|received| *received > 1000));
    assert!((0..2).all(|host| world.flow(host, [0, 2][host]).expect("open").detour));
    assert!(world.now < Time::from_ns(SECOND + 250 * MILLISECOND), "opened soon enough");
    // Once it has been given up, the search costs next to nothing.
    let sent = world.sent;
    world.run_for(5 * SECOND);
    assert!(world.sent - sent < 1000, "{} packets", world.sent - sent);
}

/// Whoever has shown that it receives at its address may still be hostile: it says that it has as
/// many engines as there can be, tells no path, and repeats its syn.
#[test]
fn a_client_that_answers_nothing_is_sent_little() {
    let mut world = Spread::keyed(19, [64, 1]);
    world.listen(0);
    world.connect(5);
    let has_cookie = |bytes: &[u8]| bytes[1] == PacketType::Syn as u8 && bytes[35] > 0;
    let mut syn = None;
    while world.hosts[1].engines[0].app.accepted.is_empty() {
        world.transmit();
        let under_way = |world: &Spread| {
            let mut packets = world.link.iter().map(|(_, packet)| &packet.bytes);
            packets.find(|bytes| has_cookie(bytes)).cloned()
        };
        syn = syn.or_else(|| under_way(&world));
        world.go_on();
    }
    let syn = syn.expect("a flow is opened by one");
    let (from, to) = (world.hosts[0].address, world.hosts[1].address);
    let Engine { endpoint, app } = &mut world.hosts[1].engines[0];
    let (mut sent, mut bytes) = ([0, 0], [0; 2048]);
    for number in 0..10_000 {
        let now = world.now + number * 100 * MICROSECOND;
        if number > 1000 {
            endpoint.handle_datagram(now, from, to, &syn, Arrival::Queue, Ecn::NotCapable, app);
        }
        endpoint.handle_timeouts(now, app);
        while let Some(destination) = endpoint.next_transmit(now) {
            endpoint.poll_transmit(now, destination, &mut bytes, app);
            sent[usize::from(number > 1000)] += 1;
        }
    }
    assert!(sent[0] <= 640, "{} syn-acks", sent[0]);
    assert!(sent[1] <= 90 * 64, "{} syn-acks for 9,000 repeated syns", sent[1]);
}

/// What a peer says about ports makes nobody send more than a little.
#[test]
fn a_peer_that_complains_all_the_time_is_humoured_now_and_then() {
    use clearway_wire::clearway::{HEADER_LENGTH, Header, emit_path, emit_probe, emit_stray, seal};
    let mut world = Spread::keyed(17, [4, 4]);
    let (keys, ..) = world.open([0, 1]);
    world.run_for(MILLISECOND);
    let now = world.now;
    world.hosts[0].engines[0].endpoint.send(now, keys[0], 0, 0);
    world.transmit();
    let data = world.link.take().expect("sent something").1.1.bytes;
    let flow = u64::from_be_bytes(data[8..16].try_into().expect("8 bytes"));
    let (peer, address) = (world.hosts[0].address, world.hosts[1].address);
    let server = &mut world.hosts[1].engines[1];
    let mut random = Random::new(17);
    let (begin, mut sent, mut bytes) = (world.now, 0, [0; 2048]);
    for number in 0..10_000u64 {
        let now = begin + number * 10 * MICROSECOND;
        let port = match server.endpoint.next_transmit(now) {
            Some(destination) => destination.from.port(),
            None => random.next_u32() as u16,
        };
        let mut at = Header::data(flow, 1000 + number, false).emit(&mut bytes);
        at += emit_stray(&mut bytes[at..], port);
        at += emit_path(&mut bytes[at..], random.next_u32() as u16, random.below(4) as u16);
        at += emit_probe(&mut bytes[at..], random.below(3) as u16);
        assert!(at > HEADER_LENGTH);
        seal(&mut bytes[..at]);
        let arrival = if random.chance(1, 2) { Arrival::Queue } else { Arrival::Lane };
        let datagram = bytes[..at].to_vec();
        let (endpoint, app) = (&mut server.endpoint, &mut server.app);
        endpoint.handle_datagram(now, peer, address, &datagram, arrival, Ecn::NotCapable, app);
        server.endpoint.handle_timeouts(now, &mut server.app);
        while let Some(destination) = server.endpoint.next_transmit(now) {
            server.endpoint.poll_transmit(now, destination, &mut bytes, &server.app);
            sent += 1;
        }
    }
    assert!(sent < 20_000, "{sent} packets in answer to 10,000");
    assert_eq!(server.endpoint.flows().count(), 1);
}
