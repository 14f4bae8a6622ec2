//! What virtual interfaces send: copied first, then looked at, and then the copy goes where it may
//! go. The app can write its own memory at any time; what was checked is what is sent.

use clearway_base::Time;
use clearway_channel::FrameRefusal;
use clearway_channel::burst::SentBurst;
use clearway_nic::{Queue, Transmit};
use clearway_wire::digest::Digest;

#[cfg(feature = "unchecked")]
use super::Checks;
use super::staging::Staging;
use super::{Frames, touch};
use crate::captures::{Party, Sighting};
use crate::channels::Channels;
use crate::common::{Common, Leaving, VifSender};
use crate::component::Sending;
use crate::switch::{Reach, Switch, VifKey};

/// VIFs in whose row a frame waits for room in the queue, after which no other is looked at in a
/// turn.
const STUCK_MAX: usize = 4;

impl Frames {
    /// Sends what VIFs have submitted, one VIF after the other, about `budget` frames. If the queue
    /// is full, some others may have frames for this host, which need no room in it.
    pub(super) fn send(
        &mut self,
        common: &mut Common,
        now: Time,
        queue: &mut dyn Queue,
        budget: usize,
    ) -> Sending {
        let mut sending = Sending::default();
        let mut stuck = 0;
        while sending.taken < budget && stuck < STUCK_MAX.min(self.senders.len()) {
            let Some(vif) = self.next_sender() else { break };
            #[cfg(feature = "unchecked")]
            if self.checks == Checks::Off {
                let channels = &mut common.channels;
                stuck += usize::from(!self.send_unchecked(channels, queue, vif, &mut sending));
                continue;
            }
            stuck += usize::from(!self.send_checked(common, now, queue, vif, &mut sending));
        }
        sending
    }

    /// The VIF whose turn it is to send; it is then the last in the row.
    pub(super) fn next_sender(&mut self) -> Option<VifKey> {
        let key = self.senders.pop_front()?;
        self.senders.push_back(key);
        Some(key)
    }

    /// Sends the burst that is a VIF's next, or as much of it as can be staged. False if the queue
    /// is full: what was staged and could not leave is read again then, and looked at again.
    fn send_checked(
        &mut self,
        common: &mut Common,
        now: Time,
        queue: &mut dyn Queue,
        vif: VifKey,
        sending: &mut Sending,
    ) -> bool {
        let mut staging = core::mem::take(&mut self.staging);
        let mut has_room = true;
        if let Some(burst) = self.stage(&mut common.channels, vif, &mut staging) {
            let taken = self.send_staged(common, now, queue, vif, &staging, sending);
            has_room = taken == staging.count();
            sending.taken += taken;
            self.go_on(&mut common.channels, vif, staging.left_of(burst, taken));
        } else {
            self.stop_sending(vif);
        }
        self.staging = staging;
        has_room
    }

    /// Takes frames of a burst to private memory, and looks at them there. Returns which burst;
    /// `None` if there is none.
    ///
    /// A malformed burst ends the app's session.
    fn stage(
        &mut self,
        channels: &mut Channels,
        vif: VifKey,
        staging: &mut Staging,
    ) -> Option<SentBurst> {
        let burst = self.burst(vif)?;
        let app = channels.channel(vif.channel())?;
        if let Err(violation) = staging.copy(&app.end, burst) {
            self.stop_sending(vif);
            channels.condemn(vif.channel(), violation);
        }
        Some(burst)
    }

    /// Sends what is staged; how many frames are dealt with, fewer than all if the queue is full.
    fn send_staged(
        &mut self,
        common: &mut Common,
        now: Time,
        queue: &mut dyn Queue,
        vif: VifKey,
        staging: &Staging,
        sending: &mut Sending,
    ) -> usize {
        let clear = if common.captures.any() {
            0
        } else {
            self.clear_for_wire(&common.switch, vif, staging.digests())
        };
        // What the link carries now may be less than the queue's buffers take.
        let frame_bytes_max = common.host.frame_bytes_max();
        let (mut taken, mut clear_frames, mut clear_bytes) = (0, 0, 0);
        for (frame, digest) in staging.frames() {
            let is_clear = clear >> taken & 1 == 1;
            let transmit = if frame.len() > frame_bytes_max {
                self.refuse(vif, FrameRefusal::TooLong);
                Transmit::Nothing
            } else if is_clear {
                queue.transmit_as_is(&mut |buffer| match buffer.get_mut(..frame.len()) {
                    None => self.refuse_too_long(vif),
                    Some(buffer) => {
                        buffer.copy_from_slice(frame);
                        frame.len()
                    }
                })
            } else {
                self.send_judged(common, now, queue, vif, frame, digest)
            };
            match transmit {
                Transmit::Full => break,
                Transmit::Queued => {
                    sending.queued += 1;
                    clear_frames += u64::from(is_clear);
                    clear_bytes += if is_clear { frame.len() as u64 } else { 0 };
                }
                Transmit::Nothing => {}
            }
            taken += 1;
        }
        self.count_sent(vif, clear_frames, clear_bytes);
        taken
    }

    /// Sends a staged frame of which there is something to say: it goes wherever it is for.
    #[inline(never)]
    fn send_judged(
        &mut self,
        common: &mut Common,
        now: Time,
        queue: &mut dyn Queue,
        vif: VifKey,
        frame: &[u8],
        digest: &Digest,
    ) -> Transmit {
        let from = VifSender { key: vif, reaches_kernel: queue.capabilities().reaches_kernel };
        let mut leaving = Leaving::default();
        let transmit = if common.switch.reach(digest) == Reach::Here {
            leaving = self.judge(common, now, from, frame, digest);
            Transmit::Nothing
        } else {
            queue.transmit_as_is(&mut |buffer| match buffer.get_mut(..frame.len()) {
                None => self.refuse_too_long(vif),
                Some(buffer) => {
                    leaving = self.judge(common, now, from, frame, digest);
                    if !leaving.by_wire {
                        return 0;
                    }
                    buffer.copy_from_slice(frame);
                    frame.len()
                }
            })
        };
        if leaving.to_kernel {
            queue.send_to_kernel(frame);
        }
        transmit
    }

    /// Which frames of a VIF may be sent and can only be for the NIC, one bit each from the lowest:
    /// all that there is to say about them while nobody watches and no rate is to be kept.
    #[inline]
    pub(super) fn clear_for_wire(&self, switch: &Switch, key: VifKey, digests: &[Digest]) -> u32 {
        let vif = self.vifs.get(key.slot()).and_then(Option::as_ref);
        vif.filter(|vif| !vif.has_rate()).map_or(0, |vif| switch.clear_for_wire(vif.entry, digests))
    }

    #[cold]
    fn refuse_too_long(&mut self, vif: VifKey) -> usize {
        self.refuse(vif, FrameRefusal::TooLong);
        0
    }

    /// Brings a staged frame of a VIF to its ports on this host, if it may be sent. Returns where
    /// else it goes.
    fn judge(
        &mut self,
        common: &mut Common,
        now: Time,
        from: VifSender,
        frame: &[u8],
        digest: &Digest,
    ) -> Leaving {
        let vif = from.key;
        let party = Some(Party::of_vif(vif));
        let left = match self.check(&common.switch, now, vif, digest) {
            Ok(()) => common.leave(now, Some(from), party, frame, digest),
            Err(refusal) => Err(refusal),
        };
        match left {
            Ok(leaving) => {
                self.count_sent(vif, 1, frame.len() as u64);
                leaving
            }
            Err(refusal) => {
                self.refuse(vif, refusal);
                common.show(now, &Sighting::turned_away(frame, digest, party, refusal));
                Leaving::default()
            }
        }
    }

    /// Whether a VIF may send a frame with this digest.
    #[inline]
    pub(super) fn check(
        &mut self,
        switch: &Switch,
        now: Time,
        key: VifKey,
        digest: &Digest,
    ) -> Result<(), FrameRefusal> {
        let vif = self.vif(key).ok_or(FrameRefusal::Nothing)?;
        switch.check(vif.entry, digest)?;
        vif.take_rate(now)
    }

    /// Sends a burst straight from the app's memory. False if the queue is full.
    #[cfg(feature = "unchecked")]
    fn send_unchecked(
        &mut self,
        channels: &mut Channels,
        queue: &mut dyn Queue,
        vif: VifKey,
        sending: &mut Sending,
    ) -> bool {
        let (Some(mut walk), Some(app)) = (self.burst(vif), channels.channel(vif.channel())) else {
            self.stop_sending(vif);
            return true;
        };
        let (mut frames, mut bytes) = (0, 0);
        let has_room = loop {
            let (mut next, mut length) = (walk, 0);
            let transmit = queue.transmit_as_is(&mut |buffer| {
                let Ok(Some(frame)) = app.end.next_frame(&mut next) else { return 0 };
                let Some(buffer) = buffer.get_mut(..frame.length as usize) else { return 0 };
                app.end.read(frame.offset, buffer);
                length = buffer.len();
                length
            });
            match transmit {
                Transmit::Full => break false,
                Transmit::Nothing => break true,
                Transmit::Queued => (walk, frames, bytes) = (next, frames + 1, bytes + length),
            }
        };
        sending.taken += frames;
        sending.queued += frames;
        self.count_sent(vif, frames as u64, bytes as u64);
        self.go_on(channels, vif, walk);
        if has_room && walk.frames_left() > 0 {
            self.stop_sending(vif); // what comes next is malformed
        }
        has_room
    }

    /// What is left of the burst that a VIF is sending.
    fn burst(&mut self, key: VifKey) -> Option<SentBurst> {
        self.vif(key)?.bursts.front().copied()
    }

    /// The burst that a VIF is sending is walked so far; it may be over.
    pub(super) fn go_on(&mut self, channels: &mut Channels, key: VifKey, walked: SentBurst) {
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
    fn stop_sending(&mut self, key: VifKey) {
        if let Some(vif) = self.vif(key) {
            vif.is_sending = false;
        }
        // It has just had its turn, and is the last: else many who end at once would make it a long
        // one.
        match self.senders.back() {
            Some(last) if *last == key => _ = self.senders.pop_back(),
            _ => self.senders.retain(|other| *other != key),
        }
    }

    /// Counts frames that have left.
    #[inline]
    pub(super) fn count_sent(&mut self, key: VifKey, frames: u64, bytes: u64) {
        if let Some(vif) = self.vif(key) {
            vif.count_sent(frames, bytes);
        }
    }

    /// Counts a frame that may not leave.
    pub(super) fn refuse(&mut self, key: VifKey, reason: FrameRefusal) {
        if let Some(vif) = self.vif(key) {
            vif.count_refused(reason);
        }
    }
}
