//! `clearway daemon`.

use std::path::PathBuf;

use clearway_daemon::Config;

use crate::output::{Failure, print};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration; `clearway.toml` in the source tree is a commented example
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the configuration: its keys and values, and that the interfaces exist
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // From here on no signal kills it; those that come wait until it can serve them.
    clearway_daemon::hold_signals().map_err(Failure::failed)?;
    let config =
        Config::load(&arguments.config).map_err(|error| Failure::Usage(error.to_string()))?;
    if arguments.check {
        let nics: Vec<&str> = config.nics.iter().map(|nic| nic.name.as_str()).collect();
        return print(&format!(
            "{} is valid: {} NIC(s) ({}), control socket {}\n",
            arguments.config.display(),
            nics.len(),
            nics.join(", "),
            config.control.socket.display()
        ));
    }
    clearway_daemon::run(&config, &arguments.config).map_err(Failure::failed)
}
