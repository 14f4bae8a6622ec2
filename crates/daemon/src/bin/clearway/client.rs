//! Asking a running daemon over its control socket, one question at a time.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clearway_channel::control::{self, Reply, Request};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::output::Failure;

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
        let answered = || -> io::Result<Option<control::Packet>> {
            set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
            set_socket_timeout(&self.socket, Timeout::Send, Some(patience))?;
            control::send(&self.socket, request, &[])?;
            control::receive(&self.socket)
        };
        let path = self.path.display();
        let packet = match answered() {
            Ok(Some(packet)) => packet,
            Ok(None) => {
                return Err(Failure::Failed(format!(
                    "the daemon at {path} has closed the connection; see its log for the reason"
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Failure::Failed(format!(
                    "the daemon at {path} does not answer; see its log, or restart it"
                )));
            }
            Err(error) => {
                return Err(Failure::Failed(format!("cannot talk to {path}: {error}")));
            }
        };
        match Reply::parse(&packet.bytes) {
            Ok(Reply::Error(refusal)) => Err(Failure::Failed(refusal.message)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(Failure::failed(error)),
        }
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
            "no daemon is running at {path}; start one with `clearway daemon --config FILE`, or \
             name its socket with --socket or CLEARWAY_SOCKET"
        ),
        Errno::ACCESS | Errno::PERM => format!(
            "this user may not connect to {path}; add it to [policy] in the daemon's \
             configuration, or run as the daemon's user"
        ),
        error => format!("cannot connect to {path}: {error}; name another socket with --socket"),
    }
}
