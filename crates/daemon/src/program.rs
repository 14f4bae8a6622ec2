//! `clearwayd`: its command line, and what it says when it ends.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 when it went
//! well, 1 when it did not, 2 when the command line or the configuration is wrong.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::text::{escaped_lines, print};
use crate::{Config, broker, config, hold_signals, opener, run};

/// Where the configuration of the host's own daemon is.
const CONFIG_OF_HOST: &str = "/etc/clearway.toml";

/// Run a host: own the NICs and serve apps until SIGTERM or SIGINT
#[derive(Debug, Parser)]
#[command(name = "clearwayd", version)]
#[command(after_help = "RUST_LOG, if it is set, says what is logged in place of `level` in [log].")]
pub struct Arguments {
    /// The configuration; `clearway.toml` in the source tree, or in share/clearway of a package, is
    /// a commented example. If none is given, root has /etc/clearway.toml if there is one; else
    /// messages go by the kernel's UDP sockets at all addresses of the host, for this user only
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only check the configuration: its keys and values, and what of the machine is in its way
    #[arg(long)]
    pub check: bool,
}

/// The exit code, and what is told.
type Failure = (u8, String);

/// The whole of the program.
#[must_use]
pub fn main() -> ExitCode {
    let first = std::env::args_os().nth(1);
    let is = |subcommand: &str| first.as_ref().is_some_and(|first| first == subcommand);
    let result = if is(broker::SUBCOMMAND) {
        broker::serve().map_err(failed)
    } else if is(opener::SUBCOMMAND) {
        opener::serve().map_err(failed)
    } else {
        serve(&Arguments::parse())
    };
    let Err((code, message)) = result else { return ExitCode::SUCCESS };
    // Who started it may have closed standard error; there is nobody else to tell.
    let _ = writeln!(std::io::stderr(), "clearwayd: {}", escaped_lines(&message));
    ExitCode::from(code)
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    // From here on no signal kills it; those that come wait until it can serve them.
    hold_signals().map_err(failed)?;
    let Some(path) = arguments.config.clone().or_else(config_of_host) else {
        if arguments.check {
            return Err((2, none_to_check(Path::new(CONFIG_OF_HOST).exists())));
        }
        return run(&Config::without_file(), None).map_err(failed);
    };
    let config = Config::load(&path).map_err(|error| (2, error.to_string()))?;
    if arguments.check {
        return check(&config, &path);
    }
    run(&config, Some(&path)).map_err(failed)
}

/// The configuration of the host's own daemon, which root starts. Other users have daemons of their
/// own.
fn config_of_host() -> Option<PathBuf> {
    let path = Path::new(CONFIG_OF_HOST);
    (rustix::process::geteuid().is_root() && path.exists()).then(|| path.to_owned())
}

/// Why there is nothing to check, to whom none was given; root has that of the host if it is there.
fn none_to_check(is_there: bool) -> String {
    match is_there {
        true => format!(
            "only root takes {CONFIG_OF_HOST} by itself; name it: --config {CONFIG_OF_HOST}"
        ),
        false => format!("there is no {CONFIG_OF_HOST}; name one with --config FILE"),
    }
}

/// Says what is in the way of a daemon with this configuration, or what it would be.
fn check(config: &Config, path: &Path) -> Result<(), Failure> {
    let notes = config::check(config, path).map_err(|problems| (2, problems.to_string()))?;
    let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
    let nics: Vec<&str> = config.nics.iter().map(|nic| nic.name.as_str()).collect();
    let text = format!(
        "{} is valid: {} NIC(s) ({}), control socket {}\n{notes}",
        path.display(),
        nics.len(),
        nics.join(", "),
        config.control.socket.display()
    );
    print(&text).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    (1, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_said_to_be_missing() {
        assert!(none_to_check(true).contains("name it: --config /etc/clearway.toml"));
        assert!(none_to_check(false).starts_with("there is no /etc/clearway.toml"));
    }
}
