//! TCP between hosts of all kinds: of several engines, with IPv6, on a VLAN, behind a router with a
//! narrow link; from one app of a host to another; and while others attack.

mod world;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use clearway_base::Prefix;
use clearway_channel::{Code, Command, Completion, ReceivedBytes, Sizes, tcp_option};
use clearway_engine::{Request, TcpPortSpec};
use clearway_nic::{Capabilities, Checksums, Info, MacAddress, Queue, Sink, Transmit, fabric};
use clearway_wire::tcp::{Flags, Repr, View};
use clearway_wire::{ethernet, icmpv4, ipv4, protocol};
use world::pair::restore;
use world::tcp::{Peer, bytes, exchange, run, segment, spec};
use world::{App, Place, SIZES, World, address, address_on, as_inner, events};

const SERVER_PORT: u16 = 8080;
const CLIENT_PORT: u16 = 40_000;

/// The second listens, the first connects.
fn connect(world: &mut World, peers: &mut [Peer; 2], to: SocketAddr) {
    peers[1].listen();
    peers[0].connect(to);
    run(world, peers, |peers| peers.iter().all(|peer| peer.id != 0));
    assert_eq!(peers[1].local, Some(to.ip()));
}

// ---- several engines ----

/// An app at an engine, and its port, which all engines of its host know.
fn port(world: &mut World, at: Place, port: u16) -> Peer {
    let app = world.attach(at, SIZES);
    let number = app.channel + 100;
    let spec = spec(world.hosts[at.host].mac, None, SocketAddr::new(address(at.host), port));
    world.open_tcp_port(&app, number, spec);
    Peer::of(app, number)
}

/// Its segments come to whichever queue the NIC chooses.
#[test]
fn a_connection_is_found_from_each_engine_of_its_host() {
    const ENGINES: usize = 3;
    let mut world = World::at_switch(3, &[ENGINES, ENGINES]);
    let to = SocketAddr::new(address(1), SERVER_PORT);
    for client in 0..ENGINES {
        for server in 0..ENGINES {
            let number = CLIENT_PORT + (client * ENGINES + server) as u16;
            let places = [(0, client), (1, server)].map(|(host, engine)| Place { host, engine });
            let mut peers =
                [port(&mut world, places[0], number), port(&mut world, places[1], SERVER_PORT)];
            connect(&mut world, &mut peers, to);
            exchange(&mut world, &mut peers, [50_000, 70_000]);
            for peer in &peers {
                world.close_vif(&peer.app, peer.port);
            }
        }
    }
    let by_lane: u64 = (0..ENGINES)
        .map(|engine| world.counter(Place { host: 1, engine }, "lane_frames_received"))
        .sum();
    assert!(by_lane > 0, "all came to the right queue");
}

/// Who connects is told whether another port might be better.
#[test]
fn it_is_told_whether_replies_come_to_the_right_queue() {
    let mut world = World::at_switch(6, &[3, 1]);
    let to = SocketAddr::new(address(1), SERVER_PORT);
    let mut server = port(&mut world, Place { host: 1, engine: 0 }, SERVER_PORT);
    server.listen();
    let mut detours = 0;
    for number in 0..12 {
        let (at, engine) = (CLIENT_PORT + number, usize::from(number % 3));
        let mut client = port(&mut world, Place { host: 0, engine }, at);
        client.connect(to);
        world.turn_until(|_| {
            client.poll();
            client.id != 0
        });
        let macs = [0, 1].map(|host| world.hosts[host].mac);
        let from = SocketAddr::new(address(0), at);
        let reply = segment((macs[0], from), (macs[1], to), Repr::default());
        let queue = world.fabric.queue_of(0, &reply);
        assert_eq!(client.is_detour, queue != engine, "to {queue} for {engine}");
        detours += usize::from(client.is_detour);
    }
    assert!((1..12).contains(&detours), "{detours} of 12");
}

/// Whether they are at one engine or at two.
#[test]
fn two_apps_of_one_host_talk_without_the_wire() {
    for engines in [1, 2] {
        let mut world = World::at_switch(5, &[engines]);
        let places = [Place { host: 0, engine: 0 }, Place { host: 0, engine: engines - 1 }];
        let mut peers =
            [port(&mut world, places[0], CLIENT_PORT), port(&mut world, places[1], SERVER_PORT)];
        connect(&mut world, &mut peers, SocketAddr::new(address(0), SERVER_PORT));
        exchange(&mut world, &mut peers, [200_000, 300_000]);
        let mut frames = 0;
        while world.stranger().receive(32, &mut |burst, _| frames += burst.len()) > 0 {}
        assert!(frames <= 2, "{frames} frames on the wire: only who has the address is told");
    }
}

#[test]
fn nobody_listens_on_this_host() {
    let mut world = World::at_switch(5, &[2]);
    let mut client = port(&mut world, Place { host: 0, engine: 0 }, CLIENT_PORT);
    for to in [SERVER_PORT, SERVER_PORT + 1] {
        client.connect(SocketAddr::new(address(0), to));
        world.turn_until(|_| {
            client.poll();
            client.end.is_some()
        });
        assert_eq!(client.end.take(), Some(Code::Refused));
    }
    client.connect(SocketAddr::new(address(0), CLIENT_PORT));
    world.turn_until(|_| {
        client.poll();
        client.end.is_some()
    });
    assert_eq!(client.end, Some(Code::Invalid), "with itself");
}

// ---- a port of several apps ----

/// What an app has got, by connections; those that have heard all are closed.
fn serve(app: &mut App, streams: &mut BTreeMap<u64, Vec<u8>>) {
    app.poll();
    while let Some(ReceivedBytes { connection, bytes, .. }) = app.bytes.pop_front() {
        streams.entry(connection).or_default().extend(app.end.receive_bytes(&bytes));
        app.end.release(bytes);
    }
    app.end.flush_releases();
    while let Some(told) = app.tcp.pop_front() {
        if let Completion::TcpFinished { connection } = told {
            app.submit(&Command::TcpClose { connection, abort: false });
        }
    }
}

/// Each of many connections is one app's, with its bytes in that one's memory, whichever queue its
/// segments come to; and all are the other's when one has given the port up.
#[test]
fn apps_of_one_host_share_a_port() {
    const CLIENTS: u16 = 16;
    let mut world = World::at_switch(7, &[1, 2]);
    let (here, there) = (Place { host: 0, engine: 0 }, Place { host: 1, engine: 1 });
    let mut servers = [0, 1].map(|_| port(&mut world, there, SERVER_PORT));
    servers.iter_mut().for_each(Peer::listen);
    let mut clients: Vec<Peer> =
        (0..CLIENTS).map(|client| port(&mut world, here, CLIENT_PORT + client)).collect();
    let mut had = [(); 2].map(|()| BTreeMap::new());
    let mut talk = |world: &mut World, clients: &mut [Peer], servers: &mut [Peer]| {
        let to = SocketAddr::new(address(1), SERVER_PORT);
        clients.iter_mut().for_each(|client| client.connect(to));
        world.turn_until(|_| {
            for (server, streams) in servers.iter_mut().zip(&mut had) {
                serve(&mut server.app, streams);
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let was_open = client.id != 0;
                client.poll();
                if client.id != 0 && !was_open {
                    client.send(&bytes(5000, number));
                    client.shutdown();
                }
            }
            clients.iter().all(|client| client.end.is_some())
        });
        had.each_mut().map(std::mem::take)
    };
    let had = talk(&mut world, &mut clients, &mut servers);
    assert!(had.iter().all(|had| had.len() > 2), "{:?}", had.each_ref().map(BTreeMap::len));
    let mut streams: Vec<_> = had.into_iter().flat_map(BTreeMap::into_values).collect();
    let mut expected: Vec<_> = (0..CLIENTS.into()).map(|number| bytes(5000, number)).collect();
    streams.sort_unstable();
    expected.sort_unstable();
    assert!(streams == expected, "each stream, as it was sent, once");
    world.close_vif(&servers[0].app, servers[0].port);
    let mut later: Vec<Peer> =
        (0..4).map(|client| port(&mut world, here, CLIENT_PORT + 100 + client)).collect();
    let had = talk(&mut world, &mut later, &mut servers);
    assert_eq!(had.each_ref().map(BTreeMap::len), [0, 4]);
}

/// A host's addresses, of both families.
fn both(host: usize) -> [IpAddr; 2] {
    [address(host), format!("fd00::{}", host + 1).parse().expect("one")]
}

/// An app whose port is at all addresses of its host, and for peers of one prefix.
fn port_for(world: &mut World, host: usize, port: u16, peers: Prefix) -> Peer {
    let app = world.attach(host, SIZES);
    let mac = world.hosts[host].mac;
    let [mut all, v6] = both(host).map(|own| spec(mac, None, SocketAddr::new(own, port)));
    all.rights.receive.extend(v6.rights.receive);
    all.rights.transmit.extend(v6.rights.transmit);
    let number = app.channel + 100;
    world.open_tcp_port(&app, number, TcpPortSpec { address: None, peers: vec![peers], ..all });
    Peer::of(app, number)
}

/// To all others it is as if nobody listened there, and they are not connected to either; that
/// holds when the engine has been made again, too.
#[test]
fn a_port_is_for_peers_of_some_prefixes() {
    let mut world = World::at_switch(2, &[1, 1]);
    for host in 0..2 {
        world.set_addresses(host, both(host).into_iter().zip([24, 64]).collect());
    }
    for (number, named) in both(0).into_iter().enumerate() {
        let other = both(0)[1 - number];
        let at = SERVER_PORT + number as u16;
        let mut server = port_for(&mut world, 1, at, Prefix::new(named, 128));
        server.listen();
        world.turn();
        for restored in [false, true] {
            if restored {
                restore(&mut world, 1);
            }
            for (from, to) in both(0).into_iter().zip(both(1)) {
                let of_client = CLIENT_PORT + 10 * number as u16 + u16::from(restored);
                let from_at = SocketAddr::new(from, of_client);
                let mut client = Peer::at(&mut world, 0, from_at, SIZES);
                client.connect(SocketAddr::new(to, at));
                world.turn_until(|_| {
                    client.poll();
                    client.id != 0 || client.end.is_some()
                });
                let expected = (from == other).then_some(Code::Refused);
                assert_eq!(client.end, expected, "{from} where {named} is welcome");
                world.post(0, Request::RemoveChannel { channel: client.app.channel });
            }
            server.app.submit(&Command::TcpConnect {
                token: 9,
                port: server.port,
                peer: SocketAddr::new(other, CLIENT_PORT),
            });
            let denied = Completion::TcpConnectFailed { token: 9, code: Code::Denied };
            world.turn_until(|_| {
                server.app.poll();
                server.app.tcp.contains(&denied)
            });
            server.app.tcp.clear();
        }
        world.close_vif(&server.app, server.port);
    }
}

// ---- networks ----

fn ends(world: &mut World, at: [SocketAddr; 2]) -> [Peer; 2] {
    [Peer::at(world, 0, at[0], SIZES), Peer::at(world, 1, at[1], SIZES)]
}

#[test]
fn much_goes_both_ways_at_once() {
    let rough = fabric::Faults {
        loss_ppm: 3_000,
        delay_ppm: 10_000,
        delay_ns_max: 50_000,
        ..fabric::Faults::default()
    };
    for faults in [fabric::Faults::default(), rough] {
        let mut world = World::new(2, faults);
        let at = [(0, CLIENT_PORT), (1, SERVER_PORT)];
        let at = at.map(|(host, port)| SocketAddr::new(address(host), port));
        let mut peers = ends(&mut world, at);
        connect(&mut world, &mut peers, at[1]);
        exchange(&mut world, &mut peers, [4 << 20, 4 << 20]);
    }
}

#[test]
fn ipv6_in_both_roles() {
    let mut world = World::new(2, fabric::Faults::default());
    let of_host = |host: usize| -> IpAddr { format!("fd00::{}", host + 1).parse().expect("one") };
    for host in [0, 1] {
        world.set_addresses(host, vec![(of_host(host), 64)]);
    }
    for client in [0, 1] {
        let at = [(client, CLIENT_PORT), (1 - client, SERVER_PORT)];
        let [from, to] = at.map(|(host, port)| SocketAddr::new(of_host(host), port));
        let mut peers = [
            Peer::at(&mut world, client, from, SIZES),
            Peer::at(&mut world, 1 - client, to, SIZES),
        ];
        connect(&mut world, &mut peers, to);
        exchange(&mut world, &mut peers, [100_000, 100_000]);
        for (host, peer) in [client, 1 - client].into_iter().zip(&peers) {
            world.post(host, Request::RemoveChannel { channel: peer.app.channel });
        }
    }
}

#[test]
fn on_a_vlan() {
    const VLAN: Option<u16> = Some(7);
    let faults = fabric::Faults::default();
    let mut world = World::with_networks(2, faults, |queue| queue, |network| network.vlan = VLAN);
    let mut peers = [(0, CLIENT_PORT), (1, SERVER_PORT)].map(|(host, port)| {
        let mac = world.hosts[host].mac;
        let app = world.attach(host, SIZES);
        let (channel, number) = (app.channel, app.channel + 1);
        let spec = Box::new(spec(mac, VLAN, SocketAddr::new(address(host), port)));
        world.post(host, Request::OpenTcpPort { channel, number, spec });
        events::take_vif_opened(&mut world.hosts[host].members[0].events).expect("a port");
        Peer::of(app, number)
    });
    connect(&mut world, &mut peers, SocketAddr::new(address(1), SERVER_PORT));
    exchange(&mut world, &mut peers, [100_000, 100_000]);
}

// ---- routers and attackers ----

/// What is between a host and the wire.
#[derive(Default)]
struct Between {
    /// The longest packet that passes; the others are answered as a router does.
    mtu: Option<u16>,
    /// What the host receives next.
    injected: VecDeque<Vec<u8>>,
    /// TCP segments of at least this length are refused by "port unreachable".
    refuses: bool,
    /// The first segment with data of each port is lost, however often it is sent.
    withholds: bool,
    /// The numbers of those, by ports.
    firsts: BTreeMap<u16, u32>,
    /// The last TCP segment with data, with its IP header.
    last: Vec<u8>,
    /// The queue takes nothing: whoever empties it is slow.
    is_full: bool,
}

struct Tampered {
    queue: Box<dyn Queue>,
    between: Arc<Mutex<Between>>,
}

fn lock(between: &Mutex<Between>) -> MutexGuard<'_, Between> {
    between.lock().expect("no panic with it")
}

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 200);
const ROUTER_MAC: MacAddress = [2, 0, 0, 0, 9, 9];

impl Between {
    /// True if a frame of the host passes; else it is answered.
    fn judge(&mut self, frame: &[u8]) -> bool {
        let Some(packet) = frame.get(14..).filter(|_| frame[12..14] == [8, 0]) else { return true };
        let view = ipv4::View::new(packet).expect("a packet");
        let own = ipv4::Repr::parse(&view, true).expect("a packet");
        if own.protocol != protocol::TCP {
            return true;
        }
        if packet.len() > 20 + 32 {
            self.last = packet.to_vec();
        }
        if self.withholds && !self.passes(view.payload()) {
            return false;
        }
        let quote = &packet[..28];
        let bad_news = match self.mtu {
            Some(mtu) if packet.len() > usize::from(mtu) => {
                icmpv4::Repr::FragmentationNeeded { mtu, quote }
            }
            _ if self.refuses => {
                icmpv4::Repr::Unreachable { code: icmpv4::unreachable::PORT, quote }
            }
            _ => return true,
        };
        let mut answer = vec![0; 34 + bad_news.length()];
        let destination = frame[6..12].try_into().expect("six");
        let ether_type = ethernet::ether_type::IPV4;
        ethernet::Repr { destination, source: ROUTER_MAC, ether_type }.emit(&mut answer);
        ipv4::Repr {
            source: ROUTER,
            destination: own.source,
            protocol: protocol::ICMPV4,
            hop_limit: 64,
            payload_length: bad_news.length() as u16,
        }
        .emit(&mut answer[14..]);
        bad_news.emit(&mut answer[34..]);
        self.injected.push_back(answer);
        false
    }

    /// False for the first segment with data.
    fn passes(&mut self, segment: &[u8]) -> bool {
        let view = View::new(segment).expect("a segment");
        let port = u16::from_be_bytes([segment[0], segment[1]]);
        let sequence = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        view.payload().is_empty() || *self.firsts.entry(port).or_insert(sequence) != sequence
    }
}

impl Queue for Tampered {
    fn capabilities(&self) -> Capabilities {
        self.queue.capabilities()
    }

    fn info(&self) -> Info {
        self.queue.info()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let injected: Vec<_> = {
            let mut between = lock(&self.between);
            let count = between.injected.len().min(budget);
            between.injected.drain(..count).collect()
        };
        let frames: Vec<&[u8]> = injected.iter().map(Vec::as_slice).collect();
        if !frames.is_empty() {
            sink(&frames, Checksums::Unknown);
        }
        frames.len() + self.queue.receive(budget - frames.len(), sink)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let between = &self.between;
        if lock(between).is_full {
            return Transmit::Full;
        }
        self.queue.transmit(&mut |frame| {
            let length = fill(frame);
            if length > 0 && lock(between).judge(&frame[..length]) { length } else { 0 }
        })
    }

    as_inner!();
}

/// Two hosts, and what is between each and the wire.
fn tampered_world() -> (World, [Arc<Mutex<Between>>; 2]) {
    let between = <[Arc<Mutex<Between>>; 2]>::default();
    let next = Cell::new(0);
    let world = World::with_queues(4, fabric::Faults::default(), |queue| {
        let between = between[next.replace(next.get() + 1)].clone();
        Box::new(Tampered { queue, between })
    });
    (world, between)
}

fn usual_ends(world: &mut World) -> ([Peer; 2], SocketAddr) {
    let at = [(0, CLIENT_PORT), (1, SERVER_PORT)];
    let at = at.map(|(host, port)| SocketAddr::new(address(host), port));
    (ends(world, at), at[1])
}

#[test]
fn a_router_says_what_is_too_large() {
    let (mut world, between) = tampered_world();
    let (mut peers, to) = usual_ends(&mut world);
    connect(&mut world, &mut peers, to);
    lock(&between[0]).mtu = Some(1000);
    peers[0].send(&bytes(50_000, 3));
    run(&mut world, &mut peers, |peers| peers[1].received.len() == 50_000);
    assert!(peers[1].received == bytes(50_000, 3));
    let flows = world.snapshot(0).flows;
    assert_eq!(flows[0].packet_bytes, 1000 - 20 - 20 - 12);
    let flows = world.snapshot(1).flows;
    assert_eq!(flows[0].packet_bytes, 1448, "the way back is another");
}

/// The engine of the connection hears it, whichever NIC the router is behind.
#[test]
fn a_router_behind_another_nic_is_heard() {
    let between = Arc::<Mutex<Between>>::default();
    let mut world = World::of_two_nics_over(4, |nic, queue| match nic {
        1 => Box::new(Tampered { queue, between: between.clone() }),
        _ => queue,
    });
    let app = world.attach(0, SIZES);
    let number = app.channel + 100;
    world.open_tcp_port_on_both(&app, number, CLIENT_PORT);
    let to = SocketAddr::new(address_on(1, 1), SERVER_PORT);
    let mut peers = [Peer::of(app, number), Peer::at(&mut world, 2, to, SIZES)];
    connect(&mut world, &mut peers, to);
    lock(&between).mtu = Some(1000);
    peers[0].send(&bytes(50_000, 3));
    run(&mut world, &mut peers, |peers| peers[1].received.len() == 50_000);
    assert!(peers[1].received == bytes(50_000, 3));
    let flows = world.snapshot(0).flows;
    assert_eq!((flows[0].path, flows[0].packet_bytes), ("tcp-other-nic", 1000 - 20 - 20 - 12));
    lock(&between).refuses = true;
    peers[0].connect(SocketAddr::new(to.ip(), SERVER_PORT + 1));
    run(&mut world, &mut peers, |peers| peers[0].end.is_some());
    assert_eq!(peers[0].end, Some(Code::Refused));
}

fn set(peer: &mut Peer, options: &[(u32, u32)]) {
    for &(option, value) in options {
        peer.app.submit(&Command::TcpSet { connection: peer.id, option, value });
    }
}

#[test]
fn packets_are_as_their_app_has_set_them() {
    let (mut world, between) = tampered_world();
    let (mut peers, to) = usual_ends(&mut world);
    connect(&mut world, &mut peers, to);
    let last = |side: usize| {
        let between = lock(&between[side]);
        (between.last.len(), between.last[1], between.last[8])
    };
    talk(&mut world, &mut peers);
    assert_eq!([last(0), last(1)], [(1052, 0, 64); 2]);
    // The lower two bits of the traffic class are not the app's.
    let options = [
        (tcp_option::TRAFFIC_CLASS, 0xbb),
        (tcp_option::HOP_LIMIT, 3),
        (tcp_option::MAXIMUM_SEGMENT, 212),
    ];
    set(&mut peers[0], &options);
    talk(&mut world, &mut peers);
    assert_eq!([last(0), last(1)], [(252, 0xb8, 3), (1052, 0, 64)]);
}

/// Each sends a thousand bytes.
fn talk(world: &mut World, peers: &mut [Peer; 2]) {
    for peer in peers.iter_mut() {
        peer.received.clear();
        peer.send(&bytes(1000, 1));
    }
    run(world, peers, |peers| peers.iter().all(|peer| peer.received == bytes(1000, 1)));
}

/// A peer that says nothing is given up after as many probes as are set.
#[test]
fn a_silent_peer_is_given_up_when_its_app_wants_that() {
    const SECOND: u64 = clearway_base::SECOND;
    for (options, after_s) in [
        (&[(tcp_option::KEEP_ALIVE, 4)][..], 4 + 9 * 4),
        (&[(tcp_option::KEEP_ALIVE, 1), (tcp_option::KEEP_ALIVE, 4)], 4 + 9 * 4),
        (&[(tcp_option::KEEP_ALIVE, 4), (tcp_option::KEEP_ALIVE_INTERVAL, 2)], 4 + 9 * 2),
        (&[(tcp_option::KEEP_ALIVE_PROBES, 3), (tcp_option::KEEP_ALIVE, 4)], 4 + 3 * 4),
        (&[(tcp_option::KEEP_ALIVE_INTERVAL, 2), (tcp_option::KEEP_ALIVE_PROBES, 3)], 7200 + 3 * 2),
    ] {
        let (mut world, _) = tampered_world();
        let (mut peers, to) = usual_ends(&mut world);
        connect(&mut world, &mut peers, to);
        set(&mut peers[0], options);
        world.turn();
        let before = world.now;
        while peers[0].end.is_none() {
            world.now = world.now + SECOND / 10;
            world.turn_alone(0);
            peers[0].poll();
        }
        assert_eq!(peers[0].end, Some(Code::Lost), "{options:?}");
        let seconds = world.now.since(before) as f64 / SECOND as f64;
        assert!((seconds - f64::from(after_s)).abs() < 1.0, "{options:?}: {seconds} s");
    }
}

#[test]
fn a_router_says_that_nobody_is_there() {
    let (mut world, between) = tampered_world();
    let (mut peers, to) = usual_ends(&mut world);
    lock(&between[0]).refuses = true;
    peers[0].connect(to);
    let before = world.now;
    run(&mut world, &mut peers, |peers| peers[0].end.is_some());
    assert_eq!(peers[0].end.take(), Some(Code::Refused));
    assert!(world.now.since(before) < 500_000_000, "long before it gives up by itself");
    // Of an open connection it is not believed at once (RFC 5461).
    lock(&between[0]).refuses = false;
    connect(&mut world, &mut peers, to);
    lock(&between[0]).refuses = true;
    peers[0].send(b"anybody there?");
    (0..1000).for_each(|_| world.turn());
    lock(&between[0]).refuses = false;
    run(&mut world, &mut peers, |peers| peers[1].received == b"anybody there?");
    assert_eq!(peers[0].end, None);
}

/// Nobody rings when a queue that was full has room again, and what has not left has no timer: an
/// engine that sleeps meanwhile looks again soon.
#[test]
fn who_waits_for_room_in_the_queue_does_not_sleep_for_long() {
    let (mut world, between) = tampered_world();
    let (mut peers, to) = usual_ends(&mut world);
    connect(&mut world, &mut peers, to);
    talk(&mut world, &mut peers);
    (0..1000).for_each(|_| world.turn());
    let waits = |world: &World, host: usize| world.hosts[host].members[0].engine.waits_for_room();
    between.iter().for_each(|between| lock(between).is_full = true);
    assert!(!waits(&world, 0) && !waits(&world, 1), "there is nothing to send");
    peers[0].send(b"a request");
    // Where nobody listens a SYN is refused, which is no connection's affair.
    let nobody = SocketAddr::new(to.ip(), SERVER_PORT + 1);
    let stranger = (Ipv4Addr::new(10, 7, 0, 77), 1024);
    lock(&between[1]).injected.push_back(syn((world.hosts[1].mac, nobody), stranger));
    world.turn();
    assert!(waits(&world, 0) && waits(&world, 1));
    between.iter().for_each(|between| lock(between).is_full = false);
    peers[1].received.clear();
    run(&mut world, &mut peers, |peers| peers[1].received == b"a request");
    (0..1000).for_each(|_| world.turn());
    assert!(!waits(&world, 0) && !waits(&world, 1));
}

/// However many connections of an app wait for their first bytes, each has something of the memory
/// for what comes before its turn.
#[test]
fn what_comes_out_of_order_is_shared() {
    const COUNT: usize = 60_000;
    let (mut world, between) = tampered_world();
    let small = Sizes { transmit_pool_bytes: 1 << 20, receive_pool_bytes: 1 << 20, ..SIZES };
    let to = SocketAddr::new(address(1), SERVER_PORT);
    let mut server = Peer::at(&mut world, 1, to, small);
    server.listen();
    let mut streams = BTreeMap::new();
    lock(&between[0]).withholds = true;
    let mut clients: Vec<Peer> = Vec::new();
    for number in 0..12 {
        let from = SocketAddr::new(address(0), CLIENT_PORT + number);
        let mut client = Peer::at(&mut world, 0, from, small);
        client.connect(to);
        world.turn_until(|_| {
            serve(&mut server.app, &mut streams);
            client.poll();
            client.id != 0
        });
        client.send(&bytes(COUNT, number.into()));
        (0..1000).for_each(|_| world.turn());
        clients.push(client);
    }
    let connections = world.hosts[1].members[0].engine.save().tcp.stack.connections;
    let ahead = connections.iter().filter_map(|place| place.value.as_ref()).map(|connection| {
        connection.rcv.ahead.iter().map(|(_, extent)| extent.length).sum::<u32>()
    });
    let ahead: Vec<u32> = ahead.collect();
    assert!(ahead.len() == 12 && ahead.iter().all(|bytes| *bytes > 0), "{ahead:?}");
    lock(&between[0]).withholds = false;
    world.turn_until(|_| {
        serve(&mut server.app, &mut streams);
        streams.len() == 12 && streams.values().all(|stream| stream.len() == COUNT)
    });
    let mut received: Vec<_> = streams.into_values().collect();
    let mut expected: Vec<_> = (0..12).map(|number| bytes(COUNT, number)).collect();
    received.sort_unstable();
    expected.sort_unstable();
    assert!(received == expected);
}

/// A SYN from anybody.
fn syn(to: (MacAddress, SocketAddr), from: (Ipv4Addr, u16)) -> Vec<u8> {
    let repr = Repr {
        sequence: u32::from(from.1) << 16,
        flags: Flags::SYN,
        window: 1000,
        ..Repr::default()
    };
    segment(to, (ROUTER_MAC, from.into()), repr)
}

/// Who answers is let in, however many do not.
#[test]
fn a_flood_of_syns_keeps_nobody_out() {
    let (mut world, between) = tampered_world();
    let (mut peers, to) = usual_ends(&mut world);
    peers[1].listen();
    world.turn();
    let mac = world.hosts[1].mac;
    let mut next = 0_u32;
    let mut flood = |count: u32| {
        let mut between = lock(&between[1]);
        for number in next..next + count {
            let from =
                (Ipv4Addr::from_bits(0xc633_6400 + number / 50_000), (number % 50_000) as u16);
            between.injected.push_back(syn((mac, to), (from.0, from.1 + 1024)));
        }
        next += count;
    };
    flood(200);
    (0..100).for_each(|_| world.turn());
    peers[0].connect(to);
    world.turn_until(|_| {
        flood(2);
        peers.iter_mut().for_each(Peer::poll);
        peers.iter().all(|peer| peer.id != 0)
    });
    exchange(&mut world, &mut peers, [100_000, 100_000]);
    let counters = world.snapshot(1).counters;
    let value = |name| counters.iter().find(|(other, _)| *other == name).expect("counted").1;
    assert!(value("cookies_sent") > 100, "{counters:?}");
    assert_eq!((value("cookies_right"), value("connections_accepted")), (1, 1), "{counters:?}");
}
