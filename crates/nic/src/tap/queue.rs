//! The queue over one file of a tap device.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use clearway_wire::{ethernet, vlan};
use rustix::io::Errno;

use crate::burst::Burst;
use crate::interface::{Device, Link, last_errno};
use crate::queue::InFrames;
use crate::segments::{Checksum, Offload, complete};
use crate::vnet::{Carrier, Messages, Sender, Stage};
use crate::{
    BURST_FRAMES, Capabilities, Checksums, Counters, Info, Queue, Receiver, Segments, Sink,
    Transmit,
};

/// Room for whatever may come by one call: a packet of 64 KB, its Ethernet header and tags.
const READ_BYTES: usize =
    Offload::BYTES + (1 << 16) + ethernet::HEADER_LENGTH + 2 * vlan::TAG_LENGTH;
/// What is read begins a cache line.
const LINE_BYTES: usize = 64;

/// The way out by a tap device.
struct File<'a>(&'a OwnedFd);

impl Carrier for File<'_> {
    unsafe fn carry(&self, messages: Messages<'_>) -> Result<usize, Errno> {
        let mut taken = 0;
        for pieces in messages {
            let (start, count) = (pieces.as_ptr(), pieces.len() as libc::c_int);
            // SAFETY: what the pieces point to is there until this returns, as the caller says, and
            // the kernel only reads it.
            if unsafe { libc::writev(self.0.as_raw_fd(), start, count) } < 0 {
                return if taken == 0 { Err(last_errno()) } else { Ok(taken) };
            }
            taken += 1;
        }
        Ok(taken)
    }
}

/// A file of a tap device as a queue.
pub(super) struct TapQueue {
    file: OwnedFd,
    incoming: Incoming,
    sender: Sender,
    link: Link,
    info: Info,
    frame_bytes_max: usize,
    counters: Counters,
}

impl TapQueue {
    pub(super) fn new(
        file: OwnedFd,
        device: Device,
        info: Info,
        sender: Sender,
        frame_bytes_max: usize,
    ) -> TapQueue {
        TapQueue {
            file,
            incoming: Incoming::new(frame_bytes_max),
            sender,
            link: Link::new(device),
            info,
            frame_bytes_max,
            counters: Counters::default(),
        }
    }
}

impl Queue for TapQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.frame_bytes_max,
            transmit_checksum: true,
            receive_checksum: false,
            kernel_shares: false,
            reaches_kernel: false,
            receive_is_call: true,
            flush_is_call: true,
            receive_together: true,
        }
    }

    fn info(&self) -> Info {
        let mode = self.info.mode.clone() + &self.sender.mode("IFF_VNET_HDR");
        Info { mode, ..self.info.clone() }
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
        let (mut shown, mut spent) = (0, 0);
        while spent < budget {
            let burst = self.incoming.show(&self.file, budget - spent, receiver);
            let Shown { frames, bytes, super_frames, dropped, .. } = burst;
            self.counters.rx_frames += frames as u64;
            self.counters.rx_bytes += bytes as u64;
            self.counters.rx_super_frames += super_frames;
            self.counters.rx_frames_dropped += dropped as u64;
            shown += frames;
            spent += frames + dropped;
            if burst.is_last {
                break;
            }
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

    fn flush(&mut self) {
        self.sender.flush(&File(&self.file), &mut self.link, &mut self.counters);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.link.check();
        self.flush();
        let has_left = self.sender.is_empty() || !self.link.is_up();
        has_left && !self.incoming.has_waiting()
    }

    /// The file is readable as long as frames wait; there is nothing to consume.
    fn disarm(&mut self) {}

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// What was read and is to be shown: frames one behind the other, and the super-frame that came
/// last.
struct Incoming {
    memory: Vec<u8>,
    stage: Stage,
    frame_bytes_max: usize,
}

/// What was shown, and what was not.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    frames: usize,
    bytes: usize,
    super_frames: u64,
    dropped: usize,
    /// The kernel has no more.
    is_last: bool,
}

impl Incoming {
    fn new(frame_bytes_max: usize) -> Incoming {
        let frame_bytes_max = frame_bytes_max + vlan::TAG_LENGTH;
        let stride = (Offload::BYTES + frame_bytes_max).next_multiple_of(LINE_BYTES);
        let memory = vec![0; BURST_FRAMES * stride + READ_BYTES];
        Incoming { memory, stage: Stage::new(frame_bytes_max), frame_bytes_max }
    }

    /// True if there are frames that were read and not shown.
    fn has_waiting(&self) -> bool {
        self.stage.has_waiting()
    }

    /// Shows what came first, in one burst.
    fn show(&mut self, file: &OwnedFd, budget: usize, receiver: &mut dyn Receiver) -> Shown {
        if self.stage.has_waiting() {
            let (frames, bytes) = self.stage.show(budget, receiver);
            return Shown { frames, bytes, ..Shown::default() };
        }
        self.show_read(file, budget, receiver)
    }

    /// Reads until a burst is full, a super-frame came, or the kernel has no more, and shows what
    /// is a frame.
    fn show_read(&mut self, file: &OwnedFd, budget: usize, receiver: &mut dyn Receiver) -> Shown {
        let (mut shown, mut burst) = (Shown::default(), Burst::new());
        let mut free = self.memory.as_mut_slice();
        for _ in 0..budget.min(BURST_FRAMES) {
            let length = match rustix::io::read(file, &mut *free) {
                Ok(length) => length,
                // One that the kernel could not hand over, and has thrown away.
                Err(Errno::INVAL) => {
                    shown.dropped += 1;
                    continue;
                }
                // There is none, or the device is there no more.
                Err(_) => {
                    shown.is_last = true;
                    break;
                }
            };
            match judge(&mut free[..length], &mut self.stage, self.frame_bytes_max) {
                Read::Frame => {
                    let (read, rest) =
                        mem::take(&mut free).split_at_mut(length.next_multiple_of(LINE_BYTES));
                    free = rest;
                    shown.bytes += length - Offload::BYTES;
                    burst.push(&read[Offload::BYTES..length]);
                }
                Read::SuperFrame => {
                    shown.super_frames = 1;
                    break;
                }
                Read::Unusable => shown.dropped += 1,
            }
        }
        shown.frames = burst.show_to(receiver, Checksums::Unknown);
        shown
    }
}

/// What one call has brought.
enum Read {
    Frame,
    /// Its frames are in the stage.
    SuperFrame,
    Unusable,
}

/// Looks at what was read: completes it if it is one frame, and cuts it if it is several.
fn judge(read: &mut [u8], stage: &mut Stage, frame_bytes_max: usize) -> Read {
    let Some((offload, frame)) = read.split_first_chunk_mut() else { return Read::Unusable };
    let offload = Offload::from_bytes(*offload);
    if !offload.is_one() {
        let Some(cut) = stage.cut(&offload, frame, frame.len()) else { return Read::Unusable };
        let payload = &frame[cut.header_bytes()..];
        stage.copy(cut, payload);
        return Read::SuperFrame;
    }
    let fits = (ethernet::HEADER_LENGTH..=frame_bytes_max).contains(&frame.len());
    if fits && complete(&offload, frame, 0) { Read::Frame } else { Read::Unusable }
}
