//! A flow's part in the handshake: syns until a syn-ack comes, or syn-acks as often as asked.

use clearway_base::Time;
use clearway_wire::clearway::{PacketType, Syn, SynAck, VERSION};

use super::{Flow, Outcome, Parameters, State};
use crate::app::Reason;
use crate::config::Config;
use crate::congestion::Swift;
use crate::control::{VERSIONS, emit_control};
use crate::pacer::Pacer;

/// What a flow knows before its peer has answered.
#[derive(Debug)]
pub(super) struct Connecting {
    token: u64,
    cookie: Vec<u8>,
    /// When the last syn left, for the first RTT sample.
    sent: Time,
    pub(super) retry_at: Time,
    retry_ns: u64,
    pub(super) give_up: Time,
    pub(super) syn_due: bool,
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

    fn learn_peer(&mut self, now: Time, config: &Config, limit: u64, packet_bytes_max: u16) {
        self.outgoing.raise_limit(limit);
        self.packet_bytes_max = config.packet_bytes_max.min(packet_bytes_max);
        self.congestion = Box::new(Swift::new(self.packet_bytes_max, config.delay_target_ns));
        self.window_bytes = self.congestion.window_bytes();
        self.pacer = Pacer::new(now, self.packet_bytes_max);
        self.touch(now, config);
    }

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

    pub(super) fn emit_syn(&mut self, now: Time, config: &Config, bytes: &mut [u8]) -> usize {
        let State::Connecting(connecting) = &mut self.state else { return 0 };
        if !connecting.syn_due {
            return 0;
        }
        connecting.syn_due = false;
        connecting.sent = now;
        self.setup_retries += u32::from(self.setup_packets > 1);
        self.setup_packets += 1;
        connecting.retry_at = now + connecting.retry_ns;
        connecting.retry_ns = (2 * connecting.retry_ns).min(config.connect_retry_max_ns);
        let syn = Syn {
            source_flow: self.local_id,
            port: self.service_port,
            receive_limit: self.incoming.announce_limit(),
            packet_bytes_max: config.packet_bytes_max,
            versions: VERSIONS,
            cookie: &connecting.cookie,
        };
        emit_control(bytes, PacketType::Syn, 0, connecting.token, |body| syn.emit(body))
    }

    pub(super) fn emit_syn_ack(&mut self, config: &Config, token: u64, bytes: &mut [u8]) -> usize {
        self.setup_retries += u32::from(self.setup_packets > 0);
        self.setup_packets += 1;
        let syn_ack = SynAck {
            source_flow: self.local_id,
            receive_limit: self.incoming.announce_limit(),
            packet_bytes_max: config.packet_bytes_max,
            version: VERSION,
        };
        emit_control(bytes, PacketType::SynAck, self.peer_id, token, |body| syn_ack.emit(body))
    }
}

impl Connecting {
    pub(super) fn handle_timeout(&mut self, now: Time) -> Outcome {
        if self.give_up <= now {
            return Outcome::Ended(Reason::TimedOut);
        }
        if self.retry_at <= now {
            self.syn_due = true;
        }
        Outcome::Continue
    }
}
