//! One-sided operations: what is in the messages that operation frames carry. What each does is in
//! `docs/operations.md`.
//!
//! ```text
//! request  0 kind | 1 0 | 2 stride | 4 number | 8 region | 16 offset
//!          24 length | 28 count | 32 operand | 40 second operand or region | 48 payload
//! answer   0 kind, bit 7 set | 1 status | 2 0 | 4 number | 8 value | 16 extra | 24 data
//! ```
//!
//! [`Request::parse`] and [`Answer::parse`] take the head of an operation, whose payload or data
//! follows wherever it is: in a packet, or in an app's memory.

use crate::Malformed;
use crate::bytes::{put, u16_at, u32_at, u64_at};

/// A request without its payload.
pub const REQUEST_LENGTH: usize = 48;
/// An answer without its data.
pub const ANSWER_LENGTH: usize = 24;
/// The longest name of a region.
pub const NAME_BYTES_MAX: usize = 64;
/// The most reads of one batch.
pub const BATCH_MAX: usize = 64;
/// What a read of a batch says of itself: status and length.
pub const BATCH_HEAD_LENGTH: usize = 8;

/// What marks an answer.
const ANSWERS: u8 = 0x80;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Looks a region up by its name.
    Find = 1,
    /// Reads bytes.
    Read = 2,
    /// Writes bytes.
    Write = 3,
    /// Writes bytes, and tells the owner of it, with a number.
    WriteNotify = 4,
    /// Replaces a word if it is as expected.
    CompareSwap = 5,
    /// Adds to a word.
    FetchAdd = 6,
    /// Reads what an entry of a table points to.
    IndirectRead = 7,
    /// Reads what several entries of a table point to.
    BatchRead = 8,
    /// Looks for a key among entries, and reads what the one that has it points to.
    ScanRead = 9,
}

impl Kind {
    /// All, by their numbers from 1 on.
    pub const ALL: [Self; 9] = [
        Self::Find,
        Self::Read,
        Self::Write,
        Self::WriteNotify,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::IndirectRead,
        Self::BatchRead,
        Self::ScanRead,
    ];

    /// The kind of this number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number.wrapping_sub(1))).copied()
    }

    /// True if it may change what the owner has.
    #[must_use]
    pub const fn has_effect(self) -> bool {
        matches!(self, Self::Write | Self::WriteNotify | Self::CompareSwap | Self::FetchAdd)
    }
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Done = 0,
    /// There is no such region (any more).
    NoRegion = 1,
    /// The owner does not let the asker do that.
    NotAllowed = 2,
    /// It reaches beyond the region.
    OutOfBounds = 3,
    /// A word is not at a multiple of eight.
    Misaligned = 4,
    /// No entry has the key.
    NotFound = 5,
    /// More bytes than were asked for, or than one operation may take.
    TooLarge = 6,
    /// The owner has too many events that it has not read.
    Busy = 7,
    /// No such operation, or arguments that make no sense.
    Invalid = 8,
}

impl Status {
    /// All, by their numbers.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::NoRegion,
        Self::NotAllowed,
        Self::OutOfBounds,
        Self::Misaligned,
        Self::NotFound,
        Self::TooLarge,
        Self::Busy,
        Self::Invalid,
    ];

    /// The status of this number; one that is not known says as much as [`Status::Invalid`].
    #[must_use]
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Invalid)
    }
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done: the number of a [`Kind`], which its owner may not know.
    pub kind: u8,
    /// Bytes from one entry to the next.
    pub stride: u16,
    /// Which request of the flow this is, from 0 on, wrapping; the answer has it, too.
    pub number: u32,
    /// The handle of the region.
    pub region: u64,
    /// Where in it.
    pub offset: u64,
    /// How many bytes to read, at most where the region says how many.
    pub length: u32,
    /// How many entries.
    pub count: u32,
    /// What to add, to expect, to look for, or to tell the owner.
    pub operand: u64,
    /// What to put there, or the handle of the region that is pointed to.
    pub second: u64,
}

impl Request {
    /// Reads the head.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head: &[u8; REQUEST_LENGTH] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self {
            kind: head[0],
            stride: u16_at(head, 2),
            number: u32_at(head, 4),
            region: u64_at(head, 8),
            offset: u64_at(head, 16),
            length: u32_at(head, 24),
            count: u32_at(head, 28),
            operand: u64_at(head, 32),
            second: u64_at(head, 40),
        })
    }

    /// The head, to be followed by the payload.
    #[must_use]
    pub fn emit(&self) -> [u8; REQUEST_LENGTH] {
        let mut head = [0; REQUEST_LENGTH];
        head[0] = self.kind;
        put(&mut head, 2, self.stride.to_be_bytes());
        put(&mut head, 4, self.number.to_be_bytes());
        put(&mut head, 8, self.region.to_be_bytes());
        put(&mut head, 16, self.offset.to_be_bytes());
        put(&mut head, 24, self.length.to_be_bytes());
        put(&mut head, 28, self.count.to_be_bytes());
        put(&mut head, 32, self.operand.to_be_bytes());
        put(&mut head, 40, self.second.to_be_bytes());
        head
    }
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it answers, as the request said.
    pub kind: u8,
    /// What came of it.
    pub status: Status,
    /// See [`Request::number`].
    pub number: u32,
    /// What was there, where it was, or the handle.
    pub value: u64,
    /// How many bytes the region has.
    pub extra: u64,
}

impl Answer {
    /// Reads the head.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head: &[u8; ANSWER_LENGTH] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self {
            kind: head[0] & !ANSWERS,
            status: Status::of(head[1]),
            number: u32_at(head, 4),
            value: u64_at(head, 8),
            extra: u64_at(head, 16),
        })
    }

    /// The head, to be followed by the data.
    #[must_use]
    pub fn emit(&self) -> [u8; ANSWER_LENGTH] {
        let mut head = [0; ANSWER_LENGTH];
        head[0] = self.kind | ANSWERS;
        head[1] = self.status as u8;
        put(&mut head, 4, self.number.to_be_bytes());
        put(&mut head, 8, self.value.to_be_bytes());
        put(&mut head, 16, self.extra.to_be_bytes());
        head
    }
}

/// True if an operation, of which this is the first byte, is an answer.
#[must_use]
pub const fn is_answer(first: u8) -> bool {
    first & ANSWERS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (number, kind) in (1..).zip(Kind::ALL) {
            assert_eq!((kind as u8, Kind::of(number)), (number, Some(kind)));
        }
        assert_eq!((Kind::of(0), Kind::of(10), Kind::of(0x81)), (None, None, None));
        for (number, status) in (0..).zip(Status::ALL) {
            assert_eq!((status as u8, Status::of(number)), (number, status));
        }
        assert_eq!(Status::of(9), Status::Invalid);
    }

    #[test]
    fn heads_come_back_as_they_went() {
        let request = Request {
            kind: 9,
            stride: 0x0102,
            number: 0x0304_0506,
            region: 7 << 56 | 8,
            offset: 9 << 56 | 10,
            length: 11 << 24 | 12,
            count: 13 << 24 | 14,
            operand: 15 << 56 | 16,
            second: 17 << 56 | 18,
        };
        assert_eq!(Request::parse(&request.emit()), Ok(request));
        assert_eq!(Request::parse(&request.emit()[1..]), Err(Malformed::Truncated));
        assert!(!is_answer(request.emit()[0]));
        let (kind, number) = (9, 0x0304_0506);
        for status in Status::ALL {
            let answer = Answer { kind, status, number, value: 1 << 56 | 2, extra: 3 << 56 | 4 };
            assert_eq!(Answer::parse(&answer.emit()), Ok(answer));
            assert_eq!(Answer::parse(&answer.emit()[1..]), Err(Malformed::Truncated));
            assert!(is_answer(answer.emit()[0]));
        }
    }
}
