//! Where super-frames are cut: the payload of each packet of one comes to where its frame will be,
//! written there by the kernel or copied, and what is left to do is headers. Whoever takes segments
//! of TCP together has no need of those.
//!
//! ```text
//!  super-frame:  ┌ headers ┬ 1448 ┬ 1448 ┬ 300 ┐
//!                  (away)      │      │     └────────────────┐
//!  frames:   ┌ room for headers ┬ 1448 ┐ ┌ room ┬ 1448 ┐ ┌ room ┬ 300 ┐
//! ```

use arrayvec::ArrayVec;

use crate::burst::Burst;
use crate::segments::{Cut, HEADERS_MAX, Offload};
use crate::{BURST_FRAMES, Checksums, Receiver, Together};

/// Frames of one super-frame: what one call can write to (`UIO_MAXIOV`), besides headers. With 64
/// KiB they are of more than 65 bytes of payload. Linux makes none with more packets of UDP than
/// 128; TCP has them if a peer wants its segments as small as that, and has to repeat them.
const FRAMES_MAX: usize = 1000;
/// Segments that are shown together: those of 64 KiB have 1024 bytes of payload.
const TOGETHER_MAX: usize = 64;
/// A frame begins a cache line.
const LINE_BYTES: usize = 64;
/// The payload of a super-frame, and what frames have beside it.
const MEMORY_BYTES: usize = (1 << 16) + FRAMES_MAX * (HEADERS_MAX + LINE_BYTES);
/// One super-frame, as the frames that are in it.
pub(crate) struct Stage {
    memory: Vec<u8>,
    pieces: Vec<libc::iovec>,
    cut: Option<Cut>,
    /// The first frame that was not shown.
    next: usize,
    frame_bytes_max: usize,
}

// SAFETY: the pointers in `pieces` are made and used within one call of `gather`.
unsafe impl Send for Stage {}

impl Stage {
    pub(crate) fn new(frame_bytes_max: usize) -> Stage {
        Stage {
            memory: vec![0; MEMORY_BYTES],
            pieces: Vec::with_capacity(FRAMES_MAX + 1),
            cut: None,
            next: 0,
            frame_bytes_max,
        }
    }

    /// True if there are frames that were not shown.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.cut.is_some()
    }

    /// How to cut a frame of `frame_bytes` that begins with `head`; `None` if it is no super-frame
    /// whose frames have room here.
    pub(crate) fn cut(&self, offload: &Offload, head: &[u8], frame_bytes: usize) -> Option<Cut> {
        Cut::new(offload, head, frame_bytes).filter(|cut| {
            let frame_bytes = cut.header_bytes() + cut.segment_bytes();
            frame_bytes <= self.frame_bytes_max && cut.frames() <= FRAMES_MAX
        })
    }

    /// Takes the frames of `cut`, whose payload is copied from the super-frame's.
    pub(crate) fn copy(&mut self, cut: Cut, payload: &[u8]) {
        debug_assert!(!self.has_waiting());
        for index in 0..cut.frames() {
            let place = &mut frame(&mut self.memory, &cut, index)[cut.header_bytes()..];
            place.copy_from_slice(&payload[cut.segment(index)]);
        }
        self.take(cut);
    }

    /// Takes the frames of `cut`, whose payload `read` has the kernel write into the pieces that it
    /// is given, behind `away_bytes` that nobody wants. False if `read` could not.
    pub(crate) fn gather(
        &mut self,
        cut: Cut,
        away_bytes: usize,
        read: impl FnOnce(&mut [libc::iovec]) -> bool,
    ) -> bool {
        debug_assert!(!self.has_waiting());
        let mut away = [0_u8; Offload::BYTES + HEADERS_MAX];
        let iov_base = away[..away_bytes].as_mut_ptr().cast();
        self.pieces.clear();
        self.pieces.push(libc::iovec { iov_base, iov_len: away_bytes });
        for index in 0..cut.frames() {
            let payload = &mut frame(&mut self.memory, &cut, index)[cut.header_bytes()..];
            let iov_base = payload.as_mut_ptr().cast();
            self.pieces.push(libc::iovec { iov_base, iov_len: payload.len() });
        }
        let is_there = read(&mut self.pieces);
        if is_there {
            self.take(cut);
        }
        is_there
    }

    /// All payload is in its place.
    fn take(&mut self, cut: Cut) {
        (self.cut, self.next) = (Some(cut), 0);
    }

    /// Shows all of a super-frame of which nothing has been shown, or the next frames, at most
    /// `budget`, in one burst. How many, and their bytes.
    pub(crate) fn show(&mut self, budget: usize, receiver: &mut dyn Receiver) -> (usize, usize) {
        let Some(cut) = self.cut.take() else { return (0, 0) };
        if self.next == 0 && cut.is_plain_stream() && self.show_together(&cut, receiver) {
            return (cut.frames(), cut.bytes());
        }
        let end = cut.frames().min(self.next + budget.min(BURST_FRAMES));
        for index in self.next..end {
            cut.put_headers(index, frame(&mut self.memory, &cut, index));
        }
        let (mut burst, mut bytes) = (Burst::new(), 0);
        for index in self.next..end {
            let frame = &self.memory[index * stride(&cut)..][..frame_bytes(&cut, index)];
            bytes += frame.len();
            burst.push(frame);
        }
        // Their checksums were made here, of what the kernel had in one piece.
        let shown = burst.show_to(receiver, Checksums::Right);
        self.next = end;
        self.cut = Some(cut).filter(|cut| end < cut.frames());
        (shown, bytes)
    }

    /// False if they are too many, or not taken.
    fn show_together(&mut self, cut: &Cut, receiver: &mut dyn Receiver) -> bool {
        if cut.frames() > TOGETHER_MAX {
            return false;
        }
        cut.put_headers(0, frame(&mut self.memory, cut, 0));
        let bytes = |index| &self.memory[index * stride(cut)..][..frame_bytes(cut, index)];
        let others: ArrayVec<&[u8], TOGETHER_MAX> =
            (1..cut.frames()).map(|index| &bytes(index)[cut.header_bytes()..]).collect();
        receiver.together(Together { first: bytes(0), others: &others })
    }
}

/// From the beginning of one frame to that of the next.
fn stride(cut: &Cut) -> usize {
    (cut.header_bytes() + cut.segment_bytes()).next_multiple_of(LINE_BYTES)
}

fn frame_bytes(cut: &Cut, index: usize) -> usize {
    cut.header_bytes() + cut.segment(index).len()
}

fn frame<'a>(memory: &'a mut [u8], cut: &Cut, index: usize) -> &'a mut [u8] {
    &mut memory[index * stride(cut)..][..frame_bytes(cut, index)]
}
