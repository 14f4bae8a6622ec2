//! Metrics: what the engines have counted, for programs that watch the host.
//!
//! ```text
//!  engines ──▶ boards ──▶ thread "metrics" ──▶ file of counters   (clearway top, clearway metrics)
//!                                          └─▶ HTTP, if configured (Prometheus)
//! ```
//!
//! All of it is this thread's: neither an engine nor the control plane waits for a scraper, and a
//! control plane that stands still is still counted. There are only numbers of the host, its NICs
//! and its engines; what is an app's, only its user and administrators see, by `clearway status`.

mod file;
mod serve;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_engine::{Board, Engine, Reading};
use clearway_nic::Bell;

pub use file::{
    CounterDescription, CountersFile, Description, EngineDescription, FileError, Numbers,
};
pub use text::{CONTENT_TYPE, text};

use crate::Error;
use crate::config::Config;
use crate::privileges::OwnUser;
use file::Published;
use serve::{Listening, Server};

/// How often the file is written. A tool that shows rates looks at most every second.
const WRITE_TIME: Duration = Duration::from_millis(250);

/// Everything that is opened before the daemon confines itself.
pub(crate) struct Metrics {
    engines: Vec<Counted>,
    newcomers: Receiver<Counted>,
    file: Option<Published>,
    listening: Listening,
}

/// An engine that is counted: its NIC, its name and its board.
pub(crate) struct Counted {
    nic: String,
    name: String,
    board: Board,
}

impl Counted {
    /// `engine` is, from now on.
    pub(crate) fn of(nic: &str, engine: &mut Engine) -> Self {
        let board = engine.board();
        Self { nic: nic.to_owned(), name: engine.name().to_owned(), board }
    }
}

/// The thread that serves metrics. It ends when this is dropped; the files stay, for whoever wants
/// to know what was counted last.
#[derive(Debug)]
pub(crate) struct Running {
    stop: Arc<Bell>,
    thread: Option<JoinHandle<Files>>,
}

/// What is removed when the daemon ends in good order.
struct Files {
    counters: Option<Published>,
    server: Option<PathBuf>,
}

impl Metrics {
    /// Opens what the configuration says, for `engines`, which serve these NICs in this order, and
    /// for those that come later by `newcomers`.
    pub(crate) fn open(
        config: &Config,
        user: Option<&OwnUser>,
        engines: &mut [Engine],
        newcomers: Receiver<Counted>,
    ) -> Result<Self, Error> {
        let nics = config.nics.iter().flat_map(|nic| (0..nic.engines).map(|_| nic.name.as_str()));
        let engines: Vec<Counted> =
            nics.zip(engines).map(|(nic, engine)| Counted::of(nic, engine)).collect();
        let description = describe(&engines);
        let path = counters_path(config);
        let file = Published::create(&path, config, &description, user);
        // Whoever can make the control socket can make this; if not, all but the tools works.
        let file = file.map_err(|error| {
            tracing::warn!(
                "cannot write the counters at {}, and so there are none for `clearway metrics` and \
                 `clearway top`: {error}; make room there, and start the daemon again",
                path.display()
            );
        });
        let file = file.ok();
        let listening = Listening::open(config)?;
        Ok(Self { engines, newcomers, file, listening })
    }

    /// Starts the thread, once the daemon is confined.
    pub(crate) fn start(self) -> Result<Running, Error> {
        let failed = |error: std::io::Error| Error::resources("start a thread", error);
        let stop = Arc::new(Bell::new().map_err(failed)?);
        let stopped = Arc::clone(&stop);
        let work = move || self.run(&stopped);
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(work);
        Ok(Running { stop, thread: Some(thread.map_err(failed)?) })
    }

    fn run(self, stop: &Bell) -> Files {
        let Self { mut engines, newcomers, mut file, listening } = self;
        let mut server = Server::new(listening);
        let mut description = describe(&engines);
        let mut readings = vec![None; engines.len()];
        let mut write_at = Instant::now();
        loop {
            let now = Instant::now();
            if now >= write_at {
                let before = engines.len();
                engines.extend(newcomers.try_iter());
                readings.resize(engines.len(), None);
                read(&engines, &mut readings);
                if engines.len() > before {
                    description = describe(&engines);
                    if let Some(file) = &mut file {
                        file.extend(&description, &readings);
                    }
                }
                if let Some(file) = &mut file {
                    file.write(&readings);
                }
                write_at = now + WRITE_TIME;
            }
            let fresh = || {
                let mut readings = vec![None; engines.len()];
                read(&engines, &mut readings);
                text(&description, &Numbers::now(readings))
            };
            if server.turn(stop, write_at, fresh).is_break() {
                break;
            }
        }
        Files { counters: file, server: server.into_path() }
    }
}

fn describe(engines: &[Counted]) -> Arc<Description> {
    let each = engines.iter().map(|engine| (&*engine.nic, &*engine.name, &engine.board));
    Arc::new(Description::of(each))
}

/// Keeps the last reading of an engine whose thread was stopped while it wrote.
fn read(engines: &[Counted], readings: &mut [Option<Reading>]) {
    for (engine, reading) in engines.iter().zip(readings) {
        if let Some(new) = engine.board.read() {
            *reading = Some(new);
        }
    }
}

impl Running {
    /// Ends it, and removes the files: the daemon ends in good order.
    pub(crate) fn end(mut self) {
        let Some(files) = self.stop() else { return };
        if let Some(counters) = files.counters {
            counters.remove();
        }
        if let Some(path) = files.server
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "metrics socket left behind");
        }
    }

    fn stop(&mut self) -> Option<Files> {
        let thread = self.thread.take()?;
        self.stop.ring();
        thread.join().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where a daemon with this control socket has its counters.
#[must_use]
pub fn counters_path_of(socket: &std::path::Path) -> PathBuf {
    socket.with_extension("counters")
}

fn counters_path(config: &Config) -> PathBuf {
    counters_path_of(&config.control.socket)
}

#[cfg(test)]
mod tests;
