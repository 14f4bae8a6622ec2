//! Frames for tests of what looks at frames: well-formed ones, and ones that are not.

use clearway_base::Random;

/// The addresses that random packets are from and to: few, so that patterns match.
const IPV4: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [224, 0, 0, 251]];
const IPV6: [[u8; 16]; 3] = [
    [0xfd, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7],
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 7],
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 6, 0, 7],
];

/// An Ethernet frame, with the types and contents of tags before its own.
pub(crate) fn ethernet(tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (kind, control) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) fn ipv4(
    to: [u8; 4],
    protocol: u8,
    options: &[u8],
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let total = (20 + options.len() + payload.len()) as u16;
    let mut packet = vec![0x45 + (options.len() / 4) as u8, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(IPV4[0]);
    packet.extend(to);
    packet.extend(options);
    packet.extend(payload);
    packet
}

pub(crate) fn ipv6(to: [u8; 16], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 255]);
    packet.extend(IPV6[0]);
    packet.extend(to);
    packet.extend(payload);
    packet
}

/// A question of `sender` about `target`.
pub(crate) fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2];
    packet.extend(sender);
    packet.extend([0; 6]);
    packet.extend(target);
    packet
}

pub(crate) fn udp(port: u16) -> Vec<u8> {
    [&[0, 9], &port.to_be_bytes()[..], &[0, 8, 0, 0]].concat()
}

/// A neighbour solicitation (135) or advertisement (136).
pub(crate) fn about(kind: u8, target: [u8; 16]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], &target[..]].concat()
}

/// Any kind of frame; one in three is cut off, one in four has a wrong byte.
pub(crate) fn random(random: &mut Random) -> Vec<u8> {
    let (kind, packet) = match random.below(8) {
        0..=2 => (0x0800, random_ipv4(random)),
        3..=5 => (0x86dd, random_ipv6(random)),
        6 => (0x0806, arp(IPV4[0], IPV4[random.below(3) as usize])),
        _ => (*pick(random, &[0x88a2, 0x1234, 0x0100]), vec![7; random.below(60) as usize]),
    };
    let tags: Vec<_> = (0..random.below(5).saturating_sub(2))
        .map(|_| (*pick(random, &[0x8100, 0x8100, 0x88a8]), random.next_u32() as u16 & 0xf003))
        .collect();
    let mut frame = ethernet(&tags, kind, &packet);
    frame.extend(vec![0; random.below(3) as usize * 8]);
    if random.chance(1, 3) {
        frame.truncate(14 + random.below(frame.len() as u64 - 13) as usize);
    }
    if random.chance(1, 4) {
        let at = 12 + random.below(frame.len() as u64 - 12) as usize;
        frame[at] = random.next_u32() as u8;
    }
    frame
}

fn random_ipv4(random: &mut Random) -> Vec<u8> {
    let protocol = *pick(random, &[1, 6, 17, 17, 17, 33, 50, 58, 132, 136]);
    let words = if random.chance(1, 2) { 0 } else { random.below(11) };
    let options: Vec<_> = (0..4 * words)
        .map(|_| *pick(random, &[0, 1, 1, 1, 1, 2, 3, 4, 7, 131, 137, 255]))
        .collect();
    let fragment = *pick(random, &[0, 0, 0, 0x4000, 0x2000, 0x2005, 7, 0x8000]);
    let payload = payload(random);
    ipv4(*pick(random, &IPV4), protocol, &options, fragment, &payload)
}

fn random_ipv6(random: &mut Random) -> Vec<u8> {
    let mut packet = payload(random);
    let mut next_header = *pick(random, &[1, 6, 17, 17, 17, 58, 58, 59, 132]);
    let count = if random.chance(1, 2) { 0 } else { random.below(10) };
    for _ in 0..count {
        let kind = *pick(random, &[0, 43, 44, 60, 60, 60]);
        let words = if kind == 44 { 0 } else { random.below(4) };
        let mut header = vec![0; 8 + 8 * words as usize];
        (header[0], header[1]) = (next_header, words as u8);
        header[3] = *pick(random, &[0, 0, 0, 1, 8]);
        if kind == 44 && random.chance(1, 4) {
            header[1] = 3;
        }
        packet.splice(0..0, header);
        next_header = kind;
    }
    ipv6(*pick(random, &IPV6), next_header, &packet)
}

fn payload(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => about(135, *pick(random, &IPV6)),
        1 => about(136, *pick(random, &IPV6)),
        2 => vec![8; random.below(24) as usize],
        _ => {
            let mut header = vec![0; 24];
            header[1] = random.below(3) as u8;
            header[3] = random.below(3) as u8;
            header
        }
    }
}

fn pick<'a, T>(random: &mut Random, choices: &'a [T]) -> &'a T {
    &choices[random.below(choices.len() as u64) as usize]
}
