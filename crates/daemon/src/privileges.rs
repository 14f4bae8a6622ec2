//! Giving up what root has and the daemon does not need: the user, and capabilities.
//!
//! Called after the NICs and the control socket are open and before any thread is started, because
//! capabilities belong to threads. What is left is confined by `crate::confinement`.
//!
//! A service manager may start the daemon as its own user, with the capabilities that its NICs need
//! to be opened (`packaging/clearway.service`). Started by root, it becomes that user here: a
//! process of uid 0 is trusted by every other of the machine, whatever capabilities it has.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown, fchown};
use std::path::Path;

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use rustix::fs::{AtFlags, chownat};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use crate::config::Config;
use crate::socket;

/// The first Linux on which tables of a program can be changed by whoever has their descriptor.
const KERNEL_WITH_FREE_MAPS: (u32, u32) = (5, 19);

/// The user that a daemon becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnUser {
    pub(crate) name: String,
    pub(crate) user: Uid,
    group: Gid,
    /// All its groups.
    groups: Vec<Gid>,
}

impl OwnUser {
    /// The user that this process has to become; `None` if it is root's no longer, or if root it
    /// has to stay.
    pub(crate) fn wanted(config: &Config) -> io::Result<Option<Self>> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        let name = config.user.as_deref().unwrap_or(Config::USER_DEFAULT);
        match Self::named(name)? {
            None if config.user.is_some() => Err(io::Error::other(format!("no user {name:?}"))),
            found => Ok(found.filter(|found| !found.user.is_root())),
        }
    }

    /// The user of this name, if there is one.
    pub(crate) fn named(name: &str) -> io::Result<Option<Self>> {
        let Some(user) = User::from_name(name)? else { return Ok(None) };
        let c_name = std::ffi::CString::new(name)?;
        let groups = getgrouplist(&c_name, user.gid)?;
        Ok(Some(Self { name: name.to_owned(), user: user.uid, group: user.gid, groups }))
    }

    /// Whether this user can read a file, as far as the file itself says so.
    pub(crate) fn may_read(&self, file: &Metadata) -> bool {
        let is_of_group = self.groups.iter().any(|group| group.as_raw() == file.gid());
        let bit = match (file.uid() == self.user.as_raw(), is_of_group) {
            (true, _) => 0o400,
            (false, true) => 0o040,
            (false, false) => 0o004,
        };
        file.mode() & bit != 0
    }

    /// Makes the directory of `socket`, if it is missing, so that this user can remove the socket
    /// at the end.
    pub(crate) fn make_directory(&self, socket: &Path) -> io::Result<()> {
        let Some(directory) = socket.parent() else { return Ok(()) };
        match std::fs::DirBuilder::new().mode(0o755).create(directory) {
            Ok(()) => chown(directory, Some(self.user.as_raw()), Some(self.group.as_raw())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a file this user's.
    pub(crate) fn give(&self, file: &File) -> io::Result<()> {
        fchown(file, Some(self.user.as_raw()), Some(self.group.as_raw()))
    }

    /// Makes a socket this user's. The directory may be its already, and with it what is at the
    /// path: so no file is given away that is something else.
    pub(crate) fn give_socket(&self, path: &Path) -> io::Result<()> {
        let socket = socket::file_of(path)?;
        let user = rustix::process::Uid::from_raw(self.user.as_raw());
        let group = rustix::process::Gid::from_raw(self.group.as_raw());
        Ok(chownat(socket, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?)
    }

    /// Becomes this user for good, and keeps the permitted capabilities, none of which is
    /// effective.
    fn become_it(&self) -> io::Result<()> {
        set_keep_capabilities(true)?;
        setgroups(&self.groups)?;
        setresgid(self.group, self.group, self.group)?;
        setresuid(self.user, self.user, self.user)?;
        Ok(())
    }
}

/// What stays of the privileges of this process.
fn needed(config: &Config) -> CapabilitySet {
    let with_kernel = config.uses_kernel_interfaces();
    if !with_kernel {
        return CapabilitySet::empty();
    }
    // The kernel is asked to find neighbours (RTM_NEWNEIGH), and DPDK puts settings back at exit.
    CapabilitySet::NET_ADMIN
        // Packet sockets, by which interfaces join groups and copies come.
        | CapabilitySet::NET_RAW
        // Ports below 1024 that the policy gives away are taken from the kernel's programs.
        | CapabilitySet::NET_BIND_SERVICE
        | needed_for_maps(config)
}

/// Before Linux 5.19, only CAP_BPF may change the steering program's tables where programs without
/// privilege may not use bpf(2), which is everywhere.
fn needed_for_maps(config: &Config) -> CapabilitySet {
    let free = kernel_version().is_some_and(|version| version >= KERNEL_WITH_FREE_MAPS);
    if free && !config.uses_dpdk() { CapabilitySet::empty() } else { CapabilitySet::BPF }
}

/// Of the running kernel: `None` if it says something odd.
pub(crate) fn kernel_version() -> Option<(u32, u32)> {
    let uname = rustix::system::uname();
    let release = uname.release().to_str().ok()?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// Becomes `user`, if one is given, and keeps only what this configuration needs, for this thread
/// and all that it starts.
pub(crate) fn drop_unneeded(config: &Config, user: Option<&OwnUser>) -> io::Result<()> {
    keep_only(needed(config), user)
}

/// The same, and keeps nothing.
pub(crate) fn drop_all(user: Option<&OwnUser>) -> io::Result<()> {
    keep_only(CapabilitySet::empty(), user)
}

/// The same, and keeps what brings eBPF programs to interfaces, and what makes tap devices, as far
/// as that is wanted.
pub(crate) fn drop_all_but_opening(
    user: Option<&OwnUser>,
    interfaces: bool,
    taps: bool,
) -> io::Result<()> {
    let opening = CapabilitySet::NET_ADMIN
        | CapabilitySet::NET_RAW
        | CapabilitySet::BPF
        // The memory of AF_XDP sockets is pinned, beyond the limit if this was there at the start.
        | CapabilitySet::IPC_LOCK;
    let kept = match (interfaces, taps) {
        (true, _) => opening,
        (false, true) => CapabilitySet::NET_ADMIN,
        (false, false) => CapabilitySet::empty(),
    };
    keep_only(kept, user)
}

fn keep_only(wanted: CapabilitySet, user: Option<&OwnUser>) -> io::Result<()> {
    let held = capabilities(None)?;
    let kept = wanted & held.permitted;
    for capability in CapabilitySet::all().iter() {
        let removable = held.effective.contains(CapabilitySet::SETPCAP)
            && !kept.contains(capability)
            && capability_is_in_bounding_set(capability).unwrap_or(false);
        if removable {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    if let Some(user) = user {
        user.become_it()?;
    }
    // Nothing is inheritable, so nothing can be ambient either (capabilities(7)).
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    tracing::debug!(kept = ?kept, user = user.map(|user| &user.name), "privileges dropped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Driver, Interface, InterfaceDriver, Memif, MemifRole, Nic, XdpMode};

    #[test]
    fn memif_needs_nothing_and_a_kernel_interface_little() {
        let mut config = Config::default();
        let link = Memif::new("/tmp/x", MemifRole::Server);
        config.nics.push(Nic::new("m", Driver::Memif(link), Vec::new()));
        assert_eq!(needed(&config), CapabilitySet::empty());
        let eth0 = Interface {
            name: "eth0".into(),
            driver: InterfaceDriver::Auto,
            mode: XdpMode::Auto,
            queues: None,
            super_frames: None,
        };
        config.nics.push(Nic::new("e", Driver::Interface(eth0), Vec::new()));
        assert!(needed(&config).contains(CapabilitySet::NET_ADMIN));
        let all = CapabilitySet::NET_ADMIN
            | CapabilitySet::NET_RAW
            | CapabilitySet::NET_BIND_SERVICE
            | CapabilitySet::BPF;
        assert!(all.contains(needed(&config)), "{:?}", needed(&config));
    }

    #[test]
    fn only_sockets_are_given_away_as_such() {
        let directory = std::env::temp_dir().join(format!("clearway-given-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let [path, link, file] = ["socket", "link", "file"].map(|name| directory.join(name));
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        std::fs::write(&file, "of somebody else").expect("written");
        let (user, group) = (Uid::effective(), Gid::effective());
        let own = OwnUser { name: "own".to_owned(), user, group, groups: Vec::new() };
        own.give_socket(&path).expect("it is one");
        for other in [link, file] {
            let error = own.give_socket(&other).expect_err("none").to_string();
            assert!(error.contains("is no socket"), "{error}");
        }
        std::fs::remove_dir_all(&directory).expect("its own");
    }

    /// In a thread of its own, so that the other tests keep what they have.
    #[test]
    fn dropped_privileges_are_gone() {
        let after = std::thread::spawn(|| {
            drop_unneeded(&Config::default(), None).expect("dropping needs no privilege");
            capabilities(None).expect("own capabilities")
        });
        let after = after.join().expect("no panic");
        assert_eq!(after.permitted, CapabilitySet::empty());
        assert_eq!(after.effective, CapabilitySet::empty());
    }
}
