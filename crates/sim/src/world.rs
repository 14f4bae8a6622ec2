//! The world: everything that there is, and the loop that lets one thing happen after the other.

mod audit;
mod misfortune;
mod population;
mod requests;
mod restoring;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clearway_base::{MICROSECOND, MILLISECOND, Random, SECOND, Time};
use clearway_control::ChannelPlace;
use clearway_engine::{Event, Request, Snapshot};

use crate::agenda::{Agenda, Happening};
use crate::app::{App, Character, Place, Scene};
use crate::checks::credit::Auditor;
use crate::checks::shares::Shares;
use crate::faults::{Fault, Kind, schedule};
use crate::host::{Host, Task};
use crate::ledger::Ledger;
use crate::network::Network;
use crate::operations::OperationBooks;
use crate::options::{Options, Profile};
use crate::streams::StreamBooks;
use crate::summary::{Failure, Summary};
use crate::trace::Trace;
use crate::{Finding, checks};
use misfortune::Oddities;
use requests::Fortunes;
use restoring::Restores;

/// When the world begins.
const START: Time = Time::from_ns(SECOND);
/// Between two looks at everything.
const CHECK_NS: u64 = 250 * MILLISECOND;
/// After about so many turns the engine's flows are looked at, without waiting for the next look at
/// everything.
const TURNS_PER_LOOK: u64 = 8;
/// One round: so long things go wrong, then so long they do not.
const CHAOS_NS: u64 = 10 * SECOND;
const CALM_NS: u64 = 15 * SECOND;
/// How long everything may take to end once nothing new is begun: longer than the idle timeout of
/// flows whose peer has died.
const ENDING_NS_MAX: u64 = 90 * SECOND;
/// From a frame's arrival, or a doorbell, to the turn that sees it.
const WAKE_NS: u64 = MICROSECOND;
/// From a completion to the app that sees it, at most.
const APP_WAKE_NS_MAX: u64 = 20 * MICROSECOND;

/// Everything.
pub(crate) struct World {
    options: Options,
    now: Time,
    steps: u64,
    agenda: Agenda,
    network: Network,
    hosts: Vec<Host>,
    /// Dead ones keep their place.
    apps: Vec<App>,
    /// The apps that live on each host, and those that it starts with.
    residents: Vec<Vec<u32>>,
    characters: Vec<Vec<Character>>,
    places: Vec<Place>,
    kinds: Vec<Kind>,
    begun: BTreeMap<Kind, u64>,
    restores: Restores,
    fortunes: Fortunes,
    ledger: Ledger,
    streams: StreamBooks,
    operations: OperationBooks,
    auditor: Auditor,
    shares: Shares,
    trace: Trace,
    random: Random,
    oddities: Oddities,
    /// Nothing has been wrong since then.
    calm: Option<Time>,
    /// Nothing new has been begun since then.
    ending: Option<Time>,
    is_over: bool,
    /// Engines that are yet to say that they rest.
    unrested: usize,
    /// What engines have counted of themselves by then, since they were started last.
    counted: [(&'static str, u64); 2],
    /// All apps have left since then.
    left: Option<Time>,
}

/// Runs a simulation.
pub(crate) fn run(
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, Box<Failure>> {
    raise_descriptor_limit();
    let mut world = World::new(*options);
    let result = catch_unwind(AssertUnwindSafe(|| world.run(progress)));
    let finding = match result {
        Ok(Ok(())) => return Ok(world.summary()),
        Ok(Err(finding)) => world.ask_engines(finding),
        Err(panic) => Finding::new(format!("a panic: {}", panic_text(panic.as_ref()))),
    };
    Err(Box::new(Failure {
        seed: options.seed,
        step: world.steps,
        at_ns: world.now.as_ns(),
        what: finding.what,
        replay: options.command(),
    }))
}

/// Each app takes four descriptors; where they are not allowed, making one says so.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

impl World {
    fn new(options: Options) -> Self {
        let mut random = Random::new(options.seed);
        let profile = Profile::new(&options, &mut random);
        let count = profile.natures.len();
        let hosts = profile.natures.into_iter();
        let hosts: Vec<Host> = hosts.map(|nature| Host::new(nature, START, &mut random)).collect();
        let mut world = Self {
            options,
            now: START,
            steps: 0,
            agenda: Agenda::default(),
            network: Network::new(&profile.ports, profile.router, random.next_u64()),
            hosts,
            apps: Vec::new(),
            residents: vec![Vec::new(); count],
            characters: Vec::new(),
            places: Vec::new(),
            kinds: profile.kinds,
            begun: BTreeMap::new(),
            restores: Restores::new(options.seed),
            fortunes: Fortunes::new(options.seed),
            ledger: Ledger::default(),
            streams: StreamBooks::default(),
            operations: OperationBooks::new(&options),
            auditor: Auditor::default(),
            shares: Shares::default(),
            trace: Trace::default(),
            oddities: Oddities::new(options.seed),
            random,
            calm: None,
            ending: None,
            is_over: false,
            unrested: 0,
            counted: ["segments_local", "segments_held_up"].map(|name| (name, 0)),
            left: None,
        };
        world.populate(profile.pause_ns);
        world.plan();
        world
    }

    /// Rounds of chaos and calm, for as long as was asked for; then the end.
    fn plan(&mut self) {
        let mut at = START;
        let end = START + self.options.duration_ns;
        while at < end {
            let calm = end.min(at + CHAOS_NS);
            let hosts = self.hosts.len();
            let moments = schedule(&mut self.random, &self.kinds, hosts, at, calm);
            for (at, fault) in moments {
                self.agenda.note(at, Happening::Fault(fault));
            }
            self.plan_forgers(at, calm);
            at = calm + CALM_NS;
        }
        let last = if at > end { at - CALM_NS } else { end };
        self.agenda.note(last + MILLISECOND, Happening::Fault(Fault::Ending));
        self.agenda.note(START, Happening::Check);
        self.plan_restore();
        for host in 0..self.hosts.len() as u32 {
            self.wake_host(host);
        }
    }

    fn run(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), Finding> {
        while !self.is_over {
            let Some((at, what)) = self.agenda.take() else {
                return Err(Finding::new("nothing is to happen any more".to_owned()));
            };
            self.now = at;
            self.steps += 1;
            if self.steps.is_multiple_of(1 << 16) {
                let percent = 100 * at.since(START) / self.options.duration_ns;
                progress(percent.min(100));
            }
            self.happen(what)?;
        }
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Result<(), Finding> {
        match what {
            Happening::Turn { host, engine } => self.turn(host, engine),
            Happening::App { app } => self.run_app(app),
            Happening::AtSwitch { from, frame } => {
                self.network.forward(self.now, from, frame, &mut self.agenda);
                Ok(())
            }
            Happening::AtNic { to, frame } => {
                let host = self.network.host_at(to);
                if let Some(engine) = self.hosts[host as usize].arrive(to, frame) {
                    self.ring(host, engine);
                }
                Ok(())
            }
            Happening::Fault(fault) => self.misfortune(fault),
            Happening::Control { host, task } => {
                self.control(host, task);
                Ok(())
            }
            Happening::Check => self.check(),
        }
    }

    /// An engine is to have a turn at `at`, or as soon after that as it can.
    fn wake(&mut self, host: u32, engine: u32, at: Time) {
        self.hosts[host as usize].wake(engine, at, &mut self.agenda);
    }

    /// Something has come for an engine, which has a turn if it sees that.
    fn ring(&mut self, host: u32, engine: u32) {
        if self.hosts[host as usize].hears(engine) {
            self.wake(host, engine, self.now + WAKE_NS);
        }
    }

    fn wake_host(&mut self, host: u32) {
        self.hosts[host as usize].wake_all(self.now, &mut self.agenda);
    }

    fn turn(&mut self, host: u32, engine: u32) -> Result<(), Finding> {
        let is_looked_at =
            self.steps.is_multiple_of(TURNS_PER_LOOK) || self.shares.is_watching(host, engine);
        let before = if is_looked_at { self.books(host, engine) } else { Vec::new() };
        let place = &mut self.hosts[host as usize];
        let turned = place.turn_if_due(engine, self.now, &mut self.agenda);
        let Some(turned) = turned else { return Ok(()) };
        self.trace.add(&[20, host.into(), engine.into(), self.now.as_ns()]);
        turned.frames.iter().for_each(|frame| self.trace.add_frame(frame));
        let sent = if is_looked_at { turned.frames.clone() } else { Vec::new() };
        place.send(engine, turned.frames, self.now, &mut self.network, &mut self.agenda);
        for event in turned.events {
            self.handle_event(host, engine, event)?;
        }
        if is_looked_at {
            self.look_at_books(host, engine, &before, &sent)?;
        }
        if turned.turn.told_apps {
            self.wake_apps(host, engine);
        }
        if turned.turn.is_busy {
            // It may have put something into a lane.
            for other in self.hosts[host as usize].siblings_of(engine) {
                self.ring(host, other);
            }
        }
        self.hosts[host as usize].plan(engine, self.now, turned.turn, &mut self.agenda);
        Ok(())
    }

    fn handle_event(&mut self, host: u32, engine: u32, event: Event) -> Result<(), Finding> {
        self.control_of(host).plane.handle_event(engine as usize, &event);
        self.carry_out(host);
        match event {
            Event::ChannelRemoved { channel, end } => {
                drop(end);
                let place = ChannelPlace { engine: engine as usize, channel };
                self.control_of(host).plane.handle_given_back(place);
                self.carry_out(host);
            }
            Event::Snapshot { id, snapshot } => {
                checks::bounds(&snapshot)?;
                if id == REST {
                    checks::rest(&snapshot)?;
                    self.count(&snapshot);
                    self.unrested -= 1;
                    if self.unrested == 0 {
                        self.end_all_apps();
                    }
                }
            }
            Event::VifOpened { vif, .. } => {
                self.trace.add(&[22, host.into(), engine.into(), vif.into()]);
            }
            Event::VifClosed { vif, .. } => {
                self.trace.add(&[23, host.into(), engine.into(), vif.into()]);
            }
            _ => self.trace.add(&[21, host.into(), engine.into()]),
        }
        Ok(())
    }

    fn wake_apps(&mut self, host: u32, engine: u32) {
        for index in 0..self.residents[host as usize].len() {
            let app = self.residents[host as usize][index];
            let resident = &self.apps[app as usize];
            if resident.character.engine == engine && resident.hears() {
                let at = self.now + 500 + self.random.below(APP_WAKE_NS_MAX);
                self.wake_app(app, at);
            }
        }
    }

    fn wake_app(&mut self, app: u32, at: Time) {
        let sleeper = &mut self.apps[app as usize];
        let at = at.max(sleeper.stopped_until);
        if !sleeper.is_dead
            && let Some(at) = sleeper.alarm.set(at)
        {
            self.agenda.note(at, Happening::App { app });
        }
    }

    fn run_app(&mut self, id: u32) -> Result<(), Finding> {
        let app = &mut self.apps[id as usize];
        if app.is_dead || app.is_hostile {
            return Ok(());
        }
        if !app.alarm.ring(self.now) || app.stopped_until > self.now {
            let at = app.alarm.due().unwrap_or(self.now);
            if at > self.now || app.stopped_until > self.now {
                self.wake_app(id, at);
            }
            return Ok(());
        }
        let (host, engine) = (app.character.host, app.character.engine);
        let mut scene = Scene {
            now: self.now,
            ledger: &mut self.ledger,
            streams: &mut self.streams,
            operations: &mut self.operations,
            trace: &mut self.trace,
            places: &self.places,
            is_ending: self.ending.is_some(),
            may_corrupt: self.kinds.contains(&Kind::BitFlips),
        };
        let next = app.run(&mut scene)?;
        self.hosts[host as usize].ring(engine);
        self.ring(host, engine);
        if let Some(next) = next {
            self.wake_app(id, next);
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Finding> {
        let now = self.now;
        self.ledger.check_attempts(now, |host| self.hosts[host as usize].is_down)?;
        if let Some(calm) = self.calm {
            self.ledger.check_delivery(now, calm)?;
        }
        checks::agenda(self.agenda.len(), self.hosts.len())?;
        self.audit()?;
        if let Some(left) = self.left {
            self.look_for_remains(left)?;
        } else if self.unrested == 0 {
            match self.ending {
                Some(since) if self.has_ended() => self.look_at_rest(since)?,
                Some(since) if now.since(since) > ENDING_NS_MAX => {
                    return Err(self.endless());
                }
                _ => self.look_at_one(),
            }
        }
        self.agenda.note(now + CHECK_NS, Happening::Check);
        Ok(())
    }

    /// One engine after the other says how it is.
    fn look_at_one(&mut self) {
        let host = self.random.below(self.hosts.len() as u64) as u32;
        for engine in 0..self.hosts[host as usize].runners.len() as u32 {
            self.post(host, engine, Request::Snapshot { id: 0 });
        }
    }

    fn has_ended(&self) -> bool {
        let residents = self.residents.iter().flatten();
        residents.map(|app| &self.apps[*app as usize]).all(App::is_idle)
    }

    /// Everything is closed: now nobody may have anything left. Flows linger for a while after
    /// their apps have heard of the end.
    fn look_at_rest(&mut self, since: Time) -> Result<(), Finding> {
        if self.now.since(since) < checks::LINGER_NS {
            return Ok(());
        }
        for app in self.residents.iter().flatten() {
            self.apps[*app as usize].check_rest()?;
            self.apps[*app as usize].look(&mut self.operations, self.now)?;
        }
        self.operations.check().map_err(Finding::new)?;
        for host in 0..self.hosts.len() as u32 {
            self.audit_agreement(host)?;
            for engine in 0..self.hosts[host as usize].runners.len() as u32 {
                self.unrested += 1;
                self.post(host, engine, Request::Snapshot { id: REST });
            }
        }
        Ok(())
    }

    /// The apps have left: engines may have nothing left, either, as soon as timers have fired and
    /// lanes are empty.
    fn look_for_remains(&mut self, left: Time) -> Result<(), Finding> {
        match self.audit_rest() {
            Ok(()) => self.is_over = true,
            Err(finding) if self.now.since(left) > ENDING_NS_MAX => return Err(finding),
            Err(_) => {}
        }
        Ok(())
    }

    /// What is open that should not be any more.
    fn endless(&self) -> Finding {
        let residents = self.residents.iter().flatten();
        let busy = residents.map(|app| &self.apps[*app as usize]).filter(|app| !app.is_idle());
        let busy: Vec<&App> = busy.take(3).collect();
        let texts: Vec<String> = busy.iter().map(|app| format!("app {} {app:?}", app.id)).collect();
        let what = format!(
            "no end: {} connections are open: {}; {}",
            self.ledger.open(),
            self.ledger.describe_open(),
            texts.join("; ")
        );
        Finding { what, hosts: busy.iter().map(|app| app.character.host).collect() }
    }

    /// Adds what the engines concerned say of themselves.
    fn ask_engines(&mut self, mut finding: Finding) -> Finding {
        for host in std::mem::take(&mut finding.hosts) {
            for text in self.hosts[host as usize].testimony(self.now) {
                finding.what += &format!("\n  host {host}: {text}");
            }
        }
        finding
    }

    fn post(&mut self, host: u32, engine: u32, request: Request) {
        self.hosts[host as usize].post(engine, request);
        self.wake(host, engine, self.now);
    }

    fn control(&mut self, host: u32, task: Task) {
        match task {
            Task::Remove { app, incarnation, has_left } => {
                if self.hosts[host as usize].incarnation == incarnation {
                    self.remove(host, app, has_left);
                }
            }
            Task::Start { character, incarnation } => {
                if self.hosts[host as usize].incarnation == incarnation {
                    self.start(*character);
                }
            }
            Task::Restart => self.restart(host),
        }
    }

    fn count(&mut self, snapshot: &Snapshot) {
        for (name, count) in &mut self.counted {
            let of_engine = snapshot.counters.iter().filter(|(other, _)| other == name);
            *count += of_engine.map(|(_, count)| count).sum::<u64>();
        }
    }

    fn summary(&self) -> Summary {
        let name = |(kind, count): (&Kind, &u64)| (kind.name(), *count);
        let more = [
            ("engines restored", self.restores.count),
            ("clock steps back", self.oddities.clocks_back),
            ("second NICs", self.hosts.iter().map(|host| host.ports().len() as u64 - 1).sum()),
            ("interfaces opened", self.fortunes.opened),
            ("interfaces refused", self.fortunes.refused),
            ("requests denied", self.fortunes.denied),
            ("apps without a channel", self.fortunes.without_channel),
        ];
        Summary {
            seed: self.options.seed,
            hosts: self.hosts.len(),
            simulated_ns: self.now.since(START),
            steps: self.steps,
            apps: (self.ledger.counts.iter().chain(self.streams.counts.iter()))
                .chain(self.operations.counts.iter())
                .collect(),
            network: [self.network.counts(), self.counted.to_vec()].concat(),
            faults: self.begun.iter().map(name).chain(more).collect(),
            trace: self.trace.hash() ^ self.trace.events(),
        }
    }
}

/// The id of the snapshots that are to show nothing left.
const REST: u64 = 1;
