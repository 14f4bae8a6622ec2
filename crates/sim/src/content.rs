//! What messages say: bytes that follow from connection, direction and sequence number, so that
//! every one can be verified wherever it arrives, and none passes for another.

/// The identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The connection's number in the simulation.
    pub(crate) connection: u64,
    /// 0 from client to server, 1 back.
    pub(crate) direction: usize,
    /// Which message of this direction.
    pub(crate) sequence: u32,
}

impl Name {
    fn start(self) -> u64 {
        let mixed = self.connection.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(self.sequence) << 1
            ^ self.direction as u64;
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn words(self) -> impl Iterator<Item = u64> {
        let start = self.start();
        (0u64..).map(move |index| start.wrapping_add(index.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }

    /// Writes the message.
    pub(crate) fn fill(self, message: &mut [u8]) {
        write_words(message, self.words());
        if self.is_hello() && message.len() >= HELLO_BYTES as usize {
            message[..8].copy_from_slice(&self.connection.to_le_bytes());
        }
    }

    /// True if the message is what was sent.
    pub(crate) fn is(self, message: &[u8]) -> bool {
        let skipped = usize::from(self.is_hello() && message.len() >= 8);
        are_words(&message[8 * skipped..], self.words().skip(skipped))
    }

    /// The first message that a client sends names the connection.
    fn is_hello(self) -> bool {
        self.direction == 0 && self.sequence == 0
    }
}

/// Writes as many of the words, least byte first, as there is room for.
pub(crate) fn write_words(bytes: &mut [u8], words: impl Iterator<Item = u64>) {
    for (place, word) in bytes.chunks_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes()[..place.len()]);
    }
}

/// True if the bytes are these words, of the last perhaps only a part. A word is compared as a
/// number: slices of eight bytes are compared by a call each.
pub(crate) fn are_words(bytes: &[u8], mut words: impl Iterator<Item = u64>) -> bool {
    let (whole, last) = bytes.as_chunks::<8>();
    (whole.iter().zip(&mut words)).all(|(bytes, word)| u64::from_le_bytes(*bytes) == word)
        && *last == words.next().unwrap_or_default().to_le_bytes()[..last.len()]
}

/// The shortest first message of a connection.
pub(crate) const HELLO_BYTES: u32 = 16;

/// The connection that a first message names.
pub(crate) fn named_by(hello: &[u8]) -> Option<u64> {
    (hello.len() >= HELLO_BYTES as usize)
        .then(|| u64::from_le_bytes(hello[..8].try_into().expect("8 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_itself_and_no_other() {
        let name = |connection, direction, sequence| Name { connection, direction, sequence };
        let mut bytes = vec![0; 61];
        for one in [name(1, 0, 0), name(1, 0, 1), name(1, 1, 1), name(2, 0, 1)] {
            one.fill(&mut bytes);
            for other in [name(1, 0, 0), name(1, 0, 1), name(1, 1, 1), name(2, 0, 1)] {
                assert_eq!(other.is(&bytes), one == other, "{one:?} {other:?}");
            }
            bytes[40] ^= 1;
            assert!(!one.is(&bytes));
        }
    }

    #[test]
    fn a_hello_names_its_connection() {
        let mut bytes = vec![0; 16];
        Name { connection: 77, direction: 0, sequence: 0 }.fill(&mut bytes);
        assert_eq!(named_by(&bytes), Some(77));
        assert_eq!(named_by(&bytes[..15]), None);
    }
}
