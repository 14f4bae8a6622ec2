//! Which segment leaves next: lost data, new data, a probe, an acknowledgement.

use core::net::SocketAddr;
use core::ops::Range;

use clearway_base::{SlotId, Time};
use clearway_congestion::{CongestionControl, Speed};
use clearway_wire::tcp::{Flags, Options, Repr, SackBlocks};

use super::{Connection, Flight, Probe};
use crate::ack::Due;
use crate::config::{IpFields, UnusedWindow};
use crate::ecn;
use crate::recovery::Phase;
use crate::snd::Eagerness;
use crate::state::State;
use crate::timers::Timer;
use crate::variants::Capable;
use crate::ways::Ways;

/// A segment that is to leave: what its header says, and which bytes follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From which address and port of this host.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// The header. The checksum is the caller's affair.
    pub repr: Repr,
    /// The connection, if the segment is of one.
    pub connection: Option<SlotId>,
    /// Which bytes follow: [`crate::Stack::extents`] says where they are.
    pub payload: Range<u64>,
    /// If more bytes than this follow, they are of several segments, each but the last with so
    /// many.
    pub segment_bytes: u32,
    /// The IP header says ECT(0): RFC 3168, section 5.
    pub ecn_capable: bool,
    /// What else it says.
    pub ip: IpFields,
}

impl Transmit {
    /// A segment without payload.
    pub(crate) const fn bare(from: SocketAddr, to: SocketAddr, repr: Repr, ip: IpFields) -> Self {
        let (connection, payload) = (None, 0..0);
        Self { from, to, repr, connection, payload, segment_bytes: 0, ecn_capable: false, ip }
    }
}

/// What leaves next. Its header is made last, and once: it is larger than all that decides of it.
#[derive(Clone, Debug)]
pub(super) struct Next {
    range: Range<u64>,
    /// What the flags say beside what they always do.
    new: Flags,
    /// The IP header says ECT(0).
    ecn_capable: bool,
    /// It is one segment, though it is longer than others.
    is_long: bool,
}

impl Next {
    /// What has nothing of its own to say.
    const fn plain(range: Range<u64>) -> Self {
        Self { range, new: Flags::NONE, ecn_capable: false, is_long: false }
    }

    /// A segment without data, at this place.
    const fn empty(at: u64) -> Self {
        Self::plain(at..at)
    }

    /// The same in one segment, however long that is.
    pub(super) fn in_one_segment(self) -> Self {
        Self { is_long: true, ..self }
    }
}

/// RFC 2018, section 3: what the 40 bytes of options have room for, and next to timestamps.
const BLOCKS_MAX: usize = 4;
const BLOCKS_MAX_WITH_TIMESTAMPS: usize = 3;

impl Connection {
    /// False if [`Connection::poll_transmit`] has surely nothing.
    #[inline]
    pub(crate) const fn has_output(&self) -> bool {
        self.snd.has_unsent()
            || matches!(self.ack.due(), Due::Now)
            || self.board.has_lost()
            || self.probe.is_some()
            || self.syn_due
            || self.reset_due
    }

    /// The next segment, with at most `most` bytes; more than fit into one are given only if `most`
    /// allows it, and none that `ways` have no room for. `key` is the connection's own.
    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        key: SlotId,
        most: u32,
        ways: &mut impl Ways,
    ) -> Option<Transmit> {
        if (self.reset_due || matches!(self.state, State::SynSent | State::SynReceived))
            && let Some(transmit) = self.first_or_last_segment(now, most)
        {
            self.counters.segments_sent += 1;
            return Some(Transmit { connection: Some(key), ..transmit });
        }
        let next = self.next_data(now, most, ways).or_else(|| self.next_empty())?;
        self.counters.segments_sent += 1;
        Some(self.segment(now, Some(key), &next))
    }

    /// A reset, or what leaves before the handshake is over.
    #[cold]
    fn first_or_last_segment(&mut self, now: Time, most: u32) -> Option<Transmit> {
        match core::mem::take(&mut self.reset_due) {
            true => Some(self.reset_segment(now)),
            false => self.opening_segment(now, most),
        }
    }

    /// A segment without data, if one has to leave.
    #[inline]
    fn next_empty(&mut self) -> Option<Next> {
        if self.probe == Some(Probe::KeepAlive) {
            self.probe = None;
            return Some(Next::empty(self.snd.next() - 1));
        }
        let is_due = self.ack.due() == Due::Now;
        let may_leave = !matches!(self.state, State::SynSent | State::Closed);
        (is_due && may_leave).then(|| Next::empty(self.acceptable()))
    }

    /// Where a segment without data is acceptable to the peer: in its window. A peer that has
    /// closed it has not kept what a probe has sent behind it (RFC 9293, section 3.10.7.4: with a
    /// window of zero, SEG.SEQ = RCV.NXT), and would drop this one, and the window that it opens,
    /// unread. A shifted window that seems to have shrunk by less than a step was rounded down (RFC
    /// 7323, section 2.4): the peer may have all that was sent, and what stands before is old.
    #[inline]
    fn acceptable(&self) -> u64 {
        let (next, window) = (self.snd.next(), self.snd.window());
        let edge = self.snd.una() + window;
        match self.state {
            State::SynReceived => next, // the window is not known yet
            _ if window > 0 && next < edge + (1 << self.snd.scale()) => next,
            _ => next.min(edge),
        }
    }

    #[inline]
    fn next_data(&mut self, now: Time, most: u32, ways: &mut impl Ways) -> Option<Next> {
        if !self.state.sends() {
            return None;
        }
        if self.probe.is_some()
            && let Some(next) = self.next_probe(now, ways)
        {
            return Some(next);
        }
        if !self.board.has_lost() && !self.snd.has_unsent() {
            return None;
        }
        if !self.may_leave_now(now) {
            return None;
        }
        if self.board.has_lost()
            && let Some(next) = self.next_lost(now, ways)
        {
            return Some(next);
        }
        self.next_new(now, most, ways)
    }

    /// Pacing: a window is spread over its round trip.
    fn may_leave_now(&mut self, now: Time) -> bool {
        let Some(rtt_ns) = self.rto.smoothed_ns().filter(|_| self.settings.pacing) else {
            return true;
        };
        let packet_bytes = self.size.bytes() as u16;
        let speed = Speed { window_bytes: self.window_bytes(), rtt_ns, packet_bytes, gap_ns: 0 };
        if self.pacer.allows(now, &speed) {
            return true;
        }
        self.window_filled = self.snd.next();
        self.timers.set(Timer::Pace, self.pacer.next_allowed(&speed));
        false
    }

    /// RFC 8985, 7.3, RFC 9293, 3.8.6.1, and RFC 8899: what a probe has to say.
    #[cold]
    fn next_probe(&mut self, now: Time, ways: &mut impl Ways) -> Option<Next> {
        let probe = self.probe.filter(|probe| *probe != Probe::KeepAlive)?;
        self.probe = None;
        if probe == Probe::Path {
            return self.path_probe(now, ways);
        }
        let bytes = self.size.bytes_with(self.options(now).length());
        let is_closed = probe == Probe::Window && self.snd.window() == 0;
        if is_closed && self.settings.variants.empty_window_probes {
            self.stalled_since.get_or_insert(now);
            return Some(Next::empty(self.snd.una() - 1));
        }
        if probe == Probe::Window {
            let next = self.snd.next();
            let end = self.snd.limit().min(next + self.snd.open().clamp(1, bytes.into()));
            let range = (next < end).then(|| self.fitting(next..end, bytes, ways)).flatten()?;
            return Some(self.first_time(now, range));
        }
        let eager = Eagerness { no_delay: true, cork: false };
        let new = self.snd.next_range(bytes, bytes, bytes.into(), eager);
        let new = new.and_then(|range| self.fitting(range, bytes, ways));
        let is_again = new.is_none();
        let next = match new {
            Some(range) => self.first_time(now, range),
            None => {
                // RFC 9293, 3.8.6: of a window that has shrunk, what is inside is sent again.
                let limit = self.snd.una() + self.snd.window();
                let range = self.board.resend_last(now, limit, bytes)?;
                self.again(now, range)
            }
        };
        self.tail.on_sent(self.snd.next(), is_again);
        self.timers.stop(Timer::TailProbe);
        self.timers.set(Timer::Retransmit, now + self.rto.timeout_ns(&self.settings));
        Some(next)
    }

    /// What is lost comes first: RFC 6675, section 5, (C.1).
    #[cold]
    fn next_lost(&mut self, now: Time, ways: &mut impl Ways) -> Option<Next> {
        let bytes = self.size.bytes_with(self.options(now).length());
        let in_flight = self.in_flight_bytes();
        let has_room = in_flight == 0 || in_flight + u64::from(bytes) <= self.window_bytes();
        // RFC 9293, section 3.8.6: with a window of zero there is only the probe.
        let is_allowed = has_room && self.snd.window() > 0;
        if !is_allowed && self.recovery.free_lost == 0 {
            return None;
        }
        let room = ways.room(bytes, bytes);
        if room == 0 {
            return None;
        }
        let range = self.board.resend_lost(now, room)?;
        Some(self.again(now, range))
    }

    /// A segment that has been sent before.
    fn again(&mut self, now: Time, range: Range<u64>) -> Next {
        let bytes = range.end - range.start;
        self.counters.retransmitted += 1;
        let stamp = self.timestamps.as_ref().map_or(0, |timestamps| timestamps.value(now));
        self.recovery.on_resent(stamp, &range);
        self.recovery.prr.on_sent(bytes);
        self.data_sent = now;
        self.pacer.on_sent(bytes);
        // RFC 6298, section 5: "a segment is never retransmitted too early, i.e., less than one RTO
        // after the previous transmission of that segment". What the timer sends is the first.
        let is_due = range.start == self.snd.una() || !self.timers.is_set(Timer::Retransmit);
        if is_due && !self.timers.is_set(Timer::Persist) {
            let deadline = self.before_giving_up(now + self.rto.timeout_ns(&self.settings));
            self.timers.set(Timer::Retransmit, deadline);
        }
        let has_cwr =
            self.settings.variants.cwr_when_resent && !self.snd.payload_of(&range).0.is_empty();
        let new = if has_cwr { self.ecn.flags_of_new() } else { Flags::NONE };
        Next { new, ..Next::plain(range) }
    }

    /// Data, and the FIN, that have never been sent.
    #[inline]
    fn next_new(&mut self, now: Time, most: u32, ways: &mut impl Ways) -> Option<Next> {
        if !self.snd.has_unsent() {
            return None;
        }
        if self.board.is_empty() {
            self.restart(now);
        }
        let bytes = self.size.bytes_with(self.options_length(now));
        let in_flight = self.in_flight_bytes();
        let mut room = self.window_bytes().saturating_sub(in_flight);
        let is_free = in_flight == 0 || self.recovery.free_new > 0;
        if is_free {
            room = room.max(bytes.into());
        }
        let eagerness = Eagerness { no_delay: self.settings.no_delay, cork: self.settings.cork };
        let range = self.snd.next_range(bytes, most.max(bytes), room, eagerness);
        let Some(range) = range else {
            self.on_held(now, room);
            return None;
        };
        let range = self.fitting(range, bytes, ways)?;
        if range.end - range.start > room.saturating_sub(bytes.into()) {
            self.window_filled = range.end;
        }
        self.recovery.free_new = self.recovery.free_new.saturating_sub(1);
        Some(self.first_time(now, range))
    }

    /// As much of `range` as there is room for where it goes: all, a segment, or nothing. A FIN
    /// takes none.
    #[inline]
    pub(super) fn fitting(
        &self,
        range: Range<u64>,
        segment_bytes: u32,
        ways: &mut impl Ways,
    ) -> Option<Range<u64>> {
        let (payload, _) = self.snd.payload_of(&range);
        let bytes = (payload.end - payload.start) as u32; // `most` at most
        if bytes == 0 {
            return Some(range);
        }
        match ways.room(bytes, segment_bytes) {
            0 => None,
            room if room < bytes => Some(range.start..range.start + u64::from(room)),
            _ => Some(range),
        }
    }

    /// What a pause has made of the window.
    fn restart(&mut self, now: Time) {
        match self.settings.unused_window {
            UnusedWindow::Decays => self.decay_if_idle(now),
            UnusedWindow::Kept => {}
            UnusedWindow::Validated => self.reduce_if_unused(now),
        }
    }

    /// RFC 5681, section 4.1: "if TCP has not sent data in an interval exceeding the retransmission
    /// timeout".
    fn decay_if_idle(&mut self, now: Time) {
        let (idle_ns, timeout_ns) =
            (now.since(self.data_sent), self.rto.timeout_ns(&self.settings).max(1));
        if idle_ns >= timeout_ns {
            self.control.on_idle(u32::try_from(idle_ns / timeout_ns).unwrap_or(u32::MAX));
            self.data_sent = now;
        }
    }

    /// There is something to send that has to wait.
    fn on_held(&mut self, now: Time, room: u64) {
        if room < self.snd.unsent_bytes().min(self.size.bytes().into()) {
            self.window_filled = self.snd.next();
        } else if self.board.is_empty() && !self.timers.is_set(Timer::Persist) {
            // Nothing that comes by itself will change it.
            self.timers.set(Timer::Persist, now + self.rto.timeout_ns(&self.settings));
        }
    }

    /// Notes what leaves for the first time, a segment at a time.
    #[inline]
    pub(super) fn first_time(&mut self, now: Time, range: Range<u64>) -> Next {
        let bytes = u64::from(self.size.bytes_with(self.options_length(now)));
        let was_empty = self.board.is_empty();
        let (payload, fin) = self.snd.payload_of(&range);
        let mut at = payload.start;
        while payload.end - at > bytes {
            self.board.push(now, at..at + bytes);
            at += bytes;
        }
        self.board.push(now, at..payload.end + u64::from(fin));
        self.snd.on_sent(range.end, payload.end - at < bytes && !payload.is_empty());
        let outstanding = range.end - self.snd.una();
        if self.snd.una() >= self.flight.end || outstanding > self.flight.bytes_max {
            self.flight = Flight { bytes_max: outstanding, end: range.end };
        }
        self.data_sent = now;
        self.pacer.on_sent(range.end - range.start);
        if self.recovery.phase() == Phase::Fast {
            self.recovery.prr.on_sent(range.end - range.start);
        }
        if was_empty {
            self.stalled_since.get_or_insert(now);
            if self.snd.window() > 0 {
                self.timers.set(Timer::Retransmit, now + self.rto.timeout_ns(&self.settings));
                self.timers.stop(Timer::Persist);
            }
        }
        if self.snd.window() > 0 {
            self.set_tail_probe(now);
        }
        let new = if payload.is_empty() { Flags::NONE } else { self.ecn.flags_of_new() };
        let ecn_capable = self.ecn.is_capable() && !payload.is_empty();
        Next { new, ecn_capable, ..Next::plain(range) }
    }

    /// The segment that is to leave next.
    #[inline]
    pub(super) fn segment(&mut self, now: Time, key: Option<SlotId>, next: &Next) -> Transmit {
        let Next { range, new, .. } = next;
        let options = self.options(now);
        let (payload, fin) = self.snd.payload_of(range);
        let segment_bytes = match next.is_long {
            true => (payload.end - payload.start) as u32, // of a packet
            false => self.size.bytes_with(options.length()),
        };
        let has_data = !payload.is_empty() || fin;
        let mut flags = Flags::ACK | *new | self.ecn.flags(has_data);
        if fin {
            flags |= Flags::FIN;
        }
        // RFC 9293, section 3.9.1.2: "MUST set the PSH bit in the last buffered segment (i.e., when
        // there is no more queued data to be sent)" (MUST-61).
        if !payload.is_empty() && range.end >= self.snd.limit() - u64::from(self.snd.is_finished())
        {
            flags |= Flags::PSH;
        }
        let with_data = !payload.is_empty();
        let repr = self.header(range.start, flags, options);
        if self.ecn.is_accurate() {
            self.on_counted(now, options.counters().is_some());
        }
        self.rcv.forget_duplicate();
        self.ack.on_sent(with_data);
        self.timers.stop(Timer::AckDelay);
        self.acknowledged = self.rcv.next();
        Transmit {
            from: self.local,
            to: self.remote,
            repr,
            connection: key,
            payload: if with_data { payload } else { 0..0 },
            segment_bytes,
            ecn_capable: next.ecn_capable
                || self.ecn.is_capable()
                    && self.settings.variants.capable.has_all(self.ecn.is_accurate()),
            ip: self.settings.ip,
        }
    }

    #[cold]
    fn on_counted(&mut self, now: Time, has_counters: bool) {
        if has_counters {
            self.ecn.on_counted(now, self.rcv.duplicate().is_some());
        }
    }

    fn header(&mut self, start: u64, flags: Flags, options: Options) -> Repr {
        Repr {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            sequence: start as u32,
            acknowledgement: self.rcv.next() as u32,
            flags,
            window: self.rcv.offer(self.ack.segment_bytes()),
            urgent: 0,
            options,
        }
    }

    /// The options of a segment that is no SYN.
    #[inline]
    pub(super) fn options(&self, now: Time) -> Options {
        let timestamps = self.timestamps.as_ref().map(|timestamps| timestamps.option(now));
        let mut options = Options { timestamps, ..Options::default() };
        if self.sack && self.rcv.has_blocks() {
            options.extra = self.blocks().into();
        }
        if self.ecn.is_accurate() {
            return self.counted(options, now);
        }
        options
    }

    /// The same with what is said of marks by the byte.
    #[cold]
    fn counted(&self, options: Options, now: Time) -> Options {
        let rtt_ns = self.rto.smoothed_ns().unwrap_or(0);
        self.ecn.counted(options, self.settings.ecn_option, now, rtt_ns)
    }

    #[inline]
    fn options_length(&self, now: Time) -> usize {
        match self.sack && self.rcv.has_blocks() || self.ecn.is_accurate() {
            true => self.options(now).length(),
            false => 0, // none that the size of segments has not got
        }
    }

    #[cold]
    fn blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let mut push = |range: Range<u64>| blocks.push(range.start as u32, range.end as u32);
        if let Some(duplicate) = self.rcv.duplicate() {
            push(duplicate);
        }
        self.rcv.blocks().for_each(push);
        blocks.truncate(match self.timestamps {
            Some(_) => BLOCKS_MAX_WITH_TIMESTAMPS,
            None => BLOCKS_MAX,
        });
        blocks
    }

    /// Its SYN, or its SYN-ACK.
    pub(super) fn syn_segment(&mut self, now: Time) -> Transmit {
        self.syn_due = false;
        let is_answer = self.state == State::SynReceived;
        let mut flags = Flags::SYN;
        if is_answer {
            flags |= Flags::ACK;
            flags |= self.ecn.answer();
        } else if self.settings.ecn && self.retries <= self.ecn_retries_max() {
            // RFC 3168, section 6.1.1.1: a SYN that is sent again has none of them, in case that it
            // was lost because of them.
            flags |= ecn::setup(self.settings.accurate_ecn);
        }
        let capable = self.settings.variants.capable;
        let ecn_capable = flags.intersects(ecn::ALL)
            && if is_answer { capable.has_syn_acks() } else { capable == Capable::All };
        let options = self.syn_options(now);
        let payload = self.syn_payload();
        let segment_bytes = (payload.end - payload.start) as u32;
        let mut repr = self.header(self.snd.syn(), flags, options);
        repr.window = match self.is_early {
            true => self.rcv.offer_unscaled().min(self.rcv.window().min(u16::MAX.into()) as u16),
            false => self.rcv.offer_unscaled(),
        };
        if !is_answer {
            repr.acknowledgement = 0;
        }
        // Karn: a round-trip time is known only of what was sent once.
        self.syn_sent = (self.retries == 0).then_some(now);
        self.stalled_since.get_or_insert(now);
        self.acknowledged = self.rcv.next();
        self.timers.set(Timer::Retransmit, self.before_giving_up(now + self.syn_timeout_ns()));
        self.timers.stop(Timer::AckDelay);
        self.ack.on_sent(false);
        let bare = Transmit::bare(self.local, self.remote, repr, self.settings.ip);
        Transmit { payload, segment_bytes, ecn_capable, ..bare }
    }

    /// How often a SYN that is sent again asks for congestion notification. RFC 9768, section
    /// 3.1.4.1, has accurate feedback asked for once more.
    fn ecn_retries_max(&self) -> u8 {
        let settings = &self.settings;
        settings.variants.ecn_retries.max(u8::from(settings.accurate_ecn))
    }

    fn reset_segment(&mut self, now: Time) -> Transmit {
        let timestamps = self.timestamps.as_ref().map(|timestamps| timestamps.option(now));
        let options = Options { timestamps, ..Options::default() };
        let start = self.acceptable().max(self.snd.first()); // the SYN may not be acknowledged
        let repr = self.header(start, Flags::RST | Flags::ACK, options);
        Transmit::bare(self.local, self.remote, repr, self.settings.ip)
    }
}
