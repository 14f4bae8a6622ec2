//! Where the control socket is.

use std::env::var_os;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const SYSTEM_PATH: &str = "/run/clearway/clearway.sock";

/// Where a daemon started by this user listens, unless its configuration says otherwise:
/// `CLEARWAY_SOCKET`, else `/run/clearway/clearway.sock` for root, else
/// `$XDG_RUNTIME_DIR/clearway.sock`, else `$HOME/.clearway.sock`. (Not in `/tmp`: there, anybody
/// could be first.)
#[must_use]
pub fn daemon_path() -> PathBuf {
    daemon_path_of(|name| var_os(name), rustix::process::geteuid().is_root())
}

/// Where an app of this user looks for a daemon: at [`daemon_path`] if there is a socket, else that
/// of the system's daemon.
#[must_use]
pub fn client_path() -> PathBuf {
    client_path_of(daemon_path(), var_os("CLEARWAY_SOCKET").is_some(), Path::exists)
}

fn daemon_path_of(variable: impl Fn(&str) -> Option<OsString>, is_root: bool) -> PathBuf {
    if let Some(path) = variable("CLEARWAY_SOCKET") {
        return path.into();
    }
    if is_root {
        return SYSTEM_PATH.into();
    }
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(runtime) = folder("XDG_RUNTIME_DIR") {
        return runtime.join("clearway.sock");
    }
    folder("HOME").map_or_else(|| SYSTEM_PATH.into(), |home| home.join(".clearway.sock"))
}

fn client_path_of(own: PathBuf, is_explicit: bool, exists: impl Fn(&Path) -> bool) -> PathBuf {
    let system = Path::new(SYSTEM_PATH);
    if is_explicit || exists(&own) || !exists(system) { own } else { system.into() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn daemons_listen_where_the_documentation_says() {
        let path = |variables: &[(&str, &str)], is_root| {
            let found = |name: &str| variables.iter().find(|(other, _)| *other == name);
            daemon_path_of(|name| found(name).map(|(_, value)| value.into()), is_root)
        };
        let (runtime, home) = (("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/home/seven"));
        let explicit = ("CLEARWAY_SOCKET", "/srv/socket");
        assert_eq!(path(&[runtime, home, explicit], true), Path::new("/srv/socket"));
        assert_eq!(path(&[runtime, home, explicit], false), Path::new("/srv/socket"));
        assert_eq!(path(&[runtime, home], true), Path::new(SYSTEM_PATH));
        assert_eq!(path(&[runtime, home], false), Path::new("/run/user/7/clearway.sock"));
        let empty = ("XDG_RUNTIME_DIR", "");
        assert_eq!(path(&[empty, home], false), Path::new("/home/seven/.clearway.sock"));
        assert_eq!(path(&[empty], false), Path::new(SYSTEM_PATH));
    }

    #[test]
    fn apps_look_at_home_first_and_go_elsewhere_only_to_somebody() {
        let own = Path::new("/home/seven/.clearway.sock");
        let system = Path::new(SYSTEM_PATH);
        for (is_explicit, there, expected) in [
            (false, &[own, system][..], own),
            (false, &[own], own),
            (false, &[system], system),
            (false, &[], own),
            (true, &[system], own),
            (true, &[], own),
        ] {
            let found = client_path_of(own.into(), is_explicit, |path| there.contains(&path));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn both_ask_the_process_itself() {
        let own = daemon_path_of(|name| var_os(name), rustix::process::geteuid().is_root());
        assert_eq!(daemon_path(), own);
        let is_explicit = var_os("CLEARWAY_SOCKET").is_some();
        assert_eq!(client_path(), client_path_of(own, is_explicit, Path::exists));
    }
}
