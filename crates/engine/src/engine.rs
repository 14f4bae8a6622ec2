//! One engine: a single-threaded task that owns queues of a NIC, its flows, its apps' channels and
//! its timers, and shares nothing. Where several serve a NIC, lanes between them carry what came to the
//! wrong one.
//!
//! A turn (ARCHITECTURE.md, "The life of a message") takes one item from the mailbox, commands, received frames,
//! timers, and sends. It never blocks, locks or waits; it returns how much it did.
//!
//! This file is the engine and its turn; `engine/` has what a turn is made of.

mod arrivals;
mod audit;
mod commands;
mod connections;
mod departures;
mod elsewhere;
mod frames;
mod requests;
mod resolving;
mod siblings;
mod sleep;
mod staging;
mod status;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use clearway_base::{Time, counters};
use clearway_channel::{Code, Violation};
use clearway_nic::{BURST_FRAMES, Queue};
use clearway_transport::{Congestion, Endpoint};
use clearway_wire::digest::Digest;
use rustix::event::epoll;

use crate::channels::Channels;
use crate::control::{Control, Mailbox, mailbox};
use crate::idle::Idle;
use crate::ip::{self, Interface};
use crate::lanes::{self, Lanes, Parcel, What};
use crate::paths::Paths;
use crate::services;
use crate::switch::Switch;
use elsewhere::{HEADERS_BYTES_MAX, OtherNic};
use resolving::Resolving;
use staging::Staging;
use status::Gathering;

/// Packets sent in one turn.
const TRANSMIT_BURST: usize = 64;
/// Connections whose apps are told, in a turn without other work, of sends that no message has told of:
/// a few microseconds.
const SENT_TOLD_PER_TURN: usize = 256;

/// The UDP port of all Clearway hosts, if nothing else is said.
pub const UDP_PORT_DEFAULT: u16 = 20707;

/// The queues of one engine; the first sends.
type Queues = Vec<Box<dyn Queue>>;

/// What an engine is given by the configuration.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The engine's name, or that of the NIC, if there are several.
    pub name: String,
    /// Addresses, neighbours, MTU.
    pub interface: ip::Config,
    /// The UDP port of all Clearway daemons of this network.
    pub udp_port: u16,
    /// The idle strategy of the group that will run it, for status.
    pub idle: Idle,
    /// How its flows find out how much they may send.
    pub congestion: Congestion,
}

/// Whether frames of virtual interfaces pass the switch's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Each frame's owner is looked up, and each sender's right is checked.
    #[default]
    On,
    /// For measuring what checking costs, and for nothing else: what comes is the first virtual
    /// interface's, and what a virtual interface sends goes to the NIC, whatever it is.
    Off,
}

counters! {
    /// What the engine itself counts.
    pub struct EngineCounters {
        /// Frames that were nobody's here.
        frames_unclaimed,
        /// Packets that were not sent because the neighbour was not known.
        packets_unresolved,
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something was done: the engine should not idle yet.
    pub is_busy: bool,
    /// An app has something new to read.
    pub told_apps: bool,
    /// One of those waits for the core that the engine runs on.
    pub told_neighbour: bool,
}

/// How a frame came to where it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    /// From the engine's own queue.
    Queue,
    /// From a VIF or service of this host that another engine of the NIC has.
    Lane,
    /// From another engine of the NIC, whose queue it came to.
    QueueAndLane,
    /// From a VIF of this engine.
    Vif,
    /// From the host's own services here.
    Host,
}

impl Via {
    /// True if another engine has handed it over.
    const fn is_lane(self) -> bool {
        matches!(self, Self::Lane | Self::QueueAndLane)
    }

    /// What the engine is told that the frame is handed to now.
    const fn parcel(self) -> What {
        match self {
            Self::Queue => What::Arrival,
            _ => What::Frame,
        }
    }
}

/// One engine. Made on one thread, run on another by [`crate::Group`].
pub struct Engine {
    queues: Vec<Box<dyn Queue>>,
    /// Where copies come of what goes to others.
    copies: Option<Box<dyn Queue>>,
    core: Core,
    mailbox: Mailbox,
    /// Everything that can end a sleep.
    sleep: OwnedFd,
    /// Snapshots that were asked for, the first of which is being gathered.
    gatherings: VecDeque<Gathering>,
    /// Channels whose apps are gone and whose connections are being ended, the first of them now.
    leaving: VecDeque<u32>,
    has_ended: bool,
    /// Told to end: at this time at the latest, and before when all peers have been told.
    end_by: Option<Time>,
    /// There was nothing to do until now: see [`Engine::rested`].
    has_rested: bool,
    /// The link was up when last seen.
    was_up: bool,
    turns: u64,
    turns_busy: u64,
}

/// All of an engine but its queues, so that a queue can hand frames to it.
struct Core {
    config: EngineConfig,
    interface: Interface,
    switch: Switch,
    endpoint: Endpoint,
    channels: Channels,
    paths: Paths,
    resolving: Resolving,
    /// The NICs that other engines of the host serve.
    elsewhere: Vec<OtherNic>,
    /// To the host's other engines.
    lanes: Lanes,
    /// A packet waits for room in a lane.
    waits_for_lane: bool,
    /// The queue has frames of other NICs' engines that it has not been told of.
    relayed_unflushed: bool,
    /// Which of them listen on a service port.
    listeners_elsewhere: HashMap<u16, usize>,
    /// Empty; kept for its memory.
    parcels: Vec<Parcel>,
    /// Apps that broke the contract since the last turn.
    violations: Vec<(u32, Violation)>,
    /// Pings that could not be sent.
    failed_pings: Vec<(u64, Code)>,
    /// Where packets are written that cannot be sent.
    scratch: Vec<u8>,
    /// Where frames of apps are looked at before they leave.
    staging: Staging,
    /// Where the digests of a burst that has come are made.
    digests: Box<[Digest]>,
    checks: Checks,
    /// Where the engine's thread runs, if it has one of its own.
    processor: Option<u32>,
    counters: EngineCounters,
}

/// Which apps a turn has told something.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Any.
    apps: bool,
    /// There is more to tell, in the next turn.
    more: bool,
    /// One that waits for this core.
    neighbour: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("name", &self.core.config.name).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine on `queues`, the first of which sends, and its control. `seed` and `secret` are
    /// random; whoever knows them can forge flow ids and cookies.
    pub fn new(
        config: EngineConfig,
        queues: Vec<Box<dyn Queue>>,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<(Self, Control)> {
        let lanes = lanes::between(&[1])?.remove(0);
        Self::with_lanes(config, queues, Vec::new(), lanes, seed, secret, now)
    }

    /// The engines of one NIC, each with its control, on the queues of each; the first of those sends.
    /// They are called after `config`, with their numbers: `eth0/0`. Whatever one is asked to listen on,
    /// open or capture, the others have to be asked to note.
    ///
    /// # Panics
    /// If there is no engine, or more than 64.
    pub fn siblings(
        config: &EngineConfig,
        queues: Vec<Vec<Box<dyn Queue>>>,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<Vec<(Self, Control)>> {
        Self::of_host(vec![(config.clone(), queues)], seed, secret, now)
    }

    /// The same for all NICs of a host: first the engines of the first, then those of the next. What an
    /// app is to reach over any of them, it reaches from each engine. Whatever one is asked to listen on,
    /// all others have to be asked to note; what it is asked to open or capture, those of its NIC.
    ///
    /// # Panics
    /// If there is no engine, or more than 64.
    pub fn of_host(
        nics: Vec<(EngineConfig, Vec<Queues>)>,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<Vec<(Self, Control)>> {
        let counts: Vec<usize> = nics.iter().map(|(_, queues)| queues.len()).collect();
        let interfaces: Vec<_> = nics.iter().map(|(config, _)| config.interface.clone()).collect();
        let each = nics.into_iter().enumerate().flat_map(|(nic, (config, queues))| {
            let numbered = queues.into_iter().enumerate();
            numbered.map(move |(number, queues)| {
                let name = format!("{}/{number}", config.name);
                (nic, EngineConfig { name, ..config.clone() }, queues)
            })
        });
        let engines = lanes::between(&counts)?.into_iter().zip(each).zip(0u64..);
        engines
            .map(|((lanes, (nic, config, queues)), number)| {
                let others = others(nic, &interfaces, &counts);
                let seed = seed.wrapping_add(number);
                Self::with_lanes(config, queues, others, lanes, seed, secret, now)
            })
            .collect()
    }

    fn with_lanes(
        config: EngineConfig,
        queues: Vec<Box<dyn Queue>>,
        elsewhere: Vec<OtherNic>,
        lanes: Lanes,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<(Self, Control)> {
        let (control, mailbox) = mailbox()?;
        let sleep = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&sleep, mailbox.bell(), epoll::EventData::new_u64(0), readable)?;
        epoll::add(&sleep, lanes.bell(), epoll::EventData::new_u64(0), readable)?;
        for queue in &queues {
            if let Some(fd) = queue.wait_fd() {
                epoll::add(&sleep, fd, epoll::EventData::new_u64(0), readable)?;
            }
        }
        let is_first = lanes.index() == lanes.siblings().start;
        let interface = if is_first {
            Interface::new(&config.interface)
        } else {
            Interface::silent(&config.interface)
        };
        let transport = clearway_transport::Config {
            engine_index: lanes.index() as u8, // at most ENGINES_MAX
            engine_count: lanes.siblings().len() as u8,
            packet_bytes_max: config
                .interface
                .mtu
                .saturating_sub(headers_length(&config.interface)),
            congestion: config.congestion,
            ..clearway_transport::Config::default()
        };
        let switch =
            Switch::new(interface.mac(), services::entries(&config.interface, config.udp_port));
        let mut core = Core {
            interface,
            switch,
            endpoint: Endpoint::new(transport, now, seed, secret),
            channels: Channels::default(),
            paths: Paths::default(),
            resolving: Resolving::default(),
            elsewhere,
            lanes,
            waits_for_lane: false,
            relayed_unflushed: false,
            listeners_elsewhere: HashMap::new(),
            parcels: Vec::new(),
            violations: Vec::new(),
            failed_pings: Vec::new(),
            scratch: vec![0; usize::from(config.interface.mtu) + HEADERS_BYTES_MAX],
            staging: Staging::new(),
            digests: vec![Digest::default(); BURST_FRAMES].into(),
            checks: Checks::On,
            processor: None,
            counters: EngineCounters::default(),
            config,
        };
        core.note_own_addresses();
        let engine = Self {
            queues,
            copies: None,
            core,
            mailbox,
            sleep,
            gatherings: VecDeque::new(),
            leaving: VecDeque::new(),
            has_ended: false,
            end_by: None,
            has_rested: false,
            was_up: false,
            turns: 0,
            turns_busy: 0,
        };
        Ok((engine, control))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.config.name
    }

    /// Has the engine look at copies that come by a queue of their own: of frames that go to others, such
    /// as the kernel. They are shown to virtual interfaces that want some, here and at the other engines
    /// of the NIC, and learnt from; they belong to nobody and are not answered.
    pub fn set_copies(&mut self, copies: Box<dyn Queue>) -> io::Result<()> {
        if let Some(fd) = copies.wait_fd() {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&self.sleep, fd, data, epoll::EventFlags::IN)?;
        }
        self.copies = Some(copies);
        Ok(())
    }

    /// Switches checking off, or on again. For benchmarks: no configuration and no request leads here.
    pub fn set_checks(&mut self, checks: Checks) {
        self.core.checks = checks;
    }

    /// True after [`crate::Request::Shutdown`], once the control plane has been told everything: the
    /// engine is not to be run any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended && !self.mailbox.has_waiting()
    }

    /// Whoever runs the engine has left it alone because there was nothing to do, and not because its core
    /// was wanted: what comes in the next turn has come just now. Else it is taken to have waited since
    /// the last turn, which is a delay, but none of the network.
    pub const fn rested(&mut self) {
        self.has_rested = true;
    }

    /// Tells apps, with what they are told next, that the engine runs on this processor.
    pub fn runs_on(&mut self, processor: u32) {
        self.core.processor = Some(processor);
    }

    /// One turn.
    pub fn turn(&mut self, now: Time) -> Turn {
        let mut work = 0;
        if !self.mailbox.is_empty() {
            work += self.take_request(now);
        }
        if !self.gatherings.is_empty() {
            work += self.gather();
        }
        if !self.leaving.is_empty() {
            work += self.go_on_leaving();
        }
        if self.core.channels.wants_doorbells(now) {
            self.take_doorbells();
        }
        work += self.core.take_commands(now);
        self.core.endpoint.begin_turn(now, core::mem::take(&mut self.has_rested));
        for queue in &mut self.queues {
            let core = &mut self.core;
            work += queue
                .receive(BURST_FRAMES, &mut |frames| core.handle_burst(now, frames, Via::Queue));
        }
        if let Some(queue) = &mut self.copies {
            let core = &mut self.core;
            work += queue.receive(BURST_FRAMES, &mut |frames| core.handle_copies(now, frames));
        }
        if let Some(queue) = self.queues.first_mut() {
            work += self.core.take_from_siblings(now, queue.as_mut());
        }
        work += self.core.handle_timeouts(now);
        if self.core.may_transmit() {
            work += self.transmit(now);
        }
        self.core.switch.end_turn(&mut self.core.channels);
        let told = self.core.finish(now, work == 0);
        self.core.lanes.flush();
        if work == 0 {
            self.watch_link(now);
        }
        self.report_violations();
        self.end_if_due(now);
        self.tell_control();
        let is_busy = work > 0 || told.apps || told.more;
        self.turns += 1;
        self.turns_busy += u64::from(is_busy);
        Turn { is_busy, told_apps: told.apps, told_neighbour: told.neighbour }
    }

    /// The part of a turn that an app waits for which has just submitted something: its commands are
    /// taken, and what they send leaves. All else is left to the next turn, which has to be soon.
    pub(crate) fn send(&mut self, now: Time) {
        self.core.take_commands(now);
        self.transmit(now);
    }

    /// Builds packets just in time, as many as the queue has descriptors for.
    fn transmit(&mut self, now: Time) -> usize {
        let Some(queue) = self.queues.first_mut() else { return 0 };
        let (core, queue) = (&mut self.core, queue.as_mut());
        let mut queued = core.send_own(now, queue, TRANSMIT_BURST);
        let mut work = queued;
        let messages = core.send_messages(now, queue, TRANSMIT_BURST - work.min(TRANSMIT_BURST));
        queued += messages.queued;
        work += messages.taken;
        if core.switch.has_senders() {
            let sending = core.send_frames(now, queue, TRANSMIT_BURST);
            queued += sending.queued;
            work += sending.taken;
        }
        if queued > 0 {
            queue.flush();
        }
        work
    }

    /// A link that has come up may lead to new neighbours, who are to hear of our address.
    fn watch_link(&mut self, now: Time) {
        let is_up = self.queues.first().is_some_and(|queue| queue.link_up());
        if is_up && !self.was_up {
            self.core.interface.handle_link_up(now);
        }
        self.was_up = is_up;
    }
}

impl Core {
    /// False if there is surely nothing to send.
    #[inline]
    fn may_transmit(&self) -> bool {
        self.endpoint.has_waiting()
            || self.interface.has_output()
            || self.switch.has_senders()
            || !self.elsewhere.is_empty()
    }

    /// Returns how many attempts to connect went on.
    fn handle_timeouts(&mut self, now: Time) -> usize {
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeouts(now, &mut self.channels);
        }
        if self.interface.poll_timeout().is_some_and(|due| due <= now) {
            self.interface.handle_timeout(now);
        }
        for other in &mut self.elsewhere {
            if other.interface.poll_timeout().is_some_and(|due| due <= now) {
                other.interface.handle_timeout(now);
            }
        }
        self.go_on_resolved(now)
    }

    /// Ends a turn: wakes apps that have something new.
    fn finish(&mut self, now: Time, is_idle: bool) -> Told {
        let (mut told, mut tellable) = (Told::default(), SENT_TOLD_PER_TURN);
        for index in 0..self.channels.polled_count() {
            let Some(channel) = self.channels.polled(index) else { continue };
            if channel.has_pending() {
                channel.tell_pending();
            }
            if is_idle && channel.has_untold() {
                tellable -= channel.tell_sent(tellable);
                told.more |= channel.has_untold();
            }
            if channel.end.flush() {
                channel.busy_at = now;
                told.apps = true;
                told.neighbour |=
                    self.processor.is_some_and(|processor| channel.end.meet(processor));
            }
        }
        self.channels.park_silent(now);
        told
    }

    /// The neighbour is not known: the packet counts as lost on the wire.
    fn skip(&mut self, now: Time, destination: clearway_transport::Destination) {
        self.counters.packets_unresolved += 1;
        self.endpoint.skip_transmit(now, destination, &mut self.scratch, &self.channels);
    }
}

/// What an engine of a NIC knows of the others, which have so many engines each.
fn others(nic: usize, interfaces: &[ip::Config], counts: &[usize]) -> Vec<OtherNic> {
    let mut first = 0;
    let all = interfaces.iter().zip(counts).enumerate().map(|(number, (config, count))| {
        let engines: Range<usize> = first..first + count;
        first = engines.end;
        (number, engines, config)
    });
    all.filter(|(number, ..)| *number != nic)
        .map(|(number, engines, config)| OtherNic::new(number, engines, config))
        .collect()
}

/// IP and UDP headers of a packet to this network.
fn headers_length(config: &ip::Config) -> u16 {
    let is_v6 = config.addresses.iter().any(|(address, _)| address.is_ipv6());
    if is_v6 { 40 + 8 } else { 20 + 8 }
}
