//! Where the control socket is.

use std::env::var_os;
use std::path::{Path, PathBuf};

const SYSTEM_PATH: &str = "/run/clearway/clearway.sock";

/// Where a daemon started by this user listens, unless its configuration says otherwise:
/// `CLEARWAY_SOCKET`, else `/run/clearway/clearway.sock` for root, else
/// `$XDG_RUNTIME_DIR/clearway.sock`, else `$HOME/.clearway.sock`. (Not in `/tmp`: there, anybody
/// could be first.)
#[must_use]
pub fn daemon_path() -> PathBuf {
    if let Some(path) = var_os("CLEARWAY_SOCKET") {
        return path.into();
    }
    if rustix::process::geteuid().is_root() {
        return SYSTEM_PATH.into();
    }
    let folder = |name: &str| var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(runtime) = folder("XDG_RUNTIME_DIR") {
        return runtime.join("clearway.sock");
    }
    folder("HOME").map_or_else(|| SYSTEM_PATH.into(), |home| home.join(".clearway.sock"))
}

/// Where an app of this user looks for a daemon: at [`daemon_path`] if there is a socket, else that
/// of the system's daemon.
#[must_use]
pub fn client_path() -> PathBuf {
    let own = daemon_path();
    let explicit = var_os("CLEARWAY_SOCKET").is_some();
    if explicit || own.exists() || !Path::new(SYSTEM_PATH).exists() {
        return own;
    }
    SYSTEM_PATH.into()
}
