//! The layout of a channel's shared memory. Every offset and limit that both sides must agree on
//! stands here and nowhere else; [`LAYOUT`] condenses them, and attach compares it.
//!
//! ```text
//! offset 0        header page      daemon writes, once, before the app sees it
//!        4096     sync page        one word per 128 bytes (two lines: the adjacent-line prefetcher
//!                                  would otherwise make neighbours share); writers named below
//!        8192     submission ring  app writes entries        64 bytes each
//!                 completion ring  daemon writes entries     64 bytes each
//!                 transmit pool    app writes bytes          the daemon only reads
//!                 receive pool     daemon writes bytes       the app only reads
//! ```
//!
//! Areas start on page boundaries. All integers are in the byte order of the machine: both sides
//! run on it.

use serde::{Deserialize, Serialize};

/// Areas start at multiples of this.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Header page, daemon writes: `CLEARWAY` in ASCII.
pub(crate) const HEADER_MAGIC: usize = 0;
/// Header page, daemon writes: [`LAYOUT`].
pub(crate) const HEADER_LAYOUT: usize = 8;
/// Header page, daemon writes: bytes of the whole memory.
pub(crate) const HEADER_TOTAL_BYTES: usize = 16;
/// Header page, daemon writes: the four fields of [`Sizes`], `u64` each.
pub(crate) const HEADER_SIZES: usize = 24;
/// Header page, daemon writes: 1 if it runs `barrier::everywhere` before it sleeps (`u64`).
pub(crate) const HEADER_DAEMON_BARRIERS: usize = 56;
/// The value at [`HEADER_MAGIC`].
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"CLEARWAY");

/// Sync page, daemon writes, app reads: how many commands were taken (`u32`, wrapping).
pub(crate) const SYNC_SUBMISSION_HEAD: usize = PAGE_BYTES;
/// Sync page, app writes, daemon reads: how many completions were taken (`u32`, wrapping).
pub(crate) const SYNC_COMPLETION_HEAD: usize = PAGE_BYTES + 128;
/// Sync page: 1 while the daemon sleeps. The daemon sets it; whoever ends the sleep clears it.
pub(crate) const SYNC_DAEMON_SLEEPING: usize = PAGE_BYTES + 256;
/// Sync page, daemon writes, app reads: the processor that the engine runs on, plus one; 0 if
/// unknown (`u32`). In the line that the app looks at before it rings.
pub(crate) const SYNC_DAEMON_PROCESSOR: usize = SYNC_DAEMON_SLEEPING + 4;
/// Sync page: 1 while the app sleeps. The app sets it; whoever ends the sleep clears it.
pub(crate) const SYNC_APP_SLEEPING: usize = PAGE_BYTES + 384;
/// Sync page, app writes, daemon reads: the processor that the app last waited on, plus one; 0 if
/// unknown (`u32`). In the line that the engine looks at before it rings.
pub(crate) const SYNC_APP_PROCESSOR: usize = SYNC_APP_SLEEPING + 4;
/// Sync page, daemon writes, app reads: 1 when the daemon has closed the channel in good order.
pub(crate) const SYNC_CLOSED: usize = PAGE_BYTES + 512;

/// Where the submission ring starts.
pub(crate) const SUBMISSION_RING: usize = 2 * PAGE_BYTES;

/// Words of a ring entry, `u64` each. Word 0 holds, from the lowest bit: turn (32), opcode (8),
/// flags (8), stream (16). The words after it depend on the opcode; see `entry.rs`.
pub(crate) const ENTRY_WORDS: usize = 8;
/// Bytes of a ring entry: one cache line.
pub(crate) const ENTRY_BYTES: usize = 64;

/// The smallest and the largest number of entries of a ring.
pub(crate) const RING_ENTRIES: (u32, u32) = (16, 1 << 16);
/// The smallest and the largest pool. The smallest is one slab of `pool.rs`.
pub(crate) const POOL_BYTES: (u32, u32) = (1 << 16, 1 << 30);

/// The largest message, in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 8 << 20;
/// The shortest frame, in bytes: an Ethernet header.
pub const FRAME_BYTES_MIN: u32 = 14;
/// The largest frame, in bytes: a jumbo frame of 9216 bytes and room for tags.
pub const FRAME_BYTES_MAX: u32 = 10 * 1024;
/// The most frames in one burst.
pub const BURST_FRAMES_MAX: u16 = 32;
/// Bytes of the header of each frame of a burst; `burst.rs` says what is in it.
pub(crate) const FRAME_HEADER_BYTES: u32 = 16;
/// Frames of a burst start at multiples of this, so that their headers are two aligned words.
pub(crate) const FRAME_ALIGNMENT: u32 = 8;
/// How many sends of one channel may be unfinished at a time, messages and bursts of frames
/// together. Bounds what the daemon has to remember of them (about 32 bytes each).
pub const OUTSTANDING_SENDS_MAX: u32 = 16 * 1024;
/// How many receive buffers one release command gives back: what fits beside word 0.
pub const RELEASES_PER_ENTRY: usize = 2 * (ENTRY_WORDS - 1);

/// Opcodes, app to daemon.
pub(crate) mod command {
    pub(crate) const CONNECT: u8 = 1;
    pub(crate) const SEND: u8 = 2;
    pub(crate) const RELEASE: u8 = 3;
    pub(crate) const CLOSE: u8 = 4;
    pub(crate) const SEND_FRAMES: u8 = 5;
    pub(crate) const SET_SILENCE: u8 = 6;
}

/// Opcodes, daemon to app.
pub(crate) mod completion {
    pub(crate) const CONNECTED: u8 = 1;
    pub(crate) const CONNECT_FAILED: u8 = 2;
    pub(crate) const ACCEPTED: u8 = 3;
    pub(crate) const RECEIVED: u8 = 4;
    pub(crate) const SENT: u8 = 5;
    pub(crate) const CLOSED: u8 = 6;
    pub(crate) const FRAMES: u8 = 7;
    pub(crate) const FRAMES_SENT: u8 = 8;
    pub(crate) const VIF_CLOSED: u8 = 9;
}

/// The steps by which an app gets a channel: `attach`; and, since the app seals the memory,
/// `mapped`. A number of its own, because it is as much a part of the contract as the memory
/// itself.
const ATTACH_STEPS: usize = 2;

/// The fields of each entry after word 0, as text for [`LAYOUT`]; `entry.rs` is the code.
const ENTRIES: &str = "word0 turn:u32 opcode:u8 flags:u8 stream:u16; address port:u16 family:u16 scope:u32, octets \
     16; connect token:u64 address; send connection:u64 offset:u32 length:u32; release \
     flags=count buffer:u32 x14; close connection:u64 flags=abort; set_silence connection:u64 \
     silence_ms:u64; connected token:u64 connection:u64 address; connect_failed token:u64 \
     code:i32; accepted connection:u64 listener:u64 address; received connection:u64 offset:u32 \
     length:u32 buffer:u32 sent:u32; sent connection:u64 sent:u32; closed connection:u64 code:i32 \
     sent:u32; send_frames stream=count vif:u32 zero:u32 offset:u32 length:u32; frames \
     stream=count vif:u32 buffer:u32 offset:u32 length:u32; frames_sent flags=reason vif:u32 \
     bursts:u32 sent:u64 rejected:u64; vif_closed vif:u32 zero:u32 code:i32; frame length:u16 \
     flags:u16 info:u32, time_ns:u64, bytes";

/// Identifies this layout: two builds with the same value understand each other's memory, and how
/// it is handed over.
pub const LAYOUT: u64 = {
    let numbers = [
        ATTACH_STEPS,
        PAGE_BYTES,
        HEADER_MAGIC,
        HEADER_LAYOUT,
        HEADER_TOTAL_BYTES,
        HEADER_SIZES,
        HEADER_DAEMON_BARRIERS,
        SYNC_SUBMISSION_HEAD,
        SYNC_COMPLETION_HEAD,
        SYNC_DAEMON_SLEEPING,
        SYNC_APP_SLEEPING,
        SYNC_DAEMON_PROCESSOR,
        SYNC_APP_PROCESSOR,
        SYNC_CLOSED,
        SUBMISSION_RING,
        ENTRY_WORDS,
        MESSAGE_BYTES_MAX as usize,
        OUTSTANDING_SENDS_MAX as usize,
        FRAME_BYTES_MIN as usize,
        FRAME_BYTES_MAX as usize,
        BURST_FRAMES_MAX as usize,
        FRAME_HEADER_BYTES as usize,
        FRAME_ALIGNMENT as usize,
        RELEASES_PER_ENTRY,
        command::CONNECT as usize,
        command::SEND as usize,
        command::RELEASE as usize,
        command::CLOSE as usize,
        command::SEND_FRAMES as usize,
        completion::CONNECTED as usize,
        completion::CONNECT_FAILED as usize,
        completion::ACCEPTED as usize,
        completion::RECEIVED as usize,
        completion::SENT as usize,
        completion::CLOSED as usize,
        completion::FRAMES as usize,
        completion::FRAMES_SENT as usize,
        completion::VIF_CLOSED as usize,
    ];
    let mut hash = fnv1a(FNV_BASIS, ENTRIES.as_bytes());
    let mut index = 0;
    while index < numbers.len() {
        hash = fnv1a(hash, &(numbers[index] as u64).to_le_bytes());
        index += 1;
    }
    hash
};

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

const _: () = {
    assert!(ENTRY_BYTES == ENTRY_WORDS * size_of::<u64>());
    assert!(HEADER_SIZES + 4 * size_of::<u64>() <= HEADER_DAEMON_BARRIERS);
    assert!(SYNC_CLOSED + 128 <= SUBMISSION_RING);
    assert!(SUBMISSION_RING.is_multiple_of(PAGE_BYTES));
    // Every later area is a power of two of at least a page or is rounded up to one; offsets in
    // a pool fit in 32 bits.
    assert!(POOL_BYTES.0 as usize >= PAGE_BYTES && POOL_BYTES.1 <= 1 << 31);
    assert!(MESSAGE_BYTES_MAX <= POOL_BYTES.1);
    assert!(FRAME_BYTES_MAX <= u16::MAX as u32);
    assert!(FRAME_HEADER_BYTES == 2 * size_of::<u64>() as u32);
    assert!(FRAME_HEADER_BYTES.is_multiple_of(FRAME_ALIGNMENT));
};

/// How large the parts of a channel are. All are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Entries of the ring from app to daemon: 16 to 65536.
    pub submission_entries: u32,
    /// Entries of the ring from daemon to app: 16 to 65536.
    pub completion_entries: u32,
    /// Bytes for messages on their way out: 64 KiB to 1 GiB.
    pub transmit_pool_bytes: u32,
    /// Bytes for messages that have come in: 64 KiB to 1 GiB. Twice the size of the largest
    /// message, at least: one that is larger than half comes only when the app has released all
    /// others.
    pub receive_pool_bytes: u32,
}

impl Default for Sizes {
    /// 1024 entries and 16 MiB each way: two of the largest messages, or 262,144 small ones.
    fn default() -> Self {
        Self {
            submission_entries: 1024,
            completion_entries: 1024,
            transmit_pool_bytes: 16 << 20,
            receive_pool_bytes: 16 << 20,
        }
    }
}

impl Sizes {
    /// Whether a channel of these sizes can be made, and if not, which field is wrong.
    pub fn check(&self) -> Result<(), BadSizes> {
        let fields = [
            ("submission_entries", self.submission_entries, RING_ENTRIES),
            ("completion_entries", self.completion_entries, RING_ENTRIES),
            ("transmit_pool_bytes", self.transmit_pool_bytes, POOL_BYTES),
            ("receive_pool_bytes", self.receive_pool_bytes, POOL_BYTES),
        ];
        for (field, value, (min, max)) in fields {
            if !value.is_power_of_two() || value < min || value > max {
                return Err(BadSizes { field, value, min, max });
            }
        }
        Ok(())
    }

    /// Bytes of shared memory that a channel of these sizes takes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        Areas::new(self).total_bytes
    }
}

/// A field of [`Sizes`] is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be a power of two from {min} to {max}")]
pub struct BadSizes {
    /// The field's name.
    pub field: &'static str,
    /// The refused value.
    pub value: u32,
    /// The smallest allowed value.
    pub min: u32,
    /// The largest allowed value.
    pub max: u32,
}

/// Where the areas of a channel start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) submission_ring: usize,
    pub(crate) completion_ring: usize,
    pub(crate) transmit_pool: usize,
    pub(crate) receive_pool: usize,
    pub(crate) total_bytes: usize,
}

impl Areas {
    pub(crate) fn new(sizes: &Sizes) -> Self {
        let ring_bytes =
            |entries: u32| (entries as usize * ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        let completion_ring = SUBMISSION_RING + ring_bytes(sizes.submission_entries);
        let transmit_pool = completion_ring + ring_bytes(sizes.completion_entries);
        let receive_pool = transmit_pool + sizes.transmit_pool_bytes as usize;
        Self {
            submission_ring: SUBMISSION_RING,
            completion_ring,
            transmit_pool,
            receive_pool,
            total_bytes: receive_pool + sizes.receive_pool_bytes as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap_and_start_on_pages() {
        for entries in [16, 64, 1024] {
            let sizes = Sizes {
                submission_entries: entries,
                completion_entries: 16,
                transmit_pool_bytes: 1 << 16,
                receive_pool_bytes: 1 << 20,
            };
            sizes.check().unwrap();
            let areas = Areas::new(&sizes);
            let starts = [
                areas.submission_ring,
                areas.completion_ring,
                areas.transmit_pool,
                areas.receive_pool,
            ];
            assert!(starts.is_sorted() && starts.iter().all(|start| start % PAGE_BYTES == 0));
            assert!(
                areas.completion_ring - areas.submission_ring >= entries as usize * ENTRY_BYTES
            );
            assert_eq!(areas.total_bytes, areas.receive_pool + (1 << 20));
        }
    }

    #[test]
    fn bad_sizes_name_the_field_and_its_range() {
        let sizes = Sizes { completion_entries: 1000, ..Sizes::default() };
        assert_eq!(
            sizes.check().unwrap_err().to_string(),
            "completion_entries is 1000; it must be a power of two from 16 to 65536"
        );
        for (entries, bytes) in [(1 << 4, 1 << 16), (1 << 16, 1 << 30)] {
            let sizes = Sizes {
                submission_entries: entries,
                completion_entries: entries,
                transmit_pool_bytes: bytes,
                receive_pool_bytes: bytes,
            };
            assert_eq!(sizes.check(), Ok(()), "what the text allows");
            assert_eq!(sizes.total_bytes(), Areas::new(&sizes).total_bytes);
            assert!(sizes.total_bytes() > 2 * (bytes as usize + entries as usize * ENTRY_BYTES));
        }
        assert!(Sizes { receive_pool_bytes: 1 << 31, ..Sizes::default() }.check().is_err());
        assert!(Sizes { transmit_pool_bytes: 0, ..Sizes::default() }.check().is_err());
    }
}
