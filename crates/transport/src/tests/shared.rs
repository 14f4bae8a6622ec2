//! Flows that are nobody's: connections share them.

use std::collections::HashMap;

use clearway_base::{Random, SECOND, Time};
use clearway_wire::clearway::{emit_message, emit_open, emit_ping, emit_stream};
use clearway_world::Steps;

use super::in_flow::Streams;
use super::{Faults, Network, PORT, WINDOW, bad, content};
use crate::flow::STREAMS_MAX;
use crate::{Config, Endpoint, NoStream, Owner, Priority, Reason, StreamKey};

impl Streams {
    /// So many that are accepted.
    fn with_connections<const COUNT: usize>(&mut self) -> [StreamKey; COUNT] {
        let streams = [(); COUNT].map(|()| self.open(0));
        self.run_until(|world| world.network.hosts[0].app.connected as usize == COUNT);
        streams
    }

    /// Nothing may happen until then.
    fn wait_until(&mut self, time: Time) {
        self.network.run_for(time.since(self.network.now));
        self.network.now = self.network.now.max(time);
    }

    fn flows(&self) -> [usize; 2] {
        [0, 1].map(|host: usize| self.network.hosts[host].endpoint.flows_open())
    }

    /// Nothing is left once the flow is over.
    #[track_caller]
    fn rest(mut self) {
        self.network.hosts[1].endpoint.unlisten(PORT);
        self.run_until(|world| world.flows() == [0, 0]);
        self.network.run_out();
        for host in &self.network.hosts {
            assert_eq!(host.endpoint.audit_rest(), Ok(()));
            host.app.audit();
        }
    }
}

#[test]
fn connections_share_a_flow_which_ends_with_the_last() {
    let mut world = Streams::shared(1, Faults::default());
    let streams: [_; 5] = world.with_connections();
    assert_eq!(streams.map(|stream| stream.stream), [1, 3, 5, 7, 9]);
    assert_eq!(world.flows(), [1, 1]);
    let info = world.network.hosts[0].endpoint.flows().next().expect("a flow");
    assert!(!info.has_app && info.state == "open");
    for (index, stream) in streams.into_iter().enumerate() {
        let theirs = world.at(1, stream);
        world.send(0, stream, 0, 100);
        world.send(1, theirs, 7, 2000);
        world.run_until(|world| world.count(0, stream) + world.count(1, stream) == 2);
        assert!(world.got[0][&stream.stream][0] == content(0, 1 << 20)[7..2007]);
        world.close(index % 2, if index % 2 == 0 { stream } else { theirs });
        world.run_until(|world| world.ends(0).len() + world.ends(1).len() == 2 * (index + 1));
        let state = world.network.hosts[0].endpoint.flow_at(0).map(|flow| flow.state);
        assert_eq!(state == Some("open"), index < 4, "{state:?} after {index}");
    }
    assert!((0..2).all(|host| world.ends(host).iter().all(|end| *end == Reason::Closed)));
    let late = Owner { channel: 1, connection: 9 };
    let (now, flow) = (world.network.now, world.flow(0));
    let refused = world.network.hosts[0].endpoint.open_stream(now, flow, late, 1000);
    assert_eq!(refused.err(), Some(NoStream::NotOpen), "the flow is over");
    world.rest();
}

/// Over bad links, and through endpoints that are saved and restored, in whatever order connections
/// come and go: each has its messages, and nothing is left.
#[test]
fn connections_come_and_go_over_bad_links() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let faults = bad(random.below(100), random.below(100), random.below(200), random.below(20));
        let mut world = Streams::shared(seed, faults);
        world.open(0);
        let (mut sent, mut ended) = (HashMap::<u32, Vec<(u32, u32)>>::new(), 0);
        let mut open = vec![world.open(0)];
        for _ in 0..300 {
            let at = random.below(open.len() as u64) as usize;
            let is_connected = world.network.hosts[0].app.connected == world.opened[0];
            match random.below(20) {
                0 => open.push(world.open(0)),
                1 if at > 0 && is_connected => {
                    world.close(0, open.swap_remove(at));
                    ended += 1;
                }
                2 if at > 0 => {
                    let stream = open.swap_remove(at);
                    sent.remove(&stream.stream);
                    world.abort(0, stream);
                }
                3 => world.network.move_on(),
                4 => world.network.hosts[random.below(2) as usize].endpoint.recount(),
                5..=12 => _ = world.step(),
                _ if is_connected => {
                    let length = [0, 64, 1000, 5000, 50_000][random.below(5) as usize];
                    world.send(0, open[at], length / 2, length);
                    let messages = sent.entry(open[at].stream).or_default();
                    messages.push((length / 2, length));
                }
                _ => {}
            }
        }
        world.run_until(|world| {
            let is_there = |(id, sent): (&u32, &Vec<_>)| {
                world.got[1].get(id).map_or(0, Vec::len) == sent.len()
            };
            sent.iter().all(is_there)
        });
        let all = content(0, 1 << 20);
        for (id, messages) in &sent {
            for (message, (offset, length)) in world.got[1][id].iter().zip(messages) {
                assert!(message == &all[*offset as usize..][..*length as usize], "seed {seed}");
            }
        }
        world.run_until(|world| world.ends(0).len() == ended);
        open.into_iter().for_each(|stream| world.close(0, stream));
        world.abort(0, StreamKey { flow: world.flow(0), stream: 1 });
        world.rest();
    }
}

#[test]
fn who_is_refused_hears_it_and_others_go_on() {
    let mut world = Streams::shared(2, Faults::default());
    let [first] = world.with_connections();
    world.network.hosts[1].endpoint.unlisten(PORT);
    let second = world.open(0);
    world.run_until(|world| !world.ends(0).is_empty());
    let app = &world.network.hosts[0].app;
    assert_eq!(app.ended, [(Owner { channel: 1, connection: 2 }, Reason::Refused)]);
    assert_eq!((app.connected, second.stream), (1, 3));
    world.send(0, first, 0, 10);
    world.run_until(|world| world.count(1, first) == 1);
    world.close(0, first);
    world.rest();
}

/// Nobody listens any more when the first connection comes: the flow was of no use.
#[test]
fn a_flow_whose_connections_are_refused_ends() {
    let mut world = Streams::shared(3, Faults::default());
    world.network.hosts[1].app.refuses = true;
    world.open(0);
    world.run_until(|world| world.ends(0) == [Reason::Refused]);
    assert!(world.ends(1).is_empty());
    world.rest();
}

#[test]
fn all_that_share_a_lost_flow_hear_why() {
    let mut world = Streams::shared(4, Faults::default());
    let _: [_; 3] = world.with_connections();
    world.network.cut(true);
    world.run_until(|world| world.ends(0).len() + world.ends(1).len() == 6);
    assert!((0..2).all(|host| world.ends(host) == [Reason::TimedOut; 3]));
    world.rest();
}

/// Only who has opened a shared flow opens connections by it, and stream 0 has no messages.
#[test]
fn a_shared_flow_has_no_stream_of_its_own_and_none_of_the_server() {
    let mut world = Streams::shared(5, Faults::default());
    let [stream] = world.with_connections();
    let theirs = world.at(1, stream).flow;
    let owner = Owner { channel: 7, connection: 7 };
    let (now, server) = (world.network.now, &mut world.network.hosts[1].endpoint);
    assert_eq!(server.open_stream(now, theirs, owner, 100).err(), Some(NoStream::NotOpen));
    assert!(!server.takes_operations(theirs));
    world.inject(0, 1 << 20, |bytes| {
        let at = emit_stream(bytes, 2);
        at + emit_open(&mut bytes[at..], 1000)
    });
    let client = &world.network.hosts[0];
    assert_eq!(client.app.accepted.len() + client.app.streams.len(), 0);
    assert_eq!(client.endpoint.counters().dropped_violation, 0, "it is refused");
    world.inject(1, 1 << 20, |bytes| emit_message(bytes, 0, 0));
    assert_eq!(world.ends(1), [Reason::Protocol]);
}

/// What is nobody's has no owner, and what has an owner is not shared.
#[test]
fn a_saved_flow_is_shared_or_of_an_app() {
    let mut world = Streams::shared(6, Faults::default());
    let _: [_; 1] = world.with_connections();
    let now = world.network.now;
    let saved = world.network.hosts[0].endpoint.save();
    let restore = |saved| Endpoint::restore(saved, Config::default(), now).is_ok();
    assert!(restore(saved.clone()));
    for spoil in 0..3 {
        let mut other = saved.clone();
        let flow = &mut other.flows[0];
        match spoil {
            0 => flow.is_shared = false,
            1 => flow.main.owner = Owner { channel: 1, connection: 1 },
            _ => flow.takes_operations = true,
        }
        assert!(!restore(other), "{spoil}");
    }
}

/// Its slot may be another connection's by then.
#[test]
fn an_attempt_that_was_aborted_hears_nothing_of_being_accepted() {
    let mut world = Streams::shared(7, Faults::default());
    let [first] = world.with_connections();
    let second = world.open(0);
    world.network.transmit();
    world.abort(0, second);
    world.run_until(|world| world.ends(1) == [Reason::Reset]);
    assert_eq!(world.network.hosts[0].app.connected, 1, "it was given up");
    assert!(world.ends(0).is_empty());
    world.close(0, first);
    world.rest();
}

/// Its app does not know the connection before that.
#[test]
fn who_is_accepted_hears_it_before_messages_come() {
    let mut world = Streams::shared(8, Faults::default());
    let [_] = world.with_connections();
    let second = world.open(0);
    world.network.hosts[0].app.told.clear();
    world.inject(0, 1 << 20, |bytes| {
        let at = emit_stream(bytes, second.stream);
        at + emit_message(&mut bytes[at..], 0, 0)
    });
    let owner = Owner { channel: 1, connection: 2 };
    let told = &world.network.hosts[0].app.told;
    assert_eq!(*told, [(owner, "connected"), (owner, "message")]);
}

/// What the peer has never heard of would be a gap in its books for ever, and those are bounded.
#[test]
fn attempts_that_were_given_up_before_the_flow_was_open_keep_nobody_out() {
    let mut world = Streams::shared(9, Faults::default());
    let mut open = vec![world.open(0)];
    for nth in 0..300 {
        let stream = world.open(0);
        match nth % 4 {
            0 => world.close(0, stream),
            2 => world.abort(0, stream),
            _ => open.push(stream),
        }
    }
    let is_all = |world: &mut Streams| world.network.hosts[0].app.connected as usize == 151;
    world.run_until(is_all);
    assert_eq!(world.ends(0), [Reason::Closed; 75]);
    open.into_iter().for_each(|stream| world.close(0, stream));
    world.rest();
}

/// The peer has to have heard of the end of one before another takes its place.
#[test]
fn one_that_takes_the_place_of_another_is_not_refused() {
    let mut world = Streams::shared(10, Faults::default());
    let streams: Vec<_> = (0..STREAMS_MAX).map(|_| world.open(0)).collect();
    world.run_until(|world| world.network.hosts[0].app.connected as usize == STREAMS_MAX);
    world.abort(0, streams[0]);
    let owner = Owner { channel: 1, connection: 5000 };
    let (now, key) = (world.network.now, world.flow(0));
    let open = |world: &mut Streams| {
        world.network.hosts[0].endpoint.open_stream(now, key, owner, 1000).map(|_| ())
    };
    let early = open(&mut world);
    world.run_until(|world| world.ends(1) == [Reason::Reset]);
    world.network.run_until(|network| network.now > now + SECOND);
    let last = early.or_else(|_| open(&mut world));
    assert_eq!(last, Ok(()));
    world.run_until(|world| world.network.hosts[0].app.connected as usize == STREAMS_MAX + 1);
    assert!(world.ends(0).is_empty());
}

/// Its peer has nothing to close, and keeps it alive.
/// The apps that have accepted them may be of different users.
#[test]
fn who_has_opened_shared_connections_says_which_goes_first() {
    let mut world = Streams::shared(21, Faults::default());
    let [stream] = world.with_connections();
    let urgent = Priority { urgency: 0, weight: 1 };
    let priorities = [0, 1].map(|host: usize| {
        let of = if host == 0 { stream } else { world.at(1, stream) };
        let endpoint = &mut world.network.hosts[host].endpoint;
        endpoint.set_priority(of, urgent);
        endpoint.save().flows[0].streams.as_ref().expect("it has some").sides[0].priority
    });
    assert_eq!(priorities, [urgent, Priority::default()]);
}

/// They take none of an app's connections: a host can have a small part of all flows so.
#[test]
fn flows_without_connections_leave_room_for_others() {
    let config = Config { flows_max: 80, ..Config::default() };
    let mut network = Network::new(20, &config, Faults::default(), 1 << 20);
    let mut begun = vec![network.begin_shared()];
    let (from, to) = (network.hosts[0].address, network.hosts[1].address);
    let mut begin = |network: &mut Network| {
        let endpoint = &mut network.hosts[0].endpoint;
        begun.push(endpoint.connect_shared(network.now, from, to, PORT, WINDOW).expect("room"));
        *begun.last().expect("just begun")
    };
    (0..20).for_each(|_| _ = begin(&mut network));
    let settle = |network: &mut Network, accepted| {
        let is_told =
            |host: &super::Host| host.endpoint.flows().all(|flow| flow.state != "connecting");
        network.run_until(|network| is_told(&network.hosts[0]));
        assert_eq!(network.hosts[1].endpoint.flows_open(), accepted);
        assert_eq!(network.hosts[1].endpoint.audit(), Ok(()));
    };
    settle(&mut network, 9); // of the tenth part, one is for another host
    let owner = Owner { channel: 1, connection: 1 };
    let open = (0..21).find_map(|at| {
        let endpoint = &mut network.hosts[0].endpoint;
        endpoint.open_stream(network.now, begun[at], owner, WINDOW).ok()
    });
    network.run_until(|network| network.hosts[0].app.connected == 1);
    let endpoint = &mut network.hosts[0].endpoint;
    (0..2).for_each(|_| {
        _ = endpoint.connect_shared(network.now, from, to, PORT, WINDOW).expect("room");
    });
    settle(&mut network, 10); // that which has a connection now has made room for one
    let (now, client) = (network.now, &mut network.hosts[0]);
    client.endpoint.close(now, open.expect("nine are open"), &mut client.app);
    network.hosts[1].endpoint.unlisten(PORT);
    network.run_until(|network| network.hosts[1].endpoint.flows_open() == 0);
    assert_eq!(network.hosts[1].endpoint.audit(), Ok(()));
}

#[test]
fn a_flow_that_its_opener_does_not_use_is_given_up() {
    let mut world = Streams::shared(11, Faults::default());
    let begin = world.network.now;
    world.run_until(|world| world.flows() == [1, 1]);
    world.run_until(|world| world.flows() == [0, 0]);
    let waited_ns = world.network.now.since(begin);
    assert!((20 * SECOND..60 * SECOND).contains(&waited_ns), "{waited_ns}");
    world.rest();
}

/// One that is in use is not, however long nothing comes by it; and refusals are no use.
#[test]
fn only_a_flow_without_connections_is_given_up() {
    let mut world = Streams::shared(12, Faults::default());
    let [first] = world.with_connections();
    let begin = world.network.now;
    world.run_until(|world| world.network.now.since(begin) > 200 * SECOND);
    assert_eq!(world.flows(), [1, 1]);
    world.network.hosts[1].app.refuses = true;
    world.abort(0, first);
    world.network.run_until(|network| network.hosts[1].app.ended.len() == 1);
    let begin = world.network.now;
    for stream in (1u32..).map(|nth| 2 * nth + 1) {
        if world.network.hosts[1].endpoint.flows_open() == 0 {
            break;
        }
        let endpoint = &world.network.hosts[1].endpoint;
        assert!(world.network.now.since(begin) < 60 * SECOND, "{:?}", endpoint.counters());
        let next = world.network.now + SECOND;
        world.network.cut(true);
        world.wait_until(next);
        world.inject(1, u64::from(stream) << 20, |bytes| {
            let at = emit_stream(bytes, stream);
            at + emit_open(&mut bytes[at..], 1000)
        });
    }
}

/// Who has opened it waits for no more than that for its close to be acknowledged.
#[test]
fn a_peer_that_acknowledges_no_close_does_not_keep_the_flow() {
    let mut world = Streams::shared(13, Faults::default());
    let [stream] = world.with_connections();
    world.abort(0, stream);
    world.network.cut(true);
    let begin = world.network.now;
    for second in 1.. {
        if world.network.hosts[0].endpoint.flows_open() == 0 {
            break;
        }
        let next = world.network.now + SECOND;
        assert!(world.network.now.since(begin) < 60 * SECOND, "{}", world.network.describe());
        world.wait_until(next);
        world.inject(0, second << 20, emit_ping);
    }
}

/// A connection that comes late enough finds it still there.
#[test]
fn a_flow_that_is_used_again_is_not_given_up() {
    let mut world = Streams::shared(14, Faults::default());
    let [stream] = world.with_connections();
    world.abort(0, stream);
    world.network.cut(true);
    let begin = world.network.now;
    for second in 1..25 {
        world.wait_until(begin + second * SECOND);
        world.inject(0, second << 20, emit_ping);
    }
    world.open(0);
    world.wait_until(begin + 40 * SECOND);
    assert_eq!(world.network.hosts[0].endpoint.flows_open(), 1);
    assert!(world.ends(0).is_empty());
}
