//! What one app shares, as it should be: what was asked of it, what it did itself, and so what may
//! be found there.

use std::collections::BTreeMap;

use clearway_base::{Random, Time};
use clearway_channel::{OperationStatus as Status, Pointer, Shared};

use super::club::{Circle, Club, Mark};
use super::layout::{
    ADDS_COUNT, ENTRIES, JOURNAL, JOURNAL_BYTES, Layout, QUARRY_BYTES, RECORD_BYTES, Region,
    SWAPS_COUNT, TABLE, TABLE_STRIDE, WHO, add_at, entry_at, record_at, swap_at,
};
use super::records::{Content, Record};
use super::vault::{Neighbourhood, Vault, Who};
use super::visiting::mark_of_notice;
use super::words::{AddWord, SwapWord, has};

/// Words that are added to at the same time.
const ADDS_AT_ONCE: u64 = 2;
/// The longest piece of the quarry that an honest entry points to: a batch of these has room.
pub(super) const PIECE_BYTES_MAX: u32 = 900;
/// In the moats, and in a lease that nobody has.
const MOAT: Content = Content::Of(0x0a70);
const REVOKED: Content = Content::Of(0xdead);

/// From when to when a region is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    /// As soon as the owner has been told.
    pub(super) handle: Option<u64>,
    shared: Time,
    ending: Time,
    pub(super) ended: Time,
    /// What the owner had put there before.
    pub(super) content: Content,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Estate {
    app: u32,
    host: u32,
    pub(super) layout: Layout,
    /// A liar has it, or may have changed it.
    is_tainted: bool,
    /// By region, in the order of time.
    pub(super) tenures: [Vec<Tenure>; Region::COUNT],
    pub(super) vault: Vault,
    /// If it has one.
    pub(super) club: Option<Club>,
    pub(super) adds: Vec<AddWord>,
    adds_full: usize,
    pub(super) swaps: [SwapWord; SWAPS_COUNT],
    swaps_asked: u64,
    pub(super) records: [Record; RECORD_BYTES.len()],
    pub(super) blocks: [Record; 2],
    /// What each entry of the table has been, and since when.
    entries: Vec<Vec<(Time, u64)>>,
    /// Steps that the journal has taken: two for each version.
    pub(super) journal_steps: u64,
    /// What the owner is to be told, and whether the asker has been told that it is done.
    pub(super) notices: BTreeMap<u64, bool>,
    /// Of its club's.
    pub(super) notices_of_club: u64,
    random: Random,
}

impl Estate {
    /// Its vault is shared with some of these hosts, and its club, if it has one, with some of the
    /// others.
    pub(super) fn new(
        (app, host): (u32, u32),
        is_large: bool,
        hosts: &[Neighbourhood],
        of_club: Option<&[Neighbourhood]>,
    ) -> Self {
        let seed = u64::from(app) << 32;
        let layout = Layout { is_large };
        Self {
            app,
            host,
            layout,
            is_tainted: false,
            tenures: Default::default(),
            vault: Vault::new(app, host, hosts),
            club: of_club.map(|hosts| Club::new(app, host, layout, hosts)),
            adds: (0..ADDS_COUNT).map(|_| AddWord::default()).collect(),
            adds_full: 0,
            swaps: Default::default(),
            swaps_asked: 0,
            records: [1, 2, 3, 4].map(|record| Record::new(seed | record)),
            blocks: [5, 6].map(|block| Record::new(seed | block)),
            entries: vec![Vec::new(); ENTRIES],
            journal_steps: 0,
            notices: BTreeMap::new(),
            notices_of_club: 0,
            random: Random::new(!seed),
        }
    }

    /// Where the owner is.
    pub(crate) const fn host(&self) -> u32 {
        self.host
    }

    /// True if a handle that was found by name is that of the ground.
    pub(crate) fn is_ground(&self, handle: Option<u64>) -> bool {
        handle.is_some_and(|handle| self.may_be_found(Region::Ground, handle, Time::ZERO))
    }

    pub(crate) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Nothing that is found there counts any more, for this liar may change it, or the owner lies;
    /// but what the liar may not change.
    pub(super) fn taint(&mut self, liar: Option<Who>) {
        self.is_tainted = true;
        self.vault.taint(liar);
    }

    /// What the owner's daemon is told of a region.
    pub(crate) fn description(&self, region: Region) -> Vec<u8> {
        let of_club = self.club.as_ref().map_or(&[][..], |club| &club.grants);
        region.description(&self.vault.grants, of_club)
    }

    pub(super) const fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    pub(super) const fn quarry(&self) -> Content {
        Content::Of((self.app as u64) << 32 | 7)
    }

    pub(super) const fn key(index: usize) -> u64 {
        1_000_000 + 7 * index as u64
    }

    // ---- what the owner does ----

    /// Before anything is shared.
    pub(super) fn furnish(&mut self, shared: &Shared, now: Time) {
        put(shared, WHO, &(u64::from(self.app) + 1).to_le_bytes());
        for moat in self.layout.moats() {
            fill(shared, moat.start, moat.len(), MOAT);
        }
        self.vault.furnish(shared, self.layout.region(Region::Vault).start);
        self.club.iter_mut().for_each(|club| club.furnish(shared));
        let quarry = self.layout.region(Region::Quarry);
        fill(shared, quarry.start, quarry.len(), self.quarry());
        for index in 0..ENTRIES {
            let key = TABLE + TABLE_STRIDE * index as u32;
            assert!(shared.store(key.into(), Self::key(index)), "in the memory");
            self.change_entry(shared, index, now);
        }
    }

    /// The owner is about to share a region.
    pub(crate) fn begin_tenure(&mut self, shared: &Shared, region: Region) {
        let tenures = self.tenures[Region::Lease as usize].len() as u64;
        let content = Content::Of(u64::from(self.app) << 32 | (100 + tenures));
        if region == Region::Lease {
            let lease = self.layout.region(region);
            fill(shared, lease.start, lease.len(), content);
        }
        let never = Time::MAX;
        let tenure = Tenure { handle: None, shared: never, ending: never, ended: never, content };
        self.tenures[region as usize].push(tenure);
    }

    /// It has been told the handle.
    pub(crate) fn has_shared(
        &mut self,
        region: Region,
        now: Time,
        handle: u64,
    ) -> Result<(), String> {
        let mut others = self.tenures.iter().flatten();
        if others.any(|tenure| tenure.handle == Some(handle)) {
            return Err(format!("a handle comes twice: {handle:x}"));
        }
        if let Some(tenure) = self.tenures[region as usize].last_mut() {
            (tenure.handle, tenure.shared) = (Some(handle), now);
        }
        Ok(())
    }

    pub(crate) fn begin_revoking(&mut self, now: Time) -> Option<u64> {
        let tenure = self.tenures[Region::Lease as usize].last_mut()?;
        tenure.ending = now;
        tenure.handle
    }

    /// Nobody reads or writes the lease from now on.
    pub(crate) fn has_revoked(&mut self, shared: &Shared, now: Time) {
        let lease = self.layout.region(Region::Lease);
        fill(shared, lease.start, lease.len(), REVOKED);
        if let Some(tenure) = self.tenures[Region::Lease as usize].last_mut() {
            tenure.ended = now;
        }
    }

    /// Has nobody touched what is revoked?
    pub(crate) fn check_revoked(&self, shared: &Shared) -> Result<(), String> {
        let lease = self.layout.region(Region::Lease);
        let is_untouched = REVOKED.is(0, &bytes(shared, lease.start, lease.len()));
        if is_untouched || self.is_tainted {
            Ok(())
        } else {
            Err("a lease is revoked, and written to".into())
        }
    }

    /// Does something to what it shares.
    pub(crate) fn act(&mut self, shared: &Shared, now: Time) -> Result<(), String> {
        match self.random.below(4) {
            0 => {
                let index = self.random.below(ENTRIES as u64) as usize;
                self.change_entry(shared, index, now);
            }
            1 | 2 => self.write_journal(shared),
            _ => {
                if let Some((word, slot, addend)) = self.begin_add() {
                    let found =
                        shared.fetch_add(add_at(word).into(), addend).expect("in the memory");
                    let is_sound = self.adds[word].done(slot, found);
                    return is_sound.or_else(|what| self.unless_tainted(what));
                }
            }
        }
        Ok(())
    }

    /// Says who is in a group of its club. Returns that as bytes, and connections that may be reset
    /// for it.
    pub(crate) fn begin_regrouping(&mut self) -> Option<(Vec<u8>, Vec<u64>)> {
        let (group, cut_off) = self.club.as_mut()?.begin_change()?;
        Some((group.to_bytes().expect("not too many"), cut_off))
    }

    /// It is told that the group is as it has said.
    pub(crate) fn has_regrouped(&mut self, shared: &Shared) -> Result<(), String> {
        let changed = self.club.as_mut().map_or(Ok(()), |club| club.has_changed(shared));
        changed.or_else(|what| self.unless_tainted(what))
    }

    fn unless_tainted(&self, what: String) -> Result<(), String> {
        if self.is_tainted { Ok(()) } else { Err(what) }
    }

    /// Most entries point into the quarry; some lie.
    fn change_entry(&mut self, shared: &Shared, index: usize, now: Time) {
        let random = &mut self.random;
        let length = random.below(PIECE_BYTES_MAX.into()) as u32;
        let offset = random.below(u64::from(QUARRY_BYTES - PIECE_BYTES_MAX));
        let pointer = match random.below(8) {
            0 => Pointer { offset: u64::from(QUARRY_BYTES) - u64::from(length / 2), length },
            1 => Pointer { offset: random.below(1 << 40), length },
            2 => Pointer { offset, length: random.below(1 << 24) as u32 },
            _ => Pointer { offset, length },
        };
        let entry = pointer.to_word().expect("in its bounds");
        assert!(shared.store(entry_at(index).into(), entry), "in the memory");
        self.entries[index].push((now, entry));
    }

    /// What an entry may be for somebody who asked at `asked`, up to now.
    pub(super) fn entries(&self, index: usize, asked: Time) -> impl Iterator<Item = u64> + '_ {
        let entries = &self.entries[index];
        let later = entries.partition_point(|(since, _)| *since < asked);
        entries[later.saturating_sub(1)..].iter().map(|(_, entry)| *entry)
    }

    fn write_journal(&mut self, shared: &Shared) {
        let (version, is_second) = (self.journal_steps / 2 + 1, self.journal_steps % 2 == 1);
        let mut content = vec![0; JOURNAL_BYTES as usize];
        self.journal().fill_version(version, &mut content);
        let half = content.len() / 2;
        match is_second {
            false => put(shared, JOURNAL, &content[..half]),
            true => put(shared, JOURNAL + half as u32, &content[half..]),
        }
        self.journal_steps += 1;
    }

    pub(super) const fn journal(&self) -> Journal {
        Journal((self.app as u64) << 32 | 8)
    }

    pub(super) fn begin_add(&mut self) -> Option<(usize, usize, u64)> {
        loop {
            let word = self.adds_full + self.random.below(ADDS_AT_ONCE) as usize;
            match self.adds.get_mut(word)?.begin() {
                Some((slot, addend)) => return Some((word, slot, addend)),
                None => self.adds_full += 1,
            }
        }
    }

    pub(super) fn begin_swap(&mut self, word: usize, now: Time) -> (usize, u64, u64) {
        self.swaps_asked += 1;
        let expected = self.swaps[word].last;
        let index = self.swaps[word].begin(now, expected, self.swaps_asked);
        (index, expected, self.swaps_asked)
    }

    // ---- what is there ----

    /// The owner looks at all that it shares. A long write may be half done, or have been cut off.
    pub(crate) fn look(&mut self, shared: &Shared, now: Time) -> Result<(), String> {
        self.vault.check(shared, self.layout.region(Region::Vault).start)?;
        if self.is_tainted {
            return Ok(());
        }
        self.club.as_mut().map_or(Ok(()), |club| club.look(shared))?;
        for moat in self.layout.moats() {
            if !MOAT.is(0, &bytes(shared, moat.start, moat.len())) {
                return Err(format!("bytes of no region were written, in {moat:?}"));
            }
        }
        for (index, word) in self.adds.iter_mut().enumerate() {
            let value = shared.load(add_at(index).into()).unwrap_or_default();
            word.look(value).map_err(|what| format!("word {index}: {what}"))?;
        }
        for (index, word) in self.swaps.iter_mut().enumerate() {
            word.look(now, shared.load(swap_at(index).into()).unwrap_or_default());
        }
        (0..self.records.len()).try_for_each(|index| self.look_at_record(shared, index, now))?;
        for (index, block) in self.blocks.iter().enumerate() {
            let place = self.layout.block(index);
            let found = bytes(shared, place.start, place.len());
            let is_sound = block.read_part(now, 0, &found);
            is_sound.map_err(|what| format!("block {index}: {what}"))?;
        }
        Ok(())
    }

    fn look_at_record(&mut self, shared: &Shared, index: usize, now: Time) -> Result<(), String> {
        let found = bytes(shared, record_at(index), RECORD_BYTES[index] as usize);
        let is_sound = self.records[index].read(now, now, &found);
        is_sound.map_err(|what| format!("record {index}: {what}"))
    }

    /// The owner is told that a peer has written.
    pub(crate) fn notified(
        &mut self,
        shared: &Shared,
        now: Time,
        (region, place, length, value): (u64, u64, u32, u64),
    ) -> Result<(), String> {
        if self.is_tainted {
            return Ok(());
        }
        if self.notices.remove(&value).is_none() {
            return Err(format!("the owner is told of {value:x}, again or for nothing"));
        }
        if let Some(mark) = mark_of_notice(value) {
            return self.notified_of_club(mark, region);
        }
        let index = (value >> 32) as usize;
        let expected = (self.handle(Region::Ground), record_at(index).into(), RECORD_BYTES[index]);
        if (Some(region), place, length) != expected {
            return Err(format!("the owner is told of {length} bytes at {place} of {region:x}"));
        }
        self.look_at_record(shared, index, now)
    }

    /// The owner is told that somebody has written in its club: nobody who may not.
    fn notified_of_club(&self, mark: Mark, region: u64) -> Result<(), String> {
        let is_it = Some(region) == self.handle(Region::Club);
        let may_be = |club: &Club| club.may(Circle::Crew, mark, club.now()..club.now());
        if is_it && self.club.as_ref().is_some_and(may_be) {
            return Ok(());
        }
        let groups = self.club.as_ref().map(Club::groups);
        Err(format!("the owner is told that {mark} has written: {groups:?}"))
    }

    /// The handle of the newest region of that name.
    pub(super) fn handle(&self, region: Region) -> Option<u64> {
        self.tenures[region as usize].last()?.handle
    }

    /// True if the operation shows.
    pub(super) fn has_added(shared: &Shared, word: usize, slot: usize) -> bool {
        shared.load(add_at(word).into()).is_some_and(|value| has(value, slot))
    }

    /// Whether nothing is told that is still to be told, once the owner has nothing to take.
    pub(crate) fn check_notices(&self) -> Result<(), String> {
        let missing = self.notices.iter().find(|(_, is_done)| **is_done);
        match missing {
            Some((value, _)) if !self.is_tainted => {
                Err(format!("the owner was never told of {value:x}, which was written"))
            }
            _ => Ok(()),
        }
    }

    /// Nobody asks any more.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_tainted {
            return Ok(());
        }
        let named = |index: usize, what: String| format!("app {}, {index}: {what}", self.app);
        for (index, word) in self.swaps.iter().enumerate() {
            word.check().map_err(|what| named(index, what))?;
        }
        for (index, record) in self.records.iter().enumerate() {
            record.check().map_err(|what| named(index, what))?;
        }
        Ok(())
    }

    /// True if the region was shared all the time from `asked` to `now`, as far as the owner knows.
    pub(super) fn was_shared(&self, region: Region, asked: Time, now: Time) -> bool {
        let tenures = &self.tenures[region as usize];
        tenures.iter().any(|tenure| tenure.shared < asked && tenure.ending > now)
    }

    /// True if somebody who asked at `asked` may find the region of this handle.
    pub(super) fn may_be_found(&self, region: Region, handle: u64, asked: Time) -> bool {
        let is_it = |tenure: &Tenure| {
            tenure.handle.is_none_or(|known| known == handle) && tenure.ended >= asked
        };
        self.tenures[region as usize].iter().any(is_it)
    }
}

impl Tenure {
    /// True if the owner has begun to revoke it.
    pub(super) fn is_ending(&self, now: Time) -> bool {
        self.ending <= now
    }
}

/// What the owner writes for itself: the version in front and behind, and what follows from it
/// between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Journal(u64);

impl Journal {
    fn fill_version(self, version: u64, bytes: &mut [u8]) {
        Content::Written(self.0, version).fill(0, bytes);
        let behind = bytes.len() - 8;
        bytes[behind..].copy_from_slice(&version.to_le_bytes());
    }

    /// What was read at once: the second half is of the same version as the first, or of the one
    /// before it. The versions.
    pub(super) fn versions(self, found: &[u8]) -> Result<(u64, u64), String> {
        let (first, second) = found.split_at(found.len() / 2);
        let version = |word: Option<&[u8; 8]>| word.map_or(0, |word| u64::from_le_bytes(*word));
        let versions = (version(first.first_chunk()), version(second.last_chunk()));
        let mut expected = vec![0; found.len()];
        self.fill_version(versions.1, &mut expected);
        let is_second = second == &expected[first.len()..];
        self.fill_version(versions.0, &mut expected);
        if is_second && first == &expected[..first.len()] {
            return Ok(versions);
        }
        Err(format!("a journal of versions {versions:?} is not what was written"))
    }
}

/// What an entry of the table leads to, for somebody who wants `max` bytes at most.
pub(super) fn expected(entry: u64, max: u32) -> Result<Pointer, Status> {
    let pointer = Pointer::of(entry);
    if pointer.length > max {
        return Err(Status::TooLarge);
    }
    let end = pointer.offset + u64::from(pointer.length);
    if end > QUARRY_BYTES.into() { Err(Status::OutOfBounds) } else { Ok(pointer) }
}

fn put(shared: &Shared, at: u32, bytes: &[u8]) {
    assert!(shared.write(at.into(), bytes), "in the memory");
}

fn fill(shared: &Shared, at: u32, length: usize, content: Content) {
    let mut bytes = vec![0; length];
    content.fill(0, &mut bytes);
    put(shared, at, &bytes);
}

fn bytes(shared: &Shared, at: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    assert!(shared.read(at.into(), &mut bytes), "in the memory");
    bytes
}
