//! Asking a running daemon over its control socket, one question at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clearway_channel::control::{self, Empty, Reply, Request};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;

use crate::output::Failure;

/// A daemon that has not answered after that does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a daemon.
pub(crate) struct Client {
    socket: OwnedFd,
    path: PathBuf,
}

impl Client {
    /// Connects to the socket given, or to where this user's daemon would be.
    pub(crate) fn connect(path: Option<&Path>) -> Result<Self, Failure> {
        let path = path.map_or_else(control::client_path, Path::to_owned);
        let connected = || -> rustix::io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            connect(&socket, &SocketAddrUnix::new(&path)?)?;
            Ok(socket)
        };
        match connected() {
            Ok(socket) => Ok(Self { socket, path }),
            Err(error) => Err(Failure::Failed(cannot_connect(&path, error))),
        }
    }

    /// Sends a request and waits for its answer, for at most `patience`. A refusal is a failure.
    pub(crate) fn ask(&self, request: &Request, patience: Duration) -> Result<Reply, Failure> {
        match (self.send(request, patience), self.answer()) {
            // A daemon that has closed the connection has said why, if it had something to say.
            (Err(error), Ok(None)) => Err(self.failure(&error)),
            (_, Ok(None)) => Err(self.closed()),
            (_, Ok(Some(reply))) => Ok(reply),
            (_, Err(failure)) => Err(failure),
        }
    }

    /// Sends a request that has several answers, each of which may take `patience`.
    pub(crate) fn request(&self, request: &Request, patience: Duration) -> Result<(), Failure> {
        self.send(request, patience).map_err(|error| self.failure(&error))
    }

    /// The next of the answers. A refusal is one of them.
    pub(crate) fn reply(&self) -> Result<Reply, Failure> {
        self.next()?.ok_or_else(|| self.closed())
    }

    fn send(&self, request: &Request, patience: Duration) -> io::Result<()> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
        set_socket_timeout(&self.socket, Timeout::Send, Some(patience))?;
        control::send(&self.socket, request, &[])
    }

    /// The state of the daemon.
    pub(crate) fn status(&self, patience: Duration) -> Result<Value, Failure> {
        let mut reply = self.ask(&Request::Status(Empty {}), patience)?;
        let mut text = String::new();
        while let Reply::Status(part) = reply {
            text += &part.text;
            if !part.more {
                return serde_json::from_str(&text).map_err(|_| unexpected());
            }
            reply = self.answer()?.ok_or_else(unexpected)?;
        }
        Err(unexpected())
    }

    /// The next reply; `None` if the daemon has closed the connection.
    fn answer(&self) -> Result<Option<Reply>, Failure> {
        match self.next()? {
            Some(Reply::Error(refusal)) => Err(Failure::Failed(refusal.message)),
            reply => Ok(reply),
        }
    }

    /// The same, refusal or not.
    fn next(&self) -> Result<Option<Reply>, Failure> {
        let received = match control::receive(&self.socket) {
            // Told once, when the daemon did not read everything; what it has said comes after.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                control::receive(&self.socket)
            }
            received => received,
        };
        let Some(packet) = received.map_err(|error| self.failure(&error))? else {
            return Ok(None);
        };
        match Reply::parse(&packet.bytes) {
            Ok(reply) => Ok(Some(reply)),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    fn closed(&self) -> Failure {
        Failure::Failed(format!(
            "the daemon at {} has closed the connection; see its log for the reason",
            self.path.display()
        ))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let path = self.path.display();
        Failure::Failed(if error.kind() == io::ErrorKind::WouldBlock {
            format!("the daemon at {path} does not answer; see its log, or restart it")
        } else {
            format!("cannot talk to {path}: {error}")
        })
    }
}

impl AsFd for Client {
    /// Readable when there is an answer.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An answer to another question than the one asked.
pub(crate) fn unexpected() -> Failure {
    Failure::Failed(
        "the daemon gave an answer to another question; are daemon and command of the same \
         version?"
            .to_owned(),
    )
}

fn cannot_connect(path: &Path, error: Errno) -> String {
    let path = path.display();
    match error {
        Errno::NOENT | Errno::CONNREFUSED => format!(
            "no daemon is running at {path}; start one with `clearway daemon`, or name its \
             socket with --socket or CLEARWAY_SOCKET"
        ),
        Errno::ACCESS | Errno::PERM => format!(
            "this user may not connect to {path}; add it to [policy] in the daemon's \
             configuration, or run as the daemon's user"
        ),
        error => format!("cannot connect to {path}: {error}; name another socket with --socket"),
    }
}
