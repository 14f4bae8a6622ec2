//! A simulated host: its engines, NIC and clock, and a control plane that does what the daemon's
//! does.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;

use clearway_base::{MICROSECOND, Random, SECOND, Time};
use clearway_engine::{
    Congestion, Control, Engine, EngineConfig, Event, Idle, Request, SILENCE_MS_DEFAULT, Turn, ip,
};
use clearway_nic::Queue;
use clearway_nic::fabric::{Hash, Rss, RssOptions};
use clearway_world::Alarm;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agenda::{Agenda, Happening};
use crate::app::Character;
use crate::clock::HostClock;
use crate::control::{Agreed, ControlPlane};
use crate::network::{Network, Subnet, Versions, mac_of};
use crate::nic::{self, Wire};

/// The UDP port of all daemons.
pub(crate) const UDP_PORT: u16 = 20707;
/// Every third host gives a silent peer up after this: sooner than the longer faults end.
const SILENCE_MS_SHORT: u32 = 1500;
/// The largest sleep of an engine, as `Group` has it.
const SLEEP_NS_MAX: u64 = SECOND;
/// How soon an engine looks again whose ring is full, as `Group` has it.
const ROOM_NS: u64 = 1000 * MICROSECOND;

/// What the control plane is to do.
#[derive(Debug)]
pub(crate) enum Task {
    /// An app has died, as its control socket says, or has left in good order.
    Remove { app: u32, incarnation: u32, has_left: bool },
    /// Somebody starts it again.
    Start { character: Box<Character>, incarnation: u32 },
    /// Start the daemon again after a crash.
    Restart,
}

/// What differs between hosts.
#[derive(Clone, Debug)]
pub(crate) struct Nature {
    pub(crate) host: usize,
    /// Its NICs, the first at the port of its own number.
    pub(crate) nics: Vec<NicNature>,
    pub(crate) versions: Versions,
    pub(crate) mtu: u16,
    /// What a turn costs, and each frame in it.
    pub(crate) turn_ns: u64,
    pub(crate) frame_ns: u64,
    /// Engines and apps with nothing to do sleep, and are woken by doorbells alone. Else they spin:
    /// they see at once whatever is there.
    pub(crate) sleeps: bool,
    pub(crate) congestion: Congestion,
    pub(crate) clock_offset_ns: u64,
    pub(crate) drift_ppm: i32,
}

/// What differs between NICs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicNature {
    pub(crate) port: usize,
    pub(crate) subnet: Subnet,
    /// How it chooses a queue, which are as many as engines.
    pub(crate) rss: RssOptions,
    pub(crate) engines: usize,
}

impl Nature {
    /// The addresses of the host, each with the length of the prefix that is on the link.
    pub(crate) fn addresses(&self) -> Vec<(IpAddr, u8)> {
        let each = self.nics.iter();
        each.flat_map(|nic| nic.subnet.addresses(nic.port, self.versions)).collect()
    }

    /// How many engines it has, those of the first NIC first.
    pub(crate) fn engines(&self) -> usize {
        self.nics.iter().map(|nic| nic.engines).sum()
    }
}

/// One engine, and when it runs.
pub(crate) struct Runner {
    pub(crate) engine: Engine,
    port: u32,
    control: Control,
    wire: Wire,
    requests: VecDeque<Request>,
    /// When it runs next, by the world's clock.
    alarm: Alarm,
    /// It is at work until then.
    busy_until: Time,
    /// Apps have rung since its last turn.
    is_rung: bool,
    /// It waits for its doorbells.
    is_asleep: bool,
}

/// A host.
pub(crate) struct Host {
    pub(crate) nature: Nature,
    pub(crate) runners: Vec<Runner>,
    pub(crate) clock: HostClock,
    /// Of each NIC.
    rss: Vec<Rss>,
    /// Set while the daemon is dead.
    pub(crate) is_down: bool,
    pub(crate) incarnation: u32,
    /// It does not run before then.
    pub(crate) stalled_until: Time,
    pub(crate) control: ControlPlane,
}

/// What an engine's turn came to.
pub(crate) struct Turned {
    pub(crate) turn: Turn,
    pub(crate) events: Vec<Event>,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Host {
    pub(crate) fn new(nature: Nature, world: Time, random: &mut Random) -> Self {
        let local = world + nature.clock_offset_ns;
        let clock = HostClock::new(world, local, nature.drift_ppm);
        let runners = runners(&nature, clock.now(world), random);
        let rss = rss(&nature, random);
        Self {
            rss,
            control: control(&nature),
            nature,
            runners,
            clock,
            is_down: false,
            incarnation: 0,
            stalled_until: Time::ZERO,
        }
    }

    /// The daemon dies: engines, channels and all.
    pub(crate) fn crash(&mut self) {
        self.runners.clear();
        self.is_down = true;
    }

    /// It comes back, and knows nothing.
    pub(crate) fn restart(&mut self, world: Time, random: &mut Random) {
        self.runners = runners(&self.nature, self.clock.now(world), random);
        self.control = control(&self.nature);
        self.is_down = false;
        self.incarnation += 1;
    }

    /// The NICs get other keys, so that what came to one queue comes to another from now on.
    pub(crate) fn rekey(&mut self, random: &mut Random) {
        self.rss = rss(&self.nature, random);
    }

    /// What its engines have to know; nothing if they are just being told.
    pub(crate) fn agreed(&self) -> Option<Agreed> {
        let is_told = self.runners.iter().all(|runner| runner.requests.is_empty());
        is_told.then(|| self.control.agreed()).flatten()
    }

    /// The other engines.
    pub(crate) fn siblings_of(&self, engine: u32) -> impl Iterator<Item = u32> + use<> {
        (0..self.runners.len() as u32).filter(move |other| *other != engine)
    }

    /// Asks an engine for something, after all that it was asked for before.
    pub(crate) fn post(&mut self, engine: u32, request: Request) {
        if let Some(runner) = self.runners.get_mut(engine as usize) {
            runner.requests.push_back(request);
        }
    }

    /// An app of this engine has rung.
    pub(crate) fn ring(&mut self, engine: u32) {
        if let Some(runner) = self.runners.get_mut(engine as usize) {
            runner.is_rung = true;
        }
    }

    /// True if the engine sees that there is something for it: it spins, or its doorbell has rung.
    /// One that is awake looks at everything before it sleeps.
    pub(crate) fn hears(&self, engine: u32) -> bool {
        let Some(runner) = self.runners.get(engine as usize) else { return false };
        !self.nature.sleeps || (runner.is_asleep && is_readable(runner.engine.sleep_fd()))
    }

    /// A frame has come to a port: the engine whose queue has it, unless it was lost there.
    pub(crate) fn arrive(&mut self, port: u32, frame: Vec<u8>) -> Option<u32> {
        let (nics, mut first) = (self.nature.nics.iter().zip(&mut self.rss), 0);
        for (nic, rss) in nics {
            if nic.port as u32 == port {
                let engine = first + rss.queue(&frame);
                return self.runners.get(engine)?.wire.arrive(frame).then_some(engine as u32);
            }
            first += nic.engines;
        }
        None
    }

    /// Plugs the cable of a port in or out.
    pub(crate) fn set_link(&mut self, port: u32, is_up: bool) {
        let there = self.runners.iter().filter(|runner| runner.port == port);
        there.for_each(|runner| runner.wire.set_link(is_up));
    }

    /// The ports of its NICs.
    pub(crate) fn ports(&self) -> Vec<u32> {
        self.nature.nics.iter().map(|nic| nic.port as u32).collect()
    }

    /// What an engine has sent goes on its way.
    pub(crate) fn send(
        &self,
        engine: u32,
        frames: Vec<Vec<u8>>,
        now: Time,
        network: &mut Network,
        agenda: &mut Agenda,
    ) {
        let runner = &self.runners[engine as usize];
        for frame in frames {
            let left = network.send(now, runner.port, frame, agenda);
            runner.wire.will_leave(left);
        }
    }

    /// An engine is to have a turn at `at`, or as soon after that as it can.
    pub(crate) fn wake(&mut self, engine: u32, at: Time, agenda: &mut Agenda) {
        let Some(runner) = self.runners.get_mut(engine as usize) else { return };
        let at = at.max(runner.busy_until).max(self.stalled_until);
        if let Some(at) = runner.alarm.set(at) {
            agenda.note(at, Happening::Turn { host: self.nature.host as u32, engine });
        }
    }

    /// All engines are to have a turn.
    pub(crate) fn wake_all(&mut self, now: Time, agenda: &mut Agenda) {
        (0..self.runners.len() as u32).for_each(|engine| self.wake(engine, now, agenda));
    }

    /// The turn of an engine that was noted for now, if it still is its next.
    pub(crate) fn turn_if_due(
        &mut self,
        engine: u32,
        world: Time,
        agenda: &mut Agenda,
    ) -> Option<Turned> {
        let alarm = &mut self.runners.get_mut(engine as usize)?.alarm;
        let is_stalled = self.stalled_until > world;
        if alarm.ring(world) && !is_stalled {
            return Some(self.turn(engine, world));
        }
        let at = alarm.due().unwrap_or(world);
        if at > world || is_stalled {
            self.wake(engine, at, agenda);
        }
        None
    }

    /// One turn of an engine.
    fn turn(&mut self, engine: u32, world: Time) -> Turned {
        let now = self.clock.now(world);
        let runner = &mut self.runners[engine as usize];
        runner.wire.set_time(world);
        if let Some(request) = runner.requests.pop_front()
            && let Err(request) = runner.control.post(request)
        {
            runner.requests.push_front(request);
        }
        let was_asleep = std::mem::take(&mut runner.is_asleep);
        if was_asleep {
            runner.engine.disarm();
        }
        // What a sleeping engine hears from its `epoll`.
        if std::mem::take(&mut runner.is_rung) || was_asleep {
            runner.engine.take_doorbells();
        }
        let before = runner.wire.frames_moved();
        let turn = runner.engine.turn(now);
        if !turn.is_busy {
            runner.engine.rested(); // it sleeps until there is something to do
        }
        if self.nature.sleeps && !turn.is_busy && runner.requests.is_empty() {
            runner.is_asleep = runner.engine.arm();
            if !runner.is_asleep {
                runner.engine.disarm();
            }
        }
        let moved = runner.wire.frames_moved() - before;
        let cost_ns = self.nature.turn_ns + moved * self.nature.frame_ns;
        runner.busy_until = world + cost_ns;
        let events = std::iter::from_fn(|| runner.control.next_event()).collect();
        Turned { turn, events, frames: runner.wire.take_sent() }
    }

    /// Puts another engine in the place of one, made from it at its own time.
    pub(crate) fn replace(
        &mut self,
        engine: u32,
        world: Time,
        make: impl FnOnce(Engine, Time) -> Result<Engine, String>,
    ) -> Result<(), String> {
        let now = self.clock.now(world);
        let runner = self.runners.remove(engine as usize);
        let replaced = make(runner.engine, now);
        let replaced = replaced.map_err(|what| format!("engine {engine} is lost: {what}"))?;
        self.runners.insert(engine as usize, Runner { engine: replaced, ..runner });
        Ok(())
    }

    /// What its engines say of themselves, once nothing matters any more.
    pub(crate) fn testimony(&mut self, world: Time) -> Vec<String> {
        let engines = 0..self.runners.len() as u32;
        let mut texts = Vec::new();
        for engine in engines {
            self.runners[engine as usize].requests.push_front(Request::Snapshot { id: 0 });
            for event in self.turn(engine, world).events {
                if let Event::Snapshot { snapshot, .. } = event {
                    let counters = snapshot.counters.iter().filter(|(_, value)| *value > 0);
                    let counters: Vec<_> = counters.collect();
                    let (flows, channels) = (&snapshot.flows, &snapshot.channels);
                    let vifs = &snapshot.vifs;
                    texts.push(format!(
                        "{:?} {flows:?}, {channels:?}, {vifs:?}, {counters:?}",
                        self.nature.nics
                    ));
                }
            }
        }
        texts
    }

    /// Notes when the engine runs next by itself, after a turn at `world`.
    pub(crate) fn plan(&mut self, engine: u32, world: Time, turn: Turn, agenda: &mut Agenda) {
        self.wake(engine, self.next_turn(engine, world, turn), agenda);
    }

    /// At once if it was busy, else when a timer is due, as a group's sleep has it.
    fn next_turn(&self, engine: u32, world: Time, turn: Turn) -> Time {
        let runner = &self.runners[engine as usize];
        let free = runner.busy_until.max(self.stalled_until);
        let is_awake = turn.is_busy || !runner.requests.is_empty();
        if is_awake || (self.nature.sleeps && !runner.is_asleep) {
            return free;
        }
        let longest_ns = if runner.engine.waits_for_room() { ROOM_NS } else { SLEEP_NS_MAX };
        let timer = runner.engine.next_timeout().map(|local| self.clock.world_time(local));
        timer.unwrap_or(Time::MAX).min(world + longest_ns).max(free)
    }
}

/// True if somebody has rung.
pub(crate) fn is_readable(bell: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut bells = [PollFd::new(&bell, PollFlags::IN)];
    poll(&mut bells, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn rss(nature: &Nature, random: &mut Random) -> Vec<Rss> {
    nature.nics.iter().map(|nic| Rss::new(nic.rss, nic.engines, random)).collect()
}

fn control(nature: &Nature) -> ControlPlane {
    let nics = nature.nics.iter().map(|nic| (config(nature, nic), nic.engines));
    ControlPlane::new(
        nics.map(|(config, engines)| (config.name, engines, config.interface)),
        UDP_PORT,
    )
}

/// Engines as a daemon makes them, one for each queue of each NIC.
fn runners(nature: &Nature, now: Time, random: &mut Random) -> Vec<Runner> {
    // Ethernet header and tag.
    let frame_bytes_max = usize::from(nature.mtu) + 18;
    let mut wires = Vec::new();
    let mut nic = |nic: &NicNature| {
        let mut queues = Vec::new();
        for _ in 0..nic.engines {
            let (queue, wire) = nic::queue(mac_of(nic.port), frame_bytes_max);
            wires.push((nic.port as u32, wire));
            queues.push(vec![Box::new(queue) as Box<dyn Queue>]);
        }
        (config(nature, nic), queues)
    };
    let nics = nature.nics.iter().map(&mut nic).collect();
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    let engines = Engine::of_host(nics, random.next_u64(), secret, now)
        .expect("descriptors; raise `ulimit -n`");
    let runner = |((engine, control), (port, wire))| Runner {
        engine,
        port,
        control,
        wire,
        requests: VecDeque::new(),
        alarm: Alarm::default(),
        busy_until: Time::ZERO,
        is_rung: false,
        is_asleep: false,
    };
    engines.into_iter().zip(wires).map(runner).collect()
}

fn config(nature: &Nature, nic: &NicNature) -> EngineConfig {
    EngineConfig {
        name: format!("nic-{}", nic.port),
        interface: ip::Config {
            mac: mac_of(nic.port),
            addresses: nic.subnet.addresses(nic.port, nature.versions),
            routes: nic.subnet.routes(nature.versions),
            vlan: nic.subnet.vlan,
            mtu: nature.mtu,
            mtu_max: None,
            kernel_shares: false,
            router: None,
            receive_checksum: false,
        },
        udp_port: UDP_PORT,
        idle: Idle::Spin,
        congestion: nature.congestion,
        silence_ms: if nature.host % 3 == 2 { SILENCE_MS_SHORT } else { SILENCE_MS_DEFAULT },
    }
}

/// A hidden way of choosing queues.
pub(crate) fn any_rss(random: &mut Random) -> RssOptions {
    let (_, hash) = Hash::ALL[random.below(Hash::ALL.len() as u64) as usize];
    let table_entries = if random.chance(1, 2) { 128 } else { 512 };
    RssOptions { hash, table_entries, shuffled: random.chance(1, 2) }
}
