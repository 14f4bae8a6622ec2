//! Whose a frame is, wherever it comes from: its digest, its owner in the switch's table, and then
//! the component that owns it. Copies for those who watch are made here and nowhere else.

use clearway_base::Time;
use clearway_channel::burst::Point;
use clearway_nic::{BURST_FRAMES, Checksums, Together};
use clearway_wire::digest::Digest;

use super::Core;
use crate::captures::{Party, Sighting};
use crate::common::Via;
use crate::component::Component;
#[cfg(feature = "unchecked")]
use crate::frames::Checks;
use crate::host::Nic;
use crate::ip::NetworkError;
use crate::lanes::What;
use crate::messages::payload;
use crate::services::Service;
use crate::switch::{FrameOwner, VifKey};

impl<X: Component<Owner = ()>> Core<X> {
    /// Takes a burst that a queue has received, this engine's or that of another, or that comes
    /// from this host.
    #[inline]
    pub(super) fn receive(&mut self, now: Time, frames: &[&[u8]], via: Via) {
        #[cfg(feature = "unchecked")]
        if self.frames.checks == Checks::Off {
            return self.receive_unchecked(now, frames);
        }
        let known = self.receive_known(now, frames, via);
        let frames = &frames[known..];
        match *frames {
            [] => return,
            [frame] => return self.receive_one(now, frame, via),
            _ => {}
        }
        let mut all = core::mem::take(&mut self.digests);
        let digests = &mut all[..frames.len()];
        for (digest, frame) in digests.iter_mut().zip(frames) {
            digest.become_of(frame);
        }
        let mut owners = [None; BURST_FRAMES];
        let owners = &mut owners[..frames.len()];
        self.common.switch.find(digests, owners);
        if self.messages.fetches() {
            self.fetch(frames, digests, owners);
        }
        if self.common.has_onlookers() {
            self.receive_watched(now, frames, digests, owners, via);
        } else {
            self.hand_over_runs(now, frames, owners, via);
        }
        self.digests = all;
    }

    /// Takes segments of TCP that came as one super-frame. False if they have to come as frames,
    /// for those who watch, or for another owner.
    pub(super) fn receive_together(&mut self, now: Time, segments: Together<'_>) -> bool {
        #[cfg(feature = "unchecked")]
        if self.frames.checks == Checks::Off {
            return false;
        }
        if self.common.has_onlookers() {
            return false;
        }
        let owner = self.common.switch.owner(&Digest::of(segments.first));
        if owner != Some(FrameOwner::Service(Service::Tcp)) {
            return false;
        }
        let via = Via::Queue(Checksums::Right);
        self.tcp.receive_together(&mut self.common, now, segments, via)
    }

    /// Takes the first frames of a burst, as long as their flows know them by their headers and
    /// nobody watches. Returns how many.
    #[inline]
    fn receive_known(&mut self, now: Time, frames: &[&[u8]], via: Via) -> usize {
        if !matches!(via, Via::Queue(_)) || self.common.has_onlookers() {
            return 0;
        }
        self.messages.receive_known(&mut self.common, now, frames, via)
    }

    /// The same for a frame that has come alone: without the books of a burst.
    #[inline]
    fn receive_one(&mut self, now: Time, frame: &[u8], via: Via) {
        if matches!(via, Via::Queue(_))
            && !self.common.has_onlookers()
            && self.tcp.receive_known(&mut self.common, now, frame, via)
        {
            return;
        }
        let mut digest = Digest::default();
        digest.become_of(frame);
        let owner = self.common.switch.owner(&digest);
        if self.messages.fetches() {
            self.fetch(&[frame], &[digest], &[owner]);
        }
        if self.common.has_onlookers() {
            self.receive_watched(now, &[frame], &[digest], &[owner], via);
        } else {
            self.hand_over(now, owner, &[frame], via);
        }
    }

    /// Has what the burst's packets of messages need fetched from memory.
    #[inline(never)]
    fn fetch(&self, frames: &[&[u8]], digests: &[Digest], owners: &[Option<FrameOwner>]) {
        let messages = Some(FrameOwner::Service(Service::Messages));
        let all = frames.iter().zip(digests).zip(owners);
        let payloads = all
            .filter(|(_, owner)| **owner == messages)
            .filter_map(|((frame, digest), _)| payload(frame, digest));
        self.messages.fetch(&self.common.channels, payloads);
    }

    /// Gives frames to their owners, those that follow each other and have the same one together.
    #[inline]
    fn hand_over_runs(
        &mut self,
        now: Time,
        mut frames: &[&[u8]],
        mut owners: &[Option<FrameOwner>],
        via: Via,
    ) {
        while let Some(owner) = owners.first().copied() {
            let count = owners.iter().take_while(|other| **other == owner).count();
            let (run, frames_left) = frames.split_at(count);
            (frames, owners) = (frames_left, &owners[count..]);
            self.hand_over(now, owner, run, via);
        }
    }

    /// Gives frames to their owner.
    #[inline]
    pub(super) fn hand_over(
        &mut self,
        now: Time,
        owner: Option<FrameOwner>,
        frames: &[&[u8]],
        via: Via,
    ) {
        let common = &mut self.common;
        match owner {
            Some(FrameOwner::Service(Service::Messages)) => {
                self.messages.receive(common, now, (), frames, via);
            }
            Some(FrameOwner::Vif(vif)) => self.frames.receive(common, now, vif, frames, via),
            Some(FrameOwner::Sibling(engine)) => common.hand_frames(engine, frames, via),
            Some(FrameOwner::Service(Service::Tcp | Service::Segments)) => {
                self.tcp.receive(common, now, (), frames, via)
            }
            Some(FrameOwner::Service(Service::Extra)) => {
                self.extra.receive(common, now, (), frames, via)
            }
            Some(FrameOwner::Service(Service::Undelivered)) => {
                frames.iter().for_each(|frame| self.receive_undelivered(now, frame, via));
            }
            Some(FrameOwner::Service(service)) => {
                frames.iter().for_each(|frame| self.receive_own(now, service, frame, via));
            }
            None if via.is_here() => {} // it came for the sake of copies
            None => common.counters.frames_unclaimed += frames.len() as u64,
        }
    }

    /// Takes a frame for one of the host's own protocols.
    fn receive_own(&mut self, now: Time, service: Service, frame: &[u8], via: Via) {
        match self.common.host.receive(now, service, frame) {
            Ok(Some(error)) if !self.hear(now, &error) => self.common.host.count_unsolicited(),
            Ok(_) => {}
            Err(reason) => self.common.refuse(now, frame, reason),
        }
        self.common.share(service, frame, via);
    }

    /// Takes an ICMP error that the kernel has as well: who has sent what it is about may be one of
    /// its programs. The other engines are not troubled with one that is refused.
    #[cold]
    fn receive_undelivered(&mut self, now: Time, frame: &[u8], via: Via) {
        match self.common.host.receive(now, Service::Undelivered, frame) {
            Ok(error) => {
                if let Some(error) = error {
                    self.hear(now, &error);
                }
                self.common.share(Service::Undelivered, frame, via);
            }
            Err(reason) => self.common.refuse(now, frame, reason),
        }
    }

    /// Tells the component that has sent it of bad news about a packet. False if none has.
    #[cold]
    fn hear(&mut self, now: Time, error: &NetworkError<'_>) -> bool {
        self.messages.handle_network_error(&mut self.common, now, error)
            || self.tcp.handle_network_error(&mut self.common, now, error)
    }

    /// Takes a frame for a service of the host that another engine was given, over this NIC or
    /// another.
    pub(super) fn overhear(&mut self, now: Time, nic: Nic, service: Service, frame: &[u8]) {
        if service == Service::Messages {
            self.messages.overhear(&mut self.common, now, nic, frame);
        } else if let Some(error) = self.common.host.overhear(now, nic, service, frame) {
            self.hear(now, &error);
        }
    }

    // ---- while somebody watches ----

    /// The same as `hand_over_runs` where others want to see frames, too: each is shown before the
    /// next is handled.
    #[cold]
    fn receive_watched(
        &mut self,
        now: Time,
        frames: &[&[u8]],
        digests: &[Digest],
        owners: &[Option<FrameOwner>],
        via: Via,
    ) {
        for ((frame, digest), owner) in frames.iter().zip(digests).zip(owners) {
            self.show(now, frame, digest, *owner, via);
            match via {
                Via::Queue(_) | Via::Host => self.copy(now, None, frame, digest),
                Via::Vif(sender) => self.copy(now, Some(sender), frame, digest),
                Via::Lane | Via::QueueAndLane | Via::Assembled => {} // was done where they came
            }
            self.hand_over(now, *owner, &[frame], via);
        }
    }

    /// Shows captures a frame that comes, where it is known whose it is: each once. What this host
    /// has sent was shown when it left, and is seen here by captures of the app that receives it.
    fn show(
        &mut self,
        now: Time,
        frame: &[u8],
        digest: &Digest,
        owner: Option<FrameOwner>,
        via: Via,
    ) {
        if !self.common.captures.any() || self.is_elsewhere(frame, digest, owner) {
            return;
        }
        let point = match owner {
            Some(_) => Point::Delivered,
            None if via.is_here() => return, // came in for copies only
            None => Point::Refused,
        };
        let party = self.party_of(frame, digest, owner);
        let sighting = Sighting::received(frame, digest, point, party);
        self.common.show(now, &Sighting { is_again: !via.is_from_queue(), ..sighting });
    }

    /// True for what another engine gives to its owner, which then shows it.
    fn is_elsewhere(&self, frame: &[u8], digest: &Digest, owner: Option<FrameOwner>) -> bool {
        match owner {
            Some(FrameOwner::Sibling(_)) => true,
            Some(FrameOwner::Service(Service::Messages)) => {
                payload(frame, digest).is_some_and(|payload| {
                    self.messages.engine_elsewhere(&self.common, payload).is_some()
                })
            }
            _ => false,
        }
    }

    /// Whom a frame concerns that is `owner`'s, as far as this engine knows.
    fn party_of(&self, frame: &[u8], digest: &Digest, owner: Option<FrameOwner>) -> Option<Party> {
        match owner? {
            FrameOwner::Vif(vif) => Some(Party::of_vif(vif)),
            FrameOwner::Service(Service::Messages) => {
                self.messages.party_of(&self.common.channels, payload(frame, digest)?)
            }
            FrameOwner::Service(_) | FrameOwner::Sibling(_) => None,
        }
    }

    /// Gives copies to VIFs that want them, here and at other engines, but not to the sender.
    #[cold]
    fn copy(&mut self, now: Time, from: Option<VifKey>, frame: &[u8], digest: &Digest) {
        let siblings = self.copy_here(now, from, frame, digest);
        self.common.lanes.push_to(siblings, What::Copy, frame);
    }

    /// Gives copies to VIFs of this engine. Returns the other engines that have some which want
    /// one, a bit for each.
    pub(super) fn copy_here(
        &mut self,
        now: Time,
        from: Option<VifKey>,
        frame: &[u8],
        digest: &Digest,
    ) -> u64 {
        let mut siblings = 0;
        for port in self.common.switch.copies(from, digest) {
            match port {
                FrameOwner::Vif(key) => {
                    self.frames.copy(&mut self.common.channels, now, key, frame)
                }
                FrameOwner::Sibling(engine) => siblings |= 1 << engine,
                FrameOwner::Service(_) => {}
            }
        }
        siblings
    }

    /// Takes copies of frames that have gone to others. What concerns a service of the host that
    /// hears groups is learnt from, too; what is the kernel's and the host's comes by no other way.
    pub(super) fn receive_copies(&mut self, now: Time, frames: &[&[u8]]) {
        for frame in frames {
            let digest = Digest::of(frame);
            let owner = self.common.switch.owner(&digest);
            if owner == Some(FrameOwner::Service(Service::Undelivered)) {
                self.receive_one(now, frame, Via::Queue(Checksums::Unknown));
                continue;
            }
            self.copy(now, None, frame, &digest);
            if let Some(FrameOwner::Service(service @ (Service::Arp | Service::Icmp))) = owner {
                self.overhear(now, Nic::Own, service, frame);
            }
        }
    }

    /// Without any question: see [`Checks::Off`].
    #[cfg(feature = "unchecked")]
    #[cold]
    fn receive_unchecked(&mut self, now: Time, frames: &[&[u8]]) {
        let owner = self.frames.first().map(FrameOwner::Vif);
        self.hand_over(now, owner, frames, Via::Queue(Checksums::Unknown));
    }
}
