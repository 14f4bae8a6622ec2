//! What the headers of a peer's next datagram look like, if they are as those of the one before:
//! then nothing has to be found out about them again.

use super::Datagram;
use clearway_wire::checksum::Sum;
use clearway_wire::{Ecn, ethernet, ipv4, udp};
use core::net::{Ipv4Addr, SocketAddr};

const IP_AT: usize = ethernet::HEADER_LENGTH;
const UDP_AT: usize = IP_AT + ipv4::HEADER_LENGTH;
const LENGTH: usize = UDP_AT + udp::HEADER_LENGTH;

/// Ethernet type IPv4, and a header without options.
const PLAIN_AT: usize = IP_AT - 2;
const PLAIN: [u8; 3] = [0x08, 0x00, 0x45];

/// The headers of an IPv4 datagram without VLAN tag, IP options and UDP checksum, as those are that
/// Clearway sends: what is alike in all that a peer sends from one port to another.
#[derive(Clone, Debug)]
pub struct Head(Words);

/// The last one overlaps the one before.
type Words = [u64; LENGTH.div_ceil(8)];

impl Head {
    /// The length of such headers.
    pub const LENGTH: usize = LENGTH;

    /// Those of a frame from which [`Interface::datagram`](crate::Interface::datagram) has taken
    /// one. `None` if there is more in them.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk()?;
        let is_plain = head[PLAIN_AT..].starts_with(&PLAIN);
        let has_checksum = field(head, UDP_AT + udp::CHECKSUM_AT) != 0;
        (is_plain && !has_checksum).then(|| Self(alike(head)))
    }

    /// The datagram of a frame whose headers are these, but for lengths, identification, ECN and
    /// IP checksum, if those are right. `None` says no more than that it has to be looked at.
    #[inline]
    #[must_use]
    pub fn datagram<'a>(&self, frame: &'a [u8]) -> Option<Datagram<'a>> {
        let head = frame.first_chunk()?;
        let ip_length = usize::from(field(head, IP_AT + ipv4::TOTAL_LENGTH_AT));
        let udp_length = usize::from(field(head, UDP_AT + udp::LENGTH_AT));
        let is_right = is_like(head, &self.0)
            && ip_length == ipv4::HEADER_LENGTH + udp_length
            && Sum::new().with(&head[IP_AT..UDP_AT]).is_right();
        if !is_right {
            return None;
        }
        Some(Datagram {
            source: SocketAddr::new(address(head, IP_AT + 12).into(), field(head, UDP_AT)),
            destination: SocketAddr::new(address(head, IP_AT + 16).into(), field(head, UDP_AT + 2)),
            payload: frame.get(LENGTH..IP_AT + ip_length)?,
            ecn: Ecn::from_bits(head[IP_AT + ipv4::TYPE_OF_SERVICE_AT]),
            source_mac: core::array::from_fn(|index| head[6 + index]),
            packet: &frame[IP_AT..],
        })
    }
}

/// What does not differ from datagram to datagram.
#[inline]
fn alike(head: &[u8; LENGTH]) -> Words {
    const MASK: Words = words(&mask());
    let words = words(head);
    core::array::from_fn(|index| words[index] & MASK[index])
}

/// True if all that does not differ is the same: without a branch for each word.
#[inline]
fn is_like(head: &[u8; LENGTH], known: &Words) -> bool {
    let differences = alike(head).into_iter().zip(known).map(|(word, known)| word ^ known);
    differences.fold(0, |all, one| all | one) == 0
}

const fn mask() -> [u8; LENGTH] {
    let mut mask = [0xff; LENGTH];
    mask[IP_AT + ipv4::TYPE_OF_SERVICE_AT] = !0b11; // ECN
    let differing = [
        IP_AT + ipv4::TOTAL_LENGTH_AT,
        IP_AT + 4,
        IP_AT + ipv4::CHECKSUM_AT,
        UDP_AT + udp::LENGTH_AT,
    ];
    let mut index = 0;
    while index < differing.len() {
        let at = differing[index];
        (mask[at], mask[at + 1]) = (0, 0);
        index += 1;
    }
    mask
}

#[inline]
const fn words(head: &[u8; LENGTH]) -> Words {
    [
        word(head, 0),
        word(head, 8),
        word(head, 16),
        word(head, 24),
        word(head, 32),
        word(head, LENGTH - 8),
    ]
}

#[inline]
const fn word(head: &[u8; LENGTH], at: usize) -> u64 {
    let (_, from) = head.split_at(at);
    match from.first_chunk() {
        Some(word) => u64::from_ne_bytes(*word),
        None => panic!("a word beyond the headers"),
    }
}

#[inline]
fn field(head: &[u8; LENGTH], at: usize) -> u16 {
    u16::from_be_bytes([head[at], head[at + 1]])
}

#[inline]
fn address(head: &[u8; LENGTH], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3])
}
