//! Printing: to a reader that may go away, in tables, and failures with their exit codes.

pub(crate) mod fit;

use std::io::Write;
use std::process::ExitCode;

use clearway_daemon::text::{escaped_lines, print as print_text};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Why the command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not.
    Failed(String),
    /// The command line or the configuration is wrong.
    Usage(String),
    /// A ping was not sent, or not to its end.
    Ping(String),
    /// A benchmark did not finish.
    Bench(clearway_bench::Error),
}

impl Failure {
    pub(crate) fn failed(message: impl std::fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// The same for a ping, for which it is another code than the lack of an answer.
    pub(crate) fn without_answer(self) -> Self {
        Self::Ping(self.to_string())
    }

    /// Says so on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        let code = match self {
            Self::Failed(_) => 1,
            Self::Usage(_) | Self::Ping(_) => 2,
            Self::Bench(error) => error.exit_status(),
        };
        let _ = writeln!(std::io::stderr(), "clearway: {}", escaped_lines(&self.to_string()));
        ExitCode::from(code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(message) | Self::Usage(message) | Self::Ping(message) => {
                f.write_str(message)
            }
            Self::Bench(error) => error.fmt(f),
        }
    }
}

/// Writes a text to standard output, as [`clearway_daemon::text::print`] does.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_text(text).map_err(Failure::failed)
}

/// Writes a text to standard output as it is, for what goes on until it is told to end; false if
/// its reader has gone, who then has seen enough.
pub(crate) fn write(text: &str) -> Result<bool, Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Failed(format!("cannot write to standard output: {error}"))),
    }
}

/// For people, beside the output proper. That nobody reads it is no failure.
pub(crate) fn eprint(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// An empty table; columns whose titles start with `#` are aligned to the right, and the `#` is
/// not shown.
pub(crate) fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| title.trim_start_matches('#').to_uppercase()));
    for (index, title) in titles.iter().enumerate() {
        if let Some(column) = table.column_mut(index)
            && title.starts_with('#')
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table as lines without blanks at their ends.
pub(crate) fn lines(table: &Table) -> String {
    table.trim_fmt() + "\n"
}
