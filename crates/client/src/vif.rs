//! Virtual interfaces: opening and closing them, and what the app library knows of each. Frames are
//! sent and received in `frames.rs`.

use std::collections::VecDeque;
use std::fmt;

use clearway_channel::burst::Filling;
use clearway_channel::control::{CloseVif, OpenCapture, OpenVif, Reply, Request, VifOpened};
use clearway_channel::control::{InterfaceAddress, Mac, MacChoice};
use clearway_channel::{Code, Extent, FrameRefusal};

use crate::ids::IdMap;
use crate::session::unexpected;
use crate::{Awaited, Channel, Error};

/// Names a virtual interface of a channel. Never used again for another one while the channel
/// lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VifId(pub(crate) u32);

impl VifId {
    /// The id with this number, for bindings.
    #[must_use]
    pub fn from_u32(number: u32) -> Self {
        Self(number)
    }

    /// The number, for bindings.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Display for VifId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a virtual interface shall receive and send. Filters are written as for tcpdump: `dst host
/// 10.0.0.2 and udp dst port 5353`.
#[derive(Clone, Debug, Default)]
pub struct VifOptions {
    /// What it receives: what any of these filters matches.
    pub receive: Vec<String>,
    /// What it may send; by default the mirror image of `receive`, with source and destination
    /// exchanged.
    pub transmit: Option<Vec<String>>,
    /// What it gets a copy of, while its owner gets it too.
    pub copies: Vec<String>,
    /// Above 0, it comes before interfaces of lower priority, as far as the daemon's policy allows.
    /// What the host's own services receive (messages, ARP, ...) is theirs before all.
    pub priority: u16,
    /// An Ethernet address of its own; by default the NIC's.
    pub mac: Option<MacChoice>,
    /// An IP address of its own, which needs an Ethernet address of its own.
    pub address: Option<InterfaceAddress>,
}

impl VifOptions {
    /// An interface that receives what `filter` matches, and may send the mirror image of it.
    pub fn receiving(filter: impl Into<String>) -> Self {
        Self { receive: vec![filter.into()], ..Self::default() }
    }

    /// An interface with an Ethernet and an IP address of its own, which behaves like a machine on
    /// the LAN.
    #[must_use]
    pub fn machine(mac: MacChoice, address: InterfaceAddress) -> Self {
        Self { mac: Some(mac), address: Some(address), ..Self::default() }
    }
}

/// What to capture. By default everything that the policy lets the app see.
#[derive(Clone, Debug, Default)]
pub struct CaptureOptions {
    /// Only what any of these filters matches; everything if there are none.
    pub filter: Vec<String>,
    /// Only what concerns the app of this name.
    pub app: Option<String>,
    /// Only what concerns this connection of it, by the number that the app has for it
    /// ([`ConnectionId::as_u64`](crate::ConnectionId::as_u64)), which `clearway status` shows, too.
    pub connection: Option<u64>,
}

/// An open virtual interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vif {
    /// Names it in calls and events.
    pub id: VifId,
    /// Its Ethernet address: its own, or the NIC's.
    pub mac: Mac,
    /// The most bytes of a packet in a frame, without the Ethernet header.
    pub mtu: u32,
    /// What it receives, as it is in force.
    pub receive: Vec<String>,
    /// What it may send, as it is in force.
    pub transmit: Vec<String>,
    /// What it gets copies of, as it is in force.
    pub copies: Vec<String>,
}

/// What has become of the frames that a virtual interface sent, as far as the daemon has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramesSent {
    /// Frames that left, by the NIC or to another app.
    pub sent: u64,
    /// Frames that were refused.
    pub rejected: u64,
    /// Why the last of these was refused.
    pub reason: Option<FrameRefusal>,
}

impl Channel {
    /// Opens a virtual interface: from now on the app gets the frames that its patterns match, and
    /// may send those that its transmit patterns match.
    pub fn open_vif(&mut self, options: &VifOptions) -> Result<Vif, Error> {
        let VifOptions { receive, transmit, copies, priority, mac, address } = options.clone();
        let open = OpenVif { receive, transmit, copies, priority, mac, address };
        self.open(&Request::OpenVif(open))
    }

    /// Opens an interface that gets copies of what others send and receive, and may send nothing.
    /// [`FrameInfo`](crate::FrameInfo) says of each frame where it was seen.
    pub fn open_capture(&mut self, options: &CaptureOptions) -> Result<Vif, Error> {
        let CaptureOptions { filter, app, connection } = options.clone();
        self.open(&Request::OpenCapture(OpenCapture { filter, app, connection }))
    }

    fn open(&mut self, request: &Request) -> Result<Vif, Error> {
        match self.request(request)? {
            Reply::VifOpened(VifOpened { vif, mac, mtu, receive, transmit, copies }) => {
                let id = VifId(vif);
                self.vifs.insert(id);
                Ok(Vif { id, mac, mtu, receive, transmit, copies })
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// Closes a virtual interface or a capture, after what was sent has left (at most
    /// [`Options::linger`](crate::Options::linger)). It is not heard of again, and frames that have
    /// come and were not taken are lost.
    pub fn close_vif(&mut self, vif: VifId) -> Result<(), Error> {
        let was_open = self.vifs.find(vif).is_some();
        let _ = self.wait_for(Some(self.linger), Awaited::RoomOf(vif), |channel| {
            channel.gather()?;
            channel.submit_burst(vif);
            let is_idle = channel.vifs.find(vif).is_none_or(|found| found.is_idle());
            Ok(is_idle.then_some(()))
        });
        if self.vifs.find(vif).is_none() {
            // The daemon has closed it already, which the app may not know yet; now it need not.
            let known = self.forget_frames_of(vif) || was_open;
            return if known { Ok(()) } else { Err(Error::Vif { vif, code: Code::Closed }) };
        }
        match self.request(&Request::CloseVif(CloseVif { vif: vif.0 }))? {
            Reply::VifClosed(_) => {
                // What the daemon said of it before it closed it.
                self.gather()?;
                self.drop_vif(vif);
                self.forget_frames_of(vif);
                Ok(())
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// What has become of the frames that the interface sent.
    pub fn frames_sent(&mut self, vif: VifId) -> Result<FramesSent, Error> {
        self.gather()?;
        let found = self.vifs.find(vif);
        found.map(|found| found.told).ok_or(Error::Vif { vif, code: Code::Closed })
    }

    /// Ends an interface on this side: all its sends are over. False if there is none.
    pub(crate) fn drop_vif(&mut self, vif: VifId) -> bool {
        let Some(ended) = self.vifs.remove(vif) else { return false };
        let sends = ended.outstanding.len() as u32;
        let unsent = ended.burst.map(|burst| burst.extent);
        ended.outstanding.into_iter().chain(unsent).for_each(|extent| self.end.free(extent));
        self.sends_are_over(sends);
        true
    }
}

/// A virtual interface as the app library knows it.
#[derive(Default)]
pub(crate) struct VifState {
    /// The burst that is being filled; it has a frame.
    pub(crate) burst: Option<Burst>,
    /// Bursts that are not finished, oldest first.
    pub(crate) outstanding: VecDeque<Extent>,
    /// How many are finished, as the daemon counts: wrapping.
    finished: u32,
    pub(crate) told: FramesSent,
    /// It is in `Vifs::unflushed`.
    is_unflushed: bool,
}

/// A burst that is being filled.
pub(crate) struct Burst {
    pub(crate) extent: Extent,
    pub(crate) filling: Filling,
}

impl VifState {
    /// Removes a burst that is finished, while there are fewer finished than `bursts`.
    #[inline]
    pub(crate) fn next_finished(&mut self, bursts: u32) -> Option<Extent> {
        if self.finished == bursts {
            return None;
        }
        let extent = self.outstanding.pop_front()?;
        self.finished = self.finished.wrapping_add(1);
        Some(extent)
    }

    fn is_idle(&self) -> bool {
        self.burst.is_none() && self.outstanding.is_empty()
    }
}

/// All virtual interfaces of a channel.
#[derive(Default)]
pub(crate) struct Vifs {
    table: IdMap<VifId, VifState>,
    /// Those that began a burst since they were flushed together.
    unflushed: Vec<VifId>,
}

impl Vifs {
    fn insert(&mut self, id: VifId) {
        self.table.insert(id, VifState::default());
    }

    #[inline]
    pub(crate) fn find(&mut self, id: VifId) -> Option<&mut VifState> {
        self.table.get_mut(&id)
    }

    fn remove(&mut self, id: VifId) -> Option<VifState> {
        self.table.remove(&id)
    }

    /// Begins a burst, which the caller puts a frame into.
    pub(crate) fn begin(&mut self, id: VifId, extent: Extent) -> Result<(), Extent> {
        let Some(found) = self.table.get_mut(&id) else { return Err(extent) };
        found.burst = Some(Burst { extent, filling: Filling::default() });
        if !std::mem::replace(&mut found.is_unflushed, true) {
            self.unflushed.push(id);
        }
        Ok(())
    }

    pub(crate) fn ids(&self) -> Vec<VifId> {
        self.table.keys().copied().collect()
    }

    /// Whether nothing is on its way.
    pub(crate) fn are_idle(&self) -> bool {
        self.table.values().all(VifState::is_idle)
    }

    /// Whether there may be a burst that was begun and not sent.
    #[inline]
    pub(crate) fn any_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// An interface that may have such a burst.
    pub(crate) fn next_unflushed(&self) -> Option<VifId> {
        self.unflushed.last().copied()
    }

    /// That one has been flushed, or is gone.
    pub(crate) fn flushed(&mut self) {
        if let Some(id) = self.unflushed.pop()
            && let Some(found) = self.table.get_mut(&id)
        {
            found.is_unflushed = false;
        }
    }
}
