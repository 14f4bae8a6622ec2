//! What a flow does with a data packet.

use clearway_base::Time;
use clearway_congestion::{AckSample, CongestionControl};
use clearway_wire::clearway::{Ack, Frame, Frames, Header, Message, Packet};
use clearway_wire::{Ecn, Malformed};

use super::{Flow, Listeners, Outcome, State};
use crate::app::{App, Reason};
use crate::config::Config;
use crate::incoming::Refused;
use crate::outgoing::{Done, Outgoing};
use crate::recovery::Recovery;
use crate::rtt::HostDelay;

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reception<'a> {
    /// For how long the host had not looked.
    pub(crate) gap_ns: u64,
    /// When it came back, if it has been away: what was sent before may have been answered long
    /// ago.
    pub(crate) returned: Time,
    pub(crate) ecn: Ecn,
    /// Who takes the connections of shared flows.
    pub(crate) listeners: &'a Listeners,
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

impl From<Refused> for Dropped {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoBuffer => Self::NoBuffer,
            Refused::Violation => Self::Violation,
        }
    }
}

impl Flow {
    /// Takes a data packet.
    pub(crate) fn handle_data(
        &mut self,
        now: Time,
        config: &Config,
        header: &Header,
        packet: &Packet<'_>,
        reception: Reception<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Dropped> {
        if self.is_connecting() {
            return Err(Dropped::Early);
        }
        // The one after it must be a number too.
        if header.number == u64::MAX {
            return Err(Dropped::Violation);
        }
        if self.acks.is_duplicate(header.number) {
            self.acks.record_duplicate(now);
            return Err(Dropped::Duplicate);
        }
        // Nothing of a packet counts unless all of it can be read.
        let mut frames = packet.frames();
        let ack = frames.leading_ack().map_err(Dropped::Malformed)?;
        let only = frames.only_message();
        if only.is_none() {
            frames.check().map_err(Dropped::Malformed)?;
        }
        self.touch(now);
        self.gap_ns = reception.gap_ns;
        let mut outcome = match &ack {
            Some(ack) => self.handle_ack(now, config, reception, ack, app)?,
            None => Outcome::Received,
        };
        let eliciting = match only {
            Some(message) if matches!(self.state, State::Open) => {
                self.lose_overtaken(now, config);
                self.take_message(&message, app)?;
                self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
                true
            }
            _ => {
                let taken =
                    self.take_frames(now, config, reception, &mut frames, app, &mut outcome);
                // A wait frame among them says what was not lost.
                self.lose_overtaken(now, config);
                taken?
            }
        };
        if self.main.incoming.take_operated() {
            self.push_operations(app);
            if outcome == Outcome::Received && self.main.outgoing.has_data() {
                outcome = Outcome::Continue;
            }
        }
        let is_marked = self.marking.on_received(reception.ecn);
        self.acks.record(
            now,
            now - reception.gap_ns,
            header.number,
            packet.length(),
            eliciting,
            if header.ack_requested | is_marked { 0 } else { config.ack_delay_ns },
        );
        if self.close_waits {
            self.settle_close(app);
        }
        self.arrivals.end(now, self.rtt.smoothed_ns());
        if self.main.peer_close.is_some()
            && matches!(outcome, Outcome::Continue | Outcome::Received)
        {
            self.check_peer_close(now, config, app);
            outcome = Outcome::Continue;
        }
        Ok(outcome)
    }

    /// Takes all frames that are left. True if one asks for an acknowledgement.
    fn take_frames(
        &mut self,
        now: Time,
        config: &Config,
        reception: Reception<'_>,
        frames: &mut Frames<'_>,
        app: &mut impl App,
        outcome: &mut Outcome,
    ) -> Result<bool, Dropped> {
        let mut eliciting = false;
        loop {
            if matches!(self.state, State::Open) {
                eliciting |= self.take_messages(frames, app)?;
                eliciting |= self.take_operations(frames, app)?;
            }
            if let Some(stream) = frames.next_stream() {
                let heard = self.take_streams(stream, frames, reception, app)?;
                if heard.has_credit {
                    self.expedite(now);
                }
                if heard.has_to_wait {
                    self.wait(now, config);
                }
                if heard.is_unusual && *outcome == Outcome::Received {
                    *outcome = Outcome::Continue;
                }
                return Ok(true);
            }
            let Some(Ok(frame)) = frames.next() else { return Ok(eliciting) };
            eliciting |=
                !matches!(frame, Frame::Ack(_) | Frame::Stray { .. } | Frame::Probe { .. });
            match (*outcome, self.handle_frame(now, config, reception, &frame, app)?) {
                (_, Outcome::Received) | (Outcome::Ended(_), Outcome::Continue) => {}
                (_, other) => *outcome = other,
            }
        }
    }

    /// Takes the whole messages that stand next in a packet. True if there was one.
    #[inline]
    fn take_messages(
        &mut self,
        frames: &mut Frames<'_>,
        app: &mut impl App,
    ) -> Result<bool, Dropped> {
        let any = self.main.incoming.messages(app, self.main.owner, frames)?;
        if any {
            self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
        }
        Ok(any)
    }

    #[inline]
    fn take_message(&mut self, message: &Message<'_>, app: &mut impl App) -> Result<(), Refused> {
        check_reserved(message.reserved)?;
        self.main.incoming.message(app, self.main.owner, message.sequence, message.bytes)
    }

    fn handle_frame(
        &mut self,
        now: Time,
        config: &Config,
        reception: Reception<'_>,
        frame: &Frame<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Refused> {
        let receives = matches!(self.state, State::Open);
        match frame {
            Frame::Message(message) if receives => {
                self.take_message(message, app)?;
                self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
                Ok(Outcome::Received)
            }
            Frame::Fragment(f) if receives => {
                check_reserved(f.reserved)?;
                self.main.incoming.fragment(
                    app,
                    self.main.owner,
                    f.sequence,
                    f.total,
                    f.offset,
                    f.bytes,
                )?;
                self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
                Ok(Outcome::Received)
            }
            Frame::Ack(ack) => self.handle_ack(now, config, reception, ack, app),
            Frame::Skip { sequence, length } if receives => {
                if self.streams.is_none() {
                    return Err(Refused::Violation);
                }
                self.main.skip(*sequence, *length, app)?;
                Ok(Outcome::Continue)
            }
            Frame::Operation(operation) if receives => {
                self.take_operation(operation, app)?;
                self.main.limit_due |= self.main.incoming.limit_is_worth_telling();
                Ok(Outcome::Received)
            }
            Frame::OperationPart(part) if receives => self.take_operation_part(part, app),
            rare => self.handle_rare_frame(now, config, rare),
        }
    }

    #[inline(never)]
    fn handle_rare_frame(
        &mut self,
        now: Time,
        config: &Config,
        frame: &Frame<'_>,
    ) -> Result<Outcome, Refused> {
        match frame {
            // The app has closed and wants no more; RFC 9293, 3.9.1, would reset here, and lose
            // what the app had sent before.
            Frame::Message(_)
            | Frame::Fragment(_)
            | Frame::Operation(_)
            | Frame::OperationPart(_)
            | Frame::Skip { .. }
            | Frame::Ping
            | Frame::Ack(_) => {}
            Frame::Limit(limit) => self.handle_limit(now, *limit),
            Frame::Wait { sequence, number } => {
                let is_sent = *number < self.recovery.next_number();
                if self.streams.is_none() || !is_sent {
                    return Err(Refused::Violation);
                }
                self.main.outgoing.wait(*sequence, *number);
                self.wait(now, config);
            }
            Frame::Close { messages, .. } => {
                self.main.take_close(*messages, matches!(self.state, State::Open))?;
            }
            Frame::Path { port, round } => self.ports.on_path(*port, *round),
            Frame::Stray { port } => {
                self.ports.on_stray(now, config, *port, self.rtt.smoothed_ns());
            }
            Frame::Probe { round } => self.arrivals.on_probe(*round),
            Frame::Stream(_) | Frame::Open { .. } => return Err(Refused::Violation),
            Frame::Reset { reason } => return Ok(Outcome::Ended(Reason::from_code(*reason))),
        }
        Ok(Outcome::Continue)
    }

    /// There is no room for the packet with this number. Its sender hears nothing of it, and is not
    /// to take this host for dead while its app does not read: it is told once more what was
    /// received before, or is asked something if that is nothing. If it knows streams it hears
    /// which one has to wait.
    pub(crate) fn refuse(&mut self, now: Time, number: u64) {
        self.refused = self.refused.max(number);
        self.with_streams(|_| ());
        if self.acks.is_empty() {
            self.probe_due = true;
        } else {
            self.acks.record_duplicate(now);
        }
    }

    /// Messages wait for the peer's memory: for so long, if nothing more is heard of it.
    fn wait(&mut self, now: Time, config: &Config) {
        self.waits_until = self.waits_until.min(now + config.probe_timeout_max_ns);
    }

    fn handle_limit(&mut self, now: Time, limit: u64) {
        self.main.outgoing.take_limit(limit, self.recovery.next_number());
        self.expedite(now);
    }

    /// The peer, which has had to drop something, may have room for it now.
    fn expedite(&mut self, now: Time) {
        if self.recovery.expedite(now)
            && let Some(content) = self.recovery.on_probe_timeout(now)
        {
            // Else a peer that calls often enough would put off the second probe timeout, and with
            // it the finding of a black hole.
            if self.mtu.on_called_probes(self.recovery.expedited()) {
                self.follow_packet_bytes();
            }
            self.probe_with(&content);
            self.probe_due = true;
        }
    }

    /// What others have overtaken that were sent later may be lost.
    #[inline]
    fn lose_overtaken(&mut self, now: Time, config: &Config) {
        if self.recovery.has_overtaken() {
            self.detect_losses(now, config);
        }
    }

    fn handle_ack(
        &mut self,
        now: Time,
        config: &Config,
        reception: Reception<'_>,
        ack: &Ack<'_>,
        app: &mut impl App,
    ) -> Result<Outcome, Refused> {
        let window_limited = ack.largest < self.limited_until;
        let mut streams = self.streams.as_deref_mut();
        let (outgoing, close_acknowledged) =
            (&mut self.main.outgoing, &mut self.main.close_acknowledged);
        let (mut done, mut any_of_streams) = (Done::default(), false);
        let acked = self.recovery.on_ack(ack, |content| {
            if content.stream != 0 {
                any_of_streams = true;
                return streams.iter_mut().for_each(|all| all.acknowledge(content, app));
            }
            done += outgoing.acknowledge(content.range.clone());
            *close_acknowledged |= content.told.close;
        });
        if any_of_streams {
            self.with_streams(|_| ());
        }
        let acked = acked.ok_or(Refused::Violation)?;
        if self.recovery.in_flight_bytes() == 0 {
            // Nothing is left to ask for. Else every few messages of a flow that has one under way
            // at a time would be acknowledged at once, in a packet of its own, and not with the
            // answer.
            self.unasked_bytes = 0;
        }
        if let Some(sent) = acked.largest_sent.filter(|sent| *sent >= reception.returned) {
            let delay = HostDelay { peer_ns: u64::from(ack.delay_ns), own_ns: self.gap_ns };
            self.rtt.sample(now, now.since(sent), delay, config.ack_delay_ns);
        }
        let marked = acked.largest_sent.is_some() && self.marking.on_ack(ack.ecn, acked.packets);
        if acked.was_spurious {
            self.congestion.on_spurious_loss();
        }
        if acked.bytes > 0 {
            self.last_acknowledged = now;
            self.congestion.on_ack(&AckSample {
                now,
                sent: acked.newest_sent,
                acked_bytes: acked.bytes,
                packet_bytes: acked.largest_bytes,
                rtt_ns: self.rtt.network_ns(),
                smoothed_rtt_ns: self.rtt.smoothed_ns(),
                min_rtt_ns: self.rtt.min_ns(),
                window_limited,
                marked,
            });
            self.window_bytes = self.congestion.window_bytes();
            if self.mtu.on_acked(now, acked.largest_bytes) {
                self.follow_packet_bytes();
            }
        }
        if self.main.outgoing.has_deadlines() && self.has_app() {
            self.main.tell_dropped(app);
        }
        if done.messages > 0 && self.has_app() {
            self.main.messages_sent += u64::from(done.messages);
            app.sent(self.main.owner, done.messages);
        }
        if done.operations > 0 && self.has_app() {
            self.operations_arrived(done.operations, app);
        }
        Ok(match self.check_closed() {
            Outcome::Received if done.operations > 0 && self.main.outgoing.has_data() => {
                Outcome::Continue
            }
            outcome => outcome,
        })
    }

    /// An orderly close is complete when the peer has everything, the close frame included.
    fn check_closed(&self) -> Outcome {
        let closed = matches!(self.state, State::Closing)
            && self.main.close_acknowledged
            && self.main.outgoing.is_done();
        if closed { Outcome::Ended(Reason::Closed) } else { Outcome::Received }
    }

    /// The peer has no such flow (any more), for this reason. If it says that it was closed, it has
    /// got the close, and all that was sent before; only its acknowledgement did not come here.
    pub(crate) fn handle_reset(&mut self, reason: Reason, app: &mut impl App) -> Outcome {
        if reason != Reason::Closed {
            return Outcome::Ended(reason);
        }
        let was_closed = matches!(self.state, State::Closing) && !self.close_waits;
        // A close leaves after all messages: the peer cannot have got one.
        if !was_closed || !self.main.outgoing.is_sent() {
            return Outcome::Ended(Reason::Reset);
        }
        let done = self.main.outgoing.acknowledge_all();
        self.main.tell_dropped(app);
        if done.messages > 0 {
            self.main.messages_sent += u64::from(done.messages);
            app.sent(self.main.owner, done.messages);
        }
        Outcome::Ended(Reason::Closed)
    }

    /// Tells the app that the peer has closed, once everything before that is delivered.
    fn check_peer_close(&mut self, now: Time, config: &Config, app: &mut impl App) {
        let Some(messages) = self.main.peer_close else { return };
        let delivered = self.main.incoming.messages_delivered() as u32 == messages;
        if self.is_over() || (matches!(self.state, State::Open) && !delivered) {
            return;
        }
        self.end_streams(app);
        if self.has_app() {
            self.main.incoming.discard(app, self.main.owner);
            app.closed(self.main.owner, Reason::Closed);
        }
        // RFC 9000, 10.2: "These states SHOULD persist for at least three times the current PTO".
        let wait_ns =
            3 * self.rtt.probe_timeout_ns(config.timer_granularity_ns, config.ack_delay_ns);
        self.state = State::Drained { until: now + wait_ns.max(config.probe_timeout_max_ns) };
        (self.main.limit_due, self.probe_due) = (false, false);
        (self.main.close_due, self.close_waits) = (false, false);
        self.ports.stop();
        self.arrivals.stop();
        self.main.outgoing = Outgoing::new(0);
        self.recovery = Recovery::at(self.recovery.next_number());
        self.acks.record_duplicate(now); // acknowledge the close at once
    }
}

/// What is sent as zero would mean something else in a later version.
pub(super) fn check_reserved(field: u16) -> Result<(), Refused> {
    if field == 0 { Ok(()) } else { Err(Refused::Violation) }
}
