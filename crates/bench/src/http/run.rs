//! One sample: a server with all that it stands on, in the server's namespace; curl or wrk in the
//! client's; and nothing of it left afterwards.

use super::clearway::Clearway;
use super::server::{Server, Transport};
use super::sockets::Sockets;
use super::{Servers, tools};
use crate::apps::patiently;
use crate::clearway::daemon;
use crate::cpu::seconds_used;
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::host::{HostFiles, Nic};
use crate::interrupt::Interrupt;
use crate::kernel::START_PATIENCE;
use crate::process::{Event, RoleProcess};
use crate::role::{Part, Role, tell};
use crate::veth::{SERVER, VethPair};
use clearway_client::{Channel, Options};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;

/// Where web servers listen.
pub(super) const PORT: u16 = 8080;

/// What one place of the table asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) body_bytes: usize,
    pub(super) connections: usize,
    pub(super) seconds: u64,
}

/// What wrk measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) requests: u64,
    pub(super) requests_per_s: f64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
}

/// A sample, and what it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) counted: Counted,
    /// Processor time of the server, and of the daemon that it stands on, for a request.
    pub(super) cpu_ns_per_request: f64,
}

/// Where all samples are taken.
pub(super) struct Stage<'a> {
    pub(super) veth: &'a VethPair,
    pub(super) nic: Nic,
    pub(super) interrupt: &'a Interrupt,
}

/// A server that can be asked.
struct Running {
    server: RoleProcess,
    daemon: Option<RoleProcess>,
    directory: Directory,
}

impl Stage<'_> {
    /// Has curl ask for bodies, one behind the other, and compares them.
    pub(super) fn compare(&self, servers: Servers, bodies: &[usize]) -> Result<(), Error> {
        let running = self.start(servers)?;
        let urls: Vec<String> = bodies.iter().map(|&bytes| url(servers, bytes)).collect();
        let compared = tools::compare(self.veth.client_namespace(), &urls, bodies);
        running.end();
        self.interrupt.check()?;
        compared.map_err(|message| Error::Role { who: servers.name().into(), message })
    }

    /// Has wrk ask as often as it can.
    pub(super) fn sample(&self, servers: Servers, load: &Load) -> Result<Sample, Error> {
        let running = self.start(servers)?;
        let namespace = self.veth.client_namespace();
        let url = url(servers, load.body_bytes);
        let before_s = running.cpu_s();
        let counted = tools::wrk(namespace, running.directory.path(), &url, load, self.interrupt);
        let cpu_s = running.cpu_s() - before_s;
        running.end();
        let counted = counted?;
        Ok(Sample { counted, cpu_ns_per_request: 1e9 * cpu_s / counted.requests as f64 })
    }

    fn start(&self, servers: Servers) -> Result<Running, Error> {
        let directory = Directory::create().while_("making a directory for sockets")?;
        let namespace = Some(self.veth.server_namespace());
        let (daemon, role) = match servers {
            Servers::Kernel => (None, ServerRole::Kernel),
            Servers::Clearway => {
                let files = HostFiles::write(&directory, "server", &self.nic, None)
                    .while_("writing a configuration")?;
                let daemon = daemon(&files, None, namespace, self.interrupt)?;
                (Some(daemon), ServerRole::Clearway(files.socket))
            }
            #[cfg(feature = "smoltcp")]
            Servers::Smoltcp => (None, ServerRole::Smoltcp),
        };
        let role = Role::new(Part::WebServer(role)).in_namespace_of(namespace);
        let who = format!("the web server on {}", servers.name());
        let mut server = RoleProcess::start(&who, &role)?;
        server.ready(START_PATIENCE, self.interrupt)?;
        Ok(Running { server, daemon, directory })
    }
}

impl Running {
    fn cpu_s(&self) -> f64 {
        let daemon = self.daemon.as_ref().map_or(0.0, |daemon| seconds_used(daemon.id()));
        seconds_used(self.server.id()) + daemon
    }

    /// The app first: its daemon then gives the port back.
    fn end(self) {
        drop(self.server);
        if let Some(mut daemon) = self.daemon {
            daemon.terminate();
        }
    }
}

fn url(servers: Servers, body_bytes: usize) -> String {
    let address = match servers {
        Servers::Clearway | Servers::Kernel => SERVER.to_owned(),
        #[cfg(feature = "smoltcp")]
        Servers::Smoltcp => super::stack::ADDRESS.to_string(),
    };
    format!("http://{address}:{PORT}/{body_bytes}")
}

/// The process that serves: on the channel of a daemon's socket, or on the kernel's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerRole {
    Clearway(PathBuf),
    Kernel,
    #[cfg(feature = "smoltcp")]
    Smoltcp,
}

impl ServerRole {
    /// Serves until it is ended.
    pub(crate) fn play(self) -> Result<(), Error> {
        match self {
            Self::Clearway(socket) => {
                let options = Options { socket, ..Options::new("http") };
                let channel = patiently(|| Channel::attach(&options));
                let channel = channel.while_("attaching the web server")?;
                serve(Clearway::new(channel, PORT).map_err(Error::App)?)
            }
            Self::Kernel => {
                let listener = TcpListener::bind((SERVER, PORT));
                let sockets = listener.and_then(Sockets::new);
                serve(sockets.while_("listening")?)
            }
            #[cfg(feature = "smoltcp")]
            Self::Smoltcp => serve(super::stack::Stack::new().while_("opening a packet socket")?),
        }
    }
}

fn serve(transport: impl Transport) -> Result<(), Error> {
    let mut server = Server::new(transport);
    tell(&Event::Ready(format!("{SERVER}:{PORT}")));
    let end: io::Error = loop {
        if let Err(error) = server.turn() {
            break error;
        }
    };
    Err(end).while_("serving")
}
