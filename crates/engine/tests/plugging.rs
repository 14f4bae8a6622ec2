//! An engine whose queue is taken away, and that is given another one: with the same address on a
//! NIC of another Ethernet address, and with less room for a frame. Flows go on.

mod world;

use std::net::SocketAddr;

use clearway_base::{MILLISECOND, SECOND, Time};
use clearway_channel::Command;
use clearway_engine::{Event, Plug, Request, ip};
use clearway_nic::fabric::Faults;
use clearway_nic::{Capabilities, Info, MacAddress, Queue, Sink, Transmit, Unplugged};
use world::{App, SIZES, World, address, as_inner, config_of};

const FRAME_BYTES: usize = 1518;

/// A queue of the fabric as that of a NIC with another address, and with room for `frame_bytes`.
struct Renamed {
    queue: Box<dyn Queue>,
    mac: MacAddress,
    frame_bytes: usize,
}

impl Queue for Renamed {
    fn capabilities(&self) -> Capabilities {
        Capabilities { frame_bytes_max: self.frame_bytes, ..self.queue.capabilities() }
    }

    fn info(&self) -> Info {
        Info { mac: self.mac, ..self.queue.info() }
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.queue.receive(budget, sink)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let room = self.frame_bytes;
        self.queue.transmit(&mut |frame| fill(&mut frame[..room]))
    }

    as_inner!();
}

/// Gives a host another queue, and returns the one that it had.
fn plug(world: &mut World, host: usize, queue: Box<dyn Queue>, network: ip::Config) -> Plug {
    let plug = Box::new(Plug { queues: vec![queue], copies: None });
    world.post(host, Request::Plug { plug, network: Box::new(network) });
    let events = &mut world.hosts[host].members[0].events;
    let index = events.iter().position(|event| matches!(event, Event::Unplugged(_)));
    match events.remove(index.expect("answered in one turn")) {
        Event::Unplugged(plug) => *plug,
        other => panic!("{other:?}"),
    }
}

/// Has `count` messages of many sizes arrive, in order and intact.
fn transfer(world: &mut World, from: &mut App, connection: u64, to: &mut App, count: usize) {
    let message = |index: usize| vec![index as u8; index * 991 % 20_000];
    let (mut sent, mut received) = (0, 0);
    world.turn_until(|_| {
        while sent < count && sent < received + 16 && from.send(connection, &message(sent)) {
            sent += 1;
        }
        from.poll();
        to.poll();
        while let Some(arrived) = to.received.pop_front() {
            assert!(to.bytes(&arrived) == message(received), "message {received}");
            to.release(arrived);
            received += 1;
        }
        received == count
    });
}

#[test]
fn a_flow_goes_on_over_another_queue_with_another_ethernet_address() {
    let mut world = World::new(1, Faults::default());
    let mut client = world.attach(0, SIZES);
    let mut server = world.attach(1, SIZES);
    world.listen(&server, 4000).expect("free");
    let (connection, accepted) = world.connect(&mut client, &mut server, 4000);
    transfer(&mut world, &mut client, connection, &mut server, 50);
    for (number, frame_bytes) in [(1, FRAME_BYTES), (2, 1000), (3, FRAME_BYTES)] {
        let mac = [2, 0, 0, 0, 7, number];
        let network = config_of(1, mac).interface;
        let none = ip::Config { addresses: Vec::new(), ..network.clone() };
        let unplugged = Unplugged::new(mac, FRAME_BYTES, "a test").expect("a descriptor");
        // In the middle of messages.
        (0..8).for_each(|_| assert!(client.send(connection, &[number; 9000])));
        (0..50).for_each(|_| world.turn());
        let before = plug(&mut world, 1, Box::new(unplugged), none);
        let silence = world.now + 100 * MILLISECOND;
        world.turn_until(|world| world.now >= silence);
        assert!(!world.snapshot(1).queues[0].link_up);
        let queue = before.queues.into_iter().next().expect("there was one");
        let queue = Box::new(Renamed { queue, mac, frame_bytes });
        let mtu = (frame_bytes - 18) as u16;
        drop(plug(&mut world, 1, queue, ip::Config { mtu, ..network }));
        let mut arrived = 0;
        world.turn_until(|_| {
            server.poll();
            client.poll();
            while let Some(message) = server.received.pop_front() {
                assert!(*server.bytes(&message) == [number; 9000]);
                server.release(message);
                arrived += 1;
            }
            arrived == 8
        });
        transfer(&mut world, &mut server, accepted, &mut client, 50);
        transfer(&mut world, &mut client, connection, &mut server, 50);
        let mut another = world.attach(0, SIZES);
        let (new, _) = world.connect(&mut another, &mut server, 4000);
        transfer(&mut world, &mut another, new, &mut server, 10);
    }
}

/// As the kernels of two hosts do that share the NICs, at `macs`: they say where the other one is,
/// whenever they are asked.
fn answer_as_kernels(world: &mut World, macs: [MacAddress; 2]) {
    for (host, mac) in [(0, macs[1]), (1, macs[0])] {
        let events = &mut world.hosts[host].members[0].events;
        let asked: Vec<_> =
            events.extract_if(.., |event| matches!(event, Event::Resolve { .. })).collect();
        for event in asked {
            let Event::Resolve { nic, address } = event else { continue };
            world.post(host, Request::Neighbour { nic, address, mac: Some(mac) });
        }
    }
}

/// Both ends of a link are made again in the middle of messages that go one way. Nobody announces
/// anything, and the receiver hears its peer all the time, which repeats what is not acknowledged:
/// that is no sign that its acknowledgements go to the right address.
#[test]
fn a_receiver_asks_where_its_peer_is_now_although_it_hears_it() {
    let shared = |network: &mut ip::Config| network.kernel_shares = true;
    let mut world = World::with_networks(1, Faults::default(), |queue| queue, shared);
    let mut macs = [world.hosts[0].mac, world.hosts[1].mac];
    let mut client = world.attach(0, SIZES);
    let mut server = world.attach(1, SIZES);
    world.listen(&server, 4000).expect("free");
    let peer = SocketAddr::new(address(1), 4000);
    client.submit(&Command::Connect { token: 1, peer });
    world.turn_until(|world| {
        answer_as_kernels(world, macs);
        client.poll();
        assert!(client.failed.is_empty() && world.now < Time::from_ns(9 * SECOND));
        !client.connected.is_empty()
    });
    let connection = client.connected[0];
    (0..8).for_each(|_| assert!(client.send(connection, &[7; 9000])));
    (0..50).for_each(|_| world.turn());
    for (host, at) in macs.iter_mut().enumerate() {
        let mac = [2, 0, 0, 0, 8, host as u8];
        let network = ip::Config { kernel_shares: true, ..config_of(host, mac).interface };
        let none = ip::Config { addresses: Vec::new(), ..network.clone() };
        let unplugged = Unplugged::new(mac, FRAME_BYTES, "a test").expect("a descriptor");
        let before = plug(&mut world, host, Box::new(unplugged), none);
        let queue = before.queues.into_iter().next().expect("there was one");
        let queue = Box::new(Renamed { queue, mac, frame_bytes: FRAME_BYTES });
        drop(plug(&mut world, host, queue, network));
        *at = mac;
    }
    let (begin, mut arrived) = (world.now, 0);
    world.turn_until(|world| {
        answer_as_kernels(world, macs);
        server.poll();
        client.poll();
        client.send(connection, &[7; 9000]);
        while let Some(message) = server.received.pop_front() {
            assert!(*server.bytes(&message) == [7; 9000]);
            server.release(message);
            arrived += 1;
        }
        let passed = world.now.since(begin);
        assert!(passed < 5 * SECOND, "{arrived} messages, {:?}", client.closed);
        arrived >= 1000
    });
}
