//! The broker: a process beside the daemon that does the few things which a confined daemon may
//! not.
//!
//! ```text
//!  clearwayd       ── one socket per memif client ──▶ broker: connects, gives the connection back
//!    (no connect,  ── one socket for look-ups ──────▶         the groups of a user
//!     no files)    ── its standard input ───────────▶         tells the service manager,
//!                                                             reads the configuration,
//!                                                             opens the control socket
//! ```
//!
//! The daemon starts it before it confines itself, from its own program, and tells it once what
//! there is to do (`Task`). From then on nothing that the daemon says can change whom the broker
//! connects to: each socket stands for one address of the configuration, and a request on it has no
//! content. So a daemon that has been taken over reaches those addresses and nobody else. The
//! broker runs as the daemon's user, without capabilities, confined as well (`crate::confinement`),
//! and ends with the daemon.

mod connector;
mod groups;
pub(crate) mod packet;
mod serve;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clearway_nic::memif::Connect;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::config::{Config, Driver, MemifRole, RecordedMachine};
use crate::privileges::OwnUser;
pub(crate) use connector::Connector;
pub(crate) use groups::{Groups, GroupsOf, LOOKUPS_AT_ONCE};
pub(crate) use serve::{
    CONFIG_BYTES_MAX, connect_by, open_file, remedy, say_ready, serve, shortened,
};

/// How long it may take to get ready.
const START_TIME: Duration = Duration::from_secs(10);
/// What `clearwayd` is told first when it is to be the broker.
pub(crate) const SUBCOMMAND: &str = "broker";
/// Where a service manager wants to be told, if there is one (sd_notify(3)).
const NOTIFY: &str = "NOTIFY_SOCKET";

/// What a broker is to do, all its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The user to become.
    pub(crate) user: Option<String>,
    /// The addresses to connect to, each for the socket of the same position. The socket after
    /// those is for groups.
    pub(crate) connections: Vec<String>,
    /// The configuration, if there is one, which can be read again.
    pub(crate) config: Option<PathBuf>,
    /// The control socket, which can be opened to everybody.
    pub(crate) control: PathBuf,
    /// Whether a service manager is told.
    pub(crate) notifies: bool,
}

/// What a broker answers when it is ready, or cannot be.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    problem: Option<String>,
}

/// The daemon's side of a broker.
#[derive(Debug)]
pub(crate) struct Broker {
    /// One for each NIC of the configuration; `None` where there is nobody to connect to.
    connectors: Vec<Option<Arc<dyn Connect>>>,
    pub(crate) groups: Groups,
    /// The broker's standard input. It ends when this is closed.
    line: OwnedFd,
    /// There is a service manager.
    notifies: bool,
}

/// All that a broker can be told by its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// What a service manager wants to hear (sd_notify(3)).
    Ready,
    Alive,
    Stopping,
    /// It waits for its interfaces.
    Waiting,
    /// Read the configuration again. The only one that is answered, with a [`Reread`].
    Reread,
    /// Let everybody connect to the control socket, or its owner only.
    OpenSocket,
    CloseSocket,
}

/// A configuration as it is now, and what this machine says of the names in it; or why not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reread {
    Text { text: String, machine: RecordedMachine },
    Problem(String),
}

impl Broker {
    /// Starts the broker of a daemon whose configuration was read from `path`, if it was.
    pub(crate) fn start(
        config: &Config,
        path: Option<&Path>,
        user: Option<&OwnUser>,
    ) -> Result<Self, Error> {
        let task = Task {
            user: user.map(|user| user.name.clone()),
            connections: config.nics.iter().filter_map(|nic| server_of(&nic.driver)).collect(),
            // It does not stay where the daemon is.
            config: path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
            control: config.control.socket.clone(),
            notifies: std::env::var_os(NOTIFY).is_some(),
        };
        Self::start_for(config, &task).map_err(|source| Error::System {
            action: "cannot start the broker, which connects for the daemon".to_owned(),
            source,
            remedy: "see that /proc is mounted and that this user may start another process \
                     (ulimit -u)"
                .to_owned(),
        })
    }

    fn start_for(config: &Config, task: &Task) -> std::io::Result<Self> {
        let (line, its_line) = pair(SocketFlags::empty())?;
        let mut theirs = Vec::new();
        let mut end = || -> std::io::Result<OwnedFd> {
            let (ours, its) = pair(SocketFlags::empty())?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            theirs.push(its);
            Ok(ours)
        };
        let mut connectors: Vec<Option<Arc<dyn Connect>>> = Vec::new();
        for nic in &config.nics {
            connectors.push(match server_of(&nic.driver) {
                Some(_) => Some(Arc::new(Connector::new(end()?))),
                None => None,
            });
        }
        let groups = Groups::new(end()?);
        spawn(SUBCOMMAND, its_line)?;
        let descriptors: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
        packet::send(&line, &serde_json::to_vec(task)?, &descriptors)?;
        await_ready(&line)?;
        rustix::io::ioctl_fionbio(&line, true)?;
        Ok(Self { connectors, groups, line, notifies: task.notifies })
    }

    /// Tells the broker to do something; false if it takes no orders. Never waits.
    pub(crate) fn tell(&self, order: Order) -> bool {
        if !self.notifies && order.notice().is_some() {
            return true;
        }
        let told = packet::send(&self.line, &[order as u8], &[]);
        if let Err(error) = &told {
            tracing::warn!(%error, ?order, "the broker takes no orders; restart the daemon");
        }
        told.is_ok()
    }

    /// The configuration that the broker has read, if it is there yet.
    pub(crate) fn reread(&self) -> std::io::Result<Option<Reread>> {
        match packet::receive(&self.line) {
            Ok(packet) => Ok(Some(serde_json::from_slice(&packet.bytes)?)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Who connects for the NIC of this position.
    pub(crate) fn connector(&self, nic: usize) -> Option<Arc<dyn Connect>> {
        self.connectors.get(nic).cloned().flatten()
    }
}

#[cfg(test)]
impl Broker {
    /// One that has gone already.
    pub(crate) fn gone() -> std::io::Result<Self> {
        Self::played().map(|(broker, _)| broker)
    }

    /// One that is played by whoever has the other ends: of its standard input, and for groups.
    pub(crate) fn played() -> std::io::Result<(Self, [OwnedFd; 2])> {
        let ((line, its_line), (groups, its_groups)) =
            (pair(SocketFlags::empty())?, pair(SocketFlags::empty())?);
        for ours in [&line, &groups] {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let groups = Groups::new(groups);
        let broker = Self { connectors: Vec::new(), groups, line, notifies: false };
        Ok((broker, [its_line, its_groups]))
    }
}

impl AsFd for Broker {
    /// Readable when the configuration has been read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Order {
    const ALL: [Self; 7] = [
        Self::Ready,
        Self::Alive,
        Self::Stopping,
        Self::Waiting,
        Self::Reread,
        Self::OpenSocket,
        Self::CloseSocket,
    ];

    fn parse(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|order| *bytes == [*order as u8])
    }

    /// What the service manager is told, if it is.
    const fn notice(self) -> Option<&'static str> {
        match self {
            Self::Ready => Some("READY=1\nSTATUS=Serving apps"),
            Self::Alive => Some("WATCHDOG=1"),
            Self::Stopping => Some("STOPPING=1"),
            Self::Waiting => Some("STATUS=Waiting for its interfaces to be there and up"),
            Self::Reread | Self::OpenSocket | Self::CloseSocket => None,
        }
    }
}

/// The address to which the driver of a NIC connects.
fn server_of(driver: &Driver) -> Option<String> {
    match driver {
        Driver::Memif(link) if link.role == MemifRole::Client => Some(link.socket.clone()),
        _ => None,
    }
}

/// Starts this program again, as a broker or an opener.
pub(crate) fn spawn(subcommand: &str, line: OwnedFd) -> std::io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("clearwayd").arg(subcommand).env_clear().current_dir("/");
    if let Some(socket) = std::env::var_os(NOTIFY) {
        command.env(NOTIFY, socket);
    }
    // It ends when the daemon does; nobody waits for it.
    command.stdin(line).stdout(Stdio::null()).spawn().map(drop)
}

pub(crate) fn await_ready(line: &OwnedFd) -> std::io::Result<()> {
    set_socket_timeout(line, Timeout::Recv, Some(START_TIME))?;
    let packet = packet::receive(line)?;
    let answer: Answer = serde_json::from_slice(&packet.bytes)?;
    match answer.problem {
        None => Ok(()),
        Some(problem) => Err(std::io::Error::other(problem)),
    }
}

pub(crate) fn pair(flags: SocketFlags) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = flags | SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
