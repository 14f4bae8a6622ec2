//! Frames through the switch: to VIFs, from VIFs, and past captures.

use clearway_base::Time;
use clearway_channel::burst::SentBurst;
use clearway_channel::{Completion, FrameRefusal};

use super::capture::Sighting;
use super::table::{Switch, VifKey, touch};
use super::vif::Report;
use crate::channels::Channels;
use crate::lanes::Lanes;

impl Switch {
    /// Gives frames to the VIF that owns them.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        channels: &mut Channels,
        now: Time,
        key: VifKey,
        frames: &[&[u8]],
    ) {
        let Some(app) = channels.channel(key.channel()) else { return };
        let vif = self.vifs.get_mut(key.slot()).and_then(Option::as_mut);
        if let Some(vif) = vif {
            touch(&mut self.touched, key, vif);
            frames.iter().for_each(|frame| vif.deliver(app, now, frame));
        }
    }

    /// Shows captures what passes.
    #[cold]
    pub(crate) fn show(
        &mut self,
        channels: &mut Channels,
        lanes: &mut Lanes,
        now: Time,
        sighting: &Sighting<'_>,
    ) {
        for capture in self.captures.iter_mut().filter(|capture| capture.wants(sighting)) {
            capture.show(channels, lanes, now, sighting);
        }
    }

    /// Takes a burst that an app has submitted. One for a VIF that the app does not have is dropped:
    /// it may have been closed meanwhile.
    pub(crate) fn submit(
        &mut self,
        channels: &mut Channels,
        channel: u32,
        id: u32,
        burst: SentBurst,
    ) {
        let Some(key) = self.keys.get(&(channel, id)).copied() else {
            if let Some(app) = channels.channel(channel) {
                app.end.sends_finished(1);
            }
            return;
        };
        let Some(vif) = self.vif(key) else { return };
        vif.submit(burst);
        if !core::mem::replace(&mut vif.is_sending, true) {
            self.senders.push_back(key);
        }
    }

    /// The VIF whose turn it is to send; it is then the last in the row.
    pub(crate) fn next_sender(&mut self) -> Option<VifKey> {
        let key = self.senders.pop_front()?;
        self.senders.push_back(key);
        Some(key)
    }

    /// True if some VIF has something to send.
    #[inline]
    pub(crate) fn has_senders(&self) -> bool {
        !self.senders.is_empty()
    }

    /// How many VIFs have something to send.
    #[inline]
    pub(crate) fn sender_count(&self) -> usize {
        self.senders.len()
    }

    /// Bursts that VIFs of a channel have submitted and that are not sent: for audits.
    pub(crate) fn bursts_of(&self, channel: u32) -> u32 {
        let vifs = self.vifs.iter().flatten().filter(|vif| vif.channel == channel);
        vifs.map(|vif| vif.bursts_left()).sum()
    }

    /// How many VIFs there are: for audits.
    pub(crate) fn vif_count(&self) -> usize {
        self.vifs.iter().flatten().count()
    }

    /// What is left of the burst that a VIF is sending.
    pub(crate) fn burst(&mut self, key: VifKey) -> Option<SentBurst> {
        self.vif(key)?.bursts.front().copied()
    }

    /// The burst that a VIF is sending is walked so far; it may be over.
    pub(crate) fn go_on(&mut self, channels: &mut Channels, key: VifKey, walked: SentBurst) {
        let vif = self.vifs.get_mut(key.slot()).and_then(Option::as_mut);
        let (Some(vif), Some(app)) = (vif, channels.channel(key.channel())) else { return };
        let Some(burst) = vif.bursts.front_mut() else { return };
        *burst = walked;
        if walked.frames_left() > 0 {
            return;
        }
        vif.finish_burst();
        app.end.sends_finished(1);
        touch(&mut self.touched, key, vif);
        if vif.bursts.is_empty() {
            self.stop_sending(key);
        }
    }

    /// Nothing more is sent for a VIF until it submits something.
    pub(crate) fn stop_sending(&mut self, key: VifKey) {
        if let Some(vif) = self.vif(key) {
            vif.is_sending = false;
        }
        // It has just had its turn, and is the last: else many who end at once would make it a long one.
        match self.senders.back() {
            Some(last) if *last == key => _ = self.senders.pop_back(),
            _ => self.senders.retain(|other| *other != key),
        }
    }

    /// Counts frames that have left.
    #[inline]
    pub(crate) fn count_sent(&mut self, key: VifKey, frames: u64, bytes: u64) {
        if let Some(vif) = self.vif(key) {
            vif.count_sent(frames, bytes);
        }
    }

    /// Counts a frame that may not leave.
    pub(crate) fn refuse(&mut self, key: VifKey, reason: FrameRefusal) {
        if let Some(vif) = self.vif(key) {
            vif.count_refused(reason);
        }
    }

    /// Hands over what was gathered, and tells apps what has become of what they sent.
    pub(crate) fn end_turn(&mut self, channels: &mut Channels) {
        for index in (0..self.touched.len()).rev() {
            let key = self.touched[index];
            let (Some(vif), Some(app)) = (
                self.vifs.get_mut(key.slot()).and_then(Option::as_mut),
                channels.channel(key.channel()),
            ) else {
                continue;
            };
            vif.gathering.end_turn(app, vif.id);
            if vif.has_report() && !app.may_tell() {
                continue; // next turn
            }
            if let Some(report) = vif.take_report() {
                let Report { bursts, sent, refused: rejected, reason } = report;
                app.tell(Completion::FramesSent { vif: vif.id, bursts, sent, rejected, reason });
            }
            vif.is_touched = false;
            self.touched.swap_remove(index);
        }
        for capture in self.captures.iter_mut().filter(|capture| capture.gathering.has_some()) {
            if let Some(app) = channels.channel(capture.channel) {
                capture.gathering.end_turn(app, capture.id);
            }
        }
    }
}
