//! What stands in front of each message of a call (`docs/calls.md`, "The format").

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 16;

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const REFUSAL: u8 = 3;
const CANCEL: u8 = 4;

/// What a message of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `time_left_us`: how long the caller will wait, in microseconds; 0 if it does not say.
    Request {
        method: u16,
        time_left_us: u32,
    },
    Answer,
    Refusal {
        reason: u32,
    },
    /// The caller does not wait any more.
    Cancel,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The call: chosen by who asks, and never again on the same connection.
    pub(super) number: u64,
    pub(super) kind: Kind,
}

impl Header {
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (kind, method, value) = match self.kind {
            Kind::Request { method, time_left_us } => (REQUEST, method, time_left_us),
            Kind::Answer => (ANSWER, 0, 0),
            Kind::Refusal { reason } => (REFUSAL, 0, reason),
            Kind::Cancel => (CANCEL, 0, 0),
        };
        let head = u64::from(kind) << 56 | u64::from(method) << 32 | u64::from(value);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&head.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// The header of a message. `None` if it has none, or one of a kind that is not known.
    #[inline]
    pub(super) fn of(message: &[u8]) -> Option<Self> {
        let (head, rest) = message.split_first_chunk()?;
        let (head, number) = (u64::from_be_bytes(*head), rest.first_chunk()?);
        let (kind, method, value) = ((head >> 56) as u8, (head >> 32) as u16, head as u32);
        let kind = match kind {
            REQUEST => Kind::Request { method, time_left_us: value },
            ANSWER => Kind::Answer,
            REFUSAL => Kind::Refusal { reason: value },
            CANCEL => Kind::Cancel,
            _ => return None,
        };
        Some(Self { number: u64::from_be_bytes(*number), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let kinds = [
            Kind::Request { method: 0xabcd, time_left_us: 0x0102_0304 },
            Kind::Answer,
            Kind::Refusal { reason: u32::MAX },
            Kind::Cancel,
        ];
        for kind in kinds {
            let header = Header { number: 0x1122_3344_5566_7788, kind };
            assert_eq!(Header::of(&header.to_bytes()), Some(header));
        }
    }

    #[test]
    fn its_bytes_are_those_of_the_document() {
        let kind = Kind::Request { method: 7, time_left_us: 1_000_000 };
        let bytes = [1, 0, 0, 7, 0, 0x0f, 0x42, 0x40, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(Header { number: 5, kind }.to_bytes(), bytes);
    }

    #[test]
    fn what_has_no_header_is_no_call() {
        assert_eq!(Header::of(&[REQUEST; HEADER_BYTES - 1]), None);
        for kind in (0..=u8::MAX).filter(|kind| !(REQUEST..=CANCEL).contains(kind)) {
            assert_eq!(Header::of(&[kind; HEADER_BYTES]), None);
        }
    }
}
