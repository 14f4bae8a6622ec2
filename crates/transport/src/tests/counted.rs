//! What an endpoint counts, and what it believes of those who have no flow.

use std::net::SocketAddr;

use clearway_base::MILLISECOND;
use clearway_wire::Ecn;
use clearway_wire::clearway::{
    Challenge, HEADER_LENGTH, Header, Packet, PacketType, Reset, SynAck, VERSION, VERSION_SHARED,
    Versions, emit_ping, seal,
};
use clearway_world::Steps;

use super::{Faults, Network, PORT, WINDOW, transfer};
use crate::control::emit_control;
use crate::endpoint::Counters;
use crate::{Arrival, Config, FlowKey, Owner, Reason, Undelivered};

fn network() -> Network {
    Network::new(41, &Config::default(), Faults::default(), 1 << 20)
}

/// A packet that has no flow, or whose flow is none of an endpoint's.
fn control(kind: PacketType, flow: u64, token: u64, body: &dyn Fn(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let length = emit_control(&mut bytes, kind, flow, token, body);
    bytes.truncate(length);
    bytes
}

fn data(flow: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LENGTH + 1];
    Header::data(flow, number, false).emit(&mut bytes);
    emit_ping(&mut bytes[HEADER_LENGTH..]);
    seal(&mut bytes);
    bytes
}

/// Gives host `to` a datagram; returns whether it has something to answer.
fn give(network: &mut Network, to: usize, source: SocketAddr, bytes: &[u8]) -> bool {
    network.hosts[to].handle(network.now, source, Ecn::NotCapable, bytes)
}

/// What has been counted since `before`, by name, but for packets that were sent.
fn since(network: &Network, host: usize, before: &Counters) -> Vec<(String, u64)> {
    let now = network.hosts[host].endpoint.counters().save();
    let grown = now
        .into_iter()
        .zip(before.save())
        .map(|((name, now), (_, then))| (name, now.checked_sub(then).expect("counters grow")));
    grown.filter(|(name, count)| *count > 0 && name != "packets_sent").collect()
}

/// Host 1 counts each of these packets, twice, by this name, and by no other.
#[track_caller]
fn assert_counted(network: &mut Network, name: &str, source: SocketAddr, packet: &[u8]) {
    let before = *network.hosts[1].endpoint.counters();
    for _ in 0..2 {
        give(network, 1, source, packet);
    }
    assert_eq!(since(network, 1, &before), [(name.to_string(), 2)]);
}

#[test]
fn each_packet_that_is_dropped_is_counted_once_and_by_its_reason() {
    let mut network = network();
    let keys = network.connected();
    network.transmit();
    let peer = network.hosts[0].address;
    let other = SocketAddr::from(([10, 0, 0, 77], 20707));
    let program = SocketAddr::new(peer.ip(), 1234);
    let flow = keys[1].id();
    let nothing = &|_: &mut [u8]| 0;
    let cases: [(&str, SocketAddr, Vec<u8>); 14] = [
        ("dropped_source_port", program, data(flow, 100)),
        ("dropped_malformed", peer, vec![VERSION; 5]),
        ("dropped_malformed", peer, control(PacketType::Syn, 0, 1, nothing)),
        ("dropped_malformed", peer, {
            let mut bytes = data(flow, 100);
            bytes[1] = 99;
            seal(&mut bytes);
            bytes
        }),
        ("dropped_malformed", peer, {
            let mut bytes = data(flow, 100);
            bytes[HEADER_LENGTH] = 0xff;
            seal(&mut bytes);
            bytes
        }),
        ("dropped_checksum", peer, {
            let mut bytes = data(flow, 100);
            bytes[HEADER_LENGTH] ^= 1;
            bytes
        }),
        ("dropped_version", peer, {
            let mut bytes = data(flow, 100);
            bytes[0] = VERSION + 1;
            seal(&mut bytes);
            bytes
        }),
        ("dropped_unknown_flow", peer, data(flow ^ 1 << 40, 100)),
        ("dropped_spoofed", other, data(flow, 100)),
        ("dropped_unsolicited", peer, control(PacketType::Pong, 0, 7, nothing)),
        ("dropped_unsolicited", peer, {
            let challenge = Challenge { engines: 1, port: 50_000, cookie: &[1; 24] };
            control(PacketType::Challenge, flow, 7, &|body| challenge.emit(body))
        }),
        ("dropped_unsolicited", peer, syn_ack(flow ^ 1 << 40, 7)),
        ("dropped_unsolicited", peer, reset(flow, 7, Reason::Refused)),
        ("dropped_unsolicited", peer, versions(flow, 7)),
    ];
    for (name, source, packet) in cases {
        assert_counted(&mut network, name, source, &packet);
    }
    // Nobody has taken any of it for the truth.
    assert!(network.hosts[1].app.closed.is_empty());
    transfer(&mut network, keys, &[100, 0, 20_000], 1);
    let before = *network.hosts[1].endpoint.counters();
    give(&mut network, 1, peer, &data(flow, 200));
    for _ in 0..2 {
        give(&mut network, 1, peer, &data(flow, 200));
    }
    let expected = [("data_packets_received", 1), ("dropped_duplicate", 2)];
    let expected = expected.map(|(name, count)| (name.to_string(), count));
    assert_eq!(since(&network, 1, &before), expected);
}

#[test]
fn what_another_engine_has_passed_on_is_counted() {
    let mut network = network();
    let keys = network.connected();
    let (now, source) = (network.now, network.hosts[0].address);
    let host = &mut network.hosts[1];
    for nth in 1..3 {
        let (packet, by) = (data(keys[1].id(), 100 + nth), Arrival::Lane);
        let (to, app) = (host.address, &mut host.app);
        host.endpoint.handle_datagram(now, source, to, &packet, by, Ecn::NotCapable, app);
        assert_eq!(host.endpoint.counters().received_by_lane, nth);
    }
}

fn syn_ack(flow: u64, token: u64) -> Vec<u8> {
    let syn_ack = SynAck {
        source_flow: 1 << 30,
        receive_limit: WINDOW,
        packet_bytes_max: 1472,
        version: VERSION,
        port: 50_000,
    };
    control(PacketType::SynAck, flow, token, &|body| syn_ack.emit(body))
}

fn reset(flow: u64, token: u64, reason: Reason) -> Vec<u8> {
    let reset = Reset { reason: reason.code(), quoted_flow: 0 };
    control(PacketType::Reset, flow, token, &|body| reset.emit(body))
}

fn versions(flow: u64, token: u64) -> Vec<u8> {
    let versions = Versions { versions: &[VERSION_SHARED] };
    control(PacketType::Version, flow, token, &|body| versions.emit(body))
}

/// Host 0 has sent a syn. Returns its packet.
fn connecting(network: &mut Network) -> (FlowKey, Vec<u8>) {
    let key = network.connect();
    network.transmit();
    let syn = network.intercept().bytes;
    (key, syn)
}

/// Its token is a secret of those who have seen the syn, and its peer's address is known.
#[test]
fn only_an_answer_to_this_syn_from_whom_it_was_sent_to_ends_or_opens_a_flow() {
    let answers = |key: FlowKey, token| {
        [
            (reset(key.id(), token, Reason::Refused), Some(Reason::Refused)),
            (versions(key.id(), token), Some(Reason::Version)),
            (syn_ack(key.id(), token), None),
        ]
    };
    for index in 0..3 {
        let mut network = network();
        let (key, syn) = connecting(&mut network);
        let token = Packet::new(&syn).expect("a packet").number();
        let peer = network.hosts[1].address;
        let stranger = SocketAddr::from(([10, 0, 0, 77], 20707));
        for (source, token) in [(stranger, token), (peer, token ^ 1)] {
            give(&mut network, 0, source, &answers(key, token)[index].0);
            let app = &network.hosts[0].app;
            assert!(app.closed.is_empty() && app.connected == 0, "{index} from {source}");
        }
        let (answer, reason) = &answers(key, token)[index];
        give(&mut network, 0, peer, answer);
        let app = &network.hosts[0].app;
        assert_eq!(app.closed.first(), reason.as_ref());
        assert_eq!(app.connected, u32::from(reason.is_none()));
    }
}

/// RFC 5927, 4.1: an ICMP error is believed if it quotes what only those know who have seen the
/// packet.
#[test]
fn the_network_may_say_that_a_peer_cannot_be_reached_while_its_syn_is_under_way() {
    let mut network = network();
    let (key, syn) = connecting(&mut network);
    let (now, peer) = (network.now, network.hosts[1].address);
    let mut other_token = syn.clone();
    other_token[23] ^= 1;
    let mut other_flow = syn.clone();
    other_flow[HEADER_LENGTH] ^= 1;
    let elsewhere = SocketAddr::new(peer.ip(), 1);
    let lies = [
        (peer, &syn[..HEADER_LENGTH + 7]),
        (peer, &syn[..10]),
        (peer, &other_token),
        (peer, &other_flow),
        (elsewhere, &syn),
    ];
    let before = *network.hosts[0].endpoint.counters();
    let host = &mut network.hosts[0];
    for (peer, quote) in lies {
        host.endpoint.handle_network_error(now, peer, quote, Undelivered::Port, &mut host.app);
    }
    assert!(host.app.closed.is_empty() && host.endpoint.owner(key).is_some());
    let quote = &syn[..HEADER_LENGTH + 8];
    host.endpoint.handle_network_error(now, peer, quote, Undelivered::Port, &mut host.app);
    assert_eq!(host.app.closed, [Reason::Unreachable]);
    assert_eq!(since(&network, 0, &before), [("dropped_unsolicited".to_string(), 5)]);
}

#[test]
fn an_open_flow_does_not_believe_that_its_peer_cannot_be_reached() {
    let mut network = network();
    let (_, syn) = connecting(&mut network);
    network.run_until(|network| network.hosts[0].app.connected == 1);
    let (now, peer) = (network.now, network.hosts[1].address);
    let host = &mut network.hosts[0];
    host.endpoint.handle_network_error(now, peer, &syn, Undelivered::Host, &mut host.app);
    assert!(host.app.closed.is_empty());
}

#[test]
fn all_packets_of_two_flows_are_counted_at_both_ends() {
    let mut network = network();
    let owners = [1, 2].map(|connection| Owner { channel: 1, connection });
    network.hosts[1].endpoint.listen(PORT, super::LISTENER).expect("free port");
    let (from, to) = (network.hosts[0].address, network.hosts[1].address);
    let keys = owners.map(|owner| {
        let client = &mut network.hosts[0].endpoint;
        let key = client.connect(network.now, owner, from, to, PORT, WINDOW).expect("room");
        network.run_until(|network| network.hosts[0].app.connected == owner.connection);
        key
    });
    network.hosts[0].app.transmit_pool = vec![0; 100];
    for number in 1..=6 {
        network.hosts[0].endpoint.send(network.now, keys[number % 2], 0, 100);
        network.run_until(|network| network.hosts[0].app.sent == number as u32);
        let info = network.hosts[0].endpoint.flows();
        assert_eq!(info.map(|flow| flow.messages_sent).sum::<u64>(), number as u64);
    }
    let counters = network.hosts.each_ref().map(|host| *host.endpoint.counters());
    let count = |host: usize, name: &str| {
        let all = counters[host].save();
        all.iter().find(|(known, _)| known == name).expect("a counter").1
    };
    for (name, expected) in [
        ("flows_connected", [2, 0]),
        ("flows_accepted", [0, 2]),
        ("challenges_sent", [0, 2]),
        ("received_by_lane", [0, 0]),
    ] {
        assert_eq!([0, 1].map(|host| count(host, name)), expected, "{name}");
    }
    // Four packets open each flow; all others carry data.
    let sent = [0, 1].map(|host| count(host, "packets_sent") - 4);
    let received = [1, 0].map(|host| count(host, "data_packets_received"));
    assert_eq!((sent, sent[0] + sent[1]), (received, network.packets() - 8));
    assert!(sent[0] >= 6 && sent[1] >= 6, "{sent:?}");
    for host in 0..2 {
        let flows = network.hosts[host].endpoint.flows();
        assert!(
            flows
                .into_iter()
                .all(|flow| (flow.setup_packets, flow.setup_retries) == (2 - host as u32, 0))
        );
    }
    // One ends by a reset, the other when nobody is there any more.
    let host = &mut network.hosts[0];
    host.endpoint.abort(keys[0], Reason::Reset, &mut host.app);
    network.run_until(|network| network.hosts[1].app.closed == [Reason::Reset]);
    network.cut(true);
    network.run_until(|network| network.hosts[1].app.closed.len() == 2);
    assert_eq!(network.hosts[1].endpoint.counters().flows_timed_out, 1);
}

/// A peer that has forgotten its flows says so of each.
#[test]
fn flows_that_their_peer_has_forgotten_are_counted() {
    let mut network = network();
    let keys = network.connected();
    let owner = Owner { channel: 1, connection: 2 };
    let (from, to) = (network.hosts[0].address, network.hosts[1].address);
    let client = &mut network.hosts[0].endpoint;
    let another = client.connect(network.now, owner, from, to, PORT, WINDOW);
    network.run_until(|network| network.hosts[0].app.connected == 2);
    let secret = [9; 16];
    network.hosts[1].endpoint = crate::Endpoint::new(Config::default(), network.now, 99, secret);
    network.hosts[0].app.transmit_pool = vec![1; 100];
    for key in [keys[0], another.expect("room")] {
        network.hosts[0].endpoint.send(network.now, key, 0, 100);
    }
    network.run_until(|network| network.hosts[0].app.closed.len() == 2);
    assert_eq!(network.hosts[0].endpoint.counters().flows_reset_by_peer, 2);
    assert_eq!(network.hosts[1].endpoint.counters().dropped_unknown_flow, 2);
}

/// Nobody who does not ask is told that something waits: an answer, or the last of a flow.
#[test]
fn that_something_waits_is_said_of_answers_and_of_farewells() {
    let mut network = network();
    let keys = network.connected();
    network.run_until(|network| network.hosts.iter().all(|h| !h.endpoint.has_waiting()));
    let [from, to] = [network.hosts[0].address, network.hosts[1].address];
    let (now, host) = (network.now, &mut network.hosts[0]);
    assert!(!host.endpoint.has_replies());
    host.endpoint.ping(now, 1, from, to, 100);
    assert!(host.endpoint.has_replies() && host.endpoint.has_waiting());
    network.transmit();
    assert!(!network.hosts[0].endpoint.has_replies());
    assert!(!give(&mut network, 1, from, &data(keys[1].id(), 50)), "its turn will come");
    assert!(give(&mut network, 1, from, &data(keys[1].id() ^ 1 << 40, 50)), "a reset");
    network.transmit();
    let host = &mut network.hosts[0];
    host.endpoint.abort(keys[0], Reason::Reset, &mut host.app);
    assert!(host.endpoint.has_replies() && host.endpoint.has_waiting());
}

/// Who sends a ping back has seen it: its token says so.
#[test]
fn a_ping_that_is_sent_back_is_over() {
    let mut network = network();
    let [from, to] = [network.hosts[0].address, network.hosts[1].address];
    network.hosts[0].endpoint.ping(network.now, 1, from, to, 24);
    network.transmit();
    let ping = network.intercept().bytes;
    let mut other = ping.clone();
    other[23] ^= 1;
    let (now, host) = (network.now, &mut network.hosts[0]);
    for quote in [&other, &ping, &ping] {
        host.endpoint.handle_network_error(now, to, quote, Undelivered::Port, &mut host.app);
    }
    assert_eq!(host.app.undelivered, [Undelivered::Port]);
    assert_eq!(host.endpoint.counters().dropped_unsolicited, 2);
}

/// A daemon whose port is another finds out that there is one, and nothing more.
#[test]
fn pings_are_answered_whichever_port_they_come_from() {
    let mut network = network();
    let [from, to] = [network.hosts[0].address, network.hosts[1].address];
    let foreign = SocketAddr::new(from.ip(), 1234);
    let ping = control(PacketType::Ping, 0, 7, &|_: &mut [u8]| 0);
    assert!(give(&mut network, 1, foreign, &ping));
    let (now, host, mut bytes) = (network.now, &mut network.hosts[1], [0; 64]);
    let destination = host.endpoint.next_transmit(now).expect("a pong");
    assert_eq!(destination.to, foreign);
    let length = host.endpoint.poll_transmit(now, destination, &mut bytes, &host.app);
    let pong = Packet::new(&bytes[..length]).expect("a packet");
    let header = Header::parse(&pong).expect("a header");
    assert_eq!((header.packet_type, header.number), (PacketType::Pong, 7));
    // And what comes from there: a pong, but no syn.
    network.hosts[0].endpoint.ping(network.now, 1, from, SocketAddr::new(to.ip(), 1234), 24);
    network.transmit();
    let ping = network.intercept().bytes;
    let token = Packet::new(&ping).expect("a packet").number();
    let other = SocketAddr::new(to.ip(), 1234);
    give(&mut network, 0, other, &control(PacketType::Syn, 0, 1, &|_: &mut [u8]| 0));
    give(&mut network, 0, other, &control(PacketType::Pong, 0, token, &|_: &mut [u8]| 0));
    let host = &network.hosts[0];
    assert_eq!(host.app.pongs.len(), 1);
    assert_eq!(host.endpoint.counters().dropped_source_port, 1, "the syn");
}

/// Pings that get no answer are forgotten, the oldest first; an answer counts once.
#[test]
fn pings_are_known_by_their_tokens() {
    let mut network = network();
    let [from, to] = [network.hosts[0].address, network.hosts[1].address];
    let mut tokens = Vec::new();
    for id in 0..65 {
        network.hosts[0].endpoint.ping(network.now, id, from, to, 24);
        network.transmit();
        let ping = network.intercept().bytes;
        assert_eq!(ping.len(), HEADER_LENGTH);
        tokens.push(Packet::new(&ping).expect("a packet").number());
    }
    network.now = network.now + MILLISECOND;
    for (id, answers) in [(0, 0), (64, 1), (64, 1), (1, 2)] {
        let pong = control(PacketType::Pong, 0, tokens[id], &|_| 0);
        give(&mut network, 0, to, &pong);
        assert_eq!(network.hosts[0].app.pongs.len(), answers);
    }
    assert_eq!(network.hosts[0].app.pongs, [MILLISECOND; 2]);
    assert_eq!(network.hosts[0].endpoint.counters().dropped_unsolicited, 2);
}

/// Data that overtake the syn-ack come again.
#[test]
fn data_before_the_syn_ack_are_early() {
    let mut network = network();
    let (key, _) = connecting(&mut network);
    let peer = network.hosts[1].address;
    let before = *network.hosts[0].endpoint.counters();
    (0..2).for_each(|number| _ = give(&mut network, 0, peer, &data(key.id(), number)));
    assert_eq!(since(&network, 0, &before), [("dropped_early".to_string(), 2)]);
}

/// What ends with an app that had many flows holds up those that stay for a moment only.
#[test]
fn eight_farewells_of_a_turn_go_before_the_packets_of_flows() {
    let mut network = network();
    network.hosts[1].endpoint.listen(PORT, super::LISTENER).expect("free port");
    let (from, to) = (network.hosts[0].address, network.hosts[1].address);
    let open = |network: &mut Network| {
        network.hosts[0].app.connected = 0;
        let owner = Owner { channel: 1, connection: 1 };
        let client = &mut network.hosts[0].endpoint;
        let key = client.connect(network.now, owner, from, to, PORT, WINDOW).expect("room");
        network.run_until(|network| network.hosts[0].app.connected == 1);
        key
    };
    let keys: Vec<FlowKey> = (0..10).map(|_| open(&mut network)).collect();
    let stays = open(&mut network);
    network.run_until(|network| !network.hosts[0].endpoint.has_waiting());
    let (now, host) = (network.now, &mut network.hosts[0]);
    keys.iter().for_each(|key| host.endpoint.abort(*key, Reason::Reset, &mut host.app));
    host.endpoint.begin_turn(now, false);
    host.endpoint.send(now, stays, 0, 0);
    let (mut order, mut bytes) = (Vec::new(), [0; 2048]);
    while let Some(destination) = host.endpoint.next_transmit(now) {
        host.endpoint.poll_transmit(now, destination, &mut bytes, &host.app);
        order.push(destination.flow.is_some());
    }
    assert_eq!(order, [[false; 8].as_slice(), &[true], &[false; 2]].concat());
}
