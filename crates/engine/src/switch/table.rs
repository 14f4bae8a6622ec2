//! The switch itself: the table that says whose a packet is. What comes into it is in `opening`,
//! what may be sent in `rights`.

mod opening;
mod rights;

use clearway_classify::Directory;
use clearway_classify::directory::EntryId;
use clearway_nic::MacAddress;
use clearway_wire::digest::{Digest, fields};

use super::Table;
use super::sibling::SiblingVif;
use crate::services::{Entry, Service};

/// The highest priority that a VIF may declare.
pub const PRIORITY_MAX: u16 = 60_000;

/// Whose a packet is on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOwner {
    Service(Service),
    Vif(VifKey),
    /// A VIF that this other engine of the NIC serves.
    Sibling(usize),
}

/// Names an open VIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VifKey {
    slot: u32,
    channel: u32,
}

impl VifKey {
    pub(crate) const fn new(slot: u32, channel: u32) -> Self {
        Self { slot, channel }
    }

    /// Whose it is.
    pub(crate) const fn channel(self) -> u32 {
        self.channel
    }

    pub(crate) const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// How far a packet of this host goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Elsewhere.
    Wire,
    /// To this host.
    Here,
    /// To a group: of this host and elsewhere.
    Both,
}

/// Owners, and the table. See the module.
#[derive(Debug)]
pub(crate) struct Switch {
    directory: Directory<Table>,
    /// By the number of the entry.
    owners: Vec<Option<FrameOwner>>,
    /// What the host's services have, and its entries.
    services: Vec<(Entry, EntryId)>,
    /// VIFs of the NIC's other engines.
    pub(super) of_siblings: Vec<SiblingVif>,
    /// The NIC's Ethernet address, and how many VIFs have that.
    mac: u64,
    vifs_at_mac: u32,
    /// Those of VIFs that have one of their own, in order, and how many VIFs have each.
    macs: Vec<(u64, u32)>,
    /// Rises with each change of what is said above.
    version: u64,
}

impl Switch {
    /// A switch of the NIC, at `mac`, and the host's services.
    pub(crate) fn new(mac: MacAddress, services: Vec<Entry>) -> Self {
        let mut switch = Self {
            directory: Directory::new(Table::default()),
            owners: Vec::new(),
            services: Vec::new(),
            of_siblings: Vec::new(),
            mac: mac_number(mac),
            vifs_at_mac: 0,
            macs: Vec::new(),
            version: 0,
        };
        switch.set_services(services);
        switch
    }

    /// The NIC has this Ethernet address from now on. VIFs keep theirs.
    pub(crate) fn set_mac(&mut self, mac: MacAddress) {
        self.move_to_mac(mac_number(mac));
        self.version += 1;
    }

    /// As long as it is the same, whose a packet is stays the same.
    #[inline]
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The owner of each packet, `None` where it is nobody's here.
    #[inline]
    pub(crate) fn find(&mut self, digests: &[Digest], owners: &mut [Option<FrameOwner>]) {
        if let Some(entry) = self.directory.common_receiver(digests) {
            return owners.fill(entry.and_then(|entry| self.owner_of(entry)));
        }
        let mut entries = [None; clearway_nic::BURST_FRAMES];
        self.directory.receivers(digests, &mut entries[..digests.len()]);
        for (owner, entry) in owners.iter_mut().zip(&entries[..digests.len()]) {
            *owner = entry.and_then(|entry| self.owner_of(entry));
        }
    }

    /// The owner of one packet.
    #[inline]
    pub(crate) fn owner(&mut self, digest: &Digest) -> Option<FrameOwner> {
        let entry = self.directory.common_receiver(core::slice::from_ref(digest));
        entry.flatten().and_then(|entry| self.owner_of(entry))
    }

    /// Where a packet of this host may go, by its Ethernet address.
    #[inline]
    pub(crate) fn reach(&self, digest: &Digest) -> Reach {
        if digest.field(fields::MAC_GROUP) == 1 {
            return Reach::Both;
        }
        let mac = digest.field(fields::MAC_DESTINATION);
        let is_here = mac == self.mac || self.place_of_mac(mac).is_ok();
        if is_here { Reach::Here } else { Reach::Wire }
    }

    /// True for what a kernel that shares the NIC takes from a VIF, if it is nobody's here: who has
    /// the NIC's Ethernet address has no other to be answered at.
    pub(crate) fn suits_kernel(&self, digest: &Digest) -> bool {
        let is_to_it = digest.field(fields::MAC_DESTINATION) == self.mac;
        (is_to_it || digest.field(fields::MAC_GROUP) == 1)
            && digest.field(fields::MAC_SOURCE) != self.mac
    }

    /// True if some VIF wants copies.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        self.directory.has_copies()
    }

    /// True if the NIC's Ethernet address is the only one of this host.
    #[inline]
    pub(crate) fn has_one_mac(&self) -> bool {
        self.macs.is_empty()
    }

    /// Those that want copies of a packet, but not `from`, whose it is.
    pub(crate) fn copies(
        &self,
        from: Option<VifKey>,
        digest: &Digest,
    ) -> impl Iterator<Item = FrameOwner> {
        let owners = self.directory.copies(digest).filter_map(|entry| self.owner_of(entry));
        owners.filter(move |owner| from.map(FrameOwner::Vif) != Some(*owner))
    }

    /// An owner is copied as a whole: one that is put together from parts has to be waited for.
    #[inline]
    fn owner_of(&self, entry: EntryId) -> Option<FrameOwner> {
        *self.owners.get(entry.0 as usize).unwrap_or(&None)
    }

    pub(super) fn set_owner(&mut self, entry: EntryId, owner: FrameOwner) {
        let index = entry.0 as usize;
        if self.owners.len() <= index {
            self.owners.resize(index + 1, None);
        }
        self.owners[index] = Some(owner);
        self.version += 1;
    }
}

/// As it stands in a digest.
fn mac_number(mac: MacAddress) -> u64 {
    mac.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

#[cfg(test)]
mod tests;
