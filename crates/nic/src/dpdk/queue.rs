//! A queue pair of a DPDK device behind the crate's queue trait.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::arrived::Arrived;
use super::leaving::Leaving;
use super::port::Port;
use super::{sys, thread};
use crate::queue::InFrames;
use crate::segments::Checksum;
use crate::{Capabilities, Counters, Error, Info, Queue, Receiver, Segments, Sink, Transmit};

/// Calls of `receive` between two looks at the link, while it is up and while it is down.
const CALLS_UP: u32 = 16 * 1024;
const CALLS_DOWN: u32 = 64;

/// One queue pair of a device. Opened by [`super::open`].
pub struct DpdkQueue {
    index: u16,
    arrived: Arrived,
    leaving: Leaving,
    /// The device did not take all at the last flush.
    is_behind: bool,
    counters: Counters,
    link_up: bool,
    calls_left: u32,
    /// Readable when frames come, if the device can tell.
    epoll: Option<OwnedFd>,
    /// Last, so that all mbufs are given back before the pools are gone.
    port: Arc<Port>,
}

// SAFETY: mbufs and pools belong to no thread. What a queue points to is its own, and it is used by
// one thread at a time, as DPDK demands of the two halves of a queue.
unsafe impl Send for DpdkQueue {}

impl fmt::Debug for DpdkQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, index, .. } = self;
        let mut queue = formatter.debug_struct("DpdkQueue");
        queue.field("port", port).field("index", index).finish_non_exhaustive()
    }
}

impl DpdkQueue {
    pub(super) fn open(port: &Arc<Port>, index: u16) -> Result<Self, Error> {
        Ok(Self {
            index,
            arrived: Arrived::new(port.frame_bytes_max),
            leaving: Leaving::new(port),
            is_behind: false,
            counters: Counters::default(),
            link_up: port.link_is_up(),
            calls_left: CALLS_DOWN,
            epoll: if port.wants_interrupts { watch(port, index)? } else { None },
            port: port.clone(),
        })
    }

    #[cold]
    fn look_at_link(&mut self) {
        self.link_up = self.port.link_is_up();
        self.calls_left = if self.link_up { CALLS_UP } else { CALLS_DOWN };
    }

    /// True if there are frames to be shown.
    #[inline]
    fn fetch(&mut self) -> bool {
        self.arrived.fetch(&self.port, self.index, &mut self.counters)
    }

    /// Hands over what the device takes.
    fn hand_over(&mut self) {
        while self.link_up && !self.leaving.is_empty() {
            if !self.leaving.hand_over(&self.port, self.index, &mut self.counters) {
                // Its descriptors are used up, or its link has gone.
                self.look_at_link();
                break;
            }
        }
        if !self.link_up {
            self.leaving.drop_all(&mut self.counters);
        }
        self.is_behind = !self.leaving.is_empty();
    }
}

impl Queue for DpdkQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.port.frame_bytes_max,
            transmit_checksum: self.port.offloads & sys::SUMS_TCP != 0,
            receive_checksum: false,
            kernel_shares: false,
            reaches_kernel: false,
            receive_is_call: false,
            flush_is_call: false,
            receive_together: true,
        }
    }

    fn info(&self) -> Info {
        let waits = if self.epoll.is_some() {
            "wakes sleepers by interrupt"
        } else {
            "polled, since it has no receive interrupts"
        };
        let mut mode = format!("{}; {waits}", self.port.mode);
        if let Some(error) = self.leaving.refused() {
            mode += &format!(
                "; what leaves gets its checksums in software since the device has refused a \
                 packet ({error})"
            );
        }
        Info { driver: "dpdk", mode, mac: self.port.mac }
    }

    fn link_up(&self) -> bool {
        self.link_up
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.receive_together(budget, &mut InFrames(sink))
    }

    fn receive_together(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        thread::enter();
        if self.calls_left == 0 {
            self.look_at_link();
        }
        self.calls_left -= 1;
        if self.is_behind {
            self.hand_over();
        }
        let mut shown = 0;
        while shown < budget && self.fetch() {
            shown += self.arrived.show(budget - shown, receiver, &mut self.counters);
            if !self.arrived.has_waiting() && !self.arrived.was_whole() {
                break;
            }
        }
        shown
    }

    #[inline]
    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        thread::enter();
        self.leaving.transmit(&self.port, self.index, Checksum::Right, fill)
    }

    #[inline]
    fn transmit_as_is(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        thread::enter();
        self.leaving.transmit(&self.port, self.index, Checksum::Any, fill)
    }

    #[inline]
    fn transmit_segments(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8], usize) -> Segments,
    ) -> Transmit {
        thread::enter();
        let fill = &mut |frame: &mut [u8]| fill(frame, 1).bytes;
        self.leaving.transmit(&self.port, self.index, Checksum::Missing, fill)
    }

    #[inline]
    fn flush(&mut self) {
        if !self.leaving.is_empty() {
            self.hand_over();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(OwnedFd::as_fd)
    }

    /// Looks for frames by taking them, since not every device can tell whether it has some.
    fn arm(&mut self) -> bool {
        thread::enter();
        if self.is_behind {
            self.hand_over();
        }
        // SAFETY: the port is started and has this queue.
        let armed = unsafe { sys::clearway_dpdk_arm(self.port.number, self.index) } == 0;
        !self.fetch() && armed && !self.is_behind
    }

    fn disarm(&mut self) {
        if let Some(epoll) = &self.epoll {
            // SAFETY: as in `arm`; the descriptor is open.
            unsafe {
                sys::clearway_dpdk_disarm(self.port.number, self.index, epoll.as_raw_fd());
            }
        }
    }

    fn counters(&self) -> Counters {
        // The device counts for all its queues together.
        let missed = if self.index == 0 { self.port.frames_missed() } else { 0 };
        let rx_frames_dropped = self.counters.rx_frames_dropped + missed;
        Counters { rx_frames_dropped, ..self.counters }
    }
}

impl Drop for DpdkQueue {
    fn drop(&mut self) {
        if let Some(epoll) = &self.epoll {
            // SAFETY: the port is started and has this queue; the descriptor is open, and DPDK
            // forgets it.
            unsafe {
                sys::clearway_dpdk_unwatch(self.port.number, self.index, epoll.as_raw_fd());
            }
        }
    }
}

/// A descriptor that tells of frames, if the device can do that.
fn watch(port: &Port, index: u16) -> Result<Option<OwnedFd>, Error> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| Error::System {
        action: "dpdk: open a queue".into(),
        remedy: "Raise the limit of open files (ulimit -n)".into(),
        source: error.into(),
    })?;
    let number = epoll.as_raw_fd();
    // SAFETY: here and below the port is started and has this queue, and the descriptor is open.
    if unsafe { sys::clearway_dpdk_watch(port.number, index, number) } != 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    if unsafe { sys::clearway_dpdk_arm(port.number, index) } != 0 {
        // SAFETY: as above.
        unsafe { sys::clearway_dpdk_unwatch(port.number, index, number) };
        return Ok(None);
    }
    // SAFETY: as above.
    unsafe { sys::clearway_dpdk_disarm(port.number, index, number) };
    Ok(Some(epoll))
}
