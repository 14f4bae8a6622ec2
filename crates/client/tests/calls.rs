//! Calls against the daemon of `common`, which echoes: what an app asks by such a connection comes
//! back as a request of its peer's, and what it answers as the answer to its own call.

mod common;

use std::time::{Duration, Instant};

use clearway_client::{
    Awaited, CallEvent, CallId, Calls, Channel, Code, ConnectionId, Error, Event, Outcome, Refusal,
    Request, RequestId, SendBuffer,
};
use common::{Daemon, ECHO, NOW, Order, PATIENCE, SINK, address, eventually};

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const REFUSAL: u8 = 3;
const CANCEL: u8 = 4;
const METHOD: u16 = 7;

/// The message of a call, as `docs/calls.md` has it.
fn message(kind: u8, value: u32, number: u64, body: &[u8]) -> Vec<u8> {
    let method = if kind == REQUEST { METHOD } else { 0 };
    let head = [vec![kind, 0], method.to_be_bytes().into(), value.to_be_bytes().into()].concat();
    [head, number.to_be_bytes().into(), body.to_vec()].concat()
}

/// A daemon, and an app with a connection over which calls are made.
struct World {
    daemon: Daemon,
    channel: Channel,
    connection: ConnectionId,
    calls: Calls,
}

impl World {
    fn new() -> Self {
        let daemon = Daemon::start();
        let (channel, connection) = daemon.echo();
        Self { daemon, channel, connection, calls: Calls::new() }
    }

    /// From now on the daemon takes nothing.
    fn pause(&self) {
        self.daemon.order(Order::Pause);
        self.daemon.counters(); // which it tells when it has paused
    }

    fn deliver(&self, bytes: Vec<u8>) {
        self.daemon.order(Order::Deliver { connection: self.connection.as_u64(), bytes });
    }

    fn start(&mut self, body: &[u8], timeout: Option<Duration>) -> CallId {
        self.calls.start(&mut self.channel, self.connection, METHOD, body, timeout).unwrap()
    }

    fn answer(&mut self, request: RequestId, body: &[u8]) -> bool {
        self.calls.answer(&mut self.channel, request, body).unwrap()
    }

    fn next(&mut self) -> CallEvent {
        self.calls.next(&mut self.channel, PATIENCE).unwrap()
    }

    fn next_request(&mut self) -> Request {
        match self.next() {
            CallEvent::Asked(request) => request,
            event => panic!("{event:?}"),
        }
    }

    fn next_outcome(&mut self) -> (CallId, Outcome) {
        loop {
            match self.next() {
                CallEvent::Ended { call, outcome } => return (call, outcome),
                CallEvent::Channel(Event::Writable) => {}
                event => panic!("{event:?}"),
            }
        }
    }

    fn next_answer(&mut self) -> (CallId, Vec<u8>) {
        match self.next_outcome() {
            (call, Outcome::Answered(answer)) => (call, answer.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// The end of the connection, and what it was by.
    fn next_closed(&mut self) -> Code {
        match self.next() {
            CallEvent::Channel(Event::Closed { connection, code }) => {
                assert_eq!(connection, self.connection);
                code
            }
            event => panic!("{event:?}"),
        }
    }

    /// Buffers to send from, as many as the pool has now.
    fn all_room(&mut self) -> Vec<SendBuffer> {
        std::iter::from_fn(|| self.channel.send_buffer(1, NOW).ok()).collect()
    }

    fn nothing_happens(&mut self) {
        // What the daemon was ordered before has come when it answers this.
        self.daemon.counters();
        let event = self.calls.next(&mut self.channel, NOW);
        assert!(matches!(event, Err(Error::WouldBlock)), "{event:?}");
    }
}

#[test]
fn a_call_is_answered() {
    let mut world = World::new();
    let call = world.start(b"what?", PATIENCE);
    let request = world.next_request();
    assert_eq!((request.method(), &*request), (METHOD, &b"what?"[..]));
    assert!(request.deadline().unwrap() > Instant::now() && !request.is_expired());
    assert!(world.answer(request.id(), b"that"));
    assert!(!world.answer(request.id(), b"again"), "it was answered");
    assert_eq!(world.next_answer(), (call, b"that".to_vec()));
    assert_eq!(world.calls.outstanding(), 0);
}

#[test]
fn a_refusal_says_why() {
    let mut world = World::new();
    let call = world.start(b"", None);
    let request = world.next_request();
    assert_eq!(request.deadline(), None);
    let reason = Refusal(Refusal::APP.0 + 4);
    assert!(world.calls.refuse(&mut world.channel, request.id(), reason, "not today").unwrap());
    let (refused, outcome) = world.next_outcome();
    let Outcome::Refused { reason: told, text } = outcome else { panic!("{outcome:?}") };
    assert_eq!((refused, told, &*text), (call, reason, &b"not today"[..]));
}

#[test]
fn a_waiting_call_returns_its_answer_and_keeps_the_rest() {
    let mut world = World::new();
    world.deliver(message(REQUEST, 0, 99, b"from the peer"));
    world.deliver(message(ANSWER, 0, 2, b"not made yet"));
    world.nothing_but_a_request(99);
    world.pause();
    // The calls to come are 1 and 2.
    let first = world.start(b"", None);
    world.deliver(message(ANSWER, 0, 2, b"second"));
    let World { channel, connection, calls, .. } = &mut world;
    let answer = calls.call(channel, *connection, METHOD, b"", PATIENCE).unwrap();
    assert_eq!(&*answer, b"second");
    world.deliver(message(REFUSAL, Refusal::NO_METHOD.0, 3, b"what is 7?"));
    let World { channel, connection, calls, .. } = &mut world;
    let refused = calls.call(channel, *connection, METHOD, b"", PATIENCE).unwrap_err();
    assert_eq!(refused.to_string(), "the call was refused (no such method): what is 7?");
    assert_eq!(refused.code(), Code::CallRefused);
    world.deliver(message(ANSWER, 0, first.as_u64(), b"first"));
    assert_eq!(world.next_answer(), (first, b"first".to_vec()));
}

impl World {
    fn nothing_but_a_request(&mut self, number: u64) {
        assert_eq!(self.next_request().id().number, number);
        self.nothing_happens();
    }
}

#[test]
fn fifty_calls_are_answered_in_any_order() {
    let mut world = World::new();
    let calls: Vec<_> = (0..50u8).map(|n| world.start(&[n], PATIENCE)).collect();
    let mut requests: Vec<_> = (0..50).map(|_| world.next_request()).collect();
    requests.reverse();
    for request in requests {
        assert!(world.answer(request.id(), &[request[0] + 100]));
    }
    for n in (0..50u8).rev() {
        assert_eq!(world.next_answer(), (calls[usize::from(n)], vec![n + 100]));
    }
}

#[test]
fn a_call_whose_time_is_up_expires_and_its_server_is_told() {
    let mut world = World::new();
    world.pause();
    let World { channel, connection, calls, .. } = &mut world;
    let patience = Duration::from_millis(5);
    let late = calls.call(channel, *connection, METHOD, b"", Some(patience)).unwrap_err();
    let Error::TimedOut { awaited, waited } = late else { panic!("{late}") };
    let peer = Some(address(ECHO));
    assert_eq!(awaited, Awaited::AnswerOf { connection: *connection, peer });
    assert!(waited >= patience);
    let call = world.start(b"", Some(patience));
    assert!(matches!(world.next_outcome(), (expired, Outcome::Expired) if expired == call));
    world.deliver(message(ANSWER, 0, call.as_u64(), b"too late"));
    world.nothing_happens();
    world.daemon.order(Order::Resume);
    let told = message(CANCEL, 0, call.as_u64(), b"");
    eventually(|| world.daemon.heard_next() == told);
}

#[test]
fn a_request_that_expires_in_the_queue_is_not_told_of() {
    let mut world = World::new();
    world.pause();
    world.deliver(message(REQUEST, 1, 1, b"one microsecond"));
    world.deliver(message(REQUEST, 0, 2, b"any time"));
    world.deliver(message(ANSWER, 0, 1, b"to the call below"));
    let World { channel, connection, calls, .. } = &mut world;
    calls.call(channel, *connection, METHOD, b"", PATIENCE).unwrap();
    // Both requests were taken before, and wait.
    let expired = Instant::now() + Duration::from_micros(1);
    while Instant::now() < expired {}
    world.nothing_but_a_request(2);
    assert!(!world.answer(RequestId { connection: world.connection, number: 1 }, b""));
}

#[test]
fn cancelled_calls_have_no_outcome() {
    let mut world = World::new();
    let call = world.start(b"", PATIENCE);
    assert!(world.calls.cancel(&mut world.channel, call));
    assert!(!world.calls.cancel(&mut world.channel, call));
    // The daemon echoes both request and cancellation: one goes with the other, untold or told.
    eventually(|| world.daemon.heard_next() == message(CANCEL, 0, call.as_u64(), b""));
    world.daemon.counters();
    match world.calls.next(&mut world.channel, NOW) {
        Err(Error::WouldBlock) => {}
        Ok(CallEvent::Asked(request)) => {
            assert!(matches!(world.next(), CallEvent::Cancelled(id) if id == request.id()));
            assert!(!world.answer(request.id(), b"to nobody"));
        }
        other => panic!("{other:?}"),
    }
    world.nothing_happens();
}

#[test]
fn a_cancellation_is_told_of_a_request_that_was_told() {
    let mut world = World::new();
    world.deliver(message(REQUEST, 0, 5, b""));
    let request = world.next_request();
    world.deliver(message(CANCEL, 0, 5, b""));
    world.deliver(message(CANCEL, 0, 6, b"nobody's"));
    assert!(matches!(world.next(), CallEvent::Cancelled(id) if id == request.id()));
    assert!(!world.answer(request.id(), b""));
    world.nothing_happens();
}

#[test]
fn too_many_requests_are_refused_as_busy() {
    let mut world = World::new();
    world.calls.set_requests_max(2);
    for number in 1..=3 {
        world.deliver(message(REQUEST, 0, number, b""));
    }
    let requests = [world.next_request(), world.next_request()];
    world.nothing_happens();
    let heard = world.daemon.heard_next();
    assert!(heard.starts_with(&message(REFUSAL, Refusal::BUSY.0, 3, b"")), "{heard:?}");
    // The refusal was echoed, and is of no call of ours.
    assert!(world.answer(requests[0].id(), b""));
    world.deliver(message(REQUEST, 0, 4, b""));
    assert_eq!(world.next_request().id().number, 4);
}

#[test]
fn requests_that_are_too_many_are_refused_also_if_there_is_no_room_at_first() {
    let mut world = World::new();
    let whole_pool = world.all_room().len();
    world.calls.set_requests_max(0);
    let calls: Vec<_> = (0..10).map(|_| world.start(b"", None)).collect();
    let mut taken = Vec::new();
    eventually(|| {
        taken.append(&mut world.all_room());
        taken.len() == whole_pool // when the ten have been sent
    });
    world.daemon.counters(); // which it tells when it has echoed them
    // That there was room before it was taken is told, and nothing else.
    while let Ok(event) = world.calls.next(&mut world.channel, NOW) {
        assert!(matches!(event, CallEvent::Channel(Event::Writable)), "{event:?}");
    }
    drop(taken);
    for call in calls {
        let (refused, outcome) = world.next_outcome();
        let Outcome::Refused { reason, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((refused, reason), (call, Refusal::BUSY));
    }
}

/// A peer that takes nothing, and asks by numbers that follow each other in no way.
#[test]
fn requests_that_are_too_many_in_no_order_end_the_connection() {
    let mut world = World::new();
    let whole_pool = world.all_room();
    world.calls.set_requests_max(0);
    for number in 0..2000_u64 {
        world.deliver(message(REQUEST, 0, number * number, b""));
    }
    assert_eq!(world.next_closed(), Code::ProtocolError);
    drop(whole_pool);
}

#[test]
fn calls_end_with_their_connection() {
    let mut world = World::new();
    world.pause();
    let calls = [world.start(b"", None), world.start(b"", PATIENCE)];
    world.deliver(message(REQUEST, 0, 1, b""));
    let request = world.next_request();
    world.deliver(message(REQUEST, 0, 2, b"not looked at"));
    let connection = world.connection.as_u64();
    world.daemon.order(Order::Close { connection, code: Code::Reset });
    // The second request has gone with its connection, or was told of before.
    let mut ended = Vec::new();
    loop {
        match world.next() {
            CallEvent::Ended { call, outcome: Outcome::Lost(Code::Reset) } => ended.push(call),
            CallEvent::Asked(request) => assert!(ended.is_empty() && request.id().number == 2),
            CallEvent::Channel(Event::Closed { code, .. }) => break assert_eq!(code, Code::Reset),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(ended, calls);
    assert!(!world.answer(request.id(), b""));
}

#[test]
fn calls_end_when_the_app_closes_their_connection() {
    let mut world = World::new();
    world.pause();
    let call = world.start(b"", None);
    world.calls.close(&mut world.channel, world.connection).unwrap();
    assert!(matches!(world.next_outcome(), (c, Outcome::Lost(Code::Closed)) if c == call));
    let World { channel, connection, calls, .. } = &mut world;
    let after = calls.start(channel, *connection, METHOD, b"", None).unwrap_err();
    assert_eq!(after.code(), Code::Closed);
}

#[test]
fn calls_end_with_the_channel_before_it_says_so() {
    let mut world = World::new();
    world.pause();
    let call = world.start(b"", None);
    world.daemon.order(Order::Die);
    assert!(matches!(world.next_outcome(), (c, Outcome::Lost(Code::DaemonGone)) if c == call));
    let gone = world.calls.next(&mut world.channel, PATIENCE).unwrap_err();
    assert_eq!(gone.code(), Code::DaemonGone);
}

/// The next daemon gives connections the numbers of before: nothing of before is taken for theirs.
#[test]
fn nothing_of_before_is_left_after_attaching_again() {
    let mut world = World::new();
    world.pause();
    let call = world.start(b"", None);
    world.deliver(message(REQUEST, 0, 1, b"of before"));
    let before = world.next_request();
    world.daemon.order(Order::Die);
    world.daemon.restart();
    let told = world.calls.reattach(&mut world.channel, PATIENCE).unwrap();
    let now = *told.connections[0].now.as_ref().unwrap();
    assert_eq!((now, before.id().connection), (world.connection, world.connection));
    assert!(matches!(world.next_outcome(), (c, Outcome::Lost(Code::DaemonGone)) if c == call));
    assert!(!world.answer(before.id(), b"of before"));
    world.deliver(message(REQUEST, 0, 1, b"of now"));
    assert_eq!(&*world.next_request(), b"of now");
}

#[test]
fn who_makes_no_calls_is_cut_off() {
    let twice = vec![message(REQUEST, 0, 1, b""), message(REQUEST, 0, 1, b"")];
    let unknown = vec![message(9, 0, 1, b"")];
    for (messages, requests) in [(vec![b"hello".to_vec()], 0), (unknown, 0), (twice, 1)] {
        let mut world = World::new();
        world.pause();
        let call = world.start(b"", None);
        messages.into_iter().for_each(|bytes| world.deliver(bytes));
        if requests == 1 {
            // It may have been looked at before the other came.
            let first = world.next();
            if let CallEvent::Ended { call: ended, outcome } = first {
                assert!(matches!(outcome, Outcome::Lost(Code::ProtocolError)) && ended == call);
                assert_eq!(world.next_closed(), Code::ProtocolError);
                continue;
            }
            assert!(matches!(first, CallEvent::Asked(_)));
        }
        let (ended, outcome) = world.next_outcome();
        assert!(matches!(outcome, Outcome::Lost(Code::ProtocolError)) && ended == call);
        assert_eq!(world.next_closed(), Code::ProtocolError);
    }
}

#[test]
fn nobody_answers_for_another_connection() {
    let mut world = World::new();
    world.pause();
    let call = world.start(b"", None);
    world.daemon.order(Order::Resume);
    let other = world.channel.connect(address(ECHO), PATIENCE).unwrap();
    let _ = world.next_request();
    let bytes = message(ANSWER, 0, call.as_u64(), b"false");
    world.daemon.order(Order::Deliver { connection: other.as_u64(), bytes });
    world.nothing_happens();
    world.deliver(message(ANSWER, 0, call.as_u64(), b"true"));
    assert_eq!(world.next_answer(), (call, b"true".to_vec()));
}

#[test]
fn answers_that_nobody_takes_wait_and_stop_nobody_else() {
    const BODY: [u8; 8 << 10] = [1; 8 << 10];
    let mut world = World::new();
    let other = world.channel.connect(address(ECHO), PATIENCE).unwrap();
    let calls: Vec<_> = (0..60).map(|_| world.start(b"", None)).collect();
    let requests: Vec<_> = calls.iter().map(|_| world.next_request()).collect();
    world.pause();
    // Twice as much as there is memory to send.
    for request in &requests {
        assert!(world.answer(request.id(), &BODY));
    }
    let World { channel, calls: other_calls, .. } = &mut world;
    let by_other = other_calls.start(channel, other, METHOD, &BODY, None).unwrap();
    world.daemon.order(Order::Resume);
    let (mut answered, mut has_asked) = (0, false);
    while answered < calls.len() || !has_asked {
        match world.next() {
            CallEvent::Ended { call, outcome: Outcome::Answered(answer) } => {
                assert_eq!((call, answer.len()), (calls[answered], BODY.len()));
                answered += 1;
            }
            CallEvent::Asked(request) => {
                assert_eq!(request.id().number, by_other.as_u64());
                has_asked = true;
            }
            CallEvent::Channel(Event::Writable) => {}
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn answers_that_wait_leave_as_soon_as_there_is_room() {
    const COUNT: u64 = 30;
    let mut world = World::new();
    world.connection = world.channel.connect(address(SINK), PATIENCE).unwrap();
    (1..=COUNT).for_each(|number| world.deliver(message(REQUEST, 0, number, b"")));
    let requests: Vec<_> = (1..=COUNT).map(|_| world.next_request()).collect();
    world.pause();
    // More than half of the memory to send, beyond which a connection has its share: some wait.
    let body = |request: &Request| [request.id().number as u8; 8 << 10];
    for request in &requests {
        assert!(world.answer(request.id(), &body(request)));
    }
    world.daemon.order(Order::Resume);
    let last = message(ANSWER, 0, COUNT, &body(&requests[29]));
    // The daemon takes what was sent between the answers to two orders.
    while {
        world.daemon.counters();
        world.daemon.heard_next() != last
    } {
        let event = world.next();
        assert!(matches!(event, CallEvent::Channel(Event::Writable)), "{event:?}");
    }
}

#[test]
fn what_is_too_large_is_an_error_and_the_request_stays() {
    let mut world = World::new();
    let call = world.start(b"", None);
    let request = world.next_request();
    let large = vec![0; 1 << 18];
    let error = world.calls.answer(&mut world.channel, request.id(), &large).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }));
    assert!(world.answer(request.id(), b"small"));
    assert_eq!(world.next_answer(), (call, b"small".to_vec()));
}

/// Fourteen that are given back are told at once; what is dropped is told with the next message.
#[test]
fn what_is_released_goes_back_without_another_call() {
    const COUNT: u64 = 14;
    let mut world = World::new();
    world.connection = world.channel.connect(address(SINK), PATIENCE).unwrap();
    let calls: Vec<_> = (0..COUNT / 2).map(|_| world.start(b"", None)).collect();
    for (number, call) in calls.iter().enumerate() {
        world.deliver(message(REQUEST, 0, number as u64, b"request"));
        world.deliver(message(ANSWER, 0, call.as_u64(), b"answer"));
    }
    let events: Vec<_> = (0..COUNT).map(|_| world.next()).collect();
    assert!(world.daemon.counters().receive_pool_used_bytes > 0);
    for event in events {
        match event {
            CallEvent::Asked(request) => request.release(&mut world.channel),
            CallEvent::Ended { outcome: Outcome::Answered(answer), .. } => {
                answer.release(&mut world.channel);
            }
            event => panic!("{event:?}"),
        }
    }
    eventually(|| world.daemon.counters().receive_pool_used_bytes == 0);
}

#[test]
fn a_server_answers_until_its_channel_ends() {
    let mut world = World::new();
    for (number, body) in [(1, &b"abc"[..]), (2, b"refuse"), (3, b"large"), (4, b"xyz")] {
        world.deliver(message(REQUEST, 0, number, body));
    }
    let World { daemon, channel, calls, .. } = &mut world;
    let mut seen = 0;
    let end = calls.serve(channel, |request| {
        seen += 1;
        match &**request {
            b"refuse" => Err(Refusal::NO_METHOD),
            b"large" => Ok(vec![0; 1 << 18]),
            b"xyz" => {
                daemon.order(Order::Shutdown);
                Ok(Vec::new())
            }
            body => Ok(body.to_ascii_uppercase()),
        }
    });
    assert_eq!((end.unwrap_err().code(), seen), (Code::DaemonGone, 4));
}
