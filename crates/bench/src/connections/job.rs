//! What the apps do.

use crate::apps::patiently;
use crate::error::{Error, While};
use crate::load::Sample;
use crate::process::Event;
use crate::role::tell;
use clearway_client::{Channel, Event as Told, Options, TcpId, TcpOption};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whose TCP: that of the daemon of this socket, or the kernel's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    Clearway(PathBuf),
    Kernel,
}

/// What an app does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    /// Closes each connection that comes.
    Close { side: Side, at: SocketAddr },
    /// Opens connections, `in_flight` at a time, waits for the end of each and closes it.
    Open { side: Side, to: SocketAddr, in_flight: usize, seconds: f64 },
    /// Keeps each connection that comes to one of these ports, and sends back what comes.
    Echo { socket: PathBuf, at: SocketAddr, ports: u16 },
    /// Opens one connection and measures it, opens `count` others and measures it again; waits for
    /// a line before each step but the first.
    Hold { socket: PathBuf, to: SocketAddr, count: usize, seconds: f64 },
}

/// Connections that may wait for a listener.
const BACKLOG: u32 = 4096;
/// Connections of one client to one port, each from a port of its own: a user may have 1,024.
pub(super) const PER_PORT: usize = 1000;
/// Connections of one `Hold` that are opened at a time.
const HOLDING_IN_FLIGHT: usize = 64;
/// Bytes of an echo.
const ECHO_BYTES: usize = 64;
/// Longer times count as this.
const ECHO_NS_MAX: u64 = 10_000_000_000;
/// After this long without anything something has failed.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

impl Job {
    /// Does it, until its parent ends it.
    pub(crate) fn play(self) -> Result<(), Error> {
        self.run().while_("opening and closing connections")
    }

    fn run(self) -> io::Result<()> {
        match self {
            Self::Close { side: Side::Kernel, at } => close_kernels(at),
            Self::Close { side: Side::Clearway(socket), at } => close_all(&socket, at),
            Self::Open { side, to, in_flight, seconds } => {
                let time = Duration::from_secs_f64(seconds);
                let (opened, took) = match side {
                    Side::Kernel => open_kernels(to, in_flight, time),
                    Side::Clearway(socket) => open(&socket, to, in_flight, time),
                }?;
                tell(&Event::Counted { frames: opened, seconds: took.as_secs_f64() });
                Ok(())
            }
            Self::Echo { socket, at, ports } => echo(&socket, at, ports),
            Self::Hold { socket, to, count, seconds } => hold(&socket, to, count, seconds),
        }
    }
}

fn attach(socket: &Path) -> io::Result<Channel> {
    let options = Options { socket: socket.to_owned(), ..Options::new("bench") };
    patiently(|| Channel::attach(&options))
}

fn listen(channel: &mut Channel, at: SocketAddr) -> io::Result<()> {
    let port = channel.tcp_bind(at).map_err(io::Error::other)?.id;
    channel.tcp_listen(port, BACKLOG).map_err(io::Error::other)
}

fn next(channel: &mut Channel) -> io::Result<Told> {
    channel.next_event(PATIENCE).map_err(io::Error::other)
}

fn close_all(socket: &Path, at: SocketAddr) -> io::Result<()> {
    let mut channel = attach(socket)?;
    listen(&mut channel, at)?;
    tell(&Event::Ready(at.to_string()));
    loop {
        if let Told::TcpAccepted { connection, .. } =
            channel.next_event(None).map_err(io::Error::other)?
        {
            let _ = channel.tcp_close(connection); // it may have ended
        }
    }
}

fn close_kernels(at: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(at)?;
    rustix::net::listen(&listener, BACKLOG as i32)?;
    tell(&Event::Ready(listener.local_addr()?.to_string()));
    loop {
        drop(listener.accept()?);
    }
}

/// How many were opened, and in how long.
type Opened = (u64, Duration);

fn open(socket: &Path, to: SocketAddr, in_flight: usize, time: Duration) -> io::Result<Opened> {
    let mut channel = attach(socket)?;
    // The link between the hosts may still be coming up.
    let first = patiently(|| channel.tcp_connect(None, to, PATIENCE))?;
    let _ = channel.tcp_close(first);
    let (begun, mut count, mut open) = (Instant::now(), 0, 0);
    while begun.elapsed() < time {
        while open < in_flight {
            channel.tcp_start_connect(None, to).map_err(io::Error::other)?;
            open += 1;
        }
        match next(&mut channel)? {
            Told::TcpReady { ready, .. } if ready.is_over => {
                return Err(io::Error::other("a connection was lost before its server closed it"));
            }
            Told::TcpReady { connection, ready } if ready.is_readable => {
                let _ = channel.tcp_close(connection); // the peer has closed its half
                (count, open) = (count + 1, open - 1);
            }
            Told::TcpConnectFailed { code, .. } => {
                return Err(io::Error::other(format!("a connection was not opened: {code}")));
            }
            _ => {}
        }
    }
    Ok((count, begun.elapsed()))
}

/// The same with the kernel's sockets.
fn open_kernels(to: SocketAddr, in_flight: usize, time: Duration) -> io::Result<Opened> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut sockets: Vec<Option<OwnedFd>> = Vec::new();
    sockets.resize_with(in_flight, || None);
    let mut events: Vec<epoll::Event> = Vec::with_capacity(in_flight);
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        for (at, place) in sockets.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            match connect(&socket, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                Err(errno) => return Err(errno.into()),
            }
            // Readable means: connected, and closed by the server.
            let (data, flags) = (EventData::new_u64(at as u64), EventFlags::IN);
            epoll::add(&epoll, &socket, data, flags)?;
            *place = Some(socket);
        }
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let (at, flags) = ({ event.data }.u64() as usize, { event.flags });
            // One that was refused or reset is readable as well.
            if let Some(socket) = sockets[at].take()
                && flags.contains(EventFlags::ERR)
            {
                socket_error(&socket)??;
            }
            count += 1;
        }
    }
    Ok((count, begun.elapsed()))
}

fn echo(socket: &Path, at: SocketAddr, ports: u16) -> io::Result<()> {
    let mut channel = attach(socket)?;
    for port in at.port()..at.port() + ports {
        listen(&mut channel, SocketAddr::new(at.ip(), port))?;
    }
    tell(&Event::Ready(at.to_string()));
    let mut bytes = [0; ECHO_BYTES];
    loop {
        match channel.next_event(None).map_err(io::Error::other)? {
            Told::TcpAccepted { connection, .. } => set_no_delay(&mut channel, connection)?,
            Told::TcpReady { connection, ready } if ready.is_readable => {
                let received = channel.tcp_recv(connection, &mut bytes, PATIENCE);
                let count = received.map_err(io::Error::other)?;
                send_all(&mut channel, connection, &bytes[..count])?;
            }
            _ => {}
        }
    }
}

fn hold(socket: &Path, to: SocketAddr, count: usize, seconds: f64) -> io::Result<()> {
    let mut channel = attach(socket)?;
    let active = patiently(|| channel.tcp_connect(None, to, PATIENCE))?;
    set_no_delay(&mut channel, active)?;
    measure(&mut channel, active, seconds)?;
    await_line()?;
    open_many(&mut channel, to, count)?;
    tell(&Event::Ready(to.to_string()));
    await_line()?;
    measure(&mut channel, active, seconds)
}

/// Opens connections to ports in turn, and keeps them.
fn open_many(channel: &mut Channel, to: SocketAddr, count: usize) -> io::Result<()> {
    let (mut started, mut under_way) = (0, HashSet::new());
    while started < count || !under_way.is_empty() {
        while started < count && under_way.len() < HOLDING_IN_FLIGHT {
            let port = to.port() + (started / PER_PORT) as u16;
            let token = channel.tcp_start_connect(None, SocketAddr::new(to.ip(), port));
            under_way.insert(token.map_err(io::Error::other)?);
            started += 1;
        }
        match next(channel)? {
            Told::TcpConnected { token, .. } => {
                under_way.remove(&token);
            }
            Told::TcpConnectFailed { code, .. } => {
                let opened = started - under_way.len();
                let message = format!("connection {opened} was not opened: {code}");
                return Err(io::Error::other(message));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Echoes on one connection, one at a time, and tells how long they took.
fn measure(channel: &mut Channel, active: TcpId, seconds: f64) -> io::Result<()> {
    let mut times = Histogram::<u64>::new_with_max(ECHO_NS_MAX, 3).map_err(io::Error::other)?;
    let (begun, mut bytes) = (Instant::now(), [7; ECHO_BYTES]);
    while begun.elapsed().as_secs_f64() < seconds {
        let sent = Instant::now();
        send_all(channel, active, &bytes)?;
        let mut received = 0;
        while received < ECHO_BYTES {
            let more = channel.tcp_recv(active, &mut bytes[received..], PATIENCE);
            match more.map_err(io::Error::other)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => received += more,
            }
        }
        times.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    let rate_per_s = times.len() as f64 / begun.elapsed().as_secs_f64();
    tell(&Event::Finished(Sample {
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        rate_per_s,
        gbit_per_s: rate_per_s * ECHO_BYTES as f64 * 8.0 / 1e9,
        lost: 0,
    }));
    Ok(())
}

fn set_no_delay(channel: &mut Channel, connection: TcpId) -> io::Result<()> {
    channel.tcp_set(connection, TcpOption::NoDelay(true)).map_err(io::Error::other)
}

fn send_all(channel: &mut Channel, to: TcpId, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = channel.tcp_send(to, bytes, PATIENCE).map_err(io::Error::other)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// What the parent says when it has looked.
fn await_line() -> io::Result<()> {
    let mut byte = [0];
    io::stdin().read_exact(&mut byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;

    /// One that is lost ends the run, as one of Clearway's does.
    #[test]
    fn a_connection_that_is_reset_does_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let _ = set_socket_linger(&socket, Some(Duration::ZERO)); // closed by a reset
            }
        });
        let opened = open_kernels(at, 2, Duration::from_secs(10));
        let failed = opened.expect_err("a reset is no end");
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionReset, "{failed}");
    }
}
