//! `clearway reload`: as SIGHUP, and says what has come of it.

use std::path::PathBuf;
use std::time::Duration;

use clearway_channel::control::{Empty, Reloaded, Reply, Request};

use crate::client::{Client, unexpected};
use crate::output::{Failure, print};

/// Names in the configuration may have to be looked up far away.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::connect(arguments.socket.as_deref())?;
    match client.ask(&Request::Reload(Empty {}), PATIENCE)? {
        Reply::Reloaded(reloaded) => print(&text(&reloaded)),
        _ => Err(unexpected()),
    }
}

fn text(reloaded: &Reloaded) -> String {
    let line = |what: &str, list: &[String]| match list {
        [] => String::new(),
        list => format!("{what}: {}\n", list.join(", ")),
    };
    let text = line("taken over", &reloaded.taken)
        + &line("needs a restart of the daemon", &reloaded.needs_restart);
    if text.is_empty() { "nothing has changed\n".to_owned() } else { text }
}
