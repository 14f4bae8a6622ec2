//! Set-ups between real daemons, at the ports of a `clearway fabric` process.

use clearway_client::{Channel, ConnectionId, Options, Sizes};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::ConnectCommand;
use super::measure::{Bed, Setup};
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::host::STAYS_ROOT;
use crate::interrupt::Interrupt;
use crate::process::{RoleProcess, own_program};
use crate::role::{Part, Role};

/// How long processes may take to start, and hosts to find each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// A fabric that forwards nothing for so long is quiet.
const QUIET: Duration = Duration::from_millis(20);
/// The service port of the server's first engine; the next one's is one higher.
const PORT: u16 = 5000;
/// Rings and pools of apps that send nothing.
const SIZES: Sizes = Sizes {
    submission_entries: 64,
    completion_entries: 64,
    transmit_pool_bytes: 64 << 10,
    receive_pool_bytes: 64 << 10,
    shared_bytes: 0,
};

pub(super) struct Processes<'a> {
    fabric: RoleProcess,
    client: Host,
    server: Host,
    interrupt: &'a Interrupt,
    _directory: Directory,
}

/// A daemon, and an app at each of its engines.
struct Host {
    socket: PathBuf,
    address: &'static str,
    apps: Vec<Channel>,
    _process: RoleProcess,
}

impl<'a> Processes<'a> {
    pub(super) fn start(command: &ConnectCommand, interrupt: &'a Interrupt) -> Result<Self, Error> {
        let directory = Directory::create().while_("making a directory for sockets")?;
        let sides = [
            ("client", "10.9.0.1", command.client_engines),
            ("server", "10.9.0.2", command.server_engines),
        ];
        let mut arguments = vec!["fabric".to_owned(), "--json".into()];
        arguments.push(format!("--seed={}", command.seed));
        for (name, _, engines) in sides {
            arguments.push(format!(
                "--port={name}={},queues={engines},rss={},sends.loss_ppm={},sends.latency_ns={}",
                memif(directory.path(), name).display(),
                command.rss_name(),
                command.loss_ppm,
                u64::from(command.latency_us) * 1000
            ));
        }
        let fabric = become_clearway("clearway fabric", arguments)?;
        let mut hosts = Vec::new();
        for (name, address, engines) in sides {
            hosts.push(Host::start(directory.path(), name, address, engines, interrupt)?);
        }
        let (Some(mut server), Some(client)) = (hosts.pop(), hosts.pop()) else {
            unreachable!("two sides")
        };
        for (app, port) in server.apps.iter_mut().zip(PORT..) {
            app.listen(port).map_err(io::Error::other).while_("listening")?;
        }
        Ok(Self { fabric, client, server, interrupt, _directory: directory })
    }

    /// Frames that came from both hosts so far.
    fn packets(&mut self) -> Result<u64, Error> {
        self.fabric.tell("counters\n")?;
        let line =
            self.fabric.await_line(PATIENCE, self.interrupt, |line| line.starts_with('['))?;
        let ports: Vec<Value> =
            serde_json::from_str(&line).map_err(io::Error::from).while_("counting")?;
        Ok(ports.iter().filter_map(|port| port["received_frames"].as_u64()).sum())
    }

    /// Waits until the hosts are silent; how much they have said.
    fn settle(&mut self) -> Result<u64, Error> {
        let (mut packets, mut since) = (self.packets()?, Instant::now());
        while since.elapsed() < QUIET {
            self.interrupt.check()?;
            std::thread::sleep(QUIET / 4);
            let now = self.packets()?;
            if now != packets {
                (packets, since) = (now, Instant::now());
            }
        }
        Ok(packets)
    }
}

impl Bed for Processes<'_> {
    fn set_up(&mut self, from: usize, to: usize) -> Result<Setup, Error> {
        let peer: SocketAddr =
            SocketAddr::new(self.server.address.parse().expect("an address"), PORT + to as u16);
        let before = self.settle()?;
        let begin = Instant::now();
        let connection = self.client.connect(from, peer)?;
        let ns = begin.elapsed().as_nanos() as u64;
        let accepted = self.server.apps[to].accept(Some(PATIENCE));
        let accepted = accepted.map_err(io::Error::other).while_("accepting a connection")?;
        let packets = self.settle()? - before;
        let mut setup = Setup { ns, passes: 0, packets, retries: 0, is_detour: false };
        for host in [&self.client, &self.server] {
            for flow in host.flows()? {
                setup.retries += flow["setup_retries"].as_u64().unwrap_or(0);
                setup.is_detour |= flow["detour"].as_bool().unwrap_or(false);
            }
        }
        for (app, connection) in [
            (&mut self.client.apps[from], connection),
            (&mut self.server.apps[to], accepted.connection),
        ] {
            app.close(connection).map_err(io::Error::other).while_("closing a connection")?;
        }
        Ok(setup)
    }

    fn rekey(&mut self) -> Result<(), Error> {
        self.settle()?;
        self.fabric.tell("rekey\n")
    }
}

impl Host {
    fn start(
        directory: &Path,
        name: &str,
        address: &'static str,
        engines: usize,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let config = directory.join(format!("{name}.toml"));
        let socket = directory.join(format!("{name}.sock"));
        let text = format!(
            "{STAYS_ROOT}[control]\nsocket = {socket:?}\n\n[log]\nlevel = \"error\"\n\n\
             [[nic]]\nname = \"nic\"\ndriver = \"memif\"\nrole = \"client\"\n\
             socket = {:?}\nqueue_pairs = {engines}\nengines = {engines}\n\
             addresses = [\"{address}/24\"]\n",
            memif(directory, name)
        );
        std::fs::write(&config, text).while_("writing a configuration")?;
        let arguments = vec!["daemon".into(), "--config".into(), config.display().to_string()];
        let mut process = become_clearway(&format!("the daemon of the {name}"), arguments)?;
        let attach = |engine: usize| {
            let engine = Some(if engines == 1 { "nic".into() } else { format!("nic/{engine}") });
            let (socket, sizes) = (socket.clone(), SIZES);
            let options = Options { socket, engine, sizes, ..Options::new("bench") };
            Channel::attach(&options).map_err(io::Error::other).while_("attaching an app")
        };
        process.await_condition(PATIENCE, interrupt, || attach(0).is_ok())?;
        let apps = (0..engines).map(attach).collect::<Result<_, _>>()?;
        Ok(Self { socket, address, apps, _process: process })
    }

    /// The link may still be coming up.
    fn connect(&mut self, from: usize, peer: SocketAddr) -> Result<ConnectionId, Error> {
        let connected = self.apps[from].connect(peer, Some(PATIENCE));
        connected.map_err(io::Error::other).while_("opening a connection")
    }

    /// The open flows of its engines, as `clearway status` shows them.
    fn flows(&self) -> Result<Vec<Value>, Error> {
        let output = Command::new(own_program())
            .args(["status", "--json", "--socket"])
            .arg(&self.socket)
            .output()
            .while_("asking a daemon for its status")?;
        let status: Value = serde_json::from_slice(&output.stdout)
            .map_err(io::Error::from)
            .while_("reading the status of a daemon")?;
        let engines = status["engines"].as_array().into_iter().flatten();
        let flows = engines.filter_map(|engine| engine["flows"].as_array()).flatten();
        // Those of earlier set-ups may linger.
        Ok(flows.filter(|flow| flow["state"] == "open").cloned().collect())
    }
}

fn memif(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.memif"))
}

/// Starts this program again with other arguments.
fn become_clearway(who: &str, arguments: Vec<String>) -> Result<RoleProcess, Error> {
    RoleProcess::start(who, &Role::new(Part::Become { program: own_program(), arguments }))
}
