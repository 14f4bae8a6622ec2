//! The command line of `clearway bench`, and the checked plan that comes out of it.

use crate::apps::Exchange;
use crate::c_app::{self, Language};
use crate::contender::Contender;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::{Load, Workload};
use crate::namespace;
use crate::progress::Progress;
use crate::remote::Remote;
use crate::report::Report;
use crate::suite;
use crate::table::{print_report, report_text};
use clap::ValueEnum;
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Measure Clearway beside the kernel's TCP, UDP and Unix sockets, in one run.
#[derive(clap::Args, Clone, Debug)]
pub struct Command {
    /// rtt: one message at a time, echoed. rate: `--window` messages at a time, echoed.
    /// stream: one way, `--window` messages at a time, acknowledged by 8 bytes each.
    #[arg(value_enum)]
    pub workload: Option<Workload>,
    /// Where the other host is, if it is not one of this command's own making
    #[command(flatten)]
    pub remote: Remote,
    /// What joins the two Clearway hosts; `local`: two apps of one host.
    #[arg(long, value_enum, default_value = "memif")]
    pub wire: Wire,
    /// Bytes per message; with `--to`, several sizes if you like. [default: 64]
    #[arg(long, value_delimiter = ',', value_parser = whole(0..=MESSAGE_BYTES_MAX))]
    pub size: Vec<usize>,
    /// Messages in flight, of each connection. [default: 1 for rtt, 32 for rate, 8 for stream]
    #[arg(long, value_parser = whole(1..=WINDOW_MAX))]
    pub window: Option<usize>,
    /// unpinned: two daemons and two apps, each a process of its own, on whatever cores the kernel
    /// chooses: what ships. The kernel's contenders are not pinned either. hosts: the client's app
    /// and engine share one core, the server's another. paired: both apps in one process on one
    /// core, both engines on another. embedded: without daemons; the client's engine is in its
    /// app's thread, the server's in its own.
    #[arg(long, value_enum, default_value = "unpinned")]
    pub layout: Layout,
    /// What Clearway's apps and engines do when there is nothing to do.
    /// [default: adaptive when unpinned or hosts, else spin]
    #[arg(long, value_enum)]
    pub idle: Option<Idle>,
    /// What Clearway's apps are: a C program with the C library, or this program, with the Rust
    /// library. [default: c where each app is a process with a daemon and one connection, and no
    /// --tcp, if the program is there; else rust]
    #[arg(long, value_enum)]
    pub app: Option<Language>,
    /// The C program. [default: clearway-bench-app beside this program]
    #[arg(long, hide = true)]
    pub c_app: Option<PathBuf>,
    /// Clearway's apps speak TCP with each other, everything that is pending in one call.
    #[arg(long)]
    pub tcp: bool,
    /// Clearway's apps with `--tcp` besides in a way that copies nothing: each message is filled in
    /// and read where the engine has it. For `stream`.
    #[arg(long, requires = "tcp")]
    pub in_place: bool,
    /// With `--tcp` over a veth pair: which of Clearway's two apps is one of the kernel's instead,
    /// at a host without Clearway.
    #[arg(long, value_enum, requires = "tcp")]
    pub kernel_end: Option<KernelEnd>,
    /// What to compare with.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp,udp,unix")]
    pub compare: Vec<Compare>,
    /// Seconds per contender and run, warm-up not counted. Short, so that the machine stays as it
    /// is meanwhile
    #[arg(long, default_value_t = SECONDS, value_parser = seconds)]
    pub seconds: f64,
    /// How often each contender runs; the report gives medians. [default: 9; 3 with `--to`]
    #[arg(long, value_parser = whole(1..=RUNS_MAX))]
    pub runs: Option<usize>,
    /// Largest IP packet on the wire. [default: 33000 for memif, 1500 for veth]
    #[arg(long)]
    pub mtu: Option<u16>,
    /// The kernel's contenders have what Clearway has over memif: the same largest packet, and
    /// nobody who cuts, joins or sums up packets for them (the veth pair's offloads are off).
    #[arg(long)]
    pub kernel_plain: bool,
    /// Measure only what the kernel does here, without Clearway.
    #[arg(long)]
    pub kernel_only: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// How long contenders are measured, and how often.
#[derive(clap::Args, Clone, Copy, Debug, Serialize)]
pub(crate) struct Timing {
    /// Seconds per contender and run, warm-up not counted. Short, so that the machine stays as it
    /// is meanwhile
    #[arg(long, default_value_t = SECONDS, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often each contender runs; the report gives medians
    #[arg(long, default_value_t = RUNS, value_parser = whole(1..=RUNS_MAX))]
    pub(crate) runs: usize,
}

const SECONDS: f64 = 0.3;
const RUNS: usize = 9;
const SIZE: usize = 64;
/// More are not more exact.
const RUNS_MAX: usize = 99;

/// A number within bounds.
pub(crate) fn whole(range: RangeInclusive<usize>) -> impl TypedValueParser<Value = usize> {
    let (least, most) = (*range.start() as u64, *range.end() as u64);
    RangedU64ValueParser::<usize>::new().range(least..=most)
}

/// For how long something is measured.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("choose 0.05 to 3600".into()),
    }
}

/// What joins two Clearway hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Shared-memory Ethernet between two daemons; no privilege needed.
    Memif,
    /// A veth pair between two network namespaces, by the driver that daemons choose there unless
    /// told otherwise; needs root.
    Veth,
    /// `AF_XDP` on such a pair.
    AfXdp,
    /// `AF_PACKET` on such a pair.
    AfPacket,
    /// The kernel's UDP sockets, which need no privilege, on such a pair.
    Udp,
    /// None: both apps are attached to one daemon.
    Local,
}

impl Wire {
    /// Whether it is a veth pair between two network namespaces.
    pub(crate) const fn is_veth(self) -> bool {
        matches!(self, Self::Veth | Self::AfXdp | Self::AfPacket | Self::Udp)
    }
}

/// Which process runs on which core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Daemons and apps are processes of their own, and nothing is pinned.
    Unpinned,
    /// Both apps in turn on one core, both engines in turn on the other.
    Paired,
    /// Client app and engine on one core, server app and engine on the other.
    Hosts,
    /// Client app and engine in one thread on one core, those of the server in one on the other.
    Embedded,
}

impl Layout {
    /// Whether each process has a core that it may not leave.
    pub(crate) const fn is_pinned(self) -> bool {
        !matches!(self, Self::Unpinned)
    }
}

/// What to do when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Look again at once.
    Spin,
    /// Let others on this core run first.
    Yield,
    /// Sleep until woken.
    Block,
    /// What daemons and apps do unless told otherwise.
    Adaptive,
}

/// One of two apps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelEnd {
    /// Who sends.
    Client,
    /// Who answers.
    Server,
}

/// A family of contenders of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// `tcp_spin`, `tcp_block`, and `tcp_batch` for windows over 1.
    Tcp,
    /// `udp_spin`.
    Udp,
    /// `unix_spin`.
    Unix,
}

/// What is to be measured: the command with its defaults filled in and its contradictions refused.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workload that every contender gets.
    pub load: Load,
    /// What joins the Clearway hosts.
    pub wire: Wire,
    /// Where Clearway's processes run.
    pub layout: Layout,
    /// What Clearway's processes do when idle.
    pub idle: Idle,
    /// What the server's app does when idle.
    pub(crate) server_idle: Idle,
    /// How Clearway's apps exchange messages.
    pub(crate) exchange: Exchange,
    /// The program that Clearway's apps are, if not this one.
    pub(crate) c_app: Option<PathBuf>,
    /// Which of them is the kernel's.
    pub kernel_end: Option<KernelEnd>,
    /// Largest IP packet on the Clearway wire.
    pub mtu: u16,
    /// The kernel's contenders have that, too, and no offloads.
    pub(crate) kernel_plain: bool,
    /// Who takes part, in the order of each round.
    pub contenders: Vec<Contender>,
    /// Rounds.
    pub runs: usize,
    /// What the reader of the report has to know.
    pub notes: Vec<String>,
}

/// What two daemons agree on over memif.
pub(crate) const MTU_OF_MEMIF: u16 = 33_000;
/// The largest message that Clearway carries.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// More in flight than this measures queues only.
const WINDOW_MAX: usize = 4096;

impl Plan {
    /// How many measurements there will be.
    pub(crate) fn steps(&self) -> usize {
        self.runs * self.contenders.len()
    }
}

impl Command {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        if let Some(done) = self.remote.execute(self) {
            return done;
        }
        if self.wire.is_veth() {
            namespace::enter();
        }
        let report = self.measure(&Interrupt::catch()?)?;
        print_report(self.json, &report, || report_text(&report))
    }

    /// Measures only.
    pub fn measure(&self, interrupt: &Interrupt) -> Result<Report, Error> {
        let plan = self.plan()?;
        suite::run(&plan, interrupt, &Progress::new(plan.steps()))
    }

    /// Fills in the defaults and refuses contradictions.
    pub fn plan(&self) -> Result<Plan, Error> {
        self.check()?;
        let Some(workload) = self.workload else {
            let message = "nothing to measure; write rtt, rate, stream, classify, isolation, \
                           engines, flight, threads, transport, vif, connect, ops or \
                           instructions, or --to or --serve";
            return Err(Error::Options(message.into()));
        };
        let size = match self.size[..] {
            [] => SIZE,
            [size] => size,
            _ => return Err(Error::Options("several sizes are measured with --to only".into())),
        };
        let connections = match self.remote.connections[..] {
            [] => 1,
            [connections] => connections,
            _ => {
                let message = "several numbers of connections are measured with --to only";
                return Err(Error::Options(message.into()));
            }
        };
        let load = self.load(workload, size, connections)?;
        let idle = self.idle.unwrap_or(match self.layout {
            Layout::Paired | Layout::Embedded => Idle::Spin,
            Layout::Unpinned | Layout::Hosts => Idle::Adaptive,
        });
        let (mut contenders, mut notes) = Contender::of_kernel(&self.compare, &load);
        if self.kernel_only && contenders.is_empty() {
            let message = format!("nothing is left to be measured: {}", notes.join("; "));
            return Err(Error::Options(message));
        }
        let c_app = self.c_app(&mut notes)?;
        if !self.kernel_only {
            let tcp = self.tcp;
            contenders.insert(0, if tcp { Contender::ClearwayTcp } else { Contender::Clearway });
            if self.in_place {
                contenders.insert(1, Contender::ClearwayTcpInPlace);
            }
        }
        let mtu = self.mtu.unwrap_or(if self.wire.is_veth() { 1500 } else { MTU_OF_MEMIF });
        let (wire, layout, runs) = (self.wire, self.layout, self.runs.unwrap_or(RUNS));
        let exchange = if self.tcp { Exchange::Tcp } else { Exchange::Messages };
        Ok(Plan {
            load,
            wire,
            layout,
            idle,
            server_idle: idle,
            exchange,
            c_app,
            kernel_end: self.kernel_end,
            mtu,
            kernel_plain: self.kernel_plain,
            contenders,
            runs,
            notes,
        })
    }

    /// The C program that Clearway's apps are to be, if they are.
    fn c_app(&self, notes: &mut Vec<String>) -> Result<Option<PathBuf>, Error> {
        if self.app == Some(Language::Rust) || self.kernel_only || !self.may_be_c() {
            return Ok(None);
        }
        let program = self.c_app.clone().or_else(c_app::find);
        match (program, self.app) {
            (None, Some(_)) => Err(c_app::not_built()),
            (None, None) => {
                notes.push(
                    "Clearway's apps use the Rust library; `make build` makes the C program that \
                     they are else"
                        .into(),
                );
                Ok(None)
            }
            (program, _) => Ok(program),
        }
    }

    /// Whether apps are processes of their own that exchange messages through a daemon, by one
    /// connection.
    fn may_be_c(&self) -> bool {
        self.is_of_processes() && !self.tcp && !self.has_many()
    }

    fn is_of_processes(&self) -> bool {
        matches!(self.layout, Layout::Unpinned | Layout::Hosts)
    }

    /// Whether apps have several connections.
    fn has_many(&self) -> bool {
        self.remote.connections.iter().any(|connections| *connections > 1)
    }

    /// A workload as the command has it.
    pub(crate) fn load(
        &self,
        workload: Workload,
        size: usize,
        connections: usize,
    ) -> Result<Load, Error> {
        let window = self.window.unwrap_or(workload.window_default());
        if workload == Workload::Rtt && window != 1 {
            let message = "rtt has one message in flight; use `rate` for a --window";
            return Err(Error::Options(message.into()));
        }
        Ok(Load { workload, size, window, connections, seconds: self.seconds })
    }

    fn check(&self) -> Result<(), Error> {
        self.check_for_use()?;
        let refuse = |message: &str| Err(Error::Options(message.into()));
        if self.layout == Layout::Paired && self.idle.is_some_and(|idle| idle != Idle::Spin) {
            return refuse(
                "paired apps and engines have their cores to themselves and spin; use --layout \
                 hosts or unpinned for another --idle",
            );
        }
        if self.layout == Layout::Embedded && !matches!(self.wire, Wire::Memif | Wire::Udp) {
            return refuse(
                "--layout embedded has an engine in each app, and memif or UDP sockets between \
                 them; use --wire memif or udp",
            );
        }
        if self.app == Some(Language::C) && !self.may_be_c() {
            return refuse(
                "--app c is for apps that exchange messages by one connection, each in a process \
                 with a daemon; use --layout unpinned or hosts, without --tcp and --connections",
            );
        }
        if self.has_many() && (self.tcp || !self.is_of_processes()) {
            return refuse(
                "--connections is for apps that exchange messages, each in a process with a \
                 daemon; use --layout unpinned or hosts, and not --tcp",
            );
        }
        if self.in_place && self.workload != Some(Workload::Stream) {
            return refuse(
                "--in-place looks at the beginning of each message only, and so can echo none; \
                 use stream",
            );
        }
        if self.kernel_plain && self.wire.is_veth() {
            return refuse(
                "--kernel-plain switches the offloads of the kernel's veth pair off, which \
                 Clearway shares with --wire veth, af-xdp, af-packet and udp; use --wire memif",
            );
        }
        if self.kernel_plain && !rustix::process::geteuid().is_root() {
            return refuse(
                "--kernel-plain changes a veth pair, and the kernel's contenders have one only \
                 for root; run it as root",
            );
        }
        if self.tcp && self.wire == Wire::Udp {
            return refuse("TCP needs frames, and --wire udp carries messages only; use another");
        }
        if self.kernel_end.is_some() && !(self.wire.is_veth() && self.is_of_processes()) {
            return refuse(
                "--kernel-end is a host without Clearway at the other end of a veth pair; use \
                 --wire veth, af-xdp or af-packet, and --layout unpinned or hosts",
            );
        }
        if self.wire.is_veth() && !self.kernel_only && !rustix::process::geteuid().is_root() {
            return refuse(
                "--wire veth, af-xdp, af-packet and udp make network namespaces, which on this \
                 machine only root may; use --wire memif",
            );
        }
        if self.wire == Wire::AfXdp && !self.kernel_only && !namespace::is_of_the_machine() {
            return refuse(
                "AF_XDP's eBPF program may be loaded by the machine's root only; use --wire \
                 af-packet or udp",
            );
        }
        Ok(())
    }

    /// Refuses what nothing would become of.
    fn check_for_use(&self) -> Result<(), Error> {
        let refuse = |message: &str| Err(Error::Options(message.into()));
        if self.remote.socket.is_some() {
            return refuse(
                "--socket is that of a daemon that runs, and this starts its own; use it with \
                 --to or --serve",
            );
        }
        if self.kernel_only && (self.idle.is_some() || self.app.is_some() || self.tcp) {
            return refuse(
                "--idle, --app and --tcp are of Clearway, which --kernel-only leaves out; leave \
                 out one or the other",
            );
        }
        let has_packets = match self.wire {
            Wire::Local => self.tcp && !self.kernel_only,
            Wire::Memif => !self.kernel_only,
            Wire::Veth | Wire::AfXdp | Wire::AfPacket | Wire::Udp => true,
        };
        if self.mtu.is_some() && !has_packets && !self.kernel_plain {
            return refuse(
                "--mtu is of Clearway's wire, which messages between apps of one host do not \
                 take, and which --kernel-only leaves out; leave out --mtu",
            );
        }
        Ok(())
    }
}
