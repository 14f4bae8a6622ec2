//! Receive side scaling: which queue of a NIC a frame goes to. A cloud's NIC does it with a key and
//! a table that nobody outside can read or set (Machnet, section 3.1), and not always by the book:
//! so there are hashes here that no NIC should have.

mod toeplitz;

use clearway_base::Random;

use super::tuple::Tuple;
use toeplitz::Toeplitz;

/// The indirection table of most NICs.
const TABLE_ENTRIES: usize = 128;

/// What the queue depends on, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// Toeplitz with a random key over addresses and ports, or addresses alone where there are no
    /// ports.
    #[default]
    Toeplitz,
    /// Toeplitz with the key 6d5a, repeated: both directions of a connection get the same (Woo and
    /// Park, "Scalable TCP session monitoring with symmetric receive-side scaling", 2012).
    Symmetric,
    /// Toeplitz with a random key over the sums of both addresses and of both ports by exclusive
    /// or, which is symmetric too.
    Folded,
    /// Toeplitz with a random key over fields whose bytes were swapped.
    Swapped,
    /// No more than the exclusive or of the two ports.
    Ports,
    /// The CRC32C of addresses and ports, with a random start.
    Crc32c,
    /// Toeplitz with a random key over all but the source port.
    NoSourcePort,
    /// The destination address only: all packets to a host get the same.
    Destination,
}

impl Hash {
    /// All of them, with their names in configurations.
    pub const ALL: [(&str, Self); 8] = [
        ("toeplitz", Self::Toeplitz),
        ("symmetric", Self::Symmetric),
        ("folded", Self::Folded),
        ("swapped", Self::Swapped),
        ("ports", Self::Ports),
        ("crc32c", Self::Crc32c),
        ("no-source-port", Self::NoSourcePort),
        ("destination", Self::Destination),
    ];
}

/// How a NIC chooses a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssOptions {
    /// What it hashes, and how.
    pub hash: Hash,
    /// Entries of the table between hash and queues, at least 1; NICs have 128 or 512.
    pub table_entries: usize,
    /// The table holds random queues instead of all in turn.
    pub shuffled: bool,
}

impl Default for RssOptions {
    /// As the book says, with a random key.
    fn default() -> Self {
        Self { hash: Hash::Toeplitz, table_entries: TABLE_ENTRIES, shuffled: false }
    }
}

/// The receive side scaling of one NIC.
#[derive(Debug)]
pub struct Rss {
    options: RssOptions,
    toeplitz: Toeplitz,
    /// Where CRC32C starts.
    start: u32,
    table: Vec<usize>,
}

impl Rss {
    /// Spreads over `queues` queues, at least 1, with a key and a table out of `random`.
    #[must_use]
    pub fn new(options: RssOptions, queues: usize, random: &mut Random) -> Self {
        let key = match options.hash {
            Hash::Symmetric => std::array::from_fn(|at| [0x6d, 0x5a][at % 2]),
            _ => std::array::from_fn(|_| random.next_u32() as u8),
        };
        let start = random.next_u32();
        let turn = random.below(queues as u64) as usize;
        let mut entry = |at| {
            if options.shuffled {
                random.below(queues as u64) as usize
            } else {
                (at + turn) % queues
            }
        };
        let table = (0..options.table_entries).map(&mut entry).collect();
        Self { options, toeplitz: Toeplitz::new(&key), start, table }
    }

    /// How it was made.
    #[must_use]
    pub const fn options(&self) -> RssOptions {
        self.options
    }

    /// The queue for `frame`; the first for what is not IP.
    #[must_use]
    pub fn queue(&self, frame: &[u8]) -> usize {
        let Some(tuple) = Tuple::of(frame) else { return 0 };
        self.table[self.hash(&tuple) as usize % self.table.len()]
    }

    fn hash(&self, tuple: &Tuple<'_>) -> u32 {
        let Tuple { addresses, ports, .. } = *tuple;
        let toeplitz = &self.toeplitz;
        match self.options.hash {
            Hash::Toeplitz | Hash::Symmetric => {
                toeplitz.hash(addresses.iter().chain(ports).copied())
            }
            Hash::Folded => toeplitz.hash(folded(addresses).chain(folded(ports))),
            Hash::Swapped => toeplitz.hash(swapped(addresses).chain(swapped(ports))),
            Hash::Ports => folded(ports).fold(0, |bits, byte| bits << 8 | u32::from(byte)),
            Hash::Crc32c => crc32c(self.start, addresses.iter().chain(ports)),
            Hash::NoSourcePort => {
                toeplitz.hash(addresses.iter().chain(ports.iter().skip(2)).copied())
            }
            Hash::Destination => toeplitz.hash(addresses[addresses.len() / 2..].iter().copied()),
        }
    }
}

/// The exclusive or of source and destination.
fn folded(pair: &[u8]) -> impl Iterator<Item = u8> {
    let (source, destination) = pair.split_at(pair.len() / 2);
    source.iter().zip(destination).map(|(a, b)| a ^ b)
}

/// Source and destination, each with its bytes in reverse.
fn swapped(pair: &[u8]) -> impl Iterator<Item = u8> {
    let (source, destination) = pair.split_at(pair.len() / 2);
    source.iter().rev().chain(destination.iter().rev()).copied()
}

/// The polynomial of RFC 3720, section 12.1, bit by bit: an input is some dozen bytes.
fn crc32c<'a>(start: u32, bytes: impl Iterator<Item = &'a u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !bytes.fold(!start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * POLYNOMIAL))
    })
}

#[cfg(test)]
mod tests;
