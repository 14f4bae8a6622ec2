//! Which files a running daemon may touch: none but its own sockets, which it removes at the end, its
//! own program, for the names in a backtrace, and the user database if the policy names groups.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::ON;
use crate::config::{Config, Driver, MemifRole};
use crate::policy::Peer;

/// Everything that this version of Landlock (Linux 6.12) can refuse is refused, as far as the running
/// kernel can. Later ones refuse connections to Unix sockets, which memif's clients make.
const VERSION: ABI = ABI::V6;
/// Where the user database may be, on its own or through a name service.
const USER_DATABASE: [&str; 5] =
    ["/etc", "/run/nscd", "/run/systemd/userdb", "/var/lib/sss", "/usr/lib"];

/// Confines the calling thread, and says how well.
pub(super) fn confine(config: &Config) -> Result<String, String> {
    let status = restrict(config).map_err(|error| error.to_string())?;
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

fn restrict(config: &Config) -> Result<RestrictionStatus, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        // TCP ports are bound to keep them from others; nobody can listen there (`calls.rs`).
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::Signal)?
        .create()?;
    if let Ok(program) = std::env::current_exe() {
        rules = allow(rules, &program, AccessFs::ReadFile.into())?;
    }
    for directory in directories(config) {
        rules = allow(rules, &directory, AccessFs::RemoveFile.into())?;
    }
    if config.policy.names_groups() {
        Peer::prepare_groups();
        for directory in USER_DATABASE {
            let read = AccessFs::ReadFile | AccessFs::ReadDir;
            rules = allow(rules, Path::new(directory), read)?;
        }
    }
    rules.restrict_self()
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

/// The directories of the sockets that the daemon listens on.
fn directories(config: &Config) -> Vec<PathBuf> {
    let memif = config.nics.iter().filter_map(|nic| match &nic.driver {
        Driver::Memif(link) if link.role == MemifRole::Server && !link.socket.starts_with('@') => {
            Some(Path::new(&link.socket))
        }
        _ => None,
    });
    let sockets = std::iter::once(config.control.socket.as_path()).chain(memif);
    sockets.filter_map(Path::parent).map(Path::to_owned).collect()
}
