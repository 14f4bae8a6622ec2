//! `clearway metrics`: what a daemon has counted, as Prometheus reads it. It comes from the file of
//! counters, and so needs no daemon that answers: a dead one's last numbers are printed, too.

use std::path::PathBuf;
use std::sync::Arc;

use clearway_channel::control;
use clearway_daemon::metrics::{CountersFile, counters_path_of, text};

use crate::output::{Failure, eprint, print};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Control socket of the daemon, beside which its counters are
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let socket = arguments.socket.clone().unwrap_or_else(control::client_path);
    let file = CountersFile::open(&counters_path_of(&socket)).map_err(Failure::failed)?;
    let numbers = file.read().map_err(Failure::failed)?;
    if !file.is_alive() {
        let ago = numbers.published.elapsed().unwrap_or_default().as_secs();
        eprint(&format!(
            "clearway: the daemon, process {}, is dead; these are its counters of {ago} s ago\n",
            file.process()
        ));
    }
    print(&text(&Arc::new(file.description().clone()), &numbers))
}
