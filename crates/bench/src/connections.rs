//! `clearway bench connections`: what TCP connections cost that carry nothing. How many are opened
//! and closed in a second, beside the kernel's over loopback; and what many idle ones cost: memory,
//! and the time of the one that is active.
//!
//! ```text
//!  client app ─ daemon ═ memif ═ daemon ─ server app     or else     client ─ loopback ─ server
//! ```
//! Daemons and apps are processes of their own, as they ship. Nothing is pinned, but for the echo
//! beside idle connections: client and its daemon share a core, server and its daemon another, so
//! that what is measured is not where the kernel puts them. A connection is opened by the client
//! and closed by the server as soon as it comes; it counts when the client has seen that and let go
//! of it as well. `job` is what the apps do, `report` what comes out.

mod job;
mod report;

use crate::arguments::{Idle, Layout, Timing, Wire, whole};
use crate::clearway::daemon;
use crate::cpu::{Cores, Pins};
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::host::{HostFiles, Nic};
use crate::interrupt::Interrupt;
use crate::kernel::START_PATIENCE;
use crate::process::{Event, RoleProcess};
use crate::progress::Progress;
use crate::role::{Part, Role};
use crate::samples::Samples;
use crate::table::print_report;
pub(crate) use job::Job;
use job::{PER_PORT, Side};
use report::{Held, Report};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// As many as one engine has room for, and some for those that are ending.
const HELD_MAX: usize = 120_000;
/// As many as one app has under way.
const IN_FLIGHT_MAX: usize = 1024;
/// Largest packet, as memif has it unless told otherwise.
const MTU: u16 = 1500;
/// How long opening all connections may take.
const OPENING_PATIENCE: Duration = Duration::from_secs(120);

/// TCP connections opened and closed per second, and the cost of idle ones
#[derive(clap::Args, Clone, Debug)]
pub struct ConnectionsCommand {
    /// Connections that are opened at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,32",
        value_parser = whole(1..=IN_FLIGHT_MAX))]
    in_flight: Vec<usize>,
    /// Idle connections beside an active one; 0: leave that out.
    #[arg(long, default_value_t = 100_000, value_parser = whole(0..=HELD_MAX))]
    held: usize,
    #[command(flatten)]
    timing: Timing,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Whose connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Clearway,
    Kernel,
}

/// Two hosts, and the daemons of both.
struct Hosts {
    client: HostFiles,
    server: HostFiles,
    daemons: Vec<RoleProcess>,
    _directory: Directory,
}

impl ConnectionsCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let report = self.measure(&Interrupt::catch()?)?;
        print_report(self.json, &report, || report.text())
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<Report, Error> {
        let Timing { seconds, runs } = self.timing;
        let holds = usize::from(self.held > 0);
        let progress = Progress::new(2 * runs * self.in_flight.len() + holds);
        let mut opened = Vec::new();
        for &in_flight in &self.in_flight {
            let mut samples = Samples::new(Cores::choose(), [Who::Clearway, Who::Kernel]);
            for who in std::iter::repeat_n([Who::Clearway, Who::Kernel], runs).flatten() {
                progress.next(&format!("{in_flight} opened at a time: {who:?}"));
                samples.take(who, || open_and_close(who, in_flight, seconds, interrupt))?;
                progress.done();
            }
            opened.push((in_flight, samples.sum_up(report::Opened::of)));
        }
        let mut held = None;
        if self.held > 0 {
            progress.next(&format!("{} idle connections", self.held));
            held = Some(hold(self.held, seconds * runs as f64, interrupt)?);
            progress.done();
        }
        Ok(Report::new(self.timing, opened, held))
    }
}

/// Connections per second.
fn open_and_close(
    who: Who,
    in_flight: usize,
    seconds: f64,
    interrupt: &Interrupt,
) -> Result<f64, Error> {
    match who {
        Who::Kernel => {
            let at = SocketAddr::from(([127, 0, 0, 1], 0));
            open_and_close_between([Side::Kernel, Side::Kernel], at, in_flight, seconds, interrupt)
        }
        Who::Clearway => {
            let hosts = Hosts::start(in_flight, Cores::choose().pins(Layout::Unpinned), interrupt)?;
            let sides = [hosts.client.socket.clone(), hosts.server.socket.clone()];
            let (sides, at) = (sides.map(Side::Clearway), hosts.server.address);
            open_and_close_between(sides, at, in_flight, seconds, interrupt)
        }
    }
}

fn open_and_close_between(
    [client, server]: [Side; 2],
    at: SocketAddr,
    in_flight: usize,
    seconds: f64,
    interrupt: &Interrupt,
) -> Result<f64, Error> {
    let (_server, to) = start_server(Job::Close { side: server, at }, None, interrupt)?;
    let job = Job::Open { side: client, to, in_flight, seconds };
    let mut client = RoleProcess::start("the client", &Role::new(Part::Connections(job)))?;
    match client.event(START_PATIENCE + 2 * Duration::from_secs_f64(seconds), interrupt)? {
        Event::Counted { frames, seconds } => Ok(frames as f64 / seconds),
        other => Err(unexpected(&other)),
    }
}

/// Opens `count` connections beside one, and measures that one before and after.
fn hold(count: usize, seconds: f64, interrupt: &Interrupt) -> Result<Held, Error> {
    let pins = Cores::choose().pins(Layout::Hosts);
    let hosts = Hosts::start(count, pins, interrupt)?;
    let (at, socket) = (hosts.server.address, hosts.server.socket.clone());
    let ports = count.div_ceil(PER_PORT) as u16;
    let (server, to) = start_server(Job::Echo { socket, at, ports }, pins.server, interrupt)?;
    let job = Job::Hold { socket: hosts.client.socket.clone(), to, count, seconds };
    let role = Role::new(Part::Connections(job)).on_core(pins.client);
    let mut client = RoleProcess::start("the client", &role)?;
    let of_daemon = hosts.daemons[0].id();
    let memory = || -> Result<[u64; 2], Error> {
        let bytes = [of_daemon, server.id()].map(report::anonymous_bytes);
        let [daemon, app] = bytes.map(|bytes| bytes.while_("reading how much memory there is"));
        Ok([daemon?, app?])
    };
    let patience = OPENING_PATIENCE + Duration::from_secs_f64(seconds);
    let alone_ns = finished(client.event(patience, interrupt)?)?;
    let before = memory()?;
    client.tell("\n")?;
    client.ready(OPENING_PATIENCE, interrupt)?;
    let after = memory()?;
    client.tell("\n")?;
    let beside_ns = finished(client.event(patience, interrupt)?)?;
    let [daemon_bytes, app_bytes] =
        [0, 1].map(|at: usize| after[at].saturating_sub(before[at]) / count as u64);
    Ok(Held { count, daemon_bytes, app_bytes, alone_ns, beside_ns })
}

fn start_server(
    job: Job,
    core: Option<usize>,
    interrupt: &Interrupt,
) -> Result<(RoleProcess, SocketAddr), Error> {
    let role = Role::new(Part::Connections(job)).on_core(core);
    let mut server = RoleProcess::start("the server", &role)?;
    let address = server.ready(START_PATIENCE, interrupt)?;
    let address = address.parse().map_err(|_| unexpected(&Event::Ready(address)))?;
    Ok((server, address))
}

fn finished(event: Event) -> Result<u64, Error> {
    match event {
        Event::Finished(sample) => Ok(sample.p50_ns),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(event: &Event) -> Error {
    Error::Role { who: "an app".into(), message: format!("said {event:?}") }
}

impl Hosts {
    /// Two daemons whose apps may have so many connections and some more.
    fn start(connections: usize, pins: Pins, interrupt: &Interrupt) -> Result<Self, Error> {
        let directory = Directory::create().while_("making a directory for sockets")?;
        let nic = Nic { wire: Wire::Memif, idle: Idle::Adaptive, mtu_bytes: MTU };
        let limits = format!(
            "\n[policy.limits]\nconnections_per_channel = {}\n",
            connections + IN_FLIGHT_MAX
        );
        let files = |name, core| -> std::io::Result<HostFiles> {
            let files = HostFiles::write(&directory, name, &nic, core)?;
            OpenOptions::new().append(true).open(&files.config)?.write_all(limits.as_bytes())?;
            Ok(files)
        };
        let server = files("server", pins.server).while_("writing a configuration")?;
        let client = files("client", pins.client).while_("writing a configuration")?;
        let daemons = vec![
            daemon(&server, pins.server, None, interrupt)?,
            daemon(&client, pins.client, None, interrupt)?,
        ];
        Ok(Self { client, server, daemons, _directory: directory })
    }
}
