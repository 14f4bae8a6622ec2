//! The directory: who receives what, who gets copies, and who may send what, as the registry has
//! decided. Each engine of a NIC has one, with everything that is registered there and what the
//! host has for itself.
//!
//! Nothing is refused here, and nothing is compared with what is there: an entry comes and goes at
//! a cost that depends on its own size, and on the number of masks if it was the last of one.

mod fault;
#[cfg(test)]
mod tests;

pub use fault::SendFault;

use crate::slab::Slab;
use crate::table::{BATCH_MAX, Production, Table};
use crate::{Clause, Ports, Rank, Rule, RuleId};
use clearway_wire::digest::{Digest, PATTERN_WORDS, fields};
use std::array;
use std::collections::BTreeMap;

type Mask = [u64; PATTERN_WORDS];

/// Names an entry. The number of one that is removed is given to another later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub u32);

/// What somebody has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// It receives what one of these matches, and nobody behind it does.
    pub receive: Vec<Clause>,
    /// It gets copies of what one of these matches.
    pub copies: Vec<Clause>,
    /// It may send what one of these matches.
    pub send: Vec<Clause>,
    /// Its place among others that receive the same: the higher goes first; of equals, the one that
    /// came first.
    pub priority: u16,
}

#[derive(Debug)]
struct Entry {
    send: Box<[Clause]>,
    /// Rules in the table.
    rules: Box<[RuleId]>,
    has_copies: bool,
}

/// A rule in the table: whose it is, and what it looks at.
#[derive(Debug)]
struct Place {
    entry: EntryId,
    mask: Mask,
    has_range: bool,
}

/// The owner of packets that look like this, as far as any rule looks at them.
#[derive(Clone, Copy, Debug)]
struct Last {
    words: [u64; PATTERN_WORDS],
    owner: Option<EntryId>,
}

/// Who has what. `T` finds the owners of packets.
#[derive(Debug)]
pub struct Directory<T = Production> {
    entries: Slab<Entry>,
    rules: Slab<Place>,
    sequence: u64,
    table: T,
    /// How many rules look at each mask.
    masks: BTreeMap<Mask, usize>,
    /// Rules with a range of ports, which is in no mask.
    ranges: usize,
    /// The bits of a digest on which it may depend who receives a packet.
    decisive: Mask,
    /// What was said last of packets that look alike; nothing once a rule has come or gone.
    last: Option<Last>,
    /// The limits keep them few, and all that match are wanted.
    copies: Vec<(EntryId, Clause)>,
}

impl<T: Table> Directory<T> {
    /// A directory without entries that puts rules into `table`, which has to be empty.
    #[must_use]
    pub fn new(table: T) -> Self {
        Self {
            entries: Slab::default(),
            rules: Slab::default(),
            sequence: 0,
            table,
            masks: BTreeMap::new(),
            ranges: 0,
            decisive: [0; PATTERN_WORDS],
            last: None,
            copies: Vec::new(),
        }
    }

    /// Takes an entry in.
    pub fn insert(&mut self, rights: Rights) -> EntryId {
        let Rights { receive, copies, send, priority } = rights;
        let has_copies = !copies.is_empty();
        let entry = Entry { send: send.into(), rules: Box::default(), has_copies };
        let id = EntryId(self.entries.insert(entry));
        let rules = receive.into_iter().map(|clause| self.insert_rule(id, clause, priority));
        let rules = rules.collect();
        self.entries.find_mut(id.0).expect("just inserted").rules = rules;
        self.copies.extend(copies.into_iter().map(|clause| (id, clause)));
        id
    }

    fn insert_rule(&mut self, entry: EntryId, clause: Clause, priority: u16) -> RuleId {
        let (mask, has_range) = (*clause.pattern().mask(), has_range(&clause));
        let id = RuleId(self.rules.insert(Place { entry, mask, has_range }));
        let rank = Rank::new(priority, self.sequence);
        self.sequence += 1;
        *self.masks.entry(mask).or_default() += 1;
        self.ranges += usize::from(has_range);
        self.decisive = either(self.decisive, &either(mask, &self.mask_of_ranges()));
        self.last = None;
        self.table.insert(Rule { id, rank, clause });
        id
    }

    /// Takes an entry out; false if there is none of that id.
    pub fn remove(&mut self, id: EntryId) -> bool {
        let Some(entry) = self.entries.remove(id.0) else { return false };
        let mut is_fewer = false;
        for rule in &entry.rules {
            is_fewer |= self.remove_rule(*rule);
        }
        if !entry.rules.is_empty() {
            self.last = None;
        }
        if is_fewer {
            self.decisive = self.masks.keys().fold(self.mask_of_ranges(), either);
        }
        if entry.has_copies {
            self.copies.retain(|(of, _)| *of != id);
        }
        true
    }

    /// True if nothing is left of what it looked at: fewer bits may be decisive now.
    fn remove_rule(&mut self, rule: RuleId) -> bool {
        self.table.remove(rule);
        let place = self.rules.remove(rule.0).expect("entries have present rules");
        let count = self.masks.get_mut(&place.mask).expect("it was counted in");
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.masks.remove(&place.mask);
        }
        self.ranges -= usize::from(place.has_range);
        is_last || place.has_range && self.ranges == 0
    }

    /// The entry that owns the packet of each digest. Copies come besides: see
    /// [`Directory::copies`].
    ///
    /// # Panics
    /// If there are more digests than [`BATCH_MAX`], or than places in `found`.
    #[inline]
    pub fn receivers(&mut self, digests: &[Digest], found: &mut [Option<EntryId>]) {
        let mut rules = [None; BATCH_MAX];
        self.table.classify(digests, &mut rules[..digests.len()]);
        for (rule, found) in rules.iter().zip(&mut found[..digests.len()]) {
            *found = rule.map(|rule| self.entry_of(rule));
        }
    }

    /// The owner, or that there is none, of packets that all look alike as far as any rule looks at
    /// them: those of one flow often come together, and those of many flows to one server. `None`
    /// if they do not, or there are none. The table is not even asked if they look like those
    /// before.
    #[inline]
    pub fn common_receiver(&mut self, digests: &[Digest]) -> Option<Option<EntryId>> {
        let decisive = self.decisive;
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

    /// True if there are entries that want copies: else nobody needs to ask.
    #[inline]
    #[must_use]
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// The entries that want a copy of a packet, each once.
    pub fn copies(&self, digest: &Digest) -> impl Iterator<Item = EntryId> {
        let mut last = None;
        let wanted = self.copies.iter().filter(move |(_, clause)| clause.matches(digest));
        wanted.map(|(entry, _)| *entry).filter(move |&entry| last.replace(entry) != Some(entry))
    }

    /// What an entry may send.
    #[inline]
    #[must_use]
    pub fn sends(&self, id: EntryId) -> &[Clause] {
        self.entries.find(id.0).map_or(&[], |entry| &entry.send)
    }

    /// True if an entry may send the packet of `digest`.
    #[inline]
    #[must_use]
    pub fn may_send(&self, id: EntryId, digest: &Digest) -> bool {
        self.sends(id).iter().any(|clause| clause.matches(digest))
    }

    /// Why an entry may not send the packet of `digest`: what about it fits least badly. `None` if
    /// it may.
    #[must_use]
    pub fn send_fault(&self, id: EntryId, digest: &Digest) -> Option<SendFault> {
        SendFault::of(self.sends(id), digest)
    }

    /// The table of what is received.
    #[must_use]
    pub fn table(&self) -> &T {
        &self.table
    }

    #[inline]
    fn entry_of(&self, rule: RuleId) -> EntryId {
        self.rules.find(rule.0).expect("the table has no rules but these").entry
    }

    fn mask_of_ranges(&self) -> Mask {
        let mut mask = [0; PATTERN_WORDS];
        if self.ranges > 0 {
            mask[0] = fields::SOURCE_PORT.mask() | fields::DESTINATION_PORT.mask();
        }
        mask
    }
}

fn either(a: Mask, b: &Mask) -> Mask {
    array::from_fn(|word| a[word] | b[word])
}

fn has_range(clause: &Clause) -> bool {
    [clause.source_ports(), clause.destination_ports()] != [Ports::ANY; 2]
}
