//! What askers ask of an estate, and which answers may come.

use clearway_base::{Random, Time};
use clearway_channel::{OperationKind as Kind, OperationStatus as Status};

use super::club::Club;
use super::estate::{Estate, PIECE_BYTES_MAX, expected};
use super::layout::{
    ENTRIES, JOURNAL, JOURNAL_BYTES, RECORD_BYTES, Region, TABLE, TABLE_STRIDE, WHO, add_at,
    entry_at, record_at, swap_at,
};
use super::prying::Prying;
use super::visiting::Visit;

/// A word.
const WORD: u32 = 8;
/// Reads above this are of no one moment, and neither are writes.
pub(super) const AT_ONCE_BYTES_MAX: u32 = 4096;

/// What is asked, as the command says it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) kind: u8,
    pub(crate) region: u64,
    pub(crate) place: u64,
    pub(crate) bytes: u32,
    pub(crate) count: u32,
    pub(crate) stride: u16,
    pub(crate) operand: u64,
    pub(crate) second: u64,
    pub(crate) payload: Option<Vec<u8>>,
}

/// What is asked, as the books have it.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Find(Region),
    /// Whose estate it is.
    Who,
    Add {
        word: usize,
        slot: usize,
    },
    Swap {
        word: usize,
        index: usize,
    },
    WriteRecord {
        record: usize,
        number: u64,
        notice: Option<u64>,
    },
    ReadRecord {
        record: usize,
    },
    /// The journal, which has taken so many steps.
    ReadJournal {
        steps: u64,
    },
    WriteBlock {
        block: usize,
        number: u64,
    },
    ReadBlock {
        block: usize,
        at: u32,
        length: u32,
    },
    /// What an entry points to.
    Follow {
        entry: usize,
        max: u32,
    },
    /// The same of several; `None` for what is no entry, with what is said of it.
    Batch {
        entries: Vec<Result<usize, Status>>,
        max: u32,
    },
    /// The entry of a key, among those that are looked at if it is there.
    Scan {
        found: Option<(usize, u64)>,
        max: u32,
    },
    /// A lease, by its handle.
    WriteLease {
        handle: u64,
        length: u32,
    },
    ReadLease {
        handle: u64,
        at: u32,
        length: u32,
    },
    /// Something of a vault, and whether the asker may do that.
    Pry {
        what: Prying,
        may: bool,
    },
    /// Something of a club.
    Visit(Visit),
    /// What must be refused, and how.
    Wrong(Status),
}

/// What has been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: Status,
    pub(crate) value: u64,
    pub(crate) extra: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) asked: Time,
    pub(crate) now: Time,
}

impl Question {
    /// It may have one: who loses the connection does not know.
    const fn has_effect(&self) -> bool {
        if let Self::Pry { what, .. } = self {
            return what.has_effect();
        }
        if let Self::Visit(visit) = self {
            return visit.has_effect();
        }
        matches!(
            self,
            Self::Add { .. }
                | Self::Swap { .. }
                | Self::WriteRecord { .. }
                | Self::WriteBlock { .. }
                | Self::WriteLease { .. }
                | Self::Wrong(_)
        )
    }

    /// A long read of what may be revoked: its connection may be reset then.
    pub(crate) const fn may_end_connection(&self) -> bool {
        matches!(self, Self::ReadLease { length, .. } if *length > AT_ONCE_BYTES_MAX)
    }

    /// What its owner is to be told.
    const fn notice(&self) -> Option<u64> {
        match self {
            Self::WriteRecord { notice, .. } => *notice,
            Self::Visit(visit) => visit.notice(),
            _ => None,
        }
    }

    pub(crate) const fn is_long(&self) -> bool {
        match self {
            Self::WriteBlock { .. } => true,
            Self::Visit(visit) => visit.length() > AT_ONCE_BYTES_MAX,
            Self::ReadBlock { length, .. }
            | Self::WriteLease { length, .. }
            | Self::ReadLease { length, .. } => *length > AT_ONCE_BYTES_MAX,
            _ => false,
        }
    }

    pub(crate) fn find(region: Region) -> (Self, Words) {
        let kind = Kind::Find as u8;
        let payload = Some(region.name().into());
        (Self::Find(region), Words { kind, payload, ..Words::default() })
    }

    pub(crate) fn who(region: u64) -> (Self, Words) {
        (Self::Who, read(region, WHO, WORD))
    }
}

pub(super) fn read(region: u64, place: u32, bytes: u32) -> Words {
    Words { kind: Kind::Read as u8, region, place: place.into(), bytes, ..Words::default() }
}

pub(super) fn write(region: u64, place: u32, payload: Vec<u8>) -> Words {
    let (kind, payload) = (Kind::Write as u8, Some(payload));
    Words { kind, region, place: place.into(), payload, ..Words::default() }
}

impl Estate {
    /// Something to ask; `None` if there is nothing of the kind that was drawn.
    pub(crate) fn ask(
        &mut self,
        random: &mut Random,
        now: Time,
        may_be_long: bool,
    ) -> Option<(Question, Words)> {
        let ground = self.handle(Region::Ground)?;
        match random.below(32) {
            0..=7 => self.ask_to_add(ground),
            8..=12 => Some(self.ask_to_swap(ground, random, now)),
            13..=18 => Some(self.ask_for_record(ground, random, now)),
            19 => {
                let question = Question::ReadJournal { steps: self.journal_steps };
                Some((question, read(ground, JOURNAL, JOURNAL_BYTES)))
            }
            20 | 21 => Some(self.ask_for_block(ground, random, now, may_be_long)),
            22..=24 => self.ask_for_entries(ground, random),
            25 => self.ask_to_scan(ground, random),
            26..=28 => self.ask_for_lease(random, may_be_long),
            29 => {
                let index = random.below(Region::OPEN.len() as u64) as usize;
                Some(Question::find(Region::OPEN[index]))
            }
            _ => self.ask_wrongly(ground, random),
        }
    }

    /// Something to ask for of which many may be outstanding: few bytes, and now and then an add.
    pub(crate) fn ask_in_a_rush(&mut self, random: &mut Random) -> Option<(Question, Words)> {
        let ground = self.handle(Region::Ground)?;
        match random.below(64) {
            0 => self.ask_to_add(ground),
            1 => self.ask_wrongly(ground, random),
            _ => Some((
                Question::ReadRecord { record: 0 },
                read(ground, record_at(0), RECORD_BYTES[0]),
            )),
        }
    }

    fn ask_to_add(&mut self, region: u64) -> Option<(Question, Words)> {
        let (word, slot, operand) = self.begin_add()?;
        let (kind, place) = (Kind::FetchAdd as u8, add_at(word).into());
        let words = Words { kind, region, place, operand, ..Words::default() };
        Some((Question::Add { word, slot }, words))
    }

    fn ask_to_swap(&mut self, region: u64, random: &mut Random, now: Time) -> (Question, Words) {
        let word = random.below(self.swaps.len() as u64) as usize;
        let (index, operand, second) = self.begin_swap(word, now);
        let (kind, place) = (Kind::CompareSwap as u8, swap_at(word).into());
        let words = Words { kind, region, place, operand, second, ..Words::default() };
        (Question::Swap { word, index }, words)
    }

    fn ask_for_record(&mut self, region: u64, random: &mut Random, now: Time) -> (Question, Words) {
        let record = random.below(RECORD_BYTES.len() as u64) as usize;
        let (place, length) = (record_at(record), RECORD_BYTES[record]);
        if random.chance(1, 2) {
            return (Question::ReadRecord { record }, read(region, place, length));
        }
        let number = self.records[record].begin(now);
        let mut content = vec![0; length as usize];
        self.records[record].content(number).fill(0, &mut content);
        let words = write(region, place, content);
        if random.chance(2, 3) {
            return (Question::WriteRecord { record, number, notice: None }, words);
        }
        let operand = (record as u64) << 32 | number;
        self.notices.insert(operand, false);
        let words = Words { kind: Kind::WriteNotify as u8, operand, ..words };
        (Question::WriteRecord { record, number, notice: Some(operand) }, words)
    }

    fn ask_for_block(
        &mut self,
        region: u64,
        random: &mut Random,
        now: Time,
        may_be_long: bool,
    ) -> (Question, Words) {
        let block = usize::from(may_be_long && random.chance(1, 2));
        let place = self.layout.block(block);
        let length = place.len() as u32;
        if random.chance(1, 2) {
            let number = self.blocks[block].begin(now);
            let mut content = vec![0; length as usize];
            self.blocks[block].content(number).fill(0, &mut content);
            return (Question::WriteBlock { block, number }, write(region, place.start, content));
        }
        let (at, length) = match random.below(3) {
            0 => (0, length),
            1 => part(random, length, AT_ONCE_BYTES_MAX),
            _ => part(random, length, length),
        };
        (Question::ReadBlock { block, at, length }, read(region, place.start + at, length))
    }

    fn ask_for_entries(&self, region: u64, random: &mut Random) -> Option<(Question, Words)> {
        let second = self.handle(Region::Quarry)?;
        let bytes = 1 + random.below(PIECE_BYTES_MAX.into()) as u32;
        let bytes = if random.chance(1, 2) { PIECE_BYTES_MAX } else { bytes };
        let entry = random.below(ENTRIES as u64) as usize;
        if random.chance(1, 2) {
            let (kind, place) = (Kind::IndirectRead as u8, entry_at(entry).into());
            let words = Words { kind, region, place, bytes, second, ..Words::default() };
            return Some((Question::Follow { entry, max: bytes }, words));
        }
        let one = |random: &mut Random| {
            let entry = random.below(ENTRIES as u64) as usize;
            let at = u64::from(entry_at(entry));
            match random.below(16) {
                0 => (Err(Status::Misaligned), at + 1 + random.below(7)),
                1 => (Err(Status::OutOfBounds), !7 - 8 * random.below(100)),
                _ => (Ok(entry), at),
            }
        };
        let (entries, offsets): (_, Vec<u64>) = (0..=random.below(63)).map(|_| one(random)).unzip();
        let payload = Some(offsets.into_iter().flat_map(u64::to_be_bytes).collect());
        let (kind, operand) = (Kind::BatchRead as u8, bytes.into());
        let words = Words { kind, region, operand, second, payload, ..Words::default() };
        Some((Question::Batch { entries, max: bytes }, words))
    }

    fn ask_to_scan(&self, region: u64, random: &mut Random) -> Option<(Question, Words)> {
        let first = random.below(ENTRIES as u64) as usize;
        let count = random.below((ENTRIES - first) as u64 + 1) as usize;
        let wanted = random.below(ENTRIES as u64 + 4) as usize;
        let is_there = (first..first + count).contains(&wanted);
        let found = is_there.then_some((wanted, wanted.saturating_sub(first) as u64));
        let words = Words {
            kind: Kind::ScanRead as u8,
            region,
            place: (TABLE + TABLE_STRIDE * first as u32).into(),
            bytes: PIECE_BYTES_MAX,
            count: count as u32,
            stride: TABLE_STRIDE as u16,
            operand: Self::key(wanted),
            second: self.handle(Region::Quarry)?,
            payload: None,
        };
        Some((Question::Scan { found, max: PIECE_BYTES_MAX }, words))
    }

    /// Mostly the lease that is, now and then one that was.
    fn ask_for_lease(&self, random: &mut Random, may_be_long: bool) -> Option<(Question, Words)> {
        let tenures = &self.tenures[Region::Lease as usize];
        let earlier = random.below(tenures.len() as u64) as usize;
        let index = if random.chance(1, 4) { earlier } else { tenures.len().checked_sub(1)? };
        let handle = tenures.get(index)?.handle?;
        let written = self.layout.lease_written();
        if random.chance(1, 3) {
            let length = if may_be_long { written } else { written.min(64) };
            let payload = vec![random.next_u32() as u8; length as usize];
            return Some((Question::WriteLease { handle, length }, write(handle, 0, payload)));
        }
        let readable = self.layout.length(Region::Lease) - written;
        let length_max = if may_be_long { readable } else { 1000 };
        let (at, length) = part(random, readable, length_max);
        let at = written + at;
        Some((Question::ReadLease { handle, at, length }, read(handle, at, length)))
    }

    fn ask_wrongly(&self, ground: u64, random: &mut Random) -> Option<(Question, Words)> {
        let quarry = self.handle(Region::Quarry)?;
        let end = self.layout.length(Region::Ground);
        let far = Words { place: u64::MAX - 7, ..read(ground, 0, 16) };
        let of = |kind: Kind, words: Words| Words { kind: kind as u8, ..words };
        let (one, two) = (vec![1; 8], vec![2; 16]);
        let cases = [
            (Status::OutOfBounds, read(ground, end - 4, 8)),
            (Status::OutOfBounds, read(ground, end, 1)),
            (Status::OutOfBounds, far),
            (Status::OutOfBounds, write(ground, end - 8, two)),
            (Status::OutOfBounds, of(Kind::FetchAdd, read(ground, end, 0))),
            (Status::OutOfBounds, of(Kind::CompareSwap, read(ground, end, 0))),
            (Status::Misaligned, of(Kind::FetchAdd, read(ground, 4, 0))),
            (Status::NotAllowed, write(quarry, 0, one.clone())),
            (Status::NotAllowed, of(Kind::WriteNotify, write(quarry, 0, one.clone()))),
            (Status::NotAllowed, of(Kind::FetchAdd, read(quarry, 0, 0))),
            (Status::NoRegion, read(!ground, 0, 8)),
            (Status::NoRegion, write(0, 0, one)),
            (Status::NoRegion, of(Kind::IndirectRead, read(ground, entry_at(0), 8))),
            (Status::Misaligned, Words { stride: 12, count: 1, ..scan(ground, quarry) }),
            (Status::TooLarge, Words { stride: 16, count: 4097, ..scan(ground, quarry) }),
            // The asker's own daemon refuses that, and it is to come in its turn as well.
            (Status::TooLarge, read(ground, 0, u32::MAX)),
            (Status::TooLarge, read(ground, 0, u32::MAX)),
            (
                Status::OutOfBounds,
                Words { place: (end - 16).into(), stride: 16, count: 2, ..scan(ground, quarry) },
            ),
        ];
        let index = random.below(cases.len() as u64) as usize;
        let (status, words) = cases.into_iter().nth(index)?;
        Some((Question::Wrong(status), words))
    }

    // ---- what is answered ----

    /// Compares an answer with what it may be.
    pub(crate) fn answer(&mut self, asked: &Question, answer: &Answer<'_>) -> Result<(), String> {
        if self.is_tainted() {
            return Ok(());
        }
        let is_sound = match answer.status {
            Status::Done => self.done(asked, answer),
            Status::Unknown if asked.has_effect() => Ok(()),
            Status::Failed | Status::NoConnection => self.undone(asked),
            Status::Busy if asked.notice().is_some() => self.undone(asked),
            status => {
                self.undone(asked)?;
                let is_fair = self.may_refuse(asked, answer, status);
                if is_fair { Ok(()) } else { Err("refused without a reason".to_owned()) }
            }
        };
        is_sound.map_err(|what| format!("{asked:?} is answered {:?}: {what}", answer.status))
    }

    /// What could not be asked after all.
    pub(crate) fn withdraw(&mut self, question: &Question) {
        let is_undone = self.undone(question);
        debug_assert!(is_undone.is_ok(), "nobody has asked");
    }

    fn undone(&mut self, asked: &Question) -> Result<(), String> {
        let was_told = asked.notice().is_some_and(|value| self.notices.remove(&value).is_none());
        if was_told {
            return Err("its owner was told of it".to_owned());
        }
        match *asked {
            Question::Add { word, slot } => self.adds[word].undone(slot),
            Question::Swap { word, index } => {
                self.swaps[word].undone(index);
                Ok(())
            }
            Question::WriteRecord { record, number, .. } => self.records[record].undone(number),
            Question::WriteBlock { block, number } => self.blocks[block].undone(number),
            Question::Pry { what: Prying::Add(host), may: true } => {
                self.vault.undo_add(host);
                Ok(())
            }
            Question::Visit(ref visit) => {
                self.undo_visit(visit);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn may_refuse(&self, asked: &Question, answer: &Answer<'_>, status: Status) -> bool {
        match *asked {
            Question::Find(region) => {
                status == Status::NotFound && !self.was_shared(region, answer.asked, answer.now)
            }
            Question::Follow { entry, max } => self.may_lead(entry, max, answer, Err(status)),
            Question::Scan { found: None, .. } => status == Status::NotFound,
            Question::Scan { found: Some((entry, _)), max } => {
                self.may_lead(entry, max, answer, Err(status))
            }
            Question::WriteLease { handle, .. } | Question::ReadLease { handle, .. } => {
                let is_ending = |tenure: &super::estate::Tenure| {
                    tenure.handle == Some(handle) && tenure.is_ending(answer.now)
                };
                status == Status::NoRegion
                    && self.tenures[Region::Lease as usize].iter().any(is_ending)
            }
            Question::Pry { what, may } => Self::may_refuse_prying(what, may, status),
            Question::Visit(ref visit) => self.may_refuse_visit(visit, status),
            Question::Wrong(expected) => status == expected,
            _ => false,
        }
    }

    /// True if the entry may have led to these bytes, or to that refusal.
    fn may_lead(
        &self,
        entry: usize,
        max: u32,
        answer: &Answer<'_>,
        found: Result<&[u8], Status>,
    ) -> bool {
        self.entries(entry, answer.asked).any(|entry| self.leads(entry, max, found))
    }

    fn leads(&self, entry: u64, max: u32, found: Result<&[u8], Status>) -> bool {
        match (expected(entry, max), found) {
            (Ok(pointer), Ok(bytes)) => {
                bytes.len() as u32 == pointer.length && self.quarry().is(pointer.offset, bytes)
            }
            (Err(expected), Err(found)) => expected == found,
            _ => false,
        }
    }

    fn done(&mut self, asked: &Question, answer: &Answer<'_>) -> Result<(), String> {
        let Answer { value, extra, bytes, asked: at, now, .. } = *answer;
        let is_done = asked.notice().and_then(|value| self.notices.get_mut(&value));
        is_done.into_iter().for_each(|is_done| *is_done = true);
        let is_sound = match *asked {
            Question::Add { word, slot } => return self.adds[word].done(slot, value),
            Question::Swap { word, index } => {
                self.swaps[word].done(index, now, value);
                true
            }
            Question::WriteRecord { record, number, .. } => {
                self.records[record].done(number, now);
                true
            }
            Question::WriteBlock { block, number } => {
                self.blocks[block].done(number, now);
                true
            }
            Question::ReadRecord { record } => {
                return self.records[record].read(at, now, bytes);
            }
            Question::ReadBlock { block, at: from, length } => {
                // Somebody's write may be half done.
                self.blocks[block].read_part(at, from.into(), bytes)?;
                bytes.len() == length as usize
            }
            Question::ReadJournal { steps } => {
                let (first, second) = self.journal().versions(bytes)?;
                let found = first + second;
                first.wrapping_sub(second) < 2 && (steps..=self.journal_steps).contains(&found)
            }
            Question::Find(region) => {
                extra == u64::from(self.layout.length(region))
                    && self.may_be_found(region, value, at)
            }
            Question::Who => true,
            Question::Follow { entry, max } => self
                .entries(entry, at)
                .any(|entry| entry == value && self.leads(entry, max, Ok(bytes))),
            Question::Batch { ref entries, max } => self.is_batch(entries, max, answer),
            Question::Scan { found, max } => found.is_some_and(|(entry, index)| {
                index == value && self.may_lead(entry, max, answer, Ok(bytes))
            }),
            Question::WriteLease { handle, .. } => self.may_be_found(Region::Lease, handle, at),
            Question::ReadLease { handle, at: from, length } => {
                let tenures = self.tenures[Region::Lease as usize].iter();
                let mut tenures = tenures.filter(|tenure| tenure.handle == Some(handle));
                tenures.any(|tenure| tenure.ended >= at && tenure.content.is(from.into(), bytes))
                    && bytes.len() == length as usize
            }
            Question::Pry { what, may } => may && self.is_pried(what, answer),
            Question::Visit(ref visit) => self.may_be_visited(visit, answer),
            Question::Wrong(_) => false,
        };
        let found = || {
            let first = &bytes[..bytes.len().min(32)];
            let club = self.club.as_ref().filter(|_| matches!(asked, Question::Visit(_)));
            let groups = club.map(Club::groups);
            format!(
                "it has found {value:x}, {extra:x} and {} bytes: {first:x?}; {groups:?}",
                bytes.len()
            )
        };
        if is_sound { Ok(()) } else { Err(found()) }
    }

    fn is_batch(&self, entries: &[Result<usize, Status>], max: u32, answer: &Answer<'_>) -> bool {
        let Some((heads, mut rest)) = answer.bytes.split_at_checked(8 * entries.len()) else {
            return false;
        };
        let mut done = 0;
        for (head, entry) in heads.as_chunks::<8>().0.iter().zip(entries) {
            let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let Some((bytes, behind)) = rest.split_at_checked(length) else { return false };
            rest = behind;
            let status = Status::of(head[3]);
            let found = if status == Status::Done { Ok(bytes) } else { Err(status) };
            done += u64::from(found.is_ok());
            let is_sound = match entry {
                Ok(entry) => self.may_lead(*entry, max, answer, found),
                Err(expected) => found == Err(*expected),
            };
            if !is_sound || (found.is_err() && length > 0) {
                return false;
            }
        }
        rest.is_empty() && done == answer.value
    }
}

fn scan(region: u64, second: u64) -> Words {
    Words { kind: Kind::ScanRead as u8, second, ..read(region, TABLE, 8) }
}

/// Some of `all` bytes: where, and at most so many.
pub(super) fn part(random: &mut Random, all: u32, length_max: u32) -> (u32, u32) {
    let length = 1 + random.below(length_max.min(all).into()) as u32;
    (random.below(u64::from(all - length) + 1) as u32, length)
}
