//! Several engines per host: whatever a NIC's hash does, everything finds the engine that it is
//! for, over the lanes between them.

mod world;

use std::net::{Ipv4Addr, SocketAddr};

use clearway_base::SECOND;
use clearway_channel::burst::Point;
use clearway_channel::{Code, Command};
use clearway_classify::Filter;
use clearway_engine::{CaptureSpec, Event, Request, VifSpec};
use clearway_nic::{Queue, Transmit};
use clearway_wire::{MacAddress, arp, ethernet, ipv4, protocol, udp};
use world::{App, Place, SIZES, World, address, address_on};

/// Sends a message each way and compares.
#[track_caller]
fn exchange(
    world: &mut World,
    (client, near): (&mut App, u64),
    (server, far): (&mut App, u64),
    bytes: &[u8],
) {
    assert!(client.send(near, bytes));
    world.turn_until(|_| {
        client.poll();
        server.poll();
        !server.received.is_empty()
    });
    let message = server.received.pop_front().expect("just seen");
    assert_eq!((message.connection, server.bytes(&message)), (far, bytes));
    server.release(message);
    assert!(server.send(far, bytes));
    world.turn_until(|_| {
        client.poll();
        server.poll();
        !client.received.is_empty()
    });
    let message = client.received.pop_front().expect("just seen");
    assert_eq!((message.connection, client.bytes(&message)), (near, bytes));
    client.release(message);
}

#[test]
fn apps_on_any_two_engines_of_two_hosts_talk() {
    const ENGINES: usize = 4;
    let mut world = World::at_switch(1, &[ENGINES, ENGINES]);
    let place = |host, engine| Place { host, engine };
    let mut servers: Vec<App> =
        (0..ENGINES).map(|engine| world.attach(place(1, engine), SIZES)).collect();
    let mut clients: Vec<App> =
        (0..ENGINES).map(|engine| world.attach(place(0, engine), SIZES)).collect();
    for (engine, server) in servers.iter().enumerate() {
        world.listen(server, 7000 + engine as u16).expect("the port is free");
    }
    for (engine, server) in servers.iter_mut().enumerate() {
        for client in &mut clients {
            let (near, far) = world.connect(client, server, 7000 + engine as u16);
            for length in [0, 1, 1400, 100_000] {
                let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                exchange(&mut world, (client, near), (server, far), &bytes);
            }
        }
    }
}

#[test]
fn a_port_is_one_apps_whatever_its_engine() {
    let mut world = World::at_switch(2, &[2]);
    let [one, other] = [0, 1].map(|engine| Place { host: 0, engine });
    let (first, second) = (world.attach(one, SIZES), world.attach(other, SIZES));
    world.listen(&first, 7000).expect("the port is free");
    assert_eq!(world.listen(&second, 7000), Err(Code::AddressInUse));
    world.post(one, Request::RemoveChannel { channel: first.channel });
    world.note_listener(one, 7000, None);
    assert_eq!(world.listen(&second, 7000), Ok(()));
}

#[test]
fn apps_of_one_host_talk_by_the_lane_and_not_over_the_nic() {
    let mut world = World::at_switch(3, &[3]);
    let [here, there] = [0, 2].map(|engine| Place { host: 0, engine });
    let (mut client, mut server) = (world.attach(here, SIZES), world.attach(there, SIZES));
    world.listen(&server, 7000).expect("the port is free");
    world.now = world.now + 10 * SECOND; // what a host says when it comes up is said
    (0..100).for_each(|_| world.turn());
    let frames = world.fabric.frames_sent();
    for peer in [address(0), Ipv4Addr::LOCALHOST.into()] {
        client.submit(&Command::Connect { token: 1, peer: SocketAddr::new(peer, 7000) });
        world.turn_until(|_| {
            client.poll();
            server.poll();
            !client.connected.is_empty() && !server.accepted.is_empty()
        });
        let near = client.connected.pop_front().expect("just seen");
        let far = server.accepted.pop_front().expect("just seen");
        let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at % 253) as u8).collect();
        exchange(&mut world, (&mut client, near), (&mut server, far), &bytes);
    }
    assert_eq!(world.fabric.frames_sent(), frames);
    for at in [here, there] {
        let snapshot = world.snapshot(at);
        assert!(snapshot.flows.iter().all(|flow| flow.path == "lane"), "{:?}", snapshot.flows);
        assert_eq!(snapshot.flows.len(), 2);
    }
    client.submit(&Command::Connect { token: 2, peer: SocketAddr::new(address(0), 7001) });
    world.turn_until(|_| {
        client.poll();
        client.failed == [Code::Refused]
    });
}

/// The receiving engine stands still for a while: its lane overflows, and nothing is lost.
#[test]
fn messages_survive_a_full_lane() {
    let mut world = World::at_switch(4, &[2]);
    let [here, there] = [0, 1].map(|engine| Place { host: 0, engine });
    let (mut client, mut server) = (world.attach(here, SIZES), world.attach(there, SIZES));
    world.listen(&server, 7000).expect("the port is free");
    // More connections than a lane has places; as many as one host gets of 64.
    let connections: Vec<(u64, u64)> =
        (0..56).map(|_| world.connect(&mut client, &mut server, 7000)).collect();
    world.hosts[0].members[1].is_stopped = true;
    for round in 0..8u8 {
        for (near, _) in &connections {
            assert!(client.send(*near, &[round; 1000]));
        }
        (0..50).for_each(|_| world.turn());
    }
    assert!(world.counter(here, "lane_frames_dropped") > 0, "the lane was never full");
    world.hosts[0].members[1].is_stopped = false;
    let mut received = 0;
    world.turn_until(|_| {
        client.poll();
        server.poll();
        while let Some(message) = server.received.pop_front() {
            assert_eq!(server.bytes(&message).len(), 1000);
            server.release(message);
            received += 1;
        }
        received == 8 * connections.len()
    });
}

/// The engine of another NIC stands still: what is for it is lost in the end, and comes later. What
/// leaves by the own NIC does not wait for that.
#[test]
fn an_engine_that_stands_still_does_not_hold_up_another_nic() {
    let mut world = World::of_two_nics(11);
    let mut client = world.attach(0, SIZES);
    let mut servers = [1, 2].map(|host| world.attach(host, SIZES));
    servers.iter().for_each(|server| world.listen(server, 7000).expect("the port is free"));
    let mut connect = |world: &mut World, client: &mut App, network: usize| {
        let (server, to) = (&mut servers[network], address_on(network, 1));
        client.submit(&Command::Connect { token: 1, peer: SocketAddr::new(to, 7000) });
        world.turn_until(|_| {
            client.poll();
            server.poll();
            !client.connected.is_empty() && !server.accepted.is_empty()
        });
        server.accepted.clear();
        client.connected.pop_front().expect("just seen")
    };
    let by_own = connect(&mut world, &mut client, 0);
    let by_other: Vec<u64> = (0..56).map(|_| connect(&mut world, &mut client, 1)).collect();
    world.hosts[0].members[1].is_stopped = true;
    for round in 0..8u8 {
        by_other.iter().for_each(|near| assert!(client.send(*near, &[round; 1000])));
        (0..50).for_each(|_| world.turn());
    }
    assert!(client.send(by_own, b"by the own NIC"));
    let [near, far] = &mut servers;
    world.turn_until(|_| {
        near.poll();
        !near.received.is_empty()
    });
    assert!(world.counter(0, "lane_frames_dropped") > 0, "the lane was never full");
    world.hosts[0].members[1].is_stopped = false;
    let mut received = 0;
    world.turn_until(|_| {
        client.poll();
        far.poll();
        while let Some(message) = far.received.pop_front() {
            far.release(message);
            received += 1;
        }
        received == 8 * by_other.len()
    });
}

#[test]
fn the_peer_of_an_app_that_dies_hears_of_it() {
    let mut world = World::at_switch(5, &[4, 4]);
    let places = [(0, 1), (1, 2)].map(|(host, engine)| Place { host, engine });
    let (mut client, mut server) = (world.attach(places[0], SIZES), world.attach(places[1], SIZES));
    let mut neighbour = world.attach(Place { host: 1, engine: 0 }, SIZES);
    world.listen(&server, 7000).expect("the port is free");
    let (near, _) = world.connect(&mut client, &mut server, 7000);
    let (beside, _) = world.connect(&mut neighbour, &mut server, 7000);
    world.post(places[1], Request::RemoveChannel { channel: server.channel });
    for (app, connection) in [(&mut client, near), (&mut neighbour, beside)] {
        world.turn_until(|_| {
            app.poll();
            !app.closed.is_empty()
        });
        assert_eq!(app.closed, [(connection, Code::Reset)]);
    }
    let is_gone = |event: &Event| matches!(event, Event::ChannelRemoved { .. });
    assert!(world.hosts[1].members[2].events.iter().any(is_gone));
}

// ---- frames ----

fn filters(texts: &[String]) -> Vec<Filter> {
    texts.iter().map(|text| text.parse().expect("a filter")).collect()
}

/// A VIF with `port` of the host's own address.
fn port_spec(world: &World, host: usize, port: u16) -> VifSpec {
    let mac = world.hosts[host].mac;
    let text = mac.map(|octet| format!("{octet:02x}")).join(":");
    let address = address(host);
    VifSpec {
        receive: filters(&[format!(
            "ether dst {text} and dst host {address} and udp dst port {port}"
        )]),
        copies: Vec::new(),
        transmit: filters(&[format!(
            "ether src {text} and src host {address} and udp src port {port}"
        )]),
        priority: 0,
        mac,
        ..VifSpec::default()
    }
}

fn ip(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 7, 0, host as u8 + 1)
}

/// A UDP datagram to `port` of host 0.
fn datagram(macs: [MacAddress; 2], from: (Ipv4Addr, u16), port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 42 + payload.len()];
    let ([source, destination], ether_type) = (macs, ethernet::ether_type::IPV4);
    ethernet::Repr { destination, source, ether_type }.emit(&mut frame);
    let ip = ipv4::Repr {
        source: from.0,
        destination: ip(0),
        protocol: protocol::UDP,
        hop_limit: 64,
        payload_length: 8 + payload.len() as u16,
    };
    ip.emit(&mut frame[14..]);
    let (source_port, destination_port) = (from.1, port);
    let length = payload.len() as u16;
    udp::Repr { source_port, destination_port, payload_length: length }.emit(&mut frame[34..]);
    frame[42..].copy_from_slice(payload);
    frame
}

fn send(world: &mut World, frame: &[u8]) {
    let sent = world.stranger().transmit(&mut |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert_eq!(sent, Transmit::Queued);
    world.stranger().flush();
    world.turn();
}

fn received(world: &mut World) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..20 {
        world.turn();
        let mut take = |burst: &[&[u8]], _| frames.extend(burst.iter().map(|frame| frame.to_vec()));
        while world.stranger().receive(32, &mut take) > 0 {}
    }
    frames
}

const STRANGER: MacAddress = [2, 0, 0, 0, 1, 1];

#[test]
fn frames_find_their_interface_from_any_queue_and_captures_see_each_once() {
    const FRAMES: u16 = 200;
    let mut world = World::at_switch(6, &[4]);
    let [owner, viewer, third] = [2, 0, 1].map(|engine| Place { host: 0, engine });
    let (mut app, mut capture) = (world.attach(owner, SIZES), world.attach(viewer, SIZES));
    let mut capture_of_app = world.attach(third, SIZES);
    let spec = port_spec(&world, 0, 5000);
    world.open_vif(&app, 1, spec).expect("the port is free");
    let filter = filters(&["udp dst port 5000".to_owned()]);
    let of_all = CaptureSpec { filter, app: None, connection: None };
    world.open_capture(&capture, 2, of_all).expect("captures are always opened");
    let of_app = CaptureSpec { filter: Vec::new(), app: Some(app.channel), connection: None };
    world.open_capture(&capture_of_app, 3, of_app).expect("captures are always opened");
    let macs = [STRANGER, world.hosts[0].mac];
    for number in 0..FRAMES {
        let frame = datagram(macs, (ip(9), 6000 + number), 5000, &number.to_be_bytes());
        send(&mut world, &frame);
        app.poll();
        capture.poll();
        capture_of_app.poll();
    }
    let numbers = |app: &mut App, point: Point| -> Vec<u16> {
        let of_point = app.frames.iter().filter(|(_, info, _)| info.point() == point);
        let mut numbers: Vec<u16> =
            of_point.map(|(_, _, frame)| u16::from_be_bytes([frame[42], frame[43]])).collect();
        numbers.sort_unstable();
        numbers
    };
    world.turn_until(|_| {
        app.poll();
        capture.poll();
        capture_of_app.poll();
        let captures = [&capture, &capture_of_app].map(|capture| capture.frames.len());
        app.frames.len() == usize::from(FRAMES) && captures == [usize::from(FRAMES); 2]
    });
    (0..20).for_each(|_| world.turn());
    app.poll();
    capture.poll();
    capture_of_app.poll();
    let all: Vec<u16> = (0..FRAMES).collect();
    assert_eq!(numbers(&mut app, Point::Wire), all, "received frames have no point");
    for capture in [&mut capture, &mut capture_of_app] {
        assert_eq!(numbers(capture, Point::Delivered), all);
    }
    let delivered = |(_, info, _): &(u32, _, Vec<u8>)| {
        let info: &clearway_channel::burst::FrameInfo = info;
        info.point() != Point::Delivered || info.channel() == Some(app.channel)
    };
    assert!(capture.frames.iter().all(delivered), "whose they are is said");
    let came_by_lane = world.counter(owner, "lane_frames_received");
    assert!((100..200).contains(&came_by_lane), "three of four queues: {came_by_lane}");
}

#[test]
fn interfaces_of_one_host_reach_each_other_by_the_lane() {
    let mut world = World::at_switch(8, &[2]);
    let [one, other] = [0, 1].map(|engine| Place { host: 0, engine });
    let (mut sender, mut receiver) = (world.attach(one, SIZES), world.attach(other, SIZES));
    for (app, port) in [(&sender, 5000), (&receiver, 5001)] {
        let spec = port_spec(&world, 0, port);
        world.open_vif(app, 1, spec).expect("the port is free");
    }
    let frames = world.fabric.frames_sent();
    let mac = world.hosts[0].mac;
    let frame = datagram([mac, mac], (ip(0), 5000), 5001, b"next door");
    sender.send_frames(1, &[&frame]);
    world.turn_until(|_| {
        sender.poll();
        receiver.poll();
        !receiver.frames.is_empty()
    });
    assert_eq!(receiver.frames[0].2, frame);
    assert_eq!(world.fabric.frames_sent(), frames);
}

#[test]
fn copies_are_given_wherever_they_are_wanted() {
    let mut world = World::at_switch(9, &[4]);
    let mut apps: Vec<App> =
        (0..4).map(|engine| world.attach(Place { host: 0, engine }, SIZES)).collect();
    for (engine, app) in apps.iter().enumerate() {
        let copies = filters(&["ether broadcast".to_owned()]);
        let spec =
            VifSpec { copies, receive: Vec::new(), ..port_spec(&world, 0, 6000 + engine as u16) };
        world.open_vif(app, 1, spec).expect("copies collide with nothing");
    }
    for number in 0..20 {
        let frame = datagram([STRANGER, ethernet::BROADCAST], (ip(9), number), 9999, b"all");
        send(&mut world, &frame);
    }
    world.turn_until(|_| {
        apps.iter_mut().for_each(App::poll);
        apps.iter().all(|app| app.frames.len() >= 20)
    });
    (0..20).for_each(|_| world.turn());
    for app in &mut apps {
        app.poll();
        assert_eq!(app.frames.len(), 20, "one copy of each");
    }
}

/// One engine answers; all learn who asked.
#[test]
fn arp_is_answered_once_and_learnt_everywhere() {
    let mut world = World::at_switch(10, &[4]);
    world.now = world.now + 10 * SECOND;
    received(&mut world); // what a host says when it comes up
    let question = arp::Repr {
        operation: arp::Operation::Request,
        source_mac: STRANGER,
        source: ip(1),
        target_mac: [0; 6],
        target: ip(0),
    };
    let mut frame = vec![0; 42];
    let (destination, source) = (ethernet::BROADCAST, STRANGER);
    let ether_type = ethernet::ether_type::ARP;
    ethernet::Repr { destination, source, ether_type }.emit(&mut frame);
    question.emit(&mut frame[14..]);
    send(&mut world, &frame);
    let answers = received(&mut world);
    assert_eq!(answers.len(), 1, "{answers:?}");
    let answer = arp::Repr::parse(&arp::View::new(&answers[0][14..]).expect("long enough"));
    assert_eq!(answer.expect("an answer").operation, arp::Operation::Reply);
    // Nobody has to ask for the stranger now: each engine sends its syn at once.
    for engine in 0..4 {
        let mut app = world.attach(Place { host: 0, engine }, SIZES);
        app.submit(&Command::Connect { token: 1, peer: SocketAddr::new(address(1), 7000) });
        let frames = received(&mut world);
        assert!(
            frames.iter().any(|frame| frame[12..14] == [8, 0]),
            "engine {engine} does not know"
        );
        // It may make sure, by asking the stranger itself.
        assert!(
            frames.iter().all(|frame| frame[..6] == STRANGER),
            "engine {engine} asks everybody"
        );
        world.post(Place { host: 0, engine }, Request::RemoveChannel { channel: app.channel });
        received(&mut world);
    }
}

/// A peer that does not know a flow says so without naming one of ours; its answer may come to any
/// queue.
#[test]
fn a_reset_for_an_unknown_flow_ends_it_on_whichever_engine_it_is() {
    let mut world = World::at_switch(11, &[4, 4]);
    let places = [(0, 3), (1, 1)].map(|(host, engine)| Place { host, engine });
    let (mut client, mut server) = (world.attach(places[0], SIZES), world.attach(places[1], SIZES));
    world.listen(&server, 7000).expect("the port is free");
    let (near, _) = world.connect(&mut client, &mut server, 7000);
    // What host 1 says when it forgets the flow is lost.
    world.fabric.set_cut(1, 0, true);
    world.post(places[1], Request::RemoveChannel { channel: server.channel });
    (0..100).for_each(|_| world.turn());
    world.fabric.set_cut(1, 0, false);
    assert!(client.send(near, b"anybody there?"));
    world.turn_until(|_| {
        client.poll();
        !client.closed.is_empty()
    });
    assert_eq!(client.closed, [(near, Code::Reset)]);
}
