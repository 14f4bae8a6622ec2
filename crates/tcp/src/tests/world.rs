//! Two hosts whose memory is plain arrays, and the link between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use clearway_base::{MICROSECOND, Random, SECOND, SlotId, Time};
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, ethernet, ipv4, ipv6, tcp};
use clearway_world::{Agenda, Connection, Fate, FaultCounts, Faults, Rate, Steps, Way};

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
    fn keep(&mut self, _: SlotId, _: u64, part: Range<u32>) -> Option<Extent> {
        self.kept += 1;
        if self.refuse_each.is_some_and(|each| self.kept.is_multiple_of(each)) {
            return None;
        }
        let bytes = self.payload[part.start as usize..part.end as usize].to_vec();
        Some(self.fill(&bytes))
    }

    fn discard(&mut self, _: SlotId, extent: Extent) {
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
    /// Bytes that there is room for where it goes, in one segment.
    pub(super) room: u32,
}

/// How a host's segments leave.
struct Out {
    most: u32,
    room: u32,
}

impl Ways for Out {
    fn most(&mut self, _: SlotId) -> u32 {
        self.most
    }

    fn room(&mut self, bytes: u32, segment_bytes: u32) -> u32 {
        [bytes, segment_bytes].into_iter().find(|bytes| *bytes <= self.room).unwrap_or(0)
    }
}

/// A segment on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) ecn: Ecn,
}

impl Packet {
    /// Its length with the IP header.
    fn ip_bytes(&self) -> usize {
        let header = if self.to.is_ipv6() { ipv6::HEADER_LENGTH } else { ipv4::HEADER_LENGTH };
        header + self.bytes.len()
    }
}

impl Host {
    pub(super) fn new(config: Config, address: SocketAddr, now: Time) -> Self {
        let stack = Stack::new(config, now, u64::from(address.port()), [7; 16]);
        Self { stack, store: Store::default(), address, most: 1, room: u32::MAX }
    }

    /// What leaves, as bytes; what is more than a segment is cut, as a NIC does.
    pub(super) fn transmit(&mut self, now: Time) -> Vec<Packet> {
        let mut packets = Vec::new();
        let mut out = Out { most: self.most, room: self.room };
        while let Some(transmit) = self.stack.poll_transmit_by(now, &mut out) {
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

/// One of the ways to send the option of accurate feedback.
pub(super) fn ecn_option(seed: u64) -> EcnOption {
    match seed / 2 % 4 {
        0 => EcnOption::Never,
        1 => EcnOption::WhenChanged,
        2 => EcnOption::Always,
        _ => EcnOption::DespiteLoss,
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

impl clearway_world::Packet for Packet {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn frame_bytes(&self) -> usize {
        ethernet::HEADER_LENGTH + self.ip_bytes()
    }

    fn mark(&mut self) -> bool {
        let is_capable = self.ecn != Ecn::NotCapable;
        if is_capable {
            self.ecn = Ecn::Marked;
        }
        is_capable
    }

    /// No way here has a slow path, which alone asks for it.
    fn connection(&self) -> Option<Connection> {
        None
    }
}

/// A short link without faults.
pub(super) fn short_link() -> Faults {
    Faults { latency_ns: 50 * MICROSECOND, ..Faults::default() }
}

/// A link that carries so much and keeps a hundred packets waiting. It marks those that find more
/// than a tenth of that.
pub(super) fn rate(bytes_per_ms: u64) -> Rate {
    Rate { bits_per_s: 8000 * bytes_per_ms, queue_bytes: 150_000, mark_bytes: 15_000 }
}

/// Two hosts and the link.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: [Host; 2],
    /// The length of packets that the link carries; longer ones vanish.
    pub(super) mtu: usize,
    random: Random,
    /// From each host to the other.
    ways: [Way; 2],
    /// Packets under way, and to which host.
    link: Agenda<(usize, Packet)>,
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
        let (random, link) = (Random::new(seed), Agenda::default());
        Self { now, hosts, mtu: 1500, random, ways: [0, 1].map(|_| Way::new(faults)), link }
    }

    /// What has happened to packets on the link.
    pub(super) fn counts(&self) -> FaultCounts {
        let mut counts = FaultCounts::default();
        self.ways.iter().for_each(|way| counts += way.counts());
        counts
    }

    /// From now on nothing arrives.
    pub(super) fn cut(&mut self) {
        self.ways.iter_mut().for_each(|way| way.set_faults(Faults::partition()));
    }

    /// Puts what the hosts send on the link.
    fn collect(&mut self) {
        for side in 0..2 {
            for packet in self.hosts[side].transmit(self.now) {
                self.carry(side, packet);
            }
        }
    }

    fn carry(&mut self, side: usize, mut packet: Packet) {
        if packet.ip_bytes() > self.mtu {
            return;
        }
        let fate = self.ways[side].enter(self.now, &mut packet, &mut self.random);
        let Some(Fate { arrival, copies, .. }) = fate else { return };
        for _ in 0..copies {
            self.link.note(arrival, (1 - side, packet.clone()));
        }
    }

    /// The same as [`Steps::run_until`], for at most `ns` of its time.
    #[track_caller]
    pub(super) fn run(&mut self, ns: u64, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + ns;
        self.run_until(|world| {
            let is_done = done(world);
            assert!(
                is_done || world.now < end,
                "not done at {:?}: {}",
                world.now,
                world.describe()
            );
            is_done
        });
    }

    /// A connection from the first host to the second, and the listener.
    #[track_caller]
    pub(super) fn open(
        &mut self,
        settings: Settings,
        other: Settings,
    ) -> (SlotId, SlotId, Listener) {
        let [client, server] = &mut self.hosts;
        let (from, to) = (client.address, server.address);
        let listener = server.stack.listen(None, to.port(), 16, 1500, other).expect("free");
        let from = SocketAddr::new(from.ip(), 0);
        let key = client.stack.connect(self.now, from, to, 1500, settings).expect("room");
        let mut accepted = None;
        self.run(100 * SECOND, |world| {
            accepted = accepted.or_else(|| world.hosts[1].stack.accept(listener));
            accepted.is_some()
        });
        (key, accepted.expect("accepted"), listener)
    }
}

impl Steps for World {
    const PATIENCE_NS: u64 = 4000 * SECOND;

    fn now(&self) -> Time {
        self.now
    }

    fn step(&mut self) -> bool {
        if self.hosts.iter().any(|host| host.stack.has_output()) {
            self.collect();
            return true;
        }
        let timeouts = self.hosts.iter().map(|host| host.stack.next_timeout());
        let next = timeouts.chain(self.link.next_at()).min().unwrap_or(Time::MAX);
        if next == Time::MAX {
            return false;
        }
        self.now = self.now.max(next);
        while let Some((side, packet)) = self.link.take_due(self.now) {
            if is_intact(&packet) {
                self.hosts[side].receive(self.now, &packet);
            }
        }
        for host in &mut self.hosts {
            host.stack.handle_timeouts(self.now);
        }
        // Who is saved now has been asked for all that it sends, as `Stack::save` wants it.
        self.collect();
        true
    }

    fn describe(&self) -> String {
        let stacks = self.hosts.iter().map(|host| &host.stack);
        let infos = stacks.flat_map(|stack| stack.connections().map(|key| stack.info(key)));
        format!("{:#?}", infos.collect::<Vec<_>>())
    }
}
