//! What virtual interfaces send: copied first, then looked at, and then the copy goes where it may
//! go. The app can write its own memory at any time; what was checked is what is sent.

use clearway_base::Time;
use clearway_channel::FrameRefusal;
use clearway_channel::burst::{Point, SentBurst};
use clearway_nic::{Queue, Transmit};
use clearway_wire::digest::Digest;

use super::staging::Staging;
use super::{Checks, Core, Via};
use crate::switch::{CaptureSpec, Destination, Party, Port, Sighting, VifKey, VifRefused, VifSpec};

/// What sending did: for VIFs, and messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sending {
    /// Frames that were taken from apps, or packets that were built.
    pub(super) taken: usize,
    /// Frames that were given to the queue, which is to be flushed.
    pub(super) queued: usize,
}

/// VIFs in whose row a frame waits for room in the queue, after which no other is looked at in a turn.
const STUCK_MAX: usize = 4;

impl Core {
    /// Opens a VIF for an app that is still there.
    pub(super) fn open_vif(
        &mut self,
        now: Time,
        channel: u32,
        vif: u32,
        spec: VifSpec,
    ) -> Result<(), VifRefused> {
        let app = self.channels.peek(channel);
        app.filter(|app| !app.is_condemned).ok_or(VifRefused::NoChannel)?;
        self.switch.open(now, channel, vif, spec);
        Ok(())
    }

    /// Begins a capture for an app.
    pub(super) fn open_capture(
        &mut self,
        channel: u32,
        vif: u32,
        spec: CaptureSpec,
    ) -> Result<(), VifRefused> {
        self.check_capture(&spec)?;
        self.switch.open_capture(channel, vif, spec);
        Ok(())
    }

    /// Takes note of a capture of another engine.
    pub(super) fn note_capture(
        &mut self,
        engine: usize,
        channel: u32,
        vif: u32,
        spec: CaptureSpec,
    ) -> Result<(), VifRefused> {
        self.check_capture(&spec)?;
        self.switch.open_capture_of_sibling(engine, channel, vif, spec);
        Ok(())
    }

    /// A connection that is to be watched has to be there, which the engine of its app knows.
    fn check_capture(&self, spec: &CaptureSpec) -> Result<(), VifRefused> {
        let (Some(app), Some(connection)) = (spec.app, spec.connection) else { return Ok(()) };
        match self.channels.peek(app) {
            Some(app) if app.find(connection).is_none() => {
                Err(VifRefused::NoConnection(connection))
            }
            _ => Ok(()),
        }
    }

    /// Sends what VIFs have submitted, one VIF after the other, about `budget` frames. If the queue is
    /// full, some others may have frames for this host, which need no room in it.
    pub(super) fn send_frames(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        budget: usize,
    ) -> Sending {
        let mut sending = Sending::default();
        let mut stuck = 0;
        while sending.taken < budget && stuck < STUCK_MAX.min(self.switch.sender_count()) {
            let Some(vif) = self.switch.next_sender() else { break };
            let has_room = match self.checks {
                Checks::On => self.send_checked(now, queue, vif, &mut sending),
                Checks::Off => self.send_unchecked(queue, vif, &mut sending),
            };
            stuck += usize::from(!has_room);
        }
        sending
    }

    /// Sends the burst that is a VIF's next, or as much of it as can be staged. False if the queue
    /// is full: what was staged and could not leave is read again then, and looked at again.
    fn send_checked(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        vif: VifKey,
        sending: &mut Sending,
    ) -> bool {
        let mut staging = core::mem::take(&mut self.staging);
        let mut has_room = true;
        if let Some(burst) = self.stage(vif, &mut staging) {
            let taken = self.send_staged(now, queue, vif, &staging, sending);
            has_room = taken == staging.count();
            sending.taken += taken;
            self.switch.go_on(&mut self.channels, vif, staging.left_of(burst, taken));
        } else {
            self.switch.stop_sending(vif);
        }
        self.staging = staging;
        has_room
    }

    /// Takes frames of a burst to private memory, and looks at them there. Returns which burst; `None`
    /// if there is none.
    ///
    /// A malformed burst ends the app's session.
    fn stage(&mut self, vif: VifKey, staging: &mut Staging) -> Option<SentBurst> {
        let burst = self.switch.burst(vif)?;
        let app = self.channels.channel(vif.channel())?;
        if let Err(violation) = staging.copy(&app.end, burst) {
            self.switch.stop_sending(vif);
            self.condemn(vif.channel(), violation);
        }
        Some(burst)
    }

    /// Sends what is staged; how many frames are dealt with, fewer than all if the queue is full.
    fn send_staged(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        vif: VifKey,
        staging: &Staging,
        sending: &mut Sending,
    ) -> usize {
        let clear = self.switch.clear_for_wire(vif, staging.digests());
        let (mut taken, mut clear_frames, mut clear_bytes) = (0, 0, 0);
        for (frame, digest) in staging.frames() {
            let is_clear = clear >> taken & 1 == 1;
            if !is_clear && self.switch.destination(digest) == Destination::Here {
                self.judge(now, vif, frame, digest);
                taken += 1;
                continue;
            }
            let transmit = queue.transmit(&mut |buffer| match buffer.get_mut(..frame.len()) {
                None => self.refuse_too_long(vif),
                Some(buffer) => {
                    let is_for_wire = is_clear || self.judge(now, vif, frame, digest);
                    if is_for_wire {
                        buffer.copy_from_slice(frame);
                    }
                    if is_for_wire { frame.len() } else { 0 }
                }
            });
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
        self.switch.count_sent(vif, clear_frames, clear_bytes);
        taken
    }

    #[cold]
    fn refuse_too_long(&mut self, vif: VifKey) -> usize {
        self.switch.refuse(vif, FrameRefusal::TooLong);
        0
    }

    /// Brings a staged frame of a VIF to its ports on this host, if it may be sent. True if it is for
    /// the NIC, too.
    fn judge(&mut self, now: Time, vif: VifKey, frame: &[u8], digest: &Digest) -> bool {
        if let Err(refusal) = self.switch.check(now, vif, digest) {
            return self.turn_away(now, vif, frame, digest, refusal);
        }
        let is_watched = self.switch.is_watched();
        if is_watched {
            self.show_outgoing(now, frame, digest, Point::Delivered, Some(Party::of_vif(vif)));
        }
        match self.forward(now, Some(vif), frame, digest) {
            Ok(is_for_wire) => {
                if is_watched && is_for_wire {
                    self.show_outgoing(now, frame, digest, Point::Wire, Some(Party::of_vif(vif)));
                }
                self.switch.count_sent(vif, 1, frame.len() as u64);
                is_for_wire
            }
            Err(refusal) => self.turn_away(now, vif, frame, digest, refusal),
        }
    }

    /// Counts a frame that may not leave, and shows it. False: it is not for the NIC.
    #[cold]
    fn turn_away(
        &mut self,
        now: Time,
        vif: VifKey,
        frame: &[u8],
        digest: &Digest,
        refusal: FrameRefusal,
    ) -> bool {
        self.switch.refuse(vif, refusal);
        if self.switch.is_watched() {
            let (is_outgoing, point) = (true, Point::Refused);
            let (party, refusal) = (Some(Party::of_vif(vif)), Some(refusal));
            let is_again = false;
            let sighting = Sighting { frame, digest, is_outgoing, point, party, refusal, is_again };
            self.show(now, &sighting);
        }
        false
    }

    /// Shows captures a frame on its way out: as its app sent it, or on the wire.
    #[cold]
    pub(super) fn show_outgoing(
        &mut self,
        now: Time,
        frame: &[u8],
        digest: &Digest,
        point: Point,
        party: Option<Party>,
    ) {
        let (is_outgoing, refusal) = (true, None);
        let is_again = false;
        let sighting = Sighting { frame, digest, is_outgoing, point, party, refusal, is_again };
        self.show(now, &sighting);
    }

    /// Sends a burst straight from the app's memory. False if the queue is full.
    fn send_unchecked(
        &mut self,
        queue: &mut dyn Queue,
        vif: VifKey,
        sending: &mut Sending,
    ) -> bool {
        let (Some(mut walk), Some(app)) =
            (self.switch.burst(vif), self.channels.channel(vif.channel()))
        else {
            self.switch.stop_sending(vif);
            return true;
        };
        let (mut frames, mut bytes) = (0, 0);
        let has_room = loop {
            let (mut next, mut length) = (walk, 0);
            let transmit = queue.transmit(&mut |buffer| {
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
        self.switch.count_sent(vif, frames as u64, bytes as u64);
        self.switch.go_on(&mut self.channels, vif, walk);
        if has_room && walk.frames_left() > 0 {
            self.switch.stop_sending(vif); // what comes next is malformed
        }
        has_room
    }

    /// Brings a frame that comes from this host to its ports on this host. True if it is for the
    /// NIC, too.
    pub(super) fn forward(
        &mut self,
        now: Time,
        from: Option<VifKey>,
        frame: &[u8],
        digest: &Digest,
    ) -> Result<bool, FrameRefusal> {
        let destination = self.switch.destination(digest);
        if destination == Destination::Wire {
            return Ok(true);
        }
        self.copy(now, from, frame, digest);
        let mut owner = [None];
        self.switch.find(core::slice::from_ref(digest), &mut owner);
        match owner[0] {
            Some(owner) => {
                if self.switch.is_watched() {
                    self.show_fate(now, frame, digest, Some(owner));
                }
                let via = if from.is_some() { Via::Vif } else { Via::Host };
                self.hand_over(now, owner, &[frame], via);
            }
            None if destination == Destination::Here => return Err(FrameRefusal::ToKernel),
            None => {}
        }
        Ok(destination == Destination::Both)
    }

    /// Gives frames to their owner.
    #[inline]
    pub(super) fn hand_over(&mut self, now: Time, owner: Port, frames: &[&[u8]], via: Via) {
        match owner {
            Port::Service(service) => {
                frames.iter().for_each(|frame| self.handle_frame(now, service, frame, via));
            }
            Port::Vif(vif) => self.switch.deliver(&mut self.channels, now, vif, frames),
            // Whoever sent it here thought that it was this engine's: no frame goes round.
            Port::Sibling(_) if via.is_lane() => {
                self.counters.frames_unclaimed += frames.len() as u64;
            }
            Port::Sibling(engine) => {
                let what = via.parcel();
                frames.iter().for_each(|frame| self.lanes.push(engine, what, frame));
            }
        }
    }
}
