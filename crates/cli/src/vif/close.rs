//! `clearway vif close`: an administrator takes an interface away.

use std::path::PathBuf;

use clearway_channel::control::{CloseVif, Reply, Request};

use crate::client::{Client, PATIENCE, unexpected};
use crate::output::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Its number, as `clearway vif list` shows it
    number: u32,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let revoke = Request::RevokeVif(CloseVif { vif: arguments.number });
    match Client::connect(arguments.socket.as_deref())?.ask(&revoke, PATIENCE)? {
        Reply::VifClosed(_) => Ok(()),
        _ => Err(unexpected()),
    }
}
