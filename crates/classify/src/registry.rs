//! The registry: all virtual interfaces of a NIC, and who may have which. The control plane has it;
//! what it has taken in goes to the engines' [`Directory`](crate::Directory) as it is.
//!
//! - Two owners' send patterns never overlap: "patterns for outgoing packets are not allowed to
//!   overlap so that processes cannot interfere with each others traffic" (the paper, section 3).
//! - Two owners' receive patterns overlap only if their declared priorities differ. An owner's own
//!   may overlap as they like; the one that came first goes first.
//! - A *copy* delivers and goes on: it takes nothing from anybody, and may overlap with everything.
//!   Whether an owner may have copies at all is the policy's business, as is who may have which
//!   address.
//! - What the host has for itself is there first, takes no room from users, and comes and goes as a
//!   whole.
//!
//! ```text
//!  begin ─▶ the user's queue ─▶ advance: a slice of one user's first check, then the next user's
//!    │                            │
//!    └─ no: limits                └─▶ registered, or refused
//! ```
//!
//! An exact pattern is compared with one value per mask in use, however many VIFs there are; a wide
//! one with every clause. So a check is made in slices of counted work, and users take turns: who
//! asks for much waits for it, and nobody else does.

mod checks;
mod limits;
mod overlaps;
mod refusal;
#[cfg(test)]
mod tests;

pub use checks::CheckId;
pub use limits::{CLAUSES, Limits, Most};
pub use refusal::Refusal;

use crate::slab::Slab;
use crate::{Clause, Filter, RuleId};
use checks::Checks;
use limits::Usage;
use overlaps::Overlaps;
use std::collections::BTreeMap;

/// Who has a VIF: an app. Chosen by whoever registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u32);

/// On whose account a VIF goes. A user may have several apps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(pub u32);

/// A virtual interface. The id of one that is removed is given to another later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VifId(pub u32);

/// A VIF as somebody wants it, or has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vif {
    /// Whose it is.
    pub owner: OwnerId,
    /// Whose limits it counts against.
    pub user: UserId,
    /// What it may send; nothing if there is no filter.
    pub send: Option<Filter>,
    /// What it receives, and nobody else does; nothing if there is no filter.
    pub receive: Option<Filter>,
    /// What it gets copies of; nothing if there is no filter.
    pub copies: Option<Filter>,
    /// Its place among others that receive the same: the higher goes first.
    pub priority: u16,
}

/// What the host has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// What of the host has it.
    pub name: &'static str,
    /// What it receives before all VIFs.
    pub receive: Clause,
    /// What nobody else may send.
    pub send: Option<Filter>,
}

/// A registered VIF and its rules.
#[derive(Debug)]
struct Entry {
    vif: Vif,
    send_rules: Vec<RuleId>,
    receive_rules: Vec<RuleId>,
}

/// All VIFs of a NIC.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    vifs: Slab<Entry>,
    users: BTreeMap<UserId, Usage>,
    total: Usage,
    send: Overlaps,
    receive: Overlaps,
    reserved: Vec<Reserved>,
    checks: Checks,
}

impl Registry {
    /// A registry without VIFs.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            vifs: Slab::default(),
            users: BTreeMap::new(),
            total: Usage::default(),
            send: Overlaps::default(),
            receive: Overlaps::default(),
            reserved: Vec::new(),
            checks: Checks::default(),
        }
    }

    /// Other limits hold for what comes from now on. What there is stays, also where it is more.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// From now on the host has these for itself, instead of those before. Who may send already
    /// what is the host's from now on may go on: its VIF was registered before an address was the
    /// host's.
    pub fn reserve(&mut self, reserved: Vec<Reserved>) {
        self.reserved = reserved;
    }

    /// Takes a VIF out; false if there is none of that id.
    pub fn remove(&mut self, id: VifId) -> bool {
        let Some(entry) = self.vifs.remove(id.0) else { return false };
        for rule in &entry.send_rules {
            self.send.remove(*rule);
        }
        for rule in &entry.receive_rules {
            self.receive.remove(*rule);
        }
        self.total.leave(&entry.vif);
        let usage = self.users.get_mut(&entry.vif.user).expect("who has a VIF has a usage");
        if usage.leave(&entry.vif) {
            self.users.remove(&entry.vif.user);
        }
        true
    }

    /// A registered VIF.
    #[must_use]
    pub fn vif(&self, id: VifId) -> Option<&Vif> {
        self.vifs.find(id.0).map(|entry| &entry.vif)
    }

    /// All registered VIFs.
    pub fn vifs(&self) -> impl Iterator<Item = (VifId, &Vif)> {
        self.vifs.iter().map(|(index, entry)| (VifId(index), &entry.vif))
    }

    fn admit(&self, vif: &Vif) -> Result<(), Refusal> {
        let nothing = Usage::default();
        let of_user = self.users.get(&vif.user).unwrap_or(&nothing);
        of_user.admit(vif, &self.limits.user).map_err(|(what, limit)| {
            let user = vif.user;
            Refusal::TooManyOfUser { what, limit, user }
        })?;
        let of_all = self.total.admit(vif, &self.limits.total);
        of_all.map_err(|(what, limit)| Refusal::TooMany { what, limit })
    }

    /// Whether the host leaves to apps what `vif` wants.
    fn check_reserved(&self, vif: &Vif) -> Result<(), Refusal> {
        for Reserved { name, receive, send } in &self.reserved {
            let mut wanted = vif.send.iter().flat_map(Filter::clauses);
            let existing = |wanted: &Clause| {
                let mut reserved = send.iter().flat_map(Filter::clauses);
                reserved.find(|reserved| reserved.overlaps(wanted)).copied()
            };
            if let Some((wanted, existing)) =
                wanted.find_map(|wanted| Some((*wanted, existing(wanted)?)))
            {
                let (wanted, existing) = (wanted.into(), existing.into());
                return Err(Refusal::SendReserved { wanted, existing, name });
            }
            let mut wanted = vif.receive.iter().flat_map(Filter::clauses);
            if let Some(wanted) = wanted.find(|wanted| receive.contains(&wanted.in_full())) {
                return Err(Refusal::ReceiveReserved { wanted: (*wanted).into(), name });
            }
        }
        Ok(())
    }

    fn insert(&mut self, vif: Vif) -> VifId {
        let clauses = |filter: &Option<Filter>| {
            filter.as_ref().map_or(Vec::new(), |filter| filter.clauses().to_vec())
        };
        let (send, receive) = (clauses(&vif.send), clauses(&vif.receive));
        self.total.enter(&vif);
        self.users.entry(vif.user).or_default().enter(&vif);
        let entry = Entry { vif, send_rules: Vec::new(), receive_rules: Vec::new() };
        let id = VifId(self.vifs.insert(entry));
        let send_rules = send.into_iter().map(|clause| self.send.insert(clause, id)).collect();
        let receive_rules =
            receive.into_iter().map(|clause| self.receive.insert(clause, id)).collect();
        let entry = self.vifs.find_mut(id.0).expect("just inserted");
        (entry.send_rules, entry.receive_rules) = (send_rules, receive_rules);
        id
    }
}
