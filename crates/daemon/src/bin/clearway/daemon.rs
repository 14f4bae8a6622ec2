//! `clearway daemon`.

use std::path::{Path, PathBuf};

use clearway_daemon::Config;

use crate::output::{Failure, print};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration; `clearway.toml` in the source tree is a commented example
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration: its keys and values, and what of the machine is in its way
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // From here on no signal kills it; those that come wait until it can serve them.
    clearway_daemon::hold_signals().map_err(Failure::failed)?;
    let config =
        Config::load(&arguments.config).map_err(|error| Failure::Usage(error.to_string()))?;
    if arguments.check {
        return check(&config, &arguments.config);
    }
    clearway_daemon::run(&config, &arguments.config).map_err(Failure::failed)
}

/// Says what is in the way of a daemon with this configuration, or what it would be.
fn check(config: &Config, path: &Path) -> Result<(), Failure> {
    let notes = clearway_daemon::config::check(config, path);
    let notes = notes.map_err(|problems| Failure::Usage(problems.to_string()))?;
    let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
    let nics: Vec<&str> = config.nics.iter().map(|nic| nic.name.as_str()).collect();
    print(&format!(
        "{} is valid: {} NIC(s) ({}), control socket {}\n{notes}",
        path.display(),
        nics.len(),
        nics.join(", "),
        config.control.socket.display()
    ))
}
