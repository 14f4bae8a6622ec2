//! The control plane of a host: its sessions, and what becomes of what they ask for.
//!
//! ```text
//!  attach ─▶ place, count ─▶ Make ─▶ Reply: attached ─▶ mapped ─▶ Secure ─▶ engine ─▶ Reply
//!  listen ─▶ policy ─▶ port ─▶ engines ─▶ Reply
//!  add_memory ─▶ count ─▶ AwaitMemory ─▶ memory_sent ─▶ TakeMemory ─▶ engine ─▶ Reply
//!  open_vif ─▶ policy ─▶ registry ─▶ Claim ─▶ engines ─▶ Steer ─▶ Reply
//! ```
//!
//! One request of a session is worked on at a time: the next is to wait where it is while the
//! session [`is_waiting`](Session::is_waiting). So what a session can make the host remember is
//! bounded.

mod channels;
mod closing;
mod interfaces;
mod listening;
mod memories;
mod nics;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use clearway_base::Random;
use clearway_channel::control::{Empty, Refusal, Reply, Request};
use clearway_channel::{Code, Sizes};
use clearway_classify::registry;
use clearway_engine::{Event, Request as EngineRequest};

use crate::engines::{Channel, ChannelNumbers, ChannelPlace, Engine};
use crate::policy::{Accounts, HostPort, Peer, Policy};
use crate::refusal::refusal;
use crate::session::{Session, Waiting};
use crate::steered::Steered;
use crate::{Listeners, VifStep, Vifs};

use interfaces::Granted;
use memories::Memory;
pub use nics::{Nic, NicFacts};

/// What holds for a whole host.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may do what.
    pub policy: Policy,
    /// The user whose daemon this is.
    pub own_user: u32,
    /// The port of the message service.
    pub udp_port: u16,
    /// For Ethernet addresses of interfaces.
    pub seed: u64,
    /// What it takes on this machine until a thread runs that slept, in nanoseconds; 0 if nobody
    /// knows. Apps are told of it.
    pub wake_up_ns: u64,
}

/// The control plane.
///
/// Calls, in any order: [`open_session`](Self::open_session),
/// [`handle_request`](Self::handle_request) and [`end_session`](Self::end_session) for what apps
/// do, [`handle_event`](Self::handle_event) and the other `handle_*` for what comes of steps,
/// [`advance`](Self::advance) while it [`is_checking`](Self::is_checking); after each,
/// [`poll_step`](Self::poll_step) until there is nothing to do. [`Step::Claim`] and [`Step::Steer`]
/// are answered before the next step is polled.
#[derive(Debug)]
pub struct Plane {
    pub(crate) accounts: Accounts,
    udp_port: u16,
    wake_up_ns: u64,
    random: Random,
    pub(crate) nics: Vec<Nic>,
    pub(crate) engines: Vec<Engine>,
    channel_numbers: ChannelNumbers,
    sessions: BTreeMap<u64, Session>,
    listeners: Listeners,
    vifs: Vifs,
    /// What these were granted, by their numbers.
    grants: BTreeMap<u32, Granted>,
    /// Of apps' own, by numbers that are never used again.
    memories: BTreeMap<u64, Memory>,
    memory_last: u64,
    pending: VecDeque<Pending>,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Ask an engine, after all that it was asked before.
    Ask {
        /// Its index among the host's.
        engine: usize,
        /// What it is asked.
        request: EngineRequest,
    },
    /// Answer a session, if it is still there.
    Reply {
        /// Which.
        session: u64,
        /// What it is told.
        reply: Reply,
    },
    /// Tell a session why it ends, and end it: [`Plane::end_session`], without a last delivery.
    Expel {
        /// Which.
        session: u64,
        /// What it is told.
        refusal: Refusal,
    },
    /// Make the memory of a channel: [`Plane::handle_made`] or [`Plane::handle_not_made`].
    Make {
        /// Its place.
        place: ChannelPlace,
        /// On whose account it goes.
        user: u32,
        /// The version of its layout.
        version: u32,
        /// How large it is.
        sizes: Sizes,
    },
    /// Make sure that a session has sealed the memory that it was given:
    /// [`Plane::handle_secured`] or [`Plane::handle_not_secured`].
    Secure {
        /// Which.
        session: u64,
        /// The channel's place.
        place: ChannelPlace,
        /// On whose account it goes.
        user: u32,
    },
    /// Give a session a socket that it can send memory of its own by, with
    /// [`Reply::BringMemory`]; or [`Plane::handle_not_taken`].
    AwaitMemory {
        /// Which.
        session: u64,
        /// The number of the memory.
        memory: u64,
    },
    /// Map and secure memory that a session has sent: [`Plane::handle_taken`] or
    /// [`Plane::handle_not_taken`].
    TakeMemory {
        /// Which.
        session: u64,
        /// The number of the memory.
        memory: u64,
        /// On whose account it goes.
        user: u32,
        /// Its size, as the app says.
        bytes: u64,
    },
    /// Take ports from the kernel's programs, all or none: [`Plane::handle_claimed`].
    Claim {
        /// The number of the interface.
        vif: u32,
        /// The index of its NIC.
        nic: usize,
        /// The ports.
        ports: HashSet<HostPort>,
    },
    /// Have a NIC give frames to the engines, all or none: [`Plane::handle_steered`].
    Steer {
        /// The number of the interface.
        vif: u32,
        /// The index of its NIC.
        nic: usize,
        /// Which frames.
        steered: Steered,
    },
    /// Give frames back to the kernel.
    Unsteer {
        /// The index of the NIC.
        nic: usize,
        /// Which frames.
        steered: Steered,
    },
    /// Give ports back to the kernel's programs.
    Release {
        /// The index of the NIC.
        nic: usize,
        /// The ports.
        ports: HashSet<HostPort>,
    },
}

/// A step, or one of which it is seen when it is its turn what it is.
#[derive(Debug)]
enum Pending {
    Step(Step),
    Vif(VifStep),
}

/// What of the limits of a policy is kept by the registries of NICs.
fn limits_of(policy: &Policy) -> registry::Limits {
    let mut limits = registry::Limits::default();
    limits.user.clauses = policy.limits.patterns_per_user;
    limits
}

impl Plane {
    /// No session yet, on these NICs.
    #[must_use]
    pub fn new(settings: Settings, facts: Vec<NicFacts>) -> Self {
        let Settings { policy, own_user, udp_port, seed, wake_up_ns } = settings;
        let (nics, engines) = nics::placed(&facts);
        let mut vifs = Vifs::new(nics.iter().map(|nic| nic.engines.clone()), limits_of(&policy));
        for (nic, NicFacts { interface, .. }) in facts.iter().enumerate() {
            vifs.reserve(nic, interface, udp_port);
        }
        Self {
            accounts: Accounts::new(policy, own_user),
            udp_port,
            wake_up_ns,
            random: Random::new(seed),
            listeners: Listeners::new(engines.len()),
            nics,
            engines,
            channel_numbers: ChannelNumbers::default(),
            sessions: BTreeMap::new(),
            vifs,
            grants: BTreeMap::new(),
            memories: BTreeMap::new(),
            memory_last: 0,
            pending: VecDeque::new(),
        }
    }

    /// What it takes until a thread runs that slept is known better: apps that attach from now on
    /// are told.
    pub fn set_wake_up_ns(&mut self, wake_up_ns: u64) {
        self.wake_up_ns = wake_up_ns;
    }

    /// Another policy holds from now on. Nobody loses what they have.
    pub fn set_policy(&mut self, policy: Policy) {
        self.vifs.set_limits(limits_of(&policy));
        self.accounts.set_policy(policy);
    }

    /// The host is another user's from now on. Before there are sessions.
    pub fn set_own_user(&mut self, user: u32) {
        self.accounts.set_own_user(user);
    }

    /// Root and the host's own user, who may do everything and see everything.
    #[must_use]
    pub fn is_administrator(&self, peer: &Peer) -> bool {
        self.accounts.is_administrator(peer)
    }

    /// A peer has connected. The number of its session is the caller's choice.
    ///
    /// # Errors
    /// If it may not; then there is no session.
    pub fn open_session(&mut self, session: u64, peer: Peer) -> Result<(), Refusal> {
        self.accounts.open_session(&peer)?;
        self.sessions.insert(session, Session::new(peer));
        Ok(())
    }

    /// A session, while it is there.
    #[must_use]
    pub fn session(&self, session: u64) -> Option<&Session> {
        self.sessions.get(&session)
    }

    /// All sessions, by their numbers.
    pub fn sessions(&self) -> impl Iterator<Item = (u64, &Session)> {
        self.sessions.iter().map(|(number, session)| (*number, session))
    }

    /// The host's engines.
    #[must_use]
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// What is remembered of a channel.
    #[must_use]
    pub fn channel(&self, place: ChannelPlace) -> Option<&Channel> {
        self.engines.get(place.engine)?.channels.get(&place.channel)
    }

    /// The ports that apps listen on.
    #[must_use]
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The host's virtual interfaces and captures.
    #[must_use]
    pub fn vifs(&self) -> &Vifs {
        &self.vifs
    }

    /// A session asks for something. Gives back what is not for a control plane without I/O: the
    /// state of the host, its configuration, probes to others.
    pub fn handle_request(&mut self, session: u64, request: Request) -> Option<Request> {
        let result = match request {
            Request::Leave(leave) => {
                let linger = Duration::from_millis(leave.linger_ms.into());
                if let Some(attached) =
                    self.sessions.get_mut(&session).and_then(Session::attached_mut)
                {
                    attached.leave = Some(linger);
                }
                Ok(())
            }
            Request::Attach(attach) => self.attach(session, attach),
            Request::Mapped(Empty {}) => self.mapped(session),
            Request::AddMemory(add) => self.add_memory(session, add),
            Request::MemorySent(Empty {}) => self.memory_sent(session),
            Request::RemoveMemory(remove) => self.remove_memory(session, remove),
            Request::Listen(listen) => self.listen(session, &listen),
            Request::Unlisten(unlisten) => self.unlisten(session, unlisten),
            Request::OpenVif(open) => self.open_vif(session, &open),
            Request::OpenCapture(open) => self.open_capture(session, &open),
            Request::OpenTcpPort(open) => self.open_tcp_port(session, &open),
            Request::CloseVif(close) => self.close_vif(session, close),
            Request::RevokeVif(revoke) => self.revoke_vif(session, revoke),
            Request::Status(_) | Request::Ping(_) | Request::Reload(_) => return Some(request),
        };
        if let Err(refusal) = result {
            self.reply(session, Reply::Error(refusal));
        }
        None
    }

    /// What an engine tells, as far as it matters here. The memory of a channel that it has removed
    /// is the caller's ([`Plane::handle_given_back`]), and so is that of an app's own which it has
    /// refused or removed ([`Plane::handle_memory_given_back`]).
    pub fn handle_event(&mut self, engine: usize, event: &Event) {
        match event {
            Event::Listening { channel, listener, result } => {
                self.listening(engine, *channel, *listener, *result);
            }
            Event::ListenerNoted { id } => self.listener_noted(engine, *id),
            Event::MemoryAdded { memory, refused, .. } => {
                self.memory_added(*memory, refused.is_some());
            }
            Event::MemoryRemoved { memory, removed, .. } => {
                self.memory_removed(*memory, removed.is_some());
            }
            Event::VifOpened { vif, result, .. } => {
                self.vifs.handle_opened(engine, *vif, result.clone());
            }
            Event::VifClosed { vif, .. } => self.vifs.handle_closed(engine, *vif),
            Event::Violation { channel, violation } => {
                let place = ChannelPlace { engine, channel: *channel };
                let text = format!("the app broke the contract of its channel: {violation}");
                self.expel(place, refusal(Code::Violation, text));
            }
            Event::Ended => self.handle_ended(engine),
            _ => {}
        }
        self.gather();
    }

    /// An engine is no more: what it has not answered it never will.
    pub fn handle_ended(&mut self, engine: usize) {
        if std::mem::replace(&mut self.engines[engine].has_ended, true) {
            return;
        }
        let opened = self.listeners.handle_ended(engine);
        opened.into_iter().for_each(|opened| self.opened(opened));
        self.vifs.handle_ended(engine);
        self.gather();
    }

    /// A session is no more: gives back everything that it had. What its app has sent is delivered
    /// first if it has left in good order, for `linger_max` at most; at once if that is `None`.
    pub fn end_session(&mut self, session: u64, linger_max: Option<Duration>) -> Option<Session> {
        let ended = self.sessions.remove(&session)?;
        self.accounts.close_session(ended.peer.user);
        if let Some(attached) = ended.attached() {
            let place = attached.place;
            let lingers = attached.leave.zip(linger_max);
            self.forget(place, lingers.is_some());
            let ChannelPlace { engine, channel } = place;
            let request = match lingers {
                Some((wanted, most)) => {
                    let linger_ns = wanted.min(most).as_nanos() as u64; // bounded by the protocol
                    EngineRequest::LetLinger { channel, linger_ns }
                }
                None => EngineRequest::RemoveChannel { channel },
            };
            self.push(Step::Ask { engine, request });
        }
        Some(ended)
    }

    /// A channel is going: what it has besides is free, but its TCP ports while it `lingers`.
    fn forget(&mut self, place: ChannelPlace, lingers: bool) {
        self.listeners.forget(place.engine, place.channel);
        if lingers {
            self.vifs.let_linger(place.engine, place.channel);
        } else {
            self.vifs.forget(place.engine, place.channel);
        }
        self.gather();
    }

    /// What is to be done next.
    pub fn poll_step(&mut self) -> Option<Step> {
        while let Some(pending) = self.pending.pop_front() {
            let step = match pending {
                Pending::Step(step) => Some(step),
                Pending::Vif(step) => self.vif_step(step),
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    /// True if [`Plane::advance`] has something to do.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        self.vifs.is_checking()
    }

    /// Goes on with comparing what is wanted with what others have, for about so many comparisons
    /// on each NIC.
    pub fn advance(&mut self, comparisons: usize) {
        self.vifs.advance(comparisons);
        self.gather();
    }

    fn push(&mut self, step: Step) {
        self.pending.push_back(Pending::Step(step));
    }

    /// What listeners and interfaces want done, in its order with everything else.
    fn gather(&mut self) {
        while let Some((engine, request)) = self.listeners.poll_request() {
            self.push(Step::Ask { engine, request });
        }
        while let Some(step) = self.vifs.poll_step() {
            self.pending.push_back(Pending::Vif(step));
        }
    }

    /// Answers a session, which waits for nothing any more.
    fn reply(&mut self, session: u64, reply: Reply) {
        if let Some(waits) = self.sessions.get_mut(&session) {
            waits.waiting = Waiting::Nothing;
            self.push(Step::Reply { session, reply });
        }
    }

    /// The session of a channel, if it is still there, has to end.
    fn expel(&mut self, place: ChannelPlace, refusal: Refusal) {
        let Some(&Channel { session, .. }) = self.channel(place) else { return };
        if self.sessions.contains_key(&session) {
            self.push(Step::Expel { session, refusal });
        }
    }

    /// Finds what is left once all sessions have ended, and all that they had is given back.
    ///
    /// # Errors
    /// What that is.
    pub fn audit_rest(&self) -> Result<(), String> {
        let channels: usize = self.engines.iter().map(Engine::channel_count).sum();
        let held = self.nics.iter().filter(|nic| !nic.holdings.is_empty()).count();
        let (ports, vifs) = (self.listeners.ports().count(), self.vifs.owners().count());
        let left = [
            ("sessions", self.sessions.len()),
            ("channels", channels),
            ("ports", ports),
            ("memories", self.memories.len()),
            ("interfaces", vifs.max(self.grants.len())),
            ("NICs with users", held),
            ("steps", self.pending.len()),
            ("accounts", self.accounts.count()),
        ];
        match left.iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(format!("the control plane has {count} {what} left")),
            None => Ok(()),
        }
    }
}
