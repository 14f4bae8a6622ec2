//! One engine: a single-threaded task that owns queues of a NIC, its flows, its apps' channels and
//! its timers, and shares nothing. Where several serve a NIC, lanes between them carry what came to
//! the wrong one.
//!
//! A turn (ARCHITECTURE.md, "The life of a message") takes one item from the mailbox, commands,
//! received frames, timers, and sends. It never blocks, locks or waits; it returns how much it did.
//!
//! This file is the engine and its turn, which composes the components (`component.rs`); `engine/`
//! has what is between them: whose a command is, whose a frame is, and what is told to whom.

mod arrivals;
mod audit;
mod bursts;
mod commands;
mod lingering;
mod looks;
mod parcels;
mod plugging;
mod requests;
mod sleep;
mod state;
mod status;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use clearway_base::{MILLISECOND, SteadyClock, Time};
use clearway_nic::{BURST_FRAMES, Checksums, HEADER_BYTES_MAX, Queue, Receiver, Together};
use clearway_transport::{Congestion, Endpoint};
use clearway_wire::digest::Digest;
use clearway_wire::{ipv6, udp};
use rustix::event::epoll;

use crate::board::Writer;
use crate::captures::Captures;
use crate::channels::{Channels, Told};
use crate::common::{Common, EngineCounters, Via};
use crate::component::{Component, NoExtra, Outlet, Sending};
use crate::control::{Control, Mailbox, Newcomers, Request, mailbox};
#[cfg(feature = "unchecked")]
use crate::frames::Checks;
use crate::frames::Frames;
use crate::host::{Host, OtherNic};
use crate::idle::Idle;
use crate::ip::{self, Interface};
use crate::lanes::{self, Lanes, Parcel};
use crate::loopback::Loopback;
use crate::messages::Messages;
use crate::services::{self, Entry};
use crate::state::LingeringState;
use crate::switch::Switch;
use crate::tcp::Tcp;
use bursts::Bursts;
use looks::Looks;
pub use state::Remains;
use status::Gathering;

/// Packets sent in one turn.
const TRANSMIT_BURST: usize = 64;

/// The UDP port of all Clearway hosts, if nothing else is said.
pub const UDP_PORT_DEFAULT: u16 = 20707;

/// The silence after which a flow is given up, if nothing else is said, in milliseconds.
pub const SILENCE_MS_DEFAULT: u32 = 30_000;

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
    /// The silence after which a flow is given up whose app says nothing else.
    pub silence_ms: u32,
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
    /// Nothing more had come, and to find out whether it has since takes a system call.
    pub is_empty: bool,
}

/// Engines that come to a host later ([`Engine::join`]).
#[derive(Debug)]
pub struct Joined {
    /// They may run when all of those before have answered.
    pub engines: Vec<(Engine, Control)>,
    /// For each of those, in their order.
    pub meetings: Vec<Request>,
}

/// One engine. Made on one thread, run on another by [`crate::Group`]. It may have an extra
/// component.
pub struct Engine<X = NoExtra> {
    queues: Queues,
    /// Where copies come of what goes to others.
    copies: Option<Box<dyn Queue>>,
    core: Core<X>,
    mailbox: Mailbox,
    /// Everything that can end a sleep.
    sleep: OwnedFd,
    /// Snapshots that were asked for, the first of which is being gathered.
    gatherings: VecDeque<Gathering>,
    /// Channels whose apps are gone and whose connections are being ended, the first of them now.
    leaving: VecDeque<u32>,
    /// Channels whose apps have left in good order, and what they have sent is being delivered.
    lingering: Vec<LingeringState>,
    has_ended: bool,
    /// Told to end: at this time at the latest, and before when all peers have been told.
    end_by: Option<Time>,
    /// There was nothing to do until now: see [`Engine::rested`].
    has_rested: bool,
    /// The link was up when last seen.
    was_up: bool,
    clock: SteadyClock,
    looks: Looks,
    bursts: Bursts,
    turns: u64,
    turns_busy: u64,
    /// Where others read what has been counted.
    board: Option<Writer>,
}

/// All of an engine but its queues, so that a queue can hand frames to it: its components, and what
/// composes them.
struct Core<X> {
    config: EngineConfig,
    common: Common,
    messages: Messages,
    frames: Frames,
    tcp: Tcp,
    extra: X,
    /// Empty; kept for its memory.
    parcels: Vec<Parcel>,
    /// Where the digests of a burst that has come are made.
    digests: Box<[Digest]>,
    /// Where the engine's thread runs, if it has one of its own.
    processor: Option<u32>,
}

impl<X> std::fmt::Debug for Engine<X> {
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
        Self::with_extra(config, queues, NoExtra, seed, secret, now)
    }

    /// The engines of one NIC, each with its control, on the queues of each; the first of those
    /// sends. They are called after `config`, with their numbers: `eth0/0`. Whatever one is asked
    /// to listen on, open or capture, the others have to be asked to note.
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

    /// The same for all NICs of a host: first the engines of the first, then those of the next.
    /// What an app is to reach over any of them, it reaches from each engine. Whatever one is asked
    /// to listen on, all others have to be asked to note; what it is asked to open or capture,
    /// those of its NIC, and of a TCP port those of each NIC that has it.
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
                Self::with_lanes(config, queues, NoExtra, others, lanes, seed, secret, now)
            })
            .collect()
    }

    /// The engines of a NIC that comes to a host later, whose engines have these controls, and
    /// whose NICs have these engines and networks. Where apps listen, they have to be told.
    ///
    /// # Panics
    /// If there is no engine, or more than 64 in all.
    pub fn join(
        host: &[&Control],
        nics: &[(Range<usize>, &ip::Config)],
        config: &EngineConfig,
        queues: Vec<Queues>,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<Joined> {
        let doors: Vec<_> = host.iter().map(|control| Arc::clone(&control.door)).collect();
        let (lanes, ends) = lanes::joining(&doors, queues.len())?;
        let (number, engines) = (nics.len(), host.len()..host.len() + queues.len());
        let meet = ends.into_iter().map(|ends| {
            let nic = OtherNic::new(number, engines.clone(), &config.interface);
            Request::Meet(Box::new(Newcomers { ends, nic }))
        });
        let each = lanes.into_iter().zip(queues).zip(0u64..);
        let made = each.map(|((lanes, queues), number)| {
            let others = nics.iter().enumerate();
            let others = others
                .map(|(nic, (engines, network))| OtherNic::new(nic, engines.clone(), network));
            let name = format!("{}/{number}", config.name);
            let (config, seed) =
                (EngineConfig { name, ..config.clone() }, seed.wrapping_add(number));
            Self::with_lanes(config, queues, NoExtra, others.collect(), lanes, seed, secret, now)
        });
        Ok(Joined { engines: made.collect::<io::Result<_>>()?, meetings: meet.collect() })
    }
}

impl<X: Component<Owner = ()>> Engine<X> {
    /// The same as [`Engine::new`], with a component beside those that all engines have.
    pub fn with_extra(
        config: EngineConfig,
        queues: Vec<Box<dyn Queue>>,
        extra: X,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<(Self, Control)> {
        let lanes = lanes::between(&[1])?.remove(0);
        Self::with_lanes(config, queues, extra, Vec::new(), lanes, seed, secret, now)
    }

    #[expect(clippy::too_many_arguments, reason = "all that an engine is made of")]
    fn with_lanes(
        config: EngineConfig,
        queues: Queues,
        extra: X,
        others: Vec<OtherNic>,
        lanes: Lanes,
        seed: u64,
        secret: [u8; 16],
        now: Time,
    ) -> io::Result<(Self, Control)> {
        let (control, mailbox) = mailbox(lanes.door())?;
        let sleep = sleep::sleep_on(&mailbox, &lanes, &queues)?;
        let interface = own_interface(&config.interface, &lanes);
        let transport = transport_config(&config, &lanes);
        let endpoint = Endpoint::new(transport, now, seed, secret);
        let frame_bytes = frame_bytes(&config.interface);
        let messages = Messages::new(endpoint, config.udp_port, others.len(), frame_bytes);
        let services = services_of(&config.interface, config.udp_port, &extra);
        let common = Common {
            channels: Channels::default(),
            switch: Switch::new(interface.mac(), services),
            host: Host::new(interface, others),
            lanes,
            loopback: Loopback::default(),
            captures: Captures::default(),
            counters: EngineCounters::default(),
        };
        let tcp = Tcp::new(now, seed, secret);
        let core = Core::new(config, common, messages, Frames::new(), tcp, extra);
        let (looks, bursts) = (Looks::of(&queues), Bursts::of(&queues));
        let engine = Self {
            queues,
            copies: None,
            core,
            mailbox,
            sleep,
            gatherings: VecDeque::new(),
            leaving: VecDeque::new(),
            lingering: Vec::new(),
            has_ended: false,
            end_by: None,
            has_rested: false,
            was_up: false,
            clock: SteadyClock::default(),
            looks,
            bursts,
            turns: 0,
            turns_busy: 0,
            board: None,
        };
        Ok((engine, control))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.config.name
    }

    /// Has the engine look at copies that come by a queue of their own: of frames that go to
    /// others, such as the kernel. They are shown to virtual interfaces that want some, here and at
    /// the other engines of the NIC, and learnt from; they belong to nobody and are not answered.
    pub fn set_copies(&mut self, copies: Box<dyn Queue>) -> io::Result<()> {
        if let Some(fd) = copies.wait_fd() {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&self.sleep, fd, data, epoll::EventFlags::IN)?;
        }
        self.copies = Some(copies);
        Ok(())
    }

    /// Switches checking off, or on again. For benchmarks, in a build of their own.
    #[cfg(feature = "unchecked")]
    pub fn set_checks(&mut self, checks: Checks) {
        self.core.frames.checks = checks;
    }

    /// True after [`crate::Request::Shutdown`], once the control plane has been told everything:
    /// the engine is not to be run any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended && !self.mailbox.has_waiting()
    }

    /// Whoever runs the engine has left it alone because there was nothing to do, and not because
    /// its core was wanted: what comes in the next turn has come just now. Else it is taken to have
    /// waited since the last turn, which is a delay, but none of the network.
    pub const fn rested(&mut self) {
        self.has_rested = true;
    }

    /// Tells apps, with what they are told next, that the engine runs on this processor.
    pub fn runs_on(&mut self, processor: u32) {
        self.core.processor = Some(processor);
    }

    /// One turn: what the control plane asks, what apps ask, what has come, what was to be done by
    /// now, and then what there is to send. `shown` is what a clock shows; one that steps back does
    /// no harm.
    pub fn turn(&mut self, shown: Time) -> Turn {
        let now = self.clock.time(shown);
        let mut work = if self.has_chores() { self.do_chores(now) } else { 0 };
        if self.core.common.channels.wants_doorbells(now) {
            self.take_doorbells();
        }
        let is_asked = self.core.common.channels.any_asks();
        let commands = if is_asked { self.core.take_commands(now) } else { 0 };
        work += commands;
        if self.core.common.channels.has_copies() {
            work += self.core.common.channels.copy_some();
        }
        let mut is_empty = false;
        if self.looks.are_due(commands) {
            self.core.messages.endpoint.begin_turn(now, core::mem::take(&mut self.has_rested));
            let most = self.bursts.frames();
            let received = self.receive(now);
            is_empty = self.looks.have_emptied(received, most);
            work += received + self.core.handle_timeouts(now);
        }
        if self.core.has_output() {
            work += self.transmit(now);
        }
        let told = self.core.finish(now, work == 0);
        if work == 0 {
            self.watch_link(now);
        }
        if self.has_news() {
            self.tell_control(now);
        }
        let is_busy = work > 0 || told.apps || told.more;
        self.turns += 1;
        self.turns_busy += u64::from(is_busy);
        Turn { is_busy, told_apps: told.apps, told_neighbour: told.neighbour, is_empty }
    }

    /// The part of a turn that an app waits for which has just submitted something: its commands
    /// are taken, and what they send leaves. All else is left to the next turn, which has to be
    /// soon.
    pub(crate) fn send(&mut self, shown: Time) {
        let now = self.clock.time(shown);
        self.core.take_commands(now);
        if self.core.has_output() {
            self.transmit(now);
        }
    }

    /// True if the control plane has asked for something that is not done.
    #[inline]
    fn has_chores(&self) -> bool {
        !self.mailbox.is_empty()
            | !self.gatherings.is_empty()
            | !self.leaving.is_empty()
            | !self.lingering.is_empty()
            | self.core.tcp.is_closing()
    }

    #[cold]
    fn do_chores(&mut self, now: Time) -> usize {
        let mut work = 0;
        if !self.mailbox.is_empty() {
            work += self.take_request(now);
        }
        if !self.gatherings.is_empty() {
            work += self.gather();
        }
        if !self.leaving.is_empty() {
            work += self.go_on_leaving(now);
        }
        if !self.lingering.is_empty() {
            work += self.go_on_lingering(now);
        }
        if self.core.tcp.is_closing() {
            work += self.go_on_closing(now);
        }
        work
    }

    /// Takes what has come: from the queues, and from the other engines of the host.
    #[inline]
    fn receive(&mut self, now: Time) -> usize {
        let (core, bursts, mut work) = (&mut self.core, &mut self.bursts, 0);
        for queue in &mut self.queues {
            let (most, are_together) = (bursts.frames(), bursts.come_together());
            let mut taker = Taker { core, bursts, now };
            work += match are_together {
                true => queue.receive_together(most, &mut taker),
                false => queue.receive(most, &mut |frames, sums| taker.frames(frames, sums)),
            };
        }
        if let Some(queue) = &mut self.copies {
            let sink = &mut |frames: &[&[u8]], _| core.receive_copies(now, frames);
            work += queue.receive(BURST_FRAMES, sink);
        }
        if let Some(queue) = self.queues.first_mut() {
            work += core.receive_parcels(now, queue.as_mut());
        }
        work
    }

    /// Builds packets just in time, as many as the queue has descriptors for.
    fn transmit(&mut self, now: Time) -> usize {
        let Some(queue) = self.queues.first_mut() else { return 0 };
        let sending = self.core.transmit(now, queue.as_mut(), self.bursts.bytes());
        if sending.queued > 0 {
            queue.flush();
        }
        sending.taken
    }

    /// A link that has come up may lead to new neighbours, who are to hear of our address.
    fn watch_link(&mut self, now: Time) {
        let is_up = self.queues.first().is_some_and(|queue| queue.link_up());
        if is_up && !self.was_up {
            self.core.common.host.own_mut().handle_link_up(now);
        }
        self.was_up = is_up;
    }
}

/// Takes what the engine's queue has received.
struct Taker<'a, X> {
    core: &'a mut Core<X>,
    bursts: &'a mut Bursts,
    now: Time,
}

impl<X: Component<Owner = ()>> Receiver for Taker<'_, X> {
    #[inline]
    fn frames(&mut self, frames: &[&[u8]], checksums: Checksums) {
        self.bursts.took(frames.len(), frames.iter().map(|frame| frame.len()).sum());
        self.core.receive(self.now, frames, Via::Queue(checksums));
    }

    fn together(&mut self, segments: Together<'_>) -> bool {
        self.core.receive_together(self.now, segments)
    }
}

impl<X> Core<X> {
    fn new(
        config: EngineConfig,
        common: Common,
        messages: Messages,
        frames: Frames,
        tcp: Tcp,
        extra: X,
    ) -> Self {
        let digests = vec![Digest::default(); BURST_FRAMES].into();
        let (parcels, processor) = (Vec::new(), None);
        Self { config, common, messages, frames, tcp, extra, parcels, digests, processor }
    }
}

impl<X: Component<Owner = ()>> Core<X> {
    /// Returns how much was done that is not over with that.
    fn handle_timeouts(&mut self, now: Time) -> usize {
        let common = &mut self.common;
        common.host.handle_timeouts(now);
        self.messages.handle_timeouts(common, now)
            + self.tcp.handle_timeouts(common, now)
            + self.extra.handle_timeouts(common, now)
    }

    /// When [`Core::handle_timeouts`] is due, or messages are to be tried again.
    fn next_timeout(&self) -> Option<Time> {
        let all = [
            self.common.channels.next_timeout(),
            self.messages.next_timeout(),
            self.common.host.next_timeout(),
            self.tcp.next_timeout(),
            self.extra.next_timeout(),
        ];
        all.into_iter().flatten().min()
    }

    /// False if there is surely nothing to send.
    #[inline]
    fn has_output(&self) -> bool {
        self.messages.has_output()
            || self.common.host.has_output()
            || self.frames.has_output()
            || self.tcp.has_output()
            || self.extra.has_output()
            || !self.common.loopback.is_empty()
    }

    /// Has each component send, about so many bytes, and takes what is for this host.
    fn transmit(&mut self, now: Time, queue: &mut dyn Queue, bytes: usize) -> Sending {
        let common = &mut self.common;
        let mut all = Sending::default();
        if common.host.has_output() {
            let outlet = Outlet { queue, budget: TRANSMIT_BURST, bytes, is_last: false };
            all += common.send_own(now, outlet);
        }
        let is_last =
            !self.frames.has_output() && !self.tcp.has_output() && !self.extra.has_output();
        let budget = TRANSMIT_BURST - all.taken.min(TRANSMIT_BURST);
        all += self.messages.transmit(common, now, Outlet { queue, budget, bytes, is_last });
        if !is_last {
            let outlet = Outlet { queue, budget: TRANSMIT_BURST, bytes, is_last: false };
            all += self.frames.transmit(common, now, outlet);
            let outlet = Outlet { queue, budget: TRANSMIT_BURST, bytes, is_last: false };
            all += self.tcp.transmit(common, now, outlet);
            let outlet = Outlet { queue, budget: TRANSMIT_BURST, bytes, is_last: true };
            all += self.extra.transmit(common, now, outlet);
        }
        self.receive_looped(now);
        all
    }

    /// Ends a turn: hands over what was gathered, and wakes who has something new.
    fn finish(&mut self, now: Time, is_idle: bool) -> Told {
        let common = &mut self.common;
        self.frames.end_turn(&mut common.channels);
        common.captures.end_turn(&mut common.channels);
        let told = common.channels.end_turn(now, is_idle, self.processor);
        common.lanes.flush();
        told
    }

    /// What the host's services have in the switch's table.
    fn services(&self, network: &ip::Config) -> Vec<Entry> {
        services_of(network, self.config.udp_port, &self.extra)
    }
}

fn services_of(network: &ip::Config, udp_port: u16, extra: &impl Component) -> Vec<Entry> {
    let mut services = services::entries(network, udp_port);
    services.extend(services::extra_entries(network, extra.receives()));
    services
}

/// The largest frame with a packet of messages, over whichever NIC.
pub(crate) fn frame_bytes(network: &ip::Config) -> usize {
    usize::from(network.mtu) + HEADER_BYTES_MAX + ipv6::HEADER_LENGTH + udp::HEADER_LENGTH
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

/// The IP layer on the engine's own NIC, for which the first of its engines speaks.
fn own_interface(config: &ip::Config, lanes: &Lanes) -> Interface {
    let is_first = lanes.index() == lanes.siblings().start;
    if is_first { Interface::new(config) } else { Interface::silent(config) }
}

/// What the flows of an engine are given.
fn transport_config(config: &EngineConfig, lanes: &Lanes) -> clearway_transport::Config {
    let interface = &config.interface;
    clearway_transport::Config {
        engine_index: lanes.index() as u8, // at most ENGINES_MAX
        engine_count: lanes.siblings().len() as u8,
        packet_bytes_max: packet_bytes(interface),
        packet_bytes_taken: packet_bytes_taken(interface),
        congestion: config.congestion,
        idle_timeout_ns: u64::from(config.silence_ms) * MILLISECOND,
        ..clearway_transport::Config::default()
    }
}

/// The largest payload of UDP that is sent.
pub(crate) fn packet_bytes(network: &ip::Config) -> u16 {
    network.mtu.saturating_sub(headers_length(network))
}

/// The largest that the NIC takes.
pub(crate) fn packet_bytes_taken(network: &ip::Config) -> u16 {
    network.mtu_max.unwrap_or(network.mtu).saturating_sub(headers_length(network))
}

/// IP and UDP headers of a packet to this network.
fn headers_length(config: &ip::Config) -> u16 {
    let is_v6 = config.addresses.iter().any(|(address, _)| address.is_ipv6());
    headers_bytes(is_v6)
}

/// Those of IP and UDP in front of a packet.
pub(crate) const fn headers_bytes(is_v6: bool) -> u16 {
    if is_v6 { 40 + 8 } else { 20 + 8 }
}
