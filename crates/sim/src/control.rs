//! The control plane of a host, as its daemon has it, with what a daemon has around it: memory for
//! channels, a kernel whose programs keep their ports, and a NIC that says no now and then.

use std::collections::{BTreeMap, HashMap};

use clearway_channel::control::{Attach, Empty, Refusal, Reply, Request};
use clearway_channel::{Code, DaemonEnd, Handover};
use clearway_control::policy::{HostPort, Limits, Network, Peer, People, Policy, VifRule};
use clearway_control::{ChannelPlace, NicFacts, Plane, Settings, Steered, Step};
use clearway_engine::{Request as EngineRequest, State, ip};

use crate::app::{Radio, Streams};

/// Comparisons at a time: few, so that a check takes several.
const COMPARISONS: usize = 8;
/// Users of a host: the apps of each of its characters, which come back as the same.
pub(crate) const USER_MIN: u32 = 1000;
const USERS_MAX: u32 = 64;
/// Connections of one channel: more than any app of these networks opens.
const CONNECTIONS_MAX: u32 = 200_000;

/// A control plane, and what it has asked of the kernel and the NIC.
pub(crate) struct ControlPlane {
    pub(crate) plane: Plane,
    /// Of each engine, which NIC it serves.
    nics: Vec<usize>,
    /// How many interfaces are about each port that was taken from the kernel's programs.
    claimed: HashMap<HostPort, usize>,
    /// What the NIC gives to the engines.
    steered: Vec<Steered>,
}

/// What becomes of an app on its way to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It gets it.
    Lives,
    /// There is no memory.
    NoMemory,
    /// It dies before it has mapped its memory.
    DiesEarly,
    /// It dies while that is made sure of.
    DiesLate,
    /// It does not seal it.
    Cheats,
}

/// What the world has to do.
#[derive(Debug)]
pub(crate) enum Told {
    /// Ask an engine.
    Engine(usize, EngineRequest),
    /// Tell a session.
    Session(u64, Reply),
    /// End a session.
    Expelled(u64, Refusal),
}

/// Whose interfaces are, by their numbers: the engine and the channel there.
pub(crate) type Owners = BTreeMap<u32, (usize, u32)>;

/// What all engines of a host have agreed about.
pub(crate) struct Agreed {
    /// Of each engine, which NIC it serves: it knows the interfaces of that one.
    nics: Vec<usize>,
    /// Those of each NIC.
    vifs: BTreeMap<usize, Owners>,
    /// Who listens on which port: the engine and the channel there.
    ports: BTreeMap<u16, (usize, u32)>,
}

impl ControlPlane {
    /// That of a host with these NICs, of which each has a name, engines and a network.
    pub(crate) fn new(
        nics: impl IntoIterator<Item = (String, usize, ip::Config)>,
        udp_port: u16,
    ) -> Self {
        let nic = |(name, engines, interface): (String, usize, ip::Config)| NicFacts {
            engines: (0..engines).map(|engine| format!("{name}/{engine}")).collect(),
            name,
            interface,
            has_steering: true,
            only_messages: None,
        };
        let settings = Settings { policy: policy(), own_user: 0, udp_port, seed: 1, wake_up_ns: 0 };
        let facts: Vec<NicFacts> = nics.into_iter().map(nic).collect();
        let engines = facts.iter().map(|nic| nic.engines.len()).enumerate();
        let nics = engines.flat_map(|(nic, count)| std::iter::repeat_n(nic, count)).collect();
        let plane = Plane::new(settings, facts);
        Self { plane, nics, claimed: HashMap::new(), steered: Vec::new() }
    }

    /// Has an app attach to an engine. Returns its channel, and its end of it, unless its fate is
    /// another; then its session has ended, and nothing may be left of it.
    ///
    /// # Panics
    /// If the policy says no, or anything is asked for that is not to be done now.
    pub(crate) fn attach(
        &mut self,
        session: u64,
        user: u32,
        attach: Attach,
        fate: Fate,
    ) -> Option<(u32, Handover)> {
        let peer = Peer { user, process: session as i32, groups: Vec::new() };
        self.plane.open_session(session, peer).expect("there is room for a session");
        assert_eq!(self.plane.handle_request(session, Request::Attach(attach)), None);
        let (place, version, sizes) = match self.plane.poll_step() {
            Some(Step::Make { place, version, sizes, .. }) => (place, version, sizes),
            other => panic!("a channel is to be made, not {other:?}"),
        };
        if fate == Fate::NoMemory {
            self.plane.handle_not_made(place, refusal(Code::OutOfMemory, "there is no memory"));
            let told = self.plane.poll_step();
            assert!(matches!(told, Some(Step::Reply { reply: Reply::Error(_), .. })), "{told:?}");
            return self.give_up(session, None);
        }
        let (told, _) = self.plane.handle_made(place).expect("the session waits for it");
        assert_eq!(told, session, "another's memory");
        if fate == Fate::DiesEarly {
            return self.give_up(session, Some(place));
        }
        assert_eq!(self.plane.handle_request(session, Request::Mapped(Empty {})), None);
        let told = self.plane.poll_step();
        assert!(matches!(told, Some(Step::Secure { .. })), "{told:?}");
        if fate == Fate::Cheats {
            self.plane.handle_not_secured(place, refusal(Code::Violation, "it is not sealed"));
            let told = self.plane.poll_step();
            assert!(matches!(told, Some(Step::Expel { .. })), "{told:?}");
            return self.give_up(session, None);
        }
        let made = DaemonEnd::create_for(version, sizes);
        let (mut end, handover) = made.expect("memory for a channel; raise `ulimit -n`");
        // Apps and engines take turns in one thread: no barrier between processors is needed.
        end.share_thread();
        if fate == Fate::DiesLate {
            self.plane.end_session(session, None);
            let end = self.plane.handle_secured(place, Box::new(end));
            assert!(end.is_err(), "nobody is there to have it");
            self.plane.handle_given_back(place);
            return None;
        }
        let served = self.plane.handle_secured(place, Box::new(end));
        assert!(served.is_ok(), "the session is there");
        Some((place.channel, handover))
    }

    fn give_up<T>(&mut self, session: u64, place: Option<ChannelPlace>) -> Option<T> {
        self.plane.end_session(session, None);
        place.into_iter().for_each(|place| self.plane.handle_given_back(place));
        None
    }

    /// Does what is to be done, up to what the world has to do. The NIC refuses if `refuses` says
    /// so.
    pub(crate) fn next(&mut self, mut refuses: impl FnMut() -> bool) -> Option<Told> {
        loop {
            while self.plane.is_checking() {
                self.plane.advance(COMPARISONS);
            }
            match self.plane.poll_step()? {
                Step::Ask { engine, request } => return Some(Told::Engine(engine, request)),
                Step::Reply { session, reply } => return Some(Told::Session(session, reply)),
                Step::Expel { session, refusal } => return Some(Told::Expelled(session, refusal)),
                Step::Claim { vif, ports, .. } => {
                    let answer = answer(refuses());
                    if answer.is_ok() {
                        ports.iter().for_each(|port| *self.claimed.entry(*port).or_default() += 1);
                    }
                    self.plane.handle_claimed(vif, answer);
                }
                Step::Steer { vif, steered, .. } => {
                    let answer = answer(refuses());
                    if answer.is_ok() {
                        self.steered.push(steered);
                    }
                    self.plane.handle_steered(vif, answer);
                }
                Step::Unsteer { steered, .. } => {
                    let found = self.steered.iter().position(|other| *other == steered);
                    self.steered.swap_remove(found.expect("it is steered"));
                }
                Step::Release { ports, .. } => {
                    for port in ports {
                        let claims = self.claimed.get_mut(&port).expect("it is claimed");
                        *claims -= 1;
                        if *claims == 0 {
                            self.claimed.remove(&port);
                        }
                    }
                }
                step @ (Step::Make { .. }
                | Step::Secure { .. }
                | Step::AwaitMemory { .. }
                | Step::TakeMemory { .. }) => panic!("nobody asks: {step:?}"),
            }
        }
    }

    /// What each engine has to know; nothing if they are just being told.
    pub(crate) fn agreed(&self) -> Option<Agreed> {
        let (vifs, listeners) = (self.plane.vifs(), self.plane.listeners());
        if !vifs.is_settled() || !listeners.is_settled() {
            return None;
        }
        let mut of_nics: BTreeMap<usize, Owners> = BTreeMap::new();
        for (number, owner) in vifs.owners() {
            let nic = vifs.nic(number).expect("it is somebody's");
            of_nics.entry(nic).or_default().insert(number, (owner.engine, owner.channel));
        }
        let ports = listeners.ports();
        let ports = ports.map(|(port, name)| (port, (name.engine, name.channel))).collect();
        Some(Agreed { nics: self.nics.clone(), vifs: of_nics, ports })
    }

    /// Finds what is left once all apps have gone.
    pub(crate) fn audit_rest(&self) -> Result<(), String> {
        self.plane.audit_rest()?;
        let left = (self.claimed.len(), self.steered.len());
        if left == (0, 0) {
            return Ok(());
        }
        Err(format!("ports claimed and interfaces steered are left: {left:?}"))
    }
}

/// Apps are users' who may do what their role needs, and no more.
fn policy() -> Policy {
    let users: Vec<u32> = (USER_MIN..USER_MIN + USERS_MAX).collect();
    let everywhere = Network { address: [0, 0, 0, 0].into(), prefix_bits: 0 };
    Policy {
        users: users.clone(),
        vifs: vec![VifRule {
            people: People { users, ..People::default() },
            receive: [Radio::receives(), Streams::receives()].concat(),
            send: Some([Radio::sends(), Streams::sends()].concat()),
            own_addresses: vec![everywhere],
            captures: true,
            ..VifRule::default()
        }],
        limits: Limits { connections_per_channel: CONNECTIONS_MAX, ..Limits::default() },
        ..Policy::default()
    }
}

fn answer(refuses: bool) -> Result<(), Refusal> {
    if refuses { Err(refusal(Code::Refused, "the NIC has no room")) } else { Ok(()) }
}

fn refusal(code: Code, message: &str) -> Refusal {
    Refusal { code, message: message.to_owned() }
}

impl Agreed {
    /// Finds where an engine does not agree with its control plane.
    pub(crate) fn compare(&self, engine: &State) -> Result<(), String> {
        let index = engine.engine as usize;
        let vifs = self.vifs.get(&self.nics[index]).cloned().unwrap_or_default();
        compare_vifs(engine, &vifs)?;
        let of_channel = engine.channels.iter().flat_map(|channel| {
            channel.ports.iter().map(|(_, port, _)| (*port, (index, channel.channel)))
        });
        let own: BTreeMap<u16, (usize, u32)> = of_channel.collect();
        let (here, elsewhere): (BTreeMap<_, _>, BTreeMap<_, _>) = self
            .ports
            .iter()
            .map(|(port, owner)| (*port, *owner))
            .partition(|(_, at)| at.0 == index);
        let noted = engine.messages.listeners_elsewhere.iter();
        let noted: BTreeMap<u16, usize> = noted.map(|(port, by)| (*port, *by as usize)).collect();
        let expected: BTreeMap<u16, usize> =
            elsewhere.into_iter().map(|(port, (by, _))| (port, by)).collect();
        if own == here && noted == expected {
            return Ok(());
        }
        Err(format!(
            "engine {index} listens on {own:?} and knows of {noted:?}; agreed are {:?}",
            self.ports
        ))
    }
}

fn compare_vifs(engine: &State, agreed: &Owners) -> Result<(), String> {
    let index = engine.engine;
    let own = engine.frames.vifs.iter().map(|vif| (vif.vif, index, vif.channel));
    let others = engine.sibling_vifs.iter().map(|vif| (vif.vif, vif.engine, vif.channel));
    let captures = engine.captures.iter();
    let captures =
        captures.map(|capture| (capture.vif, capture.engine.unwrap_or(index), capture.channel));
    let ports = engine.tcp.ports.iter().map(|port| (port.number, index, port.channel));
    let noted = engine.tcp.noted.iter().map(|port| (port.number, port.engine, port.channel));
    let known = own.chain(others).chain(captures).chain(ports).chain(noted);
    let known: Owners =
        known.map(|(number, engine, channel)| (number, (engine as usize, channel))).collect();
    if known == *agreed {
        return Ok(());
    }
    Err(format!("engine {index} knows the interfaces {known:?} of {agreed:?}"))
}
