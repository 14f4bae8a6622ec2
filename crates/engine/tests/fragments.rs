//! Packets that come in fragments: to the host's own protocols they are put together, to apps'
//! interfaces they are what the wire carries.

mod world;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_engine::ip::Interface;
use clearway_engine::{Allowance, Control, Engine, Event, Request, Snapshot, VifSpec};
use clearway_nic::{MacAddress, Queue, Transmit, fabric};
use clearway_wire::checksum::{Sum, pseudo_header_v4};
use clearway_wire::fragment::Place;
use clearway_wire::icmpv4::Echo;
use clearway_wire::{ethernet, icmpv4, icmpv6, ipv4, ipv6, protocol};
use world::{App, SIZES, address, config_of, events};

const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1);
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 9));
const STRANGER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 9));
/// Ports that an app has for its interface.
const APP_PORT: u16 = 5000;

/// A host, and the other end of its wire.
struct Wired {
    engine: Engine,
    control: Control,
    mac: MacAddress,
    wire: fabric::Queue,
    fabric: fabric::Handle,
    now: Time,
}

impl Wired {
    fn new() -> Self {
        let (own, wire, fabric) =
            fabric::pair(fabric::Options::new(1), [fabric::Faults::default(); 2]);
        let (mac, now) = (own.info().mac, Time::from_ns(SECOND));
        let mut config = config_of(0, mac);
        config.interface.addresses.push((OWN_V6.into(), 64));
        let made = Engine::new(config, vec![Box::new(own)], 1, [1; 16], now);
        let (engine, control) = made.expect("descriptors");
        let mut world = Self { engine, control, mac, wire, fabric, now };
        world.answers(); // until the host's announcements have passed
        world
    }

    fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabric.set_time(self.now);
        self.engine.turn(self.now);
    }

    fn post(&mut self, request: Request) -> Vec<Event> {
        self.control.post(request).expect("the mailbox is free after a turn");
        self.turn();
        std::iter::from_fn(|| self.control.next_event()).collect()
    }

    fn snapshot(&mut self) -> Snapshot {
        let mut events = self.post(Request::Snapshot { id: 0 });
        events::take_snapshot(&mut events).expect("answered in one turn")
    }

    fn counter(&mut self, name: &str) -> u64 {
        let counters = self.snapshot().counters;
        counters.iter().find(|(other, _)| *other == name).expect("counted").1
    }

    fn send(&mut self, frame: &[u8]) {
        let sent = self.wire.transmit(&mut |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        assert_eq!(sent, Transmit::Queued);
        self.wire.flush();
    }

    /// What the host says.
    fn answers(&mut self) -> Vec<Vec<u8>> {
        (0..20).for_each(|_| self.turn());
        let mut frames = Vec::new();
        self.wire.receive(100, &mut |burst, _| frames.extend(burst.iter().map(|f| f.to_vec())));
        frames
    }

    /// A packet of the stranger in parts of 1480 bytes, the first of which has `first_bytes`.
    fn cut(&self, to: IpAddr, protocol: u8, first_bytes: usize, payload: &[u8]) -> Vec<Vec<u8>> {
        let (first, rest) = payload.split_at(first_bytes);
        let parts = [first].into_iter().chain(rest.chunks(1440));
        let mut offset = 0;
        let frames = parts.map(|part| {
            let is_last = offset + part.len() == payload.len();
            let place = Place { identification: 7, offset: offset as u16, is_last };
            offset += part.len();
            self.frame(to, protocol, &place, part)
        });
        frames.collect()
    }

    fn frame(&self, to: IpAddr, protocol: u8, place: &Place, part: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 48 + part.len()];
        let ether_type = if to.is_ipv4() { 0x0800 } else { 0x86dd };
        let (source, destination) = (self.wire.info().mac, self.mac);
        ethernet::Repr { destination, source, ether_type }.emit(&mut frame);
        let (hop_limit, payload_length) = (64, part.len() as u16);
        let head = match (STRANGER, STRANGER_V6, to) {
            (IpAddr::V4(source), _, IpAddr::V4(destination)) => {
                let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
                place.emit_v4(&ip, &mut frame[14..])
            }
            (_, IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
                place.emit_v6(&ip, &mut frame[14..])
            }
            _ => unreachable!("addresses of one family"),
        };
        frame[14 + head..][..part.len()].copy_from_slice(part);
        frame.truncate(14 + head + part.len());
        frame
    }

    /// The IP layer of the stranger.
    fn stranger(&self) -> Interface {
        let mut config = config_of(8, self.wire.info().mac).interface;
        config.addresses = vec![(STRANGER, 24), (STRANGER_V6, 64)];
        Interface::new(&config)
    }

    /// What the stranger gets, put together.
    fn packet(&mut self) -> Vec<u8> {
        let (answers, now, mut stranger) = (self.answers(), self.now, self.stranger());
        let whole = answers.iter().find_map(|frame| match stranger.packet(frame) {
            Ok(_) => Some(frame.clone()),
            Err(_) => stranger.handle_fragment(now, frame).expect("sound"),
        });
        whole.expect("an answer")
    }
}

fn datagram(port: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![1; 8 + length];
    bytes[..2].copy_from_slice(&9u16.to_be_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..6].copy_from_slice(&(8 + length as u16).to_be_bytes());
    bytes[6..8].fill(0); // none: allowed over IPv4
    bytes
}

/// A segment that opens a connection, with data.
fn segment(port: u16, length: usize) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (STRANGER, address(0)) else { unreachable!() };
    let mut bytes = vec![0; 20 + length];
    bytes[..2].copy_from_slice(&9u16.to_be_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[12..14].copy_from_slice(&[0x50, 0x02]);
    let sum: Sum = pseudo_header_v4(from, to, protocol::TCP, bytes.len() as u16);
    let checksum = sum.with(&bytes).checksum();
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn a_long_echo_comes_back_in_full() {
    let mut world = Wired::new();
    let data: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
    let echo = Echo { identifier: 5, sequence: 6, data: &data };
    let mut message = vec![0; 5008];
    for to in [address(0), OWN_V6.into()] {
        let kind = if let (IpAddr::V6(from), IpAddr::V6(to)) = (STRANGER_V6, to) {
            icmpv6::Repr::EchoRequest(echo).emit(&mut message, from, to);
            protocol::ICMPV6
        } else {
            icmpv4::Repr::EchoRequest(echo).emit(&mut message);
            protocol::ICMPV4
        };
        let mut frames = world.cut(to, kind, 1440, &message);
        frames.reverse();
        let (last, before) = frames.split_last().expect("several");
        before.iter().for_each(|frame| world.send(frame));
        assert!(world.answers().is_empty(), "not all has come");
        world.send(last);
        let answer = world.packet();
        let packet = world.stranger().packet(&answer).expect("a packet").payload.to_vec();
        assert_eq!(packet[8..], data, "to {to}");
    }
    assert_eq!((world.counter("packets_assembled"), world.counter("fragment")), (2, 0));
    // What waits ends when its time is over.
    let first = world.cut(address(0), protocol::UDP, 1440, &datagram(9, 3000)).swap_remove(0);
    world.send(&first);
    assert!(world.answers().is_empty());
    world.now = world.now + 61 * SECOND;
    assert_eq!(world.packet()[34], 11, "time exceeded");
    assert_eq!(world.counter("fragment_timeout"), 1);
}

#[test]
fn what_nobody_wants_is_refused_when_it_is_whole() {
    let mut world = Wired::new();
    for frame in world.cut(address(0), protocol::UDP, 1440, &datagram(9, 3000)) {
        world.send(&frame);
    }
    assert_eq!(world.packet()[34..36], [3, 3], "port unreachable");
    // A first fragment with less than TCP's header hides nothing (RFC 1858).
    for frame in world.cut(address(0), protocol::TCP, 8, &segment(9, 3000)) {
        world.send(&frame);
    }
    let answer = world.packet();
    assert_eq!((answer[23], answer[47]), (protocol::TCP, 0x14), "a reset with an acknowledgement");
}

#[test]
fn interfaces_of_apps_have_what_the_wire_carries() {
    let mut world = Wired::new();
    let (mut app, request) = App::attaching(0, 0, 0, SIZES, Allowance::of_connections(1));
    world.post(request);
    let filter = |words: &str| {
        let text = format!("dst host {} and {words} dst port {APP_PORT}", address(0));
        text.parse().expect("a filter")
    };
    let receive = vec![filter("udp"), filter("tcp")];
    let spec = VifSpec { receive, mac: world.mac, ..VifSpec::default() };
    let events = world.post(Request::OpenVif { channel: 0, vif: 1, spec: Box::new(spec) });
    let opened =
        events.iter().any(|event| matches!(event, Event::VifOpened { result: Ok(()), .. }));
    assert!(opened);
    let mut frames = |world: &mut Wired| {
        (0..10).for_each(|_| world.turn());
        app.poll();
        app.frames.drain(..).map(|(_, _, frame)| frame).collect::<Vec<_>>()
    };
    // Only the first says what it is of: the app has it as it came, and it is kept nowhere else.
    let parts = world.cut(address(0), protocol::UDP, 1440, &datagram(APP_PORT, 3000));
    parts.iter().for_each(|frame| world.send(frame));
    assert_eq!(frames(&mut world), parts[..1]);
    assert_eq!(world.counter("packets_assembled"), 0);
    // One whose ports nobody could see: what fits in a frame of the link.
    for (length, is_given) in [(1000, true), (3000, false)] {
        let parts = world.cut(address(0), protocol::TCP, 8, &segment(APP_PORT, length));
        parts.iter().for_each(|frame| world.send(frame));
        let given = frames(&mut world);
        assert_eq!(given.len(), usize::from(is_given), "{length} bytes");
        assert!(given.iter().all(|frame| frame.len() == 14 + 20 + 20 + length));
    }
    assert_eq!((world.counter("packets_assembled"), world.counter("frames_unclaimed")), (2, 1));
    world.post(Request::RemoveChannel { channel: 0 });
    world.engine.audit().expect("all books agree");
}
