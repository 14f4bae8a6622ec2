//! What comes into the table and goes out of it: the host's services and VIFs. It is *not* asked
//! whether an app may open a VIF, nor whether its patterns collide with those of another: both the
//! control plane has done.

use clearway_classify::directory::{EntryId, Rights};
use clearway_nic::MacAddress;

use super::{FrameOwner, PRIORITY_MAX, Switch, mac_number};
use crate::frames::VifSpec;
use crate::services::Entry;

/// What the host needs for itself comes before all VIFs.
const PRIORITY_OF_SERVICES: u16 = u16::MAX;
/// What nobody has comes last of all.
const PRIORITY_LAST: u16 = 0;
const _: () = assert!(PRIORITY_MAX + 1 < PRIORITY_OF_SERVICES);

impl Switch {
    /// From now on the host's services have these entries instead of those before. Those that stay
    /// are not touched, and new ones are there before old ones go: no frame finds nobody.
    pub(crate) fn set_services(&mut self, services: Vec<Entry>) {
        let mut before = std::mem::take(&mut self.services);
        for service in services {
            let same = before.iter().position(|(other, _)| *other == service);
            let entry = match same {
                Some(index) => before.swap_remove(index),
                None => {
                    let entry = self.add_service(&service);
                    (service, entry)
                }
            };
            self.services.push(entry);
        }
        before.iter().for_each(|(_, entry)| self.unregister(*entry));
    }

    fn add_service(&mut self, entry: &Entry) -> EntryId {
        let is_last = entry.service.is_last_resort();
        let priority = if is_last { PRIORITY_LAST } else { PRIORITY_OF_SERVICES };
        let rights = Rights { receive: vec![entry.receive], priority, ..Rights::default() };
        let id = self.directory.insert(rights);
        self.set_owner(id, FrameOwner::Service(entry.service));
        id
    }

    /// Enters what a VIF has, which is `owner`'s.
    pub(crate) fn open(&mut self, spec: &VifSpec, owner: FrameOwner) -> EntryId {
        let entry = self.directory.insert(spec.rights());
        self.set_owner(entry, owner);
        self.add_mac(spec.mac);
        entry
    }

    /// The VIF with this entry is gone.
    pub(crate) fn close(&mut self, entry: EntryId, mac: MacAddress) {
        self.unregister(entry);
        self.remove_mac(mac);
    }

    pub(super) fn add_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if mac == self.mac {
            self.vifs_at_mac += 1;
            return;
        }
        match self.place_of_mac(mac) {
            Ok(place) => self.macs[place].1 += 1,
            Err(place) => self.macs.insert(place, (mac, 1)),
        }
    }

    pub(super) fn remove_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if mac == self.mac {
            self.vifs_at_mac -= 1;
            return;
        }
        let Ok(place) = self.place_of_mac(mac) else { return };
        let (_, vifs) = &mut self.macs[place];
        *vifs -= 1;
        if *vifs == 0 {
            self.macs.remove(place);
        }
    }

    /// The NIC has another address: what was its own is that of VIFs now, if they have it.
    pub(super) fn move_to_mac(&mut self, mac: u64) {
        if mac == self.mac {
            return;
        }
        let vifs = self.place_of_mac(mac).map_or(0, |place| self.macs.remove(place).1);
        let before = (self.mac, self.vifs_at_mac);
        (self.mac, self.vifs_at_mac) = (mac, vifs);
        if before.1 > 0 {
            self.macs.push(before);
            self.macs.sort_unstable();
        }
    }

    /// Where an address of VIFs is, or where it would have to be.
    #[inline]
    pub(super) fn place_of_mac(&self, mac: u64) -> Result<usize, usize> {
        self.macs.binary_search_by_key(&mac, |(other, _)| *other)
    }

    /// Whether nothing is left in the table but what the host's services have.
    pub(crate) fn audit_rest(&self) -> Result<(), String> {
        let owners = self.owners.iter().flatten().count();
        let left = [
            ("owners", owners - self.services.len()),
            ("virtual interfaces of siblings", self.of_siblings.len()),
            ("Ethernet addresses", self.macs.len() + self.vifs_at_mac as usize),
        ];
        match left.iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(format!("{count} {what} are left in the switch's table")),
            None => Ok(()),
        }
    }

    /// Nobody has the entry any more.
    fn unregister(&mut self, entry: EntryId) {
        self.directory.remove(entry);
        self.owners[entry.0 as usize] = None;
        self.version += 1;
        while let Some(None) = self.owners.last() {
            self.owners.pop();
        }
    }
}
