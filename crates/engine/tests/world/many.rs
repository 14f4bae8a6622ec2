//! Hosts of several engines each, at a switch, in one thread and virtual time. Does what the
//! control plane does where engines of a NIC have to know the same.

use std::net::SocketAddr;

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_channel::{Code, Command, Sizes};
use clearway_engine::{
    Allowance, CaptureSpec, Control, Engine, Event, Request, Snapshot, TcpPortSpec, VifRefused,
    VifSpec,
};
use clearway_nic::{MacAddress, Queue, fabric};

use super::{App, address, audit, config_of, events};

/// An engine of a host, and what it has said.
pub struct Member {
    pub engine: Engine,
    pub control: Control,
    pub events: Vec<Event>,
    /// It has no turns: its thread was taken off its core.
    pub is_stopped: bool,
}

/// A host of several engines.
pub struct ManyHost {
    pub mac: MacAddress,
    pub members: Vec<Member>,
}

/// Hosts at a switch, and NICs without one.
pub struct ManyWorld {
    pub hosts: Vec<ManyHost>,
    /// The queue of a NIC that a test plays itself; its number among the ports is that of a host
    /// more.
    pub stranger: fabric::Queue,
    pub fabric: fabric::Handle,
    pub now: Time,
    next_channel: u32,
    next_id: u64,
    /// Of each virtual interface and capture that siblings took note of: the host, the channel and
    /// the id in it.
    noted: Vec<(usize, u32, u32)>,
}

/// Where an app is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub host: usize,
    pub engine: usize,
}

fn mac(port: usize) -> MacAddress {
    [2, 0, 0, 0, 1, port as u8]
}

impl ManyWorld {
    /// As many hosts as `engines` has numbers, with so many engines each.
    pub fn new(seed: u64, engines: &[usize]) -> Self {
        Self::with_rss(seed, engines, fabric::RssOptions::default())
    }

    /// The same, with NICs that spread frames in this way.
    pub fn with_rss(seed: u64, engines: &[usize], rss: fabric::RssOptions) -> Self {
        let ports = engines.iter().chain(&[1]).enumerate();
        let port = |(port, queues): (usize, &usize)| fabric::Port {
            rss,
            ..fabric::Port::new(mac(port), *queues)
        };
        let ports: Vec<fabric::Port> = ports.map(port).collect();
        let (mut queues, fabric) = fabric::switch(fabric::Options::new(seed), &ports);
        let mut stranger = queues.pop().expect("one more than hosts");
        let now = Time::from_ns(SECOND);
        let hosts = queues.into_iter().enumerate().map(|(index, queues)| {
            let boxed = |queue| vec![Box::new(queue) as Box<dyn Queue>];
            let queues = queues.into_iter().map(boxed).collect();
            let config = config_of(index, mac(index));
            let seed = seed * 1000 + 100 * index as u64;
            let engines = Engine::siblings(&config, queues, seed, [index as u8; 16], now);
            let member = |(engine, control)| Member {
                engine,
                control,
                events: Vec::new(),
                is_stopped: false,
            };
            let members = engines.expect("descriptors").into_iter().map(member).collect();
            ManyHost { mac: mac(index), members }
        });
        let (hosts, stranger) = (hosts.collect(), stranger.remove(0));
        Self { hosts, stranger, fabric, now, next_channel: 1, next_id: 1, noted: Vec::new() }
    }

    /// One turn of each engine, and as much time as that takes.
    pub fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabric.set_time(self.now);
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

    /// Ends all apps, and sees to it that nothing is left. What a test has done to the wire is
    /// undone.
    fn end(&mut self) {
        // While all that an app has left behind is still there.
        let members = self.hosts.iter().flat_map(|host| &host.members);
        audit::now(members.map(|member| &member.engine));
        for from in 0..=self.hosts.len() {
            for to in 0..=self.hosts.len() {
                self.fabric.set_cut(from, to, false);
            }
        }
        for host in 0..self.hosts.len() {
            for engine in 0..self.hosts[host].members.len() {
                self.hosts[host].members[engine].is_stopped = false;
                self.turn();
                let at = Place { host, engine };
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
        audit::until_rest(self, turn, |world| {
            let members = world.hosts.iter().flat_map(|host| &host.members);
            members.map(|member| &member.engine).collect()
        });
    }

    /// Turns until `done`; panics if that takes longer than some minutes of the world's time.
    #[track_caller]
    pub fn turn_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let mut turns = 0;
        while !done(self) {
            self.turn();
            turns += 1;
            if turns % 64 == 0 {
                self.now = self.now + 100 * MICROSECOND;
            }
            assert!(turns < 2_000_000, "stuck at {:?}", self.now);
        }
    }

    pub fn post(&mut self, at: Place, request: Request) {
        let member = &mut self.hosts[at.host].members[at.engine];
        member.control.post(request).expect("the mailbox is free after a turn");
        self.turn();
    }

    /// Posts what `request` says for each of the other engines of the host.
    pub fn post_to_siblings(&mut self, at: Place, mut request: impl FnMut() -> Request) {
        for engine in 0..self.hosts[at.host].members.len() {
            if engine != at.engine {
                self.post(Place { engine, ..at }, request());
            }
        }
    }

    pub fn attach(&mut self, at: Place, sizes: Sizes) -> App {
        let channel = self.next_channel;
        self.next_channel += 1;
        let (app, request) =
            App::attaching(at.host, channel, 0, sizes, Allowance::of_connections(64));
        self.post(at, request);
        app
    }

    pub fn listen(&mut self, at: Place, app: &App, port: u16) -> Result<(), Code> {
        let channel = app.channel;
        self.post(at, Request::Listen { channel, listener: 1, address: None, port });
        events::take_listening(self.events(at))?;
        self.note_listener(at, port, Some(at.engine));
        Ok(())
    }

    pub fn note_listener(&mut self, at: Place, port: u16, engine: Option<usize>) {
        let id = self.next_id;
        self.next_id += 1;
        self.post_to_siblings(at, || Request::NoteListener { id, port, engine });
        let members = self.hosts[at.host].members.iter();
        let noted = members.filter(|member| {
            member
                .events
                .iter()
                .any(|event| matches!(event, Event::ListenerNoted { id: noted } if *noted == id))
        });
        assert_eq!(noted.count(), self.hosts[at.host].members.len() - 1);
    }

    /// Opens a virtual interface, of which all engines of the host take note.
    pub fn open_vif(
        &mut self,
        at: Place,
        app: &App,
        vif: u32,
        spec: VifSpec,
    ) -> Result<(), VifRefused> {
        let channel = app.channel;
        self.noted.push((at.host, channel, vif));
        self.post(at, Request::OpenVif { channel, vif, spec: Box::new(spec.clone()) });
        events::take_vif_opened(self.events(at))?;
        self.post_to_siblings(at, || Request::NoteVif {
            engine: at.engine,
            channel,
            vif,
            spec: Box::new(spec.clone()),
        });
        for engine in (0..self.hosts[at.host].members.len()).filter(|other| *other != at.engine) {
            events::take_vif_opened(self.events(Place { engine, ..at }))?;
        }
        Ok(())
    }

    /// Opens a TCP port, of which all engines of the host take note.
    pub fn open_tcp_port(&mut self, at: Place, app: &App, number: u32, spec: TcpPortSpec) {
        let channel = app.channel;
        self.noted.push((at.host, channel, number));
        let rights = spec.rights.clone();
        self.post(at, Request::OpenTcpPort { channel, number, spec: Box::new(spec) });
        events::take_vif_opened(self.events(at)).expect("a port");
        self.post_to_siblings(at, || Request::NoteVif {
            engine: at.engine,
            channel,
            vif: number,
            spec: Box::new(rights.clone()),
        });
    }

    /// Closes what an app has under this number, at all engines of its host.
    pub fn close_vif(&mut self, at: Place, app: &App, vif: u32) {
        let channel = app.channel;
        self.noted.retain(|noted| *noted != (at.host, channel, vif));
        self.post(at, Request::CloseVif { channel, vif, told: None });
        self.post_to_siblings(at, || Request::CloseVif { channel, vif, told: None });
    }

    pub fn open_capture(&mut self, at: Place, app: &App, vif: u32, spec: CaptureSpec) {
        let (channel, engine) = (app.channel, at.engine);
        self.noted.push((at.host, channel, vif));
        self.post(at, Request::OpenCapture { channel, vif, spec: Box::new(spec.clone()) });
        self.post_to_siblings(at, || Request::NoteCapture {
            engine,
            channel,
            vif,
            spec: Box::new(spec.clone()),
        });
        for engine in 0..self.hosts[at.host].members.len() {
            let opened = events::take_vif_opened(self.events(Place { engine, ..at }));
            opened.expect("captures are always opened");
        }
    }

    fn events(&mut self, at: Place) -> &mut Vec<Event> {
        &mut self.hosts[at.host].members[at.engine].events
    }

    pub fn snapshot(&mut self, at: Place) -> Snapshot {
        self.post(at, Request::Snapshot { id: 0 });
        events::take_snapshot(self.events(at)).expect("answered in one turn")
    }

    /// What an engine has counted under a name.
    pub fn counter(&mut self, at: Place, name: &str) -> u64 {
        let snapshot = self.snapshot(at);
        let counter = snapshot.counters.iter().find(|(other, _)| *other == name);
        counter.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Connects `client` to `server`, which listens on `port`: the ids at both.
    #[track_caller]
    pub fn connect(&mut self, client: &mut App, server: &mut App, port: u16) -> (u64, u64) {
        let peer = SocketAddr::new(address(server.host), port);
        client.submit(&Command::Connect { token: 1, peer });
        self.turn_until(|_| {
            let has_met = client.has_met(server);
            assert_eq!(client.failed, []);
            has_met
        });
        client.ids_with(server)
    }
}

impl Drop for ManyWorld {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}
