//! `clearway ping`: probes to a peer's daemon, one after the other.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use clearway_channel::Code;
use clearway_channel::control::{Ping, Pong, Refusal, Reply};
use clearway_engine::Request as EngineRequest;

use super::requests::refusal;
use super::session::Waiting;
use super::{ControlPlane, NicSlot};

/// A probe is a Clearway packet, which has a header (docs/wire.md).
const PROBE_BYTES_MIN: u16 = 24;
/// How long an answer may take before the probe counts as lost, at least. An engine that gets no
/// answer to its first question for a neighbour asks again after a second.
const ANSWER_TIME_MIN: Duration = Duration::from_secs(2);

/// A `ping` request in work.
#[derive(Debug)]
pub(super) struct Task {
    engine: usize,
    peer: IpAddr,
    bytes: u16,
    interval: Duration,
    /// Probes to send yet.
    left: u32,
    sent: u32,
    round_trips_ns: Vec<u64>,
    /// Why the last probe failed, if that was not the lack of an answer.
    failure: Option<Code>,
    /// The probe on its way.
    outstanding: Option<u64>,
    sent_at: Instant,
    /// When to send the next probe, or to give up on the one on its way.
    due: Instant,
}

impl ControlPlane {
    pub(super) fn begin_ping(&mut self, token: u64, ping: &Ping) -> Result<(), Refusal> {
        let engine = self.engine_towards(ping.peer).ok_or_else(|| {
            let text = format!(
                "no NIC of this host has an address of the family of {}; add one to `addresses`",
                ping.peer
            );
            refusal(Code::Unreachable, text)
        })?;
        let now = Instant::now();
        let task = Task {
            engine,
            peer: ping.peer,
            bytes: ping.bytes.max(PROBE_BYTES_MIN),
            interval: Duration::from_millis(ping.interval_ms.into()),
            left: ping.count,
            sent: 0,
            round_trips_ns: Vec::new(),
            failure: None,
            outstanding: None,
            sent_at: now,
            due: now,
        };
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Pong(task);
        }
        self.advance_pings();
        Ok(())
    }

    /// An engine of the NIC whose link the peer is on, else of one that has an address of its
    /// family.
    fn engine_towards(&self, peer: IpAddr) -> Option<usize> {
        let on_link =
            self.nics.iter().find(|nic| nic.networks.iter().any(|network| network.on_link(peer)));
        let family = |nic: &&NicSlot| {
            nic.networks.iter().any(|network| network.address.is_ipv4() == peer.is_ipv4())
        };
        let nic = on_link.or_else(|| self.nics.iter().find(family))?;
        nic.engines.clone().find(|engine| !self.engines[*engine].ended)
    }

    pub(super) fn take_pong(&mut self, id: u64, result: Result<u64, Code>) {
        let task = self.sessions.values_mut().find_map(|session| match &mut session.waiting {
            Waiting::Pong(task) if task.outstanding == Some(id) => Some(task),
            _ => None,
        });
        let Some(task) = task else { return };
        match result {
            Ok(round_trip_ns) => task.round_trips_ns.push(round_trip_ns),
            Err(Code::TimedOut) => {}
            Err(code) => task.failure = Some(code),
        }
        task.outstanding = None;
        task.due = task.sent_at + task.interval;
        self.advance_pings();
    }

    /// Sends the probes that are due and answers the requests that are done.
    pub(super) fn advance_pings(&mut self) {
        let now = Instant::now();
        let mut done = Vec::new();
        for (token, session) in &mut self.sessions {
            let Waiting::Pong(task) = &mut session.waiting else { continue };
            let lost = task.outstanding.is_some() && task.due <= now;
            if lost {
                task.outstanding = None;
                task.due = now;
            }
            if task.outstanding.is_some() {
                continue;
            }
            if task.left == 0 {
                done.push((*token, task.answer()));
            } else if task.due <= now {
                self.request_next += 1;
                let id = self.request_next;
                self.engines[task.engine].post(task.probe(id, now));
            }
        }
        for (token, reply) in done {
            self.reply(token, &reply);
        }
    }

    /// When the next probe is due, or the next one is lost.
    pub(super) fn ping_due(&self) -> Option<Instant> {
        let due = self.sessions.values().filter_map(|session| match &session.waiting {
            Waiting::Pong(task) => Some(task.due),
            _ => None,
        });
        due.min()
    }
}

impl Task {
    fn probe(&mut self, id: u64, now: Instant) -> EngineRequest {
        self.left -= 1;
        self.sent += 1;
        self.outstanding = Some(id);
        self.sent_at = now;
        self.due = now + self.interval.max(ANSWER_TIME_MIN);
        EngineRequest::Ping { id, peer: self.peer, bytes: self.bytes }
    }

    fn answer(&mut self) -> Reply {
        match self.failure {
            Some(code) if self.round_trips_ns.is_empty() => Reply::error(code),
            _ => Reply::Pong(Pong {
                sent: self.sent,
                round_trips_ns: std::mem::take(&mut self.round_trips_ns),
            }),
        }
    }
}
