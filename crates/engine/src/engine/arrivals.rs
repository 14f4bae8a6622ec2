//! What comes from the wire: its digest, its owner in the switch's table, and then the owner.

use clearway_base::Time;
use clearway_channel::burst::Point;
use clearway_nic::BURST_FRAMES;
use clearway_transport::Arrival;
use clearway_wire::digest::Digest;

use super::{Checks, Core};
use crate::interface::{Datagram, Received, Service};
use crate::switch::{Port, Sighting};

impl Core {
    /// Takes a burst that a queue has received.
    #[inline]
    pub(super) fn handle_burst(&mut self, now: Time, frames: &[&[u8]]) {
        if self.checks == Checks::Off {
            return self.handle_burst_unchecked(now, frames);
        }
        let mut all = core::mem::take(&mut self.digests);
        let digests = &mut all[..frames.len()];
        for (digest, frame) in digests.iter_mut().zip(frames) {
            digest.become_of(frame);
        }
        let mut owners = [None; BURST_FRAMES];
        let owners = &mut owners[..frames.len()];
        self.switch.find(digests, owners);
        if self.switch.has_onlookers() {
            self.handle_watched(now, frames, digests, owners);
        } else {
            self.hand_over_runs(now, frames, owners);
        }
        self.digests = all;
    }

    /// Gives frames to their owners, those that follow each other and have the same one together.
    #[inline]
    fn hand_over_runs(&mut self, now: Time, mut frames: &[&[u8]], mut owners: &[Option<Port>]) {
        while let Some(owner) = owners.first().copied() {
            let count = owners.iter().take_while(|other| **other == owner).count();
            let (run, frames_left) = frames.split_at(count);
            (frames, owners) = (frames_left, &owners[count..]);
            match owner {
                Some(owner) => self.hand_over(now, owner, run),
                None => self.counters.frames_unclaimed += count as u64,
            }
        }
    }

    /// The same where others want to see them, too: each frame is shown before the next is handled.
    #[cold]
    fn handle_watched(
        &mut self,
        now: Time,
        frames: &[&[u8]],
        digests: &[Digest],
        owners: &[Option<Port>],
    ) {
        for ((frame, digest), owner) in frames.iter().zip(digests).zip(owners) {
            self.show_arrival(now, frame, digest, *owner);
            self.switch.copy(&mut self.channels, now, None, frame, digest);
            match owner {
                Some(owner) => self.hand_over(now, *owner, &[frame]),
                None => self.counters.frames_unclaimed += 1,
            }
        }
    }

    #[cold]
    fn handle_burst_unchecked(&mut self, now: Time, frames: &[&[u8]]) {
        match self.switch.first_vif() {
            Some(vif) => self.hand_over(now, Port::Vif(vif), frames),
            None => self.counters.frames_unclaimed += frames.len() as u64,
        }
    }

    /// Shows captures a frame on the wire, and what becomes of it.
    #[cold]
    fn show_arrival(&mut self, now: Time, frame: &[u8], digest: &Digest, owner: Option<Port>) {
        let (is_outgoing, point) = (false, Point::Wire);
        let sighting = Sighting { frame, digest, is_outgoing, point, channel: None, refusal: None };
        self.switch.show(&mut self.channels, now, &sighting);
        self.show_fate(now, frame, digest, owner);
    }

    /// Shows captures whom a frame is given to.
    #[cold]
    pub(super) fn show_fate(
        &mut self,
        now: Time,
        frame: &[u8],
        digest: &Digest,
        owner: Option<Port>,
    ) {
        let channel = match owner {
            Some(Port::Vif(vif)) => Some(vif.channel()),
            Some(Port::Service(Service::Messages)) => self.app_of_messages(frame, digest),
            Some(Port::Service(_)) | None => None,
        };
        let point = if owner.is_some() { Point::Delivered } else { Point::Refused };
        let sighting =
            Sighting { frame, digest, is_outgoing: false, point, channel, refusal: None };
        self.switch.show(&mut self.channels, now, &sighting);
    }

    /// The channel whose connection a packet of messages is of.
    fn app_of_messages(&self, frame: &[u8], digest: &Digest) -> Option<u32> {
        let payload = frame.get(digest.transport_at() + clearway_wire::udp::HEADER_LENGTH..)?;
        self.endpoint.owner_of(payload).map(|owner| owner.channel)
    }

    /// Gives a frame to a service of the host.
    #[inline]
    pub(super) fn handle_frame(&mut self, now: Time, service: Service, frame: &[u8]) {
        match self.interface.handle_frame(now, service, frame) {
            Received::Datagram(datagram) => self.handle_datagram(now, &datagram),
            Received::NetworkError(error) => {
                self.endpoint.handle_network_error(
                    now,
                    error.destination,
                    error.quote,
                    &mut self.channels,
                );
            }
            Received::Consumed | Received::Dropped(_) => {}
        }
    }

    #[inline]
    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) {
        self.channels.destination = Some(datagram.destination.ip());
        let had_replies = self.endpoint.has_replies();
        let flows = self.endpoint.counters().flows_accepted;
        self.endpoint.handle_datagram(
            now,
            datagram.source,
            datagram.destination,
            datagram.payload,
            Arrival::Queue,
            &mut self.channels,
        );
        let is_answered = had_replies || self.endpoint.has_replies();
        if is_answered || flows != self.endpoint.counters().flows_accepted {
            self.paths.remember(&self.interface, datagram);
        }
    }
}
