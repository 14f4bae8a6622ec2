//! Confining the daemon, once everything is open: seccomp for system calls, Landlock for files.
//!
//! An attacker who has taken over a daemon from the wire or from an app's shared memory finds
//! nothing to start, no file to read, and no way to get its privileges back. What is refused fails
//! with `EPERM` (calls) or `EACCES` (files), and a refused call is named in the log, so that one
//! that was forgotten here is an error with a name and not a dead daemon.
//!
//! Called before any thread is started, since both belong to threads and are inherited. A kernel
//! that cannot do one of them is no reason not to start: the log and `clearway status` say so.

mod calls;
mod files;
mod refusals;

use std::path::Path;

use serde::Serialize;

use crate::broker::Task;
use crate::config::Config;
use calls::Who;

/// What confines this process, or why nothing does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// Whom the process runs as, if that is not root.
    pub user: String,
    /// `on`, perhaps with a reservation, or `off:` and why.
    pub system_calls: String,
    /// The same for files.
    pub files: String,
}

/// What a part says that is in force as a whole.
const ON: &str = "on";
/// Whatever else it may not do, other processes of the machine trust a process of root.
pub(crate) const STILL_ROOT: &str = "it runs as root; make a user for it (useradd --system \
                                     --user-group --no-create-home --shell /usr/sbin/nologin \
                                     clearway), or name one as `user` in the configuration";
/// DPDK starts its threads when it opens its devices, which it cannot do confined. They keep what
/// root has, and it is they who set up links (memif) and handle interrupts.
const NOT_DPDK: &str = ", except for DPDK's own threads, which are started before";

impl Confinement {
    /// Nothing is confined, and why.
    pub(crate) fn off(why: &str) -> Self {
        let off = format!("off: {why}");
        Self { user: user_state(), system_calls: off.clone(), files: off }
    }
}

/// How well a daemon on this machine would be confined. Tries it on a thread that ends at once.
#[must_use]
pub fn try_confinement() -> Confinement {
    let attempt = || {
        let config = Config::default();
        match crate::privileges::drop_unneeded(&config, None) {
            Ok(()) => confine_silently(&config),
            Err(error) => Confinement::off(&format!("privileges cannot be dropped ({error})")),
        }
    };
    let attempt = std::thread::spawn(attempt);
    attempt.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Confines the calling thread, and all that it starts from now on.
pub(crate) fn confine(config: &Config) -> Confinement {
    let confinement = confine_silently(config);
    let Confinement { system_calls, files, .. } = &confinement;
    for (what, state) in [("system calls", system_calls), ("files", files)] {
        if state == ON {
            tracing::debug!("{what} are confined");
        } else {
            tracing::warn!("{what} are not fully confined ({state})");
        }
    }
    confinement
}

fn confine_silently(config: &Config) -> Confinement {
    let off = |why: String| format!("off: {why}");
    // Files first: Landlock's own system calls are none of those that are allowed.
    let files = files::confine(config).unwrap_or_else(off);
    let who = if config.uses_kernel_interfaces() {
        Who::DaemonOnInterface
    } else if config.uses_taps() {
        Who::DaemonOnTap
    } else if config.uses_udp_sockets() {
        Who::DaemonOnSockets
    } else {
        Who::Daemon
    };
    let system_calls = calls::confine(who).unwrap_or_else(off);
    let reserved = |state: String| if config.uses_dpdk() { state + NOT_DPDK } else { state };
    Confinement { user: user_state(), system_calls: reserved(system_calls), files: reserved(files) }
}

/// Confines a broker: all that it can. Its daemon says what this machine lacks.
pub(crate) fn confine_broker(task: &Task) {
    let parts = [files::confine_broker(task), calls::confine(Who::Broker)];
    for problem in parts.iter().filter_map(|part| part.as_ref().err()) {
        tracing::debug!("the broker is not fully confined ({problem})");
    }
}

/// Confines an opener: all that it can.
pub(crate) fn confine_opener(config: &Path, has_taps: bool) {
    let parts = [files::confine_opener(config, has_taps), calls::confine(Who::Opener)];
    for problem in parts.iter().filter_map(|part| part.as_ref().err()) {
        tracing::debug!("the opener is not fully confined ({problem})");
    }
}

/// What `status` says of the user.
fn user_state() -> String {
    match rustix::process::geteuid() {
        root if root.is_root() => format!("off: {STILL_ROOT}"),
        user => format!("{ON}, user {}", user.as_raw()),
    }
}

#[cfg(test)]
mod tests;
