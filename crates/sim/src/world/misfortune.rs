//! What happens when something goes wrong: who is hit, for how long, and what that excuses.

use clearway_base::{MILLISECOND, Random, SECOND, Time};

use super::World;
use crate::Finding;
use crate::agenda::Happening;
use crate::app::{Role, Scene};
use crate::faults::{Fault, Kind};
use crate::ledger::Trouble;
use crate::options::oddities;

/// The longest that one fault lasts.
const SPAN_NS_MAX: u64 = 6 * SECOND;
/// In a round of chaos, so many apps ask for what they have no right to.
const FORGERS: u64 = 4;

/// What misfortunes are like that the simulator did not have when it was young: see [`oddities`].
#[derive(Debug)]
pub(super) struct Oddities {
    random: Random,
    pub(super) clocks_back: u64,
}

impl Oddities {
    pub(super) const fn new(seed: u64) -> Self {
        Self { random: Random::new(oddities(seed)), clocks_back: 0 }
    }

    fn clock_goes_back(&mut self) -> bool {
        let goes_back = self.random.chance(1, 3);
        self.clocks_back += u64::from(goes_back);
        goes_back
    }

    fn one_of(&mut self, numbers: &[u32]) -> u32 {
        numbers[self.random.below(numbers.len() as u64) as usize]
    }
}

impl World {
    pub(super) fn misfortune(&mut self, fault: Fault) -> Result<(), Finding> {
        match fault {
            Fault::Begin(kind) => {
                self.calm = None;
                let has_begun = self.begin(kind);
                *self.begun.entry(kind).or_default() += u64::from(has_begun);
            }
            Fault::Unharm { host } => {
                self.network.impair(host, |_| {});
                self.ledger.note(Trouble::Rough, host, self.now);
            }
            Fault::Join { from, to } => {
                self.network.cut(from, to, false);
                self.silent(from);
                self.silent(to);
            }
            Fault::Plug { port } => self.plug(port, true),
            Fault::Route => self.lose_routes(false),
            Fault::Listen { app } => self.hear_again(app),
            Fault::Forge => {
                self.calm = None;
                self.turn_forger();
            }
            Fault::Banish { app } => {
                self.apps[app as usize].search(&self.operations)?;
                self.kill(app);
            }
            Fault::Restore => self.restore_one()?,
            Fault::Calm => self.calm_down(),
            Fault::Ending => {
                self.ending = Some(self.now);
                self.wake_all_apps();
            }
        }
        Ok(())
    }

    /// False if there is nobody whom it hits.
    fn begin(&mut self, kind: Kind) -> bool {
        let host = self.any_host();
        let end = self.now + span(&mut self.random);
        match kind {
            kind if kind.is_harm() => self.harm(kind, host, end),
            Kind::Partition => return self.part(host, end),
            Kind::Link => {
                let ports = self.hosts[host as usize].ports();
                let port = self.oddities.one_of(&ports);
                self.plug(port, false);
                self.later(end, Fault::Plug { port });
            }
            Kind::Router => {
                self.lose_routes(true);
                self.later(end, Fault::Route);
            }
            Kind::ClockStep => {
                let step_ns = span(&mut self.random);
                let clock = &mut self.hosts[host as usize].clock;
                if self.oddities.clock_goes_back() {
                    clock.step_back(self.now, step_ns);
                } else {
                    clock.step_forward(self.now, step_ns);
                }
                self.silent(host);
                self.wake_host(host);
            }
            Kind::Stall => self.stall(host),
            Kind::HostCrash => return self.crash(host),
            Kind::FanIn => return self.fan_in(),
            Kind::Rekey => self.hosts[host as usize].rekey(&mut self.random),
            _ => return self.hit_app(kind, end),
        }
        true
    }

    fn hit_app(&mut self, kind: Kind, end: Time) -> bool {
        let host = self.any_host();
        let residents = &self.residents[host as usize];
        let index = self.random.below(residents.len() as u64) as usize;
        let Some(app) = residents.get(index).copied() else { return false };
        match kind {
            Kind::Stop => self.apps[app as usize].stopped_until = end,
            // Every other one ends as it should.
            Kind::AppCrash if app % 2 == 0 => self.leave(app),
            Kind::AppCrash => self.kill(app),
            Kind::Listener if self.deafen(app) => self.later(end, Fault::Listen { app }),
            Kind::Hostile => self.turn_hostile(app),
            _ => return false,
        }
        true
    }

    /// All frames that the host sends are harmed, and perhaps in more than one way.
    fn harm(&mut self, kind: Kind, host: u32, end: Time) {
        let (kinds, random) = (&self.kinds, &mut self.random);
        let also: Vec<Kind> =
            kinds.iter().copied().filter(|kind| kind.is_harm() && random.chance(1, 4)).collect();
        self.network.impair(host, |faults| {
            kind.harm(random, faults);
            also.iter().for_each(|kind| kind.harm(random, faults));
        });
        self.ledger.note(Trouble::Rough, host, self.now);
        self.later(end, Fault::Unharm { host });
    }

    fn part(&mut self, from: u32, end: Time) -> bool {
        let to = self.any_host();
        let is_one_way = self.random.chance(1, 2);
        self.network.cut(from, to, true);
        self.later(end, Fault::Join { from, to });
        if !is_one_way {
            self.network.cut(to, from, true);
            self.later(end, Fault::Join { from: to, to: from });
        }
        self.silent(from);
        self.silent(to);
        from != to
    }

    fn lose_routes(&mut self, are_lost: bool) {
        self.network.set_routes(are_lost);
        (0..self.hosts.len() as u32).for_each(|host| self.silent(host));
    }

    fn plug(&mut self, port: u32, is_up: bool) {
        self.network.set_link(port, is_up);
        let host = self.network.host_at(port);
        self.hosts[host as usize].set_link(port, is_up);
        self.silent(host);
        self.wake_host(host);
    }

    fn stall(&mut self, host: u32) {
        let until = self.now + self.random.below(500 * MILLISECOND);
        self.hosts[host as usize].stalled_until = until;
        self.ledger.note(Trouble::Rough, host, self.now);
    }

    fn turn_hostile(&mut self, app: u32) {
        let liar = &mut self.apps[app as usize];
        liar.attack(&mut self.ledger, &mut self.operations);
        let (host, engine) = (liar.character.host, liar.character.engine);
        self.ledger.note(Trouble::Deaf, host, self.now);
        self.hosts[host as usize].ring(engine);
        self.wake(host, engine, self.now);
        let until = self.now + self.random.below(200 * MILLISECOND);
        self.later(until, Fault::Banish { app });
    }

    /// Where there are vaults, apps ask for what is in them, so many in a round.
    pub(super) fn plan_forgers(&mut self, begin: Time, end: Time) {
        if !(self.operations.is_on && self.operations.has_vaults) {
            return;
        }
        // The last has gone before all is calm.
        let step_ns = end.since(begin) * 3 / 4 / FORGERS;
        for index in 0..FORGERS {
            let at = begin + index * step_ns + self.oddities.random.below(step_ns);
            self.agenda.note(at, Happening::Fault(Fault::Forge));
        }
    }

    fn turn_forger(&mut self) {
        let residents = self.residents.iter().flatten().copied();
        let able = residents.filter(|app| self.apps[*app as usize].can_forge(self.now));
        let able: Vec<u32> = able.collect();
        if !able.is_empty() {
            let app = self.oddities.one_of(&able);
            self.turn_hostile(app);
        }
    }

    /// Every client connects to one server, at once.
    fn fan_in(&mut self) -> bool {
        if self.places.is_empty() || self.ending.is_some() {
            return false;
        }
        let mut has_begun = false;
        let place = self.random.below(self.places.len() as u64) as usize;
        let place = self.places[place].clone();
        for id in self.residents.iter().flatten().copied().collect::<Vec<_>>() {
            let app = &mut self.apps[id as usize];
            let is_client = matches!(app.character.role, Role::Client { .. });
            if !is_client || app.is_hostile || app.stopped_until > self.now || place.is_large {
                continue;
            }
            let mut scene = Scene {
                now: self.now,
                ledger: &mut self.ledger,
                streams: &mut self.streams,
                operations: &mut self.operations,
                trace: &mut self.trace,
                places: &self.places,
                is_ending: false,
                may_corrupt: false,
            };
            app.connect_to(&mut scene, &place);
            self.wake_app(id, self.now);
            has_begun = true;
        }
        has_begun
    }

    /// Everything is repaired, everybody awake.
    fn calm_down(&mut self) {
        self.network.repair();
        for host in 0..self.hosts.len() as u32 {
            self.hosts[host as usize].stalled_until = Time::ZERO;
            let place = &mut self.hosts[host as usize];
            place.ports().into_iter().for_each(|port| place.set_link(port, true));
            self.wake_host(host);
        }
        self.apps.iter_mut().for_each(|app| app.stopped_until = Time::ZERO);
        self.wake_all_apps();
        self.calm = Some(self.now);
    }

    fn wake_all_apps(&mut self) {
        for app in self.residents.iter().flatten().copied().collect::<Vec<_>>() {
            self.wake_app(app, self.now);
        }
    }

    fn silent(&mut self, host: u32) {
        self.ledger.note(Trouble::Silence, host, self.now);
    }

    pub(super) fn later(&mut self, at: Time, fault: Fault) {
        self.agenda.note(at, Happening::Fault(fault));
    }

    fn any_host(&mut self) -> u32 {
        self.random.below(self.hosts.len() as u64) as u32
    }
}

/// How long something lasts: mostly short.
fn span(random: &mut Random) -> u64 {
    let bound = SPAN_NS_MAX >> random.below(8);
    MILLISECOND + random.below(bound)
}
