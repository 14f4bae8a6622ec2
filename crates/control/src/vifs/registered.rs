//! What is registered: who may have which patterns on a NIC. The registry decides, a slice at a
//! time, so that a request which is much work makes nobody else wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_classify::registry::{
    self, CheckId, Limits, OwnerId, Registry, Reserved, UserId, VifId,
};
use clearway_classify::{Clause, Filter};
use clearway_engine::{VifSpec, entries, ip};
use clearway_wire::digest::{Field, Network, fields};

use super::{Stage, VifError, VifOwner, VifStep, Vifs};

/// The registry of a NIC.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Registry,
    /// The host's addresses there.
    own: Vec<IpAddr>,
    /// The numbers of the interfaces that are being checked.
    checks: BTreeMap<CheckId, u32>,
}

impl Registered {
    pub(super) fn new(limits: Limits) -> Self {
        Self { registry: Registry::new(limits), own: Vec::new(), checks: BTreeMap::new() }
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.registry.set_limits(limits);
    }

    /// Begins to compare an interface with those that others have.
    pub(super) fn begin(
        &mut self,
        number: u32,
        registered_as: OwnerId,
        owner: VifOwner,
        spec: &VifSpec,
    ) -> Result<CheckId, registry::Refusal> {
        let all = |filters: &[Filter]| {
            Filter::of(filters.iter().flat_map(|filter| filter.clauses().to_vec()).collect())
        };
        let sent = spec.transmit.iter().flat_map(Filter::clauses);
        let sent = sent.map(|clause| from_any_mac(clause, &self.own));
        let check = self.registry.begin(registry::Vif {
            owner: registered_as,
            user: UserId(owner.user),
            send: Filter::of(sent.collect()),
            receive: all(&spec.receive),
            copies: all(&spec.copies),
            priority: spec.priority,
        })?;
        self.checks.insert(check, number);
        Ok(check)
    }

    fn cancel(&mut self, check: CheckId) {
        self.checks.remove(&check);
        self.registry.cancel(check);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.registry.vifs().next().is_none() && self.checks.is_empty()
    }
}

impl Vifs {
    /// The host's own services have what they need on a NIC with these addresses, from now on.
    pub fn reserve(&mut self, nic: usize, interface: &ip::Config, udp_port: u16) {
        let entries = entries(interface, udp_port).into_iter();
        let entries = entries.filter(|entry| !entry.service.is_last_resort());
        let reserved = entries.map(|entry| Reserved {
            name: entry.service.name(),
            receive: entry.receive,
            send: entry.send,
        });
        let registered = &mut self.nics[nic].registered;
        registered.own = interface.addresses.iter().map(|(address, _)| *address).collect();
        registered.registry.reserve(reserved.collect());
    }

    /// True if [`Vifs::advance`] has something to do.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        self.nics.iter().any(|nic| nic.registered.registry.is_checking())
    }

    /// Goes on with what is being checked, for about so many comparisons on each NIC.
    pub fn advance(&mut self, comparisons: usize) {
        for nic in 0..self.nics.len() {
            let mut left = comparisons;
            while left > 0 && self.nics[nic].registered.registry.is_checking() {
                let registered = &mut self.nics[nic].registered;
                if let Some((check, result)) = registered.registry.advance(&mut left)
                    && let Some(number) = registered.checks.remove(&check)
                {
                    self.checked(number, result);
                }
            }
        }
    }

    fn checked(&mut self, number: u32, result: Result<VifId, registry::Refusal>) {
        let Some(vif) = self.table.get_mut(&number) else { return };
        vif.stage = Stage::Claiming;
        match result {
            Ok(id) => {
                vif.registered = Some(id);
                self.steps.push_back(VifStep::Claim(number));
            }
            Err(refused) => self.refuse(number, VifError::Registry(refused)),
        }
    }

    /// Others may have the patterns of an interface.
    pub(super) fn unregister(&mut self, number: u32) {
        let Some(vif) = self.table.get_mut(&number) else { return };
        let registered = &mut self.nics[vif.nic].registered;
        if let Stage::Checking(check) = vif.stage {
            registered.cancel(check);
        }
        if let Some(id) = vif.registered.take() {
            registered.registry.remove(id);
        }
    }
}

/// What is sent from an address of the host's, whichever Ethernet address it comes from: peers take
/// it for the same. So nobody speaks for another from an Ethernet address of its own, nor for who
/// has a TCP port when the NIC's has become another.
fn from_any_mac(clause: &Clause, own: &[IpAddr]) -> Clause {
    match source(clause) {
        Some(source) if own.contains(&source) => clause.without(fields::MAC_SOURCE),
        _ => *clause,
    }
}

/// The IP address that packets come from, if the clause says all of it.
fn source(clause: &Clause) -> Option<IpAddr> {
    let whole = |field: Field| {
        let (mask, value) = clause.pattern().field(field);
        (mask == field.max()).then_some(value)
    };
    match whole(fields::NETWORK)? {
        network if network == Network::Ipv4 as u64 => {
            Some(Ipv4Addr::from_bits(whole(fields::IPV4_SOURCE)? as u32).into())
        }
        network if network == Network::Ipv6 as u64 => {
            let [high, low] = [fields::IPV6_SOURCE_HIGH, fields::IPV6_SOURCE_LOW].map(whole);
            Some(Ipv6Addr::from_bits(u128::from(high?) << 64 | u128::from(low?)).into())
        }
        _ => None,
    }
}
