//! One flow: the state of a connection between this engine and a peer's, from the first syn to
//! the last acknowledgement.
//!
//! Call order: [`Flow::handle_data`], [`Flow::handle_timeout`], [`Flow::send`] and the like change
//! the state; then [`Flow::poll_transmit`] until it writes nothing; then [`Flow::next_timeout`].

use std::net::SocketAddr;

use clearway_base::Time;
use clearway_wire::Malformed;
use clearway_wire::clearway::{
    self, CLOSE_FRAME_LENGTH, FRAGMENT_FRAME_LENGTH, Frame, HEADER_LENGTH, Header,
    LIMIT_FRAME_LENGTH, MESSAGE_FRAME_LENGTH, Packet, PacketType, Syn, SynAck, VERSION,
};

use crate::acks::Acks;
use crate::app::{App, Owner, Reason};
use crate::config::Config;
use crate::congestion::{AckSample, CongestionControl, Swift};
use crate::incoming::{Incoming, Refused};
use crate::outgoing::Outgoing;
use crate::pacer::Pacer;
use crate::recovery::{Content, Recovery};
use crate::rtt::RttEstimator;

/// The versions that this host speaks, best first.
pub(crate) const VERSIONS: &[u8] = &[VERSION];

/// Room for an acknowledgement is kept to this, so that data still fits beside it.
const ACK_BYTES_MAX: usize = clearway::ACK_FRAME_LENGTH + 8 * clearway::ACK_RANGE_LENGTH;

/// Where a flow is in its life.
#[derive(Debug)]
enum State {
    /// A syn has been, or is to be, sent.
    Connecting(Connecting),
    /// Messages go both ways.
    Open,
    /// This side's app has closed; what it sent before is still on its way.
    Closing,
    /// The peer has closed and its app's messages are delivered. Only acknowledgements are sent,
    /// until the peer has surely stopped asking.
    Drained { until: Time },
}

#[derive(Debug)]
struct Connecting {
    token: u64,
    cookie: Vec<u8>,
    /// When the last syn left, for the first RTT sample.
    sent: Time,
    retry_at: Time,
    retry_ns: u64,
    give_up: Time,
    syn_due: bool,
}

/// What the endpoint does with the flow after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Goes on.
    Continue,
    /// Remove it; its app, if it still has one, is told why.
    Ended(Reason),
    /// Remove it; its app knows.
    Gone,
}

/// Why a data packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    Malformed(Malformed),
    Duplicate,
    NoBuffer,
    Violation,
    /// Data before the syn-ack; it will come again.
    Early,
}

/// A flow's figures for `status`.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// The connection that it carries.
    pub owner: Owner,
    /// The peer's daemon.
    pub remote: SocketAddr,
    /// `connecting`, `open`, `closing` or `drained`.
    pub state: &'static str,
    /// Smoothed round-trip time in ns.
    pub rtt_ns: u64,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Messages sent and acknowledged.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
}

/// One flow. See the module's documentation for the order of calls.
#[derive(Debug)]
pub(crate) struct Flow {
    owner: Owner,
    /// The id that packets to us carry.
    local_id: u64,
    /// The id that packets to the peer carry; 0 while connecting.
    peer_id: u64,
    local: SocketAddr,
    remote: SocketAddr,
    /// The service port at the peer, of a flow that was begun here.
    service_port: u16,
    state: State,
    packet_bytes_max: u16,
    /// A syn-ack is to be sent, with this token.
    syn_ack_due: Option<u64>,
    outgoing: Outgoing,
    incoming: Incoming,
    acks: Acks,
    recovery: Recovery,
    rtt: RttEstimator,
    congestion: Box<dyn CongestionControl>,
    pacer: Pacer,
    /// Pacing holds data back until then.
    paced_until: Option<Time>,
    limit_due: bool,
    close_due: bool,
    close_acknowledged: bool,
    /// Send an ack-eliciting packet whatever the congestion window says.
    probe_due: bool,
    /// The peer ends after this many messages.
    peer_close: Option<u32>,
    last_received: Time,
    keep_alive_at: Time,
    messages_sent: u64,
    packets_lost: u64,
}

/// What both ends of a new flow know from the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    pub(crate) owner: Owner,
    pub(crate) local_id: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Positions that the peer may use beyond what our app has released.
    pub(crate) window: u64,
}

impl Flow {
    /// A flow that is to be opened by a syn.
    pub(crate) fn connect(
        now: Time,
        config: &Config,
        p: Parameters,
        service_port: u16,
        token: u64,
    ) -> Self {
        let state = State::Connecting(Connecting {
            token,
            cookie: Vec::new(),
            sent: now,
            retry_at: now,
            retry_ns: config.connect_retry_ns,
            give_up: now + config.connect_timeout_ns,
            syn_due: true,
        });
        Self { service_port, ..Self::new(now, config, p, state) }
    }

    /// A flow that a peer has opened by `syn`, which carried a valid cookie.
    pub(crate) fn accept(
        now: Time,
        config: &Config,
        p: Parameters,
        syn: &Syn<'_>,
        token: u64,
    ) -> Self {
        let mut flow = Self::new(now, config, p, State::Open);
        flow.peer_id = syn.source_flow;
        flow.learn_peer(now, config, syn.receive_limit, syn.packet_bytes_max);
        flow.syn_ack_due = Some(token);
        flow
    }

    fn new(now: Time, config: &Config, p: Parameters, state: State) -> Self {
        Self {
            owner: p.owner,
            local_id: p.local_id,
            peer_id: 0,
            local: p.local,
            remote: p.remote,
            service_port: 0,
            state,
            packet_bytes_max: config.packet_bytes_max,
            syn_ack_due: None,
            outgoing: Outgoing::new(0),
            incoming: Incoming::new(p.window),
            acks: Acks::default(),
            recovery: Recovery::new(),
            rtt: RttEstimator::new(),
            congestion: Box::new(Swift::new(config.packet_bytes_max, config.delay_target_ns)),
            pacer: Pacer::new(now, config.packet_bytes_max),
            paced_until: None,
            limit_due: false,
            close_due: false,
            close_acknowledged: false,
            probe_due: false,
            peer_close: None,
            last_received: now,
            keep_alive_at: Time::MAX,
            messages_sent: 0,
            packets_lost: 0,
        }
    }

    fn learn_peer(&mut self, now: Time, config: &Config, limit: u64, packet_bytes_max: u16) {
        self.outgoing.raise_limit(limit);
        self.packet_bytes_max = config.packet_bytes_max.min(packet_bytes_max);
        self.congestion = Box::new(Swift::new(self.packet_bytes_max, config.delay_target_ns));
        self.pacer = Pacer::new(now, self.packet_bytes_max);
        self.touch(now, config);
    }

    /// Something came from the peer.
    fn touch(&mut self, now: Time, config: &Config) {
        self.last_received = now;
        if config.keep_alive_ns > 0 {
            self.keep_alive_at = now + config.keep_alive_ns;
        }
    }

    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    pub(crate) const fn local_id(&self) -> u64 {
        self.local_id
    }

    pub(crate) const fn peer_id(&self) -> u64 {
        self.peer_id
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// True if an app still holds the connection.
    pub(crate) const fn has_app(&self) -> bool {
        !matches!(self.state, State::Drained { .. })
    }

    pub(crate) const fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    /// Messages that were submitted and have not arrived.
    pub(crate) fn messages_open(&self) -> usize {
        self.outgoing.messages_open()
    }

    // ---- from the app ----

    /// Appends a message whose bytes stand at `offset` of the app's transmit pool.
    pub(crate) fn send(&mut self, offset: u32, length: u32) {
        debug_assert!(matches!(self.state, State::Open | State::Connecting(_)));
        self.outgoing.push(offset, length);
    }

    /// The app has released a received message. True if the peer is to be told.
    pub(crate) fn release(&mut self, length: u32) -> bool {
        self.incoming.release(length);
        self.limit_due |= self.incoming.is_starved() || self.incoming.limit_is_worth_telling();
        self.limit_due
    }

    /// The app has memory again, from whatever connection.
    pub(crate) fn memory_freed(&mut self) {
        self.limit_due |= self.incoming.is_starved();
    }

    pub(crate) const fn last_heard(&self) -> Time {
        self.last_received
    }

    /// The app has closed the connection: deliver what it sent, then end.
    pub(crate) fn close(&mut self, app: &mut impl App) -> Outcome {
        match self.state {
            State::Connecting(_) => Outcome::Ended(Reason::Closed),
            State::Open => {
                self.incoming.discard(app, self.owner);
                self.state = State::Closing;
                self.close_due = true;
                Outcome::Continue
            }
            State::Closing | State::Drained { .. } => Outcome::Continue,
        }
    }

    /// Gives back the app's memory; the flow is about to be removed.
    pub(crate) fn discard(&mut self, app: &mut impl App) {
        if self.has_app() {
            self.incoming.discard(app, self.owner);
        }
    }

    // ---- from the peer ----

    /// Takes a challenge: the next syn carries its cookie.
    pub(crate) fn handle_challenge(&mut self, now: Time, token: u64, cookie: &[u8]) {
        if let State::Connecting(connecting) = &mut self.state
            && connecting.token == token
            && connecting.cookie.is_empty()
        {
            connecting.cookie = cookie.to_vec();
            connecting.syn_due = true;
            connecting.retry_at = now;
        }
    }

    /// Takes a syn-ack. True if the flow has become open by it.
    pub(crate) fn handle_syn_ack(
        &mut self,
        now: Time,
        config: &Config,
        token: u64,
        syn_ack: &SynAck,
    ) -> bool {
        let State::Connecting(connecting) = &self.state else { return false };
        if connecting.token != token || !VERSIONS.contains(&syn_ack.version) {
            return false;
        }
        let rtt_ns = now.since(connecting.sent);
        self.peer_id = syn_ack.source_flow;
        self.learn_peer(now, config, syn_ack.receive_limit, syn_ack.packet_bytes_max);
        self.rtt.sample(rtt_ns, 0);
        self.state = State::Open;
        true
    }

    /// The peer has repeated its syn: our syn-ack was lost.
    pub(crate) fn repeat_syn_ack(&mut self, token: u64) {
        self.syn_ack_due = Some(token);
    }

    /// True if `token` is that of our syn.
    pub(crate) fn is_connecting_with(&self, token: u64) -> bool {
        matches!(&self.state, State::Connecting(connecting) if connecting.token == token)
    }

    /// Takes a data packet.
    pub(crate) fn handle_data(
        &mut self,
        now: Time,
        config: &Config,
        header: &Header,
        packet: &Packet<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Dropped> {
        if self.is_connecting() {
            return Err(Dropped::Early);
        }
        if self.acks.is_duplicate(header.number) {
            self.acks.record_duplicate(now);
            return Err(Dropped::Duplicate);
        }
        self.touch(now, config);
        let mut eliciting = false;
        let mut outcome = Outcome::Continue;
        for frame in packet.frames() {
            let frame = frame.map_err(Dropped::Malformed)?;
            eliciting |= !matches!(frame, Frame::Ack(_));
            match self.handle_frame(now, config, &frame, app) {
                Ok(Outcome::Continue) => {}
                Ok(ended) => outcome = ended,
                Err(Refused::NoBuffer) => return Err(Dropped::NoBuffer),
                Err(Refused::Violation) => return Err(Dropped::Violation),
            }
        }
        self.acks.record(
            now,
            header.number,
            packet.length(),
            eliciting,
            header.ack_requested,
            config.ack_delay_ns,
        );
        if outcome == Outcome::Continue {
            outcome = self.check_peer_close(now, config, app);
        }
        Ok(outcome)
    }

    fn handle_frame(
        &mut self,
        now: Time,
        config: &Config,
        frame: &Frame<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Refused> {
        let receives = matches!(self.state, State::Open);
        match frame {
            Frame::Message(message) if receives => {
                check_stream(message.stream)?;
                self.incoming.message(app, self.owner, message.sequence, message.bytes)?;
                self.limit_due |= self.incoming.limit_is_worth_telling();
            }
            Frame::Fragment(f) if receives => {
                check_stream(f.stream)?;
                self.incoming.fragment(app, self.owner, f.sequence, f.total, f.offset, f.bytes)?;
                self.limit_due |= self.incoming.limit_is_worth_telling();
            }
            // The app has closed and wants no more; RFC 9293, 3.9.1, would reset here, and lose
            // what the app had sent before.
            Frame::Message(_) | Frame::Fragment(_) | Frame::Ping => {}
            Frame::Ack(ack) => return self.handle_ack(now, config, ack, app),
            Frame::Limit(limit) => self.handle_limit(now, *limit),
            Frame::Close { messages, .. } => self.peer_close = Some(*messages),
            Frame::Reset { reason } => return Ok(Outcome::Ended(Reason::from_code(*reason))),
        }
        Ok(Outcome::Continue)
    }

    fn handle_limit(&mut self, now: Time, limit: u64) {
        self.outgoing.raise_limit(limit);
        if self.recovery.expedite(now)
            && let Some(content) = self.recovery.on_probe_timeout(now)
        {
            self.send_again(&content);
            self.probe_due = true;
        }
    }

    fn handle_ack(
        &mut self,
        now: Time,
        config: &Config,
        ack: &clearway::Ack<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Refused> {
        let limited = self.is_window_full();
        let (outgoing, close_acknowledged) = (&mut self.outgoing, &mut self.close_acknowledged);
        let mut messages = 0;
        let acked = self.recovery.on_ack(ack, |content| {
            messages += outgoing.acknowledge(content.range.clone());
            *close_acknowledged |= content.close;
        });
        let acked = acked.ok_or(Refused::Violation)?;
        if let Some(sent) = acked.largest_sent {
            self.rtt.sample(now.since(sent), u64::from(ack.delay_ns));
        }
        if acked.bytes > 0 {
            self.congestion.on_ack(&AckSample {
                now,
                acked_bytes: acked.bytes,
                rtt_ns: self.rtt.latest_ns(),
                smoothed_rtt_ns: self.rtt.smoothed_ns(),
                min_rtt_ns: self.rtt.min_ns(),
                window_limited: limited,
            });
        }
        self.detect_losses(now, config);
        if messages > 0 && self.has_app() {
            self.messages_sent += u64::from(messages);
            app.sent(self.owner, messages);
        }
        Ok(self.check_closed())
    }

    /// An orderly close is complete when the peer has everything, the close frame included.
    fn check_closed(&self) -> Outcome {
        let closed = matches!(self.state, State::Closing)
            && self.close_acknowledged
            && self.outgoing.is_done();
        if closed { Outcome::Ended(Reason::Closed) } else { Outcome::Continue }
    }

    /// Tells the app that the peer has closed, once everything before that is delivered.
    fn check_peer_close(&mut self, now: Time, config: &Config, app: &mut impl App) -> Outcome {
        let Some(messages) = self.peer_close else { return Outcome::Continue };
        let delivered = self.incoming.messages_delivered() as u32 == messages;
        if !self.has_app() || (matches!(self.state, State::Open) && !delivered) {
            return Outcome::Continue;
        }
        self.incoming.discard(app, self.owner);
        app.closed(self.owner, Reason::Closed);
        // RFC 9000, 10.2: "These states SHOULD persist for at least three times the current PTO".
        let wait_ns =
            3 * self.rtt.probe_timeout_ns(config.timer_granularity_ns, config.ack_delay_ns);
        self.state = State::Drained { until: now + wait_ns.max(config.probe_timeout_max_ns) };
        self.outgoing = Outgoing::new(0);
        self.recovery = Recovery::at(self.recovery.next_number());
        self.acks.record_duplicate(now); // acknowledge the close at once
        Outcome::Continue
    }

    fn detect_losses(&mut self, now: Time, config: &Config) {
        let delay_ns = self.rtt.loss_delay_ns(config.timer_granularity_ns);
        let (outgoing, limit_due, close_due) =
            (&mut self.outgoing, &mut self.limit_due, &mut self.close_due);
        let mut lost = 0;
        let last_sent = self.recovery.detect_losses(now, delay_ns, |content| {
            lost += 1;
            outgoing.send_again(content.range.clone());
            *limit_due |= content.limit;
            *close_due |= content.close;
        });
        self.packets_lost += lost;
        if let Some(sent) = last_sent {
            self.congestion.on_loss(now, sent);
        }
    }

    fn send_again(&mut self, content: &Content) {
        self.outgoing.send_again(content.range.clone());
        self.limit_due |= content.limit;
        self.close_due |= content.close;
    }

    // ---- time ----

    /// When [`Flow::handle_timeout`] is to be called next.
    pub(crate) fn next_timeout(&self, config: &Config) -> Time {
        let own = match &self.state {
            State::Connecting(connecting) => return connecting.retry_at.min(connecting.give_up),
            State::Drained { until } => *until,
            State::Open | State::Closing if self.expects_answer(config) => {
                self.keep_alive_at.min(self.last_received + config.idle_timeout_ns)
            }
            State::Open | State::Closing => Time::MAX,
        };
        let recovery = self.recovery.timeout(&self.rtt, config).unwrap_or(Time::MAX);
        let ack = self.acks.due().unwrap_or(Time::MAX);
        own.min(recovery).min(ack).min(self.paced_until.unwrap_or(Time::MAX))
    }

    /// Does what is due at `now`; calling it early does no harm.
    pub(crate) fn handle_timeout(&mut self, now: Time, config: &Config) -> Outcome {
        if self.paced_until.is_some_and(|until| until <= now) {
            self.paced_until = None;
        }
        match &mut self.state {
            State::Connecting(connecting) => return connecting.handle_timeout(now),
            State::Drained { until } if *until <= now => return Outcome::Gone,
            State::Drained { .. } => return Outcome::Continue,
            State::Open | State::Closing => {}
        }
        if now.since(self.last_received) >= config.idle_timeout_ns && self.expects_answer(config) {
            return Outcome::Ended(Reason::TimedOut);
        }
        if self.keep_alive_at <= now {
            self.keep_alive_at = now + config.keep_alive_ns;
            self.probe_due = true;
        }
        if self.recovery.is_loss_due(now) {
            self.detect_losses(now, config);
        } else if self.recovery.timeout(&self.rtt, config).is_some_and(|due| due <= now) {
            self.handle_probe_timeout(now);
        }
        if self.recovery.is_overrun() {
            Outcome::Ended(Reason::Protocol)
        } else {
            Outcome::Continue
        }
    }

    /// Without keep-alive, silence on a flow with nothing in flight is no sign of a dead peer.
    fn expects_answer(&self, config: &Config) -> bool {
        config.keep_alive_ns > 0 || self.recovery.in_flight_bytes() > 0
    }

    fn handle_probe_timeout(&mut self, now: Time) {
        if let Some(content) = self.recovery.on_probe_timeout(now) {
            self.send_again(&content);
        }
        // RFC 9002, 7.6: three probe timeouts in a row are persistent congestion.
        if self.recovery.probes() == 3 {
            self.congestion.on_persistent_congestion();
        }
        self.probe_due = true;
    }

    // ---- to the peer ----

    /// True if [`Flow::poll_transmit`] would write a packet now.
    pub(crate) fn wants_transmit(&mut self, now: Time) -> bool {
        match &self.state {
            State::Connecting(connecting) => connecting.syn_due,
            State::Drained { .. } => self.ack_is_due(now) || self.syn_ack_due.is_some(),
            State::Open | State::Closing => {
                self.ack_is_due(now)
                    || self.syn_ack_due.is_some()
                    || self.limit_due
                    || self.probe_due
                    || self.may_close()
                    || (self.outgoing.has_data() && self.may_send_data(now))
            }
        }
    }

    fn ack_is_due(&self, now: Time) -> bool {
        self.acks.due().is_some_and(|due| due <= now)
    }

    fn may_close(&self) -> bool {
        self.close_due && self.outgoing.is_sent() && !self.recovery.is_full()
    }

    fn is_window_full(&self) -> bool {
        self.recovery.in_flight_bytes() + u64::from(self.packet_bytes_max)
            > self.congestion.window_bytes()
            || self.recovery.is_full()
    }

    fn may_send_data(&mut self, now: Time) -> bool {
        if self.is_window_full() || self.paced_until.is_some_and(|until| until > now) {
            return false;
        }
        let (window, rtt_ns) = (self.congestion.window_bytes(), self.rtt.smoothed_ns());
        if self.pacer.allows(now, window, rtt_ns) {
            return true;
        }
        self.paced_until = Some(self.pacer.next_allowed(window, rtt_ns).max(now + 1));
        false
    }

    /// Writes the next packet (a UDP payload) into `bytes` and returns its length; 0 if there is
    /// none. `bytes` has to have room for `config.packet_bytes_max`.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        config: &Config,
        bytes: &mut [u8],
        app: &impl App,
    ) -> usize {
        if let Some(token) = self.syn_ack_due.take() {
            return self.emit_syn_ack(config, token, bytes);
        }
        if let State::Connecting(connecting) = &mut self.state {
            if !connecting.syn_due {
                return 0;
            }
            let window = self.incoming.announce_limit();
            return connecting.emit_syn(
                now,
                config,
                self.local_id,
                self.service_port,
                window,
                bytes,
            );
        }
        if !self.wants_transmit(now) {
            return 0;
        }
        self.emit_data(now, bytes, app)
    }

    fn emit_syn_ack(&mut self, config: &Config, token: u64, bytes: &mut [u8]) -> usize {
        let syn_ack = SynAck {
            source_flow: self.local_id,
            receive_limit: self.incoming.announce_limit(),
            packet_bytes_max: config.packet_bytes_max,
            version: VERSION,
        };
        emit_control(bytes, PacketType::SynAck, self.peer_id, token, |body| syn_ack.emit(body))
    }

    fn emit_data(&mut self, now: Time, bytes: &mut [u8], app: &impl App) -> usize {
        let bytes = &mut bytes[..usize::from(self.packet_bytes_max)];
        let mut at = HEADER_LENGTH;
        if self.acks.is_pending() {
            let room = &mut bytes[at..at + ACK_BYTES_MAX];
            let (ranges, delay_ns) = self.acks.ranges(now);
            at += clearway::emit_ack(room, u32::try_from(delay_ns).unwrap_or(u32::MAX), ranges);
            self.acks.on_sent();
        }
        let frames_start = at;
        let mut content = Content::default();
        if self.limit_due {
            self.limit_due = false;
            content.limit = true;
            at += clearway::emit_limit(
                &mut bytes[at..at + LIMIT_FRAME_LENGTH],
                self.incoming.announce_limit(),
            );
        }
        let probe = core::mem::take(&mut self.probe_due);
        if probe || self.may_send_data(now) {
            at = self.emit_messages(bytes, at, &mut content.range, app);
        }
        if self.may_close() && at + CLOSE_FRAME_LENGTH <= bytes.len() {
            self.close_due = false;
            content.close = true;
            let messages = self.outgoing.messages_pushed();
            at += clearway::emit_close(&mut bytes[at..], Reason::Closed.code(), messages);
        }
        if probe && at == frames_start {
            at += clearway::emit_ping(&mut bytes[at..]);
        }
        let eliciting = at > frames_start;
        self.finish(now, &mut bytes[..at], eliciting, probe, content);
        at
    }

    fn finish(
        &mut self,
        now: Time,
        packet: &mut [u8],
        eliciting: bool,
        probe: bool,
        content: Content,
    ) {
        let number = self.recovery.next_number();
        let is_close = content.close;
        self.recovery.on_sent(now, packet.len(), eliciting, content);
        if eliciting {
            self.pacer.on_sent(packet.len() as u64);
        }
        // What leaves this sender unable to go on is to be acknowledged without delay.
        let urgent =
            eliciting && (probe || is_close || self.is_window_full() || self.outgoing.is_limited());
        Header::data(self.peer_id, number, urgent).emit(packet);
        clearway::seal(packet);
    }

    /// Writes message frames from `at` on; returns where they end.
    fn emit_messages(
        &mut self,
        bytes: &mut [u8],
        mut at: usize,
        sent: &mut core::ops::Range<u64>,
        app: &impl App,
    ) -> usize {
        let Some(mut range) = self.outgoing.next_range() else { return at };
        let start = range.start;
        let mut cursor = self.outgoing.cursor(start);
        while !range.is_empty() && at + MESSAGE_FRAME_LENGTH <= bytes.len() {
            let whole_room = bytes.len() - at - MESSAGE_FRAME_LENGTH;
            let before = cursor;
            let Some(mut piece) = self.outgoing.piece(&range, &mut cursor, whole_room) else {
                break;
            };
            if piece.is_whole() {
                at += clearway::emit_message(&mut bytes[at..], 0, piece.sequence, piece.length);
            } else if range.start > start {
                // A message is not cut only to fill up a packet that has others in it.
                cursor = before;
                break;
            } else {
                let Some(room) =
                    whole_room.checked_sub(FRAGMENT_FRAME_LENGTH - MESSAGE_FRAME_LENGTH)
                else {
                    break;
                };
                cursor = before;
                let Some(cut) = self.outgoing.piece(&range, &mut cursor, room) else { break };
                piece = cut;
                at += clearway::emit_fragment(
                    &mut bytes[at..],
                    0,
                    piece.sequence,
                    piece.length,
                    piece.total,
                    piece.at,
                );
            }
            let end = at + piece.length as usize;
            app.read(self.owner, piece.offset, &mut bytes[at..end]);
            at = end;
            range.start = piece.end;
        }
        if range.start > start {
            *sent = start..range.start;
            self.outgoing.sent(sent.clone(), cursor);
        }
        at
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

    pub(crate) fn info(&self) -> FlowInfo {
        FlowInfo {
            owner: self.owner,
            remote: self.remote,
            state: match self.state {
                State::Connecting(_) => "connecting",
                State::Open => "open",
                State::Closing => "closing",
                State::Drained { .. } => "drained",
            },
            rtt_ns: self.rtt.smoothed_ns(),
            congestion_window_bytes: self.congestion.window_bytes(),
            in_flight_bytes: self.recovery.in_flight_bytes(),
            messages_sent: self.messages_sent,
            messages_received: self.incoming.messages_delivered(),
            packets_lost: self.packets_lost,
        }
    }
}

impl Connecting {
    fn handle_timeout(&mut self, now: Time) -> Outcome {
        if self.give_up <= now {
            return Outcome::Ended(Reason::TimedOut);
        }
        if self.retry_at <= now {
            self.syn_due = true;
        }
        Outcome::Continue
    }

    fn emit_syn(
        &mut self,
        now: Time,
        config: &Config,
        local_id: u64,
        port: u16,
        window: u64,
        bytes: &mut [u8],
    ) -> usize {
        self.syn_due = false;
        self.sent = now;
        self.retry_at = now + self.retry_ns;
        self.retry_ns = (2 * self.retry_ns).min(config.connect_retry_max_ns);
        let syn = Syn {
            source_flow: local_id,
            port,
            receive_limit: window,
            packet_bytes_max: config.packet_bytes_max,
            versions: VERSIONS,
            cookie: &self.cookie,
        };
        emit_control(bytes, PacketType::Syn, 0, self.token, |body| syn.emit(body))
    }
}

/// Writes a packet of any type but data: header, body, CRC.
pub(crate) fn emit_control(
    bytes: &mut [u8],
    packet_type: PacketType,
    flow: u64,
    token: u64,
    body: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    let head = Header::control(packet_type, flow, token).emit(bytes);
    let length = head + body(&mut bytes[head..]);
    clearway::seal(&mut bytes[..length]);
    length
}

/// Streams other than the first come with a later version of this program.
fn check_stream(stream: u16) -> Result<(), Refused> {
    if stream == 0 { Ok(()) } else { Err(Refused::Violation) }
}
