//! Sending: frames collect in buffers of our own and leave together.
//!
//! Not PACKET_TX_RING: the kernel copies or pins ring slots just the same, and frees them when it
//! likes. After `sendmmsg` has returned, the buffers are ours again.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;

/// Frames per system call.
const BATCH: usize = 64;

/// What became of the frames that were queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

/// The frames that wait for the next flush, in order.
#[derive(Debug)]
pub(super) struct Sender {
    buffers: Vec<u8>,
    buffer_bytes: usize,
    lengths: Vec<usize>,
    /// How many of them have left already.
    gone: usize,
}

impl Sender {
    pub(super) fn new(descriptors: usize, buffer_bytes: usize) -> Sender {
        Sender {
            buffers: vec![0; descriptors * buffer_bytes],
            buffer_bytes,
            lengths: Vec::with_capacity(descriptors),
            gone: 0,
        }
    }

    /// The next free buffer; `None` if all are in use.
    pub(super) fn free_buffer(&mut self) -> Option<&mut [u8]> {
        let start = self.lengths.len() * self.buffer_bytes;
        self.buffers.get_mut(start..start + self.buffer_bytes)
    }

    /// Queues `length` bytes of the buffer that was last free.
    pub(super) fn push(&mut self, length: usize) {
        assert!(length <= self.buffer_bytes, "a frame is longer than its buffer");
        self.lengths.push(length);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Hands the queued frames to the kernel. What it has no room for now stays queued.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> Sent {
        let mut sent = Sent::default();
        while self.gone < self.lengths.len() {
            match self.send_batch(socket) {
                Ok(count) => {
                    let done = &self.lengths[self.gone..self.gone + count];
                    sent.frames += count as u64;
                    sent.bytes += done.iter().sum::<usize>() as u64;
                    self.gone += count;
                }
                // The socket's send buffer is full of frames that a NIC has yet to send.
                Err(Errno::AGAIN) => return sent,
                Err(Errno::INTR) => {}
                // The first one cannot be sent: its NIC is full or down, or it is oversize.
                Err(_) => {
                    sent.dropped += 1;
                    self.gone += 1;
                }
            }
        }
        self.lengths.clear();
        self.gone = 0;
        sent
    }

    fn send_batch(&mut self, socket: &OwnedFd) -> Result<usize, Errno> {
        // SAFETY: all-zero iovec and mmsghdr are valid: no bytes, no address, no control data.
        let mut pieces: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let count = BATCH.min(self.lengths.len() - self.gone);
        for index in 0..count {
            let start = (self.gone + index) * self.buffer_bytes;
            pieces[index] = libc::iovec {
                iov_base: ptr::from_mut(&mut self.buffers[start]).cast(),
                iov_len: self.lengths[self.gone + index],
            };
            messages[index].msg_hdr.msg_iov = &raw mut pieces[index];
            messages[index].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` messages point to pieces, and these to buffers, that live
        // until the call returns; the kernel only reads them.
        let outcome = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(outcome).map_err(|_| crate::interface::last_errno())
    }
}
