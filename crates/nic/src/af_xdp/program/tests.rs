//! The kernel runs the program on frames of our making (`BPF_PROG_TEST_RUN`), and what it says of
//! them is compared with what `clearway_wire::digest` says. Needs root; says so and passes
//! otherwise.

use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::time::Duration;

use aya::programs::{TestRun, TestRunOptions};
use clearway_base::Random;
use clearway_wire::checksum::{pseudo_header_v4, pseudo_header_v6};
use clearway_wire::digest::{Digest, Field, fields};

use super::*;
use crate::af_xdp::socket::{Layout, Socket};
use crate::ebpf::{Memory, ThisProcess};
use crate::test_frames as frames;

const XDP_REDIRECT: u32 = 4;

/// A loaded program with a socket to redirect to, which is bound to no interface.
struct AtWork {
    loaded: Loaded,
    program: Program,
    _socket: Socket,
}

impl AtWork {
    fn new() -> Option<AtWork> {
        let loaded = match Loaded::new(false) {
            Ok(loaded) => loaded,
            Err(Error::Permission(text)) => {
                println!("skipped: {text}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let mut program = loaded.tables().and_then(Program::new).expect("its tables");
        let layout = Layout::new(256, 1514);
        let memory = Memory { bytes: layout.umem_bytes(), chunk_bytes: layout.chunk_bytes };
        let socket = ThisProcess::xdp_socket_with(memory).expect("root may make one");
        let socket = Socket::new(socket, layout).expect("there is memory for it");
        program.set_socket(0, socket.as_fd()).expect("there is a slot for it");
        Some(AtWork { loaded, program, _socket: socket })
    }

    fn redirects(&mut self, frame: &[u8]) -> bool {
        self.run(frame, 1).0 == XDP_REDIRECT
    }

    fn run(&mut self, frame: &[u8], repeat: u32) -> (u32, Duration) {
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::new() };
        let Loaded { ebpf, function } = &mut self.loaded;
        let result = xdp_program(ebpf, function).test_run(options).expect("it runs");
        (result.return_value, result.duration)
    }

    fn add(&mut self, pattern: &SteerPattern) {
        self.program.patterns.insert(pattern).expect("there is room");
    }

    fn remove(&mut self, pattern: &SteerPattern) {
        self.program.patterns.remove(pattern).expect("it is there");
    }
}

fn matches(pattern: &SteerPattern, frame: &[u8]) -> bool {
    let digest = Digest::of(frame);
    let words = pattern.mask().iter().zip(pattern.value()).zip(digest.words());
    words.take(7).all(|((mask, value), word)| word & mask == *value)
}

/// Matches the frames that look the same in all bits of these words.
fn alike(mask: [u64; 7], frame: &[u8]) -> SteerPattern {
    let mut whole = [0; 8];
    whole[..7].copy_from_slice(&mask);
    SteerPattern::new(whole, *Digest::of(frame).words()).expect("the eighth word is left out")
}

const FIELDS: [Field; 16] = [
    fields::DESTINATION_PORT,
    fields::SOURCE_PORT,
    fields::PROTOCOL,
    fields::NETWORK,
    fields::NETWORK_IP,
    fields::FIRST_FRAGMENT,
    fields::LAYER,
    fields::ETHER_TYPE,
    fields::MAC_DESTINATION,
    fields::TAGGED,
    fields::VLAN_ID,
    fields::IPV4_DESTINATION,
    fields::IPV4_SOURCE,
    fields::IPV6_DESTINATION_HIGH,
    fields::IPV6_DESTINATION_LOW,
    fields::ARP_TARGET,
];

fn random_mask(random: &mut Random) -> [u64; 7] {
    let mut mask = [0; 7];
    for _ in 0..1 + random.below(5) {
        let field = FIELDS[random.below(FIELDS.len() as u64) as usize];
        mask[field.word] |= field.mask();
    }
    mask
}

#[test]
fn the_program_has_the_digest_of_the_engine() {
    let Some(mut loaded) = AtWork::new() else { return };
    let mut random = Random::new(7);
    let frames: Vec<_> = (0..6000).map(|_| frames::random(&mut random)).collect();
    let mut known: Vec<_> =
        frames.iter().step_by(2).map(|frame| alike([u64::MAX; 7], frame)).collect();
    known.sort_unstable();
    known.dedup();
    known.iter().for_each(|pattern| loaded.add(pattern));
    let mut count = 0;
    for frame in &frames {
        let expected = known.binary_search(&alike([u64::MAX; 7], frame)).is_ok();
        count += usize::from(!expected);
        assert_eq!(loaded.redirects(frame), expected, "{:x?}: {frame:02x?}", Digest::of(frame));
    }
    assert!(count > 300, "{count} frames are unknown");
    known.iter().for_each(|pattern| loaded.remove(pattern));
    assert!(frames.iter().take(100).all(|frame| !loaded.redirects(frame)));
}

#[test]
fn any_pattern_that_matches_is_enough() {
    let Some(mut loaded) = AtWork::new() else { return };
    let mut random = Random::new(11);
    let mut patterns: Vec<SteerPattern> = Vec::new();
    let mut redirected = 0;
    for _ in 0..40 {
        let mask = match patterns.first() {
            Some(known) if random.chance(1, 2) => std::array::from_fn(|word| known.mask()[word]),
            _ => random_mask(&mut random),
        };
        let pattern = alike(mask, &frames::random(&mut random));
        if !patterns.contains(&pattern) {
            loaded.add(&pattern);
            patterns.push(pattern);
        }
        if patterns.len() > 12 {
            loaded.remove(&patterns.swap_remove(random.below(12) as usize));
        }
        for _ in 0..200 {
            let frame = frames::random(&mut random);
            let expected = patterns.iter().any(|pattern| matches(pattern, &frame));
            redirected += usize::from(expected);
            assert_eq!(loaded.redirects(&frame), expected, "{frame:02x?} of {patterns:x?}");
        }
    }
    assert!((100..7900).contains(&redirected), "{redirected} frames match");
}

#[test]
fn neighbours_ask_about_ours_and_about_the_kernels() {
    let Some(mut loaded) = AtWork::new() else { return };
    let ours: Ipv6Addr = "fd77::6:7".parse().expect("an address");
    let others: Ipv6Addr = "fe80::6:7".parse().expect("an address in the same multicast group");
    let group = clearway_wire::ipv6::solicited_node(ours).octets();
    SteerPattern::of_own(ours.into()).iter().for_each(|pattern| loaded.add(pattern));
    let to = |to, payload: &[u8]| frames::ethernet(&[], 0x86dd, &frames::ipv6(to, 58, payload));
    let all_nodes = "ff02::1".parse::<Ipv6Addr>().expect("an address").octets();
    for (address, is_ours) in [(ours, true), (others, false)] {
        let octets = address.octets();
        assert_eq!(loaded.redirects(&to(group, &frames::about(135, octets))), is_ours);
        assert_eq!(loaded.redirects(&to(all_nodes, &frames::about(136, octets))), is_ours);
        assert!(!loaded.redirects(&to(all_nodes, &frames::about(134, octets))));
        assert_eq!(loaded.redirects(&to(octets, &[128, 0, 0, 0, 0, 0, 0, 0])), is_ours);
    }
}

#[test]
fn too_many_masks_are_refused_with_the_remedy_and_change_nothing() {
    let Some(mut loaded) = AtWork::new() else { return };
    let frame =
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 0, 0, 1], 17, &[], 0, &frames::udp(7)));
    let pattern = |bits: u64| alike([bits, 0, 0, 0, 0, 0, 0], &frame);
    let other = frames::ethernet(&[], 0x0806, &frames::arp([10, 0, 0, 1], [10, 0, 0, 1]));
    let of_other = |bits: u64| alike([bits, 0, 0, 0, 0, 0, 0], &other);
    for mask in 1..=64 {
        loaded.add(&of_other(mask << 20 | 0xffff));
    }
    let refused = loaded.program.patterns.insert(&pattern(0xffff)).expect_err("one too many");
    let text = refused.to_string();
    assert!(text.contains("64 different masks") && text.contains("close some"), "{text}");
    assert!(!loaded.redirects(&frame));
    loaded.add(&pattern(1 << 20 | 0xffff));
    assert!(loaded.redirects(&frame), "another value of a mask that is there");
    loaded.remove(&of_other(64 << 20 | 0xffff));
    loaded.add(&pattern(0xffff));
    loaded.remove(&pattern(1 << 20 | 0xffff));
    assert!(loaded.redirects(&frame), "room for another mask");
}

/// A datagram or a segment whose checksum is that of the pseudo header, and one that has all of it.
fn unfinished_and_finished(tags: &[(u16, u16)], is_v4: bool, protocol: u8) -> [Vec<u8>; 2] {
    let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (from_v6, to_v6) = ([0xfd; 16], [0xfc; 16]);
    let checksum_at = if protocol == 17 { 6 } else { 16 };
    let mut transport = vec![1; if protocol == 17 { 9 } else { 21 }];
    let length = transport.len() as u16;
    if protocol == 17 {
        transport[4..6].copy_from_slice(&length.to_be_bytes());
    }
    transport[checksum_at..checksum_at + 2].fill(0);
    let pseudo = if is_v4 {
        pseudo_header_v4(from.into(), to.into(), protocol, length)
    } else {
        pseudo_header_v6(from_v6.into(), to_v6.into(), protocol, length.into())
    };
    [!pseudo.checksum(), pseudo.with(&transport).checksum()].map(|checksum| {
        let mut transport = transport.clone();
        transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        if is_v4 {
            frames::ethernet(tags, 0x0800, &frames::ipv4(to, protocol, &[], 0, &transport))
        } else {
            let mut packet = frames::ipv6(to_v6, protocol, &transport);
            packet[8..24].copy_from_slice(&from_v6);
            frames::ethernet(tags, 0x86dd, &packet)
        }
    })
}

#[test]
fn what_may_be_a_super_frame_is_passed_where_somebody_asks() {
    for asks in [false, true] {
        let Some(mut loaded) = AtWork::new() else { return };
        if asks {
            loaded.program.pass_unfinished(1522);
        }
        // Matches everything.
        loaded.add(&SteerPattern::new([0; 8], [0; 8]).expect("of no bits"));
        for is_v4 in [true, false] {
            for protocol in [6, 17] {
                for tags in [&[][..], &[(0x8100, 5)]] {
                    let [unfinished, finished] = unfinished_and_finished(tags, is_v4, protocol);
                    assert_eq!(loaded.redirects(&unfinished), !asks, "{unfinished:02x?}");
                    assert!(loaded.redirects(&finished), "{finished:02x?}");
                }
            }
        }
        let mut long = frames::ethernet(&[], 0x0800, &[0; 1508]);
        assert!(loaded.redirects(&long));
        long.push(0);
        assert_eq!(loaded.redirects(&long), !asks);
        let none =
            frames::ethernet(&[], 0x0800, &frames::ipv4([1; 4], 17, &[], 0, &frames::udp(7)));
        assert!(loaded.redirects(&none), "without a checksum there is none to finish");
    }
}

/// Prints what a frame costs with so many masks in use, of which the last one matches; the
/// assertion is only that nothing is absurd.
#[test]
fn the_cost_of_a_frame() {
    let Some(mut loaded) = AtWork::new() else { return };
    let packet = frames::ipv4([10, 0, 0, 1], 17, &[], 0, &frames::udp(7));
    let frame = frames::ethernet(&[], 0x0800, &packet);
    let mut other = frame.clone();
    other[33] = 9;
    let exact = alike([u64::MAX, 0, 0, u64::MAX, 0, 0, 0], &frame);
    let mut added = 0;
    for masks in [0, 1, 8, 32, 64] {
        // UDP like the frame, but to another address: the costliest that do not match.
        while added + 1 < masks {
            added += 1;
            loaded.add(&alike([u64::MAX << added, 0, 0, u64::MAX, 0, 0, 0], &other));
        }
        let mut cost = |what: &str| {
            let (verdict, duration) = loaded.run(&frame, 200_000);
            println!("{masks:2} masks, {what}: {} ns, verdict {verdict}", duration.as_nanos());
            assert!(duration < Duration::from_micros(100));
        };
        cost("no match");
        if masks > 0 {
            loaded.add(&exact);
            let (_, duration) = loaded.run(&frame, 200_000);
            println!("{masks:2} masks, the last matches: {} ns", duration.as_nanos());
            let more: Vec<_> = (0..100)
                .map(|port| {
                    let packet = frames::ipv4([10, 0, 0, 1], 17, &[], 0, &frames::udp(1000 + port));
                    alike(
                        [u64::MAX, 0, 0, u64::MAX, 0, 0, 0],
                        &frames::ethernet(&[], 0x0800, &packet),
                    )
                })
                .collect();
            more.iter().for_each(|pattern| loaded.add(pattern));
            let (_, duration) = loaded.run(&frame, 200_000);
            println!("{masks:2} masks, one of 101 values of the last: {} ns", duration.as_nanos());
            more.iter().for_each(|pattern| loaded.remove(pattern));
            loaded.remove(&exact);
        }
    }
}
