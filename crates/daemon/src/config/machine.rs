//! What a configuration is checked against: the interfaces, cores, users and groups of a machine.

use std::fs;

use nix::unistd::{Group, User};

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
    fn interfaces(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
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
