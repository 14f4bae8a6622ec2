//! Vectors of operations, with an engine in the app's own thread that keeps what it is asked for:
//! each look that it is asked to take is seen. And what else comes between two steps of a call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_channel::control::{Reply, Request};
use clearway_channel::{AppEnd, Command, Completion, DaemonEnd, NO_BUFFER, OperationKind};
use clearway_client::{
    Channel, Code, ConnectionId, Embedded, Ended, Error, Event, Operation, Options, RegionId, Sizes,
};

const NOW: Option<Duration> = Some(Duration::ZERO);
const SIZES: Sizes = Sizes {
    submission_entries: 64,
    completion_entries: 64,
    transmit_pool_bytes: 1 << 18,
    receive_pool_bytes: 1 << 18,
    shared_bytes: 0,
};
const REGION: RegionId = RegionId::from_u64(9);

/// What the engine has seen, and whether it takes anything.
#[derive(Default)]
struct Seen {
    /// Times that it was asked to take what was submitted.
    looks: usize,
    /// Operations, in their order: kind, connection, token, what they took along.
    operations: Vec<(u8, u64, u64, Vec<u8>)>,
    is_paused: bool,
    connections: u64,
    /// Connections that their peers reset, and of which the app has not been told.
    resets: Vec<u64>,
    /// When it has told of these it takes what there is.
    resumes_after_resets: bool,
}

/// Opens whatever connection is asked for, and says of each operation that it is done; `value` is
/// how many were before it.
struct Engine {
    end: Box<DaemonEnd>,
    seen: Arc<Mutex<Seen>>,
}

impl Embedded for Engine {
    fn turn(&mut self) -> bool {
        let mut seen = self.seen.lock().unwrap();
        let mut told = !seen.resets.is_empty();
        seen.is_paused &= !(told && seen.resumes_after_resets);
        for connection in seen.resets.drain(..) {
            self.end.complete(&Completion::Closed { connection, code: Code::Reset, sent: 0 });
        }
        while !seen.is_paused && self.end.completion_room() > 0 {
            let Some(command) = self.end.next_command().expect("the library is honest") else {
                break;
            };
            told = true;
            let completion = match command {
                Command::Connect { token, peer } => {
                    seen.connections += 1;
                    Completion::Connected { token, connection: seen.connections, peer }
                }
                Command::Close { connection, .. } => {
                    Completion::Closed { connection, code: Code::Closed, sent: 0 }
                }
                Command::OpenStream { token, .. } => {
                    Completion::ConnectFailed { token, code: Code::Closed }
                }
                Command::Ask { kind, connection, token, .. } => {
                    seen.operate(kind, connection, token, Vec::new())
                }
                Command::AskWith { kind, connection, token, offset, length, .. } => {
                    let mut bytes = vec![0; length as usize];
                    self.end.read(offset, &mut bytes);
                    seen.operate(kind, connection, token, bytes)
                }
                other => panic!("{other:?}"),
            };
            self.end.complete(&completion);
        }
        self.end.flush();
        told
    }

    fn send(&mut self) {
        self.seen.lock().unwrap().looks += 1;
        self.turn();
    }

    fn sleep(&mut self, _: Option<Duration>) {
        self.turn();
    }

    fn request(&mut self, request: &Request) -> Result<Reply, Error> {
        panic!("{request:?}")
    }

    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl Seen {
    fn operate(&mut self, kind: u8, connection: u64, token: u64, bytes: Vec<u8>) -> Completion {
        let value = self.operations.len() as u64;
        self.operations.push((kind, connection, token, bytes));
        let (status, extra, offset, length, buffer) = (0, 0, 0, 0, NO_BUFFER);
        Completion::Operated { status, token, value, extra, offset, length, buffer }
    }
}

/// A channel, two connections of it, and what its engine sees.
fn start() -> (Channel, [ConnectionId; 2], Arc<Mutex<Seen>>) {
    let (mut end, handover) = DaemonEnd::create(SIZES).unwrap();
    end.share_thread();
    let app_end = AppEnd::open(handover, SIZES).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let engine = Engine { end: Box::new(end), seen: Arc::clone(&seen) };
    let options = Options::new("test");
    let mut channel = Channel::embed(app_end, "test/0", Box::new(engine), &options).unwrap();
    let peers = ["10.0.0.2:4000", "10.0.0.3:4000"];
    let connections = peers.map(|peer| channel.connect(peer, None).unwrap());
    (channel, connections, seen)
}

fn add(addend: u64) -> Operation<'static> {
    Operation::FetchAdd { region: REGION, offset: 0, addend }
}

fn write(bytes: &[u8]) -> Operation<'_> {
    Operation::Write { region: REGION, offset: 0, bytes }
}

/// Which operation of a vector is wrong, and why.
fn wrong(error: Error) -> (usize, Error) {
    match error {
        Error::Vector { index, cause } => (index, *cause),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_vector_is_submitted_in_its_order_with_one_look() {
    let (mut channel, [a, b], seen) = start();
    let vector = [
        (a, write(b"first")),
        (b, add(1)),
        (a, Operation::Find { name: b"table" }),
        (b, Operation::BatchRead { table: REGION, offsets: &[8, 1], target: REGION, length: 8 }),
        (a, Operation::Read { region: REGION, offset: 0, length: 8 }),
    ];
    let before = seen.lock().unwrap().looks;
    let started = channel.start_vector(&vector, NOW).unwrap();
    assert_eq!(seen.lock().unwrap().looks, before + 1);

    let kinds = [
        OperationKind::Write,
        OperationKind::FetchAdd,
        OperationKind::Find,
        OperationKind::BatchRead,
        OperationKind::Read,
    ];
    let offsets = [8_u64.to_be_bytes(), 1_u64.to_be_bytes()].concat();
    let along: [&[u8]; 5] = [b"first", b"", b"table", &offsets, b""];
    let submitted = std::mem::take(&mut seen.lock().unwrap().operations);
    assert_eq!(submitted.len(), vector.len());
    for (index, (kind, connection, token, bytes)) in submitted.into_iter().enumerate() {
        let expected = (kinds[index] as u8, vector[index].0.as_u64(), started[index].as_u64());
        assert_eq!((kind, connection, token), expected);
        assert_eq!(bytes, along[index]);
        let over = channel.next_operated(NOW).unwrap();
        assert_eq!((over.id, over.value), (started[index], index as u64));
    }
    assert!(channel.start_vector(&[], NOW).unwrap().is_empty());
    assert_eq!(channel.operations_outstanding(), 0);
}

#[test]
fn the_first_that_is_wrong_is_named_and_none_is_submitted() {
    let (mut channel, [a, b], seen) = start();
    channel.close(b).unwrap();
    let large = vec![0; SIZES.transmit_pool_bytes as usize + 1];
    let nobody = ConnectionId::from_u64(12345);
    let before = seen.lock().unwrap().looks;
    for (index, operation) in [
        (2, (a, Operation::Find { name: b"" })),
        (1, (b, add(1))),
        (3, (nobody, add(1))),
        (0, (a, write(&large))),
    ] {
        let mut vector = [(a, write(b"x")), (a, add(1)), (a, add(1)), (a, add(1))];
        vector[index] = operation;
        // Another one behind it.
        vector[3].0 = if index < 3 { nobody } else { vector[3].0 };
        let (found, cause) = wrong(channel.start_vector(&vector, NOW).unwrap_err());
        assert_eq!(found, index);
        match cause {
            Error::Declined { code: Code::Invalid, message } => {
                assert!(index == 2 && message.contains("1 to 64"), "{message}");
            }
            Error::Connection { connection, code: Code::Closed } => {
                assert_eq!(connection, operation.0);
            }
            Error::TooLarge { length, .. } => assert_eq!((index, length), (0, large.len())),
            other => panic!("{other:?}"),
        }
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.looks, seen.operations.len()), (before, 0));
    assert_eq!(channel.operations_outstanding(), 0);
}

/// More than the ring has entries, or more bytes than the pool: no waiting would help.
#[test]
fn a_vector_that_will_never_have_room_is_refused_where_that_begins() {
    let (mut channel, [a, _], seen) = start();
    let most = SIZES.submission_entries as usize;
    let long = vec![(a, add(1)); most + 1];
    let (index, cause) = wrong(channel.start_vector(&long, None).unwrap_err());
    assert_eq!((index, cause.code()), (most, Code::TooLarge));
    assert!(cause.to_string().contains("64 operations"), "{cause}");
    let bytes = vec![1; 1 << 16];
    let large = [(a, write(&bytes)); 5];
    let (index, cause) = wrong(channel.start_vector(&large, None).unwrap_err());
    assert_eq!(index, 4, "{cause}");
    assert!(seen.lock().unwrap().operations.is_empty());
    assert_eq!(channel.start_vector(&long[..most], NOW).unwrap().len(), most);
    assert_eq!(channel.start_vector(&large[..4], NOW).unwrap().len(), 4, "nothing was kept");
}

#[test]
fn a_vector_waits_for_room_for_all_of_it() {
    let (mut channel, [a, b], seen) = start();
    let most = SIZES.submission_entries as usize;
    for (busy, vector) in [
        // Of the ring's entries,
        (vec![(a, add(1)); most - 3], vec![(b, add(2)); 4]),
        // and of the pool's memory.
        (vec![(a, write(&[7; 1 << 17]))], vec![(b, write(&[8; 1 << 16])); 3]),
    ] {
        seen.lock().unwrap().is_paused = true;
        let earlier = channel.start_vector(&busy, NOW).unwrap();
        assert!(matches!(channel.start_vector(&vector, NOW), Err(Error::WouldBlock)));
        let short = Some(Duration::from_millis(1));
        let refused = channel.start_vector(&vector, short);
        assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
        assert_eq!(channel.operations_outstanding(), earlier.len());
        // One fits where not all do.
        let first = channel.start_vector(&vector[..1], NOW).unwrap();
        seen.lock().unwrap().is_paused = false;
        let mut is_writable = false;
        for id in earlier.into_iter().chain(first) {
            loop {
                match channel.next_event(None).unwrap() {
                    Event::Operated(over) => break assert_eq!(over.id, id),
                    Event::Writable => is_writable = true,
                    other => panic!("{other:?}"),
                }
            }
        }
        is_writable |= matches!(channel.next_event(NOW), Ok(Event::Writable));
        assert!(is_writable);
        for id in channel.start_vector(&vector, NOW).unwrap() {
            assert_eq!(channel.next_operated(NOW).unwrap().id, id);
        }
    }
}

/// A connection that ends while a vector waits is found before anything is submitted.
#[test]
fn a_connection_that_ends_meanwhile_is_named() {
    let (mut channel, [a, b], seen) = start();
    seen.lock().unwrap().is_paused = true;
    let most = SIZES.submission_entries as usize;
    channel.start_vector(&vec![(a, add(1)); most], NOW).unwrap();
    seen.lock().unwrap().resets.push(b.as_u64());
    let vector = [(a, add(2)), (b, add(2))];
    let (index, cause) = wrong(channel.start_vector(&vector, None).unwrap_err());
    assert_eq!((index, cause.code()), (1, Code::Reset));
    seen.lock().unwrap().is_paused = false;
    for _ in 0..most {
        channel.next_operated(None).unwrap();
    }
    assert!(matches!(channel.next_operated(NOW), Err(Error::WouldBlock)));
}

/// The same for who opens a stream: it is told by the error, and no event tells of it again.
#[test]
fn a_stream_of_a_connection_that_ends_meanwhile_is_refused_once() {
    let (mut channel, [a, b], seen) = start();
    seen.lock().unwrap().is_paused = true;
    let most = SIZES.submission_entries as usize;
    channel.start_vector(&vec![(a, add(1)); most], NOW).unwrap();
    {
        let mut seen = seen.lock().unwrap();
        seen.resets.push(b.as_u64());
        seen.resumes_after_resets = true;
    }
    let error = channel.open_stream(b, None).unwrap_err();
    assert_eq!((error.code(), error.ended()), (Code::Reset, Ended::Connection), "{error}");
    let mut events = std::iter::from_fn(|| channel.next_event(NOW).ok()).collect::<Vec<_>>();
    events.retain(|event| !matches!(event, Event::Operated(_) | Event::Writable));
    let is_end =
        |event: &Event| matches!(event, Event::Closed { connection, .. } if *connection == b);
    assert!(events.len() == 1 && is_end(&events[0]), "{events:?}");
}
