//! The eBPF program (`bpf/steer.c`): loading it, attaching it, and steering through its maps.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use aya::maps::{MapData, MapError, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfError, include_bytes_aligned};

use super::patterns::Patterns;
use crate::Error;
use crate::interface::{Channels, Device, KernelSteering, PatternTable, SteerPattern, Steered};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.o"));

/// The program's two forms in steer.c. The second runs slower in generic mode.
const PLAIN: &str = "steer";
const FRAGMENTS: &str = "steer_fragments";

/// What must be undone when the last user of the interface goes: detaching the program (which the
/// kernel also does if this process is killed, because the link is a file descriptor) and putting
/// the number of queues back.
pub(super) struct Attachment {
    // Fields are dropped in this order, after `drop` has run.
    _link: FdLink,
    changed: Option<Changed>,
}

/// A number of queues that we changed.
pub(super) struct Changed {
    pub(super) device: Device,
    pub(super) before: Channels,
}

impl Drop for Changed {
    fn drop(&mut self) {
        // Nothing is left to do about a failure: the interface is gone or no longer ours.
        let _ = self.device.restore_channels(self.before);
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("changed", &self.changed.is_some()).finish()
    }
}

/// A loaded program, not yet attached.
pub(super) struct Program {
    ebpf: Ebpf,
    function: &'static str,
    sockets: XskMap<MapData>,
    patterns: Patterns,
    reasons: PerCpuArray<MapData, u64>,
}

impl Program {
    /// Loads the program and its maps into the kernel.
    pub(super) fn load() -> Result<Program, Error> {
        let mut ebpf = Ebpf::load(OBJECT).map_err(load_failed)?;
        load(&mut ebpf, PLAIN)?;
        Ok(Program {
            sockets: map(&mut ebpf, "sockets"),
            patterns: Patterns::new(map(&mut ebpf, "groups"), map(&mut ebpf, "values"))?,
            reasons: map(&mut ebpf, "reasons"),
            ebpf,
            function: PLAIN,
        })
    }

    /// Chooses the form for drivers that spread large frames over several buffers.
    pub(super) fn take_fragments(&mut self) -> Result<(), Error> {
        self.function = FRAGMENTS;
        load(&mut self.ebpf, FRAGMENTS)
    }

    /// Attaches it in `mode`. The error is the system's own: what it means depends on the mode.
    pub(super) fn attach(&mut self, device: &Device, mode: XdpMode) -> io::Result<FdLink> {
        let program = program(&mut self.ebpf, self.function);
        let id = program.attach_to_if_index(device.index(), mode).map_err(system_error)?;
        let link = program.take_link(id).map_err(system_error)?;
        // Without a link of its own the program would outlive us.
        FdLink::try_from(link).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    /// Lets the frames of `queue` go to `socket`.
    pub(super) fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(queue, socket.as_raw_fd(), 0).map_err(map_error)
    }

    /// The handle for the control thread.
    pub(super) fn into_steering(
        self,
        device: Device,
        attachment: Arc<Attachment>,
    ) -> Result<KernelSteering, Error> {
        let table = XdpPatterns {
            patterns: self.patterns,
            reasons: self.reasons,
            _sockets: self.sockets,
            _attachment: attachment,
        };
        KernelSteering::new(Box::new(table), device)
    }
}

impl Attachment {
    pub(super) fn new(link: FdLink, changed: Option<Changed>) -> Attachment {
        Attachment { _link: link, changed }
    }
}

/// The patterns of an attached program.
struct XdpPatterns {
    patterns: Patterns,
    reasons: PerCpuArray<MapData, u64>,
    _sockets: XskMap<MapData>,
    _attachment: Arc<Attachment>,
}

impl PatternTable for XdpPatterns {
    fn insert(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.insert(pattern)
    }

    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.remove(pattern)
    }

    fn steered(&self) -> Option<Steered> {
        let count = |reason: u32| match self.reasons.get(&reason, 0) {
            Ok(values) => values.iter().sum(),
            Err(_) => 0,
        };
        Some(Steered {
            redirected: count(0),
            passed_malformed: count(1),
            passed_fragment: count(2),
            passed_other: count(3),
        })
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut Xdp {
    let program = ebpf.program_mut(name).expect("steer.c has a function of this name");
    program.try_into().expect("its section makes it an XDP program")
}

fn load(ebpf: &mut Ebpf, name: &str) -> Result<(), Error> {
    match program(ebpf, name).load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(()),
        Err(error) => Err(load_failed(EbpfError::ProgramError(error))),
    }
}

fn map<T: TryFrom<aya::maps::Map, Error = MapError>>(ebpf: &mut Ebpf, name: &str) -> T {
    let map = ebpf.take_map(name).expect("steer.c has a map of this name");
    map.try_into().expect("steer.c has it with this type, key and value")
}

fn load_failed(error: EbpfError) -> Error {
    let source = find_io_error(&error).unwrap_or_else(|| io::Error::other(error.to_string()));
    // The verifier, too, has an error about permission: EACCES.
    if source.raw_os_error() == Some(libc::EPERM) {
        return Error::Permission(
            "cannot load the eBPF program of af_xdp: that needs CAP_BPF and CAP_NET_ADMIN (and the \
             sockets CAP_NET_RAW) in the initial user namespace. Run as root, or give the program \
             these capabilities (setcap, or AmbientCapabilities= in a systemd unit)"
                .into(),
        );
    }
    Error::System {
        action: "cannot load the eBPF program of af_xdp".into(),
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

fn system_error(error: ProgramError) -> io::Error {
    find_io_error(&error).unwrap_or_else(|| io::Error::other(error.to_string()))
}

pub(super) fn map_error(error: MapError) -> io::Error {
    find_io_error(&error).unwrap_or_else(|| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests;
