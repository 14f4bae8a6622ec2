//! The receiving half: which bytes are new, what the window is, when the peer has finished.

use core::ops::Range;

use clearway_base::{SlotId, Time};

use crate::config::Settings;
use crate::extent::{Extent, Memory};
use crate::reassembly::Reassembly;
use crate::saved::{self, Invalid, SavedReceive, ensure};
use crate::tuning::Tuning;

/// The receive sequence space (RFC 9293, section 3.3.1).
#[derive(Debug)]
pub(crate) struct Receive {
    /// RCV.NXT.
    next: u64,
    /// RCV.NXT + RCV.WND as the peer knows it. It never goes back: RFC 9293, section 3.8.6,
    /// SHLD-14.
    edge: u64,
    /// Where the stream begins.
    first: u64,
    /// What the app has given back.
    released: u64,
    /// Where the peer's FIN stands, once it is known.
    fin: Option<u64>,
    queue: Reassembly,
    /// What has come twice, to be reported (RFC 2883).
    duplicate: Option<Range<u64>>,
    buffer_bytes: u32,
    tuning: Tuning,
    scale: u8,
}

/// What a segment has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes, and the FIN, that are in order now and were not before.
    pub(crate) advanced: u64,
    /// It is to be acknowledged at once: it came out of order, or again, or filled a hole, or
    /// there was no room for it.
    pub(crate) is_urgent: bool,
    /// With it, all that the peer will ever send is here.
    pub(crate) is_finished: bool,
}

impl Receive {
    /// The peer's SYN stands at `syn`. There is room for `buffer_bytes` at first.
    pub(crate) fn new(syn: u64, buffer_bytes: u32, settings: &Settings, scale: u8) -> Self {
        let first = syn + 1;
        // FreeBSD tells all of it with its next segment, however little more it is.
        let window = match settings.variants.whole_segments {
            true => buffer_bytes,
            false => initial_window(buffer_bytes).into(),
        };
        Self {
            next: first,
            edge: first + u64::from(window),
            first,
            released: first,
            fin: None,
            queue: Reassembly::default(),
            duplicate: None,
            buffer_bytes,
            tuning: Tuning::new(first, settings.window_bytes_max()),
            scale,
        }
    }

    pub(crate) fn save(&self, acknowledged: u64) -> SavedReceive {
        let (in_order, ahead) = self.queue.save();
        SavedReceive {
            first: self.first,
            next: self.next,
            edge: self.edge,
            released: self.released,
            fin: self.fin,
            buffer_bytes: self.buffer_bytes,
            acknowledged,
            in_order,
            ahead,
        }
    }

    /// One whose windows are shifted by `scale`.
    pub(crate) fn restore(
        saved: SavedReceive,
        settings: &Settings,
        scale: u8,
    ) -> Result<Self, Invalid> {
        let in_order_bytes = saved::length(saved.in_order.iter().copied())?;
        let is_finished = saved.fin.is_some_and(|fin| fin < saved.next);
        let data_end = saved.next - u64::from(is_finished);
        let is_in_order = saved::is_position(saved.first)
            && saved::is_position(saved.edge)
            && saved::is_position(saved.next)
            && data_end >= saved.first
            && (saved.first..=data_end).contains(&saved.released)
            && in_order_bytes <= data_end - saved.released
            && saved.edge <= saved.next + (1 << 30)
            && saved.acknowledged <= saved.next;
        ensure(is_in_order, "what has come is not where it says")?;
        ensure(
            saved.fin.is_none_or(|fin| !is_finished || fin + 1 == saved.next),
            "something stands behind the peer's FIN",
        )?;
        let mut rcv = Self::new(saved.first - 1, saved.buffer_bytes, settings, scale);
        saved.in_order.into_iter().for_each(|extent| rcv.queue.append(extent));
        let mut at = saved.next;
        for (start, extent) in saved.ahead {
            let end = start.saturating_add(saved::length([extent])?);
            let has_place = start >= at && end <= saved.edge.max(at);
            let is_before_fin = saved.fin.is_none_or(|fin| end <= fin);
            ensure(has_place && is_before_fin && !is_finished, "a piece has no place")?;
            ensure(rcv.queue.has_room(saved.buffer_bytes), "too many pieces are out of order")?;
            rcv.queue.insert(start, extent);
            rcv.queue.touch(start);
            at = end;
        }
        rcv.next = saved.next;
        rcv.edge = saved.edge;
        rcv.released = saved.released;
        rcv.fin = saved.fin;
        rcv.buffer_bytes = saved.buffer_bytes.min(settings.window_bytes_max());
        rcv.tuning = Tuning::new(saved.released, settings.window_bytes_max());
        Ok(rcv)
    }

    /// Data has come: the buffer may have to be larger.
    #[inline]
    pub(crate) fn tune(&mut self, now: Time, round_trip_ns: u64) {
        let buffer_bytes = self.buffer_bytes;
        self.buffer_bytes = self.tuning.on_data(now, round_trip_ns, self.released, buffer_bytes);
    }

    pub(crate) const fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    #[inline]
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    pub(crate) const fn window(&self) -> u64 {
        self.edge.saturating_sub(self.next)
    }

    pub(crate) const fn scale(&self) -> u8 {
        self.scale
    }

    /// RFC 9293, section 3.10.7.4: "There are four cases for the acceptability test". One case
    /// more: a segment without a length right behind the window is of a peer that has filled it,
    /// and what it acknowledges is worth as much as before.
    #[inline]
    pub(crate) fn is_acceptable(&self, start: u64, length: u64) -> bool {
        match (length, self.window()) {
            (0, _) => (self.next..=self.edge).contains(&start),
            // "If the RCV.WND is zero, no segments will be acceptable, but special allowance
            // should be made to accept valid ACKs, URGs, and RSTs."
            (_, 0) => start == self.next,
            _ => start < self.edge && start + length > self.next,
        }
    }

    /// True if a reset at `start` may be of this connection at all: RFC 5961, section 3.2.
    /// What an unscaled window cannot say counts nevertheless.
    pub(crate) fn is_in_window(&self, start: u64) -> bool {
        let room = u64::from(self.buffer_bytes) + u64::from(self.is_finished());
        let edge = self.edge.max(self.released + room);
        start == self.next || (start >= self.next && start < edge)
    }

    /// Takes the payload of a segment, `length` bytes at `start`, and its FIN.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        key: SlotId,
        start: u64,
        length: u32,
        has_fin: bool,
        memory: &mut impl Memory,
    ) -> Received {
        let is_next = start == self.next && start + u64::from(length) <= self.edge;
        if is_next && !has_fin && self.fin.is_none() && self.queue.is_contiguous() {
            return self.append(key, length, memory);
        }
        self.handle_any(key, start, length, has_fin, memory)
    }

    /// The common case: the next bytes, nothing out of order, no FIN.
    #[inline]
    fn append(&mut self, key: SlotId, length: u32, memory: &mut impl Memory) -> Received {
        let Some(extent) = memory.keep(key, self.next - self.first, 0..length) else {
            return Received { is_urgent: true, ..Received::default() };
        };
        debug_assert_eq!(extent.length, length);
        self.queue.append(extent);
        self.next += u64::from(length);
        Received { advanced: u64::from(length), ..Received::default() }
    }

    fn handle_any(
        &mut self,
        key: SlotId,
        start: u64,
        length: u32,
        has_fin: bool,
        memory: &mut impl Memory,
    ) -> Received {
        // A FIN that waits has come out of order, too.
        let had_holes = !self.queue.is_contiguous() || self.fin.is_some();
        let before = self.next;
        let whole = start..start + u64::from(length);
        if has_fin {
            self.learn_fin(whole.end);
        }
        let end = whole.end.min(self.edge).min(self.fin.unwrap_or(u64::MAX));
        let wanted = start.max(self.next)..end;
        if length > 0 {
            self.note_duplicate(&whole, &wanted);
        }
        if !wanted.is_empty() {
            self.keep_missing(key, start, &wanted, memory);
            if wanted.start > self.next {
                self.queue.touch(wanted.start);
            }
        }
        self.pass_fin();
        Received {
            advanced: self.next - before,
            // RFC 5681, section 4.2: out-of-order segments "SHOULD be acknowledged immediately",
            // and so should one "that fills in all or part of a gap in the sequence space".
            is_urgent: has_fin || had_holes || self.next < whole.end || start < before,
            is_finished: self.is_finished() && before < self.next,
        }
    }

    /// Keeps what has come with the peer's SYN until this end's is acknowledged: nothing of it is
    /// acknowledged meanwhile.
    pub(crate) fn hold(
        &mut self,
        key: SlotId,
        length: u32,
        has_fin: bool,
        memory: &mut impl Memory,
    ) {
        let length = u64::from(length).min(self.window());
        if length > 0
            && let Some(extent) = memory.keep(key, 0, 0..length as u32)
        {
            self.queue.insert(self.next, extent);
        }
        if has_fin {
            self.learn_fin(self.next + length);
        }
    }

    /// What was held counts as received from now on.
    pub(crate) fn take_held(&mut self) -> Received {
        let before = self.next;
        self.next = self.queue.advance(self.next);
        self.pass_fin();
        Received {
            advanced: self.next - before,
            is_urgent: self.is_finished(),
            is_finished: self.is_finished(),
        }
    }

    /// Where a FIN stands counts only if nothing has come from behind it.
    fn learn_fin(&mut self, at: u64) {
        if self.fin.is_none()
            && at >= self.next
            && at <= self.edge
            && !self.queue.blocks().any(|block| block.end > at)
        {
            self.fin = Some(at);
        }
    }

    /// If the peer's FIN comes next, it takes a number, but no room.
    pub(crate) fn pass_fin(&mut self) {
        if self.fin == Some(self.next) {
            self.next += 1;
            self.edge += 1;
        }
    }

    fn keep_missing(
        &mut self,
        key: SlotId,
        start: u64,
        wanted: &Range<u64>,
        memory: &mut impl Memory,
    ) {
        let mut at = wanted.start;
        while let Some(part) = self.queue.missing(&(at..wanted.end)) {
            let is_next = part.start == self.next;
            if !is_next && !self.queue.has_room(self.buffer_bytes) {
                return;
            }
            let of_payload = (part.start - start) as u32..(part.end - start) as u32;
            let Some(extent) = memory.keep(key, part.start - self.first, of_payload) else {
                return;
            };
            debug_assert_eq!(u64::from(extent.length), part.end - part.start);
            if is_next {
                self.queue.append(extent);
                self.next = self.queue.advance(part.end);
            } else {
                self.queue.insert(part.start, extent);
            }
            at = part.end.max(self.next);
        }
    }

    /// RFC 2883, section 4: the first "duplicate contiguous sequence of data" of a segment is
    /// reported in the first block, be it all of the segment or a part.
    fn note_duplicate(&mut self, whole: &Range<u64>, wanted: &Range<u64>) {
        if whole.start < self.next {
            self.duplicate = Some(whole.start..whole.end.min(self.next));
        } else if let Some(known) = self.queue.known(wanted) {
            self.duplicate = Some(known);
        }
    }

    /// What has come twice and is not reported.
    pub(crate) fn duplicate(&self) -> Option<Range<u64>> {
        self.duplicate.clone()
    }

    /// It is reported.
    #[inline]
    pub(crate) fn forget_duplicate(&mut self) {
        self.duplicate = None;
    }

    /// Reports a segment before the window as come twice.
    pub(crate) fn note_old(&mut self, start: u64, length: u64) {
        let end = (start + length).min(self.next);
        if start < end {
            self.duplicate = Some(start..end);
        }
    }

    /// True if there is something for the options of an acknowledgement to say.
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        self.duplicate.is_some() || !self.queue.is_contiguous()
    }

    /// What has come out of order, newest first.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.queue.blocks()
    }

    /// The window for a segment that leaves now, shifted: RFC 9293, section 3.8.6.2.2, and RFC
    /// 7323, section 2.3.
    #[inline]
    pub(crate) fn offer(&mut self, segment_bytes: u32) -> u16 {
        let step = u64::from(self.buffer_bytes / 2).min(segment_bytes.into());
        let candidate = self.released + u64::from(self.buffer_bytes);
        let largest = self.next + (u64::from(u16::MAX) << self.scale);
        // The largest window that can be said is no silly one: it moves with every byte.
        if candidate >= (self.edge + step).min(largest) {
            self.edge = candidate;
        }
        // Rounded down: rounded up, it would grow with every acknowledgement of a few bytes,
        // however full the buffer. What was promised before is taken all the same (RFC 7323,
        // section 2.4).
        self.edge = self.edge.min(largest);
        (self.window() >> self.scale) as u16
    }

    /// The window of a SYN, which is never shifted.
    pub(crate) fn offer_unscaled(&self) -> u16 {
        initial_window(self.buffer_bytes)
    }

    /// True if the peer should hear now that the window is larger: by two segments or half of the
    /// buffer, or at all if it was nearly closed.
    pub(crate) fn update_is_due(&self, segment_bytes: u32) -> bool {
        // What is behind the largest window that can be said is no gain.
        let largest = u64::from(u16::MAX) << self.scale;
        let half = u64::from(self.buffer_bytes).min(largest) / 2;
        let step = half.min(2 * u64::from(segment_bytes)).max(1);
        let candidate = (self.released + u64::from(self.buffer_bytes)).min(self.next + largest);
        let gain = candidate.saturating_sub(self.edge);
        let is_small = self.window() < half.min(segment_bytes.into());
        gain >= step && (is_small || gain >= half || self.window() < half)
    }

    /// Hands over the next bytes in order.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Extent> {
        self.queue.take()
    }

    /// The same, but of a piece that is longer than `most` bytes only so many.
    pub(crate) fn take_at_most(&mut self, most: u32) -> Option<Extent> {
        self.queue.take_at_most(most)
    }

    /// What is in order and not taken.
    pub(crate) fn unread(&self) -> impl Iterator<Item = Extent> + '_ {
        self.queue.in_order()
    }

    /// What is out of order.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = Extent> + '_ {
        self.queue.ahead()
    }

    /// The buffer has another size from now on. A window that was offered is never taken back.
    pub(crate) fn resize(&mut self, settings: &Settings) {
        self.buffer_bytes = settings.receive_buffer_bytes;
        self.tuning = Tuning::new(self.released, settings.window_bytes_max());
    }

    /// The app is done with `bytes` of what it has taken.
    pub(crate) fn release(&mut self, bytes: u64) {
        let taken = self.data_end() - self.queue.in_order_bytes();
        self.released = (self.released + bytes).min(taken);
    }

    /// Behind the last byte in order.
    fn data_end(&self) -> u64 {
        if self.is_finished() { self.next - 1 } else { self.next }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| fin < self.next)
    }

    /// Bytes that have come in order and that nobody has taken.
    pub(crate) const fn unread_bytes(&self) -> u64 {
        self.queue.in_order_bytes()
    }

    /// Bytes that have come out of order.
    pub(crate) const fn ahead_bytes(&self) -> u64 {
        self.queue.ahead_bytes()
    }

    /// Bytes of the stream that have come in order.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.data_end() - self.first
    }

    /// Gives up half of what has come out of order.
    pub(crate) fn renege(&mut self, discard: impl FnMut(Extent)) {
        self.queue.renege(discard);
    }

    pub(crate) fn drain(&mut self, discard: impl FnMut(Extent)) {
        self.queue.drain(discard);
    }
}

fn initial_window(buffer_bytes: u32) -> u16 {
    u16::try_from(buffer_bytes).unwrap_or(u16::MAX)
}

/// By how much the windows of a buffer have to be shifted.
pub(crate) fn scale_for(buffer_bytes: u32) -> u8 {
    (0..14).find(|scale| buffer_bytes >> scale <= u32::from(u16::MAX)).unwrap_or(14)
}
