//! What comes into the table and goes out of it: the host's services, VIFs and captures. It is *not* asked whether an
//! app may open a VIF: that is the control plane's policy. Here two apps' patterns collide.

use clearway_base::Time;
use clearway_channel::{Code, Completion};
use clearway_classify::registry::{Action, OwnerId, VifId};
use clearway_classify::{Clause, Filter, Pattern, registry};
use clearway_nic::MacAddress;
use clearway_wire::digest::fields;

use super::super::capture::{Capture, CaptureSpec};
use super::super::refusal::VifRefused;
use super::super::vif::{Vif, VifSpec};
use super::{PRIORITY_MAX, Port, Switch, VifKey, mac_number};
use crate::channels::Channels;
use crate::interface::{Entry, Service};

/// Copies are given before an owner is looked for.
const PRIORITY_OF_COPIES: u16 = u16::MAX;
/// What the host needs for itself comes before all VIFs.
const PRIORITY_OF_SERVICES: u16 = u16::MAX - 1;
/// What nobody has is refused last of all.
const PRIORITY_OF_REFUSALS: u16 = 0;
/// The owner of the host's services.
const HOST: OwnerId = OwnerId(0);

impl Switch {
    /// From now on the host's services have these entries instead of those before.
    pub(crate) fn set_services(&mut self, services: Vec<Entry>) {
        if services == self.services {
            return;
        }
        let entries = std::mem::take(&mut self.service_entries);
        self.unregister(&entries);
        for service in &services {
            self.add_service(service);
        }
        self.services = services;
    }

    /// An app may send already what only the service is to send from now on: its VIF was opened before
    /// the address was the host's. It may go on until it closes that, and the service receives all
    /// the same.
    fn add_service(&mut self, entry: &Entry) {
        let wanted = |send: Option<Filter>| registry::Vif {
            owner: HOST,
            send,
            receive: Some(entry.receive.into()),
            action: Action::Own,
            priority: match entry.service {
                Service::Datagrams => PRIORITY_OF_REFUSALS,
                Service::Messages | Service::Arp | Service::Icmp => PRIORITY_OF_SERVICES,
            },
        };
        let registered = self.registry.register(wanted(entry.send.clone()));
        match registered.or_else(|_| self.registry.register(wanted(None))) {
            Ok(id) => {
                self.set_port(id, Port::Service(entry.service));
                self.service_entries.push(id);
            }
            Err(refusal) => {
                let service = entry.service.name();
                tracing::error!(
                    service,
                    ?refusal,
                    "the switch has no room for a service of the host"
                );
            }
        }
    }

    /// Opens a VIF for `channel`. `name` says what a channel's app is called, for refusals.
    pub(crate) fn open(
        &mut self,
        now: Time,
        channel: u32,
        id: u32,
        spec: VifSpec,
        name: impl Fn(u32) -> String,
    ) -> Result<(), VifRefused> {
        let entries = self.register(channel, &spec, name)?;
        self.insert(Vif::new(channel, id, spec, entries, now));
        Ok(())
    }

    /// Takes what a VIF wants into the registry, if nothing speaks against it.
    pub(in crate::switch) fn register(
        &mut self,
        channel: u32,
        spec: &VifSpec,
        name: impl Fn(u32) -> String,
    ) -> Result<Vec<VifId>, VifRefused> {
        self.check_spec(spec)?;
        let receive = union("receive", &spec.receive)?;
        let (copies, send) = (union("copies", &spec.copies)?, union("transmit", &spec.transmit)?);
        let own = registry::Vif {
            owner: owner_of(channel),
            send,
            receive,
            action: Action::Own,
            priority: spec.priority + 1,
        };
        let copies = copies.map(|copies| registry::Vif {
            owner: owner_of(channel),
            send: None,
            receive: Some(copies),
            action: Action::Copy,
            priority: PRIORITY_OF_COPIES,
        });
        let mut entries = Vec::new();
        for entry in core::iter::once(own).chain(copies) {
            match self.registry.register(entry) {
                Ok(entry) => entries.push(entry),
                Err(refusal) => {
                    let refused = VifRefused::new(refusal, |owner| match owner.0.checked_sub(1) {
                        Some(channel) => {
                            self.name_of_sibling(channel).unwrap_or_else(|| name(channel))
                        }
                        None => "the host".into(),
                    });
                    entries.iter().for_each(|entry| _ = self.registry.remove(*entry));
                    return Err(refused);
                }
            }
        }
        Ok(entries)
    }

    fn check_spec(&self, spec: &VifSpec) -> Result<(), VifRefused> {
        if spec.priority > PRIORITY_MAX {
            return Err(VifRefused::Priority(spec.priority));
        }
        let services = self.registry.vifs().filter(|(_, entry)| entry.owner == HOST);
        for (entry, of_host) in services.filter(|(_, entry)| entry.priority > PRIORITY_MAX) {
            let taken = of_host.receive.iter().flat_map(Filter::clauses);
            let wanted = spec.receive.iter().flat_map(Filter::clauses);
            for clause in taken {
                let mut wanted = wanted.clone();
                if let Some(wanted) = wanted.find(|wanted| clause.contains(&in_full(wanted))) {
                    let Some(Port::Service(service)) = self.port(entry) else { continue };
                    let wanted = (*wanted).into();
                    return Err(VifRefused::OfHost { wanted, service: service.name() });
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, vif: Vif) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.vifs.push(None);
            self.vifs.len() as u32 - 1
        });
        let key = VifKey { slot, channel: vif.channel };
        for entry in vif.entries.clone() {
            self.set_port(entry, Port::Vif(key));
        }
        self.keys.insert((vif.channel, vif.id), key);
        self.add_mac(vif.spec.mac);
        self.vifs[slot as usize] = Some(vif);
    }

    pub(in crate::switch) fn add_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if mac != self.macs[0] {
            self.macs.push(mac);
        }
    }

    pub(in crate::switch) fn remove_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if let Some(index) = self.macs.iter().skip(1).position(|other| *other == mac) {
            self.macs.remove(index + 1);
        }
    }

    /// What was registered is registered no more.
    pub(in crate::switch) fn unregister(&mut self, entries: &[VifId]) {
        for entry in entries {
            self.registry.remove(*entry);
            self.ports[entry.0 as usize] = None;
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
        let of_channel = self.keys.values().filter(|key| key.channel == channel);
        for key in of_channel.copied().collect::<Vec<_>>() {
            self.take(key.slot());
        }
    }

    fn take(&mut self, slot: usize) -> Option<Vif> {
        let vif = self.vifs[slot].take()?;
        self.unregister(&vif.entries);
        let key = VifKey { slot: slot as u32, channel: vif.channel };
        self.keys.remove(&(vif.channel, vif.id));
        self.senders.retain(|other| *other != key);
        self.touched.retain(|other| *other != key);
        self.remove_mac(vif.spec.mac);
        self.free.push(slot as u32);
        Some(vif)
    }

    /// Begins to copy what passes to a channel.
    pub(crate) fn open_capture(&mut self, channel: u32, id: u32, spec: CaptureSpec) {
        self.captures.push(Capture::new(channel, id, spec, None));
    }
}

fn owner_of(channel: u32) -> OwnerId {
    OwnerId(channel + 1)
}

/// A clause with what follows from it: what has no tag has no VLAN id.
fn in_full(clause: &Clause) -> Clause {
    let no_vlan = Clause::new(Pattern::ANY.with(fields::VLAN_ID, 0));
    match clause.pattern().field(fields::TAGGED) {
        (1, 0) => clause.intersection(&no_vlan).unwrap_or(*clause),
        _ => *clause,
    }
}

/// All alternatives of several filters as one; `None` if there are none.
fn union(list: &'static str, filters: &[Filter]) -> Result<Option<Filter>, VifRefused> {
    if filters.is_empty() {
        return Ok(None);
    }
    let clauses = filters.iter().flat_map(|filter| filter.clauses().to_vec()).collect();
    Filter::of(clauses).map(Some).ok_or(VifRefused::Alternatives(list))
}
