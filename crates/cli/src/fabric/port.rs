//! One port of a fabric: the network on either side of it, and the NIC that it stands for. Its
//! memif queues are kept by the switch, because a frame that is being read from one port is written
//! to another.

use clearway_base::{Random, Time};
use clearway_nic::fabric::{Fate, Frame, Rss, Transit, Way};
use clearway_nic::memif::{self, Role, Socket};
use clearway_nic::{HEADER_BYTES_MAX, Queue as _, Transmit};

use clearway_daemon::Error;
use clearway_daemon::config::MemifRole;

use super::config::FabricPort;
use super::counters::{PortCounters, QueueCounters};

/// Frames under way to one port at most: two seconds of the largest frames at 400 Mbit/s, in 100
/// MB.
const UNDER_WAY_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) sends: Way,
    receives: Way,
    rss: Rss,
    /// Frames to the port.
    transit: Transit<Vec<u8>>,
    /// The cable is plugged in.
    pub(super) is_plugged: bool,
    /// Ports from which nothing gets here.
    pub(super) cut_from: Vec<bool>,
    /// Queues that have been written to and not flushed.
    unflushed: Vec<bool>,
    pub(super) counters: PortCounters,
}

impl Port {
    /// Opens the memif, and makes what stands behind it. There are `ports` ports in all.
    pub(super) fn open(
        config: &FabricPort,
        ports: usize,
        random: &mut Random,
    ) -> Result<(Self, Vec<memif::Queue>), Error> {
        let role = match config.role {
            MemifRole::Server => Role::Server,
            MemifRole::Client => Role::Client,
        };
        let frame_bytes_max = usize::from(config.mtu_bytes) + HEADER_BYTES_MAX;
        let memif = memif::Config {
            queue_pairs: config.queues,
            name: config.name.clone(),
            ..memif::Config::new(Socket::from(config.socket.as_str()), role, [0; 6])
        };
        let queues = memif::open(memif.with_frames(frame_bytes_max))
            .map_err(|source| Error::Nic { nic: config.name.clone(), source })?;
        let counters = PortCounters {
            name: config.name.clone(),
            queues: vec![QueueCounters::default(); queues.len()],
            ..PortCounters::default()
        };
        let port = Self {
            name: config.name.clone(),
            sends: Way::new(config.sends),
            receives: Way::new(config.receives),
            rss: Rss::new(config.rss, 1, random),
            transit: Transit::default(),
            is_plugged: true,
            cut_from: vec![false; ports],
            unflushed: vec![false; queues.len()],
            counters,
        };
        Ok((port, queues))
    }

    /// Spreads frames over as many queues as the link has, which may have changed.
    pub(super) fn follow_link(&mut self, queues: &[memif::Queue], random: &mut Random) {
        let up = queues.iter().take_while(|queue| queue.link_up()).count();
        if up != self.counters.queues_up {
            self.counters.queues_up = up;
            self.rss = Rss::new(self.rss.options(), up.max(1), random);
        }
    }

    pub(super) fn rekey(&mut self, random: &mut Random) {
        self.rss = Rss::new(self.rss.options(), self.counters.queues_up.max(1), random);
        self.counters.rekeyed += 1;
    }

    pub(super) fn count_received(&mut self, queue: usize, frame: &[u8]) {
        self.counters.received_frames += 1;
        self.counters.received_bytes += frame.len() as u64;
        self.counters.queues[queue].received_frames += 1;
    }

    /// Takes a frame that goes to this port, and lets it arrive now if it can.
    pub(super) fn take(
        &mut self,
        queues: &mut [memif::Queue],
        frame: &[u8],
        so_far: Fate,
        now: Time,
        random: &mut Random,
    ) {
        let is_direct = so_far.arrival <= now && so_far.overtaken_by == 0;
        if is_direct && self.receives.is_perfect() && self.transit.is_empty() {
            (0..so_far.copies).for_each(|_| self.deliver(queues, frame));
            return;
        }
        let mut frame = frame.to_vec();
        let fate = self.receives.enter(so_far.arrival, &mut Frame(&mut frame), random);
        let Some(fate) = fate else { return };
        let overtaken_by = so_far.overtaken_by.saturating_add(fate.overtaken_by);
        for _ in 0..so_far.copies * fate.copies {
            if self.transit.len() >= UNDER_WAY_MAX {
                self.counters.dropped_under_way += 1;
            } else {
                self.transit.push(frame.clone(), fate.arrival, overtaken_by);
            }
        }
    }

    /// Delivers the frames that have arrived; how many.
    pub(super) fn deliver_arrived(&mut self, queues: &mut [memif::Queue], now: Time) -> usize {
        if self.transit.is_empty() {
            return 0;
        }
        let mut frames = 0;
        while let Some(frame) = self.transit.pop(now) {
            self.deliver(queues, &frame);
            frames += 1;
        }
        if frames == 0 {
            self.transit.polled_in_vain();
        }
        frames
    }

    /// Puts a frame into the queue that RSS says. As a NIC does, it drops what finds no descriptor.
    fn deliver(&mut self, queues: &mut [memif::Queue], frame: &[u8]) {
        let number = self.rss.queue(frame);
        let queue = &mut queues[number];
        if !queue.link_up() || frame.len() > queue.sent_bytes_max() {
            self.counters.dropped_down += 1;
            return;
        }
        let mut fill = |buffer: &mut [u8]| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        };
        if queue.transmit(&mut fill) == Transmit::Queued {
            self.counters.sent_frames += 1;
            self.counters.sent_bytes += frame.len() as u64;
            self.counters.queues[number].sent_frames += 1;
            self.unflushed[number] = true;
        } else {
            self.counters.dropped_full += 1;
        }
    }

    /// Shows the peer what was delivered.
    pub(super) fn flush(&mut self, queues: &mut [memif::Queue]) {
        for (queue, unflushed) in queues.iter_mut().zip(&mut self.unflushed) {
            if std::mem::take(unflushed) {
                queue.flush();
            }
        }
    }

    pub(super) fn transit(&self) -> &Transit<Vec<u8>> {
        &self.transit
    }

    pub(super) fn counters(&self, queues: &[memif::Queue]) -> PortCounters {
        PortCounters {
            peer: queues[0].info().mode,
            sends: self.sends.counts().into(),
            receives: self.receives.counts().into(),
            ..self.counters.clone()
        }
    }
}
