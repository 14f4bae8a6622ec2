//! The receiving end of a ring: takes frames out of memory that the peer can write at any time.
//!
//! Every word is loaded once and bounded, and each frame is copied to private memory before anyone
//! looks at it.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::buffers::{Buffers, Violation, prefetch};
use super::region::Region;
use super::ring::{Descriptor, Ring};
use crate::Counters;

/// How many descriptors ahead of the copy their frames are prefetched: enough to hide the latency of
/// a line in the other core's cache (80 ns) behind the work on this many frames.
const PREFETCH_AHEAD: u16 = 4;

#[derive(Debug)]
pub(super) struct Receiver {
    ring: Ring,
    memory: Arc<[Region]>,
    /// Set on the client, whose buffers these are.
    buffers: Option<Buffers>,
    /// Descriptors emptied so far.
    next: u16,
    /// The sender's index when the last frame before it was found to be unfinished: until it moves,
    /// there is nothing to take.
    unfinished_at: Option<u16>,
    /// The private copy of the frame being shown; never larger than the NIC's largest frame.
    frame: Box<[u8]>,
    doorbell: OwnedFd,
}

impl Receiver {
    /// Starts with an empty ring. `doorbell` becomes readable when the peer interrupts us.
    pub(super) fn new(
        ring: Ring,
        memory: Arc<[Region]>,
        buffers: Option<Buffers>,
        frame_bytes_max: usize,
        doorbell: OwnedFd,
    ) -> Self {
        let frame = vec![0; frame_bytes_max].into();
        Self { ring, memory, buffers, next: 0, unfinished_at: None, frame, doorbell }
    }

    /// Resets our side of the ring and, on the client, hands all buffers to the sender. The client
    /// calls this when the server has connected, because servers clear the indexes when they do.
    pub(super) fn start(&mut self) {
        self.ring.mask_interrupt(true);
        self.give_back(self.next.wrapping_sub(self.ring.size()));
    }

    pub(super) const fn doorbell(&self) -> &OwnedFd {
        &self.doorbell
    }

    /// Takes up to `budget` frames and shows them to `sink`. Returns how many it took, and what the
    /// peer did wrong, if anything; the frames before that are good.
    pub(super) fn burst(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[u8]),
        counters: &mut Counters,
    ) -> (usize, Result<(), Violation>) {
        let produced = self.ring.produced();
        if produced == self.next || self.unfinished_at == Some(produced) {
            return (0, Ok(()));
        }
        if produced.wrapping_sub(self.next) > self.ring.size() {
            return (0, Err(Violation::Index));
        }
        let first = self.next;
        let (mut frames, mut result) = (0, Ok(()));
        self.prefetch_first(produced);
        while frames < budget && self.next != produced {
            match self.take(produced) {
                Ok(Taken::Frame(length)) => {
                    frames += 1;
                    counters.rx_bytes += length as u64;
                    sink(&self.frame[..length]);
                }
                Ok(Taken::Dropped) => counters.rx_frames_dropped += 1,
                Ok(Taken::Unfinished) => break,
                Err(violation) => {
                    counters.rx_frames_dropped += 1;
                    result = Err(violation);
                    break;
                }
            }
        }
        counters.rx_frames += frames as u64;
        if self.next != first {
            self.give_back(first);
        }
        (frames, result)
    }

    /// Asks for an interrupt at the next frame. False if frames are there already.
    pub(super) fn arm(&self) -> bool {
        self.ring.mask_interrupt(false);
        // Pairs with the fence in `Sender::flush`: either the sender sees that interrupts are wanted,
        // or we see its frames here.
        fence(Ordering::SeqCst);
        let produced = self.ring.produced();
        let empty = produced == self.next || self.unfinished_at == Some(produced);
        if !empty {
            self.ring.mask_interrupt(true);
        }
        empty
    }

    /// Polls again.
    pub(super) fn disarm(&self) {
        self.ring.mask_interrupt(true);
    }

    /// Moves the next frame, which begins below `produced`, to `self.frame`.
    #[inline]
    fn take(&mut self, produced: u16) -> Result<Taken, Violation> {
        self.prefetch(self.next.wrapping_add(PREFETCH_AHEAD), produced);
        let descriptor = self.ring.descriptor(self.next);
        let length = descriptor.length as usize;
        if descriptor.continues() || length > self.frame.len() || length == 0 {
            return self.take_chain(descriptor, produced);
        }
        let source = self.locate(self.next, descriptor).ok_or(Violation::Extent)?;
        self.copy(source, 0, length);
        self.next = self.next.wrapping_add(1);
        Ok(Taken::Frame(length))
    }

    /// The general case: a frame in one or more descriptors that may not fit `self.frame`.
    #[cold]
    fn take_chain(&mut self, first: Descriptor, produced: u16) -> Result<Taken, Violation> {
        let (mut descriptor, mut at, mut bytes, mut fits) = (first, self.next, 0, true);
        loop {
            let length = descriptor.length as usize;
            let source = self.locate(at, descriptor).ok_or(Violation::Extent)?;
            fits &= length <= self.frame.len() - bytes;
            if fits {
                self.copy(source, bytes, length);
                bytes += length;
            }
            at = at.wrapping_add(1);
            if !descriptor.continues() {
                break;
            }
            if at.wrapping_sub(self.next) == self.ring.size() {
                return Err(Violation::Chain);
            }
            if at == produced {
                self.unfinished_at = Some(produced);
                return Ok(Taken::Unfinished);
            }
            descriptor = self.ring.descriptor(at);
        }
        self.next = at;
        Ok(if fits && bytes > 0 { Taken::Frame(bytes) } else { Taken::Dropped })
    }

    /// Where the bytes of a received descriptor are, all of them inside a region.
    #[inline]
    fn locate(&self, index: u16, descriptor: Descriptor) -> Option<NonNull<u8>> {
        let place = match &self.buffers {
            Some(buffers) if descriptor.length <= buffers.bytes => {
                buffers.descriptor(self.ring.slot(index))
            }
            Some(_) => return None,
            None => descriptor,
        };
        self.memory.get(usize::from(place.region))?.at(place.offset, descriptor.length as usize)
    }

    #[inline]
    fn copy(&mut self, source: NonNull<u8>, at: usize, length: usize) {
        let target = &mut self.frame[at..at + length];
        // SAFETY: `source` is from `locate`, so `length` bytes there are mapped; the target is a
        // private slice of that length, and cannot overlap the mapping. The peer may write the source
        // meanwhile: then the copy holds a mixture, which is as good as any other frame from a peer
        // that we do not trust.
        unsafe { source.as_ptr().copy_to_nonoverlapping(target.as_mut_ptr(), length) };
    }

    /// Empties all descriptors from `first` up to `self.next` and tells the sender.
    fn give_back(&self, first: u16) {
        if let Some(buffers) = &self.buffers {
            let mut index = first;
            while index != self.next {
                self.ring.set_descriptor(index, buffers.descriptor(self.ring.slot(index)));
                index = index.wrapping_add(1);
            }
        }
        self.ring.publish_consumed(self.next);
    }

    fn prefetch_first(&self, produced: u16) {
        for ahead in 0..PREFETCH_AHEAD {
            self.prefetch(self.next.wrapping_add(ahead), produced);
        }
    }

    /// Prefetches the start of the frame at `index` if it lies before `produced`.
    #[inline]
    fn prefetch(&self, index: u16, produced: u16) {
        let distance = produced.wrapping_sub(index);
        if distance == 0 || distance > self.ring.size() {
            return;
        }
        let place = match &self.buffers {
            Some(buffers) => buffers.descriptor(self.ring.slot(index)),
            None => self.ring.descriptor(index),
        };
        if let Some(region) = self.memory.get(usize::from(place.region))
            && let Some(address) = region.at(place.offset, 0)
        {
            prefetch(address.as_ptr());
        }
    }
}

enum Taken {
    /// A frame of this many bytes is in `Receiver::frame`.
    Frame(usize),
    /// A frame was there, but empty or too large.
    Dropped,
    /// The peer has not published the rest of the frame yet.
    Unfinished,
}
