//! A flow's part in the handshake: syns until a challenge and a syn-ack come, or syn-acks until the
//! client tells which of them came straight to its engine. When how many of them leave is in
//! `spray`.

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_congestion::{CongestionControl, Pacer};
use clearway_wire::clearway::{
    self, COOKIE_BYTES_MAX, Challenge, ENGINES_MAX, HEADER_LENGTH, Header, PacketType, Syn, SynAck,
    VERSION_OPERATIONS, VERSION_SHARED, VERSION_STREAMS,
};

use super::{Flow, Known, Outcome, Parameters, State, Streams};
use crate::app::{App, Reason};
use crate::config::Config;
use crate::control::{VERSIONS, emit_control, versions_offered};
use crate::endpoint::Arrival;
use crate::mtu::PathMtu;
use crate::recovery::Content;
use crate::rtt::{HostDelay, RttEstimator};
use crate::state::{DURATION_NS_MAX, Phase, RequestState};

/// What a flow knows before its peer has answered.
#[derive(Debug)]
pub(super) struct Connecting {
    token: u64,
    cookie: Vec<u8>,
    peer_engines: u8,
    /// When the first syn left, with the cookie if there is one, for the first RTT sample; and the
    /// last.
    sent: Option<Time>,
    sent_last: Time,
    /// What the challenge says of the round-trip time.
    known_rtt_ns: u64,
    pub(super) give_up: Time,
}

impl Connecting {
    pub(super) fn save(&self) -> Phase {
        Phase::Connecting {
            token: self.token,
            cookie: self.cookie.clone(),
            peer_engines: self.peer_engines,
            sent: self.sent,
            sent_last: self.sent_last,
            known_rtt_ns: self.known_rtt_ns,
            give_up: self.give_up,
        }
    }

    /// `None` for another phase.
    pub(super) fn restore(phase: Phase) -> Result<Option<Self>, Invalid> {
        let Phase::Connecting {
            token,
            cookie,
            peer_engines,
            sent,
            sent_last,
            known_rtt_ns,
            give_up,
        } = phase
        else {
            return Ok(None);
        };
        ensure(cookie.len() <= COOKIE_BYTES_MAX, "a cookie that is too long")?;
        let is_known = (1..=ENGINES_MAX).contains(&peer_engines);
        ensure(is_known, "a peer of no engines, or too many")?;
        ensure(known_rtt_ns <= DURATION_NS_MAX, "a round trip that no packet has made")?;
        Ok(Some(Self { token, cookie, peer_engines, sent, sent_last, known_rtt_ns, give_up }))
    }

    /// What the syn-ack that has come now says of the round-trip time. Which of several syns it
    /// answers is not known. The last tells more: by the first of them, probes would wait for as
    /// long as syns were repeated.
    fn tell_rtt(&self, now: Time, was_repeated: bool, config: &Config, rtt: &mut RttEstimator) {
        let since_first_ns = self.sent.map_or(0, |sent| now.since(sent));
        if was_repeated {
            let since_last_ns = now.since(self.sent_last);
            rtt.guess(since_last_ns.max(self.known_rtt_ns).min(since_first_ns));
        } else {
            rtt.sample(now, since_first_ns, HostDelay::default(), config.ack_delay_ns);
        }
    }
}

/// What a flow has become by its syn-ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// That of one connection.
    Own,
    /// One that connections share: the peer has yet to accept them.
    Shared,
    /// All connections for which it was begun have ended meanwhile.
    Unwanted,
}

/// The syn that opened a flow: its token, the UDP port that it came from, and how long the client
/// took to send the cookie back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) token: u64,
    pub(crate) port: u16,
    pub(crate) rtt_ns: u64,
    /// By a lane if it was passed on: not from a port that it should have come from.
    pub(crate) arrival: Arrival,
    /// The version of the protocol that the two agree on.
    pub(crate) version: u8,
}

impl Request {
    pub(super) fn save(&self) -> RequestState {
        let Self { token, port, rtt_ns, arrival, version } = *self;
        RequestState { token, port, rtt_ns, by_lane: arrival == Arrival::Lane, version }
    }

    pub(super) fn restore(state: &RequestState) -> Result<Self, Invalid> {
        let RequestState { token, port, rtt_ns, by_lane, version } = *state;
        ensure(VERSIONS.contains(&version), "a version that is not spoken")?;
        ensure(rtt_ns <= DURATION_NS_MAX, "a round trip that no packet has made")?;
        let arrival = if by_lane { Arrival::Lane } else { Arrival::Queue };
        Ok(Self { token, port, rtt_ns, arrival, version })
    }
}

impl Flow {
    /// A flow that is to be opened by a syn, to a peer of which this is known.
    pub(crate) fn connect(
        now: Time,
        config: &Config,
        p: Parameters,
        service_port: u16,
        token: u64,
        known: Option<Known>,
    ) -> Self {
        let state = State::Connecting(Box::new(Connecting {
            token,
            cookie: Vec::new(),
            peer_engines: 1,
            sent: None,
            sent_last: now,
            known_rtt_ns: 0,
            give_up: now + config.connect_timeout_ns,
        }));
        let mut flow = Self { service_port, ..Self::new(now, config, p, state) };
        flow.ports.look_for_listener(now, config, known, flow.engines(config));
        flow
    }

    /// A flow that a peer has opened by `syn`, which carried a valid cookie.
    pub(crate) fn accept(
        now: Time,
        config: &Config,
        p: Parameters,
        syn: &Syn<'_>,
        request: &Request,
    ) -> Self {
        let mut flow = Self::new(now, config, p, State::Open);
        flow.peer_id = syn.source_flow;
        flow.learn_peer(now, config, syn.receive_limit, syn.packet_bytes_max);
        flow.request = Some(*request);
        if request.version == VERSION_SHARED {
            flow = Self { service_port: syn.port, ..flow.share() };
        }
        flow.agree_on(request.version, false);
        if request.arrival == Arrival::Lane {
            flow.arrivals.complain_soon();
        }
        let known = Known { engines: syn.engines, rtt_ns: request.rtt_ns };
        flow.ports.look_for_client(now, config, known);
        flow.note_use(now);
        flow
    }

    /// The engines of this host that packets of this flow may come to.
    fn engines(&self, config: &Config) -> u8 {
        config.engines_between(self.local.ip(), self.remote.ip())
    }

    fn learn_peer(&mut self, now: Time, config: &Config, limit: u64, packet_bytes_max: u16) {
        self.main.outgoing.raise_limit(limit);
        let both_take = config.packet_bytes_announced().min(packet_bytes_max);
        self.mtu = PathMtu::new(both_take, config.packet_bytes_max);
        let packet_bytes = self.mtu.bytes();
        self.congestion = config.congestion.control(packet_bytes, config.delay_target_ns);
        self.window_bytes = self.congestion.window_bytes();
        self.pacer = Pacer::new(now, packet_bytes);
        self.touch(now);
    }

    fn agree_on(&mut self, version: u8, is_client: bool) {
        self.takes_operations = version >= VERSION_OPERATIONS && !self.is_shared;
        if version >= VERSION_STREAMS && self.streams.is_none() {
            self.streams = Some(Box::new(Streams::new(is_client)));
        }
    }

    /// Takes the challenge to our syn: the next one carries its cookie, and is sent from the port
    /// that the challenge names. Returns what is known of the peer now, unless it was only
    /// repeated.
    pub(crate) fn handle_challenge(
        &mut self,
        now: Time,
        config: &Config,
        known: Option<Known>,
        challenge: &Challenge<'_>,
    ) -> Option<Known> {
        let State::Connecting(connecting) = &mut self.state else { return None };
        if !connecting.cookie.is_empty() {
            return None;
        }
        let known = self.ports.pin(now, config, known, challenge.engines, challenge.port)?;
        connecting.cookie = challenge.cookie.to_vec();
        connecting.sent = None;
        connecting.known_rtt_ns = known.rtt_ns;
        connecting.peer_engines = challenge.engines;
        Some(known)
    }

    /// Takes a syn-ack; what the flow has become by it, if anything.
    pub(crate) fn handle_syn_ack(
        &mut self,
        now: Time,
        config: &Config,
        token: u64,
        syn_ack: &SynAck,
        app: &mut impl App,
    ) -> Option<Opened> {
        let State::Connecting(connecting) = &self.state else {
            self.note_syn_ack(config, syn_ack);
            return None;
        };
        let is_offered = versions_offered(self.is_shared).contains(&syn_ack.version);
        if connecting.token != token || !is_offered {
            return None;
        }
        connecting.tell_rtt(now, self.ports.has_repeated(), config, &mut self.rtt);
        let engines = connecting.peer_engines;
        self.peer_id = syn_ack.source_flow;
        self.learn_peer(now, config, syn_ack.receive_limit, syn_ack.packet_bytes_max);
        self.state = State::Open;
        let is_wanted = !self.is_shared || self.settle_sharing(syn_ack.version, app);
        self.agree_on(syn_ack.version, true);
        self.ports.on_accepted(engines, syn_ack.port);
        self.note_syn_ack(config, syn_ack);
        Some(match is_wanted {
            true if self.is_shared => Opened::Shared,
            true => Opened::Own,
            false => Opened::Unwanted,
        })
    }

    /// Syn-acks are probes, too: the server looks for a port whose packets come straight here. With
    /// one engine all do, and the server knows it.
    fn note_syn_ack(&mut self, config: &Config, syn_ack: &SynAck) {
        if self.engines(config) > 1 && self.peer_id == syn_ack.source_flow && !self.is_over() {
            self.arrivals.on_probe(0);
        }
    }

    /// The peer has repeated its syn, now from `port`: our syn-ack was lost.
    pub(crate) fn repeat_syn_ack(&mut self, now: Time, config: &Config, port: u16) {
        if let Some(request) = &mut self.request {
            request.port = port;
            self.ports.repeat(now, config, request.rtt_ns);
        }
    }

    /// True if `token` is that of our syn.
    pub(crate) fn is_connecting_with(&self, token: u64) -> bool {
        matches!(&self.state, State::Connecting(connecting) if connecting.token == token)
    }

    /// Writes the packet of a search that is due.
    pub(super) fn emit_sprayed(&mut self, now: Time, config: &Config, bytes: &mut [u8]) -> usize {
        let is_retry = self.ports.on_sprayed(now);
        if let Some(round) = self.ports.probe_round() {
            return self.emit_probe(now, round, bytes);
        }
        self.setup_packets += 1;
        self.setup_retries += u32::from(is_retry);
        if self.is_connecting() {
            self.emit_syn(now, config, bytes)
        } else {
            self.emit_syn_ack(config, bytes)
        }
    }

    fn emit_syn(&mut self, now: Time, config: &Config, bytes: &mut [u8]) -> usize {
        let (engines, pass_on) = (self.engines(config), self.ports.is_desperate());
        let State::Connecting(connecting) = &mut self.state else { return 0 };
        connecting.sent = connecting.sent.or(Some(now));
        connecting.sent_last = now;
        let syn = Syn {
            source_flow: self.local_id,
            port: self.service_port,
            receive_limit: self.main.incoming.announced_limit(),
            packet_bytes_max: config.packet_bytes_announced(),
            engines,
            pass_on,
            versions: versions_offered(self.is_shared),
            cookie: &connecting.cookie,
        };
        emit_control(bytes, PacketType::Syn, 0, connecting.token, |body| syn.emit(body))
    }

    /// A client that is connected does not read the limit in it, which so may not be news.
    fn emit_syn_ack(&mut self, config: &Config, bytes: &mut [u8]) -> usize {
        let Some(Request { token, port, version, .. }) = self.request else { return 0 };
        let syn_ack = SynAck {
            source_flow: self.local_id,
            receive_limit: self.main.incoming.announced_limit(),
            packet_bytes_max: config.packet_bytes_announced(),
            version,
            port,
        };
        emit_control(bytes, PacketType::SynAck, self.peer_id, token, |body| syn_ack.emit(body))
    }

    /// A data packet that is no loss if it is lost: nothing waits for its acknowledgement.
    fn emit_probe(&mut self, now: Time, round: u16, bytes: &mut [u8]) -> usize {
        let end = HEADER_LENGTH + clearway::emit_probe(&mut bytes[HEADER_LENGTH..], round);
        Header::data(self.peer_id, self.recovery.next_number(), false).emit(bytes);
        self.recovery.on_sent(now, end, false, &Content::default());
        clearway::seal(&mut bytes[..end]);
        end
    }
}

impl Connecting {
    pub(super) fn handle_timeout(&self, now: Time) -> Outcome {
        if self.give_up <= now { Outcome::Ended(Reason::TimedOut) } else { Outcome::Continue }
    }
}
