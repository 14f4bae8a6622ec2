use super::*;
use crate::Malformed;
use clearway_base::RangeSet;
use proptest::collection::vec;
use proptest::prelude::*;

/// A packet of this header and body, sealed.
fn packet(header: Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xaa; HEADER_LENGTH];
    header.emit(&mut bytes);
    bytes.extend_from_slice(body);
    seal(&mut bytes);
    bytes
}

fn control(packet_type: PacketType, body: &[u8]) -> Vec<u8> {
    packet(Header::control(packet_type, 7, 8), body)
}

fn only_frame(body: &[u8]) -> Result<Frame<'_>, Malformed> {
    let mut frames = Frames::new(body);
    let frame = frames.next().unwrap();
    assert_eq!(frames.next(), None);
    frame
}

fn any_header() -> impl Strategy<Value = Header> {
    (0..8u8, any::<bool>(), any::<u64>(), any::<u64>()).prop_map(|(octet, ack, flow, number)| {
        let packet_type = match octet {
            0 => return Header::data(flow, number, ack),
            1 => PacketType::Syn,
            2 => PacketType::Challenge,
            3 => PacketType::SynAck,
            4 => PacketType::Reset,
            5 => PacketType::Version,
            6 => PacketType::Ping,
            _ => PacketType::Pong,
        };
        Header::control(packet_type, flow, number)
    })
}

proptest! {
    #[test]
    fn header_round_trip(header in any_header(), body in vec(any::<u8>(), 0..200)) {
        let bytes = packet(header, &body);
        let view = Packet::new(&bytes).unwrap();
        prop_assert_eq!(Header::parse(&view), Ok(header));
        prop_assert_eq!(view.body(), &body[..]);
        prop_assert_eq!(view.length(), header.length() + body.len());
    }

    #[test]
    fn any_flipped_bit_is_found(
        header in any_header(),
        body in vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
    ) {
        let mut bytes = packet(header, &body);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let view = Packet::new(&bytes).unwrap();
        prop_assert_eq!(Header::parse(&view), Err(Malformed::Checksum));
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(view) = Packet::new(&bytes) {
            let _ = Header::parse(&view);
            let _ = Syn::parse(&view);
            let _ = Challenge::parse(&view);
            let _ = SynAck::parse(&view);
            let _ = Reset::parse(&view);
            let _ = Versions::parse(&view);
            for frame in view.frames().flatten() {
                if let Frame::Ack(ack) = frame {
                    let _ = ack.ranges().count();
                }
            }
        }
    }

    /// Random bytes seldom look like frames; these do, and often are cut or wrong.
    #[test]
    fn no_frames_panic(
        parts in vec((0..9u8, 0..40u8, vec(prop_oneof![Just(0u8), any::<u8>()], 0..40)), 0..8),
    ) {
        let mut body = Vec::new();
        for (octet, second, tail) in parts {
            body.extend_from_slice(&[octet, second]);
            body.extend_from_slice(&tail);
        }
        for frame in Frames::new(&body).flatten() {
            if let Frame::Ack(ack) = frame {
                let mut below = None;
                for range in ack.ranges() {
                    prop_assert!(range.start < range.end);
                    prop_assert!(below.is_none_or(|below| range.end < below));
                    below = Some(range.start);
                }
            }
        }
    }

    #[test]
    fn message_and_fragment_round_trip(
        reserved in any::<u16>(),
        sequence in any::<u32>(),
        bytes in vec(any::<u8>(), 1..100),
        before in 0..1000u32,
        after in 0..1000u32,
    ) {
        let length = bytes.len() as u32;
        let mut body = vec![0xaa; 64];
        let padding = emit_padding(&mut body[..3]);
        let mut at = padding + emit_message(&mut body[padding..], sequence, length);
        body[padding + 2..padding + 4].copy_from_slice(&reserved.to_be_bytes());
        body.truncate(at);
        body.extend_from_slice(&bytes);
        at = body.len();
        body.resize(at + FRAGMENT_FRAME_LENGTH, 0xaa);
        let total = before + length + after;
        emit_fragment(&mut body[at..], sequence, length, total, before);
        body[at + 2..at + 4].copy_from_slice(&reserved.to_be_bytes());
        body.extend_from_slice(&bytes);

        let mut frames = Frames::new(&body);
        let bytes = &bytes[..];
        prop_assert_eq!(
            frames.next(),
            Some(Ok(Frame::Message(Message { reserved, sequence, bytes })))
        );
        let fragment = Fragment { reserved, sequence, total, offset: before, bytes };
        prop_assert_eq!(frames.next(), Some(Ok(Frame::Fragment(fragment))));
        prop_assert_eq!(frames.next(), None);
    }

    #[test]
    fn ack_round_trip(
        received in vec((0..2000u64, 1..50u64), 1..60),
        base in prop_oneof![Just(0u64), any::<u64>().prop_map(|base| base / 2)],
        delay_ns in any::<u32>(),
        room in 0..400usize,
        (is_capable, marked_packets) in any::<(bool, u16)>(),
    ) {
        let ecn = EcnReport { is_capable, marked_packets };
        let mut set = RangeSet::new();
        for (start, length) in received {
            set.insert(base + start..base + start + length);
        }
        let mut bytes = vec![0xaa; room];
        let length = emit_ack(&mut bytes, delay_ns, ecn, set.iter().rev());
        if room < ACK_FRAME_LENGTH {
            prop_assert_eq!(length, 0);
            return Ok(());
        }
        let Ok(Frame::Ack(ack)) = only_frame(&bytes[..length]) else { panic!("not an ack") };
        prop_assert_eq!((ack.delay_ns, ack.ecn), (delay_ns, ecn));
        prop_assert_eq!(ack.largest, set.last().unwrap().end - 1);
        prop_assert_eq!(ack.length(), length);
        let fit = ((room - ACK_FRAME_LENGTH) / ACK_RANGE_LENGTH).min(ACK_RANGES_MAX) + 1;
        let expected: Vec<_> = set.iter().rev().take(fit).collect();
        prop_assert_eq!(ack.ranges().len(), expected.len());
        prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn handshake_round_trip(
        source_flow in 1..=u64::MAX,
        port in any::<u16>(),
        receive_limit in any::<u64>(),
        packet_bytes_max in PACKET_BYTES_MIN..=u16::MAX,
        engines in 1..=ENGINES_MAX,
        pass_on in any::<bool>(),
        versions in vec(any::<u8>(), 1..255),
        cookie in vec(any::<u8>(), 0..=COOKIE_BYTES_MAX),
    ) {
        let mut body = vec![0xaa; 400];
        let (versions, cookie) = (&versions[..], &cookie[..]);
        let syn = Syn {
            source_flow,
            port,
            receive_limit,
            packet_bytes_max,
            engines,
            pass_on,
            versions,
            cookie,
        };
        let length = syn.emit(&mut body);
        prop_assert_eq!(length, syn.length());
        let bytes = control(PacketType::Syn, &body[..length]);
        prop_assert_eq!(Syn::parse(&Packet::new(&bytes).unwrap()), Ok(syn));
        prop_assert!(bytes.len() >= SYN_BYTES_MIN || !cookie.is_empty());

        let version = versions[0];
        let accepted = SynAck { source_flow, receive_limit, packet_bytes_max, version, port };
        let length = accepted.emit(&mut body);
        let bytes = control(PacketType::SynAck, &body[..length]);
        prop_assert_eq!(SynAck::parse(&Packet::new(&bytes).unwrap()), Ok(accepted));

        let reset = Reset { reason: port, quoted_flow: source_flow };
        let length = reset.emit(&mut body);
        let bytes = control(PacketType::Reset, &body[..length]);
        prop_assert_eq!(Reset::parse(&Packet::new(&bytes).unwrap()), Ok(reset));

        let offer = Versions { versions };
        let length = offer.emit(&mut body);
        let bytes = control(PacketType::Version, &body[..length]);
        prop_assert_eq!(Versions::parse(&Packet::new(&bytes).unwrap()), Ok(offer));

        if !cookie.is_empty() {
            let challenge = Challenge { engines, port, cookie };
            let length = challenge.emit(&mut body);
            let bytes = control(PacketType::Challenge, &body[..length]);
            prop_assert_eq!(Challenge::parse(&Packet::new(&bytes).unwrap()), Ok(challenge));
            prop_assert!(bytes.len() <= SYN_BYTES_MIN);
        }
    }
}

#[test]
fn small_frames_round_trip() {
    let mut bytes = [0xaa; 16];
    let length = emit_limit(&mut bytes, 1 << 40);
    assert_eq!(only_frame(&bytes[..length]), Ok(Frame::Limit(1 << 40)));
    let length = emit_close(&mut bytes, 3, 4);
    assert_eq!(only_frame(&bytes[..length]), Ok(Frame::Close { reason: 3, messages: 4 }));
    let length = emit_reset(&mut bytes, 5);
    assert_eq!(only_frame(&bytes[..length]), Ok(Frame::Reset { reason: 5 }));
    let length = emit_ping(&mut bytes);
    assert_eq!(only_frame(&bytes[..length]), Ok(Frame::Ping));
}

#[test]
fn versions_and_types_are_judged_after_the_crc() {
    let mut bytes = control(PacketType::Ping, b"");
    bytes[0] = 9;
    assert_eq!(Header::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Checksum));
    seal(&mut bytes);
    assert_eq!(Header::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Version));
    // Version negotiation is for version packets only.
    bytes[0] = VERSION_NEGOTIATION;
    seal(&mut bytes);
    assert_eq!(Header::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Version));
    bytes[..2].copy_from_slice(&[VERSION, 8]);
    seal(&mut bytes);
    assert_eq!(Header::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Type));
    assert!(matches!(Packet::new(&bytes[..HEADER_LENGTH - 1]), Err(Malformed::Truncated)));
}

#[test]
fn unknown_flags_are_ignored() {
    let mut bytes = packet(Header::data(1, 2, true), b"");
    bytes[2..4].copy_from_slice(&[0xff, 0xff]);
    seal(&mut bytes);
    assert_eq!(Header::parse(&Packet::new(&bytes).unwrap()), Ok(Header::data(1, 2, true)));
}

#[test]
fn wrong_acks_are_malformed() {
    let ack = |largest: u64, first: u32, pairs: &[(u32, u32)]| {
        let mut bytes = vec![0x02, pairs.len() as u8, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&largest.to_be_bytes());
        bytes.extend_from_slice(&first.to_be_bytes());
        for (gap, length) in pairs {
            bytes.extend_from_slice(&gap.to_be_bytes());
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        only_frame(&bytes).err()
    };
    assert_eq!(ack(9, 9, &[]), None);
    assert_eq!(ack(9, 10, &[]), Some(Malformed::AckRange));
    assert_eq!(ack(9, 5, &[(1, 3)]), None);
    assert_eq!(ack(9, 5, &[(1, 4)]), Some(Malformed::AckRange));
    assert_eq!(ack(9, 5, &[(0, 1)]), Some(Malformed::AckRange));
    assert_eq!(ack(9, 5, &[(1, 0)]), Some(Malformed::AckRange));
    assert_eq!(ack(u64::MAX, 5, &[]), Some(Malformed::AckRange));
    assert_eq!(ack(u64::MAX - 1, 5, &[]), None);
    assert_eq!(ack(1000, 0, &[(1, 1); ACK_RANGES_MAX]), None);
    assert_eq!(ack(1000, 0, &[(1, 1); ACK_RANGES_MAX + 1]), Some(Malformed::Length));
}

#[test]
fn a_second_ack_in_a_packet_is_malformed() {
    let mut bytes = [0; 128];
    let mut end = 0;
    for count in 1..=3 {
        end += emit_ack(
            &mut bytes[end..],
            0,
            EcnReport::default(),
            core::iter::once(count..count + 1),
        );
        end += emit_ping(&mut bytes[end..]);
        let frames = Frames::new(&bytes[..end]);
        let error = (count > 1).then_some(Malformed::SecondAck);
        assert_eq!(frames.check().err(), error);
        assert_eq!(frames.clone().find_map(Result::err), error);
        assert_eq!(frames.filter(Result::is_ok).count(), 2, "the first of them, and a ping");
    }
}

#[test]
fn a_message_is_all_there_is_where_no_other_way_of_reading_finds_more() {
    let mut bytes = [0; 64];
    let end = emit_message(&mut bytes, 7, 5) + 5;
    for length in 0..bytes.len() {
        let frames = Frames::new(&bytes[..length]);
        let all = frames.clone().map(|frame| frame.ok()).collect::<Vec<_>>();
        let only = frames.only_message().map(|message| vec![Some(Frame::Message(message))]);
        assert_eq!(only, (length == end).then_some(all), "{length} bytes");
    }
    for octet in (0..=u8::MAX).filter(|octet| *octet != bytes[0]) {
        let mut other = bytes;
        other[0] = octet;
        assert_eq!(Frames::new(&other[..end]).only_message(), None);
    }
}

#[test]
fn ack_ranges_beyond_32_bits_are_cut() {
    let far = 1u64 << 40;
    let mut bytes = [0; 64];
    let length = emit_ack(&mut bytes, 0, EcnReport::default(), [far..far + 10, 0..5]);
    let Ok(Frame::Ack(ack)) = only_frame(&bytes[..length]) else { panic!("not an ack") };
    assert!(ack.ranges().eq(core::iter::once(far..far + 10)));
    let length = emit_ack(&mut bytes, 0, EcnReport::default(), [10..far, 0..5]);
    let Ok(Frame::Ack(ack)) = only_frame(&bytes[..length]) else { panic!("not an ack") };
    assert!(ack.ranges().eq(core::iter::once(far - (1 << 32)..far)));
    assert_eq!(emit_ack(&mut bytes, 0, EcnReport::default(), []), 0);
}

#[test]
fn wrong_messages_and_fragments_are_malformed() {
    let mut bytes = [0; 64];
    let length = emit_message(&mut bytes, 0, 5);
    assert_eq!(only_frame(&bytes[..length + 4]), Err(Malformed::MessageLength));
    assert!(only_frame(&bytes[..length + 5]).is_ok());

    let fragment = |length: u32, total: u32, offset: u32| {
        let mut bytes = [0; 64];
        bytes[0] = 0x05;
        for (at, field) in [(8, length), (12, total), (16, offset)] {
            bytes[at..at + 4].copy_from_slice(&field.to_be_bytes());
        }
        Frames::new(&bytes).next().unwrap().err()
    };
    assert_eq!(fragment(5, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX - 5), None);
    for (length, total, offset) in [
        (5, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX - 4),
        (5, MESSAGE_BYTES_MAX + 1, 0),
        (0, 10, 0),
        (1, 10, 10),
        (1, 10, u32::MAX),
        (u32::MAX, 10, 1),
    ] {
        assert_eq!(fragment(length, total, offset), Some(Malformed::FragmentExtent));
    }
    assert_eq!(fragment(45, 100, 0), Some(Malformed::MessageLength));
}

#[test]
fn unknown_frames_are_malformed_and_end_the_packet() {
    let mut frames = Frames::new(&[0x01, 0x20, 0x01]);
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    assert_eq!(frames.next(), Some(Err(Malformed::FrameType)));
    assert_eq!(frames.next(), None);
}

#[test]
fn wrong_handshakes_are_malformed() {
    let good = Syn {
        source_flow: 1,
        port: 2,
        receive_limit: 3,
        packet_bytes_max: 1472,
        engines: 4,
        pass_on: false,
        versions: &[VERSION],
        cookie: &[],
    };
    let parse = |syn: Syn<'_>, cut: usize| {
        let mut body = [0; 100];
        let length = syn.emit(&mut body) - cut;
        let bytes = control(PacketType::Syn, &body[..length]);
        Syn::parse(&Packet::new(&bytes).unwrap()).err()
    };
    assert_eq!(parse(good, 0), None);
    assert_eq!(parse(good, 1), Some(Malformed::Unpadded));
    assert_eq!(parse(Syn { source_flow: 0, ..good }, 0), Some(Malformed::FlowId));
    assert_eq!(parse(Syn { versions: &[], ..good }, 0), Some(Malformed::Versions));
    assert_eq!(parse(Syn { packet_bytes_max: 100, ..good }, 0), Some(Malformed::Field));
    assert_eq!(parse(Syn { engines: 0, ..good }, 0), Some(Malformed::Field));
    assert_eq!(parse(Syn { engines: 65, ..good }, 0), Some(Malformed::Field));
    assert_eq!(parse(Syn { cookie: &[1; 32], ..good }, 1), Some(Malformed::Length));
    let bytes = control(PacketType::Challenge, &[0, 1, 0, 0]);
    assert_eq!(Challenge::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Cookie));
    let bytes = control(PacketType::Challenge, &[33; 37]);
    assert_eq!(Challenge::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Cookie));
    let bytes = control(PacketType::Version, &[2, 1]);
    assert_eq!(Versions::parse(&Packet::new(&bytes).unwrap()), Err(Malformed::Length));
}

/// RFC 3720, section B.4: the CRC of 32 bytes of zeros is 0x8a9136aa.
#[test]
fn crc_is_the_one_of_iscsi() {
    let mut bytes = [0; 32];
    seal(&mut bytes);
    assert_eq!(Packet::new(&bytes).unwrap().crc(), 0x8a91_36aa);
}

/// Reads frames by the short ways where there are some.
fn read_shortly(mut frames: Frames<'_>) -> Vec<Result<Frame<'_>, Malformed>> {
    let mut read = match frames.leading_ack() {
        Ok(ack) => Vec::from_iter(ack.map(|ack| Ok(Frame::Ack(ack)))),
        Err(reason) => return vec![Err(reason)],
    };
    loop {
        let messages = core::iter::from_fn(|| frames.next_message());
        read.extend(messages.map(|message| Ok(Frame::Message(message))));
        let Some(frame) = frames.next() else { return read };
        read.push(frame);
    }
}

#[test]
fn checking_frames_says_the_same_as_reading_them() {
    let mut random = clearway_base::Random::new(1);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let mut body = [0; 64];
        let mut at = 0;
        while at < 40 {
            at += match random.below(8) {
                0 => emit_padding(&mut body[at..at + 3]),
                1 => emit_ping(&mut body[at..]),
                2 => emit_close(&mut body[at..], 0, 1),
                3 => emit_message(&mut body[at..], 1, random.below(9) as u32),
                4 => emit_limit(&mut body[at..], 5),
                5 => emit_ack(&mut body[at..], 0, EcnReport::default(), core::iter::once(3..4)),
                6 => emit_reset(&mut body[at..], 1),
                _ => {
                    body[at] = random.below(10) as u8;
                    1
                }
            };
        }
        let frames = Frames::new(&body[..40]);
        let read = frames.clone().find_map(Result::err);
        assert_eq!(frames.check().err(), read, "{body:?}");
        assert_eq!(read_shortly(frames.clone()), frames.collect::<Vec<_>>(), "{body:?}");
        *if read.is_none() { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}
