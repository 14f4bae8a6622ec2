//! What comes from elsewhere than the queue: by the lanes from the host's other engines, and from
//! this engine itself.

use clearway_base::Time;
use clearway_nic::{BURST_FRAMES, Queue};
use clearway_wire::digest::Digest;

use super::Core;
use crate::common::Via;
use crate::component::Component;
use crate::host::Nic;
use crate::lanes::{Parcel, What};
use crate::switch::FrameOwner;
use crate::tcp::Search;

impl<X: Component<Owner = ()>> Core<X> {
    /// Takes what other engines have handed over, a burst of each.
    #[inline]
    pub(super) fn receive_parcels(&mut self, now: Time, queue: &mut dyn Queue) -> usize {
        let mut left = self.common.lanes.pending();
        let (mut taken, mut queued) = (0, 0);
        while left != 0 {
            let parcels = self.receive_parcels_of(now, left.trailing_zeros() as usize, queue);
            (taken, queued) = (taken + parcels.0, queued + parcels.1);
            left &= left - 1;
        }
        if queued > 0 {
            queue.flush();
        }
        taken
    }

    /// Returns how many there were, and how many frames of other NICs' engines are in the queue
    /// now.
    fn receive_parcels_of(
        &mut self,
        now: Time,
        engine: usize,
        queue: &mut dyn Queue,
    ) -> (usize, usize) {
        let mut parcels = core::mem::take(&mut self.parcels);
        self.common.lanes.take(engine, BURST_FRAMES, &mut parcels);
        let taken = parcels.len();
        let queued = self.handle_parcels(now, engine, queue, &parcels);
        self.common.lanes.give_back(engine, &mut parcels);
        self.parcels = parcels;
        (taken, queued)
    }

    /// Frames that follow each other are received as a burst. Returns how many are in the queue.
    fn handle_parcels(
        &mut self,
        now: Time,
        engine: usize,
        queue: &mut dyn Queue,
        mut parcels: &[Parcel],
    ) -> usize {
        let mut queued = 0;
        while let Some(first) = parcels.first() {
            let via = match first.what {
                What::Frame => Via::Lane,
                What::Arrival => Via::QueueAndLane,
                What::Sought(search) => search.via(),
                _ => {
                    queued += usize::from(self.handle_parcel(now, engine, queue, first));
                    parcels = &parcels[1..];
                    continue;
                }
            };
            let frames = parcels.iter().take_while(|parcel| parcel.what == first.what).count();
            let (run, others) = parcels.split_at(frames);
            let mut bytes = [&[][..]; BURST_FRAMES];
            for (bytes, parcel) in bytes.iter_mut().zip(run) {
                *bytes = &parcel.bytes;
            }
            let frames = &bytes[..frames];
            match first.what {
                What::Sought(search) => self.receive_sought(now, frames, search),
                _ => self.receive(now, frames, via),
            }
            parcels = others;
        }
        queued
    }

    /// Takes segments that may be this engine's. Who watches has seen them where they came.
    fn receive_sought(&mut self, now: Time, segments: &[&[u8]], search: Search) {
        self.tcp.receive_sought(&mut self.common, now, segments, search);
    }

    /// Takes a segment of TCP that an engine of another NIC has sent to an address of this one. One
    /// that is nobody's is refused here: where the kernel shares the NIC, it is not told of it.
    fn receive_from_other(&mut self, now: Time, segment: &[u8]) {
        match self.common.switch.owner(&Digest::of(segment)) {
            Some(_) => self.receive(now, &[segment], Via::Host),
            None => self.tcp.receive(&mut self.common, now, (), &[segment], Via::Host),
        }
    }

    /// True if there is a frame in the queue now.
    fn handle_parcel(
        &mut self,
        now: Time,
        engine: usize,
        queue: &mut dyn Queue,
        parcel: &Parcel,
    ) -> bool {
        let bytes = &parcel.bytes[..];
        match parcel.what {
            What::Frame => self.receive(now, &[bytes], Via::Lane),
            What::Arrival => self.receive(now, &[bytes], Via::QueueAndLane),
            What::Sought(search) => self.receive_sought(now, &[bytes], search),
            What::Orphan { asked } => {
                self.tcp.receive_orphan(&mut self.common, now, bytes, asked);
            }
            What::Copy => {
                // Those of other engines have been given theirs.
                self.copy_here(now, None, bytes, &Digest::of(bytes));
            }
            What::Overheard(service) if self.common.lanes.siblings().contains(&engine) => {
                self.overhear(now, Nic::Own, service, bytes);
            }
            What::Overheard(service) => {
                if let Some(other) = self.common.host.other_of(engine) {
                    self.overhear(now, Nic::Other(other), service, bytes);
                }
            }
            What::Transmit => return self.common.transmit_for_other(now, queue, bytes),
            What::ToHost => self.receive_from_other(now, bytes),
            What::Datagram { source, destination, user } => {
                let (common, between) = (&mut self.common, (source, destination));
                self.messages.receive_from_sibling(common, now, between, user, bytes);
            }
            What::Sighting { capture, info } => {
                let channels = &mut self.common.channels;
                self.common.captures.show_of_sibling(channels, capture, info, bytes);
            }
        }
        false
    }

    /// Takes what this host has sent to itself, and packets that were put together.
    #[inline]
    pub(super) fn receive_looped(&mut self, now: Time) {
        if !self.common.loopback.is_empty() {
            self.receive_all_looped(now);
        }
    }

    #[cold]
    fn receive_all_looped(&mut self, now: Time) {
        let frames = self.common.loopback.take();
        for looped in &frames {
            match looped.via {
                Via::Assembled => self.receive_assembled(now, &looped.bytes),
                via => self.receive(now, &[&looped.bytes], via),
            }
        }
        self.common.loopback.give_back(frames);
        // Before an app asks for anything else, or the engine is saved.
        self.messages.begin_unshared(&mut self.common);
    }

    /// Takes a packet that was put together. Apps have what the wire carries: one that is longer is
    /// for the host's own protocols only.
    fn receive_assembled(&mut self, now: Time, frame: &[u8]) {
        let owner = self.common.switch.owner(&Digest::of(frame));
        let frame_bytes_max = self.common.host.frame_bytes_max();
        match owner {
            Some(FrameOwner::Vif(_) | FrameOwner::Sibling(_)) if frame.len() > frame_bytes_max => {
                self.common.counters.frames_unclaimed += 1;
            }
            owner => self.hand_over(now, owner, &[frame], Via::Assembled),
        }
    }
}
