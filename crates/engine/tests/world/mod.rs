//! Hosts of one engine or of several, with apps, joined by the fabric, in one thread and virtual
//! time. Does what the control plane does where engines of a NIC have to know the same.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros,
    reason = "a module of several test programs, each of which uses a part"
)]

pub mod audit;
pub mod events;
pub mod hostile;
pub mod pair;
pub mod tcp;
pub mod wired;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_channel::burst::{Filling, FrameInfo, ReceivedBurst, packed_bytes};
use clearway_channel::{
    AppEnd, Code, Command, Completion, DaemonEnd, Extent, Granted, OperationStatus, Sizes, Told,
};
use clearway_engine::{
    Allowance, CaptureSpec, Control, Engine, EngineConfig, Event, Idle, Request, Snapshot, State,
    StateError, TcpPortSpec, VifRefused, VifSpec, ip,
};
use clearway_nic::{MacAddress, Queue, fabric};

pub const UDP_PORT: u16 = 20707;
pub const SIZES: Sizes = Sizes {
    submission_entries: 256,
    completion_entries: 256,
    transmit_pool_bytes: 16 << 20,
    receive_pool_bytes: 16 << 20,
    shared_bytes: 0,
};

/// The part of [`Queue`] in which a queue around another is like that, its field `queue`.
macro_rules! as_inner {
    () => {
        fn link_up(&self) -> bool {
            self.queue.link_up()
        }

        fn flush(&mut self) {
            self.queue.flush();
        }

        fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.queue.wait_fd()
        }

        fn arm(&mut self) -> bool {
            self.queue.arm()
        }

        fn disarm(&mut self) {
            self.queue.disarm();
        }

        fn counters(&self) -> clearway_nic::Counters {
            self.queue.counters()
        }
    };
}
pub(crate) use as_inner;

/// When worlds begin.
const START: Time = Time::from_ns(SECOND);

/// What [`World::of_two_nics`] has of a port on another NIC has its number and so much more.
pub const PARTS: u32 = 1 << 16;
/// The MTU of the second NIC there.
pub const SECOND_MTU: u16 = 1400;

/// The address in a network there: of the host of two NICs if `peer` is 0, else of the other.
pub fn address_on(network: usize, peer: usize) -> IpAddr {
    Ipv4Addr::new(10, 7 + network as u8, 0, 1 + peer as u8).into()
}

pub fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 7, 0, host as u8 + 1).into()
}

/// A host: the engines of its NIC.
pub struct Host {
    pub mac: MacAddress,
    pub members: Vec<Member>,
}

/// An engine of a host, and what it has said.
pub struct Member {
    pub engine: Engine,
    pub control: Control,
    pub events: Vec<Event>,
    /// It has no turns: its thread was taken off its core.
    pub is_stopped: bool,
}

impl Member {
    fn new((engine, control): (Engine, Control)) -> Self {
        Self { engine, control, events: Vec::new(), is_stopped: false }
    }
}

/// An engine of a host: of its first, a number is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub host: usize,
    pub engine: usize,
}

impl From<usize> for Place {
    fn from(host: usize) -> Self {
        Self { host, engine: 0 }
    }
}

pub struct World {
    pub hosts: Vec<Host>,
    pub fabric: fabric::Handle,
    pub now: Time,
    /// At a switch, the queue of a NIC that a test plays itself; its number among the ports is that
    /// of a host more.
    stranger: Option<fabric::Queue>,
    next_channel: u32,
    next_id: u64,
    /// Of each virtual interface and capture that siblings took note of: the host, the channel and
    /// the id in it.
    noted: Vec<(usize, u32, u32)>,
}

impl World {
    /// Two hosts of one engine each, and a wire.
    pub fn new(seed: u64, faults: fabric::Faults) -> Self {
        Self::with_queues(seed, faults, |queue| queue)
    }

    /// The same over queues that `wrap` makes of those of the fabric.
    pub fn with_queues(
        seed: u64,
        faults: fabric::Faults,
        wrap: impl Fn(Box<dyn Queue>) -> Box<dyn Queue>,
    ) -> Self {
        Self::with_networks(seed, faults, wrap, |_| {})
    }

    /// The same, with networks as `change` makes them.
    pub fn with_networks(
        seed: u64,
        faults: fabric::Faults,
        wrap: impl Fn(Box<dyn Queue>) -> Box<dyn Queue>,
        change: impl Fn(&mut ip::Config),
    ) -> Self {
        let (a, b, fabric) = fabric::pair(fabric::Options::new(seed), [faults, faults]);
        let queues: [Box<dyn Queue>; 2] = [Box::new(a), Box::new(b)];
        let hosts = queues.map(wrap).into_iter().enumerate().map(|(index, queue)| {
            let mac = queue.info().mac;
            let mut config = config_of(index, mac);
            change(&mut config.interface);
            let (seed, secret) = (seed * 2 + index as u64, [index as u8; 16]);
            let engine = Engine::new(config, vec![queue], seed, secret, START);
            Host { mac, members: vec![Member::new(engine.expect("descriptors"))] }
        });
        Self::of(hosts.collect(), fabric, None)
    }

    /// As many hosts as `engines` has numbers, with so many engines each, at a switch.
    pub fn at_switch(seed: u64, engines: &[usize]) -> Self {
        Self::with_rss(seed, engines, fabric::RssOptions::default())
    }

    /// The same, with NICs that spread frames in this way.
    pub fn with_rss(seed: u64, engines: &[usize], rss: fabric::RssOptions) -> Self {
        let mac = |port: usize| [2, 0, 0, 0, 1, port as u8];
        let ports = engines.iter().chain(&[1]).enumerate();
        let port = |(port, queues): (usize, &usize)| fabric::Port {
            rss,
            ..fabric::Port::new(mac(port), *queues)
        };
        let ports: Vec<fabric::Port> = ports.map(port).collect();
        let (mut queues, fabric) = fabric::switch(fabric::Options::new(seed), &ports);
        let stranger = queues.pop().and_then(|mut queues| queues.pop());
        let hosts = queues.into_iter().enumerate().map(|(index, queues)| {
            let boxed = |queue| vec![Box::new(queue) as Box<dyn Queue>];
            let queues = queues.into_iter().map(boxed).collect();
            let config = config_of(index, mac(index));
            let seed = seed * 1000 + 100 * index as u64;
            let engines = Engine::siblings(&config, queues, seed, [index as u8; 16], START);
            let members = engines.expect("descriptors").into_iter().map(Member::new);
            Host { mac: mac(index), members: members.collect() }
        });
        Self::of(hosts.collect(), fabric, stranger)
    }

    /// A host of two NICs with an engine each, the second of which takes smaller packets; then a
    /// host in the network of each.
    pub fn of_two_nics(seed: u64) -> Self {
        Self::of_two_nics_over(seed, |_, queue| queue)
    }

    /// The same over queues that `wrap` makes of those of the fabric, whose numbers it is told: the
    /// host's first.
    pub fn of_two_nics_over(
        seed: u64,
        wrap: impl Fn(usize, Box<dyn Queue>) -> Box<dyn Queue>,
    ) -> Self {
        let mac = |port: usize| [2, 0, 0, 0, 1, port as u8];
        let ports: Vec<_> = (0..4).map(|port| fabric::Port::new(mac(port), 1)).collect();
        let (queues, fabric) = fabric::switch(fabric::Options::new(seed), &ports);
        let mut nics = queues.into_iter().enumerate().map(|(port, queues)| {
            let mut config = config_of(port, mac(port));
            config.interface.addresses = vec![(address_on(port % 2, port / 2), 24)];
            config.interface.mtu = if port == 1 { SECOND_MTU } else { 1500 };
            let queues: Vec<_> = queues.into_iter().map(|it| wrap(port, Box::new(it))).collect();
            (config, vec![queues])
        });
        let hosts = [2, 1, 1].into_iter().enumerate().map(|(host, count)| {
            let nics: Vec<_> = nics.by_ref().take(count).collect();
            let (mac, seed) = (nics[0].0.interface.mac, seed * 1000 + 100 * host as u64);
            let engines = Engine::of_host(nics, seed, [host as u8; 16], START);
            let members = engines.expect("descriptors").into_iter().map(Member::new);
            Host { mac, members: members.collect() }
        });
        let hosts = hosts.collect();
        Self::of(hosts, fabric, None)
    }

    fn of(hosts: Vec<Host>, fabric: fabric::Handle, stranger: Option<fabric::Queue>) -> Self {
        let noted = Vec::new();
        Self { hosts, fabric, now: START, stranger, next_channel: 0, next_id: 1, noted }
    }

    pub fn stranger(&mut self) -> &mut fabric::Queue {
        self.stranger.as_mut().expect("there is a switch")
    }

    fn engines(&self) -> Vec<&Engine> {
        let members = self.hosts.iter().flat_map(|host| &host.members);
        members.map(|member| &member.engine).collect()
    }

    pub fn member(&mut self, at: impl Into<Place>) -> &mut Member {
        let Place { host, engine } = at.into();
        &mut self.hosts[host].members[engine]
    }

    /// One turn of each engine, and as much time as that takes.
    pub fn turn(&mut self) {
        self.pass();
        for member in self.hosts.iter_mut().flat_map(|host| &mut host.members) {
            if member.is_stopped {
                continue;
            }
            member.engine.turn(self.now);
            while let Some(event) = member.control.next_event() {
                member.events.push(event);
            }
        }
    }

    /// A turn of one engine, while the others stand still.
    pub fn turn_alone(&mut self, host: usize) {
        self.pass();
        let now = self.now;
        self.member(host).engine.turn(now);
    }

    fn pass(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabric.set_time(self.now);
    }

    #[track_caller]
    pub fn audit(&self) {
        audit::now(self.engines());
    }

    /// Ends all apps, and sees to it that nothing is left. What a test has done to the wire is
    /// undone.
    fn end(&mut self) {
        self.audit(); // while all that an app has left behind is still there
        let ports = self.hosts.len() + usize::from(self.stranger.is_some());
        for from in 0..ports {
            self.fabric.set_faults(from, fabric::Faults::default());
            (0..ports).for_each(|to| self.fabric.set_cut(from, to, false));
        }
        for host in 0..self.hosts.len() {
            for engine in 0..self.hosts[host].members.len() {
                let at = Place { host, engine };
                self.member(at).is_stopped = false;
                self.turn();
                for channel in 0..self.next_channel {
                    self.post(at, Request::RemoveChannel { channel });
                }
                for (of, channel, vif) in self.noted.clone() {
                    if of == host {
                        self.post(at, Request::CloseVif { channel, vif, told: None });
                    }
                }
            }
        }
        let turn = |world: &mut Self| {
            world.now = world.now + audit::STEP_NS;
            world.turn();
        };
        audit::until_rest(self, turn, Self::engines);
    }

    /// Turns until `done`; panics if that takes longer than some minutes of the world's time.
    #[track_caller]
    pub fn turn_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let mut turns = 0;
        while !done(self) {
            self.turn();
            turns += 1;
            // Nothing happens for a while now and then: time may as well go faster.
            if turns % 64 == 0 {
                self.now = self.now + 100 * MICROSECOND;
            }
            assert!(turns < 60_000_000, "stuck at {:?}", self.now);
        }
    }

    pub fn post(&mut self, at: impl Into<Place>, request: Request) {
        let control = &self.member(at).control;
        control.post(request).expect("the mailbox is free after a turn");
        self.turn();
    }

    /// Posts what `request` says for each of the other engines of the host.
    pub fn post_to_siblings(&mut self, at: Place, mut request: impl FnMut() -> Request) {
        for sibling in self.siblings(at) {
            self.post(sibling, request());
        }
    }

    fn siblings(&self, at: Place) -> impl Iterator<Item = Place> + use<> {
        let engines = 0..self.hosts[at.host].members.len();
        engines.filter(move |other| *other != at.engine).map(move |engine| Place { engine, ..at })
    }

    /// From now on so many bits say which hosts are on the link of a host.
    pub fn set_prefix_bits(&mut self, host: usize, prefix_bits: u8) {
        let mut network = config_of(host, self.hosts[host].mac).interface;
        network.addresses[0].1 = prefix_bits;
        self.post(host, Request::Network(Box::new(network)));
    }

    /// Gives a host these addresses instead of its one.
    pub fn set_addresses(&mut self, host: usize, addresses: Vec<(IpAddr, u8)>) {
        let mut network = config_of(host, self.hosts[host].mac).interface;
        network.addresses = addresses;
        self.post(host, Request::Network(Box::new(network)));
    }

    /// The link of a host carries packets of so many bytes from now on.
    pub fn set_mtu(&mut self, host: usize, mtu: u16) {
        let network = ip::Config { mtu, ..config_of(host, self.hosts[host].mac).interface };
        self.post(host, Request::Network(Box::new(network)));
    }

    /// Saves an engine, and has another go on with what `change` makes of its state. One that is
    /// refused is gone.
    pub fn restore(
        &mut self,
        at: impl Into<Place>,
        change: impl FnOnce(State) -> State,
    ) -> Result<(), StateError> {
        let Place { host, engine: index } = at.into();
        let members = &mut self.hosts[host].members;
        let before = members.remove(index);
        let state = change(before.engine.save());
        let engine = Engine::restore(state, before.engine.into_remains(), self.now)?;
        members.insert(index, Member { engine, ..before });
        Ok(())
    }

    pub fn attach(&mut self, at: impl Into<Place>, sizes: Sizes) -> App {
        self.attach_with(at, sizes, 64)
    }

    pub fn attach_with(&mut self, at: impl Into<Place>, sizes: Sizes, connections_max: u32) -> App {
        self.attach_as(at, 0, sizes, connections_max)
    }

    /// An app of this user.
    pub fn attach_as(
        &mut self,
        at: impl Into<Place>,
        user: u32,
        sizes: Sizes,
        connections_max: u32,
    ) -> App {
        self.attach_allowed(at, user, sizes, Allowance::of_connections(connections_max))
    }

    /// The same, which may do so much.
    pub fn attach_allowed(
        &mut self,
        at: impl Into<Place>,
        user: u32,
        sizes: Sizes,
        allowance: Allowance,
    ) -> App {
        let (at, channel) = (at.into(), self.next_channel);
        self.next_channel += 1;
        let (app, request) = App::attaching(at, channel, user, sizes, allowance);
        self.post(at, request);
        app
    }

    /// Listens, of which all engines of the host take note.
    pub fn listen(&mut self, app: &App, port: u16) -> Result<(), Code> {
        let (at, channel) = (app.place(), app.channel);
        self.post(at, Request::Listen { channel, listener: 1, address: None, port });
        events::take_listening(&mut self.member(at).events)?;
        self.note_listener(at, port, Some(at.engine));
        Ok(())
    }

    pub fn note_listener(&mut self, at: Place, port: u16, engine: Option<usize>) {
        let id = self.next_id;
        self.next_id += 1;
        self.post_to_siblings(at, || Request::NoteListener { id, port, engine });
        let is_noted =
            |event: &Event| matches!(event, Event::ListenerNoted { id: noted } if *noted == id);
        for sibling in self.siblings(at) {
            assert!(self.member(sibling).events.iter().any(is_noted));
        }
    }

    /// Opens a virtual interface, of which all engines of the host take note.
    pub fn open_vif(&mut self, app: &App, vif: u32, spec: VifSpec) -> Result<(), VifRefused> {
        let (at, channel) = (app.place(), app.channel);
        self.noted.push((at.host, channel, vif));
        self.post(at, Request::OpenVif { channel, vif, spec: Box::new(spec.clone()) });
        events::take_vif_opened(&mut self.member(at).events)?;
        let engine = at.engine;
        self.note(at, || Request::NoteVif { engine, channel, vif, spec: Box::new(spec.clone()) })
    }

    /// Opens a TCP port, of which all engines of the host take note.
    pub fn open_tcp_port(&mut self, app: &App, number: u32, spec: TcpPortSpec) {
        let (at, channel) = (app.place(), app.channel);
        let (engine, vif, rights) = (at.engine, number, Box::new(spec.rights.clone()));
        self.open_port_here(app, number, spec);
        self.note(at, || Request::NoteVif { engine, channel, vif, spec: rights.clone() })
            .expect("noted");
    }

    /// The same for one that apps at other engines may have as well.
    pub fn open_shared_tcp_port(&mut self, app: &App, number: u32, spec: TcpPortSpec) {
        let (at, channel) = (app.place(), app.channel);
        let (engine, noted) = (at.engine, Box::new(spec.clone()));
        self.open_port_here(app, number, spec);
        self.note(at, || Request::NoteTcpPort { engine, channel, number, spec: noted.clone() })
            .expect("noted");
    }

    /// A port of an app at an engine of the host of two NICs, on both.
    pub fn open_tcp_port_on_both(&mut self, app: &App, number: u32, port: u16) {
        let (engine, channel) = (app.engine, app.channel);
        let other = 1 - engine;
        let mac = self.hosts[app.host].mac;
        let spec_on = |nic: usize| {
            let mac = [mac[0], mac[1], mac[2], mac[3], mac[4], nic as u8];
            let spec = tcp::spec(mac, None, SocketAddr::new(address_on(nic, 0), port));
            TcpPortSpec { address: None, nics: vec![1 - nic], ..spec }
        };
        self.open_port_here(app, number, spec_on(engine));
        let (number, spec) = (number + PARTS, Box::new(spec_on(other)));
        self.noted.push((app.host, channel, number));
        let at = Place { host: app.host, engine: other };
        self.post(at, Request::NoteTcpPort { engine, channel, number, spec });
        events::take_vif_opened(&mut self.member(at).events).expect("noted");
    }

    fn open_port_here(&mut self, app: &App, number: u32, spec: TcpPortSpec) {
        let (at, channel) = (app.place(), app.channel);
        self.noted.push((at.host, channel, number));
        self.post(at, Request::OpenTcpPort { channel, number, spec: Box::new(spec) });
        events::take_vif_opened(&mut self.member(at).events).expect("a port");
    }

    /// Opens a capture, of which all engines of the host take note.
    pub fn open_capture(
        &mut self,
        app: &App,
        vif: u32,
        spec: CaptureSpec,
    ) -> Result<(), VifRefused> {
        let (at, channel, spec) = (app.place(), app.channel, Box::new(spec));
        self.noted.push((at.host, channel, vif));
        self.post(at, Request::OpenCapture { channel, vif, spec: spec.clone() });
        events::take_vif_opened(&mut self.member(at).events)?;
        let engine = at.engine;
        self.note(at, || Request::NoteCapture { engine, channel, vif, spec: spec.clone() })
    }

    /// The other engines of a host take note of an interface or a capture.
    fn note(&mut self, at: Place, request: impl FnMut() -> Request) -> Result<(), VifRefused> {
        self.post_to_siblings(at, request);
        let mut siblings = self.siblings(at);
        siblings.try_for_each(|at| events::take_vif_opened(&mut self.member(at).events))
    }

    /// Closes what an app has under this number, at all engines of its host.
    pub fn close_vif(&mut self, app: &App, vif: u32) {
        let (at, channel) = (app.place(), app.channel);
        self.noted.retain(|noted| *noted != (at.host, channel, vif));
        self.post(at, Request::CloseVif { channel, vif, told: None });
        self.post_to_siblings(at, || Request::CloseVif { channel, vif, told: None });
    }

    /// What an engine says about itself.
    pub fn snapshot(&mut self, at: impl Into<Place>) -> Snapshot {
        let at = at.into();
        self.post(at, Request::Snapshot { id: 0 });
        let mut snapshot = None;
        self.turn_until(|world| {
            snapshot = events::take_snapshot(&mut world.member(at).events);
            snapshot.is_some()
        });
        snapshot.expect("just seen")
    }

    /// What an engine has counted under a name.
    pub fn counter(&mut self, at: impl Into<Place>, name: &str) -> u64 {
        let snapshot = self.snapshot(at);
        let counter = snapshot.counters.iter().find(|(other, _)| *other == name);
        counter.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Connects `client` to `server`, which listens on `port`: the ids at both.
    #[track_caller]
    pub fn connect(&mut self, client: &mut App, server: &mut App, port: u16) -> (u64, u64) {
        let (peer, failed) = (SocketAddr::new(address(server.host), port), client.failed.clone());
        client.submit(&Command::Connect { token: 1, peer });
        self.turn_until(|_| {
            let has_met = client.has_met(server);
            assert_eq!(client.failed, failed);
            has_met
        });
        client.ids_with(server)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

pub fn config_of(index: usize, mac: MacAddress) -> EngineConfig {
    EngineConfig {
        name: format!("host-{index}"),
        interface: ip::Config {
            mac,
            addresses: vec![(address(index), 24)],
            routes: Vec::new(),
            vlan: None,
            mtu: 1500,
            mtu_max: None,
            kernel_shares: false,
            router: None,
            receive_checksum: false,
        },
        udp_port: UDP_PORT,
        idle: Idle::Spin,
        congestion: clearway_engine::Congestion::Swift,
        silence_ms: clearway_engine::SILENCE_MS_DEFAULT,
    }
}

/// An app at the other end of a channel.
pub struct App {
    pub host: usize,
    engine: usize,
    pub channel: u32,
    pub end: AppEnd,
    /// Sent and not finished, by connection: the extents, and how many finished before them.
    unfinished: BTreeMap<u64, (u32, VecDeque<Extent>)>,
    pub connected: VecDeque<u64>,
    pub accepted: VecDeque<u64>,
    pub failed: Vec<Code>,
    pub closed: Vec<(u64, Code)>,
    pub received: VecDeque<Received>,
    /// Streams that peers have opened, with the connections of which they are.
    pub streams: VecDeque<(u64, u64)>,
    /// Frames, with the interface and what the engine says of them.
    pub frames: VecDeque<(u32, FrameInfo, Vec<u8>)>,
    /// Bursts that were sent and are not finished.
    bursts: BTreeMap<u32, VecDeque<Extent>>,
    /// The last that was said of what each interface sent.
    pub reports: BTreeMap<u32, Report>,
    /// Interfaces that were taken away, and why.
    pub vifs_closed: Vec<(u32, Code)>,
    /// Bytes of TCP connections.
    pub bytes: VecDeque<clearway_channel::ReceivedBytes>,
    /// All else that is told of TCP.
    pub tcp: VecDeque<Completion>,
    /// One-sided operations that are over.
    pub operated: VecDeque<Operated>,
    /// What was said of regions, of messages that were dropped, and of posted buffers.
    pub told: VecDeque<Completion>,
}

/// A one-sided operation that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operated {
    pub token: u64,
    pub status: OperationStatus,
    pub value: u64,
    pub extra: u64,
    pub read: Vec<u8>,
}

/// What has become of frames that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub bursts: u32,
    pub sent: u64,
    pub rejected: u64,
    pub reason: u8,
}

/// A message that an app has been given.
#[derive(Debug)]
pub struct Received {
    pub connection: u64,
    pub bytes: Granted,
}

impl App {
    /// An app, and what to post to the engine that serves it.
    pub fn attaching(
        at: impl Into<Place>,
        channel: u32,
        user: u32,
        sizes: Sizes,
        allowance: Allowance,
    ) -> (Self, Request) {
        let Place { host, engine } = at.into();
        let (end, handover) = DaemonEnd::create(sizes).expect("memory");
        let (app, end) = (format!("app-{channel}"), Box::new(end));
        let request = Request::AddChannel { channel, app, user, end, allowance };
        let end = AppEnd::open(handover, sizes).expect("fits");
        let app = Self {
            host,
            engine,
            channel,
            end,
            unfinished: BTreeMap::new(),
            connected: VecDeque::new(),
            accepted: VecDeque::new(),
            failed: Vec::new(),
            closed: Vec::new(),
            received: VecDeque::new(),
            streams: VecDeque::new(),
            frames: VecDeque::new(),
            bursts: BTreeMap::new(),
            reports: BTreeMap::new(),
            vifs_closed: Vec::new(),
            bytes: VecDeque::new(),
            tcp: VecDeque::new(),
            operated: VecDeque::new(),
            told: VecDeque::new(),
        };
        (app, request)
    }

    fn place(&self) -> Place {
        Place { host: self.host, engine: self.engine }
    }

    /// Whether this app and `server` have learnt that they are connected.
    fn has_met(&mut self, server: &mut Self) -> bool {
        self.poll();
        server.poll();
        !self.connected.is_empty() && !server.accepted.is_empty()
    }

    /// What the connection that was opened first is called at both.
    fn ids_with(&mut self, server: &mut Self) -> (u64, u64) {
        let (near, far) = (self.connected.pop_front(), server.accepted.pop_front());
        (near.expect("connected"), far.expect("accepted"))
    }

    pub fn submit(&mut self, command: &Command) {
        self.end.submit(command).expect("room in the ring");
        self.end.flush();
    }

    /// Takes all completions.
    pub fn poll(&mut self) {
        while let Some(told) = self.end.next_told().expect("valid completion") {
            let completion = match told {
                Told::Message(clearway_channel::Received { connection, sent, bytes, .. }) => {
                    self.finished(connection, sent);
                    self.received.push_back(Received { connection, bytes });
                    continue;
                }
                Told::Frames { vif, count, bytes } => {
                    self.take_frames(vif, count, bytes);
                    continue;
                }
                Told::Bytes(received) => {
                    self.bytes.push_back(received);
                    continue;
                }
                Told::Operated(over) => {
                    let clearway_channel::Operated { status, token, value, extra, bytes } = over;
                    let read = bytes.map(|bytes| {
                        let read = self.end.receive_bytes(&bytes).to_vec();
                        self.end.release(bytes);
                        self.end.flush_releases();
                        read
                    });
                    let status = OperationStatus::of(status);
                    let read = read.unwrap_or_default();
                    self.operated.push_back(Operated { token, status, value, extra, read });
                    continue;
                }
                Told::Other(completion) => completion,
            };
            match completion {
                Completion::Connected { connection, .. } => self.connected.push_back(connection),
                Completion::Accepted { connection, .. } => self.accepted.push_back(connection),
                Completion::StreamAccepted { connection, parent } => {
                    self.streams.push_back((connection, parent));
                }
                Completion::ConnectFailed { code, .. } => self.failed.push(code),
                Completion::Closed { connection, code, .. } => self.closed.push((connection, code)),
                Completion::FramesSent { vif, bursts, sent, rejected, reason } => {
                    self.take_report(vif, Report { bursts, sent, rejected, reason });
                }
                Completion::VifClosed { vif, code } => self.vifs_closed.push((vif, code)),
                Completion::Sent { connection, sent } => self.finished(connection, sent),
                Completion::Placed { connection, sent, .. } => {
                    self.finished(connection, sent);
                    self.told.push_back(completion);
                }
                other @ (Completion::Shared { .. }
                | Completion::Unshared { .. }
                | Completion::GroupSet { .. }
                | Completion::Dropped { .. }
                | Completion::Skipped { .. }
                | Completion::Unposted { .. }
                | Completion::Notified { .. }) => self.told.push_back(other),
                Completion::Received { .. }
                | Completion::Operated { .. }
                | Completion::Frames { .. } => {}
                of_tcp => self.tcp.push_back(of_tcp),
            }
        }
    }

    fn take_frames(&mut self, vif: u32, count: u16, bytes: Granted) {
        let burst = ReceivedBurst::new(self.end.receive_bytes(&bytes), count);
        assert!(burst.is_whole());
        for frame in burst {
            self.frames.push_back((vif, frame.info, frame.bytes.to_vec()));
        }
        self.end.release(bytes);
        self.end.flush_releases();
    }

    fn take_report(&mut self, vif: u32, report: Report) {
        let before = self.reports.insert(vif, report).unwrap_or_default();
        let extents = self.bursts.entry(vif).or_default();
        for _ in 0..report.bursts.wrapping_sub(before.bursts) {
            // A test that submits by hand keeps its extent.
            if let Some(extent) = extents.pop_front() {
                self.end.free(extent);
            }
        }
    }

    /// Sends frames in one burst.
    pub fn send_frames(&mut self, vif: u32, frames: &[&[u8]]) {
        let extent = self.pack(frames);
        self.submit_burst(vif, &extent, frames.len() as u16);
        self.bursts.entry(vif).or_default().push_back(extent);
    }

    pub fn submit_burst(&mut self, vif: u32, extent: &Extent, count: u16) {
        let (offset, length) = (extent.offset(), extent.length());
        self.submit(&Command::SendFrames { vif, offset, length, count });
    }

    /// A burst in the transmit pool.
    pub fn pack(&mut self, frames: &[&[u8]]) -> Extent {
        let bytes = frames.iter().map(|frame| packed_bytes(frame.len() as u32)).sum();
        let extent = self.end.allocate(bytes).expect("room in the pool");
        let mut filling = Filling::default();
        for frame in frames {
            let buffer = self.end.transmit_bytes(&extent);
            let place = filling.append(buffer, frame.len() as u32).expect("room in the burst");
            place.copy_from_slice(frame);
        }
        extent
    }

    fn finished(&mut self, connection: u64, sent: u32) {
        let Some((finished, extents)) = self.unfinished.get_mut(&connection) else { return };
        while *finished != sent {
            *finished = finished.wrapping_add(1);
            let extent = extents.pop_front().expect("no more finished than were sent");
            self.end.free(extent);
        }
    }

    /// Sends, if pool and ring have room.
    pub fn send(&mut self, connection: u64, bytes: &[u8]) -> bool {
        self.send_by(connection, bytes, |offset, length| Command::Send {
            connection,
            stream: 0,
            offset,
            length,
        })
    }

    /// The same by a command that says where the message is.
    pub fn send_by(
        &mut self,
        connection: u64,
        bytes: &[u8],
        command: impl FnOnce(u32, u32) -> Command,
    ) -> bool {
        if !self.end.has_room() {
            return false;
        }
        let Some(extent) = self.end.allocate(bytes.len() as u32) else { return false };
        self.end.transmit_bytes(&extent).copy_from_slice(bytes);
        let (offset, length) = (extent.offset(), extent.length());
        self.unfinished.entry(connection).or_default().1.push_back(extent);
        self.submit(&command(offset, length));
        true
    }

    pub fn unfinished(&self) -> usize {
        self.unfinished.values().map(|(_, extents)| extents.len()).sum()
    }

    pub fn bytes(&self, message: &Received) -> &[u8] {
        self.end.receive_bytes(&message.bytes)
    }

    pub fn release(&mut self, message: Received) {
        self.end.release(message.bytes);
        self.end.flush_releases();
    }
}
