//! Saved states at their bounds: what is just possible is taken and comes back as it was, and what
//! is just not is refused, each number by itself.

use core::fmt::Debug;

use clearway_base::{RangeSet, Time};

use super::{Faults, Network, WINDOW, content};
use crate::acks::Acks;
use crate::config::{PACKETS_IN_FLIGHT_MAX, SILENCE_MS};
use crate::incoming::Incoming;
use crate::mtu::PathMtu;
use crate::outgoing::Outgoing;
use crate::recovery::Recovery;
use crate::rtt::RttEstimator;
use crate::state::{
    AcksState, DURATION_NS_MAX, IncomingState, OutgoingState, POSITIONS_MAX, PacketState,
    PartialState, RecoveryState, RttState,
};
use crate::{Buffer, Config, Endpoint, EndpointState, FlowState, Order, Phase, Reason};

type Change<S> = fn(&mut S);

/// What is restored of `state` after each change is that state again if it is one of `fine`, and
/// nothing if it is one of `wrong`.
#[track_caller]
fn check<S: Clone + Debug + PartialEq>(
    state: &S,
    restore: impl Fn(S) -> Option<S>,
    fine: &[Change<S>],
    wrong: &[Change<S>],
) {
    assert_eq!(restore(state.clone()).as_ref(), Some(state));
    for (index, change) in fine.iter().enumerate() {
        let mut state = state.clone();
        change(&mut state);
        assert_eq!(restore(state.clone()), Some(state), "fine, {index}");
    }
    for (index, change) in wrong.iter().enumerate() {
        let mut state = state.clone();
        change(&mut state);
        assert!(restore(state).is_none(), "wrong, {index}");
    }
}

/// `count` ranges of one, with gaps of one between them.
fn crumbs(count: u64) -> Vec<core::ops::Range<u64>> {
    (0..count).map(|nth| 2 * nth..2 * nth + 1).collect()
}

fn partial(sequence: u64, offset: u32, length: u32, order: Order) -> PartialState {
    let buffer = Buffer { id: sequence as u32, offset, length };
    PartialState { sequence, buffer, order, is_operation: false, received: Vec::new() }
}

#[test]
fn messages_on_their_way_in() {
    const GAPS_MAX: u64 = PACKETS_IN_FLIGHT_MAX as u64 / 32;
    let mut due = partial(5, 100, 10_000, Order::Due);
    let mut ahead = partial(7, 0, 5, Order::Ahead);
    (due.received, ahead.received) = (vec![0..10, 20..30], vec![0..5]);
    // 64 positions for each message and one for each byte: just enough of everything.
    let received = 5 * 64 + (64 + 20) + (64 + 5);
    let state = IncomingState {
        next: 5,
        partial: vec![due, ahead],
        received,
        released: 5 * 64,
        window: 2000,
        announced: received,
        starved: true,
        ahead: None,
    };
    let restore = |state| Incoming::restore(state).ok().map(|incoming| incoming.save());
    check(
        &state,
        restore,
        &[
            |s| (s.announced, s.window) = (POSITIONS_MAX - 1, POSITIONS_MAX - 1),
            |s| s.partial[1].buffer.offset = u32::MAX - 5,
            |s| {
                s.partial[0].received = crumbs(GAPS_MAX + 1);
                (s.received, s.announced) = (POSITIONS_MAX - 1, POSITIONS_MAX - 1);
            },
        ],
        &[
            |s| (s.next, s.partial) = (POSITIONS_MAX, Vec::new()),
            |s| s.window = POSITIONS_MAX,
            |s| s.announced = POSITIONS_MAX,
            |s| s.announced -= 1,
            |s| s.released += 1,
            |s| s.received -= 1,
            |s| s.partial[0].sequence = 4,
            |s| s.partial[1].sequence = 5,
            |s| (s.partial[1].sequence, s.partial[1].buffer.length) = (5, 6),
            |s| s.partial[1].sequence = 8,
            |s| s.partial.reverse(),
            |s| s.partial[1].buffer.offset = u32::MAX - 4,
            |s| {
                s.partial[1].received = vec![0..6];
                (s.received, s.announced) = (5000, 5000);
            },
            |s| {
                s.partial[0].received = vec![0..10_000];
                (s.received, s.announced) = (20_000, 20_000);
            },
            |s| {
                s.partial[0].received = crumbs(GAPS_MAX + 1);
                s.partial[1].received = crumbs(2);
                (s.received, s.announced) = (POSITIONS_MAX - 1, POSITIONS_MAX - 1);
            },
        ],
    );
}

/// Messages of 100, 50 and no bytes from position 1000 on, of which the first two are under way.
fn outgoing() -> OutgoingState {
    OutgoingState {
        first_sequence: u32::MAX,
        start: 1000,
        messages: vec![(10, 100), (200, 50), (300, 0)],
        next: 1278,
        acknowledged: 1070,
        acknowledged_above: vec![1120..1164],
        lost: vec![1100..1120, 1200..1278],
        limit: 5000,
        deadlines: Vec::new(),
    }
}

#[test]
fn messages_on_their_way_out() {
    let restore = |state| {
        let mut in_flight = RangeSet::new();
        [1000..1100, 1164..1200].into_iter().for_each(|range| _ = in_flight.insert(range));
        Outgoing::restore(state, in_flight).ok().map(|outgoing| outgoing.save())
    };
    check(
        &outgoing(),
        restore,
        &[
            |s| s.limit = POSITIONS_MAX,
            |s| s.acknowledged = 1000,
            |s| s.messages[0].0 = u32::MAX - 100,
            // The second message up to its first byte.
            |s| (s.next, s.lost[1].end) = (1164 + 65, 1164 + 65),
            |s| (s.next, s.lost[1].end) = (1277, 1277),
        ],
        &[
            |s| s.limit = POSITIONS_MAX + 1,
            |s| s.messages[0].0 = u32::MAX - 99,
            |s| s.acknowledged = 999,
            |s| (s.acknowledged, s.lost[0]) = (999, 999..1120),
            |s| s.acknowledged = 1164,
            |s| {
                (s.acknowledged, s.acknowledged_above) = (1164, Vec::new());
                s.lost.remove(0);
            },
            // No more of a message than its overhead.
            |s| (s.next, s.lost[1].end) = (1164 + 64, 1164 + 64),
            |s| (s.next, s.lost[1].end) = (1164 + 63, 1164 + 63),
            |s| s.next = 1343,
            |s| s.lost[1].end += 1,
            |s| s.lost[1].end -= 1,
            |s| s.lost[0].start += 1,
            |s| s.acknowledged_above[0] = 1065..1164,
            |s| (s.messages, s.lost) = (Vec::new(), Vec::new()),
        ],
    );
    let rest = OutgoingState {
        messages: Vec::new(),
        lost: Vec::new(),
        acknowledged_above: Vec::new(),
        next: 1000,
        acknowledged: 1000,
        ..outgoing()
    };
    let restore = |state| Some(Outgoing::restore(state, RangeSet::new()).ok()?.save());
    check(&rest, restore, &[], &[|s| s.next = 1001, |s| s.acknowledged = 999]);
}

#[test]
fn ranges_of_what_is_to_be_sent_again() {
    const RANGES_MAX: u64 = PACKETS_IN_FLIGHT_MAX as u64 / 8;
    for (count, is_fine) in [(RANGES_MAX, true), (RANGES_MAX + 1, false)] {
        let mut in_flight = RangeSet::new();
        in_flight.insert(0..64 + 4 * count);
        let lost: Vec<_> = (0..count).map(|nth| 64 + 4 * nth..66 + 4 * nth).collect();
        let state = OutgoingState {
            first_sequence: 0,
            start: 0,
            messages: vec![(0, 1 << 20)],
            next: 64 + 4 * count,
            acknowledged: 0,
            acknowledged_above: Vec::new(),
            lost: lost.clone(),
            limit: 0,
            deadlines: Vec::new(),
        };
        assert_eq!(Outgoing::restore(state.clone(), in_flight.clone()).is_ok(), is_fine);
        let state = OutgoingState { lost: Vec::new(), acknowledged_above: lost, ..state };
        assert_eq!(Outgoing::restore(state, in_flight).is_ok(), is_fine);
    }
}

fn packet(number: u64) -> PacketState {
    PacketState {
        number,
        sent: Time::from_ns(number),
        bytes: 1000,
        stream: 0,
        range: 100 * number..100 * number + 50,
        open: number.is_multiple_of(11),
        limit: number.is_multiple_of(2),
        close: number.is_multiple_of(3),
        abort: number.is_multiple_of(13),
        path: number.is_multiple_of(5),
        is_size_probe: number.is_multiple_of(7),
        follows_acknowledged: number.is_multiple_of(4),
    }
}

#[test]
fn packets_in_flight() {
    const MOST: usize = PACKETS_IN_FLIGHT_MAX + 1024;
    let state = RecoveryState {
        packets: [10, 12, 14, 15].map(packet).into(),
        next_number: 16,
        acked_end: 16,
        probes: 3,
        expedited: 2,
        probe_numbers: vec![3, 12, 15],
        loss_time: Time::from_ns(77),
        last_eliciting: Time::from_ns(66),
        waiting_since: Time::from_ns(60),
        last_silent: (11, Time::from_ns(55)),
        patience: (4, 2),
    };
    let restore = |state| Recovery::restore(state).ok().map(|recovery| recovery.save());
    check(
        &state,
        restore,
        &[
            |s| s.patience = (3, 1),
            |s| s.patience = (1024, 8),
            |s| s.probes = 1 << 20,
            |s| (s.packets[0].bytes, s.packets[1].bytes) = (1, 65_535),
            |s| s.packets[0].range = 0..u64::from(u32::MAX),
            |s| s.packets[0].range = 0..0,
            |s| s.packets[0].range = POSITIONS_MAX - 9..POSITIONS_MAX - 1,
            |s| s.next_number = 10 + (1 << 30),
            |s| (s.packets, s.next_number) = (Vec::new(), POSITIONS_MAX - 1),
            |s| {
                let numbers = 1..=MOST as u64;
                (s.packets, s.next_number) = (numbers.map(packet).collect(), MOST as u64 + 1);
            },
            |s| {
                s.packets =
                    (0..1024).map(|number| PacketState { range: 0..0, ..packet(number) }).collect();
                s.next_number = 1024;
            },
            |s| s.probe_numbers = Vec::new(),
            |s| (s.probe_numbers, s.next_number) = ((0..64).collect(), 64),
        ],
        &[
            |s| s.patience = (2, 1),
            |s| s.patience = (1025, 1),
            |s| s.patience = (3, 0),
            |s| s.patience = (3, 9),
            |s| s.acked_end = 17,
            |s| (s.next_number, s.acked_end) = (15, 15),
            |s| s.packets[0].bytes = 0,
            |s| s.packets[0].bytes = 65_536,
            |s| s.packets[0].range = 0..1 + u64::from(u32::MAX),
            |s| s.packets[0].range.end = s.packets[0].range.start - 1,
            |s| s.packets[0].range = POSITIONS_MAX - 9..POSITIONS_MAX,
            |s| s.packets.swap(1, 2),
            |s| s.packets[1].number = 10,
            |s| s.next_number = 11 + (1 << 30),
            |s| (s.packets, s.next_number) = (Vec::new(), POSITIONS_MAX),
            |s| {
                let numbers = 0..=MOST as u64;
                (s.packets, s.next_number) = (numbers.map(packet).collect(), MOST as u64 + 1);
            },
            |s| {
                s.packets =
                    (0..1025).map(|number| PacketState { range: 0..0, ..packet(number) }).collect();
                s.next_number = 1025;
            },
            |s| s.probe_numbers = vec![12, 12],
            |s| s.probe_numbers = vec![16],
            |s| (s.probe_numbers, s.next_number) = ((0..65).collect(), 65),
        ],
    );
}

#[test]
fn round_trips_acknowledgements_and_packet_sizes() {
    let state = RttState {
        latest_ns: 1,
        network_ns: 2,
        min_ns: 3,
        smoothed_ns: 4,
        variation_ns: 5,
        sampled: Time::from_ns(6),
    };
    let restore = |state| RttEstimator::restore(state).ok().map(|rtt| rtt.save());
    check(
        &state,
        restore,
        &[|s| {
            (s.latest_ns, s.smoothed_ns) = (DURATION_NS_MAX, DURATION_NS_MAX);
            s.variation_ns = DURATION_NS_MAX;
        }],
        &[
            |s| s.latest_ns = DURATION_NS_MAX + 1,
            |s| s.smoothed_ns = DURATION_NS_MAX + 1,
            |s| s.variation_ns = DURATION_NS_MAX + 1,
        ],
    );
    let state = AcksState {
        received: vec![5..8, 9..10],
        floor: 5,
        largest_at: Time::from_ns(7),
        unacknowledged_packets: 3,
        unacknowledged_bytes: 4,
        due: Time::from_ns(8),
    };
    let restore = |state| Acks::restore(state).ok().map(|acks| acks.save());
    check(
        &state,
        restore,
        &[
            |s| s.floor = 0,
            |s| (s.floor, s.received) = (u64::MAX, Vec::new()),
            |s| (s.floor, s.received) = (0, crumbs(32)),
            |s| s.unacknowledged_packets = u32::MAX / 2,
            |s| s.unacknowledged_bytes = u32::MAX / 2,
        ],
        &[|s| s.floor = 6, |s| (s.floor, s.received) = (0, crumbs(33))],
    );
    let restore = |sizes| PathMtu::restore(sizes, 1472).ok().map(|mtu| mtu.save());
    check(
        &(1200, 1472),
        restore,
        &[|s| s.0 = 548, |s| s.0 = 1472],
        &[|s| s.0 = 547, |s| s.0 = 1473, |s| s.1 = 1199],
    );
    for (saved, own, expected, probe) in [
        ((1472, 1472), 1472, (1472, 1472), None),
        ((1200, 1472), 1472, (1200, 1472), Some(1472)),
        ((1472, 1472), 1000, (1000, 1472), None),
        ((600, 1472), 1000, (600, 1472), Some(1000)),
        ((500, 1472), 500, (500, 1472), None),
    ] {
        let mtu = PathMtu::restore(saved, own).expect("possible");
        assert_eq!((mtu.save(), mtu.probe_bytes()), (expected, probe));
    }
}

/// An endpoint with one flow that has sent a message and waits for another one.
fn saved(connects: bool) -> EndpointState {
    let mut network = Network::new(51, &Config::default(), Faults::default(), 1 << 20);
    if connects {
        network.connect();
        return network.hosts[0].endpoint.save();
    }
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = content(0, 20_000);
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 20_000);
    network.transmit();
    network.hosts[0].endpoint.save()
}

/// What comes back of a flow, and of the endpoint that has it, late enough for all its times.
fn restored(state: EndpointState) -> Option<EndpointState> {
    let now = Time::from_ns(1 << 40);
    let endpoint = Endpoint::restore(state, Config::default(), now).ok()?;
    endpoint.audit().expect("in order");
    Some(endpoint.save())
}

/// The same of a flow that has been changed.
#[track_caller]
fn check_flow(state: &EndpointState, fine: &[Change<FlowState>], wrong: &[Change<FlowState>]) {
    let restore = |flow| {
        let state = EndpointState { flows: vec![flow], ..state.clone() };
        restored(state).map(|mut state| state.flows.remove(0))
    };
    check(&state.flows[0], restore, fine, wrong);
}

#[test]
fn flows_that_are_open() {
    check_flow(
        &saved(false),
        &[
            |s| (s.main.limit_due, s.main.close_due, s.due.probe) = (true, true, true),
            |s| (s.main.close_acknowledged, s.main.peer_close) = (true, Some(77)),
            |s| (s.main.messages_sent, s.packets_lost) = (POSITIONS_MAX, POSITIONS_MAX),
            |s| (s.unasked_bytes, s.limited_until) = (POSITIONS_MAX, 55),
            |s| (s.asked, s.last_received) = (Time::from_ns(3), Time::from_ns(4)),
            |s| s.keep_alive_at = Time::from_ns(5),
            |s| s.silence_ms = *SILENCE_MS.start(),
            |s| s.silence_ms = *SILENCE_MS.end(),
            |s| (s.setup_packets, s.setup_retries) = (u32::MAX / 2, u32::MAX / 2),
            |s| s.service_port = 9,
            |s| s.window_bytes = 77_777,
            |s| s.phase = Phase::Closing,
            |s| (s.phase, s.streams) = (Phase::Drained { until: Time::from_ns(9) }, None),
        ],
        &[
            |s| s.main.messages_sent = POSITIONS_MAX + 1,
            |s| s.packets_lost = POSITIONS_MAX + 1,
            |s| s.unasked_bytes = POSITIONS_MAX + 1,
            |s| s.silence_ms = *SILENCE_MS.start() - 1,
            |s| s.silence_ms = *SILENCE_MS.end() + 1,
            |s| s.remote = "[fd00::1]:20707".parse().expect("an address"),
            |s| s.local = "[fd00::1]:20707".parse().expect("an address"),
            |s| s.peer_id = 0,
            |s| (s.peer_id, s.phase) = (0, Phase::Closing),
            |s| s.phase = Phase::Drained { until: Time::from_ns(9) },
            |s| {
                s.main.incoming.partial.push(partial(0, 0, 9, Order::Due));
                (s.main.incoming.received, s.phase) = (64, Phase::Closing);
            },
            |s| s.local_id ^= 1 << 18,
        ],
    );
}

#[test]
fn flows_that_are_not_open_yet() {
    check_flow(
        &saved(true),
        &[|s| {
            s.phase = Phase::Connecting {
                token: 5,
                cookie: vec![1; 32],
                peer_engines: 64,
                sent: Some(Time::from_ns(6)),
                sent_last: Time::from_ns(7),
                known_rtt_ns: DURATION_NS_MAX,
                give_up: Time::from_ns(8),
            };
        }],
        &[
            |s| s.peer_id = 5,
            |s| (s.recovery.next_number, s.recovery.acked_end) = (1, 0),
            |s| s.streams = saved(false).flows.remove(0).streams,
            |s| {
                s.request = Some(crate::state::RequestState {
                    token: 1,
                    port: 50_000,
                    rtt_ns: 1,
                    by_lane: true,
                    version: 1,
                });
            },
            |s| {
                let Phase::Connecting { cookie, .. } = &mut s.phase else { panic!("connecting") };
                *cookie = vec![1; 33];
            },
            |s| {
                let Phase::Connecting { peer_engines, .. } = &mut s.phase else { panic!() };
                *peer_engines = 0;
            },
            |s| {
                let Phase::Connecting { peer_engines, .. } = &mut s.phase else { panic!() };
                *peer_engines = 65;
            },
            |s| {
                let Phase::Connecting { known_rtt_ns, .. } = &mut s.phase else { panic!() };
                *known_rtt_ns = DURATION_NS_MAX + 1;
            },
        ],
    );
}

#[test]
fn what_an_endpoint_remembers_of_others() {
    let reply = || crate::state::ReplyState {
        local: "10.0.0.1:1".parse().expect("an address"),
        peer: "10.0.0.2:2".parse().expect("an address"),
        bytes: vec![1; 1472],
    };
    let mut state = saved(false);
    state.closed = vec![3, 1, 2];
    state.elsewhere = vec![5, 6];
    state.listeners = vec![(7, state.flows[0].main.owner), (8, state.flows[0].main.owner)];
    (state.replies, state.farewells) = (vec![reply()], vec![reply(), reply()]);
    state.pings = vec![(1, 2, Time::from_ns(3))];
    state.peers = vec![(state.flows[0].remote.ip(), 64, DURATION_NS_MAX)];
    state.turn = (Time::from_ns(5), Time::from_ns(4));
    check(
        &state,
        restored,
        &[
            |s| s.closed = (0..1 << 16).collect(),
            |s| s.pings = vec![(1, 2, Time::from_ns(3)); 64],
            |s| s.replies = vec![s.replies[0].clone(); 1024],
            |s| s.peers[0].1 = 1,
        ],
        &[
            |s| s.closed = (0..=1 << 16).collect(),
            |s| s.pings = vec![(1, 2, Time::from_ns(3)); 65],
            |s| s.replies = vec![s.replies[0].clone(); 1025],
            |s| s.replies[0].local = "[fd00::1]:1".parse().expect("an address"),
            |s| s.peers[0].1 = 0,
            |s| s.peers[0].1 = 65,
            |s| s.peers[0].2 = DURATION_NS_MAX + 1,
            |s| s.listeners.push(s.listeners[0]),
            |s| s.flows.push(s.flows[0].clone()),
        ],
    );
    // What is too large for the interface as it is now is lost.
    let small = Config { packet_bytes_max: 1471, ..Config::default() };
    let restored = Endpoint::restore(state, small, Time::from_ns(1 << 40)).expect("possible");
    assert_eq!((restored.save().replies.len(), restored.save().farewells.len()), (0, 0));
}

/// Of the other end of a flow that a host has opened, its share is known again.
#[test]
fn whose_flow_it_is_is_known_again() {
    let mut network = Network::new(52, &Config::default(), Faults::default(), 1 << 20);
    let keys = network.connected();
    let (now, host) = (network.now, &mut network.hosts[1]);
    let saved = host.endpoint.save();
    let memory: Vec<_> = host.endpoint.memory().collect();
    assert!(memory[0].was_accepted && !memory[0].is_drained && !memory[0].is_connecting);
    host.endpoint = Endpoint::restore(saved, Config::default(), now).expect("just saved");
    host.endpoint.recount();
    host.endpoint.abort(keys[1], Reason::Reset, &mut host.app);
    host.endpoint.audit().expect("its share is given back");
    let state = network.hosts[0].endpoint.save();
    assert_eq!((state.flows[0].main.incoming.window, state.flows.len()), (WINDOW, 1));
}
