//! Fragments of all kinds, against an array of bytes that says what is there.

use super::*;
use crate::Config;
use clearway_base::Random;
use clearway_wire::checksum::pseudo_header_v6;
use clearway_wire::fragment::Place;
use clearway_wire::icmpv4::Echo;
use clearway_wire::{MacAddress, ethernet};
use core::net::Ipv4Addr;

const NOW: Time = Time::from_ns(1000 * SECOND);
const OWN_MAC: MacAddress = [2, 0, 0, 0, 0, 1];
/// The last router before this host.
const MAC: MacAddress = [2, 0, 0, 0, 0, 9];
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// A protocol that nobody judges.
const OPAQUE: u8 = 99;

fn interface(kernel_shares: bool) -> Interface {
    Interface::silent(&Config {
        mac: OWN_MAC,
        addresses: vec![(OWN_V4.into(), 24), (OWN_V6.into(), 64)],
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares,
        router: None,
        receive_checksum: false,
    })
}

/// Who sends, and what the packet is called.
#[derive(Clone, Copy)]
struct Sender {
    is_v4: bool,
    host: u16,
    number: u32,
    protocol: u8,
}

impl Sender {
    const fn v4(host: u16, number: u32) -> Self {
        Self { is_v4: true, host, number, protocol: OPAQUE }
    }

    const fn v6(host: u16, number: u32) -> Self {
        Self { is_v4: false, ..Self::v4(host, number) }
    }

    /// A frame with this part of a packet.
    fn frame(self, offset: usize, part: &[u8], is_last: bool) -> Vec<u8> {
        let ether_type = if self.is_v4 { ether_type::IPV4 } else { ether_type::IPV6 };
        let mut frame = vec![0; 14 + 48 + part.len()];
        ethernet::Repr { destination: OWN_MAC, source: MAC, ether_type }.emit(&mut frame);
        let place = Place { identification: self.number, offset: offset as u16, is_last };
        let (protocol, hop_limit, payload_length) = (self.protocol, 64, part.len() as u16);
        let [high, low] = self.host.to_be_bytes();
        let length = if self.is_v4 {
            let source = Ipv4Addr::new(10, 1, high, low);
            let destination = OWN_V4;
            let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
            place.emit_v4(&ip, &mut frame[14..])
        } else {
            let source = Ipv6Addr::new(0xfd01, 0, 0, self.host, 0, 0, 0, 9);
            let destination = OWN_V6;
            let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
            place.emit_v6(&ip, &mut frame[14..])
        };
        frame[14 + length..][..part.len()].copy_from_slice(part);
        frame.truncate(14 + length + part.len());
        frame
    }

    /// The frames of a packet, in parts of this length.
    fn cut(self, payload: &[u8], part_bytes: usize) -> Vec<Vec<u8>> {
        let count = payload.len().div_ceil(part_bytes);
        let parts = payload.chunks(part_bytes).enumerate();
        parts.map(|(n, part)| self.frame(n * part_bytes, part, n + 1 == count)).collect()
    }
}

fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next_u32() as u8).collect()
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, random.below(index as u64 + 1) as usize);
    }
}

/// What was saved is what goes on, through the same bytes.
fn saved_and_restored(host: Interface, now: Time) -> Interface {
    let saved = host.save();
    let again = interface(false).restore(saved.clone(), now).expect("as it was saved");
    assert_eq!(again.save(), saved);
    again
}

#[test]
fn packets_come_together_in_any_order() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut host = interface(false);
        let mut frames = Vec::new();
        let senders = [Sender::v4(1, 7), Sender::v4(1, 8), Sender::v4(2, 7), Sender::v6(1, 7)];
        let payloads: Vec<Vec<u8>> = senders
            .iter()
            .map(|sender| {
                let length = 1500 + random.below(9000) as usize;
                let payload = random_bytes(&mut random, length);
                let part_bytes = 8 * (20 + random.below(160) as usize);
                frames.extend(sender.cut(&payload, part_bytes));
                payload
            })
            .collect();
        shuffle(&mut random, &mut frames);
        let mut whole = Vec::new();
        for frame in frames {
            for _ in 0..=random.below(2) {
                // Once its packet is whole, one that comes again begins it anew.
                whole.extend(host.handle_fragment(NOW, &frame).expect("nothing is wrong"));
            }
            if random.chance(1, 20) {
                host = saved_and_restored(host, NOW);
            }
        }
        assert_eq!(whole.len(), senders.len(), "seed {seed}");
        for frame in &whole {
            let packet = host.packet(frame).expect("a packet as any other");
            assert_eq!((packet.protocol, packet.source_mac), (OPAQUE, MAC));
            assert!(payloads.iter().any(|payload| payload == packet.payload), "seed {seed}");
        }
    }
}

/// Any parts at all, of one packet: it comes together if and when each byte has come once, and
/// never again once two parts have said something of the same byte.
#[test]
fn what_overlaps_is_given_up_and_the_rest_is_what_was_sent() {
    const LENGTH_MAX: usize = 256;
    let (mut given_up, mut complete) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut host = interface(false);
        let mut there = [None; LENGTH_MAX];
        let mut parts: Vec<(usize, Vec<u8>, bool)> = Vec::new();
        let sender = if random.chance(1, 2) { Sender::v4(1, 1) } else { Sender::v6(1, 1) };
        // Mostly parts of a grid, so that some packets come together.
        let grid = 8 * (1 + random.below(8) as usize);
        let end = grid * (2 + random.below((LENGTH_MAX / grid) as u64 - 1) as usize);
        for _ in 0..40 {
            let offset = grid * random.below((end / grid) as u64) as usize;
            let is_odd = random.chance(1, 40);
            let offset = if is_odd { offset + 8 } else { offset };
            if offset + grid > LENGTH_MAX {
                continue;
            }
            let is_last = offset + grid == end || random.chance(1, 200);
            let part = vec![offset as u8; grid];
            if offset == 0 && is_last {
                continue; // not a fragment
            }
            let is_again = parts.contains(&(offset, part.clone(), is_last));
            let range = offset..offset + grid;
            let contradicts = there[range.clone()].iter().any(Option::is_some)
                || parts.iter().any(|(at, other, was_last)| {
                    let (known, new) = (at + other.len(), range.end);
                    *was_last && (is_last || new > known) || is_last && known > new
                });
            let outcome = host.handle_fragment(NOW, &sender.frame(offset, &part, is_last));
            if is_again {
                assert_eq!(outcome, Ok(None), "seed {seed}");
                continue;
            }
            if contradicts {
                assert_eq!(outcome, Err(DropReason::FragmentOverlap), "seed {seed}");
                let fresh = host.handle_fragment(NOW, &sender.frame(0, &[0; 8], false));
                assert_eq!(fresh, Err(DropReason::FragmentOverlap), "it stays given up");
                assert_eq!(host.drops().of(DropReason::FragmentOverlap), parts.len() as u64);
                host = saved_and_restored(host, NOW);
                assert_eq!(host.handle_fragment(NOW, &sender.frame(0, &[0; 8], false)), fresh);
                given_up += 1;
                break;
            }
            there[range].copy_from_slice(&part.iter().map(|b| Some(*b)).collect::<Vec<_>>());
            parts.push((offset, part, is_last));
            let last = parts.iter().find(|(.., is_last)| *is_last);
            let length = last.map(|(offset, part, _)| offset + part.len());
            let whole =
                length.and_then(|l| there[..l].iter().copied().collect::<Option<Vec<u8>>>());
            let Some(frame) = outcome.expect("it fits") else {
                assert_eq!(whole, None, "seed {seed}");
                continue;
            };
            assert_eq!(host.packet(&frame).expect("a packet").payload, whole.expect("all there"));
            assert!(host.reassembly.packets.is_empty() && host.reassembly.bytes == 0);
            complete += 1;
            break;
        }
    }
    assert!(given_up > 1000 && complete > 1000, "{given_up} given up, {complete} complete");
}

#[test]
fn what_can_be_no_fragment_is_refused() {
    let mut host = interface(false);
    for sender in [Sender::v4(1, 1), Sender::v6(1, 1)] {
        let mut refused = |offset, length, is_last| {
            host.handle_fragment(NOW, &sender.frame(offset, &vec![1; length], is_last)).err()
        };
        assert_eq!(refused(0, 8, true), Some(Malformed::Field.into()), "all of a packet");
        assert_eq!(refused(8, 0, true), Some(Malformed::Length.into()), "nothing");
        assert_eq!(refused(8, 9, false), Some(Malformed::Length.into()), "no multiple of eight");
        assert_eq!(refused(65_528, 9, true), Some(Malformed::Length.into()), "beyond the longest");
    }
    // From whom nothing is taken at all, and to whom nothing is sent.
    let mut frame = Sender::v4(1, 1).frame(0, &[1; 8], false);
    frame[26..30].copy_from_slice(&OWN_V4.octets());
    frame[24..26].fill(0);
    let checksum = clearway_wire::checksum::Sum::new().with(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(host.handle_fragment(NOW, &frame), Err(DropReason::SourceAddress));
    let mut frame = Sender::v6(1, 1).frame(0, &[1; 8], false);
    frame[38] = 0xff;
    assert_eq!(host.handle_fragment(NOW, &frame), Err(Malformed::Fragment.into()), "a group");
    // The kernel has what is for its addresses.
    let frame = Sender::v4(1, 1).frame(0, &[1; 8], false);
    assert_eq!(interface(true).handle_fragment(NOW, &frame), Err(Malformed::Fragment.into()));
    assert!(host.reassembly.packets.is_empty());
}

/// Each part has room behind its own head, and the whole has none behind the first one's.
#[test]
fn a_packet_that_would_be_too_long_is_none() {
    let mut host = interface(false);
    let sender = Sender::v4(1, 1);
    let mut first = sender.frame(0, &[1; 32_768], false);
    // Four bytes of options: their end, four times.
    first.splice(34..34, [0; 4]);
    first[14] = 0x46;
    let length = (first.len() - 14) as u16;
    first[16..18].copy_from_slice(&length.to_be_bytes());
    first[24..26].fill(0);
    let checksum = clearway_wire::checksum::Sum::new().with(&first[14..38]).checksum();
    first[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(host.handle_fragment(NOW, &first), Ok(None));
    let last = sender.frame(32_768, &[1; 65_515 - 32_768], true);
    assert_eq!(host.handle_fragment(NOW, &last), Err(Malformed::Fragment.into()));
}

#[test]
fn marks_are_kept_where_they_make_sense() {
    let frames = |bits: [u8; 2]| {
        let mut frames = Sender::v6(1, 1).cut(&[1; 16], 8);
        frames.iter_mut().zip(bits).for_each(|(frame, bits)| frame[15] |= bits << 4);
        frames
    };
    for (bits, expected) in [
        ([0b10, 0b10], Some(Ecn::Capable)),
        ([0b10, 0b11], Some(Ecn::Marked)),
        ([0b11, 0b01], Some(Ecn::Marked)),
        ([0, 0], Some(Ecn::NotCapable)),
        ([0, 0b11], None),
    ] {
        let mut host = interface(false);
        let taken: Vec<_> =
            frames(bits).iter().map(|frame| host.handle_fragment(NOW, frame)).collect();
        let ecn = taken[1]
            .as_ref()
            .ok()
            .map(|frame| host.packet(frame.as_ref().expect("whole")).expect("a packet").ecn);
        assert_eq!(ecn, expected, "{bits:?}");
    }
}

/// RFC 6980, and a datagram whose checksum no NIC has seen.
#[test]
fn neighbour_discovery_and_damaged_datagrams_are_not_put_together() {
    let mut host = interface(false);
    host.verify_checksums = false;
    let mut advertisement = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    advertisement.extend([0xfd; 16]);
    let sender = Sender { protocol: protocol::ICMPV6, ..Sender::v6(1, 1) };
    let frames = sender.cut(&advertisement, 8);
    let outcomes: Vec<_> = frames.iter().map(|frame| host.handle_fragment(NOW, frame)).collect();
    assert_eq!(outcomes, [Ok(None), Ok(None), Err(Malformed::Fragment.into())]);
    let sender = Sender { protocol: protocol::UDP, ..Sender::v4(1, 1) };
    let datagram = [0, 1, 0, 2, 0, 16, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8];
    let frames = sender.cut(&datagram, 8);
    let outcomes: Vec<_> = frames.iter().map(|frame| host.handle_fragment(NOW, frame)).collect();
    assert_eq!(outcomes, [Ok(None), Err(Malformed::Checksum.into())]);
}

/// A packet whose parts are parts of another never goes round.
#[test]
fn fragments_of_fragments_are_no_packet() {
    let mut host = interface(false);
    let sender = Sender { protocol: 44, ..Sender::v6(1, 1) };
    let inner = [99, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1];
    let frames = sender.cut(&inner, 8);
    let outcomes: Vec<_> = frames.iter().map(|frame| host.handle_fragment(NOW, frame)).collect();
    assert_eq!(outcomes, [Ok(None), Err(Malformed::Fragment.into())]);
}

#[test]
fn the_oldest_go_when_a_bound_is_reached() {
    // Of one source.
    let mut host = interface(false);
    for number in 0..100 {
        let frame = Sender::v4(1, number).frame(0, &[1; 8], false);
        assert_eq!(host.handle_fragment(NOW, &frame), Ok(None));
    }
    assert_eq!(host.reassembly.packets.len(), PACKETS_PER_SOURCE_MAX);
    let pushed_out = 100 - PACKETS_PER_SOURCE_MAX as u64;
    assert_eq!(host.drops().of(DropReason::FragmentPushedOut), pushed_out);
    let newest = Sender::v4(1, 99).frame(8, &[1; 8], true);
    assert!(host.handle_fragment(NOW, &newest).expect("it is there").is_some());
    // Of all: and the other source has kept what it had longest.
    for host_number in 0..1000 {
        let frame = Sender::v6(host_number, 1).frame(0, &[1; 8], false);
        assert_eq!(host.handle_fragment(NOW, &frame), Ok(None));
        assert!(host.reassembly.packets.len() <= PACKETS_MAX);
    }
    assert_eq!(host.reassembly.packets.len(), PACKETS_MAX);
    // In bytes.
    let mut host = interface(false);
    for host_number in 0..60 {
        let frame = Sender::v4(host_number, 1).frame(0, &[1; 60_000], false);
        assert_eq!(host.handle_fragment(NOW, &frame), Ok(None));
        assert!(host.reassembly.bytes <= BYTES_MAX);
    }
    assert!(host.reassembly.packets.len() >= 15 && host.reassembly.bytes > BYTES_MAX / 2);
    // Fragments of one.
    let mut host = interface(false);
    let outcomes = (0..200).map(|n| {
        let frame = Sender::v4(1, 1).frame(8 + 16 * n, &[1; 8], false);
        host.handle_fragment(NOW, &frame).is_ok()
    });
    assert_eq!(outcomes.filter(|is_ok| *is_ok).count(), FRAGMENTS_MAX);
    assert_eq!(host.reassembly.bytes, 0);
}

fn frames_of(host: &mut Interface) -> Vec<Vec<u8>> {
    let mut frame = [0; 2048];
    core::iter::from_fn(|| match host.poll_transmit(&mut frame) {
        0 => None,
        length => Some(frame[..length].to_vec()),
    })
    .collect()
}

#[test]
fn senders_are_told_when_the_rest_does_not_come() {
    for sender in [Sender::v4(1, 1), Sender::v6(1, 1)] {
        let mut host = interface(false);
        let first = sender.frame(0, &[7; 1400], false);
        assert_eq!(host.handle_fragment(NOW, &first), Ok(None));
        let due = host.poll_timeout().expect("it waits");
        assert_eq!(due.since(NOW), TIMEOUT_NS);
        let mut host = saved_and_restored(host, NOW);
        assert_eq!(host.poll_timeout(), Some(due));
        host.handle_timeout(due);
        assert_eq!(host.drops().of(DropReason::FragmentTimeout), 1);
        assert_eq!(host.poll_timeout(), None);
        let frames = frames_of(&mut host);
        let [frame] = &frames[..] else { panic!("{} frames", frames.len()) };
        assert_eq!(frame[..6], MAC);
        // The sender hears of its own packet.
        let packet = interface(false).packet_from_anywhere(frame).expect("a packet").payload;
        assert_eq!(packet[1], 1, "fragment reassembly time exceeded");
        assert_eq!(packet[0], if sender.is_v4 { 11 } else { 3 });
        let quote = &packet[8..];
        assert_eq!(quote, &first[14..][..quote.len()]);
        assert!(quote.len() >= 500);
    }
}

#[test]
fn nobody_is_told_of_an_error_nor_without_the_first_fragment() {
    let error_v4 = Sender { protocol: protocol::ICMPV4, ..Sender::v4(1, 1) };
    let error_v6 = Sender { protocol: protocol::ICMPV6, ..Sender::v6(1, 1) };
    let cases = [
        Sender::v4(1, 1).frame(8, &[1; 8], false),
        error_v4.frame(0, &[3; 8], false),
        error_v6.frame(0, &[1; 8], false),
    ];
    let mut host = interface(false);
    for frame in &cases {
        assert_eq!(host.handle_fragment(NOW, frame), Ok(None));
    }
    // Nor of one that is given up.
    for part in [[1; 8], [2; 8]] {
        let _ = host.handle_fragment(NOW, &Sender::v4(9, 9).frame(0, &part, false));
    }
    host.handle_timeout(NOW + TIMEOUT_NS);
    assert_eq!(host.drops().of(DropReason::FragmentTimeout), cases.len() as u64);
    assert!(frames_of(&mut host).is_empty());
}

/// An echo request of any length is answered with all that it brought.
#[test]
fn long_echoes_are_answered_in_fragments() {
    for (length, is_v4) in
        [1472, 1473, 4000, 20_000].into_iter().flat_map(|l| [(l, true), (l, false)])
    {
        let (mut host, mut asker) = (interface(false), interface(false));
        let data = random_bytes(&mut Random::new(length as u64), length);
        let echo = Echo { identifier: 77, sequence: 3, data: &data };
        let mut message = vec![0; length + 8];
        let mut sender = if is_v4 { Sender::v4(1, 5) } else { Sender::v6(1, 5) };
        if is_v4 {
            sender.protocol = protocol::ICMPV4;
            icmpv4::Repr::EchoRequest(echo).emit(&mut message);
        } else {
            sender.protocol = protocol::ICMPV6;
            let asker = Ipv6Addr::new(0xfd01, 0, 0, 1, 0, 0, 0, 9);
            icmpv6::Repr::EchoRequest(echo).emit(&mut message, asker, OWN_V6);
        }
        let mut whole = None;
        for frame in sender.cut(&message, 1440) {
            whole = host.handle_fragment(NOW, &frame).expect("nothing is wrong");
        }
        assert_eq!(host.handle_icmp(NOW, &whole.expect("all of it")), Ok(None));
        let answers = frames_of(&mut host);
        let is_cut = length + 8 > if is_v4 { 1480 } else { 1460 };
        assert_eq!(answers.len() > 1, is_cut, "{length} bytes, IPv4 {is_v4}");
        assert!(answers.iter().all(|frame| frame.len() <= 1514));
        let answer = put_together(&mut asker, &answers);
        let packet = asker.packet_from_anywhere(&answer).expect("a packet");
        assert_eq!(packet.payload[8..], data, "{length} bytes, IPv4 {is_v4}");
        if let (IpAddr::V6(from), IpAddr::V6(to)) = (packet.source, packet.destination) {
            let length = packet.payload.len() as u32;
            let sum = pseudo_header_v6(from, to, protocol::ICMPV6, length).with(packet.payload);
            assert!(sum.is_right());
        }
    }
    // More than has room among what waits.
    let mut host = interface(false);
    let sender = Sender { protocol: protocol::ICMPV4, ..Sender::v4(1, 5) };
    let mut message = vec![0; 60_000];
    let echo = Echo { identifier: 1, sequence: 1, data: &[0; 59_992] };
    icmpv4::Repr::EchoRequest(echo).emit(&mut message);
    let frames = sender.cut(&message, 1440);
    let whole = frames.iter().find_map(|frame| host.handle_fragment(NOW, frame).expect("sound"));
    let whole = whole.expect("all of it");
    let outcome = host.handle_icmp(NOW, &whole);
    assert_eq!(outcome, Err(DropReason::OutboxFull));
    assert!(frames_of(&mut host).is_empty(), "all of an answer, or nothing");
}

/// What the asker makes of an answer, whose address is another's here.
fn put_together(asker: &mut Interface, frames: &[Vec<u8>]) -> Vec<u8> {
    if let [frame] = frames {
        return frame.clone();
    }
    let whole = frames.iter().find_map(|frame| {
        let (ip_at, part) = parse(frame, true).expect("a fragment");
        match asker.reassembly.take(NOW, frame, ip_at, &part).0 {
            Taken::Whole(frame) => Some(frame),
            taken => {
                assert_eq!(taken, Taken::Kept);
                None
            }
        }
    });
    whole.expect("all of it")
}

/// No saved state brings back what could not have been.
#[test]
fn only_what_can_be_is_restored() {
    type Change<'a> = &'a dyn Fn(&mut Vec<Making>);
    let mut host = interface(false);
    for frame in [
        Sender::v4(1, 1).frame(0, &[1; 16], false),
        Sender::v4(1, 1).frame(32, &[1; 16], true),
        Sender::v6(1, 1).frame(16, &[1; 16], false),
    ] {
        assert_eq!(host.handle_fragment(NOW, &frame), Ok(None));
    }
    let good = host.reassembly.save();
    let restored = |change: Change<'_>| {
        let mut saved = good.clone();
        change(&mut saved);
        Reassembly::restore(saved, NOW).map(|again| again.bytes)
    };
    assert_eq!(restored(&|_| ()), Ok(host.reassembly.bytes));
    let changes: [Change<'_>; 14] = [
        &|saved| saved[0].parts[1].offset = 8,
        &|saved| saved[0].parts[1].offset = 1 << 20,
        &|saved| saved[0].parts[1].offset = usize::MAX,
        &|saved| saved[0].parts[1].bytes.clear(),
        &|saved| saved[0].parts.clear(),
        &|saved| saved[0].is_given_up = true,
        &|saved| saved[0].end = Some(32),
        &|saved| saved[0].end = Some(96),
        &|saved| saved[0].head.clear(),
        &|saved| saved[0].head[30] ^= 1,
        &|saved| saved[0].ip_at = 99,
        &|saved| saved[1].head.push(1),
        &|saved| saved[1] = saved[0].clone(),
        &|saved| saved[1].since = Time::ZERO,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(restored(change).is_err(), "change {number}");
    }
    assert!(Reassembly::restore(vec![good[0].clone(); PACKETS_MAX + 1], NOW).is_err());
}
