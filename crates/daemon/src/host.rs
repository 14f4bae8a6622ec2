//! Opening a host: its NICs, the engines on each, and the control plane over them.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use clearway_control::{NicFacts, Plane, Settings};
use clearway_engine::{Clock, Engine, EngineConfig, Group, Idle, WakeUpTimer, ip};
use clearway_nic::memif::Connect;
use nix::net::if_::InterfaceFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::broker::{Broker, Order};
use crate::config::{Config, Driver, Network, Nic};
use crate::confinement::Confinement;
use crate::control::{ControlPlane, Mailbox, NicSlot, Signals, Starter, Stopper, frame_bytes};
use crate::metrics::{Counted, Metrics};
use crate::nic::OpenNic;
use crate::opener::{Means, Opener};
use crate::privileges::OwnUser;
use crate::socket::Listener;
use crate::{Error, confinement, log, nic, privileges};

/// Time between two looks for interfaces that are not there yet.
const INTERFACES_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A host that is open: the control socket takes connections and the NICs take frames, but nobody
/// serves them yet.
#[derive(Debug)]
pub struct Host {
    /// To be run by one thread: [`ControlPlane::run`].
    pub control: ControlPlane,
    /// Those of the first NIC of the configuration, then those of the next; each to be run by a
    /// [`Group`].
    pub engines: Vec<Engine>,
}

impl Host {
    /// Opens everything that the configuration names. Whoever runs the engines does so with the
    /// same `clock`; engines of several hosts may share a [`Group`] if their hosts share a clock.
    pub fn open(config: &Config, clock: &Clock) -> Result<Self, Error> {
        Self::open_with(config, clock, WakeUpTimer::start().wake_up().ns(), None)
    }

    /// The same, for a process that will not be able to connect by itself.
    fn open_with(
        config: &Config,
        clock: &Clock,
        wake_up_ns: u64,
        broker: Option<&Broker>,
    ) -> Result<Self, Error> {
        // First of all, because it tells whether this host has a daemon already.
        let listener = Listener::bind(&config.control.socket, &config.policy)?;
        let (mut nics, mut facts, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let mut copies = Vec::new();
        for (index, nic) in config.nics.iter().enumerate() {
            let connector = broker.and_then(|broker| broker.connector(index));
            let opened = open_nic(nic, config.udp_port, connector)?;
            let frame_bytes = frame_bytes(&opened.queues, &opened.interface);
            let settings = EngineConfig {
                name: nic.name.clone(),
                interface: opened.interface,
                udp_port: config.udp_port,
                congestion: config.congestion,
                silence_ms: config.silence.as_millis() as u32, // bounded by the configuration
                idle: nic.idle,
            };
            facts.push(NicFacts {
                name: nic.name.clone(),
                engines: Vec::new(),
                interface: settings.interface.clone(),
                has_steering: opened.kernel.steering.is_some(),
                only_messages: opened.kernel.only_messages,
            });
            groups.push((settings, dealt(opened.queues, nic.engines)));
            copies.push(opened.copies);
            nics.push(NicSlot::new(nic.clone(), opened.kernel, frame_bytes));
        }
        let no_random = |error| Error::resources("draw random numbers", error);
        let (seed, secret) = random().map_err(no_random)?;
        let of_nics = (0..).zip(&config.nics).flat_map(|(index, nic)| vec![index; nic.engines]);
        let (mut engines, mut mailboxes) = (Vec::new(), Vec::new());
        let made = Engine::of_host(groups, seed, secret, clock.now());
        let made = made.map_err(|error| Error::resources("make an engine", error))?;
        for ((mut engine, control), nic) in made.into_iter().zip(of_nics) {
            let nic: usize = nic;
            if let Some(copies) = copies[nic].take() {
                engine
                    .set_copies(copies)
                    .map_err(|error| Error::resources("wait for copies", error))?;
            }
            facts[nic].engines.push(engine.name().to_owned());
            mailboxes.push(Mailbox::new(control));
            engines.push(engine);
        }
        let (seed, _) = random().map_err(no_random)?;
        let plane = Plane::new(settings(config, seed, wake_up_ns), facts);
        let clock = clock.clone();
        let control = ControlPlane::new(config, listener, nics, plane, mailboxes, clock, secret)?;
        Ok(Self { control, engines })
    }
}

fn settings(config: &Config, seed: u64, wake_up_ns: u64) -> Settings {
    Settings {
        policy: config.policy.clone(),
        own_user: rustix::process::geteuid().as_raw(),
        udp_port: config.udp_port,
        seed,
        wake_up_ns,
    }
}

fn open_nic(
    nic: &Nic,
    udp_port: u16,
    connector: Option<Arc<dyn Connect>>,
) -> Result<OpenNic, Error> {
    let failed = |source| Error::Nic { nic: nic.name.clone(), source };
    let opened = nic::open(nic, udp_port, &Means::Own(connector)).map_err(failed)?;
    log_nic(nic, &opened);
    Ok(opened)
}

/// Deals queues out to engines, one after the other: the first gets the first, and the one after
/// the last engine's.
pub(crate) fn dealt<T>(queues: Vec<T>, engines: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..engines).map(|_| Vec::new()).collect();
    for (index, queue) in queues.into_iter().enumerate() {
        dealt[index % engines].push(queue);
    }
    dealt
}

/// Runs a host on this process: the control plane on the calling thread, each engine on one of its
/// own. Returns when `SIGTERM` or `SIGINT` has come and the engines have said goodbye.
///
/// `path` is where the configuration was read, if it was, and will be read again. The process is to
/// be `clearwayd`: another of it is started as its broker.
pub fn run(config: &Config, path: Option<&Path>) -> Result<(), Error> {
    log::start(&config.log);
    raise_limits();
    let signals = Signals::block().map_err(|error| Error::resources("take signals", error))?;
    let clock = Clock::new();
    let timer = WakeUpTimer::start();
    let wake_up = timer.wake_up();
    tracing::debug!("a thread that slept runs after {} ns", wake_up.ns());
    let user = own_user(config)?;
    let broker = Broker::start(config, path, user.as_ref())?;
    let opener = path.map(|path| Opener::start(config, path, user.as_ref())).transpose()?;
    if !await_interfaces(config, &signals, &broker)? {
        return Ok(());
    }
    let mut host = Host::open_with(config, &clock, wake_up.ns(), Some(&broker))?;
    host.control.time_wake_ups(timer);
    host.control.stop_on(signals)?;
    let (counts, newcomers) = channel();
    let metrics = Metrics::open(config, user.as_ref(), &mut host.engines, newcomers)?;
    give_up_privileges(config, user.as_ref())?;
    host.control.confined(confined(config));
    host.control.serve_by(broker)?;
    let metrics = metrics.start()?;
    let stopper = host.control.stopper();
    let starter = move |engine: Engine, nic: &Nic, number: usize| {
        let name = engine.name().to_owned();
        let group = Group::new(vec![engine], nic.idle, clock.clone());
        let group = group.with_wake_up(wake_up.clone());
        start(name, group, nic.cores.get(number).copied(), &stopper)
    };
    let mut threads = Vec::new();
    let each = config.nics.iter().flat_map(|nic| (0..nic.engines).map(move |number| (nic, number)));
    for ((nic, number), engine) in each.zip(host.engines) {
        threads.push(starter(engine, nic, number)?);
    }
    if let Some(opener) = opener {
        let starter: Starter = Box::new(move |mut engine, nic, number| {
            let _ = counts.send(Counted::of(&nic.name, &mut engine)); // the daemon may be ending
            starter(engine, nic, number)
        });
        host.control.open_by(Means::Opener(Arc::new(opener)), starter);
    }
    host.control.run()?;
    metrics.end();
    for thread in threads {
        // A panic has been reported by the control plane.
        let _ = thread.join();
    }
    Ok(())
}

/// Waits until all interfaces are there and up: what is opened is opened before the daemon confines
/// itself. False if it is to end before.
fn await_interfaces(config: &Config, signals: &Signals, broker: &Broker) -> Result<bool, Error> {
    let failed = |error: rustix::io::Errno| Error::resources("wait for signals", error);
    let mut told: Vec<&str> = Vec::new();
    loop {
        let missing = missing_interfaces(config);
        if missing.is_empty() {
            return Ok(true);
        }
        if missing != told {
            tracing::warn!("waiting for interfaces to be there and up: {}", missing.join(", "));
            broker.tell(Order::Waiting);
            told = missing;
        }
        let mut signal = [PollFd::new(signals, PollFlags::IN)];
        match poll(&mut signal, Some(&INTERFACES_PAUSE)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        if signals.want_the_end() {
            return Ok(false);
        }
    }
}

/// The kernel's interfaces of the configuration that nobody can send through.
fn missing_interfaces(config: &Config) -> Vec<&str> {
    let there: Vec<String> = match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => interfaces
            .filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
            .map(|interface| interface.interface_name)
            .collect(),
        // Then opening them says what is wrong.
        Err(_) => return Vec::new(),
    };
    let names = config.nics.iter().filter_map(|nic| match &nic.driver {
        Driver::Interface(interface) => Some(interface.name.as_str()),
        Driver::Memif(_) | Driver::Dpdk(_) | Driver::Udp | Driver::Tap(_) => None,
    });
    names.filter(|name| there.iter().all(|other| other != name)).collect()
}

/// The user to become, for whom the directory of the control socket is made.
fn own_user(config: &Config) -> Result<Option<OwnUser>, Error> {
    let user = OwnUser::wanted(config)
        .and_then(|user| {
            user.as_ref().map(|user| user.make_directory(&config.control.socket)).transpose()?;
            Ok(user)
        })
        .map_err(|source| Error::System {
            action: "cannot find out which user to become".to_owned(),
            source,
            remedy: "name one that there is as `user` in the configuration".to_owned(),
        })?;
    if user.is_none() && rustix::process::geteuid().is_root() {
        tracing::warn!("{}", confinement::STILL_ROOT);
    }
    Ok(user)
}

fn give_up_privileges(config: &Config, user: Option<&OwnUser>) -> Result<(), Error> {
    let mut sockets = config.listening_sockets();
    let given = user.map_or(Ok(()), |user| sockets.try_for_each(|path| user.give_socket(path)));
    given.and_then(|()| privileges::drop_unneeded(config, user)).map_err(|source| Error::System {
        action: "cannot give up privileges".to_owned(),
        source,
        remedy:
            "start it as root, or as the user that it is to run as, with the capabilities that \
                 its NICs need"
                .to_owned(),
    })
}

fn confined(config: &Config) -> Confinement {
    // The first call finds out how to ask, which takes system calls that are refused from now on.
    clearway_channel::current_processor();
    if config.confine {
        confinement::confine(config)
    } else {
        Confinement::off("the configuration says `confine = false`")
    }
}

/// Runs several hosts on this process: all their engines in turn on the calling thread, each
/// control plane on a thread of its own. This is how a benchmark has both ends of a wire on one
/// core. Returns as [`run`] does.
pub fn run_together(hosts: Vec<Host>, idle: Idle, clock: Clock) -> Result<(), Error> {
    let signals = Signals::block().map_err(|error| Error::resources("take signals", error))?;
    let mut signals = Some(signals);
    let stoppers: Vec<Stopper> = hosts.iter().map(|host| host.control.stopper()).collect();
    let (mut engines, mut threads) = (Vec::new(), Vec::new());
    for mut host in hosts {
        if let Some(signals) = signals.take() {
            host.control.stop_on(signals)?;
        }
        engines.extend(host.engines);
        let stoppers = stoppers.clone();
        threads.push(std::thread::spawn(move || {
            let result = host.control.run();
            // The first to end takes the others along.
            stoppers.iter().for_each(Stopper::stop);
            result
        }));
    }
    Group::new(engines, idle, clock).run();
    for thread in threads {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(())
}

fn start(
    name: String,
    group: Group,
    core: Option<usize>,
    stopper: &Stopper,
) -> Result<std::thread::JoinHandle<()>, Error> {
    let alarm = stopper.alarm(&name);
    let thread = format!("engine {name}");
    let work = move || {
        let _alarm = alarm;
        if let Some(core) = core {
            pin(&name, core);
        }
        group.run();
    };
    std::thread::Builder::new()
        .name(thread)
        .spawn(work)
        .map_err(|error| Error::resources("start a thread", error))
}

/// Each app takes some descriptors; the soft limit is there for programs that use `select`. What is
/// shared with apps, and some of what NICs are made of, is memory with a file's size.
fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = getrlimit(resource);
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(resource, raised) {
            tracing::debug!(%error, ?resource, "a limit stays as it is");
        }
    }
    if let Some(bytes) = getrlimit(Resource::Fsize).maximum {
        tracing::warn!(
            "files may have {bytes} bytes, and no app can attach that wants more memory than that: \
             raise the limit (ulimit -f, or LimitFSIZE= of the service)"
        );
    }
}

/// An engine that cannot be pinned works, only less evenly.
fn pin(engine: &str, core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(engine, core, %error, "cannot pin the engine to its core");
    }
}

pub(crate) fn log_nic(nic: &Nic, opened: &OpenNic) {
    let addresses: Vec<String> =
        networks(&opened.interface).iter().map(ToString::to_string).collect();
    let info = opened.queues.first().map(|queue| queue.info());
    tracing::info!(
        nic = nic.name,
        driver = info.as_ref().map_or("none", |info| info.driver),
        mode = info.as_ref().map_or("", |info| &info.mode),
        queues = opened.queues.len(),
        engines = nic.engines,
        addresses = addresses.join(" "),
        mtu_bytes = opened.interface.mtu,
        idle = nic.idle.name(),
        cores = ?nic.cores,
        "NIC open"
    );
}

fn networks(interface: &ip::Config) -> Vec<Network> {
    let network = |&(address, prefix_bits): &(_, u8)| Network { address, prefix_bits };
    interface.addresses.iter().map(network).collect()
}

/// What makes flow ids and cookies unguessable.
pub(crate) fn random() -> rustix::io::Result<(u64, [u8; 16])> {
    let (mut seed, mut secret) = ([0; 8], [0; 16]);
    // Requests of up to 256 bytes are never cut short (getrandom(2)).
    getrandom(&mut seed, GetRandomFlags::empty())?;
    getrandom(&mut secret, GetRandomFlags::empty())?;
    Ok((u64::from_ne_bytes(seed), secret))
}
