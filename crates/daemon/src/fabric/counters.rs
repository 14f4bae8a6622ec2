//! What a fabric has moved and lost, by port.

use clearway_nic::fabric::FaultCounts;
use serde::Serialize;

/// The counters of a port since the fabric started. "Received" and "sent" are the fabric's words: it receives
/// what the station behind the port sends.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortCounters {
    /// The port's name.
    pub name: String,
    /// What the memif's other side is, or why there is none.
    pub peer: String,
    /// Queue pairs that the link has at present.
    pub queues_up: usize,
    /// How often the port got another RSS key.
    pub rekeyed: u64,
    /// Frames that came from the port.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that went to the port.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames to the port that found no free descriptor.
    pub dropped_full: u64,
    /// Frames to the port that found it down, cut off, or without a peer, or were too long for it.
    pub dropped_down: u64,
    /// Frames to the port beyond those that a fabric has under way at most.
    pub dropped_under_way: u64,
    /// What happened to frames from the port.
    pub sends: Met,
    /// What happened to frames to the port.
    pub receives: Met,
    /// By queue.
    pub queues: Vec<QueueCounters>,
}

/// One queue of a port: how its RSS spread what went to it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct QueueCounters {
    /// Frames that came by it.
    pub received_frames: u64,
    /// Frames that went to it.
    pub sent_frames: u64,
}

/// How many frames met what; see [`FaultCounts`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "each field is the one of the same name there")]
pub struct Met {
    pub lost: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    pub reordered: u64,
    pub delayed: u64,
    pub overflowed: u64,
    pub marked: u64,
    pub slow: u64,
    pub slow_overflowed: u64,
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
    pub fn named(&self) -> [(&'static str, u64); 9] {
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
