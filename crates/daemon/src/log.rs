//! Where log lines go and how they look: standard error, never standard output.
//!
//! A line is one event, whatever names and errors are in it: `crate::text` writes out what could
//! look like another line, or play with the terminal that shows it.

use std::sync::OnceLock;

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{Log, LogFormat};
use crate::text::escaped;

/// Changes what is logged. Set by whoever starts the log.
static LEVEL: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Sends the process's log to standard error. `RUST_LOG` overrides the configured level. Does
/// nothing if the process already has a log.
pub fn start(log: &Log) {
    let (filter, handle) = reload::Layer::new(filter(log));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(StandardError);
    let lines = match log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        let _ = LEVEL.set(handle);
    }
    let given = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    if let Some(problem) = given.as_deref().and_then(problem_of) {
        tracing::warn!("RUST_LOG is no filter ({problem}): the configured level holds");
    }
}

/// Whether `RUST_LOG` says what is logged, whatever the configuration says.
pub(crate) fn is_by_environment() -> bool {
    EnvFilter::try_from_default_env().is_ok()
}

/// Why a text is no filter, if so.
fn problem_of(text: &str) -> Option<String> {
    EnvFilter::try_new(text).err().map(|error| error.to_string())
}

/// Logs as much as `log` says from now on, unless `RUST_LOG` says how much.
pub(crate) fn change_level(log: &Log) {
    if let Some(level) = LEVEL.get()
        && let Err(error) = level.reload(filter(log))
    {
        tracing::warn!(%error, "the level of the log stays as it is");
    }
}

fn filter(log: &Log) -> EnvFilter {
    EnvFilter::try_from_default_env()
        .or_else(|_| EnvFilter::try_new(&log.level))
        .unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Standard error, whose reader may go away without taking the daemon along.
struct StandardError;

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line
    }
}

/// Writes one event as one line.
struct Line;

impl std::io::Write for Line {
    /// An event comes as a whole, with a newline at its end.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(line(bytes).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    escaped(text.strip_suffix('\n').unwrap_or(&text)).into_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_told() {
        assert_eq!(problem_of("warn,clearway_nic=debug"), None);
        assert!(problem_of("clearway_nic=loud").is_some());
    }

    #[test]
    fn event_is_one_line_whatever_it_says() {
        let forged = b"INFO refused: no engine \"x\n2026-01-01 INFO attached\x1b[31m\"\n";
        let expected = "INFO refused: no engine \"x\\u000a2026-01-01 INFO attached\\u001b[31m\"\n";
        assert_eq!(line(forged), expected);
        assert_eq!(line(b"\xff"), "\u{fffd}\n");
    }
}
