//! A flow as plain data, and back.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{MILLISECOND, Time};
use clearway_congestion::{CongestionControl, Pacer};

use super::timers::keep_alive_ns;
use super::{Arrivals, Connecting, Flow, Parameters, Ports, Request, State, Streams};
use crate::acks::Acks;
use crate::app::Owner;
use crate::config::{Config, SILENCE_MS};
use crate::ecn::Marking;
use crate::endpoint::{FlowKey, FlowMemory, StreamKey};
use crate::mtu::PathMtu;
use crate::recovery::Recovery;
use crate::rtt::RttEstimator;
use crate::state::{DueState, FlowState, POSITIONS_MAX, Phase};
use crate::stream::Stream;

impl Flow {
    pub(crate) fn save(&self) -> FlowState {
        FlowState {
            local_id: self.local_id,
            peer_id: self.peer_id,
            main: self.main.save(),
            local: self.local,
            remote: self.remote,
            service_port: self.service_port,
            phase: match &self.state {
                State::Connecting(connecting) => connecting.save(),
                State::Open => Phase::Open,
                State::Closing => Phase::Closing,
                State::Drained { until } => Phase::Drained { until: *until },
            },
            request: self.request.as_ref().map(Request::save),
            takes_operations: self.takes_operations,
            is_shared: self.is_shared,
            streams: self.streams.as_ref().map(|all| all.save()),
            due: DueState { close_waits: self.close_waits, probe: self.probe_due },
            last_received: self.last_received,
            keep_alive_at: self.keep_alive_at,
            silence_ms: (self.silence_ns / MILLISECOND) as u32,
            acks: self.acks.save(),
            recovery: self.recovery.save(),
            rtt: self.rtt.save(),
            ecn: self.marking.save(),
            packet_bytes: self.mtu.save(),
            window_bytes: self.window_bytes,
            limited_until: self.limited_until,
            unasked_bytes: self.unasked_bytes,
            asked: self.asked,
            arrivals: self.arrivals.save(),
            ports: self.ports.save(),
            packets_lost: self.packets_lost,
            setup_packets: self.setup_packets,
            setup_retries: self.setup_retries,
        }
    }

    /// One that goes on at `now`.
    pub(crate) fn restore(now: Time, config: &Config, saved: FlowState) -> Result<Self, Invalid> {
        ensure(
            saved.local.is_ipv4() == saved.remote.is_ipv4(),
            "a flow between two families of addresses",
        )?;
        let counts = [saved.packets_lost, saved.unasked_bytes];
        ensure(counts.iter().all(|count| *count <= POSITIONS_MAX), "more than can be counted")?;
        ensure(SILENCE_MS.contains(&saved.silence_ms), "a silence that nobody may wait for")?;
        let silence_ns = u64::from(saved.silence_ms) * MILLISECOND;
        let recovery = Recovery::restore(saved.recovery)?;
        let mut in_flight = recovery.positions();
        let mut in_flight = |stream| in_flight.remove(&stream).unwrap_or_default();
        let parameters = Parameters {
            owner: saved.main.owner,
            local_id: saved.local_id,
            local: saved.local,
            remote: saved.remote,
            window: 0,
            seed: 0,
        };
        let mut flow = Self {
            peer_id: saved.peer_id,
            service_port: saved.service_port,
            request: saved.request.as_ref().map(Request::restore).transpose()?,
            takes_operations: saved.takes_operations,
            is_shared: saved.is_shared,
            close_waits: saved.due.close_waits,
            probe_due: saved.due.probe,
            last_received: saved.last_received.min(now),
            keep_alive_at: saved.keep_alive_at,
            silence_ns,
            keep_alive_ns: keep_alive_ns(config, silence_ns),
            acks: Acks::restore(saved.acks)?,
            main: Stream::restore(saved.main, in_flight(0))?,
            streams: saved
                .streams
                .map(|all| Streams::restore(all, &mut in_flight).map(Box::new))
                .transpose()?,
            recovery,
            rtt: RttEstimator::restore(saved.rtt)?,
            marking: Marking::restore(saved.ecn),
            mtu: PathMtu::restore(saved.packet_bytes, config.packet_bytes_max)?,
            limited_until: saved.limited_until,
            unasked_bytes: saved.unasked_bytes,
            asked: saved.asked,
            arrivals: Arrivals::restore(now, &saved.arrivals),
            ports: Ports::restore(&saved.ports)?,
            packets_lost: saved.packets_lost,
            setup_packets: saved.setup_packets.min(u32::MAX / 2),
            setup_retries: saved.setup_retries.min(u32::MAX / 2),
            ..Self::new(now, config, parameters, restore_phase(saved.phase)?)
        };
        flow.with_streams(|_| ());
        flow.note_use(now);
        flow.check()?;
        flow.resume(now, config, saved.window_bytes);
        Ok(flow)
    }

    /// What is not asked for in each phase must not be there.
    fn check(&self) -> Result<(), Invalid> {
        let may_wait = matches!(self.state, State::Closing) && !self.main.close_due;
        ensure(may_wait || !self.close_waits, "a close that waits for nothing")?;
        let has_peer = self.peer_id != 0;
        let is_nobodys = self.main.owner == Owner::NOBODY;
        ensure(self.is_shared == is_nobodys, "a flow of an app that is shared, or of nobody")?;
        ensure(!(self.is_shared && self.takes_operations), "operations of a flow of nobody")?;
        let may_have_streams = matches!(self.state, State::Open | State::Closing)
            || (self.is_shared && self.is_connecting());
        ensure(may_have_streams || self.streams.is_none(), "streams of a flow that is not open")?;
        match self.state {
            State::Connecting(_) => {
                let is_begun =
                    has_peer || self.request.is_some() || self.recovery.next_number() > 0;
                ensure(!is_begun, "a flow that is open before it is")
            }
            State::Open => ensure(has_peer, "a flow without a peer"),
            State::Closing | State::Drained { .. } => {
                let holds_memory = self.main.incoming.buffers().next().is_some();
                ensure(has_peer && !holds_memory, "a flow that is over and takes messages")
            }
        }
    }

    /// Congestion control goes on with the window, and learns the rest anew.
    fn resume(&mut self, now: Time, config: &Config, window_bytes: u64) {
        if self.is_connecting() {
            return;
        }
        let packet_bytes = self.mtu.bytes();
        self.congestion = config.congestion.control(packet_bytes, config.delay_target_ns);
        self.congestion.resume(window_bytes);
        self.window_bytes = self.congestion.window_bytes();
        self.pacer = Pacer::new(now, packet_bytes);
    }

    /// What each of its connections has of its app's memory.
    pub(crate) fn memory(&self) -> impl Iterator<Item = FlowMemory> + '_ {
        let flow = FlowKey::of_id(self.local_id);
        let main = FlowMemory {
            key: StreamKey { flow, stream: 0 },
            owner: self.main.owner,
            is_drained: !self.has_app(),
            is_connecting: self.is_connecting(),
            was_accepted: self.was_accepted(),
            buffers: self.main.incoming.buffers().collect(),
            extents: self.main.outgoing.extents().collect(),
            operations: self.operations().collect(),
        };
        let others = self.streams.iter().flat_map(|all| all.iter());
        let others = others.map(move |view| FlowMemory {
            key: StreamKey { flow, stream: view.id },
            owner: view.stream.owner,
            is_drained: false,
            is_connecting: view.is_connecting,
            was_accepted: view.was_accepted,
            buffers: view.stream.incoming.buffers().collect(),
            extents: view.stream.outgoing.extents().collect(),
            operations: Vec::new(),
        });
        std::iter::once(main).chain(others)
    }
}

fn restore_phase(phase: Phase) -> Result<State, Invalid> {
    Ok(match phase {
        Phase::Open => State::Open,
        Phase::Closing => State::Closing,
        Phase::Drained { until } => State::Drained { until },
        connecting @ Phase::Connecting { .. } => match Connecting::restore(connecting)? {
            Some(connecting) => State::Connecting(Box::new(connecting)),
            None => return Err(Invalid("a phase that there is not")),
        },
    })
}
