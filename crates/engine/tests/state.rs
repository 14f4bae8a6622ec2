//! Engines that are saved, dropped and made again in the middle of everything; and states that
//! somebody has tampered with: they are refused, or make an engine that keeps its books. Nothing
//! panics, then or when the engine runs on.

mod world;

use std::net::SocketAddr;

use clearway_base::{MILLISECOND, Random};
use clearway_channel::{Command, Sizes};
use clearway_engine::{CaptureSpec, Request, STATE_VERSION, State, StateError, VifSpec};
use clearway_nic::MacAddress;
use clearway_nic::fabric::Faults;
use serde_json::Value;
use world::{App, World, address};

const SIZES: Sizes = Sizes {
    submission_entries: 64,
    completion_entries: 64,
    transmit_pool_bytes: 1 << 20,
    receive_pool_bytes: 1 << 20,
    shared_bytes: 0,
};
const MESSAGE_BYTES: usize = 40_000;
/// Of the two on host 0, and of the one on host 1.
const NEIGHBOUR_PORT: u16 = 7000;
const PORT: u16 = 7001;
const MACHINES: [MacAddress; 2] = [[2, 9, 9, 9, 9, 1], [2, 9, 9, 9, 9, 2]];

/// A machine of its own on the link.
fn machine(mac: MacAddress) -> VifSpec {
    let [to, from] = ["dst", "src"].map(|side| {
        let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
        vec![format!("ether {side} {mac}").parse().expect("a filter")]
    });
    let copies = vec!["ether multicast".parse().expect("a filter")];
    VifSpec { receive: to, copies, transmit: from, mac, ..VifSpec::default() }
}

/// A frame with a number, and more behind it.
fn frame(from: MacAddress, to: MacAddress, number: u16) -> Vec<u8> {
    [&to, &from, &[0x88, 0xb5][..], &number.to_be_bytes(), &[7; 300]].concat()
}

/// An app with a connection to another host, one to another app of its own host, and an attempt to
/// connect to nobody; messages are on their way over both, and more than are read. It has a virtual
/// interface with a rate, and the other app of its host watches all that passes.
struct Busy {
    world: World,
    client: App,
    neighbour: App,
    server: App,
    near: u64,
    local: u64,
}

impl Busy {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed, Faults::default());
        let mut client = world.attach(0, SIZES);
        let (mut neighbour, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
        world.listen(&neighbour, NEIGHBOUR_PORT).expect("free");
        world.listen(&server, PORT).expect("free");
        let (near, _) = world.connect(&mut client, &mut server, PORT);
        let (local, _) = world.connect(&mut client, &mut neighbour, NEIGHBOUR_PORT);
        world.fabric.set_faults(0, Faults { loss_ppm: 100_000, ..Faults::default() });
        let peer = SocketAddr::new(address(9), PORT);
        client.submit(&Command::Connect { token: 9, peer });
        let spec = VifSpec { rate_frames_per_s: Some(1000), ..machine(MACHINES[0]) };
        world.open_vif(&client, 1, spec).expect("nobody has it");
        world.open_capture(&neighbour, 1, everything()).expect("it may");
        Self { world, client, neighbour, server, near, local }
    }

    /// A while in which the client sends what it can, and others read some of it.
    fn go_on(&mut self, random: &mut Random) {
        for _ in 0..random.below(60) {
            let connection = if random.chance(1, 2) { self.near } else { self.local };
            if random.chance(1, 3) {
                let length = random.below(MESSAGE_BYTES as u64) as usize;
                self.client.send(connection, &vec![7; length]);
                let [from, to] = MACHINES;
                let frames = [frame(from, to, 1), frame(to, from, 2), frame(from, [0xff; 6], 3)];
                if self.client.end.has_room() {
                    self.client.send_frames(1, &frames.each_ref().map(Vec::as_slice));
                }
            }
            self.world.turn();
            for app in [&mut self.client, &mut self.neighbour, &mut self.server] {
                app.poll();
                if random.chance(1, 8)
                    && app.end.has_room()
                    && let Some(message) = app.received.pop_front()
                {
                    app.release(message);
                }
            }
        }
    }

    /// Drops the engine of host 0, and makes another of what `change` makes of its state.
    fn restore(&mut self, change: impl FnOnce(State) -> State) -> Result<(), StateError> {
        self.world.restore(0, change)
    }
}

fn everything() -> CaptureSpec {
    CaptureSpec { filter: Vec::new(), app: None, connection: None }
}

#[test]
fn messages_arrive_in_order_whichever_engine_is_made_again() {
    let mut random = Random::new(1);
    let faults = Faults { loss_ppm: 20_000, reordering_ppm: 50_000, ..Faults::default() };
    let mut world = World::new(1, faults);
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, PORT).expect("free");
    let (near, _) = world.connect(&mut client, &mut server, PORT);
    let message = |number: u32| vec![number as u8; (number as usize * 911) % MESSAGE_BYTES];
    let (mut sent, mut received, mut restored) = (0, 0, 0);
    while received < 300 {
        if sent < 300 && client.send(near, &message(sent)) {
            sent += 1;
        }
        world.turn();
        world.now = world.now + random.below(MILLISECOND);
        client.poll();
        server.poll();
        while server.end.has_room()
            && let Some(next) = server.received.pop_front()
        {
            assert_eq!(server.bytes(&next), message(received), "message {received}");
            server.release(next);
            received += 1;
        }
        if random.chance(1, 4) {
            let host = random.below(2) as usize;
            let before = world.hosts[host].members[0].engine.save();
            world.restore(host, |state| state).expect("just saved");
            assert_eq!(world.hosts[host].members[0].engine.save(), before);
            restored += 1;
        }
    }
    assert!(restored > 50, "{restored}");
}

#[test]
fn frames_arrive_and_are_seen_whichever_engine_is_made_again() {
    let mut random = Random::new(2);
    let mut world = World::new(2, Faults::default());
    let (mut sender, mut receiver) = (world.attach(0, SIZES), world.attach(1, SIZES));
    let mut watcher = world.attach(1, SIZES);
    world.open_vif(&sender, 1, machine(MACHINES[0])).expect("nobody has it");
    world.open_vif(&receiver, 2, machine(MACHINES[1])).expect("nobody has it");
    world.open_capture(&watcher, 3, everything()).expect("it may");
    let (mut sent, mut received, mut seen) = (0, 0, 0);
    while received < 1000 {
        let number = sent + 1;
        let frames = [frame(MACHINES[0], MACHINES[1], number), frame(MACHINES[1], MACHINES[0], 0)];
        if sent < 1000 && sent - received < 50 {
            sender.send_frames(1, &frames.each_ref().map(Vec::as_slice));
            sent += 1;
        }
        if random.chance(1, 5) {
            let host = random.below(2) as usize;
            let before = world.hosts[host].members[0].engine.save();
            world.restore(host, |state| state).expect("just saved");
            assert_eq!(world.hosts[host].members[0].engine.save(), before);
        }
        world.turn();
        [&mut sender, &mut receiver, &mut watcher].into_iter().for_each(App::poll);
        while let Some((_, _, bytes)) = receiver.frames.pop_front() {
            received += 1;
            assert_eq!(bytes, frame(MACHINES[0], MACHINES[1], received));
        }
        seen += std::mem::take(&mut watcher.frames).len();
    }
    world.turn_until(|_| {
        sender.poll();
        sender.reports.get(&1).is_some_and(|report| report.bursts == 1000)
    });
    let report = sender.reports[&1];
    assert_eq!((report.sent, report.rejected), (1000, 1000), "those of another's are refused");
    let snapshot = world.snapshot(1);
    assert_eq!(snapshot.captures[0].frames, seen as u64);
    assert!(seen >= 1000, "{seen}");
}

/// The app knows the lower half, which begins anew.
#[test]
fn messages_within_a_host_are_counted_beyond_the_lower_half() {
    let mut world = World::new(1, Faults::default());
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(0, SIZES));
    world.listen(&server, PORT).expect("free");
    let (near, _) = world.connect(&mut client, &mut server, PORT);
    let has_sent_many = |mut state: State| {
        let channel = &mut state.channels[client.channel as usize];
        let connection = channel.slots[0].value.as_mut().expect("its only one");
        (connection.submitted, connection.sent) = (u32::MAX, u32::MAX.into());
        connection.sent_told = u32::MAX;
        state
    };
    world.restore(0, has_sent_many).expect("it may have");
    assert!(client.send(near, b"one more"));
    world.turn_until(|_| {
        server.poll();
        !server.received.is_empty()
    });
    let flows = world.snapshot(0).flows;
    let flow = flows.iter().find(|flow| flow.connection == near && flow.channel == client.channel);
    let flow = flow.expect("it is open");
    assert_eq!((flow.messages_sent, flow.messages_outstanding), (1 << 32, 0));
}

#[test]
fn what_was_tampered_with_is_refused_or_in_order() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut busy = Busy::new(seed);
        busy.go_on(&mut random);
        let outcome = busy.restore(|state| tampered_with(&mut random, &state));
        if outcome.is_ok() {
            taken += 1;
            run_on(&mut busy.world);
        } else {
            refused += 1;
        }
        busy.world.hosts.clear(); // whether anything is left, only apps that are in order can say
    }
    assert!(refused > 100 && taken > 100, "{refused} refused, {taken} taken");
}

/// Turns and timers for a while; then the apps go.
fn run_on(world: &mut World) {
    for turn in 0..200 {
        if turn == 150 {
            for channel in 0..3 {
                world.post(0, Request::RemoveChannel { channel });
            }
        }
        world.turn();
        world.now = world.now + MILLISECOND * (turn % 20);
        world.audit();
    }
}

/// What all there is to get wrong is in.
const PARTS: [&str; 6] = ["channels", "messages", "messages", "host", "frames", "captures"];

/// A state of which something is another than it was.
fn tampered_with(random: &mut Random, state: &State) -> State {
    let plain = serde_json::to_value(state).expect("plain data");
    loop {
        let mut changed = plain.clone();
        for _ in 0..1 + random.below(2) {
            let part = PARTS[random.below(PARTS.len() as u64) as usize];
            tamper(random, &mut changed[part]);
        }
        match serde_json::from_value(changed) {
            Ok(changed) if changed != *state => return changed,
            _ => {}
        }
    }
}

/// Changes something somewhere: each part of a whole is as likely as any other.
fn tamper(random: &mut Random, value: &mut Value) {
    match value {
        Value::Object(parts) if !parts.is_empty() => {
            let index = random.below(parts.len() as u64) as usize;
            parts.values_mut().nth(index).into_iter().for_each(|part| tamper(random, part));
        }
        Value::Array(parts) if !parts.is_empty() => {
            let [index, other] = [(); 2].map(|()| random.below(parts.len() as u64) as usize);
            match random.below(8) {
                0 => drop(parts.remove(index)),
                1 => parts.push(parts[index].clone()),
                2 => parts.swap(index, other),
                _ => tamper(random, &mut parts[index]),
            }
        }
        Value::Bool(is_so) => *is_so = !*is_so,
        Value::Number(number) => {
            let before = number.as_u64().expect("all numbers are such");
            *number = any_number(random, before).into();
        }
        _ => {}
    }
}

/// Something near, or near a bound.
fn any_number(random: &mut Random, before: u64) -> u64 {
    match random.below(7) {
        0 => before.wrapping_add(random.below(200)),
        1 => before.wrapping_sub(random.below(200)),
        2 => u64::MAX - random.below(3),
        3 => u64::from(u32::MAX) - random.below(3),
        4 => random.below(100),
        5 => 1 << random.below(64),
        _ => before ^ 1 << random.below(64),
    }
}

#[test]
fn bytes_of_another_version_and_broken_ones_are_refused() {
    let world = World::new(1, Faults::default());
    let state = world.hosts[0].members[0].engine.save();
    let bytes = state.to_bytes();
    assert_eq!(State::from_bytes(&bytes).expect("just saved"), state);
    let other = State { version: STATE_VERSION + 1, ..state };
    let outcome = State::from_bytes(&other.to_bytes());
    assert!(matches!(outcome, Err(StateError::Version(version)) if version == STATE_VERSION + 1));
    for length in 0..bytes.len() {
        let outcome = State::from_bytes(&bytes[..length]);
        assert!(matches!(outcome, Err(StateError::Malformed(_))), "{length} bytes");
    }
}
