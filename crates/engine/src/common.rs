//! What the components of an engine have in common: the apps' channels, the host's IP layers, the
//! lanes to the other engines, the switch, and who watches. A component is lent it for each call.

use clearway_base::{Time, counters};
use clearway_channel::FrameRefusal;
use clearway_channel::burst::Point;
use clearway_nic::{Checksums, Queue, Segments, Transmit};
use clearway_wire::Malformed;
use clearway_wire::digest::Digest;

use crate::captures::{Captures, Party, Sighting};
use crate::channels::Channels;
use crate::host::Host;
use crate::ip::{DropReason, Interface};
use crate::lanes::{Lanes, What};
use crate::loopback::Loopback;
use crate::switch::{Reach, Switch, VifKey};

counters! {
    /// What the engine itself counts.
    pub struct EngineCounters {
        /// Frames that were nobody's here.
        frames_unclaimed: Frames,
            "with frames for protocols, addresses or groups that neither the host nor an app has",
            "nothing where the link is shared; clearway vif capture shows them";
        /// Packets that were not sent because the neighbour was not known.
        packets_unresolved: Packets,
            "when a neighbour does not answer ARP or neighbour discovery",
            "see whether the peer or the gateway is up, and on this link: clearway ping ADDRESS";
        /// TCP segments from one app of the engine to another, for which no frame was built.
        segments_local: Segments,
            "when apps of one engine talk to each other by TCP",
            "nothing: this is traffic";
        /// Of what was to go from one app of the engine to another, segments that had to wait for
        /// memory.
        segments_held_up: Segments,
            "while the receive pool of an app is full, or its memory is in pieces that are too \
             small",
            "have the app read and release faster, or attach it with a larger pool";
        /// Packets to the host's own protocols that were put together from fragments.
        packets_assembled: Packets,
            "when a sender's packets are larger than the MTU of a link on the way",
            "nothing; it costs less to lower the sender's MTU to what the way takes";
    }
}

/// See the module.
#[derive(Debug)]
pub struct Common {
    pub(crate) channels: Channels,
    pub(crate) host: Host,
    pub(crate) lanes: Lanes,
    pub(crate) loopback: Loopback,
    pub(crate) switch: Switch,
    pub(crate) captures: Captures,
    pub(crate) counters: EngineCounters,
}

/// How a frame came to where it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// From the engine's own queue, which knows this of its checksums.
    Queue(Checksums),
    /// From a VIF or service of this host that another engine of the NIC has.
    Lane,
    /// From another engine of the NIC, whose queue it came to.
    QueueAndLane,
    /// From a VIF of this engine.
    #[doc(hidden)]
    Vif(VifKey),
    /// From the host itself, here.
    Host,
    /// From another host, in fragments, which were put together here. Who watches has seen those.
    Assembled,
}

impl Via {
    /// True if another engine has handed it over.
    #[inline]
    pub(crate) const fn is_lane(self) -> bool {
        matches!(self, Self::Lane | Self::QueueAndLane)
    }

    /// True if it is from another host.
    #[inline]
    pub(crate) const fn is_from_queue(self) -> bool {
        matches!(self, Self::Queue(_) | Self::QueueAndLane | Self::Assembled)
    }

    /// True if its checksums are known to be right.
    #[inline]
    pub(crate) const fn is_verified(self) -> bool {
        matches!(self, Self::Queue(Checksums::Right))
    }

    /// True if it is from this host, and from this engine.
    #[inline]
    pub(crate) const fn is_here(self) -> bool {
        matches!(self, Self::Vif(_) | Self::Host)
    }

    /// What the engine is told that the frame is handed to now.
    pub(crate) const fn parcel(self) -> What {
        match self {
            Self::Queue(_) | Self::Assembled => What::Arrival,
            _ => What::Frame,
        }
    }
}

/// A VIF that sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VifSender {
    pub(crate) key: VifKey,
    /// What it sends can be given to the kernel that shares the NIC.
    pub(crate) reaches_kernel: bool,
}

/// Where a frame of this host goes, beside whom it is for here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// To the NIC.
    pub(crate) by_wire: bool,
    /// To the kernel that shares the NIC.
    pub(crate) to_kernel: bool,
}

impl Common {
    /// The IP layer on the engine's own NIC.
    #[inline]
    pub fn interface(&mut self) -> &mut Interface {
        self.host.own_mut()
    }

    /// Takes a frame that its owner refuses, and counts it. If that is because it has a fragment,
    /// it is kept until all of its packet has come, which then comes by the loopback.
    #[cold]
    pub fn refuse(&mut self, now: Time, frame: &[u8], reason: DropReason) {
        if reason != Malformed::Fragment.into() {
            return self.interface().count_drop(reason);
        }
        match self.interface().handle_fragment(now, frame) {
            Ok(None) => {}
            Ok(Some(whole)) => {
                self.counters.packets_assembled += 1;
                if !self.loopback.push_whole(Via::Assembled, whole) {
                    self.lanes.counters.lane_frames_dropped += 1;
                }
            }
            Err(reason) => self.interface().count_drop(reason),
        }
    }

    /// Sends a frame of the host itself, which `fill` writes as for [`Queue::transmit`]: to the
    /// NIC, or to whom on this host it is for, or both. `Nothing` says that it was not for the NIC,
    /// if there was one.
    #[inline]
    pub fn send(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        mut fill: impl FnMut(&mut Self, &mut [u8]) -> usize,
    ) -> Transmit {
        queue.transmit(&mut |frame| {
            let length = fill(self, frame);
            if self.is_simple() { length } else { self.leave_host(now, &frame[..length], None) }
        })
    }

    /// The same for segments of TCP, as for [`Queue::transmit_segments`] if their checksums
    /// [may be left](Self::may_leave_sums) to the queue.
    #[inline]
    pub(crate) fn send_segments(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        leaves_sums: bool,
        mut fill: impl FnMut(&mut Self, &mut [u8], usize) -> Segments,
    ) -> Transmit {
        match leaves_sums {
            true => queue.transmit_segments(&mut |frame, most| fill(self, frame, most)),
            false => self.send(now, queue, |common, frame| fill(common, frame, 1).bytes),
        }
    }

    /// True if checksums of TCP can be left to the queue: only it sees the frames.
    pub(crate) fn may_leave_sums(&self, queue: &dyn Queue) -> bool {
        queue.capabilities().transmit_checksum && self.is_simple()
    }

    /// True if what the host itself sends can only be for the NIC, and nobody wants to see it.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.switch.has_one_mac() && !self.has_onlookers()
    }

    /// True if a copy or a capture may be wanted of what passes.
    #[inline]
    pub(crate) fn has_onlookers(&self) -> bool {
        self.switch.has_copies() || self.captures.any()
    }

    /// The same as [`Common::leave`] for a frame of the host itself, which concerns `party`.
    /// Returns its length if it is for the NIC, else 0.
    pub(crate) fn leave_host(&mut self, now: Time, frame: &[u8], party: Option<Party>) -> usize {
        if frame.is_empty() {
            return 0;
        }
        // An error says that there is no such service here, and then the frame is lost as it would
        // be on the wire.
        match self.leave(now, None, party, frame, &Digest::of(frame)) {
            Ok(Leaving { by_wire: true, .. }) => frame.len(),
            Ok(_) | Err(_) => 0,
        }
    }

    /// A frame of this host is on its way out, from a VIF or from the host itself: what is for this
    /// host comes back in, and those who watch see it. Says where else it goes. An error says that
    /// it is for this host, but for nobody here.
    pub(crate) fn leave(
        &mut self,
        now: Time,
        from: Option<VifSender>,
        party: Option<Party>,
        frame: &[u8],
        digest: &Digest,
    ) -> Result<Leaving, FrameRefusal> {
        let reach = self.switch.reach(digest);
        let by_wire = reach != Reach::Here;
        let mut to_kernel = false;
        if reach != Reach::Wire {
            let owner = self.switch.owner(digest);
            let reaches_kernel = from.is_some_and(|sender| sender.reaches_kernel);
            to_kernel = owner.is_none() && reaches_kernel && self.switch.suits_kernel(digest);
            if owner.is_none() && !by_wire && !to_kernel {
                return Err(FrameRefusal::ToKernel);
            }
            let via = from.map_or(Via::Host, |sender| Via::Vif(sender.key));
            if (owner.is_some() || self.has_onlookers()) && !self.loopback.push(via, frame) {
                self.lanes.counters.lane_frames_dropped += 1;
            }
        }
        let point = if by_wire { Point::Wire } else { Point::Delivered };
        self.show(now, &Sighting::sent(frame, digest, point, party));
        Ok(Leaving { by_wire, to_kernel })
    }

    /// Shows captures what passes.
    #[inline]
    pub(crate) fn show(&mut self, now: Time, sighting: &Sighting<'_>) {
        if self.captures.any() {
            self.captures.show(&mut self.channels, &mut self.lanes, now, sighting);
        }
    }
}
