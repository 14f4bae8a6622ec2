use std::process::{Command, Stdio};

use super::*;

/// A block as a reader sees it: its type, what is in it, and its options.
struct Block<'a> {
    kind: u32,
    body: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// Walks a file, which has to be nothing but whole blocks.
fn blocks(mut file: &[u8]) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let length = word(file, 4) as usize;
        assert!(length.is_multiple_of(4) && length >= 12, "a block of {length} bytes");
        assert_eq!(word(file, length - 4) as usize, length, "the length stands at both ends");
        blocks.push(Block { kind: word(file, 0), body: &file[8..length - 4] });
        file = &file[length..];
    }
    blocks
}

/// The options from `at` on, which have to end as they should.
fn options<'a>(block: &Block<'a>, mut at: usize) -> Vec<(u16, &'a [u8])> {
    let mut options = Vec::new();
    loop {
        let (number, length) = (half(block.body, at), usize::from(half(block.body, at + 2)));
        if number == option::END {
            assert_eq!((length, at + 4), (0, block.body.len()), "the end is the end");
            return options;
        }
        options.push((number, &block.body[at + 4..at + 4 + length]));
        at += 4 + length.next_multiple_of(4);
    }
}

const PACKET: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x12\x34payload";
const TIME_NS: u64 = 1_700_000_000_123_456_789;

fn sample() -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::start(&mut file, "clearway 1.2").expect("a vector takes everything");
    let wire = writer.interface("wire eth0", "what the NIC sees").expect("written");
    let packet = Packet {
        interface: wire,
        time_ns: TIME_NS,
        direction: Direction::Incoming,
        bytes: PACKET,
        comment: "no owner: kernel",
    };
    writer.packet(&packet).expect("written");
    let app = writer.interface("app redis", "").expect("written");
    assert_eq!([wire, app], [0, 1]);
    let outgoing = Packet { interface: app, direction: Direction::Outgoing, comment: "", ..packet };
    writer.packet(&outgoing).expect("written");
    let seen = Statistics { start_ns: 5, end_ns: TIME_NS, received: 9, dropped: 7 };
    writer.statistics(wire, &seen).expect("written");
    writer.flush().expect("written");
    file
}

#[test]
fn file_reads_back_as_it_was_written() {
    let file = sample();
    let blocks = blocks(&file);
    let kinds: Vec<u32> = blocks.iter().map(|block| block.kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 1, 6, 5]);

    assert_eq!(word(blocks[0].body, 0), 0x1a2b_3c4d);
    assert_eq!((half(blocks[0].body, 4), half(blocks[0].body, 6)), (1, 0), "version 1.0");
    let section = options(&blocks[0], 16);
    assert_eq!(section, [(3, &b"Linux"[..]), (4, b"clearway 1.2")]);

    assert_eq!(half(blocks[1].body, 0), 1, "Ethernet");
    let interface = options(&blocks[1], 8);
    assert_eq!(interface, [(2, &b"wire eth0"[..]), (3, b"what the NIC sees"), (9, &[9])]);
    assert_eq!(options(&blocks[3], 8), [(2, &b"app redis"[..]), (9, &[9])]);

    let packet = &blocks[2];
    let time = u64::from(word(packet.body, 4)) << 32 | u64::from(word(packet.body, 8));
    assert_eq!((word(packet.body, 0), time), (0, TIME_NS));
    assert_eq!([word(packet.body, 12), word(packet.body, 16)], [21, 21]);
    assert_eq!(&packet.body[20..41], PACKET);
    assert_eq!(options(packet, 44), [(2, &[1, 0, 0, 0][..]), (1, b"no owner: kernel")]);
    assert_eq!(word(blocks[4].body, 0), 1);
    assert_eq!(options(&blocks[4], 44), [(2, &[2, 0, 0, 0][..])]);

    let statistics = options(&blocks[5], 12);
    let numbers: Vec<u16> = statistics.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [2, 3, 4, 5]);
    assert_eq!(statistics[0].1, [0, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!([statistics[2].1[0], statistics[3].1[0]], [9, 7]);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let mut file = Vec::new();
    let mut writer = Writer::start(&mut file, "").expect("written");
    writer.interface(&"ä".repeat(40_000), "").expect("written");
    let blocks = blocks(&file);
    let name = options(&blocks[1], 8)[0].1;
    assert_eq!(name.len(), 65_534);
    assert!(std::str::from_utf8(name).is_ok());
}

#[test]
fn failure_to_write_is_reported() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert!(Writer::start(Full, "x").is_err());
}

/// What other programs make of it; one that is not installed has no say.
#[test]
fn tcpdump_and_tshark_read_it() {
    let file = sample();
    let readers: [(&str, &[&str], &[&str]); 2] = [
        ("tcpdump", &["-ne", "-tttt", "-r", "-"], &["22:13:20.123456 02:00:00:00:00:01 > 02"]),
        (
            "tshark",
            &["-r", "-", "-T", "fields", "-e", "frame.interface_name", "-e", "frame.comment"],
            &["wire eth0", "app redis", "no owner: kernel"],
        ),
    ];
    for (program, arguments, expected) in readers {
        let child = Command::new(program)
            .args(arguments)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { continue };
        child.stdin.take().expect("a pipe").write_all(&file).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {complained}");
        // tcpdump shows what is in the packet on lines that begin with a tab.
        let packets = said.lines().filter(|line| !line.starts_with('\t')).count();
        assert_eq!(packets, 2, "{program}: {said}{complained}");
        for part in expected {
            assert!(said.contains(part), "{program}: {part} is missing in\n{said}");
        }
    }
}
