//! What comes into the table and goes out of it: the host's services, VIFs and captures. It is *not* asked whether an
//! app may open a VIF, nor whether its patterns collide with those of another: both the control plane has done.

use clearway_base::Time;
use clearway_channel::{Code, Completion};
use clearway_classify::directory::{EntryId, Rights};
use clearway_nic::MacAddress;

use super::super::capture::{Capture, CaptureSpec};
use super::super::vif::{Vif, VifSpec};
use super::{PRIORITY_MAX, Port, Switch, VifKey, mac_number};
use crate::channels::Channels;
use crate::services::{Entry, Service};

/// What the host needs for itself comes before all VIFs.
const PRIORITY_OF_SERVICES: u16 = u16::MAX;
/// What nobody has is refused last of all.
const PRIORITY_OF_REFUSALS: u16 = 0;
const _: () = assert!(PRIORITY_MAX + 1 < PRIORITY_OF_SERVICES);

impl Switch {
    /// From now on the host's services have these entries instead of those before. Those that stay are not
    /// touched, and new ones are there before old ones go: no frame finds nobody.
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
        let priority = match entry.service {
            Service::Datagrams => PRIORITY_OF_REFUSALS,
            Service::Messages | Service::Arp | Service::Icmp => PRIORITY_OF_SERVICES,
        };
        let rights = Rights { receive: vec![entry.receive], priority, ..Rights::default() };
        let id = self.directory.insert(rights);
        self.set_port(id, Port::Service(entry.service));
        id
    }

    /// Opens a VIF for `channel`.
    pub(crate) fn open(&mut self, now: Time, channel: u32, id: u32, spec: VifSpec) {
        let entry = self.directory.insert(spec.rights());
        self.insert(Vif::new(channel, id, spec, entry, now));
    }

    /// Takes note of what a VIF of another engine has.
    pub(in crate::switch) fn register(&mut self, spec: &VifSpec, port: Port) -> EntryId {
        let entry = self.directory.insert(spec.rights());
        self.set_port(entry, port);
        entry
    }

    fn insert(&mut self, vif: Vif) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.vifs.push(None);
            self.vifs.len() as u32 - 1
        });
        let key = VifKey { slot, channel: vif.channel };
        self.set_port(vif.entry, Port::Vif(key));
        self.keys.insert((vif.channel, vif.id), key);
        self.add_mac(vif.spec.mac);
        self.vifs[slot as usize] = Some(vif);
    }

    pub(in crate::switch) fn add_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if mac == self.mac {
            return;
        }
        match self.place_of_mac(mac) {
            Ok(place) => self.macs[place].1 += 1,
            Err(place) => self.macs.insert(place, (mac, 1)),
        }
    }

    pub(in crate::switch) fn remove_mac(&mut self, mac: MacAddress) {
        let Ok(place) = self.place_of_mac(mac_number(mac)) else { return };
        let (_, vifs) = &mut self.macs[place];
        *vifs -= 1;
        if *vifs == 0 {
            self.macs.remove(place);
        }
    }

    /// Where an address of VIFs is, or where it would have to be.
    #[inline]
    pub(super) fn place_of_mac(&self, mac: u64) -> Result<usize, usize> {
        self.macs.binary_search_by_key(&mac, |(other, _)| *other)
    }

    /// Nobody has the entry any more.
    pub(in crate::switch) fn unregister(&mut self, entry: EntryId) {
        self.directory.remove(entry);
        self.ports[entry.0 as usize] = None;
        while let Some(None) = self.ports.last() {
            self.ports.pop();
        }
    }

    /// Closes a VIF or capture of a channel, be it of this engine or of another, and tells its app why if
    /// there is something to tell; nothing if there is none.
    pub(crate) fn close(
        &mut self,
        channels: &mut Channels,
        channel: u32,
        id: u32,
        told: Option<Code>,
    ) {
        self.close_of_sibling(channel, id);
        let capture = self.captures.iter().position(|capture| capture.is(channel, id));
        let mut capture = capture.map(|index| self.captures.remove(index));
        let key = self.keys.get(&(channel, id)).copied();
        let mut vif = key.and_then(|key| self.take(key.slot()));
        let Some(app) = channels.channel(channel) else { return };
        let gathering = match (&mut vif, &mut capture) {
            (Some(vif), _) => &mut vif.gathering,
            (None, Some(capture)) => &mut capture.gathering,
            (None, None) => return,
        };
        gathering.discard(app);
        app.end.sends_finished(vif.map_or(0, |vif| vif.bursts_left()));
        if let Some(code) = told {
            app.tell(Completion::VifClosed { vif: id, code });
        }
    }

    /// The channel's app is gone, and all that it had here goes with it.
    pub(crate) fn remove_channel(&mut self, channel: u32) {
        self.captures.retain(|capture| capture.channel != channel);
        self.senders.retain(|key| key.channel != channel);
        self.touched.retain(|key| key.channel != channel);
        let of_channel = self.keys.values().filter(|key| key.channel == channel);
        for key in of_channel.copied().collect::<Vec<_>>() {
            self.take_out(key.slot());
        }
    }

    fn take(&mut self, slot: usize) -> Option<Vif> {
        let vif = self.take_out(slot)?;
        let key = VifKey { slot: slot as u32, channel: vif.channel };
        self.senders.retain(|other| *other != key);
        self.touched.retain(|other| *other != key);
        Some(vif)
    }

    /// Takes a VIF out of all but the lists of a turn.
    fn take_out(&mut self, slot: usize) -> Option<Vif> {
        let vif = self.vifs[slot].take()?;
        self.unregister(vif.entry);
        self.keys.remove(&(vif.channel, vif.id));
        self.remove_mac(vif.spec.mac);
        self.free.push(slot as u32);
        Some(vif)
    }

    /// Begins to copy what passes to a channel.
    pub(crate) fn open_capture(&mut self, channel: u32, id: u32, spec: CaptureSpec) {
        self.captures.push(Capture::new(channel, id, spec, None));
    }
}
