//! Which files a running daemon may touch: none but its own sockets, which it removes at the end,
//! and its own program, for the names in a backtrace. Its broker reads the user database and the
//! configuration.

use std::path::{Path, PathBuf};

use clearway_nic::tap;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

use super::ON;
use crate::broker::Task;
use crate::config::Config;
use crate::users;

/// Everything that this version of Landlock (Linux 6.12) can refuse is refused, as far as the
/// running kernel can.
const VERSION: ABI = ABI::V6;
/// Where the user database may be, on its own or through a name service.
const USER_DATABASE: [&str; 5] =
    ["/etc", "/run/nscd", "/run/systemd/userdb", "/var/lib/sss", "/usr/lib"];

/// Where the kernel says what eBPF programs have to know of it.
const OPENERS: [&str; 2] = ["/sys/kernel/btf", "/sys/devices/system/cpu"];

/// Confines the calling thread of a daemon, and says how well.
pub(super) fn confine(config: &Config) -> Result<String, String> {
    let rules = no_files().and_then(|rules| rules.scope(Scope::AbstractUnixSocket)?.create());
    outcome(rules.and_then(|rules| of_daemon(rules, config)))
}

/// Confines the calling thread of a broker, and says how well.
pub(super) fn confine_broker(task: &Task) -> Result<String, String> {
    let connects = task.notifies || task.connections.iter().any(|to| to.starts_with('@'));
    let rules = no_files().and_then(|rules| {
        if connects { rules.create() } else { rules.scope(Scope::AbstractUnixSocket)?.create() }
    });
    outcome(rules.and_then(|rules| of_broker(rules, task)))
}

/// Confines the calling thread of an opener, and says how well. The sockets of memif servers are
/// made, and dead ones removed, wherever its user may: nobody can tell yet where that will be.
pub(super) fn confine_opener(config: &Path, has_taps: bool) -> Result<String, String> {
    let refused = AccessFs::from_all(VERSION) & !(AccessFs::MakeSock | AccessFs::RemoveFile);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(refused)
        .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp | AccessNet::BindTcp))
        .and_then(|rules| rules.scope(Scope::Signal)?.create());
    let config = directories_of(config);
    let read = OPENERS.map(Path::new).into_iter().chain(config.iter().map(PathBuf::as_path));
    outcome(rules.and_then(|mut rules| {
        for directory in read {
            rules = allow(rules, directory, AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        if has_taps {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            rules = allow(rules, Path::new(tap::PATH), access)?;
        }
        Ok(rules)
    }))
}

/// Neither files nor signals nor TCP connections. (TCP ports are bound to keep them from others;
/// nobody can listen there: `calls.rs`.)
fn no_files() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::Signal)
}

fn of_daemon(mut rules: RulesetCreated, config: &Config) -> Result<RulesetCreated, RulesetError> {
    if let Ok(program) = std::env::current_exe() {
        rules = allow(rules, &program, AccessFs::ReadFile.into())?;
    }
    for directory in config.listening_sockets().filter_map(Path::parent) {
        rules = allow(rules, directory, AccessFs::RemoveFile.into())?;
    }
    Ok(rules)
}

fn of_broker(mut rules: RulesetCreated, task: &Task) -> Result<RulesetCreated, RulesetError> {
    users::prepare();
    let config = task.config.as_deref().map(directories_of).unwrap_or_default();
    let config = config.iter().map(PathBuf::as_path);
    for directory in USER_DATABASE.map(Path::new).into_iter().chain(config) {
        rules = allow(rules, directory, AccessFs::ReadFile | AccessFs::ReadDir)?;
    }
    Ok(rules)
}

/// Where a configuration is, and where it is really, if that is a link. As a whole, because an
/// editor puts a new file in the place of the old one.
fn directories_of(config: &Path) -> Vec<PathBuf> {
    let files = std::iter::once(config.to_owned()).chain(config.canonicalize());
    files.map(|file| file.parent().unwrap_or(Path::new("/")).to_owned()).collect()
}

/// Puts the rules into force, and says how well.
fn outcome(rules: Result<RulesetCreated, RulesetError>) -> Result<String, String> {
    let status =
        rules.and_then(RulesetCreated::restrict_self).map_err(|error| error.to_string())?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => Ok(ON.to_owned()),
        (RulesetStatus::PartiallyEnforced, _) => {
            Ok("on, as far as this kernel's Landlock goes (all of it from Linux 6.12)".to_owned())
        }
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Err("Landlock is built into this kernel but not enabled; boot with lsm=landlock,... \
                 (`cat /sys/kernel/security/lsm`)"
                .to_owned())
        }
        (RulesetStatus::NotEnforced, _) => {
            Err("this kernel has no Landlock; Linux 5.13 or newer has".to_owned())
        }
    }
}

/// What is not there needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(path) => rules.add_rule(PathBeneath::new(path, access)),
        Err(_) => Ok(rules),
    }
}
