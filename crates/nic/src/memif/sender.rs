//! The sending end of a ring: lets frames be written straight into the peer-visible buffers.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use clearway_base::COPY_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::buffers::{Buffers, Violation, prefetch_to_write};
use super::link::Frames;
use super::region::Region;
use super::ring::{Descriptor, Ring};
use crate::{Counters, Transmit};

/// How much of the next frame's buffer is fetched ahead: what a small message takes.
const PREFETCH_LINES: usize = 3;

#[derive(Debug)]
pub(super) struct Sender {
    ring: Ring,
    memory: Arc<[Region]>,
    /// Set on the client, whose buffers these are.
    buffers: Option<Buffers>,
    /// Descriptors filled so far.
    produced: u16,
    /// Those of them that the receiver has been told about.
    published: u16,
    /// Descriptors that the receiver had emptied when we last looked. It is looked at again only
    /// when this says that there is no room.
    consumed: u16,
    /// Where the next frame can be written in one piece.
    run: Run,
    /// The largest frame that the peer is sent; what is larger is lost.
    sent_bytes_max: usize,
    /// Private buffer of the NIC's largest frame, for where there is no room for it in one piece.
    gather: Box<[u8]>,
    doorbell: OwnedFd,
}

/// Free descriptors, the next one first, whose buffers are side by side in memory.
#[derive(Debug, Default)]
struct Run {
    descriptors: u16,
    bytes: usize,
    /// The region, and the offset in it, where the buffers end.
    end: (u16, u32),
}

impl Run {
    /// One more of them, if it is beside the others.
    fn add(&mut self, place: Descriptor) -> bool {
        if self.descriptors > 0 && self.end != (place.region, place.offset) {
            return false;
        }
        self.end = (place.region, place.offset.wrapping_add(place.length));
        self.bytes += place.length as usize;
        self.descriptors += 1;
        true
    }

    /// The first of them is used.
    #[inline]
    fn shorten(&mut self, place: Descriptor) {
        self.descriptors = self.descriptors.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(place.length as usize);
        if self.descriptors == 0 {
            self.bytes = 0;
        }
    }
}

impl Sender {
    /// Starts with an empty ring. Writing to `doorbell` interrupts the peer.
    pub(super) fn new(
        ring: Ring,
        memory: Arc<[Region]>,
        buffers: Option<Buffers>,
        frames: Frames,
        doorbell: OwnedFd,
    ) -> Self {
        ring.publish_produced(0);
        // As if all descriptors were in use: the first transmit looks, and checks what it sees.
        let consumed = 0u16.wrapping_sub(ring.size());
        Self {
            ring,
            memory,
            buffers,
            produced: 0,
            published: 0,
            consumed,
            run: Run::default(),
            sent_bytes_max: frames.sent_bytes_max,
            gather: vec![0; frames.bytes_max].into(),
            doorbell,
        }
    }

    pub(super) const fn sent_bytes_max(&self) -> usize {
        self.sent_bytes_max
    }

    /// As if so many descriptors had passed, with none in use; the receiver starts there too.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, index: u16) {
        self.ring.publish_produced(index);
        (self.produced, self.published) = (index, index);
        self.consumed = index.wrapping_sub(self.ring.size());
        self.run = Run::default();
    }

    /// Lets `fill` write a frame of up to the NIC's largest size.
    pub(super) fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
        counters: &mut Counters,
    ) -> Result<Transmit, Violation> {
        if self.free(1)? == 0 {
            return Ok(Transmit::Full);
        }
        let place = self.place(self.produced);
        let is_whole = place.length as usize >= self.gather.len();
        let length = if is_whole || self.has_run()? {
            self.fill_in_place(place, fill)?
        } else {
            match self.fill_chain(fill)? {
                Some(length) => length,
                None => return Ok(Transmit::Full),
            }
        };
        if length == 0 {
            return Ok(Transmit::Nothing);
        }
        if length > self.sent_bytes_max {
            counters.tx_frames_dropped += 1;
            return Ok(Transmit::Queued);
        }
        counters.tx_frames += 1;
        counters.tx_bytes += length as u64;
        Ok(Transmit::Queued)
    }

    /// Tells the receiver about all frames since the last time, and wakes it if it sleeps.
    pub(super) fn flush(&mut self) {
        if self.produced == self.published {
            return;
        }
        self.ring.publish_produced(self.produced);
        self.published = self.produced;
        self.prefetch_next();
        // Pairs with the fence in `Receiver::arm`: either we see that interrupts are wanted, or the
        // receiver sees the frames before it sleeps.
        fence(Ordering::SeqCst);
        if self.ring.interrupt_is_wanted() {
            self.interrupt();
        }
    }

    /// The receiver's core still has the lines that the next frame will be written to, from the
    /// last lap. To have them back takes as long as a frame takes to cross, so it is done before
    /// they are needed.
    #[inline]
    fn prefetch_next(&self) {
        prefetch_to_write(self.ring.descriptor_address(self.produced));
        let place = self.place(self.produced);
        let bytes = PREFETCH_LINES * 64;
        if let Some(buffer) = self.locate(place, bytes) {
            for line in 0..PREFETCH_LINES {
                prefetch_to_write(buffer.as_ptr().wrapping_add(line * 64));
            }
        }
    }

    /// The normal case: the frame is written where the peer will read it, in one buffer, or in
    /// several that are side by side.
    #[inline]
    fn fill_in_place(
        &mut self,
        place: Descriptor,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<usize, Violation> {
        let bytes = self.gather.len();
        let target = self.locate(place, bytes).ok_or(Violation::Extent)?;
        // SAFETY: `locate` checked that `bytes` bytes are mapped there, and the mapping outlives
        // this call. On our side nothing else refers to the buffer of a free descriptor. The peer,
        // another process, could write there too; `fill` only writes, and would at worst read back
        // a byte of its own frame changed, so the peer could spoil nothing but a frame that goes to
        // itself.
        let buffer = unsafe { std::slice::from_raw_parts_mut(target.as_ptr(), bytes) };
        let length = fill(buffer);
        assert!(length <= bytes, "fill wrote {length} bytes into a buffer of {bytes}");
        if length > self.sent_bytes_max {
            return Ok(length);
        }
        if length > place.length as usize {
            self.spread(length, false)?;
        } else if length > 0 {
            self.put(place, length, false);
        }
        Ok(length)
    }

    /// True if the next free descriptors hold the largest frame side by side.
    #[inline]
    fn has_run(&mut self) -> Result<bool, Violation> {
        while self.run.bytes < self.gather.len() {
            let ahead = self.run.descriptors;
            if self.free(ahead.saturating_add(1))? <= ahead {
                return Ok(false);
            }
            if !self.run.add(self.place(self.produced.wrapping_add(ahead))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The general case: the buffers are smaller than our largest frame and not side by side, so it
    /// is written to private memory and spread over as many descriptors as it takes. `None` if
    /// there may be too few.
    #[cold]
    fn fill_chain(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<Option<usize>, Violation> {
        if !self.room_for_largest()? {
            return Ok(None);
        }
        let length = fill(&mut self.gather);
        assert!(length <= self.gather.len(), "fill wrote more than its buffer holds");
        if length <= self.sent_bytes_max {
            self.spread(length, true)?;
        }
        Ok(Some(length))
    }

    /// Gives a frame as many descriptors as it takes. Its bytes are there already, unless they are
    /// `gathered`.
    fn spread(&mut self, length: usize, gathered: bool) -> Result<(), Violation> {
        let mut done = 0;
        while done < length {
            let place = self.place(self.produced);
            let part = (place.length as usize).min(length - done);
            if gathered {
                let target = self.locate(place, part).ok_or(Violation::Extent)?;
                let source = &self.gather[done..done + part];
                for (at, piece) in source.chunks(COPY_BYTES).enumerate() {
                    // SAFETY: `locate` checked that `part` bytes are mapped at `target`; the source
                    // is a private slice of that length and cannot overlap the mapping.
                    unsafe {
                        let target = target.add(at * COPY_BYTES);
                        target.as_ptr().copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                    }
                }
            }
            done += part;
            self.put(place, part, done < length);
            if done < length && self.free(1)? == 0 {
                // The peer made its descriptors smaller after we had looked for room.
                return Err(Violation::Capacity);
            }
        }
        Ok(())
    }

    /// The next descriptor has so many bytes of a frame.
    #[inline]
    fn put(&mut self, place: Descriptor, bytes: usize, continues: bool) {
        self.ring.set_descriptor(self.produced, place.holding(bytes as u32, continues));
        self.produced = self.produced.wrapping_add(1);
        self.run.shorten(place);
    }

    /// True if the free descriptors hold the largest frame that the peer is sent.
    fn room_for_largest(&mut self) -> Result<bool, Violation> {
        let free = self.free(self.ring.size())?;
        let mut room = 0;
        for ahead in 0..free {
            room += self.place(self.produced.wrapping_add(ahead)).length as usize;
            if room >= self.sent_bytes_max {
                return Ok(true);
            }
        }
        if free == self.ring.size() { Err(Violation::Capacity) } else { Ok(false) }
    }

    /// How many descriptors are free; looks at the receiver's index only if fewer than `wanted` are
    /// known to be.
    #[inline]
    pub(super) fn free(&mut self, wanted: u16) -> Result<u16, Violation> {
        let size = self.ring.size();
        let free = size - self.produced.wrapping_sub(self.consumed);
        if free >= wanted {
            return Ok(free);
        }
        let consumed = self.ring.consumed();
        if self.produced.wrapping_sub(consumed) > size
            || self.published.wrapping_sub(consumed) > size
        {
            return Err(Violation::Index);
        }
        self.consumed = consumed;
        Ok(size - self.produced.wrapping_sub(consumed))
    }

    /// The empty buffer at `index`: our own records on the client, the peer's word on the server.
    #[inline]
    fn place(&self, index: u16) -> Descriptor {
        match &self.buffers {
            Some(buffers) => buffers.descriptor(self.ring.slot(index)),
            None => self.ring.descriptor(index),
        }
    }

    #[inline]
    fn locate(&self, place: Descriptor, bytes: usize) -> Option<NonNull<u8>> {
        self.memory.get(usize::from(place.region))?.at(place.offset, bytes)
    }

    /// Writes the peer's eventfd without ever waiting for it: it was set non-blocking when it came,
    /// and a peer that has filled it up and cleared that flag again is found out by asking first.
    /// If the write fails, the peer has a wake-up pending or has broken its own doorbell.
    fn interrupt(&self) {
        let mut poll = [PollFd::new(&self.doorbell, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut poll, Some(&now)) == Ok(1) {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }
}
