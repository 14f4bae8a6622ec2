//! The options of a TCP header: those that this stack acts on. Others are skipped.

use super::blocks::{BLOCK_LENGTH, Blocks, SackBlocks};
use super::counters::{EcnCounters, EcnOrder};
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
/// RFC 7413, section 4.1.1.
const FAST_OPEN: u8 = 34;
/// What drafts of it had: the experimental kind of RFC 4727, with an identifier (RFC 6994).
const EXPERIMENT: u8 = 254;
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// Where an option begins in its word: RFC 7323, appendix A, and Linux's SYNs.
const SACK_AT: usize = 2;
const WINDOW_SCALE_AT: usize = 1;

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
    /// What has come besides what is acknowledged; or, of a SYN, what it says of TCP Fast Open.
    pub extra: Extra,
}

/// A SYN has no blocks, and others have no cookie; and next to counters there is no room for either
/// in full. So they have one place, and segments of data have hardly more bytes to be moved about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    /// Nothing of them.
    #[default]
    Nothing,
    /// RFC 2018, section 3.
    Sack(SackBlocks),
    /// RFC 7413, section 4.1.1. It means something with a SYN only.
    FastOpen(FastOpen),
    /// RFC 9768, section 3.2.3, and blocks.
    Counted(Counted),
}

const _: () = assert!(size_of::<Extra>() == size_of::<SackBlocks>() + 4);

/// The counters of accurate congestion feedback, and blocks next to them: a fourth would leave room
/// for one counter, and counts as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counted {
    /// What has come besides what is acknowledged.
    pub sack: Blocks<3>,
    /// The counters.
    pub counters: EcnCounters,
}

/// The option of TCP Fast Open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    /// The cookie; without it the option asks for one.
    pub cookie: Option<Cookie>,
    /// It is the experimental option of the drafts.
    pub is_experimental: bool,
}

/// A cookie of TCP Fast Open: an even number of bytes, 4 to 16.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    bytes: [u8; Self::LENGTH_MAX],
    length: u8,
}

/// RFC 7323, section 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the clock of the sender.
    pub value: u32,
    /// TSecr: what the sender echoes.
    pub echo: u32,
}

impl From<SackBlocks> for Extra {
    #[inline]
    fn from(blocks: SackBlocks) -> Self {
        if blocks.is_empty() { Self::Nothing } else { Self::Sack(blocks) }
    }
}

impl From<FastOpen> for Extra {
    fn from(fast_open: FastOpen) -> Self {
        Self::FastOpen(fast_open)
    }
}

impl From<Counted> for Extra {
    fn from(counted: Counted) -> Self {
        Self::Counted(counted)
    }
}

impl FastOpen {
    /// What the bytes behind the kind and the length, and behind the identifier of an experiment,
    /// stand for. RFC 7413, section 4.1.1: of a length that no cookie has, the option says nothing.
    fn parse(bytes: &[u8], is_experimental: bool) -> Option<Self> {
        let cookie = match bytes {
            [] => None,
            bytes => Some(Cookie::new(bytes)?),
        };
        Some(Self { cookie, is_experimental })
    }

    const fn length(&self) -> usize {
        let head = if self.is_experimental { 4 } else { 2 };
        match &self.cookie {
            Some(cookie) => head + cookie.length as usize,
            None => head,
        }
    }

    /// Writes it, and what fills it up to words of 32 bits, which `bytes` are.
    fn emit(&self, bytes: &mut [u8]) {
        let length = self.length();
        bytes.fill(NO_OPERATION);
        let (kind, head) = match self.is_experimental {
            true => (EXPERIMENT, 4),
            false => (FAST_OPEN, 2),
        };
        bytes[..2].copy_from_slice(&[kind, length as u8]);
        if self.is_experimental {
            bytes[2..4].copy_from_slice(&FAST_OPEN_EXPERIMENT);
        }
        if let Some(cookie) = &self.cookie {
            bytes[head..length].copy_from_slice(cookie);
        }
    }
}

impl Cookie {
    /// RFC 7413, section 4.1.1: the least and the largest number of bytes.
    pub const LENGTH_MIN: usize = 4;
    /// See [`Cookie::LENGTH_MIN`].
    pub const LENGTH_MAX: usize = 16;

    /// The cookie of these bytes, if they can be one.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let length = bytes.len();
        let is_one =
            (Self::LENGTH_MIN..=Self::LENGTH_MAX).contains(&length) && length.is_multiple_of(2);
        let mut cookie = Self { bytes: [0; Self::LENGTH_MAX], length: length as u8 };
        is_one.then(|| {
            cookie.bytes[..length].copy_from_slice(bytes);
            cookie
        })
    }
}

impl Deref for Cookie {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl core::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
                let mut blocks = SackBlocks::NONE;
                for block in option[2..].as_chunks::<BLOCK_LENGTH>().0 {
                    blocks.push(u32_at(block, 0), u32_at(block, 4));
                }
                match &mut self.extra {
                    Extra::Counted(counted) => counted.sack = Blocks::of(&blocks),
                    extra => *extra = blocks.into(),
                }
            }
            (FAST_OPEN, _) => self.take_fast_open(FastOpen::parse(&option[2..], false)),
            (EXPERIMENT, 4..) if option[2..4] == FAST_OPEN_EXPERIMENT => {
                self.take_fast_open(FastOpen::parse(&option[4..], true));
            }
            _ => {
                if let Some(order) = EcnOrder::of_kind(kind) {
                    self.take_counters(EcnCounters::parse(order, &option[2..]));
                }
            }
        }
    }

    fn take_counters(&mut self, counters: EcnCounters) {
        if self.fast_open().is_none() {
            self.extra = Extra::Counted(Counted { counters, sack: Blocks::of(self.sack()) });
        }
    }

    fn take_fast_open(&mut self, option: Option<FastOpen>) {
        if let Some(option) = option {
            self.extra = Extra::FastOpen(option);
        }
    }

    /// What has come besides what is acknowledged.
    #[inline]
    #[must_use]
    pub fn sack(&self) -> &[(u32, u32)] {
        match &self.extra {
            Extra::Sack(blocks) => blocks,
            Extra::Counted(counted) => &counted.sack,
            Extra::Nothing | Extra::FastOpen(_) => &[],
        }
    }

    /// What is said of TCP Fast Open.
    #[must_use]
    pub const fn fast_open(&self) -> Option<FastOpen> {
        match self.extra {
            Extra::FastOpen(option) => Some(option),
            _ => None,
        }
    }

    /// What accurate congestion feedback counts.
    #[must_use]
    pub const fn counters(&self) -> Option<&EcnCounters> {
        match &self.extra {
            Extra::Counted(counted) => Some(&counted.counters),
            _ => None,
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
        match &self.extra {
            Extra::Nothing => length,
            Extra::Sack(blocks) => length + blocks.length().next_multiple_of(4),
            Extra::FastOpen(option) => length + option.length().next_multiple_of(4),
            Extra::Counted(counted) => self.length_counted(counted),
        }
    }

    /// The same next to counters, which stand in front of what needs no whole words.
    const fn length_counted(&self, counted: &Counted) -> usize {
        let mut length = 0;
        if self.maximum_segment_size.is_some() {
            length += 4;
        }
        if self.timestamps.is_some() {
            length += 12;
        }
        length += counted.counters.length();
        if self.sack_permitted && self.timestamps.is_none() {
            length = place(length, SACK_AT) + 2;
        }
        if self.window_scale.is_some() {
            length = place(length, WINDOW_SCALE_AT) + 3;
        }
        if counted.sack.length() > 0 {
            length = place(length, SACK_AT) + counted.sack.length();
        }
        length.next_multiple_of(4)
    }

    /// Writes the options, each at a word's beginning, in the order that Linux has.
    ///
    /// # Panics
    /// If `bytes` is not as long as [`Options::length`] says.
    #[inline]
    pub(super) fn emit(&self, bytes: &mut [u8]) {
        match &self.extra {
            Extra::Counted(counted) => self.emit_counted(counted, bytes),
            Extra::Nothing => _ = self.emit_words(bytes),
            Extra::Sack(blocks) => {
                let at = self.emit_words(bytes);
                emit_blocks(blocks, &mut bytes[at..]);
            }
            Extra::FastOpen(option) => {
                let at = self.emit_words(bytes);
                option.emit(&mut bytes[at..]);
            }
        }
    }

    /// Writes all but what is extra; returns how long that is.
    #[inline]
    fn emit_words(&self, bytes: &mut [u8]) -> usize {
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
        at
    }

    /// The same next to counters, byte by byte.
    #[cold]
    fn emit_counted(&self, counted: &Counted, bytes: &mut [u8]) {
        bytes.fill(NO_OPERATION);
        let mut at = 0;
        let mut append = |in_word: usize, option: &[u8]| {
            at = place(at, in_word);
            bytes[at..at + option.len()].copy_from_slice(option);
            at += option.len();
        };
        if let Some(size) = self.maximum_segment_size {
            let [high, low] = size.to_be_bytes();
            append(0, &[MAXIMUM_SEGMENT_SIZE.0, MAXIMUM_SEGMENT_SIZE.1 as u8, high, low]);
        }
        let permitted = [SACK_PERMITTED.0, SACK_PERMITTED.1 as u8];
        if let Some(timestamps) = self.timestamps {
            if self.sack_permitted {
                append(0, &permitted);
            }
            append(2, &[TIMESTAMPS.0, TIMESTAMPS.1 as u8]);
            append(0, &timestamps.value.to_be_bytes());
            append(0, &timestamps.echo.to_be_bytes());
        }
        let (option, length) = counted.counters.emit();
        append(0, &option[..length]);
        if self.sack_permitted && self.timestamps.is_none() {
            append(SACK_AT, &permitted);
        }
        if let Some(scale) = self.window_scale {
            append(WINDOW_SCALE_AT, &[WINDOW_SCALE.0, WINDOW_SCALE.1 as u8, scale]);
        }
        if !counted.sack.is_empty() {
            append(SACK_AT, &[SACK, counted.sack.length() as u8]);
            for (left, right) in counted.sack.iter() {
                append(0, &left.to_be_bytes());
                append(0, &right.to_be_bytes());
            }
        }
    }
}

/// Writes the option of blocks, of which there is one at least.
#[cold]
fn emit_blocks(blocks: &SackBlocks, bytes: &mut [u8]) {
    bytes[..4].copy_from_slice(&[NO_OPERATION, NO_OPERATION, SACK, blocks.length() as u8]);
    let (places, _) = bytes[4..].as_chunks_mut::<BLOCK_LENGTH>();
    for (place, (left, right)) in places.iter_mut().zip(blocks.iter()) {
        put(place, 0, left.to_be_bytes());
        put(place, 4, right.to_be_bytes());
    }
}

/// The next place from `at` on that stands so far in its word.
const fn place(at: usize, in_word: usize) -> usize {
    at + (4 + in_word - at % 4) % 4
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
