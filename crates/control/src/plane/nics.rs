//! The NICs of a host, as far as apps have to do with them.

use std::net::IpAddr;
use std::ops::Range;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_engine::ip;

use super::Plane;
use crate::engines::Engine;
use crate::policy::Network;
use crate::refusal::refusal;
use crate::steered::Holdings;

/// What is known of a NIC when the host is made.
#[derive(Clone, Debug)]
pub struct NicFacts {
    /// Its name, for people.
    pub name: String,
    /// The names of the engines that serve it.
    pub engines: Vec<String>,
    /// The host's network there.
    pub interface: ip::Config,
    /// Frames come to the engines only if the NIC is asked for them; of what there is room for
    /// there, everybody gets a part.
    pub has_steering: bool,
    /// Why there are no virtual interfaces, if so, and what to do about it.
    pub only_messages: Option<&'static str>,
}

/// A NIC.
#[derive(Debug)]
pub struct Nic {
    /// Its name, for people.
    pub name: String,
    /// The indexes of the engines that serve it.
    pub engines: Range<usize>,
    /// The host's network there, as it is now.
    pub interface: ip::Config,
    /// The configuration names it no more: no app is put there, and those that are there reach
    /// others only.
    pub is_removed: bool,
    pub(super) has_steering: bool,
    only_messages: Option<&'static str>,
    /// What users' interfaces have of it.
    pub(super) holdings: Holdings,
}

/// NICs with the engines of each, one after the other.
pub(super) fn placed(facts: &[NicFacts]) -> (Vec<Nic>, Vec<Engine>) {
    let (mut nics, mut engines) = (Vec::new(), Vec::new());
    facts.iter().for_each(|facts| place(&mut nics, &mut engines, facts));
    (nics, engines)
}

fn place(nics: &mut Vec<Nic>, engines: &mut Vec<Engine>, facts: &NicFacts) {
    let (index, first) = (nics.len(), engines.len());
    engines.extend(facts.engines.iter().map(|name| Engine::new(name.clone(), index)));
    nics.push(Nic {
        name: facts.name.clone(),
        engines: first..engines.len(),
        interface: facts.interface.clone(),
        is_removed: false,
        has_steering: facts.has_steering,
        only_messages: facts.only_messages,
        holdings: Holdings::default(),
    });
}

impl Plane {
    /// The host's NICs.
    #[must_use]
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// A NIC has come to the host, after all others.
    pub fn add_nic(&mut self, facts: &NicFacts) {
        place(&mut self.nics, &mut self.engines, facts);
        let (nic, engines) = (self.nics.len() - 1, self.nics[self.nics.len() - 1].engines.clone());
        self.vifs.add_nic(engines.clone());
        self.vifs.reserve(nic, &facts.interface, self.udp_port);
        engines.for_each(|engine| self.listeners.handle_joined(engine));
        self.gather();
    }

    /// A NIC is the configuration's, or is no more.
    pub fn set_removed(&mut self, nic: usize, is_removed: bool) {
        self.nics[nic].is_removed = is_removed;
    }

    /// The host's network on a NIC has changed.
    pub fn set_network(&mut self, nic: usize, network: &ip::Config) {
        self.vifs.reserve(nic, network, self.udp_port);
        let before = std::mem::replace(&mut self.nics[nic].interface, network.clone());
        if before.mac != network.mac {
            self.take_back_senders(nic);
        }
    }
}

impl Nic {
    /// The host's addresses there, with their networks.
    pub fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        let network = |&(address, prefix_bits): &_| Network { address, prefix_bits };
        self.interface.addresses.iter().map(network)
    }

    /// The host's addresses there.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.interface.addresses.iter().map(|(address, _)| *address)
    }

    pub(super) fn may_have_vifs(&self) -> Result<(), Refusal> {
        let Some(why) = self.only_messages else { return Ok(()) };
        let text = format!("NIC {} has no virtual interfaces: {why}", self.name);
        Err(refusal(Code::Unsupported, text))
    }
}
