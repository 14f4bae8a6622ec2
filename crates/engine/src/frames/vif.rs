//! A virtual interface as the engine knows it: what it may send, what it has been told, and what it
//! still wants to send.

mod state;

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_base::{Time, TokenBucket, counters};
use clearway_channel::FrameRefusal;
use clearway_channel::burst::{FrameInfo, SentBurst};
use clearway_classify::Filter;
use clearway_classify::directory::{EntryId, Rights};
use clearway_nic::MacAddress;
use serde::{Deserialize, Serialize};

use crate::channels::Channel;
use crate::gathering::Gathering;
use crate::snapshot::VifSnapshot;
use crate::switch::PRIORITY_MAX;

/// What the control plane asks for: it has checked the policy and what others have already.
#[derive(Clone, Debug, Default)]
pub struct VifSpec {
    /// What the VIF receives and nobody else does.
    pub receive: Vec<Filter>,
    /// What it gets copies of.
    pub copies: Vec<Filter>,
    /// What it may send.
    pub transmit: Vec<Filter>,
    /// The higher is asked first; patterns of one priority may not overlap.
    pub priority: u16,
    /// A MAC of its own, or the NIC's.
    pub mac: MacAddress,
    /// Frames that it may send per second.
    pub rate_frames_per_s: Option<u32>,
    /// The filters as text, for status.
    pub texts: Arc<VifTexts>,
}

/// The filters of a VIF as text. Made once, by whoever opens it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VifTexts {
    /// What it receives.
    pub receive: Vec<String>,
    /// What it gets copies of.
    pub copies: Vec<String>,
    /// What it may send.
    pub transmit: Vec<String>,
}

impl VifTexts {
    /// Bytes of all texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = self.receive.iter().chain(&self.copies).chain(&self.transmit);
        texts.map(|text| text.len() + 3).sum()
    }
}

impl VifSpec {
    /// Its place among the host's services: before what refuses what nobody has, behind all others.
    pub(crate) fn rights(&self) -> Rights {
        let clauses = |filters: &[Filter]| {
            filters.iter().flat_map(|filter| filter.clauses().to_vec()).collect()
        };
        Rights {
            receive: clauses(&self.receive),
            copies: clauses(&self.copies),
            send: clauses(&self.transmit),
            priority: self.priority.min(PRIORITY_MAX) + 1,
        }
    }
}

counters! {
    /// What a VIF has moved and lost.
    pub struct VifCounters {
        /// Frames given to the app.
        received_frames: Frames, "with frames that match its filters", "nothing: this is traffic";
        /// Their bytes.
        received_bytes: Bytes, "with received_frames", "nothing: this is traffic";
        /// Frames that the app had no room for.
        dropped_no_room: Frames,
            "when the app does not release bursts as fast as they come",
            "release them sooner, or attach with a larger receive pool";
        /// Frames that left, over the NIC or to another VIF or service of this host.
        sent_frames: Frames, "when the app sends", "nothing: this is traffic";
        /// Their bytes.
        sent_bytes: Bytes, "with sent_frames", "nothing: this is traffic";
    }
}

/// A virtual interface.
#[derive(Debug)]
pub(super) struct Vif {
    /// Where its frames go.
    pub(super) channel: u32,
    /// By which the app and the control plane name it, unique in its channel.
    pub(super) id: u32,
    pub(super) spec: VifSpec,
    /// In the directory: what it owns, may send, and wants copies of.
    pub(super) entry: EntryId,
    pub(super) gathering: Gathering,
    rate: Option<TokenBucket>,
    /// Bursts that were submitted and are not sent yet.
    pub(super) bursts: VecDeque<SentBurst>,
    pub(super) counters: VifCounters,
    refused: [u64; FrameRefusal::ALL.len()],
    /// What the app is told of what it sent.
    report: Report,
    is_untold: bool,
    /// Something has happened in this turn.
    pub(super) is_touched: bool,
    /// It is among those that have something to send.
    pub(super) is_sending: bool,
}

/// What has become of the frames that the app sent, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) bursts: u32,
    pub(super) sent: u64,
    pub(super) refused: u64,
    pub(super) reason: u8,
}

impl Vif {
    pub(super) fn new(channel: u32, id: u32, spec: VifSpec, entry: EntryId) -> Self {
        let rate = spec.rate_frames_per_s.map(TokenBucket::new);
        Self {
            channel,
            id,
            spec,
            entry,
            gathering: Gathering::default(),
            rate,
            bursts: VecDeque::new(),
            counters: VifCounters::default(),
            refused: [0; FrameRefusal::ALL.len()],
            report: Report::default(),
            is_untold: false,
            is_touched: false,
            is_sending: false,
        }
    }

    /// Gives the app a frame, if it has room.
    #[inline]
    pub(super) fn deliver(&mut self, app: &mut Channel, now: Time, frame: &[u8]) {
        if self.gathering.add(app, self.id, FrameInfo::received(now.as_ns()), frame) {
            self.counters.received_frames += 1;
            self.counters.received_bytes += frame.len() as u64;
        } else {
            self.counters.dropped_no_room += 1;
        }
    }

    /// Takes a burst that the app has submitted.
    pub(super) fn submit(&mut self, burst: SentBurst) {
        self.bursts.push_back(burst);
    }

    /// The burst that was being sent is over.
    pub(super) fn finish_burst(&mut self) {
        self.bursts.pop_front();
        self.report.bursts = self.report.bursts.wrapping_add(1);
        self.is_untold = true;
    }

    /// True if the policy says how many frames it may send.
    pub(super) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Whether the policy lets it send another frame now.
    #[inline]
    pub(super) fn take_rate(&mut self, now: Time) -> Result<(), FrameRefusal> {
        let is_within = self.rate.as_mut().is_none_or(|bucket| bucket.take(now));
        if is_within { Ok(()) } else { Err(FrameRefusal::Rate) }
    }

    #[inline]
    pub(super) fn count_sent(&mut self, frames: u64, bytes: u64) {
        self.counters.sent_frames += frames;
        self.counters.sent_bytes += bytes;
        self.report.sent += frames;
    }

    pub(super) fn count_refused(&mut self, reason: FrameRefusal) {
        self.refused[usize::from(reason.as_u8()) - 1] += 1;
        self.report.refused += 1;
        self.report.reason = reason.as_u8();
    }

    /// Bursts that were submitted and are not finished.
    pub(super) fn bursts_left(&self) -> u32 {
        self.bursts.len() as u32
    }

    /// True if there is something that the app does not know yet.
    pub(super) fn has_report(&self) -> bool {
        self.is_untold
    }

    /// What the app does not know yet, once.
    pub(super) fn take_report(&mut self) -> Option<Report> {
        core::mem::take(&mut self.is_untold).then_some(self.report)
    }

    pub(super) fn snapshot(&self) -> VifSnapshot {
        let refused = FrameRefusal::ALL.iter().zip(self.refused).filter(|(_, count)| *count > 0);
        VifSnapshot {
            vif: self.id,
            channel: self.channel,
            priority: self.spec.priority,
            texts: Arc::clone(&self.spec.texts),
            counters: self.counters.iter().collect(),
            refused: refused.map(|(reason, count)| (reason.word(), count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_long_as_they_say() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let texts = VifTexts {
            receive: texts(&["arp", "tcp"]),
            copies: texts(&["any"]),
            transmit: texts(&["x"]),
        };
        assert_eq!(texts.bytes(), 3 * 3 + 1 + 4 * 3);
    }
}
