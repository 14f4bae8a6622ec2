//! The opener's side: keep what opening takes, give up all else, serve until the daemon has gone.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clearway_nic::interface::Device;
use clearway_nic::{
    AttachMode, Installed, Memory, NotInstalled, Opener as _, ThisProcess, XdpSocket, memif,
};
use rustix::net::SocketFlags;
use rustix::stdio::stdin;

use super::{Answer, Question, Said, Task, Thing};
use crate::broker::{self, packet};
use crate::config::{self, Config, Driver, Machine, MemifRole, Nic, ThisMachine};
use crate::nic::attach;
use crate::privileges::{self, OwnUser};
use crate::{Error, confinement, hold_signals};

/// Is the opener of the daemon at the other end of standard input, until that has gone.
pub(crate) fn serve() -> Result<(), Error> {
    serve_task().map_err(|error| Error::resources("open NICs for the daemon", error))
}

fn serve_task() -> io::Result<()> {
    hold_signals()?;
    let packet = packet::receive(stdin())?;
    let task: Task = serde_json::from_slice(&packet.bytes)?;
    let ready = prepare(&task);
    broker::say_ready(&ready)?;
    let mut opening = ready?;
    while let Ok(packet) = packet::receive(stdin()) {
        let question: Question = serde_json::from_slice(&packet.bytes)?;
        let (answer, descriptors) = match opening.answer(&question) {
            Ok(descriptors) => (Answer::Ok, descriptors),
            Err(answer) => (answer, Vec::new()),
        };
        let said = Said { number: question.number, answer };
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        packet::send(stdin(), &serde_json::to_vec(&said)?, &descriptors)?;
    }
    Ok(())
}

/// Gives everything up that the task does not need.
fn prepare(task: &Task) -> io::Result<Opening> {
    let user = task.user.as_deref().map(OwnUser::named).transpose()?.flatten();
    // Root wrote it, or whoever started the daemon, who can have no more than that anyway.
    let writer = rustix::process::geteuid().as_raw();
    privileges::drop_all_but_opening(user.as_ref(), task.has_interfaces, task.has_taps)?;
    confinement::confine_opener(&task.config, task.has_taps);
    Ok(Opening { path: task.config.clone().into(), writer, last: None })
}

/// What is opened is what the configuration says.
struct Opening {
    path: Box<Path>,
    /// Who may have written it, beside root.
    writer: u32,
    /// The last that could be read.
    last: Option<Config>,
}

type Outcome = Result<Vec<OwnedFd>, Answer>;

impl Opening {
    fn answer(&mut self, question: &Question) -> Outcome {
        let nic = self.nic(&question.nic)?;
        match (&nic.driver, question.thing) {
            (Driver::Interface(interface), thing) => of_interface(&interface.name, thing),
            (Driver::Memif(link), Thing::Listening) if link.role == MemifRole::Server => {
                let socket = memif::listen(&link.socket.as_str().into()).map_err(refused)?;
                Ok(vec![socket])
            }
            (Driver::Memif(link), Thing::Connector) if link.role == MemifRole::Client => {
                connector(&link.socket).map_err(system)
            }
            (Driver::Tap(device), Thing::Tap) => attach(nic, device).map_err(refused),
            _ => Err(Answer::Refused(format!(
                "the NIC \"{}\" of the configuration is of another kind; have it read again",
                nic.name
            ))),
        }
    }

    /// The NIC of this name, in the configuration as it is now.
    fn nic(&mut self, name: &str) -> Result<&Nic, Answer> {
        self.read().map_err(Answer::Refused)?;
        let mut nics = self.last.iter().flat_map(|config| &config.nics);
        nics.find(|nic| nic.name == name).ok_or_else(|| {
            let path = self.path.display();
            Answer::Refused(format!("{path} names no NIC \"{name}\"; have it read again"))
        })
    }

    fn read(&mut self) -> Result<(), String> {
        let path = self.path.display();
        let cannot = |error: io::Error| {
            let remedy = broker::remedy(error.kind(), &path.to_string());
            format!("{path} cannot be read: {error}; {remedy}")
        };
        let (mut file, facts) = broker::open_file(&self.path).map_err(cannot)?;
        if ![0, self.writer].contains(&facts.uid()) || facts.mode() & 0o022 != 0 {
            return Err(format!(
                "{path} can be written by others than root, and says whose interfaces are taken: \
                 chown root {path}; chmod go-w {path}"
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(cannot)?;
        match config::parse(&text, "", &NicsOnly) {
            Ok(config) => self.last = Some(config),
            // The daemon goes on with what it has, and so do its NICs.
            Err(problems) if self.last.is_none() => {
                return Err(broker::shortened(problems.to_string(), &path.to_string()));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

fn of_interface(name: &str, thing: Thing) -> Outcome {
    let opened = match thing {
        Thing::XdpSocket { bytes, chunk_bytes } => {
            let socket = ThisProcess::xdp_socket_with(Memory { bytes, chunk_bytes });
            let XdpSocket { file, memory } = socket.map_err(refused)?;
            return Ok(std::iter::once(file).chain(memory).collect());
        }
        Thing::Steer { fragments, generic } => {
            let device = Device::open(name).map_err(refused)?;
            ThisProcess.steer(&device, AttachMode { fragments, generic }).map_err(|error| {
                match error {
                    NotInstalled::NotSo(error) => system(error),
                    NotInstalled::Never(error) => refused(error),
                }
            })?
        }
        Thing::Turn => ThisProcess.turn(&Device::open(name).map_err(refused)?).map_err(refused)?,
        Thing::Hide => ThisProcess.hide(&Device::open(name).map_err(refused)?).map_err(refused)?,
        Thing::Listening | Thing::Connector | Thing::Tap => {
            return Err(Answer::Refused(format!("{name} is an interface, no memif and no tap")));
        }
    };
    let Installed { link, tables } = opened;
    Ok(std::iter::once(link).chain(tables).collect())
}

fn connector(address: &str) -> io::Result<Vec<OwnedFd>> {
    let (socket, its) = broker::pair(SocketFlags::empty())?;
    broker::connect_by(its, address)?;
    Ok(vec![socket])
}

fn system(error: io::Error) -> Answer {
    Answer::System(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
}

fn refused(error: clearway_nic::Error) -> Answer {
    Answer::Refused(error.to_string())
}

/// A machine where everybody is that a configuration names: it is the NICs that matter here.
struct NicsOnly;

impl Machine for NicsOnly {
    fn interfaces(&self) -> Vec<String> {
        ThisMachine.interfaces()
    }

    fn cores(&self) -> Vec<usize> {
        ThisMachine.cores()
    }

    fn user_id(&self, _: &str) -> Option<u32> {
        Some(0)
    }

    fn group_id(&self, _: &str) -> Option<u32> {
        Some(0)
    }
}

#[cfg(test)]
mod tests;
