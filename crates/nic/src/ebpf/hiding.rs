//! Hiding frames from the kernel's stack that packet sockets have seen (`bpf/hide.c`).
//!
//! A packet socket gets a copy, and the kernel goes on with its own. With this it does not: what
//! the patterns match ends behind the packet sockets. It is attached by a link of TCX (Linux 6.6),
//! which is a file descriptor: whatever becomes of this process, nothing stays behind.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::programs::tc::SchedClassifier;
use aya::{Ebpf, include_bytes_aligned};

use super::{
    Hook, Installed, Opener, Patterns, attach, classifier, in_order, load_failed, load_object,
    loaded, tables_of,
};
use crate::Error;
use crate::interface::{Device, PatternTable, SteerPattern, Steered};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/hide.o"));

/// Its function in hide.c.
const FUNCTION: &str = "hide";

/// Its tables there; two arrays of groups come after them.
const TABLES: [&str; 2] = ["groups", "values"];

/// The program at work on an interface.
pub(crate) struct Hiding {
    patterns: Patterns,
    /// Keeps the program, and it the maps.
    _link: OwnedFd,
}

impl Hiding {
    /// Begins on `device`, and hides nothing yet.
    pub(crate) fn begin(opener: &dyn Opener, device: &Device) -> Result<Hiding, Error> {
        let Installed { link, tables } = opener.hide(device)?;
        Ok(Hiding { patterns: patterns(tables)?, _link: link })
    }
}

/// Has the program work on `device`.
pub(super) fn install(device: &Device) -> Result<Installed, Error> {
    let mut ebpf = load()?;
    let program = program(&mut ebpf).fd().map_err(|error| load_failed(error.into()))?;
    let link = attach(program.as_fd(), device, Hook::TcxIngress, 0)
        .map_err(|error| attach_failed(device, error))?;
    Ok(Installed { link, tables: tables_of(&ebpf, &TABLES)? })
}

/// The program in the kernel, at work nowhere.
fn load() -> Result<Ebpf, Error> {
    let mut ebpf = load_object(OBJECT)?;
    loaded(program(&mut ebpf).load())?;
    Ok(ebpf)
}

fn patterns(tables: Vec<OwnedFd>) -> Result<Patterns, Error> {
    let [groups, values, first, second] = in_order(tables)?;
    Patterns::new(groups, values, [first, second])
}

fn program(ebpf: &mut Ebpf) -> &mut SchedClassifier {
    classifier(ebpf, FUNCTION)
}

impl PatternTable for Hiding {
    fn insert(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.insert(pattern)
    }

    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.remove(pattern)
    }

    fn steered(&self) -> Option<Steered> {
        None
    }
}

fn attach_failed(device: &Device, source: io::Error) -> Error {
    Error::System {
        action: format!(
            "cannot attach an eBPF program behind the packet sockets of {}",
            device.name()
        ),
        remedy: "It needs Linux 6.6 or newer and CAP_NET_ADMIN".into(),
        source,
    }
}

#[cfg(test)]
mod tests;
