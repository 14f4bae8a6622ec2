//! A queue of no NIC: for an engine whose NIC is not there, or not there yet.
//!
//! Nothing comes, and what is sent is lost, as with a link that is down. The next queue takes its
//! place when there is one.

use std::os::fd::{AsFd, BorrowedFd};

use crate::{Bell, Capabilities, Counters, Error, Info, MacAddress, Queue, Sink, Transmit};

/// See the module.
#[derive(Debug)]
pub struct Unplugged {
    mac: MacAddress,
    /// Why there is no NIC, for `Info::mode`.
    why: String,
    frame: Box<[u8]>,
    /// Never rung.
    wait: Bell,
    counters: Counters,
}

impl Unplugged {
    /// A queue that takes frames of up to `frame_bytes_max`.
    pub fn new(mac: MacAddress, frame_bytes_max: usize, why: &str) -> Result<Self, Error> {
        let wait = Bell::new().map_err(|source| Error::System {
            action: "cannot make a descriptor to wait for".into(),
            remedy: "Raise the limit on open files (ulimit -n)".into(),
            source,
        })?;
        let (why, frame) = (why.to_owned(), vec![0; frame_bytes_max].into());
        Ok(Self { mac, why, frame, wait, counters: Counters::default() })
    }
}

impl Queue for Unplugged {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.frame.len(),
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: false,
            reaches_kernel: false,
            receive_is_call: false,
            flush_is_call: false,
            receive_together: false,
        }
    }

    fn info(&self) -> Info {
        Info { driver: "none", mode: self.why.clone(), mac: self.mac }
    }

    fn link_up(&self) -> bool {
        false
    }

    fn receive(&mut self, _: usize, _: &mut Sink<'_>) -> usize {
        0
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        if fill(&mut self.frame) == 0 {
            return Transmit::Nothing;
        }
        self.counters.tx_frames_dropped += 1;
        Transmit::Queued
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wait.as_fd())
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> Counters {
        self.counters
    }
}
