//! The opener: a process beside the daemon that opens NICs for it while it runs: those that a
//! reload brings, and interfaces that are made again.
//!
//! ```text
//!  clearwayd ── one socket: a NIC's name, and what is wanted of it ──▶ opener: looks the NIC up in
//!   (no socket of AF_XDP,                                                the configuration, opens,
//!    no program into the kernel) ◀── descriptors ─────────────────────── hands over
//! ```
//!
//! It keeps the capabilities that bringing an eBPF program to an interface takes, or making a tap
//! device, and does nothing else with them. What it does it does to what the configuration names,
//! as it reads it itself: the daemon says which NIC of that, and neither an interface nor a path.
//! So a daemon that has been taken over gets what its own NICs are made of, and nothing more. All
//! else of opening a NIC, the daemon does.

mod serve;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clearway_nic::interface::Device;
use clearway_nic::memif::Connect;
use clearway_nic::{AttachMode, Installed, Memory, NotInstalled, ThisProcess, XdpSocket};
use rustix::net::SocketFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::broker::{self, Connector, packet};
use crate::config::Config;
use crate::privileges::OwnUser;
pub(crate) use serve::serve;

/// What `clearwayd` is told first when it is to be the opener.
pub(crate) const SUBCOMMAND: &str = "opener";
/// How long an answer may take: an interface that is busy is waited for, and a machine that is busy
/// takes seconds to check an eBPF program.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// What an opener is told when it starts.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    /// The user to become.
    user: Option<String>,
    config: PathBuf,
    /// Whether it keeps what opening the kernel's interfaces takes.
    has_interfaces: bool,
    /// Whether it keeps what making tap devices takes.
    has_taps: bool,
}

/// What a daemon asks for.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    number: u64,
    /// The name of the NIC in the configuration.
    nic: String,
    thing: Thing,
}

/// What there is to be had for a NIC.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Thing {
    /// For an interface of the kernel.
    XdpSocket {
        bytes: usize,
        chunk_bytes: usize,
    },
    Steer {
        fragments: bool,
        generic: bool,
    },
    Hide,
    Turn,
    /// For a memif: the socket of a server, and what connects a client.
    Listening,
    Connector,
    /// For a tap device: a file for each queue.
    Tap,
}

/// What is said to a question of this number.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    number: u64,
    answer: Answer,
}

/// What came of it. Descriptors come along if all went well.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ok,
    /// The system's own error, which is to be judged by who asked.
    System(i32),
    /// Why not, and what to do.
    Refused(String),
}

/// The daemon's side.
#[derive(Debug)]
pub(crate) struct Opener {
    line: Mutex<Line>,
}

/// The way to the opener, for one question at a time.
#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    /// Questions so far.
    asked: u64,
}

impl Opener {
    /// Starts the opener of a daemon whose configuration was read from `config`.
    pub(crate) fn start(
        config: &Config,
        path: &Path,
        user: Option<&OwnUser>,
    ) -> Result<Self, Error> {
        let task = Task {
            user: user.map(|user| user.name.clone()),
            config: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            has_interfaces: config.uses_kernel_interfaces(),
            has_taps: config.uses_taps(),
        };
        let started = || -> io::Result<Self> {
            let (socket, its) = broker::pair(SocketFlags::empty())?;
            broker::spawn(SUBCOMMAND, its)?;
            packet::send(&socket, &serde_json::to_vec(&task)?, &[])?;
            broker::await_ready(&socket)?;
            Self::over(socket, ANSWER_TIME)
        };
        started().map_err(|source| Error::System {
            action: "cannot start the opener, which opens NICs for the daemon".to_owned(),
            source,
            remedy: "see that /proc is mounted and that this user may start another process \
                     (ulimit -u)"
                .to_owned(),
        })
    }

    fn over(socket: OwnedFd, answer_time: Duration) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Recv, Some(answer_time))?;
        Ok(Self { line: Mutex::new(Line { socket, asked: 0 }) })
    }

    fn ask(&self, nic: &str, thing: Thing) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.ask(nic, thing).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "it has not answered in time")
            }
            _ => error,
        })
    }
}

impl Line {
    /// What comes to earlier questions is late, and nobody waits for it any more.
    fn ask(&mut self, nic: &str, thing: Thing) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.asked += 1;
        let question = Question { number: self.asked, nic: nic.to_owned(), thing };
        packet::send(&self.socket, &serde_json::to_vec(&question)?, &[])?;
        loop {
            let packet = packet::receive(&self.socket)?;
            let Said { number, answer } = serde_json::from_slice(&packet.bytes)?;
            if number == self.asked {
                return Ok((answer, packet.descriptors));
            }
        }
    }
}

/// Who does for a NIC what a daemon that runs may not: nobody else, while it starts or if it is not
/// confined.
#[derive(Clone, Debug)]
pub(crate) enum Means {
    /// This process. A memif client connects by this, if there is one.
    Own(Option<Arc<dyn Connect>>),
    /// The opener.
    Opener(Arc<Opener>),
}

impl Means {
    /// For the NIC of this name.
    pub(crate) fn of(&self, nic: &str) -> Arc<dyn clearway_nic::Opener> {
        match self {
            Self::Own(_) => Arc::new(ThisProcess),
            Self::Opener(opener) => {
                Arc::new(Opening { opener: Arc::clone(opener), nic: nic.to_owned() })
            }
        }
    }

    /// Who connects, for a memif client of this name; `None`: this process.
    pub(crate) fn connector(
        &self,
        nic: &str,
    ) -> Result<Option<Arc<dyn Connect>>, clearway_nic::Error> {
        match self {
            Self::Own(connector) => Ok(connector.clone()),
            Self::Opener(opener) => {
                let socket = one(opener.ask(nic, Thing::Connector))?;
                rustix::io::ioctl_fionbio(&socket, true).map_err(|e| failed(e.into()))?;
                Ok(Some(Arc::new(Connector::new(socket))))
            }
        }
    }

    /// The socket that a memif server of this name listens on; `None`: one that it makes itself.
    pub(crate) fn listening(&self, nic: &str) -> Result<Option<Arc<OwnedFd>>, clearway_nic::Error> {
        match self {
            Self::Own(_) => Ok(None),
            Self::Opener(opener) => Ok(Some(Arc::new(one(opener.ask(nic, Thing::Listening))?))),
        }
    }

    /// The files of the tap device of a NIC of this name; `None`: this process takes them itself.
    pub(crate) fn tap(&self, nic: &str) -> Result<Option<Vec<OwnedFd>>, clearway_nic::Error> {
        match self {
            Self::Own(_) => Ok(None),
            Self::Opener(opener) => {
                let files = descriptors(opener.ask(nic, Thing::Tap))?;
                if files.is_empty() { Err(nothing()) } else { Ok(Some(files)) }
            }
        }
    }
}

/// The opener, for one NIC.
struct Opening {
    opener: Arc<Opener>,
    nic: String,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("nic", &self.nic).finish_non_exhaustive()
    }
}

impl clearway_nic::Opener for Opening {
    fn xdp_socket(&self, memory: Memory) -> Result<XdpSocket, clearway_nic::Error> {
        let Memory { bytes, chunk_bytes } = memory;
        let thing = Thing::XdpSocket { bytes, chunk_bytes };
        let mut descriptors = descriptors(self.opener.ask(&self.nic, thing))?.into_iter();
        let file = descriptors.next().ok_or_else(nothing)?;
        Ok(XdpSocket { file, memory: descriptors.next() })
    }

    fn steer(&self, _: &Device, mode: AttachMode) -> Result<Installed, NotInstalled> {
        let AttachMode { fragments, generic } = mode;
        match self.opener.ask(&self.nic, Thing::Steer { fragments, generic }) {
            Ok((Answer::System(error), _)) => {
                Err(NotInstalled::NotSo(io::Error::from_raw_os_error(error)))
            }
            answer => Ok(installed(answer)?),
        }
    }

    fn hide(&self, _: &Device) -> Result<Installed, clearway_nic::Error> {
        installed(self.opener.ask(&self.nic, Thing::Hide))
    }

    fn turn(&self, _: &Device) -> Result<Installed, clearway_nic::Error> {
        installed(self.opener.ask(&self.nic, Thing::Turn))
    }
}

/// The link, and then the tables.
fn installed(answer: io::Result<(Answer, Vec<OwnedFd>)>) -> Result<Installed, clearway_nic::Error> {
    let mut descriptors = descriptors(answer)?.into_iter();
    let link = descriptors.next().ok_or_else(nothing)?;
    Ok(Installed { link, tables: descriptors.collect() })
}

fn one(answer: io::Result<(Answer, Vec<OwnedFd>)>) -> Result<OwnedFd, clearway_nic::Error> {
    descriptors(answer)?.pop().ok_or_else(nothing)
}

fn descriptors(
    answer: io::Result<(Answer, Vec<OwnedFd>)>,
) -> Result<Vec<OwnedFd>, clearway_nic::Error> {
    match answer.map_err(failed)? {
        (Answer::Ok, descriptors) => Ok(descriptors),
        (Answer::System(error), _) => Err(failed(io::Error::from_raw_os_error(error))),
        (Answer::Refused(text), _) => Err(clearway_nic::Error::Invalid(text)),
    }
}

fn nothing() -> clearway_nic::Error {
    failed(io::ErrorKind::InvalidData.into())
}

fn failed(source: io::Error) -> clearway_nic::Error {
    clearway_nic::Error::System {
        action: "cannot have a NIC opened by the process beside this one".to_owned(),
        remedy: "See the log above; if that process has gone, restart the daemon".to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that comes too late is none to the next question, and that is answered.
    #[test]
    fn what_is_late_is_no_answer_to_what_was_asked_since() {
        let (socket, its) = broker::pair(SocketFlags::empty()).expect("a pair");
        let opener = Opener::over(socket, Duration::from_millis(10)).expect("a socket");
        let late = opener.ask("a", Thing::Hide).expect_err("nobody answers").to_string();
        assert_eq!(late, "it has not answered in time");
        for number in [1, 2] {
            let answer = Answer::Refused(number.to_string());
            let said = serde_json::to_vec(&Said { number, answer }).expect("JSON");
            packet::send(&its, &said, &[]).expect("sent");
        }
        let answer = opener.ask("a", Thing::Hide).expect("answered").0;
        assert!(matches!(&answer, Answer::Refused(text) if text == "2"), "{answer:?}");
        drop(its);
        assert!(opener.ask("a", Thing::Hide).is_err(), "it has gone");
    }
}
