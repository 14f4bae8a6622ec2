//! Two hosts, each an engine with apps, joined by the fabric, in one thread and virtual time.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of several test programs, each of which uses a part"
)]

pub mod audit;
pub mod events;
pub mod hostile;
pub mod many;
pub mod pair;
pub mod tcp;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_channel::burst::{Filling, FrameInfo, ReceivedBurst, packed_bytes};
use clearway_channel::{
    AppEnd, Code, Command, Completion, DaemonEnd, Extent, Granted, OperationStatus, Sizes, Told,
};
use clearway_engine::{
    Allowance, CaptureSpec, Control, Engine, EngineConfig, Event, Idle, Request, Snapshot,
    VifRefused, VifSpec, ip,
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

pub fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 7, 0, host as u8 + 1).into()
}

pub struct Host {
    pub mac: MacAddress,
    pub engine: Engine,
    pub control: Control,
    pub events: Vec<Event>,
}

pub struct World {
    pub hosts: Vec<Host>,
    pub fabric: fabric::Handle,
    pub now: Time,
    next_channel: u32,
}

impl World {
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
        let now = Time::from_ns(SECOND);
        let queues: [Box<dyn Queue>; 2] = [Box::new(a), Box::new(b)];
        let queues = queues.map(wrap).into_iter().enumerate();
        let hosts = queues.map(|(index, queue)| {
            let mut config = config_of(index, queue.info().mac);
            change(&mut config.interface);
            host(index, config, queue, seed, now)
        });
        Self { hosts: hosts.collect(), fabric, now, next_channel: 0 }
    }

    /// One turn of each engine, and as much time as that takes.
    pub fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabric.set_time(self.now);
        for host in &mut self.hosts {
            host.engine.turn(self.now);
            while let Some(event) = host.control.next_event() {
                host.events.push(event);
            }
        }
    }

    /// A turn of one engine, while the others stand still.
    pub fn turn_alone(&mut self, host: usize) {
        self.now = self.now + MICROSECOND;
        self.fabric.set_time(self.now);
        self.hosts[host].engine.turn(self.now);
    }

    #[track_caller]
    pub fn audit(&self) {
        audit::now(self.hosts.iter().map(|host| &host.engine));
    }

    /// Ends all apps, and sees to it that nothing is left. What a test has done to the wire is
    /// undone.
    fn end(&mut self) {
        self.audit(); // while all that an app has left behind is still there
        for port in [0, 1] {
            self.fabric.set_faults(port, fabric::Faults::default());
            self.fabric.set_cut(port, 1 - port, false);
        }
        for host in 0..self.hosts.len() {
            (0..self.next_channel).for_each(|channel| {
                self.post(host, Request::RemoveChannel { channel });
            });
        }
        let turn = |world: &mut Self| {
            world.now = world.now + audit::STEP_NS;
            world.turn();
        };
        audit::until_rest(self, turn, |world| {
            world.hosts.iter().map(|host| &host.engine).collect()
        });
    }

    /// Turns until `done`; panics if that takes longer than ten minutes of the world's time.
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

    pub fn post(&mut self, host: usize, request: Request) {
        self.hosts[host].control.post(request).expect("the mailbox is free after a turn");
        self.turn();
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

    pub fn attach(&mut self, host: usize, sizes: Sizes) -> App {
        self.attach_with(host, sizes, 64)
    }

    pub fn attach_with(&mut self, host: usize, sizes: Sizes, connections_max: u32) -> App {
        self.attach_as(host, 0, sizes, connections_max)
    }

    /// An app of this user.
    pub fn attach_as(&mut self, host: usize, user: u32, sizes: Sizes, connections_max: u32) -> App {
        self.attach_allowed(host, user, sizes, Allowance::of_connections(connections_max))
    }

    /// The same, which may do so much.
    pub fn attach_allowed(
        &mut self,
        host: usize,
        user: u32,
        sizes: Sizes,
        allowance: Allowance,
    ) -> App {
        let channel = self.next_channel;
        self.next_channel += 1;
        let (app, request) = App::attaching(host, channel, user, sizes, allowance);
        self.post(host, request);
        app
    }

    pub fn listen(&mut self, app: &App, port: u16) -> Result<(), Code> {
        let channel = app.channel;
        self.post(app.host, Request::Listen { channel, listener: 1, address: None, port });
        events::take_listening(&mut self.hosts[app.host].events)
    }

    /// Opens a virtual interface for `app`.
    pub fn open_vif(&mut self, app: &App, vif: u32, spec: VifSpec) -> Result<(), VifRefused> {
        let (channel, spec) = (app.channel, Box::new(spec));
        self.post(app.host, Request::OpenVif { channel, vif, spec });
        events::take_vif_opened(&mut self.hosts[app.host].events)
    }

    /// Opens a capture for `app`.
    pub fn open_capture(
        &mut self,
        app: &App,
        vif: u32,
        spec: CaptureSpec,
    ) -> Result<(), VifRefused> {
        let (channel, spec) = (app.channel, Box::new(spec));
        self.post(app.host, Request::OpenCapture { channel, vif, spec });
        events::take_vif_opened(&mut self.hosts[app.host].events)
    }

    /// What the engine of a host says about itself.
    pub fn snapshot(&mut self, host: usize) -> Snapshot {
        self.post(host, Request::Snapshot { id: 0 });
        let mut snapshot = None;
        self.turn_until(|world| {
            snapshot = events::take_snapshot(&mut world.hosts[host].events);
            snapshot.is_some()
        });
        snapshot.expect("just seen")
    }

    /// Connects `client` to `server`, which listens on `port`: the ids at both.
    #[track_caller]
    pub fn connect(&mut self, client: &mut App, server: &mut App, port: u16) -> (u64, u64) {
        let peer = SocketAddr::new(address(server.host), port);
        client.submit(&Command::Connect { token: 1, peer });
        self.turn_until(|_| client.has_met(server));
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

fn host(index: usize, config: EngineConfig, queue: Box<dyn Queue>, seed: u64, now: Time) -> Host {
    let mac = queue.info().mac;
    let seed = seed * 2 + index as u64;
    let (engine, control) =
        Engine::new(config, vec![queue], seed, [index as u8; 16], now).expect("descriptors");
    Host { mac, engine, control, events: Vec::new() }
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
    /// What was said of regions.
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
        host: usize,
        channel: u32,
        user: u32,
        sizes: Sizes,
        allowance: Allowance,
    ) -> (Self, Request) {
        let (end, handover) = DaemonEnd::create(sizes).expect("memory");
        let (app, end) = (format!("app-{channel}"), Box::new(end));
        let request = Request::AddChannel { channel, app, user, end, allowance };
        let end = AppEnd::open(handover, sizes).expect("fits");
        let app = Self {
            host,
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
                Told::Operated { status, token, value, extra, bytes } => {
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
                other @ (Completion::Shared { .. }
                | Completion::Unshared { .. }
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
        if !self.end.has_room() {
            return false;
        }
        let Some(extent) = self.end.allocate(bytes.len() as u32) else { return false };
        self.end.transmit_bytes(&extent).copy_from_slice(bytes);
        let (offset, length) = (extent.offset(), extent.length());
        self.unfinished.entry(connection).or_default().1.push_back(extent);
        self.submit(&Command::Send { connection, stream: 0, offset, length });
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
