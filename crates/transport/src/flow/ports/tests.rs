//! Searches for a port by hand: when they begin, how they end, and what is known afterwards.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};

use super::{Known, Ports, SOURCE_PORT_MIN};
use crate::config::Config;

const START: Time = Time::from_ns(SECOND);
const RTT_NS: u64 = 100 * MICROSECOND;
const PORT: u16 = 50_000;

fn config() -> Config {
    Config::default()
}

/// Those of a server that looks for its client's engine.
fn server(engines: u8) -> Ports {
    let mut ports = Ports::new(1);
    ports.look_for_client(START, &config(), Known { engines, rtt_ns: RTT_NS });
    ports
}

/// Those of a flow whose packets come straight, by `PORT`.
fn settled(engines: u8) -> Ports {
    let mut ports = server(engines);
    ports.on_path(PORT, 0);
    assert!(ports.is_direct() && !ports.is_spraying() && ports.next() == PORT);
    ports
}

/// Sends all that is due now. Returns how many packets, and how many began one more batch.
fn send(ports: &mut Ports, now: Time) -> (usize, usize) {
    let (mut packets, mut retries) = (0, 0);
    while ports.is_spraying() {
        assert!(ports.next() >= SOURCE_PORT_MIN);
        packets += 1;
        retries += usize::from(ports.on_sprayed(now));
    }
    (packets, retries)
}

/// Goes on with a search until it has ended. Returns how many packets each wave had, and when the
/// end was.
fn fail(ports: &mut Ports, mut now: Time) -> (Vec<usize>, Time) {
    let mut waves = Vec::new();
    while ports.is_spraying() {
        waves.push(send(ports, now).0);
        now = ports.next_timeout();
        ports.handle_timeout(now);
    }
    assert_eq!(ports.next_timeout(), Time::MAX);
    (waves, now)
}

fn stray(ports: &mut Ports, now: Time, port: u16) -> bool {
    ports.on_stray(now, &config(), port, RTT_NS);
    ports.is_spraying()
}

#[test]
fn a_server_looks_for_its_client_in_six_waves_and_one_engine_needs_one_packet() {
    let mut ports = server(4);
    assert!(!ports.is_direct() && ports.is_spraying() && ports.probe_round().is_none());
    let current = ports.current;
    assert!(ports.next() != current && !ports.has_repeated());
    assert_eq!(fail(&mut ports, START).0, [4, 4, 4, 4, 8, 16]);
    assert_eq!(ports.next(), current, "what it began with");
    let mut ports = server(1);
    assert!(ports.is_direct());
    assert_eq!(fail(&mut ports, START).0, [1]);
}

#[test]
fn only_the_first_path_of_this_round_is_taken_and_no_port_that_no_flow_sends_from() {
    let mut ports = server(4);
    for (port, round) in [(SOURCE_PORT_MIN - 1, 0), (0, 0), (PORT, 1)] {
        ports.on_path(port, round);
        assert!(ports.is_spraying() && !ports.is_direct(), "{port}, {round}");
    }
    ports.on_path(SOURCE_PORT_MIN, 0);
    assert!(ports.is_direct() && !ports.is_spraying());
    ports.on_path(PORT, 0);
    assert_eq!(ports.next(), SOURCE_PORT_MIN, "one is enough");
}

/// By a port that no flow sends from, or without having asked.
#[test]
fn a_challenge_that_no_syn_of_this_flow_can_have_got_is_ignored() {
    let mut ports = Ports::new(1);
    assert_eq!(ports.pin(START, &config(), None, 4, PORT), None);
    ports.look_for_listener(START, &config(), None, 1);
    assert_eq!(ports.pin(START, &config(), None, 4, SOURCE_PORT_MIN - 1), None);
    let known = Known { engines: 4, rtt_ns: RTT_NS };
    let now = START + RTT_NS;
    assert_eq!(ports.pin(now, &config(), None, 4, SOURCE_PORT_MIN), Some(known));
}

/// The sample counts an eighth, as RFC 6298, section 2.3, has it; and only where it is known which
/// wave was answered.
#[test]
fn a_challenge_says_how_far_the_peer_is() {
    for (waves, expected_ns) in [(1, 800 * MICROSECOND), (2, 800 * MICROSECOND)] {
        let mut ports = Ports::new(1);
        ports.look_for_listener(START, &config(), None, 1);
        let began = go_on(&mut ports, waves);
        let known = ports.pin(began + 800 * MICROSECOND, &config(), None, 4, PORT);
        assert_eq!(known, Some(Known { engines: 4, rtt_ns: expected_ns }), "the first guess");
    }
    let before = Known { engines: 2, rtt_ns: 800 * MICROSECOND };
    for (waves, expected_ns) in [(1, 900 * MICROSECOND), (2, 800 * MICROSECOND)] {
        let mut ports = Ports::new(1);
        ports.look_for_listener(START, &config(), Some(before), 1);
        let began = go_on(&mut ports, waves);
        let known = ports.pin(began + 1600 * MICROSECOND, &config(), Some(before), 4, PORT);
        assert_eq!(known, Some(Known { engines: 4, rtt_ns: expected_ns }));
        assert_eq!((ports.next(), ports.has_repeated()), (PORT, false));
    }
}

/// Sends so many waves; returns when the last of them began.
fn go_on(ports: &mut Ports, waves: usize) -> Time {
    let mut now = START;
    for wave in 0..waves {
        if wave > 0 {
            now = ports.next_timeout();
            ports.handle_timeout(now);
            assert!(ports.has_repeated());
        }
        send(ports, now);
    }
    now
}

#[test]
fn who_was_desperate_before_the_challenge_still_is() {
    for (waves, is_desperate) in [(4, false), (5, true)] {
        let mut ports = Ports::new(1);
        ports.look_for_listener(START, &config(), None, 1);
        let now = go_on(&mut ports, waves);
        assert_eq!(ports.is_desperate(), is_desperate);
        ports.pin(now, &config(), None, 4, PORT).expect("a challenge");
        assert_eq!(ports.is_desperate(), is_desperate);
    }
}

#[test]
fn the_first_packet_of_a_larger_wave_is_one_more_try() {
    let mut ports = Ports::new(1);
    assert!(!ports.on_sprayed(START), "nothing is looked for");
    ports.look_for_listener(START, &config(), None, 2);
    assert_eq!(send(&mut ports, START), (2, 0));
    let next = ports.next_timeout();
    ports.handle_timeout(next);
    assert_eq!(send(&mut ports, next), (4, 1));
}

#[test]
fn a_search_begins_when_this_port_strays_and_ten_milliseconds_after_the_last_one_began() {
    let mut ports = settled(4);
    assert!(!stray(&mut ports, START + 10 * MILLISECOND, PORT + 1), "an old one");
    assert!(ports.is_direct());
    assert!(!stray(&mut ports, START + 10 * MILLISECOND - 1, PORT), "too early");
    assert!(!ports.is_direct(), "but known");
    assert!(stray(&mut ports, START + 10 * MILLISECOND, PORT));
    assert_eq!(ports.probe_round(), Some(1));
    assert_eq!(ports.next_timeout(), Time::MAX);
    // While one goes on, none begins.
    ports.current = PORT;
    stray(&mut ports, START + SECOND, PORT);
    assert_eq!(ports.probe_round(), Some(1));
    let mut lonely = settled(1);
    assert!(!stray(&mut lonely, START + SECOND, PORT), "there is only one engine");
    assert!(lonely.is_direct());
}

#[test]
fn a_search_in_vain_is_followed_by_a_longer_and_longer_rest_until_one_succeeds() {
    let mut ports = settled(2);
    let mut now = START + SECOND;
    for rest in [1, 2, 4, 8, 16, 32, 64, 64] {
        assert!(stray(&mut ports, now, PORT));
        let (waves, end) = fail(&mut ports, now);
        assert_eq!(waves, [2, 2, 2, 2, 4, 8]);
        now = end + rest * SECOND;
        assert!(!stray(&mut ports, now - 1, PORT), "{rest} s");
    }
    assert!(stray(&mut ports, now, PORT));
    let round = ports.probe_round().expect("a probe");
    ports.on_path(PORT + 1, round);
    assert!(ports.is_direct() && ports.next() == PORT + 1);
    assert!(!stray(&mut ports, now + 10 * MILLISECOND - 1, PORT + 1));
    now = now + 10 * MILLISECOND;
    assert!(stray(&mut ports, now, PORT + 1));
    now = fail(&mut ports, now).1 + SECOND;
    assert!(stray(&mut ports, now, PORT + 1), "a second, as at first");
}

/// It may be that nobody passes on what comes to a wrong engine of the peer.
#[test]
fn silence_calls_for_one_wave_and_no_rest() {
    let mut ports = settled(4);
    for round in 1..4 {
        ports.on_silence(START, &config(), RTT_NS);
        assert_eq!(ports.probe_round(), Some(round));
        ports.on_silence(START, &config(), RTT_NS);
        assert_eq!(ports.probe_round(), Some(round), "one at a time");
        assert_eq!(fail(&mut ports, START).0, [4]);
    }
    assert!(stray(&mut ports, START + 10 * MILLISECOND, PORT), "that was no search in vain");
    let mut lonely = settled(1);
    lonely.on_silence(START, &config(), RTT_NS);
    assert!(!lonely.is_spraying());
}

#[test]
fn rounds_begin_anew_behind_that_of_the_set_up() {
    let mut ports = settled(4);
    ports.round = u16::MAX;
    ports.on_silence(START, &config(), RTT_NS);
    assert_eq!(ports.probe_round(), Some(1));
}

#[test]
fn a_repeated_syn_calls_for_one_more_wave_ten_milliseconds_after_the_search() {
    let is_repeated = |ports: &mut Ports, now| {
        ports.repeat(now, &config(), RTT_NS);
        ports.is_spraying()
    };
    let mut ports = server(4);
    let (_, end) = fail(&mut ports, START);
    assert!(end < START + 10 * MILLISECOND);
    assert!(!is_repeated(&mut ports, START + 10 * MILLISECOND - 1));
    assert!(is_repeated(&mut ports, START + 10 * MILLISECOND));
    assert_eq!(fail(&mut ports, START + 10 * MILLISECOND).0, [4]);
    assert!(ports.probe_round().is_none());
    // Not while one goes on, nor when the client has answered.
    let mut busy = server(4);
    send(&mut busy, START);
    assert!(!is_repeated(&mut busy, START + SECOND));
    assert!(!is_repeated(&mut settled(4), START + SECOND));
    // One engine gets its answer at once.
    let mut lonely = server(1);
    send(&mut lonely, START);
    assert!(is_repeated(&mut lonely, START));
    // A flow that looks for another way is open.
    let mut open = settled(4);
    open.on_silence(START, &config(), RTT_NS);
    fail(&mut open, START);
    assert!(!is_repeated(&mut open, START + SECOND));
}

#[test]
fn the_syn_ack_says_which_syn_was_the_right_one() {
    let mut ports = Ports::new(1);
    ports.look_for_listener(START, &config(), None, 1);
    ports.on_accepted(4, PORT);
    assert!(!ports.is_spraying() && ports.is_direct() && ports.next() == PORT);
    assert!(stray(&mut ports, START + SECOND, PORT), "of several engines");
    ports.stop();
    assert!(!ports.is_spraying() && !ports.is_desperate() && !ports.has_repeated());
}

#[test]
fn what_is_saved_of_ports_is_all_there_is_and_what_cannot_be_is_refused() {
    let mut ports = settled(4);
    stray(&mut ports, START + SECOND, PORT);
    ports.rest_fruitless_ns = 5 * SECOND;
    (ports.is_direct, ports.is_answered) = (true, true);
    let saved = ports.save();
    assert_eq!(Ports::restore(&saved).expect("just saved").save(), saved);
    let mut wrong = [saved; 4];
    wrong[0].peer_engines = 0;
    wrong[1].peer_engines = 65;
    wrong[2].current = SOURCE_PORT_MIN - 1;
    wrong[3].spray.as_mut().expect("a search").wave = 0;
    assert!(wrong.iter().all(|state| Ports::restore(state).is_err()));
    let mut most = saved;
    (most.peer_engines, most.current, most.rest_fruitless_ns) = (64, SOURCE_PORT_MIN, u64::MAX);
    assert_eq!(Ports::restore(&most).expect("possible").save().rest_fruitless_ns, 64 * SECOND);
}
