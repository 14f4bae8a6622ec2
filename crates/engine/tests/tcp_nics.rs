//! TCP of a host with two NICs: its apps, at engines of either, reach others over both and are
//! reached at each address.

mod world;

use std::net::SocketAddr;

use clearway_base::{MILLISECOND, SECOND};
use clearway_channel::{Code, Sizes};
use clearway_engine::{CaptureSpec, Request};
use world::tcp::{Peer, exchange, run};
use world::{Place, SECOND_MTU, SIZES, World, address_on};

const SERVER_PORT: u16 = 8080;
const CLIENT_PORT: u16 = 40_000;
/// After that long a new connection may have the ports of one in TIME-WAIT: its timestamps are
/// later (RFC 6191).
const REST_NS: u64 = 2 * MILLISECOND;

/// An app at an engine of the host of two NICs, with a port on both.
fn here(world: &mut World, engine: usize, port: u16) -> Peer {
    let app = world.attach(Place { host: 0, engine }, SIZES);
    let number = app.channel + 100;
    world.open_tcp_port_on_both(&app, number, port);
    Peer::of(app, number)
}

/// An app of the host in this network.
fn there(world: &mut World, network: usize, port: u16) -> Peer {
    Peer::at(world, 1 + network, SocketAddr::new(address_on(network, 1), port), SIZES)
}

/// The second listens, the first connects: with its first SYN, whatever engines have in TIME-WAIT.
fn connect(world: &mut World, peers: &mut [Peer; 2], to: SocketAddr) {
    peers[1].listen();
    // An engine of many apps does not look at each of them in each turn.
    world.turn_until(|_| peers[1].app.end.has_room_for(SIZES.submission_entries));
    world.now = world.now + REST_NS;
    let begun = world.now;
    peers[0].connect(to);
    run(world, peers, |peers| {
        peers.iter().all(|peer| peer.id != 0) || peers.iter().any(|peer| peer.end.is_some())
    });
    assert_eq!(peers.each_ref().map(|peer| peer.end), [None, None], "to {to}");
    assert!(world.now.since(begun) < SECOND, "a SYN was lost");
    assert_eq!(peers[1].local, Some(to.ip()));
}

/// No packet of a connection in this network is larger than its NIC takes.
fn assert_fits(world: &mut World, at: Place, network: usize) {
    let most = if network == 1 { SECOND_MTU } else { 1500 };
    let flows = world.snapshot(at).flows;
    assert!(flows.iter().all(|flow| flow.packet_bytes <= most), "{flows:?}");
    assert!(!flows.is_empty());
}

/// How many frames lanes had no room for, or were too long for the other NIC.
fn dropped(world: &mut World) -> u64 {
    let engines = [0, 1].map(|engine| Place { host: 0, engine });
    engines.into_iter().map(|at| world.counter(at, "lane_frames_dropped")).sum()
}

/// Whichever engine has the app and whichever NIC its peer is behind, also after the engine was
/// saved and made again.
#[test]
fn an_app_is_reached_at_each_address() {
    let mut world = World::of_two_nics(1);
    for engine in [0, 1] {
        for network in [0, 1] {
            let mut peers =
                [there(&mut world, network, CLIENT_PORT), here(&mut world, engine, SERVER_PORT)];
            connect(&mut world, &mut peers, SocketAddr::new(address_on(network, 0), SERVER_PORT));
            for at in [Place { host: 0, engine }, Place { host: 1 + network, engine: 0 }] {
                assert_fits(&mut world, at, network);
            }
            for engine in [0, 1] {
                world.restore(Place { host: 0, engine }, |state| state).expect("it goes on");
            }
            exchange(&mut world, &mut peers, [200_000, 300_000]);
            close(&mut world, &peers[1]);
            world.close_vif(&peers[0].app, peers[0].port);
        }
    }
    assert_eq!(dropped(&mut world), 0);
}

/// The port of an app is nobody's any more, on both NICs.
fn close(world: &mut World, peer: &Peer) {
    world.close_vif(&peer.app, peer.port);
    world.close_vif(&peer.app, peer.port + world::PARTS);
}

/// From the address of the NIC that its peer is behind; that its segments come by a lane is no
/// detour that another port would spare.
#[test]
fn an_app_reaches_others_over_each_nic() {
    let mut world = World::of_two_nics(2);
    for engine in [0, 1] {
        for network in [0, 1] {
            let mut peers =
                [here(&mut world, engine, CLIENT_PORT), there(&mut world, network, SERVER_PORT)];
            connect(&mut world, &mut peers, SocketAddr::new(address_on(network, 1), SERVER_PORT));
            assert!(!peers[0].is_detour);
            let at = Place { host: 0, engine };
            assert_fits(&mut world, at, network);
            let path = world.snapshot(at).flows[0].path;
            assert_eq!(path, if engine == network { "tcp" } else { "tcp-other-nic" });
            world.restore(at, |state| state).expect("it goes on");
            exchange(&mut world, &mut peers, [300_000, 200_000]);
            close(&mut world, &peers[0]);
            world.close_vif(&peers[1].app, peers[1].port);
        }
    }
    assert_eq!(dropped(&mut world), 0);
}

/// Each other's, and their own: without the wire.
#[test]
fn apps_of_the_host_talk_at_each_address() {
    let mut world = World::of_two_nics(3);
    for (client, server) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for network in [0, 1] {
            let mut peers =
                [here(&mut world, client, CLIENT_PORT), here(&mut world, server, SERVER_PORT)];
            connect(&mut world, &mut peers, SocketAddr::new(address_on(network, 0), SERVER_PORT));
            exchange(&mut world, &mut peers, [100_000, 150_000]);
            // Where nobody listens, somebody says so.
            peers[0].end = None;
            peers[0].connect(SocketAddr::new(address_on(network, 0), SERVER_PORT + 1));
            run(&mut world, &mut peers, |peers| peers[0].end.is_some());
            assert_eq!(peers[0].end, Some(Code::Refused), "{client} {server} {network}");
            peers.iter().for_each(|peer| close(&mut world, peer));
        }
    }
}

/// While the engine of the other NIC stands still, what is for it waits, and nothing is lost.
#[test]
fn a_full_lane_is_waited_for() {
    // The first windows of all together are more than a lane holds.
    const CONNECTIONS: u16 = 30;
    const BYTES: usize = 20_000;
    let sizes = Sizes { transmit_pool_bytes: 1 << 20, receive_pool_bytes: 1 << 20, ..SIZES };
    let mut world = World::of_two_nics(4);
    let mut pairs = Vec::new();
    for number in 0..CONNECTIONS {
        let app = world.attach(Place { host: 0, engine: 0 }, sizes);
        let port = app.channel + 100;
        world.open_tcp_port_on_both(&app, port, CLIENT_PORT + number);
        let to = SocketAddr::new(address_on(1, 1), SERVER_PORT + number);
        let mut peers = [Peer::of(app, port), Peer::at(&mut world, 2, to, sizes)];
        connect(&mut world, &mut peers, to);
        pairs.push(peers);
    }
    let sent = world::tcp::bytes(BYTES, 5);
    let other = Place { host: 0, engine: 1 };
    world.member(other).is_stopped = true;
    pairs.iter_mut().for_each(|[client, _]| client.send(&sent));
    (0..200).for_each(|_| world.turn());
    world.member(other).is_stopped = false;
    world.turn_until(|_| {
        pairs.iter_mut().flatten().for_each(Peer::poll);
        pairs.iter().all(|[_, server]| server.received.len() == BYTES)
    });
    assert!(pairs.iter().all(|[_, server]| server.received == sent));
    assert_eq!(dropped(&mut world), 0);
}

/// Who watches a NIC sees each segment once, on its way out and on its way in: on the NIC by whose
/// wire it goes, and on that of the app.
#[test]
fn captures_of_both_nics_see_each_segment_once() {
    let mut world = World::of_two_nics(6);
    let mut watchers = [0, 1].map(|engine| {
        let at = Place { host: 0, engine };
        let app = world.attach(at, SIZES);
        let filter = vec!["tcp".parse().expect("a filter")];
        let spec = Box::new(CaptureSpec { filter, app: None, connection: None });
        world.post(at, Request::OpenCapture { channel: app.channel, vif: 9, spec });
        world::events::take_vif_opened(&mut world.member(at).events).expect("it may");
        app
    });
    let ends = [CLIENT_PORT, SERVER_PORT];
    let mut peers = [here(&mut world, 0, ends[0]), there(&mut world, 1, ends[1])];
    connect(&mut world, &mut peers, SocketAddr::new(address_on(1, 1), SERVER_PORT));
    exchange(&mut world, &mut peers, [20_000, 30_000]);
    let [left, came] = [0, 2].map(|host| world.counter(host, "segments_sent"));
    for (nic, watcher) in watchers.iter_mut().enumerate() {
        watcher.poll();
        let sent = watcher.frames.iter().filter(|(_, info, _)| info.is_outgoing()).count() as u64;
        let received = watcher.frames.len() as u64 - sent;
        assert_eq!((sent, received), (left, came), "by the capture of NIC {nic}");
    }
}

/// An app without the port on the other NIC does not connect from there: nobody would give it what
/// comes back.
#[test]
fn without_the_port_on_the_other_nic_there_is_no_way() {
    let mut world = World::of_two_nics(5);
    let mut client = Peer::at(&mut world, 0, SocketAddr::new(address_on(0, 0), 50_000), SIZES);
    for to in [address_on(1, 1), address_on(1, 0)] {
        client.connect(SocketAddr::new(to, SERVER_PORT));
        world.turn_until(|_| {
            client.poll();
            client.end.is_some()
        });
        assert_eq!(client.end.take(), Some(Code::Unreachable));
    }
}
