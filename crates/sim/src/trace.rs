//! The hash of everything that happened, in order: two runs of one seed have the same, or something
//! is not decided by the seed.

/// A running hash (the multiply-and-rotate hash of Firefox and rustc: fast, and nobody here lies).
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
}

/// Bytes of a frame that count: all headers, a CRC of the rest among them.
const FRAME_BYTES: usize = 96;

impl Trace {
    /// Adds what happened: its kind, and what tells it from others of the kind.
    pub(crate) fn add(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.mix(*word));
        self.events += 1;
    }

    /// Adds a frame.
    pub(crate) fn add_frame(&mut self, frame: &[u8]) {
        let bytes = &frame[..frame.len().min(FRAME_BYTES)];
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.add(&[frame.len() as u64]);
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// The hash so far.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Things that happened so far.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }
}
