//! Hosts whose memory is plain arrays, and a link between two that loses, delays, repeats and swaps
//! what it carries, the same way for the same seed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use clearway_base::{MICROSECOND, Random, Time};
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, tcp};

use crate::*;

/// An app's memory: pieces that are named by their number.
#[derive(Default)]
pub(super) struct Store {
    pieces: BTreeMap<u32, Vec<u8>>,
    next: u32,
    /// The payload of the segment at hand.
    payload: Vec<u8>,
    /// Every so many pieces there is no room for one.
    pub(super) refuse_each: Option<u32>,
    pub(super) kept: u32,
}

impl Store {
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Extent {
        self.next += 1;
        self.pieces.insert(self.next, bytes.to_vec());
        Extent { region: self.next, offset: 0, length: bytes.len() as u32 }
    }

    pub(super) fn read(&self, extent: Extent) -> &[u8] {
        let piece = &self.pieces[&extent.region];
        &piece[extent.offset as usize..][..extent.length as usize]
    }

    pub(super) fn take(&mut self, extent: Extent) -> Vec<u8> {
        let bytes = self.pieces.remove(&extent.region).expect("taken once");
        assert_eq!((extent.offset, extent.length as usize), (0, bytes.len()));
        bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn set_payload(&mut self, payload: &[u8]) {
        self.payload = payload.to_vec();
    }
}

impl Memory for Store {
    fn keep(&mut self, _: Key, _: u64, part: Range<u32>) -> Option<Extent> {
        self.kept += 1;
        if self.refuse_each.is_some_and(|each| self.kept.is_multiple_of(each)) {
            return None;
        }
        let bytes = self.payload[part.start as usize..part.end as usize].to_vec();
        Some(self.fill(&bytes))
    }

    fn discard(&mut self, _: Key, extent: Extent) {
        self.take(extent);
    }
}

/// A stack with its memory.
pub(super) struct Host {
    pub(super) stack: Stack,
    pub(super) store: Store,
    pub(super) address: SocketAddr,
    /// Bytes that may be handed over at once, as to a NIC that cuts segments.
    pub(super) most: u32,
}

/// A segment on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) ecn: Ecn,
}

impl Host {
    pub(super) fn new(config: Config, address: SocketAddr, now: Time) -> Self {
        let stack = Stack::new(config, now, u64::from(address.port()), [7; 16]);
        Self { stack, store: Store::default(), address, most: 1 }
    }

    /// What leaves, as bytes; what is more than a segment is cut, as a NIC does.
    pub(super) fn transmit(&mut self, now: Time) -> Vec<Packet> {
        let mut packets = Vec::new();
        while let Some(transmit) = self.stack.poll_transmit(now, self.most) {
            let payload = self.payload(&transmit);
            let each = (transmit.segment_bytes as usize).max(1);
            let count = payload.len().div_ceil(each).max(1);
            for index in 0..count {
                let at = index * each;
                let part = &payload[at..payload.len().min(at + each)];
                let mut repr = transmit.repr;
                repr.sequence = repr.sequence.wrapping_add(at as u32);
                if index + 1 < count {
                    repr.flags = repr.flags.without(tcp::Flags::FIN | tcp::Flags::PSH);
                }
                packets.push(packet(&transmit, &repr, part));
            }
        }
        packets
    }

    pub(super) fn payload(&self, transmit: &Transmit) -> Vec<u8> {
        let Some(key) = transmit.connection else {
            return Vec::new();
        };
        let extents = self.stack.extents(key, transmit.payload.clone());
        let bytes: Vec<u8> = extents.flat_map(|extent| self.store.read(extent).to_vec()).collect();
        assert_eq!(bytes.len() as u64, transmit.payload.end - transmit.payload.start);
        bytes
    }

    pub(super) fn receive(&mut self, now: Time, packet: &Packet) {
        let view = tcp::View::new(&packet.bytes).expect("whole");
        let repr = tcp::Repr::parse(&view, tcp::Check::Skip).expect("valid");
        self.store.set_payload(view.payload());
        let arrival = Arrival {
            from: packet.from,
            to: packet.to,
            repr,
            payload_length: view.payload().len() as u32,
            ecn: packet.ecn,
        };
        self.stack.handle_segment(now, &arrival, &mut self.store);
    }
}

fn packet(transmit: &Transmit, repr: &tcp::Repr, payload: &[u8]) -> Packet {
    let mut bytes = vec![0; tcp::HEADER_LENGTH_MAX];
    let length = repr.emit(&mut bytes);
    bytes.truncate(length);
    bytes.extend_from_slice(payload);
    tcp::fill_checksum(&mut bytes, addresses(transmit.from, transmit.to));
    let ecn = if transmit.ecn_capable { Ecn::Capable } else { Ecn::NotCapable };
    Packet { from: transmit.from, to: transmit.to, bytes, ecn }
}

/// The part of the pseudo-header that is not of TCP.
fn addresses(from: SocketAddr, to: SocketAddr) -> Sum {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    Sum::default().with(&octets(from)).with(&octets(to))
}

/// What a host does with all that comes.
fn is_intact(packet: &Packet) -> bool {
    let check = tcp::Check::Addresses(packet.from.ip(), packet.to.ip());
    tcp::View::new(&packet.bytes).is_ok_and(|view| tcp::Repr::parse(&view, check).is_ok())
}

/// What the link does, in parts of a thousand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) swapped: u64,
    pub(super) marked: u64,
    /// One bit of a packet is another one when it arrives.
    pub(super) corrupted: u64,
    /// One way.
    pub(super) delay_ns: u64,
    /// The link carries this; no bound if 0. Packets beyond a queue of 100 are lost.
    pub(super) bytes_per_ms: u64,
    /// The length of packets that the link carries; longer ones vanish.
    pub(super) mtu: usize,
}

impl Default for Faults {
    fn default() -> Self {
        let delay_ns = 50 * MICROSECOND;
        Self {
            lost: 0,
            doubled: 0,
            swapped: 0,
            marked: 0,
            corrupted: 0,
            delay_ns,
            bytes_per_ms: 0,
            mtu: 1500,
        }
    }
}

/// Two hosts and the link.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: [Host; 2],
    pub(super) faults: Faults,
    random: Random,
    link: BTreeMap<(Time, u64), (usize, Packet)>,
    count: u64,
    /// When the link is free again, each way.
    busy: [Time; 2],
    pub(super) dropped: u64,
}

impl World {
    pub(super) fn new(seed: u64, config: Config, faults: Faults, v6: bool) -> Self {
        let addresses = match v6 {
            false => ["10.0.0.1:1000", "10.0.0.2:2000"],
            true => ["[fd00::1]:1000", "[fd00::2]:2000"],
        };
        let now = Time::from_ns(1_000_000_000);
        let hosts =
            addresses.map(|address| Host::new(config, address.parse().expect("address"), now));
        let random = Random::new(seed);
        let link = BTreeMap::new();
        Self { now, hosts, faults, random, link, count: 0, busy: [now; 2], dropped: 0 }
    }

    /// Puts what the hosts send on the link.
    pub(super) fn collect(&mut self) {
        for side in 0..2 {
            for packet in self.hosts[side].transmit(self.now) {
                self.carry(side, packet);
            }
        }
    }

    fn carry(&mut self, side: usize, mut packet: Packet) {
        let faults = self.faults;
        let headers = if packet.to.is_ipv6() { 40 } else { 20 };
        if headers + packet.bytes.len() > faults.mtu || self.random.chance(faults.lost, 1000) {
            self.dropped += 1;
            return;
        }
        if packet.ecn == Ecn::Capable && self.random.chance(faults.marked, 1000) {
            packet.ecn = Ecn::Marked;
        }
        if self.random.chance(faults.corrupted, 1000) {
            let bit = self.random.below(8 * packet.bytes.len() as u64);
            packet.bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let mut at = self.now + faults.delay_ns;
        let scaled = 1_000_000 * (packet.bytes.len() as u64 + 40);
        if let Some(takes_ns) = scaled.checked_div(faults.bytes_per_ms) {
            let free = self.busy[side].max(self.now);
            if free.since(self.now) > 100 * takes_ns.max(1) {
                self.dropped += 1;
                return;
            }
            self.busy[side] = free + takes_ns;
            at = self.busy[side] + faults.delay_ns;
        }
        if self.random.chance(faults.swapped, 1000) {
            at = at + self.random.below(2 * faults.delay_ns);
        }
        if self.random.chance(faults.doubled, 1000) {
            self.count += 1;
            self.link.insert((at + faults.delay_ns / 3, self.count), (1 - side, packet.clone()));
        }
        self.count += 1;
        self.link.insert((at, self.count), (1 - side, packet));
    }

    /// Goes on to the next thing that happens. False if nothing ever will.
    pub(super) fn step(&mut self) -> bool {
        self.collect();
        let arrival = self.link.keys().next().map_or(Time::MAX, |(at, _)| *at);
        let timeouts = self.hosts.iter().map(|host| host.stack.next_timeout());
        let next = timeouts.min().expect("two").min(arrival);
        if next == Time::MAX {
            return false;
        }
        self.now = self.now.max(next);
        while let Some(entry) = self.link.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (side, packet) = entry.remove();
            if is_intact(&packet) {
                self.hosts[side].receive(self.now, &packet);
            }
        }
        for host in &mut self.hosts {
            host.stack.handle_timeouts(self.now);
        }
        self.collect();
        true
    }

    /// Goes on until `done`, for at most `ns` of its time.
    #[track_caller]
    pub(super) fn run(&mut self, ns: u64, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + ns;
        loop {
            self.collect();
            if done(self) {
                return;
            }
            let goes_on = self.now < end && self.step();
            assert!(goes_on, "not done at {:?}: {:#?}", self.now, self.infos());
        }
    }

    fn infos(&self) -> Vec<Info> {
        let stacks = self.hosts.iter().map(|host| &host.stack);
        stacks.flat_map(|stack| stack.connections().filter_map(|key| stack.info(key))).collect()
    }

    /// A connection from the first host to the second, and the listener.
    #[track_caller]
    pub(super) fn open(&mut self, settings: Settings, other: Settings) -> (Key, Key, Listener) {
        let [client, server] = &mut self.hosts;
        let (from, to) = (client.address, server.address);
        let listener = server.stack.listen(None, to.port(), 16, 1500, other).expect("free");
        let from = SocketAddr::new(from.ip(), 0);
        let key = client.stack.connect(self.now, from, to, 1500, settings).expect("room");
        let mut accepted = None;
        self.run(100_000_000_000, |world| {
            accepted = accepted.or_else(|| world.hosts[1].stack.accept(listener));
            accepted.is_some()
        });
        (key, accepted.expect("accepted"), listener)
    }
}
