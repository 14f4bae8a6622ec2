//! The registry: all virtual interfaces of a host, and who may have which.
//!
//! - Two owners' send patterns never overlap: "patterns for outgoing packets are not allowed to overlap
//!   so that processes cannot interfere with each others traffic" (the paper, section 3).
//! - Two owners' receive patterns overlap only if their declared priorities differ. An owner's own may
//!   overlap as they like; the one that came first goes first.
//! - A *copy* delivers and goes on: it takes nothing from anybody, and may overlap with everything.
//!   Whether an owner may have copies at all is the policy's business, as is who may have which address.
//!
//! A registration of exact patterns costs a look-up per mask in use, however many VIFs there are.

mod limits;
mod overlaps;
mod refusal;
mod slab;
#[cfg(test)]
mod tests;

pub use limits::Limits;
pub use refusal::{Refusal, SendFault};

use crate::table::{BATCH_MAX, Production, Table};
use crate::{Clause, Filter, Rank, Rule, RuleId};
use clearway_wire::digest::{Digest, PATTERN_WORDS};
use limits::Usage;
use overlaps::Overlaps;
use slab::Slab;
use std::array;
use std::collections::BTreeMap;

/// Who has a VIF: an app, or a part of the engine. Chosen by whoever registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u32);

/// A virtual interface. The id of one that is removed is given to another later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VifId(pub u32);

/// What happens to a packet that a VIF receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is the VIF's, and no other's.
    Own,
    /// The VIF has a copy, and the search goes on.
    Copy,
}

/// A VIF as somebody wants it, or has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vif {
    /// Whose it is.
    pub owner: OwnerId,
    /// What it may send; nothing if there is no filter.
    pub send: Option<Filter>,
    /// What it receives; nothing if there is no filter.
    pub receive: Option<Filter>,
    /// What receiving means.
    pub action: Action,
    /// Its place among others that receive the same: the higher goes first.
    pub priority: u16,
}

/// A registered VIF and its rules.
#[derive(Debug)]
struct Entry {
    vif: Vif,
    rank: Rank,
    send_rules: Vec<RuleId>,
    receive_rules: Vec<RuleId>,
}

/// A copy's clause with its place in the order.
#[derive(Debug)]
struct CopyRule {
    rank: Rank,
    vif: VifId,
    clause: Clause,
}

/// The owner of packets that look like this, as far as any rule looks at them.
#[derive(Clone, Copy, Debug)]
struct Last {
    words: [u64; PATTERN_WORDS],
    owner: Option<VifId>,
}

/// All VIFs of a host. `T` finds the owners of packets.
#[derive(Debug)]
pub struct Registry<T = Production> {
    limits: Limits,
    vifs: Slab<Entry>,
    owners: BTreeMap<OwnerId, Usage>,
    sequence: u64,
    send: Overlaps,
    receive: Overlaps,
    table: T,
    /// What was said last of packets that look alike; nothing once a rule has come or gone.
    last: Option<Last>,
    /// In order of rank. The limits keep them few, and all that match are wanted.
    copies: Vec<CopyRule>,
}

impl<T: Table> Registry<T> {
    /// A registry without VIFs that puts owners' rules into `table`, which has to be empty.
    #[must_use]
    pub fn new(limits: Limits, table: T) -> Self {
        Self {
            limits,
            vifs: Slab::default(),
            owners: BTreeMap::new(),
            sequence: 0,
            send: Overlaps::default(),
            receive: Overlaps::default(),
            table,
            last: None,
            copies: Vec::new(),
        }
    }

    /// Takes a VIF in, if nothing speaks against it.
    pub fn register(&mut self, vif: Vif) -> Result<VifId, Refusal> {
        self.admit(&vif)?;
        self.check_send(&vif)?;
        self.check_receive(&vif)?;
        Ok(self.insert(vif))
    }

    /// Takes a VIF out; false if there is none of that id.
    pub fn remove(&mut self, id: VifId) -> bool {
        let Some(entry) = self.vifs.remove(id.0) else { return false };
        self.last = None;
        for rule in &entry.send_rules {
            self.send.remove(*rule);
        }
        for rule in &entry.receive_rules {
            self.receive.remove(*rule);
            self.table.remove(*rule);
        }
        if entry.vif.action == Action::Copy {
            self.copies.retain(|copy| copy.vif != id);
        }
        let usage = self.owners.get_mut(&entry.vif.owner).expect("who has a VIF has a usage");
        if usage.leave(&entry.vif) {
            self.owners.remove(&entry.vif.owner);
        }
        true
    }

    /// The VIF that owns the packet of each digest. Copies come besides: see [`Registry::copies`].
    ///
    /// # Panics
    /// If there are more digests than [`BATCH_MAX`], or than places in `found`.
    #[inline]
    pub fn receivers(&mut self, digests: &[Digest], found: &mut [Option<VifId>]) {
        let mut rules = [None; BATCH_MAX];
        self.table.classify(digests, &mut rules[..digests.len()]);
        for (rule, found) in rules.iter().zip(&mut found[..digests.len()]) {
            *found = rule.map(|rule| self.receive.vif_of(rule));
        }
    }

    /// The owner, or that there is none, of packets that all look alike as far as any rule looks at them: those of
    /// one flow often come together, and those of many flows to one server. `None` if they do not, or there are none.
    /// The table is not even asked if they look like those before.
    #[inline]
    pub fn common_receiver(&mut self, digests: &[Digest]) -> Option<Option<VifId>> {
        let decisive = self.receive.decisive();
        let look = |digest: &Digest| array::from_fn(|word| digest.words()[word] & decisive[word]);
        let (first, others) = digests.split_first()?;
        let words: [u64; PATTERN_WORDS] = look(first);
        let differs = |other: &Digest| {
            let pairs = words.iter().zip(look(other));
            pairs.fold(0, |all, (word, other): (&u64, u64)| all | (word ^ other)) != 0
        };
        if others.iter().any(differs) {
            return None;
        }
        match self.last {
            Some(last) if last.words == words => Some(last.owner),
            _ => {
                let mut owner = [None];
                self.receivers(&digests[..1], &mut owner);
                self.last = Some(Last { words, owner: owner[0] });
                Some(owner[0])
            }
        }
    }

    /// True if there are VIFs that want copies: else nobody needs to ask.
    #[inline]
    #[must_use]
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// The VIFs that receive a copy of a packet that `receiver` owns, each once: those that stand
    /// before it in the order.
    pub fn copies(&self, digest: &Digest, receiver: Option<VifId>) -> impl Iterator<Item = VifId> {
        let end = receiver.and_then(|vif| self.vifs.find(vif.0)).map(|entry| entry.rank);
        let before =
            self.copies.iter().take_while(move |copy| end.is_none_or(|end| copy.rank < end));
        let mut last = None;
        before
            .filter(move |copy| copy.clause.matches(digest))
            .map(|copy| copy.vif)
            .filter(move |&vif| last.replace(vif) != Some(vif))
    }

    /// True if `vif` may send the packet of `digest`.
    #[inline]
    #[must_use]
    pub fn may_send(&self, vif: VifId, digest: &Digest) -> bool {
        let send = self.vifs.find(vif.0).and_then(|entry| entry.vif.send.as_ref());
        send.is_some_and(|filter| filter.matches(digest))
    }

    /// Why `vif` may not send the packet of `digest`: what about it fits least badly. `None` if it may.
    #[must_use]
    pub fn send_fault(&self, vif: VifId, digest: &Digest) -> Option<SendFault> {
        match self.vifs.find(vif.0).and_then(|entry| entry.vif.send.as_ref()) {
            Some(filter) => SendFault::of(filter, digest),
            None => Some(SendFault::Nothing),
        }
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

    /// The table of receive patterns.
    #[must_use]
    pub fn table(&self) -> &T {
        &self.table
    }

    fn admit(&self, vif: &Vif) -> Result<(), Refusal> {
        self.limits.admit_whole(self.vifs.len(), self.send.masks().max(self.receive.masks()))?;
        let nothing = Usage::default();
        self.owners.get(&vif.owner).unwrap_or(&nothing).admit(vif, &self.limits)?;
        if vif.action == Action::Copy { self.admit_copy(vif) } else { Ok(()) }
    }

    fn admit_copy(&self, vif: &Vif) -> Result<(), Refusal> {
        let (what, new) = ("alternatives of copies", limits::clauses(vif).count());
        let Limits { copy_clauses, copy_clauses_of_owner, .. } = self.limits;
        if self.copies.len() + new > copy_clauses {
            return Err(Refusal::TooMany { what, limit: copy_clauses });
        }
        let is_of_owner = |copy: &&CopyRule| {
            self.vifs.find(copy.vif.0).is_some_and(|entry| entry.vif.owner == vif.owner)
        };
        if self.copies.iter().filter(is_of_owner).count() + new > copy_clauses_of_owner {
            let (limit, owner) = (copy_clauses_of_owner, vif.owner);
            return Err(Refusal::TooManyOfOwner { what, limit, owner });
        }
        Ok(())
    }

    fn check_send(&self, vif: &Vif) -> Result<(), Refusal> {
        for clause in vif.send.iter().flat_map(Filter::clauses) {
            let other = self.send.find(clause, |other| self.entry(other).vif.owner != vif.owner);
            if let Some((other, theirs)) = other {
                return Err(Refusal::Send {
                    wanted: (*clause).into(),
                    existing: theirs.into(),
                    owner: self.entry(other).vif.owner,
                });
            }
        }
        Ok(())
    }

    fn check_receive(&self, vif: &Vif) -> Result<(), Refusal> {
        if vif.action == Action::Copy {
            return Ok(());
        }
        for clause in vif.receive.iter().flat_map(Filter::clauses) {
            let other = self.receive.find(clause, |other| {
                let other = &self.entry(other).vif;
                other.owner != vif.owner && other.priority == vif.priority
            });
            if let Some((other, theirs)) = other {
                return Err(Refusal::Receive {
                    wanted: (*clause).into(),
                    existing: theirs.into(),
                    owner: self.entry(other).vif.owner,
                    priority: vif.priority,
                });
            }
        }
        Ok(())
    }

    fn entry(&self, vif: VifId) -> &Entry {
        self.vifs.find(vif.0).expect("rules are those of registered VIFs")
    }

    fn insert(&mut self, vif: Vif) -> VifId {
        let rank = Rank::new(vif.priority, self.sequence);
        let clauses = |filter: &Option<Filter>| {
            filter.as_ref().map_or(Vec::new(), |filter| filter.clauses().to_vec())
        };
        let (send, receive) = (clauses(&vif.send), clauses(&vif.receive));
        let entry = Entry { vif, rank, send_rules: Vec::new(), receive_rules: Vec::new() };
        let id = VifId(self.vifs.insert(entry));
        let send_rules = send.into_iter().map(|clause| self.send.insert(clause, id)).collect();
        let receive_rules =
            receive.into_iter().filter_map(|clause| self.insert_receive(clause, id)).collect();
        let entry = self.vifs.find_mut(id.0).expect("just inserted");
        (entry.send_rules, entry.receive_rules) = (send_rules, receive_rules);
        self.owners.entry(entry.vif.owner).or_default().enter(&entry.vif);
        id
    }

    /// Puts a receive clause where its VIF's action wants it.
    fn insert_receive(&mut self, clause: Clause, vif: VifId) -> Option<RuleId> {
        let Vif { action, priority, .. } = self.entry(vif).vif;
        let rank = Rank::new(priority, self.sequence);
        self.sequence += 1;
        if action == Action::Copy {
            let at = self.copies.partition_point(|other| other.rank < rank);
            self.copies.insert(at, CopyRule { rank, vif, clause });
            return None;
        }
        let id = self.receive.insert(clause, vif);
        self.last = None;
        self.table.insert(Rule { id, rank, clause });
        Some(id)
    }
}
