//! The options of a TCP header: those that this stack acts on. Others are skipped.

use crate::bytes::{put, u16_at, u32_at};
use core::ops::Deref;

/// RFC 9293, section 3.2: kinds of options, and their lengths.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: (u8, usize) = (2, 4);
/// RFC 7323, section 2.2.
const WINDOW_SCALE: (u8, usize) = (3, 3);
/// RFC 2018, sections 2 and 3.
const SACK_PERMITTED: (u8, usize) = (4, 2);
const SACK: u8 = 5;
/// RFC 7323, section 3.2.
const TIMESTAMPS: (u8, usize) = (8, 10);

const BLOCK_LENGTH: usize = 8;
const BLOCKS_MAX: usize = 4;

/// RFC 7323, section 2.3: "If a Window Scale option is received with a shift.cnt value larger than
/// 14, the TCP SHOULD log the error but MUST use 14 instead of the specified value."
pub(super) const WINDOW_SCALE_MAX: u8 = 14;

/// The options of a segment, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest segment that the sender of this one takes.
    pub maximum_segment_size: Option<u16>,
    /// By how many bits the windows of the sender are shifted: 14 at most.
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgements.
    pub sack_permitted: bool,
    /// The clock of the sender, and the newest that it has of the receiver's.
    pub timestamps: Option<Timestamps>,
    /// What has come besides what is acknowledged.
    pub sack: SackBlocks,
}

/// RFC 7323, section 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the clock of the sender.
    pub value: u32,
    /// TSecr: what the sender echoes.
    pub echo: u32,
}

/// Up to four blocks of sequence numbers, each its first and the one behind its last: as they come,
/// nothing about them is certain.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// Appends a block if there is room.
    #[inline]
    pub fn push(&mut self, left: u32, right: u32) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (left, right);
            self.count += 1;
        }
    }

    /// Forgets those from the `count`th on.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count.min(BLOCKS_MAX) as u8);
        self.blocks[usize::from(self.count)..].fill((0, 0));
    }
}

impl Deref for SackBlocks {
    type Target = [(u32, u32)];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.blocks[..usize::from(self.count)]
    }
}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Options {
    /// What can be understood of `bytes`.
    ///
    /// RFC 9293, MUST-7: implementations "MUST be prepared to handle an illegal option length
    /// (e.g., zero)": where one stands, nothing behind it can be found, and the options end.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        // What nearly all segments of an open connection have: RFC 7323, appendix A.
        if let Some(timestamps) = only_timestamps(bytes) {
            return Self { timestamps: Some(timestamps), ..Self::default() };
        }
        Self::parse_each(bytes)
    }

    fn parse_each(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            match *kind {
                END => break,
                NO_OPERATION => bytes = rest,
                kind => {
                    let length = rest.first().map_or(0, |length| usize::from(*length));
                    if length < 2 || length > bytes.len() {
                        break;
                    }
                    let (option, behind) = bytes.split_at(length);
                    options.take(kind, option);
                    bytes = behind;
                }
            }
        }
        options
    }

    /// Takes one option, whole with its kind and length.
    fn take(&mut self, kind: u8, option: &[u8]) {
        match (kind, option.len()) {
            MAXIMUM_SEGMENT_SIZE => self.maximum_segment_size = Some(u16_at(option, 2)),
            WINDOW_SCALE => self.window_scale = Some(option[2].min(WINDOW_SCALE_MAX)),
            SACK_PERMITTED => self.sack_permitted = true,
            TIMESTAMPS => self.timestamps = Some(Timestamps::at(option, 2)),
            (SACK, length) if length % BLOCK_LENGTH == 2 => {
                self.sack = SackBlocks::default();
                for block in option[2..].chunks_exact(BLOCK_LENGTH) {
                    self.sack.push(u32_at(block, 0), u32_at(block, 4));
                }
            }
            _ => {}
        }
    }

    /// The length of these options with what fills them up to words of 32 bits.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> usize {
        let mut length = 0;
        if self.maximum_segment_size.is_some() {
            length += 4;
        }
        if self.timestamps.is_some() {
            length += 12;
        } else if self.sack_permitted {
            length += 4;
        }
        if self.window_scale.is_some() {
            length += 4;
        }
        if self.sack.count > 0 {
            length += 4 + BLOCK_LENGTH * self.sack.count as usize;
        }
        length
    }

    /// Writes the options, each at a word's beginning, in the order that Linux has.
    ///
    /// # Panics
    /// If `bytes` is not as long as [`Options::length`] says.
    #[inline]
    pub(super) fn emit(&self, bytes: &mut [u8]) {
        let mut at = 0;
        let mut word = |word: [u8; 4]| {
            put(bytes, at, word);
            at += 4;
        };
        if let Some(size) = self.maximum_segment_size {
            let [high, low] = size.to_be_bytes();
            word([MAXIMUM_SEGMENT_SIZE.0, MAXIMUM_SEGMENT_SIZE.1 as u8, high, low]);
        }
        let [kind, length] = match self.sack_permitted {
            true => [SACK_PERMITTED.0, SACK_PERMITTED.1 as u8],
            false => [NO_OPERATION; 2],
        };
        if let Some(timestamps) = self.timestamps {
            word([kind, length, TIMESTAMPS.0, TIMESTAMPS.1 as u8]);
            word(timestamps.value.to_be_bytes());
            word(timestamps.echo.to_be_bytes());
        } else if self.sack_permitted {
            word([NO_OPERATION, NO_OPERATION, kind, length]);
        }
        if let Some(scale) = self.window_scale {
            word([NO_OPERATION, WINDOW_SCALE.0, WINDOW_SCALE.1 as u8, scale]);
        }
        if self.sack.count > 0 {
            let length = 2 + BLOCK_LENGTH as u8 * self.sack.count;
            word([NO_OPERATION, NO_OPERATION, SACK, length]);
            for (left, right) in self.sack.iter() {
                word(left.to_be_bytes());
                word(right.to_be_bytes());
            }
        }
    }
}

impl Timestamps {
    #[inline]
    fn at(bytes: &[u8], at: usize) -> Self {
        Self { value: u32_at(bytes, at), echo: u32_at(bytes, at + 4) }
    }
}

#[inline]
fn only_timestamps(bytes: &[u8]) -> Option<Timestamps> {
    let bytes: &[u8; 12] = bytes.try_into().ok()?;
    let head = [NO_OPERATION, NO_OPERATION, TIMESTAMPS.0, TIMESTAMPS.1 as u8];
    (bytes[..4] == head).then(|| Timestamps::at(bytes, 4))
}
