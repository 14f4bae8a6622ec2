//! The Wireshark dissector (`packaging/wireshark/clearway.lua`) sees what this crate sees: tshark
//! reads the vectors of `docs/wire.md`, and thousands of variations of them, beside the parsers.

mod support;

use clearway_base::Random;
use clearway_wire::Malformed;
use clearway_wire::clearway::{
    Challenge, Frame, HEADER_LENGTH, Header, Packet, PacketType, Reset, Syn, SynAck, VERSION,
    Versions, emit_fragment, seal,
};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{DOCUMENT, vectors};

const DISSECTOR: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wireshark/clearway.lua");
const PORT: u16 = 20707;
const FLOW: u64 = 0x3333_3333_4444_4444;

/// UDP datagrams in a file that tshark reads.
struct Capture {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Capture {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-dissector-{}-{number}.pcap", std::process::id());
        // pcap 2.4, microseconds, IPv4 without anything below.
        let words = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 228u32];
        let bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Self { path: std::env::temp_dir().join(name), bytes }
    }

    fn of(payloads: &[Vec<u8>]) -> Self {
        let mut capture = Self::new();
        for payload in payloads {
            capture.add(PORT, payload, usize::MAX);
        }
        capture
    }

    /// Adds a datagram to `port`, of which no more than `most` bytes were captured.
    fn add(&mut self, port: u16, payload: &[u8], most: usize) {
        let length = (28 + payload.len()) as u16;
        let [high, low] = length.to_be_bytes();
        let mut packet =
            vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        for word in [50_000, port, length - 20, 0] {
            packet.extend(word.to_be_bytes());
        }
        packet.extend(payload);
        let kept = &packet[..most.min(packet.len())];
        for word in [0, 0, kept.len() as u32, packet.len() as u32] {
            self.bytes.extend(word.to_be_bytes());
        }
        self.bytes.extend(kept);
    }

    /// What tshark says of these fields of each datagram; those that come several times have
    /// commas.
    fn read(self, options: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
        fs::write(&self.path, &self.bytes).expect("a temporary file");
        let mut arguments = vec!["-r", self.path.to_str().expect("a name"), "-T", "fields"];
        arguments.extend(options);
        fields.iter().for_each(|field| arguments.extend(["-e", field]));
        let text = tshark(&arguments);
        let values = |line: &str| line.split('\t').map(str::to_owned).collect();
        text.lines().map(values).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn tshark(arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .args(["-n", "-X", &format!("lua_script:{DISSECTOR}")])
        .args(arguments)
        .output()
        .expect("tshark starts; `tools/setup.sh test` installs it");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !told.contains("Lua"), "{told}");
    String::from_utf8(output.stdout).expect("text")
}

/// A data packet of these frames.
fn data(frames: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_LENGTH];
    Header::data(FLOW, 9, false).emit(&mut packet);
    packet.extend(frames);
    seal(&mut packet);
    packet
}

/// All vectors of the document as packets.
fn documented() -> Vec<Vec<u8>> {
    let frames = vectors("frame").into_values().map(|frame| data(&frame));
    vectors("packet").into_values().chain(frames).collect()
}

fn verdict(bytes: &[u8]) -> Result<(), Malformed> {
    let packet = Packet::new(bytes)?;
    match Header::parse(&packet)?.packet_type {
        PacketType::Data => packet.frames().try_for_each(|frame| frame.map(drop)),
        PacketType::Syn => Syn::parse(&packet).map(drop),
        PacketType::Challenge => Challenge::parse(&packet).map(drop),
        PacketType::SynAck => SynAck::parse(&packet).map(drop),
        PacketType::Reset => Reset::parse(&packet).map(drop),
        PacketType::Version => Versions::parse(&packet).map(drop),
        PacketType::Ping | PacketType::Pong => Ok(()),
    }
}

/// What the dissector is to show: why a packet is malformed, and what its frames say.
const SHOWN: [&str; 6] = [
    "clearway.malformed",
    "clearway.ack.range",
    "clearway.sequence",
    "clearway.offset",
    "clearway.round",
    "clearway.stream",
];

fn expected(bytes: &[u8]) -> Vec<String> {
    let mut shown = vec![Vec::new(); SHOWN.len()];
    match verdict(bytes) {
        Err(reason) => shown[0].push(reason.name().to_owned()),
        Ok(()) if bytes[1] == PacketType::Data as u8 => {
            let packet = Packet::new(bytes).expect("a packet");
            packet.frames().for_each(|frame| expect_frame(&mut shown, &frame.expect("a frame")));
        }
        Ok(()) => {}
    }
    shown.iter().map(|values| values.join(",")).collect()
}

fn expect_frame(shown: &mut [Vec<String>], frame: &Frame<'_>) {
    match frame {
        Frame::Ack(ack) => shown[1].extend(ack.ranges().map(|range| {
            let (first, last) = (range.start, range.end - 1);
            if first == last { last.to_string() } else { format!("{first}-{last}") }
        })),
        Frame::Message(message) | Frame::Operation(message) => {
            shown[2].push(message.sequence.to_string());
        }
        Frame::Fragment(fragment) | Frame::OperationPart(fragment) => {
            shown[2].push(fragment.sequence.to_string());
            shown[3].push(fragment.offset.to_string());
        }
        Frame::Path { round, .. } | Frame::Probe { round } => shown[4].push(round.to_string()),
        Frame::Stream(stream) => shown[5].push(stream.to_string()),
        Frame::Wait { sequence, .. } | Frame::Skip { sequence, .. } => {
            shown[2].push(sequence.to_string());
        }
        Frame::Ping
        | Frame::Limit(_)
        | Frame::Open { .. }
        | Frame::Close { .. }
        | Frame::Reset { .. }
        | Frame::Stray { .. } => {}
    }
}

/// Lets dissector and parsers look at the same packets. Of one that is malformed, the dissector
/// shows what comes before the place, and of one whose CRC is wrong, what there is.
#[track_caller]
fn assert_same(packets: &[Vec<u8>]) {
    let seen = Capture::of(packets).read(&[], &SHOWN);
    assert_eq!(seen.len(), packets.len());
    for (packet, seen) in packets.iter().zip(&seen) {
        let expected = expected(packet);
        let hex = || packet.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let reason = seen[0].split(',').next().expect("a reason");
        assert_eq!(reason, expected[0], "why {} is malformed", hex());
        if reason.is_empty() {
            assert_eq!(seen[1..], expected[1..], "what {} says", hex());
        }
    }
}

/// A new packet type, frame type or rule of the crate is one of the dissector's, too.
#[test]
fn every_type_octet_is_known_or_refused_as_by_the_parsers() {
    let mut packets = Vec::new();
    for octet in 0..=u8::MAX {
        for version in [0, VERSION, 2] {
            let mut packet = vec![0; 100];
            (packet[0], packet[1]) = (version, octet);
            packets.push(packet);
        }
        packets.push(data(&[&[octet][..], &[0; 40]].concat()));
        packets.push(data(&[octet]));
    }
    packets.iter_mut().for_each(|packet| seal(packet));
    assert_same(&packets);
}

#[test]
fn damaged_packets_are_malformed_for_the_same_reason() {
    let mut random = Random::new(14);
    let mut packets = documented();
    for whole in documented() {
        packets.extend((1..whole.len()).map(|length| whole[..length].to_vec()));
        for at in (0..whole.len()).filter(|at| !(4..8).contains(at)) {
            for octet in [0, 1, 0x7f, 0xff, random.next_u64() as u8] {
                let mut packet = whole.clone();
                packet[at] = octet;
                packet.truncate(whole.len() - random.below(3) as usize * random.below(8) as usize);
                packets.push(packet);
            }
        }
    }
    // Most are to get beyond the CRC.
    for packet in packets.iter_mut().skip(1).filter(|packet| packet.len() >= HEADER_LENGTH) {
        if random.below(20) > 0 {
            seal(packet);
        }
    }
    let malformed = packets.iter().filter(|packet| verdict(packet).is_err()).count();
    assert!(malformed > 500 && packets.len() - malformed > 500, "{malformed} of {}", packets.len());
    assert_same(&packets);
}

#[test]
fn vectors_are_told_in_short_words() {
    let told = |kind: &str, wrap: fn(Vec<u8>) -> Vec<u8>| {
        let (names, packets): (Vec<_>, Vec<_>) =
            vectors(kind).into_iter().map(|(name, bytes)| (name, wrap(bytes))).unzip();
        let lines = Capture::of(&packets).read(&[], &["_ws.col.Info"]);
        names.into_iter().zip(lines.concat()).collect::<Vec<_>>()
    };
    let expected = [
        ("challenge", "challenge: to what came from port 50000"),
        ("data", "data 9: ack 3-5, message 2 (5 bytes)"),
        ("ping", "ping: 9 bytes"),
        ("pong", "pong: 9 bytes"),
        ("reset", "reset: aborted, or the flow is not known (any more)"),
        ("syn", "syn: to port 7"),
        ("syn-ack", "syn-ack: version 1"),
        ("syn-with-cookie", "syn: to port 7, with cookie, to be passed on"),
        ("version", "version: 1"),
    ];
    assert_eq!(told("packet", |packet| packet), expected.map(|(name, line)| (name, line.into())));
    let expected = [
        ("ack", "ack 90-100 80-84 7"),
        ("close", "close after 3 messages: closed in order"),
        ("fragment", "message 258, bytes 4-6 of 10"),
        ("limit", "limit 4294967296"),
        ("message", "message 2 (5 bytes)"),
        ("open", "open, limit 65536"),
        ("operation-answer", "operation 4 (24 bytes): answer 1 to fetch-and-add: done"),
        ("operation-part", "operation 258, bytes 4-6 of 10"),
        ("operation-request", "operation 3 (48 bytes): request 1, fetch-and-add"),
        ("path", "port 50000 comes straight (round 2)"),
        ("ping", "ping"),
        ("probe", "probe of round 2"),
        ("reset", "reset: aborted, or the flow is not known (any more)"),
        ("skip", "message 6 (1048576 bytes) was dropped by its sender"),
        ("stray", "port 50000 comes by a detour"),
        ("stream", "stream 5"),
        ("wait", "wait with message 5, dropped in packet 9"),
    ];
    let expected = expected.map(|(name, line)| (name, format!("data 9: {line}")));
    assert_eq!(told("frame", |frame| data(&frame)), expected);
}

#[test]
fn reasons_are_those_of_the_document() {
    let table = DOCUMENT.split("\n## Reasons").nth(1).expect("the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let documented: Vec<_> = rows.filter_map(|row| row.split_once(" | ")).collect();
    let reset = |reason: u16| data(&[&[7, 0], &reason.to_be_bytes()[..]].concat());
    let packets: Vec<_> = (0..=documented.len()).map(|reason| reset(reason as u16)).collect();
    let mut told = Capture::of(&packets).read(&[], &["_ws.col.Info"]).concat();
    assert_eq!(told.pop(), Some(format!("data 9: reset: reason {}", documented.len())));
    for (told, (number, words)) in told.iter().zip(&documented) {
        assert_eq!(*told, format!("data 9: reset: {words}"), "{number}");
    }
    assert!(documented.len() > 5);
}

/// Both sides of a connection are found by the flow ids, and an app's message from its fragments.
#[test]
fn packets_of_a_connection_belong_together() {
    let message: Vec<u8> = (0..100).collect();
    let part = |offset: u32, length: u32| {
        let mut frame = vec![0; 100];
        let head = emit_fragment(&mut frame, 1, length, 100, offset);
        frame.truncate(head);
        data(&[&frame[..], &message[offset as usize..][..length as usize]].concat())
    };
    let packet = |name| vectors("packet")[name].clone();
    let opening = ["syn", "challenge", "syn-with-cookie", "syn-ack", "data"].map(packet);
    // Out of order, and one of them twice.
    let parts = [part(60, 40), part(0, 30), part(60, 40), part(30, 30), part(30, 30)];
    let fields = [
        "clearway.connection",
        "clearway.from_client",
        "clearway.opened_in",
        "clearway.accepted_in",
        "clearway.message",
    ];
    let packets = [&opening[..], &parts].concat();
    for (passes, options) in [(1, &[][..]), (2, &["-2"])] {
        let lines = Capture::of(&packets).read(options, &fields);
        let opened_and_accepted = |line: &Vec<String>| (line[2].clone(), line[3].clone());
        for (index, line) in lines.iter().enumerate() {
            let from_client = if [1, 3].contains(&index) { "0" } else { "1" };
            assert_eq!((&line[0][..], &line[1][..]), ("0", from_client), "packet {index}");
            let accepted = if index >= 3 || passes == 2 { "4" } else { "" };
            assert_eq!(opened_and_accepted(line), ("1".into(), accepted.into()), "packet {index}");
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let messages: Vec<&str> = lines.iter().map(|line| &line[4][..]).collect();
        let whole = hex(&message);
        assert_eq!(messages, ["", "", "", "", &hex(b"hello"), "", "", "", &whole, ""]);
    }
}

#[test]
fn other_ports_and_captures_cut_short() {
    let ping = vectors("packet")["ping"].clone();
    let mut damaged = ping.clone();
    damaged[30] ^= 1;
    let read = |options: &[&str], port, packet: &[u8], most| {
        let mut capture = Capture::new();
        capture.add(port, packet, most);
        let fields = ["_ws.col.Protocol", "clearway.malformed", "clearway.cut"];
        let line = capture.read(options, &fields).remove(0);
        line.join(" ").trim().to_owned()
    };
    let whole = usize::MAX;
    // By what it looks like, by the preference, or not at all.
    assert_eq!(read(&[], 9999, &ping, whole), "Clearway");
    assert_eq!(read(&[], 9999, &damaged, whole), "UDP");
    let ports = ["-o", "clearway.ports:9998-9999"];
    assert_eq!(read(&ports, 9999, &damaged, whole), "Clearway checksum");
    let unchecked = ["-o", "clearway.check_crc:FALSE"];
    assert_eq!(read(&unchecked, PORT, &damaged, whole), "Clearway");
    // What the capture left out is not the sender's fault.
    let syn = vectors("packet")["syn"].clone();
    assert_eq!(read(&[], PORT, &syn, 28 + 40), "Clearway  1");
}
