//! NICs come and go while the daemon runs: an interface is removed and made again, or the
//! configuration names others than before.
//!
//! ```text
//!            removed, or configured otherwise
//!  Open ─────────────▶ Closing ──▶ Waiting ◀──── no ───┐
//!   ▲    (engines give back their    │ it is there     │
//!   │     queues; those are closed)  └──▶ Opening ─────┤
//!   └────────────────────── yes ───────────────────────┘
//! ```
//!
//! The engines of a NIC that is not open go on: with its apps, which reach others over the host's
//! other NICs, and with its flows, which wait for their address. What takes time, closing and
//! opening, threads do that end with it. What virtual interfaces had of the NIC it is asked for
//! again (`ledger.rs`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_channel::Code;
use clearway_control::{Lost, NicFacts};
use clearway_engine::{Engine, EngineConfig, Joined, Plug, Request as EngineRequest, ip};
use clearway_nic::{Bell, HEADER_BYTES_MAX, Queue, Unplugged};

use super::mailbox::Mailbox;
use super::neighbours::Followed;
use super::network::Following;
use super::nics::{Leftovers, NicSlot};
use super::{ControlPlane, ENGINES, NEIGHBOURS, NEWS};
use crate::Error;
use crate::config::{Config, Driver, ENGINES_MAX, Nic, NicChange};
use crate::host::{dealt, log_nic, random};
use crate::nic::{self, OpenNic};
use crate::opener::Means;

/// Time between two looks for an interface that is not there.
const GONE_PAUSE: Duration = Duration::from_millis(200);
/// Time between two attempts to open a NIC.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// What an engine is given that has no NIC yet: the most usual.
const MTU_BYTES: u16 = 1500;

/// How far a NIC has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// Its engines are giving their queues back.
    Closing,
    /// It is opened then, if it is there.
    Waiting(Instant),
    /// A thread is at it.
    Opening,
    /// The configuration names it no more.
    Removed,
}

/// Runs the engine of a NIC that comes while the daemon runs, on a thread of its own.
pub(crate) type Starter = Box<dyn Fn(Engine, &Nic, usize) -> Result<JoinHandle<()>, Error> + Send>;

/// What opens NICs while the daemon runs.
pub(super) struct Plugging {
    means: Means,
    /// Privileges that the kernel's interfaces take were kept.
    has_interfaces: bool,
    /// What tap devices take was kept.
    has_taps: bool,
    /// `None`: no engine can be added.
    starter: Option<Starter>,
    /// Engines that are to run when all others know them.
    newcomers: Vec<Newcomers>,
    threads: Vec<JoinHandle<()>>,
    tells: Sender<Opened>,
    opened: Receiver<Opened>,
    bell: Arc<Bell>,
}

struct Newcomers {
    nic: usize,
    engines: Vec<Engine>,
    /// Those that do not know them yet.
    unanswered: BTreeSet<usize>,
}

/// What has come of an attempt.
struct Opened {
    nic: usize,
    /// That of the NIC when it began.
    attempt: u64,
    result: Result<OpenNic, clearway_nic::Error>,
}

impl Plugging {
    pub(super) fn new(config: &Config) -> io::Result<Self> {
        let (tells, opened) = channel();
        Ok(Self {
            means: Means::Own(None),
            has_interfaces: config.uses_kernel_interfaces(),
            has_taps: config.uses_taps(),
            starter: None,
            newcomers: Vec::new(),
            threads: Vec::new(),
            tells,
            opened,
            bell: Arc::new(Bell::new()?),
        })
    }

    /// Why a NIC cannot be opened by a daemon that runs, if so.
    fn refuses(&self, nic: &Nic) -> Option<&'static str> {
        match nic.driver {
            Driver::Dpdk(_) => Some("DPDK opens its devices when it starts"),
            Driver::Interface(_) | Driver::Udp if !self.has_interfaces => Some(
                "a daemon that had no interface of the kernel when it started has given up what \
                 that takes",
            ),
            Driver::Tap(_) if !self.has_taps => {
                Some("a daemon that had no tap device when it started has given up what that takes")
            }
            _ => None,
        }
    }
}

impl AsFd for Plugging {
    /// Readable when something has come of an attempt.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl std::fmt::Debug for Plugging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugging").field("means", &self.means).finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// How NICs are opened from now on, and what runs the engines of new ones. Before
    /// [`ControlPlane::run`].
    pub(crate) fn open_by(&mut self, means: Means, starter: Starter) {
        (self.plugging.means, self.plugging.starter) = (means, Some(starter));
    }

    // ---- what the configuration says ----

    /// Why a NIC needs a restart, if so. `engines`: how many there will be with those of NICs that
    /// come, to which this one's are added.
    pub(super) fn refuses(&self, nic: &Nic, engines: &Cell<usize>) -> Option<String> {
        if let Some(why) = self.plugging.refuses(nic) {
            return Some(why.to_owned());
        }
        if let Some(slot) = self.nics.iter().find(|slot| slot.name == nic.name) {
            return slot.config.keeps(nic).map(str::to_owned);
        }
        let with_its = engines.get() + nic.engines;
        if with_its > ENGINES_MAX {
            return Some(format!("with those that were removed there were {with_its} engines"));
        }
        engines.set(with_its);
        None
    }

    /// Returns which NICs cannot come to the host, and why.
    pub(super) fn change_nics(&mut self, changes: &[NicChange]) -> Vec<(String, Error)> {
        let mut failed = Vec::new();
        for change in changes {
            match change {
                NicChange::New(nic) | NicChange::Other(nic) => {
                    if let Err(error) = self.configure(nic) {
                        tracing::error!(nic = nic.name, "the NIC cannot be added: {error}");
                        failed.push((nic.name.clone(), error));
                    }
                }
                NicChange::Gone(name) => {
                    if let Some(index) = self.nic_named(name) {
                        self.plane.set_removed(index, true);
                        self.close_nic(index, "the configuration names it no more");
                    }
                }
            }
        }
        failed
    }

    fn nic_named(&self, name: &str) -> Option<usize> {
        self.nics.iter().position(|slot| slot.name == name)
    }

    /// A NIC is to be like this from now on.
    fn configure(&mut self, nic: &Nic) -> Result<(), Error> {
        let Some(index) = self.nic_named(&nic.name) else { return self.add_nic(nic) };
        self.plane.set_removed(index, false);
        let slot = &mut self.nics[index];
        slot.config.clone_from(nic);
        match slot.stage {
            Stage::Open => self.close_nic(index, "it is configured otherwise"),
            // What is being opened is as it was configured before.
            Stage::Opening => slot.attempt += 1,
            Stage::Removed | Stage::Waiting(_) => slot.stage = Stage::Waiting(Instant::now()),
            Stage::Closing => {}
        }
        Ok(())
    }

    /// A NIC that there was not: its engines come to the host, and wait for it.
    fn add_nic(&mut self, nic: &Nic) -> Result<(), Error> {
        let failed = |error: io::Error| Error::resources("make an engine", error);
        let network = no_network(nic);
        let queues = (0..nic.engines).map(|_| -> Result<Vec<Box<dyn Queue>>, Error> {
            Ok(vec![unplugged(network.mac, frame_bytes_of(&network), "it is not open yet")?])
        });
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let config = EngineConfig {
            name: nic.name.clone(),
            interface: network.clone(),
            udp_port: self.config.udp_port,
            congestion: self.config.congestion,
            silence_ms: self.config.silence.as_millis() as u32, // bounded by the configuration
            idle: nic.idle,
        };
        let controls: Vec<_> = self.mailboxes.iter().map(Mailbox::control).collect();
        let nics = self.plane.nics().iter();
        let nics: Vec<_> = nics.map(|nic| (nic.engines.clone(), &nic.interface)).collect();
        let (seed, _) = random().map_err(|error| failed(error.into()))?;
        let now = self.facts.clock.now();
        let joined = Engine::join(&controls, &nics, &config, queues, seed, self.secret, now);
        let Joined { engines: made, meetings } = joined.map_err(failed)?;
        let (engines, controls): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        let mailboxes: Vec<_> = controls.into_iter().map(Mailbox::new).collect();
        // Nobody knows of them yet: if this fails, they have never been there.
        for (mailbox, token) in mailboxes.iter().zip(ENGINES + self.mailboxes.len() as u64..) {
            self.watch(mailbox.as_fd(), token).map_err(|error| failed(error.into()))?;
        }
        let mut unanswered = BTreeSet::new();
        for (index, meeting) in meetings.into_iter().enumerate() {
            if !self.plane.engines()[index].has_ended {
                self.mailboxes[index].post(meeting);
                unanswered.insert(index);
            }
        }
        self.mailboxes.extend(mailboxes);
        let (has_steering, only_messages) = nic::kind(&nic.driver);
        let facts = NicFacts {
            name: nic.name.clone(),
            engines: engines.iter().map(|engine| engine.name().to_owned()).collect(),
            interface: network,
            has_steering,
            only_messages,
        };
        self.plane.add_nic(&facts);
        let index = self.nics.len();
        self.nics.push(NicSlot::not_open(nic.clone()));
        self.plugging.newcomers.push(Newcomers { nic: index, engines, unanswered });
        self.start_newcomers();
        self.carry_out();
        Ok(())
    }

    /// An engine knows the newcomers that it was told of first.
    pub(super) fn have_met(&mut self, engine: usize) {
        for newcomers in &mut self.plugging.newcomers {
            if newcomers.unanswered.remove(&engine) {
                break;
            }
        }
        self.start_newcomers();
    }

    fn start_newcomers(&mut self) {
        let are_known = |newcomers: &mut Newcomers| newcomers.unanswered.is_empty();
        // One that cannot be started is one less for which others wait.
        loop {
            let known = self.plugging.newcomers.extract_if(.., are_known).next();
            let Some(known) = known else { return };
            self.start(known);
        }
    }

    fn start(&mut self, newcomers: Newcomers) {
        let Some(starter) = &self.plugging.starter else { return };
        for (number, engine) in newcomers.engines.into_iter().enumerate() {
            match starter(engine, &self.nics[newcomers.nic].config, number) {
                Ok(thread) => self.plugging.threads.push(thread),
                Err(error) => {
                    tracing::error!("{error}");
                    // It answers nothing, and nobody is to wait for it.
                    let index = self.plane.nics()[newcomers.nic].engines.start + number;
                    self.mailboxes[index].close();
                    self.plane.handle_ended(index);
                    for others in &mut self.plugging.newcomers {
                        others.unanswered.remove(&index);
                    }
                }
            }
        }
    }

    /// Waits for the threads of engines that came while the daemon ran, which have ended.
    pub(super) fn join_newcomers(&mut self) {
        for thread in self.plugging.threads.drain(..) {
            // A panic has been reported by the control plane.
            let _ = thread.join();
        }
    }

    // ---- closing ----

    /// Has the engines of a NIC give back their queues, and closes it.
    pub(super) fn close_nic(&mut self, nic: usize, why: &str) {
        let slot = &mut self.nics[nic];
        slot.attempt += 1;
        slot.trouble = why.to_owned();
        let was_open = slot.stage == Stage::Open;
        if !was_open {
            if slot.stage != Stage::Closing && slot.stage != Stage::Opening {
                self.is_closed(nic);
            }
            return;
        }
        tracing::warn!(nic = slot.name, "the NIC is closed: {why}");
        slot.stage = Stage::Closing;
        slot.leave_kernel();
        let known = &self.plane.nics()[nic];
        let (addresses, routes) = (Vec::new(), Vec::new());
        let network = ip::Config { addresses, routes, ..known.interface.clone() };
        let (mac, frame_bytes) = (network.mac, slot.frame_bytes);
        let queues = known.engines.clone().map(|_| {
            let queues = vec![unplugged(mac, frame_bytes, why)?];
            Ok(Plug { queues, copies: None })
        });
        match queues.collect::<Result<Vec<Plug>, Error>>() {
            Ok(plugs) => self.plug(nic, plugs, &network),
            Err(error) => tracing::error!(nic = self.nics[nic].name, "{error}"),
        }
    }

    /// Gives the engines of a NIC their queues, and all engines its network.
    fn plug(&mut self, nic: usize, plugs: Vec<Plug>, network: &ip::Config) {
        self.plane.set_network(nic, network);
        let mut plugs = plugs.into_iter();
        for (engine, mailbox) in self.plane.engines().iter().zip(&mut self.mailboxes) {
            let network = Box::new(network.clone());
            if engine.nic != nic {
                mailbox.post(EngineRequest::NetworkElsewhere { nic, network });
            } else if let Some(plug) = plugs.next().filter(|_| !engine.has_ended) {
                mailbox.post(EngineRequest::Plug { plug: Box::new(plug), network });
                self.nics[nic].unanswered += 1;
            }
        }
        self.carry_out();
    }

    /// An engine has given up the queues that it had.
    pub(super) fn unplugged(&mut self, engine: usize, plug: Plug) {
        let nic = self.plane.engines()[engine].nic;
        let slot = &mut self.nics[nic];
        slot.leftovers.plugs.push(plug);
        slot.unanswered = slot.unanswered.saturating_sub(1);
        if slot.unanswered > 0 {
            return;
        }
        match slot.stage {
            Stage::Closing => self.is_closed(nic),
            // What was there instead of a NIC.
            _ => slot.leftovers.plugs.clear(),
        }
    }

    /// No engine has anything of the NIC any more.
    fn is_closed(&mut self, nic: usize) {
        let slot = &mut self.nics[nic];
        let leftovers = std::mem::take(&mut slot.leftovers);
        // The kernel takes its time to take an XDP program off, and to give a queue back.
        slot.closing = in_background("close NIC", move || drop::<Leftovers>(leftovers));
        slot.stage = if self.plane.nics()[nic].is_removed {
            Stage::Removed
        } else {
            Stage::Waiting(Instant::now())
        };
    }

    // ---- opening ----

    /// When [`ControlPlane::advance_nics`] has something to do.
    pub(super) fn nics_due(&self) -> Option<Instant> {
        let due = |slot: &NicSlot| match slot.stage {
            Stage::Waiting(due) => Some(due),
            _ => None,
        };
        self.nics.iter().filter_map(due).min()
    }

    /// Opens those NICs that are there now.
    pub(super) fn advance_nics(&mut self) {
        let now = Instant::now();
        for nic in 0..self.nics.len() {
            let is_due = matches!(self.nics[nic].stage, Stage::Waiting(due) if due <= now);
            if is_due && self.shutdown_deadline.is_none() {
                self.begin_opening(nic, now);
            }
        }
    }

    fn begin_opening(&mut self, nic: usize, now: Instant) {
        let slot = &mut self.nics[nic];
        if let Some(name) = nic::missing_interface(&slot.config) {
            slot.be_in_trouble(format!("{name} is not there, or not up; it is waited for"));
            slot.stage = Stage::Waiting(now + GONE_PAUSE);
            return;
        }
        let (config, closing, attempt) = (slot.config.clone(), slot.closing.take(), slot.attempt);
        let (means, udp_port) = (self.plugging.means.clone(), self.config.udp_port);
        let (tells, bell) = (self.plugging.tells.clone(), Arc::clone(&self.plugging.bell));
        let thread = in_background("open NIC", move || {
            if let Some(closing) = closing {
                let _ = closing.join(); // what it dropped does not panic
            }
            let result = nic::open(&config, udp_port, &means);
            let _ = tells.send(Opened { nic, attempt, result }); // nobody waits at the end
            bell.ring();
        });
        let started = thread.is_some();
        slot.stage = if started { Stage::Opening } else { Stage::Waiting(now + RETRY_PAUSE) };
    }

    pub(super) fn take_opened(&mut self) {
        self.plugging.bell.silence();
        while let Ok(Opened { nic, attempt, result }) = self.plugging.opened.try_recv() {
            let slot = &mut self.nics[nic];
            match result {
                Ok(opened) if attempt == slot.attempt => self.install(nic, opened),
                // It is to be another, or none, by now.
                Ok(opened) => {
                    slot.leftovers.opened = Some(opened);
                    self.is_closed(nic);
                }
                Err(_) if self.plane.nics()[nic].is_removed => self.is_closed(nic),
                Err(error) => {
                    slot.be_in_trouble(error.to_string());
                    slot.stage = Stage::Waiting(Instant::now() + RETRY_PAUSE);
                }
            }
        }
    }

    /// A NIC is open: its engines get it, and virtual interfaces what they had of it.
    fn install(&mut self, nic: usize, opened: OpenNic) {
        let slot = &mut self.nics[nic];
        log_nic(&slot.config, &opened);
        slot.stage = Stage::Open;
        slot.trouble = String::new();
        let OpenNic { queues, copies, interface, kernel } = opened;
        slot.frame_bytes = frame_bytes(&queues, &interface);
        slot.take_kernel(kernel);
        let lost = slot.ask_again();
        let is_there = nic::missing_interface(&slot.config).is_none();
        for (lost, error) in lost {
            if !is_there {
                // It has gone again, which ends nothing: whoever opens it once more asks again.
                tracing::warn!(nic = slot.name, "an interface of apps has no frames yet: {error}");
                continue;
            }
            tracing::error!(nic = slot.name, "interfaces of apps are closed: {error}");
            let why = format!("the NIC was opened again, and does not give it any more: {error}");
            let code = match (lost, &error) {
                (Lost::Port(_), clearway_nic::Error::Invalid(_)) => Code::AddressInUse,
                _ => Code::Refused,
            };
            self.plane.handle_lost(nic, lost, code, &why);
        }
        if let Err(error) = self.watch_kernel(nic) {
            tracing::error!(%error, "cannot watch the kernel's news of a NIC");
        }
        let plug = |queues| Plug { queues, copies: None };
        let mut plugs: Vec<Plug> =
            dealt(queues, self.nics[nic].config.engines).into_iter().map(plug).collect();
        if let Some(first) = plugs.first_mut() {
            first.copies = copies;
        }
        self.plug(nic, plugs, &interface);
    }

    /// Has the kernel's news of a NIC end a wait.
    pub(super) fn watch_kernel(&self, nic: usize) -> rustix::io::Result<()> {
        let slot = &self.nics[nic];
        if let Some(neighbours) = &slot.neighbours {
            self.watch(Followed::as_fd(neighbours), NEIGHBOURS + nic as u64)?;
        }
        if let Some(following) = &slot.following {
            self.watch(Following::as_fd(following), NEWS + nic as u64)?;
        }
        Ok(())
    }
}

/// Room for a frame to be sent.
pub(crate) fn frame_bytes(queues: &[Box<dyn Queue>], network: &ip::Config) -> usize {
    let first = queues.first().map(|queue| queue.capabilities().frame_bytes_max);
    first.unwrap_or_else(|| frame_bytes_of(network))
}

fn frame_bytes_of(network: &ip::Config) -> usize {
    usize::from(network.mtu) + HEADER_BYTES_MAX
}

fn unplugged(
    mac: clearway_nic::MacAddress,
    frame_bytes: usize,
    why: &str,
) -> Result<Box<dyn Queue>, Error> {
    let failed = |error| Error::resources("stand in for a NIC", io::Error::other(error));
    Ok(Box::new(Unplugged::new(mac, frame_bytes, why).map_err(failed)?))
}

/// What is known of the network of a NIC that has not been opened.
fn no_network(nic: &Nic) -> ip::Config {
    ip::Config {
        mac: [0; 6],
        addresses: Vec::new(),
        routes: Vec::new(),
        vlan: nic.vlan,
        mtu: nic.mtu_bytes.unwrap_or(MTU_BYTES),
        mtu_max: None,
        kernel_shares: false,
        router: nic::router(&nic.driver),
        receive_checksum: false,
    }
}

/// What takes time, on a thread that ends with it.
fn in_background(name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|error| tracing::error!(%error, "cannot start a thread")).ok()
}
