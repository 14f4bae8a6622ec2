use core::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

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
        prop_assert_eq!(Completion::decode(upper, &entry, POOL_BYTES), Some(completion));
    }

    #[test]
    fn any_bits_decode_to_something_bounded_or_a_violation(
        upper in prop_oneof![any::<u32>(), 0..12u32, (0..12u32, 0..32u32).prop_map(|(o, f)| o | f << 8)],
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
    let largest = send(0, MESSAGE_BYTES_MAX);
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    assert_eq!(Command::decode(largest.encode(&entry), &entry, MESSAGE_BYTES_MAX), Ok(largest));
    assert_eq!(round_trip(send(POOL_BYTES, 0)), Ok(send(POOL_BYTES, 0)));
    let entry: Entry = core::array::from_fn(|_| AtomicU64::new(0));
    let decode = |upper| Command::decode(upper, &entry, POOL_BYTES);
    assert_eq!(decode(0), Err(Violation::Opcode(0)));
    assert_eq!(decode(0xff), Err(Violation::Opcode(0xff)));
    assert_eq!(decode(upper(command::RELEASE, 15, 0)), Err(Violation::ReleaseCount(15)));
    assert_eq!(decode(upper(command::CONNECT, 0, 0)), Err(Violation::AddressFamily(0)));
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
        Completion::decode(frames.encode(&entry), &entry, POOL_BYTES)
    };
    assert!(decode(0, 32, 1).is_some());
    for (offset, length, count) in [(0, 32, 0), (0, 32, 33), (1, 32, 1), (POOL_BYTES, 8, 1)] {
        assert_eq!(decode(offset, length, count), None);
    }
    let upper = upper(completion::VIF_CLOSED, 0, 0);
    entry[2].store(0, Relaxed);
    assert_eq!(Completion::decode(upper, &entry, POOL_BYTES), None, "0 is no code");
}

#[test]
fn mapped_addresses_become_ipv4() {
    assert_eq!(canonical("[::ffff:10.0.0.1]:7".parse().unwrap()), "10.0.0.1:7".parse().unwrap());
    let v6: SocketAddr = "[fe80::1]:7".parse().unwrap();
    assert_eq!(canonical(v6), v6);
}
