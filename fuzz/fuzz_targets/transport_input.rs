//! Datagrams of a hostile peer against an endpoint that has an open flow with it. The input is cut
//! into datagrams; their CRC is made right and, if the input says so, their flow id too, so that
//! what is behind those checks is reached.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_base::{MICROSECOND, Time};
use clearway_transport::{
    App, Arrival, Buffer, Config, Delivered, Endpoint, Order, Owner, Reason, Room, StreamKey,
    Undelivered, Unfinished,
};
use clearway_wire::Ecn;
use clearway_wire::clearway::{HEADER_LENGTH, seal};
use libfuzzer_sys::fuzz_target;

const POOL_BYTES: usize = 1 << 20;
const WINDOW: u64 = 64 * 1024;
/// Larger messages may go into posted buffers.
const POSTED_BYTES_MIN: u32 = 100;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OWNER: Owner = Owner { channel: 0, connection: 0 };

/// An app whose buffers must be used as the trait says.
struct TestApp {
    buffers: BTreeMap<u32, u32>,
    unfinished: Unfinished,
    /// What the books of `unfinished` must say in the end.
    begun: BTreeMap<u32, Order>,
    used: usize,
    next: u32,
    /// Buffers that are posted, and those that messages are coming into.
    posts: u32,
    posted: BTreeSet<u32>,
    delivered: Vec<Buffer>,
    accepted: Option<StreamKey>,
}

impl TestApp {
    fn new() -> Self {
        Self {
            buffers: BTreeMap::new(),
            unfinished: Unfinished::new(POOL_BYTES as u32),
            begun: BTreeMap::new(),
            used: 0,
            next: 0,
            posts: 2,
            posted: BTreeSet::new(),
            delivered: Vec::new(),
            accepted: None,
        }
    }

    /// A posted buffer has had its end, and is posted anew.
    fn is_over(&mut self, buffer: Buffer) -> bool {
        let was_posted = self.posted.remove(&buffer.id);
        if was_posted {
            assert_eq!(self.buffers.remove(&buffer.id), Some(buffer.length));
            self.posts += 1;
        }
        was_posted
    }

    fn release(&mut self, buffer: Buffer) {
        assert_eq!(self.buffers.remove(&buffer.id), Some(buffer.length));
        self.used -= buffer.length as usize;
    }
}

impl App for TestApp {
    fn read(&self, _: Owner, _: u32, into: &mut [u8]) {
        into.fill(7);
    }

    fn allocate(&mut self, _: Owner, length: u32) -> Option<Buffer> {
        if self.used + length as usize > POOL_BYTES {
            return None;
        }
        self.used += length as usize;
        self.next += 1;
        self.buffers.insert(self.next, length);
        Some(Buffer { id: self.next, offset: 0, length })
    }

    fn begin(&mut self, owner: Owner, length: u32, order: Order, room: Room) -> Option<Buffer> {
        if room == Room::Posted && length > POSTED_BYTES_MIN && self.posts > 0 {
            self.posts -= 1;
            self.next += 1;
            self.buffers.insert(self.next, length);
            self.begun.insert(self.next, order);
            self.posted.insert(self.next);
            return Some(Buffer { id: self.next, offset: 0, length });
        }
        if !self.unfinished.allows(PEER, length, order) {
            return None;
        }
        let buffer = self.allocate(owner, length)?;
        self.unfinished.begin(PEER, length, order);
        self.begun.insert(buffer.id, order);
        Some(buffer)
    }

    fn finish(&mut self, _: Owner, buffer: Buffer, order: Order) {
        assert_eq!(self.begun.remove(&buffer.id), Some(order));
        if !self.posted.contains(&buffer.id) {
            self.unfinished.end(PEER, buffer.length, order);
        }
    }

    fn write(&mut self, _: Owner, buffer: Buffer, at: u32, bytes: &[u8]) {
        assert_eq!(self.buffers.get(&buffer.id), Some(&buffer.length));
        assert!(at as usize + bytes.len() <= buffer.length as usize);
    }

    fn discard(&mut self, owner: Owner, buffer: Buffer, order: Order) {
        self.finish(owner, buffer, order);
        if self.is_over(buffer) {
            return;
        }
        self.release(buffer);
    }

    fn deliver(&mut self, _: Owner, buffer: Buffer) -> Delivered {
        assert!(!self.begun.contains_key(&buffer.id));
        assert!(self.buffers.contains_key(&buffer.id));
        if self.is_over(buffer) {
            return Delivered::Released;
        }
        self.delivered.push(buffer);
        Delivered::Held
    }

    fn sent(&mut self, _: Owner, _: u32) {}

    fn accept(
        &mut self,
        _: Owner,
        key: StreamKey,
        _: SocketAddr,
        _: SocketAddr,
    ) -> Option<(Owner, u64)> {
        self.accepted = Some(key);
        Some((OWNER, WINDOW))
    }

    fn connected(&mut self, _: Owner) {}

    fn closed(&mut self, _: Owner, _: Reason) {}

    fn pong(&mut self, _: u64, _: Result<u64, Undelivered>) {}
}

struct Side {
    address: SocketAddr,
    endpoint: Endpoint,
    app: TestApp,
}

impl Side {
    fn new(host: u8, now: Time) -> Self {
        let address = SocketAddr::from(([10, 0, 0, host], 20707));
        // One engine of several, so that paths between them are of interest.
        let config = Config { engine_index: 1, engine_count: 4, ..Config::default() };
        let endpoint = Endpoint::new(config, now, u64::from(host), [host; 16]);
        Self { address, endpoint, app: TestApp::new() }
    }

    fn transmit(&mut self, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut packets = Vec::new();
        let mut bytes = [0; 2048];
        while let Some(destination) = self.endpoint.next_transmit(now) {
            let length = self.endpoint.poll_transmit(now, destination, &mut bytes, &self.app);
            assert!(length <= 1472);
            if length > 0 {
                packets.push((destination.from, bytes[..length].to_vec()));
            }
        }
        packets
    }
}

/// A server with a flow that a client has opened, of a connection or shared by such, and the flow
/// id that the server gave it.
fn open(now: Time, is_shared: bool) -> (Side, SocketAddr, u64) {
    let (mut client, mut server) = (Side::new(1, now), Side::new(2, now));
    server.endpoint.listen(7, OWNER).expect("free");
    let (endpoint, from, to) = (&mut client.endpoint, client.address, server.address);
    if is_shared {
        let key = endpoint.connect_shared(now, from, to, 7, WINDOW).expect("room");
        endpoint.open_stream(now, key, OWNER, WINDOW).expect("room");
    } else {
        let key = endpoint.connect(now, OWNER, from, to, 7, WINDOW).expect("room");
        endpoint.send(now, key, 0, 100);
    }
    let mut flow = 0;
    for _ in 0..4 {
        for (from, packet) in client.transmit(now) {
            flow = u64::from_be_bytes(packet[8..16].try_into().expect("8 bytes"));
            server.endpoint.handle_datagram(
                now,
                from,
                server.address,
                &packet,
                Arrival::Queue,
                Ecn::Capable,
                &mut server.app,
            );
        }
        for (from, packet) in server.transmit(now) {
            client.endpoint.handle_datagram(
                now,
                from,
                client.address,
                &packet,
                Arrival::Queue,
                Ecn::Capable,
                &mut client.app,
            );
        }
    }
    let delivered = usize::from(!is_shared);
    assert!(flow != 0 && server.app.accepted.is_some());
    assert_eq!(server.app.delivered.len(), delivered);
    (server, client.address, flow)
}

fuzz_target!(|input: &[u8]| {
    let mut now = Time::from_ns(1_000_000_000);
    let (mut server, peer, flow) = open(now, input.len() % 2 == 1);
    let mut rest = input;
    while let [control, length, tail @ ..] = rest {
        let length = (usize::from(*length) * (1 + usize::from(control >> 6))).min(tail.len());
        let arrival = if length.is_multiple_of(2) { Arrival::Queue } else { Arrival::Lane };
        let ecn = if control & 8 == 0 { Ecn::Capable } else { Ecn::Marked };
        let (datagram, tail) = tail.split_at(length);
        rest = tail;
        let mut datagram = datagram.to_vec();
        if datagram.len() >= HEADER_LENGTH {
            if control & 1 != 0 {
                datagram[..2].copy_from_slice(&[1, 0]);
                datagram[8..16].copy_from_slice(&flow.to_be_bytes());
                datagram[16..22].fill(0);
            }
            seal(&mut datagram);
        }
        server.endpoint.handle_datagram(
            now,
            peer,
            server.address,
            &datagram,
            arrival,
            ecn,
            &mut server.app,
        );
        if control & 2 != 0
            && let Some(buffer) = server.app.delivered.pop()
        {
            server.app.release(buffer);
            if let Some(key) = server.app.accepted {
                server.endpoint.release(now, key, 1, u64::from(buffer.length));
            }
        }
        if control & 4 != 0 {
            now = now + u64::from(control & 0x38) * 100 * MICROSECOND;
            server.endpoint.handle_timeouts(now, &mut server.app);
        }
        server.transmit(now);
    }
});
