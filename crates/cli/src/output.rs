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
    /// A benchmark did not finish.
    Bench(clearway_bench::Error),
}

impl Failure {
    pub(crate) fn failed(message: impl std::fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// Says so on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        let (code, message) = match self {
            Self::Failed(message) => (1, message.clone()),
            Self::Usage(message) => (2, message.clone()),
            Self::Bench(error) => (error.exit_status(), error.to_string()),
        };
        let _ = writeln!(std::io::stderr(), "clearway: {}", escaped_lines(&message));
        ExitCode::from(code)
    }
}

/// Writes a text to standard output, as [`clearway_daemon::text::print`] does.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_text(text).map_err(Failure::failed)
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
