//! Frames that have been taken from the device: shown where it put them, with what it says of their
//! checksums, in the order in which they came. What came as several packets in one is cut first.

use crate::burst::Burst;
use crate::segments::{Verdict, coalesced, settle};
use crate::vnet::Stage;
use crate::{BURST_FRAMES, Checksums, Counters, Receiver};

use super::port::Port;
use super::sys::{self, Frame, Mbuf};

/// A device may refuse to give fewer than a whole burst, so that what is over the budget waits
/// here.
pub(super) struct Arrived {
    mbufs: [*mut Mbuf; BURST_FRAMES],
    frames: [Frame; BURST_FRAMES],
    checksums: [Checksums; BURST_FRAMES],
    /// Those from `next` to `count` have not been shown.
    next: usize,
    count: usize,
    /// The super-frame that came last, before those.
    stage: Stage,
    frame_bytes_max: usize,
}

impl Arrived {
    pub(super) fn new(frame_bytes_max: usize) -> Self {
        let none = Frame {
            bytes: std::ptr::null_mut(),
            length: 0,
            head_length: 0,
            segment_bytes: 0,
            ip_checksum: 0,
            transport_checksum: 0,
            is_several: 0,
        };
        Self {
            mbufs: [std::ptr::null_mut(); BURST_FRAMES],
            frames: [none; BURST_FRAMES],
            checksums: [Checksums::Unknown; BURST_FRAMES],
            next: 0,
            count: 0,
            stage: Stage::new(frame_bytes_max),
            frame_bytes_max,
        }
    }

    /// True if there are frames that were not shown.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.next < self.count || self.stage.has_waiting()
    }

    /// The device gave as many as it may at the last call.
    #[inline]
    pub(super) fn was_whole(&self) -> bool {
        self.count == BURST_FRAMES
    }

    /// Takes a burst from the device, if there is nothing left of the last. True if there is
    /// something.
    #[inline]
    pub(super) fn fetch(&mut self, port: &Port, queue: u16, counters: &mut Counters) -> bool {
        if self.has_waiting() {
            return true;
        }
        // SAFETY: the port is started and has this queue, whose receiving half only we use; there
        // is room for a burst in both arrays.
        let fetched = unsafe {
            sys::clearway_dpdk_receive(
                port.number,
                queue,
                BURST_FRAMES as u16,
                self.frame_bytes_max as u32,
                self.mbufs.as_mut_ptr(),
                self.frames.as_mut_ptr(),
                &raw mut counters.rx_frames_dropped,
            )
        };
        (self.next, self.count) = (0, usize::from(fetched));
        for (frame, checksums) in self.frames[..self.count].iter().zip(&mut self.checksums) {
            *checksums = checksums_of(frame);
        }
        fetched > 0
    }

    /// Shows up to `budget` of the frames that were fetched, in one burst, and gives their mbufs
    /// back.
    #[inline]
    pub(super) fn show(
        &mut self,
        budget: usize,
        receiver: &mut dyn Receiver,
        counters: &mut Counters,
    ) -> usize {
        if !self.stage.has_waiting() {
            if self.frames[self.next].is_several == 0 {
                return self.show_run(budget, receiver, counters);
            }
            self.cut_next(counters);
        }
        let (shown, bytes) = self.stage.show(budget, receiver);
        counters.rx_frames += shown as u64;
        counters.rx_bytes += bytes as u64;
        shown
    }

    /// Shows the frames that follow each other of which the same is known.
    #[inline]
    fn show_run(
        &mut self,
        budget: usize,
        receiver: &mut dyn Receiver,
        counters: &mut Counters,
    ) -> usize {
        let Self { mbufs, frames, checksums, next, count, .. } = self;
        let (start, end) = (*next, *next + budget.min(*count - *next));
        let known = checksums[start];
        let mut burst = Burst::new();
        for (frame, checksums) in frames[start..end].iter().zip(&checksums[start..end]) {
            if frame.is_several != 0 || *checksums != known {
                break;
            }
            let length = frame.length as usize;
            // SAFETY: the shim has seen to it that all bytes of the frame are there; nobody else
            // writes them until the mbuf is freed, below.
            burst.push(unsafe { std::slice::from_raw_parts(frame.bytes, length) });
            counters.rx_bytes += length as u64;
        }
        let shown = burst.show_to(receiver, known);
        free(&mut mbufs[start..start + shown]);
        *next += shown;
        counters.rx_frames += shown as u64;
        shown
    }

    /// Cuts the next frame, which is several, or is dropped.
    #[cold]
    fn cut_next(&mut self, counters: &mut Counters) {
        let is_cut = self.cut(self.next);
        free(&mut self.mbufs[self.next..=self.next]);
        self.next += 1;
        counters.rx_super_frames += u64::from(is_cut);
        counters.rx_frames_dropped += u64::from(!is_cut);
    }

    /// False if nobody can say where one packet ends and the next begins, or that they are intact:
    /// the checksum that they came with covers all of them.
    fn cut(&mut self, index: usize) -> bool {
        let (frame, mbuf) = (&self.frames[index], self.mbufs[index]);
        if verdict(frame.transport_checksum) == Verdict::Unknown {
            return false;
        }
        // SAFETY: the first part of the frame has so many bytes, and nobody writes them.
        let head =
            unsafe { std::slice::from_raw_parts(frame.bytes, usize::from(frame.head_length)) };
        let length = frame.length as usize;
        let said = coalesced(head, length, frame.segment_bytes, self.frame_bytes_max);
        let cut = said.and_then(|(offload, bytes)| self.stage.cut(&offload, head, bytes));
        let Some(cut) = cut else { return false };
        let header_bytes = cut.header_bytes();
        self.stage.gather(cut, header_bytes, |pieces| {
            // SAFETY: the mbuf is ours, and the pieces are memory of their lengths that is nobody
            // else's.
            unsafe { sys::clearway_dpdk_copy(mbuf, pieces.as_ptr(), pieces.len()) != 0 }
        })
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        free(&mut self.mbufs[self.next..self.count]);
    }
}

/// What is known of the checksums of a frame, in which what was missing is filled in.
#[inline]
fn checksums_of(frame: &Frame) -> Checksums {
    let transport = verdict(frame.transport_checksum);
    let is_plain = frame.ip_checksum != sys::MISSING && transport == Verdict::Unknown;
    if is_plain || frame.is_several != 0 {
        return Checksums::Unknown;
    }
    // SAFETY: all bytes of the frame are there, and nobody else has it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(frame.bytes, frame.length as usize) };
    settle(bytes, verdict(frame.ip_checksum), transport)
}

#[inline]
const fn verdict(said: u8) -> Verdict {
    match said {
        sys::RIGHT => Verdict::Right,
        sys::MISSING => Verdict::Missing,
        _ => Verdict::Unknown,
    }
}

/// Gives mbufs back to their pool; the pointers are stale afterwards.
#[inline]
pub(super) fn free(mbufs: &mut [*mut Mbuf]) {
    // SAFETY: the caller owns the mbufs, and forgets them.
    unsafe { sys::clearway_dpdk_free(mbufs.as_mut_ptr(), mbufs.len() as u32) };
}
