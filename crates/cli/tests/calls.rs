//! Calls between apps of two daemons that are real processes, joined by memif.

mod support;

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use clearway_client::{
    CallEvent, Calls, Channel, Code, Error, Event, Outcome, Refusal, Request, Sizes,
};
use support::{Network, PATIENCE};

const PORT: u16 = 4000;
const ECHO: u16 = 1;

fn serve(channel: &mut Channel) -> Result<Infallible, Error> {
    Calls::new().serve(channel, |request: &Request| match request.method() {
        ECHO => Ok(request.to_vec()),
        _ => Err(Refusal::NO_METHOD),
    })
}

/// 2,000 requests of up to a few KiB, 32 at a time, from one thread; then large ones.
#[test]
fn many_calls_at_a_time_have_their_answers() {
    const COUNT: usize = 2000;
    let network = Network::start();
    let large =
        Sizes { transmit_pool_bytes: 32 << 20, receive_pool_bytes: 32 << 20, ..Sizes::default() };
    let mut server = network.server.try_attach("server", large).expect("attached");
    server.listen(PORT).expect("listening");
    let serving = std::thread::spawn(move || serve(&mut server));
    let mut client = network.client.try_attach("client", large).expect("attached");
    let peer = client.connect(network.server.at(PORT), Some(PATIENCE)).expect("connected");
    let mut calls = Calls::new();
    let mut asked = HashMap::new();
    let (mut begun, mut over) = (0, 0);
    while over < COUNT {
        while begun < COUNT && asked.len() < 32 {
            let body = vec![begun as u8; begun * 7 % 5000];
            let call = calls.start(&mut client, peer, ECHO, &body, Some(PATIENCE)).expect("room");
            asked.insert(call, body);
            begun += 1;
        }
        match calls.next(&mut client, Some(PATIENCE)).expect("an event") {
            CallEvent::Ended { call, outcome: Outcome::Answered(answer) } => {
                assert!(asked.remove(&call).is_some_and(|body| *answer == *body));
                over += 1;
            }
            event => panic!("{event:?}"),
        }
    }
    for length in [100_000, 1 << 20, (8 << 20) - 16] {
        let body: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        let answer = calls.call(&mut client, peer, ECHO, &body, Some(PATIENCE)).expect("answered");
        assert!(*answer == *body);
    }
    let refused = calls.call(&mut client, peer, 9, b"", Some(PATIENCE)).unwrap_err();
    assert!(matches!(refused, Error::CallRefused { reason: Refusal::NO_METHOD, .. }));
    drop((client, network));
    let end = serving.join().expect("no panic").unwrap_err();
    assert_eq!(end.code(), Code::DaemonGone);
}

/// The server's app is gone in the middle: each call has its outcome.
#[test]
fn calls_are_lost_with_their_server() {
    let network = Network::start();
    let mut server = network.server.attach("server");
    server.listen(PORT).expect("listening");
    let mut client = network.client.attach("client");
    let peer = client.connect(network.server.at(PORT), Some(PATIENCE)).expect("connected");
    let mut calls = Calls::new();
    for _ in 0..10 {
        calls.start(&mut client, peer, ECHO, b"", None).expect("room");
    }
    let mut served = Calls::new();
    while !matches!(served.next(&mut server, Some(PATIENCE)), Ok(CallEvent::Asked(_))) {}
    drop(server);
    for _ in 0..10 {
        let event = calls.next(&mut client, Some(PATIENCE)).expect("an event");
        let CallEvent::Ended { outcome: Outcome::Lost(code), .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!(code, Code::Closed);
    }
    let event = calls.next(&mut client, Some(PATIENCE)).expect("an event");
    assert!(matches!(event, CallEvent::Channel(Event::Closed { .. })), "{event:?}");
    let none = calls.next(&mut client, Some(Duration::ZERO));
    assert!(matches!(none, Err(Error::WouldBlock)), "{none:?}");
}
