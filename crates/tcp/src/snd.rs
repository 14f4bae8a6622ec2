//! The sending half: what the app has given, how far it has been sent, what the peer has room for.
//!
//! ```text
//!  given back │ una   sent, not acknowledged   nxt │ not sent yet │ end
//! ```

use core::ops::Range;

use clearway_base::ShortQueue;

use crate::extent::Extent;
use crate::saved::{self, Invalid, SavedSend, ensure};

/// The send sequence space (RFC 9293, section 3.3.1) and the extents in it.
#[derive(Debug)]
pub(crate) struct Send {
    /// SND.UNA, SND.NXT, and behind the last byte that the app has given.
    una: u64,
    next: u64,
    end: u64,
    /// Where the stream begins.
    first: u64,
    /// SND.WND, the largest there has been, and when it was set: SND.WL1 and SND.WL2.
    window: u64,
    window_max: u64,
    window_start: u64,
    window_ack: u64,
    queue: ShortQueue<Queued>,
    /// A FIN stands at `end`.
    fin: bool,
    /// What there is may leave in a segment that is not full.
    is_hurried: bool,
    /// Something that is queued ends a record.
    has_records: bool,
    scale: u8,
    /// The low half of where the last segment ends that was not full: once `una` is there, none is
    /// outstanding.
    small_end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    start: u64,
    extent: Extent,
    /// No segment has bytes of this one and of the next.
    ends_record: bool,
}

impl Queued {
    const fn end(&self) -> u64 {
        self.start + self.extent.length as u64
    }
}

/// RFC 7323, section 2.3: 65,535, shifted by 14.
const WINDOW_MAX: u64 = 65_535 << 14;

/// What decides whether a segment that is not full is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eagerness {
    pub(crate) no_delay: bool,
    pub(crate) cork: bool,
}

impl Send {
    /// The own SYN stands at `syn`.
    pub(crate) fn new(syn: u64) -> Self {
        let first = syn + 1;
        Self {
            una: syn,
            next: first,
            end: first,
            first,
            window: 0,
            window_max: 0,
            window_start: 0,
            window_ack: 0,
            queue: ShortQueue::new(),
            fin: false,
            is_hurried: false,
            has_records: false,
            scale: 0,
            small_end: first as u32,
        }
    }

    pub(crate) fn save(&self) -> SavedSend {
        SavedSend {
            first: self.first,
            una: self.una,
            next: self.next,
            fin: self.fin,
            window: self.window,
            window_max: self.window_max,
            window_start: self.window_start,
            window_ack: self.window_ack,
            start: self.queue.front().map_or(self.end, |first| first.start),
            extents: self.queue.iter().map(|queued| queued.extent).collect(),
        }
    }

    /// One whose peer's windows are shifted by `scale`. Of a connection that `is_closed` extents
    /// may have been given back that nobody has acknowledged.
    pub(crate) fn restore(saved: SavedSend, scale: u8, is_closed: bool) -> Result<Self, Invalid> {
        ensure(saved::is_position(saved.start), "what was sent is nowhere")?;
        let end = saved.start + saved::length(saved.extents.iter().copied())?;
        let limit = end + u64::from(saved.fin);
        let syn = saved.first.wrapping_sub(1);
        let is_in_order = saved::is_position(syn)
            && saved::is_position(limit)
            && saved.start >= saved.first
            && (is_closed || saved.start <= saved.una.max(saved.first))
            && (syn..=saved.next).contains(&saved.una)
            && (saved.first..=limit).contains(&saved.next);
        ensure(is_in_order, "what was sent is not where it says")?;
        let windows = [saved.window, saved.window_max];
        ensure(
            windows.iter().all(|window| *window <= WINDOW_MAX),
            "the peer's window is too large",
        )?;
        let updates = [saved.window_start, saved.window_ack];
        ensure(updates.iter().all(|at| *at < 1 << 62), "the peer's window is from nowhere")?;
        let mut queue = ShortQueue::new();
        let mut start = saved.start;
        for extent in saved.extents {
            queue.push_back(Queued { start, extent, ends_record: false });
            start += u64::from(extent.length);
        }
        Ok(Self {
            una: saved.una,
            next: saved.next,
            end,
            first: saved.first,
            window: saved.window,
            window_max: saved.window_max,
            window_start: saved.window_start,
            window_ack: saved.window_ack,
            queue,
            fin: saved.fin,
            is_hurried: false,
            has_records: false,
            scale,
            small_end: saved.una as u32,
        })
    }

    #[inline]
    pub(crate) const fn una(&self) -> u64 {
        self.una
    }

    #[inline]
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    pub(crate) const fn syn(&self) -> u64 {
        self.first - 1
    }

    #[inline]
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// What the peer has room for beyond what was sent.
    #[inline]
    pub(crate) const fn open(&self) -> u64 {
        (self.una + self.window).saturating_sub(self.next)
    }

    pub(crate) const fn window_max(&self) -> u64 {
        self.window_max
    }

    pub(crate) const fn set_scale(&mut self, scale: u8) {
        self.scale = scale;
    }

    pub(crate) const fn scale(&self) -> u8 {
        self.scale
    }

    /// Extents that are not acknowledged.
    pub(crate) fn extents_len(&self) -> usize {
        self.queue.len()
    }

    /// All that has not been given back.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = Extent> + '_ {
        self.queue.iter().map(|queued| queued.extent)
    }

    /// Bytes that wait for an acknowledgement, sent or not.
    pub(crate) const fn queued_bytes(&self) -> u64 {
        self.end.saturating_sub(self.una)
    }

    pub(crate) const fn unsent_bytes(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    pub(crate) fn acknowledged_bytes(&self) -> u64 {
        self.una.min(self.end).saturating_sub(self.first)
    }

    /// Appends what the app has given.
    pub(crate) fn push(&mut self, extent: Extent) {
        debug_assert!(!self.fin);
        self.queue.push_back(Queued { start: self.end, extent, ends_record: false });
        self.end += u64::from(extent.length);
        self.is_hurried = false;
    }

    /// What has been given ends a record: nothing that is appended shares a segment with it.
    pub(crate) fn end_record(&mut self) {
        if let Some(last) = self.queue.back_mut() {
            last.ends_record = true;
            self.has_records = true;
        }
    }

    /// Where the record ends that is to be sent next, if more stands behind it.
    #[inline]
    fn record_end(&self) -> Option<u64> {
        if self.has_records { self.next_record_end() } else { None }
    }

    #[cold]
    fn next_record_end(&self) -> Option<u64> {
        let index = self.queue.partition_point(|queued| queued.end() <= self.next);
        let mut rest = (index..self.queue.len()).filter_map(|index| self.queue.get(index));
        let end = rest.find(|queued| queued.ends_record)?.end();
        Some(end).filter(|end| *end < self.end)
    }

    /// What there is may leave in a segment that is not full, as long as nothing is appended.
    pub(crate) const fn hurry(&mut self) {
        self.is_hurried = true;
    }

    /// The peer's SYN has offered a window, and this end's is not acknowledged yet: it takes a
    /// number in front of the window, and holds nothing back.
    pub(crate) fn open_early(&mut self, start: u64, window: u16) {
        self.update_window(start, self.una, window, false);
        self.window += 1;
        self.small_end = self.una as u32;
    }

    /// There will be no more.
    pub(crate) const fn finish(&mut self) {
        self.fin = true;
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.fin
    }

    /// Behind all that is to be sent.
    #[inline]
    pub(crate) const fn limit(&self) -> u64 {
        self.end + self.fin as u64
    }

    /// True if there is something that has never been sent.
    #[inline]
    pub(crate) const fn has_unsent(&self) -> bool {
        self.next < self.limit()
    }

    pub(crate) const fn is_fin_acknowledged(&self) -> bool {
        self.fin && self.una > self.end
    }

    /// The bytes, and whether there is a FIN, of what stands in `range`.
    #[inline]
    pub(crate) fn payload_of(&self, range: &Range<u64>) -> (Range<u64>, bool) {
        let fin = !range.is_empty() && range.end > self.end;
        (range.start..range.end.min(self.end), fin)
    }

    /// RFC 9293, section 3.10.7.4: "If (SND.WL1 < SEG.SEQ or (SND.WL1 = SEG.SEQ and SND.WL2 =<
    /// SEG.ACK)), set SND.WND <- SEG.WND". True if it has changed.
    #[inline]
    pub(crate) fn update_window(&mut self, start: u64, ack: u64, window: u16, scale: bool) -> bool {
        if (self.window_start, self.window_ack) > (start, ack) {
            return false;
        }
        (self.window_start, self.window_ack) = (start, ack);
        let shift = if scale { self.scale } else { 0 };
        let window = u64::from(window) << shift;
        self.window_max = self.window_max.max(window);
        core::mem::replace(&mut self.window, window) != window
    }

    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: u64) {
        debug_assert!(ack <= self.next);
        self.una = ack;
        if !self.has_small_outstanding() {
            self.small_end = ack as u32; // so that it is never half of all numbers away
        }
    }

    /// What to send next, `segment_bytes` a segment and `most` bytes in all, if `room` may be sent.
    /// What is sent of a segment that is not full is for RFC 9293, sections 3.7.4 and 3.8.6.2.1, to
    /// say.
    #[inline]
    pub(crate) fn next_range(
        &self,
        segment_bytes: u32,
        most: u32,
        room: u64,
        eagerness: Eagerness,
    ) -> Option<Range<u64>> {
        let segment_bytes = u64::from(segment_bytes);
        let record_end = self.record_end();
        let limit = record_end.unwrap_or(self.limit());
        let available = limit.checked_sub(self.next)?;
        let may_be_small = |bytes| record_end.is_some() || self.may_be_small(bytes, eagerness);
        let open = self.open();
        // A FIN takes no room in a segment, nor in the congestion window: RFC 5681, section 2,
        // "limits the amount of data a TCP can send".
        let fin = u64::from(self.fin);
        let room = if self.end.saturating_sub(self.next) <= room { room + fin } else { room };
        let length = available.min(open).min(room).min(u64::from(most) + fin);
        if length >= segment_bytes {
            let whole = length - length % segment_bytes;
            let is_end = length == available && may_be_small(length - whole);
            return Some(self.next..self.next + if is_end { length } else { whole });
        }
        if length == 0 {
            return None;
        }
        let is_end = length == available;
        // 3.8.6.2.1, (3): "if at least a fraction Fs of the maximum window can be sent", where Fs
        // is "a fraction whose recommended value is 1/2".
        let is_half = length == open && open >= self.window_max.div_ceil(2) && !eagerness.cork;
        let goes = is_half || (is_end && may_be_small(length));
        goes.then(|| self.next..self.next + length)
    }

    /// True if what is left, `bytes` of it, may leave in a segment that is not full.
    fn may_be_small(&self, bytes: u64, eagerness: Eagerness) -> bool {
        // The variant of Minshall to which RFC 9293 refers (appendix A.3), as Linux and others have
        // it: only what was not full either holds back what is not full. A FIN says that there will
        // be no more.
        let is_free = self.fin || bytes == 0 || self.is_hurried;
        is_free || (!eagerness.cork && (eagerness.no_delay || !self.has_small_outstanding()))
    }

    const fn has_small_outstanding(&self) -> bool {
        self.small_end.wrapping_sub(self.una as u32).cast_signed() > 0
    }

    /// All up to `end` has been sent; what ends there is not a full segment if `is_small`.
    #[inline]
    pub(crate) const fn on_sent(&mut self, end: u64, is_small: bool) {
        self.next = end;
        if is_small {
            self.small_end = end as u32;
        }
    }

    /// What has been sent was not taken.
    pub(crate) const fn take_back(&mut self) {
        self.next = self.una;
        self.small_end = self.una as u32;
    }

    /// The next extent that is acknowledged, or, if `all`, not acknowledged either.
    #[inline]
    pub(crate) fn pop_acknowledged(&mut self, all: bool) -> Option<Extent> {
        self.queue.front().filter(|queued| all || queued.end() <= self.una)?;
        self.has_records &= self.queue.len() > 1;
        self.queue.pop_front().map(|queued| queued.extent)
    }

    /// True if there is one.
    #[inline]
    pub(crate) fn has_acknowledged(&self) -> bool {
        self.queue.front().is_some_and(|queued| queued.end() <= self.una)
    }

    /// Where the bytes of `range` are, in order.
    pub(crate) fn extents(&self, range: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
        let mut index = self.queue.partition_point(|queued| queued.end() <= range.start);
        let mut at = range.start;
        core::iter::from_fn(move || {
            let queued = self.queue.get(index).filter(|_| at < range.end)?;
            let extent = queued.extent.without_first((at - queued.start) as u32);
            let extent = extent.first(extent.length.min((range.end - at) as u32));
            at += u64::from(extent.length);
            index += 1;
            Some(extent)
        })
    }
}
