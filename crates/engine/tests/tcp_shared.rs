//! A TCP port that apps at several engines of a host share: each connection is one engine's,
//! whatever queue its segments come to, and whoever comes and goes.

mod world;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use clearway_base::{MILLISECOND, SECOND};
use clearway_channel::{Code, Command, Completion, ReceivedBytes, Sizes};
use clearway_engine::CaptureSpec;
use clearway_nic::fabric::{Hash, RssOptions};
use clearway_nic::{MacAddress, Queue};
use clearway_wire::tcp::{Check, Flags, Repr, View};
use clearway_wire::{arp, ethernet};
use world::pair::restore;
use world::tcp::{Peer, bytes, run, segment, spec};
use world::{App, Place, SIZES, World, address};

/// Where the servers are, if they are at one engine.
const SERVER: Place = Place { host: 1, engine: 0 };
const SERVER_PORT: u16 = 8080;
const CLIENT_PORT: u16 = 40_000;
/// What a client says at a time.
const PART_BYTES: usize = 5000;
const SMALL: Sizes = Sizes { transmit_pool_bytes: 1 << 18, receive_pool_bytes: 1 << 18, ..SIZES };

/// An app with the port, and what it has heard, by the ports of its peers.
struct Server {
    app: App,
    port: u32,
    peers: BTreeMap<u64, u16>,
    heard: BTreeMap<u16, Vec<u8>>,
}

/// Clients at host 0, and servers at the engines of host 1.
struct Scene {
    world: World,
    servers: Vec<Server>,
    clients: Vec<Peer>,
    /// What each client has said.
    said: Vec<Vec<u8>>,
}

impl Server {
    fn poll(&mut self) {
        self.app.poll();
        while let Some(told) = self.app.tcp.pop_front() {
            if let Completion::TcpAccepted { connection, peer, .. } = told {
                self.peers.insert(connection, peer.port());
                self.heard.insert(peer.port(), Vec::new());
            }
        }
        while let Some(ReceivedBytes { connection, bytes, .. }) = self.app.bytes.pop_front() {
            let heard = self.heard.get_mut(&self.peers[&connection]).expect("accepted");
            heard.extend(self.app.end.receive_bytes(&bytes));
            self.app.end.release(bytes);
        }
        self.app.end.flush_releases();
    }
}

impl Scene {
    fn new(seed: u64, engines: usize) -> Self {
        Self::of(World::at_switch(seed, &[1, engines]))
    }

    fn of(world: World) -> Self {
        Self { world, servers: Vec::new(), clients: Vec::new(), said: Vec::new() }
    }

    /// An app at this engine shares the port, and listens.
    fn join(&mut self, engine: usize) {
        let at = Place { host: 1, engine };
        let app = self.world.attach(at, SIZES);
        let port = app.channel + 100;
        let spec = spec(self.world.hosts[1].mac, None, to());
        self.world.open_shared_tcp_port(&app, port, spec);
        let mut server = Server { app, port, peers: BTreeMap::new(), heard: BTreeMap::new() };
        server.app.submit(&Command::TcpListen { port, backlog: 1000 });
        self.world.turn();
        self.servers.push(server);
    }

    /// One at each of these.
    fn join_at(&mut self, engines: impl IntoIterator<Item = usize>) {
        for engine in engines {
            self.join(engine);
        }
    }

    fn leave(&mut self, server: usize) {
        let Server { app, port, .. } = &self.servers[server];
        self.world.close_vif(app, *port);
    }

    fn stop_listening(&mut self, server: usize) {
        let server = &mut self.servers[server];
        server.app.submit(&Command::TcpListen { port: server.port, backlog: 0 });
        self.world.turn();
    }

    /// So many more clients connect.
    fn connect(&mut self, count: usize) {
        for _ in 0..count {
            let port = CLIENT_PORT + self.clients.len() as u16;
            let at = SocketAddr::new(address(0), port);
            let mut client = Peer::at(&mut self.world, 0, at, SMALL);
            client.connect(to());
            self.clients.push(client);
            self.said.push(Vec::new());
        }
        self.run(|scene| {
            let accepted: usize = scene.servers.iter().map(|server| server.heard.len()).sum();
            scene.clients.iter().all(|client| client.id != 0) && accepted == scene.clients.len()
        });
    }

    /// All clients that are connected say more; what has been said is heard.
    fn say(&mut self) {
        for (number, (client, said)) in self.clients.iter_mut().zip(&mut self.said).enumerate() {
            if client.end.is_none() {
                let part = bytes(PART_BYTES, number + said.len());
                client.send(&part);
                said.extend(part);
            }
        }
        self.run(|scene| {
            scene.live().all(|number| scene.heard(number).len() == scene.said[number].len())
        });
        for number in self.live() {
            assert!(self.heard(number) == self.said[number], "client {number}");
        }
    }

    /// The clients whose connections are there.
    fn live(&self) -> impl Iterator<Item = usize> {
        let live = self.clients.iter().map(|client| client.end.is_none()).collect::<Vec<_>>();
        (0..live.len()).filter(move |number| live[*number])
    }

    /// What a client has said, as its server has heard it: it is one server's.
    fn heard(&self, client: usize) -> &[u8] {
        let port = CLIENT_PORT + client as u16;
        let mut heard = self.servers.iter().filter_map(|server| server.heard.get(&port));
        let found = heard.next().expect("somebody's");
        assert!(heard.next().is_none(), "client {client} is two servers'");
        found
    }

    fn run(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..2_000_000 {
            self.world.turn();
            self.servers.iter_mut().for_each(Server::poll);
            self.clients.iter_mut().for_each(Peer::poll);
            if done(self) {
                return;
            }
        }
        panic!("stuck");
    }

    /// How many connections each server has had.
    fn counts(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.heard.len()).collect()
    }

    fn by_lane(&mut self, engine: usize) -> u64 {
        self.world.counter(Place { host: 1, engine }, "lane_frames_received")
    }
}

fn to() -> SocketAddr {
    SocketAddr::new(address(1), SERVER_PORT)
}

/// Nothing of a connection goes to another engine but its first SYN: there and back.
#[test]
fn a_connection_is_that_engines_at_whose_queue_it_begins() {
    const CLIENTS: usize = 24;
    let mut scene = Scene::new(3, 2);
    scene.join_at(0..2);
    scene.connect(CLIENTS);
    let by_lane = [scene.by_lane(0), scene.by_lane(1)];
    scene.say();
    scene.say();
    let counts = scene.counts();
    assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
    let later = [scene.by_lane(0), scene.by_lane(1)];
    // Besides, all engines hear what neighbours say.
    let others = |counts: [u64; 2], segments: u64| {
        let count = counts.iter().sum::<u64>();
        assert!((segments..segments + 8).contains(&count), "{by_lane:?}, {later:?}");
    };
    others(by_lane, 2 * CLIENTS as u64);
    others(later, by_lane.iter().sum());
}

/// Each of those that have an app gets about its share of what comes to a queue without one.
#[test]
fn where_no_app_listens_at_its_queue_a_connection_is_anothers() {
    let rss = RssOptions { hash: Hash::Destination, ..RssOptions::default() };
    let mut scene = Scene::of(World::with_rss(4, &[1, 4], rss));
    let syn = Stranger::new(&scene, 5000).frame(Flags::SYN, (0, 0));
    let queue = scene.world.fabric.queue_of(1, &syn);
    scene.join_at((0..4).filter(|engine| *engine != queue));
    scene.connect(60);
    scene.say();
    let counts = scene.counts();
    assert!(counts.iter().all(|count| (10..30).contains(count)), "{counts:?}");
}

/// Those of the app that leaves are reset, and no others.
#[test]
fn connections_go_on_whoever_comes_and_goes_and_however_the_nic_spreads_them() {
    for seed in 0..4 {
        let mut scene = Scene::new(10 + seed, 3);
        scene.join(0);
        scene.connect(12);
        scene.join(1);
        scene.say();
        scene.connect(12);
        scene.world.fabric.rekey(1);
        scene.say();
        scene.join(2);
        scene.connect(12);
        (0..3).for_each(|engine| restore(&mut scene.world, Place { host: 1, engine }));
        scene.world.fabric.rekey(1);
        scene.say();
        scene.stop_listening(0);
        scene.connect(12);
        scene.say();
        scene.world.fabric.rekey(1);
        scene.leave(1);
        let lost = scene.counts()[1];
        let is_reset = |client: &&Peer| client.end == Some(Code::Reset);
        scene.run(|scene| scene.clients.iter().filter(is_reset).count() == lost);
        assert_eq!(scene.live().count(), 48 - lost);
        scene.say();
        scene.connect(12);
        scene.say();
        let counts = scene.counts();
        assert_eq!(counts.iter().sum::<usize>(), 60, "{counts:?}");
        assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
    }
}

/// Whoever watches sees each segment once, wherever it has to go.
#[test]
fn a_capture_sees_what_is_passed_on_once() {
    let mut scene = Scene::new(7, 3);
    scene.join_at([2, 1]);
    let mut watcher = scene.world.attach(Place { host: 1, engine: 0 }, SIZES);
    let filter = vec![format!("tcp dst port {SERVER_PORT}").parse().expect("a filter")];
    let spec = CaptureSpec { filter, app: None, connection: None };
    scene.world.open_capture(&watcher, 9, spec).expect("it may");
    let stranger = Stranger::new(&scene, 5000);
    for queue in 0..3 {
        stranger.move_to(&scene, queue);
        let syn = stranger.frame(Flags::SYN, (1000, 0));
        stranger.ask(&mut scene, &syn).expect("an answer");
        assert_eq!(stranger.ask(&mut scene, &[0; 60]), None, "and nothing more");
        watcher.poll();
        let seen: Vec<_> = watcher.frames.drain(..).map(|(_, _, frame)| frame).collect();
        assert!(seen == [syn], "{} times from queue {queue}", seen.len());
    }
}

/// At another engine there could be a connection from the same port to the same peer.
#[test]
fn nobody_connects_from_a_port_that_others_have() {
    let mut scene = Scene::new(9, 2);
    let peer = SocketAddr::new(address(50), CLIENT_PORT);
    let connect = |scene: &mut Scene, server: usize| {
        let Server { app, port, .. } = &mut scene.servers[server];
        app.submit(&Command::TcpConnect { token: 9, port: *port, peer });
        scene.world.turn();
        scene.servers[server].app.poll();
        scene.servers[server].app.tcp.pop_front()
    };
    let refused = Completion::TcpConnectFailed { token: 9, code: Code::AddressInUse };
    scene.join(0);
    assert_eq!(connect(&mut scene, 0), None, "it is alone, and waits for the neighbour");
    scene.join(1);
    for server in 0..2 {
        assert_eq!(connect(&mut scene, server), Some(refused));
    }
    restore(&mut scene.world, Place { host: 1, engine: 1 });
    assert_eq!(connect(&mut scene, 1), Some(refused));
    scene.leave(0);
    assert_eq!(connect(&mut scene, 1), None, "it is alone");
}

// ---- segments by hand ----

const STRANGER_MAC: MacAddress = [2, 0, 0, 0, 1, 2];

/// A peer that sends what it likes.
struct Stranger {
    host: MacAddress,
    from: SocketAddr,
}

impl Stranger {
    fn new(scene: &Scene, port: u16) -> Self {
        Self::at(scene, SocketAddr::new(address(77), port))
    }

    fn at(scene: &Scene, from: SocketAddr) -> Self {
        Self { host: scene.world.hosts[1].mac, from }
    }

    fn frame(&self, flags: Flags, (sequence, acknowledgement): (u32, u32)) -> Vec<u8> {
        let repr = Repr { sequence, acknowledgement, flags, window: 1000, ..Repr::default() };
        segment((self.host, to()), (STRANGER_MAC, self.from), repr)
    }

    /// It asks for the host's Ethernet address, or says its own.
    fn arp(&self, operation: arp::Operation) -> Vec<u8> {
        let [source, target] = [self.from, to()].map(|end| match end.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => panic!("IPv4"),
        });
        let (target_mac, destination) = match operation {
            arp::Operation::Request => ([0; 6], ethernet::BROADCAST),
            arp::Operation::Reply => (self.host, self.host),
        };
        let (source_mac, ether_type) = (STRANGER_MAC, ethernet::ether_type::ARP);
        let mut frame = vec![0; 14 + arp::LENGTH];
        ethernet::Repr { destination, source: source_mac, ether_type }.emit(&mut frame);
        let repr = arp::Repr { operation, source_mac, source, target_mac, target };
        repr.emit(&mut frame[14..]);
        frame
    }

    /// What it is answered, if it is within some time: flags and numbers.
    fn ask(&self, scene: &mut Scene, frame: &[u8]) -> Option<(Flags, u32, u32)> {
        let queue = scene.world.stranger();
        queue.transmit(&mut |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        queue.flush();
        for _ in 0..1000 {
            scene.world.turn();
            let mut answer = None;
            scene.world.stranger().receive(32, &mut |burst, _| {
                let mut segments = burst.iter().filter(|frame| self.is_meant_by(frame));
                answer = segments.next_back().map(|frame| {
                    let view = View::new(&frame[34..]).expect("a segment");
                    let check = Check::Addresses(to().ip(), self.from.ip());
                    let repr = Repr::parse(&view, check);
                    let repr = repr.expect("a segment");
                    (repr.flags, repr.sequence, repr.acknowledgement)
                });
            });
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    fn is_meant_by(&self, frame: &[u8]) -> bool {
        let IpAddr::V4(own) = self.from.ip() else { return false };
        frame[12..14] == [8, 0] && frame[30..34] == own.octets()
    }

    /// What comes by itself within so much time.
    fn wait(&self, scene: &mut Scene, ns: u64) -> Option<(Flags, u32, u32)> {
        scene.world.now = scene.world.now + ns;
        self.ask(scene, &[0; 60])
    }

    /// Gives the NIC of host 1 another key, until what comes from here goes to another queue.
    fn move_to(&self, scene: &Scene, engine: usize) {
        let frame = self.frame(Flags::SYN, (0, 0));
        while scene.world.fabric.queue_of(1, &frame) != engine {
            scene.world.fabric.rekey(1);
        }
    }
}

/// RFC 9293, section 3.10.7.4, and RFC 5961, section 4.2: "If the SYN bit is set, irrespective of
/// the sequence number, TCP MUST send an ACK (also referred to as challenge ACK) to the remote
/// peer".
#[test]
fn a_syn_of_a_peer_that_has_a_connection_elsewhere_is_challenged_there() {
    let mut scene = Scene::new(5, 3);
    scene.join_at(0..3);
    let stranger = Stranger::new(&scene, 5000);
    for (engine, queue) in [(0, 2), (2, 1), (1, 0)] {
        stranger.move_to(&scene, engine);
        let begun = 1000 * (engine as u32 + 1);
        let syn = stranger.frame(Flags::SYN, (begun, 0));
        let (flags, number, _) = stranger.ask(&mut scene, &syn).expect("an answer");
        assert_eq!(flags, Flags::SYN | Flags::ACK);
        // While it is half-open, the same SYN is answered again with the same number.
        stranger.move_to(&scene, queue);
        let again = stranger.ask(&mut scene, &syn).expect("an answer");
        assert_eq!(again, (Flags::SYN | Flags::ACK, number, begun + 1));
        let ack = stranger.frame(Flags::ACK, (begun + 1, number.wrapping_add(1)));
        assert_eq!(stranger.ask(&mut scene, &ack), None, "open");
        scene.servers[engine].poll();
        assert_eq!(scene.servers[engine].peers.len(), 1, "at {engine}");
        let anew = stranger.frame(Flags::SYN, (begun + 500_000, 0));
        let challenge = (Flags::ACK, number.wrapping_add(1), begun + 1);
        assert_eq!(stranger.ask(&mut scene, &anew), Some(challenge));
        // "If the restarted peer ... sends back a RST": it has begun anew.
        let reset = stranger.frame(Flags::RST, (begun + 1, 0));
        assert_eq!(stranger.ask(&mut scene, &reset), None);
        scene.servers[engine].poll();
        scene.servers[engine].peers.clear();
    }
}

/// A peer may begin anew from a port whose last connection is over at another engine, where nobody
/// listens any more. What is late of the old one is that engine's still, and so is its first SYN if
/// that may be late, too: it is challenged, and the next one is not.
#[test]
fn what_is_over_where_nobody_listens_is_no_obstacle() {
    for gives_port_up in [false, true] {
        let mut scene = Scene::new(8, 2);
        scene.join_at(0..2);
        let stranger = Stranger::new(&scene, 5000);
        stranger.move_to(&scene, 1);
        let ask = |scene: &mut Scene, flags, numbers| {
            let frame = stranger.frame(flags, numbers);
            stranger.ask(scene, &frame)
        };
        let (_, number, _) = ask(&mut scene, Flags::SYN, (1000, 0)).expect("an answer");
        let next = number.wrapping_add(1);
        assert_eq!(ask(&mut scene, Flags::ACK, (1001, next)), None, "open");
        scene.servers[1].poll();
        let connection = *scene.servers[1].peers.keys().next().expect("accepted");
        scene.servers[1].app.submit(&Command::TcpClose { connection, abort: false });
        scene.stop_listening(1);
        let (fin, end) = (Flags::FIN | Flags::ACK, next.wrapping_add(1));
        let acknowledged = (Flags::ACK, end, 1002);
        assert_eq!(ask(&mut scene, fin, (1001, end)), Some(acknowledged));
        if gives_port_up {
            scene.leave(1);
        }
        assert_eq!(ask(&mut scene, fin, (1001, end)), Some(acknowledged), "again");
        assert_eq!(ask(&mut scene, Flags::SYN, (900, 0)), Some(acknowledged), "challenged");
        assert_eq!(ask(&mut scene, Flags::RST, (1002, 0)), None);
        let answer = ask(&mut scene, Flags::SYN, (9000, 0)).expect("an answer");
        assert_eq!((answer.0, answer.2), (Flags::SYN | Flags::ACK, 9001));
    }
}

/// Who has the port next, at another engine, connects from it to the same peer, whose answers come
/// to the engine where the last connection is in TIME-WAIT.
#[test]
fn what_is_over_does_not_keep_others_from_connecting() {
    let mut world = World::at_switch(11, &[1, 2]);
    let [from, to] = [(1, CLIENT_PORT), (0, SERVER_PORT)]
        .map(|(host, port)| SocketAddr::new(address(host), port));
    let answer = segment((world.hosts[1].mac, from), (world.hosts[0].mac, to), Repr::default());
    for before in [0, 1] {
        while world.fabric.queue_of(1, &answer) != before {
            world.fabric.rekey(1);
        }
        for engine in [before, 1 - before] {
            let app = world.attach(Place { host: 1, engine }, SIZES);
            let number = app.channel + 100;
            let spec = spec(world.hosts[1].mac, None, from);
            world.open_shared_tcp_port(&app, number, spec);
            let mut peers = [Peer::of(app, number), Peer::at(&mut world, 0, to, SIZES)];
            peers[1].listen();
            world.turn();
            world.now = world.now + 2 * MILLISECOND; // RFC 6191: a later timestamp
            let begun = world.now;
            peers[0].connect(to);
            run(&mut world, &mut peers, |peers| peers.iter().all(|peer| peer.id != 0));
            assert!(world.now.since(begun) < SECOND, "a SYN was lost");
            // Who ends first has it in TIME-WAIT.
            peers[0].shutdown();
            run(&mut world, &mut peers, |peers| peers[1].has_heard_all);
            peers[1].shutdown();
            run(&mut world, &mut peers, |peers| peers.iter().all(|peer| peer.end.is_some()));
            peers.iter().for_each(|peer| world.close_vif(&peer.app, peer.port));
        }
    }
}

/// Who has begun to connect to a listener that goes is accepted by one at another engine.
#[test]
fn what_is_half_open_is_anothers_when_its_listener_goes() {
    for (port, gives_port_up) in [(5000, false), (5001, true)] {
        let mut scene = Scene::new(8, 3);
        scene.join_at(0..2);
        let stranger = Stranger::new(&scene, port);
        stranger.move_to(&scene, 1);
        let syn = stranger.frame(Flags::SYN, (1000, 0));
        let (_, number, _) = stranger.ask(&mut scene, &syn).expect("an answer");
        match gives_port_up {
            true => scene.leave(1),
            false => scene.stop_listening(1),
        }
        restore(&mut scene.world, Place { host: 1, engine: 0 });
        stranger.move_to(&scene, 2);
        let ack = stranger.frame(Flags::ACK, (1001, number.wrapping_add(1)));
        assert_eq!(stranger.ask(&mut scene, &ack), None, "it is not reset");
        scene.servers[0].poll();
        assert_eq!(scene.servers[0].peers.len(), 1);
    }
}

/// RFC 9293, section 3.8.1: a SYN-ACK that is not answered is sent again, too. Whoever waits for
/// the server to speak, and whose acknowledgement is lost, has nothing else.
#[test]
fn a_syn_is_answered_again_whoever_comes_meanwhile() {
    let mut scene = Scene::new(12, 1);
    scene.join(0);
    let stranger = Stranger::new(&scene, 5000);
    let first = stranger.ask(&mut scene, &stranger.frame(Flags::SYN, (1000, 0)));
    for number in 0..70 {
        let from = SocketAddr::new(address(78 + number % 2), 6000 + number as u16);
        let other = Stranger::at(&scene, from);
        other.ask(&mut scene, &other.frame(Flags::SYN, (1000, 0))).expect("an answer");
    }
    let again = stranger.wait(&mut scene, SECOND + SECOND / 10);
    assert!(first.is_some() && again == first, "{again:?} and not {first:?}");
    assert_eq!(scene.world.counter(SERVER, "packets_unresolved"), 0);
}

/// An engine that is made again has forgotten the way on which the SYN came, but not its
/// neighbours, and asks for whom it does not know.
#[test]
fn a_syn_is_answered_again_by_an_engine_that_is_made_again() {
    for is_known in [true, false] {
        let mut scene = Scene::new(13, 1);
        scene.join(0);
        let stranger = Stranger::new(&scene, 5000);
        if is_known {
            stranger.ask(&mut scene, &stranger.arp(arp::Operation::Request));
        }
        let first = stranger.ask(&mut scene, &stranger.frame(Flags::SYN, (1000, 0)));
        restore(&mut scene.world, SERVER);
        let mut again = stranger.wait(&mut scene, SECOND + SECOND / 10);
        assert_eq!(again.is_some(), is_known);
        if !is_known {
            stranger.ask(&mut scene, &stranger.arp(arp::Operation::Reply));
            again = stranger.wait(&mut scene, 2 * SECOND);
        }
        assert!(first.is_some() && again == first, "{again:?} and not {first:?}");
        let lost = scene.world.counter(SERVER, "packets_unresolved");
        assert_eq!(lost, u64::from(!is_known));
    }
}

/// What nobody knows is refused once, by whoever is asked last.
#[test]
fn what_is_nobodys_is_reset_once() {
    let mut scene = Scene::new(6, 3);
    scene.join_at(0..3);
    let stranger = Stranger::new(&scene, 5000);
    let ack = stranger.frame(Flags::ACK, (7, 9));
    let unknown = |scene: &mut Scene| -> u64 {
        let at = |engine| Place { host: 1, engine };
        (0..3).map(|engine| scene.world.counter(at(engine), "segments_unknown")).sum()
    };
    assert_eq!(stranger.ask(&mut scene, &ack), Some((Flags::RST, 9, 0)));
    let reset = stranger.frame(Flags::RST, (7, 9));
    assert_eq!(stranger.ask(&mut scene, &reset), None);
    (0..3).for_each(|server| scene.stop_listening(server));
    let syn = stranger.frame(Flags::SYN, (7, 0));
    let before = unknown(&mut scene);
    assert_eq!(stranger.ask(&mut scene, &syn), Some((Flags::RST | Flags::ACK, 0, 8)));
    assert_eq!(unknown(&mut scene), before + 1);
}
