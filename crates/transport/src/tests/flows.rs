//! What becomes of a flow's memory and name, and of those who wait.

use super::{Faults, LISTENER, Network, content};
use crate::{App as _, Config, Reason};
use clearway_base::{MILLISECOND, SECOND};
use clearway_world::Steps;

/// Two hosts, and a message from host 0 of which host 1 has got a part.
fn half_way(config: &Config) -> (Network, [crate::FlowKey; 2]) {
    let mut network = Network::new(31, config, Faults::default(), 8 << 20);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 100_000);
    let now = network.now;
    network.hosts[0].endpoint.send(now, keys[0], 0, 100_000);
    network.run_until(|network| !network.hosts[1].app.buffers.is_empty());
    let app = &network.hosts[1].app;
    assert!(app.delivered.is_empty() && !app.unfinished.is_empty());
    (network, keys)
}

#[test]
fn memory_of_messages_that_nobody_ends_comes_back() {
    for aborts in [false, true] {
        let (mut network, keys) = half_way(&Config::default());
        let (now, host) = (network.now, &mut network.hosts[1]);
        if aborts {
            host.endpoint.abort(keys[1], Reason::Reset, &mut host.app);
        } else {
            host.endpoint.close(now, keys[1], &mut host.app);
        }
        assert!(host.app.buffers.is_empty(), "aborts: {aborts}");
        assert!(host.app.unfinished.is_empty());
    }
}

#[test]
fn memory_comes_back_when_the_other_end_aborts() {
    let (mut network, keys) = half_way(&Config::default());
    let host = &mut network.hosts[0];
    host.endpoint.abort(keys[0], Reason::Reset, &mut host.app);
    network.run_until(|network| !network.hosts[1].app.closed.is_empty());
    assert!(network.hosts[1].app.buffers.is_empty());
}

/// One that has nothing to say would not hear of it for seconds.
#[test]
fn an_idle_peer_is_told_of_an_abort_at_once() {
    let mut network = Network::new(33, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    let begin = network.now;
    network.run_until(|network| network.now >= begin + SECOND);
    let (now, host) = (network.now, &mut network.hosts[0]);
    host.endpoint.abort(keys[0], Reason::Refused, &mut host.app);
    network.run_until(|network| !network.hosts[1].app.closed.is_empty());
    assert!(network.now.since(now) < MILLISECOND);
    assert_eq!(network.hosts[1].app.closed, [Reason::Refused]);
}

#[test]
fn flows_and_their_packets_are_known_by_their_owners() {
    let (mut network, keys) = half_way(&Config::default());
    network.tape = Some(Vec::new());
    network.run_until(|network| network.tape.as_ref().is_some_and(|tape| !tape.is_empty()));
    let packet = network.tape.take().expect("set").remove(0).bytes;
    let owner = super::Owner { channel: LISTENER.channel, connection: 1 };
    let host = &mut network.hosts[1];
    assert_eq!(host.endpoint.owner(keys[1]), Some(owner));
    assert_eq!(host.endpoint.owner_of(&packet), Some(owner));
    host.endpoint.abort(keys[1], Reason::Reset, &mut host.app);
    assert_eq!((host.endpoint.owner(keys[1]), host.endpoint.owner_of(&packet)), (None, None));
}

#[test]
fn probe_timeouts_are_counted_until_the_peer_is_heard() {
    let (mut network, keys) = half_way(&Config::default());
    network.cut(true);
    let begin = network.now;
    network.run_until(|network| network.now >= begin + 20 * MILLISECOND);
    assert!(network.hosts[0].endpoint.probe_timeouts(keys[0]) >= 2);
    network.cut(false);
    network.run_until(|network| network.hosts[0].app.sent == 1);
    assert_eq!(network.hosts[0].endpoint.probe_timeouts(keys[0]), 0);
}

/// Memory may become free through another connection of the app.
#[test]
fn a_peer_that_was_turned_away_is_told_when_there_is_memory() {
    let mut network = Network::new(32, &Config::default(), Faults::default(), 1000);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 2000);
    let now = network.now;
    for at in [0, 1000] {
        network.hosts[0].endpoint.send(now, keys[0], at, 1000);
    }
    let begin = network.now;
    network.run_until(|network| network.now >= begin + 20 * MILLISECOND);
    let (now, host) = (network.now, &mut network.hosts[1]);
    assert_eq!(host.app.delivered.len(), 1);
    assert!(host.endpoint.next_transmit(now).is_none());
    let (_, buffer) = host.app.delivered.pop_front().expect("one");
    host.app.release(buffer);
    host.endpoint.memory_freed(now, keys[1]);
    assert!(host.endpoint.next_transmit(now).is_some(), "a limit");
    network.run_until(|network| !network.hosts[1].app.delivered.is_empty());
    assert!(network.now.since(now) < MILLISECOND, "long before the next probe");
}

/// An app that does not read, and has no room, is no dead host: its peer waits as long as it takes,
/// whether something was taken before or not.
#[test]
fn a_peer_without_room_is_not_given_up() {
    for taken in [0, 1] {
        let mut network = Network::new(33, &Config::default(), Faults::default(), 1000);
        let keys = network.connected();
        let owner = network.hosts[1].endpoint.flows().next().expect("accepted").owner;
        if taken == 0 {
            let elsewhere = network.hosts[1].app.allocate(owner, 1000).expect("all of it");
            network.hosts[1].app.delivered.push_back((owner, elsewhere));
        }
        network.hosts[0].app.transmit_pool = content(0, 2000);
        let begin = network.now;
        for at in [0, 1000] {
            network.hosts[0].endpoint.send(begin, keys[0], at, 1000);
        }
        network.run_until(|network| network.now >= begin + 100 * SECOND);
        assert_eq!(network.hosts[0].app.closed, []);
        assert_eq!(network.hosts[0].app.sent, taken);
        for left in (0..2 - taken).rev() {
            let (now, host) = (network.now, &mut network.hosts[1]);
            let (_, buffer) = host.app.delivered.pop_front().expect("what takes all memory");
            host.app.release(buffer);
            host.endpoint.memory_freed(now, keys[1]);
            network.run_until(|network| network.hosts[0].app.sent == 2 - left);
        }
    }
}

/// `Config::stateless_per_second`, in hundredths of a second.
#[test]
fn strangers_get_so_many_answers_in_a_second_and_no_more() {
    const MOST: u32 = 1000;
    let config = Config { stateless_per_second: MOST, ..Config::default() };
    let (mut network, keys) = half_way(&config);
    network.tape = Some(Vec::new());
    network.run_until(|network| network.tape.as_ref().is_some_and(|tape| !tape.is_empty()));
    let packet = network.tape.take().expect("set").remove(0);
    let (begin, host) = (network.now, &mut network.hosts[1]);
    host.endpoint.abort(keys[1], Reason::Reset, &mut host.app);
    let mut answers = 0;
    for millisecond in 0..1000 {
        let now = begin + millisecond * MILLISECOND;
        for _ in 0..100 {
            host.handle(now, packet.from, packet.ecn, &packet.bytes);
        }
        while host.poll_transmit(now).is_some() {
            answers += 1;
        }
    }
    // And the farewell.
    assert!((MOST * 9 / 10..=MOST + 1).contains(&answers), "{answers}");
}
