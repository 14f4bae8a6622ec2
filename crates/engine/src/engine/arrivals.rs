//! What comes from the wire: its digest, its owner in the switch's table, and then the owner.

use clearway_base::Time;
use clearway_channel::burst::Point;
use clearway_nic::BURST_FRAMES;
use clearway_transport::{Arrival, FlowKey, Owner};
use clearway_wire::digest::Digest;

use super::elsewhere::Way;
use super::{Checks, Core, Via};
use crate::ip::{Datagram, DropReason, NetworkError, NetworkErrorKind};
use crate::lanes::What;
use crate::services::{Received, Service};
use crate::switch::{Party, Port, Sighting, VifKey};

impl Core {
    /// Takes a burst that a queue has received, this engine's or that of another.
    #[inline]
    pub(super) fn handle_burst(&mut self, now: Time, frames: &[&[u8]], via: Via) {
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
        self.fetch_flows(frames, digests, owners);
        if self.switch.has_onlookers() {
            self.handle_watched(now, frames, digests, owners, via);
        } else {
            self.hand_over_runs(now, frames, owners, via);
        }
        self.digests = all;
    }

    /// With many flows, the time that a packet takes is that of fetching its flow's state from memory. A
    /// burst fetches the flows of all its packets at once, before the first is handled.
    #[inline]
    fn fetch_flows(&self, frames: &[&[u8]], digests: &[Digest], owners: &[Option<Port>]) {
        let messages = Some(Port::Service(Service::Messages));
        let all = frames.iter().zip(digests).zip(owners);
        let payloads = all
            .filter(|(_, owner)| **owner == messages)
            .filter_map(|((frame, digest), _)| payload(frame, digest));
        let mut any = false;
        for key in payloads.clone().filter_map(FlowKey::of) {
            any |= self.fetch_flow(key);
        }
        if !any {
            return;
        }
        for owner in payloads.filter_map(|payload| self.endpoint.owner_of(payload)) {
            if let Some(channel) = self.channels.peek(owner.channel)
                && let Some(state) = channel.state(owner.connection)
            {
                clearway_channel::fetch(state);
            }
        }
    }

    /// Has the state of a flow fetched. False if it is at hand anyway.
    #[inline]
    pub(super) fn fetch_flow(&self, key: FlowKey) -> bool {
        let Some(state) = self.endpoint.state(key) else { return false };
        clearway_channel::fetch(state);
        if let Some(path) = self.paths.state(key) {
            clearway_channel::fetch(path);
        }
        true
    }

    /// Gives frames to their owners, those that follow each other and have the same one together.
    #[inline]
    fn hand_over_runs(
        &mut self,
        now: Time,
        mut frames: &[&[u8]],
        mut owners: &[Option<Port>],
        via: Via,
    ) {
        while let Some(owner) = owners.first().copied() {
            let count = owners.iter().take_while(|other| **other == owner).count();
            let (run, frames_left) = frames.split_at(count);
            (frames, owners) = (frames_left, &owners[count..]);
            match owner {
                Some(owner) => self.hand_over(now, owner, run, via),
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
        via: Via,
    ) {
        for ((frame, digest), owner) in frames.iter().zip(digests).zip(owners) {
            if matches!(via, Via::Queue | Via::QueueAndLane) {
                self.show_arrival(now, frame, digest, *owner, via);
            }
            if via == Via::Queue {
                self.copy(now, None, frame, digest);
            }
            self.show_fate(now, frame, digest, *owner);
            match owner {
                Some(owner) => self.hand_over(now, *owner, &[frame], via),
                None => self.counters.frames_unclaimed += 1,
            }
        }
    }

    /// Takes copies of frames that have gone to others. What concerns a service of the host that hears
    /// groups is learnt from, too.
    pub(super) fn handle_copies(&mut self, now: Time, frames: &[&[u8]]) {
        for frame in frames {
            let digest = Digest::of(frame);
            self.copy(now, None, frame, &digest);
            let mut owner = [None];
            self.switch.find(core::slice::from_ref(&digest), &mut owner);
            if let Some(Port::Service(service @ (Service::Arp | Service::Icmp))) = owner[0]
                && let Ok(received) =
                    self.interface.overhear(|interface| service.take(now, interface, frame))
            {
                self.handle_received(now, received, frame, Via::Lane);
            }
        }
    }

    #[cold]
    fn handle_burst_unchecked(&mut self, now: Time, frames: &[&[u8]]) {
        match self.switch.first_vif() {
            Some(vif) => self.hand_over(now, Port::Vif(vif), frames, Via::Queue),
            None => self.counters.frames_unclaimed += frames.len() as u64,
        }
    }

    /// Gives copies to VIFs that want them, here and at other engines, but not to the sender.
    #[cold]
    pub(super) fn copy(&mut self, now: Time, from: Option<VifKey>, frame: &[u8], digest: &Digest) {
        let siblings = self.switch.copy(&mut self.channels, now, from, frame, digest);
        self.lanes.push_to(siblings, What::Copy, frame);
    }

    /// Shows captures a frame on the wire. Where it comes in, only the engine whose it is can say whom it
    /// concerns: captures of an app see it there.
    #[cold]
    fn show_arrival(
        &mut self,
        now: Time,
        frame: &[u8],
        digest: &Digest,
        owner: Option<Port>,
        via: Via,
    ) {
        let party = self.party_of(frame, digest, owner);
        let (is_outgoing, point, refusal) = (false, Point::Wire, None);
        let is_again = via.is_lane();
        let sighting = Sighting { frame, digest, is_outgoing, point, party, refusal, is_again };
        self.show(now, &sighting);
    }

    /// Shows captures what passes.
    #[cold]
    pub(super) fn show(&mut self, now: Time, sighting: &Sighting<'_>) {
        self.switch.show(&mut self.channels, &mut self.lanes, now, sighting);
    }

    /// Shows captures whom a frame is given to, unless another engine gives it, which then shows it.
    #[cold]
    pub(super) fn show_fate(
        &mut self,
        now: Time,
        frame: &[u8],
        digest: &Digest,
        owner: Option<Port>,
    ) {
        if matches!(owner, Some(Port::Sibling(_))) || self.is_elsewhere(frame, digest, owner) {
            return;
        }
        let party = self.party_of(frame, digest, owner);
        let point = if owner.is_some() { Point::Delivered } else { Point::Refused };
        let (is_outgoing, refusal, is_again) = (false, None, false);
        let sighting = Sighting { frame, digest, is_outgoing, point, party, refusal, is_again };
        self.show(now, &sighting);
    }

    /// True for messages of a flow of another engine.
    fn is_elsewhere(&self, frame: &[u8], digest: &Digest, port: Option<Port>) -> bool {
        port == Some(Port::Service(Service::Messages))
            && payload(frame, digest)
                .is_some_and(|payload| self.engine_elsewhere(payload).is_some())
    }

    /// Whom a frame concerns that comes to `port`, as far as this engine knows.
    fn party_of(&self, frame: &[u8], digest: &Digest, port: Option<Port>) -> Option<Party> {
        match port? {
            Port::Vif(vif) => Some(Party::of_vif(vif)),
            Port::Service(Service::Messages) => {
                let owner = self.endpoint.owner_of(payload(frame, digest)?)?;
                Some(self.party_of_owner(owner))
            }
            Port::Service(_) | Port::Sibling(_) => None,
        }
    }

    /// The app of a connection of messages.
    pub(super) fn party_of_owner(&self, owner: Owner) -> Party {
        let Owner { channel, connection } = owner;
        let connection = self.channels.peek(channel).map(|app| app.id(connection));
        Party { channel, connection }
    }

    /// Gives a frame to a service of the host.
    #[inline]
    pub(super) fn handle_frame(&mut self, now: Time, service: Service, frame: &[u8], via: Via) {
        match service.take(now, &mut self.interface, frame) {
            Ok(received) => self.handle_received(now, received, frame, via),
            Err(reason) => self.interface.count_drop(reason),
        }
        self.share(service, frame, via);
    }

    #[inline]
    pub(super) fn handle_received(
        &mut self,
        now: Time,
        received: Received<'_>,
        frame: &[u8],
        via: Via,
    ) {
        match received {
            Received::Datagram(datagram) => match self.engine_elsewhere(datagram.payload) {
                Some(engine) if !via.is_lane() => self.hand_messages(engine, frame, via),
                Some(_) => self.counters.frames_unclaimed += 1,
                None => {
                    let arrival = if via.is_lane() { Arrival::Lane } else { Arrival::Queue };
                    self.handle_datagram(now, &datagram, arrival, Way::Own);
                    self.share_reset(datagram.payload, frame, via);
                }
            },
            Received::NetworkError(error) => {
                let is_ours = self.handle_network_error(now, &error);
                if !is_ours && matches!(via, Via::Queue | Via::QueueAndLane | Via::Vif) {
                    self.interface.count_drop(DropReason::Unsolicited);
                }
            }
            Received::Nothing => {}
        }
    }

    /// False if the error is about a packet that is none of messages.
    #[cold]
    pub(super) fn handle_network_error(&mut self, now: Time, error: &NetworkError<'_>) -> bool {
        let Some(quoted) = error.datagram() else { return false };
        let (peer, quote) = (quoted.destination, quoted.payload);
        if let NetworkErrorKind::TooLarge { mtu } = error.kind {
            self.endpoint.handle_packet_too_big(now, peer, quote, mtu);
        } else {
            self.endpoint.handle_network_error(now, peer, quote, &mut self.channels);
        }
        true
    }

    #[inline]
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        arrival: Arrival,
        way: Way,
    ) {
        self.channels.destination = Some(datagram.destination.ip());
        let had_replies = self.endpoint.has_replies();
        let flows = self.endpoint.counters().flows_accepted;
        self.endpoint.handle_datagram(
            now,
            datagram.source,
            datagram.destination,
            datagram.payload,
            arrival,
            datagram.ecn,
            &mut self.channels,
        );
        let is_answered = had_replies || self.endpoint.has_replies();
        if is_answered || flows != self.endpoint.counters().flows_accepted {
            let path = self.interface_of(way).udp_path_back(datagram);
            self.paths_of(way).prepare(path);
        }
    }
}

/// What is in a UDP datagram.
fn payload<'a>(frame: &'a [u8], digest: &Digest) -> Option<&'a [u8]> {
    frame.get(digest.transport_at() + clearway_wire::udp::HEADER_LENGTH..)
}
