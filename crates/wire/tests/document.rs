//! The test vectors of `docs/wire.md`, read out of the document itself, so that neither it nor the
//! code can change alone. What each vector says stands here a second time.

mod support;

use clearway_wire::Malformed;
use clearway_wire::clearway::operation::{Answer, Kind, Request, Status};
use clearway_wire::clearway::{
    Challenge, EcnReport, Fragment, Frame, Frames, Header, Message, Packet, PacketType, Reset, Syn,
    SynAck, Versions, carry_operation, emit_ack, emit_close, emit_fragment, emit_limit,
    emit_message, emit_open, emit_path, emit_ping, emit_probe, emit_reset, emit_skip, emit_stray,
    emit_stream, emit_wait, seal,
};
use std::collections::BTreeMap;
use std::ops::Range;
use support::vectors;

const CLIENT: u64 = 0x1111_1111_2222_2222;
const SERVER: u64 = 0x3333_3333_4444_4444;
const TOKEN: u64 = 0x0102_0304_0506_0708;
/// The UDP port that a syn came from.
const PORT: u16 = 50_000;
const COOKIE: &[u8] = b"24 bytes, as ours are...";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The packet that the document should show.
fn packet(header: Header, emit_body: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; 200];
    let at = header.emit(&mut bytes);
    let length = at + emit_body(&mut bytes[at..]);
    bytes.truncate(length);
    seal(&mut bytes);
    bytes
}

fn frame(emit: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; 200];
    let length = emit(&mut bytes);
    bytes.truncate(length);
    bytes
}

/// Writes `tail` behind what `emit` writes.
fn with_tail(
    tail: &'static [u8],
    emit: impl FnOnce(&mut [u8]) -> usize,
) -> impl FnOnce(&mut [u8]) -> usize {
    move |bytes| {
        let at = emit(bytes);
        bytes[at..at + tail.len()].copy_from_slice(tail);
        at + tail.len()
    }
}

fn syn(cookie: &[u8]) -> Syn<'_> {
    Syn {
        source_flow: CLIENT,
        port: 7,
        receive_limit: 1 << 20,
        packet_bytes_max: 1472,
        engines: 4,
        pass_on: !cookie.is_empty(),
        versions: &[1],
        cookie,
    }
}

const SYN_ACK: SynAck = SynAck {
    source_flow: SERVER,
    receive_limit: 64 << 10,
    packet_bytes_max: 1452,
    version: 1,
    port: PORT,
};
const CHALLENGE: Challenge<'_> = Challenge { engines: 8, port: PORT, cookie: COOKIE };
const RESET: Reset = Reset { reason: 1, quoted_flow: SERVER };
const VERSIONS: Versions<'_> = Versions { versions: &[1] };
const ECHOED: &[u8] = b"any bytes";
const HELLO: Message<'_> = Message { reserved: 0, sequence: 2, bytes: b"hello" };
const ACKED: [Range<u64>; 3] = [90..101, 80..85, 7..8];

const REQUEST: Request = Request {
    kind: Kind::FetchAdd as u8,
    stride: 0,
    number: 1,
    region: 5 << 32 | 2,
    offset: 4096,
    length: 0,
    count: 0,
    operand: 7,
    second: 0,
};
const ANSWER: Answer =
    Answer { kind: Kind::FetchAdd as u8, status: Status::Done, number: 1, value: 35, extra: 0 };

/// An operation in one frame.
fn operation(sequence: u32, head: &[u8]) -> Vec<u8> {
    frame(|bytes| {
        let at = emit_message(bytes, sequence, head.len() as u32);
        carry_operation(bytes);
        bytes[at..at + head.len()].copy_from_slice(head);
        at + head.len()
    })
}

fn emit_operation_part(bytes: &mut [u8]) -> usize {
    let at = emit_fragment(bytes, 258, 3, 10, 4);
    carry_operation(bytes);
    at
}

fn emit_hello(bytes: &mut [u8]) -> usize {
    with_tail(HELLO.bytes, |bytes| emit_message(bytes, HELLO.sequence, 5))(bytes)
}

/// The packets of the document as the code makes them.
fn expected_packets() -> BTreeMap<&'static str, Vec<u8>> {
    let from_client = |packet_type| Header::control(packet_type, 0, TOKEN);
    let from_server = |packet_type| Header::control(packet_type, CLIENT, TOKEN);
    let unknown_flow = Header::control(PacketType::Reset, 0, 0);
    BTreeMap::from([
        ("syn", packet(from_client(PacketType::Syn), |body| syn(&[]).emit(body))),
        ("syn-with-cookie", packet(from_client(PacketType::Syn), |body| syn(COOKIE).emit(body))),
        ("challenge", packet(from_server(PacketType::Challenge), |body| CHALLENGE.emit(body))),
        ("syn-ack", packet(from_server(PacketType::SynAck), |body| SYN_ACK.emit(body))),
        ("reset", packet(unknown_flow, |body| RESET.emit(body))),
        ("version", packet(from_server(PacketType::Version), |body| VERSIONS.emit(body))),
        ("ping", packet(from_client(PacketType::Ping), with_tail(ECHOED, |_| 0))),
        ("pong", packet(from_client(PacketType::Pong), with_tail(ECHOED, |_| 0))),
        ("data", packet(Header::data(SERVER, 9, true), emit_ack_and_hello)),
    ])
}

fn emit_ack_and_hello(bytes: &mut [u8]) -> usize {
    let at = emit_ack(bytes, 1000, EcnReport::default(), std::iter::once(3..6));
    at + emit_hello(&mut bytes[at..])
}

/// The frames of the document as the code makes them.
fn expected_frames() -> BTreeMap<&'static str, Vec<u8>> {
    BTreeMap::from([
        ("ping", frame(emit_ping)),
        ("ack", frame(|bytes| emit_ack(bytes, 50_000, EcnReport::default(), ACKED))),
        ("limit", frame(|bytes| emit_limit(bytes, 1 << 32))),
        ("message", frame(emit_hello)),
        ("fragment", frame(with_tail(b"abc", |bytes| emit_fragment(bytes, 258, 3, 10, 4)))),
        ("operation-request", operation(3, &REQUEST.emit())),
        ("operation-answer", operation(4, &ANSWER.emit())),
        ("operation-part", frame(with_tail(b"abc", emit_operation_part))),
        ("stream", frame(|bytes| emit_stream(bytes, 5))),
        ("open", frame(|bytes| emit_open(bytes, 1 << 16))),
        ("wait", frame(|bytes| emit_wait(bytes, 5, 9))),
        ("skip", frame(|bytes| emit_skip(bytes, 6, 1 << 20))),
        ("close", frame(|bytes| emit_close(bytes, 0, 3))),
        ("reset", frame(|bytes| emit_reset(bytes, 1))),
        ("path", frame(|bytes| emit_path(bytes, PORT, 2))),
        ("stray", frame(|bytes| emit_stray(bytes, PORT))),
        ("probe", frame(|bytes| emit_probe(bytes, 2))),
    ])
}

#[track_caller]
fn assert_same(expected: &BTreeMap<&str, Vec<u8>>, documented: &BTreeMap<&str, Vec<u8>>) {
    assert!(expected.keys().eq(documented.keys()), "the document has {:?}", documented.keys());
    for (name, bytes) in expected {
        let (bytes, documented) = (hex(bytes), hex(&documented[name]));
        assert_eq!(bytes, documented, "{name}: emitted, and in the document");
    }
}

#[test]
fn packets_are_emitted_as_documented() {
    assert_same(&expected_packets(), &vectors("packet"));
}

#[test]
fn frames_are_emitted_as_documented() {
    assert_same(&expected_frames(), &vectors("frame"));
}

/// What the last release sends, and takes: a packet or frame that looks different is of another
/// version, and a daemon goes on speaking this one.
#[test]
fn what_version_1_sends_stays_as_it_was() {
    let recorded = include_str!("version-1.txt").lines().filter(|line| !line.starts_with('#'));
    let recorded: Vec<&str> = recorded.collect();
    let later = [
        "operation-request",
        "operation-answer",
        "operation-part",
        "stream",
        "open",
        "wait",
        "skip",
    ];
    let documented = vectors("packet").len() + vectors("frame").len();
    assert_eq!(recorded.len() + later.len(), documented);
    for line in recorded {
        let [kind, name, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let now = vectors(kind).get(name).map(|bytes| hex(bytes));
        assert_eq!(now.as_deref(), Some(bytes), "{kind} {name} has changed: make another version");
    }
}

#[test]
fn packets_say_what_is_documented() {
    for (name, bytes) in vectors("packet") {
        let packet = Packet::new(&bytes).unwrap();
        let header = Header::parse(&packet).unwrap();
        match name {
            "syn" => assert_eq!(Syn::parse(&packet), Ok(syn(&[]))),
            "syn-with-cookie" => assert_eq!(Syn::parse(&packet), Ok(syn(COOKIE))),
            "challenge" => assert_eq!(Challenge::parse(&packet), Ok(CHALLENGE)),
            "syn-ack" => assert_eq!(SynAck::parse(&packet), Ok(SYN_ACK)),
            "reset" => assert_eq!(Reset::parse(&packet), Ok(RESET)),
            "version" => assert_eq!(Versions::parse(&packet), Ok(VERSIONS)),
            "ping" | "pong" => assert_eq!(packet.body(), ECHOED),
            "data" => {
                assert_eq!(header, Header::data(SERVER, 9, true));
                let frames: Result<Vec<_>, Malformed> = packet.frames().collect();
                let Ok([Frame::Ack(ack), hello]) = frames.as_deref() else { panic!("{frames:?}") };
                assert!(ack.ranges().eq(std::iter::once(3..6)) && ack.delay_ns == 1000);
                assert_eq!(*hello, Frame::Message(HELLO));
            }
            _ => panic!("{name} is not tested"),
        }
    }
}

#[test]
fn frames_say_what_is_documented() {
    for (name, bytes) in vectors("frame") {
        let frames: Result<Vec<_>, Malformed> = Frames::new(&bytes).collect();
        let Ok([frame]) = frames.as_deref() else { panic!("{name}: {frames:?}") };
        match (name, frame) {
            ("ping", Frame::Ping) => {}
            ("ack", Frame::Ack(ack)) => {
                assert!(ack.ranges().eq(ACKED) && ack.delay_ns == 50_000);
            }
            ("limit", Frame::Limit(limit)) => assert_eq!(*limit, 1 << 32),
            ("message", Frame::Message(message)) => assert_eq!(*message, HELLO),
            ("fragment", Frame::Fragment(fragment)) => {
                let (reserved, sequence, total, offset) = (0, 258, 10, 4);
                let bytes = b"abc";
                assert_eq!(*fragment, Fragment { reserved, sequence, total, offset, bytes });
            }
            ("operation-request", Frame::Operation(operation)) => {
                assert_eq!((operation.reserved, operation.sequence), (0, 3));
                assert_eq!(Request::parse(operation.bytes), Ok(REQUEST));
            }
            ("operation-answer", Frame::Operation(operation)) => {
                assert_eq!((operation.reserved, operation.sequence), (0, 4));
                assert_eq!(Answer::parse(operation.bytes), Ok(ANSWER));
            }
            ("operation-part", Frame::OperationPart(part)) => {
                let (reserved, sequence, total, offset) = (0, 258, 10, 4);
                let bytes = b"abc";
                assert_eq!(*part, Fragment { reserved, sequence, total, offset, bytes });
            }
            ("stream", frame) => assert_eq!(*frame, Frame::Stream(5)),
            ("open", frame) => assert_eq!(*frame, Frame::Open { limit: 1 << 16 }),
            ("wait", frame) => assert_eq!(*frame, Frame::Wait { sequence: 5, number: 9 }),
            ("skip", frame) => assert_eq!(*frame, Frame::Skip { sequence: 6, length: 1 << 20 }),
            ("close", frame) => assert_eq!(*frame, Frame::Close { reason: 0, messages: 3 }),
            ("reset", frame) => assert_eq!(*frame, Frame::Reset { reason: 1 }),
            ("path", frame) => assert_eq!(*frame, Frame::Path { port: PORT, round: 2 }),
            ("stray", frame) => assert_eq!(*frame, Frame::Stray { port: PORT }),
            ("probe", frame) => assert_eq!(*frame, Frame::Probe { round: 2 }),
            _ => panic!("{name} is {frame:?}"),
        }
    }
}
