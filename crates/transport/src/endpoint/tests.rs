//! The books of an endpoint by themselves: what bounds them, and that each that does not add up is
//! found.

use std::net::{IpAddr, SocketAddr};

use clearway_base::{SECOND, Time, TimerWheel};

use super::strangers::{Addresses, REPLIES_MAX};
use super::{Endpoint, FLOWS_AT_HAND, FlowKey};
use crate::app::{Owner, Reason};
use crate::config::Config;
use crate::tests::TestApp;

const NOW: Time = Time::from_ns(SECOND);
const OWNER: Owner = Owner { channel: 1, connection: 1 };

fn host(index: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, index], 20707))
}

fn endpoint(config: Config) -> Endpoint {
    Endpoint::new(config, NOW, 1, [1; 16])
}

/// One that has begun to open a flow to somebody.
fn with_a_flow() -> (Endpoint, FlowKey) {
    let mut endpoint = endpoint(Config::default());
    let key = endpoint.connect(NOW, OWNER, host(1), host(2), 7000, 1 << 20).expect("room");
    endpoint.audit().expect("in order");
    (endpoint, key)
}

/// Breaks one book, and returns what the audit says of it.
fn complaint(breaks: impl FnOnce(&mut Endpoint)) -> String {
    let (mut endpoint, _) = with_a_flow();
    breaks(&mut endpoint);
    endpoint.audit().expect_err("does not add up")
}

#[test]
fn books_that_do_not_add_up_are_found() {
    assert!(complaint(|endpoint| endpoint.free.push(0)).contains("places for flows"));
    let stray = |endpoint: &mut Endpoint| {
        endpoint.by_peer.extend([1, 2].map(|id| ((host(2).ip(), id), 0)));
    };
    assert!(complaint(stray).contains("2 by peer"));
    assert!(complaint(|endpoint| endpoint.shares.take(host(2).ip())).contains("hold 1"));
    assert!(complaint(|endpoint| endpoint.ready.push_back(0)).contains("2 in line"));
    assert!(complaint(|endpoint| endpoint.ready.clear()).contains("0 in line"));
    // The wheel has lost what a flow waits for, or it is due and nobody has looked.
    let lost = |endpoint: &mut Endpoint| endpoint.timers = TimerWheel::new(NOW);
    assert!(complaint(lost).contains("0 in the wheel and 0 due"));
    let (mut endpoint, _) = with_a_flow();
    lost(&mut endpoint);
    endpoint.due.push_back((0, NOW));
    endpoint.audit().expect("as many as there should be");
}

#[test]
fn what_is_left_when_all_is_over_is_found() {
    let empty = || endpoint(Config::default());
    empty().audit_rest().expect("nothing is left");
    let (with_flow, _) = with_a_flow();
    assert!(with_flow.audit_rest().expect_err("a flow").contains("1 flows"));
    let mut other = empty();
    other.listen(7000, OWNER).expect("free");
    assert!(other.audit_rest().expect_err("a listener").contains("1 listeners"));
    let mut other = empty();
    other.ping(NOW, 1, host(1), host(2), 100);
    assert!(other.audit_rest().expect_err("a ping").contains("1 replies, 1 pings"));
    other.replies.clear();
    assert!(other.audit_rest().expect_err("a ping").contains("0 replies, 1 pings"));
    let mut other = empty();
    other.say(Addresses { local: host(1), peer: host(2) }, Vec::new());
    assert!(other.audit_rest().expect_err("a farewell").contains("1 replies, 0 pings"));
    let mut other = empty();
    other.timers.set(0, NOW + 1);
    assert!(other.audit_rest().expect_err("a timer").contains("0 flows"));
}

#[test]
fn answers_and_farewells_that_wait_are_bounded() {
    let many = Config { flows_max: 20, stateless_per_second: 1 << 30, ..Config::default() };
    let mut endpoint = endpoint(many);
    let between = Addresses { local: host(1), peer: host(2) };
    for waiting in 1..=REPLIES_MAX {
        endpoint.reply_reset(NOW, between, 1);
        assert_eq!(endpoint.replies.len(), waiting);
    }
    for dropped in 1..3 {
        endpoint.reply_reset(NOW, between, 1);
        assert_eq!(endpoint.counters.dropped_rate_limited, dropped);
    }
    assert_eq!(endpoint.replies.len(), REPLIES_MAX);
    for said in 1..30 {
        endpoint.say(between, Vec::new());
        assert_eq!(endpoint.farewells.len(), said.min(20));
    }
}

/// Nothing leaves, as where a NIC's ring stands: what waits is bounded, and can be saved.
#[test]
fn pings_that_wait_are_bounded_with_the_answers() {
    let many = Config { stateless_per_second: 1 << 30, ..Config::default() };
    let mut endpoint = endpoint(many.clone());
    for _ in 1..REPLIES_MAX {
        endpoint.reply_reset(NOW, Addresses { local: host(1), peer: host(2) }, 1);
    }
    for id in 0..3 {
        endpoint.ping(NOW, id, host(1), host(2), 100);
    }
    assert_eq!((endpoint.replies.len(), endpoint.pings.len()), (REPLIES_MAX, 1));
    assert_eq!(endpoint.counters.dropped_rate_limited, 2);
    Endpoint::restore(endpoint.save(), many, NOW).expect("just saved");
}

/// From a hundred thousand a second, a hundredth in each hundredth; one at least.
#[test]
fn answers_are_given_out_in_hundredths_of_a_second() {
    for (per_second, at_once) in [(100_000, 1_000), (1_000, 10), (5, 1)] {
        let config = Config { stateless_per_second: per_second, ..Config::default() };
        let mut endpoint = endpoint(config);
        let between = Addresses { local: host(1), peer: host(2) };
        for (after_ns, expected) in [(0, 1), (SECOND / 100 - 1, 1), (SECOND / 100, 2)] {
            for _ in 0..2_000 {
                endpoint.reply_reset(NOW + after_ns, between, 1);
            }
            assert_eq!(endpoint.replies.len(), (expected * at_once).min(REPLIES_MAX));
        }
    }
}

#[test]
fn answers_come_from_ports_that_flows_have_and_go_to_the_daemon() {
    let mut endpoint = endpoint(Config::default());
    let program = SocketAddr::new(host(2).ip(), 60_000);
    let mut ports = std::collections::HashSet::new();
    for _ in 0..100 {
        endpoint.reply_reset(NOW, Addresses { local: host(1), peer: program }, 1);
        let destination = endpoint.next_transmit(NOW).expect("an answer");
        assert_eq!((destination.to, destination.from.ip()), (host(2), host(1).ip()));
        ports.insert(destination.from.port());
        endpoint.replies.clear();
    }
    assert!(ports.len() > 90 && ports.iter().all(|port| *port >= 49152), "{ports:?}");
}

#[test]
fn few_flows_are_at_hand_and_the_state_of_many_is_fetched() {
    let mut endpoint = endpoint(Config::default());
    let mut key = None;
    for flows in 1..=FLOWS_AT_HAND + 1 {
        key = endpoint.connect(NOW, OWNER, host(1), host(2), 7000, 1 << 20);
        assert_eq!(endpoint.has_many_flows(), flows > FLOWS_AT_HAND);
        assert_eq!(endpoint.state(key.expect("room")).is_some(), flows > FLOWS_AT_HAND);
        assert_eq!((endpoint.places(), endpoint.flows().count()), (flows, flows));
    }
    let mut app = TestApp::new(0);
    endpoint.abort(key.expect("room"), Reason::Reset, &mut app);
    assert!(endpoint.state(key.expect("room")).is_none(), "it has gone");
    assert_eq!(endpoint.places(), FLOWS_AT_HAND + 1);
}

/// `docs/wire.md`: slot and engine are in an id, and what a stranger has to guess.
#[test]
fn an_id_names_slot_and_engine() {
    let config = Config { engine_index: 37, engine_count: 64, ..Config::default() };
    let mut endpoint = endpoint(config);
    let mut secrets = std::collections::HashSet::new();
    for slot in 0..100 {
        let key = endpoint.connect(NOW, OWNER, host(1), host(2), 7000, 1 << 20).expect("room");
        assert_eq!((key.slot(), key.engine()), (slot, 37));
        assert_eq!(key.id() & 0xff_ffff, slot as u64 | 37 << 18);
        secrets.insert(key.id() >> 24);
    }
    assert!(secrets.len() == 100 && !secrets.contains(&0));
    // Forty bits, of which each is drawn.
    let (any, all) = secrets.iter().fold((0, !0), |(any, all), id| (any | id, all & id));
    assert_eq!((any, all), ((1 << 40) - 1, 0));
}

/// Restored, an endpoint goes on with its secrets: none comes a second time, and cookies that it
/// gave out are good.
#[test]
fn secrets_go_on_after_a_restore() {
    let (endpoint, _) = with_a_flow();
    let (peer, port) = (IpAddr::from([10, 0, 0, 2]), 7000);
    let cookie = endpoint.cookies.issue(NOW, peer, 5, port);
    let saved = endpoint.save();
    assert_eq!((saved.secret, saved.seed, saved.secrets_made), ([1; 16], 1, 3));
    let restore = || Endpoint::restore(saved.clone(), Config::default(), NOW).expect("just saved");
    let (mut original, mut restored) = (endpoint, restore());
    assert_eq!(restored.cookies.age_ns(NOW, &cookie, peer, 5, port), Some(0));
    for _ in 0..10 {
        assert_eq!(restored.secrets.next(), original.secrets.next());
    }
}

/// A peer that knows nothing of a flow has nothing to be told.
#[test]
fn an_attempt_to_connect_ends_without_a_word() {
    let (mut endpoint, key) = with_a_flow();
    endpoint.abort(key, Reason::Reset, &mut TestApp::new(0));
    assert!(!endpoint.has_replies());
}

/// What cannot leave now is lost, and its flow knows that it has sent it.
#[test]
fn a_packet_that_is_skipped_is_sent_again_in_its_time() {
    let (mut endpoint, _) = with_a_flow();
    let app = TestApp::new(0);
    let destination = endpoint.next_transmit(NOW).expect("a syn");
    endpoint.skip_transmit(NOW, destination, &mut [0; 1472], &app);
    assert_eq!(endpoint.next_transmit(NOW), None);
    assert!(endpoint.next_timeout().is_some_and(|due| due > NOW));
}
