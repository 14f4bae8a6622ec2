//! A queue with more room for a frame to be sent than it has: for an engine that was given one with
//! less than the one before, and may be about to send what fitted there.
//!
//! Each frame is copied once more, and one that does not fit is dropped, as a link would.

use std::os::fd::BorrowedFd;

use crate::{Capabilities, Counters, Info, Queue, Receiver, Sink, Transmit};

/// See the module.
pub struct Roomy {
    queue: Box<dyn Queue>,
    frame: Box<[u8]>,
    dropped: u64,
}

impl Roomy {
    /// `queue` with room for frames of `frame_bytes`; as it is, if it has that.
    pub fn wrap(queue: Box<dyn Queue>, frame_bytes: usize) -> Box<dyn Queue> {
        if queue.capabilities().frame_bytes_max >= frame_bytes {
            return queue;
        }
        Box::new(Self { queue, frame: vec![0; frame_bytes].into(), dropped: 0 })
    }

    /// Sends what `fill` writes by `transmit`, as a copy.
    fn pass_on(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
        transmit: impl FnOnce(&mut dyn Queue, &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit,
    ) -> Transmit {
        let (frame, mut outcome) = (&mut self.frame, Transmit::Nothing);
        let mut has_left = true;
        let queued = transmit(self.queue.as_mut(), &mut |buffer: &mut [u8]| {
            let length = fill(frame);
            outcome = if length == 0 { Transmit::Nothing } else { Transmit::Queued };
            match buffer.get_mut(..length) {
                Some(buffer) => {
                    buffer.copy_from_slice(&frame[..length]);
                    length
                }
                None => {
                    has_left = false;
                    0
                }
            }
        });
        self.dropped += u64::from(!has_left);
        if queued == Transmit::Full { Transmit::Full } else { outcome }
    }
}

impl Queue for Roomy {
    fn capabilities(&self) -> Capabilities {
        Capabilities { frame_bytes_max: self.frame.len(), ..self.queue.capabilities() }
    }

    fn info(&self) -> Info {
        self.queue.info()
    }

    fn link_up(&self) -> bool {
        self.queue.link_up()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.queue.receive(budget, sink)
    }

    fn receive_together(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.queue.receive_together(budget, receiver)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.pass_on(fill, |queue, copy| queue.transmit(copy))
    }

    fn transmit_as_is(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.pass_on(fill, |queue, copy| queue.transmit_as_is(copy))
    }

    fn send_to_kernel(&mut self, frame: &[u8]) {
        self.queue.send_to_kernel(frame);
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    fn counters(&self) -> Counters {
        let own = self.queue.counters();
        Counters { tx_frames_dropped: own.tx_frames_dropped + self.dropped, ..own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unplugged;

    #[test]
    fn what_does_not_fit_is_dropped_and_all_else_goes_on() {
        let small = || Box::new(Unplugged::new([2; 6], 100, "a test").expect("a descriptor"));
        assert_eq!(Roomy::wrap(small(), 100).capabilities().frame_bytes_max, 100);
        let mut queue = Roomy::wrap(small(), 200);
        assert_eq!(queue.capabilities().frame_bytes_max, 200);
        let mut send = |length| {
            let outcome = queue.transmit(&mut |frame: &mut [u8]| {
                frame[..length].fill(7);
                length
            });
            (outcome, queue.counters().tx_frames_dropped)
        };
        assert_eq!(send(0), (Transmit::Nothing, 0));
        assert_eq!(send(200), (Transmit::Queued, 1), "by this");
        assert_eq!(send(100), (Transmit::Queued, 2), "by the queue, which has no NIC");
    }
}
