//! TCP between two apps of one engine: by one copy, and without frames as long as nobody watches.
//! What can be seen of it otherwise is as over the wire.

mod world;

use std::net::SocketAddr;

use clearway_channel::{Code, Command, Completion, Sizes};
use clearway_engine::{CaptureSpec, State, VifSpec};
use world::tcp::{Peer, bytes, exchange, run};
use world::{SIZES, World, address};

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
