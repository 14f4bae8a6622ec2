//! Paths that take smaller packets than their ends, that mark packets, and hosts that sleep.

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND};
use clearway_wire::Ecn;
use clearway_world::{Datagram, Steps};

use super::{Faults, Network, bad, mixed_lengths, transfer};
use crate::{Config, Destination};

fn jumbo() -> Config {
    Config { packet_bytes_max: 8972, ..Config::default() }
}

fn packet_bytes(network: &Network) -> u16 {
    network.hosts[0].endpoint.flows().next().expect("open").packet_bytes
}

#[test]
fn messages_pass_black_holes_of_any_size_with_and_without_the_networks_help() {
    for (most, is_told) in
        [(548, false), (1200, false), (1472, false), (4000, false), (548, true), (1400, true)]
    {
        let mut network = Network::new(21, &jumbo(), Faults::default(), 64 << 20);
        let keys = network.connected();
        network.packet_bytes_max = most;
        network.tells_too_big = is_told;
        let begin = network.now;
        transfer(&mut network, keys, &[10, 200_000, 0, 9000, 1, 50_000], 3);
        let took_ns = network.now.since(begin);
        assert!(took_ns < 200 * MILLISECOND, "{most}, told {is_told}: {took_ns} ns");
        let found = usize::from(packet_bytes(&network));
        assert!(
            found <= most && found + 16 > if is_told { most } else { most.min(1200) },
            "{most}: {found}"
        );
        assert_eq!(network.hosts[1].endpoint.counters().dropped_violation, 0);
    }
}

#[test]
fn the_search_goes_on_to_what_the_path_takes_and_is_no_congestion() {
    let mut network = Network::new(22, &jumbo(), Faults::default(), 64 << 20);
    let keys = network.connected();
    network.packet_bytes_max = 4000;
    for _ in 0..40 {
        transfer(&mut network, keys, &[100_000; 4], 4);
    }
    let found = packet_bytes(&network);
    assert!((3984..=4000).contains(&found), "{found}");
    // The path gets better: ten minutes later that is found, too.
    network.packet_bytes_max = usize::MAX;
    let end = network.now + 601 * SECOND;
    while network.now < end {
        network.go_on();
    }
    for _ in 0..10 {
        transfer(&mut network, keys, &[100_000; 4], 4);
    }
    assert_eq!(packet_bytes(&network), 8972);
}

#[test]
fn a_smaller_path_in_the_middle_of_lossy_traffic_loses_and_doubles_nothing() {
    for seed in 0..20 {
        let faults = bad(50, 0, 50, 0);
        let mut network = Network::new(seed, &jumbo(), faults, 8 << 20);
        let keys = network.connected();
        let lengths = mixed_lengths(&mut Random::new(seed), 60);
        transfer(&mut network, keys, &lengths, 8);
        network.packet_bytes_max = 1000;
        transfer(&mut network, keys, &lengths, 8);
        assert!(packet_bytes(&network) <= 1000, "seed {seed}");
        assert!(network.hosts.iter().all(|host| host.app.closed.is_empty()), "seed {seed}");
    }
}

#[test]
fn a_too_big_message_that_quotes_nothing_of_ours_is_not_believed() {
    let mut network = Network::new(23, &jumbo(), Faults::default(), 1 << 20);
    let keys = network.connected();
    transfer(&mut network, keys, &[20_000], 1);
    let (now, peer) = (network.now, network.hosts[1].address);
    let endpoint = &mut network.hosts[0].endpoint;
    for quote in [&[][..], &[1; 8], &[0; 24], &[1; 200]] {
        endpoint.handle_packet_too_big(now, peer, quote, 600);
    }
    assert_eq!(endpoint.counters().dropped_unsolicited, 4);
    assert_eq!(packet_bytes(&network), 8972);
}

#[test]
fn a_marked_path_slows_the_sender_down_without_loss() {
    let mut network = Network::new(24, &Config::default(), Faults::default(), 64 << 20);
    let keys = network.connected();
    transfer(&mut network, keys, &[400_000], 1);
    let window = |network: &Network| {
        network.hosts[0].endpoint.flows().next().expect("open").congestion_window_bytes
    };
    network.run_until(|network| {
        let info = network.hosts[0].endpoint.flows().next().expect("open");
        info.in_flight_bytes == 0 && info.ecn == "capable"
    });
    let before = window(&network);
    network.is_congested = true;
    transfer(&mut network, keys, &[100_000], 1);
    network.run_until(|network| {
        network.hosts[0].endpoint.flows().next().expect("open").in_flight_bytes == 0
    });
    assert!(window(&network) < before * 9 / 10, "{} of {before}", window(&network));
    assert_eq!(network.hosts[0].endpoint.flows().next().expect("open").packets_lost, 0);
}

#[test]
fn hosts_that_were_asleep_for_an_hour_still_have_their_connection() {
    let mut network = Network::new(25, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    transfer(&mut network, keys, &[1000, 30_000], 2);
    network.hosts[0].app.transmit_pool = vec![0; 50_000];
    let now = network.now;
    network.hosts[0].endpoint.send(now, keys[0], 0, 50_000);
    network.step();
    // With packets on their way.
    network.now = network.now + 3600 * SECOND;
    let now = network.now;
    network.hosts.iter_mut().for_each(|host| host.endpoint.begin_turn(now, false));
    network.run_until(|network| !network.hosts[1].app.delivered.is_empty());
    network.hosts.iter_mut().for_each(|host| host.endpoint.begin_turn(now, false));
    network.read_all(1, keys[1]);
    transfer(&mut network, keys, &[1000, 30_000], 2);
    assert!(network.hosts.iter().all(|host| host.app.closed.is_empty()));
    let info = network.hosts[0].endpoint.flows().next().expect("open");
    assert!(info.rtt_ns < 10 * MILLISECOND, "{info:?}");
}

#[test]
fn what_waited_for_a_host_that_was_away_is_no_round_trip_in_whichever_turn_it_is_taken() {
    for has_rested in [false, true] {
        let mut network = Network::new(27, &Config::default(), Faults::default(), 1 << 20);
        let keys = network.connected();
        transfer(&mut network, keys, &[1000, 30_000], 2);
        network.hosts[0].app.transmit_pool = vec![0; 5000];
        network.hosts[0].endpoint.send(network.now, keys[0], 0, 5000);
        network.run_until(|network| !network.hosts[1].app.delivered.is_empty());
        // Its acknowledgement is on its way, or soon will be.
        network.now = network.now + 2 * SECOND;
        let host = &mut network.hosts[0];
        host.endpoint.begin_turn(network.now, has_rested);
        network.now = network.now + MICROSECOND;
        host.endpoint.begin_turn(network.now, false);
        let flow = |network: &Network| network.hosts[0].endpoint.flows().next().expect("open");
        network.run_until(|network| flow(network).in_flight_bytes == 0);
        assert!(flow(&network).rtt_ns < MILLISECOND, "{:?}", flow(&network));
    }
}

/// An engine that shares its core looks at its packets now and then only. That is no queue.
#[test]
fn a_host_that_is_away_for_a_while_is_no_congestion() {
    let mut network = Network::new(26, &Config::default(), Faults::default(), 64 << 20);
    let keys = network.connected();
    network.turn_ns = 400 * MICROSECOND;
    transfer(&mut network, keys, &[1 << 20; 10], 4);
    let info = network.hosts[0].endpoint.flows().next().expect("open");
    assert!(info.rtt_ns > 300 * MICROSECOND, "{info:?}");
    assert!(info.congestion_window_bytes > 200_000, "{info:?}");
}

/// Found by the simulator: probes then waited for seconds, too, and nothing else found out that the
/// path takes smaller packets only.
#[test]
fn a_syn_that_was_repeated_for_seconds_gives_no_round_trip_of_seconds() {
    let mut network = Network::new(28, &Config::default(), Faults::default(), 1 << 20);
    network.set_delay(10 * MILLISECOND);
    network.connect();
    network.run_until(|network| network.hosts[1].endpoint.counters().challenges_sent > 0);
    network.step();
    network.cut(true);
    let end = network.now + 2 * SECOND;
    network.run_until(|network| network.now > end);
    network.cut(false);
    network.run_until(|network| network.hosts[0].app.connected == 1);
    let info = network.hosts[0].endpoint.flows().next().expect("open");
    assert!((20 * MILLISECOND..40 * MILLISECOND).contains(&info.rtt_ns), "{info:?}");
}

/// The answer to the first of some syns comes just after the last of them has left. Taken for a
/// round trip, that would be the shortest ever, and all others a queue that never goes away.
#[test]
fn a_syn_that_was_repeated_makes_no_path_shorter_than_it_is() {
    for rtt_ns in [8 * MILLISECOND, 15 * MILLISECOND, 300 * MILLISECOND] {
        let mut network = Network::new(29, &Config::default(), Faults::default(), 64 << 20);
        network.set_delay(rtt_ns / 2);
        let keys = network.connected();
        let flow = |network: &Network| network.hosts[0].endpoint.flows().next().expect("open");
        assert!(flow(&network).rtt_ns < rtt_ns / 2, "a guess: {:?}", flow(&network));
        let begin = network.now;
        transfer(&mut network, keys, &[200_000; 20], 4);
        assert!(flow(&network).rtt_ns >= rtt_ns, "{:?}", flow(&network));
        let round_trips = network.now.since(begin) / rtt_ns;
        assert!(round_trips < 40, "{round_trips} for 4 MB of which 256 KB may be under way");
    }
}

/// Those that open a flow have nobody who would slow down.
#[test]
fn packets_may_be_marked_once_the_flow_is_open_and_while_the_path_is_honest() {
    let mut network = Network::new(24, &Config::default(), Faults::default(), 64 << 20);
    let key = network.connect();
    let next = |network: &mut Network| {
        let next = network.hosts[0].poll_transmit(network.now);
        let (Destination { from, to, is_ecn_capable, .. }, bytes) =
            next.expect("something to send");
        network.carry(1, Datagram { from, to, ecn: Ecn::Capable, bytes });
        is_ecn_capable
    };
    assert!(!next(&mut network), "a syn");
    network.run_until(|network| network.hosts[0].app.connected == 1);
    network.hosts[0].app.transmit_pool = vec![0; 1000];
    let now = network.now;
    network.hosts[0].endpoint.send(now, key, 0, 1000);
    assert!(next(&mut network));
    network.is_congested = true;
    let keys = [key, network.hosts[1].app.accepted[0]];
    network.run_until(|network| network.hosts[0].app.sent == 1);
    network.read_all(1, keys[1]);
    transfer(&mut network, keys, &[10_000; 10], 1);
    assert_eq!(
        network.hosts[0].endpoint.flows().next().expect("open").ecn,
        "all marked on the path"
    );
    let now = network.now;
    network.hosts[0].endpoint.send(now, key, 0, 1000);
    assert!(!next(&mut network));
}
