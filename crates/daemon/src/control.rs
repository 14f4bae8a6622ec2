//! The control plane: one thread that accepts apps, applies the policy, and tells the engines.
//!
//! It waits on one epoll set for the control socket, its sessions, the engines' mailboxes, signals
//! and whoever wants it to stop, and it never waits for any of them in particular. It touches no
//! packet and no message: when it stands still, connections go on.
//!
//! ```text
//!  apps ── SEQPACKET ──▶ session ─▶ requests ─▶ policy ─▶ mailbox ─▶ engine
//!       ◀── reply, fds ──────────── events ◀─────────── mailbox ◀──
//! ```
//!
//! One request of a session is worked on at a time, and its socket is not read meanwhile: so a
//! flood waits in the sender's own socket buffer, and the memory that a session can take is
//! bounded.

mod admission;
mod attach;
mod descriptors;
mod events;
mod groups;
mod ledger;
mod log_budget;
mod mailbox;
mod manager;
mod memories;
mod neighbours;
mod network;
mod nics;
mod ping;
mod plugging;
mod reload;
mod requests;
mod session;
mod signals;
mod status;
mod steps;
mod stop;
mod wake_ups;
mod workers;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::Error;
use crate::broker::Order;
use crate::config::Config;
use crate::confinement::Confinement;
use crate::socket::Listener;
use clearway_channel::Code;
use clearway_channel::control::{Refusal, Request};
use clearway_control::policy::Peer;
use clearway_control::{Engine, Plane};
use clearway_engine::Clock;
use clearway_nic::strangers::{self, SpareThreads};

use admission::Admissions;
use descriptors::Descriptors;
use groups::GroupSource;
use log_budget::LogBudget;
pub(crate) use mailbox::Mailbox;
use manager::Manager;
pub(crate) use nics::NicSlot;
use plugging::Plugging;
pub(crate) use plugging::{Starter, frame_bytes};
use requests::refusal;
use session::{Received, Session, Waiting};
pub(crate) use signals::Signals;
pub use signals::hold_signals;
use status::{Facts, Rounds};
pub use stop::Stopper;
use wake_ups::WakeUps;
use workers::Workers;

/// How long engines may take to say goodbye to their peers before the process ends without them.
const SHUTDOWN_TIME: Duration = Duration::from_secs(3);
/// Events taken from the kernel per wait.
const EVENTS_PER_WAIT: usize = 64;
/// Peers that are not served and wait to be told why, when they ask for something. More are told
/// and closed at once, which their first request may race with.
const REFUSED_MAX: usize = 64;
/// Of these, one user's.
const REFUSED_PER_USER_MAX: usize = 8;
/// How long no connection is accepted after that has failed, for want of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections accepted per wake-up, so that a flood of them leaves time for the others.
const ACCEPTS_PER_WAKE: usize = 16;

/// Tokens in the epoll set. The kernel's neighbours and news, engines and sessions each have a
/// range.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const SIGNALS: u64 = 2;
const GROUPS: u64 = 3;
const WORK: u64 = 4;
const BROKER: u64 = 5;
const OPENED: u64 = 6;
const NEIGHBOURS: u64 = 1 << 8;
const NEWS: u64 = 1 << 15;
const ENGINES: u64 = 1 << 16;
const SESSIONS: u64 = 1 << 32;

/// The control plane of one host. Made by [`crate::Host::open`]; [`ControlPlane::run`] serves until
/// it is stopped.
#[derive(Debug)]
pub struct ControlPlane {
    /// `None` once the host is shutting down.
    listener: Option<Listener>,
    epoll: OwnedFd,
    stopper: Stopper,
    signals: Option<Signals>,
    /// What apps have, and what is to be done about it.
    plane: Plane,
    nics: Vec<NicSlot>,
    /// Those of the engines.
    mailboxes: Vec<Mailbox>,
    /// What is in force.
    config: Config,
    /// The daemon has started with a policy that let others in.
    metrics_are_for_all: bool,
    admissions: Admissions,
    group_source: GroupSource,
    sessions: HashMap<u64, Session>,
    /// How many of the sessions are refused.
    refused: usize,
    /// No connection is accepted until then.
    accept_again: Option<Instant>,
    log_budget: LogBudget,
    manager: Option<Manager>,
    workers: Workers,
    /// For what apps send, and may take as long as they like.
    strangers: SpareThreads,
    descriptors: Descriptors,
    session_next: u64,
    /// Numbers the requests to engines whose answers carry an id.
    request_next: u64,
    facts: Facts,
    rounds: Rounds,
    plugging: Plugging,
    /// What all engines of the host have in common.
    secret: [u8; 16],
    wake_ups: Option<WakeUps>,
    /// Set when the host has been told to end.
    shutdown_deadline: Option<Instant>,
}

impl ControlPlane {
    /// Gathers everything to wait for.
    pub(crate) fn new(
        config: &Config,
        listener: Listener,
        nics: Vec<NicSlot>,
        plane: Plane,
        mailboxes: Vec<Mailbox>,
        clock: Clock,
        secret: [u8; 16],
    ) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::resources("set up the control plane", error);
        let errno = |error: rustix::io::Errno| failed(error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno)?;
        let stopper = Stopper::new().map_err(failed)?;
        let control = Self {
            listener: Some(listener),
            epoll,
            stopper,
            signals: None,
            plane,
            nics,
            mailboxes,
            config: config.clone(),
            metrics_are_for_all: config.policy.lets_others_in(),
            admissions: Admissions::default(),
            group_source: GroupSource::ThisProcess,
            sessions: HashMap::new(),
            refused: 0,
            accept_again: None,
            log_budget: LogBudget::new(),
            manager: None,
            workers: Workers::new().map_err(failed)?,
            strangers: SpareThreads::new("app memory"),
            descriptors: Descriptors::of_this_process(&config.policy.limits),
            session_next: 0,
            request_next: 0,
            facts: Facts::new(config, clock),
            rounds: Rounds::default(),
            plugging: Plugging::new(config).map_err(failed)?,
            secret,
            wake_ups: None,
            shutdown_deadline: None,
        };
        control.watch_all().map_err(errno)?;
        Ok(control)
    }

    /// A handle that ends [`ControlPlane::run`] from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The process has given up what it does not need, and may be another user's now. Before
    /// [`ControlPlane::run`].
    pub(crate) fn confined(&mut self, confinement: Confinement) {
        self.plane.set_own_user(rustix::process::geteuid().as_raw());
        self.facts.confinement = confinement;
    }

    /// Lets `SIGTERM` and `SIGINT` end [`ControlPlane::run`], and `SIGHUP` reload.
    pub(crate) fn stop_on(&mut self, signals: Signals) -> Result<(), Error> {
        self.watch(signals.as_fd(), SIGNALS)
            .map_err(|error| Error::resources("wait for signals", error))?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Serves apps until stopped, then ends the engines and all sessions.
    pub fn run(mut self) -> Result<(), Error> {
        tracing::info!(
            socket = %self.facts.socket.display(),
            engines = self.mailboxes.len(),
            "ready for apps"
        );
        self.workers.start().map_err(|error| Error::resources("start a thread", error))?;
        self.order(Order::Ready);
        while !self.finished() {
            self.turn()?;
        }
        if let Some(engine) = self.stopper.crashed() {
            return Err(Error::EngineCrashed(engine));
        }
        self.join_newcomers();
        match self.plane.engines().iter().find(|engine| !engine.has_ended) {
            Some(engine) => Err(Error::EngineStuck(engine.name.clone())),
            None => Ok(()),
        }
    }

    fn finished(&self) -> bool {
        let Some(deadline) = self.shutdown_deadline else { return false };
        self.plane.engines().iter().all(|engine| engine.has_ended) || Instant::now() >= deadline
    }

    fn turn(&mut self) -> Result<(), Error> {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let timeout = self.time_to_wait().map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let buffer = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::resources("wait for events", error)),
        }
        for event in events {
            self.dispatch(event.data.u64(), event.flags);
        }
        self.advance_pings();
        self.advance_status();
        self.advance_checks();
        self.follow_networks();
        self.advance_nics();
        self.advance_watchdog();
        self.advance_wake_ups();
        if self.accept_again.is_some_and(|again| again <= Instant::now()) {
            self.pause_accepting(false);
        }
        Ok(())
    }

    fn time_to_wait(&self) -> Option<Duration> {
        let due = [
            self.shutdown_deadline,
            self.ping_due(),
            self.status_due(),
            self.accept_again,
            self.networks_due(),
            self.watchdog_due(),
            self.wake_ups_due(),
            self.checks_due(),
            self.nics_due(),
        ];
        let due = due.into_iter().flatten().min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn dispatch(&mut self, token: u64, flags: epoll::EventFlags) {
        match token {
            LISTENER => self.accept(),
            STOP => self.begin_shutdown("asked to"),
            SIGNALS => self.take_signals(),
            GROUPS => self.take_groups(),
            WORK => self.take_work(),
            BROKER => self.take_configuration(),
            OPENED => self.take_opened(),
            NEIGHBOURS..NEWS => self.take_neighbours((token - NEIGHBOURS) as usize),
            NEWS..ENGINES => self.take_news((token - NEWS) as usize),
            ENGINES..SESSIONS => self.take_events((token - ENGINES) as usize),
            _ => self.serve_session(token, flags),
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_WAKE {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((socket, peer)) => self.admit(socket, peer),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an app; see `ulimit -n`");
                    self.pause_accepting(true);
                    return;
                }
            }
        }
    }

    fn pause_accepting(&mut self, pause: bool) {
        let Some(listener) = &self.listener else { return };
        self.accept_again = pause.then(|| Instant::now() + ACCEPT_PAUSE);
        let flags = if pause { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        let data = epoll::EventData::new_u64(LISTENER);
        if let Err(error) = epoll::modify(&self.epoll, listener, data, flags) {
            tracing::warn!(%error, "cannot watch the control socket");
        }
    }

    fn open_session(&mut self, socket: strangers::Socket, peer: Peer) {
        let mut session = Session::new(socket, peer);
        let token = SESSIONS + self.session_next;
        if let Err(refusal) = self.begin_session(token, &session) {
            let of_user = |other: &&Session| other.peer.user == session.peer.user;
            let refused = self.sessions.values().filter(|other| other.refused.is_some());
            if self.refused >= REFUSED_MAX
                || refused.filter(of_user).count() >= REFUSED_PER_USER_MAX
            {
                session.refuse(&refusal);
                return;
            }
            self.refused += 1;
            session.refused = Some(refusal);
        }
        self.session_next += 1;
        let watched = self.watch(session.as_fd(), token);
        self.sessions.insert(token, session);
        if let Err(error) = watched {
            self.end_session(token, &format!("it cannot be watched: {error}"));
        }
    }

    /// Begins a session, if there is room for it.
    fn begin_session(&mut self, token: u64, session: &Session) -> Result<(), Refusal> {
        if !self.plane.is_administrator(&session.peer) {
            self.descriptors.check(session.as_fd())?;
        }
        self.plane.open_session(token, session.peer.clone())
    }

    /// Reads one request, or notices that the app is gone.
    fn serve_session(&mut self, token: u64, flags: epoll::EventFlags) {
        let is_waiting = self.is_waiting(token);
        let Some(session) = self.sessions.get_mut(&token) else { return };
        if flags.contains(epoll::EventFlags::IN) && !is_waiting {
            if let Some(refusal) = session.refused.clone() {
                // Read, so that the peer finds the answer and not a broken connection.
                session.receive();
                self.log_refusal(token, &refusal);
                self.expel(token, &refusal);
                return;
            }
            match session.receive() {
                Received::Request(request) => self.handle_request(token, request),
                Received::Malformed | Received::Nothing => {}
                Received::Gone(reason) => self.end_session(token, &reason),
            }
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) && session.is_telling() {
            return match session.waiting {
                Waiting::Pong(_) => self.tell_pongs(token),
                _ => self.tell_more(token),
            };
        }
        let gone = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR;
        if flags.intersects(gone) {
            if let Some(leave) = session.last_words() {
                self.plane.handle_request(token, Request::Leave(leave));
            }
            self.end_session(token, session::GONE);
        }
    }

    /// Gives back everything that a session had: at once, or, if its app has left in good order,
    /// when what it has sent is delivered.
    fn end_session(&mut self, token: u64, reason: &str) {
        self.close_session(token, reason, Some(self.config.linger_max));
    }

    fn close_session(&mut self, token: u64, reason: &str, linger_max: Option<Duration>) {
        let Some(mut session) = self.sessions.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, session.as_fd());
        if session.refused.is_some() {
            self.refused -= 1;
            return;
        }
        if let Some(offer) = session.offer.take() {
            self.withdraw(offer.place, offer.end, offer.memory);
        }
        if let Some(inlet) = session.inlet.take() {
            self.close_inlet(inlet, session.peer.user);
        }
        let ended = self.plane.end_session(token, linger_max);
        self.carry_out();
        self.log_end(session.peer.process, ended, reason, linger_max.is_some());
    }

    fn log_end(
        &mut self,
        process: i32,
        ended: Option<clearway_control::Session>,
        reason: &str,
        is_orderly: bool,
    ) {
        let Some(ended) = ended else { return };
        let Some(attached) = ended.attached() else {
            tracing::debug!(process, reason, "session ended");
            return;
        };
        if self.log_budget.take(ended.peer().user) {
            let (app, channel) = (&attached.app, attached.place.channel);
            if attached.leave.is_some() && is_orderly {
                tracing::info!(app, process, channel, "detached");
            } else {
                tracing::info!(app, process, channel, reason, "session ended");
            }
        }
    }

    /// Tells the app why its session ends, and ends it.
    fn expel(&mut self, token: u64, refusal: &Refusal) {
        if let Some(session) = self.sessions.get_mut(&token) {
            session.refuse(refusal);
            self.close_session(token, &refusal.message, None);
        }
    }

    fn begin_shutdown(&mut self, reason: &str) {
        self.stopper.acknowledge();
        if self.shutdown_deadline.is_some() {
            return;
        }
        tracing::info!(reason, "shutting down");
        self.order(Order::Stopping);
        self.shutdown_deadline = Some(Instant::now() + SHUTDOWN_TIME);
        (self.listener, self.accept_again) = (None, None);
        let crashed = self.stopper.crashed();
        for mailbox in &mut self.mailboxes {
            mailbox.post(clearway_engine::Request::Shutdown);
        }
        let has_crashed = |engine: &Engine| crashed.as_ref() == Some(&engine.name);
        if let Some(engine) = self.plane.engines().iter().position(has_crashed) {
            self.plane.handle_ended(engine);
            self.carry_out();
        }
        let tokens: Vec<u64> = self.sessions.keys().copied().collect();
        let refusal = refusal(Code::DaemonGone, "the daemon is shutting down; attach again");
        for token in tokens {
            self.expel(token, &refusal);
        }
    }

    fn watch_all(&self) -> rustix::io::Result<()> {
        if let Some(listener) = &self.listener {
            self.watch(listener.as_fd(), LISTENER)?;
        }
        self.watch(self.stopper.as_fd(), STOP)?;
        self.watch(self.workers.as_fd(), WORK)?;
        for (index, mailbox) in self.mailboxes.iter().enumerate() {
            self.watch(mailbox.as_fd(), ENGINES + index as u64)?;
        }
        self.watch(self.plugging.as_fd(), OPENED)?;
        (0..self.nics.len()).try_for_each(|nic| self.watch_kernel(nic))
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, token: u64) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token), flags)
    }

    /// Reads a session's socket, or leaves it alone while its request is worked on, or waits for
    /// room in it. That the app has gone is noticed in any case.
    fn watch_again(&self, token: u64) {
        let Some(session) = self.sessions.get(&token) else { return };
        let flags = epoll::EventFlags::RDHUP
            | match (session.is_telling(), self.is_waiting(token)) {
                (true, _) => epoll::EventFlags::OUT,
                (false, true) => epoll::EventFlags::empty(),
                (false, false) => epoll::EventFlags::IN,
            };
        let data = epoll::EventData::new_u64(token);
        if let Err(error) = epoll::modify(&self.epoll, session.as_fd(), data, flags) {
            tracing::warn!(%error, "cannot watch a session");
        }
    }
}

#[cfg(test)]
mod tests;
