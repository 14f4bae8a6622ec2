//! What the eBPF programs of `bpf/` have in common: loading them, their patterns, and errors.
//!
//! `steer.c` is the AF_XDP driver's (`af_xdp/program.rs`), `hide.c` keeps from the kernel's stack
//! what a packet socket has seen ([`Hiding`]), `turn.c` brings virtual interfaces and the kernel
//! together ([`Turning`]). Each has tables of its own.

mod hiding;
mod installed;
mod patterns;
mod turning;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Map, MapError};
use aya::programs::tc::SchedClassifier;
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfError};

use crate::Error;

pub(crate) use hiding::Hiding;
pub use installed::{AttachMode, Installed, Memory, NotInstalled, Opener, ThisProcess, XdpSocket};
pub(crate) use installed::{Hook, attach, in_order, table, table_of, tables_of};
pub(crate) use patterns::Patterns;
pub(crate) use turning::Turning;

/// Loads the maps of an object file of ours.
pub(crate) fn load_object(object: &[u8]) -> Result<Ebpf, Error> {
    Ebpf::load(object).map_err(load_failed)
}

/// The XDP program of this name.
pub(crate) fn xdp_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut Xdp {
    let program = ebpf.program_mut(name).expect("the object has a function of this name");
    program.try_into().expect("its section makes it an XDP program")
}

/// The classifier of this name.
fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    let program = ebpf.program_mut(name).expect("the object has a function of this name");
    program.try_into().expect("its section makes it a classifier")
}

/// The descriptor of the map of this name.
fn descriptor_of<'a>(ebpf: &'a Ebpf, name: &str) -> BorrowedFd<'a> {
    match ebpf.map(name).expect("the object has a map of this name") {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::XskMap(data) => data.fd().as_fd(),
        other => panic!("{name} is none of the maps that the objects have: {other:?}"),
    }
}

/// What loading a program has come to.
pub(crate) fn loaded(outcome: Result<(), ProgramError>) -> Result<(), Error> {
    match outcome {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(()),
        Err(error) => Err(load_failed(EbpfError::ProgramError(error))),
    }
}

fn map_failed(error: MapError) -> Error {
    Error::System {
        action: "cannot use the tables of an eBPF program".into(),
        remedy: "The kernel may be out of memory, or the daemon has lost CAP_BPF".into(),
        source: system_error(&error),
    }
}

fn load_failed(error: EbpfError) -> Error {
    let source = find_io_error(&error).unwrap_or_else(|| io::Error::other(error.to_string()));
    // The verifier, too, has an error about permission: EACCES.
    if source.raw_os_error() == Some(libc::EPERM) {
        return Error::Permission(
            "cannot load an eBPF program: that needs CAP_BPF and CAP_NET_ADMIN (and the sockets \
             CAP_NET_RAW) in the initial user namespace. Run as root, or give the program these \
             capabilities (setcap, or AmbientCapabilities= in a systemd unit)"
                .into(),
        );
    }
    Error::System {
        action: "cannot load an eBPF program".into(),
        remedy: "It needs Linux 5.18 or newer with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS; use \
                 af_packet or memif elsewhere"
            .into(),
        source,
    }
}

/// The system's own error at the bottom of a chain of explanations.
fn find_io_error(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            });
        }
        cause = error.source();
    }
    None
}

pub(crate) fn system_error(error: &(dyn std::error::Error + 'static)) -> io::Error {
    find_io_error(error).unwrap_or_else(|| io::Error::other(error.to_string()))
}
