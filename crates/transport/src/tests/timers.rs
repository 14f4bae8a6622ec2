//! What a flow does by itself, and when, to a tick of the timers: probes, keep-alive, giving up.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};
use clearway_world::Steps;

use super::{Faults, Network, content, transfer};
use crate::{Config, Endpoint, FlowKey, Reason};

const RTT_NS: u64 = 1600 * MICROSECOND;
/// RFC 9002, 6.2.1: "PTO = smoothed_rtt + max(4*rttvar, kGranularity) + max_ack_delay", with the
/// defaults of `Config` and round trips that do not vary.
const PROBE_TIMEOUT_NS: u64 = RTT_NS + 200_000 + 50_000;

/// By so much a timer may be late (`TimerWheel`), and the acknowledgements with which the hosts
/// measure.
const TICK_NS: u64 = 8_192;

/// Two hosts that know how far they are from each other.
fn acquainted() -> (Network, [FlowKey; 2]) {
    let mut network = Network::new(1, &Config::default(), Faults::default(), 1 << 20);
    network.set_delay(RTT_NS / 2);
    let keys = network.connected();
    transfer(&mut network, keys, &[100; 60], 1);
    settle(&mut network);
    let flow = network.hosts[0].endpoint.flows().next().expect("open");
    assert!((RTT_NS..RTT_NS + TICK_NS).contains(&flow.rtt_ns), "{flow:?}");
    network.departures = Some(Vec::new());
    (network, keys)
}

fn settle(network: &mut Network) {
    network.run_until(|network| {
        network.hosts.iter().all(|host| host.endpoint.flows().all(|flow| flow.in_flight_bytes == 0))
    });
}

fn send(network: &mut Network, key: FlowKey) -> Time {
    let now = network.now;
    network.hosts[0].app.transmit_pool = vec![0; 100];
    network.hosts[0].endpoint.send(now, key, 0, 100);
    now
}

/// How long after one another host 0 has sent something since it was last asked; what leaves
/// together counts once.
fn pauses(network: &mut Network, since: Time) -> Vec<u64> {
    let times = network.departures.replace(Vec::new()).expect("recorded");
    let mut times: Vec<Time> = times.iter().map(|departure| departure.at).collect();
    times.dedup();
    let before = core::iter::once(since).chain(times.iter().copied());
    before.zip(&times).map(|(before, at)| at.since(before)).collect()
}

#[track_caller]
fn assert_in_time(network: &Network, due: Time) {
    assert!(network.now >= due && network.now.since(due) <= TICK_NS, "{:?}, {due:?}", network.now);
}

/// RFC 9002, 6.2.1: "When a PTO timer expires, the PTO backoff MUST be increased, resulting in the
/// PTO period being set to twice its current value"; and "The PTO backoff factor is reset when an
/// acknowledgment is received". At most a tenth of a second here.
#[test]
fn probe_timeouts_double_up_to_a_tenth_of_a_second_and_begin_anew() {
    let (mut network, keys) = acquainted();
    for _ in 0..2 {
        network.cut(true);
        let begin = send(&mut network, keys[0]);
        network.run_until(|network| network.now >= begin + 400 * MILLISECOND);
        let longest = 100 * MILLISECOND;
        let doubled = [1, 2, 4, 8, 16, 32].map(|factor| factor * PROBE_TIMEOUT_NS);
        let expected: Vec<_> = [0].into_iter().chain(doubled).chain([longest; 2]).collect();
        let pauses = pauses(&mut network, begin);
        assert_eq!(pauses.len(), expected.len(), "{pauses:?}");
        for (pause, at_least) in pauses.iter().zip(expected) {
            assert!(
                (at_least..=at_least + at_least / 100 + 2 * TICK_NS).contains(pause),
                "{pauses:?}"
            );
        }
        network.cut(false);
        settle(&mut network);
        network.read_all(1, keys[1]);
        network.run_until(|network| network.now >= begin + SECOND);
        network.departures = Some(Vec::new());
    }
}

/// RFC 9000, 10.1.2: an endpoint "might need to send ack-eliciting packets to avoid an idle
/// timeout".
#[test]
fn an_idle_flow_asks_each_ten_seconds_and_gives_its_peer_thirty_to_answer() {
    let (mut network, keys) = acquainted();
    let begin = network.now;
    network.run_until(|network| network.now >= begin + 100 * SECOND);
    let pauses = pauses(&mut network, begin);
    assert!((8..=10).contains(&pauses.len()), "{pauses:?}");
    network.cut(true);
    let heard = network.hosts[0].endpoint.last_heard(keys[0]).expect("open");
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
    assert_in_time(&network, heard + 40 * SECOND);
}

/// Both kinds of silence, of one flow and not of its neighbour: asked for a third of the time.
#[test]
fn a_flow_may_be_given_up_sooner_than_others() {
    for is_active in [false, true] {
        let (mut network, keys) = acquainted();
        network.hosts[0].endpoint.set_silence(network.now, keys[0], 3_000);
        let begin = network.now;
        network.run_until(|network| network.now >= begin + 20 * SECOND);
        assert!(network.hosts[0].app.closed.is_empty(), "its peer answers");
        let saved = network.hosts[0].endpoint.save();
        network.hosts[0].endpoint =
            Endpoint::restore(saved, Config::default(), network.now).expect("just saved");
        network.cut(true);
        let mut silent = network.hosts[0].endpoint.last_heard(keys[0]).expect("open") + SECOND;
        if is_active {
            silent = send(&mut network, keys[0]);
        }
        network.run_until(|network| !network.hosts[0].app.closed.is_empty());
        assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
        assert_in_time(&network, silent + 3 * SECOND);
        assert!(network.hosts[1].app.closed.is_empty(), "the other end is as patient as before");
    }
}

/// RFC 9000, 10.1: the idle timer begins anew with what is sent when nothing else was in flight.
#[test]
fn a_peer_that_does_not_answer_is_given_up_thirty_seconds_after_it_was_asked() {
    let (mut network, keys) = acquainted();
    let begin = network.now;
    network.run_until(|network| network.now >= begin + 4 * SECOND);
    network.cut(true);
    let asked = send(&mut network, keys[0]);
    network.run_until(|network| network.now >= asked + 20 * SECOND);
    send(&mut network, keys[0]);
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
    assert_in_time(&network, asked + 30 * SECOND);
}

/// The keep-alive puts off no probe, without which nobody is given up and no path found too narrow.
#[test]
fn a_far_peer_that_may_be_silent_for_a_second_only_is_given_up() {
    let (mut network, keys) = acquainted();
    network.set_delay(200 * MILLISECOND);
    transfer(&mut network, keys, &[100; 60], 1);
    network.hosts[0].endpoint.set_silence(network.now, keys[0], 1_000);
    settle(&mut network);
    network.cut(true);
    let asked = send(&mut network, keys[0]);
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
    assert!(network.now.since(asked) < 5 * SECOND, "{:?}", network.now.since(asked));
}

/// However long that is: of what was asked in vain little is kept, and the endpoint can be saved
/// and restored.
#[test]
fn a_silence_of_hours_is_waited_for() {
    let (mut network, keys) = acquainted();
    network.departures = None;
    network.hosts[0].endpoint.set_silence(network.now, keys[0], 2 * 3_600_000);
    network.cut(true);
    let heard = network.hosts[0].endpoint.last_heard(keys[0]).expect("open");
    network.run_for(200 * SECOND);
    let host = &mut network.hosts[0];
    let kept = host.endpoint.flow_of(keys[0]).packets_kept();
    // 64 probes, and what was under way before them.
    assert!(kept <= 66, "{kept} of some two thousand");
    let saved = host.endpoint.save();
    host.endpoint = Endpoint::restore(saved, Config::default(), network.now).expect("just saved");
    while network.hosts[0].app.closed.is_empty() {
        network.go_on();
    }
    assert_eq!(network.hosts[0].app.closed, [Reason::TimedOut]);
    assert_in_time(&network, heard + (10 + 2 * 3600) * SECOND);
}

/// What is sent again with the probes is of the messages that are under way, and all of them arrive
/// when the peer is back.
#[test]
fn who_was_silent_for_long_gets_all_that_was_under_way() {
    const MESSAGES: u32 = 40;
    let (mut network, keys) = acquainted();
    network.hosts[0].endpoint.set_silence(network.now, keys[0], 3_600_000);
    network.cut(true);
    network.hosts[0].app.transmit_pool = content(0, 1000);
    let before = network.hosts[0].app.sent;
    for _ in 0..MESSAGES {
        network.hosts[0].endpoint.send(network.now, keys[0], 0, 1000);
    }
    network.run_for(20 * SECOND);
    network.cut(false);
    network.run_until(|network| network.hosts[0].app.sent == before + MESSAGES);
    let messages = network.read_all(1, keys[1]);
    assert_eq!(messages, vec![content(0, 1000); MESSAGES as usize]);
    settle(&mut network);
}
