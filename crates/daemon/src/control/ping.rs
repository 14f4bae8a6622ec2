//! `clearway ping`: probes to a peer's daemon, and what becomes of each.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use clearway_channel::Code;
use clearway_channel::control::{Ping, Pong, Probe, Refusal, Reply};
use clearway_control::Nic;
use clearway_control::policy::Network;
use clearway_engine::{PingFailure, Request as EngineRequest, Undelivered};

use super::ControlPlane;
use super::requests::refusal;
use super::session::Waiting;

/// A probe is a Clearway packet, which has a header (docs/wire.md).
const PROBE_BYTES_MIN: u16 = 24;
/// Probes of one session whose answer is awaited: the engine remembers 64 of all together.
const OUTSTANDING_MAX: usize = 32;
/// Time between the probes of a user who is no administrator, at least: what iputils allows
/// ordinary users.
const GAP_MIN: Duration = Duration::from_millis(2);
/// Sessions of such a user that send probes at the same time.
const PER_USER_MAX: usize = 8;

/// A `ping` request in work.
#[derive(Debug)]
pub(super) struct Task {
    engine: usize,
    ping: Ping,
    gap_min: Duration,
    sent: u32,
    /// Oldest first.
    outstanding: VecDeque<Outstanding>,
    /// When the next probe is due.
    next: Instant,
    /// When the last one was sent.
    sent_at: Instant,
    /// What the app has not taken yet.
    untold: VecDeque<Pong>,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// What the engine calls it.
    id: u64,
    number: u32,
    lost_at: Instant,
}

impl ControlPlane {
    pub(super) fn begin_ping(&mut self, token: u64, ping: &Ping) -> Result<(), Refusal> {
        let engine = self.engine_towards(ping)?;
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let user = session.peer.user;
        let is_administrator = self.plane.is_administrator(&session.peer);
        let pings = |other: &&super::Session| {
            other.peer.user == user && matches!(other.waiting, Waiting::Pong(_))
        };
        if !is_administrator && self.sessions.values().filter(pings).count() >= PER_USER_MAX {
            let text = "other sessions of this user are sending pings; wait until those are done";
            return Err(refusal(Code::Limit, text));
        }
        let gap_min = if is_administrator { Duration::ZERO } else { GAP_MIN };
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        session.waiting = Waiting::Pong(Task::new(engine, ping.clone(), gap_min, Instant::now()));
        self.advance_pings();
        Ok(())
    }

    /// An engine of the NIC whose link the peer is on, else of one that has an address of its
    /// family.
    fn engine_towards(&self, ping: &Ping) -> Result<usize, Refusal> {
        let peer = ping.peer;
        let nics = self.nics_of_zone(ping)?;
        let has = |nic: &Nic, is: &dyn Fn(&Network) -> bool| nic.networks().any(|own| is(&own));
        if let Some(nic) = nics.iter().find(|nic| has(nic, &|own| own.address == peer)) {
            let text = format!(
                "{peer} is an address of this host itself (NIC {}); its apps reach each other \
                 without packets, and `clearway status` shows its state",
                nic.name
            );
            return Err(refusal(Code::Invalid, text));
        }
        let on_link = nics.iter().find(|nic| has(nic, &|own| own.on_link(peer)));
        let of_family = |nic: &&&Nic| has(nic, &|own| own.address.is_ipv4() == peer.is_ipv4());
        let nic = on_link.or_else(|| nics.iter().find(of_family));
        let runs = |engine: &usize| !self.plane.engines()[*engine].has_ended;
        nic.and_then(|nic| nic.engines.clone().find(runs)).ok_or_else(|| no_route(peer))
    }

    /// The NICs of the interface that is named, or all if none is.
    fn nics_of_zone(&self, ping: &Ping) -> Result<Vec<&Nic>, Refusal> {
        let Some(zone) = &ping.zone else { return Ok(self.plane.nics().iter().collect()) };
        let slots = self.nics.iter().zip(self.plane.nics());
        let of_zone =
            slots.filter(|(slot, _)| slot.config.driver.interface() == Some(zone.as_str()));
        let nics: Vec<&Nic> = of_zone.map(|(_, nic)| nic).collect();
        if nics.is_empty() {
            let peer = ping.peer;
            let text = format!(
                "no NIC of this host is the interface \"{zone}\", on whose link {peer} is to be; \
                 see the NICs in `clearway status`, or write {peer} alone to go by any"
            );
            return Err(refusal(Code::Unreachable, text));
        }
        Ok(nics)
    }

    pub(super) fn take_pong(&mut self, id: u64, result: Result<u64, PingFailure>) {
        let now = Instant::now();
        let of_task = |(token, session): (&u64, &mut super::Session)| match &mut session.waiting {
            Waiting::Pong(task) => task.settle(now, id, result).map(|fatal| (*token, fatal)),
            _ => None,
        };
        match self.sessions.iter_mut().find_map(of_task) {
            Some((token, Some(refusal))) => self.reply(token, &Reply::Error(refusal)),
            _ => self.advance_pings(),
        }
    }

    /// Sends the probes that are due, and tells what is known.
    pub(super) fn advance_pings(&mut self) {
        let now = Instant::now();
        let mut to_tell = Vec::new();
        for (token, session) in &mut self.sessions {
            let Waiting::Pong(task) = &mut session.waiting else { continue };
            task.give_up(now);
            if task.may_send() && task.next <= now {
                self.request_next += 1;
                self.mailboxes[task.engine].post(task.probe(self.request_next, now));
            }
            if !task.untold.is_empty() {
                to_tell.push(*token);
            }
        }
        for token in to_tell {
            self.tell_pongs(token);
        }
    }

    /// Tells an app what it has room for.
    pub(super) fn tell_pongs(&mut self, token: u64) {
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let Waiting::Pong(mut task) = std::mem::take(&mut session.waiting) else { return };
        while let Some(pong) = task.untold.front() {
            match session.try_reply(&Reply::Pong(*pong), &[]) {
                Ok(true) => task.untold.pop_front(),
                Ok(false) => break,
                Err(error) => return self.end_session(token, &format!("cannot reply: {error}")),
            };
        }
        if !task.is_done() {
            session.waiting = Waiting::Pong(task);
        }
        self.watch_again(token);
    }

    /// When the next probe is due, or one is lost.
    pub(super) fn ping_due(&self) -> Option<Instant> {
        let due = self.sessions.values().filter_map(|session| match &session.waiting {
            Waiting::Pong(task) => task.due(),
            _ => None,
        });
        due.min()
    }
}

impl Task {
    fn new(engine: usize, ping: Ping, gap_min: Duration, now: Instant) -> Self {
        Self {
            engine,
            ping: Ping { bytes: ping.bytes.max(PROBE_BYTES_MIN), ..ping },
            gap_min,
            sent: 0,
            outstanding: VecDeque::new(),
            next: now,
            sent_at: now,
            untold: VecDeque::new(),
        }
    }

    /// True if there is something that the app has not taken: nothing is sent meanwhile.
    pub(super) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    fn may_send(&self) -> bool {
        self.sent < self.ping.count
            && self.outstanding.len() < OUTSTANDING_MAX
            && !self.has_untold()
    }

    fn is_done(&self) -> bool {
        self.sent == self.ping.count && self.outstanding.is_empty() && !self.has_untold()
    }

    fn due(&self) -> Option<Instant> {
        let lost = self.outstanding.front().map(|oldest| oldest.lost_at);
        let next = self.may_send().then_some(self.next);
        lost.into_iter().chain(next).min()
    }

    fn probe(&mut self, id: u64, now: Instant) -> EngineRequest {
        let Ping { peer, udp_port, bytes, interval_ms, timeout_ms, .. } = self.ping;
        self.sent += 1;
        let lost_at = now + Duration::from_millis(timeout_ms.into());
        self.outstanding.push_back(Outstanding { id, number: self.sent, lost_at });
        self.sent_at = now;
        self.next = now + Duration::from_millis(interval_ms.into()).max(self.gap_min);
        EngineRequest::Ping { id, peer, udp_port, bytes }
    }

    /// Probes whose time is up.
    fn give_up(&mut self, now: Instant) {
        while self.outstanding.front().is_some_and(|oldest| oldest.lost_at <= now) {
            self.tell(0, Probe::Lost);
        }
    }

    /// What became of a probe: `None` if it is none of these; a refusal if none can be sent.
    fn settle(
        &mut self,
        now: Instant,
        id: u64,
        result: Result<u64, PingFailure>,
    ) -> Option<Option<Refusal>> {
        let at = self.outstanding.iter().position(|outstanding| outstanding.id == id)?;
        let probe = match result {
            Ok(round_trip_ns) => Probe::Answered(round_trip_ns),
            Err(PingFailure::NoRoute) => return Some(Some(no_route(self.ping.peer))),
            Err(PingFailure::TooLarge { limit }) => return Some(Some(self.too_large(limit))),
            Err(PingFailure::NoNeighbour) => Probe::NoNeighbour,
            Err(PingFailure::Undelivered(Undelivered::Port)) => Probe::NoPort,
            Err(PingFailure::Undelivered(Undelivered::Host)) => Probe::NoWay,
        };
        self.tell(at, probe);
        if self.ping.eager && matches!(probe, Probe::Answered(_)) {
            self.next = self.next.min(now.max(self.sent_at + self.gap_min));
        }
        Some(None)
    }

    fn tell(&mut self, at: usize, probe: Probe) {
        let Some(Outstanding { number, .. }) = self.outstanding.remove(at) else { return };
        let last = self.sent == self.ping.count && self.outstanding.is_empty();
        self.untold.push_back(Pong { number, probe, last });
    }

    fn too_large(&self, limit: u16) -> Refusal {
        let Ping { bytes, peer, .. } = self.ping;
        let text = format!(
            "{bytes} bytes are more than a packet to {peer} carries, which is {limit}; send them \
             as a message, or fewer"
        );
        refusal(Code::TooLarge, text)
    }
}

fn no_route(peer: IpAddr) -> Refusal {
    let advice = match peer {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            "it is an address of one link, which NICs of UDP sockets do not know: use another \
             address of that host, or a NIC with `interface` and an IPv6 address"
        }
        _ => {
            "check the address, and `ip route` for kernel interfaces, `addresses`, `gateway` and \
             `routes` in the daemon's configuration for others"
        }
    };
    let text = format!("there is no route to {peer} over the NICs of this host; {advice}");
    refusal(Code::Unreachable, text)
}
