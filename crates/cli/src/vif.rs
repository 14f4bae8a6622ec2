//! `clearway vif`: virtual interfaces and captures, for people.

mod capture;
mod close;
mod list;
mod observer;
mod open;
mod packet;
mod pcapng;
mod show;
mod sightings;

use clap::Subcommand;

use crate::output::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the virtual interfaces that this user may see: its own, or for root those of all apps
    List(list::Arguments),
    /// Show all of one virtual interface, and explain its filters
    Show(show::Arguments),
    /// Open a virtual interface and print what it receives, a line per packet
    Open(open::Arguments),
    /// Take a virtual interface or a capture away from its app, which is told
    Close(close::Arguments),
    /// Print, or write as pcapng, what apps and the host send and receive
    Capture(capture::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(arguments) => list::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Open(arguments) => open::run(arguments),
        Command::Close(arguments) => close::run(arguments),
        Command::Capture(arguments) => capture::run(arguments),
    }
}

/// How many packets are wanted: without end if not said, or if it is 0, as of probes of a ping.
fn wanted(count: Option<u64>) -> u64 {
    count.filter(|count| *count > 0).unwrap_or(u64::MAX)
}
