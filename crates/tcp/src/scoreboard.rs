//! What has been sent and is not acknowledged: when each segment left, what has arrived by
//! selective acknowledgements (RFC 2018), what is lost (RFC 8985).
//!
//! ```text
//! una                                                          nxt
//!  │ record │ record │ record │ record │ record │ ... │ record │
//!     lost    sacked   sacked   again    lost
//! ```
//!
//! A record is a segment as it was last sent. A selective acknowledgement of a part of one counts
//! for nothing: a peer that could split records could make many (CVE-2019-11477, "SACK panic").
//! What has arrived already is skipped as a whole, so that no acknowledgement makes us look at it
//! again.

use core::ops::Range;
use std::collections::VecDeque;

use clearway_base::{RangeSet, Time};

use crate::rack::{Rack, Sent, Window};

/// One segment, as it was last sent.
#[derive(Clone, Copy, Debug)]
struct Record {
    start: u64,
    sent: Time,
    length: u32,
    /// `Sent::turn`.
    turn: u16,
    /// It has been sent more than once.
    again: bool,
}

impl Record {
    const fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    const fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    const fn as_sent(&self) -> Sent {
        Sent { at: self.sent, turn: self.turn, end: self.end(), again: self.again }
    }
}

/// All that is outstanding.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    bytes: u64,
    /// Arrived, by selective acknowledgements.
    sacked: RangeSet,
    sacked_bytes: u64,
    /// To be sent again.
    lost: RangeSet,
    lost_bytes: u64,
    /// What has been sent again, in the order of time: all of it that has neither arrived nor
    /// counts as lost. What has been sent once is in that order as records are.
    resent: VecDeque<Sent>,
    /// Of what has been sent once, all before this has arrived, or counts as lost.
    judged: u64,
}

/// What an acknowledgement says has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) now: Time,
    pub(crate) min_rtt_ns: u64,
    /// What had not arrived before.
    pub(crate) bytes: u64,
    /// When the newest and, of what is acknowledged in order, the oldest of it were sent that were
    /// sent once: others are ambiguous (Karn's algorithm).
    pub(crate) newest: Option<Time>,
    pub(crate) oldest: Option<Time>,
    /// Something that was sent again is acknowledged in order: what stands behind it may have come
    /// long before, and waited for it.
    pub(crate) has_resent: bool,
    /// Where the first segment of it ends that was sent once.
    pub(crate) first_end: u64,
    /// When the newest transmission of all left.
    pub(crate) last_sent: Time,
}

impl Delivered {
    pub(crate) const fn new(now: Time, min_rtt_ns: u64) -> Self {
        let last_sent = Time::ZERO;
        let (newest, oldest, has_resent, first_end) = (None, None, false, u64::MAX);
        Self { now, min_rtt_ns, bytes: 0, newest, oldest, has_resent, first_end, last_sent }
    }

    #[inline]
    fn add(&mut self, record: &Record, rack: &mut Rack) {
        self.last_sent = self.last_sent.max(record.sent);
        if !record.again {
            self.newest = self.newest.max(Some(record.sent));
            self.first_end = self.first_end.min(record.end());
        }
        rack.on_delivered(self.now, record.as_sent(), self.min_rtt_ns);
    }
}

/// What has been found to be lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    pub(crate) bytes: u64,
    /// When the last of it was sent.
    pub(crate) sent: Time,
    /// When more of it may count as lost.
    pub(crate) next: Option<Time>,
}

/// More holes than this are not kept in mind: selective acknowledgements are advice, and what is
/// not noted is only sent again. A path that loses one of two segments makes as many with a
/// window of 3 MB.
const SACKED_RANGES_MAX: usize = 1024;

impl Scoreboard {
    /// A segment has been sent for the first time: what comes behind all others.
    #[inline]
    pub(crate) fn push(&mut self, now: Time, range: Range<u64>) {
        debug_assert!(self.records.back().is_none_or(|last| last.end() == range.start));
        let length = (range.end - range.start) as u32;
        let turn = self.turn(now, range.end);
        self.records.push_back(Record {
            start: range.start,
            sent: now,
            length,
            turn,
            again: false,
        });
        self.bytes += u64::from(length);
    }

    /// `Sent::turn` of what is sent now and ends at `end`.
    #[inline]
    fn turn(&self, now: Time, end: u64) -> u16 {
        let pushed = self.records.back().filter(|last| last.sent == now).map(Record::as_sent);
        let resent = self.resent.back().filter(|last| last.at == now).copied();
        pushed.max(resent).map_or(0, |last| last.next_turn(end))
    }

    /// What stands in `range` was sent before, nobody knows when, in segments of `segment_bytes`;
    /// it counts as sent again now.
    pub(crate) fn restore(now: Time, range: Range<u64>, segment_bytes: u64) -> Self {
        let mut board = Self { judged: range.start, ..Self::default() };
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + segment_bytes);
            board.push(now, at..end);
            at = end;
        }
        board.records.iter_mut().for_each(|record| record.again = true);
        board.resent = board.records.iter().map(Record::as_sent).collect();
        board
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Segments outstanding.
    pub(crate) fn segments(&self) -> usize {
        self.records.len()
    }

    /// RFC 6675's pipe: what is thought to be in the network.
    #[inline]
    pub(crate) const fn in_flight_bytes(&self) -> u64 {
        self.bytes - self.sacked_bytes - self.lost_bytes
    }

    pub(crate) const fn sacked_bytes(&self) -> u64 {
        self.sacked_bytes
    }

    pub(crate) const fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// What has been sent again, and has neither arrived nor been lost again.
    pub(crate) fn resent_bytes(&self) -> u64 {
        let is_out = |record: &&Record| {
            record.again && !self.sacked.contains(record.start) && !self.lost.contains(record.start)
        };
        self.records.iter().filter(is_out).map(|record| u64::from(record.length)).sum()
    }

    /// Segments outstanding that have not arrived.
    pub(crate) fn undelivered_segments(&self) -> usize {
        self.records.iter().filter(|record| !self.sacked.contains(record.start)).count()
    }

    /// Of what is lost, what stands in `range`.
    pub(crate) fn lost_bytes_in(&self, range: Range<u64>) -> u64 {
        let parts = self.lost.overlapping(range.clone());
        parts.map(|part| part.end.min(range.end) - part.start.max(range.start)).sum()
    }

    /// The length of the first segment that is not acknowledged.
    pub(crate) fn first_bytes(&self) -> u32 {
        self.records.front().map_or(0, |first| first.length)
    }

    #[inline]
    pub(crate) const fn has_lost(&self) -> bool {
        self.lost_bytes > 0
    }

    /// All before `una` is acknowledged.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: u64, delivered: &mut Delivered, rack: &mut Rack) {
        while let Some(record) = self.records.front_mut().filter(|record| record.start < una) {
            let whole = *record;
            let gone = (una.min(whole.end()) - whole.start) as u32;
            if gone < whole.length {
                record.start += u64::from(gone);
                record.length -= gone;
            } else {
                self.records.pop_front();
            }
            self.count_out(&whole, gone.into(), delivered, rack);
        }
        if !self.sacked.is_empty() {
            self.sacked.forget_below(una);
        }
        if !self.lost.is_empty() {
            self.lost.forget_below(una);
        }
        self.forget_resent();
    }

    /// What has become of something that was sent again need not be kept: of a peer without
    /// selective acknowledgements nobody else asks.
    #[inline]
    fn forget_resent(&mut self) {
        while let Some(sent) = self.resent.front().copied()
            && self.standing(sent).is_none()
        {
            self.resent.pop_front();
        }
    }

    #[inline]
    fn count_out(
        &mut self,
        record: &Record,
        gone: u64,
        delivered: &mut Delivered,
        rack: &mut Rack,
    ) {
        self.bytes -= gone;
        if self.sacked_bytes > 0 && self.sacked.contains(record.start) {
            self.sacked_bytes -= gone;
            return;
        }
        if self.lost_bytes > 0 && self.lost.contains(record.start) {
            self.lost_bytes -= gone;
        }
        delivered.bytes += gone;
        if record.again {
            delivered.has_resent = true;
        } else {
            delivered.oldest.get_or_insert(record.sent);
        }
        if gone == u64::from(record.length) {
            delivered.add(record, rack);
        }
    }

    /// The block `range`, all of which is outstanding, has arrived.
    pub(crate) fn sack(&mut self, range: &Range<u64>, delivered: &mut Delivered, rack: &mut Rack) {
        let mut index = self.records.partition_point(|record| record.start < range.start);
        while let Some(start) = self.records.get(index).map(|record| record.start) {
            if let Some(known) = self.sacked.range_of(start) {
                if known.end >= range.end {
                    return;
                }
                index = self.index_of(known.end);
                continue;
            }
            let end = self.sack_run(index, range.end, delivered, rack);
            if end == start {
                return;
            }
            index = self.index_of(end);
        }
    }

    /// The records from `index` on up to `limit` that had not arrived have. Returns where they end.
    fn sack_run(
        &mut self,
        index: usize,
        limit: u64,
        delivered: &mut Delivered,
        rack: &mut Rack,
    ) -> u64 {
        let start = self.records[index].start;
        let known = self.sacked.iter().next_back().map_or(0, |last| last.end);
        let is_bounded = self.sacked.len() < SACKED_RANGES_MAX;
        let mut end = start;
        for record in self.records.range(index..) {
            let is_known = record.start < known && self.sacked.contains(record.start);
            if record.end() > limit || is_known || !is_bounded {
                break;
            }
            if self.lost_bytes > 0 && self.lost.contains(record.start) {
                self.lost_bytes -= u64::from(record.length);
                self.lost.remove(record.range());
            }
            delivered.bytes += u64::from(record.length);
            delivered.add(record, rack);
            end = record.end();
        }
        self.sacked_bytes += self.sacked.insert(start..end);
        end
    }

    /// RACK_detect_loss (RFC 8985, section 6.2, step 5).
    pub(crate) fn detect_lost(&mut self, now: Time, rack: &Rack, window: &Window) -> Lost {
        let mut lost = Lost::default();
        self.judge_sent_once(now, rack, window, &mut lost);
        self.judge_resent(now, rack, window, &mut lost);
        lost
    }

    fn judge_sent_once(&mut self, now: Time, rack: &Rack, window: &Window, lost: &mut Lost) {
        let mut index = self.index_of(self.judged);
        while let Some(record) = self.records.get(index).copied() {
            if let Some(known) = self.sacked.range_of(record.start) {
                self.judged = known.end;
                index = self.index_of(known.end);
                continue;
            }
            if !record.again && !self.lost.contains(record.start) {
                if !rack.is_after(record.as_sent()) {
                    return;
                }
                let deadline = rack.deadline(record.sent, window);
                if deadline > now {
                    lost.next = Some(deadline);
                    return;
                }
                self.mark_lost(&record, lost);
            }
            self.judged = record.end();
            index += 1;
        }
    }

    fn judge_resent(&mut self, now: Time, rack: &Rack, window: &Window, lost: &mut Lost) {
        while let Some(sent) = self.resent.front().copied() {
            if let Some(record) = self.standing(sent) {
                if !rack.is_after(sent) {
                    return;
                }
                let deadline = rack.deadline(sent.at, window);
                if deadline > now {
                    lost.next = Some(lost.next.map_or(deadline, |next| next.min(deadline)));
                    return;
                }
                self.mark_lost(&record, lost);
            }
            self.resent.pop_front();
        }
    }

    /// The record whose last transmission is `sent`, if nothing has become of it.
    fn standing(&self, sent: Sent) -> Option<Record> {
        let record = *self.records.get(self.index_of(sent.end - 1))?;
        let is_open = record.as_sent() == sent
            && !self.sacked.contains(record.start)
            && !self.lost.contains(record.start);
        is_open.then_some(record)
    }

    fn mark_lost(&mut self, record: &Record, lost: &mut Lost) {
        self.lost_bytes += self.lost.insert(record.range());
        lost.bytes += u64::from(record.length);
        lost.sent = lost.sent.max(record.sent);
    }

    /// The first segment counts as lost, whatever has been said of it.
    pub(crate) fn mark_first_lost(&mut self) -> Lost {
        self.forget_sacked_if_taken_back();
        let mut lost = Lost::default();
        if let Some(first) = self.records.front().copied()
            && !self.lost.contains(first.start)
        {
            self.mark_lost(&first, &mut lost);
        }
        lost
    }

    /// All before `end`, where a segment ends, that has not arrived counts as lost. A timeout of a
    /// large window does not look at every segment of it.
    pub(crate) fn mark_lost_before(&mut self, end: u64) {
        self.forget_sacked_if_taken_back();
        let mut start = self.records.front().map_or(end, |record| record.start);
        for known in self.sacked.iter().take_while(|known| known.start < end) {
            self.lost_bytes += self.lost.insert(start..known.start);
            start = known.end;
        }
        self.lost_bytes += self.lost.insert(start..end.max(start));
        self.resent.retain(|sent| sent.end > end);
        self.judged = self.judged.max(end);
    }

    /// Nothing was lost after all, as far as is known.
    pub(crate) fn forget_lost(&mut self) {
        let lost = core::mem::take(&mut self.lost);
        self.lost_bytes = 0;
        self.judge_again(&lost);
    }

    /// What stands in `ranges` counts as neither lost nor arrived any more. RFC 8985, section 6.2,
    /// step 5, judges "each segment, Segment, not acknowledged yet", whatever was said before.
    fn judge_again(&mut self, ranges: &RangeSet) {
        let Some(first) = ranges.first() else { return };
        self.judged = self.judged.min(first.start);
        for range in ranges.iter() {
            let records = self.records.range(self.index_of(range.start)..);
            let inside = records.take_while(|record| record.start < range.end);
            self.resent.extend(inside.filter(|record| record.again).map(Record::as_sent));
        }
        self.resent.make_contiguous().sort_unstable();
    }

    /// What is longer than `most` has not passed a router: it is lost, and that is no congestion.
    /// Looks at every segment: `mtu` sees to it that this is seldom.
    pub(crate) fn mark_longer_lost(&mut self, most: u32) {
        let mut lost = Lost::default();
        for index in 0..self.records.len() {
            let record = self.records[index];
            if record.length > most && !self.sacked.contains(record.start) {
                self.mark_lost(&record, &mut lost);
            }
        }
    }

    /// RFC 2018, section 8: a receiver may take back what it has acknowledged selectively. It has
    /// if the first segment is such.
    fn forget_sacked_if_taken_back(&mut self) {
        let first = self.records.front().map(|record| record.start);
        if first.is_some_and(|first| self.sacked.contains(first)) {
            let sacked = core::mem::take(&mut self.sacked);
            self.sacked_bytes = 0;
            self.judge_again(&sacked);
        }
    }

    /// The first lost segment, or its first `most` bytes, is sent again now.
    pub(crate) fn resend_lost(&mut self, now: Time, most: u32) -> Option<Range<u64>> {
        let start = self.lost.first()?.start;
        let index = self.index_of(start);
        self.split(index, most);
        Some(self.resend(now, index))
    }

    /// The last segment that ends before `limit`, if there is one, or its last `most` bytes, is
    /// sent again now.
    pub(crate) fn resend_last(&mut self, now: Time, limit: u64, most: u32) -> Option<Range<u64>> {
        let inside = self.records.partition_point(|record| record.end() <= limit);
        let count = if inside == 0 { self.records.len() } else { inside };
        let index = count.checked_sub(1)?;
        let ahead = self.records[index].length.saturating_sub(most);
        if ahead == 0 {
            return Some(self.resend(now, index));
        }
        self.split(index, ahead);
        Some(self.resend(now, index + 1))
    }

    fn resend(&mut self, now: Time, index: usize) -> Range<u64> {
        let turn = self.turn(now, self.records[index].end());
        let record = &mut self.records[index];
        (record.sent, record.turn, record.again) = (now, turn, true);
        let record = *record;
        self.resent.push_back(record.as_sent());
        if self.lost.contains(record.start) {
            self.lost.remove(record.range());
            self.lost_bytes -= u64::from(record.length);
        }
        record.range()
    }

    /// Makes two records of one that is longer than `most`.
    fn split(&mut self, index: usize, most: u32) {
        let record = &mut self.records[index];
        if record.length > most {
            let start = record.start + u64::from(most);
            let behind = Record { start, length: record.length - most, ..*record };
            record.length = most;
            let (again, sent) = (record.again, record.as_sent());
            self.records.insert(index + 1, behind);
            if again {
                let at = self.resent.partition_point(|other| *other < sent);
                self.resent.insert(at, sent);
            }
        }
    }

    /// What has been sent has not been taken, and is as if it had not been sent.
    pub(crate) fn clear(&mut self) {
        *self = Self { judged: self.judged, ..Self::default() };
    }

    fn index_of(&self, position: u64) -> usize {
        match self.records.front() {
            Some(first) if position > first.start => {
                self.records.partition_point(|record| record.end() <= position)
            }
            _ => 0,
        }
    }

    /// Holds the books against the records: `outstanding` is all that there is, and each byte of it
    /// is in flight, arrived, or lost.
    #[cfg(test)]
    pub(crate) fn check(&self, outstanding: Range<u64>) {
        let mut at = outstanding.start;
        let (mut sacked_bytes, mut lost_bytes) = (0, 0);
        for record in &self.records {
            assert_eq!(record.start, at, "no hole between records");
            assert!(record.length > 0, "a record of nothing");
            at = record.end();
            for book in [&self.sacked, &self.lost] {
                let inside = book
                    .overlapping(record.range())
                    .map(|range| range.end.min(record.end()) - range.start.max(record.start));
                let inside: u64 = inside.sum();
                assert!([0, u64::from(record.length)].contains(&inside), "a part of {record:?}");
            }
            let is_sacked = self.sacked.contains(record.start);
            let is_lost = self.lost.contains(record.start);
            assert!(!(is_sacked && is_lost), "in both books: {record:?}");
            let is_to_be_judged = match record.again {
                true => self.resent.contains(&record.as_sent()),
                false => record.start >= self.judged,
            };
            assert!(is_sacked || is_lost || is_to_be_judged, "never lost: {record:?}");
            sacked_bytes += u64::from(record.length) * u64::from(is_sacked);
            lost_bytes += u64::from(record.length) * u64::from(is_lost);
        }
        assert_eq!(at, outstanding.end);
        assert_eq!(self.bytes, outstanding.end - outstanding.start);
        assert_eq!((self.sacked_bytes, self.lost_bytes), (sacked_bytes, lost_bytes));
        let total = |book: &RangeSet| book.iter().map(|range| range.end - range.start).sum();
        assert_eq!((total(&self.sacked), total(&self.lost)), (sacked_bytes, lost_bytes));
    }

    /// How much is kept of what was sent again.
    #[cfg(test)]
    pub(crate) fn resent(&self) -> usize {
        self.resent.len()
    }

    /// Where the record ends that `position` is in.
    #[cfg(test)]
    pub(crate) fn edge_at(&self, position: u64) -> Option<u64> {
        self.records.get(self.index_of(position)).map(Record::end)
    }
}
