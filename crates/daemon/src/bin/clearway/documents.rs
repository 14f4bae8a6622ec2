//! `clearway documents`: man pages and completions, written from the definition of the command itself,
//! so that they cannot say anything else than `--help`. For `tools/install.sh`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

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
    let pages = directory.join("man/man1");
    fs::create_dir_all(&pages).and_then(|()| write_pages(command, &pages)).map_err(failed)
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

/// A page for the command and for each of its subcommands, which name each other.
fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(command, directory)
}
