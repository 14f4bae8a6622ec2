//! For who is not root: this program runs once more, as the root of namespaces of its own, where it
//! may make others and interfaces between them. Nothing outside of them changes.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// A user namespace in which this user is root, and a network namespace that belongs to it.
const NAMESPACES: [&str; 3] = ["--user", "--map-root-user", "--net"];

/// If this process is not root and the kernel lets it, runs the same command as the root of new
/// namespaces, and does not return. Call it before there are threads or open files.
pub(crate) fn enter() {
    if !rustix::process::geteuid().is_root() && may_enter() {
        let Ok(program) = std::env::current_exe() else { return };
        // It returns only if it has failed; then the command goes on without namespaces.
        let _ = unshare().arg(program).args(std::env::args_os().skip(1)).exec();
    }
}

/// True if what root may do here holds for the whole machine: eBPF, and with it AF_XDP, is for no
/// other root.
pub(crate) fn is_of_the_machine() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_of_all_users(&map))
}

/// The first user namespace has all user ids as they are (user_namespaces(7)).
fn is_of_all_users(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Some machines let only root have user namespaces (`user.max_user_namespaces`, AppArmor), and
/// some have no `unshare` or no `ip`.
fn may_enter() -> bool {
    let mut probe = unshare();
    probe.args(["ip", "link", "show", "lo"]).stdin(Stdio::null());
    let output = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).arg("--");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_namespace_has_all_users() {
        assert!(is_of_all_users("         0          0 4294967295\n"));
        assert!(!is_of_all_users("         0       1000          1\n"));
        assert!(!is_of_all_users("0 100000 65536\n"));
        assert!(!is_of_all_users(""));
    }
}
