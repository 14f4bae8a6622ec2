//! Stacks that are saved and restored in the middle of everything, and saved states that somebody
//! has tampered with.

use std::net::SocketAddr;
use std::ops::Range;

use clearway_base::{MILLISECOND, Random, SECOND, SlotId, SlotState, Time};
use clearway_wire::Ecn;
use clearway_wire::tcp::{self, Flags};
use clearway_world::{Faults, Steps};

use super::script::begin::time_wait;
use super::transfer::Flow;
use super::world::{Host, Packet, World, ecn_option, rate, short_link};
use crate::*;

pub(super) fn restore(host: &mut Host, now: Time) {
    let saved = host.stack.save();
    let restored = Stack::restore(saved.clone(), Config::default(), 1500, now).expect("just saved");
    assert_eq!(restored.save(), saved);
    host.stack = restored;
}

/// Streams both ways, over links of all kinds, arrive whole however often either end is saved and
/// restored on the way, from the first SYN to the last FIN; and all memory comes back.
#[test]
fn streams_survive_a_hundred_restores() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let latency_ns = MILLISECOND + random.below(10 * MILLISECOND);
        let faults = Faults {
            loss_ppm: random.below(50_000) as u32,
            latency_ns,
            delay_ppm: random.below(100_000) as u32,
            delay_ns_max: 2 * latency_ns,
            rate: rate(1000 + random.below(20_000)),
            ..Faults::default()
        };
        let settings = Settings {
            sack: random.chance(3, 4),
            timestamps: random.chance(3, 4),
            window_scaling: random.chance(3, 4),
            ecn: random.chance(1, 2),
            accurate_ecn: random.chance(1, 2),
            ecn_option: ecn_option(seed),
            receive_buffer_bytes: 3000 + random.below(1 << 17) as u32,
            congestion: if random.chance(1, 2) { Congestion::Swift } else { Congestion::Cubic },
            ..Settings::default()
        };
        let mut world = World::new(seed, Config::default(), faults, random.chance(1, 2));
        let [client, server] = &mut world.hosts;
        let (from, to) = (client.address, server.address);
        let listener = server.stack.listen(None, to.port(), 4, 1500, settings).expect("free");
        let from = SocketAddr::new(from.ip(), 0);
        let key = client.stack.connect(world.now, from, to, 1500, settings).expect("room");
        let mut flows = [Some(Flow::new(key, 200_000, 1)), None];
        let mut restores = 0;
        world.run(4000 * SECOND, |world| {
            let side = random.below(2) as usize;
            if random.chance(1, 20) {
                restore(&mut world.hosts[side], world.now);
                restores += 1;
            }
            if flows[1].is_none() {
                let accepted = world.hosts[1].stack.accept(listener);
                flows[1] = accepted.map(|key| Flow::new(key, 100_000, 2));
            }
            for (host, flow) in world.hosts.iter_mut().zip(&mut flows) {
                if let Some(flow) = flow {
                    flow.serve(host, &mut random, false);
                }
            }
            let stacks = world.hosts.iter().zip(&flows);
            let mut over = stacks.map(|(host, flow)| {
                let key = flow.as_ref().map(|flow| flow.key)?;
                host.stack.info(key).expect("ours").end
            });
            over.all(|end| end.is_some())
        });
        assert!(restores > 5, "{restores}");
        let [Some(client), Some(server)] = flows else { panic!("accepted") };
        assert!(client.received == server.content && server.received == client.content, "{seed}");
        for (host, flow) in world.hosts.iter_mut().zip([client, server]) {
            assert_eq!(host.stack.info(flow.key).expect("ours").end, Some(End::Orderly), "{seed}");
            while let Some(extent) = host.stack.pop_sent(flow.key) {
                host.store.take(extent);
            }
            host.stack.forget(world.now, flow.key, &mut host.store);
            assert!(host.store.is_empty(), "seed {seed}");
        }
    }
}

/// Half-open connections, those that nobody has accepted, listeners and TIME-WAIT go on, too.
#[test]
fn what_is_no_connection_yet_or_no_longer_is_restored() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let settings = Settings::default();
    let (key, server, listener) = world.open(settings, settings);
    // One that is half open, and one that waits.
    let [client, host] = &mut world.hosts;
    let to = host.address;
    for port in [7000, 7001] {
        let from = SocketAddr::new(client.address.ip(), port);
        client.stack.connect(world.now, from, to, 1500, settings).expect("room");
    }
    let syns = client.transmit(world.now);
    syns.iter().for_each(|syn| host.receive(world.now, syn));
    restore(host, world.now);
    assert_eq!(host.stack.waiting().0, 2);
    world.run(10 * SECOND, |world| world.hosts[1].stack.connections().count() == 3);
    restore(&mut world.hosts[1], world.now);
    let stack = &mut world.hosts[1].stack;
    assert_eq!(stack.poll_event(), Some(Event::Acceptable(listener)));
    assert!(stack.accept(listener).is_some() && stack.accept(listener).is_some());
    assert_eq!(stack.accept(listener), None);
    // The end: the second FIN is answered by what is left after it was restored.
    world.hosts[0].stack.shutdown(key);
    world.hosts[1].stack.shutdown(server);
    world.run(10 * SECOND, |world| {
        world.hosts.iter().map(|host| host.stack.waiting().1).sum::<usize>() > 0
    });
    for host in &mut world.hosts {
        restore(host, world.now);
    }
    world.run(400 * SECOND, |world| world.hosts.iter().all(|host| host.stack.waiting() == (0, 0)));
}

/// Who has begun to connect to a listener that is closed is forgotten with it, and reset when it
/// goes on. Found by simulation.
#[test]
fn a_listener_that_is_closed_leaves_nothing_half_open() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let (_, _, listener) = world.open(Settings::default(), Settings::default());
    let (now, [client, host]) = (world.now, &mut world.hosts);
    let from = SocketAddr::new(client.address.ip(), 7000);
    let key = client.stack.connect(now, from, host.address, 1500, Settings::default());
    client.transmit(now).iter().for_each(|syn| host.receive(now, syn));
    assert_eq!(host.stack.waiting().0, 1);
    host.stack.unlisten(now, listener, &mut host.store);
    assert_eq!(host.stack.waiting().0, 0);
    restore(host, now);
    let key = key.expect("room");
    world.run(100 * SECOND, |world| {
        world.hosts[0].stack.info(key).is_some_and(|info| info.end.is_some())
    });
}

/// A connection that is over and has given back a part of what it did not send is restored. Found
/// by simulation.
#[test]
fn what_is_over_and_not_all_given_back_is_restored() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let (key, ..) = world.open(Settings::default(), Settings::default());
    let (now, host) = (world.now, &mut world.hosts[0]);
    let extents = [host.store.fill(b"one"), host.store.fill(b"two")];
    extents.iter().for_each(|extent| host.stack.send(key, *extent).expect("room"));
    host.stack.abort(now, key);
    assert_eq!(host.stack.pop_sent(key), Some(extents[0]));
    restore(host, now);
    assert_eq!(host.stack.pop_sent(key), Some(extents[1]));
    assert_eq!(host.stack.pop_sent(key), None);
}

/// However often a host is restored, what is lost is sent again in time. Found by simulation.
#[test]
fn restores_do_not_put_off_a_timeout() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let (key, ..) = world.open(Settings::default(), Settings::default());
    let host = &mut world.hosts[0];
    let extent = host.store.fill(b"lost");
    host.stack.send(key, extent).expect("room");
    let has_data =
        |packets: &[Packet]| packets.iter().any(|packet| packet.bytes.ends_with(b"lost"));
    let mut now = world.now;
    assert!(has_data(&host.transmit(now)));
    let sent_again = (0..10).any(|_| {
        now = now + 50 * MILLISECOND;
        restore(host, now);
        host.stack.handle_timeouts(now);
        has_data(&host.transmit(now))
    });
    assert!(sent_again);
}

/// Another version is refused, and so is what contradicts itself. What is not is harmless.
#[test]
fn a_saved_state_is_not_trusted() {
    let (mut refused, mut restored) = (0, 0);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut world = World::new(seed % 50, Config::default(), short_link(), false);
        let (key, server, _) = world.open(Settings::default(), Settings::default());
        let mut flow = Flow::new(key, 50_000, 1);
        for _ in 0..random.below(40) {
            flow.serve(&mut world.hosts[0], &mut random, false);
            if random.chance(1, 10) {
                world.hosts[1].stack.shutdown(server);
            }
            world.step();
        }
        let side = random.below(2) as usize;
        let mut saved = world.hosts[side].stack.save();
        for _ in 0..=random.below(2) {
            tamper(&mut saved, &mut random);
        }
        match Stack::restore(saved, Config::default(), 1500, world.now) {
            Err(_) => refused += 1,
            Ok(stack) => {
                restored += 1;
                go_on(stack, world.now);
            }
        }
    }
    assert!(refused > 500 && restored > 500, "{refused} refused, {restored} restored");
}

/// Nor is what guards its ports: a window that nobody can offer is refused.
#[test]
fn a_window_that_cannot_be_is_refused_in_time_wait() {
    let script = time_wait();
    let restored = |window| {
        let mut saved = script.host.stack.save();
        saved.time_waits[0].rcv_window = window;
        Stack::restore(saved, Config::default(), 1500, script.now).is_ok()
    };
    assert_eq!([10_000, 65_535 << 14, u64::MAX].map(restored), [true, true, false]);
}

/// A segment of more than the interface takes has no room in its queue's buffers.
#[test]
fn no_connection_goes_on_with_more_than_the_interface_takes() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    let (key, _, listener) = world.open(Settings::default(), Settings::default());
    let restored = |world: &World, side: usize| {
        let mut saved = world.hosts[side].stack.save();
        for place in &mut saved.connections {
            let agreed = &mut place.value.as_mut().expect("it is open").agreed;
            (agreed.mtus, agreed.segment_bytes) = ((9000, 9000), u16::MAX);
        }
        saved.listeners.iter_mut().flat_map(|it| &mut it.value).for_each(|it| it.mtu = 9000);
        Stack::restore(saved, Config::default(), 1400, world.now).expect("nothing contradicts")
    };
    world.hosts[0].stack = restored(&world, 0);
    assert_eq!(world.hosts[0].stack.info(key).expect("ours").segment_bytes, 1400 - 40 - 12);
    // Nor does a listener offer more.
    world.hosts[1].stack = restored(&world, 1);
    let (now, [client, server]) = (world.now, &mut world.hosts);
    let from = SocketAddr::new(client.address.ip(), 7000);
    client.stack.connect(now, from, server.address, 1500, Settings::default()).expect("room");
    client.transmit(now).iter().for_each(|packet| server.receive(now, packet));
    let offered = server.stack.poll_transmit(now, 1).expect("an answer").repr.options;
    assert_eq!(offered.maximum_segment_size, Some(1400 - 40));
    assert!(server.stack.listener_settings(listener).is_some());
}

/// A half-open connection ends, whatever is said of when and how often it was answered.
#[test]
fn what_is_half_open_is_given_up_in_time() {
    for (sent, retries) in [(Time::from_ns(1 << 61), 0), (Time::ZERO, u8::MAX)] {
        let mut world = World::new(1, Config::default(), short_link(), false);
        world.open(Settings::default(), Settings::default());
        let (now, [client, host]) = (world.now, &mut world.hosts);
        let from = SocketAddr::new(client.address.ip(), 7000);
        client.stack.connect(now, from, host.address, 1500, Settings::default()).expect("room");
        client.transmit(now).iter().for_each(|syn| host.receive(now, syn));
        let mut saved = host.stack.save();
        (saved.half_open[0].sent, saved.half_open[0].retries) = (sent, retries);
        host.stack = Stack::restore(saved, Config::default(), 1500, now).expect("it may be");
        assert!(host.stack.save().half_open[0].retries <= Config::default().syn_ack_retries);
        let mut answers = 0;
        while host.stack.waiting().0 > 0 {
            let time = host.stack.next_timeout();
            assert!(time.since(now) < 100 * SECOND, "it stays");
            host.stack.handle_timeouts(time);
            answers += host.transmit(time).len();
        }
        assert!(answers <= 6, "{answers}");
    }
}

/// A peer that is silent is given up when it should be, however often the host is saved meanwhile.
#[test]
fn restores_put_no_end_off() {
    let silent = |settings: Settings, has_data: bool| {
        let mut world = World::new(1, Config::default(), short_link(), false);
        let (key, ..) = world.open(settings, Settings::default());
        world.cut();
        if has_data {
            let host = &mut world.hosts[0];
            let extent = host.store.fill(b"hello");
            host.stack.send(key, extent).expect("room");
        }
        let begin = world.now;
        let end = |world: &World| world.hosts[0].stack.info(key).expect("ours").end;
        while end(&world).is_none() {
            assert!(world.now.since(begin) < 1000 * SECOND);
            world.run_for(SECOND);
            restore(&mut world.hosts[0], world.now);
        }
        world.now.since(begin) / SECOND
    };
    let user_timeout = Settings { user_timeout_ns: Some(20 * SECOND), ..Settings::default() };
    assert_eq!(silent(user_timeout, true), 20);
    let keep_alive = KeepAlive { idle_ns: 10 * SECOND, interval_ns: 5 * SECOND, probes: 3 };
    let keep_alive = Settings { keep_alive: Some(keep_alive), ..Settings::default() };
    assert!((24..=25).contains(&silent(keep_alive, false)));
}

/// Memory of which nothing is known.
struct Anything;

impl Memory for Anything {
    fn keep(&mut self, _: SlotId, _: u64, part: Range<u32>) -> Option<Extent> {
        Some(Extent { region: 1, offset: 0, length: part.end - part.start })
    }

    fn discard(&mut self, _: SlotId, _: Extent) {}
}

/// What is restored sends, receives and times out as others do.
fn go_on(mut stack: Stack, mut now: Time) {
    for turn in 0..20 {
        for _ in 0..2000 {
            let Some(transmit) = stack.poll_transmit(now, 3000) else { break };
            let length = transmit.payload.end - transmit.payload.start;
            if let Some(key) = transmit.connection {
                let extents = stack.extents(key, transmit.payload.clone());
                assert_eq!(extents.map(|extent| u64::from(extent.length)).sum::<u64>(), length);
            }
            // The peer has taken it, and sends something.
            let repr = tcp::Repr {
                source_port: transmit.to.port(),
                destination_port: transmit.from.port(),
                sequence: transmit.repr.acknowledgement,
                acknowledgement: transmit.repr.sequence.wrapping_add(length as u32),
                flags: Flags::ACK,
                window: 1000,
                options: transmit.repr.options,
                ..tcp::Repr::default()
            };
            let (from, to, ecn) = (transmit.to, transmit.from, Ecn::NotCapable);
            let arrival = Arrival { from, to, repr, payload_length: turn % 3 * 700, ecn };
            stack.handle_segment(now, &arrival, &mut Anything);
        }
        let keys: Vec<SlotId> = stack.connections().collect();
        for key in keys {
            let _ = (stack.recv(key), stack.pop_sent(key), stack.info(key));
            stack.release(key, 1000);
        }
        now = now.max(stack.next_timeout().min(now + 100 * SECOND));
        stack.handle_timeouts(now);
    }
}

/// Changes one thing.
fn tamper(saved: &mut Saved, random: &mut Random) {
    let number = match random.below(4) {
        0 => random.next_u64(),
        1 => random.below(3),
        2 => u64::MAX - random.below(3),
        _ => (1 << 32) + random.below(1 << 33),
    };
    if random.chance(1, 20) {
        saved.version = number as u32;
    }
    let count = saved.connections.len() as u64;
    let place = saved.connections.get_mut(random.below(count.max(1)) as usize);
    if let Some(place) = place {
        tamper_with_place(place, number, random);
    }
}

fn tamper_with_place(place: &mut SlotState<SavedConnection>, number: u64, random: &mut Random) {
    let Some(connection) = &mut place.value else { return };
    let choice = random.below(32);
    let mut near = |place: &mut u64| match random.next_u64() % 3 {
        0 => *place = number,
        1 => *place = place.wrapping_add(1 + number % 2000),
        _ => *place = place.wrapping_sub(1 + number % 2000),
    };
    match choice {
        0 => near(&mut connection.snd.first),
        1 => near(&mut connection.snd.una),
        2 => near(&mut connection.snd.next),
        3 => near(&mut connection.snd.start),
        4 => near(&mut connection.snd.window),
        5 => near(&mut connection.snd.window_start),
        6 => connection.snd.fin = !connection.snd.fin,
        7 => near(&mut connection.rcv.first),
        8 => near(&mut connection.rcv.next),
        9 => near(&mut connection.rcv.edge),
        10 => near(&mut connection.rcv.released),
        11 => connection.rcv.fin = Some(number),
        12 => connection.rcv.buffer_bytes = number as u32,
        13 => near(&mut connection.rcv.acknowledged),
        14 => connection.rcv.in_order.clear(),
        15 => {
            let extent = Extent { region: 1, offset: number as u32, length: (number >> 7) as u32 };
            connection.rcv.ahead.push((connection.rcv.next + number % 3000, extent));
        }
        16 => {
            let extent = Extent { region: 1, offset: number as u32, length: (number >> 7) as u32 };
            connection.snd.extents.push(extent);
        }
        17 => connection.agreed.mtus = (number as u16, (number >> 16) as u16),
        18 => connection.agreed.segment_bytes = number as u16,
        19 => connection.agreed.scales = Some((number as u8, (number >> 8) as u8)),
        20 => connection.agreed.timestamps = None,
        21 => connection.rtt_ns = (number, number),
        22 => connection.window_bytes = number,
        23 => connection.keep_alive = Some(Time::from_ns(number)),
        24 => connection.state = State::FinWait2,
        25 => connection.state = State::SynReceived,
        26 => connection.state = State::LastAck,
        27 => place.generation = number as u32,
        28 => connection.is_offered = !connection.is_offered,
        29 => connection.ends.1 = "[fd00::1]:1".parse().expect("address"),
        30 => connection.readiness = number as u8,
        31 => connection.retransmit = Some(Time::from_ns(number)),
        _ => connection.settings.rto_min_ns = number,
    }
}
