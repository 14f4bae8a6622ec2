//! The `clearway` command: the daemon, and what people use to look at it.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 when it went
//! well, 1 when it did not, 2 when the command line or the configuration is wrong.

mod client;
mod daemon;
mod doctor;
mod output;
mod ping;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Fast networking for every program on a host.
#[derive(Debug, Parser)]
#[command(name = "clearway", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a host: own the NICs and serve apps until SIGTERM or SIGINT
    Daemon(daemon::Arguments),
    /// Show the engines, apps, flows and counters of a running daemon
    Status(status::Arguments),
    /// Measure the round trip to the daemon of another host
    Ping(ping::Arguments),
    /// Say what this machine can do, and what would help
    Doctor(doctor::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Daemon(arguments) => daemon::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
