use super::*;

const SOURCE: &[u8] = &[2, 0, 0, 0, 0, 1];
const DESTINATION: &[u8] = &[2, 0, 0, 0, 0, 2];
const UDP_PORT: u16 = 20707;

fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [DESTINATION, SOURCE, &ether_type.to_be_bytes(), payload].concat()
}

/// An IPv4 packet from 10.0.0.1 to 10.0.0.2.
fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 1, fragment[0], fragment[1], 64, protocol, 0, 0];
    frame(0x0800, &[&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], payload].concat())
}

fn datagram(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let head: Vec<u8> =
        [source, destination, length, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    [&head, payload].concat()
}

#[test]
fn lines_say_what_a_packet_is() {
    let tcp = |flags: u8, payload: &[u8]| {
        let head = [0x1f, 0x90, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0];
        ipv4(6, 0, &[&head[..], payload].concat())
    };
    let arp = |operation: u8| {
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        let addresses = [SOURCE, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat();
        frame(0x0806, &[&head[..], &addresses].concat())
    };
    let tagged = |inner: &[u8]| [&inner[..12], &[0x81, 0, 0, 7], &inner[12..]].concat();
    let mut ipv6 = vec![0x60, 0, 0, 0, 0, 8, 58, 64];
    ipv6.extend_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
    ipv6.extend_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
    ipv6.extend_from_slice(&[135, 0, 0, 0, 0, 0, 0, 0]);
    let mut ping = vec![0; 24];
    (ping[1], ping[15], ping[23]) = (6, 0xab, 5);
    let cases: &[(Vec<u8>, &str)] = &[
        (ipv4(17, 0, &datagram(4000, 53, b"abc")), "IP 10.0.0.1.4000 > 10.0.0.2.53: UDP, length 3"),
        (
            ipv4(17, 0, &datagram(UDP_PORT, UDP_PORT, &ping)),
            "IP 10.0.0.1.20707 > 10.0.0.2.20707: Clearway ping, flow 00000000000000ab, number 5, \
             length 24",
        ),
        (
            ipv4(17, 0, &datagram(UDP_PORT, 1, b"x")),
            "IP 10.0.0.1.20707 > 10.0.0.2.1: UDP, length 1",
        ),
        (tcp(0x02, b""), "IP 10.0.0.1.8080 > 10.0.0.2.80: TCP [S], seq 7, win 256, length 0"),
        (
            tcp(0x18, b"hi"),
            "IP 10.0.0.1.8080 > 10.0.0.2.80: TCP [P.], seq 7, ack 9, win 256, length 2",
        ),
        (
            ipv4(1, 0, &[8, 0, 0, 0, 0, 0, 0, 0]),
            "IP 10.0.0.1 > 10.0.0.2: ICMP echo request, code 0, length 8",
        ),
        (ipv4(1, 0, &[77, 1, 0, 0]), "IP 10.0.0.1 > 10.0.0.2: ICMP, type 77 code 1, length 4"),
        (ipv4(47, 0, &[1, 2, 3]), "IP 10.0.0.1 > 10.0.0.2: protocol 47, length 3"),
        (ipv4(17, 5, &datagram(1, 2, b"")), "IP 10.0.0.1 > 10.0.0.2: UDP, later fragment"),
        (
            ipv4(17, 0x2000, &datagram(1, 2, b"")),
            "IP 10.0.0.1.1 > 10.0.0.2.2: UDP, length 0, first fragment",
        ),
        (ipv4(6, 0, &[0; 10]), "IP 10.0.0.1 > 10.0.0.2: TCP, unintelligible"),
        (
            frame(0x86dd, &ipv6),
            "IP6 fd00::1 > fd00::2: ICMP6 neighbour solicitation, code 0, length 8",
        ),
        (arp(1), "ARP, who has 10.0.0.2, tell 10.0.0.1"),
        (arp(2), "ARP, 10.0.0.1 is at 02:00:00:00:00:01"),
        (arp(9), "ARP, operation 9, sender 10.0.0.1, target 10.0.0.2"),
        (tagged(&arp(1)), "vlan 7, ARP, who has 10.0.0.2, tell 10.0.0.1"),
        (
            frame(0x88a2, &[0x10, 0, 0, 1, 2, 3, 0, 0, 0, 4]),
            "02:00:00:00:00:01 > 02:00:00:00:00:02: AoE, major 1, minor 2, command 3, tag \
             0x00000004, length 24",
        ),
        (
            frame(0x1234, &[1]),
            "02:00:00:00:00:01 > 02:00:00:00:00:02: ether type 0x1234, length 15",
        ),
        (
            frame(0x0800, &[1]),
            "02:00:00:00:00:01 > 02:00:00:00:00:02: ether type 0x0800 (malformed), length 15",
        ),
        (vec![1, 2], "2 bytes that are no Ethernet frame"),
    ];
    for (frame, expected) in cases {
        assert_eq!(line(frame, UDP_PORT), *expected);
    }
}

#[test]
fn any_bytes_make_a_line() {
    let mut random = clearway_base::Random::new(7);
    let template = ipv4(17, 0, &datagram(UDP_PORT, UDP_PORT, &[0; 40]));
    for _ in 0..20_000 {
        let mut bytes = template.clone();
        for _ in 0..random.below(6) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        assert!(line(&bytes, UDP_PORT).chars().all(|character| !character.is_control()));
    }
}

#[test]
fn hex_shows_bytes_and_characters() {
    let text = hex(b"0123456789abcdef\n\xffz");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "    0x0000:  3031 3233 3435 3637 3839 6162 6364 6566  0123456789abcdef",
            "    0x0010:  0aff 7a                                  ..z",
        ]
    );
}

#[test]
fn time_is_that_of_the_day() {
    assert_eq!(time_of_day(1_700_000_000_123_456_789), "22:13:20.123456789Z");
}
