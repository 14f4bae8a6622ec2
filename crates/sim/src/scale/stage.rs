//! Hosts, the switch between them, and apps that do what a measurement wants; no faults, no
//! checkers.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use clearway_base::{Random, SECOND, Time};
use clearway_channel::control::{Attach, Listen, Reply, Request as ControlRequest};
use clearway_channel::{AppEnd, Command, Completion, Extent, Sizes, Told as ToldApp};
use clearway_engine::{Congestion, Event, Request, Snapshot};
use clearway_nic::fabric::RssOptions;

use crate::agenda::{Agenda, Happening};
use crate::control::{Fate, Told, USER_MIN};
use crate::host::{Host, Nature, NicNature};
use crate::network::{Link, Network, PortNature, RouterNature, Subnet, Versions, port_of};

const PORT: u16 = 7000;
const MTU: u16 = 1500;
/// All hosts are in one subnet.
const ROUTER: RouterNature = RouterNature { mtu: MTU, says_too_large: false };
/// Pools of an app with thousands of connections. All their pages are there from the beginning.
pub(super) const LARGE: Sizes = Sizes {
    submission_entries: 1024,
    completion_entries: 4096,
    transmit_pool_bytes: 16 << 20,
    receive_pool_bytes: 64 << 20,
    shared_bytes: 0,
};
/// Pools of an app with some, that sends much.
pub(super) const SMALL: Sizes = Sizes {
    submission_entries: 1024,
    completion_entries: 1024,
    transmit_pool_bytes: 1 << 20,
    receive_pool_bytes: 2 << 20,
    shared_bytes: 0,
};
/// The smallest pools that there are, of an app with some connections and small messages.
pub(super) const SMALLEST: Sizes = Sizes {
    submission_entries: 64,
    completion_entries: 64,
    transmit_pool_bytes: 64 << 10,
    receive_pool_bytes: 64 << 10,
    shared_bytes: 0,
};

/// An app on one engine of a host. It may listen.
struct Seat {
    host: u32,
    engine: u32,
    end: AppEnd,
    /// What it sends: all messages stand in the same bytes, which nobody writes.
    extent: Option<Extent>,
}

/// Everything that a measurement plays on.
pub(super) struct Stage {
    pub(super) now: Time,
    pub(super) network: Network,
    /// Time that this machine's processor has spent in the engines' turns.
    pub(super) cpu_ns: u64,
    agenda: Agenda,
    hosts: Vec<Host>,
    seats: Vec<Seat>,
    /// The apps of each host.
    seats_of: Vec<Vec<usize>>,
    snapshots: Vec<Snapshot>,
}

impl Stage {
    /// A host for each of these links, and no apps yet. The keys of their NICs follow from `seed`.
    pub(super) fn new(links: &[Link], engines: usize, congestion: Congestion, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let now = Time::from_ns(SECOND);
        let mut host = |host| Host::new(nature(host, engines, congestion), now, &mut random);
        Self {
            now,
            network: Network::new(&ports(links), ROUTER, 1),
            cpu_ns: 0,
            agenda: Agenda::default(),
            hosts: (0..links.len()).map(&mut host).collect(),
            seats: Vec::new(),
            seats_of: vec![Vec::new(); links.len()],
            snapshots: Vec::new(),
        }
    }

    /// An app, that listens at its address or only connects. Its number.
    pub(super) fn seat(&mut self, host: u32, engine: u32, listens: bool, sizes: Sizes) -> usize {
        let place = &mut self.hosts[host as usize];
        let session = self.seats.len() as u64;
        let attach = Attach::new("scale", Some(engine.to_string()), sizes);
        let attached = place.control.attach(session, USER_MIN, attach, Fate::Lives);
        let (_, handover) = attached.expect("nothing goes wrong here");
        if listens {
            let listen = Listen { address: None, port: PORT + engine as u16 };
            place.control.plane.handle_request(session, ControlRequest::Listen(listen));
        }
        self.carry_out(host);
        let end = AppEnd::open(handover, sizes).expect("its own memory");
        self.seats_of[host as usize].push(self.seats.len());
        self.seats.push(Seat { host, engine, end, extent: None });
        self.wake_host(host);
        self.seats.len() - 1
    }

    fn carry_out(&mut self, host: u32) {
        let place = &mut self.hosts[host as usize];
        while let Some(told) = place.control.next(|| false) {
            match told {
                Told::Engine(engine, request) => place.post(engine as u32, request),
                Told::Session(_, Reply::Error(refusal)) | Told::Expelled(_, refusal) => {
                    panic!("{}", refusal.message)
                }
                Told::Session(..) => {}
            }
        }
    }

    /// The host that has this address.
    pub(super) fn host_at(address: IpAddr) -> usize {
        port_of(address).expect("an address of a host")
    }

    /// Connects one app to another, by a flow that others share or not. False if there is no room
    /// for the command.
    pub(super) fn connect(&mut self, seat: usize, to: usize, token: u64, is_shared: bool) -> bool {
        let listener = &self.seats[to];
        let (address, _) = self.hosts[listener.host as usize].nature.addresses()[0];
        let peer = SocketAddr::new(address, PORT + listener.engine as u16);
        let command = match is_shared {
            true => Command::ConnectShared { token, peer },
            false => Command::Connect { token, peer },
        };
        self.seats[seat].end.submit(&command).is_ok()
    }

    /// Sends one message; all that an app sends have the same length. False if there is no room.
    pub(super) fn send(&mut self, seat: usize, connection: u64, length: u32) -> bool {
        let Seat { end, extent, .. } = &mut self.seats[seat];
        if extent.is_none() {
            *extent = end.allocate(length);
        }
        let Some(offset) = extent.as_ref().map(Extent::offset) else { return false };
        end.submit(&Command::Send { connection, stream: 0, offset, length }).is_ok()
    }

    /// The engine of this app is told of its commands.
    pub(super) fn ring(&mut self, seat: usize) {
        let Seat { host, engine, ref mut end, .. } = self.seats[seat];
        end.flush();
        self.hosts[host as usize].ring(engine);
        self.wake(host, engine, self.now);
    }

    /// What happens next. `told` hears what each app is told.
    pub(super) fn step(&mut self, told: &mut dyn FnMut(usize, &Completion)) {
        let Some((at, what)) = self.agenda.take() else { return };
        self.now = at;
        match what {
            Happening::Turn { host, engine } => self.turn(host, engine, told),
            Happening::AtSwitch { from, frame } => {
                self.network.forward(at, from, frame, &mut self.agenda);
            }
            Happening::AtNic { to, frame } => {
                if let Some(engine) = self.hosts[to as usize].arrive(to, frame) {
                    self.wake(to, engine, at);
                }
            }
            _ => {}
        }
    }

    /// What all engines say of themselves.
    pub(super) fn snapshots(&mut self, told: &mut dyn FnMut(usize, &Completion)) -> Vec<Snapshot> {
        let mut asked = 0;
        for host in 0..self.hosts.len() as u32 {
            for engine in 0..self.engines(host) {
                self.hosts[host as usize].post(engine, Request::Snapshot { id: 0 });
                asked += 1;
            }
            self.wake_host(host);
        }
        while self.snapshots.len() < asked {
            self.step(told);
        }
        std::mem::take(&mut self.snapshots)
    }

    fn engines(&self, host: u32) -> u32 {
        self.hosts[host as usize].runners.len() as u32
    }

    fn wake_host(&mut self, host: u32) {
        self.hosts[host as usize].wake_all(self.now, &mut self.agenda);
    }

    fn wake(&mut self, host: u32, engine: u32, at: Time) {
        self.hosts[host as usize].wake(engine, at, &mut self.agenda);
    }

    fn turn(&mut self, host: u32, engine: u32, told: &mut dyn FnMut(usize, &Completion)) {
        let place = &mut self.hosts[host as usize];
        let started = Instant::now();
        let turned = place.turn_if_due(engine, self.now, &mut self.agenda);
        let Some(turned) = turned else { return };
        self.cpu_ns += started.elapsed().as_nanos() as u64;
        place.send(engine, turned.frames, self.now, &mut self.network, &mut self.agenda);
        for event in turned.events {
            self.hear(host, engine, event);
        }
        if turned.turn.told_apps {
            self.read(host, engine, told);
        }
        if turned.turn.is_busy {
            // It may have put something into a lane.
            for other in self.hosts[host as usize].siblings_of(engine) {
                self.wake(host, other, self.now);
            }
        }
        self.hosts[host as usize].plan(engine, self.now, turned.turn, &mut self.agenda);
    }

    fn hear(&mut self, host: u32, engine: u32, event: Event) {
        self.hosts[host as usize].control.plane.handle_event(engine as usize, &event);
        self.carry_out(host);
        if let Event::Snapshot { snapshot, .. } = event {
            self.snapshots.push(*snapshot);
        }
    }

    /// The apps of an engine take what they are told.
    fn read(&mut self, host: u32, engine: u32, told: &mut dyn FnMut(usize, &Completion)) {
        for &number in &self.seats_of[host as usize] {
            let seat = &mut self.seats[number];
            if seat.engine != engine {
                continue;
            }
            while let Some(next) = seat.end.next_told().expect("valid") {
                let completion = next.completion();
                match next {
                    ToldApp::Message(message) => seat.end.release(message.bytes),
                    ToldApp::Other(Completion::ConnectFailed { code, .. }) => {
                        panic!("{}", code.name())
                    }
                    _ => {}
                }
                told(number, &completion);
            }
            seat.end.flush_releases();
        }
    }
}

fn ports(links: &[Link]) -> Vec<PortNature> {
    let each = (0..).zip(links);
    each.map(|(host, link)| PortNature { host, subnet: Subnet::default(), link: *link }).collect()
}

fn nature(host: usize, engines: usize, congestion: Congestion) -> Nature {
    Nature {
        host,
        nics: vec![NicNature {
            port: host,
            subnet: Subnet::default(),
            rss: RssOptions::default(),
            engines,
        }],
        versions: Versions::V4,
        mtu: MTU,
        turn_ns: 200,
        frame_ns: 100,
        sleeps: false,
        congestion,
        clock_offset_ns: 0,
        drift_ppm: 0,
    }
}
