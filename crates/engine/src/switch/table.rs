//! The switch itself: ports, and the table that says whose a packet is. What comes into the table is in `opening`, what may be sent in
//! `rights`.

mod opening;
mod rights;

use std::collections::{HashMap, VecDeque};

use clearway_base::Time;
use clearway_classify::Directory;
use clearway_classify::directory::EntryId;
use clearway_nic::MacAddress;
use clearway_wire::digest::{Digest, fields};

use super::Table;
use super::capture::Capture;
use super::sibling::SiblingVif;
use super::vif::Vif;
use crate::channels::Channels;
use crate::services::{Entry, Service};
use crate::snapshot::{CaptureSnapshot, VifSnapshot};

/// The highest priority that a VIF may declare.
pub const PRIORITY_MAX: u16 = 60_000;
/// Where a packet goes on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Service(Service),
    Vif(VifKey),
    /// A VIF that this other engine of the NIC serves.
    Sibling(usize),
}

/// Names an open VIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VifKey {
    slot: u32,
    channel: u32,
}

impl VifKey {
    /// Whose it is.
    pub(crate) const fn channel(self) -> u32 {
        self.channel
    }

    pub(super) const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Where a packet of this host may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Elsewhere.
    Wire,
    /// To this host.
    Here,
    /// To a group: of this host and elsewhere.
    Both,
}

/// Ports, and the table. See the module.
#[derive(Debug)]
pub(crate) struct Switch {
    directory: Directory<Table>,
    /// By the number of the entry.
    ports: Vec<Option<Port>>,
    /// What the host's services have, and its entries.
    services: Vec<(Entry, EntryId)>,
    /// Open VIFs, by slot.
    pub(super) vifs: Vec<Option<Vif>>,
    free: Vec<u32>,
    /// By channel and the id in it.
    pub(super) keys: HashMap<(u32, u32), VifKey>,
    /// VIFs of the NIC's other engines.
    pub(super) of_siblings: Vec<SiblingVif>,
    pub(super) captures: Vec<Capture>,
    /// VIFs that have something to send, the next one first.
    pub(super) senders: VecDeque<VifKey>,
    /// VIFs that were given frames, or have sent some, in this turn.
    pub(super) touched: Vec<VifKey>,
    /// The NIC's Ethernet address.
    mac: u64,
    /// Those of VIFs that have one of their own, in order, and how many VIFs have each.
    macs: Vec<(u64, u32)>,
}

impl Switch {
    /// A switch whose only ports are the NIC, at `mac`, and the host's services.
    pub(crate) fn new(mac: MacAddress, services: Vec<Entry>) -> Self {
        let mut switch = Self {
            directory: Directory::new(Table::default()),
            ports: Vec::new(),
            services: Vec::new(),
            vifs: Vec::new(),
            free: Vec::new(),
            keys: HashMap::new(),
            of_siblings: Vec::new(),
            captures: Vec::new(),
            senders: VecDeque::new(),
            touched: Vec::new(),
            mac: mac_number(mac),
            macs: Vec::new(),
        };
        switch.set_services(services);
        switch
    }

    /// The VIF with the lowest slot: for measuring what passes without being looked at.
    pub(crate) fn first_vif(&self) -> Option<VifKey> {
        let slot = self.vifs.iter().position(Option::is_some)?;
        let channel = self.vifs[slot].as_ref()?.channel;
        Some(VifKey { slot: slot as u32, channel })
    }

    /// The owner of each packet, `None` where it is nobody's here.
    #[inline]
    pub(crate) fn find(&mut self, digests: &[Digest], owners: &mut [Option<Port>]) {
        if let Some(entry) = self.directory.common_receiver(digests) {
            return owners.fill(entry.and_then(|entry| self.port(entry)));
        }
        let mut entries = [None; clearway_nic::BURST_FRAMES];
        self.directory.receivers(digests, &mut entries[..digests.len()]);
        for (owner, entry) in owners.iter_mut().zip(&entries[..digests.len()]) {
            *owner = entry.and_then(|entry| self.port(entry));
        }
    }

    /// Where a packet of this host may go, by its Ethernet address.
    #[inline]
    pub(crate) fn destination(&self, digest: &Digest) -> Destination {
        if digest.field(fields::MAC_GROUP) == 1 {
            return Destination::Both;
        }
        let mac = digest.field(fields::MAC_DESTINATION);
        let is_here = mac == self.mac || self.place_of_mac(mac).is_ok();
        if is_here { Destination::Here } else { Destination::Wire }
    }

    /// True if a copy or a capture may be wanted of what passes.
    #[inline]
    pub(crate) fn has_onlookers(&self) -> bool {
        self.directory.has_copies() || !self.captures.is_empty()
    }

    /// True if what the host itself sends can only be for the NIC, and nobody wants to see it.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.macs.is_empty() && !self.has_onlookers()
    }

    /// True if somebody captures.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Gives copies to those who want them, but not to the sender. Returns the other engines whose VIFs
    /// want one, a bit for each.
    pub(crate) fn copy(
        &mut self,
        channels: &mut Channels,
        now: Time,
        from: Option<VifKey>,
        frame: &[u8],
        digest: &Digest,
    ) -> u64 {
        let mut siblings = 0;
        for entry in self.directory.copies(digest) {
            let port = self.ports.get(entry.0 as usize).copied().flatten();
            let key = match port.filter(|port| from.map(Port::Vif) != Some(*port)) {
                Some(Port::Vif(key)) => key,
                Some(Port::Sibling(engine)) => {
                    siblings |= 1 << engine;
                    continue;
                }
                Some(Port::Service(_)) | None => continue,
            };
            let vif = self.vifs.get_mut(key.slot()).and_then(Option::as_mut);
            if let (Some(vif), Some(app)) = (vif, channels.channel(key.channel)) {
                touch(&mut self.touched, key, vif);
                vif.deliver(app, now, frame);
            }
        }
        siblings
    }

    /// A port is copied as a whole: one that is put together from parts has to be waited for.
    #[inline]
    fn port(&self, entry: EntryId) -> Option<Port> {
        *self.ports.get(entry.0 as usize).unwrap_or(&None)
    }

    pub(super) fn set_port(&mut self, entry: EntryId, port: Port) {
        let index = entry.0 as usize;
        if self.ports.len() <= index {
            self.ports.resize(index + 1, None);
        }
        self.ports[index] = Some(port);
    }

    pub(super) fn vif(&mut self, key: VifKey) -> Option<&mut Vif> {
        self.vifs.get_mut(key.slot())?.as_mut()
    }

    /// How many slots there are for VIFs, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.vifs.len()
    }

    /// The VIF in a slot, if there is one.
    pub(crate) fn snapshot(&self, slot: usize) -> Option<VifSnapshot> {
        self.vifs.get(slot)?.as_ref().map(Vif::snapshot)
    }

    /// The captures that are going on.
    pub(crate) fn snapshot_captures(&self) -> Vec<CaptureSnapshot> {
        self.captures.iter().filter(|capture| capture.is_own()).map(Capture::snapshot).collect()
    }
}

/// Remembers that something has happened at a VIF in this turn.
pub(super) fn touch(touched: &mut Vec<VifKey>, key: VifKey, vif: &mut Vif) {
    if !core::mem::replace(&mut vif.is_touched, true) {
        touched.push(key);
    }
}

/// As it stands in a digest.
fn mac_number(mac: MacAddress) -> u64 {
    mac.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

#[cfg(test)]
mod tests;
