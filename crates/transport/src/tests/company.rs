//! Connections that wait for answers, beside others that send much.

use clearway_base::MICROSECOND;
use clearway_world::Steps;

use super::in_flow::Streams;
use super::{Faults, Host, Network, Owner, PORT, WINDOW};
use crate::{Config, FlowKey};

/// Two connections, each with a flow of its own, over a network of large packets.
fn two_flows() -> (Network, [FlowKey; 2]) {
    let config = Config { packet_bytes_max: 9000, packet_bytes_taken: 9000, ..Config::default() };
    let mut network = Network::new(21, &config, Faults::default(), 1 << 20);
    let [first, _] = network.connected();
    let (now, to, owner) =
        (network.now, network.hosts[1].address, Owner { channel: 2, connection: 1 });
    let host = &mut network.hosts[0];
    host.app.transmit_pool = vec![1; 1 << 20];
    let second = host.endpoint.connect(now, owner, host.address, to, PORT, WINDOW).expect("room");
    network.run_until(|network| network.hosts[0].app.connected == 2);
    network.transmit();
    (network, [first, second])
}

/// The lengths of all that a host sends in a turn that begins now.
fn lengths(network: &mut Network) -> Vec<usize> {
    let (now, Host { endpoint, app, .. }) = (network.now, &mut network.hosts[0]);
    endpoint.begin_turn(now, false);
    endpoint.handle_timeouts(now, app);
    network.hosts[0].packets(now).iter().map(|(_, bytes)| bytes.len()).collect()
}

fn send(network: &mut Network, flow: FlowKey, length: u32) {
    network.hosts[0].endpoint.send(network.now, flow, 0, length);
}

fn later(network: &mut Network, microseconds: u64) {
    network.now = network.now + microseconds * MICROSECOND;
}

#[test]
fn who_sends_much_beside_one_who_waits_rests_for_as_long_as_its_turn_took() {
    let (mut network, [large, lone]) = two_flows();
    send(&mut network, lone, 64);
    assert_eq!(lengths(&mut network).len(), 1);
    send(&mut network, large, 100_000);
    let is_short = |sent: &[usize]| sent.len() == 1 && (4000..=4500).contains(&sent[0]);
    let sent = lengths(&mut network);
    assert!(is_short(&sent), "{sent:?}");
    later(&mut network, 3);
    assert_eq!(lengths(&mut network), [], "its turn took three microseconds");
    later(&mut network, 2);
    let wakes = network.hosts[0].endpoint.next_timeout().expect("it rests");
    assert_eq!(wakes.since(network.now), MICROSECOND);
    assert_eq!(lengths(&mut network), []);
    later(&mut network, 1);
    let sent = lengths(&mut network);
    assert!(is_short(&sent), "{sent:?}");
}

#[test]
fn what_is_not_much_is_sent_at_once() {
    let (mut network, [medium, lone]) = two_flows();
    send(&mut network, lone, 64);
    send(&mut network, medium, 30_000);
    let sent = lengths(&mut network);
    assert!(sent.len() > 2 && sent[1] > 8000, "{sent:?}");
}

#[test]
fn packets_are_long_again_when_nobody_waits() {
    let (mut network, [large, lone]) = two_flows();
    send(&mut network, lone, 64);
    lengths(&mut network);
    later(&mut network, 250);
    send(&mut network, large, 100_000);
    let sent = lengths(&mut network);
    assert!(sent.len() > 1 && sent[0] > 8000, "{sent:?}");
}

#[test]
fn those_who_wait_hold_up_neither_each_other_nor_themselves() {
    let (mut network, [first, second]) = two_flows();
    for _ in 0..2 {
        send(&mut network, first, 64);
        send(&mut network, second, 64);
        assert_eq!(lengths(&mut network).len(), 2);
        later(&mut network, 1);
    }
    let (mut network, [alone, _]) = two_flows();
    send(&mut network, alone, 64);
    lengths(&mut network);
    send(&mut network, alone, 100_000);
    let sent = lengths(&mut network);
    assert!(sent.len() > 1 && sent[0] > 8000, "{sent:?}");
}

#[test]
fn a_lone_message_does_not_wait_while_others_of_its_flow_rest() {
    let mut world = Streams::new(22, Faults::default());
    let streams = [world.open(0), world.open(0)];
    for stream in streams {
        world.send(0, stream, 0, 64);
    }
    world.run_until(|world| world.network.hosts[0].app.sent == 2);
    world.send(0, streams[0], 0, 64);
    assert_eq!(lengths(&mut world.network).len(), 1);
    let flow = world.flow(0);
    world.send(0, flow, 0, 100_000);
    assert_eq!(lengths(&mut world.network).len(), 1, "it rests");
    assert_eq!(lengths(&mut world.network).len(), 1, "a turn that took no time");
    later(&mut world.network, 5);
    assert_eq!(lengths(&mut world.network), []);
    world.send(0, streams[1], 0, 64);
    let sent = lengths(&mut world.network);
    assert!(sent.len() == 1 && sent[0] < 200, "{sent:?}");
}
