//! Messages that are dropped if they cannot leave in time.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use clearway_base::{MICROSECOND, MILLISECOND, Random, Time};
use clearway_wire::clearway::{emit_fragment, emit_message, emit_skip, emit_stream};
use clearway_world::Steps;

use super::in_flow::Streams;
use super::{Faults, TestApp, WINDOW, bad, content};
use crate::company::{Company, Sending};
use crate::stream::Stream;
use crate::{Deadline, Owner, Reason, StreamKey};

impl Streams {
    /// Sends a message that may leave for so long; its number is its name.
    fn send_within(&mut self, to: StreamKey, offset: u32, length: u32, number: u32, ns: u64) {
        let (now, endpoint) = (self.network.now, &mut self.network.hosts[0].endpoint);
        endpoint.send_until(now, to, offset, length, Deadline { at: now + ns, number });
    }

    /// What host 1 was told of a connection, by its owner there: true for a message.
    fn told(&self, owner: Owner) -> Vec<bool> {
        let told = self.network.hosts[1].app.told.iter().filter(|(of, _)| *of == owner);
        told.filter(|(_, what)| *what != "connected").map(|(_, what)| *what == "message").collect()
    }

    /// Whose a stream is at a host.
    fn owner_at(&self, host: usize, stream: StreamKey) -> Owner {
        let at = self.at(host, stream);
        let mut names = self.names[host].iter();
        names.find(|(_, key)| **key == at).map_or(own(host), |it| *it.0)
    }
}

/// Whose the flow's own connection is.
fn own(host: usize) -> Owner {
    Owner { channel: 1 - host as u32, connection: 1 }
}

/// Over bad links, through endpoints that are saved and restored, in a stream and in the flow's own
/// connection: each message is delivered, or both apps hear that it was dropped, in its turn.
#[test]
fn each_is_delivered_or_both_apps_hear_that_it_was_dropped() {
    let (mut dropped_in_all, mut delivered_in_all) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let faults = bad(random.below(60), random.below(60), random.below(100), random.below(20));
        let mut world = Streams::new(seed, faults);
        let streams: [StreamKey; 2] = [world.flow(0).into(), world.open(0)];
        world.run_until(|world| world.network.hosts[1].app.streams.len() == 1);
        let mut lengths = [Vec::new(), Vec::new()];
        for _ in 0..300 {
            match random.below(12) {
                0 => world.network.move_on(),
                1 => (0..2).for_each(|host| world.network.hosts[host].endpoint.recount()),
                2..=4 => world.go_on(),
                _ => {
                    let of = random.below(2) as usize;
                    let number = lengths[of].len() as u32;
                    let length = [0, 64, 1000, 40_000, 200_000][random.below(5) as usize];
                    lengths[of].push(length);
                    match random.below(3) {
                        0 => world.send(0, streams[of], number, length),
                        _ => {
                            let ns = random.below(MILLISECOND);
                            world.send_within(streams[of], number, length, number, ns);
                        }
                    }
                }
            }
        }
        let count = lengths.iter().map(Vec::len).sum::<usize>() as u32;
        world.run_until(|world| world.network.hosts[0].app.sent == count);
        let all = content(0, 1 << 20);
        for (stream, lengths) in streams.iter().zip(&lengths) {
            let owner = world.owner_at(0, *stream);
            let of = world.network.hosts[0].app.dropped.iter().filter(|(of, _)| *of == owner);
            let dropped: Vec<u32> = of.map(|(_, number)| *number).collect();
            assert!(dropped.is_sorted_by(|a, b| a < b), "seed {seed}: each once, in order");
            let dropped: HashSet<u32> = dropped.into_iter().collect();
            let told = world.told(world.owner_at(1, *stream));
            let expected = (0..lengths.len() as u32).map(|number| !dropped.contains(&number));
            assert!(told.into_iter().eq(expected), "seed {seed}: in its turn");
            let kept = lengths.iter().zip(0_u32..).filter(|(_, it)| !dropped.contains(it));
            let got = &world.got[1][&stream.stream];
            assert!(
                got.iter()
                    .eq(kept
                        .map(|(length, number)| { &all[number as usize..][..*length as usize] }))
            );
            dropped_in_all += dropped.len();
            delivered_in_all += got.len();
        }
        let own = world.flow(0);
        world.close(0, own);
        world.run_until(|world| (0..2).all(|host| world.ends(host) == [Reason::Closed; 2]));
        assert!(world.network.hosts[1].app.is_all_finished());
    }
    assert!(dropped_in_all > 500 && delivered_in_all > 500, "{dropped_in_all} {delivered_in_all}");
}

/// One that waits for credit is dropped as soon as there is some for its bookkeeping, however long
/// it is, and costs the window nothing: those behind it have all of it.
#[test]
fn what_waits_for_a_reader_is_dropped_and_takes_no_credit() {
    const FILL: usize = WINDOW as usize / 1024 + 1;
    let mut world = Streams::new(1, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| world.network.hosts[1].app.streams.len() == 1);
    let there = world.at(1, stream);
    for round in 0..20_u32 {
        // What is not read takes all of the window.
        let first = world.got[1].get(&stream.stream).map_or(0, Vec::len);
        (0..FILL).for_each(|_| world.send(0, stream, 0, 960));
        for number in 0..3 {
            let number = 3 * round + number;
            world.send_within(stream, 0, 8 << 20, number, 100 * MICROSECOND);
        }
        world.send(0, stream, 0, 5);
        let end = world.network.now + MILLISECOND;
        world.network.run_until(|network| network.now > end);
        assert_eq!(
            world.network.hosts[0].app.dropped.len() as u32,
            3 * round,
            "nobody is told yet"
        );
        world.run_until(|world| {
            world.count(1, there) == first + FILL + 1
                && world.network.hosts[0].app.dropped.len() as u32 == 3 * round + 3
        });
        world.network.hosts.iter_mut().for_each(|host| host.endpoint.recount());
    }
    let told = world.told(world.owner_at(1, stream));
    let round = [vec![true; FILL], vec![false; 3], vec![true]].concat();
    assert_eq!(told, round.repeat(20));
}

/// Nothing of what has begun to leave is dropped, and nothing whose time is not over.
#[test]
fn what_leaves_in_time_arrives() {
    let mut world = Streams::new(1, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| world.network.hosts[1].app.streams.len() == 1);
    for number in 0..50 {
        // The first packet of each leaves at once; the rest takes longer than the time that it has.
        world.send_within(stream, 0, 100_000, number, 10 * MICROSECOND);
        let begun = world.count(1, stream) + 1;
        world.run_until(|world| world.count(1, stream) == begun);
    }
    assert!(world.network.hosts[0].app.dropped.is_empty());
}

/// Skip frames that no honest peer sends end the flow, or are ignored.
#[test]
fn a_peer_may_not_skip_what_it_has_sent() {
    type Emit = fn(&mut [u8]) -> usize;
    let cases: [(Emit, bool); 6] = [
        (|bytes| emit_skip(bytes, 0, 100), true),
        (|bytes| emit_skip(bytes, 3, 8 << 20), true),
        (
            |bytes| {
                let at = emit_fragment(bytes, 2, 3, 100, 0) + 3;
                at + emit_skip(&mut bytes[at..], 2, 100)
            },
            false,
        ),
        (|bytes| emit_skip(bytes, (WINDOW / 64) as u32 + 1, 0), false),
        (
            |bytes| {
                // One that came in another way before.
                let at = emit_message(bytes, 0, 0);
                at + emit_skip(&mut bytes[at..], 0, 8 << 20)
            },
            true,
        ),
        (
            |bytes| {
                let at = emit_stream(bytes, 2);
                at + emit_skip(&mut bytes[at..], 0, 5)
            },
            false,
        ),
    ];
    for (nth, (emit, is_fine)) in cases.into_iter().enumerate() {
        let mut world = Streams::new(1, Faults::default());
        assert_eq!(world.inject(0, 100, emit), is_fine, "case {nth}");
    }
    let mut told = HashMap::new();
    let mut world = Streams::new(1, Faults::default());
    for (number, sequence) in (100..).zip([1, 0, 1, 0, 5, 3, 4, 2]) {
        assert!(world.inject(1, number, |bytes| emit_skip(bytes, sequence, 1000)));
        *told.entry(sequence).or_insert(0) += 1;
    }
    let owner = world.owner_at(1, world.flow(0).into());
    assert_eq!(world.told(owner), [false; 6], "each once");
}

/// An app that does not read what it is told hears of no more, however many are dropped; and of
/// each once it does.
#[test]
fn who_does_not_read_is_not_flooded() {
    let mut world = Streams::new(1, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| world.network.hosts[1].app.streams.len() == 1);
    world.network.hosts[1].app.is_deaf = true;
    for number in 0..100 {
        world.send_within(stream, 0, 1000, number, 0);
        world.go_on();
    }
    let end = world.network.now + 50 * MILLISECOND;
    world.run_until(|world| world.network.now > end);
    let owner = world.owner_at(1, stream);
    let (told, came) = (world.told(owner), world.count(1, stream));
    assert_eq!(told.len(), came, "nothing but what left in time");
    world.network.hosts[1].app.is_deaf = false;
    world.run_until(|world| {
        world.network.hosts[0].app.dropped.len() + world.count(1, stream) == 100
    });
    assert_eq!(world.told(owner).len(), 100, "each");
}

/// Sends all that there is in packets of 9000 bytes, since it is late as skip frames; the positions
/// of each packet.
fn skip_all(stream: &mut Stream) -> Vec<Range<u64>> {
    let (mut company, app) = (Company::default(), TestApp::new(0));
    let (mut bytes, mut packets) = (vec![0_u8; 9000], Vec::new());
    while stream.outgoing.has_data() {
        let mut sending = Sending { now: Time::from_ns(1), company: &mut company };
        let mut sent = 0..0;
        stream.emit_messages(&mut sending, &mut bytes, 100, &mut sent, &app);
        assert!(!sent.is_empty());
        packets.push(sent);
    }
    packets
}

/// However many were dropped, and however long they were: what a packet remembers of its positions
/// has 32 bits.
#[test]
fn what_is_skipped_again_has_no_more_positions_than_a_packet_may() {
    const LENGTH: u32 = 8 << 20;
    let mut stream = Stream::new(own(0), 0);
    stream.outgoing.raise_limit(u64::MAX);
    for number in 0..600 {
        stream.outgoing.push_until(0, LENGTH, Deadline { at: Time::ZERO, number });
    }
    let end = 600 * (crate::MESSAGE_OVERHEAD + u64::from(LENGTH));
    assert_eq!(skip_all(&mut stream).last().map(|last| last.end), Some(end));
    // All of it was lost.
    stream.outgoing.send_again(0..end);
    let again = skip_all(&mut stream);
    assert!(again.iter().all(|packet| packet.end - packet.start <= u64::from(u32::MAX)));
    assert_eq!((again.len(), again.last().map(|last| last.end)), (2, Some(end)));
}
