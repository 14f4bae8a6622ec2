//! What is merged comes out as it was, what kernels merge comes out as they would have cut it, and
//! no bytes whatsoever do harm.

use std::net::{Ipv4Addr, Ipv6Addr};

use clearway_base::Random;
use clearway_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use clearway_wire::{ipv4, ipv6, protocol, udp};

use super::layout::Layout;
use super::{Cut, Merge, Offload, Verdict, coalesced, complete, settle};
use crate::{Checksums, test_frames};

const FROM_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TO_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FROM_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const TO_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// More than any frame of these tests has.
const NO_LIMIT: usize = 1 << 20;
/// Flags of segments.
const FIN: u8 = 0x1;
const PSH: u8 = 0x8;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// An IP packet in a frame with these tags, with "don't fragment" and right checksums.
fn frame(tags: &[(u16, u16)], is_v4: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; if is_v4 { 20 } else { 40 }];
    let (payload_length, hop_limit) = (transport.len() as u16, 64);
    if is_v4 {
        let (source, destination) = (FROM_V4, TO_V4);
        ipv4::Repr { source, destination, protocol, hop_limit, payload_length }.emit(&mut packet);
    } else {
        let (source, destination) = (FROM_V6, TO_V6);
        ipv6::Repr { source, destination, protocol, hop_limit, payload_length }.emit(&mut packet);
    }
    packet.extend(transport);
    test_frames::ethernet(tags, if is_v4 { 0x0800 } else { 0x86dd }, &packet)
}

fn pseudo_header(is_v4: bool, protocol: u8, length: usize) -> Sum {
    if is_v4 {
        pseudo_header_v4(FROM_V4, TO_V4, protocol, length as u16)
    } else {
        pseudo_header_v6(FROM_V6, TO_V6, protocol, length as u32)
    }
}

/// UDP without a checksum over IPv4, as Clearway sends it, and with one over IPv6.
fn datagram(tags: &[(u16, u16)], is_v4: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 8];
    let payload_length = payload.len() as u16;
    udp::Repr { source_port: 50_000, destination_port: 20_707, payload_length }.emit(&mut packet);
    packet.extend(payload);
    if !is_v4 {
        let sum = pseudo_header(false, protocol::UDP, packet.len()).with(&packet);
        packet[6..8].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }
    frame(tags, is_v4, protocol::UDP, &packet)
}

fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next_u32() as u8).collect()
}

/// The super-frame of the first of `frames`, and of how many it is.
fn merged(frames: &[Vec<u8>]) -> Option<(Offload, Vec<u8>, usize)> {
    let mut merge = Merge::new(&frames[0])?;
    let more = frames[1..]
        .iter()
        .take_while(|next| merge.add(&frames[0], next, NO_LIMIT, NO_LIMIT))
        .count();
    assert_eq!(merge.frames(), 1 + more);
    let mut bytes = vec![0; merge.header_bytes()];
    let offload = merge.put_headers(&frames[0], &mut bytes);
    frames[..=more].iter().for_each(|frame| bytes.extend(&frame[merge.header_bytes()..]));
    Some((offload, bytes, 1 + more))
}

fn cut(offload: &Offload, bytes: &[u8]) -> Vec<Vec<u8>> {
    let cut = Cut::new(offload, bytes, bytes.len()).expect("it can be cut");
    let payload = &bytes[cut.header_bytes()..];
    (0..cut.frames())
        .map(|index| {
            let mut frame = vec![0xa5; cut.header_bytes()];
            frame.extend(&payload[cut.segment(index)]);
            cut.put_headers(index, &mut frame);
            frame
        })
        .collect()
}

#[test]
fn what_is_merged_comes_out_as_it_was() {
    let mut random = Random::new(7);
    for round in 0..2000 {
        let is_v4 = random.chance(1, 2);
        let tags = &[(0x88a8, 7), (0x8100, 0x6005)][random.below(3) as usize..];
        let size_max = if random.chance(1, 4) { 9000 } else { 1500 };
        let size = 1 + random.below(size_max) as usize;
        let count = 2 + random.below(40.min(50_000 / size as u64)) as usize;
        let mut frames: Vec<_> =
            (1..count).map(|_| datagram(tags, is_v4, &random_bytes(&mut random, size))).collect();
        let last = 1 + random.below(size as u64) as usize;
        frames.push(datagram(tags, is_v4, &random_bytes(&mut random, last)));
        let (offload, bytes, merged) = merged(&frames).expect("they can be merged");
        assert_eq!(merged, count, "round {round}");
        assert_eq!(cut(&offload, &bytes), frames, "round {round}");

        // To somebody who does not cut, it is one large datagram with a right checksum.
        let mut whole = bytes;
        assert!(complete(&offload, &mut whole, 0));
        let packet = &whole[14 + 4 * tags.len() + if is_v4 { 20 } else { 40 }..];
        let sum = pseudo_header(is_v4, protocol::UDP, packet.len()).with(packet);
        assert!(if is_v4 { packet[6..8] == [0, 0] } else { sum.is_right() }, "round {round}");
    }
}

#[test]
fn only_what_is_alike_is_merged() {
    let first = datagram(&[], true, &[1; 100]);
    let count = |next: &[u8]| {
        let frames = [first.clone(), next.to_vec(), first.clone()];
        merged(&frames).map_or(1, |(_, _, frames)| frames)
    };
    let changed = |at: usize, to: u8| {
        let mut frame = first.clone();
        frame[at] = to;
        frame
    };
    assert_eq!(count(&first), 3);
    assert_eq!(count(&datagram(&[], true, &[1; 99])), 2, "a shorter one is the last");
    assert_eq!(count(&datagram(&[], true, &[1; 101])), 1);
    assert_eq!(count(&datagram(&[], true, &[])), 1);
    assert_eq!(count(&datagram(&[(0x8100, 5)], true, &[1; 100])), 1);
    assert_eq!(count(&datagram(&[], false, &[1; 100])), 1);
    assert_eq!(count(&changed(15, 3)), 1, "marked as having met congestion");
    assert_eq!(count(&changed(22, 9)), 1, "another hop limit");
    assert_eq!(count(&changed(29, 9)), 1, "from somebody else");
    assert_eq!(count(&changed(37, 9)), 1, "to another port");
    assert_eq!(count(&changed(41, 9)), 1, "with a checksum, where the first has none");
    assert_eq!(count(&[&first[..], &[0, 0]].concat()), 1, "padded");
    for other in [
        changed(20, 0),    // may be fragmented
        changed(20, 0x60), // a fragment
        changed(23, 6),    // TCP, but its header
        changed(14, 0x46), // with options
        changed(17, 1),    // of another length than it says
        changed(39, 1),    // the same of UDP
        datagram(&[], true, &[]),
    ] {
        assert_eq!(Merge::new(&other), None, "{other:x?}");
    }
}

#[test]
fn limits_are_kept() {
    let frames = vec![datagram(&[], true, &[1; 1000]); 80];
    let count = |bytes_max, frames_max| {
        let mut merge = Merge::new(&frames[0]).expect("it can be merged");
        while merge.add(&frames[0], &frames[1], bytes_max, frames_max) {}
        merge.frames()
    };
    assert_eq!(count(NO_LIMIT, 64), 64);
    assert_eq!(count(NO_LIMIT, NO_LIMIT), 65, "a packet has at most 65,535 bytes");
    assert_eq!(count(3042, NO_LIMIT), 3);
    assert_eq!(count(3041, NO_LIMIT), 2);
    assert_eq!(count(NO_LIMIT, 1), 1);
}

/// A segment of a stream at `sequence`, with a right checksum.
fn segment(is_v4: bool, flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [9999_u16.to_be_bytes(), 80_u16.to_be_bytes()].concat();
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([1, 2, 3, 4, 0x80, flags, 0x20, 0, 0, 0, 0, 0]);
    bytes.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]); // timestamps
    bytes.extend(payload);
    let sum = pseudo_header(is_v4, protocol::TCP, bytes.len()).with(&bytes);
    bytes[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    frame(&[(0x8100, 9)], is_v4, protocol::TCP, &bytes)
}

#[test]
fn streams_are_cut_where_segments_end() {
    for (is_v4, kind) in [(true, Offload::TCP_V4), (false, Offload::TCP_V6)] {
        let payload = random_bytes(&mut Random::new(3), 2500);
        let start = u32::MAX - 1200; // and wraps
        let whole = segment(is_v4, CWR | ECE | ACK | PSH | FIN, start, &payload);
        let offload =
            Offload { kind: kind | Offload::ECN, segment_bytes: 1000, ..Offload::default() };
        let expected = [
            segment(is_v4, CWR | ECE | ACK, start, &payload[..1000]),
            segment(is_v4, ECE | ACK, start.wrapping_add(1000), &payload[1000..2000]),
            segment(is_v4, ECE | ACK | PSH | FIN, start.wrapping_add(2000), &payload[2000..]),
        ];
        assert_eq!(cut(&offload, &whole), expected);
        let other = if is_v4 { Offload::TCP_V6 } else { Offload::TCP_V4 };
        for kind in [other, Offload::UDP, 3, 77] {
            assert_eq!(Cut::new(&Offload { kind, ..offload }, &whole, whole.len()), None);
        }
        let of_nothing = Offload { segment_bytes: 0, ..offload };
        assert_eq!(Cut::new(&of_nothing, &whole, whole.len()), None);
        assert_eq!(Cut::new(&offload, &whole, 70_000), None, "more than a packet has");
    }
}

#[test]
fn segments_that_are_merged_come_out_as_they_were() {
    let mut random = Random::new(9);
    for round in 0..1000 {
        let is_v4 = random.chance(1, 2);
        let size = 1 + random.below(1500) as usize;
        let count = 2 + random.below(40.min(50_000 / size as u64)) as usize;
        let (start, flags) = (random.next_u32() | 0xffff_0000, [ACK, ECE | ACK][round % 2]);
        let at = |index: usize| start.wrapping_add((index * size) as u32);
        let mut frames: Vec<_> = (0..count - 1)
            .map(|index| segment(is_v4, flags, at(index), &random_bytes(&mut random, size)))
            .collect();
        let last_size = 1 + random.below(size as u64) as usize;
        let last = random_bytes(&mut random, last_size);
        let end = random.next_u32() as u8 & (PSH | FIN);
        frames.push(segment(is_v4, flags | end, at(count - 1), &last));
        let (offload, bytes, merged) = merged(&frames).expect("they can be merged");
        assert_eq!(merged, count, "round {round}");
        assert_eq!(offload.kind, if is_v4 { Offload::TCP_V4 } else { Offload::TCP_V6 });
        assert_eq!(cut(&offload, &bytes), frames, "round {round}");

        // To somebody who does not cut, it is one large segment with a right checksum.
        let mut whole = bytes;
        assert!(complete(&offload, &mut whole, 0));
        let packet = &whole[18 + if is_v4 { 20 } else { 40 }..];
        let sum = pseudo_header(is_v4, protocol::TCP, packet.len()).with(packet);
        assert!(sum.is_right(), "round {round}");
    }
}

#[test]
fn only_segments_that_follow_are_merged() {
    let first = segment(true, ACK, 500, &[1; 100]);
    let third = segment(true, ACK, 700, &[1; 100]);
    let count = |next: &[u8]| {
        let frames = [first.clone(), next.to_vec(), third.clone()];
        merged(&frames).map_or(1, |(_, _, frames)| frames)
    };
    let next = |flags| segment(true, flags, 600, &[1; 100]);
    let changed = |at: usize, to: u8| {
        let mut frame = next(ACK);
        frame[at] = to;
        frame
    };
    assert_eq!(count(&next(ACK)), 3);
    assert_eq!(count(&next(ACK | PSH)), 2, "what is to be handed on is the last");
    assert_eq!(count(&next(ACK | FIN)), 2, "so is the end");
    for flags in [0, ACK | ECE, ACK | CWR, ACK | 2, ACK | 4, ACK | 0x20] {
        assert_eq!(count(&next(flags)), 1, "other flags: {flags:x}");
    }
    assert_eq!(count(&segment(true, ACK, 601, &[1; 100])), 1, "not what comes next");
    assert_eq!(count(&segment(true, ACK, 500, &[1; 100])), 1, "again");
    assert_eq!(count(&changed(41, 81)), 1, "to another port");
    assert_eq!(count(&changed(49, 9)), 1, "another acknowledgement");
    assert_eq!(count(&changed(50, 0x81)), 1, "a flag of those that are not spoken of");
    assert_eq!(count(&changed(50, 0x70)), 1, "a shorter header");
    assert_eq!(count(&changed(53, 9)), 1, "another window");
    assert_eq!(count(&changed(57, 9)), 1, "an urgent pointer");
    assert_eq!(count(&changed(69, 9)), 1, "another option");
    for flags in [ACK | PSH, ACK | FIN, ACK | CWR, ACK | 2, ACK | 4, ACK | 0x20] {
        assert_eq!(Merge::new(&next(flags)), None, "{flags:x} is the last, or alone");
    }
    assert_eq!(Merge::new(&changed(50, 0x81)), None);
    assert_eq!(Merge::new(&segment(true, ACK, 600, &[])), None, "an acknowledgement only");
}

#[test]
fn packets_that_may_be_fragmented_are_numbered() {
    let mut whole = datagram(&[], true, &[1; 250]);
    (whole[18], whole[19], whole[20]) = (0xff, 0xff, 0);
    let offload = Offload { kind: Offload::UDP, segment_bytes: 100, ..Offload::default() };
    let frames = cut(&offload, &whole);
    let numbers: Vec<_> =
        frames.iter().map(|frame| u16::from_be_bytes([frame[18], frame[19]])).collect();
    assert_eq!(numbers, [0xffff, 0, 1]);
    assert!(frames.iter().all(|frame| Sum::new().with(&frame[14..34]).is_right()));
}

#[test]
fn checksums_are_completed() {
    let mut random = Random::new(11);
    for round in 0..1000 {
        let (is_v4, is_tcp) = (random.chance(1, 2), random.chance(1, 2));
        let length = random.below(2000) as usize;
        let payload = random_bytes(&mut random, length);
        let tags: &[(u16, u16)] = if random.chance(1, 2) { &[(0x8100, 3)] } else { &[] };
        let (right, protocol, offset) = if is_tcp {
            (segment(is_v4, 0x18, 5, &payload), protocol::TCP, 16)
        } else {
            (datagram(tags, is_v4, &payload), protocol::UDP, 6)
        };
        let tag_bytes = if is_tcp { 4 } else { 4 * tags.len() };
        let start = 14 + tag_bytes + if is_v4 { 20 } else { 40 };
        let mut partial = right.clone();
        let pseudo = pseudo_header(is_v4, protocol, right.len() - start);
        partial[start + offset..][..2].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
        let offload = Offload {
            flags: Offload::NEEDS_CHECKSUM,
            checksum_start: (start - tag_bytes) as u16,
            checksum_offset: offset as u16,
            ..Offload::default()
        };
        assert!(complete(&offload, &mut partial, tag_bytes));
        assert_eq!(partial, right, "round {round}");
        assert!(complete(&Offload::default(), &mut partial, tag_bytes));
        assert_eq!(partial, right, "none is missing");
    }
}

/// What is missing is filled in, whatever a frame is padded with, and nothing else is touched.
#[test]
fn what_a_nic_has_not_filled_in_is() {
    let mut random = Random::new(13);
    for round in 0..1000 {
        let (is_v4, is_tcp) = (random.chance(1, 2), random.chance(1, 2));
        let length = random.below(100) as usize;
        let payload = random_bytes(&mut random, length);
        let (mut right, ip_at, offset) = if is_tcp {
            (segment(is_v4, ACK, 5, &payload), 18, 16)
        } else {
            (datagram(&[], is_v4, &payload), 14, 6)
        };
        let transport_at = ip_at + if is_v4 { 20 } else { 40 };
        let padding_length = random.below(40) as usize;
        right.extend(random_bytes(&mut random, padding_length));
        let mut frame = right.clone();
        frame[transport_at + offset] ^= 0x5a;
        let ip = if is_v4 && random.chance(1, 2) {
            frame[ip_at + 10] ^= 0x5a;
            Verdict::Missing
        } else {
            [Verdict::Right, Verdict::Unknown][round % 2]
        };
        assert_eq!(settle(&mut frame, ip, Verdict::Missing), Checksums::Right, "round {round}");
        assert_eq!(frame, right, "round {round}");
        if ip == Verdict::Missing {
            frame[ip_at + 10] ^= 0x5a;
        }
        assert_eq!(settle(&mut frame, ip, Verdict::Unknown), Checksums::Unknown);
        assert_eq!(frame, right, "its IP header is known, and its payload is not");
    }
}

#[test]
fn only_what_a_nic_has_verified_is_known_to_be_right() {
    let verdict = |frame: &[u8], ip, transport| {
        let mut settled = frame.to_vec();
        let checksums = settle(&mut settled, ip, transport);
        assert_eq!(settled, frame, "nothing was missing");
        checksums
    };
    use Verdict::{Right, Unknown};
    for frame in [datagram(&[(0x8100, 5)], true, &[1; 30]), segment(false, ACK, 1, &[2; 30])] {
        assert_eq!(verdict(&frame, Right, Right), Checksums::Right);
        assert_eq!(verdict(&frame, Unknown, Right), Checksums::Right, "IPv4's is looked at");
        assert_eq!(verdict(&frame, Right, Unknown), Checksums::Unknown);
        assert_eq!(verdict(&frame, Unknown, Unknown), Checksums::Unknown);
        let short = &frame[..frame.len() - 1];
        assert_eq!(verdict(short, Unknown, Right), Checksums::Unknown, "a part of a packet");
    }
    let mut wrong = datagram(&[], true, &[1; 30]);
    wrong[24] ^= 1;
    assert_eq!(verdict(&wrong, Unknown, Right), Checksums::Unknown);
    let mut fragment = datagram(&[], true, &[1; 30]);
    fragment[20] = 0x20;
    assert_eq!(verdict(&fragment, Unknown, Right), Checksums::Unknown);
}

#[test]
fn headers_in_between_are_seen() {
    let tcp = &segment(false, ACK, 1, &[2; 30])[58..];
    let options = [protocol::TCP, 0, 1, 4, 0, 0, 0, 0];
    let extended = frame(&[], false, 60, &[&options[..], tcp].concat());
    let has_extensions =
        |frame: &[u8]| Layout::of(frame).expect("it is TCP or UDP").has_extensions();
    assert!(has_extensions(&extended));
    assert!(!has_extensions(&frame(&[], false, protocol::TCP, tcp)));
    assert!(!has_extensions(&datagram(&[(0x8100, 5)], true, &[1; 30])));
}

#[test]
fn what_a_nic_has_put_together_is_cut() {
    let payload = random_bytes(&mut Random::new(3), 2500);
    let whole = segment(true, ACK | PSH, 77, &payload);
    let frames = |segment_bytes| {
        let said = coalesced(&whole, whole.len() + 3, segment_bytes, 1514);
        let (offload, end) = said.expect("it can be parted");
        assert_eq!(end, whole.len(), "what follows is padding");
        cut(&offload, &whole).iter().map(|frame| frame.len() - 70).collect::<Vec<_>>()
    };
    assert_eq!(frames(1000), [1000, 1000, 500]);
    assert_eq!(frames(0), [1514 - 70, 2500 - (1514 - 70)], "as long as frames may be");
    assert_eq!(coalesced(&whole, whole.len() - 1, 1000, 1514), None, "a part of it");
    let datagrams = datagram(&[], false, &payload);
    let said = |segment_bytes| coalesced(&datagrams, datagrams.len(), segment_bytes, 1514);
    let (offload, _) = said(900).expect("it can be parted");
    assert_eq!(cut(&offload, &datagrams).len(), 3);
    let (offload, _) = said(0).expect("it is a datagram");
    assert_eq!(Cut::new(&offload, &datagrams, datagrams.len()), None, "a long one");
}

#[test]
fn no_bytes_do_harm() {
    let mut random = Random::new(5);
    let mut cuts = 0;
    for _ in 0..100_000 {
        let mut offload = Offload::from_bytes(std::array::from_fn(|_| random.next_u32() as u8));
        assert_eq!(Offload::from_bytes(offload.to_bytes()), offload);
        if random.chance(3, 4) {
            offload.kind = [0, 1, 4, 5][random.below(4) as usize];
            offload.segment_bytes = random.below(40) as u16;
            offload.checksum_start = random.below(100) as u16;
            offload.checksum_offset = random.below(20) as u16;
        }
        let mut frame = test_frames::random(&mut random);
        if let Some(whole) = Cut::new(&offload, &frame, frame.len()) {
            let header_bytes = whole.header_bytes();
            let frames = cut(&offload, &frame);
            let bytes: usize = frames.iter().map(|cut| cut.len() - header_bytes).sum();
            assert_eq!(bytes, frame.len() - header_bytes, "all of it, and once");
            cuts += 1;
        }
        merged(&[frame.clone(), frame.clone()]);
        let segment_bytes = random.below(100) as u16;
        let said = coalesced(&frame, frame.len(), segment_bytes, 1514);
        said.map(|(offload, end)| Cut::new(&offload, &frame[..end], end));
        let _ = complete(&offload, &mut frame, 0);
        let all = [Verdict::Unknown, Verdict::Right, Verdict::Missing];
        let [ip, transport] = std::array::from_fn(|_| all[random.below(3) as usize]);
        settle(&mut frame, ip, transport);
    }
    assert!(cuts > 1000, "only {cuts} of them were super-frames");
}
