//! A queue, and another beside it by which some of its frames come.
//!
//! What comes by the other is shown first. Frames of the two that wait at the same time are not in
//! the order in which they came, nobody knows that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

use crate::{Capabilities, Counters, Error, Info, Queue, Receiver, Segments, Sink, Transmit};

/// Both, as one queue.
pub(crate) struct Joined {
    /// Also sends.
    queue: Box<dyn Queue>,
    beside: Box<dyn Queue>,
    /// Readable when one of the two is.
    wait: OwnedFd,
}

impl Joined {
    /// Joins two queues that have descriptors to wait for, which stay the same.
    pub(crate) fn new(queue: Box<dyn Queue>, beside: Box<dyn Queue>) -> Result<Joined, Error> {
        let wait = wait_for([&*queue, &*beside]).map_err(|errno| Error::System {
            action: "cannot wait for two queues at once".into(),
            remedy: "Raise the limit on open files (ulimit -n)".into(),
            source: errno.into(),
        })?;
        Ok(Joined { queue, beside, wait })
    }
}

fn wait_for(queues: [&dyn Queue; 2]) -> rustix::io::Result<OwnedFd> {
    let wait = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in queues.iter().filter_map(|queue| queue.wait_fd()) {
        epoll::add(&wait, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(wait)
}

impl Queue for Joined {
    fn capabilities(&self) -> Capabilities {
        let (own, beside) = (self.queue.capabilities(), self.beside.capabilities());
        let receive_together = own.receive_together || beside.receive_together;
        Capabilities { receive_together, ..own }
    }

    fn info(&self) -> Info {
        let mut info = self.queue.info();
        info.mode += &format!("; with it a {}", self.beside.info().mode);
        info
    }

    fn link_up(&self) -> bool {
        self.queue.link_up()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let shown = self.beside.receive(budget, sink);
        shown + self.queue.receive(budget - shown, sink)
    }

    fn receive_together(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        let shown = self.beside.receive_together(budget, receiver);
        shown + self.queue.receive_together(budget.saturating_sub(shown), receiver)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.queue.transmit(fill)
    }

    fn transmit_as_is(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.queue.transmit_as_is(fill)
    }

    fn transmit_segments(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8], usize) -> Segments,
    ) -> Transmit {
        self.queue.transmit_segments(fill)
    }

    fn send_to_kernel(&mut self, frame: &[u8]) {
        self.queue.send_to_kernel(frame);
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wait.as_fd())
    }

    fn arm(&mut self) -> bool {
        let beside = self.beside.arm();
        self.queue.arm() && beside
    }

    fn disarm(&mut self) {
        self.beside.disarm();
        self.queue.disarm();
    }

    fn counters(&self) -> Counters {
        let (own, beside) = (self.queue.counters(), self.beside.counters());
        Counters {
            rx_frames: own.rx_frames + beside.rx_frames,
            rx_bytes: own.rx_bytes + beside.rx_bytes,
            rx_frames_dropped: own.rx_frames_dropped + beside.rx_frames_dropped,
            rx_super_frames: own.rx_super_frames + beside.rx_super_frames,
            ..own
        }
    }
}
