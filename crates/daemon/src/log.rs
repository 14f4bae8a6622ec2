//! Where log lines go and how they look: standard error, never standard output.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat};

/// Sends the process's log to standard error. `RUST_LOG` overrides the configured level. Does
/// nothing if the process already has a log.
pub fn start(log: &Log) {
    let filter = EnvFilter::try_from_default_env()
        .or_else(|_| EnvFilter::try_new(&log.level))
        .unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(StandardError);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    drop(started);
}

/// Standard error, whose reader may go away without taking the daemon along.
struct StandardError;

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = Forgiving;

    fn make_writer(&'a self) -> Forgiving {
        Forgiving
    }
}

struct Forgiving;

impl std::io::Write for Forgiving {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
