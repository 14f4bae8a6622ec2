//! What the processes of a benchmark do: this program, started again as `bench-role`.
//!
//! A role is described by one JSON argument and answers with [`Event`]s, one JSON line each. It
//! ends with its parent: the kernel sees to that, even if the parent is killed.

use crate::apps::{
    self, AppPlace, Exchange, Listening, PostsListening, StreamsListening, TcpListening,
};
use crate::connections::Job;
use crate::contender::Contender;
use crate::cpu::pin;
use crate::endpoint::{Batch, Calls, Datagram, Endpoint, PerMessage};
use crate::error::{Error, While};
use crate::http::ServerRole;
use crate::instructions::Case;
use crate::load::{Client, Load, Server};
use crate::many::{self, Ends, Sockets};
use crate::process::Event;
use crate::vif::{GeneratorRole, VifRole};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr as InternetAddress, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::slice;
use std::time::{Duration, Instant};

/// A process of a benchmark; started by the benchmark itself, not by people.
#[derive(clap::Args, Clone, Debug)]
pub struct RoleCommand {
    /// What to do, as JSON.
    role: String,
}

/// Where and for whom a role runs, and what it does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    parent: u32,
    core: Option<usize>,
    /// A process whose network namespace it enters.
    namespace_of: Option<u32>,
    part: Part,
}

/// What a role does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// Keeps the network namespace that it was started in alive.
    HoldNamespace,
    /// Becomes another program.
    Become { program: String, arguments: Vec<String> },
    /// Answers messages. `bind` is an address, or a name for a Unix socket.
    Server { contender: Contender, load: Load, bind: String },
    /// Sends messages and times them.
    Client { contender: Contender, load: Load, server: String },
    /// Runs the engines of several hosts in one thread.
    Engines { hosts: Vec<BenchHost> },
    /// The same as `Server`, through Clearway.
    ClearwayServer { server: AppPlace, load: Load, at: InternetAddress },
    /// The same as `Client`, through Clearway.
    ClearwayClient { client: AppPlace, load: Load, to: InternetAddress },
    /// Both apps in turn.
    ClearwayPair { client: AppPlace, server: AppPlace, load: Load, to: InternetAddress },
    /// Runs an engine and an app with a virtual interface in turn.
    Vif(VifRole),
    /// Sends frames to one.
    Generator(GeneratorRole),
    /// Serves HTTP.
    WebServer(ServerRole),
    /// Opens or takes TCP connections.
    Connections(Job),
    /// Does so often what common cases do that its instructions can be counted.
    Instructions(Case),
}

/// A host that whoever embeds the benchmark is to start in this process, its engine in one thread
/// with those of the other hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchHost {
    /// Its configuration file.
    pub config: PathBuf,
    /// A process in whose network namespace the host lives; in this process's own if `None`.
    pub namespace_of: Option<u32>,
}

impl BenchHost {
    /// Moves the calling thread into the host's network namespace. Sockets that it opens, and
    /// threads that it starts, from now on are in there; those from before stay where they are.
    pub fn enter_namespace(&self) -> Result<(), Error> {
        let Some(process) = self.namespace_of else { return Ok(()) };
        enter_network_namespace(process).while_("entering a network namespace")
    }
}

impl Role {
    pub(crate) fn new(part: Part) -> Self {
        Self { parent: std::process::id(), core: None, namespace_of: None, part }
    }

    pub(crate) fn on_core(mut self, core: impl Into<Option<usize>>) -> Self {
        self.core = core.into();
        self
    }

    pub(crate) fn in_namespace_of(mut self, process: Option<u32>) -> Self {
        self.namespace_of = process;
        self
    }

    pub(crate) fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("a role is plain data")
    }

    fn prepare(&self) -> Result<(), Error> {
        set_parent_process_death_signal(Some(Signal::TERM))
            .while_("asking to end with the parent")?;
        let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get() as u32);
        if parent != self.parent {
            return Err(Error::Options("`bench-role` is for `bench` to start".into()));
        }
        if let Some(process) = self.namespace_of {
            enter_network_namespace(process).while_("entering a network namespace")?;
        }
        if let Some(core) = self.core {
            pin(core).while_("pinning a process to a core")?;
        }
        Ok(())
    }
}

fn enter_network_namespace(process: u32) -> rustix::io::Result<()> {
    let path = format!("/proc/{process}/ns/net");
    let namespace = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

impl RoleCommand {
    /// Plays the role to its end. What goes wrong meanwhile is told to the parent. One role is not
    /// the benchmark's own: `run_engines` opens several hosts and runs their engines in one thread,
    /// until SIGTERM.
    pub fn run(
        &self,
        run_engines: impl FnOnce(Vec<BenchHost>) -> Result<(), String>,
    ) -> Result<(), Error> {
        let role: Role = serde_json::from_str(&self.role)
            .map_err(|error| Error::Options(format!("not a role: {error}")))?;
        role.prepare()?;
        if let Err(error) = role.part.play(run_engines) {
            tell(&Event::Failed(error.to_string()));
        }
        Ok(())
    }
}

/// Tells the parent; if that is gone, there is nobody else to tell.
pub(crate) fn tell(event: &Event) {
    let mut line = serde_json::to_vec(event).expect("an event is plain data");
    line.push(b'\n');
    let _ = io::stdout().write_all(&line);
    let _ = io::stdout().flush();
}

/// Sleeps until the parent closes the pipe.
fn wait_for_parent() {
    let _ = io::stdin().read(&mut [0]);
}

impl Part {
    fn play(
        self,
        run_engines: impl FnOnce(Vec<BenchHost>) -> Result<(), String>,
    ) -> Result<(), Error> {
        match self {
            Self::HoldNamespace => {
                tell(&Event::Ready(String::new()));
                wait_for_parent();
                Ok(())
            }
            Self::Become { program, arguments } => {
                let source = std::process::Command::new(&program).args(arguments).exec();
                Err(Error::Start { program, source })
            }
            Self::Server { contender, load, bind } if load.connections > 1 => {
                serve_many(contender, &load, &bind).while_("serving")
            }
            Self::Server { contender, load, bind } => {
                serve(contender, &load, &bind).map(drop).while_("serving")
            }
            Self::Client { contender, load, server } if load.connections > 1 => {
                request_many(contender, load, &server).while_("requesting")
            }
            Self::Client { contender, load, server } => {
                request(contender, load, &server).while_("requesting")
            }
            Self::Engines { hosts } => run_engines(hosts)
                .map_err(|message| Error::Role { who: "an engine".into(), message }),
            Self::ClearwayServer { server, load, at } => {
                serve_clearway(&server, &load, at).while_("serving through Clearway")
            }
            Self::ClearwayClient { client, load, to } => {
                request_clearway(&client, load, to).while_("requesting through Clearway")
            }
            Self::ClearwayPair { client, server, load, to } => {
                measure_pair(&client, &server, load, to).while_("running both apps")
            }
            Self::Vif(role) => role.play(),
            Self::Generator(role) => role.play(),
            Self::WebServer(role) => role.play(),
            Self::Connections(job) => job.play(),
            Self::Instructions(case) => case.play(),
        }
    }
}

fn serve(contender: Contender, load: &Load, bind: &str) -> io::Result<u64> {
    let size = load.size;
    match contender {
        Contender::TcpSpin => answer(load, &mut PerMessage::<false>::new(accept_tcp(bind)?, size)),
        Contender::TcpBlock => answer(load, &mut PerMessage::<true>::new(accept_tcp(bind)?, size)),
        Contender::TcpBatch => answer(load, &mut Batch::new(accept_tcp(bind)?, size, load.window)),
        Contender::UdpSpin => answer(load, &mut Datagram::new(meet_udp(bind)?, size)),
        Contender::UnixSpin => {
            answer(load, &mut PerMessage::<false>::new(accept_unix(bind)?, size))
        }
        Contender::Clearway | Contender::ClearwayTcp | Contender::ClearwayTcpInPlace => {
            Err(roles_of_its_own())
        }
    }
}

fn roles_of_its_own() -> io::Error {
    io::Error::other("Clearway has roles of its own")
}

fn request(contender: Contender, load: Load, server: &str) -> io::Result<()> {
    let size = load.answer_bytes();
    match contender {
        Contender::TcpSpin => {
            measure(load, &mut PerMessage::<false>::new(connect_tcp(server)?, size))
        }
        Contender::TcpBlock => {
            measure(load, &mut PerMessage::<true>::new(connect_tcp(server)?, size))
        }
        Contender::TcpBatch => {
            measure(load, &mut Batch::new(connect_tcp(server)?, size, load.window))
        }
        Contender::UdpSpin => measure(load, &mut Datagram::new(connect_udp(server)?, size)),
        Contender::UnixSpin => {
            measure(load, &mut PerMessage::<false>::new(connect_unix(server)?, size))
        }
        Contender::Clearway | Contender::ClearwayTcp | Contender::ClearwayTcpInPlace => {
            Err(roles_of_its_own())
        }
    }
}

/// The same with as many connections as the load says, of TCP.
fn serve_many(contender: Contender, load: &Load, bind: &str) -> io::Result<()> {
    let (sockets, size) = (accept_many(bind, load.connections)?, load.size);
    let is_spinning = contender != Contender::TcpBlock;
    let ended = match contender {
        Contender::TcpSpin | Contender::TcpBlock => {
            let end = |socket| PerMessage::<false>::new(socket, size);
            Sockets::new(sockets, is_spinning, end)?.serve(load)
        }
        Contender::TcpBatch => {
            let end = |socket| Batch::new(socket, size, load.window);
            Sockets::new(sockets, is_spinning, end)?.serve(load)
        }
        other => Err(has_one(other)),
    };
    ended.or_else(|error| if is_end(&error) { Ok(()) } else { Err(error) })
}

fn request_many(contender: Contender, load: Load, server: &str) -> io::Result<()> {
    let sockets = (0..load.connections).map(|_| connect_tcp(server));
    let (sockets, size) = (sockets.collect::<io::Result<Vec<_>>>()?, load.answer_bytes());
    let is_spinning = contender != Contender::TcpBlock;
    match contender {
        Contender::TcpSpin | Contender::TcpBlock => {
            let end = |socket| PerMessage::<false>::new(socket, size);
            measure_many(load, &mut Sockets::new(sockets, is_spinning, end)?)
        }
        Contender::TcpBatch => {
            let end = |socket| Batch::new(socket, size, load.window);
            measure_many(load, &mut Sockets::new(sockets, is_spinning, end)?)
        }
        other => Err(has_one(other)),
    }
}

fn has_one(contender: Contender) -> io::Error {
    io::Error::other(format!("{} has one connection", contender.name()))
}

/// The server's app on its own: until the client leaves. Returns how many messages it answered.
fn answer<E: Endpoint>(load: &Load, endpoint: &mut E) -> io::Result<u64> {
    let mut server = Server::new(load.answer_bytes());
    let mut answered = 0;
    loop {
        match server.turn(endpoint) {
            Ok(count) => answered += count as u64,
            Err(error) if is_end(&error) => return Ok(answered),
            Err(error) => return Err(error),
        }
    }
}

/// The client left in the middle of something; how it does so differs between transports.
pub(crate) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The client's app on its own: warm-up, measurement, report.
fn measure<E: Endpoint>(load: Load, endpoint: &mut E) -> io::Result<()> {
    measure_all(load, slice::from_mut(endpoint))
}

/// The same with a client for each connection, of which those have a turn that have heard
/// something.
fn measure_many(load: Load, ends: &mut impl Ends) -> io::Result<()> {
    measured(load, load.connections, |clients, duration| {
        many::go_on(ends, clients, Instant::now() + duration)
    })
}

/// The same with several clients in turn.
fn measure_all<E: Endpoint>(load: Load, endpoints: &mut [E]) -> io::Result<()> {
    timetable(load, endpoints, turn_all)
}

/// A turn of each client.
fn turn_all<E: Endpoint>(clients: &mut [Client], endpoints: &mut [E]) -> io::Result<()> {
    for (client, endpoint) in clients.iter_mut().zip(endpoints) {
        client.turn(endpoint)?;
    }
    Ok(())
}

fn serve_clearway(place: &AppPlace, load: &Load, at: InternetAddress) -> io::Result<()> {
    let calls = Calls::Waiting;
    let tell_ready = || tell(&Event::Ready(at.to_string()));
    match place.exchange {
        Exchange::Messages | Exchange::InTurn(_) => {
            let listening = Listening::open(place, load, at)?;
            tell_ready();
            serve_messages(listening, load)
        }
        Exchange::Tcp => {
            let listening = TcpListening::open(place, load, at)?;
            tell_ready();
            answer(load, &mut listening.accept(calls)?).map(drop)
        }
        Exchange::TcpInPlace => {
            let listening = TcpListening::open(place, load, at)?;
            tell_ready();
            answer(load, &mut listening.accept_in_place(calls)?).map(drop)
        }
        Exchange::Operations(deed) => {
            let mut owner = apps::share(place, load, at, calls, deed)?;
            tell_ready();
            answer(load, &mut owner).map(drop)
        }
        Exchange::Calls(question) => {
            let mut answerer = apps::answerer(place, load, at, calls, question)?;
            tell_ready();
            answer(load, &mut answerer).map(drop)
        }
        Exchange::Streams(_) => {
            let listening = StreamsListening::open(place, load, at)?;
            tell_ready();
            answer(load, &mut listening.accept(calls)?).map(drop)
        }
        Exchange::Posts(posted) => {
            let listening = PostsListening::open(place, load, at, posted)?;
            tell_ready();
            answer(load, &mut listening.accept(calls, posted)?).map(drop)
        }
    }
}

fn serve_messages(mut listening: Listening, load: &Load) -> io::Result<()> {
    loop {
        let mut endpoint = listening.accept(Calls::Waiting)?;
        if answer(load, &mut endpoint)? > 0 {
            return Ok(());
        }
        listening = Listening::again(endpoint, load);
    }
}

fn request_clearway(place: &AppPlace, load: Load, to: InternetAddress) -> io::Result<()> {
    let calls = Calls::Waiting;
    match place.exchange {
        Exchange::Messages if load.connections > 1 => {
            measure_many(load, &mut apps::connect_many(place, &load, to)?)
        }
        Exchange::Messages => measure(load, &mut apps::connect(place, &load, to, calls)?),
        Exchange::Tcp => measure(load, &mut apps::connect_tcp(place, &load, to, calls)?),
        Exchange::TcpInPlace => {
            measure(load, &mut apps::connect_in_place(place, &load, to, calls)?)
        }
        Exchange::Operations(deed) => {
            measure_all(load, &mut apps::askers(place, &load, to, calls, deed)?)
        }
        Exchange::Calls(question) => {
            measure(load, &mut apps::caller(place, &load, to, calls, question)?)
        }
        Exchange::Streams(company) => {
            measure(load, &mut apps::connect_streams(place, &load, to, calls, company)?)
        }
        Exchange::InTurn(_) => measure(load, &mut apps::connect_in_turn(place, &load, to, calls)?),
        Exchange::Posts(posted) => {
            measure(load, &mut apps::connect_posts(place, &load, to, calls, posted)?)
        }
    }
}

/// Both apps in turn in this thread, each with a channel of its own.
fn measure_pair(
    client_place: &AppPlace,
    server_place: &AppPlace,
    load: Load,
    to: InternetAddress,
) -> io::Result<()> {
    let calls = Calls::Polling;
    match client_place.exchange {
        Exchange::Messages => {
            let listening = Listening::open(server_place, &load, to)?;
            let client_end = apps::connect(client_place, &load, to, calls)?;
            take_turns(load, &mut [client_end], &mut listening.accept(calls)?)
        }
        Exchange::Tcp => {
            let listening = TcpListening::open(server_place, &load, to)?;
            let client_end = apps::connect_tcp(client_place, &load, to, calls)?;
            take_turns(load, &mut [client_end], &mut listening.accept(calls)?)
        }
        Exchange::TcpInPlace => {
            let listening = TcpListening::open(server_place, &load, to)?;
            let client_end = apps::connect_in_place(client_place, &load, to, calls)?;
            take_turns(load, &mut [client_end], &mut listening.accept_in_place(calls)?)
        }
        Exchange::Operations(deed) => {
            let mut owner = apps::share(server_place, &load, to, calls, deed)?;
            let mut askers = apps::askers(client_place, &load, to, calls, deed)?;
            take_turns(load, &mut askers, &mut owner)
        }
        Exchange::Calls(question) => {
            let mut answerer = apps::answerer(server_place, &load, to, calls, question)?;
            let caller = apps::caller(client_place, &load, to, calls, question)?;
            take_turns(load, &mut [caller], &mut answerer)
        }
        Exchange::Streams(company) => {
            let listening = StreamsListening::open(server_place, &load, to)?;
            let client_end = apps::connect_streams(client_place, &load, to, calls, company)?;
            take_turns(load, &mut [client_end], &mut listening.accept(calls)?)
        }
        Exchange::InTurn(_) => {
            let listening = Listening::open(server_place, &load, to)?;
            let client_end = apps::connect_in_turn(client_place, &load, to, calls)?;
            take_turns(load, &mut [client_end], &mut listening.accept(calls)?)
        }
        Exchange::Posts(posted) => {
            let listening = PostsListening::open(server_place, &load, to, posted)?;
            let client_end = apps::connect_posts(client_place, &load, to, calls, posted)?;
            take_turns(load, &mut [client_end], &mut listening.accept(calls, posted)?)
        }
    }
}

fn take_turns(
    load: Load,
    client_ends: &mut [impl Endpoint],
    server_end: &mut impl Endpoint,
) -> io::Result<()> {
    let mut server = Server::new(load.answer_bytes());
    timetable(load, client_ends, |clients, client_ends| {
        turn_all(clients, client_ends)?;
        server.turn(server_end).map(drop)
    })
}

/// Turns that somebody else defines, of at least one client.
fn timetable<E: Endpoint>(
    load: Load,
    endpoints: &mut [E],
    mut turn: impl FnMut(&mut [Client], &mut [E]) -> io::Result<()>,
) -> io::Result<()> {
    measured(load, endpoints.len(), |clients, duration| {
        let end = Instant::now() + duration;
        while clients[0].now() < end {
            turn(clients, endpoints)?;
        }
        Ok(())
    })
}

/// Warm-up, measurement, report, of so many clients that somebody else has at work for as long as
/// each takes.
fn measured(
    load: Load,
    count: usize,
    mut work_for: impl FnMut(&mut [Client], Duration) -> io::Result<()>,
) -> io::Result<()> {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::new(load)).collect();
    work_for(&mut clients, load.warm_up())?;
    tell(&Event::Measuring);
    clients.iter_mut().for_each(Client::begin);
    work_for(&mut clients, load.duration())?;
    tell(&Event::Finished(Client::sample_of(&mut clients)));
    wait_for_parent();
    Ok(())
}

fn accept_tcp(bind: &str) -> io::Result<OwnedFd> {
    accept_from(&listen_tcp(bind)?)
}

/// So many connections, of one client.
fn accept_many(bind: &str, count: usize) -> io::Result<Vec<OwnedFd>> {
    let listener = listen_tcp(bind)?;
    (0..count).map(|_| accept_from(&listener)).collect()
}

fn listen_tcp(bind: &str) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(bind)?;
    tell(&Event::Ready(listener.local_addr()?.to_string()));
    Ok(listener)
}

fn accept_from(listener: &TcpListener) -> io::Result<OwnedFd> {
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

fn connect_tcp(server: &str) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

fn accept_unix(name: &str) -> io::Result<OwnedFd> {
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?;
    tell(&Event::Ready(name.to_owned()));
    Ok(listener.accept()?.0.into())
}

fn connect_unix(name: &str) -> io::Result<OwnedFd> {
    Ok(UnixStream::connect_addr(&UnixAddress::from_abstract_name(name)?)?.into())
}

/// Waits for the first datagram and keeps to its sender from then on. The datagram itself is left
/// to be received again, as the first message.
fn meet_udp(bind: &str) -> io::Result<UdpSocket> {
    let socket = roomy_udp(bind)?;
    tell(&Event::Ready(socket.local_addr()?.to_string()));
    let (_, client) = socket.peek_from(&mut [0; 1])?;
    socket.connect(client)?;
    Ok(socket)
}

fn connect_udp(server: &str) -> io::Result<UdpSocket> {
    let address: InternetAddress = server.parse().map_err(io::Error::other)?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = roomy_udp(any)?;
    socket.connect(address)?;
    Ok(socket)
}

/// A UDP socket with room for a window of large datagrams, so that none is lost for want of it.
/// The kernel grants what its limit allows.
fn roomy_udp(bind: &str) -> io::Result<UdpSocket> {
    const ROOM_BYTES: usize = 4 << 20;
    let socket = UdpSocket::bind(bind)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, ROOM_BYTES)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, ROOM_BYTES)?;
    Ok(socket)
}
