use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use core::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::declared::{Kind, pair};
use super::*;
use crate::sync::Ordering::Relaxed;

const POOL_BYTES: u32 = 1 << 24;

fn round_trip(command: Command) -> Result<Command, Violation> {
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(u64::MAX));
    let upper = command.encode(&entry);
    Command::decode(upper, &entry, POOL_BYTES)
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<(u32, u16)>()
        .prop_map(|(ip, port)| SocketAddrV4::new(Ipv4Addr::from_bits(ip), port).into());
    let v6 = any::<(u128, u16, u32)>().prop_map(|(ip, port, scope)| {
        SocketAddrV6::new(Ipv6Addr::from_bits(ip), port, 0, scope).into()
    });
    prop_oneof![v4, v6]
}

fn releases() -> impl Strategy<Value = ReleaseList> {
    proptest::collection::vec(any::<u32>(), 0..=RELEASES_PER_ENTRY).prop_map(|ids| {
        let mut list = ReleaseList::default();
        assert!(ids.iter().all(|&id| list.push(id)));
        list
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (any::<u64>(), address()).prop_map(|(token, peer)| Command::Connect { token, peer }),
        (any::<u64>(), any::<u16>(), 0..POOL_BYTES / 2, 0..=MESSAGE_BYTES_MAX).prop_map(
            |(connection, stream, offset, length)| {
                Command::Send { connection, stream, offset, length }
            }
        ),
        releases().prop_map(|buffers| Command::Release { buffers }),
        any::<(u64, bool)>().prop_map(|(connection, abort)| Command::Close { connection, abort }),
        any::<(u64, u32)>()
            .prop_map(|(connection, silence_ms)| Command::SetSilence { connection, silence_ms }),
        (any::<u32>(), burst()).prop_map(|(vif, (offset, length, count))| {
            Command::SendFrames { vif, offset, length, count }
        }),
        tcp_command(),
        operation_command(),
        stream_command(),
    ]
}

fn stream_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        any::<(u64, u64)>()
            .prop_map(|(token, connection)| Command::OpenStream { token, connection }),
        any::<bool>().prop_map(|are_taken| Command::TakeStreams { are_taken }),
        any::<(u64, u8, u16)>().prop_map(|(connection, urgency, weight)| {
            Command::SetPriority { connection, urgency, weight }
        }),
        any::<u64>().prop_map(|connection| Command::SetUnordered { connection }),
        (any::<(u64, u32)>(), 0..POOL_BYTES / 2, 0..=MESSAGE_BYTES_MAX).prop_map(
            |((connection, within_us), offset, length)| {
                Command::SendWithin { connection, offset, length, within_us }
            }
        ),
        any::<bool>().prop_map(|is_told| Command::TellSkipped { is_told }),
        (any::<u64>(), 0..POOL_BYTES / 2, 0..=GROUP_BYTES_MAX as u32)
            .prop_map(|(token, offset, length)| Command::SetGroup { token, offset, length }),
        any::<[u64; 5]>().prop_map(|[connection, tag, memory, start, bytes]| Command::Post {
            connection,
            tag,
            memory,
            start,
            bytes
        }),
        any::<(u64, u64)>().prop_map(|(connection, tag)| Command::Unpost { connection, tag }),
        (any::<u64>(), address()).prop_map(|(token, peer)| Command::ConnectShared { token, peer }),
    ]
}

fn operation_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (any::<(u64, u32, u32)>(), 0..POOL_BYTES / 2, 0..=DESCRIPTION_BYTES_MAX as u32).prop_map(
            |((token, start, bytes), offset, length)| {
                Command::Share { token, offset, length, start, bytes }
            }
        ),
        (any::<[u64; 4]>(), 0..POOL_BYTES / 2, 0..=DESCRIPTION_BYTES_MAX as u32).prop_map(
            |([token, memory, start, bytes], offset, length)| {
                Command::ShareMemory { token, offset, length, memory, start, bytes }
            }
        ),
        any::<(u64, u64)>().prop_map(|(token, region)| Command::Unshare { token, region }),
        any::<(u8, u16, [u64; 6], u32, u32)>().prop_map(|(kind, stride, words, bytes, count)| {
            let [connection, token, region, place, operand, second] = words;
            Command::Ask {
                kind,
                stride,
                connection,
                token,
                region,
                place,
                bytes,
                count,
                operand,
                second,
            }
        }),
        (any::<(u8, [u64; 6])>(), 0..POOL_BYTES / 2, 0..=MESSAGE_BYTES_MAX).prop_map(
            |((kind, words), offset, length)| {
                let [connection, token, region, place, operand, second] = words;
                Command::AskWith {
                    kind,
                    connection,
                    token,
                    region,
                    place,
                    offset,
                    length,
                    operand,
                    second,
                }
            }
        ),
    ]
}

fn tcp_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(port, backlog)| Command::TcpListen { port, backlog }),
        (any::<(u64, u32)>(), address()).prop_map(|((token, port), peer)| Command::TcpConnect {
            token,
            port,
            peer
        }),
        (any::<(u64, bool)>(), 0..POOL_BYTES / 2, 1..=MESSAGE_BYTES_MAX).prop_map(
            |((connection, has_more), offset, length)| Command::TcpSend {
                connection,
                offset,
                length,
                has_more
            }
        ),
        any::<u64>().prop_map(|connection| Command::TcpShutdown { connection }),
        any::<(u64, bool)>()
            .prop_map(|(connection, abort)| Command::TcpClose { connection, abort }),
        any::<(u64, u32, u32)>().prop_map(|(connection, option, value)| Command::TcpSet {
            connection,
            option,
            value
        }),
    ]
}

/// Offset, length and number of frames of a burst.
fn burst() -> impl Strategy<Value = (u32, u32, u16)> {
    (0..POOL_BYTES / 16, 0..=MESSAGE_BYTES_MAX, 1..=BURST_FRAMES_MAX)
        .prop_map(|(unit, length, count)| (8 * unit, length, count))
}

fn code() -> impl Strategy<Value = Code> {
    (0..Code::ALL.len()).prop_map(|index| Code::ALL[index])
}

fn completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        (any::<u64>(), any::<u64>(), address()).prop_map(|(token, connection, peer)| {
            Completion::Connected { token, connection, peer }
        }),
        (any::<u64>(), code()).prop_map(|(token, code)| Completion::ConnectFailed { token, code }),
        (any::<u32>(), any::<u64>(), address()).prop_map(|(listener, connection, peer)| {
            Completion::Accepted { listener, connection, peer }
        }),
        (any::<u64>(), any::<u16>(), 0..POOL_BYTES / 2, 0..=MESSAGE_BYTES_MAX, any::<(u32, u32)>())
            .prop_map(|(connection, stream, offset, length, (buffer, sent))| {
                Completion::Received { connection, stream, offset, length, buffer, sent }
            }),
        any::<(u64, u32)>().prop_map(|(connection, sent)| Completion::Sent { connection, sent }),
        (any::<u64>(), code(), any::<u32>())
            .prop_map(|(connection, code, sent)| Completion::Closed { connection, code, sent }),
        (any::<(u32, u32)>(), burst()).prop_map(|((vif, buffer), (offset, length, count))| {
            Completion::Frames { vif, offset, length, buffer, count }
        }),
        any::<(u32, u32, u64, u64, u8)>().prop_map(|(vif, bursts, sent, rejected, reason)| {
            Completion::FramesSent { vif, bursts, sent, rejected, reason }
        }),
        (any::<u32>(), code()).prop_map(|(vif, code)| Completion::VifClosed { vif, code }),
        tcp_completion(),
        operation_completion(),
        stream_completion(),
    ]
}

fn stream_completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        any::<(u64, u64)>()
            .prop_map(|(connection, parent)| Completion::StreamAccepted { connection, parent }),
        any::<(u64, u32)>().prop_map(|(connection, send)| Completion::Dropped { connection, send }),
        any::<(u64, u32)>()
            .prop_map(|(connection, messages)| Completion::Skipped { connection, messages }),
        any::<(u64, u64, u32, u32)>().prop_map(|(connection, tag, length, sent)| {
            Completion::Placed { connection, tag, length, sent }
        }),
        any::<(u8, u64, u64)>().prop_map(|(why, connection, tag)| Completion::Unposted {
            why,
            connection,
            tag
        }),
    ]
}

fn operation_completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        any::<(u8, u64, u64)>().prop_map(|(status, token, region)| Completion::Shared {
            status,
            token,
            region
        }),
        any::<(u8, u64)>().prop_map(|(status, token)| Completion::Unshared { status, token }),
        any::<(u8, u64)>().prop_map(|(status, token)| Completion::GroupSet { status, token }),
        (any::<(u8, u64, u64, u64, u32)>(), 0..POOL_BYTES / 2, 0..=MESSAGE_BYTES_MAX).prop_map(
            |((status, token, value, extra, buffer), offset, length)| {
                Completion::Operated { status, token, value, extra, offset, length, buffer }
            }
        ),
        any::<(u64, u64, u64, u32, u64)>().prop_map(|(connection, region, place, bytes, value)| {
            Completion::Notified { connection, region, place, bytes, value }
        }),
    ]
}

fn tcp_completion() -> impl Strategy<Value = Completion> {
    let extent = (0..POOL_BYTES / 2, 0..=MESSAGE_BYTES_MAX);
    prop_oneof![
        (any::<(u32, u64, u128)>(), address()).prop_map(|((port, connection, local), peer)| {
            let local = Ipv6Addr::from_bits(local);
            Completion::TcpAccepted { connection, port, peer, local }
        }),
        (any::<(bool, u64, u64)>(), address()).prop_map(
            |((is_detour, token, connection), local)| {
                Completion::TcpConnected { is_detour, token, connection, local }
            }
        ),
        (any::<u64>(), code())
            .prop_map(|(token, code)| Completion::TcpConnectFailed { token, code }),
        (any::<(u64, u32, u32)>(), extent).prop_map(
            |((connection, buffer, sent), (offset, length))| {
                Completion::TcpReceived { connection, offset, length, buffer, sent }
            }
        ),
        any::<(u64, u32)>().prop_map(|(connection, sent)| Completion::TcpSent { connection, sent }),
        any::<u64>().prop_map(|connection| Completion::TcpFinished { connection }),
        (any::<u64>(), code(), any::<u32>())
            .prop_map(|(connection, code, sent)| Completion::TcpClosed { connection, code, sent }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn commands_survive_the_ring(command in command()) {
        prop_assert_eq!(round_trip(command), Ok(command));
    }

    #[test]
    fn completions_survive_the_ring(completion in completion()) {
        let entry: Entry = core::array::from_fn(|_| AtomicU64::new(u64::MAX));
        let upper = completion.encode(&entry);
        prop_assert_eq!(Completion::decode(upper, &entry, POOL_BYTES), Ok(completion));
    }

    #[test]
    fn any_bits_decode_to_something_bounded_or_a_violation(
        upper in prop_oneof![
            any::<u32>(),
            0..24u32,
            (0..24u32, 0..32u32).prop_map(|(o, f)| o | f << 8),
        ],
        words in any::<[u64; 8]>(),
    ) {
        let entry: Entry = words.map(AtomicU64::new);
        let _ = Completion::decode(upper, &entry, POOL_BYTES);
        match Command::decode(upper, &entry, POOL_BYTES) {
            Ok(Command::Send { offset, length, .. }) => {
                prop_assert!(u64::from(offset) + u64::from(length) <= u64::from(POOL_BYTES));
                prop_assert!(length <= MESSAGE_BYTES_MAX);
            }
            Ok(Command::SendFrames { offset, length, count, .. }) => {
                prop_assert!(u64::from(offset) + u64::from(length) <= u64::from(POOL_BYTES));
                prop_assert!(offset % 8 == 0 && (1..=BURST_FRAMES_MAX).contains(&count));
            }
            Ok(Command::TcpSend { offset, length, .. }) => {
                prop_assert!(u64::from(offset) + u64::from(length) <= u64::from(POOL_BYTES));
                prop_assert!((1..=MESSAGE_BYTES_MAX).contains(&length));
            }
            Ok(
                Command::Share { offset, length, .. } | Command::AskWith { offset, length, .. },
            ) => {
                prop_assert!(u64::from(offset) + u64::from(length) <= u64::from(POOL_BYTES));
            }
            _ => {}
        }
    }
}

#[test]
fn each_lie_has_its_name() {
    let send = |offset, length| Command::Send { connection: 1, stream: 0, offset, length };
    assert_eq!(
        round_trip(send(POOL_BYTES - 1, 2)),
        Err(Violation::Extent { offset: POOL_BYTES - 1, length: 2 })
    );
    assert_eq!(
        round_trip(send(u32::MAX, 1)),
        Err(Violation::Extent { offset: u32::MAX, length: 1 })
    );
    assert_eq!(
        round_trip(send(0, MESSAGE_BYTES_MAX + 1)),
        Err(Violation::MessageTooLarge(MESSAGE_BYTES_MAX + 1))
    );
    let share = Command::Share { token: 1, offset: 0, length: 457, start: 0, bytes: 8 };
    assert_eq!(round_trip(share), Err(Violation::Description(457)));
    let group = Command::SetGroup { token: 1, offset: 0, length: 6169 };
    assert_eq!(round_trip(group), Err(Violation::Description(6169)));
    let largest = send(0, MESSAGE_BYTES_MAX);
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    assert_eq!(Command::decode(largest.encode(&entry), &entry, MESSAGE_BYTES_MAX), Ok(largest));
    assert_eq!(round_trip(send(POOL_BYTES, 0)), Ok(send(POOL_BYTES, 0)));
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    let decode = |upper| Command::decode(upper, &entry, POOL_BYTES);
    assert_eq!(decode(0), Err(Violation::Opcode(0)));
    assert_eq!(decode(0xff), Err(Violation::Opcode(0xff)));
    let unknown = Command::KINDS.len() as u8 + 1;
    assert_eq!(decode(unknown.into()), Err(Violation::Opcode(unknown)));
    let release = u32::from(Command::RELEASE) | 15 << 8;
    assert_eq!(decode(release), Err(Violation::ReleaseCount(15)));
    assert_eq!(decode(Command::CONNECT.into()), Err(Violation::AddressFamily(0)));
}

#[test]
fn nothing_is_not_sent_over_tcp() {
    let send = |length| Command::TcpSend { connection: 1, offset: 8, length, has_more: true };
    assert_eq!(round_trip(send(0)), Err(Violation::Extent { offset: 8, length: 0 }));
    assert_eq!(round_trip(send(1)), Ok(send(1)));
}

#[test]
fn each_lie_about_a_burst_has_its_name() {
    let burst = |offset, length, count| Command::SendFrames { vif: 1, offset, length, count };
    let refused = |offset, length, count| round_trip(burst(offset, length, count)).unwrap_err();
    assert_eq!(refused(0, 32, 0), Violation::BurstCount(0));
    assert_eq!(refused(0, 32, 33), Violation::BurstCount(33));
    assert_eq!(refused(4, 32, 1), Violation::BurstMisaligned(4));
    let (offset, length) = (POOL_BYTES - 24, 32);
    assert_eq!(refused(offset, length, 1), Violation::Extent { offset, length });
    let (offset, length) = (u32::MAX - 7, u32::MAX);
    assert_eq!(refused(offset, length, 1), Violation::Extent { offset, length });
    assert!(round_trip(burst(POOL_BYTES - 32, 32, 32)).is_ok());
}

#[test]
fn frames_that_cannot_be_are_not_believed() {
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    let decode = |offset, length, count| {
        let frames = Completion::Frames { vif: 1, offset, length, buffer: 0, count };
        Completion::decode(frames.encode(&entry), &entry, POOL_BYTES).ok()
    };
    assert!(decode(0, 32, 1).is_some());
    for (offset, length, count) in [(0, 32, 0), (0, 32, 33), (1, 32, 1), (POOL_BYTES, 8, 1)] {
        assert_eq!(decode(offset, length, count), None);
    }
}

/// A newer daemon may give reasons that this library has no number for.
#[test]
fn an_unknown_code_says_that_versions_differ() {
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    let closed = Completion::Closed { connection: 7, code: Code::Lost, sent: 3 };
    let upper = closed.encode(&entry);
    entry[2].store(pair(-1000i32 as u32, 3), Relaxed);
    let told = Completion::decode(upper, &entry, POOL_BYTES);
    assert_eq!(told, Ok(Completion::Closed { connection: 7, code: Code::Mismatch, sent: 3 }));
}

#[test]
fn mapped_addresses_become_ipv4() {
    assert_eq!(canonical("[::ffff:10.0.0.1]:7".parse().unwrap()), "10.0.0.1:7".parse().unwrap());
    let v6: SocketAddr = "[fe80::1]:7".parse().unwrap();
    assert_eq!(canonical(v6), v6);
}

/// With what `version-1.txt` calls it.
type Named<T> = (&'static str, T);

/// One of each kind of entry, as the first version had them.
fn samples() -> (Vec<Named<Command>>, Vec<Named<Completion>>) {
    let v4: SocketAddr = "10.1.2.3:4567".parse().unwrap();
    let v6: SocketAddr = SocketAddrV6::new("fe80::1:2".parse().unwrap(), 7654, 0, 9).into();
    let (connection, token) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
    let (offset, length) = (0x0021_2200, 0x0031_3233);
    let mut buffers = ReleaseList::default();
    assert!((1..=5).all(|id| buffers.push(0x4142_4300 + id)));
    let commands = vec![
        ("connect", Command::Connect { token, peer: v4 }),
        ("connect", Command::Connect { token, peer: v6 }),
        ("send", Command::Send { connection, stream: 0x5152, offset, length }),
        ("release", Command::Release { buffers }),
        ("close", Command::Close { connection, abort: false }),
        ("close", Command::Close { connection, abort: true }),
        ("send_frames", Command::SendFrames { vif: 0x6162_6364, offset, length, count: 31 }),
        ("set_silence", Command::SetSilence { connection, silence_ms: 0x7172_7374 }),
    ];
    let (buffer, sent) = (0x0001_8283, 0x9192_9394);
    let completions = vec![
        ("connected", Completion::Connected { token, connection, peer: v4 }),
        ("connect_failed", Completion::ConnectFailed { token, code: Code::Refused }),
        ("accepted", Completion::Accepted { listener: 0xa1a2_a3a4, connection, peer: v6 }),
        (
            "received",
            Completion::Received { connection, stream: 0x5152, offset, length, buffer, sent },
        ),
        ("sent", Completion::Sent { connection, sent }),
        ("closed", Completion::Closed { connection, code: Code::Lost, sent }),
        ("frames", Completion::Frames { vif: 0x6162_6364, offset, length, buffer, count: 31 }),
        (
            "frames_sent",
            Completion::FramesSent {
                vif: 0x6162_6364,
                bursts: 0xb1b2_b3b4,
                sent: 0xc1c2_c3c4_c5c6_c7c8,
                rejected: 0xd1d2_d3d4_d5d6_d7d8,
                reason: 0xe1,
            },
        ),
        ("vif_closed", Completion::VifClosed { vif: 0x6162_6364, code: Code::Denied }),
    ];
    (commands, completions)
}

/// The words of each entry of the first version, as its own code has written them.
#[test]
fn entries_of_the_first_version_are_written_and_read_as_they_were() {
    let recorded: Vec<(&str, [u64; 8])> = include_str!("version-1.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, words) = line.split_at(line.find(char::is_whitespace).unwrap());
            let mut words = words.split_whitespace().map(|word| u64::from_str_radix(word, 16));
            (name, core::array::from_fn(|_| words.next().unwrap().unwrap()))
        })
        .collect();
    let (commands, completions) = samples();
    assert_eq!(recorded.len(), commands.len() + completions.len());
    for ((name, words), (which, command)) in recorded.iter().zip(&commands) {
        let entry: Entry = words.map(AtomicU64::new);
        let upper = (words[0] >> 32) as u32;
        assert_eq!((*name, Command::decode(upper, &entry, POOL_BYTES)), (*which, Ok(*command)));
        assert_eq!(written(|entry| command.encode(entry)), *words, "{name}");
    }
    for ((name, words), (which, completion)) in recorded[commands.len()..].iter().zip(&completions)
    {
        let entry: Entry = words.map(AtomicU64::new);
        let upper = (words[0] >> 32) as u32;
        let decoded = Completion::decode(upper, &entry, POOL_BYTES);
        assert_eq!((*name, decoded), (*which, Ok(*completion)));
        assert_eq!(written(|entry| completion.encode(entry)), *words, "{name}");
    }
}

/// The words of an entry in the first lap of a ring.
fn written(encode: impl FnOnce(&Entry) -> u32) -> [u64; 8] {
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    let upper = encode(&entry);
    entry[0].store(pair(1, upper), Relaxed);
    entry.map(AtomicU64::into_inner)
}

/// What a newer version may have put there, or an older one left over from the lap before.
#[test]
fn what_an_opcode_does_not_name_is_not_read() {
    let (commands, completions) = samples();
    for (name, command) in commands {
        let (upper, entry) = with_noise(Command::KINDS, |entry| command.encode(entry));
        assert_eq!(Command::decode(upper, &entry, POOL_BYTES), Ok(command), "{name}");
    }
    for (name, completion) in completions {
        let (upper, entry) = with_noise(Completion::KINDS, |entry| completion.encode(entry));
        assert_eq!(Completion::decode(upper, &entry, POOL_BYTES), Ok(completion), "{name}");
    }
}

/// An entry with ones in all that its opcode does not name.
fn with_noise(kinds: &[Kind], encode: impl FnOnce(&Entry) -> u32) -> (u32, Entry) {
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(u64::MAX));
    let mut upper = encode(&entry);
    let kind = &kinds[usize::from(upper as u8) - 1];
    let is_named = |name| kind.places.iter().any(|place| place.name == name);
    if !is_named("flags") && !is_named("list") {
        upper |= 0xff << 8;
    }
    if !is_named("stream") {
        upper |= 0xffff << 16;
    }
    for place in kind.places {
        let [field] = place.fields else { continue };
        if let (Ok(word), "u32" | "Code") = (place.name.parse::<usize>(), field.kind) {
            entry[word].fetch_or(u64::from(u32::MAX) << 32, Relaxed);
        }
    }
    (upper, entry)
}
