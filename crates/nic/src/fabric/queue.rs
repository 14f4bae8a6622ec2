//! A queue of a fabric behind the crate's queue trait.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use clearway_base::Random;

use super::lane::Lane;
use super::{Fabric, Fate, Frame, Kind, PortState, lock};
use crate::burst::Burst;
use crate::{BURST_FRAMES, Capabilities, Counters, Info, Sink, Transmit};

/// One queue of a NIC in memory. Made by [`super::pair`] and [`super::switch`].
#[derive(Debug)]
pub struct Queue {
    fabric: Arc<Fabric>,
    port: usize,
    index: usize,
    random: Random,
    /// Where `transmit` lets frames be written.
    scratch: Box<[u8]>,
    /// Frames queued since the last flush.
    queued: Vec<Vec<u8>>,
    counters: Counters,
}

impl Queue {
    pub(super) fn new(fabric: Arc<Fabric>, port: usize, index: usize, random: Random) -> Self {
        let scratch = vec![0; fabric.options.frame_bytes_max].into();
        let (queued, counters) = (Vec::new(), Counters::default());
        Self { fabric, port, index, random, scratch, queued, counters }
    }

    fn lane(&self) -> &Lane {
        &self.fabric.ports[self.port].lanes[self.index]
    }

    /// On a wire, frames that the receiver has not taken yet occupy our descriptors.
    fn is_full(&self) -> bool {
        let under_way = match self.fabric.kind {
            Kind::Wire => self.fabric.ports[1 - self.port].lanes[0].frames(),
            Kind::Switch => 0,
        };
        self.queued.len() + under_way >= self.fabric.options.descriptors
    }

    fn send(&mut self, mut frame: Vec<u8>) {
        let fabric = self.fabric.clone();
        let sender = &fabric.ports[self.port];
        let mut sent = Frame(&mut frame);
        let fate = lock(&sender.sends).enter(fabric.now(), &mut sent, &mut self.random);
        let Some(fate) = fate else { return };
        for target in fabric.targets(self.port, &frame) {
            for _ in 0..fate.copies {
                self.deliver(&fabric.ports[target], frame.clone(), fate);
            }
        }
    }

    /// The last leg of a frame's way.
    fn deliver(&mut self, to: &PortState, mut frame: Vec<u8>, so_far: Fate) {
        let mut sent = Frame(&mut frame);
        let fate = lock(&to.receives).enter(so_far.arrival, &mut sent, &mut self.random);
        let Some(fate) = fate else { return };
        let overtaken_by = so_far.overtaken_by.saturating_add(fate.overtaken_by);
        let bounded = self.fabric.kind == Kind::Switch;
        let lane = &to.lanes[lock(&to.rss).queue(&frame)];
        for _ in 0..fate.copies {
            lane.push(frame.clone(), fate.arrival, overtaken_by, bounded);
        }
        lane.wake();
    }
}

impl crate::Queue for Queue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: self.fabric.options.frame_bytes_max,
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
        let Fabric { options, ports, .. } = &*self.fabric;
        let mode = format!("in memory, seed {:#x}", options.seed);
        Info { driver: "fabric", mode, mac: ports[self.port].mac }
    }

    fn link_up(&self) -> bool {
        self.fabric.link_up(self.port)
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut frames = Vec::new();
        self.lane().pop(budget, self.fabric.now(), &mut frames);
        for frames in frames.chunks(BURST_FRAMES) {
            let mut burst = Burst::new();
            for frame in frames {
                self.counters.rx_bytes += frame.len() as u64;
                burst.push(frame);
            }
            self.counters.rx_frames += burst.show(sink) as u64;
        }
        frames.len()
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let up = self.link_up();
        if up && self.is_full() {
            return Transmit::Full;
        }
        let length = fill(&mut self.scratch);
        if length == 0 {
            return Transmit::Nothing;
        }
        if up {
            self.queued.push(self.scratch[..length].to_vec());
        } else {
            self.counters.tx_frames_dropped += 1;
        }
        Transmit::Queued
    }

    fn flush(&mut self) {
        for frame in std::mem::take(&mut self.queued) {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += frame.len() as u64;
            self.send(frame);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.lane().bell())
    }

    fn arm(&mut self) -> bool {
        self.lane().arm(self.fabric.now())
    }

    fn disarm(&mut self) {
        self.lane().disarm();
    }

    fn counters(&self) -> Counters {
        Counters { rx_frames_dropped: self.lane().dropped(), ..self.counters }
    }
}
