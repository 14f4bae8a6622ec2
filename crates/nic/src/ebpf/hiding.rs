//! Hiding frames from the kernel's stack that packet sockets have seen (`bpf/hide.c`).
//!
//! A packet socket gets a copy, and the kernel goes on with its own. With this it does not: what
//! the patterns match ends behind the packet sockets. It is attached by a link of TCX (Linux 6.6),
//! which is a file descriptor: whatever becomes of this process, nothing stays behind.

use aya::programs::links::FdLink;
use aya::programs::tc::{SchedClassifier, TcAttachOptions};
use aya::programs::{LinkOrder, TcAttachType};
use aya::{Ebpf, include_bytes_aligned};

use super::{Patterns, load_object, loaded, map, system_error};
use crate::Error;
use crate::interface::{Device, PatternTable, SteerPattern, Steered};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/hide.o"));

/// Its function in hide.c.
const FUNCTION: &str = "hide";

/// The program at work on an interface, which hides nothing yet.
pub(crate) struct Hiding {
    patterns: Patterns,
    /// Keeps the program, and it the maps.
    _link: FdLink,
}

impl Hiding {
    /// Begins on `device`, which is in the network namespace of the calling thread.
    pub(crate) fn begin(device: &Device) -> Result<Hiding, Error> {
        let (mut ebpf, patterns) = load()?;
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let program = program(&mut ebpf);
        let link = program
            .attach_with_options(device.name(), TcAttachType::Ingress, order)
            .and_then(|id| program.take_link(id))
            .map_err(|error| attach_failed(device, &error))?;
        let link = FdLink::try_from(link).map_err(|error| attach_failed(device, &error))?;
        Ok(Hiding { patterns, _link: link })
    }
}

/// The program in the kernel, at work nowhere.
fn load() -> Result<(Ebpf, Patterns), Error> {
    let mut ebpf = load_object(OBJECT)?;
    let patterns = Patterns::new(map(&mut ebpf, "groups"), map(&mut ebpf, "values"))?;
    loaded(program(&mut ebpf).load())?;
    Ok((ebpf, patterns))
}

fn program(ebpf: &mut Ebpf) -> &mut SchedClassifier {
    let program = ebpf.program_mut(FUNCTION).expect("hide.c has a function of this name");
    program.try_into().expect("its section makes it a classifier")
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

fn attach_failed(device: &Device, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::System {
        action: format!(
            "cannot attach an eBPF program behind the packet sockets of {}",
            device.name()
        ),
        remedy: "It needs Linux 6.6 or newer and CAP_NET_ADMIN".into(),
        source: system_error(error),
    }
}

#[cfg(test)]
mod tests;
