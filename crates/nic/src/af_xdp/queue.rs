//! The queue over an AF_XDP socket: when chunks change hands and when the kernel is kicked.
//!
//! ```text
//!          fill ring ──▶ kernel ──▶ receive ring ──▶ sink ──▶ fill ring again
//! free ──▶ transmit ring ──▶ kernel (on a kick) ──▶ completion ring ──▶ free
//! ```
//!
//! Frames that are larger than a chunk take several, which lie one after the other when they are
//! sent, and anywhere when they are received: those are copied together (`assembly.rs`).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::assembly::{Assembly, Part};
use super::socket::Socket;
use crate::burst::Burst;
use crate::interface::{Device, Link};
use crate::to_kernel::ToKernel;
use crate::{BURST_FRAMES, Capabilities, Checksums, Counters, Info, Queue, Sink, Transmit};

/// One AF_XDP socket as a queue.
pub(super) struct XdpQueue {
    socket: Socket,
    to_kernel: Option<Arc<ToKernel>>,
    link: Link,
    info: Info,
    frame_bytes_max: usize,
    /// Umem offsets of slots to send from. The last one freed is used first: its bytes are the
    /// likeliest to be in a cache.
    free: Vec<u64>,
    /// Chunks of each slot that the kernel has.
    under_way: Vec<u8>,
    assembly: Assembly,
    /// Frames written since the last kick.
    queued: u32,
    /// The kernel has not taken all frames of an earlier kick.
    kick_pending: bool,
    counters: Counters,
    /// Keeps the eBPF program attached while any queue lives.
    _attachment: Arc<dyn Send + Sync>,
}

impl XdpQueue {
    /// A queue over a bound socket. `frame_bytes_max` is what the interface carries.
    pub(super) fn new(
        socket: Socket,
        device: Device,
        info: Info,
        frame_bytes_max: usize,
        attachment: Arc<dyn Send + Sync>,
    ) -> XdpQueue {
        XdpQueue {
            free: socket.layout.transmit_offsets().collect(),
            under_way: vec![0; socket.layout.descriptors as usize],
            assembly: Assembly::new(socket.layout.frame_bytes_max),
            frame_bytes_max: frame_bytes_max.min(socket.layout.frame_bytes_max),
            socket,
            to_kernel: None,
            link: Link::new(device),
            info,
            queued: 0,
            kick_pending: false,
            counters: Counters::default(),
            _attachment: attachment,
        }
    }

    /// The same, which has a way to the kernel, too.
    pub(super) fn with_way(self, to_kernel: Option<Arc<ToKernel>>) -> XdpQueue {
        XdpQueue { to_kernel, ..self }
    }

    fn housekeeping(&mut self) {
        self.link.turn();
        // A driver with an empty fill ring stops looking at it until it is told.
        if self.socket.fill.needs_wakeup() {
            let _ = recv(&self.socket, &mut [0; 0], RecvFlags::DONTWAIT);
        }
        if self.kick_pending && self.link.is_up() {
            self.kick();
        }
    }

    /// Tells the kernel to send what is in the transmit ring. It takes up to 32 frames per call in
    /// copy mode (`TX_BATCH_SIZE`), and says EAGAIN when more are left.
    fn kick(&mut self) {
        self.queued = 0;
        self.kick_pending = true;
        let mut taken_before = self.socket.transmit.taken();
        loop {
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => {
                    self.kick_pending = false;
                    return;
                }
                Err(Errno::AGAIN) => {}
                // The completion ring or the NIC's own queue is full: later is better.
                Err(Errno::BUSY | Errno::NOBUFS) => return,
                Err(_) => {
                    self.link.check();
                    return;
                }
            }
            // EAGAIN also means that too many frames are under way: then it took none.
            let taken = self.socket.transmit.taken();
            if taken == taken_before {
                return;
            }
            taken_before = taken;
            self.reap();
        }
    }

    /// Takes back the chunks whose frames have left.
    fn reap(&mut self) {
        let count = self.socket.completed.waiting(self.socket.layout.entries());
        for _ in 0..count {
            let (slot, offset) = self.socket.layout.slot_of(self.socket.completed.read());
            self.under_way[slot] -= 1;
            if self.under_way[slot] == 0 {
                self.free.push(offset);
            }
        }
        if count > 0 {
            self.socket.completed.release();
        }
    }

    /// Shows the oldest frames of the receive ring, of which `waiting` descriptors are taken at
    /// most, in place, and puts their chunks in the fill ring, which the caller publishes. Ends at
    /// a part of a larger frame. Returns how many descriptors it has taken.
    fn show_burst(&mut self, waiting: usize, sink: &mut Sink<'_>) -> usize {
        let mut burst = Burst::new();
        for taken in 1..=waiting.min(BURST_FRAMES) {
            let descriptor = self.socket.received.read();
            let goes_on = descriptor.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            let bytes = self.socket.bytes(descriptor.addr, descriptor.len as usize);
            // SAFETY: the kernel has given us this chunk and does not touch it before it sees it in
            // the fill ring again, which is after the burst was shown.
            let bytes = unsafe { bytes.as_ref() };
            let chunk = self.socket.chunk_of(descriptor.addr);
            self.socket.fill.write(chunk);
            if goes_on || self.assembly.is_open() {
                self.counters.rx_frames += burst.show(sink) as u64;
                self.assemble(bytes, goes_on, sink);
                return taken;
            }
            self.counters.rx_bytes += bytes.len() as u64;
            burst.push(bytes);
        }
        let shown = burst.show(sink);
        self.counters.rx_frames += shown as u64;
        shown
    }

    /// Takes a part of a larger frame, and shows that when it is whole.
    #[cold]
    fn assemble(&mut self, part: &[u8], goes_on: bool, sink: &mut Sink<'_>) {
        match self.assembly.add(part, goes_on) {
            Part::Taken => {}
            Part::TooLong => self.counters.rx_frames_dropped += 1,
            Part::Last(frame) => {
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += frame.len() as u64;
                sink(&[frame], Checksums::Unknown);
            }
        }
    }

    /// Puts a frame of `length` bytes, which lies in the slot at `offset`, into the transmit ring:
    /// a descriptor for each chunk of it.
    fn write(&mut self, offset: u64, length: usize) {
        let chunk_bytes = self.socket.layout.chunk_bytes;
        let chunks = length.div_ceil(chunk_bytes);
        for chunk in 0..chunks {
            let begin = chunk * chunk_bytes;
            let len = (length - begin).min(chunk_bytes) as u32;
            let mut options = XdpDescOptions::empty();
            options.set(XdpDescOptions::XDP_PKT_CONTD, chunk + 1 < chunks);
            self.socket.transmit.write(XdpDesc { addr: offset + begin as u64, len, options });
        }
        self.under_way[self.socket.layout.slot_of(offset).0] = chunks as u8;
    }

    /// Shows a slot to `fill`; the length of the frame it wrote.
    fn fill_chunk(&mut self, offset: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let mut bytes = self.socket.bytes(offset, self.frame_bytes_max);
        // SAFETY: the slot is on our free list, so neither the kernel nor anyone else uses it.
        let length = fill(unsafe { bytes.as_mut() });
        assert!(length <= self.frame_bytes_max, "a frame is longer than its buffer");
        length
    }
}

impl Queue for XdpQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.frame_bytes_max,
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: true,
            reaches_kernel: self.to_kernel.is_some(),
            receive_is_call: false,
            flush_is_call: true,
            receive_together: false,
        }
    }

    fn info(&self) -> Info {
        self.info.clone()
    }

    fn link_up(&self) -> bool {
        self.link.is_up()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.housekeeping();
        let budget = u32::try_from(budget).unwrap_or(u32::MAX);
        let count = self.socket.received.waiting(budget.min(self.socket.layout.entries()));
        if count == 0 {
            return 0;
        }
        let (mut left, before) = (count as usize, self.counters.rx_frames);
        while left > 0 {
            left -= self.show_burst(left, sink);
        }
        self.socket.fill.publish();
        self.socket.received.release();
        (self.counters.rx_frames - before) as usize
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        if self.free.is_empty() {
            self.reap();
        }
        let Some(&offset) = self.free.last() else { return Transmit::Full };
        let length = self.fill_chunk(offset, fill);
        if length == 0 {
            return Transmit::Nothing;
        }
        if !self.link.is_up() {
            self.counters.tx_frames_dropped += 1;
            return Transmit::Queued;
        }
        self.free.pop();
        self.write(offset, length);
        self.queued += 1;
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += length as u64;
        Transmit::Queued
    }

    fn send_to_kernel(&mut self, frame: &[u8]) {
        let Some(to_kernel) = &self.to_kernel else { return };
        self.counters.tx_frames_dropped += u64::from(!to_kernel.send(frame));
    }

    fn flush(&mut self) {
        if self.queued == 0 && !self.kick_pending {
            return;
        }
        self.socket.transmit.publish();
        if !self.link.is_up() {
            self.kick_pending = true;
        } else if self.socket.transmit.needs_wakeup() {
            self.kick();
        } else {
            self.queued = 0;
        }
        self.reap();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.link.check();
        if self.kick_pending && self.link.is_up() {
            self.kick();
        }
        let has_left = !self.kick_pending || !self.link.is_up();
        has_left && self.socket.received.waiting(1) == 0
    }

    /// The socket is readable as long as frames wait; there is nothing to consume.
    fn disarm(&mut self) {}

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Ok(statistics) = sockopt::xdp_statistics(&self.socket) {
            counters.rx_frames_dropped += statistics.rx_dropped
                + statistics.rx_invalid_descs
                + statistics.rx_ring_full.unwrap_or(0);
            counters.tx_frames_dropped += statistics.tx_invalid_descs;
        }
        counters
    }
}

#[cfg(test)]
mod tests;
