//! What a configuration is checked against: the interfaces, cores, users and groups of a machine.

use std::cell::RefCell;
use std::collections::BTreeMap;

use nix::net::if_::if_nameindex;
use nix::unistd::{Group, User};
use serde::{Deserialize, Serialize};

use super::{Limits, Policy};

/// The facts that a configuration refers to by name. A trait so that tests bring their own.
pub trait Machine {
    /// The names of the network interfaces.
    fn interfaces(&self) -> Vec<String>;
    /// The cores on which this process may run.
    fn cores(&self) -> Vec<usize>;
    /// The id of a user.
    fn user_id(&self, name: &str) -> Option<u32>;
    /// The id of a group.
    fn group_id(&self, name: &str) -> Option<u32>;
}

/// The machine (and network namespace) that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    /// From the kernel's list and not from sysfs, which shows the network namespace it was mounted
    /// in and not the caller's.
    fn interfaces(&self) -> Vec<String> {
        let Ok(interfaces) = if_nameindex() else { return Vec::new() };
        let names = interfaces.iter().map(|interface| interface.name().to_string_lossy());
        names.map(|name| name.into_owned()).collect()
    }

    fn cores(&self) -> Vec<usize> {
        match rustix::thread::sched_getaffinity(None) {
            Ok(set) => {
                (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
            }
            Err(_) => (0..std::thread::available_parallelism().map_or(1, Into::into)).collect(),
        }
    }

    fn user_id(&self, name: &str) -> Option<u32> {
        User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
    }
}

/// What a machine said when it was asked, for somebody who cannot ask it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMachine {
    interfaces: Vec<String>,
    cores: Vec<usize>,
    users: BTreeMap<String, Option<u32>>,
    groups: BTreeMap<String, Option<u32>>,
}

/// Asks this machine, and takes down what it says.
#[derive(Debug)]
pub struct Recorder {
    record: RefCell<RecordedMachine>,
}

impl Recorder {
    /// Nobody has been asked about yet.
    #[must_use]
    pub fn new() -> Self {
        let (interfaces, cores) = (ThisMachine.interfaces(), ThisMachine.cores());
        let record = RecordedMachine { interfaces, cores, ..RecordedMachine::default() };
        Self { record: RefCell::new(record) }
    }

    /// All that was said.
    #[must_use]
    pub fn into_record(self) -> RecordedMachine {
        self.record.into_inner()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine for Recorder {
    fn interfaces(&self) -> Vec<String> {
        self.record.borrow().interfaces.clone()
    }

    fn cores(&self) -> Vec<usize> {
        self.record.borrow().cores.clone()
    }

    fn user_id(&self, name: &str) -> Option<u32> {
        let id = ThisMachine.user_id(name);
        self.record.borrow_mut().users.insert(name.to_owned(), id);
        id
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        let id = ThisMachine.group_id(name);
        self.record.borrow_mut().groups.insert(name.to_owned(), id);
        id
    }
}

impl Machine for RecordedMachine {
    fn interfaces(&self) -> Vec<String> {
        self.interfaces.clone()
    }

    fn cores(&self) -> Vec<usize> {
        self.cores.clone()
    }

    fn user_id(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied().flatten()
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied().flatten()
    }
}

/// What a daemon has without a `[policy]`: nobody but its own user and root, within the limits of
/// this machine.
pub(super) fn policy() -> Policy {
    Policy { limits: limits(), ..Policy::default() }
}

/// The limits that suit this machine.
pub(super) fn limits() -> Limits {
    let system = rustix::system::sysinfo();
    let memory_bytes = system.totalram as u64 * u64::from(system.mem_unit);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Limits::of_machine(memory_bytes, processors)
}
