//! Who lives on the hosts: apps that start, die and come back.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clearway_base::{MILLISECOND, Random};
use clearway_channel::AppEnd;
use clearway_channel::control::{Attach, Leave, Request};

use super::World;
use crate::agenda::Happening;
use crate::app::{App, Character, Place, Radio, Role, Wish};
use crate::host::{Nature, Task};
use crate::ledger::Trouble;
use crate::operations::Neighbourhood;

/// Where small servers listen, and where those with room for the largest messages do.
const PORT: u16 = 7000;
const PORT_LARGE: u16 = 8000;
/// What an app has sent is delivered for so long after it has left: longer than anything delays it.
const LINGER: Duration = Duration::from_secs(120);

impl World {
    /// Decides who lives where, and starts them.
    pub(super) fn populate(&mut self, pause_ns: u64) {
        for host in 0..self.hosts.len() as u32 {
            let nature = &self.hosts[host as usize].nature;
            let mut characters = match self.options.tcp {
                true => stream_characters(host, nature, pause_ns, &mut self.random),
                false => characters(host, nature, pause_ns, &mut self.random),
            };
            let shares = |role: &Role| matches!(role, Role::Server { .. } | Role::Client { .. });
            for character in &mut characters {
                character.shares = self.operations.is_on && shares(&character.role);
            }
            let nature = &self.hosts[host as usize].nature;
            let addresses = match self.options.tcp {
                true => nature.nics[0].subnet.addresses(host as usize, nature.versions),
                false => nature.addresses(),
            };
            self.operations.know(Neighbourhood {
                addresses: addresses.iter().map(|(address, _)| *address).collect(),
                users: characters.iter().map(Character::user).collect(),
            });
            for character in &characters {
                if let Role::Server { port } | Role::StreamServer { port } = character.role {
                    let at = |(address, _): &(IpAddr, u8)| SocketAddr::new(*address, port);
                    let addresses = addresses.iter().map(at).collect();
                    self.places.push(Place { host, addresses, is_large: character.is_large });
                }
            }
            self.characters.push(characters);
        }
        for host in 0..self.hosts.len() {
            for character in self.characters[host].clone() {
                self.start(character);
            }
        }
    }

    /// Starts an app, unless its host is down.
    pub(super) fn start(&mut self, character: Character) {
        let (host, engine) = (character.host, character.engine);
        let place = &mut self.hosts[host as usize];
        if place.is_down {
            return;
        }
        let id = self.apps.len() as u32;
        let number = engine.to_string();
        let attach = Attach::new(format!("app-{id}"), Some(number), character.sizes());
        let fate = self.fortunes.fate();
        let Some((channel, handover)) =
            place.control.attach(id.into(), character.user(), attach, fate)
        else {
            return self.start_later(character);
        };
        let memory = handover.memory.try_clone().expect("a descriptor; raise `ulimit -n`");
        let end = AppEnd::open(handover, character.sizes()).expect("its own memory");
        let radio = self.radio(&character);
        let seed = self.random.next_u64();
        self.apps.push(App::new(id, character, channel, end, File::from(memory), seed, radio));
        self.residents[host as usize].push(id);
        self.carry_out(host);
        let forbidden = self.fortunes.forbidden();
        forbidden.into_iter().for_each(|what| self.ask(id, Wish::Forbidden(what)));
        self.ask_for_its_own(id);
        self.wake_host(host);
        self.wake_app(id, self.now + MILLISECOND);
    }

    /// It did not get its channel.
    fn start_later(&mut self, character: Character) {
        let host = character.host;
        let incarnation = self.hosts[host as usize].incarnation;
        self.ledger.note(Trouble::Deaf, host, self.now);
        let at = self.now + self.fortunes.pause_ns();
        let task = Task::Start { character: Box::new(character), incarnation };
        self.agenda.note(at, Happening::Control { host, task });
    }

    /// What an app that is to have a raw interface does with it.
    fn radio(&mut self, character: &Character) -> Option<Radio> {
        if character.role != Role::Frames {
            return None;
        }
        let host = character.host;
        let is_peer = |other: &&Vec<Character>| {
            other.iter().any(|other| other.role == Role::Frames && other.host != host)
        };
        let peers = self.characters.iter().filter(is_peer).map(|other| other[0].host).collect();
        let mtu = self.hosts.iter().map(|host| host.nature.mtu).min().unwrap_or(576);
        Some(Radio::new(host as usize, peers, mtu, self.random.next_u64()))
    }

    /// The daemon has heard that an app is dead: what it had is free. If it has left in good order,
    /// what it has sent is delivered first.
    pub(super) fn remove(&mut self, host: u32, app: u32, has_left: bool) {
        let plane = &mut self.control_of(host).plane;
        if has_left {
            let leave = Request::Leave(Leave { linger_ms: LINGER.as_millis() as u32 });
            assert_eq!(plane.handle_request(app.into(), leave), None);
        }
        plane.end_session(app.into(), has_left.then_some(LINGER));
        self.carry_out(host);
        self.wake_host(host);
    }

    /// All apps end, and are not started again.
    pub(super) fn end_all_apps(&mut self) {
        self.left = Some(self.now);
        for app in self.residents.iter().flatten().copied().collect::<Vec<_>>() {
            let resident = &mut self.apps[app as usize];
            resident.die(&mut self.ledger, &mut self.streams);
            let host = resident.character.host;
            self.remove(host, app, false);
        }
    }

    /// An app dies, without a word.
    pub(super) fn kill(&mut self, app: u32) {
        let dead = &mut self.apps[app as usize];
        if !dead.is_dead {
            dead.die(&mut self.ledger, &mut self.streams);
            self.ledger.note(Trouble::Death, dead.character.host, self.now);
            self.go(app, false);
        }
    }

    /// An app leaves in good order, whatever it was doing.
    pub(super) fn leave(&mut self, app: u32) {
        let leaver = &mut self.apps[app as usize];
        if !leaver.is_dead && !leaver.is_hostile {
            leaver.leave(&mut self.ledger, &mut self.streams);
            let host = leaver.character.host;
            self.ledger.note(Trouble::Deaf, host, self.now);
            // What still comes for it on a TCP connection is reset.
            if leaver.streams.is_some() {
                self.ledger.note(Trouble::Death, host, self.now);
            }
            self.go(app, true);
        }
    }

    /// The daemon of an app hears a little later that it has gone; later still it is started again.
    fn go(&mut self, app: u32, has_left: bool) {
        let gone = &self.apps[app as usize];
        let character = gone.character.clone();
        let host = character.host;
        self.residents[host as usize].retain(|other| *other != app);
        let incarnation = self.hosts[host as usize].incarnation;
        let heard = self.now + self.random.below(50 * MILLISECOND);
        let remove = Task::Remove { app, incarnation, has_left };
        self.agenda.note(heard, Happening::Control { host, task: remove });
        let again = heard + MILLISECOND + self.random.below(500 * MILLISECOND);
        let start = Task::Start { character: Box::new(character), incarnation };
        self.agenda.note(again, Happening::Control { host, task: start });
    }

    /// A daemon dies, and all its apps with it, whose memory it was. False if it is dead already.
    pub(super) fn crash(&mut self, host: u32) -> bool {
        if self.hosts[host as usize].is_down {
            return false;
        }
        self.residents[host as usize].clear();
        // Also those that have left: what they had sent is lost with the daemon.
        for app in self.apps.iter_mut().filter(|app| app.character.host == host) {
            app.die(&mut self.ledger, &mut self.streams);
        }
        self.hosts[host as usize].crash();
        self.ledger.note(Trouble::Death, host, self.now);
        self.ledger.note(Trouble::Silence, host, self.now);
        let at = self.now + MILLISECOND + self.random.below(3000 * MILLISECOND);
        self.agenda.note(at, Happening::Control { host, task: Task::Restart });
        true
    }

    pub(super) fn restart(&mut self, host: u32) {
        self.hosts[host as usize].restart(self.now, &mut self.random);
        self.ledger.note(Trouble::Death, host, self.now);
        self.ledger.note(Trouble::Silence, host, self.now);
        for character in self.characters[host as usize].clone() {
            self.start(character);
        }
        self.wake_host(host);
    }

    /// A server stops listening, another app gives its interface up. False if it has neither, or
    /// not any more.
    pub(super) fn deafen(&mut self, app: u32) -> bool {
        let server = &mut self.apps[app as usize];
        if matches!(server.character.role, Role::Frames | Role::Capture) {
            let closes = !server.is_deaf && !server.is_hostile && self.close_vif(app);
            self.apps[app as usize].is_deaf |= closes;
            return closes;
        }
        let Character { host, role: Role::Server { .. }, .. } = server.character else {
            return false;
        };
        if std::mem::replace(&mut server.is_deaf, true) {
            return false;
        }
        self.ledger.note(Trouble::Deaf, host, self.now);
        self.ask(app, Wish::Unlisten);
        self.wake_host(host);
        true
    }

    /// It listens again, or has its interface opened again, if it lives.
    pub(super) fn hear_again(&mut self, app: u32) {
        let listener = &mut self.apps[app as usize];
        listener.is_deaf = false;
        if listener.is_dead || listener.is_hostile {
            return;
        }
        if let Character { host, role: Role::Server { .. }, .. } = listener.character {
            self.ledger.note(Trouble::Deaf, host, self.now);
        }
        self.ask_for_its_own(app);
    }
}

/// Who lives on a host whose apps speak TCP. Several servers share their port, and may be at
/// different engines.
fn stream_characters(
    host: u32,
    nature: &Nature,
    pause_ns: u64,
    random: &mut Random,
) -> Vec<Character> {
    let (servers, clients) = (1 + random.below(3), 1 + random.below(3));
    let roles = (0..servers + clients).map(|number| match number < servers {
        true => Role::StreamServer { port: PORT },
        false => Role::StreamClient { connections: 1 + random.below(6) as usize },
    });
    let roles: Vec<Role> = roles.collect();
    let mut character = |role| Character {
        host,
        engine: random.below(nature.nics[0].engines as u64) as u32,
        versions: nature.versions,
        sleeps: nature.sleeps,
        role,
        is_large: random.chance(1, 8),
        shares: false,
        hold_ns_max: if random.chance(1, 3) { random.below(5 * MILLISECOND) } else { 0 },
        pause_ns,
    };
    roles.into_iter().map(&mut character).collect()
}

/// Who lives on a host: a small server, perhaps a large one, clients, and a raw interface or a
/// capture on some.
fn characters(host: u32, nature: &Nature, pause_ns: u64, random: &mut Random) -> Vec<Character> {
    let mut characters = Vec::new();
    let Nature { versions, sleeps, .. } = *nature;
    let mut add = |role, is_large, random: &mut Random| {
        // Interfaces are at the first port, whose Ethernet addresses they have.
        let engines = match role {
            Role::Frames | Role::Capture => nature.nics[0].engines,
            _ => nature.engines(),
        };
        let engine = random.below(engines as u64) as u32;
        let hold_ns_max = if random.chance(1, 3) { random.below(5 * MILLISECOND) } else { 0 };
        characters.push(Character {
            host,
            engine,
            versions,
            sleeps,
            role,
            is_large,
            shares: false,
            hold_ns_max,
            pause_ns,
        });
    };
    add(Role::Server { port: PORT }, false, random);
    if host < 3 && random.chance(1, 2) {
        add(Role::Server { port: PORT_LARGE }, true, random);
        add(Role::Client { connections: 2 }, true, random);
    }
    for _ in 0..1 + random.below(2) {
        add(Role::Client { connections: 1 + random.below(5) as usize }, false, random);
    }
    if random.chance(1, 3) {
        add(Role::Frames, false, random);
    }
    if random.chance(1, 8) {
        add(Role::Capture, false, random);
    }
    characters
}
