//! What is emitted is parsed back, no bytes panic, and bytes that others have sent mean what they
//! say.

use super::*;
use crate::Ecn;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_options() -> impl Strategy<Value = Options> {
    let timestamps =
        (any::<u32>(), any::<u32>()).prop_map(|(value, echo)| Timestamps { value, echo });
    (
        proptest::option::of(any::<u16>()),
        proptest::option::of(0..=options::WINDOW_SCALE_MAX),
        any::<bool>(),
        proptest::option::of(timestamps),
        any_extra(),
    )
        .prop_map(|(maximum_segment_size, window_scale, sack_permitted, timestamps, extra)| {
            Options { maximum_segment_size, window_scale, sack_permitted, timestamps, extra }
        })
        .prop_filter("40 bytes at most", |options| options.length() <= 40)
}

fn any_extra() -> impl Strategy<Value = Extra> {
    let blocks = vec(any::<(u32, u32)>(), 0..3).prop_map(|blocks| {
        let mut sack = SackBlocks::default();
        blocks.iter().for_each(|(left, right)| sack.push(*left, *right));
        sack.into()
    });
    let option = (vec(any::<u8>(), 0..=16), any::<bool>())
        .prop_map(|(bytes, is_experimental)| (Cookie::new(&bytes), is_experimental))
        .prop_map(|(cookie, is_experimental)| FastOpen { cookie, is_experimental }.into());
    let counted = (vec(0..1_u32 << 24, 0..=3), any::<bool>(), vec(any::<(u32, u32)>(), 0..=3))
        .prop_map(|(counters, is_one, blocks)| {
            let order = if is_one { EcnOrder::One } else { EcnOrder::Zero };
            let counters = EcnCounters::new(order, &counters);
            Counted { counters, sack: Blocks::of(&blocks) }.into()
        });
    prop_oneof![blocks, option, counted]
}

fn any_repr() -> impl Strategy<Value = Repr> {
    let ports = (1..=u16::MAX, 1..=u16::MAX);
    let numbers = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u16>());
    (ports, numbers, any_options()).prop_map(|(ports, numbers, options)| Repr {
        source_port: ports.0,
        destination_port: ports.1,
        sequence: numbers.0,
        acknowledgement: numbers.1,
        flags: Flags::from_bits(numbers.2),
        window: numbers.3,
        urgent: numbers.4,
        options,
    })
}

proptest! {
    #[test]
    fn round_trip(
        repr in any_repr(),
        payload in vec(any::<u8>(), 0..50),
        v6 in any::<bool>(),
        flip in any::<prop::sample::Index>(),
    ) {
        let (from, to): (IpAddr, IpAddr) = match v6 {
            false => (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into()),
            true => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()),
        };
        let addresses = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Sum::new().with(&from.octets()).with(&to.octets())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Sum::new().with(&from.octets()).with(&to.octets())
            }
            _ => unreachable!(),
        };
        let mut bytes = vec![0xaa; HEADER_LENGTH_MAX];
        let length = repr.emit(&mut bytes);
        prop_assert_eq!(length, repr.length());
        bytes.truncate(length);
        bytes.extend_from_slice(&payload);
        fill_checksum(&mut bytes, addresses);
        let check = Check::Addresses(from, to);
        let view = View::new(&bytes).unwrap();
        prop_assert_eq!(Repr::parse(&view, check), Ok(repr));
        prop_assert_eq!(view.payload(), &payload[..]);

        let bit = flip.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Repr::parse(&View::new(&bytes).unwrap(), check).is_err(), "bit {}", bit);
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(view) = View::new(&bytes) {
            let _ = (view.options(), view.payload());
            if let Ok(repr) = Repr::parse(&view, Check::Skip) {
                // Whatever was skipped, what was understood fits.
                prop_assert!(repr.length() <= HEADER_LENGTH_MAX);
                let mut emitted = [0; HEADER_LENGTH_MAX];
                let length = repr.emit(&mut emitted);
                let again = Repr::parse(&View::new(&emitted[..length]).unwrap(), Check::Skip);
                prop_assert_eq!(again, Ok(repr));
            }
        }
    }

    #[test]
    fn no_options_panic(bytes in vec(any::<u8>(), 0..=40)) {
        prop_assert!(Options::parse(&bytes).length() <= 40);
    }
}

/// A SYN of Linux 6 as it stood on the wire: MSS, SACK permitted, timestamps, window scale.
const LINUX_SYN: &str = "b2 3c 00 50 3e 8c 4b 31 00 00 00 00 a0 02 fa f0 5c 2f 00 00 \
     02 04 05 b4 04 02 08 0a 9a 1d 3e 2c 00 00 00 00 01 03 03 07";

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn a_syn_of_linux() {
    let bytes = bytes(LINUX_SYN);
    let repr = Repr::parse(&View::new(&bytes).unwrap(), Check::Skip).unwrap();
    assert_eq!((repr.source_port, repr.destination_port), (45628, 80));
    assert_eq!((repr.flags, repr.window), (Flags::SYN, 64240));
    assert_eq!(repr.options.maximum_segment_size, Some(1460));
    assert_eq!(repr.options.window_scale, Some(7));
    assert!(repr.options.sack_permitted);
    assert_eq!(repr.options.timestamps, Some(Timestamps { value: 0x9a1d_3e2c, echo: 0 }));
    // The same bytes come out again: options stand where Linux has them.
    let mut emitted = [0; HEADER_LENGTH_MAX];
    let length = repr.emit(&mut emitted);
    emitted[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&bytes[CHECKSUM_AT..CHECKSUM_AT + 2]);
    assert_eq!(emitted[..length], bytes[..]);
}

#[test]
fn what_is_wrong_with_options_ends_them() {
    let size = [2, 4, 5, 0xb4];
    let parse = |tail: &[u8]| Options::parse(&[&size, tail].concat());
    let only_size = Options { maximum_segment_size: Some(1460), ..Options::default() };
    for tail in [
        &[4, 0, 4, 2][..],            // RFC 9293, MUST-7: an illegal length
        &[4, 1, 4, 2],                // shorter than itself
        &[4, 9, 4, 2],                // longer than what is left
        &[8],                         // without a length
        &[0, 4, 2, 0],                // behind the end
        &[3, 2, 1, 1],                // of a wrong length
        &[28, 4, 0x80, 10],           // the user timeout of RFC 5482, which is skipped
        &[30, 4, 0, 0],               // MPTCP
        &[254, 4, 0x12, 0x34],        // an experiment of others
        &[5, 9, 0, 0, 0, 0, 0, 0, 0], // SACK with less than a block
    ] {
        assert_eq!(parse(tail), only_size, "{tail:?}");
    }
    assert!(parse(&[1, 1, 4, 2]).sack_permitted);
    assert_eq!(parse(&[3, 3, 255, 0]).window_scale, Some(14));
    // What comes twice counts as it comes last.
    assert_eq!(parse(&[2, 4, 1, 0]).maximum_segment_size, Some(256));
}

#[test]
fn four_blocks_of_sack_without_timestamps() {
    let mut sack = SackBlocks::default();
    (0..5).for_each(|block| sack.push(block * 10, block * 10 + 5));
    assert_eq!(sack.len(), 4);
    let options = Options { extra: sack.into(), ..Options::default() };
    let mut bytes = [0; 36];
    options.emit(&mut bytes);
    assert_eq!(Options::parse(&bytes), options);
    sack.truncate(1);
    assert_eq!(sack[..], [(0, 5)]);
}

/// RFC 9768, section 3.2.3: counters by the option's kind, as many as it is long.
#[test]
fn counters_stand_in_the_order_of_their_option() {
    let read = |bytes: &[u8]| {
        let options = Options::parse(bytes);
        options.counters().map(|counters| counters.iter().collect::<Vec<_>>())
    };
    let (zero, one, marked) = (Ecn::Capable, Ecn::CapableOne, Ecn::Marked);
    let body = [0, 0, 1, 1, 0, 0, 0xff, 0xff, 0xff];
    let with = |kind: u8, length: u8| [&[kind, length][..], &body, &[1]].concat();
    let all = [1, 0x1_0000, 0xff_ffff];
    let pairs = |marks: [Ecn; 3], count: usize| {
        Some(marks.into_iter().zip(all).take(count).collect::<Vec<_>>())
    };
    assert_eq!(read(&with(172, 11)), pairs([zero, marked, one], 3));
    assert_eq!(read(&with(174, 11)), pairs([one, marked, zero], 3));
    assert_eq!(read(&with(174, 8)), pairs([one, marked, zero], 2));
    // "use those whole 3-octet fields that fit within the length".
    assert_eq!(read(&with(172, 7)), pairs([zero, marked, one], 1));
    assert_eq!(read(&with(172, 12)), pairs([zero, marked, one], 3));
    assert_eq!(read(&[172, 2, 1, 1]), Some(Vec::new()));
    assert_eq!(read(&[173, 2, 1, 1]), None);
}

/// What stands next to counters fills their last word, as with Linux.
#[test]
fn options_next_to_counters_need_no_whole_words() {
    let counters = |count: usize| EcnCounters::new(EcnOrder::One, &[1, 0, 1][..count]);
    let emit = |options: &Options| {
        let mut bytes = vec![0; options.length()];
        options.emit(&mut bytes);
        assert_eq!(Options::parse(&bytes), *options);
        bytes
    };
    let all = [174, 11, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    let alone = Counted { counters: counters(3), ..Counted::default() };
    let bare = Options { extra: alone.into(), ..Options::default() };
    assert_eq!(emit(&bare), [&all[..], &[1]].concat());
    let syn_ack = Options {
        maximum_segment_size: Some(1460),
        window_scale: Some(8),
        sack_permitted: true,
        ..bare
    };
    let tail = [1, 1, 1, 4, 2, 1, 3, 3, 8];
    assert_eq!(emit(&syn_ack), [&[2, 4, 5, 180], &all[..], &tail].concat());
    let timestamps = Some(Timestamps { value: 7, echo: 9 });
    let with_time = Options { timestamps, ..syn_ack };
    let time = [4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
    let tail = [1, 1, 3, 3, 8];
    assert_eq!(emit(&with_time), [&[2, 4, 5, 180], &time[..], &all, &tail].concat());
    let sack = Blocks::of(&[(1, 2)]);
    let block = [5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    for (count, between) in [(3, 3), (2, 2), (1, 1), (0, 0)] {
        let extra = Counted { counters: counters(count), sack }.into();
        let head = [&[174, 2 + 3 * count as u8], &all[2..2 + 3 * count]].concat();
        let expected = [&head, &[1; 3][..between], &block].concat();
        assert_eq!(emit(&Options { extra, ..Options::default() }), expected, "{count}");
    }
}

/// Three blocks next to counters, whichever comes first.
#[test]
fn a_fourth_block_next_to_counters_counts_as_lost() {
    let mut blocks = vec![5, 34];
    (1..=8_u32).for_each(|edge| blocks.extend(edge.to_be_bytes()));
    let counters = [172, 5, 0, 0, 7];
    for bytes in [[&blocks[..], &counters].concat(), [&counters[..], &blocks].concat()] {
        let options = Options::parse(&bytes);
        assert_eq!(options.sack(), [(1, 2), (3, 4), (5, 6)]);
        assert_eq!(options.counters().unwrap().iter().next(), Some((Ecn::Capable, 7)));
    }
    // Fast Open's option of a SYN-ACK leaves no place for counters.
    let options = Options::parse(&[&counters[..], &[34, 2]].concat());
    assert_eq!((options.counters(), options.fast_open().is_some()), (None, true));
}

#[test]
fn a_header_longer_than_its_segment_or_too_short_is_malformed() {
    let mut bytes = bytes(LINUX_SYN);
    for (offset, expected) in [(0xb0, Malformed::Length), (0x40, Malformed::Length)] {
        bytes[12] = offset;
        let view = View::new(&bytes).unwrap();
        assert_eq!(Repr::parse(&view, Check::Skip), Err(expected));
        assert_eq!((view.options(), view.payload()), (&[][..], &[][..]));
    }
    bytes[12] = 0xa0;
    bytes[..2].fill(0);
    let view = View::new(&bytes).unwrap();
    assert_eq!(Repr::parse(&view, Check::Skip), Err(Malformed::Field));
    assert_eq!(View::new(&bytes[..19]).err(), Some(Malformed::Truncated));
}

#[test]
fn flags_are_written_as_tcpdump_does() {
    assert_eq!((Flags::SYN | Flags::ACK).to_string(), "S.");
    assert_eq!((Flags::FIN | Flags::PSH | Flags::ACK).to_string(), "FP.");
    assert_eq!(Flags::from_letter('E'), Some(Flags::ECE));
    assert!((Flags::FIN | Flags::ACK).intersects(Flags::FIN | Flags::SYN));
    assert_eq!((Flags::FIN | Flags::ACK).without(Flags::ACK), Flags::FIN);
}

/// RFC 7413, section 4.1.1: a request has no bytes, a cookie an even number of them from 4 to 16;
/// anything else says nothing.
#[test]
fn cookies_of_fast_open_have_an_even_number_of_bytes_from_four_to_sixteen() {
    for length in 0..=38_usize {
        let mut option = vec![34, 2 + length as u8];
        option.extend(1..=length as u8);
        let parsed = Options::parse(&option).fast_open();
        let is_cookie = [4, 6, 8, 10, 12, 14, 16].contains(&length);
        assert_eq!(parsed.is_some(), is_cookie || length == 0, "{length}");
        let cookie = parsed.and_then(|option| option.cookie);
        assert_eq!(cookie.as_deref(), is_cookie.then_some(&option[2..]), "{length}");
    }
}

#[test]
fn fast_open_stands_behind_all_others_and_is_filled_up() {
    let emit = |is_experimental, cookie: &[u8]| {
        let cookie = Cookie::new(cookie);
        let extra = FastOpen { cookie, is_experimental }.into();
        let options = Options { window_scale: Some(8), extra, ..Options::default() };
        let mut bytes = vec![0xee; options.length()];
        options.emit(&mut bytes);
        assert_eq!(Options::parse(&bytes), options);
        bytes
    };
    let scale = [1, 3, 3, 8];
    assert_eq!(emit(false, &[]), [&scale[..], &[34, 2, 1, 1]].concat());
    assert_eq!(emit(false, &[9; 4]), [&scale[..], &[34, 6, 9, 9, 9, 9, 1, 1]].concat());
    assert_eq!(emit(false, &[9; 6]), [&scale[..], &[34, 8, 9, 9, 9, 9, 9, 9]].concat());
    assert_eq!(emit(true, &[]), [&scale[..], &[254, 4, 0xf9, 0x89]].concat());
    assert_eq!(emit(true, &[9; 4]), [&scale[..], &[254, 8, 0xf9, 0x89, 9, 9, 9, 9]].concat());
}
