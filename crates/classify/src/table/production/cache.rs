//! The exact-match cache: answers to what was asked lately.
//!
//! It is for the packets that most packets are, IPv4 with ports and without a tag, between the same
//! two Ethernet addresses as far as rules look at these: there a question is two words under the
//! union of all rules' masks, of which 24 bits are always the same. The answer stands in their
//! place, so that a slot has 16 bytes and a cache line four of them. A question has two lines where
//! its answer may be, of which the second is asked only when the first does not know. All other
//! packets go past the cache.
//!
//! What all questions in the cache have in common of the other words is the *context*, that of the
//! first such packet that was asked about; for a host's own address it is that of nearly all.
//!
//! An insertion or removal that can change one question's answer only (a connection's rule) clears
//! those lines. Any other makes everything old: a *region* of the cache whose generation is not the
//! current one is cleared when it is next asked, so that no update waits for the whole cache to be
//! cleared. The cache watches its own worth and stays out of the way for a while when few questions
//! are asked twice.

#[cfg(test)]
mod tests;

use super::entry::{Mask, WIDE_WORDS, hash};
use crate::Pattern;
use crate::table::BATCH_MAX;
use clearway_wire::digest::Digest;

/// Where the answer is in a slot's first word; what stands there in a digest is the same for all
/// that are cached.
const ANSWER: u64 = 0x00ff_ffff;
/// Untagged IPv4 with ports: bits 23 to 0 of word 0.
const PLAIN: u64 = 0x0061_0800;
/// The answer of a slot that is empty.
const EMPTY: u32 = 0x00ff_fffe;
/// The answer: no rule matches.
const NO_RULE: u32 = 0x00ff_ffff;
/// At most 16 MiB.
const SLOTS_MAX: usize = 1 << 20;
/// Rules that make fewer flows are found as quickly without.
const FLOWS_MIN: usize = 1024;
const WAYS: usize = 4;
/// Lines in a region.
const REGION_LINES: usize = 16;
/// When numbers of generations come again, this one does not: it is that of all regions then, which
/// are old, with what is still remembered of the batch that was asked about last.
const FIRST_GENERATION: u32 = 0;
/// Questions past the cache after everything became old: where rules change all the time, there is
/// nothing to remember.
const PAUSE: u32 = 128;
/// The cache is worth its while if this part of the questions (one in four) is answered.
const WORTH: u32 = 4;
/// One line in so many is of the sample.
const SAMPLE: usize = 16;
/// So many lines of a cache are made with a batch.
const MADE: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Word 0 under the union, but for the answer.
    word_0: u64,
    word_3: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    slots: [Slot; WAYS],
}

const NO_LINE: Line = Line { slots: [Slot { word_0: EMPTY as u64, word_3: 0 }; WAYS] };

/// A batch of packets, as the cache sees them.
#[derive(Debug)]
pub(super) struct Questions {
    word_0: [u64; BATCH_MAX],
    word_3: [u64; BATCH_MAX],
    hash: [u64; BATCH_MAX],
    /// Whether it is of the sample.
    is_sampled: [bool; BATCH_MAX],
    /// Whether the cache is to be asked.
    is_cacheable: [bool; BATCH_MAX],
    /// A rule, [`NO_RULE`], or [`EMPTY`] for what the cache does not know.
    answer: [u32; BATCH_MAX],
    /// Those which the cache does not know.
    pub(super) unknown: [u8; BATCH_MAX],
    pub(super) unknown_count: usize,
}

impl Questions {
    pub(super) const fn new() -> Self {
        Self {
            word_0: [0; BATCH_MAX],
            word_3: [0; BATCH_MAX],
            hash: [0; BATCH_MAX],
            is_sampled: [false; BATCH_MAX],
            is_cacheable: [false; BATCH_MAX],
            answer: [EMPTY; BATCH_MAX],
            unknown: [0; BATCH_MAX],
            unknown_count: 0,
        }
    }

    /// The rule that matches, if the cache knows one.
    #[inline]
    pub(super) fn rule(&self, at: usize) -> Option<u32> {
        (self.answer[at] < EMPTY).then_some(self.answer[at])
    }

    /// Lists those of the first `count` without an answer. Without a branch.
    #[inline]
    fn list_unknown(&mut self, count: usize) {
        self.unknown_count = 0;
        for at in 0..count {
            self.unknown[self.unknown_count % BATCH_MAX] = at as u8;
            self.unknown_count += usize::from(self.answer[at] == EMPTY);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    /// The bits that any rule has asked for, ever.
    union: Mask,
    /// The other words of all questions in the cache, under the union; `None` if there are no
    /// questions.
    context: Option<[u64; WIDE_WORDS.len()]>,
    lines: Vec<Line>,
    /// How many lines there are to be: none is asked before.
    size: usize,
    /// The generation of each region.
    regions: Vec<u32>,
    generation: u32,
    /// Questions that go past it before it is asked again.
    pause: u32,
    /// Of the sample, in this period.
    asked: u32,
    answered: u32,
    /// True if a period has passed since everything became old.
    is_warm: bool,
    /// True if not only the sample is asked.
    is_open: bool,
    /// Which way of a full line is next to go.
    turn: u32,
    is_disabled: bool,
    /// All questions and answers, for those who watch.
    total: (u64, u64),
}

impl Cache {
    /// A cache that is never used.
    pub(super) fn disable(&mut self) {
        self.is_disabled = true;
        self.resize(0);
    }

    /// A rule that asks for `pattern` and looks at the bits of `looks_at` has come or gone; there
    /// may be so many `flows` now.
    pub(super) fn update(&mut self, pattern: &Pattern, looks_at: &Mask, flows: usize) {
        let mask = pattern.mask();
        let is_known = self.union.iter().zip(looks_at).all(|(union, mask)| mask & !union == 0);
        for (union, mask) in self.union.iter_mut().zip(looks_at) {
            *union |= mask;
        }
        if self.resize(flows) || self.lines.len() < self.size || self.size == 0 {
            return;
        }
        let is_one_question = (self.union[0] ^ mask[0]) & !ANSWER == 0 && self.union[3] == mask[3];
        if is_known && is_one_question {
            let (word_0, word_3) = (pattern.value()[0] & !ANSWER, pattern.value()[3]);
            let hash = hash(word_0, word_3);
            for line in [self.first_line(hash), self.second_line(hash)] {
                self.lines[line] = NO_LINE;
            }
        } else {
            self.forget();
        }
    }

    /// Everything is old.
    fn forget(&mut self) {
        self.context = None;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == FIRST_GENERATION {
            self.regions.fill(FIRST_GENERATION);
            self.generation += 1;
        }
        self.pause = PAUSE;
        // Where that comes too often, there is nothing to remember.
        self.is_open &= self.is_warm || self.asked == 0;
        self.is_warm = false;
        (self.asked, self.answered) = (0, 0);
    }

    /// Makes the cache as large as it should be for that many flows; true if that changed it.
    fn resize(&mut self, flows: usize) -> bool {
        let slots = match flows {
            _ if self.is_disabled => 0,
            0..FLOWS_MIN => 0,
            flows => flows.next_power_of_two().min(SLOTS_MAX),
        };
        let lines = slots / WAYS;
        // It shrinks late, so that a rule that comes and goes does not move it.
        if lines == self.size || (lines < self.size && lines * 4 > self.size) {
            return false;
        }
        self.size = lines;
        self.lines = Vec::with_capacity(lines);
        self.regions = vec![self.generation; lines.div_ceil(REGION_LINES)];
        self.context = None;
        (self.asked, self.answered) = (0, 0);
        (self.is_warm, self.is_open) = (false, true);
        true
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.regions.capacity() * size_of::<u32>()
    }

    /// How many questions it was asked, and how many of them it answered.
    pub(super) const fn total(&self) -> (u64, u64) {
        self.total
    }

    /// True if it wants to be asked about the next `questions`.
    #[inline]
    pub(super) fn is_on(&mut self, questions: usize) -> bool {
        if self.lines.len() < self.size {
            let lines = (self.lines.len() + MADE).min(self.size);
            self.lines.resize(lines, NO_LINE);
            return false;
        }
        if self.pause > 0 {
            self.pause = self.pause.saturating_sub(questions as u32);
            return false;
        }
        !self.lines.is_empty()
    }

    /// Asks about all of a batch. First all lines are looked for, and only then read, so that the
    /// loads of different packets overlap.
    #[inline]
    pub(super) fn ask(&mut self, digests: &[Digest], questions: &mut Questions) {
        if self.context.is_none() {
            let plain = digests.iter().find(|digest| self.differs_from_plain(digest) == 0);
            self.context = plain.map(|digest| Self::context_of(&self.union, digest));
        }
        let context = self.context.unwrap_or_default();
        for (at, digest) in digests.iter().enumerate() {
            let words = digest.words();
            let word_0 = words[0] & self.union[0] & !ANSWER;
            let word_3 = words[3] & self.union[3];
            let hash = hash(word_0, word_3);
            (questions.word_0[at], questions.word_3[at]) = (word_0, word_3);
            let is_sampled = self.first_line(hash) < self.size / SAMPLE;
            let is_asked = self.is_open | is_sampled;
            // Where it is not asked, the first line is as good as any.
            questions.hash[at] = if is_asked { hash } else { 0 };
            questions.is_sampled[at] = is_sampled;
            questions.is_cacheable[at] = is_asked & self.is_cacheable(digest, &context);
            self.refresh(self.first_line(questions.hash[at]));
        }
        for at in 0..digests.len() {
            let answer = self.look_up(self.first_line(questions.hash[at]), questions, at);
            questions.answer[at] = if questions.is_cacheable[at] { answer } else { EMPTY };
        }
        questions.list_unknown(digests.len());
        if questions.unknown_count > 0 {
            self.ask_again(digests.len(), questions);
        }
        self.watch(digests.len(), questions);
    }

    /// Looks at the second lines of those that have no answer yet.
    fn ask_again(&mut self, count: usize, questions: &mut Questions) {
        for unknown in 0..questions.unknown_count {
            let at = usize::from(questions.unknown[unknown]);
            if questions.is_cacheable[at] {
                self.refresh(self.second_line(questions.hash[at]));
            }
        }
        for unknown in 0..questions.unknown_count {
            let at = usize::from(questions.unknown[unknown]);
            if questions.is_cacheable[at] {
                let line = self.second_line(questions.hash[at]);
                questions.answer[at] = self.look_up(line, questions, at);
            }
        }
        questions.list_unknown(count);
    }

    #[inline]
    fn look_up(&self, line: usize, questions: &Questions, at: usize) -> u32 {
        let (word_0, word_3) = (questions.word_0[at], questions.word_3[at]);
        let mut found = EMPTY;
        for slot in &self.lines[line].slots {
            let differ = (slot.word_0 ^ word_0) & !ANSWER | (slot.word_3 ^ word_3);
            let answer = slot.word_0 as u32 & ANSWER as u32;
            found = if differ == 0 { answer } else { found };
        }
        found
    }

    /// Remembers the answer to a question that it did not know.
    pub(super) fn remember(&mut self, questions: &Questions, at: usize, id: Option<u32>) {
        if !questions.is_cacheable[at] || id.is_some_and(|id| id >= EMPTY) {
            return;
        }
        let hash = questions.hash[at];
        let (first, second) = (self.first_line(hash), self.second_line(hash));
        let empty =
            [first, second].into_iter().find_map(|line| Some((line, self.empty_way(line)?)));
        // Where all is full, any: a cycle that is longer than the cache would find nothing if it
        // were the oldest.
        self.turn = self.turn.wrapping_add(1);
        let (line, way) = empty.unwrap_or((first, self.turn as usize % WAYS));
        let answer = u64::from(id.unwrap_or(NO_RULE));
        self.lines[line].slots[way] =
            Slot { word_0: questions.word_0[at] | answer, word_3: questions.word_3[at] };
    }

    fn empty_way(&self, line: usize) -> Option<usize> {
        let slots = &self.lines[line].slots;
        slots.iter().position(|slot| slot.word_0 as u32 & ANSWER as u32 == EMPTY)
    }

    /// True if the digest is told by what the cache compares.
    #[inline]
    fn is_cacheable(&self, digest: &Digest, context: &[u64; WIDE_WORDS.len()]) -> bool {
        let found = Self::context_of(&self.union, digest);
        let differs = |all, (found, context)| all | (found ^ context);
        found.iter().zip(context).fold(self.differs_from_plain(digest), differs) == 0
    }

    /// 0 for untagged IPv4 with ports, as far as rules look at that.
    #[inline]
    fn differs_from_plain(&self, digest: &Digest) -> u64 {
        (digest.words()[0] ^ PLAIN) & self.union[0] & ANSWER
    }

    /// What a packet says of the other words, as far as rules look at it.
    #[inline]
    fn context_of(union: &Mask, digest: &Digest) -> [u64; WIDE_WORDS.len()] {
        WIDE_WORDS.map(|word| digest.words()[word] & union[word])
    }

    #[inline]
    fn first_line(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    /// In the same sixteenth of the cache, so that the sample is a cache of its own.
    #[inline]
    fn second_line(&self, hash: u64) -> usize {
        let rest = self.lines.len() / SAMPLE - 1;
        self.first_line(hash) & !rest | (hash >> 32) as usize & rest
    }

    /// Clears the region of a line if it is old.
    #[inline]
    fn refresh(&mut self, line: usize) {
        let region = line / REGION_LINES;
        if self.regions[region] != self.generation {
            let start = region * REGION_LINES;
            let end = (start + REGION_LINES).min(self.lines.len());
            self.lines[start..end].fill(NO_LINE);
            self.regions[region] = self.generation;
        }
    }

    /// At the end of a period, in which the sample has been asked as often as it has places,
    /// decides whether the cache is worth it. The first period only fills it.
    #[inline]
    fn watch(&mut self, count: usize, questions: &Questions) {
        self.total.0 += count as u64;
        self.total.1 += (count - questions.unknown_count) as u64;
        for at in 0..count {
            self.asked += u32::from(questions.is_sampled[at]);
            let is_answered = questions.is_sampled[at] & (questions.answer[at] != EMPTY);
            self.answered += u32::from(is_answered);
        }
        if self.asked as usize >= self.size / SAMPLE * WAYS {
            let is_worth = self.answered >= self.asked / WORTH;
            if self.is_warm && !is_worth {
                // Perhaps it is another context's turn after that.
                self.is_open = false;
                return self.forget();
            }
            self.is_open |= self.is_warm;
            self.is_warm = true;
            (self.asked, self.answered) = (0, 0);
        }
    }
}
