use super::*;
use clearway_base::Random;

fn samples() -> Vec<Message> {
    vec![
        Message::Ack,
        Message::Hello(Hello {
            name: Text::new("clearway"),
            version_min: VERSION,
            version_max: VERSION,
            region_max: 15,
            m2s_ring_max: 1,
            s2m_ring_max: 2,
            ring_size_log2_max: 14,
        }),
        Message::Init(Init {
            version: VERSION,
            id: 0x0102_0304,
            mode: MODE_ETHERNET,
            secret: Text::new("open sesame"),
            name: Text::new("clearway"),
        }),
        Message::AddRegion { index: 1, bytes: 0x1234_5678_9abc },
        Message::AddRing(AddRing {
            direction: Direction::S2m,
            index: 3,
            region: 1,
            offset: 0x8000,
            size_log2: 8,
            private_header_bytes: 4,
        }),
        Message::Connect { interface: Text::new("a") },
        Message::Connected { interface: Text::new("b") },
        Message::Disconnect { code: 7, reason: Text::new("closed") },
    ]
}

#[test]
fn what_is_written_is_read_back() {
    for message in samples() {
        assert_eq!(parse(&message.to_bytes()), Ok(message));
    }
}

/// The layout of libmemif's `memif.h`, which is packed and therefore unaligned.
#[test]
#[cfg(target_endian = "little")]
fn layout_is_that_of_other_implementations() {
    let bytes = samples()[4].to_bytes();
    assert_eq!(&bytes[..15], [5, 0, 1, 0, 3, 0, 1, 0, 0, 0x80, 0, 0, 8, 4, 0]);
    let bytes = samples()[3].to_bytes();
    assert_eq!(&bytes[..12], [4, 0, 1, 0, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0]);
    let bytes = samples()[2].to_bytes();
    assert_eq!(&bytes[..10], [3, 0, 0, 2, 4, 3, 2, 1, 0, b'o']);
    assert_eq!(bytes[33], b'c');
}

#[test]
fn wrong_lengths_and_types_are_refused() {
    for length in (0..400).filter(|&length| length != MESSAGE_BYTES) {
        assert_eq!(parse(&vec![1; length]), Err(ParseError::Length(length)));
    }
    for kind in [0u16, 9, 255, u16::MAX] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        assert_eq!(parse(&bytes), Err(ParseError::Type(kind)));
    }
}

#[test]
fn any_bytes_of_a_known_type_survive_a_round_trip() {
    let mut random = Random::new(1);
    for _ in 0..10_000 {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes.iter_mut().for_each(|byte| *byte = random.next_u32() as u8);
        bytes[..2].copy_from_slice(&(random.below(10) as u16).to_ne_bytes());
        if let Ok(message) = parse(&bytes) {
            assert_eq!(parse(&message.to_bytes()), Ok(message));
            assert!(!format!("{message:?}").contains('\n'));
        }
    }
}

#[test]
fn text_is_cut_to_fit_and_shown_escaped() {
    let text = Text::<8>::new("longer than eight");
    assert_eq!(text.as_bytes(), b"longer ");
    assert_eq!(Text::<8>(*b"a\nb\x1b[0mz").to_string(), "a\\nb\\x1b[0mz");
}

#[test]
fn secret_is_not_shown() {
    assert!(!format!("{:?}", samples()[2]).contains("sesame"));
}
