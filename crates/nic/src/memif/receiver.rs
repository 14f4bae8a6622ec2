//! The receiving end of a ring: takes frames out of memory that the peer can write at any time.
//!
//! Every word is loaded once and bounded, and the frames of a burst are copied to private memory,
//! one after the other, before anyone looks at them.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use clearway_base::COPY_BYTES;

use super::buffers::{Buffers, Violation, prefetch};
use super::region::Region;
use super::ring::{Descriptor, Ring};
use crate::burst::Burst;
use crate::{BURST_FRAMES, Counters, Sink};

/// How many descriptors ahead of the copy their frames are prefetched: enough to hide the latency
/// of a line in the other core's cache (80 ns) behind the work on this many frames.
const PREFETCH_AHEAD: u16 = 4;

/// How many lines of a lone frame are prefetched: what a small message takes.
const LONE_LINES: usize = 3;

/// Descriptors are given back at the latest when they are this share of the ring.
const HELD_SHARE: u16 = 8;

/// How much private memory a burst is copied to: half of a small first-level cache, through which
/// all frames pass. Of frames over 512 bytes a burst has fewer. Where one frame may be larger than
/// that, there is room for it behind as many others, which then take no more of the cache.
pub(super) const fn area_bytes(frame_bytes_max: usize) -> usize {
    let (burst_bytes, frame_bytes) = (BURST_FRAMES * 512, slot_bytes(frame_bytes_max));
    if frame_bytes > burst_bytes { burst_bytes + frame_bytes } else { burst_bytes }
}

#[derive(Debug)]
pub(super) struct Receiver {
    ring: Ring,
    memory: Arc<[Region]>,
    /// Set on the client, whose buffers these are.
    buffers: Option<Buffers>,
    /// Descriptors emptied so far.
    next: u16,
    /// Those of them that the sender has been told about.
    returned: u16,
    /// The sender's index when the last frame before it was found to be unfinished: until it moves,
    /// there is nothing to take.
    unfinished_at: Option<u16>,
    frame_bytes_max: usize,
    /// On the server, where the frames in each slot were last: a hint, and not to be trusted.
    places: Box<[Descriptor]>,
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
        let slots = if buffers.is_some() { 0 } else { usize::from(ring.size()) };
        Self {
            ring,
            memory,
            buffers,
            next: 0,
            returned: 0,
            unfinished_at: None,
            frame_bytes_max,
            places: vec![Descriptor::default(); slots].into(),
            doorbell,
        }
    }

    /// Resets our side of the ring and, on the client, hands all buffers to the sender. The client
    /// calls this when the server has connected, because servers clear the indexes when they do.
    pub(super) fn start(&mut self) {
        self.ring.mask_interrupt(true);
        self.returned = self.next.wrapping_sub(self.ring.size());
        self.give_back();
    }

    /// As if so many descriptors had passed, with none in use; the sender starts there too.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, index: u16) {
        self.next = index;
        self.start();
    }

    pub(super) const fn doorbell(&self) -> &OwnedFd {
        &self.doorbell
    }

    /// Takes up to `budget` frames and shows their copies, in `area`, to `sink`. Returns how many
    /// it took, and what the peer did wrong, if anything; the frames before that are good.
    ///
    /// What is dropped counts for the budget, too: else a peer could have one call look at all that
    /// its ring holds.
    pub(super) fn burst(
        &mut self,
        mut budget: usize,
        area: &mut [u8],
        sink: &mut Sink<'_>,
        counters: &mut Counters,
    ) -> (usize, Result<(), Violation>) {
        let produced = self.ring.produced();
        if !self.has_more(produced) {
            self.give_back();
            return (0, Ok(()));
        }
        if produced.wrapping_sub(self.next) > self.ring.size() {
            return (0, Err(Violation::Index));
        }
        let first = self.next;
        let (mut frames, mut outcome) = (0, Ok(()));
        if produced.wrapping_sub(first) > 1 {
            self.prefetch_first(produced);
        } else {
            self.prefetch_lone();
        }
        while frames < budget && self.has_more(produced) && outcome.is_ok() {
            let mut burst = Burst::new();
            let limit = (budget - frames).min(BURST_FRAMES);
            outcome = self.collect(produced, limit, &mut budget, area, &mut burst, counters);
            frames += burst.show(sink);
        }
        counters.rx_frames += frames as u64;
        if self.next.wrapping_sub(self.returned) >= self.ring.size() / HELD_SHARE {
            self.give_back();
        }
        (frames, outcome)
    }

    /// True if something below `produced` can be taken.
    #[inline]
    fn has_more(&self, produced: u16) -> bool {
        produced != self.next && self.unfinished_at != Some(produced)
    }

    /// Copies frames below `produced` to `area` until that or the burst is full, or one is dropped.
    #[inline]
    fn collect<'a>(
        &mut self,
        produced: u16,
        limit: usize,
        budget: &mut usize,
        mut area: &'a mut [u8],
        burst: &mut Burst<'a>,
        counters: &mut Counters,
    ) -> Result<(), Violation> {
        while burst.len() < limit && self.next != produced && area.len() >= self.frame_bytes_max {
            match self.take(produced, area) {
                Ok(Taken::Frame(length)) => {
                    counters.rx_bytes += length as u64;
                    let (slot, rest) = area.split_at_mut(slot_bytes(length).min(area.len()));
                    burst.push(&slot[..length]);
                    area = rest;
                }
                Ok(Taken::Dropped) => {
                    counters.rx_frames_dropped += 1;
                    *budget -= 1; // there was room in it for one more frame
                    return Ok(());
                }
                Ok(Taken::Unfinished) => return Ok(()),
                Err(violation) => {
                    counters.rx_frames_dropped += 1;
                    return Err(violation);
                }
            }
        }
        Ok(())
    }

    /// Asks for an interrupt at the next frame. False if frames are there already.
    pub(super) fn arm(&mut self) -> bool {
        self.give_back();
        self.ring.mask_interrupt(false);
        // Pairs with the fence in `Sender::flush`: either the sender sees that interrupts are
        // wanted, or we see its frames here.
        fence(Ordering::SeqCst);
        let produced = self.ring.produced();
        let more = self.has_more(produced);
        if more {
            self.ring.mask_interrupt(true);
        }
        !more
    }

    /// True if frames are there.
    pub(super) fn has_frames(&self) -> bool {
        self.has_more(self.ring.produced())
    }

    /// Polls again.
    pub(super) fn disarm(&self) {
        self.ring.mask_interrupt(true);
    }

    /// Moves the next frame, which begins below `produced`, to the start of `target`, where there
    /// is room for the largest.
    #[inline]
    fn take(&mut self, produced: u16, target: &mut [u8]) -> Result<Taken, Violation> {
        self.prefetch(self.next.wrapping_add(PREFETCH_AHEAD), produced);
        let descriptor = self.ring.descriptor(self.next);
        let length = descriptor.length as usize;
        if descriptor.continues() || length > self.frame_bytes_max || length == 0 {
            return self.take_chain(descriptor, produced, target);
        }
        self.copy(self.next, descriptor, &mut target[..length])?;
        if let Some(place) = self.places.get_mut(usize::from(self.ring.slot(self.next))) {
            *place = descriptor;
        }
        self.next = self.next.wrapping_add(1);
        Ok(Taken::Frame(length))
    }

    /// The general case: a frame in one or more descriptors that may be larger than the largest.
    #[cold]
    fn take_chain(
        &mut self,
        first: Descriptor,
        produced: u16,
        target: &mut [u8],
    ) -> Result<Taken, Violation> {
        let (mut descriptor, mut at, mut bytes, mut fits) = (first, self.next, 0, true);
        loop {
            let length = descriptor.length as usize;
            fits &= length <= self.frame_bytes_max - bytes;
            let part = if fits { length } else { 0 };
            self.copy(at, descriptor, &mut target[bytes..bytes + part])?;
            bytes += part;
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
        // The index will come round again.
        self.unfinished_at = None;
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

    /// Copies as many of a descriptor's bytes as `target` has, which is not more than there are.
    #[inline]
    fn copy(&self, index: u16, descriptor: Descriptor, target: &mut [u8]) -> Result<(), Violation> {
        let source = self.locate(index, descriptor).ok_or(Violation::Extent)?;
        assert!(target.len() <= descriptor.length as usize);
        for (at, piece) in target.chunks_mut(COPY_BYTES).enumerate() {
            // SAFETY: `descriptor.length` bytes are mapped at `source`, no fewer than the target
            // has; the target is private and cannot overlap the mapping. The peer may write the
            // source meanwhile: then the copy holds a mixture, which is as good as any other frame
            // from a peer that we do not trust.
            unsafe {
                let source = source.add(at * COPY_BYTES);
                source.as_ptr().copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len());
            }
        }
        // To the compiler the source may have changed here, as by a signal handler: whatever is
        // looked at from now on is the copy.
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }

    /// Empties all descriptors up to `self.next` and tells the sender. It has time: what is written
    /// here has to be fetched from the sender's core, and whatever is written after it waits for
    /// that. So it is done when there is nothing to receive, after something was sent, or when it
    /// is much.
    pub(super) fn give_back(&mut self) {
        if self.returned == self.next {
            return;
        }
        if let Some(buffers) = &self.buffers {
            while self.returned != self.next {
                let place = buffers.descriptor(self.ring.slot(self.returned));
                self.ring.set_descriptor(self.returned, place);
                self.returned = self.returned.wrapping_add(1);
            }
        }
        self.returned = self.next;
        self.ring.publish_consumed(self.next);
    }

    fn prefetch_first(&self, produced: u16) {
        for ahead in 0..PREFETCH_AHEAD {
            self.prefetch(self.next.wrapping_add(ahead), produced);
        }
    }

    /// Prefetches a frame while its descriptor is still on its way: most likely it is where the
    /// last one in this slot was. In a conversation of single frames each has to be waited for.
    #[inline]
    fn prefetch_lone(&self) {
        let place = match &self.buffers {
            Some(buffers) => buffers.descriptor(self.ring.slot(self.next)),
            None => self.places[usize::from(self.ring.slot(self.next))],
        };
        let Some(region) = self.memory.get(usize::from(place.region)) else { return };
        if let Some(address) = region.at(place.offset, 0) {
            for line in 0..LONE_LINES {
                prefetch(address.as_ptr().wrapping_add(line * 64));
            }
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

/// What a frame of this length occupies: whole cache lines, so that copies stay aligned.
#[inline]
const fn slot_bytes(length: usize) -> usize {
    length.next_multiple_of(64)
}

enum Taken {
    /// A frame of this many bytes is where it was to go.
    Frame(usize),
    /// A frame was there, but empty or too large.
    Dropped,
    /// The peer has not published the rest of the frame yet.
    Unfinished,
}
