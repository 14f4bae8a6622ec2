//! Why a daemon cannot start or go on. Each text names the cause and the remedy.

use std::path::PathBuf;

/// Why a daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] crate::config::Problems),
    /// The control socket's path is taken.
    #[error("the control socket {path} {cause}\n    remedy: {remedy}", path = path.display())]
    SocketInUse {
        /// The path.
        path: PathBuf,
        /// By whom.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// A NIC cannot be opened.
    #[error("the NIC \"{nic}\" cannot be opened: {source}")]
    Nic {
        /// The NIC's name in the configuration.
        nic: String,
        /// Cause and remedy.
        #[source]
        source: clearway_nic::Error,
    },
    /// The operating system said no.
    #[error("{action}: {source}\n    remedy: {remedy}")]
    System {
        /// What was being done.
        action: String,
        /// The system's own error.
        #[source]
        source: std::io::Error,
        /// What to do.
        remedy: String,
    },
    /// An engine does not end.
    #[error("the engine \"{0}\" did not end in time; its peers will notice by themselves, later")]
    EngineStuck(String),
    /// An engine's thread has panicked.
    #[error(
        "the engine \"{0}\" has crashed; this is a bug in Clearway: please report it with the log \
         above"
    )]
    EngineCrashed(String),
}

impl Error {
    /// A system call that has no reason to fail but a lack of memory or descriptors.
    pub fn resources(action: &str, source: impl Into<std::io::Error>) -> Self {
        Self::System {
            action: format!("cannot {action}"),
            source: source.into(),
            remedy: "raise the limits on memory and open files (ulimit -a)".to_owned(),
        }
    }
}
