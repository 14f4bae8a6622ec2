//! Several connections in one flow.

use std::collections::HashMap;

use clearway_base::{MILLISECOND, Random, SECOND};
use clearway_wire::clearway::{
    STREAM_FRAME_LENGTH, emit_close, emit_fragment, emit_limit, emit_message, emit_open, emit_ping,
    emit_stream, emit_wait,
};
use clearway_world::Steps;

use super::in_flow::Streams;
use super::{Faults, WINDOW, bad, content};

use crate::flow::{PROBED, STREAMS_MAX};
use crate::state::{PartialState, SideState};
use crate::{
    Buffer, Config, Endpoint, EndpointState, NoStream, Order, Phase, Priority, Reason, StreamKey,
    StreamStage,
};

/// Messages of many streams and of the flow's own connection, over bad links and through endpoints
/// that are saved and restored: each once, whole, and in the order of its stream.
#[test]
fn each_stream_has_its_order_over_bad_links() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let faults = bad(random.below(100), random.below(100), random.below(200), random.below(20));
        let mut world = Streams::new(seed, faults);
        // By host and stream, what was sent: where in the pool, and how long.
        let mut sent: [HashMap<u32, Vec<(u32, u32)>>; 2] = Default::default();
        let mut open: [Vec<StreamKey>; 2] = [0, 1].map(|host| vec![world.flow(host).into()]);
        let mut closed = Vec::new();
        for _ in 0..500 {
            let host = random.below(2) as usize;
            let at = random.below(open[host].len() as u64) as usize;
            match random.below(20) {
                0..=1 => open[host].push(world.open(host)),
                2 if at > 0 => {
                    let stream = open[host].swap_remove(at);
                    world.close(host, stream);
                    closed.push((host, stream));
                }
                3 => world.network.move_on(),
                4 => world.network.hosts[host].endpoint.recount(),
                5..=9 => world.go_on(),
                _ => {
                    let length = [0, 64, 1000, 5000, 100_000][random.below(5) as usize];
                    let offset = random.below((1 << 20) - u64::from(length)) as u32;
                    world.send(host, open[host][at], offset, length);
                    let messages = sent[host].entry(open[host][at].stream).or_default();
                    messages.push((offset, length));
                }
            }
        }
        let all = content(0, 1 << 20);
        world.run_until(|world| {
            (0..2).all(|host| {
                let got = &world.got[1 - host];
                let is_there =
                    |(id, sent): (&u32, &Vec<_>)| got.get(id).map_or(0, Vec::len) == sent.len();
                sent[host].iter().all(is_there)
            })
        });
        for (host, sent) in sent.iter().enumerate() {
            for (id, messages) in sent {
                let got = &world.got[1 - host][id];
                for (message, (offset, length)) in got.iter().zip(messages) {
                    let expected = &all[*offset as usize..][..*length as usize];
                    assert!(message == expected, "seed {seed}: a message of stream {id}");
                }
            }
        }
        world.run_until(|world| {
            let ended = |host: usize| world.network.hosts[host].app.ended.len();
            ended(0) + ended(1) == 2 * closed.len()
        });
        assert!((0..2).all(|host| world.ends(host).iter().all(|end| *end == Reason::Closed)));
        // What each side's app has sent is told to it.
        let count = |host: usize| sent[host].values().map(Vec::len).sum::<usize>() as u32;
        world.run_until(|world| (0..2).all(|h| world.network.hosts[h].app.sent == count(h)));
    }
}

/// Both apps that are closed at a time hear it once, and nothing is left of their streams.
#[test]
fn numbers_are_of_whom_opens_and_never_come_again() {
    let mut world = Streams::new(1, Faults::default());
    let numbers = |world: &mut Streams, host| [(); 3].map(|()| world.open(host).stream);
    assert_eq!(numbers(&mut world, 0), [1, 3, 5]);
    assert_eq!(numbers(&mut world, 1), [2, 4, 6]);
    world.run_until(|world| world.network.hosts.iter().all(|host| host.app.streams.len() == 3));
    for host in 0..2 {
        let streams: Vec<_> = world.names[host].values().copied().collect();
        streams.into_iter().for_each(|stream| world.close(host, stream));
    }
    world.run_until(|world| (0..2).all(|host| world.ends(host) == [Reason::Closed; 6]));
    assert!(world.network.hosts.iter().all(|host| host.endpoint.books().count() == 1));
    assert_eq!(world.open(0).stream, 7);
    assert_eq!(world.open(1).stream, 8);
}

#[test]
fn a_large_message_holds_up_nobody_else() {
    let mut world = Streams::new(2, Faults::default());
    let (large, small) = (world.open(0), world.open(0));
    world.run_until(|world| world.network.hosts[1].app.streams.len() == 2);
    for _ in 0..8 {
        world.send(0, large, 0, 1 << 20);
    }
    for _ in 0..10 {
        let own = world.flow(0);
        world.send(0, small, 0, 64);
        world.send(0, own, 0, 64);
    }
    let own = StreamKey::from(world.flow(1));
    world.run_until(|world| world.count(1, small) == 10 && world.count(1, own) == 10);
    assert_eq!(world.count(1, large), 0, "the first is still under way");
    world.run_until(|world| world.count(1, large) == 8);
}

/// Who has much to send has one turn as everybody else: streams, and the flow's own connection.
#[test]
fn all_have_their_turns() {
    let mut world = Streams::new(2, Faults::default());
    let (busy, calm) = (world.open(0), world.open(0));
    let own = StreamKey::from(world.flow(0));
    world.run_until(|world| world.network.hosts[1].app.streams.len() == 2);
    for all in [[busy, own, calm], [own, busy, calm]] {
        world.order.clear();
        (0..150).for_each(|_| world.send(0, all[0], 0, 1200));
        for stream in &all[1..] {
            (0..20).for_each(|_| world.send(0, *stream, 0, 1200));
        }
        world.run_until(|world| world.order.len() == 190);
        let is_busy = |id: &&u32| **id == all[0].stream;
        let last = world.order.iter().rposition(|id| *id != all[0].stream).expect("forty came");
        let came = world.order[..last].iter().filter(is_busy).count();
        assert!((15..25).contains(&came), "{came} of who has most to send");
    }
}

/// Of the most urgent all goes first; of two of the same urgency one has three times the other's.
#[test]
fn turns_are_by_urgency_and_weight() {
    let mut world = Streams::new(4, Faults::default());
    let (urgent, heavy, light) = (world.open(0), world.open(0), world.open(0));
    let own = StreamKey::from(world.flow(0));
    world.run_until(|world| world.network.hosts[0].endpoint.books().all(|all| all.limit > 0));
    for (stream, urgency, weight) in [(urgent, 0, 1), (heavy, 3, 48), (own, 7, 256)] {
        world.network.hosts[0].endpoint.set_priority(stream, Priority { urgency, weight });
    }
    for (urgency, weight) in [(8, 16), (0, 0), (0, 257)] {
        world.network.hosts[0].endpoint.set_priority(light, Priority { urgency, weight });
    }
    world.network.move_on();
    for stream in [own, light, heavy, urgent] {
        (0..60).for_each(|_| world.send(0, stream, 0, 1200));
    }
    world.run_until(|world| world.order.len() == 240);
    let last = |id: u32| world.order.iter().rposition(|other| *other == id).expect("it came");
    let first = |id: u32| world.order.iter().position(|other| *other == id).expect("it came");
    assert!(last(urgent.stream) < 70, "but for what left before");
    assert!(first(own.stream) > 170, "but for what is on its way");
    let of_light = world.order[..last(heavy.stream)].iter().filter(|id| **id == light.stream);
    assert!((17..=24).contains(&of_light.count()), "a third of 60");
}

/// Messages come once and whole over bad links, whatever order, while endpoints are saved and
/// restored; and some do come before others.
#[test]
fn unordered_messages_come_once_and_whole() {
    let mut overtakings = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let faults = bad(100, 50, 100, 0);
        let mut world = Streams::new(seed, faults);
        let streams = [world.flow(0).into(), world.open(0)];
        world.run_until(|world| world.network.hosts[1].app.streams.len() == 1);
        let mut lengths = [Vec::new(), Vec::new()];
        for _ in 0..200 {
            match random.below(10) {
                0 => world.network.move_on(),
                1..=3 => world.go_on(),
                4 => {
                    let stream = world.at(1, streams[random.below(2) as usize]);
                    let host = &mut world.network.hosts[1];
                    host.endpoint.set_unordered(stream, &mut host.app);
                }
                _ => {
                    let of = random.below(2) as usize;
                    // Its length is its name.
                    let length = 100 * lengths[of].len() as u32;
                    lengths[of].push(length);
                    world.send(0, streams[of], length, length);
                }
            }
        }
        world.run_until(|world| (0..2).all(|of| world.count(1, streams[of]) == lengths[of].len()));
        let all = content(0, 1 << 20);
        for (stream, sent) in streams.iter().zip(&lengths) {
            let got = &world.got[1][&stream.stream];
            assert!(got.iter().all(|message| {
                let length = message.len();
                message == &all[length..2 * length]
            }));
            let mut came: Vec<u32> = got.iter().map(|message| message.len() as u32).collect();
            overtakings += usize::from(!came.is_sorted());
            came.sort_unstable();
            assert_eq!(&came, sent, "seed {seed}");
        }
        world.close(0, world.flow(0));
        world.run_until(|world| (0..2).all(|host| world.ends(host) == [Reason::Closed; 2]));
        assert!(world.network.hosts[1].app.is_all_finished());
    }
    assert!(overtakings > 10, "{overtakings}");
}

#[test]
fn who_is_not_read_stops_only_itself() {
    let mut world = Streams::new(3, Faults::default());
    let (unread, read) = (world.open(0), world.open(0));
    for _ in 0..30 {
        world.send(0, unread, 0, 20_000);
    }
    for _ in 0..30 {
        world.send(0, read, 0, 20_000);
    }
    let end = world.network.now + SECOND;
    while world.network.now < end {
        world.network.go_on();
        world.read(1, unread.stream);
    }
    assert_eq!(world.count(1, read), 30);
    let held = world.network.hosts[1].app.delivered.len() as u64;
    assert_eq!(held, WINDOW / (20_000 + 64), "its window, and no more");
    world.run_until(|world| world.count(1, unread) == 30);
}

#[test]
fn the_flows_own_connection_takes_its_streams_along() {
    for seed in 0..20 {
        let faults = bad(100, 0, 100, 0);
        let mut world = Streams::new(seed, faults);
        let streams = [world.open(0), world.open(1), world.open(0)];
        world.run_until(|world| {
            let streams = |host: usize| world.network.hosts[host].app.streams.len();
            (streams(0), streams(1)) == (1, 2)
        });
        for stream in streams {
            let stream = world.at(0, stream);
            (0..5).for_each(|_| world.send(0, stream, 0, 5000));
        }
        let own = world.flow(0);
        world.close(0, own);
        world.run_until(|world| (0..2).all(|host| world.ends(host) == [Reason::Closed; 4]));
        for stream in streams {
            assert_eq!(world.count(1, stream), 5, "seed {seed}: what was sent before arrives");
        }
    }
}

#[test]
fn all_apps_hear_of_the_end_of_the_flow() {
    let mut world = Streams::new(5, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| !world.network.hosts[1].app.streams.is_empty());
    let own = world.flow(0);
    world.send(0, stream, 0, 5000);
    world.abort(0, own);
    assert_eq!(world.ends(0), [Reason::Reset], "the stream's; who aborts knows");
    world.run_until(|world| world.ends(1) == [Reason::Reset; 2]);

    let mut world = Streams::new(6, Faults::default());
    world.open(0);
    world.network.cut(true);
    world.run_until(|world| world.ends(0) == [Reason::TimedOut; 2]);
}

/// Over bad links, in whatever state the other end is: also one that has closed in order before.
#[test]
fn an_aborted_stream_ends_at_both_ends_and_the_flow_goes_on() {
    for seed in 0..60 {
        let faults = bad(150, 0, 200, 0);
        let mut world = Streams::new(seed, faults);
        let mut random = Random::new(seed);
        let stream = world.open(0);
        (0..10).for_each(|_| world.send(0, stream, 0, 10_000));
        (0..random.below(30)).for_each(|_| world.go_on());
        if random.chance(1, 2) {
            world.close(0, stream);
            (0..random.below(10)).for_each(|_| world.go_on());
        }
        world.abort(0, stream);
        if random.chance(1, 2) {
            world.network.move_on();
        }
        let own = world.flow(0);
        world.send(0, own, 0, 64);
        world.run_until(|world| {
            let sides = world.network.hosts.iter().map(|host| host.endpoint.books().count());
            sides.sum::<usize>() == 2 && world.count(1, world.flow(1).into()) == 1
        });
        let told = world.network.hosts[1].app.streams.len();
        assert_eq!(world.ends(1).len(), told, "seed {seed}: once, if it was told of the stream");
        assert!(world.ends(0).len() <= 1);
    }
}

/// Its peer, which has that close and misses a message before it, would wait for that for ever.
#[test]
fn what_is_aborted_after_its_close_was_seen_ends_at_the_peer() {
    let mut world = Streams::new(9, Faults::default());
    let stream = world.open(0);
    world.send(0, stream, 0, 64);
    world.run_until(|world| world.count(1, stream) == 1);
    world.network.accidents.lose = 1;
    world.send(0, stream, 0, 1000);
    world.close(0, stream);
    world.network.transmit();
    world.abort(0, stream);
    world.network.cut(true);
    world.network.transmit();
    world.network.cut(false);
    world.run_until(|world| world.ends(1) == [Reason::Reset]);
    world.run_until(|world| {
        let saved = world.network.hosts[0].endpoint.save();
        saved.flows[0].streams.as_ref().is_some_and(|all| all.sides.is_empty())
    });
    assert!(world.ends(0).is_empty(), "who aborts knows");
}

/// Nothing else need go on in the flow for that; and each app hears at most once.
#[test]
fn an_abort_is_told_at_once_and_may_meet_another() {
    for both in [false, true] {
        let mut world = Streams::new(13, Faults::default());
        let stream = world.open(0);
        world.run_until(|world| !world.network.hosts[1].app.streams.is_empty());
        (0..20).for_each(|_| world.go_on());
        let end = world.network.now + SECOND;
        world.abort(0, stream);
        if both {
            let stream = world.at(1, stream);
            world.abort(1, stream);
        }
        world.run_until(|world| {
            let flow = |host: usize| world.network.hosts[host].endpoint.save().flows.remove(0);
            (0..2).all(|host| flow(host).streams.is_some_and(|all| all.sides.is_empty()))
        });
        assert!(world.network.now < end, "not only when the flow is kept alive");
        assert!(world.ends(0).is_empty());
        assert_eq!(world.ends(1).len(), usize::from(!both));
    }
}

/// In the middle of a message, whoever ends it, and how.
#[test]
fn memory_comes_back_however_a_stream_ends() {
    type End = fn(&mut Streams, StreamKey);
    let ends: [End; 7] = [
        |world, stream| world.abort(1, stream),
        |world, stream| world.close(1, stream),
        |world, stream| world.abort(1, stream.flow),
        |world, stream| world.close(1, stream.flow),
        |world, stream| {
            let stream = world.at(0, stream);
            world.abort(0, stream);
            world.run_until(|world| world.ends(1) == [Reason::Reset]);
        },
        |world, _| {
            let own = world.flow(0);
            world.abort(0, own);
            world.run_until(|world| world.ends(1) == [Reason::Reset; 2]);
        },
        |world, _| {
            assert!(
                !world.inject(1, 5000, |bytes| emit_stream(bytes, 0) + emit_ping(&mut bytes[8..]))
            );
            assert_eq!(world.ends(1), [Reason::Protocol; 2]);
        },
    ];
    for end in ends {
        let mut world = Streams::new(14, Faults::default());
        let stream = world.open(0);
        world.send(0, stream, 0, 100_000);
        world.run_until(|world| !world.network.hosts[1].app.buffers.is_empty());
        let stream = world.at(1, stream);
        end(&mut world, stream);
        let app = &world.network.hosts[1].app;
        assert!(app.buffers.is_empty() && app.unfinished.is_empty());
        assert_eq!(app.pool_bytes_free, app.pool_bytes);
        // What is still under way of it comes to nobody.
        for _ in 0..20 {
            world.network.hosts.iter().for_each(|host| host.endpoint.recount());
            world.network.step();
        }
        assert!(world.network.hosts[1].app.buffers.is_empty());
    }
}

#[test]
fn a_sender_hears_when_there_is_memory_again() {
    let mut world = Streams::new(15, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| !world.network.hosts[1].app.streams.is_empty());
    let free = std::mem::take(&mut world.network.hosts[1].app.pool_bytes_free);
    world.network.hosts[1].app.pool_bytes = 0;
    world.send(0, stream, 0, 5000);
    // Its probes have become rare.
    let end = world.network.now + SECOND;
    while world.network.now < end {
        world.go_on();
    }
    let (now, at) = (world.network.now, world.at(1, stream));
    let host = &mut world.network.hosts[1];
    (host.app.pool_bytes, host.app.pool_bytes_free) = (free, free);
    host.endpoint.memory_freed(now, at);
    host.endpoint.recount();
    world.run_until(|world| world.count(1, stream) == 1);
    assert!(world.network.now < now + MILLISECOND, "it was told, and asked at once");
}

/// Messages that the receiver has no memory for are no sign of congestion, and are not sent again
/// and again: others have the network for themselves.
#[test]
fn who_waits_for_memory_slows_nobody_down() {
    for is_own in [false, true] {
        let mut world = Streams::new(21, Faults::default());
        let (large, small) = (world.open(0), world.open(0));
        let large = if is_own { StreamKey::from(world.flow(0)) } else { large };
        world.run_until(|world| world.network.hosts[1].app.streams.len() == 2);
        let app = &mut world.network.hosts[1].app;
        let missing = app.pool_bytes_free - 300_000;
        (app.pool_bytes, app.pool_bytes_free) = (app.pool_bytes - missing, 300_000);
        world.send(0, large, 0, 400_000);
        for _ in 0..2000 {
            world.send(0, small, 0, 1000);
        }
        let begun = world.network.now;
        world.run_until(|world| world.count(1, small) == 2000);
        let periods = world.network.now.since(begun) / (100 * MILLISECOND) + 1;
        let refused = world.network.hosts[1].endpoint.counters().dropped_no_buffer;
        assert!(refused > 0 && refused <= 200 * periods, "{refused} in {periods} periods");
        let info = world.network.hosts[0].endpoint.flow_at(world.flow(0).slot()).expect("open");
        assert_eq!(info.packets_lost, 0, "none was lost");

        let now = world.network.now;
        let at = world.at(1, large);
        let host = &mut world.network.hosts[1];
        (host.app.pool_bytes, host.app.pool_bytes_free) =
            (host.app.pool_bytes + missing, host.app.pool_bytes_free + missing);
        host.endpoint.memory_freed(now, at);
        world.run_until(|world| world.count(1, large) == 1);
        assert!(world.network.now < now + 50 * MILLISECOND, "it was told, and asked at once");
    }
}

/// The app's memory comes free, and nobody says so.
#[test]
fn who_waits_for_memory_asks_now_and_then() {
    let mut world = Streams::new(22, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| !world.network.hosts[1].app.streams.is_empty());
    let free = std::mem::take(&mut world.network.hosts[1].app.pool_bytes_free);
    world.network.hosts[1].app.pool_bytes = 0;
    world.send(0, stream, 0, 5000);
    let end = world.network.now + SECOND;
    while world.network.now < end {
        world.go_on();
    }
    let refused = world.network.hosts[1].endpoint.counters().dropped_no_buffer;
    assert!((10..=100).contains(&refused), "{refused} in a second");
    let app = &mut world.network.hosts[1].app;
    (app.pool_bytes, app.pool_bytes_free) = (free, free);
    world.run_until(|world| world.count(1, stream) == 1);
    assert!(world.network.now < end + 150 * MILLISECOND);
}

/// A peer can call for probes with each of its packets.
#[test]
fn a_probe_looks_at_few_of_many_streams() {
    const STREAMS: usize = 1000;
    const PACKETS: usize = 50;
    let mut world = Streams::new(24, Faults::default());
    let streams: Vec<_> = (0..STREAMS).map(|_| world.open(0)).collect();
    world.run_until(|world| world.network.hosts[1].app.streams.len() == STREAMS);
    for stream in &streams {
        world.send(1, world.at(1, *stream), 0, 100);
    }
    world.network.cut(true);
    while world.network.hosts[1].endpoint.probe_timeouts(world.flow(1)) == 0 {
        world.go_on();
    }
    let before = PROBED.get();
    for nth in 0..PACKETS as u64 {
        assert!(world.inject(1, (1 << 20) + nth, |bytes| {
            let at = emit_stream(bytes, 1);
            at + emit_limit(&mut bytes[at..], WINDOW)
        }));
    }
    let probed = PROBED.get() - before;
    assert!((PACKETS..100 * PACKETS).contains(&probed), "{probed} for {PACKETS} packets");
}

/// Those that have something under way may be any of many.
#[test]
fn a_probe_finds_the_stream_that_its_peer_can_take() {
    let mut world = Streams::new(25, Faults::default());
    let streams: Vec<_> = (0..500).map(|_| world.open(0)).collect();
    world.run_until(|world| world.network.hosts[1].app.streams.len() == 500);
    for nth in [0, 137, 250, 499] {
        let stream = streams[nth];
        world.network.cut(true);
        world.send(0, stream, 0, 100);
        let lost = world.network.now + 20 * MILLISECOND;
        world.network.run_until(|network| network.now > lost);
        world.network.cut(false);
        let begin = world.network.now;
        world.run_until(|world| world.count(1, stream) == 1);
        assert!(world.network.now.since(begin) < 100 * MILLISECOND, "{nth}");
    }
}

/// A wait frame that says what no packet can have carried, or that is of a flow without streams.
#[test]
fn who_has_to_wait_was_asked_about_what_it_sent() {
    for is_own in [false, true] {
        let wait = |number: u64| {
            move |bytes: &mut [u8]| {
                let at = if is_own { 0 } else { emit_stream(bytes, 2) };
                at + emit_wait(&mut bytes[at..], 0, number)
            }
        };
        let mut world = Streams::new(23, Faults::default());
        let stream = world.open(1);
        world.send(1, stream, 0, 100);
        world.run_until(|world| world.count(0, stream) == 1);
        assert!(world.inject(1, 50, wait(0)), "nothing waits");
        assert!(!world.inject(1, 51, wait(1 << 20)));
        assert_eq!(world.ends(1)[0], Reason::Protocol);
    }
}

#[test]
fn nothing_is_sent_after_a_close() {
    let mut world = Streams::new(16, Faults::default());
    let stream = world.open(0);
    world.send(0, stream, 0, 64);
    world.close(0, stream);
    world.send(0, stream, 0, 64);
    world.run_until(|world| world.ends(0) == [Reason::Closed]);
    assert_eq!((world.count(1, stream), world.ends(1)), (1, vec![Reason::Closed]));
}

#[test]
fn a_stream_may_be_refused() {
    let mut world = Streams::new(7, Faults::default());
    world.network.hosts[1].app.refuses = true;
    let stream = world.open(0);
    world.send(0, stream, 0, 1000);
    world.run_until(|world| world.ends(0) == [Reason::Refused]);
    assert!(world.network.hosts[1].app.ended.is_empty(), "it never had it");
    world.network.hosts[1].app.refuses = false;
    let stream = world.open(0);
    world.send(0, stream, 0, 1000);
    world.run_until(|world| world.count(1, stream) == 1);
    // What is left of the one that was refused is forgotten when that is acknowledged.
    let saved = |world: &Streams| world.network.hosts[1].endpoint.save().flows[0].clone();
    world.run_until(|world| saved(world).streams.is_some_and(|all| all.sides.len() == 1));
}

#[test]
fn there_are_only_so_many() {
    let mut world = Streams::new(8, Faults::default());
    for _ in 0..STREAMS_MAX {
        world.open(0);
    }
    assert_eq!(world.try_open(0), Err(NoStream::TooMany));
    world.run_until(|world| world.network.hosts[1].app.streams.len() == STREAMS_MAX);
    assert_eq!(world.try_open(1), Err(NoStream::TooMany));
    let first = StreamKey { flow: world.flow(0), stream: 1 };
    world.close(0, first);
    world.run_until(|world| world.ends(0) == [Reason::Closed]);
    world.open(0);
    let own = world.flow(0);
    world.close(0, own);
    assert_eq!(world.try_open(0), Err(NoStream::NotOpen));
}

/// What no honest peer sends ends the flow, or is dropped; what may come late is ignored.
#[test]
fn a_peer_may_not_invent_streams() {
    let stream = |stream: u32, frame: fn(&mut [u8]) -> usize| {
        move |bytes: &mut [u8]| {
            let at = emit_stream(bytes, stream);
            at + frame(&mut bytes[at..])
        }
    };
    let message = |bytes: &mut [u8]| emit_message(bytes, 0, 0);
    let open = |bytes: &mut [u8]| emit_open(bytes, WINDOW);
    for (id, frame) in [
        (0, message as fn(&mut [u8]) -> usize),
        (1, message),
        (2, message),
        (2, open),
        (1, |bytes| emit_limit(bytes, 1)),
        (1, |bytes| emit_close(bytes, 0, 0)),
        (1, emit_ping),
    ] {
        let mut world = Streams::new(10, Faults::default());
        assert!(!world.inject(1, 50, stream(id, frame)), "{id}");
        assert_eq!(world.ends(1), [Reason::Protocol]);
    }
    for reserved in [
        |bytes: &mut [u8]| emit_message(bytes, 0, 0),
        |bytes: &mut [u8]| emit_fragment(bytes, 0, 1, 2, 0) + 1,
    ] {
        let mut world = Streams::new(17, Faults::default());
        assert!(world.inject(1, 50, stream(1, open)));
        let reserved = stream(1, reserved);
        assert!(!world.inject(1, 51, |bytes| {
            let length = reserved(bytes);
            bytes[STREAM_FRAME_LENGTH + 3] = 1;
            length
        }));
    }
    let mut world = Streams::new(18, Faults::default());
    let own = world.flow(0);
    world.close(0, own);
    world.run_until(|world| world.ends(1) == [Reason::Closed]);
    assert!(world.inject(1, 50, stream(1, open)), "late");
    let mut world = Streams::new(11, Faults::default());
    assert!(world.inject(1, 50, stream(1, open)));
    assert!(world.inject(1, 51, stream(1, message)));
    assert_eq!(world.network.hosts[1].app.delivered.len(), 1);
    assert!(world.inject(1, 52, stream(1, open)), "again");
    assert!(world.inject(1, 53, stream(1, |bytes| emit_close(bytes, 1, 0))));
    assert_eq!(world.ends(1), [Reason::Reset]);
    assert!(world.inject(1, 54, stream(1, message)), "late");
    assert!(world.inject(1, 55, stream(1, open)), "late");
    assert_eq!(world.network.hosts[1].app.streams.len(), 1);
}

/// Numbers with gaps, and streams that end as soon as they are opened, take bounded memory.
#[test]
fn a_peer_cannot_fill_the_books_of_streams() {
    let mut world = Streams::new(12, Faults::default());
    let open = |id: u32| {
        move |bytes: &mut [u8]| {
            let at = emit_stream(bytes, id);
            at + emit_open(&mut bytes[at..], WINDOW)
        }
    };
    for nth in 0..1000 {
        world.inject(1, 50 + nth, open(1 + 4 * nth as u32));
    }
    let saved = world.network.hosts[1].endpoint.save();
    let streams = saved.flows[0].streams.as_ref().expect("known");
    assert_eq!((streams.seen.len(), streams.sides.len()), (64, 64));
    assert_eq!(world.network.hosts[1].endpoint.counters().dropped_no_buffer, 936);
    world.network.hosts[1].app.refuses = true;
    let mut number = 5000;
    for id in 0..10_000 {
        number += 1;
        world.inject(1, number, open(1 + 2 * id));
    }
    let saved = world.network.hosts[1].endpoint.save();
    let streams = saved.flows[0].streams.as_ref().expect("known");
    assert_eq!(streams.sides.len(), STREAMS_MAX + 64);
}

/// Neither end reads, or gives credit, once its app has closed: what the other has still to send is
/// thrown away, and holds up nobody. Also of the flow's own connection.
#[test]
fn both_apps_may_close_before_either_has_read() {
    for (is_own, messages) in
        [(true, [30, 30]), (true, [1, 30]), (false, [30, 30]), (false, [1, 30]), (false, [30, 1])]
    {
        let mut world = Streams::new(20, bad(100, 0, 0, 0));
        let mut stream = StreamKey::from(world.flow(0));
        if !is_own {
            stream = world.open(0);
            world.run_until(|world| !world.network.hosts[1].app.streams.is_empty());
        }
        for (host, count) in messages.into_iter().enumerate() {
            let to = world.at(host, stream);
            (0..count).for_each(|_| world.send(host, to, 0, 20_000));
        }
        let end = world.network.now + SECOND;
        while world.network.now < end {
            world.network.go_on();
        }
        for host in 0..2 {
            let of = world.at(host, stream);
            world.close(host, of);
        }
        world
            .network
            .run_until(|network| network.hosts.iter().all(|host| host.app.ended.len() == 1));
        assert!((0..2).all(|host| world.ends(host) == [Reason::Closed]));
    }
}

/// Streams that come to an end that has closed meanwhile are refused: who waits for what it has
/// sent in them would wait for ever, and both ends for each other.
#[test]
fn both_ends_may_close_the_flow_with_streams_under_way() {
    for seed in 0..20 {
        let loss = if seed == 0 { 0 } else { 100 };
        let mut world = Streams::new(seed, bad(loss, 0, 0, 0));
        for host in 0..2 {
            let (stream, own) = (world.open(host), world.flow(host));
            world.send(host, stream, 0, 1000);
            world.close(host, own);
        }
        world.run_until(|world| (0..2).all(|host| world.ends(host).len() == 2));
        for host in &world.network.hosts {
            assert_eq!(host.app.closed, [Reason::Closed], "seed {seed}");
            assert!(host.app.streams.is_empty(), "seed {seed}");
        }
    }
}

#[test]
fn a_peer_that_goes_on_opening_holds_up_no_close() {
    let mut world = Streams::new(21, Faults::default());
    let (stream, own) = (world.open(0), world.flow(0));
    world.send(0, stream, 0, 1 << 20);
    world.close(0, own);
    let (mut opened, end) = (0, world.network.now + 20 * MILLISECOND);
    while world.network.hosts[0].app.closed.is_empty() {
        opened += u32::from(world.try_open(1).is_ok());
        world.go_on();
        assert!(world.network.now < end, "it waits for what it has refused: {opened}");
    }
    assert!(opened > 10, "{opened}");
    assert_eq!(world.ends(0), [Reason::Closed; 2]);
}

/// The peer must hear of each first, which takes as long as it likes.
#[test]
fn an_app_cannot_fill_the_books_of_streams() {
    let mut world = Streams::new(22, Faults::default());
    for _ in 0..STREAMS_MAX {
        let stream = world.open(0);
        world.abort(0, stream);
    }
    assert_eq!(world.try_open(0), Err(NoStream::TooMany));
    world.network.move_on();
    let left = |world: &Streams| world.network.hosts[0].endpoint.save().flows[0].streams.clone();
    world.run_until(|world| left(world).is_some_and(|all| all.sides.is_empty()));
    world.open(0);
}

/// Changes the first stream of a saved endpoint, and says why the state is refused then.
fn refusal(mut saved: EndpointState, change: fn(&mut SideState)) -> Option<&'static str> {
    let now = saved.turn.0;
    let streams = saved.flows[0].streams.as_mut().expect("known");
    change(&mut streams.sides[0]);
    Endpoint::restore(saved, Config::default(), now).err().map(|invalid| invalid.0)
}

#[test]
fn saved_streams_are_not_believed() {
    let mut world = Streams::new(23, Faults::default());
    let stream = world.open(0);
    world.send(0, stream, 0, 1000);
    let saved = || world.network.hosts[0].endpoint.save();
    assert_eq!(refusal(saved(), |_| ()), None);
    let cases: [(fn(&mut SideState), _); 6] = [
        (|side| side.id = 3, "a stream that nobody has opened"),
        (|side| side.stage = StreamStage::Aborted(1), "a stream that nobody has and sends"),
        (
            |side| {
                side.stage = StreamStage::Aborted(0);
                side.stream.outgoing.messages.clear();
            },
            "a stream that is aborted in order",
        ),
        (|side| side.stream.outgoing.messages[0].0 |= 1 << 31, "operations in a stream"),
        (|side| side.stream.incoming.partial.push(partial(true)), "operations in a stream"),
        (
            |side| {
                side.stage = StreamStage::Closing;
                side.stream.incoming.partial.push(partial(false));
            },
            "a stream that is over and takes messages",
        ),
    ];
    for (change, expected) in cases {
        let change_all = |side: &mut SideState| {
            side.stream.incoming.received = 64;
            change(side);
        };
        let mut saved = saved();
        change_all(&mut saved.flows[0].streams.as_mut().expect("known").sides[0]);
        assert_eq!(refusal(saved, |_| ()), Some(expected));
    }
    let mut drained = saved();
    drained.flows[0].phase = Phase::Drained { until: world.network.now };
    assert_eq!(refusal(drained, |_| ()), Some("streams of a flow that is not open"));
    let mut many = saved();
    let streams = many.flows[0].streams.as_mut().expect("known");
    streams.opened = 2000;
    streams.sides = (0..=STREAMS_MAX as u32)
        .map(|nth| SideState { id: 1 + 2 * nth, ..streams.sides[0].clone() })
        .collect();
    assert_eq!(refusal(many.clone(), |_| ()), Some("too many streams of apps"));
    many.flows[0].streams.as_mut().expect("known").sides.pop();
    assert_eq!(refusal(many, |_| ()), None);
}

/// A message of 10 bytes of which nothing has come.
fn partial(is_operation: bool) -> PartialState {
    let buffer = Buffer { id: 1, offset: 0, length: 10 };
    PartialState { sequence: 0, buffer, order: Order::Due, is_operation, received: Vec::new() }
}

/// Packets in flight that a tampered state says to be of streams are none of the flow's own.
#[test]
fn what_is_of_no_stream_is_not_sent_again() {
    let mut world = Streams::new(24, Faults::default());
    let stream = world.open(0);
    world.run_until(|world| !world.network.hosts[1].app.streams.is_empty());
    (0..10).for_each(|_| world.go_on());
    world.send(0, stream, 0, 100_000);
    world.network.transmit();
    let (now, mut saved) = (world.network.now, world.network.hosts[0].endpoint.save());
    let flow = &mut saved.flows[0];
    assert!(flow.recovery.packets.iter().any(|packet| packet.stream == stream.stream));
    flow.streams = None;
    (flow.recovery.acked_end, flow.recovery.loss_time) = (flow.recovery.next_number, now);
    let mut endpoint = Endpoint::restore(saved, Config::default(), now).expect("in order");
    let (app, mut bytes) = (&mut world.network.hosts[0].app, [0; 9216]);
    for later in [now, now + SECOND] {
        while let Some(destination) = endpoint.next_transmit(later) {
            endpoint.poll_transmit(later, destination, &mut bytes, app);
        }
        endpoint.handle_timeouts(later, app);
        endpoint.recount();
    }
    assert!(endpoint.flows().all(|flow| flow.packets_lost > 0));
}
