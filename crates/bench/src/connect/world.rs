//! Two hosts and the fabric between them, in one thread.

use clearway_base::{MICROSECOND, Random, Time};
use clearway_channel::Code;
use clearway_engine::{Allowance, Clock, Control, Engine, Event, FlowSnapshot, Request};
use clearway_nic::fabric::{self, Faults, Options, Port, RssOptions};
use clearway_nic::{MacAddress, Queue};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::ConnectCommand;
use super::app::App;
use super::together::QUIET_NS;
use crate::host::engine_config;

/// The service port of the server's first engine; the next one's is one higher.
const PORT: u16 = 5000;
/// What a pass takes at most, by the world's time: that the kernel let others run in between is
/// nothing that the network did, and no reason to send again.
const PASS_NS_MAX: u64 = 20 * MICROSECOND;

pub(super) struct World {
    pub(super) client: Host,
    pub(super) server: Host,
    fabric: fabric::Handle,
    clock: Clock,
    /// The world's time, and that of the clock when it was last looked at.
    now: Time,
    looked_at: Time,
    /// Frames take time, so the fabric has to know it.
    has_latency: bool,
    /// How long nothing is sent when nothing more will be.
    pub(super) quiet_ns: u64,
}

/// A host whose engines have one app each.
pub(super) struct Host {
    address: IpAddr,
    engines: Vec<Engine>,
    controls: Vec<Control>,
    pub(super) apps: Vec<App>,
}

impl World {
    pub(super) fn open(command: &ConnectCommand) -> io::Result<Self> {
        let latency_ns = u64::from(command.latency_us) * 1000;
        let faults = Faults { loss_ppm: command.loss_ppm, latency_ns, ..Faults::default() };
        let rss = RssOptions { hash: command.rss, ..RssOptions::default() };
        let port = |number, queues| Port { rss, sends: faults, ..Port::new(mac(number), queues) };
        let ports = [port(1, command.client_engines), port(2, command.server_engines)];
        let (queues, fabric) = fabric::switch(Options::new(command.seed), &ports);
        let clock = Clock::new();
        let mut hosts = Vec::new();
        for (queues, number) in queues.into_iter().zip(1..) {
            hosts.push(Host::open(number, queues, command.seed, clock.now())?);
        }
        let (server, client) = (hosts.pop(), hosts.pop());
        let (Some(client), Some(server)) = (client, server) else { unreachable!("two ports") };
        let (has_latency, quiet_ns) = (latency_ns > 0, QUIET_NS + 4 * latency_ns);
        let now = clock.now();
        let looked_at = now;
        let mut world =
            Self { client, server, fabric, clock, now, looked_at, has_latency, quiet_ns };
        world.listen()?;
        Ok(world)
    }

    /// The app of each engine of the server listens on a port of its own, of which the others know.
    fn listen(&mut self) -> io::Result<()> {
        for engine in 0..self.server.engines.len() {
            let port = PORT + engine as u16;
            for other in (0..self.server.engines.len()).filter(|other| *other != engine) {
                self.ask(
                    false,
                    other,
                    Request::NoteListener { id: 0, port, engine: Some(engine) },
                )?;
            }
            let channel = engine as u32;
            let request = Request::Listen { channel, listener: 1, address: None, port };
            match self.ask(false, engine, request)? {
                Some(Event::Listening { result: Ok(_), .. }) => {}
                other => return Err(io::Error::other(format!("cannot listen: {other:?}"))),
            }
        }
        Ok(())
    }

    /// Asks an engine for something; its answer, if there is one at once.
    fn ask(&mut self, client: bool, engine: usize, request: Request) -> io::Result<Option<Event>> {
        let host = if client { &self.client } else { &self.server };
        let posted = host.controls[engine].post(request);
        posted.map_err(|_| io::Error::other("an engine's mailbox is full"))?;
        self.pass()?;
        let host = if client { &self.client } else { &self.server };
        Ok(host.controls[engine].next_event())
    }

    /// One turn of each engine and each app, and the time at which it began.
    pub(super) fn pass(&mut self) -> io::Result<Time> {
        let at = self.clock.now();
        self.now = self.now + at.since(self.looked_at).min(PASS_NS_MAX);
        self.looked_at = at;
        let now = self.now;
        if self.has_latency {
            self.fabric.set_time(now);
        }
        for host in [&mut self.client, &mut self.server] {
            for (engine, app) in host.engines.iter_mut().zip(&mut host.apps) {
                engine.turn(now);
                app.poll()?;
            }
        }
        Ok(now)
    }

    /// The world's time: when the last pass began.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// The time of this machine, which is what a set-up is measured by.
    pub(super) fn clock(&self) -> Time {
        self.clock.now()
    }

    /// Packets that both hosts have sent so far.
    pub(super) fn packets(&self) -> u64 {
        self.fabric.frames_sent()
    }

    /// Where the app of an engine of the server listens.
    pub(super) fn listener(&self, engine: usize) -> SocketAddr {
        SocketAddr::new(self.server.address, PORT + engine as u16)
    }

    /// What the two engines know of the connection between them.
    pub(super) fn flows(&mut self, from: usize, to: usize) -> io::Result<Vec<FlowSnapshot>> {
        let mut flows = Vec::new();
        for (client, engine) in [(true, from), (false, to)] {
            match self.ask(client, engine, Request::Snapshot { id: 0 })? {
                Some(Event::Snapshot { snapshot, .. }) => flows.extend(snapshot.flows),
                other => return Err(io::Error::other(format!("no snapshot: {other:?}"))),
            }
        }
        Ok(flows)
    }

    /// Both NICs spread by other keys from now on.
    pub(super) fn rekey_both(&self) {
        self.fabric.rekey(0);
        self.fabric.rekey(1);
    }
}

impl Host {
    fn open(number: u8, queues: Vec<fabric::Queue>, seed: u64, now: Time) -> io::Result<Self> {
        let queues = queues.into_iter().map(|queue| vec![Box::new(queue) as Box<dyn Queue>]);
        let mut random = Random::new(seed ^ u64::from(number) << 32);
        let secret = std::array::from_fn(|_| random.next_u32() as u8);
        let config = engine_config(mac(number), address(number));
        let opened = Engine::siblings(&config, queues.collect(), random.next_u64(), secret, now)?;
        let (mut engines, controls): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let mut apps = Vec::new();
        for (engine, control) in engines.iter_mut().zip(&controls) {
            let (app, end) = App::new()?;
            let channel = apps.len() as u32;
            let (name, end) = (format!("bench-{channel}"), Box::new(end));
            let add = Request::AddChannel {
                channel,
                app: name,
                user: 0,
                end,
                allowance: Allowance::of_connections(16),
            };
            control.post(add).map_err(|_| io::Error::other("an engine's mailbox is full"))?;
            engine.turn(now);
            apps.push(app);
        }
        Ok(Self { address: address(number), engines, controls, apps })
    }
}

/// How a set-up failed, for the error message.
pub(super) fn refused(code: Code) -> io::Error {
    io::Error::other(format!("a connection was refused: {code:?}"))
}

const fn mac(number: u8) -> MacAddress {
    [2, 0, 0, 0, 0, number]
}

const fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, number))
}
