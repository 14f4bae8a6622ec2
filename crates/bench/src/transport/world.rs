//! Many senders, one switch, one receiver, in virtual time:
//!
//! ```text
//!  sender 1 ── uplink ──┐
//!  sender 2 ── uplink ──┤ switch ── the bottleneck ──▶ receiver
//!     ...               │        ◀── (the same back) ──
//! ```
//! Every host is a transport endpoint with an app; hosts take no time to compute. An uplink is a
//! NIC of 256 descriptors, faster than the bottleneck, that the endpoint fills no further.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use clearway_base::{Random, SECOND, Time};
use clearway_transport::{Arrival as Way, Config, Endpoint, FlowInfo, Owner, Reason};
use clearway_wire::Ecn;

use super::link::{Fate, Link, LinkShape};
use super::traffic::{Apps, Load};

/// Ethernet with preamble and gap, IPv4 and UDP around each Clearway packet.
pub(super) const HEADERS_BYTES: usize = 38 + 20 + 8;
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

struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    apps: Apps,
    uplink: Link,
    /// From the switch to this host.
    downlink: Link,
    wakes_at: Time,
}

/// A packet between two hosts.
struct Packet {
    source: SocketAddr,
    to: usize,
    may_be_marked: bool,
    is_marked: bool,
    bytes: Vec<u8>,
}

enum Event {
    Wake(usize),
    AtSwitch(Box<Packet>),
    AtHost(Box<Packet>),
}

/// Ordered by time, then by the order in which they were made.
struct Scheduled(Time, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
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
pub(super) struct World {
    hosts: Vec<Host>,
    events: BinaryHeap<Reverse<Scheduled>>,
    count: u64,
    pub(super) now: Time,
    random: Random,
    senders: Vec<Sender>,
    connected: usize,
    pub(super) arrivals: Vec<Arrival>,
    /// Waits in front of the bottleneck that its packets found, in ns.
    pub(super) waits_ns: Vec<u64>,
}

impl World {
    /// A receiver behind `bottleneck` and its senders, in the order in which they start. A peer may
    /// send `window` bytes ahead.
    pub(super) fn new(
        seed: u64,
        config: &Config,
        bottleneck: LinkShape,
        window: u64,
        senders: Vec<Sender>,
    ) -> Self {
        let delays = core::iter::once(0).chain(senders.iter().map(|sender| sender.delay_ns));
        let hosts = delays.enumerate().map(|(index, delay_ns)| {
            let uplink = LinkShape {
                bits_per_s: UPLINK_FACTOR * bottleneck.bits_per_s,
                delay_ns,
                queue_bytes: u64::MAX,
                mark_bytes: None,
                faults: super::link::Faults::default(),
            };
            let downlink = LinkShape { delay_ns: bottleneck.delay_ns + delay_ns, ..bottleneck };
            let address = address_of(index);
            let mut endpoint =
                Endpoint::new(config.clone(), Time::ZERO, seed + index as u64, [index as u8; 16]);
            for port in 1..=2 {
                let listener = Owner { channel: 0, connection: u32::from(port) };
                endpoint.listen(port, listener).expect("each port once");
            }
            let apps = Apps { window, ..Apps::default() };
            let (uplink, downlink) = (Link::new(uplink), Link::new(downlink));
            Host { address, endpoint, apps, uplink, downlink, wakes_at: Time::MAX }
        });
        let mut world = Self {
            hosts: hosts.collect(),
            events: BinaryHeap::new(),
            count: 0,
            now: Time::ZERO,
            random: Random::new(seed),
            senders,
            connected: 0,
            arrivals: Vec::new(),
            waits_ns: Vec::new(),
        };
        for index in 0..world.senders.len() {
            world.schedule(world.senders[index].starts, Event::Wake(index + 1));
        }
        world
    }

    /// Runs until `end`.
    pub(super) fn run_until(&mut self, end: Time) {
        while let Some(Reverse(Scheduled(at, _, _))) = self.events.peek()
            && *at <= end
        {
            let Some(Reverse(Scheduled(at, _, event))) = self.events.pop() else { break };
            self.now = at;
            match event {
                Event::Wake(host) => {
                    if self.hosts[host].wakes_at <= at {
                        self.hosts[host].wakes_at = Time::MAX;
                    }
                    self.connect_due(host);
                    self.pump(host);
                }
                Event::AtSwitch(packet) => self.forward(packet),
                Event::AtHost(packet) => self.take(*packet),
            }
        }
        self.now = end;
    }

    /// Bytes of messages that the receiver has got from each sender.
    pub(super) fn delivered_bytes(&self) -> Vec<u64> {
        let sides = &self.hosts[RECEIVER].apps.sides;
        let mut bytes = vec![0; self.senders.len()];
        for side in sides {
            bytes[index_of(side.peer) - 1] += side.delivered_bytes;
        }
        bytes
    }

    /// The flows of one sender.
    pub(super) fn flows(&self, sender: usize) -> impl Iterator<Item = FlowInfo> + '_ {
        self.hosts[sender + 1].endpoint.flows()
    }

    /// Flows that have ended, which none should.
    pub(super) fn closed(&self) -> impl Iterator<Item = Reason> + '_ {
        self.hosts.iter().flat_map(|host| host.apps.closed.iter().copied())
    }

    /// Packets that the full queue in front of the receiver dropped.
    pub(super) fn overflows(&self) -> u64 {
        self.hosts[RECEIVER].downlink.overflows
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.push(Reverse(Scheduled(at, self.count, event)));
    }

    fn connect_due(&mut self, index: usize) {
        let now = self.now;
        while let Some(sender) = self.senders.get(self.connected)
            && sender.starts <= now
        {
            self.connected += 1;
            let (server, host) = (self.hosts[RECEIVER].address, &mut self.hosts[self.connected]);
            for (port, load) in &sender.loads {
                let connection = host.apps.sides.len() as u32;
                let (owner, window) = (Owner { channel: 0, connection }, host.apps.window);
                let key = host.endpoint.connect(now, owner, host.address, server, *port, window);
                host.apps.add(key.expect("there is room"), server, *port, *load);
            }
        }
        debug_assert!(index == RECEIVER || self.connected >= index);
    }

    /// At the switch: into the queue of the link to its receiver.
    fn forward(&mut self, mut packet: Box<Packet>) {
        let length = packet.bytes.len() + HEADERS_BYTES;
        let link = &mut self.hosts[packet.to].downlink;
        let wait_ns = link.wait_ns(self.now);
        let fate = link.carry(self.now, length, packet.may_be_marked, &mut self.random);
        if packet.to == RECEIVER {
            self.waits_ns.push(wait_ns);
        }
        if let Fate::Arrives { at, is_marked } = fate {
            packet.is_marked = is_marked;
            self.schedule(at, Event::AtHost(packet));
        }
    }

    fn take(&mut self, packet: Packet) {
        let ecn = match (packet.may_be_marked, packet.is_marked) {
            (false, _) => Ecn::NotCapable,
            (true, false) => Ecn::Capable,
            (true, true) => Ecn::Marked,
        };
        let host = &mut self.hosts[packet.to];
        host.endpoint.handle_datagram(
            self.now,
            packet.source,
            host.address,
            &packet.bytes,
            Way::Queue,
            ecn,
            &mut host.apps,
        );
        self.release(packet.to);
        self.pump(packet.to);
    }

    /// The app takes what has come and gives it back.
    fn release(&mut self, index: usize) {
        let now = self.now;
        while let Some(connection) = self.hosts[index].apps.fresh.pop() {
            let host = &mut self.hosts[index];
            let side = &mut host.apps.sides[connection as usize];
            let (key, peer, port) = (side.key, side.peer, side.port);
            let delivered = core::mem::take(&mut side.delivered);
            for bytes in &delivered {
                host.endpoint.release(now, key, 1, u64::from(*bytes));
            }
            let sender = index_of(peer);
            let sides = &mut self.hosts[sender].apps.sides;
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
        let host = &mut self.hosts[index];
        if host.endpoint.next_timeout().is_some_and(|due| due <= now) {
            host.endpoint.handle_timeouts(now, &mut host.apps);
        }
        let mut next = host.submit(now);
        next = next.min(self.transmit(index));
        let host = &mut self.hosts[index];
        next = next.min(host.endpoint.next_timeout().unwrap_or(Time::MAX));
        if next < host.wakes_at {
            host.wakes_at = next;
            self.schedule(next.max(now + 1), Event::Wake(index));
        }
    }

    /// Sends what the NIC has descriptors for. Returns when it will have some again, if it has
    /// none.
    fn transmit(&mut self, index: usize) -> Time {
        let now = self.now;
        let mut buffer = [0; 9216];
        loop {
            let host = &mut self.hosts[index];
            if let Some(at) = host.blocked_until(now) {
                return at;
            }
            let Some(destination) = host.endpoint.next_transmit(now) else { return Time::MAX };
            let length = host.endpoint.poll_transmit(now, destination, &mut buffer, &host.apps);
            if length == 0 {
                continue;
            }
            let (to, bytes) = (index_of(destination.to), buffer[..length].to_vec());
            let packet = Packet {
                source: destination.from,
                to,
                may_be_marked: destination.is_ecn_capable,
                is_marked: false,
                bytes,
            };
            let uplink = &mut self.hosts[index].uplink;
            let fate = uplink.carry(now, length + HEADERS_BYTES, false, &mut self.random);
            if let Fate::Arrives { at, .. } = fate {
                self.schedule(at, Event::AtSwitch(Box::new(packet)));
            }
        }
    }
}

impl Host {
    /// When the NIC has free descriptors again; `None` if it has some now.
    fn blocked_until(&self, now: Time) -> Option<Time> {
        let ring_ns = DESCRIPTORS * self.uplink.serialisation_ns(1500);
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
