//! The digest: the summary of a packet's headers that patterns are matched against, one cache line,
//! computed once per packet. It is *not* a judgement of the packet: checksums, options and lengths
//! that no pattern can ask for are the business of whoever handles it.
//!
//! ```text
//! word  63           48 47           32 31   24 23 22 20 19 18 16 15         0
//!   0  |  source port  |  dest. port   | proto |T| net |F|layer|   ether type  |
//!   1  |                 destination MAC              |0|pcp|    VLAN id      |
//!   2  |                   source MAC                 |          0          |A|
//!   3  |      IPv4 source, ARP sender     |     IPv4 destination, ARP target   |
//!      |                       IPv6 source, first half                        |
//!      |       AoE major   | minor | cmd. |               AoE tag              |
//!   4  |  IPv6 source, second half;       ARP sender's MAC (low 48 bits)      |
//!   5  |  IPv6 destination, first half;   ARP target's MAC (low 48 bits)      |
//!   6  |  IPv6 destination, second half                                       |
//!   7  |  network at   |     transport at       |        packet ends at    |
//! ```
//!
//! A neighbour advertisement (RFC 4861, section 4.4) is marked (A) unless it is about the address
//! that it comes from: its target has no room here, but nobody who may only say who he is himself
//! needs more. One behind extension headers is always marked. Nodes drop those in fragments (RFC
//! 6980).
//!
//! So the five-tuple of IPv4, and whether there is a VLAN tag (T), are in words 0 and 3, which
//! makes them cheap to hash. Word 7 is for the reader, not for patterns: where the headers begin,
//! so that nobody parses the packet again.
//!
//! **Unambiguous by construction.** What a field means is said by `network` and `layer`, which are
//! in the digest: ports are there only where `layer` is [`Layer::Ports`], and so on. A packet that
//! cannot be understood up to its ports has none, and a `layer` that says so:
//!
//! - A later fragment has [`Layer::LaterFragment`]; whatever its first bytes are, they are not
//!   ports. For IPv6 its protocol is 44 (fragment), as RFC 8200, section 4.5, says of the field
//!   that could tell: "The Next Header values in the Fragment headers of different fragments of the
//!   same original packet may differ. Only the value from the Offset zero fragment packet is used
//!   for reassembly."
//! - A first fragment has ports if its whole transport header is there, and is marked (F).
//! - A packet whose way is not decided by its destination (IPv4 source routes, IPv6 routing headers
//!   with segments left) or whose headers break off has [`Layer::Unintelligible`].
//! - A header of IP, ARP or AoE that contradicts itself leaves [`Network::Broken`] and no address.

mod field;
mod parse;
#[cfg(test)]
mod tests;

pub use field::{Field, Layer, Network, fields};

/// Words that patterns can ask for: all but the last.
pub const PATTERN_WORDS: usize = 7;
/// Words in a digest.
pub const WORDS: usize = 8;

/// The summary of a packet's headers. See the module for its layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub struct Digest {
    words: [u64; WORDS],
}

const _: () = assert!(size_of::<Digest>() == 64, "one cache line");

impl Digest {
    /// The digest of a frame: of any bytes at all.
    #[inline]
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.become_of(frame);
        digest
    }

    /// Becomes the digest of a frame. Where there are many, this is faster than [`Digest::of`]: the
    /// words are written where they stay, and not moved in larger pieces than they were written in.
    #[inline]
    pub fn become_of(&mut self, frame: &[u8]) {
        match parse::plain(frame) {
            Some(words) => self.words = words,
            None => *self = parse::any(frame),
        }
    }

    /// A digest put together by hand: for tests, benchmarks, and the questions "who would get
    /// this?".
    #[inline]
    #[must_use]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self { words }
    }

    /// The words.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// What `field` says.
    #[inline]
    #[must_use]
    pub const fn field(&self, field: Field) -> u64 {
        field.of(&self.words)
    }

    /// What follows the Ethernet header.
    #[inline]
    #[must_use]
    pub fn network(&self) -> Network {
        Network::from_bits(self.field(fields::NETWORK))
    }

    /// What is known beyond the IP header.
    #[inline]
    #[must_use]
    pub fn layer(&self) -> Layer {
        Layer::from_bits(self.field(fields::LAYER))
    }

    /// Where in the frame the network header begins; 0 if there is none.
    #[inline]
    #[must_use]
    pub const fn network_at(&self) -> usize {
        (self.words[7] >> 48) as usize
    }

    /// Where in the frame the transport header begins; 0 if it was not found.
    #[inline]
    #[must_use]
    pub const fn transport_at(&self) -> usize {
        (self.words[7] >> 24 & 0xff_ffff) as usize
    }

    /// Where in the frame the IP packet ends: what follows is padding. 0 if there is none.
    #[inline]
    #[must_use]
    pub const fn packet_end(&self) -> usize {
        (self.words[7] & 0xff_ffff) as usize
    }
}
