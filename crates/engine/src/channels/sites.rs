//! Where what comes lies, as the transport's names for buffers say it.

use clearway_transport::Buffer;

/// No buffer of the receive pool has this bit in its name.
const ELSEWHERE: u32 = 1 << 31;
/// With that bit: what is larger than the number of any buffer that is posted.
const REGION: u32 = 1 << 30;

/// Where a message or an operation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// In the app's receive pool.
    Pool,
    /// In the buffer of this number, which the app has posted.
    Posted(u32),
    /// It is a long write that goes to its region as it comes.
    Region,
}

impl Site {
    #[inline]
    pub(crate) const fn of(buffer: Buffer) -> Self {
        match buffer.id & !ELSEWHERE {
            _ if buffer.id & ELSEWHERE == 0 => Self::Pool,
            REGION => Self::Region,
            number => Self::Posted(number),
        }
    }

    /// The name of a posted buffer with a message of so many bytes.
    pub(crate) const fn posted(number: u32, length: u32) -> Buffer {
        Buffer { id: ELSEWHERE | number, offset: 0, length }
    }

    /// The name of a write of so many bytes that goes to its region.
    pub(crate) const fn region(length: u32) -> Buffer {
        Buffer { id: ELSEWHERE | REGION, offset: 0, length }
    }
}
