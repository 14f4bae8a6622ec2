//! TCP between two apps of one engine: by one copy, and without frames as long as nobody watches.
//! What can be seen of it otherwise is as over the wire.

mod world;

use std::net::SocketAddr;

use clearway_base::{MILLISECOND, SECOND};
use clearway_channel::{Code, Command, Completion, Sizes, tcp_option};
use clearway_engine::{CaptureSpec, State, VifSpec};
use world::tcp::{Peer, bytes, exchange, run};
use world::{App, SIZES, World, address};

const SERVER_PORT: u16 = 8080;
const CLIENT_PORT: u16 = 40_000;
/// The first segments of a connection are frames: it is not known before whose they are.
const FRAMES_AT_FIRST: u64 = 4;

/// A host that is alone, and two of its apps with a connection: who has opened it first.
fn connected(seed: u64, sizes: [Sizes; 2]) -> (World, [Peer; 2]) {
    let mut world = World::at_switch(seed, &[1]);
    let peers = connected_in(&mut world, sizes, 0);
    (world, peers)
}

/// Two more of such.
fn connected_in(world: &mut World, sizes: [Sizes; 2], number: u16) -> [Peer; 2] {
    let at = |port| SocketAddr::new(address(0), port + number);
    let mut peers = [
        Peer::at(world, 0, at(CLIENT_PORT), sizes[0]),
        Peer::at(world, 0, at(SERVER_PORT), sizes[1]),
    ];
    peers[1].listen();
    peers[0].connect(at(SERVER_PORT));
    run(world, &mut peers, |peers| peers.iter().all(|peer| peer.id != 0));
    peers
}

/// Segments that were frames.
fn frames(world: &mut World) -> u64 {
    let counters = world.snapshot(0).counters;
    let count = |name: &str| counters.iter().find(|(other, _)| *other == name).expect("counted").1;
    count("segments_sent") - count("segments_local")
}

#[test]
fn bytes_cross_in_large_pieces_and_without_frames() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    exchange(&mut world, &mut peers, [1_000_000, 700_000]);
    assert!(frames(&mut world) <= FRAMES_AT_FIRST, "{} frames", frames(&mut world));
    let pieces = peers.each_ref().map(|peer| peer.pieces);
    assert!(pieces[0] <= 40 && pieces[1] <= 50, "{pieces:?} pieces");
}

#[test]
fn an_app_talks_to_itself() {
    let mut world = World::at_switch(1, &[1]);
    let [near, far] = [CLIENT_PORT, SERVER_PORT].map(|port| SocketAddr::new(address(0), port));
    let mut peer = Peer::at(&mut world, 0, near, SIZES);
    let spec = world::tcp::spec(world.hosts[0].mac, None, far);
    let port = peer.app.channel + 100;
    world.open_tcp_port(&peer.app, port, spec);
    peer.app.submit(&Command::TcpListen { port, backlog: 1 });
    peer.connect(far);
    let mut accepted = 0;
    world.turn_until(|_| {
        peer.app.poll();
        for told in peer.app.tcp.drain(..) {
            match told {
                Completion::TcpAccepted { connection, .. } => accepted = connection,
                Completion::TcpConnected { connection, .. } => peer.id = connection,
                other => panic!("{other:?}"),
            }
        }
        accepted != 0 && peer.id != 0
    });
    let sent = bytes(100_000, 3);
    peer.send(&sent);
    let mut received = Vec::new();
    world.turn_until(|_| {
        peer.app.poll();
        for told in peer.app.bytes.drain(..) {
            if told.connection == accepted {
                received.extend_from_slice(peer.app.end.receive_bytes(&told.bytes));
            }
            peer.app.end.release(told.bytes);
        }
        peer.app.end.flush_releases();
        received.len() == sent.len()
    });
    assert!(received == sent);
    assert!(frames(&mut world) <= FRAMES_AT_FIRST);
}

#[test]
fn status_says_that_it_is_local() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    peers[0].send(&bytes(1000, 1));
    run(&mut world, &mut peers, |peers| peers[1].received.len() == 1000);
    peers[1].send(&bytes(1000, 1));
    run(&mut world, &mut peers, |peers| peers[0].received.len() == 1000);
    let flows = world.snapshot(0).flows;
    assert_eq!(flows.iter().map(|flow| flow.path).collect::<Vec<_>>(), ["tcp-local"; 2]);
}

/// Two that send without end have half each, however many bytes each sends at once.
#[test]
fn connections_take_turns() {
    const COUNT: usize = 2_000_000;
    let mut world = World::at_switch(1, &[1]);
    let mut pairs = [0, 1].map(|number| connected_in(&mut world, [SIZES; 2], number));
    for [client, _] in &mut pairs {
        bytes(COUNT, 1).chunks(250_000).for_each(|part| client.send(part));
    }
    let mut lead_max = 0;
    world.turn_until(|_| {
        pairs.iter_mut().flatten().for_each(Peer::poll);
        let received = pairs.each_ref().map(|[_, server]| server.received.len());
        lead_max = lead_max.max(received[0].abs_diff(received[1]));
        received == [COUNT; 2]
    });
    assert!(lead_max <= 100_000, "one was {lead_max} bytes ahead");
}

/// The pool has two slabs, each cut for one size, and the app keeps a piece of each: there is no
/// room for a large one.
#[test]
fn what_finds_no_memory_as_a_whole_is_taken_in_parts() {
    let small = Sizes { receive_pool_bytes: 1 << 17, ..SIZES };
    let (mut world, [mut client, mut server]) = connected(1, [SIZES, small]);
    for (length, pieces) in [(1400, 1), (60, 2)] {
        client.send(&bytes(length, 1));
        world.turn_until(|_| {
            client.poll();
            server.app.poll();
            server.app.bytes.len() == pieces
        });
    }
    client.send(&bytes(4 * 1448, 3));
    // Far less than a retransmission would take.
    for _ in 0..200 {
        world.turn();
        server.app.poll();
    }
    let lengths =
        server.app.bytes.iter().map(|told| server.app.end.receive_bytes(&told.bytes).len());
    assert_eq!(lengths.sum::<usize>(), 1460 + 4 * 1448);
}

#[test]
fn who_does_not_read_holds_up_its_peer_and_nobody_else() {
    let small = Sizes { receive_pool_bytes: 1 << 18, ..SIZES };
    let (mut world, mut slow) = connected(1, [SIZES, small]);
    let sent = bytes(1 << 20, 9);
    sent.chunks(1 << 16).for_each(|part| slow[0].send(part));
    let mut others = connected_in(&mut world, [SIZES; 2], 1);
    exchange(&mut world, &mut others, [1_000_000, 1_000_000]);
    assert!(slow[0].sent.len() >= 14, "{} of 16 are not acknowledged", slow[0].sent.len());
    run(&mut world, &mut slow, |peers| peers[1].received.len() == 1 << 20);
    assert!(slow[1].received == sent);
}

#[test]
fn a_reset_is_heard_and_what_was_sent_comes_back() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    peers[0].send(&bytes(3_000_000, 1));
    (0..3).for_each(|_| world.turn());
    peers[1].close(true);
    run(&mut world, &mut peers, |peers| peers.iter().all(|peer| peer.end.is_some()));
    assert_eq!(peers.each_ref().map(|peer| peer.end), [Some(Code::Reset), Some(Code::Closed)]);
    assert_eq!(peers[0].app.end.transmit_pool_used_bytes(), 0);
}

#[test]
fn an_app_that_dies_resets_its_peers() {
    for dies in [0, 1] {
        let (mut world, mut peers) = connected(1, [SIZES; 2]);
        peers[0].send(&bytes(3_000_000, 1));
        (0..3).for_each(|_| world.turn());
        let channel = peers[dies].app.channel;
        world.post(0, clearway_engine::Request::RemoveChannel { channel });
        let left = &mut peers[1 - dies];
        world.turn_until(|_| {
            left.poll();
            left.end.is_some()
        });
        assert_eq!(left.end, Some(Code::Reset));
    }
}

/// While a capture is open there are frames to be seen, and then none again.
#[test]
fn who_watches_sees_frames() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    let mut viewer = world.attach(0, SIZES);
    let mut seen = 0;
    for round in 1..=3_usize {
        let is_watched = round == 2;
        if is_watched {
            let spec = CaptureSpec { filter: Vec::new(), app: None, connection: None };
            world.open_capture(&viewer, 9, spec).expect("captures are always opened");
        }
        let before = frames(&mut world);
        peers[0].send(&bytes(100_000, round));
        run(&mut world, &mut peers, |peers| peers[1].received.len() == round * 100_000);
        viewer.poll();
        seen += core::mem::take(&mut viewer.frames).len();
        let count = frames(&mut world) - before;
        assert_eq!(count > FRAMES_AT_FIRST, is_watched, "{count} frames in round {round}");
        if is_watched {
            world.close_vif(&viewer, 9);
        }
    }
    assert!(seen >= 100_000 / 1448, "{seen} frames seen");
}

/// Whose a packet is the switch says, for connections that are joined, too.
#[test]
fn an_interface_that_comes_before_the_port_has_what_is_sent_there() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    peers[0].send(&bytes(1000, 1));
    run(&mut world, &mut peers, |peers| peers[1].received.len() == 1000);
    let mut guard = world.attach(0, SIZES);
    let filter = format!("tcp dst port {SERVER_PORT}").parse().expect("a filter");
    let mac = world.hosts[0].mac;
    let spec = VifSpec { receive: vec![filter], mac, priority: 9, ..VifSpec::default() };
    world.open_vif(&guard, 9, spec).expect("nobody asks whether it may");
    peers[0].send(&bytes(1000, 1));
    world.turn_until(|_| {
        guard.poll();
        !guard.frames.is_empty()
    });
    peers[1].poll();
    assert_eq!(peers[1].received.len(), 1000, "the guard has the rest");
    world.close_vif(&guard, 9);
    run(&mut world, &mut peers, |peers| peers[1].received.len() == 2000);
}

#[test]
fn an_engine_is_made_again_in_the_middle() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    let sent = bytes(2_000_000, 4);
    sent.chunks(60_000).for_each(|part| peers[0].send(part));
    peers[0].shutdown();
    let mut turns = 0;
    while !peers[1].has_heard_all {
        world.turn();
        peers.iter_mut().for_each(Peer::poll);
        turns += 1;
        if turns % 7 == 0 {
            let written = |state: State| State::from_bytes(&state.to_bytes()).expect("just saved");
            world.restore(0, written).expect("just saved");
        }
    }
    assert!(turns > 20, "{turns} turns are no middle");
    assert!(peers[1].received == sent);
}

/// What comes for a connection that its app has closed is answered, and finds its way back: even
/// where no frame has shown it, as those of the handshake do.
#[test]
fn who_sends_to_an_app_that_has_closed_hears_of_it_at_once() {
    let (mut world, mut peers) = connected(1, [SIZES; 2]);
    world.restore(0, |state| state).expect("just saved");
    peers[0].send(&bytes(1000, 1));
    run(&mut world, &mut peers, |peers| peers[1].received.len() == 1000);
    peers[1].close(false);
    run(&mut world, &mut peers, |peers| peers[0].has_heard_all);
    let began = world.now;
    peers[0].send(&bytes(1000, 1));
    run(&mut world, &mut peers, |peers| peers[0].end.is_some());
    assert_eq!(peers[0].end, Some(Code::Reset));
    assert!(world.now.since(began) < MILLISECOND, "{} ns", world.now.since(began));
    assert!(frames(&mut world) <= FRAMES_AT_FIRST, "{} frames", frames(&mut world));
}

/// A pool that is used up while windows are open, by single bytes each of which is a piece.
const TINY: Sizes = Sizes { receive_pool_bytes: 1 << 17, ..SIZES };
const PIECES: usize = TINY.receive_pool_bytes as usize / 64;
/// What fills it.
const FILLING: u8 = 9;

/// An app that reads nothing unless it is told to, and some that send to it. The first has filled
/// its pool, and has a byte left.
struct Crowd {
    world: World,
    server: Peer,
    clients: Vec<Peer>,
    /// What had been sent again by then: a probe, since single bytes are acknowledged late.
    probed: u64,
}

impl Crowd {
    fn new(count: u16) -> Self {
        let mut world = World::at_switch(1, &[1]);
        let to = SocketAddr::new(address(0), SERVER_PORT);
        let mut server = Peer::at(&mut world, 0, to, TINY);
        server.listen();
        let clients = (0..count).map(|number| {
            let from = SocketAddr::new(address(0), CLIENT_PORT + number);
            let mut client = Peer::at(&mut world, 0, from, SIZES);
            client.connect(to);
            world.turn_until(|_| {
                client.poll();
                client.id != 0
            });
            let (connection, option) = (client.id, tcp_option::NO_DELAY);
            client.app.submit(&Command::TcpSet { connection, option, value: 1 });
            client
        });
        let clients = clients.collect();
        let mut crowd = Self { world, server, clients, probed: 0 };
        crowd.fill();
        crowd.wait(SECOND);
        crowd.probed = crowd.sent_again();
        crowd
    }

    /// The first sends single bytes until there is no room for one.
    fn fill(&mut self) {
        let mut before = self.unread();
        loop {
            self.clients[0].send(&[FILLING]);
            self.turns(2);
            if core::mem::replace(&mut before, self.unread()) == self.unread() {
                return;
            }
        }
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.world.turn();
            self.server.app.poll();
            self.clients.iter_mut().for_each(Peer::poll);
        }
    }

    /// Lets time pass in which nothing happens.
    fn wait(&mut self, ns: u64) {
        let until = self.world.now + ns;
        while self.world.now < until {
            self.world.now = self.world.now + MILLISECOND;
            self.turns(1);
        }
    }

    fn unread(&self) -> usize {
        self.server.app.bytes.len()
    }

    /// The server reads so many pieces.
    fn read(&mut self, count: usize) -> Vec<u8> {
        let App { end, bytes, .. } = &mut self.server.app;
        let mut read = Vec::new();
        for told in bytes.drain(..count) {
            read.extend_from_slice(end.receive_bytes(&told.bytes));
            end.release(told.bytes);
        }
        end.flush_releases();
        read
    }

    /// The next that the server gets after it has read one piece.
    fn next(&mut self) -> Vec<u8> {
        self.read(1);
        self.turns(2);
        let told = self.server.app.bytes.back().expect("the pool is full");
        self.server.app.end.receive_bytes(&told.bytes).to_vec()
    }

    fn sent_again(&mut self) -> u64 {
        let flows = self.world.snapshot(0).flows;
        assert!(!flows.is_empty());
        flows.iter().map(|flow| flow.packets_lost).sum()
    }

    /// Nothing was lost, and no timer was waited for.
    #[track_caller]
    fn lost_nothing(&mut self) {
        assert_eq!(self.sent_again(), self.probed);
    }
}

#[test]
fn who_finds_no_room_goes_on_as_soon_as_there_is_some() {
    let mut crowd = Crowd::new(1);
    assert_eq!(crowd.unread(), PIECES);
    for byte in [2, 3] {
        crowd.clients[0].send(&[byte]);
        crowd.turns(1);
    }
    crowd.wait(3 * SECOND);
    assert_eq!(crowd.unread(), PIECES);
    let now = crowd.world.now;
    let turn = crowd.world.member(0).engine.turn(now);
    assert!(!turn.is_busy, "there is nothing to be done");
    assert_eq!(crowd.next(), [FILLING, 2, 3]);
    crowd.lost_nothing();
}

/// Who wants more than there is room for lets the others by, and has its turn.
#[test]
fn those_who_wait_go_on_in_turn() {
    let mut crowd = Crowd::new(4);
    for (client, bytes) in [(1, &[1; 500][..]), (2, &[2]), (3, &[3])] {
        crowd.clients[client].send(bytes);
        crowd.turns(1);
    }
    assert_eq!([crowd.next(), crowd.next(), crowd.next()], [[FILLING], [2], [3]]);
    crowd.read(PIECES);
    crowd.turns(20); // so many commands are not taken at once
    assert_eq!(crowd.read(1), [1; 500]);
    crowd.lost_nothing();
}

/// One after the other, though the app does nothing more.
/// Others want less, and without end.
#[test]
fn who_wants_more_than_others_gets_it_in_parts() {
    let mut crowd = Crowd::new(2);
    let sent = bytes(200, 3);
    crowd.clients[1].send(&sent);
    crowd.turns(1);
    let mut received = Vec::new();
    for pieces in 1.. {
        crowd.clients[0].send(&[FILLING]);
        let piece = crowd.next();
        if !piece.iter().all(|byte| *byte == FILLING) {
            received.extend_from_slice(&piece);
        }
        if received.len() >= 128 {
            assert!((2..20).contains(&pieces), "{pieces} pieces");
            break;
        }
        assert!(pieces < 100, "{} bytes", received.len());
    }
    assert!(sent.starts_with(&received));
    crowd.lost_nothing();
}

#[test]
fn who_waits_behind_many_is_looked_at() {
    let mut crowd = Crowd::new(40);
    for client in 1..40 {
        let bytes = if client == 39 { &[2][..] } else { &[1; 500] };
        crowd.clients[client].send(bytes);
        crowd.turns(1);
    }
    assert_eq!(crowd.next(), [FILLING]);
    crowd.read(1);
    crowd.turns(5);
    let told = crowd.server.app.bytes.back().expect("the pool is full");
    assert_eq!(crowd.server.app.end.receive_bytes(&told.bytes), [2]);
    crowd.lost_nothing();
}

#[test]
fn all_go_on_that_there_is_room_for() {
    let mut crowd = Crowd::new(4);
    for client in 1..4 {
        crowd.clients[client].send(&[2]);
        crowd.turns(1);
    }
    crowd.read(3);
    crowd.turns(5);
    assert_eq!(crowd.unread(), PIECES);
    crowd.lost_nothing();
}

/// Messages take and give the same memory.
#[test]
fn who_waits_goes_on_when_a_message_is_released() {
    let mut crowd = Crowd::new(1);
    crowd.read(PIECES);
    let (mut sender, port) = (crowd.world.attach(0, SIZES), 9);
    crowd.world.listen(&crowd.server.app, port).expect("the port is free");
    let (id, _) = crowd.world.connect(&mut sender, &mut crowd.server.app, port);
    assert!(sender.send(id, b"a message"));
    crowd.world.turn_until(|_| {
        crowd.server.app.poll();
        !crowd.server.app.received.is_empty()
    });
    crowd.fill();
    let before = crowd.unread();
    let message = crowd.server.app.received.pop_front().expect("it has come");
    crowd.server.app.end.release(message.bytes);
    crowd.server.app.end.flush_releases();
    crowd.turns(2);
    assert_eq!(crowd.unread(), before + 1);
    crowd.lost_nothing();
}

#[test]
fn a_window_that_closes_while_there_is_no_room_opens_again() {
    let mut crowd = Crowd::new(2);
    let sent = bytes(100_000, 3);
    crowd.clients[1].send(&sent);
    crowd.turns(1);
    crowd.read(PIECES);
    // Now it has all that its window allows, and the other the rest.
    crowd.turns(20);
    let of_second = |crowd: &Crowd| {
        let told = crowd.server.app.bytes.iter().filter(|told| told.bytes.length() > 1);
        told.map(|told| told.bytes.length() as usize).sum::<usize>()
    };
    let window = of_second(&crowd);
    assert!(window > 0 && window < sent.len(), "{window} bytes");
    crowd.fill();
    let before = crowd.unread();
    crowd.wait(60 * SECOND);
    assert_eq!((crowd.unread(), of_second(&crowd)), (before, window));
    let mut received = Vec::new();
    let mut turns = 0;
    while received.len() < sent.len() {
        let pieces: Vec<_> = (0..crowd.unread()).map(|_| crowd.read(1)).collect();
        received.extend(pieces.into_iter().filter(|piece| piece.len() > 1).flatten());
        crowd.turns(1);
        turns += 1;
        assert!(turns < 1000, "{} of {} bytes", received.len(), sent.len());
    }
    assert!(received == sent);
}

/// Whoever ends it, and in whichever way, the other end hears of it, and nobody waits for ever.
#[test]
fn either_end_may_go_while_one_waits() {
    type End = fn(&mut Crowd);
    let ends: [(End, usize, Code); 5] = [
        (|crowd| crowd.server_end(true), 0, Code::Reset),
        (|crowd| crowd.server_end(false), 0, Code::Reset),
        (|crowd| crowd.remove(crowd.server.app.channel), 0, Code::Reset),
        (|crowd| crowd.clients[0].close(true), 1, Code::Reset),
        (|crowd| crowd.remove(crowd.clients[0].app.channel), 1, Code::Reset),
    ];
    for (end, hears, expected) in ends {
        let mut crowd = Crowd::new(1);
        end(&mut crowd);
        for _ in 0..10 {
            crowd.world.turn();
            crowd.world.audit();
        }
        let Crowd { clients, server, .. } = &mut crowd;
        let heard = match hears {
            0 => {
                clients[0].poll();
                clients[0].end
            }
            _ => {
                server.app.poll();
                server.app.tcp.iter().find_map(|told| match told {
                    Completion::TcpClosed { code, .. } => Some(*code),
                    _ => None,
                })
            }
        };
        assert_eq!(heard, Some(expected));
    }
}

impl Crowd {
    /// The server lets go of its first connection.
    fn server_end(&mut self, abort: bool) {
        let accepted = self.server.app.tcp.iter().find_map(|told| match told {
            Completion::TcpAccepted { connection, .. } => Some(*connection),
            _ => None,
        });
        let connection = accepted.expect("it was told of it");
        self.server.app.submit(&Command::TcpClose { connection, abort });
    }

    fn remove(&mut self, channel: u32) {
        self.world.post(0, clearway_engine::Request::RemoveChannel { channel });
    }
}

/// The reset by which one end goes is taken by an interface for a while.
#[test]
fn an_end_that_nobody_has_heard_of_holds_up_nobody() {
    for (port, has_gone) in [(CLIENT_PORT, 1), (SERVER_PORT, 0)] {
        let mut crowd = Crowd::new(1);
        let mut guard = crowd.world.attach(0, SIZES);
        let filter = format!("tcp dst port {port}").parse().expect("a filter");
        let mac = crowd.world.hosts[0].mac;
        let spec = VifSpec { receive: vec![filter], mac, priority: 9, ..VifSpec::default() };
        crowd.world.open_vif(&guard, 9, spec).expect("nobody asks whether it may");
        match has_gone {
            0 => crowd.clients[0].close(true),
            _ => crowd.server_end(true),
        }
        crowd.turns(10);
        crowd.world.audit();
        guard.poll();
        assert!(!guard.frames.is_empty(), "it has the reset");
        crowd.world.close_vif(&guard, 9);
        if has_gone == 1 {
            let Crowd { world, clients, .. } = &mut crowd;
            world.turn_until(|_| {
                clients[0].poll();
                clients[0].end.is_some()
            });
            assert_eq!(clients[0].end, Some(Code::Reset));
        }
    }
}

#[test]
fn who_waits_goes_on_in_an_engine_that_is_made_again() {
    let mut crowd = Crowd::new(2);
    crowd.clients[1].send(&[2]);
    crowd.turns(1);
    crowd.probed = 0; // what is counted of a connection begins anew
    for is_told in [false, true] {
        let written = |state: State| State::from_bytes(&state.to_bytes()).expect("just saved");
        crowd.world.restore(0, written).expect("just saved");
        if is_told {
            break; // the app releases something before the engine has had a turn
        }
        crowd.wait(SECOND);
    }
    let mut next = [crowd.next(), crowd.next()];
    next.sort_unstable();
    assert_eq!(next, [[2], [FILLING]]);
    crowd.lost_nothing();
}

/// Frames that are seen on their way are held up as well.
#[test]
fn who_is_watched_waits_too() {
    let mut crowd = Crowd::new(1);
    let mut viewer = crowd.world.attach(0, SIZES);
    let spec = CaptureSpec { filter: Vec::new(), app: None, connection: None };
    crowd.world.open_capture(&viewer, 9, spec).expect("captures are always opened");
    crowd.wait(SECOND);
    assert_eq!(crowd.unread(), PIECES);
    assert_eq!(crowd.next(), [FILLING]);
    viewer.poll();
    crowd.lost_nothing();
    crowd.world.close_vif(&viewer, 9);
}
