//! Receive side scaling as a cloud's NIC does it: a Toeplitz hash with a key and a table that nobody
//! outside can read or set (Machnet, section 3.1).

use clearway_base::Random;

/// Bytes of the key: enough for the longest input, two IPv6 addresses and two ports, plus four.
const KEY_BYTES: usize = 40;
const TABLE_ENTRIES: usize = 128;

const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

#[derive(Debug)]
pub(super) struct Rss {
    key: [u8; KEY_BYTES],
    table: [usize; TABLE_ENTRIES],
}

impl Rss {
    pub(super) fn new(random: &mut Random, queues: usize) -> Self {
        let mut key = [0; KEY_BYTES];
        key.iter_mut().for_each(|byte| *byte = random.next_u32() as u8);
        Self { key, table: std::array::from_fn(|entry| entry % queues) }
    }

    /// The queue for `frame`; the first for what is not IP.
    pub(super) fn queue(&self, frame: &[u8]) -> usize {
        let Some(input) = input(frame) else { return self.table[0] };
        self.table[toeplitz(&self.key, &input) as usize % TABLE_ENTRIES]
    }
}

/// Addresses and ports of an IP packet as they stand in the frame; no ports where there are none, as in
/// fragments.
fn input(frame: &[u8]) -> Option<Vec<u8>> {
    let be16 = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let (ethertype, ip) = match be16(12)? {
        ETHERTYPE_VLAN => (be16(16)?, 18),
        other => (other, 14),
    };
    let (addresses, protocol, ports) = match ethertype {
        ETHERTYPE_IPV4 => {
            let header_bytes = usize::from(frame.get(ip)? & 15) * 4;
            let fragment = be16(ip + 6)? & 0x3fff != 0;
            let protocol = if fragment { 0 } else { *frame.get(ip + 9)? };
            (ip + 12..ip + 20, protocol, ip + header_bytes)
        }
        ETHERTYPE_IPV6 => (ip + 8..ip + 40, *frame.get(ip + 6)?, ip + 40),
        _ => return None,
    };
    let mut input = frame.get(addresses)?.to_vec();
    if matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) {
        input.extend_from_slice(frame.get(ports..ports + 4)?);
    }
    Some(input)
}

/// For each set bit of the input, the 32 bits of the key that start at the same place, xored together.
fn toeplitz(key: &[u8; KEY_BYTES], input: &[u8]) -> u32 {
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        let window = key[at..at + 4].iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let window = window << 8 | u64::from(*key.get(at + 4).unwrap_or(&0));
        for bit in 0..8 {
            if byte & (0x80 >> bit) != 0 {
                hash ^= (window >> (8 - bit)) as u32;
            }
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verification suite of Microsoft's RSS documentation.
    #[test]
    fn toeplitz_matches_published_vectors() {
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let addresses = [66, 9, 149, 187, 161, 142, 100, 80];
        assert_eq!(toeplitz(&key, &addresses), 0x323e_8fc2);
        let with_ports = [&addresses[..], &2794u16.to_be_bytes(), &1766u16.to_be_bytes()].concat();
        assert_eq!(toeplitz(&key, &with_ports), 0x51cc_c178);
    }

    #[test]
    fn short_and_strange_frames_go_to_the_first_queue() {
        let rss = Rss::new(&mut Random::new(1), 4);
        let mut frame = [0; 64];
        for ethertype in [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, 0x0806] {
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            for length in 0..24 {
                assert_eq!(rss.queue(&frame[..length]), 0);
            }
        }
    }
}
