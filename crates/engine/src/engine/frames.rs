//! What virtual interfaces send: copied first, then looked at, and then the copy goes where it may
//! go. The app can write its own memory at any time; what was checked is what is sent.

use clearway_base::Time;
use clearway_channel::burst::{Point, SentFrame};
use clearway_nic::{Queue, Transmit};
use clearway_wire::digest::Digest;

use super::{Checks, Core};
use crate::switch::{Destination, Port, Refusal, Sighting, VifKey, VifRefused, VifSpec};

/// Frames that one VIF sends before it is the next one's turn.
const FRAMES_PER_VISIT: usize = 32;

/// What sending on behalf of VIFs did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sending {
    /// Frames that were taken from apps.
    pub(super) taken: usize,
    /// Frames that were given to the queue, which is to be flushed.
    pub(super) queued: usize,
}

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
        let channels = &self.channels;
        self.switch.open(now, channel, vif, spec, |owner| {
            let app = channels.peek(owner).map_or("?", |app| app.app.as_str());
            format!("app {app} (channel {owner})")
        })
    }

    /// Sends what VIFs have submitted, one VIF after the other, about `budget` frames.
    pub(super) fn send_frames(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        budget: usize,
    ) -> Sending {
        let mut sending = Sending::default();
        while sending.taken < budget {
            let Some(vif) = self.switch.next_sender() else { break };
            let has_room = match self.checks {
                Checks::On => self.send_frames_of(queue, vif, &mut sending, |core, frame, to| {
                    core.send_frame(now, vif, frame, to)
                }),
                Checks::Off => self.send_frames_of(queue, vif, &mut sending, |core, frame, to| {
                    core.send_unchecked(vif, frame, to)
                }),
            };
            if !has_room {
                break;
            }
        }
        sending
    }

    /// False if the queue is full.
    #[inline]
    fn send_frames_of(
        &mut self,
        queue: &mut dyn Queue,
        vif: VifKey,
        sending: &mut Sending,
        send: impl Fn(&mut Self, SentFrame, &mut [u8]) -> usize,
    ) -> bool {
        for _ in 0..FRAMES_PER_VISIT {
            let mut was_there = false;
            let transmit = queue.transmit(&mut |buffer| {
                let Some(frame) = self.next_frame(vif) else { return 0 };
                was_there = true;
                send(self, frame, buffer)
            });
            match transmit {
                Transmit::Full => return false,
                Transmit::Queued => sending.queued += 1,
                Transmit::Nothing if !was_there => return true,
                Transmit::Nothing => {}
            }
            sending.taken += 1;
        }
        true
    }

    /// The next frame that the app has submitted. A malformed burst ends the app's session.
    fn next_frame(&mut self, vif: VifKey) -> Option<SentFrame> {
        match self.switch.next_frame(&mut self.channels, vif) {
            Ok(frame) => frame,
            Err(violation) => {
                self.condemn(vif.channel(), violation);
                None
            }
        }
    }

    /// Sends a frame of a VIF; the bytes of `buffer` that are to go over the NIC, 0 if none.
    ///
    /// It is looked at in private memory, and copied to the NIC's when it may leave. What is written to a
    /// memif is in the other core's cache; reading it back at once would wait for that.
    fn send_frame(&mut self, now: Time, vif: VifKey, frame: SentFrame, buffer: &mut [u8]) -> usize {
        let Some(buffer) = buffer.get_mut(..frame.length as usize) else {
            self.switch.refuse(vif, Refusal::TooLong);
            return 0;
        };
        let mut staging = core::mem::take(&mut self.staging);
        let private = &mut staging[..buffer.len()];
        let is_for_wire = self.judge(now, vif, frame, private);
        if is_for_wire {
            buffer.copy_from_slice(private);
        }
        self.staging = staging;
        if is_for_wire { buffer.len() } else { 0 }
    }

    /// Takes a frame of a VIF to `private` memory and brings it to its ports on this host. True if it
    /// is for the NIC, too.
    #[inline]
    fn judge(&mut self, now: Time, vif: VifKey, frame: SentFrame, private: &mut [u8]) -> bool {
        let channel = vif.channel();
        let Some(app) = self.channels.channel(channel) else { return false };
        app.end.read(frame.offset, private);
        let digest = Digest::of(private);
        if let Err(refusal) = self.switch.check(now, vif, &digest) {
            return self.turn_away(now, vif, private, &digest, refusal);
        }
        let is_watched = self.switch.is_watched();
        if is_watched {
            self.show_outgoing(now, private, &digest, Point::Delivered, Some(channel));
        }
        match self.forward(now, Some(vif), private, &digest) {
            Ok(is_for_wire) => {
                if is_watched && is_for_wire {
                    self.show_outgoing(now, private, &digest, Point::Wire, None);
                }
                self.switch.count_sent(vif, private.len());
                is_for_wire
            }
            Err(refusal) => self.turn_away(now, vif, private, &digest, refusal),
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
        refusal: Refusal,
    ) -> bool {
        self.switch.refuse(vif, refusal);
        if self.switch.is_watched() {
            let (is_outgoing, point) = (true, Point::Refused);
            let (channel, refusal) = (Some(vif.channel()), Some(refusal));
            let sighting = Sighting { frame, digest, is_outgoing, point, channel, refusal };
            self.switch.show(&mut self.channels, now, &sighting);
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
        channel: Option<u32>,
    ) {
        let (is_outgoing, refusal) = (true, None);
        let sighting = Sighting { frame, digest, is_outgoing, point, channel, refusal };
        self.switch.show(&mut self.channels, now, &sighting);
    }

    fn send_unchecked(&mut self, vif: VifKey, frame: SentFrame, buffer: &mut [u8]) -> usize {
        let buffer = buffer.get_mut(..frame.length as usize);
        let (Some(buffer), Some(app)) = (buffer, self.channels.channel(vif.channel())) else {
            return 0;
        };
        app.end.read(frame.offset, buffer);
        self.switch.count_sent(vif, buffer.len());
        buffer.len()
    }

    /// Brings a frame that comes from this host to its ports on this host. True if it is for the
    /// NIC, too.
    pub(super) fn forward(
        &mut self,
        now: Time,
        from: Option<VifKey>,
        frame: &[u8],
        digest: &Digest,
    ) -> Result<bool, Refusal> {
        let destination = self.switch.destination(digest);
        if destination == Destination::Wire {
            return Ok(true);
        }
        self.switch.copy(&mut self.channels, now, from, frame, digest);
        let mut owner = [None];
        self.switch.find(core::slice::from_ref(digest), &mut owner);
        match owner[0] {
            Some(owner) => {
                if self.switch.is_watched() {
                    self.show_fate(now, frame, digest, Some(owner));
                }
                self.hand_over(now, owner, &[frame]);
            }
            None if destination == Destination::Here => return Err(Refusal::ToKernel),
            None => {}
        }
        Ok(destination == Destination::Both)
    }

    /// Gives frames to their owner.
    #[inline]
    pub(super) fn hand_over(&mut self, now: Time, owner: Port, frames: &[&[u8]]) {
        match owner {
            Port::Service(service) => {
                frames.iter().for_each(|frame| self.handle_frame(now, service, frame));
            }
            Port::Vif(vif) => self.switch.deliver(&mut self.channels, now, vif, frames),
        }
    }
}
