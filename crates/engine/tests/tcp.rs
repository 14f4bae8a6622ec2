//! TCP as a component: apps of two hosts, over a wire with and without faults. What the stack does
//! with each segment is tested in `clearway-tcp`; here it is whether ports, memory and completions
//! are right.

mod world;

use std::net::SocketAddr;

use clearway_base::SECOND;
use clearway_channel::{Code, Command, Completion, Sizes};
use clearway_engine::{BookState, Event, Request, State, TcpState};
use clearway_nic::fabric;
use world::tcp::{Peer, bytes, spec};
use world::{App, SIZES, World, address};

const SERVER_PORT: u16 = 8080;
const CLIENT_PORT: u16 = 40_000;

/// Two apps whose connection is open: who has opened it first.
fn connected(world: &mut World, sizes: [Sizes; 2]) -> [Peer; 2] {
    let mut server = port(world, 1, SERVER_PORT, sizes[1]);
    server.listen();
    let mut client = port(world, 0, CLIENT_PORT, sizes[0]);
    connect(&mut client);
    run(world, [&mut client, &mut server], |[client, server]| client.id != 0 && server.id != 0);
    [client, server]
}

fn connect(client: &mut Peer) {
    client.connect(SocketAddr::new(address(1), SERVER_PORT));
}

fn port(world: &mut World, host: usize, port: u16, sizes: Sizes) -> Peer {
    Peer::at(world, host, SocketAddr::new(address(host), port), sizes)
}

#[track_caller]
fn run(world: &mut World, peers: [&mut Peer; 2], done: impl Fn(&[&mut Peer; 2]) -> bool) {
    let mut peers = peers;
    world.turn_until(|_| {
        peers.iter_mut().for_each(|peer| peer.poll());
        done(&peers)
    });
}

#[test]
fn bytes_go_both_ways_and_both_ends_close() {
    let mut world = World::new(1, fabric::Faults::default());
    let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
    let (question, answer) = (bytes(3000, 1), bytes(100_000, 2));
    client.send(&question);
    run(&mut world, [&mut client, &mut server], |[_, server]| server.received.len() == 3000);
    server.send(&answer);
    server.shutdown();
    run(&mut world, [&mut client, &mut server], |[client, _]| client.has_heard_all);
    assert_eq!((&server.received, &client.received), (&question, &answer));
    // The other half is still open.
    client.send(b"thanks");
    client.shutdown();
    run(&mut world, [&mut client, &mut server], |peers| peers.iter().all(|it| it.end.is_some()));
    assert_eq!(server.received[3000..], *b"thanks");
    assert_eq!([client.end, server.end], [Some(Code::Closed); 2]);
    for peer in [&client, &server] {
        assert!(peer.sent.is_empty());
        assert_eq!(peer.app.end.transmit_pool_used_bytes(), 0, "all extents are back");
    }
}

#[test]
fn segments_that_come_together_share_a_buffer() {
    let mut world = World::new(1, fabric::Faults::default());
    let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
    let sent = bytes(60_000, 2);
    server.send(&sent);
    run(&mut world, [&mut client, &mut server], |[client, _]| client.received.len() == 60_000);
    assert_eq!(client.received, sent);
    let segments = 60_000_u32.div_ceil(1448);
    assert!(client.pieces < segments / 2, "{} of {segments}", client.pieces);
}

/// The pool has two slabs, each cut for one size, and the app keeps a piece of each.
#[test]
fn what_finds_no_memory_together_is_taken_one_by_one() {
    let mut world = World::new(1, fabric::Faults::default());
    let small = Sizes { receive_pool_bytes: 1 << 17, ..SIZES };
    let [mut client, mut server] = connected(&mut world, [small, SIZES]);
    for (length, pieces) in [(1400, 1), (60, 2)] {
        server.send(&bytes(length, 1));
        world.turn_until(|_| {
            client.app.poll();
            server.poll();
            client.app.bytes.len() == pieces
        });
    }
    server.send(&bytes(4 * 1448, 3));
    // Far less than a retransmission would take.
    for _ in 0..200 {
        world.turn();
        client.app.poll();
    }
    let lengths =
        client.app.bytes.iter().map(|told| client.app.end.receive_bytes(&told.bytes).len());
    assert_eq!(lengths.sum::<usize>(), 1460 + 4 * 1448);
}

#[test]
fn streams_are_whole_over_a_bad_wire() {
    let faults = fabric::Faults { loss_ppm: 20_000, ..fabric::Faults::default() };
    for seed in 0..8 {
        let mut world = World::new(seed, faults);
        let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
        let (there, back) = (bytes(400_000, 3), bytes(300_000, 5));
        for part in there.chunks(50_000) {
            client.send(part);
        }
        for part in back.chunks(7_000) {
            server.send(part);
        }
        client.close(false);
        server.shutdown();
        run(&mut world, [&mut client, &mut server], |[client, server]| {
            client.end.is_some() && server.end.is_some()
        });
        // Who lets go of a connection hears no more of it.
        assert!(server.received == there || server.end == Some(Code::Reset), "seed {seed}");
    }
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let mut world = World::new(1, fabric::Faults::default());
    let mut server = port(&mut world, 1, SERVER_PORT, SIZES);
    let mut client = port(&mut world, 0, CLIENT_PORT, SIZES);
    connect(&mut client);
    run(&mut world, [&mut client, &mut server], |[client, _]| client.end.is_some());
    assert_eq!(client.end, Some(Code::Refused));
}

#[test]
fn a_host_that_is_not_there_is_unreachable() {
    let mut world = World::new(1, fabric::Faults::default());
    let mut client = port(&mut world, 0, CLIENT_PORT, SIZES);
    let mut other = port(&mut world, 1, SERVER_PORT, SIZES);
    client.connect(SocketAddr::new(address(7), SERVER_PORT));
    run(&mut world, [&mut client, &mut other], |[client, _]| client.end.is_some());
    assert_eq!(client.end, Some(Code::Unreachable));
}

/// Attempts wait for a neighbour for ten seconds.
#[test]
fn who_has_left_opens_nothing() {
    let mut world = World::new(1, fabric::Faults::default());
    let mut client = port(&mut world, 0, CLIENT_PORT, SIZES);
    client.connect(SocketAddr::new(address(7), SERVER_PORT));
    (0..10).for_each(|_| world.turn());
    let channel = client.app.channel;
    world.post(0, Request::LetLinger { channel, linger_ns: 100 * SECOND });
    (0..1000).for_each(|_| world.turn());
    let is_gone = |event: &Event| matches!(event, Event::ChannelRemoved { .. });
    assert!(world.hosts[0].members[0].events.iter().any(is_gone));
}

#[test]
fn whose_port_is_taken_away_hears_of_its_attempts() {
    for (told, code) in [(None, Code::Closed), (Some(Code::Denied), Code::Denied)] {
        let mut world = World::new(1, fabric::Faults::default());
        let mut client = port(&mut world, 0, CLIENT_PORT, SIZES);
        client.connect(SocketAddr::new(address(7), SERVER_PORT));
        (0..10).for_each(|_| world.turn());
        client.poll();
        assert_eq!(client.end, None);
        let (channel, vif) = (client.app.channel, client.port);
        world.post(0, Request::CloseVif { channel, vif, told });
        (0..1000).for_each(|_| world.turn());
        client.poll();
        assert_eq!(client.end, Some(code));
    }
}

#[test]
fn an_app_that_goes_resets_its_peers() {
    let mut world = World::new(1, fabric::Faults::default());
    let [client, mut server] = connected(&mut world, [SIZES; 2]);
    server.send(&bytes(1 << 20, 1));
    world.post(0, Request::RemoveChannel { channel: client.app.channel });
    world.turn_until(|_| {
        server.poll();
        server.end.is_some()
    });
    assert_eq!(server.end, Some(Code::Reset));
    assert_eq!(server.app.end.transmit_pool_used_bytes(), 0);
}

/// What it has sent goes on, but it accepts nobody any more, though its port is still its own.
#[test]
fn who_has_left_accepts_nobody() {
    let mut world = World::new(1, fabric::Faults::default());
    let small = Sizes { receive_pool_bytes: 1 << 18, ..SIZES };
    let [client, mut server] = connected(&mut world, [small, SIZES]);
    server.send(&bytes(1 << 20, 1));
    (0..1000).for_each(|_| world.turn());
    let channel = server.app.channel;
    world.post(1, Request::LetLinger { channel, linger_ns: 100 * SECOND });
    assert_eq!(world.snapshot(1).flows.len(), 1, "its peer has not read all");
    let mut late = port(&mut world, 0, CLIENT_PORT + 1, SIZES);
    connect(&mut late);
    run(&mut world, [&mut late, &mut server], |[late, _]| late.end.is_some() || late.id != 0);
    assert_eq!(late.end, Some(Code::Refused));
    drop(client);
}

/// Its channel and its port go when all is delivered, whatever its peers have open still. They are
/// not reset before they send what nobody reads.
#[test]
fn who_has_left_does_not_wait_for_its_peers_to_close() {
    let is_gone = |event: &Event| matches!(event, Event::ChannelRemoved { .. });
    for (has_shut, has_closed) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new(1, fabric::Faults::default());
        let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
        server.send(b"farewell");
        if has_shut {
            server.shutdown();
            run(&mut world, [&mut client, &mut server], |[client, _]| client.has_heard_all);
        }
        if has_closed {
            server.close(false);
        }
        let channel = server.app.channel;
        world.post(1, Request::LetLinger { channel, linger_ns: 100 * SECOND });
        (0..1000).for_each(|_| world.turn());
        assert!(world.hosts[1].members[0].events.iter().any(is_gone), "{has_shut} {has_closed}");
        client.poll();
        assert_eq!((&client.received[..], client.has_heard_all), (&b"farewell"[..], true));
        assert_eq!(client.end, None);
        client.send(b"too late");
        world.turn_until(|_| {
            client.poll();
            client.end.is_some()
        });
        assert_eq!(client.end, Some(Code::Reset));
    }
}

/// What was never acknowledged is not told as finished before the end is told: whoever lingers
/// looks at any moment.
#[test]
fn what_a_reset_ends_is_never_told_as_acknowledged() {
    let mut world = World::new(1, fabric::Faults::default());
    let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
    client.send(b"it arrives");
    run(&mut world, [&mut client, &mut server], |[client, _]| client.finished == 1);
    world.fabric.set_cut(0, 1, true);
    client.send(b"it does not");
    (0..10).for_each(|_| world.turn());
    server.close(true);
    let mut told = Vec::new();
    world.turn_until(|_| {
        client.app.poll();
        told.extend(client.app.tcp.drain(..));
        matches!(told.last(), Some(Completion::TcpClosed { .. }))
    });
    let [Completion::TcpClosed { code, sent, .. }] = told[..] else { panic!("{told:?}") };
    assert_eq!((code, sent), (Code::Reset, 1));
}

#[test]
fn who_does_not_read_holds_up_its_peer_and_nobody_else() {
    let mut world = World::new(1, fabric::Faults::default());
    let small = Sizes { receive_pool_bytes: 1 << 18, ..SIZES };
    let [mut client, mut server] = connected(&mut world, [SIZES, small]);
    let sent = bytes(1 << 20, 9);
    for part in sent.chunks(1 << 16) {
        client.send(part);
    }
    // The server takes nothing: its window fills, and stays so for a while.
    for _ in 0..200_000 {
        world.turn();
    }
    assert!(client.sent.len() >= 14, "{} of 16 are not acknowledged", client.sent.len());
    run(&mut world, [&mut client, &mut server], |[_, server]| server.received.len() == 1 << 20);
    assert!(server.received == sent);
}

/// What comes out of order takes half of the pool at most: else nothing could be read, and nothing
/// released.
#[test]
fn a_small_pool_and_a_bad_wire_hold_up_nobody_for_ever() {
    let faults = fabric::Faults { loss_ppm: 50_000, ..fabric::Faults::default() };
    let small = Sizes { receive_pool_bytes: 1 << 16, ..SIZES };
    for seed in 0..4 {
        let mut world = World::new(seed, faults);
        let [mut client, mut server] = connected(&mut world, [SIZES, small]);
        let sent = bytes(200_000, 3);
        client.send(&sent);
        client.shutdown();
        run(&mut world, [&mut client, &mut server], |[_, server]| server.has_heard_all);
        assert!(server.received == sent, "seed {seed}");
    }
}

#[test]
fn status_shows_connections() {
    let mut world = World::new(1, fabric::Faults::default());
    let [client, _server] = connected(&mut world, [SIZES; 2]);
    let flows = world.snapshot(0).flows;
    let [flow] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!((flow.path, flow.state, flow.connection), ("tcp", "open", client.id));
    assert_eq!(flow.peer, SocketAddr::new(address(1), SERVER_PORT));
    assert_eq!((flow.channel, flow.packet_bytes), (client.app.channel, 1448));
}

/// Attempts that wait for a host that does not answer leave room for other apps'.
#[test]
fn attempts_to_connect_are_shared() {
    let mut world = World::new(1, fabric::Faults::default());
    let mut apps = [0, 1].map(|number| {
        let at = SocketAddr::new(address(0), CLIENT_PORT + number);
        let app = world.attach_with(0, SIZES, 1000);
        Peer::with_port(&mut world, 0, at, app)
    });
    let nobody = std::net::IpAddr::from([10, 7, 0, 77]);
    let refused = |peer: &mut Peer, world: &mut World, count: u64| {
        for token in 0..count {
            let (port, peer_address) = (peer.port, SocketAddr::new(nobody, 1000 + token as u16));
            peer.app.submit(&Command::TcpConnect { token, port, peer: peer_address });
        }
        (0..20).for_each(|_| world.turn());
        peer.app.poll();
        let told = peer.app.tcp.drain(..);
        let is_limit = |told: &Completion| {
            matches!(told, Completion::TcpConnectFailed { code: Code::Limit, .. })
        };
        told.filter(is_limit).count()
    };
    assert_eq!(refused(&mut apps[0], &mut world, 200), 72, "half of 256 are one app's");
    assert_eq!(refused(&mut apps[1], &mut world, 10), 0);
}

#[test]
fn an_engine_is_made_again_under_a_connection() {
    let mut world = World::new(1, fabric::Faults::default());
    let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
    client.send(&bytes(200_000, 4));
    (0..200).for_each(|_| world.turn());
    for host in [0, 1] {
        remake(&mut world, host);
    }
    client.shutdown();
    server.shutdown();
    run(&mut world, [&mut client, &mut server], |peers| peers.iter().all(|it| it.end.is_some()));
    assert_eq!([client.end, server.end], [Some(Code::Closed); 2]);
    assert!(server.received == bytes(200_000, 4));
}

/// Which of two listeners of a port is whose, the next engine knows, too.
#[test]
fn an_engine_is_made_again_under_listeners_of_one_port() {
    let mut world = World::new(1, fabric::Faults::default());
    let mut servers = [0, 1].map(|_| port(&mut world, 1, SERVER_PORT, SIZES));
    for server in servers.iter_mut().rev() {
        server.listen();
        world.turn();
    }
    remake(&mut world, 1);
    let [first, second] = &mut servers;
    first.app.submit(&Command::TcpListen { port: first.port, backlog: 0 });
    let mut client = port(&mut world, 0, CLIENT_PORT, SIZES);
    connect(&mut client);
    run(&mut world, [&mut client, second], |[client, server]| client.id != 0 && server.id != 0);
}

/// Saves an engine, and goes on with another.
fn remake(world: &mut World, host: usize) {
    let before = world.hosts[host].members[0].engine.save().to_bytes();
    let written = |state: State| State::from_bytes(&state.to_bytes()).expect("just saved");
    world.restore(host, written).expect("just saved");
    let after = world.hosts[host].members[0].engine.save().to_bytes();
    assert!(after == before, "what is saved is what was");
}

#[test]
fn commands_of_others_connections_do_nothing() {
    let mut world = World::new(1, fabric::Faults::default());
    let [mut client, mut server] = connected(&mut world, [SIZES; 2]);
    let mut stranger = port(&mut world, 0, CLIENT_PORT + 1, SIZES);
    stranger.id = client.id;
    stranger.send(b"forged");
    stranger.close(true);
    let peer = SocketAddr::new(address(1), SERVER_PORT);
    stranger.app.submit(&Command::TcpConnect { token: 1, port: client.port, peer });
    stranger.app.submit(&Command::TcpListen { port: client.port, backlog: 1 });
    client.send(b"genuine");
    run(&mut world, [&mut client, &mut server], |[_, server]| server.received.len() >= 7);
    stranger.poll();
    assert_eq!((&server.received[..], stranger.end), (&b"genuine"[..], Some(Code::Invalid)));
    assert_eq!(client.end, None);
}

const MANY: u16 = 400;
/// What is ended, closed or removed in a turn.
const PER_TURN: usize = 64;

/// An app with as many ports as connections, and one with one port, to which they all lead.
fn many_connected(world: &mut World) -> (App, Peer) {
    let mut server = world.attach_with(1, SIZES, MANY.into());
    let mut client = world.attach_with(0, SIZES, MANY.into());
    let at = SocketAddr::new(address(1), SERVER_PORT);
    let mut server_port = Peer::with_port(world, 1, at, server);
    server_port.listen();
    for number in 0..MANY {
        let at = SocketAddr::new(address(0), CLIENT_PORT + number);
        let (channel, port) = (client.channel, 1000 + u32::from(number));
        let spec = Box::new(spec(world.hosts[0].mac, None, at));
        world.post(0, Request::OpenTcpPort { channel, number: port, spec });
        let peer = SocketAddr::new(address(1), SERVER_PORT);
        client.submit(&Command::TcpConnect { token: 1, port, peer });
    }
    server = server_port.app;
    world.turn_until(|_| {
        server.poll();
        client.poll();
        [&server, &client].iter().all(|app| app.tcp.len() == usize::from(MANY))
    });
    (client, Peer { app: server, ..server_port })
}

/// What an engine has of TCP.
fn tcp_of(world: &World, host: usize) -> TcpState {
    world.hosts[host].members[0].engine.save().tcp
}

/// Turns until `left` says that nothing is; it never falls by more than is done in a turn. The
/// engine is made again on the way.
fn falls_bit_by_bit(world: &mut World, host: usize, mut left: impl FnMut(&TcpState) -> usize) {
    let (mut before, mut turns) = (left(&tcp_of(world, host)), 0);
    assert!(before > PER_TURN, "there is something to be done: {before}");
    while before > 0 {
        world.turn();
        let now = left(&tcp_of(world, host));
        assert!(now + PER_TURN >= before, "{before} to {now} in a turn");
        (before, turns) = (now, turns + 1);
        if turns == 1 {
            remake(world, host);
        }
        assert!(turns < 1000, "{before} are left");
    }
}

#[test]
fn a_port_is_closed_bit_by_bit() {
    let mut world = World::new(1, fabric::Faults::default());
    let (_client, mut server) = many_connected(&mut world);
    server.app.tcp.clear();
    let (channel, vif) = (server.app.channel, server.port);
    let is_told = |event: &Event| matches!(event, Event::VifClosed { .. });
    let events = |world: &World| world.hosts[1].members[0].events.iter().any(is_told);
    world.post(1, Request::CloseVif { channel, vif, told: Some(Code::Denied) });
    // Nothing can be done with it any more, and who comes next may have its place.
    server.app.submit(&Command::TcpListen { port: vif, backlog: 1 });
    server.app.submit(&Command::TcpConnect {
        token: 9,
        port: vif,
        peer: SocketAddr::new(address(0), 1),
    });
    let mut next = port(&mut world, 1, SERVER_PORT, SIZES);
    next.listen();
    assert!(!events(&world), "it is being closed");
    falls_bit_by_bit(&mut world, 1, |tcp| tcp.books.len());
    world.turn();
    assert!(events(&world));
    let ended =
        |told: &&Completion| matches!(told, Completion::TcpClosed { code: Code::Denied, .. });
    world.turn_until(|_| {
        server.app.poll();
        server.app.tcp.iter().filter(ended).count() == usize::from(MANY)
    });
    let refused = Completion::TcpConnectFailed { token: 9, code: Code::Denied };
    assert!(server.app.tcp.contains(&refused), "{:?}", server.app.tcp);
    assert_eq!(tcp_of(&world, 1).closing, []);
    let mut late = port(&mut world, 0, 1000, SIZES);
    connect(&mut late);
    run(&mut world, [&mut late, &mut next], |[late, next]| late.id != 0 && next.id != 0);
}

#[test]
fn connections_of_an_app_that_has_left_are_closed_bit_by_bit() {
    let mut world = World::new(1, fabric::Faults::default());
    let (client, _server) = many_connected(&mut world);
    let channel = client.channel;
    world.post(0, Request::LetLinger { channel, linger_ns: 100 * SECOND });
    let is_open = |book: &&BookState| !book.is_closing;
    falls_bit_by_bit(&mut world, 0, |tcp| tcp.books.iter().filter(is_open).count());
}

#[test]
fn ports_of_an_app_that_is_gone_are_removed_bit_by_bit() {
    let mut world = World::new(1, fabric::Faults::default());
    let (client, _server) = many_connected(&mut world);
    // One of them is being closed, and its app is told of nothing any more.
    let (channel, vif) = (client.channel, 1000);
    world.post(0, Request::CloseVif { channel, vif, told: Some(Code::Denied) });
    world.post(0, Request::RemoveChannel { channel });
    falls_bit_by_bit(&mut world, 0, |tcp| tcp.books.len() + tcp.ports.len());
    world.turn();
    let is_gone = |event: &Event| matches!(event, Event::ChannelRemoved { .. });
    assert!(world.hosts[0].members[0].events.iter().any(is_gone));
}
