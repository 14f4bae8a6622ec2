//! What is registered: who may have which patterns on a NIC. The registry decides, a slice at a
//! time, so that a request which is much work makes nobody else wait.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::Filter;
use clearway_classify::registry::{
    self, CheckId, Limits as RegistryLimits, OwnerId, Registry, Reserved, UserId, VifId,
};
use clearway_engine::{Service, entries, ip};

use super::super::ControlPlane;
use super::super::requests::refusal;
use super::Vifs;
use crate::config::Limits;
use crate::policy::Grant;

/// Comparisons between two looks at the sockets, for all users of a NIC together: some tenths of a
/// millisecond.
const COMPARISONS_PER_TURN: usize = 8192;

impl ControlPlane {
    /// When [`ControlPlane::advance_checks`] has something to do.
    pub(in crate::control) fn checks_due(&self) -> Option<Instant> {
        self.nics.iter().any(|nic| nic.vifs.registry.is_checking()).then(Instant::now)
    }

    /// Goes on with what is being checked, and with what has been.
    pub(in crate::control) fn advance_checks(&mut self) {
        for nic in 0..self.nics.len() {
            let mut left = COMPARISONS_PER_TURN;
            while left > 0 && self.nics[nic].vifs.registry.is_checking() {
                if let Some((check, result)) = self.nics[nic].vifs.registry.advance(&mut left) {
                    self.checked(nic, check, result);
                }
            }
        }
    }

    /// What has been registered is opened; what has been refused is told.
    fn checked(&mut self, nic: usize, check: CheckId, result: Result<VifId, registry::Refusal>) {
        let vifs = &mut self.nics[nic].vifs;
        let Some(number) = vifs.checks.remove(&check) else { return };
        let Some(vif) = vifs.table.get_mut(&number) else { return };
        vif.registered = result.as_ref().ok().copied();
        let engine = vif.engine;
        let result = result.map(drop).map_err(|refused| vifs.refused(&refused));
        let ports_max = self.accounts.ports_per_user();
        match result.and_then(|()| self.nics[nic].claim(number, ports_max)) {
            Ok(()) => self.open_at_engines(engine, number),
            Err(refusal) => {
                self.nics[nic].vifs.unregister(number);
                self.refuse_opening(number, refusal);
                self.forget_vif(engine, number);
            }
        }
    }
}

impl Vifs {
    pub(crate) fn new(interface: &ip::Config, udp_port: u16, limits: &Limits) -> Self {
        let mut of_registry = RegistryLimits::default();
        of_registry.user.clauses = limits.patterns_per_user;
        let mut vifs = Self {
            table: BTreeMap::new(),
            registry: Registry::new(of_registry),
            checks: HashMap::new(),
            held: HashMap::new(),
        };
        vifs.reserve(interface, udp_port);
        vifs
    }

    /// The host's own services have what they need with these addresses.
    pub(in crate::control) fn reserve(&mut self, interface: &ip::Config, udp_port: u16) {
        // Datagrams are refused where nobody has them; whoever wants them may have them.
        let entries = entries(interface, udp_port).into_iter();
        let entries = entries.filter(|entry| entry.service != Service::Datagrams);
        let reserved = entries.map(|entry| Reserved {
            name: entry.service.name(),
            receive: entry.receive,
            send: entry.send,
        });
        self.registry.reserve(reserved.collect());
    }

    /// Begins to compare what was granted with what others have.
    pub(super) fn check(
        &mut self,
        user: u32,
        channel: u32,
        grant: &Grant,
    ) -> Result<CheckId, Refusal> {
        let all = |filters: &[Filter]| {
            Filter::of(filters.iter().flat_map(|filter| filter.clauses().to_vec()).collect())
        };
        let vif = registry::Vif {
            owner: OwnerId(channel),
            user: UserId(user),
            send: all(&grant.transmit),
            receive: all(&grant.receive),
            copies: all(&grant.copies),
            priority: grant.priority,
        };
        self.registry.begin(vif).map_err(|refused| self.refused(&refused))
    }

    pub(super) fn cancel(&mut self, check: CheckId) {
        self.checks.remove(&check);
        self.registry.cancel(check);
    }

    /// Others may have the patterns of an interface.
    pub(super) fn unregister(&mut self, number: u32) {
        let registered = self.table.get_mut(&number).and_then(|vif| vif.registered.take());
        if let Some(registered) = registered {
            self.registry.remove(registered);
        }
    }

    /// What an app is told of a refusal.
    fn refused(&self, refused: &registry::Refusal) -> Refusal {
        use registry::Refusal as Why;
        let text = match refused {
            Why::Send { wanted, existing, owner } => format!(
                "`{wanted}` overlaps with `{existing}`, which {} may send; choose other ports or \
                 addresses, or end that app",
                self.name_of(*owner)
            ),
            Why::Receive { wanted, existing, owner, .. } => format!(
                "`{wanted}` overlaps with `{existing}`, which {} receives with the same priority; \
                 choose other ports or addresses, or declare another priority",
                self.name_of(*owner)
            ),
            other => other.to_string(),
        };
        let code = match refused {
            Why::TooMany { .. } | Why::TooManyOfUser { .. } => Code::Limit,
            _ => Code::AddressInUse,
        };
        refusal(code, text)
    }

    /// What the app of a channel is called.
    fn name_of(&self, owner: OwnerId) -> String {
        let mut of_owner = self.table.values().filter(|vif| vif.channel == owner.0);
        let app = of_owner.next().map_or("?", |vif| vif.app.as_str());
        format!("app {app} (channel {})", owner.0)
    }
}
