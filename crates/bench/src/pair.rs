//! Two hosts in this process, joined by a memif that has a queue for each engine of a host; and the
//! ends of connections between their apps.

mod end;

pub(crate) use end::End;

use crate::directory::Directory;
use crate::host::engine_config;
use clearway_channel::{AppEnd, Command, Completion, DaemonEnd, Sizes};
use clearway_engine::{Allowance, Clock, Control, Engine, Request};
use clearway_nic::{MacAddress, Queue, memif};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// How long hosts and apps may take to find each other.
const PATIENCE: Duration = Duration::from_secs(10);

const SIZES: Sizes = Sizes {
    submission_entries: 1024,
    completion_entries: 1024,
    transmit_pool_bytes: 4 << 20,
    receive_pool_bytes: 4 << 20,
    shared_bytes: 4096,
};

/// The engines of both hosts, and how they are spoken to: host by host, engine by engine.
pub(crate) struct Pair {
    hosts: [Vec<(Engine, Control)>; 2],
    clock: Clock,
    channel_next: u32,
    /// Where the hosts have met; removed at the end.
    _directory: Directory,
}

/// The engines of one number at both hosts, for one thread.
pub(crate) struct Line {
    engines: [Engine; 2],
    /// An engine lives as long as whoever speaks to it.
    _controls: [Control; 2],
    clock: Clock,
}

impl Line {
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        for engine in &mut self.engines {
            engine.turn(now);
        }
    }
}

impl Pair {
    /// Hosts of so many engines each.
    pub(crate) fn open(engines: u16) -> io::Result<Self> {
        let directory = Directory::create()?;
        let clock = Clock::new();
        let open = |host: usize, role| {
            let socket = memif::Socket::Path(directory.path().join("memif.sock"));
            let mut config = memif::Config::new(socket, role, mac(host));
            config.queue_pairs = engines;
            let queues = memif::open(config).map_err(io::Error::other)?;
            let each = queues.into_iter().map(|queue| vec![Box::new(queue) as Box<dyn Queue>]);
            let (seed, secret) = (host as u64, [host as u8; 16]);
            Engine::siblings(
                &engine_config(mac(host), address(host)),
                each.collect(),
                seed,
                secret,
                clock.now(),
            )
        };
        let hosts = [open(0, memif::Role::Server)?, open(1, memif::Role::Client)?];
        Ok(Self { hosts, clock, channel_next: 1, _directory: directory })
    }

    /// The engines as they are to be run: those of each number by one thread.
    pub(crate) fn into_lines(self) -> impl Iterator<Item = Line> {
        let [a, b] = self.hosts.map(Vec::into_iter);
        a.zip(b).map(move |((a, of_a), (b, of_b))| Line {
            engines: [a, b],
            _controls: [of_a, of_b],
            clock: self.clock.clone(),
        })
    }

    /// Two apps that are connected, on the engines of this number: the first host's connects, the
    /// second's listens on a port of its own.
    pub(crate) fn connect(&mut self, engine: usize) -> io::Result<[(AppEnd, u64); 2]> {
        let port = 4000 + self.channel_next as u16;
        let (mut client, _) = self.attach(0, engine)?;
        let (mut server, channel) = self.attach(1, engine)?;
        let listen = Request::Listen { channel, listener: 1, address: None, port };
        self.post(1, engine, listen)?;
        let deadline = Instant::now() + PATIENCE;
        let (mut near, mut far, mut is_asking) = (None, None, false);
        while near.is_none() || far.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the hosts do not meet"));
            }
            if !is_asking {
                let peer = SocketAddr::new(address(1), port);
                let _ = client.submit(&Command::Connect { token: 1, peer }); // there is room
                client.flush();
                is_asking = true;
            }
            self.turn();
            match client.next_told().map_err(io::Error::other)?.map(|told| told.completion()) {
                Some(Completion::Connected { connection, .. }) => near = Some(connection),
                // The wire is not up yet.
                Some(Completion::ConnectFailed { .. }) => is_asking = false,
                _ => {}
            }
            match server.next_told().map_err(io::Error::other)?.map(|told| told.completion()) {
                Some(Completion::Accepted { connection, .. }) => far = Some(connection),
                // An attempt that its client has given up.
                Some(Completion::Closed { connection, .. }) if far == Some(connection) => {
                    far = None
                }
                _ => {}
            }
        }
        Ok([(client, near.unwrap_or_default()), (server, far.unwrap_or_default())])
    }

    /// Takes turns until an app is told something.
    pub(crate) fn await_told(&mut self, app: &mut AppEnd) -> io::Result<Completion> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.turn();
            if let Some(told) = app.next_told().map_err(io::Error::other)? {
                return Ok(told.completion());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the engine does not answer"))
    }

    fn attach(&mut self, host: usize, engine: usize) -> io::Result<(AppEnd, u32)> {
        let channel = self.channel_next;
        self.channel_next += 1;
        let (end, handover) = DaemonEnd::create(SIZES)?;
        let app = AppEnd::open(handover, SIZES).map_err(io::Error::other)?;
        let (name, end) = ("bench".into(), Box::new(end));
        let add = Request::AddChannel {
            channel,
            app: name,
            user: 0,
            end,
            allowance: Allowance::of_connections(8),
        };
        self.post(host, engine, add)?;
        Ok((app, channel))
    }

    fn post(&mut self, host: usize, engine: usize, request: Request) -> io::Result<()> {
        let (_, control) = &self.hosts[host][engine];
        control.post(request).map_err(|_| io::Error::other("the mailbox is full"))?;
        self.turn();
        Ok(())
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        for (engine, control) in self.hosts.iter_mut().flatten() {
            engine.turn(now);
            while control.next_event().is_some() {}
        }
    }
}

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

fn mac(host: usize) -> MacAddress {
    [2, 0, 0, 0, 0, host as u8 + 1]
}
