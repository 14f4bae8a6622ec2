//! `clearway documents`: man pages and completions, written from the definition of the command
//! itself, so that they cannot say anything else than `--help`. For `tools/install.sh`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clearway_daemon::program;

use crate::output::Failure;

/// Where each shell looks, below `share` of the prefix.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/clearway"),
    (Shell::Zsh, "zsh/site-functions/_clearway"),
    (Shell::Fish, "fish/vendor_completions.d/clearway.fish"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory to write to; what is in it then belongs below `share`
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, command: Command) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let failed = |error: io::Error| {
        Failure::Failed(format!("cannot write below {}: {error}", directory.display()))
    };
    write_completions(&command, directory).map_err(failed)?;
    write_pages(command, &directory.join("man")).map_err(failed)
}

fn write_completions(command: &Command, directory: &Path) -> io::Result<()> {
    for (shell, place) in COMPLETIONS {
        let path = directory.join(place);
        fs::create_dir_all(path.parent().expect("a file in a directory"))?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "clearway", &mut text);
        fs::write(path, text)?;
    }
    Ok(())
}

/// A page for the command and for each of its subcommands, which name each other, and one for the
/// daemon.
fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    let [commands, daemons] = ["man1", "man8"].map(|section| directory.join(section));
    fs::create_dir_all(&commands)?;
    fs::create_dir_all(&daemons)?;
    clap_mangen::generate_to(command, &commands)?;
    let mut page = fs::File::create(daemons.join("clearwayd.8"))?;
    clap_mangen::Man::new(program::Arguments::command()).section("8").render(&mut page)
}
