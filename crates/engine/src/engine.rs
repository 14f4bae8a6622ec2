//! One engine: a single-threaded task that owns a NIC's queues, its flows, its apps' channels and
//! its timers, and shares nothing.
//!
//! A turn (`docs`: design section 2) takes one item from the mailbox, commands, received frames,
//! timers, and sends. It never blocks, locks or waits; it returns how much it did.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use clearway_base::{SECOND, Time, counters};
use clearway_channel::{Code, Command, Completion, Violation};
use clearway_nic::{Queue, Transmit};
use clearway_transport::{Endpoint, Owner, Reason};
use rustix::event::epoll;

use crate::channels::{Channel, Channels, Link, code_of};
use crate::control::{Control, Event, Mailbox, Request, mailbox};
use crate::idle::Idle;
use crate::interface::{self, Datagram, Interface, Received, Resolution};
use crate::paths::Paths;
use crate::snapshot::{FlowSnapshot, ListenerSnapshot, QueueSnapshot, Snapshot};

/// Frames taken from a queue in one turn (Snap, section 3.1, takes 16; the design says up to 32).
const RECEIVE_BURST: usize = 32;
/// Commands taken from one app in one turn.
const COMMAND_BURST: usize = 32;
/// Packets sent in one turn.
const TRANSMIT_BURST: usize = 64;
/// How long a neighbour may take to be found.
const RESOLVE_TIMEOUT_NS: u64 = 3 * SECOND;
/// The first service port that is given to a listener that does not name one (RFC 6335, section
/// 6: the dynamic ports).
const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49152..=65535;

/// What an engine is given by the configuration.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The engine's name.
    pub name: String,
    /// Addresses, neighbours, MTU.
    pub interface: interface::Config,
    /// The UDP port of all Clearway daemons of this network.
    pub udp_port: u16,
    /// The idle strategy of the group that will run it, for status.
    pub idle: Idle,
}

counters! {
    /// What the engine itself counts.
    pub struct EngineCounters {
        /// Frames that were neither for this host's interface nor its UDP port.
        frames_ignored,
        /// Packets that were not sent because the neighbour was not known.
        packets_unresolved,
    }
}

/// Something that waits for a neighbour's Ethernet address.
#[derive(Debug)]
enum Waiting {
    Connect { owner: Owner, service_port: u16 },
    Ping { id: u64, bytes: u16 },
}

#[derive(Debug)]
struct Unresolved {
    what: Waiting,
    local: SocketAddr,
    peer: SocketAddr,
    give_up: Time,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something was done: the engine should not idle yet.
    pub is_busy: bool,
    /// An app has something new to read.
    pub told_apps: bool,
}

/// One engine. Made on one thread, run on another by [`crate::Group`].
pub struct Engine {
    queues: Vec<Box<dyn Queue>>,
    core: Core,
    mailbox: Mailbox,
    /// Everything that can end a sleep.
    sleep: OwnedFd,
    has_ended: bool,
    /// The link was up when last seen.
    was_up: bool,
    turns: u64,
    turns_busy: u64,
}

/// All of an engine but its queues, so that a queue can hand frames to it.
struct Core {
    config: EngineConfig,
    interface: Interface,
    endpoint: Endpoint,
    channels: Channels,
    paths: Paths,
    unresolved: Vec<Unresolved>,
    /// Apps that broke the contract since the last turn.
    violations: Vec<(u32, Violation)>,
    /// Pings that could not be sent.
    failed_pings: Vec<(u64, Code)>,
    /// Where packets are written that cannot be sent.
    scratch: Vec<u8>,
    counters: EngineCounters,
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
        let (control, mailbox) = mailbox()?;
        let sleep = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&sleep, mailbox.bell(), epoll::EventData::new_u64(0), readable)?;
        for queue in &queues {
            if let Some(fd) = queue.wait_fd() {
                epoll::add(&sleep, fd, epoll::EventData::new_u64(0), readable)?;
            }
        }
        let interface = Interface::new(&config.interface);
        let transport = clearway_transport::Config {
            packet_bytes_max: config
                .interface
                .mtu
                .saturating_sub(headers_length(&config.interface)),
            ..clearway_transport::Config::default()
        };
        let core = Core {
            interface,
            endpoint: Endpoint::new(transport, now, seed, secret),
            channels: Channels::default(),
            paths: Paths::default(),
            unresolved: Vec::new(),
            violations: Vec::new(),
            failed_pings: Vec::new(),
            scratch: vec![0; usize::from(config.interface.mtu)],
            counters: EngineCounters::default(),
            config,
        };
        let engine = Self {
            queues,
            core,
            mailbox,
            sleep,
            has_ended: false,
            was_up: false,
            turns: 0,
            turns_busy: 0,
        };
        Ok((engine, control))
    }

    /// True after [`Request::Shutdown`]: the engine is not to be run any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// One turn.
    pub fn turn(&mut self, now: Time) -> Turn {
        let mut work = 0;
        if !self.mailbox.is_empty() {
            work += self.take_request(now);
        }
        work += self.core.take_commands(now);
        for queue in &mut self.queues {
            let core = &mut self.core;
            work += queue.receive(RECEIVE_BURST, &mut |frame| core.handle_frame(now, frame));
        }
        self.core.handle_timeouts(now);
        work += self.transmit(now);
        let told_apps = self.core.finish(work == 0);
        if work == 0 {
            self.watch_link();
        }
        self.report_violations();
        self.tell_control();
        let is_busy = work > 0 || told_apps;
        self.turns += 1;
        self.turns_busy += u64::from(is_busy);
        Turn { is_busy, told_apps }
    }

    /// Builds packets just in time, as many as the queue has descriptors for.
    fn transmit(&mut self, now: Time) -> usize {
        let Some(queue) = self.queues.first_mut() else { return 0 };
        let mut sent = 0;
        let core = &mut self.core;
        while sent < TRANSMIT_BURST && core.interface.has_output() {
            match queue.transmit(&mut |frame| core.interface.poll_transmit(frame)) {
                Transmit::Queued => sent += 1,
                Transmit::Nothing | Transmit::Full => break,
            }
        }
        while sent < TRANSMIT_BURST {
            let Some(destination) = core.endpoint.next_transmit(now) else { break };
            let path = core.paths.find(now, &mut core.interface, &mut core.endpoint, &destination);
            let Some(path) = path else {
                core.skip(now, destination);
                continue;
            };
            let (endpoint, channels) = (&mut core.endpoint, &core.channels);
            let transmit = queue.transmit(&mut |frame| {
                let payload = &mut frame[path.payload_offset()..];
                let length = endpoint.poll_transmit(now, destination, payload, channels);
                if length == 0 {
                    return 0;
                }
                let frame_length = path.emit_udp_headers(frame, length);
                path.finish(&mut frame[..frame_length]);
                frame_length
            });
            match transmit {
                Transmit::Queued => sent += 1,
                Transmit::Nothing => {}
                Transmit::Full => break,
            }
        }
        if sent > 0 {
            queue.flush();
        }
        sent
    }

    /// A link that has come up may lead to new neighbours, who are to hear of our address.
    fn watch_link(&mut self) {
        let is_up = self.queues.first().is_some_and(|queue| queue.link_up());
        if is_up && !self.was_up {
            self.core.interface.handle_link_up();
        }
        self.was_up = is_up;
    }

    // ---- sleeping ----

    /// Prepares to sleep: from now on whatever may give work wakes the engine. False if there is
    /// work already; [`Engine::disarm`] has to follow in either case.
    pub(crate) fn arm(&mut self) -> bool {
        let queues = self.queues.iter_mut().all(|queue| queue.wait_fd().is_some() && queue.arm());
        queues
            && self.core.channels.iter_mut().all(|(_, channel)| channel.end.arm())
            && self.mailbox.is_empty()
    }

    /// Ends what [`Engine::arm`] began.
    pub(crate) fn disarm(&mut self) {
        for queue in &mut self.queues {
            queue.disarm();
        }
        for (_, channel) in self.core.channels.iter_mut() {
            channel.end.disarm();
        }
        self.mailbox.silence();
    }

    /// True if an app's completion ring is full. An app that makes room there rings no doorbell.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.core.channels.iter().any(|(_, channel)| channel.has_pending())
    }

    /// Readable when something has woken the engine.
    pub(crate) fn sleep_fd(&self) -> &OwnedFd {
        &self.sleep
    }

    /// When the engine has to run again, whatever happens. `None`: never.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let core = &self.core;
        let waiting = core.unresolved.iter().map(|unresolved| unresolved.give_up).min();
        [core.endpoint.next_timeout(), core.interface.poll_timeout(), waiting]
            .into_iter()
            .flatten()
            .min()
    }

    // ---- control ----

    fn take_request(&mut self, now: Time) -> usize {
        let Some(request) = self.mailbox.take() else { return 0 };
        match request {
            Request::AddChannel { channel, app, end, connections_max } => {
                let flags = epoll::EventFlags::IN;
                let bell = end.doorbell();
                if let Err(error) =
                    epoll::add(&self.sleep, bell, epoll::EventData::new_u64(0), flags)
                {
                    tracing::error!(channel, %error, "cannot wait for this app; its commands may be late");
                }
                self.core.channels.insert(channel, Channel::new(app, end, connections_max));
            }
            Request::RemoveChannel { channel } => self.remove_channel(channel),
            Request::Listen { channel, listener, address, port } => {
                let result = self.core.listen(channel, listener, address, port);
                self.mailbox.tell(Event::Listening { channel, listener, result });
            }
            Request::Unlisten { channel, listener } => self.core.unlisten(channel, listener),
            Request::Neighbour { address, mac: Some(mac) } => {
                self.core.interface.learn(now, address, mac)
            }
            Request::Neighbour { mac: None, .. } => {} // the interface gives up by itself
            Request::Ping { id, peer, bytes } => {
                if let Err(code) = self.core.ping(now, id, peer, bytes) {
                    self.mailbox.tell(Event::Pong { id, result: Err(code) });
                }
            }
            Request::Snapshot { id } => {
                let snapshot = Box::new(self.snapshot());
                self.mailbox.tell(Event::Snapshot { id, snapshot });
            }
            Request::Shutdown => self.shut_down(now),
        }
        1
    }

    fn remove_channel(&mut self, channel: u32) {
        self.core.end_connections(channel);
        let Some(mut removed) = self.core.channels.remove(channel) else { return };
        for (port, _, _) in removed.ports.drain(..) {
            self.core.endpoint.unlisten(port);
        }
        let _ = epoll::delete(&self.sleep, removed.end.doorbell()); // it was added with the channel
        removed.end.close();
        self.mailbox.tell(Event::ChannelRemoved { channel, end: removed.end });
    }

    fn shut_down(&mut self, now: Time) {
        for channel in self.core.channels.ids().to_vec() {
            self.remove_channel(channel);
        }
        self.transmit(now); // the resets
        self.has_ended = true;
        self.mailbox.tell(Event::Ended);
    }

    fn tell_control(&mut self) {
        while let Some(address) = self.core.interface.poll_wanted() {
            self.mailbox.tell(Event::Resolve { address });
        }
        for (id, rtt_ns) in self.core.channels.pongs.drain(..) {
            self.mailbox.tell(Event::Pong { id, result: Ok(rtt_ns) });
        }
        for (id, code) in self.core.failed_pings.drain(..) {
            self.mailbox.tell(Event::Pong { id, result: Err(code) });
        }
        self.mailbox.flush();
    }

    /// Tells of apps that broke the contract, once each; the control plane then removes them.
    fn report_violations(&mut self) {
        for (channel, violation) in self.core.violations.drain(..) {
            self.mailbox.tell(Event::Violation { channel, violation });
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let core = &self.core;
        let counters = (core.endpoint.counters().iter())
            .chain(core.channels.counters.iter())
            .chain(core.counters.iter())
            .chain(core.interface.drops().iter());
        Snapshot {
            engine: core.config.name.clone(),
            idle: core.config.idle.name().to_owned(),
            turns: self.turns,
            turns_busy: self.turns_busy,
            queues: self.queues.iter().map(|queue| snapshot_queue(queue.as_ref())).collect(),
            channels: core.channels.iter().map(|(id, channel)| channel.snapshot(id)).collect(),
            listeners: core.listeners(),
            counters: counters.collect(),
            flows: self.core.flows(),
        }
    }
}

/// IP and UDP headers of a packet to this network.
fn headers_length(config: &interface::Config) -> u16 {
    let is_v6 = config.addresses.iter().any(|(address, _)| address.is_ipv6());
    if is_v6 { 40 + 8 } else { 20 + 8 }
}

fn snapshot_queue(queue: &dyn Queue) -> QueueSnapshot {
    let (info, counters) = (queue.info(), queue.counters());
    let mac: Vec<String> = info.mac.iter().map(|octet| format!("{octet:02x}")).collect();
    QueueSnapshot {
        driver: info.driver.to_owned(),
        mode: info.mode,
        mac: mac.join(":"),
        link_up: queue.link_up(),
        rx_frames: counters.rx_frames,
        rx_bytes: counters.rx_bytes,
        rx_frames_dropped: counters.rx_frames_dropped,
        tx_frames: counters.tx_frames,
        tx_bytes: counters.tx_bytes,
        tx_frames_dropped: counters.tx_frames_dropped,
    }
}

impl Core {
    // ---- from apps ----

    fn take_commands(&mut self, now: Time) -> usize {
        let mut taken = 0;
        for index in 0..self.channels.ids().len() {
            let id = self.channels.ids()[index];
            taken += self.take_commands_of(now, id);
        }
        taken
    }

    fn take_commands_of(&mut self, now: Time, id: u32) -> usize {
        for taken in 0..COMMAND_BURST {
            let Some(channel) = self.channels.channel(id).filter(|channel| !channel.is_condemned)
            else {
                return taken;
            };
            match channel.end.next_command() {
                Ok(Some(command)) => self.handle_command(now, id, command),
                Ok(None) => return taken,
                Err(violation) => {
                    self.condemn(id, violation);
                    return taken + 1;
                }
            }
        }
        COMMAND_BURST
    }

    /// The app broke the contract: nothing more is taken from it.
    fn condemn(&mut self, id: u32, violation: Violation) {
        if let Some(channel) = self.channels.channel(id).filter(|channel| !channel.is_condemned) {
            channel.is_condemned = true;
            self.channels.counters.violations += 1;
            self.violations.push((id, violation));
        }
    }

    fn handle_command(&mut self, now: Time, channel: u32, command: Command) {
        match command {
            Command::Send { connection, offset, length, .. } => {
                self.send(now, channel, connection, offset, length)
            }
            Command::Release { buffers } => {
                for id in buffers.as_slice() {
                    self.release(now, channel, *id);
                }
            }
            Command::Connect { token, peer } => {
                let peer = clearway_channel::canonical(peer);
                if let Err(code) = self.connect(now, channel, token, peer)
                    && let Some(channel) = self.channels.channel(channel)
                {
                    channel.tell(Completion::ConnectFailed { token, code });
                }
            }
            Command::Close { connection, abort } => self.close(now, channel, connection, abort),
        }
    }

    #[inline]
    fn send(&mut self, now: Time, id: u32, connection: u64, offset: u32, length: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        let slot = channel.find(connection);
        let open = slot.and_then(|slot| Some((slot, channel.connection(slot)?)));
        let open = open.filter(|(_, found)| !found.closing && found.connecting.is_none());
        let Some((slot, found)) = open else {
            channel.end.sends_finished(1);
            return self.channels.counters.messages_to_closed += 1;
        };
        let flow = match found.link {
            Link::Flow(key) => Some(key),
            Link::Local(_) | Link::Resolving => None,
        };
        channel.submitted(slot);
        self.channels.counters.messages_submitted += 1;
        match flow {
            Some(key) => self.endpoint.send(now, key, offset, length),
            None => {
                self.channels.send_local(Owner { channel: id, connection: slot }, offset, length)
            }
        }
    }

    fn release(&mut self, now: Time, id: u32, buffer: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        let released = match channel.end.release(buffer) {
            Ok(released) => released,
            Err(violation) => return self.condemn(id, violation),
        };
        let is_starved = channel.take_starved();
        if let Some(slot) = channel.find_tag(released.owner) {
            let flow = match channel.connection(slot).map(|connection| &connection.link) {
                Some(Link::Flow(key)) => Some(*key),
                _ => None,
            };
            match flow {
                Some(key) => self.endpoint.release(now, key, released.length),
                None => self
                    .channels
                    .release_local(Owner { channel: id, connection: slot }, released.length),
            }
        }
        if is_starved {
            self.memory_freed(now, id);
        }
    }

    /// Everyone who was turned away because this app's pool was full may try again.
    fn memory_freed(&mut self, now: Time, id: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        for slot in channel.open_slots() {
            if let Some(Link::Flow(key)) =
                channel.connection(slot).map(|connection| &connection.link)
            {
                self.endpoint.memory_freed(now, *key);
            }
        }
        self.channels.resume_senders_to(id);
    }

    fn connect(&mut self, now: Time, id: u32, token: u64, peer: SocketAddr) -> Result<(), Code> {
        if self.interface.is_own(peer.ip()) || peer.ip().is_loopback() {
            let listener = self.endpoint.listener(peer.port()).ok_or(Code::Refused)?;
            self.channels.connect_local(id, token, listener, peer);
            return Ok(());
        }
        let local = self.interface.source_for(peer.ip()).ok_or(Code::Unreachable)?;
        self.interface.route(peer.ip()).ok_or(Code::Unreachable)?;
        let channel = self.channels.channel(id).ok_or(Code::Internal)?;
        let slot = channel.open(peer, Link::Resolving, Some(token)).ok_or(Code::Limit)?;
        let owner = Owner { channel: id, connection: slot };
        let what = Waiting::Connect { owner, service_port: peer.port() };
        self.wait_for_neighbour(now, what, local, peer.ip());
        Ok(())
    }

    fn ping(&mut self, now: Time, id: u64, peer: IpAddr, bytes: u16) -> Result<(), Code> {
        let local = self.interface.source_for(peer).ok_or(Code::Unreachable)?;
        self.interface.route(peer).ok_or(Code::Unreachable)?;
        self.wait_for_neighbour(now, Waiting::Ping { id, bytes }, local, peer);
        Ok(())
    }

    fn wait_for_neighbour(&mut self, now: Time, what: Waiting, local: IpAddr, peer: IpAddr) {
        let local = SocketAddr::new(local, self.config.udp_port);
        let peer = SocketAddr::new(peer, self.config.udp_port);
        let unresolved = Unresolved { what, local, peer, give_up: now + RESOLVE_TIMEOUT_NS };
        self.unresolved.push(unresolved);
        self.go_on_resolved(now);
    }

    /// Goes on with everything whose neighbour has become known.
    fn go_on_resolved(&mut self, now: Time) {
        for unresolved in core::mem::take(&mut self.unresolved) {
            match self.interface.path(now, unresolved.local, unresolved.peer) {
                Resolution::Known(path) => {
                    self.paths.prepare(path);
                    self.begin(now, &unresolved);
                }
                Resolution::Pending if now < unresolved.give_up => self.unresolved.push(unresolved),
                Resolution::Pending | Resolution::Unreachable => self.give_up(&unresolved),
            }
        }
    }

    fn begin(&mut self, now: Time, unresolved: &Unresolved) {
        let Unresolved { what, local, peer, .. } = unresolved;
        match *what {
            Waiting::Ping { id, bytes } => self.endpoint.ping(now, id, *local, *peer, bytes),
            Waiting::Connect { owner, service_port } => {
                let Some(channel) = self.channels.channel(owner.channel) else { return };
                let window = channel.window();
                let Some(connection) = channel.connection(owner.connection) else { return };
                match self.endpoint.connect(now, owner, *local, *peer, service_port, window) {
                    Some(key) => connection.link = Link::Flow(key),
                    None => drop(channel.close(owner.connection, Code::Limit)),
                }
            }
        }
    }

    fn give_up(&mut self, unresolved: &Unresolved) {
        match unresolved.what {
            Waiting::Ping { id, .. } => self.failed_pings.push((id, Code::Unreachable)),
            Waiting::Connect { owner, .. } => {
                if let Some(channel) = self.channels.channel(owner.channel) {
                    channel.close(owner.connection, Code::Unreachable);
                }
            }
        }
    }

    fn close(&mut self, now: Time, id: u32, connection: u64, abort: bool) {
        let Some(channel) = self.channels.channel(id) else { return };
        let Some(slot) = channel.find(connection) else { return };
        let Some(found) = channel.connection(slot) else { return };
        found.closing = true;
        let owner = Owner { channel: id, connection: slot };
        match (&found.link, abort) {
            (Link::Resolving, _) => drop(channel.close(slot, Code::Closed)),
            (Link::Local(_), false) => self.channels.close_local(owner),
            (Link::Local(_), true) => self.channels.end_local(owner, Code::Reset),
            (Link::Flow(key), false) => self.endpoint.close(now, *key, &mut self.channels),
            (Link::Flow(key), true) => {
                let key = *key;
                self.endpoint.abort(key, Reason::Reset, &mut self.channels);
                if let Some(channel) = self.channels.channel(id) {
                    channel.close(slot, code_of(Reason::Closed));
                }
            }
        }
    }

    /// Resets all connections of a channel: its app is gone.
    fn end_connections(&mut self, id: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        for slot in channel.open_slots() {
            let owner = Owner { channel: id, connection: slot };
            match self.channels.connection(owner).map(|connection| &connection.link) {
                Some(Link::Flow(key)) => {
                    let key = *key;
                    self.endpoint.abort(key, Reason::Reset, &mut self.channels);
                }
                Some(Link::Local(_)) => self.channels.end_local(owner, Code::Reset),
                Some(Link::Resolving) | None => {}
            }
        }
        self.unresolved.retain(|unresolved| {
            !matches!(unresolved.what, Waiting::Connect { owner, .. } if owner.channel == id)
        });
    }

    // ---- listeners ----

    fn listen(
        &mut self,
        id: u32,
        listener: u32,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<u16, Code> {
        if address.is_some_and(|address| !self.interface.is_own(address)) {
            return Err(Code::AddressUnavailable);
        }
        let port = match port {
            0 => self.free_port().ok_or(Code::AddressInUse)?,
            port => port,
        };
        let channel = self.channels.channel(id).ok_or(Code::Internal)?;
        let owner = Owner { channel: id, connection: listener };
        self.endpoint.listen(port, owner).map_err(|_| Code::AddressInUse)?;
        channel.ports.push((port, listener, address));
        Ok(port)
    }

    fn free_port(&self) -> Option<u16> {
        DYNAMIC_PORTS.into_iter().find(|port| self.endpoint.listener(*port).is_none())
    }

    fn unlisten(&mut self, id: u32, listener: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        if let Some(index) = channel.ports.iter().position(|(_, other, _)| *other == listener) {
            let (port, _, _) = channel.ports.swap_remove(index);
            self.endpoint.unlisten(port);
        }
    }

    // ---- from the wire ----

    #[inline]
    fn handle_frame(&mut self, now: Time, frame: &[u8]) {
        match self.interface.handle_frame(now, frame) {
            Received::Datagram(datagram) => self.handle_datagram(now, &datagram),
            Received::NetworkError(error) => {
                self.endpoint.handle_network_error(
                    now,
                    error.destination,
                    error.quote,
                    &mut self.channels,
                );
            }
            Received::EchoReply(_) => self.counters.frames_ignored += 1,
            Received::Consumed | Received::Dropped(_) => {}
        }
    }

    #[inline]
    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) {
        if datagram.destination.port() != self.config.udp_port {
            self.counters.frames_ignored += 1;
            return self.interface.refuse(now, datagram);
        }
        self.channels.destination = Some(datagram.destination.ip());
        let had_replies = self.endpoint.has_replies();
        let flows = self.endpoint.counters().flows_accepted;
        self.endpoint.handle_datagram(
            now,
            datagram.source,
            datagram.destination,
            datagram.payload,
            &mut self.channels,
        );
        let is_answered = had_replies || self.endpoint.has_replies();
        if is_answered || flows != self.endpoint.counters().flows_accepted {
            self.paths.remember(&self.interface, datagram);
        }
    }

    /// The neighbour is not known: the packet counts as lost on the wire.
    fn skip(&mut self, now: Time, destination: clearway_transport::Destination) {
        self.counters.packets_unresolved += 1;
        self.endpoint.skip_transmit(now, destination, &mut self.scratch, &self.channels);
    }

    // ---- time ----

    fn handle_timeouts(&mut self, now: Time) {
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeouts(now, &mut self.channels);
        }
        if self.interface.poll_timeout().is_some_and(|due| due <= now) {
            self.interface.handle_timeout(now);
        }
        if !self.unresolved.is_empty() {
            self.go_on_resolved(now);
        }
    }

    /// Ends a turn: wakes apps that have something new. True if any has.
    fn finish(&mut self, is_idle: bool) -> bool {
        let mut told_apps = false;
        for (_, channel) in self.channels.iter_mut() {
            if channel.has_pending() {
                channel.tell_pending();
            }
            if is_idle && channel.has_untold() {
                channel.tell_sent();
            }
            told_apps |= channel.end.flush();
        }
        told_apps
    }

    // ---- status ----

    fn listeners(&self) -> Vec<ListenerSnapshot> {
        let ports = |(channel, served): (u32, &Channel)| {
            let ports: Vec<u16> = served.ports.iter().map(|(port, _, _)| *port).collect();
            ports.into_iter().map(move |port| ListenerSnapshot { channel, port })
        };
        self.channels.iter().flat_map(ports).collect()
    }

    fn flows(&mut self) -> Vec<FlowSnapshot> {
        let wire: Vec<_> = self.endpoint.flows().collect();
        let wire = wire.into_iter().map(|info| {
            let channel = self.channels.channel(info.owner.channel);
            let peer = channel.and_then(|channel| channel.connection(info.owner.connection));
            FlowSnapshot {
                channel: info.owner.channel,
                connection: info.owner.connection,
                path: "wire",
                peer: peer.map_or(info.remote, |connection| connection.peer),
                state: info.state,
                rtt_ns: info.rtt_ns,
                congestion_window_bytes: info.congestion_window_bytes,
                in_flight_bytes: info.in_flight_bytes,
                messages_sent: info.messages_sent,
                messages_received: info.messages_received,
                packets_lost: info.packets_lost,
            }
        });
        let mut flows: Vec<FlowSnapshot> = wire.collect();
        for (channel, served) in self.channels.iter_mut() {
            flows.extend(served.local_flows(channel));
        }
        flows
    }
}
