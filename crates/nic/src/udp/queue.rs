//! The queue over the sockets.

use std::os::fd::{AsFd, BorrowedFd};

use super::receiver::Receiver;
use super::sender::Sender;
use super::socket::{Sockets, read_option};
use super::{OWN_MAC, frame};
use crate::{Capabilities, Checksums, Counters, Info, LCD_DESCRIPTORS, Queue, Sink, Transmit};

/// Where `SO_MEMINFO` has the number of messages that were dropped (linux/sock_diag.h).
const MEMORY_DROPS: usize = 8;

/// A receiving socket and its sending ones as a queue.
pub(super) struct UdpQueue {
    sockets: Sockets,
    receiver: Receiver,
    sender: Sender,
    frame_bytes_max: usize,
    counters: Counters,
}

impl UdpQueue {
    pub(super) fn new(sockets: Sockets, frame_bytes_max: usize) -> UdpQueue {
        let room = frame_bytes_max.max(frame::TOO_LARGE_BYTES_MAX).next_multiple_of(64);
        UdpQueue {
            receiver: Receiver::new(sockets.port, frame_bytes_max),
            sender: Sender::new(LCD_DESCRIPTORS, room),
            sockets,
            frame_bytes_max,
            counters: Counters::default(),
        }
    }

    /// Takes from the kernel what it has, and shows it. What cannot be shown counts for the budget,
    /// too: else who sends such without end would never let go.
    fn receive_from_kernel(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let (mut shown, mut spent, mut may_have_more) = (0, 0, true);
        while spent < budget {
            if !self.receiver.has_waiting() {
                if !may_have_more {
                    break;
                }
                may_have_more = self.receiver.take(&self.sockets.receiver);
                continue;
            }
            let burst = self.receiver.show(budget - spent, sink);
            self.counters.rx_bytes += burst.bytes as u64;
            self.counters.rx_frames_dropped += burst.dropped as u64;
            shown += burst.frames;
            spent += burst.frames + burst.dropped;
        }
        shown
    }

    /// Shows what the engine has to know of what it sent.
    #[cold]
    fn show_news(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut shown = 0;
        while shown < budget
            && let Some(frame) = self.sender.next_news()
        {
            self.counters.rx_bytes += frame.len() as u64;
            sink(&[&frame], Checksums::Unknown);
            shown += 1;
        }
        shown
    }

    fn send(&mut self) {
        let sent = self.sender.send(&self.sockets);
        self.counters.tx_frames += sent.frames;
        self.counters.tx_bytes += sent.bytes;
        self.counters.tx_frames_dropped += sent.dropped;
    }

    /// What the kernel had no room for.
    fn kernel_dropped(&self) -> u64 {
        let mut words = [0_u32; MEMORY_DROPS + 1];
        let (level, name) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
        let read = read_option(&self.sockets.receiver, level, name, &mut words);
        read.map_or(0, |_| words[MEMORY_DROPS].into())
    }

    fn mode(&self) -> String {
        let features = self.sockets.features;
        let mut mode = "UDP sockets of the kernel, which routes".to_owned();
        mode += if self.sender.segments() {
            "; 64 packets to a message (UDP_SEGMENT)"
        } else {
            "; one packet to a message, because the way out has no checksums (UDP_SEGMENT: EIO)"
        };
        mode += if features.coalesces {
            ", coalesced as they come (UDP_GRO)"
        } else {
            ", one by one as they come (no UDP_GRO before Linux 5.0)"
        };
        if features.busy_polls {
            mode += ", polling the NIC (SO_BUSY_POLL)";
        }
        if !features.has_room() {
            mode += &format!(
                "; room for {} KiB of bursts, more with `sysctl net.core.rmem_max=4194304`",
                features.receive_bytes / 1024
            );
        }
        mode
    }
}

impl Queue for UdpQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.frame_bytes_max,
            transmit_checksum: false,
            receive_checksum: true,
            kernel_shares: true,
            reaches_kernel: false,
            receive_is_call: true,
            flush_is_call: true,
            receive_together: false,
        }
    }

    fn info(&self) -> Info {
        Info { driver: "udp", mode: self.mode(), mac: OWN_MAC }
    }

    /// The kernel knows which way is up, for each packet.
    fn link_up(&self) -> bool {
        true
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        // What the kernel had no room for: nobody may flush again.
        self.flush();
        let news = if self.sender.has_news() { self.show_news(budget, sink) } else { 0 };
        let shown = news + self.receive_from_kernel(budget - news, sink);
        self.counters.rx_frames += shown as u64;
        shown
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let frame_bytes_max = self.frame_bytes_max;
        let Some(buffer) = self.sender.free_buffer() else { return Transmit::Full };
        let length = fill(&mut buffer[..frame_bytes_max]);
        if length == 0 {
            return Transmit::Nothing;
        }
        if !self.sender.push(length) {
            self.counters.tx_frames_dropped += 1;
        }
        Transmit::Queued
    }

    #[inline]
    fn flush(&mut self) {
        if !self.sender.is_empty() {
            self.send();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sockets.receiver.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.flush();
        self.sender.is_empty() && !self.sender.has_news() && !self.receiver.has_waiting()
    }

    /// The socket is readable as long as messages wait; there is nothing to consume.
    fn disarm(&mut self) {}

    fn counters(&self) -> Counters {
        let dropped = self.counters.rx_frames_dropped + self.kernel_dropped();
        Counters { rx_frames_dropped: dropped, ..self.counters }
    }
}
