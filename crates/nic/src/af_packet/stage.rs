//! Where super-frames are cut: the kernel writes the payload of each packet of one to where its
//! frame will be, and what is left to do is headers.
//!
//! ```text
//!  super-frame, at the socket:  ┌ headers ┬ 1448 ┬ 1448 ┬ 300 ┐
//!  recvmsg:                       (away)      │      │     └────────────────┐
//!  frames:            ┌ room for headers ┬ 1448 ┐ ┌ room ┬ 1448 ┐ ┌ room ┬ 300 ┐
//! ```

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::ring::Slot;
use crate::BURST_FRAMES;
use crate::burst::Burst;
use crate::interface::last_errno;
use crate::segments::{Cut, HEADERS_MAX, Offload};

/// Frames of one super-frame: what one call can write to (`UIO_MAXIOV`), besides headers. With 64
/// KiB they are of more than 65 bytes of payload. Linux makes none with more packets of UDP than
/// 128; TCP has them if a peer wants its segments as small as that, and has to repeat them.
const FRAMES_MAX: usize = 1000;
/// A frame begins a cache line.
const LINE_BYTES: usize = 64;
/// The payload of a super-frame, and what frames have beside it.
const MEMORY_BYTES: usize = (1 << 16) + FRAMES_MAX * (HEADERS_MAX + LINE_BYTES);
/// How often a socket may speak of something else when it is asked for a frame.
const TRIES: usize = 4;

/// Frames that are thrown away to find out which is whose again: more than there is room for.
const LOST_MAX: usize = 4096;

/// One super-frame, as the frames that are in it.
pub(super) struct Stage {
    memory: Vec<u8>,
    pieces: Vec<libc::iovec>,
    cut: Option<Cut>,
    /// The first frame that was not shown.
    next: usize,
    frame_bytes_max: usize,
}

// SAFETY: the pointers in `pieces` are made and used within one call of `read`.
unsafe impl Send for Stage {}

impl Stage {
    pub(super) fn new(frame_bytes_max: usize) -> Stage {
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
    pub(super) fn has_waiting(&self) -> bool {
        self.cut.is_some()
    }

    /// Cuts what came in `slot`. False if that is not possible; then it is gone.
    pub(super) fn fill(&mut self, slot: &Slot<'_>, socket: &OwnedFd) -> bool {
        debug_assert!(!self.has_waiting());
        let cut = Cut::new(&slot.offload, slot.bytes, slot.frame_bytes).filter(|cut| {
            let frame_bytes = cut.header_bytes() + cut.segment_bytes();
            frame_bytes <= self.frame_bytes_max && cut.frames() <= FRAMES_MAX
        });
        let is_whole = slot.bytes.len() == slot.frame_bytes;
        let Some(cut) = cut.filter(|_| is_whole || slot.is_copied) else {
            if slot.is_copied {
                skip(socket);
            }
            return false;
        };
        let is_there = if slot.is_copied {
            self.read(&cut, slot, socket)
        } else {
            self.copy(&cut, &slot.bytes[cut.header_bytes()..]);
            true
        };
        if is_there {
            for index in 0..cut.frames() {
                cut.put_headers(index, frame(&mut self.memory, &cut, index));
            }
            (self.cut, self.next) = (Some(cut), 0);
        }
        is_there
    }

    /// Shows the next frames, at most `budget`, in one burst. How many, and their bytes.
    pub(super) fn show(&mut self, budget: usize, sink: &mut dyn FnMut(&[&[u8]])) -> (usize, usize) {
        let Some(cut) = self.cut.take() else { return (0, 0) };
        let end = cut.frames().min(self.next + budget.min(BURST_FRAMES));
        let (mut burst, mut bytes) = (Burst::new(), 0);
        for index in self.next..end {
            let start = index * stride(&cut);
            let frame = &self.memory[start..][..cut.header_bytes() + cut.segment(index).len()];
            bytes += frame.len();
            burst.push(frame);
        }
        let shown = burst.show(sink);
        self.next = end;
        self.cut = Some(cut).filter(|cut| end < cut.frames());
        (shown, bytes)
    }

    /// Has the kernel write payloads to where they belong. False if it was not this frame.
    fn read(&mut self, cut: &Cut, slot: &Slot<'_>, socket: &OwnedFd) -> bool {
        let mut away = [0_u8; Offload::BYTES + HEADERS_MAX];
        let iov_len = Offload::BYTES + cut.header_bytes() - slot.tag_bytes;
        self.pieces.clear();
        self.pieces.push(libc::iovec { iov_base: away.as_mut_ptr().cast(), iov_len });
        for index in 0..cut.frames() {
            let payload = &mut frame(&mut self.memory, cut, index)[cut.header_bytes()..];
            let iov_base = payload.as_mut_ptr().cast();
            self.pieces.push(libc::iovec { iov_base, iov_len: payload.len() });
        }
        let expected = Offload::BYTES + slot.frame_bytes - slot.tag_bytes;
        let taken = take(socket, &mut self.pieces);
        if taken.is_some_and(|bytes| bytes != expected) {
            // What waits is not what the slots are about. Slots whose frame is missing are lost.
            let _ = (0..LOST_MAX).take_while(|_| skip(socket)).count();
        }
        taken == Some(expected)
    }

    fn copy(&mut self, cut: &Cut, payload: &[u8]) {
        for index in 0..cut.frames() {
            let place = &mut frame(&mut self.memory, cut, index)[cut.header_bytes()..];
            place.copy_from_slice(&payload[cut.segment(index)]);
        }
    }
}

/// From the beginning of one frame to that of the next.
fn stride(cut: &Cut) -> usize {
    (cut.header_bytes() + cut.segment_bytes()).next_multiple_of(LINE_BYTES)
}

fn frame<'a>(memory: &'a mut [u8], cut: &Cut, index: usize) -> &'a mut [u8] {
    let start = index * stride(cut);
    &mut memory[start..][..cut.header_bytes() + cut.segment(index).len()]
}

/// Throws the next frame away that waits at the socket. False if there is none.
#[cold]
fn skip(socket: &OwnedFd) -> bool {
    let mut away = [0_u8; Offload::BYTES];
    let iov_base = away.as_mut_ptr().cast();
    take(socket, &mut [libc::iovec { iov_base, iov_len: away.len() }]).is_some()
}

/// Takes the next frame from the socket, and says how long it was with its `Offload`, what there
/// was no room for included.
fn take(socket: &OwnedFd, pieces: &mut [libc::iovec]) -> Option<usize> {
    for _ in 0..TRIES {
        // SAFETY: all-zero is valid: no bytes, no address, no control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the message points to pieces, and these to memory of their lengths, that is
        // nobody else's and lives until the call returns.
        let outcome = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if let Ok(bytes) = usize::try_from(outcome) {
            return Some(bytes);
        }
        // A link that went down is told of once, and nothing was taken.
        if !matches!(last_errno(), Errno::NETDOWN | Errno::INTR) {
            return None;
        }
    }
    None
}
