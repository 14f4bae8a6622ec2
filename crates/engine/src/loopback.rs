//! Frames of this host for this host, on their way from the component that sends them to the one
//! whose they are: they are received as what comes from the wire, at the end of the turn's transmit
//! part. So no component calls another.

use crate::switch::VifKey;

/// Frames that wait. A turn sends fewer.
const FRAMES_MAX: usize = 256;

/// A frame, and the VIF that it comes from; `None` if it is from the host itself.
#[derive(Debug, Default)]
pub(crate) struct Looped {
    pub(crate) from: Option<VifKey>,
    pub(crate) bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    waiting: Vec<Looped>,
    /// Kept for their memory.
    spare: Vec<Looped>,
}

impl Loopback {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// False if there is no room.
    #[cold]
    pub(crate) fn push(&mut self, from: Option<VifKey>, frame: &[u8]) -> bool {
        if self.waiting.len() == FRAMES_MAX {
            return false;
        }
        let mut looped = self.spare.pop().unwrap_or_default();
        looped.from = from;
        looped.bytes.clear();
        looped.bytes.extend_from_slice(frame);
        self.waiting.push(looped);
        true
    }

    /// All that waits, the oldest first.
    pub(crate) fn take(&mut self) -> Vec<Looped> {
        core::mem::take(&mut self.waiting)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, mut looped: Vec<Looped>) {
        self.spare.append(&mut looped);
        if self.waiting.is_empty() {
            self.waiting = looped;
        }
    }
}
