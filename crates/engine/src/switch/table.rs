//! The switch itself: ports, and the table that says whose a packet is.

use std::collections::{HashMap, VecDeque};

use clearway_base::Time;
use clearway_channel::{Code, Completion, FrameRefusal};
use clearway_classify::registry::{Action, Limits, OwnerId, VifId};
use clearway_classify::{Clause, Filter, Pattern, Registry, registry};
use clearway_nic::MacAddress;
use clearway_wire::digest::{Digest, fields};

use super::Table;
use super::capture::{Capture, CaptureSpec};
use super::refusal::{self, VifRefused};
use super::sibling::SiblingVif;
use super::vif::{Vif, VifSpec};
use crate::channels::Channels;
use crate::interface::{Entry, Service};
use crate::snapshot::{CaptureSnapshot, VifSnapshot};

/// The highest priority that a VIF may declare.
pub const PRIORITY_MAX: u16 = 60_000;
/// Copies are given before an owner is looked for.
const PRIORITY_OF_COPIES: u16 = u16::MAX;
/// What the host needs for itself comes before all VIFs.
const PRIORITY_OF_SERVICES: u16 = u16::MAX - 1;
/// What nobody has is refused last of all.
const PRIORITY_OF_REFUSALS: u16 = 0;
/// The owner of the host's services.
const HOST: OwnerId = OwnerId(0);

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
    registry: Registry<Table>,
    /// By the number of the registered entry.
    ports: Vec<Option<Port>>,
    /// What the host's services have, and its registered entries.
    services: Vec<Entry>,
    service_entries: Vec<VifId>,
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
    /// The Ethernet addresses of this host: the NIC's first, then those of VIFs that have one of
    /// their own, once per VIF.
    macs: Vec<u64>,
}

impl Switch {
    /// A switch whose only ports are the NIC, at `mac`, and the host's services.
    pub(crate) fn new(mac: MacAddress, services: Vec<Entry>) -> Self {
        let mut switch = Self {
            registry: Registry::new(Limits::default(), Table::default()),
            ports: Vec::new(),
            services: Vec::new(),
            service_entries: Vec::new(),
            vifs: Vec::new(),
            free: Vec::new(),
            keys: HashMap::new(),
            of_siblings: Vec::new(),
            captures: Vec::new(),
            senders: VecDeque::new(),
            touched: Vec::new(),
            macs: vec![mac_number(mac)],
        };
        switch.set_services(services);
        switch
    }

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

    // ---- opening and closing ----

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
    pub(super) fn register(
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

    pub(super) fn add_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if mac != self.macs[0] {
            self.macs.push(mac);
        }
    }

    pub(super) fn remove_mac(&mut self, mac: MacAddress) {
        let mac = mac_number(mac);
        if let Some(index) = self.macs.iter().skip(1).position(|other| *other == mac) {
            self.macs.remove(index + 1);
        }
    }

    /// What was registered is registered no more.
    pub(super) fn unregister(&mut self, entries: &[VifId]) {
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

    // ---- whose is it ----

    /// The VIF with the lowest slot: for measuring what passes without being looked at.
    pub(crate) fn first_vif(&self) -> Option<VifKey> {
        let slot = self.vifs.iter().position(Option::is_some)?;
        let channel = self.vifs[slot].as_ref()?.channel;
        Some(VifKey { slot: slot as u32, channel })
    }

    /// The owner of each packet, `None` where it is nobody's here.
    #[inline]
    pub(crate) fn find(&mut self, digests: &[Digest], owners: &mut [Option<Port>]) {
        if let Some(entry) = self.registry.common_receiver(digests) {
            return owners.fill(entry.and_then(|entry| self.port(entry)));
        }
        let mut entries = [None; clearway_nic::BURST_FRAMES];
        self.registry.receivers(digests, &mut entries[..digests.len()]);
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
        if self.macs.contains(&mac) { Destination::Here } else { Destination::Wire }
    }

    /// True if a copy or a capture may be wanted of what passes.
    #[inline]
    pub(crate) fn has_onlookers(&self) -> bool {
        self.registry.has_copies() || !self.captures.is_empty()
    }

    /// True if what the host itself sends can only be for the NIC, and nobody wants to see it.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.macs.len() == 1 && !self.has_onlookers()
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
        for entry in self.registry.copies(digest, None) {
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

    /// Whether a VIF may send a frame with this digest.
    #[inline]
    pub(crate) fn check(
        &mut self,
        now: Time,
        key: VifKey,
        digest: &Digest,
    ) -> Result<(), FrameRefusal> {
        let Some(vif) = self.vifs.get_mut(key.slot()).and_then(Option::as_mut) else {
            return Err(FrameRefusal::Nothing);
        };
        let entry = vif.entries[0];
        if !self.registry.may_send(entry, digest) {
            let fault = self.registry.send_fault(entry, digest);
            return Err(fault.map_or(FrameRefusal::Other, refusal::of_fault));
        }
        vif.take_rate(now)
    }

    /// Which frames of a VIF may be sent and can only be for the NIC, one bit each from the lowest:
    /// all that there is to say about them while nobody watches and no rate is to be kept.
    #[inline]
    pub(crate) fn clear_for_wire(&self, key: VifKey, digests: &[Digest]) -> u32 {
        let vif = self.vifs.get(key.slot()).and_then(Option::as_ref);
        let Some(vif) = vif.filter(|vif| !vif.has_rate() && !self.is_watched()) else { return 0 };
        let Some(filter) = self.registry.vif(vif.entries[0]).and_then(|entry| entry.send.as_ref())
        else {
            return 0;
        };
        digests.iter().enumerate().fold(0, |clear, (index, digest)| {
            let is_clear = filter.matches(digest) && self.destination(digest) == Destination::Wire;
            clear | u32::from(is_clear) << index
        })
    }

    /// A port is copied as a whole: one that is put together from parts has to be waited for.
    #[inline]
    fn port(&self, entry: VifId) -> Option<Port> {
        *self.ports.get(entry.0 as usize).unwrap_or(&None)
    }

    pub(super) fn set_port(&mut self, entry: VifId, port: Port) {
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

/// As it stands in a digest.
fn mac_number(mac: MacAddress) -> u64 {
    mac.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// All alternatives of several filters as one; `None` if there are none.
fn union(list: &'static str, filters: &[Filter]) -> Result<Option<Filter>, VifRefused> {
    if filters.is_empty() {
        return Ok(None);
    }
    let clauses = filters.iter().flat_map(|filter| filter.clauses().to_vec()).collect();
    Filter::of(clauses).map(Some).ok_or(VifRefused::Alternatives(list))
}
