//! This stack and the kernel's at the two ends of a veth pair, and between them a wire that does
//! with each segment what a test says.
//!
//! The near end has no address: the kernel there drops what comes, and this stack alone answers.
//! Time is that of the host, since the kernel knows no other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_base::{SECOND, Time};
use clearway_nic::interface::{KernelSteering, Namespace, SteerPattern, Steering};
use clearway_nic::{Queue, Transmit, af_packet};
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, ethernet, ipv4, ipv6, protocol, tcp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tests::world::{Host, Packet};
use crate::*;

const INTERFACE: &str = "cw0";
/// Of both ends: this stack's, and the kernel's.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const IPV4: [&str; 2] = ["10.79.0.1", "10.79.0.2"];
const IPV6: [&str; 2] = ["fd79::1", "fd79::2"];
/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a sleep may last: what the kernel's side does is not always a frame.
const NAP_NS: u64 = 2_000_000;

/// Which way a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    /// From this stack to the kernel.
    Out,
    /// From the kernel to this stack.
    In,
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Drop,
    Delay(u64),
    /// Stays on the wire until [`Lab::let_go`].
    Hold,
    /// Marked as having met congestion, if it may be.
    Mark,
}

/// What the wire saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) way: Direction,
    pub(super) repr: tcp::Repr,
    pub(super) length: u32,
}

/// What a test says of the segments on the wire.
pub(super) type Judge = Box<dyn FnMut(&Seen) -> Fate>;

/// Both ends and the wire.
pub(super) struct Lab {
    pub(super) host: Host,
    /// The kernel's address.
    pub(super) there: IpAddr,
    pub(super) judge: Judge,
    pub(super) seen: Vec<Seen>,
    near: Namespace,
    far: Namespace,
    queue: Box<dyn Queue>,
    /// What comes to the queue is gone with it.
    _steering: KernelSteering,
    start: Instant,
    held: BTreeMap<(Time, usize), (Direction, Packet)>,
}

impl Lab {
    /// A wire that does nothing, or nothing at all if this is not root.
    pub(super) fn new(v6: bool) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make network namespaces");
            return None;
        }
        let [near, far] = [(), ()].map(|()| Namespace::create().expect("root may"));
        let peer = format!("peer name {INTERFACE} netns {}", far.path().display());
        ip(&near, &format!("link add {INTERFACE} type veth {peer}"));
        for (end, space) in [&near, &far].into_iter().enumerate() {
            let mac = MACS[end].map(|byte| format!("{byte:02x}")).join(":");
            ip(space, &format!("link set {INTERFACE} address {mac} addrgenmode none"));
            ip(space, &format!("link set {INTERFACE} up"));
        }
        // A frame of the kernel's is a segment, and no more than fits into one.
        ip(&far, &format!("link set {INTERFACE} gso_max_segs 1"));
        ip(&far, &format!("addr add {}/24 dev {INTERFACE}", IPV4[1]));
        ip(&far, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[1]));
        let mac = MACS[0].map(|byte| format!("{byte:02x}")).join(":");
        for address in [IPV4[0], IPV6[0]] {
            ip(&far, &format!("neigh add {address} lladdr {mac} dev {INTERFACE} nud permanent"));
        }
        let opened = near.within(|| af_packet::open(&af_packet::Config::new(INTERFACE)));
        let (mut queues, mut steering) = opened.expect("entered").expect("a veth can be opened");
        let queue = queues.remove(0);
        let all = SteerPattern::new([0; 8], [0; 8]).expect("a pattern");
        steering.add_pattern(&all).expect("room");
        let [here, there] = if v6 { IPV6 } else { IPV4 }.map(|it| it.parse().expect("address"));
        let host = Host::new(Config::default(), SocketAddr::new(here, 80), Time::from_ns(SECOND));
        let mut lab = Self {
            host,
            there,
            judge: Box::new(|_| Fate::Pass),
            seen: Vec::new(),
            near,
            far,
            queue,
            _steering: steering,
            start: Instant::now(),
            held: BTreeMap::new(),
        };
        lab.run("the link is up", |lab| lab.queue.link_up());
        Some(lab)
    }

    pub(super) fn now(&self) -> Time {
        Time::from_ns(SECOND) + self.start.elapsed().as_nanos() as u64
    }

    /// Does something on the kernel's side, at once.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.far.within(work).expect("entered")
    }

    /// Does something on the kernel's side while the wire works.
    pub(super) fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let space = Namespace::open(&self.far.path().to_string_lossy()).expect("it is open");
        std::thread::spawn(move || {
            space.enter().expect("root may");
            work()
        })
    }

    /// Sets one of the kernel's variables below `net.ipv4`.
    pub(super) fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/ipv4/{name}");
        self.within(|| std::fs::write(&path, value)).expect("it is there");
    }

    /// One of the kernel's counters for TCP, of `/proc/net/snmp` or `/proc/net/netstat`.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let read = |path| self.within(|| std::fs::read_to_string(path)).expect("it is there");
        let text = read("/proc/thread-self/net/snmp") + &read("/proc/thread-self/net/netstat");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        lines
            .chunks(2)
            .filter(|pair| pair[0][0].starts_with("Tcp"))
            .find_map(|pair| {
                let at = pair[0].iter().position(|word| *word == name)?;
                pair[1][at].parse().ok()
            })
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Goes on until `done`.
    #[track_caller]
    pub(super) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        loop {
            let is_idle = self.turn();
            if done(self) {
                self.turn();
                return;
            }
            assert!(start.elapsed() < PATIENCE, "in vain until {what}: {:#?}", self.infos());
            if is_idle {
                self.sleep();
            }
        }
    }

    pub(super) fn infos(&self) -> Vec<Info> {
        let stack = &self.host.stack;
        stack.connections().filter_map(|key| stack.info(key)).collect()
    }

    /// True if nothing has come.
    fn turn(&mut self) -> bool {
        let mut packets = Vec::new();
        self.queue.receive(256, &mut |frames, _| {
            packets.extend(frames.iter().filter_map(|frame| decode(frame)));
        });
        let is_idle = packets.is_empty();
        packets.into_iter().for_each(|packet| self.carry(Direction::In, packet));
        let now = self.now();
        while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= now) {
            let (way, packet) = entry.remove();
            self.arrive(way, &packet);
        }
        self.host.stack.handle_timeouts(now);
        for packet in self.host.transmit(now) {
            self.carry(Direction::Out, packet);
        }
        self.queue.flush();
        is_idle
    }

    fn carry(&mut self, way: Direction, mut packet: Packet) {
        let view = tcp::View::new(&packet.bytes).expect("whole");
        let repr = tcp::Repr::parse(&view, tcp::Check::Skip).expect("valid");
        let seen = Seen { way, repr, length: view.payload().len() as u32 };
        self.seen.push(seen);
        match (self.judge)(&seen) {
            Fate::Drop => return,
            Fate::Delay(ns) => return self.hold(self.now() + ns, way, packet),
            Fate::Hold => return self.hold(Time::MAX, way, packet),
            Fate::Mark if packet.ecn == Ecn::Capable => packet.ecn = Ecn::Marked,
            Fate::Mark | Fate::Pass => {}
        }
        self.arrive(way, &packet);
    }

    fn hold(&mut self, until: Time, way: Direction, packet: Packet) {
        self.held.insert((until, self.seen.len()), (way, packet));
    }

    /// All segments that are on the wire arrive, in order.
    pub(super) fn let_go(&mut self) {
        for (way, packet) in core::mem::take(&mut self.held).into_values() {
            self.arrive(way, &packet);
        }
    }

    fn arrive(&mut self, way: Direction, packet: &Packet) {
        if way == Direction::In {
            return self.host.receive(self.now(), packet);
        }
        let frame = encode(packet);
        let mut fill = |buffer: &mut [u8]| {
            buffer[..frame.len()].copy_from_slice(&frame);
            frame.len()
        };
        while self.queue.transmit(&mut fill) == Transmit::Full {
            self.queue.flush();
        }
    }

    /// Until a frame comes or something is due.
    fn sleep(&mut self) {
        let held = self.held.keys().next().map_or(Time::MAX, |(at, _)| *at);
        let next = self.host.stack.next_timeout().min(held);
        let nanoseconds = next.since(self.now()).min(NAP_NS) as i64;
        if self.queue.arm()
            && let Some(fd) = self.queue.wait_fd()
        {
            let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            poll(&mut fds, Some(&timeout)).expect("a descriptor");
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Whatever a test has forgotten on the kernel's side ends with the link.
        let _ = self.near.ip(&format!("link del {INTERFACE}"));
    }
}

fn ip(space: &Namespace, words: &str) {
    space.ip(words).expect("iproute2 is installed and the command is right");
}

/// The segment in a frame, if there is one. The kernel leaves checksums to the NIC.
fn decode(frame: &[u8]) -> Option<Packet> {
    let frame = ethernet::View::new(frame).ok()?;
    let (from, to, protocol, ecn, bytes): (IpAddr, IpAddr, _, _, _) = match frame.ether_type() {
        ethernet::ether_type::IPV4 => {
            let view = ipv4::View::new(frame.payload()).ok()?;
            let repr = ipv4::Repr::parse(&view, true).ok()?;
            let ends = (repr.source.into(), repr.destination.into());
            (ends.0, ends.1, repr.protocol, view.ecn(), view.payload())
        }
        ethernet::ether_type::IPV6 => {
            let view = ipv6::View::new(frame.payload()).ok()?;
            let repr = ipv6::Repr::parse(&view).ok()?;
            let ends = (repr.source.into(), repr.destination.into());
            (ends.0, ends.1, repr.protocol, view.ecn(), view.payload())
        }
        _ => return None,
    };
    let view = tcp::View::new(bytes).ok().filter(|_| protocol == protocol::TCP)?;
    let from = SocketAddr::new(from, view.source_port());
    let to = SocketAddr::new(to, view.destination_port());
    Some(Packet { from, to, bytes: bytes.to_vec(), ecn })
}

/// A frame with a segment, and all checksums, for the kernel to check.
fn encode(packet: &Packet) -> Vec<u8> {
    let mut segment = packet.bytes.clone();
    let payload_length = segment.len() as u16;
    let ecn = match packet.ecn {
        Ecn::NotCapable => 0,
        Ecn::CapableOne => 1,
        Ecn::Capable => 2,
        Ecn::Marked => 3,
    };
    let mut header = vec![0; 60];
    let (ether_type, addresses) = match (packet.from.ip(), packet.to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let repr = ipv4::Repr {
                source,
                destination,
                protocol: protocol::TCP,
                hop_limit: 64,
                payload_length,
            };
            let length = repr.emit(&mut header);
            header.truncate(length);
            header[1] = ecn;
            header[10..12].fill(0);
            let sum = Sum::new().with(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (
                ethernet::ether_type::IPV4,
                Sum::new().with(&source.octets()).with(&destination.octets()),
            )
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let repr = ipv6::Repr {
                source,
                destination,
                protocol: protocol::TCP,
                hop_limit: 64,
                payload_length,
            };
            let length = repr.emit(&mut header);
            header.truncate(length);
            header[1] |= ecn << 4;
            (
                ethernet::ether_type::IPV6,
                Sum::new().with(&source.octets()).with(&destination.octets()),
            )
        }
        _ => panic!("two families"),
    };
    tcp::fill_checksum(&mut segment, addresses);
    let mut frame = vec![0; ethernet::HEADER_LENGTH];
    ethernet::Repr { destination: MACS[1], source: MACS[0], ether_type }.emit(&mut frame);
    [frame, header, segment].concat()
}
