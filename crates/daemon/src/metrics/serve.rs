//! Metrics over HTTP: one answer for each connection, within a few seconds, to a few at a time.
//!
//! Whoever connects may be slow or hostile. A request is at most some KB and its answer is made
//! once; a connection that takes too long is closed, and so is the oldest when there are too many:
//! a scraper that is served at once has its answer before others can push it out.

use std::io;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clearway_nic::{Bell, strangers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use super::CONTENT_TYPE;
use crate::Error;
use crate::config::Config;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Connections accepted per wake-up, so that a flood of them leaves time for the others.
const ACCEPTS_PER_TURN: usize = 16;
/// How long no connection is accepted after that has failed, for want of descriptors as a rule: the
/// socket that listens stays readable meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection may take.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// The longest request that is read: Prometheus sends some hundred bytes.
const REQUEST_BYTES_MAX: usize = 8192;
/// Lines of it.
const HEADERS_MAX: usize = 64;
/// For so long an answer is given again: a flood of requests makes no more of them.
const TEXT_TIME: Duration = Duration::from_millis(100);

/// Sockets that take connections.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) sockets: Vec<OwnedFd>,
    /// The file of one of them.
    path: Option<PathBuf>,
}

impl Listening {
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        let mut sockets = Vec::new();
        for address in &config.metrics.listen {
            let failed = |source| Error::System {
                action: format!("cannot serve metrics at {address}"),
                source,
                remedy: "name another address of this host in `listen` of [metrics]".to_owned(),
            };
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            sockets.push(listener.into());
        }
        if let Some(path) = &config.metrics.socket {
            let failed = |source| Error::System {
                action: format!("cannot serve metrics at {}", path.display()),
                source,
                remedy: "name another path as `socket` of [metrics]".to_owned(),
            };
            sockets.push(bind(path, config).map_err(failed)?);
        }
        Ok(Self { sockets, path: config.metrics.socket.clone() })
    }
}

/// Binds a Unix socket, in the place of one that a dead daemon left behind.
fn bind(path: &Path, config: &Config) -> io::Result<OwnedFd> {
    let is_stale = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_stale {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    // Before Linux 6.16, reading a packet could make this thread close a stranger's file, which
    // takes as long as the stranger likes: then only those are let in whom it trusts.
    let is_for_all = strangers::refuse_descriptors(&listener) && config.policy.lets_others_in();
    let mode = if is_for_all { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener.into())
}

/// Serves what comes to [`Listening`].
pub(super) struct Server {
    listening: Listening,
    /// The oldest first.
    connections: Vec<Connection>,
    /// No connection is accepted until then.
    accept_again: Option<Instant>,
    /// The last text, and when it was made.
    text: Option<(Instant, Rc<[u8]>)>,
}

struct Connection {
    socket: OwnedFd,
    deadline: Instant,
    state: State,
}

enum State {
    Reading(Vec<u8>),
    Writing { answer: Rc<[u8]>, sent: usize },
    Done,
}

impl Server {
    pub(super) fn new(listening: Listening) -> Self {
        Self { listening, connections: Vec::new(), accept_again: None, text: None }
    }

    /// The file of the Unix socket.
    pub(super) fn into_path(self) -> Option<PathBuf> {
        self.listening.path
    }

    /// Waits until something happens or it is `until`, and does it. Breaks when `stop` is readable.
    pub(super) fn turn(
        &mut self,
        stop: &Bell,
        until: Instant,
        fresh: impl Fn() -> String,
    ) -> ControlFlow<()> {
        let Ok(ready) = self.wait(stop, until) else { return ControlFlow::Continue(()) };
        let (own, of_connections) = ready.split_at(1 + self.listening.sockets.len());
        if own[0] {
            return ControlFlow::Break(());
        }
        let now = Instant::now();
        let text = &mut self.text;
        let mut text = || match text {
            Some((made, text)) if now.duration_since(*made) < TEXT_TIME => Rc::clone(text),
            _ => Rc::clone(&text.insert((now, answer("200 OK", &fresh()))).1),
        };
        for (connection, _) in self.connections.iter_mut().zip(of_connections).filter(|(_, r)| **r)
        {
            connection.go_on(&mut text);
        }
        self.connections.retain(|connection| connection.is_open(now));
        self.accept_again = self.accept_again.filter(|again| now < *again);
        for (socket, _) in self.listening.sockets.iter().zip(&own[1..]).filter(|(_, r)| **r) {
            if let Err(error) = accept(socket, &mut self.connections, now) {
                tracing::debug!(%error, "cannot accept who asks for metrics; see `ulimit -n`");
                self.accept_again = Some(now + ACCEPT_PAUSE);
            }
        }
        ControlFlow::Continue(())
    }

    /// Which descriptors are ready: `stop`, the sockets that listen, the connections.
    fn wait(&self, stop: &Bell, until: Instant) -> rustix::io::Result<Vec<bool>> {
        let paused = self.accept_again.is_some();
        let flags = if paused { PollFlags::empty() } else { PollFlags::IN };
        let listening = self.listening.sockets.iter().map(|it| (it.as_fd(), flags));
        let connections = self.connections.iter().map(|it| (it.socket.as_fd(), it.waits_for()));
        let all = [(stop.as_fd(), PollFlags::IN)].into_iter().chain(listening).chain(connections);
        let mut all: Vec<PollFd<'_>> = all
            .map(|(fd, flags): (BorrowedFd<'_>, _)| PollFd::from_borrowed_fd(fd, flags))
            .collect();
        let oldest = self.connections.first().map(|it| it.deadline);
        let first = oldest.into_iter().chain(self.accept_again).fold(until, Instant::min);
        let time = first.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        poll(&mut all, Some(&timeout))?;
        Ok(all.iter().map(|fd| !fd.revents().is_empty()).collect())
    }
}

fn accept(
    listener: &OwnedFd,
    connections: &mut Vec<Connection>,
    now: Instant,
) -> rustix::io::Result<()> {
    for _ in 0..ACCEPTS_PER_TURN {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error),
        };
        if connections.len() >= CONNECTIONS_MAX {
            connections.remove(0);
        }
        let deadline = now + CONNECTION_TIME;
        connections.push(Connection { socket, deadline, state: State::Reading(Vec::new()) });
    }
    Ok(())
}

impl Connection {
    fn waits_for(&self) -> PollFlags {
        match self.state {
            State::Writing { .. } => PollFlags::OUT,
            State::Reading(_) | State::Done => PollFlags::IN,
        }
    }

    fn is_open(&self, now: Instant) -> bool {
        !matches!(self.state, State::Done) && now < self.deadline
    }

    /// Reads what there is, or writes what there is room for.
    fn go_on(&mut self, text: &mut impl FnMut() -> Rc<[u8]>) {
        if let State::Reading(request) = &mut self.state {
            match read(&self.socket, request) {
                Read::More => return,
                Read::Gone => self.state = State::Done,
                Read::Whole(Ok(())) => self.state = State::Writing { answer: text(), sent: 0 },
                Read::Whole(Err(refusal)) => {
                    self.state = State::Writing { answer: refusal, sent: 0 };
                }
            }
        }
        if let State::Writing { answer, sent } = &mut self.state {
            match send(&self.socket, &answer[*sent..], SendFlags::NOSIGNAL) {
                Ok(count) => *sent += count,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => *sent = answer.len(),
            }
            if *sent >= answer.len() {
                let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
                self.state = State::Done;
            }
        }
    }
}

enum Read {
    More,
    Gone,
    Whole(Result<(), Rc<[u8]>>),
}

fn read(socket: &OwnedFd, request: &mut Vec<u8>) -> Read {
    let mut bytes = [0; REQUEST_BYTES_MAX];
    let room = REQUEST_BYTES_MAX - request.len();
    match recv(socket, &mut bytes[..room], RecvFlags::empty()) {
        Ok((0, _)) => Read::Gone,
        Ok((count, _)) => {
            request.extend(&bytes[..count]);
            asked(request)
        }
        Err(Errno::AGAIN | Errno::INTR) => Read::More,
        Err(_) => Read::Gone,
    }
}

/// What is asked for, as far as it has come.
fn asked(request: &[u8]) -> Read {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let refused = |status: &str, why: &str| Read::Whole(Err(answer(status, why)));
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES_MAX => Read::More,
        Ok(httparse::Status::Partial) => {
            refused("431 Request Header Fields Too Large", "too long\n")
        }
        Err(_) => refused("400 Bad Request", "this is not HTTP\n"),
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or_default().split('?').next();
            match (parsed.method, path) {
                (Some("GET"), Some("/metrics" | "/")) => Read::Whole(Ok(())),
                (Some("GET"), _) => refused("404 Not Found", "there is only /metrics\n"),
                _ => refused("405 Method Not Allowed", "there is only GET\n"),
            }
        }
    }
}

fn answer(status: &str, body: &str) -> Rc<[u8]> {
    let kind = if status.starts_with("200") { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
    .into()
}
