//! Endpoints that are saved and restored in the middle of everything, and saved states that
//! somebody has tampered with.

use clearway_base::{MILLISECOND, Random, Time};

use super::*;
use crate::state::{FlowState, StreamState};
use crate::{Congestion, EndpointState, Phase, StreamStage};

/// Saves an endpoint, drops it, and makes it again. As an engine's, it has just had a turn: what is
/// restored begins where that did, and looks at all that came due since.
fn restore(host: &mut Host, config: &Config, now: Time) {
    host.endpoint.begin_turn(now, true);
    let saved = host.endpoint.save();
    let restored = Endpoint::restore(saved.clone(), config.clone(), now).expect("just saved");
    restored.audit().expect("in order");
    restored.recount();
    assert_eq!(restored.save(), saved);
    host.endpoint = restored;
}

/// A transfer in which either end is saved and restored again and again, from the first syn on.
fn transfer_with_restores(seed: u64, config: &Config, faults: Faults) -> Network {
    let mut random = Random::new(seed);
    let mut network = Network::new(seed, config, faults, 2 << 20);
    let key = network.connect();
    let lengths = mixed_lengths(&mut random, 150);
    let (mut sent, mut received, mut pool_end) = (0, 0, 0);
    let mut keys = [Some(key), None];
    while received < lengths.len() {
        network.go_on();
        if random.chance(1, 5) {
            let now = network.now + random.below(MILLISECOND);
            network.now = now;
            restore(&mut network.hosts[random.below(2) as usize], config, now);
        }
        keys[1] = network.hosts[1].app.accepted.first().copied();
        while sent < lengths.len() && sent - received < 12 {
            let app = &mut network.hosts[0].app;
            app.transmit_pool.extend(content(sent as u32, lengths[sent]));
            network.hosts[0].endpoint.send(network.now, key, pool_end, lengths[sent]);
            pool_end += lengths[sent];
            sent += 1;
        }
        let Some(accepted) = keys[1] else { continue };
        for message in network.read_all(1, accepted) {
            assert_eq!(message, content(received as u32, lengths[received]), "message {received}");
            received += 1;
        }
    }
    network
}

/// Whatever the link does, and in whatever state of a flow: nothing is lost, and nothing comes
/// twice.
#[test]
fn messages_survive_a_hundred_restores() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let faults = bad(random.below(60), random.below(60), random.below(200), random.below(20));
        let congestion = if seed % 2 == 0 { Congestion::Swift } else { Congestion::Cubic };
        let config = Config { congestion, ..Config::default() };
        let mut network = transfer_with_restores(seed, &config, faults);
        let now = network.now;
        let host = &mut network.hosts[0];
        let key = FlowKey::of_id(host.endpoint.save().flows[0].local_id);
        host.endpoint.close(now, key, &mut host.app);
        let mut steps = 0;
        while network.hosts.iter().any(|host| host.endpoint.flows().count() > 0) {
            network.go_on();
            assert!(steps < 100_000, "stuck: {}", network.describe());
            steps += 1;
            let (index, now) = (random.below(2) as usize, network.now);
            restore(&mut network.hosts[index], &config, now);
        }
        for host in &network.hosts {
            assert_eq!(host.app.closed, [Reason::Closed], "seed {seed}");
            assert_eq!(host.endpoint.counters().dropped_violation, 0, "seed {seed}");
        }
    }
}

/// States from everywhere in a flow's life.
fn some_states(seed: u64) -> Vec<EndpointState> {
    let mut random = Random::new(seed);
    let faults = bad(80, 0, 200, 0);
    let mut network = Network::new(seed, &Config::default(), faults, 1 << 20);
    let key = network.connect();
    network.hosts[0].app.transmit_pool = content(0, 60_000);
    let mut states = Vec::new();
    let mut streams = Vec::new();
    for step in 0..200 {
        network.step();
        use_streams(&mut network, &mut random, key, &mut streams);
        if step == 150 {
            let (host, now) = (&mut network.hosts[0], network.now);
            host.endpoint.close(now, key, &mut host.app);
        } else if step < 150 && random.chance(1, 3) {
            let length = random.below(60_000) as u32;
            network.hosts[0].endpoint.send(network.now, key, 0, length);
        }
        if random.chance(1, 10) {
            states.extend(network.hosts.iter().map(|host| host.endpoint.save()));
        }
    }
    states
}

/// Opens, ends, or sends on, a stream of host 0, or does nothing.
fn use_streams(
    network: &mut Network,
    random: &mut Random,
    key: FlowKey,
    streams: &mut Vec<StreamKey>,
) {
    let (now, Host { endpoint, app, .. }) = (network.now, &mut network.hosts[0]);
    let owner = Owner { channel: 1, connection: 2 * FIRST_STREAM + streams.len() as u32 };
    let at = random.below(10) as usize;
    match streams.get(at).copied() {
        None => streams.extend(endpoint.open_stream(now, key, owner, WINDOW)),
        Some(stream) if random.chance(1, 20) => endpoint.abort(stream, Reason::Reset, app),
        Some(stream) if random.chance(1, 20) => endpoint.close(now, stream, app),
        Some(stream) => endpoint.send(now, stream, 0, random.below(20_000) as u32),
    }
}

/// What a number may become: near a bound of something, or another one of the state.
fn any_number(random: &mut Random, before: u64) -> u64 {
    match random.below(6) {
        0 => before.wrapping_add(random.below(200)),
        1 => before.wrapping_sub(random.below(200)),
        2 => u64::MAX - random.below(3),
        3 => random.below(100),
        4 => 1 << random.below(64),
        _ => before ^ 1 << random.below(64),
    }
}

/// Changes one thing in a flow.
fn tamper(random: &mut Random, state: &mut EndpointState) {
    let count = state.flows.len() as u64;
    if count == 0 {
        return;
    }
    let flow = &mut state.flows[random.below(count) as usize];
    let mut numbers: Vec<&mut u64> = vec![
        &mut flow.local_id,
        &mut flow.peer_id,
        &mut flow.window_bytes,
        &mut flow.limited_until,
        &mut flow.unasked_bytes,
        &mut flow.acks.floor,
        &mut flow.recovery.next_number,
        &mut flow.recovery.acked_end,
        &mut flow.recovery.patience.0,
        &mut flow.recovery.patience.1,
        &mut flow.rtt.latest_ns,
        &mut flow.rtt.min_ns,
        &mut flow.rtt.smoothed_ns,
        &mut flow.rtt.variation_ns,
        &mut flow.arrivals.stray_ns,
        &mut flow.ports.rest_fruitless_ns,
    ];
    numbers.extend(flow.acks.received.iter_mut().flat_map(|r| [&mut r.start, &mut r.end]));
    add_numbers(&mut numbers, &mut flow.main);
    if let Some(streams) = &mut flow.streams {
        numbers.extend(streams.seen.iter_mut().flat_map(|r| [&mut r.start, &mut r.end]));
        streams.sides.iter_mut().for_each(|side| add_numbers(&mut numbers, &mut side.stream));
    }
    for packet in &mut flow.recovery.packets {
        numbers.extend([&mut packet.number, &mut packet.range.start, &mut packet.range.end]);
    }
    let count = numbers.len() as u64;
    let number = &mut numbers[random.below(count) as usize];
    **number = any_number(random, **number);
    tamper_streams(random, flow);
    match random.below(12) {
        0 => drop(flow.recovery.packets.pop()),
        1 => drop(flow.main.outgoing.messages.pop()),
        2 => flow.main.outgoing.messages.extend([(u32::MAX, 1), (5, u32::MAX)]),
        3 => flow.main.incoming.partial.reverse(),
        4 => flow.phase = Phase::Closing,
        5 => flow.ports.peer_engines = random.next_u32() as u8,
        6 => flow.packet_bytes.0 = random.next_u32() as u16,
        7 => flow.ports.current = random.next_u32() as u16,
        8 => flow.silence_ms = random.next_u32(),
        9 => flow.recovery.packets.iter_mut().for_each(|packet| packet.bytes = 0),
        _ => {}
    }
}

/// All that are in one stream's state.
fn add_numbers<'a>(numbers: &mut Vec<&'a mut u64>, stream: &'a mut StreamState) {
    let (incoming, outgoing) = (&mut stream.incoming, &mut stream.outgoing);
    numbers.extend([
        &mut stream.messages_sent,
        &mut incoming.next,
        &mut incoming.received,
        &mut incoming.released,
        &mut incoming.window,
        &mut incoming.announced,
        &mut outgoing.start,
        &mut outgoing.next,
        &mut outgoing.acknowledged,
        &mut outgoing.limit,
    ]);
    for partial in &mut incoming.partial {
        numbers.push(&mut partial.sequence);
        numbers.extend(partial.received.iter_mut().flat_map(|r| [&mut r.start, &mut r.end]));
    }
    for ranges in [&mut outgoing.lost, &mut outgoing.acknowledged_above] {
        numbers.extend(ranges.iter_mut().flat_map(|r| [&mut r.start, &mut r.end]));
    }
}

/// Changes one thing of its streams, or nothing.
fn tamper_streams(random: &mut Random, flow: &mut FlowState) {
    if let Some(packet) = flow.recovery.packets.last_mut() {
        packet.stream ^= u32::from(random.chance(1, 10));
    }
    let Some(streams) = &mut flow.streams else { return };
    let count = streams.sides.len() as u64;
    if let Some(side) = streams.sides.get_mut(random.below(count.max(1)) as usize) {
        match random.below(30) {
            0 => side.id = random.below(20) as u32,
            1 => side.stage = StreamStage::Open,
            2 => side.stage = StreamStage::Closing,
            3 => side.stage = StreamStage::Aborted(random.below(8) as u16),
            4 => side.is_known ^= true,
            5 => side.open_due ^= true,
            6 => side.stream.close_due ^= true,
            7 => side.stream.limit_due ^= true,
            8 => side.stream.outgoing.messages.push((1 << 31, 5)),
            9 => drop(streams.sides.pop()),
            10 => streams.is_client ^= true,
            11 => streams.opened = random.next_u32(),
            12 => flow.streams = None,
            _ => {}
        }
    }
}

/// A state that is not one is refused, and one that is taken keeps its books; nothing panics, then
/// or when the endpoint runs on.
#[test]
fn states_that_were_tampered_with_are_refused_or_in_order() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..20 {
        let mut random = Random::new(seed);
        for state in some_states(seed) {
            for _ in 0..40 {
                let mut state = state.clone();
                (0..1 + random.below(3)).for_each(|_| tamper(&mut random, &mut state));
                let now = Time::from_ns(3 * SECOND);
                let Ok(mut endpoint) = Endpoint::restore(state, Config::default(), now) else {
                    refused += 1;
                    continue;
                };
                taken += 1;
                endpoint.audit().expect("in order");
                endpoint.recount();
                run_on(&mut endpoint, now);
                endpoint.audit().expect("in order");
                endpoint.recount();
            }
        }
    }
    assert!(refused > 1000 && taken > 1000, "{refused} refused, {taken} taken");
}

/// Sends all that there is and has all timers fire, for a while.
fn run_on(endpoint: &mut Endpoint, mut now: Time) {
    let mut app = TestApp::new(1 << 20);
    app.transmit_pool = vec![0; 128 << 10];
    app.forgives = true;
    for _ in 0..20 {
        let mut bytes = [0; 9216];
        for _ in 0..50 {
            let Some(destination) = endpoint.next_transmit(now) else { break };
            endpoint.poll_transmit(now, destination, &mut bytes, &app);
        }
        let Some(next) = endpoint.next_timeout() else { return };
        now = now.max(next);
        endpoint.handle_timeouts(now, &mut app);
    }
}
