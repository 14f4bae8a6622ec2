//! A peer made by hand, at the port of a [`World`] that no host has: it opens a flow as any
//! host does, and then sends what it likes. What comes to it it acknowledges, or not.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_base::RangeSet;
use clearway_engine::ip::{self, Interface, Resolution, UdpPath};
use clearway_nic::{Queue, Transmit};
use clearway_wire::clearway::operation::{Answer, Request};
use clearway_wire::clearway::{
    self, Challenge, EcnReport, Frame, HEADER_LENGTH, Header, Packet, PacketType, Reset, Syn,
    SynAck,
};

use super::{UDP_PORT, World, address};

/// Credit that it gives.
const LIMIT: u64 = 1 << 30;
const PACKET_BYTES: usize = 1472;
/// Where it is.
pub const HOSTILE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 99));

/// See the module.
pub struct HostilePeer {
    interface: Interface,
    path: UdpPath,
    /// The ids that packets to the engine, and to it, carry.
    flow: u64,
    own_flow: u64,
    next_number: u64,
    /// Of its next message.
    pub sequence: u32,
    /// The number of its next request.
    pub request: u32,
    /// Packets that have come.
    seen: RangeSet,
    pub acknowledges: bool,
    /// Whole operations that have come.
    pub heard: VecDeque<Vec<u8>>,
    /// The engine has ended the flow, and why: what it said first.
    pub ended: Option<u16>,
}

impl HostilePeer {
    /// Connects to `port` of the first host, in one of these versions.
    pub fn connect(world: &mut World, port: u16, versions: &[u8]) -> Self {
        let own_flow = 0xbad << 32 | u64::from(port) << 8 | 1;
        let mut peer = Self { own_flow, ..Self::serving(world) };
        peer.open(world, port, versions);
        peer
    }

    /// One that waits for others to connect.
    pub fn serving(world: &mut World) -> Self {
        let (interface, path) = meet(world, HOSTILE);
        Self {
            interface,
            path,
            flow: 0,
            own_flow: 0,
            next_number: 0,
            sequence: 0,
            request: 0,
            seen: RangeSet::new(),
            acknowledges: true,
            heard: VecDeque::new(),
            ended: None,
        }
    }

    /// Syns that have come: the flow of each, and its token.
    pub fn syns(&mut self, world: &mut World) -> Vec<(u64, u64)> {
        let payloads = self.payloads(world);
        let syn = |payload: &Vec<u8>| {
            let packet = Packet::new(payload).expect("a packet");
            let header = Header::parse(&packet).expect("a header");
            let flow = Syn::parse(&packet).ok()?.source_flow;
            (header.packet_type == PacketType::Syn).then_some((flow, header.number))
        };
        payloads.iter().filter_map(syn).collect()
    }

    /// Accepts one of these, in this version.
    pub fn accept(&mut self, world: &mut World, (flow, token): (u64, u64), version: u8) {
        let syn_ack = SynAck {
            source_flow: flow ^ 1 << 60,
            receive_limit: LIMIT,
            packet_bytes_max: PACKET_BYTES as u16,
            version,
            port: UDP_PORT,
        };
        let mut packet = vec![0; PACKET_BYTES];
        let head = Header::control(PacketType::SynAck, flow, token).emit(&mut packet);
        let length = head + syn_ack.emit(&mut packet[head..]);
        packet.truncate(length);
        clearway::seal(&mut packet);
        self.send_packet(world, &packet);
    }

    fn open(&mut self, world: &mut World, port: u16, versions: &[u8]) {
        let mut cookie = Vec::new();
        for _ in 0..100 {
            if self.flow != 0 {
                return;
            }
            let syn = Syn {
                source_flow: self.own_flow,
                port,
                receive_limit: LIMIT,
                packet_bytes_max: PACKET_BYTES as u16,
                engines: 1,
                pass_on: false,
                versions,
                cookie: &cookie,
            };
            let mut packet = vec![0; PACKET_BYTES];
            let head = Header::control(PacketType::Syn, 0, 77).emit(&mut packet);
            let length = head + syn.emit(&mut packet[head..]);
            packet.truncate(length);
            clearway::seal(&mut packet);
            self.send_packet(world, &packet);
            for _ in 0..10 {
                world.turn();
                for payload in self.payloads(world) {
                    self.take_handshake(&payload, &mut cookie);
                }
            }
        }
        panic!("the engine opens no flow");
    }

    fn take_handshake(&mut self, payload: &[u8], cookie: &mut Vec<u8>) {
        let packet = Packet::new(payload).expect("a packet");
        match Header::parse(&packet).expect("a header").packet_type {
            PacketType::Challenge => {
                *cookie = Challenge::parse(&packet).expect("sound").cookie.to_vec();
            }
            PacketType::SynAck => self.flow = SynAck::parse(&packet).expect("sound").source_flow,
            _ => {}
        }
    }

    // ---- what it sends ----

    fn send_packet(&mut self, world: &mut World, payload: &[u8]) {
        let frame = datagram(&self.path, payload);
        send_frame(world, &frame);
    }

    /// Sends a data packet of its flow with these frames.
    pub fn send(&mut self, world: &mut World, frames: &[u8]) {
        let mut packet = vec![0; HEADER_LENGTH + frames.len()];
        Header::data(self.flow, self.next_number, false).emit(&mut packet);
        self.next_number += 1;
        packet[HEADER_LENGTH..].copy_from_slice(frames);
        clearway::seal(&mut packet);
        self.send_packet(world, &packet);
    }

    /// Sends a whole operation as the message of this sequence number.
    pub fn send_operation_as(&mut self, world: &mut World, sequence: u32, bytes: &[u8]) {
        let mut frame = [0; 12];
        clearway::emit_message(&mut frame, sequence, bytes.len() as u32);
        clearway::carry_operation(&mut frame);
        self.send(world, &[&frame, bytes].concat());
    }

    /// The same as its next message.
    pub fn send_operation(&mut self, world: &mut World, bytes: &[u8]) {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.send_operation_as(world, sequence, bytes);
    }

    /// Sends a part of an operation of `total` bytes, or of a message.
    pub fn send_part(
        &mut self,
        world: &mut World,
        is_operation: bool,
        sequence: u32,
        total: u32,
        at: u32,
        bytes: &[u8],
    ) {
        let mut frame = [0; 20];
        clearway::emit_fragment(&mut frame, sequence, bytes.len() as u32, total, at);
        if is_operation {
            clearway::carry_operation(&mut frame);
        }
        self.send(world, &[&frame, bytes].concat());
    }

    /// Sends its next request.
    pub fn ask(&mut self, world: &mut World, request: Request, payload: &[u8]) {
        let head = Request { number: self.request, ..request }.emit();
        self.request = self.request.wrapping_add(1);
        self.send_operation(world, &[&head, payload].concat());
    }

    // ---- what comes to it ----

    /// Takes what has come.
    pub fn poll(&mut self, world: &mut World) {
        let payloads = self.payloads(world);
        let mut has_news = false;
        for payload in &payloads {
            has_news |= self.take(payload);
        }
        if has_news && self.acknowledges {
            let mut frames = [0; 300];
            let newest_first: Vec<_> = self.seen.iter().collect();
            let ranges = newest_first.into_iter().rev();
            let report = EcnReport::default();
            let length = clearway::emit_ack(&mut frames, 0, report, ranges);
            self.send(world, &frames[..length]);
        }
    }

    fn take(&mut self, payload: &[u8]) -> bool {
        let packet = Packet::new(payload).expect("a packet");
        let header = Header::parse(&packet).expect("a header");
        if header.packet_type == PacketType::Reset {
            let reason = Reset::parse(&packet).expect("sound").reason;
            self.ended.get_or_insert(reason);
        }
        if header.packet_type != PacketType::Data || header.flow != self.own_flow {
            return false;
        }
        if self.seen.insert(header.number..header.number + 1) == 0 {
            return false;
        }
        for frame in packet.frames() {
            match frame.expect("a frame") {
                Frame::Operation(operation) => self.heard.push_back(operation.bytes.to_vec()),
                Frame::Reset { reason } => _ = self.ended.get_or_insert(reason),
                _ => {}
            }
        }
        true
    }

    /// The next answer that comes, and its data. Short ones only.
    #[track_caller]
    pub fn answer(&mut self, world: &mut World) -> (Answer, Vec<u8>) {
        for _ in 0..10_000 {
            if let Some(bytes) = self.heard.pop_front() {
                let (head, data) = bytes.split_at(clearway::operation::ANSWER_LENGTH);
                return (Answer::parse(head).expect("sound"), data.to_vec());
            }
            assert_eq!(self.ended, None);
            world.turn();
            self.poll(world);
        }
        panic!("no answer comes");
    }

    /// Payloads of datagrams that have come. It answers those who look for its Ethernet address.
    fn payloads(&mut self, world: &mut World) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        for frame in received(world) {
            match self.interface.datagram(&frame, false) {
                Ok(datagram) => payloads.push(datagram.payload.to_vec()),
                Err(_) => _ = self.interface.handle_arp(world.now, &frame),
            }
        }
        send_waiting(world, &mut self.interface);
        payloads
    }
}

/// The IP layer of the peer, when it knows the first host and that knows it.
fn meet(world: &mut World, own: IpAddr) -> (Interface, UdpPath) {
    let config = ip::Config {
        mac: world.stranger().info().mac,
        addresses: vec![(own, 24)],
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    };
    let mut interface = Interface::new(&config);
    let (from, to) = (SocketAddr::new(own, UDP_PORT), SocketAddr::new(address(0), UDP_PORT));
    for _ in 0..100 {
        if let Resolution::Known(path) = interface.udp_path(world.now, from, to) {
            return (interface, path);
        }
        send_waiting(world, &mut interface);
        world.turn();
        received(world).iter().for_each(|frame| _ = interface.handle_arp(world.now, frame));
    }
    panic!("the first host is silent");
}

fn received(world: &mut World) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut take = |burst: &[&[u8]], _| frames.extend(burst.iter().map(|frame| frame.to_vec()));
    while world.stranger().receive(32, &mut take) > 0 {}
    frames
}

fn send_waiting(world: &mut World, interface: &mut Interface) {
    let mut frame = [0; 1518];
    loop {
        let length = interface.poll_transmit(&mut frame);
        if length == 0 {
            return;
        }
        send_frame(world, &frame[..length]);
    }
}

fn send_frame(world: &mut World, frame: &[u8]) {
    let mut write = |buffer: &mut [u8]| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    };
    while world.stranger().transmit(&mut write) == Transmit::Full {
        world.turn();
    }
    world.stranger().flush();
}

fn datagram(path: &UdpPath, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 1518];
    frame[path.payload_offset()..][..payload.len()].copy_from_slice(payload);
    let length = path.emit_headers(&mut frame, payload.len(), false);
    path.finish(&mut frame[..length]);
    frame.truncate(length);
    frame
}
