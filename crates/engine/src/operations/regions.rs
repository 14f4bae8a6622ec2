//! What an app shares: pieces of its memory, by handles that are never used again, and by names.

use std::collections::BTreeMap;

use clearway_base::{SlotId, Slots};
use clearway_channel::{
    DaemonEnd, Description, Grantee, Group, GroupName, OperationStatus, Rights,
};
use clearway_wire::clearway::operation::{Kind, Request, Status};

use super::execute::Outcome;
use super::groups::{Groups, Who};
use crate::snapshot::RegionSnapshot;

/// Regions of one channel, whatever the policy says.
pub const REGIONS_MAX: u32 = 1 << 20;
/// Both ends of a region are at multiples of this, so that no word is half in it.
const ALIGNMENT: u64 = 8;
/// So many regions have no room in a cache of the first level, each with its line.
const MANY: usize = 512;

/// A place in memory that an app shares, or posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Which memory of its channel, by its number.
    pub(crate) memory: u64,
    pub(crate) offset: u64,
}

impl Spot {
    /// So many bytes behind it.
    pub(crate) fn plus(self, bytes: u32) -> Self {
        Self { offset: self.offset + u64::from(bytes), ..self }
    }

    /// Whether so many bytes from here on are in the memory of a channel.
    pub(crate) fn has(self, end: &DaemonEnd, bytes: u64) -> bool {
        let last = self.offset.checked_add(bytes);
        end.memory(self.memory).is_some_and(|shared| last.is_some_and(|it| it <= shared.length()))
    }
}

/// A piece of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(super) start: Spot,
    pub(super) length: u64,
    pub(super) description: Description,
    /// What anybody may do with it, as the description says: most ask for no more.
    anybody: Rights,
    /// Operations that were carried out on it.
    pub(super) served: u64,
}

impl Region {
    pub(super) fn new(start: Spot, length: u64, description: Description, served: u64) -> Self {
        let grants = description.grants.iter().filter(|grant| grant.to == Grantee::Anybody);
        let anybody = grants.fold(Rights::NONE, |rights, grant| rights | grant.rights);
        Self { start, length, description, anybody, served }
    }

    /// Whether somebody may do this with it.
    #[inline]
    fn allows(&self, needed: Rights, groups: &Groups, who: Who) -> bool {
        self.anybody.have(needed) || self.rights(groups, who).have(needed)
    }

    /// What somebody may do with it.
    fn rights(&self, groups: &Groups, who: Who) -> Rights {
        let grants = self.description.grants.iter();
        let grants = grants.filter(|grant| groups.are_granted(grant.to, who));
        grants.fold(Rights::NONE, |rights, grant| rights | grant.rights)
    }

    /// Where in shared memory `length` bytes at `offset` are, if all are in the region.
    pub(super) fn place(&self, offset: u64, length: u64) -> Result<Spot, Status> {
        let end = offset.checked_add(length).ok_or(Status::OutOfBounds)?;
        if end > self.length {
            return Err(Status::OutOfBounds);
        }
        Ok(Spot { offset: self.start.offset + offset, ..self.start })
    }
}

/// All regions of a channel. Their handles are their ids.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(super) slots: Slots<Region>,
    names: BTreeMap<Vec<u8>, SlotId>,
    /// How many are pieces of each memory.
    of_memories: BTreeMap<u64, u32>,
    /// Whom their grants may be to.
    groups: Groups,
}

impl Regions {
    pub(super) fn new(max: u32) -> Self {
        let slots = Slots::new(max.min(REGIONS_MAX));
        let (names, of_memories, groups) = Default::default();
        Self { slots, names, of_memories, groups }
    }

    /// How many there may be.
    pub(crate) const fn max(&self) -> u32 {
        self.slots.count_max()
    }

    /// Shares a piece of memory that has `memory_bytes` bytes; its handle.
    pub(super) fn share(
        &mut self,
        memory_bytes: u64,
        (start, length): (Spot, u64),
        description: Description,
    ) -> Result<u64, OperationStatus> {
        if start.offset.checked_add(length).is_none_or(|end| end > memory_bytes) {
            return Err(OperationStatus::OutOfBounds);
        }
        if !start.offset.is_multiple_of(ALIGNMENT) || !length.is_multiple_of(ALIGNMENT) {
            return Err(OperationStatus::Misaligned);
        }
        if self.names.contains_key(&description.name) {
            return Err(OperationStatus::NameTaken);
        }
        let name = description.name.clone();
        let region = Region::new(start, length, description, 0);
        let id = self.slots.insert(region).ok_or(OperationStatus::TooMany)?;
        if !name.is_empty() {
            self.names.insert(name, id);
        }
        *self.of_memories.entry(start.memory).or_default() += 1;
        Ok(id.to_bits())
    }

    /// Revokes a region. False if there is no such region.
    pub(super) fn unshare(&mut self, handle: u64) -> bool {
        let removed = self.slots.remove(SlotId::of_bits(handle));
        let Some(Region { start, description, .. }) = removed else { return false };
        self.names.remove(&description.name);
        if let Some(count) = self.of_memories.get_mut(&start.memory) {
            *count -= 1;
            if *count == 0 {
                self.of_memories.remove(&start.memory);
            }
        }
        true
    }

    /// The members of a group are these from now on.
    pub(super) fn set_group(&mut self, group: Group) -> Result<(), OperationStatus> {
        self.groups.set(group)
    }

    /// Those that have members.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> {
        self.groups.iter()
    }

    /// Whether any region is a piece of this memory.
    pub(super) fn use_memory(&self, memory: u64) -> bool {
        self.of_memories.contains_key(&memory)
    }

    /// An operation was carried out, or not.
    pub(super) fn count(&mut self, request: &Request, outcome: &Outcome) {
        if outcome.status != Status::Done {
            return;
        }
        let is_find = request.kind == Kind::Find as u8;
        let handle = if is_find { outcome.value } else { request.region };
        if let Some(region) = self.slots.get_mut(SlotId::of_bits(handle)) {
            region.served += 1;
        }
    }

    /// How many may be told of.
    pub(crate) fn places(&self) -> usize {
        self.slots.places()
    }

    /// What is in a place, for status.
    pub(crate) fn snapshot(&self, channel: u32, place: usize) -> Option<RegionSnapshot> {
        let slot = u32::try_from(place).ok()?;
        let Region { start, length, description, served, .. } = self.slots.at(slot)?;
        Some(RegionSnapshot {
            channel,
            region: self.slots.id_at(slot).to_bits(),
            name: String::from_utf8_lossy(&description.name).into_owned(),
            memory: start.memory,
            start: start.offset,
            region_bytes: *length,
            grants: description.grants.iter().map(|grant| self.groups.tell(grant)).collect(),
            operations_served: *served,
        })
    }

    fn at(&self, handle: u64) -> Option<&Region> {
        self.slots.get(SlotId::of_bits(handle))
    }

    /// The region of this handle, if somebody may do that with it.
    pub(super) fn find(&self, handle: u64, needed: Rights, who: Who) -> Result<&Region, Status> {
        #[cfg(test)]
        super::tests::FINDS.set(super::tests::FINDS.get() + 1);
        let region = self.at(handle).ok_or(Status::NoRegion)?;
        let is_allowed = region.allows(needed, &self.groups, who);
        if is_allowed { Ok(region) } else { Err(Status::NotAllowed) }
    }

    /// Whether it depends on this group who may read a region.
    pub(super) fn are_read_by(&self, handle: u64, group: GroupName) -> bool {
        let Some(region) = self.at(handle) else { return false };
        let mut grants = region.description.grants.iter();
        !region.anybody.have(Rights::READ)
            && grants.any(|it| it.to == Grantee::Group(group) && it.rights.have(Rights::READ))
    }

    /// There are so many that one that is looked up may be in no cache.
    pub(super) const fn are_many(&self) -> bool {
        self.slots.places() > MANY
    }

    /// Has the processor fetch what is kept of a region, if there may be one.
    pub(super) fn fetch(&self, handle: u64) {
        if let Some(place) = self.slots.place(SlotId::of_bits(handle).slot) {
            clearway_channel::fetch(place);
        }
    }

    /// Where a region begins.
    pub(super) fn start_of(&self, handle: u64) -> Option<Spot> {
        self.at(handle).map(|region| region.start)
    }

    /// Where so many bytes are, at an offset of a region, if somebody may read them all. They are
    /// counted as read.
    #[inline]
    pub(super) fn serve_read(
        &mut self,
        handle: u64,
        (offset, length): (u64, u32),
        who: Who,
    ) -> Option<Spot> {
        let region = self.slots.get_mut(SlotId::of_bits(handle))?;
        let is_allowed = region.allows(Rights::READ, &self.groups, who);
        let at = region.place(offset, length.into()).ok().filter(|_| is_allowed)?;
        region.served += 1;
        Some(at)
    }

    /// The region of this name, and its handle. One that the asker may do nothing with is not told
    /// from one that is not there.
    pub(super) fn named(&self, name: &[u8], who: Who) -> Result<(u64, &Region), Status> {
        let id = self.names.get(name).ok_or(Status::NotFound)?;
        let region = self.slots.get(*id).ok_or(Status::NotFound)?;
        let is_allowed = region.rights(&self.groups, who) != Rights::NONE;
        if is_allowed { Ok((id.to_bits(), region)) } else { Err(Status::NotFound) }
    }

    /// These regions, which are sound, if no two have one name.
    pub(super) fn of_slots(slots: Slots<Region>) -> Option<Self> {
        let all = slots.iter().map(|(id, region)| (region.description.name.clone(), id));
        let named: Vec<_> = all.filter(|(name, _)| !name.is_empty()).collect();
        let count = named.len();
        let names: BTreeMap<_, _> = named.into_iter().collect();
        let mut of_memories = BTreeMap::new();
        for (_, region) in slots.iter() {
            *of_memories.entry(region.start.memory).or_default() += 1;
        }
        let groups = Groups::default();
        (names.len() == count).then_some(Self { slots, names, of_memories, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_channel::Grant;

    fn to_all(name: &str, rights: Rights) -> Description {
        let grants = vec![Grant { to: Grantee::Anybody, rights }];
        Description { name: name.into(), grants }
    }

    /// In a memory of the app's own.
    const MEMORY: u64 = 7;

    fn at(offset: u64) -> Spot {
        Spot { memory: MEMORY, offset }
    }

    const WHO: Who = (std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), None);

    #[test]
    fn what_was_revoked_is_never_there_again() {
        let mut regions = Regions::new(REGIONS_MAX);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let handle = regions.share(64, (at(8), 16), to_all("a", Rights::READ)).expect("shared");
            assert!(handle != 0 && !seen.contains(&handle));
            assert!(seen.iter().all(|old| regions.find(*old, Rights::NONE, WHO).is_err()));
            let again = regions.share(64, (at(0), 64), to_all("a", Rights::READ));
            assert_eq!(again, Err(OperationStatus::NameTaken));
            assert_eq!(regions.named(b"a", WHO).map(|(handle, _)| handle), Ok(handle));
            let region = regions.find(handle, Rights::READ, WHO).expect("there");
            assert_eq!(region.place(8, 8), Ok(at(16)));
            for (offset, length) in [(8, 9), (17, 0), (u64::MAX, 1), (1 << 32, 0)] {
                assert_eq!(region.place(offset, length), Err(Status::OutOfBounds));
            }
            assert_eq!(regions.find(handle, Rights::WRITE, WHO), Err(Status::NotAllowed));
            assert!(regions.use_memory(MEMORY));
            assert_eq!((regions.unshare(handle), regions.unshare(handle)), (true, false));
            assert!(!regions.use_memory(MEMORY));
            assert_eq!(regions.named(b"a", WHO), Err(Status::NotFound));
            seen.push(handle);
        }
    }

    #[test]
    fn only_whole_words_inside_of_the_memory_are_shared() {
        let mut regions = Regions::new(REGIONS_MAX);
        let mut share =
            |(start, length)| regions.share(64, (at(start), length), Description::default()).err();
        assert_eq!((share((0, 64)), share((64, 0)), share((0, 64))), (None, None, None));
        for extent in [(0, 72), (64, 8), (u64::MAX - 7, 8), (8, u64::MAX - 7)] {
            assert_eq!(share(extent), Some(OperationStatus::OutOfBounds));
        }
        assert_eq!(share((4, 8)), Some(OperationStatus::Misaligned));
        assert_eq!(share((8, 4)), Some(OperationStatus::Misaligned));
    }

    #[test]
    fn a_name_is_not_told_to_who_may_do_nothing() {
        let mut regions = Regions::new(REGIONS_MAX);
        regions.share(64, (at(0), 64), to_all("b", Rights::NONE)).expect("shared");
        assert_eq!(regions.named(b"b", WHO), Err(Status::NotFound));
        assert_eq!(regions.named(b"", WHO), Err(Status::NotFound));
    }

    /// Those that are revoked count no more.
    #[test]
    fn no_more_are_shared_than_may_be() {
        let mut regions = Regions::new(2);
        let share = |regions: &mut Regions| regions.share(64, (at(0), 8), Description::default());
        let first = share(&mut regions).expect("shared");
        assert!(share(&mut regions).is_ok());
        assert_eq!(share(&mut regions), Err(OperationStatus::TooMany));
        assert!(regions.unshare(first));
        assert!(share(&mut regions).is_ok());
        assert_eq!(share(&mut regions), Err(OperationStatus::TooMany));
        let mut again = Regions::of_slots(regions.slots).expect("sound");
        assert!(again.use_memory(MEMORY) && !again.use_memory(MEMORY + 1));
        assert_eq!((share(&mut again), again.max()), (Err(OperationStatus::TooMany), 2));
        assert_eq!(share(&mut Regions::new(0)), Err(OperationStatus::TooMany));
    }
}
