//! Apps on two hosts, and on one, through real channels and engines.

mod world;

use std::net::SocketAddr;

use clearway_base::SECOND;
use clearway_channel::{Code, Command, Sizes, Violation};
use clearway_engine::{Allowance, Event, PingFailure, Request};
use clearway_nic::fabric::Faults;
use world::{App, SIZES, World, address};

#[test]
fn a_message_travels_there_and_back() {
    for server_host in [1, 0] {
        let mut world = World::new(1, Faults::default());
        let (mut client, mut server) = (world.attach(0, SIZES), world.attach(server_host, SIZES));
        assert_eq!(world.listen(&server, 7000), Ok(()));
        let (near, far) = world.connect(&mut client, &mut server, 7000);
        for length in [0, 1, 64, 1500, 32_768, 8 << 20] {
            let message: Vec<u8> = (0..length as u32).map(|at| (at * 7) as u8).collect();
            assert!(client.send(near, &message));
            world.turn_until(|_| {
                server.poll();
                !server.received.is_empty()
            });
            let received = server.received.pop_front().expect("just seen");
            assert_eq!((received.connection, server.bytes(&received)), (far, &message[..]));
            let echo = server.bytes(&received).to_vec();
            assert!(server.send(far, &echo));
            server.release(received);
            world.turn_until(|_| {
                client.poll();
                !client.received.is_empty()
            });
            let received = client.received.pop_front().expect("just seen");
            assert_eq!(client.bytes(&received), message);
            client.release(received);
        }
        world.turn_until(|_| {
            client.poll();
            server.poll();
            client.unfinished() + server.unfinished() == 0
        });
    }
}

/// Whose a frame is does not depend on what those before it were.
#[test]
fn packets_to_an_address_that_is_gone_are_nobodys() {
    let mut world = World::new(21, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let (near, _) = world.connect(&mut client, &mut server, 7000);
    let mut send = |world: &mut World, turns| {
        assert!(client.send(near, &[3; 64]));
        (0..turns).for_each(|_| world.turn());
        server.poll();
        server.received.len()
    };
    for count in 1..=3 {
        assert_eq!(send(&mut world, 10), count);
    }
    world.set_addresses(1, vec![(address(7), 24)]);
    assert_eq!(send(&mut world, 100), 3, "the flow has lost its address");
    world.set_addresses(1, vec![(address(1), 24)]);
    world.turn_until(|_| {
        server.poll();
        server.received.len() == 4
    });
}

#[test]
fn both_apps_see_an_orderly_close_after_the_last_message() {
    for server_host in [1, 0] {
        let mut world = World::new(2, Faults::default());
        let (mut client, mut server) = (world.attach(0, SIZES), world.attach(server_host, SIZES));
        world.listen(&server, 7000).expect("free");
        let (near, far) = world.connect(&mut client, &mut server, 7000);
        for _ in 0..20 {
            assert!(client.send(near, &[5; 3000]));
        }
        client.submit(&Command::Close { connection: near, abort: false });
        world.turn_until(|_| {
            client.poll();
            server.poll();
            !client.closed.is_empty() && !server.closed.is_empty()
        });
        assert_eq!(client.closed, [(near, Code::Closed)]);
        assert_eq!(server.closed, [(far, Code::Closed)]);
        assert_eq!(server.received.len(), 20);
    }
}

/// An app sends until its ring is full, and ends: all of it arrives, then an orderly close, also if
/// nobody reads what it is told, and the channel is given back at once.
#[test]
fn what_an_app_has_sent_outlives_its_orderly_end() {
    for server_host in [1, 0] {
        let faults = Faults { loss_ppm: 100_000, ..Faults::default() };
        let mut world = World::new(12, faults);
        let small = Sizes { submission_entries: 64, completion_entries: 16, ..SIZES };
        let (mut client, mut server) = (world.attach(0, small), world.attach(server_host, SIZES));
        world.listen(&server, 7000).expect("free");
        let (near, far) = world.connect(&mut client, &mut server, 7000);
        // Far more answers than the ring has room for.
        for _ in 0..100 {
            assert!(server.send(far, b"nobody reads this"));
        }
        while client.send(near, &[5; 3000]) {}
        let sent = client.unfinished();
        assert!(sent >= 60, "{sent}");
        world.post(0, Request::LetLinger { channel: client.channel, linger_ns: 10 * SECOND });
        world.turn_until(|_| {
            server.poll();
            !server.closed.is_empty()
        });
        assert_eq!(server.closed, [(far, Code::Closed)], "host {server_host}");
        assert_eq!(server.received.len(), sent);
        let begin = world.now;
        let removed = |event: &Event| matches!(event, Event::ChannelRemoved { .. });
        world.turn_until(|world| world.hosts[0].members[0].events.iter().any(removed));
        assert!(world.now.since(begin) < SECOND);
    }
}

/// A peer that does not read keeps the channel of an app that has ended no longer than it may.
#[test]
fn nobody_lingers_for_longer_than_allowed() {
    let mut world = World::new(13, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let (near, far) = world.connect(&mut client, &mut server, 7000);
    for _ in 0..14 {
        assert!(client.send(near, &[5; 1 << 20]));
    }
    let begin = world.now;
    world.post(0, Request::LetLinger { channel: client.channel, linger_ns: 2 * SECOND });
    let removed = |event: &Event| matches!(event, Event::ChannelRemoved { .. });
    world.turn_until(|world| world.hosts[0].members[0].events.iter().any(removed));
    assert!((2 * SECOND..3 * SECOND).contains(&world.now.since(begin)));
    world.turn_until(|_| {
        server.poll();
        !server.closed.is_empty()
    });
    assert_eq!(server.closed, [(far, Code::Reset)]);
}

#[test]
fn an_abort_and_the_death_of_an_app_are_a_reset_for_its_peer() {
    for (server_host, dies) in [(1, false), (1, true), (0, false), (0, true)] {
        let mut world = World::new(3, Faults::default());
        let (mut client, mut server) = (world.attach(0, SIZES), world.attach(server_host, SIZES));
        world.listen(&server, 7000).expect("free");
        let (near, far) = world.connect(&mut client, &mut server, 7000);
        if dies {
            world.post(0, Request::RemoveChannel { channel: client.channel });
        } else {
            client.submit(&Command::Close { connection: near, abort: true });
        }
        world.turn_until(|_| {
            server.poll();
            !server.closed.is_empty()
        });
        assert_eq!(server.closed, [(far, Code::Reset)], "host {server_host}, dies {dies}");
    }
}

#[test]
fn ports_and_connections_are_free_again_after_an_app_is_gone() {
    let mut world = World::new(4, Faults::default());
    let server = world.attach(1, SIZES);
    let other = world.attach(1, SIZES);
    assert_eq!(world.listen(&server, 7000), Ok(()));
    assert_eq!(world.listen(&other, 7000), Err(Code::AddressInUse));
    world.post(1, Request::RemoveChannel { channel: server.channel });
    assert!(
        world.hosts[1].members[0]
            .events
            .iter()
            .any(|event| matches!(event, Event::ChannelRemoved { .. }))
    );
    assert!(server.end.is_closed());
    assert_eq!(world.listen(&other, 7000), Ok(()));
}

#[test]
fn connecting_to_nobody_fails_with_the_reason() {
    let mut world = World::new(5, Faults::default());
    let mut client = world.attach(0, SIZES);
    let cases = [
        (SocketAddr::new(address(1), 7000), Code::Refused),
        (SocketAddr::new(address(0), 7000), Code::Refused),
        (SocketAddr::new(address(9), 7000), Code::Unreachable),
        (SocketAddr::from(([192, 0, 2, 1], 7000)), Code::Unreachable),
    ];
    for (peer, expected) in cases {
        client.submit(&Command::Connect { token: 9, peer });
        world.turn_until(|_| {
            client.poll();
            !client.failed.is_empty()
        });
        assert_eq!(client.failed.pop(), Some(expected), "{peer}");
    }
}

#[test]
fn an_app_that_does_not_read_stops_only_its_own_senders() {
    for server_host in [1, 0] {
        let mut world = World::new(6, Faults::default());
        let mut client = world.attach(0, SIZES);
        let (mut lazy, mut busy) =
            (world.attach(server_host, SIZES), world.attach(server_host, SIZES));
        world.listen(&lazy, 7000).expect("free");
        world.listen(&busy, 7001).expect("free");
        let (to_lazy, _) = world.connect(&mut client, &mut lazy, 7000);
        let (to_busy, _) = world.connect(&mut client, &mut busy, 7001);
        for _ in 0..300 {
            assert!(client.send(to_lazy, &[1; 20_000]));
            world.turn();
        }
        let mut echoed = 0;
        while echoed < 500 {
            assert!(client.send(to_busy, &[2; 100]));
            world.turn_until(|_| {
                busy.poll();
                !busy.received.is_empty()
            });
            let message = busy.received.pop_front().expect("just seen");
            busy.release(message);
            client.poll();
            echoed += 1;
        }
        // Now it reads, and gets everything.
        let mut read = 0;
        world.turn_until(|_| {
            lazy.poll();
            while let Some(message) = lazy.received.pop_front() {
                lazy.release(message);
                read += 1;
            }
            client.poll();
            read == 300
        });
    }
}

/// What an app has read is told in time for the next message, and not when its sender has had to
/// stop.
#[test]
fn large_messages_follow_each_other_without_a_rest() {
    let mut world = World::new(8, Faults::default());
    let sizes = Sizes { receive_pool_bytes: 4 << 20, ..SIZES };
    let (mut client, mut server) = (world.attach(0, sizes), world.attach(1, sizes));
    world.listen(&server, 7000).expect("free");
    let (connection, _) = world.connect(&mut client, &mut server, 7000);
    for number in 0..200 {
        assert!(client.send(connection, &[1; 32 << 10]));
        let has_come = (0..500).any(|_| {
            world.turn();
            client.poll();
            server.poll();
            !server.received.is_empty()
        });
        assert!(has_come, "message {number} takes more than 500 microseconds");
        let message = server.received.pop_front().expect("just seen");
        server.end.release(message.bytes);
        server.end.flush();
    }
}

/// The peers of messages that are released together each hear of their own.
#[test]
fn what_several_connections_brought_can_be_released_together() {
    for server_host in [1, 0] {
        let mut world = World::new(7, Faults::default());
        let (mut client, mut server) = (world.attach(0, SIZES), world.attach(server_host, SIZES));
        world.listen(&server, 7000).expect("free");
        let (first, _) = world.connect(&mut client, &mut server, 7000);
        let (second, _) = world.connect(&mut client, &mut server, 7000);
        // Several windows of each in all.
        for _ in 0..20 {
            for connection in [first, second].repeat(7) {
                assert!(client.send(connection, &[1; 20_000]));
            }
            world.turn_until(|_| {
                client.poll();
                server.poll();
                server.received.len() == 14
            });
            let mut messages: Vec<_> = server.received.drain(..).collect();
            messages.sort_by_key(|message| message.connection);
            messages.into_iter().for_each(|message| server.end.release(message.bytes));
            server.end.flush_releases();
        }
    }
}

#[test]
fn a_message_to_oneself_arrives() {
    let mut world = World::new(7, Faults::default());
    let mut app = world.attach(0, SIZES);
    world.listen(&app, 7000).expect("free");
    app.submit(&Command::Connect { token: 1, peer: SocketAddr::new(address(0), 7000) });
    world.turn_until(|_| {
        app.poll();
        !app.connected.is_empty() && !app.accepted.is_empty()
    });
    let near = app.connected[0];
    assert!(app.send(near, b"to myself"));
    world.turn_until(|_| {
        app.poll();
        !app.received.is_empty()
    });
    let message = app.received.pop_front().expect("just seen");
    assert_eq!(app.bytes(&message), b"to myself");
}

#[test]
fn a_send_on_a_stream_that_is_not_there_ends_the_session() {
    let mut world = World::new(11, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let (near, far) = world.connect(&mut client, &mut server, 7000);
    client.submit(&Command::Send { connection: near, stream: 7, offset: 0, length: 10 });
    world.turn();
    let violation = world.hosts[0].members[0].events.iter().find_map(|event| match event {
        Event::Violation { channel, violation } if *channel == client.channel => Some(*violation),
        _ => None,
    });
    assert_eq!(violation, Some(Violation::Stream(7)));
    world.post(0, Request::RemoveChannel { channel: client.channel });
    world.turn_until(|_| {
        server.poll();
        !server.closed.is_empty()
    });
    assert_eq!(server.closed, [(far, Code::Reset)]);
    assert!(server.received.is_empty());
}

/// A flow whose peer has closed goes on for a while to acknowledge that. Its app may have gone, and
/// another one have its channel: status asked of such a flow once ended the engine.
#[test]
fn status_gives_nobody_the_flow_of_an_app_that_is_gone() {
    let mut world = World::new(31, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let (near, _) = world.connect(&mut client, &mut server, 7000);
    client.submit(&Command::Close { connection: near, abort: false });
    world.turn_until(|_| {
        server.poll();
        !server.closed.is_empty()
    });
    world.post(1, Request::RemoveChannel { channel: server.channel });
    let (_next, request) =
        App::attaching(1, server.channel, 9, SIZES, Allowance::of_connections(64));
    world.post(1, request);
    let snapshot = world.snapshot(1);
    assert_eq!(snapshot.channels.len(), 1, "the next app's");
    assert_eq!(snapshot.flows.len(), 1, "it is still there");
    let flow = &snapshot.flows[0];
    assert_eq!((flow.channel, flow.connection, flow.state), (0, 0, "drained"));
}

#[test]
fn status_tells_of_apps_flows_and_counters() {
    let mut world = World::new(8, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let (near, _) = world.connect(&mut client, &mut server, 7000);
    assert!(client.send(near, b"counted"));
    world.turn_until(|_| {
        server.poll();
        !server.received.is_empty()
    });
    world.post(1, Request::Snapshot { id: 77 });
    let snapshot = world.hosts[1].members[0].events.drain(..).find_map(|event| match event {
        Event::Snapshot { id: 77, snapshot } => Some(snapshot),
        _ => None,
    });
    let snapshot = snapshot.expect("answered in one turn");
    assert_eq!(snapshot.engine, "host-1");
    assert_eq!(snapshot.channels[0].messages_received, 1);
    assert_eq!((snapshot.listeners[0].port, snapshot.flows[0].path), (7000, "wire"));
    assert!(snapshot.counters.contains(&("messages_delivered", 1)));
    assert_eq!(snapshot.queues[0].driver, "fabric");
}

#[test]
fn a_ping_is_answered_or_fails() {
    let mut world = World::new(9, Faults::default());
    for (id, peer) in [(1, address(1)), (2, address(9))] {
        world.post(0, Request::Ping { id, peer, udp_port: None, bytes: 64 });
        let mut answer = None;
        world.turn_until(|world| {
            answer = world.hosts[0].members[0].events.drain(..).find_map(|event| match event {
                Event::Pong { id: other, result } if other == id => Some(result),
                _ => None,
            });
            answer.is_some()
        });
        match answer.expect("just seen") {
            Ok(rtt_ns) => assert!(id == 1 && rtt_ns > 0),
            Err(failure) => assert_eq!((id, failure), (2, PingFailure::NoNeighbour)),
        }
    }
}

#[test]
fn shutting_down_resets_every_connection_and_closes_every_channel() {
    let mut world = World::new(10, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    let (_, far) = world.connect(&mut client, &mut server, 7000);
    world.post(0, Request::Shutdown);
    assert!(world.hosts[0].members[0].engine.has_ended() && client.end.is_closed());
    world.turn_until(|_| {
        server.poll();
        !server.closed.is_empty()
    });
    assert_eq!(server.closed, [(far, Code::Reset)]);
}

/// They open the connection again when they attach again, as they do those to other hosts.
#[test]
fn shutting_down_tells_two_apps_of_the_host_nothing_of_their_connection() {
    let mut world = World::new(10, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(0, SIZES));
    world.listen(&server, 7000).expect("free");
    world.connect(&mut client, &mut server, 7000);
    world.post(0, Request::Shutdown);
    for app in [&mut client, &mut server] {
        app.poll();
        assert!(app.end.is_closed() && app.closed.is_empty(), "{:?}", app.closed);
    }
}

#[test]
fn an_engine_knows_which_of_the_apps_that_it_has_told_something_waits_for_its_core() {
    for (app_processor, is_neighbour) in [(Some(3), true), (Some(4), false), (None, true)] {
        let mut world = World::new(9, Faults::default());
        let (mut client, mut server) = (world.attach(0, SIZES), world.attach(0, SIZES));
        world.listen(&server, 7000).expect("free");
        let (near, _) = world.connect(&mut client, &mut server, 7000);
        let engine = &mut world.hosts[0].members[0].engine;
        engine.runs_on(3);
        if let Some(processor) = app_processor {
            server.end.meet(processor);
        }
        assert!(client.send(near, b"local"));
        let now = world.now + 1;
        let told = std::iter::repeat_with(|| world.hosts[0].members[0].engine.turn(now)).take(3);
        let told = told.map(|turn| (turn.told_apps, turn.told_neighbour));
        assert!(told.collect::<Vec<_>>().contains(&(true, is_neighbour)));
        if let Some(processor) = app_processor {
            assert_eq!(server.end.meet(processor), is_neighbour, "it was told in turn");
        }
    }
}
