//! Frames of this host for this host, on their way from the component that sends them to the one
//! whose they are: they are received as what comes from the wire, at the end of the turn's transmit
//! part. So no component calls another. Packets that were put together from fragments come in here
//! as well.

use crate::common::Via;

/// Frames that wait. A turn sends fewer.
const FRAMES_MAX: usize = 256;
/// Longer ones, which are seldom, are not kept for their memory.
const SPARE_BYTES_MAX: usize = 1 << 14;

/// A frame, and whom it comes from.
#[derive(Debug)]
pub(crate) struct Looped {
    pub(crate) via: Via,
    pub(crate) bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    waiting: Vec<Looped>,
    /// Kept for their memory.
    spare: Vec<Vec<u8>>,
}

impl Loopback {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// False if there is no room.
    #[cold]
    pub(crate) fn push(&mut self, via: Via, frame: &[u8]) -> bool {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.push_whole(via, bytes)
    }

    /// The same for a frame of its own memory.
    pub(crate) fn push_whole(&mut self, via: Via, bytes: Vec<u8>) -> bool {
        let has_room = self.waiting.len() < FRAMES_MAX;
        if has_room {
            self.waiting.push(Looped { via, bytes });
        }
        has_room
    }

    /// All that waits, the oldest first.
    pub(crate) fn take(&mut self) -> Vec<Looped> {
        core::mem::take(&mut self.waiting)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, mut looped: Vec<Looped>) {
        let bytes = looped.drain(..).map(|looped| looped.bytes);
        self.spare.extend(bytes.filter(|bytes| bytes.capacity() <= SPARE_BYTES_MAX));
        if self.waiting.is_empty() {
            self.waiting = looped;
        }
    }
}
