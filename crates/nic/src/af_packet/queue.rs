//! The queue over a packet socket.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::sockopt;

use super::ring::{Ring, Slot};
use super::sender::Sender;
use crate::interface::{Device, Link};
use crate::{Capabilities, Counters, Info, Queue, Transmit};

/// Where a VLAN tag stands in a frame: after the two Ethernet addresses.
const VLAN_OFFSET: usize = 12;

/// A packet socket as a queue.
pub(super) struct PacketQueue {
    ring: Ring,
    sender: Sender,
    socket: Arc<OwnedFd>,
    link: Link,
    info: Info,
    frame_bytes_max: usize,
    /// A frame whose VLAN tag is put back.
    tagged: Vec<u8>,
    counters: Counters,
    /// What the kernel dropped so far; it forgets its count when asked.
    kernel_dropped: Cell<u64>,
}

impl PacketQueue {
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        ring: Ring,
        device: Device,
        info: Info,
        descriptors: usize,
        frame_bytes_max: usize,
    ) -> PacketQueue {
        PacketQueue {
            ring,
            sender: Sender::new(descriptors, frame_bytes_max),
            socket,
            link: Link::new(device),
            info,
            frame_bytes_max,
            tagged: Vec::new(),
            counters: Counters::default(),
            kernel_dropped: Cell::new(0),
        }
    }

    /// The kernel reports a link that went down as an error of the socket, and wakes sleepers
    /// until somebody has read it.
    fn forget_socket_error(&self) {
        let _ = sockopt::socket_error(&*self.socket);
    }

    fn send(&mut self) {
        let sent = self.sender.send(&self.socket);
        self.counters.tx_frames += sent.frames;
        self.counters.tx_bytes += sent.bytes;
        self.counters.tx_frames_dropped += sent.dropped;
        if sent.dropped > 0 {
            self.link.check();
        }
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
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: true,
        }
    }

    fn info(&self) -> Info {
        self.info.clone()
    }

    fn link_up(&self) -> bool {
        self.link.is_up()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8])) -> usize {
        self.link.turn();
        let (counters, tagged) = (&mut self.counters, &mut self.tagged);
        let mut shown = 0;
        while shown < budget {
            let taken = self.ring.take(|slot| {
                let Slot { bytes, truncated, vlan } = slot;
                if truncated || bytes.len() < VLAN_OFFSET {
                    counters.rx_frames_dropped += 1;
                    return;
                }
                let frame = with_tag(bytes, vlan, tagged);
                counters.rx_frames += 1;
                counters.rx_bytes += frame.len() as u64;
                shown += 1;
                sink(frame);
            });
            if !taken {
                break;
            }
        }
        shown
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let Some(buffer) = self.sender.free_buffer() else { return Transmit::Full };
        let length = fill(buffer);
        if length == 0 {
            return Transmit::Nothing;
        }
        if self.link.is_up() {
            self.sender.push(length);
        } else {
            self.counters.tx_frames_dropped += 1;
        }
        Transmit::Queued
    }

    fn flush(&mut self) {
        if !self.sender.is_empty() {
            self.send();
        }
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
        !self.ring.is_ready()
    }

    /// The socket is readable as long as frames wait; there is nothing to consume.
    fn disarm(&mut self) {}

    fn counters(&self) -> Counters {
        let dropped = self.counters.rx_frames_dropped + self.kernel_dropped();
        Counters { rx_frames_dropped: dropped, ..self.counters }
    }
}

/// The frame with the VLAN tag that the kernel took off, if it had one.
fn with_tag<'a>(bytes: &'a [u8], vlan: Option<[u8; 4]>, tagged: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(tag) = vlan else { return bytes };
    tagged.clear();
    tagged.extend_from_slice(&bytes[..VLAN_OFFSET]);
    tagged.extend_from_slice(&tag);
    tagged.extend_from_slice(&bytes[VLAN_OFFSET..]);
    tagged
}
