//! Hosts whose engines work when their apps call, as those of `clearway-embed` do, in time that
//! goes on by a fixed step whenever they do: nothing depends on how slow a counted program is.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clearway_base::Time;
use clearway_channel::control::{
    Listen, Listening, OpenTcpPort, Reply, Request as AppRequest, TcpPortOpened,
};
use clearway_channel::{AppEnd, DaemonEnd};
use clearway_client::{Channel, Code, Embedded, Error, Options, Sizes, Waiting};
use clearway_engine::{
    Allowance, Clock, Control, Engine, Event, Group, Idle, Request, TcpPortSpec, VifSpec,
};
use clearway_nic::{HEADER_BYTES_MAX, MacAddress, Queue, memif};

use crate::host::engine_config;

/// What a turn takes, or sending: as long as one with a packet or two does.
const TURN_NS: u64 = 500;
const SIZES: Sizes = Sizes {
    submission_entries: 256,
    completion_entries: 256,
    transmit_pool_bytes: 4 << 20,
    receive_pool_bytes: 4 << 20,
    shared_bytes: 4096,
};
/// The largest packet, unless a case says otherwise.
pub(super) const MTU: u16 = 1500;
/// All hosts listen here.
const PORT: u16 = 4000;
const LISTENER: u32 = 1;

/// The time of all hosts.
#[derive(Clone, Default)]
pub(crate) struct Ticks(Arc<AtomicU64>);

impl Ticks {
    pub(crate) fn next(&self) -> Time {
        Time::from_ns(self.0.fetch_add(TURN_NS, Ordering::Relaxed))
    }
}

/// A host with one address, whose apps are all in this thread.
#[derive(Clone)]
pub(super) struct Host {
    machine: Arc<Mutex<Machine>>,
    address: IpAddr,
    mac: MacAddress,
}

struct Machine {
    group: Group,
    control: Control,
    ticks: Ticks,
    channels: u32,
}

impl Host {
    /// Both ends of a memif in this process.
    pub(super) fn pair(ticks: &Ticks) -> io::Result<[Self; 2]> {
        Self::pair_of(ticks, MTU)
    }

    /// The same for packets of up to `mtu` bytes.
    pub(super) fn pair_of(ticks: &Ticks, mtu: u16) -> io::Result<[Self; 2]> {
        let name = format!("@clearway-instructions-{}", std::process::id());
        let open = |role, number: u8| -> io::Result<Self> {
            let mac = [2, 0, 0, 0, 0, number];
            let memif = memif::Config::new(name.as_str(), role, mac);
            let memif = memif.with_frames(usize::from(mtu) + HEADER_BYTES_MAX);
            let queues = memif::open(memif).map_err(io::Error::other)?;
            let queues =
                queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
            let address = IpAddr::from([10, 0, 0, number]);
            let mut config = engine_config(mac, address);
            config.interface.mtu = mtu;
            let seed = u64::from(number);
            let (engine, control) = Engine::new(config, queues, seed, [number; 16], ticks.next())?;
            // Its clock is never looked at.
            let group = Group::new(vec![engine], Idle::Spin, Clock::new());
            let machine = Machine { group, control, ticks: ticks.clone(), channels: 0 };
            Ok(Self { machine: Arc::new(Mutex::new(machine)), address, mac })
        };
        Ok([open(memif::Role::Server, 1)?, open(memif::Role::Client, 2)?])
    }

    /// Where an app of this host that listens is reached.
    pub(super) fn at(&self) -> SocketAddr {
        SocketAddr::new(self.address, PORT)
    }

    /// A channel for one more app.
    pub(super) fn attach(&self) -> io::Result<Channel> {
        let (mut end, handover) = DaemonEnd::create(SIZES)?;
        end.share_thread();
        let app_end = AppEnd::open(handover, SIZES).map_err(io::Error::other)?;
        let mut machine = self.machine();
        machine.channels += 1;
        let channel = machine.channels;
        let (app, end) = ("bench".to_owned(), Box::new(end));
        machine.post(Request::AddChannel {
            channel,
            app,
            user: 0,
            end,
            allowance: Allowance::of_connections(16),
        });
        drop(machine);
        let options = Options { waiting: Waiting::Spin, ..Options::new("bench") };
        let app = Box::new(App { host: self.clone(), channel });
        Channel::embed(app_end, "bench", app, &options).map_err(io::Error::other)
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().expect("nothing panics while it has a turn")
    }
}

impl Machine {
    fn turn(&mut self) -> bool {
        self.group.turn_at(self.ticks.next()).told_apps
    }

    fn send(&mut self) {
        self.group.send_at(self.ticks.next());
    }

    fn post(&mut self, request: Request) {
        let mut next = Some(request);
        while let Some(request) = next.take() {
            next = self.control.post(request).err();
            self.turn();
        }
    }
}

/// An app's way to its engine.
struct App {
    host: Host,
    channel: u32,
}

impl Embedded for App {
    fn turn(&mut self) -> bool {
        self.host.machine().turn()
    }

    fn send(&mut self) {
        self.host.machine().send();
    }

    fn sleep(&mut self, _at_most: Option<Duration>) {}

    fn request(&mut self, request: &AppRequest) -> Result<Reply, Error> {
        match request {
            AppRequest::Listen(listen) => self.listen(listen),
            AppRequest::OpenTcpPort(open) => self.open_tcp_port(open),
            _ => Err(refused(Code::Invalid)),
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl App {
    fn listen(&self, listen: &Listen) -> Result<Reply, Error> {
        let (channel, listener, port) = (self.channel, LISTENER, listen.port);
        let mut machine = self.host.machine();
        machine.post(Request::Listen { channel, listener, address: None, port });
        match machine.control.next_event() {
            Some(Event::Listening { result: Ok(()), .. }) => {
                let address = SocketAddr::new(self.host.address, port);
                Ok(Reply::Listening(Listening { listener, address }))
            }
            _ => Err(refused(Code::AddressInUse)),
        }
    }

    fn open_tcp_port(&self, open: &OpenTcpPort) -> Result<Reply, Error> {
        let (channel, number) = (self.channel, self.channel); // a port of each app
        let address = SocketAddr::new(self.host.address, open.port);
        let spec = Box::new(spec(self.host.mac, address));
        let mut machine = self.host.machine();
        machine.post(Request::OpenTcpPort { channel, number, spec });
        match machine.control.next_event() {
            Some(Event::VifOpened { result: Ok(()), .. }) => {
                Ok(Reply::TcpPortOpened(TcpPortOpened { number, address }))
            }
            _ => Err(refused(Code::AddressInUse)),
        }
    }
}

/// What the control plane gives away with a port.
fn spec(mac: MacAddress, at: SocketAddr) -> TcpPortSpec {
    let filter = |text: String| vec![text.parse().expect("the filter is valid")];
    let (address, port) = (at.ip(), at.port());
    let rights = VifSpec {
        receive: filter(format!("dst host {address} and tcp dst port {port}")),
        transmit: filter(format!("src host {address} and tcp src port {port}")),
        mac,
        ..VifSpec::default()
    };
    TcpPortSpec { address: None, port, peers: Vec::new(), nics: Vec::new(), rights }
}

fn refused(code: Code) -> Error {
    Error::Refused { code, message: code.to_string() }
}
