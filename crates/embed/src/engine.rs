//! The engine that takes its turns when the app calls, and the control plane over it, whose only
//! session is the app's.

use std::time::Duration;

use clearway_channel::control::{AddMemory, Attach, Empty, MemoryAdded, Reply, Request};
use clearway_channel::{AppEnd, DaemonEnd, Shared};
use clearway_client::{Code, Embedded, Error, Options};
use clearway_control::policy::{Peer, Policy};
use clearway_control::{NicFacts, Plane, Settings, Step};
use clearway_engine::{Control, Event, Group, Request as EngineRequest, ip};

/// The number of the only session.
const SESSION: u64 = 1;
/// Root may do everything, and so may an app that owns its engine.
const OWN_USER: u32 = 0;
/// Comparisons of patterns between two turns of the engine.
const COMPARISONS_PER_TURN: usize = 8192;
/// Turns within which an engine has said goodbye to everybody, or will not.
const LAST_TURNS: usize = 1000;

/// An engine and its control.
pub(crate) struct EmbeddedEngine {
    group: Group,
    control: Control,
    plane: Plane,
    /// The answer to the last request, until it is taken.
    reply: Option<Reply>,
    /// The daemon's end of the channel, until the engine gets it.
    end: Option<Box<DaemonEnd>>,
    app_end: Option<AppEnd>,
    /// Memory of the app's own, until the engine gets it.
    memory: Option<Shared>,
    /// Why the engine serves the channel no more.
    ended: Option<(Code, String)>,
}

/// What the control plane has to know of the host.
pub(crate) struct Facts {
    pub(crate) interface: ip::Config,
    pub(crate) udp_port: u16,
    pub(crate) only_messages: Option<&'static str>,
    pub(crate) seed: u64,
}

impl EmbeddedEngine {
    /// Attaches the app to an engine. The app gets its end of the channel.
    pub(crate) fn attach(
        group: Group,
        control: Control,
        facts: Facts,
        options: &Options,
    ) -> Result<(Self, AppEnd), Error> {
        let name = options.app.clone();
        let nic = NicFacts {
            name: name.clone(),
            engines: vec![name.clone()],
            interface: facts.interface,
            has_steering: false,
            only_messages: facts.only_messages,
        };
        let Facts { udp_port, seed, .. } = facts;
        let policy = Policy::default();
        let settings = Settings { policy, own_user: OWN_USER, udp_port, seed, wake_up_ns: 0 };
        let plane = Plane::new(settings, vec![nic]);
        let (reply, end, app_end, memory, ended) = (None, None, None, None, None);
        let mut engine = Self { group, control, plane, reply, end, app_end, memory, ended };
        let process = std::process::id() as i32; // below 2^22, says proc(5)
        let peer = Peer { user: OWN_USER, process, groups: Vec::new() };
        let refused = |refusal: clearway_channel::control::Refusal| Error::Refused {
            code: refusal.code,
            message: refusal.message,
        };
        engine.plane.open_session(SESSION, peer).map_err(refused)?;
        engine.ask(Request::Attach(Attach::new(name, None, options.sizes)))?;
        engine.ask(Request::Mapped(Empty {}))?;
        let app_end = engine.app_end.take().ok_or_else(no_answer)?;
        Ok((engine, app_end))
    }

    /// Has the control plane do what it is asked for, and the engine what follows from that.
    fn ask(&mut self, request: Request) -> Result<Reply, Error> {
        self.reply = None;
        if self.plane.handle_request(SESSION, request).is_some() {
            return Err(Error::Refused {
                code: Code::Invalid,
                message:
                    "an embedded engine has no state to show, no configuration and no probes; \
                          those are a daemon's"
                        .into(),
            });
        }
        loop {
            self.carry_out()?;
            match self.reply.take() {
                Some(Reply::Error(refusal)) => {
                    return Err(Error::Refused { code: refusal.code, message: refusal.message });
                }
                Some(reply) => return Ok(reply),
                None => {
                    self.group.turn();
                    self.check()?;
                }
            }
        }
    }

    /// Does what is to be done.
    fn carry_out(&mut self) -> Result<(), Error> {
        if self.plane.is_checking() {
            self.plane.advance(COMPARISONS_PER_TURN);
        }
        while let Some(step) = self.plane.poll_step() {
            match step {
                Step::Ask { request, .. } => self.post(request),
                Step::Reply { reply, .. } => self.reply = Some(reply),
                Step::Expel { refusal, .. } => {
                    self.ended = Some((refusal.code, refusal.message));
                    self.plane.end_session(SESSION, None);
                }
                Step::Make { place, version, sizes, .. } => {
                    let (mut end, handover) = DaemonEnd::create_for(version, sizes)?;
                    end.share_thread();
                    self.end = Some(Box::new(end));
                    self.app_end = Some(AppEnd::open(handover, sizes)?);
                    let told = self.plane.handle_made(place);
                    self.reply = told.map(|(_, attached)| Reply::Attached(attached));
                }
                Step::Secure { place, .. } => {
                    // Nobody but the engine's own app has it.
                    let end = self.end.take().ok_or_else(no_answer)?;
                    self.plane.handle_secured(place, end).map_err(|_| no_answer())?;
                }
                // Nobody but the engine's own app has it, and its mapping is the app's.
                Step::AwaitMemory { .. } => self.reply = Some(Reply::BringMemory(Empty {})),
                Step::TakeMemory { memory, .. } => {
                    let shared = self.memory.take().ok_or_else(no_answer)?;
                    self.plane.handle_taken(memory, shared).map_err(|_| no_answer())?;
                }
                Step::Claim { vif, .. } => self.plane.handle_claimed(vif, Ok(())),
                Step::Steer { vif, .. } => self.plane.handle_steered(vif, Ok(())),
                Step::Unsteer { .. } | Step::Release { .. } => {}
            }
        }
        Ok(())
    }

    /// Hands a request to the engine, which takes it in its next turn.
    fn post(&mut self, request: EngineRequest) {
        let mut next = Some(request);
        while let Some(request) = next.take() {
            if let Err(request) = self.control.post(request) {
                self.group.turn();
                next = Some(request);
            }
        }
    }

    fn take_events(&mut self) -> Result<(), Error> {
        self.control.acknowledge();
        while let Some(event) = self.control.next_event() {
            self.plane.handle_event(0, &event);
            // What the engine has let go of is dropped with the event.
            if let Event::MemoryAdded { memory, refused: Some(_), .. }
            | Event::MemoryRemoved { memory, removed: Some(_), .. } = event
            {
                self.plane.handle_memory_given_back(memory);
            }
        }
        self.carry_out()
    }
}

fn no_answer() -> Error {
    Error::Answer("the engine has not taken the channel".into())
}

impl Embedded for EmbeddedEngine {
    #[inline]
    fn turn(&mut self) -> bool {
        self.group.turn().told_apps
    }

    #[inline]
    fn send(&mut self) {
        self.group.send();
    }

    fn sleep(&mut self, at_most: Option<Duration>) {
        self.group.sleep(at_most);
    }

    fn request(&mut self, request: &Request) -> Result<Reply, Error> {
        self.ask(request.clone())
    }

    fn add_memory(&mut self, shared: Shared) -> Result<u64, Error> {
        let bytes = shared.length();
        self.memory = Some(shared);
        self.ask(Request::AddMemory(AddMemory { bytes }))?;
        match self.ask(Request::MemorySent(Empty {}))? {
            Reply::MemoryAdded(MemoryAdded { memory }) => Ok(memory),
            _ => Err(no_answer()),
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        self.take_events()?;
        match &self.ended {
            None => Ok(()),
            Some((code, message)) => {
                Err(Error::DaemonGone { code: *code, message: message.clone() })
            }
        }
    }
}

impl Drop for EmbeddedEngine {
    /// Tells the peers, who would otherwise wait until their keep-alives run out.
    fn drop(&mut self) {
        self.post(EngineRequest::Shutdown);
        for _ in 0..LAST_TURNS {
            self.group.turn();
            while self.control.next_event().is_some() {}
            if self.group.has_ended() {
                break;
            }
        }
    }
}
