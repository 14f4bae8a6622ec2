//! What is learnt of a peer, and what an attempt makes of it.

use core::net::{IpAddr, Ipv4Addr};

use clearway_base::{SECOND, Time};
use clearway_wire::tcp::{Cookie, FastOpen};

use super::{AVOIDED_NS, Outcome, Peers, Plan};
use crate::{Settings, Variants};

const BEGIN: Time = Time::from_ns(1000 * SECOND);

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(number).into()
}

fn cookie(byte: u8) -> FastOpen {
    FastOpen { cookie: Cookie::new(&[byte; 8]), is_experimental: false }
}

/// What an answer to a request for a cookie says.
fn answered(answer: Option<FastOpen>) -> Outcome {
    Outcome {
        asked: Some(FastOpen::default()),
        had_data: false,
        is_taken: false,
        was_resent: false,
        answer,
        segment_bytes: Some(1000),
    }
}

/// A SYN with a cookie and data was lost, and the next one was answered.
fn lost() -> Outcome {
    Outcome { asked: Some(cookie(1)), had_data: true, was_resent: true, ..answered(None) }
}

fn settings(variants: Variants) -> Settings {
    Settings { variants, ..Settings::default() }
}

/// RFC 7413, section 4.1.3: a cookie and the segment size are kept for the next connection.
#[test]
fn a_cookie_is_for_the_next_connection() {
    let (mut peers, settings) = (Peers::new(4), Settings::default());
    let request = Plan { option: Some(FastOpen::default()), has_data: false, segment_bytes: None };
    assert_eq!(peers.plan(BEGIN, address(1), &settings), request);
    peers.learn(BEGIN, address(1), &settings, &answered(Some(cookie(7))));
    let known = Plan { option: Some(cookie(7)), has_data: true, segment_bytes: Some(1000) };
    assert_eq!(peers.plan(BEGIN, address(1), &settings), known);
    assert_eq!(peers.plan(BEGIN, address(2), &settings), request);
    // An answer without a cookie leaves it as it is, one with another cookie replaces it.
    let with_cookie = |answer| Outcome { asked: Some(cookie(7)), ..answered(answer) };
    peers.learn(BEGIN, address(1), &settings, &with_cookie(None));
    assert_eq!(peers.plan(BEGIN, address(1), &settings), known);
    peers.learn(BEGIN, address(1), &settings, &with_cookie(Some(cookie(8))));
    assert_eq!(peers.plan(BEGIN, address(1), &settings).option, Some(cookie(8)));
    // One that nobody has asked for is ignored.
    let unsolicited = Outcome { asked: None, ..answered(Some(cookie(9))) };
    peers.learn(BEGIN, address(1), &settings, &unsolicited);
    assert_eq!(peers.plan(BEGIN, address(1), &settings).option, Some(cookie(8)));
    peers.clear();
    assert_eq!(peers.plan(BEGIN, address(1), &settings), request);
}

/// RFC 7413, section 7.1: something on the way may drop SYNs with data, or with options that it
/// does not know. After two in a row there are none for a while, which is longer each time.
#[test]
fn what_is_dropped_twice_is_not_tried_for_a_while() {
    let (mut peers, settings) = (Peers::new(4), Settings::default());
    let peer = address(1);
    peers.learn(BEGIN, peer, &settings, &answered(Some(cookie(1))));
    peers.learn(BEGIN, peer, &settings, &lost());
    assert!(peers.plan(BEGIN, peer, &settings).has_data, "it may have been lost by chance");
    peers.learn(BEGIN, peer, &settings, &lost());
    let plain = Plan { option: None, has_data: false, segment_bytes: Some(1000) };
    assert_eq!(peers.plan(BEGIN, peer, &settings), plain);
    let later = BEGIN + 4 * AVOIDED_NS;
    assert!(peers.plan(later, peer, &settings).has_data);
    peers.learn(later, peer, &settings, &lost());
    assert_eq!(peers.plan(later + 8 * AVOIDED_NS - SECOND, peer, &settings), plain);
    // One that arrives ends it.
    let arrived = Outcome { is_taken: true, was_resent: false, ..lost() };
    peers.learn(later, peer, &settings, &arrived);
    peers.learn(later, peer, &settings, &lost());
    assert!(peers.plan(later + 8 * AVOIDED_NS, peer, &settings).has_data);
}

#[test]
fn peers_are_few_and_those_go_that_were_not_used_for_longest() {
    let (mut peers, settings) = (Peers::new(2), Settings::default());
    for number in 1..=3 {
        let now = BEGIN + u64::from(number);
        peers.learn(now, address(number), &settings, &answered(Some(cookie(number as u8))));
        peers.plan(now + 10, address(1), &settings);
    }
    let knows = |peers: &Peers, number| peers.may_have_data(BEGIN, address(number), &settings);
    assert!(knows(&peers, 1) && !knows(&peers, 2) && knows(&peers, 3));
    peers.set_max(0);
    peers.learn(BEGIN, address(1), &settings, &answered(Some(cookie(1))));
    assert!(!knows(&peers, 1) && !knows(&peers, 3));
}

#[test]
fn a_peer_that_refuses_is_asked_once_with_the_experimental_option() {
    let mut peers = Peers::new(2);
    let drafts = Variants { experimental_fast_open: true, ..Variants::default() };
    let (rfc, drafts) = (Settings::default(), settings(drafts));
    let asks = |peers: &mut Peers, settings: &Settings| {
        let option = peers.plan(BEGIN, address(1), settings).option;
        let asked = option.expect("it asks");
        peers.learn(BEGIN, address(1), settings, &Outcome { asked: option, ..answered(None) });
        asked.is_experimental
    };
    assert_eq!([(); 4].map(|()| asks(&mut peers, &drafts)), [false, true, false, false]);
    peers.clear();
    assert_eq!([(); 3].map(|()| asks(&mut peers, &rfc)), [false; 3]);
}

#[test]
fn who_is_wary_does_not_ask_again_for_fifteen_minutes() {
    let wary = settings(Variants { wary_of_fast_open: true, ..Variants::default() });
    let mut peers = Peers::new(2);
    let option = |peers: &mut Peers, minutes: u64| {
        peers.plan(BEGIN + minutes * 60 * SECOND, address(1), &wary).option
    };
    peers.learn(BEGIN, address(1), &wary, &answered(None));
    assert_eq!(option(&mut peers, 14), None);
    assert_eq!(option(&mut peers, 15), Some(FastOpen::default()));
    // Nor with data that was not taken, unless there is another cookie.
    let refused = |answer| Outcome { had_data: true, asked: Some(cookie(1)), ..answered(answer) };
    peers.learn(BEGIN, address(1), &wary, &answered(Some(cookie(1))));
    peers.learn(BEGIN, address(1), &wary, &refused(Some(cookie(2))));
    assert_eq!(option(&mut peers, 15), Some(cookie(2)));
    peers.learn(BEGIN, address(1), &wary, &refused(None));
    assert_eq!(option(&mut peers, 14), None);
}

#[test]
fn what_is_saved_is_restored_and_what_cannot_be_is_refused() {
    let (mut peers, settings) = (Peers::new(4), Settings::default());
    peers.learn(BEGIN, address(1), &settings, &answered(Some(cookie(1))));
    peers.learn(BEGIN, address(2), &settings, &answered(None));
    let saved = peers.save();
    let restored = Peers::restore(BEGIN, 4, saved.clone()).expect("just saved");
    assert_eq!(restored.save(), saved);
    let with = |change: fn(&mut Vec<super::SavedPeer>)| {
        let mut saved = saved.clone();
        change(&mut saved);
        Peers::restore(BEGIN, 4, saved).is_ok()
    };
    assert!(!with(|saved| saved[0].cookie.push(1)), "nine bytes");
    assert!(!with(|saved| saved[1].address = saved[0].address), "twice");
    assert!(with(|saved| saved[0].cookie.clear()));
}
