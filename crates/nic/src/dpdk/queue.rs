//! A queue pair of a DPDK device behind the crate's queue trait.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::port::Port;
use super::sys::{self, Frame, Mbuf};
use super::thread;
use crate::burst::Burst;
use crate::{
    BURST_FRAMES, Capabilities, Counters, Error, Info, LCD_DESCRIPTORS, Queue, Sink, Transmit,
};

/// Calls of `receive` between two looks at the link, while it is up and while it is down.
const CALLS_UP: u32 = 16 * 1024;
const CALLS_DOWN: u32 = 64;

/// One queue pair of a device. Opened by [`super::open`].
#[derive(Debug)]
pub struct DpdkQueue {
    index: u16,
    arrived: Arrived,
    leaving: Leaving,
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

/// Frames that have been taken from the device: a device may refuse to give fewer than a whole
/// burst, so that what is over the budget waits here.
#[derive(Debug)]
struct Arrived {
    mbufs: [*mut Mbuf; BURST_FRAMES],
    frames: [Frame; BURST_FRAMES],
    /// Those from `next` to `count` have not been shown.
    next: usize,
    count: usize,
}

/// Frames that are written and not handed over.
#[derive(Debug)]
struct Leaving {
    mbufs: Vec<*mut Mbuf>,
    /// Where the next frame is to be written, if it has been fetched.
    spare: Option<(*mut Mbuf, *mut u8)>,
    /// The device did not take all at the last flush.
    is_behind: bool,
}

impl DpdkQueue {
    pub(super) fn open(port: &Arc<Port>, index: u16) -> Result<Self, Error> {
        let none = Frame { bytes: std::ptr::null(), length: 0 };
        let arrived = Arrived {
            mbufs: [std::ptr::null_mut(); BURST_FRAMES],
            frames: [none; BURST_FRAMES],
            next: 0,
            count: 0,
        };
        let mbufs = Vec::with_capacity(LCD_DESCRIPTORS);
        Ok(Self {
            index,
            arrived,
            leaving: Leaving { mbufs, spare: None, is_behind: false },
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

    /// Takes a burst from the device, if there is nothing left of the last. True if there is
    /// something.
    #[inline]
    fn fetch(&mut self) -> bool {
        let Arrived { mbufs, frames, next, count } = &mut self.arrived;
        if next < count {
            return true;
        }
        // SAFETY: the port is started and has this queue, whose receiving half only we use; there
        // is room for a burst in both arrays.
        let fetched = unsafe {
            sys::clearway_dpdk_receive(
                self.port.number,
                self.index,
                BURST_FRAMES as u16,
                self.port.frame_bytes_max as u32,
                mbufs.as_mut_ptr(),
                frames.as_mut_ptr(),
                &raw mut self.counters.rx_frames_dropped,
            )
        };
        (*next, *count) = (0, usize::from(fetched));
        fetched > 0
    }

    /// Shows up to `budget` of the frames that were fetched, and gives their mbufs back.
    #[inline]
    fn show(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let Arrived { mbufs, frames, next, count } = &mut self.arrived;
        let end = (*count).min(*next + budget);
        let mut burst = Burst::new();
        for frame in &frames[*next..end] {
            // SAFETY: the shim has seen to it that all bytes of the frame are there; nobody else
            // writes them until the mbuf is freed, below.
            let bytes = unsafe { std::slice::from_raw_parts(frame.bytes, frame.length) };
            self.counters.rx_bytes += frame.length as u64;
            burst.push(bytes);
        }
        let shown = burst.show(sink);
        free(&mut mbufs[*next..end]);
        *next = end;
        self.counters.rx_frames += shown as u64;
        shown
    }

    /// An mbuf for the next frame.
    #[inline]
    fn buffer(&mut self) -> Option<(*mut Mbuf, *mut u8)> {
        if self.leaving.spare.is_some() {
            return self.leaving.spare.take();
        }
        let mut bytes = std::ptr::null_mut();
        // SAFETY: the pool lives as long as the port.
        let mbuf = unsafe { sys::clearway_dpdk_buffer(self.port.pool(self.index), &raw mut bytes) };
        (!mbuf.is_null()).then_some((mbuf, bytes))
    }

    /// Hands over what the device takes.
    fn hand_over(&mut self) {
        while self.link_up && !self.leaving.mbufs.is_empty() {
            if self.hand_over_some() == 0 {
                // Its descriptors are used up, or its link has gone.
                self.look_at_link();
                break;
            }
        }
        if !self.link_up {
            self.counters.tx_frames_dropped += self.leaving.mbufs.len() as u64;
            self.leaving.give_back();
        }
        self.leaving.is_behind = !self.leaving.mbufs.is_empty();
    }

    fn hand_over_some(&mut self) -> usize {
        let mbufs = &mut self.leaving.mbufs;
        let mut lengths = [0; LCD_DESCRIPTORS];
        for (length, mbuf) in lengths.iter_mut().zip(mbufs.iter()) {
            // SAFETY: the mbuf is ours, and holds a frame.
            *length = unsafe { sys::clearway_dpdk_length(*mbuf) };
        }
        // SAFETY: the port is started and has this queue, whose sending half only we use; the mbufs
        // hold a frame each, and those that are taken are removed.
        let taken = unsafe {
            sys::clearway_dpdk_transmit(
                self.port.number,
                self.index,
                mbufs.as_mut_ptr(),
                mbufs.len() as u16,
            )
        };
        let taken = usize::from(taken);
        mbufs.drain(..taken);
        self.counters.tx_frames += taken as u64;
        self.counters.tx_bytes += lengths[..taken].iter().map(|it| u64::from(*it)).sum::<u64>();
        taken
    }
}

impl Queue for DpdkQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.port.frame_bytes_max,
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: false,
            reaches_kernel: false,
            receive_is_call: false,
            flush_is_call: false,
        }
    }

    fn info(&self) -> Info {
        let waits = if self.epoll.is_some() {
            "wakes sleepers by interrupt"
        } else {
            "polled, since it has no receive interrupts"
        };
        Info { driver: "dpdk", mode: format!("{}; {waits}", self.port.mode), mac: self.port.mac }
    }

    fn link_up(&self) -> bool {
        self.link_up
    }

    #[inline]
    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        thread::enter();
        if self.calls_left == 0 {
            self.look_at_link();
        }
        self.calls_left -= 1;
        if self.leaving.is_behind {
            self.hand_over();
        }
        let mut shown = 0;
        while shown < budget && self.fetch() {
            let was_whole = self.arrived.count == BURST_FRAMES;
            shown += self.show(budget - shown, sink);
            if !was_whole {
                break;
            }
        }
        shown
    }

    #[inline]
    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        thread::enter();
        if self.leaving.mbufs.len() == LCD_DESCRIPTORS {
            return Transmit::Full;
        }
        let Some((mbuf, bytes)) = self.buffer() else { return Transmit::Full };
        let room = self.port.frame_bytes_max;
        // SAFETY: the mbuf is ours alone, and the pool was made so that each has that much room.
        let buffer = unsafe { std::slice::from_raw_parts_mut(bytes, room) };
        let length = fill(buffer);
        assert!(length <= room, "fill wrote {length} bytes into a buffer of {room}");
        if length == 0 {
            self.leaving.spare = Some((mbuf, bytes));
            return Transmit::Nothing;
        }
        // SAFETY: the mbuf is ours, and so many bytes of it are written.
        unsafe { sys::clearway_dpdk_set_length(mbuf, length as u16) };
        self.leaving.mbufs.push(mbuf);
        Transmit::Queued
    }

    #[inline]
    fn flush(&mut self) {
        if !self.leaving.mbufs.is_empty() {
            self.hand_over();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(OwnedFd::as_fd)
    }

    /// Looks for frames by taking them, since not every device can tell whether it has some.
    fn arm(&mut self) -> bool {
        thread::enter();
        // SAFETY: the port is started and has this queue.
        let armed = unsafe { sys::clearway_dpdk_arm(self.port.number, self.index) } == 0;
        !self.fetch() && armed
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
        let Arrived { mbufs, next, count, .. } = &mut self.arrived;
        free(&mut mbufs[*next..*count]);
        if let Some((spare, _)) = self.leaving.spare.take() {
            self.leaving.mbufs.push(spare);
        }
        self.leaving.give_back();
        if let Some(epoll) = &self.epoll {
            // SAFETY: the port is started and has this queue; the descriptor is open, and DPDK
            // forgets it.
            unsafe {
                sys::clearway_dpdk_unwatch(self.port.number, self.index, epoll.as_raw_fd());
            }
        }
    }
}

impl Leaving {
    fn give_back(&mut self) {
        free(&mut self.mbufs);
        self.mbufs.clear();
    }
}

/// Gives mbufs back to their pool; the pointers are stale afterwards.
#[inline]
fn free(mbufs: &mut [*mut Mbuf]) {
    // SAFETY: the caller owns the mbufs, and forgets them.
    unsafe { sys::clearway_dpdk_free(mbufs.as_mut_ptr(), mbufs.len() as u32) };
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
