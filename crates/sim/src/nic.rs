//! The NIC of a simulated host: least-common-denominator queues of 256 descriptors per direction.
//! It only holds frames; when they leave and arrive is the network's business.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_base::Time;

use clearway_nic::{
    BURST_FRAMES, Bell, Capabilities, Checksums, Counters, Info, LCD_DESCRIPTORS, MacAddress,
    Queue, Sink, Transmit,
};

/// One queue, as the engine has it.
pub(crate) struct SimQueue {
    shared: Arc<Mutex<Shared>>,
    mac: MacAddress,
    scratch: Box<[u8]>,
    /// What an engine that sleeps waits on.
    bell: Arc<Bell>,
}

/// The same queue, as the world has it.
#[derive(Clone, Debug)]
pub(crate) struct Wire(Arc<Mutex<Shared>>, Arc<Bell>);

#[derive(Debug, Default)]
struct Shared {
    now: Time,
    is_up: bool,
    received: VecDeque<Vec<u8>>,
    /// Handed over, not yet taken by the world.
    sent: Vec<Vec<u8>>,
    /// Rung by the next frame, if that is wanted.
    is_armed: bool,
    /// When the frames that still hold a descriptor will have left.
    leaving: VecDeque<Time>,
    counters: Counters,
}

/// A queue and its other side.
pub(crate) fn queue(mac: MacAddress, frame_bytes_max: usize) -> (SimQueue, Wire) {
    let shared = Arc::new(Mutex::new(Shared { is_up: true, ..Shared::default() }));
    let bell = Arc::new(Bell::new().expect("a descriptor; raise `ulimit -n`"));
    let queue = SimQueue {
        shared: Arc::clone(&shared),
        mac,
        scratch: vec![0; frame_bytes_max].into(),
        bell: Arc::clone(&bell),
    };
    (queue, Wire(shared, bell))
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// Tells the time, so that frames leave their descriptors.
    pub(crate) fn set_time(&self, now: Time) {
        let mut shared = lock(&self.0);
        shared.now = now;
        while shared.leaving.front().is_some_and(|left| *left <= now) {
            shared.leaving.pop_front();
        }
    }

    /// Plugs the cable in or out.
    pub(crate) fn set_link(&self, is_up: bool) {
        lock(&self.0).is_up = is_up;
    }

    /// A frame arrives. False if all descriptors hold one already: then it is lost.
    pub(crate) fn arrive(&self, frame: Vec<u8>) -> bool {
        let mut shared = lock(&self.0);
        if shared.received.len() >= LCD_DESCRIPTORS || !shared.is_up {
            shared.counters.rx_frames_dropped += 1;
            return false;
        }
        shared.received.push_back(frame);
        if std::mem::take(&mut shared.is_armed) {
            self.1.ring();
        }
        true
    }

    /// Takes what the engine has sent.
    pub(crate) fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut lock(&self.0).sent)
    }

    /// A frame that was taken occupies its descriptor until `at`.
    pub(crate) fn will_leave(&self, at: Time) {
        lock(&self.0).leaving.push_back(at);
    }

    /// Frames received and sent by the engine so far.
    pub(crate) fn frames_moved(&self) -> u64 {
        let counters = lock(&self.0).counters;
        counters.rx_frames + counters.tx_frames
    }
}

impl Queue for SimQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.scratch.len(),
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
        Info { driver: "sim", mode: "simulated".to_owned(), mac: self.mac }
    }

    fn link_up(&self) -> bool {
        lock(&self.shared).is_up
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut shared = lock(&self.shared);
        let count = budget.min(shared.received.len());
        if count == 0 {
            return 0;
        }
        let frames: Vec<Vec<u8>> = shared.received.drain(..count).collect();
        shared.counters.rx_frames += count as u64;
        shared.counters.rx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        drop(shared);
        for burst in frames.chunks(BURST_FRAMES) {
            let burst: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
            sink(&burst, Checksums::Unknown);
        }
        count
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let shared = lock(&self.shared);
        if shared.is_up && shared.sent.len() + shared.leaving.len() >= LCD_DESCRIPTORS {
            return Transmit::Full;
        }
        drop(shared);
        let length = fill(&mut self.scratch);
        if length == 0 {
            return Transmit::Nothing;
        }
        let mut shared = lock(&self.shared);
        if shared.is_up {
            shared.sent.push(self.scratch[..length].to_vec());
            shared.counters.tx_frames += 1;
            shared.counters.tx_bytes += length as u64;
        } else {
            shared.counters.tx_frames_dropped += 1;
        }
        Transmit::Queued
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn arm(&mut self) -> bool {
        let mut shared = lock(&self.shared);
        shared.is_armed = shared.received.is_empty();
        shared.is_armed
    }

    fn disarm(&mut self) {
        let is_silent = std::mem::take(&mut lock(&self.shared).is_armed);
        if !is_silent {
            self.bell.silence();
        }
    }

    fn counters(&self) -> Counters {
        lock(&self.shared).counters
    }
}
