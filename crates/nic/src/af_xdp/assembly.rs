//! Puts together frames that the kernel hands over in several chunks.
//!
//! A copy, since a caller wants a frame in one piece; the price of frames larger than a page. No
//! other frame passes here.

/// The frame in the making.
#[derive(Debug)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_open: bool,
}

impl Assembly {
    /// For frames of up to `bytes_max` bytes; longer ones are dropped.
    pub(super) fn new(bytes_max: usize) -> Assembly {
        Assembly { bytes: Vec::with_capacity(bytes_max), bytes_max, is_open: false }
    }

    /// True if the next chunk goes on with a frame.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes the next part of a frame; `goes_on` if it is not the last. The frame, when it is
    /// whole.
    pub(super) fn add(&mut self, part: &[u8], goes_on: bool) -> Part<'_> {
        if !self.is_open {
            self.bytes.clear();
        }
        self.is_open = goes_on;
        // One byte more than fits is remembered as such.
        let room = (self.bytes_max + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        match goes_on {
            true => Part::Taken,
            false if self.bytes.len() > self.bytes_max => Part::TooLong,
            false => Part::Last(&self.bytes),
        }
    }
}

/// What became of a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// There is more to come.
    Taken,
    /// It was the last one; the frame.
    Last(&'a [u8]),
    /// It was the last one of a frame that is longer than any may be.
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_frames_and_long_ones_are_told() {
        let mut assembly = Assembly::new(6);
        for _ in 0..2 {
            assert_eq!(assembly.add(b"abc", true), Part::Taken);
            assert!(assembly.is_open());
            assert_eq!(assembly.add(b"def", false), Part::Last(b"abcdef"));
            assert!(!assembly.is_open());
            assert_eq!(assembly.add(b"abcd", true), Part::Taken);
            assert_eq!(assembly.add(b"efgh", true), Part::Taken);
            assert_eq!(assembly.add(b"i", false), Part::TooLong);
        }
    }
}
