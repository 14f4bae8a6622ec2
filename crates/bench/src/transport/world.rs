//! Many senders, one switch, one receiver, in virtual time:
//!
//! ```text
//!  sender 1 ── uplink ──┐
//!  sender 2 ── uplink ──┤ switch ── the bottleneck ──▶ receiver
//!     ...               │        ◀── (the same back) ──
//! ```
//! Every host is a transport endpoint with an app; hosts take no time to compute. An uplink is a
//! NIC of 256 descriptors, faster than the bottleneck, that the endpoint fills no further.

use std::net::SocketAddr;

use clearway_base::{Random, SECOND, Time};
use clearway_transport::{Arrival as By, Config, Endpoint, FlowInfo, Owner, Reason};
use clearway_wire::Ecn;
use clearway_world::{Agenda, Datagram, Faults, Rate, Way};

use super::traffic::{Apps, Load};

/// How much faster a host's own NIC is than the bottleneck.
const UPLINK_FACTOR: u64 = 2;
const DESCRIPTORS: u64 = 256;
const RECEIVER: usize = 0;

/// A message that has arrived: at which of the receiver's ports, when, how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) port: u16,
    pub(super) at: Time,
    pub(super) latency_ns: u64,
}

struct Node {
    address: SocketAddr,
    endpoint: Endpoint,
    apps: Apps,
    uplink: Way,
    /// In front of the link from the switch to this host, and the link itself.
    queue: Way,
    downlink: Way,
    /// Nothing gets over the link before then.
    interrupted_until: Time,
    wakes_at: Time,
}

enum Event {
    Wake(usize),
    AtSwitch(Box<Datagram>),
    AtNode(Box<Datagram>),
}

/// A link from the switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bottleneck {
    pub(super) rate: Rate,
    /// What happens behind its queue: a packet that is lost has taken its time of the link.
    pub(super) faults: Faults,
    /// Packets of a million at which it is interrupted, and for how long: all is lost that is sent
    /// meanwhile, however little that is.
    pub(super) interruptions: (u64, u64),
}

/// A sender: how far it is from the receiver, and what it sends, by service port.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// Half of its round trip beyond the bottleneck's own delay.
    pub(super) delay_ns: u64,
    pub(super) loads: Vec<(u16, Load)>,
    /// It connects then.
    pub(super) starts: Time,
}

/// The whole.
pub(super) struct Star {
    nodes: Vec<Node>,
    agenda: Agenda<Event>,
    pub(super) now: Time,
    random: Random,
    interruptions: (u64, u64),
    senders: Vec<Sender>,
    connected: usize,
    pub(super) arrivals: Vec<Arrival>,
    /// Waits in front of the bottleneck that its packets found, in ns.
    pub(super) waits_ns: Vec<u64>,
}

impl Star {
    /// A receiver behind `bottleneck` and its senders, in the order in which they start. A peer may
    /// send `window` bytes ahead.
    pub(super) fn new(
        seed: u64,
        config: &Config,
        bottleneck: Bottleneck,
        window: u64,
        senders: Vec<Sender>,
    ) -> Self {
        let delays = core::iter::once(0).chain(senders.iter().map(|sender| sender.delay_ns));
        let nodes = delays.enumerate().map(|(index, delay_ns)| {
            let bits_per_s = UPLINK_FACTOR * bottleneck.rate.bits_per_s;
            let rate = Rate { bits_per_s, queue_bytes: u64::MAX, mark_bytes: 0 };
            let uplink = Faults { rate, latency_ns: delay_ns, ..Faults::default() };
            let queue = Faults { rate: bottleneck.rate, ..Faults::default() };
            let latency_ns = bottleneck.faults.latency_ns + delay_ns;
            let downlink = Faults { latency_ns, ..bottleneck.faults };
            let address = address_of(index);
            let mut endpoint =
                Endpoint::new(config.clone(), Time::ZERO, seed + index as u64, [index as u8; 16]);
            for port in 1..=2 {
                let listener = Owner { channel: 0, connection: u32::from(port) };
                endpoint.listen(port, listener).expect("each port once");
            }
            let apps = Apps { window, ..Apps::default() };
            let [uplink, queue, downlink] = [uplink, queue, downlink].map(Way::new);
            Node {
                address,
                endpoint,
                apps,
                uplink,
                queue,
                downlink,
                interrupted_until: Time::ZERO,
                wakes_at: Time::MAX,
            }
        });
        let mut world = Self {
            nodes: nodes.collect(),
            agenda: Agenda::default(),
            now: Time::ZERO,
            random: Random::new(seed),
            interruptions: bottleneck.interruptions,
            senders,
            connected: 0,
            arrivals: Vec::new(),
            waits_ns: Vec::new(),
        };
        for index in 0..world.senders.len() {
            world.agenda.note(world.senders[index].starts, Event::Wake(index + 1));
        }
        world
    }

    /// Runs until `end`.
    pub(super) fn run_until(&mut self, end: Time) {
        while let Some(at) = self.agenda.next_at()
            && let Some(event) = self.agenda.take_due(end)
        {
            self.now = at;
            match event {
                Event::Wake(node) => {
                    if self.nodes[node].wakes_at <= at {
                        self.nodes[node].wakes_at = Time::MAX;
                    }
                    self.connect_due(node);
                    self.pump(node);
                }
                Event::AtSwitch(packet) => self.forward(packet),
                Event::AtNode(packet) => self.take(&packet),
            }
        }
        self.now = end;
    }

    /// Bytes of messages that the receiver has got from each sender.
    pub(super) fn delivered_bytes(&self) -> Vec<u64> {
        let sides = &self.nodes[RECEIVER].apps.sides;
        let mut bytes = vec![0; self.senders.len()];
        for side in sides {
            bytes[index_of(side.peer) - 1] += side.delivered_bytes;
        }
        bytes
    }

    /// The flows of one sender.
    pub(super) fn flows(&self, sender: usize) -> impl Iterator<Item = FlowInfo> + '_ {
        self.nodes[sender + 1].endpoint.flows()
    }

    /// Flows that have ended, which none should.
    pub(super) fn closed(&self) -> impl Iterator<Item = Reason> + '_ {
        self.nodes.iter().flat_map(|node| node.apps.closed.iter().copied())
    }

    /// Packets that the full queue in front of the receiver dropped.
    pub(super) fn overflows(&self) -> u64 {
        self.nodes[RECEIVER].queue.counts().overflowed
    }

    fn connect_due(&mut self, index: usize) {
        let now = self.now;
        while let Some(sender) = self.senders.get(self.connected)
            && sender.starts <= now
        {
            self.connected += 1;
            let (server, node) = (self.nodes[RECEIVER].address, &mut self.nodes[self.connected]);
            for (port, load) in &sender.loads {
                let connection = node.apps.sides.len() as u32;
                let (owner, window) = (Owner { channel: 0, connection }, node.apps.window);
                let key = node.endpoint.connect(now, owner, node.address, server, *port, window);
                node.apps.add(key.expect("there is room"), server, *port, *load);
            }
        }
        debug_assert!(index == RECEIVER || self.connected >= index);
    }

    /// From now on nothing gets through from the switch, or all does.
    pub(super) fn cut(&mut self, is_cut: bool) {
        for node in &mut self.nodes {
            let loss_ppm = if is_cut { 1_000_000 } else { 0 };
            node.downlink.set_faults(Faults { loss_ppm, ..*node.downlink.faults() });
        }
    }

    /// At the switch: into the queue of the link to its receiver, and over that.
    fn forward(&mut self, mut packet: Box<Datagram>) {
        let to = index_of(packet.to);
        let Node { queue, downlink, interrupted_until, .. } = &mut self.nodes[to];
        if to == RECEIVER {
            self.waits_ns.push(queue.wait_ns(self.now));
        }
        let through = queue.enter(self.now, &mut *packet, &mut self.random);
        let (ppm, ns) = self.interruptions;
        if ppm > 0 && *interrupted_until <= self.now && self.random.chance(ppm, 1_000_000) {
            *interrupted_until = self.now + ns;
        }
        let arrives = through
            .filter(|_| *interrupted_until <= self.now)
            .and_then(|fate| downlink.enter(fate.arrival, &mut *packet, &mut self.random));
        if let Some(fate) = arrives {
            self.agenda.note(fate.arrival, Event::AtNode(packet));
        }
    }

    fn take(&mut self, packet: &Datagram) {
        let (now, to) = (self.now, index_of(packet.to));
        let Node { endpoint, apps, .. } = &mut self.nodes[to];
        let Datagram { from, to: local, ecn, ref bytes } = *packet;
        endpoint.handle_datagram(now, from, local, bytes, By::Queue, ecn, apps);
        self.release(to);
        self.pump(to);
    }

    /// The app takes what has come and gives it back.
    fn release(&mut self, index: usize) {
        let now = self.now;
        while let Some(connection) = self.nodes[index].apps.fresh.pop() {
            let node = &mut self.nodes[index];
            let side = &mut node.apps.sides[connection as usize];
            let (key, peer, port) = (side.key, side.peer, side.port);
            let delivered = core::mem::take(&mut side.delivered);
            for bytes in &delivered {
                node.endpoint.release(now, key, 1, u64::from(*bytes));
            }
            let sender = index_of(peer);
            let sides = &mut self.nodes[sender].apps.sides;
            let Some(from) = sides.iter_mut().find(|side| side.port == port) else { continue };
            for _ in delivered {
                let Some(sent) = from.sent_at.pop_front() else { break };
                let latency_ns = now.since(sent);
                self.arrivals.push(Arrival { port, at: now, latency_ns });
            }
        }
    }

    /// Lets a host do what is due, and finds out when it wants to be called again.
    fn pump(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        if node.endpoint.next_timeout().is_some_and(|due| due <= now) {
            node.endpoint.handle_timeouts(now, &mut node.apps);
        }
        let mut next = node.submit(now);
        next = next.min(self.transmit(index));
        let node = &mut self.nodes[index];
        next = next.min(node.endpoint.next_timeout().unwrap_or(Time::MAX));
        if next < node.wakes_at {
            node.wakes_at = next;
            self.agenda.note(next.max(now + 1), Event::Wake(index));
        }
    }

    /// Sends what the NIC has descriptors for. Returns when it will have some again, if it has
    /// none.
    fn transmit(&mut self, index: usize) -> Time {
        let now = self.now;
        let mut buffer = [0; 9216];
        loop {
            let node = &mut self.nodes[index];
            if let Some(at) = node.blocked_until(now) {
                return at;
            }
            let Some(destination) = node.endpoint.next_transmit(now) else { return Time::MAX };
            let length = node.endpoint.poll_transmit(now, destination, &mut buffer, &node.apps);
            if length == 0 {
                continue;
            }
            let ecn = if destination.is_ecn_capable { Ecn::Capable } else { Ecn::NotCapable };
            let (from, to, bytes) = (destination.from, destination.to, buffer[..length].to_vec());
            let mut packet = Box::new(Datagram { from, to, ecn, bytes });
            let uplink = &mut self.nodes[index].uplink;
            if let Some(fate) = uplink.enter(now, &mut *packet, &mut self.random) {
                self.agenda.note(fate.arrival, Event::AtSwitch(packet));
            }
        }
    }
}

impl Node {
    /// When the NIC has free descriptors again; `None` if it has some now.
    fn blocked_until(&self, now: Time) -> Option<Time> {
        let ring_ns = DESCRIPTORS * self.uplink.faults().rate.takes_ns(1500);
        let wait_ns = self.uplink.wait_ns(now);
        (wait_ns > ring_ns).then(|| now + (wait_ns - ring_ns / 2))
    }

    /// Gives the endpoint what its apps have to say. Returns when they have more.
    fn submit(&mut self, now: Time) -> Time {
        let mut next = Time::MAX;
        for side in self.apps.sides.iter_mut().filter(|side| side.is_open) {
            match side.load {
                Load::Silent => {}
                Load::Stream { message_bytes, outstanding } => {
                    while side.open_messages < outstanding {
                        side.open_messages += 1;
                        side.sent_at.push_back(now);
                        self.endpoint.send(now, side.key, 0, message_bytes);
                    }
                }
                Load::Ticks { message_bytes, interval_ns } => {
                    if side.next_tick <= now {
                        side.next_tick = now + interval_ns;
                        side.open_messages += 1;
                        side.sent_at.push_back(now);
                        self.endpoint.send(now, side.key, 0, message_bytes);
                    }
                    next = next.min(side.next_tick);
                }
            }
        }
        next
    }
}

/// Hosts are numbered by their addresses.
fn address_of(index: usize) -> SocketAddr {
    let [high, low] = (index as u16).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 20707))
}

fn index_of(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { unreachable!("hosts have IPv4 addresses") };
    let [_, _, high, low] = address.ip().octets();
    usize::from(u16::from_be_bytes([high, low]))
}

/// `bytes` in `ns`, in bits per second.
pub(super) fn rate_bits_per_s(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 8.0 * SECOND as f64 / ns as f64
}
