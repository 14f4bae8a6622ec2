//! What is asked of clubs, by those who are in a group and by those who are in none.

use clearway_base::{Random, Time};
use clearway_channel::{OperationKind as Kind, OperationStatus as Status};

use super::club::{Circle, Club, Mark, Tick};
use super::estate::Estate;
use super::layout::Region;
use super::question::{AT_ONCE_BYTES_MAX, Answer, Question, Words, part, read, write};
use super::vault::Who;

/// The values that come with writes in clubs have this bit.
const NOTICE: u64 = 1 << 63;
/// A short write is not longer than that.
const SHORT_BYTES_MAX: u32 = 64;

/// What is asked, by whom, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    what: Errand,
    mark: Mark,
    since: Tick,
}

#[derive(Clone, Copy, Debug)]
enum Errand {
    Find,
    /// So many bytes of the board.
    Read(u32),
    /// So many bytes of the yard, and what the owner is told.
    Write(u32, Option<u64>),
    /// To the word of who asks.
    Add,
}

impl Visit {
    pub(super) const fn has_effect(&self) -> bool {
        matches!(self.what, Errand::Write(..) | Errand::Add)
    }

    pub(super) const fn length(&self) -> u32 {
        match self.what {
            Errand::Read(length) | Errand::Write(length, _) => length,
            Errand::Find | Errand::Add => 0,
        }
    }

    pub(super) const fn notice(&self) -> Option<u64> {
        match self.what {
            Errand::Write(_, notice) => notice,
            _ => None,
        }
    }

    /// The groups of which either lets who asks do that.
    const fn circles(&self) -> &'static [Circle] {
        match self.what {
            Errand::Find => &[Circle::Readers, Circle::Crew],
            Errand::Read(_) => &[Circle::Readers],
            Errand::Write(..) | Errand::Add => &[Circle::Crew],
        }
    }

    /// It may be cut off, and its connection reset.
    fn is_long_read(&self) -> bool {
        matches!(self.what, Errand::Read(length) if length > AT_ONCE_BYTES_MAX)
    }
}

/// Who has written in a club, if an owner is told of that.
pub(super) const fn mark_of_notice(value: u64) -> Option<Mark> {
    if value & NOTICE != 0 { Some((value >> 32) as Mark) } else { None }
}

impl Estate {
    /// Something to ask of the club. Whether it may be done follows from who is in its groups.
    pub(crate) fn visit(
        &mut self,
        random: &mut Random,
        who: Who,
        may_be_long: bool,
    ) -> Option<(Question, Words)> {
        let region = self.handle(Region::Club)?;
        let (start, layout) = (self.layout.region(Region::Club).start, self.layout);
        let club = self.club.as_mut()?;
        let mark = club.mark(who)?;
        let length_max = if may_be_long { u32::MAX } else { SHORT_BYTES_MAX };
        let (what, words) = match random.below(8) {
            0 => (Errand::Find, Question::find(Region::Club).1),
            1 => {
                club.begin_add(mark);
                let word = read(region, layout.club_word(mark) - start, 0);
                (Errand::Add, Words { kind: Kind::FetchAdd as u8, operand: 1, ..word })
            }
            2..=4 => {
                let board = layout.club_board();
                let (at, length) = part(random, board.len() as u32, length_max);
                (Errand::Read(length), read(region, board.start - start + at, length))
            }
            _ => {
                let yard = layout.club_yard();
                let (at, length) = part(random, yard.len() as u32, length_max);
                let words = write(region, yard.start - start + at, vec![mark; length as usize]);
                let notice = random.chance(1, 3).then(|| self.note_visit(mark));
                let notifies = |operand| {
                    let kind = Kind::WriteNotify as u8;
                    Words { kind, operand, ..words.clone() }
                };
                (Errand::Write(length, notice), notice.map_or(words.clone(), notifies))
            }
        };
        let since = self.club.as_ref().map_or(0, Club::now);
        Some((Question::Visit(Visit { what, mark, since }), words))
    }

    /// The owner is to be told of a write.
    fn note_visit(&mut self, mark: Mark) -> u64 {
        self.notices_of_club += 1;
        let value = NOTICE | u64::from(mark) << 32 | self.notices_of_club;
        self.notices.insert(value, false);
        value
    }

    /// Something has been asked on a connection. True if that may be reset for it already.
    pub(crate) fn begins_reading(&mut self, connection: u64, question: &Question) -> bool {
        match (question, &mut self.club) {
            (Question::Visit(visit), Some(club)) if visit.is_long_read() => {
                club.begin_reading(connection, visit.mark)
            }
            _ => false,
        }
    }

    /// It was not done.
    pub(super) fn undo_visit(&mut self, visit: &Visit) {
        if let (Errand::Add, Some(club)) = (visit.what, &mut self.club) {
            club.undo_add(visit.mark);
        }
    }

    /// Whether this may be answered.
    pub(super) fn may_be_visited(&self, visit: &Visit, answer: &Answer<'_>) -> bool {
        let Some(club) = &self.club else { return false };
        let (mark, span) = (visit.mark, visit.since..club.now());
        let may = |circle: &Circle| club.may(*circle, mark, span.clone());
        let is_it = match visit.what {
            Errand::Find => {
                answer.extra == u64::from(self.layout.length(Region::Club))
                    && self.may_be_found(Region::Club, answer.value, Time::ZERO)
            }
            Errand::Read(length) => {
                answer.bytes.len() == length as usize
                    && club.may_have_read(mark, span.clone(), answer.bytes)
            }
            Errand::Write(..) => true,
            Errand::Add => club.may_have_found(mark, answer.value),
        };
        is_it && visit.circles().iter().any(may)
    }

    /// Whether it may be refused in this way: only if who asks was in no group for a while.
    pub(super) fn may_refuse_visit(&self, visit: &Visit, status: Status) -> bool {
        let Some(club) = &self.club else { return false };
        let span = visit.since..club.now();
        let must = |circle: &Circle| club.must(*circle, visit.mark, span.clone());
        let expected = match visit.what {
            Errand::Find => Status::NotFound,
            Errand::Read(_) | Errand::Write(..) | Errand::Add => Status::NotAllowed,
        };
        status == expected && !visit.circles().iter().any(must)
    }
}
