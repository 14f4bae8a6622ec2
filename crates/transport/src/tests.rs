//! Two endpoints over a link that loses, duplicates, reorders, delays and corrupts, in virtual
//! time. Everything comes from a seed, which a failure prints.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use clearway_base::{MICROSECOND, MILLISECOND, Random, RangeSet, SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::clearway::{Header, seal};
use clearway_world::{Agenda, Datagram, Faults, Steps, Way};

use crate::incoming::Incoming;
use crate::{
    App, Arrival, Arrived, Buffer, Config, Delivered, Destination, Endpoint, FlowKey, Operated,
    Order, Owner, Reason, Room, StreamKey, Undelivered, Unfinished,
};

#[expect(clippy::single_range_in_vec_init, reason = "sets of one range")]
mod bounds;
mod company;
mod congestion;
mod counted;
mod deadlines;
mod flows;
mod hostile;
mod in_flow;
mod packets;
mod paths;
mod shared;
mod spray;
mod state;
mod streams;
mod timers;
mod wraps;

/// An app with a pool of limited size, whose receive buffers are plain vectors.
pub(crate) struct TestApp {
    transmit_pool: Vec<u8>,
    pool_bytes: u64,
    pool_bytes_free: u64,
    unfinished: Unfinished,
    /// Where the connections that were accepted come from.
    peers: HashMap<Owner, IpAddr>,
    buffers: BTreeMap<u32, Vec<u8>>,
    next_buffer: u32,
    /// Bytes of buffers that are posted, and what was delivered in such.
    pub(crate) posted: Vec<u32>,
    pub(crate) placed: Vec<Vec<u8>>,
    /// It takes operations as they come: those that were carried out.
    pub(crate) operated: Option<Vec<Vec<u8>>>,
    /// Delivered and not yet released, in order.
    delivered: VecDeque<(Owner, Buffer)>,
    sent: u32,
    /// Messages that were dropped.
    dropped: Vec<(Owner, u32)>,
    refuses: bool,
    /// It does not read what it is told.
    is_deaf: bool,
    /// Nobody has checked whose memory flows name.
    forgives: bool,
    /// What those who connect may use.
    window: u64,
    accepted: Vec<FlowKey>,
    connected: u32,
    /// Who was told that it is connected, or of a message, or that one was dropped, in order.
    told: Vec<(Owner, &'static str)>,
    closed: Vec<Reason>,
    /// The same of all connections, with whose they are.
    ended: Vec<(Owner, Reason)>,
    /// Streams that were accepted.
    streams: Vec<(Owner, StreamKey)>,
    /// What was begun to be shared, and is not.
    unshared: Vec<(Owner, Option<FlowKey>)>,
    pongs: Vec<u64>,
    undelivered: Vec<Undelivered>,
}

impl TestApp {
    pub(crate) fn new(pool_bytes: u64) -> Self {
        Self {
            transmit_pool: Vec::new(),
            pool_bytes,
            pool_bytes_free: pool_bytes,
            unfinished: Unfinished::new(pool_bytes as u32),
            peers: HashMap::new(),
            buffers: BTreeMap::new(),
            next_buffer: 0,
            posted: Vec::new(),
            placed: Vec::new(),
            operated: None,
            delivered: VecDeque::new(),
            sent: 0,
            dropped: Vec::new(),
            refuses: false,
            is_deaf: false,
            forgives: false,
            window: WINDOW,
            accepted: Vec::new(),
            connected: 0,
            told: Vec::new(),
            closed: Vec::new(),
            ended: Vec::new(),
            streams: Vec::new(),
            unshared: Vec::new(),
            pongs: Vec::new(),
            undelivered: Vec::new(),
        }
    }

    /// Made is free plus used.
    fn audit(&self) {
        let used: u64 = self.buffers.values().map(|buffer| buffer.len() as u64).sum();
        assert_eq!(self.pool_bytes_free + used, self.pool_bytes);
        assert!(self.delivered.iter().all(|(_, buffer)| self.buffers.contains_key(&buffer.id)));
    }

    /// The lengths of messages that were delivered and not released, in order.
    pub(crate) fn lengths(&self) -> Vec<u32> {
        self.delivered.iter().map(|(_, buffer)| buffer.length).collect()
    }

    /// No message has begun and not been finished.
    pub(crate) fn is_all_finished(&self) -> bool {
        self.unfinished.is_empty()
    }

    fn peer(&self, owner: Owner) -> IpAddr {
        self.peers.get(&owner).copied().unwrap_or(IpAddr::from([10, 0, 0, 2]))
    }

    /// The first buffer that is posted and has room for so many bytes.
    fn take_posted(&mut self, length: u32) -> Option<Buffer> {
        let at = self.posted.iter().position(|bytes| *bytes >= length)?;
        self.posted.remove(at);
        self.next_buffer += 1;
        let id = self.next_buffer | POSTED;
        self.buffers.insert(id, vec![0; length as usize]);
        Some(Buffer { id, offset: 0, length })
    }

    fn release(&mut self, buffer: Buffer) -> Vec<u8> {
        if buffer.id & POSTED == 0 {
            self.pool_bytes_free += u64::from(buffer.length);
        }
        self.buffers.remove(&buffer.id).expect("released once")
    }
}

impl App for TestApp {
    fn read(&self, _: Owner, offset: u32, into: &mut [u8]) {
        let bytes = self.transmit_pool.get(offset as usize..).and_then(|b| b.get(..into.len()));
        match bytes {
            Some(bytes) => into.copy_from_slice(bytes),
            None => assert!(self.forgives),
        }
    }

    fn allocate(&mut self, _: Owner, length: u32) -> Option<Buffer> {
        self.pool_bytes_free = self.pool_bytes_free.checked_sub(u64::from(length))?;
        self.next_buffer += 1;
        self.buffers.insert(self.next_buffer, vec![0; length as usize]);
        Some(Buffer { id: self.next_buffer, offset: 0, length })
    }

    fn receive(&mut self, owner: Owner, bytes: &[u8]) -> Option<Delivered> {
        let length = bytes.len() as u32;
        let buffer = self.take_posted(length).or_else(|| self.allocate(owner, length))?;
        self.write(owner, buffer, 0, bytes);
        Some(self.deliver(owner, buffer))
    }

    fn begin(&mut self, owner: Owner, length: u32, order: Order, room: Room) -> Option<Buffer> {
        if room == Room::Posted
            && let Some(posted) = self.take_posted(length)
        {
            return Some(posted);
        }
        let peer = self.peer(owner);
        if !self.unfinished.allows(peer, length, order) {
            return None;
        }
        let buffer = self.allocate(owner, length)?;
        self.unfinished.begin(peer, length, order);
        Some(buffer)
    }

    fn begin_operation(
        &mut self,
        owner: Owner,
        length: u32,
        order: Order,
        first: Option<&[u8]>,
    ) -> Option<Buffer> {
        if self.operated.is_none() || first.is_none() {
            return self.begin(owner, length, order, Room::Pool);
        }
        assert_eq!(order, Order::Due);
        self.posted.push(length);
        self.take_posted(length)
    }

    fn turn_of_operation(
        &mut self,
        owner: Owner,
        buffer: Buffer,
        order: Order,
        parts: &RangeSet,
    ) -> Buffer {
        if self.operated.is_none() || buffer.id & POSTED != 0 {
            return buffer;
        }
        self.posted.push(buffer.length);
        let own = self.take_posted(buffer.length).expect("just posted");
        self.finish(owner, buffer, order);
        let bytes = self.release(buffer);
        for part in parts.iter() {
            let bytes = &bytes[part.start as usize..part.end as usize];
            self.write(owner, own, part.start as u32, bytes);
        }
        own
    }

    fn operate(&mut self, _: Owner, operation: Arrived<'_>) -> Operated {
        let bytes = match operation {
            Arrived::Packet(bytes) => bytes.to_vec(),
            Arrived::Buffer(buffer) => self.release(buffer),
        };
        let Some(operated) = &mut self.operated else { return Operated::Violation };
        operated.push(bytes);
        Operated::Over
    }

    fn finish(&mut self, owner: Owner, buffer: Buffer, order: Order) {
        if buffer.id & POSTED != 0 {
            return;
        }
        let peer = self.peer(owner);
        self.unfinished.end(peer, buffer.length, order);
    }

    fn write(&mut self, _: Owner, buffer: Buffer, at: u32, bytes: &[u8]) {
        let target = self.buffers.get_mut(&buffer.id).expect("allocated");
        target[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn discard(&mut self, owner: Owner, buffer: Buffer, order: Order) {
        if self.forgives {
            return;
        }
        self.finish(owner, buffer, order);
        self.release(buffer);
    }

    fn deliver(&mut self, owner: Owner, buffer: Buffer) -> Delivered {
        self.told.push((owner, "message"));
        if buffer.id & POSTED != 0 {
            self.placed.extend(self.buffers.remove(&buffer.id));
            return Delivered::Released;
        }
        self.delivered.push_back((owner, buffer));
        Delivered::Held
    }

    fn sent(&mut self, _: Owner, messages: u32) {
        assert!(messages > 0, "that is no news");
        self.sent += messages;
    }

    fn dropped(&mut self, owner: Owner, number: u32) {
        self.dropped.push((owner, number));
    }

    fn reads_news(&self, _: Owner) -> bool {
        !self.is_deaf
    }

    fn skipped(&mut self, owner: Owner, messages: u32) {
        assert!(messages > 0, "that is no news");
        (0..messages).for_each(|_| self.told.push((owner, "skipped")));
    }

    fn accept(
        &mut self,
        listener: Owner,
        key: StreamKey,
        _: SocketAddr,
        peer: SocketAddr,
    ) -> Option<(Owner, u64)> {
        if self.refuses {
            return None;
        }
        self.accepted.push(key.flow);
        let connection = self.accepted.len() as u32;
        let owner = Owner { channel: listener.channel, connection };
        if key.stream != 0 {
            self.streams.push((owner, key));
        }
        self.peers.insert(owner, peer.ip());
        Some((owner, self.window))
    }

    fn connected(&mut self, owner: Owner) {
        self.told.push((owner, "connected"));
        self.connected += 1;
    }

    fn unshared(&mut self, owner: Owner, flow: Option<FlowKey>) {
        self.unshared.push((owner, flow));
    }

    fn accept_stream(&mut self, parent: Owner, stream: StreamKey) -> Option<(Owner, u64)> {
        if self.refuses {
            return None;
        }
        let connection = FIRST_STREAM + self.streams.len() as u32;
        let owner = Owner { channel: parent.channel, connection };
        self.peers.insert(owner, self.peer(parent));
        self.streams.push((owner, stream));
        Some((owner, self.window))
    }

    fn closed(&mut self, owner: Owner, reason: Reason) {
        if owner.connection < FIRST_STREAM {
            self.closed.push(reason);
        }
        self.ended.push((owner, reason));
    }

    fn pong(&mut self, _: u64, result: Result<u64, Undelivered>) {
        match result {
            Ok(rtt_ns) => self.pongs.push(rtt_ns),
            Err(undelivered) => self.undelivered.push(undelivered),
        }
    }
}

/// A bit of the ids of buffers that are posted.
const POSTED: u32 = 1 << 31;
const WINDOW: u64 = 256 * 1024;
const PORT: u16 = 7000;
/// Connections of at least this number are streams of others.
const FIRST_STREAM: u32 = 1 << 16;
const LISTENER: Owner = Owner { channel: 0, connection: 0 };

/// How much later a packet comes at most that others overtake, or the second of two.
const LATE_NS_MAX: u64 = 100 * MICROSECOND;

/// A bad link: of a thousand packets so many are lost, come twice, come late, and are damaged.
fn bad(loss: u64, duplication: u64, reordering: u64, corruption: u64) -> Faults {
    let ppm = |of_thousand: u64| of_thousand as u32 * 1000;
    Faults {
        loss_ppm: ppm(loss),
        duplication_ppm: ppm(duplication),
        delay_ppm: ppm(reordering),
        delay_ns_max: LATE_NS_MAX,
        corruption_ppm: ppm(corruption),
        ..Faults::default()
    }
}

/// A host of one engine: an endpoint with its app.
struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    app: TestApp,
}

/// What every test counts when it ends.
impl Drop for Host {
    fn drop(&mut self) {
        audit(&self.endpoint, &self.app);
    }
}

fn audit(endpoint: &Endpoint, app: &TestApp) {
    if !std::thread::panicking() {
        endpoint.audit().expect("in order");
        endpoint.recount();
        app.audit();
    }
}

impl Host {
    fn new(number: u8, endpoint: Endpoint, pool_bytes: u64) -> Self {
        let address = SocketAddr::from(([10, 0, 0, number], 20707));
        Self { address, endpoint, app: TestApp::new(pool_bytes) }
    }

    /// A packet has come by its NIC; true if it has something to answer.
    fn handle(&mut self, now: Time, from: SocketAddr, ecn: Ecn, packet: &[u8]) -> bool {
        let (to, by) = (self.address, Arrival::Queue);
        self.endpoint.handle_datagram(now, from, to, packet, by, ecn, &mut self.app)
    }

    /// The next packet that it sends now.
    fn poll_transmit(&mut self, now: Time) -> Option<(Destination, Vec<u8>)> {
        let mut bytes = [0; 9216];
        loop {
            let destination = self.endpoint.next_transmit(now)?;
            let length = self.endpoint.poll_transmit(now, destination, &mut bytes, &self.app);
            if length > 0 {
                return Some((destination, bytes[..length].to_vec()));
            }
        }
    }

    /// All that it sends now.
    fn packets(&mut self, now: Time) -> Vec<(Destination, Vec<u8>)> {
        std::iter::from_fn(|| self.poll_transmit(now)).collect()
    }
}

/// What becomes of the next large packets to host 1, whatever the link does to others.
#[derive(Default)]
struct Accidents {
    /// So many are lost.
    lose: u32,
    /// After those, each that is a multiple of this is lost, if it is not 0.
    lose_each: u64,
    /// The next one that is not comes so much later.
    late_ns: u64,
    count: u64,
}

impl Accidents {
    /// How much later than others the next packet comes; `None` if it never does.
    fn next(&mut self) -> Option<u64> {
        if self.lose > 0 {
            self.lose -= 1;
            return None;
        }
        self.count += 1;
        if self.lose_each > 0 && self.count.is_multiple_of(self.lose_each) {
            return None;
        }
        Some(core::mem::take(&mut self.late_ns))
    }
}

/// Payload from which on a packet is a large one: no acknowledgement, no limit.
const LARGE_BYTES: usize = 500;

/// A packet that host 0 has sent, and what its flow said then.
#[derive(Clone, Copy, Debug)]
struct Departure {
    at: Time,
    bytes: u64,
    in_flight_bytes: u64,
    window_bytes: u64,
}

struct Network {
    hosts: [Host; 2],
    /// To each host.
    ways: [Way; 2],
    /// What is on its way, and to which host.
    link: Agenda<(usize, Datagram)>,
    now: Time,
    random: Random,
    /// Larger packets vanish; their sender is told, or not.
    packet_bytes_max: usize,
    tells_too_big: bool,
    /// Packets that may be marked are.
    is_congested: bool,
    /// Hosts look at what has come at multiples of this only, if it is not 0.
    turn_ns: u64,
    accidents: Accidents,
    /// What host 0 has sent, if anybody wants to know.
    departures: Option<Vec<Departure>>,
    /// All that has come to host 1, likewise.
    tape: Option<Vec<Datagram>>,
}

impl Network {
    fn new(seed: u64, config: &Config, faults: Faults, pool_bytes: u64) -> Self {
        let now = Time::from_ns(SECOND);
        let hosts = [0, 1].map(|index: u8| {
            let seed = seed * 2 + u64::from(index);
            let endpoint = Endpoint::new(config.clone(), now, seed, [index; 16]);
            Host::new(index + 1, endpoint, pool_bytes)
        });
        let way = || Way::new(Faults { latency_ns: 5 * MICROSECOND, ..faults });
        Self {
            hosts,
            ways: [way(), way()],
            link: Agenda::default(),
            now,
            random: Random::new(seed),
            packet_bytes_max: usize::MAX,
            tells_too_big: false,
            is_congested: false,
            turn_ns: 0,
            accidents: Accidents::default(),
            departures: None,
            tape: None,
        }
    }

    /// Changes the link, both ways.
    fn change_link(&mut self, change: impl Fn(&mut Faults)) {
        for way in &mut self.ways {
            let mut faults = *way.faults();
            change(&mut faults);
            way.set_faults(faults);
        }
    }

    fn set_delay(&mut self, delay_ns: u64) {
        self.change_link(|faults| faults.latency_ns = delay_ns);
    }

    /// From now on nothing arrives, or all does again.
    fn cut(&mut self, is_cut: bool) {
        self.change_link(|faults| faults.loss_ppm = if is_cut { 1_000_000 } else { 0 });
    }

    /// Packets that have set out.
    fn packets(&self) -> u64 {
        self.ways.iter().map(Way::frames).sum()
    }

    fn connect(&mut self) -> FlowKey {
        let [client, server] = &mut self.hosts;
        server.endpoint.listen(PORT, LISTENER).expect("free port");
        let owner = Owner { channel: 1, connection: 1 };
        client
            .endpoint
            .connect(self.now, owner, client.address, server.address, PORT, WINDOW)
            .expect("room")
    }

    /// The same for a flow that is to be shared.
    fn begin_shared(&mut self) -> FlowKey {
        let [client, server] = &mut self.hosts;
        server.endpoint.listen(PORT, LISTENER).expect("free port");
        let (from, to) = (client.address, server.address);
        client.endpoint.connect_shared(self.now, from, to, PORT, WINDOW).expect("room")
    }

    /// Opens a connection by a flow of host 0.
    fn open(&mut self, flow: FlowKey, owner: Owner) -> StreamKey {
        let endpoint = &mut self.hosts[0].endpoint;
        endpoint.open_stream(self.now, flow, owner, WINDOW).expect("room")
    }

    /// Connects and runs until both sides know.
    fn connected(&mut self) -> [FlowKey; 2] {
        let key = self.connect();
        self.run_until(|network| network.hosts[0].app.connected == 1);
        [key, self.hosts[1].app.accepted[0]]
    }

    fn transmit(&mut self) {
        for index in 0..2 {
            while let Some((destination, bytes)) = self.hosts[index].poll_transmit(self.now) {
                self.record(index, bytes.len());
                let Destination { from, to, .. } = destination;
                self.carry(1 - index, Datagram { from, to, ecn: Ecn::Capable, bytes });
            }
        }
    }

    fn record(&mut self, from: usize, bytes: usize) {
        let flow = self.hosts[from].endpoint.flows().next();
        if let (0, Some(departures), Some(flow)) = (from, &mut self.departures, flow) {
            departures.push(Departure {
                at: self.now,
                bytes: bytes as u64,
                in_flight_bytes: flow.in_flight_bytes,
                window_bytes: flow.congestion_window_bytes,
            });
        }
    }

    fn carry(&mut self, to: usize, mut packet: Datagram) {
        let (now, length) = (self.now, packet.bytes.len());
        let is_large = to == 1 && length >= LARGE_BYTES;
        let Some(late_ns) = (if is_large { self.accidents.next() } else { Some(0) }) else {
            return;
        };
        if length > self.packet_bytes_max {
            if self.tells_too_big {
                let (quote, mtu) = (&packet.bytes[..100], self.packet_bytes_max as u32 + 28);
                self.hosts[1 - to].endpoint.handle_packet_too_big(now, packet.to, quote, mtu);
            }
            return;
        }
        let Some(fate) = self.ways[to].enter(now, &mut packet, &mut self.random) else { return };
        let mut arrival = fate.arrival + late_ns;
        for _ in 1..fate.copies {
            self.link.note(arrival, (to, packet.clone()));
            if self.random.chance(1, 2) {
                arrival = arrival + self.random.below(LATE_NS_MAX);
            }
        }
        self.link.note(arrival, (to, packet));
    }

    /// The next packet that is on its way, which does not arrive.
    #[track_caller]
    fn intercept(&mut self) -> Datagram {
        self.link.take().expect("something is on its way").1.1
    }

    fn arrive(&mut self, to: usize, packet: Datagram) {
        let ecn = if self.is_congested { Ecn::Marked } else { packet.ecn };
        self.hosts[to].handle(self.now, packet.from, ecn, &packet.bytes);
        if let (1, Some(tape)) = (to, &mut self.tape) {
            tape.push(packet);
        }
    }

    /// Releases everything that host `index` has got, and returns the messages.
    fn read_all(&mut self, index: usize, key: FlowKey) -> Vec<Vec<u8>> {
        let host = &mut self.hosts[index];
        let mut messages = Vec::new();
        while let Some((_, buffer)) = host.app.delivered.pop_front() {
            messages.push(host.app.release(buffer));
            host.endpoint.release(self.now, key, 1, u64::from(buffer.length));
        }
        messages
    }

    /// Both endpoints go on elsewhere.
    fn move_on(&mut self) {
        for host in &mut self.hosts {
            let saved = host.endpoint.save();
            let restored = Endpoint::restore(saved.clone(), Config::default(), self.now);
            host.endpoint = restored.expect("just saved");
            assert_eq!(host.endpoint.save().flows, saved.flows);
        }
    }
}

impl Steps for Network {
    fn now(&self) -> Time {
        self.now
    }

    /// Advances to the next arrival or timeout.
    fn step(&mut self) -> bool {
        self.transmit();
        let timeouts = self.hosts.iter().filter_map(|host| host.endpoint.next_timeout());
        let Some(next) = timeouts.chain(self.link.next_at()).min() else { return false };
        self.now = self.now.max(next);
        if self.turn_ns > 0 {
            self.now = Time::from_ns(self.now.as_ns().next_multiple_of(self.turn_ns));
            let now = self.now;
            self.hosts.iter_mut().for_each(|host| host.endpoint.begin_turn(now, false));
        }
        while let Some((to, packet)) = self.link.take_due(self.now) {
            self.arrive(to, packet);
        }
        for host in &mut self.hosts {
            host.endpoint.handle_timeouts(self.now, &mut host.app);
        }
        true
    }

    fn describe(&self) -> String {
        let host = |host: &Host| {
            let flows: Vec<_> = host.endpoint.flows().collect();
            format!("{flows:?} {:?} closed {:?}", host.endpoint.counters(), host.app.closed)
        };
        format!("{}\n{}", host(&self.hosts[0]), host(&self.hosts[1]))
    }
}

/// A data packet of a flow that nobody has sent, with the frames that `emit` writes.
fn forged(flow: u64, number: u64, emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0; 1472];
    let at = Header::data(flow, number, false).emit(&mut bytes);
    let length = emit(&mut bytes[at..]);
    bytes.truncate(at + length);
    seal(&mut bytes);
    bytes
}

/// The content of message `index`: recognisable, and different at each position.
fn content(index: u32, length: u32) -> Vec<u8> {
    (0..length)
        .map(|at| (at.wrapping_mul(31) ^ index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Sends `lengths` from host 0 to host 1, at most `window` messages at a time, and checks that
/// each arrives once, in order and intact.
fn transfer(network: &mut Network, keys: [FlowKey; 2], lengths: &[u32], window: usize) {
    let mut sent = 0;
    let mut received = 0;
    let end = network.now + Network::PATIENCE_NS;
    let mut pool_end = network.hosts[0].app.transmit_pool.len() as u32;
    while received < lengths.len() {
        while sent < lengths.len() && sent - received < window {
            let app = &mut network.hosts[0].app;
            let offset = pool_end;
            app.transmit_pool.extend(content(sent as u32, lengths[sent]));
            pool_end += lengths[sent];
            let now = network.now;
            network.hosts[0].endpoint.send(now, keys[0], offset, lengths[sent]);
            sent += 1;
        }
        network.go_on();
        assert!(network.now < end, "{received} received: {}", network.describe());
        for message in network.read_all(1, keys[1]) {
            assert_eq!(message, content(received as u32, lengths[received]), "message {received}");
            received += 1;
        }
    }
}

fn mixed_lengths(random: &mut Random, count: usize) -> Vec<u32> {
    (0..count)
        .map(|_| match random.below(20) {
            0 => 0,
            1 => 10_000 + random.below(90_000) as u32,
            2..=5 => random.below(6_000) as u32,
            _ => random.below(200) as u32,
        })
        .collect()
}

#[test]
fn messages_of_all_sizes_arrive_in_order_over_a_perfect_link() {
    let mut network = Network::new(1, &Config::default(), Faults::default(), 64 << 20);
    let keys = network.connected();
    let lengths = [0, 1, 63, 64, 1400, 1448, 1472, 5000, 65_536, 1 << 20, 8 << 20, 3];
    transfer(&mut network, keys, &lengths, 3);
    network.run_until(|network| network.hosts[0].app.sent == lengths.len() as u32);
    assert_eq!(network.hosts[0].endpoint.flows().next().expect("open").packets_lost, 0);
}

#[test]
fn messages_arrive_once_in_order_intact_over_bad_links() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let faults = bad(random.below(100), random.below(100), random.below(200), random.below(50));
        let mut network = Network::new(seed, &Config::default(), faults, 4 << 20);
        let keys = network.connected();
        let lengths = mixed_lengths(&mut random, 400);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            transfer(&mut network, keys, &lengths, 16);
        }));
        assert!(outcome.is_ok(), "seed {seed} fails");
        assert!(network.hosts.iter().all(|host| host.app.closed.is_empty()), "seed {seed}: closed");
        let counters = network.hosts[1].endpoint.counters();
        assert_eq!(counters.dropped_violation, 0, "seed {seed}");
    }
}

#[test]
fn a_receiver_that_does_not_read_stops_its_sender_and_nothing_is_lost() {
    let mut network = Network::new(3, &Config::default(), Faults::default(), 64 << 20);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 10_000);
    for _ in 0..100 {
        let now = network.now;
        network.hosts[0].endpoint.send(now, keys[0], 0, 10_000);
    }
    network.run_for(SECOND);
    let held = network.hosts[1].app.delivered.len();
    assert_eq!(held as u64, WINDOW / (10_000 + 64), "the window, and no more");
    assert_eq!(network.hosts[0].endpoint.flows().next().expect("open").packets_lost, 0);
    let mut received = 0;
    while received < 100 {
        received += network.read_all(1, keys[1]).len();
        network.go_on();
    }
    assert_eq!(network.hosts[0].endpoint.flows().next().expect("open").packets_lost, 0);
}

/// Found by the simulator: one more syn-ack told the limit to a client that was connected and did
/// not read it, and then nothing told it again.
#[test]
fn a_repeated_syn_ack_takes_no_limit_away() {
    const LENGTH: u32 = WINDOW as u32 / 8;
    let mut network = Network::new(6, &Config::default(), Faults::default(), 64 << 20);
    network.tape = Some(Vec::new());
    let keys = network.connected();
    let syn = network.tape.take().expect("taped").pop().expect("the last is the syn");
    network.hosts[0].app.transmit_pool = content(0, LENGTH);
    for message in 0..16 {
        network.hosts[0].endpoint.send(network.now, keys[0], 0, LENGTH);
        network.run_until(|network| !network.hosts[1].app.delivered.is_empty());
        assert_eq!(network.read_all(1, keys[1]).len(), 1, "message {message}");
        network.carry(1, syn.clone());
        let end = network.now + MILLISECOND;
        network.run_until(|network| network.now > end);
    }
}

#[test]
fn a_full_pool_delays_messages_but_loses_none() {
    // The window is wider than the pool: packets are dropped for want of memory.
    let mut network = Network::new(4, &Config::default(), Faults::default(), 100_000);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 30_000);
    for _ in 0..20 {
        let now = network.now;
        network.hosts[0].endpoint.send(now, keys[0], 0, 30_000);
    }
    network.run_for(SECOND);
    assert_eq!(network.hosts[1].app.delivered.len(), 3);
    assert!(network.hosts[1].endpoint.counters().dropped_no_buffer > 0);
    let begin = network.now;
    let mut received = 0;
    while received < 20 {
        for message in network.read_all(1, keys[1]) {
            assert_eq!(message, content(0, 30_000));
            received += 1;
        }
        network.go_on();
    }
    let took_ns = network.now.since(begin);
    assert!(took_ns < 100 * MILLISECOND, "resumes at once when memory is free: {took_ns} ns");
}

/// Found by the simulator: the receiver had no room for a long message that came before its turn,
/// and each probe carried a part of that, because the short one that was due had been lost in a
/// later packet.
#[test]
fn a_probe_brings_what_is_due_not_what_is_turned_away() {
    let mut network = Network::new(7, &Config::default(), Faults::default(), 64 << 10);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 20_000);
    for (length, is_lost) in [(700, true), (11, false), (20_000, false)] {
        network.hosts[0].endpoint.send(network.now, keys[0], 0, length);
        network.cut(is_lost);
        network.transmit();
    }
    // Until the first message is sent again, and lost again.
    network
        .run_until(|network| network.hosts[0].endpoint.flows().any(|flow| flow.packets_lost > 0));
    network.cut(true);
    let end = network.now + 2 * MILLISECOND;
    network.run_until(|network| network.now > end);
    network.cut(false);
    let begin = network.now;
    network.run_until(|network| network.hosts[1].app.delivered.len() == 3);
    assert!(network.now.since(begin) < SECOND);
}

#[test]
fn close_delivers_what_was_sent_before_and_both_apps_learn_of_it() {
    for seed in 0..40 {
        let faults = bad(200, 0, 0, 0);
        let mut network = Network::new(seed, &Config::default(), faults, 4 << 20);
        let keys = network.connected();
        network.hosts[0].app.transmit_pool = content(0, 5000);
        let now = network.now;
        for _ in 0..10 {
            network.hosts[0].endpoint.send(now, keys[0], 0, 5000);
        }
        let host = &mut network.hosts[0];
        host.endpoint.close(now, keys[0], &mut host.app);
        network.run_until(|network| network.hosts.iter().all(|host| !host.app.closed.is_empty()));
        assert_eq!(network.hosts[1].app.delivered.len(), 10, "seed {seed}");
        assert!(
            network.hosts.iter().all(|host| host.app.closed == [Reason::Closed]),
            "seed {seed}"
        );
        // The last acknowledgement may be lost; the peer stays to repeat it, and then forgets.
        network.run_until(|network| {
            network.hosts.iter().all(|host| host.endpoint.flows().count() == 0)
        });
    }
}

#[test]
fn a_close_is_in_order_though_its_acknowledgement_is_lost_until_the_peer_has_forgotten() {
    let mut network = Network::new(17, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 5000);
    let now = network.now;
    for _ in 0..3 {
        network.hosts[0].endpoint.send(now, keys[0], 0, 5000);
    }
    let host = &mut network.hosts[0];
    host.endpoint.close(now, keys[0], &mut host.app);
    network.run_until(|network| !network.hosts[1].app.closed.is_empty());
    network.cut(true);
    network.run_until(|network| network.hosts[1].endpoint.flows().count() == 0);
    assert!(network.hosts[0].app.closed.is_empty());
    network.cut(false);
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::Closed]);
    assert_eq!(network.hosts[0].app.sent, 3);
    assert_eq!(network.hosts[0].endpoint.counters().flows_reset_by_peer, 0);
}

/// What is left of the credit of one large message must not let the sender go beyond the next.
#[test]
fn credit_beyond_the_window_is_for_the_large_message_that_is_there() {
    let (mut app, mut incoming) = (TestApp::new(16 << 20), Incoming::new(1000));
    let mut take = |incoming: &mut Incoming, sequence, total, at, length: u32| {
        let bytes = vec![0; length as usize];
        assert_eq!(incoming.fragment(&mut app, LISTENER, sequence, total, at, &bytes), Ok(()));
    };
    take(&mut incoming, 0, 100_000, 0, 500);
    assert_eq!(incoming.announce_limit(), 64 + 100_000 + 1000);
    take(&mut incoming, 1, 200, 0, 100);
    take(&mut incoming, 0, 100_000, 500, 99_500);
    incoming.release(1, 100_000);
    assert_eq!(incoming.announce_limit(), 64 + 100_000 + (64 + 200) + 1000);
    take(&mut incoming, 1, 200, 100, 100);
    incoming.release(1, 200);
    assert_eq!(incoming.announce_limit(), 64 + 100_000 + (64 + 200) + 1000);
}

#[test]
fn an_abort_is_a_reset_for_the_peer() {
    let mut network = Network::new(5, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    let host = &mut network.hosts[0];
    host.endpoint.abort(keys[0], Reason::Reset, &mut host.app);
    network.run_until(|network| !network.hosts[1].app.closed.is_empty());
    assert_eq!(network.hosts[1].app.closed, [Reason::Reset]);
    assert!(network.hosts[0].app.closed.is_empty());
}

#[test]
fn a_peer_that_has_forgotten_the_flow_resets_it() {
    let mut network = Network::new(6, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    // The peer's daemon is killed and starts again.
    network.hosts[1].endpoint = Endpoint::new(Config::default(), network.now, 99, [9; 16]);
    network.hosts[0].app.transmit_pool = vec![1; 100];
    let now = network.now;
    network.hosts[0].endpoint.send(now, keys[0], 0, 100);
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::Reset]);
    assert!(network.now.since(now) < MILLISECOND);
}

#[test]
fn a_silent_peer_times_out_and_an_idle_one_does_not() {
    let mut network = Network::new(7, &Config::default(), Faults::default(), 1 << 20);
    network.connected();
    network.run_for(120 * SECOND);
    assert!(network.hosts.iter().all(|host| host.app.closed.is_empty()), "keep-alive");
    network.cut(true);
    let begin = network.now;
    network.run_until(|network| network.hosts.iter().all(|host| !host.app.closed.is_empty()));
    assert!(network.hosts.iter().all(|host| host.app.closed == [Reason::TimedOut]));
    assert!(network.now.since(begin) <= 45 * SECOND);
}

#[test]
fn nobody_listening_and_a_refusing_listener_are_told_at_once() {
    for listens in [false, true] {
        let mut network = Network::new(8, &Config::default(), Faults::default(), 1 << 20);
        network.connect();
        network.hosts[1].app.refuses = true;
        if !listens {
            network.hosts[1].endpoint.unlisten(PORT);
        }
        network.run_until(|network| !network.hosts[0].app.closed.is_empty());
        assert_eq!(network.hosts[0].app.closed, [Reason::Refused]);
        assert!(network.now < Time::from_ns(SECOND) + MILLISECOND);
        assert_eq!(network.hosts[0].endpoint.flows().count(), 0);
    }
}

#[test]
fn connecting_to_nobody_times_out() {
    let faults = bad(1000, 0, 0, 0);
    let mut network = Network::new(9, &Config::default(), faults, 1 << 20);
    network.connect();
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
}

#[test]
fn replayed_and_spoofed_packets_change_nothing() {
    let mut network = Network::new(10, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = vec![7; 100];
    let now = network.now;
    network.hosts[0].endpoint.send(now, keys[0], 0, 100);
    network.transmit();
    let packet = network.intercept();
    let stranger = SocketAddr::from(([10, 0, 0, 77], 20707));
    let server = &mut network.hosts[1];
    server.handle(now, stranger, packet.ecn, &packet.bytes);
    assert_eq!(server.endpoint.counters().dropped_spoofed, 1);
    for _ in 0..5 {
        server.handle(now, packet.from, packet.ecn, &packet.bytes);
    }
    assert_eq!(server.app.delivered.len(), 1);
    assert_eq!(server.endpoint.counters().dropped_duplicate, 4);
}

/// With more gaps than are remembered: whatever was forgotten, nothing is taken a second time.
#[test]
fn all_that_ever_came_comes_again_and_changes_nothing() {
    let faults = bad(100, 0, 100, 0);
    let mut network = Network::new(19, &Config::default(), faults, 4 << 20);
    let keys = network.connected();
    network.tape = Some(Vec::new());
    transfer(&mut network, keys, &mixed_lengths(&mut Random::new(19), 400), 16);
    network.run_until(|network| network.hosts[0].app.sent == 400);
    let tape = network.tape.take().expect("recorded");
    assert!(tape.len() > 1000, "{}", tape.len());
    let (now, server) = (network.now, &mut network.hosts[1]);
    let before = (format!("{:?}", server.endpoint.flows().next()), server.app.next_buffer);
    let duplicates = server.endpoint.counters().dropped_duplicate;
    for packet in &tape {
        server.handle(now, packet.from, packet.ecn, &packet.bytes);
    }
    assert_eq!(server.endpoint.counters().dropped_duplicate - duplicates, tape.len() as u64);
    let after = (format!("{:?}", server.endpoint.flows().next()), server.app.next_buffer);
    assert_eq!(after, before);
    assert!(server.app.delivered.is_empty());
}

#[test]
fn a_flood_of_syns_allocates_nothing() {
    let mut network = Network::new(11, &Config::default(), Faults::default(), 1 << 20);
    network.connect();
    network.transmit();
    let syn = network.intercept().bytes;
    let server = &mut network.hosts[1];
    for index in 0..10_000u32 {
        let source = SocketAddr::from(([11, 0, (index >> 8) as u8, index as u8], 20707));
        server.handle(network.now, source, Ecn::Capable, &syn);
    }
    assert_eq!(server.endpoint.flows().count(), 0);
    assert!(server.app.accepted.is_empty());
    assert!(server.endpoint.counters().dropped_rate_limited > 0);
}

#[test]
fn garbage_never_panics_and_is_counted() {
    let mut network = Network::new(12, &Config::default(), Faults::default(), 1 << 20);
    network.connected();
    let source = network.hosts[0].address;
    let mut random = Random::new(12);
    let server = &mut network.hosts[1];
    for _ in 0..20_000 {
        let length = random.below(200) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u32() as u8).collect();
        if length >= 24 {
            bytes[0] = random.below(3) as u8;
            bytes[1] = random.below(9) as u8;
            seal(&mut bytes);
        }
        server.handle(network.now, source, Ecn::Capable, &bytes);
    }
    assert!(server.endpoint.counters().dropped_malformed > 0);
    assert_eq!(server.endpoint.flows().count(), 1);
    assert!(server.app.delivered.is_empty());
}

#[test]
fn a_ping_tells_the_round_trip_time() {
    let mut network = Network::new(13, &Config::default(), Faults::default(), 1 << 20);
    let [from, to] = [network.hosts[0].address, network.hosts[1].address];
    let now = network.now;
    network.hosts[0].endpoint.ping(now, 1, from, to, 500);
    network.run_until(|network| !network.hosts[0].app.pongs.is_empty());
    assert_eq!(network.hosts[0].app.pongs, [10 * MICROSECOND]);
}

#[test]
fn only_the_packet_with_the_last_of_a_message_was_the_last() {
    let mut network = Network::new(15, &Config::default(), Faults::default(), 1 << 20);
    let [key, _] = network.connected();
    network.transmit();
    let host = &mut network.hosts[0];
    host.app.transmit_pool = vec![1; 5000];
    let mut next = |length: Option<u32>| {
        let (now, mut bytes) = (network.now, [0; 9216]);
        length.into_iter().for_each(|length| host.endpoint.send(now, key, 0, length));
        let destination = host.endpoint.next_transmit(now).expect("a packet");
        assert!(host.endpoint.poll_transmit(now, destination, &mut bytes, &host.app) > 0);
        host.endpoint.was_last(now)
    };
    assert!(next(Some(64)));
    assert!(!next(Some(5000)), "the rest is still to come");
    while !next(None) {}
}

/// Each deadline that came nearer once left a timer behind that set itself again for ever.
#[test]
fn a_busy_flow_keeps_few_timers() {
    let mut network = Network::new(14, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = vec![1; 100];
    for _ in 0..20_000 {
        let now = network.now;
        network.hosts[0].endpoint.send(now, keys[0], 0, 100);
        network.run_for(70 * MICROSECOND);
        network.read_all(1, keys[1]);
        for host in &network.hosts {
            assert!(host.endpoint.timers_len() < 16, "{} timers", host.endpoint.timers_len());
        }
    }
}

/// Asked for after every few questions, as if a quarter of the window were in flight,
/// acknowledgements would leave before the app has answered.
#[test]
fn a_question_and_its_answer_are_a_packet_each() {
    let mut network = Network::new(15, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    let before = network.packets();
    for _ in 0..100 {
        for (from, to) in [(0, 1), (1, 0)] {
            network.hosts[from].app.transmit_pool = vec![1; 1000];
            let now = network.now;
            network.hosts[from].endpoint.send(now, keys[from], 0, 1000);
            network.run_until(|network| !network.hosts[to].app.delivered.is_empty());
            network.read_all(to, keys[to]);
            network.transmit();
        }
    }
    let packets = network.packets() - before;
    assert!(packets <= 202, "{packets} packets, of which two may be of the handshake");
}

/// The idle timer starts with the question, not with what was heard an hour before.
#[test]
fn without_keep_alive_a_flow_may_be_silent_for_as_long_as_it_likes() {
    let config = Config { keep_alive_ns: 0, ..Config::default() };
    let mut network = Network::new(15, &config, Faults::default(), 1 << 20);
    let keys = network.connected();
    transfer(&mut network, keys, &[100], 1);
    network.run_out();
    network.now = network.now + 3600 * SECOND;
    transfer(&mut network, keys, &[100], 1);
    network.run_out();
    assert!(network.hosts.iter().all(|host| host.app.closed.is_empty()));
    // And a peer that is gone is still found out.
    network.cut(true);
    let begin = network.now;
    network.hosts[0].endpoint.send(begin, keys[0], 0, 100);
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
    assert!(network.now.since(begin) >= config.idle_timeout_ns);
}

/// What was still to be said then came due again and again until the flow was forgotten.
#[test]
fn a_flow_that_its_peer_has_closed_rests() {
    let mut network = Network::new(16, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    let length = WINDOW as u32 / 2;
    network.hosts[0].app.transmit_pool = content(0, length);
    let now = network.now;
    network.hosts[0].endpoint.send(now, keys[0], 0, length);
    let host = &mut network.hosts[0];
    host.endpoint.close(now, keys[0], &mut host.app);
    while network.hosts[1].app.closed.is_empty() {
        network.step();
        // Released at once: the limit has to be told, when the close is here already.
        network.read_all(1, keys[1]);
        let (endpoint, app) = (&network.hosts[1].endpoint, &network.hosts[1].app);
        // Its number may be another connection's as soon as its app has been told.
        assert_eq!(endpoint.owner(keys[1]).is_some(), app.closed.is_empty());
    }
    assert_eq!(network.hosts[1].endpoint.flows().count(), 1);
    let steps = network.run_out();
    assert!(steps < 20, "{steps} steps");
    assert_eq!(network.hosts[1].endpoint.flows().count(), 0);
}
