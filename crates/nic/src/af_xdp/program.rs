//! The eBPF program (`bpf/steer.c`): loading it, attaching it, and steering through its maps.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use aya::maps::{MapData, PerCpuArray, XskMap};
use aya::programs::XdpMode;
use aya::programs::links::FdLink;
use aya::{Ebpf, include_bytes_aligned};

use crate::Error;
use crate::ebpf::{Patterns, load_object, loaded, map, system_error, xdp_program};
use crate::interface::{Channels, Device, PatternTable, SteerPattern, Steered};

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
        let mut ebpf = load_object(OBJECT)?;
        loaded(xdp_program(&mut ebpf, PLAIN).load())?;
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
        loaded(xdp_program(&mut self.ebpf, FRAGMENTS).load())
    }

    /// Attaches it in `mode`. The error is the system's own: what it means depends on the mode.
    pub(super) fn attach(&mut self, device: &Device, mode: XdpMode) -> io::Result<FdLink> {
        let program = xdp_program(&mut self.ebpf, self.function);
        let id = program
            .attach_to_if_index(device.index(), mode)
            .map_err(|error| system_error(&error))?;
        let link = program.take_link(id).map_err(|error| system_error(&error))?;
        // Without a link of its own the program would outlive us.
        FdLink::try_from(link).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    /// Lets the frames of `queue` go to `socket`.
    pub(super) fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(queue, socket.as_raw_fd(), 0).map_err(|error| system_error(&error))
    }

    /// Has what is ours go by the kernel's stack if it is longer than that, or a super-frame, or a
    /// packet without its checksum.
    pub(super) fn pass_unfinished(&mut self, frame_bytes_max: usize) {
        self.patterns.pass_unfinished(frame_bytes_max as u64);
    }

    /// The handle for the control thread.
    pub(super) fn into_table(self, attachment: Arc<Attachment>) -> Box<dyn PatternTable> {
        Box::new(XdpPatterns {
            patterns: self.patterns,
            reasons: self.reasons,
            _sockets: self.sockets,
            _attachment: attachment,
        })
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
            passed_unfinished: count(4),
        })
    }
}

#[cfg(test)]
mod tests;
