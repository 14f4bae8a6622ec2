//! The `clearway` command: what people use to start the daemon and to look at it.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 when it went
//! well, 1 when it did not (a daemon that refuses to read its configuration again, too), 2 when the
//! command line is wrong, or the configuration that a daemon is started with. `ping` has those of
//! the ping that everybody knows.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod daemon;
mod doctor;
mod documents;
mod explain;
mod fabric;
mod flows;
mod metrics;
mod output;
mod owned;
mod ping;
mod reason;
mod regions;
mod reload;
mod sim;
mod status;
mod stop;
#[cfg(test)]
#[path = "../tests/support/terminal.rs"]
mod terminal;
mod top;
mod units;
mod vif;
mod zone;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use output::Failure;

/// What holds for all of it, and so stands nowhere else.
const AFTER_HELP: &str = "\
Where a daemon is asked and --socket is not given, its control socket is $CLEARWAY_SOCKET, else \
that of a daemon of this user ($XDG_RUNTIME_DIR/clearway.sock or $HOME/.clearway.sock), else \
/run/clearway/clearway.sock.

Exit codes: 0 if it went well, 1 if not, 2 if the command line is wrong, or the configuration that \
a daemon is started with; of ping 1 without an answer, and 2 if anything else went wrong.";

/// Fast networking for every program on a host.
#[derive(Debug, Parser)]
#[command(name = "clearway", version, about, after_help = AFTER_HELP)]
#[command(arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Daemon(clearway_daemon::program::Arguments),
    /// Show the engines, apps, flows and counters of a running daemon
    Status(status::Arguments),
    /// Show each connection of a running daemon, those of TCP as `ss -ti` does
    Flows(flows::Arguments),
    /// Show what apps share by one-sided operations, and with whom
    Regions(regions::Arguments),
    /// Watch NICs, engines, apps and flows, with their rates
    Top(top::Arguments),
    /// Say what a counter counts, when it rises, and what to do about it
    Explain(explain::Arguments),
    /// Print what a daemon has counted, in the format of Prometheus
    Metrics(metrics::Arguments),
    /// Have a running daemon read its configuration again
    Reload(reload::Arguments),
    /// Measure the round trip to the daemon of another host; exits as ping does: 1 without an
    /// answer, 2 if anything else went wrong
    Ping(ping::Arguments),
    /// List and open virtual interfaces, and capture what passes
    Vif(vif::Arguments),
    /// Stand in for a cloud's network: memif ports, hidden RSS, a switch, and bad luck
    Fabric(fabric::Arguments),
    /// Say what this machine can do, and what would help
    Doctor(doctor::Arguments),
    /// Simulate whole networks of hosts with every kind of bad luck, and check that nothing goes
    /// wrong
    Sim(sim::Arguments),
    /// Measure Clearway beside the kernel's TCP, UDP and Unix sockets, in one run
    Bench(clearway_bench::BenchCommand),
    /// Show in under a minute what Clearway does here, beside kernel TCP
    Demo(clearway_bench::DemoCommand),
    #[command(hide = true)]
    Documents(documents::Arguments),
    #[command(hide = true)]
    BenchRole(clearway_bench::RoleCommand),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Daemon(arguments) => daemon::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Flows(arguments) => flows::run(&arguments),
        Command::Regions(arguments) => regions::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Reload(arguments) => reload::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments),
        Command::Vif(arguments) => vif::run(&arguments),
        Command::Fabric(arguments) => fabric::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Documents(place) => documents::run(&place, Arguments::command()),
        Command::Bench(command) => bench::run(&command),
        Command::Demo(command) => command.execute().map_err(Failure::Bench),
        Command::BenchRole(role) => role.run(bench::run_engines).map_err(Failure::failed),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
