//! The command line of `clearway bench classify`.

use crate::arguments::whole;
use crate::error::Error;
use std::path::PathBuf;

/// Measure Clearway beside the kernel's TCP, UDP and Unix sockets, in one run
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchCommand {
    #[command(subcommand)]
    pub(super) special: Option<Special>,
    #[command(flatten)]
    pub(super) messages: crate::Command,
}

/// What is measured other than messages.
#[derive(clap::Subcommand, Clone, Debug)]
pub(super) enum Special {
    Classify(ClassifyCommand),
    Isolation(crate::IsolationCommand),
    Engines(crate::EnginesCommand),
    Flight(crate::FlightCommand),
    Threads(crate::ThreadsCommand),
    Transport(crate::TransportCommand),
    Vif(crate::VifCommand),
    Connect(crate::ConnectCommand),
    Connections(crate::ConnectionsCommand),
    Ops(crate::OpsCommand),
    Instructions(crate::InstructionsCommand),
}

impl BenchCommand {
    /// The socket of the local daemon, if it was given.
    #[must_use]
    pub fn socket(&self) -> Option<&std::path::Path> {
        self.messages.remote.socket.as_deref()
    }

    /// Runs what is asked for and prints the report.
    pub fn execute(&self) -> Result<(), Error> {
        match &self.special {
            Some(Special::Classify(command)) => command.execute(),
            Some(Special::Isolation(command)) => command.execute(),
            Some(Special::Engines(command)) => command.execute(),
            Some(Special::Flight(command)) => command.execute(),
            Some(Special::Threads(command)) => command.execute(),
            Some(Special::Transport(command)) => command.execute(),
            Some(Special::Vif(command)) => command.execute(),
            Some(Special::Connect(command)) => command.execute(),
            Some(Special::Connections(command)) => command.execute(),
            Some(Special::Ops(command)) => command.execute(),
            Some(Special::Instructions(command)) => command.execute(),
            None => self.messages.execute(),
        }
    }
}

/// Find the owners of packets: the tables of VIFs over ClassBench rule files
///
/// What belongs to one of --sets, --rules, --exact and --generate cannot be used with another.
#[derive(clap::Args, Clone, Debug)]
pub struct ClassifyCommand {
    /// A directory of rule files, all of which are measured, and the paper's evaluation printed.
    #[arg(long, conflicts_with_all = ["rules", "exact"])]
    sets: Option<PathBuf>,
    /// The program of bench/classify: librte_acl is measured beside, in the same run.
    #[arg(long, requires = "sets", conflicts_with_all = ["rules", "exact", "generate"])]
    aclbench: Option<PathBuf>,
    /// A directory to write the plots to, as SVG.
    #[arg(long, requires = "sets", conflicts_with_all = ["rules", "exact", "generate"])]
    plots: Option<PathBuf>,
    /// A rule file: `@source/length destination/length low : high low : high protocol/mask`, one
    /// rule a line; the first that matches wins.
    #[arg(long, conflicts_with = "exact")]
    rules: Option<PathBuf>,
    /// Headers: source, destination, ports, protocol and first match, decimal, tab-separated.
    /// [default: ten headers per rule, made as aclbench makes them]
    #[arg(long, requires = "rules", conflicts_with_all = ["sets", "exact", "generate"])]
    trace: Option<PathBuf>,
    /// Only this table: linear, adaptive, tuple or production. [default: all]
    #[arg(
        long,
        value_parser = super::outcome::TABLES,
        conflicts_with_all = ["exact", "generate"]
    )]
    table: Option<String>,
    /// Print a rule file of this shape: acl1 to acl5, fw1 to fw5, ipc1 and ipc2 as ClassBench's
    /// seeds are, or nested, ranges, anysource, fewmasks, manymasks and hot, which are meant to
    /// hurt.
    #[arg(long, conflicts_with_all = ["sets", "rules", "exact", "json"])]
    generate: Option<String>,
    /// As many rules.
    #[arg(
        long,
        requires = "generate",
        conflicts_with_all = ["sets", "rules", "exact"],
        default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    count: u32,
    /// Another seed makes other rules.
    #[arg(
        long,
        requires = "generate",
        conflicts_with_all = ["sets", "rules", "exact"],
        default_value_t = 1
    )]
    seed: u64,
    /// As many connections, each with a rule of its own.
    #[arg(long)]
    exact: Option<usize>,
    /// As many patterns besides.
    #[arg(
        long,
        requires = "exact",
        conflicts_with_all = ["sets", "rules", "generate"],
        default_value_t = 1000,
        value_parser = whole(0..=PATTERNS_MAX)
    )]
    patterns: usize,
    /// Print JSON instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Task {
    Sets {
        directory: PathBuf,
        aclbench: Option<PathBuf>,
        plots: Option<PathBuf>,
        only: Option<&'static str>,
    },
    Generate {
        shape: String,
        count: u32,
        seed: u64,
    },
    One {
        rules: PathBuf,
        trace: Option<PathBuf>,
        only: Option<&'static str>,
    },
    Exact {
        connections: usize,
        patterns: usize,
    },
}

/// Numbers of the second word of connections' addresses stay below this.
const EXACT_MAX: usize = 10_000_000;
/// Numbers of patterns' networks stay below this.
const PATTERNS_MAX: usize = 65_536;

impl ClassifyCommand {
    pub(super) fn task(&self) -> Result<Task, Error> {
        let only =
            super::outcome::TABLES.into_iter().find(|name| self.table.as_deref() == Some(name));
        if let Some(shape) = &self.generate {
            return Ok(Task::Generate { shape: shape.clone(), count: self.count, seed: self.seed });
        }
        if let Some(directory) = &self.sets {
            let (aclbench, plots) = (self.aclbench.clone(), self.plots.clone());
            if only.is_some_and(|only| only != "production" || plots.is_some()) {
                return Err(Error::Options(
                    "with --sets, write --table production, and no --plots, or no --table".into(),
                ));
            }
            return Ok(Task::Sets { directory: directory.clone(), aclbench, plots, only });
        }
        if let Some(rules) = &self.rules {
            return Ok(Task::One { rules: rules.clone(), trace: self.trace.clone(), only });
        }
        match self.exact {
            Some(connections @ 1..=EXACT_MAX) => {
                Ok(Task::Exact { connections, patterns: self.patterns })
            }
            Some(_) => Err(Error::Options(format!("write --exact 1 to --exact {EXACT_MAX}"))),
            None => Err(Error::Options(
                "nothing to classify; write --rules FILE, --sets DIRECTORY, --exact NUMBER or \
                 --generate SHAPE"
                    .into(),
            )),
        }
    }
}
