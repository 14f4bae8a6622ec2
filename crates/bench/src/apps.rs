//! Clearway's apps: how they attach and meet. The kernel's are in `role`.

use crate::arguments::Idle;
use crate::embedded::EmbeddedHost;
use crate::endpoint::{
    Answerer, Asker, Batch, CREDIT_CONNECTIONS, Caller, Calls, Clearway, ClearwayTcp, Company,
    Credit, Deed, InPlace, InTurn, Owner, Posted, Question, Receiver, STREAMS_POOL_BYTES, Streams,
    shared_bytes,
};
use crate::lines::Lines;
use crate::load::Load;
use clearway_client::{
    Channel, ConnectionId, Error, Event, Options, Sizes, TcpId, TcpOption, TcpPortId, Waiting,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where an app of Clearway attaches, and what it does when idle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AppPlace {
    pub(crate) host: AppHost,
    pub(crate) idle: Idle,
    pub(crate) exchange: Exchange,
}

/// How Clearway's apps exchange what a workload asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exchange {
    /// A message there, and one back.
    Messages,
    /// The same by TCP.
    Tcp,
    /// By TCP, and no app copies anything.
    TcpInPlace,
    /// A one-sided operation.
    Operations(Deed),
    /// A call.
    Calls(Question),
    /// A message there, and one back, beside others on streams.
    Streams(Company),
    /// A message there, and one back, by several connections in turn.
    InTurn(Credit),
    /// A message into a buffer that is posted, and its number back.
    Posts(Posted),
}

/// Who serves an app.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AppHost {
    /// The daemon with this socket.
    Daemon(PathBuf),
    /// An engine in the app's own thread.
    Embedded(EmbeddedHost),
}

/// How long hosts may take to find each other.
const PATIENCE: Duration = Duration::from_secs(10);

/// An app that listens, before it has met its client.
pub(crate) struct Listening {
    channel: Channel,
    load: Load,
}

impl Listening {
    pub(crate) fn open(place: &AppPlace, load: &Load, at: SocketAddr) -> io::Result<Self> {
        let mut channel = attach("bench-server", place, load)?;
        channel.listen(at).map_err(io::Error::other)?;
        Ok(Self { channel, load: *load })
    }

    /// The connection that was opened last.
    pub(crate) fn accept(mut self, calls: Calls) -> io::Result<Clearway> {
        let mut accepted = self.channel.accept(None).map_err(io::Error::other)?;
        while let Ok(newer) = self.channel.accept(Some(Duration::ZERO)) {
            accepted = newer;
        }
        let Load { size, window, .. } = self.load;
        Ok(Clearway::new(self.channel, accepted.connection, calls, size, window))
    }

    /// Accepts again: the connection was an attempt that its client gave up.
    pub(crate) fn again(endpoint: Clearway, load: &Load) -> Self {
        Self { channel: endpoint.into_channel(), load: *load }
    }
}

/// The same, by TCP.
pub(crate) struct TcpListening {
    channel: Channel,
    port: TcpPortId,
    load: Load,
}

impl TcpListening {
    pub(crate) fn open(place: &AppPlace, load: &Load, at: SocketAddr) -> io::Result<Self> {
        let mut channel = attach("bench-server", place, load)?;
        let port = channel.tcp_bind(at).map_err(io::Error::other)?.id;
        channel.tcp_listen(port, 1).map_err(io::Error::other)?;
        Ok(Self { channel, port, load: *load })
    }

    pub(crate) fn accept(self, calls: Calls) -> io::Result<Batch<ClearwayTcp>> {
        let load = self.load;
        let (channel, id) = self.accept_one()?;
        stream(channel, id, calls, load.size, &load)
    }

    /// For an app that copies nothing.
    pub(crate) fn accept_in_place(self, calls: Calls) -> io::Result<InPlace> {
        let window = self.load.window;
        let (channel, id) = self.accept_one()?;
        in_place(channel, id, calls, window)
    }

    fn accept_one(mut self) -> io::Result<(Channel, TcpId)> {
        let (id, _) = self.channel.tcp_accept(self.port, None).map_err(io::Error::other)?;
        Ok((self.channel, id))
    }
}

/// An app that has connected to the server's by TCP.
pub(crate) fn connect_tcp(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
) -> io::Result<Batch<ClearwayTcp>> {
    let (channel, id) = open_tcp(place, load, to)?;
    stream(channel, id, calls, load.answer_bytes(), load)
}

/// The same for an app that copies nothing.
pub(crate) fn connect_in_place(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
) -> io::Result<InPlace> {
    let (channel, id) = open_tcp(place, load, to)?;
    in_place(channel, id, calls, load.window)
}

fn open_tcp(place: &AppPlace, load: &Load, to: SocketAddr) -> io::Result<(Channel, TcpId)> {
    let mut channel = attach("bench-client", place, load)?;
    let id = patiently(|| channel.tcp_connect(None, to, Some(PATIENCE)))?;
    Ok((channel, id))
}

fn in_place(mut channel: Channel, id: TcpId, calls: Calls, window: usize) -> io::Result<InPlace> {
    channel.tcp_set(id, TcpOption::NoDelay(true)).map_err(io::Error::other)?;
    Ok(InPlace::new(channel, id, calls, window))
}

/// As the kernel's contenders have theirs: nothing waits for an acknowledgement.
fn stream(
    mut channel: Channel,
    id: TcpId,
    calls: Calls,
    message_bytes_max: usize,
    load: &Load,
) -> io::Result<Batch<ClearwayTcp>> {
    channel.tcp_set(id, TcpOption::NoDelay(true)).map_err(io::Error::other)?;
    Ok(Batch::new(ClearwayTcp::new(channel, id, calls), message_bytes_max, load.window))
}

/// An app that has connected to the server's.
pub(crate) fn connect(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
) -> io::Result<Clearway> {
    let mut channel = attach("bench-client", place, load)?;
    let connection = connect_patiently(&mut channel, to)?;
    Ok(Clearway::new(channel, connection, calls, load.answer_bytes(), load.window))
}

/// An app that has as many connections to the server's as the load says.
pub(crate) fn connect_many(place: &AppPlace, load: &Load, to: SocketAddr) -> io::Result<Lines> {
    let (channel, connections) = connect_all(place, load, to, load.connections)?;
    let mut lines = Lines::of(channel);
    connections.into_iter().for_each(|connection| lines.add(connection));
    Ok(lines)
}

/// An app that shares memory to be worked on.
pub(crate) fn share(
    place: &AppPlace,
    load: &Load,
    at: SocketAddr,
    calls: Calls,
    deed: Deed,
) -> io::Result<Owner> {
    let mut channel = attach_sharing("bench-server", place, load, shared_bytes(load.size))?;
    channel.listen(at).map_err(io::Error::other)?;
    Owner::new(channel, calls, deed)
}

/// Apps that have connected to that one.
pub(crate) fn askers(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
    deed: Deed,
) -> io::Result<Vec<Asker>> {
    let count = deed.clients();
    // Of several in one thread none may wait.
    let calls = if count > 1 { Calls::Polling } else { calls };
    let asker = |_| {
        let mut channel = attach("bench-client", place, load)?;
        let connection = connect_patiently(&mut channel, to)?;
        Asker::new(channel, connection, calls, deed, (load.size, load.window))
    };
    (0..count).map(asker).collect()
}

/// An app that answers calls.
pub(crate) fn answerer(
    place: &AppPlace,
    load: &Load,
    at: SocketAddr,
    calls: Calls,
    question: Question,
) -> io::Result<Answerer> {
    let mut channel = attach("bench-server", place, load)?;
    channel.listen(at).map_err(io::Error::other)?;
    Ok(Answerer::new(channel, calls, question))
}

/// An app that has connected to that one.
pub(crate) fn caller(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
    question: Question,
) -> io::Result<Caller> {
    let mut channel = attach("bench-client", place, load)?;
    let connection = connect_patiently(&mut channel, to)?;
    Ok(Caller::new(channel, connection, calls, question, (load.size, load.window)))
}

/// An app that answers, and takes streams, before it has met its client.
pub(crate) struct StreamsListening(Channel);

impl StreamsListening {
    pub(crate) fn open(place: &AppPlace, load: &Load, at: SocketAddr) -> io::Result<Self> {
        let mut channel = attach("bench-server", place, load)?;
        channel.take_streams(true).map_err(io::Error::other)?;
        channel.listen(at).map_err(io::Error::other)?;
        Ok(Self(channel))
    }

    pub(crate) fn accept(mut self, calls: Calls) -> io::Result<Streams> {
        let accepted = self.0.accept(None).map_err(io::Error::other)?;
        Ok(Streams::server(self.0, accepted.connection, calls))
    }
}

/// An app that has connected to that one.
pub(crate) fn connect_streams(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
    company: Company,
) -> io::Result<Streams> {
    let mut channel = attach("bench-client", place, load)?;
    let connection = connect_patiently(&mut channel, to)?;
    Streams::client(channel, connection, calls, company)
}

/// An app that posts buffers, before it has met its client.
pub(crate) struct PostsListening(Channel);

impl PostsListening {
    pub(crate) fn open(
        place: &AppPlace,
        load: &Load,
        at: SocketAddr,
        posted: Posted,
    ) -> io::Result<Self> {
        let mut channel = attach_sharing("bench-server", place, load, posted.shared_bytes())?;
        channel.listen(at).map_err(io::Error::other)?;
        Ok(Self(channel))
    }

    /// The last connections, if there are more: an attempt was given up then.
    pub(crate) fn accept(mut self, calls: Calls, posted: Posted) -> io::Result<Receiver> {
        let mut connections = Vec::new();
        while connections.len() < posted.connections() {
            connections.push(self.0.accept(None).map_err(io::Error::other)?.connection);
        }
        while let Ok(newer) = self.0.accept(Some(Duration::ZERO)) {
            connections.remove(0);
            connections.push(newer.connection);
        }
        Receiver::new(self.0, &connections, calls)
    }
}

/// An app that has as many connections to that one, and sends by the first.
pub(crate) fn connect_posts(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
    posted: Posted,
) -> io::Result<Clearway> {
    let (channel, connections) = connect_all(place, load, to, posted.connections())?;
    Ok(Clearway::new(channel, connections[0], calls, load.answer_bytes(), load.window))
}

/// An app that has several connections to the server's, and sends by each in turn.
pub(crate) fn connect_in_turn(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    calls: Calls,
) -> io::Result<InTurn> {
    let (channel, connections) = connect_all(place, load, to, CREDIT_CONNECTIONS)?;
    let end = Clearway::new(channel, connections[0], calls, load.answer_bytes(), load.window);
    Ok(InTurn::new(end, connections))
}

/// The first finds the way, and all others are opened together.
fn connect_all(
    place: &AppPlace,
    load: &Load,
    to: SocketAddr,
    count: usize,
) -> io::Result<(Channel, Vec<ConnectionId>)> {
    let mut channel = attach("bench-client", place, load)?;
    let mut connections = vec![connect_patiently(&mut channel, to)?];
    for _ in 1..count {
        channel.start_connect(to).map_err(io::Error::other)?;
    }
    while connections.len() < count {
        match channel.next_event(Some(PATIENCE)).map_err(io::Error::other)? {
            Event::Connected { connection, .. } => connections.push(connection),
            Event::ConnectFailed { code, .. } => {
                return Err(io::Error::other(format!("a connection was not opened: {code}")));
            }
            _ => {}
        }
    }
    Ok((channel, connections))
}

/// The link between the hosts may still be coming up.
fn connect_patiently(channel: &mut Channel, to: SocketAddr) -> io::Result<ConnectionId> {
    patiently(|| channel.connect(to, Some(PATIENCE)))
}

fn attach(name: &str, place: &AppPlace, load: &Load) -> io::Result<Channel> {
    attach_sharing(name, place, load, 0)
}

/// The daemon's socket exists before the daemon serves it.
fn attach_sharing(
    name: &str,
    place: &AppPlace,
    load: &Load,
    shared_bytes: u32,
) -> io::Result<Channel> {
    let socket = match &place.host {
        AppHost::Daemon(socket) => Some(socket.as_path()),
        AppHost::Embedded(_) => None,
    };
    let mut options = options(name, socket, place.idle, load);
    options.sizes.shared_bytes = shared_bytes;
    let pool_bytes = match place.exchange {
        Exchange::Streams(_) => Some(STREAMS_POOL_BYTES),
        Exchange::InTurn(credit) => Some(credit.pool_bytes()),
        _ => None,
    };
    if let Some(bytes) = pool_bytes {
        (options.sizes.transmit_pool_bytes, options.sizes.receive_pool_bytes) = (bytes, bytes);
    }
    match &place.host {
        AppHost::Daemon(_) => patiently(|| Channel::attach(&options)),
        AppHost::Embedded(host) => host.open(&options),
    }
}

/// How an app for a load attaches: to the daemon of a socket, or to the one that there is.
pub(crate) fn options(name: &str, socket: Option<&Path>, idle: Idle, load: &Load) -> Options {
    let waiting = match idle {
        Idle::Spin => Waiting::Spin,
        Idle::Yield => Waiting::Yield,
        Idle::Block => Waiting::Block,
        Idle::Adaptive => Waiting::Adaptive,
    };
    let default = Options::new(name);
    let socket = socket.map_or_else(|| default.socket.clone(), Path::to_owned);
    Options { socket, waiting, sizes: sizes(load), ..default }
}

/// Pools with room for two windows of each connection; never less than what every app gets.
fn sizes(load: &Load) -> Sizes {
    let default = Sizes::default();
    let windows = 2 * load.size * load.window * load.connections;
    let two_windows = windows.next_power_of_two().min(1 << 30) as u32;
    Sizes {
        transmit_pool_bytes: default.transmit_pool_bytes.max(two_windows),
        receive_pool_bytes: default.receive_pool_bytes.max(two_windows),
        ..default
    }
}

/// Tries again until it works or patience ends.
pub(crate) fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() >= deadline => return Err(io::Error::other(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
