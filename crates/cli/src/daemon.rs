//! `clearway daemon`: becomes `clearwayd`, so that a process which serves apps has nothing in it
//! that it does not need.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clearway_daemon::program::Arguments;

use crate::output::Failure;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let program = program().map_err(Failure::failed)?;
    let mut command = Command::new(&program);
    if let Some(config) = &arguments.config {
        command.arg("--config").arg(config);
    }
    if arguments.check {
        command.arg("--check");
    }
    let error = command.exec();
    Err(Failure::failed(format!(
        "cannot start {}: {error}\n    remedy: `clearwayd` has to be beside `clearway`; install \
         both again",
        program.display()
    )))
}

/// `clearwayd`, of the same installation as this program.
pub(crate) fn program() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("clearwayd"))
}
