//! Messages back and forth between two endpoints, for counting instructions:
//!
//! ```sh
//! cargo build --release -p clearway-transport --example message
//! valgrind --tool=callgrind target/release/examples/message 64 1 20000
//! ```
//!
//! The arguments are bytes per message, messages in flight, messages each way and flows, which have
//! their turns one after the other. The apps here do next to nothing, so what is counted is the
//! transport, the packet format and the copies. Time is told, too; with many flows it is that of
//! fetching their state from memory.

use std::net::SocketAddr;

use clearway_base::{MICROSECOND, Time};
use clearway_transport::{
    App, Arrival, Buffer, Config, Delivered, Endpoint, FlowKey, Order, Owner, Reason, Room,
    StreamKey, Undelivered,
};
use clearway_wire::Ecn;

const WINDOW: u64 = 1 << 20;
const PORT: u16 = 7;
const LISTENER: Owner = Owner { channel: 0, connection: 0 };

/// An app whose messages all lie at the same place.
struct Echo {
    transmit: Vec<u8>,
    receive: Vec<u8>,
    delivered: Vec<(Owner, Buffer)>,
    /// By the connection's number.
    flows: Vec<FlowKey>,
}

impl App for Echo {
    fn read(&self, _: Owner, offset: u32, into: &mut [u8]) {
        into.copy_from_slice(&self.transmit[offset as usize..][..into.len()]);
    }

    fn allocate(&mut self, _: Owner, length: u32) -> Option<Buffer> {
        Some(Buffer { id: 0, offset: 0, length })
    }

    fn begin(&mut self, owner: Owner, length: u32, _: Order, _: Room) -> Option<Buffer> {
        self.allocate(owner, length)
    }

    fn write(&mut self, _: Owner, _: Buffer, at: u32, bytes: &[u8]) {
        self.receive[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn finish(&mut self, _: Owner, _: Buffer, _: Order) {}

    fn discard(&mut self, _: Owner, _: Buffer, _: Order) {}

    fn deliver(&mut self, owner: Owner, buffer: Buffer) -> Delivered {
        self.delivered.push((owner, buffer));
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
        self.flows.push(key.flow);
        Some((owner(self.flows.len() - 1), WINDOW))
    }

    fn connected(&mut self, _: Owner) {}

    fn closed(&mut self, _: Owner, reason: Reason) {
        panic!("the flow ended: {reason:?}");
    }

    fn pong(&mut self, _: u64, _: Result<u64, Undelivered>) {}
}

fn owner(connection: usize) -> Owner {
    Owner { channel: 0, connection: connection as u32 }
}

struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    app: Echo,
}

impl Host {
    fn new(index: u8, length: usize, now: Time) -> Self {
        let app = Echo {
            transmit: vec![7; length],
            receive: vec![0; length],
            delivered: Vec::new(),
            flows: Vec::new(),
        };
        let endpoint = Endpoint::new(Config::default(), now, u64::from(index), [index; 16]);
        Self { address: SocketAddr::from(([10, 0, 0, index], 20707)), endpoint, app }
    }

    /// Sends all that is due straight to `peer`; true if that was anything.
    fn transmit(&mut self, now: Time, peer: &mut Self) -> bool {
        let mut bytes = [0; 2048];
        let mut any = false;
        while let Some(destination) = self.endpoint.next_transmit(now) {
            let length = self.endpoint.poll_transmit(now, destination, &mut bytes, &self.app);
            let (from, to) = (destination.from, destination.to);
            peer.endpoint.handle_datagram(
                now,
                from,
                to,
                &bytes[..length],
                Arrival::Queue,
                Ecn::Capable,
                &mut peer.app,
            );
            any = true;
        }
        any
    }

    /// Releases what has come and answers each with a message of `length` bytes, if `answers`.
    fn take(&mut self, now: Time, length: u32, answers: bool) -> u32 {
        let mut taken = 0;
        while let Some((owner, buffer)) = self.app.delivered.pop() {
            let flow = self.app.flows[owner.connection as usize];
            self.endpoint.release(now, flow, 1, u64::from(buffer.length));
            if answers {
                self.endpoint.send(now, flow, 0, length);
            }
            taken += 1;
        }
        taken
    }

    fn handle_timeouts(&mut self, now: Time) {
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeouts(now, &mut self.app);
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mut argument = |default| arguments.next().and_then(|number| number.ok()).unwrap_or(default);
    let (length, in_flight, count) = (argument(64), argument(1), argument(20_000));
    let flows = argument(1);

    let mut now = Time::from_ns(1_000_000_000);
    let mut client = Host::new(1, length as usize, now);
    let mut server = Host::new(2, length as usize, now);
    server.endpoint.listen(PORT, LISTENER).expect("free");
    for connection in 0..flows as usize {
        let (endpoint, owner) = (&mut client.endpoint, owner(connection));
        let flow = endpoint.connect(now, owner, client.address, server.address, PORT, WINDOW);
        client.app.flows.push(flow.expect("room"));
        while client.transmit(now, &mut server) || server.transmit(now, &mut client) {}
        now = now + 20 * MICROSECOND; // no more strangers at a time than an endpoint answers
    }
    assert_eq!(server.app.flows.len(), flows as usize, "all flows are open");

    let began = std::time::Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < count {
        now = now + MICROSECOND;
        while sent < count && sent - received < in_flight {
            let flow = client.app.flows[(sent % flows) as usize];
            client.endpoint.send(now, flow, 0, length);
            sent += 1;
        }
        client.handle_timeouts(now);
        client.transmit(now, &mut server);
        server.take(now, length, true);
        server.handle_timeouts(now);
        server.transmit(now, &mut client);
        received += client.take(now, length, false);
    }
    let ns = began.elapsed().as_nanos() / u128::from(received);
    println!(
        "{received} messages of {length} bytes there and back over {flows} flows, {in_flight} in \
         flight: {ns} ns each"
    );
}
