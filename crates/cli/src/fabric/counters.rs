//! What a fabric has moved and lost, by port.

use clearway_nic::fabric::FaultCounts;
use serde::Serialize;

/// The counters of a port since the fabric started. "Received" and "sent" are the fabric's words:
/// it receives what the station behind the port sends.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PortCounters {
    /// The port's name.
    pub(super) name: String,
    /// What the memif's other side is, or why there is none.
    pub(super) peer: String,
    /// Queue pairs that the link has at present.
    pub(super) queues_up: usize,
    /// How often the port got another RSS key.
    pub(super) rekeyed: u64,
    /// Frames that came from the port.
    pub(super) received_frames: u64,
    /// Their bytes.
    pub(super) received_bytes: u64,
    /// Frames that went to the port.
    pub(super) sent_frames: u64,
    /// Their bytes.
    pub(super) sent_bytes: u64,
    /// Frames to the port that found no free descriptor.
    pub(super) dropped_full: u64,
    /// Frames to the port that found it down, cut off, or without a peer, or were too long for it.
    pub(super) dropped_down: u64,
    /// Frames to the port beyond those that a fabric has under way at most.
    pub(super) dropped_under_way: u64,
    /// What happened to frames from the port.
    pub(super) sends: Met,
    /// What happened to frames to the port.
    pub(super) receives: Met,
    /// By queue.
    pub(super) queues: Vec<QueueCounters>,
}

/// One queue of a port: how its RSS spread what went to it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct QueueCounters {
    /// Frames that came by it.
    pub(super) received_frames: u64,
    /// Frames that went to it.
    pub(super) sent_frames: u64,
}

/// How many frames met what; see [`FaultCounts`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Met {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) corrupted: u64,
    pub(super) reordered: u64,
    pub(super) delayed: u64,
    pub(super) overflowed: u64,
    pub(super) marked: u64,
    pub(super) slow: u64,
    pub(super) slow_overflowed: u64,
}

impl From<FaultCounts> for Met {
    fn from(counts: FaultCounts) -> Self {
        let FaultCounts { lost, duplicated, corrupted, reordered, delayed, .. } = counts;
        let FaultCounts { overflowed, marked, slow, slow_overflowed, .. } = counts;
        Self {
            lost,
            duplicated,
            corrupted,
            reordered,
            delayed,
            overflowed,
            marked,
            slow,
            slow_overflowed,
        }
    }
}

impl Met {
    /// What there was of them, by name.
    #[must_use]
    pub(super) fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("corrupted", self.corrupted),
            ("reordered", self.reordered),
            ("delayed", self.delayed),
            ("overflowed", self.overflowed),
            ("marked", self.marked),
            ("slow", self.slow),
            ("slow overflowed", self.slow_overflowed),
        ]
    }
}
