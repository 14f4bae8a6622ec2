//! How a flow builds its packets, just in time: acknowledgement, limit, then as many messages as
//! wait and fit.

use clearway_base::Time;
use clearway_congestion::Speed;
use clearway_wire::clearway::{self, CLOSE_FRAME_LENGTH, HEADER_LENGTH, Header};

use super::{Flow, State};
use crate::app::{App, Reason};
use crate::company::Sending;
use crate::config::Config;
use crate::recovery::{Content, Told};

/// Room for an acknowledgement is kept to this, so that data still fits beside it.
const ACK_BYTES_MAX: usize = clearway::ACK_FRAME_LENGTH + 8 * clearway::ACK_RANGE_LENGTH;

/// What the next packet of a flow is to have in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// An acknowledgement.
    Acknowledgement,
    /// Messages, and an acknowledgement if there is something to acknowledge.
    Messages,
    /// Something else, too.
    Unusual,
}

impl Flow {
    /// What [`Flow::poll_transmit`] would write now; `None` if nothing.
    #[inline]
    pub(crate) fn wants(&mut self, now: Time) -> Option<Wants> {
        if self.is_unusual() {
            return self.wants_unusual(now).then_some(Wants::Unusual);
        }
        let wants = if self.main.outgoing.has_data() && self.may_send_data(now) {
            Some(Wants::Messages)
        } else {
            self.ack_is_due(now).then_some(Wants::Acknowledgement)
        };
        // Tests and the simulator hold the short ways against the long one.
        debug_assert_eq!(wants.is_some(), self.wants_unusual(now));
        debug_assert!(wants.is_none() || !self.is_done(now));
        wants
    }

    /// True if it has surely nothing to send, and needs not be asked what.
    #[inline]
    pub(crate) fn is_done(&self, now: Time) -> bool {
        !self.is_unusual() && !self.ack_is_due(now) && !self.main.outgoing.has_data()
    }

    /// False if there may be acknowledgements and messages to send, and surely nothing else. Asked
    /// several times per packet, hence without a branch.
    #[inline]
    fn is_unusual(&self) -> bool {
        !matches!(self.state, State::Open)
            | self.main.limit_due
            | self.main.close_due
            | self.probe_due
            | self.streams_due
            | self.arrivals.has_news()
            | self.ports.is_spraying()
            | self.mtu.probe_bytes().is_some()
    }

    #[inline(never)]
    fn wants_unusual(&mut self, now: Time) -> bool {
        match &self.state {
            State::Connecting(_) => self.ports.is_spraying(),
            State::Drained { .. } => self.ack_is_due(now),
            State::Open | State::Closing => {
                self.ack_is_due(now)
                    || self.ports.is_spraying()
                    || self.has_control()
                    || self.probe_due
                    || self.may_close()
                    || self.has_stream_news()
                    || (self.has_messages() && self.may_send_data(now))
                    || (self.mtu.probe_bytes().is_some() && self.may_send_data(now))
            }
        }
    }

    /// True if credit or paths are to be told, and may be.
    fn has_control(&self) -> bool {
        let has_credit = self.main.limit_due || self.turns_away();
        (has_credit || self.arrivals.has_news()) && self.recovery.takes_control()
    }

    /// The peer is to be told that its messages have to wait, and knows what that means.
    fn turns_away(&self) -> bool {
        self.streams.is_some() && self.main.incoming.has_turned_away()
    }

    /// The same of streams.
    fn has_stream_news(&self) -> bool {
        let has_news = self.streams.as_ref().is_some_and(|all| all.has_news());
        has_news && self.recovery.takes_control()
    }

    fn has_messages(&self) -> bool {
        let streams = self.streams.as_ref();
        self.main.outgoing.has_data() || streams.is_some_and(|all| all.has_messages())
    }

    fn ack_is_due(&self, now: Time) -> bool {
        self.acks.due() <= now
    }

    fn may_close(&self) -> bool {
        self.main.close_due && self.main.outgoing.is_sent() && !self.recovery.is_full()
    }

    /// One packet may always be in flight; if the window is less than that, the pacer sees to it.
    fn is_window_full(&self) -> bool {
        let in_flight_bytes = self.recovery.in_flight_bytes();
        let next_bytes = in_flight_bytes + u64::from(self.mtu.bytes());
        (next_bytes > self.window_bytes && in_flight_bytes > 0) || self.recovery.is_full()
    }

    /// To be asked when there is data to send: if not, then the window was used up.
    fn may_send_data(&mut self, now: Time) -> bool {
        if self.is_window_full() || self.paced_until > now {
            self.limited_until = self.recovery.next_number();
            return false;
        }
        let speed = Speed {
            window_bytes: self.window_bytes,
            rtt_ns: self.rtt.smoothed_ns(),
            packet_bytes: self.mtu.bytes(),
            gap_ns: self.gap_ns,
        };
        if self.pacer.allows(now, &speed) {
            return true;
        }
        self.paced_until = self.pacer.next_allowed(&speed);
        self.limited_until = self.recovery.next_number();
        false
    }

    /// Writes the next packet (a UDP payload), which [`Flow::wants`] has just promised, into
    /// `bytes` and returns its length; 0 if there is none after all. `bytes` has to have room for
    /// `config.packet_bytes_max`.
    pub(crate) fn poll_transmit(
        &mut self,
        sending: &mut Sending<'_>,
        config: &Config,
        wants: Wants,
        bytes: &mut [u8],
        app: &impl App,
    ) -> usize {
        if wants == Wants::Unusual {
            return self.emit_unusual(sending, config, bytes, app);
        }
        let now = sending.now;
        let bytes = &mut bytes[..usize::from(self.mtu.bytes())];
        let frames_start = self.emit_ack(now, bytes);
        let (mut at, mut content) = (frames_start, Content::default());
        if wants == Wants::Messages {
            at = self.main.emit_messages(sending, bytes, at, &mut content.range, app);
        }
        if at == HEADER_LENGTH {
            return 0;
        }
        let is_limited = self.main.outgoing.is_limited();
        self.finish(now, &mut bytes[..at], at > frames_start, is_limited, content);
        at
    }

    /// The same where there may be more to send than an acknowledgement and messages.
    #[inline(never)]
    fn emit_unusual(
        &mut self,
        sending: &mut Sending<'_>,
        config: &Config,
        bytes: &mut [u8],
        app: &impl App,
    ) -> usize {
        let now = sending.now;
        if self.ports.is_spraying() {
            return self.emit_sprayed(now, config, bytes);
        }
        if self.is_connecting() {
            return 0;
        }
        if let Some(probe_bytes) = self.mtu.probe_bytes()
            && self.may_send_data(now)
        {
            return self.emit_size_probe(now, &mut bytes[..usize::from(probe_bytes)]);
        }
        let bytes = &mut bytes[..usize::from(self.mtu.bytes())];
        let mut at = self.emit_ack(now, bytes);
        let mut frames_start = at;
        let mut content = Content::default();
        let probe = core::mem::take(&mut self.probe_due);
        if probe && let Some(taken_back) = self.recovery.begin_probe() {
            self.send_again(&taken_back);
        }
        let mut is_urgent = probe;
        if self.has_control() {
            (frames_start, at) = self.emit_control(bytes, at, &mut content);
        } else if self.has_stream_news() {
            let refused = self.refused;
            let end = self.with_streams(|all| all.emit_news(bytes, at, refused, &mut content));
            at = end.unwrap_or(at);
        }
        if content.stream == 0 && (probe || (self.has_messages() && self.may_send_data(now))) {
            let (end, is_limited) = self.emit_in_turn(sending, bytes, at, &mut content, app);
            (at, is_urgent) = (end, probe | is_limited);
        }
        if content.stream == 0 && self.may_close() && at + CLOSE_FRAME_LENGTH <= bytes.len() {
            self.main.close_due = false;
            content.told.close = true;
            let messages = self.main.outgoing.messages_pushed();
            at += clearway::emit_close(&mut bytes[at..], Reason::Closed.code(), messages);
        }
        if probe && at == frames_start {
            at += clearway::emit_ping(&mut bytes[at..]);
        }
        if at == HEADER_LENGTH {
            return 0;
        }
        self.finish(now, &mut bytes[..at], at > frames_start, is_urgent, content);
        at
    }

    /// Writes messages of whose turn it is, from `at` on; returns where they end, and whether only
    /// the peer's limit keeps their sender from going on.
    fn emit_in_turn(
        &mut self,
        sending: &mut Sending<'_>,
        bytes: &mut [u8],
        at: usize,
        content: &mut Content,
        app: &impl App,
    ) -> (usize, bool) {
        let has_own = self.main.outgoing.has_data();
        // What is told of the flow's own connection has begun the packet: it goes on with that.
        if self.streams_due && !content.told.limit {
            let emitted = self.with_streams(|all| {
                let id = all.next_sender(has_own)?;
                Some(all.emit_messages(sending, id, bytes, at, content, app))
            });
            if let Some(emitted) = emitted.flatten() {
                return emitted;
            }
        }
        let end = self.main.emit_messages(sending, bytes, at, &mut content.range, app);
        self.with_streams(|all| all.own_sent(end - at));
        (end, self.main.outgoing.is_limited())
    }

    /// Writes an acknowledgement behind the header, if there is something to acknowledge; returns
    /// where it ends.
    #[inline]
    fn emit_ack(&mut self, now: Time, bytes: &mut [u8]) -> usize {
        if !self.acks.is_pending() {
            return HEADER_LENGTH;
        }
        let room = &mut bytes[HEADER_LENGTH..HEADER_LENGTH + ACK_BYTES_MAX];
        let (ranges, delay_ns) = self.acks.ranges(now);
        let delay_ns = u32::try_from(delay_ns).unwrap_or(u32::MAX);
        let length = clearway::emit_ack(room, delay_ns, self.marking.report(), ranges);
        self.acks.on_sent();
        HEADER_LENGTH + length
    }

    /// Writes what is to be told of paths and limits from `at` on; returns where that begins which
    /// asks for an acknowledgement, and where it ends.
    fn emit_control(
        &mut self,
        bytes: &mut [u8],
        mut at: usize,
        content: &mut Content,
    ) -> (usize, usize) {
        let mut start = at;
        if self.arrivals.has_news() {
            (start, at) = self.emit_news(bytes, at, content);
        }
        if self.main.limit_due || self.turns_away() {
            at = self.main.emit_credit(bytes, at, self.refused, &mut content.told);
            self.with_streams(|_| ());
        }
        (start, at)
    }

    /// Its paths.
    #[inline(never)]
    fn emit_news(
        &mut self,
        bytes: &mut [u8],
        mut at: usize,
        content: &mut Content,
    ) -> (usize, usize) {
        if let Some(port) = self.arrivals.take_stray() {
            at += clearway::emit_stray(&mut bytes[at..], port);
        }
        let start = at;
        if let Some(path) = self.arrivals.take_path() {
            content.told.path = true;
            self.setup_packets += u32::from(path.round == 0);
            at += clearway::emit_path(&mut bytes[at..], path.port, path.round);
        }
        (start, at)
    }

    /// Writes a packet of nothing but its size.
    #[inline(never)]
    fn emit_size_probe(&mut self, now: Time, bytes: &mut [u8]) -> usize {
        self.mtu.on_probe_sent();
        let at = HEADER_LENGTH + clearway::emit_ping(&mut bytes[HEADER_LENGTH..]);
        clearway::emit_padding(&mut bytes[at..]);
        let content =
            Content { told: Told { is_size_probe: true, ..Told::default() }, ..Content::default() };
        self.finish(now, bytes, true, true, content);
        bytes.len()
    }

    /// Seals a packet. What `is_urgent` is to be acknowledged at once.
    fn finish(
        &mut self,
        now: Time,
        packet: &mut [u8],
        eliciting: bool,
        is_urgent: bool,
        content: Content,
    ) {
        let number = self.recovery.next_number();
        let is_close = content.told.close | content.told.abort;
        if eliciting && self.recovery.in_flight_bytes() == 0 {
            self.asked = now;
        }
        self.recovery.on_sent(now, packet.len(), eliciting, &content);
        if eliciting {
            self.pacer.on_sent(packet.len() as u64);
        }
        // What leaves this sender unable to go on is to be acknowledged without delay, and each
        // quarter of the window, or a small window would be sent, and waited for, as a whole.
        self.unasked_bytes += packet.len() as u64;
        let urgent = eliciting
            && (is_urgent
                || is_close
                || self.unasked_bytes >= self.window_bytes / 4
                || self.is_window_full());
        if urgent {
            self.unasked_bytes = 0;
        }
        Header::data(self.peer_id, number, urgent).emit(packet);
        clearway::seal(packet);
    }

    /// Writes a packet that tells the peer that the flow is aborted. The flow ends with it.
    pub(crate) fn emit_abort(&mut self, reason: Reason, bytes: &mut [u8]) -> usize {
        if self.is_connecting() {
            return 0;
        }
        let end = HEADER_LENGTH + clearway::emit_reset(&mut bytes[HEADER_LENGTH..], reason.code());
        Header::data(self.peer_id, self.recovery.next_number(), false).emit(bytes);
        clearway::seal(&mut bytes[..end]);
        end
    }
}
