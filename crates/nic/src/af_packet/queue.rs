//! The queue over a packet socket.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::sockopt;

use super::ring::Ring;
use super::whole;
use crate::batch::Batch;
use crate::burst::Burst;
use crate::interface::{Device, Link};
use crate::queue::InFrames;
use crate::segments::Checksum;
use crate::to_kernel::ToKernel;
use crate::vnet::{Carrier, MESSAGES, Messages, Sender, Stage};
use crate::{
    BURST_FRAMES, Capabilities, Checksums, Counters, Info, Queue, Receiver, Segments, Sink,
    Transmit,
};

/// After so many sleeps in a row that ended without a frame, the error is looked for that may end
/// all of them.
const SLEEPS_IN_VAIN: u32 = 16;

/// The way out by a packet socket.
///
/// Not PACKET_TX_RING: the kernel copies or pins ring slots just the same, frees them when it
/// likes, and a super-frame would have to be put together in one slot first.
struct Socket<'a>(&'a OwnedFd);

impl Carrier for Socket<'_> {
    unsafe fn carry(&self, messages: Messages<'_>) -> Result<usize, Errno> {
        let mut batch = Batch::<MESSAGES>::new();
        for pieces in messages {
            let header = batch.add();
            header.msg_iov = pieces.as_mut_ptr();
            header.msg_iovlen = pieces.len() as _;
        }
        // SAFETY: what the messages point to is there until this returns, as the caller says.
        unsafe { batch.send(self.0.as_fd()) }
    }
}

/// A packet socket as a queue.
pub(super) struct PacketQueue {
    ring: Ring,
    /// The super-frame that came last. What is in the ring came later.
    stage: Stage,
    sender: Sender,
    socket: Arc<OwnedFd>,
    to_kernel: Option<Arc<ToKernel>>,
    link: Link,
    info: Info,
    /// The filter lets everything through.
    is_open: Arc<AtomicBool>,
    frame_bytes_max: usize,
    counters: Counters,
    /// What the kernel dropped so far; it forgets its count when asked.
    kernel_dropped: Cell<u64>,
    /// Sleeps in a row that ended without a frame.
    sleeps_in_vain: u32,
}

impl PacketQueue {
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        ring: Ring,
        device: Device,
        info: Info,
        is_open: Arc<AtomicBool>,
        sender: Sender,
        frame_bytes_max: usize,
    ) -> PacketQueue {
        PacketQueue {
            ring,
            stage: Stage::new(frame_bytes_max),
            sender,
            socket,
            to_kernel: None,
            link: Link::new(device),
            info,
            is_open,
            frame_bytes_max,
            counters: Counters::default(),
            kernel_dropped: Cell::new(0),
            sleeps_in_vain: 0,
        }
    }

    /// The same, which has a way to the kernel, too.
    pub(super) fn with_way(self, to_kernel: Option<Arc<ToKernel>>) -> PacketQueue {
        PacketQueue { to_kernel, ..self }
    }

    /// The kernel reports a link that went down as an error of the socket, and wakes sleepers
    /// until somebody has read it.
    fn forget_socket_error(&self) {
        let _ = sockopt::socket_error(&*self.socket);
    }

    /// Shows some of the frames that came first.
    fn show_burst(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        let shown = if self.stage.has_waiting() {
            let (shown, bytes) = self.stage.show(budget, receiver);
            self.counters.rx_bytes += bytes as u64;
            shown
        } else {
            self.show_ring(budget, receiver)
        };
        self.counters.rx_frames += shown as u64;
        shown
    }

    /// Takes frames out of the ring until a burst is full or a super-frame came, shows them, and
    /// gives their slots back.
    fn show_ring(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        let counters = &mut self.counters;
        let (stage, socket) = (&mut self.stage, &self.socket);
        self.ring.take(|waiting| {
            let mut burst = Burst::new();
            while burst.len() < budget.min(BURST_FRAMES)
                && !stage.has_waiting()
                && let Some(slot) = waiting.next()
            {
                // What is too long for a slot, and no super-frame, is too long for anybody.
                if !slot.offload.is_one() || slot.is_copied {
                    let is_there = whole::fill(stage, &slot, socket);
                    counters.rx_super_frames += u64::from(is_there);
                    counters.rx_frames_dropped += u64::from(!is_there);
                    continue;
                }
                match slot.into_frame() {
                    Some(frame) => {
                        counters.rx_bytes += frame.len() as u64;
                        burst.push(frame);
                    }
                    None => counters.rx_frames_dropped += 1,
                }
            }
            burst.show_to(receiver, Checksums::Unknown)
        })
    }

    /// Adds what the kernel dropped since it was last asked.
    fn kernel_dropped(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into a structure of that size.
        let outcome = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if outcome == 0 {
            self.kernel_dropped.set(self.kernel_dropped.get() + u64::from(statistics.tp_drops));
        }
        self.kernel_dropped.get()
    }
}

impl Queue for PacketQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.frame_bytes_max,
            transmit_checksum: true,
            receive_checksum: false,
            kernel_shares: true,
            reaches_kernel: self.to_kernel.is_some(),
            receive_is_call: false,
            flush_is_call: true,
            receive_together: true,
        }
    }

    fn info(&self) -> Info {
        let mut info = self.info.clone();
        info.mode += &self.sender.mode("PACKET_VNET_HDR");
        if self.is_open.load(Ordering::Relaxed) {
            info.mode += "; all frames come up to the engine, because a socket's filter has no \
                          room for so many patterns";
        }
        info
    }

    fn link_up(&self) -> bool {
        self.link.is_up()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.receive_together(budget, &mut InFrames(sink))
    }

    fn receive_together(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.link.turn();
        // What the kernel had no room for: nobody may flush again.
        self.flush();
        let mut shown = 0;
        while shown < budget && (self.stage.has_waiting() || self.ring.is_ready()) {
            shown += self.show_burst(budget - shown, receiver);
        }
        shown
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.sender.transmit(&self.link, &mut self.counters, Checksum::Right, fill)
    }

    fn transmit_as_is(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.sender.transmit(&self.link, &mut self.counters, Checksum::Any, fill)
    }

    fn transmit_segments(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8], usize) -> Segments,
    ) -> Transmit {
        self.sender.transmit_segments(&self.link, &mut self.counters, fill)
    }

    fn send_to_kernel(&mut self, frame: &[u8]) {
        let Some(to_kernel) = &self.to_kernel else { return };
        self.counters.tx_frames_dropped += u64::from(!to_kernel.send(frame));
    }

    fn flush(&mut self) {
        self.sender.flush(&Socket(&self.socket), &mut self.link, &mut self.counters);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.link.check();
        if !self.link.is_up() {
            self.forget_socket_error();
        }
        self.flush();
        let has_left = self.sender.is_empty() || !self.link.is_up();
        has_left && !self.stage.has_waiting() && !self.ring.is_ready()
    }

    /// The socket is readable as long as frames wait; there is nothing to consume. But where a link
    /// went down and came up while nobody slept, there is an error that nobody has read.
    fn disarm(&mut self) {
        self.sleeps_in_vain = if self.ring.is_ready() { 0 } else { self.sleeps_in_vain + 1 };
        if self.sleeps_in_vain == SLEEPS_IN_VAIN {
            self.forget_socket_error();
            self.sleeps_in_vain = 0;
        }
    }

    fn counters(&self) -> Counters {
        let dropped = self.counters.rx_frames_dropped + self.kernel_dropped();
        Counters { rx_frames_dropped: dropped, ..self.counters }
    }
}

#[cfg(test)]
mod tests;
