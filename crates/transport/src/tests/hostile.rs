//! A peer that has a connection and does with it what no Clearway host would.

use std::net::SocketAddr;

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::clearway::{self, Header, MESSAGE_BYTES_MAX, PacketType};

use super::{Host, LISTENER, PORT, WINDOW, content, forged};
use crate::{Config, Endpoint, FlowKey, Owner, Reason};

const OWNER: Owner = Owner { channel: 1, connection: 1 };

fn host(number: u8, pool_bytes: u64) -> Host {
    let endpoint = Endpoint::new(Config::default(), START, u64::from(number), [number; 16]);
    Host::new(number, endpoint, pool_bytes)
}

const START: Time = Time::from_ns(SECOND);

/// A server, a peer that behaves, and the flow that a hostile one has opened and uses by hand.
struct Scene {
    server: Host,
    good: Host,
    good_flow: FlowKey,
    now: Time,
    hostile: Hostile,
}

struct Hostile {
    address: SocketAddr,
    /// The id of its flow at the server.
    flow: u64,
    next_number: u64,
}

impl Hostile {
    /// Opens a flow, the `nth` from its host; what the server sends it later is not looked at.
    fn connect(server: &mut Host, nth: u8, now: Time) -> Self {
        let mut client = host(66, 0);
        client.endpoint = Endpoint::new(Config::default(), now, u64::from(nth), [66; 16]);
        server.packets(now); // to its other flows, which this one would reset
        let key = client.endpoint.connect(now, OWNER, client.address, server.address, PORT, WINDOW);
        exchange(server, &mut client, now);
        client.endpoint.send(now, key.expect("room"), 0, 0);
        let (_, packet) = client.packets(now).pop().expect("an empty message");
        let flow = u64::from_be_bytes(packet[8..16].try_into().expect("8 bytes"));
        Self { address: client.address, flow, next_number: 0 }
    }

    /// A packet of its flow; `frames` writes the frames and returns where they end.
    fn packet(&mut self, frames: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let number = self.next_number;
        self.next_number += 1;
        self.packet_numbered(number, frames)
    }

    fn packet_numbered(&self, number: u64, frames: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        forged(self.flow, number, frames)
    }

    fn fragment(&mut self, sequence: u32, total: u32, offset: u32, bytes: &[u8]) -> Vec<u8> {
        self.packet(|frames| {
            let length = bytes.len() as u32;
            let head = clearway::emit_fragment(frames, sequence, length, total, offset);
            frames[head..head + bytes.len()].copy_from_slice(bytes);
            head + bytes.len()
        })
    }
}

/// Carries packets between server and client until both are silent.
fn exchange(server: &mut Host, client: &mut Host, now: Time) {
    loop {
        let (to_server, to_client) = (client.packets(now), server.packets(now));
        if to_server.is_empty() && to_client.is_empty() {
            return;
        }
        for (between, packet) in to_server {
            server.handle(now, between.from, Ecn::Capable, &packet);
        }
        for (between, packet) in to_client {
            if between.to == client.address {
                client.handle(now, between.from, Ecn::Capable, &packet);
            }
        }
    }
}

impl Scene {
    fn new(pool_bytes: u64) -> Self {
        let (mut server, mut good) = (host(1, pool_bytes), host(2, 0));
        server.endpoint.listen(PORT, LISTENER).expect("free");
        let good_flow = good
            .endpoint
            .connect(START, OWNER, good.address, server.address, PORT, WINDOW)
            .expect("room");
        exchange(&mut server, &mut good, START);
        let hostile = Hostile::connect(&mut server, 0, START);
        Self { server, good, good_flow, now: START, hostile }
    }

    fn attack(&mut self, packet: &[u8]) {
        self.server.handle(self.now, self.hostile.address, Ecn::Capable, packet);
    }

    /// The well-behaved peer sends a message of `length` bytes, which the server's app gets and
    /// releases within `patience_ns`.
    #[track_caller]
    fn assert_good_goes_on(&mut self, length: u32, patience_ns: u64) {
        self.good.app.transmit_pool = content(3, length);
        self.good.endpoint.send(self.now, self.good_flow, 0, length);
        let end = self.now + patience_ns;
        while self.server.app.delivered.is_empty() {
            assert!(self.now < end, "{length} bytes do not arrive");
            exchange(&mut self.server, &mut self.good, self.now);
            self.now = self.now + 50 * MICROSECOND;
            self.server.endpoint.handle_timeouts(self.now, &mut self.server.app);
            self.good.endpoint.handle_timeouts(self.now, &mut self.good.app);
        }
        let (owner, buffer) = self.server.app.delivered.pop_front().expect("just seen");
        assert_eq!(self.server.app.release(buffer), content(3, length));
        let flow = self.server.app.accepted[owner.connection as usize - 1];
        self.server.endpoint.release(self.now, flow, 1, u64::from(length));
    }

    /// The server has ended the hostile flow for what it did.
    #[track_caller]
    fn assert_ended(&mut self) {
        assert_eq!(self.server.app.closed, [Reason::Protocol]);
        assert_eq!(self.server.endpoint.counters().dropped_violation, 1);
        self.assert_good_goes_on(100, MILLISECOND);
    }
}

#[test]
fn one_that_begins_messages_and_ends_none_leaves_room_for_others() {
    let mut scene = Scene::new(16 << 20);
    let first_parts = |sequence: u32, total| (sequence, total, vec![1; 10]);
    let parts = [
        // The largest, of which there is one due; large ones before their turn; many small ones.
        (0..1).map(|sequence| first_parts(sequence, MESSAGE_BYTES_MAX)).collect::<Vec<_>>(),
        (1..100).map(|sequence| first_parts(sequence, 1 << 20)).collect(),
        (100..2000).map(|sequence| first_parts(sequence, 11)).collect(),
    ];
    for (sequence, total, bytes) in parts.into_iter().flatten() {
        let packet = scene.hostile.fragment(sequence, total, 0, &bytes);
        scene.attack(&packet);
    }
    assert!(scene.server.endpoint.counters().dropped_no_buffer > 0);
    assert!(scene.server.app.closed.is_empty(), "{:?}", scene.server.app.closed);
    for length in [0, 64, 32 << 10, 1 << 20, 4 << 20] {
        scene.assert_good_goes_on(length, SECOND);
    }
}

#[test]
fn many_connections_of_one_host_hold_no_more_than_one() {
    let mut scene = Scene::new(16 << 20);
    for nth in 1..50 {
        let mut another = Hostile::connect(&mut scene.server, nth, scene.now);
        let packet = another.fragment(0, MESSAGE_BYTES_MAX / 4, 0, &[1]);
        scene.attack(&packet);
    }
    assert_eq!(scene.server.endpoint.flows().count(), 51);
    assert_eq!(scene.server.endpoint.counters().dropped_no_buffer, 45, "four hold 8 MB");
    for length in [0, 64, 32 << 10, 1 << 20, 4 << 20] {
        scene.assert_good_goes_on(length, SECOND);
    }
}

#[test]
fn a_message_that_is_due_gets_its_place_however_many_wait_for_it() {
    let mut scene = Scene::new(16 << 20);
    for sequence in 1..300 {
        let packet = scene.hostile.fragment(sequence, 300 << 10, 0, &[1]);
        scene.attack(&packet);
    }
    let refused = scene.server.endpoint.counters().dropped_no_buffer;
    assert!(refused > 0);
    let packet = scene.hostile.fragment(0, MESSAGE_BYTES_MAX, 0, &[1]);
    scene.attack(&packet);
    assert_eq!(scene.server.endpoint.counters().dropped_no_buffer, refused);
}

/// To keep the books of them would take memory and time without bound: what leaves more gaps than
/// there may be is not taken, whatever messages the crumbs are of.
#[test]
fn messages_in_crumbs_have_bounded_books() {
    let mut scene = Scene::new(16 << 20);
    for index in 0..3000 {
        let sequence = index % 2;
        let packet = scene.hostile.fragment(sequence, 1 << 20, 2 * index, &[1]);
        scene.attack(&packet);
    }
    // Two messages of n parts have n - 1 gaps each.
    let taken = 3000 - scene.server.endpoint.counters().dropped_no_buffer;
    assert_eq!(taken, 1024 + 2);
    assert!(scene.server.app.closed.is_empty(), "{:?}", scene.server.app.closed);
    for length in [0, 64, 32 << 10, 1 << 20] {
        scene.assert_good_goes_on(length, SECOND);
    }
}

/// Every other packet is lost on its first way, more than there may be gaps: what was not taken is
/// sent again, and the message is whole in the end.
#[test]
fn a_message_with_more_gaps_than_there_may_be_arrives_at_last() {
    const PARTS: u32 = 5000;
    let mut scene = Scene::new(16 << 20);
    let mut missing: Vec<u32> = (0..PARTS).collect();
    let mut way = 0;
    while !missing.is_empty() {
        way += 1;
        assert!(way < 20, "{} parts are still missing", missing.len());
        for (index, part) in core::mem::take(&mut missing).into_iter().enumerate() {
            let is_lost = index % 2 == 0 && way == 1;
            let before = scene.server.endpoint.counters().dropped_no_buffer;
            if !is_lost {
                let packet = scene.hostile.fragment(0, PARTS * 10, part * 10, &[part as u8; 10]);
                scene.attack(&packet);
            }
            if is_lost || scene.server.endpoint.counters().dropped_no_buffer > before {
                missing.push(part);
            }
        }
    }
    assert!(scene.server.endpoint.counters().dropped_no_buffer > 1000, "all gaps were taken");
    let (_, buffer) = scene.server.app.delivered.pop_front().expect("whole");
    let bytes = scene.server.app.release(buffer);
    assert!(bytes.chunks(10).zip(0..).all(|(part, number)| part == [number as u32 as u8; 10]));
    assert!(scene.server.app.closed.is_empty());
}

/// A peer with many flows is gone: what its end takes is spread over turns.
#[test]
fn timers_that_are_due_at_once_are_handled_in_parts() {
    let mut client = host(1, 0);
    let nobody = SocketAddr::from(([10, 0, 0, 9], 20707));
    for _ in 0..1000 {
        let (local, app) = (client.address, OWNER);
        client.endpoint.connect(START, app, local, nobody, PORT, WINDOW).expect("room");
    }
    client.packets(START);
    let later = START + 100 * SECOND;
    let mut calls = 0;
    while client.endpoint.next_timeout().is_some_and(|due| due <= later) {
        let before = client.app.closed.len();
        client.endpoint.handle_timeouts(later, &mut client.app);
        assert!(client.app.closed.len() - before <= 256, "all at once");
        calls += 1;
        assert!(calls < 100, "not all are handled");
    }
    assert_eq!(client.app.closed, [Reason::TimedOut; 1000]);
}

#[test]
fn a_message_from_before_the_first_or_far_beyond_the_limit_ends_the_flow() {
    for sequence in [u32::MAX, 1 << 30, 1 << 20] {
        let mut scene = Scene::new(16 << 20);
        let packet = scene.hostile.fragment(sequence, 10, 0, &[1]);
        scene.attack(&packet);
        scene.assert_ended();
    }
}

#[test]
fn more_than_the_limit_ends_the_flow() {
    let mut scene = Scene::new(16 << 20);
    let mut sequence = 0;
    while scene.server.app.closed.is_empty() {
        // Never released, so the limit stays.
        let packet = scene.hostile.packet(|frames| {
            let head = clearway::emit_message(frames, sequence, 1000);
            head + 1000
        });
        scene.attack(&packet);
        sequence += 1;
    }
    assert_eq!(u64::from(sequence), WINDOW / 1064 + 1);
    assert_eq!(scene.server.app.closed, [Reason::Protocol]);
}

/// `docs/wire.md`: both are 0.
#[test]
fn what_is_reserved_in_messages_ends_the_flow() {
    for emit in [
        |frames: &mut [u8]| clearway::emit_message(frames, 0, 0),
        |frames: &mut [u8]| clearway::emit_fragment(frames, 0, 1, 10, 0) + 1,
    ] {
        for octet in [2, 3] {
            let mut scene = Scene::new(1 << 20);
            let packet = scene.hostile.packet(|frames| {
                let length = emit(frames);
                frames[octet] = 1;
                length
            });
            scene.attack(&packet);
            scene.assert_ended();
        }
    }
}

/// Its app has closed and wants no more; what the peer sent is acknowledged all the same.
#[test]
fn nothing_is_taken_for_an_app_that_has_closed() {
    let mut scene = Scene::new(1 << 20);
    let key = FlowKey::of_id(scene.hostile.flow);
    let server = &mut scene.server;
    server.endpoint.close(scene.now, key, &mut server.app);
    let part = scene.hostile.fragment(1, 1000, 0, &[1; 10]);
    scene.attack(&part);
    let whole = scene.hostile.packet(|frames| clearway::emit_message(frames, 0, 0));
    scene.attack(&whole);
    let app = &scene.server.app;
    assert!(app.buffers.is_empty() && app.delivered.is_empty() && app.closed.is_empty());
    assert_eq!(scene.server.endpoint.counters().dropped_violation, 0);
    scene.assert_good_goes_on(100, MILLISECOND);
}

/// The bytes that came first are those that count.
#[test]
fn a_part_that_comes_again_with_other_bytes_changes_nothing() {
    let mut scene = Scene::new(1 << 20);
    for (offset, byte) in [(0, 1), (0, 2), (10, 3)] {
        let packet = scene.hostile.fragment(0, 20, offset, &[byte; 10]);
        scene.attack(&packet);
    }
    let (_, buffer) = scene.server.app.delivered.pop_front().expect("whole");
    assert_eq!(scene.server.app.release(buffer), [[1; 10], [3; 10]].concat());
}

#[test]
fn parts_that_do_not_agree_end_the_flow() {
    let mut scene = Scene::new(16 << 20);
    for total in [100, 101] {
        let packet = scene.hostile.fragment(0, total, 0, &[1; 50]);
        scene.attack(&packet);
    }
    scene.assert_ended();
}

/// The bytes that came first count; those behind them are taken as they come.
#[test]
fn overlapping_parts_with_different_bytes_make_one_message_of_the_right_length() {
    let mut random = Random::new(1);
    for _ in 0..200 {
        let mut scene = Scene::new(1 << 20);
        while scene.server.app.delivered.is_empty() {
            let offset = random.below(1000) as u32;
            let length = (1 + random.below(400)).min(1000 - u64::from(offset)) as usize;
            let packet =
                scene.hostile.fragment(0, 1000, offset, &vec![random.next_u32() as u8; length]);
            scene.attack(&packet);
        }
        let (_, buffer) = scene.server.app.delivered.pop_front().expect("just seen");
        assert_eq!(scene.server.app.release(buffer).len(), 1000);
        assert!(scene.server.app.closed.is_empty());
    }
}

#[test]
fn a_packet_of_which_a_part_cannot_be_read_is_dropped_whole() {
    let mut scene = Scene::new(1 << 20);
    let message_and = |garbage: u8| {
        move |frames: &mut [u8]| {
            let head = clearway::emit_message(frames, 0, 5);
            frames[head..head + 5].copy_from_slice(b"hello");
            frames[head + 5] = garbage;
            head + 6
        }
    };
    let packet = scene.hostile.packet_numbered(0, message_and(0xff));
    scene.attack(&packet);
    assert_eq!(scene.server.endpoint.counters().dropped_malformed, 1);
    assert!(scene.server.app.delivered.is_empty());
    // Its number was not used up: the same with padding instead is taken.
    let packet = scene.hostile.packet_numbered(0, message_and(0));
    scene.attack(&packet);
    assert_eq!(scene.server.app.delivered.len(), 1);
}

#[test]
fn messages_are_taken_wherever_they_stand_in_a_packet() {
    let mut scene = Scene::new(1 << 20);
    let packet = scene.hostile.packet(|frames| {
        let mut at = 0;
        for sequence in 0..3 {
            at += clearway::emit_padding(&mut frames[at..at + 3]);
            at += clearway::emit_message(&mut frames[at..], sequence, 1) + 1;
            at += clearway::emit_ping(&mut frames[at..]);
        }
        at
    });
    scene.attack(&packet);
    assert_eq!(scene.server.app.delivered.len(), 3, "what is acknowledged is delivered");
}

#[test]
fn the_last_packet_number_that_there_is_ends_the_flow() {
    let mut scene = Scene::new(1 << 20);
    let packet = scene.hostile.packet_numbered(u64::MAX, clearway::emit_ping);
    scene.attack(&packet);
    scene.assert_ended();
    let mut scene = Scene::new(1 << 20);
    let packet = scene.hostile.packet_numbered(u64::MAX - 1, clearway::emit_ping);
    scene.attack(&packet);
    assert!(scene.server.app.closed.is_empty());
    scene.assert_good_goes_on(100, MILLISECOND);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_ends_the_flow() {
    let mut scene = Scene::new(1 << 20);
    let range = 0..1000;
    let packet = scene
        .hostile
        .packet(|frames| clearway::emit_ack(frames, 0, clearway::EcnReport::default(), [range]));
    scene.attack(&packet);
    scene.assert_ended();
}

#[test]
fn closes_that_contradict_each_other_or_what_was_sent_end_the_flow() {
    let mut scene = Scene::new(1 << 20);
    for messages in [5, 6] {
        let packet = scene.hostile.packet(|frames| clearway::emit_close(frames, 0, messages));
        scene.attack(&packet);
    }
    scene.assert_ended();
    let mut scene = Scene::new(1 << 20);
    let message = scene.hostile.packet(|frames| clearway::emit_message(frames, 0, 0));
    scene.attack(&message);
    let close = scene.hostile.packet(|frames| clearway::emit_close(frames, 0, 0));
    scene.attack(&close);
    assert_eq!(scene.server.app.closed, [Reason::Protocol]);
}

/// The answer would have as many bytes, for which there may be no room.
#[test]
fn a_ping_longer_than_a_packet_may_be_is_not_answered() {
    let mut scene = Scene::new(1 << 20);
    for (length, answers) in [(1472, 1), (1473, 0), (9000, 0)] {
        let mut ping = vec![0; length];
        Header::control(PacketType::Ping, 0, 7).emit(&mut ping);
        clearway::seal(&mut ping);
        scene.attack(&ping);
        assert_eq!(scene.server.packets(scene.now).len(), answers, "{length}");
    }
}

#[test]
fn flow_ids_tell_nothing_of_each_other() {
    let mut server = host(1, 1 << 20);
    server.endpoint.listen(PORT, LISTENER).expect("free");
    let ids: Vec<u64> = (0..8).map(|nth| Hostile::connect(&mut server, nth, START).flow).collect();
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(id & 0xf_ffff, index as u64, "its slot");
        assert!(ids[..index].iter().all(|other| (id ^ other) >> 20 != 0));
    }
}

/// Opens flows from one host until it is refused; returns how many it got.
fn open_all(server: &mut Host, index: u8) -> usize {
    let before = server.app.accepted.len();
    for nth in 0..45 {
        let mut client = host(index, 0);
        client.endpoint = Endpoint::new(Config::default(), START, nth, [index; 16]);
        let (from, to) = (client.address, server.address);
        client.endpoint.connect(START, OWNER, from, to, PORT, WINDOW).expect("room");
        server.packets(START);
        exchange(server, &mut client, START);
    }
    server.app.accepted.len() - before
}

#[test]
fn a_greedy_host_leaves_room_for_others() {
    let mut server = host(1, 1 << 20);
    let config = Config { flows_max: 40, ..Config::default() };
    server.endpoint = Endpoint::new(config, START, 1, [1; 16]);
    server.endpoint.listen(PORT, LISTENER).expect("free");
    assert_eq!(open_all(&mut server, 2), 35);
    for newcomer in 3..8 {
        assert_eq!(open_all(&mut server, newcomer), 1);
    }
    assert_eq!(open_all(&mut server, 8), 0, "there is none left");
    for nth in 0..35 {
        let key = server.app.accepted[nth];
        server.endpoint.abort(key, Reason::Reset, &mut server.app);
    }
    assert_eq!(open_all(&mut server, 3), 30, "what nobody else wants");
}

/// A peer that has the engine send packets, and never acknowledges the first of them.
#[test]
fn one_that_acknowledges_nothing_and_provokes_more_is_kept_few_books_of() {
    let mut scene = Scene::new(16 << 20);
    let probe = scene.hostile.packet_numbered(0, clearway::emit_ping);
    let key = FlowKey::of(&probe).expect("a packet");
    for nth in 0..20_000_u32 {
        let at = nth * 10;
        // What asks for an acknowledgement, a path, a limit (an empty message is released), or a
        // probe.
        let packet = scene.hostile.packet(|frames| {
            let mut end = clearway::emit_ping(frames);
            end += clearway::emit_probe(&mut frames[end..], nth as u16);
            end += clearway::emit_limit(&mut frames[end..], u64::from(at) + WINDOW);
            // Its credit is what it was: limits are not told without end either.
            if nth < 4000 { end + clearway::emit_message(&mut frames[end..], nth, 0) } else { end }
        });
        scene.attack(&packet);
        while let Some((_, buffer)) = scene.server.app.delivered.pop_front() {
            scene.server.app.release(buffer);
            scene.server.endpoint.release(scene.now, key, 1, 0);
        }
        scene.now = scene.now + 10 * MICROSECOND;
        scene.server.endpoint.handle_timeouts(scene.now, &mut scene.server.app);
        scene.server.packets(scene.now);
    }
    assert!(scene.server.app.closed.is_empty(), "{:?}", scene.server.app.closed);
    assert_eq!(scene.server.endpoint.counters().dropped_violation, 0);
    let kept = scene.server.endpoint.flow_of(key).packets_kept();
    assert!((200..512).contains(&kept), "{kept}");
}

/// It is never given up, since it speaks. Each probe that it does not answer was kept once, until
/// there were more than a state may have.
#[test]
fn one_that_speaks_and_never_acknowledges_is_kept_few_books_of_for_ever() {
    let mut scene = Scene::new(16 << 20);
    let way = scene.hostile.packet(|frames| clearway::emit_probe(frames, 1));
    let key = FlowKey::of(&way).expect("a packet");
    scene.attack(&way);
    for _ in 0..1500 {
        let packet = scene.hostile.packet(clearway::emit_ping);
        scene.attack(&packet);
        scene.now = scene.now + 110 * MILLISECOND;
        scene.server.endpoint.handle_timeouts(scene.now, &mut scene.server.app);
        scene.server.packets(scene.now);
    }
    let kept = scene.server.endpoint.flow_of(key).packets_kept();
    assert!((60..70).contains(&kept), "{kept}");
    let saved = scene.server.endpoint.save();
    Endpoint::restore(saved, Config::default(), scene.now).expect("just saved");
}
