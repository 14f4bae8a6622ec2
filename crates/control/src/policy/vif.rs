//! Who may have which virtual interface: from what an app asks for, and the rules of the
//! configuration, to what the engine shall do. Whether that collides with what others have, the
//! engine knows.
//!
//! Two things hold for everybody, root included: a frame's Ethernet source is that of its
//! interface, and nobody sends what the host's own services send. They also receive what is theirs
//! before anybody else, to which the engine sees; who asks for nothing but that is told here.

mod ports;
mod rights;
mod station;
mod tcp_port;
mod wanted;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use clearway_channel::Code;
use clearway_channel::control::{OpenVif, Refusal};
use clearway_classify::Filter;
use clearway_engine::{PRIORITY_MAX, VifSpec, VifTexts};
use clearway_nic::MacAddress;

use super::{Accounts, Peer, limit_reached};
pub use ports::HostPort;
use ports::Side;
use rights::Rights;
use wanted::Wanted;

/// What counts as an interface, the TCP ports included that are taken for connecting.
const COUNTED: &str = "interfaces, captures and TCP ports";

/// What the policy has to know of the NIC on which an interface is wanted.
#[derive(Clone, Debug)]
pub struct Place {
    /// The host's addresses there.
    pub addresses: Vec<IpAddr>,
    /// The host's addresses on all its NICs, these included.
    pub host: Vec<IpAddr>,
    /// The NIC's Ethernet address.
    pub mac: MacAddress,
    /// The VLAN whose tag the host's frames carry.
    pub vlan: Option<u16>,
    /// The port of the message service.
    pub udp_port: u16,
    /// Interfaces there that have an Ethernet address of their own.
    pub stations: Vec<Station>,
}

/// An Ethernet address on a NIC that is not the NIC's own, and the IP address that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// The Ethernet address.
    pub mac: MacAddress,
    /// The IP address.
    pub address: Option<IpAddr>,
    /// Whose it is, for people.
    pub owner: String,
}

/// What an app gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// What it receives, and nobody else.
    pub receive: Vec<Filter>,
    /// What it has copies of.
    pub copies: Vec<Filter>,
    /// What it may send.
    pub transmit: Vec<Filter>,
    /// Ports of the host's addresses that it receives at or sends from.
    pub ports: HashSet<HostPort>,
    /// Whose frames are whose where filters of several interfaces match: the highest wins.
    pub priority: u16,
    /// Its own, or the NIC's.
    pub mac: MacAddress,
    /// It has one of its own.
    pub has_own_mac: bool,
    /// What this host's kernel sends to that is the interface's: nobody else can have the address,
    /// or an administrator has named it.
    pub is_kernels_neighbour: bool,
    /// The IP address of its own, if it has one.
    pub address: Option<IpAddr>,
    /// Frames per second that it may send.
    pub rate_frames_per_s: Option<u32>,
}

impl Accounts {
    /// What `peer` gets of what it asks for: all of it, or a refusal. `generated` is the Ethernet
    /// address that it gets if it wants one of its own and does not care which.
    ///
    /// # Errors
    /// What it may not have, and why.
    pub fn grant_vif(
        &self,
        peer: &Peer,
        open: &OpenVif,
        place: &Place,
        generated: MacAddress,
    ) -> Result<Grant, Refusal> {
        let rights = self.rights(peer, place.vlan);
        if open.priority > PRIORITY_MAX {
            let text =
                format!("priority {} is too high; the highest is {PRIORITY_MAX}", open.priority);
            return Err(invalid(text));
        }
        rights.check_priority(open.priority)?;
        let own = rights.station(open, place, generated)?;
        let wanted = Wanted::read(open, place, own.as_ref())?;
        rights.check(&wanted, place, own.as_ref())?;
        let grant = self.granted(wanted, place, own.is_some())?;
        Ok(Grant {
            priority: open.priority,
            mac: own.as_ref().map_or(place.mac, |own| own.mac),
            has_own_mac: own.is_some(),
            is_kernels_neighbour: own.is_some() && rights.may_take_from_kernel(open),
            address: own.and_then(|own| own.address),
            rate_frames_per_s: rights.rate_frames_per_s(),
            ..grant
        })
    }

    /// What its user may have is granted, if it is none of the host's services' and about ports
    /// that can be claimed; with the NIC's Ethernet address.
    fn granted(&self, wanted: Wanted, place: &Place, has_own_mac: bool) -> Result<Grant, Refusal> {
        let Wanted { receive, copies, transmit, .. } = wanted;
        station::check_reserved(&receive, &transmit, place)?;
        let ports = self.ports_of_vif(&receive, &transmit, place, has_own_mac)?;
        Ok(Grant { receive, copies, transmit, ports, mac: place.mac, ..Grant::default() })
    }

    /// The ports of the host's addresses that an interface with these filters is about. Frames to
    /// an Ethernet address of its own are not the kernel's; those that come from one may well pass
    /// for a port of the kernel's.
    ///
    /// # Errors
    /// If they are too many, or it cannot be said which.
    pub fn ports_of_vif(
        &self,
        receive: &[Filter],
        transmit: &[Filter],
        place: &Place,
        has_own_mac: bool,
    ) -> Result<HashSet<HostPort>, Refusal> {
        let most = self.policy.limits.ports_per_vif;
        let mut found = HashSet::new();
        if !has_own_mac {
            ports::find(receive, Side::Destination, place, most, &mut found)?;
        }
        ports::find(transmit, Side::Source, place, most, &mut found)?;
        Ok(found)
    }

    /// Whether `peer` may see what passes.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_capture(&self, peer: &Peer) -> Result<(), Refusal> {
        self.rights(peer, None).check_capture()
    }

    /// Whether `peer` may take interfaces away from others.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_revoke(&self, peer: &Peer) -> Result<(), Refusal> {
        self.rights(peer, None).check_revoke()
    }

    /// Counts an interface or a capture, if this peer may have another one.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn open_vif(&mut self, peer: &Peer) -> Result<(), Refusal> {
        let limits = &self.policy.limits;
        if self.total.vifs >= limits.vifs_total {
            return Err(limit_reached(COUNTED, "vifs_total", limits.vifs_total as u64));
        }
        let rights = self.rights(peer, None);
        let most = rights.vifs_max().unwrap_or(limits.vifs_per_user);
        if self.account(peer.user).vifs >= most {
            return Err(rights.too_many(most));
        }
        self.users.entry(peer.user).or_default().vifs += 1;
        self.total.vifs += 1;
        Ok(())
    }

    /// Counts interfaces or captures out.
    pub fn close_vifs(&mut self, user: u32, count: usize) {
        self.total.vifs -= count;
        self.change(user, |account| account.vifs -= count);
    }

    fn rights(&self, peer: &Peer, vlan: Option<u16>) -> Rights<'_> {
        if peer.user == 0 || peer.user == self.own_user {
            return Rights::everything(peer.user);
        }
        let rule = self.policy.vifs.iter().find(|rule| rule.people.include(peer));
        Rights::of_rule(peer.user, rule, vlan)
    }
}

impl Grant {
    /// What engines are asked for.
    #[must_use]
    pub fn spec(&self) -> VifSpec {
        let texts = |filters: &[Filter]| filters.iter().map(ToString::to_string).collect();
        let texts = VifTexts {
            receive: texts(&self.receive),
            copies: texts(&self.copies),
            transmit: texts(&self.transmit),
        };
        VifSpec {
            receive: self.receive.clone(),
            copies: self.copies.clone(),
            transmit: self.transmit.clone(),
            priority: self.priority,
            mac: self.mac,
            rate_frames_per_s: self.rate_frames_per_s,
            texts: Arc::new(texts),
        }
    }
}

fn denied(message: String) -> Refusal {
    Refusal { code: Code::Denied, message }
}

fn invalid(message: String) -> Refusal {
    Refusal { code: Code::Invalid, message }
}

#[cfg(test)]
mod tests;
