//! `clearway demo --tcp`: a web server on Clearway's TCP, and the same server on the kernel's
//! sockets, asked by curl and wrk from the kernel's side of a veth pair.
//!
//! ```text
//!  namespace of the client        namespace of the server
//!  wrk, curl on kernel TCP ─veth─ daemon as it ships ◀─▶ Server<Clearway>   or else
//!                                 the kernel          ◀─▶ Server<Sockets>
//! ```
//! The server is one thread with one loop (`server`). It knows requests and answers (`answer`), not
//! what carries them (`clearway`, `sockets`). Every sample has processes of its own (`run`): while
//! the kernel's is taken there is no daemon. First curl compares what each server sends.

mod answer;
mod clearway;
mod report;
mod run;
mod server;
mod sockets;
#[cfg(feature = "smoltcp")]
mod stack;
mod tools;

use crate::arguments::{Idle, Wire, whole};
use crate::cpu::Cores;
use crate::error::Error;
use crate::host::Nic;
use crate::interrupt::Interrupt;
use crate::namespace;
use crate::progress::Progress;
use crate::samples::Samples;
use crate::table::print_report;
use crate::veth::VethPair;
pub use report::{HttpCell, HttpFigures, HttpFound, HttpRatio, HttpReport};
pub(crate) use run::ServerRole;
use run::{Load, Stage};
use serde::Serialize;

/// The web server on TCP: the part of the command line that is only for it.
#[derive(clap::Args, Clone, Debug)]
pub struct HttpOptions {
    /// Show TCP instead: a web server that curl and wrk ask from the kernel's side of a veth pair,
    /// beside the same server on the kernel's sockets. Needs root, curl and wrk
    #[arg(long)]
    pub tcp: bool,
    /// Bytes of the answers' bodies
    #[arg(long, requires = "tcp", value_delimiter = ',', default_value = "64,1024,4096,8192",
        value_parser = whole(0..=answer::BODY_BYTES_MAX))]
    pub body: Vec<usize>,
    /// Connections at a time, with a request at a time each
    #[arg(long, requires = "tcp", value_delimiter = ',', default_value = "1,16,200",
        value_parser = whole(1..=CONNECTIONS_MAX))]
    pub connections: Vec<usize>,
    /// The driver of Clearway's end of the veth pair: veth, which is what daemons choose there,
    /// af-xdp or af-packet
    #[arg(long, requires = "tcp", value_enum, default_value = "veth")]
    pub wire: Wire,
    /// How often each server is measured; the report gives medians
    #[arg(long, requires = "tcp", default_value_t = 3, value_parser = whole(1..=99))]
    pub runs: usize,
    /// Print JSON instead of a table
    #[arg(long, requires = "tcp")]
    pub json: bool,
}

/// A daemon gives an app 4,096 unless told otherwise, and wrk opens this many descriptors.
const CONNECTIONS_MAX: usize = 1000;
/// What every Ethernet carries.
const MTU: u16 = 1500;
/// What curl asks for before anything is measured.
const CHECKED_BYTES: [usize; 4] = [0, 64, 8192, answer::BODY_BYTES_MAX];

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Servers {
    /// On the TCP of a daemon.
    Clearway,
    /// On the kernel's sockets, with epoll.
    Kernel,
    /// On the crate smoltcp, which shares its thread.
    #[cfg(feature = "smoltcp")]
    Smoltcp,
}

impl Servers {
    /// In the order of each round.
    const fn taking_part(kernel_only: bool) -> &'static [Self] {
        if kernel_only {
            return &[Self::Kernel];
        }
        &[
            Self::Clearway,
            Self::Kernel,
            #[cfg(feature = "smoltcp")]
            Self::Smoltcp,
        ]
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Clearway => "Clearway",
            Self::Kernel => "the kernel",
            #[cfg(feature = "smoltcp")]
            Self::Smoltcp => "smoltcp",
        }
    }
}

impl HttpOptions {
    /// Measures for `seconds` at a time, and prints.
    pub(crate) fn execute(&self, seconds: f64, kernel_only: bool) -> Result<(), Error> {
        self.check()?;
        let interrupt = Interrupt::catch()?;
        let report = self.measure(whole_seconds(seconds), kernel_only, &interrupt)?;
        print_report(self.json, &report, || report.text())
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |message: &str| Err(Error::Options(message.into()));
        if !rustix::process::geteuid().is_root() || !namespace::is_of_the_machine() {
            return refuse(
                "demo --tcp makes network namespaces, and has Clearway's TCP take its ports from \
                 the kernel there, which only root may; run it as root, or `clearway demo` \
                 without --tcp",
            );
        }
        if !matches!(self.wire, Wire::Veth | Wire::AfXdp | Wire::AfPacket) {
            return refuse(
                "the client of demo --tcp is the kernel, at the other end of a veth pair; use \
                 --wire veth, af-xdp or af-packet",
            );
        }
        tools::check()
    }

    fn measure(
        &self,
        seconds: u64,
        kernel_only: bool,
        interrupt: &Interrupt,
    ) -> Result<HttpReport, Error> {
        let servers = Servers::taking_part(kernel_only);
        let loads = self.loads(seconds);
        let progress = Progress::new(servers.len() * (1 + loads.len() * self.runs));
        let veth = VethPair::create(MTU, interrupt)?;
        let nic = Nic { wire: self.wire, idle: Idle::Adaptive, mtu_bytes: MTU };
        let stage = Stage { veth: &veth, nic, interrupt };
        for server in servers {
            progress.next(&format!("what {} serves, compared by curl", server.name()));
            stage.compare(*server, &CHECKED_BYTES)?;
            progress.done();
        }
        let cells = loads.iter().map(|load| self.cell(load, servers, &stage, &progress));
        let cells = cells.collect::<Result<_, Error>>()?;
        Ok(HttpReport { wire: self.wire, mtu_bytes: MTU, seconds, runs: self.runs, cells })
    }

    fn loads(&self, seconds: u64) -> Vec<Load> {
        let of_body = |&body_bytes: &usize| {
            let load = move |&connections: &usize| Load { body_bytes, connections, seconds };
            self.connections.iter().map(load)
        };
        self.body.iter().flat_map(of_body).collect()
    }

    /// All samples of one place of the table, the servers in turn.
    fn cell(
        &self,
        load: &Load,
        servers: &[Servers],
        stage: &Stage<'_>,
        progress: &Progress,
    ) -> Result<HttpCell, Error> {
        let mut samples = Samples::new(Cores::choose(), servers.iter().copied());
        for _ in 0..self.runs {
            for &server in servers {
                let Load { body_bytes, connections, .. } = load;
                let name = server.name();
                progress.next(&format!("{body_bytes} B at {connections} connections: {name}"));
                samples.take(server, || stage.sample(server, load))?;
                progress.done();
            }
        }
        let (body_bytes, connections) = (load.body_bytes, load.connections);
        Ok(HttpCell { body_bytes, connections, summary: samples.sum_up(HttpFound::of) })
    }
}

/// wrk knows no others.
fn whole_seconds(seconds: f64) -> u64 {
    seconds.ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests;
