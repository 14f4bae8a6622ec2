//! Frames on their way from a driver to its caller, shown together.
//!
//! It holds references, not frames: where frames lie, and that they stay there while they are
//! shown, is the driver's business.

use std::mem::MaybeUninit;

use crate::{BURST_FRAMES, Checksums, Receiver, Sink};

/// Up to [`BURST_FRAMES`] frames. Making one writes nothing, because the way of a lone frame is the
/// one that has to be short.
pub(crate) struct Burst<'a> {
    frames: [MaybeUninit<&'a [u8]>; BURST_FRAMES],
    count: usize,
}

impl<'a> Burst<'a> {
    #[inline]
    pub(crate) fn new() -> Burst<'a> {
        Burst { frames: [const { MaybeUninit::uninit() }; BURST_FRAMES], count: 0 }
    }

    /// Adds a frame; the caller sees to it that there are not more than fit.
    #[inline]
    pub(crate) fn push(&mut self, frame: &'a [u8]) {
        self.frames[self.count].write(frame);
        self.count += 1;
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Shows what there is, if there is anything; how many frames that is.
    #[inline]
    pub(crate) fn show(&self, sink: &mut Sink<'_>) -> usize {
        self.show_with(Checksums::Unknown, sink)
    }

    /// The same where something is known of their checksums.
    #[inline]
    pub(crate) fn show_with(&self, checksums: Checksums, sink: &mut Sink<'_>) -> usize {
        if self.count > 0 {
            let frames = std::ptr::from_ref(&self.frames[..self.count]) as *const [&[u8]];
            // SAFETY: `push` has written the first `count` frames, and what is written has the
            // layout of what may not be (`MaybeUninit`'s guarantee).
            sink(unsafe { &*frames }, checksums);
        }
        self.count
    }

    /// The same for whoever takes segments together, too.
    #[inline]
    pub(crate) fn show_to(&self, receiver: &mut dyn Receiver, checksums: Checksums) -> usize {
        self.show_with(checksums, &mut |frames, checksums| receiver.frames(frames, checksums))
    }
}
